"""Run the service: its address, its workers, and timeouts; at the end it answers what came in."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.supervisors import Multiprocess

from loca.errors import ConfigError
from loca.progress import set_progress

# Modules of the service are imported late: the metrics read settings from the environment first.
_SETTINGS = "LOCA_SERVICE_SETTINGS"
_METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
_GRACEFUL_SECONDS = 30
# A worker that says nothing for so long is replaced; one that starts may be slow.
_HEALTHCHECK_SECONDS = 60
_MOST_CONNECTIONS = 1000
_SHORTEST_TOKEN = 16


class TimeoutProtocol(HttpToolsProtocol):
    """Closes a connection that takes too long: to send a request, or to read a reply.

    It closes one too whose headers are too long.
    """

    header_seconds = 10.0
    header_bytes = 65_536
    reading_seconds = 60.0
    _deadline: asyncio.TimerHandle | None = None
    _reading_deadline: asyncio.TimerHandle | None = None
    _header_bytes = 0
    _is_in_body = False

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._wait_for_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._stop_waiting()
        self._wait_for_reader(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on; outside a request, count what belongs to the headers of the next."""
        is_outside = self.cycle is None or self.cycle.response_complete
        if is_outside:
            # What is left of the body of a request that was refused is no header.
            if not self._is_in_body:
                self._header_bytes += len(data)
            if self._deadline is None:
                self._wait_for_headers()
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()
        elif self._header_bytes > self.header_bytes and not self.transport.is_closing():
            self.send_400_response("Headers too long.")

    def on_headers_complete(self) -> None:
        """Note that the body comes."""
        self._is_in_body = True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Note that the body is whole."""
        self._is_in_body = False
        super().on_message_complete()

    def pause_writing(self) -> None:
        """Begin to wait for the client to read."""
        self._wait_for_reader(self.reading_seconds)
        super().pause_writing()

    def resume_writing(self) -> None:
        """Wait no longer: the client has read."""
        self._wait_for_reader(None)
        super().resume_writing()

    def _wait_for_reader(self, seconds: float | None) -> None:
        if self._reading_deadline is not None:
            self._reading_deadline.cancel()
            self._reading_deadline = None
        if seconds is not None:
            self._reading_deadline = self.loop.call_later(seconds, self.transport.abort)

    def _wait_for_headers(self) -> None:
        self._deadline = self.loop.call_later(self.header_seconds, self._give_up)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None
        self._header_bytes = 0

    def _give_up(self) -> None:
        self._deadline = None
        is_outside = self.cycle is None or self.cycle.response_complete
        if is_outside and not self.transport.is_closing():
            self.transport.close()


class GracefulServer(uvicorn.Server):
    """A server that ends on a signal without a failure, once it has answered what it accepted."""

    on_started: Callable[[], None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and call `on_started`."""
        await super().startup(sockets)
        if self.started and self.on_started is not None:
            self.on_started()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End on a signal."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        signals = (signal.SIGINT, signal.SIGTERM)
        handlers = {number: signal.signal(number, self.handle_exit) for number in signals}
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)


def serve(
    settings: Any,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    workers: int = 1,
    on_started: Callable[[str], None] | None = None,
) -> None:
    """Serve until a signal comes. Models are loaded before a connection is taken.

    Parameters
    ----------
    settings : loca.serving.app.Settings
    host, port
        Where to listen; port 0 takes a free one.
    workers
        Processes that share the address and the mapped files of the models.
    on_started
        Is called with the address once requests are answered.
    """
    bound = bind(host, port)
    shown_host = f"[{host}]" if ":" in host else host
    address = f"http://{shown_host}:{bound.getsockname()[1]}/"
    from loca.serving.app import log_as_json
    from loca.serving.model_store import ModelStore

    store = ModelStore({name: Path(folder) for name, folder in settings.folders.items()})
    store.load()  # what cannot be loaded is refused here, in one line
    log_as_json()
    set_progress(False)  # a bar for each batch would be drawn between the log lines
    if workers > 1:
        del store  # each worker has its own
        _serve_by_workers(settings, workers, bound, partial(on_started or _nothing, address))
    else:
        _serve_here(settings, store, bound, partial(on_started or _nothing, address))


def _nothing(address: str) -> None:
    """Do nothing once requests are answered."""


def _server_options() -> dict[str, Any]:
    return {
        "http": TimeoutProtocol,
        "ws": "none",
        "lifespan": "on",
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "date_header": False,
        "proxy_headers": False,
        "timeout_graceful_shutdown": _GRACEFUL_SECONDS,
        "timeout_worker_healthcheck": _HEALTHCHECK_SECONDS,
        "limit_concurrency": _MOST_CONNECTIONS,
    }


def _serve_here(
    settings: Any, store: Any, bound: socket.socket, on_started: Callable[[], None]
) -> None:
    from loca.serving.app import Service

    service = Service(settings)
    service.store = store
    server = GracefulServer(uvicorn.Config(service.app, **_server_options()))
    server.on_started = on_started
    # What collects remarks around this call would collect those of all requests.
    Context().run(server.run, sockets=[bound])


def _serve_by_workers(
    settings: Any, workers: int, bound: socket.socket, on_started: Callable[[], None]
) -> None:
    """Serve in processes, which read the settings from the environment."""
    with tempfile.TemporaryDirectory(prefix="loca-metrics-") as folder:
        os.environ[_METRICS_FOLDER] = folder
        os.environ[_SETTINGS] = msgspec.json.encode(settings).decode()
        try:
            config = uvicorn.Config(
                "loca.serving.server:make_app",
                factory=True,
                workers=workers,
                **_server_options(),
            )
            on_started()
            supervisor = Multiprocess(config, sockets=[bound])
            supervisor.run()
        finally:
            del os.environ[_METRICS_FOLDER], os.environ[_SETTINGS]
    if any(process.exitcode == STARTUP_FAILURE for process in supervisor.processes):
        raise ConfigError("a worker could not start; the log says why")


def make_app() -> Any:
    """Return the application of one worker."""
    from loca.serving.app import Service, Settings, log_as_json

    log_as_json()
    set_progress(False)
    return Service(msgspec.json.decode(os.environ[_SETTINGS], type=Settings)).app


def bind(host: str, port: int) -> socket.socket:
    """Return a socket at an address; refuse one that is taken or not this machine's."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family)
        if os.name == "posix":  # elsewhere it would share an address that is taken
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"cannot listen on {host} port {port}: {reason}; choose another --host or --port"
        ) from None
    bound.set_inheritable(True)
    return bound


def read_token(path: Any) -> str:
    """Return the token in a file: one line of at least 16 characters."""
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text"
        raise ConfigError(f"--token-file: {path}: cannot be read ({reason})") from None
    is_plain = text.isascii() and text.isprintable() and " " not in text
    if len(text) < _SHORTEST_TOKEN or not is_plain:
        raise ConfigError(
            f"--token-file: {path}: expected one token of {_SHORTEST_TOKEN} or more letters and "
            "digits"
        )
    return str(text)
