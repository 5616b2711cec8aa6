"""Recommend the best items for users known by id, or for any histories, as arrays of ids and scores or as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, issparse

from loca.data.id_map import Id, IdMap
from loca.data.interactions import Interactions
from loca.errors import DataError
from loca.evaluation.evaluate import Scorer
from loca.evaluation.top_n import ItemRows, block_rows, check_list_length, rank_top_n
from loca.progress import bar

if TYPE_CHECKING:
    import polars

Who = Iterable[Id] | Interactions | csr_array


@dataclass(frozen=True, eq=False)
class _Question:
    """Hold the requested users: ids, item counts and histories, and the items' names (None: row numbers)."""

    users: npt.NDArray[Any]
    counts: npt.NDArray[Any]
    histories: Callable[[npt.NDArray[np.int64]], csr_array]
    item_count: int
    items: IdMap | None

    def __post_init__(self) -> None:
        empty = np.flatnonzero(self.counts == 0)
        if len(empty):
            user_id = self.users[empty[:1]].tolist()[0]
            raise DataError(f"user {user_id!r} has an empty history; expected at least one item to answer from")


def recommend(
    model: Scorer,
    who: Who,
    n: int = 10,
    *,
    known: Interactions | None = None,
    hide_seen: bool = True,
    only: Iterable[Id] | None = None,
    never: Iterable[Id] | None = None,
) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]:
    """Find the n best items for each user.

    Parameters
    ----------
    model : Recommender
        A fitted model, or anything else with a method `score`.
    who : list of ids, Interactions or csr_array
        User ids, looked up in `known`; interactions of any users, known to the model or not; or a sparse users × items
        matrix of histories.
    n : int, default 10
        How many items to list for each user.
    known : Interactions or None, default None
        Where user and item ids are looked up; None takes what the model was fitted on.
    hide_seen : bool, default True
        Leave out the items of a user's history.
    only : iterable of ids or None, default None
        The items to choose from; None takes all.
    never : iterable of ids or None, default None
        Items to leave out.

    Returns
    -------
    items : ndarray
        Users × n item ids, best first, as they came in; row numbers where the model was fitted on a bare matrix. A
        place that cannot be filled holds None; only then is an array of numbers turned into one of objects.
    scores : ndarray of float32
        Users × n scores; −inf in a place that cannot be filled.

    Examples
    --------
    >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12, shortest_history=10).interactions
    >>> model = loca.EASE().fit(data)
    >>> items, scores = loca.recommend(model, ["u07", "u11"], n=3)
    >>> items.shape, scores.shape
    ((2, 3), (2, 3))
    >>> items, scores = loca.recommend(model, ["u07"], n=2, only=["i03"], hide_seen=False)
    >>> items.tolist()
    [['i03', None]]
    """
    asked = _ask(model, who, known)
    item_rows, scores = _rank(model, asked, n, hide_seen, only, never)
    return _outside_ids(item_rows, asked.items), scores


def recommendation_table(
    model: Scorer,
    who: Who,
    n: int = 10,
    *,
    known: Interactions | None = None,
    hide_seen: bool = True,
    only: Iterable[Id] | None = None,
    never: Iterable[Id] | None = None,
) -> polars.DataFrame:
    """Find the n best items for each user, as a polars table.

    The parameters are those of `recommend`.

    Parameters
    ----------
    model : Recommender
        A fitted model, or anything else with a method `score`.
    who : list of ids, Interactions or csr_array
        User ids, looked up in `known`; interactions of any users; or a sparse users × items matrix of histories, whose
        users are named by their row numbers.
    n : int, default 10
        How many items to list for each user.
    known : Interactions or None, default None
        Where user and item ids are looked up; None takes what the model was fitted on.
    hide_seen : bool, default True
        Leave out the items of a user's history.
    only : iterable of ids or None, default None
        The items to choose from; None takes all.
    never : iterable of ids or None, default None
        Items to leave out.

    Returns
    -------
    polars.DataFrame
        The columns user, item, score, rank (from 1), and title where items have titles. A place that cannot be filled
        has no row.

    Examples
    --------
    >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12, shortest_history=10).interactions
    >>> table = loca.recommendation_table(loca.EASE().fit(data), ["u07", "u11"], n=3)
    >>> table.columns
    ['user', 'item', 'score', 'rank', 'title']
    >>> table["rank"].to_list()
    [1, 2, 3, 1, 2, 3]
    """
    import polars

    asked = _ask(model, who, known)
    item_rows, scores = _rank(model, asked, n, hide_seen, only, never)
    user_places, ranks = np.nonzero(item_rows >= 0)
    listed = item_rows[user_places, ranks]
    columns = {
        "user": asked.users[user_places].tolist(),
        "item": _outside_ids(listed, asked.items).tolist(),
        "score": scores[user_places, ranks],
        "rank": ranks.astype(np.int64) + 1,
    }
    if asked.items is not None and asked.items.labels is not None:
        columns["title"] = asked.items.labels[listed].tolist()
    return polars.DataFrame(columns)


def _ask(model: Scorer, who: Who, known: Interactions | None) -> _Question:
    if known is None:
        known = getattr(model, "train_data_", None)
    if isinstance(who, str | int | float):
        raise DataError(f"who: expected a list of user ids, found {who!r}; write [{who!r}]")
    if isinstance(who, Interactions):
        return _ask_all(who if known is None else _over_items(who, known.items))
    if issparse(who):
        return _ask_matrix(csr_array(who), None if known is None else known.items)
    if known is None:
        raise DataError("this model was fitted on a bare matrix and knows no user ids; give histories instead")
    source, user_rows = known, known.users.rows(who)
    return _Question(
        users=source.users.values[user_rows],
        counts=source.counts()[user_rows],
        histories=lambda rows: _histories_of(source, user_rows[rows]),
        item_count=source.n_items,
        items=source.items,
    )


def _histories_of(known: Interactions, user_rows: npt.NDArray[np.int64]) -> csr_array:
    # A user may be requested twice; interactions name each user once.
    distinct, places = np.unique(user_rows, return_inverse=True)
    return known.histories(distinct)[places]


def _ask_all(who: Interactions) -> _Question:
    return _Question(who.users.values, who.counts(), who.histories, who.n_items, who.items)


def _ask_matrix(who: csr_array, items: IdMap | None) -> _Question:
    user_count, item_count = who.shape
    if items is not None and len(items) != item_count:
        raise DataError(f"histories: expected the model's {len(items)} items, found {item_count}")
    users = np.arange(user_count)
    return _Question(users, np.diff(who.indptr), lambda rows: who[rows], item_count, items)


def _over_items(who: Interactions, items: IdMap) -> Interactions:
    """Renumber interactions over the model's items; an item that the model does not know is refused."""
    if np.array_equal(who.items.values, items.values):
        return who
    new_rows = items.rows(who.items.values.tolist()).astype(np.int32)
    return replace(who, items=items, item_rows=new_rows[who.item_rows])


def _rank(
    model: Scorer,
    asked: _Question,
    n: int,
    hide_seen: bool,
    only: Iterable[Id] | None,
    never: Iterable[Id] | None,
) -> tuple[ItemRows, npt.NDArray[np.float32]]:
    check_list_length(n)
    only_rows, never_rows = _item_rows("only", only, asked), _item_rows("never", never, asked)
    user_count = len(asked.users)
    item_rows, best = np.empty((user_count, n), np.int32), np.empty((user_count, n), np.float32)
    size = block_rows(asked.item_count)
    with bar("recommending", user_count) as progress:
        for start in range(0, user_count, size):
            block = np.arange(start, min(start + size, user_count))
            histories = asked.histories(block)
            item_rows[block], best[block] = rank_top_n(
                model.score(histories), histories if hide_seen else None, n, only=only_rows, never=never_rows
            )
            progress.advance(len(block))
    return item_rows, best


def _item_rows(name: str, ids: Iterable[Id] | None, asked: _Question) -> npt.NDArray[np.int64] | None:
    if ids is None:
        return None
    if isinstance(ids, str | int | float):
        raise DataError(f"{name}: expected a list of item ids, found {ids!r}; write [{ids!r}]")
    items = asked.items if asked.items is not None else IdMap.numbered(asked.item_count, "item")
    return items.rows(ids)


def _outside_ids(item_rows: ItemRows, items: IdMap | None) -> npt.NDArray[Any]:
    ids: npt.NDArray[Any] = item_rows.astype(np.int64) if items is None else items.values[item_rows]
    empty = item_rows < 0
    if empty.any():
        ids = ids.astype(object)
        ids[empty] = None
    return ids
