"""Popularity: the same scores for everybody, the rival that every personal model must beat."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.data.interactions import Interactions, as_matrix
from loca.data.recency import parse_age
from loca.errors import ConfigError, DataError
from loca.memory import DataSize, MemoryUse
from loca.models.recommender import Recommender, Scores, TrainingData, learned


@dataclass(kw_only=True, eq=False, repr=False)
class Popularity(Recommender):
    """Score an item by the share of (weighted) users who have it.

    Parameters
    ----------
    window : float, str or None, default None
        Counts only what happened within it, back from the newest time of all: a number in the unit of the data's times,
        or a text such as `30d` where these are seconds. None counts everything.

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
        _length_of(self.window)

    @property
    def is_additive(self) -> bool:
        """Whether its scores are a sum over the items of a history: what everybody gets, and nothing else."""
        return True

    def _fit(self, data: TrainingData) -> None:
        window, train, matrix = _length_of(self.window), data.train, data.matrix
        if window is not None:
            if not isinstance(train, Interactions) or train.times is None:
                raise DataError(
                    "popularity by time window needs a time column; leave out the window, or read the times too"
                )
            if len(train):
                matrix = as_matrix(train.where(train.times.max() - train.times <= window))
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


def _length_of(window: float | str | None) -> float | None:
    """The window as a number of units of time; what is none is refused."""
    if window is None:
        return None
    parsed = parse_age(window) if isinstance(window, str) else (window, "time")
    is_number = (
        parsed is not None
        and isinstance(parsed[0], int | float)
        and not isinstance(parsed[0], bool)
    )
    if parsed is None or not is_number or not 0 < parsed[0] < math.inf:
        raise ConfigError(
            f"window: expected a time such as 30d, or a number above 0 in units of it, found {window!r}"
        )
    return float(parsed[0])
