"""Sparse item-to-item weights: scoring with them, keeping them in a state, and checking them on the way back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.errors import DataError, ModelFileError
from loca.models.recommender import Scores, UserWeights, check_histories

Arrays = Mapping[str, npt.NDArray[Any]]


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


def weights_as_arrays(weights: csr_array) -> dict[str, npt.NDArray[Any]]:
    """The three arrays of a sparse matrix under their names."""
    return {"weights_data": weights.data, "weights_indices": weights.indices, "weights_indptr": weights.indptr}


def weights_from_arrays(arrays: Arrays, model: str) -> csr_array:
    """The items × items matrix again; arrays that are none are refused, for files come from strangers."""
    wanted = ["weights_data", "weights_indices", "weights_indptr"]
    if any(one not in arrays for one in wanted):
        raise ModelFileError(f"{model}: expected the arrays {', '.join(wanted)}, found {', '.join(sorted(arrays))}")
    data, indices, indptr = (arrays[one] for one in wanted)
    if data.dtype != np.float32 or indices.dtype.kind != "i" or indptr.dtype.kind != "i":
        raise ModelFileError(
            f"{model}: expected 32-bit weights with whole-numbered places, found other kinds of numbers"
        )
    if data.ndim != 1 or data.shape != indices.shape or indptr.ndim != 1 or len(indptr) < 2:
        raise ModelFileError(f"{model}: the arrays of weights do not fit each other")
    if indptr[0] != 0 or indptr[-1] != len(data) or (np.diff(indptr) < 0).any():
        raise ModelFileError(f"{model}: the rows of weights do not rise from 0 to {len(data)}")
    items = len(indptr) - 1
    if len(data) and (indices.min() < 0 or indices.max() >= items):
        raise ModelFileError(f"{model}: weights name an item outside 0 … {items - 1}")
    if not np.isfinite(data).all():
        raise ModelFileError(f"{model}: weights hold a number that is not finite")
    return csr_array((data, indices, indptr), shape=(items, items))
