"""Training many local MultVAEs: the stacked engine against the loop and against its limit, as ratios in one run."""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from scipy.sparse import csr_array

from loca.local.engines.engine import copies_of
from loca.local.engines.stacked.plan import plan_stacks
from loca.local.engines.stacked.trainer import StackedTrainer
from loca.memory import readable_bytes
from loca.models.devices import choose_device
from loca.models.early_stopping import Trainer
from loca.models.mult_vae import MultVAE
from loca.models.training import AutoencoderTrainer
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
    parser.add_argument("--precision", default="float32", choices=["float32", "bfloat16"])
    asked = parser.parse_args()
    matrix = random_histories(asked.users, asked.items, asked.history)
    base = MultVAE(dropout=0.2, noise=0.01, kl_weight=0.0)
    device = choose_device("auto")
    steps = asked.epochs * -(-asked.users // base.batch_size)
    loop = _seconds_per_step(_begin(base, asked.loop_models, matrix), asked.epochs, steps)
    print(
        f"loop    {asked.loop_models:4d} models: {1000 * loop:8.1f} ms for one step of all",
        flush=True,
    )
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    learning = _begin(base, asked.models, matrix)
    one = learning[0]
    plan = plan_stacks(
        one.network,
        one.model.batch_size,
        networks=asked.models,
        users=asked.users,
        device=device,
        precision=asked.precision,
    )
    weights = sum(weight.numel() for weight in one.network.parameters())
    stack = StackedTrainer(learning, precision=asked.precision, at_once=plan.at_once)
    stacked = _seconds_per_step([stack], asked.epochs, steps)
    print(
        f"stacked {asked.models:4d} models: {1000 * stacked:8.1f} ms for one step of all ({asked.precision})"
    )
    ratio = loop / asked.loop_models / (stacked / asked.models)
    print(f"stacked is {ratio:.1f} times as fast per model")
    if device.type == "cuda":
        print(
            f"planned {readable_bytes(plan.device_bytes)} with the copy of the best epoch, which is not made here;"
        )
        print(f"peak device memory {readable_bytes(torch.cuda.max_memory_allocated())}")
    del stack, learning, one
    limit = _limit(asked, weights, base.batch_size, device)
    print(
        f"limit by measured traffic and products: {1000 * limit:.1f} ms; the step takes {stacked / limit:.1f} × that"
    )
    print(
        f"peak host memory {readable_bytes(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)}"
    )


def random_histories(users: int, items: int, history: int) -> csr_array:
    """Histories of one length, drawn without regard to anything."""
    rng = stream(0, "stacked benchmark")
    columns = np.concatenate([rng.choice(items, history, replace=False) for _ in range(users)])
    starts = np.arange(users + 1) * history
    return csr_array(
        (np.ones(len(columns), np.float32), columns.astype(np.int32), starts), shape=(users, items)
    )


def _begin(base: MultVAE, count: int, matrix: csr_array) -> list[AutoencoderTrainer]:
    return [
        model.begin(matrix, None) for model in copies_of(base, count, seed=0, name="local model")
    ]


def _limit(asked: argparse.Namespace, weights: int, users: int, device: torch.device) -> float:
    """Seconds to move weights and moments through memory once, and to multiply three times what the last layer has."""
    kind = (
        torch.bfloat16 if asked.precision == "bfloat16" and device.type == "cuda" else torch.float32
    )
    size = 2**28 if device.type == "cuda" else 2**25
    numbers = torch.ones(size, device=device)
    passing = _seconds(lambda: numbers.add_(1.0)) / (8 * size)  # a number is read and written
    side = 8192 if device.type == "cuda" else 2048
    square = torch.ones(side, side, device=device, dtype=kind)
    multiplying = _seconds(lambda: square @ square) / (2 * side**3)
    print(
        f"measured: {1 / passing / 1e9:,.0f} GB/s, {1 / multiplying / 1e12:,.2f} TFLOP/s in {kind}".replace(
            "torch.", ""
        )
    )
    traffic = 3 * 8 * weights * asked.models  # weights and both moments, read and written
    products = 3 * 2 * asked.models * users * 200 * asked.items
    return traffic * passing + products * multiplying


def _seconds(work: Callable[[], object]) -> float:
    work()
    _wait()
    started = time.perf_counter()
    for _ in range(5):
        work()
    _wait()
    return (time.perf_counter() - started) / 5


def _seconds_per_step(runners: Sequence[Trainer], epochs: int, steps: int) -> float:
    for runner in runners:
        runner.run_epoch()  # warm-up
    _wait()
    started = time.perf_counter()
    for _ in range(epochs):
        for runner in runners:
            runner.run_epoch()
    _wait()
    return (time.perf_counter() - started) / steps


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
