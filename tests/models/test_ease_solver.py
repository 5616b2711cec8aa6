"""EASE's local systems against dense solutions, and what 32 bits hold of an inverse of a known condition."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from loca.data.synthetic import PlantedData
from loca.errors import ConfigError
from loca.models import ease_solver
from loca.models.ease import EASE
from loca.models.ease_solver import (
    LARGEST_ERROR,
    EaseSolution,
    EaseSystem,
    inverse_error,
    invert_from_factor,
    invert_systems,
    solve_systems,
)
from loca.models.next_ease import NextEASE

CPU = torch.device("cpu")
# What 32 bits leave open of weights up to 1: ε · √60 · a condition of about 20. A wrong weight is wrong by far more.
ROUNDING = 2e-5
TALL, WIDE = (60, 25), (25, 60)


def solve_local(
    matrix: csr_array, weights: np.ndarray, l2: float, denoising: float = 0.0
) -> np.ndarray:
    """The weights of one local system."""
    return (
        next(solve_systems([EaseSystem.of(matrix, weights, l2, denoising)], CPU)).weights().numpy()
    )


def of_condition(
    condition: float, shape: tuple[int, int], l2: float = 1.0
) -> tuple[csr_array, np.ndarray]:
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
    if (
        condition >= 1e8
    ):  # ε · condition is 10 and more: nothing is left of the smallest eigenvalues
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
    weights = (
        np.full(users, 10.0**weight)
        if kind != "two kinds of user"
        else 10.0 ** rng.uniform(-3, 3, users)
    )
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
    matrix = csr_array(
        np.kron(np.eye(20), np.ones((50, 1)))
    )  # 20 items of 50 users each, no user with two
    solution = in_32_bits(matrix, np.ones(1000), 1e-6)
    assert solution is not None
    assert solution.error <= LARGEST_ERROR
    np.testing.assert_allclose(solution.shares, 1e-6 / (50 + 1e-6), rtol=1e-5)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_an_inverse_with_a_diagonal_that_is_no_positive_number_is_refused(
    kind: torch.dtype,
) -> None:
    for wrong in (0.0, -1.0, float("inf"), float("nan")):
        inverse = torch.eye(3, dtype=kind)
        inverse[1, 1] = wrong
        assert inverse_error(inverse, torch.ones(3, dtype=kind), 1.0, 5) == float("inf")
    inverse = torch.eye(3, dtype=kind)
    inverse[0, 2] = float("nan")
    assert inverse_error(inverse, torch.ones(3, dtype=kind), 1e-20, 5) == float("inf")


@pytest.mark.parametrize("l2", [1.0, 10.0, 1000.0])
def test_ordinary_data_are_solved_in_32_bits(
    l2: float, planted: PlantedData, caplog: pytest.LogCaptureFixture
) -> None:
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
    for model in (
        EASE(l2=0.01),
        NextEASE(l2=0.01, denoising=0.0, next_count=1, prefix_decay=0.0, ordinary=1e3),
    ):
        caplog.clear()
        with caplog.at_level(logging.INFO, "loca"):
            found = model.fit(matrix, user_weights=weights).weights_
        assert "once more in 64 bits" in caplog.text
        assert found is not None
        if isinstance(model, EASE):
            off_diagonal = found[~np.eye(shape[1], dtype=bool)]
            np.testing.assert_allclose(off_diagonal, 1 / (shape[1] - 1), rtol=1e-4)


@pytest.mark.parametrize("shape", [TALL, WIDE])
def test_a_condition_beyond_32_bits_is_solved_in_64(
    shape: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    matrix, inverse = of_condition(1e8, shape)
    expected = -inverse / np.diag(inverse)
    np.fill_diagonal(expected, 0)
    with caplog.at_level(logging.INFO, "loca"):
        found = solve_local(matrix, np.ones(shape[0]), 1.0)
    assert "once more in 64 bits" in caplog.text
    # The training matrix itself is rounded to 32 bits.
    np.testing.assert_allclose(found, expected, atol=2e-3 * np.abs(expected).max())


def test_where_nobody_with_a_history_has_a_weight_there_is_nothing_to_solve() -> None:
    matrix = csr_array(np.array([[0, 0, 0], [1, 1, 0], [0, 1, 1]], dtype=np.float32))
    nobody, somebody = np.array([1, 0, 0], np.float32), np.array([1, 1, 1], np.float32)
    np.testing.assert_array_equal(
        EASE(l2=10.0).fit(matrix, user_weights=nobody).weights_, np.zeros((3, 3))
    )
    systems = [EaseSystem.of(matrix, weights, 10.0) for weights in (nobody, somebody)]
    empty, whole = solve_systems(systems, torch.device("cpu"))
    assert max(empty.error, whole.error) <= LARGEST_ERROR
    np.testing.assert_array_equal(empty.weights(), np.zeros((3, 3)))


def random_matrix(seed: int, shape: tuple[int, int]) -> csr_array:
    return csr_array((np.random.default_rng(seed).random(shape) < 0.2).astype(np.float32))


def random_weights(seed: int, count: int) -> np.ndarray:
    """Weights from 0 to 3, about a fifth of them exactly 0."""
    rng = np.random.default_rng(seed)
    return rng.uniform(0, 3, count) * (rng.random(count) < 0.8)


def dense_solution(matrix: csr_array, weights: np.ndarray, l2: float) -> np.ndarray:
    """Steck's closed form, term by term, in 64 bits."""
    rows = matrix.toarray().astype(np.float64)
    inverse = np.linalg.inv(rows.T @ (weights[:, None] * rows) + l2 * np.eye(rows.shape[1]))
    solution = -inverse / np.diag(inverse)
    np.fill_diagonal(solution, 0)
    return solution


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    shape=st.sampled_from([TALL, WIDE]),
    l2=st.sampled_from([0.5, 3.0, 100.0]),
)
def test_both_systems_give_the_dense_solution_and_that_of_ease(
    seed: int, shape: tuple[int, int], l2: float
) -> None:
    matrix, weights = random_matrix(seed, shape), random_weights(seed + 1, shape[0])
    found = solve_local(matrix, weights, l2)
    np.testing.assert_allclose(found, dense_solution(matrix, weights, l2), atol=ROUNDING)
    np.testing.assert_allclose(
        found, EASE(l2=l2).fit(matrix, user_weights=weights).weights_, atol=ROUNDING
    )


def test_the_users_system_is_taken_where_the_support_is_smaller_than_the_catalogue() -> None:
    matrix = random_matrix(0, TALL)
    assert not EaseSystem.of(matrix, np.ones(60), 1.0).dual
    few = np.zeros(60)
    few[:20] = 1
    assert EaseSystem.of(matrix, few, 1.0).dual
    np.testing.assert_allclose(
        solve_local(matrix, few, 1.0), dense_solution(matrix, few, 1.0), atol=ROUNDING
    )


def test_users_without_weight_or_history_are_no_part_of_the_system() -> None:
    rows = random_matrix(1, (10, 30)).toarray()
    rows[:, 0] = 1
    rows[4] = 0
    weights = np.ones(10)
    weights[7] = 0
    assert EaseSystem.of(csr_array(rows), weights, 1.0).rows.shape == (8, 30)


def test_pairs_stored_twice_count_as_their_sum() -> None:
    twice = csr_array((np.ones(4, np.float32), [1, 1, 0, 2], [0, 3, 4]), shape=(2, 3))
    assert not twice.has_canonical_format
    expected = dense_solution(csr_array(np.array([[1, 2, 0], [0, 0, 1.0]])), np.ones(2), 1.0)
    np.testing.assert_allclose(solve_local(twice, np.ones(2), 1.0), expected, atol=ROUNDING)


@pytest.mark.parametrize("shape", [TALL, WIDE])
def test_many_systems_at_once_give_what_each_gives_alone(shape: tuple[int, int]) -> None:
    matrix = random_matrix(2, shape)
    systems = [EaseSystem.of(matrix, random_weights(number, shape[0]), 2.0) for number in range(4)]
    together = [solution.weights() for solution in solve_systems(systems, CPU)]
    assert len({system.size for system in systems}) > (1 if shape == WIDE else 0)
    for system, found in zip(systems, together, strict=True):
        torch.testing.assert_close(
            found, next(solve_systems([system], CPU)).weights(), atol=ROUNDING, rtol=0
        )


def test_too_little_memory_for_all_systems_halves_them(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix, real, sizes = random_matrix(3, WIDE), ease_solver.invert_systems, []

    def at_most_two(systems: list[EaseSystem], device: torch.device, kind: torch.dtype) -> Any:
        sizes.append(len(systems))
        if len(systems) > 2:
            raise torch.OutOfMemoryError("no room")
        return real(systems, device, kind)

    monkeypatch.setattr(ease_solver, "invert_systems", at_most_two)
    weights = [random_weights(number, 25) for number in range(5)]
    found = [
        one.weights()
        for one in solve_systems([EaseSystem.of(matrix, one, 2.0) for one in weights], CPU)
    ]
    assert sizes == [5, 2, 3, 1, 2]
    for one, user_weights in zip(found, weights, strict=True):
        np.testing.assert_allclose(one, dense_solution(matrix, user_weights, 2.0), atol=ROUNDING)
    monkeypatch.setattr(
        ease_solver,
        "invert_systems",
        lambda systems, device, kind: at_most_two([None] * 3, CPU, kind),
    )
    with pytest.raises(torch.OutOfMemoryError):
        next(solve_systems([EaseSystem.of(matrix, weights[0], 2.0)], CPU))


@pytest.mark.parametrize("shape", [(), (3,)])
def test_the_inverse_from_a_factor_is_the_inverse(shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(1)
    tall = torch.randn(
        *shape, 300, 330, generator=generator, dtype=torch.float64
    )  # more rows than one triangle
    square = tall @ tall.mT + torch.eye(300, dtype=torch.float64)
    found = invert_from_factor(torch.linalg.cholesky(square))
    torch.testing.assert_close(found, torch.linalg.inv(square))


@pytest.mark.parametrize("shape", [(1200, 1100), (30, 1100)])
def test_blocks_of_the_equations_and_of_the_weights_change_nothing(shape: tuple[int, int]) -> None:
    matrix, weights = random_matrix(4, shape), random_weights(5, shape[0])
    expected = dense_solution(matrix, weights, 50.0)  # more items than a block has
    np.testing.assert_allclose(solve_local(matrix, weights, 50.0), expected, atol=ROUNDING)
    np.testing.assert_allclose(
        EASE(l2=50.0).fit(matrix, user_weights=weights).weights_, expected, atol=ROUNDING
    )


def test_the_products_keep_all_bits_and_leave_the_setting_as_it_was() -> None:
    torch.set_float32_matmul_precision("high")
    try:
        solve_local(random_matrix(4, WIDE), np.ones(25), 2.0)
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize(("users", "items"), [(1000, 2), (40, 60)])
def test_a_system_that_32_bits_cannot_hold_is_solved_in_64(
    users: int, items: int, caplog: pytest.LogCaptureFixture
) -> None:
    # Everybody has the same items: the condition is 1e11, which no 32-bit arithmetic holds and 64 bits do.
    matrix, weights = csr_array(np.ones((users, items), np.float32)), np.full(users, 1e6)
    with caplog.at_level(logging.INFO, "loca"):
        found = solve_local(matrix, weights, 0.01)
    assert "once more in 64 bits" in caplog.text
    np.testing.assert_allclose(found, dense_solution(matrix, weights, 0.01), rtol=1e-3)


def test_an_l2_too_small_for_64_bits_is_refused() -> None:
    with pytest.raises(ConfigError, match="l2: 1e-300 is too small for these data"):
        solve_local(csr_array(np.ones((5, 3), np.float32)), np.ones(5), 1e-300)
