"""Local EASE models kept as their largest differences to one centre: fitted one after the other, answered together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array

from loca.errors import ConfigError, DataError, ModelFileError
from loca.local.compressed_weights import (
    ARRAY_TYPES,
    Arrays,
    Builder,
    CompressedWeights,
    SizeBudget,
    largest_differences,
)
from loca.local.local_models import one_for_each
from loca.memory import DataSize, MemoryUse, plan_memory, readable_bytes
from loca.models.devices import choose_device, free_bytes
from loca.models.ease import EASE
from loca.models.ease_solver import DeviceRows, WeightRows
from loca.models.next_ease import NextEASE, bytes_to_solve_next
from loca.models.recommender import ModelState, Recommender, Scores, UserWeights, check_histories, fitted, get_params
from loca.progress import Bar, bar, say

ItemToItem = EASE | NextEASE


def is_centre_for(base: ItemToItem, model: Recommender | None) -> bool:
    """Whether local copies of the base may be kept as differences to that model: the same one but for its device."""
    if type(model) is not type(base):
        return False
    asked, found = get_params(base), get_params(model)
    return all(found[name] == asked[name] for name in asked if name != "device")


def bytes_while_solving_next(items: int, stored: int, device: torch.device) -> int:
    """What the device holds while one local NextEASE is solved: that, the centre, and blocks of rows of both."""
    return bytes_to_solve_next(items, stored, device) + 4 * (items**2 + 4 * _BLOCK_ROWS * items)


LOCAL_BYTES = 9_000_000
_ENTRIES_AT_ONCE = 2**24
_USERS_AT_ONCE = 512
# Where so many of the rows are asked for, reading all in one go is quicker than picking them.
_SHARE_TO_READ_ALL = 0.2
# Larger systems fill a GPU on their own.
_LARGEST_BATCHED_SYSTEM = 512
_MOST_AT_ONCE = 64
_BLOCK_ROWS = 1024
_ADVICE = "take fewer communities, smaller local_bytes or filter rare items"


def check_local_bytes(local_bytes: int) -> None:
    """Refuses anything but a whole number of bytes."""
    if isinstance(local_bytes, bool) or not isinstance(local_bytes, int) or local_bytes < 1:
        raise ConfigError(f"local_bytes: expected a whole number ≥ 1, found {local_bytes!r}")


class EaseDifferences:
    """Local model j scores history · (centre + Δ_j), where Δ_j holds the largest differences to the centre's weights.

    At most `local_bytes` are kept of each local model; a small catalogue is kept whole.
    """

    def __init__(self, *, local_bytes: int = LOCAL_BYTES) -> None:
        check_local_bytes(local_bytes)
        self.local_bytes = local_bytes
        self.differences_: CompressedWeights | None = None
        self.centre_: ItemToItem | None = None
        self._device = choose_device("auto")
        self._on_device: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._centre_on_device: torch.Tensor | None = None

    def around(self, centre: ItemToItem, device: torch.device | None = None) -> Self:
        """Itself, with the model that the differences are differences to; answers come from `device`, if given."""
        kept = fitted(self.differences_, self)
        if centre.count_items() != kept.item_count:
            raise ModelFileError(
                f"EASE differences: expected a centre of {kept.item_count} items, found {centre.count_items()}"
            )
        self.centre_ = centre
        self._device = self._device if device is None else device
        self._centre_on_device = None
        self._on_device.clear()
        return self

    @property
    def device(self) -> torch.device:
        """Where the blended answers lie."""
        return self._device

    def __len__(self) -> int:
        return len(fitted(self.differences_, self))

    def count_items(self) -> int:
        """How many items they score."""
        return fitted(self.differences_, self).item_count

    def blend(self, histories: csr_array, answer_weights: csr_array) -> torch.Tensor:
        """Σ_j w_j · M_j(history) / Σ_j w_j, (users, items) on the device; an uncovered user's row is zero."""
        rows = check_histories(histories, self.count_items())
        if answer_weights.shape != (rows.shape[0], len(self)):
            raise DataError(
                f"answer_weights: expected {rows.shape[0]} users × {len(self)} communities, "
                f"found shape {answer_weights.shape}"
            )
        shares = _shares(csr_array(answer_weights))
        if self._device.type == "cpu":
            return torch.from_numpy(self._blend_sparse(rows, shares))
        return self._blend_dense(rows, shares)

    def score_with(self, number: int, histories: csr_array) -> Scores:
        """The scores of one local model alone, users × items."""
        only = one_for_each(np.full(histories.shape[0], number), len(self))
        return np.asarray(self.blend(histories, only).cpu().numpy(), dtype=np.float32)

    def _blend_sparse(self, rows: csr_array, shares: csr_array) -> Scores:
        """Only the rows of Δ that some member has in the history are read; all communities add up in one product."""
        kept = fitted(self.differences_, self)
        centre: ItemToItem = self.centre_ or fitted(None, self)
        covered = np.diff(shares.indptr) > 0
        blended = np.zeros(rows.shape, dtype=np.float32)
        blended[covered] = centre.score(csr_array(rows[covered]))
        for communities in _in_parts(kept, rows, shares):
            keys, asked = _ask_rows(rows, csr_array(shares[:, communities]), communities.start)
            differences = kept.rows(keys)
            for start in range(0, len(blended), _USERS_AT_ONCE):
                block = slice(start, start + _USERS_AT_ONCE)
                blended[block] += (asked[block] @ differences).toarray()
        return blended

    def _blend_dense(self, rows: csr_array, shares: csr_array) -> torch.Tensor:
        """One Δ after the other is spread out in the same items × items array on the device, for its members."""
        centre, device = self._centre(), self._device
        blended = torch.zeros(rows.shape, device=device)
        covered = np.flatnonzero(np.diff(shares.indptr))
        blended[torch.from_numpy(covered).to(device)] = DeviceRows.of(csr_array(rows[covered]), device).times(centre)
        spread = torch.zeros_like(centre)
        by_community = shares.tocsc()
        for community in np.flatnonzero(np.diff(by_community.indptr)):
            part = slice(by_community.indptr[community], by_community.indptr[community + 1])
            members = by_community.indices[part].astype(np.int64)
            weighted = csr_array(rows[members])
            weighted.data *= np.repeat(by_community.data[part], np.diff(weighted.indptr))
            places, values = self._differences(int(community))
            spread.view(-1)[places] = values
            scores = DeviceRows.of(weighted, device).times(spread)
            blended.index_add_(0, torch.from_numpy(members).to(device), scores)
            spread.view(-1)[places] = 0
        return blended

    def _centre(self) -> torch.Tensor:
        if self._centre_on_device is None:
            centre: ItemToItem = self.centre_ or fitted(None, self)
            self._centre_on_device = _weights_of(centre).to(self._device)
        return self._centre_on_device

    def _differences(self, community: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The entries of one community on the device, where they stay while half of its memory is free."""
        if community in self._on_device:
            return self._on_device[community]
        entries = fitted(self.differences_, self).on_device(community, self._device)
        free, total = torch.cuda.mem_get_info(self._device) if self._device.type == "cuda" else (1, 1)
        if free > total / 2:
            self._on_device[community] = entries
        return entries

    def state(self) -> ModelState:
        kept = fitted(self.differences_, self)
        return ModelState(arrays={name: getattr(kept, name) for name in ARRAY_TYPES})

    @classmethod
    def restore(cls, params: Mapping[str, Any], state: ModelState) -> Self:
        """The differences as they were saved, still without their centre; the arrays are not copied."""
        model = cls(**params)
        missing = set(ARRAY_TYPES) - set(state.arrays)
        if missing:
            raise ModelFileError(f"EASE differences: the arrays {', '.join(sorted(missing))} are missing")
        model.differences_ = CompressedWeights(**{name: state.arrays[name] for name in ARRAY_TYPES})
        return model


def fit_ease_differences(
    base: ItemToItem,
    centre: ItemToItem,
    matrix: csr_array,
    weights_of: Callable[[int], UserWeights],
    count: int,
    *,
    device: torch.device,
    local_bytes: int = LOCAL_BYTES,
    what: str = "local models",
    moments: csr_array | None = None,
    recall: Callable[[int], Arrays | None] = lambda number: None,
    keep: Callable[[int, Arrays], None] = lambda number, arrays: None,
) -> EaseDifferences:
    """Solves `count` copies of the base, copy j with the user weights `weights_of(j)`, and keeps what `centre` lacks.

    `moments` numbers the moments of the entries of `matrix`, for a base that learns from order. `keep(j, arrays)` is
    called when model j is done; where `recall(j)` gives such arrays, they are taken instead.
    """
    budget = SizeBudget.of(centre.count_items(), local_bytes)
    at_once = _plan(base, matrix, budget, count, device, what)
    centre_weights = _weights_of(centre).to(device)
    builder = Builder(count, budget)
    with bar(what, count) as progress:
        for start in range(0, count, at_once):
            group = range(start, min(start + at_once, count))
            recalled = {number: recall(number) for number in group}
            missing = [weights_of(number) for number in group if recalled[number] is None]
            solutions = base.solve_each(matrix, missing, device, moments)
            for arrays in _keep_group(recalled, solutions, centre_weights, budget, keep, progress):
                builder.add(arrays)
    model = EaseDifferences(local_bytes=local_bytes)
    model.differences_ = builder.build()
    return model.around(centre, device)


def _keep_group(
    recalled: dict[int, Arrays | None],
    solutions: Iterator[WeightRows],
    centre: torch.Tensor,
    budget: SizeBudget,
    keep: Callable[[int, Arrays], None],
    progress: Bar,
) -> Iterator[Arrays]:
    """What is kept of each model of a group, in order: as recalled, or else of the next solution."""
    for number in list(recalled):
        arrays = recalled.pop(number)
        if arrays is None:
            arrays = largest_differences(next(solutions), centre, budget)
            keep(number, arrays)
        progress.advance()
        yield arrays


def _plan(base: ItemToItem, matrix: csr_array, budget: SizeBudget, count: int, device: torch.device, what: str) -> int:
    """Says how much memory is needed, refuses what does not fit, and gives how many systems to invert at once."""
    users, items, on_host = int((np.diff(matrix.indptr) > 0).sum()), budget.item_count, count * budget.stored_bytes
    in_order = base.uses_order
    needed = bytes_while_solving_next(items, matrix.nnz, device) if in_order else bytes_while_solving(users, items)
    if device.type != "cuda":
        plan_memory(f"{what}: {count} local {type(base).__name__} models", on_host + needed, _ADVICE)
        return 1
    plan_memory(f"{what}: {count} local {type(base).__name__} models", on_host, _ADVICE)
    free, _ = torch.cuda.mem_get_info(device)
    if needed > free:
        raise DataError(
            f"{what}: {readable_bytes(needed)} of GPU memory needed, {readable_bytes(free)} are free; "
            "use the CPU or filter rare items"
        )
    if in_order:
        return 1
    at_once = systems_at_once(users, items, count, free)
    needed = bytes_while_solving(users, items, at_once)
    say(f"{what}: {at_once} of up to {min(users, items):,} equations at once, {readable_bytes(needed)} of GPU")
    return at_once


def bytes_while_solving(users: int, items: int, at_once: int = 1) -> int:
    """What the device holds while so many local systems are solved: squares and factors, and what they share.

    That is the centre, blocks of rows, and in the users' system the (items, support) half product.
    """
    size = min(users, items)
    shared = items**2 + 4 * _BLOCK_ROWS * items + (users * items if users < items else 0)
    return 4 * (shared + 2 * at_once * size**2)


def systems_at_once(users: int, items: int, count: int, free: int) -> int:
    """How many of `count` local systems a GPU solves at once: as many small ones as half of its free memory holds."""
    size, shared = min(users, items), bytes_while_solving(users, items, 0)
    fitting = max(1, int((free / 2 - shared) // (8 * size**2)))
    return min(fitting, count, _MOST_AT_ONCE) if size <= _LARGEST_BATCHED_SYSTEM else 1


def differences_memory(base: ItemToItem, count: int, local_bytes: int, data: DataSize) -> MemoryUse:
    """What local models take that are stored as differences to a centre.

    One is solved like the base, beside the centre, its factor, blocks of rows and the entries that may be the largest;
    a GPU solves many small ones at once, and when it scores it holds differences in half of its free memory.
    """
    one, room, items = base.memory_bytes(data), SizeBudget.of(data.items, local_bytes), data.items
    stored, size = count * room.stored_bytes, min(data.users, items)
    solving = 4 * (2 * items**2 + 4 * _BLOCK_ROWS * items) + 64 * room.entries
    if size <= _LARGEST_BATCHED_SYSTEM:
        solving += 8 * min(count, _MOST_AT_ONCE) * size**2
    # While answers are blended: value, column and place of an entry, each with a copy on its way.
    blending = 24 * min(_ENTRIES_AT_ONCE, count * room.entries)
    if one.device:
        scoring = 8 * items**2 + min(12 * count * room.entries, free_bytes(choose_device(base.device)) // 2)
    return MemoryUse(
        main=stored + (data.row_bytes if one.device else max(one.main + solving, blending)),
        device=max(one.device + solving, scoring) if one.device else 0,
        main_after=stored,
        folder=stored,
        checkpoint=stored,
        device_name=one.device_name,
        advice=_ADVICE,
    )


def _weights_of(model: ItemToItem) -> torch.Tensor:
    """The model's weights as a tensor over the same memory where that may be written to, else over a copy."""
    weights = fitted(model.weights_, model)
    return torch.from_numpy(weights if weights.flags.writeable else weights.copy())


def _shares(answer_weights: csr_array) -> csr_array:
    """Answer weights without zeros, scaled to sum 1 in the row of every covered user."""
    shares = answer_weights.astype(np.float64)
    shares.eliminate_zeros()
    totals = np.asarray(shares.sum(axis=1)).ravel()
    shares.data /= np.repeat(totals, np.diff(shares.indptr))
    return csr_array(shares.astype(np.float32))


def _in_parts(kept: CompressedWeights, rows: csr_array, shares: csr_array) -> Iterator[slice]:
    """Communities in ranges, so that the rows read for the members of one range are of a bounded size."""
    lengths = np.diff(rows.indptr).astype(np.int64)
    by_community = csr_array(shares.T.tocsr())
    asked = np.zeros(len(kept), dtype=np.int64)  # rows of Δ_j that its members ask for, counted once per member
    np.add.at(asked, np.repeat(np.arange(len(kept)), np.diff(by_community.indptr)), lengths[by_community.indices])
    per_row = kept.entry_counts / kept.item_count
    costs = np.minimum(kept.entry_counts, asked * per_row) + asked
    start = 0
    while start < len(kept):
        within = np.searchsorted(np.cumsum(costs[start:]), _ENTRIES_AT_ONCE, side="right")
        stop = start + max(1, int(within))
        if costs[start:stop].any():
            yield slice(start, stop)
        start = stop


def _ask_rows(rows: csr_array, shares: csr_array, first: int) -> tuple[npt.NDArray[np.int64], csr_array]:
    """The keys `community · items + item` that are asked for, rising, and share · history over them, (users, keys)."""
    users, items = rows.shape
    lengths, members = np.diff(rows.indptr), np.diff(shares.indptr)
    pairs = (lengths * members).astype(np.int64)  # (users,): every item of the history for every community
    owners = np.repeat(np.arange(users), members)  # the user of each share
    repeats = lengths[owners].astype(np.int64)
    ends = np.cumsum(repeats)
    places = np.arange(ends[-1] if len(ends) else 0) + np.repeat(rows.indptr[owners] - (ends - repeats), repeats)
    keys = np.repeat(shares.indices.astype(np.int64), repeats) * items + rows.indices[places]
    values = np.repeat(shares.data, repeats) * rows.data[places]
    used = np.zeros(shares.shape[1] * items, dtype=bool)
    used[keys] = True
    if used.mean() > _SHARE_TO_READ_ALL:
        used[:] = True
    wanted = np.flatnonzero(used)
    renumbered = np.empty(len(used), dtype=np.int32)
    renumbered[wanted] = np.arange(len(wanted), dtype=np.int32)
    starts = np.concatenate([[0], np.cumsum(pairs)]).astype(np.int32)
    asked = csr_array((values, renumbered[keys], starts), shape=(users, len(wanted)))
    return wanted + first * items, asked


def put_centre(local: EaseDifferences, centre: Any) -> None:
    """Gives differences of EASE models the model that they are differences to."""
    if not isinstance(centre, ItemToItem):
        raise ModelFileError(
            f"expected an EASE or NextEASE that the local models differ from, found {type(centre).__name__}"
        )
    local.around(centre)
