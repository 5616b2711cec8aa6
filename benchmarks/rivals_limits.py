"""What the machine allows: LAPACK's factorisation and inverse for EASE, products and memory traffic for the network."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch
from scipy.linalg import lapack
from scipy.sparse import csr_array

from rivals_libraries import NetworkSettings

# A short product is slow until the threads are awake: at least this often and this long, but not much longer.
_TIMES = 3
_LEAST_SECONDS = 1.0
_ENOUGH_SECONDS = 15.0
# Adam reads weight, gradient and two moments and writes weight and two moments; backward writes the gradient.
_ADAM_PASSES = 8
_COPIED_NUMBERS = 64_000_000


def lapack_seconds(train: csr_array, l2: float) -> dict[str, float]:
    """Seconds of a Cholesky factorisation and the whole inverse of EASE's matrix in 32 bits, by library and step.

    Where there are fewer users than items, so also of the users × users matrix that holds the same answer.
    """
    taken = _inverse_seconds(train.T @ train, l2, "items²")
    return (
        taken
        if train.shape[0] >= train.shape[1]
        else taken | _inverse_seconds(train @ train.T, l2, "users²")
    )


def _inverse_seconds(products: csr_array, l2: float, size: str) -> dict[str, float]:
    matrix = products.toarray().astype(np.float32)
    matrix[np.diag_indices_from(matrix)] += l2
    spotrf = _seconds(lambda: lapack.spotrf(matrix.T, lower=1, clean=0))
    factor, _ = lapack.spotrf(matrix.T, lower=1, clean=0)
    spotri = _seconds(lambda: lapack.spotri(factor, lower=1))
    whole = torch.from_numpy(matrix)
    torch_factor = torch.linalg.cholesky(whole)
    torch_potrf = _seconds(lambda: torch.linalg.cholesky(whole))
    torch_potri = _seconds(lambda: torch.cholesky_inverse(torch_factor))
    return {
        f"potrf, {size}, scipy's": spotrf,
        f"potrf, {size}, torch's": torch_potrf,
        f"potrf + potri, {size}, scipy's": spotrf + spotri,
        f"potrf + potri, {size}, torch's": torch_potrf + torch_potri,
    }


def network_seconds(train: csr_array, settings: NetworkSettings) -> dict[str, float]:
    """The least seconds that training can take: its dense products at the measured rate, then the optimiser's traffic.

    The rate is that of the network's own largest product. Sparse sums, the loss and random numbers are left out.
    """
    user_count, item_count = train.shape
    steps = settings.epochs * -(-user_count // settings.batch_size)
    products = (
        settings.epochs * 3 * 2 * user_count * _multiplications(item_count, settings)
    )  # forward, two backward
    weights = item_count * (_widths(settings)[0] + _widths(settings)[1] + 1) + _inner_weights(
        settings
    )
    traffic = steps * _ADAM_PASSES * 4 * weights
    in_products = products / product_rate(settings.batch_size, _widths(settings)[1], item_count)
    return {
        "its products": in_products,
        "its products + Adam's traffic": in_products + traffic / copy_bandwidth(),
    }


def scoring_seconds(train: csr_array, settings: NetworkSettings) -> float:
    """The least seconds of scoring all items for all users: the products at the measured rate."""
    user_count, item_count = train.shape
    rate = product_rate(settings.batch_size, _widths(settings)[1], item_count)
    return 2 * user_count * _multiplications(item_count, settings) / rate


def product_rate(rows: int, inner: int, columns: int) -> float:
    """Operations a second of a 32-bit product of that shape, the best of a few."""
    left, right = torch.randn(rows, inner), torch.randn(columns, inner)
    out = torch.empty(rows, columns)
    return 2 * rows * inner * columns / _seconds(lambda: torch.mm(left, right.T, out=out))


def copy_bandwidth() -> float:
    """Bytes a second that a copy reads and writes, the best of a few."""
    source = torch.randn(_COPIED_NUMBERS)
    target = torch.empty_like(source)
    return 2 * 4 * _COPIED_NUMBERS / _seconds(lambda: target.copy_(source))


def _widths(settings: NetworkSettings) -> tuple[int, int]:
    """The widths next to the items, on the way in and on the way out."""
    return (
        (settings.hidden, settings.hidden)
        if settings.hidden
        else (2 * settings.latent, settings.latent)
    )


def _inner_weights(settings: NetworkSettings) -> int:
    return 3 * settings.hidden * settings.latent if settings.hidden else 0


def _multiplications(item_count: int, settings: NetworkSettings) -> int:
    """Of one user's way through the dense layers; the first layer is sparse and left out."""
    return item_count * _widths(settings)[1] + _inner_weights(settings)


def _seconds(work: Callable[[], object]) -> float:
    taken: list[float] = []
    while sum(taken) < (_ENOUGH_SECONDS if len(taken) < _TIMES else _LEAST_SECONDS):
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return min(taken)
