"""What may be requested, and what a request for a list means to one version of a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from loca.config.options import parse_recency
from loca.data.histories import HistoryWeights
from loca.data.id_map import Id
from loca.errors import DataError, LocaError
from loca.remarks import remark
from loca.serving.model_store import ModelVersion
from loca.serving.problem import Problem
from loca.serving.scorer import ListOptions
from loca.text_table import many

_MOST_NAMED = 3  # unknown items that a note names
_MANY_IDS = 500  # of more, the titles that they may also be are looked up beside the event loop
_SEARCH = "search with GET /v1/search?q="
_FILTERS = ("only", "never", "candidates")

_ItemId = int | float | Annotated[str, Meta(max_length=1000)]
_Title = Annotated[str, Meta(max_length=300)]
_Share = Annotated[float, Meta(ge=0, le=1)]


class ListRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Who wants a list (one of user, items and titles), and what may be in it."""

    user: Annotated[_ItemId | None, Meta(description="The id of a user.")] = None
    items: Annotated[
        list[_ItemId] | None,
        Meta(description="A history: ids of items, oldest first."),
    ] = None
    titles: Annotated[
        Annotated[list[_Title], Meta(max_length=100)] | None,
        Meta(
            description="A history: titles of items, oldest first, with or without their years. "
            "An id is no title."
        ),
    ] = None
    model: Annotated[
        str | None, Meta(description="The name of the model; the first one by default.")
    ] = None
    n: Annotated[int, Meta(ge=1, description="Length of the list.")] = 10
    only: Annotated[
        list[_ItemId] | None,
        Meta(description="Ids of the items to choose from. An unknown one is refused."),
    ] = None
    never: Annotated[
        list[_ItemId] | None,
        Meta(description="Ids of items to leave out. An unknown one is refused."),
    ] = None
    candidates: Annotated[
        list[_ItemId] | None,
        Meta(description="Ids of the items to choose from. An unknown one is refused."),
    ] = None
    recency: Annotated[
        Annotated[str, Meta(max_length=60)] | None,
        Meta(
            description="Half-life of the items of a history: 4 (positions), 30d (time), 5steps "
            "(units of the data's times) or none; the model's own by default."
        ),
    ] = None
    global_share: Annotated[
        _Share | None,
        Meta(description="Replaces the global model's share in the answer of a LOCA model."),
    ] = None
    hide_seen: Annotated[bool, Meta(description="Leave out the items of the history.")] = True
    on_unknown: Annotated[
        Literal["error", "skip", "popular"],
        Meta(
            description="error refuses unknown users, unknown items of a history and empty "
            "histories. skip leaves them out and gives an empty list where nothing is left; "
            "popular gives what is popular then."
        ),
    ] = "error"
    explain: Annotated[bool, Meta(description="Explain the list as well.")] = False


class ExplainRequest(ListRequest, forbid_unknown_fields=True, kw_only=True):
    """Whose list is to be explained, and perhaps one item that is, listed or not."""

    item: Annotated[_ItemId | None, Meta(description="The id of the item to explain.")] = None


class BatchRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Several requests for lists."""

    requests: Annotated[list[ListRequest], Meta(min_length=1, max_length=256)]


@dataclass(frozen=True, eq=False)
class ListQuery:
    """Hold what a request means to the version that answers it.

    Parameters
    ----------
    version : ModelVersion
    options : ListOptions
        What may be in the list; all ids as the model has them.
    user : id or None
        Who wants the list; None for a history.
    history : list of int or None
        The item rows of the history that the request gave, oldest first; None for a user.
    is_empty : bool
        Whether there is nothing to answer from.
    """

    version: ModelVersion
    options: ListOptions
    user: Id | None
    history: list[int] | None
    is_empty: bool

    @property
    def who(self) -> Any:
        """The user's id, or the ids of the history, as the scorer takes them."""
        if self.history is None:
            return self.user
        return [self.version.item_ids[row] for row in self.history]


@dataclass(frozen=True)
class RequestReader:
    """Read requests for lists; caveats are remarks, what is wrong is a `Problem`.

    Parameters
    ----------
    most_items : int
        The longest list.
    most_history : int
        The longest history.
    count_unknown : callable
        Is called with "user", "item" or "title" for everyone that is not known.
    """

    most_items: int
    most_history: int
    count_unknown: Callable[[str], None]

    def read(self, request: ListRequest, version: ModelVersion) -> ListQuery:
        """Return what a request means to a version of a model."""
        asking = (request.user, request.items, request.titles)
        n_asking = sum(way is not None for way in asking)
        if n_asking != 1:
            raise Problem(422, f"expected one of user, items and titles, found {n_asking}")
        if request.n > self.most_items:
            raise Problem(422, f"n: expected at most {self.most_items:,}, found {request.n:,}")
        user, history = None, None
        if request.user is not None:
            user, is_empty = self._user(request, version)
        else:
            history = self._history(request, version)
            is_empty = not history
        only, never, candidates = (self._filter(name, request, version) for name in _FILTERS)
        options = ListOptions(
            _model(request, version),
            is_history=user is None,
            hide_seen=request.hide_seen,
            only=only,
            never=never,
            candidates=candidates,
            on_unknown=request.on_unknown,
            recency=_recency(request.recency),
        )
        return ListQuery(version, options, user, history, is_empty)

    def item_row(self, item_id: Id, version: ModelVersion, where: str = "") -> int:
        """Return the row of an item by its id; `where` begins the refusal of an unknown one."""
        return self._known_rows([item_id], version, where)[0]

    def _known_rows(self, ids: list[Id], version: ModelVersion, where: str) -> list[int]:
        """Return the rows of items by their ids alone; the first unknown one is refused."""
        rows = _item_rows(ids, version)
        known = [row for row in rows if row is not None]
        if len(known) < len(rows):
            unknown = ids[rows.index(None)]
            self.count_unknown("item")
            raise Problem(404, f"{where}unknown item {unknown!r:.100}; expected an id: {_SEARCH}")
        return known

    def _user(self, request: ListRequest, version: ModelVersion) -> tuple[Id, bool]:
        """Return the user's id, the model's own if it has one, and whether it has no history."""
        users = version.known.users
        user_id = request.user
        assert user_id is not None
        row = users.find(user_id)
        if row is None:
            self.count_unknown("user")
            if request.on_unknown == "error":
                advice = f"{_SEARCH}; POST /v1/recommend takes on_unknown: skip or popular"
                raise Problem(404, f"unknown user {user_id!r:.100}; {advice}")
            _remark_empty(f"user {user_id!r:.60} is not known", request)
            return user_id, True
        own_id = users.ids([row])[0]
        if len(version.known.items_of(row)):
            return own_id, False
        if request.on_unknown == "error":
            raise Problem(422, f"user {own_id!r:.60} has no history to answer from")
        _remark_empty(f"user {own_id!r:.60} has no history", request)
        return own_id, True

    def _history(self, request: ListRequest, version: ModelVersion) -> list[int]:
        """Return the item rows of the history; unknown items are refused or left out."""
        field = "items" if request.titles is None else "titles"
        names: list[Any] = getattr(request, field)
        if len(names) > self.most_history:
            most = f"{self.most_history:,}"
            raise Problem(
                422, f"{field}: expected a history of at most {most}, found {len(names):,}"
            )
        if request.titles is None:
            rows = self._history_rows(names, request, version)
        else:
            rows = [self._titled_row(title, request, version) for title in names]
        history = [row for row in rows if row is not None]
        unknown = [name for name, row in zip(names, rows, strict=True) if row is None]
        if unknown:
            _remark_left_out(unknown, "item" if field == "items" else "title")
        if not history and request.on_unknown == "error":
            raise Problem(422, f"{field}: expected at least one item to answer from")
        if not history:
            reason = "the history is empty"
            if names:
                reason = f"none of the {field} of the history is known"
            _remark_empty(reason, request)
        return history

    def _history_rows(
        self, ids: list[Id], request: ListRequest, version: ModelVersion
    ) -> list[int | None]:
        """Return the rows of a history's items by their ids; None for unknown ones, left out."""
        rows = _item_rows(ids, version)
        for item_id, row in zip(ids, rows, strict=True):
            if row is not None:
                continue
            self.count_unknown("item")
            if request.on_unknown == "error":
                ways = f"{_SEARCH}, give titles in titles, or say on_unknown: skip or popular"
                raise Problem(404, f"unknown item {item_id!r:.100}; items are ids: {ways}")
        return rows

    def _titled_row(self, title: str, request: ListRequest, version: ModelVersion) -> int | None:
        """Return the row of a history's item by its title; None for an unknown one, left out."""
        if version.titles is None:
            raise Problem(422, "titles: this model knows no titles; give ids in items")
        try:
            row = version.find_title(title)
        except DataError as error:  # it fits several items
            raise Problem(422, f"titles: {error}; ids go into items") from None
        if row is not None:
            return row
        self.count_unknown("title")
        if request.on_unknown != "error":
            return None
        advice = f"{_SEARCH}, or say on_unknown: skip or popular"
        if title in version.known.items:
            advice = "it is an id, and those go into items"
        raise Problem(404, f"unknown title {title!r:.100}; {advice}")

    def _filter(
        self, name: str, request: ListRequest, version: ModelVersion
    ) -> tuple[Id, ...] | None:
        """Return the ids of a filter; an unknown one is refused, or the filter would not hold."""
        ids: list[Id] | None = getattr(request, name)
        if ids is None:
            return None
        rows = self._known_rows(ids, version, f"{name}: ")
        return tuple(version.item_ids[row] for row in rows)


def takes_long(request: ListRequest) -> bool:
    """Return whether a request is to be read beside the event loop."""
    ids = (request.items, request.only, request.never, request.candidates)
    return request.titles is not None or sum(len(listed or ()) for listed in ids) > _MANY_IDS


def _item_rows(ids: list[Id], version: ModelVersion) -> list[int | None]:
    """Return the row of each id, None for an unknown one; remark that an id is a title too."""
    items = version.known.items
    rows = [items.find(item_id) for item_id in ids]
    has_numbers = items.values.dtype.kind != "O"
    if has_numbers and version.titles is not None:
        for item_id, row in zip(ids, rows, strict=True):
            if row is not None and isinstance(item_id, str):
                items.row(item_id)  # makes the remark
    return rows


def _model(request: ListRequest, version: ModelVersion) -> Any:
    if request.global_share is None:
        return version.model
    if version.with_global_share is None:
        raise Problem(422, "global_share: this model has no communities")
    return version.with_global_share(request.global_share)


def _recency(text: str | None) -> HistoryWeights:
    if text is None:
        return "model"
    try:
        return parse_recency(text)
    except LocaError as error:
        raise Problem(422, str(error)) from None


def _remark_left_out(unknown: list[Id], what: str) -> None:
    """Remark which items of a history were left out."""
    names = ", ".join(f"{name!r:.60}" for name in unknown[:_MOST_NAMED])
    if len(unknown) > _MOST_NAMED:
        names += f" and {len(unknown) - _MOST_NAMED:,} more"
    counted = many(len(unknown), f"unknown {what}")
    remark("items-left-out", f"{counted} of the history left out: {names}")


def _remark_empty(reason: str, request: ListRequest) -> None:
    """Remark what comes back where there is nothing to answer from."""
    if request.on_unknown == "popular":
        remark("popular-instead", f"{reason}: the list is what is popular")
    else:
        remark("users-left-out", f"{reason}: an empty list")
