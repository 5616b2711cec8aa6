"""What JSON says of a model: parameters and facts of any kind as JSON values and back, and their fingerprint."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, overload

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.data.interactions import Interactions
from loca.data.splits import HeldOut, Split
from loca.errors import ConfigError, ModelFileError, did_you_mean
from loca.persistence.arrays import DTYPES, Arrays, check_types, dump_json

Kinds = Mapping[str, type]

_PLAIN = (bool, int, float, str, type(None))
# What JSON has no word for is an object whose first key begins with this sign.
_MARK = "$"
_WRITTEN: dict[str, dict[str, Any]] = {
    "$tuple": {"$tuple": list},
    "$map": {"$map": list},
    "$array": {"$array": str},
    "$model": {"$model": str, "params": dict},
    "$value": {"$value": str, "fields": dict},
    "$number": {"$number": str, "value": (bool, int, float)},
}
_NUMBER_TYPES = {dtype.name: dtype for dtype in DTYPES.values()}


@dataclass(frozen=True)
class ModelState:
    """Everything a fitted model has learned, by name: arrays, plain facts, the fitted models inside it."""

    arrays: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    parts: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in (*self.arrays, *self.facts, *self.parts):
            if type(name) is not str:
                raise ModelFileError(f"model state: expected names of text, found {name!r:.60}")


class Persistent:
    """What declares the fields that it learns (`loca.persistence.learned`), and is saved by them."""

    def check(self) -> None:
        """Refuse learned fields that do not fit each other; called when they were loaded."""


def get_params(model: object) -> dict[str, Any]:
    """Get the constructor's arguments as the model holds them now.

    Parameters
    ----------
    model : a model
        Fitted or not.

    Returns
    -------
    dict of str to Any
        The values by name; models among them are the model's parts, not copies.

    Examples
    --------
    >>> loca.get_params(loca.ItemKNN(neighbours=20))
    {'neighbours': 20, 'shrinkage': 20.0}
    """
    kind: type = type(model)
    try:
        names = parameter_names(kind)
    except ValueError:  # Python's own classes have no signature
        raise ConfigError(f"expected a model, found {model!r:.60}") from None
    return {name: getattr(model, name) for name in names}


@lru_cache(maxsize=256)
def parameter_names(kind: type) -> tuple[str, ...]:
    """The names of the constructor's arguments."""
    return tuple(inspect.signature(kind).parameters)


def is_model(value: object) -> bool:
    """Whether a value is a model or a part of one, fitted or not, that can be saved and restored."""
    return isinstance(value, Persistent)


def write_value(value: Any, arrays: dict[str, npt.NDArray[Any]], where: str) -> Any:
    """The JSON value that stands for `value`; arrays inside it are put into `arrays` under new names."""
    if type(value) in _PLAIN:
        return value
    if type(value) in (list, tuple):
        written = [write_value(one, arrays, where) for one in value]
        return written if type(value) is list else {"$tuple": written}
    if type(value) is dict:
        if all(type(key) is str and not key.startswith(_MARK) for key in value):
            return {key: write_value(one, arrays, where) for key, one in value.items()}
        # JSON would turn every key into text.
        return {"$map": [write_value(list(pair), arrays, where) for pair in value.items()]}
    if isinstance(value, np.generic) and value.dtype.name in _NUMBER_TYPES:
        return {"$number": value.dtype.name, "value": value.item()}
    if isinstance(value, np.ndarray):
        name = f"value/{len(arrays)}"
        arrays[name] = value
        return {"$array": name}
    if is_model(value):
        return {
            "$model": type(value).__name__,
            "params": write_values(get_params(value), arrays, where),
        }
    if _is_frozen(type(value)):
        fields = {
            one.name: getattr(value, one.name) for one in dataclasses.fields(value) if one.init
        }
        return {"$value": type(value).__name__, "fields": write_values(fields, arrays, where)}
    raise ModelFileError(
        f"{where}: cannot save a {type(value).__name__}; expected numbers, text, lists, tuples, "
        "dictionaries, numpy arrays, frozen dataclasses or models"
    )


def write_values(
    values: Mapping[str, Any], arrays: dict[str, npt.NDArray[Any]], where: str
) -> dict[str, Any]:
    """The JSON values of many named values."""
    return {name: write_value(value, arrays, f"{where} {name!r}") for name, value in values.items()}


def read_value(written: Any, arrays: Arrays, kinds: Kinds) -> Any:
    """The value that a JSON value stands for; classes come from `kinds` alone."""
    if type(written) in _PLAIN:
        return written
    if type(written) is list:
        return [read_value(one, arrays, kinds) for one in written]
    mark = next(iter(written), "")
    if not mark.startswith(_MARK):
        return read_values(written, arrays, kinds)
    if mark not in _WRITTEN:
        raise ValueError(f"unknown kind of value {mark!r:.60}")
    check_types(written, _WRITTEN[mark])
    name = written[mark]
    if mark in ("$tuple", "$map"):
        inner = read_value(name, arrays, kinds)
        return tuple(inner) if mark == "$tuple" else dict(inner)
    if mark == "$model":
        params = read_values(written["params"], arrays, kinds)
        return find_kind(name, params, kinds)(**params)
    known: Mapping[str, Any] = {"$number": _NUMBER_TYPES, "$array": arrays, "$value": kinds}[mark]
    if name not in known or (mark == "$value" and not _is_frozen(known[name])):
        raise ValueError(f"unknown kind of {mark[1:]} {name!r:.60}")
    if mark == "$array":
        return arrays[name]
    if mark == "$value":
        return known[name](**read_values(written["fields"], arrays, kinds))
    with np.errstate(over="ignore"):
        return known[name].type(written["value"])


def read_values(written: Mapping[str, Any], arrays: Arrays, kinds: Kinds) -> dict[str, Any]:
    """Many named values from their JSON values."""
    return {name: read_value(value, arrays, kinds) for name, value in written.items()}


def find_kind(name: str, params: Mapping[str, Any], kinds: Kinds) -> Any:
    """The model class called `name`; an unknown class or parameter is refused with the nearest known names.

    A parameter that is not among the `params` takes its default.
    """
    kind = kinds.get(name)
    if kind is None or not issubclass(kind, Persistent):
        known = sorted(one for one in kinds if issubclass(kinds[one], Persistent))
        raise ValueError(
            f"unknown kind of model {name!r:.60}{did_you_mean(name, known)}; known: {', '.join(known)}"
        )
    names = parameter_names(kind)
    for param in params:
        if param not in names:
            raise ValueError(
                f"unknown parameter {param!r:.60} for {kind.__name__}{did_you_mean(param, names)}"
            )
    return kind


@overload
def fingerprint(value: Interactions | HeldOut | Split | csr_array) -> str: ...
@overload
def fingerprint(value: object) -> str | None: ...
def fingerprint(value: Any) -> str | None:
    """A short text that changes with any bit of interactions, held-out data, a split, a matrix, or parameters.

    Interactions count by ids, order, times and recency, not by labels; a model by its class and parameters, not by
    what it has learned. None where a parameter cannot be written.
    """
    if isinstance(value, HeldOut):
        return f"{fingerprint(value.histories)} {fingerprint(value.targets)} {value.count_repeats}"
    digest = hashlib.blake2b(digest_size=16)
    if isinstance(value, Interactions):
        for array in (
            value.users.values,
            value.items.values,
            value.offsets,
            value.item_rows,
            value.times,
        ):
            if array is None:
                digest.update(b"none ")
            elif array.dtype.kind == "O":
                digest.update(b"text " + dump_json(array.tolist()))
            else:
                _add(digest, f"{array.dtype.str} {len(array)} ", array)
        digest.update(repr(value.recency).encode())
        if value.weights is not None:
            _add(digest, f"weights by {value.weighting} ", value.weights)
    elif isinstance(value, Split):
        parts = [value.train, value.train_and_validation]
        for held_out in (value.validation, value.test):
            parts += [] if held_out is None else [held_out.histories, held_out.targets]
        texts = (
            f"validation {value.validation is not None}",
            *(str(fingerprint(one)) for one in parts),
        )
        digest.update(" ".join(texts).encode())
    else:
        if isinstance(value, csr_array):
            value = [value.indptr, value.indices, value.data, value.shape]
        arrays: dict[str, npt.NDArray[Any]] = {}
        try:
            digest.update(dump_json(write_value(value, arrays, "fingerprint")))
        except ModelFileError:
            return None
        for name, array in arrays.items():
            _add(digest, f"{name} {array.dtype.str} {array.shape} ", array)
    return digest.hexdigest()


def _add(digest: Any, about: str, array: npt.NDArray[Any]) -> None:
    # What it is first: the bytes alone would not say where one array ends.
    digest.update(about.encode())
    digest.update(np.ascontiguousarray(array).data)


def _is_frozen(kind: type) -> bool:
    return dataclasses.is_dataclass(kind) and bool(kind.__dataclass_params__.frozen)  # type: ignore[attr-defined]
