"""The base class of what trains many copies of one model."""

from __future__ import annotations

from abc import ABC, abstractmethod

from loca.local.engines import engine_for
from loca.local.engines.engine import Engine
from loca.models.recommender import Recommender


def is_engine_or_none(value: object) -> bool:
    """Return whether a value is an engine, or None for the one that suits."""
    return value is None or isinstance(value, Engine)


class ManyModels(Recommender, ABC):
    """A recommender that trains many copies of a base, by an engine here or by an executor in shards."""

    base: Recommender
    engine: Engine | None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.engine is not None:
            self.engine.check_base(self.base)

    def engine_of(self, n_items: int) -> Engine:
        """Return the engine that trains the copies: the one that was chosen, or what suits them."""
        return self.engine or engine_for(self.base, n_items)

    @property
    @abstractmethod
    def size(self) -> int:
        """How many copies are trained, at most."""
