"""Checkpoints: the progress of long work in a folder, for the run that resumes it alone."""

from __future__ import annotations

import copy
import errno
import hashlib
import os
import re
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError

from loca.errors import ConfigError, LocaError, ModelFileError
from loca.persistence.arrays import (
    check_types,
    dump_json,
    map_arrays,
    parse_json,
    read_arrays,
    type_of,
    write_arrays,
)
from loca.persistence.atomic_write import (
    advice_on,
    check_plain,
    lock_folder,
    read_plain,
    remove_files,
    written_beside,
)
from loca.persistence.manifest import read_values, write_values
from loca.persistence.sealed_json import holds_format, open_sealed, sealed_json
from loca.progress import say

T = TypeVar("T")

FINGERPRINT_KEY = "fingerprint"
FINGERPRINT_FILE = f"{FINGERPRINT_KEY}.json"
_FINGERPRINT_FORMAT = "loca-unfinished-work"
_STATE_FORMAT = "loca-state"
_VERSION = 2
_ENDING = ".safetensors"
_NEW = ".new"
_STATE_FILE = rf"work-(?:[\w.~-]|%[0-9A-F]{{2}})+{re.escape(_ENDING)}"
_FILE_NAME = re.compile(
    rf"(?:{re.escape(FINGERPRINT_FILE)}|{_STATE_FILE})(?:{re.escape(_NEW)})?", re.ASCII
)
_LONGEST_STEP = 72
# File systems take 255 bytes for a name: two of the longest steps, then five that are cut to their
# digest.
_LONG_NAME = 152
_SHORTEST_CUT = 13
# A save is followed by so many times as long without one.
_REST = 10
# Whatever reading a damaged file may raise; memory that is short is no damage.
_DAMAGE = (ValueError, TypeError, LookupError, RecursionError, OSError, SafetensorError, LocaError)
# Two arrays beside the state's own: its values with the dtype and shape of everything, and the
# checksums of all others.
_ABOUT = "about"
_CHECKSUMS = "checksums"
# The key under which a value is saved that is not a dictionary.
_VALUE = "$value"


# -- States by name -------------------------------------------------------------------------------


class Checkpoint:
    """The progress of a long piece of work, as named states; without a folder it saves nothing.

    A state is a dictionary of numpy arrays, plain values, and dictionaries, lists and tuples of
    these.

    Parameters
    ----------
    folder : Path, optional
        Where the states are saved, one file each.
    seconds_between : float
        How long `due` waits between two saves; 0 makes every save due.
    """

    def __init__(self, folder: Path | None = None, seconds_between: float = 60.0) -> None:
        self._folder = folder
        self._seconds_between = seconds_between
        self._clock = {"last": time.monotonic(), "cost": 0.0}  # one for all parts
        self._prefix = ""
        self._new = _NEW  # what a half-written file ends in; a subclass may choose its own
        # What else goes when the work has ended well.
        self.at_end: list[Callable[[], object]] = []

    @property
    def saves(self) -> bool:
        """Whether anything is saved at all."""
        return self._folder is not None

    def inside(self, name: str) -> Checkpoint:
        """Return the checkpoint with every name inside a part: `best` is saved as `name/best`."""
        part = copy.copy(self)
        part._prefix = f"{self._prefix}{name}/"
        return part

    def load(self, name: str) -> dict[str, Any] | None:
        """Return the state saved under a name, or None where there is none that can be trusted.

        Large arrays are read-only views of the file, also when it is replaced; copy what is to be
        changed.
        """
        if self._folder is None:
            return None
        full_name = self._prefix + name
        path = self._folder / file_name_of(full_name)
        if not os.path.lexists(path):
            return None
        try:
            return _read_state(path, full_name)
        except _DAMAGE as error:
            reason = " ".join(str(error).split())[:200]
            say(f"{path}: damaged ({reason}); it is not used, and its work is done again")
            return None

    def save(self, name: str, state: Mapping[str, Any]) -> None:
        """Save a state in place of what had that name; a kill leaves the one or the other."""
        if self._folder is None:
            return
        started = time.monotonic()
        full_name = self._prefix + name
        path = self._folder / file_name_of(full_name)
        with _saving(path), written_beside(path, path.name + self._new) as file:
            _write_state(file, full_name, state)
        self._saved(path)
        self._clock["last"] = time.monotonic()
        self._clock["cost"] = self._clock["last"] - started

    def _saved(self, path: Path) -> None:
        """Do what else belongs to a save: a subclass sends the file elsewhere."""

    def load_or_make(self, name: str, make: Callable[[], T]) -> T:
        """Return the value saved under a name, or else make and save it.

        A dictionary is saved as a state, any other value as a state with one key.
        """
        state = self.load(name)
        if state is not None:
            saved: T = state.get(_VALUE, state)
            return saved
        value = make()
        is_state = isinstance(value, dict) and _VALUE not in value
        self.save(name, cast(dict[str, Any], value) if is_state else {_VALUE: value})
        return value

    def delete(self, name: str) -> None:
        """Remove what was saved under a name, if anything was."""
        if self._folder is not None:
            remove_files(self._folder, [file_name_of(self._prefix + name)])

    def delete_part(self, name: str) -> None:
        """Remove all that was saved inside the part of a name."""
        if self._folder is None:
            return
        start = file_name_of(self._prefix + name).removesuffix(_ENDING)
        names = [file for file in own_files(self._folder) if file.startswith(f"{start}%2F")]
        remove_files(self._folder, names)

    def due(self) -> bool:
        """Return whether the seconds between two saves have passed since the last, or the start.

        A save that took long is followed by ten times as long without one, so that saving never
        costs more than a tenth of the time; not so where the seconds are 0, which asks for every
        save there can be.
        """
        if self._folder is None:
            return False
        wait = 0.0
        if self._seconds_between:
            wait = max(self._seconds_between, _REST * self._clock["cost"])
        return time.monotonic() - self._clock["last"] >= wait


# -- Folders --------------------------------------------------------------------------------------


def start(folder: Path, fingerprint: Mapping[str, Any], *, resume: bool, fresh: bool) -> None:
    """Make a locked folder ready; unfinished work stays where it is resumed, else it goes."""
    check_start(folder, resume=resume, fresh=fresh)
    if resume and holds_work(folder):
        _check_fingerprint(folder, fingerprint)
        # Half written by a kill.
        remove_files(folder, [name for name in own_files(folder) if name.endswith(_NEW)])
        say(f"going on with the unfinished work in {folder}")
        return
    if resume:
        say(f"{folder}: no unfinished work to go on with; this run starts from the beginning")
    remove_files(folder, own_files(folder))
    path = folder / FINGERPRINT_FILE
    body = {FINGERPRINT_KEY: dict(fingerprint)}
    with _saving(path), written_beside(path, path.name + _NEW) as file:
        file.write(sealed_json(_FINGERPRINT_FORMAT, _VERSION, body))


def _check_fingerprint(folder: Path, fingerprint: Mapping[str, Any]) -> None:
    """Refuse unfinished work of another fingerprint."""
    path = folder / FINGERPRINT_FILE
    try:
        written = open_sealed(read_plain(path), _FINGERPRINT_FORMAT, _VERSION)
        check_types(written, {FINGERPRINT_KEY: dict})
    except ValueError as error:
        raise ConfigError(f"{path}: {error}; start over with --fresh") from None
    difference = first_difference(written[FINGERPRINT_KEY], fingerprint)
    if difference is not None:
        raise ConfigError(
            f"{folder} holds unfinished work that cannot go on: {difference}; finish it with the "
            "settings and data it was begun with, or start over with --fresh"
        )


def check_start(folder: Path, *, resume: bool, fresh: bool = False) -> None:
    """Refuse a folder of something else, and work that is neither resumed nor dropped."""
    if resume and fresh:
        raise ConfigError(
            "--resume goes on with unfinished work, --fresh drops it; expected one of them, "
            "found both"
        )
    if not os.path.lexists(folder):
        return
    if not folder.is_dir():
        raise ModelFileError(
            f"{folder}: expected a folder for unfinished work, found a file; choose another --out"
        )
    _check_foreign(folder)
    if holds_work(folder) and not (resume or fresh):
        raise ConfigError(
            f"{folder} holds unfinished work of an earlier run; add --resume to go on with it, "
            "or --fresh to start over"
        )


def _check_foreign(folder: Path) -> None:
    """Refuse a folder that holds something else, and no sound fingerprint."""
    try:
        names = os.listdir(folder)
        is_own = FINGERPRINT_FILE in names and holds_format(
            folder / FINGERPRINT_FILE, _FINGERPRINT_FORMAT
        )
    except OSError as error:
        raise ModelFileError(
            f"{folder}: cannot be looked into ({error.strerror}); choose another --out"
        ) from None
    if is_own:
        return  # other files are just left alone
    # The fingerprint first: without a sound one nothing here is loca's.
    for name in sorted(names, key=lambda name: (name != FINGERPRINT_FILE, name)):
        if name == FINGERPRINT_FILE or not _FILE_NAME.fullmatch(name):
            raise ModelFileError(
                f"{folder}: not unfinished work of loca's (it holds {name!r:.60}); "
                "nothing was touched, move it or choose another --out"
            )


def holds_work(folder: Path) -> bool:
    """Return whether anything was saved in a folder; files without a fingerprint are litter."""
    names = own_files(folder)
    return FINGERPRINT_FILE in names and any(name.endswith(_ENDING) for name in names)


def own_files(folder: Path) -> list[str]:
    """Return the names of a checkpoint's files, the fingerprint first.

    Once it is gone, the others are litter.
    """
    names = [name for name in os.listdir(folder) if _FILE_NAME.fullmatch(name)]
    return sorted(names, key=lambda name: name != FINGERPRINT_FILE)


def file_name_of(name: str) -> str:
    """Return the file of a state; a long step of the name is cut, and made distinct by a digest.

    What a step becomes depends on the steps before it, never on those behind: so the files of a
    part all start alike.
    """
    file_name = "work-"
    for number, step in enumerate(name.split("/")):
        room = max(_LONG_NAME - len(file_name), _SHORTEST_CUT)
        file_name += "%2F" if number else ""
        file_name += _short_step(step, min(room, _LONGEST_STEP))
    return f"{file_name}{_ENDING}"


def _short_step(step: str, longest: int) -> str:
    quoted = quote(step, safe="")
    if len(quoted) <= longest:
        return quoted
    # A state says its full name inside.
    digest = hashlib.blake2b(step.encode(), digest_size=6).hexdigest()
    start = re.sub(r"[^\w-]", "", step, flags=re.ASCII)[: min(40, longest - _SHORTEST_CUT)]
    return f"{start}-{digest}"


@contextmanager
def writable_folder(folder: Path) -> Iterator[bool]:
    """Yield whether a folder, made when missing, may be written; it is locked meanwhile."""
    with ExitStack() as lock:
        problem = None
        with _saving(folder):
            try:
                problem_of_others = "another run keeps its unfinished work there"
                lock.enter_context(lock_folder(folder, problem_of_others))
                _try_to_write(folder)
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                    raise
                problem = error.strerror
        if problem is not None:
            say(
                f"{folder}: may not be written ({problem}); this run cannot be resumed should it "
                "be interrupted"
            )
        yield problem is None


def _try_to_write(folder: Path) -> None:
    """Make a file and remove it."""
    path = folder / f"{FINGERPRINT_FILE}{_NEW}"  # as `start` does
    had_it = path.exists()
    with open(path, "ab"):
        pass
    if not had_it:
        path.unlink()


@contextmanager
def _saving(path: Path) -> Iterator[None]:
    """Turn an error of the disk into a ModelFileError that says what became of the work."""
    try:
        yield
    except OSError as error:
        raise ModelFileError(
            f"{path}: cannot keep unfinished work: {error.strerror or type(error).__name__}; "
            f"what was saved before is as it was; {advice_on(error)}"
        ) from error


def remove_work(folder: Path) -> None:
    """Remove a checkpoint's files, and the folder where nothing else is in it."""
    with suppress(OSError):
        remove_files(folder, own_files(folder))
        folder.rmdir()


# -- Fingerprints ---------------------------------------------------------------------------------


def first_difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """Return the first thing in which two fingerprints differ, in words; None where in nothing."""
    old_values = _flat(before)
    new_values = _flat(now)
    for name in dict.fromkeys((*new_values, *old_values)):
        if not _is_same(name, old_values, new_values):
            old = old_values.get(name, "not set")
            new = new_values.get(name, "not set")
            return _difference(name, old, new)
    return None


def _is_same(name: str, old_values: Mapping[str, Any], new_values: Mapping[str, Any]) -> bool:
    """Return whether a value is the same in two fingerprints; a value of None is as good as no value."""
    if name not in old_values:
        return new_values[name] is None
    if name not in new_values:
        return old_values[name] is None
    # By their JSON: that is what a fingerprint comes back as, and NaN would not even equal itself.
    return dump_json(old_values[name]) == dump_json(new_values[name])


def _difference(name: str, old: Any, new: Any) -> str:
    if name == "data":
        return "the data have changed"
    if name == "loca":
        return f"it was written by loca {old}, this is loca {new}"
    return f"{name}: {old} then, {new} now"


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    """Return every value inside nested mappings and lists by its dotted name."""
    if not isinstance(value, Mapping | list | tuple):
        return {name: value}
    flat: dict[str, Any] = {}
    elements = value.items() if isinstance(value, Mapping) else enumerate(value)
    for key, element in elements:
        flat.update(_flat(element, f"{name}.{key}" if name else str(key)))
    return flat


# -- Files of states ------------------------------------------------------------------------------


def _write_state(file: BinaryIO, name: str, state: Mapping[str, Any]) -> None:
    """Write a state called `name` into a file that is open for writing and reading.

    The checksums are known once all is written, and are then put into the place left for them: no
    array is read twice.
    """
    for key in state:
        if type(key) is not str:
            raise ModelFileError(f"state {name!r}: expected names of text, found {key!r:.60}")
    arrays: dict[str, npt.NDArray[Any]] = {}
    values = write_values(state, arrays, f"state {name!r}, value")
    try:
        read_values(values, dict(arrays), {})
    except ValueError as error:  # it could be written, but no `load` would give it back
        raise ModelFileError(
            f"state {name!r}: {error}; expected arrays, plain values, and dictionaries, lists and "
            "tuples of these"
        ) from None
    about = {
        "format": _STATE_FORMAT,
        "version": _VERSION,
        "name": name,
        "state": values,
        "arrays": {key: type_of(key, array) for key, array in arrays.items()},
    }
    arrays[_ABOUT] = np.frombuffer(dump_json(about), np.uint8)
    notes, starts = write_arrays(file, {**arrays, _CHECKSUMS: np.zeros(len(arrays), np.uint32)})
    file.seek(starts[_CHECKSUMS])
    file.write(np.array([notes[key]["checksum"] for key in arrays], "<u4").tobytes())


def _read_state(path: Path, name: str) -> dict[str, Any]:
    """Return the state called `name` again, to the bit; an error says where anything is amiss.

    Large arrays are read-only views of the file, and take no memory of their own.
    """
    check_plain(path)
    views = map_arrays(path)
    if not {_ABOUT, _CHECKSUMS} <= set(views):
        raise ValueError("not a state that loca has saved")
    text = views.pop(_ABOUT)
    checksums = views.pop(_CHECKSUMS)
    is_list = checksums.dtype == np.uint32 and checksums.ndim == 1 and len(checksums) > 0
    if not is_list or zlib.crc32(text.data) != checksums[-1]:
        raise ValueError("changed since it was saved")
    about = parse_json(text.tobytes())
    check_types(about, {"format": str, "version": int})
    if (about["format"], about["version"]) != (_STATE_FORMAT, _VERSION):
        raise ValueError("saved in another format, by another loca")
    check_types(about, {"name": str, "state": dict, "arrays": dict})
    if about["name"] != name:
        raise ValueError(f"expected the state {name!r}, found {about['name']!r:.100}")
    pairs = zip(about["arrays"].items(), checksums[:-1].tolist(), strict=True)
    notes = {key: {**shape, "checksum": checksum} for (key, shape), checksum in pairs}
    arrays = read_arrays(views, notes, verify=True)
    return read_values(about["state"], arrays, {})
