"""Who watches a model learn: scores on validation are told as they come, and a watcher may end the fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Watcher = Callable[[int, float], None]

_watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


@contextmanager
def watched_by(watcher: Watcher | None) -> Iterator[None]:
    """While it is open, `watcher` is told each step and its score on validation; what it raises ends the fit."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def tell_score(step: int, score: float) -> None:
    """Tells the watcher, where there is one, what was reached after so many epochs or rounds."""
    watcher = _watcher.get()
    if watcher is not None:
        watcher(step, score)
