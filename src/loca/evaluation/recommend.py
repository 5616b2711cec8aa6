"""Recommend the best items for users known by id, or for any histories: arrays of ids and scores, or a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.data.histories import Histories, HistoryWeights, OnUnknown, resolve_histories
from loca.data.id_map import Id, IdMap, at_rows
from loca.data.interactions import Interactions
from loca.errors import ConfigError, DataError, check_arguments, did_you_mean
from loca.evaluation.evaluate import Scorer, check_scorer
from loca.evaluation.top_n import ItemRows, block_rows, check_list_length, rank_top_n
from loca.memory import plan_memory
from loca.progress import bar
from loca.remarks import Remarks, keeps_remarks, remark, shown_remarks
from loca.text_table import Tabular, TextTable, many

if TYPE_CHECKING:
    import polars

Ids = Iterable[Id] | None
Candidates = Mapping[Any, Iterable[Id]] | None
_SHOWN_USERS, _SHOWN_SIGNS = 5, 80
_NO_PREFERENCE = "all listed items have one score: the list is in the order of the catalogue"
_ARRAYS_OF_SIMILARITIES = 6  # items × items of a block, while they are found and ranked


@dataclass(frozen=True, eq=False, repr=False)
class Recommendations(Tabular):
    """Hold the best items of some users; unpacks as `items, scores`.

    Parameters
    ----------
    users : ndarray
        The ids of the users, in the order of the request.
    item_rows : ndarray of int32
        Users × n: the rows of their items, best first; −1 in a place that cannot be filled.
    scores : ndarray of float32
        Users × n scores; −inf in a place that cannot be filled.
    item_ids : IdMap
        What the items are called; by their rows where the model was fitted on a bare matrix.
    remarks : tuple of Remark, default ()
        What was left out, or answered otherwise than requested.

    Examples
    --------
    >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12, shortest_history=10).interactions
    >>> found = loca.EASE().fit(data).recommend(["u07", "u11"], n=3)
    >>> items, scores = found
    >>> items.shape, scores.shape
    ((2, 3), (2, 3))
    >>> found.to_polars().columns
    ['user', 'item', 'score', 'rank', 'title']
    """

    users: npt.NDArray[Any]
    item_rows: ItemRows
    scores: npt.NDArray[np.float32]
    item_ids: IdMap
    remarks: Remarks = ()

    def __iter__(self) -> Iterator[npt.NDArray[Any]]:
        yield self.items
        yield self.scores

    def __getitem__(self, place: int) -> npt.NDArray[Any]:
        return (self.items, self.scores)[place]

    @property
    def items(self) -> npt.NDArray[Any]:
        """Users × n item ids as they came in; None in a place that cannot be filled."""
        return at_rows(self.item_ids.values, self.item_rows)

    @property
    def titles(self) -> npt.NDArray[Any] | None:
        """Users × n titles, None in a place that cannot be filled; None where items have no titles."""
        return (
            None if self.item_ids.labels is None else at_rows(self.item_ids.labels, self.item_rows)
        )

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return the table by its columns, one row for each place that is filled.

        Returns
        -------
        dict of str to ndarray
            user, item, score, rank (from 1), and title where items have titles. Users are text where some of the ids
            are text and others numbers.
        """
        places, ranks = np.nonzero(self.item_rows >= 0)
        listed = self.item_rows[places, ranks]
        columns = {
            "user": ids_of_one_type(self.users)[places],
            "item": self.item_ids.values[listed],
            "score": self.scores[places, ranks],
            "rank": ranks.astype(np.int64) + 1,
        }
        if self.item_ids.labels is not None:
            columns["title"] = self.item_ids.labels[listed]
        return columns

    def shown(self) -> Sequence[str | TextTable]:
        """The lists of the first users."""
        users, width = self.item_rows.shape
        names = self.items if self.titles is None else self.titles
        rows = []
        for user, listed in zip(
            self.users[:_SHOWN_USERS].tolist(), names[:_SHOWN_USERS].tolist(), strict=True
        ):
            text = ", ".join(str(one) for one in listed if one is not None) or "nothing"
            rows.append(
                (str(user), text if len(text) <= _SHOWN_SIGNS else f"{text[: _SHOWN_SIGNS - 1]}…")
            )
        more = [f"… and {users - _SHOWN_USERS:,} more"] if users > _SHOWN_USERS else []
        title = f"up to {width} items for {many(users, 'user')}"
        return [
            title,
            *([TextTable(("user", "items"), tuple(rows), names=2)] if rows else []),
            *more,
            *shown_remarks(self.remarks),
        ]


@check_arguments
@keeps_remarks
def recommend(
    model: Scorer,
    who: Any,
    n: int = 10,
    *,
    known: Interactions | None = None,
    hide_seen: bool = True,
    only: Ids = None,
    never: Ids = None,
    candidates: Candidates = None,
    on_unknown: OnUnknown = "error",
    recency: HistoryWeights = "model",
) -> Recommendations:
    """Find the n best items for each user.

    A history in any form is weighted as the model's own data unless it brings its own weights, and its items are
    matched by id: a user's id and the same user's history give the same list. A list of ids has no times: by a recency
    in positions each of its items has a place of its own, while items of one moment share one; a frame has times.

    Parameters
    ----------
    model : Recommender
        A fitted model, or anything else with a method `score`.
    who : user id, list of ids, list or dict of histories, data frame, Interactions or sparse matrix
        Users that the model knows, by id; or anybody's histories. `[["a", "b"], ["c"]]` and `{"ann": ["a", "b"]}` are
        lists of item ids, oldest first. A frame has the columns user, item and perhaps time. A row of a sparse users ×
        items matrix is a history in its stored order; where not all entries are 1, they are its weights.
    n : int, default 10
        How many items to list for each user; at most as many as there are.
    known : Interactions or None, default None
        Where user ids are looked up; None takes what the model was fitted on.
    hide_seen : bool, default True
        Leave out the items of a user's history.
    only : iterable of ids or None, default None
        The items to choose from; None takes all.
    never : iterable of ids or None, default None
        Items to leave out.
    candidates : dict or None, default None
        The items to choose from for each user id; an answered user who is not in it may get any.
    on_unknown : {"error", "skip", "popular"}, default "error"
        `"error"` refuses unknown users, unknown items of a history, and empty histories. `"skip"` leaves unknown items
        out, and users without anything to answer from get an empty list; `"popular"` gives those what is popular.
        Unknown items of `only`, `never` and `candidates` are refused whatever it says.
    recency : Recency, None or "model", default "model"
        How the items of a history are weighted: by its own recency, else the model's; None weights all alike.

    Returns
    -------
    Recommendations
        Unpacks as `items, scores`, two users × n arrays, best first. A place that cannot be filled holds None and
        −inf.

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
    >>> len(loca.recommend(model, ["u07", "nobody"], on_unknown="popular").to_polars())
    20
    """
    request = Request(model, who, n, known, hide_seen, only, never, candidates, on_unknown, recency)
    users, n = len(request.histories), request.n
    plan_memory(
        f"lists of {n:,} items for {users:,} users",
        8 * users * n,
        "ask for shorter lists, or for fewer users",
    )
    item_rows, best = np.empty((users, n), np.int32), np.empty((users, n), np.float32)
    for block, part in request.blocks():
        item_rows[block], best[block] = part.item_rows, part.scores
    users_of, items_of = request.histories.users, request.histories.items
    return Recommendations(users_of, item_rows, best, items_of)


def recommendation_table(
    model: Scorer,
    who: Any,
    n: int = 10,
    *,
    known: Interactions | None = None,
    hide_seen: bool = True,
    only: Ids = None,
    never: Ids = None,
) -> polars.DataFrame:
    """Find the n best items for each user, as a polars table; `recommend(…).to_polars()` under its former name.

    Parameters
    ----------
    model : Recommender
        A fitted model, or anything else with a method `score`.
    who : any
        As for `recommend`.
    n : int, default 10
        How many items to list for each user.
    known : Interactions or None, default None
        Where user ids are looked up; None takes what the model was fitted on.
    hide_seen : bool, default True
        Leave out the items of a user's history.
    only : iterable of ids or None, default None
        The items to choose from; None takes all.
    never : iterable of ids or None, default None
        Items to leave out.

    Returns
    -------
    polars.DataFrame
        The columns user, item, score, rank (from 1), and title where items have titles.

    Examples
    --------
    >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12, shortest_history=10).interactions
    >>> loca.recommendation_table(loca.EASE().fit(data), ["u07", "u11"], n=3)["rank"].to_list()
    [1, 2, 3, 1, 2, 3]
    """
    return recommend(
        model, who, n, known=known, hide_seen=hide_seen, only=only, never=never
    ).to_polars()


class Request:
    """A request for lists, checked, and answered block by block."""

    def __init__(
        self,
        model: Scorer,
        who: Any,
        n: int = 10,
        known: Interactions | None = None,
        hide_seen: bool = True,
        only: Ids = None,
        never: Ids = None,
        candidates: Candidates = None,
        on_unknown: OnUnknown = "error",
        recency: HistoryWeights = "model",
    ) -> None:
        n = check_list_length(n)
        check_scorer(model)
        if not isinstance(hide_seen, bool | np.bool_):
            raise ConfigError(f"hide_seen: expected True or False, found {hide_seen!r:.60}")
        count_items: Callable[[], int] | None = getattr(model, "count_items", None)
        item_count = (
            None if count_items is None else count_items()
        )  # refuses a model that is not fitted
        data: Interactions | None = getattr(model, "train_data_", None)
        if known is not None and data is None:
            data = known
        self.model, self.hide_seen = model, hide_seen
        self.histories = resolve_histories(
            who, data, item_count, on_unknown, users_in=known, recency=recency
        )
        items = self.histories.items
        self.n = min(n, len(items))
        self.only = None if only is None else _item_rows("only", only, items)
        self.never = None if never is None else _item_rows("never", never, items)
        self.candidates = _candidate_rows(candidates, self.histories, data)
        self.popularity: npt.NDArray[np.float32] | None = None
        if on_unknown == "popular" and self.histories.is_empty.any():
            if data is None:
                raise DataError(
                    "on_unknown: a model that was fitted on a bare matrix does not know what is popular"
                )
            counts = np.bincount(data.matrix().indices, minlength=len(items))
            self.popularity = (counts / data.n_users).astype(np.float32)
        self._remark_unanswered()

    def _remark_unanswered(self) -> None:
        """Tell how many users have nothing to answer from, and what they get."""
        count = int(self.histories.is_empty.sum())
        if not count:
            return
        nobody = f"{many(count, 'user')} without a known history"
        if self.popularity is None:
            remark("users-left-out", f"{nobody}: an empty list")
        else:
            remark("popular-instead", f"{nobody}: the list is what is popular")

    def blocks(self) -> Iterator[tuple[npt.NDArray[np.int64], Recommendations]]:
        """The places of some users and their lists, block after block."""
        users, item_count = len(self.histories), len(self.histories.items)
        is_empty, size = self.histories.is_empty, block_rows(item_count)
        undecided = 0
        with bar("recommending", users) as progress:
            for start in range(0, users, size):
                block = np.arange(start, min(start + size, users))
                item_rows = np.full((len(block), self.n), -1, np.int32)
                best = np.full((len(block), self.n), -np.inf, np.float32)
                answered, others = np.flatnonzero(~is_empty[block]), np.flatnonzero(is_empty[block])
                if len(answered):
                    histories = self.histories.matrix(block[answered])
                    hidden = histories if self.hide_seen else None
                    item_rows[answered], best[answered] = self._rank(
                        self.model.score(histories), block[answered], hidden
                    )
                    undecided += self._count_undecided(best[answered])
                if len(others) and self.popularity is not None:
                    scores = np.tile(self.popularity, (len(others), 1))
                    item_rows[others], best[others] = self._rank(scores, block[others], None)
                yield (
                    block,
                    Recommendations(
                        self.histories.users[block], item_rows, best, self.histories.items
                    ),
                )
                progress.advance(len(block))
        if undecided:
            remark("no-preference", f"{many(undecided, 'user')}: {_NO_PREFERENCE}")

    def _count_undecided(self, best: npt.NDArray[np.float32]) -> int:
        """Return for how many users the model prefers none of the items that could be listed."""
        if self.n < 2 or len(self.histories.items) <= self.n:
            return 0
        return int((np.isfinite(best[:, -1]) & (best[:, 0] == best[:, -1])).sum())

    def _rank(
        self, scores: Any, places: npt.NDArray[np.int64], hidden: csr_array | None
    ) -> tuple[ItemRows, npt.NDArray[np.float32]]:
        """The best items of the users at some places; of those who have candidates, the best of these."""
        chosen = {
            row: self.candidates[place]
            for row, place in enumerate(places.tolist())
            if place in self.candidates
        }
        if chosen:
            scores = np.array(scores, dtype=np.float32)
        for row, items in chosen.items():
            is_other = np.ones(scores.shape[1], dtype=bool)
            is_other[items] = False
            scores[row, is_other] = -np.inf
        return rank_top_n(scores, hidden, self.n, only=self.only, never=self.never)


def remark_no_preference(scores: Sequence[float], n_items: int) -> None:
    """Tell where a model prefers none of the items that it lists for one user."""
    if 2 <= len(scores) < n_items and len(set(scores)) == 1:
        remark("no-preference", _NO_PREFERENCE)


def ids_of_one_type(ids: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The ids of a column: text where unknown users are named otherwise than the known ones, else as they are."""
    is_mixed = ids.dtype == object and len({type(one) for one in ids.tolist()}) > 1
    return ids.astype(str).astype(object) if is_mixed else ids


def _item_rows(name: str, ids: Any, items: IdMap) -> npt.NDArray[np.int64]:
    """Return the rows of items that are named in a list; an unknown one is refused, or the filter would not hold."""
    if isinstance(ids, str | int | float):
        listed = [part.strip() for part in ids.split(",")] if isinstance(ids, str) else [ids]
        raise DataError(f"{name}: expected a list of item ids, found {ids!r}; write {listed!r}")
    if hasattr(ids, "columns"):
        raise DataError(f"{name}: expected a list of item ids, found a data frame; give its column")
    try:
        return items.rows(ids)
    except DataError as error:
        raise DataError(f"{name}: {error}") from None


def _candidate_rows(
    candidates: Any, histories: Histories, data: Interactions | None
) -> dict[int, npt.NDArray[np.int64]]:
    """Return the rows of each user's candidates, by the place of the user in the request.

    Candidates of a user whom nobody knows, or of none who is answered, are refused: whoever gave them
    would get lists without a condition.
    """
    if candidates is None:
        return {}
    if not isinstance(candidates, Mapping):
        expected = "a dict of user id to a list of item ids"
        raise DataError(f"candidates: expected {expected}, found {type(candidates).__name__}")
    ids_of = {str(user): ids for user, ids in candidates.items()}
    users = [str(user) for user in histories.users.tolist()]
    answered = set(users)
    unknown = [
        user for user in ids_of if user not in answered and (data is None or user not in data.users)
    ]
    if unknown:
        nearest = did_you_mean(unknown[0], answered)
        raise DataError(f"candidates: unknown user {unknown[0]!r:.60}{nearest}")
    if not answered & ids_of.keys():
        given = (
            f"{many(len(ids_of), 'user')} that they name, such as {next(iter(ids_of), '')!r:.60}"
        )
        raise DataError(f"candidates: none of the {given}, is answered here; leave them out")
    return {
        place: _item_rows(f"candidates of {user}", ids_of[user], histories.items)
        for place, user in enumerate(users)
        if user in ids_of
    }


@keeps_remarks
def similar_items(model: Any, items: Any, n: int = 10) -> Recommendations:
    """Find the items that are most similar to each of some items, by the model's own `similarities`.

    Neither the item itself is listed, nor what is not similar to it: where fewer than n similarities are above 0, the
    last places stay empty.
    """
    n = check_list_length(n)
    if not hasattr(model, "similarities"):
        raise DataError(
            f"similar items: expected a model with a method `similarities`, found {type(model).__name__}; "
            "recommend(model, [[item]]) lists what goes with an item"
        )
    item_count = model.count_items()
    data: Interactions | None = getattr(model, "train_data_", None)
    ids = IdMap.numbered(item_count, "item") if data is None else data.items
    if isinstance(items, str | int | float | np.generic):
        items = [items]
    if not isinstance(items, Iterable):
        found = type(items).__name__
        raise DataError(f"items: expected an item id or a list of item ids, found {found}")
    item_rows = ids.rows(items)
    n = min(n, item_count)
    similar_rows = np.empty((len(item_rows), n), np.int32)
    best = np.empty((len(item_rows), n), np.float32)
    size = block_rows(item_count, arrays=_ARRAYS_OF_SIMILARITIES)
    with bar("similar items", len(item_rows)) as progress:
        for start in range(0, len(item_rows), size):
            block = slice(start, start + size)
            similarities = model.similarities(item_rows[block])  # (block, items)
            similarities[np.arange(len(similarities)), item_rows[block]] = -np.inf
            similarities[~(similarities > 0)] = -np.inf  # those that are not defined too
            similar_rows[block], best[block] = rank_top_n(similarities, None, n)
            progress.advance(len(similarities))
    return Recommendations(ids.values[item_rows], similar_rows, best, ids)
