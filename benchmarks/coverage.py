"""Measures exact greedy coverage at ML-20M's size (138,493 users × 200, 300 anchors): seconds and memory."""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np

from loca.communities.anchors import cover_greedily
from loca.communities.geometry import Quantile, resolve_bandwidth, unit_rows
from loca.memory import readable_bytes
from loca.random_streams import stream


def main() -> None:
    """Users in 50 loose groups; the answer bandwidth is a quantile of their distances."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=138_493)
    parser.add_argument("--dimensions", type=int, default=200)
    parser.add_argument("--anchors", type=int, default=300)
    parser.add_argument("--quantile", type=float, default=0.05)
    asked = parser.parse_args()
    rng = stream(0, "coverage benchmark")
    centres = rng.normal(size=(50, asked.dimensions))
    users = centres[rng.integers(0, 50, asked.users)] + 1.5 * rng.normal(size=(asked.users, asked.dimensions))
    embeddings = unit_rows(users.astype(np.float32))
    del users
    bandwidth = resolve_bandwidth(Quantile(asked.quantile), embeddings, seed=0)
    started = time.perf_counter()
    anchors = cover_greedily(embeddings, asked.anchors, bandwidth)
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"{asked.users:,} users × {asked.dimensions}, {len(anchors)} anchors, bandwidth {bandwidth:.3f}")
    print(f"exact greedy coverage: {seconds:.1f} s, peak memory of the process {readable_bytes(peak)}")


if __name__ == "__main__":
    main()
