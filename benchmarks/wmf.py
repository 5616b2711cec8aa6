"""WMF beside the library implicit with the same settings: seconds to fit, and their ratio in one run."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from implicit.cpu.als import AlternatingLeastSquares
from scipy.sparse import csr_matrix
from threadpoolctl import threadpool_limits

import loca
from loca.models.wmf import WMF
from ordered_sets import read_data


def main() -> None:
    """Both fit the same matrix by turns, and so does our own solver, whose steps are exact; the quickest fit counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "data", nargs="?", default="amusic", help="amusic, ml-1m, games, planted, or an .npz file"
    )
    parser.add_argument(
        "--validation",
        type=int,
        help="items a user held out for validation; needed for an .npz file",
    )
    parser.add_argument("--factors", type=int, nargs="+", default=[64, 128, 256])
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    asked = parser.parse_args()
    data, held_out = read_data(asked.data, asked.validation)
    matrix = loca.leave_last_out(data, test=5, validation=held_out).train.matrix()
    torch.set_num_threads(asked.threads)
    print("factors   implicit        WMF   ratio   own solver   ratio")
    for factors in asked.factors:
        compare(matrix, WMF(factors=factors, iterations=asked.iterations), asked.repeats)


def compare(matrix: Any, model: WMF, repeats: int) -> None:
    """One line of seconds."""
    alone, through_us, own = [], [], []
    twice = np.full(matrix.shape[0], 2.0)
    for _ in range(repeats):
        alone.append(seconds(lambda: fit_implicit(matrix, model)))
        through_us.append(seconds(lambda: model.fit(matrix, device="cpu")))
        # Weights other than 1 are as much work, and none for implicit.
        own.append(seconds(lambda: model.fit(matrix, user_weights=twice, device="cpu")))
    quickest = min(alone)
    print(
        f"{model.factors:7}   {quickest:7.2f} s  {min(through_us):7.2f} s   {min(through_us) / quickest:5.2f}"
        f"    {min(own):7.2f} s   {min(own) / quickest:5.2f}",
        flush=True,
    )


def fit_implicit(matrix: Any, model: WMF) -> None:
    """implicit as its own pages call it, with BLAS kept to one thread as it asks for."""
    with threadpool_limits(1, "blas"):
        library = AlternatingLeastSquares(
            factors=model.factors,
            regularization=model.user_l2,
            iterations=model.iterations,
            num_threads=torch.get_num_threads(),
            random_state=0,
        )
        library.fit(csr_matrix(matrix * (1 + model.confidence)), show_progress=False)


def seconds(work: Callable[[], Any]) -> float:
    """How long a piece of work takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
