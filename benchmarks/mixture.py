"""Measure a mixture of 64 multinomials at ML-20M's size: seconds and memory.

That is 138,493 users × 26,744 items, and 20 million entries.
Run: python benchmarks/mixture.py [--device cuda] [--users … --items … --entries … --components …]
The bar: 6 minutes and 3 GB for the whole process on 2 cores, 60 s on an H200. Exits with 1 when it
is missed.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time

import numpy as np
import torch

from loca.communities.multinomial_mixture import MultinomialMixture
from loca.data.id_map import IdMap
from loca.data.interactions import Interactions, as_histories
from loca.memory import DataSize, readable_bytes
from loca.models.devices import choose_device
from loca.random_streams import stream
from loca.typing import IntArray

BAR_SECONDS = {"cpu": 360, "cuda": 60}
BAR_BYTES = 3_000_000_000
_USERS_PER_BLOCK = 4096


def draw_data(
    n_users: int, n_items: int, n_entries: int, n_groups: int
) -> tuple[Interactions, IntArray]:
    """Return about so many entries of users in groups, and the group of each user.

    Popularity falls as rank^−0.8; a group takes a tenth of the items 8 times as often. Histories
    are of lognormal length.
    """
    rng = stream(0, "mixture benchmark")
    popularity = rng.permutation((np.arange(n_items) + 10.0) ** -0.8)
    preferences = np.where(rng.random((n_groups, n_items)) < 0.1, 8, 1)
    probabilities = popularity * preferences
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    sums = np.cumsum(probabilities, axis=1)
    sums[:, -1] = 1
    # Rising over all groups: group g lies between g and g + 1.
    sums = (sums + np.arange(n_groups)[:, None]).ravel()
    group_of = rng.integers(0, n_groups, n_users)
    lengths = rng.lognormal(0, 1, n_users)
    # A little more than needed, as repeats fall away.
    lengths = np.clip(lengths * 1.12 * n_entries / lengths.sum(), 5, n_items / 4).astype(np.int64)
    offsets = [np.zeros(1, np.int64)]
    item_rows = []
    for start in range(0, n_users, _USERS_PER_BLOCK):
        block = lengths[start : start + _USERS_PER_BLOCK]
        users = np.repeat(np.arange(len(block)), block)
        points = group_of[start + users] + rng.random(len(users))
        items = np.searchsorted(sums, points) % n_items
        pairs = np.unique(users * n_items + items)
        counts = np.bincount(pairs // n_items, minlength=len(block))
        offsets.append(offsets[-1][-1] + np.cumsum(counts))
        item_rows.append((pairs % n_items).astype(np.int32))
    users_and_items = IdMap.numbered(n_users, "user"), IdMap.numbered(n_items, "item")
    data = Interactions(*users_and_items, np.concatenate(offsets), np.concatenate(item_rows))
    return data, group_of


def peak_bytes() -> int:
    """Return the most memory that this process has held so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # bytes there, kilobytes elsewhere


def fit(model: MultinomialMixture, data: Interactions, device: torch.device) -> bool:
    """Fit, print what that took, and return whether the bar was kept."""
    before = peak_bytes()
    size = DataSize.of(data.matrix(), validated=False, device=str(device))
    planned = model.memory_bytes(size)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    started = time.perf_counter()
    started_working = time.process_time()
    model.fit(data, device=str(device))
    seconds = time.perf_counter() - started
    worked = time.process_time() - started_working
    parts = [f"{seconds:.1f} s ({worked:.1f} s of processor time)"]
    parts.append(f"peak {readable_bytes(peak_bytes())}")
    parts.append(f"{readable_bytes(before)} with the data alone")
    parts.append(f"planned {readable_bytes(planned.main)}")
    if device.type == "cuda":
        peak_on_device = torch.cuda.max_memory_allocated(device)
        parts.append(f"on the device {readable_bytes(peak_on_device)}")
        parts.append(f"planned {readable_bytes(planned.device)}")
    label = f"{model.mixtures} × {model.components} components, at most {model.rounds} rounds"
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    threads = f"{torch.get_num_threads()} threads"
    print(f"{label}: {', '.join(parts)}; {device}, {threads}{load}", flush=True)
    is_met = seconds <= BAR_SECONDS[device.type] and peak_bytes() <= BAR_BYTES
    verdict = "met" if is_met else "missed"
    print(f"bar {BAR_SECONDS[device.type]} s and {readable_bytes(BAR_BYTES)}: {verdict}")
    return is_met


def embed(model: MultinomialMixture, data: Interactions, group_of: IntArray, n_groups: int) -> None:
    """Embed all users, and print how pure the communities of the first mixture are."""
    started = time.perf_counter()
    log_memberships = model.embed(as_histories(data))[:, : model.components]
    communities = log_memberships.argmax(axis=1)
    seconds = time.perf_counter() - started
    n_together = np.zeros((model.components, n_groups))
    np.add.at(n_together, (communities, group_of), 1)
    purity = n_together.max(axis=1).sum() / len(communities)
    print(
        f"memberships of all users in {seconds:.1f} s; purity {purity:.3f} against the planted "
        "groups"
    )


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
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
    return parser.parse_args()


def main() -> int:
    """Draw the data, fit, and embed."""
    arguments = parse_arguments()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    device = choose_device(arguments.device)
    data, group_of = draw_data(
        arguments.users, arguments.items, arguments.entries, arguments.groups
    )
    sizes = f"{data.n_users:,} users × {data.n_items:,} items, {len(data):,} entries"
    print(f"{sizes}, {arguments.groups} groups", flush=True)
    model = MultinomialMixture(
        components=arguments.components, mixtures=arguments.mixtures, rounds=arguments.rounds
    )
    is_met = fit(model, data, device)
    embed(model, data, group_of, arguments.groups)
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
