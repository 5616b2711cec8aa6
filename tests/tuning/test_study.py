"""Tuning never loses to the template, keeps to its budget, repeats itself by its seed, and resumes where it was."""

from __future__ import annotations

import itertools
import logging
import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import optuna
import pytest
import rich.progress
from tuning_models import Slope

from loca.communities.kernel import Kernels
from loca.data.splits import HeldOut, Split
from loca.errors import ConfigError, ModelFileError
from loca.evaluation.evaluate import mean_value
from loca.local.combiner import LocalOnly
from loca.local.loca import Loca
from loca.models.ease import EASE
from loca.models.mult_vae import MultVAE
from loca.models.next_ease import NextEASE
from loca.models.popularity import Popularity
from loca.models.recommender import Recommender, TrainingData
from loca.persistence.fit_context import NO_CONTEXT, FitContext
from loca.progress import bar, set_progress
from loca.registry import space_of
from loca.search_space import Among, Budget, Range, Space
from loca.tuning.model_selection import RecencyRule, select
from loca.tuning.study import Tuner, Tuning, names_in, open_study
from loca.tuning.workers import Worker, WorkerDied

SHARES = Space({"share": Range(0.0, 1.0)})
SMALL: dict[str, Any] = {
    "latent": 6, "epochs": 12, "batch_size": 100, "patience": 50, "dropout": 0.1, "learning_rate": 0.03,
}  # fmt: skip


def validation_of(split: Split) -> HeldOut:
    assert split.validation is not None
    return split.validation


@pytest.fixture
def tuned(planted_split: Split) -> Callable[..., Tuning]:
    """Tunes a slope, or whatever model, on the planted data."""

    def run(
        model: Recommender | None = None,
        trials: int | None = 6,
        seconds: float | None = None,
        study: Path | None = None,
        space: Space = SHARES,
        **more: Any,
    ) -> Tuning:
        data = planted_split.train, validation_of(planted_split)
        return Tuner("slope", model or Slope(), *data, space, Budget(seconds, trials), **more).tune(
            study
        )

    return run


def trials_in(path: Path) -> list[optuna.trial.FrozenTrial]:
    return optuna.load_study(study_name="slope", storage=f"sqlite:///{path}").trials


def summary(trials: list[optuna.trial.FrozenTrial]) -> list[Any]:
    """What the trials tried and reached."""
    return [(one.params, one.value, one.state) for one in trials]


def test_tuning_finds_what_validation_likes_and_says_so(planted_split: Split) -> None:
    data = planted_split.train, validation_of(planted_split)
    found = Tuner("ease", EASE(l2=1e4), *data, space_of("ease", "wide"), Budget(trials=10)).tune()
    assert isinstance(found.best, EASE)
    assert found.best.weights_ is None
    assert found.best.l2 < 1e4
    before = mean_value(EASE(l2=1e4).fit(planted_split.train).score, data[1])
    assert found.score_before == before < found.score
    assert found.score == mean_value(EASE(**found.settings).fit(planted_split.train).score, data[1])
    assert (found.finished, found.pruned, found.failed) == (10, 0, 0)
    assert set(found.settings) == {"l2", "denoising"}


def test_the_first_trial_is_the_template_itself(
    tuned: Callable[..., Tuning], tmp_path: Path
) -> None:
    exact = 0.123456789
    found = tuned(Slope(share=exact), trials=1, study=tmp_path / "s.db")
    assert isinstance(found.best, Slope)
    assert found.best.share == exact
    assert [one.params for one in trials_in(tmp_path / "s.db")] == [{"share": exact}]


def test_a_template_outside_the_space_is_tried_too(
    tuned: Callable[..., Tuning], tmp_path: Path
) -> None:
    space = Space({"share": Range(0.0, 0.4)})
    found = tuned(Slope(share=1.0), trials=10, space=space, study=tmp_path / "s.db")
    assert isinstance(found.best, Slope)
    assert found.best.share == 1.0
    assert found.score == found.score_before
    assert [bool(one.params) for one in trials_in(tmp_path / "s.db")] == [False] + [True] * 9


def test_the_same_seed_gives_the_same_study_and_another_seed_another(
    tuned: Callable[..., Tuning], tmp_path: Path
) -> None:
    for name, seed, trials in (("first", 1, 10), ("again", 1, 10), ("other", 2, 2)):
        tuned(trials=trials, seed=seed, study=tmp_path / name)
    first, again, other = (
        summary(trials_in(tmp_path / name)) for name in ("first", "again", "other")
    )
    assert first == again
    assert first[1] != other[1]


def test_a_study_that_was_stopped_ends_as_an_unbroken_one(
    tuned: Callable[..., Tuning], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unbroken = tuned(trials=10, study=tmp_path / "unbroken")
    real = Slope.fit
    for stop_after in (0, 9):
        count = itertools.count()

        def fit(
            model: Any, train: Any, stop: int = stop_after, count: Any = count, **more: Any
        ) -> Any:
            if next(count) == stop:
                raise KeyboardInterrupt
            known = {name: more[name] for name in ("user_weights", "validation") if name in more}
            return real(model, train, **known)

        with monkeypatch.context() as patched:
            patched.setattr(Slope, "fit", fit)
            with pytest.raises(KeyboardInterrupt):
                tuned(trials=10, study=tmp_path / f"{stop_after}")
        resumed = tuned(trials=10, study=tmp_path / f"{stop_after}")
        finished = [
            one for one in trials_in(tmp_path / f"{stop_after}") if one.state.name != "FAIL"
        ]
        assert summary(finished) == summary(trials_in(tmp_path / "unbroken"))
        assert (resumed.score, resumed.finished, resumed.failed) == (unbroken.score, 10, 0)


def test_trials_of_a_killed_run_are_given_up_and_tried_again(
    tuned: Callable[..., Tuning], tmp_path: Path
) -> None:
    tuned(trials=3, study=tmp_path / "s.db")
    left = optuna.load_study(study_name="slope", storage=f"sqlite:///{tmp_path / 's.db'}").ask()
    found = tuned(trials=4, study=tmp_path / "s.db")
    assert trials_in(tmp_path / "s.db")[left.number].state.name == "FAIL"
    assert (found.finished, found.failed) == (4, 0)


def test_a_failed_trial_says_why_and_the_study_goes_on(
    tuned: Callable[..., Tuning], tmp_path: Path
) -> None:
    found = tuned(Slope(share=0.2, trouble="refusal above"), trials=5, study=tmp_path / "s.db")
    assert found.finished == 5
    assert found.failed > 0
    reasons = {
        one.user_attrs["reason"] for one in trials_in(tmp_path / "s.db") if one.state.name == "FAIL"
    }
    assert all("will not do" in reason for reason in reasons)


def test_where_all_trials_fail_one_line_says_so_and_no_study_is_left(
    tuned: Callable[..., Tuning], tmp_path: Path
) -> None:
    with pytest.raises(
        ConfigError,
        match=r"slope: no trial finished, 10 failed; the last one: share: .* will not do",
    ):
        tuned(Slope(trouble="refusal"), trials=50, study=tmp_path / "s.db")
    assert list(tmp_path.iterdir()) == []


def test_a_mistake_of_the_program_is_not_a_failed_trial(
    tuned: Callable[..., Tuning], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Slope, "score", lambda self, histories: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        tuned()


def test_scores_that_are_no_numbers_fail(
    tuned: Callable[..., Tuning], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Slope.score
    monkeypatch.setattr(
        Slope,
        "score",
        lambda self, rows: real(self, rows) * (float("nan") if self.share > 0.6 else 1),
    )
    found = tuned(trials=6)
    assert isinstance(found.best, Slope)
    assert found.best.share <= 0.6
    assert found.failed > 0


def test_a_grid_is_gone_through_once(tuned: Callable[..., Tuning], tmp_path: Path) -> None:
    grid = Space({"share": Among((0.0, 0.25, 0.5, 0.75, 1.0))})
    found = tuned(trials=100, space=grid, study=tmp_path / "s.db")
    assert found.finished == 5
    assert sorted(one.params["share"] for one in trials_in(tmp_path / "s.db")) == [
        0.0,
        0.25,
        0.5,
        0.75,
        1.0,
    ]
    outside = tuned(Slope(share=0.6), trials=100, space=grid)
    assert outside.finished == 6
    assert tuned(trials=3, space=grid).finished == 3


def test_a_model_without_parameters_takes_one_trial(planted_split: Split) -> None:
    data = planted_split.train, validation_of(planted_split)
    found = Tuner("popularity", Popularity(), *data, Space(), Budget(trials=20)).tune()
    assert (found.finished, found.settings) == (1, {})


def test_parameters_that_matter_are_named_where_there_are_enough_trials(
    tuned: Callable[..., Tuning],
) -> None:
    assert tuned(trials=3).importances == {}
    assert tuned(trials=17).importances == {"share": 1.0}


def test_a_study_of_other_data_model_or_space_is_refused(
    tuned: Callable[..., Tuning], planted_split: Split, tmp_path: Path
) -> None:
    study = tmp_path / "s.db"
    tuned(trials=1, study=study)
    with pytest.raises(
        ConfigError, match=r"its study of slope is another one: slope.epochs: 0 then, 1 now"
    ):
        tuned(Slope(epochs=1), trials=1, study=study)
    with pytest.raises(ConfigError, match=r"another one: space: "):
        tuned(trials=1, study=study, space=Space({"share": Range(0.1, 1.0)}))
    data = planted_split.train_and_validation, planted_split.test
    with pytest.raises(ConfigError, match=r"another one: the data have changed"):
        Tuner("slope", Slope(), *data, SHARES, Budget(trials=1)).tune(study)
    assert len(trials_in(study)) == 1
    assert names_in(study) == ["slope"]


def test_a_study_in_use_is_refused(tuned: Callable[..., Tuning], tmp_path: Path) -> None:
    with (
        open_study(tmp_path / "s.db", "other", {}),
        pytest.raises(ModelFileError, match="another run"),
    ):
        tuned(trials=1, study=tmp_path / "s.db")


def test_an_impossible_number_of_processes_is_refused(tuned: Callable[..., Tuning]) -> None:
    with pytest.raises(ConfigError, match="processes: expected a whole number ≥ 1, found 0"):
        tuned(processes=0)


def test_a_model_is_judged_under_the_recency_of_its_own_settings(drifting_split: Split) -> None:
    data = drifting_split.train, validation_of(drifting_split)
    own: RecencyRule = "own"
    space = Space({"prefix_decay": Among((0.95, 0.8, 0.5))})
    found = Tuner(
        "next-ease", NextEASE(prefix_decay=0.95), *data, space, Budget(trials=3), own
    ).tune()
    assert select([found.best], *data, recency=own).tried[0].score == found.score


def test_no_bar_is_drawn_inside_the_bar_of_the_trials(
    tuned: Callable[..., Tuning], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[str] = []

    class Drawing(rich.progress.Progress):
        def add_task(self, description: str, *given: Any, **more: Any) -> rich.progress.TaskID:
            drawn.append(description)
            return super().add_task(description, *given, **more)

    def fit(self: Slope, train: Any, **more: Any) -> Slope:
        with bar("a fit", 5):
            known = {name: more[name] for name in ("user_weights", "validation") if name in more}
            return real(self, train, **known)

    real = Slope.fit
    monkeypatch.setattr(rich.progress, "Progress", Drawing)
    monkeypatch.setattr(Slope, "fit", fit)
    set_progress(True)
    try:
        tuned(trials=2)
        with bar("afterwards", 5):
            pass
    finally:
        set_progress(None)
    assert drawn == ["tuning slope", "afterwards"]


def test_a_trial_among_the_worst_third_after_ten_epochs_is_pruned_once_five_are_finished(
    tuned: Callable[..., Tuning], tmp_path: Path
) -> None:
    grid = Space({"share": Among(tuple(number / 20 for number in range(21)))})
    found = tuned(Slope(epochs=20), trials=21, space=grid, study=tmp_path / "s.db")
    finished: list[float] = []
    for trial in trials_in(tmp_path / "s.db"):
        is_worse = len(finished) >= 5 and trial.params["share"] < np.percentile(finished, 33)
        assert trial.state.name == ("PRUNED" if is_worse else "COMPLETE")
        if is_worse:
            assert trial.user_attrs["reason"] == "others were better at step 10"
            assert list(trial.intermediate_values) == list(range(1, 11))
        else:
            finished.append(trial.params["share"])
    assert (found.finished, found.pruned) == (len(finished), 21 - len(finished))
    assert found.pruned > 0


def test_a_network_reports_every_epoch_and_one_that_does_not_learn_is_pruned(
    tuned: Callable[..., Tuning], tmp_path: Path
) -> None:
    rates = Space({"learning_rate": Among((0.03, 0.02, 0.025, 0.035, 0.028, 1e-7))})
    tuned(MultVAE(**SMALL), space=rates, study=tmp_path / "s.db", seed=1)
    *learned, hopeless = trials_in(tmp_path / "s.db")
    assert hopeless.params == {"learning_rate": 1e-7}, "with this seed it comes last"
    assert [list(one.intermediate_values) for one in learned] == [list(range(1, 13))] * 5
    assert all(one.value == pytest.approx(max(one.intermediate_values.values())) for one in learned)
    assert (hopeless.state.name, list(hopeless.intermediate_values)) == (
        "PRUNED",
        list(range(1, 11)),
    )


def test_only_the_local_models_of_a_loca_are_compared(
    tuned: Callable[..., Tuning], tmp_path: Path
) -> None:
    local = Loca(
        base=MultVAE(**{**SMALL, "epochs": 3}),
        communities=Kernels(n=2),
        combiner=LocalOnly(),
    )
    found = tuned(local, space=Space(), study=tmp_path / "s.db")
    (trial,) = trials_in(tmp_path / "s.db")
    assert list(trial.intermediate_values) == [1, 2, 3]
    assert found.score == pytest.approx(max(trial.intermediate_values.values()), abs=1e-6)


class Located(EASE):
    """Writes down the device of each fit."""

    devices: ClassVar[list[str]] = []

    def _fit(self, data: TrainingData) -> None:
        self.devices.append(data.device)
        super()._fit(data)


def test_every_trial_computes_on_the_device_of_the_tuner(tuned: Callable[..., Tuning]) -> None:
    Located.devices.clear()
    tuned(Located(), space=Space({"l2": Among((10.0, 100.0))}), trials=2, device="cpu")
    assert Located.devices == ["cpu", "cpu"]


class TwoPhases(Slope):
    """Learns twice, and what it reports first says nothing about what it reaches."""

    def fit(
        self,
        train: Any,
        *,
        user_weights: Any = None,
        validation: Any = None,
        context: FitContext = NO_CONTEXT,
    ) -> Any:
        for score in (0.7, 0.8):
            context.report(1, score)
            context.report(2, score + 0.01)
        return super().fit(train)


def test_a_second_phase_is_not_compared_with_others_first(
    tuned: Callable[..., Tuning], tmp_path: Path
) -> None:
    assert tuned(TwoPhases(), space=Space(), study=tmp_path / "s.db").finished == 1
    (trial,) = trials_in(tmp_path / "s.db")
    assert trial.intermediate_values == {1: 0.7, 2: 0.71}


class Clock:
    """A time that is set by hand."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


class Slow(Slope):
    """Takes ten seconds an epoch of a clock that is set by hand; a part of it learns first where `trouble` says so."""

    clock = Clock()

    def fit(
        self,
        train: Any,
        *,
        user_weights: Any = None,
        validation: Any = None,
        context: FitContext = NO_CONTEXT,
    ) -> Any:
        if self.trouble == "part":
            context.fit_part("part", Slow(share=self.share), train)
        for epoch, score in enumerate((0.2, 0.5, 0.3), 1):
            self.clock.now += 10
            context.report(epoch, score)
        return super().fit(train)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("loca.tuning.study.time", made)
    monkeypatch.setattr(Slow, "clock", made)
    return made


def test_seconds_count_over_all_runs_and_a_trial_may_take_what_is_left(
    tuned: Callable[..., Tuning], tmp_path: Path, clock: Clock
) -> None:
    study = tmp_path / "s.db"
    assert tuned(Slow(), trials=2, study=study).seconds == 60.0
    found = tuned(Slow(), trials=None, seconds=80.0, study=study)
    assert (found.finished, found.seconds) == (3, 80.0)
    last = trials_in(study)[-1]
    assert (last.value, last.user_attrs["reason"]) == (0.5, "the time was over at step 2")
    assert tuned(Slow(), trials=3, study=study).finished == 3, "nothing is left to do"
    assert tuned(Slow(), trials=9, seconds=80.0, study=study).finished == 3


def test_a_part_that_is_ended_by_the_time_says_nothing_about_the_model(
    tuned: Callable[..., Tuning], tmp_path: Path, clock: Clock
) -> None:
    with pytest.raises(
        ConfigError,
        match="1 failed; the last one: the time was over before the model had learned any",
    ):
        tuned(Slow(trouble="part"), trials=None, seconds=20.0)
    found = tuned(Slow(trouble="part"), trials=None, seconds=50.0, study=tmp_path / "s.db")
    assert (found.finished, found.score) == (1, 0.5)


class Solved(Slow):
    """Learns in one piece, and takes 100 seconds for it."""

    def fit(self, train: Any, *, user_weights: Any = None, validation: Any = None) -> Any:  # type: ignore[override]
        self.clock.now += 100
        return Slope.fit(self, train)


def test_a_model_that_is_solved_in_one_piece_is_waited_for(
    tuned: Callable[..., Tuning], tmp_path: Path, clock: Clock
) -> None:
    assert tuned(Solved(), trials=None, seconds=60.0, study=tmp_path / "s.db").finished == 1
    (trial,) = trials_in(tmp_path / "s.db")
    assert trial.user_attrs["reason"] == "it ended 40.0 s after the time was over"


class Interrupting(logging.Handler):
    """Presses Ctrl-C when so many trials have been reported as finished."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def emit(self, record: logging.LogRecord) -> None:
        self.count -= ": trial " in record.getMessage() and "failed" not in record.getMessage()
        if self.count == 0:
            raise KeyboardInterrupt


def test_a_worker_that_dies_is_replaced_and_ctrl_c_ends_all_and_the_study_stays(
    tuned: Callable[..., Tuning], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, diary = tmp_path / "s.db", tmp_path / "diary"
    model = Slope(share=0.2, trouble="one death", diary=str(diary))
    logger, handler = logging.getLogger("loca"), Interrupting(4)
    monkeypatch.setattr(logger, "level", logging.INFO)
    logger.addHandler(handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            tuned(model, study=study, processes=2)
    finally:
        logger.removeHandler(handler)
    assert multiprocessing.active_children() == []
    assert {one.name for one in tmp_path.iterdir()} == {"s.db", "diary"}
    dead = [
        one for one in trials_in(study) if one.state.name == "FAIL" and "seconds" in one.user_attrs
    ]
    assert [one.user_attrs["reason"] for one in dead] == ["its process ended with code 3"]
    assert len(diary.read_text().splitlines()) >= 5
    fits = diary.read_text()
    found = tuned(model, study=study, trials=1, processes=2)
    assert diary.read_text() == fits, "there is nothing left to do"
    assert 4 <= found.finished <= 6
    assert found.failed == 1


class Ended:
    """A process that has ended before it was ready."""

    exitcode = 7

    def join(self, seconds: float | None = None) -> None: ...


def test_a_process_that_cannot_start_is_reported() -> None:
    ours, theirs = multiprocessing.Pipe()
    theirs.close()
    with pytest.raises(WorkerDied, match=r"a worker process could not start \(exit code 7\)"):
        Worker(Ended(), ours).hear()  # type: ignore[arg-type]
