"""EASE against direct dense solutions, and its weights against repeated users."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

import loca
from loca.data.splits import Split
from loca.errors import ConfigError, DataError, ModelFileError
from loca.evaluation.evaluate import mean_value
from loca.models.ease import EASE, find_largest, solve_in_place, weighted_gram
from loca.models.ease_solver import EaseSystem, solve_systems
from loca.persistence.learned import restored
from loca.persistence.manifest import ModelState


def dense_solution(matrix: np.ndarray, weights: np.ndarray, l2: float) -> np.ndarray:
    """Steck's closed form, term by term, in 64 bits."""
    gram = matrix.T @ np.diag(weights) @ matrix + l2 * np.eye(matrix.shape[1])
    inverse = np.linalg.inv(gram)
    solution = np.eye(matrix.shape[1]) - inverse @ np.diag(1 / np.diag(inverse))
    np.fill_diagonal(solution, 0)
    return solution


def random_matrix(seed: int, users: int = 60, items: int = 25) -> np.ndarray:
    return (np.random.default_rng(seed).random((users, items)) < 0.25).astype(np.float64)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), l2=st.sampled_from([0.5, 3.0, 100.0]))
def test_the_weights_equal_a_direct_dense_solution(seed: int, l2: float) -> None:
    matrix = random_matrix(seed)
    user_weights = np.random.default_rng(seed + 1).uniform(0, 3, len(matrix))
    model = EASE(l2=l2).fit(csr_array(matrix), user_weights=user_weights)
    np.testing.assert_allclose(model.weights_, dense_solution(matrix, user_weights, l2), atol=2e-5)


def dense_denoised_solution(
    matrix: np.ndarray, weights: np.ndarray, l2: float, denoising: float
) -> np.ndarray:
    """Each column as a ridge regression on the other items, whose penalty grows with how often an item is there."""
    gram = matrix.T @ np.diag(weights) @ matrix
    square = gram + np.diag(l2 + denoising / (1 - denoising) * np.diag(gram))
    solution = np.zeros_like(gram)
    for item in range(len(gram)):
        others = np.delete(np.arange(len(gram)), item)
        solution[others, item] = np.linalg.solve(square[np.ix_(others, others)], gram[others, item])
    return solution


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    shape=st.sampled_from([(60, 25), (25, 60)]),
    l2=st.sampled_from([0.5, 3.0, 100.0]),
    denoising=st.sampled_from([0.0, 0.3, 0.9]),
)
def test_denoising_raises_the_diagonal_in_every_system(
    seed: int, shape: tuple[int, int], l2: float, denoising: float
) -> None:
    matrix = random_matrix(seed, *shape)
    user_weights = np.random.default_rng(seed + 1).uniform(0, 3, len(matrix))
    expected = dense_denoised_solution(matrix, user_weights, l2, denoising)
    model = EASE(l2=l2, denoising=denoising).fit(csr_array(matrix), user_weights=user_weights)
    np.testing.assert_allclose(model.weights_, expected, atol=2e-5)
    system = EaseSystem.of(csr_array(matrix), user_weights, l2, denoising)
    alone = next(solve_systems([system], torch.device("cpu"))).weights()
    np.testing.assert_allclose(alone, expected, atol=2e-5)


def test_denoising_that_is_no_probability_below_one_is_refused() -> None:
    for wrong in (1.0, -0.1, float("nan")):
        with pytest.raises(
            ConfigError, match="denoising: expected a number from 0 to below 1, found"
        ):
            EASE(denoising=wrong)


def test_each_column_solves_its_own_ridge_regression() -> None:
    matrix, l2 = random_matrix(3), 5.0
    weights = EASE(l2=l2).fit(csr_array(matrix)).weights_
    for item in range(matrix.shape[1]):
        others = np.delete(matrix, item, axis=1)
        ridge = np.linalg.solve(
            others.T @ others + l2 * np.eye(others.shape[1]), others.T @ matrix[:, item]
        )
        np.testing.assert_allclose(np.delete(weights[:, item], item), ridge, atol=1e-5)


def test_weighting_users_by_whole_numbers_equals_repeating_them() -> None:
    matrix = random_matrix(7)
    times = np.random.default_rng(8).integers(0, 4, len(matrix))
    weighted = EASE(l2=2.0).fit(csr_array(matrix), user_weights=times)
    repeated = EASE(l2=2.0).fit(csr_array(np.repeat(matrix, times, axis=0)))
    np.testing.assert_array_equal(weighted.weights_, repeated.weights_)


def test_the_gram_matrix_is_the_same_in_blocks() -> None:
    matrix = random_matrix(3, users=40, items=1050)  # more items than a block has
    gram = weighted_gram(csr_array(matrix), np.ones(len(matrix), np.float32), np.float32)
    np.testing.assert_array_equal(gram, matrix.T @ matrix)


def test_a_32_bit_factorisation_that_fails_is_done_again_in_64_bits() -> None:
    # Two items that everybody has: the Gram matrix is singular but for an l2 that 32 bits cannot hold beside 1e9.
    matrix = np.ones((1000, 2))
    weights = np.full(1000, 1e6)
    model = EASE(l2=0.01).fit(csr_array(matrix), user_weights=weights)
    np.testing.assert_allclose(model.weights_, dense_solution(matrix, weights, 0.01), rtol=1e-3)


def test_a_catalogue_that_does_not_fit_into_memory_is_refused_before_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("loca.memory.available_bytes", lambda: 1000)
    with pytest.raises(
        DataError,
        match="EASE for 25 items: 2 kB of memory needed, 1 kB are free; filter rare items",
    ):
        EASE().fit(csr_array(random_matrix(1)))


def test_an_l2_that_is_not_above_zero_is_refused() -> None:
    with pytest.raises(ConfigError, match="l2: expected a number above 0, found 0"):
        EASE(l2=0)


def test_an_l2_too_small_for_the_data_is_refused() -> None:
    with pytest.raises(ConfigError, match="l2: 1e-300 is too small for these data"):
        EASE(l2=1e-300).fit(csr_array(np.ones((5, 3), np.float32)))


def test_a_solution_in_64_bits_takes_no_more_than_it_announces() -> None:
    matrix = csr_array(random_matrix(2, users=4, items=1500))
    tracemalloc.start()
    solve_in_place(matrix, np.ones(4, np.float32), EASE(l2=100.0), np.float64)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # 64-bit square, and its 32-bit copy at the end or blocks of the products.
    assert peak < 2.2 * 1500**2 * 8


def test_weights_that_are_not_square_are_refused_on_loading() -> None:
    with pytest.raises(ModelFileError, match="items × items"):
        restored(EASE, {}, ModelState(arrays={"weights": np.zeros((2, 3), np.float32)}))


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    shape=st.sampled_from([(60, 25), (25, 60)]),
    denoising=st.sampled_from([0.0, 0.5]),
    keep=st.integers(1, 10),
)
def test_the_kept_weights_are_the_largest_and_minimise_the_loss_among_them(
    seed: int, shape: tuple[int, int], denoising: float, keep: int
) -> None:
    matrix, l2 = random_matrix(seed, *shape), 3.0
    user_weights = np.random.default_rng(seed + 1).uniform(0, 3, len(matrix))
    sparse = (
        EASE(l2=l2, denoising=denoising, keep=keep)
        .fit(csr_array(matrix), user_weights=user_weights)
        .weights_
    )
    assert isinstance(sparse, csr_array)
    assert (sparse.indices.dtype, sparse.indptr.dtype, sparse.dtype) == (
        np.int32,
        np.int32,
        np.float32,
    )
    assert sparse.has_sorted_indices
    kept = (
        csr_array(
            (np.ones(sparse.nnz), sparse.indices, sparse.indptr), shape=sparse.shape
        ).toarray()
        > 0
    )
    gram = matrix.T @ np.diag(user_weights) @ matrix
    # The largest changes of the scores of the dense solution stay, up to rounding of those at the limit.
    dense = dense_denoised_solution(matrix, user_weights, l2, denoising)
    sizes = np.abs(dense) * np.sqrt(np.diag(gram))[:, None]
    assert kept.sum() == min(keep * len(gram), np.count_nonzero(sizes > 1e-7))
    assert sizes[kept].min() >= sizes[~kept].max() - 1e-4
    # Each column is the ridge regression on its kept items alone.
    square = gram + np.diag(l2 + denoising / (1 - denoising) * np.diag(gram))
    expected = np.zeros_like(gram)
    for item, own in enumerate(kept.T):
        expected[own, item] = np.linalg.solve(square[np.ix_(own, own)], gram[own, item])
    np.testing.assert_allclose(sparse.toarray(), expected, atol=2e-5)


def test_all_weights_are_kept_where_a_sparse_model_would_be_larger() -> None:
    matrix = csr_array(random_matrix(4))
    for keep in (12, 13, 1000):
        np.testing.assert_array_equal(
            EASE(keep=keep).fit(matrix).weights_, EASE().fit(matrix).weights_
        )
    assert isinstance(EASE(keep=11).fit(matrix).weights_, csr_array)


def test_the_fewest_weights_that_lose_little_on_validation_are_kept(planted_split: Split) -> None:
    train, validation = planted_split.train, planted_split.validation
    assert validation is not None
    dense = mean_value(EASE(l2=20.0).fit(train).score, validation)
    model = EASE(l2=20.0, keep="auto").fit(train, validation=validation)
    tried = sorted({int(train.n_items / part - 0.5) for part in (80, 40, 20, 10)} - {0})
    scores = {
        keep: mean_value(EASE(l2=20.0, keep=keep).fit(train).score, validation) for keep in tried
    }
    good = [keep for keep in tried if scores[keep] >= 0.995 * dense]
    assert model.keep_ == (good[0] if good else None)
    assert isinstance(model.weights_, csr_array if good else np.ndarray)
    selected = model.selected()
    assert (selected.keep, selected.l2) == (model.keep_, 20.0)
    # Without validation a tenth of the bytes, which is nearly a twentieth of the weights.
    blind = EASE(l2=20.0, keep="auto").fit(train).weights_
    size = blind.data.nbytes + blind.indices.nbytes + blind.indptr.nbytes
    assert size <= 0.4 * train.n_items**2 + 4 < size + 8 * train.n_items


def test_a_model_that_pruning_harms_keeps_all_weights() -> None:
    """Two groups of 6 items, and users who take 5 of one group: any of them tells the rest, so that all are needed."""
    rng = np.random.default_rng(5)
    items = np.concatenate([rng.permutation(6)[:5] + 6 * (user % 2) for user in range(300)])
    rows = csr_array((np.ones(1500, np.float32), items, np.arange(0, 1501, 5)), shape=(300, 12))
    data = loca.Interactions.from_matrix(rows)
    split = loca.leave_last_out(data, test=1, validation=1)
    model = EASE(l2=1.0, keep="auto").fit(split.train, validation=split.validation)
    one = EASE(l2=1.0, keep=1).fit(split.train)
    dense = EASE(l2=1.0).fit(split.train)
    assert mean_value(one.score, split.validation) < 0.995 * mean_value(
        dense.score, split.validation
    )
    assert model.keep_ is None
    np.testing.assert_array_equal(model.weights_, dense.weights_)


@pytest.mark.parametrize("wrong", [0, -3, 2.5, True, "some"])
def test_a_number_of_weights_that_is_none_is_refused(wrong: object) -> None:
    with pytest.raises(
        ConfigError, match="keep: expected a whole number ≥ 1, 'auto' or none, found"
    ):
        EASE(keep=wrong)  # type: ignore[arg-type]


def test_the_largest_entries_are_found_block_by_block_without_a_second_array() -> None:
    rng = np.random.default_rng(6)
    dense = rng.standard_normal((3000, 3000)).astype(np.float32)
    factors = rng.uniform(0.5, 2.0, 3000)
    tracemalloc.start()
    found = find_largest(dense, factors, 21_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    sizes = (np.abs(dense) * factors.astype(np.float32)[:, None]).ravel()
    expected = np.argsort(-sizes, kind="stable")[:21_000]
    np.testing.assert_array_equal(sizes[found], sizes[expected])
    assert len(set(found.tolist())) == 21_000
    assert peak < 0.6 * dense.nbytes


def test_a_sparse_model_is_saved_sparse_and_answers_the_same(
    tmp_path: Path, planted_split: Split
) -> None:
    model = EASE(l2=20.0, keep=5).fit(planted_split.train)
    model.save(tmp_path / "model")
    loaded = loca.load(tmp_path / "model", verify=True)
    assert isinstance(loaded.weights_, csr_array)  # type: ignore[attr-defined]
    histories = planted_split.test.history_matrix
    np.testing.assert_array_equal(loaded.score(histories), model.score(histories))
    np.testing.assert_allclose(
        model.score(histories), histories.toarray() @ model.weights_.toarray(), atol=1e-5
    )
