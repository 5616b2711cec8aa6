"""Products of stacked networks, in 32 or 16 bits, with rows that are aligned."""

from __future__ import annotations

import torch
from torch import Tensor

from loca.typing import Precision

# Products of 16-bit numbers are fast where every row starts at a multiple of 16 bytes; a little
# more does no harm.
_PADDED_TO = 64


def padded(n_items: int) -> int:
    """Return the number of items, rounded up to where every row of so many numbers is aligned."""
    return -(-n_items // _PADDED_TO) * _PADDED_TO


def as_factor(numbers: Tensor, precision: Precision) -> Tensor:
    """Return numbers as products take them.

    Processors differ in how they multiply 16-bit numbers, so on a CPU they are only rounded.
    """
    if precision == "float32":
        return numbers
    rounded = numbers.bfloat16()
    return rounded.float() if numbers.device.type == "cpu" else rounded


def with_padding(table: Tensor, precision: Precision) -> Tensor:
    """Return a table as a factor; on a GPU with rows added, so that those of logits are aligned."""
    if table.device.type == "cpu":
        return as_factor(table, precision)
    kind = torch.float32 if precision == "float32" else torch.bfloat16
    n_networks, n_items, width = table.shape
    aligned = table.new_empty(n_networks, padded(n_items), width, dtype=kind)
    aligned[:, :n_items] = table
    aligned[:, n_items:] = 0
    return aligned


def product(left: Tensor, right: Tensor) -> Tensor:
    """Return the batched product, with 32-bit sums."""
    if left.dtype == torch.float32:
        return torch.bmm(left, right)
    return torch.bmm(left, right, out_dtype=torch.float32)
