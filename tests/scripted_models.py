"""A model whose answers are written down beforehand, epoch by epoch, and data that ask each held-out part for one item.

Which epoch, and which of several models, a choice must end with is then known without any learning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from loca.data.id_map import IdMap
from loca.data.interactions import Interactions, as_matrix
from loca.data.splits import HeldOut, Split, leave_last_out
from loca.models.autoencoder import Network
from loca.models.network_base import NetworkModel
from loca.models.recommender import Recommender

# What validation asks every user for, what test asks for, and an item that nobody has.
ON_VALIDATION, ON_TEST, NEVER = 0, 1, 2
USERS, ITEMS = 10, 8
# The NDCG of one held-out item at the second place of a list.
SECOND = 1 / np.log2(3)

Row = tuple[float, ...]


def ranked(*items: int, scale: float = 1.0) -> Row:
    """Scores that put these items in front, the first of them first, and leave all others at 0."""
    scores = np.zeros(ITEMS)
    scores[list(items)] = scale * np.arange(len(items), 0, -1)
    return tuple(scores.tolist())


# Each has its own item at the first place and the other's at the second; what validation asks for is in the histories
# of test, and so not shown there.
RIGHT_ON_VALIDATION = ranked(ON_VALIDATION, NEVER, ON_TEST)
RIGHT_ON_TEST = ranked(ON_TEST, ON_VALIDATION)


def scripted_interactions() -> Interactions:
    """Everybody has two of the items 3 to 7, then the one that validation asks for, then the one that test asks for."""
    histories = [
        [3 + user % 5, 3 + (user + 1 + user // 5) % 5, ON_VALIDATION, ON_TEST]
        for user in range(USERS)
    ]
    offsets, item_rows = np.arange(USERS + 1) * 4, np.array(histories, np.int32).ravel()
    return Interactions(
        IdMap.numbered(USERS, "user"), IdMap.numbered(ITEMS, "item"), offsets, item_rows
    )


def scripted_split() -> Split:
    """Their last item is test, the one before it validation."""
    return leave_last_out(scripted_interactions(), test=1, validation=1)


class ScriptedNetwork(Network):
    """Answers every history with the row of the epoch that it stands at; its only weight is the number of epochs."""

    epoch: Tensor

    def __init__(self, script: tuple[Row, ...]) -> None:
        super().__init__()
        self.script = script
        self.register_buffer("epoch", torch.zeros(1))

    @property
    def device(self) -> torch.device:
        return self.epoch.device

    @property
    def item_count(self) -> int:
        return len(self.script[0])

    def answer(self, histories: csr_array) -> Tensor:
        return torch.tensor(self.script[int(self.epoch) - 1]).repeat(histories.shape[0], 1)


class ScriptedTrainer:
    """An epoch turns to the next row."""

    def __init__(self, network: ScriptedNetwork, users: int) -> None:
        self.network, self.networks, self.device = network, [network], network.device
        self.support = np.arange(users)

    def run_epoch(self) -> float:
        self.network.epoch += 1
        return 0.0

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.network.epoch.numpy().copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.network.epoch.copy_(torch.from_numpy(state["epoch"]))


@dataclass(kw_only=True, eq=False, repr=False)
class Scripted(NetworkModel[ScriptedNetwork]):
    """Answers with `script[e − 1]` after e epochs, whatever it learns from; a user is embedded by the items there are.

    Without `epochs` it runs through the whole script.
    """

    evaluate_every = 1

    script: tuple[Row, ...]
    epochs: int | None = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        super().__post_init__()
        self.epochs = self.patience = len(self.script) if self.epochs is None else self.epochs

    def begin(
        self,
        matrix: csr_array,
        user_weights: Any,
        moments: Any = None,
        network: Any = None,
        device: str = "auto",
    ) -> Any:
        self.network_ = ScriptedNetwork(self.script)
        return ScriptedTrainer(self.network_, matrix.shape[0])

    def check_memory(self, matrix: csr_array, device: str) -> None:
        """It takes none."""

    @property
    def embedding_size(self) -> int:
        return ITEMS

    def embed(self, histories: csr_array) -> Any:
        return histories.toarray()

    def count_items(self) -> int:
        return len(self.script[0])

    def save(self, folder: Any) -> None:
        raise NotImplementedError


class Diary(Recommender):
    """Scores by popularity times `direction` (−1 is the worst of models), and writes down what happens to it."""

    def __init__(self, *, direction: int = 1, name: str = "diary", pages: Any = None) -> None:
        self.direction = direction
        self.name = name
        self.pages = pages
        self.counts_: Any = None
        self.train_data_: Interactions | None = None

    def fit(
        self, train: Any, *, user_weights: Any = None, validation: HeldOut | None = None
    ) -> Self:
        self.note("fit", as_matrix(train).nnz, validation is not None)
        weights = np.ones(as_matrix(train).shape[0]) if user_weights is None else user_weights
        self.counts_ = np.asarray(weights @ as_matrix(train)).ravel()
        self.train_data_ = train
        return self

    def score(self, histories: csr_array) -> Any:
        self.note("score", histories.nnz)
        return np.tile(self.direction * self.counts_, (histories.shape[0], 1)).astype(np.float32)

    def note(self, *words: Any) -> None:
        if self.pages is not None:
            self.pages.append((*words, self.name))

    def selected(self) -> Diary:
        self.note("as chosen")
        return Diary(direction=self.direction, name=self.name, pages=self.pages)

    def save(self, folder: Any) -> None:
        raise NotImplementedError
