"""What the service replies to requests for lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from loca.data.id_map import Id
from loca.evaluation.recommend import Recommendations
from loca.remarks import remark
from loca.serving.model_store import ModelVersion
from loca.serving.notes import Note
from loca.serving.problem import ProblemDocument

SCHEMAS = "#/components/schemas/"  # where the OpenAPI document has the parts of bodies
MOST_SHOWN = 100  # items of a history that a reply repeats


class ListedItem(msgspec.Struct, omit_defaults=True):
    """An item of a list."""

    item: Id
    score: float
    rank: int
    title: str | None = None


class HistoryItem(msgspec.Struct, omit_defaults=True):
    """An item of a history."""

    item: Id
    title: str | None = None


class ListReply(msgspec.Struct, kw_only=True):
    """A list, and what it was made from.

    `history` is what the titles or items of the request were understood as, most recent last; the
    reply to a user has none.
    """

    model: str
    fingerprint: str
    user: Id | None
    items: list[ListedItem]
    notes: list[Note]
    history: list[HistoryItem] | UnsetType = UNSET
    explanation: dict[str, Any] | UnsetType | None = UNSET


class ProblemReply(msgspec.Struct):
    """A request of a batch that is refused."""

    problem: ProblemDocument


_ANSWERS = {
    "items": {"anyOf": [{"$ref": f"{SCHEMAS}{name}"} for name in ("ListReply", "ProblemReply")]}
}


class BatchReply(msgspec.Struct):
    """An answer or a problem for each request of a batch, in their order."""

    answers: Annotated[list[Any], Meta(extra_json_schema=_ANSWERS)]


class SimilarReply(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The items most similar to one; a score is a similarity, above 0 and at most 1."""

    model: str
    fingerprint: str
    item: Id
    items: list[ListedItem]
    notes: list[Note]
    title: str | None = None


def listed_items(
    version: ModelVersion, lists: Recommendations, number: int, n: int
) -> list[ListedItem]:
    """Return the first n items of one list."""
    ids = version.item_ids
    titles = version.titles
    item_rows = lists.item_rows[number, :n].tolist()
    scores = lists.scores[number, :n].tolist()
    return [
        ListedItem(ids[row], score, rank, None if titles is None else titles[row])
        for rank, (row, score) in enumerate(zip(item_rows, scores, strict=True), 1)
        if row >= 0
    ]


def shown_history(version: ModelVersion, item_rows: Sequence[int]) -> list[HistoryItem]:
    """Return the last items of a history; that there are more is a remark."""
    if len(item_rows) > MOST_SHOWN:
        text = (
            f"the history has {len(item_rows):,} items, and the reply shows the last {MOST_SHOWN}"
        )
        remark("history-cut", text)
    ids = version.item_ids
    titles = version.titles
    return [
        HistoryItem(ids[row], None if titles is None else titles[row])
        for row in item_rows[-MOST_SHOWN:]
    ]
