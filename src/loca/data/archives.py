"""Plain bytes that can be read again and again: a file as it is, gzipped, a member of a zip, or standard input."""

from __future__ import annotations

import atexit
import gzip
import lzma
import os
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import IO, cast

from loca.errors import DataError, did_you_mean

BLOCK_BYTES = 1 << 25
HEAD_BYTES = 1 << 18
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
STANDARD_INPUT = "-"
_STREAM_BYTES = 1 << 36
_GZIP = b"\x1f\x8b"
DAMAGED_ZIP = "the zip file is cut short or damaged"
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_TABLE_SUFFIXES = tuple(
    ".csv .tsv .dat .data .rating .ratings .txt .inter .json .jsonl .ndjson .parquet .gz".split()
)


@contextmanager
def reporting_damage(name: str, damage: str = "the packed data is damaged") -> Iterator[None]:
    """Damage found while a file is read is reported in one line that begins with `name`."""
    try:
        yield
    except (EOFError, zlib.error, lzma.LZMAError) as error:
        raise DataError(f"{name}: the packed data is cut short or damaged ({error})") from error
    except (gzip.BadGzipFile, zipfile.BadZipFile) as error:
        raise DataError(f"{name}: {damage} ({error})") from error
    except RuntimeError as error:
        raise DataError(f"{name}: cannot be unpacked ({error})") from error
    except OSError as error:
        raise DataError(f"{name}: cannot be read ({error.strerror or error})") from error


@dataclass(frozen=True)
class Source:
    """Where the bytes of one table are; `member` names the file inside a zip, `title` what stands for a path."""

    path: Path
    member: str | None = None
    title: str | None = None

    @property
    def name(self) -> str:
        """What messages call it."""
        name = self.title or self.path.name
        return name if self.member is None else f"{name}/{self.member}"

    @contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        """The plain bytes as a stream; damage found on the way is reported in one line."""
        with reporting_damage(self.name), ExitStack() as stack:
            if self.member is None:
                packed: IO[bytes] = stack.enter_context(self.path.open("rb"))
            else:
                archive = stack.enter_context(zipfile.ZipFile(self.path))
                packed = stack.enter_context(archive.open(self.member))
            start = packed.read(2)
            packed.seek(0)
            yield cast(IO[bytes], gzip.GzipFile(fileobj=packed)) if start == _GZIP else packed

    def is_plain(self) -> bool:
        """Whether the file is neither gzipped nor inside a zip, so that a path to it is enough."""
        with self.path.open("rb") as stream:
            return self.member is None and stream.read(2) != _GZIP

    def read(self, size: int = -1) -> bytes:
        """All bytes, or the first ones, without a byte order mark; a file with nothing in it is refused."""
        with self.opened() as stream:
            data = stream.read(size).removeprefix(_BYTE_ORDER_MARK)
        if not data.strip():
            raise DataError(f"{self.name}: the file is empty")
        return data

    def line_blocks(
        self, size: int = BLOCK_BYTES, *, quoted: bool = False
    ) -> Iterator[tuple[int, bytes]]:
        """Blocks of whole lines, each with the number of its first line; `quoted` fields may hold line ends."""
        line, rest = 1, b""
        with self.opened() as stream:
            while chunk := stream.read(size):
                rest = rest + chunk if rest or line > 1 else chunk.removeprefix(_BYTE_ORDER_MARK)
                cut = rest.rfind(b"\n") + 1
                # An odd number of quotes means that the cut would fall inside a quoted field.
                if cut == 0 or (quoted and rest.count(b'"', 0, cut) % 2):
                    continue
                block, rest = rest[:cut], rest[cut:]
                yield line, block
                line += block.count(b"\n")
        if rest:
            yield line, rest


def find_source(path: str | Path, members: Sequence[str] = ()) -> Source:
    """The table at `path`; in a zip or a folder it is the one of `members` found there, or the only table.

    The path `-` is standard input, which is read to its end.
    """
    if str(path) == STANDARD_INPUT:
        return _find_table(_saved_stream(sys.stdin.buffer), members, "standard input")
    found = Path(path).expanduser()
    with reporting_damage(f"{str(found)[:100]}…" if len(str(found)) > 100 else str(found)):
        if not found.exists():
            near = [one.name for one in found.parent.iterdir()] if found.parent.is_dir() else []
            raise DataError(f"{found}: there is no such file{did_you_mean(found.name, near)}")
    if found.is_dir():
        inside = [
            found / name for member in members for name in (member, PurePosixPath(member).name)
        ]
        if candidate := next((one for one in inside if one.is_file()), None):
            return find_source(candidate)
        expected = " or ".join(members) or "a file"
        raise DataError(f"{found}: is a folder; expected {expected} in it, or the path of a file")
    return _find_table(found, members)


@cache
def _saved_stream(stream: IO[bytes]) -> Path:
    """A temporary file of all that a stream holds: tables are looked at before they are read."""
    if stream.isatty():
        raise DataError(
            "standard input: is a terminal; expected data from a pipe or a file, such as  < ratings.csv"
        )
    with reporting_damage("standard input"):
        handle, name = tempfile.mkstemp(prefix="loca-input-")
        atexit.register(Path(name).unlink, missing_ok=True)
        with os.fdopen(handle, "wb") as file:
            while chunk := stream.read(1 << 20):
                if file.tell() + len(chunk) > _STREAM_BYTES:
                    raise DataError(
                        f"standard input: more than {_STREAM_BYTES >> 30} GiB; give the path of a file"
                    )
                file.write(chunk)
    return Path(name)


def _find_table(found: Path, members: Sequence[str], title: str | None = None) -> Source:
    name = title or found.name
    with reporting_damage(title or str(found)), found.open("rb") as stream:
        start = stream.read(4)
    if not start:
        raise DataError(f"{name}: {'there is nothing to read' if title else 'the file is empty'}")
    if start not in _ZIP:
        for suffix, kind, is_such in (
            (".zip", "zip", False),
            (".gz", "gzip", start.startswith(_GZIP)),
        ):
            if found.suffix.lower() == suffix and not is_such:
                raise DataError(f"{name}: not a {kind} file, in spite of its name")
        return Source(found, title=title)
    with reporting_damage(name, DAMAGED_ZIP), zipfile.ZipFile(found) as archive:
        names = [
            one
            for one in archive.namelist()
            if not one.endswith("/") and not one.startswith("__MACOSX")
        ]
    names = [one for one in names if not PurePosixPath(one).name.startswith(".")]
    if not names:
        raise DataError(f"{name}: the zip file holds no files")
    for member in members:
        if member in names:
            return Source(found, member, title)
        same_name = [one for one in names if PurePosixPath(one).name == PurePosixPath(member).name]
        if len(same_name) == 1:
            return Source(found, same_name[0], title)
    tables = [one for one in names if one.lower().endswith(_TABLE_SUFFIXES)] or names
    if len(tables) > 1:
        listed = ", ".join(tables[:5]) + (", …" if len(tables) > 5 else "")
        raise DataError(
            f"{name}: expected one table, found {len(tables)} ({listed}); unpack the one you mean"
        )
    return Source(found, tables[0], title)
