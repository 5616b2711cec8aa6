"""ItemKNN and SLIM on a sample of the items: how many weights there will be, and how long they take to find."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import csr_array

from loca.experiments.calibration import FitPace
from loca.experiments.stopwatch import least_seconds, some_rows, spread
from loca.models.item_knn import ItemKNN
from loca.models.recommender import clone
from loca.models.slim import SLIM
from loca.models.sparse_weights import score_sparsely
from loca.random_streams import stream

_TARGETS_COUNTED = 128
_ITEMS_SOLVED = 400
# Pairs of items of one history, so many in all histories together.
_PAIRS_COUNTED = 2e7
_USERS_ANSWERED = 256


@dataclass(frozen=True)
class SparseSize:
    """Pairs of items that some user has both of, those of them that may have a weight, and those that have one."""

    pairs: int
    candidates: int
    weights: int


@dataclass(frozen=True)
class SlimSample:
    """What SLIM would find and, where that was timed, how long it would take."""

    size: SparseSize
    pace: FitPace | None


def count_pairs(matrix: csr_array) -> int:
    """The pairs of items of all histories: each as often as there are users who have both."""
    return int((np.diff(matrix.indptr).astype(np.int64) ** 2).sum())


def size_of_item_knn(model: ItemKNN, matrix: csr_array) -> SparseSize:
    """What ItemKNN counts and keeps, from some of its targets."""
    counts, more = _count_some(matrix)
    others = np.maximum(np.diff(counts.indptr) - 1, 0)  # an item is no neighbour of its own
    kept = np.minimum(others, model.neighbours)
    return SparseSize(round(counts.nnz * more), round(others.sum() * more), round(kept.sum() * more))


def pace_of_item_knn(model: ItemKNN, matrix: csr_array, weights: int) -> FitPace:
    """The pace of `fit` with fewer items, times how many times more pairs there are."""
    pairs = count_pairs(matrix)
    share = min(1.0, math.sqrt(_PAIRS_COUNTED / max(pairs, 1)))
    part = _fewer_items(matrix, max(1, int(share * matrix.shape[1])))
    fit = least_seconds(lambda: clone(model).fit(part)) * pairs / max(count_pairs(part), 1)
    return FitPace(fit, _seconds_to_answer(matrix, weights))


def sample_slim(model: SLIM, matrix: csr_array, device: torch.device | None) -> SlimSample:
    """SLIM of some of the items with all their users, extrapolated from how it grew from half of these.

    An item finds more weights the more items there are to choose from, though not more in proportion; so with c times
    the items there are c to c² times the weights, and they take c to c² times as long. Timed where a device is given.
    """
    counts, more = _count_some(matrix)
    candidates = max(round(int((counts.data > model.l1).sum()) * more) - matrix.shape[1], 0)
    some = _fewer_items(matrix, _ITEMS_SOLVED)
    growth = matrix.shape[1] / some.shape[1]
    timed = device is not None
    weights, seconds = _fit_slim(model, some, device)
    if growth > 1:
        fewer, sooner = _fit_slim(model, _fewer_items(some, some.shape[1] // 2), device)
        seconds *= growth ** _power(seconds, sooner)
        weights = round(weights * growth ** _power(weights, fewer))
    size = SparseSize(round(counts.nnz * more), max(candidates, weights), weights)
    return SlimSample(size, FitPace(seconds, _seconds_to_answer(matrix, weights)) if timed else None)


def _fit_slim(model: SLIM, part: csr_array, device: torch.device | None) -> tuple[int, float]:
    """How many weights SLIM finds, and in how many seconds; 0 where no device is given."""
    here = clone(model, device="cpu" if device is None else str(device))
    seconds = 0.0
    if device is None:
        here.fit(part)
    else:
        seconds = least_seconds(lambda: here.fit(part))
    found = here.weights_
    return 0 if found is None else int(found.nnz), seconds


def _power(whole: float, half: float) -> float:
    """With which power of its size something grows that is `half` at half the size: from 1 to 2."""
    return min(max(math.log2(whole / half), 1.0), 2.0) if whole > 0 and half > 0 else 2.0


def _seconds_to_answer(matrix: csr_array, weights: int) -> float:
    """How long so many item-to-item weights take to answer all users once."""
    part, items = some_rows(matrix, _USERS_ANSWERED), matrix.shape[1]
    each = min(max(round(weights / items), 1), items)
    columns = stream(0, "weights to time").integers(0, items, items * each)
    made = csr_array((np.ones(items * each, np.float32), columns, np.arange(items + 1) * each), shape=(items, items))
    users = int((np.diff(matrix.indptr) > 0).sum())
    return least_seconds(lambda: score_sparsely(part, made)) * users / part.shape[0]


def _count_some(matrix: csr_array) -> tuple[csr_array, float]:
    """How many users have each of some items and each other one, and how many times more items anybody has."""
    used = np.unique(matrix.indices).astype(np.int64)
    some = spread(used, _TARGETS_COUNTED)
    return csr_array(matrix[:, some].T.tocsr() @ matrix), len(used) / max(len(some), 1)


def _fewer_items(matrix: csr_array, count: int) -> csr_array:
    """So many of the items, from all over the matrix, with all users; all where there are no more."""
    if count >= matrix.shape[1]:
        return matrix
    return csr_array(matrix[:, spread(np.arange(matrix.shape[1]), count)])
