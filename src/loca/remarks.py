"""Remarks: caveats that change what an answer means, told where the reader of the answer looks."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_PACKAGE = str(Path(__file__).parent)

# The stable name of each kind of remark, and what it is about.
KINDS = {
    "ambiguous-item": "a text is the id of one item and the title of another",
    "columns-guessed": "columns without names were taken by their positions",
    "communities": "communities earn nothing on validation, or are fewer than asked for",
    "events-ignored": "a column tells kinds of events apart, and all count the same",
    "file-order": "the order of items looks like the file's, not the users'",
    "history-cut": "a reply repeats the newest items of a long history alone",
    "ids-alike": "ids differ by case, or by signs that nobody sees",
    "ids-read-as": "a file without column names was recognised by the shapes of its ids or lines",
    "ids-rounded": "ids have lost digits on their way",
    "items-left-out": "items that a model does not know were left out",
    "kept": "an update leaves a part of a model as it was fitted",
    "leak": "a model is measured on interactions that it was fitted on",
    "low-ratings": "low ratings count as likes",
    "minima": "minimum counts of a fit are not applied to what comes later",
    "missing-ids": "ids may stand for a missing one",
    "no-preference": "all items have one score for a user, and the list is in no order",
    "no-ratings": "ratings were filtered at the fit, and later rows have none",
    "no-times": "later rows have no times, and count as the newest",
    "no-validation": "something that is chosen on validation was not chosen",
    "order-unknown": "histories stand in the order of the items, not of time",
    "popular-instead": "somebody who is not known gets what is popular",
    "ratings-left-out": "rows below the minimum rating were left out",
    "ratings-unreadable": "ratings are no numbers, and all rows count as likes",
    "repeats-added": "weights of rows that may be copies were added",
    "service": "a service of a newer version tells a caveat of a kind that is not known here",
    "setting-ignored": "a setting of a file is for another command",
    "targets-older": "targets are older than the histories that they are to be found from",
    "targets-seen": "targets that are in the history already, which no list can name",
    "targets-unknown": "targets that nobody has in training, which no model can know",
    "time-ignored": "a column may hold times, and is not used",
    "times-unknown": "times are not in the unit that was said, or in none that is known",
    "titles-unknown": "titles were given for no item that there is",
    "training": "a training did not end as it should",
    "trials-decide": "a budget has trials and seconds, and the trials alone count",
    "users-left-out": "users without a history, or whom a model does not know, were left out",
    "weights-ignored": "a column of weights is there, and all rows count the same",
}


class LocaWarning(UserWarning):
    """A caveat that changes what an answer means.

    Its text begins with the name of its kind, so that one kind can be filtered or raised:
    `warnings.filterwarnings("error", "leak:", loca.LocaWarning)`.

    Parameters
    ----------
    kind : str
        The stable name of the kind, such as `"leak"`.
    text : str
        What a person reads.

    Examples
    --------
    >>> warning = loca.LocaWarning("leak", "the model was fitted on 98 % of the targets")
    >>> warning.kind
    'leak'
    >>> str(warning)
    'leak: the model was fitted on 98 % of the targets'
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(kind, text)
        self.kind = kind
        self.text = text

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


@dataclass(frozen=True)
class Remark:
    """A caveat: the stable name of its kind, and its text; prints as the text."""

    kind: str
    text: str

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"unknown kind of remark {self.kind!r}")

    def __str__(self) -> str:
        return self.text

    def to_json(self) -> dict[str, str]:
        """Return kind and text as a JSON object."""
        return {"kind": self.kind, "text": self.text}


Remarks = tuple[Remark, ...]


def read_remarks(written: Iterable[Mapping[str, str]]) -> Remarks:
    """Return remarks from JSON objects; kinds that are not known here are left out."""
    return tuple(Remark(one["kind"], one["text"]) for one in written if one["kind"] in KINDS)


Listener = Callable[[Remark], None]


@dataclass(eq=False)
class Collector:
    """The remarks that were made while it was active, each once, and who listens to them."""

    listener: Listener | None = None
    found: dict[Remark, None] = field(default_factory=dict)

    @property
    def remarks(self) -> Remarks:
        """The remarks so far, in order."""
        return tuple(self.found)


_collectors: ContextVar[tuple[Collector, ...]] = ContextVar("collectors of remarks", default=())


@contextmanager
def collect_remarks(listener: Listener | None = None) -> Iterator[Collector]:
    """Collect the remarks that are made inside, for the object that they belong to.

    With a `listener` each is given to it in place of a Python warning, once.
    """
    collector = Collector(listener)
    token = _collectors.set((*_collectors.get(), collector))
    try:
        yield collector
    finally:
        _collectors.reset(token)


def keeps_remarks(function: Callable[P, R]) -> Callable[P, R]:
    """Keep, on the frozen result of a decorated function, the remarks that were made in it."""

    @wraps(function)
    def collecting(*args: P.args, **kwargs: P.kwargs) -> R:
        with collect_remarks() as collected:
            result = function(*args, **kwargs)
        found: Any = result
        remarks = joined_remarks(found.remarks, collected.remarks)
        return result if remarks == found.remarks else replace(found, remarks=remarks)

    return collecting


def remark(kind: str, text: str) -> None:
    """Tell a caveat: to the collectors around, and to their innermost listener, else as a warning."""
    tell_remarks([Remark(kind, text)])


def tell_remarks(remarks: Iterable[Remark]) -> None:
    """Tell remarks; those that were collected elsewhere, such as in another process, are told again."""
    collectors = _collectors.get()
    heard_by = next((one for one in reversed(collectors) if one.listener is not None), None)
    for one in remarks:
        is_news = heard_by is None or one not in heard_by.found
        for collector in collectors:
            collector.found.setdefault(one)
        if heard_by is None or heard_by.listener is None:
            warnings.warn(LocaWarning(one.kind, one.text), stacklevel=_level_of_caller())
        elif is_news:
            heard_by.listener(one)


@contextmanager
def muted_remarks() -> Iterator[None]:
    """Tell nobody of the remarks that are made inside, such as those of a model that is only tried."""
    token = _collectors.set((Collector(lambda one: None),))
    try:
        yield
    finally:
        _collectors.reset(token)


def told_remarks() -> Remarks:
    """Return what the innermost listener has heard so far."""
    collectors = _collectors.get()
    heard_by = next((one for one in reversed(collectors) if one.listener is not None), None)
    return () if heard_by is None else heard_by.remarks


def joined_remarks(*several: Remarks) -> Remarks:
    """Return all remarks in order, each once."""
    return tuple(dict.fromkeys(one for remarks in several for one in remarks))


def shown_remarks(remarks: Iterable[Remark]) -> list[str]:
    """Return the remarks as the lines that a person reads below an object."""
    return [f"note: {one}" for one in remarks]


def _level_of_caller() -> int:
    """Return the stack level, as `warnings.warn` counts it, of the first caller outside the package."""
    level = 1
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
        level += 1
    return level
