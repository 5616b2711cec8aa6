"""A bar that shows what is left, and a line that says what is about to happen; both silent where nobody reads."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_log = logging.getLogger("loca")
_log.addHandler(logging.NullHandler())


class _Choice:
    """Whether bars are drawn: None leaves it to the terminal, True and False are the caller's choice."""

    shown: bool | None = None


def show_progress(shown: bool | None) -> None:
    """Choose whether progress bars are drawn.

    Parameters
    ----------
    shown : bool or None
        True draws bars, False never does, and None, as at the start, draws them when standard error is a terminal.

    Examples
    --------
    >>> loca.show_progress(False)  # silent from here on
    >>> loca.show_progress(None)
    """
    _Choice.shown = shown


@contextmanager
def without_bars() -> Iterator[None]:
    """Draw no bar while this lasts; afterwards the caller's choice holds again."""
    word = _Choice.shown
    show_progress(False)
    try:
        yield
    finally:
        show_progress(word)


def say(line: str) -> None:
    """Log one line to the logger named `loca`."""
    _log.info(line)


class Bar:
    """A running piece of work; `advance` moves it on and can put a few words behind it."""

    def __init__(self, progress: Progress | None = None, task: TaskID | None = None) -> None:
        self._progress = progress
        self._task = task

    def advance(self, steps: float = 1, note: str | None = None) -> None:
        """Move the bar on by `steps`, with `note` as the words behind it where given."""
        if self._progress is None or self._task is None:
            return
        if note is None:
            self._progress.update(self._task, advance=steps)
        else:
            self._progress.update(self._task, advance=steps, note=note)


@contextmanager
def bar(what: str, total: float) -> Iterator[Bar]:
    """Draw a bar for `total` steps of work called `what`; nothing where nobody watches or rich is not installed."""
    shown = sys.stderr.isatty() if _Choice.shown is None else _Choice.shown
    if not shown or total <= 1:
        yield Bar()
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        yield Bar()
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield Bar(progress, progress.add_task(what, total=total, note=""))
