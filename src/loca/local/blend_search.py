"""Finds on validation which parts of a blend answer, at which power, with what weight, and says what each earned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array

from loca.data.held_out import HeldOut
from loca.local.blend_cache import DEPTH, Ask, ScoreCache, cache_scores
from loca.local.blend_scales import ScaleName, ask_part
from loca.models.recommender import Recommender
from loca.progress import bar

# A column of a blend: the number of the part, the power at which it sees the histories, its weight.
Column = tuple[int, float, float]
Weights = npt.NDArray[np.float64]

_STEPS = (0.5, 0.2, 0.1, 0.05, 0.02)
# What a change must earn in NDCG@100, and what leaving a column out may cost: far below the noise of any validation.
_LEAST_GAIN = 1e-5
_PROBED_USERS = 32


@dataclass(frozen=True)
class PartEarned:
    """What one part is worth on validation, in NDCG@100.

    `alone` is its own, at its best power; `loss_without` is what the blend loses when the part is left out and the
    weights of the others stay.
    """

    name: str
    alone: float
    weight: float
    loss_without: float


@dataclass(frozen=True)
class FoundBlend:
    """The columns of a blend with weights that sum to 1, and its NDCG@100 on `user_count` validation users."""

    columns: tuple[Column, ...]
    ndcg: float
    user_count: int
    earned: tuple[PartEarned, ...]


def find_blend(
    models: Mapping[int, Recommender],
    names: Sequence[str],
    validation: HeldOut,
    *,
    scale: ScaleName,
    powers: Sequence[float],
    cache_bytes: int,
    seed: int,
    depth: int = DEPTH,
) -> FoundBlend:
    """The parts (fitted models by number), powers and weights of the best validation NDCG@100 that the search finds."""
    asked = [(number, power) for number, model in models.items() for power in powers_to_try(model, validation, powers)]
    columns: list[Ask] = [partial(ask_part, models[number], power=power, scale=scale) for number, power in asked]
    cache = cache_scores(columns, validation, cache_bytes=cache_bytes, seed=seed, depth=depth)
    alone = score_alone(cache)
    weights = find_weights(cache, alone)
    return _found(cache, asked, weights, alone, names)


def judge_blend(
    models: Mapping[int, Recommender],
    names: Sequence[str],
    columns: Sequence[Column],
    validation: HeldOut,
    *,
    scale: ScaleName,
    cache_bytes: int,
    seed: int,
) -> FoundBlend:
    """What the parts of given columns earn on validation; parts without a column are not looked at."""
    asks: list[Ask] = [partial(ask_part, models[number], power=power, scale=scale) for number, power, _ in columns]
    cache = cache_scores(asks, validation, cache_bytes=cache_bytes, seed=seed)
    weights = np.array([weight for _, _, weight in columns])
    asked = [(number, power) for number, power, _ in columns]
    return _found(cache, asked, weights, score_alone(cache), names)


def powers_to_try(model: Recommender, validation: HeldOut, powers: Sequence[float]) -> tuple[float, ...]:
    """The powers that can make a difference: 1 alone where every item counts 1, or where the part does not mind."""
    histories = validation.history_matrix
    owners = np.repeat(np.arange(histories.shape[0]), np.diff(histories.indptr))
    weighted = np.unique(owners[histories.data != 1])
    if not len(weighted):
        return (1.0,)
    probed = csr_array(histories[weighted[:_PROBED_USERS]])
    flattest, sharpest = (ask_part(model, probed, power, "z-score") for power in (min(powers), max(powers)))
    return (1.0,) if len(powers) > 1 and torch.equal(flattest, sharpest) else tuple(powers)


def score_alone(cache: ScoreCache) -> Weights:
    """The NDCG@100 of each column by itself."""
    return np.array([cache.ndcg(one) for one in np.eye(cache.column_count)])


def find_weights(cache: ScoreCache, alone: Weights) -> Weights:
    """Weights ≥ 0 of the columns, sum 1, by coordinate search from the best single column.

    A column's weight goes up or down by a share of the sum of weights, the shares getting smaller, as long as the mean
    NDCG@100 rises; columns that earn nothing go. Equal weights of what is left are taken where they do as well:
    they owe nothing to the noise of validation. Columns are tried best first, so their order does not matter.
    """
    order = np.argsort(-alone, kind="stable")
    weights = np.zeros(len(alone))
    weights[order[0]] = 1.0
    best = float(alone[order[0]])
    with bar("blend: finding weights", len(_STEPS)) as progress:
        for step in _STEPS:
            weights, best = _climb(cache, weights, best, step, order)
            progress.advance(note=f"NDCG@100 {best:.4f}")
    weights = _drop_idle(cache, weights)
    weights /= weights.sum()
    equal = (weights > 0) / np.count_nonzero(weights)
    return equal if cache.ndcg(equal) >= cache.ndcg(weights) else weights


def _climb(
    cache: ScoreCache, weights: Weights, best: float, step: float, order: npt.NDArray[np.int64]
) -> tuple[Weights, float]:
    """Passes over the columns with one size of step until nothing rises any more."""
    weights, blended, rises = weights.copy(), cache.blended(weights), True
    while rises:
        rises = False
        for column in order:
            for change in _changes(weights, column, step):
                reached = cache.ndcg_of(blended, column, change)
                if reached > best + _LEAST_GAIN:
                    weights[column] = max(weights[column] + change, 0.0)
                    # Afresh, so that rounding does not pile up from change to change.
                    blended, best, rises = cache.blended(weights), reached, True
                    break
    return weights, best


def _changes(weights: Weights, column: int, step: float) -> tuple[float, ...]:
    up = step * float(weights.sum())
    down = min(up, float(weights[column]))
    # The last column cannot go.
    return (up, -down) if 0 < down < weights.sum() else (up,)


def _drop_idle(cache: ScoreCache, weights: Weights) -> Weights:
    """The weights without the columns whose loss costs nothing, the lightest tried first."""
    best = cache.ndcg(weights)
    for column in np.argsort(weights, kind="stable"):
        if weights[column] == 0 or np.count_nonzero(weights) == 1:
            continue
        without = np.where(np.arange(len(weights)) == column, 0.0, weights)
        reached = cache.ndcg(without)
        if reached > best - _LEAST_GAIN:
            weights, best = without, max(best, reached)
    return weights


def _found(
    cache: ScoreCache, asked: Sequence[tuple[int, float]], weights: Weights, alone: Weights, names: Sequence[str]
) -> FoundBlend:
    part_of = np.array([number for number, _ in asked])
    ndcg = cache.ndcg(weights)
    earned = []
    for number in dict.fromkeys(part_of.tolist()):
        own = part_of == number
        weight = float(weights[own].sum())
        others = np.where(own, 0.0, weights)
        # Nothing is found by a blend of nothing.
        left = ndcg if not weight else cache.ndcg(others) if others.any() else 0.0
        earned.append(PartEarned(names[number], float(alone[own].max()), weight, ndcg - left))
    columns = tuple(
        (number, power, float(weight)) for (number, power), weight in zip(asked, weights, strict=True) if weight > 0
    )
    return FoundBlend(columns, ndcg, cache.user_count, tuple(earned))
