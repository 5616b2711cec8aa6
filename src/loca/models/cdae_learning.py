"""How CDAE learns: weighted users in random batches, each with a node of its own, every draw by its place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor

from loca.errors import ConfigError
from loca.files.model_state import ModelState
from loca.memory import plan_memory
from loca.models.autoencoder import SparseRows
from loca.models.cdae_network import NodeNetwork, activate
from loca.models.draws import streams_at, uniform_at
from loca.models.recommender import supported_users
from loca.random_streams import derive_seed, stream

# Adam's habits for the two moments, and what keeps its division finite.
_MOMENTUM, _MEMORY, _LEAST = 0.9, 0.999, 1e-8


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


class NodeLearning:
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
