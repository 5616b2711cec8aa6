"""The data sets on which order is measured: found through LOCA_DATA, in an .npz file, or planted."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import loca
from loca.data.id_map import IdMap

SETS: dict[str, tuple[str, str | None, int]] = {
    "amusic": ("amusic/amusic.rating", "loca-rating", 2),
    "games": ("games-2018/interactions-ordered.csv.gz", "loca-ordered", 2),
    "ml-1m": ("ml-1m/ratings-ordered.csv.gz", "loca-ordered", 5),
    "ml-100k": ("ml-100k/u.data", "movielens-100k", 5),
}


def read_data(name: str, validation: int | None) -> tuple[loca.Interactions, int]:
    """The interactions, distinct pairs and at least 10 per user, and how many of each user are for validation."""
    if name == "planted":
        return planted_walks(), validation or 2
    if name in SETS:
        file, layout, usual = SETS[name]
        folder = os.environ.get("LOCA_DATA")
        if folder is None:
            sys.exit(
                f"set LOCA_DATA to a folder with {file} in it, or name an .npz file, or planted"
            )
        data = loca.read_interactions(Path(folder) / file, min_user_interactions=10, layout=layout)
        return data, validation or usual
    if validation is None or not Path(name).is_file():
        sys.exit(
            f"data: expected {', '.join(SETS)}, planted, or an .npz file with --validation; found {name!r}"
        )
    stored = np.load(name)
    return numbered_interactions(stored["offsets"], stored["item_rows"]), validation


def planted_walks(users: int = 600, items: int = 200, length: int = 17) -> loca.Interactions:
    """Walks around a circle of items from random places: who reads the order knows every next item."""
    starts = np.random.default_rng(0).integers(items, size=(users, 1))
    item_rows = (starts + np.arange(length)) % items
    return numbered_interactions(np.arange(users + 1) * length, item_rows.ravel())


def numbered_interactions(
    offsets: npt.NDArray[Any], item_rows: npt.NDArray[Any]
) -> loca.Interactions:
    """Interactions whose users and items have no names but their rows."""
    users, items = (
        IdMap.numbered(len(offsets) - 1, "user"),
        IdMap.numbered(int(item_rows.max()) + 1, "item"),
    )
    return loca.Interactions(users, items, offsets, item_rows)
