"""Names of communities: the items that are most typical of them, by their titles."""

from __future__ import annotations

import re
from collections.abc import Mapping

from loca.data.id_map import IdMap
from loca.evaluation.explain import Figures, Rows
from loca.text_table import cut

_ITEMS_IN_A_NAME = 3
_WIDTH_OF_A_TITLE = 32
_CATALOGUE_TITLE = re.compile(r"(?P<title>.+?)(?:, (?P<article>The|An?))?(?: \(\d{4}\))?")


def name_rows(distinctive: Mapping[int, tuple[Rows, Figures]]) -> dict[int, tuple[int, ...]]:
    """Return the rows of the items that name each community.

    They are the first of its distinctive items that members have more often than others. Where an
    earlier community has the same name, the last item is exchanged for a less typical one.
    """
    names: dict[int, tuple[int, ...]] = {}
    taken: list[set[int]] = []
    for community, (items, lifts) in distinctive.items():
        rows = tuple(items[lifts > 1].tolist())
        first, others = rows[: _ITEMS_IN_A_NAME - 1], rows[_ITEMS_IN_A_NAME - 1 :]
        possible = [(*first, last) for last in others] or [rows]
        free = (name for name in possible if set(name) not in taken)
        names[community] = next(free, possible[0])
        taken.append(set(names[community]))
    return names


def short_title(names: IdMap, row: int) -> str:
    """Return a title as people say it: The Lion King for Lion King, The (1994)."""
    label = names.label(int(row))
    parts = _CATALOGUE_TITLE.fullmatch(label)
    if parts is None:
        return cut(label, _WIDTH_OF_A_TITLE)
    title = parts["title"]
    if parts["article"]:
        title = f"{parts['article']} {title}"
    return cut(title, _WIDTH_OF_A_TITLE)
