"""Downloading a public data set: its terms are shown, its bytes are checked, and only a whole file takes its place."""

from __future__ import annotations

import hashlib
import http.client
import json
import math
import os
import re
import shutil
import ssl
import sys
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from loca.data.archives import BLOCK_BYTES, DAMAGED_ZIP, Source, reporting_damage
from loca.data.datasets import Checksum, DataSet
from loca.errors import DataError
from loca.progress import bar, say

if sys.platform != "win32":
    import fcntl

_CHUNK_BYTES = 1 << 18
_MEGABYTE = 1e6
# Answers that may be others a moment later: the server is busy, wants patience, or stands behind one that failed.
_PASSING_CODES = frozenset({408, 425, 429, 500, 502, 503, 504})
_ROOM = "make it writable, make room, or take another folder with --to"


@dataclass(frozen=True)
class Patience:
    """How long a silent server is waited for, how often a failure is answered by another try, and after what pause.

    Tries are counted anew whenever more has arrived than ever before; the pause doubles from failure to failure.
    """

    timeout: float = 30.0
    tries: int = 4
    pause: float = 1.0


@dataclass(frozen=True)
class Fetched:
    """A public data set on this machine: where it lies and what its bytes sum to; `is_new` if just downloaded."""

    path: Path
    size: int
    is_new: bool
    checksum: Checksum

    @property
    def assurance(self) -> str:
        """What is known about the bytes, in a few words."""
        return {
            "publisher": f"{self.checksum.title} as published",
            "project": f"{self.checksum.title} as this project recorded it; the publisher states none",
            "download": "not verified against a publisher, who states no checksum; its own SHA-256 lies beside it",
        }[self.checksum.origin]


def data_folder(chosen: Path | None = None, environment: Mapping[str, str] = os.environ) -> Path:
    """Where downloaded data goes: the chosen folder, else LOCA_DATA, else loca/data in the user's cache folder."""
    if chosen is not None or environment.get("LOCA_DATA"):
        return Path(chosen or environment["LOCA_DATA"]).expanduser()
    cache = Path(environment.get("XDG_CACHE_HOME", ""))
    # The XDG rules have a relative path ignored.
    return (cache if cache.is_absolute() else Path.home() / ".cache") / "loca" / "data"


def find_below(folder: Path, files: Iterable[str]) -> Path | None:
    """The first of the files that is there, below the folder that data goes to."""
    return next((folder / one for one in files if (folder / one).exists()), None)


def megabytes(size: float) -> str:
    """A size for people to read."""
    return f"{size / _MEGABYTE:,.1f} MB"


def fetch(
    data_set: DataSet, folder: Path, *, again: bool = False, patience: Patience | None = None
) -> Fetched:
    """The data set's file in `folder`/its name, downloaded unless it is there and sound; `again` downloads anew.

    The licence is shown before the download. A file that was there stays as it is until a sound one takes its place.
    """
    path = folder / data_set.name / data_set.file_name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _alone_in(path.parent):
            is_new = again or not path.exists()
            if is_new:
                say(f"{data_set.name}: {data_set.about}. By {data_set.licence.maker}.")
                say(f"Terms: {data_set.licence.terms}. See {data_set.licence.address}")
                try:
                    checksum = _Download(data_set, path, patience or Patience()).run()
                finally:
                    with suppress(OSError):
                        path.parent.rmdir()  # only where nothing arrived: an empty folder would look like a data set
            else:
                checksum = _check_present(data_set, path)
                say(f"{data_set.name}: already there and sound, not downloaded again ({path})")
            return Fetched(path, path.stat().st_size, is_new, checksum)
    except OSError as error:
        reason = f"{error.filename or path.parent} cannot be used ({error.strerror or error})"
        raise DataError(f"{data_set.name}: {reason}; {_ROOM}") from error


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Two downloads into one file would mix their bytes: the second is refused while the first lasts."""
    if sys.platform == "win32":
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError(
                f"{folder}: another program is fetching into it; try again when it has ended"
            ) from None
        except OSError:
            pass  # Some network file systems have no locks; the checksum still notices mixed bytes.
        yield
    finally:
        os.close(handle)


# -- Checks ------------------------------------------------------------------------------------------------------------


def _check_present(data_set: DataSet, path: Path) -> Checksum:
    """The checksum of a file that is there already, if its bytes are what they should be."""
    expected, record = data_set.checksum, _record_of(path)
    if expected is None and not record.exists():
        _check_opens(path, data_set.file_name)
        return _record_own(path, _digest(path, "sha256"))
    if expected is None:
        found = re.match(
            r"[0-9a-f]{64}(?!\S)", record.read_text(encoding="utf-8", errors="replace")
        )
        if found is None:
            raise DataError(
                f"{record}: expected a SHA-256 and a file name; remove it to take stock of the file anew"
            )
        expected = Checksum("sha256", found[0], "download")
    if (digest := _digest(path, expected.algorithm)) != expected.digest:
        difference = f"its {expected.title} is {digest}, expected {expected.digest}"
        raise DataError(
            f"{path}: {difference}; it is damaged or another version, --again downloads it anew"
        )
    return expected


def _check_opens(path: Path, name: str) -> None:
    """Reads a packed file to its end; one that is damaged, empty, or not packed in spite of its name is refused."""
    if path.stat().st_size == 0:
        raise DataError(f"{name}: the file is empty")
    if name.endswith(".zip"):
        with reporting_damage(name, DAMAGED_ZIP), zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
        if damaged is not None:
            raise DataError(f"{name}: the zip file is damaged at {damaged}")
    elif name.endswith(".gz"):
        if Source(path).is_plain():
            raise DataError(f"{name}: not a gzip file, in spite of its name")
        with Source(path).opened() as stream:
            while stream.read(BLOCK_BYTES):
                pass


def _digest(path: Path, algorithm: str) -> str:
    # MD5 guards against accidents here, which machines that forbid it for secrets allow.
    with path.open("rb") as file:
        return hashlib.file_digest(
            file, lambda: hashlib.new(algorithm, usedforsecurity=False)
        ).hexdigest()


def _record_of(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


def _record_own(path: Path, digest: str) -> Checksum:
    """Writes the SHA-256 of a file for which nobody states one beside it."""
    beside = path.with_name(path.name + ".sha256.part")
    # The form of sha256sum, which can check it too.
    beside.write_text(f"{digest}  {path.name}\n", encoding="utf-8")
    beside.replace(_record_of(path))
    return Checksum("sha256", digest, "download")


# -- Transfer ----------------------------------------------------------------------------------------------------------


class _RefusedError(Exception):
    """This address will not give the file, however often it is tried."""


class _CutError(Exception):
    """The connection failed; it may work another time."""


class _UnreachedError(_CutError):
    """The server has not answered at all."""


class _WebRedirects(urllib.request.HTTPRedirectHandler):
    """Follows the web alone, and from a protected address only to another protected one."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: Any,
        newurl: str,
    ) -> urllib.request.Request | None:
        scheme = urlsplit(newurl).scheme
        if scheme not in ("http", "https") or (scheme == "http" and req.type == "https"):
            fp.close()
            raise _RefusedError(f"it leads on to {newurl}, which is not followed")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _Download:
    """Brings one file: what has arrived lies in `part`; `note` says where that came from and which version it is."""

    def __init__(self, data_set: DataSet, path: Path, patience: Patience) -> None:
        self.data_set, self.path, self.patience = data_set, path, patience
        self.part, self.note = (
            path.with_name(path.name + ending) for ending in (".part", ".part.json")
        )

    @property
    def size(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def arrived(self, address: str) -> tuple[int, str]:
        """How many bytes came from this address, and of which version (ETag or date); 0 where no note says so."""
        with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            note = json.loads(self.note.read_text(encoding="utf-8"))
            version = note["version"]
            # It is sent back as a header, which takes no other signs.
            if note["address"] == address and version.isascii() and version.isprintable():
                return self.size, version
        return 0, ""

    def restart(self, address: str | None = None, version: str | None = None) -> None:
        """Throws away what has arrived; a version without a sign gets no note, so it is never gone on with."""
        self.note.unlink(missing_ok=True)
        self.part.unlink(missing_ok=True)
        if version is not None:
            self.note.write_text(
                json.dumps({"address": address, "version": version}), encoding="utf-8"
            )

    def run(self) -> Checksum:
        """Puts the whole file in its place, from the first address that gives it; else what arrived stays for later.

        An address from which something has arrived before comes first.
        """
        name, path, reasons = self.data_set.name, self.path, []
        for address in sorted(self.data_set.addresses, key=lambda one: self.arrived(one)[0] == 0):
            try:
                self.receive_patiently(address)
                break
            except _RefusedError as error:
                reasons.append(f"{address}: {error}")
        else:
            way_on = f"check the network and try again, or get the file by other means and put it at {path}"
            if self.size:
                way_on = f"{megabytes(self.size)} are saved, run the same command later to go on from there"
            raise DataError(f"{name}: could not be downloaded ({'; '.join(reasons)}); {way_on}")
        expected = self.data_set.checksum
        digest = _digest(self.part, "sha256" if expected is None else expected.algorithm)
        try:
            if expected is None:
                _check_opens(self.part, path.name)
                # Unlike a packed file, a text does not say itself where it ends.
                with self.part.open("rb") as file:
                    file.seek(-1, os.SEEK_END)
                    if path.suffix not in (".zip", ".gz") and file.read() != b"\n":
                        problem = "the download ends within a line, so it was cut short; it was removed, try again"
                        raise DataError(f"{path.name}: {problem}")
            elif digest != expected.digest:
                difference = (
                    f"the download has the {expected.title} {digest}, expected {expected.digest}"
                )
                advice = "it was removed, try again, and if it stays so the publisher has changed the file"
                raise DataError(f"{name}: {difference}; {advice}")
        except DataError:
            self.restart()
            raise
        # Gone before the move: a stop between the two leaves a file without a record, which is taken stock of anew.
        _record_of(path).unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)
        self.part.replace(path)
        return _record_own(path, digest) if expected is None else expected

    def receive_patiently(self, address: str) -> None:
        # Bytes of another address are not gone on with, so they are no mark to get past.
        first = furthest = self.arrived(address)[0]
        failures = 0
        while True:
            try:
                return self.receive(address)
            except _CutError as cut:
                failures = 0 if self.size > furthest else failures + 1
                furthest = max(furthest, self.size)
                # Without a network the first try says so; later the network may be back in a moment.
                if failures >= self.patience.tries or (
                    isinstance(cut, _UnreachedError) and furthest == first
                ):
                    raise _RefusedError(str(cut)) from cut
                pause = self.patience.pause * 2**failures
                say(f"{self.data_set.name}: {cut}; trying again in {pause:.0f} s")
                time.sleep(pause)

    def receive(self, address: str) -> None:
        """Gets what is missing and writes it; a server that does not know the version, or no parts, sends all anew."""
        begun, version = self.arrived(address)
        resumed = {"Range": f"bytes={begun}-", "If-Range": version} if begun else {}
        headers = {"User-Agent": "loca", "Accept-Encoding": "identity", **resumed}
        request = urllib.request.Request(address, headers=headers)
        if request.type not in ("http", "https"):
            raise _RefusedError("expected an address that begins with https:// or http://")
        try:
            response = urllib.request.build_opener(_WebRedirects).open(
                request, timeout=self.patience.timeout
            )
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 416 and begun:
                    if error.headers.get("Content-Range") == f"bytes */{begun}":
                        return  # nothing is missing
                    self.restart()
                    raise _CutError(
                        "what had arrived does not fit the file, which begins anew"
                    ) from error
                kind = _CutError if error.code in _PASSING_CODES else _RefusedError
                raise kind(f"the server answers {error.code} {error.reason}") from error
        except urllib.error.URLError as error:
            if isinstance(error.reason, ssl.SSLCertVerificationError):
                raise _RefusedError(
                    f"its certificate is not trusted: {error.reason.verify_message}"
                ) from error
            reason = getattr(error.reason, "strerror", None) or error.reason
            raise _UnreachedError(f"no connection: {reason}") from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise _CutError(_cause(error)) from error
        with response:
            if response.headers.get_content_type() == "text/html":
                advice = "it may have moved, or the network asks for a login"
                raise _RefusedError(f"a web page came instead of the file; {advice}")
            start, length = 0, response.headers.get("Content-Length", "")
            if response.status == 206:
                found = re.fullmatch(
                    r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", "")
                )
                if found is None or int(found[1]) != begun:
                    self.restart()
                    raise _CutError("the server sent another part than the one that was missing")
                start, length = begun, found[2]
            if start == 0:
                # What tells one version of the file from another: its ETag, unless that is a weak one, or its date.
                tag = response.headers.get("ETag")
                is_strong = tag and not tag.startswith("W/")
                self.restart(address, tag if is_strong else response.headers.get("Last-Modified"))
            self.append(response, start, int(length) if length.isdecimal() else 0)

    def append(self, response: IO[bytes], start: int, total: int) -> None:
        """Writes the answer behind what has arrived; one that ends before its `total` (0 if unknown) is a cut."""
        name, missing, free = self.data_set.name, total - start, math.inf
        with suppress(OSError):
            free = shutil.disk_usage(self.part.parent).free
        if free < missing:
            room = f"{self.part.parent} has {megabytes(free)} free; make room, or take another folder with --to"
            raise DataError(f"{name}: {megabytes(missing)} are to come, and {room}")
        # Counted in megabytes: bytes would fill the line with digits.
        with self.part.open("ab") as file, bar(f"{name}, MB", total / _MEGABYTE) as progress:
            progress.advance(start / _MEGABYTE)
            while True:
                try:
                    chunk = response.read(_CHUNK_BYTES)
                except (OSError, http.client.HTTPException) as error:
                    raise _CutError(_cause(error)) from error
                if not chunk:
                    break
                file.write(chunk)
                progress.advance(len(chunk) / _MEGABYTE)
        if self.size < total:
            raise _CutError(
                f"the connection was cut at {megabytes(self.size)} of {megabytes(total)}"
            )


def _cause(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "the server fell silent"
    return f"the connection was cut ({str(error) or type(error).__name__})"
