"""Trials that learn by epochs: compared epoch by epoch, pruned where they have no chance, ended with the time."""

from __future__ import annotations

from typing import Any

import optuna
import pytest
from tuning_models import Slope

import loca.tuning.study as trials
from loca.data.splits import HeldOut, Split
from loca.local.loca import Loca
from loca.models.mult_vae import MultVAE
from loca.models.recommender import Recommender
from loca.persistence.fit_context import NO_CONTEXT, FitContext
from loca.search_space import Space
from loca.tuning.study import Outcome, TrialTask, make_pruner, quiet_optuna, run_trial

SMALL = {"latent": 6, "epochs": 12, "batch_size": 100, "patience": 50, "dropout": 0.1, "learning_rate": 0.03}


def validation_of(split: Split) -> HeldOut:
    assert split.validation is not None
    return split.validation


def run_one(model: Recommender, split: Split, seconds: float | None = None) -> tuple[Outcome, optuna.trial.FrozenTrial]:
    """How a trial of the model as it is ends, and what it reported."""
    with quiet_optuna():
        study = optuna.create_study(direction="maximize")
        task = TrialTask(model, Space(), split.train, validation_of(split), "given")
        outcome = run_trial(task, study.ask(), seconds)
    return outcome, study.trials[0]


class Clock:
    """A time that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(trials, "time", made)
    return made


def run_all(models: list[Recommender], split: Split) -> list[optuna.trial.FrozenTrial]:
    """How trials of these models end, one after the other."""
    with quiet_optuna():
        study = optuna.create_study(direction="maximize", pruner=make_pruner())
        for model in models:
            trial = study.ask()
            outcome = run_trial(TrialTask(model, Space(), split.train, validation_of(split), "given"), trial, None)
            state = optuna.trial.TrialState.PRUNED if outcome.state == "pruned" else None
            trial.set_user_attr("reason", outcome.reason)
            study.tell(trial, outcome.ndcg, state=state)
    return study.trials


def run_slopes(shares: list[float], split: Split) -> list[optuna.trial.FrozenTrial]:
    """Twenty epochs each, with the share told after every one."""
    return run_all([Slope(share=share, epochs=20) for share in shares], split)


def test_a_trial_among_the_worst_third_after_ten_epochs_is_pruned(planted_split: Split) -> None:
    ended = run_slopes([0.5, 0.6, 0.7, 0.8, 0.9, 0.55, 0.1, 0.75], planted_split)
    assert [one.state.name for one in ended] == ["COMPLETE"] * 5 + ["PRUNED"] * 2 + ["COMPLETE"]
    assert {one.user_attrs["reason"] for one in ended[5:7]} == {"others were better at step 10"}


def test_the_first_five_trials_are_let_be(planted_split: Split) -> None:
    assert [one.state.name for one in run_slopes([0.9, 0.8, 0.7, 0.6, 0.1], planted_split)] == ["COMPLETE"] * 5


def test_a_network_tells_every_epoch_and_one_that_does_not_learn_is_pruned(planted_split: Split) -> None:
    rates = (0.03, 0.02, 0.025, 0.035, 0.028, 1e-7)
    small: list[Recommender] = [MultVAE(**{**SMALL, "learning_rate": rate}) for rate in rates]  # type: ignore[arg-type]
    *learned, hopeless = run_all(small, planted_split)
    assert [list(one.intermediate_values) for one in learned] == [list(range(1, 13))] * 5
    assert all(one.value == pytest.approx(max(one.intermediate_values.values())) for one in learned)
    assert (hopeless.state.name, list(hopeless.intermediate_values)) == ("PRUNED", list(range(1, 11)))


def test_only_the_local_models_of_a_loca_are_compared(planted_split: Split) -> None:
    base = MultVAE(**{**SMALL, "epochs": 3})  # type: ignore[arg-type]
    outcome, trial = run_one(Loca(base=base, anchors=2, alpha=0.0), planted_split)
    assert list(trial.intermediate_values) == [1, 2, 3]
    assert outcome.ndcg == pytest.approx(max(trial.intermediate_values.values()), abs=1e-6)


class TwoPhases(Slope):
    """Learns twice, and what it tells first says nothing about what it reaches."""

    def fit(
        self, train: Any, *, user_weights: Any = None, validation: Any = None, context: FitContext = NO_CONTEXT
    ) -> Any:
        for score in (0.7, 0.8):
            context.report(1, score)
            context.report(2, score + 0.01)
        return super().fit(train)


def test_a_second_phase_is_not_compared_with_others_first(planted_split: Split) -> None:
    outcome, trial = run_one(TwoPhases(), planted_split)
    assert trial.intermediate_values == {1: 0.7, 2: 0.71}
    assert outcome.state == "finished"


class Slow(Slope):
    """Takes ten seconds an epoch of a clock that is set by hand; a part of it learns first, or not."""

    def __init__(self, *, clock: Any = None, part: bool = False, told: tuple[float, ...] = (0.2, 0.5, 0.3)) -> None:
        super().__init__()
        self.clock = clock
        self.part = part
        self.told = told

    def fit(
        self, train: Any, *, user_weights: Any = None, validation: Any = None, context: FitContext = NO_CONTEXT
    ) -> Any:
        if self.part:
            context.fit_part("part", Slow(clock=self.clock), train)
        for epoch, score in enumerate(self.told, 1):
            self.clock.now += 10
            context.report(epoch, score)
        return super().fit(train)


def test_a_trial_that_is_ended_by_the_time_keeps_its_best(planted_split: Split, clock: Clock) -> None:
    outcome, _ = run_one(Slow(clock=clock), planted_split, seconds=30)
    assert outcome == Outcome("finished", 0.5, 30.0, "the time was over at step 3")


def test_a_part_that_is_ended_by_the_time_says_nothing_about_the_model(planted_split: Split, clock: Clock) -> None:
    outcome, trial = run_one(Slow(clock=clock, part=True), planted_split, seconds=20)
    assert outcome == Outcome("failed", None, 20.0, "the time was over before the model had learned anything")
    assert trial.intermediate_values == {}
    outcome, trial = run_one(Slow(clock=clock, part=True), planted_split, seconds=50)
    assert (outcome.state, outcome.ndcg) == ("finished", 0.5)


def test_a_model_that_is_solved_in_one_piece_is_waited_for(planted_split: Split, clock: Clock) -> None:
    class Solved(Slope):
        def fit(self, train: Any, *, user_weights: Any = None, validation: Any = None) -> Any:
            clock.now += 100
            return super().fit(train)

    outcome, _ = run_one(Solved(), planted_split, seconds=60)
    assert outcome.state == "finished"
    assert outcome.reason == "it ended 40.0 s after the time was over"
