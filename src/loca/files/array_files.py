"""Named arrays in one safetensors file, and a note of each (dtype, shape, checksum) to check it by."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from safetensors import safe_open

from loca.errors import ModelFileError
from loca.files.checked_json import take

Arrays = Mapping[str, npt.NDArray[Any]]

# safetensors' names of what a model may be made of: plain numbers, nothing that numpy must interpret.
DTYPES = {
    **{f"F{8 * size}": np.dtype(f"<f{size}") for size in (2, 4, 8)},
    **{f"I{8 * size}": np.dtype(f"<i{size}") for size in (1, 2, 4, 8)},
    **{f"U{8 * size}": np.dtype(f"<u{size}") for size in (1, 2, 4, 8)},
    "BOOL": np.dtype(np.bool_),
}
_NAME_OF = {dtype: name for name, dtype in DTYPES.items()}
_MOST_AXES = 32


@dataclass(frozen=True)
class ArrayNote:
    """What a stored array must be: safetensors' name of its dtype, its shape, and the CRC-32 of its bytes."""

    dtype: str
    shape: tuple[int, ...]
    checksum: int

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ValueError(f"expected an array of one of {', '.join(DTYPES)}, found {self.dtype!r}")
        if len(self.shape) > _MOST_AXES or any(type(length) is not int or length < 0 for length in self.shape):
            raise ValueError(f"expected up to {_MOST_AXES} lengths ≥ 0 as a shape, found {list(self.shape)!r:.100}")

    @property
    def size(self) -> int:
        """The number of bytes of the array."""
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize

    def as_json(self) -> dict[str, Any]:
        return {"dtype": self.dtype, "shape": list(self.shape), "checksum": self.checksum}

    @classmethod
    def from_json(cls, written: Any) -> ArrayNote:
        shape = tuple(take(written, "shape", list))
        return cls(take(written, "dtype", str), shape, take(written, "checksum", int))


@dataclass(frozen=True)
class ArrayFile:
    """The name of a safetensors file and the note of every array in it."""

    name: str
    notes: Mapping[str, ArrayNote]

    @property
    def size(self) -> int:
        """The number of bytes of all its arrays."""
        return sum(note.size for note in self.notes.values())

    def as_json(self) -> dict[str, Any]:
        return {"file": self.name, "arrays": {name: note.as_json() for name, note in self.notes.items()}}

    @classmethod
    def from_json(cls, written: Any) -> ArrayFile:
        notes = take(written, "arrays", dict)
        return cls(take(written, "file", str), {name: ArrayNote.from_json(note) for name, note in notes.items()})


def write_arrays(file: BinaryIO, arrays: Arrays) -> dict[str, ArrayNote]:
    """Writes the arrays one after the other as a safetensors file, and gives the note of each.

    The library's own writer makes files that only their owner can read, under a passing name that a killed
    save would leave behind; the format is simple enough to write here, without a second copy of any array.
    """
    plain = {name: _as_plain(name, array) for name, array in arrays.items()}
    # Wide items first: then every array starts at a multiple of its item size and can be mapped into memory.
    order = sorted(plain, key=lambda name: (-plain[name].itemsize, name))
    header, end = {}, 0
    for name in order:
        array = plain[name]
        start, end = end, end + array.nbytes
        header[name] = {
            "dtype": _NAME_OF[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    for name in order:
        file.write(plain[name].data)
    return {
        name: ArrayNote(_NAME_OF[array.dtype], array.shape, zlib.crc32(array.data)) for name, array in plain.items()
    }


def check_arrays(path: Path, notes: Mapping[str, ArrayNote]) -> None:
    """Refuses a file whose header does not promise exactly the arrays of the notes; reads none of them."""
    with safe_open(path, framework="numpy") as file:
        names = set(file.keys())
        if names != set(notes):
            odd = min(names ^ set(notes))
            raise ValueError(f"array {odd!r:.100} is {'missing' if odd in notes else 'not in model.json'}")
        for name, note in notes.items():
            found = file.get_slice(name)
            if (found.get_dtype(), tuple(found.get_shape())) != (note.dtype, note.shape):
                raise ValueError(
                    f"array {name!r:.100}: expected {note.dtype} {list(note.shape)}, "
                    f"found {found.get_dtype()} {found.get_shape()}"
                )


def read_arrays(path: Path, notes: Mapping[str, ArrayNote]) -> dict[str, npt.NDArray[Any]]:
    """The arrays of a checked file, each equal to what was saved to the last bit."""
    arrays = {}
    with safe_open(path, framework="numpy") as file:
        for name, note in notes.items():
            array = file.get_tensor(name)
            if zlib.crc32(array.data) != note.checksum:
                raise ValueError(f"array {name!r:.100} has changed since it was saved; copy the folder again")
            arrays[name] = array
    return arrays


def _as_plain(name: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if not isinstance(array, np.ndarray):
        raise ModelFileError(f"array {name!r}: expected a numpy array, found {type(array).__name__}")
    # Not ascontiguousarray: it would turn a single number into a row of one.
    little = array.dtype.newbyteorder("<")
    if not name.isprintable() or little not in _NAME_OF:
        raise ModelFileError(f"array {name!r}: expected a printable name and plain numbers, found {array.dtype}")
    return np.asarray(array, dtype=little, order="C")
