"""Rows of CSR matrices: their sums, scaling, and copies with some of their entries."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.typing import FloatArray


def per_entry(rows: csr_array, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the value of its row for each stored entry."""
    return np.repeat(values, np.diff(rows.indptr))


def with_values(rows: csr_array, values: npt.NDArray[Any]) -> csr_array:
    """Return other values at the places of the stored entries, which both share."""
    return csr_array((values, rows.indices, rows.indptr), shape=rows.shape)


def row_sums(rows: csr_array) -> npt.NDArray[np.float64]:
    """Return the sum of each row in 64 bits."""
    sums = np.zeros(rows.shape[0])
    has_entries = np.diff(rows.indptr) > 0
    if has_entries.any():
        starts = rows.indptr[:-1][has_entries]
        sums[has_entries] = np.add.reduceat(rows.data, starts, dtype=np.float64)
    return sums


def scale_rows(rows: csr_array, factors: npt.NDArray[Any]) -> csr_array:
    """Return the rows, each times its factor, in 32 bits."""
    values = rows.data * per_entry(rows, factors)
    return with_values(rows, values.astype(np.float32, copy=False))


def cap_row_sums(rows: csr_array, most: float) -> csr_array:
    """Return the rows, those with a larger sum than `most` scaled down to it."""
    factors = most / np.maximum(row_sums(rows), most)
    return scale_rows(rows, factors.astype(np.float32))


def unit_length_rows(rows: csr_array) -> csr_array:
    """Return the rows scaled to length 1; an empty row stays empty."""
    rows = csr_array(rows).astype(np.float32, copy=False)
    lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
    lengths = np.maximum(lengths, 1e-12).astype(np.float32)
    return with_values(rows, rows.data / per_entry(rows, lengths))


def weighted_rows(rows: csr_array, row_weights: FloatArray) -> csr_array:
    """Return rows whose squares count by their weights: a row of weight 2 like two rows."""
    if (row_weights == 1).all():
        return rows
    return scale_rows(rows, np.sqrt(row_weights))


def keep_entries(rows: csr_array, is_kept: npt.NDArray[np.bool_]) -> csr_array:
    """Return the rows with some of their entries, by a truth value for each."""
    n_kept_before = np.concatenate([[0], np.cumsum(is_kept)])
    offsets = n_kept_before[rows.indptr]
    return csr_array((rows.data[is_kept], rows.indices[is_kept], offsets), shape=rows.shape)


def rows_between(rows: csr_array, start: int, stop: int) -> csr_array:
    """Return consecutive rows, whose entries are views."""
    offsets = rows.indptr[start : stop + 1]
    entries = slice(offsets[0], offsets[-1])
    shape = len(offsets) - 1, rows.shape[1]
    return csr_array((rows.data[entries], rows.indices[entries], offsets - offsets[0]), shape=shape)
