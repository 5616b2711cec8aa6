"""Loads a model from a folder: every file is checked against model.json first, and nothing in it is run."""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
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
    ArrayFile,
    check_arrays,
    dump_json,
    map_arrays,
    parse_json,
    read_arrays,
    take,
    write_arrays,
)
from loca.persistence.atomic_write import MANIFEST, FolderUpdate, check_plain, is_own_name, read_plain, updating
from loca.persistence.manifest import (
    LARGEST_MANIFEST,
    Kinds,
    Manifest,
    ModelState,
    WrittenKnown,
    WrittenModel,
    check_param_names,
    find_model_kind,
    get_params,
    is_manifest,
    is_model,
    read_values,
    write_values,
)

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


# The most that a byte of JSON was seen to take as Python objects: an empty list is three bytes and takes 64.
_MEMORY_PER_JSON_BYTE = 24
_STATE = "state/"


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
            # A save that ended meanwhile took the old model's files away; the new model is whole.
            if not _was_replaced(path, data):
                raise


def _load(folder: Path, data: bytes, kinds: Kinds, verify: bool) -> Any:
    with _blaming(folder / MANIFEST):
        manifest = Manifest.from_bytes(data)
    with _blaming(folder):
        for name, size in manifest.files.items():
            check_plain(folder / name, size=size)
    for file in manifest.array_files():
        with _blaming(folder / file.name):
            check_arrays(folder / file.name, file.notes)
    _check_too_large(folder, manifest)
    known = None
    if manifest.known is not None:
        with _blaming(folder):
            known = read_known(folder, manifest.known)
    return _Restoring(folder, manifest, known, kinds, verify).restore(manifest.model)


@dataclass(frozen=True)
class _Restoring:
    """What every model of the tree is restored with."""

    folder: Path
    manifest: Manifest
    known: Interactions | None
    kinds: Kinds
    verify: bool

    def restore(self, written: WrittenModel) -> Any:
        """One model of the tree, after those inside it."""
        parts = {name: self.restore(part) for name, part in written.parts.items()}
        arrays = {}
        if written.arrays is not None:
            path = self.folder / written.arrays.name
            with _blaming(path):
                arrays = map_arrays(path, written.arrays.notes, verify=self.verify)
        with _blaming(self.folder / MANIFEST):
            kind: Any = find_model_kind(written.kind, self.kinds)
            params = read_values(written.params, arrays, self.kinds)
            check_param_names(kind, params)
            facts = read_values(written.facts, arrays, self.kinds)
        learned = {name.removeprefix(_STATE): array for name, array in arrays.items() if name.startswith(_STATE)}
        try:
            model = kind.restore(params, ModelState(learned, facts, parts))
        except Exception as error:
            writer = self.manifest.written_by.get("loca")
            raise ModelFileError(
                f"{self.folder}: cannot restore {written.kind}, saved by loca {writer!s:.30}: {_line(error)}"
            ) from error
        if written.shares_known:
            model.train_data_ = self.known
        return model


def _check_too_large(folder: Path, manifest: Manifest) -> None:
    arrays = sum(file.memory for file in manifest.model.array_files())
    arrays += 0 if manifest.known is None else manifest.known.arrays.size
    needed = arrays + _MEMORY_PER_JSON_BYTE * sum(manifest.files[name] for name in manifest.id_files())
    free = available_bytes()
    if needed > free:
        raise ModelFileError(
            f"{folder}: the model needs {readable_bytes(needed)} of memory and {readable_bytes(free)} are "
            "free; close other programs or use a larger machine"
        )


def _was_replaced(folder: Path, data: bytes) -> bool:
    try:
        return read_plain(folder / MANIFEST, most=LARGEST_MANIFEST) != data
    except (OSError, ModelFileError):
        return False


@contextmanager
def _blaming(path: Path) -> Iterator[None]:
    """Turns whatever goes wrong inside into a ModelFileError that names the file; a ModelFileError stays."""
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


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def save_model(model: Any, folder: str | Path) -> None:
    """Saves a fitted model, with the interactions it knows, in place of whatever model the folder held.

    A failure or a kill at any moment leaves the old model, or after the last step the new one, whole. A part
    fitted on the very interactions of the whole gets them back; another part comes back without its own.
    """
    path = Path(folder)
    replaces = check_foreign(path)
    try:
        with updating(path) as update:
            _write_model(model, update)
    except OSError as error:
        raise _cannot_save(path, error, replaces) from error


def check_foreign(folder: Path) -> bool:
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
    known: Interactions | None = getattr(model, "train_data_", None)
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
