"""What a data set is like in a few numbers: the columns of the paper's Table 1, and some more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from loca.data.interactions import Interactions


@dataclass(frozen=True)
class Statistics:
    """Counts of a data set; sparsity and concentration in percent, histories in interactions.

    `concentration` is that of the most popular 5 % of the items, as the paper says, `narrow_concentration` that of the
    most popular 2 %, near to which the paper's figure for AMusic lies.
    """

    users: int
    items: int
    ratings: int
    sparsity: float
    concentration: float
    narrow_concentration: float
    shortest_history: int
    median_history: float
    longest_history: int
    repeated_pairs: int
    unused_items: int
    first_time: float | None
    last_time: float | None

    def lines(self) -> tuple[tuple[str, str], ...]:
        """What a person reads: name and value, one a line."""
        span = "none" if self.first_time is None else f"{_tell(self.first_time)} to {_tell(self.last_time)}"
        histories = f"{self.shortest_history:,} / {self.median_history:,g} / {self.longest_history:,}"
        return (
            ("users", f"{self.users:,}"),
            ("items", f"{self.items:,}"),
            ("ratings", f"{self.ratings:,}"),
            ("sparsity", f"{self.sparsity:.2f} %"),
            ("concentration", f"{self.concentration:.2f} %"),
            ("history, shortest / median / longest", histories),
            ("repeated pairs", f"{self.repeated_pairs:,}"),
            ("items without a rating", f"{self.unused_items:,}"),
            ("time", span),
        )

    def __str__(self) -> str:
        return aligned(self.lines())


def aligned(lines: Sequence[tuple[str, str]]) -> str:
    """Names and values as two columns, one pair a line."""
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in lines)


def describe(interactions: Interactions) -> Statistics:
    """The statistics of a data set, every interaction (repeated pairs too) counted as a rating, as the paper does.

    Sparsity is 1 − ratings / (users · items). Concentration is the share of ratings that the most popular 5 % of all
    items have (rounded down, at least one item); items without a rating count among all. Empty data give zeros.
    """
    ratings, cells = len(interactions), interactions.n_users * interactions.n_items
    popularity = np.bincount(interactions.item_rows, minlength=interactions.n_items)
    from_the_top = np.sort(popularity)[::-1]
    histories = interactions.counts() if interactions.n_users else np.zeros(1, np.int64)
    times = interactions.times if ratings else None
    return Statistics(
        users=interactions.n_users,
        items=interactions.n_items,
        ratings=ratings,
        sparsity=100 * (1 - ratings / cells) if cells else 0.0,
        concentration=_concentration(from_the_top, 5),
        narrow_concentration=_concentration(from_the_top, 2),
        shortest_history=int(histories.min()),
        median_history=float(np.median(histories)),
        longest_history=int(histories.max()),
        repeated_pairs=ratings - interactions.matrix().nnz,
        unused_items=int((popularity == 0).sum()),
        first_time=None if times is None else times.min().item(),
        last_time=None if times is None else times.max().item(),
    )


def _concentration(from_the_top: npt.NDArray[np.int64], percent: int) -> float:
    """The percentage of all ratings that the first `percent` of the items have; 0 where there are no ratings."""
    top = from_the_top[: max(len(from_the_top) * percent // 100, 1)]
    return 100 * float(top.sum()) / max(int(from_the_top.sum()), 1)


def _tell(time: float | None) -> str:
    return f"{time:g}" if isinstance(time, float) else str(time)
