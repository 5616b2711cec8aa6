"""How much an item of a given age still counts when a history is used to answer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from loca.errors import ConfigError

# A weight never falls to zero: a stored zero would be lost by any code that drops zeros, and "stored" means seen.
SMALLEST_WEIGHT = 1e-12


@dataclass(frozen=True)
class Recency:
    """An item loses half of its weight every `half_life` positions (or units of time) before the newest one."""

    half_life: float
    unit: Literal["positions", "time"] = "positions"

    def __post_init__(self) -> None:
        if not (isinstance(self.half_life, int | float) and self.half_life > 0 and math.isfinite(self.half_life)):
            raise ConfigError(f"half_life: expected a number above 0, found {self.half_life!r}")
        if self.unit not in ("positions", "time"):
            raise ConfigError(f"recency unit: expected 'positions' or 'time', found {self.unit!r}")

    @classmethod
    def per_position(cls, decay: float) -> Recency:
        """The newest item counts 1, the one before it `decay`, then `decay`², …"""
        if not 0 < decay < 1:
            raise ConfigError(f"decay: expected a number between 0 and 1, found {decay!r}")
        return cls(half_life=math.log(0.5) / math.log(decay))

    def weights(self, ages: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """0.5 ** (age / half_life) for each age ≥ 0, in positions or in units of time."""
        with np.errstate(under="ignore"):
            weights = np.exp2(-np.asarray(ages, dtype=np.float64) / self.half_life)
        return np.maximum(weights, SMALLEST_WEIGHT).astype(np.float32)
