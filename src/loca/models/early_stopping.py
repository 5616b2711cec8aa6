"""Early stopping: train for a number of epochs, or until a validation score is best; interrupted training goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from loca.deferred import torch
from loca.persistence.fit_context import NO_CONTEXT, FitContext, StopFit
from loca.progress import bar
from loca.remarks import remark

if TYPE_CHECKING:
    from torch import Tensor

    from loca.models.autoencoder import Network


class Schedule(Protocol):
    """How long to train: at most `epochs`, and no longer than `patience` epochs without a better validation score."""

    epochs: int
    patience: int
    evaluate_every: int


class Trainer(Protocol):
    """One or many networks that are trained an epoch at a time."""

    @property
    def networks(self) -> Sequence[Network]: ...

    def run_epoch(self) -> float:
        """Train on every user once, and return the mean loss."""

    def remove(self, networks: Sequence[Network]) -> None:
        """Take some of the networks, not all, out of the training; their weights stay."""

    def state_dict(self) -> dict[str, Any]:
        """Return all that the rest of the training depends on."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state of the same training."""


# Of fewer scores the last is too often the largest by chance.
_ENOUGH_TO_CLIMB = 5


class BestWeights:
    """A copy of the best weights so far, their epoch and score, and the `history` of all (epoch, score) pairs."""

    def __init__(self) -> None:
        self.epoch, self.score = 0, -np.inf
        self.history: list[tuple[int, float]] = []
        self._copies: list[dict[str, Tensor]] = []

    def update(self, epoch: int, score: float, networks: Sequence[Network]) -> None:
        """Copy the networks' weights if `score` is the best so far."""
        self.history.append((epoch, score))
        if score > self.score:
            self.epoch, self.score = epoch, score
            if not self._copies:
                self._copies = [
                    {name: torch.empty_like(w) for name, w in n.state_dict().items()}
                    for n in networks
                ]
            for network, copies in zip(networks, self._copies, strict=True):
                for name, weight in network.state_dict().items():
                    copies[name].copy_(weight)

    def is_final(self, epoch: int, patience: int) -> bool:
        """Whether nothing better came for `patience` epochs, and the scores of the last half of them do not climb.

        Many networks at once score well before they have learned anything, because their first answers differ, then
        fall to what one network knows, and climb from there: that climb is waited for.
        """
        if not self.epoch or epoch - self.epoch < patience:
            return False
        lately = [score for when, score in self.history if when > epoch - patience / 2]
        return len(lately) < _ENOUGH_TO_CLIMB or lately[-1] <= max(lately[:-1])

    def ending(self, schedule: Schedule) -> str:
        """Words for a training that its limit of epochs has ended; empty where early stopping has, or never looked."""
        if (
            not self.epoch
            or self.history[-1][0] < schedule.epochs
            or self.is_final(schedule.epochs, schedule.patience)
        ):
            return ""
        limit = f"stopped at the limit of {schedule.epochs} epochs"
        if self.epoch < schedule.epochs:
            return f"{limit}, not by early stopping; best at epoch {self.epoch}"
        return f"{limit}, while the validation score was still rising: more epochs may help"

    def restore_best(self, networks: Sequence[Network]) -> None:
        """Give the networks the best weights again, if there are any."""
        for network, weights in zip(networks, self._copies, strict=bool(self._copies)):
            network.load_state_dict(weights)

    def state_dict(self) -> dict[str, Any]:
        """Return the best epoch with its score and the weights of each network, and the history."""
        return {
            "epoch": self.epoch,
            "score": self.score,
            "history": self.history,
            "weights": [to_arrays(copies) for copies in self._copies],
        }

    def load_state_dict(self, state: Mapping[str, Any], networks: Sequence[Network]) -> None:
        """Go on from a state of the same networks."""
        self.epoch = state["epoch"]
        self.score = state["score"]
        self.history = list(state["history"])
        self._copies = []
        for place, weights in enumerate(state["weights"]):
            device = networks[place].device
            copies = {name: torch.tensor(array, device=device) for name, array in weights.items()}
            self._copies.append(copies)


def to_arrays(tensors: Mapping[str, Tensor]) -> dict[str, npt.NDArray[Any]]:
    """Return tensors as arrays in main memory; on a CPU they share it."""
    return {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}


def train_epochs(
    trainers: Sequence[Trainer],
    schedule: Schedule,
    what: str,
    validate: Callable[[], float] | None = None,
    context: FitContext = NO_CONTEXT,
    shared: int = 0,
) -> BestWeights:
    """Train all networks in parallel, an epoch of each in turn, until `validate` has not risen for `patience` epochs.

    The first `shared` epochs, in which all learn from the same users alike, are not judged. A score that climbs again
    is waited for (`BestWeights.is_final`). A callback that raises `StopFit` ends the training.
    The networks end with the weights of the best epoch. Without `validate` all epochs are run, and
    the best epoch is 0. An interrupted training goes on.
    """
    networks = [network for trainer in trainers for network in trainer.networks]
    best, device, done = BestWeights(), networks[0].device, 0
    state = context.checkpoint.load(what)
    if state is not None:
        done = state["epoch"]
        load_trainers(trainers, state["trainers"])
        best.load_state_dict(state["best"], networks)
    del state  # makes room
    with bar(what, schedule.epochs) as progress:
        progress.advance(done)
        for epoch in range(done + 1, schedule.epochs + 1):
            if best.is_final(epoch - 1, schedule.patience):
                break
            loss = float(np.mean([trainer.run_epoch() for trainer in trainers]))
            note = f"{len(networks)} models, " * (len(networks) > 1) + f"loss {loss:.2f}"
            if best.epoch:
                note += f", best {best.score:.4f} at epoch {best.epoch}"
            if device.type == "cuda":
                note += f", {torch.cuda.memory_allocated(device) / 1e9:.1f} GB on {device}"
            progress.advance(note=note)
            is_due = epoch % schedule.evaluate_every == 0 or epoch == schedule.epochs
            if validate is not None and epoch > shared and is_due:
                score = validate()
                best.update(epoch, score, networks)
                try:
                    context.report(epoch, score)
                except StopFit:
                    break
            if context.checkpoint.due():
                context.checkpoint.save(what, training_state(epoch, trainers, best))
    best.restore_best(networks)
    if ending := best.ending(schedule):
        remark("training", f"{what} {ending}")
    return best


def training_state(epoch: int, trainers: Sequence[Trainer], best: BestWeights) -> dict[str, Any]:
    """Return all that a training depends on after an epoch."""
    return {
        "epoch": epoch,
        "trainers": [trainer.state_dict() for trainer in trainers],
        "best": best.state_dict(),
    }


def load_trainers(trainers: Sequence[Trainer], states: Sequence[Mapping[str, Any]]) -> None:
    """Let each trainer go on from its state."""
    for trainer, state in zip(trainers, states, strict=True):
        trainer.load_state_dict(state)
