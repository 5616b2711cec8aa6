"""Files that are whole or not at all: written beside their place, moved into it, locked, and read with care."""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from loca.errors import DataError, ModelFileError

if sys.platform != "win32":
    import fcntl

MANIFEST = "model.json"
MAX_JSON = 32 * 1024 * 1024
_DATA_FILE = re.compile(
    r"(?:arrays|known|users|items|model)-[0-9a-f]{8}-[0-9]{1,6}\.(?:safetensors|json)", re.ASCII
)


def advice_on(error: OSError) -> str:
    """What to do about a failed write: free space where there is too little, else choose another folder."""
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return "free some disk space or choose another folder" if is_full else "choose another folder"


def is_data_file(name: str) -> bool:
    """Whether a name is one that a save gives to its data files: no folder, no dots, nothing foreign."""
    return _DATA_FILE.fullmatch(name) is not None


@dataclass
class NewFiles:
    """The new files of one save, under names of their own, and their sizes; the last one is the manifest."""

    folder: Path
    token: str = field(default_factory=lambda: secrets.token_hex(4))
    sizes: dict[str, int] = field(default_factory=dict)

    @contextmanager
    def file(self, what: str, ending: str) -> Iterator[tuple[str, BinaryIO]]:
        """The name of a new file and the file itself, to be written; it is on the disk when this ends."""
        name = f"{what}-{self.token}-{len(self.sizes)}.{ending}"
        self.sizes[name] = 0
        with open(self.folder / name, "xb") as file:
            yield name, file
            file.flush()
            os.fsync(file.fileno())
            self.sizes[name] = file.tell()

    def taken(self, what: str, path: Path, size: int | None) -> str:
        """The name of a new file that is a file of another model: linked, or copied where it cannot be."""
        check_plain(path, size=size)
        name = f"{what}-{self.token}-{len(self.sizes)}{path.suffix}"
        self.sizes[name] = 0
        try:
            os.link(path, self.folder / name)
        except OSError:
            shutil.copyfile(path, self.folder / name)
        with open(self.folder / name, "rb") as file:
            os.fsync(file.fileno())
        self.sizes[name] = path.stat().st_size
        return name


@contextmanager
def updating(folder: Path) -> Iterator[NewFiles]:
    """An update of the folder, made when missing, that is in force all at once when the block ends.

    One move of the last new file over the old manifest does it; then the old files go. Whatever goes wrong before
    takes back what was written.
    """
    with locked(folder, "another save into it is under way"):
        update, manifest = NewFiles(folder), None
        try:
            yield update
            _sync(folder)
            manifest = folder / [*update.sizes][-1]
            os.replace(manifest, folder / MANIFEST)
        except BaseException:
            # Unless the move was made: then its source is gone and the new files are the model.
            if manifest is None or manifest.exists():
                remove_files(folder, update.sizes, lenient=True)
            raise
        with suppress(OSError):
            # Were the move lost with the power, the old manifest would come back, and want its files.
            _sync(folder)
            old = {name for name in os.listdir(folder) if is_data_file(name)} - update.sizes.keys()
            remove_files(folder, old, lenient=True)


@contextmanager
def locked(path: Path, problem: str | None = None) -> Iterator[None]:
    """Hold the lock of a file or folder, which goes with the process; a locked one is refused with the `problem`.

    A missing folder is made; folders made for it that end empty are removed. Without a problem to name, wait for the
    lock of a file, made when missing. Where a file system has no locks, nobody is shut out: what is written is as safe
    as ever against a kill.
    """
    missing = [one for one in (path, *path.parents) if problem and not one.exists()]
    if missing:
        path.mkdir(parents=True, exist_ok=True)
    handle = None
    if sys.platform != "win32":  # which cannot open a folder
        handle = os.open(path, os.O_RDONLY if problem else os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (fcntl.LOCK_NB if problem else 0))
        except BlockingIOError:
            os.close(handle)
            raise ModelFileError(f"{path}: {problem}; try again when it has ended") from None
        except OSError:
            pass
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)
        for one in missing:
            with suppress(OSError):
                one.rmdir()


def _sync(folder: Path) -> None:
    """Wait until the names in a folder are on the disk, where a folder can be opened."""
    if sys.platform == "win32":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_plain(path: Path, *, most: int = MAX_JSON) -> bytes:
    """The bytes of a plain file, at most so many; never follows a link or waits on a pipe."""
    check_plain(path)
    with open(path, "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise ModelFileError(f"{path}: expected at most {most:,} bytes; this is not a loca model")
    return data


def check_plain(path: Path, *, size: int | None = None) -> None:
    """Refuse a file that is missing, a link, a device, or not of the size expected of it."""
    problem, found = "", os.lstat(path) if os.path.lexists(path) else None
    if found is None:
        problem = "missing; the model is incomplete, copy its folder again or save it anew"
    elif not stat.S_ISREG(found.st_mode):
        problem = "expected a plain file, found a link, a folder or a device"
    elif size not in (None, found.st_size):
        problem = (
            f"expected {size:,} bytes, found {found.st_size:,}; damaged, copy the folder again"
        )
    if problem:
        raise ModelFileError(f"{path}: {problem}")


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
        with suppress(
            OSError
        ):  # the file is in its place; some file systems have no way to wait for that
            _sync(path.parent)
    finally:
        remove_files(path.parent, [name], lenient=True)


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write into, which appears when the block ends; its folder is made where it is missing."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # A name of its own: two that write the same file, on any machines, do not write into each other's.
        with written_beside(path, f".{path.name}.{secrets.token_hex(4)}.new") as file:
            yield file
    except OSError as error:
        raise DataError(
            f"{path}: cannot be written ({error.strerror or error}); choose another place"
        ) from None


def write_whole(path: Path, content: bytes | str) -> None:
    """Write a file, text as UTF-8, into a folder that is made where it is missing."""
    with whole_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def remove_files(folder: Path, names: Iterable[str], *, lenient: bool = False) -> None:
    """Remove files of the folder in the order given, where they are there; if `lenient`, as far as that goes."""
    for name in names:
        with suppress(OSError if lenient else FileNotFoundError):
            (folder / name).unlink()
