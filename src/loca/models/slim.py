"""SLIM (Ning and Karypis 2011): a sparse linear item-to-item model, one non-negative elastic net per item."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csc_array, csr_array, vstack
from sklearn import config_context
from sklearn.linear_model import enet_path

from loca.errors import DataError
from loca.memory import DataSize, MemoryUse, plan_memory
from loca.models.devices import choose_device, device_param
from loca.models.elastic_net import BLOCK_NUMBERS, Penalties, solve_elastic_nets
from loca.models.recommender import (
    Recommender,
    Scores,
    TrainingData,
    fitted,
    learned_sparse,
    not_negative,
    param,
    whole,
)
from loca.models.sparse_weights import score_sparsely, sparse_weight_bytes, weigh_users
from loca.progress import bar, say

Numbers = npt.NDArray[np.float64]
# Items whose linear terms are made at once.
_BLOCK_ITEMS = 512
# Of one stored number of the Gram matrix: value and item, while its product is made and after.
_BYTES_PER_PAIR = 32
# Scikit-learn measures by the duality gap; where that stopped too early by ours, its tolerance falls by this factor.
_STRICTER = 1e-3
_MOST_TRIES = 4


@dataclass(kw_only=True, eq=False, repr=False)
class SLIM(Recommender):
    """Score items by a sparse linear item-to-item model: scores = history · W, W ≥ 0 with a zero diagonal.

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
    device : str, default "auto"
        Where it computes: `"cpu"`, `"cuda"`, or `"auto"`, a GPU where there is one.

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
    tolerance: float = param(1e-4, "a number from 1e-6 to below 1", lambda value: 1e-6 <= value < 1)
    iterations: int = whole(1000)
    device: str = device_param()
    weights_: csr_array | None = learned_sparse()

    def _fit(self, data: TrainingData) -> None:
        rows, weights = data.weighted_rows()
        penalties = Penalties(self.l1, self.l2, self.tolerance, self.iterations)
        regressions = Regressions(rows.astype(np.float64), weights)
        self.weights_ = solve_regressions(regressions, penalties, choose_device(self.device))

    def memory_bytes(self, data: DataSize) -> MemoryUse:
        """The Gram matrix, and every pair of items as a candidate for a weight, of which few will have one."""
        device, pairs = choose_device(self.device), data.item_pairs
        weights = sparse_weight_bytes(data.items, pairs)
        working = 80 * pairs + 4 * data.items**2 + 20 * min(BLOCK_NUMBERS[device.type], data.items**3)
        return MemoryUse(
            main=24 * pairs + 2 * weights + working + data.row_bytes,
            device=working if device.type == "cuda" else 0,
            main_after=weights,
            folder=weights,
            device_name=str(device),
            advice="filter rare items or raise l1",
        )

    def score(self, histories: csr_array) -> Scores:
        """Multiply histories by the item-to-item weights.

        Parameters
        ----------
        histories : csr_array
            Users × items, each entry with its weight; their users need not be known.

        Returns
        -------
        ndarray of float32
            Users × items.
        """
        return score_sparsely(histories, fitted(self.weights_, self))


@dataclass(frozen=True, eq=False)
class Regressions:
    """Column j of the features A, users × items, is explained by those of all other items; D weighs the users."""

    features: csr_array
    user_weights: npt.NDArray[Any]

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Ranges of items, one after the other."""
        items = self.features.shape[1]
        return ((start, min(start + _BLOCK_ITEMS, items)) for start in range(0, items, _BLOCK_ITEMS))

    def have_common_users(self) -> bool:
        """Whether an average pair of items has at least one common user."""
        lengths = np.diff(self.features.indptr).astype(np.int64)
        return int((lengths**2).sum()) >= self.features.shape[1] ** 2


def solve_regressions(regressions: Regressions, penalties: Penalties, device: torch.device) -> csr_array:
    """Weights, items × items, whose column j minimises ½‖√D(Aw − a_j)‖² + l1 Σw + l2/2 Σw² with w ≥ 0 and w_j = 0.

    As no feature is below 0, only items i with b_i = (AᵀDa_j)_i > l1 can have a weight: the candidates. A column is
    done when no optimality condition of it is violated by more than `tolerance` · max_i b_i: |gradient_i| where
    w_i > 0, and how far the gradient lies below 0 elsewhere. Where most pairs of items have common users the Gram
    matrix is the shorter way, many users in few numbers; where few have, the columns themselves are. A GPU takes
    the first.
    """
    if (regressions.features.data < 0).any():
        raise DataError("elastic nets without negative weights need interactions whose values are not below 0")
    if device.type == "cuda" or regressions.have_common_users():
        gram = sparse_gram(regressions.features, regressions.user_weights)
        weighted = csr_array(regressions.features.multiply(regressions.user_weights.astype(np.float64)[:, None]))
        columns = csc_array(regressions.features.tocsc())
        linear = [csr_array(columns[:, start:stop].T.tocsr() @ weighted) for start, stop in regressions.blocks()]
        return solve_elastic_nets(gram, csr_array(vstack(linear, format="csr")), penalties, device)
    return _descend_on_columns(regressions, penalties)


def sparse_gram(matrix: csr_array, user_weights: npt.NDArray[Any]) -> csr_array:
    """XᵀDX in 64 bits, items × items, as sparse as the data; refused where even that does not fit into memory."""
    lengths = np.diff(matrix.indptr)[user_weights > 0].astype(np.int64)
    most_pairs = min(int((lengths**2).sum()), matrix.shape[1] ** 2)
    plan_memory(f"pairs of {matrix.shape[1]:,} items", _BYTES_PER_PAIR * most_pairs, "filter rare items")
    rows, weighted = weigh_users(matrix, user_weights)
    gram = csr_array(weighted.T.tocsr() @ rows)
    gram.sort_indices()
    return gram


def _descend_on_columns(regressions: Regressions, penalties: Penalties) -> csr_array:
    """Each item's candidates alone by scikit-learn's coordinate descent over sparse columns."""
    roots = np.sqrt(regressions.user_weights.astype(np.float64))[:, None]
    rows = csr_array(regressions.features.multiply(roots))
    columns = csc_array(rows.tocsc())
    items, unsolved = columns.shape[1], 0
    found: list[csr_array] = []  # (items of a block, items) each
    with (
        bar("elastic nets: items", items) as progress,
        warnings.catch_warnings(),
        config_context(skip_parameter_validation=True),  # they are ours, and the same for every item
    ):
        # Whether a column is done is measured here.
        warnings.simplefilter("ignore")
        for start, stop in regressions.blocks():
            responses = csc_array(columns[:, start:stop])
            linear = csr_array(responses.T.tocsr() @ rows)
            linear.sort_indices()
            for place, target in enumerate(range(start, stop)):
                own = slice(linear.indptr[place], linear.indptr[place + 1])
                kept = (linear.data[own] > penalties.l1) & (linear.indices[own] != target)
                linear.data[own][~kept] = 0
                candidates = _Candidates.of(columns, linear.indices[own][kept])
                weights, is_solved = _solve_one(candidates, _column_of(responses, place), penalties)
                linear.data[own][kept] = weights
                unsolved += not is_solved
            linear.eliminate_zeros()
            found.append(linear.astype(np.float32))
            progress.advance(stop - start)
    if unsolved:
        say(f"elastic nets: {unsolved:,} of {items:,} columns are not within tolerance; allow more sweeps")
    solution = csr_array(csr_array(vstack(found, format="csr")).T.tocsr())
    solution.sort_indices()
    return solution


@dataclass(frozen=True, eq=False)
class _Candidates:
    """Some columns of a sparse matrix as bare arrays: thousands of small matrices cost more to make than to solve."""

    values: Numbers  # (stored,)
    users: npt.NDArray[np.int32]  # (stored,)
    starts: npt.NDArray[np.int32]  # (columns + 1,)

    @classmethod
    def of(cls, columns: csc_array, chosen: npt.NDArray[Any]) -> _Candidates:
        """The chosen columns; each stores something."""
        first = columns.indptr[chosen]
        starts = np.concatenate([[0], (columns.indptr[chosen + 1] - first).cumsum()])
        places = np.arange(starts[-1]) + np.repeat(first - starts[:-1], np.diff(starts))
        return cls(columns.data[places], columns.indices[places].astype(np.int32), starts.astype(np.int32))

    def of_their_users(self, response: Numbers) -> tuple[_Candidates, Numbers]:
        """The same over those users alone who have a candidate: the others add the same to every solution."""
        users, places = np.unique(self.users, return_inverse=True)
        return replace(self, users=places.astype(np.int32)), response[users]

    def times(self, weights: Numbers, user_count: int) -> Numbers:
        """The columns times weights, one number a user."""
        parts = self.values * np.repeat(weights, np.diff(self.starts))
        return np.bincount(self.users, parts, user_count).astype(np.float64)

    def products_with(self, response: Numbers) -> Numbers:
        """Each column times the response."""
        return np.asarray(np.add.reduceat(self.values * response[self.users], self.starts[:-1]))


def _column_of(matrix: csc_array, place: int) -> Numbers:
    own = slice(matrix.indptr[place], matrix.indptr[place + 1])
    column = np.zeros(matrix.shape[0])
    column[matrix.indices[own]] = matrix.data[own]
    return column


def _solve_one(candidates: _Candidates, response: Numbers, penalties: Penalties) -> tuple[Numbers, bool]:
    """The weights of the candidates, and whether they are within the tolerance."""
    weights = np.zeros(len(candidates.starts) - 1)
    if not len(weights):
        return weights, True
    if len(candidates.values) < len(response) // 4:
        candidates, response = candidates.of_their_users(response)
    # Scikit-learn reads places of 32 bits.
    parts = (candidates.values, candidates.users, candidates.starts)
    features = csc_array(parts, shape=(len(response), len(weights)))
    goal = penalties.tolerance * float(candidates.products_with(response).max())
    for attempt in range(_MOST_TRIES):
        weights = _follow_path(features, response, weights, penalties, penalties.tolerance * _STRICTER**attempt)
        left = response - candidates.times(weights, len(response))
        slopes = candidates.products_with(left) - penalties.l1 - penalties.l2 * weights
        if float(np.where(weights > 0, np.abs(slopes), slopes).max()) <= goal:
            return weights, True
    return weights, False


def _follow_path(
    features: csc_array, response: Numbers, begun: Numbers, penalties: Penalties, tolerance: float
) -> Numbers:
    """Scikit-learn's weights for one response, from weights `begun`; it divides the squared error by the users."""
    both = penalties.l1 + penalties.l2
    _, weights, _ = enet_path(
        features,
        response,
        alphas=[both / features.shape[0]],
        l1_ratio=penalties.l1 / both if both > 0 else 1.0,
        precompute=False,
        positive=True,
        coef_init=begun,
        tol=tolerance,
        max_iter=penalties.iterations,
        check_input=False,
    )
    return np.asarray(weights[:, 0], dtype=np.float64)
