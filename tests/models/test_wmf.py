"""WMF against the library implicit and against dense alternating least squares, and its weights against repetition."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import numpy as np
import pytest
from implicit.cpu.als import AlternatingLeastSquares
from scipy.sparse import csr_array, csr_matrix, random_array

from loca.errors import ConfigError, DataError, ModelFileError
from loca.models.als import initial_factors
from loca.models.recommender import (
    get_params,
)
from loca.models.wmf import WMF
from loca.persistence import load_model
from loca.persistence.learned import restored
from loca.persistence.manifest import ModelState

Dense = np.ndarray


@pytest.fixture
def without_implicit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "implicit.cpu.als", None)


def binary(seed: int = 0, users: int = 50, items: int = 30, density: float = 0.2) -> csr_array:
    drawn = random_array(
        (users, items), density=density, rng=np.random.default_rng(seed), format="csr"
    )
    return csr_array(
        (np.ones(drawn.nnz, np.float32), drawn.indices, drawn.indptr), shape=drawn.shape
    )


def dense_step(
    values: Dense, fixed: Dense, weights: Dense, confidence: float, ridges: Dense
) -> Dense:
    """All rows of one side from the other, row by row over every column, in 64 bits."""
    solved = np.zeros((len(values), fixed.shape[1]))
    for row, own in enumerate(values):
        confidences = weights * (1 + confidence * own)
        system = (fixed * confidences[:, None]).T @ fixed + ridges[row] * np.eye(fixed.shape[1])
        solved[row] = np.linalg.solve(system, fixed.T @ (weights * (1 + confidence) * own))
    return solved


def dense_scores(model: WMF, matrix: csr_array, weights: Dense, histories: csr_array) -> Dense:
    """What the model must answer: Rendle et al.'s regularisation, alternating densely from the same start."""
    values, power = matrix.toarray().astype(float), model.frequency_scaling
    of_users = (1 + model.confidence * values).sum(1)
    of_items = weights @ (1 + model.confidence * values)
    mean = np.average(of_users, weights=weights)
    item_ridges = model.item_l2 * (of_items / of_items.mean()) ** power
    items = np.abs(initial_factors(model.seed, "items", values.shape[1], model.factors)).astype(
        float
    )
    everywhere = np.ones(len(items))
    for _ in range(model.iterations):
        user_ridges = model.user_l2 * (of_users / mean) ** power
        users = dense_step(values, items, everywhere, model.confidence, user_ridges)
        items = dense_step(values.T, users, weights, model.confidence, item_ridges)
    asked = histories.toarray().astype(float)
    ridges = model.user_l2 * ((1 + model.confidence * asked).sum(1) / mean) ** power
    return dense_step(asked, items, everywhere, model.confidence, ridges) @ items.T


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.usefixtures("without_implicit")
def test_the_answers_equal_dense_alternating_least_squares(power: float, weighted: bool) -> None:
    matrix = binary()
    weights = np.random.default_rng(1).uniform(0.2, 3, 50) if weighted else np.ones(50)
    model = WMF(
        factors=6, confidence=12.0, user_l2=2.0, item_l2=5.0, frequency_scaling=power, iterations=4
    )
    model.fit(matrix, user_weights=weights)
    asked = csr_array(matrix[:10].multiply(np.random.default_rng(2).uniform(0.1, 1, (10, 30))))
    np.testing.assert_allclose(
        model.score(asked), dense_scores(model, matrix, weights, asked), atol=1e-4
    )


@pytest.mark.usefixtures("without_implicit")
def test_the_own_solver_takes_the_steps_of_implicit_solved_exactly() -> None:
    matrix = binary(seed=3)
    model = WMF(factors=5, confidence=9.0, user_l2=3.0, item_l2=3.0, iterations=3, seed=4).fit(
        matrix
    )
    library = AlternatingLeastSquares(
        factors=5, regularization=3.0, iterations=3, use_cg=False, num_threads=1
    )
    library.item_factors = np.abs(initial_factors(4, "items", 30, 5))
    library.fit(
        csr_matrix((1 + 9 * matrix.data, matrix.indices, matrix.indptr), matrix.shape),
        show_progress=False,
    )
    assert model.item_factors_ is not None
    np.testing.assert_allclose(
        model.item_factors_ @ model.item_factors_.T,
        library.item_factors @ library.item_factors.T,
        atol=1e-4,
    )


def both_ways(
    model: WMF, matrix: csr_array, monkeypatch: pytest.MonkeyPatch
) -> tuple[Dense, Dense]:
    """The model's answers for its training rows, by implicit and by the own solver."""
    by_implicit = model.fit(matrix).score(matrix)
    monkeypatch.setitem(sys.modules, "implicit.cpu.als", None)
    return by_implicit, model.fit(matrix).score(matrix)


def test_implicit_and_the_own_solver_end_at_the_same_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = WMF(factors=4, confidence=10.0, user_l2=3.0, item_l2=3.0, iterations=120)
    by_implicit, own = both_ways(model, binary(seed=5), monkeypatch)
    assert own.std() > 0.1
    np.testing.assert_allclose(by_implicit, own, atol=2e-3)


def test_implicit_serves_two_regularisations_by_the_length_of_the_factors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = WMF(factors=4, confidence=10.0, user_l2=0.5, item_l2=18.0, iterations=500)
    by_implicit, own = both_ways(model, binary(seed=5), monkeypatch)
    np.testing.assert_allclose(by_implicit, own, atol=2e-3)
    same_product = WMF(factors=4, confidence=10.0, user_l2=3.0, item_l2=3.0, iterations=500)
    np.testing.assert_allclose(
        same_product.fit(binary(seed=5)).score(binary(seed=5)), own, atol=2e-3
    )


@pytest.mark.usefixtures("without_implicit")
@pytest.mark.parametrize("power", [0.0, 1.0])
def test_a_weight_of_two_is_a_user_twice_and_a_weight_of_zero_is_nobody(power: float) -> None:
    matrix, counts = binary(seed=6), np.random.default_rng(7).integers(0, 4, 50)
    model = WMF(
        factors=5, confidence=10.0, user_l2=3.0, item_l2=3.0, frequency_scaling=power, iterations=5
    )
    weighted = model.fit(matrix, user_weights=counts).score(matrix)
    repeated = model.fit(csr_array(matrix[np.repeat(np.arange(50), counts)])).score(matrix)
    np.testing.assert_allclose(weighted, repeated, atol=1e-4)


def test_two_items_that_are_always_together_are_answered_by_hand() -> None:
    # Two users with both of two items: one factor explains them, and by symmetry x = y, so that a user's score s is x².
    # The loss (1 + 3) · 4 · (1 − s)² + 1 · (2s + 2s) is least at s = 1 − 4 / 32.
    model = WMF(factors=1, confidence=3.0, user_l2=1.0, item_l2=1.0, iterations=50)
    both = csr_array(np.ones((2, 2), np.float32))
    np.testing.assert_allclose(model.fit(both).score(both), 1 - 4 / 32, atol=1e-4)


def test_an_item_that_counts_less_says_less_and_an_empty_history_says_nothing() -> None:
    model = WMF(factors=6, confidence=20.0, user_l2=3.0, item_l2=3.0).fit(binary(seed=8))
    asked = np.zeros((3, 30), np.float32)
    asked[0, [3, 7]], asked[1, [3, 7]] = 1.0, (1.0, 0.01)
    scores = model.score(csr_array(asked))
    assert scores[1, 7] < scores[0, 7]
    np.testing.assert_array_equal(scores[2], 0)
    assert model.embed(csr_array(asked)).shape == (3, 6)


def test_the_absence_of_implicit_is_said(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, logger="loca")
    WMF(factors=3).fit(binary())
    assert "implicit" not in caplog.text
    monkeypatch.setitem(sys.modules, "implicit.cpu.als", None)
    WMF(factors=3).fit(binary())
    assert "implicit is not installed" in caplog.text


def test_a_loaded_model_answers_without_implicit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = WMF(factors=5, frequency_scaling=0.5).fit(binary())
    model.save(tmp_path / "model")
    monkeypatch.setitem(sys.modules, "implicit", None)
    loaded = load_model(tmp_path / "model", {"WMF": WMF})
    np.testing.assert_array_equal(loaded.score(binary()), model.score(binary()))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"factors": 0}, "factors: expected a whole number ≥ 1, found 0"),
        ({"iterations": True}, "iterations: expected a whole number ≥ 1, found True"),
        ({"confidence": 0.0}, "confidence: expected a number above 0, found 0.0"),
        ({"user_l2": -1.0}, "user_l2: expected a number above 0"),
        ({"item_l2": float("nan")}, "item_l2: expected a number above 0"),
        ({"frequency_scaling": 1.5}, "frequency_scaling: expected a number from 0 to 1"),
    ],
)
def test_impossible_parameters_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        WMF(**wrong)  # type: ignore[arg-type]


def test_values_below_zero_are_refused_in_training_and_in_a_history() -> None:
    wrong = csr_array(np.array([[1.0, -1.0]], np.float32))
    with pytest.raises(DataError, match="numbers ≥ 0"):
        WMF(factors=2).fit(wrong)
    model = WMF(factors=2).fit(csr_array(np.ones((3, 2), np.float32)))
    with pytest.raises(DataError, match="numbers ≥ 0"):
        model.score(wrong)


@pytest.mark.parametrize(
    ("factors", "mean", "message"),
    [
        (np.zeros((4, 3), np.float32), 1.0, r"expected shape \(4, 2\), items × factors"),
        (np.zeros((4, 2)), 1.0, "of float32, found .* of float64"),
        (np.zeros((4, 2), np.float32), -1.0, "mean_confidence: expected a number above 0"),
        (np.zeros((4, 2), np.float32), "1", "mean_confidence: expected a number above 0"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(factors: Dense, mean: object, message: str) -> None:
    state = ModelState({"item_factors": factors}, {"mean_confidence": mean})
    with pytest.raises(ModelFileError, match=message):
        restored(WMF, get_params(WMF(factors=2)), state)


def test_an_item_of_value_zero_counts_as_one_that_is_not_there() -> None:
    model = WMF(factors=6, confidence=20.0, user_l2=3.0, item_l2=3.0).fit(binary(seed=8))
    stored = csr_array(
        (np.array([1, 0], np.float32), np.array([3, 7]), np.array([0, 2])), shape=(1, 30)
    )
    absent = csr_array((np.array([1], np.float32), np.array([3]), np.array([0, 1])), shape=(1, 30))
    np.testing.assert_allclose(model.score(stored), model.score(absent), atol=1e-5)


def test_implicit_is_not_asked_about_values_other_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = binary(seed=9)
    matrix.data[::2] = 0.5
    model = WMF(factors=4, confidence=10.0, user_l2=3.0, item_l2=3.0, iterations=3)
    first, second = both_ways(model, matrix, monkeypatch)
    np.testing.assert_array_equal(first, second)
