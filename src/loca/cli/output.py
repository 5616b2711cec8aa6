"""Where a command's words go: the answer to standard output, everything else to standard error, or nowhere."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from loca.progress import show_progress
from loca.text_table import TextTable, finite


class _ToStandardError(logging.Handler):
    """Writes each line to whatever standard error is at that moment, so that bars and tests may redirect it."""

    def emit(self, record: logging.LogRecord) -> None:
        print(record.getMessage(), file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Output:
    """How a command speaks: one JSON document and nothing else, or text with notes beside it unless `quiet`."""

    as_json: bool = False
    quiet: bool = False

    def __post_init__(self) -> None:
        silent = self.as_json or self.quiet
        show_progress(False if silent else None)
        logger = logging.getLogger("loca")
        for handler in [one for one in logger.handlers if isinstance(one, _ToStandardError)]:
            logger.removeHandler(handler)
        if not silent:
            logger.addHandler(_ToStandardError())
        logger.setLevel(logging.WARNING if silent else logging.INFO)

    def note(self, line: str) -> None:
        """One line beside the answer."""
        logging.getLogger("loca").info(line)

    def notes(self, lines: Iterable[str]) -> None:
        """Several lines beside the answer."""
        for line in lines:
            self.note(line)

    def answer(self, text: str, document: Mapping[str, Any]) -> None:
        """The answer itself: the document under --json, else the text."""
        if self.as_json:
            print(json.dumps(finite(document), ensure_ascii=False, indent=1, allow_nan=False))
        else:
            print(text)

    @property
    def is_watched(self) -> bool:
        """Whether the answer goes to a person's terminal."""
        return sys.stdout.isatty() and not self.as_json

    def draw(self, grid: TextTable) -> None:
        """A table with lines around it, for a terminal."""
        from rich.console import Console
        from rich.table import Table

        drawn = Table()
        for place, title in enumerate(grid.header):
            drawn.add_column(title, justify="right" if place else "left")
        for row in grid.rows:
            drawn.add_row(*row)
        Console().print(drawn)
