"""Local item-to-item weights in few bytes: the largest differences to a centre, checked, and read by rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor

from loca.errors import ConfigError, ModelFileError
from loca.models.ease_solver import WeightRows

Arrays = Mapping[str, npt.NDArray[Any]]
# The arrays of `CompressedWeights`, and the types that each may have.
ARRAY_TYPES = {
    "columns": ("u2", "u4"),
    "values": ("f2", "f4"),
    "row_starts": ("u4",),
    "scales": ("f4",),
    "offsets": ("i8",),
}
_ROWS_PER_BLOCK = 1024
_SAMPLED_ROWS = 512
# So many times the wanted entries are expected above the first threshold, which is read off a sample of rows.
_MARGIN = 1.3
# The largest value of a community becomes this, so that 16 bits hold values down to a billionth of it.
_LARGEST_IN_16_BITS = 32768.0
_LEAST_SCALE = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class SizeBudget:
    """How many entries of an items × items array one community may store, and in which types.

    Everything is stored in 32 bits where `local_bytes` allow that, else everything in 16, else the largest in 16.
    """

    item_count: int
    entries: int
    index_type: np.dtype[Any]
    value_type: np.dtype[Any]

    @classmethod
    def of(cls, item_count: int, local_bytes: int) -> Self:
        """What fits into `local_bytes`."""
        index_type = np.dtype(np.uint16 if item_count <= 65_536 else np.uint32)
        fixed, off_diagonal = 4 * (item_count + 2), item_count * (item_count - 1)  # row starts, and the scale
        whole = fixed + off_diagonal * (index_type.itemsize + 4)
        value_type = np.dtype(np.float32 if whole <= local_bytes else np.float16)
        entry = index_type.itemsize + value_type.itemsize
        if local_bytes < fixed + entry:
            raise ConfigError(
                f"local_bytes: expected at least {fixed + entry:,} for {item_count:,} items, found {local_bytes!r}"
            )
        return cls(item_count, min((local_bytes - fixed) // entry, max(off_diagonal, 1)), index_type, value_type)

    @property
    def stored_bytes(self) -> int:
        """What one community takes with all its entries, in memory and in its file."""
        entry = self.index_type.itemsize + self.value_type.itemsize
        return 4 * (self.item_count + 2) + 8 + self.entries * entry


@dataclass(frozen=True, eq=False)
class CompressedWeights:
    """The entries of all communities one after the other, rows in order.

    Row i of community j has the entries from offsets[j] + row_starts[j, i] to offsets[j] + row_starts[j, i + 1]; a
    weight is its value times scales[j].
    """

    columns: npt.NDArray[Any]  # (entries,)
    values: npt.NDArray[Any]  # (entries,)
    row_starts: npt.NDArray[Any]  # (communities, items + 1)
    offsets: npt.NDArray[Any]  # (communities + 1,)
    scales: npt.NDArray[Any]  # (communities,)

    def __post_init__(self) -> None:
        for name, types in ARRAY_TYPES.items():
            found = getattr(self, name).dtype
            if found not in [np.dtype(kind) for kind in types]:
                raise ModelFileError(f"EASE differences: {name} are {found}, expected {' or '.join(types)}")
        starts, offsets = self.row_starts, self.offsets
        if starts.ndim != 2 or starts.shape[1] < 2 or offsets.shape != (len(starts) + 1,):
            raise ModelFileError(f"EASE differences: {offsets.shape} offsets do not fit row starts {starts.shape}")
        if self.scales.shape != (len(starts),) or self.columns.ndim != 1 or self.columns.shape != self.values.shape:
            raise ModelFileError("EASE differences: expected one value per column and one scale per community")
        rising = (starts[:, 0] == 0).all() and (starts[:, 1:] >= starts[:, :-1]).all()
        if not (rising and offsets[0] == 0 and np.array_equal(np.diff(offsets), starts[:, -1].astype(np.int64))):
            raise ModelFileError("EASE differences: expected row starts that rise from 0 to each community's entries")
        if offsets[-1] != len(self.columns):
            raise ModelFileError(f"EASE differences: expected {offsets[-1]} entries, found {len(self.columns)}")
        if self.columns.max(initial=0) >= self.item_count:
            raise ModelFileError(f"EASE differences: expected columns below {self.item_count}, found one beyond")
        if not (np.isfinite(self.scales).all() and (self.scales > 0).all()):
            raise ModelFileError("EASE differences: expected finite scales above 0")

    def __len__(self) -> int:
        return len(self.row_starts)

    @property
    def item_count(self) -> int:
        """How many items there are."""
        return int(self.row_starts.shape[1] - 1)

    @cached_property
    def entry_counts(self) -> npt.NDArray[np.int64]:
        """How many entries each community has."""
        return np.diff(self.offsets)

    def rows(self, keys: npt.NDArray[np.int64]) -> csr_array:
        """The rows `community · items + item` of rising keys, in 32 bits, (keys, items)."""
        communities, items = np.divmod(keys, self.item_count)
        firsts = self.offsets[communities] + self.row_starts[communities, items]
        counts = self.row_starts[communities, items + 1].astype(np.int64) - self.row_starts[communities, items]
        starts = np.concatenate([[0], np.cumsum(counts)])  # (keys + 1,)
        places: Any
        if len(keys) and keys[-1] - keys[0] == len(keys) - 1:
            places = slice(int(firsts[0]), int(firsts[0] + starts[-1]))  # no gap between the rows
        else:
            places = np.arange(starts[-1]) + np.repeat(firsts - starts[:-1], counts)
        values = self.values[places].astype(np.float32)
        values *= np.repeat(self.scales[communities], counts)
        # One type for both, or scipy copies the longer array.
        kind = np.int32 if starts[-1] < 2**31 else np.int64
        columns = self.columns[places].astype(kind)
        return csr_array((values, columns, starts.astype(kind)), shape=(len(keys), self.item_count))

    def on_device(self, community: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Where the entries of one community stand in the flat items × items array, and their weights in 32 bits."""
        part = slice(int(self.offsets[community]), int(self.offsets[community + 1]))
        columns = torch.from_numpy(self.columns[part].astype(np.int32)).to(device)
        starts = torch.from_numpy(self.row_starts[community].astype(np.int64)).to(device)
        values = torch.from_numpy(np.array(self.values[part])).to(device, torch.float32)
        first_of_row = torch.arange(self.item_count, device=device) * self.item_count
        places = torch.repeat_interleave(first_of_row, starts.diff(), output_size=len(columns)) + columns
        return places, values * float(self.scales[community])


class Builder:
    """Collects the entries of `count` communities, from 0 on, without a second copy."""

    def __init__(self, count: int, budget: SizeBudget) -> None:
        self._columns = np.empty(count * budget.entries, dtype=budget.index_type)
        self._values = np.empty(count * budget.entries, dtype=budget.value_type)
        self._row_starts = np.zeros((count, budget.item_count + 1), dtype=np.uint32)
        self._offsets = np.zeros(count + 1, dtype=np.int64)
        self._scales = np.ones(count, dtype=np.float32)
        self._done = 0

    def add(self, arrays: Arrays) -> None:
        """Append what `largest_differences` found for the next community."""
        first = int(self._offsets[self._done])
        after = first + len(arrays["columns"])
        self._columns[first:after] = arrays["columns"]
        self._values[first:after] = arrays["values"]
        self._row_starts[self._done] = arrays["row_starts"]
        self._scales[self._done] = arrays["scales"][0]
        self._offsets[self._done + 1] = after
        self._done += 1

    def build(self) -> CompressedWeights:
        """Everything that was added."""
        end = int(self._offsets[-1])
        return CompressedWeights(self._columns[:end], self._values[:end], self._row_starts, self._offsets, self._scales)


def largest_differences(weight_rows: WeightRows, centre: Tensor, budget: SizeBudget) -> dict[str, npt.NDArray[Any]]:
    """The largest differences of item-to-item weights to the centre's, as arrays for `Builder.add`.

    They are exactly the `budget.entries` largest by size; among equal ones the first by row and column. A first
    threshold, from evenly spaced rows, is one that somewhat more differences exceed; it is lowered until enough do.
    """
    count, entries = len(centre), budget.entries
    threshold = 0.0
    if entries < count * (count - 1):
        sampled = torch.arange(0, count, max(1, count // _SAMPLED_ROWS), device=centre.device)
        sizes = (weight_rows(sampled) - centre[sampled]).abs_().flatten()
        above = int(_MARGIN * entries * len(sampled) / count)
        if above < len(sizes):
            threshold = float(sizes.kthvalue(len(sizes) - above).values)
        del sizes  # it may be as large as a block
    places, values = _differences_above(weight_rows, centre, threshold)
    while threshold > 0 and len(places) < entries:
        threshold = threshold / 2 if threshold > 1e-30 else 0.0
        places, values = _differences_above(weight_rows, centre, threshold)
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


def _differences_above(weight_rows: WeightRows, centre: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """The flat places and the values of all differences larger than the threshold, rows in order."""
    places, values = [], []
    for first in range(0, len(centre), _ROWS_PER_BLOCK):
        items = torch.arange(first, min(first + _ROWS_PER_BLOCK, len(centre)), device=centre.device)
        differences = weight_rows(items).sub_(centre[first : first + len(items)]).flatten()
        found = (differences.abs() > threshold).nonzero().flatten()
        places.append(found + first * len(centre))
        values.append(differences[found])
    return torch.cat(places), torch.cat(values)
