"""Networks in a plan: one by itself, many that learn in turn, and many that learn as one stack."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from loca.experiments.calibration import Network, pace_of_network, pace_of_stack
from loca.experiments.fit_plan import Part, Taken
from loca.experiments.planned_setting import BYTES_PER_ENTRY, Planned, Setting
from loca.local.stacked.inference import AnswerPrecision, StackedNetworks
from loca.local.stacked.memory import bytes_of_a_loop_step, bytes_while_learning, plan_stacks
from loca.local.stacked.ops import multiplies_densely
from loca.local.training import Engine, StackedKind
from loca.models.autoencoder import Autoencoder
from loca.models.cdae import CDAE, NodeNetwork
from loca.models.devices import choose_device
from loca.models.mult_vae import MultVAE
from loca.models.rec_vae import RecVAE, RecVaeNetwork

META = torch.device("meta")
# Of the users whom one network is shown: row and weight, and in a stack also their order in an epoch.
_BYTES_PER_USER = 24
_BYTES_PER_STACKED_USER = 48
# What lasts while a network learns: its weights, Adam's two moments, and the copy of the best epoch.
_COPIES_WHILE_LEARNING = 4
_ADVICE = "take fewer or smaller models"
_NO_CHECKPOINTS = "fit without the copies for --resume (--checkpoint-every 1e9)"


@dataclass(frozen=True)
class NetworkSize:
    """The bytes of one network: when it answers, what lasts while it learns, and what a step takes beside that."""

    kept: int
    lasting: int
    step: int

    @classmethod
    def of(cls, model: Network, setting: Setting) -> NetworkSize:
        """The size of a model's network with its true shape, found without memory."""
        if isinstance(model, CDAE):
            return _size_of_cdae(model, setting)
        if isinstance(model, RecVAE):
            return _size_of_rec_vae(model, setting)
        network = shape_of(model, setting.items)
        step = bytes_of_a_loop_step(network, min(model.batch_size, setting.users))
        return cls(_weights(network), bytes_while_learning(network), step)


def _size_of_cdae(model: CDAE, setting: Setting) -> NetworkSize:
    """Every user has a node with Adam's two moments; a step makes three arrays of logits and gradients twice."""
    network = NodeNetwork(setting.items, model.latent, model.rule(), META)
    kept, users = sum(weight.nbytes for weight in network.state_dict().values()), min(model.batch_size, setting.users)
    nodes = 3 * 4 * setting.users * model.latent
    step = 2 * kept + 4 * users * (3 * setting.items + 12 * model.latent)
    return NetworkSize(kept, _COPIES_WHILE_LEARNING * kept + nodes, step)


def _size_of_rec_vae(model: RecVAE, setting: Setting) -> NetworkSize:
    """An epoch holds two codes of every user; a step four arrays of logits, gradients, and what its layers remember."""
    network = RecVaeNetwork(setting.items, model.latent, model.hidden, META)
    kept, users = _weights(network), min(model.batch_size, setting.users)
    codes = 2 * 4 * setting.users * 2 * model.latent
    step = kept + 4 * users * (4 * setting.items + 20 * (model.hidden + model.latent))
    return NetworkSize(kept, _COPIES_WHILE_LEARNING * kept, codes + step)


def plan_network(setting: Setting, model: Network, name: str) -> Planned:
    """One network that learns by itself."""
    size, device = NetworkSize.of(model, setting), choose_device(model.device)
    working = size.lasting + size.step
    learn = scoring = None
    if setting.may_time(device, working):
        pace = pace_of_network(model, setting.matrix)
        learn, scoring = model.epochs * _steps(setting, model) * pace.step, setting.users * pace.answer
    # On a GPU main memory takes the copy that goes into a checkpoint.
    part = _placed(
        Part(name, in_folder=size.kept, unfinished=_kept_work(size.lasting), seconds=learn, advice=_ADVICE),
        device,
        Taken(working, size.kept),
        beside=size.lasting,
    )
    return Planned(part, setting.judged(scoring, _judgements(model)), scoring, epochs=model.epochs)


def plan_loop(setting: Setting, base: Network, count: int, asked: float, name: str) -> Planned:
    """Networks that learn in turn, all of them in memory: what the reference engine does."""
    size, device = NetworkSize.of(base, setting), choose_device(base.device)
    lasting, weights = count * size.lasting, count * size.kept
    learn = scoring = None
    if setting.may_time(device, size.lasting + size.step):
        pace = pace_of_network(base, setting.matrix)
        learn, scoring = base.epochs * count * _steps(setting, base) * pace.step, asked * setting.users * pace.answer
    shown = count * setting.users * _BYTES_PER_USER
    part = _placed(
        Part(name, in_folder=weights, unfinished=_kept_work(lasting), seconds=learn, advice=_ADVICE),
        device,
        Taken(lasting + size.step + shown, weights),
        beside=lasting + shown,
    )
    return Planned(part, setting.judged(scoring, _judgements(base)), scoring, epochs=base.epochs)


def plan_stack(setting: Setting, base: StackedKind, count: int, engine: Engine, asked: float, name: str) -> Planned:
    """Networks that learn as one, in as many stacks as the device's memory asks for."""
    network, device = shape_of(base, setting.items), choose_device(base.device)
    stack = plan_stacks(
        network, base.plan(), networks=count, users=setting.users, device=device, precision=engine.precision,
        dense=multiplies_densely(setting.matrix, device, engine.precision), free=setting.free_on(device),
    )  # fmt: skip
    one, lasting = bytes_while_learning(network), count * bytes_while_learning(network)
    kept = bytes_of_answers(network, count, engine.answer_precision)
    learn = scoring = None
    if setting.may_time(device, stack.device_bytes - (stack.stack_size - stack.at_once) * one):
        pace = pace_of_stack(base, setting.matrix, stack.at_once, engine.precision)
        learn, scoring = base.epochs * count * _steps(setting, base) * pace.step, asked * setting.users * pace.answer
    shown = stack.stack_size * setting.users * _BYTES_PER_STACKED_USER + BYTES_PER_ENTRY * setting.stored
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


def shape_of(model: StackedKind, items: int) -> Autoencoder:
    """The model's network with its true shape and without memory."""
    return Autoencoder(items, model.latent, model.hidden, isinstance(model, MultVAE), META)


def bytes_of_answers(network: Autoencoder, count: int, precision: AnswerPrecision) -> int:
    """What so many such networks take when they only answer."""
    answering = StackedNetworks.of([network] * count, META).finished(precision)
    return sum(weight.nbytes for weight in answering.weights_.values())


def _weights(network: Autoencoder | RecVaeNetwork) -> int:
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
