"""The first layer of stacked networks, from histories to codes and back: by table rows, or as dense products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn import functional as F

from loca.local.stacked_arithmetic import (
    AdamStep,
    Entries,
    Moments,
    PrecisionName,
    as_factor,
    padded,
    product,
    with_padding,
)

# From so many filled places of users × items on, a GPU multiplies everything sooner than it gathers what is there.
_DENSE_SHARES: dict[PrecisionName, float] = {"float32": 0.03, "bfloat16": 0.01}


class Inputs(Protocol):
    """The shown items of some networks' batches."""

    def codes(self, tables: Tensor) -> Tensor:
        """Σ input · table row over every user's items, (networks, users, width)."""
        ...

    def learn(self, adam: AdamStep, moments: Moments, gradients: Tensor) -> None:
        """Changes the tables by what the gradients of the codes, (networks, users, width), ask of them."""
        ...


def multiplies_densely(matrix: csr_array, device: torch.device, precision: PrecisionName) -> bool:
    """Whether these histories fill so much of users × items that they are multiplied as dense arrays.

    Those with an item twice are not: an array has one place for it.
    """
    users, items = matrix.shape
    is_full = matrix.nnz >= _DENSE_SHARES[precision] * users * items
    return device.type == "cuda" and is_full and bool(matrix.sorted_indices().has_canonical_format)


@dataclass(frozen=True)
class GatheredInputs:
    """Reads and changes the rows of the tables that the entries name."""

    entries: Entries

    def codes(self, tables: Tensor) -> Tensor:
        networks, items, width = tables.shape
        # A dropped entry adds nothing whichever row it reads: all of a network read its first, which is then at hand.
        rows = self.entries.keys(items) - self.entries.columns * (self.entries.inputs == 0)
        sums = F.embedding_bag(
            rows, tables.flatten(0, 1), self.entries.starts[:-1], mode="sum", per_sample_weights=self.entries.inputs
        )
        return sums.view(networks, -1, width)

    def learn(self, adam: AdamStep, moments: Moments, gradients: Tensor) -> None:
        adam.on_table(moments, gradients.flatten(0, 1), self.entries)


@dataclass(frozen=True)
class DenseInputs:
    """Lays all inputs out as (networks, users, items) and multiplies, in the precision of the other products."""

    entries: Entries
    precision: PrecisionName

    def codes(self, tables: Tensor) -> Tensor:
        rows = with_padding(tables, self.precision)
        return product(self._laid_out(rows.shape[1]), rows)

    def learn(self, adam: AdamStep, moments: Moments, gradients: Tensor) -> None:
        shown = self._laid_out(padded(moments.weights.shape[1]))
        adam.on_dense(moments, product(shown.transpose(1, 2), as_factor(gradients, self.precision)))

    def _laid_out(self, width: int) -> Tensor:
        """In rows of `width`; made for each of both products: between them the logits need the room."""
        networks, users = self.entries.amounts.shape
        inputs = as_factor(self.entries.inputs, self.precision)
        laid = inputs.new_zeros(networks, users, width)
        laid.view(-1)[self.entries.owner * width + self.entries.columns] = inputs
        return laid
