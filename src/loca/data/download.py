"""Fetching a public data set: its terms are told, its bytes are checked, and only a whole file takes its place."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import shutil
import ssl
import sys
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import IO, Any, cast
from urllib.parse import urlsplit

from loca.data.archives import BLOCK_BYTES, Source
from loca.data.datasets import Algorithm, Checksum, PublicSet
from loca.errors import DataError
from loca.progress import bar, say

_CHUNK_BYTES = 1 << 18
_MEGABYTE = 1e6
# Answers that may be others a moment later: the server is busy, asks for patience, or stands behind one that failed.
_PASSING_CODES = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True)
class Patience:
    """How long a silent server is waited for, how often a failure is answered by another try, and after what pause.

    Tries are counted anew whenever more has arrived than ever before; the pause doubles from failure to failure.
    """

    timeout: float = 30.0
    tries: int = 4
    pause: float = 1.0


@dataclass(frozen=True)
class Part:
    """What has arrived of a file; beside it lies a note of where it came from and which version it is."""

    path: Path

    @property
    def size(self) -> int:
        """How many bytes have arrived."""
        return self.path.stat().st_size if self.path.exists() else 0

    @property
    def _note(self) -> Path:
        return self.path.with_name(self.path.name + ".json")

    def read_note(self) -> tuple[str, str] | None:
        """The address and the version's sign (ETag or date); None where the note is missing or not readable."""
        try:
            note = json.loads(self._note.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        address, version = (note.get("address"), note.get("version")) if isinstance(note, dict) else (None, None)
        if not isinstance(address, str) or not isinstance(version, str):
            return None
        # It is sent back as a header, which takes no other signs.
        return (address, version) if version.isascii() and version.isprintable() else None

    def write_note(self, address: str, version: str | None) -> None:
        """Says where the bytes come from; a version without a sign gets no note, so it is never gone on with."""
        if version is None:
            self._note.unlink(missing_ok=True)
        else:
            self._note.write_text(json.dumps({"address": address, "version": version}), encoding="utf-8")

    def remove(self) -> None:
        """Throws away what has arrived."""
        self._note.unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)

    def move_to(self, path: Path) -> None:
        """Puts the whole file in its place, over an older one."""
        self._note.unlink(missing_ok=True)
        self.path.replace(path)


class _RefusedError(Exception):
    """This address will not give the file, however often it is asked."""


class _CutError(Exception):
    """The connection failed; `is_reached` says whether the server had answered at all."""

    def __init__(self, reason: str, *, is_reached: bool = True) -> None:
        super().__init__(reason)
        self.is_reached = is_reached


class _WebRedirects(urllib.request.HTTPRedirectHandler):
    """Follows the web alone, and from a protected address only to another protected one."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        scheme = urlsplit(newurl).scheme
        if scheme not in ("http", "https") or (scheme == "http" and req.type == "https"):
            fp.close()
            raise _RefusedError(f"it leads on to {newurl}, which is not followed")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def download(name: str, addresses: Sequence[str], part: Part, patience: Patience) -> None:
    """Leaves the whole file in `part`, from the first address that gives it; what has arrived stays for another time.

    An address from which something has arrived before is asked first.
    """
    note = part.read_note()
    reasons = []
    for address in sorted(addresses, key=lambda one: note is None or one != note[0]):
        try:
            _receive_patiently(name, address, part, patience)
            return
        except _RefusedError as error:
            reasons.append(f"{address}: {error}")
    whole = part.path.with_suffix("")
    way_on = (
        f"{megabytes(part.size)} are kept, run the same command later to go on from there"
        if part.size
        else f"check the network and try again, or get the file by other means and put it at {whole}"
    )
    raise DataError(f"{name}: could not be downloaded ({'; '.join(reasons)}); {way_on}")


def megabytes(size: float) -> str:
    """A size for people to read."""
    return f"{size / _MEGABYTE:,.1f} MB"


def _receive_patiently(name: str, address: str, part: Part, patience: Patience) -> None:
    note = part.read_note()
    # Bytes of another address are not gone on with, so they are no mark to get past.
    first = furthest = part.size if note is not None and note[0] == address else 0
    failures = 0
    while True:
        try:
            return _receive(name, address, part, patience.timeout)
        except _CutError as cut:
            failures = 0 if part.size > furthest else failures + 1
            furthest = max(furthest, part.size)
            # Without a network the first try says so; later the network may be back in a moment.
            if failures >= patience.tries or (not cut.is_reached and furthest == first):
                raise _RefusedError(str(cut)) from cut
            pause = patience.pause * 2**failures
            say(f"{name}: {cut}; trying again in {pause:.0f} s")
            time.sleep(pause)


def _receive(name: str, address: str, part: Part, timeout: float) -> None:
    """Asks for what is missing and writes it; a server that does not know the version, or no parts, sends all anew."""
    note = part.read_note()
    begun = part.size if note is not None and note[0] == address else 0
    request = urllib.request.Request(address, headers={"User-Agent": "loca", "Accept-Encoding": "identity"})
    if request.type not in ("http", "https"):
        raise _RefusedError("expected an address that begins with https:// or http://")
    if note is not None and begun:
        request.add_header("Range", f"bytes={begun}-")
        request.add_header("If-Range", note[1])
    response = _open(request, part, begun, timeout)
    if response is None:
        return
    with response:
        if response.headers.get_content_type() == "text/html":
            raise _RefusedError(
                "a web page came instead of the file; it may have moved, or the network asks for a login"
            )
        start, total = _place(response, part, begun)
        if start == 0:
            part.remove()
            part.write_note(address, _version(response.headers))
        _write_on(name, response, part, start, total)


def _open(request: urllib.request.Request, part: Part, begun: int, timeout: float) -> http.client.HTTPResponse | None:
    """The answer, read up to its body; None where the server says that nothing is missing."""
    opener = urllib.request.build_opener(_WebRedirects)
    try:
        response = opener.open(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 416 and begun:
                if error.headers.get("Content-Range") == f"bytes */{begun}":
                    return None
                part.remove()
                raise _CutError("what had arrived does not fit the file, which begins anew") from error
            said = f"the server answers {error.code} {error.reason}"
        raise (_CutError(said) if error.code in _PASSING_CODES else _RefusedError(said)) from error
    except urllib.error.URLError as error:
        if isinstance(error.reason, ssl.SSLCertVerificationError):
            raise _RefusedError(f"its certificate is not trusted: {error.reason.verify_message}") from error
        reason = getattr(error.reason, "strerror", None) or error.reason
        raise _CutError(f"no connection: {reason}", is_reached=False) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _CutError(_words(error)) from error
    return cast(http.client.HTTPResponse, response)


def _place(response: http.client.HTTPResponse, part: Part, begun: int) -> tuple[int, int | None]:
    """At which byte the answer begins, and how long the whole file is where the server says so."""
    if response.status != 206:
        length = response.headers.get("Content-Length", "")
        return 0, int(length) if length.isdecimal() else None
    found = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
    if found is None or int(found[1]) != begun:
        part.remove()
        raise _CutError("the server sent another part than the one that was missing")
    return begun, None if found[2] == "*" else int(found[2])


def _version(headers: Message) -> str | None:
    """What tells one version of the file from another: its ETag, unless that is a weak one, or its date."""
    tag = headers.get("ETag")
    return tag if tag and not tag.startswith("W/") else headers.get("Last-Modified")


def _write_on(name: str, response: http.client.HTTPResponse, part: Part, start: int, total: int | None) -> None:
    """Writes the answer behind what has arrived; an answer that ends before its time is a cut."""
    _check_space(name, part.path.parent, (total or 0) - start)
    # Counted in megabytes: bytes would fill the line with digits.
    with part.path.open("ab") as file, bar(f"{name}, MB", (total or 0) / _MEGABYTE) as progress:
        progress.advance(start / _MEGABYTE)
        while chunk := _read(response):
            file.write(chunk)
            progress.advance(len(chunk) / _MEGABYTE)
    if total is not None and part.size < total:
        raise _CutError(f"the connection was cut at {megabytes(part.size)} of {megabytes(total)}")
    if total is not None and part.size > total:
        part.remove()
        raise _CutError("more bytes came than the server had announced")


def _read(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read(_CHUNK_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise _CutError(_words(error)) from error


def _words(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "the server fell silent"
    return f"the connection was cut ({str(error) or type(error).__name__})"


def _check_space(name: str, folder: Path, missing: int) -> None:
    free = missing
    with suppress(OSError):
        free = shutil.disk_usage(folder).free
    if free < missing:
        raise DataError(
            f"{name}: {megabytes(missing)} are to come, and {folder} has {megabytes(free)} free; make room, or take "
            "another folder with --to"
        )


if sys.platform != "win32":
    import fcntl

_SHA256 = re.compile(r"([0-9a-f]{64})(?:\s.*)?", re.DOTALL)


@dataclass(frozen=True)
class Fetched:
    """A public data set on this machine: where it lies and what its bytes sum to; `is_new` if just downloaded."""

    public_set: PublicSet
    path: Path
    size: int
    checksum: Checksum
    is_new: bool

    @property
    def assurance(self) -> str:
        """What is known about the bytes, in a few words."""
        return {
            "publisher": f"{self.checksum.title} as published",
            "project": f"{self.checksum.title} as this project recorded it; the publisher states none",
            "download": "not verified against a publisher, who states no checksum; its own SHA-256 lies beside it",
        }[self.checksum.origin]


def data_folder(chosen: Path | None = None, environment: Mapping[str, str] = os.environ) -> Path:
    """Where fetched data goes: the chosen folder, else LOCA_DATA, else loca/data in the user's cache folder."""
    if chosen is not None:
        return chosen.expanduser()
    if environment.get("LOCA_DATA"):
        return Path(environment["LOCA_DATA"]).expanduser()
    cache = Path(environment.get("XDG_CACHE_HOME", ""))
    # The XDG rules have a relative path ignored.
    return (cache if cache.is_absolute() else Path.home() / ".cache") / "loca" / "data"


def fetch(public_set: PublicSet, folder: Path, *, again: bool = False, patience: Patience | None = None) -> Fetched:
    """The data set's file in `folder`/its name, downloaded unless it is there and sound; `again` downloads anew.

    The licence is told before the download. A file that was there stays as it is until a sound one takes its place.
    """
    home = folder / public_set.name
    path = home / public_set.file_name
    try:
        home.mkdir(parents=True, exist_ok=True)
        with _alone_in(home):
            if path.exists() and not again:
                found = _check_kept(public_set, path)
                say(f"{public_set.name}: already there and sound, not downloaded again ({path})")
                return found
            _tell_terms(public_set)
            try:
                return _download_checked(public_set, path, patience or Patience())
            finally:
                with suppress(OSError):
                    home.rmdir()  # goes only where nothing arrived: an empty folder would look like a data set
    except OSError as error:
        where = error.filename or home
        raise DataError(
            f"{public_set.name}: {where} cannot be used ({error.strerror or error}); make it writable, make room, or "
            "take another folder with --to"
        ) from error


def _tell_terms(public_set: PublicSet) -> None:
    licence = public_set.licence
    say(f"{public_set.name}: {public_set.about}. By {licence.maker}.")
    say(f"EvaluationProtocol: {licence.terms}. See {licence.address}")


def _download_checked(public_set: PublicSet, path: Path, patience: Patience) -> Fetched:
    part = Part(path.with_name(path.name + ".part"))
    download(public_set.name, public_set.addresses, part, patience)
    try:
        checksum = _check_arrived(public_set, part.path)
    except DataError:
        part.remove()
        raise
    record = _record_of(path)
    # Gone before the move: a stop between the two leaves a file without a record, which is taken stock of anew.
    record.unlink(missing_ok=True)
    part.move_to(path)
    if checksum.origin == "download":
        _write_record(path, checksum)
    return Fetched(public_set, path, path.stat().st_size, checksum, is_new=True)


def _check_arrived(public_set: PublicSet, arrived: Path) -> Checksum:
    """The checksum of what has arrived; where none is stated, it must at least look whole."""
    expected = public_set.checksum
    if expected is None:
        _check_opens(arrived, public_set.file_name)
        _check_ends_a_line(arrived, public_set.file_name)
        return Checksum("sha256", digest_of(arrived, "sha256"), "download")
    found = digest_of(arrived, expected.algorithm)
    if found != expected.digest:
        raise DataError(
            f"{public_set.name}: the download has the {expected.title} {found}, expected {expected.digest}; it was "
            "removed, try again, and if it stays so the publisher has changed the file"
        )
    return expected


def _check_kept(public_set: PublicSet, path: Path) -> Fetched:
    """A file that is there already, if its bytes are what they should be."""
    expected = public_set.checksum or _read_record(path)
    if expected is None:
        _check_opens(path, path.name)
        expected = Checksum("sha256", digest_of(path, "sha256"), "download")
        _write_record(path, expected)
    elif (found := digest_of(path, expected.algorithm)) != expected.digest:
        raise DataError(
            f"{path}: its {expected.title} is {found}, expected {expected.digest}; it is damaged or another version, "
            "--again downloads it anew"
        )
    return Fetched(public_set, path, path.stat().st_size, expected, is_new=False)


def digest_of(path: Path, algorithm: Algorithm) -> str:
    """The checksum of a file's bytes, in hexadecimal digits."""
    # MD5 guards against accidents here, which machines that forbid it for secrets allow.
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _check_opens(path: Path, name: str) -> None:
    """Reads a packed file to its end; one that is damaged, empty, or not packed in spite of its name is refused."""
    if path.stat().st_size == 0:
        raise DataError(f"{name}: the file is empty")
    if name.endswith(".zip"):
        try:
            with zipfile.ZipFile(path) as archive:
                damaged = archive.testzip()
        except zipfile.BadZipFile as error:
            raise DataError(f"{name}: the zip file is cut short or damaged ({error})") from error
        if damaged is not None:
            raise DataError(f"{name}: the zip file is damaged at {damaged}")
        return
    source = Source(path)
    if name.endswith(".gz") and source.is_plain():
        raise DataError(f"{name}: not a gzip file, in spite of its name")
    with source.opened() as stream:
        while stream.read(BLOCK_BYTES):
            pass


def _check_ends_a_line(path: Path, name: str) -> None:
    """Refuses a text that was cut within a line: unlike a packed file it does not say itself where it ends."""
    if name.endswith((".zip", ".gz")):
        return
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        if file.read() != b"\n":
            raise DataError(f"{name}: the download ends within a line, so it was cut short; it was removed, try again")


def _record_of(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


def _read_record(path: Path) -> Checksum | None:
    """The SHA-256 kept beside a file since its download; None where there is none."""
    record = _record_of(path)
    if not record.exists():
        return None
    found = _SHA256.fullmatch(record.read_text(encoding="utf-8", errors="replace"))
    if found is None:
        raise DataError(f"{record}: expected a SHA-256 and a file name; remove it to take stock of the file anew")
    return Checksum("sha256", found[1], "download")


def _write_record(path: Path, checksum: Checksum) -> None:
    record = _record_of(path)
    beside = record.with_name(record.name + ".part")
    # The form of sha256sum, which can check it too.
    beside.write_text(f"{checksum.digest}  {path.name}\n", encoding="utf-8")
    beside.replace(record)


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
            raise DataError(f"{folder}: another program is fetching into it; try again when it has ended") from None
        except OSError:
            pass  # Some network file systems have no locks; the checksum still tells mixed bytes.
        yield
    finally:
        os.close(handle)
