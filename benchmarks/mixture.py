"""A mixture of 64 multinomials at ML-20M's size (138,493 users × 26,744 items, 20 million entries): seconds and memory.

Run: python benchmarks/mixture.py [--device cuda] [--users … --items … --entries … --components … --mixtures …]
The bar: 6 minutes and 3 GB for the whole process on 2 cores, 60 s on an H200. Exits with 1 when it is missed.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time

import numpy as np
import numpy.typing as npt
import torch

from loca.communities.multinomial_mixture import MultinomialMixture
from loca.data.id_map import IdMap
from loca.data.interactions import Interactions, as_histories
from loca.memory import DataSize, readable_bytes
from loca.models.devices import choose_device
from loca.random_streams import stream

BAR_SECONDS = {"cpu": 360, "cuda": 60}
BAR_BYTES = 3_000_000_000
_USERS_PER_BLOCK = 4096


def draw_data(
    users: int, items: int, entries: int, groups: int
) -> tuple[Interactions, npt.NDArray[np.int64]]:
    """About so many entries of users in groups, in blocks of users, and the group of each user.

    Popularity falls as rank^−0.8; a group takes a tenth of the items 8 times as often. Histories are of lognormal
    length.
    """
    rng = stream(0, "mixture benchmark")
    likely = rng.permutation((np.arange(items) + 10.0) ** -0.8) * np.where(
        rng.random((groups, items)) < 0.1, 8, 1
    )
    sums = np.cumsum(likely / likely.sum(axis=1, keepdims=True), axis=1)
    sums[:, -1] = 1
    sums = (
        sums + np.arange(groups)[:, None]
    ).ravel()  # rising over all groups: group g lies between g and g + 1
    group_of = rng.integers(0, groups, users)
    lengths = rng.lognormal(0, 1, users)
    lengths = np.clip(lengths * 1.12 * entries / lengths.sum(), 5, items / 4).astype(
        np.int64
    )  # repeats fall away
    offsets, found = [np.zeros(1, np.int64)], []
    for start in range(0, users, _USERS_PER_BLOCK):
        some = lengths[start : start + _USERS_PER_BLOCK]
        owners = np.repeat(np.arange(len(some)), some)
        drawn = np.searchsorted(sums, group_of[start + owners] + rng.random(len(owners))) % items
        pairs = np.unique(owners * items + drawn)
        counts = np.bincount(pairs // items, minlength=len(some))
        offsets.append(offsets[-1][-1] + np.cumsum(counts))
        found.append((pairs % items).astype(np.int32))
    ids = IdMap.numbered(users, "user"), IdMap.numbered(items, "item")
    return Interactions(*ids, np.concatenate(offsets), np.concatenate(found)), group_of


def peak_bytes() -> int:
    """The most memory that this process has held so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # bytes there, kilobytes elsewhere


def main() -> int:
    """Draws the data, fits, embeds, prints what that took, and says whether the bar was kept."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--users", type=int, default=138_493)
    parser.add_argument("--items", type=int, default=26_744)
    parser.add_argument("--entries", type=int, default=20_000_000)
    parser.add_argument("--groups", type=int, default=64, help="groups that are planted")
    parser.add_argument("--components", type=int, default=64)
    parser.add_argument("--mixtures", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=None)
    asked = parser.parse_args()
    if asked.threads:
        torch.set_num_threads(asked.threads)
    device = choose_device(asked.device)
    data, group_of = draw_data(asked.users, asked.items, asked.entries, asked.groups)
    drawn = peak_bytes()
    print(
        f"{data.n_users:,} users × {data.n_items:,} items, {len(data):,} entries, {asked.groups} groups",
        flush=True,
    )
    model = MultinomialMixture(
        components=asked.components,
        mixtures=asked.mixtures,
        rounds=asked.rounds,
    )
    planned = model.memory_bytes(DataSize.of(data.matrix(), validated=False, device=asked.device))
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    begun, worked = time.perf_counter(), time.process_time()
    model.fit(data, device=asked.device)
    seconds, worked = time.perf_counter() - begun, time.process_time() - worked
    peak = peak_bytes()
    line = f"{asked.mixtures} × {asked.components} components, at most {asked.rounds} rounds: {seconds:.1f} s"
    line += f" ({worked:.1f} s of processor time), peak {readable_bytes(peak)}, {readable_bytes(drawn)} with the data"
    line += f" alone; planned {readable_bytes(planned.main)}"
    if device.type == "cuda":
        line += f", on the device {readable_bytes(torch.cuda.max_memory_allocated(device))}"
        line += f", planned {readable_bytes(planned.device)}"
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    print(f"{line}; {device}, {torch.get_num_threads()} threads{load}")
    begun = time.perf_counter()
    found = model.embed(as_histories(data))[:, : asked.components].argmax(axis=1)
    seconds_to_embed = time.perf_counter() - begun
    together = np.zeros((asked.components, asked.groups))
    np.add.at(together, (found, group_of), 1)
    purity = together.max(axis=1).sum() / len(found)
    print(
        f"memberships of all users in {seconds_to_embed:.1f} s; purity {purity:.3f} against the planted groups"
    )
    within = seconds <= BAR_SECONDS[device.type] and peak <= BAR_BYTES
    print(
        f"bar {BAR_SECONDS[device.type]} s and {readable_bytes(BAR_BYTES)}: {'met' if within else 'missed'}"
    )
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
