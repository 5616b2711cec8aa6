"""How an autoencoder learns: weighted users in random batches, an epoch at a time, every draw by its place."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor

from loca.errors import ConfigError, did_you_mean
from loca.models.autoencoder import Autoencoder, SparseRows, divergence, multinomial_loss, unit_rows_of
from loca.models.counter_rng import normal_at, streams_at, uniform_at
from loca.models.recommender import supported_users
from loca.persistence.manifest import ModelState
from loca.random_streams import derive_seed, stream

TargetName = Literal["set", "next", "following"]


@dataclass(frozen=True)
class TargetSpec:
    """`"set"` shows the whole history and asks for it, as the paper does; the others show a random prefix.

    `"next"` asks for the `next_count` places after it, `"following"` for all of them. In a prefix the newest place
    counts 1, the one before it `prefix_decay`, and so on. `set_share` of the users are shown as whole sets all the
    same, drawn anew in every epoch. A place is an item, or all items of one moment: those are never cut apart.
    """

    target: TargetName = "set"
    next_count: int = 10
    prefix_decay: float = 0.9
    set_share: float = 0.0

    def __post_init__(self) -> None:
        if self.target not in get_args(TargetName):
            nearest = did_you_mean(self.target, get_args(TargetName)) or "; expected 'set', 'next' or 'following'"
            raise ConfigError(f"unknown target {self.target!r}{nearest}")
        whole = isinstance(self.next_count, int) and not isinstance(self.next_count, bool)
        if not (whole and self.next_count >= 1):
            raise ConfigError(f"next_count: expected a whole number ≥ 1, found {self.next_count!r}")
        if not 0 < self.prefix_decay <= 1:
            raise ConfigError(f"prefix_decay: expected a number above 0 up to 1, found {self.prefix_decay!r}")
        if not 0 <= self.set_share <= 1:
            raise ConfigError(f"set_share: expected a share from 0 to 1, found {self.set_share!r}")

    @property
    def ordered(self) -> bool:
        """Whether the order of a history matters."""
        return self.target != "set"

    def cut(self, lengths: Tensor, draws: Tensor) -> Tensor:
        """How many places of each history are the prefix, 1 to length − 1; 0 for a history shown as a whole set.

        `draws` holds two uniform numbers for each history, (histories, 2). A single place cannot be cut.
        """
        prefix = 1 + (draws[:, 0] * (lengths - 1)).long().clamp(max=lengths - 2)
        whole = (draws[:, 1] < self.set_share) | (lengths < 2)
        return torch.where(whole, 0, prefix)

    def inputs_and_targets(self, values: Tensor, places: Tensor, cuts: Tensor) -> tuple[Tensor, Tensor]:
        """What each stored entry counts in the input, and what as a target; no entry moves, most become 0.

        `places` is an entry's place in its history, `cuts` the cut of that history, one of each for every entry.
        """
        whole = cuts == 0
        ages = cuts - 1 - places
        decayed = values * torch.pow(self.prefix_decay, ages.clamp(min=0).float())
        shown = torch.where(whole, values, torch.where(ages >= 0, decayed, 0.0))
        asked = ages < 0
        if self.target == "next":
            asked &= ages >= -self.next_count
        return shown, torch.where(whole | asked, values, 0.0)


@dataclass(frozen=True)
class LearningPlan:
    """What an epoch needs to know: what is shown, how much is dropped, how noisy the code is, how losses count."""

    dropout: float
    noise: float
    kl_weight: float
    anneal_steps: int
    learning_rate: float
    weight_decay: float
    batch_size: int
    lesson: TargetSpec = field(default_factory=TargetSpec)

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

    def kl_weights_at(self, steps: torch.Tensor) -> torch.Tensor:
        """`kl_weight_at` for many steps, as 32-bit numbers."""
        grown = (steps.double() / self.anneal_steps).clamp(max=1.0) if self.anneal_steps else torch.ones_like(steps)
        return (self.kl_weight * grown).float()


class Trainer:
    """One network being trained on the users with a weight above zero; `run_epoch` shows all of them once.

    Order, dropout and noise depend only on the seed, the epoch and the step: another engine draws the same numbers,
    and so does a run that goes on after an interruption.
    """

    def __init__(
        self,
        network: Autoencoder,
        matrix: csr_array,
        user_weights: npt.NDArray[np.float32],
        plan: LearningPlan,
        seed: int,
        moments: csr_array | None = None,
    ) -> None:
        self.network = network
        self.plan = plan
        self.device = network.output_bias.device
        self.step = 0
        self.epoch = 0
        self.matrix = matrix
        self.moments = moments if plan.lesson.ordered else None
        self.support = supported_users(matrix, user_weights)
        # Divided by their mean over all users, not over the batch: the gradient of a batch is then an unbiased
        # estimate of the weighted loss, and a user with weight 2 pulls like two users.
        self.weights = user_weights[self.support] / user_weights[self.support].mean()
        self.dropout_stream = derive_seed(seed, "dropout")
        self.noise_stream = derive_seed(seed, "noise")
        self.prefix_stream = derive_seed(seed, "prefix")
        self._order_seed = derive_seed(seed, "order of users")
        self._optimiser = torch.optim.Adam(
            self.network.parameters(), lr=plan.learning_rate, weight_decay=plan.weight_decay, fused=True
        )

    @property
    def networks(self) -> list[Autoencoder]:
        """The one network that learns here."""
        return [self.network]

    def next_order(self) -> npt.NDArray[np.int64]:
        """The order of the supported users in the epoch that begins now."""
        self.epoch += 1
        return stream(self._order_seed, self.epoch).permutation(len(self.support))

    def run_epoch(self) -> float:
        """Shows every user once and gives the mean loss."""
        order = self.next_order()
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
        """The weighted mean loss of some of the supported users, with the dropout and noise of this step."""
        rows, shown = self._show(self.support[users])
        mean, log_variance = self.network.encode(rows, self._dropped(shown))
        latent = mean
        kl = torch.zeros(rows.user_count, device=self.device)
        if log_variance is not None:
            if self.plan.noise:
                draws = normal_at(self._stream(self.noise_stream), self._places(mean.numel())).view_as(mean)
                latent = mean + self.plan.noise * draws * torch.exp(0.5 * log_variance)
            kl_weight = self.plan.kl_weight_at(self.step)
            if kl_weight:
                kl = kl_weight * divergence(mean, log_variance)
        losses = multinomial_loss(self.network.decode(latent), rows) + kl  # (users,)
        weights = torch.from_numpy(self.weights[users]).to(self.device)
        return (weights * losses).mean()

    def state(self) -> ModelState:
        """All that the rest of the training depends on: weights, Adam's moments, steps and epochs taken."""
        arrays = {f"weights/{name}": weight for name, weight in self.network.named_parameters()}
        for name, weight in self.network.named_parameters():
            for key, moment in self._optimiser.state.get(weight, {}).items():
                arrays[f"{key}/{name}"] = moment
        return ModelState(
            {name: array.detach().cpu().numpy() for name, array in arrays.items()},
            {"step": self.step, "epoch": self.epoch},
        )

    def put_back(self, state: ModelState) -> None:
        """Goes on from a state of the same learning."""
        self.step, self.epoch = state.facts["step"], state.facts["epoch"]
        for name, weight in self.network.named_parameters():
            weight.data.copy_(torch.from_numpy(state.arrays[f"weights/{name}"].copy()))
            if self.step:
                moments = {key: state.arrays[f"{key}/{name}"].copy() for key in ("step", "exp_avg", "exp_avg_sq")}
                self._optimiser.state[weight] = {
                    key: torch.from_numpy(moment).to(self.device) for key, moment in moments.items()
                }

    def _show(self, users: npt.NDArray[np.int64]) -> tuple[SparseRows, torch.Tensor]:
        """The rows with what is asked for as values, and what is shown, each user's scaled to length 1."""
        histories = csr_array(self.matrix[users])
        if not self.plan.lesson.ordered:
            histories.sort_indices()
            rows = SparseRows.of(histories, self.device)
            return rows, rows.unit_values()
        moments = None if self.moments is None else csr_array(self.moments[users])
        rows = SparseRows.of(histories, self.device, moments)
        draws = uniform_at(self._stream(self.prefix_stream), self._places(2 * rows.user_count)).view(-1, 2)
        cuts = self.plan.lesson.cut(rows.place_counts(), draws)
        shown, asked = self.plan.lesson.inputs_and_targets(rows.values, rows.places(), cuts[rows.owner])
        return SparseRows(rows.columns, asked, rows.starts), unit_rows_of(shown, rows.owner, rows.user_count)

    def _dropped(self, values: torch.Tensor) -> torch.Tensor:
        if not self.plan.dropout:
            return values
        kept = uniform_at(self._stream(self.dropout_stream), self._places(len(values))) >= self.plan.dropout
        return values * kept / (1 - self.plan.dropout)

    def _stream(self, stream_number: int) -> torch.Tensor:
        return streams_at(torch.tensor(stream_number, device=self.device), self.step)

    def _places(self, count: int) -> torch.Tensor:
        return torch.arange(count, device=self.device)
