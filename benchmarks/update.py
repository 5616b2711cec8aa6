"""An update beside a full refit and beside no update: NDCG@100 on each user's last 5 items, and seconds, in one run.

Run: python benchmarks/update.py ml-1m [--models EASE MultVAE] [--epochs 5] [--network-epochs 20] [--hidden 600]
DATA is ml-1m or ml-100k (found through LOCA_DATA) or planted (a check in a minute). Each model is fitted without
everybody's last 10 items and updated with the first 5 of these; the last 5 are to be found. Hyperparameters are given.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from copy import copy

import loca
from ordered_sets import read_data


def main() -> None:
    """One line for each model."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="?", default="planted")
    parser.add_argument(
        "--models", nargs="*", help="some of the models, by the names that are printed"
    )
    parser.add_argument(
        "--epochs", type=int, nargs="*", default=[5], help="of an update of networks"
    )
    parser.add_argument("--network-epochs", type=int, default=20, help="of a fit of networks")
    parser.add_argument("--latent", type=int, default=200)
    parser.add_argument(
        "--hidden", type=int, help="of a layer between items and code; none where it is not given"
    )
    parser.add_argument("--dropout", type=float, default=0.2)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--communities", type=int, default=8, help="communities of Loca")
    parser.add_argument(
        "--repeats", type=int, default=1, help="of each, of which the quickest counts"
    )
    parser.add_argument(
        "--decay", type=float, default=0.9, help="weight of an item relative to the one after it"
    )
    asked = parser.parse_args()
    data, _ = read_data(asked.data, None)
    split = loca.leave_last_out(data, test=5, validation=5).with_recency(
        loca.Recency.per_position(asked.decay)
    )
    l2 = 1000.0 if data.n_items > 1000 else 20.0
    sizes = {"latent": asked.latent, "hidden": asked.hidden, "epochs": asked.network_epochs}
    steps = {"dropout": asked.dropout, "batch_size": asked.batch_size}
    network = loca.MultVAE(noise=0.1, kl_weight=0.0, **sizes, **steps)
    models: dict[str, loca.Recommender] = {
        "Popularity": loca.Popularity(),
        "ItemKNN": loca.ItemKNN(),
        "EASE": loca.EASE(l2=l2),
        "NextEASE": loca.NextEASE(),
        "Loca of EASE": loca.Loca(
            base=loca.EASE(l2=l2),
            communities=loca.Kernels(n=asked.communities),
            combiner=loca.FixedShare(0.5),
        ),
        "WMF": loca.WMF(factors=64),
        "MultVAE": network,
    }
    print(
        f"{data.n_users:,} users, {data.n_items:,} items; {len(split.train):,} interactions, then {5 * data.n_users:,}"
    )
    print(
        "NDCG@100        no update  histories only   update    refit     seconds: fit   update    refit   update/refit"
    )
    for name in asked.models or models:
        compare_update(name, models[name], split, asked.epochs, asked.repeats)


def compare_update(
    name: str, model: loca.Recommender, split: loca.Split, epochs: list[int], repeats: int
) -> None:
    """The same model in four states: as fitted, with grown histories, updated, and fitted again."""
    new, held_out = split.validation.targets, split.test
    fitting = seconds(lambda: model.fit(split.train, device="cpu"), 1)
    none = ndcg(model, loca.HeldOut(split.train, held_out.targets))
    grown = ndcg(model, held_out)
    refitted = loca.clone(model)
    refitting = seconds(lambda: refitted.fit(split.train_and_validation, device="cpu"), repeats)
    again = ndcg(refitted, held_out)
    for count in epochs if model.learns_by_epoch else epochs[:1]:
        updated = copy(model)
        updating = seconds(lambda count=count: copy(model).update(new, epochs=count), repeats - 1)
        updating = min(
            updating,
            seconds(lambda updated=updated, count=count: updated.update(new, epochs=count), 1),
        )
        label = (
            f"{name}, {count} of {model.get_params()['epochs']} epochs"
            if model.learns_by_epoch
            else name
        )
        print(
            f"{label:<26}{none:.4f}{grown:>10.4f}{ndcg(updated, held_out):>10.4f}{again:>10.4f}"
            f"{fitting:>12.1f}{updating:>9.1f}{refitting:>9.1f}{updating / refitting:>10.2f}",
            flush=True,
        )


def seconds(act: Callable[[], object], repeats: int) -> float:
    """How long it takes at best."""
    quickest = math.inf
    for _ in range(repeats):
        started = time.perf_counter()
        act()
        quickest = min(quickest, time.perf_counter() - started)
    return quickest


def ndcg(model: loca.Recommender, held_out: loca.HeldOut) -> float:
    """The mean over all users."""
    return loca.evaluate(model, held_out, at=(100,)).means()["ndcg@100"]


if __name__ == "__main__":
    main()
