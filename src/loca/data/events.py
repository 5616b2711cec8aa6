"""Events: who met what, how they rated it and when, one a row as it was read, before anything is left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.data.id_map import IdMap
from loca.data.interactions import Interactions
from loca.errors import DataError

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
        from loca.data.values import seconds

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
