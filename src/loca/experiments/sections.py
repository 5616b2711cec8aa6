"""The sections of a command's settings: how data is read, split and weighed, and what is done with it."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

from loca.data.columns import Column
from loca.data.interactions import Interactions
from loca.data.recency import Recency
from loca.data.synthetic import PlantedData
from loca.errors import ConfigError

PLANTED = "planted"
_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400, "y": 365.25 * 86_400}
_AGE = re.compile(r"^\s*(?P<number>[0-9.]+)\s*(?P<unit>[a-z]*)\s*$")


@dataclass(frozen=True)
class DataOptions:
    """How the interactions are read; what is not given is told by the file itself."""

    layout: str | None = None
    preset: str | None = None
    user_column: Column | None = None
    item_column: Column | None = None
    rating_column: Column | None = None
    time_column: Column | None = None
    separator: str | None = None
    header: bool | None = None
    min_rating: float | None = None
    min_user_interactions: int = 0
    min_item_interactions: int = 0
    repeat_filter: bool = False
    keep_repeats: bool = False
    titles: str | None = None

    def __post_init__(self) -> None:
        from loca.data.layouts import find_layout
        from loca.data.presets import find_preset

        if self.layout is not None:
            find_layout(self.layout)
        if self.preset is not None:
            find_preset(self.preset)
            fixed = [name for name in self._given() if name not in ("preset", "layout", "titles")]
            if fixed:
                raise ConfigError(
                    f"data.preset {self.preset!r} says how the data is read; leave out {', '.join(fixed)}"
                )

    def _given(self) -> list[str]:
        return [one.name for one in fields(self) if getattr(self, one.name) != one.default]

    def check_source(self, source: str) -> None:
        """Refuses reader options for the built-in data."""
        if source == PLANTED and self._given():
            raise ConfigError(f"the data {PLANTED!r} is made, not read; leave out {', '.join(self._given())}")


@dataclass(frozen=True)
class SplitOptions:
    """How many of each user's last items are for test, and how many before them for validation."""

    test: int = 5
    validation: int | None = None

    def __post_init__(self) -> None:
        for name, value, least in (("test", self.test, 1), ("validation", self.validation, 0)):
            if value is not None and value < least:
                raise ConfigError(f"split.{name}: expected a whole number ≥ {least}, found {value}")


@dataclass(frozen=True)
class RecencyOptions:
    """How fast a history's items lose weight: a half-life (`4` positions, `30d` of time) or a decay per position."""

    half_life: float | str | None = None
    decay: float | None = None

    def __post_init__(self) -> None:
        if self.half_life is not None and self.decay is not None:
            raise ConfigError("recency: expected a half_life or a decay, found both")
        self.recency()

    def recency(self) -> Recency | None:
        """The recency that these options ask for, or None."""
        if self.decay is not None:
            return Recency.per_position(self.decay)
        return None if self.half_life is None else parse_half_life(str(self.half_life))


def parse_half_life(text: str) -> Recency | None:
    """`4` as four positions, `30d` as thirty days (s, min, h, d, w or y), `none` as no recency."""
    if text.strip().lower() == "none":
        return None
    match = _AGE.match(text.lower())
    if match is None or match["unit"] not in ("", *_SECONDS):
        raise ConfigError(f"recency: expected positions such as 4, a time such as 30d, or none, found {text!r}")
    try:
        number = float(match["number"])
    except ValueError:
        raise ConfigError(f"recency: expected a number, found {match['number']!r}") from None
    if match["unit"]:
        return Recency(number * _SECONDS[match["unit"]], unit="time")
    return Recency(number)


def read_data(source: str, options: DataOptions, planted: PlantedData | None) -> Interactions:
    """The interactions of a path, read by the options, or the planted ones."""
    if planted is not None:
        return planted.interactions
    interactions = _read(source, options)
    if options.titles is None:
        return interactions
    from loca.data.titles import read_titles

    return interactions.with_titles(read_titles(options.titles))


def _read(source: str, options: DataOptions) -> Interactions:
    from loca.data.presets import read_preset
    from loca.data.readers import read_interactions

    if options.preset is not None:
        return read_preset(options.preset, source, layout=options.layout)
    return read_interactions(
        source,
        user=options.user_column,
        item=options.item_column,
        rating=options.rating_column,
        time=options.time_column,
        layout=options.layout,
        separator=options.separator,
        header=options.header,
        minimum_rating=options.min_rating,
        distinct=not options.keep_repeats,
        min_user_interactions=options.min_user_interactions,
        min_item_interactions=options.min_item_interactions,
        repeat_filter=options.repeat_filter,
    )
