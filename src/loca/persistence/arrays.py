"""Named arrays in one safetensors file, read or mapped, and a note of each (dtype, shape, checksum) to check it by."""

from __future__ import annotations

import json
import math
import mmap
import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from safetensors import safe_open

from loca.errors import ModelFileError


def dump_json(value: Any, *, indent: int | None = None) -> bytes:
    """The JSON text of a value, readable where the text is; any text comes back, broken surrogates too."""
    separators = (",", ":") if indent is None else None
    return json.dumps(value, ensure_ascii=False, indent=indent, separators=separators).encode(errors="surrogatepass")


def parse_json(data: bytes) -> Any:
    """The value of a JSON text; ValueError or RecursionError where there is none."""
    try:
        return json.loads(data.decode(errors="surrogatepass"))
    except ValueError as error:
        raise ValueError(f"not valid JSON; damaged or not a loca model ({error})") from None


def take(written: Any, name: str, *types: type) -> Any:
    """The value called `name` of a JSON object, of one of the types; a ValueError says what was found."""
    if type(written) is not dict:
        raise ValueError(f"expected an object with {name!r}, found {written!r:.60}")
    if name not in written:
        raise ValueError(f"{name!r} is missing")
    value = written[name]
    if type(value) not in types:
        expected = " or ".join(kind.__name__ for kind in types)
        raise ValueError(f"{name!r}: expected {expected}, found {value!r:.60}")
    return value


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
# A larger array stays in its file and is read through the page cache, where and when it is used.
LARGEST_READ = 16 * 1024 * 1024
_PIECE = 16 * 1024 * 1024
# What the widest instructions of a processor like to load from.
_ALIGNMENT = 64


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

    @property
    def is_mapped(self) -> bool:
        """Whether the array is too large to be read at once."""
        return self.size > LARGEST_READ

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

    @property
    def memory(self) -> int:
        """The number of bytes of main memory that its arrays take: mapped ones take none of their own."""
        return sum(note.size for note in self.notes.values() if not note.is_mapped)

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
    dtypes = {name: plain_dtype(name, array) for name, array in arrays.items()}
    # Whole multiples of the alignment first, then wide items first: every array starts at a multiple of its item
    # size and can be mapped into memory, a large one nearly always at a multiple of 64.
    order = sorted(arrays, key=lambda name: (arrays[name].nbytes % _ALIGNMENT > 0, -arrays[name].itemsize, name))
    header, end = {}, 0
    for name in order:
        array = arrays[name]
        start, end = end, end + array.nbytes
        header[name] = {"dtype": dtypes[name], "shape": list(array.shape), "data_offsets": [start, end]}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    file.write(len(text).to_bytes(8, "little") + text)
    checksums = {}
    for name in order:
        checksum = 0
        for piece in _pieces(arrays[name]):
            file.write(piece.data)
            checksum = zlib.crc32(piece.data, checksum)
        checksums[name] = checksum
    return {name: ArrayNote(dtypes[name], array.shape, checksums[name]) for name, array in arrays.items()}


def plain_dtype(name: str, array: npt.NDArray[Any]) -> str:
    """Safetensors' name of the numbers that an array will be written as; anything but plain numbers is refused."""
    if not isinstance(array, np.ndarray):
        raise ModelFileError(f"array {name!r}: expected a numpy array, found {type(array).__name__}")
    little = array.dtype.newbyteorder("<")
    if not name.isprintable() or little not in _NAME_OF:
        raise ModelFileError(f"array {name!r}: expected a printable name and plain numbers, found {array.dtype}")
    return _NAME_OF[little]


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
    """The arrays of a checked file, read into memory, each equal to what was saved to the last bit."""
    arrays = {}
    with safe_open(path, framework="numpy") as file:
        for name, note in notes.items():
            array = file.get_tensor(name)
            _check_sum(name, array, note)
            arrays[name] = array
    return arrays


def map_arrays(path: Path, notes: Mapping[str, ArrayNote], *, verify: bool) -> dict[str, npt.NDArray[Any]]:
    """The arrays of a checked file: small ones read and checked, large ones read-only views of the file itself.

    A mapped file lives on when its name is taken away. The checksum of a mapped array is looked at only to `verify`.
    """
    large = {name: note for name, note in notes.items() if note.is_mapped}
    arrays = read_arrays(path, {name: note for name, note in notes.items() if name not in large})
    if large:
        with open(path, "rb") as file:
            places = find_arrays(file)
            memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        for name, note in large.items():
            arrays[name] = _array_at(memory, places, name, note)
            if verify:
                _check_sum(name, arrays[name], note)
    return {name: arrays[name] for name in notes}


def find_arrays(file: BinaryIO) -> dict[str, tuple[int, int]]:
    """The first byte of every array of an open safetensors file and the byte after its last, counted from the start."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    start = 8 + int.from_bytes(file.read(8), "little")
    if start > size:
        raise ValueError("the header is longer than the file; copy the folder again")
    header = parse_json(file.read(start - 8))
    places = {}
    for name in header:
        first, last = (start + offset for offset in take(header[name], "data_offsets", list))
        if not start <= first <= last <= size:
            raise ValueError(f"array {name!r:.100} lies outside the file; copy the folder again")
        places[name] = (first, last)
    return places


def _array_at(memory: mmap.mmap, places: Mapping[str, tuple[int, int]], name: str, note: ArrayNote) -> Any:
    first, last = places[name]
    dtype = DTYPES[note.dtype]
    if last - first != note.size or last > len(memory):
        raise ValueError(f"array {name!r:.100}: expected {note.size:,} bytes, found {last - first:,}")
    if first % dtype.itemsize:
        raise ValueError(
            f"array {name!r:.100} starts at byte {first:,}, where it cannot be mapped; save the model anew"
        )
    return np.frombuffer(memory, dtype, math.prod(note.shape), first).reshape(note.shape)


def _check_sum(name: str, array: npt.NDArray[Any], note: ArrayNote) -> None:
    checksum = 0
    for piece in _pieces(array):
        checksum = zlib.crc32(piece.data, checksum)
    if checksum != note.checksum:
        raise ValueError(f"array {name!r:.100} has changed since it was saved; copy the folder again")


def _pieces(array: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    """The numbers of an array in order, as little-endian rows of moderate size; copied only where they must be."""
    little = array.dtype.newbyteorder("<")
    # Flat where that is no copy; otherwise a piece is some of the rows, and no copy is larger than that.
    rows = array.reshape(-1) if array.flags.c_contiguous else array
    step = max(1, _PIECE * max(len(rows), 1) // max(array.nbytes, 1))
    for start in range(0, len(rows), step):
        yield np.ascontiguousarray(rows[start : start + step], dtype=little)
