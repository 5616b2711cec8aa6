"""The contract check of models: a stranger's model passes, and each way to break it is noticed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import loca
from loca.models.params import positive
from loca.models.recommender import Recommender, TrainingData, fitted
from loca.persistence.learned import learned
from loca.testing import check_recommender
from loca.typing import FloatArray


@dataclass(kw_only=True, eq=False, repr=False)
class Neighbours(Recommender):
    """Score items by how many users have them beside the items of a history."""

    shrinkage: float = positive(1.0)
    counts_: FloatArray | None = learned("items", "items")

    def _fit(self, data: TrainingData) -> None:
        weighted = data.matrix.multiply(data.user_weights[:, None]).tocsr()
        counts = np.asarray((data.matrix.T @ weighted).toarray(), dtype=np.float32)
        self.counts_ = counts / np.float32(self.shrinkage)

    def score(self, histories: csr_array) -> FloatArray:
        counts = fitted(self.counts_, self)
        return np.asarray(self._check_histories(histories) @ counts, dtype=np.float32)


def test_models_of_the_package_and_of_a_stranger_keep_the_contract() -> None:
    models: list[Recommender] = [
        Neighbours(shrinkage=2.0),
        loca.EASE(l2=20.0),
        loca.Popularity(),
        loca.Ensemble(base=Neighbours(), models=2),
        loca.Loca(base=Neighbours(), communities=loca.Mixtures(n=4)),
        loca.Blend(parts=[Neighbours(), loca.EASE()]),
    ]
    for model in models:
        check_recommender(model)
        assert not model.is_fitted


class RelativeToOthers(Neighbours):
    def score(self, histories: csr_array) -> FloatArray:
        scores = super().score(histories)
        return scores - scores.max(initial=0)


class InManyBits(Neighbours):
    def score(self, histories: csr_array) -> Any:
        return super().score(histories).astype(np.float64)


class NotANumber(Neighbours):
    def score(self, histories: csr_array) -> FloatArray:
        scores = super().score(histories)
        scores[:, 3] = np.nan
        return scores


class Remembering(Neighbours):
    seen = 0.0

    def _fit(self, data: TrainingData) -> None:
        super()._fit(data)
        type(self).seen += 1.0
        self.counts_ = fitted(self.counts_, self) + np.float32(self.seen)


class ScoringUnfitted(Neighbours):
    def score(self, histories: csr_array) -> FloatArray:
        if self.counts_ is None:
            return np.zeros(histories.shape, np.float32)
        return super().score(histories)


class TakingAnyHistories(Neighbours):
    def score(self, histories: csr_array) -> FloatArray:
        counts = fitted(self.counts_, self)
        if histories.shape[1] == len(counts):
            return super().score(histories)
        return np.zeros(histories.shape, np.float32)


class ChangingHistories(Neighbours):
    def score(self, histories: csr_array) -> FloatArray:
        scores = super().score(histories)
        histories.data[:] = 1.0
        return scores


@dataclass(kw_only=True, eq=False, repr=False)
class WithUndeclaredState(Neighbours):
    def _fit(self, data: TrainingData) -> None:
        super()._fit(data)
        self.boost = 3.0

    def score(self, histories: csr_array) -> FloatArray:
        return super().score(histories) * np.float32(getattr(self, "boost", 1.0))


class ForgettingItsParameter(Neighbours):
    def selected(self) -> Any:
        return type(self)()


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (RelativeToOthers, "the answer to a history depends on the others"),
        (InManyBits, "scores: expected float32, found float64"),
        (NotANumber, "a score is NaN or infinite"),
        (Remembering, "a second fit does not give what a first one gives"),
        (ScoringUnfitted, r"score\(\) before fit\(\) is to raise NotFittedError"),
        (TakingAnyHistories, r"score\(\) is to refuse histories over other items"),
        (ChangingHistories, r"score\(\) changes the histories"),
        (WithUndeclaredState, "a saved model answers otherwise"),
        (ForgettingItsParameter, r"a refit of selected\(\) to the same data gives other scores"),
    ],
)
def test_a_broken_model_is_noticed(kind: type[Recommender], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_recommender(kind(shrinkage=2.0))


def test_what_is_no_model_is_named() -> None:
    with pytest.raises(AssertionError, match="expected a Recommender, found dict"):
        check_recommender({})  # type: ignore[arg-type]
