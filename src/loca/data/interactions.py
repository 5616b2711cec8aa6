"""Interactions: each user's items, oldest first, with two id maps; frozen, and sparse rows on request."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, issparse

from loca.data.id_map import IdMap
from loca.data.recency import Recency
from loca.data.schema import Schema
from loca.data.times import TimeUnit, find_unit, readable_time
from loca.data.times import moment_of as moment_of
from loca.data.weighting import Weighting
from loca.errors import DataError
from loca.remarks import Remarks, remark, shown_remarks
from loca.text_table import Tabular, TextTable

Rows = npt.NDArray[Any]

_ROWS_SHOWN = 5


@dataclass(frozen=True, eq=False, repr=False)
class Interactions(Tabular):
    """Hold each user's items, oldest first, with the ids of users and items; prints as a short table.

    User u's items are `item_rows[offsets[u]:offsets[u + 1]]`. Interactions are frozen: every method returns a new
    value. They are usually read from a file (`read_interactions`) or a matrix (`from_matrix`). Equal times have no
    order: the items of one moment share one position, whatever their order here.

    Parameters
    ----------
    users : IdMap
        The id of every user row.
    items : IdMap
        The id, and where known the title, of every item row.
    offsets : ndarray of int64
        Where each user's items begin in `item_rows`, and after them where the last ones end: users + 1 numbers.
    item_rows : ndarray of int32
        The item rows of all users, one user after the other, each oldest first.
    times : ndarray or None, default None
        The time of every interaction; must not fall within a user. None where only the order is known.
    recency : Recency or None, default None
        How a history is weighted when it is used to score, to find communities, or to stop on validation. None gives
        every item the weight 1.
    weights : ndarray of float64 or None, default None
        What every interaction counts, above 0, before `schema.weighting` scales it. None counts all alike.
    schema : Schema
        How the interactions were read, for those who read later ones.
    remarks : tuple of Remark, default ()
        What is worth knowing before they are used.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> data = loca.Interactions.from_matrix(csr_array([[1, 1, 0], [0, 1, 1]]))
    >>> data
    Interactions: 2 users, 3 items, 4 interactions (66.67 % of all pairs)
    no times, no recency
    user  item
    0        0
    0        1
    1        1
    1        2
    >>> data.items_of(1).tolist()
    [1, 2]
    >>> data.with_recency(loca.Recency(half_life=1)).histories().toarray().tolist()
    [[0.5, 1.0, 0.0], [0.0, 0.5, 1.0]]
    """

    users: IdMap
    items: IdMap
    offsets: npt.NDArray[np.int64]
    item_rows: npt.NDArray[np.int32]
    times: npt.NDArray[Any] | None = None
    recency: Recency | None = None
    weights: npt.NDArray[np.float64] | None = None
    schema: Schema = field(default_factory=Schema)
    remarks: Remarks = ()

    def __post_init__(self) -> None:
        offsets = np.ascontiguousarray(self.offsets, dtype=np.int64)
        item_rows = np.ascontiguousarray(self.item_rows, dtype=np.int32)
        if (
            offsets.shape != (len(self.users) + 1,)
            or offsets[0] != 0
            or offsets[-1] != len(item_rows)
        ):
            raise DataError(
                f"offsets do not fit {len(self.users)} users and {len(item_rows)} interactions"
            )
        if (np.diff(offsets) < 0).any():
            raise DataError("offsets must not fall")
        if len(item_rows) and (item_rows.min() < 0 or item_rows.max() >= len(self.items)):
            raise DataError(f"an item row lies outside 0 … {len(self.items) - 1}")
        object.__setattr__(self, "offsets", _read_only(offsets))
        object.__setattr__(self, "item_rows", _read_only(item_rows))
        if self.times is not None:
            if self.times.shape != item_rows.shape:
                raise DataError(f"expected {len(item_rows)} times, found {self.times.size}")
            object.__setattr__(self, "times", _read_only(self.times))
            if not np.isin(np.flatnonzero(self.times[1:] < self.times[:-1]) + 1, offsets).all():
                raise DataError("the times of a user's items must not fall: oldest first")
        if self.weights is not None:
            weights = np.ascontiguousarray(self.weights, dtype=np.float64)
            if weights.shape != item_rows.shape:
                raise DataError(f"expected {len(item_rows)} weights, found {weights.size}")
            if not (np.isfinite(weights).all() and (weights > 0).all()):
                raise DataError("weights: expected finite numbers above 0")
            object.__setattr__(self, "weights", _read_only(weights))

    @classmethod
    def from_events(
        cls,
        users: IdMap,
        items: IdMap,
        user_rows: Rows,
        item_rows: Rows,
        times: Rows | None = None,
        weights: Rows | None = None,
        schema: Schema | None = None,
    ) -> Interactions:
        """Sort events into interactions.

        Parameters
        ----------
        users : IdMap
            The id of every user row.
        items : IdMap
            The id of every item row.
        user_rows : ndarray of int
            The user row of each event, in any order.
        item_rows : ndarray of int
            The item row of each event.
        times : ndarray or None, default None
            The time of each event; ties keep the order given. None takes the events of a user in the order given.
        weights : ndarray or None, default None
            What each event counts, above 0; None counts all alike.
        schema : Schema or None, default None
            How the events were read.

        Returns
        -------
        Interactions
        """
        if times is None or len(times) == 0:
            order = np.argsort(user_rows, kind="stable")
        elif (
            times.dtype.kind == "i"
            and (span := int(times.max()) - int(times.min()) + 1) * len(users) < 2**62
        ):
            # One key instead of two: five times as fast on 20 million events.
            order = np.argsort(
                user_rows.astype(np.int64) * span + (times - times.min()), kind="stable"
            )
        else:
            order = np.lexsort((times, user_rows))
        counts = np.bincount(user_rows, minlength=len(users))
        offsets = np.concatenate([[0], np.cumsum(counts)])
        return cls(
            users,
            items,
            offsets,
            item_rows[order],
            times=None if times is None else times[order],
            weights=None if weights is None else weights[order],
            schema=Schema() if schema is None else schema,
        )

    @classmethod
    def from_matrix(cls, matrix: Any) -> Interactions:
        """Make interactions from a sparse matrix without ids.

        Parameters
        ----------
        matrix : scipy sparse matrix or array
            Users × items, with finite values ≥ 0. A value above 0 is an interaction and its weight, a
            stored zero is none; a user's items stand in the stored order.

        Returns
        -------
        Interactions
            Users and items have their row numbers as ids. Where all values are 1 there are no weights.
        """
        rows = as_csr(matrix)
        is_weighted = bool((rows.data != 1).any())
        return cls(
            IdMap.numbered(rows.shape[0], "user"),
            IdMap.numbered(rows.shape[1], "item"),
            rows.indptr.astype(np.int64),
            rows.indices.astype(np.int32),
            weights=rows.data.astype(np.float64) if is_weighted else None,
        )

    def __len__(self) -> int:
        return len(self.item_rows)

    @property
    def n_users(self) -> int:
        """The number of users, those with an empty history too."""
        return len(self.users)

    @property
    def n_items(self) -> int:
        """The number of items, those without an interaction too."""
        return len(self.items)

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return all interactions as a table, one user after the other, each oldest first.

        Returns
        -------
        dict of str to ndarray
            `user` and `item` ids, `title` where items have titles, `time` where times are known, and
            `weight` where there are weights.
        """
        found = {
            "user": self.users.values[self.user_rows()],
            "item": self.items.values[self.item_rows],
        }
        found |= {} if self.items.labels is None else {"title": self.items.labels[self.item_rows]}
        found |= {} if self.times is None else {"time": self.times}
        return found | ({} if self.weights is None else {"weight": self.weights})

    def shown(self) -> list[str | TextTable]:
        """Return what a person reads: the sizes, the span of the times, the recency, and the first interactions.

        Returns
        -------
        list of str or TextTable
        """
        counts = f"{self.n_users:,} users, {self.n_items:,} items, {len(self):,} interactions"
        share = f"{100 * len(self) / max(self.n_users * self.n_items, 1):.2f} % of all pairs"
        recency = "no recency" if self.recency is None else f"recency: {self.recency}"
        weights = (
            "" if self.weights is None else f", weighted by {self.weighting or 'their values'}"
        )
        lines: list[str | TextTable] = [
            f"Interactions: {counts} ({share})",
            f"{self.time_span()}, {recency}{weights}",
            *shown_remarks(self.remarks),
        ]
        some = np.arange(len(self)) < _ROWS_SHOWN
        if not some.any():
            return lines
        columns = self.where(some).columns()
        write: dict[str, Callable[[Any], str]] = {
            "time": lambda time: readable_time(time, self.time_unit),
            "title": lambda title: f"{title:.40}",
            "weight": lambda weight: f"{weight:g}",
        }
        texts = [map(write.get(name, str), one.tolist()) for name, one in columns.items()]
        table = TextTable(
            tuple(columns), tuple(zip(*texts, strict=True)), names=1 + 2 * ("title" in columns)
        )
        return [*lines, table, *(["…"] if len(self) > _ROWS_SHOWN else [])]

    def time_span(self) -> str:
        """Return the days of the first and the last time, or their numbers where these are no seconds.

        Returns
        -------
        str
        """
        if self.times is None or not len(self):
            return "no times"
        first, last = (
            readable_time(time.item(), self.time_unit).split(" ")[0]
            for time in (self.times.min(), self.times.max())
        )
        return f"{first} to {last}"

    @property
    def time_unit(self) -> TimeUnit | None:
        """Whether times are seconds since 1970 or bare numbers; None without times.

        Where the schema does not say it they are seconds if all of them look like that.
        """
        if self.times is None:
            return None
        if self.schema.time_unit is not None:
            return self.schema.time_unit
        return "seconds" if find_unit(self.times) == "s" else "steps"

    @property
    def weighting(self) -> Weighting | None:
        """What an interaction counts, as it was read; None where nothing was said."""
        return self.schema.weighting

    def values(self) -> npt.NDArray[np.float32]:
        """Return what every interaction counts in a training matrix and in a history.

        Returns
        -------
        ndarray of float32
            Its weight, scaled as the schema's weighting says; 1 without weights.
        """
        if self.weights is None:
            return np.ones(len(self), np.float32)
        scaled = self.weights if self.weighting is None else self.weighting.scaled(self.weights)
        return scaled.astype(np.float32)

    def unweighted(self) -> Interactions:
        """Count all interactions alike.

        Returns
        -------
        Interactions
        """
        return self if self.weights is None else replace(self, weights=None)

    def items_of(self, user_row: int) -> npt.NDArray[np.int32]:
        """Return one user's item rows, oldest first.

        Parameters
        ----------
        user_row : int
            The row of the user; `users.row(id)` finds it.

        Returns
        -------
        ndarray of int32
        """
        return self.item_rows[self.offsets[user_row] : self.offsets[user_row + 1]]

    def counts(self) -> npt.NDArray[np.int64]:
        """Count each user's interactions.

        Returns
        -------
        ndarray of int64
            One number per user.
        """
        return np.diff(self.offsets)

    def user_rows(self) -> npt.NDArray[np.int64]:
        """Return the user row of every interaction.

        Returns
        -------
        ndarray of int64
            One row per interaction, beside `item_rows`.
        """
        return np.repeat(np.arange(self.n_users), self.counts())

    def places(self) -> npt.NDArray[np.int64]:
        """Number the interactions of every user.

        Returns
        -------
        ndarray of int64
            The position of every interaction in its user's history: 0 for the oldest.
        """
        return np.arange(len(self)) - np.repeat(self.offsets[:-1], self.counts())

    def moments(self) -> npt.NDArray[np.int64]:
        """Number the moments of every user.

        Returns
        -------
        ndarray of int64
            The number of every interaction's moment in its user's history: 0 for the oldest, the same for equal times.
            Without times every interaction is a moment of its own.
        """
        places = self.places()
        if self.times is None:
            return places
        begins = places == 0
        begins[1:] |= self.times[1:] != self.times[:-1]
        numbers = np.cumsum(begins)
        return np.asarray(
            numbers - numbers[np.repeat(self.offsets[:-1], self.counts())], dtype=np.int64
        )

    def pairs(self) -> npt.NDArray[np.int64]:
        """Return one number for the user and the item of every interaction.

        Returns
        -------
        ndarray of int64
            user row · items + item row.
        """
        return self.user_rows() * self.n_items + self.item_rows

    def matrix(self) -> csr_array:
        """Return the training matrix.

        Returns
        -------
        csr_array of float32
            Users × items; the entries of a row stand in the order of the history, each with its weight,
            or 1. A repeated pair is one entry, at its newest position.
        """
        rows = self._rows(self.values())
        by_item = rows.sorted_indices()
        return rows if by_item.has_canonical_format else self.distinct().matrix()

    def moment_matrix(self) -> csr_array | None:
        """Return the moments of the entries of `matrix`, in the same places.

        Returns
        -------
        csr_array of int32 or None
            None where no two items of a user share a moment.
        """
        if self.times is None or np.array_equal(self.moments(), self.places()):
            return None
        distinct = self.distinct()
        return distinct._rows(distinct.moments().astype(np.int32))

    def _rows(self, values: npt.NDArray[Any]) -> csr_array:
        """Put one value per interaction into users × items rows, in the order of the histories."""
        # Copies: the caller's matrix may be sorted in place, these arrays may not.
        index = np.dtype(np.int32 if len(self) < 2**31 else np.int64)
        indices, indptr = self.item_rows.astype(index), self.offsets.astype(index)
        return csr_array((values, indices, indptr), shape=(self.n_users, self.n_items))

    def distinct(self, keep: Literal["first", "newest"] = "newest") -> Interactions:
        """Leave each pair of user and item once, with what its interactions count together.

        Parameters
        ----------
        keep : {"newest", "first"}, default "newest"
            Which interaction of a repeated pair stays.

        Returns
        -------
        Interactions
            The weights of a repeated pair are joined as the schema's weighting says: added, unless it
            takes the newest or the largest.
        """
        pairs = self.pairs()
        by_value = np.sort(pairs)
        if not (by_value[1:] == by_value[:-1]).any():
            # As almost always, and several times as fast as to find out which is the newest.
            return self
        order = np.argsort(pairs, kind="stable")
        is_repeat = pairs[order[1:]] == pairs[order[:-1]]
        is_chosen = np.ones(len(self), dtype=bool)
        is_chosen[(order[:-1] if keep == "newest" else order[1:])[is_repeat]] = False
        if self.weights is None:
            return self.where(is_chosen)
        starts = np.flatnonzero(np.concatenate([[True], ~is_repeat]))
        joined = _join_weights(self.weights[order], starts, self.weighting)
        weights = self.weights.copy()
        chosen_of_pair = np.append(starts[1:], len(order)) - 1 if keep == "newest" else starts
        weights[order[chosen_of_pair]] = joined
        return replace(self, weights=weights).where(is_chosen)

    def remark_same_events(self) -> None:
        """Tell how many interactions repeat user, item and time of another one, where their weights are added."""
        adds = self.weighting is None or self.weighting.repeats in (None, "add")
        if self.weights is None or self.times is None or not adds:
            return
        pairs = self.pairs()
        order = np.lexsort((self.times, pairs))
        pairs, times = pairs[order], self.times[order]
        count = int(((pairs[1:] == pairs[:-1]) & (times[1:] == times[:-1])).sum())
        if count:
            text = "repeat the user, item and time of another one, and their weights are added"
            remark(
                "repeats-added", f"{count:,} interactions {text}; leave them out if they are copies"
            )

    def histories(self, user_rows: Rows | None = None) -> csr_array:
        """Return the weighted histories to score from.

        Parameters
        ----------
        user_rows : ndarray or None, default None
            Row numbers or a mask of the users; None takes all.

        Returns
        -------
        csr_array of float32
            Users × items, items rising: per stored item its weight, or 1, times its weight by `recency`.
            A repeated pair is one entry, at its newest position.
        """
        part = self if user_rows is None else self.of_users(user_rows)
        if part.weights is not None:
            part = part.distinct()
        if part.recency is None:
            plain = part.matrix()
            plain.sort_indices()
            return plain
        # How much older each item is than its user's newest: in units of time, or in moments.
        places = part._ages_from(part.recency)
        newest = places[np.repeat(part.offsets[1:] - 1, part.counts())]
        rows = part._rows(part.values() * part.recency.weights(newest - places))
        rows.sort_indices()
        if rows.has_canonical_format:
            return rows
        # Weights rise towards the newest, so the largest weight of a repeated pair is that of its newest place.
        is_first = np.ones(rows.nnz, bool)
        is_first[1:] = np.diff(rows.indices) != 0
        is_first[rows.indptr[:-1][np.diff(rows.indptr) > 0]] = True
        starts = np.flatnonzero(is_first)
        weights = np.maximum.reduceat(rows.data, starts)
        return csr_array(
            (weights, rows.indices[starts], np.searchsorted(starts, rows.indptr)), shape=rows.shape
        )

    def _ages_from(self, recency: Recency) -> npt.NDArray[Any]:
        """Return what ages are counted in: times, or the numbers of the moments."""
        if recency.unit == "positions":
            return self.moments()
        if self.times is None:
            raise DataError(
                f"recency ({recency}) needs a time column; give times, or a recency in positions"
            )
        if recency.unit == "seconds" and self.time_unit != "seconds":
            raise DataError(
                f"recency ({recency}): these times are bare numbers ({self.time_span()}), no seconds; "
                "say the half-life in steps of time, such as 5steps, or in positions, such as 4"
            )
        return self.times

    def of_users(self, user_rows: Rows) -> Interactions:
        """Choose some users; the items stay as they are.

        Parameters
        ----------
        user_rows : ndarray
            Row numbers, or a mask of all users.

        Returns
        -------
        Interactions
            Its users are renumbered from 0.
        """
        rows = (
            np.flatnonzero(user_rows)
            if np.asarray(user_rows).dtype == bool
            else np.asarray(user_rows)
        )
        counts = self.counts()[rows]
        offsets = np.concatenate([[0], np.cumsum(counts)])
        picked = np.arange(offsets[-1]) + np.repeat(self.offsets[rows] - offsets[:-1], counts)
        return replace(
            self, users=self.users.keep(rows), offsets=offsets, **self._columns_at(picked)
        )

    def of_items(self, is_chosen: npt.NDArray[np.bool_]) -> Interactions:
        """Choose some items; the users stay, some with an empty history.

        Parameters
        ----------
        is_chosen : ndarray of bool
            One mark per item.

        Returns
        -------
        Interactions
            Its items are renumbered from 0.
        """
        part, new_rows = (
            self.where(is_chosen[self.item_rows]),
            (np.cumsum(is_chosen) - 1).astype(np.int32),
        )
        return replace(part, items=self.items.keep(is_chosen), item_rows=new_rows[part.item_rows])

    def where(self, is_chosen: npt.NDArray[np.bool_]) -> Interactions:
        """Choose some interactions; users and items stay, some with an empty history.

        Parameters
        ----------
        is_chosen : ndarray of bool
            One mark per interaction.

        Returns
        -------
        Interactions
        """
        offsets = np.searchsorted(np.flatnonzero(is_chosen), self.offsets)
        return replace(self, offsets=offsets, **self._columns_at(is_chosen))

    def sorted_by_id(self) -> Interactions:
        """Put users and items in the order of their ids, as a reader numbers them.

        Returns
        -------
        Interactions
            The histories stay as they are.
        """
        users = np.argsort(self.users.values, kind="stable")
        items = np.argsort(self.items.values, kind="stable")
        new_rows = np.empty(len(items), np.int32)
        new_rows[items] = np.arange(len(items), dtype=np.int32)
        by_user = self.of_users(users)
        return replace(by_user, items=self.items.keep(items), item_rows=new_rows[by_user.item_rows])

    def is_sorted_by_id(self) -> bool:
        """Return whether users and items stand in the order of their ids."""
        maps = (self.users.values, self.items.values)
        return all(bool((values[1:] > values[:-1]).all()) for values in maps)

    def _columns_at(self, picked: npt.NDArray[Any]) -> dict[str, Any]:
        """Return the columns of some interactions, by their positions or a mask."""
        return {
            "item_rows": self.item_rows[picked],
            "times": None if self.times is None else self.times[picked],
            "weights": None if self.weights is None else self.weights[picked],
        }

    def merged(self, new: Interactions, *, new_items: bool = True) -> Interactions:
        """Add new interactions; users and items are matched by id.

        Known users and items keep their rows; new ones follow in the order of `new`. Titles and recency stay, and new
        items bring their titles. A repeated pair counts as the known ones' schema says: at its newest time alone, or at
        all its times.

        Parameters
        ----------
        new : Interactions
            What is added. Where both have times, histories are merged in the order of time, and of equal times the
            known ones come first; else the new ones are the newest. New ones without times, beside known ones with
            times, are dated after the newest of all known times, a unit of time apart. Where the known ones have no
            times, the new ones lose theirs. Times of another unit, and weights on one side alone, are
            refused.
        new_items : bool, default True
            Whether items that are not known enter. Else their interactions are left out, and with them the new users
            who have no others.

        Returns
        -------
        Interactions

        Examples
        --------
        >>> import polars
        >>> known = loca.read_interactions(polars.DataFrame({"user": ["ann", "ann"], "item": ["tea", "milk"]}))
        >>> new = loca.read_interactions(polars.DataFrame({"user": ["bob", "ann"], "item": ["tea", "salt"]}))
        >>> both = known.merged(new)
        >>> [both.items.ids(both.items_of(both.users.row(user))) for user in ("ann", "bob")]
        [['tea', 'milk', 'salt'], ['tea']]
        >>> known.merged(new, new_items=False).items.values.tolist()
        ['milk', 'tea']
        """
        new = self.entering(new, new_items=new_items)
        users, user_rows = self.users.merged(new.users)
        items, item_rows = self.items.merged(new.items)
        times = None
        if self.times is not None:
            later = new.times
            if later is None:
                newest = self.times.max() if len(self) else np.int64(0)
                later = newest + 1 + new.places()
            else:
                self._check_times_of(new)
            times = np.concatenate([self.times, later])
        merged = Interactions.from_events(
            users,
            items,
            np.concatenate([self.user_rows(), user_rows[new.user_rows()]]),
            np.concatenate([self.item_rows, item_rows[new.item_rows]]),
            times,
            weights=self._weights_with(new),
            schema=self.schema,
        )
        merged = replace(merged, recency=self.recency, remarks=self.remarks)
        merged.remark_same_events()
        return merged.distinct() if self.schema.repeats == "newest" else merged

    def entering(self, new: Interactions, *, new_items: bool = True) -> Interactions:
        """Return the part of new interactions that is to enter.

        Parameters
        ----------
        new : Interactions
            What is to be added.
        new_items : bool, default True
            Whether items that are not known enter. Else their interactions are left out, and with them
            the users who have no others.

        Returns
        -------
        Interactions
        """
        if new_items:
            return new
        is_known = np.array([one in self.items for one in new.items.values.tolist()], dtype=bool)
        if is_known.all():
            return new
        new = new.of_items(is_known)
        return new.of_users(new.counts() > 0)

    def _check_times_of(self, new: Interactions) -> None:
        """Refuse new times of another unit than the known ones."""
        if self.times is None or new.times is None or len(self) == 0 or len(new) == 0:
            return
        kinds = {self.times.dtype.kind, new.times.dtype.kind}
        if "M" in kinds and len(kinds) > 1:
            expected = f"expected {self.times.dtype}, as the known ones are"
            raise DataError(f"times: {expected}, found {new.times.dtype}")
        if new.time_unit == self.time_unit:
            return
        known, found = (
            f"seconds since 1970 ({one.time_span()})"
            if one.time_unit == "seconds"
            else f"bare numbers ({one.time_span()})"
            for one in (self, new)
        )
        raise DataError(
            f"times: the known interactions have {known}, the new ones {found}; "
            "give both in one unit, or name that of the new ones, such as time_unit='ms'"
        )

    def _weights_with(self, new: Interactions) -> npt.NDArray[np.float64] | None:
        """Return the weights of these interactions and then of new ones."""
        if len(new) and len(self) and (self.weights is None) != (new.weights is None):
            known, found = (
                "none" if one.weights is None else str(one.weighting or "values")
                for one in (self, new)
            )
            raise DataError(
                f"weights: the known interactions have {known}, the new ones {found}; "
                "read both with the same weight="
            )
        if self.weights is None and new.weights is None:
            return None
        parts = (np.ones(len(one)) if one.weights is None else one.weights for one in (self, new))
        return np.concatenate(list(parts))

    def with_recency(self, recency: Recency | None) -> Interactions:
        """Change how histories are weighted when they are used to score.

        Parameters
        ----------
        recency : Recency or None
            None gives every item the weight 1.

        Returns
        -------
        Interactions
        """
        if recency == self.recency:
            return self
        found = copy(self)  # all else is checked already, which takes a while
        object.__setattr__(found, "recency", recency)
        return found

    def with_titles(self, titles: Any) -> Interactions:
        """Name the items for people.

        Parameters
        ----------
        titles : dict, path or data frame
            The title of each item id; or a file or a frame with a column of ids and one of titles, as `read_titles`
            reads them. An item without a title is shown by its id.

        Returns
        -------
        Interactions
        """
        if isinstance(titles, str | Path) or hasattr(titles, "columns"):
            import loca

            titles = loca.read_titles(titles)
        if not isinstance(titles, dict):
            expected = "a dict of id to title, a path or a data frame with columns item and title"
            raise DataError(f"titles: expected {expected}, found {type(titles).__name__}")
        known = {str(one) for one in self.items.values.tolist()}
        if titles and not any(str(one) in known for one in titles):
            remark(
                "titles-unknown",
                f"titles: none of the {len(titles):,} ids is that of an item, "
                f"such as {next(iter(titles))!r}",
            )
        return replace(self, items=self.items.with_labels(titles))


def _join_weights(
    weights: npt.NDArray[np.float64], starts: npt.NDArray[np.int64], weighting: Weighting | None
) -> npt.NDArray[np.float64]:
    """Return one weight for each pair, whose weights stand together, oldest first, from `starts` on."""
    rule = "add" if weighting is None or weighting.repeats is None else weighting.repeats
    if rule == "newest":
        newest: npt.NDArray[np.float64] = weights[np.append(starts[1:], len(weights)) - 1]
        return newest
    join = np.add if rule == "add" else np.maximum
    return np.asarray(join.reduceat(weights, starts), dtype=np.float64)


def as_matrix(train: Interactions | csr_array) -> csr_array:
    """Return the training matrix of whatever a model's `fit` was given; its values are the weights of the entries.

    The stored order of a row is the order of the history, oldest first: models that learn from the order read it
    there, all others may sort.
    """
    matrix = train.matrix() if isinstance(train, Interactions) else as_csr(train)
    if matrix.dtype != np.float32:
        by_item = matrix.astype(
            np.float32
        )  # sorts every row and sums the values of a pair that is stored twice
        if by_item.nnz == matrix.nnz:
            arrays = matrix.data, matrix.indices, matrix.indptr
            by_item = csr_array(arrays, shape=matrix.shape, dtype=np.float32, copy=True)
        matrix = by_item
    if matrix.shape[0] == 0 or matrix.shape[1] == 0 or matrix.nnz == 0:
        raise DataError(
            f"nothing to learn from: {matrix.shape[0]} users, {matrix.shape[1]} items, {matrix.nnz} pairs"
        )
    return matrix


def as_moments(train: Interactions | csr_array) -> csr_array | None:
    """Return the number of the moment of every entry of `as_matrix(train)`, in a matrix of the same stored places.

    None where every entry is a place of its own: no times, no two items of a user at one time, or a bare matrix.
    """
    return train.moment_matrix() if isinstance(train, Interactions) else None


def as_histories(train: Interactions | csr_array) -> csr_array:
    """Return the weighted histories of what `fit` was given, items rising: sums over a row then round alike."""
    matrix = as_matrix(train)
    if isinstance(train, Interactions) and train.recency is not None:
        return train.histories()
    return matrix.sorted_indices()


def as_csr(matrix: Any) -> Any:
    """Return a scipy sparse matrix as users × items rows, each in its stored order; refuse anything else."""
    if not issparse(matrix):
        raise DataError(
            f"expected Interactions or a scipy sparse matrix, found {type(matrix).__name__}"
        )
    rows: Any = matrix
    return without_zeros(check_entries(csr_array(rows), "the matrix"))


def without_zeros(rows: Any) -> Any:
    """Return the rows without stored zeros, which are nothing; a copy where there are some."""
    if len(rows.data) == 0 or rows.data.all():
        return rows
    stored = rows.copy()
    stored.eliminate_zeros()
    return stored


def check_entries(rows: Any, what: str) -> Any:
    """Return the rows as they are; refuse the first entry that is not finite, or below 0, with its place."""
    values = rows.data
    if len(values) and not (values.min() >= 0 and values.max() < np.inf):  # neither holds of NaN
        place = int(np.flatnonzero(~((values >= 0) & (values < np.inf)))[0])
        row, column = (
            int(np.searchsorted(rows.indptr, place, "right")) - 1,
            int(rows.indices[place]),
        )
        raise DataError(
            f"{what}: expected finite numbers ≥ 0, found {values[place]} in row {row}, column {column}"
        )
    return rows


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view
