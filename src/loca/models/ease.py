"""EASE (Steck 2019): a linear item-to-item model in closed form, solved in place in one items × items array."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.memory import DataSize, MemoryUse, plan_memory
from loca.models import ease_solver
from loca.models.devices import choose_device, device_param, float32_products, free_bytes
from loca.models.ease_solver import LARGEST_ERROR, WeightRows
from loca.models.recommender import ItemToItemModel, Scores, TrainingData, UserWeights, learned, positive, share_below_1
from loca.progress import bar, say

if TYPE_CHECKING:
    import torch
else:
    from loca.deferred import torch

Square = npt.NDArray[Any]
_BLOCK_ITEMS = 1024


@dataclass(kw_only=True, eq=False, repr=False)
class EASE(ItemToItemModel):
    """Score items by a linear item-to-item model: scores = history · B.

    B minimises ‖√D(X − XB)‖² + l2‖B‖² with a zero diagonal; D holds the user weights.

    Parameters
    ----------
    l2 : float, default 100.0
        Regularisation, above 0.
    denoising : float, default 0.0
        The probability p, below 1, with which each item of a history is expected to be missing: the regularisation of
        the weights of item i grows from l2 to l2 + p / (1 − p) · (XᵀDX)_ii.
    device : str, default "auto"
        Where it computes: `"cpu"`, `"cuda"`, or `"auto"`, a GPU where there is one.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> rows = csr_array([[1, 1, 1, 0, 0], [1, 1, 0, 0, 0], [0, 0, 0, 1, 1], [0, 0, 1, 1, 1]])
    >>> model = loca.EASE(l2=1).fit(rows)
    >>> model.weights_.shape
    (5, 5)
    >>> items, scores = loca.recommend(model, csr_array([[1, 0, 0, 0, 0], [0, 0, 0, 1, 0]]), n=1)
    >>> items.tolist()
    [[1], [4]]
    """

    is_linear = True

    l2: float = positive(100.0)
    denoising: float = share_below_1(0.0)
    device: str = device_param()
    weights_: npt.NDArray[np.float32] = learned("items", "items", finite=False)

    def _fit(self, data: TrainingData) -> None:
        """Solve once: on a GPU, or where there are fewer users than items, the smaller system; else the items'."""
        matrix, weights = data.matrix, data.user_weights
        users, items = int(((weights > 0) & (np.diff(matrix.indptr) > 0)).sum()), matrix.shape[1]
        wanted = choose_device(self.device)
        device, needed = plan_solving(users, items, wanted, free_bytes(wanted))
        if device.type == "cuda" or users < items:
            in_main_memory = needed if device.type == "cpu" else 4 * items**2
            plan_memory(f"EASE for {items:,} items", in_main_memory, "filter rare items")
            system = ease_solver.EaseSystem.of(matrix, weights, self.l2, self.denoising)
            self.weights_ = next(ease_solver.solve_systems([system], device)).weights().cpu().numpy()
            return
        solution = solve_in_place(matrix, weights, self, np.float32)
        if solution is None:
            say("EASE: 32 bits do not hold these equations; once more in 64 bits")
            solution = solve_in_place(matrix, weights, self, np.float64)
        if solution is None:
            raise ease_solver.no_solution(self.l2)
        self.weights_ = solution

    def memory_bytes(self, data: DataSize) -> MemoryUse:
        """The equations, on the CPU where the device has too little memory; the weights lie in main memory."""
        wanted = choose_device(self.device)
        return ease_solver.dense_weights_memory(data, *plan_solving(data.users, data.items, wanted, free_bytes(wanted)))

    def solve_each(
        self, matrix: csr_array, user_weights: Sequence[UserWeights], device: torch.device, moments: csr_array | None
    ) -> Iterator[WeightRows]:
        """Learn once with each of several user weights; the equations are solved together.

        Parameters
        ----------
        matrix : csr_array
            The training matrix, users × items.
        user_weights : sequence of arrays
            Each with one weight ≥ 0 per user.
        device : torch.device
            Where the equations are solved.
        moments : csr_array or None
            Not used: a history is a set.

        Yields
        ------
        WeightRows
            What a fit learns with each of the user weights, in order: rows of its items × items weights on request.
        """
        if user_weights:
            systems = [ease_solver.EaseSystem.of(matrix, weights, self.l2, self.denoising) for weights in user_weights]
            for solution in ease_solver.solve_systems(systems, device):
                yield solution.weight_rows


def plan_solving(users: int, items: int, device: torch.device, free: int) -> tuple[torch.device, int]:
    """Where the equations are solved, the CPU where the device has too little memory, and what that takes there."""
    size, half = min(users, items), items * users if users < items else 0
    needed = 4 * (2 * size**2 + items**2 + half + 2 * _BLOCK_ITEMS * items)  # square, factor, weights, half product
    if needed > free:
        device = torch.device("cpu")
    if device.type == "cuda" or users < items:
        return device, needed
    # One array, and a block of it three times while it is filled: sparse values, their columns, dense.
    return device, 4 * items**2 + 12 * min(_BLOCK_ITEMS, items) * items


def solve_in_place(matrix: csr_array, weights: Scores, model: EASE, kind: type) -> Scores | None:
    """Gram matrix, factor, inverse and weights, one after the other in the same array; None where that fails."""
    from scipy.linalg import lapack

    items = matrix.shape[1]
    plan_memory(f"EASE for {items:,} items", items**2 * np.dtype(kind).itemsize, "filter rare items")
    square = weighted_gram(matrix, weights, kind)
    ridges = model.l2 + model.denoising / (1 - model.denoising) * square.diagonal()
    square[np.diag_indices_from(square)] += ridges
    diagonal = torch.from_numpy(square.diagonal().copy())
    factor, invert = (lapack.spotrf, lapack.strtri) if kind is np.float32 else (lapack.dpotrf, lapack.dtrtri)
    # LAPACK wants columns; the transpose of a symmetric row-major array is that, without a copy.
    triangle, failed = factor(square.T, lower=1, clean=1, overwrite_a=1)
    if not failed:
        triangle, failed = invert(triangle, lower=1, overwrite_c=1)
    if failed:
        return None
    with float32_products():
        inverse = ease_solver.square_of_inverse(torch.from_numpy(triangle))
    if ease_solver.inverse_error(inverse, diagonal, torch.from_numpy(ridges), max(matrix.shape)) > LARGEST_ERROR:
        return None
    square = triangle.T  # symmetric, and row-major again
    square /= -square.diagonal()  # column j is divided by −P_jj
    np.fill_diagonal(square, 0)
    return np.asarray(square, dtype=np.float32)


def weighted_gram(matrix: csr_array, weights: npt.NDArray[np.float32], kind: type) -> Square:
    """XᵀDX as a dense array, filled in blocks of items so that no second array of that size exists."""
    support = np.flatnonzero(weights)
    rows = (matrix if len(support) == matrix.shape[0] else matrix[support]).astype(kind)
    weighted = csr_array(rows.multiply(weights[support].astype(kind)[:, None])) if (weights != 1).any() else rows
    columns, item_count = weighted.T.tocsr(), matrix.shape[1]  # (items, users)
    gram: Square = np.zeros((item_count, item_count), dtype=kind)
    with bar("Gram matrix, blocks of items", -(-item_count // _BLOCK_ITEMS)) as progress:
        for start in range(0, item_count, _BLOCK_ITEMS):
            block = slice(start, start + _BLOCK_ITEMS)
            gram[block] = (columns[block] @ rows).toarray()
            progress.advance()
    return gram
