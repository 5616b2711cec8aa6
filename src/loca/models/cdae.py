"""CDAE (Wu, DuBois, Zheng, Ester 2016): a denoising autoencoder of histories with a node for each user."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch.nn import functional as F

from loca.errors import check_choice
from loca.memory import plan_memory
from loca.models.autoencoder import Network
from loca.models.counter_rng import fill_normal
from loca.models.devices import SparseRows
from loca.models.network_base import NetworkModel, SingleTrainer, Users
from loca.models.params import not_negative, positive, seed_param, share_below_1, whole
from loca.models.recommender import UserWeights, supported_users
from loca.random_streams import derive_seed

LossName = Literal["logistic", "square"]

# The spread of the initial weights, as the LOCA paper has it.
_INITIAL_SPREAD = 0.01
# The length of a step towards a user's node, in spreads of the learned nodes; most of it goes on in the direction of
# the last one.
_STEP_SIZE = 0.4
_STEP_MOMENTUM = 0.9
# Where everybody or nobody has an item, its logit would be infinite.
_RAREST = 1e-6
# Adam's habits for the two moments, and what keeps its division finite.
_BETAS, _EPSILON = (0.9, 0.999), 1e-8


class NodeNetwork(Network):
    """Hidden layer = sigmoid(table rows of the history + bias + the user's node) − ½; scores = hidden · table + bias.

    The paper's layer without its mean: the same functions, because the output bias takes up the ½, but one change of
    the table no longer moves all scores at once, and users' hidden layers point in different directions.

    `mean_node` is the mean node of the users it learned from and `node_spread` the root mean square of a unit of a node
    around it: from them the node of any history is found.
    """

    mean_node: Tensor
    node_spread: Tensor

    def __init__(self, item_count: int, model: CDAE, device: torch.device) -> None:
        super().__init__()
        self.is_logistic = model.loss == "logistic"
        self.node_l2, self.fold_steps = model.node_l2, model.fold_steps
        self.input_table = nn.Parameter(torch.empty(item_count, model.latent, device=device))
        self.input_bias = nn.Parameter(torch.empty(model.latent, device=device))
        self.output_table = nn.Parameter(torch.empty(item_count, model.latent, device=device))
        self.output_bias = nn.Parameter(torch.empty(item_count, device=device))
        self.register_buffer("mean_node", torch.empty(model.latent, device=device))
        self.register_buffer("node_spread", torch.empty(1, device=device))

    @torch.no_grad()
    def initialise(self, seed: int) -> None:
        """Normal tables, everything else 0."""
        for name, weights in self.state_dict().items():
            if name.endswith("table"):
                fill_normal(weights, derive_seed(seed, "first weights", name), _INITIAL_SPREAD)
            else:
                weights.zero_()

    def embed(self, rows: SparseRows) -> Tensor:
        """The hidden layer of histories, each with the node found for it, (users, latent)."""
        codes = self.encode(rows, rows.unit_values())
        return activate(codes + self.find_nodes(codes, rows))

    def encode(self, rows: SparseRows, values: Tensor) -> Tensor:
        """What a history alone says to the hidden layer, (users, latent); `values` stand in for the rows' own."""
        return rows.sum_of(self.input_table, values) + self.input_bias

    def losses(self, hidden: Tensor, rows: SparseRows) -> Tensor:
        """Each user's loss over all items, (users,): cross-entropy, or half the squares up to a constant.

        An item's target is its value, relative to the user's largest where that is above 1, and 0 where nothing is
        stored.
        """
        targets = _targets(rows)
        found = (hidden * rows.sum_of(self.output_table, targets)).sum(dim=1)
        found = found.index_add(0, rows.owner, self.output_bias[rows.columns] * targets)
        if self.is_logistic:
            return F.softplus(self.decode(hidden)).sum(dim=1) - found
        # Σ (w·z + b)² by the Gram matrix of the table: no score of an item that is not stored is ever made.
        gram = self.output_table.T @ self.output_table
        crossed = gram @ hidden.T  # (latent, users)
        squares = (hidden * crossed.T).sum(dim=1) + 2 * (
            hidden @ (self.output_table.T @ self.output_bias)
        )
        return 0.5 * (squares + self.output_bias.square().sum()) - found

    @torch.no_grad()
    def find_nodes(self, codes: Tensor, rows: SparseRows) -> Tensor:
        """A node for every history, (users, latent): from the mean node a few steps down the user's own loss.

        The loss is that of training, with all weights of the network as they are: losses + node_l2 / 2 · ‖node‖². Steps
        have one length, which follows the spread of the learned nodes, so that a found node lies about as far out as
        they do; how long a history is does not matter, nor do the other histories.
        """
        nodes, table = self.mean_node.expand_as(codes), self.output_table
        if not self.fold_steps:
            return nodes
        wanted, direction = rows.sum_of(table, _targets(rows)), torch.zeros_like(codes)
        gram, shift = (
            table.T @ table,
            table.T @ self.output_bias,
        )  # what the square loss takes in place of scores
        for _ in range(self.fold_steps):
            hidden = activate(codes + nodes)
            scored = (
                torch.sigmoid_(self.decode(hidden)) @ table
                if self.is_logistic
                else hidden @ gram + shift
            )
            slope = (scored - wanted) * (0.25 - hidden.square()) + self.node_l2 * nodes
            direction = _STEP_MOMENTUM * direction + (1 - _STEP_MOMENTUM) * slope
            length = direction.square().mean(dim=1, keepdim=True).sqrt().clamp_min(1e-12)
            nodes = nodes - _STEP_SIZE * self.node_spread * direction / length
        return nodes


def activate(codes: Tensor) -> Tensor:
    """The sigmoid, counted from its middle: sigmoid(x) − ½ = tanh(x / 2) / 2."""
    return torch.sigmoid(codes) - 0.5


def _targets(rows: SparseRows) -> Tensor:
    """Return the target of each stored item: its value, relative to the user's largest where that is above 1.

    The cross-entropy has no minimum for targets above 1.
    """
    largest = torch.ones(rows.user_count, device=rows.values.device)
    largest = largest.scatter_reduce(0, rows.owner, rows.values, "amax")
    return rows.values / largest[rows.owner]


@dataclass(kw_only=True, eq=False, repr=False)
class CDAE(NetworkModel[NodeNetwork]):
    """Drop part of a history, add the user's node, and score every item through a sigmoid layer.

    A node is learned for every training user, but scores are computed for histories, whose users may be new or may
    have seen more since. So no learned node is stored: each history gets its own, found from the mean node in
    `fold_steps` steps down its own loss. An empty history gets the node of a user who has nothing.

    Departures from the paper: the loss runs over all items, where it samples five missing ones for each item that is
    there; a history is scaled to length 1, so that long ones do not saturate the sigmoid; output biases start at the
    items' shares of the users, nodes at 0; Adam learns in place of AdaGrad.

    Parameters
    ----------
    latent : int, default 200
        Size of the hidden layer and of a node.
    dropout : float, default 0.5
        Share of a history that is dropped in training.
    loss : {"logistic", "square"}, default "logistic"
        The cross-entropy of every item on its own, or half its squared error (cheaper, and best with a fifth of the
        default learning rate).
    learning_rate : float, default 5e-3
        Step size of Adam.
    weight_decay : float, default 3e-5
        Weight decay of Adam, for the input and the output table; biases have none.
    node_l2 : float, default 0.1
        Half the squared length of a user's node is added to that user's loss, times this.
    fold_steps : int, default 5
        Steps to the node of a history; with 0 every history gets the mean node.
    batch_size : int, default 512
        Users in a step.
    epochs : int, default 200
        The most epochs to train.
    patience : int, default 20
        Stop after so many epochs without a better validation score. Without validation data all epochs are run.
    evaluate_every : int, default 1
        Epochs from one validation score to the next.
    seed : int, default 0
        Seed of the initial weights, the order of users and dropout.

    Examples
    --------
    >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12, shortest_history=10).interactions
    >>> model = loca.CDAE(latent=8, epochs=2).fit(data)
    >>> model.score(data.histories()).shape
    (60, 30)
    """

    latent: int = whole(200)
    dropout: float = share_below_1(0.5)
    loss: LossName = "logistic"
    learning_rate: float = positive(5e-3)
    weight_decay: float = not_negative(3e-5)
    node_l2: float = not_negative(0.1)
    fold_steps: int = whole(5, least=0)
    batch_size: int = whole(512)
    epochs: int = whole(200)
    patience: int = whole(20)
    evaluate_every: int = whole(1)
    seed: int = seed_param()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("loss", self.loss, get_args(LossName))

    def extra_bytes(self, users: int) -> tuple[int, int]:
        """Every user has a node with Adam's two moments."""
        return 3 * 4 * users * self.latent, 0

    def build(self, item_count: int, device: torch.device) -> NodeNetwork:
        return NodeNetwork(item_count, self, device)

    def trainer_class(self) -> type[NodeTrainer]:
        return NodeTrainer


class NodeTrainer(SingleTrainer[CDAE, NodeNetwork]):
    """Trains the network, and a node for every user, (supported users, latent), with one step of Adam an epoch.

    The paper draws initial nodes; from 0 two equal users stay equal, and a node far from 0 has been learned.
    """

    def __init__(
        self,
        model: CDAE,
        matrix: csr_array,
        user_weights: UserWeights | None,
        moments: None,
        is_new: bool = True,
    ) -> None:
        super().__init__(model, matrix, user_weights, moments, is_new)
        shape, network = (len(self.support), model.latent), self.network
        if self.device.type == "cpu":
            plan_memory(
                f"CDAE: nodes of {shape[0]:,} users",
                3 * 4 * math.prod(shape),
                "take a smaller latent",
            )
        self.nodes, self.slopes, self.squares = (
            torch.zeros(shape, device=self.device) for _ in range(3)
        )
        if not is_new:  # learned nodes are not stored: each user begins with the node that is found for the history
            self.find_nodes()
            return
        # Biases that answer every history with the items' mean targets. A departure from the paper, which begins with
        # biases of 0: among thousands of items nearly all targets are 0, and the first epochs would be spent on
        # learning just that.
        rows = csr_array(matrix[self.support]).astype(np.float64)
        largest = np.maximum(rows.max(axis=1).toarray().ravel(), 1.0)
        rows.data /= np.repeat(largest, np.diff(rows.indptr))
        weights = supported_users(matrix, user_weights)[1].astype(np.float64)
        shares = np.asarray(weights @ rows / weights.sum(), dtype=np.float32)
        rates = torch.from_numpy(shares).to(self.device).clamp(_RAREST, 1 - _RAREST)
        network.output_bias.data.copy_(torch.logit(rates) if network.is_logistic else rates)

    @torch.no_grad()
    def find_nodes(self) -> None:
        """Give every user the node with which the network answers."""
        for start in range(0, len(self.support), self.model.batch_size):
            users = np.arange(start, min(start + self.model.batch_size, len(self.support)))
            rows = self.rows(users)
            codes = self.network.encode(rows, rows.unit_values())
            self.nodes[start : start + len(users)] = self.network.find_nodes(codes, rows)

    def make_optimiser(self) -> torch.optim.Optimizer:
        """Adam. The paper charges biases too; one that says how rare an item is must be large, so it costs nothing."""
        network, decay = self.network, self.model.weight_decay
        tables = {"params": [network.input_table, network.output_table], "weight_decay": decay}
        biases = {"params": [network.input_bias, network.output_bias], "weight_decay": 0.0}
        return torch.optim.Adam([tables, biases], lr=self.model.learning_rate, fused=True)

    def run_epoch(self) -> float:
        self.epoch, total = self.epoch + 1, 0.0
        for users in self.batches():
            places = torch.from_numpy(users).to(self.device)
            nodes = self.nodes[places].requires_grad_()
            total += self.learn_from(self.loss_with(users, nodes)) * len(users)
            if nodes.grad is not None:
                # The slope of the user's own loss: how much a user counts is the network's business, not the node's.
                self.move_nodes(places, nodes.grad * (len(users) / self.weights_of(users))[:, None])
        self.describe_nodes()
        return total / len(self.support)

    def loss_with(self, users: Users, nodes: Tensor) -> Tensor:
        """The weighted mean loss of some of the supported users with these nodes and the dropout of this step."""
        rows = self.rows(users)
        hidden = activate(self.network.encode(rows, self.dropped(rows.unit_values())) + nodes)
        cost = 0.5 * self.model.node_l2 * nodes.square().sum(dim=1)
        return (self.weights_of(users) * (self.network.losses(hidden, rows) + cost)).mean()

    def move_nodes(self, users: Tensor, slope: Tensor) -> None:
        """One step of Adam of some users' nodes against the slope of their own loss."""
        slopes = self.slopes[users].lerp_(slope, 1 - _BETAS[0])
        squares = self.squares[users].lerp_(slope.square(), 1 - _BETAS[1])
        self.slopes[users], self.squares[users] = slopes, squares
        # A user is met once an epoch, so the epoch is the number of steps this node has taken.
        scale = (squares / (1 - _BETAS[1] ** self.epoch)).sqrt_().add_(_EPSILON)
        self.nodes[users] -= (
            self.model.learning_rate * slopes / (1 - _BETAS[0] ** self.epoch) / scale
        )

    def describe_nodes(self) -> None:
        """Give the network the nodes' mean and spread, in which a user with weight 2 counts as two."""
        weights = torch.from_numpy(self.weights / self.weights.sum()).to(self.device)
        mean, squares = weights @ self.nodes, weights @ self.nodes.square()
        self.network.mean_node.copy_(mean)
        self.network.node_spread.copy_((squares - mean.square()).mean().clamp_min(0.0).sqrt())

    def extra_tensors(self) -> dict[str, Tensor]:
        return {"nodes": self.nodes, "node slopes": self.slopes, "node squares": self.squares}
