"""Tuning: the settings of a model that answer validation best, found by optuna within a budget of trials or seconds."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import Context
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loca.data.held_out import HeldOut
from loca.data.interactions import Interactions
from loca.errors import ConfigError, DataError, LocaError
from loca.experiments.candidates import describe_model
from loca.experiments.choices import RecencyRule
from loca.experiments.proposals import Proposals
from loca.experiments.search import Search, best_of, make_pruner
from loca.experiments.search import TuningBudget as TuningBudget
from loca.experiments.settings import Table
from loca.experiments.spaces import Space as Space
from loca.experiments.spaces import space_of as space_of
from loca.experiments.studies import (
    REASON,
    TEMPLATE,
    Account,
    account_of,
    drop_study,
    import_optuna,
    open_study,
    quiet_optuna,
    shared_fits_of,
)
from loca.experiments.trial_workers import Place
from loca.experiments.trials import TrialTask
from loca.experiments.tuned_settings import settings_of
from loca.experiments.worker_processes import threads_for
from loca.files.shared_fits import digest_of_model
from loca.files.unfinished_work import digest_of
from loca.models.recommender import Recommender

if TYPE_CHECKING:
    from optuna.study import Study

_OBJECTIVE = "NDCG@100 on validation"
_TRIALS_FOR_IMPORTANCE = 16


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
