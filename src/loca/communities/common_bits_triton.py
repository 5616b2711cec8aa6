"""Counts of the bits that rows of words share with one more row, in one pass on a GPU by Triton."""

from __future__ import annotations

import importlib
from typing import Any

import torch

triton: Any = importlib.import_module("triton")
tl: Any = importlib.import_module("triton.language")
_WORDS_PER_PASS = 512


def count_common(bits: torch.Tensor, members: torch.Tensor) -> torch.Tensor:
    """Return how many bits each row of `bits` (rows, words) shares with `members` (words,).

    Words have 64 bits; the result is (rows,).
    """
    counts = torch.empty(len(bits), dtype=torch.int64, device=bits.device)
    with torch.cuda.device_of(bits):  # type: ignore[no-untyped-call]
        n_words = bits.shape[1]
        _program[(len(bits),)](bits, members, counts, n_words, WORDS_PER_PASS=_WORDS_PER_PASS)
    return counts


def _count_row(  # type: ignore[no-untyped-def]
    bits, members, counts, n_words, WORDS_PER_PASS: tl.constexpr
):
    """Count one row a program; the sums inside a word are those of `set_bits`."""
    row = tl.program_id(0).to(tl.int64)
    places = tl.arange(0, WORDS_PER_PASS)
    total = tl.zeros([WORDS_PER_PASS], dtype=tl.int64)
    for start in range(0, n_words, WORDS_PER_PASS):
        inside = start + places < n_words
        mine = tl.load(bits + row * n_words + start + places, mask=inside, other=0)
        words = mine & tl.load(members + start + places, mask=inside, other=0)
        words = words - ((words >> 1) & 0x5555555555555555)
        words = (words & 0x3333333333333333) + ((words >> 2) & 0x3333333333333333)
        words = (words + (words >> 4)) & 0x0F0F0F0F0F0F0F0F
        total += (words * 0x0101010101010101) >> 56
    tl.store(counts + row, tl.sum(total, axis=0))


_program = triton.jit(_count_row)
