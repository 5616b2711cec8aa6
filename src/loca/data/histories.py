"""Histories to answer from, in any form: one rule for ids, order and recency, whoever asks.

Items are matched by id. A history gets the recency of the interactions that the model was fitted on, unless it brings
weights of its own or the caller names a recency.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, issparse

from loca.data.id_map import Id, IdMap
from loca.data.interactions import Interactions, as_csr
from loca.data.later import as_interactions, is_table, read_later
from loca.data.recency import Recency
from loca.errors import ConfigError, DataError, check_choice
from loca.remarks import remark
from loca.text_table import many

OnUnknown = Literal["error", "skip", "popular"]
HistoryWeights = Recency | Literal["model"] | None
Rows = npt.NDArray[np.int64]
_KNOWS_NOBODY = (
    "this model was fitted on a bare matrix and knows no user ids; give histories instead"
)


@dataclass(frozen=True, eq=False)
class Histories:
    """The histories of some users over a model's items, weighted and ready to score.

    Parameters
    ----------
    users : ndarray
        Their ids, in the order of the request; a user may stand in it twice.
    items : IdMap
        The model's items.
    source : Interactions or csr_array
        Where the histories stand: interactions over the model's items, or a matrix of weights.
    rows : ndarray of int64
        The row of each user in `source`; −1 for a user who is not in it.
    """

    users: npt.NDArray[Any]
    items: IdMap
    source: Interactions | csr_array
    rows: Rows

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def is_empty(self) -> npt.NDArray[np.bool_]:
        """Whether a user has no item to answer from, for each user."""
        counts = (
            self.source.counts()
            if isinstance(self.source, Interactions)
            else np.diff(self.source.indptr)
        )
        is_empty: npt.NDArray[np.bool_] = np.append(counts, 0)[self.rows] == 0
        return is_empty

    def matrix(self, places: Rows | None = None) -> csr_array:
        """The weighted histories at some places, or all of them: users × items, none of them empty."""
        rows = self.rows if places is None else self.rows[places]
        if not isinstance(self.source, Interactions):
            return csr_array(self.source[rows])
        if (np.diff(rows) > 0).all():
            return self.source.histories(rows)
        # A user may be wanted twice; interactions name each user once.
        distinct, again = np.unique(rows, return_inverse=True)
        return csr_array(self.source.histories(distinct)[again])

    def order(self, place: int) -> npt.NDArray[np.int32]:
        """The item rows of one history, oldest first."""
        row = self.rows[place]
        if isinstance(self.source, Interactions):
            return self.source.items_of(row)
        return self.source.indices[self.source.indptr[row] : self.source.indptr[row + 1]].astype(
            np.int32
        )


def resolve_histories(
    who: Any,
    known: Interactions | None,
    item_count: int | None,
    on_unknown: OnUnknown = "error",
    *,
    users_in: Interactions | None = None,
    recency: HistoryWeights = "model",
) -> Histories:
    """The histories that `who` stands for.

    Parameters
    ----------
    who : user id, list of ids, list of histories, dict of histories, data frame, Interactions or sparse matrix
        A history is a list of item ids, oldest first.
    known : Interactions or None
        What the model was fitted on; None where that was a bare matrix, whose ids are row numbers.
    item_count : int or None
        Number of the model's items; None where it cannot be said.
    on_unknown : {"error", "skip", "popular"}, default "error"
        Refuse unknown users, unknown items and empty histories, or leave out the unknown.
    users_in : Interactions or None, default None
        Where user ids are looked up; None takes `known`.
    recency : Recency, None or "model", default "model"
        How the items of a history are weighted: as they are given, else as the model's own; all 1; or so.

    Returns
    -------
    Histories
    """
    check_choice("on_unknown", on_unknown, get_args(OnUnknown))
    if not (recency is None or recency == "model" or isinstance(recency, Recency)):
        raise ConfigError(f"recency: expected a Recency, None or 'model', found {recency!r:.60}")
    if users_in is None:
        users_in = known
    if isinstance(who, str | int | float | np.generic):
        who = [who]
    if isinstance(who, Interactions | Path) or is_table(who):
        who = as_interactions(who) if known is None else read_later(who, known)
    if not isinstance(who, Interactions | Mapping) and not issparse(who):
        if (
            isinstance(who, np.ndarray)
            and who.ndim == 2
            and (who.dtype.kind in "bf" or who.shape[1] == item_count)
        ):
            raise DataError(
                f"who: expected lists of item ids, found a dense matrix of {who.dtype}; give csr_array(who)"
            )
        who = _as_list(who)
        are_lists = [isinstance(one, list | tuple | np.ndarray) for one in who]
        if any(are_lists) and not all(are_lists):
            raise DataError(
                "who: expected user ids or lists of item ids, found both; ask for each kind apart"
            )
        if any(isinstance(one, set | frozenset) for one in who):
            raise DataError(
                "who: a history is a list of item ids, oldest first; found a set, which has no order"
            )
        if any(are_lists):
            who = dict(enumerate(who))
    items = _model_items(who, known, users_in, item_count)
    own = None if known is None else known.recency
    if issparse(who):
        found = _of_matrix(who, items, recency, own)
    else:
        if isinstance(who, Interactions):
            source, rows = who, np.arange(who.n_users)
        elif isinstance(who, Mapping):
            source, rows = _listed(who, items, on_unknown), np.arange(len(who))
        else:
            if users_in is None:
                raise DataError(_KNOWS_NOBODY)
            source = users_in
            rows = _user_rows(who, users_in, items, on_unknown)
        over = over_items(source, items, on_unknown)
        _remark_left_out(len(source) - len(over))
        weights = (
            recency if recency != "model" else over.recency if over.recency is not None else own
        )
        found = _named(over.with_recency(weights), rows, who)
    empty = np.flatnonzero(found.is_empty)
    if len(empty) and on_unknown == "error":
        user_id = found.users[empty[:1]].tolist()[0]
        raise DataError(
            f"user {user_id!r} has an empty history; expected at least one item to answer from"
        )
    return found


def _user_rows(who: Any, known: Interactions, items: IdMap, on_unknown: OnUnknown) -> Rows:
    """Return the rows of users, −1 for the unknown where they are not refused."""
    if on_unknown != "error":
        return known.users.rows(who, missing=-1)
    try:
        return known.users.rows(who)
    except DataError as error:
        if all(one in items for one in who):
            advice = "; these are items: a history is a list inside a list, such as [['a', 'b']]"
            raise DataError(f"{error}{advice}") from None
        raise


def _as_list(who: Any) -> list[Any]:
    try:
        return list(who)
    except TypeError:
        expected = "user ids, lists of item ids, a data frame, Interactions or a sparse matrix"
        raise DataError(f"who: expected {expected}, found {type(who).__name__}") from None


def _model_items(
    who: Any, known: Interactions | None, users_in: Interactions | None, count: int | None
) -> IdMap:
    """What the model's items are called: by what it knows, else by what the request brings, else by number."""
    items = None if known is None else known.items
    if items is None and isinstance(who, Interactions):
        items = who.items
    if items is None and users_in is not None:
        items = users_in.items
    if issparse(who):
        matrix: Any = who
        expected = len(items) if items is not None else count
        if expected is not None and matrix.shape[1] != expected:
            raise DataError(
                f"histories: expected the model's {expected} items, found {matrix.shape[1]}"
            )
        count = matrix.shape[1]
    if items is None:
        if count is None:
            no_count = "histories: the model does not say how many items it has; give a sparse matrix instead"
            raise DataError(_KNOWS_NOBODY if isinstance(who, list) else no_count)
        items = IdMap.numbered(count, "item")
    return items


def _of_matrix(
    matrix: Any, items: IdMap, recency: HistoryWeights, own: Recency | None
) -> Histories:
    """Take the values of a matrix as weights; the stored order of a row is the order of the history.

    Where not all values are 1 the model's own recency is not applied to them; one that the caller names
    is.
    """
    rows = as_csr(matrix)
    users = np.arange(rows.shape[0], dtype=np.int64)
    if recency == "model":
        if own is None or (rows.data != 1).any():
            return Histories(users, items, rows, users)
        recency = own
    if recency is not None and rows.nnz > rows.shape[0] and rows.has_sorted_indices:
        remark(
            "order-unknown",
            "histories: every row stands in the order of the items; it is read as oldest first and weighted by the "
            "model's recency; give Interactions, lists of item ids, or weights to be exact",
        )
    found = Interactions.from_matrix(rows)
    return Histories(users, items, replace(found, items=items, recency=recency), users)


def _listed(
    histories: Mapping[Any, Iterable[Id]], items: IdMap, on_unknown: OnUnknown
) -> Interactions:
    """Named lists of item ids as interactions, in the order given; unknown items are refused or left out."""
    missing = None if on_unknown == "error" else -1
    for name, one in histories.items():
        _check_history(name, one)
    found = [items.rows(_as_list(one), missing=missing) for one in histories.values()]
    rows = [one[one >= 0] for one in found]
    _remark_left_out(sum(map(len, found)) - sum(map(len, rows)))
    names = np.array(list(histories), dtype=None if histories else np.int64)
    offsets = np.cumsum([0, *map(len, rows)])
    return Interactions(
        IdMap(names),
        items,
        offsets,
        np.concatenate([np.empty(0, np.int64), *rows]).astype(np.int32),
    )


def _check_history(name: Any, history: Any) -> None:
    """Refuse, as a history, anything but a list of item ids, which has an order and nothing else."""
    where = f"history of {name!r}"
    if isinstance(history, str | int | float):
        problem = f"expected a list of item ids, found {history!r}"
        raise DataError(f"{where}: {problem}; write [{history!r}]")
    if isinstance(history, set | frozenset | Mapping):
        advice = "a set has no order"
        if isinstance(history, Mapping):
            advice = "leave out what is not liked; for weights give a data frame"
        kind = type(history).__name__
        raise DataError(
            f"{where}: expected a list of item ids, oldest first, found a {kind}; {advice}"
        )


def over_items(source: Interactions, items: IdMap, on_unknown: OnUnknown) -> Interactions:
    """The same interactions over other items, matched by id; those with an unknown item are refused or left out."""
    if source.items is items or np.array_equal(source.items.values, items.values):
        return source if source.items is items else replace(source, items=items)
    present = np.unique(source.item_rows)
    new_rows = np.full(source.n_items, -1, np.int32)
    new_rows[present] = items.rows(
        source.items.ids(present),
        missing=None if on_unknown == "error" else -1,
        exact_titles=True,
    )
    matched = (
        source.where(new_rows[source.item_rows] >= 0) if (new_rows[present] < 0).any() else source
    )
    return replace(matched, items=items, item_rows=new_rows[matched.item_rows])


def _remark_left_out(count: int) -> None:
    if count:
        text = "of the histories left out, with items that are not known"
        remark("items-left-out", f"{many(count, 'interaction')} {text}")


def _named(source: Interactions, rows: Rows, who: Any) -> Histories:
    """The histories in rows of the source; a user who is not in it keeps the id of the request."""
    recency = source.recency
    if recency is not None and recency.unit != "positions" and source.times is None:
        raise DataError(
            f"a history without times cannot be weighted by {source.recency}; give times, or a recency in positions"
        )
    users = (
        source.users.values[np.maximum(rows, 0)] if source.n_users else np.empty(len(rows), object)
    )
    unknown = np.flatnonzero(rows < 0)
    if len(unknown):
        users, requested = users.astype(object), _as_list(who)
        for place in unknown:
            one = requested[place]
            users[place] = one.item() if isinstance(one, np.generic) else one
    return Histories(users, source.items, source, np.asarray(rows, np.int64))
