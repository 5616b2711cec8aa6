"""Work that outlives a kill: what is done is kept in a folder, and found again by the run that goes on with it."""

from __future__ import annotations

import hashlib
import os
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from loca.data.interactions import Interactions
from loca.errors import ConfigError, LocaError, ModelFileError
from loca.files.array_files import ArrayNote, check_arrays, find_arrays, map_arrays, plain_dtype, write_arrays
from loca.files.checked_json import dump_json, parse_json, take
from loca.files.model_folder import check_plain
from loca.files.model_state import ModelState
from loca.files.work_folder import (
    SUBJECT,
    check_start,
    file_name_of,
    holds_work,
    locked_folder,
    own_files,
    put_file,
    remove_files,
    remove_litter,
    remove_work,
)
from loca.files.work_subject import first_difference, read_subject, subject_bytes
from loca.files.written_values import read_values, write_values
from loca.progress import say

_TIMES_ITS_COST = 10
# Whatever reading a damaged file may raise; memory that is short is no damage.
_DAMAGE = (ValueError, TypeError, LookupError, RecursionError, OSError, SafetensorError, LocaError)
_FORMAT = "loca-state"
_VERSION = 1
_STATE = "state/"
# Two arrays beside the state's own: the facts with the dtype and shape of everything, and the checksums of all others.
_ABOUT = "about"
_CHECKSUMS = "checksums"


class UnfinishedWork:
    """What a long piece of work has done so far, by name; without a folder it keeps and recalls nothing."""

    def __init__(self, folder: Path | None = None, seconds_between: float = 60.0) -> None:
        self._folder = folder
        self._seconds_between = seconds_between
        self._last = time.monotonic()
        self._cost = 0.0
        self._parts: tuple[str, ...] = ()

    @property
    def keeps(self) -> bool:
        """Whether anything is kept at all."""
        return self._folder is not None

    def recall(self, name: str) -> ModelState | None:
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

    def keep(self, name: str, state: ModelState) -> None:
        """Keeps the arrays and facts of a state in place of what had that name; a kill leaves the one or the other."""
        if self._folder is None:
            return
        full, started = self._full(name), time.monotonic()
        put_file(self._folder / file_name_of(full), lambda file: write_state(file, full, state))
        self._last = time.monotonic()
        self._cost = self._last - started

    def forget(self, name: str) -> None:
        """Removes what was kept under that name, if anything was."""
        if self._folder is not None:
            remove_files(self._folder, [file_name_of(self._full(name))])

    def forget_part(self, name: str) -> None:
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
        wait = max(self._seconds_between, _TIMES_ITS_COST * self._cost) if self._seconds_between else 0.0
        return self._folder is not None and time.monotonic() - self._last >= wait

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """While this lasts, every name stands inside the part: `best` is kept as `name/best`."""
        outside = self._parts
        self._parts = (*outside, name)
        try:
            yield
        finally:
            self._parts = outside

    def _full(self, name: str) -> str:
        return "/".join((*self._parts, name))


_AT_HAND: ContextVar[UnfinishedWork | None] = ContextVar("the unfinished work at hand", default=None)


def work_at_hand() -> UnfinishedWork:
    """The work of the innermost `keep_work_in` around the caller; outside any, one that keeps and recalls nothing."""
    return _AT_HAND.get() or UnfinishedWork()


@contextmanager
def keep_work_in(
    folder: Path,
    *,
    subject: Mapping[str, Any],
    resume: bool,
    fresh: bool = False,
    seconds_between: float = 60.0,
) -> Iterator[UnfinishedWork]:
    """The work at hand while this lasts, kept in a folder that goes when the work ends well and stays when it does not.

    `subject` (JSON values; `loca` is the version, `data` a digest) says what the work is about. Kept work of another
    subject is refused, never mixed; kept work of this one is gone on with (`resume`), dropped (`fresh`) or refused.
    """
    if not seconds_between >= 0:
        raise ConfigError(f"seconds between two checkpoints: expected a number ≥ 0, found {seconds_between}")
    check_start(folder, resume=resume, fresh=fresh)
    with locked_folder(folder) as writable:
        if writable:
            _begin(folder, subject, resume=resume, fresh=fresh)
        work = UnfinishedWork(folder if writable else None, seconds_between)
        token = _AT_HAND.set(work)
        try:
            yield work
        except BaseException:
            if writable and holds_work(folder):
                say(f"{folder} keeps what is done; the same command with --resume goes on from there")
            elif writable:
                remove_work(folder)
            raise
        finally:
            _AT_HAND.reset(token)
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
