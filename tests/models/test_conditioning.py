"""What 32 bits hold of an inverse: accepted is what is right, on systems whose inverse and condition are known."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from loca.data.synthetic import PlantedData
from loca.models.ease import EASE
from loca.models.ease_solver import (
    LARGEST_ERROR,
    EaseSolution,
    EaseSystem,
    inverse_error,
    invert_systems,
    solve_systems,
)
from loca.models.next_ease import NextEASE

CPU = torch.device("cpu")
TALL, WIDE = (80, 30), (30, 80)


def solve_local(matrix: csr_array, weights: np.ndarray, l2: float, denoising: float = 0.0) -> np.ndarray:
    """The weights of one local system."""
    return next(solve_systems([EaseSystem.of(matrix, weights, l2, denoising)], CPU)).weights().numpy()


def of_condition(condition: float, shape: tuple[int, int], l2: float = 1.0) -> tuple[csr_array, np.ndarray]:
    """Values whose Gram matrix plus l2 has eigenvalues from l2 to l2 · condition, and the inverse of that matrix."""
    rng, size = np.random.default_rng(7), min(shape)
    left, right = (np.linalg.qr(rng.normal(size=(length, size)))[0] for length in shape)
    squares = l2 * (np.geomspace(1, condition, size) - 1)
    inverse = np.eye(shape[1]) / l2 + (right * (1 / (squares + l2) - 1 / l2)) @ right.T
    return csr_array((left * np.sqrt(squares)) @ right.T), inverse


def in_32_bits(matrix: csr_array, weights: np.ndarray, l2: float) -> EaseSolution | None:
    system = EaseSystem.of(matrix, weights, l2)
    inverses, failed = invert_systems([system], CPU, torch.float32)
    return None if failed[0] else EaseSolution(system, inverses[0])


def found_error(solution: EaseSolution, l2: float, inverse: np.ndarray) -> float:
    """The largest error of P_jj beside P_jj, and of the weights −P_ij / P_jj beside √(P_ii / P_jj)."""
    own = np.diag(inverse)
    weights = -inverse / own
    np.fill_diagonal(weights, 0)
    of_weights = np.abs(solution.weights().numpy() - weights) / np.sqrt(own[:, None] / own)
    return float(max(np.abs(solution.shares.numpy() / (l2 * own) - 1).max(), of_weights.max()))


@pytest.mark.parametrize("shape", [TALL, WIDE])
@pytest.mark.parametrize("condition", [10.0**power for power in range(1, 13)])
def test_of_a_known_condition_what_is_accepted_is_right_and_the_rest_refused(
    condition: float, shape: tuple[int, int]
) -> None:
    matrix, inverse = of_condition(condition, shape)
    solution = in_32_bits(matrix, np.ones(shape[0]), 1.0)
    if condition <= 1e3:
        assert solution is not None
        assert solution.error <= LARGEST_ERROR
    if condition >= 1e8:  # ε · condition is 10 and more: nothing is left of the smallest eigenvalues
        assert solution is None or solution.error > LARGEST_ERROR
    if solution is not None and solution.error <= LARGEST_ERROR:
        assert found_error(solution, 1.0, inverse) <= solution.error <= LARGEST_ERROR


@settings(max_examples=60, deadline=None)
@given(
    users=st.integers(2, 60),
    items=st.integers(2, 60),
    weight=st.floats(-3, 8),
    seed=st.integers(0, 1000),
    kind=st.sampled_from(["all alike", "nearly alike", "sparse", "two kinds of user"]),
)
def test_no_inverse_is_accepted_that_64_bits_find_wrong(
    users: int, items: int, weight: float, seed: int, kind: str
) -> None:
    rng = np.random.default_rng(seed)
    chance = {"all alike": 1.0, "nearly alike": 0.97, "sparse": 0.2, "two kinds of user": 0.9}[kind]
    rows = (rng.random((users, items)) < chance).astype(np.float32)
    rows[0] = 1
    weights = np.full(users, 10.0**weight) if kind != "two kinds of user" else 10.0 ** rng.uniform(-3, 3, users)
    solution = in_32_bits(csr_array(rows), weights, 1.0)
    if solution is not None and solution.error <= LARGEST_ERROR:
        exact = rows.T.astype(np.float64) @ (weights[:, None] * rows) + np.eye(items)
        assert found_error(solution, 1.0, np.linalg.inv(exact)) <= LARGEST_ERROR


@pytest.mark.parametrize("shape", [(1000, 2), (40, 60)])
def test_an_l2_that_is_lost_beside_the_rest_is_noticed_even_where_the_factorisation_succeeds(
    shape: tuple[int, int],
) -> None:
    # What 32 bits make of equal items is singular; that it can be factorised at all depends on the last bit.
    system = EaseSystem.of(csr_array(np.ones(shape, np.float32)), np.full(shape[0], 1e6), 0.01)
    square = torch.full((system.size, system.size), 1e6 * max(shape))
    factor = torch.linalg.cholesky(square.double() * (1 + 1e-7 * torch.eye(len(square)).double()))
    assert EaseSolution(system, torch.cholesky_inverse(factor).float()).error > LARGEST_ERROR


def test_a_small_l2_does_not_matter_where_the_items_differ() -> None:
    matrix = csr_array(np.kron(np.eye(20), np.ones((50, 1))))  # 20 items of 50 users each, no user with two
    solution = in_32_bits(matrix, np.ones(1000), 1e-6)
    assert solution is not None
    assert solution.error <= LARGEST_ERROR
    np.testing.assert_allclose(solution.shares, 1e-6 / (50 + 1e-6), rtol=1e-5)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_an_inverse_with_a_diagonal_that_is_no_positive_number_is_refused(kind: torch.dtype) -> None:
    for wrong in (0.0, -1.0, float("inf"), float("nan")):
        inverse = torch.eye(3, dtype=kind)
        inverse[1, 1] = wrong
        assert inverse_error(inverse, torch.ones(3, dtype=kind), 1.0, 5) == float("inf")
    inverse = torch.eye(3, dtype=kind)
    inverse[0, 2] = float("nan")
    assert inverse_error(inverse, torch.ones(3, dtype=kind), 1e-20, 5) == float("inf")


@pytest.mark.parametrize("l2", [1.0, 10.0, 1000.0])
def test_ordinary_data_are_solved_in_32_bits(l2: float, planted: PlantedData, caplog: pytest.LogCaptureFixture) -> None:
    matrix = planted.interactions.matrix()
    few = np.where(np.arange(matrix.shape[0]) < 40, 1.0, 0.0)
    with caplog.at_level(logging.INFO, "loca"):
        EASE(l2=l2).fit(matrix)
        EASE(l2=l2).fit(matrix, user_weights=few)
        solve_local(matrix, few, l2)
        NextEASE(l2=l2, denoising=0.0).fit(matrix)
    assert "64 bits" not in caplog.text


@pytest.mark.parametrize("shape", [(1000, 2), (40, 60)])
def test_ease_and_next_ease_solve_in_64_bits_what_32_cannot_hold(
    shape: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    matrix, weights = csr_array(np.ones(shape, np.float32)), np.full(shape[0], 1e6)
    # Everybody has everything: each weight is 1 / (items − 1) but for what l2 takes.
    for model in (EASE(l2=0.01), NextEASE(l2=0.01, denoising=0.0, next_count=1, prefix_decay=0.0, ordinary=1e3)):
        caplog.clear()
        with caplog.at_level(logging.INFO, "loca"):
            found = model.fit(matrix, user_weights=weights).weights_
        assert "once more in 64 bits" in caplog.text
        assert found is not None
        if isinstance(model, EASE):
            off_diagonal = found[~np.eye(shape[1], dtype=bool)]
            np.testing.assert_allclose(off_diagonal, 1 / (shape[1] - 1), rtol=1e-4)


@pytest.mark.parametrize("shape", [TALL, WIDE])
def test_a_condition_beyond_32_bits_is_solved_in_64(shape: tuple[int, int], caplog: pytest.LogCaptureFixture) -> None:
    matrix, inverse = of_condition(1e8, shape)
    expected = -inverse / np.diag(inverse)
    np.fill_diagonal(expected, 0)
    for solve in (lambda: EASE(l2=1.0).fit(matrix).weights_, lambda: solve_local(matrix, np.ones(shape[0]), 1.0)):
        caplog.clear()
        with caplog.at_level(logging.INFO, "loca"):
            found = solve()
        assert "once more in 64 bits" in caplog.text
        # The training matrix itself is rounded to 32 bits.
        np.testing.assert_allclose(found, expected, atol=2e-3 * np.abs(expected).max())


def test_where_nobody_with_a_history_has_a_weight_there_is_nothing_to_solve() -> None:
    matrix = csr_array(np.array([[0, 0, 0], [1, 1, 0], [0, 1, 1]], dtype=np.float32))
    nobody, somebody = np.array([1, 0, 0], np.float32), np.array([1, 1, 1], np.float32)
    np.testing.assert_array_equal(EASE(l2=10.0).fit(matrix, user_weights=nobody).weights_, np.zeros((3, 3)))
    systems = [EaseSystem.of(matrix, weights, 10.0) for weights in (nobody, somebody)]
    empty, whole = solve_systems(systems, torch.device("cpu"))
    assert max(empty.error, whole.error) <= LARGEST_ERROR
    np.testing.assert_array_equal(empty.weights(), np.zeros((3, 3)))
