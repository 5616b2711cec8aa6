"""Readable item titles from MovieLens' movies.dat, movies.csv and u.item, or from any table with an id and a title."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loca.data.archives import Source, find_source
from loca.data.id_map import Column, Id
from loca.data.synthetic import PlantedData
from loca.data.text_tables import Shape, as_text, find_shape, guess_place, place_of, records
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
    from loca.data.readers import PARQUET_MARK, looks_like_json, objects
    from loca.data.text_tables import SEPARATORS, as_text, as_utf8, find_shape, records

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
    from loca.data.readers import as_polars

    table = as_polars(frame)
    return table.columns, table.rows()


def _first_of_each(pairs: Sequence[tuple[Any, Any]]) -> dict[Id, str]:
    import polars as pl

    from loca.data.text_tables import ids_from_text

    ids = [one for one, _ in pairs]
    if all(isinstance(one, str) for one in ids):
        ids = ids_from_text(pl.Series(ids, dtype=pl.String)).to_list()
    titles: dict[Id, str] = {}
    for one, (_, title) in zip(ids, pairs, strict=True):
        titles.setdefault(one, str(title))
    return titles


Genres = tuple[str, ...]

_GENRE_FILES = (
    *("ml-1m/movies.dat", "ml-10M100K/movies.dat", "ml-20m/movies.csv", "ml-25m/movies.csv", "ml-32m/movies.csv"),
    "ml-100k/u.item",
)
_SEPARATORS = ("::", "\t", ",", ";", "|")
_NO_GENRES = "(no genres listed)"
# What the 0s and 1s at the end of a line of u.item stand for, as ML-100K's u.genre says.
_FLAGS = (
    *("unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary", "Drama"),
    *("Fantasy", "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western"),
)
_FLAGGED_WIDTH = 5 + len(_FLAGS)


def read_genres(source: str | Path) -> dict[Id, Genres]:
    """Item id to genres, in the order of the file; an item without any has an empty tuple.

    Known are movies.dat (id::title::A|B), movies.csv and any table with a header that names an item and a genres
    column, and u.item (19 flags), in UTF-8 or Latin-1, packed or not. Ids that are all whole numbers become numbers;
    of two lines for one item the first counts. A line that does not fit is refused.
    """
    import polars as pl

    from loca.data.text_tables import ids_from_text

    found = find_source(source, _GENRE_FILES)
    shape = find_shape(found, separators=_SEPARATORS, known_names=("genres", "genre"))
    item_place, genre_place = _places(shape, found.name)
    ids, genres = [], []
    for line, record in records(as_text(found.all_bytes()), shape.separator):
        if line <= shape.skipped or not any(field.strip() for field in record):
            continue
        where = f"{found.name} line {line}"
        if len(record) != shape.width:
            raise DataError(f"{where}: expected {shape.width} fields split by {shape.separator!r}, found {len(record)}")
        if not record[item_place].strip():
            raise DataError(f"{where}: expected the id of an item, found nothing")
        ids.append(record[item_place].strip())
        if genre_place is None:
            genres.append(_flagged(record[-len(_FLAGS) :], where))
        else:
            genres.append(_listed(record[genre_place], where))
    listed: dict[Id, Genres] = {}
    for one, names in zip(ids_from_text(pl.Series(ids, dtype=pl.String)).to_list(), genres, strict=True):
        listed.setdefault(one, names)
    return listed


def genres_of_planted(planted: PlantedData) -> dict[Id, Genres]:
    """Item id to the communities that favour the item ("community 1", …), which stand for genres in planted data."""
    ids = planted.interactions.items.values.tolist()
    return {
        one: tuple(f"community {community + 1}" for community in planted.favoured[:, row].nonzero()[0])
        for row, one in enumerate(ids)
    }


def _places(shape: Shape, where: str) -> tuple[int, int | None]:
    """The columns of the item and of its genres; None for the genres where they are the flags of u.item."""
    if shape.names is None and shape.separator == "|" and shape.width == _FLAGGED_WIDTH:
        return 0, None
    if shape.names is None and shape.separator == "::" and shape.width == 3:
        return 0, 2
    names = () if shape.names is None else shape.names
    item_place = guess_place("item", names)
    genre_place = next((place for place, name in enumerate(names) if name.lower() in ("genres", "genre")), None)
    if item_place is None or genre_place is None:
        columns = f"{shape.width} columns" if shape.names is None else "the columns " + ", ".join(names)
        raise DataError(
            f"{where}: expected MovieLens' movies.dat, movies.csv or u.item, or a header that names an item and a "
            f"genres column, found {columns} split by {shape.separator!r}"
        )
    return item_place, genre_place


def _listed(field: str, where: str) -> Genres:
    """The genres of a field such as Comedy|Drama."""
    text = field.strip()
    if text in ("", _NO_GENRES):
        return ()
    names = tuple(name.strip() for name in text.split("|"))
    if not all(names) or len(set(names)) < len(names):
        raise DataError(f"{where}: expected different genres split by '|', found {text!r}")
    return names


def _flagged(flags: Sequence[str], where: str) -> Genres:
    """The genres whose flag is 1."""
    plain = [flag.strip() for flag in flags]
    wrong = [flag for flag in plain if flag not in ("0", "1")]
    if wrong:
        raise DataError(f"{where}: expected {len(_FLAGS)} flags 0 or 1 for the genres, found {wrong[0]!r}")
    return tuple(name for name, flag in zip(_FLAGS, plain, strict=True) if flag == "1")
