"""Cells computed one after the other in this process, or side by side in worker processes, with the same numbers."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from loca.data.splits import Split
from loca.errors import LocaError
from loca.experiments.run_store import RunStore
from loca.experiments.runs import ComparedModel, Run, execute_run
from loca.models.recommender import Recommender
from loca.persistence.fit_context import FitContext
from loca.progress import bar, say
from loca.tuning.workers import READY, Worker, WorkerDied, threads_for

Done = dict[str, ComparedModel]
# Whoever compares models has looked at the order of their data.
_CONTEXT = FitContext(order_checked=True)


@dataclass(frozen=True)
class RunPlan:
    """The cells to compute, by name in their order: what must be done before each, and how it is made then."""

    names: tuple[str, ...]
    parents: Mapping[str, tuple[str, ...]]
    make: Callable[[str, Mapping[str, ComparedModel]], Run]

    def ready(self, done: Mapping[str, ComparedModel], begun: Collection[str] = ()) -> list[str]:
        """Those that are neither done nor begun, and whose parents are done."""
        left = [name for name in self.names if name not in done and name not in begun]
        return [name for name in left if all(parent in done for parent in self.parents.get(name, ()))]

    def find_done(self, store: RunStore | None, keep: Collection[str] = ()) -> Done:
        """All that an earlier run has finished, but those whose fitted model is to be kept."""
        done: Done = {}
        seen: set[str] = set(keep)
        while store is not None and (names := self.ready(done, seen)):
            for name in names:
                seen.add(name)
                found = store.find(self.make(name, done))
                if found is not None:
                    say(f"{name}: finished before, taken from {store.cells}")
                    done[name] = found
        return done


def compute_here(
    plan: RunPlan, done: Done, split: Split, store: RunStore | None, keep: Collection[str] = ()
) -> dict[str, Recommender]:
    """Puts to `done` all other cells, computed one after the other in this process; the fitted models to keep.

    The first error ends it.
    """
    models: dict[str, Recommender] = {}
    while names := plan.ready(done):
        cell = plan.make(names[0], done)
        say(_begun(cell, len(plan.names) - len(done)))
        done[cell.name], model = _compute(cell, split, store)
        if cell.name in keep:
            models[cell.name] = model
        del model  # makes room for the next
    return models


def execute_parallel(plan: RunPlan, done: Done, split: Split, store: RunStore | None, processes: int) -> dict[str, str]:
    """Puts to `done` all other cells, up to `processes` at a time, each in its own process; why those failed that did.

    The cores are divided among the processes. A cell that fails does not stop the others; what must come after it is
    not begun.
    """
    failed: dict[str, str] = {}
    running: dict[str, Worker] = {}
    threads = threads_for(processes)
    try:
        with bar("models", len(plan.names)) as progress:
            progress.advance(len(done))
            while True:
                ready = plan.ready(done, {*running, *failed})
                for name in ready[: processes - len(running)]:
                    cell = plan.make(name, done)
                    say(_begun(cell, len(plan.names) - len(done) - len(failed) - len(running)))
                    running[name] = _start(cell, split, store, threads)
                if not running:
                    break
                progress.advance(0, note=", ".join(running))
                for name in _heard(running, done, failed):
                    running.pop(name).end(is_done=True)
                    progress.advance(1)
                    say(_ended(name, done, failed, len(plan.names), running))
    finally:
        for worker in running.values():
            worker.end()
    for name in (one for one in plan.names if one not in done and one not in failed):
        failed[name] = f"not begun, because {', '.join(plan.parents[name])} must come before it"
    return failed


def _start(cell: Run, split: Split, store: RunStore | None, threads: int) -> Worker:
    is_heard = logging.getLogger("loca").isEnabledFor(logging.INFO)
    return Worker.start(_compute_and_tell, (cell, split, store, is_heard), threads=threads, what=cell.name)


def _heard(running: Mapping[str, Worker], done: Done, failed: dict[str, str]) -> list[str]:
    """Waits until workers say something and takes it down; the names of those that have ended."""
    ended = []
    lines = wait([worker.line for worker in running.values()])
    for name, worker in running.items():
        if worker.line not in lines:
            continue
        told: Any
        try:
            kind, told = worker.hear() or (READY, None)
        except WorkerDied as death:
            kind, told = "failed", str(death)
        if kind == "said":
            say(told if told.startswith(f"{name}: ") else f"{name}: {told}")
        elif kind == "done":
            done[name] = told
        elif kind == "failed":
            failed[name] = told
        if kind in ("done", "failed"):
            ended.append(name)
    return ended


def _compute_and_tell(line: Connection, cell: Run, split: Split, store: RunStore | None, is_heard: bool) -> None:
    """What a worker does; whoever started it is told the outcome, or in one line why there is none."""
    line.send(READY)
    if is_heard:
        logger = logging.getLogger("loca")
        logger.addHandler(_ToParent(line))
        logger.setLevel(logging.INFO)
    try:
        measured, _ = _compute(cell, split, store)
    except LocaError as error:
        line.send(("failed", " ".join(str(error).split())))
    except Exception as error:
        for told in traceback.format_exc().splitlines():
            say(told)
        line.send(("failed", f"{type(error).__name__}: {' '.join(str(error).split())}"))
    else:
        line.send(("done", measured))


def _compute(cell: Run, split: Split, store: RunStore | None) -> tuple[ComparedModel, Recommender]:
    if store is None:
        return execute_run(cell, split, context=_CONTEXT)
    return store.compute(cell, split, _CONTEXT)


class _ToParent(logging.Handler):
    """Hands what a worker says to the process that started it."""

    def __init__(self, line: Connection) -> None:
        super().__init__()
        self._line = line

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):
            self._line.send(("said", record.getMessage()))


def _begun(cell: Run, left: int) -> str:
    count = len(cell.candidates)
    what = f"{count} candidate{'s' if count > 1 else ''}" if cell.space is None else f"tuned, {cell.terms.budget}"
    return f"{cell.name}: {what}{f'; {left} models left' if left > 1 else ''}"


def _ended(name: str, done: Done, failed: Mapping[str, str], count: int, running: Collection[str]) -> str:
    how = f"finished in {_seconds(done[name]):,.1f} s" if name in done else f"failed: {failed[name]}"
    left = count - len(done) - len(failed)
    still = f"; {left} of {count} models left, running: {', '.join(running)}" if running else ""
    return f"{name}: {how}{still}"


def _seconds(measured: ComparedModel) -> float:
    return measured.seconds + (0.0 if measured.tuning is None else measured.tuning.seconds)
