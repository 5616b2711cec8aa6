"""The first layer of stacked networks: a sum of table rows over the items of each history."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn import functional as F

from loca.local.engines.stacked.adam_state import Gradient, RowsGradient
from loca.local.engines.stacked.dispatch import kernels_on
from loca.local.engines.stacked.products import as_factor, padded, product, with_padding
from loca.typing import Precision

# Where so large a share of users × items is stored, a GPU multiplies everything sooner than it
# gathers what is there.
_DENSE_SHARES: dict[Precision, float] = {"float32": 0.03, "bfloat16": 0.01}
# Of trained networks, in products with all bits and with fewer (tf32).
DENSE_SHARE_FLOAT32 = 0.03
DENSE_SHARE_TF32 = 0.01


@dataclass(frozen=True)
class Entries:
    """The stored entries of some networks' batches, one after the other.

    Parameters
    ----------
    owner : Tensor
        Of every entry the number network · users + user.
    columns, values : Tensor
        Its item, and its value as a target.
    inputs : Tensor
        Its value as an input, after dropout.
    starts : Tensor
        Where the entries of each owner begin, and the end, (networks · users + 1,).
    amounts : Tensor
        The sum of each user's values, (networks, users).
    """

    owner: Tensor
    columns: Tensor
    values: Tensor
    inputs: Tensor
    starts: Tensor
    amounts: Tensor

    def sums_of(self, numbers: Tensor) -> Tensor:
        """Return the sum of each user's numbers, one for every entry, (networks, users)."""
        return sums_between(self.starts, numbers).view_as(self.amounts)

    def keys(self, n_items: int) -> Tensor:
        """Return the row network · items + item of every entry in tables that follow each other."""
        return self.owner // self.amounts.shape[1] * n_items + self.columns


def sums_between(starts: Tensor, numbers: Tensor) -> Tensor:
    """Return the sums of numbers from each start to the next, always added in the same order."""
    return torch.segment_reduce(numbers, "sum", offsets=starts, initial=0)


def multiplies_densely(matrix: csr_array, device: torch.device, precision: Precision) -> bool:
    """Return whether a device multiplies histories as dense arrays, in a precision of training."""
    return fills_densely(matrix, device, _DENSE_SHARES[precision])


def fills_densely(matrix: csr_array, device: torch.device, least_share: float) -> bool:
    """Return whether histories fill so large a share of users × items on a GPU.

    Those with an item twice do not: an array has one place for it.
    """
    n_users, n_items = matrix.shape
    is_full = matrix.nnz >= least_share * n_users * n_items
    return device.type == "cuda" and is_full and bool(matrix.sorted_indices().has_canonical_format)


@dataclass(frozen=True)
class GatheredInputs:
    """Inputs of which the rows of the tables are gathered that the entries name."""

    entries: Entries

    def codes(self, tables: Tensor) -> Tensor:
        """Return Σ input · table row over every user's items, (networks, users, width)."""
        n_networks, n_items, _ = tables.shape
        # A dropped entry adds nothing whichever row it reads: all of a network read its first,
        # which is then at hand.
        is_dropped = self.entries.inputs == 0
        sums = F.embedding_bag(
            self.entries.keys(n_items) - self.entries.columns * is_dropped,
            tables.flatten(0, 1),
            self.entries.starts[:-1],
            mode="sum",
            per_sample_weights=self.entries.inputs,
        )
        return sums.view(n_networks, -1, tables.shape[2])

    def gradient(self, codes: Tensor, n_items: int) -> Gradient:
        """Return the gradient of the tables from that of the codes, (networks, users, width)."""
        n_networks, _, width = codes.shape
        keys = self.entries.keys(n_items)
        kernels = kernels_on(codes.device)
        if kernels is not None:
            order, starts = kernels.sorted_rows(self.entries.inputs, keys, n_networks * n_items)
            return RowsGradient(
                codes.flatten(0, 1), self.entries.owner, self.entries.inputs, order, starts
            )
        # Entries by their row: each row's gradient is then one sum, where long histories would make
        # a large array.
        order = torch.argsort(keys, stable=True)
        starts = F.pad(torch.bincount(keys, minlength=n_networks * n_items).cumsum(0), (1, 0))
        gradient = F.embedding_bag(
            self.entries.owner[order],
            codes.flatten(0, 1),
            starts,
            mode="sum",
            per_sample_weights=self.entries.inputs[order],
            include_last_offset=True,
        )
        return gradient.view(n_networks, n_items, width)


@dataclass(frozen=True)
class DenseInputs:
    """Inputs laid out as (networks, users, items), in the precision of the other products."""

    entries: Entries
    precision: Precision

    def codes(self, tables: Tensor) -> Tensor:
        """Return Σ input · table row over every user's items, (networks, users, width)."""
        rows = with_padding(tables, self.precision)
        return product(self._laid_out(rows.shape[1]), rows)

    def gradient(self, codes: Tensor, n_items: int) -> Gradient:
        """Return the gradient of the tables from that of the codes, (networks, users, width)."""
        inputs = self._laid_out(padded(n_items))
        return product(inputs.transpose(1, 2), as_factor(codes, self.precision))

    def _laid_out(self, width: int) -> Tensor:
        """Return inputs in rows of a width, made anew: between two uses logits need the room."""
        n_networks, n_users = self.entries.amounts.shape
        inputs = as_factor(self.entries.inputs, self.precision)
        laid_out = inputs.new_zeros(n_networks, n_users, width)
        laid_out.view(-1)[self.entries.owner * width + self.entries.columns] = inputs
        return laid_out
