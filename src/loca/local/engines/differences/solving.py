"""Solve linear models, and store of each its largest differences to the centre."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from loca.deferred import torch
from loca.errors import DataError
from loca.local.engines.differences.compressed_weights import CompressedWeights, SizeBudget
from loca.local.engines.differences.ease_differences import (
    ENTRIES_AT_ONCE,
    EaseDifferences,
    weights_of,
)
from loca.local.engines.engine import ManyFits
from loca.memory import DataSize, MemoryUse, plan_memory, readable_bytes
from loca.models.devices import choose_device, free_bytes
from loca.models.ease_solver import WeightRows
from loca.models.protocols import as_linear
from loca.models.recommender import Recommender
from loca.progress import bar, say

if TYPE_CHECKING:
    from torch import Tensor

_SAMPLED_ROWS = 512
# So many times the entries that are stored are expected above the first threshold, which is read
# off a sample of rows.
_MARGIN = 1.3
# The largest value of a community becomes this, so that 16 bits hold values down to a billionth.
_LARGEST_IN_16_BITS = 32768.0
_LEAST_SCALE = float(np.finfo(np.float32).tiny)
_BLOCK_ROWS = 1024
_BYTES_TO_CHOOSE_AN_ENTRY = 64
# While answers are blended: value, column and position of an entry, each with a copy on its way.
_BYTES_TO_BLEND_AN_ENTRY = 24
_DEVICE_BYTES_PER_ENTRY = 12
_ADVICE = "take fewer communities, smaller max_bytes or filter rare items"

Arrays = dict[str, npt.NDArray[Any]]


def solve_differences(fits: ManyFits, centre: Recommender, max_bytes: int) -> EaseDifferences:
    """Solve every model, and store of each the largest differences to the fitted centre.

    A finished model is saved at the fit's checkpoint, and not solved again by a run that goes on.
    """
    device = choose_device(fits.data.device)
    budget = SizeBudget.of(centre.count_items(), max_bytes)
    at_once = plan_solving(fits, budget, device)
    centre_weights = weights_of(as_linear(centre)).to(device)
    stored = _GrowingWeights(budget, len(fits))
    with bar(fits.name, len(fits)) as progress:
        for start in range(0, len(fits), at_once):
            numbers = range(start, min(start + at_once, len(fits)))
            for arrays in _solved(fits, numbers, centre_weights, budget):
                stored.append(arrays)
                progress.advance()
    models = EaseDifferences()
    models.differences_ = stored.finished()
    models.centre_ = centre
    return models.to(str(device))


def _solved(fits: ManyFits, numbers: range, centre: Tensor, budget: SizeBudget) -> Iterator[Arrays]:
    """Yield the stored arrays of some models, from the checkpoint or solved together."""
    checkpoint = fits.data.context.checkpoint
    saved = {number: checkpoint.load(_saved_name(fits, number)) for number in numbers}
    weights = [fits.weights_of(number) for number in numbers if saved[number] is None]
    base = as_linear(fits.base)
    solutions = base.solve_each(fits.data.matrix, weights, centre.device, fits.moments)
    for number in numbers:
        arrays = saved.pop(number)
        if arrays is None:
            arrays = largest_differences(next(solutions), centre, budget)
            checkpoint.save(_saved_name(fits, number), arrays)
        yield arrays


def _saved_name(fits: ManyFits, number: int) -> str:
    return f"{fits.name} {number}"


class _GrowingWeights:
    """Weights to which one model after the other is added, without a second copy of any."""

    def __init__(self, budget: SizeBudget, n_models: int) -> None:
        n_entries = n_models * budget.entries
        self._columns = np.empty(n_entries, dtype=budget.index_type)
        self._values = np.empty(n_entries, dtype=budget.value_type)
        self._row_starts = np.zeros((n_models, budget.item_count + 1), dtype=np.uint32)
        self._offsets = np.zeros(n_models + 1, dtype=np.int64)
        self._scales = np.ones(n_models, dtype=np.float32)
        self._n_models = 0

    def append(self, arrays: Arrays) -> None:
        """Add what `largest_differences` gave for the next model."""
        number = self._n_models
        first = self._offsets[number]
        end = first + len(arrays["columns"])
        self._columns[first:end] = arrays["columns"]
        self._values[first:end] = arrays["values"]
        self._row_starts[number] = arrays["row_starts"]
        self._scales[number] = arrays["scales"][0]
        self._offsets[number + 1] = end
        self._n_models += 1

    def finished(self) -> CompressedWeights:
        """Return the weights of all models."""
        end = self._offsets[-1]
        return CompressedWeights(
            self._columns[:end], self._values[:end], self._row_starts, self._offsets, self._scales
        )


def largest_differences(weight_rows: WeightRows, centre: Tensor, budget: SizeBudget) -> Arrays:
    """Return the largest differences of item-to-item weights to the centre's, for one model.

    They are exactly the `budget.entries` largest by size; among equal ones the first by row and
    column.
    """
    n_items = len(centre)
    positions, values = _above_threshold(weight_rows, centre, budget)
    if len(values) > budget.entries:
        is_kept = _largest(values, budget.entries)
        positions = positions[is_kept]
        values = values[is_kept]
    rows = torch.div(positions, n_items, rounding_mode="floor")
    row_ends = torch.bincount(rows, minlength=n_items).cumsum(0)
    is_half = budget.value_type == np.float16
    scale = _scale_for_16_bits(values) if is_half else 1.0
    kind = torch.float16 if is_half else torch.float32
    columns = (positions % n_items).to(torch.int32)
    return {
        "columns": columns.cpu().numpy().astype(budget.index_type),
        "values": (values / scale).to(kind).cpu().numpy(),
        "row_starts": np.concatenate([[0], row_ends.cpu().numpy()]).astype(np.uint32),
        "scales": np.array([scale], dtype=np.float32),
    }


def _above_threshold(
    weight_rows: WeightRows, centre: Tensor, budget: SizeBudget
) -> tuple[Tensor, Tensor]:
    """Return flat positions and values of enough differences, rows in order.

    A first threshold is one that somewhat more differences exceed; it is lowered until enough do.
    """
    threshold = _first_threshold(weight_rows, centre, budget)
    while True:
        positions, values = _larger_than(threshold, weight_rows, centre)
        if threshold == 0 or len(positions) >= budget.entries:
            return positions, values
        threshold = threshold / 2 if threshold > 1e-30 else 0.0


def _first_threshold(weight_rows: WeightRows, centre: Tensor, budget: SizeBudget) -> float:
    """Return a threshold read off evenly spaced rows; 0 where everything is stored."""
    n_items = len(centre)
    if budget.entries >= n_items * (n_items - 1):
        return 0.0
    sampled = torch.arange(0, n_items, max(1, n_items // _SAMPLED_ROWS), device=centre.device)
    sizes = (weight_rows(sampled) - centre[sampled]).abs_().flatten()
    n_expected = int(_MARGIN * budget.entries * len(sampled) / n_items)
    if n_expected >= len(sizes):
        return 0.0
    return float(sizes.kthvalue(len(sizes) - n_expected).values)


def _larger_than(
    threshold: float, weight_rows: WeightRows, centre: Tensor
) -> tuple[Tensor, Tensor]:
    """Return flat positions and values of the differences above a threshold, rows in order."""
    n_items = len(centre)
    all_positions: list[Tensor] = []
    all_values: list[Tensor] = []
    for first in range(0, n_items, _BLOCK_ROWS):
        items = torch.arange(first, min(first + _BLOCK_ROWS, n_items), device=centre.device)
        differences = weight_rows(items).sub_(centre[first : first + len(items)]).flatten()
        positions = (differences.abs() > threshold).nonzero().flatten()
        all_positions.append(positions + first * n_items)
        all_values.append(differences[positions])
    return torch.cat(all_positions), torch.cat(all_values)


def _largest(values: Tensor, n: int) -> Tensor:
    """Return which values are the `n` largest by size; among equal ones the first are."""
    sizes = values.abs()
    least = sizes.kthvalue(len(sizes) - n + 1).values
    is_largest = sizes > least
    equal = (sizes == least).nonzero().flatten()
    is_largest[equal[: n - int(is_largest.sum())]] = True
    return is_largest


def _scale_for_16_bits(values: Tensor) -> float:
    largest = float(values.abs().max()) if len(values) else 0.0
    return max(float(np.float32(largest / _LARGEST_IN_16_BITS)), _LEAST_SCALE)


def plan_solving(fits: ManyFits, budget: SizeBudget, device: torch.device) -> int:
    """Return how many models a device solves at once; refuse what its memory does not hold.

    The device holds the centre, blocks of rows, and what the base needs for its equations. As many
    small systems as half of a GPU's free memory holds are solved at once.
    """
    n_models = len(fits)
    size = DataSize.of(fits.data.matrix)
    solving = as_linear(fits.base).bytes_to_solve(size, device)
    shared = _bytes_beside_equations(size.items) + solving.shared
    name = f"{fits.name}: {n_models} local {type(fits.base).__name__} models"
    on_host = n_models * budget.stored_bytes
    if device.type != "cuda":
        plan_memory(name, on_host + shared + solving.each, _ADVICE)
        return 1
    plan_memory(name, on_host, _ADVICE)
    free, _ = torch.cuda.mem_get_info(device)
    if shared + solving.each > free:
        needed = f"{readable_bytes(shared + solving.each)} of GPU memory needed"
        raise DataError(
            f"{fits.name}: {needed}, {readable_bytes(free)} are free; "
            "use the CPU or filter rare items"
        )
    if solving.at_once == 1:
        return 1
    n_fitting = int((free / 2 - shared) // solving.each)
    at_once = min(max(1, n_fitting), n_models, solving.at_once)
    taken = readable_bytes(shared + at_once * solving.each)
    n_equations = min(size.users, size.items)
    say(f"{fits.name}: {at_once} of up to {n_equations:,} equations at once, {taken} of GPU")
    return at_once


def _bytes_beside_equations(n_items: int) -> int:
    """Return what the centre and blocks of rows take."""
    return 4 * (n_items**2 + 4 * _BLOCK_ROWS * n_items)


def differences_memory(base: Recommender, n: int, max_bytes: int, size: DataSize) -> MemoryUse:
    """Estimate the memory of models that are stored as differences to a centre.

    One is solved like the base, beside the centre, its factor, blocks of rows and the entries that
    may be the largest; a GPU solves many small ones at once, and when it scores it holds
    differences in half of its free memory.
    """
    of_base = base.memory_bytes(size)
    budget = SizeBudget.of(size.items, max_bytes)
    stored = n * budget.stored_bytes
    device = choose_device(size.device)
    equations = as_linear(base).bytes_to_solve(size, device)
    solving = _bytes_beside_equations(size.items) + 4 * size.items**2
    solving += _BYTES_TO_CHOOSE_AN_ENTRY * budget.entries
    if equations.at_once > 1:
        solving += min(n, equations.at_once) * equations.each
    main = max(of_base.main + solving, _bytes_to_blend(n, budget))
    on_device = 0
    if of_base.device:
        main = size.row_bytes
        entries = min(_DEVICE_BYTES_PER_ENTRY * n * budget.entries, free_bytes(device) // 2)
        on_device = max(of_base.device + solving, 8 * size.items**2 + entries)
    return MemoryUse(
        main=stored + main,
        device=on_device,
        main_after=stored,
        folder=stored,
        checkpoint=stored,
        device_name=of_base.device_name,
        advice=_ADVICE,
    )


def _bytes_to_blend(n_models: int, budget: SizeBudget) -> int:
    return _BYTES_TO_BLEND_AN_ENTRY * min(ENTRIES_AT_ONCE, n_models * budget.entries)
