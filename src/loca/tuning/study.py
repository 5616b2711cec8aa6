"""Tuning: the settings of a model that are best on validation, found by optuna within a budget of trials or seconds."""

from __future__ import annotations

import math
import secrets
import shutil
import sqlite3
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import optuna
import torch
from optuna.samplers import PartialFixedSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, Trial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from loca.config.model_factory import describe_model
from loca.config.settings import check_unwritable, settings_of
from loca.data.interactions import Interactions
from loca.data.splits import HeldOut
from loca.errors import ConfigError, LocaError, check_counts
from loca.evaluation.metrics import DEFAULT_METRIC, Metric
from loca.models.recommender import Recommender, clone
from loca.persistence.atomic_write import lock_folder, wait_for_lock
from loca.persistence.checkpoint import FINGERPRINT_KEY, first_difference
from loca.persistence.fit_context import FitCache, FitContext
from loca.persistence.manifest import fingerprint
from loca.progress import bar, say
from loca.random_streams import derive_seed, stream
from loca.registry import KINDS
from loca.remarks import muted_remarks
from loca.search_space import Budget, Space
from loca.tuning.model_selection import RecencyRule, select
from loca.tuning.warm_start import Tuning, remove_studies, shared_fits_of
from loca.tuning.workers import Worker, WorkerDied, threads_for

# Attributes of a trial: what it took, why it ended, whether it is the template, and the worker that runs it.
_SECONDS, _REASON, _TEMPLATE, _WORKER = "seconds", "reason", "template", "worker"
_DONE, _LOCK = "done", "next-trial.lock"
_MOST_FAILURES_IN_A_ROW = 10
# What settings may bring about; anything else is a mistake of the program, and ends the study.
_SINGULAR = (np.linalg.LinAlgError, torch.linalg.LinAlgError)  # type: ignore[attr-defined]
_TROUBLE = (LocaError, MemoryError, torch.OutOfMemoryError, *_SINGULAR)


Report = Callable[[str, float, str], None]


@dataclass(frozen=True, eq=False)
class Tuner:
    """Finds the point of `space` around `template` whose model, fitted on `train`, is best on `validation`.

    The template itself is the first trial, so that tuning never loses to it. A trial that learns by epochs and is
    clearly worse than others is pruned; at the end of `budget.seconds` it ends with what it has reached, while a model
    that is solved in one piece is waited for. With one process and no limit of seconds the same `seed` gives the same
    study, interrupted or not. Several `processes` share the budget: of its seconds each takes a part.
    """

    name: str
    template: Recommender
    train: Interactions
    validation: HeldOut
    space: Space
    budget: Budget
    recency: RecencyRule = "given"
    seed: int = 0
    processes: int = 1
    start_worker: Callable[..., Any] | None = None
    metric: Metric = DEFAULT_METRIC
    device: str = "auto"

    @property
    def is_spread(self) -> bool:
        """Whether its workers may be on other machines."""
        return self.start_worker is not None

    def tune(self, study: Path | None = None) -> Tuning:
        """The best settings; the file `study` stores the trials, those of an earlier run count and are continued.

        Workers on other machines need a file that they see too.
        """
        if self.is_spread:
            if study is None:
                raise ConfigError("study: workers of a cluster need a file that all machines see")
            study = study.absolute()
        check_counts(processes=self.processes)
        self.space.coordinates(self.template)  # refuses a parameter that the model does not have
        folder = (
            Path(tempfile.mkdtemp(prefix="loca-tuning-"))
            if study is None
            else shared_fits_of(study)
        )
        path = folder / "study.db" if study is None and self.processes > 1 else study
        try:
            opened = open_study(path, self.name, self._fingerprint(), is_spread=self.is_spread)
            with _quiet_optuna(), opened as found:
                trials, budget = found.get_trials(deepcopy=False), self.budget
                # One bar for all trials; those of the fits inside are not drawn.
                with bar(f"tuning {self.name}", budget.trials or budget.seconds or 0) as progress:
                    progress.advance(_counted(trials) if budget.trials else _seconds(trials))

                    def report(line: str, amount: float, note: str) -> None:
                        say(line)
                        progress.advance(amount, note=note)

                    if path is None or (self.processes == 1 and not self.is_spread):
                        self.search(found, folder, len(trials), report)
                    else:
                        self._search_in_processes(found, path, folder, len(trials), report)
                return self._result(found)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def search(
        self, study: optuna.Study, folder: Path, first: int, report: Report, worker: str = ""
    ) -> None:
        """Runs trials, the run's `first` and more, as long as the budget has room; what they share is in a folder."""
        # Of trials that have learned as long, those among the worst third go; none before it has had ten epochs.
        study.pruner = optuna.pruners.PercentilePruner(
            67.0, n_startup_trials=5, n_warmup_steps=10, n_min_trials=4
        )
        cache = FitCache(folder / "fits", KINDS)
        while True:
            # One process at a time: two would each take the last trial of the budget.
            with wait_for_lock(folder / _LOCK):
                trials = study.get_trials(deepcopy=False)
                trial = (
                    self._propose(study, trials, worker) if self._has_room(trials, first) else None
                )
            if trial is None:
                return
            limit = math.inf if self.budget.seconds is None else self.budget.seconds
            try:
                message = self._run(
                    study, trial, (limit - _seconds(trials)) / self.processes, cache
                )
            except BaseException:
                study.tell(trial, state=TrialState.FAIL)  # it says nothing, and is tried again
                raise
            report(*message)

    def _has_room(self, trials: list[FrozenTrial], first: int) -> bool:
        """Whether another trial may begin: the budget has room, and not all of the run's last ones have failed."""
        ended = [one.state for one in trials[first:] if one.state.is_finished()][
            -_MOST_FAILURES_IN_A_ROW:
        ]
        if ended == [TrialState.FAIL] * _MOST_FAILURES_IN_A_ROW:
            return False
        running = sum(one.state == TrialState.RUNNING for one in trials)
        return self.budget.has_room(_counted(trials) + running, _seconds(trials))

    def _propose(self, study: optuna.Study, trials: list[FrozenTrial], worker: str) -> Trial | None:
        """The next trial, with its point drawn; None where every point of a grid was tried.

        Each has a sampler of its own, seeded by its place: a run that resumes proposes what an unbroken one does.
        """
        own = point = self.space.coordinates(self.template)
        tried = [one for one in trials if not _is_stopped(one)]
        is_template = not any(one.user_attrs.get(_TEMPLATE) for one in tried)
        grid = self.space.grid()
        if grid is not None and not is_template:
            taken = [
                one.params for one in tried if own is not None or not one.user_attrs.get(_TEMPLATE)
            ]
            order = stream(self.seed, "grid", self.name).permutation(len(grid))
            point = next((grid[place] for place in order if grid[place] not in taken), None)
            if point is None:
                return None
        if point is not None and (grid is not None or is_template):
            # Not enqueued: what a kill leaves in the queue would come up again out of its turn.
            study.sampler = PartialFixedSampler(dict(point), RandomSampler(seed=0))
        else:
            seed = derive_seed(self.seed, "sampler", self.name, len(tried)) % 2**32
            # A template outside the space has no point: without groups none could be compared with it.
            rules: dict[str, Any] = {
                "group": own is None,
                "multivariate": True,
                "constant_liar": True,
            }
            study.sampler = TPESampler(n_startup_trials=8, seed=seed, **rules)
        trial = study.ask()
        trial.set_user_attr(_WORKER, worker)
        trial.set_user_attr(_TEMPLATE, is_template)
        if point is not None or not is_template:
            self.space.draw(trial)
        return trial

    def _run(
        self, study: optuna.Study, trial: Trial, seconds: float, cache: FitCache
    ) -> tuple[str, float, str]:
        """Fits and judges the model of a trial, in at most so many seconds where it learns by epochs; a line about it.

        One that is ended by the time keeps the best it has reached; a model that is solved in one piece is waited for.
        """
        started = time.monotonic()
        watcher = _Watcher(trial, started + seconds)
        context = FitContext(callbacks=(watcher,), cache=cache)
        state, score, reason = TrialState.FAIL, math.nan, ""
        try:
            model = self._model_of(trial)
            with muted_remarks():
                found = select(
                    [model],
                    self.train,
                    self.validation,
                    recency=self.recency,
                    metric=self.metric,
                    device=self.device,
                    context=context,
                )
            score, late = found.tried[0].score, time.monotonic() - watcher.ends
            reason = f"it ended {late:.1f} s after the time was over" if late > 0 else ""
            reason = reason if math.isfinite(score) else f"the validation score is {score}"
        except optuna.TrialPruned:
            state, reason = TrialState.PRUNED, f"others were better at step {watcher.step}"
        except _OutOfTime:
            where = (
                f"at step {watcher.step}"
                if watcher.step
                else "before the model had learned anything"
            )
            score, reason = watcher.best, f"the time was over {where}"
        except _TROUBLE as error:
            torch.cuda.empty_cache()
            reason = " ".join(str(error).split())[:300] or type(error).__name__
        state = TrialState.COMPLETE if math.isfinite(score) else state
        took = time.monotonic() - started
        trial.set_user_attr(_SECONDS, took)
        trial.set_user_attr(_REASON, reason)
        study.tell(trial, score if state == TrialState.COMPLETE else None, state=state)
        best = _best(study.get_trials(deepcopy=False))
        reached = "no score yet" if best is None else f"best {best.value:.4f}"
        outcome = {"COMPLETE": f"{score:.4f}", "PRUNED": "pruned", "FAIL": "failed"}[state.name]
        outcome += f" ({reason})" if reason else ""
        line = f"{self.name}: trial {trial.number}: {outcome}, {took:.1f} s; {reached}"
        return line, float(state != TrialState.FAIL) if self.budget.trials else took, reached

    def _search_in_processes(
        self, study: optuna.Study, path: Path, folder: Path, first: int, report: Report
    ) -> None:
        """Has worker processes run the trials; one that dies has failed its trial, and is replaced."""

        names, begin = dict[Any, str](), self.start_worker or Worker.start

        def start() -> Any:
            name, threads = secrets.token_hex(8), threads_for(self.processes)
            worker = begin(
                _work, (self, path, folder, first, name), threads=threads, what=self.name
            )
            names[worker] = name
            return worker

        has_room = self._has_room(study.get_trials(deepcopy=False), first)
        lost = 0  # workers that died without a trial
        running = [
            start()
            for _ in range(min(self.processes, self.budget.trials or self.processes) * has_room)
        ]
        try:
            while running:
                lines = wait([one.line for one in running])
                for worker in [one for one in running if one.line in lines]:
                    try:
                        message = worker.hear()
                        if message == _DONE:
                            running.remove(worker)
                            worker.end(is_done=True)
                        elif message is not None:
                            report(*message)
                    except WorkerDied as death:
                        running.remove(worker)
                        worker.end()
                        with wait_for_lock(folder / _LOCK):  # nobody is about to take a trial
                            lost += not _fail_trials(study, str(death), names[worker])
                        if lost > worker.restarts:
                            raise ConfigError(str(death)) from None
                        say(f"{self.name}: {death}; another takes its place")
                        running.append(start())
        finally:
            for worker in running:
                worker.end()
            _fail_trials(study)

    def _model_of(self, trial: Trial | FrozenTrial) -> Recommender:
        """The unfitted model of a trial: the template itself, or the template at the trial's point."""
        own = self.template
        return (
            clone(own) if trial.user_attrs.get(_TEMPLATE) else self.space.apply(own, trial.params)
        )

    def _fingerprint(self) -> dict[str, Any]:
        """What a study is about: trials of another one cannot be compared with its own."""
        import loca

        return {
            "loca": loca.__version__,
            "objective": f"{Metric.label_of(self.metric.described)} on validation",
            "model": self.name,
            **{f"{self.name}.{key}": value for key, value in describe_model(self.template).items()},
            f"{self.name}, to the last bit": fingerprint(self.template),
            "space": str(self.space),
            "recency": self.recency,
            "data": "/".join(
                map(fingerprint, (self.train, self.validation.histories, self.validation.targets))
            ),
            "repeats counted": self.validation.count_repeats,
        }

    def _result(self, study: optuna.Study) -> Tuning:
        trials = study.get_trials(deepcopy=False)
        finished, best = sum(one.state == TrialState.COMPLETE for one in trials), _best(trials)
        failed = [one for one in trials if one.state == TrialState.FAIL and not _is_stopped(one)]
        if best is None or best.value is None:
            last = failed[-1].user_attrs[_REASON] if failed else "there was none"
            raise ConfigError(
                f"{self.name}: no trial finished, {len(failed)} failed; the last one: {last}"
            )
        model = self._model_of(best)
        before = [
            one.value
            for one in trials
            if one.user_attrs.get(_TEMPLATE) and one.state == TrialState.COMPLETE
        ]
        importances: dict[str, float] = {}
        if finished >= 16:  # fewer say nothing
            with warnings.catch_warnings(), suppress(ValueError, RuntimeError):
                warnings.simplefilter(
                    "ignore"
                )  # of few trials for this or that parameter: these are estimates
                importances = optuna.importance.get_param_importances(study)
        settings, pruned = (
            settings_of(self.name, model, self.space.names),
            _counted(trials) - finished,
        )
        effort = finished, pruned, len(failed), _seconds(trials)
        shares = {parameter: float(share) for parameter, share in importances.items()}
        as_given = before[0] if before else None
        metric = str(self.metric)
        return Tuning(self.name, model, settings, best.value, *effort, as_given, shares, metric)


def _work(line: Connection, tuner: Tuner, path: Path, folder: Path, first: int, name: str) -> None:
    """The life of a worker: a trial after the other."""
    with _quiet_optuna(), open_storage(path, in_worker=True, is_spread=tuner.is_spread) as storage:
        study = optuna.load_study(study_name=tuner.name, storage=storage)
        tuner.search(study, folder, first, lambda *message: line.send(message), name)
        line.send(_DONE)


class _OutOfTime(Exception):
    """The budget is spent."""


class _Watcher:
    """A callback that reports scores to the study, and ends a fit without a chance or time left.

    The scores of parts are not those of the model: they only cost time. Should the steps begin
    anew, the model learns in phases of its own, and is not compared with others any more.
    """

    def __init__(self, trial: Trial, ends: float) -> None:
        self.trial, self.ends = trial, ends
        self.step, self.best, self.phases = 0, -math.inf, 1

    def on_epoch(self, part: str, epoch: int, score: float) -> None:
        """Look at what a training has reached."""
        if part == "":
            if epoch <= self.step:
                self.phases, self.best = self.phases + 1, -math.inf
            self.step, self.best = epoch, max(self.best, score)
            if self.phases == 1:
                self.trial.report(score, epoch)
                if self.trial.should_prune():
                    raise optuna.TrialPruned
        if time.monotonic() >= self.ends:
            raise _OutOfTime


def _fail_trials(study: optuna.Study, reason: str = "", worker: str | None = None) -> bool:
    """Marks trials that nobody runs any more as failed; whether there were any.

    Those are all, or those of a worker, and what it had only begun to take. Without a reason they say nothing about
    their settings: they count for nothing, and are tried again.
    """
    running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    mine = [
        one for one in running if worker is None or one.user_attrs.get(_WORKER) in (None, worker)
    ]
    for one in mine:
        if reason and _WORKER in one.user_attrs:
            trial = Trial(study, one._trial_id)
            trial.set_user_attr(_REASON, reason)
            trial.set_user_attr(_SECONDS, _seconds([one]))
        study.tell(one.number, state=TrialState.FAIL)
    return bool(mine)


def _is_stopped(trial: FrozenTrial) -> bool:
    """Whether a trial ended with its run, by Ctrl-C or a kill, and says nothing about its settings."""
    return trial.state == TrialState.FAIL and _SECONDS not in trial.user_attrs


def _counted(trials: list[FrozenTrial]) -> int:
    """How many trials a budget counts."""
    return sum(one.state in (TrialState.COMPLETE, TrialState.PRUNED) for one in trials)


def _seconds(trials: list[FrozenTrial]) -> float:
    """What all trials took, those that run among them; those of a killed run are not known."""
    now = datetime.now()
    running = [one.datetime_start or now for one in trials if one.state == TrialState.RUNNING]
    ended = sum(float(one.user_attrs.get(_SECONDS, 0.0)) for one in trials)
    return ended + sum((now - begin).total_seconds() for begin in running)


def _best(trials: list[FrozenTrial]) -> FrozenTrial | None:
    """The finished trial with the best score, the first of equals."""
    finished = [one for one in trials if one.state == TrialState.COMPLETE]
    return max(finished, key=lambda one: (one.value, -one.number), default=None)


@contextmanager
def _quiet_optuna() -> Iterator[None]:
    """While this lasts, optuna says nothing but what went wrong: the trials are reported here."""
    with warnings.catch_warnings(), ExitStack() as at_end:
        at_end.callback(optuna.logging.set_verbosity, optuna.logging.get_verbosity())
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield


@contextmanager
def open_study(
    path: Path | None, name: str, fingerprint: Mapping[str, Any], *, is_spread: bool = False
) -> Iterator[optuna.Study]:
    """The study called `name` in a file, made where it is missing; one with another fingerprint is refused.

    Trials that a killed process left running are marked as failed. A study without a trial that counts is dropped at
    the end: nothing was learned, and the corrected command begins anew.
    """
    with nullcontext() if path is None else open_storage(path, is_spread=is_spread) as storage:
        study = optuna.create_study(
            direction="maximize", study_name=name, storage=storage, load_if_exists=True
        )
        stored = study.user_attrs.get(FINGERPRINT_KEY)
        if stored is None:
            study.set_user_attr(FINGERPRINT_KEY, dict(fingerprint))
        elif (difference := first_difference(stored, fingerprint)) is not None:
            raise ConfigError(
                f"{path}: its study of {name} is another one: {difference}; go on with what it was begun with, "
                "start over with --fresh, or choose another file"
            )
        _fail_trials(study)
        try:
            yield study
        finally:
            if storage is not None and not _counted(study.get_trials(deepcopy=False)):
                optuna.delete_study(study_name=name, storage=storage)


@contextmanager
def open_storage(
    path: Path, *, in_worker: bool = False, is_spread: bool = False
) -> Iterator[optuna.storages.RDBStorage]:
    """The SQLite file as optuna's storage, closed at the end; what goes wrong with it is reported in one line.

    It is locked against a second run, which would take the trials of the first for left behind; workers share the lock
    of the process that started them. A file that is left without studies goes.
    """
    names_in(path)  # refuses what is no file of studies

    def connect() -> sqlite3.Connection:
        try:
            connection = sqlite3.connect(path, timeout=120, check_same_thread=False)
        except sqlite3.OperationalError as error:
            raise ConfigError(f"{path}: cannot be written ({error}); choose another file") from None
        # Writes do not wait for the disk: a kill loses nothing, a crash of the machine the last of them. That way has
        # memory that processes share: of several machines each waits for the locks of the file.
        connection.execute(f"PRAGMA journal_mode={'DELETE' if is_spread else 'WAL'}")
        connection.execute("PRAGMA synchronous=NORMAL")
        return connection

    url, is_left = f"sqlite:///{quote(str(path.absolute()))}", True
    try:
        storage = optuna.storages.RDBStorage(url, engine_kwargs={"creator": connect})
    except RuntimeError as error:
        raise ConfigError(
            f"{path}: a study of another optuna ({' '.join(str(error).split())[:200]})"
        ) from None
    try:
        with nullcontext() if in_worker else lock_folder(path, "another run is tuning there"):
            try:
                yield storage
            finally:
                is_left = in_worker or bool(storage.get_all_studies())
    except (optuna.exceptions.StorageInternalError, SQLAlchemyError, sqlite3.Error) as error:
        cause = error.__cause__ or error
        reason = " ".join(str(getattr(cause, "orig", cause)).split())[:200]
        raise ConfigError(f"{path}: the study cannot be read or written ({reason})") from error
    finally:
        storage.remove_session()
        storage.engine.dispose()
        if not is_left:
            remove_studies(path)


def names_in(path: Path) -> list[str]:
    """The names of the studies in a file; none where there is no file.

    A place that is no SQLite file of studies, or that cannot be written, is refused.
    """
    check_unwritable(path, "for the study")
    if not path.exists() or path.stat().st_size == 0:
        return []
    url = f"file:{quote(str(path.absolute()))}?mode=ro"
    with suppress(sqlite3.Error), closing(sqlite3.connect(url, uri=True)) as connection:
        tables = {
            name
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type='table'")
        }
        if not tables or {"studies", "trials"} <= tables:
            found = (
                connection.execute("SELECT study_name FROM studies ORDER BY study_id")
                if tables
                else ()
            )
            return [name for (name,) in found]
    raise ConfigError(f"{path}: not an SQLite file of studies; choose another name for the study")


def drop_study(path: Path, name: str) -> None:
    """Removes a study from a file; the others stay, and without any the file goes."""
    with _quiet_optuna(), open_storage(path) as storage:
        optuna.delete_study(study_name=name, storage=storage)
