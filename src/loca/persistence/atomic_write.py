"""Files that appear complete or not at all: written beside their place, moved, locked."""

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
# What a file system says that has no way to wait for the names in a folder.
_CANNOT_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
_DISK_IS_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def advice_on(error: OSError) -> str:
    """Return what to do about a failed write: free space where there is too little, else move."""
    if error.errno in _DISK_IS_FULL:
        return "free some disk space or choose another folder"
    return "choose another folder"


def is_data_file(name: str) -> bool:
    """Return whether a name is one that a save gives to its data files: no folder, no dots."""
    return _DATA_FILE.fullmatch(name) is not None


# -- Folders that change all at once --------------------------------------------------------------


@dataclass
class NewFiles:
    """The new files of a save and their sizes, each under a new name; the last is the manifest."""

    folder: Path
    token: str = field(default_factory=lambda: secrets.token_hex(4))
    sizes: dict[str, int] = field(default_factory=dict)

    @contextmanager
    def file(self, prefix: str, ending: str) -> Iterator[tuple[str, BinaryIO]]:
        """Yield the name of a new file, and the file to write; it is on the disk when this ends."""
        name = self._new_name(prefix, f".{ending}")
        with open(self.folder / name, "xb") as file:
            yield name, file
            file.flush()
            os.fsync(file.fileno())
            self.sizes[name] = file.tell()

    def link(self, prefix: str, path: Path, size: int | None) -> str:
        """Take over a file of another model, linked or else copied; return its new name."""
        check_plain(path, size=size)
        name = self._new_name(prefix, path.suffix)
        try:
            os.link(path, self.folder / name)
        except OSError:
            shutil.copyfile(path, self.folder / name)
        with open(self.folder / name, "rb") as file:
            os.fsync(file.fileno())
        self.sizes[name] = path.stat().st_size
        return name

    def _new_name(self, prefix: str, suffix: str) -> str:
        name = f"{prefix}-{self.token}-{len(self.sizes)}{suffix}"
        self.sizes[name] = 0
        return name


@contextmanager
def updating(folder: Path) -> Iterator[NewFiles]:
    """Update a folder, made when missing, so that all changes at once when the block ends.

    Moving the last new file over the old manifest does it; then the old files go. Whatever goes
    wrong before takes back what was written.
    """
    with lock_folder(folder, "another save into it is under way"):
        update = NewFiles(folder)
        manifest = None
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
            # Were the move lost with the power, the old manifest would come back, and need its
            # files.
            _sync(folder)
            data_files = {name for name in os.listdir(folder) if is_data_file(name)}
            remove_files(folder, data_files - update.sizes.keys(), lenient=True)


# -- Locks ----------------------------------------------------------------------------------------


@contextmanager
def lock_folder(folder: Path, refused_because: str) -> Iterator[None]:
    """Hold the lock of a folder, made when missing; refuse one that another process holds.

    Folders made for it that end empty are removed.
    """
    missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    handle = None
    try:
        if missing:
            folder.mkdir(parents=True, exist_ok=True)
        try:
            handle = _lock(folder, os.O_RDONLY, wait=False)
        except BlockingIOError:
            problem = f"{folder}: {refused_because}; try again when it has ended"
            raise ModelFileError(problem) from None
        yield
    finally:
        # Before the lock goes: nobody else may lock a folder that is about to go.
        for parent in missing:
            with suppress(OSError):
                parent.rmdir()
        if handle is not None:
            os.close(handle)


@contextmanager
def wait_for_lock(file: Path) -> Iterator[None]:
    """Hold the lock of a file, made when missing, once every other process has let it go."""
    handle = _lock(file, os.O_RDWR | os.O_CREAT, wait=True)
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


def _lock(path: Path, flags: int, *, wait: bool) -> int | None:
    """Return the handle that holds a lock, which goes with the process.

    Where a file system has no locks nobody is shut out, nor on Windows, which cannot open a folder
    (None): what is written is as safe as ever against a kill.
    """
    if sys.platform == "win32":
        return None
    handle = os.open(path, flags)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise
    except OSError:
        pass  # there are no locks
    return handle


def _sync(folder: Path) -> None:
    """Wait until the names in a folder are on the disk, where its file system has a way to."""
    if sys.platform == "win32":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise
    finally:
        os.close(handle)


# -- Single files ---------------------------------------------------------------------------------


def read_plain(path: Path) -> bytes:
    """Return the bytes of a plain file of moderate size; refuse a link, a pipe or a device."""
    check_plain(path)
    with open(path, "rb") as file:
        data = file.read(MAX_JSON + 1)
    if len(data) > MAX_JSON:
        raise ModelFileError(
            f"{path}: expected at most {MAX_JSON:,} bytes; this is not a loca model"
        )
    return data


def check_plain(path: Path, *, size: int | None = None) -> None:
    """Refuse a file that is missing, a link, a device, or not of the size expected of it."""
    if not os.path.lexists(path):
        raise ModelFileError(
            f"{path}: missing; the model is incomplete, copy its folder again or save it anew"
        )
    status = os.lstat(path)
    if not stat.S_ISREG(status.st_mode):
        raise ModelFileError(f"{path}: expected a plain file, found a link, a folder or a device")
    if size is not None and size != status.st_size:
        raise ModelFileError(
            f"{path}: expected {size:,} bytes, found {status.st_size:,}; "
            "damaged, copy the folder again"
        )


@contextmanager
def written_beside(path: Path, name: str) -> Iterator[BinaryIO]:
    """Yield a file called `name` beside `path`, which becomes `path` when the block ends.

    It is on the disk by then. After an error what was there before stays, and nothing else.
    """
    new_path = path.with_name(name)
    try:
        with open(new_path, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(new_path, path)
        with suppress(OSError):
            # The file is in its place: to say that it could not be written would be wrong.
            _sync(path.parent)
    finally:
        remove_files(path.parent, [name], lenient=True)


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a file to write, which appears when the block ends; its folder is made when missing."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # A name of its own: two that write the same file, on any machines, do not write into each
        # other's.
        with written_beside(path, f".{path.name}.{secrets.token_hex(4)}.new") as file:
            yield file
    except OSError as error:
        raise DataError(
            f"{path}: cannot be written ({error.strerror or error}); choose another place"
        ) from error


def write_whole(path: Path, content: bytes | str) -> None:
    """Write a file, text as UTF-8, into a folder that is made where it is missing."""
    with whole_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def remove_files(folder: Path, names: Iterable[str], *, lenient: bool = False) -> None:
    """Remove files of a folder in order, if they are there; `lenient` ignores all that fails."""
    tolerated = OSError if lenient else FileNotFoundError
    for name in names:
        with suppress(tolerated):
            (folder / name).unlink()
