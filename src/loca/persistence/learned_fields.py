"""Kinds of learned fields: how arrays, sparse matrices and facts are stored and checked."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.persistence.manifest import ModelState

Array = npt.NDArray[Any]
Sizes = dict[str, int]

ITEMS = "items"
_SIZE = re.compile(r"(?P<name>[A-Za-z_]\w*)(?: \+ (?P<more>\d+))?", re.ASCII)
_SPARSE_ARRAYS = ("data", "indices", "indptr")
# What a check may raise of a value that is of another kind altogether.
_NOT_VALID = (TypeError, ValueError, LookupError, AttributeError)


@dataclass(frozen=True, kw_only=True)
class LearnedField(ABC):
    """How one learned field is stored, checked and measured.

    `selects` names the parameter that the value becomes in a refit. An `optional` field may be
    None, and is then not stored.
    """

    selects: str | None = None
    optional: bool = False

    @abstractmethod
    def write(self, name: str, value: Any, state: ModelState) -> None:
        """Put a value into a state."""

    @abstractmethod
    def read(self, name: str, state: ModelState, sizes: Sizes, owner: Any) -> Any:
        """Take a value out of a state: what all fields leave there is refused.

        Raise KeyError where it is missing, and ValueError where no value can be made of what is
        there; `validate` looks at the value. `owner` is the object with its parameters, which a
        network is built from; it is None where the object is made of its learned fields.
        """

    def validate(self, value: Any, sizes: Sizes, owner: Any) -> None:
        """Refuse a value that does not fit, by ValueError; a save and a load both ask.

        `sizes` are those that are known so far, and grow.
        """
        for size, actual in self.sizes(value).items():
            if sizes.setdefault(size, actual) != actual:
                raise ValueError(f"expected {sizes[size]} {size}, found {actual}")

    def parts(self, name: str, value: Any) -> dict[str, Any]:
        """Return the fitted objects in a value by the names under which `write` stores them."""
        return {}

    def is_stored(self, name: str, state: ModelState) -> bool:
        """Return whether a state holds the value, or a piece of it; it is asked where optional."""
        return True

    def sizes(self, value: Any) -> Sizes:
        """Return the named sizes of a value."""
        return {}

    def selected(self, value: Any, parameter: Any) -> Any:
        """Return what the selected parameter becomes, in place of its present value."""
        return value

    def can_grow(self, value: Any) -> bool:
        """Return whether `with_items` works."""
        return ITEMS not in self.sizes(value)

    def with_items(self, value: Any, n_items: int) -> Any:
        """Return the value for more items than it was learned with."""
        if ITEMS in self.sizes(value):
            raise NotImplementedError(f"{type(self).__name__} cannot grow by new items")
        return value


@dataclass(frozen=True, kw_only=True)
class LearnedArray(LearnedField):
    """An array with a shape of numbers and names; its numbers are of one of several types.

    A name stands for one size in all fields of an object. "items + 1" is one more than "items".
    """

    shape: tuple[str | int, ...]
    dtypes: tuple[np.dtype[Any], ...]
    finite: bool = True

    def __post_init__(self) -> None:
        for size in self.shape:
            if isinstance(size, str):
                _named_size(size)

    def write(self, name: str, value: Array, state: ModelState) -> None:
        state.arrays[name] = value

    def is_stored(self, name: str, state: ModelState) -> bool:
        return name in state.arrays

    def read(self, name: str, state: ModelState, sizes: Sizes, owner: Any) -> Array:
        return state.arrays.pop(name)

    def validate(self, value: Array, sizes: Sizes, owner: Any) -> None:
        array = value
        if not isinstance(array, np.ndarray):
            raise ValueError(f"expected a numpy array, found {type(array).__name__}")
        if array.ndim == len(self.shape):
            for size, actual in self.sizes(array).items():
                sizes.setdefault(size, actual)
        expected = tuple(self._expected_size(size, sizes) for size in self.shape)
        if array.shape != expected or array.dtype not in self.dtypes:
            sizes_in_words = ", ".join(map(str, expected))
            names = " × ".join(map(str, self.shape))
            types = " or ".join(dtype.name for dtype in self.dtypes)
            raise ValueError(
                f"expected shape ({sizes_in_words}), {names}, of {types}, "
                f"found {array.shape} of {array.dtype}"
            )
        if self.finite and not is_finite(array):
            raise ValueError("expected finite numbers")

    def _expected_size(self, size: str | int, sizes: Sizes) -> str | int:
        """Return how long an axis must be, or its name where that is not known."""
        if isinstance(size, int):
            return size
        name, more = _named_size(size)
        return sizes[name] + more if name in sizes else size

    def sizes(self, value: Array) -> Sizes:
        sizes: Sizes = {}
        for size, actual in zip(self.shape, value.shape, strict=True):
            if isinstance(size, str):
                name, more = _named_size(size)
                sizes.setdefault(name, actual - more)
        return sizes

    def can_grow(self, value: Array) -> bool:
        # What comes last in an axis of "items + 1" is no item: zeros behind it would be wrong.
        names = [_named_size(size) for size in self.shape if isinstance(size, str)]
        return all(more == 0 for name, more in names if name == ITEMS)

    def with_items(self, value: Array, n_items: int) -> Array:
        if self.sizes(value).get(ITEMS, n_items) == n_items:
            return value
        if not self.can_grow(value):
            raise NotImplementedError(f"an array of shape {self.shape} cannot grow by new items")
        growths = [
            (0, n_items - actual if size == ITEMS else 0)
            for size, actual in zip(self.shape, value.shape, strict=True)
        ]
        return np.pad(value, growths)


def _named_size(size: str) -> tuple[str, int]:
    """Return the name in a size such as "items + 1", and how much more it is."""
    match = _SIZE.fullmatch(size)
    if match is None:
        raise ValueError(f"{size!r}: expected a size such as 'items' or 'items + 1'")
    return match["name"], int(match["more"] or 0)


def is_finite(array: Array) -> bool:
    """Return whether all numbers of an array are finite; nothing as large as the array is made."""
    if array.dtype.kind != "f" or not array.size:
        return True
    return bool(np.isfinite(array.min()) and np.isfinite(array.max()))


@dataclass(frozen=True, kw_only=True)
class LearnedSparse(LearnedField):
    """A sparse items × items matrix, stored as its three arrays."""

    def write(self, name: str, value: csr_array, state: ModelState) -> None:
        for piece in _SPARSE_ARRAYS:
            state.arrays[f"{name}_{piece}"] = getattr(value, piece)

    def is_stored(self, name: str, state: ModelState) -> bool:
        return any(f"{name}_{piece}" in state.arrays for piece in _SPARSE_ARRAYS)

    def read(self, name: str, state: ModelState, sizes: Sizes, owner: Any) -> csr_array:
        data, indices, indptr = (state.arrays.pop(f"{name}_{piece}") for piece in _SPARSE_ARRAYS)
        _check_layout(data, indices, indptr)
        n_items = len(indptr) - 1
        return csr_array((data, indices, indptr), shape=(n_items, n_items))

    def validate(self, value: csr_array, sizes: Sizes, owner: Any) -> None:
        if not isinstance(value, csr_array):
            raise ValueError(f"expected a csr_array, found {type(value).__name__}")
        _check_layout(value.data, value.indices, value.indptr)
        n_items = len(value.indptr) - 1
        if value.shape != (n_items, n_items):
            raise ValueError(f"expected items × items, found {value.shape}")
        if (value.indptr[1:] < value.indptr[:-1]).any():
            raise ValueError(f"its rows do not rise from 0 to {len(value.data)}")
        super().validate(value, sizes, owner)
        if len(value.data) and (value.indices.min() < 0 or value.indices.max() >= n_items):
            raise ValueError(f"an item lies outside 0 … {n_items - 1}")
        if not is_finite(value.data):
            raise ValueError("expected finite numbers")

    def sizes(self, value: csr_array) -> Sizes:
        return {ITEMS: value.shape[0]}


def _check_layout(data: Array, indices: Array, indptr: Array) -> None:
    """Refuse three arrays that no sparse matrix can be made of as they are."""
    if data.dtype != np.float32 or indices.dtype.kind != "i" or indptr.dtype.kind != "i":
        raise ValueError(
            "expected 32-bit numbers with whole numbers as indices, "
            f"found {data.dtype}, {indices.dtype} and {indptr.dtype}"
        )
    if data.ndim != 1 or data.shape != indices.shape or indptr.ndim != 1 or len(indptr) < 2:
        raise ValueError("its arrays do not fit each other")
    if indptr[0] != 0 or indptr[-1] != len(data):
        raise ValueError(f"its rows do not rise from 0 to {len(data)}")


@dataclass(frozen=True, kw_only=True)
class LearnedWeights(LearnedField):
    """Items × items weights, a dense array or a sparse matrix; a file says which."""

    dense: LearnedArray
    sparse: LearnedSparse

    def write(self, name: str, value: Any, state: ModelState) -> None:
        self._form_of(value).write(name, value, state)

    def is_stored(self, name: str, state: ModelState) -> bool:
        return self.dense.is_stored(name, state) or self.sparse.is_stored(name, state)

    def read(self, name: str, state: ModelState, sizes: Sizes, owner: Any) -> Any:
        is_sparse = self.sparse.is_stored(name, state)
        form = self.sparse if is_sparse else self.dense
        return form.read(name, state, sizes, owner)

    def validate(self, value: Any, sizes: Sizes, owner: Any) -> None:
        self._form_of(value).validate(value, sizes, owner)

    def _form_of(self, value: Any) -> LearnedArray | LearnedSparse:
        return self.sparse if isinstance(value, csr_array) else self.dense

    def sizes(self, value: Any) -> Sizes:
        return {ITEMS: value.shape[0]}


@dataclass(frozen=True, kw_only=True)
class LearnedFact(LearnedField):
    """A plain value, or a frozen value object."""

    expected: str
    is_valid: Callable[[Any], bool]

    def write(self, name: str, value: Any, state: ModelState) -> None:
        state.facts[name] = value

    def is_stored(self, name: str, state: ModelState) -> bool:
        return name in state.facts

    def read(self, name: str, state: ModelState, sizes: Sizes, owner: Any) -> Any:
        return state.facts.pop(name)

    def validate(self, value: Any, sizes: Sizes, owner: Any) -> None:
        try:
            is_valid = self.is_valid(value)
        except _NOT_VALID:
            is_valid = False
        if not is_valid:
            raise ValueError(f"expected {self.expected}, found {value!r:.60}")
