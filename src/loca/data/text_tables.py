"""Text tables read block by block: which column is which, how lines are split, and an error for the first bad line."""

from __future__ import annotations

import csv
import io
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time
from itertools import islice
from typing import Any
from uuid import UUID

import numpy as np
import polars as pl

from loca.data.archives import HEAD_BYTES, Source
from loca.data.id_map import Column
from loca.data.times import find_unit
from loca.errors import DataError, did_you_mean
from loca.remarks import remark

ROLES = ("user", "item", "rating", "time")
# Usual names of each role, without case and marks; the first that is found is taken.
_USUAL_NAMES = {
    "user": "user userid uid usernumber username reviewerid reviewer customerid customer visitorid memberid playerid "
    "listenerid readerid",
    "item": "item itemid iid movieid movie parentasin asin businessid business productid product bookid isbn gameid "
    "gmapid trackid songid artistid venueid articleid",
    "title": "title movietitle name itemname productname label",
    "rating": "rating ratings overall stars score rate",
    "event": "event eventtype eventname action behavior behaviour interactiontype",
    "weight": "weight weights plays playcount listens count counts quantity qty",
    "time": "timestamp time ts unixreviewtime unixtime eventtime datetime createdat date when createdutc reviewtime "
    "orderdate purchasedate ratedat playedat watchedon watchedat datum",
}
# Names of what may be the order of a user's items, or the number of a purchase: taken only where somebody says so.
_ORDER_NAMES = ("rank", "order", "position")
_HOUR_NAMES = ("hour", "hourofday", "time", "timeofday", "clock")
# How days and hours are written, as far as they have to be told from whole times.
_CLOCK = r"([01]?\d|2[0-3])"
_HOUR = re.compile(rf"{_CLOCK}(\.0)?|{_CLOCK}:[0-5]\d(:[0-5]\d(\.\d+)?)?( ?[AaPp][Mm])?")
_YEAR_FIRST = r"\d{4}[-./]\d{1,2}[-./]\d{1,2}"
_YEAR_LAST = r"\d{1,2}[-./]\d{1,2}[-./]\d{4}"
_DAY_NUMBER = r"(19|20)\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(\.0)?"
_MIDNIGHT = r"[ T]00:00(:00(\.0+)?)?(Z|[+-]\d\d:?\d\d)?"
_DAY = re.compile(rf"({_YEAR_FIRST}|{_YEAR_LAST}|{_DAY_NUMBER})({_MIDNIGHT})?")
# Dates in forms that people and programs write, and that are not read as times: days and months may be confused.
_MONTH = r"(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_CLOCK_TIME = (
    r"([T, ]+\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?( ?[ap]\.?m\.?)?( ?(z|utc|gmt|[+-]\d{2}:?\d{2}))?)?"
)
_WEEKDAY = r"((mon|tue|wed|thu|fri|sat|sun)[a-z]*,? )?"
_WRITTEN_DATE = re.compile(
    rf"({_YEAR_FIRST}|\d{{1,2}}([-./])\d{{1,2}}\2\d{{2}}(\d{{2}})?|\d{{1,2}} \d{{1,2}}, ?\d{{4}}"
    rf"|{_WEEKDAY}\d{{1,2}}[- .]+{_MONTH}[- ,]+\d{{2}}(\d{{2}})?|{_WEEKDAY}{_MONTH} \d{{1,2}},? \d{{4}})"
    rf"{_CLOCK_TIME}"
    rf"|{_WEEKDAY}{_MONTH} +\d{{1,2}} \d{{2}}:\d{{2}}:\d{{2}} ([a-z]+ |[+-]\d{{4}} )?\d{{4}}",
    re.IGNORECASE,
)
_HOW_TO_WRITE_DATES = "write dates as 2013-12-31, the year first"
_UNIT_NAMES = {
    "s": "seconds since 1970",
    "ms": "milliseconds since 1970",
    "us": "microseconds since 1970",
    "ns": "nanoseconds since 1970",
    "yyyymmdd": "days written as 20131231",
}
# What stands in a column in place of a value, as text.
_GAPS = ("", "None", "nan", "NaN", "NaT", "<NA>")

# The most telling first: a comma may stand inside a tab separated field, a space inside almost any.
SEPARATORS = ("::", "\t", ",", ";", "|", " ")
# The `::` and `|` files of MovieLens hold bare quote marks.
_QUOTING_SEPARATORS = (",", "\t", ";")
_SAMPLE_LINES = 50
# A first line differs from so many different fields below it before it is taken for names: from fields that hold a
# digit, and from fields of one shape.
_LEAST_DIGITS = 2
_LEAST_ALIKE = 10
_SHOWN_LETTERS = 40
_LISTED_NAMES = 12
_MOST_KINDS = 1_000
_LIST_SEPARATORS = (" ", "\t")
_LEAST_LISTS = 5
# A byte that no text holds, in place of a separator that is longer than one byte.
_STAND_IN = "\x1f"
_SECOND = "%Y-%m-%d %H:%M:%S%.f"
_MINUTE = "%Y-%m-%d %H:%M"
_DATE = "%Y-%m-%d"
# A zone is hours, or hours and minutes with or without a colon.
_ZONE = "%#z"
# A review beside the ratings may be longer than the 128 kB at which Python's csv gives up.
csv.field_size_limit(2**31 - 1)


# -- Which column is which ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TimeLook:
    """What the values of a column that is not used look like.

    `mend` is what must be done before they are times, and `option` what names the column.
    """

    text: str
    mend: str = ""
    option: str = ""

    @classmethod
    def of(cls, values: Sequence[Any]) -> TimeLook | None:
        """Return what values look like that are all moments, apart from gaps; None where one is not."""
        known = [value for value in values if str(value).strip() not in _GAPS]
        if not known:
            return None
        if all(isinstance(value, date) for value in known):
            return cls("holds dates")
        if all(isinstance(value, str) for value in known):
            return cls._of_texts(pl.Series(known, dtype=pl.String).str.strip_chars())
        are_numbers = all(isinstance(value, int | float | np.number) for value in known)
        if not are_numbers or any(isinstance(value, bool) for value in known):
            return None
        return cls._of_numbers(np.array(known))

    @classmethod
    def _of_texts(cls, texts: pl.Series) -> TimeLook | None:
        for kind in (pl.Int64, pl.Float64):
            numbers = texts.cast(kind, strict=False)
            if numbers.null_count() == 0:
                return cls._of_numbers(numbers.to_numpy())
        if _instants(texts).null_count() == 0:
            return cls("holds dates")
        if all(_WRITTEN_DATE.fullmatch(text) for text in texts):
            return cls(f"holds dates such as {texts[0]!r}", f"{_HOW_TO_WRITE_DATES}, and ")
        return None

    @classmethod
    def _of_numbers(cls, numbers: Any) -> TimeLook | None:
        unit = find_unit(numbers)
        return None if unit == "steps" else cls(f"looks like {_UNIT_NAMES[unit]}")


@dataclass
class Seen:
    """What was seen, while a table was read, of columns that change no answer.

    Parameters
    ----------
    kinds : dict
        The kinds of events of a column that is not used, in the order of the rows, as keys.
    unread : int, default 0
        How many ratings are neither numbers nor gaps.
    example : str, default ""
        The first of these.
    """

    kinds: dict[str, None] = field(default_factory=dict)
    unread: int = 0
    example: str = ""

    def add(self, other: Seen) -> None:
        """Add what was seen elsewhere."""
        self.kinds |= other.kinds
        self.unread += other.unread
        self.example = self.example or other.example

    def add_kinds(self, stored: pl.Series) -> None:
        """Add the kinds of events of some rows, as far as they are worth a list."""
        if stored.dtype.is_nested() or len(self.kinds) >= _MOST_KINDS:
            return
        texts = stored.cast(pl.String, strict=False).drop_nulls().unique(maintain_order=True)
        self.kinds |= dict.fromkeys(text for text in texts.to_list() if text.strip() not in _GAPS)

    def add_ratings(self, stored: pl.Series, read: pl.Series) -> None:
        """Add the ratings of some rows, as they are written and as they were read."""
        is_lost = stored.is_not_null() & read.is_null()
        if not is_lost.any():
            return
        lost = [str(value).strip() for value in stored.filter(is_lost).to_list()]
        lost = [text for text in lost if text not in _GAPS]
        self.unread += len(lost)
        self.example = self.example or (lost[0][:_SHOWN_LETTERS] if lost else "")


@dataclass(frozen=True)
class ColumnChoice:
    """Which column was taken as what, which ones are not used, and which of those may be the time.

    Parameters
    ----------
    taken : mapping
        Role to the name of its column.
    unused : tuple of str, default ()
        The other columns.
    times : mapping
        Those of them whose values all look like moments, and how; looked for only where no column is the time.
    guessed : tuple of str, default ()
        Roles that were taken by the position of a column without a name.
    seen : Seen
        What was seen of columns that change no answer.
    """

    taken: Mapping[str, str]
    unused: tuple[str, ...] = ()
    times: Mapping[str, TimeLook] = field(default_factory=dict)
    guessed: tuple[str, ...] = ()
    seen: Seen = field(default_factory=Seen)

    @classmethod
    def of(
        cls,
        places: Mapping[str, int],
        names: Sequence[str],
        sample: Callable[[int], Sequence[Any]] | None = None,
    ) -> ColumnChoice:
        """The choice by position; `sample` gives some values of a column."""
        taken = {role: names[place] for role, place in places.items()}
        unused = [place for place in range(len(names)) if place not in places.values()]
        times = {}
        for place in unused:
            look = None
            if sample is not None and "time" not in places:
                look = TimeLook.of(sample(place))
            if look is not None:
                option = repr(names[place]) if names[place] else str(place)
                times[_shown(names, place)] = replace(look, option=option)
        return cls(taken, tuple(_shown(names, place) for place in unused), times)

    def to_json(self) -> dict[str, Any]:
        """Return the choice as JSON values."""
        return {
            "taken": dict(self.taken),
            "unused": list(self.unused),
            "dates": list(self.times),
            "guessed": list(self.guessed),
        }


def _shown(names: Sequence[str], place: int) -> str:
    return names[place] or f"(column {place}, without a name)"


def listed(names: Sequence[str]) -> str:
    """Names for a message, the first twelve and the number of all others."""
    more = len(names) - _LISTED_NAMES
    return ", ".join(names[:_LISTED_NAMES]) + (f" and {more:,} more" if more > 0 else "")


def find_columns(
    given: Mapping[str, Column], header: Sequence[str] | int, where: str, needed: Sequence[str]
) -> dict[str, int]:
    """The position of each role's column: user, item, and rating and time where there are such.

    Parameters
    ----------
    given : mapping
        Role to column, by name or by position counted from 0.
    header : sequence of str or int
        The names of the columns: a role that is not given is found by its usual names. Or only the number of columns:
        the role is taken from the usual order (user, item, rating, time) where that leaves no doubt: two columns, four
        columns, or three of which the third is given.
    where : str
        What messages call the table.
    needed : sequence of str
        Roles that must have a column.
    """
    names = [str(place) for place in range(header)] if isinstance(header, int) else header
    found = {role: position_of(column, names, where) for role, column in given.items()}
    if not isinstance(header, int):
        guessed = {role: usual_position(role, names) for role in ROLES if role not in found}
        found |= {role: place for role, place in guessed.items() if place is not None}
    elif header in (2, 4) or (header == 3 and ("rating" in found or "time" in found)):
        for place, role in enumerate(ROLES[: 4 if header == 4 else 2]):
            if role not in found and place not in found.values():
                found[role] = place
    elif not {"user", "item"} <= found.keys():
        problem = (
            f"{header} columns without names, so user, item, rating and time cannot be told apart"
        )
        advice = "give their positions, such as user=0, item=1, time=2; or the layout user-items where a line is a user"
        raise DataError(f"{where}: {problem}; {advice} and then items")
    check_columns(found, names, where, needed)
    found = {role: found[role] for role in ROLES if role in found}
    if len(set(found.values())) < len(found):
        twice = ", ".join(f"{role}={names[place]}" for role, place in found.items())
        raise DataError(f"{where}: one column cannot hold two things, found {twice}")
    return found


def check_columns(
    found: Mapping[str, int], names: Sequence[str], where: str, needed: Sequence[str]
) -> None:
    """Refuses a table in which the column of a needed role was not found."""
    for role in needed:
        if role not in found:
            problem = f"cannot tell which column holds the {role}s; the columns are {listed(names)}"
            raise DataError(f"{where}: {problem}; say {role}=…")


def position_of(column: Column, names: Sequence[str], where: str) -> int:
    """The position of a column given by name or position; an unknown one is refused with the columns found."""
    if isinstance(column, str) and column in names:
        return list(names).index(column)
    # A command line hands over text; "0" means the first column where no column has that name.
    if isinstance(column, str) and not column.isdigit():
        nearest = did_you_mean(column, names)
        raise DataError(f"{where}: no column {column!r}; the columns are {listed(names)}{nearest}")
    if not 0 <= int(column) < len(names):
        raise DataError(f"{where}: no column {int(column)}; there are {len(names)}, counted from 0")
    return int(column)


def usual_position(role: str, names: Sequence[str]) -> int | None:
    """The position of the first usual name of a role (user, item, rating, time or title), or None."""
    plain = [_plain(name) for name in names]
    return next(
        (plain.index(usual) for usual in _USUAL_NAMES[role].split() if usual in plain), None
    )


def order_columns(names: Sequence[str]) -> list[str]:
    """Return those of the names that may be the order of each user's items."""
    return [name for name in names if _plain(name) in _ORDER_NAMES]


def check_hours(
    places: Mapping[str, int],
    names: Sequence[str],
    sample: Callable[[int], Sequence[Any]],
    where: str,
) -> None:
    """Refuse a table that has the days in one column and the hours in another: each is half a time.

    Parameters
    ----------
    places : mapping
        Role to the position of its column.
    names : sequence of str
        The names of all columns.
    sample : function
        Some values of the column at a position.
    where : str
        What the message calls the table.
    """
    time_place = places.get("time")
    if time_place is None:
        return
    taken = (time_place, places.get("user"), places.get("item"))
    others = [place for place in range(len(names)) if place not in taken]
    times = sample(time_place)
    days = hours = time_place
    if _are_written_as(_HOUR, times):
        days = next((place for place in others if _are_written_as(_DAY, sample(place))), days)
    elif _are_written_as(_DAY, times):
        called_hours = [place for place in others if _plain(names[place]) in _HOUR_NAMES]
        found = (place for place in called_hours if _are_written_as(_HOUR, sample(place)))
        hours = next(found, hours)
    if days != hours:
        problem = f"column {names[days]!r} holds the days and {names[hours]!r} the hours"
        advice = f"join them into one column such as 2020-01-31 14:30, or say time={names[days]!r}"
        raise DataError(f"{where}: {problem}; {advice}")


def _are_written_as(form: re.Pattern[str], values: Sequence[Any]) -> bool:
    """Return whether there are values, and all that are no gaps are written in a form."""
    texts = [str(value).strip() for value in values]
    written = [text for text in texts if text not in _GAPS]
    return bool(written) and all(form.fullmatch(text) for text in written)


def _plain(name: str) -> str:
    # RecBole writes "user_id:token"; what stands behind the colon is a type.
    return "".join(letter for letter in name.split(":")[0].lower() if letter.isalnum())


# -- How lines are split -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shape:
    """How lines are split: `names` is the header or None, `skipped` lines come before the rows, `sample` is a few."""

    separator: str
    width: int
    names: tuple[str, ...] | None
    skipped: int
    sample: tuple[Sequence[str], ...]


def find_shape(
    source: Source,
    separators: Sequence[str],
    header: bool | None = None,
    known_names: Sequence[str] = (),
    otherwise: bool | None = None,
) -> Shape:
    """Return the shape of a text table, from its first lines.

    Parameters
    ----------
    source : Source
    separators : sequence of str
        The separators that the table may have.
    header : bool or None, default None
        Whether the first line names the columns; None finds out.
    known_names : sequence of str, default ()
        A first line that holds one of these is a header.
    otherwise : bool or None, default None
        What the first line is where nothing tells whether it is a header; None refuses the table.
    """
    skipped, lines = _head_lines(source)
    sample = lines[:_SAMPLE_LINES]
    separator = guess_separator(sample, separators)
    rows = [_fields(line, separator) for line in sample]
    if len(rows[0]) == 1:
        other = guess_separator(sample)
        several = len(_fields(sample[0], other)) > 1
        seems = f"the file seems to be split by {other!r}" if several else "expected at least two"
        split_by = " or ".join(map(repr, separators))
        raise DataError(f"{source.name}: one column found when split by {split_by}; {seems}")
    shape = Shape(separator, len(rows[0]), None, skipped, tuple(rows))
    if header is None:
        header = _find_header(shape, lines, known_names)
    if header is None:
        header = otherwise
    if header is None:
        shown = listed([f"{field.strip():.{_SHOWN_LETTERS}}" for field in rows[0]])
        problem = f"the first line ({shown}) may be column names or a row"
        raise DataError(f"{source.name}: {problem}; say header=True or header=False")
    if not header:
        return shape
    names = tuple(name.strip() for name in rows[0])
    return replace(shape, names=names, skipped=skipped + 1, sample=tuple(rows[1:]))


def _head_lines(source: Source) -> tuple[int, list[str]]:
    """Return how many blank lines a text begins with, and the first whole lines that are not blank."""
    head = source.read(HEAD_BYTES)
    if b"\0" in head:
        raise DataError(f"{source.name}: expected text, found the bytes of another kind of file")
    if len(head) > HEAD_BYTES - 4:  # the last line may be cut, even inside a letter
        head = head[: head.rfind(b"\n") + 1] or head
    lines = [line.rstrip("\r") for line in as_text(head).split("\n")]
    first = next((place for place, line in enumerate(lines) if line.strip()), None)
    if first is None:
        raise DataError(f"{source.name}: the file is empty")
    return first, [line for line in lines[first:] if line.strip()]


def _find_header(shape: Shape, lines: Sequence[str], known_names: Sequence[str]) -> bool | None:
    """Return whether the first row is a header, by usual names, by numbers, else by what stands below it.

    None where nothing tells. Lines of a user and then items have no header.
    """
    first = shape.sample[0]
    usual = {*known_names, *" ".join(_USUAL_NAMES.values()).split()}
    if any(name.strip() in usual or _plain(name) in usual for name in first):
        return True
    if _holds_number(first):
        return False
    if any(_holds_number(row) for row in shape.sample[1:2]):
        return True
    if are_lists(shape):
        return False
    rows = [row for _, row in records("\n".join(lines), shape.separator)]
    return _header_by_contents(first, [row for row in rows[1:] if len(row) == len(first)])


def _holds_number(row: Sequence[str]) -> bool:
    numbers = pl.Series(row).str.strip_chars().cast(pl.Float64, strict=False)
    return numbers.null_count() < len(numbers)


def _header_by_contents(first: Sequence[str], rows: Sequence[Sequence[str]]) -> bool | None:
    """Return whether the first row is unlike the rows below, which makes it a header.

    It is a row where one of its fields stands in its column again, or where all of its fields are codes like most
    below them. None where neither or both is so.
    """
    columns = [[row[place].strip() for row in rows] for place in range(len(first))]
    pairs = [
        (field.strip(), [other for other in column if other])
        for field, column in zip(first, columns, strict=True)
    ]
    pairs = [(field, column) for field, column in pairs if field or column]
    stands_again = any(field in column for field, column in pairs)
    are_codes = all(_is_code_like(field, column) for field, column in pairs)
    is_row = stands_again or (are_codes and not _count_up(first))
    is_header = any(_is_unlike(field, column) for field, column in pairs)
    return None if is_row == is_header else is_header


def _is_code_like(field: str, column: Sequence[str]) -> bool:
    """Return whether a field holds a digit and has the shape of most below it."""
    shape = _shape_of(field)
    alike = sum(_shape_of(other) == shape for other in column)
    return _holds_digit(field) and 2 * alike > len(column)


def _is_unlike(field: str, column: Sequence[str]) -> bool:
    """Return whether all fields of a column hold a digit, or have one shape, and the field above them does not."""
    different = set(column)
    if not field or field in different:
        return False
    have_digits = len(different) >= _LEAST_DIGITS and all(map(_holds_digit, different))
    if have_digits and not _holds_digit(field):
        return True
    shapes = {_shape_of(other) for other in different}
    return len(different) >= _LEAST_ALIKE and len(shapes) == 1 and _shape_of(field) not in shapes


def _count_up(row: Sequence[str]) -> bool:
    """Return whether fields differ by a number alone that counts from 0 or 1, as names that programs make: V1, V2."""
    stems = {re.sub(r"\d+", "#", field.strip()) for field in row}
    numbers = [int("".join(re.findall(r"\d", field)) or -1) for field in row]
    counted = range(numbers[0], numbers[0] + len(row))
    return len(stems) == 1 and numbers[0] in (0, 1) and numbers == list(counted)


def _holds_digit(text: str) -> bool:
    return re.search(r"\d", text) is not None


def _shape_of(text: str) -> str:
    """Return a text with words as a, whole numbers as 9, mixtures of both as x, and other signs as they are, once each.

    Codes such as B00000JBHP and A1NZLRAZJGD99W have one shape.
    """

    def kind(found: re.Match[str]) -> str:
        word = found[0]
        if word.isdigit():
            return "9"
        return "x" if _holds_digit(word) else "a"

    return re.sub(r"(.)\1+", r"\1", re.sub(r"[^\W_]+", kind, text))


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


def rows_of(
    name: str, text: str, shape: Shape, first_line: int = 1
) -> Iterator[tuple[int, list[str]]]:
    """Each row below the header that is not blank, with its line; one with too few or too many fields is refused."""
    for place, record in records(text, shape.separator):
        line = first_line + place - 1
        if line > shape.skipped and any(field.strip() for field in record):
            if len(record) != shape.width:
                found = f"expected {shape.width} fields split by {shape.separator!r}, found {len(record)}"
                raise DataError(f"{name} line {line}: {found}")
            yield line, record


def guess_separator(lines: Sequence[str], separators: Sequence[str] = SEPARATORS) -> str:
    """The separator that cuts most of the lines into the same number of fields, more than one."""

    def agreement(separator: str) -> int:
        widths = [len(_fields(line, separator)) for line in lines]
        return max((widths.count(width) for width in set(widths) if width > 1), default=0)

    return max(separators, key=agreement)


def as_text(data: bytes) -> str:
    """The text of UTF-8 bytes, or of Latin-1 ones where they are not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _fields(line: str, separator: str) -> list[str]:
    return next(records(line, separator), (1, [""]))[1]  # an empty line has no record


# -- Typed columns -----------------------------------------------------------------------------------------------------


def typed(
    table: pl.DataFrame,
    where: str,
    place: Callable[[int], str],
    needed: Sequence[str],
    *,
    seen: Seen,
    parse_ids: bool = False,
) -> pl.DataFrame:
    """Stored columns, each named by its role, as ids, numbers and instants.

    Ids stay as they are stored, without blanks at their ends; with `parse_ids` text becomes whole numbers where every
    id is written as one. The first row that cannot be read is refused; `place` says where it stands. Of ratings that
    are not `needed` those that are numbers stay; of such events none. What is lost by that is added to what was `seen`.
    """
    columns = []
    for stored in table:
        role = stored.name
        if role == "event" and role not in needed:
            seen.add_kinds(stored)
            continue
        if role == "rating" and role not in needed:
            free = _free_ratings(stored)
            seen.add_ratings(stored, free)
            columns.append(free)
            continue
        read = _as_role(stored, where)
        if read.null_count():
            row = read.is_null().arg_max() or 0
            found = stored[row]
            if found is None or not str(found).strip():
                raise DataError(f"{place(row)}: the {role} is missing")
            if role in ("user", "item"):
                raise DataError(
                    f"{place(row)}: expected text or a 64-bit number as {role} id, found {found}"
                )
            kind = "a number, or ISO dates throughout," if role == "time" else "a number"
            is_date = role == "time" and _WRITTEN_DATE.fullmatch(str(found).strip())
            advice = f"; {_HOW_TO_WRITE_DATES}" if is_date else ""
            raise DataError(
                f"{place(row)}: expected {kind} as {role}, found {str(found)!r}{advice}"
            )
        columns.append(ids_from_text(read) if parse_ids and role in ("user", "item") else read)
    return pl.DataFrame(columns)


def _as_role(values: pl.Series, where: str) -> pl.Series:
    """A stored column as what the role in its name needs: ids, numbers or instants; null where a value will not do."""
    if values.dtype in (pl.Categorical, pl.Enum):
        values = values.cast(pl.String)
    role, kind = values.name, values.dtype
    if kind == pl.Binary and role in ("user", "item"):
        values, kind = _text_of_bytes(values), pl.String()
    if kind == pl.String and role in ("user", "item"):
        return _without_blanks(values)
    if kind == pl.Boolean and role == "rating":
        return values.cast(pl.Int64)
    if role == "event":
        return values.cast(pl.String)
    if kind == pl.String:
        whole = values.cast(pl.Int64, strict=False)
        if whole.null_count() == 0:
            return whole
        numbers = _finite(_truth_as_numbers(values) if role == "rating" else values)
        if role != "time" or numbers.null_count() < len(values):
            return numbers
        _remark_zones(values)
        return _instants(values)
    if role == "time" and kind in (pl.Date, pl.Datetime):
        return values.cast(pl.Datetime("us"))  # in UTC
    if kind.is_integer():
        return values.cast(pl.Int64, strict=False)
    if kind.is_numeric():
        return _finite(values)
    expected = "text or numbers" if role in ("user", "item") else "numbers"
    raise DataError(f"{where}: expected {expected} as {role}, found {kind}")


def _free_ratings(values: pl.Series) -> pl.Series:
    """Return ratings that nobody needs: those that are numbers, null for all others."""
    kind = values.dtype
    is_text = kind in (pl.String, pl.Categorical, pl.Enum)
    if is_text or kind == pl.Boolean or kind.is_numeric():
        return _as_role(values, "").cast(pl.Float32)
    return pl.Series(values.name, [None] * len(values), dtype=pl.Float32)


def _truth_as_numbers(values: pl.Series) -> pl.Series:
    """Return texts with true as 1 and false as 0, in any case."""
    lower = values.str.strip_chars().str.to_lowercase()
    truth = lower.replace_strict({"true": "1", "false": "0"}, default=None, return_dtype=pl.String)
    return truth.zip_with(truth.is_not_null(), values)


def _without_blanks(ids: pl.Series) -> pl.Series:
    """Return ids of text without blanks at their ends; null where nothing is left."""
    stripped = ids.str.strip_chars()
    is_left = stripped != ""
    return stripped if is_left.all() else stripped.set(~is_left, None)


def check_repeated_names(
    table: pl.DataFrame, names: Mapping[str, str], place: Callable[[int], str], kind: str
) -> None:
    """Refuse the first row whose user and item are the names of their columns.

    Parameters
    ----------
    table : DataFrame
        Stored columns, each named by its role.
    names : mapping
        Role to the name of its column; names that are numbers tell nothing.
    place : function
        What messages call a row.
    kind : {"line", "row"}
        What it is.
    """
    is_repeat = pl.Series([True], dtype=pl.Boolean)
    for role in ("user", "item"):
        kinds_of_text = (pl.String, pl.Categorical, pl.Enum)
        if names[role].isdigit() or table[role].dtype not in kinds_of_text:
            return
        texts = table[role].cast(pl.String).str.strip_prefix("\ufeff").str.strip_chars()
        is_repeat = is_repeat & (texts == names[role])
    if is_repeat.any():
        whole = "files" if kind == "line" else "tables"
        problem = f"repeats the column names; were two {whole} joined? leave that {kind} out"
        raise DataError(f"{place(is_repeat.arg_max() or 0)} {problem}")


def _text_of_bytes(values: pl.Series) -> pl.Series:
    """Bytes as the UTF-8 text that they are, else as UUIDs where all have 16; null where they are neither."""
    found = values.to_list()
    try:
        text = [None if one is None else one.decode() for one in found]
    except UnicodeDecodeError:
        text = [
            str(UUID(bytes=one)) if one is not None and len(one) == 16 else None for one in found
        ]
    return pl.Series(values.name, text, dtype=pl.String)


def ids_from_text(text: pl.Series) -> pl.Series:
    """Whole numbers where every id is written as one, else text without blanks at its ends; "007" is text."""
    text = text.str.strip_chars()
    numbers = text.cast(pl.Int64, strict=False)
    return numbers if numbers.cast(pl.String).equals(text) else text


def _remark_zones(times: pl.Series) -> None:
    """Tell where some times name a zone and others do not."""
    names_zone = times.str.contains(r"[0-9] ?(Z|UTC|[+-][0-9]{2}:?[0-9]{0,2})\s*$")
    is_clock = times.str.contains(":", literal=True)
    if (names_zone & is_clock).any() and (~names_zone & is_clock).any():
        text = "some times name a time zone and others do not; these are taken for UTC"
        remark("times-unknown", text)


def _instants(text: pl.Series) -> pl.Series:
    """Return instants of ISO 8601 dates (UTC unless they say otherwise); null where the text is none."""
    plain = (
        text.str.strip_chars().str.replace(r" ?(Z|UTC)$", "").str.replace("T", " ", literal=True)
    )
    instants = pl.Series(text.name, [None] * len(text), dtype=pl.Datetime("us"))
    for form in (_SECOND, _DATE, _MINUTE, _SECOND + _ZONE, _MINUTE + _ZONE):
        if instants.null_count() == 0:
            break
        if form == _DATE:
            read = plain.str.to_date(form, strict=False).cast(pl.Datetime("us"))
        else:
            read = plain.str.to_datetime(form, time_unit="us", strict=False)
        instants = instants.zip_with(instants.is_not_null(), read.dt.replace_time_zone(None))
    return instants


def instants_of_objects(name: str, values: Sequence[Any]) -> pl.Series | None:
    """Return Python's dates and datetimes as instants in UTC, and clock times as text; None where there are others.

    What names no zone is taken for UTC.
    """
    known = [value for value in values if value is not None]
    if known and all(isinstance(value, time) for value in known):
        texts = [None if value is None else str(value) for value in values]
        return pl.Series(name, texts, dtype=pl.String)
    if not known or not all(isinstance(value, date) for value in known):
        return None
    instants = [None if value is None else _instant_of(value) for value in values]
    return pl.Series(name, instants, dtype=pl.Datetime("us"))


def _instant_of(moment: date) -> datetime:
    if not isinstance(moment, datetime):
        return datetime(moment.year, moment.month, moment.day)
    return moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)


def _finite(values: pl.Series) -> pl.Series:
    values = values.str.strip_chars() if values.dtype == pl.String else values
    numbers = values.cast(pl.Float64, strict=False)
    return pl.select(pl.when(numbers.is_finite()).then(numbers).alias(values.name)).to_series()


# -- Blocks ------------------------------------------------------------------------------------------------------------


def read_blocks(
    source: Source,
    read: Callable[[int, bytes], pl.DataFrame],
    block_bytes: int,
    skipped: int = 0,
    quoted: bool = False,
) -> pl.DataFrame:
    """A text file block by block as one table; `read` makes a table of whole lines in UTF-8, given the first's number.

    Where the kinds of a column differ, ids become text and numbers become fractions; dates beside numbers are refused.
    """
    blocks = {}
    for first_line, data in source.line_blocks(block_bytes, quoted=quoted):
        above = skipped if first_line == 1 else 0
        body = data.split(b"\n", above)[-1] if data.count(b"\n") >= above else b""
        if body.strip():
            text = body if body.isascii() else as_text(body).encode()
            blocks[f"{source.name} line {first_line + above}"] = read(first_line + above, text)
    if not blocks:
        raise DataError(f"{source.name}: there is no row below the header")
    is_date = {place: block.schema.get("time") == pl.Datetime for place, block in blocks.items()}
    first = next(iter(is_date.values()))
    for place in [place for place, found in is_date.items() if found != first]:
        raise DataError(f"{place}: the time must be a number, or an ISO date, throughout")
    return pl.concat(blocks.values(), how="vertical_relaxed", rechunk=True)


def read_delimited(
    source: Source,
    shape: Shape,
    places: Mapping[str, int],
    needed: Sequence[str],
    block_bytes: int,
    seen: Seen,
) -> pl.DataFrame:
    """The columns of `places`, role to position, each of one kind and without gaps."""
    named = {} if shape.names is None else {role: shape.names[places[role]] for role in places}
    quoted, name, last = shape.separator in _QUOTING_SEPARATORS, source.name, shape.width - 1
    long = len(shape.separator) > 1

    def read(first_line: int, data: bytes) -> pl.DataFrame:
        try:
            text = pl.read_csv(
                data.replace(shape.separator.encode(), _STAND_IN.encode()) if long else data,
                has_header=False,
                separator=_STAND_IN if long else shape.separator,
                quote_char='"' if quoted else None,
                schema={str(place): pl.String for place in range(shape.width)},
                columns=sorted({*places.values(), last}),
            ).with_row_index("row")
        except pl.exceptions.PolarsError as error:
            deque(rows_of(name, data.decode(), shape, first_line), maxlen=0)
            # Even records that cannot be read have quotes that do not pair up.
            unpaired = (
                line
                for line, text in enumerate(data.split(b"\n"), first_line)
                if text.count(b'"') % 2
            )
            reason = f"quote marks out of place ({str(error).splitlines()[0]})"
            raise DataError(f"{name} line {next(unpaired, 1)}: {reason}") from error
        # A row that is too short is filled up with nulls, and so is an empty last field: only a second look tells.
        if text[str(last)].null_count():
            deque(rows_of(name, data.decode(), shape, first_line), maxlen=0)
            fields = pl.exclude("row")
            text = text.filter(
                ~pl.all_horizontal(fields.is_null() | (fields.str.strip_chars() == ""))
            )

        def line_of(row: int) -> str:
            lines = (line for line, _ in records(data.decode(), shape.separator))
            return f"{name} line {first_line - 1 + next(islice(lines, text['row'][row], None))}"

        table = text.select(pl.col(str(place)).alias(role) for role, place in places.items())
        if named:
            check_repeated_names(table, named, line_of, "line")
        return typed(table, name, line_of, needed, seen=seen, parse_ids=True)

    return read_blocks(source, read, block_bytes, shape.skipped, quoted)


# -- Lines of a user and then items ------------------------------------------------------------------------------------


def are_lists(shape: Shape) -> bool:
    """Whether lines are surely a user and then items: of many lengths, each of another user, no item twice."""
    rows = [[field for field in row if field] for row in shape.sample]
    widths = [len(row) for row in rows]
    most_common = max(map(widths.count, widths), default=0)
    return (
        shape.separator in _LIST_SEPARATORS
        and shape.names is None
        and len(rows) >= _LEAST_LISTS
        and 2 * most_common < len(rows)
        and len({row[0] for row in rows}) == len(rows)
        and all(len({*row[1:]}) == len(row) - 1 for row in rows)
    )


def read_lists(source: Source, block_bytes: int) -> pl.DataFrame:
    """The columns user and item of lines that are a user and then the user's items, oldest first.

    Fields are split by spaces or tabs, or where a line has neither by commas. A user without items has no row.
    """
    comma = not any(
        mark in source.read(HEAD_BYTES).split(b"\n")[0].strip() for mark in (b" ", b"\t")
    )

    def read(first_line: int, data: bytes) -> pl.DataFrame:
        lines = pl.Series(data.decode().split("\n"), dtype=pl.String)
        fields = lines.str.extract_all(r"[^,\s]+" if comma else r"\S+")
        table = pl.DataFrame(
            {"user": fields.list.first(), "item": fields.list.slice(1)}
        ).with_row_index("row")
        table = table.filter(pl.col("item").list.len() > 0).explode("item")
        ids = table.select("user", "item")
        return typed(
            ids,
            source.name,
            lambda row: f"{source.name} line {first_line + table['row'][row]}",
            (),
            seen=Seen(),
            parse_ids=True,
        )

    table = read_blocks(source, read, block_bytes)
    if table.is_empty():
        raise DataError(f"{source.name}: expected lines of a user and then items, found no item")
    return table
