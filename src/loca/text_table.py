"""A grid of words for people to read, as plain text or Markdown, and numbers that every JSON reader takes."""

from __future__ import annotations

import math
from collections.abc import Mapping
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
        widths = [max(len(line[place]) for line in lines) for place in range(len(self.header))]
        first, others = widths[0], widths[1:]
        text = (
            "  ".join(
                [line[0].ljust(first), *(cell.rjust(width) for cell, width in zip(line[1:], others, strict=True))]
            )
            for line in lines
        )
        return "\n".join(line.rstrip() for line in text)

    def markdown(self) -> str:
        """A Markdown table."""
        ruler = ["---", *["---:"] * (len(self.header) - 1)]
        return "\n".join("| " + " | ".join(line) + " |" for line in (self.header, ruler, *self.rows))


def finite(value: Any) -> Any:
    """The same JSON value with null in place of every NaN and infinity, which JSON does not have."""
    if isinstance(value, Mapping):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
