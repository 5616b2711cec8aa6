"""The judge of every choice on validation: it alone looks at what was held out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.sparse import csr_array

from loca.communities.finder import Communities, evenly_spaced_rows
from loca.data.splits import HeldOut
from loca.evaluation.evaluate import UserRows, mean_values, value_of_each
from loca.evaluation.metrics import Metric, Values
from loca.evaluation.significance import is_significantly_better
from loca.evaluation.top_n import AnyScores
from loca.local.combiner import Combiner
from loca.local.local_models import LocalModels, answered_by_one, combined_scores
from loca.models.devices import ranking_bytes, score_on
from loca.models.recommender import Recommender, TrainingData
from loca.progress import say
from loca.typing import IntArray

_MOST_JUDGING_USERS = 2_000


@dataclass(frozen=True, eq=False)
class Judge:
    """What every choice asks: validation data, one metric, and the global model."""

    validation: HeldOut
    metric: Metric
    global_model: Recommender

    @classmethod
    def of(cls, data: TrainingData, global_model: Recommender) -> Self | None:
        """Return the judge of a fit; None without validation."""
        if data.validation is None:
            return None
        return cls(data.validation, data.metric, global_model)

    def panel(self, answer_weights: csr_array, users: IntArray | None = None) -> Panel:
        """Return the validation users, or some of them, with the weights of their communities."""
        held_out = self.validation if users is None else self.validation.of_users(users)
        return Panel(held_out, self.metric, self.global_model, answer_weights)

    def panel_of(self, communities: Communities) -> Panel:
        """Return the validation users, answered by communities."""
        positions = communities.locate(self.validation.history_matrix)
        return self.panel(communities.answer_weights(positions))

    def calibrated(
        self, communities: Communities, models: LocalModels, combiner: Combiner
    ) -> Communities:
        """Return the alternative of some communities that answers best with trained models.

        Networks gain by being averaged: of alternatives that are equally good they take the flattest.
        Solved models gain nothing by it: they take the one with the best value at its best share.
        """
        alternatives = communities.alternatives()
        if len(alternatives) == 1:
            return alternatives[0]
        learned_by_epoch = models.epochs_ is not None
        n_users = self.validation.n_users
        # Many local matrices are slow to read: some of the users suffice.
        users = evenly_spaced_rows(n_users, n_users if learned_by_epoch else _MOST_JUDGING_USERS)
        positions = communities.locate(csr_array(self.validation.history_matrix[users]))
        panels = [
            self.panel(alternative.answer_weights(positions), users) for alternative in alternatives
        ]
        if learned_by_epoch:
            learning = combiner.while_learning()
            chosen = _last_within_noise([panel.values(models, learning) for panel in panels])
        else:
            combiners = combiner.candidates(coarse=True)
            chosen = int(np.argmax([max(panel.scores(models, combiners)) for panel in panels]))
        say(f"communities: {alternatives[chosen].facts()}")
        return alternatives[chosen]

    def values_of_global_model(self) -> Values:
        """Return the value of each user's answer by the global model alone."""
        users = np.flatnonzero(self.validation.target_counts)

        def score(rows: UserRows) -> AnyScores:
            histories = csr_array(self.validation.history_matrix[users[rows]])
            return score_on(self.global_model, histories)

        return value_of_each(
            score, self.validation, users, self.metric, block_bytes=ranking_bytes(None)
        )


def _last_within_noise(values: Sequence[Values]) -> int:
    """Return the number of the last of some users' values that is not surely below the best."""
    best = max(values, key=lambda users: float(users.mean()))
    return max(k for k, users in enumerate(values) if not is_significantly_better(best, users))


@dataclass(frozen=True, eq=False)
class Panel:
    """Validation users with the weights by which communities answer each, users × communities."""

    held_out: HeldOut
    metric: Metric
    global_model: Recommender
    answer_weights: csr_array

    def scores(self, models: LocalModels, combiners: Sequence[Combiner]) -> list[float]:
        """Return the mean value of the answers, for each combiner."""

        def score_users(users: UserRows) -> Iterator[AnyScores]:
            # The same arrays every time where all users are one block: networks that learn keep what
            # they make of them.
            histories, weights = self.held_out.history_matrix, self.answer_weights
            if len(users) < self.held_out.n_users:
                histories, weights = csr_array(histories[users]), csr_array(weights[users])
            return combined_scores(models, self.global_model, histories, weights, combiners)

        block_bytes = ranking_bytes(models.device)
        return mean_values(score_users, self.held_out, self.metric, block_bytes=block_bytes)

    def values(self, models: LocalModels, combiner: Combiner) -> Values:
        """Return the value of the answer to each user with a held-out item."""
        judging = np.flatnonzero(self.held_out.target_counts)

        def score_users(rows: UserRows) -> AnyScores:
            users = judging[rows]
            histories = csr_array(self.held_out.history_matrix[users])
            weights = csr_array(self.answer_weights[users])
            return next(combined_scores(models, self.global_model, histories, weights, [combiner]))

        block_bytes = ranking_bytes(models.device)
        return value_of_each(
            score_users, self.held_out, judging, self.metric, block_bytes=block_bytes
        )

    def score_each(self, models: LocalModels, communities: Iterable[int]) -> dict[int, float]:
        """Return the mean value of each community's own answers, over the users whom it answers.

        Nothing is returned for a community that answers no validation user.
        """
        pairs = self.answer_weights.tocsc().tocoo()  # community by community
        has_targets = self.held_out.target_counts[pairs.row] > 0
        counted = has_targets & np.isin(pairs.col, list(communities))
        community = pairs.col[counted].astype(np.int64)
        user = pairs.row[counted].astype(np.int64)

        def score_pairs(rows: UserRows) -> AnyScores:
            histories = csr_array(self.held_out.history_matrix[user[rows]])
            return models.blend(histories, answered_by_one(community[rows], len(models)))

        values = value_of_each(
            score_pairs, self.held_out, user, self.metric, block_bytes=ranking_bytes(models.device)
        )
        sums = np.bincount(community, values, len(models))
        counts = np.bincount(community, minlength=len(models))
        return {int(j): float(sums[j] / counts[j]) for j in np.flatnonzero(counts)}


@dataclass(frozen=True, eq=False)
class Validation:
    """What models are judged by while they learn: the mean value of their combined answers."""

    panel: Panel
    combiner: Combiner

    def __call__(self, models: LocalModels) -> float:
        """Return the value of the models as they are now."""
        return self.panel.scores(models, [self.combiner])[0]

    def score_each(self, models: LocalModels, communities: Iterable[int]) -> dict[int, float]:
        """Return the value of each community's own answers."""
        return self.panel.score_each(models, communities)
