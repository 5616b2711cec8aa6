"""Columns as they are stored become ids, ratings and times; what cannot be read so is pointed out by its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import polars as pl

from loca.errors import DataError

_INSTANT = "%Y-%m-%d %H:%M:%S%.f"


def ids_from_text(text: pl.Series) -> pl.Series:
    """Whole numbers where every id is written as one, else the text as it stands; "007" is text."""
    numbers = text.cast(pl.Int64, strict=False)
    if numbers.null_count() == 0 and bool((numbers.cast(pl.String) == text).all()):
        return numbers
    return text


def numbers_from_text(text: pl.Series) -> pl.Series:
    """Whole numbers where all are, else fractions; null where the text is not a finite number."""
    whole = text.cast(pl.Int64, strict=False)
    if whole.null_count() == 0:
        return whole
    return _finite(text.str.strip_chars())


def times_from_text(text: pl.Series) -> pl.Series:
    """Numbers, or instants where all is ISO 8601 dates (UTC unless they say otherwise); null where neither."""
    numbers = numbers_from_text(text)
    if numbers.null_count() < len(text) or len(text) == 0:
        return numbers
    plain = text.str.strip_chars().str.replace("T", " ", literal=True).str.strip_suffix("Z")
    instants = (
        plain.str.to_datetime(_INSTANT, time_unit="us", strict=False),
        plain.str.to_date("%Y-%m-%d", strict=False).cast(pl.Datetime("us")),
        plain.str.to_datetime(_INSTANT + "%:z", time_unit="us", strict=False).dt.replace_time_zone(None),
    )
    return pl.select(pl.coalesce(instants)).to_series()


def as_role(role: str, values: pl.Series, where: str) -> pl.Series:
    """A stored column as what its role needs: ids, numbers or instants; null where a value will not do."""
    kind = values.dtype
    if kind in (pl.Categorical, pl.Enum):
        return as_role(role, values.cast(pl.String), where)
    if kind == pl.String:
        return {"time": times_from_text, "rating": numbers_from_text}.get(role, _unchanged)(values)
    if role == "time" and kind in (pl.Date, pl.Datetime):
        naive = values.dt.convert_time_zone("UTC").dt.replace_time_zone(None) if _has_zone(kind) else values
        return naive.cast(pl.Datetime("us"))
    if kind.is_integer():
        return values.cast(pl.Int64, strict=False)
    if kind.is_numeric():
        return _finite(values)
    expected = "text or numbers" if role in ("user", "item") else "numbers"
    raise DataError(f"{where}: expected {expected} as {role}, found {kind}")


def refuse_gaps(role: str, values: pl.Series, read: pl.Series, place: Callable[[int], str]) -> None:
    """Refuses the first row of `values` that could not be read; `place` says where a row stands."""
    if read.null_count() == 0:
        return
    row = read.is_null().arg_max() or 0
    found = None if values[row] is None else str(values[row])
    if found is None or not found.strip():
        raise DataError(f"{place(row)}: the {role} is missing")
    if role in ("user", "item"):
        raise DataError(f"{place(row)}: expected text or a 64-bit number as {role} id, found {found}")
    kind = "a number, or ISO dates throughout," if role == "time" else "a number"
    raise DataError(f"{place(row)}: expected {kind} as {role}, found {found!r}")


def stack(blocks: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Blocks of one table, each under the place where it begins, as one table.

    Where their kinds differ, ids become text and numbers become fractions; dates beside numbers are refused.
    """
    parts = list(blocks.values())
    columns = []
    for name in parts[0].columns:
        kinds = [part.schema[name] for part in parts]
        if pl.Datetime in kinds and len(set(kinds)) > 1:
            place = next(where for where, kind in zip(blocks, kinds, strict=True) if kind != kinds[0])
            raise DataError(f"{place}: the time must be a number, or an ISO date, throughout")
        kind: pl.DataType = pl.String() if pl.String in kinds else pl.Float64()
        series = [part[name].cast(kind) if len(set(kinds)) > 1 else part[name] for part in parts]
        columns.append(pl.concat(series, rechunk=True))
    return pl.DataFrame(columns)


def seconds(times: pl.Series) -> pl.Series:
    """Instants as seconds since 1970, whole where all are; numbers as they are."""
    if times.dtype != pl.Datetime:
        return times
    micro = times.dt.epoch("us")
    if bool((micro % 1_000_000 == 0).all()):
        return micro // 1_000_000
    return micro / 1_000_000


def _finite(values: pl.Series) -> pl.Series:
    numbers = values.cast(pl.Float64, strict=False)
    return pl.select(pl.when(numbers.is_finite()).then(numbers)).to_series()


def _has_zone(kind: pl.DataType) -> bool:
    return isinstance(kind, pl.Datetime) and kind.time_zone is not None


def _unchanged(values: pl.Series) -> pl.Series:
    return values
