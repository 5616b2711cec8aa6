"""RecVAE (Shenbin et al. 2020): a variational autoencoder whose prior remembers the encoder of the epoch before."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array

from loca.data.held_out import HeldOut
from loca.data.interactions import Interactions, as_matrix
from loca.errors import ConfigError
from loca.files import save_model
from loca.memory import plan_memory
from loca.models.devices import check_device, choose_device
from loca.models.network_answers import (
    check_schedule,
    count_items_of,
    embed_histories,
    epoch_of,
    learn,
    network_arrays,
    opening_device,
    score_histories,
    with_arrays,
)
from loca.models.rec_vae_learning import AlternatingLearning, RecVaePlan
from loca.models.rec_vae_network import RecVaeNetwork, draw_first_rec_vae_weights
from loca.models.recommender import ModelState, Scores, UserWeights, check_user_weights, clone, fitted


class RecVAE:
    """Encodes a history as a Gaussian through densely connected layers, and decodes it linearly.

    An epoch shows all users `encoder_epochs` times to the encoder, with `dropout`, and then `decoder_epochs` times to
    the decoder, without. Codes are held near a mixture of a standard normal, the code of the epoch before, and a wide
    normal: `gamma` times the length of a history is how much that counts for a user, or `beta`, where given, for every
    user alike. With validation the epoch of the best NDCG@100 is kept; without, all `epochs` are run.
    """

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
        self.known_: Interactions | None = None

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
        self.known_ = train if isinstance(train, Interactions) else None
        return self

    def begin(
        self, matrix: csr_array, user_weights: UserWeights | None, moments: csr_array | None = None
    ) -> AlternatingLearning:
        """Fresh weights, and the learning that will change them an epoch at a time; of sets, so without `moments`."""
        weights = check_user_weights(user_weights, matrix.shape[0])
        network = RecVaeNetwork(matrix.shape[1], self.latent, self.hidden, choose_device(self.device))
        self.network_ = draw_first_rec_vae_weights(network, self.seed)
        return AlternatingLearning(self.network_, matrix, weights, self.plan(), self.seed)

    def score(self, histories: csr_array) -> Scores:
        """A logit for every item."""
        return score_histories(fitted(self.network_, self), histories)

    def embed(self, histories: csr_array) -> npt.NDArray[np.float32]:
        """The mean of each user's code, (users, latent)."""
        return embed_histories(fitted(self.network_, self), histories)

    def count_items(self) -> int:
        """How many items it scores."""
        return fitted(self.network_, self).item_count

    def as_chosen(self) -> Self:
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

    def save(self, folder: str | Path) -> None:
        """Writes the model into a folder, whole or not at all."""
        save_model(self, folder)

    def _plan_memory(self, users: int, items: int) -> None:
        """Weights five times (Adam's moments, the best epoch, gradients), two codes a user, four arrays of logits."""
        if choose_device(self.device).type == "cpu":
            network = RecVaeNetwork(items, self.latent, self.hidden, torch.device("meta"))
            weights = sum(weight.numel() for weight in network.parameters())
            needed = 5 * weights + 2 * users * 2 * self.latent + 4 * min(users, self.batch_size) * items
            plan_memory(f"RecVAE for {items:,} items", 4 * needed, "take a smaller hidden layer or filter rare items")
