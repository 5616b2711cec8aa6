"""Work that outlives a kill: what is done is kept in a folder, and found again by the run that goes on with it."""

from __future__ import annotations

import copy
import errno
import hashlib
import os
import re
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from loca.data.interactions import Interactions
from loca.errors import ConfigError, LocaError, ModelFileError
from loca.persistence.arrays import (
    ArrayNote,
    check_arrays,
    dump_json,
    find_arrays,
    map_arrays,
    parse_json,
    plain_dtype,
    take,
    write_arrays,
)
from loca.persistence.atomic_write import check_plain, lock_folder, make_folder, read_plain, written_beside
from loca.persistence.manifest import ModelState, read_values, seal, write_values
from loca.progress import say

_FORMAT_WORK = "loca-unfinished-work"
_LARGEST = 32 * 1024 * 1024
_ABSENT = object()


def subject_bytes(subject: Mapping[str, Any]) -> bytes:
    """The text of subject.json, sealed with a checksum."""
    body = {"subject": dict(subject)}
    return dump_json({"format": _FORMAT_WORK, "version": _VERSION, "checksum": seal(body), **body}, indent=1) + b"\n"


def is_subject(path: Path) -> bool:
    """Whether a file is a subject.json of loca's, sound or not."""
    try:
        written = parse_json(read_plain(path, most=_LARGEST))
    except (ValueError, RecursionError):
        return False
    return type(written) is dict and written.get("format") == _FORMAT_WORK


def read_subject(path: Path) -> dict[str, Any]:
    """The subject that a subject.json tells of; a damaged one is refused."""
    written = parse_json(read_plain(path, most=_LARGEST))
    try:
        subject: dict[str, Any] = take(written, "subject", dict)
        version, checksum = take(written, "version", int), take(written, "checksum", int)
        if version != _VERSION:
            raise ValueError(f"written in format {version} by another loca")
        if checksum != seal({"subject": subject}):
            raise ValueError("changed or damaged since it was written")
    except ValueError as error:
        raise ConfigError(f"{path}: {error}; start over with --fresh") from None
    return subject


def first_difference(then: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """The first thing in which two subjects differ, as a person would say it; None where they are the same."""
    before, after = _flat(then), _flat(now)
    for name in dict.fromkeys((*after, *before)):
        old, new = before.get(name, _ABSENT), after.get(name, _ABSENT)
        # By their JSON: that is what a subject comes back as, and NaN would not even equal itself.
        if old is _ABSENT or new is _ABSENT or dump_json(old) != dump_json(new):
            return _told(name, old, new)
    return None


def _told(name: str, then: Any, now: Any) -> str:
    if name == "data":
        return "the data have changed"
    if name == "loca":
        return f"it was written by loca {then}, this is loca {now}"
    old, new = ("not set" if value is _ABSENT else f"{value}" for value in (then, now))
    return f"{name}: {old} then, {new} now"


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    """Every value inside nested mappings and lists by its dotted name."""
    inner = (
        value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list | tuple) else None
    )
    if inner is None:
        return {name: value}
    flat: dict[str, Any] = {}
    for key, one in inner:
        flat.update(_flat(one, f"{name}.{key}" if name else str(key)))
    return flat


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


_TIMES_ITS_COST = 10
# Whatever reading a damaged file may raise; memory that is short is no damage.
_DAMAGE = (ValueError, TypeError, LookupError, RecursionError, OSError, SafetensorError, LocaError)
_FORMAT = "loca-state"
_VERSION = 1
_STATE = "state/"
# Two arrays beside the state's own: the facts with the dtype and shape of everything, and the checksums of all others.
_ABOUT = "about"
_CHECKSUMS = "checksums"


class Checkpoint:
    """What a long piece of work has done so far, by name; without a folder it keeps and recalls nothing."""

    def __init__(self, folder: Path | None = None, seconds_between: float = 60.0) -> None:
        self._folder = folder
        self._seconds_between = seconds_between
        self._clock = {"last": time.monotonic(), "cost": 0.0}  # one for all parts
        self._parts: tuple[str, ...] = ()

    @property
    def saves(self) -> bool:
        """Whether anything is saved at all."""
        return self._folder is not None

    def load(self, name: str) -> ModelState | None:
        """The arrays and facts kept under that name, or None where there are none that can be trusted.

        Large arrays are read-only views of the kept file, also when it is replaced; copy what is to be changed.
        """
        if self._folder is None:
            return None
        path = self._folder / file_name_of(self._full(name))
        if not os.path.lexists(path):
            return None
        try:
            return read_state(path, self._full(name))
        except _DAMAGE as error:
            reason = " ".join(str(error).split())[:200]
            say(f"{path}: damaged ({reason}); it is not used, and its work is done again")
            return None

    def save(self, name: str, state: ModelState) -> None:
        """Keeps the arrays and facts of a state in place of what had that name; a kill leaves the one or the other."""
        if self._folder is None:
            return
        full, started = self._full(name), time.monotonic()
        put_file(self._folder / file_name_of(full), lambda file: write_state(file, full, state))
        now = time.monotonic()
        self._clock.update(last=now, cost=now - started)

    def load_or_make(self, name: str, make: Callable[[], ModelState]) -> ModelState:
        """The state saved under that name, or else the one that is made now, which is saved."""
        state = self.load(name)
        if state is None:
            state = make()
            self.save(name, state)
        return state

    def delete(self, name: str) -> None:
        """Removes what was kept under that name, if anything was."""
        if self._folder is not None:
            remove_files(self._folder, [file_name_of(self._full(name))])

    def delete_part(self, name: str) -> None:
        """Removes all that was kept inside the part of that name."""
        if self._folder is not None:
            begin, _, _ = file_name_of(self._full(name)).rpartition(".")
            inside = [one for one in own_files(self._folder) if one.startswith(f"{begin}%2F")]
            remove_files(self._folder, inside)

    def due(self) -> bool:
        """Whether the seconds between two keeps have passed since the last one, or since the start.

        A keep that took long is followed by ten times as long without one, so that keeping never costs more than a
        tenth of the time; not so where the seconds are 0, which asks for every keep there can be.
        """
        wait = max(self._seconds_between, _TIMES_ITS_COST * self._clock["cost"]) if self._seconds_between else 0.0
        return self._folder is not None and time.monotonic() - self._clock["last"] >= wait

    def inside(self, name: str) -> Checkpoint:
        """The same checkpoint with every name inside a part: `best` is saved as `name/best`."""
        part = copy.copy(self)
        part._parts = (*self._parts, name)
        return part

    def _full(self, name: str) -> str:
        return "/".join((*self._parts, name))


@contextmanager
def open_checkpoint(
    folder: Path, fingerprint: Mapping[str, Any], *, resume: bool, fresh: bool = False, seconds_between: float = 60.0
) -> Iterator[Checkpoint]:
    """A checkpoint in a folder that goes when the work ends well and stays when it does not.

    `fingerprint` (JSON values; `loca` is the version, `data` a digest) says what the work is about. Progress of other
    work is refused, never mixed; progress of this work is used (`resume`), dropped (`fresh`) or refused.
    """
    if not seconds_between >= 0:
        raise ConfigError(f"seconds between two checkpoints: expected a number ≥ 0, found {seconds_between}")
    check_start(folder, resume=resume, fresh=fresh)
    with locked_folder(folder) as writable:
        if writable:
            _begin(folder, fingerprint, resume=resume, fresh=fresh)
        try:
            yield Checkpoint(folder if writable else None, seconds_between)
        except BaseException:
            if writable and holds_work(folder):
                say(f"{folder} keeps what is done; the same command with --resume goes on from there")
            elif writable:
                remove_work(folder)
            raise
        if writable:
            remove_work(folder)


def digest_of(interactions: Interactions) -> str:
    """A short text that changes with any id, order, time or recency of the interactions; labels do not count."""
    digest = hashlib.blake2b(digest_size=16)
    for ids in (interactions.users.values, interactions.items.values):
        if ids.dtype.kind == "O":
            digest.update(b"text " + dump_json(ids.tolist()))
        else:
            _add_array(digest, ids)
    for array in (interactions.offsets, interactions.item_rows, interactions.times):
        _add_array(digest, array)
    digest.update(repr(interactions.recency).encode())
    return digest.hexdigest()


def _add_array(digest: Any, array: Any) -> None:
    # The dtype and the length first: the bytes alone would not say where one array ends.
    digest.update(b"none " if array is None else f"{array.dtype.str} {len(array)} ".encode())
    if array is not None:
        digest.update(np.ascontiguousarray(array).data)


def _begin(folder: Path, subject: Mapping[str, Any], *, resume: bool, fresh: bool) -> None:
    """Makes the folder ready: with the work that is to go on and no litter, or with nothing but the subject."""
    check_start(folder, resume=resume, fresh=fresh)  # once more, now that nobody else can change it
    if resume and holds_work(folder):
        difference = first_difference(read_subject(folder / SUBJECT), subject)
        if difference is not None:
            raise ConfigError(
                f"{folder} holds unfinished work that cannot go on: {difference}; finish it with the settings and "
                "data it was begun with, or start over with --fresh"
            )
        remove_litter(folder)
        say(f"going on with the unfinished work in {folder}")
        return
    if resume:
        say(f"{folder}: no unfinished work to go on with; this run starts from the beginning")
    remove_files(folder, own_files(folder))
    put_file(folder / SUBJECT, lambda file: file.write(subject_bytes(subject)))


def write_state(file: BinaryIO, name: str, state: ModelState) -> None:
    """Writes the arrays and facts of a state called `name`; the file must be open for writing and reading.

    The checksums are known once all is written, and are then put into the place left for them: no array is read twice.
    """
    if state.parts:
        raise ModelFileError(f"state {name!r}: expected arrays and facts, found the part {next(iter(state.parts))!r}")
    arrays: dict[str, npt.NDArray[Any]] = {f"{_STATE}{key}": array for key, array in state.arrays.items()}
    facts = write_values(state.facts, arrays, f"state {name!r}, fact")
    shapes = {key: {"dtype": plain_dtype(key, array), "shape": list(array.shape)} for key, array in arrays.items()}
    about = {"format": _FORMAT, "version": _VERSION, "name": name, "facts": facts, "arrays": shapes}
    arrays[_ABOUT] = np.frombuffer(dump_json(about), np.uint8)
    notes = write_arrays(file, {**arrays, _CHECKSUMS: np.zeros(len(arrays), np.uint32)})
    first, _ = find_arrays(file)[_CHECKSUMS]
    file.seek(first)
    file.write(np.array([notes[key].checksum for key in arrays], "<u4").tobytes())


def read_state(path: Path, name: str) -> ModelState:
    """The state called `name` again, to the last bit; an error says where anything is amiss.

    Large arrays are read-only views of the file, and take no memory of their own.
    """
    check_plain(path)
    with safe_open(path, framework="numpy") as file:
        if not {_ABOUT, _CHECKSUMS} <= set(file.keys()):
            raise ValueError("not a state that loca has kept")
        text, checksums = file.get_tensor(_ABOUT), file.get_tensor(_CHECKSUMS)
    if checksums.dtype != np.uint32 or checksums.ndim != 1 or zlib.crc32(text.data) != checksums[-1]:
        raise ValueError("changed since it was kept")
    about = parse_json(text.tobytes())
    if take(about, "format", str) != _FORMAT or take(about, "version", int) != _VERSION:
        raise ValueError("kept in another format, by another loca")
    if take(about, "name", str) != name:
        raise ValueError(f"expected the state {name!r}, found {about['name']!r:.100}")
    shapes = take(about, "arrays", dict)
    notes = {
        key: ArrayNote.from_json({**shapes[key], "checksum": int(checksum)})
        for key, checksum in zip(shapes, checksums[:-1], strict=True)
    }
    own = {
        _ABOUT: ArrayNote("U8", text.shape, int(checksums[-1])),
        _CHECKSUMS: ArrayNote("U32", checksums.shape, 0),
    }
    check_arrays(path, {**notes, **own})
    arrays = map_arrays(path, notes, verify=True)
    facts = read_values(take(about, "facts", dict), arrays, {})
    return ModelState({key.removeprefix(_STATE): one for key, one in arrays.items() if key.startswith(_STATE)}, facts)
