"""Learned state, declared once: saving, loading, checks, sizes and selected parameters follow from it.

Whatever is fitted declares what it learns as dataclass fields:

    weights_: FloatArray = learned("items", "factors")
    share: float = learned_fact("a number from 0 to 1", is_fraction)
    centre_: Recommender = learned_part(Recommender, "items")

A name such as "items" is one size in all fields of an object. A part has its own sizes; it shares only
those that are named for it. Files may come from strangers: shape, type and range of every field are
checked here, and `check` of the class looks at what concerns several fields.
"""

from __future__ import annotations

import copy
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.errors import LocaError, ModelFileError, NotFittedError
from loca.persistence.manifest import ModelState, Persistent, get_params

AnyPart = TypeVar("AnyPart")
Array = npt.NDArray[Any]
Sizes = dict[str, int]
SPARSE_ARRAYS = ("data", "indices", "indptr")


# -- Kinds of fields ------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class LearnedField(ABC):
    """How one learned field is stored, checked and measured.

    `selects` names the parameter that the value becomes in a refit. An `optional` field may be None,
    and is then not stored.
    """

    selects: str | None = None
    optional: bool = False

    @abstractmethod
    def write(self, name: str, value: Any, state: ModelState) -> None:
        """Add the value to a state."""

    @abstractmethod
    def read(self, name: str, state: ModelState, sizes: Sizes, owner: Any) -> Any:
        """Return the checked value of a state; KeyError where it is missing, ValueError where wrong.

        `owner` is the object with its parameters; of a value that is made of its fields it is None.
        """

    def sizes(self, value: Any) -> Sizes:
        """Return the named sizes of a value."""
        return {}

    def selected(self, value: Any, parameter: Any) -> Any:
        """Return what the selected parameter becomes, given what it was."""
        return value

    def with_items(self, value: Any, n_items: int) -> Any:
        """Return the value for more items than it was learned with."""
        return value


@dataclass(frozen=True, kw_only=True)
class LearnedArray(LearnedField):
    """An array, whose shape is given by numbers and names, and whose type is one of some."""

    shape: tuple[str | int, ...]
    dtypes: tuple[np.dtype[Any], ...]
    finite: bool = True

    def write(self, name: str, value: Any, state: ModelState) -> None:
        state.arrays[name] = value

    def read(self, name: str, state: ModelState, sizes: Sizes, owner: Any) -> Array:
        array = state.arrays[name]
        for size, actual in zip(self.shape, array.shape, strict=False):
            sizes.setdefault(str(size), actual)
        expected = tuple(size if isinstance(size, int) else sizes.get(size) for size in self.shape)
        if array.shape != expected or array.dtype not in self.dtypes:
            names = " × ".join(map(str, self.shape))
            types = " or ".join(dtype.name for dtype in self.dtypes)
            raise ValueError(
                f"expected shape {expected}, {names}, of {types}, "
                f"found {array.shape} of {array.dtype}"
            )
        if self.finite and array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ValueError("expected finite numbers")
        return array

    def sizes(self, value: Any) -> Sizes:
        named = zip(self.shape, value.shape, strict=True)
        return {size: actual for size, actual in named if isinstance(size, str)}

    def with_items(self, value: Any, n_items: int) -> Any:
        growths = [
            (0, n_items - actual if size == "items" else 0)
            for size, actual in zip(self.shape, value.shape, strict=True)
        ]
        return np.pad(value, growths) if any(more for _, more in growths) else value


@dataclass(frozen=True, kw_only=True)
class LearnedSparse(LearnedField):
    """A sparse items × items matrix, stored as its three arrays."""

    def write(self, name: str, value: Any, state: ModelState) -> None:
        for part in SPARSE_ARRAYS:
            state.arrays[f"{name}_{part}"] = getattr(value, part)

    def read(self, name: str, state: ModelState, sizes: Sizes, owner: Any) -> csr_array:
        data, indices, indptr = (state.arrays[f"{name}_{part}"] for part in SPARSE_ARRAYS)
        if data.dtype != np.float32 or indices.dtype.kind != "i" or indptr.dtype.kind != "i":
            raise ValueError("expected 32-bit numbers at whole-numbered places, found other types")
        if data.ndim != 1 or data.shape != indices.shape or indptr.ndim != 1 or len(indptr) < 2:
            raise ValueError("its arrays do not fit each other")
        if indptr[0] != 0 or indptr[-1] != len(data) or (np.diff(indptr) < 0).any():
            raise ValueError(f"its rows do not rise from 0 to {len(data)}")
        n_items = len(indptr) - 1
        if sizes.setdefault("items", n_items) != n_items:
            raise ValueError(f"expected {sizes['items']} items, found {n_items}")
        if len(data) and (indices.min() < 0 or indices.max() >= n_items):
            raise ValueError(f"an item lies outside 0 … {n_items - 1}")
        if not np.isfinite(data).all():
            raise ValueError("expected finite numbers")
        return csr_array((data, indices, indptr), shape=(n_items, n_items))

    def sizes(self, value: Any) -> Sizes:
        return {"items": value.shape[0]}


@dataclass(frozen=True, kw_only=True)
class LearnedWeights(LearnedField):
    """Items × items weights, a dense array or a sparse matrix; a file says which."""

    dense: LearnedArray
    sparse: LearnedSparse

    def write(self, name: str, value: Any, state: ModelState) -> None:
        kind = self.sparse if isinstance(value, csr_array) else self.dense
        kind.write(name, value, state)

    def read(self, name: str, state: ModelState, sizes: Sizes, owner: Any) -> Any:
        kind = self.sparse if f"{name}_data" in state.arrays else self.dense
        return kind.read(name, state, sizes, owner)

    def sizes(self, value: Any) -> Sizes:
        return {"items": value.shape[0]}


@dataclass(frozen=True, kw_only=True)
class LearnedFact(LearnedField):
    """A plain value, or a frozen value object."""

    expected: str
    is_valid: Callable[[Any], bool]

    def write(self, name: str, value: Any, state: ModelState) -> None:
        state.facts[name] = value

    def read(self, name: str, state: ModelState, sizes: Sizes, owner: Any) -> Any:
        value = state.facts[name]
        if not self.is_valid(value):
            raise ValueError(f"expected {self.expected}, found {value!r:.60}")
        return value


@dataclass(frozen=True, kw_only=True)
class LearnedPart(LearnedField):
    """Something fitted inside of it. It may be stored elsewhere in the same folder; once suffices."""

    kind: type
    shared: tuple[str, ...] = ()

    def write(self, name: str, value: Any, state: ModelState) -> None:
        state.parts[name] = value

    def read(self, name: str, state: ModelState, sizes: Sizes, owner: Any) -> Any:
        part = state.parts[name]
        self.check(part, sizes)
        return part

    def check(self, part: Any, sizes: Sizes) -> None:
        """Refuse a part of another kind, or of other sizes."""
        if not isinstance(part, self.kind):
            raise ValueError(f"expected a {self.kind.__name__}, found {type(part).__name__}")
        actual = sizes_of(part)
        for size in self.shared:
            if sizes.setdefault(size, actual[size]) != actual[size]:
                raise ValueError(f"expected {sizes[size]} {size}, found {actual[size]}")

    def sizes(self, value: Any) -> Sizes:
        actual = sizes_of(value) if self.shared else {}
        return {size: actual[size] for size in self.shared}

    def selected(self, value: Any, parameter: Any) -> Any:
        return value.selected()

    def with_items(self, value: Any, n_items: int) -> Any:
        return with_items(value, n_items) if "items" in self.shared else value


@dataclass(frozen=True, kw_only=True)
class LearnedParts(LearnedPart):
    """A sequence of fitted parts; None stands for one that is not needed."""

    def write(self, name: str, value: Any, state: ModelState) -> None:
        state.facts[f"{name} count"] = len(value)
        for number, part in enumerate(value):
            if part is not None:
                state.parts[f"{name} {number}"] = part

    def read(self, name: str, state: ModelState, sizes: Sizes, owner: Any) -> tuple[Any, ...]:
        count = state.facts[f"{name} count"]
        if type(count) is not int or not 0 <= count:
            raise ValueError(f"expected a whole number of parts, found {count!r:.60}")
        names = [one for one in state.parts if one.startswith(f"{name} ")]
        numbers = {f"{name} {number}": number for number in range(count) if len(names)}
        if not names or not set(names) <= set(numbers):
            raise ValueError(f"expected parts named '{name} 0' and on, found {sorted(names)[:3]}")
        parts: list[Any] = [None] * count
        for part_name in names:
            self.check(state.parts[part_name], sizes)
            parts[numbers[part_name]] = state.parts[part_name]
        return tuple(parts)

    def sizes(self, value: Any) -> Sizes:
        return super().sizes(next(part for part in value if part is not None))

    def selected(self, value: Any, parameter: Any) -> Any:
        pairs = zip(value, parameter, strict=True)
        return tuple(given if part is None else part.selected() for part, given in pairs)

    def with_items(self, value: Any, n_items: int) -> Any:
        if "items" not in self.shared:
            return value
        return tuple(None if part is None else with_items(part, n_items) for part in value)


# -- Declarations ---------------------------------------------------------------------------------


def learned(
    *shape: str | int,
    dtype: Any = np.float32,
    finite: bool = True,
    selects: str | None = None,
    optional: bool = False,
) -> Any:
    """Declare an array that is learned.

    Parameters
    ----------
    *shape : str or int
        Numbers, names of parameters, or any other names such as "items", which stand for one size
        in all fields of the object.
    dtype : numpy type or tuple of them
        The type of its numbers, or those that it may have.
    finite : bool
        Whether the numbers of a file are checked to be finite, which reads them all.
    selects : str or None
        The parameter that it becomes in a refit.
    optional : bool
        Whether it may be None.
    """
    dtypes = dtype if isinstance(dtype, tuple) else (dtype,)
    return _declared(
        LearnedArray(
            shape=shape,
            dtypes=tuple(np.dtype(one) for one in dtypes),
            finite=finite,
            selects=selects,
            optional=optional,
        )
    )


def learned_sparse(*, optional: bool = False) -> Any:
    """Declare a sparse items × items matrix that is learned."""
    return _declared(LearnedSparse(optional=optional))


def learned_weights() -> Any:
    """Declare items × items weights that are learned, dense or sparse."""
    dense = LearnedArray(shape=("items", "items"), dtypes=(np.dtype(np.float32),), finite=False)
    return _declared(LearnedWeights(dense=dense, sparse=LearnedSparse()))


def learned_fact(
    expected: str,
    is_valid: Callable[[Any], bool],
    *,
    selects: str | None = None,
    optional: bool = False,
) -> Any:
    """Declare a plain value that is learned; an invalid one of a file is refused."""
    return _declared(
        LearnedFact(expected=expected, is_valid=is_valid, selects=selects, optional=optional)
    )


def learned_value(kind: type, *, selects: str | None = None, optional: bool = False) -> Any:
    """Declare a frozen value object that is learned, such as a strategy that validation chose."""

    def is_kind(value: object) -> bool:
        return isinstance(value, kind)

    return learned_fact(f"a {kind.__name__}", is_kind, selects=selects, optional=optional)


def learned_part(
    kind: type, *shared: str, selects: str | None = None, optional: bool = False
) -> Any:
    """Declare a fitted part; `shared` names the sizes that it has in common with the whole."""
    return _declared(LearnedPart(kind=kind, shared=shared, selects=selects, optional=optional))


def learned_parts(kind: type, *shared: str, selects: str | None = None) -> Any:
    """Declare a sequence of fitted parts; `shared` names the sizes that all have in common."""
    return _declared(LearnedParts(kind=kind, shared=shared, selects=selects))


def declare(learned_field: LearnedField) -> Any:
    """Declare a field of a kind that another module defines."""
    return _declared(learned_field)


def _declared(learned_field: LearnedField) -> Any:
    metadata = {"learned": learned_field}
    return (
        field(default=None, metadata=metadata)
        if learned_field.optional
        else field(metadata=metadata)
    )


class Learner(Persistent):
    """What learns after it was made: its learned fields are None before, and no arguments."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for value in vars(cls).values():
            if isinstance(value, dataclasses.Field) and "learned" in value.metadata:
                value.init = False
                value.default = None


# -- What follows ---------------------------------------------------------------------------------


def learned_fields(kind: type) -> dict[str, LearnedField]:
    """Return the learned fields of a class by their names."""
    if not dataclasses.is_dataclass(kind):
        return {}
    return {one.name: one.metadata["learned"] for one in fields(kind) if "learned" in one.metadata}


def _stored_name(name: str) -> str:
    return name.removesuffix("_")


def state_of(learner: Persistent) -> ModelState:
    """Return all that was learned, as a folder stores it beside the parameters."""
    state = ModelState()
    for name, learned_field in learned_fields(type(learner)).items():
        value = getattr(learner, name)
        if value is not None:
            learned_field.write(_stored_name(name), value, state)
        elif not learned_field.optional:
            raise NotFittedError(
                f"this {type(learner).__name__} has not been fitted; call fit(train) first"
            )
    return state


def parts_of(learner: Persistent) -> dict[str, Any]:
    """Return the fitted parts of an object by the names under which a folder stores them."""
    state = ModelState()
    for name, learned_field in learned_fields(type(learner)).items():
        value = getattr(learner, name)
        if isinstance(learned_field, LearnedPart) and value is not None:
            learned_field.write(_stored_name(name), value, state)
    return state.parts


def stored_params(learner: Persistent) -> dict[str, Any]:
    """Return the parameters that a folder stores; a value that is made of what was learned has none."""
    declared = learned_fields(type(learner))
    return {name: value for name, value in get_params(learner).items() if name not in declared}


def restored(kind: Any, params: Mapping[str, Any], state: ModelState) -> Any:
    """Return the fitted object of a class again; refuse a state that does not fit."""
    declared = learned_fields(kind)
    is_made_of_them = any(one.init for one in fields(kind) if one.name in declared)
    owner = None if is_made_of_them else kind(**params)
    sizes = _sizes_in(params if owner is None else get_params(owner))
    values: dict[str, Any] = {}
    for name, learned_field in declared.items():
        try:
            values[name] = learned_field.read(_stored_name(name), state, sizes, owner)
        except KeyError as error:
            if not learned_field.optional:
                raise ModelFileError(f"{kind.__name__}: {error.args[0]} is missing") from error
        except ValueError as error:
            raise ModelFileError(f"{kind.__name__}: {_stored_name(name)}: {error}") from error
    learner: Any = kind(**params, **values) if owner is None else owner
    if owner is not None:
        for name, value in values.items():
            setattr(owner, name, value)
    try:
        learner.check()
    except ModelFileError:
        raise
    except LocaError as error:
        raise ModelFileError(f"{kind.__name__}: {error}") from error
    return learner


def _sizes_in(params: Mapping[str, Any]) -> Sizes:
    """Return the parameters that may stand for a size."""
    return {name: value for name, value in params.items() if type(value) is int}


def sizes_of(learner: Any) -> Sizes:
    """Return the named sizes of what was learned; of a model that declares no items those it counts."""
    sizes: Sizes = {}
    for name, learned_field in learned_fields(type(learner)).items():
        value = getattr(learner, name)
        if value is not None:
            sizes |= learned_field.sizes(value)
    if "items" not in sizes and hasattr(learner, "count_items"):
        sizes["items"] = learner.count_items()
    return sizes


def selections(learner: Any) -> dict[str, Any]:
    """Return what was chosen while it was fitted, by the parameters that it becomes in a refit.

    A part that is no model by itself hands on its own.
    """
    chosen: dict[str, Any] = {}
    for name, learned_field in learned_fields(type(learner)).items():
        value = getattr(learner, name)
        if value is None:
            continue
        if learned_field.selects is not None:
            parameter = getattr(learner, learned_field.selects, None)
            chosen[learned_field.selects] = learned_field.selected(value, parameter)
        elif isinstance(value, Persistent) and not hasattr(value, "selected"):
            chosen |= selections(value)
    return chosen


def with_items(learner: AnyPart, n_items: int) -> AnyPart:
    """Return a copy for more items, for which arrays over the items get zeros."""
    changes = {
        name: learned_field.with_items(getattr(learner, name), n_items)
        for name, learned_field in learned_fields(type(learner)).items()
        if getattr(learner, name) is not None
    }
    grown: Any = copy.copy(learner)
    for name, value in changes.items():
        object.__setattr__(grown, name, value)
    for one in fields(grown):
        if one.name.startswith("_"):  # what was made of the arrays
            is_made = one.default_factory is not dataclasses.MISSING
            object.__setattr__(grown, one.name, one.default_factory() if is_made else one.default)
    return cast(AnyPart, grown)


def move_parts(learner: Any, device: str) -> None:
    """Move all fitted parts to a device, and the parts of those that do not move by themselves."""
    for part in parts_of(learner).values():
        if hasattr(part, "to"):
            part.to(device)
        else:
            move_parts(part, device)


def learned_bytes(learner: Any) -> int:
    """Return how many bytes its arrays take, without those of its parts."""
    return sum(array.nbytes for array in state_of(learner).arrays.values())


def supports_new_items(learner: Any) -> bool:
    """Return whether its arrays can grow by new items: those of all parts are declared."""
    shared = [part for part in parts_of(learner).values() if "items" in sizes_of(part)]
    return all(
        isinstance(part, Persistent) and getattr(part, "takes_new_items", True) for part in shared
    )
