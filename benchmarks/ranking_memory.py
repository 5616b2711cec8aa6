"""Peak memory and seconds of ranking and evaluating all users of a data set of MovieLens 20M's shape.

Run: python benchmarks/ranking_memory.py [--users 138493 --items 26744 --interactions 20000000]
The bar: under 2 GB for a popularity model on a CPU, the data itself included. Exits with 1 when it is missed.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time

import numpy as np
import numpy.typing as npt

from loca.data.id_map import IdMap
from loca.data.interactions import Interactions
from loca.data.splits import HeldOut
from loca.evaluation.evaluate import evaluate
from loca.memory import readable_bytes
from loca.models.popularity import Popularity
from loca.random_streams import stream

BAR_BYTES = 2_000_000_000
TARGETS = 5


def make_interactions(
    user_count: int, item_count: int, interaction_count: int, seed: int
) -> Interactions:
    """About `interaction_count` distinct pairs, activity and popularity long-tailed, in a random order."""
    rng = stream(seed, "ranking memory")
    activity = rng.lognormal(sigma=0.9, size=user_count)
    wanted = np.maximum(activity * interaction_count / activity.sum(), 4 * TARGETS)
    draws = np.minimum(wanted * 1.13, item_count / 2).astype(
        np.int64
    )  # some are lost as repeated pairs
    parts: list[npt.NDArray[np.int32]] = []
    counts = np.zeros(user_count, np.int64)
    for start in range(0, user_count, 4000):
        block = draws[start : start + 4000]
        items = (item_count * rng.random(block.sum()) ** 2.5).astype(np.int64)
        keys = np.repeat(np.arange(len(block)), block) * item_count + items
        first = np.sort(np.unique(keys, return_index=True)[1])
        counts[start : start + 4000] = np.bincount(keys[first] // item_count, minlength=len(block))
        parts.append(items[first].astype(np.int32))
    offsets = np.concatenate([[0], np.cumsum(counts)])
    users, items_map = IdMap.numbered(user_count, "user"), IdMap.numbered(item_count, "item")
    return Interactions(users, items_map, offsets, np.concatenate(parts))


def hold_out_last(data: Interactions, count: int) -> HeldOut:
    """Each user's last `count` items are to be found from those before them."""
    held = np.zeros(len(data), np.bool_)
    held[(data.offsets[1:, None] - 1 - np.arange(count)).ravel()] = True
    return HeldOut(data.where(~held), data.where(held))


def peak_bytes() -> int:
    """The most memory that this process has held so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # bytes there, kilobytes elsewhere


def run() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--users", type=int, default=138_493)
    parser.add_argument("--items", type=int, default=26_744)
    parser.add_argument("--interactions", type=int, default=20_000_000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()

    started = time.perf_counter()
    data = make_interactions(chosen.users, chosen.items, chosen.interactions, chosen.seed)
    held_out = hold_out_last(data, TARGETS)
    print(f"{data.n_users:,} users, {data.n_items:,} items, {len(data):,} interactions")
    del data
    print(
        f"data made      {time.perf_counter() - started:6.1f} s, peak {readable_bytes(peak_bytes())}"
    )

    started = time.perf_counter()
    model = Popularity().fit(held_out.histories)
    print(
        f"model fitted   {time.perf_counter() - started:6.1f} s, peak {readable_bytes(peak_bytes())}"
    )

    started = time.perf_counter()
    evaluation = evaluate(model, held_out)
    print(
        f"users ranked   {time.perf_counter() - started:6.1f} s, peak {readable_bytes(peak_bytes())}"
    )

    started = time.perf_counter()
    table = str(evaluation)
    peak = peak_bytes()
    print(f"intervals      {time.perf_counter() - started:6.1f} s, peak {readable_bytes(peak)}")
    print(table)
    kept = peak < BAR_BYTES
    print(
        f"peak {readable_bytes(peak)}: {'under' if kept else 'OVER'} the bar of {readable_bytes(BAR_BYTES)}"
    )
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(run())
