"""A model as a folder: saved whole or not at all, loaded only after every file was checked; nothing in it is run."""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError

from loca.data.id_map import IdMap
from loca.data.interactions import Interactions
from loca.data.recency import Recency
from loca.errors import ModelFileError
from loca.memory import available_bytes, readable_bytes
from loca.persistence.arrays import (
    Arrays,
    check_arrays,
    dump_json,
    is_read,
    map_arrays,
    parse_json,
    read_arrays,
    take,
    write_arrays,
)
from loca.persistence.atomic_write import MANIFEST, FolderUpdate, check_plain, is_data_file, read_plain, updating
from loca.persistence.manifest import (
    Kinds,
    ModelState,
    find_model_kind,
    get_params,
    is_model,
    read_values,
    write_values,
)

FORMAT = "loca-model"
VERSION = 1
LARGEST_MANIFEST = 32 * 1024 * 1024
_TEXT = "text"
_ID_DTYPES = ("int8", "int16", "int32", "int64", "float16", "float32", "float64")
# The most that a byte of JSON was seen to take as Python objects: an empty list is three bytes and takes 64.
_MEMORY_PER_JSON_BYTE = 24
_STATE = "state/"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

# What model.json must say: the types of named values, objects inside objects, None where something may be missing.
_ARRAY_FILE = {"file": (str,), "arrays": (dict,)}
_TRAIN_DATA = {"users": (str,), "items": (str,), "checksums": (list,), "arrays": _ARRAY_FILE, "recency": (dict, None)}
_MODEL = {"kind": (str,), "params": (dict,), "facts": (dict,), "shares_known": (bool,), "parts": (dict,)}
_WHOLE = {"files": (dict,), "written_by": (dict,), "model": _MODEL}


def save_model(model: Any, folder: str | Path) -> None:
    """Save a fitted model, with the interactions it was fitted on, in place of whatever model the folder held.

    A failure or a kill at any moment leaves the old model, or after the last step the new one, whole. A part
    fitted on the very interactions of the whole gets them back; another part comes back without its own.
    """
    path, replaces = Path(folder), False
    try:
        replaces = check_foreign(path)
        with updating(path) as update:
            _write_model(model, update)
    except OSError as error:
        fate = "the model that was there stays" if replaces else "nothing was left behind"
        advice = "free some disk space or choose another folder" if error.errno in _NO_ROOM else "choose another folder"
        reason = error.strerror or type(error).__name__
        raise ModelFileError(f"{path}: cannot save the model: {reason}; {fate}; {advice}") from error


def check_foreign(folder: Path) -> bool:
    """Whether the folder holds a model of loca's; one that holds something else is refused, untouched."""
    if not folder.exists():
        return False
    if not folder.is_dir():
        raise ModelFileError(f"{folder}: expected a folder to save into, found a file; choose another name")
    names = os.listdir(folder)
    holds_model = MANIFEST in names and holds_format(folder / MANIFEST, FORMAT)
    foreign = sorted(name for name in names if not is_data_file(name))
    if foreign and not holds_model:
        raise ModelFileError(
            f"{folder}: not empty and not a loca model (it holds {foreign[0]!r:.60}); nothing was touched, "
            "choose a new or empty folder"
        )
    return holds_model


def _write_model(model: Any, update: FolderUpdate) -> None:
    train_data: Interactions | None = getattr(model, "train_data_", None)
    tree = _write_tree(model, update, train_data, type(model).__name__)
    known: dict[str, Any] | None = None
    if train_data is not None:
        known = {"checksums": []}
        for what, ids in (("users", train_data.users), ("items", train_data.items)):
            data = _ids_as_json(ids)
            with update.new_file(what, "json") as (known[what], file):
                file.write(data)
            known["checksums"].append(zlib.crc32(data))
        known["arrays"] = _write_arrays(update, "known", _arrays_of(train_data))
        known["recency"] = None if train_data.recency is None else asdict(train_data.recency)
    packages = {name: _version_of(name) for name in ("loca", "numpy", "torch", "safetensors")}
    body = {"written_by": packages, "files": dict(update.sizes), "known": known, "model": tree}
    data = sealed_json(FORMAT, VERSION, body)
    if len(data) > LARGEST_MANIFEST:
        raise ModelFileError(
            f"{tree['kind']}: its parameters and facts take {len(data):,} bytes, more than {LARGEST_MANIFEST:,}; "
            "hold the large ones as numpy arrays"
        )
    update.commit(data)


def _write_tree(model: Any, update: FolderUpdate, train_data: Interactions | None, where: str) -> dict[str, Any]:
    """Write a model and those inside it, one array file each, so that only one is copied at a time."""
    if not is_model(model):
        raise ModelFileError(f"{where}: expected a fitted model, found {type(model).__name__}")
    state: ModelState = model.state()
    arrays = {f"{_STATE}{name}": array for name, array in state.arrays.items()}
    written: dict[str, Any] = {
        "kind": type(model).__name__,
        "params": write_values(get_params(model), arrays, f"{where}, parameter"),
        "facts": write_values(state.facts, arrays, f"{where}, fact"),
        "arrays": _write_arrays(update, "arrays", arrays) if arrays else None,
        "shares_known": train_data is not None and getattr(model, "train_data_", None) is train_data,
    }
    parts = state.parts
    del state, arrays  # they may be copies from another device
    inner = {name: _write_tree(part, update, train_data, f"{where}, part {name!r}") for name, part in parts.items()}
    return {**written, "parts": inner}


def _write_arrays(update: FolderUpdate, what: str, arrays: Arrays) -> dict[str, Any]:
    with update.new_file(what, "safetensors") as (name, file):
        return {"file": name, "arrays": write_arrays(file, arrays)[0]}


def _version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def load_model(folder: str | Path, kinds: Kinds, *, verify: bool = False) -> Any:
    """The model saved in a folder; `kinds` names every class of model or value object that may be in it.

    Anything missing, foreign, damaged or too large for the memory is refused with ModelFileError. Large arrays stay
    in their files, mapped read-only, and a save over the folder does not touch them; their sizes and places are
    checked, their contents only with `verify`, which reads everything.
    """
    path = Path(folder)
    while True:
        with _blaming(path):
            if not path.is_dir() or not (path / MANIFEST).exists():
                raise ModelFileError(f"{path}: no loca model here; expected a folder with a {MANIFEST}")
            data = read_plain(path / MANIFEST, most=LARGEST_MANIFEST)
        try:
            with _blaming(path):
                return _load(path, data, kinds, verify)
        except ModelFileError:
            with suppress(OSError, ModelFileError):
                if read_plain(path / MANIFEST, most=LARGEST_MANIFEST) != data:
                    continue  # a save that ended meanwhile took the old model's files away; the new model is whole
            raise


def _load(folder: Path, data: bytes, kinds: Kinds, verify: bool) -> Any:
    with _blaming(folder / MANIFEST):
        manifest = _read_manifest(data)
    for name, size in manifest["files"].items():
        check_plain(folder / name, size=size)
    known, needed = manifest["known"], 0
    for one in _array_files(manifest["model"]) + ([] if known is None else [known["arrays"]]):
        with _blaming(folder / one["file"]):
            found = map_arrays(folder / one["file"])  # only to look: many mapped at once would take many file handles
            check_arrays(found, one["arrays"])
            is_data = known is not None and one is known["arrays"]
            needed += sum(array.nbytes for array in found.values() if is_data or is_read(array))
    if known is not None:
        needed += _MEMORY_PER_JSON_BYTE * sum(manifest["files"][known[ids]] for ids in ("users", "items"))
    free = available_bytes()
    if needed > free:
        raise ModelFileError(
            f"{folder}: the model needs {readable_bytes(needed)} of memory and {readable_bytes(free)} are "
            "free; close other programs or use a larger machine"
        )
    train_data = None if known is None else _read_train_data(folder, known)

    def restore(written: Mapping[str, Any]) -> Any:
        """One model of the tree, after those inside it."""
        parts = {name: restore(part) for name, part in written["parts"].items()}
        arrays, file = {}, written["arrays"]
        if file is not None:
            with _blaming(folder / file["file"]):
                arrays = read_arrays(map_arrays(folder / file["file"]), file["arrays"], verify=verify)
        with _blaming(folder / MANIFEST):
            params = read_values(written["params"], arrays, kinds)
            kind = find_model_kind(written["kind"], params, kinds)
            facts = read_values(written["facts"], arrays, kinds)
        learned = {name.removeprefix(_STATE): array for name, array in arrays.items() if name.startswith(_STATE)}
        try:
            model = kind.restore(params, ModelState(learned, facts, parts))
        except Exception as error:
            writer = manifest["written_by"].get("loca")
            raise ModelFileError(
                f"{folder}: cannot restore {written['kind']}, saved by loca {writer!s:.30}: {_line(error)}"
            ) from error
        if written["shares_known"]:
            model.train_data_ = train_data
        return model

    return restore(manifest["model"])


def _read_manifest(data: bytes) -> dict[str, Any]:
    """What a model.json says, once its format, version, seal and types are right; a ValueError otherwise."""
    body = open_sealed(data, FORMAT, VERSION, "; copy the folder again or save the model anew")
    _check_types(body, _WHOLE)
    if take(body, "known", dict, type(None)) is not None:
        _check_types(body["known"], _TRAIN_DATA)
    for name, size in body["files"].items():
        if not is_data_file(name) or type(size) is not int:
            raise ValueError(f"{name!r:.60} with {size!r:.60} bytes is not a data file of a loca model")
    known = body["known"]
    named = [one["file"] for one in _array_files(body["model"])]
    named += [] if known is None else [known["arrays"]["file"], known["users"], known["items"]]
    odd = set(named) ^ set(body["files"])
    if odd or len(named) > len(body["files"]):
        raise ValueError(f"{min(odd or named)!r:.60} is not both listed and used, once")
    return body


def _array_files(model: Any) -> list[dict[str, Any]]:
    """The checked array files of a written model and of all models inside it."""
    _check_types(model, _MODEL)
    file = take(model, "arrays", dict, type(None))
    if file is not None:
        _check_types(file, _ARRAY_FILE)
    return [*([] if file is None else [file]), *(one for part in model["parts"].values() for one in _array_files(part))]


def _check_types(written: Any, expected: Mapping[str, Any]) -> None:
    """Refuse a JSON object in which a named value is missing or of another type."""
    for name, types in expected.items():
        if isinstance(types, dict):
            _check_types(take(written, name, dict), types)
        else:
            take(written, name, *(type(None) if one is None else one for one in types))


def sealed_json(form: str, form_version: int, body: dict[str, Any]) -> bytes:
    """The text of a JSON file with its format, its version and a checksum of all that it says."""
    return dump_json({"format": form, "version": form_version, "checksum": seal(body), **body}, indent=1) + b"\n"


def seal(body: Mapping[str, Any]) -> int:
    """The CRC-32 of all that a JSON file says, whatever its spaces and line ends."""
    return zlib.crc32(dump_json(body))


def open_sealed(data: bytes, form: str, newest: int, advice: str = "") -> dict[str, Any]:
    """What a sealed JSON file says; a ValueError where its format, version or checksum are not right."""
    written = parse_json(data)
    if type(written) is not dict or written.get("format") != form:
        raise ValueError(f"not a loca model: expected the format {form!r}")
    found, checksum = take(written, "version", int), take(written, "checksum", int)
    if found > newest:
        raise ValueError(f"written in format {found} by a newer loca, this one reads up to {newest}; upgrade loca")
    if found < 1:
        raise ValueError(f"unknown format version {found}")
    body = {name: value for name, value in written.items() if name not in ("format", "version", "checksum")}
    if checksum != seal(body):
        raise ValueError(f"changed or damaged since it was saved{advice}")
    return body


def holds_format(path: Path, form: str) -> bool:
    """Whether a JSON file is one of loca's, of that format and any version, sound or not."""
    try:
        written = parse_json(read_plain(path, most=LARGEST_MANIFEST))
    except (ValueError, RecursionError):
        return False
    return type(written) is dict and written.get("format") == form


def bytes_of_train_data(interactions: Interactions) -> int:
    """How many bytes the interactions take in a model folder."""
    arrays = sum(array.nbytes for array in _arrays_of(interactions).values())
    return arrays + len(_ids_as_json(interactions.users)) + len(_ids_as_json(interactions.items))


def _arrays_of(interactions: Interactions) -> dict[str, npt.NDArray[Any]]:
    arrays: dict[str, npt.NDArray[Any]] = {"offsets": interactions.offsets, "item_rows": interactions.item_rows}
    return arrays if interactions.times is None else {**arrays, "times": interactions.times}


def _ids_as_json(ids: IdMap) -> bytes:
    """The ids, and their labels as the text they show."""
    labels = None if ids.labels is None else [str(label) for label in ids.labels.tolist()]
    dtype = _TEXT if ids.values.dtype.kind == "O" else ids.values.dtype.name
    return dump_json({"what": ids.what, "type": dtype, "ids": ids.values.tolist(), "labels": labels})


def _read_train_data(folder: Path, written: Mapping[str, Any]) -> Interactions:
    """The interactions again, equal in ids, order, times and recency; they check themselves as ever."""
    views, notes = map_arrays(folder / written["arrays"]["file"]), written["arrays"]["arrays"]
    dtypes = {name: view.dtype.name for name, view in views.items() if name != "times"}
    if dtypes != {"offsets": "int64", "item_rows": "int32"}:
        raise ValueError(f"known interactions: expected offsets, item_rows and times, found {dtypes!r:.100}")
    # They are used everywhere: they are read, however large.
    arrays = {name: np.require(one, requirements="W") for name, one in read_arrays(views, notes, verify=True).items()}
    users, items = written["checksums"]
    return Interactions(
        users=_read_ids(folder / written["users"], users),
        items=_read_ids(folder / written["items"], items),
        offsets=arrays["offsets"],
        item_rows=arrays["item_rows"],
        times=arrays.get("times"),
        recency=None if written["recency"] is None else read_recency(written["recency"]),
    )


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


def read_recency(written: Any) -> Recency:
    """The recency that a JSON object describes; shape and floor may be missing, as older models know of neither."""
    return Recency(
        half_life=take(written, "half_life", int, float),
        unit=take(written, "unit", str),
        shape=take(written, "shape", str) if "shape" in written else "exponential",
        floor=take(written, "floor", int, float) if "floor" in written else 0.0,
    )


@contextmanager
def _blaming(path: Path) -> Iterator[None]:
    """Turn whatever goes wrong inside into a ModelFileError that names the file; a ModelFileError stays."""
    try:
        yield
    except ModelFileError:
        raise
    except Exception as error:
        raise ModelFileError(f"{path}: {_line(error)}") from error


def _line(error: Exception) -> str:
    """What an error says, in one short line."""
    if isinstance(error, RecursionError):
        return "nested too deeply; this is not a loca model"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, SafetensorError):
        return f"not a sound safetensors file; copy the folder again or save the model anew ({error!s:.100})"
    text = " ".join(str(error).split())[:300]
    return text or type(error).__name__
