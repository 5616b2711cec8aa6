"""Questions with known answers: what is known of each user, and the later items that a model should find."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.data.interactions import Interactions
from loca.data.recency import Recency
from loca.errors import DataError


@dataclass(frozen=True, eq=False)
class HeldOut:
    """User row r of `histories` may be looked at; user row r of `targets` holds what is to be found.

    A target that a user has twice is one item to find. With `count_repeats` it still counts twice in what Recall and
    NDCG divide by, as in the paper, although a list can name it only once.
    """

    histories: Interactions
    targets: Interactions
    count_repeats: bool = False

    def __post_init__(self) -> None:
        if self.histories.n_users != self.targets.n_users or self.histories.n_items != self.targets.n_items:
            raise DataError("histories and targets must have the same users and items")
        if not np.array_equal(self.histories.users.values, self.targets.users.values):
            raise DataError("histories and targets must have the same users in the same order")
        if len(self.targets) == 0:
            raise DataError("no item is held out for any user")

    @property
    def n_users(self) -> int:
        return self.histories.n_users

    @property
    def n_items(self) -> int:
        return self.histories.n_items

    @cached_property
    def history_matrix(self) -> csr_array:
        """The weighted histories of all asked users, users × items, made once."""
        return self.histories.histories()

    @cached_property
    def target_matrix(self) -> csr_array:
        """What is to be found, users × items, binary, made once."""
        return self.targets.matrix()

    @cached_property
    def target_counts(self) -> npt.NDArray[np.int64]:
        """By how many targets each user's metrics are divided: distinct items, or with `count_repeats` all of them."""
        return self.targets.counts() if self.count_repeats else np.diff(self.target_matrix.indptr).astype(np.int64)

    def of_users(self, user_rows: npt.NDArray[Any]) -> HeldOut:
        """The questions of chosen users (row numbers or a mask), renumbered from 0."""
        return replace(self, histories=self.histories.of_users(user_rows), targets=self.targets.of_users(user_rows))

    def with_recency(self, recency: Recency | None) -> HeldOut:
        """The same questions, with the histories weighed by `recency`."""
        return replace(self, histories=self.histories.with_recency(recency))

    def weighed_as(self, known: Interactions | None) -> HeldOut:
        """The questions, weighed as the interactions that are known where they have no recency themselves."""
        if known is None or known.recency is None or self.histories.recency is not None:
            return self
        return self.with_recency(known.recency)


@dataclass(frozen=True, eq=False)
class Split:
    """Train, validation (choices are made on it) and test (looked at once); `report` says what happened to whom."""

    train: Interactions
    validation: HeldOut | None
    test: HeldOut
    train_and_validation: Interactions
    report: tuple[str, ...] = field(default=())

    def with_recency(self, recency: Recency | None) -> Split:
        """The same split, every history in it weighed by `recency` when it is used to answer."""
        return replace(
            self,
            train=self.train.with_recency(recency),
            validation=None if self.validation is None else self.validation.with_recency(recency),
            test=self.test.with_recency(recency),
            train_and_validation=self.train_and_validation.with_recency(recency),
        )
