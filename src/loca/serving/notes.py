"""Notes of a reply: the caveats that were told while it was made."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from loca.remarks import Remark, told_remarks


class Note(msgspec.Struct):
    """A caveat that changes what a reply means: the stable name of its kind, and its text."""

    kind: str
    text: str


def no_warning(remark: Remark) -> None:
    """Hear a remark, so that Python does not warn; the collector around keeps it."""


def told_notes() -> list[Note]:
    """Return what was told since the innermost listener began to listen."""
    return as_notes(told_remarks())


def as_notes(remarks: Iterable[Remark]) -> list[Note]:
    """Return remarks as a reply has them."""
    return [Note(remark.kind, remark.text) for remark in remarks]
