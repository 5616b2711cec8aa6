"""One model state in one safetensors file that says of itself what it is, and whether it is whole."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from safetensors import safe_open

from loca.errors import ModelFileError
from loca.files.array_files import ArrayNote, check_arrays, find_arrays, map_arrays, plain_dtype, write_arrays
from loca.files.checked_json import dump_json, parse_json, take
from loca.files.model_folder import check_plain
from loca.files.model_state import ModelState
from loca.files.written_values import read_values, write_values

_FORMAT = "loca-state"
_VERSION = 1
_STATE = "state/"
# Two arrays beside the state's own: the facts with the dtype and shape of everything, and the checksums of all others.
_ABOUT = "about"
_CHECKSUMS = "checksums"


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
