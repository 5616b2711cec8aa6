"""Local networks that stop each at its own best epoch; those that have stopped leave their stack."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loca.files.unfinished_work import work_at_hand
from loca.local.local_models import LocalModels
from loca.local.stacked import StackedLearning
from loca.local.validation import MemberQuestions
from loca.models.networks import Network, RunsEpochs
from loca.models.stopping import BestWeights, keep_states, recall_states, states_of
from loca.progress import bar


def learn_each_until_best(
    learning: Sequence[RunsEpochs],
    seen: LocalModels,
    networks: Sequence[Network],
    members: MemberQuestions,
    *,
    epochs: int,
    patience: int,
    evaluate_every: int,
    what: str,
) -> list[int]:
    """The best epoch of each network on its own validation users, with the weights of that epoch put back.

    A network without validation users runs all epochs. The bar counts the networks that have stopped.
    """
    best = [BestWeights() for _ in networks]
    done, stopped = _recall(what, learning, networks, best)
    active = set(range(len(networks))) - stopped
    runners = _without(learning, [networks[number] for number in stopped])
    _put_back(what, runners)
    with bar(what, len(networks)) as progress:
        progress.advance(len(stopped))
        for epoch in range(done + 1, epochs + 1):
            if not active:
                break
            loss = float(np.mean([one.run_epoch() for one in runners]))
            progress.advance(0, note=f"epoch {epoch}, loss {loss:.2f}, {len(active)} still learn")
            if epoch % evaluate_every == 0 or epoch == epochs:
                for number, score in members.score(seen, active).items():
                    best[number].offer(epoch, score, [networks[number]])
                stopped = {one for one in active if best[one].is_final(epoch, patience)}
                active -= stopped
                progress.advance(len(stopped))
                runners = _without(runners, [networks[number] for number in stopped])
            if work_at_hand().due():
                states = states_of(runners) | {f"best {number}": one.state() for number, one in enumerate(best)}
                keep_states(what, epoch, states, active=sorted(active))
    for one, network in zip(best, networks, strict=True):
        if one.epoch:
            one.give_back([network])
    return [one.epoch or epochs for one in best]


def _recall(
    what: str, learning: Sequence[RunsEpochs], networks: Sequence[Network], best: Sequence[BestWeights]
) -> tuple[int, set[int]]:
    """The epochs of an interrupted run and the networks that had stopped, with their best weights put back."""
    recalled = recall_states(what)
    if recalled is None:
        return 0, set()
    facts, states = recalled
    for number, one in enumerate(best):
        one.put_back(states[f"best {number}"], [networks[number]])
    return int(facts["epoch"]), set(range(len(networks))) - set(facts["active"])


def _put_back(what: str, runners: Sequence[RunsEpochs]) -> None:
    recalled = recall_states(what)
    if recalled is not None:
        for place, one in enumerate(runners):
            one.put_back(recalled[1][f"learning {place}"])


def _without(runners: Sequence[RunsEpochs], stopped: Sequence[Network]) -> list[RunsEpochs]:
    """The learning that is left when some networks have stopped."""
    gone = {id(network) for network in stopped}
    left = []
    for one in runners:
        own = [network for network in one.networks if id(network) in gone]
        if len(own) == len(one.networks):
            continue
        if own and isinstance(one, StackedLearning):
            one.leave(own)
        left.append(one)
    return left
