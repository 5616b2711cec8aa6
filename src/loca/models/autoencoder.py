"""What all networks share, and the network of MultVAE and MultDAE."""

from __future__ import annotations

import math

import torch
from scipy.sparse import csr_array
from torch import Tensor, nn

from loca.models.counter_rng import fill_normal
from loca.models.devices import SparseRows
from loca.models.recommender import check_histories
from loca.random_streams import derive_seed


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
        self,
        item_count: int,
        latent: int,
        hidden: int | None,
        variational: bool,
        device: torch.device,
    ) -> None:
        super().__init__()
        self.latent, self.variational = latent, variational
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
                fill_normal(
                    weights,
                    derive_seed(seed, "first weights", name),
                    math.sqrt(2.0 / sum(weights.shape)),
                )

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
