"""The interactions that a model was fitted on, as files of its folder."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from loca.data.id_map import IdMap
from loca.data.interactions import Interactions
from loca.data.recency import Recency
from loca.data.schema import Schema
from loca.persistence.arrays import (
    check_types,
    dump_json,
    map_arrays,
    parse_json,
    read_arrays,
    write_arrays,
)
from loca.persistence.atomic_write import NewFiles

_ARRAYS = ("offsets", "item_rows", "times", "weights")
_DTYPES = {"offsets": "int64", "item_rows": "int32", "weights": "float64"}
_ID_DTYPES = {f"int{bits}": int for bits in (8, 16, 32, 64)} | {
    f"float{bits}": float for bits in (16, 32, 64)
}
_ID_TYPES: dict[str, type] = {"text": str, **_ID_DTYPES}

# What JSON objects must say: the type or types of each named value.
WRITTEN_DATA = {
    "users": str,
    "items": str,
    "checksums": list,
    "arrays": {"file": str, "arrays": dict},
    "recency": (dict, NoneType),
    "schema": dict,
}
_IDS = {"ids": list, "labels": (list, NoneType), "type": str, "what": str}
_RECENCY = {"half_life": (int, float), "unit": str, "shape": str, "floor": (int, float)}


# -- Writing --------------------------------------------------------------------------------------


def write_train_data(train_data: Interactions, new: NewFiles) -> dict[str, Any]:
    """Write interactions into new files; return what the manifest says of them."""
    written: dict[str, Any] = {}
    checksums = []
    for name, text in _texts_of(train_data).items():
        checksums.append(zlib.crc32(text))
        with new.file(name, "json") as (written[name], file):
            file.write(text)
    with new.file("known", "safetensors") as (file_name, file):
        notes, _ = write_arrays(file, _arrays_of(train_data))
    recency = train_data.recency
    return {
        **written,
        "checksums": checksums,
        "arrays": {"file": file_name, "arrays": notes},
        "recency": None if recency is None else asdict(recency),
        "schema": train_data.schema.to_json(),
    }


def bytes_of_train_data(interactions: Interactions) -> int:
    """Return how many bytes interactions take in a model folder."""
    of_texts = sum(map(len, _texts_of(interactions).values()))
    return of_texts + sum(int(array.nbytes) for array in _arrays_of(interactions).values())


def _texts_of(interactions: Interactions) -> dict[str, bytes]:
    """Return users and items as JSON, their labels as the text that these show."""
    return {"users": _dump_ids(interactions.users), "items": _dump_ids(interactions.items)}


def _dump_ids(ids: IdMap) -> bytes:
    labels = None
    if ids.labels is not None:
        labels = [str(label) for label in ids.labels.tolist()]
    dtype = "text" if ids.values.dtype.kind == "O" else ids.values.dtype.name
    written = {"what": ids.what, "type": dtype, "ids": ids.values.tolist(), "labels": labels}
    return dump_json(written)


def _arrays_of(interactions: Interactions) -> dict[str, Any]:
    arrays = {name: getattr(interactions, name) for name in _ARRAYS}
    return {name: array for name, array in arrays.items() if array is not None}


# -- Reading --------------------------------------------------------------------------------------


def read_train_data(folder: Path, written: Mapping[str, Any]) -> Interactions:
    """Return the interactions again, equal in ids, order, times and recency."""
    users, items = (
        _read_ids(folder / written[name], checksum)
        for name, checksum in zip(("users", "items"), written["checksums"], strict=True)
    )
    return Interactions(
        users,
        items,
        **_read_data_arrays(folder, written["arrays"]),
        recency=read_recency(written["recency"]),
        schema=Schema.from_json(written["schema"]),
    )


def _read_data_arrays(folder: Path, written: Mapping[str, Any]) -> dict[str, Any]:
    views = map_arrays(folder / written["file"])
    actual = {name: view.dtype.name for name, view in views.items() if name != "times"}
    expected = {
        name: dtype for name, dtype in _DTYPES.items() if name in views or name != "weights"
    }
    if actual != expected:
        names = ", ".join(_ARRAYS[:-1])
        raise ValueError(
            f"known interactions: expected {names} and {_ARRAYS[-1]}, found {actual!r:.100}"
        )
    # They are used everywhere: they are read, however large.
    arrays = read_arrays(views, written["arrays"], verify=True)
    return {name: np.require(array, requirements="W") for name, array in arrays.items()}


def _read_ids(path: Path, checksum: Any) -> IdMap:
    data = path.read_bytes()
    if zlib.crc32(data) != checksum:
        raise ValueError(f"{path.name} has changed since it was saved; copy the folder again")
    written = parse_json(data)
    check_types(written, _IDS)
    ids, labels, dtype = written["ids"], written["labels"], written["type"]
    if dtype not in _ID_TYPES:
        raise ValueError(f"{path.name}: unknown type of ids {dtype!r:.60}")
    if {*map(type, ids)} - {_ID_TYPES[dtype]} or {*map(type, labels or ())} - {str}:
        raise ValueError(f"{path.name}: expected ids of type {dtype} and labels of text")
    values = np.array(ids, dtype=object if dtype == "text" else dtype)
    return IdMap(
        values, written["what"], None if labels is None else np.array(labels, dtype=object)
    )


def read_recency(written: Mapping[str, Any] | None) -> Recency | None:
    """Return the recency that a JSON object describes; None where there is none."""
    if written is None:
        return None
    check_types(written, _RECENCY)
    return Recency(**{name: written[name] for name in _RECENCY})
