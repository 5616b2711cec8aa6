"""Training many local MultVAEs: the stacked engine against the loop, as a ratio in one run, and the stack's memory."""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
import torch
from scipy.sparse import csr_array

from loca.local.one_by_one import copies_of
from loca.local.stacked import in_stacks
from loca.memory import readable_bytes
from loca.models.devices import choose_device
from loca.models.mult_vae import MultVAE
from loca.random_streams import stream


def main() -> None:
    """Interactions with the shape of Amazon Digital Music by default; every model learns from all users."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=4096)
    parser.add_argument("--items", type=int, default=11_797)
    parser.add_argument("--history", type=int, default=15)
    parser.add_argument("--models", type=int, default=4)
    parser.add_argument("--loop-models", type=int, default=4, help="models to time in the loop")
    parser.add_argument("--epochs", type=int, default=2)
    asked = parser.parse_args()
    rng = stream(0, "stacked benchmark")
    columns = np.concatenate([rng.choice(asked.items, asked.history, replace=False) for _ in range(asked.users)])
    starts = np.arange(asked.users + 1) * asked.history
    shape = (asked.users, asked.items)
    matrix = csr_array((np.ones(len(columns), np.float32), columns.astype(np.int32), starts), shape=shape)
    base = MultVAE(dropout=0.2, noise=0.01, kl_weight=0.0)
    steps = asked.epochs * -(-asked.users // base.batch_size)
    seconds = {}
    for name, count, arrange in (("loop", asked.loop_models, list), ("stacked", asked.models, in_stacks)):
        models = copies_of(base, count, seed=0, name="local model")
        runners = arrange([model.begin(matrix, None) for model in models])
        seconds[name] = _seconds_per_step(runners, asked.epochs, steps) / count
        print(f"{name:<8} {count:4d} models: {1000 * seconds[name] * count:8.1f} ms for one step of all", flush=True)
    print(f"stacked is {seconds['loop'] / seconds['stacked']:.1f} times as fast per model")
    device = choose_device("auto")
    if device.type == "cuda":
        print(f"peak device memory {readable_bytes(torch.cuda.max_memory_allocated())}")
    print(f"peak host memory {readable_bytes(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)}")


def _seconds_per_step(runners: list, epochs: int, steps: int) -> float:
    for runner in runners:
        runner.run_epoch()  # warm-up
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(epochs):
        for runner in runners:
            runner.run_epoch()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return (time.perf_counter() - started) / steps


if __name__ == "__main__":
    main()
