"""Factors by alternating least squares: all rows of one side solved at once, in blocks that fit the memory."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor

from loca.errors import DataError
from loca.memory import DataSize, MemoryUse, plan_memory
from loca.models.devices import choose_device, float32_products, free_bytes, memory_on
from loca.progress import Bar
from loca.random_streams import stream

Floats = npt.NDArray[np.float32]
# What a block of rows may take: little enough to stay near a processor's cache, and enough to keep a GPU busy.
_BLOCK_BYTES = 1 << 25
_BLOCK_BYTES_ON_GPU = 1 << 31
# Rows share a block while the shortest has this share of the longest's entries, or only so many fewer.
_SHORTEST_SHARE = 0.75
_FEWER = 2
_INITIAL_SPREAD = 0.1
# Rows of a sparse matrix with about as many entries each, (rows,), and the columns and values of their entries, both
# (rows, longest), padded to the longest with entries of value 0.
RowBlock = list[Tensor]


class Columns(NamedTuple):
    """What rows are solved from: the columns' factors in a basis in which their weighted Gram matrix is diagonal."""

    factors: Tensor  # (columns, factors)
    weights: Tensor  # (columns,)
    spread: Tensor  # (factors,), that diagonal

    @classmethod
    def turned(cls, factors: Tensor, weights: Tensor) -> Columns:
        """Factors turned into that basis, which no product with factors solved from them shows."""
        with float32_products():
            gram = (factors * weights[:, None]).T @ factors
            _, basis = torch.linalg.eigh(gram.to(torch.float64))
            return cls.as_turned(factors @ basis.to(factors.dtype), weights)

    @classmethod
    def as_turned(cls, factors: Tensor, weights: Tensor) -> Columns:
        """Factors that stand in that basis already."""
        return cls(factors, weights, (factors * factors * weights[:, None]).sum(dim=0))


class Regression(NamedTuple):
    """How rows or columns enter the loss: the weight of each, and the ridge against which its factor is found."""

    weights: Tensor
    ridges: Tensor


def check_values(matrix: csr_array) -> csr_array:
    """The rows in order of their items, each pair once; a value below 0, or none at all, is refused."""
    rows = csr_array(matrix, copy=True)
    rows.sum_duplicates()
    if rows.nnz and not (np.isfinite(rows.data).all() and rows.data.min() >= 0):
        raise DataError(
            "a factor model takes values ≥ 0 as confidence; found one below 0 or not finite"
        )
    return rows


def initial_factors(seed: int, name: str | int, count: int, factors: int) -> Floats:
    """Random factors of a named stream: normal, and so small that a product of two is near 0."""
    drawn = stream(seed, "factors", name).standard_normal((count, factors), dtype=np.float32)
    return drawn * np.float32(_INITIAL_SPREAD / factors**0.5)


def alternate(
    matrix: csr_array,
    initial: Tensor,
    users: Regression,
    items: Regression,
    confidence: float,
    steps: int,
    bar: Bar,
) -> Columns:
    """Items' factors towards the least Σ_ui s_u s_i loss_ui + Σ_u s_u ridge_u ‖x_u‖² + Σ_i s_i ridge_i ‖y_i‖².

    loss_ui = v (1 + confidence) (1 − x_u · y_i)² + (1 − v) (x_u · y_i)², where v is the value of a pair, 0 if it is not
    stored. s are the weights; a ridge counts as often as the loss, so that a user's factor does not depend on the
    user's own weight.
    """
    by_user = row_blocks(matrix, initial.shape[1], initial.device)
    by_item = row_blocks(matrix.T.tocsr(), initial.shape[1], initial.device)
    of_items = Columns.turned(initial, items.weights)
    for _ in range(steps):
        of_users = Columns.turned(
            solve_rows(by_user, of_items, confidence, users.ridges), users.weights
        )
        of_items = Columns.turned(
            solve_rows(by_item, of_users, confidence, items.ridges), items.weights
        )
        bar.advance()
    return of_items


def plan_alternating(
    what: str, rows: csr_array, factors: int, wanted: torch.device, other: int = 0
) -> torch.device:
    """Where the factors are found: the CPU where the device has too little memory for that and the `other` bytes."""
    users, items = rows.shape
    device, needed = _place(users, items, rows.nnz, factors, wanted, other)
    if device.type == "cpu":
        what = f"{what} of {factors} factors for {users:,} users and {items:,} items"
        plan_memory(what, needed, "take fewer factors")
    return device


def factor_memory(data: DataSize, factors: int, *, folder: int, beside: int = 0) -> MemoryUse:
    """What alternating takes on its device, or on the CPU where that has too little memory, beside some bytes."""
    wanted = choose_device(data.device)
    device, needed = _place(data.users, data.items, data.entries, factors, wanted, beside)
    main, after, advice = folder + data.row_bytes, (folder, folder), "take fewer factors"
    return memory_on(device, needed, folder, main=main, after=after, advice=advice)


def _place(
    users: int, items: int, stored: int, factors: int, wanted: torch.device, other: int
) -> tuple[torch.device, int]:
    """Where the factors are found, and what that takes.

    That is the padded entries from both sides, both sides' factors thrice, a block, and the `other` bytes.
    """
    without_block = other + 48 * stored + 12 * factors * (users + items) + 16 * factors**2
    if wanted.type == "cuda" and without_block + _block_bytes(wanted) > free_bytes(wanted):
        wanted = torch.device("cpu")
    return wanted, without_block + _block_bytes(wanted)


def solve_rows(
    blocks: list[RowBlock], columns: Columns, confidence: float, ridges: Tensor
) -> Tensor:
    """The factors of all rows, (rows, factors), in the basis of the columns: a weighted ridge regression each.

    Row r minimises Σ_j s_j loss_rj + ridge_r ‖x‖², see `alternate`. A row that stores nothing gets zeros. The solution
    is (D + YᵀaY)⁻¹Yᵀb, D being diagonal: with as many unknowns as factors, or as entries where these are fewer.
    """
    solved = columns.factors.new_zeros(len(ridges), columns.factors.shape[1])
    with float32_products():
        for rows, entry_columns, values in blocks:
            entries = columns.factors[entry_columns]  # (rows, longest, factors)
            counted = columns.weights[entry_columns] * values  # (rows, longest)
            extra = confidence * counted  # a, beyond the confidence 1 that every column has in D
            wanted = (1 + confidence) * counted[:, :, None]  # b
            diagonal = columns.spread + ridges[rows, None]  # D, (rows, factors)
            if entries.shape[1] >= entries.shape[2]:
                system = (entries * extra[:, :, None]).mT @ entries
                system.diagonal(dim1=1, dim2=2).add_(diagonal)
                found = solve_systems(system, entries.mT @ wanted)
            else:
                # The same as D⁻¹Yᵀ(b − √a (I + √aK√a)⁻¹ √aKb) with K = YD⁻¹Yᵀ, (rows, longest, longest).
                scaled = entries / diagonal[:, None, :]
                kernel = scaled @ entries.mT
                root = extra.sqrt()[:, :, None]
                system = kernel * root * root.mT
                system.diagonal(dim1=1, dim2=2).add_(1)
                found = scaled.mT @ (
                    wanted - root * solve_systems(system, root * (kernel @ wanted))
                )
            solved[rows] = found[:, :, 0]
    return solved


def solve_systems(systems: Tensor, sides: Tensor) -> Tensor:
    """Solutions of symmetric positive definite systems; one that rounding spoils is solved again in 64 bits."""
    factor, problems = torch.linalg.cholesky_ex(systems)
    if not bool(problems.any()):
        return torch.cholesky_solve(sides, factor)
    exact: Tensor = torch.linalg.solve(systems.to(torch.float64), sides.to(torch.float64))
    return exact.to(sides.dtype)


def _block_bytes(device: torch.device) -> int:
    return max(
        _BLOCK_BYTES,
        min(_BLOCK_BYTES_ON_GPU, free_bytes(device) // 10) if device.type == "cuda" else 0,
    )


def row_blocks(
    matrix: csr_array, factors: int, device: torch.device, block_bytes: int | None = None
) -> list[RowBlock]:
    """The rows that store anything in blocks for `solve_rows`, each within the memory of a block, or of one row."""
    block_bytes = _block_bytes(device) if block_bytes is None else block_bytes
    counts = np.diff(matrix.indptr)
    order = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    blocks: list[RowBlock] = []
    falling, start = -counts[order], 0
    while start < len(order):
        longest = -int(falling[start])
        unknowns = min(longest, factors)
        # What one row takes while it is solved: its entries' factors thrice, its equations thrice, and a few columns.
        row_bytes = 4 * (3 * longest * factors + 3 * unknowns**2 + 10 * longest + 3 * factors)
        shortest = min(_SHORTEST_SHARE * longest, longest - _FEWER)
        alike = int(np.searchsorted(falling[start:], -shortest, side="right"))
        rows = order[start : start + max(1, min(alike, block_bytes // row_bytes))].astype(np.int64)
        places = np.arange(longest)
        stored = places < counts[rows, None]  # (rows, longest)
        picked = np.where(stored, matrix.indptr[rows, None] + places, 0)
        columns = np.where(stored, matrix.indices[picked], 0).astype(np.int64)
        values = np.where(stored, matrix.data[picked], 0).astype(np.float32)
        blocks.append([torch.from_numpy(one).to(device) for one in (rows, columns, values)])
        start += len(rows)
    return blocks
