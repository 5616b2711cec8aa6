"""The paper's competitors in a plan: sparse item-to-item models, factor models, and spectral ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from loca.experiments.factor_paces import pace_of_sglsvd, pace_of_wmf
from loca.experiments.fit_plan import Part, Taken
from loca.experiments.planned_setting import BYTES_PER_ENTRY, Planned, Setting
from loca.experiments.sparse_samples import (
    SparseSize,
    count_pairs,
    pace_of_item_knn,
    sample_slim,
    size_of_item_knn,
)
from loca.models.als import bytes_to_alternate
from loca.models.devices import choose_device
from loca.models.item_knn import ItemKNN
from loca.models.llorma import LLORMA
from loca.models.sglsvd import SGLSVD, bytes_to_learn
from loca.models.slim import SLIM
from loca.models.wmf import WMF

# Of a pair of items while ItemKNN sorts it, and the most of them at once.
_BYTES_PER_SORTED_PAIR = 64
_PAIRS_SORTED = 4_000_000
# Of a pair while a Gram matrix is made, and after: value and item in 64 bits and again in 32.
_BYTES_PER_COUNTED_PAIR = 32
_BYTES_PER_PAIR = 24
# Of a key and value in place of a dense matrix, and of a candidate for a weight.
_BYTES_PER_KEY = 16
_BYTES_PER_CANDIDATE = 80
# Elastic nets of a block: the most numbers of their corners, and how many such arrays there are.
_BLOCK_NUMBERS = {"cpu": 2**23, "cuda": 2**27}
_BLOCK_ARRAYS = 5
_SOLVED_WHOLE = 500


@dataclass(frozen=True)
class _NetsSize:
    """What elastic nets take on their device and beside it in main memory."""

    on_device: int
    beside: int


def plan_item_knn(setting: Setting, model: ItemKNN, name: str) -> Planned:
    """Similarities, a block of items at a time."""
    size = size_of_item_knn(model, setting.matrix)
    kept = _bytes_of_weights(setting.items, size.weights)
    at_work = 2 * kept + _BYTES_PER_SORTED_PAIR * min(_PAIRS_SORTED, size.pairs) + BYTES_PER_ENTRY * setting.stored
    fit = scoring = None
    if setting.may_time(torch.device("cpu"), at_work):
        pace = pace_of_item_knn(model, setting.matrix, size.weights)
        fit, scoring = pace.fit, pace.answer
    part = Part(name, in_memory=Taken(at_work, kept), in_folder=kept, seconds=fit, advice="take fewer neighbours")
    return Planned(part, setting.judged(scoring), scoring)


def plan_slim(setting: Setting, model: SLIM, name: str) -> Planned:
    """A Gram matrix, and an elastic net for every item."""
    device = choose_device(model.device)
    sample = sample_slim(model, setting.matrix, None if setting.rank is None else device)
    nets = _size_of_nets(setting, sample.size, device)
    kept = _bytes_of_weights(setting.items, sample.size.weights)
    fit = scoring = None
    if setting.may_time(device, nets.on_device) and sample.pace is not None:
        fit, scoring = sample.pace.fit, sample.pace.answer
    part = Part(
        name,
        on_device=Taken(nets.on_device) if device.type == "cuda" else Taken(),
        in_memory=Taken(max(_bytes_to_count(setting), 2 * kept + nets.beside), kept),
        in_folder=kept,
        seconds=fit,
        advice="filter rare items or raise l1",
    )
    return Planned(part, setting.judged(scoring), scoring)


def plan_wmf(setting: Setting, model: WMF, name: str, weighted: bool = False) -> Planned:
    """Factors on the device or, where that has too little memory, on the CPU."""
    device, needed = _alternating(setting, model.factors, choose_device(model.device), 0)
    kept = 4 * setting.items * model.factors
    fit = scoring = None
    if setting.may_time(device, needed):
        pace = pace_of_wmf(model, setting.matrix, device, weighted)
        fit, scoring = pace.fit, pace.answer
    return _factored(setting, Part(name, in_folder=kept, seconds=fit), device, needed, scoring)


def plan_llorma(setting: Setting, model: LLORMA, name: str) -> Planned:
    """A global WMF and local ones around so many pairs; all users are near enough to learn from, at most."""
    count = min(model.anchors, setting.stored)
    of_all, local = 4 * setting.items * model.factors, 4 * count * setting.items * model.factors
    device, needed = _alternating(setting, model.factors, choose_device(model.device), of_all + local)
    # Distances of users and items to the anchors: cosines, angles, weights, and who is near at all.
    needed += 4 * 4 * (setting.users + setting.items) * count
    fit = scoring = None
    if setting.may_time(device, needed):
        of_one = WMF(factors=model.factors, confidence=model.confidence, iterations=model.iterations)
        alike, near = (pace_of_wmf(of_one, setting.matrix, device, weighted) for weighted in (False, True))
        fit, scoring = alike.fit + count * near.fit, alike.answer + count * near.answer
    kept = of_all + local + count * (4 * model.factors + 8)
    return _factored(setting, Part(name, in_folder=kept, seconds=fit), device, needed, scoring)


def plan_sglsvd(setting: Setting, model: SGLSVD, name: str) -> Planned:
    """Directions of all users and of each cluster; users' places among them stand beside."""
    items, ranks = setting.items, (model.global_rank, model.clusters * model.local_rank)
    kept = 4 * (items * sum(ranks) + ranks[0] * ranks[1])
    learning = bytes_to_learn(items, model.clusters, model.global_rank, model.local_rank)
    places = 2 * 8 * setting.users * max(model.global_rank, model.local_rank)
    # Of few users, or few items, a matrix of products is solved whole: that, its eigenvectors, and what finds them.
    whole = 4 * 8 * min(setting.users, items, _SOLVED_WHOLE) ** 2
    needed = learning + places + whole + BYTES_PER_ENTRY * setting.stored
    fit = scoring = None
    if setting.may_time(torch.device("cpu"), needed):
        pace = pace_of_sglsvd(model, setting.matrix)
        fit, scoring = pace.fit, pace.answer
    advice = "take fewer clusters or smaller ranks"
    part = Part(name, in_memory=Taken(needed, kept), in_folder=kept, seconds=fit, advice=advice)
    return Planned(part, setting.judged(scoring), scoring)


def _bytes_of_weights(items: int, weights: int) -> int:
    """Value and item of each weight, and where the weights of an item begin, as they lie in memory and in a file."""
    return 12 * weights + 8 * (items + 1)


def _most_pairs(setting: Setting) -> int:
    return min(count_pairs(setting.matrix), setting.items**2)


def _bytes_to_count(setting: Setting) -> int:
    """What a Gram matrix takes while it is made, at most."""
    return _BYTES_PER_COUNTED_PAIR * _most_pairs(setting) + BYTES_PER_ENTRY * setting.stored


def _size_of_nets(setting: Setting, size: SparseSize, device: torch.device) -> _NetsSize:
    """What elastic nets take once all is counted: the Gram matrix dense where that leaves half of what is free."""
    candidates, dense = _BYTES_PER_CANDIDATE * size.candidates, 4 * setting.items**2
    square = dense if dense + candidates < setting.free_on(device) // 2 else _BYTES_PER_KEY * size.pairs
    block = 4 * _BLOCK_ARRAYS * min(_BLOCK_NUMBERS[device.type], setting.items**3)
    at_work, counted = square + candidates + block, _BYTES_PER_PAIR * size.pairs
    if device.type == "cuda":
        return _NetsSize(at_work, counted + candidates + square)
    return _NetsSize(counted + at_work, counted + at_work)


def _alternating(setting: Setting, factors: int, wanted: torch.device, kept: int) -> tuple[torch.device, int]:
    """Where factors are found, and the bytes that takes beside those `kept`."""
    needed = kept + bytes_to_alternate(setting.users, setting.items, setting.stored, factors, wanted)
    if wanted.type == "cuda" and needed <= setting.free_on(wanted):
        return wanted, needed
    cpu = torch.device("cpu")
    return cpu, kept + bytes_to_alternate(setting.users, setting.items, setting.stored, factors, cpu)


def _factored(setting: Setting, part: Part, device: torch.device, needed: int, scoring: float | None) -> Planned:
    """The part of factors that stay where they answer, and in main memory."""
    kept, in_memory, on_device = part.in_folder, Taken(needed, part.in_folder), Taken()
    if device.type == "cuda":
        on_device, in_memory = Taken(needed, kept), Taken(kept + BYTES_PER_ENTRY * setting.stored, kept)
    part = replace(part, on_device=on_device, in_memory=in_memory, advice="take fewer factors")
    return Planned(part, setting.judged(scoring), scoring)
