"""What every part of a plan depends on, the data and what is free, and a part with what else is known of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.sparse import csr_array

from loca.experiments.fit_plan import Machine, Part
from loca.local.stacked.memory import StackPlan

# Of sparse rows while they are solved: 64-bit values and columns, and once more the other way round.
BYTES_PER_ENTRY = 48


@dataclass(frozen=True, eq=False)
class Setting:
    """What every part depends on: the data, and the machine with what is still free there.

    `rank` is the seconds in which one user's best items are found, None where nothing is timed. `weighed` says whether
    histories are weighed by age.
    """

    matrix: csr_array
    machine: Machine
    rank: float | None
    weighed: bool = False

    @property
    def users(self) -> int:
        """The users with a history."""
        return int((np.diff(self.matrix.indptr) > 0).sum())

    @property
    def items(self) -> int:
        return int(self.matrix.shape[1])

    @property
    def stored(self) -> int:
        return int(self.matrix.nnz)

    def free_on(self, device: torch.device) -> int:
        """The bytes that are free on a device."""
        on_gpu = device.type == "cuda" and self.machine.free_on_device is not None
        return int(self.machine.free_on_device or 0) if on_gpu else self.machine.free_in_memory

    def may_time(self, device: torch.device, needed: int) -> bool:
        """Whether work that needs so many bytes is to be timed: not where they are not there."""
        return self.rank is not None and needed <= self.free_on(device)

    def judged(self, scoring: float | None, times: int = 1) -> float | None:
        """The seconds in which all users are judged so many times whom to score once takes `scoring`."""
        return None if scoring is None or self.rank is None else times * (scoring + self.users * self.rank)

    def untimed(self) -> Setting:
        """The setting of a part whose pace is known already."""
        return replace(self, rank=None)

    def after(self, part: Part) -> Setting:
        """The setting of what comes after a part: what stays of it is no longer free."""
        free = self.machine.free_on_device
        left = None if free is None else max(0, free - part.on_device.stays)
        in_memory = max(0, self.machine.free_in_memory - part.in_memory.stays)
        return replace(self, machine=replace(self.machine, free_on_device=left, free_in_memory=in_memory))


@dataclass(frozen=True)
class Planned:
    """A part, and what there is to know besides.

    `judging` is the seconds in which its answers are judged on validation, all times together; `scoring` those in which
    it answers all users once, without finding their best items.
    """

    part: Part
    judging: float | None = 0.0
    scoring: float | None = 0.0
    stack: StackPlan | None = None
    epochs: int | None = None
