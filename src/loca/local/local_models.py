"""What Loca and Ensemble ask of all their models together: a blended answer, and each model's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor

from loca.data.splits import HeldOut
from loca.errors import ModelFileError
from loca.evaluation.evaluate import UserRows, mean_ndcgs, ndcg_of_each
from loca.models.devices import ranking_bytes
from loca.models.network_base import NetworkModel, score_on
from loca.models.recommender import Recommender, Scores
from loca.persistence.manifest import ModelState

Covered = npt.NDArray[np.bool_]
_MAIN_MEMORY = torch.device("cpu")


def blend_local(
    histories: csr_array,
    answer_weights: csr_array,
    score_with: Callable[[int, csr_array], Tensor],
    device: torch.device = _MAIN_MEMORY,
) -> tuple[Tensor, Covered]:
    """Σ_j w_j · M_j(history) / Σ_j w_j for every user, users × items on the device, and who is covered at all.

    `score_with(j, histories)` asks local model j, once, for exactly the users whom it answers for. An uncovered
    user's row is zero.
    """
    totals = np.asarray(answer_weights.sum(axis=1)).ravel()  # (users,)
    blended = torch.zeros(histories.shape, device=device)
    by_community = answer_weights.tocsc()
    for community in range(by_community.shape[1]):
        part = slice(by_community.indptr[community], by_community.indptr[community + 1])
        members, weights = by_community.indices[part], by_community.data[part]
        if not len(members):
            continue
        shares = torch.from_numpy((weights / totals[members]).astype(np.float32)).to(device)
        answers = score_with(community, csr_array(histories[members])).to(device)
        blended[torch.from_numpy(members.astype(np.int64)).to(device)] += shares[:, None] * answers
    return blended, totals > 0


def combine(global_scores: Tensor, local_scores: Tensor, covered: Covered, alpha: float) -> Tensor:
    """α · global + (1 − α) · local where a user is covered, the global scores where not, users × items."""
    share = torch.from_numpy(np.where(covered, np.float32(alpha), np.float32(1))).to(local_scores.device)[:, None]
    return share * global_scores.to(local_scores.device) + (1 - share) * local_scores


@runtime_checkable
class LocalModels(Protocol):
    """Many fitted models over the same items, numbered like the communities they answer for."""

    @property
    def device(self) -> torch.device:
        """Where the blended answers lie."""
        ...

    def __len__(self) -> int: ...

    def count_items(self) -> int:
        """How many items they score."""
        ...

    def blend(self, histories: csr_array, answer_weights: csr_array) -> torch.Tensor:
        """Σ_j w_j · M_j(history) / Σ_j w_j of every user, (users, items) on the device.

        `answer_weights` is users × models; a user without any gets a row of zeros.
        """
        ...

    def score_with(self, number: int, histories: csr_array) -> Scores:
        """One model's own scores, users × items."""
        ...

    def state(self) -> ModelState: ...

    @classmethod
    def restore(cls, params: Mapping[str, Any], state: ModelState) -> Self: ...


def one_for_each(numbers: npt.NDArray[np.int64], models: int) -> csr_array:
    """Answer weights by which row r is answered by the model `numbers[r]` alone, rows × models."""
    rows = len(numbers)
    return csr_array((np.ones(rows, np.float32), numbers, np.arange(rows + 1)), shape=(rows, models))


class SeparateModels:
    """Local models of any kind, each asked in turn: what the reference engine gives."""

    def __init__(self) -> None:
        self.models_: list[Recommender] = []

    @classmethod
    def of(cls, models: Sequence[Recommender]) -> SeparateModels:
        """The given fitted models."""
        one = cls()
        one.models_ = list(models)
        return one

    @property
    def device(self) -> torch.device:
        """Where the blended answers lie: with the first model, if that is a network, else in main memory."""
        first: object = self.models_[0]
        network = first.network_ if isinstance(first, NetworkModel) else None
        return torch.device("cpu") if network is None else network.device

    def __len__(self) -> int:
        return len(self.models_)

    def count_items(self) -> int:
        """How many items they score."""
        return self.models_[0].count_items()

    def blend(self, histories: csr_array, answer_weights: csr_array) -> torch.Tensor:
        """The answers of all models, blended by the weights; each is asked once, for those it answers for."""
        blended, _ = blend_local(
            histories, answer_weights, lambda number, asked: score_on(self.models_[number], asked), self.device
        )
        return blended

    def score_with(self, number: int, histories: csr_array) -> Scores:
        """One model's own scores."""
        return self.models_[number].score(histories)

    def state(self) -> ModelState:
        return ModelState(parts={f"model {number}": model for number, model in enumerate(self.models_)})

    @classmethod
    def restore(cls, params: Mapping[str, Any], state: ModelState) -> Self:
        names = [f"model {number}" for number in range(len(state.parts))]
        if not names or set(state.parts) != set(names):
            raise ModelFileError(f"expected models named 'model 0' and on, found {sorted(state.parts)[:3]}")
        models = [state.parts[name] for name in names]
        if not all(isinstance(one, Recommender) for one in models):
            raise ModelFileError("a part is not a recommender")
        if len({one.count_items() for one in models}) > 1:
            raise ModelFileError("the models score different numbers of items")
        restored = cls()
        restored.models_ = models
        return restored


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
class BlendValidator:
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
class CommunityValidator:
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
