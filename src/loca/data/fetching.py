"""Fetching a public data set: its terms are told, its bytes are checked, and only a whole file takes its place."""

from __future__ import annotations

import hashlib
import os
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from loca.data.downloading import Part, Patience, download
from loca.data.public_sets import Algorithm, Checksum, PublicSet
from loca.data.sources import BLOCK_BYTES, Source
from loca.errors import DataError
from loca.progress import say

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
    say(f"Terms: {licence.terms}. See {licence.address}")


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
