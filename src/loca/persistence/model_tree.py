"""A model and all models inside it as the tree of a manifest, with an array file for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import NoneType
from typing import Any

from safetensors import SafetensorError

from loca.errors import ModelFileError
from loca.persistence.arrays import check_types, map_arrays, read_arrays, write_arrays
from loca.persistence.atomic_write import MANIFEST, NewFiles, is_data_file, read_plain
from loca.persistence.learned import parts_of, restored, state_of, stored_params
from loca.persistence.manifest import (
    Kinds,
    ModelState,
    find_kind,
    is_model,
    read_values,
    write_values,
)
from loca.persistence.sealed_json import open_sealed
from loca.persistence.train_data import WRITTEN_DATA

FORMAT = "loca-model"
VERSION = 2
# Arrays under this name are what a model has learned; others are inside its parameters and facts.
STATE = "state/"

# What a JSON object must say: the type or types of each named value, a table for an object inside.
_MANIFEST = {
    "files": dict,
    "written_by": dict,
    "model": dict,
    "known": (WRITTEN_DATA, NoneType),
    "report": str,
    "remarks": list,
}
_MODEL = {
    "kind": str,
    "params": dict,
    "facts": dict,
    "parts": dict,
    "arrays": ({"file": str, "arrays": dict}, NoneType),
}
_SAME = {"same_as": str}


# -- Manifests ------------------------------------------------------------------------------------


def open_manifest(path: Path, data: bytes) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a checked manifest, and what it says of the array files of the models in it."""
    with blaming(path):
        manifest = open_sealed(
            data, FORMAT, VERSION, "; copy the folder again or save the model anew"
        )
        check_types(manifest, _MANIFEST)
        return manifest, _check_tree(manifest["model"])


def _check_tree(model: Any) -> list[dict[str, Any]]:
    """Refuse a tree that is none; return what it says of array files."""
    expected = _SAME if type(model) is dict and "same_as" in model else _MODEL
    check_types(model, expected)
    for name in model:
        if name not in expected:
            raise ValueError(f"unknown entry {name!r:.60} of a model")
    if expected is _SAME:
        return []
    files = [] if model["arrays"] is None else [model["arrays"]]
    for part in model["parts"].values():
        files += _check_tree(part)
    return files


def _inside(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name


# -- Writing --------------------------------------------------------------------------------------


class TreeWriter:
    """Write a model and those inside it, each once, with an array file of its own.

    So only one is copied from a device at a time. A part that is there already is written as
    `same_as`, with the path where it stands.
    """

    def __init__(self, new: NewFiles) -> None:
        self._new = new
        self._written_at: dict[int, str] = {}
        self._unfinished: set[int] = set()

    def write(self, model: Any, where: str, path: str = "") -> dict[str, Any]:
        """Return the manifest of a model at a path of the tree; `where` names it in errors."""
        if not is_model(model):
            raise ModelFileError(f"{where}: expected a fitted model, found {type(model).__name__}")
        if id(model) in self._written_at:
            return {"same_as": self._written_at[id(model)]}
        if id(model) in self._unfinished:
            raise ModelFileError(f"{where}: a model cannot be saved that is a part of itself")
        self._unfinished.add(id(model))
        if model.saved_in_ is not None and model.saved_in_.is_unchanged():
            tree = self._take_over(model.saved_in_.folder, path)
            self._note_parts(model, tree, path)
        else:
            tree = self._write_alone(model, where)
        for name, part in parts_of(model).items():
            if name not in tree["parts"]:
                part_path = _inside(path, name)
                tree["parts"][name] = self.write(part, f"{where}, part {name!r}", part_path)
        self._written_at[id(model)] = path
        return tree

    def _write_alone(self, model: Any, where: str) -> dict[str, Any]:
        """Return the manifest of a model without its parts."""
        state = state_of(model)
        arrays = {f"{STATE}{name}": array for name, array in state.arrays.items()}
        return {
            "kind": type(model).__name__,
            "params": write_values(stored_params(model), arrays, f"{where}, parameter"),
            "facts": write_values(state.facts, arrays, f"{where}, fact"),
            "arrays": self._write_arrays(arrays),
            "parts": {},
        }

    def _write_arrays(self, arrays: dict[str, Any]) -> dict[str, Any] | None:
        if not arrays:
            return None
        with self._new.file("arrays", "safetensors") as (name, file):
            notes, _ = write_arrays(file, arrays)
        return {"file": name, "arrays": notes}

    def _take_over(self, folder: Path, path: str) -> dict[str, Any]:
        """Return the manifest of a model that a folder holds, without a look at its arrays."""
        manifest, _ = open_manifest(folder / MANIFEST, read_plain(folder / MANIFEST))
        return self._linked(manifest["model"], folder, manifest["files"], path)

    def _note_parts(self, model: Any, tree: dict[str, Any], path: str) -> None:
        """Note where the parts of a model stand that was taken over as a tree."""
        for name, part in parts_of(model).items():
            if name in tree["parts"]:
                part_tree = tree["parts"][name]
                part_path = _inside(path, name)
                self._written_at.setdefault(id(part), part_tree.get("same_as", part_path))
                if "same_as" not in part_tree:
                    self._note_parts(part, part_tree, part_path)

    def _linked(
        self, tree: dict[str, Any], folder: Path, sizes: Mapping[str, Any], path: str
    ) -> dict[str, Any]:
        """Return a tree of another folder, its files linked, its paths below another one."""
        if "same_as" in tree:
            return {"same_as": _inside(path, tree["same_as"])}
        arrays = tree["arrays"]
        if arrays is not None:
            name = arrays["file"]
            if not is_data_file(name):
                raise ModelFileError(f"{folder}: {name!r:.60} is not a data file of a loca model")
            linked = self._new.link("arrays", folder / name, sizes.get(name))
            arrays = {**arrays, "file": linked}
        parts = {
            name: self._linked(part, folder, sizes, path) for name, part in tree["parts"].items()
        }
        return {**tree, "arrays": arrays, "parts": parts}


# -- Reading --------------------------------------------------------------------------------------


class TreeReader:
    """Read a model and those inside it, parts first; what is written once is one object."""

    def __init__(self, folder: Path, kinds: Kinds, *, verify: bool, writer: str) -> None:
        self._folder = folder
        self._kinds = kinds
        self._verify = verify
        self._writer = writer
        self._read_at: dict[str, Any] = {}

    def read(self, tree: Mapping[str, Any], path: str = "") -> Any:
        """Return the model of a checked tree at a path; refuse what does not fit."""
        if "same_as" in tree:
            return self._read_before(tree["same_as"], path)
        parts = {name: self.read(part, _inside(path, name)) for name, part in tree["parts"].items()}
        arrays = self._read_arrays(tree["arrays"])
        state = {name: array for name, array in arrays.items() if name.startswith(STATE)}
        in_values = {name: array for name, array in arrays.items() if name not in state}
        with blaming(self._folder / MANIFEST):
            params = read_values(tree["params"], in_values, self._kinds)
            kind = find_kind(tree["kind"], params, self._kinds)
            facts = read_values(tree["facts"], in_values, self._kinds)
            if in_values:
                raise ValueError(f"array {min(in_values)!r:.60} is in no parameter and no fact")
        learned_arrays = {name.removeprefix(STATE): array for name, array in state.items()}
        try:
            model = restored(kind, params, ModelState(learned_arrays, facts, parts))
        except Exception as error:
            where = f" (part {path!r:.100})" if path else ""
            raise ModelFileError(
                f"{self._folder}: cannot restore {tree['kind']}{where}, "
                f"saved by loca {self._writer:.30}: {one_line(error)}"
            ) from error
        self._read_at[path] = model
        return model

    def _read_before(self, same_as: str, path: str) -> Any:
        """Return a model that stands elsewhere in the tree: before this one, so in no circle."""
        if same_as not in self._read_at:
            raise ModelFileError(
                f"{self._folder}: part {path!r:.60} is said to be {same_as!r:.60}, which is not "
                "there; save the model anew"
            )
        return self._read_at[same_as]

    def _read_arrays(self, written: Mapping[str, Any] | None) -> dict[str, Any]:
        if written is None:
            return {}
        path = self._folder / written["file"]
        with blaming(path):
            return read_arrays(map_arrays(path), written["arrays"], verify=self._verify)


# -- Errors ---------------------------------------------------------------------------------------


@contextmanager
def blaming(path: Path) -> Iterator[None]:
    """Turn whatever goes wrong inside into a ModelFileError that names the file.

    It is for reading: files may come from strangers, and whatever they bring about is their fault.
    """
    try:
        yield
    except ModelFileError:
        raise
    except Exception as error:
        raise ModelFileError(f"{path}: {one_line(error)}") from error


def one_line(error: Exception) -> str:
    """Return what an error says, in one short line."""
    if isinstance(error, RecursionError):
        return "nested too deeply; this is not a loca model"
    if isinstance(error, SafetensorError):
        return (
            "not a sound safetensors file; copy the folder again or save the model anew "
            f"({error!s:.100})"
        )
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split())[:300] or type(error).__name__
