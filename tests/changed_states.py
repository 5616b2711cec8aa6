"""States of saved objects, as a stranger's file may hold them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loca.persistence.manifest import ModelState


def changed(state: ModelState, change: Mapping[str, Any]) -> ModelState:
    """Return a state with other values of some names; None leaves one out."""

    def part(values: Mapping[str, Any]) -> dict[str, Any]:
        new = {name: change.get(name, value) for name, value in values.items()}
        return {name: value for name, value in new.items() if value is not None}

    return ModelState(part(state.arrays), part(state.facts), part(state.parts))
