"""Prints the figures on public data that the README quotes, from files found through LOCA_DATA."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import loca


def main() -> None:
    """Clean protocol, distinct pairs, at least 10 per user, last 5 test, no refit; ties in time in file order."""
    folder = os.environ.get("LOCA_DATA")
    if folder is None:
        sys.exit("set LOCA_DATA to a folder with amusic/, games-2018/ and ml-1m/ in it")
    print("data     model                        NDCG@100  95 % interval     seconds")
    sets = {
        "amusic": ("amusic/amusic.rating", {"layout": "loca-rating"}, 2, 100.0, 0.8),
        "games": ("games-2018/interactions-ordered.csv.gz", {"time": "rank"}, 2, 300.0, 0.85),
        "ml-1m": ("ml-1m/ratings-ordered.csv.gz", {"time": "rank"}, 5, 1000.0, 0.85),
    }
    for name in sys.argv[1:] or sets:
        file, layout, validation, l2, decay = sets[name]
        data = loca.read_interactions(Path(folder) / file, min_user_interactions=10, **layout)
        split = loca.leave_last_out(data, test=5, validation=validation)
        recency = loca.Recency.per_position(decay)
        for model in (loca.EASE(l2=l2), loca.MultVAE(dropout=0.2, noise=0.01, kl_weight=0.0)):
            started = time.perf_counter()
            model.fit(split.train, validation=split.validation)
            seconds = time.perf_counter() - started
            what = (
                f"EASE, l2 = {l2:g}"
                if isinstance(model, loca.EASE)
                else "MultVAE, authors' variant"
            )
            _print_row(name, what, loca.evaluate(model, split.test, at=(100,)), seconds)
            decayed = loca.evaluate(model, split.test, at=(100,), recency=recency)
            _print_row(name, f"  with decay {decay:g}", decayed, 0.0)


def _print_row(name: str, what: str, evaluation: loca.Evaluation, seconds: float) -> None:
    low, high = evaluation.intervals()["ndcg@100"]
    mean = evaluation.means()["ndcg@100"]
    print(f"{name:<8} {what:<28} {mean:.4f}    {low:.4f} – {high:.4f}   {seconds:7.1f}", flush=True)


if __name__ == "__main__":
    main()
