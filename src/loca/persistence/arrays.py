"""JSON and named arrays as files: safetensors written in pieces, mapped into memory, checked."""

from __future__ import annotations

import json
import math
import mmap
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from safetensors import safe_open

from loca.errors import ModelFileError

Arrays = Mapping[str, npt.NDArray[Any]]
# What a manifest notes of an array: {"dtype": …, "shape": […], "checksum": CRC-32 of its bytes}.
Notes = dict[str, dict[str, Any]]

# safetensors' names of what a model may be made of: plain numbers, nothing to be interpreted.
DTYPES = {
    **{f"F{8 * size}": np.dtype(f"<f{size}") for size in (2, 4, 8)},
    **{f"I{8 * size}": np.dtype(f"<i{size}") for size in (1, 2, 4, 8)},
    **{f"U{8 * size}": np.dtype(f"<u{size}") for size in (1, 2, 4, 8)},
    "BOOL": np.dtype(np.bool_),
}
_NAME_OF = {dtype: name for name, dtype in DTYPES.items()}
# A larger array stays in its file and is read through the page cache, where and when it is used.
LARGEST_READ = 16 * 1024 * 1024
PIECE = 16 * 1024 * 1024
# What the widest instructions of a processor like to load from.
_ALIGNMENT = 64
# A safetensors file begins with the length of its header.
_LENGTH_BYTES = 8


# -- JSON -----------------------------------------------------------------------------------------


def dump_json(value: Any, *, indent: int | None = None) -> bytes:
    """Return the JSON text of a value; any text comes back, broken surrogates too."""
    separators = (",", ":") if indent is None else None
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators)
    return text.encode(errors="surrogatepass")


def parse_json(data: bytes) -> Any:
    """Return the value of a JSON text; ValueError or RecursionError where there is none."""
    try:
        return json.loads(data.decode(errors="surrogatepass"))
    except ValueError as error:
        raise ValueError(f"not valid JSON; damaged or not a loca model ({error})") from None


def check_types(written: Any, expected: Mapping[str, Any]) -> None:
    """Refuse a JSON object in which a named value is missing or of another type, by ValueError.

    `expected` gives the type or types of each named value, and such a table for an object inside.
    """
    if type(written) is not dict:
        raise ValueError(f"expected an object with {min(expected)!r}, found {written!r:.60}")
    for name, types in expected.items():
        first, *others = types if isinstance(types, tuple) else (types,)
        kinds = [dict if isinstance(first, dict) else first, *others]
        if name not in written:
            raise ValueError(f"{name!r} is missing")
        if type(written[name]) not in kinds:
            names = " or ".join(kind.__name__ for kind in kinds)
            raise ValueError(f"{name!r}: expected {names}, found {written[name]!r:.60}")
        if isinstance(first, dict) and written[name] is not None:
            check_types(written[name], first)


# -- Writing --------------------------------------------------------------------------------------


def type_of(name: str, array: npt.NDArray[Any]) -> dict[str, Any]:
    """Return safetensors' name of the numbers, and the shape; refuse anything but plain numbers."""
    if not isinstance(array, np.ndarray):
        raise ModelFileError(
            f"array {name!r}: expected a numpy array, found {type(array).__name__}"
        )
    little_endian = array.dtype.newbyteorder("<")
    if not name.isprintable() or little_endian not in _NAME_OF:
        raise ModelFileError(
            f"array {name!r}: expected a printable name and plain numbers, found {array.dtype}"
        )
    return {"dtype": _NAME_OF[little_endian], "shape": list(array.shape)}


def write_arrays(
    file: BinaryIO, arrays: Arrays, *, piece_bytes: int = PIECE
) -> tuple[Notes, dict[str, int]]:
    """Write arrays one after the other as a safetensors file; return notes and offsets of each.

    The library's own writer makes files that only their owner can read, under a passing name that a
    killed save would leave behind. The format is simple enough to write here, without a second copy
    of any array.
    """
    notes = {name: type_of(name, array) for name, array in arrays.items()}
    order = _aligned_order(arrays)
    header: dict[str, Any] = {}
    starts: dict[str, int] = {}
    end = 0
    for name in order:
        starts[name] = end
        end += arrays[name].nbytes
        header[name] = {**notes[name], "data_offsets": [starts[name], end]}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-(_LENGTH_BYTES + len(text)) % _ALIGNMENT)
    file.write(len(text).to_bytes(_LENGTH_BYTES, "little") + text)
    for name in order:
        checksum = 0
        for piece in _pieces(arrays[name], piece_bytes):
            file.write(piece.data)
            checksum = zlib.crc32(piece.data, checksum)
        notes[name]["checksum"] = checksum
    return notes, {name: _LENGTH_BYTES + len(text) + start for name, start in starts.items()}


def _aligned_order(arrays: Arrays) -> list[str]:
    """Return the names in an order in which every array starts at a multiple of its item size.

    Whole multiples of the alignment come first, then wide items: so arrays can be mapped into
    memory, a large one nearly always from a multiple of 64.
    """

    def key(name: str) -> tuple[bool, int, str]:
        array = arrays[name]
        return array.nbytes % _ALIGNMENT > 0, -array.itemsize, name

    return sorted(arrays, key=key)


def _pieces(array: npt.NDArray[Any], piece_bytes: int) -> Iterator[npt.NDArray[Any]]:
    """Yield the numbers of an array in order, as little-endian rows of moderate size."""
    little_endian = array.dtype.newbyteorder("<")
    # Flat where that is no copy; otherwise a piece is some of the rows, and no copy is larger.
    rows = array.reshape(-1) if array.flags.c_contiguous else array
    step = max(1, piece_bytes * max(len(rows), 1) // max(array.nbytes, 1))
    for start in range(0, len(rows), step):
        yield np.ascontiguousarray(rows[start : start + step], dtype=little_endian)


# -- Reading --------------------------------------------------------------------------------------


def map_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of a safetensors file as read-only views, which outlive its name."""
    with safe_open(path, framework="numpy") as checked:
        # It refuses a header that does not fit the file.
        names = set(checked.keys())
    with open(path, "rb") as file:
        start = _LENGTH_BYTES + int.from_bytes(file.read(_LENGTH_BYTES), "little")
        header = parse_json(file.read(start - _LENGTH_BYTES))
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    views = {}
    for name in names:
        dtype = header[name]["dtype"]
        shape = header[name]["shape"]
        if dtype not in DTYPES:
            raise ValueError(
                f"expected an array of one of {', '.join(DTYPES)}, found {dtype!r:.60}"
            )
        first = start + header[name]["data_offsets"][0]
        flat = np.frombuffer(memory, DTYPES[dtype], math.prod(shape), first)
        views[name] = flat.reshape(shape)
    return views


def read_arrays(
    views: Arrays, notes: Mapping[str, Any], *, verify: bool
) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of the notes: small ones read and compared, large ones as views.

    A file whose header does not promise exactly the arrays of the notes is refused, and none of
    them is read. The checksum of a large array is looked at only to `verify`, which reads all.
    """
    _check_notes(views, notes)
    arrays = {}
    for name, note in notes.items():
        takes_memory = loads_into_memory(views[name])
        arrays[name] = views[name].copy() if takes_memory else views[name]
        if not (takes_memory or verify):
            continue
        if _checksum(arrays[name]) != note.get("checksum"):
            raise ValueError(
                f"array {name!r:.100} has changed since it was saved; copy the folder again"
            )
    return arrays


def _check_notes(views: Arrays, notes: Mapping[str, Any]) -> None:
    """Refuse other arrays than those of the notes."""
    if mismatched := set(views) ^ set(notes):
        name = min(mismatched)
        problem = "missing" if name in notes else "not in the manifest"
        raise ValueError(f"array {name!r:.100} is {problem}")
    for name, view in views.items():
        actual = type_of(name, view)
        check_types(notes[name], {"dtype": str, "shape": list})
        expected = {key: notes[name][key] for key in actual}
        if dump_json(expected) != dump_json(actual):  # as text: true and 2.0 are no lengths
            texts = [f"{note['dtype']} {note['shape']}"[:100] for note in (expected, actual)]
            raise ValueError(f"array {name!r:.100}: expected {texts[0]}, found {texts[1]}")


def _checksum(array: npt.NDArray[Any]) -> int:
    checksum = 0
    for piece in _pieces(array, PIECE):
        checksum = zlib.crc32(piece.data, checksum)
    return checksum


def loads_into_memory(view: npt.NDArray[Any]) -> bool:
    """Return whether an array is read at once: it is small, or lies where it cannot be used.

    A file from elsewhere may have arrays where a processor cannot load numbers from.
    """
    return view.nbytes <= LARGEST_READ or not view.flags.aligned
