"""Popularity: the same scores for everybody, the rival that every personal model must beat."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.data.interactions import Interactions, as_matrix
from loca.data.recency import Unit, parse_age
from loca.errors import ConfigError, DataError
from loca.memory import DataSize, MemoryUse
from loca.models.recommender import Recommender, Scores, TrainingData
from loca.persistence.learned import learned


@dataclass(kw_only=True, eq=False, repr=False)
class Popularity(Recommender):
    """Score an item by the share of (weighted) users who have it; with event weights by their mean weight of it.

    Parameters
    ----------
    window : float, str or None, default None
        Counts only what happened within it, back from the newest time of all: a number in the unit of the data's times,
        or a text such as `30d`, which is refused where the times are no seconds. None counts everything.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> model = loca.Popularity().fit(csr_array([[1, 1, 0], [1, 0, 0], [1, 1, 0], [0, 1, 1]]))
    >>> model.shares_.tolist()
    [0.75, 0.75, 0.25]
    >>> loca.Popularity(window="30d")
    Popularity(window='30d')
    """

    window: float | str | None = None
    shares_: npt.NDArray[np.float32] = learned("items", finite=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        _read_window(self.window)

    @property
    def is_additive(self) -> bool:
        """Whether its scores are a sum over the items of a history: what everybody gets, and nothing else."""
        return True

    def _fit(self, data: TrainingData) -> None:
        matrix = data.matrix
        window = _read_window(self.window)
        if window is not None:
            matrix = as_matrix(_newest(data.train, *window))
        weights = data.user_weights.astype(np.float64)
        self.shares_ = ((weights @ matrix) / weights.sum()).astype(np.float32)

    def memory_bytes(self, data: DataSize) -> MemoryUse:
        """Counts of 64 and 32 bits."""
        counts = 4 * data.items
        return MemoryUse(main=4 * counts, main_after=counts, folder=counts)

    def score(self, histories: csr_array) -> Scores:
        """Repeat the shares, once per user.

        Parameters
        ----------
        histories : csr_array
            Users × items; only their number matters.

        Returns
        -------
        ndarray of float32
            Users × items, a read-only view that takes no memory per user.
        """
        return np.broadcast_to(self.shares_, self._check_histories(histories).shape)

    def similarities(self, item_rows: Any) -> Scores:
        """Refuse: how popular items are does not say how similar they are.

        Parameters
        ----------
        item_rows : sequence of int
            Rows of items.

        Raises
        ------
        DataError
            Always.
        """
        raise DataError(
            "Popularity knows no similarity of items; take another model, such as ItemKNN or EASE"
        )


def _newest(train: Interactions | csr_array, length: float, unit: Unit) -> Interactions:
    """Return what happened within a window of time, back from the newest time of all."""
    if not isinstance(train, Interactions) or train.times is None:
        problem = "popularity by time window needs a time column"
        raise DataError(f"{problem}; leave out the window, or read the times too")
    if unit == "seconds" and train.time_unit != "seconds":
        raise DataError(
            f"window: these times are bare numbers ({train.time_span()}), no seconds; "
            "say how many steps of them, as a number"
        )
    if not len(train):
        return train
    return train.where(train.times.max() - train.times <= length)


def _read_window(window: float | str | None) -> tuple[float, Unit] | None:
    """Return a window as a number and what it counts; what is none is refused."""
    if window is None:
        return None
    parsed = parse_age(window) if isinstance(window, str) else (window, "time")
    number = None if parsed is None else parsed[0]
    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    if parsed is None or number is None or not is_number or not 0 < number < math.inf:
        expected = "a time such as 30d, or a number above 0 in units of the data's times"
        raise ConfigError(f"window: expected {expected}, found {window!r}")
    return float(number), "seconds" if parsed[1] == "seconds" else "time"
