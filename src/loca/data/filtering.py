"""What is left out before a split: low ratings, repeated pairs, users and items with too few interactions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from loca.data.events import Events
from loca.data.interactions import Interactions
from loca.errors import ConfigError, DataError


def keep_ratings_of_at_least(events: Events, minimum: float) -> Events:
    """The events whose rating is at least `minimum`; the ids stay, some without an event."""
    if events.ratings is None:
        raise DataError("minimum_rating needs a column of ratings, and there is none")
    kept = events.ratings >= minimum
    if not kept.any():
        highest = events.ratings.max() if len(events) else "none"
        raise DataError(f"no user left after filtering: ratings of at least {minimum:g}, but the highest is {highest}")
    return events.where(kept)


def keep_distinct(interactions: Interactions) -> Interactions:
    """Each (user, item) pair once: its first interaction, oldest first and in file order among equal times."""
    pairs = interactions.user_rows() * interactions.n_items + interactions.item_rows
    order = np.argsort(pairs, kind="stable")
    pairs = pairs[order]
    repeats = order[1:][pairs[1:] == pairs[:-1]]
    if len(repeats) == 0:
        return interactions
    kept = np.ones(len(interactions), dtype=bool)
    kept[repeats] = False
    return interactions.where(kept)


def keep_active(
    interactions: Interactions,
    *,
    min_user_interactions: int = 0,
    min_item_interactions: int = 0,
    repeat_filter: bool = False,
    keep_unused_items: bool = False,
) -> Interactions:
    """The interactions of items, then of users, that have at least so many; users and items left without any go.

    Items are counted first and users on what they leave, so that every user kept has the minimum. Users that go may
    leave an item below its minimum: `repeat_filter` goes on until both hold. `keep_unused_items` keeps all items.
    """
    _check_minimum("min_user_interactions", min_user_interactions)
    _check_minimum("min_item_interactions", min_item_interactions)
    left = interactions
    while True:
        before = len(left)
        left = _of_frequent(left, "item", min_item_interactions)
        left = _of_frequent(left, "user", min_user_interactions)
        if not repeat_filter or len(left) == before:
            return drop_unused(left, keep_unused_items=keep_unused_items)


def drop_unused(interactions: Interactions, *, keep_unused_items: bool = False) -> Interactions:
    """The same without users, and (unless they are to be kept) items, that have no interaction."""
    used_users = interactions.counts() > 0
    left = interactions if used_users.all() else interactions.of_users(used_users)
    used_items = np.zeros(left.n_items, dtype=bool)
    used_items[left.item_rows] = True
    if keep_unused_items or used_items.all():
        return left
    new_rows = (np.cumsum(used_items) - 1).astype(np.int32)
    return replace(left, items=left.items.keep(used_items), item_rows=new_rows[left.item_rows])


def _of_frequent(interactions: Interactions, what: str, minimum: int) -> Interactions:
    if minimum <= 0:
        return interactions
    rows: npt.NDArray[Any] = interactions.user_rows() if what == "user" else interactions.item_rows
    counts = np.bincount(rows)
    kept = counts[rows] >= minimum
    if not kept.any():
        raise DataError(
            f"no user left after filtering: at least {minimum} interactions per {what}, "
            f"but the most that any {what} has is {counts.max(initial=0)}"
        )
    return interactions.where(kept)


def _check_minimum(name: str, value: int) -> None:
    if value < 0:
        raise ConfigError(f"{name}: expected a whole number of at least 0, found {value}")
