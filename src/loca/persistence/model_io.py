"""A model as a folder: saved all at once, loaded after every file was checked, never run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from loca.errors import ModelFileError
from loca.memory import available_bytes, readable_bytes
from loca.persistence.arrays import check_types, loads_into_memory, map_arrays
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
from loca.persistence.manifest import Kinds
from loca.persistence.model_tree import (
    FORMAT,
    VERSION,
    TreeReader,
    TreeWriter,
    blaming,
    one_line,
    open_manifest,
)
from loca.persistence.sealed_json import holds_format, sealed_json
from loca.persistence.train_data import read_train_data, write_train_data
from loca.remarks import Remarks, read_remarks

# The most that a byte of JSON was seen to take as Python objects: an empty list is three bytes and
# takes 64.
_MEMORY_PER_JSON_BYTE = 24
_REMARK = {"kind": str, "text": str}


# -- Saving ---------------------------------------------------------------------------------------


def save_model(model: Any, folder: str | Path, *, with_train_data: bool = True) -> None:
    """Save a fitted model in place of whatever model the folder held.

    Its interactions are saved with it, unless `with_train_data` says otherwise. A failure or a kill
    at any moment leaves the old model, or after the last step the new one.
    """
    path = Path(folder)
    replaces = False
    try:
        replaces = check_foreign(path)
        with updating(path) as update:
            _write_model(model, update, with_train_data=with_train_data)
    except OSError as error:
        fate = "the model that was there stays" if replaces else "nothing was left behind"
        problem = f"cannot save the model: {one_line(error)}; {fate}; {advice_on(error)}"
        raise ModelFileError(f"{path}: {problem}") from error


def check_foreign(folder: Path) -> bool:
    """Return whether a folder holds a model; refuse one that holds something else, untouched."""
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
            f"{folder}: not empty and not a loca model (it holds {foreign[0]!r:.60}); "
            "nothing was touched, choose a new or empty folder"
        )
    return holds_model


def _write_model(model: Any, new: NewFiles, *, with_train_data: bool) -> None:
    """Write all files, the manifest last."""
    kind = type(model).__name__
    tree = TreeWriter(new).write(model, kind)
    train_data = getattr(model, "train_data_", None) if with_train_data else None
    known = None if train_data is None else write_train_data(train_data, new)
    data = sealed_json(
        FORMAT,
        VERSION,
        {
            "written_by": _versions(),
            "model": tree,
            "known": known,
            "files": dict(new.sizes),
            "report": model.report() if hasattr(model, "report") else "",
            "remarks": [remark.to_json() for remark in getattr(model, "remarks_", ())],
        },
    )
    if len(data) > MAX_JSON:
        raise ModelFileError(
            f"{kind}: its parameters and facts take {len(data):,} bytes, more than {MAX_JSON:,}; "
            "hold the large ones as numpy arrays"
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


# -- Loading --------------------------------------------------------------------------------------


def load_model(folder: str | Path, kinds: Kinds, *, verify: bool = False) -> Any:
    """Return the model saved in a folder.

    `kinds` names every class of model or value object that may be in it. Anything missing, foreign,
    damaged or too large for the memory is refused with ModelFileError. Large arrays stay in their
    files, mapped read-only, and a save over the folder does not touch them. Of these, shape and type
    are always checked; the numbers where their field says so (`learned(finite=True)`, and sparse
    matrices), which reads them once; the checksums only with `verify`, which reads everything.
    """
    path = Path(folder)
    while True:
        with blaming(path):
            data = _read_manifest(path)
            try:
                return _load(path, data, kinds, verify=verify)
            except Exception:
                if not _has_changed(path, data):
                    raise
        # A save that ended meanwhile took the old model's files away: the new one is read.


def _read_manifest(folder: Path) -> bytes:
    if not (folder / MANIFEST).exists():
        raise ModelFileError(f"{folder}: no loca model here; expected a folder with a {MANIFEST}")
    return read_plain(folder / MANIFEST)


def _has_changed(folder: Path, data: bytes) -> bool:
    """Return whether a folder has another manifest by now."""
    try:
        return read_plain(folder / MANIFEST) != data
    except (OSError, ModelFileError):
        return False


def _load(folder: Path, data: bytes, kinds: Kinds, *, verify: bool) -> Any:
    manifest, array_files = open_manifest(folder / MANIFEST, data)
    _check_files(folder, manifest, [file["file"] for file in array_files])
    _check_memory(folder, manifest, [file["file"] for file in array_files])
    train_data = None
    if manifest["known"] is not None:
        train_data = read_train_data(folder, manifest["known"])
    writer = str(manifest["written_by"].get("loca"))
    model = TreeReader(folder, kinds, verify=verify, writer=writer).read(manifest["model"])
    if train_data is not None:
        _attach(folder, model, "train_data_", train_data)
    if manifest["report"]:
        _attach(folder, model, "report_", manifest["report"])
    if manifest["remarks"]:
        _attach(folder, model, "remarks_", _read_remarks(folder, manifest))
    return model


def _attach(folder: Path, model: Any, name: str, value: Any) -> None:
    """Set what belongs to a whole model alone; refuse it of a part."""
    if not hasattr(model, name):
        raise ModelFileError(f"{folder}: a {type(model).__name__} has no {name}; save it anew")
    setattr(model, name, value)


def _check_files(folder: Path, manifest: Mapping[str, Any], array_files: list[str]) -> None:
    """Refuse files that are not all listed, used once, there, and of their size."""
    sizes = manifest["files"]
    named = [*array_files, *_files_of_data(manifest["known"])]
    with blaming(folder / MANIFEST):
        for name, size in sizes.items():
            if not is_data_file(name) or type(size) is not int:
                raise ValueError(
                    f"{name!r:.60} with {size!r:.60} bytes is not a data file of a loca model"
                )
        mismatched = set(named) ^ set(sizes)
        if mismatched or len(named) > len(sizes):
            raise ValueError(f"{min(mismatched or named)!r:.60} is not both listed and used, once")
    for name, size in sizes.items():
        check_plain(folder / name, size=size)


def _files_of_data(known: Mapping[str, Any] | None) -> list[str]:
    if known is None:
        return []
    return [known["arrays"]["file"], known["users"], known["items"]]


def _check_memory(folder: Path, manifest: Mapping[str, Any], array_files: list[str]) -> None:
    """Refuse a model that takes more memory than is free, before an array of it is read."""
    needed = sum(_bytes_read(folder / name) for name in array_files)
    known = manifest["known"]
    if known is not None:
        needed += _bytes_read(folder / known["arrays"]["file"], everything=True)
        of_ids = sum(manifest["files"][known[name]] for name in ("users", "items"))
        needed += _MEMORY_PER_JSON_BYTE * of_ids
    free = available_bytes()
    if needed > free:
        raise ModelFileError(
            f"{folder}: the model needs {readable_bytes(needed)} of memory and "
            f"{readable_bytes(free)} are free; close other programs or use a larger machine"
        )


def _bytes_read(path: Path, *, everything: bool = False) -> int:
    """Return how many bytes of an array file are read at once."""
    with blaming(path):
        # Only to look: many files mapped at once would take many file handles.
        views = map_arrays(path).values()
        return sum(view.nbytes for view in views if everything or loads_into_memory(view))


def _read_remarks(folder: Path, manifest: Mapping[str, Any]) -> Remarks:
    """Return what the fit remarked."""
    with blaming(folder / MANIFEST):
        for remark in manifest["remarks"]:
            check_types(remark, _REMARK)
        return read_remarks(manifest["remarks"])
