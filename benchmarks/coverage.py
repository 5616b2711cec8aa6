"""Measure the ways to choose anchors at ML-20M's size: seconds and peak memory of each.

That is 138,493 users × 200 dimensions, and 300 anchors.
Run: python benchmarks/coverage.py [--device cuda] [--quantile 0.05 --only coverage]
The bar for exact greedy coverage: 5 minutes and 6 GB on 2 cores, 10 s on an H200. Exits with 1 when
it is missed.
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


def make_embeddings(n_users: int, dimensions: int) -> FloatArray:
    """Draw users in 50 loose groups, in blocks: the peak of memory is that of the choice."""
    rng = stream(0, "coverage benchmark")
    centres = rng.standard_normal((50, dimensions), dtype=np.float32)
    users = np.empty((n_users, dimensions), dtype=np.float32)
    for start in range(0, n_users, 8192):
        block = users[start : start + 8192]
        block[:] = centres[rng.integers(0, 50, len(block))]
        block += 1.5 * rng.standard_normal(block.shape, dtype=np.float32)
        block[:] = unit_rows(block)
    return users


def peak_bytes() -> int:
    """Return the most memory that this process has held so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # bytes there, kilobytes elsewhere


def measure(
    embeddings: FloatArray, way: AnchorSelection, n: int, quantile: float, device: torch.device
) -> bool:
    """Print a line; return whether the bar was kept, where there is one."""
    radius = resolve_bandwidth(Quantile(quantile), embeddings, seed=0)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    started = time.perf_counter()
    started_working = time.process_time()
    anchors = choose_anchors(embeddings, n, way, radius, 0, device)
    seconds = time.perf_counter() - started
    worked = time.process_time() - started_working
    name = f"{way} q{quantile:g}" if way == "coverage" else way
    parts = [f"{name:<14} {seconds:7.1f} s ({worked:.1f} s of processor time)"]
    parts.append(f"peak {readable_bytes(peak_bytes())}")
    if device.type == "cuda":
        peak_on_device = torch.cuda.max_memory_allocated(device)
        parts.append(f"on the device {readable_bytes(peak_on_device)}")
    load = f"load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    print(f"{', '.join(parts)}; first anchors {anchors[:5].tolist()}; {load}", flush=True)
    if way != "coverage":
        return True
    return seconds <= BAR_SECONDS.get(device.type, 300) and peak_bytes() <= BAR_BYTES


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
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
    return parser.parse_args()


def main() -> int:
    """Measure coverage with a narrow and a wide radius, then the other ways, a line for each."""
    arguments = parse_arguments()
    device = choose_device(arguments.device)
    embeddings = make_embeddings(arguments.users, arguments.dimensions)
    machine = f"{torch.get_num_threads()} threads"
    if device.type == "cuda":
        machine = torch.cuda.get_device_name(device)
    sizes = f"{arguments.users:,} users × {arguments.dimensions}, {arguments.anchors} anchors"
    print(f"{sizes}, {machine}", flush=True)
    is_met = True
    for way in (arguments.only,) if arguments.only else WAYS:
        quantiles = (arguments.quantile or (0.05, 0.5)) if way == "coverage" else (0.5,)
        for quantile in quantiles:
            is_met &= measure(embeddings, way, arguments.anchors, quantile, device)
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
