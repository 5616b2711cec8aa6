"""A question put to stacked networks: who answers for whom, and the users' histories as table rows or laid out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn import functional as F

from loca.local.stacked_arithmetic import padded
from loca.local.stacked_inputs import multiplies_densely
from loca.models.autoencoder import SparseRows

# What products that are joined may take, of users and of items.
_BYTES_TOGETHER = 256_000_000


class AskedHistories(Protocol):
    """The histories of every pair of a network and a user whom it answers for."""

    def codes(self, number: int, table: Tensor) -> Tensor:
        """Σ input · table row over the items of each of one network's users, (users, width)."""
        ...


@dataclass(frozen=True, eq=False)
class GatheredHistories:
    """Reads the rows of the table that the histories name; the history of each pair, network after network."""

    rows: SparseRows
    inputs: Tensor  # the values of the rows, each scaled to length 1
    pairs: dict[int, slice]

    @classmethod
    def of(cls, histories: csr_array, users: Tensor, pairs: dict[int, slice]) -> GatheredHistories:
        rows = SparseRows.of(histories, users.device).of_users(users)
        return cls(rows, rows.unit_values(), pairs)

    @cached_property
    def entries(self) -> dict[int, slice]:
        """The stored entries of each network's pairs."""
        ends = torch.tensor([[own.start, own.stop] for own in self.pairs.values()], device=self.inputs.device)
        return {number: slice(*ends) for number, ends in zip(self.pairs, self.rows.starts[ends].tolist(), strict=True)}

    def codes(self, number: int, table: Tensor) -> Tensor:
        entries = self.entries[number]
        return F.embedding_bag(
            self.rows.columns[entries],
            table,
            self.rows.starts[self.pairs[number]] - entries.start,
            mode="sum",
            per_sample_weights=self.inputs[entries],
        )


@dataclass(frozen=True, eq=False)
class LaidOutHistories:
    """Multiplies histories that are laid out as one users × items array, each row scaled to length 1."""

    laid: Tensor  # (users, padded items): rows are aligned, also those of a part of the users
    users: Tensor  # of all pairs
    pairs: dict[int, slice]
    items: int

    @classmethod
    def of(cls, histories: csr_array, users: Tensor, pairs: dict[int, slice]) -> LaidOutHistories:
        rows, (count, items) = SparseRows.of(histories, users.device), histories.shape
        width = padded(items)
        laid = torch.zeros(count, width, device=users.device)
        laid.view(-1)[rows.owner * width + rows.columns] = rows.unit_values()
        return cls(laid, users, pairs, items)

    def codes(self, number: int, table: Tensor) -> Tensor:
        own = self.pairs[number]
        everybody = own.stop - own.start == len(self.laid)  # in the users' order: nothing to look up
        return (self.laid if everybody else self.laid[self.users[own]])[:, : self.items] @ table


@dataclass(frozen=True, eq=False)
class Question:
    """A question on the device: every pair of a network and a user whom it answers for, network after network."""

    histories: AskedHistories
    users: Tensor  # (pairs,)
    shares: Tensor  # (pairs,)
    bias_shares: Tensor  # (users, networks that answer for anyone)
    pairs: dict[int, slice]  # those of each network that answers for anyone

    @classmethod
    def of(cls, histories: csr_array, answer_weights: csr_array, device: torch.device, *, quick: bool) -> Question:
        """The question as a device sees it; `quick` says that its products have fewer bits there."""
        pairs = answer_weights.tocsc()
        totals = np.asarray(answer_weights.sum(axis=1), dtype=np.float32).ravel()
        pairs.data = pairs.data.astype(np.float32) / totals[pairs.indices]
        users = torch.from_numpy(pairs.indices.astype(np.int64)).to(device)
        own = {
            int(number): slice(int(pairs.indptr[number]), int(pairs.indptr[number + 1]))
            for number in np.flatnonzero(np.diff(pairs.indptr))
        }
        dense = multiplies_densely(histories, device, "bfloat16" if quick else "float32")
        kind = LaidOutHistories if dense and histories.shape[0] > 1 else GatheredHistories
        shares = torch.from_numpy(pairs.data).to(device)
        bias_shares = torch.from_numpy(pairs[:, list(own)].toarray()).to(device)
        return cls(kind.of(histories, users, own), users, shares, bias_shares, own)

    def most_users(self) -> int:
        """How many users the network answers for that answers for the most."""
        return max(int(own.stop - own.start) for own in self.pairs.values())


class JoinedProducts:
    """Adds products of users × width and items × width arrays to `total`, several as one wider product.

    Then users × items numbers are read and written once for all of them.
    """

    def __init__(self, total: Tensor) -> None:
        self._total = total
        self._waiting: list[tuple[Tensor, Tensor]] = []

    def add(self, hidden: Tensor, table: Tensor) -> None:
        self._waiting.append((hidden, table))
        # What waits exists twice when it is joined.
        if 2 * len(self._waiting) * (hidden.nbytes + table.nbytes) >= _BYTES_TOGETHER:
            self.finish()

    def finish(self) -> None:
        """Adds what still waits."""
        if self._waiting:
            hidden, tables = (torch.cat(parts, dim=1) for parts in zip(*self._waiting, strict=True))
            self._total.addmm_(hidden, tables.T)
            self._waiting.clear()
