"""Local EASE models that answer: one centre, and the differences of each model to it."""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.deferred import torch
from loca.errors import DataError, ModelFileError
from loca.evaluation.top_n import AnyScores
from loca.local.engines.differences.compressed_weights import CompressedWeights, WideRows
from loca.local.local_models import LocalModels
from loca.models.devices import SparseRows, choose_device, may_have_gpu
from loca.models.protocols import Linear, as_linear
from loca.models.recommender import ItemRows, Recommender, Scores, check_histories, fitted
from loca.persistence.learned import learned_part
from loca.typing import IntArray

# The rows that are read for one range of communities have so many entries at most.
ENTRIES_AT_ONCE = 2**24
_USERS_AT_ONCE = 512
# Where so many of the rows are needed, reading all in one go is quicker than picking them.
_SHARE_TO_READ_ALL = 0.2
# Products for so many users with so many multiplications are made by MKL, 3 to 4 times as fast as by
# scipy. It comes with torch, which takes a second to load: who asks for a few users need not wait.
# Only the size decides, so the same request is answered in the same way in every process.
USERS_FOR_MKL = 8
MULTIPLICATIONS_FOR_MKL = 2**19


@dataclass(kw_only=True, eq=False, repr=False)
class EaseDifferences(LocalModels):
    """Local models of which each scores history · (B + Δ_j), with the weights B of one centre.

    Δ_j are the largest differences of model j to the centre. That is the global model, where it is
    like the local ones, or else a model of its own. The files of a shard have no centre.
    """

    differences_: CompressedWeights = learned_part(CompressedWeights, "items")
    centre_: Recommender | None = learned_part(Recommender, "items", optional=True)

    def __post_init__(self) -> None:
        self.device = choose_device("auto") if may_have_gpu() else None
        self._forget_caches()

    def _forget_caches(self) -> None:
        self._wide_rows = WideRows()
        self._centre_on_device: torch.Tensor | None = None
        self._entries_on_device: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def check(self) -> None:
        """Refuse a centre that is no linear model."""
        if self.centre_ is not None and not self.centre_.is_linear:
            raise ModelFileError(
                "expected an EASE or NextEASE that the local models differ from, "
                f"found {type(self.centre_).__name__}"
            )

    def to(self, device: str) -> Self:
        """Move the answers to a device."""
        chosen = choose_device(device)
        self.device = None if chosen.type == "cpu" else chosen
        self._forget_caches()
        return self

    def without_centre(self) -> Self:
        """Return the differences alone."""
        return self.with_centre(None)

    def with_centre(self, centre: Recommender | None) -> Self:
        """Return the differences around a centre."""
        models = copy.copy(self)
        models.centre_ = centre
        models._forget_caches()
        return models

    @property
    def centre(self) -> Linear:
        """The fitted model that all differ from."""
        return as_linear(fitted(self.centre_, self))

    def __len__(self) -> int:
        return len(fitted(self.differences_, self))

    def count_items(self) -> int:
        """Return how many items they score."""
        return fitted(self.differences_, self).item_count

    def blend(self, histories: csr_array, answer_weights: csr_array) -> AnyScores:
        """Return Σ_j w_j · M_j(history) / Σ_j w_j, (users, items) on the device.

        The row of an uncovered user is zero.
        """
        rows = check_histories(histories, self.count_items())
        if answer_weights.shape != (rows.shape[0], len(self)):
            expected = f"{rows.shape[0]} users × {len(self)} communities"
            raise DataError(
                f"answer_weights: expected {expected}, found shape {answer_weights.shape}"
            )
        shares = csr_array(answer_weights).astype(np.float64)
        shares.eliminate_zeros()
        shares.data /= np.repeat(np.asarray(shares.sum(axis=1)).ravel(), np.diff(shares.indptr))
        shares = csr_array(shares.astype(np.float32))
        if self.device is None:
            return self.blend_sparse(rows, shares)
        return self.blend_dense(rows, shares, self.device)

    def blend_sparse(self, rows: csr_array, shares: csr_array) -> Scores:
        """Return the answers by sparse products, for checked rows and shares that sum to 1.

        Only those rows of Δ are read that are in the history of somebody whom it answers.
        """
        stored = fitted(self.differences_, self)
        covered = np.diff(shares.indptr) > 0
        blended = np.zeros(rows.shape, dtype=np.float32)
        blended[covered] = self.centre.score(csr_array(rows[covered]))
        costs = _entries_to_read(rows, shares, stored)
        everything = self._wide_rows.after_reading(stored, int(costs.sum()))
        if everything is not None:
            _, weighted = _needed_rows(rows, shares, everything=True)
            _add_product(blended, weighted, everything)
            return blended
        # Communities go in ranges, so that the rows that are read for one are of a bounded size.
        start = 0
        while start < len(stored):
            n_within = np.searchsorted(np.cumsum(costs[start:]), ENTRIES_AT_ONCE, side="right")
            stop = start + max(1, int(n_within))
            if costs[start:stop].any():
                keys, weighted = _needed_rows(rows, csr_array(shares[:, start:stop]))
                differences = stored.rows(keys + start * stored.item_count)
                _add_product(blended, weighted, differences)
            start = stop
        return blended

    def blend_dense(self, rows: csr_array, shares: csr_array, device: torch.device) -> torch.Tensor:
        """Return the answers by dense products, for checked rows and shares that sum to 1.

        One Δ after the other is written into the same items × items array on the device. The
        entries of a community stay there while half of its memory is free.
        """
        if self._centre_on_device is None:
            self._centre_on_device = weights_of(self.centre).to(device)
        centre = self._centre_on_device
        blended = torch.zeros(rows.shape, device=device)
        covered = np.flatnonzero(np.diff(shares.indptr))
        histories = SparseRows.of(csr_array(rows[covered]), device)
        blended[torch.from_numpy(covered).to(device)] = histories.sum_of(centre)
        differences = torch.zeros_like(centre)
        by_community = shares.tocsc()
        for community in np.flatnonzero(np.diff(by_community.indptr)).tolist():
            part = slice(by_community.indptr[community], by_community.indptr[community + 1])
            members = by_community.indices[part].astype(np.int64)
            weighted = csr_array(rows[members])
            weighted.data *= np.repeat(by_community.data[part], np.diff(weighted.indptr))
            positions, values = self._entries_of(community, device)
            differences.view(-1)[positions] = values
            scores = SparseRows.of(weighted, device).sum_of(differences)
            blended.index_add_(0, torch.from_numpy(members).to(device), scores)
            differences.view(-1)[positions] = 0
        return blended

    def _entries_of(
        self, community: int, device: torch.device
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the entries of a community on the device, and leave them there if it has room."""
        entries = self._entries_on_device.get(community)
        if entries is None:
            entries = fitted(self.differences_, self).on_device(community, device)
        free, total = torch.cuda.mem_get_info(device) if device.type == "cuda" else (1, 1)
        if free > total / 2:
            self._entries_on_device[community] = entries
        return entries

    def similarities_of(self, number: int, item_rows: ItemRows) -> Scores:
        """Return one model's similarities, as its base takes them from weights.

        Only the rows and columns of the given items become dense.
        """
        weights = self.centre.weights_
        first = number * self.count_items()
        stored = fitted(self.differences_, self)
        differences = stored.rows(np.arange(first, first + self.count_items()))  # (items, items)

        def incoming() -> Scores:
            columns = weights[:, item_rows] + differences[:, item_rows].toarray()
            return np.asarray(columns.T)

        outgoing = weights[item_rows] + differences[item_rows].toarray()
        return self.centre.similarities_of_weights(outgoing, incoming)


def weights_of(model: Linear) -> torch.Tensor:
    """Return a model's weights as a tensor: over the same memory where that can be written to."""
    weights = model.weights_
    return torch.from_numpy(weights if weights.flags.writeable else weights.copy())


def dense_product(first: csr_array, second: csr_array) -> Scores:
    """Return the product of two sparse matrices as an array."""
    if not (_is_large(first, second) and _fits_mkl(second)):
        return np.asarray((first @ second).toarray())
    zeros = torch.zeros(first.shape[0], second.shape[1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # compressed rows are still called new
        return np.asarray(torch.addmm(zeros, _as_tensor(first), _as_tensor(second)))


def _is_large(first: csr_array, second: csr_array) -> bool:
    if first.shape[0] < USERS_FOR_MKL:
        return False
    n_multiplications = int(np.diff(second.indptr)[first.indices].sum())
    return n_multiplications >= MULTIPLICATIONS_FOR_MKL


def _fits_mkl(matrix: csr_array) -> bool:
    has_mkl = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    return matrix.indices.dtype == np.int32 and bool(has_mkl)


def _as_tensor(matrix: csr_array) -> torch.Tensor:
    return torch.sparse_csr_tensor(
        torch.from_numpy(matrix.indptr.astype(np.int32, copy=False)),
        torch.from_numpy(matrix.indices.astype(np.int32, copy=False)),
        torch.from_numpy(matrix.data),
        size=matrix.shape,
        check_invariants=False,
    )


def _add_product(scores: Scores, weighted: csr_array, differences: csr_array) -> None:
    """Add the product to the scores in place, a block of users at a time."""
    for first in range(0, len(scores), _USERS_AT_ONCE):
        block = slice(first, first + _USERS_AT_ONCE)
        scores[block] += dense_product(csr_array(weighted[block]), differences)


def _entries_to_read(
    rows: csr_array, shares: csr_array, stored: CompressedWeights
) -> npt.NDArray[np.float64]:
    """Estimate how many entries of each community are read for these users, (communities,)."""
    lengths = np.diff(rows.indptr).astype(np.int64)
    members = csr_array(shares.T.tocsr())
    n_rows = np.zeros(len(stored), dtype=np.int64)  # rows of Δ_j, counted once per member
    of_members = np.repeat(np.arange(len(stored)), np.diff(members.indptr))
    np.add.at(n_rows, of_members, lengths[members.indices])
    entries = np.diff(stored.offsets)
    return np.asarray(np.minimum(entries, n_rows * (entries / stored.item_count)) + n_rows)


def _needed_rows(
    rows: csr_array, shares: csr_array, *, everything: bool = False
) -> tuple[IntArray, csr_array]:
    """Return the rising keys `community · items + item` that are needed, and share · history.

    The latter is (users, keys). With `everything` all keys are taken.
    """
    n_users, n_items = rows.shape
    lengths = np.diff(rows.indptr)
    n_shares = np.diff(shares.indptr)
    owners = np.repeat(np.arange(n_users), n_shares)  # the user of each share
    repeats = lengths[owners].astype(np.int64)
    ends = np.cumsum(repeats)
    total = ends[-1] if len(ends) else 0
    positions = np.arange(total) + np.repeat(rows.indptr[owners] - (ends - repeats), repeats)
    communities = np.repeat(shares.indices.astype(np.int64), repeats)
    keys = communities * n_items + rows.indices[positions]
    values = np.repeat(shares.data, repeats) * rows.data[positions]
    is_needed = np.zeros(shares.shape[1] * n_items, dtype=bool)
    is_needed[keys] = True
    if everything or is_needed.mean() > _SHARE_TO_READ_ALL:
        is_needed[:] = True
    needed = np.flatnonzero(is_needed)
    numbers = np.empty(len(is_needed), dtype=np.int32)
    numbers[needed] = np.arange(len(needed), dtype=np.int32)
    starts = np.concatenate([[0], np.cumsum((lengths * n_shares).astype(np.int64))])
    arrays = (values, numbers[keys], starts.astype(np.int32))
    return needed, csr_array(arrays, shape=(n_users, len(needed)))
