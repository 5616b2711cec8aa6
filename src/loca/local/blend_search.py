"""Finds on validation which parts of a blend answer, at which power, with what weight, and says what each earned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor

from loca.data.splits import HeldOut
from loca.errors import DataError
from loca.evaluation.metrics import DEFAULT_METRIC, Metric
from loca.evaluation.top_n import as_tensor, block_rows
from loca.memory import DataSize, MemoryUse, readable_bytes
from loca.models.devices import score_on
from loca.models.recommender import Recommender
from loca.progress import bar, say
from loca.random_streams import stream

ScaleName = Literal["z-score", "log-probability"]
# A column of a blend: the number of the part, the power at which it sees the histories, its weight.
Column = tuple[int, float, float]
Weights = npt.NDArray[np.float64]
AtPowers = Sequence[tuple[int, float]]  # columns without their weights
Counts = npt.NDArray[np.int64]
Models = Mapping[int, Recommender]  # by the numbers of the parts
# Candidates are so many times deeper than the lists that a metric looks at.
DEPTH_OF_LIST = 2
# Few enough for a block's blended scores to stay near the processor.
_USERS_AT_ONCE = 256
# Scores that differ by less than this, relative to their size, differ by rounding alone.
_ROUNDING = 1e-6
_STEPS = (0.5, 0.2, 0.1, 0.05, 0.02)
# What a change must earn in the metric, and what leaving a column out may cost: far below the noise of any validation.
_LEAST_GAIN = 1e-5
_PROBED_USERS = 32


def scaled_scores(
    model: Recommender, histories: csr_array, power: float, scale: ScaleName
) -> Tensor:
    """A part's scores of histories seen at a power, on one scale per user, (users, items) where the part answers."""
    scores = as_tensor(score_on(model, sharpened(histories, power)))
    scaled = (
        scores.log_softmax(dim=1)
        if scale == "log-probability" and model.gives_logits
        else z_scores(scores)
    )
    if not bool(torch.isfinite(scaled).all()):
        problem = "expected finite scores to blend, found others: has its training diverged?"
        raise DataError(f"{type(model).__name__}: {problem}")
    return scaled


def sharpened(histories: csr_array, power: float) -> csr_array:
    """The histories with every value raised to a power: 1 leaves them, 0 lets every stored item count 1."""
    if power == 1:
        return histories
    # A stored item stays seen, however little it counts.
    values = np.maximum(
        histories.data.astype(np.float32) ** np.float32(power), np.finfo(np.float32).tiny
    )
    return csr_array((values, histories.indices, histories.indptr), shape=histories.shape)


def z_scores(scores: Tensor) -> Tensor:
    """(score − mean) / standard deviation over each user's items; zeros where all scores are the same but for rounding.

    A part that multiplies all its scores by a number above 0, or adds one to them, says the same.
    """
    centred = scores - scores.mean(dim=1, keepdim=True)
    return centred.div_(spreads(scores, centred))


def spreads(scores: Tensor, centred: Tensor) -> Tensor:
    """The standard deviation of each user's scores, (users, 1); infinite where they differ by rounding alone."""
    spread = centred.square().mean(dim=1, keepdim=True).sqrt_()
    flat = spread <= _ROUNDING * scores.abs().amax(dim=1, keepdim=True)
    return spread.masked_fill_(flat, torch.inf)


@dataclass(frozen=True, eq=False)
class CachedBlock:
    """Some users' candidates, item rows rising, and what every column says of them; most targets first.

    `unseen` is 0 where there is a candidate and −inf where the row is filled up; `places` says which candidate a
    target is, −1 where it can never be found or the row is filled up.
    """

    scores: Tensor  # (columns, users, candidates)
    unseen: Tensor  # (users, candidates)
    places: Tensor  # (users, targets)
    target_counts: Counts  # (users,)

    @classmethod
    def of(
        cls,
        columns: list[Tensor],
        histories: csr_array,
        targets: csr_array,
        counts: Counts,
        depth: int,
    ) -> Self:
        """The block of some users: each column's scores of all items (users, items), and their numbers of targets."""
        device = next(
            (one.device for one in columns if one.device.type != "cpu"), torch.device("cpu")
        )
        columns = [one.to(device) for one in columns]
        users, item_count = columns[0].shape
        entries = (np.stack(one.tocoo().coords).astype(np.int64) for one in (histories, targets))
        of_seen, of_targets = (
            tuple(torch.from_numpy(one).to(device)) for one in entries
        )  # user and item of each
        seen = torch.zeros((users, item_count), dtype=torch.bool, device=device)
        seen[of_seen] = True
        candidates = torch.zeros_like(seen)
        candidates[of_targets] = True
        for scores in columns:
            best = (
                scores.masked_fill(seen, -torch.inf)
                .topk(min(depth, item_count), sorted=False)
                .indices
            )
            candidates.scatter_(1, best, True)
        candidates &= ~seen
        place_of = candidates.cumsum(dim=1, dtype=torch.int32) - 1  # (users, items)
        width = max(1, int(place_of[:, -1].max()) + 1)
        rows, items = candidates.nonzero(as_tuple=True)
        item_at = torch.zeros((users, width), dtype=torch.int64, device=device)
        unseen = torch.full((users, width), -torch.inf, device=device)
        places = place_of[rows, items].long()
        item_at[rows, places], unseen[rows, places] = items, 0.0
        # What only fills a row up is 0 in every column, so that it stays at −inf whatever the weights.
        cached = torch.stack([scores.gather(1, item_at) for scores in columns]).masked_fill_(
            unseen == -torch.inf, 0.0
        )
        numbers = (
            torch.arange(targets.nnz, device=device)
            - torch.from_numpy(targets.indptr).to(device)[of_targets[0]]
        )
        wanted = torch.full(
            (users, int(np.diff(targets.indptr).max())), -1, dtype=torch.int64, device=device
        )
        wanted[of_targets[0], numbers] = torch.where(
            candidates[of_targets], place_of[of_targets].long(), -1
        )
        return cls(cached, unseen, wanted, counts)

    @property
    def size(self) -> int:
        """The bytes that it takes."""
        return self.scores.nbytes + self.unseen.nbytes + self.places.nbytes

    def blended(self, weights: Weights) -> Tensor:
        """Σ weight · column, (users, candidates), added in the order of the columns."""
        total = self.unseen.clone()
        for column in np.flatnonzero(weights):
            total.add_(self.scores[column], alpha=float(weights[column]))
        return total

    def sum_of(self, metric: Metric, blended: Tensor) -> float:
        """Return the sum of a metric over the users when the candidates stand by `blended`.

        Of equal ones the lower item row comes first.

        A target's place is counted, never sorted for: how many candidates stand above it.
        """
        wanted = blended.gather(1, self.places.clamp_min(0))  # (users, targets)
        above = torch.zeros_like(self.places)
        marks, ones = torch.empty_like(blended), torch.ones(blended.shape[1], device=blended.device)
        for number in range(self.places.shape[1]):
            # Users stand by their number of targets, so that those who have this one are the first.
            users = int(np.count_nonzero(self.target_counts > number))
            part, value, mark = blended[:users], wanted[:users, number : number + 1], marks[:users]
            higher = torch.gt(part, value, out=mark) @ ones
            as_high = torch.ge(part, value, out=mark) @ ones
            above[:users, number] = higher.long()
            tied = torch.nonzero(as_high - higher > 1).flatten()
            if len(tied):
                order = torch.arange(blended.shape[1], device=blended.device)
                earlier = order < self.places[tied, number : number + 1]
                above[tied, number] += ((part[tied] == value[tied]) & earlier).sum(dim=1)
        ranks = above.cpu().numpy()  # (users, targets)
        length = min(metric.k, blended.shape[1])
        found = (self.places >= 0).cpu().numpy() & (ranks < length)
        hits = np.zeros((len(ranks), length), dtype=bool)
        rows, numbers = np.nonzero(found)
        hits[rows, ranks[rows, numbers]] = True
        return float(metric(hits, self.target_counts).sum())


@dataclass(frozen=True, eq=False)
class ScoreCache:
    """What every column says of the candidates of `user_count` validation users."""

    blocks: tuple[CachedBlock, ...]
    column_count: int
    user_count: int
    metric: Metric

    @classmethod
    def of(
        cls,
        models: Models,
        columns: AtPowers,
        held_out: HeldOut,
        scale: ScaleName,
        cache_bytes: int,
        seed: int,
        metric: Metric,
    ) -> Self:
        """The scaled scores of every column, a part at a power, at each user's candidates.

        Candidates are the columns' best unseen items, twice as many as a list has, and the targets. Users come in
        random order; where all of them would take more than `cache_bytes`, those that fit are taken.
        """
        counts, count = held_out.target_counts, len(columns)
        users = stream(seed, "validation users of a blend").permutation(np.flatnonzero(counts))
        most_targets = int(np.diff(held_out.target_matrix.indptr).max())
        depth = DEPTH_OF_LIST * metric.k
        widest = min(held_out.n_items, count * depth + most_targets)
        most_bytes = 4 * widest * (count + 1) + 8 * most_targets  # of one user
        step = min(
            _USERS_AT_ONCE,
            block_rows(held_out.n_items, arrays=count + 6),
            max(1, cache_bytes // most_bytes),
        )
        blocks: list[CachedBlock] = []
        used = cached = 0
        with bar("blend: scoring with the parts", len(users)) as progress:
            for start in range(0, len(users), step):
                chosen = users[start : start + step]
                chosen = chosen[np.argsort(-counts[chosen], kind="stable")]
                rows = (held_out.history_matrix, held_out.target_matrix)
                histories, targets = (csr_array(one[chosen]) for one in rows)
                scores = [
                    scaled_scores(models[number], histories, power, scale)
                    for number, power in columns
                ]
                block = CachedBlock.of(scores, histories, targets, counts[chosen], depth)
                if blocks and used + block.size > cache_bytes:
                    found_on = f"{cached:,} of {len(users):,} validation users, drawn at random"
                    room = f"the {readable_bytes(cache_bytes)} of its cache"
                    say(f"blend: weights are found on {found_on}; more do not fit {room}")
                    break
                blocks.append(block)
                used, cached = used + block.size, cached + len(chosen)
                progress.advance(len(chosen))
        return cls(tuple(blocks), count, cached, metric)

    @staticmethod
    def memory_bytes(
        data: DataSize,
        columns: int,
        cache_bytes: int,
        answering: MemoryUse,
        metric: Metric = DEFAULT_METRIC,
    ) -> MemoryUse:
        """What the search takes: every column's scores of the candidates of as many users as the cache holds.

        They lie where the parts answer; on a machine with a GPU that may be either place.
        """
        depth = DEPTH_OF_LIST * metric.k
        candidates, arrays = min(data.items, columns * depth), columns + 6
        of_a_user = 4 * candidates * (columns + 1)
        users = min(data.validation_users, max(1, cache_bytes // of_a_user))
        scoring = (
            4
            * arrays
            * min(block_rows(data.items, arrays=arrays), data.validation_users)
            * data.items
        )
        needed = users * of_a_user + max(scoring, 8 * users * candidates)
        place, advice = answering.device_name, "take a smaller cache_bytes"
        return MemoryUse(
            main=needed, device=needed if answering.device else 0, device_name=place, advice=advice
        )

    def blended(self, weights: Weights) -> list[Tensor]:
        """The blended scores of every block."""
        return [block.blended(weights) for block in self.blocks]

    def value(self, weights: Weights) -> float:
        """Return the mean value of a weighting."""
        return self.value_of(self.blended(weights))

    def value_of(self, blended: Sequence[Tensor], column: int = 0, change: float = 0.0) -> float:
        """Return the mean value of blended scores, after a change of one column's weight."""
        total = 0.0
        for block, scores in zip(self.blocks, blended, strict=True):
            changed = scores.add(block.scores[column], alpha=change) if change else scores
            total += block.sum_of(self.metric, changed)
        return total / self.user_count

    def score_alone(self) -> Weights:
        """Return the value of each column by itself."""
        return np.array([self.value(one) for one in np.eye(self.column_count)])

    def find_weights(self, alone: Weights) -> Weights:
        """Weights ≥ 0 of the columns, sum 1, by coordinate search from the best single column.

        A column's weight goes up or down by a share of the sum of weights, the shares getting smaller, as long as the
        mean value rises; columns that earn nothing go. Equal weights of what is left are taken where they do as
        well: they owe nothing to the noise of validation. Columns are tried best first, so their order does not matter.
        """
        order = np.argsort(-alone, kind="stable")
        weights = np.zeros(len(alone))
        weights[order[0]] = 1.0
        best = float(alone[order[0]])
        with bar("blend: finding weights", len(_STEPS)) as progress:
            for step in _STEPS:
                blended, rises = self.blended(weights), True
                while rises:
                    rises = False
                    for column in order:
                        up = step * float(weights.sum())
                        down = min(up, float(weights[column]))
                        # The last column cannot go.
                        for change in (up, -down) if 0 < down < weights.sum() else (up,):
                            reached = self.value_of(blended, column, change)
                            if reached > best + _LEAST_GAIN:
                                weights[column] = max(weights[column] + change, 0.0)
                                # Afresh, so that rounding does not pile up from change to change.
                                blended, best, rises = self.blended(weights), reached, True
                                break
                progress.advance(note=f"{self.metric.label} {best:.4f}")
        best = self.value(weights)
        for column in np.argsort(weights, kind="stable"):  # the lightest first
            without = np.where(np.arange(len(weights)) == column, 0.0, weights)
            if weights[column] and without.any():
                reached = self.value(without)
                if reached > best - _LEAST_GAIN:
                    weights, best = without, max(best, reached)
        weights /= weights.sum()
        equal = (weights > 0) / np.count_nonzero(weights)
        return equal if self.value(equal) >= self.value(weights) else weights


@dataclass(frozen=True)
class PartEarned:
    """What one part is worth on validation, in the metric of the fit.

    `alone` is its own, at its best power; `loss_without` is what the blend loses when the part is left out and the
    weights of the others stay.
    """

    name: str
    alone: float
    weight: float
    loss_without: float


def powers_to_try(
    model: Recommender, validation: HeldOut, powers: Sequence[float]
) -> tuple[float, ...]:
    """The powers that can make a difference: 1 alone where every item counts 1, or where the part does not mind."""
    histories = validation.history_matrix
    owners = np.repeat(np.arange(histories.shape[0]), np.diff(histories.indptr))
    weighted = np.unique(owners[histories.data != 1])
    if not len(weighted):
        return (1.0,)
    probed = csr_array(histories[weighted[:_PROBED_USERS]])
    flattest, sharpest = (
        scaled_scores(model, probed, power, "z-score") for power in (min(powers), max(powers))
    )
    return (1.0,) if len(powers) > 1 and torch.equal(flattest, sharpest) else tuple(powers)
