"""Auto: what it finds, that it keeps to its budget, never needs test, and goes on after an interruption."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import loca.local.auto as automatic_file
from loca.data.id_map import IdMap
from loca.data.interactions import Interactions
from loca.data.recency import Recency
from loca.data.splits import Split, leave_last_out
from loca.errors import ConfigError, DataError
from loca.evaluation.evaluate import evaluate
from loca.local.auto import Auto, Climb, Search
from loca.local.blend import Blend
from loca.local.stacked.trainer import StackedTrainer
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
    plan = {"targets": len(small), "members": 2, "epochs": 4}
    monkeypatch.setattr(automatic_file, "plan_networks", lambda *_: plan)


@pytest.fixture(scope="module")
def ordered_split() -> Split:
    return leave_last_out(walks(), test=1, validation=1)


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


def test_a_budget_that_is_over_at_once_still_gives_a_model(ordered_split: Split) -> None:
    auto = Auto(seconds=1e-6, trials=1).fit(
        ordered_split.train, validation=ordered_split.validation
    )
    assert len(auto.trials_) >= 1
    assert np.isfinite(auto.score(ordered_split.test.history_matrix[:3])).all()


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
    refitted = auto.with_selected_params().fit(ordered_split.train_and_validation)
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
    for part in auto.model_.models_.values():
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
    with checkpoint_in(tmp_path / "work", fingerprint=subject, resume=True) as context:
        resumed = Auto(trials=8).fit(
            ordered_split.train, validation=ordered_split.validation, context=context
        )
    rows = ordered_split.test.history_matrix[:5]
    np.testing.assert_array_equal(resumed.score(rows), unbroken.score(rows))
    assert [one.ndcg for one in resumed.trials_] == [one.ndcg for one in unbroken.trials_]


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


def search_within(seconds: float, split: Split) -> Search:
    assert split.validation is not None
    data = TrainingData(
        split.train,
        split.train.matrix(),
        np.ones(split.train.n_users, np.float32),
        split.validation,
    )
    return Search(data, split.validation, seconds)


def test_networks_are_planned_by_the_time_that_is_left(ordered_split: Split) -> None:
    ample = search_within(1e6, ordered_split)
    assert real_plan(ample, MultVAE(latent=8)) == {"targets": 3, "members": 8, "epochs": 200}
    short = search_within(1e-3, ordered_split)
    assert real_plan(short, MultVAE(latent=8)) == {"targets": 1, "members": 1, "epochs": 1}


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
