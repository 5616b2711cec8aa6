"""The folder of unfinished work: whose it is, what is in it, and files put into it whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

from loca.errors import ConfigError, ModelFileError
from loca.files.model_folder import lock_folder, make_folder
from loca.files.whole_files import written_beside
from loca.files.work_subject import is_subject
from loca.progress import say

SUBJECT = "subject.json"
# Three of them and the rest fit the 255 bytes of a file name.
_LONGEST_STEP = 72
_ENDING = ".safetensors"
_NEW = ".new"
_OWN_NAME = re.compile(r"(?:subject\.json|work-(?:[\w.~-]|%[0-9A-F]{2})+\.safetensors)(?:\.new)?", re.ASCII)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)


def check_start(folder: Path, *, resume: bool, fresh: bool = False) -> None:
    """Refuses a folder of something else, and unfinished work that the caller neither goes on with nor drops."""
    if resume and fresh:
        raise ConfigError("--resume goes on with unfinished work, --fresh drops it; expected one of them, found both")
    if not os.path.lexists(folder):
        return
    if not folder.is_dir():
        raise ModelFileError(f"{folder}: expected a folder for unfinished work, found a file; choose another --out")
    try:
        names = os.listdir(folder)
        foreign = sorted(name for name in names if not _OWN_NAME.fullmatch(name))
        if SUBJECT in names and not is_subject(folder / SUBJECT):
            foreign = [SUBJECT]
        is_own = SUBJECT in names and foreign != [SUBJECT]
    except OSError as error:
        raise ModelFileError(f"{folder}: cannot be looked into ({error.strerror}); choose another --out") from None
    if foreign and not is_own:
        raise ModelFileError(
            f"{folder}: not unfinished work of loca's (it holds {foreign[0]!r:.60}); nothing was touched, "
            "move it or choose another --out"
        )
    if holds_work(folder) and not (resume or fresh):
        raise ConfigError(
            f"{folder} holds unfinished work of an earlier run; add --resume to go on with it, or --fresh to start over"
        )


def holds_work(folder: Path) -> bool:
    """Whether anything was kept in the folder; files without a subject are litter, and no work."""
    names = own_files(folder)
    return SUBJECT in names and any(name.endswith(_ENDING) for name in names)


def own_files(folder: Path) -> list[str]:
    """The names of the files of unfinished work, the subject first: once it is gone, the others are litter."""
    return sorted((name for name in os.listdir(folder) if _OWN_NAME.fullmatch(name)), key=lambda name: name != SUBJECT)


def file_name_of(name: str) -> str:
    """The file that keeps what is called `name`; a long step of the name is cut, and told apart by a digest."""
    return f"work-{'%2F'.join(map(_short, name.split('/')))}{_ENDING}"


def _short(step: str) -> str:
    quoted = quote(step, safe="")
    if len(quoted) <= _LONGEST_STEP:
        return quoted
    # File systems take 255 bytes for a name; what is kept says its full name inside.
    begin = re.sub(r"[^\w-]", "", step, flags=re.ASCII)[:40]
    return f"{begin}-{hashlib.blake2b(step.encode(), digest_size=8).hexdigest()}"


@contextmanager
def locked_folder(folder: Path) -> Iterator[bool]:
    """Whether the folder, made when missing, is there to be written; it is locked against a second run meanwhile."""
    handle, made = -1, []
    try:
        made = make_folder(folder)
        if sys.platform != "win32":
            handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        if error.errno not in _FORBIDDEN:
            raise cannot_keep(folder, error) from error
        say(f"{folder}: may not be made ({error.strerror}); this run cannot be resumed should it be interrupted")
        yield False
        return
    try:
        if sys.platform != "win32":
            lock_folder(handle, folder, "another run keeps its unfinished work there")
        yield True
    finally:
        if handle >= 0:
            os.close(handle)
        for one in made:
            # Those that hold something stay: the work itself, or a model saved beside it.
            with suppress(OSError):
                one.rmdir()


def put_file(path: Path, write: Callable[[BinaryIO], Any]) -> None:
    """Writes a file beside its place, waits for the disk, and moves it into its place."""
    try:
        with written_beside(path, path.name + _NEW) as file:
            write(file)
    except OSError as error:
        raise cannot_keep(path, error) from error


def remove_files(folder: Path, names: Iterable[str]) -> None:
    """Removes files of the folder, in the order given."""
    for name in names:
        (folder / name).unlink(missing_ok=True)


def remove_litter(folder: Path) -> None:
    """Removes the files that a kill left half written."""
    remove_files(folder, [name for name in own_files(folder) if name.endswith(_NEW)])


def remove_work(folder: Path) -> None:
    """Removes the files of unfinished work, and the folder where nothing else is in it."""
    with suppress(OSError):
        remove_files(folder, own_files(folder))
        folder.rmdir()


def cannot_keep(path: Path, error: OSError) -> ModelFileError:
    """The refusal of a place that unfinished work cannot be written to."""
    reason = error.strerror or type(error).__name__
    return ModelFileError(
        f"{path}: cannot keep unfinished work: {reason}; what was kept before is as it was; free some disk space or "
        "choose another --out"
    )
