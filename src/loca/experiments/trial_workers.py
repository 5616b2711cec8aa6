"""Worker processes that run trials side by side, each with its share of the cores; one that dies is replaced."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import TYPE_CHECKING

from loca.errors import ConfigError
from loca.experiments.studies import import_optuna, open_storage, quiet_optuna
from loca.experiments.trials import Outcome, TrialTask, run_trial

if TYPE_CHECKING:
    from optuna.pruners import BasePruner

_READY = "ready"
_SECONDS_TO_END = 5.0


@dataclass(frozen=True, eq=False)
class Place:
    """Where a worker finds the study and the fits that trials share."""

    path: Path
    name: str
    pruner: BasePruner
    fits: Path
    threads: int


@dataclass(eq=False)
class _Worker:
    """A process, the line to it, and the number of the trial that it runs."""

    process: SpawnProcess
    line: Connection
    is_ready: bool = False
    trial: int | None = None
    begun: float = 0.0


@dataclass(eq=False)
class Workers:
    """At most `count` processes; they are started when there is something to do."""

    task: TrialTask
    place: Place
    count: int
    _workers: list[_Worker] = field(default_factory=list)

    @property
    def has_room(self) -> bool:
        """Whether another trial can be begun."""
        return self.busy < self.count

    @property
    def busy(self) -> int:
        """How many trials run."""
        return sum(one.trial is not None for one in self._workers)

    def begin(self, trial: int, seconds: float | None) -> None:
        """Has a trial run by a process that has nothing to do, a new one where there is none."""
        idle = next((one for one in self._workers if one.trial is None), None)
        worker = idle or self._start()
        worker.trial, worker.begun = trial, time.monotonic()
        with suppress(BrokenPipeError):  # one that has died is noticed when its outcome is awaited
            worker.line.send((trial, seconds))

    def wait(self) -> list[tuple[int, Outcome]]:
        """The trials that have ended since, at least one; waits for it. A trial whose process died has failed."""
        ended: list[tuple[int, Outcome]] = []
        while not ended:
            heard = wait([one.line for one in self._workers])
            for worker in [one for one in self._workers if one.line in heard]:
                ended += self._hear(worker)
        return ended

    def end(self) -> None:
        """Ends all processes, whatever they do."""
        for worker in self._workers:
            worker.process.terminate()
        for worker in self._workers:
            worker.process.join(_SECONDS_TO_END)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
            worker.line.close()
        self._workers.clear()

    def _start(self) -> _Worker:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(self.task, self.place, theirs), daemon=True)
        process.start()
        theirs.close()  # so that the end of the process is the end of the line
        worker = _Worker(process, ours)
        self._workers.append(worker)
        return worker

    def _hear(self, worker: _Worker) -> list[tuple[int, Outcome]]:
        trial = worker.trial
        try:
            said = worker.line.recv()
        except (EOFError, OSError):
            worker.process.join()
            worker.line.close()
            self._workers.remove(worker)
            if not worker.is_ready:
                raise ConfigError(
                    f"a worker process could not start (exit code {worker.process.exitcode}); tune with one process, "
                    'or, in a program of your own, begin under  if __name__ == "__main__":'
                ) from None
            reason = f"its process died (exit code {worker.process.exitcode})"
            seconds = time.monotonic() - worker.begun
            return [] if trial is None else [(trial, Outcome("failed", None, seconds, reason))]
        if said == _READY:
            worker.is_ready = True
            return []
        worker.trial = None
        return [] if trial is None else [(trial, said)]


@contextmanager
def workers(task: TrialTask, place: Place, count: int) -> Iterator[Workers]:
    """Workers that end when this ends."""
    several = Workers(task, place, count)
    try:
        yield several
    finally:
        several.end()


def share_of_cores(processes: int) -> int:
    """The threads that each of so many processes may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // processes)


def _work(task: TrialTask, place: Place, line: Connection) -> None:
    """The life of a worker: a trial after the other, until the line ends."""
    import torch
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    from loca.catalogue import KINDS
    from loca.files.shared_fits import sharing_fits_in
    from loca.progress import show_progress

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the first process's, which ends the others
    show_progress(False)
    torch.set_num_threads(place.threads)
    parent = os.getppid()
    optuna = import_optuna()
    with (
        threadpool_limits(place.threads),
        quiet_optuna(),
        open_storage(place.path) as storage,
        sharing_fits_in(place.fits, KINDS),
        suppress(EOFError),
    ):
        # Nothing is drawn here: the settings of a trial are in the study before it is begun.
        study = optuna.load_study(
            study_name=place.name, storage=storage, sampler=optuna.samplers.RandomSampler(), pruner=place.pruner
        )
        study_id = storage.get_study_id_from_name(place.name)
        line.send(_READY)
        while True:
            number, seconds = line.recv()
            trial_id = storage.get_trial_id_from_study_id_trial_number(study_id, number)
            trial = optuna.trial.Trial(study, trial_id)
            line.send(run_trial(task, trial, seconds, lambda: os.getppid() != parent))
