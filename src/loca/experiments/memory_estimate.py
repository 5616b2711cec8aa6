"""What a fit would take before it is begun: memory on a GPU and in main memory, and the files of the model.

Every model says for itself what its fit takes (`memory_bytes`). Here are the data and the answers on validation that
lie beside it, the comparison with what the machine has free, and the plan as people and programs read it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from loca.data.interactions import Interactions
from loca.deferred import torch
from loca.errors import ConfigError
from loca.evaluation.top_n import block_rows
from loca.memory import DataSize, MemoryUse, available_bytes, readable_bytes
from loca.models.devices import free_bytes, ranking_bytes
from loca.models.recommender import Recommender
from loca.persistence.train_data import bytes_of_train_data
from loca.text_table import TextTable

# Sparse rows of the training part, of histories and targets to judge by, and a copy on its way.
_COPIES_OF_THE_DATA = 4
# Users × items: local and global scores, both times their shares, the sum, and a copy that is ranked.
_ARRAYS_WHILE_BLENDING = 6


@dataclass(frozen=True, eq=False)
class FitPlan:
    """What `loca fit` would take, at most.

    Parameters
    ----------
    model : the name of the model
    data : what it would be fitted on
    fits : the fits of the largest candidate, one after the other; what each has fitted stays
    beside : what lies beside all of them: the data, and answers on validation
    free_in_memory : the bytes of main memory that are free
    device, free_on_device : the GPU by name and the bytes that are free there, "cpu" and None where none is used
    free_on_disk : the bytes that are free for the model folder, None where no folder was named
    candidates : how many settings there are to choose from
    """

    model: str
    data: Interactions
    fits: Mapping[str, MemoryUse]
    beside: Mapping[str, MemoryUse]
    free_in_memory: int
    device: str = "cpu"
    free_on_device: int | None = None
    free_on_disk: int | None = None
    candidates: int = 1

    @property
    def parts(self) -> dict[str, MemoryUse]:
        """The data, the fits, and the answers on validation, in this order."""
        return {"data": self.beside["data"], **self.fits, **self.beside}

    def peak(self, place: Literal["main", "device"]) -> tuple[int, str]:
        """The most bytes at any time in main memory or on the GPU, and what is fitted then."""
        held = sum(vars(use)[place] for use in self.beside.values())
        peak, busiest = held, "data"
        for name, use in self.fits.items():
            if held + vars(use)[place] > peak:
                peak, busiest = held + vars(use)[place], name
            held += vars(use)[f"{place}_after"]
        return peak, busiest

    @property
    def in_folder(self) -> int:
        """The bytes of the model folder."""
        return sum(use.folder for use in self.parts.values())

    @property
    def unfinished(self) -> int:
        """The most bytes beside the model folder, from which an interrupted run goes on."""
        return max(use.checkpoint for use in self.parts.values())

    @property
    def problems(self) -> tuple[str, ...]:
        """One line with advice for each place that is too small; none where the plan fits."""
        (on_device, first), (in_memory, second) = self.peak("device"), self.peak("main")
        on_disk, elsewhere = (
            self.in_folder + self.unfinished,
            "free some space or choose another --out",
        )
        places = (
            (f"{first} on {self.device}", on_device, self.free_on_device, self.parts[first].advice),
            (f"{second} in main memory", in_memory, self.free_in_memory, self.parts[second].advice),
            ("files", on_disk, self.free_on_disk, elsewhere),
        )
        return tuple(
            f"{what}: {readable_bytes(needed)} needed, {readable_bytes(free)} are free; {advice}"
            for what, needed, free, advice in places
            if free is not None and needed > free
        )

    def __str__(self) -> str:
        users, items = self.data.n_users, self.data.n_items
        lines = [
            f"{self.model} on {users:,} users, {items:,} items, {len(self.data):,} interactions"
        ]
        if self.candidates > 1:
            lines.append(f"the largest of {self.candidates} candidates")
        on_gpu = f"on {'a GPU' if self.free_on_device is None else self.device}"
        rows = []
        for name, use in self.parts.items():
            sizes = (
                readable_bytes(size) if size else "–" for size in (use.device, use.main, use.folder)
            )
            rows.append((name, *sizes))
        lines += [
            "",
            TextTable(("part", on_gpu, "in main memory", "in the folder"), tuple(rows)).plain(),
            "",
        ]
        on_device, in_memory = self.peak("device")[0], self.peak("main")[0]
        places = (
            (self.device, on_device, self.free_on_device),
            ("main memory", in_memory, self.free_in_memory),
        )
        for what, needed, free in places:
            if free is not None:
                lines.append(
                    f"{what}, at the peak: {readable_bytes(needed)} of {readable_bytes(free)} free"
                )
        folder = f"model folder: {readable_bytes(self.in_folder)}"
        if self.unfinished:
            folder += f", and up to {readable_bytes(self.unfinished)} beside it until it is saved, for --resume"
        if self.free_on_disk is not None:
            folder += f"; {readable_bytes(self.free_on_disk)} are free there"
        return "\n".join(
            [*lines, folder, *([f"DOES NOT FIT: {line}" for line in self.problems] or ["it fits"])]
        )

    def document(self) -> dict[str, Any]:
        """The same as JSON values; bytes are plain numbers, null where there is no GPU or no folder."""
        on_gpu, data = self.free_on_device is not None, self.data
        parts = []
        for name, use in self.parts.items():
            on_device = use.device if on_gpu else None
            parts.append(
                {
                    "name": name,
                    "on_device": on_device,
                    "in_memory": use.main,
                    "in_folder": use.folder,
                }
            )
        return {
            "model": self.model,
            "data": {"users": data.n_users, "items": data.n_items, "interactions": len(data)},
            "device": self.device,
            "parts": parts,
            "on_device": {"peak": self.peak("device")[0], "free": self.free_on_device}
            if on_gpu
            else None,
            "in_memory": {"peak": self.peak("main")[0], "free": self.free_in_memory},
            "on_disk": {
                "folder": self.in_folder,
                "unfinished": self.unfinished,
                "free": self.free_on_disk,
            },
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
    device: str = "auto",
    free_on_disk: int | None = None,
) -> FitPlan:
    """The plan of choosing among the candidates on validation and fitting the choice; nothing large is allocated.

    Parameters
    ----------
    candidates : unfitted models, of which the one with the largest peak is shown
    interactions : what they would be fitted on
    name : the name of the model in the plan
    validated : whether candidates are judged on validation
    device : where they would be fitted, as for `fit`
    free_on_disk : the bytes that are free for the model folder, None where no folder was named

    Returns
    -------
    The plan, against the bytes that are free on this machine now.
    """
    if not candidates:
        raise ConfigError("nothing to plan: expected at least one candidate")
    matrix = interactions.matrix()
    size = DataSize.of(matrix, validated=validated, device=device)
    uses = [candidate.memory_bytes(size) for candidate in candidates]
    fits = dict(max(uses, key=lambda use: (use.main + use.device, use.folder)).leaves("model"))
    names = [use.device_name for use in fits.values() if use.device]
    gpu = torch.device(names[0]) if names else None
    stored = matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes
    beside = {
        "data": MemoryUse(
            main=_COPIES_OF_THE_DATA * stored, folder=bytes_of_train_data(interactions)
        )
    }
    if validated:
        # A block of users while their answers are blended and ranked.
        places = [torch.device("cpu"), *([] if gpu is None else [gpu])]
        rows = [
            min(block_rows(size.items, budget=ranking_bytes(place)), size.users) for place in places
        ]
        main, *on_device = (4 * _ARRAYS_WHILE_BLENDING * size.items * count for count in rows)
        beside["answers on validation"] = MemoryUse(main=main, device=sum(on_device))
    free = None if gpu is None else free_bytes(gpu)
    return FitPlan(
        name, interactions, fits, beside, available_bytes(), "cpu" if gpu is None else str(gpu), free, free_on_disk,
        len(candidates),
    )  # fmt: skip
