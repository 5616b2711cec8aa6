"""NextEASE: EASE's closed form from the decayed prefixes of a history to the items that follow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor

from loca.errors import ConfigError, DataError
from loca.memory import DataSize, MemoryUse, plan_memory
from loca.models.devices import choose_device, device_param, float32_products, free_bytes
from loca.models.ease_solver import (
    LARGEST_ERROR,
    EaseSystem,
    WeightRows,
    dense_weights_memory,
    fill_gram,
    inverse_error,
    invert_from_factor,
)
from loca.models.recommender import (
    Recommender,
    Scores,
    TrainingData,
    UserWeights,
    check_histories,
    check_user_weights,
    fitted,
    learned,
    not_negative,
    positive,
    share,
    share_below_1,
    whole,
)
from loca.progress import bar, say

Table = npt.NDArray[np.float64]
# Pairs that would add less than this, for a user of weight 1, are left out.
_LEAST_WEIGHT = 1e-4
# Sums are made in whole multiples of this, which 64 bits add without rounding: any order gives the same bits.
_GRAIN = 2.0**-24
# Of a block of rows of the sums: what a processor's cache holds, and what keeps a GPU busy. Pieces of so few places
# are done by one thread; several threads would mostly wait for each other, ten times as long where others compute too.
_BLOCK_NUMBERS = {"cpu": 2**20, "cuda": 2**25}
_BLOCK_PLACES = {"cpu": 30_000, "cuda": 2**22}
# Of one stored entry: item, weights, entries and moments that follow, and what sorts and picks them.
_BYTES_PER_ENTRY = 96


@dataclass(frozen=True)
class LagWeights:
    """What a pair of entries of one history counts, by its lag: the place b of the newer item less that of the older.

    Prefix t of places 0 … n − 1 is x_t = Σ_{place(a) ≤ t} decay^{t−place(a)} e(a), for t up to n − 2, and y_t is the
    sum of e over the items of the `next_count` places after it, or over all. Σ_t x_tᵀx_t has decay^lag ·
    Σ_{s < n−1−b} decay^{2s} at the pair's items, and Σ_t x_tᵀy_t has the sum of decay^s over the s below the lag, of
    which only the last `next_count` are taken. Items of one moment share one place: their lag is 0, so that they count
    in the first sum alone.
    """

    decays: Table  # (lags,): decay^lag
    tails: Table  # (longest history,): the other factor, by the number of prefixes from place b on
    follows: Table  # (lags,): what the second sum has

    @classmethod
    def of(cls, longest: int, decay: float, next_count: int | None) -> Self:
        """The weights for histories of up to `longest` places; lags that hardly count are left out at the end."""
        powers = np.power(float(decay), np.arange(longest, dtype=np.float64))
        tails = np.concatenate([[0.0], np.cumsum(powers**2)])[:longest]
        sums = np.concatenate([[0.0], np.cumsum(powers)])[:longest]
        lags = np.arange(longest)
        follows = sums if next_count is None else sums - sums[np.maximum(lags - next_count, 0)]
        return cls(_without_end(powers, tails[-1]), tails, _without_end(follows, 1.0))

    @property
    def count(self) -> int:
        """One more than the longest lag that counts in either sum, at least 1."""
        return max(len(self.decays), len(self.follows), 1)

    def table(self) -> Table:
        """Decays and follows for all lags below `count`, (2, lags)."""
        return np.stack([np.pad(one, (0, self.count - len(one))) for one in (self.decays, self.follows)])


def _without_end(by_lag: Table, times: float) -> Table:
    counting = np.flatnonzero(by_lag * times >= _LEAST_WEIGHT)
    return by_lag[: counting[-1] + 1 if len(counting) else 0]


@dataclass(frozen=True, eq=False)
class Places:
    """The stored entries of all histories on a device, one history after the other: what each lends to its pairs."""

    items: Tensor  # (entries,)
    older: Tensor  # (entries,): user's weight times value
    newer: Tensor | None  # (entries,): value; None where all are 1
    later: Tensor  # (entries,): how many places follow in the same history
    reach: Tensor | None  # (entries,): how many entries follow at lags that count; None where each is its own place

    @classmethod
    def of(
        cls,
        matrix: csr_array,
        user_weights: UserWeights,
        device: torch.device,
        moments: csr_array | None = None,
        lags: int = 1,
    ) -> Self:
        """The entries of the users with a weight; with `moments` those of one moment share one place."""
        support = np.flatnonzero(user_weights)
        everybody = len(support) == matrix.shape[0]
        rows = matrix if everybody else matrix[support]
        counts = np.diff(rows.indptr).astype(np.int64)
        values = rows.data.astype(np.float64)
        older = values * np.repeat(user_weights[support].astype(np.float64), counts)
        newer = torch.from_numpy(values).to(device) if (values != 1).any() else None
        later, reach = np.repeat(np.cumsum(counts), counts) - 1 - np.arange(len(values)), None
        if moments is not None:
            later, reach = _after(moments if everybody else moments[support], lags)
        return cls(
            torch.from_numpy(rows.indices.astype(np.int64)).to(device),
            torch.from_numpy(older).to(device),
            newer,
            torch.from_numpy(later).to(device),
            None if reach is None else torch.from_numpy(reach).to(device),
        )

    def lent_by(self, newer: Tensor, older: Tensor) -> Tensor:
        """What the pairs of such places count by their users and values."""
        return older if self.newer is None else older * self.newer.index_select(0, newer)


def _after(moments: csr_array, lags: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """For each entry how many moments follow it in its history, and how many entries at lags below `lags`.

    The entries of a history's last moment reach nothing: no prefix ends there.
    """
    own, counts = moments.data.astype(np.int64), np.diff(moments.indptr)
    some = counts > 0
    later = np.repeat(own[moments.indptr[1:][some] - 1], counts[some]) - own  # oldest first: the newest stands last
    begins = np.ones(len(own), dtype=bool)
    begins[1:] = own[1:] != own[:-1]
    begins[moments.indptr[:-1][some]] = True
    through = np.cumsum(begins) - 1  # all moments of all histories, one after the other
    ends = np.append(np.flatnonzero(begins)[1:], len(own))
    reach = ends[through + np.minimum(lags - 1, later)] - 1 - np.arange(len(own))
    return later, np.where(later > 0, reach, 0)


def count_places(matrix: csr_array, moments: csr_array | None) -> npt.NDArray[np.int64]:
    """How many places each history of a training matrix has: items, or moments where those are given."""
    lengths = np.diff(matrix.indptr).astype(np.int64)
    if moments is None:
        return lengths
    return np.where(lengths > 0, moments.data[np.maximum(moments.indptr[1:] - 1, 0)] + 1, 0).astype(np.int64)


def add_prefix_sums(
    gram: Tensor,
    cross: Tensor,
    matrix: csr_array,
    user_weights: UserWeights,
    decay: float,
    next_count: int | None,
    moments: csr_array | None = None,
) -> None:
    """Adds Σ_u w_u Σ_t x_tᵀx_t to `gram` and Σ_u w_u Σ_t x_tᵀy_t to `cross`, both (items, items), in place.

    The stored order of a row of `matrix` is its history's, oldest first, and its values are the weights of its
    entries. `moments` numbers the moment of every entry, one place each; None: every entry is a place. A history of
    one place adds nothing.
    """
    weights = LagWeights.of(int(count_places(matrix, moments).max()), decay, next_count)
    places = Places.of(matrix, user_weights, gram.device, moments, weights.count)
    tails = torch.from_numpy(weights.tails).to(gram.device)
    own = places.older * tails.index_select(0, places.later)
    own = own if places.newer is None else own * places.newer
    diagonal = torch.zeros(len(gram), dtype=torch.float64, device=gram.device)
    gram.diagonal().add_(diagonal.index_add_(0, places.items, _on_grid(own)).mul_(_GRAIN))
    blocks = list(_item_blocks(places.items, len(gram)))
    with bar("NextEASE: pairs of places", len(blocks)) as progress:
        for start, stop, members in blocks:
            before, follow = _block_sums(places, weights, tails, start, stop, members, len(gram))
            gram[start:stop] += before
            gram[:, start:stop] += before.T
            cross[start:stop] += follow
            progress.advance()


def bytes_to_sum(items: int, stored: int, device: torch.device) -> int:
    """What the sums take on a device beside the arrays that they are added to."""
    block = min(max(_BLOCK_NUMBERS[device.type], items), items**2)
    return _BYTES_PER_ENTRY * stored + 24 * block  # two sums in 64 bits, and one of them on its way into its array


def _item_blocks(items: Tensor, item_count: int) -> Iterator[tuple[int, int, Tensor]]:
    """Items from start to stop and all places of those, for so few items and places that their sums stay in reach."""
    order = torch.argsort(items, stable=True)
    ends = torch.bincount(items, minlength=item_count).cumsum(0).cpu().numpy()
    most_items = max(1, _BLOCK_NUMBERS[items.device.type] // item_count)
    most_places = _BLOCK_PLACES[items.device.type]
    start = first = 0
    while start < item_count:
        within = int(np.searchsorted(ends, first + most_places, side="right"))
        stop = min(max(within, start + 1), start + most_items, item_count)
        yield start, stop, order[first : int(ends[stop - 1])]
        start, first = stop, int(ends[stop - 1])


def _block_sums(
    places: Places, weights: LagWeights, tails: Tensor, start: int, stop: int, members: Tensor, item_count: int
) -> tuple[Tensor, Tensor]:
    """Both sums over the pairs whose older item is one from start to stop, (stop − start, items) in 64 bits."""
    before, follow = torch.zeros(2, (stop - start) * item_count, dtype=torch.float64, device=members.device)
    by_lag = torch.from_numpy(weights.table()).to(members.device)
    # Those with the most entries after them come first: the ones that reach an offset are then the first so many.
    # Beyond the last lag it is no matter, and what keeps its order is read and added to neighbouring memory.
    reached = places.later[members].clamp_(max=weights.count - 1) if places.reach is None else places.reach[members]
    reach, order = reached.sort(descending=True, stable=True)
    members = members[order]
    rows, older, later = (places.items[members] - start) * item_count, places.older[members], places.later[members]
    offsets = torch.arange(1, 1 + int(reach[0]) if len(reach) else 1, device=reach.device)
    for offset, count in enumerate(torch.searchsorted(-reach, -offsets, right=True).tolist(), start=1):
        newer = members[:count] + offset
        at = places.items.index_select(0, newer).add_(rows[:count])
        lent = places.lent_by(newer, older[:count])
        if places.reach is None:
            beyond, decays, follows = later[:count] - offset, _at(weights.decays, offset), _at(weights.follows, offset)
        else:
            beyond = places.later.index_select(0, newer)
            decays, follows = by_lag.index_select(1, later[:count] - beyond)
        if decays is not None:
            before.index_add_(0, at, _on_grid(tails.index_select(0, beyond).mul_(lent).mul_(decays)))
        if follows is not None:
            follow.index_add_(0, at, _on_grid(lent * follows))
    shape = (stop - start, item_count)
    return before.mul_(_GRAIN).view(shape), follow.mul_(_GRAIN).view(shape)


def _at(by_lag: Table, lag: int) -> float | None:
    """What a table has at a lag; None beyond its end."""
    return float(by_lag[lag]) if lag < len(by_lag) else None


def _on_grid(values: Tensor) -> Tensor:
    """The nearest whole numbers of grains, in place."""
    return values.div_(_GRAIN).round_()


_BLOCK = 1024  # columns that are solved at once


@dataclass(kw_only=True, eq=False, repr=False)
class NextEASE(Recommender):
    """Scores = history · B, where B carries every prefix of a history to what comes next in it.

    B minimises Σ_u w_u (Σ_t ‖y_t − x_t B‖² + ordinary · ‖x_u − x_u B‖²) + ‖B‖² with a zero diagonal, over the users'
    weights w. Prefix x_t holds the first t + 1 items of a history, the newest with weight 1, the one before with
    `prefix_decay`, then its square, …; y_t the `next_count` items after them (None: all that follow). Items of one
    moment (equal times) are one place: a prefix has all or none of them, and they do not follow each other. `ordinary`
    is the share of EASE's own aim, the whole history x_u from itself; 0 learns from the order alone. The squares of
    the weights of item i count l2 + p / (1 − p) · (what i has on the diagonal of the Gram matrix), p being `denoising`.
    """

    is_linear = True
    uses_order = True

    l2: float = positive(300.0)
    next_count: int | None = whole(10, optional=True)
    prefix_decay: float = share(0.8)
    ordinary: float = not_negative(1.0)
    denoising: float = share_below_1(0.5)
    device: str = device_param()
    weights_: npt.NDArray[np.float32] | None = learned("items", "items", finite=False)

    def _fit(self, data: TrainingData) -> None:
        """Solves once. A user with one item, or with items of one moment, counts through `ordinary` alone."""
        matrix = data.matrix
        items, wanted = matrix.shape[1], choose_device(self.device)
        device, needed = plan_solving_next(items, matrix.nnz, wanted, free_bytes(wanted))
        in_main_memory = needed if device.type == "cpu" else 4 * items**2
        plan_memory(f"NextEASE for {items:,} items", in_main_memory, "filter rare items")
        self.weights_ = solve_next(self, matrix, data.user_weights, device, data.moments).cpu().numpy()

    def memory_bytes(self, data: DataSize) -> MemoryUse:
        """The equations, on the CPU where the device has too little memory; the weights lie in main memory."""
        wanted = choose_device(self.device)
        return dense_weights_memory(data, *plan_solving_next(data.items, data.entries, wanted, free_bytes(wanted)))

    def score(self, histories: csr_array) -> Scores:
        """Weighted history times item-to-item weights."""
        rows = check_histories(histories, self.count_items())
        return np.asarray(rows @ fitted(self.weights_, self), dtype=np.float32)

    def solve_each(
        self,
        matrix: csr_array,
        user_weights: Sequence[UserWeights],
        device: torch.device,
        moments: csr_array | None = None,
    ) -> Iterator[WeightRows]:
        """What a fit learns with each of the user weights, in order, one after the other."""
        for weights in user_weights:
            yield solve_next(self, matrix, weights, device, moments).__getitem__


def bytes_to_solve_next(items: int, stored: int, device: torch.device) -> int:
    """What a solution takes in 32 bits: Gram matrix, its factor, the other side, and blocks of them."""
    return 4 * (3 * items**2 + 4 * min(_BLOCK, items) * items) + bytes_to_sum(items, stored, device)


def plan_solving_next(items: int, stored: int, device: torch.device, free: int) -> tuple[torch.device, int]:
    """Where the equations are solved, the CPU where the device has too little memory, and what that takes there."""
    needed = bytes_to_solve_next(items, stored, device)
    if needed <= free:
        return device, needed
    return torch.device("cpu"), bytes_to_solve_next(items, stored, torch.device("cpu"))


def solve_next(
    model: NextEASE,
    matrix: csr_array,
    user_weights: UserWeights,
    device: torch.device,
    moments: csr_array | None = None,
) -> Tensor:
    """B as a dense (items, items) array in 32 bits on the device: what `model.fit` finds with those weights."""
    weights = check_user_weights(user_weights, matrix.shape[0])
    if model.ordinary == 0 and count_places(matrix, moments)[weights > 0].max() < 2:
        raise DataError("NextEASE: no user has an item that follows another; take ordinary above 0")
    solution = _try_to_solve(model, matrix, moments, weights, device, torch.float32)
    if solution is None:
        say("NextEASE: 32 bits do not hold these equations; once more in 64 bits")
        if device.type == "cpu":
            plan_memory(f"NextEASE for {matrix.shape[1]:,} items", 24 * matrix.shape[1] ** 2, "filter rare items")
        solution = _try_to_solve(model, matrix, moments, weights, device, torch.float64)
    if solution is None:
        raise ConfigError(
            f"l2: {model.l2:g} is too small for these data, the equations have no solution; take a larger"
        )
    return solution.to(torch.float32)


def _try_to_solve(
    model: NextEASE,
    matrix: csr_array,
    moments: csr_array | None,
    weights: npt.NDArray[np.float32],
    device: torch.device,
    kind: torch.dtype,
) -> Tensor | None:
    """B from the inverse of the regularised Gram matrix, in place of the equations' other side; None where that fails.

    With that inverse P and the other side R, B = PR − P · diag(c), where c_j = (PR)_jj / P_jj makes the diagonal 0.
    """
    gram, cross = _equations(model, matrix, moments, weights, device, kind)
    ridges = model.l2 + model.denoising / (1 - model.denoising) * gram.diagonal()
    gram.diagonal().add_(ridges)
    regularised = gram.diagonal().clone()
    inverse, problem = torch.linalg.cholesky_ex(gram)
    del gram
    if int(problem):
        return None
    with float32_products():
        invert_from_factor(inverse)
        if inverse_error(inverse, regularised, ridges, max(matrix.shape)) > LARGEST_ERROR:
            return None
        diagonal = inverse.diagonal()
        for start in range(0, len(cross), _BLOCK):
            block = slice(start, min(start + _BLOCK, len(cross)))
            solved = inverse @ cross[:, block]  # (items, block)
            own = solved[block].diagonal()
            solved -= inverse[:, block] * (own / diagonal[block])
            cross[:, block] = solved
    return cross.fill_diagonal_(0)


def _equations(
    model: NextEASE,
    matrix: csr_array,
    moments: csr_array | None,
    weights: npt.NDArray[np.float32],
    device: torch.device,
    kind: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """The Gram matrix without regularisation, and the other side of the equations."""
    gram = torch.zeros(matrix.shape[1], matrix.shape[1], dtype=kind, device=device)
    if model.ordinary:
        fill_gram(EaseSystem.of(matrix, weights, model.l2).columns, gram)
        gram *= model.ordinary
    cross = gram.clone()
    add_prefix_sums(gram, cross, matrix, weights, model.prefix_decay, model.next_count, moments)
    return gram, cross
