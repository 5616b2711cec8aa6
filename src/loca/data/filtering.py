"""What is left out before a split: low ratings, repeated pairs, users and items with too few interactions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.data.id_map import IdMap
from loca.data.interactions import Interactions
from loca.errors import ConfigError, DataError

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, eq=False)
class Events:
    """Row r says that user row `user_rows[r]` met item row `item_rows[r]`; ratings and times may be absent."""

    users: IdMap
    items: IdMap
    user_rows: npt.NDArray[Any]
    item_rows: npt.NDArray[Any]
    ratings: npt.NDArray[Any] | None = None
    times: npt.NDArray[Any] | None = None

    def __post_init__(self) -> None:
        beside = [one for one in (self.item_rows, self.ratings, self.times) if one is not None]
        if any(one.shape != self.user_rows.shape for one in beside):
            raise DataError("events: users, items, ratings and times must be equally many")

    def __len__(self) -> int:
        return len(self.user_rows)

    @classmethod
    def from_table(cls, table: pl.DataFrame) -> Events:
        """Events of a table with the columns user, item and perhaps rating and time; ids are numbered in sorted order.

        Sorted, so that the same events in another order of rows give the same model.
        """
        from loca.data.text_tables import seconds

        users, user_rows = _numbered(table["user"], "user")
        items, item_rows = _numbered(table["item"], "item")
        ratings = table["rating"].to_numpy() if "rating" in table.columns else None
        times = seconds(table["time"]).to_numpy() if "time" in table.columns else None
        return cls(users, items, user_rows, item_rows, ratings, times)

    @classmethod
    def from_matrix(cls, matrix: Any) -> Events:
        """Events of a sparse users × items matrix; its values are ratings, and a stored zero is no event."""
        rows = csr_array(matrix, copy=True)
        rows.eliminate_zeros()
        if rows.nnz == 0:
            raise DataError(f"the sparse matrix of shape {rows.shape} holds no entry")
        if not np.isfinite(rows.data).all():
            raise DataError("the sparse matrix holds values that are not finite numbers")
        users, items = IdMap.numbered(rows.shape[0], "user"), IdMap.numbered(rows.shape[1], "item")
        user_rows = np.repeat(np.arange(rows.shape[0], dtype=np.int32), np.diff(rows.indptr))
        return cls(users, items, user_rows, rows.indices.astype(np.int32), rows.data)

    def where(self, kept: npt.NDArray[np.bool_]) -> Events:
        """The events marked in `kept`; the ids stay."""
        return Events(
            self.users,
            self.items,
            self.user_rows[kept],
            self.item_rows[kept],
            None if self.ratings is None else self.ratings[kept],
            None if self.times is None else self.times[kept],
        )

    def interactions(self) -> Interactions:
        """The same as each user's items, oldest first; ties in time (all, where there is none) keep their order."""
        return Interactions.from_events(self.users, self.items, self.user_rows, self.item_rows, self.times)


def _numbered(ids: pl.Series, what: str) -> tuple[IdMap, npt.NDArray[np.int32]]:
    import polars as pl

    distinct = ids.unique().sort()
    if ids.dtype == pl.String:
        values = np.array(distinct.to_list(), dtype=object)
        rows = ids.cast(pl.Enum(distinct)).to_physical().to_numpy()
    else:
        values = distinct.to_numpy()
        rows = distinct.search_sorted(ids).to_numpy()
    return IdMap(values, what), rows.astype(np.int32)


def keep_ratings_of_at_least(events: Events, minimum: float) -> Events:
    """The events whose rating is at least `minimum`; the ids stay, some without an event."""
    if events.ratings is None:
        raise DataError("minimum_rating needs a column of ratings, and there is none")
    kept = events.ratings >= minimum
    if not kept.any():
        highest = events.ratings.max() if len(events) else "none"
        raise DataError(f"no user left after filtering: ratings of at least {minimum:g}, but the highest is {highest}")
    return events.where(kept)


def keep_distinct(interactions: Interactions) -> Interactions:
    """Each (user, item) pair once: its first interaction, oldest first and in file order among equal times."""
    pairs = interactions.user_rows() * interactions.n_items + interactions.item_rows
    order = np.argsort(pairs, kind="stable")
    pairs = pairs[order]
    repeats = order[1:][pairs[1:] == pairs[:-1]]
    if len(repeats) == 0:
        return interactions
    kept = np.ones(len(interactions), dtype=bool)
    kept[repeats] = False
    return interactions.where(kept)


def keep_active(
    interactions: Interactions,
    *,
    min_user_interactions: int = 0,
    min_item_interactions: int = 0,
    repeat_filter: bool = False,
    keep_unused_items: bool = False,
) -> Interactions:
    """The interactions of items, then of users, that have at least so many; users and items left without any go.

    Items are counted first and users on what they leave, so that every user kept has the minimum. Users that go may
    leave an item below its minimum: `repeat_filter` goes on until both hold. `keep_unused_items` keeps all items.
    """
    _check_minimum("min_user_interactions", min_user_interactions)
    _check_minimum("min_item_interactions", min_item_interactions)
    left = interactions
    while True:
        before = len(left)
        left = _of_frequent(left, "item", min_item_interactions)
        left = _of_frequent(left, "user", min_user_interactions)
        if not repeat_filter or len(left) == before:
            return drop_unused(left, keep_unused_items=keep_unused_items)


def drop_unused(interactions: Interactions, *, keep_unused_items: bool = False) -> Interactions:
    """The same without users, and (unless they are to be kept) items, that have no interaction."""
    used_users = interactions.counts() > 0
    left = interactions if used_users.all() else interactions.of_users(used_users)
    used_items = np.zeros(left.n_items, dtype=bool)
    used_items[left.item_rows] = True
    if keep_unused_items or used_items.all():
        return left
    new_rows = (np.cumsum(used_items) - 1).astype(np.int32)
    return replace(left, items=left.items.keep(used_items), item_rows=new_rows[left.item_rows])


def _of_frequent(interactions: Interactions, what: str, minimum: int) -> Interactions:
    if minimum <= 0:
        return interactions
    rows: npt.NDArray[Any] = interactions.user_rows() if what == "user" else interactions.item_rows
    counts = np.bincount(rows)
    kept = counts[rows] >= minimum
    if not kept.any():
        raise DataError(
            f"no user left after filtering: at least {minimum} interactions per {what}, "
            f"but the most that any {what} has is {counts.max(initial=0)}"
        )
    return interactions.where(kept)


def _check_minimum(name: str, value: int) -> None:
    if value < 0:
        raise ConfigError(f"{name}: expected a whole number of at least 0, found {value}")
