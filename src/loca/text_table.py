"""Tables for people and programs: results that print well, here, in a notebook, as frames, CSV or JSON."""

from __future__ import annotations

import csv
import io
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any

from loca.errors import ConfigError

if TYPE_CHECKING:
    import polars

# What a terminal obeys instead of showing it: control characters but the end of a line and the tab, marks that turn
# the direction of text, and halves of characters, which no output can encode.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    """The text with a � in place of every character that a terminal would obey; ends of lines and tabs stay."""
    return _UNPRINTABLE.sub("\ufffd", text)


def printable_json(text: str) -> str:
    """The same JSON document with these characters as escapes, which mean the same."""
    return _UNPRINTABLE.sub(lambda one: f"\\u{ord(one[0]):04x}", text)


@dataclass(frozen=True)
class TextTable:
    """A header and rows of text; the first `names` columns stand to the left, the others are figures, to the right."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    names: int = 1

    def plain(self) -> str:
        """Aligned columns, two spaces apart; no line for a header without words."""
        written = (self.header, *self.rows) if any(self.header) else self.rows
        lines = [[" ".join(printable(text).splitlines()) for text in line] for line in written]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        turns = [str.ljust if place < self.names else str.rjust for place in range(len(widths))]
        aligned = (
            [turn(text, width) for turn, text, width in zip(turns, line, widths, strict=True)]
            for line in lines
        )
        return "\n".join("  ".join(line).rstrip() for line in aligned)

    def markdown(self) -> str:
        """A Markdown table."""
        ruler = ["---"] * self.names + ["---:"] * (len(self.header) - self.names)
        return "\n".join(
            "| " + " | ".join(line) + " |" for line in (self.header, ruler, *self.rows)
        )

    def html(self) -> str:
        """An HTML table, its text escaped."""

        def row(tag: str, line: Sequence[str]) -> str:
            sides = ("left" if place < self.names else "right" for place in range(len(line)))
            texts = (
                f'<{tag} style="text-align: {side}">{escape(text)}</{tag}>'
                for side, text in zip(sides, line, strict=True)
            )
            return f"<tr>{''.join(texts)}</tr>"

        body = "\n".join(row("td", line) for line in self.rows)
        head = f"<thead>{row('th', self.header)}</thead>\n" if any(self.header) else ""
        return f"<table>\n{head}<tbody>\n{body}\n</tbody>\n</table>"


def html_text(shown: Iterable[str | TextTable]) -> str:
    """Lines and tables as HTML, their text escaped."""
    texts = (
        f'<div style="white-space: pre-wrap">{escape(one)}</div>'
        if isinstance(one, str)
        else one.html()
        for one in shown
        if one
    )
    return "\n".join(texts)


class Readable:
    """A result that prints as a few lines and tables; a notebook shows the same as HTML."""

    def shown(self) -> Sequence[str | TextTable]:
        """What a person reads, from above: lines, and tables; an empty line parts."""
        raise NotImplementedError

    def __str__(self) -> str:
        return "\n".join(one if isinstance(one, str) else one.plain() for one in self.shown())

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return html_text(self.shown())


class Tabular(Readable):
    """A result that is a table too: a polars or a pandas frame on request."""

    def columns(self) -> dict[str, Any]:
        """Return the table as arrays.

        Returns
        -------
        dict of str to ndarray
            By the names of the columns, all of one length.
        """
        raise NotImplementedError

    def to_polars(self) -> polars.DataFrame:
        """Make a polars frame.

        Returns
        -------
        polars.DataFrame
            With the `columns`.
        """
        # Polars takes text from lists only.
        columns = {
            name: one.tolist() if one.dtype == object else one
            for name, one in self.columns().items()
        }
        frame: polars.DataFrame = _package("polars").DataFrame(columns)
        return frame

    def to_pandas(self) -> Any:
        """Make a pandas frame; pandas has to be installed.

        Returns
        -------
        pandas.DataFrame
            With the `columns`.
        """
        return _package("pandas").DataFrame(self.columns())


def _package(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as missing:
        raise ConfigError(
            f"to_{name}: the package {name} is not installed; pip install {name}"
        ) from missing


def cut(text: str, most: int) -> str:
    """The text in one printable line; its beginning and an ellipsis where it takes more columns than that."""
    text = " ".join(printable(text).split())
    if columns_of(text) <= most:
        return text
    while columns_of(text) > most - 1:
        text = text[:-1]
    return text.rstrip() + "…"


def many(count: int, what: str) -> str:
    """A count and what it counts: `1 user`, `1,200 users`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def columns_of(text: str) -> int:
    """The columns that a terminal takes for a text: two for a wide letter, none for a mark on another."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(one) in "WF" for one in text)
    return len(text) + wide - sum(unicodedata.combining(one) > 0 for one in text)


def csv_text(records: Sequence[Mapping[str, Any]], keys: Iterable[str] = ()) -> str:
    """One line per record under `keys` and the keys of all records, as they appear; a missing value is empty."""
    columns = list(dict.fromkeys([*keys, *(key for record in records for key in record)]))
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return out.getvalue()


def finite(value: Any) -> Any:
    """The same JSON value with null in place of every NaN and infinity, which JSON does not have."""
    if isinstance(value, Mapping):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
