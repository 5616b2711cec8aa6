"""The service as an ASGI application: what may be requested, who may, and how every end becomes a reply."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import logging
import os
import sys
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, MutableMapping
from contextlib import asynccontextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

import loca
from loca.config.options import parse_recency
from loca.data.id_map import Id, IdMap
from loca.errors import DataError, LocaError
from loca.evaluation.explain import explain
from loca.evaluation.recommend import Recommendations
from loca.serving import explorer
from loca.serving.api_page import openapi_document, render_page
from loca.serving.model_store import ModelStore, ModelVersion
from loca.serving.scorer import ListOptions, QueueFullError, Scorer

PAGE = Path(__file__).parent / "page"
_PAGE_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript",
    ".css": "text/css",
    ".txt": "text/plain",
}
_SAFE_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        b"font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
]
_OPEN = ("/health/live", "/health/ready", "/", "/docs", "/openapi.json")
_MOST_CLIENTS = 10_000
_LATENCIES = 1000
_MOST_EXPLAINED = 16
_TITLES = {
    400: "Bad request",
    401: "Not authorised",
    404: "Not found",
    405: "Method not allowed",
    408: "Request timeout",
    413: "Body too large",
    421: "Misdirected request",
    422: "Cannot be answered",
    429: "Too many requests",
    500: "Internal error",
    503: "Busy",
}
log = logging.getLogger("loca.service")


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of a service, but for its address; they travel to its workers as JSON."""

    folders: dict[str, str]
    token: str | None = None
    local_only: bool = True  # only requests to this machine's own names are answered
    batch: int = 64
    queue: int = 1024
    most_items: int = 1000  # in a list
    most_history: int = 10_000
    most_reasons: int = 100_000  # in an explanation: each item of a history for each that is listed
    body_bytes: int = 1_000_000
    body_seconds: float = 10.0
    rate: float = 0.0  # requests per second and client; 0 has no limit
    reload_seconds: float = 2.0
    log_requests: bool = True


# -- What may be requested ---------------------------------------------------------------------------------------------

_Id = int | float | Annotated[str, msgspec.Meta(max_length=1000)]
_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class ListRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Who wants a list (a user, a history of items, or one of titles, oldest first), and what may be in it."""

    user: _Id | None = None
    items: list[_Id] | None = None
    titles: (
        Annotated[list[Annotated[str, msgspec.Meta(max_length=300)]], msgspec.Meta(max_length=100)]
        | None
    ) = None
    model: str | None = None
    n: Annotated[int, msgspec.Meta(ge=1)] = 10
    only: list[_Id] | None = None
    never: list[_Id] | None = None
    candidates: list[_Id] | None = None
    recency: Annotated[str, msgspec.Meta(max_length=60)] | None = None
    global_share: _Share | None = None
    hide_seen: bool = True
    on_unknown: Literal["error", "skip", "popular"] = "error"
    explain: bool = False


class ExplainRequest(ListRequest, forbid_unknown_fields=True, kw_only=True):
    """The same, and perhaps one item that is to be explained, listed or not."""

    item: _Id | None = None


class BatchRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Several requests for lists."""

    requests: Annotated[list[ListRequest], msgspec.Meta(min_length=1, max_length=256)]


class ListedItem(msgspec.Struct, omit_defaults=True):
    """An item of a list."""

    item: Id
    score: float
    rank: int
    title: str | None = None


class Problem(Exception):
    """A request that is refused: a status and what is wrong."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        self.status, self.detail, self.headers = status, detail, dict(headers or {})

    def document(self) -> dict[str, Any]:
        """As RFC 9457 has it."""
        title = _TITLES.get(self.status, "Error")
        return {"type": "about:blank", "title": title, "status": self.status, "detail": self.detail}

    def response(self) -> Response:
        """The reply."""
        body = msgspec.json.encode(self.document())
        return Response(body, self.status, self.headers, "application/problem+json")


def _plain(value: Any) -> Any:
    """Numbers of numpy as JSON has them."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not JSON")


_encoder = msgspec.json.Encoder(enc_hook=_plain)
_decode_list = msgspec.json.Decoder(ListRequest).decode
_decode_explain = msgspec.json.Decoder(ExplainRequest).decode
_decode_batch = msgspec.json.Decoder(BatchRequest).decode


def reply(document: Any) -> Response:
    """A reply as JSON."""
    return Response(_encoder.encode(document), media_type="application/json")


# -- The service -------------------------------------------------------------------------------------------------------


class Service:
    """Answers requests by the models of a store; `app` is what a server runs."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.store = ModelStore({name: Path(folder) for name, folder in settings.folders.items()})
        self.metrics = Metrics()
        self.scorer = Scorer(settings.batch, settings.queue, self._note_batch)
        self.latencies: deque[float] = deque(maxlen=_LATENCIES)
        self.requests = 0
        self.is_ready = False
        self._noted: set[tuple[str, str]] = set()
        routes: list[Route] = []
        self.templates: dict[Any, str] = {}
        self.answers: dict[Any, Callable[[Request], Awaitable[Response]]] = {}
        for method, path, endpoint in self._endpoints():
            answer = _answering(endpoint)
            routes.append(Route(path, answer, methods=[method]))
            self.templates[answer], self.answers[endpoint] = path.replace(":path", ""), answer
        self.inner = Starlette(
            routes=routes, exception_handlers={HTTPException: _on_http}, lifespan=self._lifespan
        )
        self.inner.router.redirect_slashes = False
        self.app = Gate(self)

    def _endpoints(self) -> Iterator[tuple[str, str, Any]]:
        yield "POST", "/v1/recommend", self.recommend
        yield "GET", "/v1/recommend/{user:path}", self.recommend_user
        yield "POST", "/v1/recommend/batch", self.recommend_batch
        yield "POST", "/v1/explain", self.explain
        yield "GET", "/v1/similar/{item:path}", self.similar
        yield "GET", "/v1/communities", self.communities
        yield "GET", "/v1/communities/{number}", self.community
        yield "GET", "/v1/models", self.models
        yield "GET", "/v1/map", self.map
        yield "GET", "/v1/search", self.search
        yield "GET", "/v1/users/{row}", self.user
        yield "GET", "/health/live", self.live
        yield "GET", "/health/ready", self.ready
        yield "GET", "/metrics", self.prometheus
        yield "GET", "/openapi.json", self.openapi
        yield "GET", "/docs", self.docs
        yield "GET", "/", self.page
        yield "GET", "/explorer/{name}", self.page

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        # The scorer gives the interpreter back for every product; with the usual interval it would wait long to go on.
        sys.setswitchinterval(0.00002)
        if not self.store.versions:
            await asyncio.to_thread(self.store.load)
        self._mapping = asyncio.Lock()
        self.scorer.start()
        self._note_models()
        watching = asyncio.create_task(self._watch())
        self.is_ready = True
        yield
        self.is_ready = False
        watching.cancel()
        await asyncio.to_thread(self.scorer.stop)

    async def _watch(self) -> None:
        """Look for new versions of the models."""
        while True:
            await asyncio.sleep(self.settings.reload_seconds)
            try:
                found = await asyncio.to_thread(self.store.reload)
            except Exception:  # such as a disk that is gone for a moment
                log.exception("looking for new versions failed")
                continue
            for name, went_well in found.items():
                self.metrics.reloads.labels(name, "loaded" if went_well else "refused").inc()
                detail = {} if went_well else {"error": self.store.errors[name]}
                say(
                    event="reload",
                    model=name,
                    fingerprint=self.store.versions[name].fingerprint,
                    **detail,
                )
            if found:
                self._note_models()

    def _note_models(self) -> None:
        serving = {(one.name, one.fingerprint) for one in self.store.versions.values()}
        for one in self._noted - serving:
            self.metrics.forget_model(*one)
        for one in serving:
            self.metrics.models.labels(*one).set(1)
        self._noted = serving

    def _note_batch(self, size: int) -> None:
        self.metrics.batch_sizes.observe(size)
        self.metrics.queue.set(len(self.scorer))

    # Lists

    async def recommend(self, request: Request) -> Response:
        """The best items for a user or a history."""
        return reply(await self._list(decode(_decode_list, await self._body(request))))

    async def recommend_user(self, request: Request) -> Response:
        """The best items for a user that the model knows."""
        given = self._query(request, "n", "model", "recency")
        n = self._length(whole(given, "n", 10))
        wanted = ListRequest(user=request.path_params["user"], n=n, **_words(given))
        return reply(await self._list(wanted))

    async def recommend_batch(self, request: Request) -> Response:
        """Lists for several requests, each with its own end."""
        wanted = decode(_decode_batch, await self._body(request)).requests
        if sum(one.explain for one in wanted) > _MOST_EXPLAINED:
            raise Problem(
                422, f"explain: expected for at most {_MOST_EXPLAINED} requests of a batch"
            )
        answers = await asyncio.gather(*(self._list(one) for one in wanted), return_exceptions=True)
        return reply(
            {"answers": [one if isinstance(one, dict) else _problem_of(one) for one in answers]}
        )

    async def _list(self, wanted: ListRequest) -> dict[str, Any]:
        version, options, who = await self._resolve(wanted)
        found, place = await self.scorer.find_list(options, who, wanted.n)
        listed = list_items(version, found, place, wanted.n)
        user = wanted.user if wanted.user is None else found.users[place]
        answer: dict[str, Any] = {**version.about(), "user": user, "items": listed}
        if wanted.explain:
            answer["explanation"] = await self._why(version, options, who, None, wanted.n)
        return answer

    async def _resolve(self, wanted: ListRequest) -> tuple[ModelVersion, ListOptions, Any]:
        """Which version answers whom, and how; what is unknown or too much is refused before it waits."""
        version = self._version(wanted.model)
        given = [one for one in (wanted.user, wanted.items, wanted.titles) if one is not None]
        if len(given) != 1:
            raise Problem(
                422, f"who asks? expected one of user, items and titles, found {len(given)}"
            )
        if wanted.n > self.settings.most_items:
            raise Problem(
                422, f"n: expected at most {self.settings.most_items:,}, found {wanted.n:,}"
            )
        known, strict = version.known, wanted.on_unknown == "error"
        if wanted.user is not None:
            if strict:
                self._check_known(known.users, [wanted.user])
            who: Any = wanted.user
        else:
            who = wanted.items
            if (
                wanted.titles is not None
            ):  # a title that is not one as it stands is looked for in all
                who = await asyncio.to_thread(self._from_titles, version, wanted.titles, strict)
            if len(who) > self.settings.most_history:
                most = f"{self.settings.most_history:,}"
                raise Problem(
                    422, f"items: expected a history of at most {most}, found {len(who):,}"
                )
            if not who and strict:
                raise Problem(422, "items: expected at least one item to answer from")
            if strict:
                self._check_known(known.items, who)
        for name in ("only", "never", "candidates"):
            if strict and (ids := getattr(wanted, name)) is not None:
                self._check_known(known.items, ids, f"{name}: ")
        chosen = {
            name: None if (ids := getattr(wanted, name)) is None else tuple(ids)
            for name in ("only", "never", "candidates")
        }
        model: Any = version.model
        if wanted.global_share is not None:
            if version.with_global_share is None:
                raise Problem(422, "global_share: this model has no communities")
            model = version.with_global_share(wanted.global_share)
        recency: Any = "model"
        if wanted.recency is not None:
            try:
                recency = parse_recency(wanted.recency)
            except LocaError as error:
                raise Problem(422, str(error)) from None
        options = ListOptions(
            model,
            wanted.user is None,
            hide_seen=wanted.hide_seen,
            on_unknown=wanted.on_unknown,
            recency=recency,
            **chosen,
        )
        return version, options, who

    def _version(self, name: str | None) -> ModelVersion:
        try:
            return self.store.find(name)
        except KeyError as error:
            raise Problem(404, error.args[0]) from None

    def _check_known(self, ids: IdMap, wanted: list[Any], where: str = "") -> None:
        """Refuse ids that are unknown; looking for close ones would take too long here."""
        for one in wanted:
            if one not in ids:
                self.metrics.unknown.labels(ids.what).inc()
                advice = "search with GET /v1/search?q=, or say on_unknown: skip or popular"
                raise Problem(404, f"{where}unknown {ids.what} {one!r:.100}; {advice}")

    def _from_titles(self, version: ModelVersion, titles: list[str], strict: bool) -> list[Id]:
        found = []
        for title in titles:
            try:
                found.append(version.find_title(title))
            except DataError as error:
                is_unknown = str(error).startswith("unknown")
                self.metrics.unknown.labels("title").inc(is_unknown)
                if strict or not is_unknown:
                    raise Problem(404 if is_unknown else 422, str(error)) from None
        return found

    async def similar(self, request: Request) -> Response:
        """The items that are most similar to one item."""
        given = self._query(request, "n", "model")
        version, n = self._version(given.get("model")), self._length(whole(given, "n", 10))
        items, item = version.known.items, request.path_params["item"]
        self._check_known(items, [item])
        found = await self.scorer.call(lambda: version.model.similar_items([item], n))
        row = items.row(item)
        titled = {} if version.titles is None else {"title": version.titles[row]}
        return reply(
            {
                **version.about(),
                "item": version.item_ids[row],
                **titled,
                "items": list_items(version, found, 0, n),
            }
        )

    # Explanations and communities

    async def explain(self, request: Request) -> Response:
        """Why a list is what it is, or one item's score."""
        wanted = decode(_decode_explain, await self._body(request))
        version, options, who = await self._resolve(wanted)
        if wanted.item is not None:
            self._check_known(version.known.items, [wanted.item], "item: ")
        return reply(
            {**version.about(), **await self._why(version, options, who, wanted.item, wanted.n)}
        )

    async def _why(
        self, version: ModelVersion, options: ListOptions, who: Any, item: Any, n: int
    ) -> dict[str, Any]:
        known = version.known
        if options.is_history and options.on_unknown != "error":
            who = [one for one in who if one in known.items]
        if (
            item is None and not options.is_plain
        ):  # the items of this list, not of that without conditions
            listed, place = await self.scorer.find_list(options, who, n)
            item = [
                version.item_ids[row] for row in listed.item_rows[place, :n].tolist() if row >= 0
            ]

        def find() -> dict[str, Any]:
            held = len(who) if options.is_history else len(known.items_of(known.users.row(who)))
            if item is None and held * n > self.settings.most_reasons:
                most = max(1, self.settings.most_reasons // held)
                raise Problem(
                    422,
                    f"n: expected at most {most:,} explained for a history of {held:,}, found {n:,}",
                )
            one = {"history": who} if options.is_history else who
            found = explain(options.model, one, item, n, recency=options.recency)
            counts = explorer.history_counts(options.model, one, recency=options.recency)
            return {**found.to_json(), "counts": counts}

        found: dict[str, Any] = await self.scorer.call(find)
        return found

    async def communities(self, request: Request) -> Response:
        """The communities of a model."""
        version = self._version(self._query(request, "model").get("model"))
        users = await self._map(version)
        found = await self.scorer.call(partial(explorer.list_communities, version.model, users))
        return reply({**version.about(), **found})

    async def community(self, request: Request) -> Response:
        """One community: who is in it, what they take, and what its model lists beside the global one."""
        given = self._query(request, "n", "model")
        version, n = self._version(given.get("model")), self._length(whole(given, "n", 10))
        number = whole(request.path_params, "number", 0)
        users = await self._map(version)
        try:
            found = await self.scorer.call(
                partial(explorer.describe_community, version.model, number, n, users)
            )
        except DataError as error:
            raise Problem(404, str(error)) from None
        return reply({**version.about(), **found})

    # The explorer

    async def map(self, request: Request) -> Response:
        """The users as points."""
        version = self._version(self._query(request, "model").get("model"))
        users = await self._map(version)
        headers = {"x-loca-model": version.name, "x-loca-fingerprint": version.fingerprint}
        return Response(users.to_bytes(), headers=headers, media_type="application/octet-stream")

    async def _map(self, version: ModelVersion) -> explorer.UserMap:
        async with self._mapping:
            if (
                "user_map" not in version.__dict__
            ):  # it takes a while, once; lists are found meanwhile
                await asyncio.to_thread(lambda: version.user_map)
        return version.user_map

    async def search(self, request: Request) -> Response:
        """Users and items by the beginning of an id, or by words of a title."""
        given = self._query(request, "q", "what", "n", "model")
        version, n = self._version(given.get("model")), min(whole(given, "n", 20), 100)
        what = given.get("what", "all")
        if what not in ("users", "items", "all"):
            raise Problem(422, f"what: expected users, items or all, found {what!r:.60}")
        found = await asyncio.to_thread(
            explorer.search, version.known, given.get("q", "")[:200], what, n
        )
        return reply({**version.about(), **found})

    async def user(self, request: Request) -> Response:
        """The user of a row: id and place on the map."""
        version = self._version(self._query(request, "model").get("model"))
        row, count = whole(request.path_params, "row", 0), version.known.n_users
        if row >= count:
            raise Problem(404, f"unknown user row {row}; this model has {count:,} users")
        users = await self._map(version)
        return reply({**version.about(), **explorer.describe_user(version.model, users, row)})

    async def page(self, request: Request) -> Response:
        """The explorer, one file of it."""
        files = page_files()
        name = request.path_params.get("name", "index.html")
        if name not in files:
            raise Problem(404, f"there is no {name!r:.60} here")
        headers = {} if name == "index.html" else {"cache-control": "no-cache"}
        return Response(files[name], headers=headers, media_type=_PAGE_TYPES[Path(name).suffix])

    # The service itself

    async def models(self, request: Request) -> Response:
        """What is served, and how it goes."""
        listed = []
        for name, version in self.store.versions.items():
            facts = explorer.model_facts(version.model)
            about = {
                "name": name,
                "fingerprint": version.fingerprint,
                "folder": version.folder.name,
            }
            listed.append(
                {
                    **about,
                    **facts,
                    "loaded_at": version.loaded_at,
                    "error": self.store.errors.get(name),
                }
            )
        p50, p99 = (
            np.percentile(self.latencies, [50, 99]).tolist() if self.latencies else (None, None)
        )
        health = {
            "requests": self.requests,
            "p50_ms": p50,
            "p99_ms": p99,
            "queue": len(self.scorer),
        }
        default = next(iter(self.store.versions))
        return reply({"models": listed, "default": default, **health, "version": loca.__version__})

    async def live(self, request: Request) -> Response:
        """Whether the process is there."""
        return reply({"status": "live"})

    async def ready(self, request: Request) -> Response:
        """Whether requests are answered."""
        if not self.is_ready:
            raise Problem(503, "not ready", {"retry-after": "1"})
        return reply({"status": "ready"})

    async def prometheus(self, request: Request) -> Response:
        """Figures for Prometheus."""
        return Response(self.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    async def openapi(self, request: Request) -> Response:
        """The description of the interface."""
        return reply(self._openapi())

    async def docs(self, request: Request) -> Response:
        """The same as a page."""
        return Response(render_page(self._openapi()), media_type=_PAGE_TYPES[".html"])

    def _openapi(self) -> dict[str, Any]:
        endpoints = [
            (method, path, endpoint)
            for method, path, endpoint in self._endpoints()
            if "/v1/" in path
        ]
        bodies = {
            "/v1/recommend": ListRequest,
            "/v1/recommend/batch": BatchRequest,
            "/v1/explain": ExplainRequest,
        }
        return openapi_document(endpoints, bodies)

    # What comes in

    async def _body(self, request: Request) -> bytes:
        most = self.settings.body_bytes
        try:
            async with asyncio.timeout(self.settings.body_seconds):
                parts, size = [], 0
                async for part in request.stream():
                    parts.append(part)
                    size += len(part)
                    if size > most:
                        raise Problem(
                            413,
                            f"expected a body of at most {most:,} bytes",
                            {"connection": "close"},
                        )
        except TimeoutError:
            seconds = f"{self.settings.body_seconds:g}"
            raise Problem(
                408, f"the body took more than {seconds} s", {"connection": "close"}
            ) from None
        return b"".join(parts)

    def _query(self, request: Request, *names: str) -> dict[str, str]:
        """The parameters of an address, each of them known and given once."""
        given: dict[str, str] = {}
        for name, value in request.query_params.multi_items():
            if name not in names or name in given:
                found = "twice" if name in given else f"; expected {', '.join(names)}"
                raise Problem(400, f"unexpected parameter {name!r:.60}{found}")
            given[name] = value
        return given

    def _length(self, n: int) -> int:
        if not 1 <= n <= self.settings.most_items:
            raise Problem(422, f"n: expected 1 to {self.settings.most_items:,}, found {n:,}")
        return n


def decode(decoder: Callable[[bytes], Any], body: bytes) -> Any:
    """What a body says."""
    try:
        return decoder(body)
    except msgspec.ValidationError as error:
        raise Problem(400, f"body: {error}"[:300]) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise Problem(400, f"body: expected JSON, found something else ({error})"[:300]) from None


def whole(given: Mapping[str, Any], name: str, default: int) -> int:
    """A parameter that is a whole number of at least 0."""
    text = str(given.get(name, default))
    if not (text.isascii() and text.isdecimal() and len(text) <= 12):
        raise Problem(422, f"{name}: expected a whole number, found {text!r:.60}")
    return int(text)


def list_items(
    version: ModelVersion, found: Recommendations, place: int, n: int
) -> list[ListedItem]:
    """The first n items of a list, as they are sent."""
    ids, titles = version.item_ids, version.titles
    pairs = zip(found.item_rows[place, :n].tolist(), found.scores[place, :n].tolist(), strict=True)
    return [
        ListedItem(ids[row], score, rank, None if titles is None else titles[row])
        for rank, (row, score) in enumerate(pairs, 1)
        if row >= 0
    ]


def _words(given: Mapping[str, str]) -> dict[str, Any]:
    return {name: given[name] for name in ("model", "recency") if name in given}


@lru_cache(maxsize=1)
def page_files() -> dict[str, bytes]:
    """The files of the explorer by name: no other can be read."""
    return {
        path.name: path.read_bytes()
        for path in sorted(PAGE.iterdir())
        if path.suffix in _PAGE_TYPES
    }


# -- Every end becomes a reply -----------------------------------------------------------------------------------------


def as_problem(error: BaseException) -> Problem:
    """What a client gets to know of an error; nothing of the inside."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, QueueFullError):
        return Problem(503, "as many requests are waiting as may; try again", {"retry-after": "1"})
    if isinstance(error, LocaError):
        return Problem(422, str(error))
    if isinstance(error, HTTPException):
        allowed = {
            name: value for name, value in (error.headers or {}).items() if name.lower() == "allow"
        }
        return Problem(error.status_code, str(error.detail), allowed)
    log.error("a request failed", exc_info=error)
    return Problem(500, "the request could not be answered")


def _problem_of(error: Any) -> dict[str, Any]:
    return {"problem": as_problem(error).document()}


def _answering(
    endpoint: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint whose errors are replies."""

    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except ClientDisconnect:
            raise
        except Exception as error:
            return as_problem(error).response()

    return answer


async def _on_http(request: Request, error: Exception) -> Response:
    return as_problem(error).response()


class Metrics:
    """Counters and histograms, by the template of the route; of all workers where there are several."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        given: dict[str, Any] = {"registry": self.registry}
        self.is_shared = "PROMETHEUS_MULTIPROC_DIR" in os.environ
        self.requests = Counter("loca_requests", "Requests answered.", ["route", "status"], **given)
        times = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
        self.seconds = Histogram(
            "loca_request_seconds", "Time of a request.", ["route"], buckets=times, **given
        )
        sizes = (1, 2, 4, 8, 16, 32, 64)
        self.batch_sizes = Histogram(
            "loca_batch_size", "Requests that were answered together.", buckets=sizes, **given
        )
        self.unknown = Counter(
            "loca_unknown_ids", "Ids and titles that no model knows.", ["what"], **given
        )
        self.reloads = Counter(
            "loca_reloads", "New versions of a model.", ["model", "result"], **given
        )
        lives: dict[str, Any] = {**given, "multiprocess_mode": "livesum"}
        self.queue = Gauge("loca_queue_length", "Requests that wait.", **lives)
        self.models = Gauge("loca_model", "Versions that serve.", ["name", "fingerprint"], **lives)

    def forget_model(self, name: str, fingerprint: str) -> None:
        """A version serves no more; figures that workers share cannot be removed."""
        if self.is_shared:
            self.models.labels(name, fingerprint).set(0)
        else:
            self.models.remove(name, fingerprint)

    def text(self) -> bytes:
        """All of them as Prometheus reads them."""
        registry = self.registry
        if self.is_shared:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)


class Gate:
    """Stands before the service: names and tokens, rates, safe headers, figures and log lines."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.token = (
            None if service.settings.token is None else f"Bearer {service.settings.token}".encode()
        )
        self.buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        service = self.service
        if scope["type"] == "lifespan":
            await service.inner(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        started, status = time.perf_counter(), 500

        async def send_safely(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                given = {name for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *(one for one in _SAFE_HEADERS if one[0] not in given),
                ]
            await send(message)

        try:
            if refused := self._refuse(scope):
                await refused.response()(scope, receive, send_safely)
            else:
                await self._answer(scope, receive, send_safely)
        except ClientDisconnect:
            status = 499
        took = time.perf_counter() - started
        route = service.templates.get(scope.get("endpoint", self), "none")
        service.metrics.requests.labels(route, status).inc()
        service.metrics.seconds.labels(route).observe(took)
        service.requests += 1
        if route.startswith(("/v1/recommend", "/v1/explain")):
            service.latencies.append(took * 1000)
        if service.settings.log_requests:
            say(method=scope["method"], route=route, status=status, ms=round(took * 1000, 2))

    async def _answer(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        """Lists, which most requests are for, are found without a look at all routes."""
        endpoint, path = None, scope["path"]
        if scope["method"] == "POST" and path == "/v1/recommend":
            endpoint = self.service.recommend
        elif scope["method"] == "GET" and path.startswith("/v1/recommend/"):
            endpoint, scope["path_params"] = (
                self.service.recommend_user,
                {"user": path.removeprefix("/v1/recommend/")},
            )
        if endpoint is None:
            await self.service.inner(scope, receive, send)
            return
        scope["endpoint"] = answer = self.service.answers[endpoint]
        await (await answer(Request(scope, receive)))(scope, receive, send)

    def _refuse(self, scope: MutableMapping[str, Any]) -> Problem | None:
        settings, headers = self.service.settings, dict(scope["headers"])
        if settings.local_only and (host := headers.get(b"host", b"").decode("latin-1")):
            # A page of another site must not reach a service of this machine by a name of its own.
            name = host if host.endswith("]") else host.rpartition(":")[0] or host
            if not is_loopback(name):
                return Problem(421, "expected a request to localhost")
        if settings.rate and (
            wait := self._wait(scope)
        ):  # before the token: guesses are requests too
            return Problem(
                429,
                f"expected at most {settings.rate:g} requests a second",
                {"retry-after": str(wait)},
            )
        path = scope["path"]
        if self.token is not None and path not in _OPEN and not path.startswith("/explorer/"):
            given = headers.get(b"authorization", b"")
            if not hmac.compare_digest(given, self.token):
                return Problem(
                    401,
                    "expected the header Authorization: Bearer TOKEN",
                    {"www-authenticate": "Bearer"},
                )
        size = headers.get(b"content-length", b"0")
        if not size.isdigit() or len(size) > 12 or int(size) > settings.body_bytes:
            return Problem(
                413,
                f"expected a body of at most {settings.body_bytes:,} bytes",
                {"connection": "close"},
            )
        return None

    def _wait(self, scope: MutableMapping[str, Any]) -> int:
        """Seconds until a client may go on, 0 where it may at once: a bucket of the requests of one second."""
        client, now, rate = (
            (scope.get("client") or ("",))[0],
            time.monotonic(),
            self.service.settings.rate,
        )
        most = max(rate, 1.0)
        left, last = self.buckets.pop(client, (most, now))
        left = min(most, left + (now - last) * rate)
        self.buckets[client] = (left - 1 if left >= 1 else left, now)
        if len(self.buckets) > _MOST_CLIENTS:
            self.buckets.popitem(last=False)
        return 0 if left >= 1 else int((1 - left) / rate) + 1


class _JsonHandler(logging.Handler):
    """Writes what is logged as lines of JSON."""

    def emit(self, record: logging.LogRecord) -> None:
        trace = (
            {}
            if record.exc_info is None
            else {"trace": logging.Formatter().formatException(record.exc_info)}
        )
        say(event=record.levelname.lower(), message=record.getMessage(), **trace)


def log_as_json() -> None:
    """Let what goes wrong inside the service, and inside its server, be log lines too."""
    for name in ("loca.service", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [_JsonHandler(logging.WARNING)], False


@lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine alone."""
    if host.lower() == "localhost":
        return True
    with suppress(ValueError):
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    return False


def say(**values: Any) -> None:
    """A log line, as JSON; nothing of users or histories."""
    values = {"time": f"{time.time():.3f}", **values}
    with suppress(OSError, ValueError):  # nobody reads the log any more
        sys.stderr.write(json.dumps(values, ensure_ascii=False) + "\n")
