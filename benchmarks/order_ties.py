"""Whether models that use order read anything out of the file's order of items at one time: AMusic, dated by day.

Run: LOCA_DATA=… python benchmarks/order_ties.py [--shuffle after|before|given] [--shuffles 3] [--epochs 60]
Protocol clean, without a refit; the items of each user's day are shuffled and everything is measured again.
after: shuffled after the split, so that the questions are the same ones. The bar: the 95 % intervals of NDCG@100 hold
each other's mean. Exits with 1 where it is missed.
before: shuffled before the split. A split holds out exactly the last five items and cuts through days, so that other
items become test and other questions are asked, of EASE too, which knows no order: compare with its line.
given: as after, but the times are taken away, so that the stored order counts, as it did before equal times were one
place.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

import loca
from loca.paper.benchmark import StudiedData, open_data
from loca.registry import MODELS
from loca.tuning.recency_selection import start_recency

# NextEASE as in results/settings/amusic.toml.
NEXT_EASE = {"l2": 400.0, "next_count": 1, "prefix_decay": 0.8, "ordinary": 10.0, "denoising": 0.6}
Interval = tuple[float, float, float]  # mean, low, high


def main() -> int:
    """One line for each model: as the file has it, then shuffled."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shuffle", choices=["after", "before", "given"], default="after")
    parser.add_argument("--shuffles", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=60)
    asked = parser.parse_args()
    data = open_data("amusic")
    print(loca.check_order(data.interactions), end="\n\n", flush=True)
    found: dict[str, list[Interval]] = {}
    for seed in range(asked.shuffles + 1):
        split = divide(data, asked.shuffle, seed)
        for name, model, recency in models(asked.epochs):
            started = time.perf_counter()
            found.setdefault(name, []).append(measure(model, split.with_recency(recency)))
            print(
                f"  {name}, shuffle {seed}: {time.perf_counter() - started:.0f} s",
                file=sys.stderr,
                flush=True,
            )
    columns = ["as in the file", *(f"shuffled {seed + 1}" for seed in range(asked.shuffles))]
    print(f"{'NDCG@100 on test':<24} " + " ".join(f"{column:<23}" for column in columns))
    for name, values in found.items():
        print(
            f"{name:<24} "
            + " ".join(f"{mean:.4f} [{low:.4f}, {high:.4f}]" for mean, low, high in values)
        )
    agreed = all(agree(values[0], other) for values in found.values() for other in values[1:])
    return int(asked.shuffle == "after" and not agreed)


def divide(data: StudiedData, where: str, seed: int) -> loca.Split:
    """The clean split, with the days shuffled before it or in its parts; seed 0 leaves the order of the file."""
    if where == "before":
        return replace(data, interactions=shuffle_moments(data.interactions, seed)).split("clean")
    split = data.split("clean")
    assert split.validation is not None

    def change(part: loca.Interactions) -> loca.Interactions:
        mixed = shuffle_moments(part, seed)
        return replace(mixed, times=None) if where == "given" else mixed

    return replace(
        split,
        train=change(split.train),
        validation=_with_histories(split.validation, change),
        test=_with_histories(split.test, change),
    )


def _with_histories(
    asked: loca.HeldOut, change: Callable[[loca.Interactions], loca.Interactions]
) -> loca.HeldOut:
    return replace(asked, histories=change(asked.histories))


def models(epochs: int) -> list[tuple[str, loca.Recommender, loca.Recency | None]]:
    """Name, model, and the recency it is asked under."""
    following = loca.NextEASE(**NEXT_EASE)  # type: ignore[arg-type]
    network = loca.clone(MODELS["next-vae"](), epochs=epochs, evaluate_every=2, seed=0)
    return [
        ("EASE", loca.EASE(l2=100), None),
        ("EASE, decayed by 0.8", loca.EASE(l2=100), loca.Recency.per_position(0.8)),
        ("NextEASE", following, start_recency(following)),
        ("MultVAE of next items", network, start_recency(network)),
    ]


def measure(model: loca.Recommender, split: loca.Split) -> Interval:
    """NDCG@100 on test with its interval over users."""
    fitted = model.fit(split.train, validation=split.validation)
    evaluation = loca.evaluate(fitted, split.test)
    return (evaluation.means()["ndcg@100"], *evaluation.intervals()["ndcg@100"])


def shuffle_moments(interactions: loca.Interactions, seed: int) -> loca.Interactions:
    """The same interactions with the items of every moment of a user in a random order; seed 0 changes nothing."""
    draws = (
        np.random.default_rng(seed).random(len(interactions))
        if seed
        else np.arange(len(interactions))
    )
    order = np.lexsort((draws, interactions.moments(), interactions.user_rows()))
    return replace(interactions, item_rows=interactions.item_rows[order])


def agree(one: Interval, other: Interval) -> bool:
    """Whether each interval holds the other's mean."""
    return one[1] <= other[0] <= one[2] and other[1] <= one[0] <= other[2]


if __name__ == "__main__":
    sys.exit(main())
