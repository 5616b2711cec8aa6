"""What model.json says: the kind of model, its parameters and facts, and every file and array beside it."""

from __future__ import annotations

import dataclasses
import inspect
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from loca.errors import ModelFileError, did_you_mean
from loca.persistence.arrays import DTYPES, ArrayFile, dump_json, parse_json, take
from loca.persistence.atomic_write import is_own_name

FORMAT = "loca-model"
VERSION = 1
LARGEST_MANIFEST = 32 * 1024 * 1024


@dataclass(frozen=True)
class WrittenModel:
    """One model of the tree: what its constructor takes, what it has learned, and the models inside it."""

    kind: str
    params: Mapping[str, Any]
    facts: Mapping[str, Any]
    arrays: ArrayFile | None
    shares_known: bool
    parts: Mapping[str, WrittenModel] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "params": self.params,
            "facts": self.facts,
            "arrays": None if self.arrays is None else self.arrays.as_json(),
            "shares_known": self.shares_known,
            "parts": {name: part.as_json() for name, part in self.parts.items()},
        }

    @classmethod
    def from_json(cls, written: Any) -> WrittenModel:
        arrays = take(written, "arrays", dict, type(None))
        return cls(
            kind=take(written, "kind", str),
            params=take(written, "params", dict),
            facts=take(written, "facts", dict),
            arrays=None if arrays is None else ArrayFile.from_json(arrays),
            shares_known=take(written, "shares_known", bool),
            parts={name: cls.from_json(part) for name, part in take(written, "parts", dict).items()},
        )

    def array_files(self) -> Iterator[ArrayFile]:
        """The array files of this model and of all models inside it."""
        if self.arrays is not None:
            yield self.arrays
        for part in self.parts.values():
            yield from part.array_files()


@dataclass(frozen=True)
class WrittenKnown:
    """The interactions the model was fitted on: two files of ids, one of arrays, and their recency."""

    users: str
    items: str
    checksums: tuple[int, int]
    arrays: ArrayFile
    recency: Mapping[str, Any] | None

    def __post_init__(self) -> None:
        dtypes = {name: note.dtype for name, note in self.arrays.notes.items() if name != "times"}
        if dtypes != {"offsets": "I64", "item_rows": "I32"}:
            raise ValueError(f"known interactions: expected offsets, item_rows and times, found {dtypes!r:.100}")

    def as_json(self) -> dict[str, Any]:
        return {
            "users": self.users,
            "items": self.items,
            "checksums": list(self.checksums),
            "arrays": self.arrays.as_json(),
            "recency": self.recency,
        }

    @classmethod
    def from_json(cls, written: Any) -> WrittenKnown:
        users, items = take(written, "checksums", list)
        return cls(
            users=take(written, "users", str),
            items=take(written, "items", str),
            checksums=(users, items),
            arrays=ArrayFile.from_json(take(written, "arrays", dict)),
            recency=take(written, "recency", dict, type(None)),
        )


@dataclass(frozen=True)
class Manifest:
    """The whole of model.json; `files` gives the size in bytes of each data file."""

    model: WrittenModel
    known: WrittenKnown | None
    files: Mapping[str, int]
    written_by: Mapping[str, str]

    def __post_init__(self) -> None:
        for name, size in self.files.items():
            if not is_own_name(name) or type(size) is not int:
                raise ValueError(f"{name!r:.60} with {size!r:.60} bytes is not a data file of a loca model")
        named = {one.name for one in self.array_files()} | set(self.id_files())
        if named != set(self.files):
            raise ValueError(f"{min(named ^ set(self.files))!r:.60} is not both listed and used")

    def array_files(self) -> list[ArrayFile]:
        """All array files: the models' and that of the known interactions."""
        known = [] if self.known is None else [self.known.arrays]
        return [*self.model.array_files(), *known]

    def id_files(self) -> list[str]:
        """The names of the JSON files beside model.json."""
        return [] if self.known is None else [self.known.users, self.known.items]

    def to_bytes(self) -> bytes:
        """The text of model.json, sealed with a checksum of all that it says."""
        body = {
            "written_by": dict(self.written_by),
            "files": dict(self.files),
            "known": None if self.known is None else self.known.as_json(),
            "model": self.model.as_json(),
        }
        sealed = {"format": FORMAT, "version": VERSION, "checksum": seal(body), **body}
        return dump_json(sealed, indent=1) + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """What a model.json says, once its format, version and seal are right; a ValueError otherwise."""
        written = parse_json(data)
        if type(written) is not dict or written.get("format") != FORMAT:
            raise ValueError(f"not a loca model: expected the format {FORMAT!r}")
        version = take(written, "version", int)
        if version > VERSION:
            raise ValueError(
                f"written in format {version} by a newer loca, this one reads up to {VERSION}; upgrade loca"
            )
        if version < 1:
            raise ValueError(f"unknown format version {version}")
        checksum = take(written, "checksum", int)
        body = {name: value for name, value in written.items() if name not in ("format", "version", "checksum")}
        if checksum != seal(body):
            raise ValueError("changed or damaged since it was saved; copy the folder again or save the model anew")
        known = take(body, "known", dict, type(None))
        return cls(
            model=WrittenModel.from_json(take(body, "model", dict)),
            known=None if known is None else WrittenKnown.from_json(known),
            files=take(body, "files", dict),
            written_by=take(body, "written_by", dict),
        )


def seal(body: Mapping[str, Any]) -> int:
    """The CRC-32 of all that a manifest says, whatever its spaces and line ends."""
    return zlib.crc32(dump_json(body))


def is_manifest(data: bytes) -> bool:
    """Whether a model.json is one of loca's, of any version, sound or not."""
    try:
        written = parse_json(data)
    except (ValueError, RecursionError):
        return False
    return type(written) is dict and written.get("format") == FORMAT


@dataclass(frozen=True)
class ModelState:
    """Everything a fitted model has learned, by name: arrays, plain facts, the fitted models inside it."""

    arrays: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    parts: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in (*self.arrays, *self.facts, *self.parts):
            if type(name) is not str:
                raise ModelFileError(f"model state: expected names of text, found {name!r:.60}")


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
    return {name: getattr(model, name) for name in parameter_names(kind)}


@lru_cache(maxsize=256)
def parameter_names(kind: type) -> tuple[str, ...]:
    """The names of the constructor's arguments."""
    return tuple(inspect.signature(kind).parameters)


def is_model(value: object) -> bool:
    """Whether a value is a model or a part of one, fitted or not, that can be saved and restored."""
    return hasattr(value, "state") and hasattr(value, "restore") and not isinstance(value, type)


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
