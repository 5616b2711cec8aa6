"""Users of two tastes: two genres that lead in a history, each far above what is usual, with few items in both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.data.genres import Genres
from loca.data.id_map import Id, IdMap
from loca.errors import ConfigError, DataError
from loca.ranking.top_n import block_rows

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]

# Pairs grow with the square of the genres; rarer ones could hardly lead in anybody's history.
_MOST_GENRES = 30


@dataclass(frozen=True)
class Sought:
    """Whom to look for: at least `history` items, a `share` of them in each of two genres, each `lift` times the usual
    share (of the catalogue and of all histories, the larger), and at most `alike` of the items in either in both.

    The `users` most promising of them are examined.
    """

    history: int = 20
    share: float = 0.2
    lift: float = 1.3
    alike: float = 1 / 3
    users: int = 300

    def __post_init__(self) -> None:
        if self.history < 1 or self.users < 1:
            raise ConfigError(f"two tastes: expected 1 or more items and users, found {self.history} and {self.users}")
        if not (0 < self.share <= 1 and 0 <= self.alike <= 1 and self.lift >= 0):
            raise ConfigError(
                f"two tastes: expected shares from 0 to 1, found share {self.share:g}, alike {self.alike:g} "
                f"and lift {self.lift:g}"
            )

    def __str__(self) -> str:
        return (
            f"at least {self.history} items in the history, at least {self.share:.0%} of them in each of two genres, "
            f"{self.lift:g} times or more the usual share of each, and at most {self.alike:.0%} of the items of either "
            "genre in both"
        )


@dataclass(frozen=True, eq=False)
class GenreTable:
    """Item row i is of the genre `names[g]` where `of_items[i, g]`; names stand in the order of the alphabet."""

    names: Genres
    of_items: npt.NDArray[np.bool_]

    def genres_of(self, item_row: int) -> Genres:
        """The genres of one item."""
        return tuple(self.names[place] for place in np.flatnonzero(self.of_items[item_row]))


@dataclass(frozen=True, eq=False)
class TwoTastes:
    """Users of two tastes, the most promising first: row, two genres (the larger share first), their shares.

    `usual` are the shares that everybody has of the two, `both` is the share of the history that is in both.
    """

    user_rows: Places
    genres: Places  # (users, 2)
    shares: Floats  # (users, 2)
    usual: Floats  # (users, 2)
    both: Floats

    def __len__(self) -> int:
        return len(self.user_rows)

    def keep(self, places: npt.NDArray[Any]) -> TwoTastes:
        """Some of them, by place or by mask."""
        return TwoTastes(
            self.user_rows[places], self.genres[places], self.shares[places], self.usual[places], self.both[places]
        )


def tabulate_genres(items: IdMap, genres: Mapping[Id, Genres]) -> GenreTable:
    """The genres of all items, items × genres; ids match as text, and an item that is not named has none."""
    by_text = {str(one): names for one, names in genres.items()}
    of_each = [by_text.get(str(one), ()) for one in items.values.tolist()]
    names = tuple(sorted({name for listed in of_each for name in listed}))
    if len(names) < 2:
        raise DataError(
            f"genres: expected at least two genres among the {len(items):,} items, found {len(names)}; "
            "are the genres those of this data set?"
        )
    place_of = {name: place for place, name in enumerate(names)}
    of_items = np.zeros((len(items), len(names)), dtype=bool)
    for row, listed in enumerate(of_each):
        of_items[row, [place_of[name] for name in listed]] = True
    return GenreTable(names, of_items)


def find_two_tastes(histories: csr_array, table: GenreTable, sought: Sought) -> TwoTastes:
    """All users of two tastes, the most promising first; of equal ones the lower row.

    Of all pairs of genres that a user's history has as `sought`, the most promising is his: the smaller of the two
    excesses over the usual share, times 1 − (items in both / items in either).
    """
    columns, usual = _usual_shares(histories, table)
    of_items = table.of_items[:, columns].astype(np.float32)
    first, second = np.triu_indices(len(columns), 1)
    in_both = of_items[:, first] * of_items[:, second]  # (items, pairs)
    rows = np.flatnonzero(np.diff(histories.indptr) >= sought.history)
    found = []
    step = block_rows(len(first), arrays=8, number_bytes=8)
    for start in range(0, len(rows), step):
        block = rows[start : start + step]
        part = csr_array(histories[block])
        sizes = np.diff(part.indptr)[:, None]
        shares, both = (part @ of_items) / sizes, (part @ in_both) / sizes  # (users, genres), (users, pairs)
        promise = _promises(shares, both, usual, (first, second), sought)
        best = promise.argmax(axis=1)
        kept = np.flatnonzero(promise[np.arange(len(block)), best] > 0)
        pair = best[kept]
        places = np.stack([first[pair], second[pair]], axis=1)  # (users, 2)
        own = shares[kept[:, None], places]
        by_share = np.argsort(-own, axis=1, kind="stable")
        places, own = np.take_along_axis(places, by_share, 1), np.take_along_axis(own, by_share, 1)
        tastes = TwoTastes(block[kept], columns[places], own, usual[places], both[kept, pair])
        found.append((tastes, promise[kept, pair]))
    return _most_promising_first(found)


def _usual_shares(histories: csr_array, table: GenreTable) -> tuple[Places, Floats]:
    """The columns of the commonest genres, and the share that each usually has: in the catalogue or in histories."""
    popularity = np.bincount(histories.indices, minlength=histories.shape[1])
    of_histories = popularity @ table.of_items / max(histories.nnz, 1)
    usual = np.maximum(table.of_items.mean(axis=0), of_histories)
    columns = np.sort(np.argsort(-usual, kind="stable")[:_MOST_GENRES])
    return columns, usual[columns]


def _promises(
    shares: Floats, both: Floats, usual: Floats, pairs: tuple[Places, Places], sought: Sought
) -> npt.NDArray[Any]:
    """How promising each pair of genres is for each user, users × pairs; 0 where it is not as sought."""
    first, second = shares[:, pairs[0]], shares[:, pairs[1]]
    usual_first, usual_second = usual[pairs[0]], usual[pairs[1]]
    either = first + second - both
    is_sought = (
        (np.minimum(first, second) >= sought.share)
        & (first >= sought.lift * usual_first)
        & (second >= sought.lift * usual_second)
        & (both <= sought.alike * either)
    )
    excess = np.minimum(first - usual_first, second - usual_second)
    return np.where(is_sought, excess * (1 - both / np.maximum(either, 1e-12)), 0.0)


def _most_promising_first(found: list[tuple[TwoTastes, npt.NDArray[Any]]]) -> TwoTastes:
    if not found:
        return TwoTastes(
            np.zeros(0, np.int64), np.zeros((0, 2), np.int64), np.zeros((0, 2)), np.zeros((0, 2)), np.zeros(0)
        )
    parts = [part for part, _ in found]
    together = TwoTastes(
        np.concatenate([part.user_rows for part in parts]),
        np.concatenate([part.genres for part in parts]),
        np.concatenate([part.shares for part in parts]),
        np.concatenate([part.usual for part in parts]),
        np.concatenate([part.both for part in parts]),
    )
    return together.keep(np.argsort(-np.concatenate([promise for _, promise in found]), kind="stable"))
