"""Auto: what it finds, that no clock decides anything under trials, and that it goes on after an interruption."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import loca
import loca.local.auto as automatic_file
from loca.data.id_map import IdMap
from loca.data.interactions import Interactions
from loca.data.recency import Recency
from loca.data.splits import Split, leave_last_out
from loca.data.synthetic import planted_communities
from loca.errors import ConfigError, DataError
from loca.evaluation.evaluate import evaluate
from loca.local.auto import Auto, Climb, NetworkPlan, Search, Trial
from loca.local.blend import Blend
from loca.local.engines.stacked.trainer import StackedTrainer
from loca.models.ease import EASE
from loca.models.mult_vae import MultVAE
from loca.models.next_ease import NextEASE
from loca.models.recommender import TrainingData, clone
from loca.persistence.fit_context import checkpoint_in
from loca.registry import load
from loca.tuning.model_selection import fit

real_plan = automatic_file.plan_networks


def walks(users: int = 400, items: int = 60) -> Interactions:
    """Everybody walks along a circle of items, four of five steps one item further, else a jump; no item twice."""
    rng = np.random.default_rng(2)
    histories = []
    for _ in range(users):
        walk = [int(rng.integers(items))]
        while len(walk) < 14:
            free = np.setdiff1d(np.arange(items), walk)
            following = (walk[-1] + 1) % items
            walk.append(
                following if following in free and rng.random() < 0.8 else int(rng.choice(free))
            )
        histories.append(walk)
    offsets, item_rows = np.arange(users + 1) * 14, np.concatenate(histories).astype(np.int32)
    return Interactions(
        IdMap.numbered(users, "user"), IdMap.numbered(items, "item"), offsets, item_rows
    )


@pytest.fixture(autouse=True)
def small_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks that take a moment: the searching is what is tested here."""
    small = {name: {**target, "latent": 8} for name, target in automatic_file.TARGETS.items()}
    monkeypatch.setattr(automatic_file, "TARGETS", small)
    plan = NetworkPlan(targets=len(small), members=2, epochs=4)
    monkeypatch.setattr(automatic_file, "plan_networks", lambda *_: plan)


@pytest.fixture(scope="module")
def ordered_split() -> Split:
    return leave_last_out(walks(), test=1, validation=1)


@pytest.fixture(scope="module")
def planted_split() -> Split:
    planted = planted_communities(users=60, items=30, groups=5, history=12, shortest_history=10)
    return leave_last_out(planted.interactions, test=1, validation=2)


def clock_of_looks(seconds: Callable[[], float]) -> Callable[[], float]:
    """Make a clock on which so many seconds pass from one look to the next."""
    now = 0.0

    def look() -> float:
        nonlocal now
        now += seconds()
        return now

    return look


def wild_clock() -> Callable[[], float]:
    """Make a clock that jumps by anything from a microsecond to two minutes."""
    rng = np.random.default_rng(0)
    return clock_of_looks(lambda: float(10.0 ** rng.uniform(-6, 2)))


def under_clock(clock: Callable[[], float], auto: Auto, split: Split) -> Auto:
    """Fit while the clocks of Python's time show what `clock` does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "perf_counter", clock)
        patch.setattr(time, "monotonic", clock)
        return auto.fit(split.train, validation=split.validation)


def test_it_finds_the_order_and_beats_what_does_not(ordered_split: Split) -> None:
    auto = Auto(trials=12).fit(ordered_split.train, validation=ordered_split.validation)
    plain = EASE(l2=30.0).fit(ordered_split.train)
    found, without = (
        evaluate(model, ordered_split.test, at=(10,)).means()["ndcg@10"] for model in (auto, plain)
    )
    assert found > 1.2 * without
    assert auto.train_data_ is not None
    assert auto.train_data_.recency == Recency.per_position(0.9)
    assert "NextEASE" in auto.report()


def test_a_recency_of_the_data_wins_over_its_own(ordered_split: Split) -> None:
    given = ordered_split.with_recency(Recency.per_position(0.5))
    auto = Auto(trials=3).fit(given.train, validation=given.validation)
    assert auto.train_data_ is not None
    assert auto.train_data_.recency == Recency.per_position(0.5)


def test_as_many_trials_as_asked_for_are_made_and_all_families_have_a_share(
    ordered_split: Split,
) -> None:
    auto = Auto(trials=8).fit(ordered_split.train, validation=ordered_split.validation)
    assert len(auto.trials_) <= 8
    assert {"EASE", "NextEASE", "next items"} <= {one.name for one in auto.trials_}


@pytest.mark.parametrize(
    ("trials", "names"),
    [
        (1, ["EASE"]),
        (3, ["EASE", "NextEASE", "next items and sets"]),
        (
            12,
            [
                *("EASE", "EASE", "Loca of EASE", *["NextEASE"] * 3, "NextEASE alone"),
                *("next items and sets", "next items", "all that follows and sets"),
            ],
        ),
    ],
)
def test_a_number_of_trials_gives_the_same_bits_whatever_the_clock_shows(
    planted_split: Split, monkeypatch: pytest.MonkeyPatch, trials: int, names: list[str]
) -> None:
    monkeypatch.setattr(automatic_file, "plan_networks", real_plan)
    monkeypatch.setattr(automatic_file, "MOST_MEMBERS", 2)
    first = under_clock(clock_of_looks(lambda: 1e-6), Auto(trials=trials), planted_split)
    second = under_clock(wild_clock(), Auto(trials=trials), planted_split)
    assert [trial.name for trial in first.trials_] == names
    assert second.trials_ == first.trials_
    assert [trial.seconds for trial in second.trials_] != [trial.seconds for trial in first.trials_]
    assert isinstance(first.model_, Blend)
    assert isinstance(second.model_, Blend)
    assert second.model_.columns_ == first.model_.columns_
    rows = planted_split.test.history_matrix
    np.testing.assert_array_equal(second.score(rows), first.score(rows))
    assert second.report() == first.report()
    assert first.left_out_ == ()


@pytest.mark.parametrize(("trials", "members"), [(1, 1), (3, 3), (30, 8)])
def test_under_trials_ensembles_grow_with_their_number(
    planted_split: Split, trials: int, members: int
) -> None:
    search = search_within(1e-9, planted_split, trials)
    assert real_plan(search, MultVAE(epochs=200)) == NetworkPlan(3, members, 200)


def test_trials_decide_alone_where_seconds_are_given_too(planted_split: Split) -> None:
    alone = Auto(trials=1).fit(planted_split.train, validation=planted_split.validation)
    with pytest.warns(
        loca.LocaWarning, match="trials-decide: auto: trials=1 and seconds=1e-09 were"
    ):
        both = Auto(trials=1, seconds=1e-9).fit(
            planted_split.train, validation=planted_split.validation
        )
    assert both.trials_ == alone.trials_
    with warnings.catch_warnings():
        warnings.simplefilter("error", loca.LocaWarning)
        for quiet in (Auto(trials=1), both.selected()):  # a refit has no budget
            quiet.fit(planted_split.train, validation=planted_split.validation)


def test_a_budget_that_is_over_at_once_still_gives_a_model_and_names_what_is_left_out() -> None:
    found = fit(walks(), Auto(seconds=1e-6), validation=1)
    assert found.best is not None
    left_out = "some settings of EASE; Loca of EASE; NextEASE; networks"
    assert f"\nleft out for lack of time: {left_out}" in str(found)
    assert np.isfinite(found.model.score(walks().matrix()[:3])).all()


def test_seconds_that_are_ample_leave_nothing_out(planted_split: Split) -> None:
    plan = NetworkPlan(3, automatic_file.MOST_MEMBERS, 200)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(automatic_file, "plan_networks", lambda *_: plan)
        auto = under_clock(lambda: 0.0, Auto(), planted_split)
    assert len(auto.trials_) > 12
    assert auto.left_out_ == ()
    assert "left out" not in auto.report()


def test_the_report_names_the_trials_that_a_clock_leaves_out(
    planted_split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    count = Search.count

    def leaps_after_next_ease(self: Search, trial: Trial) -> None:
        nonlocal now
        count(self, trial)
        now = 60.0 if trial.name == "NextEASE" else now

    monkeypatch.setattr(Search, "count", leaps_after_next_ease)
    auto = under_clock(lambda: now, Auto(seconds=100.0), planted_split)
    assert [trial.name for trial in auto.trials_].count("NextEASE") == 1
    assert auto.left_out_[:2] == ("some settings of NextEASE", "NextEASE alone")


def test_the_report_names_the_networks_and_epochs_that_a_clock_leaves_out(
    planted_split: Split, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(automatic_file, "plan_networks", lambda *_: NetworkPlan(1, 3, 2))
    with pytest.warns(loca.LocaWarning, match="stopped at the limit of 2 epochs") as caveats:
        auto = under_clock(lambda: 0.0, Auto(), planted_split)
    # It is not the user who set that limit, and no parameter of Auto's raises it.
    assert not any("raise epochs" in str(caveat.message) for caveat in caveats)
    auto.save(tmp_path / "auto.loca")
    left_out = (
        "5 of 8 networks of each target; epochs of a network from 3 on; networks of next items; "
        "networks of all that follows and sets"
    )
    loaded = load(tmp_path / "auto.loca")
    assert isinstance(loaded, Auto)
    assert loaded.left_out_ == auto.left_out_
    for model in (auto, loaded):
        assert model.report().splitlines()[-1] == f"left out for lack of time: {left_out}"


def test_the_same_trials_give_the_same_numbers_and_survive_a_file(
    ordered_split: Split, tmp_path: Path
) -> None:
    first, second = (
        Auto(trials=7, seed=3).fit(ordered_split.train, validation=ordered_split.validation)
        for _ in "ab"
    )
    rows = ordered_split.test.history_matrix[:5]
    np.testing.assert_array_equal(first.score(rows), second.score(rows))
    first.save(tmp_path / "auto.loca")
    again = load(tmp_path / "auto.loca")
    np.testing.assert_array_equal(again.score(rows), first.score(rows))
    assert isinstance(again, Auto)
    assert again.trials_ == first.trials_
    assert again.report() == first.report()


def test_a_refitted_and_loaded_model_still_reports_what_its_parts_earned(tmp_path: Path) -> None:
    found = fit(walks(), Auto(trials=7), validation=1)
    assert found.best is not None
    assert "alone  weight  without it" in found.best.report
    found.model.save(tmp_path / "auto.loca")
    again = load(tmp_path / "auto.loca")
    assert again.report() == found.model.report() == found.best.report
    assert (
        again.fit(walks()).report().startswith("This fit of the blend was not judged on validation")
    )


def test_a_refit_searches_nothing_and_keeps_the_weights(ordered_split: Split) -> None:
    auto = Auto(trials=7).fit(ordered_split.train, validation=ordered_split.validation)
    refitted = auto.selected().fit(ordered_split.train_and_validation)
    assert refitted.trials_ == ()
    assert isinstance(auto.model_, Blend)
    assert isinstance(refitted.model_, Blend)
    np.testing.assert_allclose(refitted.model_.columns_, auto.model_.columns_)
    assert refitted.train_data_ is not None
    assert len(refitted.train_data_) == len(ordered_split.train_and_validation)


@pytest.mark.parametrize(
    "chosen", [None, Blend(parts=(EASE(), NextEASE()))], ids=["searched", "chosen"]
)
def test_every_part_learns_with_the_user_weights(
    ordered_split: Split, chosen: Blend | None
) -> None:
    assert ordered_split.validation is not None
    train = ordered_split.train.with_recency(Recency.per_position(0.9))
    questions = ordered_split.validation.with_recency(Recency.per_position(0.9))
    weights = np.random.default_rng(0).uniform(0.0, 4.0, train.n_users)
    auto = Auto(trials=6, chosen=chosen).fit(train, user_weights=weights, validation=questions)
    assert isinstance(auto.model_, Blend)
    assert auto.model_.models_
    histories = questions.history_matrix
    for part in auto.model_.answering().values():
        weighted = (
            clone(part).fit(train, user_weights=weights, validation=questions).score(histories)
        )
        unweighted = clone(part).fit(train, validation=questions).score(histories)
        np.testing.assert_allclose(part.score(histories), weighted, rtol=1e-4, atol=1e-5)
        assert not np.allclose(unweighted, weighted, rtol=1e-2, atol=1e-2)


def test_a_run_that_goes_on_ends_with_the_numbers_of_an_unbroken_one(
    ordered_split: Split, tmp_path: Path
) -> None:
    unbroken = Auto(trials=8).fit(ordered_split.train, validation=ordered_split.validation)
    judged = 0
    judge = Search.judge

    def fails_after_five(self: Search, *asked: object) -> float:
        nonlocal judged
        judged += 1
        if judged == 6:
            raise KeyboardInterrupt
        return judge(self, *asked)  # type: ignore[arg-type]

    subject = {"loca": "test", "data": "walks"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Search, "judge", fails_after_five)
        with (
            pytest.raises(KeyboardInterrupt),
            checkpoint_in(tmp_path / "work", fingerprint=subject, resume=False) as context,
        ):
            Auto(trials=8).fit(
                ordered_split.train, validation=ordered_split.validation, context=context
            )
    with (
        pytest.MonkeyPatch.context() as patch,
        checkpoint_in(tmp_path / "work", fingerprint=subject, resume=True) as context,
    ):
        patch.setattr(time, "perf_counter", wild_clock())
        resumed = Auto(trials=8).fit(
            ordered_split.train, validation=ordered_split.validation, context=context
        )
    rows = ordered_split.test.history_matrix[:5]
    np.testing.assert_array_equal(resumed.score(rows), unbroken.score(rows))
    assert resumed.trials_ == unbroken.trials_


@pytest.mark.parametrize("epochs_done", [1, 9])
def test_a_run_that_goes_on_inside_an_ensemble_ends_with_the_same_numbers(
    ordered_split: Split, tmp_path: Path, epochs_done: int
) -> None:
    unbroken = Auto(trials=8).fit(ordered_split.train, validation=ordered_split.validation)
    shown = 0
    run_epoch = StackedTrainer.run_epoch

    def fails(self: StackedTrainer) -> float:
        nonlocal shown
        shown += 1
        if shown == epochs_done + 1:
            raise KeyboardInterrupt
        return run_epoch(self)

    subject = {"loca": "test", "data": "walks"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StackedTrainer, "run_epoch", fails)
        with (
            pytest.raises(KeyboardInterrupt),
            checkpoint_in(
                tmp_path / "work", fingerprint=subject, resume=False, seconds_between=0.0
            ) as context,
        ):
            Auto(trials=8).fit(
                ordered_split.train, validation=ordered_split.validation, context=context
            )
    with checkpoint_in(
        tmp_path / "work", fingerprint=subject, resume=True, seconds_between=0.0
    ) as context:
        resumed = Auto(trials=8).fit(
            ordered_split.train, validation=ordered_split.validation, context=context
        )
    rows = ordered_split.test.history_matrix[:5]
    np.testing.assert_array_equal(resumed.score(rows), unbroken.score(rows))


def search_within(seconds: float, split: Split, trials: int | None = None) -> Search:
    assert split.validation is not None
    data = TrainingData(
        split.train,
        split.train.matrix(),
        np.ones(split.train.n_users, np.float32),
        split.validation,
    )
    return Search(data, split.validation, seconds, trials)


def test_networks_are_planned_by_the_time_that_is_left(ordered_split: Split) -> None:
    ample = search_within(1e6, ordered_split)
    assert real_plan(ample, MultVAE(latent=8)) == NetworkPlan(3, 8, 200)
    short = search_within(1e-3, ordered_split)
    assert real_plan(short, MultVAE(latent=8)) == NetworkPlan(1, 1, 1)


def test_a_kind_that_needs_too_much_memory_is_left_out(
    ordered_split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: EASE, *_: object, **__: object) -> EASE:
        raise DataError(
            "EASE for 60 items: 9 GB of memory needed, 1 GB are free; filter rare items"
        )

    monkeypatch.setattr(EASE, "fit", refuse)
    auto = Auto(trials=6).fit(ordered_split.train, validation=ordered_split.validation)
    assert "EASE" not in {one.name for one in auto.trials_}
    assert "NextEASE" in {one.name for one in auto.trials_}


def test_without_a_decay_nothing_is_weighed(ordered_split: Split) -> None:
    auto = Auto(trials=3, decay=None).fit(ordered_split.train, validation=ordered_split.validation)
    assert auto.train_data_ is not None
    assert auto.train_data_.recency is None


def test_a_climb_finds_the_top_of_a_hill(
    monkeypatch: pytest.MonkeyPatch, ordered_split: Split
) -> None:
    assert ordered_split.validation is not None
    search = search_within(1e6, ordered_split)
    monkeypatch.setattr(
        Search,
        "judge",
        lambda self, model, power: -abs(np.log(model.l2 / 30)) - abs(model.denoising - 0.5),
    )
    start = EASE(l2=3000.0)
    axes = {"l2": (10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0), "denoising": (0.0, 0.5, 0.8)}
    best = Climb(search, "EASE", start, axes, 1.0).run()
    assert isinstance(best, EASE)
    assert (best.l2, best.denoising) == (30.0, 0.5)
    assert len(search.trials) == 8  # the start, five steps down (one too far), one up, one too far


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"seconds": float("inf")}, "seconds: expected a number above 0"),
        ({"seconds": 0.0}, "seconds: expected a number above 0"),
        ({"trials": 0}, "trials: expected a whole number"),
    ],
)
def test_impossible_budgets_are_refused(wrong: dict[str, float], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Auto(**wrong)  # type: ignore[arg-type]


def test_it_refuses_to_choose_without_held_out_items(ordered_split: Split) -> None:
    with pytest.raises(ConfigError, match="needs held-out items to choose on"):
        Auto().fit(ordered_split.train)
