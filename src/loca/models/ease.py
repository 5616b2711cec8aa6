"""EASE (Steck 2019): a linear item-to-item model in closed form, solved in one items × items array; dense or sparse."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.deferred import torch
from loca.evaluation.evaluate import mean_value
from loca.memory import DataSize, MemoryUse, plan_memory
from loca.models import ease_solver
from loca.models.devices import choose_device, float32_products, free_bytes
from loca.models.ease_solver import LARGEST_ERROR, WeightRows
from loca.models.params import param, positive, share_below_1
from loca.models.recommender import (
    ItemToItemModel,
    Scores,
    TrainingData,
    UserWeights,
    clone,
    sparse_weight_bytes,
)
from loca.persistence.learned import learned_fact, learned_weights
from loca.progress import bar, say

Square = npt.NDArray[Any]
_BLOCK_ITEMS = 1024
_NUMBERS_AT_ONCE = 2**19
# What "auto" may lose of the dense model's validation score, and the shares of all weights that it tries. A sparse
# weight takes as many bytes as two dense ones: a twentieth of the weights is a tenth of the bytes.
_LOSS = 0.005
_SHARES = (1 / 80, 1 / 40, 1 / 20, 1 / 10)
_USUAL_SHARE = 1 / 20
# Larger systems fill a GPU on their own.
_LARGEST_BATCHED_SYSTEM = 512
_MOST_AT_ONCE = 64
# Place and size of an entry that may be one of the largest, each beside a copy and what sorts it.
_BYTES_TO_CHOOSE = 48


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
    keep : int, "auto" or None, default None
        How many weights to keep per item, as a mean over all items; None keeps all. Of the solution the weights with
        the largest |B_ij| · √(XᵀDX)_ii stay, those that move the training scores most, and are solved for again while
        all others are zero. The model is then sparse in memory, in its file and when it scores. `"auto"` takes the
        fewest of 1/80, 1/40, 1/20 and 1/10 of all weights that lose at most 0.5 % of the dense model's validation
        score, and stays dense where none does; without validation it takes 1/20, a tenth of the bytes. A model
        stays dense, too, where `keep` is half of the items or more, because that is smaller.

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
    >>> loca.EASE(l2=1, keep=1).fit(rows).weights_.nnz
    5
    """

    l2: float = positive(100.0)
    denoising: float = share_below_1(0.0)
    keep: int | Literal["auto"] | None = param(
        None,
        "a whole number ≥ 1, 'auto' or none",
        lambda value: value in (None, "auto") or (type(value) is int and value >= 1),
    )
    weights_: Any = (
        learned_weights()
    )  # (items, items), float32: an array, or a csr_array where few stay
    # What "auto" chose; None keeps all.
    keep_: int | None = learned_fact(
        "a whole number ≥ 1", lambda value: type(value) is int and value >= 1, optional=True
    )

    @property
    def is_linear(self) -> bool:
        """Whether it has dense item-to-item weights in closed form: where all weights stay."""
        return self.keep is None

    def selected(self) -> Self:
        """Make an unfitted copy that keeps as many weights as were chosen on validation.

        Returns
        -------
        Self
            The copy.
        """
        return clone(self, keep=self.keep_) if self.keep == "auto" else super().selected()

    def _fit(self, data: TrainingData) -> None:
        """Solve for all weights; where few stay, find the largest, and solve for these alone."""
        self.weights_ = self._solve(data)
        items, held_out, least_score = data.matrix.shape[1], data.validation, -math.inf
        if self.keep == "auto":
            shares = (_USUAL_SHARE,) if held_out is None else _SHARES
            keeps = sorted({_share_of(items, share) for share in shares} - {0})
            if held_out is not None:
                least_score = (1 - _LOSS) * mean_value(self.score, held_out, data.metric)
        else:
            keeps = [] if self.keep is None or self.keep >= items // 2 else [self.keep]
        if not keeps:
            return
        # The dense weights make room for the equations.
        squares = squared_columns(data.matrix, data.user_weights)
        largest = find_largest(self.weights_, np.sqrt(squares), keeps[-1] * items)
        self.weights_ = None
        plan_memory(f"EASE for {items:,} items, once more", 4 * items**2, "filter rare items")
        gram = weighted_gram(data.matrix, data.user_weights, np.float32)
        ridges = self.l2 + self.denoising / (1 - self.denoising) * squares
        for keep in keeps:
            self.weights_ = solve_sparse(gram, ridges, largest[: keep * items], self.l2)
            if (
                held_out is None
                or self.keep != "auto"
                or mean_value(self.score, held_out, data.metric) >= least_score
            ):
                self.keep_ = keep
                say(f"EASE: {keep:,} of {items:,} weights per item stay")
                return
        del gram
        lost = f"lose more than {_LOSS:.1%} {data.metric.label}"
        say(f"EASE: {keeps[-1]:,} of {items:,} weights per item {lost}; all stay")
        self.weights_ = self._solve(data)

    def _solve(self, data: TrainingData) -> Scores:
        """All weights: on a GPU, or where there are fewer users than items, by the smaller system; else the items'."""
        matrix, weights = data.matrix, data.user_weights
        users, items = int(((weights > 0) & (np.diff(matrix.indptr) > 0)).sum()), matrix.shape[1]
        wanted = choose_device(data.device)
        device, needed = plan_solving(users, items, wanted, free_bytes(wanted))
        if device.type == "cuda" or users < items:
            in_main_memory = needed if device.type == "cpu" else 4 * items**2
            plan_memory(f"EASE for {items:,} items", in_main_memory, "filter rare items")
            system = ease_solver.EaseSystem.of(matrix, weights, self.l2, self.denoising)
            return next(ease_solver.solve_systems([system], device)).weights().cpu().numpy()
        solution = solve_in_place(matrix, weights, self, np.float32)
        if solution is None:
            say("EASE: 32 bits do not hold these equations; once more in 64 bits")
            solution = solve_in_place(matrix, weights, self, np.float64)
        if solution is None:
            raise ease_solver.no_solution(self.l2)
        return solution

    def memory_bytes(self, data: DataSize) -> MemoryUse:
        """The equations, on the CPU where the device has too little memory; the weights lie in main memory.

        Where few weights stay, their places and sizes are found beside all weights.
        """
        wanted = choose_device(data.device)
        solving = plan_solving(data.users, data.items, wanted, free_bytes(wanted))
        dense = ease_solver.dense_weights_memory(data, *solving)
        keep = _share_of(data.items, _SHARES[-1]) if self.keep == "auto" else self.keep
        if keep is None or keep >= data.items // 2:
            return dense
        choosing = replace(dense, main=dense.main + _BYTES_TO_CHOOSE * keep * data.items)
        stored = sparse_weight_bytes(data.items, keep * data.items)
        return (
            choosing if self.keep == "auto" else replace(choosing, main_after=stored, folder=stored)
        )

    def solve_each(
        self,
        matrix: csr_array,
        user_weights: Sequence[UserWeights],
        device: torch.device,
        moments: csr_array | None,
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
            systems = [
                ease_solver.EaseSystem.of(matrix, weights, self.l2, self.denoising)
                for weights in user_weights
            ]
            for solution in ease_solver.solve_systems(systems, device):
                yield solution.weight_rows

    def bytes_to_solve(self, size: DataSize, device: torch.device) -> ease_solver.SolvingBytes:
        """Estimate what `solve_each` takes on a device.

        Every system has its square and its factor; the users' systems share the half product.

        Parameters
        ----------
        size : DataSize
            Users and items of the training data.
        device : torch.device
            Where the equations are solved.

        Returns
        -------
        SolvingBytes
        """
        equations = min(size.users, size.items)
        return ease_solver.SolvingBytes(
            shared=4 * size.users * size.items if size.users < size.items else 0,
            each=8 * equations**2,
            at_once=_MOST_AT_ONCE if equations <= _LARGEST_BATCHED_SYSTEM else 1,
        )


def plan_solving(
    users: int, items: int, device: torch.device, free: int
) -> tuple[torch.device, int]:
    """Where the equations are solved, the CPU where the device has too little memory, and what that takes there."""
    size, half = min(users, items), items * users if users < items else 0
    needed = 4 * (
        2 * size**2 + items**2 + half + 2 * _BLOCK_ITEMS * items
    )  # square, factor, weights, half product
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
    plan_memory(
        f"EASE for {items:,} items", items**2 * np.dtype(kind).itemsize, "filter rare items"
    )
    square = weighted_gram(matrix, weights, kind)
    ridges = model.l2 + model.denoising / (1 - model.denoising) * square.diagonal()
    square[np.diag_indices_from(square)] += ridges
    diagonal = torch.from_numpy(square.diagonal().copy())
    factor, invert = (
        (lapack.spotrf, lapack.strtri) if kind is np.float32 else (lapack.dpotrf, lapack.dtrtri)
    )
    # LAPACK wants columns; the transpose of a symmetric row-major array is that, without a copy.
    triangle, failed = factor(square.T, lower=1, clean=1, overwrite_a=1)
    if not failed:
        triangle, failed = invert(triangle, lower=1, overwrite_c=1)
    if failed:
        return None
    with float32_products():
        inverse = ease_solver.square_of_inverse(torch.from_numpy(triangle))
    if (
        ease_solver.inverse_error(inverse, diagonal, torch.from_numpy(ridges), max(matrix.shape))
        > LARGEST_ERROR
    ):
        return None
    square = triangle.T  # symmetric, and row-major again
    square /= -square.diagonal()  # column j is divided by −P_jj
    np.fill_diagonal(square, 0)
    return np.asarray(square, dtype=np.float32)


def _share_of(items: int, share: float) -> int:
    """How many weights per item that share is, less half a weight: what the start of a row takes in a file."""
    return max(0, int(share * items - 0.5))


def squared_columns(matrix: csr_array, weights: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """The diagonal of XᵀDX, (items,)."""
    entries = np.square(matrix.data, dtype=np.float64) * np.repeat(weights, np.diff(matrix.indptr))
    return np.bincount(matrix.indices, weights=entries, minlength=matrix.shape[1]).astype(
        np.float64
    )


def find_largest(
    dense: Scores, factors: npt.NDArray[np.float64], count: int
) -> npt.NDArray[np.int64]:
    """The flat places, largest first, of the `count` entries with the largest |entry| · factor of its row; no zeros.

    The array is read in blocks of rows, so that no second one of its size exists.
    """
    rows = max(1, _NUMBERS_AT_ONCE // dense.shape[1])
    found: list[tuple[npt.NDArray[np.int64], Scores]] = []  # places and sizes
    least = np.float32(0)
    for start in range(0, len(dense), rows):
        sizes = np.abs(dense[start : start + rows]) * factors[start : start + rows, None].astype(
            np.float32
        )
        places = np.flatnonzero(sizes > least)
        found.append((places + start * dense.shape[1], sizes.ravel()[places]))
        if sum(len(one) for one, _ in found) > 2 * count or start + rows >= len(dense):
            places, sizes = (np.concatenate(parts) for parts in zip(*found, strict=True))
            if len(sizes) > count:
                chosen = np.argpartition(-sizes, count - 1)[:count]
                places, sizes = places[chosen], sizes[chosen]
                least = sizes.min()
            found = [(places, sizes)]
    return places[np.argsort(-sizes, kind="stable")]


def solve_sparse(
    gram: Square, ridges: npt.NDArray[np.float64], places: npt.NDArray[np.int64], l2: float
) -> csr_array:
    """The weights that minimise EASE's loss where only those at the flat places may differ from zero.

    Each target item has its own small system, (G_SS + diag(ridges_S)) · b = G_Sj, over its items S.
    """
    from scipy.linalg import lapack

    count = len(gram)
    sources, targets = np.divmod(places, count)
    order = np.lexsort((sources, targets))
    sources, starts = (
        sources[order],
        np.concatenate([[0], np.cumsum(np.bincount(targets, minlength=count))]),
    )
    weights = np.empty(len(sources), np.float32)
    with bar("EASE: sparse weights, items", count) as progress:
        for target in range(count):
            own = slice(starts[target], starts[target + 1])
            items = sources[own]
            if len(items):
                system = gram[np.ix_(items, items)].astype(np.float64)
                system[np.diag_indices_from(system)] += ridges[items]
                _, solved, failed = lapack.dposv(
                    system, gram[items, target].astype(np.float64), overwrite_a=1
                )
                if failed:
                    raise ease_solver.no_solution(l2)
                weights[own] = solved
            progress.advance()
    kind = (
        np.int32 if len(weights) < 2**31 else np.int64
    )  # one type for both, or scipy takes the wider
    by_target = csr_array(
        (weights, sources.astype(kind), starts.astype(kind)), shape=(count, count)
    )
    return csr_array(by_target.T.tocsr())


def weighted_gram(matrix: csr_array, weights: npt.NDArray[np.float32], kind: type) -> Square:
    """XᵀDX as a dense array, filled in blocks of items so that no second array of that size exists."""
    support = np.flatnonzero(weights)
    rows = (matrix if len(support) == matrix.shape[0] else matrix[support]).astype(kind)
    weighted = (
        csr_array(rows.multiply(weights[support].astype(kind)[:, None]))
        if (weights != 1).any()
        else rows
    )
    columns, item_count = weighted.T.tocsr(), matrix.shape[1]  # (items, users)
    gram: Square = np.zeros((item_count, item_count), dtype=kind)
    with bar("Gram matrix, blocks of items", -(-item_count // _BLOCK_ITEMS)) as progress:
        for start in range(0, item_count, _BLOCK_ITEMS):
            block = slice(start, start + _BLOCK_ITEMS)
            gram[block] = (columns[block] @ rows).toarray()
            progress.advance()
    return gram
