"""The parts of a fit: any model by itself, and many local copies of it, each by the plan of its own kind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from loca.errors import ConfigError
from loca.experiments.fit_plan import Part, Taken
from loca.experiments.planned_competitors import (
    plan_item_knn,
    plan_llorma,
    plan_sglsvd,
    plan_slim,
    plan_wmf,
)
from loca.experiments.planned_ease import plan_differences, plan_ease
from loca.experiments.planned_networks import plan_loop, plan_network, plan_stack
from loca.experiments.planned_setting import Planned, Setting
from loca.local.local_ease import ItemToItem
from loca.local.training import Engine, StackedKind, is_stacked, keeps_differences
from loca.models.cdae import CDAE
from loca.models.ease import EASE
from loca.models.item_knn import ItemKNN
from loca.models.llorma import LLORMA
from loca.models.mult_vae import MultDAE, MultVAE
from loca.models.next_ease import NextEASE
from loca.models.popularity import Popularity
from loca.models.rec_vae import RecVAE
from loca.models.sglsvd import SGLSVD
from loca.models.slim import SLIM
from loca.models.wmf import WMF


def plan_model(setting: Setting, model: Any, name: str, weighted: bool = False) -> Planned:
    """The part of one model by itself; `weighted` says whether its users count differently."""
    match model:
        case Popularity():
            size = 4 * setting.items
            return Planned(Part(name, in_memory=Taken(4 * size, size), in_folder=size), setting.judged(0.0))
        case EASE() | NextEASE():
            return plan_ease(setting, model, name)
        case MultVAE() | MultDAE() | CDAE() | RecVAE():
            return plan_network(setting, model, name)
        case ItemKNN():
            return plan_item_knn(setting, model, name)
        case SLIM():
            return plan_slim(setting, model, name)
        case WMF():
            return plan_wmf(setting, model, name, weighted)
        case LLORMA():
            return plan_llorma(setting, model, name)
        case SGLSVD():
            return plan_sglsvd(setting, model, name)
    raise ConfigError(
        f"{name}: expected ease, next-ease, mult-vae or another model that is not made of others, "
        f"found {type(model).__name__}; no plan is known for that"
    )


def plan_local(
    setting: Setting, base: Any, count: int, engine: Engine, asked: float, name: str, weighted: bool = True
) -> Planned:
    """All local models, or members of an ensemble; `asked` of them answer one user."""
    if isinstance(base, ItemToItem) and keeps_differences(engine, setting.items):
        return plan_differences(setting, base, count, engine.local_bytes, asked, name)
    if isinstance(base, StackedKind) and is_stacked(engine.name):
        return plan_stack(setting, base, count, engine, asked, name)
    if isinstance(base, StackedKind | CDAE | RecVAE):
        return plan_loop(setting, base, count, asked, name)
    if isinstance(base, Popularity):
        size = 4 * setting.items * count
        return Planned(Part(name, in_memory=Taken(2 * size, size), in_folder=size))
    return plan_each(setting, plan_model(setting, base, name, weighted), count, asked)


def plan_each(setting: Setting, one: Planned, count: int, asked: float) -> Planned:
    """As many models like this one that are fitted in turn and each kept whole: what the reference engine does."""
    part, scoring = one.part, None if one.scoring is None else asked * one.scoring
    part = replace(
        part,
        on_device=_many(part.on_device, count),
        in_memory=_many(part.in_memory, count),
        in_folder=count * part.in_folder,
        seconds=None if part.seconds is None else count * part.seconds,
        advice="take fewer models or filter rare items",
    )
    return Planned(part, setting.judged(scoring), scoring)


def _many(one: Taken, count: int) -> Taken:
    """What so many take of which one is at work."""
    return Taken(count * one.stays + one.at_work, count * one.stays)
