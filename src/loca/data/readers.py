"""Any file, data frame or sparse matrix becomes Interactions."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import narwhals as nw
import polars as pl
from scipy.sparse import issparse

from loca.data.archives import BLOCK_BYTES, Source, find_source
from loca.data.filtering import Events, keep_active, keep_distinct, keep_ratings_of_at_least
from loca.data.id_map import Column
from loca.data.interactions import Interactions
from loca.data.recency import Recency
from loca.data.text_tables import Columns, as_role, as_utf8, check_gaps, place_named, place_unnamed, stack
from loca.errors import ConfigError, DataError, did_you_mean
from loca.progress import say

if TYPE_CHECKING:
    import polars as pl


_IN_ORDER = Columns(user=0, item=1, rating=2, time=3)
_ITEM_FIRST = Columns(user=1, item=0, rating=2, time=3)
# Amazon's own shapes: a reviewer is A and at least nine more signs, a product an ASIN or an ISBN of ten signs.
_AMAZON_USER = re.compile(r"A[0-9A-Z]{9,20}")
_AMAZON_ITEM = re.compile(r"B[0-9A-Z]{9}|[0-9]{9}[0-9X]")


@dataclass(frozen=True)
class Layout:
    """How one public data set is written; `members` are the names of its table inside the published zip.

    `columns` is None where the order of the columns must be read off the ids; `separators` is empty for JSON lines.
    """

    name: str
    about: str
    columns: Columns | None = _IN_ORDER
    separators: tuple[str, ...] = (",",)
    members: tuple[str, ...] = ()

    @property
    def is_json(self) -> bool:
        return not self.separators


LAYOUTS: Mapping[str, Layout] = MappingProxyType(
    {
        layout.name: layout
        for layout in (
            Layout("movielens-100k", "u.data: user, item, rating, time; tabs", _IN_ORDER, ("\t",), ("ml-100k/u.data",)),
            Layout("movielens-1m", "ratings.dat: user::item::rating::time", _IN_ORDER, ("::",), ("ml-1m/ratings.dat",)),
            Layout(
                "movielens-10m",
                "ratings.dat: user::item::rating::time",
                _IN_ORDER,
                ("::",),
                ("ml-10M100K/ratings.dat", "ml-10m/ratings.dat"),
            ),
            *(
                Layout(
                    f"movielens-{size}",
                    "ratings.csv: userId,movieId,rating,timestamp under a header",
                    members=(f"ml-{size}/ratings.csv",),
                )
                for size in ("20m", "25m", "32m")
            ),
            Layout("amazon-ratings", "ratings only; which of the next two is told by the shapes of the ids", None),
            Layout("amazon-ratings-2014", "ratings only, 2014: user,item,rating,time", _IN_ORDER),
            Layout("amazon-ratings-2018", "ratings only, 2018: item,user,rating,time", _ITEM_FIRST),
            Layout(
                "amazon-reviews",
                "JSON lines (5-core): reviewerID, asin, overall, unixReviewTime",
                Columns("reviewerID", "asin", "overall", "unixReviewTime"),
                separators=(),
            ),
            Layout("yelp-eals", "yelp.rating: user, item, rating, time; tabs", _IN_ORDER, ("\t",), ("yelp.rating",)),
            Layout(
                "loca-rating",
                "the .rating files of the paper's authors: user, item, rating, time; comma, tab or ::",
                _IN_ORDER,
                ("::", "\t", ","),
            ),
        )
    }
)


def find_layout(name: str) -> Layout:
    """The layout of that name; an unknown one is refused with the nearest."""
    if name not in LAYOUTS:
        listed = ", ".join(LAYOUTS)
        raise ConfigError(f"unknown layout {name!r}{did_you_mean(name, LAYOUTS) or '; known are ' + listed}")
    return LAYOUTS[name]


def known_members() -> tuple[str, ...]:
    """The tables of all published zips, to find one where no layout is named."""
    return tuple(member for layout in LAYOUTS.values() for member in layout.members)


def amazon_layout(sample: Sequence[Sequence[str]]) -> Layout | None:
    """The 2014 or the 2018 order, by which of the first two columns holds reviewers and which products; else None."""

    def share(user: int, item: int) -> float:
        alike = [
            bool(_AMAZON_USER.fullmatch(row[user]) and _AMAZON_ITEM.fullmatch(row[item]))
            for row in sample
            if len(row) > 1
        ]
        return sum(alike) / max(len(alike), 1)

    if share(0, 1) > 0.5:
        return LAYOUTS["amazon-ratings-2014"]
    return LAYOUTS["amazon-ratings-2018"] if share(1, 0) > 0.5 else None


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
    """Interactions from a path, a data frame or a scipy sparse matrix.

    A path leads to CSV, TSV, Parquet, JSON lines or MovieLens' `::` text, plain, gzipped or in a zip. Columns are
    given by name or by position from 0, by a named `layout`, or guessed from usual names. Ids stay as given; time is
    numbers, ISO dates or a bare order. Left out are, in this order: ratings under `minimum_rating`, all but the first
    of repeated pairs (unless `distinct=False`), items and users with too few interactions.
    """
    asked = Columns(user, item, rating, time, rating_needed=minimum_rating is not None)
    plan = None if layout is None else find_layout(layout)
    events = _read_events(source, asked, plan, separator, header)
    if minimum_rating is not None:
        events = keep_ratings_of_at_least(events, minimum_rating)
    interactions = events.interactions()
    del events  # 20 million of them are half a gigabyte
    if distinct:
        interactions = keep_distinct(interactions)
    if minimum_rating is not None or min_user_interactions or min_item_interactions:
        interactions = keep_active(
            interactions,
            min_user_interactions=min_user_interactions,
            min_item_interactions=min_item_interactions,
            repeat_filter=repeat_filter,
            keep_unused_items=keep_unused_items,
        )
    return interactions.with_recency(recency)


def _read_events(
    source: Any, asked: Columns, plan: Layout | None, separator: str | None, header: bool | None
) -> Events:
    if isinstance(source, str | Path):
        found = find_source(source, known_members() if plan is None else plan.members)
        return Events.from_table(_read_file(found, asked, plan, separator, header))
    if plan is not None:
        raise ConfigError(f"layout {plan.name!r} says how a file is written; it cannot be asked of a {_kind(source)}")
    if not issparse(source):
        return Events.from_table(read_frame(source, asked))
    if any(column is not None for column in asked.by_role().values()):
        raise ConfigError("a sparse matrix has no columns; give it without user, item, rating and time")
    return Events.from_matrix(source)


def _read_file(
    source: Source, asked: Columns, plan: Layout | None, separator: str | None, header: bool | None
) -> pl.DataFrame:

    head = source.head()
    form = "Parquet" if head.startswith(PARQUET_MARK) else "JSON" if looks_like_json(head) else "text"
    if plan is not None and form != ("JSON" if plan.is_json else "text"):
        raise DataError(f"{source.name}: expected the layout {plan.name} ({plan.about}), found {form}")
    if form == "text":
        return _read_text(source, asked, plan, separator, header)
    if form == "JSON":
        return read_json_lines(source, asked.filled_from(_columns(plan)))
    return read_parquet(source, asked)


def _read_text(
    source: Source, asked: Columns, plan: Layout | None, separator: str | None, header: bool | None
) -> pl.DataFrame:
    from loca.data.text_tables import SEPARATORS, find_shape, read_delimited

    usual = SEPARATORS if plan is None else plan.separators
    separators = usual if separator is None else (separator,)
    shape = find_shape(source, separators=separators, header=header, known_names=asked.names())
    order = plan
    if plan is None and shape.names is None and asked.user is None and asked.item is None:
        order = amazon_layout(shape.sample)
    elif plan is not None and plan.columns is None:
        order = amazon_layout(shape.sample)
        if order is None:
            raise DataError(
                f"{source.name}: the first two columns do not look like Amazon's reviewers and products; "
                "name the layout amazon-ratings-2014 (user first) or amazon-ratings-2018 (item first)"
            )
    if order is not None and order is not plan:
        say(f"{source.name}: read as {order.name}, by the shapes of its ids ({order.about})")
    asked = asked.filled_from(_columns(order))
    if shape.names is None:
        places = place_unnamed(asked, shape.width, source.name)
    else:
        places = place_named(asked, shape.names, source.name)
    return read_delimited(source, shape, places)


def _columns(plan: Layout | None) -> Columns:
    return Columns() if plan is None or plan.columns is None else plan.columns


def _kind(source: Any) -> str:
    return "sparse matrix" if issparse(source) else type(source).__name__


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
        check_gaps(role, stored, read, lambda row: f"{where} row {row + 1}")
        typed.append(read.alias(role).rechunk())
    return pl.DataFrame(typed)


_SAMPLE_LINES = 100


def looks_like_json(head: bytes) -> bool:
    """Whether a file that begins so is JSON."""
    return head.lstrip()[:1] in (b"{", b"[")


def read_json_lines(source: Source, asked: Columns, block_bytes: int = BLOCK_BYTES) -> pl.DataFrame:
    """The columns user, item and, where there are such fields, rating and time, each of one kind and without gaps."""
    head = source.head()
    if head.lstrip()[:1] == b"[":
        raise DataError(f"{source.name}: expected JSON lines, one object a line, found a JSON list")
    whole_lines = as_utf8(head[: head.rfind(b"\n") + 1] or head)
    sample = [one for _, one in islice(objects(source.name, 1, whole_lines), _SAMPLE_LINES)]
    names = list(dict.fromkeys(name for one in sample for name in one))
    places = place_named(asked, names, source.name).by_role()
    fields = {role: names[place] for role, place in places.items()}
    schema = {field: _kind_json([one.get(field) for one in sample]) for field in fields.values()}
    blocks = {
        f"{source.name} line {first_line}": _read_block(source.name, first_line, as_utf8(data), fields, schema)
        for first_line, data in source.line_blocks(block_bytes)
        if data.strip()
    }
    return stack(blocks)


def _read_block(
    name: str, first_line: int, data: bytes, fields: dict[str, str], schema: dict[str, pl.DataType]
) -> pl.DataFrame:
    try:
        table = pl.read_ndjson(io.BytesIO(data), schema=schema)
        read = pl.DataFrame([as_role(role, table[field], name).alias(role) for role, field in fields.items()])
    except pl.exceptions.PolarsError:
        # A kind that changes on the way, or a mistake whose line must be found.
        return _read_line_by_line(name, first_line, data, fields)
    if sum(read.null_count().row(0)):
        return _read_line_by_line(name, first_line, data, fields)
    return read


def _read_line_by_line(name: str, first_line: int, data: bytes, fields: dict[str, str]) -> pl.DataFrame:
    lines: list[int] = []
    columns: dict[str, list[Any]] = {role: [] for role in fields}
    for line, one in objects(name, first_line, data):
        lines.append(line)
        for role, field in fields.items():
            value = one.get(field)
            if value is None:
                raise DataError(f"{name} line {line}: no {field!r}; the fields are {', '.join(one)}")
            if isinstance(value, bool | list | dict):
                raise DataError(f"{name} line {line}: expected text or a number as {role}, found {json.dumps(value)}")
            columns[role].append(value)
    typed = []
    for role, values in columns.items():
        stored = _as_series(values)
        read = as_role(role, stored, name)
        check_gaps(role, stored, read, lambda row: f"{name} line {lines[row]}")
        typed.append(read.alias(role))
    return pl.DataFrame(typed)


def objects(name: str, first_line: int, data: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each object with the number of its line; blank lines are passed over."""
    for line, text in enumerate(data.decode().split("\n"), first_line):
        if not text.strip():
            continue
        try:
            one = json.loads(text)
        except ValueError as error:
            raise DataError(f"{name} line {line}: expected a JSON object, found something else ({error})") from error
        if not isinstance(one, dict):
            raise DataError(f"{name} line {line}: expected a JSON object, found {text.strip()[:40]}")
        yield line, one


def _kind_json(sample: Sequence[Any]) -> pl.DataType:
    kinds = {type(value) for value in sample if value is not None}
    if kinds <= {int, float, str} and kinds != {int}:
        return pl.String() if str in kinds else pl.Float64()
    # Also where lists or objects stand among the values: they do not fit, so every line is looked at.
    return pl.Int64()


def _as_series(values: list[Any]) -> pl.Series:
    if any(isinstance(value, str) for value in values):
        return pl.Series([str(value) for value in values])
    return pl.Series(values, dtype=pl.Float64 if any(isinstance(value, float) for value in values) else pl.Int64)
