"""Planted communities: synthetic interactions whose right answer is known, because the memberships are known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from loca.data.id_map import IdMap
from loca.data.interactions import Interactions
from loca.errors import ConfigError
from loca.memory import plan_memory
from loca.random_streams import stream
from loca.text_table import Readable, TextTable

Floats = npt.NDArray[np.float64]

_FIRST_DAY = 1_577_836_800  # 2020-01-01, in seconds
_SECONDS_A_DAY = 86_400
_USERS_PER_BLOCK = 2048
_ADJECTIVES = (
    "Amber Ashen Bitter Bright Broken Burning Cobalt Copper Crimson Crooked Distant Drowned Early Empty Endless Faded "
    "Fallen First Frozen Gentle Gilded Golden Hidden Hollow Iron Ivory Last Late Little Lonely Long Lost Lunar "
    "Midnight Painted Pale Paper Quiet Restless Rising Salt Scarlet Secret Silent Silver Sleeping Slow Stolen Strange "
    "Velvet"
).split()
_NOUNS = (
    "Archive Avenue Bay Bridge Cathedral Circus Clockwork Coast Compass Crossing Dynasty Echo Empire Engine Falls "
    "Fever Forest Garden Gate Harbour Highway Horizon Hotel House Island Kingdom Lantern Letter Lighthouse Machine "
    "Mirror Mountain Ocean Orchard Orchestra Passage Promise River Road Season Shadow Signal Station Stranger Summer "
    "Theatre Tide Tower Winter Witness"
).split()


@dataclass(frozen=True, eq=False, repr=False)
class PlantedData(Readable):
    """Hold planted interactions, and what they were made from; prints as a short table.

    Attributes
    ----------
    interactions : Interactions
        The histories, with times, ids and titles.
    memberships : ndarray of float64
        Users × communities: the share with which user u belongs to community c.
    groups : ndarray of int64
        Communities × items: the group into which community c puts item i.
    favoured : ndarray of bool
        Communities × items: whether community c favours item i.
    """

    interactions: Interactions
    memberships: Floats
    groups: npt.NDArray[np.int64]
    favoured: npt.NDArray[np.bool_]

    def shown(self) -> list[str | TextTable]:
        """Return what a person reads: the number of communities, and the interactions.

        Returns
        -------
        list of str or TextTable
        """
        communities, groups = self.memberships.shape[1], int(self.groups.max()) + 1
        title = f"PlantedData: {communities} communities, each sorts the items into {groups} groups"
        return [title, *self.interactions.shown()]


def planted_communities(
    *,
    users: int = 4000,
    items: int = 300,
    communities: int = 6,
    groups: int = 15,
    tastes: float = 3.0,
    overlap: float = 0.3,
    favour: float = 10.0,
    tail: float = 0.7,
    stray: float = 0.1,
    drift: float = 0.0,
    history: int = 30,
    shortest_history: int = 12,
    seed: int = 0,
) -> PlantedData:
    """Make synthetic interactions of users whose communities are known.

    Each community sorts the same items into groups of its own and favours a third of them. A user likes some groups of
    the own community.

    Parameters
    ----------
    users : int, default 4000
        Number of users.
    items : int, default 300
        Number of items; at least 3, as many as groups, and twice the shortest history.
    communities : int, default 6
        Number of communities.
    groups : int, default 15
        Groups into which each community sorts the items.
    tastes : float, default 3.0
        About how many groups of the own community a user likes.
    overlap : float, default 0.3
        Share of the users who belong to two communities.
    favour : float, default 10.0
        How many times as popular an item is in a community that favours it.
    tail : float, default 0.7
        Popularity falls as rank^−tail.
    stray : float, default 0.1
        Share of the choices that follow popularity alone.
    drift : float, default 0.0
        Share of new tastes in the second half of a history, so that its order carries information; at 0 the order has
        no meaning.
    history : int, default 30
        About how many distinct items a history has; at most half of the items.
    shortest_history : int, default 12
        The fewest items of a history.
    seed : int, default 0
        Seed of everything drawn.

    Returns
    -------
    PlantedData
        `interactions`, and what they were made from: `memberships`, `groups` and `favoured`.

    Examples
    --------
    >>> planted = loca.planted_communities(users=60, items=30, groups=5, history=12, shortest_history=10)
    >>> planted.interactions.n_users, planted.interactions.n_items
    (60, 30)
    >>> planted.memberships.shape
    (60, 6)
    """
    if min(users, communities, groups, shortest_history, history) < 1:
        raise ConfigError(
            "planted communities: users, communities, groups and histories must be at least 1"
        )
    plan_memory(
        f"planting {users:,} users", users * (communities + 2 * history) * 8, "plant fewer users"
    )
    if items < max(2 * shortest_history, groups, 3):
        found = f"{items} items are too few for {groups} groups and histories of {shortest_history}"
        raise ConfigError(f"planted communities: {found}")
    for name, share in (("overlap", overlap), ("stray", stray), ("drift", drift)):
        if not 0 <= share <= 1:
            raise ConfigError(f"{name}: expected a number from 0 to 1, found {share!r}")
    rng = stream(seed, "planted communities")
    popularity = (1.0 + rng.permutation(items)) ** -tail  # (items,)
    group_of = np.stack(
        [rng.permutation(items) % groups for _ in range(communities)]
    )  # (communities, items)
    favoured = rng.random((communities, items)).argsort(axis=1) < items // 3
    appeal = popularity * np.where(favoured, favour, 1.0)  # (communities, items)
    # Each user's shares in the communities: all in one, or divided between two.
    own = rng.integers(0, communities, users)
    other = (own + rng.integers(1, max(communities, 2), users)) % communities
    divided = np.where(rng.random(users) < overlap, rng.uniform(0.2, 0.5, users), 0.0)
    memberships = np.zeros((users, communities))
    np.add.at(memberships, (np.arange(users), own), 1 - divided)
    np.add.at(memberships, (np.arange(users), other), divided)
    lengths = np.clip(rng.poisson(history, users), shortest_history, items // 2)
    user_rows, item_rows, days = [], [], []
    for start in range(0, users, _USERS_PER_BLOCK):
        rows = np.arange(start, min(start + _USERS_PER_BLOCK, users))
        # How likely each user is to choose each item early and late in the history, (users, items).
        early = np.tile(stray * popularity / popularity.sum(), (len(rows), 1))
        late = early.copy()
        for group, worth, share in zip(group_of, appeal, memberships[rows].T, strict=True):
            first = rng.dirichlet(np.full(groups, tastes / groups), len(rows))  # (users, groups)
            then = rng.dirichlet(np.full(groups, tastes / groups), len(rows)) if drift else first
            within = (
                worth / np.bincount(group, weights=worth, minlength=groups)[group]
            )  # sums to 1 in each group
            belongs = (1 - stray) * share[:, None]
            early += belongs * first[:, group] * within
            late += belongs * ((1 - drift) * first + drift * then)[:, group] * within
        for row, chosen in zip(rows, _draw_items(early, late, lengths[rows], rng), strict=True):
            user_rows.append(np.full(len(chosen), row))
            item_rows.append(chosen)
            days.append(rng.integers(0, 700) + np.cumsum(rng.integers(1, 15, len(chosen))))
    user_ids, item_ids = (
        np.array([f"{letter}{row:0{len(str(count - 1))}d}" for row in range(count)], dtype=object)
        for letter, count in (("u", users), ("i", items))
    )
    # A readable title for each item, all different; a number is added once the words are used up.
    pairs = rng.permutation(
        [f"{adjective} {noun}" for adjective in _ADJECTIVES for noun in _NOUNS]
    ).tolist()
    numbers = [f" {1 + item // len(pairs)}" if item >= len(pairs) else "" for item in range(items)]
    titles = np.array(
        [pairs[item % len(pairs)] + numbers[item] for item in range(items)], dtype=object
    )
    times = _FIRST_DAY + _SECONDS_A_DAY * np.concatenate(days)
    maps = IdMap(user_ids, "user"), IdMap(item_ids, "item", titles)
    interactions = Interactions.from_events(
        *maps, np.concatenate(user_rows), np.concatenate(item_rows), times
    )
    return PlantedData(interactions, memberships, group_of, favoured)


def _draw_items(
    early: Floats, late: Floats, lengths: npt.NDArray[np.int64], rng: np.random.Generator
) -> list[npt.NDArray[np.int64]]:
    """Draw distinct items for each user, about half of them from `early`, then those from `late`."""
    # The largest (log chance + Gumbel noise) are a draw without replacement.
    by_early = np.argsort(-(np.log(early) + rng.gumbel(size=early.shape)), axis=1)
    by_late = np.argsort(-(np.log(late) + rng.gumbel(size=late.shape)), axis=1)
    histories = []
    for row, length in enumerate(lengths):
        # Both take turns, so that neither gets the likelier items, and each part is shuffled, because the likelier
        # items would come first: the order must tell nothing that no taste put there.
        turns = np.empty(2 * early.shape[1], dtype=np.int64)
        first = int(rng.integers(2))
        turns[first::2], turns[1 - first :: 2] = by_early[row], by_late[row]
        _, places = np.unique(turns, return_index=True)
        places = np.sort(places)[:length]
        is_early = places % 2 == first
        halves = [rng.permutation(turns[places[part]]) for part in (is_early, ~is_early)]
        histories.append(np.concatenate(halves))
    return histories
