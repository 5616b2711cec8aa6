"""MultVAE (Liang et al. 2018): a variational autoencoder of histories with a multinomial likelihood."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array

from loca.data.interactions import Interactions, as_matrix, as_moments
from loca.data.splits import HeldOut
from loca.memory import DataSize, MemoryUse
from loca.models.autoencoder import Autoencoder, draw_first_weights
from loca.models.devices import check_device, choose_device
from loca.models.network_base import (
    begin_learning,
    check_schedule,
    embed_histories,
    learn,
    network_arrays,
    network_from_arrays,
    network_memory,
    opening_device,
    score_histories,
)
from loca.models.recommender import Estimator, ModelState, Scores, UserWeights, clone, fitted
from loca.models.training import LearningPlan, TargetName, TargetSpec, Trainer


class MultVAE(Estimator):
    """Encodes a history as a Gaussian and decodes it into a score for every item.

    `hidden=None` puts no layer between items and latent on either side, a number puts one of that size on each.
    The KL term grows to `kl_weight` over `anneal_steps` steps; `noise` scales the random part of the code. LOCA's
    authors' program is `MultVAE(hidden=None, dropout=0.2, noise=0.01, kl_weight=0.0)`. `target="next"` learns from
    the order of histories: a random prefix, decayed by `prefix_decay` a position, predicts the `next_count` items after
    it (`"following"`: all of them), while `set_share` of the users are shown as sets. With validation the epoch of the
    best NDCG@100 is kept; without, all `epochs` are run.
    """

    learns_by_epoch = True
    stackable = True
    gives_logits = True

    def __init__(
        self,
        *,
        latent: int = 200,
        hidden: int | None = None,
        dropout: float = 0.5,
        noise: float = 1.0,
        kl_weight: float = 0.2,
        anneal_steps: int = 20_000,
        learning_rate: float = 1e-3,
        weight_decay: float = 0.0,
        batch_size: int = 512,
        target: TargetName = "set",
        next_count: int = 10,
        prefix_decay: float = 0.9,
        set_share: float = 0.0,
        epochs: int = 200,
        patience: int = 20,
        evaluate_every: int = 1,
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        check_schedule(latent, hidden, epochs, patience, evaluate_every)
        check_device(device)
        self.latent = latent
        self.hidden = hidden
        self.dropout = dropout
        self.noise = noise
        self.kl_weight = kl_weight
        self.anneal_steps = anneal_steps
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.target: TargetName = target
        self.next_count = next_count
        self.prefix_decay = prefix_decay
        self.set_share = set_share
        self.epochs = epochs
        self.patience = patience
        self.evaluate_every = evaluate_every
        self.seed = seed
        self.device = device
        self.plan()
        self.network_: Autoencoder | None = None
        self.best_epoch_: int | None = None

    def plan(self) -> LearningPlan:
        """What an epoch needs to know of the parameters."""
        return LearningPlan(
            dropout=self.dropout,
            noise=self.noise,
            kl_weight=self.kl_weight,
            anneal_steps=self.anneal_steps,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            batch_size=self.batch_size,
            lesson=TargetSpec(self.target, self.next_count, self.prefix_decay, self.set_share),
        )

    def fit(
        self,
        train: Interactions | csr_array,
        *,
        user_weights: UserWeights | None = None,
        validation: HeldOut | None = None,
    ) -> Self:
        """Learns from the first weights on; what an earlier fit learned is forgotten."""
        moments = as_moments(train) if self.plan().lesson.ordered else None  # found by sorting all pairs
        learning = self.begin(as_matrix(train), user_weights, moments)
        self.best_epoch_ = learn(self, learning, validation)
        self.train_data_ = train if isinstance(train, Interactions) else None
        return self

    @property
    def uses_order(self) -> bool:
        """Whether it learns from what follows what."""
        return self.target != "set"

    def begin(self, matrix: csr_array, user_weights: UserWeights | None, moments: csr_array | None = None) -> Trainer:
        """Fresh weights, and the learning that will change them an epoch at a time."""
        network = Autoencoder(matrix.shape[1], self.latent, self.hidden, True, choose_device(self.device))
        self.network_ = draw_first_weights(network, self.seed)
        return begin_learning(self, self.network_, matrix, user_weights, moments)

    def score(self, histories: csr_array) -> Scores:
        """A logit for every item."""
        network = fitted(self.network_, self)
        return score_histories(network, histories)

    def embed(self, histories: csr_array) -> npt.NDArray[np.float32]:
        """The mean of each user's code, (users, latent)."""
        network = fitted(self.network_, self)
        return embed_histories(network, histories)

    def memory_bytes(self, data: DataSize) -> MemoryUse:
        """The network while it learns, and a batch of users' scores."""
        network = Autoencoder(data.items, self.latent, self.hidden, True, torch.device("meta"))
        width = (self.hidden or 0) + self.latent
        return network_memory(network, self.device, data, self.batch_size, width=width)

    def count_items(self) -> int:
        """How many items it scores."""
        return fitted(self.network_, self).item_count

    def with_selected_params(self) -> Self:
        """A copy that runs the number of epochs that validation chose."""
        return clone(self) if self.best_epoch_ is None else clone(self, epochs=self.best_epoch_)

    def state(self) -> ModelState:
        network = fitted(self.network_, self)
        return ModelState(arrays=network_arrays(network), facts={"best_epoch": self.best_epoch_})

    @classmethod
    def restore(cls, params: Mapping[str, Any], state: ModelState) -> Self:
        model = cls(**params)
        # A model trained on a GPU must open where there is none.
        device = opening_device(model.device)
        model.network_ = network_from_arrays(state.arrays, model.latent, model.hidden, True, device)
        model.best_epoch_ = state.facts["best_epoch"]
        return model


class MultDAE(Estimator):
    """Drops part of a history, encodes the rest and decodes it into a score for every item.

    `hidden=None` puts no layer between items and latent on either side, a number puts one of that size on each.
    `target="next"` learns from the order of histories: a random prefix, decayed by `prefix_decay` a position, predicts
    the `next_count` items after it (`"following"`: all of them), while `set_share` of the users are shown as sets.
    With validation the epoch of the best NDCG@100 is kept; without, all `epochs` are run.
    """

    learns_by_epoch = True
    stackable = True
    gives_logits = True

    def __init__(
        self,
        *,
        latent: int = 200,
        hidden: int | None = None,
        dropout: float = 0.5,
        learning_rate: float = 1e-3,
        weight_decay: float = 0.0,
        batch_size: int = 512,
        target: TargetName = "set",
        next_count: int = 10,
        prefix_decay: float = 0.9,
        set_share: float = 0.0,
        epochs: int = 200,
        patience: int = 20,
        evaluate_every: int = 1,
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        check_schedule(latent, hidden, epochs, patience, evaluate_every)
        check_device(device)
        self.latent = latent
        self.hidden = hidden
        self.dropout = dropout
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.target: TargetName = target
        self.next_count = next_count
        self.prefix_decay = prefix_decay
        self.set_share = set_share
        self.epochs = epochs
        self.patience = patience
        self.evaluate_every = evaluate_every
        self.seed = seed
        self.device = device
        self.plan()
        self.network_: Autoencoder | None = None
        self.best_epoch_: int | None = None

    def plan(self) -> LearningPlan:
        """What an epoch needs to know of the parameters."""
        return LearningPlan(
            dropout=self.dropout,
            noise=0.0,
            kl_weight=0.0,
            anneal_steps=0,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            batch_size=self.batch_size,
            lesson=TargetSpec(self.target, self.next_count, self.prefix_decay, self.set_share),
        )

    def fit(
        self,
        train: Interactions | csr_array,
        *,
        user_weights: UserWeights | None = None,
        validation: HeldOut | None = None,
    ) -> Self:
        """Learns from the first weights on; what an earlier fit learned is forgotten."""
        moments = as_moments(train) if self.plan().lesson.ordered else None  # found by sorting all pairs
        learning = self.begin(as_matrix(train), user_weights, moments)
        self.best_epoch_ = learn(self, learning, validation)
        self.train_data_ = train if isinstance(train, Interactions) else None
        return self

    @property
    def uses_order(self) -> bool:
        """Whether it learns from what follows what."""
        return self.target != "set"

    def begin(self, matrix: csr_array, user_weights: UserWeights | None, moments: csr_array | None = None) -> Trainer:
        """Fresh weights, and the learning that will change them an epoch at a time."""
        network = Autoencoder(matrix.shape[1], self.latent, self.hidden, False, choose_device(self.device))
        self.network_ = draw_first_weights(network, self.seed)
        return begin_learning(self, self.network_, matrix, user_weights, moments)

    def score(self, histories: csr_array) -> Scores:
        """A logit for every item."""
        network = fitted(self.network_, self)
        return score_histories(network, histories)

    def embed(self, histories: csr_array) -> npt.NDArray[np.float32]:
        """Each user's middle layer, (users, latent)."""
        network = fitted(self.network_, self)
        return embed_histories(network, histories)

    def memory_bytes(self, data: DataSize) -> MemoryUse:
        """The network while it learns, and a batch of users' scores."""
        network = Autoencoder(data.items, self.latent, self.hidden, False, torch.device("meta"))
        width = (self.hidden or 0) + self.latent
        return network_memory(network, self.device, data, self.batch_size, width=width)

    def count_items(self) -> int:
        """How many items it scores."""
        return fitted(self.network_, self).item_count

    def with_selected_params(self) -> Self:
        """A copy that runs the number of epochs that validation chose."""
        return clone(self) if self.best_epoch_ is None else clone(self, epochs=self.best_epoch_)

    def state(self) -> ModelState:
        network = fitted(self.network_, self)
        return ModelState(arrays=network_arrays(network), facts={"best_epoch": self.best_epoch_})

    @classmethod
    def restore(cls, params: Mapping[str, Any], state: ModelState) -> Self:
        model = cls(**params)
        # A model trained on a GPU must open where there is none.
        device = opening_device(model.device)
        model.network_ = network_from_arrays(state.arrays, model.latent, model.hidden, False, device)
        model.best_epoch_ = state.facts["best_epoch"]
        return model
