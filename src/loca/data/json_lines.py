"""JSON lines: one object a line; read block by block, and line by line where a mistake must be pointed out."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import polars as pl

from loca.data.columns import Columns, place_named
from loca.data.sources import BLOCK_BYTES, Source
from loca.data.text_shape import as_utf8
from loca.data.values import as_role, refuse_gaps, stack
from loca.errors import DataError

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
    schema = {field: _kind([one.get(field) for one in sample]) for field in fields.values()}
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
        refuse_gaps(role, stored, read, lambda row: f"{name} line {lines[row]}")
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


def _kind(sample: Sequence[Any]) -> pl.DataType:
    kinds = {type(value) for value in sample if value is not None}
    if kinds <= {int, float, str} and kinds != {int}:
        return pl.String() if str in kinds else pl.Float64()
    # Also where lists or objects stand among the values: they do not fit, so every line is looked at.
    return pl.Int64()


def _as_series(values: list[Any]) -> pl.Series:
    if any(isinstance(value, str) for value in values):
        return pl.Series([str(value) for value in values])
    return pl.Series(values, dtype=pl.Float64 if any(isinstance(value, float) for value in values) else pl.Int64)
