"""The validation scores that a search for weights reads again and again: each user's best candidates, kept once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor

from loca.data.held_out import HeldOut
from loca.memory import readable_bytes
from loca.progress import bar, say
from loca.random_streams import stream
from loca.ranking.top_n import block_rows

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
