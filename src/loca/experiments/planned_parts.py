"""The parts of a fit, each with what it takes by the formulas of the code that will do it, and its rough time."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array

from loca.errors import ConfigError
from loca.experiments.calibration import Network, pace_of_ease, pace_of_local_ease, pace_of_network, pace_of_stack
from loca.experiments.fit_plan import Machine, Part, Taken
from loca.local.ease_differences import bytes_while_blending, bytes_while_solving, systems_at_once
from loca.local.engines import Engine, is_stacked, keeps_differences
from loca.local.kept_differences import Room
from loca.local.local_solutions import ItemToItem, bytes_while_solving_next
from loca.local.memory_plan import StackPlan, bytes_of_a_loop_step, bytes_while_learning, plan_stacks
from loca.local.stacked_networks import AnswerPrecision, StackedNetworks
from loca.models.autoencoder import Autoencoder
from loca.models.devices import choose_device
from loca.models.ease import plan_solving
from loca.models.mult_dae import MultDAE
from loca.models.mult_vae import MultVAE
from loca.models.next_ease import NextEASE, plan_solving_next
from loca.models.popularity import Popularity

META = torch.device("meta")
# Of sparse rows while they are solved: 64-bit values and columns, and once more the other way round.
_BYTES_PER_ENTRY = 48
# Of the entries that may turn out to be the largest differences: place and value, found, joined and trimmed.
_BYTES_PER_DIFFERENCE = 64
# Of the users whom one network is shown: row and weight, and in a stack also their order in an epoch.
_BYTES_PER_USER = 24
_BYTES_PER_STACKED_USER = 48
_ADVICE = "take fewer or smaller models"
_NO_CHECKPOINTS = "fit without the copies for --resume (--checkpoint-every 1e9)"


@dataclass(frozen=True, eq=False)
class Setting:
    """What every part depends on: the data, and the machine with what is still free there.

    `rank` is the seconds in which one user's best items are found, None where nothing is timed. `weighed` says whether
    histories are weighed by age.
    """

    matrix: csr_array
    machine: Machine
    rank: float | None
    weighed: bool = False

    @property
    def users(self) -> int:
        """The users with a history."""
        return int((np.diff(self.matrix.indptr) > 0).sum())

    @property
    def items(self) -> int:
        return int(self.matrix.shape[1])

    @property
    def stored(self) -> int:
        return int(self.matrix.nnz)

    def free_on(self, device: torch.device) -> int:
        """The bytes that are free on a device."""
        on_gpu = device.type == "cuda" and self.machine.free_on_device is not None
        return int(self.machine.free_on_device or 0) if on_gpu else self.machine.free_in_memory

    def may_time(self, device: torch.device, needed: int) -> bool:
        """Whether work that needs so many bytes is to be timed: not where they are not there."""
        return self.rank is not None and needed <= self.free_on(device)

    def judged(self, scoring: float | None, times: int = 1) -> float | None:
        """The seconds in which all users are judged so many times whom to score once takes `scoring`."""
        return None if scoring is None or self.rank is None else times * (scoring + self.users * self.rank)

    def untimed(self) -> Setting:
        """The setting of a part whose pace is known already."""
        return replace(self, rank=None)

    def after(self, part: Part) -> Setting:
        """The setting of what comes after a part: what stays of it is no longer free."""
        free = self.machine.free_on_device
        left = None if free is None else max(0, free - part.on_device.stays)
        in_memory = max(0, self.machine.free_in_memory - part.in_memory.stays)
        return replace(self, machine=replace(self.machine, free_on_device=left, free_in_memory=in_memory))


@dataclass(frozen=True)
class Planned:
    """A part, and what there is to know besides.

    `judging` is the seconds in which its answers are judged on validation, all times together; `scoring` those in which
    it answers all users once, without finding their best items.
    """

    part: Part
    judging: float | None = 0.0
    scoring: float | None = 0.0
    stack: StackPlan | None = None
    epochs: int | None = None


def plan_model(setting: Setting, model: Any, name: str) -> Planned:
    """The part of one model by itself."""
    if isinstance(model, ItemToItem):
        return plan_ease(setting, model, name)
    if isinstance(model, MultVAE | MultDAE):
        return plan_network(setting, model, name)
    if isinstance(model, Popularity):
        size = 4 * setting.items
        return Planned(Part(name, in_memory=Taken(4 * size, size), in_folder=size), setting.judged(0.0))
    raise _no_plan(model, name)


def plan_ease(setting: Setting, model: ItemToItem, name: str) -> Planned:
    """One EASE or NextEASE, solved on its device or, where that has too little memory, on the CPU."""
    wanted = choose_device(model.device)
    free = setting.free_on(wanted)
    if isinstance(model, NextEASE):
        device, needed = plan_solving_next(setting.items, setting.stored, wanted, free)
    else:
        device, needed = plan_solving(setting.users, setting.items, wanted, free)
    weights, rows = 4 * setting.items**2, _BYTES_PER_ENTRY * setting.stored
    on_gpu = device.type == "cuda"
    fit = scoring = None
    if setting.rank is not None:
        pace = pace_of_ease(model, setting.matrix, device)
        fit, scoring = pace.fit, pace.answer
    part = Part(
        name,
        on_device=Taken(needed + rows) if on_gpu else Taken(),
        in_memory=Taken(weights + rows if on_gpu else needed + rows, weights),
        in_folder=weights,
        seconds=fit,
        advice="filter rare items",
    )
    return Planned(part, setting.judged(scoring), scoring)


def plan_network(setting: Setting, model: Network, name: str) -> Planned:
    """One network that learns by itself."""
    network, device = shape_of(model, setting.items), choose_device(model.device)
    lasting = bytes_while_learning(network)
    working = lasting + bytes_of_a_loop_step(network, min(model.batch_size, setting.users))
    learn = scoring = None
    if setting.may_time(device, working):
        pace = pace_of_network(model, setting.matrix)
        learn, scoring = model.epochs * _steps(setting, model) * pace.step, setting.users * pace.answer
    # On a GPU main memory takes the copy that goes into a checkpoint.
    part = _placed(
        Part(name, in_folder=_weights(network), unfinished=_kept_work(lasting), seconds=learn, advice=_ADVICE),
        device,
        Taken(working, _weights(network)),
        beside=lasting,
    )
    return Planned(part, setting.judged(scoring, _judgements(model)), scoring, epochs=model.epochs)


def plan_local(setting: Setting, base: Any, count: int, engine: Engine, asked: float, name: str) -> Planned:
    """All local models, or members of an ensemble; `asked` of them answer one user."""
    if isinstance(base, ItemToItem):
        if not keeps_differences(engine, setting.items):
            return plan_separate_ease(setting, base, count, asked, name)
        return plan_differences(setting, base, count, engine.local_bytes, asked, name)
    if isinstance(base, MultVAE | MultDAE):
        if is_stacked(engine.name):
            return plan_stack(setting, base, count, engine, asked, name)
        return plan_loop(setting, base, count, asked, name)
    if isinstance(base, Popularity):
        size = 4 * setting.items * count
        return Planned(Part(name, in_memory=Taken(2 * size, size), in_folder=size))
    raise _no_plan(base, name)


def plan_loop(setting: Setting, base: Network, count: int, asked: float, name: str) -> Planned:
    """Networks that learn in turn, all of them in memory: what the reference engine does."""
    network, device = shape_of(base, setting.items), choose_device(base.device)
    lasting, weights = count * bytes_while_learning(network), count * _weights(network)
    step = bytes_of_a_loop_step(network, min(base.batch_size, setting.users))
    learn = scoring = None
    if setting.may_time(device, lasting // count + step):
        pace = pace_of_network(base, setting.matrix)
        learn, scoring = base.epochs * count * _steps(setting, base) * pace.step, asked * setting.users * pace.answer
    shown = count * setting.users * _BYTES_PER_USER
    part = _placed(
        Part(name, in_folder=weights, unfinished=_kept_work(lasting), seconds=learn, advice=_ADVICE),
        device,
        Taken(lasting + step + shown, weights),
        beside=lasting + shown,
    )
    return Planned(part, setting.judged(scoring, _judgements(base)), scoring, epochs=base.epochs)


def plan_stack(setting: Setting, base: Network, count: int, engine: Engine, asked: float, name: str) -> Planned:
    """Networks that learn as one, in as many stacks as the device's memory asks for."""
    network, device = shape_of(base, setting.items), choose_device(base.device)
    stack = plan_stacks(
        network, base.plan(), networks=count, users=setting.users, device=device, precision=engine.precision,
        free=setting.free_on(device),
    )  # fmt: skip
    one, lasting = bytes_while_learning(network), count * bytes_while_learning(network)
    kept = bytes_of_answers(network, count, engine.answer_precision)
    learn = scoring = None
    if setting.may_time(device, stack.device_bytes - (stack.stack_size - stack.at_once) * one):
        pace = pace_of_stack(base, setting.matrix, stack.at_once, engine.precision)
        learn, scoring = base.epochs * count * _steps(setting, base) * pace.step, asked * setting.users * pace.answer
    shown = stack.stack_size * setting.users * _BYTES_PER_STACKED_USER + _BYTES_PER_ENTRY * setting.stored
    # What answers is set apart while the stack still stands, unless that waits in main memory.
    at_work = max(stack.device_bytes + shown, kept + (0 if stack.parked_bytes else lasting))
    part = _placed(
        Part(name, in_folder=kept, unfinished=_kept_work(lasting), seconds=learn, advice=_ADVICE),
        device,
        Taken(at_work, kept),
        # Stacks that wait there are what a checkpoint would copy.
        beside=lasting + count * setting.users * _BYTES_PER_USER,
    )
    return Planned(part, setting.judged(scoring, _judgements(base)), scoring, stack, base.epochs)


def plan_separate_ease(setting: Setting, base: ItemToItem, count: int, asked: float, name: str) -> Planned:
    """EASE or NextEASE models that are each kept whole: what the reference engine does."""
    one = plan_ease(setting, base, name)
    weights = count * one.part.in_folder
    scoring = None if one.scoring is None else asked * one.scoring
    part = replace(
        one.part,
        in_memory=Taken(weights + one.part.in_memory.at_work, weights),
        in_folder=weights,
        seconds=None if one.part.seconds is None else count * one.part.seconds,
        advice="take fewer models or filter rare items",
    )
    return Planned(part, setting.judged(scoring), scoring)


def plan_differences(
    setting: Setting, base: ItemToItem, count: int, local_bytes: int, asked: float, name: str
) -> Planned:
    """EASE or NextEASE models that are kept as their largest differences to a centre."""
    device, room = choose_device(base.device), Room(setting.items, local_bytes)
    on_gpu, free = device.type == "cuda", setting.free_on(device)
    kept, rows = count * room.kept_bytes, _BYTES_PER_ENTRY * setting.stored
    solving = _bytes_while_solving(setting, base, count, device) + _BYTES_PER_DIFFERENCE * room.entries + rows
    # When all are solved they answer: a GPU spreads differences out in an array of items × items beside the centre,
    # and keeps them while half of its memory is free.
    spread = 8 * setting.items**2 + min(12 * count * room.entries, free // 2)
    read = bytes_while_blending(count * room.entries)
    fit = scoring = None
    if setting.rank is not None:
        pace = pace_of_local_ease(base, setting.matrix, local_bytes, device)
        fit, scoring = count * pace.fit, asked * pace.answer
    part = Part(
        name,
        on_device=Taken(max(solving, spread)) if on_gpu else Taken(),
        in_memory=Taken(kept + (rows if on_gpu else max(solving, read)), kept),
        in_folder=kept,
        unfinished=kept,
        seconds=fit,
        advice="take fewer communities, smaller local_bytes or filter rare items",
    )
    return Planned(part, setting.judged(scoring), scoring)


def _bytes_while_solving(setting: Setting, base: ItemToItem, count: int, device: torch.device) -> int:
    """What local equations take on the device: small ones of EASE are solved many at once on a GPU, else one by one."""
    if isinstance(base, NextEASE):
        return bytes_while_solving_next(setting.items, setting.stored, device)
    on_gpu = device.type == "cuda"
    at_once = systems_at_once(setting.users, setting.items, count, setting.free_on(device)) if on_gpu else 1
    return bytes_while_solving(setting.users, setting.items, at_once)


def shape_of(model: Network, items: int) -> Autoencoder:
    """The model's network with its true shape and without memory."""
    return Autoencoder(items, model.latent, model.hidden, isinstance(model, MultVAE), META)


def bytes_of_answers(network: Autoencoder, count: int, precision: AnswerPrecision) -> int:
    """What so many such networks take when they only answer."""
    answering = StackedNetworks.of([network] * count, META).finished(precision)
    return sum(weight.nbytes for weight in answering.weights_.values())


def _weights(network: Autoencoder) -> int:
    return sum(weight.nbytes for weight in network.parameters())


def _placed(part: Part, device: torch.device, taken: Taken, beside: int) -> Part:
    """The part with what it takes on its device; on a GPU main memory takes something beside."""
    if device.type == "cuda":
        return replace(part, on_device=taken, in_memory=Taken(beside), advice=f"{_ADVICE}, or {_NO_CHECKPOINTS}")
    return replace(part, in_memory=taken)


def _kept_work(lasting: int) -> int:
    """Bytes of a checkpoint on disk: the new one is written before the old one goes."""
    return 2 * lasting


def _steps(setting: Setting, model: Network) -> int:
    return math.ceil(setting.users / model.batch_size)


def _judgements(model: Network) -> int:
    """How often answers are judged in one fit, the last time after it."""
    return math.ceil(model.epochs / model.evaluate_every) + 1


def _no_plan(model: object, name: str) -> ConfigError:
    return ConfigError(
        f"{name}: expected ease, next-ease, mult-vae, mult-dae or popularity, found {type(model).__name__}; "
        "no plan is known for that"
    )
