"""Batched elastic nets against hand-worked answers, optimality conditions and SciPy's non-negative least squares."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import nnls
from scipy.sparse import csr_array

import loca.models.elastic_net as elastic_net_file
from loca.models.elastic_net import Penalties, solve_elastic_nets

CPU = torch.device("cpu")


def random_matrix(seed: int, users: int = 50, items: int = 20) -> np.ndarray:
    return (np.random.default_rng(seed).random((users, items)) < 0.3).astype(np.float64)


def solve(gram: np.ndarray, linear: np.ndarray, l1: float, l2: float, tolerance: float = 1e-6) -> np.ndarray:
    found = solve_elastic_nets(csr_array(gram), csr_array(linear), Penalties(l1, l2, tolerance, 1000), CPU)
    return found.toarray()


def solve_by_least_squares(gram: np.ndarray, linear: np.ndarray, l1: float, l2: float) -> np.ndarray:
    """With A = LLᵀ the quadratic form is ‖Lᵀw − L⁻¹(b − l1)‖², which SciPy solves for each column."""
    solution = np.zeros_like(gram)
    for item in range(len(gram)):
        others = np.delete(np.arange(len(gram)), item)
        lower = cholesky(gram[np.ix_(others, others)] + l2 * np.eye(len(others)), lower=True)
        solution[others, item] = nnls(lower.T, solve_triangular(lower, linear[item, others] - l1, lower=True))[0]
    return solution


def largest_violation(gram: np.ndarray, linear: np.ndarray, weights: np.ndarray, l1: float, l2: float) -> float:
    """The largest violation of an optimality condition, as a share of the largest linear term of its column."""
    slopes = linear.T - l1 - gram @ weights - l2 * weights
    violations = np.where(weights > 0, np.abs(slopes), np.maximum(slopes, 0))
    np.fill_diagonal(violations, 0)
    others = linear - np.diag(np.diag(linear))
    return float((violations.max(axis=0) / np.maximum(others.max(axis=1), 1e-12)).max())


def test_two_items_have_the_weights_of_a_hand_worked_case() -> None:
    gram = np.array([[3.0, 2.0], [2.0, 4.0]])
    # (2 − 0.5) / (4 + 1) and (2 − 0.5) / (3 + 1)
    np.testing.assert_allclose(solve(gram, gram, 0.5, 1.0), [[0, 0.375], [0.3, 0]], atol=1e-6)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), l1=st.sampled_from([0.0, 0.5, 3.0, 1000.0]), l2=st.sampled_from([0.1, 5.0, 100.0]))
def test_the_weights_equal_non_negative_least_squares(seed: int, l1: float, l2: float) -> None:
    matrix = random_matrix(seed)
    gram = matrix.T @ matrix
    np.testing.assert_allclose(solve(gram, gram, l1, l2), solve_by_least_squares(gram, gram, l1, l2), atol=1e-4)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), l1=st.sampled_from([0.0, 1.0]))
def test_a_linear_term_of_its_own_is_taken(seed: int, l1: float) -> None:
    matrix = random_matrix(seed)
    gram = matrix.T @ matrix
    linear = np.random.default_rng(seed + 1).uniform(-5, 10, gram.shape)
    np.testing.assert_allclose(solve(gram, linear, l1, 2.0), solve_by_least_squares(gram, linear, l1, 2.0), atol=1e-4)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), tolerance=st.sampled_from([1e-2, 1e-4]))
def test_no_optimality_condition_is_violated_by_more_than_the_tolerance(seed: int, tolerance: float) -> None:
    matrix = random_matrix(seed, users=30, items=40)
    gram = matrix.T @ matrix
    weights = solve(gram, gram, 0.3, 0.5, tolerance)
    assert largest_violation(gram, gram, weights, 0.3, 0.5) <= tolerance * 1.01


def test_small_working_sets_and_blocks_lead_to_the_same_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = random_matrix(3, users=80, items=40)
    gram = matrix.T @ matrix
    expected = solve_by_least_squares(gram, gram, 1.0, 4.0)
    monkeypatch.setattr(elastic_net_file, "_FIRST_CANDIDATES", 1)
    monkeypatch.setattr(elastic_net_file, "BLOCK_NUMBERS", {"cpu": 200})
    np.testing.assert_allclose(solve(gram, gram, 1.0, 4.0), expected, atol=1e-4)


def test_a_matrix_that_is_searched_gives_the_weights_of_a_dense_one(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = random_matrix(4) * (np.arange(20) < 15)
    gram = matrix.T @ matrix
    dense = solve(gram, gram, 0.5, 4.0)
    monkeypatch.setattr(elastic_net_file, "free_bytes", lambda device: 0)
    np.testing.assert_allclose(solve(gram, gram, 0.5, 4.0), dense, atol=1e-5)


def test_a_sparse_gram_matrix_gives_the_optimum_too(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = (np.random.default_rng(6).random((60, 80)) < 0.03).astype(np.float64)
    gram = matrix.T @ matrix
    monkeypatch.setattr(elastic_net_file, "_DENSE_SHARE", 1.0)
    assert largest_violation(gram, gram, solve(gram, gram, 0.2, 0.1, 1e-4), 0.2, 0.1) <= 1.01e-4


def test_equal_items_without_l2_still_reach_an_optimum() -> None:
    matrix = random_matrix(5)[:, [0, 0, 0, 1, 2, 3]]
    gram = matrix.T @ matrix
    weights = solve(gram, gram, 0.5, 0.0, 1e-5)
    assert largest_violation(gram, gram, weights, 0.5, 0.0) <= 1.01e-5


def test_no_candidate_means_no_weight() -> None:
    found = solve_elastic_nets(csr_array(np.eye(4)), csr_array(np.eye(4)), Penalties(0.0, 1.0, 1e-4, 10), CPU)
    assert found.nnz == 0
    assert found.shape == (4, 4)


def test_columns_that_need_more_sweeps_are_counted_aloud(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    matrix = random_matrix(8)
    gram = csr_array(matrix.T @ matrix)
    monkeypatch.setattr(elastic_net_file, "_leap", lambda corners, slopes, weights: None)
    with caplog.at_level(logging.INFO, logger="loca"):
        found = solve_elastic_nets(gram, gram, Penalties(0.0, 0.01, 1e-6, 1), CPU)
    assert "of 20 columns are not within tolerance; allow more sweeps" in caplog.text
    assert np.isfinite(found.data).all()
