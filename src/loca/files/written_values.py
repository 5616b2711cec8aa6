"""Parameters and facts as JSON and back: numbers, text, lists, tuples, arrays, values, unfitted models."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from loca.errors import ModelFileError, did_you_mean
from loca.files.array_files import DTYPES
from loca.files.checked_json import take
from loca.files.model_state import get_params, is_model, parameter_names

Kinds = Mapping[str, type]

_PLAIN = (bool, int, float, str, type(None))
# What JSON has no word for is an object whose first key begins with this sign.
_MARK = "$"
_NUMBER_TYPES = {dtype.name: dtype for dtype in DTYPES.values()}


def write_value(value: Any, arrays: dict[str, npt.NDArray[Any]], where: str) -> Any:
    """The JSON value that stands for `value`; arrays inside it are put into `arrays` under new names."""
    if type(value) in _PLAIN:
        return value
    if type(value) is list:
        return [write_value(one, arrays, where) for one in value]
    if type(value) is tuple:
        return {"$tuple": [write_value(one, arrays, where) for one in value]}
    if type(value) is dict:
        return _write_dict(value, arrays, where)
    if isinstance(value, np.generic) and value.dtype.name in _NUMBER_TYPES:
        return {"$number": value.dtype.name, "value": value.item()}
    if isinstance(value, np.ndarray):
        name = f"value/{len(arrays)}"
        arrays[name] = value
        return {"$array": name}
    if is_model(value):
        return {"$model": type(value).__name__, "params": write_values(get_params(value), arrays, where)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and _is_frozen(type(value)):
        fields = {one.name: getattr(value, one.name) for one in dataclasses.fields(value) if one.init}
        return {"$value": type(value).__name__, "fields": write_values(fields, arrays, where)}
    raise ModelFileError(
        f"{where}: cannot save a {type(value).__name__}; expected numbers, text, lists, tuples, "
        "dictionaries, numpy arrays, frozen dataclasses or models"
    )


def write_values(values: Mapping[str, Any], arrays: dict[str, npt.NDArray[Any]], where: str) -> dict[str, Any]:
    """The JSON values of many named values."""
    return {name: write_value(value, arrays, f"{where} {name!r}") for name, value in values.items()}


def read_value(written: Any, arrays: Mapping[str, npt.NDArray[Any]], kinds: Kinds) -> Any:
    """The value that a JSON value stands for; classes come from `kinds` alone."""
    if type(written) in _PLAIN:
        return written
    if type(written) is list:
        return [read_value(one, arrays, kinds) for one in written]
    mark = next(iter(written), "")
    if not mark.startswith(_MARK):
        return {name: read_value(value, arrays, kinds) for name, value in written.items()}
    if mark not in _READERS:
        raise ValueError(f"unknown kind of value {mark!r:.60}")
    return _READERS[mark](written, arrays, kinds)


def read_values(written: Mapping[str, Any], arrays: Mapping[str, Any], kinds: Kinds) -> dict[str, Any]:
    """Many named values from their JSON values."""
    return {name: read_value(value, arrays, kinds) for name, value in written.items()}


def find_model_kind(name: str, kinds: Kinds) -> type:
    """The model class called `name`; an unknown one is refused with the nearest known names."""
    kind = kinds.get(name)
    if kind is None or not hasattr(kind, "restore"):
        known = sorted(one for one in kinds if hasattr(kinds[one], "restore"))
        raise ValueError(f"unknown kind of model {name!r:.60}{did_you_mean(name, known)}; known: {', '.join(known)}")
    return kind


def check_param_names(kind: type, params: Mapping[str, Any]) -> None:
    """Refuses a parameter that the model's constructor does not have; a missing one takes its default."""
    names = parameter_names(kind)
    for name in params:
        if name not in names:
            raise ValueError(f"unknown parameter {name!r:.60} for {kind.__name__}{did_you_mean(name, names)}")


def _write_dict(value: dict[Any, Any], arrays: dict[str, npt.NDArray[Any]], where: str) -> dict[str, Any]:
    if all(type(key) is str and not key.startswith(_MARK) for key in value):
        return {key: write_value(one, arrays, where) for key, one in value.items()}
    # JSON would turn every key into text.
    pairs = [[write_value(key, arrays, where), write_value(one, arrays, where)] for key, one in value.items()]
    return {"$map": pairs}


def _read_tuple(written: Any, arrays: Mapping[str, Any], kinds: Kinds) -> tuple[Any, ...]:
    return tuple(read_value(one, arrays, kinds) for one in take(written, "$tuple", list))


def _read_map(written: Any, arrays: Mapping[str, Any], kinds: Kinds) -> dict[Any, Any]:
    pairs = [read_value(pair, arrays, kinds) for pair in take(written, "$map", list)]
    return dict(pairs)


def _read_number(written: Any, arrays: Mapping[str, Any], kinds: Kinds) -> Any:
    name = take(written, "$number", str)
    if name not in _NUMBER_TYPES:
        raise ValueError(f"unknown kind of number {name!r:.60}")
    with np.errstate(over="ignore"):
        return _NUMBER_TYPES[name].type(take(written, "value", bool, int, float))


def _read_array(written: Any, arrays: Mapping[str, Any], kinds: Kinds) -> Any:
    name = take(written, "$array", str)
    if name not in arrays:
        raise ValueError(f"array {name!r:.60} is missing")
    return arrays[name]


def _read_model(written: Any, arrays: Mapping[str, Any], kinds: Kinds) -> Any:
    kind = find_model_kind(take(written, "$model", str), kinds)
    params = read_values(take(written, "params", dict), arrays, kinds)
    check_param_names(kind, params)
    return kind(**params)


def _read_dataclass(written: Any, arrays: Mapping[str, Any], kinds: Kinds) -> Any:
    name = take(written, "$value", str)
    kind = kinds.get(name)
    if kind is None or not _is_frozen(kind):
        raise ValueError(f"unknown kind of value {name!r:.60}")
    return kind(**read_values(take(written, "fields", dict), arrays, kinds))


def _is_frozen(kind: type) -> bool:
    return dataclasses.is_dataclass(kind) and bool(kind.__dataclass_params__.frozen)  # type: ignore[attr-defined]


_READERS: dict[str, Callable[[Any, Mapping[str, Any], Kinds], Any]] = {
    "$tuple": _read_tuple,
    "$map": _read_map,
    "$number": _read_number,
    "$array": _read_array,
    "$model": _read_model,
    "$value": _read_dataclass,
}
