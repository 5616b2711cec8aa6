"""Sparse histories as torch sees them, what all networks share, and the network of MultVAE and MultDAE."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch.nn import functional as F

from loca.models.counter_rng import fill_normal
from loca.models.recommender import check_histories
from loca.random_streams import derive_seed


@dataclass(frozen=True)
class SparseRows:
    """Some users' histories as torch sees them: the stored columns one after the other, and where each user starts."""

    columns: Tensor  # (stored,)
    values: Tensor  # (stored,)
    starts: Tensor  # (users + 1,)
    moments: Tensor | None = None  # (stored,): an entry's moment in its history; None where each is one of its own

    @classmethod
    def of(cls, rows: csr_array, device: torch.device, moments: csr_array | None = None) -> SparseRows:
        """The stored entries of CSR rows, on a device; `moments` has the moment of each in the same stored place."""
        return cls(
            torch.from_numpy(rows.indices.astype(np.int64)).to(device),
            torch.from_numpy(rows.data.astype(np.float32, copy=False)).to(device),
            torch.from_numpy(rows.indptr.astype(np.int64)).to(device),
            None if moments is None else torch.from_numpy(moments.data).to(device),
        )

    @property
    def user_count(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def owner(self) -> Tensor:
        """The user row of every stored entry."""
        users = torch.arange(self.user_count, device=self.starts.device)
        return torch.repeat_interleave(users, self.starts.diff(), output_size=len(self.columns))

    def places(self) -> Tensor:
        """The place of every stored entry in its user's history, 0 for the oldest; a moment is one place."""
        if self.moments is not None:
            return self.moments
        return torch.arange(len(self.columns), device=self.columns.device) - self.starts[self.owner]

    def place_counts(self) -> Tensor:
        """How many places each user's history has, (users,)."""
        lengths = self.starts.diff()
        if self.moments is None:
            return lengths
        # Oldest first: the last entry is of the newest moment. An empty history has no entry, whatever stands there.
        newest = self.moments[(self.starts[1:] - 1).clamp(min=0)]
        return torch.where(lengths > 0, newest + 1, 0)

    def of_users(self, users: Tensor) -> SparseRows:
        """The rows of some users, in the given order; a user may occur more than once."""
        lengths = self.starts.diff()[users]
        starts = F.pad(lengths.cumsum(0), (1, 0))
        total = int(starts[-1])
        shift = torch.repeat_interleave(self.starts[users] - starts[:-1], lengths, output_size=total)
        places = torch.arange(total, device=users.device) + shift
        moments = None if self.moments is None else self.moments[places]
        return SparseRows(self.columns[places], self.values[places], starts, moments)

    def sum_of(self, table: Tensor, values: Tensor) -> Tensor:
        """Σ value · table row over each user's stored columns, (users, width); `values` stand in for the rows' own."""
        return F.embedding_bag(self.columns, table, self.starts[:-1], mode="sum", per_sample_weights=values)

    def unit_values(self) -> Tensor:
        """The values with each user's row scaled to length 1; an empty row stays empty."""
        return unit_rows_of(self.values, self.owner, self.user_count)


class Network(nn.Module):
    """What scores any history: weights on a device, `output_table` and `output_bias` among them.

    Weights are not set by the constructor: `initialise` or arrays from a file do that.
    """

    output_table: nn.Parameter
    output_bias: nn.Parameter

    @property
    def item_count(self) -> int:
        return len(self.output_bias)

    @property
    def device(self) -> torch.device:
        return self.output_bias.device

    def initialise(self, seed: int) -> None:
        """Set the initial weights, the same numbers on every device."""
        raise NotImplementedError

    def embed(self, rows: SparseRows) -> Tensor:
        """The middle layer, (users, latent)."""
        raise NotImplementedError

    def decode(self, latent: Tensor) -> Tensor:
        """A score (logit) for every item, (users, items)."""
        return torch.addmm(self.output_bias, latent, self.output_table.T)

    def means(self, histories: csr_array) -> Tensor:
        """The middle layer of any histories (a variational network's mean), (users, latent)."""
        return self.embed(SparseRows.of(check_histories(histories, self.item_count), self.device))

    def answer(self, histories: csr_array) -> Tensor:
        """A score for every item, (users, items), on the network's device."""
        return self.decode(self.means(histories))


class Autoencoder(Network):
    """Items → (hidden →) latent → (hidden →) items; variational ones have a mean and a log-variance in the middle.

    The first layer is a sum of table rows (one per stored item), so its cost follows the history, not the catalogue.
    """

    def __init__(
        self, item_count: int, latent: int, hidden: int | None, variational: bool, device: torch.device
    ) -> None:
        super().__init__()
        self.latent = latent
        self.variational = variational
        codes = 2 * latent if variational else latent
        first, last = (hidden, hidden) if hidden else (codes, latent)

        def weights(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(*shape, device=device))

        self.input_table = weights(item_count, first)
        self.input_bias = weights(first)
        self.code_weight = weights(hidden, codes) if hidden else None
        self.code_bias = weights(codes) if hidden else None
        self.back_weight = weights(latent, hidden) if hidden else None
        self.back_bias = weights(hidden) if hidden else None
        self.output_table = weights(item_count, last)
        self.output_bias = weights(item_count)

    @torch.no_grad()
    def initialise(self, seed: int) -> None:
        """Glorot's normal initial weights, biases 0."""
        for name, weights in self.named_parameters():
            if weights.dim() == 1:
                weights.zero_()
            else:
                fill_normal(weights, derive_seed(seed, "first weights", name), math.sqrt(2.0 / sum(weights.shape)))

    def embed(self, rows: SparseRows) -> Tensor:
        return self.encode(rows, rows.unit_values())[0]

    def encode(self, rows: SparseRows, values: Tensor) -> tuple[Tensor, Tensor | None]:
        """Mean (users, latent) and log-variance, or the activations and None; `values` stand in for the rows' own."""
        codes = rows.sum_of(self.input_table, values) + self.input_bias
        if self.code_weight is not None and self.code_bias is not None:
            codes = torch.tanh(codes) @ self.code_weight + self.code_bias
        if not self.variational:
            return torch.tanh(codes), None
        return codes[:, : self.latent], codes[:, self.latent :]

    def decode(self, latent: Tensor) -> Tensor:
        """A score (logit) for every item, (users, items)."""
        if self.back_weight is not None and self.back_bias is not None:
            latent = torch.tanh(latent @ self.back_weight + self.back_bias)
        return super().decode(latent)


def multinomial_loss(logits: Tensor, rows: SparseRows) -> Tensor:
    """−Σ value · log softmax(logits) for each user, (users,), reading the logits only where something is stored."""
    found = logits[rows.owner, rows.columns] * rows.values
    totals = torch.zeros(rows.user_count, device=logits.device)
    amounts = totals.index_add(0, rows.owner, rows.values)
    return torch.logsumexp(logits, dim=1) * amounts - totals.index_add(0, rows.owner, found)


def divergence(mean: Tensor, log_variance: Tensor) -> Tensor:
    """KL(N(mean, variance) ‖ N(0, 1)) for each user, summed over the last axis."""
    return 0.5 * (log_variance.exp() + mean**2 - 1 - log_variance).sum(dim=-1)


def unit_rows_of(values: Tensor, owner: Tensor, rows: int) -> Tensor:
    """Entries with each row scaled to length 1; a row of zeros stays one."""
    squares = torch.zeros(rows, device=values.device).index_add_(0, owner, values**2)
    return values / squares.sqrt().clamp_min(1e-12)[owner]
