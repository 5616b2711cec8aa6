"""Local EASE models, stored as their largest differences to one centre: solved one by one, scoring together."""

from __future__ import annotations

import copy
import sys
import warnings
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.deferred import torch
from loca.errors import ConfigError, DataError, ModelFileError
from loca.evaluation.top_n import AnyScores
from loca.local.engines.engine import ManyFits
from loca.local.engines.loop import Loop
from loca.local.local_models import LocalModels
from loca.memory import DataSize, MemoryUse, available_bytes, plan_memory, readable_bytes
from loca.models.devices import SparseRows, choose_device, free_bytes, may_have_gpu
from loca.models.ease import EASE
from loca.models.ease_solver import WeightRows
from loca.models.next_ease import NextEASE, bytes_to_solve_next
from loca.models.params import whole
from loca.models.recommender import (
    ItemRows,
    Recommender,
    Scores,
    check_histories,
    clone,
    fitted,
    get_params,
)
from loca.persistence.learned import learned, learned_part
from loca.persistence.manifest import Persistent
from loca.progress import bar, say

if TYPE_CHECKING:
    from torch import Tensor

LinearModel = EASE | NextEASE  # the models that are linear (`Recommender.is_linear`)
MAX_BYTES = 9_000_000
_SAMPLED_ROWS = 512
# So many times the wanted entries are expected above the first threshold, which is read off a sample of rows.
_MARGIN = 1.3
# The largest value of a community becomes this, so that 16 bits hold values down to a billionth of it.
_LARGEST_IN_16_BITS = 32768.0
_LEAST_SCALE = float(np.finfo(np.float32).tiny)
_ENTRIES_AT_ONCE = 2**24
_USERS_AT_ONCE = 512
# Where so many of the rows are needed, reading all in one go is quicker than picking them.
_SHARE_TO_READ_ALL = 0.2
# Larger systems fill a GPU on their own.
_LARGEST_BATCHED_SYSTEM = 512
_MOST_AT_ONCE = 64
_BLOCK_ROWS = 1024
_ADVICE = "take fewer communities, smaller max_bytes or filter rare items"


@dataclass(frozen=True)
class SizeBudget:
    """How many entries of an items × items array one community may store, and in which types.

    Everything is stored in 32 bits where `max_bytes` allow that, else everything in 16, else the largest in 16.
    """

    item_count: int
    entries: int
    index_type: np.dtype[Any]
    value_type: np.dtype[Any]

    @classmethod
    def of(cls, item_count: int, max_bytes: int) -> Self:
        """What fits into `max_bytes`."""
        index_type = np.dtype(np.uint16 if item_count <= 65_536 else np.uint32)
        fixed, off_diagonal = (
            4 * (item_count + 2),
            item_count * (item_count - 1),
        )  # row starts, and the scale
        whole = fixed + off_diagonal * (index_type.itemsize + 4)
        value_type = np.dtype(np.float32 if whole <= max_bytes else np.float16)
        entry = index_type.itemsize + value_type.itemsize
        if max_bytes < fixed + entry:
            wanted = f"{fixed + entry:,} for {item_count:,} items"
            raise ConfigError(f"max_bytes: expected at least {wanted}, found {max_bytes!r}")
        return cls(
            item_count,
            min((max_bytes - fixed) // entry, max(off_diagonal, 1)),
            index_type,
            value_type,
        )

    @property
    def stored_bytes(self) -> int:
        """What one community takes with all its entries, in memory and in its file."""
        entry = self.index_type.itemsize + self.value_type.itemsize
        return 4 * (self.item_count + 2) + 8 + self.entries * entry


@dataclass(frozen=True, eq=False)
class CompressedWeights(Persistent):
    """The entries of all communities one after the other, rows in order.

    Row i of community j has the entries from offsets[j] + row_starts[j, i] to offsets[j] + row_starts[j, i + 1]; a
    weight is its value times scales[j].
    """

    columns: npt.NDArray[Any] = learned("entries", dtype=(np.uint16, np.uint32))
    values: npt.NDArray[Any] = learned("entries", dtype=(np.float16, np.float32), finite=False)
    row_starts: npt.NDArray[Any] = learned("communities", "items + 1", dtype=np.uint32)
    offsets: npt.NDArray[Any] = learned("communities + 1", dtype=np.int64)
    scales: npt.NDArray[Any] = learned("communities")
    _wide: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    def check(self) -> None:
        """Refuse entries that do not lie where the row starts and offsets say."""
        starts, offsets = self.row_starts, self.offsets
        if starts.ndim != 2 or starts.shape[1] < 2 or offsets.shape != (len(starts) + 1,):
            raise ModelFileError(
                f"EASE differences: {offsets.shape} offsets do not fit row starts {starts.shape}"
            )
        rising = (starts[:, 0] == 0).all() and (starts[:, 1:] >= starts[:, :-1]).all()
        if not (
            rising
            and offsets[0] == 0
            and np.array_equal(np.diff(offsets), starts[:, -1].astype(np.int64))
        ):
            raise ModelFileError(
                "EASE differences: expected row starts that rise from 0 to each community's entries"
            )
        if offsets[-1] != len(self.columns):
            raise ModelFileError(
                f"EASE differences: expected {offsets[-1]} entries, found {len(self.columns)}"
            )
        if self.columns.max(initial=0) >= self.item_count:
            raise ModelFileError(
                f"EASE differences: expected columns below {self.item_count}, found one beyond"
            )
        if not (self.scales > 0).all():
            raise ModelFileError("EASE differences: expected scales above 0")

    def __len__(self) -> int:
        return len(self.row_starts)

    @property
    def item_count(self) -> int:
        """How many items there are."""
        return int(self.row_starts.shape[1] - 1)

    def count_items(self) -> int:
        """Return how many items there are."""
        return self.item_count

    def rows(self, keys: npt.NDArray[np.int64]) -> csr_array:
        """The rows `community · items + item` of rising keys, in 32 bits, (keys, items)."""
        communities, items = np.divmod(keys, self.item_count)
        firsts = self.offsets[communities] + self.row_starts[communities, items]
        counts = (
            self.row_starts[communities, items + 1].astype(np.int64)
            - self.row_starts[communities, items]
        )
        starts = np.concatenate([[0], np.cumsum(counts)])  # (keys + 1,)
        places: Any = slice(int(firsts[0]), int(firsts[0] + starts[-1])) if len(keys) else slice(0)
        if len(keys) and keys[-1] - keys[0] != len(keys) - 1:  # there are gaps between the rows
            places = np.arange(starts[-1]) + np.repeat(firsts - starts[:-1], counts)
        values = self.values[places].astype(np.float32)
        values *= np.repeat(self.scales[communities], counts)
        # One type for both, or scipy copies the longer array.
        kind = np.int32 if starts[-1] < 2**31 else np.int64
        columns = self.columns[places].astype(kind)
        return csr_array((values, columns, starts.astype(kind)), shape=(len(keys), self.item_count))

    def all_rows(self, read: int) -> csr_array | None:
        """All rows, as `rows` gives some; None until so many entries as there are have been read twice over.

        Who answers one user reads few of them. A service would make the same ones 32 bits wide for every batch; it
        has them so from then on, where a quarter of the free memory holds them.
        """
        wide, count = self._wide, len(self.values)
        wide["read"] = wide.get("read", 0) + read
        if "rows" not in wide:
            if wide["read"] < 2 * count or 8 * count > available_bytes() / 4 or count >= 2**31:
                return None
            wide["rows"] = self.rows(np.arange(len(self) * self.item_count))
        found: csr_array = wide["rows"]
        return found

    def on_device(self, community: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Where the entries of one community stand in the flat items × items array, and their weights in 32 bits."""
        part = slice(int(self.offsets[community]), int(self.offsets[community + 1]))
        columns = torch.from_numpy(self.columns[part].astype(np.int32)).to(device)
        starts = torch.from_numpy(self.row_starts[community].astype(np.int64)).to(device)
        values = torch.from_numpy(np.array(self.values[part])).to(device, torch.float32)
        first_of_row = torch.arange(self.item_count, device=device) * self.item_count
        places = (
            torch.repeat_interleave(first_of_row, starts.diff(), output_size=len(columns)) + columns
        )
        return places, values * float(self.scales[community])


def largest_differences(
    weight_rows: WeightRows, centre: Tensor, budget: SizeBudget
) -> dict[str, npt.NDArray[Any]]:
    """The largest differences of item-to-item weights to the centre's, as arrays for one community.

    They are exactly the `budget.entries` largest by size; among equal ones the first by row and column. A first
    threshold, from evenly spaced rows, is one that somewhat more differences exceed; it is lowered until enough do.
    """
    count, entries = len(centre), budget.entries
    threshold = 0.0
    if entries < count * (count - 1):
        sampled = torch.arange(0, count, max(1, count // _SAMPLED_ROWS), device=centre.device)
        sizes = (weight_rows(sampled) - centre[sampled]).abs_().flatten()
        expected = int(_MARGIN * entries * len(sampled) / count)
        if expected < len(sizes):
            threshold = float(sizes.kthvalue(len(sizes) - expected).values)
        del sizes  # it may be as large as a block
    while True:
        found = []  # the flat places and the values of all differences larger than the threshold, rows in order
        for first in range(0, count, _BLOCK_ROWS):
            items = torch.arange(first, min(first + _BLOCK_ROWS, count), device=centre.device)
            differences = weight_rows(items).sub_(centre[first : first + len(items)]).flatten()
            larger = (differences.abs() > threshold).nonzero().flatten()
            found.append((larger + first * count, differences[larger]))
        places, values = (torch.cat(parts) for parts in zip(*found, strict=True))
        if threshold == 0 or len(places) >= entries:
            break
        threshold = threshold / 2 if threshold > 1e-30 else 0.0
    if len(values) > entries:
        sizes = values.abs()
        least = sizes.kthvalue(len(sizes) - entries + 1).values
        chosen = sizes > least
        equal = (sizes == least).nonzero().flatten()
        chosen[equal[: entries - int(chosen.sum())]] = True
        places, values = places[chosen], values[chosen]
    row_counts = torch.bincount(torch.div(places, count, rounding_mode="floor"), minlength=count)
    half = budget.value_type == np.float16
    largest = float(values.abs().max()) if len(values) else 0.0
    scale = max(float(np.float32(largest / _LARGEST_IN_16_BITS)), _LEAST_SCALE) if half else 1.0
    return {
        "columns": (places % count).to(torch.int32).cpu().numpy().astype(budget.index_type),
        "values": (values / scale).to(torch.float16 if half else torch.float32).cpu().numpy(),
        "row_starts": np.concatenate([[0], row_counts.cumsum(0).cpu().numpy()]).astype(np.uint32),
        "scales": np.array([scale], dtype=np.float32),
    }


@dataclass(kw_only=True, eq=False, repr=False)
class EaseDifferences(LocalModels):
    """Local model j scores history · (centre + Δ_j), where Δ_j is its largest differences to the centre.

    The centre is the global model, where that is like the local ones, or else a model of its own. In
    the files of a shard it is missing, and comes from the storage.
    """

    differences_: CompressedWeights = learned_part(CompressedWeights, "items")
    centre_: Any = learned_part(Recommender, "items", optional=True)

    entries_at_once: ClassVar[int] = _ENTRIES_AT_ONCE

    def __post_init__(self) -> None:
        self.device = choose_device("auto") if may_have_gpu() else None
        self._on_device: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._centre_on_device: torch.Tensor | None = None

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
        self._centre_on_device = None
        self._on_device.clear()
        return self

    def without_global_model(self) -> Self:
        """Return the differences without their centre."""
        models = copy.copy(self)
        models.centre_ = None
        return models

    def with_global_model(self, global_model: Recommender | None) -> Self:
        """Return the differences around a centre again."""
        models = copy.copy(self)
        models.centre_ = global_model
        models._centre_on_device = None
        return models

    def __len__(self) -> int:
        return len(fitted(self.differences_, self))

    def count_items(self) -> int:
        """How many items they score."""
        return fitted(self.differences_, self).item_count

    def blend(
        self, histories: csr_array, answer_weights: csr_array, *, spread: bool | None = None
    ) -> AnyScores:
        """Σ_j w_j · M_j(history) / Σ_j w_j, (users, items) on the device; an uncovered user's row is zero.

        `spread` spreads each Δ out as an array of items × items, as a GPU does; a CPU reads only the rows it needs.
        """
        rows = check_histories(histories, self.count_items())
        if answer_weights.shape != (rows.shape[0], len(self)):
            wanted = f"{rows.shape[0]} users × {len(self)} communities"
            raise DataError(
                f"answer_weights: expected {wanted}, found shape {answer_weights.shape}"
            )
        shares = csr_array(answer_weights).astype(np.float64)
        shares.eliminate_zeros()
        shares.data /= np.repeat(np.asarray(shares.sum(axis=1)).ravel(), np.diff(shares.indptr))
        shares = csr_array(shares.astype(np.float32))
        if self.device is not None if spread is None else spread:
            return self._blend_spread(rows, shares)
        return self._blend_rows(rows, shares)

    def _blend_rows(self, rows: csr_array, shares: csr_array) -> Scores:
        """Only the rows of Δ that some member has in the history are read; many communities add up in one product."""
        stored = fitted(self.differences_, self)
        covered = np.diff(shares.indptr) > 0
        blended = np.zeros(rows.shape, dtype=np.float32)
        blended[covered] = fitted(self.centre_, self).score(csr_array(rows[covered]))
        # Communities go in ranges, so that the rows of Δ that are read for one range are of a bounded size.
        lengths = np.diff(rows.indptr).astype(np.int64)
        members = csr_array(shares.T.tocsr())
        needed = np.zeros(len(stored), dtype=np.int64)  # rows of Δ_j, counted once per member
        np.add.at(
            needed,
            np.repeat(np.arange(len(stored)), np.diff(members.indptr)),
            lengths[members.indices],
        )
        entries = np.diff(stored.offsets)
        costs = np.minimum(entries, needed * (entries / stored.item_count)) + needed
        everything = stored.all_rows(int(costs.sum()))
        if everything is not None:
            _, weighted = _needed_rows(rows, shares, everything=True)
            for first in range(0, len(blended), _USERS_AT_ONCE):
                block = slice(first, first + _USERS_AT_ONCE)
                blended[block] += dense_product(
                    csr_array(weighted[block]), everything, may_load=True
                )
            return blended
        start = stop = 0
        while (start := stop) < len(stored):
            within = np.searchsorted(np.cumsum(costs[start:]), self.entries_at_once, side="right")
            stop = start + max(1, int(within))
            if costs[start:stop].any():
                keys, weighted = _needed_rows(rows, csr_array(shares[:, start:stop]))
                differences = stored.rows(keys + start * stored.item_count)
                for first in range(0, len(blended), _USERS_AT_ONCE):
                    block = slice(first, first + _USERS_AT_ONCE)
                    blended[block] += dense_product(csr_array(weighted[block]), differences)
        return blended

    def _blend_spread(self, rows: csr_array, shares: csr_array) -> torch.Tensor:
        """One Δ after the other is spread out in the same items × items array on the device, for its members.

        The entries of a community stay on the device while half of its memory is free.
        """
        stored, device = fitted(self.differences_, self), self.device or torch.device("cpu")
        if self._centre_on_device is None:
            self._centre_on_device = _weights_of(fitted(self.centre_, self)).to(device)
        centre = self._centre_on_device
        blended = torch.zeros(rows.shape, device=device)
        covered = np.flatnonzero(np.diff(shares.indptr))
        blended[torch.from_numpy(covered).to(device)] = SparseRows.of(
            csr_array(rows[covered]), device
        ).sum_of(centre)
        spread = torch.zeros_like(centre)
        by_community = shares.tocsc()
        for community in np.flatnonzero(np.diff(by_community.indptr)).tolist():
            part = slice(by_community.indptr[community], by_community.indptr[community + 1])
            members = by_community.indices[part].astype(np.int64)
            weighted = csr_array(rows[members])
            weighted.data *= np.repeat(by_community.data[part], np.diff(weighted.indptr))
            entries = self._on_device.get(community) or stored.on_device(community, device)
            free, total = torch.cuda.mem_get_info(device) if device.type == "cuda" else (1, 1)
            if free > total / 2:
                self._on_device[community] = entries
            places, values = entries
            spread.view(-1)[places] = values
            scores = SparseRows.of(weighted, device).sum_of(spread)
            blended.index_add_(0, torch.from_numpy(members).to(device), scores)
            spread.view(-1)[places] = 0
        return blended

    def similarities_of(self, number: int, item_rows: ItemRows) -> Scores:
        """One model's similarities, as its base finds them from weights; only the rows and columns wanted are dense."""
        centre: Any = fitted(self.centre_, self)
        first = number * self.count_items()
        stored = fitted(self.differences_, self)
        differences = stored.rows(np.arange(first, first + self.count_items()))  # (items, items)

        def incoming() -> Scores:
            columns = centre.weights_[:, item_rows] + differences[:, item_rows].toarray()
            return np.asarray(columns.T)

        outgoing = centre.weights_[item_rows] + differences[item_rows].toarray()
        similarities: Scores = centre.similarities_of_weights(outgoing, incoming)
        return similarities


def dense_product(first: csr_array, second: csr_array, *, may_load: bool = False) -> Scores:
    """The product of two sparse matrices as an array; four times as fast by MKL, where torch is loaded and has it."""
    is_there = may_load or "torch" in sys.modules
    has_mkl = is_there and bool(torch.backends.mkl.is_available())  # type: ignore[no-untyped-call]
    if not has_mkl or second.indices.dtype != np.int32:
        return np.asarray((first @ second).toarray())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # compressed rows are still called new
        left, right = (
            torch.sparse_csr_tensor(
                torch.from_numpy(one.indptr.astype(np.int32, copy=False)),
                torch.from_numpy(one.indices.astype(np.int32, copy=False)),
                torch.from_numpy(one.data),
                size=one.shape,
                check_invariants=False,
            )
            for one in (first, second)
        )
        return np.asarray(torch.addmm(torch.zeros(first.shape[0], second.shape[1]), left, right))


def _needed_rows(
    rows: csr_array, shares: csr_array, *, everything: bool = False
) -> tuple[npt.NDArray[np.int64], csr_array]:
    """The keys `community · items + item` that are needed, rising, and share · history over them, (users, keys)."""
    users, items = rows.shape
    lengths, members = np.diff(rows.indptr), np.diff(shares.indptr)
    owners = np.repeat(np.arange(users), members)  # the user of each share
    repeats = lengths[owners].astype(np.int64)
    ends = np.cumsum(repeats)
    places = np.arange(ends[-1] if len(ends) else 0) + np.repeat(
        rows.indptr[owners] - (ends - repeats), repeats
    )
    keys = np.repeat(shares.indices.astype(np.int64), repeats) * items + rows.indices[places]
    values = np.repeat(shares.data, repeats) * rows.data[places]
    used = np.zeros(shares.shape[1] * items, dtype=bool)
    used[keys] = True
    if everything or used.mean() > _SHARE_TO_READ_ALL:
        used[:] = True
    needed = np.flatnonzero(used)
    numbers = np.empty(len(used), dtype=np.int32)
    numbers[needed] = np.arange(len(needed), dtype=np.int32)
    starts = np.concatenate([[0], np.cumsum((lengths * members).astype(np.int64))]).astype(np.int32)
    return needed, csr_array((values, numbers[keys], starts), shape=(users, len(needed)))


def fit_differences(fits: ManyFits, centre: Any, max_bytes: int) -> EaseDifferences:
    """Solve every model, and store of each the largest differences to the fitted `centre`.

    A finished model is saved at the fit's checkpoint, and not solved again by a run that goes on.
    """
    base: Any = fits.models[0]
    count, checkpoint = len(fits.models), fits.data.context.checkpoint
    device = choose_device(fits.data.device)
    budget = SizeBudget.of(centre.count_items(), max_bytes)
    at_once = plan_solving(fits, budget, device)
    centre_weights = _weights_of(centre).to(device)
    # Room for all entries of all models, which are added without a second copy.
    columns = np.empty(count * budget.entries, dtype=budget.index_type)
    values = np.empty(count * budget.entries, dtype=budget.value_type)
    row_starts = np.zeros((count, budget.item_count + 1), dtype=np.uint32)
    offsets, scales = np.zeros(count + 1, dtype=np.int64), np.ones(count, dtype=np.float32)
    with bar(fits.name, count) as progress:
        for start in range(0, count, at_once):
            group = range(start, min(start + at_once, count))
            saved = {number: checkpoint.load(f"{fits.name} {number}") for number in group}
            missing = [fits.weights_of(number) for number in group if saved[number] is None]
            solutions = base.solve_each(fits.data.matrix, missing, device, fits.moments)
            for number in group:
                found = saved.pop(number)
                if found is None:
                    found = largest_differences(next(solutions), centre_weights, budget)
                    checkpoint.save(f"{fits.name} {number}", found)
                first = offsets[number]
                offsets[number + 1] = end = first + len(found["columns"])
                columns[first:end], values[first:end] = found["columns"], found["values"]
                row_starts[number], scales[number] = found["row_starts"], found["scales"][0]
                progress.advance()
    model = EaseDifferences()
    model.differences_ = CompressedWeights(columns[:end], values[:end], row_starts, offsets, scales)
    model.centre_ = centre
    return model.to(str(device))


def plan_solving(fits: ManyFits, budget: SizeBudget, device: torch.device) -> int:
    """Say how much memory is needed, refuse what does not fit, and give how many systems a GPU inverts at once.

    The device holds the centre and blocks of rows, in the users' system the (items, support) half product too, and for
    every system that is solved at once its square and its factor. As many small ones as half of a GPU's free memory
    holds are solved at once; larger ones fill it on their own.
    """
    base, count, matrix, what = fits.models[0], len(fits.models), fits.data.matrix, fits.name
    users, items = int((np.diff(matrix.indptr) > 0).sum()), matrix.shape[1]
    size, shared = min(users, items), 4 * (items**2 + 4 * _BLOCK_ROWS * items)
    if base.uses_order:
        one = bytes_to_solve_next(items, matrix.nnz, device)
    else:
        one, shared = 8 * size**2, shared + (4 * users * items if users < items else 0)
    name, on_host = (
        f"{what}: {count} local {type(base).__name__} models",
        count * budget.stored_bytes,
    )
    if device.type != "cuda":
        plan_memory(name, on_host + shared + one, _ADVICE)
        return 1
    plan_memory(name, on_host, _ADVICE)
    free, _ = torch.cuda.mem_get_info(device)
    if shared + one > free:
        lack = (
            f"{readable_bytes(shared + one)} of GPU memory needed, {readable_bytes(free)} are free"
        )
        raise DataError(f"{what}: {lack}; use the CPU or filter rare items")
    if base.uses_order or size > _LARGEST_BATCHED_SYSTEM:
        return 1
    at_once = min(max(1, int((free / 2 - shared) // one)), count, _MOST_AT_ONCE)
    say(
        f"{what}: {at_once} of up to {size:,} equations at once, {readable_bytes(shared + at_once * one)} of GPU"
    )
    return at_once


def is_centre_for(base: Recommender, model: Recommender | None) -> bool:
    """Return whether local copies of the base may be stored as differences to a model."""
    return type(model) is type(base) and get_params(model) == get_params(base)


def differences_memory(base: LinearModel, count: int, max_bytes: int, data: DataSize) -> MemoryUse:
    """What local models take that are stored as differences to a centre.

    One is solved like the base, beside the centre, its factor, blocks of rows and the entries that may be the largest;
    a GPU solves many small ones at once, and when it scores it holds differences in half of its free memory.
    """
    one, room, items = base.memory_bytes(data), SizeBudget.of(data.items, max_bytes), data.items
    stored, size = count * room.stored_bytes, min(data.users, items)
    solving = 4 * (2 * items**2 + 4 * _BLOCK_ROWS * items) + 64 * room.entries
    if size <= _LARGEST_BATCHED_SYSTEM:
        solving += 8 * min(count, _MOST_AT_ONCE) * size**2
    # While answers are blended: value, column and place of an entry, each with a copy on its way.
    blending = 24 * min(_ENTRIES_AT_ONCE, count * room.entries)
    if one.device:
        scoring = 8 * items**2 + min(
            12 * count * room.entries, free_bytes(choose_device(data.device)) // 2
        )
    return MemoryUse(
        main=stored + (data.row_bytes if one.device else max(one.main + solving, blending)),
        device=max(one.device + solving, scoring) if one.device else 0,
        main_after=stored,
        folder=stored,
        checkpoint=stored,
        device_name=one.device_name,
        advice=_ADVICE,
    )


@dataclass(frozen=True, kw_only=True)
class Differences(Loop):
    """Solve linear models (EASE, NextEASE), and store their largest differences to one centre.

    The centre is the global model, where that is like the local ones, or else one is fitted.

    Parameters
    ----------
    max_bytes : int, default 9000000
        What the differences of one model may take.

    Examples
    --------
    >>> loca.Loca(base=loca.EASE(), engine=loca.Differences(max_bytes=1_000_000)).engine
    Differences(max_bytes=1000000)
    """

    max_bytes: int = whole(MAX_BYTES)

    reads_global_model: ClassVar[bool] = True

    @classmethod
    def suits(cls, base: Recommender, n_items: int) -> bool:
        """Return whether dense weights of a linear model would take more."""
        return base.is_linear and 4 * n_items**2 > MAX_BYTES

    def check_base(self, base: Recommender) -> None:
        """Refuse a model without weights in closed form."""
        if not base.is_linear:
            raise ConfigError(
                "engine: Differences trains linear models such as EASE and NextEASE, "
                f"found {type(base).__name__}; leave the engine out"
            )

    def prepared(self, fits: ManyFits) -> ManyFits:
        """Return the fits with the centre as their global model."""
        return replace(fits, global_model=self.centre(fits))

    def solve(self, fits: ManyFits) -> LocalModels:
        """Solve one model after the other; a GPU solves many small ones at once."""
        return fit_differences(fits, self.centre(fits), self.max_bytes)

    def centre(self, fits: ManyFits) -> Any:
        """Return the model that the others are stored as differences to."""
        if is_centre_for(fits.base, fits.global_model):
            return fits.global_model
        everybody = replace(fits.data, user_weights=np.ones_like(fits.data.user_weights))
        return everybody.fit_part("centre", clone(fits.base))

    def memory(
        self,
        base: Any,
        n: int,
        size: DataSize,
        name: str,
        global_model: Recommender | None = None,
    ) -> dict[str, MemoryUse]:
        """Estimate the differences, and the centre where it is a model of its own."""
        steps: dict[str, MemoryUse] = {}
        if not is_centre_for(base, global_model):
            steps["centre of local models"] = base.memory_bytes(size)
        steps[name] = differences_memory(base, n, self.max_bytes, size)
        return steps


def _weights_of(model: Any) -> torch.Tensor:
    """The model's weights as a tensor over the same memory where that may be written to, else over a copy."""
    weights = fitted(model.weights_, model)
    return torch.from_numpy(weights if weights.flags.writeable else weights.copy())
