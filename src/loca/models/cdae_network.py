"""The network of CDAE: a history and a user's node in, a score for every item out; a node is found for any history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch.nn import functional as F

from loca.errors import ConfigError, did_you_mean
from loca.models.autoencoder import SparseRows
from loca.models.draws import fill_normal
from loca.models.recommender import check_histories
from loca.random_streams import derive_seed

LossName = Literal["logistic", "square"]

# The spread of the first weights, as the LOCA paper has it.
_FIRST_SPREAD = 0.01
# The length of a step towards a user's node, in spreads of the learned nodes; most of it goes on in the direction of
# the last one.
_STEP_SIZE = 0.4
_MOMENTUM = 0.9
# Where everybody or nobody has an item, its logit would be infinite.
_RAREST = 1e-6


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
    around it: from them the node of any history is found. Weights are not set yet: `draw_first_node_weights` or arrays
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
            direction = _MOMENTUM * direction + (1 - _MOMENTUM) * slope
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
def draw_first_node_weights(network: NodeNetwork, shares: npt.NDArray[np.float32], seed: int) -> NodeNetwork:
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
