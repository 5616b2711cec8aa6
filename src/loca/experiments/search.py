"""The search of a study: trials begun and ended, here or in worker processes, until the budget is used up."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from loca.catalogue import KINDS
from loca.errors import ConfigError
from loca.experiments.proposals import Proposals
from loca.experiments.studies import ENDED, REASON, SECONDS, STOPPED, Account, account_of, import_optuna
from loca.experiments.trial_workers import Place, workers
from loca.experiments.trials import Outcome, TrialTask, run_trial
from loca.files.shared_fits import sharing_fits_in
from loca.progress import Bar, bar, say, without_bars

if TYPE_CHECKING:
    from optuna.pruners import BasePruner
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

# Of trials that have learned as long, those among the worst third go; none before it has had ten epochs.
_KEPT_PERCENT, _FIRST_TRIALS, _FIRST_STEPS, _LEAST_RIVALS = 67.0, 5, 10, 4
_MOST_FAILURES_IN_A_ROW = 10


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
