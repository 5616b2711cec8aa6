"""SLIM against a loop of scikit-learn's elastic nets: seconds for all items, their ratio, and both objectives.

The loop is what programs for SLIM in Python do: for each item the column is emptied and one ElasticNet(positive=True,
fit_intercept=False) is fitted on the sparse matrix. It is timed on a random sample of items and its time multiplied.
Both minimise ½‖Xw − x_j‖² + l1 Σw + l2/2 Σw²; the sums over the sample show that neither stops earlier.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csc_array, csr_array
from sklearn.linear_model import ElasticNet

import loca
from loca.models.slim import SLIM
from ordered_sets import read_data

Columns = npt.NDArray[np.float64]


def main() -> None:
    """Reads what is asked, times both, and prints seconds, ratio, objectives and the validation score."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "data", help="amusic, games, ml-1m, planted, or an .npz file with offsets and item_rows"
    )
    parser.add_argument("--validation", type=int, default=None)
    parser.add_argument("--l1", type=float, default=0.5)
    parser.add_argument("--l2", type=float, default=50.0)
    parser.add_argument(
        "--tolerance", type=float, default=1e-4, help="of both, each by its own measure"
    )
    parser.add_argument("--sample", type=int, default=100, help="items on which the loop is timed")
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    data, validation = read_data(asked.data, asked.validation)
    split = loca.leave_last_out(data, test=5, validation=validation)
    matrix = split.train.matrix()
    items = matrix.shape[1]
    print(
        f"{matrix.shape[0]:,} users × {items:,} items, l1 {asked.l1:g}, l2 {asked.l2:g}, {asked.threads} threads"
    )

    begun = time.perf_counter()
    model = SLIM(l1=asked.l1, l2=asked.l2, tolerance=asked.tolerance).fit(split.train)
    ours = time.perf_counter() - begun
    assert model.weights_ is not None
    scored = loca.evaluate(model, split.validation, at=(100,)).means()["ndcg@100"]
    weights = model.weights_.nnz / items
    print(
        f"SLIM                all {items:,} items in {ours:8.1f} s; {weights:.1f} weights an item"
    )
    print(f"SLIM                validation NDCG@100 {scored:.4f}", flush=True)

    sample = np.sort(
        np.random.default_rng(0).choice(items, min(asked.sample, items), replace=False)
    )
    begun = time.perf_counter()
    theirs = fit_one_by_one(
        csc_array(matrix.astype(np.float64)), sample, asked.l1, asked.l2, asked.tolerance
    )
    spent = time.perf_counter() - begun
    whole = spent * items / len(sample)
    print(
        f"scikit-learn's loop {len(sample)} sampled items in {spent:.1f} s: for all {items:,} about {whole:.1f} s"
    )
    print(f"ratio               {whole / ours:.1f} times as fast")
    own = np.asarray(model.weights_.tocsc()[:, sample].toarray(), dtype=np.float64)
    mine, other = (objective(matrix, sample, found, asked.l1, asked.l2) for found in (own, theirs))
    print(
        f"objective over the sample, the smaller the better: SLIM {mine:.6f}, scikit-learn {other:.6f}"
    )


def fit_one_by_one(
    columns: csc_array, sample: npt.NDArray[np.int64], l1: float, l2: float, tolerance: float
) -> Columns:
    """Weights, items × sampled items, each column by its own elastic net; scikit-learn divides the error by users."""
    users = columns.shape[0]
    net = ElasticNet(
        alpha=(l1 + l2) / users,
        l1_ratio=l1 / (l1 + l2),
        positive=True,
        fit_intercept=False,
        tol=tolerance,
        copy_X=False,
    )
    found = np.zeros((columns.shape[1], len(sample)))
    for place, item in enumerate(sample):
        own = slice(columns.indptr[item], columns.indptr[item + 1])
        wanted = np.zeros(users)
        wanted[columns.indices[own]] = columns.data[own]
        kept = columns.data[own].copy()
        columns.data[own] = 0
        found[:, place] = net.fit(columns, wanted).coef_
        columns.data[own] = kept
    return found


def objective(
    matrix: csr_array, sample: npt.NDArray[np.int64], weights: Columns, l1: float, l2: float
) -> float:
    """The sum of what is minimised over the sampled items."""
    rows = matrix.astype(np.float64)
    errors = rows @ weights - rows.tocsc()[:, sample].toarray()
    return float(0.5 * (errors**2).sum() + l1 * weights.sum() + 0.5 * l2 * (weights**2).sum())


if __name__ == "__main__":
    main()
