"""Which models learn from the order of histories, so that it matters whether that order is real."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from loca.data.recency import Recency
from loca.local.automatic import Auto
from loca.models.next_ease import NextEASE
from loca.models.recommender import Recommender, get_params


def uses_order(model: Any) -> bool:
    """Whether a model, or one that it is made of, learns from what follows what; a history is no set to it."""
    if isinstance(model, Auto | NextEASE):
        return True
    values = get_params(model)
    inner = [one for value in values.values() for one in (value if _is_list(value) else [value])]
    return values.get("target", "set") != "set" or any(uses_order(one) for one in inner if isinstance(one, Recommender))


def order_matters(models: Iterable[Any], recency: Recency | str | None) -> bool:
    """Whether such models use order, or are asked under a recency in positions; `"auto"` tries some of those."""
    in_positions = (
        recency == "auto" if isinstance(recency, str) else recency is not None and recency.unit == "positions"
    )
    return in_positions or any(uses_order(one) for one in models)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)
