"""EASE against direct dense solutions, and its weights against repeated users."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from loca.errors import ConfigError, DataError, ModelFileError
from loca.models.ease import EASE, solve_in_place, weighted_gram
from loca.models.ease_solver import EaseSystem, solve_systems
from loca.models.recommender import ModelState


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


def dense_denoised_solution(matrix: np.ndarray, weights: np.ndarray, l2: float, denoising: float) -> np.ndarray:
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
        with pytest.raises(ConfigError, match="denoising: expected a number from 0 to below 1, found"):
            EASE(denoising=wrong)


def test_each_column_solves_its_own_ridge_regression() -> None:
    matrix, l2 = random_matrix(3), 5.0
    weights = EASE(l2=l2).fit(csr_array(matrix)).weights_
    for item in range(matrix.shape[1]):
        others = np.delete(matrix, item, axis=1)
        ridge = np.linalg.solve(others.T @ others + l2 * np.eye(others.shape[1]), others.T @ matrix[:, item])
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


def test_a_catalogue_that_does_not_fit_into_memory_is_refused_before_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loca.memory.available_bytes", lambda: 1000)
    with pytest.raises(DataError, match="EASE for 25 items: 2 kB of memory needed, 1 kB are free; filter rare items"):
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
        EASE.restore({}, ModelState(arrays={"weights": np.zeros((2, 3), np.float32)}))
