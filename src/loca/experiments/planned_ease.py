"""EASE and NextEASE in a plan, whole or as differences to a centre, by the formulas of the code that solves them."""

from __future__ import annotations

import torch

from loca.experiments.calibration import pace_of_ease, pace_of_local_ease
from loca.experiments.fit_plan import Part, Taken
from loca.experiments.planned_setting import BYTES_PER_ENTRY, Planned, Setting
from loca.local.compressed_weights import SizeBudget
from loca.local.local_ease import (
    ItemToItem,
    bytes_while_blending,
    bytes_while_solving,
    bytes_while_solving_next,
    systems_at_once,
)
from loca.models.devices import choose_device
from loca.models.ease import plan_solving
from loca.models.next_ease import NextEASE, plan_solving_next

# Of the entries that may turn out to be the largest differences: place and value, found, joined and trimmed.
_BYTES_PER_DIFFERENCE = 64


def plan_ease(setting: Setting, model: ItemToItem, name: str) -> Planned:
    """One EASE or NextEASE, solved on its device or, where that has too little memory, on the CPU."""
    wanted = choose_device(model.device)
    free = setting.free_on(wanted)
    if isinstance(model, NextEASE):
        device, needed = plan_solving_next(setting.items, setting.stored, wanted, free)
    else:
        device, needed = plan_solving(setting.users, setting.items, wanted, free)
    weights, rows = 4 * setting.items**2, BYTES_PER_ENTRY * setting.stored
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


def plan_differences(
    setting: Setting, base: ItemToItem, count: int, local_bytes: int, asked: float, name: str
) -> Planned:
    """EASE or NextEASE models that are kept as their largest differences to a centre."""
    device, room = choose_device(base.device), SizeBudget.of(setting.items, local_bytes)
    on_gpu, free = device.type == "cuda", setting.free_on(device)
    kept, rows = count * room.stored_bytes, BYTES_PER_ENTRY * setting.stored
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
