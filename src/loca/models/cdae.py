"""CDAE (Wu, DuBois, Zheng, Ester 2016): a denoising autoencoder of histories with a node for each user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch.nn import functional as F

from loca.data.interactions import Interactions, as_matrix
from loca.data.splits import HeldOut
from loca.errors import ConfigError, did_you_mean
from loca.memory import DataSize, MemoryUse, plan_memory
from loca.models.autoencoder import SparseRows
from loca.models.counter_rng import fill_normal, streams_at, uniform_at
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

LossName = Literal["logistic", "square"]

# The spread of the first weights, as the LOCA paper has it.
_FIRST_SPREAD = 0.01
# The length of a step towards a user's node, in spreads of the learned nodes; most of it goes on in the direction of
# the last one.
_STEP_SIZE = 0.4
_STEP_MOMENTUM = 0.9
# Where everybody or nobody has an item, its logit would be infinite.
_RAREST = 1e-6
# Adam's habits for the two moments, and what keeps its division finite.
_MOMENTUM, _MEMORY, _LEAST = 0.9, 0.999, 1e-8


class CDAE(Estimator):
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

    learns_by_epoch = True

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
        self.train_data_ = train if isinstance(train, Interactions) else None
        return self

    def begin(
        self, matrix: csr_array, user_weights: UserWeights | None, moments: csr_array | None = None
    ) -> NodeTrainer:
        """Fresh weights, and the learning that will change them an epoch at a time; of sets, so without `moments`."""
        weights = check_user_weights(user_weights, matrix.shape[0])
        network = NodeNetwork(matrix.shape[1], self.latent, self.rule(), choose_device(self.device))
        self.network_ = initial_node_weights(network, item_shares(matrix, weights), self.seed)
        return NodeTrainer(self.network_, matrix, weights, self.plan(), self.seed)

    def score(self, histories: csr_array) -> Scores:
        """A score for every item: a logit, or with the square loss what its target was fitted with."""
        return score_histories(fitted(self.network_, self), histories)

    def embed(self, histories: csr_array) -> npt.NDArray[np.float32]:
        """Each user's hidden layer, counted from its middle, (users, latent)."""
        return embed_histories(fitted(self.network_, self), histories)

    def memory_bytes(self, data: DataSize) -> MemoryUse:
        """Every user has a node with Adam's two moments."""
        network = NodeNetwork(data.items, self.latent, self.rule(), torch.device("meta"))
        nodes = 3 * 4 * data.users * self.latent
        return network_memory(network, self.device, data, self.batch_size, width=self.latent, lasting=nodes)

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
        network = NodeNetwork(count_items_of(state.arrays), model.latent, model.rule(), torch.device("meta"))
        model.network_ = with_arrays(network, state.arrays, opening_device(model.device))
        model.best_epoch_ = epoch_of(state.facts)
        return model


@dataclass(frozen=True)
class NodeRule:
    """How a user's node is judged and found: the loss of the items, what a large node costs, and the steps to it."""

    loss: LossName
    node_l2: float
    fold_steps: int

    def __post_init__(self) -> None:
        if self.loss not in get_args(LossName):
            nearest = did_you_mean(self.loss, get_args(LossName)) or "; expected 'logistic' or 'square'"
            raise ConfigError(f"unknown loss {self.loss!r}{nearest}")
        if not 0 <= self.node_l2 < float("inf"):
            raise ConfigError(f"node_l2: expected a finite number ≥ 0, found {self.node_l2!r}")
        whole = isinstance(self.fold_steps, int) and not isinstance(self.fold_steps, bool)
        if not (whole and self.fold_steps >= 0):
            raise ConfigError(f"fold_steps: expected a whole number ≥ 0, found {self.fold_steps!r}")


class NodeNetwork(nn.Module):
    """Hidden layer = sigmoid(table rows of the history + bias + the user's node) − ½; scores = hidden · table + bias.

    The paper's layer without its mean: the same functions, because the output bias takes up the ½, but one change of
    the table no longer moves all scores at once, and users' hidden layers point in different directions.

    `mean_node` is the mean node of the users it learned from and `node_spread` the root mean square of a unit of a node
    around it: from them the node of any history is found. Weights are not set yet: `initial_node_weights` or arrays
    from a file do that.
    """

    mean_node: Tensor
    node_spread: Tensor

    def __init__(self, item_count: int, latent: int, rule: NodeRule, device: torch.device) -> None:
        super().__init__()
        self.rule = rule
        self.input_table = nn.Parameter(torch.empty(item_count, latent, device=device))
        self.input_bias = nn.Parameter(torch.empty(latent, device=device))
        self.output_table = nn.Parameter(torch.empty(item_count, latent, device=device))
        self.output_bias = nn.Parameter(torch.empty(item_count, device=device))
        self.register_buffer("mean_node", torch.empty(latent, device=device))
        self.register_buffer("node_spread", torch.empty(1, device=device))

    @property
    def item_count(self) -> int:
        return len(self.output_bias)

    @property
    def device(self) -> torch.device:
        return self.output_bias.device

    def answer(self, histories: csr_array) -> Tensor:
        """A score for every item, (users, items), on the network's device."""
        return self.decode(self.means(histories))

    def means(self, histories: csr_array) -> Tensor:
        """The hidden layer of any histories, each with the node found for it, (users, latent)."""
        rows = SparseRows.of(check_histories(histories, self.item_count), self.device)
        codes = self.encode(rows, rows.unit_values())
        return activate(codes + self.find_nodes(codes, rows))

    def encode(self, rows: SparseRows, values: Tensor) -> Tensor:
        """What a history alone says to the hidden layer, (users, latent); `values` stand in for the rows' own."""
        return self._sum_rows(self.input_table, rows, values) + self.input_bias

    def decode(self, hidden: Tensor) -> Tensor:
        """A score (for the logistic loss a logit) for every item, (users, items)."""
        return torch.addmm(self.output_bias, hidden, self.output_table.T)

    def losses(self, hidden: Tensor, rows: SparseRows) -> Tensor:
        """Each user's loss over all items, (users,): cross-entropy, or half the squares up to a constant.

        An item's target is its value, 1 at most, and 0 where nothing is stored.
        """
        targets = _targets(rows)
        found = (hidden * self._sum_rows(self.output_table, rows, targets)).sum(dim=1)
        found = found.index_add(0, rows.owner, self.output_bias[rows.columns] * targets)
        if self.rule.loss == "logistic":
            return F.softplus(self.decode(hidden)).sum(dim=1) - found
        # Σ (w·z + b)² by the Gram matrix of the table: no score of an item that is not stored is ever made.
        gram = self.output_table.T @ self.output_table
        crossed = gram @ hidden.T  # (latent, users)
        squares = (hidden * crossed.T).sum(dim=1) + 2 * (hidden @ (self.output_table.T @ self.output_bias))
        return 0.5 * (squares + self.output_bias.square().sum()) - found

    @torch.no_grad()
    def find_nodes(self, codes: Tensor, rows: SparseRows) -> Tensor:
        """A node for every history, (users, latent): from the mean node a few steps down the user's own loss.

        The loss is that of learning, with all weights of the network as they are: losses + node_l2 / 2 · ‖node‖². Steps
        have one length, which follows the spread of the learned nodes, so that a found node lies about as far out as
        they do; how long a history is does not matter, nor do the other histories.
        """
        nodes = self.mean_node.expand_as(codes)
        if not self.rule.fold_steps:
            return nodes
        wanted = self._sum_rows(self.output_table, rows, _targets(rows))
        squares = self.rule.loss == "square"
        gram = self.output_table.T @ self.output_table if squares else None
        shift = self.output_table.T @ self.output_bias if squares else None
        direction = torch.zeros_like(codes)
        for _ in range(self.rule.fold_steps):
            hidden = activate(codes + nodes)
            if gram is None or shift is None:
                scored = torch.sigmoid_(self.decode(hidden)) @ self.output_table
            else:
                scored = hidden @ gram + shift
            slope = (scored - wanted) * (0.25 - hidden.square()) + self.rule.node_l2 * nodes
            direction = _STEP_MOMENTUM * direction + (1 - _STEP_MOMENTUM) * slope
            length = direction.square().mean(dim=1, keepdim=True).sqrt().clamp_min(1e-12)
            nodes = nodes - _STEP_SIZE * self.node_spread * direction / length
        return nodes

    def _sum_rows(self, table: Tensor, rows: SparseRows, values: Tensor) -> Tensor:
        return F.embedding_bag(rows.columns, table, rows.starts[:-1], mode="sum", per_sample_weights=values)


def activate(codes: Tensor) -> Tensor:
    """The sigmoid, counted from its middle: sigmoid(x) − ½ = tanh(x / 2) / 2."""
    return torch.sigmoid(codes) - 0.5


def _targets(rows: SparseRows) -> Tensor:
    """What each stored item should be answered with; above 1 the cross-entropy would have no minimum."""
    return rows.values.clamp(0.0, 1.0)


@torch.no_grad()
def initial_node_weights(network: NodeNetwork, shares: npt.NDArray[np.float32], seed: int) -> NodeNetwork:
    """The network with normal first tables, and biases that answer every history with the items' `shares` of the users.

    A departure from the paper, which begins with biases of 0: among thousands of items nearly all targets are 0, and
    the first epochs would be spent on learning just that.
    """
    for name in ("input_table", "output_table"):
        weights = network.get_parameter(name)
        fill_normal(weights, derive_seed(seed, "first weights", name), _FIRST_SPREAD)
    network.input_bias.zero_()
    network.mean_node.zero_()
    network.node_spread.zero_()
    rates = torch.from_numpy(shares).to(network.device).clamp(_RAREST, 1 - _RAREST)
    network.output_bias.copy_(torch.logit(rates) if network.rule.loss == "logistic" else rates)
    return network


@dataclass(frozen=True)
class NodePlan:
    """What an epoch needs to know: how much is dropped, how fast and in what batches is learned, what weights cost."""

    dropout: float
    learning_rate: float
    weight_decay: float
    batch_size: int

    def __post_init__(self) -> None:
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"dropout: expected a number from 0 to below 1, found {self.dropout!r}")
        if not 0 <= self.weight_decay < float("inf"):
            raise ConfigError(f"weight_decay: expected a finite number ≥ 0, found {self.weight_decay!r}")
        if not 0 < self.learning_rate < float("inf"):
            raise ConfigError(f"learning_rate: expected a finite number above 0, found {self.learning_rate!r}")
        if not (isinstance(self.batch_size, int) and self.batch_size >= 1):
            raise ConfigError(f"batch_size: expected a whole number ≥ 1, found {self.batch_size!r}")


class UserNodes:
    """A node for every learning user, (users, latent), that starts at 0 and takes one step of Adam an epoch.

    The paper draws first nodes; from 0 two equal users stay equal, and a node far from 0 has been learned.
    """

    def __init__(self, user_count: int, latent: int, device: torch.device) -> None:
        if device.type == "cpu":
            plan_memory(f"CDAE: nodes of {user_count:,} users", 3 * 4 * user_count * latent, "take a smaller latent")
        self.nodes = torch.zeros(user_count, latent, device=device)
        self.slopes = torch.zeros_like(self.nodes)
        self.squares = torch.zeros_like(self.nodes)

    def step(self, users: Tensor, slope: Tensor, size: float, epoch: int) -> None:
        """Moves some users' nodes against the slope of their own loss; `epoch` counts from 1."""
        slopes = self.slopes[users].lerp_(slope, 1 - _MOMENTUM)
        squares = self.squares[users].lerp_(slope.square(), 1 - _MEMORY)
        self.slopes[users], self.squares[users] = slopes, squares
        # A user is shown once an epoch, so the epoch is the number of steps this node has taken.
        scale = (squares / (1 - _MEMORY**epoch)).sqrt_().add_(_LEAST)
        self.nodes[users] -= size * slopes / (1 - _MOMENTUM**epoch) / scale

    def arrays(self) -> dict[str, Tensor]:
        """What the next step depends on, by name."""
        return {"nodes": self.nodes, "node slopes": self.slopes, "node squares": self.squares}


class NodeTrainer:
    """One network being trained on the users with a weight above zero; `run_epoch` shows all of them once.

    Order and dropout depend only on the seed, the epoch and the step, so a run that goes on after an interruption
    draws the same numbers.
    """

    def __init__(
        self,
        network: NodeNetwork,
        matrix: csr_array,
        user_weights: npt.NDArray[np.float32],
        plan: NodePlan,
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
        self.user_nodes = UserNodes(len(self.support), len(network.input_bias), self.device)
        self._dropout_stream = derive_seed(seed, "dropout")
        self._order_seed = derive_seed(seed, "order of users")
        # The paper charges biases too; a bias that says how rare an item is must be large, so here it costs nothing.
        tables = {"params": [network.input_table, network.output_table], "weight_decay": plan.weight_decay}
        biases = {"params": [network.input_bias, network.output_bias], "weight_decay": 0.0}
        self._optimiser = torch.optim.Adam([tables, biases], lr=plan.learning_rate, fused=True)

    @property
    def networks(self) -> list[NodeNetwork]:
        """The one network that learns here."""
        return [self.network]

    def run_epoch(self) -> float:
        """Shows every user once and gives the mean loss."""
        self.epoch += 1
        order = stream(self._order_seed, self.epoch).permutation(len(self.support))
        total = 0.0
        for start in range(0, len(order), self.plan.batch_size):
            users = order[start : start + self.plan.batch_size]
            total += self._learn_from(users) * len(users)
        self._describe_nodes()
        return total / len(order)

    def batch_loss(self, users: npt.NDArray[np.int64], nodes: Tensor) -> Tensor:
        """The weighted mean loss of some of the supported users with these nodes and the dropout of this step."""
        histories = csr_array(self.matrix[self.support[users]])
        histories.sort_indices()
        rows = SparseRows.of(histories, self.device)
        hidden = activate(self.network.encode(rows, self._dropped(rows.unit_values())) + nodes)
        cost = 0.5 * self.network.rule.node_l2 * nodes.square().sum(dim=1)
        return (self._weights_of(users) * (self.network.losses(hidden, rows) + cost)).mean()

    def _learn_from(self, users: npt.NDArray[np.int64]) -> float:
        """One step of the network and of these users' nodes; gives the loss before it."""
        places = torch.from_numpy(users).to(self.device)
        nodes = self.user_nodes.nodes[places].requires_grad_()
        loss = self.batch_loss(users, nodes)
        loss.backward()  # type: ignore[no-untyped-call]
        if nodes.grad is not None:
            # The slope of the user's own loss: how much a user counts is the network's business, not the node's.
            own = nodes.grad * (len(users) / self._weights_of(users))[:, None]
            self.user_nodes.step(places, own, self.plan.learning_rate, self.epoch)
        self._optimiser.step()
        # Freed at once: of many networks that learn side by side only one holds gradients.
        self._optimiser.zero_grad(set_to_none=True)
        self.step += 1
        return float(loss.detach())

    def state(self) -> ModelState:
        """All that the rest of the training depends on: weights, nodes, Adam's moments, steps and epochs taken."""
        arrays = {f"weights/{name}": weight for name, weight in self.network.state_dict().items()}
        arrays |= self.user_nodes.arrays()
        for name, weight in self.network.named_parameters():
            for key, moment in self._optimiser.state.get(weight, {}).items():
                arrays[f"{key}/{name}"] = moment
        return ModelState(
            {name: array.detach().cpu().numpy().copy() for name, array in arrays.items()},
            {"step": self.step, "epoch": self.epoch},
        )

    def put_back(self, state: ModelState) -> None:
        """Goes on from a state of the same learning."""
        self.step, self.epoch = state.facts["step"], state.facts["epoch"]
        for name, weight in self.network.state_dict().items():
            weight.copy_(torch.from_numpy(state.arrays[f"weights/{name}"].copy()))
        for name, array in self.user_nodes.arrays().items():
            array.copy_(torch.from_numpy(state.arrays[name].copy()))
        if not self.step:
            return
        for name, weight in self.network.named_parameters():
            moments = {key: state.arrays[f"{key}/{name}"].copy() for key in ("step", "exp_avg", "exp_avg_sq")}
            self._optimiser.state[weight] = {
                key: torch.from_numpy(moment).to(self.device) for key, moment in moments.items()
            }

    def _describe_nodes(self) -> None:
        """Tells the network the nodes' mean and spread, in which a user with weight 2 counts as two."""
        weights = torch.from_numpy(self.weights / self.weights.sum()).to(self.device)
        mean = weights @ self.user_nodes.nodes
        squares = weights @ self.user_nodes.nodes.square()
        self.network.mean_node.copy_(mean)
        self.network.node_spread.copy_((squares - mean.square()).mean().clamp_min(0.0).sqrt())

    def _weights_of(self, users: npt.NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(self.weights[users]).to(self.device)

    def _dropped(self, values: Tensor) -> Tensor:
        if not self.plan.dropout:
            return values
        streams = streams_at(torch.tensor(self._dropout_stream, device=self.device), self.step)
        kept = uniform_at(streams, torch.arange(len(values), device=self.device)) >= self.plan.dropout
        return values * kept / (1 - self.plan.dropout)


def item_shares(matrix: csr_array, user_weights: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Which share of the supported users has each item; a user with weight 2 counts as two, a value above 1 as 1."""
    support = supported_users(matrix, user_weights)
    rows = csr_array(matrix[support]).astype(np.float64)
    rows.data = rows.data.clip(0, 1)
    weights = user_weights[support].astype(np.float64)
    return np.asarray(weights @ rows / weights.sum(), dtype=np.float32)
