"""The shape of a table written as text: its encoding, its separator, its header and how wide it is."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from loca.data.columns import is_usual_name
from loca.data.sources import HEAD_BYTES, Source
from loca.errors import DataError

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
        _refuse_one_column(source, lines, separators)
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


def _refuse_one_column(source: Source, lines: Sequence[str], separators: Sequence[str]) -> None:
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
