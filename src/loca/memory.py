"""How much memory there is, what a fit takes of it, and a refusal before memory is taken that is not free."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from loca.errors import DataError
from loca.progress import say

MEMINFO, CGROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")
_WORTH_SAYING = 50_000_000


@dataclass(frozen=True)
class DataSize:
    """What the memory of a fit depends on, known before anything is allocated.

    Parameters
    ----------
    users : the users with a history
    items : the items
    entries : the stored pairs of a user and an item
    item_pairs : the pairs of items that some user has both of, at most
    validation_users : the users whose answers are judged on validation, 0 without validation
    device : where the fit computes: "cpu", "cuda", "cuda:1", or "auto", a GPU where there is one
    """

    users: int
    items: int
    entries: int
    item_pairs: int
    validation_users: int = 0
    device: str = "auto"

    @classmethod
    def of(cls, matrix: csr_array, *, validated: bool = True, device: str = "auto") -> DataSize:
        """The size of a users × items matrix; with validation every user is judged, at most."""
        lengths = np.diff(matrix.indptr).astype(np.int64)
        users, pairs = int((lengths > 0).sum()), min(int((lengths**2).sum()), matrix.shape[1] ** 2)
        judged = users if validated else 0
        return cls(users, matrix.shape[1], int(matrix.nnz), pairs, judged, device)

    @property
    def row_bytes(self) -> int:
        """Sparse rows while a model reads them: 64-bit values and columns, by user and by item."""
        return 48 * self.entries


@dataclass(frozen=True)
class MemoryUse:
    """The bytes that a fit takes, at most.

    Parameters
    ----------
    main, device : the peak in main memory and on a GPU while it is fitted
    main_after, device_after : what the fitted model holds there
    folder : the files of the fitted model
    training : of the peak, what lasts from epoch to epoch where the model learns by epochs (weights and optimizer)
    checkpoint : the files beside the folder from which an interrupted fit goes on
    device_name : the GPU, where `device` is not 0
    advice : what makes it smaller
    steps : the fits that it consists of, one after the other, where there are several
    """

    main: int = 0
    device: int = 0
    main_after: int = 0
    device_after: int = 0
    folder: int = 0
    training: int = 0
    checkpoint: int = 0
    device_name: str = "cuda"
    advice: str = "take a smaller model or filter rare items"
    steps: tuple[tuple[str, MemoryUse], ...] = ()

    @classmethod
    def in_turn(cls, steps: Mapping[str, MemoryUse]) -> MemoryUse:
        """Fits one after the other, where what each has fitted stays."""
        total = cls()
        for step in steps.values():
            total = cls(
                main=max(total.main, total.main_after + step.main),
                device=max(total.device, total.device_after + step.device),
                main_after=total.main_after + step.main_after,
                device_after=total.device_after + step.device_after,
                folder=total.folder + step.folder,
                checkpoint=max(total.checkpoint, step.checkpoint),
            )
        return replace(total, steps=tuple(steps.items()))

    def times(self, count: int) -> MemoryUse:
        """As many such models: fitted in turn, or trained side by side where they learn by epochs."""
        return replace(
            self,
            main=self.main + (count - 1) * (self.training or self.main_after),
            device=self.device + (count - 1) * (self.training or self.device_after)
            if self.device
            else 0,
            main_after=count * self.main_after,
            device_after=count * self.device_after,
            folder=count * self.folder,
            training=count * self.training,
            checkpoint=count * self.checkpoint,
            steps=(),
        )

    def leaves(self, name: str) -> Iterator[tuple[str, MemoryUse]]:
        """Every step that has no steps of its own, by its name; a model of one step has the name given."""
        if not self.steps:
            yield name, self
        for inner, step in self.steps:
            for leaf, use in step.leaves(""):
                yield f"{inner}: {leaf}" if leaf else inner, use


def available_bytes(meminfo: Path = MEMINFO, cgroup: Path = CGROUP) -> int:
    """Bytes of main memory that a program may still take: the kernel's estimate, capped by the container's limit."""
    if sys.platform == "win32":
        import ctypes

        status = (ctypes.c_uint64 * 8)(
            64
        )  # MEMORYSTATUSEX: its size and the load, the total, what is free, …
        ctypes.windll.kernel32.GlobalMemoryStatusEx(status)
        return int(status[2])
    # Outside Linux the total is the best that the standard library knows.
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError):
        estimates = [
            line.split()[1]
            for line in meminfo.read_text().splitlines()
            if line.startswith("MemAvailable:")
        ]
        free = int(estimates[0]) * 1024 if estimates else free
    with suppress(OSError):
        limit, used = (
            (cgroup / name).read_text().strip() for name in ("memory.max", "memory.current")
        )
        free = free if limit == "max" else min(free, max(int(limit) - int(used), 0))
    return free


def plan_memory(what: str, needed: int, advice: str) -> None:
    """Says that `what` needs so many bytes, where that is much, and refuses with `advice` where they are not free."""
    if needed > _WORTH_SAYING:
        say(f"{what}: {readable_bytes(needed)} of memory needed")
    free = available_bytes()
    if needed > free:
        raise DataError(
            f"{what}: {readable_bytes(needed)} of memory needed, {readable_bytes(free)} are free; {advice}"
        )


def readable_bytes(count: float) -> str:
    """`1.3 GB` for 1_300_000_000: the number of bytes as a person would write it."""
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit in ("B", "kB") else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
