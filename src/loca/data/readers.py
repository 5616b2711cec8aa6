"""Read any file, data frame or sparse matrix as Interactions; drop low ratings, repeats, rare users and rare items."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, cast
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
from loca.data.schema import Schema, no_ratings
from loca.data.times import SourceUnit, as_seconds, unit_of_column
from loca.data.weighting import Weighting
from loca.errors import ConfigError, DataError, NothingLeftError, check_arguments, did_you_mean
from loca.remarks import Remark, collect_remarks, joined_remarks, remark, tell_remarks
from loca.text_table import many

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
_SHOWN_KINDS = 6
# So many different whole numbers on no scale are rather ids than ratings.
_LIKE_IDS = 1_000
# Later ratings that are so many times the highest of a fit are on another scale.
_ANOTHER_SCALE = 1.5
# From here on fractions of 64 bits do not tell whole numbers apart.
_LAST_EXACT_FLOAT = 2.0**53
# What a spreadsheet makes of a long number; where most ids look so, they are that.
_ROUNDED_ID = r"^[0-9][.,][0-9]+[eE]\+[0-9]+$"
_MOST_IDS = 0.5
_UNSEEN = "[\u200b\u200c\u200d\u2060\ufeff\u00ad]"
# What programs and people write in place of an id that they do not have.
_STAND_FOR_NOTHING = ("NULL", "null", "nan", "NaN", "None", "N/A", "NA", "n/a", "-", "?")
# The share of ids alike but for upper and lower case from which on it is more than chance.
_LEAST_ALIKE_IDS = 0.01
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


@check_arguments
def read_interactions(
    source: Any,
    *,
    user: Column | None = None,
    item: Column | None = None,
    rating: Column | None = None,
    time: Column | None = None,
    weight: Any = None,
    event: Column | None = None,
    layout: str | None = None,
    separator: str | None = None,
    header: bool | None = None,
    time_unit: str | None = None,
    min_rating: float | None = None,
    distinct: bool = True,
    min_user_interactions: int = 0,
    min_item_interactions: int = 0,
    repeat_filter: bool = False,
    keep_unused_items: bool = False,
    recency: Recency | None = None,
    like: Any = None,
) -> Interactions:
    r"""Read interactions from a path, a data frame or a scipy sparse matrix.

    A path leads to CSV, TSV, Parquet, JSON lines or MovieLens' `::` text, plain, gzipped or in a zip; `-` is standard
    input. Ids stay as given. Left out are, in this order: ratings below `min_rating`, rows of weight 0, all but the
    newest of repeated pairs, items with too few interactions, users with too few. What is worth knowing is told as a
    `LocaWarning`, and stands in `remarks`.

    Parameters
    ----------
    source : path, data frame or sparse matrix
        A frame may be of pandas, polars or any other library that narwhals knows. The values of a users × items matrix
        are weights, or with `min_rating` ratings; a stored zero is no interaction.
    user : str, int or None, default None
        Column of the user ids, by name or by position from 0. None takes that of the `layout`, or one with a usual
        name; so do the next three.
    item : str, int or None, default None
        Column of the item ids.
    rating : str, int or None, default None
        Column of the ratings; needed only with `min_rating`.
    time : str, int or None, default None
        Column of the times: numbers, ISO dates or a bare order. Without times the order of the rows counts.
    weight : str, dict, Weighting or None, default None
        What a row counts: a column of numbers such as `"plays"`, scaled such as `"log1p(plays)"`, or kinds of events
        with a weight each, such as `{"view": 1, "cart": 3, "buy": 10}`. None counts all rows alike.
    event : str, int or None, default None
        Column of the kinds of events; needed only where `weight` names kinds and the column has no usual name.
    layout : str or None, default None
        The name of a published format, such as `"movielens-1m"`, or `"user-items"`: lines of a user and then items.
    separator : str or None, default None
        What separates the columns of a text file; None finds it in the first lines.
    header : bool or None, default None
        Whether the first line of a text file names the columns; None finds out.
    time_unit : {"s", "ms", "us", "ns", "yyyymmdd", "steps"} or None, default None
        What numbers in the time column count. None finds out: moments since 1973 become seconds since 1970, and all
        other numbers stay a bare order, of which no age such as `30d` is known.
    min_rating : float or None, default None
        Leave out lower ratings.
    distinct : bool, default True
        Leave each pair of user and item once, at its newest time, with what its rows count together.
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
    like : Interactions, model or None, default None
        Read as these were, or the model's: columns by their names, the minimum rating, weights, the unit of times, and
        the rule for repeats. The minima of users and items are not applied.

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
    ...     data = loca.read_interactions(path, min_rating=3)
    >>> data.users.values.tolist(), data.items.ids(data.items_of(0))
    (['ann'], ['milk', 'tea'])
    >>> import polars
    >>> frame = polars.DataFrame({"who": [1, 1, 2], "what": ["tea", "milk", "tea"], "plays": [2, 1, 5]})
    >>> data = loca.read_interactions(frame, user="who", item="what", weight="plays")
    >>> data.matrix().toarray().tolist()
    [[1.0, 2.0], [0.0, 5.0]]
    """
    request = ReadRequest(
        columns=_given_columns(user=user, item=item, rating=rating, time=time, event=event),
        schema=Schema(
            min_rating=_checked_minimum(min_rating),
            weighting=Weighting.of(weight),
            source_unit=cast(SourceUnit | None, time_unit),
            repeats="newest" if distinct else "all",
            min_user_interactions=min_user_interactions,
            min_item_interactions=min_item_interactions,
        ),
        layout=layout,
        separator=separator,
        header=header,
        repeat_filter=repeat_filter,
        keep_unused_items=keep_unused_items,
    )
    if like is not None:
        request = request.like(_schema_of(like))
    return read_with_remarks(source, request).with_recency(recency)


def read_with_remarks(source: Any, request: ReadRequest) -> Interactions:
    """Return the interactions of a source; what is worth knowing is told, and stands with them."""
    return tell_about(*read_table(source, request))


def tell_about(interactions: Interactions, table: TableRead | None) -> Interactions:
    """Tell what is worth knowing of a table before it is used, and keep it with its interactions."""
    remarks = () if table is None else tuple(table.remarks(interactions.schema))
    tell_remarks(remarks)
    return replace(interactions, remarks=joined_remarks(interactions.remarks, remarks))


def _given_columns(**columns: Column | None) -> dict[str, Column]:
    return {role: column for role, column in columns.items() if column is not None}


def _checked_minimum(min_rating: Any) -> float | None:
    """Return a minimum rating; refuse what is no number."""
    if isinstance(min_rating, np.generic):
        min_rating = min_rating.item()
    if min_rating is None:
        return None
    is_number = isinstance(min_rating, int | float) and not isinstance(min_rating, bool)
    if not is_number or not math.isfinite(min_rating):
        raise ConfigError(f"min_rating: expected a number, found {min_rating!r:.60}")
    return cast(float, min_rating)


def _schema_of(like: Any) -> Schema:
    """Return the schema of interactions, or of what a model was fitted on."""
    data = getattr(like, "train_data_", like)
    if not isinstance(data, Interactions):
        raise ConfigError(
            f"like: expected Interactions or a model fitted on some, found {type(like).__name__}"
        )
    return data.schema


@dataclass(frozen=True, kw_only=True)
class ReadRequest:
    """How a source is to be read: columns, the schema that its rows are to follow, and the form of a file.

    A later source (`is_later`) is read by the schema of an earlier one: columns of which it has the name
    are taken under that name, and what is told once of a source is not told again. Of targets that are to
    be found (`are_targets`) nobody needs the weights.
    """

    columns: Mapping[str, Column] = field(default_factory=dict)
    schema: Schema = field(default_factory=lambda: Schema(repeats="newest"))
    layout: str | None = None
    separator: str | None = None
    header: bool | None = None
    repeat_filter: bool = False
    keep_unused_items: bool = False
    is_later: bool = False
    are_targets: bool = False

    def like(self, schema: Schema) -> ReadRequest:
        """Return the request to read by an earlier schema; the unit of times may be named anew."""
        own = self.schema
        for name in ("weighting", "min_rating", "min_user_interactions", "min_item_interactions"):
            given, known = getattr(own, name), getattr(schema, name)
            is_free = name == "min_rating" and known is None
            is_other = given != known and str(given) != str(known)
            if given and is_other and not is_free:
                raise ConfigError(
                    f"{'weight' if name == 'weighting' else name}: later rows are read like the "
                    f"earlier ones ({known or 'without it'}); leave it out"
                )
        if own.source_unit is not None:
            schema = replace(schema, source_unit=own.source_unit)
        if schema.min_rating is None:
            schema = replace(schema, min_rating=own.min_rating)
        schema = replace(schema, min_user_interactions=0, min_item_interactions=0)
        return replace(self, schema=schema, is_later=True)

    def named_columns(self) -> list[Column]:
        """Return the columns that are named, which tell a line of names from a row."""
        weighting = self.schema.weighting
        earlier = [name for _, name in self.schema.columns] if self.is_later else []
        weights = [] if weighting is None or weighting.column is None else [weighting.column]
        return [*self.columns.values(), *weights, *earlier]

    @property
    def needed(self) -> tuple[str, ...]:
        """The roles that must have a column; ratings are looked for in a later source."""
        weighting = self.schema.weighting
        roles = ["user", "item"]
        if self.schema.min_rating is not None and not self.is_later:
            roles.append("rating")
        if weighting is not None:
            roles.append("event" if weighting.kinds else "weight")
        return tuple(roles)

    def columns_in(self, names: Sequence[str]) -> dict[str, Column]:
        """Return the columns that are named: by the request, by the weighting, or as in an earlier source."""
        found: dict[str, Column] = {}
        if self.is_later:
            found = {role: name for role, name in self.schema.columns if name in names}
        weighting = self.schema.weighting
        if weighting is not None and weighting.column is not None:
            found["event" if weighting.kinds else "weight"] = weighting.column
        return found | dict(self.columns)


@dataclass(frozen=True)
class Ratings:
    """The ratings of a table: the lowest and the highest, how many different ones, and the scale they seem to be on.

    `scale` is None where they look like counts. `low_share` is the share of those below the middle of the scale where
    others are above it, of which `high` is the lowest. `look_like_ids`: many different whole numbers on no scale.
    """

    lowest: float
    highest: float
    values: int
    scale: tuple[float, float] | None = None
    low_share: float = 0.0
    high: float | None = None
    look_like_ids: bool = False

    @classmethod
    def of(cls, ratings: pl.Series) -> Ratings | None:
        """Those of a column; None where it holds no number."""
        known = ratings.drop_nulls()
        if known.is_empty():
            return None
        values = known.unique().sort().to_numpy()
        lowest, highest = float(values[0]), float(values[-1])
        scale = _scale_of(lowest, highest)
        are_whole = bool((values == np.round(values)).all())
        look_like_ids = scale is None and are_whole and len(values) > _LIKE_IDS
        found = cls(lowest, highest, len(values), scale, look_like_ids=look_like_ids)
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
        found = f"{_full(self.lowest)} to {_full(self.highest)}, {self.values:,} different"
        if self.scale is not None:
            return f"{found}, on a scale of {self.scale[0]:g} to {self.scale[1]:g}"
        return f"{found}; these look like ids" if self.look_like_ids else found


def _scale_of(lowest: float, highest: float) -> tuple[float, float] | None:
    """Return the narrowest usual scale that holds ratings; None where they are none."""
    return next((one for one in _SCALES if one[0] <= lowest and highest <= one[1]), None)


def _full(number: float) -> str:
    """Return a number for people, whole ones with all their digits."""
    return f"{number:,.0f}" if number == round(number) else f"{number:g}"


@dataclass(frozen=True, kw_only=True)
class TableRead:
    """What was read of a table, and what is worth knowing of it.

    Parameters
    ----------
    name : str
        What messages call it.
    columns : ColumnChoice
        Which columns were taken.
    rows : int
        How many rows it has.
    ratings : Ratings or None
        The ratings, if there are any.
    low_share : float, default 0
        The share of the ratings that are left, those of at least the minimum, below the middle of the scale.
    later_than : Schema or None, default None
        How the rows of a fit were read, which these come after.
    low_rows : int, default 0
        How many rows are below the minimum rating.
    joined_rows : int, default 0
        How many rows were joined with an earlier one of the same user and item.
    about_ids : tuple of Remark, default ()
        What is odd about the ids.
    """

    name: str
    columns: tables.ColumnChoice
    rows: int
    ratings: Ratings | None = None
    low_share: float = 0.0
    later_than: Schema | None = None
    low_rows: int = 0
    joined_rows: int = 0
    about_ids: tuple[Remark, ...] = ()

    def lines(self) -> list[tuple[str, str]]:
        """What a person reads: name and value, one pair per line."""
        found, taken = self.ratings, self.columns.taken
        lines = [("columns", ", ".join(f"{role} = {column}" for role, column in taken.items()))]
        if self.columns.unused:
            lines.append(("columns not used", tables.listed(self.columns.unused)))
        if self.columns.times:
            lines.append(("columns of dates not used", tables.listed(list(self.columns.times))))
        orders = tables.order_columns(self.columns.unused)
        if orders and "time" not in taken:
            lines.append(("columns of an order not used", tables.listed(orders)))
        if found is not None:
            lines.append(("values of ratings", str(found)))
            if found.low_share:
                advice = f"; --min-rating {found.high:g} {_ABOVE}" if self.low_share else ""
                low = (
                    f"{100 * found.low_share:.0f} % of the ratings, below {found.middle:g}{advice}"
                )
                lines.append(("below the middle of the scale", low))
        if self.joined_rows:
            joined = f"{self.joined_rows:,}, joined with an earlier row of the same user and item"
            lines.append(("repeated rows", joined))
        return lines

    def remarks(self, schema: Schema) -> list[Remark]:
        """Return what a person should know before the table is used; of later rows what was not told at the fit."""
        if self.later_than is not None:
            return self._later_remarks(schema, self.later_than)
        found = self._guessed_columns()
        if self.has_low_likes():
            advice = f"min_rating={cast(Ratings, self.ratings).high:g} {_ABOVE}"
            found.append(
                Remark("low-ratings", f"{self._low_ratings(schema)}; {advice}{self._turn()}")
            )
        found += self._unread_ratings()
        if "time" not in self.columns.taken:
            found += self._ignored_times()
        if schema.weighting is None:
            found += self._ignored_weights()
        return [*found, *self.about_ids]

    def _later_remarks(self, schema: Schema, known: Schema) -> list[Remark]:
        """Return what is new of later rows."""
        found = self._guessed_columns()
        if schema.min_rating is not None and "rating" not in self.columns.taken:
            found.append(no_ratings(self.name, schema))
        if self.low_rows:
            text = f"with a rating below {schema.min_rating:g} left out, as at the fit"
            rows = many(self.low_rows, "row")
            found.append(Remark("ratings-left-out", f"{self.name}: {rows} {text}"))
        if not known.has_ratings:
            if self.has_low_likes():
                found.append(Remark("low-ratings", self._low_ratings(schema)))
            found += self._unread_ratings()
        return [*found, *self.about_ids]

    def _guessed_columns(self) -> list[Remark]:
        """Return that columns without names were taken by their positions."""
        guessed = self.columns.guessed
        if not guessed:
            return []
        taken = ", ".join(f"{role} = {self.columns.taken[role]}" for role in guessed)
        options = ", ".join(f"{role}=…" for role in guessed[:2])
        text = f"{self.name}: the columns have no names and were taken as {taken}"
        return [Remark("columns-guessed", f"{text}; say {options} if they are others")]

    def _unread_ratings(self) -> list[Remark]:
        """Return that ratings which nobody needs are no numbers."""
        seen = self.columns.seen
        if not seen.unread:
            return []
        column = self.columns.taken["rating"]
        count = "none" if self.ratings is None else f"{seen.unread:,}"
        text = f"column {column!r}: {count} of the {self.rows:,} ratings can be read as numbers"
        if self.ratings is not None:
            text = f"column {column!r}: {count} of the {self.rows:,} ratings are no numbers"
        text = f"{self.name}: {text}, such as {seen.example!r}; all rows count as likes"
        return [Remark("ratings-unreadable", text)]

    def _ignored_times(self) -> list[Remark]:
        """Return which columns may be the time or the order of a user's items."""
        found = []
        for column, look in self.columns.times.items():
            text = f"{self.name}: column {column!r} {look.text} but is not used"
            found.append(Remark("time-ignored", f"{text}; {look.mend}say time={look.option}"))
        for column in tables.order_columns(self.columns.unused):
            text = f"{self.name}: column {column!r} is not used; if it holds the order of each user's items"
            found.append(Remark("time-ignored", f"{text}, say time={column!r}"))
        return found

    def has_low_likes(self) -> bool:
        """Whether ratings below the middle of their scale count as likes."""
        taken = self.columns.taken
        are_weights = "weight" in taken and taken["weight"] == taken.get("rating")
        return self.low_share > 0 and not are_weights

    def _low_ratings(self, schema: Schema) -> str:
        ratings = cast(Ratings, self.ratings)
        lowest, highest = cast(tuple[float, float], ratings.scale)
        left = "" if schema.min_rating is None else f" of at least {schema.min_rating:g}"
        return (
            f"{self.name}: {100 * self.low_share:.0f} % of the ratings{left} are below {ratings.middle:g}, "
            f"the middle of their scale ({lowest:g} to {highest:g}), and count as likes"
        )

    def _turn(self) -> str:
        """Return what to do where the low ratings are the good ones, if most are low."""
        ratings = cast(Ratings, self.ratings)
        if ratings.low_share <= 0.5:
            return ""
        lowest, highest = cast(tuple[float, float], ratings.scale)
        turned = f"{lowest + highest:g} − rating" if lowest + highest else "−rating"
        return f"; if {lowest:g} is the best on your scale, turn it first ({turned})"

    def _ignored_weights(self) -> list[Remark]:
        """Return what columns of weights or of kinds of events are there and not used."""
        found = []
        for kind, role in (("events-ignored", "event"), ("weights-ignored", "weight")):
            place = tables.usual_position(role, self.columns.unused)
            if place is None:
                continue
            column = self.columns.unused[place]
            kinds, way = "", f"weight={column!r} uses it"
            if role == "event":
                kinds, way = self._kinds_of_events()
            text = f"{self.name}: all rows count the same, whatever column {column!r}{kinds} says"
            found.append(Remark(kind, f"{text}; {way}"))
        return found

    def _kinds_of_events(self) -> tuple[str, str]:
        """Return the kinds of events that are in the data, for a sentence, and how to weight them."""
        names = list(self.columns.seen.kinds)
        if not names:
            return "", "weight='view=1,buy=10' uses it"
        shown = names[:_SHOWN_KINDS]
        more = ", …" if len(names) > len(shown) else ""
        weights = ",".join(f"{name}=1" for name in shown)
        way = f"weight='{weights}{more.replace(' ', '')}' with weights of your own uses it"
        return f" ({', '.join(shown)}{more})", way


def read_table(source: Any, request: ReadRequest) -> tuple[Interactions, TableRead | None]:
    """Return the interactions of a source, and what was read of it: None of a matrix."""
    with collect_remarks() as collected:
        interactions, read = _read_table(source, request)
    return replace(interactions, remarks=collected.remarks), read


def _read_table(source: Any, request: ReadRequest) -> tuple[Interactions, TableRead | None]:
    schema = request.schema
    plan = None if request.layout is None else find_layout(request.layout)
    if plan is not None and not isinstance(source, str | Path):
        kind = "sparse matrix" if issparse(source) else type(source).__name__
        problem = f"layout {plan.name!r} says how a file is written"
        raise ConfigError(f"{problem}; it does not apply to a {kind}")
    read = None
    if issparse(source):
        if request.columns or schema.weighting is not None:
            raise ConfigError(
                "a sparse matrix has no columns; give it without user, item, rating, time and weight"
            )
        interactions = replace(_from_matrix(source, schema.min_rating), schema=schema)
    else:
        name = "the frame"
        if isinstance(source, str | Path):
            found = find_source(source, _PUBLISHED_TABLES if plan is None else plan.members)
            name, (table, choice) = found.name, read_file(found, request, plan)
            if plan is None and _is_published(found):
                choice = replace(choice, guessed=())
        else:
            table, choice = _read_frame(source, request)
        read = _look_at(table, name, choice, request)
        schema = _with_range(schema, read)
        columns = dict(choice.taken)
        schema = replace(schema, columns=tuple(columns.items()))
        if schema.weighting is not None:
            of_ratings = "weight" in columns and columns["weight"] == columns.get("rating")
            schema = replace(schema, weighting=schema.weighting.resolved(of_ratings=of_ratings))
        interactions = _number(table, schema, name)
        read = replace(read, about_ids=_about_ids(table, interactions, name))
    interactions.remark_same_events()
    if schema.repeats == "newest":
        rows = len(interactions)
        interactions = interactions.distinct()
        if read is not None:
            read = replace(read, joined_rows=rows - len(interactions))
    minima = schema.min_user_interactions, schema.min_item_interactions
    if schema.min_rating is not None or schema.weighting is not None or any(minima):
        interactions = keep_active(
            interactions, *minima, request.repeat_filter, request.keep_unused_items
        )
    return interactions, read


def _look_at(
    table: pl.DataFrame, name: str, choice: tables.ColumnChoice, request: ReadRequest
) -> TableRead:
    """Return what is worth knowing of the columns of a table, and of its ratings."""
    earlier = request.schema if request.is_later else None
    read = TableRead(name=name, columns=choice, rows=len(table), later_than=earlier)
    if "rating" not in table.columns:
        return read
    found = Ratings.of(table["rating"])
    if found is None:
        return read
    read = replace(read, ratings=found, low_share=found.low_share)
    minimum = request.schema.min_rating
    if minimum is None:
        return read
    left = table["rating"].filter(table["rating"] >= minimum)
    low_share = 0.0
    if found.high is not None and found.scale is not None and len(left):
        low_share = float(np.mean(left.to_numpy() < found.middle))
    return replace(read, low_share=low_share, low_rows=len(table) - len(left))


def _with_range(schema: Schema, read: TableRead) -> Schema:
    """Return the schema with the range of the ratings; refuse later ratings on another scale than those of the fit."""
    found, columns = read.ratings, read.columns.taken
    if found is None:
        return schema
    known = schema.rating_range
    if read.later_than is None or known is None:
        return replace(schema, rating_range=(found.lowest, found.highest))
    are_weights = "weight" in columns and columns["weight"] == columns.get("rating")
    scale = _scale_of(*known)
    if scale is None or not (are_weights or schema.min_rating is not None):
        return schema
    if found.highest > max(scale[1], _ANOTHER_SCALE * known[1]):
        ranges = (
            f"ratings run from {found.lowest:g} to {found.highest:g}, and those of the fit from"
        )
        advice = "bring them to the scale of the fit"
        raise DataError(f"{read.name}: {ranges} {known[0]:g} to {known[1]:g}; {advice}")
    return schema


def _about_ids(table: pl.DataFrame, found: Interactions, name: str) -> tuple[Remark, ...]:
    """Return what is odd about ids: some stand for nothing, look alike, or have lost digits."""
    remarks = []
    for role, ids in (("user", found.users), ("item", found.items)):
        if ids.values.dtype != object:
            if ids.values.dtype.kind == "f" and (np.abs(ids.values) >= _LAST_EXACT_FLOAT).any():
                text = f"{name}: {role} ids are fractions from 2^53 on, which have lost digits"
                remarks.append(Remark("ids-rounded", f"{text}; read them as text or whole numbers"))
            continue
        distinct = pl.Series(ids.values.tolist(), dtype=pl.String)
        empty = distinct.filter(distinct.is_in(_STAND_FOR_NOTHING)).to_list()
        if empty:
            rows = int(table[role].is_in(empty).sum())
            has = "has" if rows == 1 else "have"
            text = f"{name}: {many(rows, 'row')} {has} {' or '.join(map(repr, empty))} as {role} id"
            advice = "if that stands for a missing id, leave these rows out"
            remarks.append(Remark("missing-ids", f"{text}; {advice}"))
        is_rounded = distinct.str.contains(_ROUNDED_ID)
        if is_rounded.sum() > _MOST_IDS * len(distinct):
            text = f"{name}: {role} ids such as {distinct.filter(is_rounded)[0]!r} were rounded"
            remarks.append(Remark("ids-rounded", f"{text}; export them as text"))
        plain = _plain_ids(distinct)
        is_alike = plain.is_duplicated()
        alike = distinct.filter(is_alike)
        if len(alike) and len(alike) >= _LEAST_ALIKE_IDS * len(distinct):
            pair = distinct.filter(plain == plain.filter(is_alike)[0])
            text = (
                f"{name}: {len(alike):,} of the {len(distinct):,} {role} ids differ from another one "
                "only by upper and lower case, by signs that cannot be seen or by '.0', "
                f"such as {pair[0]!a} and {pair[-1]!a}"
            )
            remarks.append(Remark("ids-alike", f"{text}; if they mean the same, write them alike"))
    return tuple(remarks)


def _plain_ids(ids: pl.Series) -> pl.Series:
    """Return ids without what a person does not see, or takes for the same: case, spaces, '.0'."""
    plain = ids.str.normalize("NFKC").str.to_lowercase()
    plain = plain.str.replace_all(_UNSEEN, "").str.replace_all(r"\s+", " ")
    return plain.str.replace(r"^([0-9]+)\.0+$", "$1")


def _is_published(source: Source) -> bool:
    """Return whether a file has the name of a published one, with that of its folder."""
    parts = PurePosixPath(source.member or source.path.absolute().as_posix()).parts
    members = [PurePosixPath(member).parts for member in _PUBLISHED_TABLES]
    return any(parts[-len(member) :] == member for member in members)


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
    request = ReadRequest(
        schema=Schema(repeats="all", min_user_interactions=10),
        layout=layout or layout_of(find_preset(name), source),
        keep_unused_items=True,
    )
    interactions, _ = read_table(source, request)
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
                raise NothingLeftError(
                    f"{_NOBODY}: at least {minima[what]} interactions per {what}, {found}"
                )
    left = left if left.counts().all() else left.of_users(left.counts() > 0)
    is_used = np.bincount(left.item_rows, minlength=left.n_items) > 0
    return left if keep_unused or is_used.all() else left.of_items(is_used)


def _at_least(ratings: npt.NDArray[Any], minimum: float) -> npt.NDArray[np.bool_]:
    is_rated = np.asarray(ratings >= minimum)
    if not is_rated.any():
        raise NothingLeftError(
            f"{_NOBODY}: ratings of at least {minimum:g}, but the highest is {ratings.max()}"
        )
    return is_rated


# -- From a table or a matrix to interactions --------------------------------------------------------------------------


def _number(table: pl.DataFrame, schema: Schema, name: str) -> Interactions:
    """Interactions of a table with the columns user, item and perhaps rating, time, weight and event.

    Ids are numbered in sorted order, so that the same events in another order of rows give the same model. Those
    without a high enough rating keep their number.
    """
    maps, rows = [], []
    for what in ("user", "item"):
        distinct = table[what].unique().sort()
        is_text = distinct.dtype == pl.String
        values = np.array(distinct.to_list(), dtype=object) if is_text else distinct.to_numpy()
        maps.append(IdMap(values, what))
        places = (
            table[what].cast(pl.Enum(distinct)).to_physical()
            if is_text
            else distinct.search_sorted(table[what])
        )
        rows.append(places.to_numpy().astype(np.int32))
    times, schema = _times_of(table, schema, name)
    weights = _weights_of(table, schema, name)
    is_row = np.ones(len(table), dtype=bool)
    if schema.min_rating is not None and "rating" in table.columns:
        is_row &= _at_least(table["rating"].to_numpy(), schema.min_rating)
    if weights is not None:
        is_row &= weights > 0
        if not is_row.any():
            raise NothingLeftError(f"{_NOBODY}: all rows have the weight 0")
    return Interactions.from_events(
        maps[0],
        maps[1],
        rows[0][is_row],
        rows[1][is_row],
        None if times is None else times[is_row],
        None if weights is None else weights[is_row],
        schema,
    )


def _times_of(
    table: pl.DataFrame, schema: Schema, name: str
) -> tuple[npt.NDArray[Any] | None, Schema]:
    """Return the times, seconds since 1970 where that is known, and the schema with their unit."""
    if "time" not in table.columns:
        return None, replace(schema, time_unit=None)
    instants = table["time"]
    if instants.dtype == pl.Datetime:
        micro = instants.dt.epoch("us").to_numpy()
        return as_seconds(micro, "us"), replace(schema, time_unit="seconds")
    times = instants.to_numpy()
    unit = unit_of_column(times, schema.source_unit, name)
    if unit == "steps":
        return times, replace(schema, time_unit="steps")
    return as_seconds(times, unit), replace(schema, time_unit="seconds")


def _weights_of(table: pl.DataFrame, schema: Schema, name: str) -> npt.NDArray[np.float64] | None:
    """Return what each row counts, from 0 on; None where all count alike."""
    weighting = schema.weighting
    if weighting is None or not {"event", "weight"} & set(table.columns):
        return None  # targets may come without what they count
    if weighting.kinds:
        weight_of = dict(weighting.kinds)
        events = table["event"].unique().to_list()
        unknown = sorted(event for event in events if event not in weight_of)
        if unknown:
            known = ", ".join(weight_of)
            nearest = did_you_mean(unknown[0], weight_of) or f"; the weights name {known}"
            advice = f"give each a weight, 0 to leave it out{nearest}"
            raise DataError(f"{name}: no weight for events {tables.listed(unknown)}; {advice}")
        weights = table["event"].replace_strict(weight_of, return_dtype=pl.Float64).to_numpy()
    else:
        weights = table["weight"].cast(pl.Float64).to_numpy()
    below = np.flatnonzero(weights < 0)
    if len(below):
        found = f"found {weights[below[0]]:g} in row {below[0] + 1}"
        raise DataError(f"{name}: weights: expected numbers ≥ 0, {found}")
    # Of so many bits that sums of them do not depend on their order.
    return np.asarray(weights.astype(np.float32), dtype=np.float64)


def _from_matrix(matrix: Any, min_rating: float | None) -> Interactions:
    """Interactions of a sparse users × items matrix of weights, or with a minimum of ratings."""
    rows = csr_array(matrix, copy=True)
    rows.eliminate_zeros()
    if rows.nnz == 0:
        raise DataError(f"the sparse matrix of shape {rows.shape} holds no entry")
    if min_rating is None:
        return Interactions.from_matrix(rows)
    sizes = check_entries(abs(rows), "the matrix")  # what is below 0 is a low rating
    is_rated = _at_least(rows.data, min_rating)
    return Interactions.from_matrix(sizes).unweighted().where(is_rated)


# -- Files and frames --------------------------------------------------------------------------------------------------


def read_file(
    source: Source,
    request: ReadRequest | None = None,
    layout: Layout | None = None,
    block_bytes: int = BLOCK_BYTES,
) -> tuple[pl.DataFrame, tables.ColumnChoice]:
    """Return the columns of a file that a request needs, each of one kind and without gaps.

    These are user, item and, where there are such, rating and time. Ratings that are not needed may have gaps. Beside
    the table comes which column was taken as what. Text is read in blocks of about `block_bytes`; what is read does not
    depend on where they end.
    """
    request = ReadRequest() if request is None else request
    given = request.columns
    head = source.read(HEAD_BYTES)
    form = "Parquet" if head.startswith(PARQUET_MARK) else "JSON" if is_json(head) else "text"
    if layout is not None and form != ("JSON" if layout.is_json else "text"):
        raise DataError(
            f"{source.name}: expected the layout {layout.name} ({layout.about}), found {form}"
        )
    standard = {} if layout is None else layout.columns
    if layout is not None and layout.is_lists:
        return _read_lists(source, request, block_bytes)
    if form == "Parquet":
        try:
            lazy = pl.scan_parquet(source.path if source.is_plain() else io.BytesIO(source.read()))
            return _read_frame(lazy, request, source.name, standard)
        except UNREADABLE as error:
            raise DataError(
                f"{source.name}: cannot be read as Parquet ({str(error).splitlines()[0]})"
            ) from error
    if form == "JSON":
        return _read_json_lines(source, request, block_bytes, standard)
    separators = tables.SEPARATORS if layout is None else layout.separators
    named = [
        column
        for column in request.named_columns()
        if isinstance(column, str) and not column.isdigit()
    ]
    separator = request.separator
    shape = tables.find_shape(
        source,
        separators if separator is None else (separator,),
        request.header,
        named,
        otherwise=True if any(column in named for column in given.values()) else None,
    )
    is_unknown = layout is None and shape.names is None and not {"user", "item"} & given.keys()
    if is_unknown and not given and tables.are_lists(shape):
        text = f"{source.name}: read as user-items ({LAYOUTS['user-items'].about})"
        remark("ids-read-as", text)
        return _read_lists(source, request, block_bytes)
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
                about = LAYOUTS[name].about
                text = f"{source.name}: read as {name}, by the shapes of its ids ({about})"
                remark("ids-read-as", text)
                standard = LAYOUTS[name].columns
                break
        else:
            if layout is not None:
                advice = "name the layout amazon-ratings-2014 (user first) or amazon-ratings-2018 (item first)"
                problem = "the first two columns do not look like Amazon's reviewers and products"
                raise DataError(f"{source.name}: {problem}; {advice}")
    header = shape.names or shape.width
    plan = ColumnPlan.of(request, header, source.name, standard)
    full = [row for row in shape.sample if len(row) == shape.width]

    def sample(place: int) -> list[str]:
        return [row[place] for row in full]

    names = shape.names or [str(place) for place in range(shape.width)]
    plan.check_sample(names, sample, source.name)
    choice = plan.choice(names, sample)
    table = tables.read_delimited(source, shape, plan.places, plan.needed, block_bytes, choice.seen)
    return plan.completed(table), choice


_WEIGHT_ROLES = ("event", "weight")


def _weights_place(
    role: str, column: Column | None, names: Sequence[str], where: str, are_targets: bool
) -> int | None:
    """Return the position of the column of events or weights; None where targets come without it."""
    if are_targets and column not in names:
        return tables.usual_position(role, names)
    if column is not None:
        return tables.position_of(column, names, where)
    place = tables.usual_position(role, names)
    if place is None:
        problem = f"cannot tell which column holds the {role}s"
        listed = tables.listed(names)
        raise DataError(f"{where}: {problem}; the columns are {listed}; say {role}=…")
    return place


@dataclass(frozen=True)
class ColumnPlan:
    """The position of the column of each role, the roles that need a value in every row, and the weights' column.

    A column of events that is not `needed` is looked at and not taken. The roles in `guessed` were taken by position.
    """

    places: Mapping[str, int]
    needed: tuple[str, ...]
    weights_are_ratings: bool = False
    time_is_named: bool = False
    guessed: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        request: ReadRequest,
        header: Sequence[str] | int,
        where: str,
        standard: Mapping[str, Column],
    ) -> ColumnPlan:
        """Find the columns that a request needs among those of a header, or among so many without names."""
        names = [str(place) for place in range(header)] if isinstance(header, int) else header
        columns = {**standard, **request.columns_in(names)}
        weighting = {role: columns.pop(role, None) for role in _WEIGHT_ROLES}
        needed = [role for role in request.needed if role not in _WEIGHT_ROLES]
        places = tables.find_columns(columns, header, where, needed)
        if request.schema.min_rating is not None and "rating" in places:
            needed.append("rating")
        weights_are_ratings = False
        for role in [role for role in request.needed if role in _WEIGHT_ROLES]:
            place = _weights_place(role, weighting[role], names, where, request.are_targets)
            if place is None:
                continue
            if role == "weight" and place == places.get("rating"):
                weights_are_ratings = True
                needed.append("rating")
                continue
            if place in places.values():
                twice = f"{names[place]!r} as {role} and as something else"
                raise DataError(f"{where}: one column cannot hold two things, found {twice}")
            places[role] = place
            needed.append(role)
        guessed: tuple[str, ...] = ()
        if isinstance(header, int):
            guessed = tuple(role for role in tables.ROLES if role in places and role not in columns)
        elif request.schema.weighting is None and not request.is_later:
            event = tables.usual_position("event", names)
            if event is not None and event not in places.values():
                places["event"] = event
        return cls(places, tuple(needed), weights_are_ratings, "time" in columns, guessed)

    def check_sample(
        self, names: Sequence[str], sample: Callable[[int], Sequence[Any]], where: str
    ) -> None:
        """Refuse columns that by some of their values are not what they were taken for.

        These are days in one column and hours in another, unless somebody said which column is the time; and moments
        in the place of the ratings, where ratings and times were guessed.
        """
        if not self.time_is_named:
            tables.check_hours(self.places, names, sample, where)
        if not {"rating", "time"} <= set(self.guessed):
            return
        rating, time = self.places["rating"], self.places["time"]
        look = tables.TimeLook.of(sample(rating))
        if look is not None and tables.TimeLook.of(sample(time)) is None:
            problem = f"column {rating}, in the place of the ratings, {look.text}"
            other = f"column {time}, in the place of the times, does not"
            advice = f"say rating={time}, time={rating}, or name all columns"
            raise DataError(f"{where}: {problem}, and {other}; {advice}")

    def completed(self, table: pl.DataFrame) -> pl.DataFrame:
        """Return the table with the ratings as weights too, where they are these."""
        if not self.weights_are_ratings:
            return table
        return table.with_columns(pl.col("rating").alias("weight"))

    def choice(
        self, names: Sequence[str], sample: Callable[[int], Sequence[Any]]
    ) -> tables.ColumnChoice:
        """Return the choice of columns with that of the weights; `sample` gives some values of a column."""
        is_taken = {role: role != "event" or role in self.needed for role in self.places}
        places = {role: place for role, place in self.places.items() if is_taken[role]}
        choice = replace(tables.ColumnChoice.of(places, names, sample), guessed=self.guessed)
        if not self.weights_are_ratings:
            return choice
        taken = {**choice.taken, "weight": names[self.places["rating"]]}
        return replace(choice, taken=taken)


def _read_lists(
    source: Source, request: ReadRequest, block_bytes: int
) -> tuple[pl.DataFrame, tables.ColumnChoice]:
    for role in [*request.columns, *request.needed]:
        if role in ("user", "item") and role not in request.columns:
            continue
        raise DataError(
            f"{source.name}: lines of a user and then items have no column for the {role}s"
        )
    return tables.read_lists(source, block_bytes), _LISTS


def _read_frame(
    frame: Any,
    request: ReadRequest,
    where: str = "the frame",
    standard: Mapping[str, Column] = MappingProxyType({}),
) -> tuple[pl.DataFrame, tables.ColumnChoice]:
    known = _known_frame(frame)
    names = [str(name) for name in known.collect_schema().names()]
    plan = ColumnPlan.of(request, names, where, standard)
    places = plan.places
    as_text = [list(places).index(role) for role in ("rating", "event") if role in places]
    time = list(places).index("time") if "time" in places else None
    columns = known.select(*(nw.nth(place) for place in places.values()))
    table = as_polars(columns, where, time, as_text)
    if table.is_empty():
        raise DataError(f"{where}: there is no row")
    table.columns = list(places)
    others = [place for place in range(len(names)) if place not in places.values()]
    samples = _samples(known, others)

    def sample(place: int) -> list[Any]:
        """Return some values of a column; those that were read are not asked for again."""
        for role, read_place in places.items():
            if read_place == place:
                return table[role].head(_SAMPLE_OBJECTS).to_list()
        return samples(place)

    plan.check_sample(names, sample, where)
    choice = plan.choice(names, sample)

    def place_of(row: int) -> str:
        return f"{where} row {row + 1}"

    named = {role: names[place] for role, place in places.items()}
    tables.check_repeated_names(table, named, place_of, "row")
    read = tables.typed(table, where, place_of, plan.needed, seen=choice.seen)
    return plan.completed(read.rechunk()), choice


def _samples(
    frame: nw.DataFrame[Any] | nw.LazyFrame[Any], places: Sequence[int]
) -> Callable[[int], list[Any]]:
    """Return a function that gives some values of a column; those at `places` are read together, when first asked."""
    found: dict[int, list[Any]] = {}

    def sample(place: int) -> list[Any]:
        if not found:
            part = frame.select(*(nw.nth(one) for one in places)).head(_SAMPLE_OBJECTS)
            collected = part.collect() if isinstance(part, nw.LazyFrame) else part
            values = (column.to_list() for column in collected.iter_columns())
            found.update(zip(places, values, strict=True))
        return found[place]

    return sample


def as_polars(
    frame: Any, where: str = "the frame", time: int | None = None, as_text: Sequence[int] = ()
) -> pl.DataFrame:
    """Return any frame that narwhals knows as a polars one; columns of Python's objects as text or numbers.

    Dates among such objects are taken in the column at the place `time` alone, and objects of any kind, as text, in
    those at the places `as_text`.
    """
    known = _known_frame(frame)
    table = known.collect() if isinstance(known, nw.LazyFrame) else known
    if nw.Object in table.schema.dtypes():
        return pl.DataFrame(
            [
                pl.Series(column.name, column)
                if column.dtype != nw.Object
                else _texts_of_objects(column.name, column.to_list())
                if place in as_text
                else _from_objects(where, column.name, column.to_list(), place == time)
                for place, column in enumerate(table.iter_columns())
            ]
        )
    # The index of a pandas frame comes along as a last column.
    return pl.DataFrame(pl.DataFrame(table).get_columns()[: len(table.columns)])


def _from_objects(where: str, name: str, values: list[Any], is_time: bool) -> pl.Series:
    """Return a column of Python's objects: text, UUIDs as text, numbers, or times; a mixture is refused."""
    known = _without_gaps(values)
    instants = tables.instants_of_objects(name, known) if is_time else None
    if instants is not None:
        return instants
    kinds = {type(one) for one in known if one is not None}
    if kinds <= {str, UUID}:
        return pl.Series(
            name, [None if one is None else str(one) for one in known], dtype=pl.String
        )
    if bool not in kinds and all(issubclass(kind, int | float | np.number) for kind in kinds):
        return pl.Series(name, known, strict=False)
    found = " and ".join(sorted(kind.__name__ for kind in kinds))
    advice = f"convert it, such as frame[{name!r}].astype(str)"
    raise DataError(
        f"{where} column {name!r}: expected all text or all numbers, found {found}; {advice}"
    )


def _texts_of_objects(name: str, values: list[Any]) -> pl.Series:
    texts = [None if value is None else str(value) for value in _without_gaps(values)]
    return pl.Series(name, texts, dtype=pl.String)


def _without_gaps(values: list[Any]) -> list[Any]:
    """Return the values with None for NaN and NaT, pandas' words for a gap."""
    return [None if value is None or value != value else value for value in values]


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
    source: Source, request: ReadRequest, block_bytes: int, standard: Mapping[str, Column]
) -> tuple[pl.DataFrame, tables.ColumnChoice]:
    head = source.read(HEAD_BYTES)
    if head.lstrip()[:1] == b"[":
        raise DataError(f"{source.name}: expected JSON lines, one object a line, found a JSON list")
    whole_lines = head[: head.rfind(b"\n") + 1] or head
    sample = [one for _, one in islice(json_objects(source.name, whole_lines), _SAMPLE_OBJECTS)]
    names = list(dict.fromkeys(name for one in sample for name in one))
    plan = ColumnPlan.of(request, names, source.name, standard)
    needed = plan.needed
    places = plan.places
    values = [[one.get(name) for one in sample] for name in names]
    plan.check_sample(names, values.__getitem__, source.name)
    choice = plan.choice(names, values.__getitem__)
    free = [role for role in ("rating", "event") if role in places and role not in needed]
    fields = {role: names[place] for role, place in places.items()}
    schema = {name: _json_kind([one.get(name) for one in sample]) for name in fields.values()}
    for role in ("rating", "weight"):
        if role in fields and schema[fields[role]] == pl.Int64:
            schema[fields[role]] = pl.Float64()  # 5 may be followed by 4.5
    for role in [*free, *(["rating"] if "rating" in fields else [])]:
        kinds = {type(value) for value in values[places[role]] if value is not None}
        if not kinds <= {int, float}:
            schema[fields[role]] = pl.String()

    def read(first_line: int, data: bytes) -> pl.DataFrame:
        try:
            table = pl.read_ndjson(io.BytesIO(data), schema=schema)
            table = table.select(pl.col(column).alias(role) for role, column in fields.items())
            seen = tables.Seen()
            read = tables.typed(table, source.name, str, needed, seen=seen)
            choice.seen.add(seen)
            return read
        except (pl.exceptions.PolarsError, DataError):
            # A kind that changes on the way, or a mistake whose line must be found.
            return read_line_by_line(first_line, data)

    def read_line_by_line(first_line: int, data: bytes) -> pl.DataFrame:
        places, objects, columns = [], [], []
        for line, one in json_objects(source.name, data, first_line):
            places.append(f"{source.name} line {line}")
            objects.append(one)
            for role, column in fields.items():
                value = one.get(column)
                if role in free:
                    is_text = isinstance(value, str | None)
                    one[column] = value if is_text else json.dumps(value)
                elif role == "rating" and isinstance(value, bool):
                    one[column] = int(value)
                elif value is None:
                    raise DataError(
                        f"{places[-1]}: no {column!r}; the fields are {tables.listed(list(one))}"
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
        for role, column in fields.items():
            values = [one[column] for one in objects]
            kind = pl.String() if role in free else _json_kind(values)
            if role in free:
                columns.append(pl.Series(role, values, dtype=kind))
                continue
            columns.append(
                pl.Series(
                    role, [str(one) for one in values] if kind == pl.String else values, dtype=kind
                )
            )
        return tables.typed(
            pl.DataFrame(columns), source.name, places.__getitem__, needed, seen=choice.seen
        )

    table = tables.read_blocks(source, read, block_bytes)
    return plan.completed(table), choice


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
