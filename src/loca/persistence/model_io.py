"""A model as a folder: saved whole or not at all, loaded only after every file was checked; nothing in it is run."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from importlib.metadata import distributions
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np
from safetensors import SafetensorError

from loca.data.id_map import IdMap
from loca.data.interactions import Interactions
from loca.data.recency import Recency
from loca.data.schema import Schema
from loca.errors import ModelFileError
from loca.memory import available_bytes, readable_bytes
from loca.persistence.arrays import (
    check_types,
    dump_json,
    is_read,
    map_arrays,
    parse_json,
    read_arrays,
    write_arrays,
)
from loca.persistence.atomic_write import (
    MANIFEST,
    MAX_JSON,
    NewFiles,
    advice_on,
    check_plain,
    is_data_file,
    read_plain,
    updating,
)
from loca.persistence.learned import parts_of, restored, state_of, stored_params
from loca.persistence.manifest import (
    Kinds,
    ModelState,
    find_kind,
    is_model,
    read_values,
    write_values,
)
from loca.remarks import Remarks, read_remarks

FORMAT, VERSION = "loca-model", 2
# Arrays under this name are what a model has learned; others are inside its parameters and facts.
STATE = "state/"
# The most that a byte of JSON was seen to take as Python objects: an empty list is three bytes and takes 64.
_MEMORY_PER_JSON_BYTE = 24
_ID_DTYPES = {f"int{bits}": int for bits in (8, 16, 32, 64)} | {
    f"float{bits}": float for bits in (16, 32, 64)
}
_ID_TYPES: dict[str, type] = {"text": str, **_ID_DTYPES}

# What a JSON object must say: the type or types of each named value, a table for an object inside it.
_FILE = {"file": str, "arrays": dict}
_MODEL = {
    "kind": str,
    "params": dict,
    "facts": dict,
    "parts": dict,
    "arrays": (_FILE, NoneType),
}
_REMARK = {"kind": str, "text": str}
_TRAIN_DATA = {
    "users": str,
    "items": str,
    "checksums": list,
    "arrays": _FILE,
    "recency": (dict, NoneType),
}
_WHOLE = {"files": dict, "written_by": dict, "model": dict, "known": (_TRAIN_DATA, NoneType)}
_IDS = {"ids": list, "labels": (list, NoneType), "type": str, "what": str}
_RECENCY = {"half_life": (int, float), "unit": str, "shape": str, "floor": (int, float)}


def save_model(model: Any, folder: str | Path) -> None:
    """Save a fitted model, with the interactions it was fitted on, in place of whatever model the folder held.

    A failure or a kill at any moment leaves the old model, or after the last step the new one, whole.
    """
    path, replaces = Path(folder), False
    try:
        replaces = check_foreign(path)
        with updating(path) as update:
            _write_model(model, update)
    except OSError as error:
        fate = "the model that was there stays" if replaces else "nothing was left behind"
        problem = f"cannot save the model: {_line(error)}; {fate}; {advice_on(error)}"
        raise ModelFileError(f"{path}: {problem}") from error


def check_foreign(folder: Path) -> bool:
    """Whether the folder holds a model of loca's; one that holds something else is refused, untouched."""
    if not folder.exists():
        return False
    if not folder.is_dir():
        raise ModelFileError(
            f"{folder}: expected a folder to save into, found a file; choose another name"
        )
    names = sorted(os.listdir(folder))
    holds_model = MANIFEST in names and holds_format(folder / MANIFEST, FORMAT)
    foreign = [name for name in names if not is_data_file(name)]
    if foreign and not holds_model:
        raise ModelFileError(
            f"{folder}: not empty and not a loca model (it holds {foreign[0]!r:.60}); nothing was touched, "
            "choose a new or empty folder"
        )
    return holds_model


def _write_model(model: Any, new: NewFiles) -> None:
    tree = _TreeWriter(new).write(model, type(model).__name__, path="")
    body: dict[str, Any] = {"written_by": _versions(), "model": tree}
    body["known"] = _write_train_data(getattr(model, "train_data_", None), new)
    body["files"] = dict(new.sizes)
    if report := model.report() if hasattr(model, "report") else "":
        body["report"] = report
    if remarks := getattr(model, "remarks_", ()):
        body["remarks"] = [remark.to_json() for remark in remarks]
    data = sealed_json(FORMAT, VERSION, body)
    if len(data) > MAX_JSON:
        raise ModelFileError(
            f"{tree['kind']}: its parameters and facts take {len(data):,} bytes, more than "
            f"{MAX_JSON:,}; hold the large ones as numpy arrays"
        )
    with new.file("model", "json") as (_, file):
        file.write(data)


def _versions() -> dict[str, str]:
    """Return the versions of what writes a model."""
    packages = ("loca", "numpy", "torch", "safetensors")
    return {
        name: next((package.version for package in distributions(name=name)), "unknown")
        for name in packages
    }


class _TreeWriter:
    """Writes a model and those inside it: each once, with an array file of its own.

    So only one is copied from a device at a time. A part that is there already is written as
    `same_as`, with the place where it stands.
    """

    def __init__(self, new: NewFiles) -> None:
        self._new = new
        self._written_at: dict[int, str] = {}

    def write(self, model: Any, where: str, path: str) -> dict[str, Any]:
        """Return the manifest of a model at a path of the tree; `where` names it in errors."""
        if not is_model(model):
            raise ModelFileError(f"{where}: expected a fitted model, found {type(model).__name__}")
        if id(model) in self._written_at:
            return {"same_as": self._written_at[id(model)]}
        folder = getattr(model, "saved_in_", None)
        if folder is not None and (folder / MANIFEST).exists():
            tree = self._take(folder, path)
            parts = {k: part for k, part in parts_of(model).items() if k not in tree["parts"]}
        else:
            tree = self._write_alone(model, where)
            parts = parts_of(model)
        for name, part in parts.items():
            tree["parts"][name] = self.write(part, f"{where}, part {name!r}", _inside(path, name))
        self._written_at[id(model)] = path
        return tree

    def _write_alone(self, model: Any, where: str) -> dict[str, Any]:
        state = state_of(model)
        arrays = {f"{STATE}{name}": array for name, array in state.arrays.items()}
        return {
            "kind": type(model).__name__,
            "params": write_values(stored_params(model), arrays, f"{where}, parameter"),
            "facts": write_values(state.facts, arrays, f"{where}, fact"),
            "arrays": _write_array_file(self._new, "arrays", arrays) if arrays else None,
            "parts": {},
        }

    def _take(self, folder: Path, path: str) -> dict[str, Any]:
        """Take over a model that a folder holds, without a look at its arrays."""
        with _blaming(folder / MANIFEST):
            manifest = open_sealed(read_plain(folder / MANIFEST), FORMAT, VERSION)
            check_types(manifest, _WHOLE)
            _array_files(manifest["model"])
        return self._taken(manifest["model"], folder, manifest["files"], path)

    def _taken(
        self, tree: dict[str, Any], folder: Path, sizes: Mapping[str, Any], path: str
    ) -> dict[str, Any]:
        if "same_as" in tree:
            return {"same_as": _inside(path, tree["same_as"])}
        arrays, parts = tree["arrays"], tree["parts"]
        if arrays is not None:
            name = arrays["file"]
            if not is_data_file(name):
                raise ModelFileError(f"{folder}: {name!r:.60} is not a data file of a loca model")
            taken = self._new.taken("arrays", folder / name, sizes.get(name))
            arrays = {**arrays, "file": taken}
        inner = {name: self._taken(part, folder, sizes, path) for name, part in parts.items()}
        return {**tree, "arrays": arrays, "parts": inner}


def _inside(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name


def _write_array_file(new: NewFiles, what: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    with new.file(what, "safetensors") as (name, file):
        return {"file": name, "arrays": write_arrays(file, arrays)[0]}


def _write_train_data(train_data: Interactions | None, new: NewFiles) -> dict[str, Any] | None:
    if train_data is None:
        return None
    texts, arrays = _dump_train_data(train_data)
    known: dict[str, Any] = {"checksums": [zlib.crc32(text) for text in texts.values()]}
    for what, text in texts.items():
        with new.file(what, "json") as (known[what], file):
            file.write(text)
    known["arrays"] = _write_array_file(new, "known", arrays)
    known["recency"] = None if train_data.recency is None else asdict(train_data.recency)
    known["schema"] = train_data.schema.to_json()
    return known


def load_model(folder: str | Path, kinds: Kinds, *, verify: bool = False) -> Any:
    """The model saved in a folder; `kinds` names every class of model or value object that may be in it.

    Anything missing, foreign, damaged or too large for the memory is refused with ModelFileError. Large arrays stay
    in their files, mapped read-only, and a save over the folder does not touch them; their sizes and places are
    checked, their contents only with `verify`, which reads everything.
    """
    path = Path(folder)
    while True:
        with _blaming(path):
            if not (path / MANIFEST).exists():
                raise ModelFileError(
                    f"{path}: no loca model here; expected a folder with a {MANIFEST}"
                )
            data = read_plain(path / MANIFEST)
            try:
                return _load(path, data, kinds, verify)
            except Exception:
                with suppress(OSError, ModelFileError):
                    if read_plain(path / MANIFEST) != data:
                        continue  # a save that ended meanwhile took the old model's files away; the new model is whole
                raise


def _load(folder: Path, data: bytes, kinds: Kinds, verify: bool) -> Any:
    with _blaming(folder / MANIFEST):
        manifest = open_sealed(
            data, FORMAT, VERSION, "; copy the folder again or save the model anew"
        )
        check_types(manifest, _WHOLE)
        known, sizes, array_files = (
            manifest["known"],
            manifest["files"],
            _array_files(manifest["model"]),
        )
        array_files += [] if known is None else [known["arrays"]]
        texts = [] if known is None else [known["users"], known["items"]]
        named = [*(one["file"] for one in array_files), *texts]
        for name, size in sizes.items():
            if not is_data_file(name) or type(size) is not int:
                raise ValueError(
                    f"{name!r:.60} with {size!r:.60} bytes is not a data file of a loca model"
                )
        odd = set(named) ^ set(sizes)
        if odd or len(named) > len(sizes):
            raise ValueError(f"{min(odd or named)!r:.60} is not both listed and used, once")
    for name, size in sizes.items():
        check_plain(folder / name, size=size)
    needed = _MEMORY_PER_JSON_BYTE * sum(sizes[name] for name in texts)
    for one in array_files:
        with _blaming(folder / one["file"]):
            # Only to look: many files mapped at once would take many file handles.
            views = map_arrays(folder / one["file"]).values()
            needed += sum(
                view.nbytes for view in views if is_read(view) or (known and one is known["arrays"])
            )
    free = available_bytes()
    if needed > free:
        raise ModelFileError(
            f"{folder}: the model needs {readable_bytes(needed)} of memory and {readable_bytes(free)} are "
            "free; close other programs or use a larger machine"
        )
    train_data = None if known is None else _read_train_data(folder, known)

    models: dict[str, Any] = {}  # by where they stand in the tree

    def restore(written: Mapping[str, Any], where: str) -> Any:
        """Return one model of the tree, after those inside it."""
        if "same_as" in written:
            if written["same_as"] not in models:
                raise ModelFileError(
                    f"{folder}: {where!r:.60} is said to be {written['same_as']!r:.60}, "
                    "which is not there"
                )
            return models[written["same_as"]]
        parts = {
            name: restore(part, _inside(where, name)) for name, part in written["parts"].items()
        }
        arrays, file = {}, written["arrays"]
        if file is not None:
            with _blaming(folder / file["file"]):
                arrays = read_arrays(
                    map_arrays(folder / file["file"]), file["arrays"], verify=verify
                )
        with _blaming(folder / MANIFEST):
            params = read_values(written["params"], arrays, kinds)
            kind = find_kind(written["kind"], params, kinds)
            facts = read_values(written["facts"], arrays, kinds)
        try:
            state = ModelState(learned_arrays(arrays), facts, parts)
            models[where] = restored(kind, params, state)
        except Exception as error:
            writer = manifest["written_by"].get("loca")
            reason = (
                f"cannot restore {written['kind']}, saved by loca {writer!s:.30}: {_line(error)}"
            )
            raise ModelFileError(f"{folder}: {reason}") from error
        return models[where]

    model = restore(manifest["model"], "")
    if train_data is not None:
        model.train_data_ = train_data
    if "report" in manifest:  # not in the files of earlier versions
        with _blaming(folder / MANIFEST):
            check_types(manifest, {"report": str})
        model.report_ = manifest["report"]
    if "remarks" in manifest:
        with _blaming(folder / MANIFEST):
            model.remarks_ = _read_remarks(manifest)
    return model


def _read_remarks(manifest: Mapping[str, Any]) -> Remarks:
    """Return what the fit remarked."""
    check_types(manifest, {"remarks": list})
    for one in manifest["remarks"]:
        check_types(one, _REMARK)
    return read_remarks(manifest["remarks"])


def _array_files(model: Any) -> list[dict[str, Any]]:
    """The checked array files of a written model and of all models inside it."""
    if type(model) is dict and "same_as" in model:
        check_types(model, {"same_as": str})
        return []
    check_types(model, _MODEL)
    inner = [one for part in model["parts"].values() for one in _array_files(part)]
    return inner if model["arrays"] is None else [model["arrays"], *inner]


def learned_arrays(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """What a model has learned of the arrays of its file, by the model's own names."""
    return {
        name.removeprefix(STATE): array for name, array in arrays.items() if name.startswith(STATE)
    }


def sealed_json(form: str, version: int, body: dict[str, Any]) -> bytes:
    """The text of a JSON file with its format, its version and a checksum of all that it says."""
    return (
        dump_json({"format": form, "version": version, "checksum": seal(body), **body}, indent=1)
        + b"\n"
    )


def seal(body: Mapping[str, Any]) -> int:
    """The CRC-32 of all that a JSON file says, whatever its spaces and line ends."""
    return zlib.crc32(dump_json(body))


def open_sealed(data: bytes, form: str, newest: int, advice: str = "") -> Any:
    """What a sealed JSON file says; a ValueError where its format, version or checksum are not right."""
    written = parse_json(data)
    if type(written) is not dict or written.pop("format", None) != form:
        raise ValueError(f"not a loca model: expected the format {form!r}")
    check_types(written, {"version": int, "checksum": int})
    version, checksum = written.pop("version"), written.pop("checksum")
    if version > newest:
        raise ValueError(
            f"written in format {version} by a newer loca, this one reads up to {newest}; upgrade loca"
        )
    if version < newest:
        raise ValueError(
            f"written in format {version} by an earlier loca, this one reads format {newest}; "
            "make it again"
        )
    if checksum != seal(written):
        raise ValueError(f"changed or damaged since it was saved{advice}")
    return written


def holds_format(path: Path, form: str) -> bool:
    """Whether a JSON file is one of loca's, of that format and any version, sound or not."""
    with suppress(ValueError, RecursionError):
        written = parse_json(read_plain(path))
        return type(written) is dict and written.get("format") == form
    return False


def bytes_of_train_data(interactions: Interactions) -> int:
    """How many bytes the interactions take in a model folder."""
    texts, arrays = _dump_train_data(interactions)
    return sum(map(len, texts.values())) + sum(int(array.nbytes) for array in arrays.values())


def _dump_train_data(interactions: Interactions) -> tuple[dict[str, bytes], dict[str, Any]]:
    """The users and items as JSON, their labels as the text they show, and the arrays."""
    texts = {}
    for what, ids in (("users", interactions.users), ("items", interactions.items)):
        labels = None if ids.labels is None else [str(label) for label in ids.labels.tolist()]
        dtype = "text" if ids.values.dtype.kind == "O" else ids.values.dtype.name
        texts[what] = dump_json(
            {"what": ids.what, "type": dtype, "ids": ids.values.tolist(), "labels": labels}
        )
    names = ("offsets", "item_rows", "times", "weights")
    arrays = {name: getattr(interactions, name) for name in names}
    return texts, {name: array for name, array in arrays.items() if array is not None}


def _read_train_data(folder: Path, known: Mapping[str, Any]) -> Interactions:
    """The interactions again, equal in ids, order, times and recency; they check themselves as ever."""
    views = map_arrays(folder / known["arrays"]["file"])
    dtypes = {name: view.dtype.name for name, view in views.items() if name != "times"}
    expected = {"offsets": "int64", "item_rows": "int32"}
    if "weights" in views:
        expected["weights"] = "float64"
    if dtypes != expected:
        problem = "expected offsets, item_rows, times and weights"
        raise ValueError(f"known interactions: {problem}, found {dtypes!r:.100}")
    # They are used everywhere: they are read, however large.
    arrays = read_arrays(views, known["arrays"]["arrays"], verify=True)
    parts: dict[str, Any] = {
        name: np.require(array, requirements="W") for name, array in arrays.items()
    }
    for what, checksum in zip(("users", "items"), known["checksums"], strict=True):
        name = known[what]
        data = (folder / name).read_bytes()
        if zlib.crc32(data) != checksum:
            raise ValueError(f"{name} has changed since it was saved; copy the folder again")
        written = parse_json(data)
        check_types(written, _IDS)
        values, labels, dtype = written["ids"], written["labels"], written["type"]
        if dtype not in _ID_TYPES:
            raise ValueError(f"{name}: unknown type of ids {dtype!r:.60}")
        if {*map(type, values)} - {_ID_TYPES[dtype]} or {*map(type, labels or ())} - {str}:
            raise ValueError(f"{name}: expected ids of type {dtype} and labels of text")
        numbers = np.array(values, dtype=object if dtype == "text" else dtype)
        parts[what] = IdMap(
            numbers, written["what"], None if labels is None else np.array(labels, dtype=object)
        )
    if "schema" in known:  # not in the files of earlier versions
        check_types(known, {"schema": dict})
        parts["schema"] = Schema.from_json(known["schema"])
    recency = None if known["recency"] is None else read_recency(known["recency"])
    return Interactions(**parts, recency=recency)


def read_recency(written: Mapping[str, Any]) -> Recency:
    """The recency that a JSON object describes; shape and floor may be missing, as older models know of neither."""
    values = {"shape": "exponential", "floor": 0.0, **written}
    check_types(values, _RECENCY)
    return Recency(**{name: values[name] for name in _RECENCY})


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
    if isinstance(error, SafetensorError):
        return f"not a sound safetensors file; copy the folder again or save the model anew ({error!s:.100})"
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split())[:300] or type(error).__name__
