"""Counting the bits that rows of words have in common with one more row, as one pass on a GPU; needs Triton."""

from __future__ import annotations

import importlib
from typing import Any

import torch

triton: Any = importlib.import_module("triton")
tl: Any = importlib.import_module("triton.language")
_WORDS_PER_PASS = 512


def count_common(bits: torch.Tensor, members: torch.Tensor) -> torch.Tensor:
    """How many bits each row of `bits` (rows, words) shares with `members` (words,), both 64-bit words, (rows,)."""
    counts = torch.empty(len(bits), dtype=torch.int64, device=bits.device)
    with torch.cuda.device_of(bits):  # type: ignore[no-untyped-call]
        _kernel[(len(bits),)](bits, members, counts, bits.shape[1], WORDS_PER_PASS=_WORDS_PER_PASS)
    return counts


def _count_row(bits, members, counts, word_count, WORDS_PER_PASS: tl.constexpr):  # type: ignore[no-untyped-def]
    """One program counts one row; the sums inside a word are those of `set_bits`."""
    row = tl.program_id(0).to(tl.int64)
    places = tl.arange(0, WORDS_PER_PASS)
    total = tl.zeros([WORDS_PER_PASS], dtype=tl.int64)
    for start in range(0, word_count, WORDS_PER_PASS):
        inside = start + places < word_count
        mine = tl.load(bits + row * word_count + start + places, mask=inside, other=0)
        words = mine & tl.load(members + start + places, mask=inside, other=0)
        words = words - ((words >> 1) & 0x5555555555555555)
        words = (words & 0x3333333333333333) + ((words >> 2) & 0x3333333333333333)
        words = (words + (words >> 4)) & 0x0F0F0F0F0F0F0F0F
        total += (words * 0x0101010101010101) >> 56
    tl.store(counts + row, tl.sum(total, axis=0))


_kernel = triton.jit(_count_row)
