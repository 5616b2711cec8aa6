"""Anchors: every way against its definition; greedy coverage has a file of its own."""

from __future__ import annotations

import numpy as np
import pytest

import loca.communities.anchors as anchors_file
from loca.communities.anchors import check_selection, choose_anchors, farthest_first, nearest_to_centres
from loca.communities.geometry import angular_distances, unit_rows
from loca.errors import ConfigError, DataError


def random_rows(seed: int, users: int, dimensions: int) -> np.ndarray:
    return unit_rows(np.random.default_rng(seed).normal(size=(users, dimensions)))


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


@pytest.mark.parametrize("whole", [50_000, 50])
def test_k_means_anchors_stand_in_different_clusters(whole: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anchors_file, "_USERS_FOR_WHOLE_K_MEANS", whole)
    rng = np.random.default_rng(0)
    centres = np.eye(4)
    rows = unit_rows(np.repeat(centres, 30, axis=0) + rng.normal(0, 0.05, (120, 4)))
    assert sorted(nearest_to_centres(rows, 4, seed=0) // 30) == [0, 1, 2, 3]


def test_an_unknown_way_of_choosing_is_refused() -> None:
    check_selection("farthest")
    with pytest.raises(ConfigError, match="unknown anchor_selection 'farthst'; did you mean 'farthest'"):
        check_selection("farthst")


def test_more_anchors_than_users_are_refused() -> None:
    with pytest.raises(DataError, match="anchors: 11 were asked for, there are only 10 users; take fewer"):
        choose_anchors(random_rows(0, 10, 3), 11, "coverage", 0.5, 0)
    with pytest.raises(ConfigError, match="expected at least 1"):
        choose_anchors(random_rows(0, 10, 3), 0, "coverage", 0.5, 0)
