"""Text tables read block by block: quick where all is well, line by line where a mistake must be pointed out."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import polars as pl

from loca.data.archives import BLOCK_BYTES, HEAD_BYTES, Source
from loca.data.id_map import Column
from loca.errors import DataError, did_you_mean

# Usual names of each role, without case and marks; the first that is found is taken.
_USUAL_NAMES = {
    "user": (
        *("user", "userid", "uid", "usernumber", "username", "reviewerid", "reviewer", "customerid", "customer"),
        *("visitorid", "memberid", "playerid", "listenerid", "readerid"),
    ),
    "item": (
        *("item", "itemid", "iid", "movieid", "movie", "parentasin", "asin", "businessid", "business", "productid"),
        *("product", "bookid", "isbn", "gameid", "gmapid", "trackid", "songid", "artistid", "venueid", "articleid"),
    ),
    "title": ("title", "movietitle", "name", "itemname", "productname", "label"),
    "rating": ("rating", "ratings", "overall", "stars", "score", "rate"),
    "time": (
        *("timestamp", "time", "ts", "unixreviewtime", "unixtime", "eventtime", "datetime", "createdat", "date"),
        *("rank", "order", "position"),
    ),
}


@dataclass(frozen=True)
class Columns:
    """The column of each role by name or by position counted from 0; None where it is not given.

    Ratings are read only where `rating_needed`: without a threshold every interaction counts the same.
    """

    user: Column | None = None
    item: Column | None = None
    rating: Column | None = None
    time: Column | None = None
    rating_needed: bool = False

    def by_role(self) -> dict[str, Column | None]:
        """Role to column, in the order user, item, rating, time."""
        return {"user": self.user, "item": self.item, "rating": self.rating, "time": self.time}

    def filled_from(self, other: Columns) -> Columns:
        """The same, with what is not given here taken from `other`."""
        first = {role: other.by_role()[role] if column is None else column for role, column in self.by_role().items()}
        return Columns(**first, rating_needed=self.rating_needed)

    def names(self) -> list[str]:
        """The columns given by name."""
        return [column for column in self.by_role().values() if isinstance(column, str) and not column.isdigit()]


@dataclass(frozen=True)
class Places:
    """The position of each role's column in the table; rating and time may be absent."""

    user: int
    item: int
    rating: int | None = None
    time: int | None = None

    def by_role(self) -> dict[str, int]:
        """Role to position, in the order user, item, rating, time, without the absent ones."""
        found = {"user": self.user, "item": self.item, "rating": self.rating, "time": self.time}
        return {role: place for role, place in found.items() if place is not None}


def is_usual_name(name: str) -> bool:
    """Whether a table's first row that holds this text is likely to be a header."""
    return any(_plain(name) in names for names in _USUAL_NAMES.values())


def place_named(asked: Columns, names: Sequence[str], where: str) -> Places:
    """The places of the asked columns among named ones; a role that was not asked for is guessed by its usual names."""
    found = {
        role: guess_place(role, names) if column is None else place_of(column, names, where)
        for role, column in asked.by_role().items()
    }
    return _settled({role: place for role, place in found.items() if place is not None}, asked, names, where)


def place_unnamed(asked: Columns, width: int, where: str) -> Places:
    """The places of the asked columns in a table without a header.

    What was not asked for is taken from the usual order (user, item, rating, time) where that leaves no doubt:
    two columns, four columns, or three of which the third is asked for.
    """
    names = [str(place) for place in range(width)]
    given = {role: column for role, column in asked.by_role().items() if column is not None}
    places = {role: place_of(column, names, where) for role, column in given.items()}
    clear = width in (2, 4) or (width == 3 and ("rating" in places or "time" in places))
    if not clear and not {"user", "item"} <= places.keys():
        raise DataError(
            f"{where}: {width} columns without names, so user, item, rating and time cannot be told apart; "
            "give their positions, such as user=0, item=1, time=2"
        )
    for place, role in enumerate(("user", "item", "rating", "time")[: 4 if width == 4 else 2]):
        if clear and role not in places and place not in places.values():
            places[role] = place
    return _settled(places, asked, names, where)


def _settled(places: dict[str, int], asked: Columns, names: Sequence[str], where: str) -> Places:
    needed = ("user", "item", "rating") if asked.rating_needed else ("user", "item")
    missing = [role for role in needed if role not in places]
    if missing:
        raise DataError(
            f"{where}: cannot tell which column holds the {missing[0]}s; the columns are {', '.join(names)}; "
            f"say {missing[0]}=…"
        )
    if len(set(places.values())) < len(places):
        listed = ", ".join(f"{role}={names[place]}" for role, place in places.items())
        raise DataError(f"{where}: one column cannot hold two things, found {listed}")
    rating = places.get("rating") if asked.rating_needed else None
    return Places(places["user"], places["item"], rating, places.get("time"))


def place_of(column: Column, names: Sequence[str], where: str) -> int:
    """The place of a column given by name or position; an unknown one is refused with the columns found."""
    if isinstance(column, str) and column in names:
        return list(names).index(column)
    # A command line hands over text; "0" means the first column where no column has that name.
    if isinstance(column, str) and not column.isdigit():
        listed = ", ".join(names)
        raise DataError(f"{where}: no column {column!r}; the columns are {listed}{did_you_mean(column, names)}")
    place = int(column)
    if not 0 <= place < len(names):
        raise DataError(f"{where}: no column {place}; there are {len(names)}, counted from 0")
    return place


def guess_place(role: str, names: Sequence[str]) -> int | None:
    """The place of the first usual name of a role (user, item, rating, time or title), or None."""
    plain = [_plain(name) for name in names]
    return next((plain.index(usual) for usual in _USUAL_NAMES[role] if usual in plain), None)


def _plain(name: str) -> str:
    # RecBole writes "user_id:token"; what stands behind the colon is a type.
    return "".join(letter for letter in name.split(":")[0].lower() if letter.isalnum())


# The most telling first: a comma may stand inside a tab separated field, a space inside almost any.
SEPARATORS = ("::", "\t", ",", ";", "|", " ")
_QUOTING_SEPARATORS = (",", "\t", ";")
_SAMPLE_LINES = 50
# A review beside the ratings may be longer than the 128 kB at which Python's csv gives up.
csv.field_size_limit(2**31 - 1)


@dataclass(frozen=True)
class Shape:
    """How lines are cut; `names` is the header or None, `skipped` lines come before the rows, `sample` holds a few."""

    separator: str
    width: int
    names: tuple[str, ...] | None
    skipped: int
    sample: tuple[tuple[str, ...], ...]

    @property
    def quoted(self) -> bool:
        """Whether a field may stand in quotes; the `::` and `|` files of MovieLens hold bare quote marks."""
        return self.separator in _QUOTING_SEPARATORS


def find_shape(
    source: Source,
    *,
    separators: Sequence[str] = SEPARATORS,
    header: bool | None = None,
    known_names: Sequence[str] = (),
) -> Shape:
    """The shape of a text table, from its first lines; a first line that holds one of `known_names` is a header."""
    head = source.head()
    if b"\0" in head:
        raise DataError(f"{source.name}: expected text, found the bytes of another kind of file")
    if len(head) > HEAD_BYTES - 4:  # the last line may be cut, even inside a letter
        head = head[: head.rfind(b"\n") + 1] or head
    lines = [line.rstrip("\r") for line in as_text(head).split("\n")]
    first = next((place for place, line in enumerate(lines) if line.strip()), None)
    if first is None:
        raise DataError(f"{source.name}: the file is empty")
    lines = [line for line in lines[first : first + _SAMPLE_LINES] if line.strip()]
    separator = guess_separator(lines, separators)
    rows = [tuple(cut(line, separator)) for line in lines]
    if len(rows[0]) == 1:
        _check_one_column(source, lines, separators)
    named = _has_header(rows, known_names) if header is None else header
    names = tuple(name.strip() for name in rows[0]) if named else None
    return Shape(separator, len(rows[0]), names, first + named, tuple(rows[named:]))


def records(text: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Each record with the number of its first line; a blank line is a record with one blank field."""
    if separator in _QUOTING_SEPARATORS:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
        line = 1
        for record in reader:
            yield line, record or [""]
            line = reader.line_num + 1
    else:
        for line, record_text in enumerate(text.removesuffix("\n").split("\n"), 1):
            yield line, record_text.rstrip("\r").split(separator)


def cut(line: str, separator: str) -> list[str]:
    """The fields of one line."""
    return next(records(line, separator))[1]


def guess_separator(lines: Sequence[str], separators: Sequence[str] = SEPARATORS) -> str:
    """The separator that cuts most of the lines into the same number of fields, more than one."""

    def agreement(separator: str) -> int:
        widths = [len(cut(line, separator)) for line in lines]
        return max((widths.count(width) for width in set(widths) if width > 1), default=0)

    return max(separators, key=agreement)


def as_text(data: bytes) -> str:
    """The text of UTF-8 bytes, or of Latin-1 ones where they are not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def as_utf8(data: bytes) -> bytes:
    """The same text in UTF-8."""
    return data if data.isascii() else as_text(data).encode()


def _check_one_column(source: Source, lines: Sequence[str], separators: Sequence[str]) -> None:
    tried = " or ".join(repr(one) for one in separators)
    other = guess_separator(lines)
    seems = f"the file seems to be split by {other!r}" if len(cut(lines[0], other)) > 1 else "expected at least two"
    raise DataError(f"{source.name}: one column found when split by {tried}; {seems}")


def _has_header(rows: Sequence[Sequence[str]], known_names: Sequence[str]) -> bool:
    first = [name.strip() for name in rows[0]]
    if any(name in known_names or is_usual_name(name) for name in first):
        return True
    if any(_is_number(name) for name in first):
        return False
    return any(_is_number(value) for value in rows[min(1, len(rows) - 1)])


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


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


def check_gaps(role: str, values: pl.Series, read: pl.Series, place: Callable[[int], str]) -> None:
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


# A byte that no text holds, in place of a separator that is longer than one byte.
_STAND_IN = "\x1f"


def read_delimited(source: Source, shape: Shape, places: Places, block_bytes: int = BLOCK_BYTES) -> pl.DataFrame:
    """The columns user, item and, where they have a place, rating and time, each of one kind and without gaps."""
    typed: dict[str, pl.DataFrame] = {}
    for first_line, data in source.line_blocks(block_bytes, quoted=shape.quoted):
        skipped = shape.skipped if first_line == 1 else 0
        body = data.split(b"\n", skipped)[-1] if data.count(b"\n") >= skipped else b""
        if not body.strip():
            continue
        block = _Block(source.name, shape, first_line + skipped, as_utf8(body))
        typed[block.place(1)] = _read_block(block, places)
    if not typed:
        raise DataError(f"{source.name}: there is no row below the header")
    return stack(typed)


@dataclass(frozen=True)
class _Block:
    """Some whole lines of a file in UTF-8, the first of which has the number `first_line`."""

    name: str
    shape: Shape
    first_line: int
    data: bytes

    def place(self, line: int) -> str:
        """The name of a line that is counted from 1 in the block."""
        return f"{self.name} line {self.first_line + line - 1}"

    def place_of(self, row: int) -> str:
        """The name of the line on which a record begins; records are counted from 0."""
        found = records(self.data.decode(), self.shape.separator)
        return self.place(next(line for place, (line, _) in enumerate(found) if place == row))


def _read_block(block: _Block, places: Places) -> pl.DataFrame:
    text = _text_columns(block, places)
    typed = []
    for role, place in places.by_role().items():
        column = text[str(place)]
        if role in ("user", "item"):
            read = ids_from_text(column) if column.null_count() == 0 else column
        else:
            read = as_role(role, column, block.name)
        check_gaps(role, column, read, lambda row: block.place_of(text["row"][row]))
        typed.append(read.alias(role))
    return pl.DataFrame(typed)


def _text_columns(block: _Block, places: Places) -> pl.DataFrame:
    """The wanted columns as text without blank lines, and `row`, each one's place among the block's records."""
    shape, data, separator = block.shape, block.data, block.shape.separator
    if len(separator) > 1:
        data, separator = data.replace(separator.encode(), _STAND_IN.encode()), _STAND_IN
    last = shape.width - 1
    try:
        text = pl.read_csv(
            data,
            has_header=False,
            separator=separator,
            quote_char='"' if shape.quoted else None,
            schema={str(place): pl.String for place in range(shape.width)},
            columns=sorted({*places.by_role().values(), last}),
        ).with_row_index("row")
    except pl.exceptions.PolarsError as error:
        _check_uneven(block)
        _check_unreadable(block, error)
    # A row that is too short is filled up with nulls, and so is an empty last field: only a second look tells.
    if text[str(last)].null_count() == 0:
        return text
    _check_uneven(block)
    fields = pl.exclude("row")
    return text.filter(~pl.all_horizontal(fields.is_null() | (fields.str.strip_chars() == "")))


def _check_uneven(block: _Block) -> None:
    """Refuses the first record that has too few or too many fields; passes where there is none."""
    separator, width = block.shape.separator, block.shape.width
    for line, record in records(block.data.decode(), separator):
        if len(record) != width and any(field.strip() for field in record):
            found = f"expected {width} fields split by {separator!r}, found {len(record)}"
            raise DataError(f"{block.place(line)}: {found}")


def _check_unreadable(block: _Block, error: Exception) -> NoReturn:
    """Points at the first line whose quotes do not pair up, the usual reason why even records cannot be read."""
    lines: Sequence[bytes] = block.data.split(b"\n")
    unpaired = next((place for place, line in enumerate(lines, 1) if line.count(b'"') % 2), 1)
    reason = str(error).splitlines()[0]
    raise DataError(f"{block.place(unpaired)}: quote marks out of place ({reason})") from error
