"""How much an item of a given age still counts when a history is used to answer."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from loca.errors import ConfigError, did_you_mean

Unit = Literal["positions", "time"]
Shape = Literal["exponential", "power"]

# A weight never falls to zero: a stored zero would be lost by any code that drops zeros, and "stored" means seen.
SMALLEST_WEIGHT = 1e-12
_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400, "y": 365.25 * 86_400}
_AGE = re.compile(r"\s*(?P<number>[0-9]+\.?[0-9]*|\.[0-9]+)\s*(?P<unit>[a-z]*)\s*", re.ASCII)


@dataclass(frozen=True)
class Recency:
    """The newest item counts 1, one that is `half_life` positions (or units of time) older counts half of that.

    Items of one moment (equal times) share one position, and so one weight.
    `shape` says how it goes on: `exponential` halves the weight every half-life, `power` falls as 1 / age, so that old
    items fade but slowly. All that is above `floor` fades; the floor itself stays.
    """

    half_life: float
    unit: Unit = "positions"
    shape: Shape = "exponential"
    floor: float = 0.0

    def __post_init__(self) -> None:
        if not (_is_number(self.half_life) and self.half_life > 0 and math.isfinite(self.half_life)):
            raise ConfigError(f"half_life: expected a number above 0, found {self.half_life!r}")
        for what, value, words in (("unit", self.unit, get_args(Unit)), ("shape", self.shape, get_args(Shape))):
            if value not in words:
                nearest = did_you_mean(str(value), words)
                raise ConfigError(f"recency {what}: expected {words[0]!r} or {words[1]!r}, found {value!r}{nearest}")
        if not (_is_number(self.floor) and 0 <= self.floor < 1):
            raise ConfigError(f"recency floor: expected a number from 0 to below 1, found {self.floor!r}")

    @classmethod
    def per_position(cls, decay: float, *, floor: float = 0.0) -> Recency:
        """The newest item counts 1, the one before it `decay`, then `decay`², …"""
        if not (_is_number(decay) and 0 < decay < 1):
            raise ConfigError(f"decay: expected a number between 0 and 1, found {decay!r}")
        return cls(half_life=math.log(0.5) / math.log(decay), floor=floor)

    def weights(self, ages: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """floor + (1 − floor) · f(age / half_life) for each age ≥ 0, in positions or in units of time.

        f(x) is 0.5 ** x where the shape is exponential, 1 / (1 + x) where it is power.
        """
        half_lives = np.asarray(ages, dtype=np.float64) / self.half_life
        with np.errstate(under="ignore"):
            faded = np.exp2(-half_lives) if self.shape == "exponential" else 1 / (1 + half_lives)
        return np.maximum(self.floor + (1 - self.floor) * faded, SMALLEST_WEIGHT).astype(np.float32)

    def __str__(self) -> str:
        age = f"{self.half_life:,.0f}" if self.half_life >= 10_000 else f"{self.half_life:.4g}"
        said = [f"half-life {age} {'positions' if self.unit == 'positions' else 'units of time'}"]
        said += ["power"] if self.shape == "power" else []
        said += [f"floor {self.floor:g}"] if self.floor else []
        return ", ".join(said)


def parse_age(text: str) -> tuple[float, Unit] | None:
    """`4` as four positions, `30d` as thirty days in seconds (s, min, h, d, w or y); None where it is no age."""
    match = _AGE.fullmatch(text.lower())
    if match is None or match["unit"] not in ("", *_SECONDS):
        return None
    number = float(match["number"])
    return (number * _SECONDS[match["unit"]], "time") if match["unit"] else (number, "positions")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
