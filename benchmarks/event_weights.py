"""What weights of events earn: NDCG@10 on RetailRocket's marked purchases, with all events alike and weighted.

    LOCA_DATA=… python benchmarks/event_weights.py

The purchase that is to be found is marked in the file; everything before it is trained on. Nothing is
chosen: models have their default parameters, and the weights are fixed here.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import polars as pl

import loca

WEIGHTINGS = {
    "all events alike": None,
    "view=1,cart=3,buy=10": "view=1,cart=3,buy=10",
    "log1p of these": loca.Weighting(
        kinds=(("view", 1.0), ("cart", 3.0), ("buy", 10.0)), scale="log1p"
    ),
    "purchases alone": "view=0,cart=0,buy=1",
}
MODELS = {
    "EASE": loca.EASE(),
    "EASE, l2 1000": loca.EASE(l2=1000.0),
    "ItemKNN": loca.ItemKNN(),
    "Popularity": loca.Popularity(),
}


def main() -> None:
    """Print a row for each model and weighting."""
    path = Path(os.environ["LOCA_DATA"], "retail-rocket", "events.csv.gz")
    events = pl.read_csv(path)
    train = events.filter(part="train")
    purchases = events.filter(part="test").select("user", "item")
    print(f"{'model':16}{'events':24}{'NDCG@10':>9}{'95 %':>18}{'Recall@10':>11}  users")
    for name, weighting in WEIGHTINGS.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", loca.LocaWarning)
            data = loca.read_interactions(train, weight=weighting)
            split = loca.split_from(data, purchases)
        for called, model in MODELS.items():
            found = loca.evaluate(loca.clone(model).fit(split.train), split.test, at=[10])
            low, high = found.intervals()["ndcg@10"]
            means = found.means()
            print(
                f"{called:16}{name:24}{means['ndcg@10']:9.4f}{low:10.4f} to {high:.4f}"
                f"{means['recall@10']:11.4f}  {len(found.users):,}",
                flush=True,
            )


if __name__ == "__main__":
    main()
