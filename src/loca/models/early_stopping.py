"""When learning ends: after a number of epochs, or where a validation score was best; interrupted work goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn

from loca.persistence.checkpoint import work_at_hand
from loca.persistence.manifest import ModelState
from loca.progress import Bar, bar


class Network(Protocol):
    """Weights that answer any history, and can be copied and put back."""

    @property
    def device(self) -> torch.device: ...

    @property
    def item_count(self) -> int: ...

    def answer(self, histories: csr_array) -> Tensor:
        """A score for every item, (users, items), on the network's device."""
        ...

    def parameters(self) -> Iterator[nn.Parameter]: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> Any: ...


class Embeds(Protocol):
    """A network with a middle layer that says who a user is."""

    def means(self, histories: csr_array) -> Tensor:
        """The middle layer of any histories, (users, latent), on the network's device."""
        ...


class RunsEpochs(Protocol):
    """One or many networks that learn an epoch at a time."""

    @property
    def networks(self) -> Sequence[Network]: ...

    def run_epoch(self) -> float: ...

    def state(self) -> ModelState:
        """All that the rest of the training depends on."""
        ...

    def put_back(self, state: ModelState) -> None:
        """Goes on from a state of the same learning."""
        ...


class SingleTrainer(RunsEpochs, Protocol):
    """One network that learns from the users in `support`."""

    support: npt.NDArray[np.int64]

    @property
    def network(self) -> Network: ...

    @property
    def device(self) -> torch.device: ...


Watcher = Callable[[int, float], None]

_watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


@contextmanager
def watched_by(watcher: Watcher | None) -> Iterator[None]:
    """While it is open, `watcher` is told each step and its score on validation; what it raises ends the fit."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def tell_score(step: int, score: float) -> None:
    """Tells the watcher, where there is one, what was reached after so many epochs or rounds."""
    watcher = _watcher.get()
    if watcher is not None:
        watcher(step, score)


# Of fewer scores the last is too often the largest by chance.
_ENOUGH_TO_CLIMB = 5


class BestWeights:
    """A copy of the best weights seen so far, and when they were seen."""

    def __init__(self) -> None:
        self.epoch = 0
        self.score = -np.inf
        self.told: list[tuple[int, float]] = []
        self._copies: list[dict[str, torch.Tensor]] = []

    def offer(self, epoch: int, score: float, networks: Sequence[Network]) -> None:
        """Keeps a copy of the networks' weights when `score` is the best so far."""
        self.told.append((epoch, score))
        if score > self.score:
            self.epoch, self.score = epoch, score
            if not self._copies:
                self._copies = [{name: torch.empty_like(w) for name, w in n.state_dict().items()} for n in networks]
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
        lately = [score for told, score in self.told if told > epoch - patience / 2]
        return len(lately) < _ENOUGH_TO_CLIMB or lately[-1] <= max(lately[:-1])

    def give_back(self, networks: Sequence[Network]) -> None:
        """Gives the networks the best weights again."""
        for network, weights in zip(networks, self._copies, strict=True):
            network.load_state_dict(weights)

    def state(self) -> ModelState:
        """The copies, as arrays by network and name."""
        arrays = {
            f"{place}/{name}": weight.cpu().numpy()
            for place, copies in enumerate(self._copies)
            for name, weight in copies.items()
        }
        return ModelState(arrays, {"epoch": self.epoch, "score": self.score if self.epoch else None, "told": self.told})

    def put_back(self, state: ModelState, networks: Sequence[Network]) -> None:
        """Goes on from a state of the same networks."""
        self.told = [(told, score) for told, score in state.facts.get("told", ())]
        if state.facts["epoch"]:
            self.epoch, self.score = state.facts["epoch"], state.facts["score"]
            self._copies = [
                {
                    name: torch.from_numpy(state.arrays[f"{place}/{name}"].copy()).to(weight.device)
                    for name, weight in network.state_dict().items()
                }
                for place, network in enumerate(networks)
            ]


def learn_until_best(
    learning: Sequence[RunsEpochs],
    validate: Callable[[], float],
    *,
    epochs: int,
    patience: int,
    evaluate_every: int,
    what: str,
) -> BestWeights:
    """Trains all networks side by side, an epoch of each in turn, until `validate` has not risen for `patience` epochs.

    A score that climbs again is waited for (`BestWeights.is_final`). The networks end with the weights of the best
    epoch.
    """
    best = BestWeights()
    networks = [network for one in learning for network in one.networks]
    done = _recall(what, learning, best, networks)
    with bar(what, epochs) as progress:
        progress.advance(done)
        for epoch in range(done + 1, epochs + 1):
            if best.is_final(epoch - 1, patience):
                break
            loss = float(np.mean([one.run_epoch() for one in learning]))
            _show(progress, loss, networks, best)
            if epoch % evaluate_every == 0 or epoch == epochs:
                score = validate()
                best.offer(epoch, score, networks)
                tell_score(epoch, score)
            _keep(what, epoch, learning, best)
    best.give_back(networks)
    return best


def learn_for(learning: Sequence[RunsEpochs], *, epochs: int, what: str) -> None:
    """Trains all networks for a fixed number of epochs."""
    networks = [network for one in learning for network in one.networks]
    done = _recall(what, learning, BestWeights(), networks)
    with bar(what, epochs) as progress:
        progress.advance(done)
        for epoch in range(done + 1, epochs + 1):
            loss = float(np.mean([one.run_epoch() for one in learning]))
            _show(progress, loss, networks, None)
            _keep(what, epoch, learning, None)


def _show(progress: Bar, loss: float, networks: Sequence[Network], best: BestWeights | None) -> None:
    """One line for all networks: how many, their loss, the best score so far, and the device's memory in use."""
    words = [f"{len(networks)} models"] if len(networks) > 1 else []
    words.append(f"loss {loss:.2f}")
    if best is not None and best.epoch:
        words.append(f"best NDCG@100 {best.score:.4f} at epoch {best.epoch}")
    device = networks[0].device
    if device.type == "cuda":
        words.append(f"{torch.cuda.memory_allocated(device) / 1e9:.1f} GB on {device}")
    progress.advance(note=", ".join(words))


def keep_states(what: str, epoch: int, states: Mapping[str, ModelState], **facts: Any) -> None:
    """Keeps named states after an epoch, for a run that goes on after an interruption."""
    arrays: dict[str, npt.NDArray[Any]] = {
        f"{part}/{name}": array for part, state in states.items() for name, array in state.arrays.items()
    }
    parts = {part: dict(state.facts) for part, state in states.items()}
    work_at_hand().keep(what, ModelState(arrays, {"epoch": epoch, "parts": parts, **facts}))


def recall_states(what: str) -> tuple[Mapping[str, Any], dict[str, ModelState]] | None:
    """The facts (`epoch` among them) and the named states that an interrupted run kept; None without one."""
    kept = work_at_hand().recall(what)
    if kept is None:
        return None
    states = {}
    for part, facts in kept.facts["parts"].items():
        prefix = f"{part}/"
        own = {name.removeprefix(prefix): array for name, array in kept.arrays.items() if name.startswith(prefix)}
        states[part] = ModelState(own, facts)
    return kept.facts, states


def states_of(learning: Sequence[RunsEpochs]) -> dict[str, ModelState]:
    """The state of each learning, named by its place."""
    return {f"learning {place}": one.state() for place, one in enumerate(learning)}


def _keep(what: str, epoch: int, learning: Sequence[RunsEpochs], best: BestWeights | None) -> None:
    """Keeps the state after an epoch where interrupted work is to go on and enough time has passed."""
    if work_at_hand().due():
        keep_states(what, epoch, states_of(learning) | ({} if best is None else {"best": best.state()}))


def _recall(what: str, learning: Sequence[RunsEpochs], best: BestWeights, networks: Sequence[Network]) -> int:
    """The number of epochs that an interrupted run had finished, with everything as it was then; 0 without one."""
    recalled = recall_states(what)
    if recalled is None:
        return 0
    facts, states = recalled
    for place, one in enumerate(learning):
        one.put_back(states[f"learning {place}"])
    if "best" in states:
        best.put_back(states["best"], networks)
    return int(facts["epoch"])
