"""What a fit would take before it is begun: memory on a GPU and in main memory, and the files of the model.

Every model says for itself what its fit takes (`memory_bytes`). Here are the data and the answers on validation that
lie beside it, the comparison with what the machine has free, and the plan as people and programs read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from loca.data.interactions import Interactions
from loca.errors import ConfigError
from loca.evaluation.top_n import block_rows
from loca.memory import DataSize, MemoryUse, available_bytes, readable_bytes
from loca.models.devices import free_bytes, ranking_bytes
from loca.models.recommender import Recommender
from loca.persistence.model_io import bytes_of_train_data
from loca.text_table import TextTable

# Sparse rows of the training part, of histories and targets to judge by, and a copy on its way.
_COPIES_OF_THE_DATA = 4
# Users × items: local and global scores, both times their shares, the sum, and a copy that is ranked.
_ARRAYS_WHILE_BLENDING = 6


@dataclass(frozen=True)
class Part:
    """One row of a plan: a fit, or what lies beside all fits (`throughout`), and what it takes at most."""

    name: str
    use: MemoryUse
    throughout: bool = False


@dataclass(frozen=True)
class FitPlan:
    """What `loca fit` would take, at most; the parts are those of the largest candidate.

    Parameters
    ----------
    model : the name of the model
    users, items, interactions : the size of the data
    parts : the data, the fits one after the other, and the answers on validation
    device : the GPU by name, "cpu" where none is used
    free_on_device : the bytes that are free there, None without a GPU
    free_in_memory : the bytes of main memory that are free
    free_on_disk : the bytes that are free for the model folder, None where no folder was named
    candidates : how many settings there are to choose from
    """

    model: str
    users: int
    items: int
    interactions: int
    parts: tuple[Part, ...]
    device: str
    free_on_device: int | None
    free_in_memory: int
    free_on_disk: int | None = None
    candidates: int = 1

    def peak(self, *, on_device: bool) -> tuple[int, Part]:
        """The most bytes at any time on the GPU or in main memory, and the part that is fitted then."""
        needs = [
            (part, part.use.device, part.use.device_after) if on_device else (part, part.use.main, part.use.main_after)
            for part in self.parts
        ]
        held = sum(most for part, most, _ in needs if part.throughout)
        peak, busiest = held, self.parts[0]
        for part, most, after in needs:
            if not part.throughout:
                if held + most > peak:
                    peak, busiest = held + most, part
                held += after
        return peak, busiest

    @property
    def in_folder(self) -> int:
        """The bytes of the model folder."""
        return sum(part.use.folder for part in self.parts)

    @property
    def unfinished(self) -> int:
        """The most bytes beside the model folder, from which an interrupted run goes on."""
        return max(part.use.checkpoint for part in self.parts)

    @property
    def problems(self) -> tuple[str, ...]:
        """One line with advice for each place that is too small; none where the plan fits."""
        (on_device, first), (in_memory, second) = self.peak(on_device=True), self.peak(on_device=False)
        on_disk, elsewhere = self.in_folder + self.unfinished, "free some space or choose another --out"
        places = (
            (f"{first.name} on {self.device}", on_device, self.free_on_device, first.use.advice),
            (f"{second.name} in main memory", in_memory, self.free_in_memory, second.use.advice),
            ("files", on_disk, self.free_on_disk, elsewhere),
        )
        return tuple(
            f"{what}: {readable_bytes(needed)} needed, {readable_bytes(free)} are free; {advice}"
            for what, needed, free, advice in places
            if free is not None and needed > free
        )

    def __str__(self) -> str:
        lines = [f"{self.model} on {self.users:,} users, {self.items:,} items, {self.interactions:,} interactions"]
        if self.candidates > 1:
            lines.append(f"the largest of {self.candidates} candidates")
        header = ("part", f"on {'a GPU' if self.free_on_device is None else self.device}", "in main memory")
        rows = []
        for part in self.parts:
            sizes = (part.use.device, part.use.main, part.use.folder)
            rows.append((part.name, *(readable_bytes(size) if size else "–" for size in sizes)))
        lines += ["", TextTable((*header, "in the folder"), tuple(rows)).plain(), ""]
        if self.free_on_device is not None:
            needed = readable_bytes(self.peak(on_device=True)[0])
            lines.append(f"{self.device}, at the peak: {needed} of {readable_bytes(self.free_on_device)} free")
        needed = readable_bytes(self.peak(on_device=False)[0])
        lines.append(f"main memory, at the peak: {needed} of {readable_bytes(self.free_in_memory)} free")
        folder = f"model folder: {readable_bytes(self.in_folder)}"
        if self.unfinished:
            folder += f", and up to {readable_bytes(self.unfinished)} beside it until it is saved, for --resume"
        if self.free_on_disk is not None:
            folder += f"; {readable_bytes(self.free_on_disk)} are free there"
        return "\n".join([*lines, folder, *([f"DOES NOT FIT: {line}" for line in self.problems] or ["it fits"])])

    def document(self) -> dict[str, Any]:
        """The same as JSON values; bytes are plain numbers, null where there is no GPU or no folder."""
        on_gpu = self.free_on_device is not None
        on_device = {"peak": self.peak(on_device=True)[0], "free": self.free_on_device} if on_gpu else None
        return {
            "model": self.model,
            "data": {"users": self.users, "items": self.items, "interactions": self.interactions},
            "device": self.device,
            "parts": [
                {
                    "name": part.name,
                    "on_device": part.use.device if on_gpu else None,
                    "in_memory": part.use.main,
                    "in_folder": part.use.folder,
                }
                for part in self.parts
            ],
            "on_device": on_device,
            "in_memory": {"peak": self.peak(on_device=False)[0], "free": self.free_in_memory},
            "on_disk": {"folder": self.in_folder, "unfinished": self.unfinished, "free": self.free_on_disk},
            "candidates": self.candidates,
            "fits": not self.problems,
            "problems": list(self.problems),
        }


def plan_fit(
    candidates: Sequence[Recommender],
    interactions: Interactions,
    *,
    name: str,
    validated: bool = True,
    free_on_disk: int | None = None,
) -> FitPlan:
    """The plan of choosing among the candidates on validation and fitting the choice; nothing large is allocated.

    Parameters
    ----------
    candidates : unfitted models, of which the one with the largest peak is shown
    interactions : what they would be fitted on
    name : the name of the model in the plan
    validated : whether candidates are judged on validation
    free_on_disk : the bytes that are free for the model folder, None where no folder was named

    Returns
    -------
    The plan, against the bytes that are free on this machine now.
    """
    if not candidates:
        raise ConfigError("nothing to plan: expected at least one candidate")
    matrix = interactions.matrix()
    size = DataSize.of(matrix, validated=validated)
    uses = [candidate.memory_bytes(size) for candidate in candidates]
    largest = max(uses, key=lambda use: (use.main + use.device, use.folder))
    steps = [Part(step, use) for step, use in largest.leaves("model")]
    gpu = next((part.use.device_name for part in steps if part.use.device), None)
    stored = matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes
    data = MemoryUse(main=_COPIES_OF_THE_DATA * stored, folder=bytes_of_train_data(interactions))
    parts = [Part("data", data, throughout=True), *steps]
    if validated:
        on_device = 0 if gpu is None else _answer_bytes(size, torch.device(gpu))
        answers = MemoryUse(main=_answer_bytes(size, torch.device("cpu")), device=on_device)
        parts.append(Part("answers on validation", answers, throughout=True))
    return FitPlan(
        model=name,
        users=interactions.n_users,
        items=interactions.n_items,
        interactions=len(interactions),
        parts=tuple(parts),
        device="cpu" if gpu is None else gpu,
        free_on_device=None if gpu is None else free_bytes(torch.device(gpu)),
        free_in_memory=available_bytes(),
        free_on_disk=free_on_disk,
        candidates=len(candidates),
    )


def _answer_bytes(size: DataSize, device: torch.device) -> int:
    """What a block of validation users takes while answers are blended and ranked."""
    rows = block_rows(size.items, budget=ranking_bytes(device))
    return _ARRAYS_WHILE_BLENDING * 4 * min(rows, size.users) * size.items
