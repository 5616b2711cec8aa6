"""Evaluation on validation for the choices of a `Loca`: temperatures, shares, kinds, epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
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
from loca.local.combiner import Combiner, combined_scores
from loca.local.engines.engine import Validator
from loca.local.local_models import LocalModels, PreparedBatch, answered_by_one
from loca.models.devices import ranking_bytes, score_on
from loca.models.recommender import Recommender, TrainingData
from loca.progress import say
from loca.typing import FloatArray

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

    def locate(self, communities: Communities) -> LocatedUsers:
        """Return the validation users with their positions among some communities."""
        positions = communities.locate(self.validation.history_matrix)
        return LocatedUsers(self, self.validation, communities, positions)

    def values_of_global_model(self) -> Values:
        """Return the value of each user's answer by the global model alone."""
        users = np.flatnonzero(self.validation.target_counts)

        def score(rows: UserRows) -> AnyScores:
            histories = csr_array(self.validation.history_matrix[users[rows]])
            return score_on(self.global_model, histories)

        return value_of_each(
            score, self.validation, users, self.metric, block_bytes=ranking_bytes(None)
        )


@dataclass(frozen=True, eq=False)
class LocatedUsers:
    """Validation users with their positions among communities."""

    judge: Judge
    held_out: HeldOut
    communities: Communities
    positions: FloatArray

    def panel(self, communities: Communities | None = None) -> Panel:
        """Return the users as the communities answer them, or as others that locate alike."""
        answering = self.communities if communities is None else communities
        return Panel(
            self.held_out,
            self.judge.metric,
            self.judge.global_model,
            answering.answer_weights(self.positions),
        )

    def while_learning(self, combiner: Combiner) -> Validation:
        """Return what models are judged by while they learn."""
        return Validation(self.panel(self.communities.while_learning()), combiner.while_learning())

    def at_most(self, n_users: int) -> LocatedUsers:
        """Return so many of the users, evenly spaced."""
        users = evenly_spaced_rows(self.held_out.n_users, n_users)
        return LocatedUsers(
            self.judge, self.held_out.of_users(users), self.communities, self.positions[users]
        )

    def calibrated(self, models: LocalModels, combiner: Combiner) -> Communities:
        """Return the alternative of the communities that answers best with trained models.

        Networks gain by being averaged: of alternatives that are equally good they take the flattest.
        Solved models gain nothing by it: they take the one with the best value at its best share.
        """
        alternatives = self.communities.alternatives()
        if len(alternatives) == 1:
            return alternatives[0]
        if models.epochs_ is not None:
            learning = combiner.while_learning()
            values = [self.panel(other).values(models, learning) for other in alternatives]
            chosen = _last_within_noise(values)
        else:
            # Many local matrices are slow to read: some of the users suffice.
            some = self.at_most(_MOST_JUDGING_USERS)
            shares = combiner.candidates(coarse=True)
            best = [max(some.panel(other).mean_values(models, shares)) for other in alternatives]
            chosen = int(np.argmax(best))
        say(f"communities: {alternatives[chosen].facts()}")
        return alternatives[chosen]


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

    def prepared(self, models: LocalModels) -> PreparedBatch:
        """Return all users, as the models need them."""
        return models.prepared(self.held_out.history_matrix, self.answer_weights)

    def mean_values(
        self,
        models: LocalModels,
        combiners: Sequence[Combiner],
        everybody: Callable[[], PreparedBatch] | None = None,
    ) -> list[float]:
        """Return the mean value of the answers, for each combiner.

        `everybody` gives what the models have prepared for all users, where that is one block.
        """

        def score_users(users: UserRows) -> Iterator[AnyScores]:
            if len(users) < self.held_out.n_users:
                batch = self._batch(models, users)
            else:
                batch = everybody() if everybody is not None else self.prepared(models)
            return combined_scores(models, self.global_model, batch, combiners)

        return mean_values(
            score_users, self.held_out, self.metric, block_bytes=ranking_bytes(models.device)
        )

    def values(self, models: LocalModels, combiner: Combiner) -> Values:
        """Return the value of the answer to each user with a held-out item."""
        users = np.flatnonzero(self.held_out.target_counts)

        def score_users(rows: UserRows) -> AnyScores:
            batch = self._batch(models, users[rows])
            return next(combined_scores(models, self.global_model, batch, [combiner]))

        return value_of_each(
            score_users,
            self.held_out,
            users,
            self.metric,
            block_bytes=ranking_bytes(models.device),
        )

    def mean_value_of_each(
        self, models: LocalModels, communities: Iterable[int]
    ) -> dict[int, float]:
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

    def _batch(self, models: LocalModels, users: UserRows) -> PreparedBatch:
        histories = csr_array(self.held_out.history_matrix[users])
        return models.prepared(histories, csr_array(self.answer_weights[users]))


class Validation(Validator):
    """What models are judged by while they learn: the mean value of their combined answers."""

    judges_each = True

    def __init__(self, panel: Panel, combiner: Combiner) -> None:
        self._panel = panel
        self._combiner = combiner
        self._everybody: PreparedBatch | None = None

    def __call__(self, models: LocalModels) -> float:
        """Return the value of the models as they are now."""

        def everybody() -> PreparedBatch:
            if self._everybody is None:
                self._everybody = self._panel.prepared(models)
            return self._everybody

        return self._panel.mean_values(models, [self._combiner], everybody)[0]

    def mean_value_of_each(
        self, models: LocalModels, communities: Iterable[int]
    ) -> dict[int, float]:
        """Return the mean value of each community's own answers."""
        return self._panel.mean_value_of_each(models, communities)
