"""SLIM (Ning and Karypis 2011): a sparse linear item-to-item model, one non-negative elastic net per item."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csc_array, csr_array

from loca.deferred import torch
from loca.errors import DataError
from loca.memory import DataSize, MemoryUse, available_bytes, plan_memory
from loca.models.ease import weighted_gram
from loca.models.params import not_negative, number, whole
from loca.models.recommender import ItemToItemModel, TrainingData, sparse_weight_bytes
from loca.persistence.learned import learned_sparse
from loca.progress import bar
from loca.remarks import remark

Numbers = npt.NDArray[np.float64]
_BLOCK_ITEMS = 512  # items whose linear terms are made, and whose weights are found, at once
# Scikit-learn measures by the duality gap; where that stopped too early by ours, its tolerance falls by this factor.
_STRICTER = 1e-3
_MOST_TRIES = 4
_WORKING_SET = 256  # candidates that a working set begins with; twice as many may be added in each further round
_MOST_ROUNDS = 20


@dataclass(kw_only=True, eq=False, repr=False)
class SLIM(ItemToItemModel):
    """Score items by a sparse linear item-to-item model: scores = history · W, W ≥ 0 with a zero diagonal.

    The fit takes the CPU on any device, with as many threads as torch has.

    Column j of W minimises ½ Σ_u d_u (x_u · w − x_uj)² + l1 Σ w + l2/2 Σ w² over w, where d_u is the weight of user u.
    A column is done when no optimality condition of it is violated by more than `tolerance` times the largest of
    (XᵀDX)_ij, i ≠ j, or after `iterations` sweeps.

    Parameters
    ----------
    l1 : float, default 0.5
        Price of a weight; the smaller, the more weights and the longer the fit.
    l2 : float, default 50.0
        Price of the square of a weight.
    tolerance : float, default 1e-4
        How exactly a column is solved, from 1e-6 to below 1.
    iterations : int, default 1000
        The most sweeps over the weights of a column.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> rows = csr_array([[1, 1, 1, 0, 0], [1, 1, 0, 0, 0], [0, 0, 0, 1, 1], [0, 0, 1, 1, 1]])
    >>> model = loca.SLIM(l1=0.1, l2=1).fit(rows)
    >>> model.weights_.shape
    (5, 5)
    >>> items, scores = loca.recommend(model, csr_array([[1, 0, 0, 0, 0], [0, 0, 0, 1, 0]]), n=1)
    >>> items.tolist()
    [[1], [4]]
    """

    l1: float = not_negative(0.5)
    l2: float = not_negative(50.0)
    tolerance: float = number(
        1e-4, "a number from 1e-6 to below 1", lambda value: 1e-6 <= value < 1
    )
    iterations: int = whole(1000)
    weights_: csr_array = learned_sparse()

    def _fit(self, data: TrainingData) -> None:
        rows, user_weights = data.weighted_rows()
        if (rows.data < 0).any():
            raise DataError(
                "elastic nets without negative weights need interactions whose values are not below 0"
            )
        roots = np.sqrt(user_weights.astype(np.float64))[:, None]
        self.weights_ = solve_elastic_nets(csr_array(rows.astype(np.float64).multiply(roots)), self)

    def memory_bytes(self, data: DataSize) -> MemoryUse:
        """The weights twice, of which few pairs have one; the Gram matrix where all pairs of items may have users."""
        weights, blocks = (
            sparse_weight_bytes(data.items, data.item_pairs),
            24 * min(_BLOCK_ITEMS, data.items),
        )
        gram = 8 * data.items**2 if data.item_pairs == data.items**2 else 0
        main = gram + 2 * weights + blocks * data.items + data.row_bytes
        return MemoryUse(
            main=main, main_after=weights, folder=weights, advice="filter rare items or raise l1"
        )


def solve_elastic_nets(rows: csr_array, model: SLIM, by_gram: bool | None = None) -> csr_array:
    """Weights, items × items, whose column j minimises ½‖Aw − a_j‖² + l1 Σw + l2/2 Σw² with w ≥ 0 and w_j = 0.

    `rows` is A, users × items, without numbers below 0. So only items i with b_i = (Aᵀa_j)_i > l1 can have a weight:
    the candidates. A column is done when no optimality condition of it is violated by more than `tolerance` · max_i
    b_i: |gradient_i| where w_i > 0, and how far the gradient lies below 0 elsewhere. Where most pairs of items have
    common users the Gram matrix is the shorter way, many users in few numbers; where few have, the columns themselves
    are. `by_gram` chooses, None by that and by the free memory.
    """
    items = rows.shape[1]
    if by_gram is None:
        common = int((np.diff(rows.indptr).astype(np.int64) ** 2).sum()) >= items**2
        by_gram = common and 2 * 8 * items**2 < available_bytes()
    plan_memory(
        f"SLIM for {items:,} items", 8 * items**2 if by_gram else 24 * rows.nnz, "filter rare items"
    )
    solved: list[Solution] = []
    with (
        bar("SLIM: items", items) as progress,
        warnings.catch_warnings(),
        ThreadPoolExecutor(torch.get_num_threads()) as pool,
    ):
        warnings.simplefilter("ignore")  # whether a column is done is measured here
        # Descent on a Gram matrix runs outside of Python's lock; that on columns is too short for threads.
        solutions = _solve_on_columns(rows, model)
        if by_gram:
            gram = weighted_gram(
                rows.astype(np.float64), np.ones(rows.shape[0], np.float32), np.float64
            )
            solutions = pool.map(partial(_solve_on_gram, gram, model), range(items))
        for solution in solutions:
            solved.append(solution)
            progress.advance()
    unsolved = sum(not one.is_solved for one in solved)
    if unsolved:
        text = (
            f"SLIM: {unsolved:,} of {items:,} columns are not within tolerance; allow more sweeps"
        )
        remark("training", text)
    starts = np.cumsum([0] + [len(one.items) for one in solved])
    parts = (
        np.concatenate([one.weights for one in solved]),
        np.concatenate([one.items for one in solved]),
        starts,
    )
    found = csr_array(csr_array(parts, shape=(items, items)).T.tocsr())
    found.sort_indices()
    return found


class Solution(NamedTuple):
    """The items with a weight in a column, these weights, and whether they are within tolerance."""

    items: npt.NDArray[np.int32]
    weights: npt.NDArray[np.float32]
    is_solved: bool


def _solve_on_gram(gram: Numbers, model: SLIM, target: int) -> Solution:
    """One column by descent on AᵀA: on a working set of candidates, which grows by those that violate a condition."""
    linear = gram[target].copy()
    linear[target] = -1.0  # holds the item's own weight at 0
    weights, slopes, is_solved = np.zeros(len(linear)), linear - model.l1, True
    goal, response = model.tolerance * max(linear.max(), 0.0), np.sqrt(gram[target, target, None])
    for round_number in range(_MOST_ROUNDS):
        outside = np.flatnonzero((slopes > goal) & (weights == 0))
        if not len(outside) or not is_solved:
            break
        most = _WORKING_SET << round_number
        if len(outside) > most:
            outside = outside[np.argpartition(-slopes[outside], most)[:most]]
        working = np.union1d(np.flatnonzero(weights), outside)
        part = gram[np.ix_(working, working)]
        # Of the columns scikit-learn reads no more here than how many they are, and of the response its length.
        shape = np.zeros((1, len(working)), order="F")
        start, own = weights[working], linear[working]
        weights[working], is_solved = _descend(shape, response, own, part, start, goal, model)
        some = np.flatnonzero(weights)
        slopes = linear - model.l1 - weights[some] @ gram[some] - model.l2 * weights
    some = np.flatnonzero(weights)
    return Solution(some.astype(np.int32), weights[some].astype(np.float32), is_solved)


def _solve_on_columns(rows: csr_array, model: SLIM) -> Iterator[Solution]:
    """Each column by descent on those of its candidates."""
    columns = csc_array(rows.tocsc())
    for start in range(0, rows.shape[1], _BLOCK_ITEMS):
        responses = csc_array(columns[:, start : start + _BLOCK_ITEMS])
        all_linear = csr_array(responses.T.tocsr() @ rows)
        all_linear.sort_indices()
        for place in range(responses.shape[1]):
            own = slice(all_linear.indptr[place], all_linear.indptr[place + 1])
            is_candidate = (all_linear.data[own] > model.l1) & (
                all_linear.indices[own] != start + place
            )
            candidates, linear = (
                all_linear.indices[own][is_candidate],
                all_linear.data[own][is_candidate],
            )
            response = np.zeros(rows.shape[0])
            own = slice(responses.indptr[place], responses.indptr[place + 1])
            response[responses.indices[own]] = responses.data[own]
            if not len(candidates):
                yield Solution(candidates, np.zeros(0, np.float32), True)
                continue
            # Bare arrays: thousands of small matrices cost more to make than to solve.
            firsts = columns.indptr[candidates]
            starts = np.concatenate([[0], (columns.indptr[candidates + 1] - firsts).cumsum()])
            entries = np.arange(starts[-1]) + np.repeat(firsts - starts[:-1], np.diff(starts))
            values, users = columns.data[entries], columns.indices[entries]
            if (
                len(values) < len(response) // 4
            ):  # users without a candidate add the same to every solution
                some, users = np.unique(users, return_inverse=True)
                response = response[some]
            # Scikit-learn reads places of 32 bits.
            parts = (values, users.astype(np.int32), starts.astype(np.int32))
            features = csc_array(parts, shape=(len(response), len(candidates)))
            goal, none = model.tolerance * float(linear.max()), np.zeros(len(candidates))
            weights, is_solved = _descend(
                features, response, linear, partial(_products, parts), none, goal, model
            )
            some = np.flatnonzero(weights)
            yield Solution(candidates[some], weights[some].astype(np.float32), is_solved)


def _products(parts: tuple[Numbers, Any, Any], weights: Numbers) -> Numbers:
    """AᵀAw from the values, the users and the starts of the columns of A."""
    values, users, starts = parts
    sums = np.bincount(users, values * np.repeat(weights, np.diff(starts)))
    return np.asarray(np.add.reduceat(values * sums[users], starts[:-1]))


def _descend(
    features: Any,
    response: Numbers,
    linear: Numbers,
    gram: Any,
    weights: Numbers,
    goal: float,
    model: SLIM,
) -> tuple[Numbers, bool]:
    """Scikit-learn's weights for one response, from some on, and whether no condition is violated by more than `goal`.

    Tries end ever later. `linear` is b, and `gram` is AᵀA, or gives AᵀAw. Scikit-learn divides the squared error by the
    users.
    """
    from sklearn import config_context
    from sklearn.linear_model import enet_path

    is_array = isinstance(gram, np.ndarray)
    products: Callable[[Numbers], Numbers] = gram.__matmul__ if is_array else gram
    both = model.l1 + model.l2
    for attempt in range(_MOST_TRIES):
        with config_context(
            skip_parameter_validation=True
        ):  # they are ours, and the same for every item
            _, path, _ = enet_path(
                features,
                response,
                alphas=[both / features.shape[0]],
                l1_ratio=model.l1 / both if both > 0 else 1.0,
                precompute=gram if is_array else False,
                Xy=linear if is_array else None,
                positive=True,
                coef_init=weights,
                tol=model.tolerance * _STRICTER**attempt,
                max_iter=model.iterations,
                check_input=False,
            )
        weights = path[:, 0]
        slopes = linear - model.l1 - products(weights) - model.l2 * weights
        if float(np.where(weights > 0, np.abs(slopes), slopes).max()) <= goal:
            return weights, True
    return weights, False
