"""Readable item titles from MovieLens' movies.dat, movies.csv and u.item, or from any table with an id and a title."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loca.data.columns import Column, guess_place, place_of
from loca.data.id_map import Id
from loca.data.sources import Source, find_source
from loca.errors import DataError

_TITLE_FILES = (
    *("ml-1m/movies.dat", "ml-10M100K/movies.dat", "ml-20m/movies.csv", "ml-25m/movies.csv", "ml-32m/movies.csv"),
    "ml-100k/u.item",
)
# Column names (None where there are none) and rows.
_Table = tuple[Sequence[str] | None, Sequence[Sequence[Any]]]


def read_titles(
    source: Any,
    *,
    item: Column | None = None,
    title: Column | None = None,
    separator: str | None = None,
    header: bool | None = None,
) -> dict[Id, str]:
    """Item id to title, from a file (text in UTF-8 or Latin-1, JSON lines, Parquet; packed or not) or a data frame.

    Columns that are not given are found by usual names, or are the first two. Ids that are all whole numbers become
    numbers. An item without a title is left out; of two titles for one item the first counts.
    """
    if isinstance(source, str | Path):
        found = find_source(source, _TITLE_FILES)
        where, (names, rows) = found.name, _read_file(found, separator, header)
    else:
        where, (names, rows) = "the frame", _read_frame(source)
    width = len(names) if names is not None else len(rows[0])
    listed = names if names is not None else [str(place) for place in range(width)]
    item_place = place_of(item, listed, where) if item is not None else guess_place("item", listed)
    title_place = place_of(title, listed, where) if title is not None else guess_place("title", listed)
    if names is None or width == 2:
        item_place = next(place for place in (0, 1) if place != title_place) if item_place is None else item_place
        title_place = next(place for place in (1, 0) if place != item_place) if title_place is None else title_place
    if item_place is None or title_place is None:
        missing = "item" if item_place is None else "title"
        raise DataError(
            f"{where}: cannot tell which column holds the {missing}s; the columns are {', '.join(listed)}; "
            f"say {missing}=…"
        )
    pairs = [(row[item_place], row[title_place]) for row in rows]
    return _first_of_each([(one, name) for one, name in pairs if one is not None and name is not None])


def _read_file(source: Source, separator: str | None, header: bool | None) -> _Table:
    from loca.data.json_lines import looks_like_json, objects
    from loca.data.tables import PARQUET_MARK
    from loca.data.text_shape import SEPARATORS, as_text, as_utf8, find_shape, records

    head = source.head()
    if head.startswith(PARQUET_MARK):
        import polars as pl

        table = pl.read_parquet(io.BytesIO(source.all_bytes()))
        return table.columns, table.rows()
    if looks_like_json(head):
        found = [one for _, one in objects(source.name, 1, as_utf8(source.all_bytes()))]
        names = list(dict.fromkeys(name for one in found for name in one))
        return names, [[one.get(name) for name in names] for one in found]
    shape = find_shape(source, separators=SEPARATORS if separator is None else (separator,), header=header)
    rows = []
    for line, record in records(as_text(source.all_bytes()), shape.separator):
        if line <= shape.skipped or not any(field.strip() for field in record):
            continue
        if len(record) != shape.width:
            raise DataError(
                f"{source.name} line {line}: expected {shape.width} fields split by {shape.separator!r}, "
                f"found {len(record)}"
            )
        rows.append(record)
    return shape.names, rows


def _read_frame(frame: Any) -> _Table:
    from loca.data.tables import as_polars

    table = as_polars(frame)
    return table.columns, table.rows()


def _first_of_each(pairs: Sequence[tuple[Any, Any]]) -> dict[Id, str]:
    import polars as pl

    from loca.data.values import ids_from_text

    ids = [one for one, _ in pairs]
    if all(isinstance(one, str) for one in ids):
        ids = ids_from_text(pl.Series(ids, dtype=pl.String)).to_list()
    titles: dict[Id, str] = {}
    for one, (_, title) in zip(ids, pairs, strict=True):
        titles.setdefault(one, str(title))
    return titles
