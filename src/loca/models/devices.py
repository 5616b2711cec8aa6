"""Which device a model computes on, how much memory is free there, and sparse rows as torch sees them."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.deferred import torch
from loca.errors import ConfigError
from loca.evaluation.top_n import BLOCK_BYTES, AnyScores
from loca.memory import MemoryUse, available_bytes

if TYPE_CHECKING:
    from torch import Tensor

_DEVICES = "'auto', 'cpu' or 'cuda'"


def is_device(name: str) -> bool:
    """Whether models know how to use a device of that name."""
    return re.fullmatch(r"auto|(cpu|cuda)(:\d+)?", str(name)) is not None


def check_device(name: str) -> None:
    """Refuse a name that is not that of a device, and a GPU where there is none."""
    if name not in ("auto", "cpu"):  # these are always there: torch need not be loaded
        choose_device(name)


def choose_device(name: str) -> torch.device:
    """The device called `name`; `auto` takes a GPU where there is one."""
    if not is_device(name):
        raise ConfigError(f"device: expected {_DEVICES}, found {name!r}")
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device {name!r}: no GPU is to be seen; use 'cpu' or 'auto'")
    return device


def may_have_gpu() -> bool:
    """Whether torch might find a GPU; where there is no driver of one, torch is not loaded to ask."""
    if "torch" not in sys.modules and not os.path.exists("/dev/kfd"):
        try:
            ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
        except OSError:
            return False
    return torch.cuda.is_available()


def free_bytes(device: torch.device) -> int:
    """Bytes that a program may still take on a device, those that torch holds without using them included."""
    if device.type != "cuda":
        return available_bytes()
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0]) + unused


def ranking_bytes(device: torch.device | None) -> int:
    """What a block of users may take while its answers are ranked on a device; None: as arrays in main memory."""
    return max(
        BLOCK_BYTES, free_bytes(device) // 10 if device is not None and device.type == "cuda" else 0
    )


def memory_on(
    device: torch.device, peak: int, stored: int, *, main: int, after: tuple[int, int], **more: Any
) -> MemoryUse:
    """What a fit takes that has its peak on a device, and a model of `stored` bytes, in memory and in its folder.

    Where that device is a GPU, main memory takes `main` bytes meanwhile, and main memory and GPU hold `after` of them.
    """
    if device.type != "cuda":
        return MemoryUse(peak, 0, stored, 0, stored, device_name=str(device), **more)
    return MemoryUse(main, peak, *after, stored, device_name=str(device), **more)


@cache
def has_kernels(device: torch.device) -> bool:
    """Whether Triton kernels can be used on a device."""
    return device.type == "cuda" and importlib.util.find_spec("triton") is not None


def launching_on(device: torch.device) -> AbstractContextManager[Any]:
    """While it is open, kernels run on that device, where there are several; an interpreter of kernels needs none."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


@contextmanager
def float32_products(precision: Literal["highest", "high"] = "highest") -> Iterator[None]:
    """Products of 32-bit numbers with all bits (`high`: fewer, on a GPU), whatever the program around has set."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@dataclass(frozen=True)
class SparseRows:
    """Rows such as users' histories on a device: the stored columns one after the other, and where each row starts."""

    columns: Tensor  # (stored,)
    values: Tensor  # (stored,)
    starts: Tensor  # (users + 1,)
    moments: Tensor | None = (
        None  # (stored,): an entry's moment in its history; None where each is one of its own
    )

    @classmethod
    def of(
        cls,
        rows: csr_array,
        device: torch.device,
        moments: csr_array | None = None,
        kind: torch.dtype | None = None,
    ) -> SparseRows:
        """The stored entries of CSR rows on a device, in 32 bits or as another `kind`, and the moment of each."""
        columns, starts = (
            torch.from_numpy(one.astype(np.int64)).to(device) for one in (rows.indices, rows.indptr)
        )
        writable = np.require(rows.data, requirements="W")  # mapped files are copied
        values = torch.from_numpy(writable).to(device, torch.float32 if kind is None else kind)
        return cls(
            columns,
            values,
            starts,
            None if moments is None else torch.from_numpy(moments.data).to(device),
        )

    @property
    def user_count(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def owner(self) -> Tensor:
        """The user row of every stored entry."""
        users = torch.arange(self.user_count, device=self.starts.device)
        return torch.repeat_interleave(users, self.starts.diff(), output_size=len(self.columns))

    def places(self) -> Tensor:
        """The place of every stored entry in its user's history, 0 for the oldest; a moment is one place."""
        if self.moments is not None:
            return self.moments
        return torch.arange(len(self.columns), device=self.columns.device) - self.starts[self.owner]

    def place_counts(self) -> Tensor:
        """How many places each user's history has, (users,)."""
        lengths = self.starts.diff()
        if self.moments is None:
            return lengths
        # Oldest first: the last entry is of the newest moment. An empty history has no entry, whatever stands there.
        newest = self.moments[(self.starts[1:] - 1).clamp(min=0)]
        return torch.where(lengths > 0, newest + 1, 0)

    def of_users(self, users: Tensor) -> SparseRows:
        """The rows of some users, in the given order; a user may occur more than once."""
        lengths = self.starts.diff()[users]
        starts = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
        total = int(starts[-1])
        shift = torch.repeat_interleave(
            self.starts[users] - starts[:-1], lengths, output_size=total
        )
        places = torch.arange(total, device=users.device) + shift
        moments = None if self.moments is None else self.moments[places]
        return SparseRows(self.columns[places], self.values[places], starts, moments)

    def sum_of(self, table: Tensor, values: Tensor | None = None) -> Tensor:
        """Σ value · table row over each user's stored columns, (users, width); `values` stand in for the rows' own."""
        if not len(self.columns):
            return table.new_zeros(self.user_count, table.shape[1])
        values = self.values if values is None else values
        return torch.nn.functional.embedding_bag(
            self.columns, table, self.starts[:-1], mode="sum", per_sample_weights=values
        )

    def row_sums(self, of_entries: Tensor) -> Tensor:
        """The sum over each row of one number per entry, the same on every run."""
        entries = torch.arange(len(of_entries), device=of_entries.device)
        return torch.nn.functional.embedding_bag(
            entries, of_entries[:, None], self.starts, mode="sum", include_last_offset=True
        )[:, 0]

    def unit_values(self) -> Tensor:
        """The values with each user's row scaled to length 1; an empty row stays empty."""
        return unit_rows_of(self.values, self.owner, self.user_count)


def score_on(model: Any, histories: csr_array) -> AnyScores:
    """Any model's scores, (users, items): those of a network stay on its device, others are an array."""
    network = getattr(model, "network_", None)
    if network is not None:
        with torch.no_grad():
            scores: Tensor = network.answer(histories)
        return scores
    scored: npt.NDArray[np.float32] = model.score(histories)
    return scored


def unit_rows_of(values: Tensor, owner: Tensor, rows: int) -> Tensor:
    """Entries with each row scaled to length 1; a row of zeros stays one."""
    squares = torch.zeros(rows, device=values.device).index_add_(0, owner, values**2)
    return values / squares.sqrt().clamp_min(1e-12)[owner]
