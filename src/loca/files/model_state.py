"""What a model shows of itself to be copied or saved: its parameters by name, and all that it has learned."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy.typing as npt

from loca.errors import ModelFileError


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
    """The constructor's arguments as the model holds them now."""
    kind: type = type(model)
    return {name: getattr(model, name) for name in parameter_names(kind)}


@lru_cache(maxsize=256)
def parameter_names(kind: type) -> tuple[str, ...]:
    """The names of the constructor's arguments."""
    return tuple(inspect.signature(kind).parameters)


def is_model(value: object) -> bool:
    """Whether a value is a model or a part of one, fitted or not, that can be saved and restored."""
    return hasattr(value, "state") and hasattr(value, "restore") and not isinstance(value, type)
