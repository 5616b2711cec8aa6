"""sGLSVD against numpy's decompositions, brute force over its choices, and clusters known beforehand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from loca.errors import ConfigError, DataError, ModelFileError
from loca.models.sglsvd import (
    SGLSVD,
    USERS_PER_BLOCK,
    Memberships,
    SpectralBases,
    best_shares,
    group_users,
    leading_directions,
)
from loca.persistence import load_model
from loca.persistence.learned import restored, state_of
from loca.persistence.manifest import ModelState

CPU = torch.device("cpu")


def random_matrix(seed: int, users: int = 60, items: int = 25) -> np.ndarray:
    return (np.random.default_rng(seed).random((users, items)) < 0.25).astype(np.float64)


def projection(matrix: np.ndarray, rank: int) -> np.ndarray:
    """QQᵀ of the leading right singular vectors, by numpy."""
    right = np.linalg.svd(matrix, full_matrices=False)[2][:rank]
    return right.T @ right


def two_blocks(seed: int, users: int = 60, items: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Users of whom each takes items of one half only, and the half of each; in no order."""
    rng = np.random.default_rng(seed)
    halves = rng.permutation(np.repeat([0, 1], users // 2))
    in_half = np.repeat([0, 1], items // 2)[None, :] == halves[:, None]
    return ((rng.random((users, items)) < 0.4) & in_half).astype(np.float64), halves


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    shape=st.sampled_from([(60, 25), (25, 60)]),
    rank=st.sampled_from([1, 4, 12]),
)
def test_without_local_directions_it_is_the_projection_of_pure_svd(
    seed: int, shape: tuple[int, int], rank: int
) -> None:
    matrix = random_matrix(seed, *shape)
    values = np.linalg.svd(matrix, compute_uv=False)
    assume(values[rank - 1] - values[rank] > 1e-3)
    model = SGLSVD(clusters=1, global_rank=rank, local_rank=0).fit(csr_array(matrix))
    np.testing.assert_allclose(
        model.score(csr_array(matrix)), matrix @ projection(matrix, rank), atol=1e-4
    )


def test_one_cluster_of_the_global_rank_is_pure_svd_too() -> None:
    matrix = random_matrix(4)
    model = SGLSVD(clusters=1, global_rank=5, local_rank=5).fit(csr_array(matrix))
    np.testing.assert_allclose(
        model.score(csr_array(matrix)), matrix @ projection(matrix, 5), atol=1e-4
    )


def test_the_weights_of_a_history_enter_its_projection() -> None:
    matrix, weighted = random_matrix(1), random_matrix(2) * np.linspace(0.1, 2.0, 25)
    model = SGLSVD(clusters=3, global_rank=6, local_rank=0).fit(csr_array(matrix))
    np.testing.assert_allclose(
        model.score(csr_array(weighted)), weighted @ projection(matrix, 6), atol=1e-4
    )


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), shape=st.sampled_from([(80, 50), (50, 80)]))
def test_iteration_finds_the_directions_that_numpy_finds(seed: int, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(seed)
    clear = rng.normal(size=(shape[0], 4)) @ rng.normal(size=(4, shape[1]))
    matrix = clear + 0.01 * rng.normal(size=shape)
    start, spare = rng.normal(size=(shape[1], 4)), rng.normal(size=(shape[1], 3))
    found = leading_directions(csr_array(matrix), start, spare, CPU, solved_whole=0)
    np.testing.assert_allclose(found @ found.T, projection(matrix, 4), atol=1e-4)


@pytest.mark.parametrize("solved_whole", [0, 500])
def test_directions_beyond_the_rank_of_a_matrix_are_zeros(solved_whole: int) -> None:
    rng = np.random.default_rng(0)
    matrix = np.zeros((9, 12))
    matrix[:5, :3], matrix[5:, 3:7] = 1.0, 1.0  # two different rows: rank 2
    start, spare = rng.normal(size=(12, 6)), rng.normal(size=(12, 3))
    found = leading_directions(csr_array(matrix), start, spare, CPU, solved_whole)
    assert found.shape == (12, 6)
    np.testing.assert_allclose(matrix @ found @ found.T, matrix, atol=1e-9)
    np.testing.assert_array_equal(found[:, 2:], 0)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_the_best_share_in_closed_form_is_that_of_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    row = rng.normal(size=8)
    ours, theirs = (
        np.linalg.qr(rng.normal(size=(8, rank)))[0] for rank in rng.integers(1, 5, size=2)
    )
    shared, local = row @ ours @ ours.T, row @ theirs @ theirs.T
    grid = np.linspace(0, 1, 1001)[:, None]
    errors = ((row - grid * shared - (1 - grid) * local) ** 2).sum(axis=1)
    share = best_shares(
        np.array([shared @ shared]), np.array([local @ local]), np.array([shared @ local])
    )[0]
    assert 0 <= share <= 1
    own_error = ((row - share * shared - (1 - share) * local) ** 2).sum()
    assert own_error <= errors.min() + 1e-9


def test_a_share_that_does_not_matter_is_one_half() -> None:
    equal = np.array([2.0, 0.0])
    np.testing.assert_array_equal(best_shares(equal, equal, equal), 0.5)


def test_users_join_the_cluster_of_the_smallest_error() -> None:
    rng = np.random.default_rng(3)
    shared = np.linalg.qr(rng.normal(size=(12, 3)))[0]
    local = np.stack([np.linalg.qr(rng.normal(size=(12, 2)))[0] for _ in range(4)], axis=1)
    matrix = rng.random((30, 12))
    members = SpectralBases.of(shared, local).join(csr_array(matrix).astype(np.float32))
    grid = np.linspace(0, 1, 501)[:, None]
    for row, cluster, share in zip(matrix, members.clusters, members.shares, strict=True):
        ours = row @ shared @ shared.T
        theirs = [row @ local[:, one] @ local[:, one].T for one in range(4)]
        errors = [((row - grid * ours - (1 - grid) * one) ** 2).sum(axis=1) for one in theirs]
        assert cluster == np.argmin([one.min() for one in errors])
        assert abs(share - grid[errors[cluster].argmin(), 0]) < 2e-3


def test_a_user_stays_where_no_other_cluster_is_better() -> None:
    twice = np.repeat(
        np.linalg.qr(np.random.default_rng(0).normal(size=(9, 2)))[0][:, None], 3, axis=1
    )
    bases = SpectralBases.of(np.zeros((9, 0)), twice)
    current = np.array([2, 1, 0, 2])
    members = bases.join(csr_array(random_matrix(0, 4, 9)).astype(np.float32), current)
    np.testing.assert_array_equal(members.clusters, current)


def test_each_set_of_directions_is_that_of_its_own_scaled_rows() -> None:
    matrix, rng = random_matrix(5), np.random.default_rng(6)
    weights, shares = rng.uniform(0.5, 3, 60), rng.random(60)
    members = Memberships(np.repeat([0, 2], 30), shares)
    drawn = SpectralBases.of(rng.normal(size=(25, 4)), rng.normal(size=(25, 3, 2)))
    bases = drawn.learn(csr_array(matrix), weights, members, rng.normal(size=(25, 3)), CPU)
    scaled = matrix * np.sqrt(weights)[:, None]
    everyone = projection(scaled * shares[:, None], 4)
    np.testing.assert_allclose(bases.shared @ bases.shared.T, everyone, atol=1e-5)
    for cluster, own in ((0, slice(0, 30)), (2, slice(30, 60))):
        theirs = bases.local[:, cluster]
        expected = projection((scaled * (1 - shares)[:, None])[own], 2)
        np.testing.assert_allclose(theirs @ theirs.T, expected, atol=1e-5)
    np.testing.assert_array_equal(bases.local[:, 1], 0)  # nobody is in it


@pytest.mark.parametrize("global_rank", [0, 2])
@pytest.mark.parametrize("seed", range(3))
def test_two_planted_blocks_become_two_clusters(seed: int, global_rank: int) -> None:
    matrix, halves = two_blocks(seed)
    model = SGLSVD(clusters=2, global_rank=global_rank, local_rank=3, seed=seed).fit(
        csr_array(matrix)
    )
    members = model.bases_.join(csr_array(matrix, dtype=np.float32))
    matters = (
        members.shares < 1
    )  # a user whom the global part serves alone is as well off in either
    assert matters.mean() > 0.9
    own = members.clusters[matters]
    assert (own == halves[matters]).all() or (own == 1 - halves[matters]).all()
    scores = model.score(csr_array(matrix))
    other_half = np.repeat([0, 1], 20)[None, :] != halves[:, None]
    np.testing.assert_allclose(scores[other_half], 0, atol=1e-5)


def test_weighting_users_by_whole_numbers_equals_repeating_them_in_any_order() -> None:
    for seed in range(5):
        matrix, rng = random_matrix(seed, items=50), np.random.default_rng(seed + 100)
        times = rng.integers(0, 4, len(matrix))
        copies = rng.permutation(np.repeat(matrix, times, axis=0))
        weighted, repeated = (SGLSVD(clusters=3, global_rank=4, local_rank=3) for _ in range(2))
        weighted.fit(csr_array(matrix), user_weights=times)
        repeated.fit(csr_array(copies))
        np.testing.assert_allclose(
            weighted.score(csr_array(matrix)),
            repeated.score(csr_array(matrix)),
            rtol=1e-3,
            atol=1e-4,
        )


def test_first_groups_do_not_depend_on_copies_or_on_the_order_of_users() -> None:
    rng = np.random.default_rng(0)
    points, times, line = rng.normal(size=(50, 4)), rng.integers(1, 4, 50), rng.normal(size=4)
    weighted = group_users(points, times.astype(float), 5, line, np.random.default_rng(7))
    order = rng.permutation(np.repeat(np.arange(50), times))
    copied = group_users(points[order], np.ones(len(order)), 5, line, np.random.default_rng(7))
    np.testing.assert_array_equal(weighted[order], copied)


def test_equal_users_are_one_group_however_many_there_may_be() -> None:
    points = np.repeat(np.eye(3)[:2], 6, axis=0)
    groups = group_users(
        points, np.ones(12), 5, np.array([1.0, 0.5, 0.0]), np.random.default_rng(0)
    )
    assert len(set(groups[:6])) == len(set(groups[6:])) == 1
    assert groups[0] != groups[6]


def test_more_clusters_and_ranks_than_users_and_items_are_answered() -> None:
    matrix = random_matrix(8, users=6, items=5)
    model = SGLSVD(clusters=9, global_rank=30, local_rank=20).fit(csr_array(matrix))
    scores = model.score(csr_array(matrix))
    np.testing.assert_allclose(
        scores, matrix, atol=1e-4
    )  # nothing is left out of so many directions


def test_an_empty_history_scores_zero_everywhere() -> None:
    model = SGLSVD(clusters=2, global_rank=4, local_rank=2).fit(csr_array(random_matrix(9)))
    np.testing.assert_array_equal(model.score(csr_array((2, 25), dtype=np.float32)), 0)


def test_the_answers_are_the_same_in_blocks() -> None:
    matrix = csr_array(random_matrix(10, users=USERS_PER_BLOCK + 40))
    model = SGLSVD(clusters=3, global_rank=4, local_rank=3).fit(matrix)
    parts = [model.score(csr_array(matrix[part])) for part in (slice(0, 700), slice(700, None))]
    np.testing.assert_allclose(model.score(matrix), np.concatenate(parts), atol=1e-5)
    whole, blocks = (model.bases_.join(matrix, block_users=size) for size in (5000, 7))
    np.testing.assert_array_equal(whole.clusters, blocks.clusters)


def test_local_directions_alone_are_saved_and_read_back(tmp_path: Path) -> None:
    matrix = csr_array(random_matrix(11))
    for ranks in ({"global_rank": 0, "local_rank": 3}, {"global_rank": 3, "local_rank": 0}):
        model = SGLSVD(clusters=2, **ranks).fit(matrix)
        model.save(tmp_path / f"model{ranks['local_rank']}")
        loaded = load_model(tmp_path / f"model{ranks['local_rank']}", {"SGLSVD": SGLSVD})
        assert isinstance(loaded, SGLSVD)
        np.testing.assert_array_equal(loaded.score(matrix), model.score(matrix))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"clusters": 0}, "clusters: expected a whole number ≥ 1, found 0"),
        ({"global_rank": -1}, "global_rank: expected a whole number ≥ 0, found -1"),
        ({"local_rank": 2.5}, "local_rank: expected a whole number ≥ 0, found 2.5"),
        ({"rounds": True}, "rounds: expected a whole number ≥ 0, found True"),
        ({"global_rank": 0, "local_rank": 0}, "expected at least one above 0, found 0 and 0"),
    ],
)
def test_parameters_that_make_no_model_are_refused(params: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SGLSVD(**params)


def test_directions_that_do_not_fit_into_memory_are_refused_before_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("loca.memory.available_bytes", lambda: 1000)
    with pytest.raises(
        DataError, match=r"SGLSVD for 25 items: .* take fewer clusters or smaller ranks"
    ):
        SGLSVD().fit(csr_array(random_matrix(1)))


@pytest.mark.parametrize("name", ["shared", "local", "overlaps"])
def test_arrays_that_do_not_fit_the_parameters_are_refused_on_loading(name: str) -> None:
    params = {"clusters": 2, "global_rank": 3, "local_rank": 4}
    model = SGLSVD(**params).fit(csr_array(random_matrix(1)))
    arrays = dict(state_of(model).arrays)
    with pytest.raises(ModelFileError, match=f"SGLSVD: {name}: expected shape"):
        restored(SGLSVD, params, ModelState(arrays={**arrays, name: arrays[name][:, :1]}))
    with pytest.raises(ModelFileError, match=f"SGLSVD: {name}: expected shape"):
        restored(SGLSVD, params, ModelState(arrays={**arrays, name: np.ones((), np.float32)}))
    del arrays[name]
    with pytest.raises(ModelFileError, match=f"SGLSVD: {name} is missing"):
        restored(SGLSVD, params, ModelState(arrays=arrays))


def test_more_clusters_than_users_some_of_whom_have_no_direction() -> None:
    matrix = csr_array(np.eye(40, dtype=np.float32))
    model = SGLSVD(clusters=100, global_rank=4, local_rank=1).fit(matrix)
    assert np.isfinite(model.score(matrix)).all()


def test_weights_on_users_without_a_history_alone_are_refused() -> None:
    matrix = csr_array(np.diag([1.0, 1.0, 0.0]).astype(np.float32))
    with pytest.raises(DataError, match="expected a user with a history"):
        SGLSVD().fit(matrix, user_weights=np.array([0.0, 0.0, 1.0]))
