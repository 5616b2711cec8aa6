"""The plan of a fit as people and programs read it: its parts, what each takes and where, and whether it fits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from loca.memory import readable_bytes
from loca.text_table import TextTable

NONE = "–"


@dataclass(frozen=True)
class Machine:
    """Where a fit would run: the device of its models, and the bytes that are free there and in main memory."""

    device: str
    free_on_device: int | None  # None without a GPU
    free_in_memory: int


@dataclass(frozen=True)
class Taken:
    """The most bytes that a part takes in one place while it is at work, and how many of them stay there."""

    at_work: int = 0
    stays: int = 0


@dataclass(frozen=True)
class Part:
    """One part of a fit: what it takes on the GPU and in main memory, its files, its rough time.

    One that is `throughout` takes its bytes beside all the others; one that only `judges` is left out of a refit.
    `unfinished` bytes lie beside the model folder until the model is saved. `seconds` is None where nobody knows.
    """

    name: str
    on_device: Taken = Taken()
    in_memory: Taken = Taken()
    in_folder: int = 0
    unfinished: int = 0
    seconds: float | None = 0.0
    throughout: bool = False
    judges: bool = False
    advice: str = "take a smaller model or filter rare items"


@dataclass(frozen=True)
class FitPlan:
    """What `loca fit` would take: `candidates` fits of these parts (the largest candidate's), and a refit if asked.

    `lines` are what the parts say of themselves; `epochs` is the most that networks run, None without any.
    `free_on_disk` is None where no folder was named.
    """

    model: str
    users: int
    items: int
    interactions: int
    machine: Machine
    parts: tuple[Part, ...]
    lines: tuple[str, ...] = ()
    epochs: int | None = None
    candidates: int = 1
    validated: bool = True
    refit: bool = True
    free_on_disk: int | None = None

    @property
    def peak_on_device(self) -> int:
        """The most bytes on the GPU at any time."""
        return _peak(self.parts, [part.on_device for part in self.parts])[0]

    @property
    def peak_in_memory(self) -> int:
        """The most bytes of main memory at any time, beyond what the interactions take already."""
        return _peak(self.parts, [part.in_memory for part in self.parts])[0]

    @property
    def in_folder(self) -> int:
        """The bytes of the model folder."""
        return sum(part.in_folder for part in self.parts)

    @property
    def unfinished(self) -> int:
        """The most bytes beside the model folder, kept for a run that is interrupted."""
        return max(part.unfinished for part in self.parts)

    @property
    def seconds_to_choose(self) -> float | None:
        """Roughly how long one candidate takes that is fitted and judged on validation, at most."""
        return sum_known(part.seconds for part in self.parts) if self.validated else 0.0

    @property
    def seconds_to_refit(self) -> float | None:
        """Roughly how long the fit on everything takes, at most; nothing is judged there."""
        if self.validated and not self.refit:
            return 0.0
        return sum_known(part.seconds for part in self.parts if not part.judges)

    @property
    def seconds(self) -> float | None:
        """Roughly how long everything takes, at most."""
        return sum_known([*[self.seconds_to_choose] * self.candidates, self.seconds_to_refit])

    @property
    def problems(self) -> tuple[str, ...]:
        """One line with advice for each place that is too small; none where the plan fits."""
        machine, found = self.machine, []
        places = (
            (f"on {machine.device}", [part.on_device for part in self.parts], machine.free_on_device),
            ("in main memory", [part.in_memory for part in self.parts], machine.free_in_memory),
        )
        for place, taken, free in places:
            needed, part = _peak(self.parts, taken)
            if free is not None and needed > free:
                found.append(_too_much(f"{part.name} {place}", needed, free, part.advice))
        on_disk = self.in_folder + self.unfinished
        if self.free_on_disk is not None and on_disk > self.free_on_disk:
            found.append(_too_much("files", on_disk, self.free_on_disk, "free some space or choose another --out"))
        return tuple(found)

    def __str__(self) -> str:
        counts = f"{self.users:,} users, {self.items:,} items, {self.interactions:,} interactions"
        totals = [*self._memory_lines(), *self._file_lines(), *self._time_lines()]
        verdict = [*(f"DOES NOT FIT: {line}" for line in self.problems)] or ["it fits"]
        return "\n".join([f"{self.model} on {counts}", "", self.grid().plain(), "", *self.lines, *totals, *verdict])

    def grid(self) -> TextTable:
        """One row per part: bytes on the GPU, in main memory and in the model folder, and its rough time."""
        header = ("part", f"on {self.machine.device}", "in main memory", "in the folder", "rough time")
        if self.machine.free_on_device is None:
            header = ("part", "on a GPU", *header[2:])
        return TextTable(header, tuple(_row(part) for part in self.parts))

    def _memory_lines(self) -> Iterable[str]:
        if self.machine.free_on_device is not None:
            yield _of(f"{self.machine.device}, at the peak", self.peak_on_device, self.machine.free_on_device)
        yield _of("main memory, at the peak", self.peak_in_memory, self.machine.free_in_memory)

    def _file_lines(self) -> Iterable[str]:
        folder = f"model folder: {readable_bytes(self.in_folder)}"
        if self.unfinished:
            folder += f", and up to {readable_bytes(self.unfinished)} beside it until it is saved, for --resume"
        yield folder if self.free_on_disk is None else f"{folder}; {readable_bytes(self.free_on_disk)} are free there"

    def _time_lines(self) -> Iterable[str]:
        if self.seconds is None:
            yield "time: unknown; what does not fit is not timed"
            return
        most = "" if self.epochs is None else f" (at most {self.epochs} epochs; early stopping makes it shorter)"
        if not self.validated:
            yield f"time, rough: {readable_seconds(self.seconds_to_refit)} for one fit on everything{most}"
            return
        fits = "one fit" if self.candidates == 1 else f"each of {self.candidates} candidates"
        line = f"time, rough: {readable_seconds(self.seconds_to_choose)} for {fits} on validation{most}"
        if self.refit:
            line += f", {'at most ' * (self.epochs is not None)}{readable_seconds(self.seconds_to_refit)} for the refit"
        yield f"{line}: {readable_seconds(self.seconds)} in all"

    def document(self) -> dict[str, Any]:
        """The same as JSON values; bytes and seconds are plain numbers, null where there is no GPU or no answer."""
        has_gpu = self.machine.free_on_device is not None
        return {
            "model": self.model,
            "data": {"users": self.users, "items": self.items, "interactions": self.interactions},
            "device": self.machine.device,
            "parts": [_part_document(part, has_gpu) for part in self.parts],
            "plans": list(self.lines),
            "on_device": {"peak": self.peak_on_device, "free": self.machine.free_on_device} if has_gpu else None,
            "in_memory": {"peak": self.peak_in_memory, "free": self.machine.free_in_memory},
            "on_disk": {"folder": self.in_folder, "unfinished": self.unfinished, "free": self.free_on_disk},
            "epochs_at_most": self.epochs,
            "candidates": self.candidates,
            "seconds": {"candidate": self.seconds_to_choose, "refit": self.seconds_to_refit, "all": self.seconds},
            "fits": not self.problems,
            "problems": list(self.problems),
        }


def readable_seconds(seconds: float | None) -> str:
    """`about 4 min` for 231: the time as a person would say it who does not know it exactly."""
    if seconds is None:
        return "unknown"
    if seconds < 1:
        return "under 1 s"
    if seconds < 90:
        return f"about {seconds:.0f} s"
    if seconds < 5400:
        return f"about {seconds / 60:.0f} min"
    return f"about {seconds / 3600:.1f} h" if seconds < 172_800 else f"about {seconds / 86400:.0f} days"


def _peak(parts: Sequence[Part], taken: Sequence[Taken]) -> tuple[int, Part]:
    """The most bytes at any time in one place, and the part at work then."""
    below = sum(one.at_work for part, one in zip(parts, taken, strict=True) if part.throughout)
    peak, busiest = below, parts[0]
    for part, one in zip(parts, taken, strict=True):
        if not part.throughout:
            if below + one.at_work > peak:
                peak, busiest = below + one.at_work, part
            below += one.stays
    return peak, busiest


def sum_known(seconds: Iterable[float | None]) -> float | None:
    """The sum, None where one of them is unknown."""
    total = 0.0
    for one in seconds:
        if one is None:
            return None
        total += one
    return total


def _row(part: Part) -> tuple[str, ...]:
    sizes = (part.on_device.at_work, part.in_memory.at_work, part.in_folder)
    time = readable_seconds(part.seconds) if part.seconds != 0 else NONE
    return (part.name, *(readable_bytes(size) if size else NONE for size in sizes), time)


def _part_document(part: Part, has_gpu: bool) -> dict[str, Any]:
    return {
        "name": part.name,
        "on_device": part.on_device.at_work if has_gpu else None,
        "in_memory": part.in_memory.at_work,
        "in_folder": part.in_folder,
        "seconds": part.seconds,
    }


def _of(what: str, needed: int, free: int) -> str:
    return f"{what}: {readable_bytes(needed)} of {readable_bytes(free)} free"


def _too_much(what: str, needed: int, free: int, advice: str) -> str:
    return f"{what}: {readable_bytes(needed)} needed, {readable_bytes(free)} are free; {advice}"
