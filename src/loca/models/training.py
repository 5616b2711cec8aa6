"""How an autoencoder learns: weighted users in random batches, an epoch at a time, stopped by a validation score."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array

from loca.errors import ConfigError
from loca.models.autoencoder import Autoencoder, SparseRows, divergence, multinomial_loss
from loca.progress import bar
from loca.random_streams import derive_seed, stream


@dataclass(frozen=True)
class LearningPlan:
    """What an epoch needs to know: how much is dropped, how noisy the code is, how the two losses are weighed."""

    dropout: float
    noise: float
    kl_weight: float
    anneal_steps: int
    learning_rate: float
    weight_decay: float
    batch_size: int

    def __post_init__(self) -> None:
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"dropout: expected a number from 0 to below 1, found {self.dropout!r}")
        for name in ("noise", "kl_weight", "anneal_steps", "weight_decay"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"{name}: expected a number ≥ 0, found {getattr(self, name)!r}")
        for name in ("learning_rate", "batch_size"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name}: expected a number above 0, found {getattr(self, name)!r}")

    def kl_weight_at(self, step: int) -> float:
        """Liang et al.'s annealing: grows in a line to `kl_weight` over `anneal_steps` steps."""
        return self.kl_weight * min(1.0, step / self.anneal_steps) if self.anneal_steps else self.kl_weight


class Learning:
    """One network being trained on the users with a weight above zero; `run_epoch` shows all of them once."""

    def __init__(
        self,
        network: Autoencoder,
        matrix: csr_array,
        user_weights: npt.NDArray[np.float32],
        plan: LearningPlan,
        seed: int,
        device: torch.device,
    ) -> None:
        self.network = network.to(device)
        self.plan = plan
        self.device = device
        self.step = 0
        self.matrix = matrix
        self.support = np.flatnonzero((user_weights > 0) & (np.diff(matrix.indptr) > 0))
        # Divided by their mean over all users, not over the batch: the gradient of a batch is then an unbiased
        # estimate of the weighted loss, and a user with weight 2 pulls like two users.
        self.weights = user_weights[self.support] / user_weights[self.support].mean()
        self.order = stream(seed, "order of users")
        self.generator = torch.Generator(device=device).manual_seed(derive_seed(seed, "dropout and noise"))
        self._optimiser = torch.optim.Adam(
            self.network.parameters(), lr=plan.learning_rate, weight_decay=plan.weight_decay, fused=True
        )

    @property
    def networks(self) -> list[Autoencoder]:
        """The one network that learns here."""
        return [self.network]

    def run_epoch(self) -> float:
        """Shows every user once and gives the mean loss."""
        order = self.order.permutation(len(self.support))
        total = 0.0
        for start in range(0, len(order), self.plan.batch_size):
            users = order[start : start + self.plan.batch_size]
            loss = self.batch_loss(users)
            loss.backward()  # type: ignore[no-untyped-call]
            self._optimiser.step()
            # Freed at once: of many networks that learn side by side only one holds gradients.
            self._optimiser.zero_grad(set_to_none=True)
            self.step += 1
            total += float(loss.detach()) * len(users)
        return total / len(order)

    def batch_loss(self, users: npt.NDArray[np.int64]) -> torch.Tensor:
        """The weighted mean loss of some of the supported users, with dropout and noise drawn anew."""
        rows = SparseRows.of(csr_array(self.matrix[self.support[users]]), self.device)
        mean, log_variance = self.network.encode(rows, self._dropped(rows.unit_values()))
        latent = mean
        kl = torch.zeros(rows.user_count, device=self.device)
        if log_variance is not None:
            if self.plan.noise:
                draws = torch.randn(mean.shape, generator=self.generator, device=self.device)
                latent = mean + self.plan.noise * draws * torch.exp(0.5 * log_variance)
            kl_weight = self.plan.kl_weight_at(self.step)
            if kl_weight:
                kl = kl_weight * divergence(mean, log_variance)
        losses = multinomial_loss(self.network.decode(latent), rows) + kl  # (users,)
        weights = torch.from_numpy(self.weights[users]).to(self.device)
        return (weights * losses).mean()

    def _dropped(self, values: torch.Tensor) -> torch.Tensor:
        if not self.plan.dropout:
            return values
        kept = torch.rand(values.shape, generator=self.generator, device=self.device) >= self.plan.dropout
        return values * kept / (1 - self.plan.dropout)


class RunsEpochs(Protocol):
    """One or many networks that learn an epoch at a time."""

    @property
    def networks(self) -> list[Autoencoder]: ...

    def run_epoch(self) -> float: ...


class BestWeights:
    """A copy of the best weights seen so far, and when they were seen."""

    def __init__(self) -> None:
        self.epoch = 0
        self.score = -np.inf
        self._copies: list[dict[str, torch.Tensor]] = []

    def offer(self, epoch: int, score: float, networks: list[Autoencoder]) -> None:
        """Keeps a copy of the networks' weights when `score` is the best so far."""
        if score > self.score:
            self.epoch, self.score = epoch, score
            self._copies = [{name: w.detach().clone() for name, w in n.state_dict().items()} for n in networks]

    def put_back(self, networks: list[Autoencoder]) -> None:
        """Gives the networks the best weights again."""
        for network, weights in zip(networks, self._copies, strict=True):
            network.load_state_dict(weights)


def learn_until_best(
    learning: Sequence[RunsEpochs],
    validate: Callable[[], float],
    *,
    epochs: int,
    patience: int,
    evaluate_every: int,
    what: str,
) -> BestWeights:
    """Trains all networks side by side, an epoch of each in turn, until `validate` has not risen for `patience` epochs.

    The networks end with the weights of the best epoch.
    """
    best = BestWeights()
    networks = [network for one in learning for network in one.networks]
    with bar(what, epochs) as progress:
        for epoch in range(1, epochs + 1):
            loss = float(np.mean([one.run_epoch() for one in learning]))
            note = f"loss {loss:.2f}, best NDCG@100 {best.score:.4f} at epoch {best.epoch}" if best.epoch else ""
            progress.advance(note=note)
            if epoch % evaluate_every and epoch != epochs:
                continue
            best.offer(epoch, validate(), networks)
            if epoch - best.epoch >= patience:
                break
    best.put_back(networks)
    return best


def learn_for(learning: Sequence[RunsEpochs], *, epochs: int, what: str) -> None:
    """Trains all networks for a fixed number of epochs."""
    with bar(what, epochs) as progress:
        for _ in range(epochs):
            loss = float(np.mean([one.run_epoch() for one in learning]))
            progress.advance(note=f"loss {loss:.2f}")
