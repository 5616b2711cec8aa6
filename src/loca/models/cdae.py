"""CDAE (Wu, DuBois, Zheng, Ester 2016): a denoising autoencoder of histories with a node for each user."""

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
from loca.files import save_model
from loca.models.cdae_learning import NodeLearning, NodePlan, item_shares
from loca.models.cdae_network import LossName, NodeNetwork, NodeRule, draw_first_node_weights
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
from loca.models.recommender import ModelState, Scores, UserWeights, check_user_weights, clone, fitted


class CDAE:
    """Drops part of a history, adds the user's node, and answers through a sigmoid layer with a score for every item.

    `loss` is the cross-entropy of every item on its own (`"logistic"`) or half its squared error (`"square"`, cheaper,
    and best with a fifth of the default learning rate). `weight_decay` charges the two tables, `node_l2` each user's
    node, in the units of that user's loss.

    A node is learned for every training user, but answers are asked for histories, whose users may be new or may have
    seen more since. So no stored node answers: each history gets its own, found from the mean node in `fold_steps`
    steps down its own loss (0: the mean node answers for everybody). An empty history gets the node of a user who has
    nothing. With validation the epoch of the best NDCG@100 is kept; without, all `epochs` are run.

    Departures from the paper: the loss runs over all items, where it samples five missing ones for each item that is
    there; a history is scaled to length 1, so that long ones do not saturate the sigmoid; output biases start at the
    items' shares of the users, nodes at 0; Adam learns in place of AdaGrad.
    """

    def __init__(
        self,
        *,
        latent: int = 200,
        dropout: float = 0.5,
        loss: LossName = "logistic",
        learning_rate: float = 5e-3,
        weight_decay: float = 3e-5,
        node_l2: float = 0.1,
        fold_steps: int = 5,
        batch_size: int = 512,
        epochs: int = 200,
        patience: int = 20,
        evaluate_every: int = 1,
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        check_schedule(latent, None, epochs, patience, evaluate_every)
        check_device(device)
        self.latent = latent
        self.dropout = dropout
        self.loss: LossName = loss
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.node_l2 = node_l2
        self.fold_steps = fold_steps
        self.batch_size = batch_size
        self.epochs = epochs
        self.patience = patience
        self.evaluate_every = evaluate_every
        self.seed = seed
        self.device = device
        self.plan()
        self.rule()
        self.network_: NodeNetwork | None = None
        self.best_epoch_: int | None = None
        self.known_: Interactions | None = None

    def plan(self) -> NodePlan:
        """What an epoch needs to know of the parameters."""
        return NodePlan(self.dropout, self.learning_rate, self.weight_decay, self.batch_size)

    def rule(self) -> NodeRule:
        """What the network needs to know of them."""
        return NodeRule(self.loss, self.node_l2, self.fold_steps)

    def fit(
        self,
        train: Interactions | csr_array,
        *,
        user_weights: UserWeights | None = None,
        validation: HeldOut | None = None,
    ) -> Self:
        """Learns from the first weights on; what an earlier fit learned is forgotten."""
        learning = self.begin(as_matrix(train), user_weights)
        self.best_epoch_ = learn(self, learning, validation)
        self.known_ = train if isinstance(train, Interactions) else None
        return self

    def begin(
        self, matrix: csr_array, user_weights: UserWeights | None, moments: csr_array | None = None
    ) -> NodeLearning:
        """Fresh weights, and the learning that will change them an epoch at a time; of sets, so without `moments`."""
        weights = check_user_weights(user_weights, matrix.shape[0])
        network = NodeNetwork(matrix.shape[1], self.latent, self.rule(), choose_device(self.device))
        self.network_ = draw_first_node_weights(network, item_shares(matrix, weights), self.seed)
        return NodeLearning(self.network_, matrix, weights, self.plan(), self.seed)

    def score(self, histories: csr_array) -> Scores:
        """A score for every item: a logit, or with the square loss what its target was fitted with."""
        return score_histories(fitted(self.network_, self), histories)

    def embed(self, histories: csr_array) -> npt.NDArray[np.float32]:
        """Each user's hidden layer, counted from its middle, (users, latent)."""
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
        network = NodeNetwork(count_items_of(state.arrays), model.latent, model.rule(), torch.device("meta"))
        model.network_ = with_arrays(network, state.arrays, opening_device(model.device))
        model.best_epoch_ = epoch_of(state.facts)
        return model

    def save(self, folder: str | Path) -> None:
        """Writes the model into a folder, whole or not at all."""
        save_model(self, folder)
