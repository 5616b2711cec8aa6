"""How all local models are trained: in a loop (the reference), as stacked networks, or as differences of EASEs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from loca.deferred import torch
from loca.errors import ConfigError, DataError, check_choice, check_counts
from loca.local.local_ease import (
    LOCAL_BYTES,
    differences_memory,
    fit_ease_differences,
    is_centre_for,
)
from loca.local.local_models import (
    AnswerPrecision,
    LocalModels,
    LocalTask,
    PrecisionName,
    SeparateModels,
    Validator,
)
from loca.memory import DataSize, MemoryUse, plan_memory
from loca.models.devices import free_bytes
from loca.models.early_stopping import (
    BestWeights,
    Trainer,
    load_states,
    save_states,
    states_of,
    train_epochs,
)
from loca.models.recommender import (
    Recommender,
    TrainingData,
    UserWeights,
    check_user_weights,
    clone,
    get_params,
)
from loca.progress import bar, say
from loca.random_streams import derive_seed

if TYPE_CHECKING:
    from loca.local.stacked.trainer import StackedTrainer
    from loca.models.autoencoder import Network

EngineName = Literal["auto", "one_by_one", "stacked"]
Validate = Callable[[LocalModels], float]
# The weights themselves, Adam's two moments, and the copy of the best epoch.
_COPIES_WHILE_TRAINING = 4
_BYTES_UNFITTED = 1000
_ADVICE = "take fewer or smaller models"


@dataclass(frozen=True)
class Engine:
    """Which engine, in which precision networks are multiplied while they learn, and in which they are stored."""

    name: EngineName
    precision: PrecisionName = "float32"
    answer_precision: AnswerPrecision = "float32"
    local_bytes: int = LOCAL_BYTES

    def __post_init__(self) -> None:
        check_choice("engine", self.name, get_args(EngineName))
        check_choice("precision", self.precision, get_args(PrecisionName))
        check_choice("answer_precision", self.answer_precision, get_args(AnswerPrecision))
        check_counts(local_bytes=self.local_bytes)

    def stacks(self, base: Recommender) -> bool:
        """Whether models of that base are trained as one: always where they can, but where the loop is requested."""
        return self.name != "one_by_one" and base.stackable

    def stores_differences(self, items: int) -> bool:
        """Whether linear models are stored as differences: where requested, or where dense ones take more."""
        return self.name == "stacked" or (self.name == "auto" and 4 * items**2 > self.local_bytes)


def copies_of(base: Recommender, count: int, seed: int, name: str) -> list[Recommender]:
    """Unfitted copies of the base, each with a seed of its own where the base has one."""
    plan_memory(f"{count:,} models", _BYTES_UNFITTED * count, _ADVICE)
    if "seed" not in get_params(base):
        return [clone(base) for _ in range(count)]
    return [clone(base, seed=derive_seed(seed, name, number)) for number in range(count)]


def copies_going_on(
    base: Any, count: int, seed: int, name: str, data: TrainingData, epochs: int, done: int | None
) -> list[Recommender]:
    """Copies of the base for an update: those of networks that learned for `done` epochs go on for some more."""
    if base.learns_by_epoch:
        base, name = (
            base.going_on(data, epochs, done or base.epochs),
            f"{name} after {data.matrix.nnz}",
        )
    return copies_of(base, count, seed, name)


def scaled_weights(weights: UserWeights, total: float) -> npt.NDArray[np.float32]:
    """Weights scaled to sum to `total`, so that regularisation means the same in every local model."""
    if not weights.any():
        problem = "a community has no user with a weight above 0"
        raise DataError(f"{problem}; give more users a weight, or widen train_bandwidth")
    return np.asarray(weights * (total / weights.sum(dtype=np.float64)), dtype=np.float32)


def local_memory(
    base: Any,
    count: int,
    engine: Engine,
    data: DataSize,
    name: str,
    centre: Recommender | None = None,
) -> dict[str, MemoryUse]:
    """What so many models take that are trained by an engine, and the centre that they are differences to if any."""
    if base.is_linear and engine.stores_differences(data.items):
        apart = (
            {}
            if is_centre_for(base, centre)
            else {"centre of local models": base.memory_bytes(data)}
        )
        return apart | {name: differences_memory(base, count, engine.local_bytes, data)}
    many = base.memory_bytes(data).times(count)
    if many.training and engine.stacks(base):
        # Stacks that do not fit on a device wait in main memory.
        on_device = (
            min(many.device, free_bytes(torch.device(many.device_name))) if many.device else 0
        )
        stored = many.folder // 2 if engine.answer_precision == "float16" else many.folder
        many = replace(many, folder=stored, device=on_device)
    return {name: many}


def train_locals(
    task: LocalTask,
    engine: Engine,
    validate: Validate | None = None,
    members: Validator | None = None,
) -> tuple[LocalModels, int | None]:
    """Train all models of a task; those that learn by epochs in parallel.

    The number of epochs that counted is given too, None for a base that does not learn by epochs.

    Parameters
    ----------
    task, engine
        What to train, and how.
    validate : callable, optional
        Scores all models together: they stop at the epoch that it likes best.
    members : Validator, optional
        Stops each model at the best epoch of the users whom it answers for, in place of `validate`; a model without
        any runs all its epochs, and the median of the epochs is given back.
    """
    first: Any = task.models[0]
    if (executor := task.data.context.executor) is not None:
        if members is not None or task.present is not None:
            what = "an update" if members is None else "stopping='community'"
            raise ConfigError(
                f"executor: {what} cannot be spread over shards; leave the executor out"
            )
        found: tuple[LocalModels, int | None] = executor.train_locals(task, engine, validate)
        return found
    if not first.learns_by_epoch:
        return fit_in_turn(task, engine), None
    trainers, local = begin_locals(task, engine)
    if members is not None:
        epochs = _stop_each(task, trainers, local, members)
    else:
        on_local = None if validate is None else lambda: validate(local)
        best = train_epochs(
            trainers, first, task.what, on_local, task.data.context, task.shared_epochs
        )
        if best.epoch:
            say(
                f"{task.what}: best blended validation {task.data.metric.label} {best.score:.4f} "
                f"after {best.epoch} epochs"
            )
        epochs = [best.epoch or first.epochs] * len(task.models)
    for model, epoch in zip(task.models, epochs, strict=True):
        model.best_epoch_ = epoch
    return local.finished(engine.answer_precision), int(np.median(epochs))


def centre_of(task: LocalTask, engine: Engine) -> Any:
    """The model that local ones are stored as differences to, None where they are not.

    That is the global one, where it is like them; else one is fitted here.
    """
    base = task.models[0]
    if not (base.is_linear and engine.stores_differences(task.data.matrix.shape[1])):
        return None
    if is_centre_for(base, task.centre):
        return task.centre
    centre = clone(base).fit(task.data.train, device=task.data.device)
    centre.train_data_ = None  # stored once, by the whole
    return centre


def fit_in_turn(task: LocalTask, engine: Engine) -> LocalModels:
    """Models that do not learn by epochs: one after the other, linear ones as differences to one centre."""
    train, count, centre = task.data.train, len(task.models), centre_of(task, engine)
    if centre is not None:
        return fit_ease_differences(task, centre, engine.local_bytes)
    with bar(task.what, count) as progress:
        for number, model in enumerate(task.models):
            if task.present is None:
                context = task.data.context.inside(f"{task.what} {number}")
                weights = task.weights_of(number)
                context.fit(model, train, user_weights=weights, device=task.data.device)
            else:
                weights = check_user_weights(task.weights_of(number), task.data.matrix.shape[0])
                model = task.present.updated(
                    number, replace(task.data, user_weights=weights), task.epochs
                )
                task.models[number] = model
            model.train_data_ = None  # stored once, by the whole
            progress.advance()
            if number == 0:
                size = sum(array.nbytes for array in model.state().arrays.values())
                plan_memory(f"{task.what}: {count} models", size * (count - 1), _ADVICE)
    return SeparateModels.of(task.models)


def begin_locals(task: LocalTask, engine: Engine) -> tuple[Sequence[Trainer], LocalModels]:
    """The trainers of all networks in the requested engine, and the models, whose answers change in training.

    Networks of one shape are trained in stacks, in smaller ones where memory runs out; several stacks wait in main
    memory in turn.
    """
    from loca.local.stacked.inference import StackedNetworks
    from loca.local.stacked.ops import multiplies_densely
    from loca.local.stacked.trainer import StackedTrainer, plan_stacks

    models: Any = task.models
    matrix, count, what = task.data.matrix, len(models), f"{task.what}: {len(models)} models"

    def begin(number: int) -> Any:
        network = None if task.present is None else task.present.network(number, models[number])
        weights, place = task.weights_of(number), task.data.device
        trainer = models[number].begin(matrix, weights, task.moments, network, place)
        if task.shared_epochs:
            trainer.share_epochs(task.shared_epochs, task.data.user_weights)
        return trainer

    models[0].check_memory(matrix, task.data.device)
    one = begin(0)
    device, network, precision = one.device, one.network, engine.precision
    if not engine.stacks(models[0]):
        if device.type == "cpu":
            size = sum(weight.numel() * 4 for weight in network.parameters())
            plan_memory(what, size * _COPIES_WHILE_TRAINING * count, _ADVICE)
        return [one, *(begin(number) for number in range(1, count))], SeparateModels.of(models)
    where = {
        "device": device,
        "precision": precision,
        "dense": multiplies_densely(matrix, device, precision),
    }
    users = matrix.shape[0] if count > 1 else max(1, len(one.support))
    plan = plan_stacks(network, models[0].batch_size, networks=count, users=users, **where)
    say(str(plan))
    if device.type == "cpu":
        plan_memory(what, plan.device_bytes, _ADVICE)
    stacks: list[StackedTrainer] = []
    size, at_once, first = plan.stack_size, plan.at_once, 0
    while first < count:
        numbers = range(first, min(first + size, count))
        try:
            trainers = [begin(number) for number in numbers]
            stacks.append(
                StackedTrainer(
                    trainers, precision=precision, at_once=at_once, parked=len(numbers) < count
                )
            )
        except torch.OutOfMemoryError:
            if size == 1:
                raise
            size = max(1, size // 2)
            at_once = min(at_once, size)
            say(f"stacked engine: out of memory; stacks of {size} from here on")
        else:
            first = numbers.stop
    return stacks, StackedNetworks.of(
        [one.network_ for one in models], device, quick=precision == "bfloat16"
    )


def _stop_each(
    task: LocalTask, trainers: Sequence[Trainer], local: LocalModels, members: Validator
) -> list[int]:
    """Train each network to the best epoch of its own validation users, and give that epoch.

    A network without validation users runs all epochs. The bar counts the networks that have stopped.
    """
    models: Any = task.models
    schedule, checkpoint = models[0], task.data.context.checkpoint
    networks = [model.network_ for model in models]
    best, done, active = [BestWeights() for _ in networks], 0, set(range(len(networks)))
    saved = load_states(checkpoint, task.what)
    if saved is not None:
        done, active = int(saved[0]["epoch"]), set(saved[0]["active"])
        for number, one in enumerate(best):
            one.put_back(saved[1][f"best {number}"], [networks[number]])
        trainers = _without(
            trainers, [network for number, network in enumerate(networks) if number not in active]
        )
        for place, trainer in enumerate(trainers):
            trainer.put_back(saved[1][f"learning {place}"])
    del saved  # makes room
    with bar(task.what, len(networks)) as progress:
        progress.advance(len(networks) - len(active))
        for epoch in range(done + 1, schedule.epochs + 1):
            if not active:
                break
            loss = float(np.mean([trainer.run_epoch() for trainer in trainers]))
            progress.advance(0, note=f"epoch {epoch}, loss {loss:.2f}, {len(active)} still learn")
            if epoch % schedule.evaluate_every == 0 or epoch == schedule.epochs:
                for number, score in members.score_each(local, active).items():
                    best[number].offer(epoch, score, [networks[number]])
                stopped = {one for one in active if best[one].is_final(epoch, schedule.patience)}
                active -= stopped
                progress.advance(len(stopped))
                trainers = _without(trainers, [networks[number] for number in stopped])
            if checkpoint.due():
                states = states_of(trainers) | {
                    f"best {number}": one.state() for number, one in enumerate(best)
                }
                save_states(checkpoint, task.what, epoch, states, active=sorted(active))
    for one, network in zip(best, networks, strict=True):
        one.give_back([network])
    return [one.epoch or schedule.epochs for one in best]


def _without(trainers: Sequence[Trainer], stopped: Sequence[Network]) -> list[Trainer]:
    """The trainers that are left when some networks have stopped."""
    from loca.local.stacked.trainer import StackedTrainer

    gone = {id(network) for network in stopped}
    left = [trainer for trainer in trainers if not gone.issuperset(map(id, trainer.networks))]
    for trainer in left:
        leaving = [network for network in trainer.networks if id(network) in gone]
        if leaving and isinstance(trainer, StackedTrainer):
            trainer.leave(leaving)
    return left
