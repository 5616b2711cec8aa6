"""EASE's equations: the smaller of the items' and the users' system, inverted on any device, many small at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.deferred import torch
from loca.errors import ConfigError
from loca.memory import DataSize, MemoryUse
from loca.models.devices import SparseRows, float32_products, memory_on
from loca.models.recommender import UserWeights, check_user_weights
from loca.progress import say

if TYPE_CHECKING:
    from torch import Tensor

# Gives the rows of some items of an (items, items) array of weights, in 32 bits; the caller may write to them.
WeightRows = Callable[["Tensor"], "Tensor"]
# The relative error up to which an inverse is accepted. On public data with l2 from 1 to 1000 it stays below 0.0002.
LARGEST_ERROR = 0.01
_BLOCK = 1024  # rows of a block of a square array
_BLOCK_CONDITIONING = 256  # rows that are squared at once
_SMALLEST_TRIANGLE = 256


@dataclass(frozen=True)
class SolvingBytes:
    """What a device takes while several models of the same data are solved.

    Parameters
    ----------
    shared : int
        Once, however many are solved.
    each : int
        For every model that is solved at the same time.
    at_once : int
        How many are worth solving at the same time, at most.
    """

    shared: int
    each: int
    at_once: int = 1


def inverse_error(inverse: Tensor, diagonal: Tensor, ridges: Tensor | float, terms: int) -> float:
    """How wrong P, the computed inverse of A = G + diag(ridges), may be; G is a Gram matrix of `terms` products a sum.

    Each P_jj is right to that relative error, each P_ij to that much of √(P_ii·P_jj). Rounding changes A_ij by up to
    about e·√(A_ii·A_jj), e = 4ε·√terms, and so P_jj by up to e·Σ_i A_ii·P_ij². Because no eigenvalue of G is below 0,
    the sum is at most P_jj · max_i A_ii / ridge_i. Where that does not keep below `LARGEST_ERROR`, the sum is taken
    from the computed P, (n, n): where A is singular but for rounding, it is P_jj / ε or so.
    """
    return _relative_error(inverse.diagonal(), inverse, diagonal, ridges, terms)


def _relative_error(
    numbers: Tensor,
    rows: Tensor,
    diagonal: Tensor,
    ridges: Tensor | float,
    terms: int,
    cancelled: float = 0.0,
) -> float:
    """How wrong numbers n_j > 0 may be that rounding changes by e·Σ_i A_ii·r_ji², beside what cancellation costs."""
    if not len(diagonal):
        return 0.0  # no equations, and nothing that could be wrong
    if not (torch.isfinite(numbers).all() and numbers.min() > 0):
        return math.inf
    step = 4 * torch.finfo(numbers.dtype).eps * math.sqrt(terms)
    bound = cancelled + step * float((diagonal / ridges).max())
    if bound <= LARGEST_ERROR:
        return bound
    sums = torch.cat(
        [block.square() @ diagonal for block in torch.split(rows, _BLOCK_CONDITIONING)]
    )
    largest = float((sums / numbers).max())
    return math.inf if math.isnan(largest) else cancelled + step * largest


@dataclass(frozen=True, eq=False)
class EaseSystem:
    """The equations under user weights D: √D·X over their support, the users with a weight and a history.

    Denoising adds r·d_j to l2 on the diagonal, r = denoising / (1 − denoising), d = diag(XᵀDX). With the columns times
    s_j = √(l2 / (l2 + r·d_j)) that is an ordinary system, whose weights times s_i / s_j are those that are wanted.
    """

    rows: csr_array  # (support, items)
    l2: float
    scales: npt.NDArray[np.float64] | None = None  # (items,): s, None without denoising

    @classmethod
    def of(
        cls, matrix: csr_array, user_weights: UserWeights, l2: float, denoising: float = 0.0
    ) -> Self:
        """The system of `matrix` under those weights."""
        weights = check_user_weights(user_weights, matrix.shape[0]).astype(np.float64)
        lengths = np.diff(matrix.indptr)
        support = np.flatnonzero((weights > 0) & (lengths > 0))
        rows = csr_array(matrix if len(support) == matrix.shape[0] else matrix[support])
        values = rows.data * np.repeat(np.sqrt(weights[support]), lengths[support])
        weighted = csr_array((values, rows.indices.copy(), rows.indptr.copy()), shape=rows.shape)
        weighted.sum_duplicates()  # every entry is written to its place only once
        if not denoising:
            return cls(weighted, l2)
        squares = np.bincount(
            weighted.indices, weights=np.square(weighted.data), minlength=weighted.shape[1]
        )
        scales = np.sqrt(l2 / (l2 + denoising / (1 - denoising) * squares))
        weighted.data *= scales[weighted.indices]
        return cls(weighted, l2, scales)

    @property
    def dual(self) -> bool:
        """Whether the users' system is the smaller one."""
        return self.rows.shape[0] < self.rows.shape[1]

    @property
    def size(self) -> int:
        """How many equations the smaller system has."""
        return min(self.rows.shape)

    @cached_property
    def columns(self) -> csr_array:
        """The same transposed, (items, support)."""
        return csr_array(self.rows.T.tocsr())


def fill_gram(rows: csr_array, square: Tensor) -> None:
    """Writes rows · rowsᵀ into the first corner of a square array."""
    (count, width), here = rows.shape, SparseRows.of(rows, square.device, kind=square.dtype)
    for start in range(0, count, _BLOCK):
        stop = min(start + _BLOCK, count)
        own = slice(int(here.starts[start]), int(here.starts[stop]))
        block = square.new_zeros(width, stop - start)  # these rows as dense columns
        block[here.columns[own], here.owner[own] - start] = here.values[own]
        square[:count, start:stop] = here.sum_of(block)


class EaseSolution:
    """The item-to-item weights B of one community, made for the rows that are needed.

    From the items' system they are −P_ij / P_jj with its inverse P. From the users' system with its inverse Q they
    are x̃_iᵀQx̃_j / (1 − x̃_jᵀQx̃_j), where x̃_j is column j of √D·X: the same, because l2·P = 1 − X̃ᵀQX̃.

    `error` says how right rounding leaves l2·P: P_jj has that relative error, P_ij is wrong by that much of
    √(P_ii·P_jj), and a weight by twice of √(P_ii / P_jj).
    """

    def __init__(self, system: EaseSystem, inverse: Tensor) -> None:
        size, terms = system.size, max(system.rows.shape)
        inverse = inverse[:size, :size]
        owners = (
            np.repeat(np.arange(size), np.diff(system.rows.indptr))
            if system.dual
            else system.rows.indices
        )
        squares = np.bincount(owners, weights=np.square(system.rows.data), minlength=size)
        diagonal = torch.from_numpy(squares + system.l2).to(inverse)  # of the equations
        self.error = inverse_error(inverse, diagonal, system.l2, terms)
        self._half, self._columns = inverse, None
        self.shares = inverse.diagonal() * system.l2  # (items,): l2 · P_jj
        if system.dual:
            columns = self._columns = SparseRows.of(
                system.columns, inverse.device, kind=inverse.dtype
            )
            self._half = columns.sum_of(inverse.contiguous())  # XᵀQ, (items, support)
            self.shares = 1 - columns.row_sums(
                self._half[columns.owner, columns.columns] * columns.values
            )
            if self.error <= LARGEST_ERROR:
                # The leverages Σ_u x_uj²·Q_uu bound the terms of x_jᵀQx_j: their sum is rounded by up to about 8ε of
                # it, beside a share that may be small. Rounding the equations' K changes it by e·Σ_u K_uu·(Qx_j)_u²,
                # at most e · max_u K_uu / l2 of the share because ‖Qx_j‖² ≤ P_jj.
                leverages = columns.row_sums(
                    columns.values.square() * inverse.diagonal()[columns.columns]
                )
                cancelled = (
                    8 * torch.finfo(inverse.dtype).eps * float((leverages / self.shares).max())
                )
                self.error = _relative_error(
                    self.shares, self._half, diagonal, system.l2, terms, cancelled
                )
        self._l2 = system.l2
        self._scales = (
            None if system.scales is None else torch.from_numpy(system.scales).to(inverse)
        )

    def weight_rows(self, items: Tensor) -> Tensor:
        """The rows B[items] in 32 bits, (rows, items)."""
        if self._columns is None:
            rows = self._half[items] * (-self._l2 / self.shares)
        else:
            # The product is symmetric in both items: its columns, transposed, are the rows that are wanted.
            rows = (
                self._columns.sum_of(self._half[items].T.contiguous())
                .T.contiguous()
                .div_(self.shares)
            )
        if self._scales is not None:
            rows *= self._scales[items, None] / self._scales
        rows[torch.arange(len(items), device=rows.device), items] = 0
        return rows.to(torch.float32)

    def weights(self) -> Tensor:
        """All of B, (items, items)."""
        dense = torch.empty(len(self.shares), len(self.shares), device=self.shares.device)
        for items in torch.split(torch.arange(len(dense), device=dense.device), _BLOCK):
            dense[items] = self.weight_rows(items)
        return dense


def dense_weights_memory(data: DataSize, device: torch.device, needed: int) -> MemoryUse:
    """What items × items weights take that need so many bytes while they are solved on a device."""
    weights, rows = 4 * data.items**2, data.row_bytes
    after, advice = (weights, 0), "filter rare items"
    return memory_on(
        device, needed + rows, weights, main=weights + rows, after=after, advice=advice
    )


def solve_systems(systems: Sequence[EaseSystem], device: torch.device) -> Iterator[EaseSolution]:
    """The solution of each system, in order, all inverted at once; in halves where the device has too little memory.

    A system that 32 bits cannot solve is solved in 64.
    """
    inverses = None
    try:
        inverses, failed = invert_systems(systems, device, torch.float32)
    except torch.OutOfMemoryError:
        if len(systems) == 1:
            raise
    if inverses is None:  # outside of the handler, which would hold on to what was allocated
        half = len(systems) // 2
        yield from solve_systems(systems[:half], device)
        yield from solve_systems(systems[half:], device)
        return
    for number, system in enumerate(systems):
        solution = None if failed[number] else EaseSolution(system, inverses[number])
        if number == len(systems) - 1:
            del inverses  # only the solution still needs its part
        if solution is None or solution.error > LARGEST_ERROR:
            say("EASE: 32 bits do not hold this local system; once more in 64 bits")
            (inverse,), (is_singular,) = invert_systems([system], device, torch.float64)
            solution = None if is_singular else EaseSolution(system, inverse)
        if solution is None or solution.error > LARGEST_ERROR:
            raise no_solution(system.l2)
        yield solution


def no_solution(l2: float) -> ConfigError:
    """The error that names an l2 beside which the equations are singular."""
    return ConfigError(
        f"l2: {l2:g} is too small for these data, the equations have no solution; take a larger"
    )


def invert_systems(
    systems: Sequence[EaseSystem], device: torch.device, kind: torch.dtype
) -> tuple[Tensor, list[bool]]:
    """The inverses of all systems, (systems, n, n) for the largest size n, and which of them failed.

    A smaller one fills the first corner; the rest is l2 times the unit matrix, which changes nothing in it.
    """
    size = max(system.size for system in systems)
    squares = torch.zeros(len(systems), size, size, dtype=kind, device=device)
    for square, system in zip(squares, systems, strict=True):
        fill_gram(system.rows if system.dual else system.columns, square)
        square.diagonal().add_(system.l2)
    factors, problems = torch.linalg.cholesky_ex(squares)
    del squares
    failed = (problems != 0).tolist()
    if not all(failed):
        with float32_products():
            invert_from_factor(factors)
    return factors, failed


def invert_from_factor(factor: Tensor) -> Tensor:
    """(LLᵀ)⁻¹ in place of the lower factor L with zeros above, (…, n, n): nearly all of it matrix products.

    `torch.cholesky_inverse` does the same several times slower on a CPU.
    """
    _invert_triangle(factor)
    return square_of_inverse(factor)


def square_of_inverse(factor: Tensor) -> Tensor:
    """L⁻ᵀL⁻¹ in place of L⁻¹, a lower triangle with zeros above, (…, n, n), block by block."""
    size = factor.shape[-1]
    for start in range(0, size, _BLOCK):
        stop = min(start + _BLOCK, size)
        # Rows from `start` on are still those of L⁻¹, and later blocks need only rows from theirs on.
        block = factor[..., start:, start:stop].mT @ factor[..., start:, :stop]
        factor[..., start:stop, :stop] = block
        factor[..., :start, start:stop] = block[..., :start].mT
    return factor


def _invert_triangle(triangle: Tensor) -> None:
    """The inverse over a lower triangle, by halves: [A 0; C D]⁻¹ = [A⁻¹ 0; −D⁻¹CA⁻¹ D⁻¹]."""
    size = triangle.shape[-1]
    if size <= _SMALLEST_TRIANGLE:
        unit = torch.eye(size, dtype=triangle.dtype, device=triangle.device).expand_as(triangle)
        triangle.copy_(torch.linalg.solve_triangular(triangle, unit, upper=False))
        return
    half = size // 2
    first, corner, second = (
        triangle[..., :half, :half],
        triangle[..., half:, :half],
        triangle[..., half:, half:],
    )
    _invert_triangle(first)
    _invert_triangle(second)
    corner.copy_((second @ (corner @ first)).neg_())
