"""A piece of work and the seconds it takes: what is timed, from all over the data, and how."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

_MOST_RUNS = 4
_SECONDS_PER_PIECE = 0.6


def least_seconds(work: Callable[[], Any]) -> float:
    """The least seconds of a few runs: the first one warms up, and others may want the machine in between."""
    least, spent, runs = math.inf, 0.0, 0
    while runs < _MOST_RUNS and (runs == 0 or spent < _SECONDS_PER_PIECE):
        started = time.perf_counter()
        work()
        taken = time.perf_counter() - started
        least, spent, runs = min(least, taken), spent + taken, runs + 1
    return least


def some_rows(matrix: csr_array, count: int) -> csr_array:
    """Up to `count` users with a history, from all over the matrix."""
    able = np.flatnonzero(np.diff(matrix.indptr))
    return csr_array(matrix[spread(able, count)])


def spread(rows: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    """Up to `count` of the rows, evenly spaced."""
    chosen: npt.NDArray[np.int64] = rows[np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(np.int64)]
    return chosen
