"""Saves a fitted model into a folder, all or nothing: until the last step the model that was there stays."""

from __future__ import annotations

import errno
import os
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy.typing as npt

from loca.data.interactions import Interactions
from loca.errors import ModelFileError
from loca.files.array_files import ArrayFile, write_arrays
from loca.files.known_interactions import write_known
from loca.files.manifest import LARGEST_MANIFEST, Manifest, WrittenModel, is_manifest
from loca.files.model_folder import MANIFEST, FolderUpdate, is_own_name, read_plain, updating
from loca.files.model_state import ModelState, get_params, is_model
from loca.files.written_values import write_values

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def save_model(model: Any, folder: str | Path) -> None:
    """Saves a fitted model, with the interactions it knows, in place of whatever model the folder held.

    A failure or a kill at any moment leaves the old model, or after the last step the new one, whole. A part
    fitted on the very interactions of the whole gets them back; another part comes back without its own.
    """
    path = Path(folder)
    replaces = refuse_foreign(path)
    try:
        with updating(path) as update:
            _write_model(model, update)
    except OSError as error:
        raise _cannot_save(path, error, replaces) from error


def refuse_foreign(folder: Path) -> bool:
    """Whether the folder holds a model of loca's; one that holds something else is refused, untouched."""
    try:
        return _holds_model(folder)
    except OSError as error:
        raise _cannot_save(folder, error, replaces=False) from error


def _write_model(model: Any, update: FolderUpdate) -> None:
    what = type(model).__name__
    interactions = _known_of(model)
    tree = _write_tree(model, update, interactions, what)
    known = None if interactions is None else write_known(update, interactions)
    packages = {name: _version_of(name) for name in ("loca", "numpy", "torch", "safetensors")}
    data = Manifest(tree, known, dict(update.sizes), packages).to_bytes()
    if len(data) > LARGEST_MANIFEST:
        raise ModelFileError(
            f"{what}: its parameters and facts take {len(data):,} bytes, more than {LARGEST_MANIFEST:,}; "
            "hold the large ones as numpy arrays"
        )
    update.commit(data)


def _write_tree(model: Any, update: FolderUpdate, known: Interactions | None, where: str) -> WrittenModel:
    """Writes a model and those inside it, one array file each, so that only one is copied at a time."""
    if not is_model(model):
        raise ModelFileError(f"{where}: expected a fitted model, found {type(model).__name__}")
    state: ModelState = model.state()
    params, facts, file = _write_own(model, state, update, where)
    parts = state.parts
    del state  # its arrays may be copies from another device
    return WrittenModel(
        kind=type(model).__name__,
        params=params,
        facts=facts,
        arrays=file,
        shares_known=known is not None and _known_of(model) is known,
        parts={name: _write_tree(part, update, known, f"{where}, part {name!r}") for name, part in parts.items()},
    )


def _write_own(
    model: Any, state: ModelState, update: FolderUpdate, where: str
) -> tuple[dict[str, Any], dict[str, Any], ArrayFile | None]:
    """Writes one model's own arrays; gives its parameters and facts as JSON values, and the file, if any."""
    arrays: dict[str, npt.NDArray[Any]] = {f"state/{name}": array for name, array in state.arrays.items()}
    params = write_values(get_params(model), arrays, f"{where}, parameter")
    facts = write_values(state.facts, arrays, f"{where}, fact")
    if not arrays:
        return params, facts, None
    with update.new_file("arrays", "safetensors") as (name, file):
        return params, facts, ArrayFile(name, write_arrays(file, arrays))


def _known_of(model: Any) -> Interactions | None:
    """The interactions that the model was fitted on; a part that only embeds users keeps none."""
    known: Interactions | None = getattr(model, "known_", None)
    return known


def _holds_model(folder: Path) -> bool:
    if not folder.exists():
        return False
    if not folder.is_dir():
        raise ModelFileError(f"{folder}: expected a folder to save into, found a file; choose another name")
    names = os.listdir(folder)
    foreign = sorted(name for name in names if not is_own_name(name))
    holds_model = MANIFEST in names and is_manifest(read_plain(folder / MANIFEST, most=LARGEST_MANIFEST))
    if foreign and not holds_model:
        raise ModelFileError(
            f"{folder}: not empty and not a loca model (it holds {foreign[0]!r:.60}); nothing was touched, "
            "choose a new or empty folder"
        )
    return holds_model


def _cannot_save(folder: Path, error: OSError, replaces: bool) -> ModelFileError:
    full = error.errno in _NO_ROOM
    advice = "free some disk space or choose another folder" if full else "choose another folder"
    fate = "the model that was there is kept" if replaces else "nothing was left behind"
    reason = error.strerror or type(error).__name__
    return ModelFileError(f"{folder}: cannot save the model: {reason}; {fate}; {advice}")


def _version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
