"""Tuning never loses to the template, keeps to its budget, repeats itself by its seed, and goes on where it was."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
import rich.progress
from tuning_models import Slope

import loca.tuning.study as tuning
from loca.data.splits import HeldOut, Split
from loca.errors import ConfigError, ModelFileError
from loca.evaluation.evaluate import mean_ndcg
from loca.models.ease import EASE
from loca.models.next_ease import NextEASE
from loca.models.popularity import Popularity
from loca.progress import bar, show_progress
from loca.registry import space_of
from loca.search_space import Among, Range, Space
from loca.tuning.study import (
    Budget,
    Outcome,
    TrialTask,
    Tuning,
    names_in,
    open_study,
    quiet_optuna,
    run_trial,
    tune,
)

SHARES = Space({"share": Range(0.0, 1.0)})


def validation_of(split: Split) -> HeldOut:
    assert split.validation is not None
    return split.validation


@pytest.fixture
def tuned(planted_split: Split) -> Callable[..., Tuning]:
    """Tunes a slope, or whatever model, on the planted data."""

    def run(model: Any = None, trials: int | None = 6, seconds: float | None = None, **more: Any) -> Tuning:
        given = {"space": SHARES, **more}
        budget = Budget(trials, seconds)
        template = Slope() if model is None else model
        return tune("slope", template, planted_split.train, validation_of(planted_split), budget=budget, **given)

    return run


@pytest.fixture
def studies(monkeypatch: pytest.MonkeyPatch) -> list[optuna.Study]:
    """The studies of all that is tuned, also of those in no file."""
    seen: list[optuna.Study] = []
    found = tuning.best_of

    def best_of(study: optuna.Study) -> optuna.trial.FrozenTrial | None:
        if not any(study is one for one in seen):
            seen.append(study)
        return found(study)

    monkeypatch.setattr(tuning, "best_of", best_of)
    return seen


def trials_in(path: Path, name: str = "slope") -> list[optuna.trial.FrozenTrial]:
    return optuna.load_study(study_name=name, storage=f"sqlite:///{path}").trials


def told(trials: list[optuna.trial.FrozenTrial]) -> list[Any]:
    """What the trials tried and reached."""
    return [(one.params, one.value, one.state) for one in trials]


def test_tuning_finds_what_validation_likes_and_says_so(planted_split: Split) -> None:
    questions = validation_of(planted_split)
    found = tune(
        "ease", EASE(l2=1e4), planted_split.train, questions,
        budget=Budget(trials=10), space=space_of("ease", "wide"),
    )  # fmt: skip
    assert isinstance(found.best, EASE)
    assert found.best.weights_ is None
    assert found.best.l2 < 1e4
    before = mean_ndcg(EASE(l2=1e4).fit(planted_split.train).score, questions)
    assert found.ndcg_before == before < found.ndcg
    assert found.ndcg == mean_ndcg(EASE(**found.settings).fit(planted_split.train).score, questions)
    assert (found.finished, found.pruned, found.failed) == (10, 0, 0)
    assert set(found.settings) == {"l2", "denoising"}


def test_the_first_trial_is_the_template_itself(tuned: Callable[..., Tuning], studies: list[optuna.Study]) -> None:
    exact = 0.123456789
    found = tuned(Slope(share=exact), trials=1)
    assert isinstance(found.best, Slope)
    assert found.best.share == exact
    assert [one.params for one in studies[0].trials] == [{"share": exact}]


def test_a_template_outside_the_space_is_tried_too(tuned: Callable[..., Tuning], studies: list[optuna.Study]) -> None:
    found = tuned(Slope(share=1.0), trials=10, space=Space({"share": Range(0.0, 0.4)}))
    assert isinstance(found.best, Slope)
    assert found.best.share == 1.0
    assert found.ndcg == found.ndcg_before
    assert [bool(one.params) for one in studies[0].trials] == [False] + [True] * 9


def test_the_same_seed_gives_the_same_study_and_another_seed_another(
    tuned: Callable[..., Tuning], studies: list[optuna.Study]
) -> None:
    for seed, trials in ((1, 10), (1, 10), (2, 2)):
        tuned(trials=trials, seed=seed)
    first, again, other = (told(study.trials) for study in studies)
    assert first == again
    assert first[1] != other[1]


def test_a_study_that_was_stopped_ends_as_an_unbroken_one(
    tuned: Callable[..., Tuning],
    studies: list[optuna.Study],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unbroken = tuned(trials=10)
    for stop_after in (0, 9):
        count = itertools.count()

        def run(*given: Any, stop: int = stop_after, count: Any = count) -> Outcome:
            if next(count) == stop:
                raise KeyboardInterrupt
            return run_trial(*given)

        with monkeypatch.context() as patched:
            patched.setattr(tuning, "run_trial", run)
            with pytest.raises(KeyboardInterrupt):
                tuned(trials=10, study=tmp_path / f"{stop_after}")
        resumed = tuned(trials=10, study=tmp_path / f"{stop_after}")
        kept = [one for one in trials_in(tmp_path / f"{stop_after}") if one.state.name != "FAIL"]
        assert told(kept) == told(studies[0].trials)
        assert (resumed.ndcg, resumed.finished, resumed.failed) == (unbroken.ndcg, 10, 0)


def test_trials_of_a_killed_run_are_given_up_and_tried_again(tuned: Callable[..., Tuning], tmp_path: Path) -> None:
    tuned(trials=3, study=tmp_path / "s.db")
    left = optuna.load_study(study_name="slope", storage=f"sqlite:///{tmp_path / 's.db'}").ask()
    found = tuned(trials=4, study=tmp_path / "s.db")
    assert trials_in(tmp_path / "s.db")[left.number].state.name == "FAIL"
    assert (found.finished, found.failed) == (4, 0)


def test_trials_and_seconds_count_over_all_runs(
    tuned: Callable[..., Tuning], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "run_trial", lambda task, trial, seconds: Outcome("finished", 0.5, 10.0))
    study = tmp_path / "s.db"
    assert tuned(trials=2, study=study).finished == 2
    assert tuned(trials=None, seconds=35.0, study=study).finished == 4, "20 s were spent, 30 after the third"
    assert tuned(trials=3, study=study).finished == 4, "nothing is left to do"
    found = tuned(trials=6, seconds=45.0, study=study)
    assert (found.finished, found.seconds) == (5, 50.0)


def test_a_trial_may_take_what_is_left(tuned: Callable[..., Tuning], monkeypatch: pytest.MonkeyPatch) -> None:
    allowed: list[float] = []

    def run(task: Any, trial: Any, seconds: float) -> Outcome:
        allowed.append(seconds)
        return Outcome("finished", 0.5, 10.0)

    monkeypatch.setattr(tuning, "run_trial", run)
    tuned(trials=None, seconds=25.0)
    assert allowed == [25.0, 15.0, 5.0]


def test_a_failed_trial_says_why_and_the_study_goes_on(
    tuned: Callable[..., Tuning], studies: list[optuna.Study]
) -> None:
    found = tuned(Slope(share=0.2, trouble="refusal above"), trials=5)
    assert found.finished == 5
    assert found.failed > 0
    reasons = {one.user_attrs["reason"] for one in studies[0].trials if one.state.name == "FAIL"}
    assert all("will not do" in reason for reason in reasons)


def test_where_all_trials_fail_one_line_says_so(tuned: Callable[..., Tuning]) -> None:
    with pytest.raises(ConfigError, match=r"slope: no trial finished, 10 failed; the last one: share: .* will not do"):
        tuned(Slope(trouble="refusal"), trials=50)


def test_a_mistake_of_the_program_is_not_a_failed_trial(
    tuned: Callable[..., Tuning], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Slope, "score", lambda self, histories: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        tuned()


def test_scores_that_are_no_numbers_fail(tuned: Callable[..., Tuning], monkeypatch: pytest.MonkeyPatch) -> None:
    real = Slope.score
    monkeypatch.setattr(Slope, "score", lambda self, rows: real(self, rows) * (float("nan") if self.share > 0.6 else 1))
    found = tuned(trials=6)
    assert isinstance(found.best, Slope)
    assert found.best.share <= 0.6
    assert found.failed > 0


def test_a_grid_is_gone_through_once(tuned: Callable[..., Tuning], studies: list[optuna.Study]) -> None:
    grid = Space({"share": Among((0.0, 0.25, 0.5, 0.75, 1.0))})
    found = tuned(trials=100, space=grid)
    assert found.finished == 5
    assert sorted(one.params["share"] for one in studies[0].trials) == [0.0, 0.25, 0.5, 0.75, 1.0]
    outside = tuned(Slope(share=0.6), trials=100, space=grid)
    assert outside.finished == 6
    assert tuned(trials=3, space=grid).finished == 3


def test_a_model_without_parameters_takes_one_trial(planted_split: Split) -> None:
    found = tune(
        "popularity", Popularity(), planted_split.train, validation_of(planted_split),
        budget=Budget(trials=20), space=space_of("popularity", "wide"),
    )  # fmt: skip
    assert (found.finished, found.settings) == (1, {})


def test_a_study_of_other_data_model_or_space_is_refused(
    tuned: Callable[..., Tuning], planted_split: Split, tmp_path: Path
) -> None:
    study = tmp_path / "s.db"
    tuned(trials=1, study=study)
    with pytest.raises(ConfigError, match=r"its study of slope is another one: slope.epochs: 0 then, 1 now"):
        tuned(Slope(epochs=1), trials=1, study=study)
    with pytest.raises(ConfigError, match=r"another one: space: "):
        tuned(trials=1, study=study, space=Space({"share": Range(0.1, 1.0)}))
    with pytest.raises(ConfigError, match=r"another one: the data have changed"):
        tune(
            "slope", Slope(), planted_split.train_and_validation, planted_split.test,
            budget=Budget(trials=1), space=SHARES, study=study,
        )  # fmt: skip
    assert len(trials_in(study)) == 1
    assert names_in(study) == ["slope"]


def test_a_study_in_use_is_refused(tuned: Callable[..., Tuning], tmp_path: Path) -> None:
    with quiet_optuna(), open_study(tmp_path / "s.db", "other", {}), pytest.raises(ModelFileError, match="another run"):
        tuned(trials=1, study=tmp_path / "s.db")


def test_budgets_check_and_name_themselves() -> None:
    assert str(Budget(trials=20, seconds=120)) == "20 trials or 120 s per model"
    assert str(Budget(trials=1)) == "1 trial per model"
    assert str(Budget(seconds=0.5)) == "0.5 s per model"
    for given, line in (
        ({}, "needs a budget"),
        ({"trials": 0}, "trials: expected a whole number ≥ 1, found 0"),
        ({"trials": True}, "found True"),
        ({"seconds": 0}, "seconds: expected a number above 0, found 0"),
        ({"seconds": float("nan")}, "found nan"),
    ):
        with pytest.raises(ConfigError, match=line):
            Budget(**given)


def test_a_model_is_judged_under_the_recency_of_its_own_settings(drifting_split: Split) -> None:
    questions = validation_of(drifting_split)
    found = tune(
        "next-ease", NextEASE(prefix_decay=0.95), drifting_split.train, questions, budget=Budget(trials=3),
        space=Space({"prefix_decay": Among((0.95, 0.8, 0.5))}), recency="own",
    )  # fmt: skip
    assert isinstance(found.best, NextEASE)
    task = TrialTask(found.best, Space(), drifting_split.train, questions, "own")
    study = optuna.create_study()
    assert run_trial(task, study.ask(), None).ndcg == found.ndcg


def test_no_bar_is_drawn_inside_the_bar_of_the_trials(
    tuned: Callable[..., Tuning], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[str] = []

    class Drawing(rich.progress.Progress):
        def add_task(self, description: str, *given: Any, **more: Any) -> rich.progress.TaskID:
            drawn.append(description)
            return super().add_task(description, *given, **more)

    def fit(self: Slope, *given: Any, **more: Any) -> Slope:
        with bar("a fit", 5):
            return real(self, *given, **more)

    real = Slope.fit
    monkeypatch.setattr(rich.progress, "Progress", Drawing)
    monkeypatch.setattr(Slope, "fit", fit)
    show_progress(True)
    try:
        tuned(trials=2)
        with bar("afterwards", 5):
            pass
    finally:
        show_progress(None)
    assert drawn == ["tuning slope", "afterwards"]
