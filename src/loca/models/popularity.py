"""Popularity: the same scores for everybody, the rival that every personal model must beat."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.data.interactions import Interactions, as_matrix
from loca.data.recency import parse_age
from loca.data.splits import HeldOut
from loca.errors import ConfigError, DataError, ModelFileError
from loca.models.recommender import (
    Estimator,
    ModelState,
    Scores,
    UserWeights,
    check_histories,
    check_user_weights,
    fitted,
)


class Popularity(Estimator):
    """Scores an item by the share of (weighted) users who have it.

    With a `window` only what happened within it, back from the newest time of all, is counted: a number in the unit of
    the data's times, or a text such as `30d` where these are seconds.
    """

    def __init__(self, *, window: float | str | None = None) -> None:
        _length_of(window)
        self.window = window
        self.shares_: npt.NDArray[np.float32] | None = None

    def fit(
        self,
        train: Interactions | csr_array,
        *,
        user_weights: UserWeights | None = None,
        validation: HeldOut | None = None,
    ) -> Self:
        """Counts; validation is accepted and not needed."""
        window = _length_of(self.window)
        matrix = as_matrix(train if window is None else _within(train, window))
        weights = check_user_weights(user_weights, matrix.shape[0]).astype(np.float64)
        self.shares_ = ((weights @ matrix) / weights.sum()).astype(np.float32)
        self.train_data_ = train if isinstance(train, Interactions) else None
        return self

    def score(self, histories: csr_array) -> Scores:
        """The shares, once per asked user; a read-only view that takes no memory per user."""
        shares = fitted(self.shares_, self)
        rows = check_histories(histories, len(shares))
        return np.broadcast_to(shares, rows.shape)

    def count_items(self) -> int:
        """How many items it scores."""
        return len(fitted(self.shares_, self))

    def state(self) -> ModelState:
        shares = fitted(self.shares_, self)
        return ModelState(arrays={"shares": shares})

    @classmethod
    def restore(cls, params: Mapping[str, Any], state: ModelState) -> Self:
        model = cls(**params)
        shares = state.arrays["shares"]
        if shares.ndim != 1:
            raise ModelFileError(f"popularity: expected one share per item, found shape {shares.shape}")
        model.shares_ = shares
        return model


def _length_of(window: float | str | None) -> float | None:
    """The window as a number of units of time; what is none is refused."""
    if window is None:
        return None
    parsed = parse_age(window) if isinstance(window, str) else (window, "time")
    is_number = parsed is not None and isinstance(parsed[0], int | float) and not isinstance(parsed[0], bool)
    if parsed is None or not is_number or not 0 < parsed[0] < math.inf:
        raise ConfigError(f"window: expected a time such as 30d, or a number above 0 in units of it, found {window!r}")
    return float(parsed[0])


def _within(train: Interactions | csr_array, window: float) -> Interactions:
    """What happened at most `window` before the newest interaction of all."""
    if not isinstance(train, Interactions) or train.times is None:
        raise DataError("popularity by time window needs a time column; leave out the window, or read the times too")
    if len(train) == 0:
        return train
    return train.where(train.times.max() - train.times <= window)
