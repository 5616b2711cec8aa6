"""Files that are whole or not at all: written beside their place, moved into it, locked, and read with care."""

from __future__ import annotations

import os
import re
import secrets
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
_DATA_FILE = re.compile(r"(?:arrays|known|users|items|model)-[0-9a-f]{8}-[0-9]{1,6}\.(?:safetensors|json)", re.ASCII)


def is_data_file(name: str) -> bool:
    """Whether a name is one that a save gives to its data files: no folder, no dots, nothing foreign."""
    return _DATA_FILE.fullmatch(name) is not None


@dataclass
class FolderUpdate:
    """The new files of one save, under names of their own, until `commit` puts them in force all at once."""

    folder: Path
    token: str = field(default_factory=lambda: secrets.token_hex(4))
    sizes: dict[str, int] = field(default_factory=dict)
    manifest: str | None = None

    @contextmanager
    def new_file(self, what: str, ending: str) -> Iterator[tuple[str, BinaryIO]]:
        """The name of a new file and the file itself, to be written; it is on the disk when this ends."""
        name = f"{what}-{self.token}-{len(self.sizes)}.{ending}"
        self.sizes[name] = 0
        with open(self.folder / name, "xb") as file:
            yield name, file
            file.flush()
            os.fsync(file.fileno())
            self.sizes[name] = file.tell()

    def commit(self, manifest: bytes) -> None:
        """Put the new files in force by one move of `manifest` over the old one; then the old files go."""
        with self.new_file("model", "json") as (name, file):
            file.write(manifest)
        _sync(self.folder)
        self.manifest = name
        os.replace(self.folder / name, self.folder / MANIFEST)
        with suppress(OSError):
            # Were the move lost with the power, the old manifest would come back, and want its files.
            _sync(self.folder)
            names = os.listdir(self.folder)
            old = [name for name in names if is_data_file(name) and name not in self.sizes]
            remove_files(self.folder, old, lenient=True)


@contextmanager
def updating(folder: Path) -> Iterator[FolderUpdate]:
    """An update of the folder, made when missing; whatever goes wrong inside takes back what was written."""
    with locked_folder(folder, "another save into it is under way"):
        update = FolderUpdate(folder)
        try:
            yield update
        except BaseException:
            # Unless the move was made: then its source is gone and the new files are the model.
            if update.manifest is None or (folder / update.manifest).exists():
                remove_files(folder, update.sizes, lenient=True)
            raise


@contextmanager
def locked_folder(folder: Path, problem: str) -> Iterator[None]:
    """The folder, made when missing, and locked; folders made for it that end empty are removed."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with locked(folder, problem):
            yield
    finally:
        for one in missing:
            with suppress(OSError):
                one.rmdir()


@contextmanager
def locked(path: Path, problem: str | None = None) -> Iterator[None]:
    """Hold the lock of a file or folder, which goes with the process; a locked one is refused with the `problem`.

    Without a problem to name, wait for the lock of a file, which is made when missing. Where a system or a file system
    has no locks, nobody is shut out:
    what is written is as safe as ever against a kill.
    """
    if sys.platform == "win32":
        yield
        return
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
        os.close(handle)


def read_plain(path: Path, *, most: int | None = None) -> bytes:
    """The bytes of a plain file, at most so many; never follows a link or waits on a pipe."""
    check_plain(path)
    with open(path, "rb") as file:
        data = file.read(-1 if most is None else most + 1)
    if most is not None and len(data) > most:
        raise ModelFileError(f"{path}: expected at most {most:,} bytes; this is not a loca model")
    return data


def check_plain(path: Path, *, size: int | None = None) -> None:
    """Refuse a file that is missing, a link, a device, or not of the size expected of it."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        raise ModelFileError(
            f"{path}: missing; the model is incomplete, copy its folder again or save it anew"
        ) from None
    if not stat.S_ISREG(found.st_mode):
        raise ModelFileError(f"{path}: expected a plain file, found a link, a folder or a device")
    if size is not None and found.st_size != size:
        raise ModelFileError(
            f"{path}: expected {size:,} bytes, found {found.st_size:,}; damaged, copy the folder again"
        )


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
        with suppress(OSError):  # the file is in its place; some file systems have no way to wait for that
            _sync(path.parent)
    finally:
        remove_files(path.parent, [name], lenient=True)


def write_whole(path: Path, content: bytes | str) -> None:
    """Write a file, text as UTF-8, into a folder that is made where it is missing."""
    data = content.encode() if isinstance(content, str) else content
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Its own name for every process: two that write the same file do not write into each other's.
        with written_beside(path, f".{path.name}.{os.getpid()}.new") as file:
            file.write(data)
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror or error}); choose another place") from None


def remove_files(folder: Path, names: Iterable[str], *, lenient: bool = False) -> None:
    """Remove files of the folder in the order given, where they are there; if `lenient`, as far as that goes."""
    for name in names:
        with suppress(OSError if lenient else FileNotFoundError):
            (folder / name).unlink()


def _sync(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    if sys.platform == "win32":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
