"""Items as a person names them on a command line: ids or titles, comma separated, commas inside titles allowed."""

from __future__ import annotations

from collections.abc import Sequence

from loca.data.id_map import IdMap
from loca.errors import DataError


def find_items(items: IdMap, texts: Sequence[str], option: str) -> list[int]:
    """The item rows named by the texts of an option, in their order; an unknown name is refused with close ones.

    At each place the longest stretch that is an id or a title counts, so `Godfather, The` is one title.
    """
    by_title = _rows_by_title(items)
    found: list[int] = []
    for text in texts:
        pieces = text.split(",")
        place = 0
        while place < len(pieces):
            if not pieces[place].strip():
                place += 1
                continue
            row, place = _longest(items, by_title, pieces, place)
            found.append(row)
    if not found:
        raise DataError(f"{option}: expected at least one item id or title, found {','.join(texts)!r}")
    return list(dict.fromkeys(reversed(found)))[::-1]


def _longest(items: IdMap, by_title: dict[str, list[int]], pieces: list[str], place: int) -> tuple[int, int]:
    for end in range(len(pieces), place, -1):
        name = ",".join(pieces[place:end]).strip()
        if name in items:
            return items.row(name), end
        rows = by_title.get(name.casefold(), [])
        if len(rows) > 1:
            ids = ", ".join(str(one) for one in items.ids(rows[:5]))
            raise DataError(f"the title {name!r} names {len(rows)} items: {ids}; give the id")
        if rows:
            return rows[0], end
    return items.row(pieces[place].strip()), place  # refuses, naming close ones


def _rows_by_title(items: IdMap) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = {}
    if items.labels is not None:
        for row, title in enumerate(items.labels.tolist()):
            rows.setdefault(str(title).casefold(), []).append(row)
    return rows
