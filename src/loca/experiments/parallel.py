"""Runs one after the other in this process, or several in others, with the same numbers."""

from __future__ import annotations

import logging
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from typing import Any

from loca.data.splits import Split
from loca.errors import LocaError
from loca.experiments.runs import ComparedModel, Run, RunStore
from loca.models.recommender import Recommender
from loca.persistence.fit_context import FitContext
from loca.progress import bar, say
from loca.remarks import muted_remarks, tell_remarks
from loca.tuning.workers import Worker, WorkerDied, threads_for

Done = dict[str, ComparedModel]


@dataclass(frozen=True)
class RunPlan:
    """The runs to execute, by name in their order.

    Parameters
    ----------
    names
        The names of all runs.
    parents
        The runs that must be done before a run.
    make
        Makes a run by its name, given what is done.
    """

    names: tuple[str, ...]
    parents: Mapping[str, tuple[str, ...]]
    make: Callable[[str, Mapping[str, ComparedModel]], Run]

    def ready(self, done: Mapping[str, ComparedModel], begun: Collection[str] = ()) -> list[str]:
        """Return those that are neither done nor begun, and whose parents are done."""
        left = [name for name in self.names if name not in done and name not in begun]
        return [
            name for name in left if all(parent in done for parent in self.parents.get(name, ()))
        ]

    def find_done(self, store: RunStore | None, keep: Collection[str] = ()) -> Done:
        """Return all that an earlier comparison has finished.

        Those whose fitted model is to be kept are left out.
        """
        done: Done = {}
        if store is None:
            return done
        seen: set[str] = set(keep)
        while names := self.ready(done, seen):
            for name in names:
                seen.add(name)
                outcome = store.find(self.make(name, done))
                if outcome is not None:
                    say(f"{name}: finished before, taken from {store.runs}")
                    done[name] = outcome
                    tell_remarks(outcome.remarks)
        return done


def execute_here(
    plan: RunPlan, done: Done, split: Split, store: RunStore | None, keep: Collection[str] = ()
) -> dict[str, Recommender]:
    """Add all other runs to `done`, one after the other in this process.

    The first error ends it.

    Returns
    -------
    dict of str to Recommender
        The fitted models to keep.
    """
    models: dict[str, Recommender] = {}
    while names := plan.ready(done):
        run = plan.make(names[0], done)
        _announce(run, len(plan.names) - len(done))
        done[run.name], model = execute(run, split, store)
        if run.name in keep:
            models[run.name] = model
        del model  # makes room for the next
    return models


def execute(run: Run, split: Split, store: RunStore | None) -> tuple[ComparedModel, Recommender]:
    """Return what a run reached, stored where there is a store, and the fitted model."""
    # Whoever compares models has looked at the order of their data.
    context = FitContext(order_checked=True)
    if store is None:
        return run.execute(split, context=context)
    return store.execute(run, split, context)


def execute_parallel(
    plan: RunPlan,
    done: Done,
    split: Split,
    store: RunStore | None,
    processes: int,
    start: Callable[..., Any] = Worker.start,
) -> dict[str, str]:
    """Add all other runs to `done`, up to `processes` at a time, in processes of their own.

    `start` begins each of them. The cores are divided among the processes. A run that fails does not
    stop the others; what must come after it is not begun. One whose worker was lost with its machine
    is begun anew, a few times at most.

    Returns
    -------
    dict of str to str
        Why those failed that did, by name.
    """
    # Others work elsewhere: a relative path would mean another folder there.
    shared = None if store is None else replace(store, folder=store.folder.absolute())
    has_listener = logging.getLogger("loca").isEnabledFor(logging.INFO)
    threads = threads_for(processes)

    def begin(run: Run) -> Any:
        return start(_work, (run, split, shared, has_listener), threads=threads, what=run.name)

    workers = _Workers(plan, done, processes, begin)
    try:
        with bar("models", len(plan.names)) as progress:
            progress.advance(len(done))
            while workers.begin_ready():
                progress.advance(0, note=", ".join(workers.running))
                progress.advance(workers.hear())
    finally:
        workers.end()
    failed = workers.failed
    for name in plan.names:
        if name not in done and name not in failed:
            parents = ", ".join(plan.parents[name])
            failed[name] = f"not begun, because {parents} must come before it"
    return failed


@dataclass
class _Workers:
    """The workers that execute the runs of a plan, and what they have reported."""

    plan: RunPlan
    done: Done
    most: int
    begin: Callable[[Run], Any]
    running: dict[str, Any] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    lost: Counter[str] = field(default_factory=Counter)

    @property
    def _n_left(self) -> int:
        return len(self.plan.names) - len(self.done) - len(self.failed)

    def begin_ready(self) -> bool:
        """Begin as many runs as there is room for; return whether any is running."""
        ready = self.plan.ready(self.done, {*self.running, *self.failed})
        for name in ready[: self.most - len(self.running)]:
            run = self.plan.make(name, self.done)
            _announce(run, self._n_left - len(self.running))
            self.running[name] = self.begin(run)
        return bool(self.running)

    def hear(self) -> int:
        """Wait for messages, and take in what they say; return how many runs have ended."""
        lines = wait([worker.line for worker in self.running.values()])
        heard = [name for name, worker in self.running.items() if worker.line in lines]
        return sum(self._hear_from(name) for name in heard)

    def _hear_from(self, name: str) -> bool:
        """Take in one message; return whether the run has ended."""
        worker = self.running[name]
        kind: str
        message: Any
        try:
            kind, message = worker.hear() or ("ready", "")
        except WorkerDied as death:
            self.lost[name] += 1
            if self.lost[name] <= worker.restarts:
                self.running.pop(name).end()
                say(f"{name}: {death}; it is begun anew")
                return False
            kind, message = "failed", str(death)
        if kind == "said":
            say(message if message.startswith(f"{name}: ") else f"{name}: {message}")
        if kind == "done":
            self.done[name] = message
            tell_remarks(message.remarks)
            self._finish(name, f"finished in {_seconds_of(message):,.1f} s")
        if kind == "failed":
            self.failed[name] = message
            self._finish(name, f"failed: {message}")
        return kind in ("done", "failed")

    def _finish(self, name: str, outcome: str) -> None:
        self.running.pop(name).end(is_done=True)
        text = f"{name}: {outcome}"
        if self.running:
            running = ", ".join(self.running)
            text += f"; {self._n_left} of {len(self.plan.names)} models left, running: {running}"
        say(text)

    def end(self) -> None:
        """End what still runs."""
        for worker in self.running.values():
            worker.end()


def _seconds_of(outcome: ComparedModel) -> float:
    return outcome.seconds + (outcome.tuning.seconds if outcome.tuning is not None else 0.0)


def _work(
    line: Connection, run: Run, split: Split, store: RunStore | None, has_listener: bool
) -> None:
    """Do a worker's work: send what the run reached, or in one line why nothing is there."""
    logger, handler = logging.getLogger("loca"), _ToParent(line)
    if has_listener:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    try:
        with muted_remarks():  # what they are travels with the outcome
            outcome, _ = execute(run, split, store)
        line.send(("done", outcome))
    except Exception as error:
        reason = " ".join(str(error).split())
        if not isinstance(error, LocaError):
            say(traceback.format_exc())
            reason = f"{type(error).__name__}: {reason}"
        line.send(("failed", reason))
    finally:
        logger.removeHandler(handler)


class _ToParent(logging.Handler):
    """Hand the lines of a worker to the process that started it."""

    def __init__(self, line: Connection) -> None:
        super().__init__()
        self._line = line

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):
            for text in record.getMessage().splitlines():
                self._line.send(("said", text))


def _announce(run: Run, n_left: int) -> None:
    n_candidates = len(run.candidates)
    text = f"{n_candidates} candidate{'s' if n_candidates > 1 else ''}"
    if run.space is not None:
        text = f"tuned, {run.protocol.budget}"
    if n_left > 1:
        text += f"; {n_left} models left"
    say(f"{run.name}: {text}")
