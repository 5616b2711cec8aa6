"""Fits that many models share: what one has fitted on the same data is kept in a folder and loaded by the next."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.data.interactions import Interactions
from loca.data.splits import HeldOut
from loca.errors import ModelFileError
from loca.persistence.arrays import dump_json
from loca.persistence.checkpoint import digest_of
from loca.persistence.manifest import Kinds, write_value
from loca.persistence.model_io import load_model, save_model
from loca.progress import say

if sys.platform != "win32":
    import fcntl

_MOST_KEPT = 4
_NEW = "new-"
_LOCK = ".lock"


class Learns(Protocol):
    """Anything with a fit, a recommender or a maker of embeddings."""

    def fit(
        self,
        train: Interactions | csr_array,
        *,
        user_weights: npt.NDArray[Any] | None = None,
        validation: HeldOut | None = None,
    ) -> Self: ...


AnyLearner = TypeVar("AnyLearner", bound=Learns)


@dataclass(frozen=True)
class _Shelf:
    """The folder of the fits that are shared, and every class that may be in them."""

    folder: Path
    kinds: Kinds


_SHELF: ContextVar[_Shelf | None] = ContextVar("the shelf of shared fits", default=None)
_DEPTH: ContextVar[int] = ContextVar("how many shared fits are under way", default=0)


@contextmanager
def sharing_fits_in(folder: Path, kinds: Kinds) -> Iterator[None]:
    """While this lasts, `fit_cached` keeps its fits in a folder, at most a few, and finds them there again.

    Several processes may share a folder. `kinds` names the classes that the fits may be made of.
    """
    folder.mkdir(parents=True, exist_ok=True)
    token = _SHELF.set(_Shelf(folder, kinds))
    try:
        yield
    finally:
        _SHELF.reset(token)


def is_fitting_a_part() -> bool:
    """Whether the fit under way is of a part that others may share: its scores are not those of the whole model."""
    return _DEPTH.get() > 0


def fit_cached(
    model: AnyLearner,
    train: Interactions | csr_array,
    validation: HeldOut | None,
    user_weights: npt.NDArray[Any] | None = None,
) -> AnyLearner:
    """A fitted model with the parameters of `model`, equal to the bit to what `model.fit` gives.

    Inside `sharing_fits_in` it is loaded where the same was fitted on the same data before. User weights belong to
    nobody else: with them, and outside, the model is simply fitted.
    """
    token = _DEPTH.set(_DEPTH.get() + 1)
    try:
        shelf = _SHELF.get()
        if shelf is None or user_weights is not None:
            return model.fit(train, user_weights=user_weights, validation=validation)
        return _find_or_fit(shelf, model, train, validation)
    finally:
        _DEPTH.reset(token)


def _find_or_fit(
    shelf: _Shelf, model: AnyLearner, train: Interactions | csr_array, validation: HeldOut | None
) -> AnyLearner:
    parameters = digest_of_model(model)
    if parameters is None:
        return model.fit(train, validation=validation)
    key = _key_of(parameters, train, validation)
    # Whoever comes second waits for the first: to fit the same at the same time would earn nothing.
    with _waiting_for(shelf.folder / f"{key}{_LOCK}"):
        found = _load(shelf, key, type(model))
        if found is None:
            found = model.fit(train, validation=validation)
            _keep(shelf.folder, key, found)
    if hasattr(found, "train_data_"):
        found.train_data_ = train if isinstance(train, Interactions) else None
    return found


def _load(shelf: _Shelf, key: str, kind: type[AnyLearner]) -> AnyLearner | None:
    """The fit with that key; None where there is none, or none that can be read."""
    path = shelf.folder / key
    try:
        found = load_model(path, {**shelf.kinds, kind.__name__: kind})
        os.utime(path)
    except (ModelFileError, OSError):
        return None
    return found if isinstance(found, kind) else None


def _keep(folder: Path, key: str, model: Any) -> None:
    """Puts a fit on the shelf, written beside its place and moved there; where that fails it is just not shared."""
    known = getattr(model, "train_data_", None)
    beside = folder / f"{_NEW}{secrets.token_hex(8)}"
    try:
        if known is not None:
            model.train_data_ = None  # the data is at hand wherever the fit is loaded
        save_model(model, beside)
        shutil.rmtree(folder / key, ignore_errors=True)
        os.rename(beside, folder / key)
        _make_room(folder)
    except (ModelFileError, OSError) as error:
        say(f"{type(model).__name__}: its fit cannot be shared ({' '.join(str(error).split())[:200]})")
        shutil.rmtree(beside, ignore_errors=True)
    finally:
        if known is not None:
            model.train_data_ = known


def _make_room(folder: Path) -> None:
    """Removes the fits that were not asked for longest, until a few are left."""
    fits = [one for one in folder.iterdir() if one.is_dir() and not one.name.startswith(_NEW)]
    by_use = sorted(fits, key=lambda one: one.stat().st_mtime_ns)
    for one in by_use[:-_MOST_KEPT]:
        shutil.rmtree(one, ignore_errors=True)


@contextmanager
def _waiting_for(lock: Path) -> Iterator[None]:
    """Holds a lock file, which goes with the process that holds it; where there are no locks, nobody waits."""
    if sys.platform == "win32":
        yield
        return
    with open(lock, "w") as file:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def digest_of_model(model: object) -> str | None:
    """A short text that changes with the class of a model and with any parameter, those of arrays to the last bit.

    None where a parameter cannot be written.
    """
    arrays: dict[str, npt.NDArray[Any]] = {}
    try:
        written = dump_json(write_value(model, arrays, "digest"))
    except ModelFileError:
        return None
    digest = hashlib.blake2b(written, digest_size=16)
    for name, array in arrays.items():
        _add(digest, name, array)
    return digest.hexdigest()


def _key_of(parameters: str, train: Interactions | csr_array, validation: HeldOut | None) -> str:
    """A name that changes with any parameter, class, interaction or question, and with the version."""
    import loca

    digest = hashlib.blake2b(f"{loca.__version__} {parameters}".encode(), digest_size=16)
    if isinstance(train, Interactions):
        digest.update(digest_of(train).encode())
    else:
        rows = csr_array(train)
        for name, array in (("rows", rows.indptr), ("columns", rows.indices), ("values", rows.data)):
            _add(digest, f"{name} {rows.shape}", array)
    if validation is not None:
        digest.update(f"{digest_of(validation.histories)} {digest_of(validation.targets)}".encode())
        digest.update(f" repeats counted: {validation.count_repeats}".encode())
    return digest.hexdigest()


def _add(digest: Any, name: str, array: npt.NDArray[Any]) -> None:
    # Name, dtype and shape first: the bytes alone would not say where one array ends.
    digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
    digest.update(np.ascontiguousarray(array).data)
