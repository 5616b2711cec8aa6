"""Files that are written whole or not at all: beside their place, then moved there."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from loca.errors import DataError


@contextmanager
def written_beside(path: Path, name: str) -> Iterator[BinaryIO]:
    """A file called `name` beside `path` to write into, which becomes `path` when the block ends, once on the disk.

    After an error what was there before stays, and nothing else.
    """
    beside = path.with_name(name)
    try:
        with open(beside, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
        if sys.platform != "win32":
            with suppress(OSError):  # the file is in its place; some file systems have no way to wait for that
                _sync(path.parent)
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes | str) -> None:
    """Writes a file, text as UTF-8, into a folder that is made where it is missing."""
    data = content.encode() if isinstance(content, str) else content
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Its own name for every process: two that write the same file do not write into each other's.
        with written_beside(path, f".{path.name}.{os.getpid()}.new") as file:
            file.write(data)
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror or error}); choose another place") from None


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
