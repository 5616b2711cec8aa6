"""Rows solved in blocks against each row's own dense equations, and alternating steps against what they minimise."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, random_array

from loca.errors import DataError
from loca.models.als import (
    Columns,
    Regression,
    alternate,
    check_values,
    initial_factors,
    row_blocks,
    solve_rows,
    solve_systems,
)
from loca.progress import Bar

CPU = torch.device("cpu")
Dense = np.ndarray


def random_values(seed: int, rows: int, columns: int, density: float) -> csr_array:
    drawn = random_array(
        (rows, columns), density=density, rng=np.random.default_rng(seed), format="csr"
    )
    return csr_array(drawn, dtype=np.float32)


def dense_row(
    values: Dense, fixed: Dense, weights: Dense, confidence: float, ridge: float
) -> Dense:
    """One row's weighted ridge regression over all columns, term by term, in 64 bits."""
    confidences = weights * (1 + confidence * values)
    system = (fixed * confidences[:, None]).T @ fixed + ridge * np.eye(fixed.shape[1])
    return np.linalg.solve(system, fixed.T @ (weights * (1 + confidence) * values))


def loss_of(
    matrix: Dense,
    users: Dense,
    items: Dense,
    of: tuple[Dense, Dense, Dense, Dense],
    confidence: float,
) -> float:
    """The loss that `alternate` names, over every pair."""
    user_weights, item_weights, user_ridges, item_ridges = of
    scores = users @ items.T
    errors = matrix * (1 + confidence) * (1 - scores) ** 2 + (1 - matrix) * scores**2
    penalty = user_weights * user_ridges @ (users**2).sum(1) + item_weights * item_ridges @ (
        items**2
    ).sum(1)
    return float(user_weights @ errors @ item_weights + penalty)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    size=st.sampled_from([1, 3, 20]),
    density=st.sampled_from([0.02, 0.3, 0.9]),
    confidence=st.sampled_from([0.5, 10.0, 200.0]),
    ridge=st.sampled_from([0.1, 10.0]),
)
def test_every_row_equals_its_own_dense_regression(
    seed: int, size: int, density: float, confidence: float, ridge: float
) -> None:
    rng = np.random.default_rng(seed)
    matrix = random_values(seed, 17, 30, density)
    fixed = rng.normal(size=(30, size))
    weights, ridges = rng.uniform(0.1, 2, 30), ridge * rng.uniform(0.5, 2, 17)
    columns = Columns.turned(
        torch.tensor(fixed, dtype=torch.float32), torch.tensor(weights, dtype=torch.float32)
    )
    solved = solve_rows(
        row_blocks(matrix, size, CPU),
        columns,
        confidence,
        torch.tensor(ridges, dtype=torch.float32),
    )
    expected = [
        dense_row(row, fixed, weights, confidence, own)
        for row, own in zip(matrix.toarray(), ridges, strict=True)
    ]
    # The basis is another one; the products with the columns are not. 32 bits, conditions up to some thousands.
    np.testing.assert_allclose(
        (solved @ columns.factors.T).numpy(), np.array(expected) @ fixed.T, atol=1e-3
    )


def test_turned_columns_have_a_diagonal_gram_matrix_and_the_same_products() -> None:
    rng = torch.Generator().manual_seed(1)
    given_factors, weights = torch.randn(50, 6, generator=rng), torch.rand(50, generator=rng)
    columns = Columns.turned(given_factors, weights)
    gram = (columns.factors * weights[:, None]).T @ columns.factors
    torch.testing.assert_close(gram, torch.diag(columns.spread), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(
        columns.factors @ columns.factors.T, given_factors @ given_factors.T, atol=1e-4, rtol=1e-4
    )


def test_blocks_hold_every_stored_row_once_within_the_budget() -> None:
    matrix = random_values(3, 200, 80, 0.1)
    matrix = csr_array(matrix.multiply((np.arange(200) % 7 > 0)[:, None]))
    matrix.eliminate_zeros()
    blocks = row_blocks(matrix, 8, CPU, block_bytes=20_000)
    rows = torch.cat([rows for rows, _, _ in blocks]).numpy()
    np.testing.assert_array_equal(np.sort(rows), np.flatnonzero(np.diff(matrix.indptr)))
    for block_rows, block_columns, block_values in blocks:
        count, longest = block_columns.shape
        # A row holds its entries' factors at least three times while it is solved, in 32 bits.
        assert count == 1 or count * 4 * 3 * longest * 8 <= 20_000
        for row, columns, values in zip(block_rows, block_columns, block_values, strict=True):
            stored = values > 0
            np.testing.assert_array_equal(columns[stored], matrix[[int(row)]].indices)
            np.testing.assert_array_equal(values[stored], matrix[[int(row)]].data)


def test_small_blocks_give_the_same_factors() -> None:
    matrix = random_values(3, 60, 40, 0.2)
    columns = Columns.turned(torch.from_numpy(initial_factors(0, "items", 40, 5)), torch.ones(40))
    large, small = (
        solve_rows(row_blocks(matrix, 5, CPU, block_bytes=size), columns, 10.0, torch.ones(60))
        for size in (2**25, 1)
    )
    torch.testing.assert_close(small, large, atol=1e-5, rtol=1e-4)


def test_every_step_lowers_the_loss_and_the_last_ones_leave_it() -> None:
    rng = np.random.default_rng(0)
    matrix = random_values(5, 40, 30, 0.2)
    of = (
        rng.uniform(0.2, 2, 40),
        rng.uniform(0.2, 2, 30),
        rng.uniform(0.5, 1, 40),
        rng.uniform(0.5, 1, 30),
    )
    user_weights, item_weights, user_ridges, item_ridges = (
        torch.tensor(x, dtype=torch.float32) for x in of
    )
    first = torch.from_numpy(initial_factors(0, "items", 30, 4))
    losses = []
    for iterations in (1, 2, 4, 8, 60, 61):
        items = alternate(
            matrix,
            first,
            Regression(user_weights, user_ridges),
            Regression(item_weights, item_ridges),
            8.0,
            iterations,
            Bar(),
        )
        users = solve_rows(row_blocks(matrix, 4, CPU), items, 8.0, user_ridges)
        losses.append(loss_of(matrix.toarray(), users.numpy(), items.factors.numpy(), of, 8.0))
    assert losses[:5] == sorted(losses[:5], reverse=True)
    assert losses[5] == pytest.approx(losses[4], rel=1e-5)


def test_a_weight_of_two_is_a_user_twice() -> None:
    matrix = random_values(7, 30, 20, 0.3)
    counts = np.random.default_rng(1).integers(1, 4, 30)
    first = torch.from_numpy(initial_factors(0, "items", 20, 4))
    items = Regression(torch.ones(20), torch.full((20,), 2.0))
    ridges = np.random.default_rng(2).uniform(0.5, 2, 30).astype(np.float32)
    weighted = Regression(torch.tensor(counts, dtype=torch.float32), torch.from_numpy(ridges))
    repeated = Regression(
        torch.ones(int(counts.sum())), torch.from_numpy(np.repeat(ridges, counts))
    )
    once = alternate(matrix, first, weighted, items, 10.0, 6, Bar()).factors
    twice = alternate(
        csr_array(matrix[np.repeat(np.arange(30), counts)]), first, repeated, items, 10.0, 6, Bar()
    ).factors
    torch.testing.assert_close(once @ once.T, twice @ twice.T, atol=1e-4, rtol=1e-3)


def test_equations_that_32_bits_cannot_factorise_are_solved_in_64() -> None:
    systems = torch.tensor(
        [[[1.0, 1.0], [1.0, 0.99999994]], [[2.0, 0.0], [0.0, 2.0]]]
    )  # the first spoilt by rounding
    solved = solve_systems(systems, torch.ones(2, 2, 1))
    assert torch.isfinite(solved).all()
    torch.testing.assert_close(solved[1], torch.full((2, 1), 0.5))


def test_a_pair_stored_twice_counts_with_the_sum_and_a_value_below_zero_is_refused() -> None:
    twice = csr_array(
        (np.array([1, 2, 3], np.float32), np.array([2, 0, 2]), np.array([0, 3])), shape=(1, 4)
    )
    np.testing.assert_array_equal(check_values(twice).toarray(), [[2, 0, 4, 0]])
    np.testing.assert_array_equal(twice.data, [1, 2, 3])
    for wrong in (-1.0, np.nan):
        with pytest.raises(DataError, match="found one below 0 or not finite"):
            check_values(csr_array(np.array([[1.0, wrong]], np.float32)))


def test_first_factors_depend_on_seed_and_name_alone() -> None:
    np.testing.assert_array_equal(
        initial_factors(1, "items", 5, 3), initial_factors(1, "items", 5, 3)
    )
    assert np.abs(initial_factors(1, "items", 5, 3) - initial_factors(2, "items", 5, 3)).max() > 0
    assert np.abs(initial_factors(1, 0, 5, 3) - initial_factors(1, 1, 5, 3)).max() > 0
