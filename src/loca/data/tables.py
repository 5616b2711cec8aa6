"""Tables that already have typed columns: Parquet files, and data frames of any kind."""

from __future__ import annotations

import io
from typing import Any

import narwhals as nw
import polars as pl

from loca.data.columns import Columns, place_named
from loca.data.sources import Source
from loca.data.values import as_role, refuse_gaps
from loca.errors import DataError

PARQUET_MARK = b"PAR1"


def read_parquet(source: Source, asked: Columns) -> pl.DataFrame:
    """The columns user, item and, where there are such columns, rating and time, without gaps."""
    try:
        table = pl.scan_parquet(source.path if source.is_plain() else io.BytesIO(source.all_bytes()))
        names = table.collect_schema().names()
        places = place_named(asked, names, source.name).by_role()
        return _typed(table.select(names[place] for place in places.values()).collect(), list(places), source.name)
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{source.name}: cannot be read as Parquet ({reason})") from error


def read_frame(frame: Any, asked: Columns) -> pl.DataFrame:
    """The same from a polars, pandas, pyarrow or any other frame that narwhals knows."""
    known = _known_frame(frame)
    names = [str(name) for name in known.collect_schema().names()]
    places = place_named(asked, names, "the frame").by_role()
    table = as_polars(known.select(*(nw.nth(place) for place in places.values())))
    return _typed(table, list(places), "the frame")


def as_polars(frame: Any) -> pl.DataFrame:
    """Any frame that narwhals knows as a polars one."""
    known = _known_frame(frame)
    table = known.collect() if isinstance(known, nw.LazyFrame) else known
    # The index of a pandas frame comes along as a last column.
    return pl.DataFrame(pl.DataFrame(table).get_columns()[: len(table.columns)])


def _known_frame(frame: Any) -> nw.DataFrame[Any] | nw.LazyFrame[Any]:
    try:
        known: nw.DataFrame[Any] | nw.LazyFrame[Any] = nw.from_native(frame)
    except TypeError as error:
        found = type(frame).__name__
        raise DataError(f"expected a path, a data frame or a sparse matrix, found {found}") from error
    return known


def _typed(table: pl.DataFrame, roles: list[str], where: str) -> pl.DataFrame:
    if table.is_empty():
        raise DataError(f"{where}: there is no row")
    typed = []
    for role, stored in zip(roles, table.get_columns(), strict=True):
        read = as_role(role, stored, where)
        refuse_gaps(role, stored, read, lambda row: f"{where} row {row + 1}")
        typed.append(read.alias(role).rechunk())
    return pl.DataFrame(typed)
