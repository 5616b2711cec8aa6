"""How much an item of a given age still counts when a history is used to score."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from loca.errors import ConfigError, check_choice

Unit = Literal["positions", "time", "seconds"]
Shape = Literal["exponential", "power"]

# A weight never falls to zero: a stored zero would be lost by any code that drops zeros, and "stored" means seen.
SMALLEST_WEIGHT = 1e-12
_NAMED_SECONDS = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86_400}
_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400, "y": 365.25 * 86_400}
# Steps of the times as they are, where these are no seconds.
_STEPS = ("step", "steps")
_AGE = re.compile(r"\s*(?P<number>[0-9]+\.?[0-9]*|\.[0-9]+)\s*(?P<unit>[a-z]*)\s*", re.ASCII)


@dataclass(frozen=True)
class Recency:
    """Weight the items of a history by age: the newest counts 1, older ones less.

    The weight of an item is floor + (1 − floor) · f(age / half_life), where f(x) is 0.5 ** x with the shape
    `"exponential"` and 1 / (1 + x) with `"power"`. Items of one moment (equal times) share one position, and so one
    weight.

    Parameters
    ----------
    half_life : float or str
        The age, above 0, at which f is one half; or a text such as `"30d"` for thirty days and `"5steps"`
        for five units of time.
    unit : {"positions", "time", "seconds"}, default "positions"
        Ages are positions in the history, differences of times whatever these count, or seconds: those
        are refused where it is not known that times are seconds.
    shape : {"exponential", "power"}, default "exponential"
        `"exponential"` halves the weight every half-life; `"power"` falls as 1 / age, so that old items fade slowly.
    floor : float, default 0.0
        A weight below 1 that stays at any age; only what is above it fades.

    Examples
    --------
    >>> loca.Recency(half_life=2).weights([0, 2, 4]).tolist()
    [1.0, 0.5, 0.25]
    >>> loca.Recency(half_life=2, shape="power", floor=0.5).weights([0, 2, 6]).tolist()
    [1.0, 0.75, 0.625]
    >>> print(loca.Recency.per_position(0.5))
    half-life 1 positions
    """

    half_life: float
    unit: Unit = "positions"
    shape: Shape = "exponential"
    floor: float = 0.0

    def __post_init__(self) -> None:
        text: object = self.half_life
        if isinstance(text, str):
            age = parse_age(text)
            if age is None:
                expected = "a number above 0, or an age such as 30d"
                raise ConfigError(f"half_life: expected {expected}, found {text!r}")
            object.__setattr__(self, "half_life", age[0])
            object.__setattr__(self, "unit", age[1])
        if not (
            _is_number(self.half_life) and self.half_life > 0 and math.isfinite(self.half_life)
        ):
            raise ConfigError(f"half_life: expected a number above 0, found {self.half_life!r}")
        check_choice("recency unit", self.unit, get_args(Unit))
        check_choice("recency shape", self.shape, get_args(Shape))
        if not (_is_number(self.floor) and 0 <= self.floor < 1):
            raise ConfigError(
                f"recency floor: expected a number from 0 to below 1, found {self.floor!r}"
            )

    @classmethod
    def per_position(cls, decay: float, *, floor: float = 0.0) -> Recency:
        """Make a recency from the decay of one position.

        Parameters
        ----------
        decay : float
            Between 0 and 1: the newest item counts 1, the one before it `decay`, then `decay`², …
        floor : float, default 0.0
            A weight that stays at any age.

        Returns
        -------
        Recency
        """
        if not (_is_number(decay) and 0 < decay < 1):
            raise ConfigError(f"decay: expected a number between 0 and 1, found {decay!r}")
        return cls(half_life=math.log(0.5) / math.log(decay), floor=floor)

    def weights(self, ages: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Return the weight of each age: floor + (1 − floor) · f(age / half_life).

        Parameters
        ----------
        ages : array_like
            Ages ≥ 0, in positions or in units of time.

        Returns
        -------
        ndarray of float32
            Weights from above 0 to 1, in the shape of the ages.
        """
        half_lives = np.asarray(ages, dtype=np.float64) / self.half_life
        with np.errstate(under="ignore"):
            faded = np.exp2(-half_lives) if self.shape == "exponential" else 1 / (1 + half_lives)
        return np.maximum(self.floor + (1 - self.floor) * faded, SMALLEST_WEIGHT).astype(np.float32)

    def age_text(self) -> str:
        """Return the half-life for people, such as `4 positions`, `30 days` or `5 steps of time`."""
        number, name = self.half_life, "positions"
        if self.unit == "seconds":
            name, seconds = max(
                (one for one in _NAMED_SECONDS.items() if one[1] <= number),
                key=lambda one: one[1],
                default=("seconds", 1),
            )
            number = number / seconds
        elif self.unit == "time":
            name = "steps of time"
        written = f"{number:,.0f}" if number >= 10_000 else f"{number:.4g}"
        return f"{written} {name}"

    def __str__(self) -> str:
        said = [f"half-life {self.age_text()}"]
        said += ["power"] if self.shape == "power" else []
        said += [f"floor {self.floor:g}"] if self.floor else []
        return ", ".join(said)


def parse_age(text: str) -> tuple[float, Unit] | None:
    """Read an age as a number and what it counts; None where the text is none.

    `4` is four positions, `30d` thirty days in seconds (s, min, h, d, w or y), `5steps` five units of
    whatever the times count.
    """
    match = _AGE.fullmatch(text.lower())
    if match is None:
        return None
    number, unit = float(match["number"]), match["unit"]
    if unit == "":
        return number, "positions"
    if unit in _STEPS:
        return number, "time"
    return (number * _SECONDS[unit], "seconds") if unit in _SECONDS else None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
