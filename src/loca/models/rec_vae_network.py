"""The network of RecVAE: densely connected layers from sparse histories to a Gaussian code, one linear layer back."""

from __future__ import annotations

import math

import torch
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch.nn import functional as F

from loca.models.autoencoder import SparseRows
from loca.models.draws import fill_normal
from loca.models.recommender import check_histories
from loca.random_streams import derive_seed

# As in the authors' program: five hidden layers, and a layer normalisation that leaves small activations small.
_HIDDEN_LAYERS = 5
_NORM_EPSILON = 0.1
_DECODER = ("output_table", "output_bias")


class RecVaeNetwork(nn.Module):
    """Items → five hidden layers, each fed with the sum of all earlier ones → mean and log-variance → items.

    The first layer is a sum of table rows (one per stored item), so its cost follows the history, not the catalogue.
    Weights are not set yet: `draw_first_rec_vae_weights` or arrays from a file do that.
    """

    def __init__(self, item_count: int, latent: int, hidden: int, device: torch.device) -> None:
        super().__init__()
        self.latent = latent
        self.hidden = hidden

        def weights(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(*shape, device=device))

        self.input_table = weights(item_count, hidden)
        self.input_bias = weights(hidden)
        self.hidden_weights = weights(_HIDDEN_LAYERS - 1, hidden, hidden)
        self.hidden_biases = weights(_HIDDEN_LAYERS - 1, hidden)
        self.norm_scales = weights(_HIDDEN_LAYERS, hidden)
        self.norm_shifts = weights(_HIDDEN_LAYERS, hidden)
        self.code_weight = weights(hidden, 2 * latent)
        self.code_bias = weights(2 * latent)
        self.output_table = weights(item_count, latent)
        self.output_bias = weights(item_count)

    @property
    def item_count(self) -> int:
        return len(self.output_bias)

    @property
    def device(self) -> torch.device:
        return self.output_bias.device

    def encoder_weights(self) -> dict[str, nn.Parameter]:
        """By name, what turns a history into a code."""
        return {name: weight for name, weight in self.named_parameters() if name not in _DECODER}

    def decoder_weights(self) -> dict[str, nn.Parameter]:
        """By name, what turns a code into scores."""
        return {name: weight for name, weight in self.named_parameters() if name in _DECODER}

    def means(self, histories: csr_array) -> Tensor:
        """The mean of the code of any histories, (users, latent)."""
        rows = SparseRows.of(check_histories(histories, self.item_count), self.device)
        return self.encode(rows, rows.unit_values())[:, : self.latent]

    def answer(self, histories: csr_array) -> Tensor:
        """A score for every item, (users, items), on the network's device."""
        return self.decode(self.means(histories))

    def encode(self, rows: SparseRows, values: Tensor) -> Tensor:
        """Means and, beside them, log-variances, (users, 2 · latent); `values` stand in for the rows' own."""
        bags = F.embedding_bag(rows.columns, self.input_table, rows.starts[:-1], mode="sum", per_sample_weights=values)
        scales, shifts = self.norm_scales.unbind(), self.norm_shifts.unbind()
        newest = self._activate(bags + self.input_bias, scales[0], shifts[0])  # (users, hidden)
        earlier = newest
        layers = zip(self.hidden_weights.unbind(), self.hidden_biases.unbind(), scales[1:], shifts[1:], strict=True)
        for weight, bias, scale, shift in layers:
            newest = self._activate(torch.addmm(bias, newest, weight) + earlier, scale, shift)
            earlier = earlier + newest
        return torch.addmm(self.code_bias, newest, self.code_weight)

    def decode(self, latent: Tensor) -> Tensor:
        """A score (logit) for every item, (users, items)."""
        return torch.addmm(self.output_bias, latent, self.output_table.T)

    def _activate(self, sums: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        return F.layer_norm(F.silu(sums), (self.hidden,), scale, shift, _NORM_EPSILON)


@torch.no_grad()
def draw_first_rec_vae_weights(network: RecVaeNetwork, seed: int) -> RecVaeNetwork:
    """The network with normal first weights, the same numbers on every device; biases 0, normalisation neutral.

    Weights spread as those of the authors' program: their variance is 1 / (3 · inputs of the layer).
    """
    for name, weights in network.named_parameters():
        if name == "norm_scales":
            weights.fill_(1.0)
        elif "bias" in name or name == "norm_shifts":
            weights.zero_()
        else:
            inputs = network.latent if name == "output_table" else weights.shape[-2]
            fill_normal(weights, derive_seed(seed, "first weights", name), 1.0 / math.sqrt(3.0 * inputs))
    return network
