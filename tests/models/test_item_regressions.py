"""Both ways to one elastic net per item against SciPy's non-negative least squares, and which of them is taken."""

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

import loca.models.slim as regressions_file
from loca.errors import DataError
from loca.models.elastic_net import Penalties
from loca.models.slim import Regressions, solve_regressions

CPU = torch.device("cpu")


def random_regressions(seed: int, users: int = 40, items: int = 15) -> tuple[np.ndarray, np.ndarray]:
    """Features of some users and items, and a weight for each user, some of them 0."""
    rng = np.random.default_rng(seed)
    features = rng.random((users, items)) * (rng.random((users, items)) < 0.3)
    return features, rng.integers(0, 4, users).astype(np.float64)


def solve(features: np.ndarray, user_weights: np.ndarray, penalties: Penalties) -> np.ndarray:
    return solve_regressions(Regressions(csr_array(features), user_weights), penalties, CPU).toarray()


def solve_by_least_squares(features: np.ndarray, user_weights: np.ndarray, l1: float, l2: float) -> np.ndarray:
    """With AᵀDA + l2 = LLᵀ it is ‖Lᵀw − L⁻¹(AᵀDa − l1)‖², which SciPy solves for each column a."""
    gram = features.T @ (user_weights[:, None] * features)
    solution = np.zeros_like(gram)
    for item in range(len(gram)):
        others = np.delete(np.arange(len(gram)), item)
        lower = cholesky(gram[np.ix_(others, others)] + l2 * np.eye(len(others)), lower=True)
        solution[others, item] = nnls(lower.T, solve_triangular(lower, gram[others, item] - l1, lower=True))[0]
    return solution


@pytest.mark.parametrize("have_common_users", [True, False])
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), l1=st.sampled_from([0.0, 0.3, 50.0]), l2=st.sampled_from([0.1, 3.0]))
def test_both_ways_equal_non_negative_least_squares(have_common_users: bool, seed: int, l1: float, l2: float) -> None:
    features, user_weights = random_regressions(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Regressions, "have_common_users", lambda self: have_common_users)
        found = solve(features, user_weights, Penalties(l1, l2, 1e-6, 10_000))
    expected = solve_by_least_squares(features, user_weights, l1, l2)
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("have_common_users", [True, False])
def test_blocks_of_items_change_nothing(have_common_users: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    features, user_weights = random_regressions(1)
    monkeypatch.setattr(Regressions, "have_common_users", lambda self: have_common_users)
    penalties = Penalties(0.2, 1.0, 1e-6, 1000)
    whole = solve(features, user_weights, penalties)
    monkeypatch.setattr(regressions_file, "_BLOCK_ITEMS", 4)
    np.testing.assert_allclose(solve(features, user_weights, penalties), whole, atol=1e-5)  # each stops at 1e-6


def test_sparse_data_with_many_users_of_nothing_keep_their_optimum() -> None:
    rng = np.random.default_rng(2)
    features = np.zeros((400, 60))
    features[rng.integers(0, 40, 150), rng.integers(0, 60, 150)] = 1
    everyone = np.ones(400)
    assert not Regressions(csr_array(features), everyone).have_common_users()
    found = solve(features, everyone, Penalties(0.3, 0.5, 1e-6, 1000))
    assert found.any()
    np.testing.assert_allclose(found, solve_by_least_squares(features, everyone, 0.3, 0.5), atol=1e-4)


def test_no_condition_is_violated_by_more_than_the_tolerance_where_scikit_learn_alone_would_stop_earlier() -> None:
    features = (np.random.default_rng(3).random((100, 30)) < 0.3).astype(np.float64)
    l1, l2, tolerance = 0.1, 0.01, 1e-4
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Regressions, "have_common_users", lambda self: False)
        weights = solve(features, np.ones(100), Penalties(l1, l2, tolerance, 10_000))
    gram = features.T @ features
    slopes = gram - l1 - gram @ weights - l2 * weights
    violations = np.where(weights > 0, np.abs(slopes), np.maximum(slopes, 0))
    np.fill_diagonal(violations, 0)
    np.fill_diagonal(gram, 0)
    assert (violations.max(axis=0) <= tolerance * gram.max(axis=0) * 1.01).all()


@pytest.mark.parametrize("users", [3, 40])
def test_features_below_zero_are_refused(users: int) -> None:
    with pytest.raises(DataError, match="values are not below 0"):
        solve(-np.eye(users), np.ones(users), Penalties(0.1, 1.0, 1e-4, 10))


def test_items_that_need_more_sweeps_are_counted_aloud(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    features, user_weights = random_regressions(4)
    monkeypatch.setattr(Regressions, "have_common_users", lambda self: False)
    with caplog.at_level(logging.INFO, logger="loca"):
        found = solve(features, user_weights, Penalties(0.0, 0.01, 1e-6, 1))
    assert "of 15 columns are not within tolerance; allow more sweeps" in caplog.text
    assert np.isfinite(found).all()
