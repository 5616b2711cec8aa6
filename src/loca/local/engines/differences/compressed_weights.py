"""Item-to-item weights of many communities, compressed: few entries, in few bits."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.deferred import torch
from loca.errors import ConfigError, ModelFileError
from loca.memory import available_bytes
from loca.persistence.learned import learned
from loca.persistence.manifest import Persistent
from loca.typing import FloatArray, IntArray

if TYPE_CHECKING:
    from torch import Tensor

# A service widens all rows once it has read so many times the entries that there are, …
_READS_BEFORE_WIDENING = 2
# … and where they take no more than this share of the free memory.
_SHARE_OF_FREE_MEMORY = 0.25
_WIDE_BYTES_PER_ENTRY = 8  # a value and a column, 32 bits each


@dataclass(frozen=True)
class SizeBudget:
    """How many entries of an items × items array one community may store, and in which types.

    Everything is stored in 32 bits where `max_bytes` allow that, else everything in 16, else the
    largest in 16.
    """

    item_count: int
    entries: int
    index_type: np.dtype[Any]
    value_type: np.dtype[Any]

    @classmethod
    def of(cls, item_count: int, max_bytes: int) -> Self:
        """Return what fits into `max_bytes`."""
        index_type = np.dtype(np.uint16 if item_count <= 65_536 else np.uint32)
        # Row starts and the scale.
        fixed = 4 * (item_count + 2)
        off_diagonal = item_count * (item_count - 1)
        bytes_in_32_bits = fixed + off_diagonal * (index_type.itemsize + 4)
        value_type = np.dtype(np.float32 if bytes_in_32_bits <= max_bytes else np.float16)
        entry = index_type.itemsize + value_type.itemsize
        if max_bytes < fixed + entry:
            least = f"{fixed + entry:,} for {item_count:,} items"
            raise ConfigError(f"max_bytes: expected at least {least}, found {max_bytes!r}")
        entries = min((max_bytes - fixed) // entry, max(off_diagonal, 1))
        return cls(item_count, entries, index_type, value_type)

    @property
    def stored_bytes(self) -> int:
        """What one community takes with all its entries, in memory and in its file."""
        entry = self.index_type.itemsize + self.value_type.itemsize
        return 4 * (self.item_count + 2) + 8 + self.entries * entry


@dataclass(frozen=True, eq=False)
class CompressedWeights(Persistent):
    """The entries of all communities one after the other, rows in order.

    Row i of community j has the entries from offsets[j] + row_starts[j, i] to
    offsets[j] + row_starts[j, i + 1]; a weight is its value times scales[j].
    """

    columns: npt.NDArray[Any] = learned("entries", dtype=(np.uint16, np.uint32))
    values: npt.NDArray[Any] = learned("entries", dtype=(np.float16, np.float32), finite=False)
    row_starts: npt.NDArray[np.uint32] = learned("communities", "items + 1", dtype=np.uint32)
    offsets: IntArray = learned("communities + 1", dtype=np.int64)
    scales: FloatArray = learned("communities")

    def check(self) -> None:
        """Refuse entries that do not lie where the row starts and offsets say."""
        starts = self.row_starts
        offsets = self.offsets
        if not starts.size or self.item_count < 1:
            raise ModelFileError(
                f"EASE differences: row starts {starts.shape} are those of no items"
            )
        rising = (starts[:, 0] == 0).all() and (starts[:, 1:] >= starts[:, :-1]).all()
        fitting = np.array_equal(np.diff(offsets), starts[:, -1].astype(np.int64))
        if not (rising and offsets[0] == 0 and fitting):
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

    def rows(self, keys: IntArray) -> csr_array:
        """Return the rows with the rising keys `community · items + item`, (keys, items).

        Their values have 32 bits.
        """
        communities, items = np.divmod(keys, self.item_count)
        firsts = self.offsets[communities] + self.row_starts[communities, items]
        ends = self.row_starts[communities, items + 1].astype(np.int64)
        counts = ends - self.row_starts[communities, items]
        starts = np.concatenate([[0], np.cumsum(counts)])  # (keys + 1,)
        positions = self._positions(keys, firsts, starts)
        values = self.values[positions].astype(np.float32)
        values *= np.repeat(self.scales[communities], counts)
        # One type for both, or scipy copies the longer array.
        kind = np.int32 if starts[-1] < 2**31 else np.int64
        columns = self.columns[positions].astype(kind)
        return csr_array((values, columns, starts.astype(kind)), shape=(len(keys), self.item_count))

    def _positions(self, keys: IntArray, firsts: IntArray, starts: IntArray) -> slice | IntArray:
        """Return where the entries of some rows stand: a slice where no row between is left out."""
        if not len(keys):
            return slice(0)
        if keys[-1] - keys[0] == len(keys) - 1:
            return slice(int(firsts[0]), int(firsts[0] + starts[-1]))
        return np.arange(starts[-1]) + np.repeat(firsts - starts[:-1], np.diff(starts))

    def all_rows(self) -> csr_array:
        """Return the rows of all communities, one community after the other."""
        return self.rows(np.arange(len(self) * self.item_count))

    def on_device(self, community: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return the positions of one community's entries in the flat array, and their weights.

        The array is items × items; both lie on the device, weights in 32 bits.
        """
        part = slice(int(self.offsets[community]), int(self.offsets[community + 1]))
        columns = torch.from_numpy(self.columns[part].astype(np.int32)).to(device)
        starts = torch.from_numpy(self.row_starts[community].astype(np.int64)).to(device)
        values = torch.from_numpy(np.array(self.values[part])).to(device, torch.float32)
        first_of_row = torch.arange(self.item_count, device=device) * self.item_count
        of_rows = torch.repeat_interleave(first_of_row, starts.diff(), output_size=len(columns))
        return of_rows + columns, values * float(self.scales[community])


class WideRows:
    """The rows of all communities in 32 bits, made once they have been read often enough.

    The answer to one user reads few rows. A service would widen the same ones for every batch: with
    all of them wide it answers 1.4 to 3.5 times as fast (2 cores, 40 communities of 3,000 items, 1
    to 512 users at once; `benchmarks/local_ease.py --wide`).
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._entries_read = 0
        self._rows: csr_array | None = None

    def __reduce__(self) -> tuple[type[WideRows], tuple[()]]:
        return WideRows, ()  # a copy begins anew

    def after_reading(self, weights: CompressedWeights, n_entries: int) -> csr_array | None:
        """Return all rows, where it is worth having them; else None, and count what is read."""
        with self._lock:
            self._entries_read += n_entries
            if self._rows is None and self._is_worth_it(len(weights.values)):
                self._rows = weights.all_rows()
            return self._rows

    def _is_worth_it(self, n_stored: int) -> bool:
        if self._entries_read < _READS_BEFORE_WIDENING * n_stored or n_stored >= 2**31:
            return False
        return _WIDE_BYTES_PER_ENTRY * n_stored <= _SHARE_OF_FREE_MEMORY * available_bytes()
