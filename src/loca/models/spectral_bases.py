"""Truncated singular value decompositions: the leading directions of all users and of each cluster of users."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from scipy.linalg import eigh
from scipy.sparse import csr_array
from torch import Tensor

Floats = npt.NDArray[Any]
Rows = npt.NDArray[np.int64]
SPARE = 10  # directions that are followed beside those wanted, so that the last wanted ones are found sooner
_SOLVED_WHOLE = 500  # users or items up to which the whole spectrum is solved
_MOST_PASSES = 40
_ENOUGH = 1e-4  # passes end when one more captures less than this share more of the squared matrix
_NOTHING = 1e-10  # a squared singular value below this share of the largest is rounding
USERS_PER_BLOCK = 1024


def leading_directions(rows: csr_array, start: Floats, spare: Floats, device: torch.device) -> Floats:
    """The leading right singular vectors of sparse rows, (items, as many as `start` has); zeros beyond their rank.

    Small matrices are solved whole. Others by subspace iteration on rowsᵀ · rows from `start` beside `spare`, which
    depends on the users only through that product: equal users may be many rows or one heavier row. The device does
    these products.
    """
    rank = start.shape[1]
    found = np.zeros(start.shape)
    if rank == 0 or rows.nnz == 0:
        return found
    exact = rows.astype(np.float64)
    if min(exact.shape) <= _SOLVED_WHOLE:
        directions = _solve_whole(exact, rank)
    else:
        directions = _iterate(exact, np.concatenate([start, spare], axis=1, dtype=np.float64), rank, device)
    found[:, : directions.shape[1]] = directions
    return found


def _solve_whole(rows: csr_array, rank: int) -> Floats:
    """The directions from the Gram matrix of the smaller side."""
    fewer_users = rows.shape[0] < rows.shape[1]
    squares, vectors = _largest_eigenvectors((rows @ rows.T if fewer_users else rows.T @ rows).toarray(), rank)
    return np.asarray(rows.T @ (vectors / np.sqrt(squares))) if fewer_users else vectors


def _iterate(rows: csr_array, start: Floats, rank: int, device: torch.device) -> Floats:
    """The directions by orthogonal iteration, and the best turn of what it ends with."""
    times_rows, times_columns = _product_with(rows, device), _product_with(rows.T.tocsr(), device)
    block, captured = torch.linalg.qr(torch.from_numpy(start).to(device))[0], 0.0
    for _ in range(_MOST_PASSES):
        image = times_rows(block)  # (users, directions)
        now = float(image.square().sum())
        if now <= captured * (1 + _ENOUGH):
            break
        block, captured = torch.linalg.qr(times_columns(image))[0], now
    image = times_rows(block)
    _, turn = _largest_eigenvectors((image.T @ image).cpu().numpy(), rank)
    return np.asarray(block.cpu().numpy() @ turn)


def _product_with(matrix: csr_array, device: torch.device) -> Callable[[Tensor], Tensor]:
    """A sparse matrix times a dense one: by scipy in main memory, which is the faster there, else on the device."""
    if device.type == "cpu":
        return lambda dense: torch.from_numpy(matrix @ dense.numpy())
    starts, columns = (torch.from_numpy(one.astype(np.int64)) for one in (matrix.indptr, matrix.indices))
    values = torch.from_numpy(matrix.data)
    there = torch.sparse_csr_tensor(starts, columns, values, matrix.shape, check_invariants=False).to(device)
    return lambda dense: there @ dense


def _largest_eigenvectors(square: Floats, rank: int) -> tuple[Floats, Floats]:
    """The largest eigenvalues of a symmetric matrix, from the largest down, without those that are rounding."""
    values, vectors = eigh(square, overwrite_a=True, check_finite=False)
    kept = np.flatnonzero(values > _NOTHING * max(values[-1], 0.0))[::-1][:rank]
    return values[kept], vectors[:, kept]


@dataclass(frozen=True)
class Memberships:
    """The cluster of every user, and the share that the global part has in its answers."""

    clusters: Rows
    shares: Floats


@dataclass(frozen=True)
class SpectralBases:
    """Orthonormal directions: `shared` by all (items, global rank), `local` ones (items, clusters, local rank).

    `overlaps` holds their products, (global rank, clusters, local rank). A direction of zeros stands for none.
    """

    shared: npt.NDArray[np.float32]
    local: npt.NDArray[np.float32]
    overlaps: npt.NDArray[np.float32]

    @classmethod
    def of(cls, shared: Floats, local: Floats) -> Self:
        """Both sets of directions in 32 bits, with their products."""
        shared, local = shared.astype(np.float32, copy=False), local.astype(np.float32, copy=False)
        items, clusters, rank = local.shape
        overlaps = shared.T @ local.reshape(items, clusters * rank)
        return cls(shared, local, overlaps.reshape(shared.shape[1], clusters, rank))

    @classmethod
    def drawn(cls, items: int, clusters: int, global_rank: int, local_rank: int, rng: np.random.Generator) -> Self:
        """Random directions, from which those of the data are sought."""
        shared = rng.standard_normal((items, global_rank), dtype=np.float32)
        return cls.of(shared, rng.standard_normal((items, clusters, local_rank), dtype=np.float32))

    def learn(
        self, rows: csr_array, weights: Floats, members: Memberships, spare: Floats, device: torch.device
    ) -> SpectralBases:
        """The directions of the rows scaled by g, and of each cluster's rows scaled by 1 − g; sought from these.

        A user's weight is the square of a further scale. A cluster without users has no directions.
        """
        scales = np.sqrt(weights)
        shared = leading_directions(scale_rows(rows, scales * members.shares), self.shared, spare, device)
        own_scales = scales * (1 - members.shares)
        local = np.empty_like(self.local)
        for cluster in range(self.local.shape[1]):
            own = np.flatnonzero(members.clusters == cluster)
            own_rows = scale_rows(csr_array(rows[own]), own_scales[own])
            local[:, cluster] = leading_directions(own_rows, self.local[:, cluster], spare, device)
        return SpectralBases.of(shared, local)

    def join(self, rows: csr_array, current: Rows | None = None) -> Memberships:
        """The cluster that answers each row with the smallest squared error, and the share g of the global part there.

        A user who is in a cluster by `current` leaves it only for an error that is smaller by more than rounding.
        """
        starts = range(0, rows.shape[0], USERS_PER_BLOCK)
        clusters, shares = np.zeros(rows.shape[0], np.int64), np.zeros(rows.shape[0])
        for block in (slice(start, start + USERS_PER_BLOCK) for start in starts):
            part = csr_array(rows[block])
            shares_there, errors = self._errors(part)
            best = errors.argmin(axis=1)
            users = np.arange(len(best))
            if current is not None:
                own = current[block]
                lengths = np.asarray(part.multiply(part).sum(axis=1)).ravel()
                stays = errors[users, own] - errors[users, best] <= 1e-9 * lengths
                best = np.where(stays, own, best)
            clusters[block], shares[block] = best, shares_there[users, best]
        return Memberships(clusters, shares)

    def _errors(self, rows: csr_array) -> tuple[Floats, Floats]:
        """The best g, and the squared error with it less the row's own squared length, both (users, clusters)."""
        items, clusters, rank = self.local.shape
        ours = (rows @ self.shared).astype(np.float64)
        theirs = (rows @ self.local.reshape(items, clusters * rank)).astype(np.float64)
        meeting = ours @ self.overlaps.reshape(ours.shape[1], clusters * rank).astype(np.float64)
        shared = (ours**2).sum(axis=1)[:, None]
        local = (theirs**2).reshape(len(ours), clusters, rank).sum(axis=2)
        common = (meeting * theirs).reshape(len(ours), clusters, rank).sum(axis=2)
        shares = best_shares(shared, local, common)
        rest = 1 - shares
        linear = shares * shared + rest * local
        return shares, shares**2 * shared + rest**2 * local + 2 * shares * rest * common - 2 * linear


def best_shares(shared: Floats, local: Floats, common: Floats) -> Floats:
    """The g in [0, 1] that minimises ‖r − g·a − (1 − g)·b‖², a and b being projections of r.

    From their squared lengths ‖a‖² and ‖b‖² and their product ab: ⟨r, a⟩ = ‖a‖² and ⟨r, b⟩ = ‖b‖² leave
    g = (‖a‖² − ab) / ‖a − b‖². Where a = b every g is as good, and 0.5 is taken.
    """
    apart = shared + local - 2 * common
    differ = apart > 1e-6 * (shared + local)
    shares = np.divide(shared - common, apart, out=np.full(apart.shape, 0.5), where=differ)
    return np.asarray(np.clip(shares, 0.0, 1.0))


def scale_rows(rows: csr_array, scales: Floats) -> csr_array:
    """The rows times one number each, in 64 bits; rows scaled to nothing keep their places."""
    data = rows.data * np.repeat(scales, np.diff(rows.indptr))
    return csr_array((data, rows.indices, rows.indptr), shape=rows.shape)
