"""RecVAE (Shenbin et al. 2020): a variational autoencoder whose prior remembers the encoder of the epoch before."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch.nn import functional as F

from loca.data.interactions import Interactions, as_matrix
from loca.data.splits import HeldOut
from loca.errors import ConfigError
from loca.memory import DataSize, MemoryUse, plan_memory
from loca.models.autoencoder import SparseRows, multinomial_loss
from loca.models.counter_rng import fill_normal, normal_at, streams_at, uniform_at
from loca.models.devices import check_device, choose_device
from loca.models.network_base import (
    check_schedule,
    count_items_of,
    embed_histories,
    epoch_of,
    learn,
    network_arrays,
    network_memory,
    opening_device,
    score_histories,
    with_arrays,
)
from loca.models.recommender import (
    Estimator,
    ModelState,
    Scores,
    UserWeights,
    check_histories,
    check_user_weights,
    clone,
    fitted,
    supported_users,
)
from loca.random_streams import derive_seed, stream

# As in the authors' program: five hidden layers, and a layer normalisation that leaves small activations small.
_HIDDEN_LAYERS = 5
_NORM_EPSILON = 0.1
_DECODER = ("output_table", "output_bias")
Users = npt.NDArray[np.int64]
# The shares of the standard normal, of the code of the epoch before, and of a wide normal with this log-variance.
_SHARES = (3 / 20, 15 / 20, 2 / 20)
_WIDE_LOG_VARIANCE = 10.0


class RecVAE(Estimator):
    """Encodes a history as a Gaussian through densely connected layers, and decodes it linearly.

    An epoch shows all users `encoder_epochs` times to the encoder, with `dropout`, and then `decoder_epochs` times to
    the decoder, without. Codes are held near a mixture of a standard normal, the code of the epoch before, and a wide
    normal: `gamma` times the length of a history is how much that counts for a user, or `beta`, where given, for every
    user alike. With validation the epoch of the best NDCG@100 is kept; without, all `epochs` are run.
    """

    learns_by_epoch = True

    def __init__(
        self,
        *,
        latent: int = 200,
        hidden: int = 600,
        dropout: float = 0.5,
        gamma: float = 0.005,
        beta: float | None = None,
        learning_rate: float = 5e-4,
        batch_size: int = 500,
        encoder_epochs: int = 3,
        decoder_epochs: int = 1,
        epochs: int = 100,
        patience: int = 20,
        evaluate_every: int = 1,
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        check_schedule(latent, hidden, epochs, patience, evaluate_every)
        if hidden is None:
            raise ConfigError("hidden: expected a whole number ≥ 1, found None")
        check_device(device)
        self.latent = latent
        self.hidden = hidden
        self.dropout = dropout
        self.gamma = gamma
        self.beta = beta
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.encoder_epochs = encoder_epochs
        self.decoder_epochs = decoder_epochs
        self.epochs = epochs
        self.patience = patience
        self.evaluate_every = evaluate_every
        self.seed = seed
        self.device = device
        self.plan()
        self.network_: RecVaeNetwork | None = None
        self.best_epoch_: int | None = None

    def plan(self) -> RecVaePlan:
        """What an epoch needs to know of the parameters."""
        return RecVaePlan(
            dropout=self.dropout,
            gamma=self.gamma,
            beta=self.beta,
            learning_rate=self.learning_rate,
            batch_size=self.batch_size,
            encoder_epochs=self.encoder_epochs,
            decoder_epochs=self.decoder_epochs,
        )

    def fit(
        self,
        train: Interactions | csr_array,
        *,
        user_weights: UserWeights | None = None,
        validation: HeldOut | None = None,
    ) -> Self:
        """Learns from the first weights on; what an earlier fit learned is forgotten."""
        matrix = as_matrix(train)
        self.network_ = None  # what an earlier fit learned makes room
        self._plan_memory(*matrix.shape)
        learning = self.begin(matrix, user_weights)
        self.best_epoch_ = learn(self, learning, validation)
        self.train_data_ = train if isinstance(train, Interactions) else None
        return self

    def begin(
        self, matrix: csr_array, user_weights: UserWeights | None, moments: csr_array | None = None
    ) -> AlternatingTrainer:
        """Fresh weights, and the learning that will change them an epoch at a time; of sets, so without `moments`."""
        weights = check_user_weights(user_weights, matrix.shape[0])
        network = RecVaeNetwork(matrix.shape[1], self.latent, self.hidden, choose_device(self.device))
        self.network_ = initial_rec_vae_weights(network, self.seed)
        return AlternatingTrainer(self.network_, matrix, weights, self.plan(), self.seed)

    def score(self, histories: csr_array) -> Scores:
        """A logit for every item."""
        return score_histories(fitted(self.network_, self), histories)

    def embed(self, histories: csr_array) -> npt.NDArray[np.float32]:
        """The mean of each user's code, (users, latent)."""
        return embed_histories(fitted(self.network_, self), histories)

    def memory_bytes(self, data: DataSize) -> MemoryUse:
        """An epoch holds two codes of every user."""
        network = RecVaeNetwork(data.items, self.latent, self.hidden, torch.device("meta"))
        width, codes = self.hidden + self.latent, 2 * 4 * data.users * 2 * self.latent
        return network_memory(network, self.device, data, self.batch_size, width=width, passing=codes)

    def count_items(self) -> int:
        """How many items it scores."""
        return fitted(self.network_, self).item_count

    def with_selected_params(self) -> Self:
        """A copy that runs the number of epochs that validation chose."""
        return clone(self) if self.best_epoch_ is None else clone(self, epochs=self.best_epoch_)

    def state(self) -> ModelState:
        return ModelState(network_arrays(fitted(self.network_, self)), {"best_epoch": self.best_epoch_})

    @classmethod
    def restore(cls, params: Mapping[str, Any], state: ModelState) -> Self:
        model = cls(**params)
        network = RecVaeNetwork(count_items_of(state.arrays), model.latent, model.hidden, torch.device("meta"))
        model.network_ = with_arrays(network, state.arrays, opening_device(model.device))
        model.best_epoch_ = epoch_of(state.facts)
        return model

    def _plan_memory(self, users: int, items: int) -> None:
        """Weights five times (Adam's moments, the best epoch, gradients), two codes a user, four arrays of logits."""
        if choose_device(self.device).type == "cpu":
            network = RecVaeNetwork(items, self.latent, self.hidden, torch.device("meta"))
            weights = sum(weight.numel() for weight in network.parameters())
            needed = 5 * weights + 2 * users * 2 * self.latent + 4 * min(users, self.batch_size) * items
            plan_memory(f"RecVAE for {items:,} items", 4 * needed, "take a smaller hidden layer or filter rare items")


class RecVaeNetwork(nn.Module):
    """Items → five hidden layers, each fed with the sum of all earlier ones → mean and log-variance → items.

    The first layer is a sum of table rows (one per stored item), so its cost follows the history, not the catalogue.
    Weights are not set yet: `initial_rec_vae_weights` or arrays from a file do that.
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
def initial_rec_vae_weights(network: RecVaeNetwork, seed: int) -> RecVaeNetwork:
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


@dataclass(frozen=True)
class RecVaePlan:
    """What an epoch needs to know: how much is dropped, how the prior counts, and how often each half is shown all."""

    dropout: float
    gamma: float
    beta: float | None
    learning_rate: float
    batch_size: int
    encoder_epochs: int
    decoder_epochs: int

    def __post_init__(self) -> None:
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"dropout: expected a number from 0 to below 1, found {self.dropout!r}")
        for name, prior in (("gamma", self.gamma), ("beta", 0.0 if self.beta is None else self.beta)):
            if not 0 <= prior < math.inf:
                raise ConfigError(f"{name}: expected a number ≥ 0, found {prior!r}")
        if not 0 < self.learning_rate < math.inf:
            raise ConfigError(f"learning_rate: expected a number above 0, found {self.learning_rate!r}")
        for name, count in (
            ("batch_size", self.batch_size),
            ("encoder_epochs", self.encoder_epochs),
            ("decoder_epochs", self.decoder_epochs),
        ):
            if not (isinstance(count, int) and count >= 1):
                raise ConfigError(f"{name}: expected a whole number ≥ 1, found {count!r}")

    def kl_weights(self, rows: SparseRows) -> Tensor:
        """How much the prior counts for each user, (users,): `gamma` for every item of the history, or `beta`."""
        none = torch.zeros(rows.user_count, device=rows.values.device)
        return none.index_add(0, rows.owner, rows.values) * self.gamma if self.beta is None else none + self.beta


class AlternatingTrainer:
    """One RecVAE being trained on the users with a weight above zero; an epoch shows them to each half of it in turn.

    The encoder that the prior remembers is the one with which an epoch begins, because decoder passes leave it alone:
    its codes are computed once an epoch, and nothing of it need be kept. Order, dropout and noise depend only on the
    seed, the epoch and the step: a run that goes on after an interruption draws the same numbers.
    """

    def __init__(
        self,
        network: RecVaeNetwork,
        matrix: csr_array,
        user_weights: npt.NDArray[np.float32],
        plan: RecVaePlan,
        seed: int,
    ) -> None:
        self.network = network
        self.plan = plan
        self.device = network.device
        self.step = 0
        self.epoch = 0
        self.matrix = matrix
        self.support = supported_users(matrix, user_weights)
        # Divided by their mean over all users, not over the batch: the gradient of a batch is then an unbiased
        # estimate of the weighted loss, and a user with weight 2 pulls like two users.
        self.weights = user_weights[self.support] / user_weights[self.support].mean()
        self._dropout_stream = derive_seed(seed, "dropout")
        self._noise_stream = derive_seed(seed, "noise")
        self._order_seed = derive_seed(seed, "order of users")
        self._encoder_adam = self._adam(network.encoder_weights().values())
        self._decoder_adam = self._adam(network.decoder_weights().values())

    @property
    def networks(self) -> list[RecVaeNetwork]:
        """The one network that learns here."""
        return [self.network]

    def run_epoch(self) -> float:
        """Shows every user to the encoder, then to the decoder, as often as planned; gives the encoder's mean loss."""
        self.epoch += 1
        # In the very first epoch it is the first encoder; the authors' program takes another random one there.
        prior = self.codes()
        total = 0.0
        with frozen(self.network.decoder_weights().values()):
            for turn in range(self.plan.encoder_epochs):
                for users in self._batches("encoder", turn):
                    total += self._learn_from(self.encoder_loss(users, prior), self._encoder_adam) * len(users)
        codes = self.codes()
        for turn in range(self.plan.decoder_epochs):
            for users in self._batches("decoder", turn):
                self._learn_from(self.decoder_loss(users, codes), self._decoder_adam)
        return total / (len(self.support) * self.plan.encoder_epochs)

    @torch.no_grad()
    def codes(self) -> Tensor:
        """The code of every supported user, from the whole history, (supported users, 2 · latent)."""
        codes = torch.empty(len(self.support), 2 * self.network.latent, device=self.device)
        for start in range(0, len(codes), self.plan.batch_size):
            users = np.arange(start, min(start + self.plan.batch_size, len(codes)))
            rows = self._rows(users)
            codes[start : start + len(users)] = self.network.encode(rows, rows.unit_values())
        return codes

    def encoder_loss(self, users: Users, prior: Tensor) -> Tensor:
        """The weighted mean loss of some of the supported users, whose codes in `prior` are what is remembered."""
        rows = self._rows(users)
        code = self.network.encode(rows, self._dropped(rows.unit_values()))
        noise = self._noise(len(users))
        latent = sample(code, noise)
        found = multinomial_loss(self.network.decode(latent), rows)  # (users,)
        remembered = prior[torch.from_numpy(users).to(self.device)]
        kl = log_posterior(code, noise) - log_prior(latent, remembered)
        return self._weighted_mean(found + self.plan.kl_weights(rows) * kl, users)

    def decoder_loss(self, users: Users, codes: Tensor) -> Tensor:
        """The same of the decoder, which sees codes of whole histories; the prior does not depend on it."""
        code = codes[torch.from_numpy(users).to(self.device)]
        logits = self.network.decode(sample(code, self._noise(len(users))))
        return self._weighted_mean(multinomial_loss(logits, self._rows(users)), users)

    def state(self) -> ModelState:
        """All that the rest of the training depends on: weights, Adam's moments, steps and epochs taken."""
        arrays = {f"weights/{name}": weight for name, weight in self.network.named_parameters()}
        for name, weight, adam in self._learned():
            for key, moment in adam.state.get(weight, {}).items():
                arrays[f"{key}/{name}"] = moment
        return ModelState(
            {name: array.detach().cpu().numpy() for name, array in arrays.items()},
            {"step": self.step, "epoch": self.epoch},
        )

    def put_back(self, state: ModelState) -> None:
        """Goes on from a state of the same learning."""
        self.step, self.epoch = state.facts["step"], state.facts["epoch"]
        for name, weight, adam in self._learned():
            weight.data.copy_(torch.from_numpy(state.arrays[f"weights/{name}"].copy()))
            if self.epoch:
                moments = {key: state.arrays[f"{key}/{name}"].copy() for key in ("step", "exp_avg", "exp_avg_sq")}
                adam.state[weight] = {key: torch.from_numpy(moment).to(self.device) for key, moment in moments.items()}

    def _learned(self) -> Iterator[tuple[str, nn.Parameter, torch.optim.Adam]]:
        """Every weight with its name and with the optimiser that changes it."""
        for name, weight in self.network.encoder_weights().items():
            yield name, weight, self._encoder_adam
        for name, weight in self.network.decoder_weights().items():
            yield name, weight, self._decoder_adam

    def _adam(self, weights: Iterable[nn.Parameter]) -> torch.optim.Adam:
        return torch.optim.Adam(list(weights), lr=self.plan.learning_rate, fused=True)

    def _batches(self, half: str, turn: int) -> Iterator[Users]:
        """All supported users, by their places in `support`, in the order of this pass."""
        order = stream(self._order_seed, self.epoch, half, turn).permutation(len(self.support))
        for start in range(0, len(order), self.plan.batch_size):
            yield order[start : start + self.plan.batch_size]

    def _learn_from(self, loss: Tensor, adam: torch.optim.Adam) -> float:
        loss.backward()  # type: ignore[no-untyped-call]
        adam.step()
        # Freed at once: of many networks that learn side by side only one holds gradients.
        adam.zero_grad(set_to_none=True)
        self.step += 1
        return float(loss.detach())

    def _rows(self, users: Users) -> SparseRows:
        histories = csr_array(self.matrix[self.support[users]])
        histories.sort_indices()
        return SparseRows.of(histories, self.device)

    def _weighted_mean(self, losses: Tensor, users: Users) -> Tensor:
        return (torch.from_numpy(self.weights[users]).to(self.device) * losses).mean()

    def _dropped(self, values: Tensor) -> Tensor:
        if not self.plan.dropout:
            return values
        places = torch.arange(len(values), device=self.device)
        kept = uniform_at(self._stream(self._dropout_stream), places) >= self.plan.dropout
        return values * kept / (1 - self.plan.dropout)

    def _noise(self, user_count: int) -> Tensor:
        """Standard normal numbers of this step, (users, latent)."""
        places = torch.arange(user_count * self.network.latent, device=self.device)
        return normal_at(self._stream(self._noise_stream), places).view(user_count, self.network.latent)

    def _stream(self, stream_number: int) -> Tensor:
        return streams_at(torch.tensor(stream_number, device=self.device), self.step)


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
    spreads = (
        latent**2,
        log_variance + (latent - mean) ** 2 * torch.exp(-log_variance),
        _WIDE_LOG_VARIANCE + latent**2 * math.exp(-_WIDE_LOG_VARIANCE),
    )
    parts = [math.log(share) - 0.5 * spread for share, spread in zip(_SHARES, spreads, strict=True)]
    densities = torch.logsumexp(torch.stack(parts), dim=0) - 0.5 * math.log(2 * math.pi)  # (users, latent)
    return densities.sum(dim=1)


@contextmanager
def frozen(weights: Iterable[nn.Parameter]) -> Iterator[None]:
    """Meanwhile no gradient is computed for these weights."""
    held = list(weights)
    for weight in held:
        weight.requires_grad_(False)
    try:
        yield
    finally:
        for weight in held:
            weight.requires_grad_(True)
