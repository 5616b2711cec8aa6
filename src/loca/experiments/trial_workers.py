"""Trials side by side in worker processes; one that dies is replaced."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING

from loca.errors import ConfigError
from loca.experiments.studies import import_optuna, open_storage, quiet_optuna
from loca.experiments.trials import Outcome, TrialTask, run_trial
from loca.experiments.worker_processes import READY, Worker, WorkerDied

if TYPE_CHECKING:
    from optuna.pruners import BasePruner


@dataclass(frozen=True, eq=False)
class Place:
    """Where a worker finds the study and the fits that trials share, and the threads that it may use."""

    path: Path
    name: str
    pruner: BasePruner
    fits: Path
    threads: int


@dataclass(eq=False)
class _Busy:
    """A worker, and the number of the trial that it runs, if any."""

    worker: Worker
    trial: int | None = None
    begun: float = 0.0


@dataclass(eq=False)
class Workers:
    """At most `count` processes; they are started when there is something to do."""

    task: TrialTask
    place: Place
    count: int
    _workers: list[_Busy] = field(default_factory=list)

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
        one = idle or self._start()
        one.trial, one.begun = trial, time.monotonic()
        with suppress(BrokenPipeError):  # one that has died is noticed when its outcome is awaited
            one.worker.line.send((trial, seconds))

    def wait(self) -> list[tuple[int, Outcome]]:
        """The trials that have ended since, at least one; waits for it. A trial whose process died has failed."""
        ended: list[tuple[int, Outcome]] = []
        while not ended:
            heard = wait([one.worker.line for one in self._workers])
            for one in [one for one in self._workers if one.worker.line in heard]:
                ended += self._hear(one)
        return ended

    def end(self) -> None:
        """Ends all processes, whatever they do."""
        for one in self._workers:
            one.worker.end()
        self._workers.clear()

    def _start(self) -> _Busy:
        worker = Worker.start(_work, (self.task, self.place), threads=self.place.threads, what=self.place.name)
        one = _Busy(worker)
        self._workers.append(one)
        return one

    def _hear(self, one: _Busy) -> list[tuple[int, Outcome]]:
        trial = one.trial
        try:
            told: Outcome | None = one.worker.hear()
        except WorkerDied as death:
            one.worker.end()
            self._workers.remove(one)
            if not one.worker.is_ready:
                raise ConfigError(str(death)) from None
            told = Outcome("failed", None, time.monotonic() - one.begun, str(death))
        if told is None or trial is None:
            return []
        one.trial = None
        return [(trial, told)]


@contextmanager
def workers(task: TrialTask, place: Place, count: int) -> Iterator[Workers]:
    """Workers that end when this ends."""
    several = Workers(task, place, count)
    try:
        yield several
    finally:
        several.end()


def _work(line: Connection, task: TrialTask, place: Place) -> None:
    """The life of a worker: a trial after the other, until the line ends."""
    from loca.catalogue import KINDS
    from loca.files.shared_fits import sharing_fits_in

    optuna = import_optuna()
    with quiet_optuna(), open_storage(place.path) as storage, sharing_fits_in(place.fits, KINDS), suppress(EOFError):
        # Nothing is drawn here: the settings of a trial are in the study before it is begun.
        study = optuna.load_study(
            study_name=place.name, storage=storage, sampler=optuna.samplers.RandomSampler(), pruner=place.pruner
        )
        study_id = storage.get_study_id_from_name(place.name)
        line.send(READY)
        while True:
            number, seconds = line.recv()
            trial_id = storage.get_trial_id_from_study_id_trial_number(study_id, number)
            line.send(run_trial(task, optuna.trial.Trial(study, trial_id), seconds))
