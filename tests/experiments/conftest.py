"""A model that keeps a diary, and data whose order tells something."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import pytest
from scipy.sparse import csr_array

from loca.data.interactions import Interactions, as_matrix
from loca.data.splits import HeldOut, Split, leave_last_out
from loca.data.synthetic import planted_communities
from loca.models.recommender import Recommender
from loca.persistence.manifest import ModelState


class Diary(Recommender):
    """Scores by popularity times `direction` (−1 is the worst of models), and writes down what happens to it."""

    def __init__(self, *, direction: int = 1, name: str = "diary", pages: Any = None) -> None:
        self.direction = direction
        self.name = name
        self.pages = pages
        self.counts_: Any = None
        self.train_data_: Interactions | None = None

    def fit(self, train: Any, *, user_weights: Any = None, validation: HeldOut | None = None) -> Self:
        self.note("fit", as_matrix(train).nnz, validation is not None)
        weights = np.ones(as_matrix(train).shape[0]) if user_weights is None else user_weights
        self.counts_ = np.asarray(weights @ as_matrix(train)).ravel()
        self.train_data_ = train
        return self

    def score(self, histories: csr_array) -> Any:
        self.note("score", histories.nnz)
        return np.tile(self.direction * self.counts_, (histories.shape[0], 1)).astype(np.float32)

    def note(self, *words: Any) -> None:
        if self.pages is not None:
            self.pages.append((*words, self.name))

    def with_selected_params(self) -> Diary:
        self.note("as chosen")
        return Diary(direction=self.direction, name=self.name, pages=self.pages)

    def state(self) -> ModelState:
        return ModelState()

    @classmethod
    def restore(cls, params: Mapping[str, Any], state: ModelState) -> Self:
        return cls(**params)

    def save(self, folder: Any) -> None:
        raise NotImplementedError


@pytest.fixture
def diary() -> type[Diary]:
    return Diary


def planted_split_with(drift: float, seed: int = 0) -> Split:
    """600 users, 80 items, the last 3 of each user for test and the 3 before them for validation."""
    planted = planted_communities(
        users=600, items=80, communities=2, groups=8, tastes=1.0, history=24, drift=drift, seed=seed
    )
    return leave_last_out(planted.interactions, test=3, validation=3)


@pytest.fixture
def orderless_split(request: pytest.FixtureRequest) -> Split:
    """Data whose order is without meaning; the seed is the fixture's parameter."""
    return planted_split_with(drift=0.0, seed=request.param)


@pytest.fixture(scope="session")
def drifting_split() -> Split:
    """Tastes change midway, so that a recency earns."""
    return planted_split_with(drift=1.0)
