"""RecVAE (Shenbin et al. 2020): a variational autoencoder whose prior remembers the encoder of the epoch before."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from loca.models.autoencoder import Network, multinomial_loss
from loca.models.counter_rng import fill_normal, normal_at
from loca.models.devices import SparseRows
from loca.models.network_base import NetworkModel, SingleTrainer, Users
from loca.models.params import not_negative, number, positive, seed_param, share_below_1, whole
from loca.random_streams import derive_seed

# As in the authors' program: five hidden layers, and a layer normalisation that leaves small activations small.
_HIDDEN_LAYERS = 5
_NORM_EPSILON = 0.1
# The shares of the standard normal, of the code of the epoch before, and of a wide normal with this log-variance.
_SHARES = (3 / 20, 15 / 20, 2 / 20)
_WIDE_LOG_VARIANCE = 10.0


class RecVaeNetwork(Network):
    """Items → five hidden layers, each fed with the sum of all earlier ones → mean and log-variance → items.

    The first layer is a sum of table rows (one per stored item), so its cost follows the history, not the catalogue.
    """

    def __init__(self, item_count: int, latent: int, hidden: int, device: torch.device) -> None:
        super().__init__()
        self.latent, self.hidden = latent, hidden

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

    @torch.no_grad()
    def initialise(self, seed: int) -> None:
        """Normal initial weights; biases 0, normalisation neutral.

        Weights spread as those of the authors' program: their variance is 1 / (3 · inputs of the layer).
        """
        for name, weights in self.named_parameters():
            if name == "norm_scales":
                weights.fill_(1.0)
            elif "bias" in name or name == "norm_shifts":
                weights.zero_()
            else:
                inputs = self.latent if name == "output_table" else weights.shape[-2]
                fill_normal(
                    weights, derive_seed(seed, "first weights", name), 1.0 / math.sqrt(3.0 * inputs)
                )

    def embed(self, rows: SparseRows) -> Tensor:
        """The mean of the code, (users, latent)."""
        return self.encode(rows, rows.unit_values())[:, : self.latent]

    def encode(self, rows: SparseRows, values: Tensor) -> Tensor:
        """Means and, beside them, log-variances, (users, 2 · latent); `values` stand in for the rows' own."""

        def activate(sums: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
            return F.layer_norm(F.silu(sums), (self.hidden,), scale, shift, _NORM_EPSILON)

        scales, shifts = self.norm_scales.unbind(), self.norm_shifts.unbind()
        newest = activate(
            rows.sum_of(self.input_table, values) + self.input_bias, scales[0], shifts[0]
        )
        earlier = newest  # (users, hidden)
        layers = zip(
            self.hidden_weights.unbind(),
            self.hidden_biases.unbind(),
            scales[1:],
            shifts[1:],
            strict=True,
        )
        for weight, bias, scale, shift in layers:
            newest = activate(torch.addmm(bias, newest, weight) + earlier, scale, shift)
            earlier = earlier + newest
        return torch.addmm(self.code_bias, newest, self.code_weight)


@dataclass(kw_only=True, eq=False, repr=False)
class RecVAE(NetworkModel[RecVaeNetwork]):
    """Encode a history as a Gaussian through densely connected layers, and decode it linearly.

    Codes are held near a mixture of a standard normal, the code of the epoch before, and a wide normal. Encoder and
    decoder are trained in turn.

    Parameters
    ----------
    latent : int, default 200
        Size of the code.
    hidden : int, default 600
        Size of each of the five layers before the code.
    dropout : float, default 0.5
        Share of a history that is dropped while the encoder learns; the decoder learns without.
    gamma : float, default 0.005
        Weight of the prior for a user, per item of the history.
    beta : float or None, default None
        Weight of the prior for every user alike, where given, in place of `gamma`.
    learning_rate : float, default 5e-4
        Step size of Adam.
    batch_size : int, default 500
        Users in a step.
    encoder_epochs : int, default 3
        How often an epoch visits all users for the encoder.
    decoder_epochs : int, default 1
        How often an epoch then visits all users for the decoder.
    epochs : int, default 100
        The most epochs to train.
    patience : int, default 20
        Stop after so many epochs without a better validation score. Without validation data all epochs are run.
    evaluate_every : int, default 1
        Epochs from one validation score to the next.
    seed : int, default 0
        Seed of the initial weights, the order of users, dropout and noise.

    Examples
    --------
    >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12, shortest_history=10).interactions
    >>> model = loca.RecVAE(latent=8, hidden=16, epochs=2).fit(data)
    >>> model.score(data.histories()).shape
    (60, 30)
    >>> model.embed(data.histories()).shape
    (60, 8)
    """

    latent: int = whole(200)
    hidden: int = whole(600)
    dropout: float = share_below_1(0.5)
    gamma: float = not_negative(0.005)
    beta: float | None = number(
        None, "a number ≥ 0", lambda value: 0 <= value < math.inf, optional=True
    )
    learning_rate: float = positive(5e-4)
    batch_size: int = whole(500)
    encoder_epochs: int = whole(3)
    decoder_epochs: int = whole(1)
    epochs: int = whole(100)
    patience: int = whole(20)
    evaluate_every: int = whole(1)
    seed: int = seed_param()

    def build(self, item_count: int, device: torch.device) -> RecVaeNetwork:
        return RecVaeNetwork(item_count, self.latent, self.hidden, device)

    def trainer_class(self) -> type[AlternatingTrainer]:
        return AlternatingTrainer

    def extra_bytes(self, users: int) -> tuple[int, int]:
        """An epoch holds two codes of every user."""
        return 0, 2 * 4 * users * 2 * self.latent


class AlternatingTrainer(SingleTrainer[RecVAE, RecVaeNetwork]):
    """Trains encoder and decoder in turn: an epoch visits all users for each half of the network.

    The encoder that the prior remembers is the one with which an epoch begins, because decoder passes leave it alone:
    its codes are computed once an epoch, and nothing of it need be stored.
    """

    def run_epoch(self) -> float:
        """Visit every user for the encoder, then for the decoder, as often as set; gives the encoder's mean loss."""
        self.epoch += 1
        # In the very first epoch it is the initial encoder; the authors' program takes another random one there.
        prior, total = self.codes(), 0.0
        # What needs no gradient has none, and rests.
        decoder = (self.network.output_table, self.network.output_bias)
        for weight in decoder:
            weight.requires_grad_(False)
        for turn in range(self.model.encoder_epochs):
            for users in self.batches("encoder", turn):
                total += self.learn_from(self.encoder_loss(users, prior)) * len(users)
        for weight in decoder:
            weight.requires_grad_(True)
        codes = self.codes()
        for turn in range(self.model.decoder_epochs):
            for users in self.batches("decoder", turn):
                self.learn_from(self.decoder_loss(users, codes))
        return total / (len(self.support) * self.model.encoder_epochs)

    @torch.no_grad()
    def codes(self) -> Tensor:
        """The code of every supported user, from the whole history, (supported users, 2 · latent)."""
        codes = torch.empty(len(self.support), 2 * self.network.latent, device=self.device)
        for start in range(0, len(codes), self.model.batch_size):
            users = np.arange(start, min(start + self.model.batch_size, len(codes)))
            rows = self.rows(users)
            codes[start : start + len(users)] = self.network.encode(rows, rows.unit_values())
        return codes

    def encoder_loss(self, users: Users, prior: Tensor) -> Tensor:
        """The weighted mean loss of some of the supported users, whose codes in `prior` are what is remembered."""
        rows = self.rows(users)
        code = self.network.encode(rows, self.dropped(rows.unit_values()))
        noise = self.noise(len(users))
        latent = sample(code, noise)
        found = multinomial_loss(self.network.decode(latent), rows)  # (users,)
        remembered = prior[torch.from_numpy(users).to(self.device)]
        kl = log_posterior(code, noise) - log_prior(latent, remembered)
        return (self.weights_of(users) * (found + self.kl_weights(rows) * kl)).mean()

    def decoder_loss(self, users: Users, codes: Tensor) -> Tensor:
        """The same of the decoder, which sees codes of whole histories; the prior does not depend on it."""
        code = codes[torch.from_numpy(users).to(self.device)]
        logits = self.network.decode(sample(code, self.noise(len(users))))
        return (self.weights_of(users) * multinomial_loss(logits, self.rows(users))).mean()

    def kl_weights(self, rows: SparseRows) -> Tensor:
        """How much the prior counts for each user, (users,): `gamma` for every item of the history, or `beta`."""
        none = torch.zeros(rows.user_count, device=rows.values.device)
        if self.model.beta is not None:
            return none + self.model.beta
        return none.index_add(0, rows.owner, rows.values) * self.model.gamma

    def noise(self, user_count: int) -> Tensor:
        """Standard normal numbers of this step, (users, latent)."""
        return self.draw(normal_at, self.noise_stream, user_count * self.network.latent).view(
            user_count, -1
        )


def sample(code: Tensor, noise: Tensor) -> Tensor:
    """Points of the codes' Gaussians, (users, latent), from standard normal `noise`."""
    mean, log_variance = code.chunk(2, dim=1)
    return mean + noise * torch.exp(0.5 * log_variance)


def log_posterior(code: Tensor, noise: Tensor) -> Tensor:
    """The log-density of `sample(code, noise)` under the code's own Gaussian, for each user, (users,)."""
    _, log_variance = code.chunk(2, dim=1)
    # The distance from the mean in units of its spread is the noise itself.
    return -0.5 * (log_variance + noise**2 + math.log(2 * math.pi)).sum(dim=1)


def log_prior(latent: Tensor, remembered: Tensor) -> Tensor:
    """The log-density of points under the composite prior, for each user, (users,).

    Every coordinate has a mixture of its own, as in the authors' program; the paper writes one for the whole code.
    """
    mean, log_variance = remembered.chunk(2, dim=1)
    before = log_variance + (latent - mean) ** 2 * torch.exp(-log_variance)
    wide = _WIDE_LOG_VARIANCE + latent**2 * math.exp(-_WIDE_LOG_VARIANCE)
    spreads = zip(_SHARES, (latent**2, before, wide), strict=True)
    parts = [math.log(share) - 0.5 * spread for share, spread in spreads]
    densities = torch.logsumexp(torch.stack(parts), dim=0) - 0.5 * math.log(
        2 * math.pi
    )  # (users, latent)
    return densities.sum(dim=1)
