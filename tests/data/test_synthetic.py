"""Planted communities: what was planted can be found again in the interactions."""

from __future__ import annotations

import numpy as np
import pytest

from loca.data.synthetic import planted_communities
from loca.errors import ConfigError


def test_the_same_seed_plants_the_same_and_another_seed_something_else() -> None:
    first, again, other = (planted_communities(users=100, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.interactions.item_rows, again.interactions.item_rows)
    np.testing.assert_array_equal(first.memberships, again.memberships)
    assert not np.array_equal(
        first.interactions.item_rows[:500], other.interactions.item_rows[:500]
    )


def test_histories_are_distinct_in_time_order_and_of_the_asked_length() -> None:
    interactions = planted_communities(
        users=300, history=20, shortest_history=15, seed=3
    ).interactions
    assert interactions.matrix().nnz == len(interactions)
    assert interactions.counts().min() >= 15
    assert interactions.counts().mean() == pytest.approx(20, abs=1)
    assert interactions.times is not None
    for user in range(300):
        assert (
            np.diff(interactions.times[interactions.offsets[user] : interactions.offsets[user + 1]])
            > 0
        ).all()


def test_memberships_are_shares_and_some_users_belong_to_two_communities() -> None:
    memberships = planted_communities(users=2000, overlap=0.3, seed=4).memberships
    np.testing.assert_allclose(memberships.sum(axis=1), 1)
    assert ((memberships > 0).sum(axis=1) == 2).mean() == pytest.approx(0.3, abs=0.04)
    assert (planted_communities(users=50, communities=1).memberships == 1).all()


def test_members_prefer_what_their_community_favours() -> None:
    planted = planted_communities(users=1000, overlap=0.0, seed=5)
    matrix = planted.interactions.matrix().toarray()
    home = planted.memberships.argmax(axis=1)
    for community in range(6):
        share = matrix[home == community].mean(axis=0)
        elsewhere = matrix[home != community].mean(axis=0)
        favoured = planted.favoured[community]
        assert favoured.sum() == 100
        assert (share / elsewhere)[favoured].mean() > 1.3 * (share / elsewhere)[~favoured].mean()


def test_items_of_one_group_are_chosen_together_in_the_community_that_groups_them_only() -> None:
    planted = planted_communities(users=3000, overlap=0.0, tail=0.0, favour=1.0, seed=6)
    matrix = planted.interactions.matrix().toarray()
    home = planted.memberships.argmax(axis=1)
    apart = ~np.eye(300, dtype=bool)
    together = np.corrcoef(matrix[home == 0].T)
    own, other = (planted.groups[c][:, None] == planted.groups[c][None, :] for c in (0, 1))
    assert together[own & apart].mean() > 0.1
    assert together[other & ~own & apart].mean() < 0.01


def test_popularity_has_a_long_tail() -> None:
    counts = np.sort(
        np.bincount(planted_communities(users=2000, seed=7).interactions.item_rows, minlength=300)
    )
    assert counts[-30:].sum() > 4 * counts[:30].sum()


def test_order_tells_something_only_with_drift() -> None:
    def likeness_of_neighbours(drift: float) -> float:
        planted = planted_communities(users=1500, overlap=0.0, drift=drift, history=30, seed=8)
        home = planted.memberships.argmax(axis=1)
        gain = []
        for user in range(1500):
            groups = planted.groups[home[user]][planted.interactions.items_of(user)]
            half = len(groups) // 2
            within = np.isin(groups[half : half + 5], groups[-5:]).mean()
            across = np.isin(groups[:5], groups[-5:]).mean()
            gain.append(within - across)
        return float(np.mean(gain))

    assert abs(likeness_of_neighbours(0.0)) < 0.02
    assert likeness_of_neighbours(1.0) > 0.1


def test_every_item_has_a_title_of_its_own() -> None:
    items = planted_communities(users=20, items=3000, groups=10, seed=9).interactions.items
    assert items.labels is not None
    assert len(set(items.labels)) == 3000
    assert items.label(0).istitle()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"users": 0}, "must be at least 1"),
        ({"items": 20}, "20 items are too few for 15 groups and histories of 12"),
        ({"overlap": 1.5}, "overlap: expected a number from 0 to 1, found 1.5"),
        ({"drift": -0.1}, "drift: expected"),
    ],
)
def test_impossible_plans_are_refused(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        planted_communities(**wrong)  # type: ignore[arg-type]
