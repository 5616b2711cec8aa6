"""Who is within a bandwidth of whom, as bits that are built and counted on a GPU."""

from __future__ import annotations

import numpy as np
import torch

from loca.communities.geometry import Floats, cosine_within
from loca.communities.neighbourhoods import Bits, Counts, bytes_of_bits, words_for
from loca.models.devices import has_kernels
from loca.progress import say

_BYTES_PER_BLOCK = 1_000_000_000
# 64-bit product, flag, and the flag again as a byte while eight become one.
_BYTES_PER_PAIR = 11
_WORDS_PER_COUNT = 4_000_000


class DeviceNeighbourhoods:
    """Bit v of row u says whether user v is within the bandwidth of user u, (users, users / 64), on the device."""

    def __init__(self, embeddings: Floats, bandwidth: float, device: torch.device) -> None:
        self._users, self._words = len(embeddings), words_for(len(embeddings))
        self._bits = torch.empty((self._users, self._words), dtype=torch.int64, device=device)
        self._with_kernel = has_kernels(device)
        # 64 bits: no rounding of a 32-bit product, least of all tf32's, decides who is a neighbour.
        rows = torch.tensor(embeddings, dtype=torch.float64, device=device)
        block = _rows_per_block(self._users)
        flags = torch.zeros((min(block, self._users), self._words * 64), dtype=torch.bool, device=device)
        places = torch.tensor([128, 64, 32, 16, 8, 4, 2, 1], dtype=torch.uint8, device=device)
        for start in range(0, self._users, block):
            mine = rows[start : start + block]
            within = flags[: len(mine)]
            torch.gt(mine @ rows.T, cosine_within(bandwidth), out=within[:, : self._users])
            own = torch.arange(len(mine), device=device)
            within[own, own + start] = True  # rounding must not part a user from itself
            packed = (within.view(torch.uint8).view(len(mine), -1, 8) * places).sum(dim=2, dtype=torch.uint8)
            self._bits[start : start + block] = packed.view(torch.int64)  # (rows, bytes) -> (rows, words)

    def of(self, user: int) -> Bits:
        """The neighbourhood of one user, (users / 64,)."""
        return self._bits[user].cpu().numpy().view(np.uint64)

    def count_in(self, members: Bits) -> Counts:
        """How many of the members are in each user's neighbourhood, (users,)."""
        words = torch.tensor(members.view(np.int64), device=self._bits.device)
        if self._with_kernel:
            try:
                from loca.communities.count_kernel import count_common

                return count_common(self._bits, words).cpu().numpy()
            except (ImportError, OSError, RuntimeError) as failure:
                # Triton builds its launcher with a C compiler, which a machine may lack.
                say(f"greedy coverage: no Triton kernel ({type(failure).__name__}); plain torch counts instead")
                self._with_kernel = False
        block = max(1, _WORDS_PER_COUNT // self._words)
        starts = range(0, self._users, block)
        parts = [set_bits(self._bits[start : start + block] & words).sum(dim=1) for start in starts]
        return torch.cat(parts).cpu().numpy()


def set_bits(words: torch.Tensor) -> torch.Tensor:
    """How many bits are set in each 64-bit word: pairs, then fours, then bytes are added up inside the word."""
    words = words - ((words >> 1) & 0x5555555555555555)
    words = (words & 0x3333333333333333) + ((words >> 2) & 0x3333333333333333)
    words = (words + (words >> 4)) & 0x0F0F0F0F0F0F0F0F
    return (words * 0x0101010101010101) >> 56  # the sum of all bytes, in the highest


def bytes_on_device(user_count: int, dimensions: int) -> int:
    """How much memory the neighbourhoods take on the device while they are built, the largest need of all."""
    block = min(_rows_per_block(user_count), user_count) * words_for(user_count) * 64
    return bytes_of_bits(user_count) + user_count * dimensions * 8 + block * _BYTES_PER_PAIR


def _rows_per_block(user_count: int) -> int:
    return max(1, _BYTES_PER_BLOCK // (8 * user_count))
