"""The contract that every recommender keeps, and what follows from it alone: reading parameters and making copies."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.data.interactions import Interactions
from loca.data.splits import HeldOut
from loca.errors import ConfigError, DataError, NotFittedError, did_you_mean
from loca.persistence import save_model
from loca.persistence.manifest import ModelState as ModelState
from loca.persistence.manifest import get_params as get_params
from loca.persistence.manifest import is_model

Scores = npt.NDArray[np.float32]
UserWeights = npt.NDArray[Any]


@runtime_checkable
class Recommender(Protocol):
    """Learns from histories with user weights, and scores all items for any history, known user or not.

    Parameters are keyword-only constructor arguments kept under their own names; what is learned has a name that
    ends in an underscore. `train_data_` is the interactions that the model was fitted on, or None for a bare matrix.
    """

    train_data_: Interactions | None

    def fit(
        self,
        train: Interactions | csr_array,
        *,
        user_weights: UserWeights | None = None,
        validation: HeldOut | None = None,
    ) -> Self: ...

    def score(self, histories: csr_array) -> Scores: ...

    def count_items(self) -> int:
        """How many items it scores."""
        ...

    def with_selected_params(self) -> Self:
        """An unfitted copy whose parameters hold what this fit chose on validation (epochs, blend, …)."""
        ...

    def state(self) -> ModelState: ...

    @classmethod
    def restore(cls, params: Mapping[str, Any], state: ModelState) -> Self:
        """The fitted model again, from its parameters and its state; a state that does not fit is refused."""
        ...

    def save(self, folder: str | Path) -> None: ...


class Estimator:
    """What every model gets from its constructor and its state: parameters, a readable form, copies, files.

    The class attributes say what a model can do, so that nobody has to look at its class.
    """

    role: ClassVar[Literal["single", "local", "ensemble", "blend", "auto"]] = "single"
    train_data_: Interactions | None = None

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        changed = {name: value for name, value in get_params(self).items() if value is not defaults[name].default}
        shown = (f"{name}={value!r}" for name, value in changed.items() if repr(value) != repr(defaults[name].default))
        return f"{type(self).__name__}({', '.join(shown)})"

    def get_params(self) -> dict[str, Any]:
        """The constructor's arguments by name, as the model holds them now."""
        return get_params(self)

    def with_selected_params(self) -> Self:
        """An unfitted copy whose parameters hold what this fit chose on validation; most models choose nothing."""
        return clone(self)

    def save(self, folder: str | Path) -> None:
        """Write the fitted model into a folder, whole or not at all."""
        save_model(self, folder)


AnyModel = TypeVar("AnyModel")
Learned = TypeVar("Learned")


def clone(model: AnyModel, **changes: Any) -> AnyModel:
    """An unfitted copy with some parameters changed; models among the parameters are copied too."""
    params = get_params(model)
    for name in changes:
        if name not in params:
            kind = type(model).__name__
            raise ConfigError(f"unknown parameter {name!r} for {kind}{did_you_mean(name, params)}")
    params.update(changes)
    return type(model)(**{name: _without_learned(value) for name, value in params.items()})


def _without_learned(value: Any) -> Any:
    """The value with an unfitted copy in place of every model in it."""
    if type(value) is tuple:
        return tuple(_without_learned(one) for one in value)
    return clone(value) if is_model(value) else value


def fitted(learned: Learned | None, model: object) -> Learned:
    """What the model has learned; refuses to go on when it has not been learned yet."""
    if learned is None:
        raise NotFittedError(f"this {type(model).__name__} has not been fitted; call fit(train) first")
    return learned


def check_user_weights(weights: UserWeights | None, user_count: int) -> npt.NDArray[np.float32]:
    """One weight ≥ 0 per user, not all zero; ones where none are given."""
    if weights is None:
        return np.ones(user_count, np.float32)
    checked = np.asarray(weights, dtype=np.float32)
    if checked.shape != (user_count,):
        raise DataError(f"user_weights: expected {user_count} numbers, found an array of shape {checked.shape}")
    if not np.isfinite(checked).all() or (checked < 0).any() or not checked.any():
        raise DataError("user_weights: expected finite numbers ≥ 0, not all of them zero")
    return checked


def supported_users(matrix: csr_array, user_weights: UserWeights) -> npt.NDArray[np.int64]:
    """The users to learn from: those with a weight above 0 and something stored."""
    support = np.flatnonzero((user_weights > 0) & (np.diff(matrix.indptr) > 0))
    if not len(support):
        raise DataError("user_weights: expected a user with a history among those with a weight above 0, found none")
    return support


def are_finite_floats(array: npt.NDArray[Any]) -> bool:
    """Whether an array from a file holds finite numbers of 32 bits."""
    return array.dtype == np.float32 and bool(np.isfinite(array).all())


def check_histories(histories: csr_array, item_count: int) -> csr_array:
    """Histories as float32 CSR rows over the model's own items."""
    rows = csr_array(histories)
    if rows.shape[1] != item_count:
        raise DataError(f"histories: expected {item_count} items, found {rows.shape[1]}")
    return rows if rows.dtype == np.float32 else rows.astype(np.float32)
