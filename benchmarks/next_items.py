"""What an epoch of next-items training costs beside an ordinary one, in the loop and in the stack, in one run.

Run: python benchmarks/next_items.py [DATA] [--models 4] [--epochs 3]
The bar: at most 1.3 times the ordinary epoch. Exits with 1 where it is missed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence

import torch
from scipy.sparse import csr_array

from loca.local.engines.engine import copies_of
from loca.local.engines.stacked.plan import plan_stacks
from loca.local.engines.stacked.trainer import StackedTrainer
from loca.models.devices import choose_device
from loca.models.early_stopping import Trainer
from loca.models.mult_vae import MultVAE
from ordered_sets import read_data
from stacked_engine import random_histories

BAR = 1.3
SHAPES = {"long histories": (6040, 3706, 160), "short histories": (4096, 11_797, 15)}


def main() -> int:
    """Histories with the lengths of MovieLens 1M and of Amazon Digital Music, or those of a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "data",
        nargs="?",
        help="amusic, games, ml-1m, or an .npz file with offsets and item_rows, oldest first",
    )
    parser.add_argument("--models", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=3)
    asked = parser.parse_args()
    shapes = (
        {"file": read_data(asked.data, 2)[0].matrix()}
        if asked.data
        else {name: random_histories(*shape) for name, shape in SHAPES.items()}
    )
    worst = 0.0
    for name, matrix in shapes.items():
        for engine, models in (("loop", 1), ("stack", asked.models)):
            seconds = _in_turns(matrix, models, engine, asked.epochs)
            ratios = {target: seconds[target] / seconds["set"] for target in ("next", "following")}
            worst = max(worst, *ratios.values())
            told = ", ".join(f"{target} {ratio:.2f} ×" for target, ratio in ratios.items())
            print(
                f"{name}, {engine} of {models}: an ordinary epoch {seconds['set']:.2f} s; {told}",
                flush=True,
            )
    print(f"worst ratio {worst:.2f} (bar {BAR})")
    return int(worst > BAR)


def _in_turns(matrix: csr_array, models: int, engine: str, epochs: int) -> dict[str, float]:
    """The median seconds of an epoch of each kind; the kinds take turns, so that a slow moment hits all of them."""
    runners = {
        target: _runner(matrix, models, engine, target) for target in ("set", "next", "following")
    }
    taken: dict[str, list[float]] = {target: [] for target in runners}
    for turn in range(epochs + 1):
        for target, runner in runners.items():
            started = time.perf_counter()
            for one in runner:
                one.run_epoch()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            if turn:  # the first is for warming up
                taken[target].append(time.perf_counter() - started)
    return {target: statistics.median(seconds) for target, seconds in taken.items()}


def _runner(matrix: csr_array, models: int, engine: str, target: str) -> Sequence[Trainer]:
    base = MultVAE(dropout=0.2, noise=0.1, kl_weight=0.0, target=target)  # type: ignore[arg-type]
    learning = [
        model.begin(matrix, None) for model in copies_of(base, models, seed=0, name="local model")
    ]
    if engine == "loop":
        return learning
    one = learning[0]
    plan = plan_stacks(
        one.network,
        one.model.batch_size,
        networks=models,
        users=matrix.shape[0],
        device=choose_device("auto"),
        precision="float32",
    )
    return [StackedTrainer(learning, at_once=plan.at_once)]


if __name__ == "__main__":
    sys.exit(main())
