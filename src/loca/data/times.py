"""Times: seconds since 1970 wherever that can be known, else bare numbers that have an order alone."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from loca.errors import ConfigError, check_choice

TimeArray = npt.NDArray[Any]
# What the stored times are: seconds since 1970, or numbers of which only the order is known.
TimeUnit = Literal["seconds", "steps"]
# What the times of a source are: seconds and their fractions, whole days such as 20240131, or bare numbers.
SourceUnit = Literal["s", "ms", "us", "ns", "yyyymmdd", "steps"]

# Numbers between these, 1973 and 2103, are taken for seconds since 1970.
_FIRST_SECOND, _LAST_SECOND = 1e8, 4.2e9
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_FIRST_DAY, _LAST_DAY = 19000101, 21001231
# Where so many of the times look like moments, one that does not is more likely a mistake than a bare number.
_MOSTLY = 0.5


def find_unit(times: TimeArray) -> SourceUnit:
    """Return the unit in which all times are moments since 1973, or days; bare numbers are steps."""
    if len(times) == 0 or times.dtype.kind not in "if":
        return "steps"
    lowest, highest = float(times.min()), float(times.max())
    for unit, per_second in _PER_SECOND.items():
        if lowest / per_second >= _FIRST_SECOND and highest / per_second <= _LAST_SECOND:
            return unit  # type: ignore[return-value]
    if times.dtype.kind == "i" and lowest >= _FIRST_DAY and highest <= _LAST_DAY:
        return "yyyymmdd" if _day_numbers(times) is not None else "steps"
    return "steps"


def share_of_moments(times: TimeArray) -> float:
    """Return the largest share of the times that are moments since 1973 in one of the units."""
    shares = (
        np.mean((times / per_second >= _FIRST_SECOND) & (times / per_second <= _LAST_SECOND))
        for per_second in _PER_SECOND.values()
    )
    return float(max(shares)) if len(times) else 0.0


def look_mixed(times: TimeArray) -> bool:
    """Return whether most times are moments since 1973 and some are not."""
    return _MOSTLY <= share_of_moments(times) < 1


def as_seconds(times: TimeArray, unit: str) -> TimeArray:
    """Return times of a unit as seconds since 1970, whole numbers where all are whole."""
    if unit == "yyyymmdd":
        days = _day_numbers(times)
        if days is None:
            raise ConfigError("time_unit: expected days such as 20240131, found other numbers")
        return days * 86_400
    per_second = _PER_SECOND[unit]
    if per_second == 1:
        return times
    if times.dtype.kind == "i" and not (times % per_second).any():
        return np.asarray(times // per_second)
    return np.asarray(times / per_second)


def check_unit(unit: str | None) -> None:
    """Refuse a unit of the times of a source that is unknown."""
    if unit is not None:
        check_choice("time_unit", unit, get_args(SourceUnit))


def moment_of(time: float | None) -> datetime | None:
    """Return the moment (UTC) of a time in seconds since 1970; None for a bare number."""
    if time is not None and _FIRST_SECOND <= time <= _LAST_SECOND:
        return datetime.fromtimestamp(time, UTC)
    return None


def readable_time(time: float, unit: TimeUnit | None) -> str:
    """Return a time for people: a date and the minute of seconds since 1970, else the number."""
    if unit == "seconds":
        try:
            return f"{datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M}"
        except (OverflowError, OSError, ValueError):
            pass  # of a year that no calendar has
    return f"{time:g}" if isinstance(time, float) else f"{time}"


def _day_numbers(times: TimeArray) -> npt.NDArray[np.int64] | None:
    """Return days such as 20240131 as days since 1970; None where one is not in the calendar."""
    distinct, places = np.unique(times.astype(np.int64), return_inverse=True)
    texts = [f"{day // 10_000:04d}-{day // 100 % 100:02d}-{day % 100:02d}" for day in distinct]
    try:
        days = np.array(texts, dtype="datetime64[D]").astype(np.int64)
    except ValueError:
        return None
    return np.asarray(days[places])
