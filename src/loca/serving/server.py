"""Runs the service: its address, its workers, patience with slow senders, and an end that answers what came in."""

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
from pathlib import Path
from typing import Any

import msgspec
import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.supervisors import Multiprocess

from loca.errors import ConfigError
from loca.progress import set_progress

# The names of modules of the service are imported late: settings of the metrics are read from the environment first.
_SETTINGS = "LOCA_SERVICE_SETTINGS"
_GRACEFUL_SECONDS = 30
_HEALTHCHECK_SECONDS = (
    60  # a worker that says nothing for so long is replaced; one that starts may be slow
)


class PatientProtocol(HttpToolsProtocol):
    """Closes a connection whose next request is too slow or has too long headers, or whose reply nobody reads."""

    header_seconds, header_bytes, reading_seconds = 10.0, 65_536, 60.0
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
            self._header_bytes += 0 if self._is_in_body else len(data)
            if self._deadline is None:
                self._wait_for_headers()
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()
        elif self._header_bytes > self.header_bytes and not self.transport.is_closing():
            self.send_400_response("Headers too long.")

    def on_headers_complete(self) -> None:
        """The body comes."""
        self._is_in_body = True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The body is whole."""
        self._is_in_body = False
        super().on_message_complete()

    def pause_writing(self) -> None:
        """Begin to wait for somebody to read."""
        self._wait_for_reader(self.reading_seconds)
        super().pause_writing()

    def resume_writing(self) -> None:
        """It was read."""
        self._wait_for_reader(None)
        super().resume_writing()

    def _wait_for_reader(self, seconds: float | None) -> None:
        if self._reading_deadline is not None:
            self._reading_deadline.cancel()
        self._reading_deadline = (
            None if seconds is None else self.loop.call_later(seconds, self.transport.abort)
        )

    def _wait_for_headers(self) -> None:
        self._deadline = self.loop.call_later(self.header_seconds, self._give_up)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline, self._header_bytes = None, 0

    def _give_up(self) -> None:
        self._deadline = None
        if (self.cycle is None or self.cycle.response_complete) and not self.transport.is_closing():
            self.transport.close()


class CalmServer(uvicorn.Server):
    """A server for which a signal is a wish to end, and no failure: what was accepted is answered, then it is done."""

    on_started: Callable[[], None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so."""
        await super().startup(sockets)
        if self.started and self.on_started is not None:
            self.on_started()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End on a signal."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handlers = {
            one: signal.signal(one, self.handle_exit) for one in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for one, handler in handlers.items():
                signal.signal(one, handler)


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
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{bound.getsockname()[1]}/"
    given: dict[str, Any] = {
        "http": PatientProtocol,
        "ws": "none",
        "lifespan": "on",
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "date_header": False,
        "proxy_headers": False,
        "timeout_graceful_shutdown": _GRACEFUL_SECONDS,
        "timeout_worker_healthcheck": _HEALTHCHECK_SECONDS,
        "limit_concurrency": 1000,
    }
    from loca.serving.app import Service, log_as_json
    from loca.serving.model_store import ModelStore

    store = ModelStore({name: Path(folder) for name, folder in settings.folders.items()})
    store.load()  # what cannot be loaded is refused here, in one line
    log_as_json()
    set_progress(False)  # a bar for each batch would be drawn between the log lines
    if workers > 1:
        del store  # each worker has its own
        with tempfile.TemporaryDirectory(prefix="loca-metrics-") as folder:
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
            os.environ[_SETTINGS] = msgspec.json.encode(settings).decode()
            try:
                config = uvicorn.Config(
                    "loca.serving.server:make_app", factory=True, workers=workers, **given
                )
                if on_started is not None:
                    on_started(address)
                supervisor = Multiprocess(config, sockets=[bound])
                supervisor.run()
            finally:
                del os.environ["PROMETHEUS_MULTIPROC_DIR"], os.environ[_SETTINGS]
        if any(one.exitcode == STARTUP_FAILURE for one in supervisor.processes):
            raise ConfigError("a worker could not start; the log says why")
        return
    service = Service(settings)
    service.store = store
    server = CalmServer(uvicorn.Config(service.app, **given))
    if on_started is not None:
        server.on_started = lambda: on_started(address)
    # Whoever collects remarks around this call would collect those of all requests.
    Context().run(server.run, sockets=[bound])


def make_app() -> Any:
    """The application of one worker."""
    from loca.serving.app import Service, Settings, log_as_json

    log_as_json()
    set_progress(False)
    return Service(msgspec.json.decode(os.environ[_SETTINGS], type=Settings)).app


def bind(host: str, port: int) -> socket.socket:
    """A socket at an address; one that is taken or not this machine's is refused."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family)
        if os.name == "posix":  # elsewhere it would share an address that is taken
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"cannot listen on {host} port {port}: {why}; choose another --host or --port"
        ) from None
    found.set_inheritable(True)
    return found


def read_token(path: Any) -> str:
    """The token in a file: one line of at least 16 characters."""
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "not a text"
        raise ConfigError(f"--token-file: {path}: cannot be read ({why})") from None
    if len(text) < 16 or not text.isascii() or not text.isprintable() or " " in text:
        raise ConfigError(
            f"--token-file: {path}: expected one token of 16 or more letters and digits"
        )
    return str(text)
