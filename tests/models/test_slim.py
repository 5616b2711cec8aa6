"""SLIM against scikit-learn's elastic net and SciPy's least squares, repeated users, and strangers' files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import nnls
from scipy.sparse import csr_array
from sklearn.linear_model import ElasticNet

from loca.errors import ConfigError, DataError, ModelFileError
from loca.models.slim import SLIM, solve_elastic_nets
from loca.persistence import load_model
from loca.persistence.learned import restored
from loca.persistence.manifest import ModelState
from loca.remarks import LocaWarning


def random_matrix(seed: int, users: int = 60, items: int = 25) -> np.ndarray:
    return (np.random.default_rng(seed).random((users, items)) < 0.25).astype(np.float64)


def elastic_net_solution(matrix: np.ndarray, l1: float, l2: float) -> np.ndarray:
    """One regression per item by scikit-learn, which divides the squared error by the number of users."""
    users = len(matrix)
    solution = np.zeros((matrix.shape[1], matrix.shape[1]))
    net = ElasticNet(
        alpha=(l1 + l2) / users,
        l1_ratio=l1 / (l1 + l2),
        positive=True,
        fit_intercept=False,
        tol=1e-10,
        max_iter=100_000,
    )
    for item in range(matrix.shape[1]):
        others = matrix.copy()
        others[:, item] = 0
        solution[:, item] = net.fit(others, matrix[:, item]).coef_
    return solution


def random_regressions(seed: int, users: int = 40, items: int = 15) -> np.ndarray:
    """Values of some users and items, each user's scaled by the root of a weight, some of them 0."""
    rng = np.random.default_rng(seed)
    values = rng.random((users, items)) * (rng.random((users, items)) < 0.3)
    return values * np.sqrt(rng.integers(0, 4, users))[:, None]


def solve(
    features: np.ndarray, by_gram: bool | None, l1: float, l2: float, **how: float
) -> np.ndarray:
    model = SLIM(l1=l1, l2=l2, **({"tolerance": 1e-6, "iterations": 10_000} | how))  # type: ignore[arg-type]
    return solve_elastic_nets(csr_array(features), model, by_gram).toarray()


def solve_by_least_squares(features: np.ndarray, l1: float, l2: float) -> np.ndarray:
    """With AᵀA + l2 = LLᵀ it is ‖Lᵀw − L⁻¹(Aᵀa − l1)‖², which SciPy solves for each column a."""
    gram = features.T @ features
    solution = np.zeros_like(gram)
    for item in range(len(gram)):
        others = np.delete(np.arange(len(gram)), item)
        lower = cholesky(gram[np.ix_(others, others)] + l2 * np.eye(len(others)), lower=True)
        solution[others, item] = nnls(
            lower.T, solve_triangular(lower, gram[others, item] - l1, lower=True)
        )[0]
    return solution


@pytest.mark.parametrize("by_gram", [True, False])
def test_two_items_have_the_weights_of_a_hand_worked_case(by_gram: bool) -> None:
    features = np.linalg.cholesky(np.array([[3.0, 1.0], [1.0, 4.0]])).T  # its Gram matrix
    # (1 − 0.5) / (4 + 1) and (1 − 0.5) / (3 + 1)
    np.testing.assert_allclose(
        solve(features, by_gram, 0.5, 1.0), [[0, 0.125], [0.1, 0]], atol=1e-6
    )


@pytest.mark.parametrize("by_gram", [True, False])
@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    l1=st.sampled_from([0.0, 0.3, 50.0]),
    l2=st.sampled_from([0.1, 3.0]),
)
def test_both_ways_equal_non_negative_least_squares(
    by_gram: bool, seed: int, l1: float, l2: float
) -> None:
    features = random_regressions(seed)
    expected = solve_by_least_squares(features, l1, l2)
    np.testing.assert_allclose(solve(features, by_gram, l1, l2), expected, atol=1e-4)


@pytest.mark.parametrize("by_gram", [True, False])
def test_more_items_than_a_block_has_change_nothing(by_gram: bool) -> None:
    """Items that nobody has stand before and between the others, and have no weights."""
    features = random_regressions(1)
    wide = np.zeros((len(features), 600))
    wide[:, 500:515] = features
    found = solve(wide, by_gram, 0.2, 1.0)
    np.testing.assert_allclose(
        found[500:515, 500:515], solve(features, by_gram, 0.2, 1.0), atol=1e-5
    )
    assert np.count_nonzero(found) == np.count_nonzero(found[500:515, 500:515])


def test_sparse_data_with_many_users_of_nothing_keep_their_optimum() -> None:
    rng = np.random.default_rng(2)
    features = np.zeros((400, 60))
    features[rng.integers(0, 40, 150), rng.integers(0, 60, 150)] = 1
    found = solve(features, None, 0.3, 0.5)
    assert found.any()
    np.testing.assert_array_equal(
        found, solve(features, False, 0.3, 0.5)
    )  # few pairs have common users
    np.testing.assert_allclose(found, solve_by_least_squares(features, 0.3, 0.5), atol=1e-4)


def violations_of(features: np.ndarray, weights: np.ndarray, l1: float, l2: float) -> np.ndarray:
    """The largest violation of an optimality condition of each column, as a share of its largest linear term."""
    gram = features.T @ features
    slopes = gram - l1 - gram @ weights - l2 * weights
    violations = np.where(weights > 0, np.abs(slopes), np.maximum(slopes, 0))
    np.fill_diagonal(violations, 0)
    np.fill_diagonal(gram, 0)
    return violations.max(axis=0) / np.maximum(gram.max(axis=0), 1e-12)


@pytest.mark.parametrize("by_gram", [True, False])
def test_no_condition_is_violated_by_more_than_the_tolerance_where_scikit_learn_alone_would_stop_earlier(
    by_gram: bool,
) -> None:
    features = (np.random.default_rng(3).random((100, 30)) < 0.3).astype(np.float64)
    weights = solve(features, by_gram, 0.1, 0.01, tolerance=1e-4)
    assert violations_of(features, weights, 0.1, 0.01).max() <= 1.01e-4


@pytest.mark.parametrize("by_gram", [True, False])
def test_equal_items_without_l2_still_reach_an_optimum(by_gram: bool) -> None:
    features = random_matrix(5)[:, [0, 0, 0, 1, 2, 3]]
    weights = solve(features, by_gram, 0.5, 0.0, tolerance=1e-5)
    assert violations_of(features, weights, 0.5, 0.0).max() <= 1.01e-5


def test_the_number_of_threads_changes_nothing() -> None:
    features, threads = random_regressions(6), torch.get_num_threads()
    alone = solve(features, True, 0.1, 1.0)
    torch.set_num_threads(3)
    try:
        np.testing.assert_array_equal(solve(features, True, 0.1, 1.0), alone)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("by_gram", [True, False])
def test_items_that_need_more_sweeps_are_counted_aloud(
    by_gram: bool,
) -> None:
    message = "of 15 columns are not within tolerance; allow more sweeps"
    with pytest.warns(LocaWarning, match=message):
        found = solve(random_regressions(4), by_gram, 0.0, 0.01, iterations=1)
    assert np.isfinite(found).all()


@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    l1=st.sampled_from([0.1, 1.0, 4.0]),
    l2=st.sampled_from([0.5, 10.0]),
)
def test_the_weights_equal_those_of_scikit_learn(seed: int, l1: float, l2: float) -> None:
    matrix = random_matrix(seed)
    model = SLIM(l1=l1, l2=l2, tolerance=1e-6).fit(csr_array(matrix))
    np.testing.assert_allclose(
        model.weights_.toarray(), elastic_net_solution(matrix, l1, l2), atol=1e-4
    )


def test_whole_user_weights_equal_repeated_users() -> None:
    matrix = random_matrix(7)
    times = np.random.default_rng(8).integers(0, 4, len(matrix))
    weighted = (
        SLIM(l1=1.0, l2=5.0, tolerance=1e-6)
        .fit(csr_array(matrix), user_weights=times)
        .weights_.toarray()
    )
    repeated = np.repeat(matrix, times, axis=0)
    np.testing.assert_array_equal(
        weighted, SLIM(l1=1.0, l2=5.0, tolerance=1e-6).fit(csr_array(repeated)).weights_.toarray()
    )
    np.testing.assert_allclose(weighted, elastic_net_solution(repeated, 1.0, 5.0), atol=1e-4)


def test_fractions_of_users_count_as_scikit_learn_weighs_them() -> None:
    matrix, l1, l2 = random_matrix(9), 1.0, 3.0
    user_weights = np.random.default_rng(10).uniform(0.1, 2, len(matrix)).astype(np.float32)
    weights = (
        SLIM(l1=l1, l2=l2, tolerance=1e-6)
        .fit(csr_array(matrix), user_weights=user_weights)
        .weights_
    )
    scaled = np.sqrt(user_weights)[:, None] * matrix
    np.testing.assert_allclose(weights.toarray(), elastic_net_solution(scaled, l1, l2), atol=1e-4)


def test_weights_are_sparse_not_negative_and_never_from_an_item_to_itself() -> None:
    weights = SLIM(l1=2.0).fit(csr_array(random_matrix(11))).weights_
    assert weights.dtype == np.float32
    assert (weights.data > 0).all()
    assert not weights.diagonal().any()
    assert weights.nnz < SLIM(l1=0.1).fit(csr_array(random_matrix(11))).weights_.nnz


def test_scores_are_the_weighted_history_times_the_weights() -> None:
    model = SLIM(l1=0.5, l2=1.0).fit(csr_array(random_matrix(12)))
    histories = csr_array(np.diag([0.5, 1.0, 2.0]) @ random_matrix(13)[:3])
    np.testing.assert_allclose(
        model.score(histories), histories.toarray() @ model.weights_.toarray(), rtol=1e-5, atol=1e-7
    )
    assert not model.score(csr_array((1, 25), dtype=np.float32)).any()


def test_a_model_without_any_weight_survives_its_file(tmp_path: Path) -> None:
    model = SLIM(l1=1e6).fit(csr_array(random_matrix(14)))
    assert model.weights_.nnz == 0
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model", {"SLIM": SLIM})
    assert isinstance(loaded, SLIM)
    np.testing.assert_array_equal(loaded.score(csr_array(random_matrix(15)[:4])), np.zeros((4, 25)))


def test_values_below_zero_are_refused() -> None:
    with pytest.raises(DataError, match="expected finite numbers ≥ 0"):
        SLIM().fit(csr_array(-random_matrix(1)))


def test_more_pairs_than_memory_holds_are_refused_before_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("loca.memory.available_bytes", lambda: 1000)
    with pytest.raises(
        DataError, match=r"SLIM for 25 items: .* of memory needed, 1 kB are free; filter rare items"
    ):
        SLIM().fit(csr_array(random_matrix(1)))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"l1": -1.0}, "l1: expected a number ≥ 0, found -1.0"),
        ({"l2": float("nan")}, "l2: expected a number ≥ 0, found nan"),
        ({"tolerance": 0.0}, "tolerance: expected a number from 1e-6 to below 1, found 0.0"),
        ({"iterations": 0}, "iterations: expected a whole number ≥ 1, found 0"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SLIM(**wrong)


STORED = {
    "weights_data": np.array([0.5, 0.25], np.float32),
    "weights_indices": np.array([1, 0], np.int32),
    "weights_indptr": np.array([0, 1, 2], np.int32),
}


def test_a_state_becomes_the_model_again() -> None:
    model = restored(SLIM, {}, ModelState(arrays=STORED))
    np.testing.assert_array_equal(model.weights_.toarray(), [[0, 0.5], [0.25, 0]])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights_indptr": np.array([0, 2], np.int32)}, "an item lies outside 0 … 0"),
        ({"weights_indptr": np.array([0, 3, 2], np.int32)}, "do not rise from 0 to 2"),
        ({"weights_indptr": np.array([1, 1, 2], np.int32)}, "do not rise from 0 to 2"),
        ({"weights_indptr": np.array([0, 1, 9], np.int32)}, "do not rise from 0 to 2"),
        ({"weights_indptr": np.zeros((2, 2), np.int32)}, "do not fit each other"),
        ({"weights_indices": np.array([2, 0], np.int32)}, "an item lies outside 0 … 1"),
        ({"weights_indices": np.array([-1, 0], np.int32)}, "an item lies outside 0 … 1"),
        ({"weights_indices": np.array([0], np.int32)}, "do not fit each other"),
        (
            {"weights_indices": np.array([0.0, 1.0])},
            "32-bit numbers with whole numbers as indices, found",
        ),
        ({"weights_data": np.array([np.nan, 1], np.float32)}, "expected finite numbers"),
        ({"weights_data": np.array([1, 1])}, "32-bit numbers with whole numbers as indices, found"),
    ],
)
def test_arrays_that_are_no_sparse_matrix_are_refused(
    changes: dict[str, np.ndarray], message: str
) -> None:
    with pytest.raises(ModelFileError, match=message):
        restored(SLIM, {}, ModelState(arrays={**STORED, **changes}))


def test_missing_arrays_are_named() -> None:
    with pytest.raises(ModelFileError, match="SLIM: weights_data is missing"):
        restored(SLIM, {}, ModelState(arrays={"weights": np.zeros((2, 2), np.float32)}))
