"""Read any file, data frame or sparse matrix as Interactions; drop low ratings, repeats, rare users and rare items."""

from __future__ import annotations

import io
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal, cast
from uuid import UUID

import narwhals as nw
import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.sparse import csr_array, issparse

from loca.data import text_tables as tables
from loca.data.archives import BLOCK_BYTES, HEAD_BYTES, Source, find_source
from loca.data.datasets import LAYOUTS, DataSet, Layout, find_layout, find_preset
from loca.data.id_map import Column, IdMap
from loca.data.interactions import Interactions, check_entries
from loca.data.recency import Recency
from loca.errors import ConfigError, DataError
from loca.progress import say

PARQUET_MARK = b"PAR1"
# What polars raises on a damaged file.
UNREADABLE = (
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
    nw.exceptions.NarwhalsError,
    OSError,
)
_LISTS = tables.ColumnChoice({"user": "the first of a line", "item": "all others"})
_NOBODY = "no user left after filtering"
# Amazon's own shapes: a reviewer is A and at least nine more signs, a product an ASIN or an ISBN of ten signs.
_AMAZON_USER = re.compile(r"A[0-9A-Z]{9,20}")
_AMAZON_ITEM = re.compile(r"B[0-9A-Z]{9}|[0-9]{9}[0-9X]")
_SAMPLE_OBJECTS = 100
_ABOVE = "takes only those above the middle"
# The scales that ratings are usually given on, the narrowest first; beyond them numbers are taken for counts.
_SCALES = (
    (0, 1),
    (-1, 1),
    (1, 5),
    (0.5, 5),
    (0, 5),
    (1, 10),
    (0, 10),
    (-5, 5),
    (-10, 10),
    (0, 100),
    (-100, 100),
)
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

    A path leads to CSV, TSV, Parquet, JSON lines or MovieLens' `::` text, plain, gzipped or in a zip; `-` is standard
    input. Ids stay as given. A line is logged where low ratings count like high ones, and where a column of dates is
    not used. Left out are, in this order: ratings below `minimum_rating`, all but the first of repeated pairs, items
    with too few interactions, users with too few.

    Parameters
    ----------
    source : path, data frame or sparse matrix
        A frame may be of pandas, polars or any other library that narwhals knows. The values of a users × items matrix
        are ratings; a stored zero is no interaction, and values below 0 need a `minimum_rating`.
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
        The name of a published format, such as `"movielens-1m"`, or `"user-items"`: lines of a user and then items.
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
    columns = {"user": user, "item": item, "rating": rating, "time": time}
    interactions, table = read_table(
        source,
        {role: column for role, column in columns.items() if column is not None},
        layout=layout,
        separator=separator,
        header=header,
        minimum_rating=minimum_rating,
        distinct=distinct,
        min_user_interactions=min_user_interactions,
        min_item_interactions=min_item_interactions,
        repeat_filter=repeat_filter,
        keep_unused_items=keep_unused_items,
    )
    for line in () if table is None else table.notes(minimum_rating, "argument"):
        say(line)
    return interactions.with_recency(recency)


@dataclass(frozen=True)
class Ratings:
    """The ratings of a table: the lowest and the highest, how many different ones, and the scale they seem to be on.

    `scale` is None where they look like counts. `low_share` is the share of those below the middle of the scale where
    others are above it, of which `high` is the lowest.
    """

    lowest: float
    highest: float
    values: int
    scale: tuple[float, float] | None = None
    low_share: float = 0.0
    high: float | None = None

    @classmethod
    def of(cls, ratings: pl.Series) -> Ratings | None:
        """Those of a column; None where it holds no number."""
        known = ratings.drop_nulls()
        if known.is_empty():
            return None
        values = known.unique().sort().to_numpy()
        lowest, highest = float(values[0]), float(values[-1])
        scale = next((one for one in _SCALES if one[0] <= lowest and highest <= one[1]), None)
        found = cls(lowest, highest, len(values), scale)
        above = values[values > found.middle]
        if scale is None or not len(above):
            return found
        return replace(
            found, low_share=float(np.mean(known.to_numpy() < found.middle)), high=float(above[0])
        )

    @property
    def middle(self) -> float:
        """The middle of the scale, or of what was found."""
        return sum(self.scale or (self.lowest, self.highest)) / 2

    def __str__(self) -> str:
        scale = (
            "" if self.scale is None else f", on a scale of {self.scale[0]:g} to {self.scale[1]:g}"
        )
        return f"{self.lowest:g} to {self.highest:g}, {self.values:,} different{scale}"


@dataclass(frozen=True)
class TableRead:
    """What was read of a table: its name, which columns, and the ratings among them if any."""

    name: str
    columns: tables.ColumnChoice
    ratings: Ratings | None

    def lines(self, minimum_rating: float | None) -> list[tuple[str, str]]:
        """What a person reads: name and value, one pair per line."""
        found, taken = self.ratings, self.columns.taken
        lines = [("columns", ", ".join(f"{role} = {column}" for role, column in taken.items()))]
        if self.columns.unused:
            lines.append(("columns not used", tables.listed(self.columns.unused)))
        if self.columns.dates and "time" not in taken:
            lines.append(("columns of dates not used", tables.listed(self.columns.dates)))
        if found is not None:
            lines.append(("values of ratings", str(found)))
            if found.low_share:
                advice = (
                    "" if minimum_rating is not None else f"; --min-rating {found.high:g} {_ABOVE}"
                )
                low = (
                    f"{100 * found.low_share:.0f} % of the ratings, below {found.middle:g}{advice}"
                )
                lines.append(("below the middle of the scale", low))
        return lines

    def notes(
        self, minimum_rating: float | None, advice: Literal["argument", "option", "none"]
    ) -> list[str]:
        """What a person wants to know before the table is used, line by line; `advice` is for Python or a command."""
        lines, found = [], self.ratings
        rating, time = (
            ("minimum_rating=", "time=")
            if advice == "argument"
            else ("--min-rating ", "--time-column ")
        )
        if (
            found is not None
            and found.scale is not None
            and found.low_share
            and minimum_rating is None
        ):
            low = f"{100 * found.low_share:.0f} % of the ratings are below {found.middle:g}"
            scale = f"the middle of their scale ({found.scale[0]:g} to {found.scale[1]:g})"
            way = f"; {rating}{found.high:g} {_ABOVE}" if advice != "none" else ""
            lines.append(f"{self.name}: {low}, {scale}, and count as likes{way}")
        if "time" not in self.columns.taken:
            for one in self.columns.dates:
                name = repr(one) if advice == "argument" else shlex.quote(str(one))
                way = f"say {time}{name}" if advice != "none" else "call it time"
                lines.append(f"{self.name}: column {one!r} holds dates but is not used; {way}")
        return lines


def read_table(
    source: Any,
    columns: Mapping[str, Column],
    *,
    layout: str | None = None,
    separator: str | None = None,
    header: bool | None = None,
    minimum_rating: float | None = None,
    distinct: bool = True,
    min_user_interactions: int = 0,
    min_item_interactions: int = 0,
    repeat_filter: bool = False,
    keep_unused_items: bool = False,
) -> tuple[Interactions, TableRead | None]:
    """The interactions as `read_interactions` reads them, and what was read: None of a matrix."""
    plan = None if layout is None else find_layout(layout)
    needed = ("user", "item") if minimum_rating is None else ("user", "item", "rating")
    if plan is not None and not isinstance(source, str | Path):
        kind = "sparse matrix" if issparse(source) else type(source).__name__
        raise ConfigError(
            f"layout {plan.name!r} says how a file is written; it does not apply to a {kind}"
        )
    read = None
    if issparse(source):
        if columns:
            raise ConfigError(
                "a sparse matrix has no columns; give it without user, item, rating and time"
            )
        interactions = _from_ratings(source, minimum_rating)
    else:
        name = "the frame"
        if isinstance(source, str | Path):
            found = find_source(source, _PUBLISHED_TABLES if plan is None else plan.members)
            name, (table, choice) = (
                found.name,
                read_file(found, columns, needed, plan, separator, header),
            )
        else:
            table, choice = _read_frame(source, columns, needed)
        read = TableRead(
            name, choice, Ratings.of(table["rating"]) if "rating" in table.columns else None
        )
        if minimum_rating is None:
            table = table.drop("rating", strict=False)
        interactions = _number(table, minimum_rating)
    if distinct:
        interactions = interactions.distinct(keep="first")
    if minimum_rating is not None or min_user_interactions or min_item_interactions:
        interactions = keep_active(
            interactions,
            min_user_interactions,
            min_item_interactions,
            repeat_filter,
            keep_unused_items,
        )
    return interactions, read


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
    interactions, _ = read_table(
        source, {}, layout=layout, distinct=False, min_user_interactions=10, keep_unused_items=True
    )
    return interactions.with_recency(recency)


def layout_of(data_set: DataSet, path: str | Path) -> str | None:
    """Find the layout of a data set that best fits a file's form and separator; None where the data set has none."""
    head = find_source(path, _PUBLISHED_TABLES).read(4096)
    separator = (
        None if is_json(head) else tables.guess_separator(tables.as_text(head).split("\n")[:10])
    )

    def fit(name: str) -> tuple[bool, bool]:
        return LAYOUTS[name].is_json == is_json(head), separator in (
            None,
            *LAYOUTS[name].separators,
        )

    return max(data_set.layouts, key=fit, default=None)


# -- Filters -----------------------------------------------------------------------------------------------------------


def keep_active(
    interactions: Interactions,
    min_user: int = 0,
    min_item: int = 0,
    repeat: bool = False,
    keep_unused: bool = False,
) -> Interactions:
    """Leave the interactions of items, then of users, that have at least so many; users and items left without any go.

    Items are counted first and users on what they leave, so that every user left has the minimum. Users that go may
    leave an item below its minimum: `repeat` goes on until both hold. `keep_unused` keeps all items.
    """
    minima = {"item": min_item, "user": min_user}
    for what, minimum in minima.items():
        if minimum < 0:
            raise ConfigError(
                f"min_{what}_interactions: expected a whole number of at least 0, found {minimum}"
            )
    left, before = interactions, -1
    while len(left) != before and (repeat or before < 0):
        before = len(left)
        for what in [what for what, minimum in minima.items() if minimum]:
            rows: npt.NDArray[Any] = left.user_rows() if what == "user" else left.item_rows
            counts = np.bincount(rows)
            left = left.where(counts[rows] >= minima[what])
            if len(left) == 0:
                found = f"but the most that any {what} has is {counts.max(initial=0)}"
                raise DataError(
                    f"{_NOBODY}: at least {minima[what]} interactions per {what}, {found}"
                )
    left = left if left.counts().all() else left.of_users(left.counts() > 0)
    is_used = np.bincount(left.item_rows, minlength=left.n_items) > 0
    return left if keep_unused or is_used.all() else left.of_items(is_used)


def _at_least(ratings: npt.NDArray[Any], minimum: float) -> npt.NDArray[np.bool_]:
    is_rated = np.asarray(ratings >= minimum)
    if not is_rated.any():
        raise DataError(
            f"{_NOBODY}: ratings of at least {minimum:g}, but the highest is {ratings.max()}"
        )
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
        maps.append(
            IdMap(
                np.array(distinct.to_list(), dtype=object) if is_text else distinct.to_numpy(), what
            )
        )
        places = (
            table[what].cast(pl.Enum(distinct)).to_physical()
            if is_text
            else distinct.search_sorted(table[what])
        )
        rows.append(places.to_numpy().astype(np.int32))
    times = None
    if "time" in table.columns:
        instants = table["time"]
        if instants.dtype == pl.Datetime:  # as seconds since 1970, whole where all are
            micro = instants.dt.epoch("us")
            instants = (
                micro // 1_000_000 if bool((micro % 1_000_000 == 0).all()) else micro / 1_000_000
            )
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
    if minimum_rating is None:
        return Interactions.from_matrix(ratings)
    size = check_entries(abs(ratings), "the matrix")  # what is below 0 is a low rating
    return Interactions.from_matrix(size).where(_at_least(ratings.data, minimum_rating))


# -- Files and frames --------------------------------------------------------------------------------------------------


def read_file(
    source: Source,
    given: Mapping[str, Column],
    needed: Sequence[str] = ("user", "item"),
    layout: Layout | None = None,
    separator: str | None = None,
    header: bool | None = None,
    block_bytes: int = BLOCK_BYTES,
) -> tuple[pl.DataFrame, tables.ColumnChoice]:
    """The columns user, item and, where there are such, rating and time of a file, each of one kind and without gaps.

    Ratings that are not needed may have gaps. Beside the table comes which column was taken as what. Text is read in
    blocks of about `block_bytes`; what is read does not depend on where they end.
    """
    head = source.read(HEAD_BYTES)
    form = "Parquet" if head.startswith(PARQUET_MARK) else "JSON" if is_json(head) else "text"
    if layout is not None and form != ("JSON" if layout.is_json else "text"):
        raise DataError(
            f"{source.name}: expected the layout {layout.name} ({layout.about}), found {form}"
        )
    columns = {**({} if layout is None else layout.columns), **given}
    if layout is not None and layout.is_lists:
        return _read_lists(source, given, needed, block_bytes)
    if form == "Parquet":
        try:
            table = pl.scan_parquet(source.path if source.is_plain() else io.BytesIO(source.read()))
            return _read_frame(table, columns, needed, source.name)
        except UNREADABLE as error:
            raise DataError(
                f"{source.name}: cannot be read as Parquet ({str(error).splitlines()[0]})"
            ) from error
    if form == "JSON":
        return _read_json_lines(source, columns, needed, block_bytes)
    separators = tables.SEPARATORS if layout is None else layout.separators
    named = [
        column for column in given.values() if isinstance(column, str) and not column.isdigit()
    ]
    shape = tables.find_shape(
        source, separators if separator is None else (separator,), header, named
    )
    is_unknown = layout is None and shape.names is None and not {"user", "item"} & given.keys()
    if is_unknown and not given and tables.are_lists(shape):
        say(f"{source.name}: read as user-items ({LAYOUTS['user-items'].about})")
        return _read_lists(source, given, needed, block_bytes)
    if is_unknown or (layout is not None and not layout.columns):
        # The 2014 or the 2018 order, by which of the first two columns holds reviewers and which products.
        for name, user, item in (("amazon-ratings-2014", 0, 1), ("amazon-ratings-2018", 1, 0)):
            rows = [(row[user], row[item]) for row in shape.sample if len(row) > 1]
            fitting = [
                1
                for one, other in rows
                if _AMAZON_USER.fullmatch(one) and _AMAZON_ITEM.fullmatch(other)
            ]
            if len(fitting) > len(rows) / 2:
                say(
                    f"{source.name}: read as {name}, by the shapes of its ids ({LAYOUTS[name].about})"
                )
                columns = {**LAYOUTS[name].columns, **given}
                break
        else:
            if layout is not None:
                advice = "name the layout amazon-ratings-2014 (user first) or amazon-ratings-2018 (item first)"
                problem = "the first two columns do not look like Amazon's reviewers and products"
                raise DataError(f"{source.name}: {problem}; {advice}")
    places = tables.find_columns(columns, shape.names or shape.width, source.name, needed)
    full = [row for row in shape.sample if len(row) == shape.width]
    samples = [
        pl.Series([row[place] for row in full], dtype=pl.String) for place in range(shape.width)
    ]
    choice = tables.ColumnChoice.of(
        places, shape.names or [str(place) for place in range(shape.width)], samples
    )
    return tables.read_delimited(source, shape, places, needed, block_bytes), choice


def _read_lists(
    source: Source, given: Mapping[str, Column], needed: Sequence[str], block_bytes: int
) -> tuple[pl.DataFrame, tables.ColumnChoice]:
    for role in [*given, *(role for role in needed if role == "rating")]:
        raise DataError(
            f"{source.name}: lines of a user and then items have no column for the {role}s"
        )
    return tables.read_lists(source, block_bytes), _LISTS


def _read_frame(
    frame: Any, given: Mapping[str, Column], needed: Sequence[str], where: str = "the frame"
) -> tuple[pl.DataFrame, tables.ColumnChoice]:
    known = _known_frame(frame)
    schema = known.collect_schema()
    names, kinds = [str(name) for name in schema.names()], schema.dtypes()
    places = tables.find_columns(given, names, where, needed)
    if "rating" in places and "rating" not in needed and not kinds[places["rating"]].is_numeric():
        del places["rating"]
    table = as_polars(known.select(*(nw.nth(place) for place in places.values())), where)
    if table.is_empty():
        raise DataError(f"{where}: there is no row")
    table.columns = list(places)
    dates = [
        pl.Series([], dtype=pl.Date if kind in (nw.Date, nw.Datetime) else pl.Null)
        for kind in kinds
    ]
    read = tables.typed(table, where, lambda row: f"{where} row {row + 1}", needed).rechunk()
    return read, tables.ColumnChoice.of(places, names, dates)


def as_polars(frame: Any, where: str = "the frame") -> pl.DataFrame:
    """Any frame that narwhals knows as a polars one; columns of Python's objects as text or numbers."""
    known = _known_frame(frame)
    table = known.collect() if isinstance(known, nw.LazyFrame) else known
    if nw.Object in table.schema.dtypes():
        return pl.DataFrame(
            [
                _from_objects(where, one.name, one.to_list())
                if one.dtype == nw.Object
                else pl.Series(one.name, one)
                for one in table.iter_columns()
            ]
        )
    # The index of a pandas frame comes along as a last column.
    return pl.DataFrame(pl.DataFrame(table).get_columns()[: len(table.columns)])


def _from_objects(where: str, name: str, values: list[Any]) -> pl.Series:
    """A column of Python's objects: text, UUIDs as text, or numbers; a mixture is refused."""
    known = [
        None if one is None or one != one else one for one in values
    ]  # NaN, pandas' word for a gap
    kinds = {type(one) for one in known if one is not None}
    if kinds <= {str, UUID}:
        return pl.Series(
            name, [None if one is None else str(one) for one in known], dtype=pl.String
        )
    if all(issubclass(kind, int | float | np.number) for kind in kinds):
        return pl.Series(name, known, strict=False)
    found = " and ".join(sorted(kind.__name__ for kind in kinds))
    advice = f"convert it, such as frame[{name!r}].astype(str)"
    raise DataError(
        f"{where} column {name!r}: expected all text or all numbers, found {found}; {advice}"
    )


def _known_frame(frame: Any) -> nw.DataFrame[Any] | nw.LazyFrame[Any]:
    try:
        return cast("nw.DataFrame[Any] | nw.LazyFrame[Any]", nw.from_native(frame))
    except TypeError as error:
        found = type(frame).__name__
        raise DataError(
            f"expected a path, a data frame or a sparse matrix, found {found}"
        ) from error


# -- JSON lines --------------------------------------------------------------------------------------------------------


def is_json(head: bytes) -> bool:
    return head.lstrip()[:1] in (b"{", b"[")


def _read_json_lines(
    source: Source, given: Mapping[str, Column], needed: Sequence[str], block_bytes: int
) -> tuple[pl.DataFrame, tables.ColumnChoice]:
    head = source.read(HEAD_BYTES)
    if head.lstrip()[:1] == b"[":
        raise DataError(f"{source.name}: expected JSON lines, one object a line, found a JSON list")
    whole_lines = head[: head.rfind(b"\n") + 1] or head
    sample = [one for _, one in islice(json_objects(source.name, whole_lines), _SAMPLE_OBJECTS)]
    names = list(dict.fromkeys(name for one in sample for name in one))
    places = tables.find_columns(given, names, source.name, needed)
    values = [[one.get(name) for one in sample] for name in names]
    is_needless = "rating" in places and "rating" not in needed
    if is_needless and not {type(one) for one in values[places["rating"]]} <= {int, float}:
        del places["rating"]
    texts = [[one for one in some if one is not None] for some in values]
    samples = [
        pl.Series(some if all(isinstance(one, str) for one in some) else [0]) for some in texts
    ]
    choice = tables.ColumnChoice.of(places, names, samples)
    fields = {role: names[place] for role, place in places.items()}
    schema = {field: _json_kind([one.get(field) for one in sample]) for field in fields.values()}
    if "rating" in fields and schema[fields["rating"]] == pl.Int64:
        schema[fields["rating"]] = pl.Float64()  # 5 may be followed by 4.5

    def read(first_line: int, data: bytes) -> pl.DataFrame:
        try:
            table = pl.read_ndjson(io.BytesIO(data), schema=schema)
            table = table.select(pl.col(field).alias(role) for role, field in fields.items())
            return tables.typed(table, source.name, str, needed)
        except (pl.exceptions.PolarsError, DataError):
            # A kind that changes on the way, or a mistake whose line must be found.
            return read_line_by_line(first_line, data)

    def read_line_by_line(first_line: int, data: bytes) -> pl.DataFrame:
        places, objects, columns = [], [], []
        for line, one in json_objects(source.name, data, first_line):
            places.append(f"{source.name} line {line}")
            objects.append(one)
            for role, field in fields.items():
                value = one.get(field)
                if role == "rating" and role not in needed:
                    one[field] = float(value) if isinstance(value, int | float) else None
                elif value is None:
                    raise DataError(
                        f"{places[-1]}: no {field!r}; the fields are {tables.listed(list(one))}"
                    )
                elif isinstance(value, bool | list | dict):
                    found = json.dumps(value)[:40]
                    raise DataError(
                        f"{places[-1]}: expected text or a number as {role}, found {found}"
                    )
                elif isinstance(value, int) and not -(2**63) <= value < 2**63:
                    raise DataError(
                        f"{places[-1]}: expected text or a 64-bit number as {role}, found {value}"
                    )
        for role, field in fields.items():
            values = [one[field] for one in objects]
            kind = _json_kind(values)
            columns.append(
                pl.Series(
                    role, [str(one) for one in values] if kind == pl.String else values, dtype=kind
                )
            )
        return tables.typed(pl.DataFrame(columns), source.name, places.__getitem__, needed)

    return tables.read_blocks(source, read, block_bytes), choice


def json_objects(
    name: str, data: bytes, first_line: int = 1
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each object with the number of its line; blank lines are passed over."""
    for line, text in enumerate(tables.as_text(data).split("\n"), first_line):
        if not text.strip():
            continue
        try:
            one = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"{name} line {line}: expected a JSON object, found something else ({error})"
            ) from error
        if not isinstance(one, dict):
            raise DataError(
                f"{name} line {line}: expected a JSON object, found {text.strip()[:40]}"
            )
        yield line, one


def _json_kind(sample: Sequence[Any]) -> pl.DataType:
    kinds = {type(value) for value in sample if value is not None}
    if kinds <= {int, float, str} and kinds != {int}:
        return pl.String() if str in kinds else pl.Float64()
    # Also where lists or objects stand among the values: they do not fit, so every line is looked at.
    return pl.Int64()
