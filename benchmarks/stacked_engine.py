"""Training many local MultVAEs: the stacked engine against the loop, and against its limit."""

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
    """Train on interactions with the shape of Amazon Digital Music; every model has all users."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=4096)
    parser.add_argument("--items", type=int, default=11_797)
    parser.add_argument("--history", type=int, default=15)
    parser.add_argument("--models", type=int, default=4)
    parser.add_argument("--loop-models", type=int, default=4, help="models to time in the loop")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--precision", default="float32", choices=["float32", "bfloat16"])
    arguments = parser.parse_args()
    matrix = random_histories(arguments.users, arguments.items, arguments.history)
    base = MultVAE(dropout=0.2, noise=0.01, kl_weight=0.0)
    device = choose_device("auto")
    n_steps = arguments.epochs * -(-arguments.users // base.batch_size)
    trainers = _begin(base, arguments.loop_models, matrix)
    loop = _seconds_per_step(trainers, arguments.epochs, n_steps)
    _print_step("loop", arguments.loop_models, loop)
    del trainers
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    trainers = _begin(base, arguments.models, matrix)
    plan = plan_stacks(
        trainers[0].network,
        base.batch_size,
        networks=arguments.models,
        users=arguments.users,
        device=device,
        precision=arguments.precision,
    )
    n_weights = sum(weight.numel() for weight in trainers[0].network.parameters())
    stack = StackedTrainer(trainers, precision=arguments.precision, at_once=plan.at_once)
    stacked = _seconds_per_step([stack], arguments.epochs, n_steps)
    _print_step("stacked", arguments.models, stacked)
    ratio = loop / arguments.loop_models / (stacked / arguments.models)
    print(f"stacked is {ratio:.1f} times as fast per model ({arguments.precision})")
    if device.type == "cuda":
        print(f"planned {readable_bytes(plan.device_bytes)}, of which a quarter of the weights'")
        print("bytes are for the copy of the best epoch, which is not made here;")
        print(f"peak device memory {readable_bytes(torch.cuda.max_memory_allocated())}")
    del stack, trainers
    limit = _limit(arguments, n_weights, base.batch_size, device)
    print(f"limit by measured traffic and products: {1000 * limit:.1f} ms")
    print(f"the step takes {stacked / limit:.1f} times that")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"peak host memory {readable_bytes(peak)}")


def _print_step(name: str, n_models: int, seconds: float) -> None:
    print(f"{name:7} {n_models:4d} models: {1000 * seconds:8.1f} ms for one step", flush=True)


def random_histories(users: int, items: int, history: int) -> csr_array:
    """Draw histories of one length."""
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


def _limit(
    arguments: argparse.Namespace, n_weights: int, n_users: int, device: torch.device
) -> float:
    """Return the seconds that traffic and products of a step take at least.

    Weights and both averages are read and written once; products are three times those of the last
    layer.
    """
    is_gpu = device.type == "cuda"
    kind = torch.bfloat16 if arguments.precision == "bfloat16" and is_gpu else torch.float32
    size = 2**28 if is_gpu else 2**25
    numbers = torch.ones(size, device=device)
    seconds_per_byte = _seconds(lambda: numbers.add_(1.0)) / (8 * size)
    side = 8192 if is_gpu else 2048
    square = torch.ones(side, side, device=device, dtype=kind)
    seconds_per_product = _seconds(lambda: square @ square) / (2 * side**3)
    bandwidth = f"{1 / seconds_per_byte / 1e9:,.0f} GB/s"
    name = str(kind).removeprefix("torch.")
    print(f"measured: {bandwidth}, {1 / seconds_per_product / 1e12:,.2f} TFLOP/s in {name}")
    n_bytes = 3 * 8 * n_weights * arguments.models
    n_products = 3 * 2 * arguments.models * n_users * 200 * arguments.items
    return n_bytes * seconds_per_byte + n_products * seconds_per_product


def _seconds(work: Callable[[], object]) -> float:
    work()
    _wait()
    started = time.perf_counter()
    for _ in range(5):
        work()
    _wait()
    return (time.perf_counter() - started) / 5


def _seconds_per_step(trainers: Sequence[Trainer], n_epochs: int, n_steps: int) -> float:
    for trainer in trainers:
        trainer.run_epoch()  # warms up
    _wait()
    started = time.perf_counter()
    for _ in range(n_epochs):
        for trainer in trainers:
            trainer.run_epoch()
    _wait()
    return (time.perf_counter() - started) / n_steps


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
