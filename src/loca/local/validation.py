"""Blended answers of local and global models, and held-out questions to judge them by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array
from torch import Tensor

from loca.data.held_out import HeldOut
from loca.local.aggregation import combine
from loca.local.local_models import LocalModels, one_for_each
from loca.models.devices import ranking_bytes
from loca.models.network_answers import score_on
from loca.models.recommender import Recommender
from loca.ranking.evaluation import UserRows, mean_ndcgs, ndcg_of_each


@dataclass(frozen=True, eq=False)
class BlendedAnswers:
    """Local models and the global one, which covers who is left."""

    local: LocalModels
    global_model: Recommender

    def scores(self, histories: csr_array, answer_weights: csr_array, alpha: float) -> Tensor:
        """α · global + (1 − α) · local where a community answers, the global scores where none does; users × items.

        The global model is asked only for those whose answer it has a share in.
        """
        if alpha:
            return next(self.with_shares(histories, answer_weights, (alpha,)))
        blended = self.local.blend(histories, answer_weights)
        rest = np.flatnonzero(np.diff(answer_weights.indptr) == 0)
        if len(rest):
            blended[rest] = score_on(self.global_model, csr_array(histories[rest])).to(blended.device)
        return blended

    def with_shares(self, histories: csr_array, answer_weights: csr_array, alphas: Sequence[float]) -> Iterator[Tensor]:
        """The scores for each of the `alphas`, one after the other; local and global models are asked once."""
        local_scores = self.local.blend(histories, answer_weights)
        global_scores = score_on(self.global_model, histories)
        covered = np.diff(answer_weights.indptr) > 0
        for alpha in alphas:
            yield combine(global_scores, local_scores, covered, alpha)


@dataclass(frozen=True, eq=False)
class BlendedQuestions:
    """Held-out questions with the weights of the communities that answer each, users × communities."""

    held_out: HeldOut
    answer_weights: csr_array
    global_model: Recommender

    def score(self, local: LocalModels, alphas: Sequence[float]) -> list[float]:
        """The mean NDCG@100 of the blended answer for each of the `alphas`."""
        answers = BlendedAnswers(local, self.global_model)

        def score_users(user_rows: UserRows) -> Iterator[Tensor]:
            asked = self._asked(user_rows)
            return (
                iter([answers.scores(*asked, alphas[0])]) if len(alphas) == 1 else answers.with_shares(*asked, alphas)
            )

        return mean_ndcgs(score_users, self.held_out, 100, block_bytes=ranking_bytes(local.device))

    def _asked(self, user_rows: UserRows) -> tuple[csr_array, csr_array]:
        """Histories and answer weights of some users: the same arrays every time where all users are one block."""
        if len(user_rows) == self.held_out.n_users:
            return self.held_out.history_matrix, self.answer_weights
        return csr_array(self.held_out.history_matrix[user_rows]), csr_array(self.answer_weights[user_rows])


@dataclass(frozen=True, eq=False)
class MemberQuestions:
    """Held-out questions put to each community alone, for the users whom it answers for; all communities at once."""

    held_out: HeldOut
    answer_weights: csr_array

    @cached_property
    def _pairs(self) -> tuple[UserRows, UserRows]:
        """Community and user of every question: each community's users who have a held-out item."""
        communities = self.answer_weights.tocsc()
        community = np.repeat(np.arange(communities.shape[1]), np.diff(communities.indptr))
        user = communities.indices.astype(np.int64)
        asked = self.held_out.target_counts[user] > 0
        return community[asked], user[asked]

    def score(self, local: LocalModels, communities: Iterable[int]) -> dict[int, float]:
        """The mean NDCG@100 of each of the communities by its own model; nothing of one that has nobody to ask."""
        asked = np.zeros(len(local), dtype=np.bool_)
        asked[list(communities)] = True
        community, user = (part[asked[self._pairs[0]]] for part in self._pairs)

        def score_asked(pairs: UserRows) -> Tensor:
            """The scores of those pairs, left where they are computed."""
            rows = csr_array(self.held_out.history_matrix[user[pairs]])
            return local.blend(rows, one_for_each(community[pairs], len(local)))

        values = ndcg_of_each(score_asked, self.held_out, user, 100, block_bytes=ranking_bytes(local.device))
        sums, counts = np.bincount(community, values, len(local)), np.bincount(community, minlength=len(local))
        return {int(one): float(sums[one] / counts[one]) for one in np.flatnonzero(counts)}
