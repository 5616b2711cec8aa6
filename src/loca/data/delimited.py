"""Text tables read block by block: quick where all is well, line by line where a mistake must be pointed out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import polars as pl

from loca.data.columns import Places
from loca.data.sources import BLOCK_BYTES, Source
from loca.data.text_shape import Shape, as_utf8, records
from loca.data.values import as_role, ids_from_text, refuse_gaps, stack
from loca.errors import DataError

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
        refuse_gaps(role, column, read, lambda row: block.place_of(text["row"][row]))
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
        _refuse_uneven(block)
        _refuse_unreadable(block, error)
    # A row that is too short is filled up with nulls, and so is an empty last field: only a second look tells.
    if text[str(last)].null_count() == 0:
        return text
    _refuse_uneven(block)
    fields = pl.exclude("row")
    return text.filter(~pl.all_horizontal(fields.is_null() | (fields.str.strip_chars() == "")))


def _refuse_uneven(block: _Block) -> None:
    """Refuses the first record that has too few or too many fields; passes where there is none."""
    separator, width = block.shape.separator, block.shape.width
    for line, record in records(block.data.decode(), separator):
        if len(record) != width and any(field.strip() for field in record):
            found = f"expected {width} fields split by {separator!r}, found {len(record)}"
            raise DataError(f"{block.place(line)}: {found}")


def _refuse_unreadable(block: _Block, error: Exception) -> NoReturn:
    """Points at the first line whose quotes do not pair up, the usual reason why even records cannot be read."""
    lines: Sequence[bytes] = block.data.split(b"\n")
    unpaired = next((place for place, line in enumerate(lines, 1) if line.count(b'"') % 2), 1)
    reason = str(error).splitlines()[0]
    raise DataError(f"{block.place(unpaired)}: quote marks out of place ({reason})") from error
