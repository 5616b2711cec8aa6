"""A client of the service: the methods of a model, answered over HTTP."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from loca.local.community_description import Locality
from loca.local.explain import (
    AnswersOfCommunities,
    AnswersOfParts,
    CommunityAnswer,
    PartAnswer,
)
from loca.remarks import KINDS, Remark, keeps_remarks, tell_remarks
from loca.typing import FloatArray

if TYPE_CHECKING:
    import httpx
else:
    try:
        import httpx
    except ImportError:
        # The name is public, with the extra or without; making a client says what to install.
        httpx = None

# Requests that go together, and their bytes: half of what a service takes by default.
_BATCH = 256
_BATCH_BYTES = 500_000
_TRIES = 4
_LONGEST_WAIT = 10.0
_AGE_UNITS = {"positions": "", "time": "steps", "seconds": "s"}
_NOT_TOLD = ("history-cut",)  # notes on what a reply repeats of a request, which nobody sees here
Document = dict[str, Any]


class Client:
    """Ask a service for lists and explanations, with the methods of a model.

    Lists, explanations and errors are those of a model in this process: the same classes, the same
    ids and scores. What the service notes of a list, such as a user whom it does not know, is a
    `LocaWarning` here and in the `remarks` of the lists. Items are named by id, never by title. A
    busy service is tried again after the time that it names. One client may be used by several
    threads.

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
        self.url = url
        self.model = model
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
        """Find the n best items for each user, as `loca.recommend` does.

        Many users are sent in batches.

        Parameters
        ----------
        who : user id, list of ids, list or dict of histories
            Users that the model knows, by id; or anybody's histories, lists of item ids, oldest
            first.
        n : int, default 10
            How many items to list for each user.
        hide_seen : bool, default True
            Leave out the items of a user's history.
        only : iterable of ids or None, default None
            The items to choose from; None takes all.
        never : iterable of ids or None, default None
            Items to leave out.
        candidates : dict or None, default None
            The items to choose from for each user id; a user who is not in it may get any. Those of
            users who are not asked for are refused.
        on_unknown : {"error", "skip", "popular"}, default "error"
            What becomes of unknown users, unknown items of a history and empty histories. Unknown
            items of `only`, `never` and `candidates` are refused whatever it says.
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
        candidate_ids = _candidate_ids(candidates)
        questions = _questions(who)
        users = [user for user, _ in questions]
        _check_candidates(candidate_ids, {str(user) for user in users})
        bodies = []
        for user, question in questions:
            body = {**shared, **question}
            if str(user) in candidate_ids:
                body["candidates"] = candidate_ids[str(user)]
            bodies.append(body)
        answers = list(self._batches(bodies))
        _tell_notes(answers)
        return _as_recommendations(users, [answer["items"] for answer in answers], n)

    @check_arguments
    @keeps_remarks
    def similar_items(self, items: Any, n: int = 10) -> Recommendations:
        """Find the items that are most similar to each of some items.

        Parameters
        ----------
        items : item id or list of item ids
            Items that the model knows.
        n : int, default 10
            How many items to list for each.

        Returns
        -------
        Recommendations
            Its `users` are the given items, its scores the similarities, as of
            `Recommender.similar_items`. Only similarities above 0 are listed; other places stay
            empty.
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
        """Explain the list for one history: which of its items speak for each listed item.

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
        questions = _questions(who)
        if len(questions) != 1:
            raise DataError(f"explain: expected one history, found {len(questions)}")
        [(user, question)] = questions
        body = {**question, **self._shared(check_list_length(n), recency)}
        if item is not None:
            body["item"] = item.item() if isinstance(item, np.generic) else item
        answer = self._send("POST", "v1/explain", body)
        _tell_notes([answer])
        return _explanation(answer if "user" in question else {**answer, "user": user})

    def communities(self) -> Document:
        """Return the communities of the model.

        Returns
        -------
        dict
            Their kind, the global share `alpha`, and for each its number, name, members and place
            on the map.
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
            Its name and members, what they take beyond others, typical users, its list and that of
            the global model.
        """
        return self._get(f"v1/communities/{number}", n=n)

    def models(self) -> Document:
        """Return what the service has.

        Returns
        -------
        dict
            Its models with their names and fingerprints, the name of the default one, and how
            requests are answered.
        """
        return self._send("GET", "v1/models")

    def _shared(self, n: int, recency: HistoryWeights) -> Document:
        """Return what a request says beside who wants the list."""
        body: Document = {"n": n}
        if self.model is not None:
            body["model"] = self.model
        if recency != "model":
            body["recency"] = recency_text(recency)
        return body

    def _batches(self, bodies: Sequence[Document]) -> Iterator[Document]:
        """Yield the answers to requests for lists, which are sent in batches."""
        texts = [json.dumps(body) for body in bodies]
        start = 0
        while start < len(texts):
            sizes = np.cumsum([len(text) + 1 for text in texts[start : start + _BATCH]])
            end = start + max(1, int((sizes <= _BATCH_BYTES).sum()))
            yield from self._answers(texts[start:end])
            start = end

    def _answers(self, texts: Sequence[str]) -> list[Document]:
        """Return the answers to a batch; requests that a full queue refuses are sent again."""
        answers: dict[int, Document] = {}
        for tries_left in reversed(range(_TRIES)):
            waiting = [k for k in range(len(texts)) if k not in answers]
            together = f'{{"requests":[{",".join(texts[k] for k in waiting)}]}}'
            replies = self._send("POST", "v1/recommend/batch", together)["answers"]
            for k, reply in zip(waiting, replies, strict=True):
                if "problem" not in reply:
                    answers[k] = reply
                elif reply["problem"]["status"] != 503 or not tries_left:
                    raise _error(reply["problem"]["status"], reply["problem"]["detail"])
            if len(answers) == len(texts):
                break
            time.sleep(1)
        return [answers[k] for k in range(len(texts))]

    def _get(self, path: str, **query: Any) -> Document:
        if self.model is not None:
            query["model"] = self.model
        return self._send("GET", path, query=query)

    def _send(self, method: str, path: str, body: Any = None, query: Any = None) -> Document:
        """Return what the service replies.

        A busy or a vanished service is tried again, as nothing is changed by asking twice.
        """
        text = body if body is None or isinstance(body, str) else json.dumps(body)
        for tries_left in reversed(range(_TRIES)):
            reply = self._reply(method, path, text, query)
            if reply is None:  # a connection that was idle, and closed meanwhile
                continue
            if reply.status_code not in (429, 503) or not tries_left:
                return self._document(reply)
            time.sleep(_wait(reply.headers.get("retry-after", "")))
        raise DataError(f"{self.url}: the service ended before it answered")

    def _reply(self, method: str, path: str, text: str | None, query: Any) -> httpx.Response | None:
        """Return one reply; None where the connection ended before it came."""
        headers = {} if text is None else {"content-type": "application/json"}
        try:
            return self._http.request(method, path, content=text, params=query, headers=headers)
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
            return None
        except httpx.TimeoutException:
            seconds = f"{self._http.timeout.read:g}"
            raise DataError(f"{self.url}: no answer within {seconds} s") from None
        except (httpx.RequestError, httpx.InvalidURL) as error:
            advice = "is it running (loca serve), and is this its address?"
            raise DataError(f"{self.url}: no service can be reached ({error}); {advice}") from None

    def _document(self, reply: httpx.Response) -> Document:
        """Return what a reply says; a refusal is the error of this library."""
        try:
            document = reply.json()
            if reply.is_success:
                return {**document}
            detail = document["detail"]
        except (ValueError, KeyError, TypeError):
            raise DataError(
                f"{self.url}: expected a LOCA service, found a reply {reply.status_code} of another"
            ) from None
        raise _error(reply.status_code, detail)


def recency_text(recency: Recency | None) -> str:
    """Return a recency as `parse_recency` reads it."""
    if recency is None:
        return "none"
    if not isinstance(recency, Recency):
        raise ConfigError(f"recency: expected a Recency, None or 'model', found {recency!r:.60}")
    age = np.format_float_positional(recency.half_life, trim="-")
    return f"{age}{_AGE_UNITS[recency.unit]}:{recency.shape}:{float(recency.floor)!r}"


def _wait(text: str) -> float:
    """Return the seconds of a Retry-After header; 1 where it is something else."""
    is_number = text.isascii() and text.isdecimal()
    return min(float(text), _LONGEST_WAIT) if is_number else 1.0


def _error(status: int, detail: str) -> DataError | ConfigError:
    """Return the error that a refusal is in this library."""
    if status == 401:
        return ConfigError("the service refuses the token; give token= what its --token-file holds")
    return ConfigError(detail) if status in (400, 405, 421) else DataError(detail)


# -- What is sent ---------------------------------------------------------------------------------


def _questions(who: Any) -> list[tuple[Id, Document]]:
    """Return who asks, by name, and how a request says it."""
    if isinstance(who, str | int | float | np.generic):
        who = [who]
    if isinstance(who, Mapping):
        return _questions_of_histories(who)
    if not isinstance(who, list | tuple | np.ndarray):
        expected = "a user id, a list of ids, or a list or dict of histories"
        raise DataError(
            f"who: expected {expected}, found {type(who).__name__}; a service takes no others"
        )
    are_lists = [isinstance(user, list | tuple | np.ndarray) for user in who]
    if not any(are_lists):
        return [(user, {"user": user}) for user in _plain_ids("who", who)]
    if not all(are_lists):
        raise DataError(
            "who: expected user ids or lists of item ids, found both; ask for each kind apart"
        )
    return _questions_of_histories(dict(enumerate(who)))


def _questions_of_histories(histories: Mapping[Any, Any]) -> list[tuple[Id, Document]]:
    return [
        (name, {"items": _plain_ids(f"history of {name!r}", items)})
        for name, items in histories.items()
    ]


def _candidate_ids(candidates: Any) -> dict[str, list[Id]]:
    """Return the candidates of each user, by the id as text."""
    if candidates is None:
        return {}
    if not isinstance(candidates, Mapping):
        name = type(candidates).__name__
        raise DataError(
            f"candidates: expected a dict of user id to a list of item ids, found {name}"
        )
    return {str(user): _plain_ids(f"candidates of {user}", ids) for user, ids in candidates.items()}


def _check_candidates(users: Iterable[str], asked: set[str]) -> None:
    """Refuse candidates of users who are not asked for.

    Of a mistyped user the list would have no condition.
    """
    for user in users:
        if user not in asked:
            nearest = did_you_mean(user, asked)
            raise DataError(f"candidates: user {user!r:.60} is not asked for here{nearest}")


def _plain_ids(name: str, ids: Iterable[Any]) -> list[Id]:
    """Return ids as JSON has them."""
    if isinstance(ids, str | int | float):
        raise DataError(f"{name}: expected a list of item ids, found {ids!r}; write [{ids!r}]")
    plain = [value.item() if isinstance(value, np.generic) else value for value in ids]
    for value in plain:
        if not isinstance(value, str | int | float):
            raise DataError(f"{name}: expected text or numbers, found {type(value).__name__}")
    return plain


# -- What comes back ------------------------------------------------------------------------------


def _tell_notes(answers: Sequence[Document]) -> None:
    """Tell the notes of some replies, one remark of each kind."""
    texts: dict[str, dict[str, None]] = {}
    for answer in answers:
        for note in answer.get("notes", []):
            texts.setdefault(note["kind"], {})[note["text"]] = None
    tell_remarks(_joined(kind, list(texts[kind])) for kind in texts if kind not in _NOT_TOLD)


def _joined(kind: str, texts: list[str]) -> Remark:
    """Return what was said of a kind as one remark; a kind of a newer service keeps its name."""
    text = texts[0]
    if len(texts) > 1:
        text += f"; and {len(texts) - 1:,} more such notes"
    return Remark(kind, text) if kind in KINDS else Remark("service", f"{kind}: {text}")


def _id_array(ids: Iterable[Any]) -> npt.NDArray[Any]:
    """Return ids as an array of numbers, or of text as it is."""
    listed = list(ids)
    has_text = any(isinstance(value, str) for value in listed)
    return np.array(listed, dtype=object if has_text else None)


def _as_recommendations(
    users: Sequence[Id], lists: Sequence[Sequence[Document]], n: int
) -> Recommendations:
    """Return the lists of a reply, one for each user, as arrays with n columns."""
    names = _names(lists)
    rows = np.full((len(lists), n), -1, np.int32)
    scores = np.full((len(lists), n), -np.inf, np.float32)
    for number, listed in enumerate(lists):
        rows[number, : len(listed)] = names.rows(item["item"] for item in listed)
        scores[number, : len(listed)] = [item["score"] for item in listed]
    return Recommendations(_id_array(users), rows, scores, names)


def _names(document: Any) -> IdMap:
    """Return the items that a reply names anywhere, with their titles if they have some."""
    title_of: dict[Id, str | None] = {}
    waiting = [document]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if "item" in value:
                title_of[value["item"]] = value.get("title")
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    if not title_of:
        return IdMap(np.empty(0, np.int64), "item")
    titles = list(title_of.values())
    labels = None if None in titles else np.array(titles, dtype=object)
    return IdMap(_id_array(title_of), "item", labels)


def _figures(listed: Sequence[Document], name: str) -> FloatArray:
    return np.array([item[name] for item in listed], dtype=np.float32)


def _explanation(document: Document) -> Explanation:
    """Return an explanation from its JSON document."""
    reader = _ExplanationReader(_names(document), document["items"])
    listed = document["items"]
    history = reader.rows(document["history"])
    return Explanation(
        user=document["user"],
        names=reader.names,
        history=history,
        items=reader.rows(listed),
        scores=_figures(listed, "score"),
        ranks=np.array([item["rank"] for item in listed], dtype=np.int64),
        contributions=reader.contributions(history),
        everyone=np.array(
            [item.get("everyone", {}).get("contribution", 0) for item in listed], dtype=np.float32
        ),
        is_exact=document["is_exact"],
        ordered=True,
        sources=reader.sources(document),
    )


@dataclass(frozen=True)
class _ExplanationReader:
    """Reads the parts of an explanation's document; `listed` are the items that it explains."""

    names: IdMap
    listed: Sequence[Document]

    def rows(self, items: Sequence[Document], least: int = 0) -> Rows:
        """Return the rows of items, filled up with −1 to a least length."""
        rows = self.names.rows(item["item"] for item in items).astype(np.int32)
        return np.pad(rows, (0, max(least - len(rows), 0)), constant_values=-1)

    def contributions(self, history: Rows) -> FloatArray:
        """Return what each item of the history contributes to each listed item."""
        column_of = {row: column for column, row in enumerate(history.tolist())}
        contributions = np.zeros((len(self.listed), len(history)), np.float32)
        for number, item in enumerate(self.listed):
            columns = [column_of[row] for row in self.rows(item["because"]).tolist()]
            contributions[number, columns] = _figures(item["because"], "contribution")
        return contributions

    def sources(self, inside: Document) -> Sources | None:
        """Return what answers inside a model, where anything does."""
        if "parts" in inside:
            return AnswersOfParts(self.rows(self.listed), tuple(map(self._part, inside["parts"])))
        if "communities" not in inside:
            return None
        global_model = inside["global"]
        locality = inside["locality"]
        return AnswersOfCommunities(
            tuple(map(self._community, inside["communities"])),
            global_model["weight"],
            self.rows(global_model["items"]),
            _figures(global_model["items"], "score"),
            locality=None if locality is None else Locality(**locality),
        )

    def _part(self, part: Document) -> PartAnswer:
        added = part["adds"]
        return PartAnswer(
            part["part"],
            part["weight"],
            self.rows(part["items"]),
            _figures(part["items"], "score"),
            _figures(added, "contribution"),
            _figures(added, "share"),
            np.array([item["rank"] for item in added], dtype=np.int64),
            self.sources(part.get("inside", {})),
        )

    def _community(self, community: Document) -> CommunityAnswer:
        items = community["items"]
        known_for = community["known_for"]
        name = community.get("name")
        return CommunityAnswer(
            community["community"],
            community["anchor"],
            community["weight"],
            community["members"],
            self.rows(items, len(known_for)),
            _figures(items, "score"),
            self.rows(known_for),
            _figures(known_for, "lift"),
            community.get("membership"),
            community.get("mixture"),
            self.rows(community["raises"]) if "raises" in community else None,
            tuple(name.split(", ")) if name else (),
        )
