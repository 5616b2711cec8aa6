"""Recommend the best items for users known by id, or for any histories, as arrays of ids and scores or as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
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
Ids = Iterable[Id] | None


def recommend(
    model: Scorer,
    who: Who,
    n: int = 10,
    *,
    known: Interactions | None = None,
    hide_seen: bool = True,
    only: Ids = None,
    never: Ids = None,
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
    _, item_rows, scores, items = _list_best(model, who, n, known, hide_seen, only, never)
    return _outside_ids(item_rows, items), scores


def recommendation_table(
    model: Scorer,
    who: Who,
    n: int = 10,
    *,
    known: Interactions | None = None,
    hide_seen: bool = True,
    only: Ids = None,
    never: Ids = None,
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

    users, item_rows, scores, items = _list_best(model, who, n, known, hide_seen, only, never)
    user_places, ranks = np.nonzero(item_rows >= 0)
    listed = item_rows[user_places, ranks]
    columns = {
        "user": users[user_places].tolist(),
        "item": _outside_ids(listed, items).tolist(),
        "score": scores[user_places, ranks],
        "rank": ranks.astype(np.int64) + 1,
    }
    if items is not None and items.labels is not None:
        columns["title"] = items.labels[listed].tolist()
    return polars.DataFrame(columns)


def _list_best(
    model: Scorer, who: Who, n: int, known: Interactions | None, hide_seen: bool, only: Ids, never: Ids
) -> tuple[npt.NDArray[Any], ItemRows, npt.NDArray[np.float32], IdMap | None]:
    """The users' ids, their best item rows and the scores of these, and what the items are called, if anything."""
    check_list_length(n)
    for name, given in (("who", who), ("only", only), ("never", never)):
        if isinstance(given, str | int | float):
            whose = "user" if name == "who" else "item"
            raise DataError(f"{name}: expected a list of {whose} ids, found {given!r}; write [{given!r}]")
    data: Interactions | None = getattr(model, "train_data_", None) if known is None else known
    items: IdMap | None = None if data is None else data.items
    histories_of: Callable[[npt.NDArray[np.int64]], csr_array]
    if isinstance(who, Interactions):
        if data is not None and not np.array_equal(who.items.values, data.items.values):
            # The same interactions over the model's items; an item that it does not know is refused.
            new_rows = data.items.rows(who.items.values.tolist()).astype(np.int32)
            who = replace(who, items=data.items, item_rows=new_rows[who.item_rows])
        users, counts, histories_of, items = who.users.values, who.counts(), who.histories, who.items
    elif issparse(who):
        matrix = csr_array(who)
        if items is not None and len(items) != matrix.shape[1]:
            raise DataError(f"histories: expected the model's {len(items)} items, found {matrix.shape[1]}")
        users, counts, histories_of = np.arange(matrix.shape[0]), np.diff(matrix.indptr), matrix.__getitem__
    elif data is None:
        raise DataError("this model was fitted on a bare matrix and knows no user ids; give histories instead")
    else:
        source, user_rows = data, data.users.rows(who)
        users, counts = source.users.values[user_rows], source.counts()[user_rows]

        def histories_of(places: npt.NDArray[np.int64]) -> csr_array:
            # A user may be wanted twice; interactions name each user once.
            distinct, again = np.unique(user_rows[places], return_inverse=True)
            return source.histories(distinct)[again]

    empty = np.flatnonzero(counts == 0)
    if len(empty):
        user_id = users[empty[:1]].tolist()[0]
        raise DataError(f"user {user_id!r} has an empty history; expected at least one item to answer from")
    item_count = matrix.shape[1] if items is None else len(items)
    named = IdMap.numbered(item_count, "item") if items is None else items
    only_rows, never_rows = (None if ids is None else named.rows(ids) for ids in (only, never))
    item_rows, best = np.empty((len(users), n), np.int32), np.empty((len(users), n), np.float32)
    size = block_rows(item_count)
    with bar("recommending", len(users)) as progress:
        for start in range(0, len(users), size):
            block = np.arange(start, min(start + size, len(users)))
            histories = histories_of(block)
            hidden = histories if hide_seen else None
            found = rank_top_n(model.score(histories), hidden, n, only=only_rows, never=never_rows)
            item_rows[block], best[block] = found
            progress.advance(len(block))
    return users, item_rows, best, items


def _outside_ids(item_rows: ItemRows, items: IdMap | None) -> npt.NDArray[Any]:
    ids: npt.NDArray[Any] = item_rows.astype(np.int64) if items is None else items.values[item_rows]
    empty = item_rows < 0
    if empty.any():
        ids = ids.astype(object)
        ids[empty] = None
    return ids
