"""Greedy coverage, the paper's way to choose anchors: exact, on the CPU or on a GPU."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from loca.communities.geometry import cosine_within
from loca.deferred import torch
from loca.memory import plan_memory, readable_bytes
from loca.models.devices import choose_device, float32_products, free_bytes, has_kernels
from loca.progress import bar, say
from loca.typing import FloatArray, IntArray

if TYPE_CHECKING:  # at run time it would load torch
    Counter = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

# A neighbourhood as bits, (users / 64,), in numpy's order: the first user is the highest bit of the
# first byte.
Bits = npt.NDArray[np.uint64]
# A block of products, 8 MB, and what is made of it stay in a core's cache or near it.
_ROWS_PER_BLOCK = 512
_COLUMNS_PER_BLOCK = 4096
_ROWS_PER_COUNT = 64
_BYTES_PER_SLICE = 512
# Unpacking a member's row takes about as long as counting in this many rows' words.
_ROWS_WORTH_UNPACKING = 6
# Where more of a block is unsure than one pair in so many, one product in 64 bits is cheaper than
# pair after pair.
_PAIRS_PER_UNSURE = 256
_DEVICE_BLOCK_BYTES = 1_000_000_000
# 64-bit product, flag, and the flag again as a byte while eight become one.
_DEVICE_BYTES_PER_PAIR = 11


# -- The choice -----------------------------------------------------------------------------------


def cover_greedily(
    embeddings: FloatArray, n: int, radius: float, device: str | torch.device = "cpu"
) -> IntArray:
    """Return `n` users whose neighbourhoods together cover as many users as possible, greedily.

    Each step takes the user whose neighbourhood {distance < radius} holds the most users not yet
    covered. All users are candidates; ties go to the lower row. When all are covered, the covered
    set is emptied and the choosing goes on. Every candidate's gain is known at every step, so the
    choice is exact, and the same on every device.
    """
    neighbourhoods = neighbourhoods_of(embeddings, radius, choose_device(str(device)))
    everybody = _bits_of_all(len(embeddings))
    sizes = neighbourhoods.count_in(everybody)
    gains = sizes.copy()
    uncovered = everybody
    chosen: list[int] = []
    with bar("anchors by coverage", n) as progress:
        while len(chosen) < n:
            gains[chosen] = -1
            chosen.append(int(gains.argmax()))  # the first of the largest
            newly_covered = uncovered & neighbourhoods.of(chosen[-1])
            uncovered = uncovered & ~newly_covered
            n_uncovered = int(np.bitwise_count(uncovered).sum())
            if n_uncovered == 0:
                gains = sizes.copy()
                uncovered = everybody
            elif int(np.bitwise_count(newly_covered).sum()) < n_uncovered:
                # Count whichever set is smaller: the newly covered, or the rest.
                gains -= neighbourhoods.count_in(newly_covered)
            else:
                gains = neighbourhoods.count_in(uncovered)
            progress.advance()
    return np.array(chosen, dtype=np.int64)


def _bits_of_all(n_users: int) -> Bits:
    flags = np.zeros(words_for(n_users) * 64, dtype=np.bool_)
    flags[:n_users] = True
    return np.packbits(flags).view(np.uint64)


class Neighbourhoods(Protocol):
    """The users within a radius of each user."""

    def of(self, user: int) -> Bits:
        """Return the neighbourhood of one user, (users / 64,)."""

    def count_in(self, members: Bits) -> IntArray:
        """Return how many of the members are in each user's neighbourhood, (users,)."""


def neighbourhoods_of(
    embeddings: FloatArray, radius: float, device: torch.device
) -> Neighbourhoods:
    """Return all neighbourhoods on a device; on the CPU where that has too little room."""
    if device.type != "cuda":
        return HostNeighbourhoods(embeddings, radius)
    needed = bytes_on_device(*embeddings.shape)
    free = free_bytes(device)
    users = f"{len(embeddings):,} users"
    message = f"greedy coverage over {users}: {readable_bytes(needed)} needed on {device}"
    if needed > free:
        say(f"{message}, {readable_bytes(free)} are free there; done on the CPU")
        return HostNeighbourhoods(embeddings, radius)
    say(message)
    try:
        return DeviceNeighbourhoods(embeddings, radius, device)
    except torch.OutOfMemoryError:
        # Another program took it meanwhile, or it is free only in pieces.
        say(f"{message}, more than there was; done on the CPU")
        return HostNeighbourhoods(embeddings, radius)


# -- In main memory -------------------------------------------------------------------------------


class HostNeighbourhoods:
    """Hold the neighbourhoods in main memory, (users, users / 64): bit v of row u says v is near u.

    While they are made, torch computes with one thread a block in the whole process: other threads
    of the program that use torch meanwhile do so too.
    """

    def __init__(self, embeddings: FloatArray, radius: float) -> None:
        self._n_users = len(embeddings)
        plan_memory(
            f"greedy coverage over {self._n_users:,} users",
            bytes_of_bits(self._n_users),
            "choose anchors by 'kmeans', 'farthest' or 'random'",
        )
        self._bits = np.zeros((self._n_users, words_for(self._n_users)), dtype=np.uint64)
        self._n_threads = torch.get_num_threads()
        # torch.mm needs arrays that it may write to, though it only reads them.
        self._fill(np.require(embeddings, np.float32, ["C", "W"]), cosine_within(radius))
        users = np.arange(self._n_users)  # rounding must not part a user from itself
        self._bits.view(np.uint8)[users, users // 8] |= (128 >> users % 8).astype(np.uint8)

    def of(self, user: int) -> Bits:
        """Return the neighbourhood of one user, (users / 64,)."""
        return np.asarray(self._bits[user])

    def count_in(self, members: Bits) -> IntArray:
        """Return how many of the members are in each user's neighbourhood, (users,)."""
        rows = np.flatnonzero(np.unpackbits(members.view(np.uint8)))
        counts = np.zeros(self._bits.shape[1] * 64, dtype=np.int64)

        def count_words(start: int) -> None:
            """Count set bits for a block of users."""
            common = self._bits[start : start + _ROWS_PER_COUNT] & members  # (users, words)
            stop = start + len(common)
            np.bitwise_count(common).sum(axis=1, dtype=np.int64, out=counts[start:stop])

        def add_rows(start: int) -> None:
            """Add up the members' rows for a slice of users: nearness is mutual."""
            stop = start + _BYTES_PER_SLICE
            packed = self._bits.view(np.uint8)
            for first in range(0, len(rows), 255):  # as many as a byte can count
                flags = np.unpackbits(packed[rows[first : first + 255], start:stop], axis=1)
                counts[8 * start : 8 * stop] += np.add.reduce(flags, axis=0, dtype=np.uint8)

        with ThreadPoolExecutor(self._n_threads) as pool:
            if len(rows) * _ROWS_WORTH_UNPACKING < self._n_users:
                list(pool.map(add_rows, range(0, self._bits.shape[1] * 8, _BYTES_PER_SLICE)))
            else:
                list(pool.map(count_words, range(0, self._n_users, _ROWS_PER_COUNT)))
        return counts[: self._n_users]

    def _fill(self, embeddings: FloatArray, least_cosine: float) -> None:
        """Write all bits, with one thread a block: comparing and packing too run on all cores."""

        def fill_block(start: int) -> None:
            self._fill_block(embeddings, least_cosine, start)

        # The number of threads belongs partly to the process and partly to the thread: each worker
        # sets it.
        pool = ThreadPoolExecutor(self._n_threads, initializer=torch.set_num_threads, initargs=(1,))
        try:
            with float32_products(), pool:
                list(pool.map(fill_block, range(0, self._n_users, _ROWS_PER_BLOCK)))
        finally:
            torch.set_num_threads(self._n_threads)

    def _fill_block(self, embeddings: FloatArray, least_cosine: float, start: int) -> None:
        """Write the bits of a block of users, columns block by block.

        The few 32-bit products that are nearer to the limit than they can be wrong by are worked
        out again in 64 bits. So the result is mutual, and up to the rounding of 64 bits depends
        neither on the shape of the blocks nor on the device.
        """
        mine = embeddings[start : start + _ROWS_PER_BLOCK]
        wrong_by = product_error_bound(mine.shape[1])
        buffer = torch.empty(len(mine) * _COLUMNS_PER_BLOCK)
        packed = self._bits.view(np.uint8)[start : start + len(mine)]
        for left in range(0, self._n_users, _COLUMNS_PER_BLOCK):
            others = embeddings[left : left + _COLUMNS_PER_BLOCK]
            product = buffer[: len(mine) * len(others)].view(len(mine), len(others))
            torch.mm(torch.from_numpy(mine), torch.from_numpy(others).T, out=product)
            cosines = product.numpy()
            is_near = cosines > np.float32(least_cosine + wrong_by)
            may_be_near = cosines > np.float32(least_cosine - wrong_by)
            unsure = np.flatnonzero(is_near != may_be_near)
            if len(unsure) * _PAIRS_PER_UNSURE > is_near.size:
                is_near = mine.astype(np.float64) @ others.astype(np.float64).T > least_cosine
            else:
                rows, columns = np.divmod(unsure, len(others))
                exact = np.einsum(
                    "ij,ij->i", mine[rows].astype(np.float64), others[columns].astype(np.float64)
                )
                is_near.ravel()[unsure] = exact > least_cosine
            bytes_of_block = np.packbits(is_near, axis=1)
            packed[:, left // 8 : left // 8 + bytes_of_block.shape[1]] = bytes_of_block


def product_error_bound(dimensions: int) -> float:
    """Return by how much a 32-bit product of two unit rows can be wrong, with its comparison.

    With u = 2⁻²⁴, a sum of d products in any order is wrong by at most γ · Σ |x_i y_i|, which is
    at most γ · ‖x‖ · ‖y‖, where γ = d u / (1 − d u) (Higham, Accuracy and Stability of Numerical
    Algorithms, section 3.1). For d ≤ 4,096, d² u ≤ 1 and γ ≤ (d + 1.1) u. Rows of length 1 in 32
    bits are longer by at most (d / 2 + 3) u, which adds less than 1.1 u to that. The limit that is
    compared with is rounded by at most u. Altogether it is less than (d + 4) u, if products are
    plain 32-bit ones, as `float32_products` makes them.
    """
    return (dimensions + 4) * 2.0**-24


# -- On a GPU -------------------------------------------------------------------------------------


class DeviceNeighbourhoods:
    """Hold the neighbourhoods on a device, (users, users / 64): bit v of row u says v is near u."""

    def __init__(
        self,
        embeddings: FloatArray,
        radius: float,
        device: torch.device,
        block_bytes: int = _DEVICE_BLOCK_BYTES,
    ) -> None:
        n_users = len(embeddings)
        n_words = words_for(n_users)
        self._bits = torch.empty((n_users, n_words), dtype=torch.int64, device=device)
        self._block = max(1, block_bytes // (8 * n_users))
        # 64 bits: no rounding of a 32-bit product, least of all tf32's, decides who is a neighbour.
        rows = torch.tensor(embeddings, dtype=torch.float64, device=device)
        flags_shape = (min(self._block, n_users), n_words * 64)
        flags = torch.zeros(flags_shape, dtype=torch.bool, device=device)
        bit_values = torch.tensor([128, 64, 32, 16, 8, 4, 2, 1], dtype=torch.uint8, device=device)
        for start in range(0, n_users, self._block):
            mine = rows[start : start + self._block]
            is_near = flags[: len(mine)]
            torch.gt(mine @ rows.T, cosine_within(radius), out=is_near[:, :n_users])
            itself = torch.arange(len(mine), device=device)
            is_near[itself, itself + start] = True  # rounding must not part a user from itself
            bits = is_near.view(torch.uint8).view(len(mine), -1, 8) * bit_values
            packed = bits.sum(dim=2, dtype=torch.uint8)  # (rows, bytes)
            self._bits[start : start + self._block] = packed.view(torch.int64)
        self._count_by_triton = triton_counter(self._bits)

    def of(self, user: int) -> Bits:
        """Return the neighbourhood of one user, (users / 64,)."""
        return self._bits[user].cpu().numpy().view(np.uint64)

    def count_in(self, members: Bits) -> IntArray:
        """Return how many of the members are in each user's neighbourhood, (users,)."""
        words = torch.tensor(members.view(np.int64), device=self._bits.device)
        if self._count_by_triton is not None:
            return self._count_by_triton(self._bits, words).cpu().numpy()
        blocks = torch.split(self._bits, self._block)
        counts = [set_bits(rows & words).sum(dim=1) for rows in blocks]
        return torch.cat(counts).cpu().numpy()


def triton_counter(bits: torch.Tensor) -> Counter | None:
    """Return `count_common` after a trial on one row; None where Triton cannot compile it.

    Triton builds its launcher with a C compiler, which a machine may lack.
    """
    if not has_kernels(bits.device):
        return None
    try:
        from loca.communities.common_bits_triton import count_common

        count_common(bits[:1], bits[0])
    except torch.OutOfMemoryError:
        raise
    except (ImportError, OSError, RuntimeError, subprocess.SubprocessError) as failure:
        # A missing compiler is a RuntimeError, one that fails a SubprocessError.
        reason = type(failure).__name__
        say(f"greedy coverage: no Triton program ({reason}); plain torch counts instead")
        return None
    return count_common


def set_bits(words: torch.Tensor) -> torch.Tensor:
    """Return how many bits are set in each 64-bit word.

    Inside the word pairs of bits are added up, then fours, then bytes.
    """
    words = words - ((words >> 1) & 0x5555555555555555)
    words = (words & 0x3333333333333333) + ((words >> 2) & 0x3333333333333333)
    words = (words + (words >> 4)) & 0x0F0F0F0F0F0F0F0F
    return (words * 0x0101010101010101) >> 56  # the sum of all bytes, in the highest


# -- Sizes ----------------------------------------------------------------------------------------


def words_for(n_users: int) -> int:
    """Return how many words of 64 bits hold a bit for each user."""
    return -(-n_users // 64)


def bytes_of_bits(n_users: int) -> int:
    """Return how much memory all neighbourhoods take."""
    return n_users * words_for(n_users) * 8


def bytes_on_device(n_users: int, dimensions: int) -> int:
    """Return how much the neighbourhoods take on the device while they are made, at most."""
    rows_per_block = min(max(1, _DEVICE_BLOCK_BYTES // (8 * n_users)), n_users)
    block = rows_per_block * words_for(n_users) * 64 * _DEVICE_BYTES_PER_PAIR
    return bytes_of_bits(n_users) + n_users * dimensions * 8 + block
