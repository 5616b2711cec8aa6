"""NextEASE: EASE's closed form from the decayed prefixes of a history to the items that follow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.deferred import torch
from loca.errors import DataError
from loca.memory import DataSize, MemoryUse, plan_memory
from loca.models import ease_solver
from loca.models.devices import choose_device, float32_products, free_bytes
from loca.models.ease_solver import LARGEST_ERROR, WeightRows
from loca.models.params import not_negative, positive, share, share_below_1, whole
from loca.models.recommender import (
    ItemToItemModel,
    Scores,
    SimilarityKind,
    TrainingData,
    UserWeights,
    check_user_weights,
)
from loca.persistence.learned import learned
from loca.progress import bar, say

if TYPE_CHECKING:
    from torch import Tensor

_BLOCK = 1024  # columns that are solved at once
# Pairs that would add less than this, for a user of weight 1, are left out.
_LEAST_WEIGHT = 1e-4
# Sums are made in whole multiples of this, which 64 bits add without rounding: any order gives the same bits.
_GRAIN = 2.0**-24
# Of a block of rows of the sums, numbers and places: what a processor's cache holds, and what keeps a GPU busy. Pieces
# of so few places are done by one thread; several threads would mostly wait for each other, ten times as long where
# others compute too.
_BLOCKS = {"cpu": (2**20, 30_000), "cuda": (2**25, 2**22)}
# Of one stored entry: item, weights, entries and moments that follow, and what sorts and picks them.
_BYTES_PER_ENTRY = 96


@dataclass(kw_only=True, eq=False, repr=False)
class NextEASE(ItemToItemModel):
    """Score items by a linear model that carries every prefix of a history to what comes next: scores = history · B.

    B minimises Σ_u w_u (Σ_t ‖y_t − x_t B‖² + ordinary · ‖x_u − x_u B‖²) + ‖B‖² with a zero diagonal, over the users'
    weights w. Prefix x_t holds the first t + 1 items of a history, the newest with weight 1, the one before with
    `prefix_decay`, then its square, …; y_t holds the `next_count` items after them. Items of one moment (equal times)
    are one place: a prefix has all or none of them, and they do not follow each other.

    Parameters
    ----------
    l2 : float, default 300.0
        Regularisation, above 0: the squares of the weights of item i count l2, and more by `denoising`.
    next_count : int or None, default 10
        Places after a prefix that it predicts; None takes all that follow.
    prefix_decay : float, default 0.8
        Weight of a place in a prefix relative to the place after it, from 0 to 1.
    ordinary : float, default 1.0
        The share of EASE's own aim, the whole history x_u from itself; 0 learns from the order alone.
    denoising : float, default 0.5
        The probability p, below 1, with which each item is expected to be missing: the regularisation of item i grows
        by p / (1 − p) · (what i has on the diagonal of the Gram matrix).

    Examples
    --------
    The stored order of a row is the order of the history: item 0 is followed by 1 and by 2.

    >>> import numpy as np
    >>> from scipy.sparse import csr_array
    >>> rows = csr_array((np.ones(9), [0, 1, 2, 0, 1, 2, 2, 0, 1], [0, 3, 6, 9]), shape=(3, 3))
    >>> data = loca.Interactions.from_matrix(rows)
    >>> model = loca.NextEASE(l2=1, next_count=1, ordinary=0.0, denoising=0.0).fit(data)
    >>> items, scores = loca.recommend(model, csr_array([[1, 0, 0], [0, 1, 0]]), n=1)
    >>> items.tolist()
    [[1], [2]]
    """

    is_linear = True
    uses_order = True
    similarity_kind: ClassVar[SimilarityKind] = "directed"

    l2: float = positive(300.0)
    next_count: int | None = whole(10, optional=True)
    prefix_decay: float = share(0.8)
    ordinary: float = not_negative(1.0)
    denoising: float = share_below_1(0.5)
    weights_: npt.NDArray[np.float32] = learned("items", "items", finite=False)

    def _fit(self, data: TrainingData) -> None:
        """Solve once. A user with one item, or with items of one moment, counts through `ordinary` alone."""
        items, wanted = data.matrix.shape[1], choose_device(data.device)
        device, needed = plan_solving_next(items, data.matrix.nnz, wanted, free_bytes(wanted))
        in_main_memory = needed if device.type == "cpu" else 4 * items**2
        plan_memory(f"NextEASE for {items:,} items", in_main_memory, "filter rare items")
        self.weights_ = (
            self.solve(data.matrix, data.user_weights, device, data.moments).cpu().numpy()
        )

    def memory_bytes(self, data: DataSize) -> MemoryUse:
        """The equations, on the CPU where the device has too little memory; the weights lie in main memory."""
        wanted = choose_device(data.device)
        return ease_solver.dense_weights_memory(
            data, *plan_solving_next(data.items, data.entries, wanted, free_bytes(wanted))
        )

    def solve_each(
        self,
        matrix: csr_array,
        user_weights: Sequence[UserWeights],
        device: torch.device,
        moments: csr_array | None,
    ) -> Iterator[WeightRows]:
        """Learn once with each of several user weights, one after the other.

        Parameters
        ----------
        matrix : csr_array
            The training matrix, users × items.
        user_weights : sequence of arrays
            Each with one weight ≥ 0 per user.
        device : torch.device
            Where the equations are solved.
        moments : csr_array or None
            The moment of every entry of `matrix`, of the same stored places; None where each is one of its own.

        Yields
        ------
        WeightRows
            What a fit learns with each of the user weights, in order: rows of its items × items weights on request.
        """
        for weights in user_weights:
            yield self.solve(matrix, weights, device, moments).__getitem__

    def bytes_to_solve(self, size: DataSize, device: torch.device) -> ease_solver.SolvingBytes:
        """Estimate what `solve_each` takes on a device.

        Parameters
        ----------
        size : DataSize
            Items and entries of the training data.
        device : torch.device
            Where the equations are solved.

        Returns
        -------
        SolvingBytes
        """
        needed = bytes_to_solve_next(size.items, size.entries, device)
        return ease_solver.SolvingBytes(shared=0, each=needed)

    def solve(
        self,
        matrix: csr_array,
        user_weights: UserWeights,
        device: torch.device,
        moments: csr_array | None,
    ) -> Tensor:
        """Find the weights B that a fit finds with those user weights.

        Parameters
        ----------
        matrix : csr_array
            The training matrix, users × items; the stored order of a row is the order of the history.
        user_weights : array
            One weight ≥ 0 per user.
        device : torch.device
            Where the equations are solved.
        moments : csr_array or None
            The moment of every entry of `matrix`, of the same stored places; None where each is one of its own.

        Returns
        -------
        Tensor
            Items × items, dense, in 32 bits, on the device.
        """
        weights = check_user_weights(user_weights, matrix.shape[0])
        if self.ordinary == 0 and count_places(matrix, moments)[weights > 0].max() < 2:
            raise DataError(
                "NextEASE: no user has an item that follows another; take ordinary above 0"
            )
        solution = self._solve_in(torch.float32, matrix, weights, device, moments)
        if solution is None:
            say("NextEASE: 32 bits do not hold these equations; once more in 64 bits")
            if device.type == "cpu":
                plan_memory(
                    f"NextEASE for {matrix.shape[1]:,} items",
                    24 * matrix.shape[1] ** 2,
                    "filter rare items",
                )
            solution = self._solve_in(torch.float64, matrix, weights, device, moments)
        if solution is None:
            raise ease_solver.no_solution(self.l2)
        return solution.to(torch.float32)

    def similarities_of_weights(self, outgoing: Scores, incoming: Callable[[], Scores]) -> Scores:
        """Compute how strongly j follows i, relative to the item that follows i most: B_ij / max_k |B_ik|.

        This is directed: what follows i need not have i follow it.

        Parameters
        ----------
        outgoing : ndarray of float32
            Given items × all items: the weights B_ij from given items i to all items j.
        incoming : callable
            Not used: the weights from all items to the given ones.

        Returns
        -------
        ndarray of float32
            Given items × all items; zeros for an item that has no weights.
        """
        largest = np.abs(outgoing).max(axis=1, keepdims=True)
        similarities = np.zeros_like(outgoing)
        np.divide(outgoing, largest, out=similarities, where=largest > 0)
        return similarities

    def _solve_in(
        self,
        kind: torch.dtype,
        rows: csr_array,
        weights: UserWeights,
        device: torch.device,
        moments: csr_array | None,
    ) -> Tensor | None:
        """B from the inverse of the regularised Gram matrix, in place of the equations' other side; None if that fails.

        With that inverse P and the other side R, B = PR − P · diag(c), where c_j = (PR)_jj / P_jj makes the diagonal 0.
        """
        gram = torch.zeros(rows.shape[1], rows.shape[1], dtype=kind, device=device)
        if self.ordinary:
            ease_solver.fill_gram(ease_solver.EaseSystem.of(rows, weights, self.l2).columns, gram)
            gram *= self.ordinary
        cross = gram.clone()
        add_prefix_sums(gram, cross, rows, weights, self.prefix_decay, self.next_count, moments)
        ridges = self.l2 + self.denoising / (1 - self.denoising) * gram.diagonal()
        gram.diagonal().add_(ridges)
        regularised = gram.diagonal().clone()
        inverse, problem = torch.linalg.cholesky_ex(gram)
        del gram
        if int(problem):
            return None
        with float32_products():
            ease_solver.invert_from_factor(inverse)
            if (
                ease_solver.inverse_error(inverse, regularised, ridges, max(rows.shape))
                > LARGEST_ERROR
            ):
                return None
            for start in range(0, len(cross), _BLOCK):
                block = slice(start, min(start + _BLOCK, len(cross)))
                solved = inverse @ cross[:, block]  # (items, block)
                solved -= inverse[:, block] * (solved[block].diagonal() / inverse.diagonal()[block])
                cross[:, block] = solved
        return cross.fill_diagonal_(0)


def bytes_to_solve_next(items: int, stored: int, device: torch.device) -> int:
    """What a solution takes in 32 bits: Gram matrix, its factor, the other side, blocks of them, and the sums."""
    block = min(max(_BLOCKS[device.type][0], items), items**2)
    sums = (
        _BYTES_PER_ENTRY * stored + 24 * block
    )  # two sums in 64 bits, and one of them on its way into its array
    return 4 * (3 * items**2 + 4 * min(_BLOCK, items) * items) + sums


def plan_solving_next(
    items: int, stored: int, device: torch.device, free: int
) -> tuple[torch.device, int]:
    """Where the equations are solved, the CPU where the device has too little memory, and what that takes there."""
    needed = bytes_to_solve_next(items, stored, device)
    if needed <= free:
        return device, needed
    return torch.device("cpu"), bytes_to_solve_next(items, stored, torch.device("cpu"))


def count_places(matrix: csr_array, moments: csr_array | None) -> npt.NDArray[np.int64]:
    """How many places each history of a training matrix has: items, or moments where those are given."""
    lengths = np.diff(matrix.indptr).astype(np.int64)
    if moments is None:
        return lengths
    return np.where(lengths > 0, moments.data[np.maximum(moments.indptr[1:] - 1, 0)] + 1, 0).astype(
        np.int64
    )


def add_prefix_sums(
    gram: Tensor,
    cross: Tensor,
    matrix: csr_array,
    user_weights: UserWeights,
    decay: float,
    next_count: int | None,
    moments: csr_array | None = None,
    blocks: tuple[int, int] | None = None,
) -> None:
    """Adds Σ_u w_u Σ_t x_tᵀx_t to `gram` and Σ_u w_u Σ_t x_tᵀy_t to `cross`, both (items, items), in place.

    The stored order of a row of `matrix` is its history's, oldest first, and its values are the weights of its
    entries. `moments` numbers the moment of every entry, one place each; None: every entry is a place. A history of
    one place adds nothing. `blocks` are the numbers and the places of a block of rows of the sums.
    """
    pairs = _Pairs(matrix, user_weights, decay, next_count, moments, gram.device)
    own = pairs.older * pairs.tails.index_select(0, pairs.later)
    own = own if pairs.newer is None else own * pairs.newer
    diagonal = torch.zeros(len(gram), dtype=torch.float64, device=gram.device)
    gram.diagonal().add_(diagonal.index_add_(0, pairs.items, _on_grid(own)).mul_(_GRAIN))
    numbers, places = _BLOCKS[gram.device.type] if blocks is None else blocks
    order = torch.argsort(pairs.items, stable=True)
    ends = torch.bincount(pairs.items, minlength=len(gram)).cumsum(0).cpu().numpy()
    start = first = 0
    with bar("NextEASE: pairs of places, items", len(gram)) as progress:
        while start < len(gram):
            within = int(np.searchsorted(ends, first + places, side="right"))
            stop = min(max(within, start + 1), start + max(1, numbers // len(gram)), len(gram))
            before, follow = pairs.sums(start, stop, order[first : int(ends[stop - 1])], len(gram))
            gram[start:stop] += before
            gram[:, start:stop] += before.T
            cross[start:stop] += follow
            progress.advance(stop - start)
            start, first = stop, int(ends[stop - 1])


class _Pairs:
    """The stored entries of all histories on a device, one history after the other, and what their pairs count.

    A pair of one history counts by its lag: the place b of the newer item less that of the older. Prefix t of places
    0 … n − 1 is x_t = Σ_{place(a) ≤ t} decay^{t−place(a)} e(a), for t up to n − 2, and y_t is the sum of e over the
    items of the `next_count` places after it, or over all. Σ_t x_tᵀx_t has decay^lag · Σ_{s < n−1−b} decay^{2s} at the
    pair's items, and Σ_t x_tᵀy_t has the sum of decay^s over the s below the lag, of which only the last `next_count`
    are taken. Items of one moment share one place: their lag is 0, so that they count in the first sum alone.
    """

    def __init__(
        self,
        matrix: csr_array,
        user_weights: UserWeights,
        decay: float,
        next_count: int | None,
        moments: csr_array | None,
        device: torch.device,
    ) -> None:
        """The entries of the users with a weight; with `moments` those of one moment share one place."""
        lags = np.arange(int(count_places(matrix, moments).max()))
        powers = np.power(float(decay), lags.astype(np.float64))
        tails, sums = (
            np.concatenate([[0.0], np.cumsum(one)])[: len(lags)] for one in (powers**2, powers)
        )
        follows = sums if next_count is None else sums - sums[np.maximum(lags - next_count, 0)]
        by_lag = np.stack([powers, follows])
        ends = [
            np.flatnonzero(one >= _LEAST_WEIGHT).max(initial=-1) + 1
            for one in (powers * tails[-1], follows)
        ]
        for one, end in zip(by_lag, ends, strict=True):
            one[end:] = 0
        by_lag = by_lag[:, : max(*ends, 1)]

        support = np.flatnonzero(user_weights)
        if len(support) < matrix.shape[0]:
            matrix, moments = matrix[support], None if moments is None else moments[support]
        counts = np.diff(matrix.indptr).astype(np.int64)
        values = matrix.data.astype(np.float64)
        older = values * np.repeat(user_weights[support].astype(np.float64), counts)
        entries, reach = np.arange(len(values)), None
        last = np.repeat(np.cumsum(counts), counts) - 1  # the newest entry of the same history
        later = last - entries
        if moments is not None:
            own = moments.data.astype(np.int64)
            later = own[last] - own
            begins = np.ones(len(own), dtype=bool)
            begins[1:] = own[1:] != own[:-1]
            begins[matrix.indptr[:-1][counts > 0]] = True
            through = np.cumsum(begins) - 1  # all moments of all histories, one after the other
            ends_of = np.append(np.flatnonzero(begins)[1:], len(own))
            reach = ends_of[through + np.minimum(by_lag.shape[1] - 1, later)] - 1 - entries
            reach = np.where(later > 0, reach, 0)  # no prefix ends at the last moment
        parts = (matrix.indices.astype(np.int64), older, later, tails)
        # Of every entry the item, the user's weight times its value, and how many places follow in the same history;
        # of n prefixes from the newer item's place on Σ_{s < n} decay^{2s}, for all n up to the longest history.
        self.items, self.older, self.later, self.tails = (
            torch.from_numpy(one).to(device) for one in parts
        )
        # Of every entry its value, None where all are 1, and how many entries follow at lags that count, None where
        # each is a place of its own.
        self.newer = torch.from_numpy(values).to(device) if (values != 1).any() else None
        self.reach = None if reach is None else torch.from_numpy(reach).to(device)
        self.by_lag = by_lag  # (2, lags): decay^lag and what the second sum has; 0 from where it hardly counts

    def sums(
        self, start: int, stop: int, members: Tensor, item_count: int
    ) -> tuple[Tensor, Tensor]:
        """Both sums over the pairs whose older item is one from start to stop, (stop − start, items) in 64 bits."""
        before, follow = torch.zeros(
            2, (stop - start) * item_count, dtype=torch.float64, device=members.device
        )
        by_lag = torch.from_numpy(self.by_lag).to(members.device)
        # Those with the most entries after them come first: the ones that reach an offset are then the first so many.
        # Beyond the last lag it is no matter, and what keeps its order is read and added to neighbouring memory.
        last_lag = self.by_lag.shape[1] - 1
        reached = (
            self.later[members].clamp_(max=last_lag) if self.reach is None else self.reach[members]
        )
        reach, order = reached.sort(descending=True, stable=True)
        members = members[order]
        rows, older, later = (
            (self.items[members] - start) * item_count,
            self.older[members],
            self.later[members],
        )
        offsets = torch.arange(1, 1 + int(reach[0]) if len(reach) else 1, device=reach.device)
        for offset, count in enumerate(
            torch.searchsorted(-reach, -offsets, right=True).tolist(), start=1
        ):
            newer = members[:count] + offset
            at = self.items.index_select(0, newer).add_(rows[:count])
            lent = (
                older[:count]
                if self.newer is None
                else older[:count] * self.newer.index_select(0, newer)
            )
            decays: Tensor | float
            follows: Tensor | float
            if self.reach is None:  # the offset is the lag
                beyond = later[:count] - offset
                decays, follows = self.by_lag[:, offset].tolist()
            else:
                beyond = self.later.index_select(0, newer)
                decays, follows = by_lag.index_select(1, later[:count] - beyond)
            if self.reach is not None or decays:
                before.index_add_(
                    0, at, _on_grid(self.tails.index_select(0, beyond).mul_(lent).mul_(decays))
                )
            if self.reach is not None or follows:
                follow.index_add_(0, at, _on_grid(lent * follows))
        shape = (stop - start, item_count)
        return before.mul_(_GRAIN).view(shape), follow.mul_(_GRAIN).view(shape)


def _on_grid(values: Tensor) -> Tensor:
    """The nearest whole numbers of grains, in place."""
    return values.div_(_GRAIN).round_()
