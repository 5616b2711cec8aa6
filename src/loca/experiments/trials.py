"""One trial: a model with the settings of a point, fitted and judged on validation, watched while it learns."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from loca.data.held_out import HeldOut
from loca.data.interactions import Interactions
from loca.errors import LocaError
from loca.experiments.choices import RecencyRule, choose_on
from loca.experiments.spaces import Space
from loca.experiments.studies import TEMPLATE
from loca.files.shared_fits import is_fitting_a_part
from loca.models.recommender import Recommender, clone
from loca.models.watching import watched_by

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial, Trial

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

    def __call__(self, step: int, score: float) -> None:
        if not is_fitting_a_part():
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


def run_trial(task: TrialTask, trial: Trial, seconds: float | None) -> Outcome:
    """Fits and judges the model of a trial, in at most `seconds` where it learns by epochs.

    One that is ended by the time keeps the best it has reached; a model that is solved in one piece is waited for.
    """
    started = time.monotonic()
    watcher = _Watcher(trial, math.inf if seconds is None else started + seconds)

    def ended(state: State, ndcg: float | None, reason: str = "") -> Outcome:
        return Outcome(state, ndcg, time.monotonic() - started, reason)

    try:
        with watched_by(watcher):
            _, (tried,) = choose_on([task.model_of(trial)], task.train, task.questions, recency=task.recency)
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
