"""Tables of text for people and programs: aligned, Markdown or CSV, and numbers that every JSON reader takes."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TextTable:
    """A header and rows of text; the first column is a name, the others are figures and stand to the right."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def plain(self) -> str:
        """Aligned columns, two spaces apart."""
        lines = [self.header, *self.rows]
        first, *others = (max(map(len, column)) for column in zip(*lines, strict=True))
        aligned = ([name.ljust(first), *map(str.rjust, figures, others)] for name, *figures in lines)
        return "\n".join("  ".join(line).rstrip() for line in aligned)

    def markdown(self) -> str:
        """A Markdown table."""
        ruler = ["---", *["---:"] * (len(self.header) - 1)]
        return "\n".join("| " + " | ".join(line) + " |" for line in (self.header, ruler, *self.rows))


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
