"""Event weights: what each row of a table counts, by a column of numbers or by kinds of events."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from loca.errors import ConfigError, check_choice

Scale = Literal["linear", "log1p", "sqrt"]
Repeats = Literal["add", "newest", "largest"]
_SCALED = re.compile(r"\s*([a-z0-9]+)\s*\((.+)\)\s*")


@dataclass(frozen=True, kw_only=True)
class Weighting:
    """Say what an interaction counts.

    Weights count wherever a training matrix or a history is made, in the same way for all models: the
    value of a stored entry is its weight. A row of weight 0 is no interaction.

    Parameters
    ----------
    column : str or None, default None
        The column that holds the numbers, or of `kinds` the column that names them; None finds that by
        its usual names (`event`, `event_type`, `action`, …).
    kinds : tuple of (str, float), default ()
        The weight of each kind of event; a kind that is not named is refused.
    scale : {"linear", "log1p", "sqrt"}, default "linear"
        What is done with the weight of a pair, after repeated rows are joined: nothing, log(1 + w), √w.
    repeats : {"add", "newest", "largest"} or None, default None
        What the rows of a repeated pair count together. None adds them, but of ratings the newest counts.

    Examples
    --------
    >>> loca.Weighting.of("log1p(plays)")
    Weighting(column='plays', kinds=(), scale='log1p', repeats=None)
    >>> loca.Weighting.of({"view": 1, "buy": 10}).kinds
    (('view', 1.0), ('buy', 10.0))
    >>> print(loca.Weighting.of("view=1,buy=10"))
    view=1,buy=10
    """

    column: str | None = None
    kinds: tuple[tuple[str, float], ...] = ()
    scale: Scale = "linear"
    repeats: Repeats | None = None

    def __post_init__(self) -> None:
        check_choice("weight scale", self.scale, get_args(Scale))
        if self.repeats is not None:
            check_choice("weight repeats", self.repeats, get_args(Repeats))
        if self.column is None and not self.kinds:
            raise ConfigError("weight: expected a column, or kinds of events with a weight each")
        names = [name for name, _ in self.kinds]
        if len(set(names)) < len(names):
            raise ConfigError("weight: expected each kind of event once")
        for name, weight in self.kinds:
            is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
            if not is_number or not 0 <= weight < math.inf:
                raise ConfigError(f"weight: expected a number ≥ 0 for {name!r}, found {weight!r}")
        if self.kinds and not any(weight for _, weight in self.kinds):
            raise ConfigError("weight: expected a kind of event that counts more than 0")

    @classmethod
    def of(cls, value: Any) -> Weighting | None:
        """Read a weighting as people write it.

        Parameters
        ----------
        value : Weighting, str, mapping or None
            A column such as `"plays"`, scaled such as `"log1p(plays)"`; kinds of events such as
            `{"view": 1, "buy": 10}` or `"view=1,buy=10"`. None weights nothing.

        Returns
        -------
        Weighting or None
        """
        if value is None or isinstance(value, Weighting):
            return value
        if isinstance(value, Mapping):
            kinds = tuple((str(name), _plain_number(weight)) for name, weight in value.items())
            return cls(kinds=kinds)
        if not isinstance(value, str) or not value.strip():
            expected = "a column, kinds such as {'view': 1, 'buy': 10}, or a Weighting"
            raise ConfigError(f"weight: expected {expected}, found {value!r:.60}")
        if "=" in value:
            return cls(kinds=tuple(_read_kind(part) for part in value.split(",")))
        scaled = _SCALED.fullmatch(value)
        if scaled is None:
            return cls(column=value.strip())
        check_choice("weight scale", scaled[1], get_args(Scale))
        return cls(column=scaled[2].strip(), scale=scaled[1])  # type: ignore[arg-type]

    def resolved(self, *, of_ratings: bool) -> Weighting:
        """Return the weighting with its rule for repeats, which depends on what the numbers are."""
        if self.repeats is not None:
            return self
        return replace(self, repeats="newest" if of_ratings else "add")

    def scaled(self, weights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return what pairs of these weights count."""
        if self.scale == "log1p":
            return np.log1p(weights)
        return np.sqrt(weights) if self.scale == "sqrt" else weights

    def __str__(self) -> str:
        if self.kinds:
            return ",".join(f"{name}={weight:g}" for name, weight in self.kinds)
        return str(self.column) if self.scale == "linear" else f"{self.scale}({self.column})"


def _read_kind(text: str) -> tuple[str, float]:
    name, _, weight = text.rpartition("=")
    try:
        return name.strip(), float(weight)
    except ValueError:
        raise ConfigError(f"weight: expected KIND=NUMBER, found {text.strip()!r:.60}") from None


def _plain_number(weight: Any) -> Any:
    """Return numbers of numpy as Python's, whole ones as fractions; anything else as it is."""
    if isinstance(weight, np.generic):
        weight = weight.item()
    is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
    return float(weight) if is_number else weight
