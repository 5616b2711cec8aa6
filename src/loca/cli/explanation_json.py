"""An explanation as JSON: ids and titles in place of rows."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy.typing as npt

from loca.data.id_map import IdMap
from loca.local.blend_explanation import BlendExplanation, PartAnswer
from loca.local.explanation import Explanation


def blend_json(explanation: BlendExplanation, items: IdMap) -> dict[str, Any]:
    """The list, and each part with its own list and what it adds to the items of the blend's."""
    return {
        "history": _named(explanation.history, None, items, ""),
        "items": _named(explanation.items, explanation.scores, items, "score"),
        "parts": [_part_json(part, explanation, items) for part in explanation.parts],
    }


def _part_json(part: PartAnswer, explanation: BlendExplanation, items: IdMap) -> dict[str, Any]:
    added = _named(explanation.items, part.contributions, items, "contribution")
    for place, one in enumerate(added):
        one["share"], one["rank"] = float(part.shares[place]), int(part.ranks[place])
    document: dict[str, Any] = {
        "part": part.name,
        "weight": part.weight,
        "items": _named(part.items, part.scores, items, "score"),
        "adds": added,
    }
    if isinstance(part.inside, BlendExplanation):
        document["inside"] = blend_json(part.inside, items)
    elif part.inside is not None:
        document["inside"] = explanation_json(part.inside, items)
    return document


def explanation_json(explanation: Explanation, items: IdMap) -> dict[str, Any]:
    """The list, the communities that answer and the global model, each item with its id, title and figure.

    The history stands oldest first.
    """
    return {
        "history": _named(explanation.history, None, items, ""),
        "items": _named(explanation.items, explanation.scores, items, "score"),
        "communities": [
            {
                "community": part.community,
                "anchor": part.anchor,
                "weight": part.weight,
                "members": part.members,
                "items": _named(part.items, part.scores, items, "score"),
                "known_for": _named(part.distinctive, part.lifts, items, "lift"),
            }
            for part in explanation.communities
        ],
        "global": {
            "weight": explanation.alpha,
            "items": _named(explanation.global_items, explanation.global_scores, items, "score"),
        },
        "locality": None if explanation.locality is None else asdict(explanation.locality),
    }


def _named(rows: npt.NDArray[Any], figures: npt.NDArray[Any] | None, items: IdMap, figure: str) -> list[dict[str, Any]]:
    """Each listed item; a place that could not be filled (−1) is left out."""
    listed = []
    for place, row in enumerate(rows.tolist()):
        if row >= 0:
            named: dict[str, Any] = {"item": items.ids([row])[0]}
            if items.labels is not None:
                named["title"] = items.label(row)
            if figures is not None:
                named[figure] = float(figures[place])
            listed.append(named)
    return listed
