"""Anchors: greedy coverage against brute force, the other ways against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loca.communities.anchors as anchors_file
from loca.communities.anchors import choose_anchors, cover_greedily, farthest_first, nearest_to_centres
from loca.communities.geometry import angular_distances, unit_rows
from loca.errors import ConfigError, DataError


def random_rows(seed: int, users: int, dimensions: int) -> np.ndarray:
    return unit_rows(np.random.default_rng(seed).normal(size=(users, dimensions)))


def cover_by_brute_force(rows: np.ndarray, count: int, bandwidth: float) -> list[int]:
    """The paper's procedure, word by word, over the full matrix of distances."""
    within = angular_distances(rows, rows) < bandwidth
    np.fill_diagonal(within, True)
    covered = np.zeros(len(rows), bool)
    chosen: list[int] = []
    while len(chosen) < count:
        gains = [-1 if user in chosen else int((within[user] & ~covered).sum()) for user in range(len(rows))]
        chosen.append(int(np.argmax(gains)))
        covered |= within[chosen[-1]]
        if covered.all():
            covered[:] = False
    return chosen


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    users=st.integers(5, 150),
    dimensions=st.integers(2, 6),
    bandwidth=st.sampled_from([0.05, 0.3, 0.6, 0.9, 1.5, 3.0]),
    look=st.sampled_from([1, 7, 256]),
)
def test_greedy_coverage_equals_brute_force(
    seed: int, users: int, dimensions: int, bandwidth: float, look: int
) -> None:
    rows = random_rows(seed, users, dimensions)
    count = min(users, 12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(anchors_file, "_CANDIDATES_PER_LOOK", look)
        patch.setattr(anchors_file, "_ROWS_PER_BLOCK", 16)
        assert cover_greedily(rows, count, bandwidth).tolist() == cover_by_brute_force(rows, count, bandwidth)


def test_when_all_are_covered_the_choosing_starts_again() -> None:
    # Two tight groups of three and two: one anchor each covers all, then the next of the larger group, and so on.
    angles = np.deg2rad([0, 1, 2, 90, 91])
    rows = unit_rows(np.column_stack([np.cos(angles), np.sin(angles)]))
    assert cover_greedily(rows, 5, 0.1).tolist() == [0, 3, 1, 4, 2]


def test_coverage_covers_more_than_a_random_choice() -> None:
    rows = random_rows(3, 400, 8)
    covered = {}
    for selection in ("coverage", "random"):
        chosen = choose_anchors(rows, 10, selection, 0.45, seed=1)  # type: ignore[arg-type]
        covered[selection] = (angular_distances(rows, rows[chosen]) < 0.45).any(axis=1).mean()
    assert covered["coverage"] > covered["random"]


@pytest.mark.parametrize("selection", ["coverage", "random", "kmeans", "farthest"])
def test_anchors_are_different_users_and_the_same_for_the_same_seed(selection: str) -> None:
    rows = random_rows(4, 60, 5)
    chosen = choose_anchors(rows, 60, selection, 0.5, seed=2)  # type: ignore[arg-type]
    assert sorted(chosen) == list(range(60))
    np.testing.assert_array_equal(chosen, choose_anchors(rows, 60, selection, 0.5, seed=2))  # type: ignore[arg-type]


def test_random_anchors_change_with_the_seed() -> None:
    rows = random_rows(4, 60, 5)
    assert choose_anchors(rows, 5, "random", 0.5, 1).tolist() != choose_anchors(rows, 5, "random", 0.5, 2).tolist()


def test_the_farthest_user_comes_next() -> None:
    angles = np.deg2rad([0, 10, 170, 90])
    rows = unit_rows(np.column_stack([np.cos(angles), np.sin(angles)]))
    chosen = farthest_first(rows, 4, seed=0).tolist()
    distances = angular_distances(rows, rows)
    for place in range(1, 4):
        nearest = distances[:, chosen[:place]].min(axis=1)
        assert nearest[chosen[place]] == pytest.approx(max(nearest[u] for u in range(4) if u not in chosen[:place]))


def test_k_means_anchors_stand_in_different_clusters() -> None:
    rng = np.random.default_rng(0)
    centres = np.eye(4)
    rows = unit_rows(np.repeat(centres, 30, axis=0) + rng.normal(0, 0.05, (120, 4)))
    assert sorted(nearest_to_centres(rows, 4, seed=0) // 30) == [0, 1, 2, 3]


def test_more_anchors_than_users_are_refused() -> None:
    with pytest.raises(DataError, match="anchors: 11 were asked for, there are only 10 users; take fewer"):
        choose_anchors(random_rows(0, 10, 3), 11, "coverage", 0.5, 0)
    with pytest.raises(ConfigError, match="expected at least 1"):
        choose_anchors(random_rows(0, 10, 3), 0, "coverage", 0.5, 0)


def test_neighbourhoods_that_do_not_fit_into_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loca.memory.available_bytes", lambda: 100)
    with pytest.raises(DataError, match="greedy coverage over 100 users: 2 kB of memory needed, 100 B are free; use"):
        cover_greedily(random_rows(0, 100, 3), 2, 0.5)
