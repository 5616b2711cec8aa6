"""Tuning: the settings of a model that answer validation best, found by optuna within a budget of trials or seconds."""

from __future__ import annotations

import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import Context
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loca.catalogue import KINDS
from loca.data.held_out import HeldOut
from loca.data.interactions import Interactions
from loca.errors import ConfigError, DataError, LocaError
from loca.experiments.candidates import describe_model
from loca.experiments.choices import RecencyRule
from loca.experiments.default_spaces import space_of as space_of
from loca.experiments.settings import Table
from loca.experiments.spaces import Point
from loca.experiments.spaces import Space as Space
from loca.experiments.studies import (
    ENDED,
    REASON,
    SECONDS,
    STOPPED,
    TEMPLATE,
    Account,
    account_of,
    drop_study,
    import_optuna,
    is_stopped,
    open_study,
    quiet_optuna,
    shared_fits_of,
)
from loca.experiments.trial_workers import Place, workers
from loca.experiments.trials import Outcome, TrialTask, run_trial
from loca.experiments.tuned_settings import settings_of
from loca.experiments.worker_processes import threads_for
from loca.files.shared_fits import digest_of_model, sharing_fits_in
from loca.files.unfinished_work import digest_of
from loca.models.recommender import Recommender
from loca.progress import Bar, bar, say, without_bars
from loca.random_streams import derive_seed, stream

if TYPE_CHECKING:
    from optuna.pruners import BasePruner
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

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
    budget: TuningBudget,
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
    space.check(template)
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
    study: Study, task: TrialTask, budget: TuningBudget, path: Path | None, fits: Path, seed: int, processes: int
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


@dataclass(frozen=True)
class TuningBudget:
    """What may be spent on each model: so many trials, finished or pruned, or so many seconds in all its trials."""

    trials: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        trials, seconds = self.trials, self.seconds
        if trials is None and seconds is None:
            raise ConfigError("tuning needs a budget; expected a number of trials, of seconds, or both")
        if trials is not None and (isinstance(trials, bool) or not isinstance(trials, int) or trials < 1):
            raise ConfigError(f"trials: expected a whole number ≥ 1, found {trials!r}")
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if seconds is not None and not (is_number and 0 < seconds < float("inf")):
            raise ConfigError(f"seconds: expected a number above 0, found {seconds!r}")

    def __str__(self) -> str:
        told = [] if self.trials is None else [f"{self.trials} trial{'s' if self.trials > 1 else ''}"]
        told += [] if self.seconds is None else [f"{self.seconds:g} s"]
        return f"{' or '.join(told)} per model"

    def has_room(self, account: Account, running_seconds: float = 0.0) -> bool:
        """Whether another trial may be begun."""
        within_trials = self.trials is None or account.counted + account.running < self.trials
        return within_trials and (self.seconds is None or account.seconds + running_seconds < self.seconds)


class Search:
    """Trials begun and ended one after the other, or side by side, until the budget is used up."""

    def __init__(
        self, study: Study, task: TrialTask, budget: TuningBudget, proposals: Proposals, processes: int
    ) -> None:
        self.study, self.task, self.budget, self.proposals = study, task, budget, proposals
        self.processes = processes
        self.failures_in_a_row = 0
        self.running: dict[int, tuple[Trial, float]] = {}

    def run_here(self, fits: Path) -> None:
        """Runs the trials in this process; they share fits in a folder."""
        with sharing_fits_in(fits, KINDS), self._bar() as progress:
            while (begun := self._begin()) is not None:
                trial, seconds = begun
                try:
                    outcome = run_trial(self.task, trial, seconds)
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
        if self.failures_in_a_row >= _MOST_FAILURES_IN_A_ROW or not self.budget.has_room(account, elapsed):
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
