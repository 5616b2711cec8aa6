"""Runs one after the other in this process, or several at a time in worker processes, with the same numbers."""

from __future__ import annotations

import logging
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
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
    """The runs to execute, by name in their order: what must be done before each, and how it is made then."""

    names: tuple[str, ...]
    parents: Mapping[str, tuple[str, ...]]
    make: Callable[[str, Mapping[str, ComparedModel]], Run]

    def ready(self, done: Mapping[str, ComparedModel], begun: Collection[str] = ()) -> list[str]:
        """Those that are neither done nor begun, and whose parents are done."""
        left = [name for name in self.names if name not in done and name not in begun]
        return [
            name for name in left if all(parent in done for parent in self.parents.get(name, ()))
        ]

    def find_done(self, store: RunStore | None, keep: Collection[str] = ()) -> Done:
        """All that an earlier comparison has finished, but those whose fitted model is needed."""
        done: Done = {}
        seen: set[str] = set(keep)
        while store is not None and (names := self.ready(done, seen)):
            for name in names:
                seen.add(name)
                found = store.find(self.make(name, done))
                if found is not None:
                    say(f"{name}: finished before, taken from {store.runs}")
                    done[name] = found
                    tell_remarks(found.remarks)
        return done


def execute_here(
    plan: RunPlan, done: Done, split: Split, store: RunStore | None, keep: Collection[str] = ()
) -> dict[str, Recommender]:
    """Add all other runs to `done`, one after the other in this process; gives back the fitted models to keep.

    The first error ends it.
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
    """What comes of a run, stored where there is a store, and the fitted model."""
    context = FitContext(
        order_checked=True
    )  # whoever compares models has looked at the order of their data
    return (
        run.execute(split, context=context) if store is None else store.execute(run, split, context)
    )


def execute_parallel(
    plan: RunPlan,
    done: Done,
    split: Split,
    store: RunStore | None,
    processes: int,
    start: Callable[..., Any] = Worker.start,
) -> dict[str, str]:
    """Add all other runs to `done`, up to `processes` at a time, each in its own process, or as `start` begins them.

    The cores are divided among the processes. A run that fails does not stop the others; what must
    come after it is not begun. One whose worker was lost with its machine is begun anew, a few
    times at most.

    Returns
    -------
    Why those failed that did, by name.
    """
    failed: dict[str, str] = {}
    running: dict[str, Any] = {}
    lost: Counter[str] = Counter()
    count, threads = len(plan.names), threads_for(processes)
    shared = (
        None if store is None else replace(store, folder=store.folder.absolute())
    )  # others work elsewhere
    has_listener = logging.getLogger("loca").isEnabledFor(logging.INFO)
    try:
        with bar("models", count) as progress:
            progress.advance(len(done))
            while True:
                for name in plan.ready(done, {*running, *failed})[: processes - len(running)]:
                    run = plan.make(name, done)
                    _announce(run, count - len(done) - len(failed) - len(running))
                    running[name] = start(
                        _work, (run, split, shared, has_listener), threads=threads, what=name
                    )
                if not running:
                    break
                progress.advance(0, note=", ".join(running))
                lines = wait([worker.line for worker in running.values()])
                for name, worker in [pair for pair in running.items() if pair[1].line in lines]:
                    message: Any
                    try:
                        kind, message = worker.hear() or ("ready", "")
                    except WorkerDied as death:
                        kind, message = "failed", str(death)
                        lost[name] += 1
                        if lost[name] <= worker.restarts:
                            running.pop(name).end()
                            say(f"{name}: {message}; it is begun anew")
                            continue
                    if kind == "said":
                        say(message if message.startswith(f"{name}: ") else f"{name}: {message}")
                    if kind not in ("done", "failed"):
                        continue
                    if kind == "done":
                        done[name], tuning = message, message.tuning
                        tell_remarks(message.remarks)
                        outcome = f"finished in {message.seconds + (tuning.seconds if tuning else 0.0):,.1f} s"
                    else:
                        failed[name], outcome = message, f"failed: {message}"
                    running.pop(name).end(is_done=True)
                    progress.advance(1)
                    left = f"{count - len(done) - len(failed)} of {count} models left, running: {', '.join(running)}"
                    say(f"{name}: {outcome}{f'; {left}' if running else ''}")
    finally:
        for worker in running.values():
            worker.end()
    for name in (one for one in plan.names if one not in done and one not in failed):
        failed[name] = f"not begun, because {', '.join(plan.parents[name])} must come before it"
    return failed


def _work(
    line: Connection, run: Run, split: Split, store: RunStore | None, has_listener: bool
) -> None:
    """What a worker does: it sends what comes of the run, or in one line why nothing does."""
    logger, handler = logging.getLogger("loca"), _ToParent(line)
    if has_listener:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    try:
        with muted_remarks():  # what they are travels with the outcome
            outcome = execute(run, split, store)[0]
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
    """Hands the lines of a worker to the process that started it."""

    def __init__(self, line: Connection) -> None:
        super().__init__()
        self._line = line

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):
            for text in record.getMessage().splitlines():
                self._line.send(("said", text))


def _announce(run: Run, left: int) -> None:
    count = len(run.candidates)
    what = (
        f"{count} candidate{'s' if count > 1 else ''}"
        if run.space is None
        else f"tuned, {run.protocol.budget}"
    )
    say(f"{run.name}: {what}{f'; {left} models left' if left > 1 else ''}")
