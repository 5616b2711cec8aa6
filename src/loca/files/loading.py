"""Loads a model from a folder: every file is checked against model.json first, and nothing in it is run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from loca.data.interactions import Interactions
from loca.errors import ModelFileError
from loca.files.array_files import check_arrays, map_arrays
from loca.files.known_interactions import read_known
from loca.files.manifest import LARGEST_MANIFEST, Manifest, WrittenModel
from loca.files.model_folder import MANIFEST, check_plain, read_plain
from loca.files.model_state import ModelState
from loca.files.written_values import Kinds, check_param_names, find_model_kind, read_values
from loca.memory import available_bytes, readable_bytes

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
    _refuse_too_large(folder, manifest)
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
            model.known_ = self.known
        return model


def _refuse_too_large(folder: Path, manifest: Manifest) -> None:
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
