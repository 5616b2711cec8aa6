"""The interactions a model was fitted on, as files: ids and labels in JSON, the rest in one array file."""

from __future__ import annotations

import zlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from loca.data.id_map import IdMap
from loca.data.interactions import Interactions
from loca.data.recency import Recency
from loca.files.array_files import ArrayFile, read_arrays, write_arrays
from loca.files.checked_json import dump_json, parse_json, take
from loca.files.manifest import WrittenKnown
from loca.files.model_folder import FolderUpdate, read_plain

_TEXT = "text"
_ID_DTYPES = ("int8", "int16", "int32", "int64", "float16", "float32", "float64")


def write_known(update: FolderUpdate, known: Interactions) -> WrittenKnown:
    """Writes ids, the order of items, times and recency; labels are saved as the text they show."""
    users, users_checksum = _write_ids(update, "users", known.users)
    items, items_checksum = _write_ids(update, "items", known.items)
    arrays = _arrays_of(known)
    with update.new_file("known", "safetensors") as (name, file):
        notes = write_arrays(file, arrays)
    return WrittenKnown(
        users=users,
        items=items,
        checksums=(users_checksum, items_checksum),
        arrays=ArrayFile(name, notes),
        recency=None if known.recency is None else asdict(known.recency),
    )


def read_known(folder: Path, written: WrittenKnown) -> Interactions:
    """The interactions again, equal in ids, order, times and recency; they check themselves as ever."""
    arrays = read_arrays(folder / written.arrays.name, written.arrays.notes)
    return Interactions(
        users=_read_ids(folder / written.users, written.checksums[0]),
        items=_read_ids(folder / written.items, written.checksums[1]),
        offsets=arrays["offsets"],
        item_rows=arrays["item_rows"],
        times=arrays.get("times"),
        recency=None if written.recency is None else read_recency(written.recency),
    )


def read_recency(written: Any) -> Recency:
    """The recency that a JSON object tells of; shape and floor may be missing, as older models know of neither."""
    return Recency(
        half_life=take(written, "half_life", int, float),
        unit=take(written, "unit", str),
        shape=take(written, "shape", str) if "shape" in written else "exponential",
        floor=take(written, "floor", int, float) if "floor" in written else 0.0,
    )


def bytes_of_known(known: Interactions) -> int:
    """How many bytes the interactions take in a model folder."""
    in_arrays = sum(array.nbytes for array in _arrays_of(known).values())
    return in_arrays + len(_ids_as_json(known.users)) + len(_ids_as_json(known.items))


def _arrays_of(known: Interactions) -> dict[str, npt.NDArray[Any]]:
    arrays: dict[str, npt.NDArray[Any]] = {"offsets": known.offsets, "item_rows": known.item_rows}
    return arrays if known.times is None else {**arrays, "times": known.times}


def _ids_as_json(ids: IdMap) -> bytes:
    labels = None if ids.labels is None else [str(label) for label in ids.labels.tolist()]
    dtype = _TEXT if ids.values.dtype.kind == "O" else ids.values.dtype.name
    return dump_json({"what": ids.what, "type": dtype, "ids": ids.values.tolist(), "labels": labels})


def _write_ids(update: FolderUpdate, what: str, ids: IdMap) -> tuple[str, int]:
    data = _ids_as_json(ids)
    with update.new_file(what, "json") as (name, file):
        file.write(data)
    return name, zlib.crc32(data)


def _read_ids(path: Path, checksum: int) -> IdMap:
    data = read_plain(path)
    if zlib.crc32(data) != checksum:
        raise ValueError(f"{path.name} has changed since it was saved; copy the folder again")
    written = parse_json(data)
    values, labels = take(written, "ids", list), take(written, "labels", list, type(None))
    dtype = take(written, "type", str)
    if dtype != _TEXT and dtype not in _ID_DTYPES:
        raise ValueError(f"{path.name}: unknown type of ids {dtype!r:.60}")
    expected = str if dtype == _TEXT else int if dtype.startswith("int") else float
    if not all(type(value) is expected for value in values) or not all(type(label) is str for label in labels or ()):
        raise ValueError(f"{path.name}: expected ids of type {dtype} and labels of text")
    return IdMap(
        np.array(values, dtype=object if dtype == _TEXT else dtype),
        take(written, "what", str),
        None if labels is None else np.array(labels, dtype=object),
    )
