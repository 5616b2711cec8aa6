"""What engines need of the models that they train, beside what every recommender has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from scipy.sparse import csr_array

from loca.errors import ConfigError
from loca.memory import DataSize
from loca.models.early_stopping import Schedule
from loca.models.recommender import Recommender, Scores, TrainingData, UserWeights
from loca.typing import FloatArray

if TYPE_CHECKING:
    import torch

    from loca.models.autoencoder import Network
    from loca.models.ease_solver import SolvingBytes, WeightRows
    from loca.models.network_base import SingleTrainer


class LearnsByEpoch(Schedule, Protocol):
    """A network that learns an epoch at a time (`Recommender.learns_by_epoch`)."""

    batch_size: int
    best_epoch_: int | None

    @property
    def network_(self) -> Network | None:
        """The network; None before `begin`."""

    def check_memory(self, matrix: csr_array, device: str) -> None:
        """Refuse a network that takes more memory than is free."""

    def begin(
        self,
        matrix: csr_array,
        user_weights: UserWeights | None,
        moments: csr_array | None = None,
        network: Network | None = None,
        device: str = "auto",
    ) -> SingleTrainer[Any, Any]:
        """Return the trainer of a new network, or of one that goes on from its weights.

        The model holds the network as `network_`.
        """

    def warm_started(self, data: TrainingData, epochs: int, done: int) -> Recommender:
        """Return an unfitted copy for a network that goes on after `done` epochs."""


class Linear(Protocol):
    """A model of items × items weights in closed form (`Recommender.is_linear`)."""

    weights_: FloatArray

    def solve_each(
        self,
        matrix: csr_array,
        user_weights: Sequence[UserWeights],
        device: torch.device,
        moments: csr_array | None,
    ) -> Iterator[WeightRows]:
        """Yield what a fit learns with each of several user weights."""

    def bytes_to_solve(self, size: DataSize, device: torch.device) -> SolvingBytes:
        """Return what `solve_each` takes on a device."""

    def similarities_of_weights(self, outgoing: Scores, incoming: Callable[[], Scores]) -> Scores:
        """Return the similarities that follow from the weights of given items."""

    def score(self, histories: csr_array) -> Scores:
        """Return history · weights, users × items."""

    def count_items(self) -> int:
        """Return how many items there are."""


def as_learning_by_epoch(model: Recommender) -> LearnsByEpoch:
    """Return a model as one that learns by epoch; refuse any other."""
    if not model.learns_by_epoch:
        raise ConfigError(f"expected a model that learns by epoch, found {type(model).__name__}")
    return cast(LearnsByEpoch, model)


def as_linear(model: Recommender) -> Linear:
    """Return a model as a linear one; refuse any other."""
    if not model.is_linear:
        raise ConfigError(f"expected a linear model, found {type(model).__name__}")
    return cast(Linear, model)
