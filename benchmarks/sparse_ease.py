"""Dense and sparse EASE side by side: bytes of the weights, NDCG@100 on test, processor time of fits and answers.

    LOCA_DATA=… python benchmarks/sparse_ease.py amusic ml-1m --l2 100 --denoising 0

How many weights are kept is chosen on validation (`keep="auto"`) or given; both models are then fitted on train and
validation, and tested once.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy.typing as npt

import loca
from ordered_sets import read_data


def main() -> None:
    """Measures every named data set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="+", help="amusic, games, ml-1m, planted, or .npz files")
    parser.add_argument("--validation", type=int)
    parser.add_argument("--l2", type=float, default=100.0)
    parser.add_argument("--denoising", type=float, default=0.0)
    parser.add_argument("--keep", default="auto", help="weights per item, or auto")
    parser.add_argument("--questions", type=int, default=300, help="single users to answer")
    options = parser.parse_args()
    loca.set_progress(False)
    for name in options.data:
        data, validation = read_data(name, options.validation)
        split = loca.leave_last_out(data, test=5, validation=validation)
        dense = loca.EASE(l2=options.l2, denoising=options.denoising)
        sparse = loca.clone(
            dense, keep=options.keep if options.keep == "auto" else int(options.keep)
        )
        started = time.process_time()
        chosen = sparse.fit(split.train, validation=split.validation).selected()
        print(
            f"{Path(name).stem}: {data.n_items:,} items, {dense}; keep {chosen.keep}, chosen in ",
            end="",
        )
        print(f"{time.process_time() - started:.1f} s", flush=True)
        before = measure("dense", dense, split, options.questions)
        after = measure("sparse", chosen, split, options.questions)
        print(f"  sparse − dense: {loca.paired_difference(after, before)}", flush=True)


def measure(label: str, model: loca.EASE, split: loca.Split, questions: int) -> npt.NDArray[Any]:
    """Prints what a model takes and gives; returns the NDCG@100 of every test user."""
    train = split.train_and_validation
    started = time.process_time()
    model.fit(train)
    fitting = time.process_time() - started
    with tempfile.TemporaryDirectory() as folder:
        model.save(folder)
        saved = sum(path.stat().st_size for path in Path(folder).glob("arrays-*"))
        loaded = loca.load(folder)
        evaluation = loca.evaluate(loaded, split.test, at=(100,))
        users = train.users.values[: questions + 1].tolist()
        seconds = [_seconds_of(loaded, [user]) for user in users]  # the first one warms up
        bulk = train.users.values[:2000].tolist()
        many = min(_seconds_of(loaded, bulk) for _ in range(3))
    score = float(evaluation.values["ndcg@100"].mean())
    print(
        f"  {label}: weights {saved / 1e6:.1f} MB, fit {fitting:.1f} s, test NDCG@100 {score:.4f}, "
        f"one answer {1000 * statistics.median(seconds[1:]):.2f} ms, {len(bulk) / many:,.0f} users/s",
        flush=True,
    )
    return evaluation.values["ndcg@100"]


def _seconds_of(model: loca.Recommender, users: list[object]) -> float:
    """The processor's time, which others on the machine change least."""
    started = time.process_time()
    loca.recommend(model, users, n=10)
    return time.process_time() - started


if __name__ == "__main__":
    main()
