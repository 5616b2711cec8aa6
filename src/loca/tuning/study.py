"""Tuning: the settings of a model that answer validation best, found by optuna within a budget of trials or seconds."""

from __future__ import annotations

import math
import os
import shutil
import sqlite3
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from contextvars import Context
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

import numpy as np
import torch

from loca.config.model_factory import describe_model
from loca.config.settings import Table, settings_of
from loca.data.interactions import Interactions
from loca.data.splits import HeldOut
from loca.errors import ConfigError, DataError, LocaError
from loca.models.recommender import Recommender, clone
from loca.persistence.atomic_write import lock_folder
from loca.persistence.checkpoint import digest_of, first_difference
from loca.persistence.fit_context import FitCache, FitContext, digest_of_model
from loca.progress import Bar, bar, say, without_bars
from loca.random_streams import derive_seed, stream
from loca.registry import KINDS
from loca.search_space import Budget as Budget
from loca.search_space import Point
from loca.search_space import Space as Space
from loca.tuning.model_selection import RecencyRule, select
from loca.tuning.workers import READY, Worker, WorkerDied, threads_for

if TYPE_CHECKING:
    from optuna.pruners import BasePruner
    from optuna.storages import RDBStorage
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial


SECONDS, REASON, STOPPED, TEMPLATE, ENDED = "seconds", "reason", "stopped", "template", "ended"
_SUBJECT = "subject"
_HEADER = b"SQLite format 3\x00"
_SECONDS_FOR_A_LOCK = 120
_BESIDE = ("", "-journal", "-wal", "-shm")


@dataclass(frozen=True)
class Account:
    """How many trials ended how, and the seconds that all of them took; those of a killed run are not told."""

    finished: int
    pruned: int
    failed: int
    stopped: int
    running: int
    seconds: float

    @property
    def counted(self) -> int:
        """The trials that a budget counts."""
        return self.finished + self.pruned


def import_optuna() -> ModuleType:
    """optuna, which is an extra."""
    try:
        import optuna
    except ImportError:
        raise ConfigError('tuning needs optuna; install it with  pip install "loca[tune]"') from None
    return optuna


@contextmanager
def quiet_optuna() -> Iterator[None]:
    """While this lasts, optuna says nothing but what went wrong: the trials are told here."""
    optuna = import_optuna()
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)


@contextmanager
def open_study(path: Path | None, name: str, subject: Mapping[str, Any]) -> Iterator[Study]:
    """The study called `name` in a file, made where it is missing; one with another subject is refused.

    Trials that a killed process left running are marked as failed. The file is locked against a second run.
    """
    optuna = import_optuna()
    if path is None:
        yield optuna.create_study(direction="maximize", study_name=name)
        return
    with _blaming(path), open_storage(path) as storage, _locked(path):
        study = optuna.create_study(direction="maximize", study_name=name, storage=storage, load_if_exists=True)
        kept = study.user_attrs.get(_SUBJECT)
        if kept is None:
            study.set_user_attr(_SUBJECT, dict(subject))
        elif (difference := first_difference(kept, subject)) is not None:
            raise ConfigError(
                f"{path}: its study of {name} is another one: {difference}; go on with what it was begun with, "
                "start over with --fresh, or choose another file"
            )
        give_up_running(study)
        yield study


@contextmanager
def open_storage(path: Path) -> Iterator[RDBStorage]:
    """The SQLite file as optuna's storage, closed at the end."""
    optuna = import_optuna()
    check_foreign(path)
    waiting = {"connect_args": {"timeout": _SECONDS_FOR_A_LOCK}}
    try:
        storage = optuna.storages.RDBStorage(f"sqlite:///{quote(str(path.absolute()))}", engine_kwargs=waiting)
    except RuntimeError as error:
        raise ConfigError(f"{path}: a study of another optuna ({' '.join(str(error).split())[:200]})") from None
    _write_ahead(storage)
    try:
        yield storage
    finally:
        storage.remove_session()
        storage.engine.dispose()


def _write_ahead(storage: RDBStorage) -> None:
    """Lets the file take writes without waiting for the disk: a kill loses nothing, a crash the last of them."""
    from sqlalchemy import event

    def set_up(connection: Any, record: Any) -> None:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")

    event.listen(storage.engine, "connect", set_up)
    storage.engine.dispose()  # the connections made so far are without


def give_up_running(study: Study) -> None:
    """Marks the trials that nobody runs any more as failed; they count for nothing, and are tried again."""
    optuna = import_optuna()
    for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)


def is_stopped(trial: FrozenTrial) -> bool:
    """Whether a trial ended with its run, by Ctrl-C or a kill, and says nothing about its settings."""
    attributes = trial.user_attrs
    return trial.state.name == "FAIL" and (bool(attributes.get(STOPPED)) or SECONDS not in attributes)


def account_of(trials: list[FrozenTrial]) -> Account:
    """The trials of a study, counted."""
    states = [trial.state.name for trial in trials]
    stopped = sum(map(is_stopped, trials))
    return Account(
        finished=states.count("COMPLETE"),
        pruned=states.count("PRUNED"),
        failed=states.count("FAIL") - stopped,
        stopped=stopped,
        running=states.count("RUNNING"),
        seconds=sum(float(trial.user_attrs.get(SECONDS, 0.0)) for trial in trials),
    )


def names_in(path: Path) -> list[str]:
    """The names of the studies in a file; none where there is no file."""
    check_foreign(path)
    if not path.exists() or path.stat().st_size == 0:
        return []
    with _blaming(path), closing(sqlite3.connect(_read_only(path), uri=True)) as connection:
        if "studies" not in _tables_of(connection):
            return []
        return [name for (name,) in connection.execute("SELECT study_name FROM studies ORDER BY study_id")]


def drop_study(path: Path, name: str) -> None:
    """Removes a study from a file; the others stay, and without any the file goes."""
    optuna = import_optuna()
    with quiet_optuna(), _blaming(path), open_storage(path) as storage, _locked(path):
        optuna.delete_study(study_name=name, storage=storage)
        left = storage.get_all_studies()
    if not left:
        remove_studies(path)


def remove_studies(path: Path) -> None:
    """Removes a file of studies, and what SQLite and the trials of a killed run have left beside it."""
    for ending in _BESIDE:
        with suppress(OSError):
            path.with_name(path.name + ending).unlink(missing_ok=True)
    shutil.rmtree(shared_fits_of(path), ignore_errors=True)


def shared_fits_of(path: Path) -> Path:
    """The folder beside a file of studies for what its trials share: there is room where the study is."""
    return path.absolute().with_name(f"{path.name}.shared-fits")


def _tables_of(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type='table'")}


def check_foreign(path: Path) -> None:
    """Refuses a place that is no SQLite file of studies, or that cannot be written."""
    if path.is_dir():
        raise ConfigError(f"{path}: expected a file for the study, found a folder; choose another name")
    place = path if path.exists() else path.absolute().parent
    if not place.exists():
        raise ConfigError(f"{path}: there is no folder {place}; make it first, or choose another name")
    if not os.access(place, os.W_OK) or not os.access(path.absolute().parent, os.W_OK):
        raise ConfigError(f"{path}: may not be written; choose another name for the study")
    if not path.exists() or path.stat().st_size == 0:
        return
    with suppress(sqlite3.Error, OSError):
        with open(path, "rb") as file:
            is_sqlite = file.read(len(_HEADER)) == _HEADER
        if is_sqlite:
            with closing(sqlite3.connect(_read_only(path), uri=True)) as connection:
                tables = _tables_of(connection)
            if not tables or {"studies", "trials"} <= tables:
                return
    raise ConfigError(f"{path}: not an SQLite file of studies; choose another name for the study")


def _read_only(path: Path) -> str:
    return f"file:{quote(str(path.absolute()))}?mode=ro"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds the file against a second run that would take the trials of the first for left behind."""
    if sys.platform == "win32":
        yield
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        lock_folder(handle, path, "another run is tuning there")
        yield
    finally:
        os.close(handle)


@contextmanager
def _blaming(path: Path) -> Iterator[None]:
    """Turns what goes wrong with the file into one line."""
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (StorageInternalError, SQLAlchemyError, sqlite3.Error) as error:
        cause = error.__cause__ or error
        reason = " ".join(str(getattr(cause, "orig", cause)).split())[:200]
        raise ConfigError(f"{path}: the study cannot be read or written ({reason})") from error


State = Literal["finished", "pruned", "failed"]
# What settings may bring about; anything else is a mistake of the program, and ends the study.
_TROUBLE = (
    LocaError,
    MemoryError,
    torch.OutOfMemoryError,
    np.linalg.LinAlgError,
    torch.linalg.LinAlgError,  # type: ignore[attr-defined]
)


@dataclass(frozen=True)
class Outcome:
    """How a trial ended: its NDCG@100 on validation where it finished, the seconds it took, and why it ended."""

    state: State
    ndcg: float | None
    seconds: float
    reason: str = ""


@dataclass(frozen=True, eq=False)
class TrialTask:
    """What all trials of a study have in common."""

    template: Recommender
    space: Space
    train: Interactions
    questions: HeldOut
    recency: RecencyRule

    def model_of(self, trial: Trial | FrozenTrial) -> Recommender:
        """The unfitted model of a trial: the template itself, or the template at the trial's point."""
        if trial.user_attrs.get(TEMPLATE):
            return clone(self.template)
        return self.space.apply(self.template, trial.params)


class _Pruned(Exception):
    """Other trials were better at this step."""


class _OutOfTime(Exception):
    """The budget is used up."""


class _Watcher:
    """Reports what a trial's model reaches to its study, and ends the fit of one without a chance or without time.

    Only the scores of the model itself are reported: those of a part (a global model) would be compared with other
    trials' whole models. Should the steps begin anew, the model learns in phases of its own, and is not compared.
    """

    def __init__(self, trial: Trial, ends: float) -> None:
        self.trial = trial
        self.ends = ends
        self.step = 0
        self.best = -math.inf
        self.phases = 1

    def __call__(self, step: int, score: float | None) -> None:
        if score is not None:
            self._report(step, score)
        if time.monotonic() >= self.ends:
            raise _OutOfTime

    def _report(self, step: int, score: float) -> None:
        if step <= self.step:
            self.phases += 1
            self.best = -math.inf
        self.step = step
        self.best = max(self.best, score)
        if self.phases == 1:
            self.trial.report(score, step)
            if self.trial.should_prune():
                raise _Pruned


def run_trial(task: TrialTask, trial: Trial, seconds: float | None, cache: FitCache | None = None) -> Outcome:
    """Fits and judges the model of a trial, in at most `seconds` where it learns by epochs.

    One that is ended by the time keeps the best it has reached; a model that is solved in one piece is waited for.
    """
    started = time.monotonic()
    watcher = _Watcher(trial, math.inf if seconds is None else started + seconds)

    def ended(state: State, ndcg: float | None, reason: str = "") -> Outcome:
        return Outcome(state, ndcg, time.monotonic() - started, reason)

    try:
        context = FitContext(on_validation=watcher, cache=cache)
        model = task.model_of(trial)
        (tried,) = select([model], task.train, task.questions, recency=task.recency, context=context).tried
    except _Pruned:
        return ended("pruned", None, f"others were better at step {watcher.step}")
    except _OutOfTime:
        if math.isfinite(watcher.best):
            return ended("finished", watcher.best, f"the time was over at step {watcher.step}")
        return ended("failed", None, "the time was over before the model had learned anything")
    except _TROUBLE as error:
        torch.cuda.empty_cache()
        return ended("failed", None, " ".join(str(error).split())[:300] or type(error).__name__)
    if not math.isfinite(tried.ndcg):
        return ended("failed", None, f"NDCG@100 on validation is {tried.ndcg}")
    late = time.monotonic() - watcher.ends
    return ended("finished", tried.ndcg, f"it ended {late:.1f} s after the time was over" if late > 0 else "")


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
    from loca.registry import KINDS

    optuna = import_optuna()
    with quiet_optuna(), open_storage(place.path) as storage, suppress(EOFError):
        # Nothing is drawn here: the settings of a trial are in the study before it is begun.
        study = optuna.load_study(
            study_name=place.name, storage=storage, sampler=optuna.samplers.RandomSampler(), pruner=place.pruner
        )
        study_id = storage.get_study_id_from_name(place.name)
        cache = FitCache(place.fits, KINDS)
        line.send(READY)
        while True:
            number, seconds = line.recv()
            trial_id = storage.get_trial_id_from_study_id_trial_number(study_id, number)
            line.send(run_trial(task, optuna.trial.Trial(study, trial_id), seconds, cache))


_OBJECTIVE = "NDCG@100 on validation"
_TRIALS_FOR_IMPORTANCE = 16
# Of trials that have learned as long, those among the worst third go; none before it has had ten epochs.
_KEPT_PERCENT, _FIRST_TRIALS, _FIRST_STEPS, _LEAST_RIVALS = 67.0, 5, 10, 4
_MOST_FAILURES_IN_A_ROW = 10
_RANDOM_TRIALS = 8
# Grids beyond this are searched as endless spaces are.
_LARGEST_GRID = 10_000


@dataclass(frozen=True)
class Tuning:
    """What tuning one model came to: the best settings, what they reach on validation, and what it took.

    `best` is unfitted; `settings` are those that set it apart from the catalogue's model, and all that were tried, as
    a TOML file holds them. `seconds` are those of all trials of the study, in earlier runs too. `ndcg_before` is what
    the model reached as it was given, None where that trial failed; `importances` say how much each parameter told.
    """

    name: str
    best: Recommender
    settings: Table
    ndcg: float
    finished: int
    pruned: int
    failed: int
    seconds: float
    ndcg_before: float | None = None
    importances: Mapping[str, float] = field(default_factory=dict)


def tune(
    name: str,
    template: Recommender,
    train: Interactions,
    questions: HeldOut,
    *,
    budget: Budget,
    space: Space,
    study: Path | None = None,
    recency: RecencyRule = "given",
    seed: int = 0,
    processes: int = 1,
) -> Tuning:
    """The point of `space` around `template` whose model, fitted on `train`, answers `questions` best by NDCG@100.

    The template itself is the first trial, so that tuning never loses to it. In the file `study` the trials are kept,
    and those of an earlier run, also a killed one, count and are gone on with. A trial that learns by epochs and is
    clearly worse than others is pruned; at the end of `budget.seconds` it ends with what it has reached, while a model
    that is solved in one piece is waited for. With one process and no limit of seconds the same `seed` gives the same
    study, interrupted or not. Several `processes` share the budget: of its seconds each takes a part.
    """
    import_optuna()
    if isinstance(processes, bool) or not isinstance(processes, int) or processes < 1:
        raise ConfigError(f"processes: expected a whole number ≥ 1, found {processes!r}")
    space.coordinates(template)  # refuses a parameter that the model does not have
    task = TrialTask(template, space, train, questions, recency)
    is_mistaken = False
    with quiet_optuna(), _folder_for(study) as folder:
        path = folder / "study.db" if study is None and processes > 1 else study
        try:
            with open_study(path, name, _subject(name, task)) as kept:
                try:
                    _search(kept, task, budget, path, folder / "fits", seed, processes)
                    return _result(name, kept, task)
                except (ConfigError, DataError):
                    is_mistaken = not account_of(kept.get_trials(deepcopy=False)).counted
                    raise
        finally:
            if is_mistaken and study is not None:
                with suppress(LocaError):  # it is the mistake that is told
                    drop_study(study, name)  # nothing was learned: the corrected command begins anew


def _search(
    study: Study, task: TrialTask, budget: Budget, path: Path | None, fits: Path, seed: int, processes: int
) -> None:
    study.pruner = make_pruner()
    search = Search(study, task, budget, Proposals(study, task, seed), processes)
    if path is None or processes == 1:
        # In an empty context: the trials are many models, and must not keep their epochs as if they were one.
        Context().run(search.run_here, fits)
    else:
        search.run_in_processes(Place(path, study.study_name, study.pruner, fits, threads_for(processes)))


@contextmanager
def _folder_for(study: Path | None) -> Iterator[Path]:
    """A folder for what the trials share, beside the study in a file; what a killed run left there is used."""
    if study is None:
        with tempfile.TemporaryDirectory(prefix="loca-tuning-") as folder:
            yield Path(folder)
        return
    try:
        yield shared_fits_of(study)
    finally:
        shutil.rmtree(shared_fits_of(study), ignore_errors=True)


def _subject(name: str, task: TrialTask) -> dict[str, Any]:
    """What a study is about: trials of another subject cannot be compared with its own."""
    import loca

    questions = task.questions
    return {
        "loca": loca.__version__,
        "objective": _OBJECTIVE,
        "model": name,
        **{f"{name}.{key}": value for key, value in describe_model(task.template).items()},
        f"{name}, to the last bit": digest_of_model(task.template),
        "space": str(task.space),
        "recency": task.recency,
        "data": "/".join(map(digest_of, (task.train, questions.histories, questions.targets))),
        "repeats counted": questions.count_repeats,
    }


def _result(name: str, study: Study, task: TrialTask) -> Tuning:
    trials = study.get_trials(deepcopy=False)
    account, best = account_of(trials), best_of(study)
    if best is None or best.value is None:
        reasons = [str(one.user_attrs[REASON]) for one in trials if REASON in one.user_attrs] or ["there was none"]
        raise ConfigError(f"{name}: no trial finished, {account.failed} failed; the last one: {reasons[-1]}")
    model = task.model_of(best)
    before = [one.value for one in trials if one.user_attrs.get(TEMPLATE) and one.state.name == "COMPLETE"]
    return Tuning(
        name=name,
        best=model,
        settings=settings_of(name, model, (*task.space.domains, *task.space.fixed, *task.space.same)),
        ndcg=best.value,
        finished=account.finished,
        pruned=account.pruned,
        failed=account.failed,
        seconds=account.seconds,
        ndcg_before=before[0] if before else None,
        importances=_importances(study, account),
    )


def _importances(study: Study, account: Account) -> dict[str, float]:
    """How much of the differences in score each parameter explains; nothing where there are too few trials to tell."""
    optuna = import_optuna()
    if account.finished < _TRIALS_FOR_IMPORTANCE:
        return {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of few trials for this or that parameter: these are estimates
            found = optuna.importance.get_param_importances(study)
    except (ValueError, RuntimeError):
        return {}
    return {parameter: float(share) for parameter, share in found.items()}


class Search:
    """Trials begun and ended one after the other, or side by side, until the budget is used up."""

    def __init__(self, study: Study, task: TrialTask, budget: Budget, proposals: Proposals, processes: int) -> None:
        self.study, self.task, self.budget, self.proposals = study, task, budget, proposals
        self.processes = processes
        self.failures_in_a_row = 0
        self.running: dict[int, tuple[Trial, float]] = {}

    def run_here(self, fits: Path) -> None:
        """Runs the trials in this process; they share fits in a folder."""
        cache = FitCache(fits, KINDS)
        with self._bar() as progress:
            while (begun := self._begin()) is not None:
                trial, seconds = begun
                try:
                    outcome = run_trial(self.task, trial, seconds, cache)
                except BaseException:
                    self._stop_running()
                    raise
                self._end(trial.number, outcome, progress)

    def run_in_processes(self, place: Place) -> None:
        """Runs the trials in processes of their own, which are given one at a time."""
        with self._bar() as progress, workers(self.task, place, self.processes) as several:
            try:
                while True:
                    while several.has_room and (begun := self._begin()) is not None:
                        trial, seconds = begun
                        several.begin(trial.number, seconds)
                    if not several.busy:
                        break
                    for number, outcome in several.wait():
                        self._end(number, outcome, progress)
            except BaseException:
                several.end()
                self._stop_running()
                raise

    def _begin(self) -> tuple[Trial, float | None] | None:
        """The next trial, and the seconds it may take; None where there is to be no other."""
        account = account_of(self.study.get_trials(deepcopy=False))
        now = time.monotonic()
        elapsed = sum(now - started for _, started in self.running.values())
        if self.failures_in_a_row >= _MOST_FAILURES_IN_A_ROW or not self.budget.has_room(
            account.counted + account.running, account.seconds + elapsed
        ):
            return None
        trial = self.proposals.next()
        if trial is None:
            return None
        self.running[trial.number] = trial, now
        if self.budget.seconds is None:
            return trial, None
        return trial, (self.budget.seconds - account.seconds - elapsed) / self.processes

    def _end(self, number: int, outcome: Outcome, progress: Bar) -> None:
        optuna = import_optuna()
        trial, _ = self.running.pop(number)
        trial.set_user_attr(SECONDS, outcome.seconds)
        if outcome.reason:
            trial.set_user_attr(ENDED if outcome.state == "finished" else REASON, outcome.reason)
        states = optuna.trial.TrialState
        state = {"finished": states.COMPLETE, "pruned": states.PRUNED, "failed": states.FAIL}[outcome.state]
        self.study.tell(number, outcome.ndcg, state=state)
        self.failures_in_a_row = self.failures_in_a_row + 1 if outcome.state == "failed" else 0
        self._show(number, outcome, progress)

    def _stop_running(self) -> None:
        """The run ends before its trials have: they say nothing, and are tried again."""
        optuna = import_optuna()
        for number, (trial, started) in self.running.items():
            trial.set_user_attr(STOPPED, True)
            trial.set_user_attr(SECONDS, time.monotonic() - started)
            self.study.tell(number, state=optuna.trial.TrialState.FAIL)
        self.running.clear()

    @contextmanager
    def _bar(self) -> Iterator[Bar]:
        """One bar for all trials; those of the fits inside are not drawn."""
        trials, seconds = self.budget.trials, self.budget.seconds
        account = account_of(self.study.get_trials(deepcopy=False))
        with bar(f"tuning {self.study.study_name}", trials or seconds or 0) as progress, without_bars():
            progress.advance(account.counted if trials else account.seconds)
            yield progress

    def _show(self, number: int, outcome: Outcome, progress: Bar) -> None:
        best = best_of(self.study)
        reached = "no score yet" if best is None else f"best {best.value:.4f}"
        told = f"{outcome.ndcg:.4f}" if outcome.ndcg is not None else outcome.state
        reason = f" ({outcome.reason})" if outcome.reason else ""
        say(f"{self.study.study_name}: trial {number}: {told}{reason}, {outcome.seconds:.1f} s; {reached}")
        counted = 0 if outcome.state == "failed" else 1
        progress.advance(counted if self.budget.trials else outcome.seconds, note=reached)


def make_pruner() -> BasePruner:
    optuna = import_optuna()
    pruner: BasePruner = optuna.pruners.PercentilePruner(
        _KEPT_PERCENT,
        n_startup_trials=_FIRST_TRIALS,
        n_warmup_steps=_FIRST_STEPS,
        n_min_trials=_LEAST_RIVALS,
    )
    return pruner


def best_of(study: Study) -> FrozenTrial | None:
    """The finished trial with the best score, the first of equals."""
    finished = [one for one in study.get_trials(deepcopy=False) if one.state.name == "COMPLETE"]
    return max(finished, key=lambda one: (one.value, -one.number), default=None)


class Proposals:
    """The trials of a study in their order, which the seed and the outcomes so far say.

    Each proposal has a sampler of its own, seeded by its place: a run that goes on proposes what an unbroken one does.
    """

    def __init__(self, study: Study, task: TrialTask, seed: int) -> None:
        self.study = study
        self.space = task.space
        self.seed = seed
        self.template_point = task.space.coordinates(task.template)
        self.is_grid = task.space.size is not None and task.space.size <= _LARGEST_GRID

    def next(self) -> Trial | None:
        """The next trial, with its point drawn; None where every point of a grid was tried."""
        tried = [one for one in self.study.get_trials(deepcopy=False) if not is_stopped(one)]
        if not any(one.user_attrs.get(TEMPLATE) for one in tried):
            return self._try_template()
        if self.is_grid:
            return self._next_on_grid(tried)
        return self._proposed(len(tried))

    def _try_template(self) -> Trial:
        trial = self.study.ask() if self.template_point is None else self._at(self.template_point)
        trial.set_user_attr(TEMPLATE, True)
        return trial

    def _next_on_grid(self, tried: list[FrozenTrial]) -> Trial | None:
        points = list(self.space.points())
        taken = [one.params for one in tried if self.template_point is not None or not one.user_attrs.get(TEMPLATE)]
        order = stream(self.seed, "grid", self.study.study_name).permutation(len(points))
        point = next((points[place] for place in order if points[place] not in taken), None)
        return None if point is None else self._at(point)

    def _at(self, point: Point) -> Trial:
        optuna = import_optuna()
        # Not enqueued: what a kill leaves in the queue would come up again out of its turn.
        self.study.sampler = optuna.samplers.PartialFixedSampler(dict(point), optuna.samplers.RandomSampler(seed=0))
        trial = self.study.ask()
        self.space.draw(trial)
        return trial

    def _proposed(self, place: int) -> Trial:
        optuna = import_optuna()
        self.study.sampler = optuna.samplers.TPESampler(
            n_startup_trials=_RANDOM_TRIALS,
            seed=derive_seed(self.seed, "sampler", self.study.study_name, place) % 2**32,
            # A template outside the space has no point: without groups it would keep all others from being compared.
            group=self.template_point is None,
            multivariate=True,
            constant_liar=True,
        )
        trial = self.study.ask()
        self.space.draw(trial)
        return trial
