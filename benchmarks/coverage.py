"""Choosing anchors at ML-20M's size (138,493 users × 200, 300 anchors): seconds and peak memory of every way.

Run: python benchmarks/coverage.py [--device cuda] [--quantile 0.05 --only coverage]
The bar for exact greedy coverage: 5 minutes and 6 GB on 2 cores, 10 s on an H200. Exits with 1 when it is missed.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time

import numpy as np
import torch

from loca.communities.anchors import AnchorSelection, choose_anchors
from loca.communities.geometry import Quantile, resolve_bandwidth, unit_rows
from loca.memory import readable_bytes
from loca.models.devices import choose_device
from loca.random_streams import stream
from loca.typing import FloatArray

WAYS: tuple[AnchorSelection, ...] = ("coverage", "kmeans", "farthest", "random")
BAR_SECONDS = {"cpu": 300, "cuda": 10}
BAR_BYTES = 6_000_000_000


def make_embeddings(user_count: int, dimensions: int) -> FloatArray:
    """Users in 50 loose groups, made in blocks, so that the peak of memory is that of the choosing."""
    rng = stream(0, "coverage benchmark")
    centres = rng.standard_normal((50, dimensions), dtype=np.float32)
    users = np.empty((user_count, dimensions), dtype=np.float32)
    for start in range(0, user_count, 8192):
        part = users[start : start + 8192]
        part[:] = centres[rng.integers(0, 50, len(part))]
        part += 1.5 * rng.standard_normal(part.shape, dtype=np.float32)
        part[:] = unit_rows(part)
    return users


def peak_bytes() -> int:
    """The most memory that this process has held so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # bytes there, kilobytes elsewhere


def measure(
    embeddings: FloatArray, way: AnchorSelection, count: int, quantile: float, device: torch.device
) -> bool:
    """Prints one line; says whether the bar was kept, where there is one."""
    bandwidth = resolve_bandwidth(Quantile(quantile), embeddings, seed=0)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    started, worked = time.perf_counter(), time.process_time()
    anchors = choose_anchors(embeddings, count, way, bandwidth, 0, device)
    seconds, worked = time.perf_counter() - started, time.process_time() - worked
    name = f"{way} q{quantile:g}" if way == "coverage" else way
    line = f"{name:<14} {seconds:7.1f} s ({worked:.1f} s of processor time), peak {readable_bytes(peak_bytes())}"
    if device.type == "cuda":
        line += f", on the device {readable_bytes(torch.cuda.max_memory_allocated(device))}"
    load = f"load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    print(f"{line}; first anchors {anchors[:5].tolist()}; {load}", flush=True)
    return way != "coverage" or (
        seconds <= BAR_SECONDS.get(device.type, 300) and peak_bytes() <= BAR_BYTES
    )


def run() -> int:
    """Greedy coverage with a narrow and a wide bandwidth, then the other ways; a line for each as it ends."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--users", type=int, default=138_493)
    parser.add_argument("--dimensions", type=int, default=200)
    parser.add_argument("--anchors", type=int, default=300)
    parser.add_argument(
        "--quantile", type=float, action="append", help="of the distances; default 0.05, then 0.5"
    )
    parser.add_argument("--device", default="cpu", help="cpu, cuda or auto")
    parser.add_argument("--only", choices=WAYS, help="measure this way alone")
    asked = parser.parse_args()
    device = choose_device(asked.device)
    embeddings = make_embeddings(asked.users, asked.dimensions)
    place = (
        torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else f"{torch.get_num_threads()} threads"
    )
    print(
        f"{asked.users:,} users × {asked.dimensions}, {asked.anchors} anchors, {place}", flush=True
    )
    kept = True
    for way in (asked.only,) if asked.only else WAYS:
        for quantile in (asked.quantile or (0.05, 0.5)) if way == "coverage" else (0.5,):
            kept &= measure(embeddings, way, asked.anchors, quantile, device)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(run())
