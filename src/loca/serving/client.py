"""A client of the service: the methods of a model, answered over HTTP."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from loca.data.histories import HistoryWeights, OnUnknown
from loca.data.id_map import Id, IdMap
from loca.data.recency import Recency
from loca.errors import ConfigError, DataError, check_arguments, did_you_mean
from loca.evaluation.explain import Explanation, Rows, Sources
from loca.evaluation.recommend import Candidates, Ids, Recommendations
from loca.evaluation.top_n import check_list_length
from loca.local.explain import (
    AnswersOfCommunities,
    AnswersOfParts,
    CommunityAnswer,
    Locality,
    PartAnswer,
)
from loca.remarks import KINDS, Remark, keeps_remarks, tell_remarks

if TYPE_CHECKING:
    import httpx
else:
    try:
        import httpx
    except ImportError:  # the name is public, with the extra installed or without; making a client says what to install
        httpx = None

# Requests that go together, and their bytes: half of what a service takes by default.
_BATCH, _BATCH_BYTES = 256, 500_000
_TRIES, _LONGEST_WAIT = 4, 10.0
_AGE_UNITS = {"positions": "", "time": "steps", "seconds": "s"}
_NOT_TOLD = ("history-cut",)  # notes on what a reply repeats of a request, which nobody sees here
Document = dict[str, Any]


class Client:
    """Ask a service for lists and explanations, with the methods of a model.

    Lists, explanations and errors are those of a model in this process: the same classes, the same ids and scores.
    What the service notes of a list, such as a user whom it does not know, is a `LocaWarning` here and in the
    `remarks` of the lists. Items are named by id, never by title. A busy service is tried again after the time that it
    names. One client may be used by several threads.

    Parameters
    ----------
    url : str, default "http://127.0.0.1:8000"
        Where `loca serve` listens.
    model : str or None, default None
        The name of the model that answers; None takes the first one of the service.
    token : str or None, default None
        What the service has in its `--token-file`.
    timeout : float, default 30.0
        Seconds to wait for a connection, and for each answer.

    Examples
    --------
    >>> client = loca.Client("http://127.0.0.1:8000", model="films")
    >>> client
    Client('http://127.0.0.1:8000', model='films')
    >>> with client:
    ...     items, scores = client.recommend(["u07", "u11"], n=3)  # doctest: +SKIP
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        model: str | None = None,
        token: str | None = None,
        timeout: float = 30.0,
    ) -> None:
        if httpx is None:
            raise ConfigError("the client needs httpx: pip install 'loca[serve]'")
        if token is not None and not (token.isascii() and token.isprintable()):
            raise ConfigError("token: expected letters, digits and signs of ASCII")
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        self.url, self.model = url, model
        try:
            self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout)
        except (httpx.InvalidURL, TypeError) as error:
            raise ConfigError(
                f"url: expected an address such as http://127.0.0.1:8000, found {url!r} ({error})"
            ) from None

    def __repr__(self) -> str:
        return f"Client({self.url!r}, model={self.model!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    @check_arguments
    @keeps_remarks
    def recommend(
        self,
        who: Any,
        n: int = 10,
        *,
        hide_seen: bool = True,
        only: Ids = None,
        never: Ids = None,
        candidates: Candidates = None,
        on_unknown: OnUnknown = "error",
        recency: HistoryWeights = "model",
    ) -> Recommendations:
        """Find the n best items for each user, as `loca.recommend` does; many users are sent in batches.

        Parameters
        ----------
        who : user id, list of ids, list or dict of histories
            Users that the model knows, by id; or anybody's histories, lists of item ids, oldest first.
        n : int, default 10
            How many items to list for each user.
        hide_seen : bool, default True
            Leave out the items of a user's history.
        only : iterable of ids or None, default None
            The items to choose from; None takes all.
        never : iterable of ids or None, default None
            Items to leave out.
        candidates : dict or None, default None
            The items to choose from for each user id; a user who is not in it may get any. Those of users who are not
            asked for are refused.
        on_unknown : {"error", "skip", "popular"}, default "error"
            What becomes of unknown users, unknown items of a history and empty histories. Unknown items of `only`,
            `never` and `candidates` are refused whatever it says.
        recency : Recency, None or "model", default "model"
            How the items of a history are weighted: by the model's recency, all alike, or so.

        Returns
        -------
        Recommendations
            Users × n; its item rows count the items of these lists alone.
        """
        n = check_list_length(n)
        shared = self._shared(n, recency) | {"hide_seen": hide_seen, "on_unknown": on_unknown}
        for name, ids in (("only", only), ("never", never)):
            if ids is not None:
                shared[name] = _plain_ids(name, ids)
        kind = type(candidates)
        if candidates is not None and not issubclass(kind, Mapping):
            raise DataError(
                f"candidates: expected a dict of user id to a list of item ids, found {kind.__name__}"
            )
        chosen = {
            str(user): _plain_ids(f"candidates of {user}", ids)
            for user, ids in (candidates or {}).items()
        }
        asks = _asks(who)
        _check_asked(chosen, {str(user) for user, _ in asks})
        bodies = [
            {**shared, **one, **({"candidates": chosen[str(user)]} if str(user) in chosen else {})}
            for user, one in asks
        ]
        answers = list(self._batches(bodies))
        _tell_notes(answers)
        lists = [answer["items"] for answer in answers]
        return _as_recommendations([user for user, _ in asks], lists, n)

    @check_arguments
    @keeps_remarks
    def similar_items(self, items: Any, n: int = 10) -> Recommendations:
        """Find the items that are most similar to each of some items, as `Recommender.similar_items` does.

        Parameters
        ----------
        items : item id or list of item ids
            Items that the model knows.
        n : int, default 10
            How many items to list for each.

        Returns
        -------
        Recommendations
            Its `users` are the given items, its scores the similarities. Only similarities above 0 are listed; other
            places stay empty.
        """
        n = check_list_length(n)
        if isinstance(items, str | int | float | np.generic):
            items = [items]
        ids = _plain_ids("items", items)
        answers = [self._get(f"v1/similar/{quote(str(item), safe='')}", n=n) for item in ids]
        _tell_notes(answers)
        return _as_recommendations(ids, [answer["items"] for answer in answers], n)

    @check_arguments
    def explain(
        self, who: Any, item: Id | None = None, n: int = 5, *, recency: HistoryWeights = "model"
    ) -> Explanation:
        """Explain the list for one history: which of its items speak for each listed item, and by how much.

        Parameters
        ----------
        who : user id, list of item ids in a list, or dict
            One history, as in `recommend`.
        item : id or None, default None
            The one item to explain, listed or not; None explains the n best.
        n : int, default 5
            Length of the list, and of the lists of what answers inside the model.
        recency : Recency, None or "model", default "model"
            How the items of the history are weighted, as in `recommend`.

        Returns
        -------
        Explanation
            Prints as text; `to_polars` and `to_pandas` give the contributions.
        """
        asks = _asks(who)
        if len(asks) != 1:
            raise DataError(f"explain: expected one history, found {len(asks)}")
        [(user, body)] = asks
        body |= self._shared(check_list_length(n), recency)
        if item is not None:
            body["item"] = item.item() if isinstance(item, np.generic) else item
        found = self._send("POST", "v1/explain", body)
        _tell_notes([found])
        return _explanation(found if "user" in body else {**found, "user": user})

    def communities(self) -> Document:
        """Return the communities of the model.

        Returns
        -------
        dict
            Their kind, the global share `alpha`, and for each its number, name, members and place on the map.
        """
        return self._get("v1/communities")

    def community(self, number: int, n: int = 10) -> Document:
        """Return what is known of one community.

        Parameters
        ----------
        number : int
            Its number.
        n : int, default 10
            Length of its lists.

        Returns
        -------
        dict
            Its name and members, what they take beyond others, typical users, its list and that of the global model.
        """
        return self._get(f"v1/communities/{number}", n=n)

    def models(self) -> Document:
        """Return what the service has.

        Returns
        -------
        dict
            Its models with their names and fingerprints, the name of the default one, and how requests are answered.
        """
        return self._send("GET", "v1/models")

    def _shared(self, n: int, recency: HistoryWeights) -> Document:
        """What a request says beside who wants the list."""
        body: Document = {"n": n} if self.model is None else {"n": n, "model": self.model}
        return body if recency == "model" else body | {"recency": recency_text(recency)}

    def _batches(self, bodies: Sequence[Document]) -> Iterator[Document]:
        """The answers to requests for lists; those that a full queue refuses are sent again."""
        texts, start = [json.dumps(one) for one in bodies], 0
        while start < len(texts):
            sizes = np.cumsum([len(one) + 1 for one in texts[start : start + _BATCH]])
            end = start + max(1, int((sizes <= _BATCH_BYTES).sum()))
            answers: dict[int, Document] = {}
            for tries_left in range(_TRIES - 1, -1, -1):
                left = [
                    place for place in range(start, end) if "items" not in answers.get(place, {})
                ]
                together = f'{{"requests":[{",".join(texts[place] for place in left)}]}}'
                answers |= zip(
                    left, self._send("POST", "v1/recommend/batch", together)["answers"], strict=True
                )
                problems = [
                    answers[place]["problem"] for place in left if "problem" in answers[place]
                ]
                if not problems:
                    break
                if refused := [one for one in problems if one["status"] != 503 or not tries_left]:
                    raise _error(refused[0]["status"], refused[0]["detail"])
                time.sleep(1)
            yield from (answers[place] for place in range(start, end))
            start = end

    def _get(self, path: str, **query: Any) -> Document:
        return self._send(
            "GET", path, query=query if self.model is None else query | {"model": self.model}
        )

    def _send(self, method: str, path: str, body: Any = None, query: Any = None) -> Document:
        """What the service replies; a busy or a vanished one is tried again, as nothing is changed by asking twice."""
        text = body if body is None or isinstance(body, str) else json.dumps(body)
        headers = {} if text is None else {"content-type": "application/json"}
        for tries_left in range(_TRIES - 1, -1, -1):
            try:
                found = self._http.request(
                    method, path, content=text, params=query, headers=headers
                )
            except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError) as error:
                if tries_left:  # a connection that was idle, and closed meanwhile
                    continue
                raise DataError(
                    f"{self.url}: the service ended before it answered ({error})"
                ) from None
            except httpx.TimeoutException:
                raise DataError(
                    f"{self.url}: no answer within {self._http.timeout.read:g} s"
                ) from None
            except (httpx.RequestError, httpx.InvalidURL) as error:
                advice = "is it running (loca serve), and is this its address?"
                raise DataError(
                    f"{self.url}: no service can be reached ({error}); {advice}"
                ) from None
            if found.status_code not in (429, 503) or not tries_left:
                break
            time.sleep(_wait(found.headers.get("retry-after", "")))
        try:
            document = found.json()
            if found.is_success:
                return {**document}
            detail = document["detail"]
        except (ValueError, KeyError, TypeError):
            raise DataError(
                f"{self.url}: expected a LOCA service, found a reply {found.status_code} of another"
            ) from None
        raise _error(found.status_code, detail)


def recency_text(recency: Recency | None) -> str:
    """Return a recency as `parse_recency` reads it."""
    if recency is None:
        return "none"
    if not isinstance(recency, Recency):
        raise ConfigError(f"recency: expected a Recency, None or 'model', found {recency!r:.60}")
    age = np.format_float_positional(recency.half_life, trim="-")
    return f"{age}{_AGE_UNITS[recency.unit]}:{recency.shape}:{float(recency.floor)!r}"


def _wait(text: str) -> float:
    """The seconds of a Retry-After header; 1 where it is something else."""
    return min(float(text), _LONGEST_WAIT) if text.isascii() and text.isdecimal() else 1.0


def _error(status: int, detail: str) -> DataError | ConfigError:
    """What a refusal is called in this library."""
    if status == 401:
        return ConfigError("the service refuses the token; give token= what its --token-file holds")
    return (ConfigError if status in (400, 405, 421) else DataError)(detail)


# -- What is sent ------------------------------------------------------------------------------------------------------


def _asks(who: Any) -> list[tuple[Id, Document]]:
    """Who asks, by name, and how a request says it."""
    if isinstance(who, str | int | float | np.generic):
        who = [who]
    if not isinstance(who, Mapping):
        if not isinstance(who, list | tuple | np.ndarray):
            expected = "a user id, a list of ids, or a list or dict of histories"
            raise DataError(
                f"who: expected {expected}, found {type(who).__name__}; a service takes no others"
            )
        are_lists = [isinstance(one, list | tuple | np.ndarray) for one in who]
        if not any(are_lists):
            return [(user, {"user": user}) for user in _plain_ids("who", who)]
        if not all(are_lists):
            raise DataError(
                "who: expected user ids or lists of item ids, found both; ask for each kind apart"
            )
        who = dict(enumerate(who))
    return [
        (user, {"items": _plain_ids(f"history of {user!r}", items)}) for user, items in who.items()
    ]


def _check_asked(chosen: Iterable[str], asked: set[str]) -> None:
    """Refuse candidates of users who are not asked for: of a mistyped one the list would have no condition."""
    for user in chosen:
        if user not in asked:
            nearest = did_you_mean(user, asked)
            raise DataError(f"candidates: user {user!r:.60} is not asked for here{nearest}")


def _plain_ids(name: str, ids: Iterable[Any]) -> list[Id]:
    """Ids as JSON has them."""
    if isinstance(ids, str | int | float):
        raise DataError(f"{name}: expected a list of item ids, found {ids!r}; write [{ids!r}]")
    plain = [one.item() if isinstance(one, np.generic) else one for one in ids]
    for one in plain:
        if not isinstance(one, str | int | float):
            raise DataError(f"{name}: expected text or numbers, found {type(one).__name__}")
    return plain


# -- What comes back ---------------------------------------------------------------------------------------------------


def _tell_notes(answers: Sequence[Document]) -> None:
    """Tell the notes of some replies, one remark of each kind."""
    texts: dict[str, dict[str, None]] = {}
    for answer in answers:
        for note in answer.get("notes", []):
            texts.setdefault(note["kind"], {})[note["text"]] = None
    tell_remarks(_joined(kind, list(texts[kind])) for kind in texts if kind not in _NOT_TOLD)


def _joined(kind: str, texts: list[str]) -> Remark:
    """Return what was said of a kind as one remark; a kind of a newer service is called by its name."""
    text = texts[0] if len(texts) == 1 else f"{texts[0]}; and {len(texts) - 1:,} more such notes"
    return Remark(kind, text) if kind in KINDS else Remark("service", f"{kind}: {text}")


def _id_array(ids: Iterable[Any]) -> npt.NDArray[Any]:
    """Ids as an array of numbers, or of text as it is."""
    listed = list(ids)
    return np.array(listed, dtype=object if any(isinstance(one, str) for one in listed) else None)


def _as_recommendations(
    users: Sequence[Id], lists: Sequence[Sequence[Document]], n: int
) -> Recommendations:
    """The lists of a reply, one for each user, as arrays of n places."""
    names = _names(lists)
    rows = np.full((len(lists), n), -1, np.int32)
    scores = np.full((len(lists), n), -np.inf, np.float32)
    for place, listed in enumerate(lists):
        rows[place, : len(listed)] = names.rows(one["item"] for one in listed)
        scores[place, : len(listed)] = [one["score"] for one in listed]
    return Recommendations(_id_array(users), rows, scores, names)


def _names(document: Any) -> IdMap:
    """The items that a reply names anywhere, with their titles if they have some."""
    title_of: dict[Id, str | None] = {}
    waiting = [document]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            if "item" in one:
                title_of[one["item"]] = one.get("title")
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
    ids = _id_array(title_of) if title_of else np.empty(0, np.int64)
    titles = list(title_of.values())
    return IdMap(
        ids, "item", None if None in titles or not titles else np.array(titles, dtype=object)
    )


def _figures(listed: Sequence[Document], name: str) -> npt.NDArray[np.float32]:
    return np.array([one[name] for one in listed], dtype=np.float32)


def _explanation(document: Document) -> Explanation:
    """An explanation from its JSON document."""
    names = _names(document)

    def rows(listed: Sequence[Document], least: int = 0) -> Rows:
        found = names.rows(one["item"] for one in listed).astype(np.int32)
        return np.pad(found, (0, max(least - len(found), 0)), constant_values=-1)

    def sources(inside: Document) -> Sources | None:
        if "parts" in inside:
            return AnswersOfParts(rows(items), tuple(map(part, inside["parts"])))
        if "communities" not in inside:
            return None
        whole, locality = inside["global"], inside["locality"]
        return AnswersOfCommunities(
            tuple(map(community, inside["communities"])),
            whole["weight"],
            rows(whole["items"]),
            _figures(whole["items"], "score"),
            locality=None if locality is None else Locality(**locality),
        )

    def part(one: Document) -> PartAnswer:
        adds, own = one["adds"], one["items"]
        return PartAnswer(
            one["part"],
            one["weight"],
            rows(own),
            _figures(own, "score"),
            _figures(adds, "contribution"),
            _figures(adds, "share"),
            np.array([added["rank"] for added in adds], dtype=np.int64),
            sources(one.get("inside", {})),
        )

    def community(one: Document) -> CommunityAnswer:
        own, known_for = one["items"], one["known_for"]
        return CommunityAnswer(
            one["community"],
            one["anchor"],
            one["weight"],
            one["members"],
            rows(own, len(known_for)),
            _figures(own, "score"),
            rows(known_for),
            _figures(known_for, "lift"),
            one.get("membership"),
            one.get("mixture"),
            rows(one["raises"]) if "raises" in one else None,
            tuple(one["name"].split(", ")) if one.get("name") else (),
        )

    items, history = document["items"], rows(document["history"])
    place_of = {row: place for place, row in enumerate(history.tolist())}
    contributions = np.zeros((len(items), len(history)), np.float32)
    for place, one in enumerate(items):
        for row, contribution in zip(
            rows(one["because"]), _figures(one["because"], "contribution"), strict=True
        ):
            contributions[place, place_of[int(row)]] = contribution
    return Explanation(
        user=document["user"],
        names=names,
        history=history,
        items=rows(items),
        scores=_figures(items, "score"),
        ranks=np.array([one["rank"] for one in items], dtype=np.int64),
        contributions=contributions,
        everyone=np.array(
            [one.get("everyone", {}).get("contribution", 0) for one in items], dtype=np.float32
        ),
        is_exact=document["is_exact"],
        ordered=True,
        sources=sources(document),
    )
