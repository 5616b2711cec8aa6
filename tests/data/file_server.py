"""A small web server with one file on it, which can fail in every way that real ones do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Shelf:
    """What the server gives and how; a request takes the next of `codes`, and of `cuts`: bytes before the line dies."""

    content: bytes
    version: str | None = '"first"'
    date: str | None = None
    takes_ranges: bool = True
    has_length: bool = True
    announced: int | None = None
    content_type: str = "application/zip"
    moved_to: str | None = None
    part_shift: int = 0
    cuts: list[int] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)
    ranges: list[str | None] = field(default_factory=list)
    address: str = ""


@contextmanager
def serving(shelf: Shelf) -> Iterator[Shelf]:
    """Serves the shelf on a free port of this machine, under `shelf.address`, while this lasts."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            answer(self, shelf)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    shelf.address = f"http://127.0.0.1:{server.server_address[1]}/file.zip"
    try:
        yield shelf
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def answer(request: BaseHTTPRequestHandler, shelf: Shelf) -> None:
    """One answer of the server, the way HTTP has it, but for the failures that the shelf asks for."""
    asked = request.headers.get("Range")
    shelf.ranges.append(asked)
    code = shelf.codes.pop(0) if shelf.codes else 200
    if shelf.moved_to is not None:
        request.send_response(302)
        request.send_header("Location", shelf.moved_to)
        request.end_headers()
        return
    if code != 200:
        request.send_error(code)
        return
    start, size = 0, len(shelf.content)
    same = request.headers.get("If-Range") in (shelf.version, shelf.date)
    if asked and shelf.takes_ranges and same:
        start = int(asked.removeprefix("bytes=").removesuffix("-")) + shelf.part_shift
        if start >= size:
            request.send_response(416)
            request.send_header("Content-Range", f"bytes */{size}")
            request.end_headers()
            return
        request.send_response(206)
        request.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
    else:
        request.send_response(200)
    request.send_header("Content-Type", shelf.content_type)
    if shelf.has_length:
        request.send_header("Content-Length", str(shelf.announced or size - start))
    for name, value in (("ETag", shelf.version), ("Last-Modified", shelf.date)):
        if value is not None:
            request.send_header(name, value)
    request.end_headers()
    end = start + shelf.cuts.pop(0) if shelf.cuts else size
    request.wfile.write(shelf.content[start:end])
