"""What `Auto` reaches on data with an order, without and with a refit, and its difference to a rival's values per user.

Run: python benchmarks/ordered_figures.py ml-1m --seeds 0,1,2 [--seconds 720] [--rival sasrec-ml-1m.npy] [--out FOLDER]
DATA is amusic, games, ml-1m (found through LOCA_DATA), planted, or an .npz file with `offsets` and `item_rows`, oldest
first. Clean protocol: the last 5 of each user are test, those before them validation (2; 5 on ml-1m); every choice is
made on validation. The rival's file is what ordered_rival.py writes: NDCG@100 of each test user, seeds × users.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

import loca
from ordered_sets import read_data


def main() -> None:
    """Fits once for each seed, measures on test, refits on train + validation, and measures again."""
    asked = _asked()
    data, validation = read_data(asked.data, asked.validation)
    split = loca.leave_last_out(data, test=5, validation=validation)
    found, refitted = [], []
    for seed in (int(one) for one in asked.seeds.split(",")):
        started = time.perf_counter()
        model = loca.Auto(seconds=asked.seconds, seed=seed).fit(
            split.train, validation=split.validation
        )
        seconds = time.perf_counter() - started
        found.append(_ndcgs(model, split))
        print(model.report(), flush=True)
        started = time.perf_counter()
        again = model.selected().fit(split.train_and_validation)
        refitted.append(_ndcgs(again, split))
        print(
            f"{asked.data}, seed {seed}: NDCG@100 {found[-1].mean():.4f} after {seconds:.0f} s, "
            f"{refitted[-1].mean():.4f} refitted in {time.perf_counter() - started:.0f} s",
            flush=True,
        )
        if asked.out is not None:
            asked.out.mkdir(parents=True, exist_ok=True)
            np.save(asked.out / f"auto-{seed}.npy", found[-1])
            np.save(asked.out / f"refit-{seed}.npy", refitted[-1])
    print(f"mean over seeds {np.mean(found):.4f}, refitted {np.mean(refitted):.4f}")
    if asked.rival is not None:
        rival = np.atleast_2d(np.load(asked.rival)).mean(axis=0)
        print(f"rival {rival.mean():.4f}; {loca.paired_difference(np.mean(found, axis=0), rival)}")


def _ndcgs(model: loca.Auto, split: loca.Split) -> np.ndarray:
    """The NDCG@100 of each test user."""
    return loca.evaluate(model, split.test, at=(100,)).values["ndcg@100"]


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data")
    parser.add_argument("--validation", type=int)
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--seconds", type=float, default=720.0, help="the budget of one search")
    parser.add_argument(
        "--rival", type=Path, help="values per user (.npy) to hold the mean over seeds against"
    )
    parser.add_argument("--out", type=Path, help="a folder for the values per user")
    return parser.parse_args()


if __name__ == "__main__":
    main()
