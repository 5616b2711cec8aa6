"""The service as an ASGI application: its routes, who may use them, and what becomes a reply."""

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
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

import loca
from loca.data.id_map import Id
from loca.errors import DataError, LocaError
from loca.evaluation.explain import explain
from loca.evaluation.recommend import remark_no_preference
from loca.remarks import collect_remarks
from loca.serving import explorer
from loca.serving.api_page import openapi_document, render_page
from loca.serving.model_store import ModelStore, ModelVersion
from loca.serving.notes import Note, as_notes, no_warning, told_notes
from loca.serving.problem import Problem, number_between, whole_number
from loca.serving.replies import (
    BatchReply,
    ListReply,
    ProblemReply,
    SimilarReply,
    listed_items,
    shown_history,
)
from loca.serving.requests import (
    BatchRequest,
    ExplainRequest,
    ListQuery,
    ListRequest,
    RequestReader,
    takes_long,
)
from loca.serving.scorer import QueueFullError, Scorer

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
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        b"connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; "
        b"frame-ancestors 'none'",
    ),
]
_OPEN = ("/health/live", "/health/ready", "/", "/docs", "/openapi.json")
_MOST_CLIENTS = 10_000
_MOST_DIGITS = 12  # of the length of a body
_LATENCIES = 1000
_MOST_EXPLAINED = 16
_MOST_FOUND = 100  # users, and items, of a search
_LONGEST_SEARCH = 200
# Upper ends of the bars of histograms.
_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
_SIZES = (1, 2, 4, 8, 16, 32, 64)
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


def _plain(value: Any) -> Any:
    """Return numbers of numpy as JSON has them."""
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
    """Return a reply as JSON."""
    return Response(_encoder.encode(document), media_type="application/json")


# -- The service ----------------------------------------------------------------------------------


class Service:
    """Answer requests by the models of a store; `app` is what a server runs."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.store = ModelStore({name: Path(folder) for name, folder in settings.folders.items()})
        self.metrics = Metrics()
        self.scorer = Scorer(settings.batch, settings.queue, self._note_batch)
        self.reader = RequestReader(
            settings.most_items, settings.most_history, self.metrics.count_unknown
        )
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
            self.templates[answer] = path.replace(":path", "")
            self.answers[endpoint] = answer
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
        yield "GET", "/v1/search", self.search
        yield "GET", "/v1/users/{user:path}", self.user
        yield "GET", "/v1/map", self.map
        yield "GET", "/v1/map/users/{row}", self.map_user
        yield "GET", "/health/live", self.live
        yield "GET", "/health/ready", self.ready
        yield "GET", "/metrics", self.prometheus
        yield "GET", "/openapi.json", self.openapi
        yield "GET", "/docs", self.docs
        yield "GET", "/", self.page
        yield "GET", "/explorer/{name}", self.page

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        # The scorer gives the interpreter back for every product; with the usual interval it would
        # wait long to go on.
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
                reloaded = await asyncio.to_thread(self.store.reload)
            except Exception:  # such as a disk that is gone for a moment
                log.exception("looking for new versions failed")
                continue
            for name, went_well in reloaded.items():
                self.metrics.reloads.labels(name, "loaded" if went_well else "refused").inc()
                detail = {} if went_well else {"error": self.store.errors[name]}
                say(
                    event="reload",
                    model=name,
                    fingerprint=self.store.versions[name].fingerprint,
                    **detail,
                )
            if reloaded:
                self._note_models()

    def _note_models(self) -> None:
        versions = self.store.versions.values()
        serving = {(version.name, version.fingerprint) for version in versions}
        for name, fingerprint in self._noted - serving:
            self.metrics.forget_model(name, fingerprint)
        for name, fingerprint in serving:
            self.metrics.models.labels(name, fingerprint).set(1)
        self._noted = serving

    def _note_batch(self, size: int) -> None:
        self.metrics.batch_sizes.observe(size)
        self.metrics.queue.set(len(self.scorer))

    # Lists

    async def recommend(self, request: Request) -> Response:
        """List the best items for a user or for a history.

        Unknown ids of only, never and candidates are refused whatever on_unknown says.
        """
        return reply(await self._list(decode(_decode_list, await self._body(request))))

    async def recommend_user(self, request: Request) -> Response:
        """List the best items for a user, by id."""
        query = self._query(request, "n", "model", "recency")
        list_request = ListRequest(
            user=request.path_params["user"],
            n=self._length(query),
            model=query.get("model"),
            recency=query.get("recency"),
        )
        return reply(await self._list(list_request))

    async def recommend_batch(self, request: Request) -> Response:
        """Answer several requests for lists, each with a list or with a problem of its own."""
        list_requests = decode(_decode_batch, await self._body(request)).requests
        if sum(list_request.explain for list_request in list_requests) > _MOST_EXPLAINED:
            raise Problem(
                422, f"explain: expected for at most {_MOST_EXPLAINED} requests of a batch"
            )
        answers = await asyncio.gather(*map(self._answer_of_batch, list_requests))
        return reply(BatchReply(answers))

    async def _answer_of_batch(self, request: ListRequest) -> ListReply | ProblemReply:
        with collect_remarks(no_warning):
            try:
                return await self._list(request)
            except Exception as error:
                return ProblemReply(as_problem(error).document())

    async def _list(self, request: ListRequest) -> ListReply:
        query = await self._read(request)
        version = query.version
        lists, number = await self.scorer.find_list(query.options, query.who, request.n)
        items = listed_items(version, lists, number, request.n)
        if not query.is_empty:
            remark_no_preference([item.score for item in items], version.known.n_items)
        answer = ListReply(
            model=version.name,
            fingerprint=version.fingerprint,
            user=query.user,
            items=items,
            notes=[],
        )
        if query.history is not None:
            answer.history = shown_history(version, query.history)
        if request.explain:
            answer.explanation = None
            if not query.is_empty:
                answer.explanation = await self._explanation(query, None, request.n)
        answer.notes = told_notes()
        return answer

    async def _read(self, request: ListRequest) -> ListQuery:
        """Return what a request means; what is unknown or too much is refused before it waits."""
        version = self._version(request.model)
        if takes_long(request):
            return await asyncio.to_thread(self.reader.read, request, version)
        return self.reader.read(request, version)

    def _version(self, name: str | None) -> ModelVersion:
        try:
            return self.store.find(name)
        except KeyError as error:
            raise Problem(404, error.args[0]) from None

    async def similar(self, request: Request) -> Response:
        """List the items most similar to an item, by the model's own measure of similarity.

        A score is that similarity, at most 1; only items with one above 0 are listed. A model that
        knows no similarity of items, such as Popularity, answers 422. What goes with an item is
        POST /v1/recommend with it as the history.
        """
        query = self._query(request, "n", "model")
        version = self._version(query.get("model"))
        n = self._length(query)
        row = self.reader.item_row(request.path_params["item"], version)
        item = version.item_ids[row]
        lists = await self.scorer.call(lambda: version.model.similar_items([item], n))
        answer = SimilarReply(
            model=version.name,
            fingerprint=version.fingerprint,
            item=item,
            items=listed_items(version, lists, 0, n),
            notes=told_notes(),
            title=None if version.titles is None else version.titles[row],
        )
        return reply(answer)

    # Explanations and communities

    async def explain(self, request: Request) -> Response:
        """Explain a list, or the score of one item."""
        explain_request = decode(_decode_explain, await self._body(request))
        query = await self._read(explain_request)
        version = query.version
        item = None
        if explain_request.item is not None:
            row = self.reader.item_row(explain_request.item, version, "item: ")
            item = version.item_ids[row]
        if query.is_empty:
            raise Problem(422, "there is no history that a list could be explained from")
        explanation = await self._explanation(query, item, explain_request.n)
        return reply({**version.about(), **explanation, "notes": told_notes()})

    async def _explanation(self, query: ListQuery, item: Id | None, n: int) -> dict[str, Any]:
        """Return why a list is what it is, or one item's score, for somebody with a history."""
        version = query.version
        options = query.options
        explained: Id | list[Id] | None = item
        if item is None and not options.is_plain:
            # The items of this list, not of that without conditions.
            lists, number = await self.scorer.find_list(options, query.who, n)
            item_rows = lists.item_rows[number, :n].tolist()
            explained = [version.item_ids[row] for row in item_rows if row >= 0]
        who: Any = query.user
        if query.history is None:
            n_items = len(version.known.items_of(version.known.users.row(who)))
        else:
            who = {"history": query.who}
            n_items = len(query.history)
        if explained is None and n_items * n > self.settings.most_reasons:
            most = max(1, self.settings.most_reasons // n_items)
            limit = f"at most {most:,} explained for a history of {n_items:,}"
            raise Problem(422, f"n: expected {limit}, found {n:,}")

        def find() -> dict[str, Any]:
            explanation = explain(options.model, who, explained, n, recency=options.recency)
            counts = explorer.history_counts(options.model, who, recency=options.recency)
            return {**explanation.to_json(), "counts": counts}

        document: dict[str, Any] = await self.scorer.call(find)
        return document

    async def communities(self, request: Request) -> Response:
        """List the communities of a model."""
        version = self._version(self._query(request, "model").get("model"))
        users = await self._map(version)
        listed = await self.scorer.call(partial(explorer.list_communities, version.model, users))
        return reply({**version.about(), **listed, "notes": self._community_notes(version)})

    async def community(self, request: Request) -> Response:
        """Describe a community: who is in it, what they take, its list and the global one."""
        query = self._query(request, "n", "model")
        version = self._version(query.get("model"))
        n = self._length(query)
        number = whole_number(request.path_params, "number")
        users = await self._map(version)
        try:
            described = await self.scorer.call(
                partial(explorer.describe_community, version.model, number, n, users)
            )
        except DataError as error:
            raise Problem(404, str(error)) from None
        return reply({**version.about(), **described, "notes": self._community_notes(version)})

    @staticmethod
    def _community_notes(version: ModelVersion) -> list[Note]:
        """Return what was told now, and what the fit has to say of its communities."""
        of_fit = [note for note in version.model.remarks_ if note.kind == "communities"]
        return [*told_notes(), *as_notes(of_fit)]

    # Users

    async def search(self, request: Request) -> Response:
        """Find users and items by the beginning of an id, or by words of a title."""
        query = self._query(request, "q", "what", "n", "model")
        version = self._version(query.get("model"))
        n = number_between(query, "n", 1, _MOST_FOUND, 20)
        what = query.get("what", "all")
        if what not in ("users", "items", "all"):
            raise Problem(422, f"what: expected users, items or all, found {what!r:.60}")
        text = query.get("q", "")[:_LONGEST_SEARCH]
        rows = await asyncio.to_thread(explorer.search, version.known, text, what, n)
        return reply({**version.about(), **rows})

    async def user(self, request: Request) -> Response:
        """Return the row of a user and the place on the map, by id."""
        version = self._version(self._query(request, "model").get("model"))
        users = version.known.users
        user_id = request.path_params["user"]
        if user_id not in users:
            self.metrics.count_unknown("user")
            raise Problem(404, f"unknown user {user_id!r:.100}; search with GET /v1/search?q=")
        return await self._user_of_row(version, users.row(user_id))

    async def map_user(self, request: Request) -> Response:
        """Return the user of a point of the map, by row."""
        version = self._version(self._query(request, "model").get("model"))
        row = whole_number(request.path_params, "row")
        n_users = version.known.n_users
        if not 0 <= row < n_users:
            raise Problem(404, f"unknown user row {row}; this model has rows 0 to {n_users - 1:,}")
        return await self._user_of_row(version, row)

    async def _user_of_row(self, version: ModelVersion, row: int) -> Response:
        users = await self._map(version)
        return reply({**version.about(), **explorer.describe_user(version.model, users, row)})

    async def map(self, request: Request) -> Response:
        """Return the users as points.

        After the letters LOCAMAP1 come little-endian numbers: of users and communities (two
        uint32), then x and y of each user (two float32, within −1 … 1), their rows (uint32), and
        their communities (uint16, 65535 for none).
        """
        version = self._version(self._query(request, "model").get("model"))
        users = await self._map(version)
        headers = {"x-loca-model": version.name, "x-loca-fingerprint": version.fingerprint}
        return Response(users.to_bytes(), headers=headers, media_type="application/octet-stream")

    async def _map(self, version: ModelVersion) -> explorer.UserMap:
        async with self._mapping:
            if "user_map" not in vars(version):
                # It takes a while, once; lists are found meanwhile.
                await asyncio.to_thread(lambda: version.user_map)
        return version.user_map

    async def page(self, request: Request) -> Response:
        """Return one file of the explorer."""
        files = page_files()
        name = request.path_params.get("name", "index.html")
        if name not in files:
            raise Problem(404, f"there is no {name!r:.60} here")
        headers = {} if name == "index.html" else {"cache-control": "no-cache"}
        return Response(files[name], headers=headers, media_type=_PAGE_TYPES[Path(name).suffix])

    # The service itself

    async def models(self, request: Request) -> Response:
        """List the served models with the notes of their fits, and how requests are answered."""
        models = [
            {
                "name": name,
                "fingerprint": version.fingerprint,
                "folder": version.folder.name,
                **explorer.model_facts(version.model),
                "loaded_at": version.loaded_at,
                "error": self.store.errors.get(name),
            }
            for name, version in self.store.versions.items()
        ]
        p50, p99 = self._percentiles()
        document = {
            "models": models,
            "default": next(iter(self.store.versions)),
            "requests": self.requests,
            "p50_ms": p50,
            "p99_ms": p99,
            "queue": len(self.scorer),
            "version": loca.__version__,
        }
        return reply(document)

    def _percentiles(self) -> tuple[float | None, float | None]:
        """Return the median latency in milliseconds, and that of the slowest hundredth."""
        if not self.latencies:
            return None, None
        p50, p99 = np.percentile(self.latencies, [50, 99]).tolist()
        return p50, p99

    async def live(self, request: Request) -> Response:
        """Say that the process is there."""
        return reply({"status": "live"})

    async def ready(self, request: Request) -> Response:
        """Say whether requests are answered."""
        if not self.is_ready:
            raise Problem(503, "not ready", {"retry-after": "1"})
        return reply({"status": "ready"})

    async def prometheus(self, request: Request) -> Response:
        """Return figures for Prometheus."""
        return Response(self.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    async def openapi(self, request: Request) -> Response:
        """Return the description of the interface."""
        return reply(self._openapi())

    async def docs(self, request: Request) -> Response:
        """Return the description as a page."""
        return Response(render_page(self._openapi()), media_type=_PAGE_TYPES[".html"])

    def _openapi(self) -> dict[str, Any]:
        pages = (self.openapi, self.docs, self.page)
        endpoints = [endpoint for endpoint in self._endpoints() if endpoint[2] not in pages]
        bodies = {
            "/v1/recommend": ListRequest,
            "/v1/recommend/batch": BatchRequest,
            "/v1/explain": ExplainRequest,
        }
        replies = {
            "/v1/recommend": ListReply,
            "/v1/recommend/{user}": ListReply,
            "/v1/recommend/batch": BatchReply,
            "/v1/similar/{item}": SimilarReply,
        }
        return openapi_document(endpoints, bodies, replies)

    # What comes in

    async def _body(self, request: Request) -> bytes:
        parts = []
        size = 0
        try:
            async with asyncio.timeout(self.settings.body_seconds):
                async for part in request.stream():
                    parts.append(part)
                    size += len(part)
                    if size > self.settings.body_bytes:
                        raise _too_large(self.settings)
        except TimeoutError:
            seconds = f"{self.settings.body_seconds:g}"
            raise Problem(
                408, f"the body took more than {seconds} s", {"connection": "close"}
            ) from None
        return b"".join(parts)

    def _query(self, request: Request, *names: str) -> dict[str, str]:
        """Return the parameters of an address, each of them known and given once."""
        query: dict[str, str] = {}
        for name, value in request.query_params.multi_items():
            if name in query:
                raise Problem(400, f"unexpected parameter {name!r:.60} twice")
            if name not in names:
                expected = ", ".join(names)
                raise Problem(400, f"unexpected parameter {name!r:.60}; expected {expected}")
            query[name] = value
        return query

    def _length(self, query: Mapping[str, str]) -> int:
        return number_between(query, "n", 1, self.settings.most_items, 10)


def _too_large(settings: Settings) -> Problem:
    """Return the refusal of a body; what is left of it is not read."""
    expected = f"expected a body of at most {settings.body_bytes:,} bytes"
    return Problem(413, expected, {"connection": "close"})


def decode(decoder: Callable[[bytes], Any], body: bytes) -> Any:
    """Return what a body says."""
    try:
        return decoder(body)
    except msgspec.ValidationError as error:
        raise Problem(400, f"body: {error}"[:300]) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise Problem(400, f"body: expected JSON, found something else ({error})"[:300]) from None


@lru_cache(maxsize=1)
def page_files() -> dict[str, bytes]:
    """Return the files of the explorer by name: no other can be read."""
    return {
        path.name: path.read_bytes()
        for path in sorted(PAGE.iterdir())
        if path.suffix in _PAGE_TYPES
    }


# -- What becomes a reply -------------------------------------------------------------------------


def as_problem(error: BaseException) -> Problem:
    """Return what a client gets to know of an error: nothing of the inside."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, QueueFullError):
        return Problem(503, "as many requests are waiting as may; try again", {"retry-after": "1"})
    if isinstance(error, LocaError):
        return Problem(422, str(error))
    if isinstance(error, HTTPException):
        headers = error.headers or {}
        allowed = {name: value for name, value in headers.items() if name.lower() == "allow"}
        detail = str(error.detail)
        if error.status_code == 404:
            detail = "there is nothing at this address; GET /docs lists what there is"
        return Problem(error.status_code, detail, allowed)
    log.error("a request failed", exc_info=error)
    return Problem(500, "the request could not be answered")


def _answering(
    endpoint: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint whose errors are replies, and whose remarks are notes, not warnings."""

    async def answer(request: Request) -> Response:
        try:
            with collect_remarks(no_warning):
                return await endpoint(request)
        except ClientDisconnect:
            raise
        except Exception as error:
            return as_problem(error).response()

    return answer


async def _on_http(request: Request, error: Exception) -> Response:
    return as_problem(error).response()


class Metrics:
    """Counters and histograms, by the template of the route; of all workers together."""

    def __init__(self) -> None:
        # When each counter began is of no use here.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self.is_shared = "PROMETHEUS_MULTIPROC_DIR" in os.environ
        here: dict[str, Any] = {"registry": self.registry}
        of_workers: dict[str, Any] = {**here, "multiprocess_mode": "livesum"}
        self.requests = Counter("loca_requests", "Requests answered.", ["route", "status"], **here)
        self.seconds = Histogram(
            "loca_request_seconds", "Time of a request.", ["route"], buckets=_SECONDS, **here
        )
        self.batch_sizes = Histogram(
            "loca_batch_size", "Requests that were answered together.", buckets=_SIZES, **here
        )
        self.unknown = Counter(
            "loca_unknown_ids", "Ids and titles that no model knows.", ["what"], **here
        )
        self.reloads = Counter(
            "loca_reloads", "New versions of a model.", ["model", "result"], **here
        )
        self.queue = Gauge("loca_queue_length", "Requests that wait.", **of_workers)
        self.models = Gauge(
            "loca_model", "Versions that serve.", ["name", "fingerprint"], **of_workers
        )

    def count_unknown(self, what: str) -> None:
        """Count a user, an item or a title that is not known."""
        self.unknown.labels(what).inc()

    def forget_model(self, name: str, fingerprint: str) -> None:
        """Note that a version serves no more; figures that workers share cannot be removed."""
        if self.is_shared:
            self.models.labels(name, fingerprint).set(0)
        else:
            self.models.remove(name, fingerprint)

    def text(self) -> bytes:
        """Return all figures as Prometheus reads them."""
        registry = self.registry
        if self.is_shared:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)


class Gate:
    """Stands before the service: names and tokens, rates, safe headers, figures and log lines."""

    def __init__(self, service: Service) -> None:
        self.service = service
        token = service.settings.token
        self.token = None if token is None else f"Bearer {token}".encode()
        self.buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        service = self.service
        if scope["type"] == "lifespan":
            await service.inner(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        started = time.perf_counter()
        status = 500

        async def send_safely(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = message["headers"]
                names = {name for name, _ in headers}
                missing = [header for header in _SAFE_HEADERS if header[0] not in names]
                message["headers"] = [*headers, *missing]
            await send(message)

        try:
            refusal = self._refuse(scope)
            if refusal is None:
                await self._answer(scope, receive, send_safely)
            else:
                await refusal.response()(scope, receive, send_safely)
        except ClientDisconnect:
            status = 499
        seconds = time.perf_counter() - started
        route = service.templates.get(scope.get("endpoint", self), "none")
        service.metrics.requests.labels(route, status).inc()
        service.metrics.seconds.labels(route).observe(seconds)
        service.requests += 1
        if route.startswith(("/v1/recommend", "/v1/explain")):
            service.latencies.append(seconds * 1000)
        if service.settings.log_requests:
            milliseconds = round(seconds * 1000, 2)
            say(method=scope["method"], route=route, status=status, ms=milliseconds)

    async def _answer(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        """Answer a request; lists, which most ask for, without a look at all routes."""
        path = scope["path"]
        endpoint: Callable[[Request], Awaitable[Response]]
        if scope["method"] == "POST" and path == "/v1/recommend":
            endpoint = self.service.recommend
        elif scope["method"] == "GET" and path.startswith("/v1/recommend/"):
            endpoint = self.service.recommend_user
            scope["path_params"] = {"user": path.removeprefix("/v1/recommend/")}
        else:
            await self.service.inner(scope, receive, send)
            return
        answer = self.service.answers[endpoint]
        scope["endpoint"] = answer
        response = await answer(Request(scope, receive))
        await response(scope, receive, send)

    def _refuse(self, scope: MutableMapping[str, Any]) -> Problem | None:
        """Return why a request is not answered; None where it is.

        Rates come before tokens: guesses are requests too.
        """
        headers = dict(scope["headers"])
        return (
            self._refuse_host(headers)
            or self._refuse_rate(scope)
            or self._refuse_token(scope["path"], headers)
            or self._refuse_size(headers)
        )

    def _refuse_host(self, headers: Mapping[bytes, bytes]) -> Problem | None:
        """Refuse other names than this machine's own.

        A page of another site must not reach a service of this machine by a name of that site.
        """
        host = headers.get(b"host", b"").decode("latin-1")
        if not self.service.settings.local_only or not host:
            return None
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        return None if is_loopback(name) else Problem(421, "expected a request to localhost")

    def _refuse_rate(self, scope: MutableMapping[str, Any]) -> Problem | None:
        rate = self.service.settings.rate
        seconds = self._seconds_to_wait(scope, rate) if rate else 0
        if not seconds:
            return None
        expected = f"expected at most {rate:g} requests a second"
        return Problem(429, expected, {"retry-after": str(seconds)})

    def _refuse_token(self, path: str, headers: Mapping[bytes, bytes]) -> Problem | None:
        if self.token is None or path in _OPEN or path.startswith("/explorer/"):
            return None
        if hmac.compare_digest(headers.get(b"authorization", b""), self.token):
            return None
        expected = "expected the header Authorization: Bearer TOKEN"
        return Problem(401, expected, {"www-authenticate": "Bearer"})

    def _refuse_size(self, headers: Mapping[bytes, bytes]) -> Problem | None:
        settings = self.service.settings
        size = headers.get(b"content-length", b"0")
        is_number = size.isdigit() and len(size) <= _MOST_DIGITS
        if is_number and int(size) <= settings.body_bytes:
            return None
        return _too_large(settings)

    def _seconds_to_wait(self, scope: MutableMapping[str, Any], rate: float) -> int:
        """Return the seconds until a client may go on, 0 where it may at once.

        It has a bucket of the requests of one second.
        """
        client = (scope.get("client") or ("",))[0]
        now = time.monotonic()
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
        values = {"event": record.levelname.lower(), "message": record.getMessage()}
        if record.exc_info is not None:
            values["trace"] = logging.Formatter().formatException(record.exc_info)
        say(**values)


def log_as_json() -> None:
    """Let what goes wrong inside the library and its server be log lines too, and log no more."""
    for name in ("loca", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers = [_JsonHandler(logging.WARNING)]
        logger.propagate = False


@lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """Return whether an address can be reached from this machine alone."""
    if host.lower() == "localhost":
        return True
    with suppress(ValueError):
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    return False


def say(**values: Any) -> None:
    """Write a log line, as JSON; nothing of users or histories."""
    values = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **values}
    with suppress(OSError, ValueError):  # nobody reads the log any more
        sys.stderr.write(json.dumps(values, ensure_ascii=False) + "\n")
