"""Finds on validation which parts of a blend answer, at which power, with what weight, and says what each earned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor

from loca.data.splits import HeldOut
from loca.errors import ConfigError, DataError
from loca.evaluation.top_n import block_rows
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.memory import readable_bytes
from loca.models.mult_vae import MultDAE, MultVAE
from loca.models.network_base import score_on
from loca.models.recommender import Recommender
from loca.progress import bar, say
from loca.random_streams import stream

AT = 100  # NDCG@100, as everywhere on validation
DEPTH = 200
# Few enough for a block's blended scores to stay near the processor.
_USERS_AT_ONCE = 256

Ask = Callable[[csr_array], Tensor]


@dataclass(frozen=True, eq=False)
class CachedBlock:
    """Some users' candidates, item rows rising, and what every column says of them; most targets first.

    `unseen` is 0 where there is a candidate and −inf where the row is filled up; `places` says which candidate a
    target is, −1 where it can never be found or the row is filled up.
    """

    scores: Tensor  # (columns, users, candidates)
    unseen: Tensor  # (users, candidates)
    places: Tensor  # (users, targets)
    target_counts: npt.NDArray[np.int64]  # (users,)

    @property
    def size(self) -> int:
        """The bytes that it takes."""
        return sum(one.numel() * one.element_size() for one in (self.scores, self.unseen, self.places))

    def blended(self, weights: npt.NDArray[np.float64]) -> Tensor:
        """Σ weight · column, (users, candidates), added in the order of the columns."""
        total = self.unseen.clone()
        for column in np.flatnonzero(weights):
            total.add_(self.scores[column], alpha=float(weights[column]))
        return total

    def sum_ndcg(self, blended: Tensor) -> float:
        """Σ over the users of NDCG@100 when the candidates stand by `blended`; of equal ones the lower item row first.

        A target's place is counted, never sorted for: how many candidates stand above it.
        """
        discounts = 1 / np.log2(np.arange(2, AT + 2))
        ideal = np.cumsum(discounts)[np.minimum(self.target_counts, AT) - 1]
        above = self._count_above(blended).cpu().numpy()  # (users, targets)
        found = (self.places >= 0).cpu().numpy() & (above < AT)
        gains = np.where(found, discounts[np.minimum(above, AT - 1)], 0.0)
        return float((gains.sum(axis=1) / ideal).sum())

    def _count_above(self, blended: Tensor) -> Tensor:
        wanted = blended.gather(1, self.places.clamp_min(0))  # (users, targets)
        above = torch.zeros_like(self.places)
        marks, ones = torch.empty_like(blended), torch.ones(blended.shape[1], device=blended.device)
        for number in range(self.places.shape[1]):
            # Users stand by their number of targets, so that those who have this one are the first.
            asked = int(np.count_nonzero(self.target_counts > number))
            part, value, mark = blended[:asked], wanted[:asked, number : number + 1], marks[:asked]
            higher = torch.gt(part, value, out=mark) @ ones
            as_high = torch.ge(part, value, out=mark) @ ones
            above[:asked, number] = higher.long()
            tied = torch.nonzero(as_high - higher > 1).flatten()
            if len(tied):
                equal = part[tied] == value[tied]
                order = torch.arange(blended.shape[1], device=blended.device)
                above[tied, number] += (equal & (order < self.places[tied, number : number + 1])).sum(dim=1)
        return above


@dataclass(frozen=True, eq=False)
class ScoreCache:
    """What every column says of the candidates of `user_count` validation users."""

    blocks: tuple[CachedBlock, ...]
    column_count: int
    user_count: int

    def blended(self, weights: npt.NDArray[np.float64]) -> list[Tensor]:
        """The blended scores of every block."""
        return [block.blended(weights) for block in self.blocks]

    def ndcg(self, weights: npt.NDArray[np.float64]) -> float:
        """The mean NDCG@100 of a weighting."""
        return self.ndcg_of(self.blended(weights))

    def ndcg_of(self, blended: Sequence[Tensor], column: int = 0, change: float = 0.0) -> float:
        """The mean NDCG@100 of blended scores, after a change of one column's weight."""
        total = 0.0
        for block, scores in zip(self.blocks, blended, strict=True):
            total += block.sum_ndcg(scores.add(block.scores[column], alpha=change) if change else scores)
        return total / self.user_count


def cache_scores(
    columns: Sequence[Ask], held_out: HeldOut, *, cache_bytes: int, seed: int, depth: int = DEPTH
) -> ScoreCache:
    """The scaled scores of every column at each user's candidates: the columns' `depth` best unseen, and the targets.

    Users come in random order; where all of them would take more than `cache_bytes`, those that fit are kept.
    """
    asked = np.flatnonzero(held_out.target_counts)
    asked = stream(seed, "validation users of a blend").permutation(asked)
    most_targets = int(np.diff(held_out.target_matrix.indptr).max())
    widest = min(held_out.n_items, len(columns) * depth + most_targets)
    most_bytes = 4 * widest * (len(columns) + 1) + 8 * most_targets  # of one user
    step = min(_USERS_AT_ONCE, block_rows(held_out.n_items, arrays=len(columns) + 6), max(1, cache_bytes // most_bytes))
    blocks: list[CachedBlock] = []
    used = kept = 0
    with bar("blend: asking the parts", len(asked)) as progress:
        for block in _cached_blocks(columns, held_out, asked, step, depth):
            if blocks and used + block.size > cache_bytes:
                say(
                    f"blend: weights are found on {kept:,} of {len(asked):,} validation users, drawn at random; "
                    f"more do not fit the {readable_bytes(cache_bytes)} of its cache"
                )
                break
            blocks.append(block)
            used, kept = used + block.size, kept + len(block.target_counts)
            progress.advance(len(block.target_counts))
    return ScoreCache(tuple(blocks), len(columns), kept)


def _cached_blocks(
    columns: Sequence[Ask], held_out: HeldOut, asked: npt.NDArray[np.int64], step: int, depth: int
) -> Iterator[CachedBlock]:
    counts = held_out.target_counts
    for start in range(0, len(asked), step):
        users = asked[start : start + step]
        users = users[np.argsort(-counts[users], kind="stable")]
        histories, targets = csr_array(held_out.history_matrix[users]), csr_array(held_out.target_matrix[users])
        answers = [ask(histories) for ask in columns]
        device = next((one.device for one in answers if one.device.type != "cpu"), torch.device("cpu"))
        yield _keep_candidates([one.to(device) for one in answers], histories, targets, counts[users], depth)


def _keep_candidates(
    answers: list[Tensor], histories: csr_array, targets: csr_array, target_counts: npt.NDArray[np.int64], depth: int
) -> CachedBlock:
    device, shape = answers[0].device, answers[0].shape
    seen = _marks(histories, device)
    marked = _marks(targets, device)  # becomes: every candidate
    for scores in answers:
        best = scores.masked_fill(seen, -torch.inf).topk(min(depth, shape[1]), sorted=False).indices
        marked.scatter_(1, best, True)
    marked &= ~seen
    place_of = marked.cumsum(dim=1, dtype=torch.int32) - 1  # (users, items)
    users, items = marked.nonzero(as_tuple=True)
    places = place_of[users, items].long()
    width = max(1, int(place_of[:, -1].max()) + 1)
    candidates = torch.zeros((shape[0], width), dtype=torch.int64, device=device)
    unseen = torch.full((shape[0], width), -torch.inf, device=device)
    candidates[users, places], unseen[users, places] = items, 0.0
    kept = torch.stack([scores.gather(1, candidates) for scores in answers])  # (columns, users, candidates)
    counts = np.diff(targets.indptr)
    owners = np.repeat(np.arange(len(counts)), counts)
    numbers = np.arange(targets.nnz) - targets.indptr[:-1][owners]
    wanted = torch.full((shape[0], int(counts.max())), -1, dtype=torch.int64, device=device)
    rows, columns = torch.from_numpy(owners).to(device), torch.from_numpy(targets.indices.astype(np.int64)).to(device)
    wanted[rows, torch.from_numpy(numbers).to(device)] = torch.where(
        marked[rows, columns], place_of[rows, columns].long(), -1
    )
    # What only fills a row up is 0 in every column, so that it stays at −inf whatever the weights.
    return CachedBlock(kept.masked_fill_(unseen == -torch.inf, 0.0), unseen, wanted, target_counts)


def _marks(rows: csr_array, device: torch.device) -> Tensor:
    """True where something is stored, (users, items)."""
    marks = torch.zeros(rows.shape, dtype=torch.bool)
    users = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    marks[torch.from_numpy(users), torch.from_numpy(rows.indices.astype(np.int64))] = True
    return marks.to(device)


ScaleName = Literal["z-score", "log-probability"]
# Scores that differ by less than this, relative to their size, differ by rounding alone.
_ROUNDING = 1e-6


def check_scale(scale: str) -> None:
    """Refuses an unknown scale."""
    if scale not in ("z-score", "log-probability"):
        raise ConfigError(f"scale: expected 'z-score' or 'log-probability', found {scale!r}")


def ask_part(model: Recommender, histories: csr_array, power: float, scale: ScaleName) -> Tensor:
    """The part's scores for histories seen at a power, on one scale per user, (users, items) where the part answers."""
    scores = score_on(model, sharpened(histories, power))
    scaled = scores.log_softmax(dim=1) if scale == "log-probability" and gives_logits(model) else z_scores(scores)
    if not bool(torch.isfinite(scaled).all()):
        raise DataError(
            f"{type(model).__name__}: expected finite scores to blend, found others: has its training diverged?"
        )
    return scaled


def sharpened(histories: csr_array, power: float) -> csr_array:
    """The histories with every value raised to a power: 1 leaves them, 0 lets every stored item count 1."""
    if power == 1:
        return histories
    # A stored item stays seen, however little it counts.
    values = np.maximum(histories.data.astype(np.float32) ** np.float32(power), np.finfo(np.float32).tiny)
    return csr_array((values, histories.indices, histories.indptr), shape=histories.shape)


def z_scores(scores: Tensor) -> Tensor:
    """(score − mean) / standard deviation over each user's items; zeros where all scores are the same but for rounding.

    A part that multiplies all its scores by a number above 0, or adds one to them, says the same.
    """
    centred = scores - scores.mean(dim=1, keepdim=True)
    spread = centred.square().mean(dim=1, keepdim=True).sqrt_()
    flat = spread <= _ROUNDING * scores.abs().amax(dim=1, keepdim=True)
    return centred.div_(spread.masked_fill_(flat, 1.0)).masked_fill_(flat, 0.0)


def gives_logits(model: object) -> bool:
    """Whether log softmax of the scores is a log-probability: networks, and Loca and Ensemble of networks alone."""
    if isinstance(model, Loca):
        return gives_logits(model.base) and (model.global_model is None or gives_logits(model.global_model))
    if isinstance(model, Ensemble):
        return gives_logits(model.base)
    return isinstance(model, MultVAE | MultDAE)


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
