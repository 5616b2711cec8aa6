"""JSON and named arrays as files: safetensors written in pieces, mapped into memory, and checked by their checksums."""

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
# What model.json says of an array: {"dtype": …, "shape": […], "checksum": CRC-32 of its bytes}.
Notes = dict[str, dict[str, Any]]

# safetensors' names of what a model may be made of: plain numbers, nothing that numpy must interpret.
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


def dump_json(value: Any, *, indent: int | None = None) -> bytes:
    """The JSON text of a value, readable where the text is; any text comes back, broken surrogates too."""
    separators = (",", ":") if indent is None else None
    return json.dumps(value, ensure_ascii=False, indent=indent, separators=separators).encode(
        errors="surrogatepass"
    )


def parse_json(data: bytes) -> Any:
    """The value of a JSON text; ValueError or RecursionError where there is none."""
    try:
        return json.loads(data.decode(errors="surrogatepass"))
    except ValueError as error:
        raise ValueError(f"not valid JSON; damaged or not a loca model ({error})") from None


def check_types(written: Any, expected: Mapping[str, Any]) -> None:
    """Refuse a JSON object in which a named value is missing or of another type; a ValueError says what was found.

    `expected` gives the type or types of each named value, and such a table for an object inside it.
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


def type_of(name: str, array: npt.NDArray[Any]) -> dict[str, Any]:
    """safetensors' name of the numbers and the shape of an array; anything but plain numbers is refused."""
    if not isinstance(array, np.ndarray):
        raise ModelFileError(
            f"array {name!r}: expected a numpy array, found {type(array).__name__}"
        )
    little = array.dtype.newbyteorder("<")
    if not name.isprintable() or little not in _NAME_OF:
        raise ModelFileError(
            f"array {name!r}: expected a printable name and plain numbers, found {array.dtype}"
        )
    return {"dtype": _NAME_OF[little], "shape": list(array.shape)}


def write_arrays(
    file: BinaryIO, arrays: Arrays, *, piece_bytes: int = PIECE
) -> tuple[Notes, dict[str, int]]:
    """Write the arrays one after the other as a safetensors file; gives the note and the first byte of each.

    The library's own writer makes files that only their owner can read, under a passing name that a killed
    save would leave behind; the format is simple enough to write here, without a second copy of any array.
    """
    notes = {name: type_of(name, array) for name, array in arrays.items()}
    # Whole multiples of the alignment first, then wide items first: every array starts at a multiple of its item
    # size and can be mapped into memory, a large one nearly always at a multiple of 64.
    order = sorted(
        arrays,
        key=lambda name: (arrays[name].nbytes % _ALIGNMENT > 0, -arrays[name].itemsize, name),
    )
    header, starts, end = {}, {}, 0
    for name in order:
        starts[name], end = end, end + arrays[name].nbytes
        header[name] = {**notes[name], "data_offsets": [starts[name], end]}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    file.write(len(text).to_bytes(8, "little") + text)
    for name in order:
        notes[name]["checksum"] = 0
        for piece in _pieces(arrays[name], piece_bytes):
            file.write(piece.data)
            notes[name]["checksum"] = zlib.crc32(piece.data, notes[name]["checksum"])
    return notes, {name: 8 + len(text) + start for name, start in starts.items()}


def map_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """The arrays of a safetensors file as read-only views of the file, which lives on when its name is taken away."""
    with safe_open(
        path, framework="numpy"
    ) as checked:  # refuses a header that does not fit the file
        names = set(checked.keys())
    with open(path, "rb") as file:
        start = 8 + int.from_bytes(file.read(8), "little")
        header = parse_json(file.read(start - 8))
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    views = {}
    for name in names:
        dtype, shape = header[name]["dtype"], header[name]["shape"]
        if dtype not in DTYPES:
            raise ValueError(
                f"expected an array of one of {', '.join(DTYPES)}, found {dtype!r:.60}"
            )
        first = start + header[name]["data_offsets"][0]
        views[name] = np.frombuffer(memory, DTYPES[dtype], math.prod(shape), first).reshape(shape)
    return views


def read_arrays(
    views: Arrays, notes: Mapping[str, Any], *, verify: bool
) -> dict[str, npt.NDArray[Any]]:
    """The arrays of the notes: small ones read and compared with their checksums, large ones as the views they are.

    A file whose header does not promise exactly the arrays of the notes is refused, and none of them is read. The
    checksum of a large array is looked at only to `verify`, which reads everything.
    """
    for odd in sorted(set(views) ^ set(notes)):
        raise ValueError(
            f"array {odd!r:.100} is {'missing' if odd in notes else 'not in model.json'}"
        )
    for name, view in views.items():
        found = type_of(name, view)
        check_types(notes[name], {"dtype": str, "shape": list})
        expected = {key: notes[name][key] for key in found}
        if dump_json(expected) != dump_json(found):  # as text: true and 2.0 are no lengths
            texts = [f"{note['dtype']} {note['shape']}"[:100] for note in (expected, found)]
            raise ValueError(f"array {name!r:.100}: expected {texts[0]}, found {texts[1]}")
    arrays = {}
    for name, note in notes.items():
        # A file from elsewhere may have arrays where a processor cannot load them from.
        must_copy = is_read(views[name]) or not views[name].flags.aligned
        arrays[name] = views[name].copy() if must_copy else views[name]
        if is_read(arrays[name]) or verify:
            checksum = 0
            for piece in _pieces(arrays[name], PIECE):
                checksum = zlib.crc32(piece.data, checksum)
            if checksum != note.get("checksum"):
                raise ValueError(
                    f"array {name!r:.100} has changed since it was saved; copy the folder again"
                )
    return arrays


def is_read(array: npt.NDArray[Any]) -> bool:
    """Whether an array is small enough to be read at once."""
    return array.nbytes <= LARGEST_READ


def _pieces(array: npt.NDArray[Any], piece_bytes: int) -> Iterator[npt.NDArray[Any]]:
    """The numbers of an array in order, as little-endian rows of moderate size; copied only where they must be."""
    little = array.dtype.newbyteorder("<")
    # Flat where that is no copy; otherwise a piece is some of the rows, and no copy is larger than that.
    rows = array.reshape(-1) if array.flags.c_contiguous else array
    step = max(1, piece_bytes * max(len(rows), 1) // max(array.nbytes, 1))
    for start in range(0, len(rows), step):
        yield np.ascontiguousarray(rows[start : start + step], dtype=little)
