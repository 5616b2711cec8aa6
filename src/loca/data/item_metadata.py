"""Item titles and genres from MovieLens' movies.dat, movies.csv and u.item, or from any table with an id column."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from loca.data import text_tables as tables
from loca.data.archives import HEAD_BYTES, find_source
from loca.data.id_map import Column, Id
from loca.data.readers import PARQUET_MARK, UNREADABLE, as_polars, is_json, json_objects
from loca.data.synthetic import PlantedData
from loca.errors import DataError

Genres = tuple[str, ...]
Value = TypeVar("Value")

_MOVIE_FILES = (
    *(
        "ml-1m/movies.dat",
        "ml-10M100K/movies.dat",
        "ml-20m/movies.csv",
        "ml-25m/movies.csv",
        "ml-32m/movies.csv",
    ),
    "ml-100k/u.item",
)
# What the 0s and 1s at the end of a line of u.item stand for, as ML-100K's u.genre says.
_FLAGS = (
    *(
        "unknown",
        "Action",
        "Adventure",
        "Animation",
        "Children's",
        "Comedy",
        "Crime",
        "Documentary",
        "Drama",
    ),
    *(
        "Fantasy",
        "Film-Noir",
        "Horror",
        "Musical",
        "Mystery",
        "Romance",
        "Sci-Fi",
        "Thriller",
        "War",
        "Western",
    ),
)


def read_titles(
    source: Any,
    *,
    item: Column | None = None,
    title: Column | None = None,
    separator: str | None = None,
    header: bool | None = None,
) -> dict[Id, str]:
    r"""Read the titles of items from a file or a data frame.

    Columns that are not given are found by usual names, or are the first two. Ids that are all whole numbers become
    numbers. An item without a title is left out; of two titles for one item the first counts.

    Parameters
    ----------
    source : path or data frame
        A text table (UTF-8 or Latin-1) such as MovieLens' movies.dat, movies.csv and u.item, JSON lines or Parquet,
        plain, gzipped or in a zip; or a frame of pandas, polars or any other library that narwhals knows.
    item : str, int or None, default None
        Column of the item ids, by name or by position from 0.
    title : str, int or None, default None
        Column of the titles.
    separator : str or None, default None
        What separates the columns of a text file; None finds it.
    header : bool or None, default None
        Whether the first line of a text file names the columns; None finds out.

    Returns
    -------
    dict of id to str
        For `Interactions.with_titles`.

    Examples
    --------
    >>> from pathlib import Path
    >>> _ = Path("movies.dat").write_text("1::Toy Story (1995)::Animation\n2::Jumanji (1995)::Adventure\n")
    >>> loca.read_titles("movies.dat")
    {1: 'Toy Story (1995)', 2: 'Jumanji (1995)'}
    """
    names: Sequence[str] | None
    rows: Sequence[Sequence[Any]]
    where = "the frame"
    if isinstance(source, str | Path):
        found = find_source(source, _MOVIE_FILES)
        where, head = found.name, found.read(HEAD_BYTES)
        if head.startswith(PARQUET_MARK):
            try:
                source = pl.read_parquet(io.BytesIO(found.read()))
            except UNREADABLE as error:
                raise DataError(
                    f"{where}: cannot be read as Parquet ({str(error).splitlines()[0]})"
                ) from error
        elif is_json(head):
            objects = [one for _, one in json_objects(where, found.read())]
            names = list(dict.fromkeys(name for one in objects for name in one))
            rows = [[one.get(name) for name in names] for one in objects]
        else:
            shape = tables.find_shape(
                found,
                tables.SEPARATORS if separator is None else (separator,),
                header,
                otherwise=False,
            )
            names, rows = (
                shape.names,
                [row for _, row in tables.rows_of(where, tables.as_text(found.read()), shape)],
            )
    if not isinstance(source, str | Path):
        table = as_polars(source)
        names, rows = table.columns, table.rows()
    if not rows:
        raise DataError(f"{where}: there is no row")
    listed = [str(place) for place in range(len(rows[0]))] if names is None else names
    places = {}
    for role, column in (("item", item), ("title", title)):
        place = (
            tables.usual_position(role, listed)
            if column is None
            else tables.position_of(column, listed, where)
        )
        if place is not None:
            places[role] = place
    if names is None or len(names) == 2:
        for place, role in enumerate(("item", "title")):
            if role not in places:
                places[role] = 1 - place if place in places.values() else place
    tables.check_columns(places, listed, where, ("item", "title"))
    pairs = [(row[places["item"]], row[places["title"]]) for row in rows]
    for one in (one for one, _ in pairs if not isinstance(one, str | int | float | None)):
        raise DataError(
            f"{where}: expected text or a number as item id, found {type(one).__name__}"
        )
    return _first_of_each(
        [(one, str(name)) for one, name in pairs if one is not None and name is not None]
    )


def read_genres(source: str | Path) -> dict[Id, Genres]:
    """Item id to genres, in the order of the file; an item without any has an empty tuple.

    Known are movies.dat (id::title::A|B), movies.csv and any table with a header that names an item and a genres
    column, and u.item (19 flags), in UTF-8 or Latin-1, packed or not. Ids that are all whole numbers become numbers;
    of two lines for one item the first counts. A line that does not fit is refused.
    """
    found = find_source(source, _MOVIE_FILES)
    separators = ("::", "\t", ",", ";", "|")
    known_names = ("genres", "genre")
    shape = tables.find_shape(found, separators, known_names=known_names, otherwise=False)
    names = shape.names or ()
    item_place = tables.usual_position("item", names)
    genre_place = next(
        (place for place, name in enumerate(names) if name.lower() in ("genres", "genre")), None
    )
    is_flagged = shape.names is None and shape.separator == "|" and shape.width == 5 + len(_FLAGS)
    if is_flagged or (shape.names is None and shape.separator == "::" and shape.width == 3):
        item_place, genre_place = 0, 2
    if item_place is None or genre_place is None:
        columns = "the columns " + ", ".join(names) if names else f"{shape.width} columns"
        expected = "MovieLens' movies.dat, movies.csv or u.item, or a header that names an item and a genres column"
        raise DataError(
            f"{found.name}: expected {expected}, found {columns} split by {shape.separator!r}"
        )
    pairs: list[tuple[str, Genres]] = []
    for line, record in tables.rows_of(found.name, tables.as_text(found.read()), shape):
        where, one, text = (
            f"{found.name} line {line}",
            record[item_place].strip(),
            record[genre_place].strip(),
        )
        if not one:
            raise DataError(f"{where}: expected the id of an item, found nothing")
        if is_flagged:
            flags = [flag.strip() for flag in record[-len(_FLAGS) :]]
            for flag in [flag for flag in flags if flag not in ("0", "1")]:
                raise DataError(
                    f"{where}: expected {len(_FLAGS)} flags 0 or 1 for the genres, found {flag!r}"
                )
            genres = [name for name, flag in zip(_FLAGS, flags, strict=True) if flag == "1"]
        else:
            genres = (
                []
                if text in ("", "(no genres listed)")
                else [name.strip() for name in text.split("|")]
            )
        if not all(genres) or len(set(genres)) < len(genres):
            raise DataError(f"{where}: expected different genres split by '|', found {text!r}")
        pairs.append((one, tuple(genres)))
    return _first_of_each(pairs)


def genres_of_planted(planted: PlantedData) -> dict[Id, Genres]:
    """Item id to the communities that favour the item ("community 1", …), which stand for genres in planted data."""
    return {
        one: tuple(
            f"community {community + 1}" for community in planted.favoured[:, row].nonzero()[0]
        )
        for row, one in enumerate(planted.interactions.items.values.tolist())
    }


def _first_of_each(pairs: Sequence[tuple[Any, Value]]) -> dict[Id, Value]:
    ids = [one for one, _ in pairs]
    if all(isinstance(one, str) for one in ids):
        ids = tables.ids_from_text(pl.Series(ids, dtype=pl.String)).to_list()
    values: dict[Id, Value] = {}
    for one, (_, value) in zip(ids, pairs, strict=True):
        values.setdefault(one, value)
    return values
