"""Times: seconds since 1970 wherever that can be known, else bare numbers that have an order alone."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from loca.errors import ConfigError, DataError, check_choice
from loca.remarks import remark

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


def unit_of_column(times: TimeArray, said: SourceUnit | None, name: str) -> SourceUnit:
    """Return what the numbers of a time column count: as somebody said, else as they look.

    Numbers that are surely meant as moments, and cannot be read as such, are refused.
    """
    unit = find_unit(times)
    if said == "steps" or (said is not None and unit == "steps"):
        return said
    if said not in (None, unit):
        text = f"{name}: times were called {said}, look like {unit}, and are read as {unit}"
        remark("times-unknown", text)
    if unit != "steps":
        return unit
    shares = _shares_of_moments(times)
    span = f"{name}: times run from {times.min():g} to {times.max():g}"
    if sum(shares.values()) == 1:
        parts = " and ".join(
            f"{100 * share:.0f} % {part}" for part, share in shares.items() if share
        )
        raise DataError(f"{span}: they look like {parts} since 1970; bring them into one unit")
    if _look_day_first(times):
        problem = "they look like dates with the day or the month first"
        raise DataError(f"{span}: {problem}; write the year first, such as 20131231, or 2013-12-31")
    if max(shares.values(), default=0.0) >= _MOSTLY:
        remark(
            "times-unknown",
            f"{span}: most are moments since 1973, some are not, and all are taken for bare numbers; "
            "mend those, or say time_unit='s'",
        )
    return "steps"


def _shares_of_moments(times: TimeArray) -> dict[str, float]:
    """Return the share of the times that are moments since 1973, by the unit in which they are."""
    if len(times) == 0:
        return {}
    return {
        unit: float(np.mean((times / size >= _FIRST_SECOND) & (times / size <= _LAST_SECOND)))
        for unit, size in _PER_SECOND.items()
    }


def _look_day_first(times: TimeArray) -> bool:
    """Return whether all numbers are dates such as 31122013 or 12312013, and no other reading is likelier."""
    if times.dtype.kind != "i" or times.min() < 1_01_1900 or times.max() > 31_12_2100:
        return False
    years, first, second = times % 10_000, times // 1_000_000, times // 10_000 % 100
    are_years = ((years >= 1900) & (years <= 2100)).all()
    are_days = ((first >= 1) & (first <= 31) & (second >= 1) & (second <= 31)).all()
    # Bare numbers of so many digits do not end in years by chance.
    return bool(are_years and are_days and len(np.unique(times)) > 1)


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
