"""Parameters and facts as JSON values and back, and the fingerprint of data and parameters."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Self, overload

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.data.interactions import Interactions
from loca.data.splits import HeldOut, Split
from loca.errors import ConfigError, ModelFileError, did_you_mean
from loca.persistence.arrays import DTYPES, check_types, dump_json
from loca.persistence.atomic_write import MANIFEST, read_plain

Kinds = Mapping[str, type]
Arrays = dict[str, npt.NDArray[Any]]

# Under this name a field of a class says how it is learned.
LEARNED = "learned"
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
# What a field of a value object may hold that is declared as a plain type.
_TYPES_BY_NAME: dict[str, tuple[type, ...]] = {
    "bool": (bool, np.bool_),
    "int": (int, np.integer),
    "float": (float, int, np.floating, np.integer),
    "str": (str,),
}
_NUMBER_TYPES = {dtype.name: dtype for dtype in DTYPES.values()}


@dataclass(frozen=True)
class ModelState:
    """Everything that a fitted object has learned, by name: arrays, facts and parts inside it."""

    arrays: Arrays = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    parts: dict[str, Any] = field(default_factory=dict)

    def copy(self) -> ModelState:
        """Return a state from which names can be taken out."""
        return ModelState(dict(self.arrays), dict(self.facts), dict(self.parts))

    def names(self) -> list[str]:
        """Return the names of all that it holds."""
        return [*self.arrays, *self.facts, *self.parts]

    def update(self, other: ModelState, owner: str) -> None:
        """Add what another state holds; refuse a name that is there, as one value would be lost."""
        for name in other.names():
            if type(name) is not str:
                raise ModelFileError(f"{owner}: expected names of text, found {name!r:.60}")
        pairs = ((self.arrays, other.arrays), (self.facts, other.facts), (self.parts, other.parts))
        for values, more in pairs:
            if twice := values.keys() & more.keys():
                raise ModelFileError(
                    f"{owner}: two learned fields are stored as {min(twice)!r}; rename one"
                )
            values.update(more)


@dataclass(frozen=True)
class SavedAt:
    """A folder that holds an object as it is, with the checksum of its manifest.

    Another save over the folder gives it another checksum: then it holds something else.
    """

    folder: Path
    checksum: int

    @classmethod
    def of(cls, folder: Path) -> Self:
        """Return a folder as it is now."""
        return cls(folder, zlib.crc32(read_plain(folder / MANIFEST)))

    def is_unchanged(self) -> bool:
        """Return whether the folder still holds what it held."""
        path = self.folder / MANIFEST
        return path.exists() and type(self).of(self.folder) == self


class Persistent:
    """What declares the fields that it learns (`loca.persistence.learned`) and is saved by them.

    What this package asks of such an object stands here, with what holds for one that says
    nothing else. A model may have `train_data_`, `report_` and `remarks_` too: these belong to the
    whole that a folder holds, and to no part of it.

    Attributes
    ----------
    takes_new_items : bool
        Whether it can be made larger for new items as far as its declared fields can.
    saved_in_ : SavedAt or None
        Where it was loaded from, set by whoever loaded it and leaves it as it is
        (`loca.cluster.shards.load_part`): a save then links the files instead of writing them
        again. A copy that holds anything else must have None.
    """

    saved_in_: SavedAt | None = None

    @property
    def takes_new_items(self) -> bool:
        """Whether it can be made larger for new items."""
        return True

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
    """Return the names of the constructor's arguments."""
    check_decorated(kind)
    return tuple(inspect.signature(kind).parameters)


@lru_cache(maxsize=256)
def check_decorated(kind: type) -> None:
    """Refuse a class that declares fields without the decorator that makes them."""
    for ancestor in kind.__mro__:
        for name, value in vars(ancestor).items():
            if isinstance(value, dataclasses.Field):
                raise ConfigError(
                    f"{ancestor.__name__}: the field {name!r} needs a decorator; write "
                    "@dataclass(…) above the class, as above the one that it derives from"
                )


def is_model(value: object) -> bool:
    """Return whether a value is a model or a part of one, fitted or not, that can be saved."""
    return isinstance(value, Persistent)


def write_value(value: Any, arrays: Arrays, where: str) -> Any:
    """Return the JSON value that stands for `value`; arrays in it go into `arrays`, newly named."""
    if type(value) in _PLAIN:
        return value
    if type(value) is list:
        return [write_value(element, arrays, where) for element in value]
    if type(value) is tuple:
        return {"$tuple": [write_value(element, arrays, where) for element in value]}
    if type(value) is dict:
        return _write_dict(value, arrays, where)
    if isinstance(value, np.generic) and value.dtype.name in _NUMBER_TYPES:
        return {"$number": value.dtype.name, "value": value.item()}
    if isinstance(value, np.ndarray):
        name = f"value/{len(arrays)}"
        arrays[name] = value
        return {"$array": name}
    if is_model(value):
        return _write_model(value, arrays, where)
    if _is_value_class(type(value)):
        return _write_value_object(value, arrays, where)
    raise ModelFileError(
        f"{where}: cannot save a {type(value).__name__}; expected numbers, text, lists, tuples, "
        "dictionaries, numpy arrays, frozen dataclasses or models"
    )


def _write_dict(value: dict[Any, Any], arrays: Arrays, where: str) -> dict[str, Any]:
    if all(type(key) is str and not key.startswith(_MARK) for key in value):
        return {key: write_value(element, arrays, where) for key, element in value.items()}
    # JSON would turn every key into text.
    return {"$map": [write_value(list(pair), arrays, where) for pair in value.items()]}


def _write_model(model: Any, arrays: Arrays, where: str) -> dict[str, Any]:
    """Return a model as its parameters: as a parameter it is unfitted."""
    name = type(model).__name__
    if _is_made_of_learned(type(model)):
        raise ModelFileError(
            f"{where}: a {name} was learned, and is no parameter and no fact; declare the field "
            "that holds it with `learned_part`"
        )
    return {"$model": name, "params": write_values(get_params(model), arrays, where)}


def _write_value_object(value: Any, arrays: Arrays, where: str) -> dict[str, Any]:
    arguments = {
        argument.name: getattr(value, argument.name)
        for argument in dataclasses.fields(value)
        if argument.init
    }
    if problem := _type_problem(type(value), arguments):
        raise ModelFileError(f"{where}: cannot save a {type(value).__name__}: {problem}")
    return {"$value": type(value).__name__, "fields": write_values(arguments, arrays, where)}


def write_values(values: Mapping[str, Any], arrays: Arrays, where: str) -> dict[str, Any]:
    """Return the JSON values of many named values."""
    return {name: write_value(value, arrays, f"{where} {name!r}") for name, value in values.items()}


def read_value(written: Any, arrays: Arrays, kinds: Kinds) -> Any:
    """Return the value that a JSON value stands for; classes come from `kinds` alone.

    Arrays are taken out of `arrays`: what stays there is in no value.
    """
    if type(written) in _PLAIN:
        return written
    if type(written) is list:
        return [read_value(element, arrays, kinds) for element in written]
    mark = next(iter(written), "")
    if not mark.startswith(_MARK):
        return read_values(written, arrays, kinds)
    if mark not in _WRITTEN:
        raise ValueError(f"unknown kind of value {mark!r:.60}")
    check_types(written, _WRITTEN[mark])
    if mark == "$tuple":
        return tuple(read_value(written[mark], arrays, kinds))
    if mark == "$map":
        return dict(read_value(written[mark], arrays, kinds))
    if mark == "$array":
        return _read_array(written[mark], arrays)
    if mark == "$number":
        return _read_number(written)
    if mark == "$model":
        return _read_model(written, arrays, kinds)
    return _read_value_object(written, arrays, kinds)


def _read_array(name: str, arrays: Arrays) -> npt.NDArray[Any]:
    if name not in arrays:
        raise ValueError(f"unknown kind of array {name!r:.60}")
    return arrays.pop(name)


def _read_number(written: Mapping[str, Any]) -> np.generic:
    dtype = written["$number"]
    if dtype not in _NUMBER_TYPES:
        raise ValueError(f"unknown kind of number {dtype!r:.60}")
    with np.errstate(over="ignore"):
        number: np.generic = _NUMBER_TYPES[dtype].type(written["value"])
    return number


def _read_model(written: Mapping[str, Any], arrays: Arrays, kinds: Kinds) -> Any:
    params = read_values(written["params"], arrays, kinds)
    kind = find_kind(written["$model"], params, kinds)
    if _is_made_of_learned(kind):
        raise ValueError(f"a {kind.__name__} is learned, and no parameter and no fact")
    return kind(**params)


def _read_value_object(written: Mapping[str, Any], arrays: Arrays, kinds: Kinds) -> Any:
    name = written["$value"]
    kind: Any = kinds.get(name)
    if not _is_value_class(kind):
        known = [known for known in kinds if _is_value_class(kinds[known])]
        raise ValueError(
            f"unknown kind of value {name!r:.60}{did_you_mean(name, known)}; give a class of your "
            "own as load(…, classes=[…])"
        )
    arguments = read_values(written["fields"], arrays, kinds)
    if problem := _type_problem(kind, arguments):
        raise ValueError(f"{name}: {problem}")
    return kind(**arguments)


def _type_problem(kind: Any, arguments: Mapping[str, Any]) -> str:
    """Return which argument is not of the plain type that its class declares; empty where none."""
    for argument in dataclasses.fields(kind):
        declared = str(getattr(argument.type, "__name__", argument.type))
        expected = _TYPES_BY_NAME.get(declared)
        if expected is None or argument.name not in arguments:
            continue
        value = arguments[argument.name]
        is_truth_value = isinstance(value, bool) and declared != "bool"
        if is_truth_value or not isinstance(value, expected):
            return f"{argument.name}: expected {declared}, found {value!r:.60}"
    return ""


def read_values(written: Mapping[str, Any], arrays: Arrays, kinds: Kinds) -> dict[str, Any]:
    """Return many named values from their JSON values."""
    return {name: read_value(value, arrays, kinds) for name, value in written.items()}


def find_kind(name: str, params: Mapping[str, Any], kinds: Kinds) -> Any:
    """Return the class called `name`; refuse an unknown class or parameter, with the nearest known.

    A parameter that is not among the `params` takes its default.
    """
    kind: Any = kinds.get(name)
    if not _is_model_class(kind):
        known = sorted(known for known in kinds if _is_model_class(kinds[known]))
        raise ValueError(
            f"unknown kind of model {name!r:.60}{did_you_mean(name, known)}; give a class of your "
            f"own as load(…, classes=[…]); known: {', '.join(known)}"
        )
    names = parameter_names(kind)
    for param in params:
        if param not in names:
            raise ValueError(
                f"unknown parameter {param!r:.60} for {kind.__name__}{did_you_mean(param, names)}"
            )
    return kind


def _is_made_of_learned(kind: Any) -> bool:
    """Return whether arguments of a class are learned: they are checked where it is a part."""
    if not dataclasses.is_dataclass(kind):
        return False
    return any(
        argument.init and LEARNED in argument.metadata for argument in dataclasses.fields(kind)
    )


def _is_model_class(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Persistent)


def _is_value_class(kind: object) -> bool:
    """Return whether this is a class of frozen values, which check themselves when made."""
    if not isinstance(kind, type) or not dataclasses.is_dataclass(kind) or _is_model_class(kind):
        return False
    return bool(kind.__dataclass_params__.frozen)  # type: ignore[attr-defined]


@overload
def fingerprint(value: Interactions | HeldOut | Split | csr_array) -> str: ...
@overload
def fingerprint(value: object) -> str | None: ...
def fingerprint(value: Any) -> str | None:
    """Return a short text that changes with any bit of data or of parameters.

    Interactions count by ids, order, times and recency, not by labels; a model by its class and
    parameters, not by what it has learned. None where a parameter cannot be written.
    """
    if isinstance(value, HeldOut):
        return f"{fingerprint(value.histories)} {fingerprint(value.targets)} {value.count_repeats}"
    digest = hashlib.blake2b(digest_size=16)
    if isinstance(value, Interactions):
        _add_interactions(digest, value)
    elif isinstance(value, Split):
        _add_split(digest, value)
    else:
        try:
            _add_value(digest, value)
        except ModelFileError:
            return None
    return digest.hexdigest()


def _add_interactions(digest: Any, data: Interactions) -> None:
    arrays = (data.users.values, data.items.values, data.offsets, data.item_rows, data.times)
    for array in arrays:
        if array is None:
            digest.update(b"none ")
        elif array.dtype.kind == "O":
            digest.update(b"text " + dump_json(array.tolist()))
        else:
            _add_array(digest, f"{array.dtype.str} {len(array)} ", array)
    digest.update(repr(data.recency).encode())
    if data.weights is not None:
        _add_array(digest, f"weights by {data.weighting} ", data.weights)


def _add_split(digest: Any, split: Split) -> None:
    parts: list[Any] = [split.train, split.train_and_validation]
    for held_out in (split.validation, split.test):
        if held_out is not None:
            parts += [held_out.histories, held_out.targets]
    texts = [f"validation {split.validation is not None}"]
    texts += [str(fingerprint(part)) for part in parts]
    digest.update(" ".join(texts).encode())


def _add_value(digest: Any, value: Any) -> None:
    if isinstance(value, csr_array):
        value = [value.indptr, value.indices, value.data, value.shape]
    arrays: Arrays = {}
    digest.update(dump_json(write_value(value, arrays, "fingerprint")))
    for name, array in arrays.items():
        _add_array(digest, f"{name} {array.dtype.str} {array.shape} ", array)


def _add_array(digest: Any, about: str, array: npt.NDArray[Any]) -> None:
    # What it is first: the bytes alone would not say where one array ends.
    digest.update(about.encode())
    digest.update(np.ascontiguousarray(array).data)
