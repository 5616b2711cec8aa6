"""Greedy coverage, the paper's way to choose anchors: exact, on the CPU or on a GPU."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from loca.communities.geometry import cosine_within
from loca.deferred import torch
from loca.memory import plan_memory, readable_bytes
from loca.models.devices import choose_device, free_bytes, has_kernels
from loca.progress import bar, say
from loca.typing import FloatArray, IntArray

# A neighbourhood as bits, (users / 64,), in numpy's order: the first user is the highest bit of the first byte.
Bits = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.int64]
# A block of products, 8 MB, and what is made of it stay in a core's cache or near it.
_ROWS_PER_BLOCK = 512
_COLUMNS_PER_BLOCK = 4096
_ROWS_PER_COUNT = 64
_BYTES_PER_SLICE = 512
# Unpacking a member's row takes about as long as counting in this many rows' words.
_ROWS_WORTH_UNPACKING = 6
# Where more of a block is unsure than one in so many, one product in 64 bits is cheaper than pair after pair.
_PAIRS_PER_UNSURE = 256
_DEVICE_BLOCK_BYTES = 1_000_000_000
# 64-bit product, flag, and the flag again as a byte while eight become one.
_DEVICE_BYTES_PER_PAIR = 11
ADVICE = "take Kernels(anchors='kmeans'), 'farthest' or 'random'"


def cover_greedily(
    embeddings: FloatArray, count: int, bandwidth: float, device: str | torch.device = "cpu"
) -> IntArray:
    """Each step takes the user whose neighbourhood {distance < bandwidth} holds the most users not yet covered.

    All users are candidates; ties go to the lower row; when all are covered the covered set is emptied and the
    choosing goes on. Exact, and the same on every device: every candidate's gain is known at every step. A step
    counts either the newly covered, whom a gain loses, or those still uncovered, who are the gain: the fewer.
    """
    place, found = choose_device(str(device)), None
    if place.type == "cuda":
        needed, free = bytes_on_device(*embeddings.shape), free_bytes(place)
        message = f"greedy coverage over {len(embeddings):,} users: {readable_bytes(needed)} needed on {place}"
        if needed <= free:
            say(message)
            try:
                found = DeviceNeighbourhoods(embeddings, bandwidth, place)
            except (
                torch.OutOfMemoryError
            ):  # another program took it meanwhile, or it is free only in pieces
                say(f"{message}, more than there was; done on the CPU")
        else:
            say(f"{message}, {readable_bytes(free)} are free there; done on the CPU")
    neighbourhoods = HostNeighbourhoods(embeddings, bandwidth) if found is None else found
    flags = np.zeros(words_for(len(embeddings)) * 64, dtype=np.bool_)
    flags[: len(embeddings)] = True
    everyone = np.packbits(flags).view(np.uint64)
    sizes = neighbourhoods.count_in(everyone)
    gains, uncovered = sizes.copy(), everyone
    chosen: list[int] = []
    with bar("anchors by coverage", count) as progress:
        while len(chosen) < count:
            gains[chosen] = -1
            chosen.append(int(gains.argmax()))  # the first of the largest
            fresh = uncovered & neighbourhoods.of(chosen[-1])
            uncovered = uncovered & ~fresh
            left = int(np.bitwise_count(uncovered).sum())
            if left == 0:
                gains, uncovered = sizes.copy(), everyone
            elif np.bitwise_count(fresh).sum() < left:
                gains -= neighbourhoods.count_in(fresh)
            else:
                gains = neighbourhoods.count_in(uncovered)
            progress.advance()
    return np.array(chosen, dtype=np.int64)


class HostNeighbourhoods:
    """Bit v of row u says whether user v is within the bandwidth of user u, (users, users / 64), in main memory."""

    def __init__(self, embeddings: FloatArray, bandwidth: float) -> None:
        self._users = len(embeddings)
        plan_memory(
            f"greedy coverage over {self._users:,} users", bytes_of_bits(self._users), ADVICE
        )
        self._bits = np.zeros((self._users, words_for(self._users)), dtype=np.uint64)
        self._threads = torch.get_num_threads()
        # torch.mm needs arrays that it may write to, though it only reads them.
        rows = np.require(embeddings, np.float32, ["C", "W"])
        starts = range(0, self._users, _ROWS_PER_BLOCK)
        # One thread a block: comparing and packing then run on all cores too, not the products alone. Each worker
        # says so itself, because the count of threads belongs partly to the process and partly to the thread.
        try:
            with ThreadPoolExecutor(
                self._threads, initializer=torch.set_num_threads, initargs=(1,)
            ) as pool:
                list(
                    pool.map(
                        lambda start: self._fill(rows, cosine_within(bandwidth), start), starts
                    )
                )
        finally:
            torch.set_num_threads(self._threads)
        users = np.arange(self._users)  # rounding must not part a user from itself
        self._bits.view(np.uint8)[users, users // 8] |= (128 >> users % 8).astype(np.uint8)

    def of(self, user: int) -> Bits:
        """The neighbourhood of one user, (users / 64,)."""
        return np.asarray(self._bits[user])

    def count_in(self, members: Bits) -> Counts:
        """How many of the members are in each user's neighbourhood, (users,)."""
        rows = np.flatnonzero(np.unpackbits(members.view(np.uint8)))
        counts = np.zeros(self._bits.shape[1] * 64, dtype=np.int64)

        def count_words(start: int) -> None:
            """Count set bits for a block of users."""
            common = self._bits[start : start + _ROWS_PER_COUNT] & members  # (users, words)
            np.bitwise_count(common).sum(
                axis=1, dtype=np.int64, out=counts[start : start + len(common)]
            )

        def add_rows(start: int) -> None:
            """Add up the members' rows for a slice of users: being within a bandwidth is mutual."""
            stop = start + _BYTES_PER_SLICE
            for first in range(0, len(rows), 255):  # as many as a byte can count
                flags = np.unpackbits(
                    self._bits.view(np.uint8)[rows[first : first + 255], start:stop], axis=1
                )
                counts[8 * start : 8 * stop] += np.add.reduce(flags, axis=0, dtype=np.uint8)

        with ThreadPoolExecutor(self._threads) as pool:
            if len(rows) * _ROWS_WORTH_UNPACKING < self._users:
                list(pool.map(add_rows, range(0, self._bits.shape[1] * 8, _BYTES_PER_SLICE)))
            else:
                list(pool.map(count_words, range(0, self._users, _ROWS_PER_COUNT)))
        return counts[: self._users]

    def _fill(self, embeddings: FloatArray, nearest_cosine: float, start: int) -> None:
        """Write the bits of a block of users, columns block by block, as 64-bit arithmetic would have them.

        What a 32-bit product of unit rows can be wrong by is known. The few that lie nearer than that to the limit are
        worked out again, so that the result depends neither on the shape of the blocks nor on the device, and is
        mutual.
        """
        mine = embeddings[start : start + _ROWS_PER_BLOCK]
        wrong_by = (mine.shape[1] + 4) * 2.0**-24
        buffer = torch.empty(len(mine) * _COLUMNS_PER_BLOCK)
        packed = self._bits.view(np.uint8)[start : start + len(mine)]
        for left in range(0, self._users, _COLUMNS_PER_BLOCK):
            others = embeddings[left : left + _COLUMNS_PER_BLOCK]
            product = buffer[: len(mine) * len(others)].view(len(mine), len(others))
            cosines = torch.mm(
                torch.from_numpy(mine), torch.from_numpy(others).T, out=product
            ).numpy()
            within = cosines > np.float32(nearest_cosine + wrong_by)
            unsure = np.flatnonzero(within != (cosines > np.float32(nearest_cosine - wrong_by)))
            if len(unsure) * _PAIRS_PER_UNSURE > within.size:
                within = mine.astype(np.float64) @ others.astype(np.float64).T > nearest_cosine
            else:
                first, second = np.divmod(unsure, len(others))
                exact = np.einsum(
                    "ij,ij->i", mine[first].astype(np.float64), others[second].astype(np.float64)
                )
                within.ravel()[unsure] = exact > nearest_cosine
            part = np.packbits(within, axis=1)
            packed[:, left // 8 : left // 8 + part.shape[1]] = part


class DeviceNeighbourhoods:
    """Bit v of row u says whether user v is within the bandwidth of user u, (users, users / 64), on the device."""

    def __init__(
        self,
        embeddings: FloatArray,
        bandwidth: float,
        device: torch.device,
        block_bytes: int = _DEVICE_BLOCK_BYTES,
    ) -> None:
        users, words = len(embeddings), words_for(len(embeddings))
        self.has_kernel = has_kernels(device)
        self._bits = torch.empty((users, words), dtype=torch.int64, device=device)
        self._block = max(1, block_bytes // (8 * users))
        # 64 bits: no rounding of a 32-bit product, least of all tf32's, decides who is a neighbour.
        rows = torch.tensor(embeddings, dtype=torch.float64, device=device)
        flags = torch.zeros((min(self._block, users), words * 64), dtype=torch.bool, device=device)
        places = torch.tensor([128, 64, 32, 16, 8, 4, 2, 1], dtype=torch.uint8, device=device)
        for start in range(0, users, self._block):
            mine = rows[start : start + self._block]
            within = flags[: len(mine)]
            torch.gt(mine @ rows.T, cosine_within(bandwidth), out=within[:, :users])
            own = torch.arange(len(mine), device=device)
            within[own, own + start] = True  # rounding must not part a user from itself
            packed = (within.view(torch.uint8).view(len(mine), -1, 8) * places).sum(
                dim=2, dtype=torch.uint8
            )
            self._bits[start : start + self._block] = packed.view(
                torch.int64
            )  # (rows, bytes) -> (rows, words)

    def of(self, user: int) -> Bits:
        """The neighbourhood of one user, (users / 64,)."""
        return self._bits[user].cpu().numpy().view(np.uint64)

    def count_in(self, members: Bits) -> Counts:
        """How many of the members are in each user's neighbourhood, (users,)."""
        words = torch.tensor(members.view(np.int64), device=self._bits.device)
        if self.has_kernel:
            try:
                from loca.communities.count_kernel import count_common

                return count_common(self._bits, words).cpu().numpy()
            except (ImportError, OSError, RuntimeError) as failure:
                # Triton builds its launcher with a C compiler, which a machine may lack.
                say(
                    f"greedy coverage: no Triton kernel ({type(failure).__name__}); plain torch counts instead"
                )
                self.has_kernel = False
        counts = [
            set_bits(rows & words).sum(dim=1) for rows in torch.split(self._bits, self._block)
        ]
        return torch.cat(counts).cpu().numpy()


def words_for(user_count: int) -> int:
    """How many words of 64 bits hold a bit for each user."""
    return -(-user_count // 64)


def bytes_of_bits(user_count: int) -> int:
    """How much memory all neighbourhoods take."""
    return user_count * words_for(user_count) * 8


def bytes_on_device(user_count: int, dimensions: int) -> int:
    """How much memory the neighbourhoods take on the device while they are built, the largest need of all."""
    block = (
        min(max(1, _DEVICE_BLOCK_BYTES // (8 * user_count)), user_count)
        * words_for(user_count)
        * 64
    )
    return bytes_of_bits(user_count) + user_count * dimensions * 8 + block * _DEVICE_BYTES_PER_PAIR


def set_bits(words: torch.Tensor) -> torch.Tensor:
    """How many bits are set in each 64-bit word: pairs, then fours, then bytes are added up inside the word."""
    words = words - ((words >> 1) & 0x5555555555555555)
    words = (words & 0x3333333333333333) + ((words >> 2) & 0x3333333333333333)
    words = (words + (words >> 4)) & 0x0F0F0F0F0F0F0F0F
    return (words * 0x0101010101010101) >> 56  # the sum of all bytes, in the highest
