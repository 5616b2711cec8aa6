"""SLIM against scikit-learn's elastic net, its user weights against repeated users, and its file against strangers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.linear_model import ElasticNet

from loca.errors import ConfigError, DataError, ModelFileError
from loca.models.recommender import ModelState
from loca.models.slim import SLIM
from loca.persistence import load_model


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


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10_000), l1=st.sampled_from([0.1, 1.0, 4.0]), l2=st.sampled_from([0.5, 10.0]))
def test_the_weights_equal_those_of_scikit_learn(seed: int, l1: float, l2: float) -> None:
    matrix = random_matrix(seed)
    model = SLIM(l1=l1, l2=l2, tolerance=1e-6).fit(csr_array(matrix))
    np.testing.assert_allclose(model.weights_.toarray(), elastic_net_solution(matrix, l1, l2), atol=1e-4)


def test_whole_user_weights_equal_repeated_users() -> None:
    matrix = random_matrix(7)
    times = np.random.default_rng(8).integers(0, 4, len(matrix))
    weighted = SLIM(l1=1.0, l2=5.0, tolerance=1e-6).fit(csr_array(matrix), user_weights=times).weights_.toarray()
    repeated = np.repeat(matrix, times, axis=0)
    np.testing.assert_array_equal(
        weighted, SLIM(l1=1.0, l2=5.0, tolerance=1e-6).fit(csr_array(repeated)).weights_.toarray()
    )
    np.testing.assert_allclose(weighted, elastic_net_solution(repeated, 1.0, 5.0), atol=1e-4)


def test_fractions_of_users_count_as_scikit_learn_weighs_them() -> None:
    matrix, l1, l2 = random_matrix(9), 1.0, 3.0
    user_weights = np.random.default_rng(10).uniform(0.1, 2, len(matrix)).astype(np.float32)
    weights = SLIM(l1=l1, l2=l2, tolerance=1e-6).fit(csr_array(matrix), user_weights=user_weights).weights_
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
    with pytest.raises(DataError, match="values are not below 0"):
        SLIM().fit(csr_array(-random_matrix(1)))


def test_more_pairs_than_memory_holds_are_refused_before_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loca.memory.available_bytes", lambda: 1000)
    with pytest.raises(DataError, match=r"pairs of 25 items: .* of memory needed, 1 kB are free; filter rare items"):
        SLIM().fit(csr_array(random_matrix(1)))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"l1": -1.0}, "l1: expected a number ≥ 0, found -1.0"),
        ({"l2": float("nan")}, "l2: expected a number ≥ 0, found nan"),
        ({"tolerance": 0.0}, "tolerance: expected a number from 1e-6 to below 1, found 0.0"),
        ({"iterations": 0}, "iterations: expected a whole number ≥ 1, found 0"),
        ({"device": "abacus"}, "device: expected"),
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
    model = SLIM.restore({}, ModelState(arrays=STORED))
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
        ({"weights_indices": np.array([0.0, 1.0])}, "other kinds of numbers"),
        ({"weights_data": np.array([np.nan, 1], np.float32)}, "expected finite numbers"),
        ({"weights_data": np.array([1, 1])}, "other kinds of numbers"),
    ],
)
def test_arrays_that_are_no_sparse_matrix_are_refused(changes: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        SLIM.restore({}, ModelState(arrays={**STORED, **changes}))


def test_missing_arrays_are_named() -> None:
    with pytest.raises(ModelFileError, match="SLIM: weights_data is missing"):
        SLIM.restore({}, ModelState(arrays={"weights": np.zeros((2, 2), np.float32)}))
