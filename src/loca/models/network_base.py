"""What a trained network answers (scores, embeddings), and its weights as arrays and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import nn

from loca.data.splits import HeldOut
from loca.errors import ConfigError, ModelFileError
from loca.evaluation.evaluate import mean_ndcg
from loca.memory import DataSize, MemoryUse
from loca.models.autoencoder import Autoencoder
from loca.models.devices import choose_device, ranking_bytes
from loca.models.early_stopping import Embeds, Network, SingleTrainer, learn_for, learn_until_best
from loca.models.recommender import Scores, UserWeights, check_user_weights
from loca.models.training import Trainer
from loca.progress import say

AnyNetwork = TypeVar("AnyNetwork", bound=nn.Module)


@runtime_checkable
class LearnsByEpoch(Protocol):
    """A model that is trained an epoch at a time, so that many can learn side by side and stop together."""

    epochs: int
    patience: int
    evaluate_every: int
    best_epoch_: int | None

    @property
    def network_(self) -> Network | None: ...

    def begin(
        self, matrix: csr_array, user_weights: UserWeights | None, moments: csr_array | None = None
    ) -> SingleTrainer:
        """Fresh weights, held as `network_`, and the learning that will change them.

        `moments` is `as_moments` of what `matrix` came from; models that learn from sets have no use for it.
        """
        ...

    def score(self, histories: csr_array) -> Scores: ...


def check_schedule(latent: int, hidden: int | None, epochs: int, patience: int, evaluate_every: int) -> None:
    """Refuses sizes and counts below 1."""
    given = {"latent": latent, "epochs": epochs, "patience": patience, "evaluate_every": evaluate_every}
    if hidden is not None:
        given["hidden"] = hidden
    for name, value in given.items():
        if not (isinstance(value, int) and value >= 1):
            raise ConfigError(f"{name}: expected a whole number ≥ 1, found {value!r}")


def begin_learning(
    model: Any,
    network: Autoencoder,
    matrix: csr_array,
    user_weights: UserWeights | None,
    moments: csr_array | None,
) -> Trainer:
    """The learning of `network` under the model's own plan and seed."""
    weights = check_user_weights(user_weights, matrix.shape[0])
    return Trainer(network, matrix, weights, model.plan(), model.seed, moments)


def learn(model: LearnsByEpoch, learning: SingleTrainer, validation: HeldOut | None) -> int:
    """Trains to the best validation NDCG@100, or for all epochs without validation; gives the epochs that count."""
    what = type(model).__name__
    if validation is None:
        learn_for([learning], epochs=model.epochs, what=what)
        return model.epochs
    best = learn_until_best(
        [learning],
        lambda: mean_ndcg(
            lambda histories: score_on(model, histories),
            validation,
            100,
            block_bytes=ranking_bytes(learning.device),
        ),
        epochs=model.epochs,
        patience=model.patience,
        evaluate_every=model.evaluate_every,
        what=what,
    )
    say(f"{what}: best validation NDCG@100 {best.score:.4f} after {best.epoch} epochs")
    return best.epoch


def network_memory(
    network: nn.Module, device_name: str, data: DataSize, batch: int, *, width: int, lasting: int = 0, passing: int = 0
) -> MemoryUse:
    """What a network (on the device `meta`) takes while it learns by epochs, and after.

    From step to step last its weights, Adam's two moments and the copy of the best epoch, with `lasting` more bytes. A
    step of `batch` users makes gradients, four arrays of scores, twenty of its layers' `width` numbers, and histories
    with draws for their dropout, with `passing` more. On a GPU main memory takes the copy for a checkpoint.
    """
    device, users = choose_device(device_name), min(batch, data.users)
    weights = sum(weight.nbytes for weight in network.state_dict().values())
    training = 4 * weights + lasting + 24 * data.users
    histories = 64 * data.entries * users // max(data.users, 1)
    peak = training + 2 * weights + 4 * users * (4 * data.items + 20 * width) + histories + passing
    on_gpu = device.type == "cuda"
    return MemoryUse(
        main=training if on_gpu else peak,
        device=peak if on_gpu else 0,
        main_after=0 if on_gpu else weights,
        device_after=weights if on_gpu else 0,
        folder=weights,
        training=training,
        checkpoint=2 * training,  # the new one is written before the old one goes
        device_name=str(device),
        advice="take fewer or smaller models" + ", or fit without checkpoints (--checkpoint-every 1e9)" * on_gpu,
    )


def score_on(model: Any, histories: csr_array) -> torch.Tensor:
    """Any model's scores, (users, items): those of a network stay on its device, others lie in main memory."""
    if isinstance(model, LearnsByEpoch) and model.network_ is not None:
        with torch.no_grad():
            return model.network_.answer(histories)
    # Writable: torch warns of views that are not, such as one answer shown to every user.
    return torch.from_numpy(np.require(model.score(histories), requirements=("C", "W")))


def score_histories(network: Network, histories: csr_array) -> Scores:
    """A logit for every item and asked user, (users, items)."""
    with torch.inference_mode():
        return np.asarray(network.answer(histories).cpu().numpy(), dtype=np.float32)


def embed_histories(network: Embeds, histories: csr_array) -> npt.NDArray[np.float32]:
    """The middle layer (a variational one's mean), (users, latent)."""
    with torch.inference_mode():
        return np.asarray(network.means(histories).cpu().numpy(), dtype=np.float32)


def opening_device(name: str) -> torch.device:
    """The device that a model from a file answers on: its own, or where that is missing any that there is."""
    try:
        return choose_device(name)
    except ConfigError:
        return choose_device("auto")  # a model trained on a GPU must open where there is none


def network_arrays(network: nn.Module) -> dict[str, npt.NDArray[np.float32]]:
    """The weights by name."""
    return {name: weight.detach().cpu().numpy() for name, weight in network.state_dict().items()}


def count_items_of(arrays: Mapping[str, npt.NDArray[Any]]) -> int:
    """The items that a network with these weights answers for."""
    if "output_bias" not in arrays:
        raise ModelFileError("network: the array output_bias is missing")
    return arrays["output_bias"].size


def with_arrays(network: AnyNetwork, arrays: Mapping[str, npt.NDArray[Any]], device: torch.device) -> AnyNetwork:
    """The network, made on the device `meta`, with these weights; those that do not fit are refused.

    Files come from strangers: names and shapes must be those of the network, the numbers 32-bit and finite.
    """
    expected = {name: tuple(weight.shape) for name, weight in network.state_dict().items()}
    found = {name: array.shape for name, array in arrays.items()}
    if expected != found:
        wrong = sorted(set(expected.items()) ^ set(found.items()))
        raise ModelFileError(f"network: arrays do not fit the parameters: {wrong[0][0]}")
    for name, array in arrays.items():
        if array.dtype != np.float32 or not np.isfinite(array).all():
            raise ModelFileError(f"network: expected finite 32-bit numbers in the array {name}")
    weights = {name: torch.tensor(np.asarray(array)) for name, array in arrays.items()}
    network.load_state_dict(weights, assign=True)
    return network.to(device)


def network_from_arrays(
    arrays: Mapping[str, npt.NDArray[Any]],
    latent: int,
    hidden: int | None,
    variational: bool,
    device: torch.device,
) -> Autoencoder:
    """An autoencoder again; weights that do not fit are refused."""
    network = Autoencoder(count_items_of(arrays), latent, hidden, variational, torch.device("meta"))
    return with_arrays(network, arrays, device)


def epoch_of(facts: Mapping[str, Any]) -> int | None:
    """The epochs that validation chose, as a file tells them."""
    epoch = facts.get("best_epoch")
    if epoch is not None and not (isinstance(epoch, int) and not isinstance(epoch, bool) and epoch >= 1):
        raise ModelFileError(f"network: best_epoch: expected a whole number ≥ 1, found {epoch!r}")
    return epoch
