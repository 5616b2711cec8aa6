"""Progress: a bar in a terminal or a notebook, a line now and then in a log; and lines that say what happens."""

from __future__ import annotations

import logging
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

_log = logging.getLogger("loca")
_log.addHandler(logging.NullHandler())
_log_of_progress = logging.getLogger("loca.progress")
_SECONDS_BETWEEN_LINES = 10.0
_SECONDS_BETWEEN_DRAWINGS = 0.2


class _Now:
    """What holds for all bars: the caller's choice, whether one is being drawn, and when a line was logged last."""

    shown: bool | None = None
    drawing = False
    last_line = 0.0


def set_progress(shown: bool | None) -> None:
    """Choose how the progress of long work is shown.

    Parameters
    ----------
    shown : bool or None
        False shows none. None, as at the start, draws a bar in a terminal and in a notebook; elsewhere it logs a line
        every 10 seconds or less often, at the level INFO of the logger `loca.progress`. True draws a bar everywhere.

    Examples
    --------
    >>> loca.set_progress(False)  # silent from here on
    >>> loca.set_progress(None)
    """
    _Now.shown = shown


def show_progress(shown: bool | None) -> None:
    """Call `set_progress` under its former name, with a warning.

    Parameters
    ----------
    shown : bool or None
        As for `set_progress`.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", DeprecationWarning)
    ...     loca.show_progress(None)
    """
    warnings.warn("show_progress is now set_progress", DeprecationWarning, 2)
    set_progress(shown)


def say(line: str) -> None:
    """Log one line to the logger named `loca`."""
    _log.info(line)


class Bar:
    """A running piece of work; `advance` moves it on and can put a few words behind it. Nothing shows this one."""

    def advance(self, steps: float = 1, note: str | None = None) -> None:
        """Move the bar on by `steps`, with `note` as the words behind it where given."""


class _DrawnBar(Bar):
    """Calls `draw(done, note)` at every step."""

    def __init__(self, draw: Callable[[float, str], None]) -> None:
        self.draw, self.done, self.note = draw, 0.0, ""

    def advance(self, steps: float = 1, note: str | None = None) -> None:
        self.done, self.note = self.done + steps, self.note if note is None else note
        self.draw(self.done, self.note)


@contextmanager
def bar(what: str, total: float, *, clock: Callable[[], float] = time.monotonic) -> Iterator[Bar]:
    """Show `total` steps of work called `what` as the caller has chosen; inside of a drawn bar there is no other."""
    draws = _Now.shown or (_Now.shown is None and (sys.stderr.isatty() or _notebook() is not None))
    if _Now.shown is False or total <= 1 or _Now.drawing:
        yield Bar()
    elif not draws:
        yield from _log_lines(what, total, clock)
    else:
        _Now.drawing = True
        try:
            yield from (
                _in_terminal(what, total)
                if _notebook() is None
                else _in_notebook(what, total, clock)
            )
        finally:
            _Now.drawing = False


def _log_lines(what: str, total: float, clock: Callable[[], float]) -> Iterator[Bar]:
    """Log how far the work is, at most every few seconds of all work, and its end where it took so long."""
    if not _log_of_progress.isEnabledFor(logging.INFO):
        yield Bar()
        return
    started, logged = clock(), False
    if not 0 <= started - _Now.last_line <= _SECONDS_BETWEEN_LINES:
        _Now.last_line = started

    def draw(done: float, note: str) -> None:
        nonlocal logged
        now = clock()
        if now - _Now.last_line < _SECONDS_BETWEEN_LINES or done >= total:
            return
        _Now.last_line, logged = now, True
        left = f", about {_duration((now - started) * (total - done) / done)} left" if done else ""
        words = f"; {note}" if note else ""
        _log_of_progress.info(
            f"{what}: {done:,.0f} of {total:,.0f}, {_duration(now - started)}{left}{words}"
        )

    yield _DrawnBar(draw)
    if logged and clock() - started >= _SECONDS_BETWEEN_LINES:
        _log_of_progress.info(f"{what}: done, {_duration(clock() - started)}")


def _in_terminal(what: str, total: float) -> Iterator[Bar]:
    """Draw a bar that goes when the work is done; none where rich is not installed."""
    try:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )
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
        task = progress.add_task(what, total=total, note="")
        yield _DrawnBar(lambda done, note: progress.update(task, completed=done, note=note))


def _in_notebook(what: str, total: float, clock: Callable[[], float]) -> Iterator[Bar]:
    """Draw a bar in the output of a notebook, which needs no widgets; it goes when the work is done."""
    from IPython.display import HTML, display

    def html(done: float, note: str) -> Any:
        text = escape(f"{what}  {done:,.0f}/{total:,.0f}  {note}")
        return HTML(f'<progress value="{done:g}" max="{total:g}"></progress> <span>{text}</span>')

    shown, drawn_at = display(html(0, ""), display_id=True), clock()

    def draw(done: float, note: str) -> None:
        nonlocal drawn_at
        if shown is not None and (now := clock()) - drawn_at >= _SECONDS_BETWEEN_DRAWINGS:
            drawn_at = now
            shown.update(html(done, note))

    try:
        yield _DrawnBar(draw)
    finally:
        if shown is not None:
            shown.update(HTML(""))


def _notebook() -> Any:
    """The running shell of a notebook, None elsewhere; never loads IPython itself."""
    interactive = sys.modules.get("IPython")
    shell = None if interactive is None else interactive.get_ipython()
    return shell if hasattr(shell, "kernel") else None


def _duration(seconds: float) -> str:
    """So many seconds for people: `45 s`, `3 min 20 s`, `2 h 05 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return (
        f"{minutes} min {rest:02d} s"
        if minutes < 60
        else f"{minutes // 60} h {minutes % 60:02d} min"
    )
