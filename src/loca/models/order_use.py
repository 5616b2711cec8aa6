"""Which models learn from the order of histories: by themselves, or by a model that they are made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from loca.models.next_ease import NextEASE
from loca.models.recommender import Recommender, get_params


def uses_order(model: Any) -> bool:
    """Whether a model, or one that it is made of, learns from what follows what; a history is no set to it."""
    if isinstance(model, NextEASE) or get_params(model).get("target", "set") != "set":
        return True
    return any(uses_order(one) for one in _made_of(model))


def _made_of(model: Any) -> Iterator[Any]:
    """The models among the parameters of a model."""
    for value in get_params(model).values():
        inner = value if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
        yield from (one for one in inner if isinstance(one, Recommender))
