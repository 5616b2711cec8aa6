"""Read any file, data frame or sparse matrix as Interactions; drop low ratings, repeats, rare users and rare items."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, cast

import narwhals as nw
import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.sparse import csr_array, issparse

from loca.data import text_tables as tables
from loca.data.archives import BLOCK_BYTES, HEAD_BYTES, Source, find_source
from loca.data.datasets import LAYOUTS, DataSet, Layout, find_layout, find_preset
from loca.data.id_map import Column, IdMap
from loca.data.interactions import Interactions
from loca.data.recency import Recency
from loca.errors import ConfigError, DataError
from loca.progress import say

PARQUET_MARK = b"PAR1"
_NOBODY = "no user left after filtering"
# Amazon's own shapes: a reviewer is A and at least nine more signs, a product an ASIN or an ISBN of ten signs.
_AMAZON_USER = re.compile(r"A[0-9A-Z]{9,20}")
_AMAZON_ITEM = re.compile(r"B[0-9A-Z]{9}|[0-9]{9}[0-9X]")
_SAMPLE_OBJECTS = 100
# The tables of all published zips, to find one where no layout is named.
_PUBLISHED_TABLES = [member for layout in LAYOUTS.values() for member in layout.members]


def read_interactions(
    source: Any,
    *,
    user: Column | None = None,
    item: Column | None = None,
    rating: Column | None = None,
    time: Column | None = None,
    layout: str | None = None,
    separator: str | None = None,
    header: bool | None = None,
    minimum_rating: float | None = None,
    distinct: bool = True,
    min_user_interactions: int = 0,
    min_item_interactions: int = 0,
    repeat_filter: bool = False,
    keep_unused_items: bool = False,
    recency: Recency | None = None,
) -> Interactions:
    r"""Read interactions from a path, a data frame or a scipy sparse matrix.

    A path leads to CSV, TSV, Parquet, JSON lines or MovieLens' `::` text, plain, gzipped or in a zip. Ids stay as
    given. Left out are, in this order: ratings below `minimum_rating`, all but the first of repeated pairs, items with
    too few interactions, users with too few.

    Parameters
    ----------
    source : path, data frame or sparse matrix
        A frame may be of pandas, polars or any other library that narwhals knows. The values of a users × items matrix
        are ratings; a stored zero is no interaction.
    user : str, int or None, default None
        Column of the user ids, by name or by position from 0. None takes that of the `layout`, or one with a usual
        name; so do the next three.
    item : str, int or None, default None
        Column of the item ids.
    rating : str, int or None, default None
        Column of the ratings; needed only with `minimum_rating`.
    time : str, int or None, default None
        Column of the times: numbers, ISO dates or a bare order. Without times the order of the rows counts.
    layout : str or None, default None
        The name of a published format, such as `"movielens-1m"`.
    separator : str or None, default None
        What separates the columns of a text file; None finds it in the first lines.
    header : bool or None, default None
        Whether the first line of a text file names the columns; None finds out.
    minimum_rating : float or None, default None
        Leave out lower ratings.
    distinct : bool, default True
        Leave each pair of user and item once, at its first time.
    min_user_interactions : int, default 0
        Leave out users with fewer interactions, counted after the items are filtered.
    min_item_interactions : int, default 0
        Leave out items with fewer interactions.
    repeat_filter : bool, default False
        Filter items and users again until both minima hold: users that go may leave an item below its minimum.
    keep_unused_items : bool, default False
        Whether items that lost all interactions stay in the catalogue.
    recency : Recency or None, default None
        How a history is weighted when it is used to score.

    Returns
    -------
    Interactions

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "ratings.csv")
    ...     _ = path.write_text("user,item,rating,time\nann,tea,5,2\nann,milk,4,1\nbob,tea,2,3\n")
    ...     data = loca.read_interactions(path, minimum_rating=3)
    >>> data.users.values.tolist(), data.items.ids(data.items_of(0))
    (['ann'], ['milk', 'tea'])
    >>> import polars
    >>> frame = polars.DataFrame({"who": [1, 1, 2], "what": ["tea", "milk", "tea"]})
    >>> len(loca.read_interactions(frame, user="who", item="what"))
    3
    """
    given = {"user": user, "item": item, "rating": rating, "time": time}
    columns = {role: column for role, column in given.items() if column is not None}
    plan = None if layout is None else find_layout(layout)
    needed = ("user", "item") if minimum_rating is None else ("user", "item", "rating")
    if isinstance(source, str | Path):
        found = find_source(source, _PUBLISHED_TABLES if plan is None else plan.members)
        interactions = _number(read_file(found, columns, needed, plan, separator, header), minimum_rating)
    elif plan is not None:
        kind = "sparse matrix" if issparse(source) else type(source).__name__
        raise ConfigError(f"layout {plan.name!r} says how a file is written; it does not apply to a {kind}")
    elif not issparse(source):
        interactions = _number(_read_frame(source, columns, needed), minimum_rating)
    elif columns:
        raise ConfigError("a sparse matrix has no columns; give it without user, item, rating and time")
    else:
        interactions = _from_ratings(source, minimum_rating)
    if distinct:
        interactions = interactions.distinct(keep="first")
    if minimum_rating is not None or min_user_interactions or min_item_interactions:
        interactions = keep_active(
            interactions, min_user_interactions, min_item_interactions, repeat_filter, keep_unused_items
        )
    return interactions.with_recency(recency)


def read_preset(
    name: str, source: str | Path, *, layout: str | None = None, recency: Recency | None = None
) -> Interactions:
    r"""Read one of the paper's data sets, treated as in the paper.

    All ratings are positive, repeated pairs stay, and users have at least 10 rows. Items whose users all went stay in
    the catalogue, because the paper counts them: AMusic's 11,797 are all items of the raw file, of which 11,586 are
    left with a rating.

    Parameters
    ----------
    name : str
        The label of a data set in the paper's Table 1, in any case, such as `"ml10m"`.
    source : str or Path
        The file as it is published.
    layout : str or None, default None
        The name of the file's format; None finds the one of the data set that fits the file.
    recency : Recency or None, default None
        How a history is weighted when it is used to score.

    Returns
    -------
    Interactions

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "ratings.dat")
    ...     _ = path.write_text("".join(f"{user}::{item}::5::{item}\n" for user in (1, 2) for item in range(9 + user)))
    ...     data = loca.read_preset("ML10M", path)
    >>> data.n_users, data.n_items, len(data)
    (2, 11, 21)
    """
    layout = layout or layout_of(find_preset(name), source)
    return read_interactions(
        source, layout=layout, distinct=False, min_user_interactions=10, keep_unused_items=True, recency=recency
    )


def layout_of(data_set: DataSet, path: str | Path) -> str | None:
    """Find the layout of a data set that best fits a file's form and separator; None where the data set has none."""
    head = find_source(path, _PUBLISHED_TABLES).read(4096)
    separator = None if is_json(head) else tables.guess_separator(tables.as_text(head).split("\n")[:10])

    def fit(name: str) -> tuple[bool, bool]:
        return LAYOUTS[name].is_json == is_json(head), separator in (None, *LAYOUTS[name].separators)

    return max(data_set.layouts, key=fit, default=None)


# -- Filters -----------------------------------------------------------------------------------------------------------


def keep_active(
    interactions: Interactions, min_user: int = 0, min_item: int = 0, repeat: bool = False, keep_unused: bool = False
) -> Interactions:
    """Leave the interactions of items, then of users, that have at least so many; users and items left without any go.

    Items are counted first and users on what they leave, so that every user left has the minimum. Users that go may
    leave an item below its minimum: `repeat` goes on until both hold. `keep_unused` keeps all items.
    """
    minima = {"item": min_item, "user": min_user}
    for what, minimum in minima.items():
        if minimum < 0:
            raise ConfigError(f"min_{what}_interactions: expected a whole number of at least 0, found {minimum}")
    left, before = interactions, -1
    while len(left) != before and (repeat or before < 0):
        before = len(left)
        for what in [what for what, minimum in minima.items() if minimum]:
            rows: npt.NDArray[Any] = left.user_rows() if what == "user" else left.item_rows
            counts = np.bincount(rows)
            left = left.where(counts[rows] >= minima[what])
            if len(left) == 0:
                found = f"but the most that any {what} has is {counts.max(initial=0)}"
                raise DataError(f"{_NOBODY}: at least {minima[what]} interactions per {what}, {found}")
    left = left if left.counts().all() else left.of_users(left.counts() > 0)
    is_used = np.bincount(left.item_rows, minlength=left.n_items) > 0
    if keep_unused or is_used.all():
        return left
    new_rows = (np.cumsum(is_used) - 1).astype(np.int32)
    return replace(left, items=left.items.keep(is_used), item_rows=new_rows[left.item_rows])


def _at_least(ratings: npt.NDArray[Any], minimum: float) -> npt.NDArray[np.bool_]:
    is_rated = np.asarray(ratings >= minimum)
    if not is_rated.any():
        raise DataError(f"{_NOBODY}: ratings of at least {minimum:g}, but the highest is {ratings.max()}")
    return is_rated


# -- From a table or a matrix to interactions --------------------------------------------------------------------------


def _number(table: pl.DataFrame, minimum_rating: float | None) -> Interactions:
    """Interactions of a table with the columns user, item and perhaps rating and time.

    Ids are numbered in sorted order, so that the same events in another order of rows give the same model. Those
    without a high enough rating keep their number.
    """
    maps, rows = [], []
    for what in ("user", "item"):
        distinct = table[what].unique().sort()
        is_text = distinct.dtype == pl.String
        maps.append(IdMap(np.array(distinct.to_list(), dtype=object) if is_text else distinct.to_numpy(), what))
        places = table[what].cast(pl.Enum(distinct)).to_physical() if is_text else distinct.search_sorted(table[what])
        rows.append(places.to_numpy().astype(np.int32))
    times = None
    if "time" in table.columns:
        instants = table["time"]
        if instants.dtype == pl.Datetime:  # as seconds since 1970, whole where all are
            micro = instants.dt.epoch("us")
            instants = micro // 1_000_000 if bool((micro % 1_000_000 == 0).all()) else micro / 1_000_000
        times = instants.to_numpy()
    if minimum_rating is not None:
        is_rated = _at_least(table["rating"].to_numpy(), minimum_rating)
        rows, times = [one[is_rated] for one in rows], None if times is None else times[is_rated]
    return Interactions.from_events(maps[0], maps[1], rows[0], rows[1], times)


def _from_ratings(matrix: Any, minimum_rating: float | None) -> Interactions:
    """Interactions of a sparse users × items matrix of ratings."""
    ratings = csr_array(matrix, copy=True)
    ratings.eliminate_zeros()
    if ratings.nnz == 0:
        raise DataError(f"the sparse matrix of shape {ratings.shape} holds no entry")
    if not np.isfinite(ratings.data).all():
        raise DataError("the sparse matrix holds values that are not finite numbers")
    interactions = Interactions.from_matrix(ratings)
    return interactions if minimum_rating is None else interactions.where(_at_least(ratings.data, minimum_rating))


# -- Files and frames --------------------------------------------------------------------------------------------------


def read_file(
    source: Source,
    given: Mapping[str, Column],
    needed: Sequence[str] = ("user", "item"),
    layout: Layout | None = None,
    separator: str | None = None,
    header: bool | None = None,
    block_bytes: int = BLOCK_BYTES,
) -> pl.DataFrame:
    """The columns user, item and, where there are such, rating and time of a file, each of one kind and without gaps.

    Text is read in blocks of about `block_bytes`; what is read does not depend on where they end.
    """
    head = source.read(HEAD_BYTES)
    form = "Parquet" if head.startswith(PARQUET_MARK) else "JSON" if is_json(head) else "text"
    if layout is not None and form != ("JSON" if layout.is_json else "text"):
        raise DataError(f"{source.name}: expected the layout {layout.name} ({layout.about}), found {form}")
    columns = {**({} if layout is None else layout.columns), **given}
    if form == "Parquet":
        try:
            table = pl.scan_parquet(source.path if source.is_plain() else io.BytesIO(source.read()))
            return _read_frame(table, columns, needed, source.name)
        except (pl.exceptions.PolarsError, nw.exceptions.NarwhalsError, OSError) as error:
            raise DataError(f"{source.name}: cannot be read as Parquet ({str(error).splitlines()[0]})") from error
    if form == "JSON":
        return _read_json_lines(source, columns, needed, block_bytes)
    separators = tables.SEPARATORS if layout is None else layout.separators
    named = [column for column in given.values() if isinstance(column, str) and not column.isdigit()]
    shape = tables.find_shape(source, separators if separator is None else (separator,), header, named)
    is_unknown = layout is None and shape.names is None and not {"user", "item"} & given.keys()
    if is_unknown or (layout is not None and not layout.columns):
        # The 2014 or the 2018 order, by which of the first two columns holds reviewers and which products.
        for name, user, item in (("amazon-ratings-2014", 0, 1), ("amazon-ratings-2018", 1, 0)):
            rows = [(row[user], row[item]) for row in shape.sample if len(row) > 1]
            fitting = [1 for one, other in rows if _AMAZON_USER.fullmatch(one) and _AMAZON_ITEM.fullmatch(other)]
            if len(fitting) > len(rows) / 2:
                say(f"{source.name}: read as {name}, by the shapes of its ids ({LAYOUTS[name].about})")
                columns = {**LAYOUTS[name].columns, **given}
                break
        else:
            if layout is not None:
                advice = "name the layout amazon-ratings-2014 (user first) or amazon-ratings-2018 (item first)"
                problem = "the first two columns do not look like Amazon's reviewers and products"
                raise DataError(f"{source.name}: {problem}; {advice}")
    places = tables.find_columns(columns, shape.names or shape.width, source.name, needed)
    return tables.read_delimited(source, shape, places, block_bytes)


def _read_frame(
    frame: Any, given: Mapping[str, Column], needed: Sequence[str], where: str = "the frame"
) -> pl.DataFrame:
    known = _known_frame(frame)
    names = [str(name) for name in known.collect_schema().names()]
    places = tables.find_columns(given, names, where, needed)
    table = as_polars(known.select(*(nw.nth(place) for place in places.values())))
    if table.is_empty():
        raise DataError(f"{where}: there is no row")
    table.columns = list(places)
    return tables.typed(table, where, lambda row: f"{where} row {row + 1}").rechunk()


def as_polars(frame: Any) -> pl.DataFrame:
    """Any frame that narwhals knows as a polars one."""
    known = _known_frame(frame)
    table = known.collect() if isinstance(known, nw.LazyFrame) else known
    # The index of a pandas frame comes along as a last column.
    return pl.DataFrame(pl.DataFrame(table).get_columns()[: len(table.columns)])


def _known_frame(frame: Any) -> nw.DataFrame[Any] | nw.LazyFrame[Any]:
    try:
        return cast("nw.DataFrame[Any] | nw.LazyFrame[Any]", nw.from_native(frame))
    except TypeError as error:
        found = type(frame).__name__
        raise DataError(f"expected a path, a data frame or a sparse matrix, found {found}") from error


# -- JSON lines --------------------------------------------------------------------------------------------------------


def is_json(head: bytes) -> bool:
    return head.lstrip()[:1] in (b"{", b"[")


def _read_json_lines(
    source: Source, given: Mapping[str, Column], needed: Sequence[str], block_bytes: int
) -> pl.DataFrame:
    head = source.read(HEAD_BYTES)
    if head.lstrip()[:1] == b"[":
        raise DataError(f"{source.name}: expected JSON lines, one object a line, found a JSON list")
    whole_lines = head[: head.rfind(b"\n") + 1] or head
    sample = [one for _, one in islice(json_objects(source.name, whole_lines), _SAMPLE_OBJECTS)]
    names = list(dict.fromkeys(name for one in sample for name in one))
    places = tables.find_columns(given, names, source.name, needed)
    fields = {role: names[place] for role, place in places.items()}
    schema = {field: _json_kind([one.get(field) for one in sample]) for field in fields.values()}

    def read(first_line: int, data: bytes) -> pl.DataFrame:
        try:
            table = pl.read_ndjson(io.BytesIO(data), schema=schema)
            table = table.select(pl.col(field).alias(role) for role, field in fields.items())
            return tables.typed(table, source.name, str)
        except (pl.exceptions.PolarsError, DataError):
            # A kind that changes on the way, or a mistake whose line must be found.
            return read_line_by_line(first_line, data)

    def read_line_by_line(first_line: int, data: bytes) -> pl.DataFrame:
        places, objects, columns = [], [], []
        for line, one in json_objects(source.name, data, first_line):
            places.append(f"{source.name} line {line}")
            objects.append(one)
            for role, field in fields.items():
                if (value := one.get(field)) is None:
                    raise DataError(f"{places[-1]}: no {field!r}; the fields are {', '.join(one)}")
                if isinstance(value, bool | list | dict):
                    raise DataError(f"{places[-1]}: expected text or a number as {role}, found {json.dumps(value)}")
        for role, field in fields.items():
            values = [one[field] for one in objects]
            kind = _json_kind(values)
            columns.append(pl.Series(role, [str(one) for one in values] if kind == pl.String else values, dtype=kind))
        return tables.typed(pl.DataFrame(columns), source.name, places.__getitem__)

    return tables.read_blocks(source, read, block_bytes)


def json_objects(name: str, data: bytes, first_line: int = 1) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each object with the number of its line; blank lines are passed over."""
    for line, text in enumerate(tables.as_text(data).split("\n"), first_line):
        if not text.strip():
            continue
        try:
            one = json.loads(text)
        except ValueError as error:
            raise DataError(f"{name} line {line}: expected a JSON object, found something else ({error})") from error
        if not isinstance(one, dict):
            raise DataError(f"{name} line {line}: expected a JSON object, found {text.strip()[:40]}")
        yield line, one


def _json_kind(sample: Sequence[Any]) -> pl.DataType:
    kinds = {type(value) for value in sample if value is not None}
    if kinds <= {int, float, str} and kinds != {int}:
        return pl.String() if str in kinds else pl.Float64()
    # Also where lists or objects stand among the values: they do not fit, so every line is looked at.
    return pl.Int64()
