"""Many non-negative elastic nets over one Gram matrix: coordinate descent on working sets, a block of them at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from loca.memory import plan_memory
from loca.models.devices import float32_products, free_bytes
from loca.progress import bar, say

# Numbers of a block of corners or of products: enough that steps take longer than their calls, in little memory.
BLOCK_NUMBERS = {"cpu": 2**23, "cuda": 2**27}
# Numbers of a step for all problems of a block: so few are done by one thread, for several would mostly wait.
_STEP_NUMBERS = {"cpu": 2**14, "cuda": 2**20}
_FIRST_CANDIDATES = 32
_SWEEPS_AT_ONCE = 4
_MOST_ROUNDS = 100
# Where more of the Gram matrix is filled, a dense product is the faster one on a CPU.
_DENSE_SHARE = 0.1
# Of one candidate: its item, target, linear term, weight and product, and what sorts and picks it.
_BYTES_PER_CANDIDATE = 80
# Far below every linear term: a coordinate that only fills a block up stays at 0.
_NEVER = -1e30


@dataclass(frozen=True)
class Penalties:
    """What holds weights down, and how exactly: l1 |w| + l2/2 w², solved within `tolerance`, in `iterations` sweeps."""

    l1: float
    l2: float
    tolerance: float
    iterations: int


def solve_elastic_nets(gram: csr_array, linear: csr_array, penalties: Penalties, device: torch.device) -> csr_array:
    """Weights, items × items, whose column j minimises ½wᵀGw − b_jᵀw + l1 Σw + l2/2 Σw² with w ≥ 0 and w_j = 0.

    `gram`, G, is symmetric and has no entry below 0; b_j is row j of `linear`. Then (Gw)_i ≥ 0, so that only items
    with b_ji > l1 can have a weight: the candidates. Each round takes those with a weight and those that violate the
    optimality conditions most, solves for them alone, and looks at all candidates again. Column j is done when no
    condition of it is violated by more than `tolerance` · max_i b_ji: |gradient_i| where w_i > 0, and how far the
    gradient lies below 0 elsewhere.
    """
    state = _State.of(linear, penalties)
    square = _Square.of(gram, device, _BYTES_PER_CANDIDATE * len(state.items))
    state = state.on(device)
    given_up = torch.zeros(len(state.counts), dtype=torch.bool, device=device)
    asked = _FIRST_CANDIDATES
    for round_number in range(_MOST_ROUNDS):
        chosen, is_open = state.working_sets(asked, penalties.l2, given_up)
        if not len(chosen):
            break
        with bar(f"elastic nets: round {round_number + 1}, columns", int(is_open.sum())) as progress:
            for block in _blocks(state, chosen):
                given_up[block.targets] = block.solve(state, square, penalties)
                progress.advance(len(block.targets))
        state.multiply(square, is_open)
        asked *= 4
    unsolved = int(state.open_targets(penalties.l2).sum())
    if unsolved:
        say(f"elastic nets: {unsolved:,} of {len(state.counts):,} columns are not within tolerance; allow more sweeps")
    return state.as_weights()


class _Square:
    """The Gram matrix for reading single numbers on a device, dense where there is room, and for products."""

    def __init__(self, gram: csr_array, device: torch.device, is_dense: bool) -> None:
        self.size: int = gram.shape[0]
        self.device = device
        self.sparse = gram.astype(np.float32)
        self.dense = torch.from_numpy(self.sparse.toarray()).to(device) if is_dense else None
        self.multiplies_densely = is_dense and (device.type == "cuda" or gram.nnz > _DENSE_SHARE * self.size**2)
        self.keys = torch.zeros(0, dtype=torch.int64)
        if not is_dense:
            self.sparse.sort_indices()
            rows = np.repeat(np.arange(self.size, dtype=np.int64), np.diff(self.sparse.indptr))
            self.keys = torch.from_numpy(rows * self.size + self.sparse.indices).to(device)
        self.values = torch.from_numpy(self.sparse.data if not is_dense else self.sparse.data[:0]).to(device)

    @classmethod
    def of(cls, gram: csr_array, device: torch.device, other_bytes: int) -> Self:
        """Dense where that leaves half of the free memory, else as sorted keys, which take longer to read."""
        dense_bytes = 4 * gram.shape[0] ** 2
        is_dense = dense_bytes + other_bytes < free_bytes(device) // 2
        needed = (dense_bytes if is_dense else 16 * gram.nnz) + other_bytes
        if device.type == "cpu":
            plan_memory(f"elastic nets for {gram.shape[0]:,} items", needed, "filter rare items or raise l1")
        return cls(gram, device, is_dense)

    def corners(self, items: Tensor) -> Tensor:
        """The rows and columns of the items of each problem, (problems, size, size) for (problems, size) items."""
        wanted = (items * self.size)[:, :, None] + items[:, None, :]
        if self.dense is not None:
            return self.dense.view(-1)[wanted]
        found = torch.searchsorted(self.keys, wanted).clamp_(max=len(self.keys) - 1)
        return torch.where(self.keys[found] == wanted, self.values[found], 0.0)

    def times(self, weights: csr_array) -> Tensor:
        """Rows of weights times the matrix, (rows, items)."""
        if self.dense is None or not self.multiplies_densely:
            return torch.from_numpy((weights @ self.sparse).toarray()).to(self.device)
        with float32_products():
            return torch.from_numpy(weights.toarray()).to(self.device) @ self.dense


@dataclass(frozen=True, eq=False)
class _State:
    """All candidates of all columns, one column after the other, and what is known of each so far."""

    counts: Tensor  # (targets,): candidates of each
    starts: Tensor  # (targets,): the place of its first
    goals: Tensor  # (targets,): the largest violation allowed
    items: Tensor  # (candidates,)
    targets: Tensor  # (candidates,)
    linear: Tensor  # (candidates,): b − l1
    weights: Tensor  # (candidates,): w
    products: Tensor  # (candidates,): (Gw)_i

    @classmethod
    def of(cls, linear: csr_array, penalties: Penalties) -> Self:
        size = linear.shape[0]
        targets = np.repeat(np.arange(size, dtype=np.int64), np.diff(linear.indptr))
        kept = (linear.data > penalties.l1) & (targets != linear.indices)
        targets, terms = targets[kept], linear.data[kept].astype(np.float32)
        counts = np.bincount(targets, minlength=size)
        largest = np.zeros(size, np.float32)
        np.maximum.at(largest, targets, terms)
        return cls(
            torch.from_numpy(counts),
            torch.from_numpy(np.cumsum(counts) - counts),
            torch.from_numpy(largest * np.float32(penalties.tolerance)),
            torch.from_numpy(linear.indices[kept].astype(np.int64)),
            torch.from_numpy(targets),
            torch.from_numpy(terms - np.float32(penalties.l1)),
            torch.zeros(len(terms)),
            torch.zeros(len(terms)),
        )

    def on(self, device: torch.device) -> Self:
        return type(self)(*(getattr(self, name).to(device) for name in self.__dataclass_fields__))

    def violations(self, l2: float) -> Tensor:
        """By how much each candidate violates the optimality conditions."""
        return _violations(self.linear - self.products - l2 * self.weights, self.weights)

    def open_targets(self, l2: float) -> Tensor:
        """Which columns still violate their conditions by more than they may."""
        worst = torch.zeros_like(self.goals).scatter_reduce_(0, self.targets, self.violations(l2), "amax")
        return worst > self.goals

    def working_sets(self, asked: int, l2: float, given_up: Tensor) -> tuple[Tensor, Tensor]:
        """The places of the candidates to solve for next, `asked` new ones a column at most, and the open columns."""
        violations = self.violations(l2)
        is_open = self.open_targets(l2) & ~given_up
        of_open = is_open[self.targets]
        new = ((self.weights == 0) & of_open & (violations > self.goals[self.targets])).nonzero()[:, 0]
        new = new[violations[new].argsort(descending=True, stable=True)]
        new = new[self.targets[new].argsort(stable=True)]
        of_new = self.targets[new]
        ends = torch.bincount(of_new, minlength=len(self.counts)).cumsum(0)
        starts = torch.cat([ends.new_zeros(1), ends[:-1]])
        rank = torch.arange(len(new), device=new.device) - starts[of_new]
        held = ((self.weights > 0) & of_open).nonzero()[:, 0]
        return torch.cat([held, new[rank < asked]]).sort().values, is_open

    def multiply(self, square: _Square, is_open: Tensor) -> None:
        """Gw anew for all candidates of the open columns."""
        rows = csr_array(self.as_weights().T.tocsr())  # (targets, items)
        targets = is_open.nonzero()[:, 0]
        piece = max(1, BLOCK_NUMBERS[targets.device.type] // square.size)
        for start in range(0, len(targets), piece):
            some = targets[start : start + piece]
            products = square.times(csr_array(rows[some.cpu().numpy()]))  # (columns, items)
            counts = self.counts[some]
            owners = torch.repeat_interleave(counts)  # (candidates of these columns,)
            firsts = self.starts[some] - (counts.cumsum(0) - counts)
            places = torch.arange(len(owners), device=owners.device) + firsts[owners]
            self.products[places] = products[owners, self.items[places]]

    def as_weights(self) -> csr_array:
        """The weights found, items × items, column j for target j."""
        kept = self.weights > 0
        places = (self.items[kept].cpu().numpy(), self.targets[kept].cpu().numpy())
        size = len(self.counts)
        found = csr_array((self.weights[kept].cpu().numpy(), places), shape=(size, size))
        found.sort_indices()
        return found


@dataclass(frozen=True, eq=False)
class _Block:
    """Working sets of similar size, filled up to the largest: the problems of a block are solved side by side."""

    targets: Tensor  # (problems,)
    places: Tensor  # (problems, size): of the candidates among all
    is_real: Tensor  # (problems, size): False where a working set is only filled up

    def solve(self, state: _State, square: _Square, penalties: Penalties) -> Tensor:
        """Moves the weights of the working sets to their optimum; whether the sweeps did not suffice for it."""
        corners = square.corners(state.items[self.places])
        corners.diagonal(dim1=1, dim2=2).add_(penalties.l2)
        weights = torch.where(self.is_real, state.weights[self.places], 0.0)
        slopes = state.linear[self.places] - state.products[self.places] - penalties.l2 * weights
        slopes = torch.where(self.is_real, slopes, _NEVER)
        weights, slopes = weights.T.contiguous(), slopes.T.contiguous()  # (size, problems)
        # Half of what is allowed: the rest is for the rounding of products.
        failed = _descend(corners, slopes, weights, state.goals[self.targets] / 2, penalties.iterations)
        state.weights[self.places[self.is_real]] = weights.T[self.is_real]
        return failed


def _blocks(state: _State, chosen: Tensor) -> Iterator[_Block]:
    """The working sets in blocks, the largest first, so that little is filled up."""
    counts = torch.bincount(state.targets[chosen], minlength=len(state.counts))
    starts = counts.cumsum(0) - counts
    order = counts.argsort(descending=True, stable=True)
    sizes = counts[order].cpu().numpy()
    order = order[: int((sizes > 0).sum())]
    kind = chosen.device.type
    start = 0
    while start < len(order):
        size = int(sizes[start])
        stop = start + max(1, min(BLOCK_NUMBERS[kind] // size**2, _STEP_NUMBERS[kind] // size))
        targets = order[start:stop]
        place = torch.arange(size, device=chosen.device)
        is_real = place < counts[targets, None]
        yield _Block(targets, chosen[starts[targets, None] + place * is_real], is_real)
        start = stop


def _violations(slopes: Tensor, weights: Tensor) -> Tensor:
    """How far the slopes, b − l1 − (G + l2)w, are from 0 where there is a weight, and above 0 elsewhere."""
    return torch.where(weights > 0, slopes.abs(), slopes.clamp(min=0))


def _descend(corners: Tensor, slopes: Tensor, weights: Tensor, goals: Tensor, sweeps: int) -> Tensor:
    """Coordinate descent for all problems of a block at once, in place; which of them did not reach their goal.

    `corners`, (problems, size, size), hold G + l2, `slopes`, (size, problems), the negative gradients. Sweeps find out
    which weights are above 0; a leap between them finds the optimum over those, for which sweeps alone take long.
    """
    rows = corners.permute(1, 2, 0).contiguous()  # (size, size, problems): what a step reads lies together
    shares = rows.diagonal().T.reciprocal()  # (size, problems)
    steps = list(zip(rows.unbind(0), slopes.unbind(0), weights.unbind(0), shares.unbind(0), strict=True))
    while True:
        for _ in range(min(_SWEEPS_AT_ONCE, sweeps)):
            for row, slope, weight, share in steps:
                best = torch.addcmul(weight, slope, share).clamp_(min=0)
                slopes.addcmul_(row, weight - best)
                weight.copy_(best)
        sweeps -= _SWEEPS_AT_ONCE
        is_open = _violations(slopes, weights).amax(0) > goals
        if is_open.any():
            _leap(corners, slopes, weights)
            is_open = _violations(slopes, weights).amax(0) > goals
        left = int(is_open.sum())
        if not left or sweeps <= 0:
            return is_open
        if left <= len(goals) // 2:
            some = is_open.nonzero()[:, 0]
            fewer, lower = weights[:, some], slopes[:, some]
            is_open[some] = _descend(corners[some], lower, fewer, goals[some], sweeps)
            weights[:, some] = fewer
            return is_open


def _leap(corners: Tensor, slopes: Tensor, weights: Tensor) -> None:
    """Goes from the weights towards the optimum over those above 0, cut off at 0, as far as the objective falls."""
    held = (weights > 0).T
    passive = torch.where(held[:, :, None] & held[:, None, :], corners, 0.0)
    passive.diagonal(dim1=1, dim2=2).masked_fill_(~held, 1.0)
    factors, problems = torch.linalg.cholesky_ex(passive)
    wanted = torch.cholesky_solve(torch.where(held, slopes.T, 0.0)[:, :, None], factors)[:, :, 0]
    # Without l2 the weights need not be determined; then the sweeps go on alone.
    usable = (problems == 0) & wanted.isfinite().all(1)
    step = torch.where(usable[:, None], (weights.T + wanted).clamp_(min=0) - weights.T, 0.0)
    moved = torch.bmm(corners, step[:, :, None])[:, :, 0]
    gain, bend = (slopes.T * step).sum(1), (step * moved).sum(1)
    length = torch.where(bend > 0, gain / bend, 0.0).clamp_(0, 1)[:, None]
    # A full step ends at exact zeros; the sum of weight and step may miss them by rounding.
    weights.add_((length * step).T).clamp_(min=0)
    slopes.sub_((length * moved).T)
