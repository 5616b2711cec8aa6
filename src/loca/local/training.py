"""How all local models are trained: in a loop (the reference), as stacked networks, or as differences of EASEs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array

from loca.data.interactions import Interactions, as_moments
from loca.errors import ConfigError, DataError, did_you_mean
from loca.local.local_ease import LOCAL_BYTES, differences_memory, fit_ease_differences, is_centre_for
from loca.local.local_models import CommunityValidator, LocalModels, SeparateModels
from loca.local.stacked.inference import AnswerPrecision, StackedNetworks
from loca.local.stacked.ops import PrecisionName, multiplies_densely
from loca.local.stacked.trainer import StackedTrainer, plan_stacks
from loca.memory import DataSize, MemoryUse, plan_memory
from loca.models.autoencoder import Network
from loca.models.devices import choose_device, free_bytes
from loca.models.early_stopping import BestWeights, Trainer, load_states, save_states, states_of, train_epochs
from loca.models.network_base import NetworkModel, SingleTrainer
from loca.models.recommender import Recommender, UserWeights, clone, get_params
from loca.persistence.fit_context import NO_CONTEXT, FitContext
from loca.persistence.manifest import ModelState
from loca.progress import bar, say
from loca.random_streams import derive_seed

WeightsOf = Callable[[int], UserWeights]
# The weights themselves, Adam's two moments, and the copy of the best epoch.
_COPIES_WHILE_LEARNING = 4
_ADVICE = "take fewer or smaller models"


def copies_of(base: Recommender, count: int, seed: int, name: str) -> list[Recommender]:
    """Unfitted copies of the base, each with a seed of its own where the base has one."""
    if "seed" not in get_params(base):
        return [clone(base) for _ in range(count)]
    return [clone(base, seed=derive_seed(seed, name, number)) for number in range(count)]


def scaled_weights(weights: UserWeights, total: float) -> npt.NDArray[np.float32]:
    """Weights scaled to sum to `total`, so that regularisation means the same in every local model."""
    if not weights.any():
        raise DataError(
            "a community has no user with a weight above 0; give more users a weight, or widen train_bandwidth"
        )
    return np.asarray(weights * (total / weights.sum(dtype=np.float64)), dtype=np.float32)


def fit_each(
    models: list[Recommender],
    train: Interactions | csr_array,
    weights_of: WeightsOf,
    what: str,
    context: FitContext = NO_CONTEXT,
) -> list[Recommender]:
    """Fits model j with the user weights `weights_of(j)`, one after the other."""
    with bar(what, len(models)) as progress:
        for number, model in enumerate(models):
            context.inside(f"{what} {number}").fit(model, train, user_weights=weights_of(number))
            model.train_data_ = None  # stored once, by the whole
            progress.advance()
            if number == 0:
                size = sum(array.nbytes for array in model.state().arrays.values())
                plan_memory(f"{what}: {len(models)} models", size * (len(models) - 1), _ADVICE)
    return models


def plan_loop_memory(learning: SingleTrainer[Any, Any], count: int, what: str) -> None:
    """Says how much memory `count` such networks take while they learn; refuses when there is not that much."""
    size = sum(weight.numel() * 4 for weight in learning.network.parameters())
    if learning.device.type == "cpu":
        plan_memory(f"{what}: {count} models", size * _COPIES_WHILE_LEARNING * count, _ADVICE)


def learn_each_until_best(
    learning: Sequence[Trainer],
    seen: LocalModels,
    networks: Sequence[Network],
    members: CommunityValidator,
    *,
    epochs: int,
    patience: int,
    evaluate_every: int,
    what: str,
    context: FitContext = NO_CONTEXT,
) -> list[int]:
    """The best epoch of each network on its own validation users, with the weights of that epoch put back.

    A network without validation users runs all epochs. The bar counts the networks that have stopped.
    """
    best = [BestWeights() for _ in networks]
    saved = load_states(context.checkpoint, what)
    done, stopped = _resume(saved, networks, best)
    active = set(range(len(networks))) - stopped
    runners = _without(learning, [networks[number] for number in stopped])
    if saved is not None:
        for place, runner in enumerate(runners):
            runner.put_back(saved[1][f"learning {place}"])
    del saved  # makes room
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
            if context.checkpoint.due():
                states = states_of(runners) | {f"best {number}": one.state() for number, one in enumerate(best)}
                save_states(context.checkpoint, what, epoch, states, active=sorted(active))
    for one, network in zip(best, networks, strict=True):
        if one.epoch:
            one.give_back([network])
    return [one.epoch or epochs for one in best]


def _resume(
    saved: tuple[Mapping[str, Any], dict[str, ModelState]] | None,
    networks: Sequence[Network],
    best: Sequence[BestWeights],
) -> tuple[int, set[int]]:
    """The epochs of an interrupted run and the networks that had stopped, with their best weights put back."""
    if saved is None:
        return 0, set()
    facts, states = saved
    for number, one in enumerate(best):
        one.put_back(states[f"best {number}"], [networks[number]])
    return int(facts["epoch"]), set(range(len(networks))) - set(facts["active"])


def _without(runners: Sequence[Trainer], stopped: Sequence[Network]) -> list[Trainer]:
    """The learning that is left when some networks have stopped."""
    gone = {id(network) for network in stopped}
    left = []
    for one in runners:
        own = [network for network in one.networks if id(network) in gone]
        if len(own) == len(one.networks):
            continue
        if own and isinstance(one, StackedTrainer):
            one.leave(own)
        left.append(one)
    return left


EngineName = Literal["auto", "one_by_one", "stacked"]


def check_engine(name: str) -> None:
    """Refuses an engine that does not exist, naming the nearest."""
    if name not in get_args(EngineName):
        raise ConfigError(f"unknown engine {name!r}{did_you_mean(name, get_args(EngineName))}")


def keeps_differences(engine: Engine, items: int) -> bool:
    """Whether local item-to-item models are kept as differences: where asked for, or where dense ones take more."""
    return engine.name == "stacked" or (engine.name == "auto" and 4 * items**2 > engine.local_bytes)


def is_stacked(name: EngineName) -> bool:
    """Whether networks are trained as one: always but where the loop is asked for."""
    return name != "one_by_one"


@dataclass(frozen=True)
class Engine:
    """Which engine, in which precision networks are multiplied while they learn, and in which they are kept."""

    name: EngineName
    precision: PrecisionName = "float32"
    answer_precision: AnswerPrecision = "float32"
    local_bytes: int = LOCAL_BYTES


def local_memory(
    base: Any, count: int, engine: Engine, data: DataSize, name: str, centre: Recommender | None = None
) -> dict[str, MemoryUse]:
    """What so many models take that are trained by an engine, and the centre that they are differences to if any."""
    if base.is_linear and keeps_differences(engine, data.items):
        apart = {} if is_centre_for(base, centre) else {"centre of local models": base.memory_bytes(data)}
        return apart | {name: differences_memory(base, count, engine.local_bytes, data)}
    many = base.memory_bytes(data).times(count)
    if many.training and is_stacked(engine.name) and base.stackable:
        stored = many.folder // 2 if engine.answer_precision == "float16" else many.folder
        many = replace(many, folder=stored)
        if many.device:  # stacks that do not fit wait in main memory
            many = replace(many, device=min(many.device, free_bytes(torch.device(many.device_name))))
    return {name: many}


@dataclass(frozen=True, eq=False)
class LocalTask:
    """Unfitted models that differ in their seeds at most; model j learns from `matrix` with `weights_of(j)`.

    `centre` is the fitted global model, where there is one; `train` what the matrix was made of, where that is more
    than a matrix.
    """

    models: list[Recommender]
    matrix: csr_array
    weights_of: WeightsOf
    what: str
    centre: Recommender | None = None
    train: Interactions | csr_array | None = None
    context: FitContext = NO_CONTEXT

    @property
    def learned(self) -> Interactions | csr_array:
        """What a model's own `fit` learns from."""
        return self.matrix if self.train is None else self.train

    @cached_property
    def moments(self) -> csr_array | None:
        """The moments of the entries of `matrix`; None where each is a place of its own."""
        return as_moments(self.learned)


@dataclass(frozen=True, eq=False)
class TrainedLocals:
    """Fitted local models, and the number of epochs that counted (None for a base that does not learn by epochs)."""

    models: LocalModels
    epochs: int | None


def train_together(task: LocalTask, engine: Engine, validate: Callable[[LocalModels], float] | None) -> TrainedLocals:
    """Trains all models; those that learn by epochs side by side, for the epochs that `validate` likes best."""
    learners = learners_of(task)
    if learners is None:
        return TrainedLocals(_fit(task, engine), None)
    first = learners[0]
    runners, seen = _begin(task, learners, engine)
    best = train_epochs(runners, first, task.what, None if validate is None else lambda: validate(seen), task.context)
    if best.epoch:
        say(f"{task.what}: best blended validation NDCG@100 {best.score:.4f} after {best.epoch} epochs")
    epochs = best.epoch or first.epochs
    for model in learners:
        model.best_epoch_ = epochs
    return TrainedLocals(seen.finished(engine.answer_precision), epochs)


def train_apart(task: LocalTask, engine: Engine, members: CommunityValidator) -> TrainedLocals:
    """Trains each model to the best epoch of its own members' questions; a model without any runs all its epochs."""
    learners = learners_of(task)
    if learners is None:
        return TrainedLocals(_fit(task, engine), None)
    first = learners[0]
    runners, seen = _begin(task, learners, engine)
    best_epochs = learn_each_until_best(
        runners,
        seen,
        [model.network_ for model in learners if model.network_ is not None],
        members,
        epochs=first.epochs,
        patience=first.patience,
        evaluate_every=first.evaluate_every,
        what=task.what,
        context=task.context,
    )
    for model, epoch in zip(learners, best_epochs, strict=True):
        model.best_epoch_ = epoch
    return TrainedLocals(seen.finished(engine.answer_precision), int(np.median(best_epochs)))


def learners_of(task: LocalTask) -> list[NetworkModel[Any]] | None:
    """The models as learners by epochs; None where they are none."""
    learners: list[NetworkModel[Any]] = [model for model in task.models if isinstance(model, NetworkModel)]
    return learners if len(learners) == len(task.models) else None


def _fit(task: LocalTask, engine: Engine) -> LocalModels:
    """Models that do not learn by epochs: one after the other, item-to-item models as differences to one centre."""
    base: Any = task.models[0]
    if not base.is_linear or not keeps_differences(engine, task.matrix.shape[1]):
        return SeparateModels.of(fit_each(task.models, task.learned, task.weights_of, task.what, task.context))
    centre: Any = task.centre
    if not is_centre_for(base, centre):
        centre = clone(base).fit(task.learned)
        centre.train_data_ = None  # stored once, by the whole
    checkpoint = task.context.checkpoint

    def recall(number: int) -> Mapping[str, npt.NDArray[Any]] | None:
        kept = checkpoint.load(f"{task.what} {number}")
        return None if kept is None else kept.arrays

    return fit_ease_differences(
        base,
        centre,
        task.matrix,
        task.weights_of,
        len(task.models),
        device=choose_device(base.device),
        local_bytes=engine.local_bytes,
        what=task.what,
        moments=task.moments,
        recall=recall,
        keep=lambda number, arrays: checkpoint.save(f"{task.what} {number}", ModelState(arrays)),
    )


def _begin(
    task: LocalTask, learners: Sequence[NetworkModel[Any]], engine: Engine
) -> tuple[Sequence[Trainer], LocalModels]:
    """The learning of all networks in the engine asked for, and their answers, which change as they learn."""
    if is_stacked(engine.name) and all(model.stackable for model in learners):
        return _begin_stacked(task, learners, engine)
    one = learners[0].begin(task.matrix, task.weights_of(0), task.moments)
    plan_loop_memory(one, len(learners), task.what)
    rest = [
        learners[number].begin(task.matrix, task.weights_of(number), task.moments) for number in range(1, len(learners))
    ]
    return [one, *rest], SeparateModels.of(task.models)


def _begin_stacked(
    task: LocalTask, learners: Sequence[NetworkModel[Any]], engine: Engine
) -> tuple[list[StackedTrainer], StackedNetworks]:
    """Networks of one shape that learn as one, and answer as one."""
    one = learners[0].begin(task.matrix, task.weights_of(0), task.moments)
    users, device = max(1, len(one.support)), one.device
    plan = plan_stacks(
        one.network, one.model.batch_size, networks=len(learners),
        users=task.matrix.shape[0] if len(learners) > 1 else users, device=device, precision=engine.precision,
        dense=multiplies_densely(task.matrix, device, engine.precision),
    )  # fmt: skip
    say(str(plan))
    if device.type == "cpu":
        plan_memory(f"{task.what}: {len(learners)} models", plan.device_bytes, "take fewer or smaller models")
    runners = _in_stacks(task, learners, engine.precision, plan.stack_size, plan.at_once)
    networks = [model.network_ for model in learners if model.network_ is not None]
    return runners, StackedNetworks.of(networks, device, quick=engine.precision == "bfloat16")


def _in_stacks(
    task: LocalTask, learners: Sequence[NetworkModel[Any]], precision: PrecisionName, size: int, at_once: int
) -> list[StackedTrainer]:
    """All networks in stacks of `size`, fewer where memory runs out; several stacks wait in main memory in turn."""
    stacks: list[StackedTrainer] = []
    first = 0
    while first < len(learners):
        numbers = range(first, min(first + size, len(learners)))
        try:
            learning = [
                learners[number].begin(task.matrix, task.weights_of(number), task.moments) for number in numbers
            ]
            stack = StackedTrainer(learning, precision=precision, at_once=at_once, parked=len(numbers) < len(learners))
        except torch.OutOfMemoryError:
            if size == 1:
                raise
            size = max(1, size // 2)
            at_once = min(at_once, size)
            say(f"stacked engine: out of memory; stacks of {size} from here on")
            continue
        stacks.append(stack)
        first = numbers.stop
    return stacks
