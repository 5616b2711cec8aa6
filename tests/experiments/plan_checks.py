"""Plans without their times, their parts by name, and a count of the bytes that torch really takes."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from loca.data.interactions import Interactions
from loca.experiments.fit_plan import FitPlan, Part
from loca.experiments.planning import plan_fit
from loca.models.recommender import Recommender


def plan_of(model: Recommender, data: Interactions, **asked: Any) -> FitPlan:
    return plan_fit([model], data, name="model", **{"timed": False, **asked})


def part_of(plan: FitPlan, name: str) -> Part:
    (found,) = [part for part in plan.parts if part.name == name]
    return found


class Watched(TorchDispatchMode):
    """Counts the bytes of all tensors that torch makes and that still live."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self.seen: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for one in out if isinstance(out, tuple | list) else (out,):
            if isinstance(one, torch.Tensor) and one.untyped_storage().data_ptr() not in self.seen:
                self.add(one.untyped_storage())
        return out

    def add(self, storage: torch.UntypedStorage) -> None:
        place, size = storage.data_ptr(), storage.nbytes()
        self.seen.add(place)
        self.now += size
        self.peak = max(self.peak, self.now)

        def drop() -> None:
            self.seen.discard(place)
            self.now -= size

        weakref.finalize(storage, drop)
