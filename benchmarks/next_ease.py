"""NextEASE beside EASE on public data found through LOCA_DATA: seconds to fit, their ratio in one run, and NDCG@100."""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import loca


@dataclass(frozen=True)
class DataSet:
    """Where a data set lies and how it is read, what is held out for validation, and what its models are given."""

    file: str
    validation: int
    decay: float
    l2: float  # of EASE
    layout: dict[str, Any] = field(default_factory=dict)
    next_items: dict[str, Any] = field(default_factory=dict)  # of NextEASE


SETS = {
    "ml-1m": DataSet("ml-1m/ratings-ordered.csv.gz", 5, 0.9, 1000.0, {"time": "rank"}),
    "amusic": DataSet(
        "amusic/amusic.rating",
        2,
        0.8,
        100.0,
        {"layout": "loca-rating"},
        {"next_count": 3, "prefix_decay": 0.5},
    ),
}


def main() -> None:
    """Clean protocol, distinct pairs, at least 10 per user, last 5 test, no refit; histories decayed when answering."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="*", default=list(SETS), help=", ".join(SETS))
    parser.add_argument(
        "--repeats", type=int, default=1, help="fits of each model, of which the quickest counts"
    )
    parser.add_argument("--device", default="auto")
    asked = parser.parse_args()
    folder = os.environ.get("LOCA_DATA")
    if folder is None:
        sys.exit("set LOCA_DATA to a folder with ml-1m/ and amusic/ in it")
    print("data     model                   validation     test   seconds   times EASE")
    for name in asked.sets:
        time_models(name, Path(folder), asked.repeats, asked.device)


def time_models(name: str, folder: Path, repeats: int, device: str) -> None:
    """One line for each model on one data set."""
    made = SETS[name]
    data = loca.read_interactions(folder / made.file, min_user_interactions=10, **made.layout)
    split = loca.leave_last_out(data, test=5, validation=made.validation)
    split = split.with_recency(loca.Recency.per_position(made.decay))
    models = {
        "EASE": loca.EASE(l2=made.l2),
        "EASE, denoising 0.5": loca.EASE(l2=made.l2, denoising=0.5),
        "NextEASE, ordinary 0": loca.NextEASE(ordinary=0.0, denoising=0.0, **made.next_items),
        "NextEASE": loca.NextEASE(**made.next_items),
    }
    matrix, of_ease = split.train.matrix(), 0.0
    for what, model in models.items():
        seconds = min(_seconds_to_fit(model, matrix, device) for _ in range(repeats))
        of_ease = of_ease or seconds
        validation, test = (
            loca.evaluate(model, part, at=(100,)).means()["ndcg@100"]
            for part in (split.validation, split.test)
        )
        print(
            f"{name:<8} {what:<24}    {validation:.4f}   {test:.4f}   {seconds:7.2f}   {seconds / of_ease:10.2f}",
            flush=True,
        )


def _seconds_to_fit(model: Any, matrix: Any, device: str) -> float:
    started = time.perf_counter()
    model.fit(matrix, device=device)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
