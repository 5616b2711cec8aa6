"""Engines: how many models are trained at once, and which one suits a model."""

from __future__ import annotations

from loca.local.engines.differences.engine import Differences
from loca.local.engines.engine import Engine
from loca.local.engines.loop import Loop
from loca.local.engines.stacked.engine import Stacked
from loca.models.recommender import Recommender

ENGINES: tuple[type[Engine], ...] = (Stacked, Differences)


def engine_for(base: Recommender, n_items: int) -> Engine:
    """Return the engine that suits copies of a model best; the loop suits all."""
    for engine in ENGINES:
        if engine.suits(base, n_items):
            return engine()
    return Loop()
