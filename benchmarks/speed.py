"""The speed of what users wait for, through the public interface alone: run it before and after a change.

    python benchmarks/speed.py amusic.npz ml-1m.npz --repeats 3 --out before.json

Reads interactions from .npz files with `offsets` and `item_rows`, or from names that `ordered_sets` knows. Times are
the quickest of the repeats; two result files are compared by `--compare before.json after.json`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import loca
from ordered_sets import read_data


def main() -> None:
    """Times every piece on every data set, or compares two earlier runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="*", help="data sets, or .npz files")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--networks", type=int, default=20, help="local networks of LOCA over MultVAE"
    )
    parser.add_argument("--local-ease", type=int, default=20, help="local EASEs of LOCA over EASE")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--only", help="only the pieces whose name contains this")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("BEFORE", "AFTER"))
    options = parser.parse_args()
    if options.compare:
        compare(*(json.loads(path.read_text()) for path in options.compare))
        return
    loca.set_progress(False)
    seconds: dict[str, float] = {}
    for name in options.data:
        data, validation = read_data(name, 2 if name.endswith(".npz") else None)
        split = loca.leave_last_out(data, test=5, validation=validation)
        for piece, run in pieces(split, options).items():
            if options.only is None or options.only in piece:
                label = f"{Path(name).stem}: {piece}"
                seconds[label] = quickest(run, options.repeats)
                print(f"{label}: {seconds[label]:.3f} s", flush=True)
                if options.out is not None:
                    options.out.write_text(json.dumps(seconds, indent=1))


def pieces(split: loca.Split, options: argparse.Namespace) -> dict[str, Callable[[], float]]:
    """What is timed; each gives the seconds of one run."""
    train, device = split.train, options.device

    def fit(model: Any, validation: Any = None) -> float:
        return timed(lambda: model.fit(train, validation=validation, device=device))

    network = {"dropout": 0.2, "noise": 0.01, "kl_weight": 0.0}
    on_gpu = torch.cuda.is_available() and device != "cpu"
    local_network = loca.Loca(
        base=loca.MultVAE(**network, epochs=options.epochs, patience=options.epochs),
        communities=loca.Kernels(n=options.networks),
        engine=loca.Stacked(precision="bfloat16" if on_gpu else "float32"),
    )
    local_ease = loca.Loca(
        base=loca.EASE(l2=300.0),
        communities=loca.Kernels(n=options.local_ease, embedding=loca.TruncatedSVD()),
        combiner=loca.FixedShare(0.5),
    )
    return {
        "EASE, training": lambda: fit(loca.EASE(l2=300.0)),
        "NextEASE, training": lambda: fit(loca.NextEASE()),
        "MultVAE, training": lambda: fit(loca.MultVAE(**network, epochs=options.epochs)),
        "EASE, lists of 100 for all": lists_for_all(loca.EASE(l2=300.0), train, device),
        f"{options.local_ease} local EASEs, training": lambda: fit(loca.clone(local_ease)),
        f"{options.local_ease} local EASEs, lists of 100 for all": lists_for_all(
            loca.clone(local_ease), train, device
        ),
        f"{options.networks} local networks, training": lambda: fit(
            loca.clone(local_network), split.validation
        ),
        f"{options.networks} local networks, lists of 100 for all": saved_lists(
            local_network, split, device
        ),
    }


def lists_for_all(model: Any, train: loca.Interactions, device: str) -> Callable[[], float]:
    fitted: list[Any] = []

    def run() -> float:
        if not fitted:
            fitted.append(model.fit(train, device=device))
        return timed(lambda: loca.recommend(model, train.histories(), n=100))

    return run


def saved_lists(unfitted: Any, split: loca.Split, device: str) -> Callable[[], float]:
    """Lists from a model that was saved and opened again, on the CPU as a service would."""
    held: list[Any] = []

    def run() -> float:
        if not held:
            base = loca.clone(unfitted.base, epochs=1)
            model = loca.clone(unfitted, base=base)
            model.fit(split.train, validation=split.validation, device=device)
            folder = tempfile.TemporaryDirectory()
            model.save(Path(folder.name) / "model.loca")
            held.extend([loca.load(Path(folder.name) / "model.loca"), folder])
        return timed(lambda: loca.recommend(held[0], split.train.histories()[:500], n=100))

    return run


def timed(act: Callable[[], Any]) -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    started = time.perf_counter()
    act()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - started


def quickest(run: Callable[[], float], repeats: int) -> float:
    return float(np.min([run() for _ in range(repeats)]))


def compare(before: dict[str, float], after: dict[str, float]) -> None:
    """One line for each piece that both have: seconds before and after, and their ratio."""
    for label in before:
        if label in after:
            ratio = after[label] / before[label]
            print(f"{label}: {before[label]:.3f} s, {after[label]:.3f} s, {ratio:.2f} x")


if __name__ == "__main__":
    main()
