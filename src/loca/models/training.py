"""How MultVAE and MultDAE learn: their common hyperparameters, inputs and targets, and the loss of a batch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, Self, get_args

import torch
from scipy.sparse import csr_array
from torch import Tensor

from loca.errors import check_choice
from loca.models.autoencoder import Autoencoder, divergence, multinomial_loss
from loca.models.counter_rng import normal_at, uniform_at
from loca.models.devices import SparseRows, unit_rows_of
from loca.models.network_base import NetworkModel, SingleTrainer, Users
from loca.models.params import (
    not_negative,
    number,
    positive,
    seed_param,
    share,
    share_below_1,
    whole,
)
from loca.models.recommender import TrainingData, clone

TargetName = Literal["set", "next", "following"]


@dataclass(frozen=True)
class TargetSpec:
    """`"set"` takes the whole history as input and as target, as the paper does; the others a random prefix as input.

    Targets of `"next"` are the `next_count` places after the prefix, of `"following"` all of them. In a prefix the
    newest place counts 1, the one before it `prefix_decay`, and so on. `set_share` of the users are whole sets all the
    same, drawn anew in every epoch. A place is an item, or all items of one moment: those are never cut apart.
    """

    target: TargetName = "set"
    next_count: int = 10
    prefix_decay: float = 0.9
    set_share: float = 0.0

    def cut(self, lengths: Tensor, draws: Tensor) -> Tensor:
        """How many places of each history are the prefix, 1 to length − 1; 0 for a history taken as a whole set.

        `draws` holds two uniform numbers for each history, (histories, 2). A single place cannot be cut.
        """
        prefix = 1 + (draws[:, 0] * (lengths - 1)).long().clamp(max=lengths - 2)
        whole = (draws[:, 1] < self.set_share) | (lengths < 2)
        return torch.where(whole, 0, prefix)

    def inputs_and_targets(
        self, values: Tensor, places: Tensor, cuts: Tensor
    ) -> tuple[Tensor, Tensor]:
        """What each stored entry counts in the input, and what as a target; no entry moves, most become 0.

        `places` is an entry's place in its history, `cuts` the cut of that history, one of each for every entry.
        """
        whole = cuts == 0
        ages = cuts - 1 - places
        decayed = values * torch.pow(self.prefix_decay, ages.clamp(min=0).float())
        inputs = torch.where(whole, values, torch.where(ages >= 0, decayed, 0.0))
        is_target = ages < 0
        if self.target == "next":
            is_target &= ages >= -self.next_count
        return inputs, torch.where(whole | is_target, values, 0.0)


@dataclass(kw_only=True, eq=False, repr=False)
class AutoencoderModel(NetworkModel[Autoencoder]):
    """What MultVAE and MultDAE have in common; many of them can be trained as one stack.

    Without a variance (`variational`) there is neither `noise` nor a KL term.
    """

    stackable = True
    gives_logits = True
    variational: ClassVar[bool]

    latent: int = whole(200)
    hidden: int | None = whole(None, optional=True)
    dropout: float = share_below_1(0.5)
    noise: float = not_negative(1.0)
    kl_weight: float = not_negative(0.2)
    anneal_steps: int = not_negative(20_000)
    learning_rate: float = positive(1e-3)
    weight_decay: float = not_negative(0.0)
    batch_size: int = whole(512)
    target: TargetName = "set"
    next_count: int = whole(10)
    prefix_decay: float = number(0.9, "a number above 0 up to 1", lambda value: 0 < value <= 1)
    set_share: float = share(0.0)
    epochs: int = whole(200)
    patience: int = whole(20)
    evaluate_every: int = whole(1)
    seed: int = seed_param()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("target", self.target, get_args(TargetName))

    @cached_property
    def target_spec(self) -> TargetSpec:
        """What of a history is input and what is target."""
        return TargetSpec(self.target, self.next_count, self.prefix_decay, self.set_share)

    @property
    def uses_order(self) -> bool:
        """Whether it learns from what follows what."""
        return self.target != "set"

    def kl_weights_at(self, steps: Tensor) -> Tensor:
        """Liang et al.'s annealing: grows in a line to `kl_weight` over `anneal_steps` steps; 32 bits."""
        grown = (
            (steps.double() / self.anneal_steps).clamp(max=1.0)
            if self.anneal_steps
            else torch.ones_like(steps)
        )
        return (self.kl_weight * grown).float()

    def warm_started(self, data: TrainingData, epochs: int, done: int) -> Self:
        """The KL term goes on with the weight that it had grown to."""
        more = super().warm_started(data, epochs, done)
        if not self.kl_weight or not self.anneal_steps:
            return more
        steps = torch.tensor(done * math.ceil(data.matrix.shape[0] / self.batch_size))
        return clone(more, kl_weight=float(self.kl_weights_at(steps)), anneal_steps=0)

    def build(self, item_count: int, device: torch.device) -> Autoencoder:
        return Autoencoder(item_count, self.latent, self.hidden, self.variational, device)

    def trainer_class(self) -> type[AutoencoderTrainer]:
        return AutoencoderTrainer


class AutoencoderTrainer(SingleTrainer[AutoencoderModel, Autoencoder]):
    """One autoencoder being trained by itself; the stacked engine does the same for many at once."""

    def make_optimiser(self) -> torch.optim.Optimizer:
        rate, decay = self.model.learning_rate, self.model.weight_decay
        return torch.optim.Adam(self.network.parameters(), lr=rate, weight_decay=decay, fused=True)

    def batch_loss(self, users: Users) -> Tensor:
        if self.model.uses_order:  # the rows' values are the targets
            own, spec = self.support[users], self.model.target_spec
            moments = None if self.moments is None else csr_array(self.moments[own])
            rows = SparseRows.of(csr_array(self.matrix[own]), self.device, moments)
            draws = self.draw(uniform_at, self.prefix_stream, 2 * rows.user_count).view(-1, 2)
            cuts = spec.cut(rows.place_counts(), draws)
            inputs, targets = spec.inputs_and_targets(rows.values, rows.places(), cuts[rows.owner])
            inputs = unit_rows_of(inputs, rows.owner, rows.user_count)
            rows = SparseRows(rows.columns, targets, rows.starts)
        else:
            rows = self.rows(users)
            inputs = rows.unit_values()
        latent, log_variance = self.network.encode(rows, self.dropped(inputs))
        kl: Tensor | float = 0.0
        if log_variance is not None:
            if self.model.kl_weight:
                kl = self.model.kl_weights_at(torch.tensor(self.step)) * divergence(
                    latent, log_variance
                )
            if self.model.noise:
                draws = self.draw(normal_at, self.noise_stream, latent.numel()).view_as(latent)
                latent = latent + self.model.noise * draws * torch.exp(0.5 * log_variance)
        losses = multinomial_loss(self.network.decode(latent), rows) + kl  # (users,)
        return (self.weights_of(users) * losses).mean()
