"""Sparse item-to-item weights: scoring with them, keeping them in a state, and checking them on the way back."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from loca.errors import DataError
from loca.models.recommender import Scores, UserWeights, check_histories


def score_sparsely(histories: csr_array, weights: csr_array) -> Scores:
    """Weighted histories times items × items weights, (users, items)."""
    rows = check_histories(histories, weights.shape[0])
    return np.asarray((rows @ weights).toarray(), dtype=np.float32)


def weigh_users(matrix: csr_array, user_weights: UserWeights) -> tuple[csr_array, csr_array]:
    """X and DX in 64 bits for the users with a weight; values below 0, which no count can be, are refused."""
    if (matrix.data < 0).any():
        raise DataError("item-to-item counts need interactions whose values are not below 0")
    support = np.flatnonzero(user_weights)
    rows = (matrix if len(support) == matrix.shape[0] else matrix[support]).astype(np.float64)
    return rows, csr_array(rows.multiply(user_weights[support].astype(np.float64)[:, None]))


def sparse_weight_bytes(items: int, weights: int) -> int:
    """Value and item of each weight, and where the weights of an item begin, in memory and in a file."""
    return 12 * weights + 8 * (items + 1)
