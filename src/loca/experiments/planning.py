"""What a fit would take before it is begun: memory on device and host, model files, and rough time."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from loca.communities.anchors import refuse_too_many
from loca.communities.device_neighbourhoods import bytes_on_device
from loca.communities.embeddings import Embedder, TruncatedSVD
from loca.communities.geometry import Quantile
from loca.communities.neighbourhoods import bytes_of_bits
from loca.data.interactions import Interactions
from loca.errors import ConfigError
from loca.experiments.calibration import seconds_to_choose_anchors, seconds_to_cover, seconds_to_embed, seconds_to_rank
from loca.experiments.fit_plan import FitPlan, Machine, Part, Taken
from loca.experiments.planned_parts import Planned, Setting, plan_local, plan_model
from loca.files.known_interactions import bytes_of_known
from loca.local.engines import Engine, keeps_differences
from loca.local.ensemble import Ensemble
from loca.local.loca import ALPHAS, DISTINCTIVE_ITEMS, Loca
from loca.memory import available_bytes
from loca.models.devices import choose_device, free_bytes, ranking_bytes
from loca.models.ease import EASE
from loca.models.mult_dae import MultDAE
from loca.models.mult_vae import MultVAE
from loca.models.recommender import Recommender
from loca.ranking.top_n import block_rows

# Of the pairs of a user and a community that answers: weight and number, and once more the other way round.
_BYTES_PER_ANSWER_WEIGHT = 16
# Sparse rows of the training part, of histories and targets to judge by, and a copy on its way.
_COPIES_OF_THE_DATA = 4
# Users × items: local and global scores, both times their shares, the sum, and a copy that is ranked.
_ARRAYS_WHILE_BLENDING = 6


def plan_fit(
    candidates: Sequence[Recommender],
    interactions: Interactions,
    *,
    name: str,
    validated: bool = True,
    refit: bool = True,
    free_on_disk: int | None = None,
    timed: bool = True,
) -> FitPlan:
    """The plan of choosing among the candidates on validation and fitting the choice; nothing large is allocated.

    The parts are those of the largest candidate; only that one is timed, with small pieces of its work.
    """
    if not candidates:
        raise ConfigError("nothing to plan: expected at least one candidate")
    matrix = interactions.matrix()

    def plan_one(candidate: Recommender, *, timed: bool) -> FitPlan:
        machine = _machine_of(candidate)
        device = torch.device(machine.device)
        rank = seconds_to_rank(matrix, device) if timed else None
        setting = Setting(matrix, machine, rank)
        data = _plan_data(setting, interactions)
        planned = _plan_parts(setting.after(data), candidate)
        parts = (data, *(one.part for one in planned), *([_plan_answers(setting, planned)] if validated else []))
        epochs = [one.epochs for one in planned if one.epochs is not None]
        return FitPlan(
            model=name,
            users=interactions.n_users,
            items=interactions.n_items,
            interactions=len(interactions),
            machine=machine,
            parts=parts,
            lines=tuple(str(one.stack) for one in planned if one.stack is not None),
            epochs=max(epochs, default=None),
            candidates=len(candidates),
            validated=validated,
            refit=refit,
            free_on_disk=free_on_disk,
        )

    plans = [plan_one(one, timed=False) for one in candidates]
    sizes = [(plan.peak_on_device + plan.peak_in_memory, plan.in_folder) for plan in plans]
    largest = sizes.index(max(sizes))
    if not timed:
        return plans[largest]
    with _unheard():
        return plan_one(candidates[largest], timed=True)


@contextmanager
def _unheard() -> Iterator[None]:
    """What the timed pieces of work say of themselves is not about the fit that is planned."""
    logger = logging.getLogger("loca")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


def _machine_of(candidate: Recommender) -> Machine:
    """The machine as the candidate's models will use it: the GPU if any of them does."""
    models: list[Any] = [candidate]
    if isinstance(candidate, Loca | Ensemble):
        models = [candidate.base]
    names = []
    if isinstance(candidate, Loca):
        models += [candidate.global_model, candidate.embedding]
        names = ["auto"] if candidate.anchor_selection == "coverage" else []
    names += [one.device for one in models if isinstance(one, EASE | MultVAE | MultDAE)]
    gpus = [device for device in map(choose_device, names) if device.type == "cuda"]
    if not gpus:
        return Machine("cpu", None, available_bytes())
    return Machine(str(gpus[0]), free_bytes(gpus[0]), available_bytes())


def _plan_data(setting: Setting, known: Interactions) -> Part:
    matrix = setting.matrix
    stored = matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes
    return Part("data", in_memory=Taken(_COPIES_OF_THE_DATA * stored), in_folder=bytes_of_known(known), throughout=True)


def _plan_parts(setting: Setting, model: Recommender) -> list[Planned]:
    """What is fitted, one after the other."""
    if isinstance(model, Loca):
        return _plan_loca(setting, model)
    if isinstance(model, Ensemble):
        engine = Engine(model.engine, model.precision, model.answer_precision, model.local_bytes)
        centre = _plan_centre(setting, model.base, engine, None)
        rest = _after_all(setting, centre)
        return [*centre, plan_local(rest, model.base, model.models, engine, model.models, "ensemble members")]
    return [plan_model(setting, model, "model")]


def _plan_loca(setting: Setting, model: Loca) -> list[Planned]:
    refuse_too_many(model.anchors, setting.users)
    global_model = model.base if model.global_model is None else model.global_model
    planned = [plan_model(setting, global_model, "global model")]
    if model.embedding is not None or not isinstance(global_model, Embedder):
        embedding = TruncatedSVD(seed=model.seed) if model.embedding is None else model.embedding
        planned.append(_plan_embedding(_after_all(setting, planned), embedding))
    else:
        embedding = global_model
    planned.append(_plan_communities(_after_all(setting, planned), model, _dimensions(setting, embedding)))
    engine = Engine(model.engine, model.precision, model.answer_precision, model.local_bytes)
    planned += _plan_centre(_after_all(setting, planned), model.base, engine, global_model)
    asked = model.anchors * _share_that_answers(model)
    local = plan_local(_after_all(setting, planned), model.base, model.anchors, engine, asked, "local models")
    if model.alpha == "validation" and local.judging is not None and setting.rank is not None:
        once_more = len(ALPHAS) * setting.users * setting.rank + (local.judging if local.epochs is None else 0)
        local = replace(local, judging=local.judging + once_more)
    return [*planned, local]


def _plan_centre(setting: Setting, base: Recommender, engine: Engine, global_model: Any) -> list[Planned]:
    """The EASE that local ones are differences to, where the global model is not that one."""
    if not isinstance(base, EASE) or not keeps_differences(engine, setting.items):
        return []
    is_global = isinstance(global_model, EASE) and global_model.l2 == base.l2
    return [] if is_global else [plan_model(setting, base, "centre of local models")]


def _plan_embedding(setting: Setting, embedding: Any) -> Planned:
    if not isinstance(embedding, TruncatedSVD):
        return plan_model(setting, embedding, "embedding")
    directions = 4 * setting.items * _dimensions(setting, embedding)
    projections = 4 * setting.users * _dimensions(setting, embedding)
    seconds = None if setting.rank is None else seconds_to_embed(embedding, setting.matrix)
    # Factors of the sampled range, their decomposition and the scaled rows stand beside each other.
    at_work = 4 * (directions + projections) + 2 * 8 * setting.stored
    return Planned(Part("embedding", in_memory=Taken(at_work, directions), in_folder=directions, seconds=seconds))


def _plan_communities(setting: Setting, model: Loca, dimensions: int) -> Planned:
    """Anchors and the weights of those whom they answer for; embeddings and weights stay until the fit ends."""
    users, anchors = setting.users, model.anchors
    embeddings = 4 * users * dimensions
    stays = embeddings + _BYTES_PER_ANSWER_WEIGHT * math.ceil(users * anchors * _share_that_answers(model))
    on_device, bits, seconds = 0, 0, None
    if model.anchor_selection == "coverage":
        device, needed = choose_device("auto"), bytes_on_device(users, dimensions)
        if device.type == "cuda" and needed <= setting.free_on(device):
            on_device = needed
        else:
            device, bits = torch.device("cpu"), bytes_of_bits(users)
        if setting.rank is not None:
            seconds = seconds_to_cover(users, dimensions, anchors, model.answer_bandwidth, device)
    elif setting.rank is not None:
        seconds = seconds_to_choose_anchors(users, dimensions, anchors, model.anchor_selection)
    numbers = 2 + min(DISTINCTIVE_ITEMS, setting.items)  # of 64 bits: anchor, members, distinctive items and lifts
    part = Part(
        "communities",
        on_device=Taken(on_device),
        in_memory=Taken(bits + 3 * embeddings + stays, stays),
        in_folder=anchors * (8 * numbers + 4 * dimensions),
        seconds=seconds,
        advice="use anchor_selection 'kmeans', 'farthest' or 'random'",
    )
    return Planned(part)


def _plan_answers(setting: Setting, planned: Sequence[Planned]) -> Part:
    """Validation users' scores and their ranking, a block at a time, beside whatever is being fitted."""
    device = torch.device(setting.machine.device)
    judging = [one.judging for one in planned]
    return Part(
        "answers on validation",
        on_device=Taken(_block_bytes(setting, device) if device.type == "cuda" else 0),
        in_memory=Taken(_block_bytes(setting, torch.device("cpu"))),
        seconds=None if None in judging else sum(one for one in judging if one is not None),
        throughout=True,
        judges=True,
    )


def _block_bytes(setting: Setting, device: torch.device) -> int:
    """What a block of users takes while answers are blended and ranked."""
    rows = block_rows(setting.items, budget=ranking_bytes(device, setting.free_on(device)))
    return _ARRAYS_WHILE_BLENDING * 4 * min(rows, setting.users) * setting.items


def _after_all(setting: Setting, planned: Sequence[Planned]) -> Setting:
    for one in planned:
        setting = setting.after(one.part)
    return setting


def _dimensions(setting: Setting, embedding: Any) -> int:
    """How many numbers embed a user."""
    if isinstance(embedding, TruncatedSVD):
        return min(embedding.dimensions, *setting.matrix.shape)
    if isinstance(embedding, MultVAE | MultDAE):
        return embedding.latent
    raise ConfigError(
        f"embedding: expected svd, mult-vae or mult-dae, found {type(embedding).__name__}; no plan is known for that"
    )


def _share_that_answers(model: Loca) -> float:
    """Which share of the communities answers for a user: known for a quantile of the distances, else at most all."""
    bandwidth = model.answer_bandwidth
    return bandwidth.level if isinstance(bandwidth, Quantile) and bandwidth.times <= 1 else 1.0
