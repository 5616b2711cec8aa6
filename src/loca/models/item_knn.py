"""ItemKNN (Sarwar et al. 2001; Deshpande and Karypis 2004): each item is known by the items most often held with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array, vstack

from loca.errors import DataError
from loca.memory import DataSize, MemoryUse, plan_memory
from loca.models.params import not_negative, whole
from loca.models.recommender import (
    ItemToItemModel,
    Scores,
    TrainingData,
    UserWeights,
    sparse_weight_bytes,
)
from loca.persistence.learned import learned_sparse
from loca.progress import bar

# Pairs of items at once: so many similarities are found, sorted and thinned out before the next.
_BLOCK_PAIRS = 4_000_000
# Of one pair: value and item as found, then sorted, and the keys and order that sort them.
_BYTES_PER_PAIR = 64


@dataclass(kw_only=True, eq=False, repr=False)
class ItemKNN(ItemToItemModel):
    """Score item j by Σ_i history_i · s_ij over the `neighbours` items i most similar to j.

    s_ij = (XᵀDX)_ij / (|x_i||x_j| + shrinkage), the cosine of the items' columns, where D holds the user weights and
    |x_i|² = (XᵀDX)_ii. Of equally similar items the first ones are taken.

    Parameters
    ----------
    neighbours : int, default 100
        Similar items that count for an item.
    shrinkage : float, default 20.0
        Lowers similarities that rest on few users, from 0 on.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> rows = csr_array([[1, 1, 1, 0, 0], [1, 1, 0, 0, 0], [0, 0, 0, 1, 1], [0, 0, 1, 1, 1]])
    >>> model = loca.ItemKNN(neighbours=2, shrinkage=1.0).fit(rows)
    >>> items, scores = loca.recommend(model, csr_array([[1, 0, 0, 0, 0], [0, 0, 0, 1, 0]]), n=1)
    >>> items.tolist()
    [[1], [4]]
    >>> scores.round(2)
    array([[0.67],
           [0.67]], dtype=float32)
    """

    neighbours: int = whole(100)
    shrinkage: float = not_negative(20.0)
    weights_: csr_array = learned_sparse()

    def _fit(self, data: TrainingData) -> None:
        self.weights_ = nearest_items(data.matrix, data.user_weights, self)

    def memory_bytes(self, data: DataSize) -> MemoryUse:
        """The neighbours twice while blocks of them are joined, and a block of pairs that is sorted."""
        weights = sparse_weight_bytes(
            data.items, min(data.item_pairs, self.neighbours * data.items)
        )
        main = 2 * weights + _BYTES_PER_PAIR * min(_BLOCK_PAIRS, data.item_pairs) + data.row_bytes
        return MemoryUse(
            main=main, main_after=weights, folder=weights, advice="take fewer neighbours"
        )

    def similarities_of_weights(self, outgoing: Scores, incoming: Callable[[], Scores]) -> Scores:
        """Take s_ij, which stands with j where i is among its neighbours, or with i where j is; 0 where with neither.

        Parameters
        ----------
        outgoing : ndarray of float32
            Given items × all items: s_ij where i is a neighbour of j.
        incoming : callable
            Gives s_ij where j is a neighbour of i, in the same shape.

        Returns
        -------
        ndarray of float32
            Given items × all items.
        """
        return np.minimum(np.maximum(outgoing, incoming()), 1)  # rounding can push a cosine past 1


def nearest_items(
    matrix: csr_array, user_weights: UserWeights, model: ItemKNN, block_pairs: int = _BLOCK_PAIRS
) -> csr_array:
    """Similarities, items × items: column j holds those of the `neighbours` items most similar to j.

    They are found for blocks of items with at most `block_pairs` pairs each, or of one item.
    """
    if (matrix.data < 0).any():
        raise DataError("item-to-item counts need interactions whose values are not below 0")
    support, items = np.flatnonzero(user_weights), matrix.shape[1]
    rows = csr_array(matrix[support]).astype(np.float64)
    weighted = csr_array(rows.multiply(user_weights[support].astype(np.float64)[:, None]))
    columns = weighted.T.tocsr()  # (items, users)
    norms = np.sqrt(np.asarray(rows.multiply(weighted).sum(axis=0)).ravel())
    similar = (
        2 * 12 * items * min(model.neighbours, items)
    )  # once by target, once by item of the history
    working = _BYTES_PER_PAIR * min(block_pairs, items**2)
    plan_memory(f"ItemKNN for {items:,} items", similar + working, "take fewer neighbours")
    # A pair counts once for each common user.
    ends = np.cumsum(
        np.minimum(columns.astype(bool).astype(np.int64) @ np.diff(rows.indptr), items)
    )
    found: list[csr_array] = []
    start = 0
    with bar("ItemKNN: items", items) as progress:
        while start < items:
            before = ends[start - 1] if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, before + block_pairs, side="right")))
            counts = csr_array(columns[start:stop] @ rows)
            counts.sort_indices()
            targets = np.repeat(np.arange(start, stop), np.diff(counts.indptr))
            lengths = norms[targets] * norms[counts.indices] + model.shrinkage
            # Stored zeros of X have no length.
            cosines = np.divide(
                counts.data, lengths, out=np.zeros_like(counts.data), where=lengths > 0
            )
            cosines[targets == counts.indices] = 0
            cosines = cosines.astype(np.float32)
            # The bits of floats from 0 up rise with them: one whole number sorts by target, then from the largest
            # cosine down, the first of equal ones first.
            order = np.argsort((targets << 32) - cosines.view(np.int32), kind="stable")
            place = np.arange(len(order)) - np.repeat(counts.indptr[:-1], np.diff(counts.indptr))
            largest = np.sort(order[(place < model.neighbours) & (cosines[order] > 0)])
            lengths = np.bincount(targets[largest] - start, minlength=stop - start)
            parts = (
                cosines[largest],
                counts.indices[largest],
                np.concatenate([[0], np.cumsum(lengths)]),
            )
            found.append(csr_array(parts, shape=counts.shape))
            progress.advance(stop - start)
            start = stop
    similarities = csr_array(csr_array(vstack(found, format="csr")).T.tocsr())
    similarities.sort_indices()
    return similarities
