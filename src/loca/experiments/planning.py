"""What a fit would take before it is begun: memory on device and host, model files, and rough time."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch

from loca.data.interactions import Interactions
from loca.errors import ConfigError
from loca.evaluation.top_n import block_rows
from loca.experiments.calibration import seconds_to_rank
from loca.experiments.fit_plan import FitPlan, Machine, Part, Taken, sum_known
from loca.experiments.planned_models import plan_parts
from loca.experiments.planned_setting import Planned, Setting
from loca.local.auto import Auto
from loca.local.blend import Blend
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.memory import available_bytes
from loca.models.cdae import CDAE
from loca.models.devices import choose_device, free_bytes, ranking_bytes
from loca.models.ease import EASE
from loca.models.llorma import LLORMA
from loca.models.mult_vae import MultDAE, MultVAE
from loca.models.next_ease import NextEASE
from loca.models.rec_vae import RecVAE
from loca.models.recommender import Recommender, get_params
from loca.models.slim import SLIM
from loca.models.wmf import WMF
from loca.persistence.model_io import bytes_of_known
from loca.tuning.model_selection import RecencyRule
from loca.tuning.recency_selection import recency_candidates, start_recency

# What computes where it is told to; the other models are at work in main memory.
_Computing = EASE | NextEASE | SLIM | WMF | LLORMA | CDAE | RecVAE | MultVAE | MultDAE
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
    recency: RecencyRule = "given",
    free_on_disk: int | None = None,
    timed: bool = True,
) -> FitPlan:
    """The plan of choosing among the candidates on validation and fitting the choice; nothing large is allocated.

    The parts are those of the largest candidate; only that one is timed, with small pieces of its work. With
    `recency="auto"` its answers are judged once more for every recency that it may choose.
    """
    if not candidates:
        raise ConfigError("nothing to plan: expected at least one candidate")

    def plan_one(candidate: Recommender, *, timed: bool) -> FitPlan:
        one = _plan_candidate(candidate, interactions, validated, recency, timed)
        return replace(one, model=name, candidates=len(candidates), refit=refit, free_on_disk=free_on_disk)

    with _unheard():
        if timed and len(candidates) == 1:
            return plan_one(candidates[0], timed=True)
        plans = [plan_one(one, timed=False) for one in candidates]
        sizes = [(plan.peak_on_device + plan.peak_in_memory, plan.in_folder) for plan in plans]
        largest = sizes.index(max(sizes))
        return plan_one(candidates[largest], timed=True) if timed else plans[largest]


def _plan_candidate(
    candidate: Recommender, interactions: Interactions, validated: bool, recency: RecencyRule, timed: bool
) -> FitPlan:
    """The plan of one fit of one candidate."""
    if isinstance(candidate, Auto) and candidate.chosen is None and not validated:
        raise ConfigError("auto: needs held-out items to choose on; expected --validation of at least 1, found 0")
    matrix, machine = interactions.matrix(), _machine_of(candidate)
    rank = seconds_to_rank(matrix, torch.device(machine.device)) if timed else None
    weighed_by = interactions.recency if recency == "given" else start_recency(candidate)
    setting = Setting(matrix, machine, rank, weighed=weighed_by is not None)
    data = _plan_data(setting, interactions)
    planned = [one for one in plan_parts(setting.after(data), candidate) if validated or not one.part.judges]
    answers = []
    if validated:
        more = _recencies_to_try(candidate, interactions) if recency == "auto" else 0
        answers.append(_plan_answers(setting, planned, more))
    epochs = [one.epochs for one in planned if one.epochs is not None]
    return FitPlan(
        model=type(candidate).__name__,
        users=interactions.n_users,
        items=interactions.n_items,
        interactions=len(interactions),
        machine=machine,
        parts=(data, *(one.part for one in planned), *answers),
        lines=tuple(str(one.stack) for one in planned if one.stack is not None),
        epochs=max(epochs, default=None),
        validated=validated,
    )


def _recencies_to_try(candidate: Recommender, interactions: Interactions) -> int:
    """How often a fitted candidate is judged once more when it chooses its recency; blends have chosen in their fit."""
    if isinstance(candidate, Blend | Auto):
        return 0
    return len({*recency_candidates(interactions), start_recency(candidate)}) - 1


@contextmanager
def _unheard() -> Iterator[None]:
    """What small pieces of work say of themselves is not about the fit that is planned."""
    logger = logging.getLogger("loca")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


def _machine_of(candidate: Recommender) -> Machine:
    """The machine as the candidate's models will use it: the GPU if any of them does."""
    gpus = [device for device in map(choose_device, _devices_of(candidate)) if device.type == "cuda"]
    if not gpus:
        return Machine("cpu", None, available_bytes())
    return Machine(str(gpus[0]), free_bytes(gpus[0]), available_bytes())


def _devices_of(model: object) -> list[str]:
    """The names of the devices that a model and those inside it ask for."""
    if isinstance(model, Blend):
        return [name for part in model.parts for name in _devices_of(part)]
    if isinstance(model, Auto) and model.chosen is not None:
        return _devices_of(model.chosen)
    if isinstance(model, Ensemble):
        return _devices_of(model.base)
    if isinstance(model, Loca):
        # Greedy coverage is counted where the base is, whatever that is.
        counting = [get_params(model.base).get("device", "auto")] if model.anchor_selection == "coverage" else []
        inside = (model.base, model.global_model, model.embedding)
        return [*counting, *(name for one in inside for name in _devices_of(one))]
    return [model.device] if isinstance(model, _Computing | Auto) else []


def _plan_data(setting: Setting, known: Interactions) -> Part:
    matrix = setting.matrix
    stored = matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes
    return Part("data", in_memory=Taken(_COPIES_OF_THE_DATA * stored), in_folder=bytes_of_known(known), throughout=True)


def _plan_answers(setting: Setting, planned: Sequence[Planned], more: int) -> Part:
    """Validation users' scores and their ranking, a block at a time, beside whatever is being fitted.

    The fitted model is judged so many times more.
    """
    device = torch.device(setting.machine.device)
    once_more = setting.judged(sum_known(one.scoring for one in planned), more)
    return Part(
        "answers on validation",
        on_device=Taken(_block_bytes(setting, device) if device.type == "cuda" else 0),
        in_memory=Taken(_block_bytes(setting, torch.device("cpu"))),
        seconds=sum_known([*(one.judging for one in planned), once_more]),
        throughout=True,
        judges=True,
    )


def _block_bytes(setting: Setting, device: torch.device) -> int:
    """What a block of users takes while answers are blended and ranked."""
    rows = block_rows(setting.items, budget=ranking_bytes(device, setting.free_on(device)))
    return _ARRAYS_WHILE_BLENDING * 4 * min(rows, setting.users) * setting.items
