"""What all networks share: the model around a network, and the trainer that changes its weights epoch by epoch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor

from loca.data.splits import HeldOut
from loca.errors import DataError
from loca.evaluation.evaluate import mean_value
from loca.memory import DataSize, MemoryUse, plan_memory
from loca.models.autoencoder import Network
from loca.models.counter_rng import streams_at, uniform_at
from loca.models.devices import SparseRows, choose_device, memory_on, ranking_bytes, score_on
from loca.models.early_stopping import to_arrays, train_epochs
from loca.models.recommender import (
    ItemRows,
    Recommender,
    Scores,
    SimilarityKind,
    TrainingData,
    UserWeights,
    clone,
    fitted,
    supported_users,
)
from loca.models.similarity import cosines
from loca.persistence.learned import declare
from loca.persistence.learned_fields import LearnedField, Sizes
from loca.persistence.manifest import ModelState
from loca.progress import say
from loca.random_streams import derive_seed, stream

AnyNetwork = TypeVar("AnyNetwork", bound=Network)
Users = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class LearnedNetwork(LearnedField):
    """The weights of a network, whose shape follows from the parameters of its model."""

    def write(self, name: str, value: Network, state: ModelState) -> None:
        for weight_name, weight in value.state_dict().items():
            state.arrays[weight_name] = weight.detach().cpu().numpy()

    def read(self, name: str, state: ModelState, sizes: Sizes, owner: Any) -> Network:
        arrays = dict(state.arrays)
        state.arrays.clear()
        network: Network = owner.build(arrays["output_bias"].size, torch.device("meta"))
        expected = {name: tuple(weight.shape) for name, weight in network.state_dict().items()}
        actual = {name: array.shape for name, array in arrays.items()}
        if expected != actual:
            wrong = sorted(set(expected.items()) ^ set(actual.items()))
            raise ValueError(f"arrays do not fit the parameters: {wrong[0][0]}")
        for weight_name, array in arrays.items():
            if array.dtype != np.float32 or not np.isfinite(array).all():
                raise ValueError(f"expected finite 32-bit numbers in the array {weight_name}")
        weights = {name: torch.tensor(array) for name, array in arrays.items()}
        network.load_state_dict(weights, assign=True)
        return network.to(choose_device("auto"))

    def sizes(self, value: Network) -> Sizes:
        return {"items": value.item_count}


def learned_network() -> Any:
    """Declare the network that a model learns."""
    return declare(LearnedNetwork())


@dataclass(kw_only=True, eq=False, repr=False)
class NetworkModel(Recommender, Generic[AnyNetwork]):
    """A model that is a network, trained an epoch at a time; a subclass declares its hyperparameters.

    With validation the weights of the epoch with the best value stay; without, all `epochs` are run.
    """

    learns_by_epoch = True
    takes_new_items = False
    similarity_kind: ClassVar[SimilarityKind] = "symmetric"

    if TYPE_CHECKING:  # the hyperparameters that each declares for itself
        latent: int
        hidden: int | None
        dropout: float
        learning_rate: float
        batch_size: int
        epochs: int
        patience: int
        evaluate_every: int
        seed: int

    network_: AnyNetwork | None = learned_network()

    def build(self, item_count: int, device: torch.device) -> AnyNetwork:
        """The network with its shape, its weights not set."""
        raise NotImplementedError

    def trainer_class(self) -> type[SingleTrainer[Any, AnyNetwork]]:
        """The class that trains the network."""
        raise NotImplementedError

    def check_memory(self, matrix: csr_array, device: str) -> None:
        """Refuse, on a CPU, a network whose weights and what lasts beside them in training take more than is free."""
        what = f"{type(self).__name__} for {matrix.shape[1]:,} items"
        if choose_device(device).type == "cpu":
            try:
                needed = self.memory_bytes(DataSize.of(matrix, device=device)).training
            except RuntimeError:  # more numbers than can be counted
                raise DataError(
                    f"{what}: its layers are larger than any memory; take smaller ones"
                ) from None
            plan_memory(what, needed, "take smaller layers (latent, hidden) or filter rare items")

    def begin(
        self,
        matrix: csr_array,
        user_weights: UserWeights | None,
        moments: csr_array | None = None,
        network: AnyNetwork | None = None,
        device: str = "auto",
    ) -> Any:
        """The trainer of a network, which is held as `network_`: a new one, or one that goes on from its weights.

        `moments` is `as_moments` of what `matrix` came from; models that learn from sets have no use for it.
        A new network lies on the `device`, one that goes on stays where it is.
        """
        self.network_ = (
            self.build(matrix.shape[1], choose_device(device)) if network is None else network
        )
        in_order = moments if self.uses_order else None
        return self.trainer_class()(self, matrix, user_weights, in_order, is_new=network is None)

    def extra_bytes(self, users: int) -> tuple[int, int]:
        """What training takes beside the usual: bytes that last from step to step, and bytes that pass."""
        return 0, 0

    def memory_bytes(self, data: DataSize) -> MemoryUse:
        """What the network takes while it is trained, and after.

        From step to step last its weights, Adam's two moments and the copy of the best epoch. A step makes gradients,
        four arrays of scores, twenty of its layers' widths, and histories with draws for their dropout. On a GPU main
        memory takes the copy for a checkpoint.
        """
        device, users = choose_device(data.device), min(self.batch_size, data.users)
        lasting, passing = self.extra_bytes(data.users)
        network, width = (
            self.build(data.items, torch.device("meta")),
            self.latent + (getattr(self, "hidden", None) or 0),
        )
        weights = sum(weight.nbytes for weight in network.state_dict().values())
        training = 4 * weights + lasting + 24 * data.users
        histories = 64 * data.entries * users // max(data.users, 1)
        peak = (
            training + 2 * weights + 4 * users * (4 * data.items + 20 * width) + histories + passing
        )
        advice = "take fewer or smaller models"
        if device.type == "cuda":
            advice += ", or fit without checkpoints (--checkpoint-every 1e9)"
        # A checkpoint: the new one is written before the old one goes.
        more = {"training": training, "checkpoint": 2 * training, "advice": advice}
        return memory_on(device, peak, weights, main=training, after=(0, weights), **more)

    def _fit(self, data: TrainingData) -> None:
        """Train from the initial weights on."""
        self.check_memory(data.matrix, data.device)
        moments = data.moments if self.uses_order else None
        trainer = self.begin(data.matrix, data.user_weights, moments, device=data.device)
        what = type(self).__name__

        def validate(held_out: HeldOut) -> float:
            block = ranking_bytes(trainer.device)
            return mean_value(partial(score_on, self), held_out, data.metric, block_bytes=block)

        on_validation = None if data.validation is None else partial(validate, data.validation)
        best = train_epochs([trainer], self, what, on_validation, data.context)
        if best.epoch:
            reached = f"{data.metric.label} {best.score:.4f}"
            say(f"{what}: best validation {reached} after {best.epoch} epochs")
        self.best_epoch_ = best.epoch or self.epochs

    def _update(self, data: TrainingData, epochs: int) -> None:
        """Train on from the present weights."""
        more = self.warm_started(data, epochs, self.best_epoch_ or self.epochs)
        moments, network = (
            data.moments if self.uses_order else None,
            copy.deepcopy(fitted(self.network_, self)),
        )
        trainer = more.begin(data.matrix, data.user_weights, moments, network)
        train_epochs([trainer], more, f"{type(self).__name__}: update")
        self.network_ = network

    def _move(self, device: str) -> None:
        if self.network_ is not None:
            self.network_.to(choose_device(device))

    def warm_started(self, data: TrainingData, epochs: int, done: int) -> Self:
        """An unfitted copy, with new draws, for a network that learned for `done` epochs and goes on for some more."""
        return clone(self, epochs=epochs, seed=derive_seed(self.seed, "update", data.matrix.nnz))

    def score(self, histories: csr_array) -> Scores:
        """Score every item for histories.

        Parameters
        ----------
        histories : csr_array
            Users × items, as `Interactions.histories` makes them; their users need not be known.

        Returns
        -------
        ndarray of float32
            Users × items; log softmax of a row is a log-probability where `gives_logits` is true.
        """
        with torch.inference_mode():
            return fitted(self.network_, self).answer(histories).cpu().numpy()

    @property
    def embedding_size(self) -> int:
        """The width of the middle layer."""
        return self.latent

    def embed(self, histories: csr_array) -> npt.NDArray[np.float32]:
        """Compute the middle layer of each history; of a variational network its mean.

        Parameters
        ----------
        histories : csr_array
            Users × items.

        Returns
        -------
        ndarray of float32
            Users × `latent`.
        """
        with torch.inference_mode():
            return fitted(self.network_, self).means(histories).cpu().numpy()

    def _similarities(self, item_rows: ItemRows) -> Scores:
        """Cosines of the weights by which the last layer makes the items' scores."""
        return cosines(fitted(self.network_, self).output_table, item_rows)


AnyModel = TypeVar("AnyModel", bound=NetworkModel[Any])


class SingleTrainer(Generic[AnyModel, AnyNetwork]):
    """One network being trained on the users with a weight above zero; `run_epoch` visits all of them once.

    Order, dropout and noise depend only on the seed, the epoch and the step: another engine draws the same numbers,
    and so does a run that goes on after an interruption.
    """

    def __init__(
        self,
        model: AnyModel,
        matrix: csr_array,
        user_weights: UserWeights | None,
        moments: csr_array | None,
        is_new: bool = True,
    ) -> None:
        network: AnyNetwork = fitted(model.network_, model)
        if is_new:
            network.initialise(model.seed)
        self.model, self.network, self.networks, self.device = (
            model,
            network,
            [network],
            network.device,
        )
        self.matrix, self.moments, self.step, self.epoch = matrix, moments, 0, 0
        self.support, weights = supported_users(matrix, user_weights)
        # Divided by their mean over all users, not over the batch: the gradient of a batch is then an unbiased
        # estimate of the weighted loss, and a user with weight 2 pulls like two users.
        self.weights = self._shared_weights = weights / weights.mean()
        self.shared_epochs = 0
        streams = (derive_seed(model.seed, name) for name in ("dropout", "noise", "prefix"))
        self.dropout_stream, self.noise_stream, self.prefix_stream = streams
        self.optimiser = self.make_optimiser()

    def share_epochs(self, epochs: int, user_weights: UserWeights) -> None:
        """Learn with other weights, those of all models alike, in the first epochs."""
        weights = np.asarray(user_weights, dtype=np.float32)[self.support]
        self._shared_weights, self.shared_epochs = weights / weights.mean(), epochs

    @property
    def epoch_weights(self) -> npt.NDArray[np.float32]:
        """The weights of the supported users in this epoch."""
        weights: npt.NDArray[np.float32] = (
            self._shared_weights if self.epoch <= self.shared_epochs else self.weights
        )
        return weights

    def make_optimiser(self) -> torch.optim.Optimizer:
        """Adam over all weights; those without a gradient in a step rest."""
        return torch.optim.Adam(self.network.parameters(), lr=self.model.learning_rate, fused=True)

    def run_epoch(self) -> float:
        """Train on every user once; gives the mean loss."""
        self.epoch += 1
        total = sum(
            self.learn_from(self.batch_loss(users)) * len(users) for users in self.batches()
        )
        return total / len(self.support)

    def remove(self, networks: Sequence[Network]) -> None:
        """Refuse to go on without the only network."""
        raise ValueError("a trainer of one network has none to give up; drop the trainer")

    def batch_loss(self, users: Users) -> Tensor:
        """The weighted mean loss of some of the supported users, with the dropout and noise of this step."""
        raise NotImplementedError

    def learn_from(self, loss: Tensor) -> float:
        """One step against the gradient of a loss; gives the loss before it."""
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        # Freed at once: of many networks that are trained in turn only one holds gradients.
        self.optimiser.zero_grad(set_to_none=True)
        self.step += 1
        return float(loss.detach())

    def order(self, *part: str | int) -> Users:
        """All supported users, by their places in `support`, in the order of this (part of an) epoch."""
        seed = derive_seed(self.model.seed, "order of users")
        return stream(seed, self.epoch, *part).permutation(len(self.support))

    def batches(self, *part: str | int) -> Iterator[Users]:
        """The same users, a batch at a time."""
        order, size = self.order(*part), self.model.batch_size
        return (order[start : start + size] for start in range(0, len(order), size))

    def rows(self, users: Users) -> SparseRows:
        """The histories of some of the supported users as sets, on the device."""
        histories = csr_array(self.matrix[self.support[users]])
        histories.sort_indices()
        return SparseRows.of(histories, self.device)

    def weights_of(self, users: Users) -> Tensor:
        """The weights of some of the supported users, on the device."""
        return torch.from_numpy(self.epoch_weights[users]).to(self.device)

    def draw(
        self, numbers_at: Callable[[Tensor, Tensor], Tensor], stream_number: int, count: int
    ) -> Tensor:
        """So many random numbers of one of the streams, those of this step."""
        streams = streams_at(torch.tensor(stream_number, device=self.device), self.step)
        return numbers_at(streams, torch.arange(count, device=self.device))

    def dropped(self, values: Tensor) -> Tensor:
        """The values after the dropout of this step; their expected sum stays."""
        if dropout := self.model.dropout:
            values = (
                values
                * (self.draw(uniform_at, self.dropout_stream, len(values)) >= dropout)
                / (1 - dropout)
            )
        return values

    def extra_tensors(self) -> dict[str, Tensor]:
        """What the training depends on beside weights and Adam's moments, by name."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Return all that the rest of the training depends on.

        That is weights, Adam's moments of those that have taken a step, and the steps and epochs
        taken.
        """
        weights = dict(self.network.named_parameters())
        moments = {name: self.optimiser.state.get(weight) for name, weight in weights.items()}
        return {
            "step": self.step,
            "epoch": self.epoch,
            "weights": to_arrays(self.network.state_dict()),
            "moments": {name: to_arrays(tensors) for name, tensors in moments.items() if tensors},
            "extra": to_arrays(self.extra_tensors()),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state of the same training."""
        self.step = state["step"]
        self.epoch = state["epoch"]
        for name, weight in self.network.state_dict().items():
            weight.copy_(torch.tensor(state["weights"][name]))
        for name, tensor in self.extra_tensors().items():
            tensor.copy_(torch.tensor(state["extra"][name]))
        parameters = dict(self.network.named_parameters())
        self.optimiser.state.clear()
        for name, moments in state["moments"].items():
            self.optimiser.state[parameters[name]] = {
                key: torch.tensor(array, device=self.device) for key, array in moments.items()
            }
