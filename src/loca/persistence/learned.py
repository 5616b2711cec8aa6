"""Learned state, declared once: saving, loading, checks, sizes and refits follow from it.

Whatever is fitted declares what it learns as dataclass fields:

    weights_: FloatArray = learned("items", "factors")
    share: float = learned_fact("a number from 0 to 1", is_fraction)
    centre_: Recommender = learned_part(Recommender, "items")

A name such as "items" is one size in all fields of an object. A part has its own sizes; it shares
only those that are named for it. Files may come from strangers: shape, type and range of every
field are checked here, what no field declares is refused, and `check` of the class looks at what
concerns several fields.

The name of an attribute that a fit sets ends in "_": one that no field declares is refused by a
save, so that nothing is forgotten. A field whose name begins with "_" is a cache: it is not saved,
and made anew where the arrays changed.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, TypeVar, cast

import numpy as np

from loca.errors import LocaError, ModelFileError, NotFittedError, did_you_mean
from loca.persistence.learned_fields import (
    ITEMS,
    LearnedArray,
    LearnedFact,
    LearnedField,
    LearnedSparse,
    LearnedWeights,
    Sizes,
)
from loca.persistence.manifest import (
    LEARNED,
    ModelState,
    Persistent,
    check_decorated,
    get_params,
)

AnyPart = TypeVar("AnyPart")


# -- Parts ----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class LearnedPart(LearnedField):
    """A fitted object inside another. A folder stores it once, wherever else it stands."""

    kind: type
    shared: tuple[str, ...] = ()

    def write(self, name: str, value: Any, state: ModelState) -> None:
        state.parts.update(self.parts(name, value))

    def parts(self, name: str, value: Any) -> dict[str, Any]:
        return {name: value}

    def is_stored(self, name: str, state: ModelState) -> bool:
        return name in state.parts

    def read(self, name: str, state: ModelState, sizes: Sizes, owner: Any) -> Any:
        return state.parts.pop(name)

    def validate(self, value: Any, sizes: Sizes, owner: Any) -> None:
        if not isinstance(value, self.kind):
            raise ValueError(f"expected a {self.kind.__name__}, found {type(value).__name__}")
        super().validate(value, sizes, owner)

    def sizes(self, value: Any) -> Sizes:
        sizes = {size: size_of(value, size) for size in self.shared}
        return {size: actual for size, actual in sizes.items() if actual is not None}

    def selected(self, value: Any, parameter: Any) -> Any:
        return value.selected()

    def can_grow(self, value: Any) -> bool:
        if size_of(value, ITEMS) is None:
            return True
        takes_new_items = isinstance(value, Persistent) and value.takes_new_items
        return takes_new_items and supports_new_items(value)

    def with_items(self, value: Any, n_items: int) -> Any:
        return with_items(value, n_items) if ITEMS in self.shared else value


@dataclass(frozen=True, kw_only=True)
class LearnedParts(LearnedField):
    """A sequence of fitted objects; with `gaps` None may stand for one that is not needed."""

    part: LearnedPart
    gaps: bool = False

    def write(self, name: str, value: Any, state: ModelState) -> None:
        state.facts[name] = [part is not None for part in value]
        state.parts.update(self.parts(name, value))

    def parts(self, name: str, value: Any) -> dict[str, Any]:
        numbered = enumerate(value)
        return {f"{name} {number}": part for number, part in numbered if part is not None}

    def is_stored(self, name: str, state: ModelState) -> bool:
        return name in state.facts

    def read(self, name: str, state: ModelState, sizes: Sizes, owner: Any) -> tuple[Any, ...]:
        is_there = state.facts.pop(name)
        if type(is_there) is not list or not all(type(value) is bool for value in is_there):
            raise ValueError(f"expected a list of true and false, found {is_there!r:.60}")
        return tuple(
            self.part.read(f"{name} {number}", state, sizes, owner) if is_part else None
            for number, is_part in enumerate(is_there)
        )

    def validate(self, value: Any, sizes: Sizes, owner: Any) -> None:
        parts = [part for part in value if part is not None]
        if not parts:
            raise ValueError("expected at least one part, found none")
        if not self.gaps and len(parts) < len(value):
            raise ValueError(f"expected all of {len(value)} parts, found {len(parts)}")
        for part in parts:
            self.part.validate(part, sizes, owner)

    def sizes(self, value: Any) -> Sizes:
        first = next(part for part in value if part is not None)
        return self.part.sizes(first)

    def can_grow(self, value: Any) -> bool:
        return all(self.part.can_grow(part) for part in value if part is not None)

    def selected(self, value: Any, parameter: Any) -> Any:
        pairs = zip(value, parameter, strict=True)
        return tuple(unused if part is None else part.selected() for part, unused in pairs)

    def with_items(self, value: Any, n_items: int) -> Any:
        return tuple(
            None if part is None else self.part.with_items(part, n_items) for part in value
        )


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
        in all fields of the object; "items + 1" is one more.
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
    return declare(
        LearnedArray(
            shape=shape,
            dtypes=tuple(np.dtype(kind) for kind in dtypes),
            finite=finite,
            selects=selects,
            optional=optional,
        )
    )


def learned_sparse(*, optional: bool = False) -> Any:
    """Declare a sparse items × items matrix that is learned."""
    return declare(LearnedSparse(optional=optional))


def learned_weights() -> Any:
    """Declare items × items weights that are learned, dense or sparse.

    The dense ones may be as large as the memory: they are not read to see whether they are finite.
    """
    dense = LearnedArray(shape=(ITEMS, ITEMS), dtypes=(np.dtype(np.float32),), finite=False)
    return declare(LearnedWeights(dense=dense, sparse=LearnedSparse()))


def learned_fact(
    expected: str,
    is_valid: Callable[[Any], bool],
    *,
    selects: str | None = None,
    optional: bool = False,
) -> Any:
    """Declare a plain value that is learned; an invalid one of a file is refused."""
    return declare(
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
    return declare(LearnedPart(kind=kind, shared=shared, selects=selects, optional=optional))


def learned_parts(kind: type, *shared: str, selects: str | None = None, gaps: bool = False) -> Any:
    """Declare a sequence of fitted parts, some of them None where it has gaps.

    `shared` names the sizes that all have in common with the whole.
    """
    part = LearnedPart(kind=kind, shared=shared)
    return declare(LearnedParts(part=part, selects=selects, gaps=gaps))


def declare(learned_field: LearnedField) -> Any:
    """Declare a field of any kind, such as one that another module defines."""
    metadata = {LEARNED: learned_field}
    if learned_field.optional:
        return field(default=None, metadata=metadata)
    return field(metadata=metadata)


class Learner(Persistent):
    """What is made of parameters and learns by a fit, which sets its learned fields.

    They are None before. The learned fields of any other `Persistent` are arguments of its
    constructor, beside the parameters.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # This runs before the decorator @dataclass looks at the fields.
        for value in vars(cls).values():
            if isinstance(value, dataclasses.Field) and LEARNED in value.metadata:
                value.init = False
                value.default = None


@lru_cache(maxsize=256)
def learned_fields(kind: type) -> Mapping[str, LearnedField]:
    """Return the learned fields of a class by their names; refuse a class that is half declared."""
    check_decorated(kind)
    if not _is_dataclass(kind):
        return {}
    return {
        declared.name: declared.metadata[LEARNED]
        for declared in fields(kind)
        if LEARNED in declared.metadata
    }


def _is_dataclass(value: object) -> bool:
    """Return whether this is a dataclass, without what mypy would conclude of its type."""
    return dataclasses.is_dataclass(value)


def _fields_of(learner: object) -> Mapping[str, LearnedField]:
    kind: type = type(learner)
    return learned_fields(kind)


def _stored_name(name: str) -> str:
    return name.removesuffix("_")


# -- Saving ---------------------------------------------------------------------------------------


def state_of(learner: Persistent) -> ModelState:
    """Return all that was learned, as a folder stores it beside the parameters.

    What no load would accept is refused here too, field by field. `check` of the class is for
    loads: it may bring what was loaded to where it answers.
    """
    _check_all_declared(learner)
    kind = type(learner).__name__
    sizes = _sizes_in(stored_params(learner))
    state = ModelState()
    for name, learned_field in _fields_of(learner).items():
        value = getattr(learner, name)
        stored_name = _stored_name(name)
        if value is None:
            if learned_field.optional:
                continue
            raise NotFittedError(f"this {kind} has not been fitted; call fit(train) first")
        try:
            learned_field.validate(value, sizes, learner)
        except ValueError as error:
            raise ModelFileError(f"{kind}: cannot be saved: {stored_name}: {error}") from error
        state.update(_written(learned_field, stored_name, value, owner=kind), owner=kind)
    return state


def _written(learned_field: LearnedField, name: str, value: Any, owner: str) -> ModelState:
    """Return the state of one field; refuse a part of which `LearnedField.parts` does not know."""
    state = ModelState()
    learned_field.write(name, value, state)
    if state.parts.keys() != learned_field.parts(name, value).keys():
        kind = type(learned_field).__name__
        raise ModelFileError(f"{owner}: {kind}.parts does not return the parts of {name!r}")
    return state


def _sizes_in(params: Mapping[str, Any]) -> Sizes:
    """Return the parameters that may be sizes."""
    return {name: value for name, value in params.items() if type(value) is int}


def _check_all_declared(learner: Any) -> None:
    """Refuse to save an object that would come back without something that it has learned."""
    name_of_class = type(learner).__name__
    if not _is_dataclass(learner):
        raise ModelFileError(
            f"{name_of_class}: cannot be saved, as it is no dataclass; write @dataclass above the "
            "class, and declare what it learns with `learned`"
        )
    declared = {declared.name for declared in fields(learner)} | vars(Persistent).keys()
    for name, value in getattr(learner, "__dict__", {}).items():
        if name.endswith("_") and value is not None and name not in declared:
            raise ModelFileError(
                f"{name_of_class}: cannot be saved, as {name!r} is not declared; write "
                f'`{name}: … = learned("items", …)` in the class'
            )


def parts_of(learner: Persistent) -> dict[str, Any]:
    """Return the fitted parts of an object by the names under which a folder stores them."""
    parts: dict[str, Any] = {}
    for name, learned_field in _fields_of(learner).items():
        value = getattr(learner, name)
        if value is not None:
            parts |= learned_field.parts(_stored_name(name), value)
    return parts


def stored_params(learner: Persistent) -> dict[str, Any]:
    """Return the parameters that a folder stores; arguments that were learned are none."""
    declared = _fields_of(learner)
    return {name: value for name, value in get_params(learner).items() if name not in declared}


# -- Loading --------------------------------------------------------------------------------------


def restored(kind: Any, params: Mapping[str, Any], state: ModelState) -> Any:
    """Return the fitted object of a class again; refuse a state that does not fit."""
    declared: Mapping[str, LearnedField] = learned_fields(kind)
    if not _is_dataclass(kind):
        raise ModelFileError(f"{kind.__name__}: expected a dataclass that declares what it learns")
    for name in params:
        if name in declared:
            raise ModelFileError(f"{kind.__name__}: {name} is learned, and no parameter")
    if any(argument.init for argument in fields(kind) if argument.name in declared):
        learner = kind(**params, **_read_values(kind.__name__, declared, params, state, owner=None))
    else:
        learner = kind(**params)
        values = _read_values(kind.__name__, declared, get_params(learner), state, owner=learner)
        for name, value in values.items():
            setattr(learner, name, value)
    try:
        learner.check()
    except ModelFileError:
        raise
    except LocaError as error:
        raise ModelFileError(f"{kind.__name__}: {error}") from error
    return learner


def _read_values(
    kind: str,
    declared: Mapping[str, LearnedField],
    params: Mapping[str, Any],
    state: ModelState,
    owner: Any,
) -> dict[str, Any]:
    """Return the learned fields of a state by name; refuse what does not fit, or is left over."""
    unread = state.copy()
    sizes = _sizes_in(params)
    values: dict[str, Any] = {}
    for name, learned_field in declared.items():
        stored_name = _stored_name(name)
        if learned_field.optional and not learned_field.is_stored(stored_name, unread):
            continue
        try:
            value = learned_field.read(stored_name, unread, sizes, owner)
            learned_field.validate(value, sizes, owner)
        except KeyError as error:
            raise ModelFileError(f"{kind}: {error.args[0]} is missing") from error
        except ValueError as error:
            raise ModelFileError(f"{kind}: {stored_name}: {error}") from error
        values[name] = value
    if left_over := unread.names():
        unknown = left_over[0]
        nearest = did_you_mean(unknown, map(_stored_name, declared))
        raise ModelFileError(f"{kind}: {unknown!r:.60} is nothing that it learns{nearest}")
    return values


# -- What else follows ----------------------------------------------------------------------------


def sizes_of(learner: Any) -> Sizes:
    """Return the named sizes of what was learned; items that are not declared are counted."""
    sizes: Sizes = {}
    for name, learned_field in _fields_of(learner).items():
        value = getattr(learner, name)
        if value is not None:
            sizes |= learned_field.sizes(value)
    if ITEMS not in sizes and hasattr(learner, "count_items"):
        sizes[ITEMS] = learner.count_items()
    return sizes


def size_of(learner: Any, size: str) -> int | None:
    """Return one size of what was learned; None where it is not known.

    The first field that has it answers: a part is not asked by many that share it.
    """
    for name, learned_field in _fields_of(learner).items():
        value = getattr(learner, name)
        sizes = learned_field.sizes(value) if value is not None else {}
        if size in sizes:
            return sizes[size]
    if size == ITEMS and hasattr(learner, "count_items"):
        return cast(int, learner.count_items())
    return None


def selections(learner: Any) -> dict[str, Any]:
    """Return what was chosen while it was fitted, by the parameters that it becomes in a refit.

    A part that is no model by itself hands on its own.
    """
    chosen: dict[str, Any] = {}
    for name, learned_field in _fields_of(learner).items():
        value = getattr(learner, name)
        if value is None:
            continue
        if learned_field.selects is not None:
            # Of a part of a model, such as its local models, the parameter is the whole model's.
            parameter = get_params(learner).get(learned_field.selects)
            chosen[learned_field.selects] = learned_field.selected(value, parameter)
        elif isinstance(value, Persistent) and not hasattr(value, "selected"):
            chosen |= selections(value)
    return chosen


def with_items(learner: AnyPart, n_items: int) -> AnyPart:
    """Return a copy for more items, for which arrays over the items get zeros."""
    changes = {
        name: learned_field.with_items(getattr(learner, name), n_items)
        for name, learned_field in _fields_of(learner).items()
        if getattr(learner, name) is not None
    }
    larger: Any = copy.copy(learner)
    for name, value in changes.items():
        object.__setattr__(larger, name, value)
    if larger.saved_in_ is not None:
        object.__setattr__(larger, "saved_in_", None)
    for cached in fields(larger):
        if cached.name.startswith("_"):  # it was made of the arrays, and is made again
            object.__setattr__(larger, cached.name, _default_of(cached))
    return cast(AnyPart, larger)


def _default_of(declared: dataclasses.Field[Any]) -> Any:
    if declared.default_factory is not dataclasses.MISSING:
        return declared.default_factory()
    return declared.default


def supports_new_items(learner: Any) -> bool:
    """Return whether `with_items` works: all that was learned of items can grow."""
    values = {name: getattr(learner, name) for name in _fields_of(learner)}
    return all(
        learned_field.can_grow(values[name])
        for name, learned_field in _fields_of(learner).items()
        if values[name] is not None
    )


def move_parts(learner: Any, device: str) -> None:
    """Move all fitted parts to a device, and the parts of those that do not move by themselves."""
    for part in parts_of(learner).values():
        if hasattr(part, "to"):
            part.to(device)
        else:
            move_parts(part, device)


def learned_bytes(learner: Any) -> int:
    """Return how many bytes its arrays take, without those of its parts."""
    n_bytes = 0
    for name, learned_field in _fields_of(learner).items():
        value = getattr(learner, name)
        if value is not None:
            state = _written(learned_field, name, value, owner=type(learner).__name__)
            n_bytes += sum(array.nbytes for array in state.arrays.values())
    return n_bytes
