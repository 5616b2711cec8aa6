"""How interactions were read, so that what comes later is read alike, or refused where it differs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

from loca.data.times import SourceUnit, TimeUnit, check_unit
from loca.data.weighting import Weighting
from loca.errors import ConfigError, check_choice
from loca.remarks import Remark

RepeatRule = Literal["newest", "all"]


@dataclass(frozen=True, kw_only=True)
class Schema:
    """Say how rows became interactions; stored with a model, which reads later rows by it.

    Parameters
    ----------
    columns : tuple of (str, str), default ()
        The column of each role (user, item, rating, time, weight, event), by name; positions as text.
    min_rating : float or None, default None
        Rows with lower ratings were left out.
    weighting : Weighting or None, default None
        What a row counts; None counts all alike.
    time_unit : {"seconds", "steps"} or None, default None
        Whether times are seconds since 1970, or bare numbers; None where nothing was said.
    source_unit : str or None, default None
        The unit of the source's times, where somebody said it.
    repeats : {"all", "newest"}, default "all"
        Whether a repeated pair stands in a history at all its times, or at its newest alone.
    min_user_interactions, min_item_interactions : int, default 0
        Users and items with fewer interactions were left out.
    rating_range : tuple of (float, float) or None, default None
        The lowest and the highest rating, before any was left out; None where none were read.

    Examples
    --------
    >>> import polars
    >>> frame = polars.DataFrame({"user": ["ann"], "item": ["tea"], "time": ["2024-01-31"]})
    >>> loca.read_interactions(frame).schema.time_unit
    'seconds'
    """

    columns: tuple[tuple[str, str], ...] = ()
    min_rating: float | None = None
    weighting: Weighting | None = None
    time_unit: TimeUnit | None = None
    source_unit: SourceUnit | None = None
    repeats: RepeatRule = "all"
    min_user_interactions: int = 0
    min_item_interactions: int = 0
    rating_range: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        check_choice("repeats", self.repeats, get_args(RepeatRule))
        if self.time_unit is not None:
            check_choice("time unit", self.time_unit, get_args(TimeUnit))
        check_unit(self.source_unit)

    @property
    def has_ratings(self) -> bool:
        """Whether the rows had a column of ratings."""
        return any(role == "rating" for role, _ in self.columns)

    def to_json(self) -> dict[str, Any]:
        """Return the schema as JSON values."""
        return {**asdict(self), "columns": [list(pair) for pair in self.columns]}

    @classmethod
    def from_json(cls, written: Mapping[str, Any]) -> Schema:
        """Read a schema from JSON values; refuse what is not one."""
        unknown = set(written) - {one.name for one in fields(cls)}
        if unknown:
            raise ConfigError(f"schema: unknown entry {min(unknown)!r:.60}")
        values = dict(written)
        values["columns"] = tuple(_text_pair(pair) for pair in _listed(values.get("columns", [])))
        if values.get("weighting") is not None:
            values["weighting"] = _read_weighting(values["weighting"])
        for name in ("min_user_interactions", "min_item_interactions"):
            if type(values.get(name, 0)) is not int or values.get(name, 0) < 0:
                raise ConfigError(f"schema: {name}: expected a whole number ≥ 0")
        if not isinstance(values.get("min_rating"), int | float | None):
            raise ConfigError("schema: min_rating: expected a number or none")
        if values.get("rating_range") is not None:
            values["rating_range"] = _read_range(values["rating_range"])
        return cls(**values)


def no_ratings(name: str, schema: Schema) -> Remark:
    """Return the remark that later rows have no ratings, which a fit was filtered by."""
    return Remark(
        "no-ratings",
        f"{name}: no ratings are known, while the model was fitted on those of at least "
        f"{schema.min_rating:g}; all rows count as likes",
    )


def _read_weighting(written: Any) -> Weighting:
    if not isinstance(written, Mapping) or set(written) != {one.name for one in fields(Weighting)}:
        raise ConfigError("schema: weighting: expected column, kinds, scale and repeats")
    if not isinstance(written["column"], str | None):
        raise ConfigError("schema: weighting: column: expected text or none")
    kinds = tuple((str(name), weight) for name, weight in map(tuple, _listed(written["kinds"])))
    return Weighting(**{**written, "kinds": kinds})


def _read_range(written: Any) -> tuple[float, float]:
    is_pair = isinstance(written, list | tuple) and len(written) == 2
    if not is_pair or not all(type(one) in (int, float) for one in written):
        raise ConfigError("schema: rating_range: expected two numbers or none")
    return float(written[0]), float(written[1])


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list | tuple) or not all(
        isinstance(one, list | tuple) and len(one) == 2 for one in value
    ):
        raise ConfigError("schema: expected a list of pairs")
    return list(value)


def _text_pair(pair: Any) -> tuple[str, str]:
    if not all(isinstance(one, str) for one in pair):
        raise ConfigError("schema: columns: expected pairs of text")
    return tuple(pair)
