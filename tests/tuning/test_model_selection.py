"""Choices are made on validation alone, and under `clean` the test part is asked once, after all of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loca
from loca.data.id_map import IdMap
from loca.data.interactions import Interactions
from loca.data.recency import Recency
from loca.data.splits import Split, leave_last_out
from loca.data.synthetic import PlantedData
from loca.errors import ConfigError
from loca.evaluation.evaluate import evaluate, mean_value
from loca.evaluation.metrics import Metric
from loca.local.auto import Auto
from loca.local.blend import Blend
from loca.local.loca import Loca
from loca.models.ease import EASE
from loca.models.mult_vae import MultDAE
from loca.models.next_ease import NextEASE
from loca.models.popularity import Popularity
from loca.models.recommender import clone, get_params
from loca.persistence.fit_context import FitContext, checkpoint_in
from loca.registry import MODELS
from loca.tuning.model_selection import (
    CandidateResult,
    EvaluationProtocol,
    Outcome,
    RecencyRule,
    choose_on_validation,
    order_matters,
    run_protocol,
    select,
)
from loca.tuning.recency_selection import choose_recency


def run_clean(candidates: Any, split: Split, **terms: Any) -> Outcome:
    return run_protocol(candidates, split, EvaluationProtocol(**terms))


def run_paper(candidates: Any, split: Split, **terms: Any) -> Outcome:
    return run_protocol(candidates, split, EvaluationProtocol("paper", **terms))


def test_the_best_candidate_on_validation_is_chosen_and_all_scores_are_kept(
    planted_split: Split, diary: Any
) -> None:
    candidates = [diary(direction=-1), diary(direction=1), diary(direction=0)]
    best, tried = choose_on_validation(candidates, planted_split)
    assert isinstance(best, diary)
    assert best.direction == 1
    assert [one.settings for one in tried] == [
        {"direction": -1},
        {"direction": 1},
        {"direction": 0},
    ]
    assert tried[1].score == max(one.score for one in tried)
    assert planted_split.validation is not None
    assert tried[1].score == mean_value(
        Popularity().fit(planted_split.train).score, planted_split.validation
    )
    assert candidates[1].train_data_ is None, "the candidates themselves stay unfitted"


def test_ties_go_to_the_first(planted_split: Split, diary: Any) -> None:
    best, tried = choose_on_validation([diary(name="first"), diary(name="second")], planted_split)
    assert isinstance(best, diary)
    assert best.name == "first"
    assert tried[0].score == tried[1].score


def test_choosing_needs_candidates_and_a_validation_part(planted_split: Split, diary: Any) -> None:
    with pytest.raises(ConfigError, match="needs a validation part"):
        choose_on_validation([diary()], replace(planted_split, validation=None))
    with pytest.raises(ConfigError, match="nothing to choose from"):
        select([], planted_split.train, planted_split.test)


def test_what_was_tried_reads_as_a_line() -> None:
    assert (
        str(CandidateResult({"l2": 30.0, "anchors": 2}, 0.25, 1.0)) == "l2 30.0, anchors 2: 0.2500"
    )
    assert str(CandidateResult({}, 0.25, 1.0)) == "the only candidate: 0.2500"


class Stopped(Exception):
    """The end of a run that is to be resumed."""


def keep_finished(
    candidates: Any, split: Split, folder: Path, recency: RecencyRule = "given"
) -> tuple[CandidateResult, ...]:
    """What a run tried that was stopped before it ended."""
    assert split.validation is not None
    tried: list[CandidateResult] = []
    try:
        with checkpoint_in(folder, fingerprint={}, resume=False) as context:
            tried += select(
                candidates, split.train, split.validation, recency=recency, context=context
            ).tried
            raise Stopped
    except Stopped:
        return tuple(tried)


def test_finished_candidates_are_recalled_and_only_the_best_is_fitted_again(
    planted_split: Split, diary: Any, tmp_path: Path
) -> None:
    first = keep_finished([diary(direction=d) for d in (-1, 1)], planted_split, tmp_path / "w")
    pages: list[Any] = []
    candidates = [diary(direction=d, name=str(d), pages=pages) for d in (-1, 1, 0)]
    assert planted_split.validation is not None
    with checkpoint_in(tmp_path / "w", fingerprint={}, resume=True) as context:
        found = select(candidates, planted_split.train, planted_split.validation, context=context)
    best, tried = found.model, found.tried
    assert isinstance(best, diary)
    assert best.direction == 1
    assert best.train_data_ is planted_split.train
    assert [(one.score, one.seconds) for one in tried[:2]] == [
        (one.score, one.seconds) for one in first
    ]
    assert [page[-1] for page in pages if page[0] == "fit"] == ["0", "1"]


def test_a_better_candidate_of_the_resumed_run_wins_and_is_refitted_alone(
    planted_split: Split, diary: Any, tmp_path: Path
) -> None:
    keep_finished([diary(direction=-1)], planted_split, tmp_path / "w")
    pages: list[Any] = []
    candidates = [diary(direction=d, name=str(d), pages=pages) for d in (-1, 1)]
    assert planted_split.validation is not None
    known = planted_split.train_and_validation
    with checkpoint_in(tmp_path / "w", fingerprint={}, resume=True) as context:
        found = select(
            candidates,
            planted_split.train,
            planted_split.validation,
            known=known,
            refit=True,
            context=context,
        )
    assert isinstance(found.model, diary)
    assert found.model.direction == 1
    assert [page[1:] for page in pages if page[0] == "fit"] == [
        (len(planted_split.train), True, "1"),
        (len(known), False, "1"),
    ]


def own_arguments(given: dict[str, Any]) -> dict[str, Any]:
    """Return what the fit of a diary knows of what a fit that takes anything was given."""
    return {name: given[name] for name in ("user_weights", "validation") if name in given}


def test_the_parameters_of_a_finished_candidate_are_recalled_and_only_refitted(
    planted_split: Split, diary: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidates = [diary(direction=d, name=str(d)) for d in (-1, 1)]
    train, validation, known = (
        planted_split.train,
        planted_split.validation,
        planted_split.train_and_validation,
    )
    assert validation is not None
    keep_finished(candidates, planted_split, tmp_path / "w")
    expected = select(candidates, train, validation, known=known, refit=True)
    real, fits = diary.fit, list[Any]()

    def fit(model: Any, data: Any, **more: Any) -> Any:
        fits.append(data)
        return real(model, data, **own_arguments(more))

    monkeypatch.setattr(diary, "fit", fit)
    with checkpoint_in(tmp_path / "w", fingerprint={}, resume=True) as context:
        found = select(candidates, train, validation, known=known, refit=True, context=context)
    assert fits == [known]
    assert isinstance(found.model, diary)
    assert isinstance(expected.model, diary)
    assert (
        (found.model.direction, found.model.name)
        == (expected.model.direction, expected.model.name)
        == (1, "1")
    )
    assert [one.score for one in found.tried] == [one.score for one in expected.tried]


def test_a_candidate_is_fitted_inside_its_own_part_which_goes_when_it_is_finished(
    planted_split: Split, diary: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = diary.fit
    seen: list[Any] = []

    def fit(model: Any, *given: Any, context: FitContext, **more: Any) -> Any:
        seen.append(context.checkpoint.load("epochs"))
        context.checkpoint.save("epochs", {"epoch": 3})
        seen.append({one.name for one in (tmp_path / "w").iterdir()})
        return real(model, *given, **own_arguments(more))

    monkeypatch.setattr(diary, "fit", fit)
    keep_finished([diary(direction=d) for d in (-1, 1)], planted_split, tmp_path / "w")
    kept = ["work-candidate%200.safetensors", "work-candidate%201.safetensors"]
    inside = ["work-candidate%200%2Fepochs.safetensors", "work-candidate%201%2Fepochs.safetensors"]
    assert seen == [
        None,
        {"fingerprint.json", inside[0]},
        None,
        {"fingerprint.json", kept[0], inside[1]},
    ]
    assert sorted(one.name for one in (tmp_path / "w").iterdir()) == ["fingerprint.json", *kept]


def test_each_candidate_chooses_its_own_recency_and_the_model_knows_its_interactions_by_it(
    drifting_split: Split,
) -> None:
    model, tried = choose_on_validation([Popularity(), EASE()], drifting_split, recency="auto")
    assert drifting_split.validation is not None
    popular, ease = (one.recency for one in tried)
    assert popular is not None
    assert popular.recency is None
    assert ease is not None
    assert ease.recency is not None
    fitted = EASE().fit(drifting_split.train)
    assert ease == choose_recency(fitted, drifting_split.validation)
    assert tried[1].score == ease.score > ease.score_without
    assert model.train_data_ is not None
    assert model.train_data_.recency == ease.recency
    assert str(tried[0]).startswith("model Popularity, no recency: ")
    assert str(ease.recency) in str(tried[1])


@pytest.mark.parametrize("refit", [True, False])
def test_the_recency_chosen_weighs_the_refit_and_the_test_histories(
    drifting_split: Split, refit: bool
) -> None:
    outcome = run_clean([EASE()], drifting_split, recency="auto", refit=refit, at=(10,))
    choice = outcome.tried[0].recency
    assert choice is not None
    assert choice.recency is not None
    assert outcome.recency == choice.recency
    assert outcome.model.train_data_ is not None
    assert outcome.model.train_data_.recency == outcome.recency
    train = drifting_split.train_and_validation if refit else drifting_split.train
    expected = evaluate(
        EASE().fit(train), drifting_split.test.with_recency(outcome.recency), at=(10,)
    )
    assert np.array_equal(outcome.evaluation.values["ndcg@10"], expected.values["ndcg@10"])
    other = evaluate(EASE().fit(train), drifting_split.test, at=(10,))
    assert not np.array_equal(outcome.evaluation.values["ndcg@10"], other.values["ndcg@10"])


@pytest.mark.parametrize("refit", [True, False])
def test_a_model_is_fitted_and_asked_under_the_recency_it_was_trained_for(
    planted_split: Split, refit: bool
) -> None:
    trained_for = Recency.per_position(0.7)
    outcome = run_clean(
        [NextEASE(prefix_decay=0.7)], planted_split, recency="own", refit=refit, at=(10,)
    )
    assert outcome.model.train_data_ is not None
    assert outcome.recency == outcome.model.train_data_.recency == trained_for
    # A recency that the data carry gives way, to none for a model of sets.
    plain = run_clean(
        [EASE()], planted_split.with_recency(Recency(2)), recency="own", refit=refit, at=(10,)
    )
    assert plain.model.train_data_ is not None
    assert plain.recency is None
    assert plain.model.train_data_.recency is None


def test_a_blend_of_models_of_sets_may_choose_a_recency_part_by_part(drifting_split: Split) -> None:
    outcome = run_clean(
        [Blend(parts=[EASE()])], drifting_split, recency="auto", refit=False, at=(10,)
    )
    assert outcome.recency is not None
    assert isinstance(outcome.model, Blend)
    assert any(power > 0 for _, power, _ in outcome.model.columns_ or ())
    assert (
        run_clean(
            [Blend(parts=[EASE()])], drifting_split, recency="own", refit=False, at=(10,)
        ).recency
        is None
    )


def test_a_model_that_weighs_by_itself_is_asked_and_reported_so(planted_split: Split) -> None:
    outcome = run_clean([Auto(chosen=Blend(parts=[EASE()]))], planted_split, refit=False, at=(10,))
    assert outcome.recency == Recency.per_position(0.9)


def test_a_recency_that_is_chosen_leaves_the_test_part_alone_until_the_end(
    planted_split: Split, diary: Any
) -> None:
    pages: list[Any] = []
    run_clean([diary(name="a", pages=pages)], planted_split, recency="auto", at=(10,))
    asked = [page[1] for page in pages if page[0] == "score"]
    assert asked[-1] == planted_split.test.history_matrix.nnz
    assert len(asked) > 10
    assert set(asked[:-1]) == {len(planted_split.train)}


def test_an_interrupted_choice_of_recency_is_recalled_and_weighs_the_refit(
    drifting_split: Split, tmp_path: Path
) -> None:
    candidates = [EASE(), EASE(l2=500.0)]
    train, validation, known = (
        drifting_split.train,
        drifting_split.validation,
        drifting_split.train_and_validation,
    )
    assert validation is not None
    keep_finished(candidates, drifting_split, tmp_path / "w", "auto")
    expected = select(candidates, train, validation, recency="auto", known=known, refit=True)
    with checkpoint_in(tmp_path / "w", fingerprint={}, resume=True) as context:
        found = select(
            candidates, train, validation, recency="auto", known=known, refit=True, context=context
        )
    assert get_params(found.model) == get_params(expected.model)
    assert [one.recency for one in found.tried] == [one.recency for one in expected.tried]
    assert found.model.train_data_ is not None
    assert expected.model.train_data_ is not None
    assert found.model.train_data_.recency == expected.model.train_data_.recency is not None


def test_a_model_of_an_interrupted_run_that_is_fitted_again_knows_its_recency(
    drifting_split: Split, tmp_path: Path
) -> None:
    train, validation = drifting_split.train, drifting_split.validation
    assert validation is not None
    keep_finished([EASE()], drifting_split, tmp_path / "w", "auto")
    with checkpoint_in(tmp_path / "w", fingerprint={}, resume=True) as context:
        found = select([EASE()], train, validation, recency="auto", context=context)
    assert found.best is not None
    assert found.best.recency is not None
    assert found.model.train_data_ is not None
    assert found.best.recency.recency is not None
    assert found.model.train_data_.recency == found.best.recency.recency


class Prefixed(Popularity):
    """Popularity that says it was trained on decayed prefixes, and keeps what it was fitted under."""

    def __init__(self, *, prefix_decay: float = 0.9) -> None:
        super().__init__()
        self.prefix_decay = prefix_decay
        self.under_: Any = None

    def fit(self, train: Any, *, user_weights: Any = None, validation: Any = None) -> Any:
        self.under_ = (train.recency, validation.histories.recency)
        return super().fit(train)


def test_models_of_decayed_prefixes_are_fitted_under_their_decay(planted_split: Split) -> None:
    model, (tried,) = choose_on_validation(
        [Prefixed(prefix_decay=0.77)], planted_split, recency="auto"
    )
    start = Recency.per_position(0.77)
    assert isinstance(model, Prefixed)
    assert model.under_ == (start, start)
    assert tried.recency is not None
    assert start in dict(tried.recency.tried)
    assert tried.recency.recency is None, "no candidate is better than none"
    assert model.train_data_ is not None
    assert model.train_data_.recency is None


def test_clean_asks_the_test_part_once_and_last(planted_split: Split, diary: Any) -> None:
    pages: list[Any] = []
    outcome = run_clean(
        [diary(direction=d, name=str(d), pages=pages) for d in (-1, 1)], planted_split, at=(10,)
    )
    train, known = len(planted_split.train), len(planted_split.train_and_validation)
    test_histories = planted_split.test.history_matrix.nnz
    assert pages == [
        ("fit", train, True, "-1"),
        ("score", train, "-1"),
        ("as chosen", "-1"),
        ("fit", train, True, "1"),
        ("score", train, "1"),
        ("as chosen", "1"),
        ("fit", known, False, "1"),
        ("score", test_histories, "1"),
    ]
    assert test_histories not in (train, 0)
    assert outcome.chosen == 1


@pytest.mark.parametrize("recency", ["given", "own", "auto"])
@pytest.mark.parametrize("refit", [True, False])
def test_under_clean_no_fit_is_given_an_item_that_test_asks_for(
    planted_split: Split, diary: Any, refit: bool, recency: RecencyRule
) -> None:
    given: list[Any] = []

    class Noting(diary):  # type: ignore[misc]
        def fit(self, train: Any, *, user_weights: Any = None, validation: Any = None) -> Any:
            given.append(train)
            given.extend([] if validation is None else [validation.histories, validation.targets])
            return super().fit(train, validation=validation)

        def selected(self) -> Any:
            return clone(self)

    run_clean(
        [Noting(direction=1), Noting(direction=-1)],
        planted_split,
        refit=refit,
        recency=recency,
        at=(10,),
    )
    assert len(given) == (7 if refit else 6)
    asked = planted_split.test.target_matrix
    assert asked.nnz == len(planted_split.test.targets)
    assert [one.matrix().multiply(asked).nnz for one in given] == [0] * len(given)


def test_clean_refits_on_train_and_validation(planted_split: Split) -> None:
    outcome = run_clean([Popularity()], planted_split, at=(10,))
    expected = evaluate(
        Popularity().fit(planted_split.train_and_validation), planted_split.test, at=(10,)
    )
    assert np.array_equal(outcome.evaluation.values["ndcg@10"], expected.values["ndcg@10"])


def test_without_refit_the_chosen_model_is_measured_as_it_is(
    planted_split: Split, diary: Any
) -> None:
    pages: list[Any] = []
    outcome = run_clean([diary(pages=pages)], planted_split, refit=False, at=(10,))
    assert [page[0] for page in pages] == ["fit", "score", "score"]
    assert outcome.model.train_data_ is planted_split.train


def test_paper_counts_repeated_test_items_in_choices_and_in_figures_and_clean_does_not(
    diary: Any,
) -> None:
    users, items = IdMap.numbered(3, "user"), IdMap.numbered(4, "item")
    item_rows = np.array([0, 1, 2, 2, 3, 1, 2, 0, 3, 3, 3, 0, 1, 2, 1], np.int32)
    split = leave_last_out(
        Interactions(users, items, np.array([0, 5, 10, 15]), item_rows), test=2, validation=1
    )
    outcome = run_paper([diary()], split, at=(1,))
    assert outcome.test.target_counts.tolist() == [2, 2, 2]
    assert outcome.tried[0].score == mean_value(
        outcome.model.score, outcome.test, Metric("ndcg", 100)
    )
    assert run_clean([diary()], split, at=(1,)).test.target_counts.tolist() == [2, 1, 2]


def test_paper_chooses_on_test_and_trains_on_all_before_it(
    planted_split: Split, diary: Any
) -> None:
    pages: list[Any] = []
    outcome = run_paper(
        [diary(direction=d, pages=pages) for d in (-1, 1)], planted_split, at=(100,)
    )
    known = len(planted_split.train_and_validation)
    fits = [page for page in pages if page[0] == "fit"]
    assert fits == [("fit", known, True, "diary")] * 2
    assert "as chosen" not in {page[0] for page in pages}
    assert outcome.tried[outcome.chosen].score == pytest.approx(
        outcome.evaluation.means()["ndcg@100"]
    )


def test_an_unknown_protocol_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown protocol 'clen'; did you mean 'clean'"):
        EvaluationProtocol("clen")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="expected 'clean' or 'paper'"):
        EvaluationProtocol("xyz")  # type: ignore[arg-type]


def test_of_the_catalogue_those_named_by_what_comes_next_and_auto_use_order() -> None:
    expected = {name for name in MODELS if "next" in name or name == "auto"}
    assert {name for name, make in MODELS.items() if order_matters([make()], None)} == expected


def test_a_model_uses_order_where_one_inside_it_does() -> None:
    assert order_matters([MultDAE(target="following")], None)
    assert order_matters([Blend(parts=[EASE(), Loca(base=NextEASE())])], None)
    assert not order_matters(
        [Blend(parts=[EASE(), Loca(base=EASE(), global_model=MultDAE())])], None
    )


@pytest.mark.parametrize(
    ("recency", "matters"),
    [
        (None, False),
        ("own", False),
        ("auto", True),
        (Recency(4), True),
        (Recency(4, unit="time"), False),
    ],
)
def test_a_recency_in_positions_uses_order(recency: Any, matters: bool) -> None:
    assert order_matters([EASE()], recency) == matters
    assert order_matters([EASE(), NextEASE()], recency)


def test_fit_selects_on_the_last_items_and_refits_on_everything(
    planted: PlantedData, diary: Any
) -> None:
    pages: list[Any] = []
    data = planted.interactions
    found = loca.fit(
        data, [diary(direction=d, name=str(d), pages=pages) for d in (-1, 1)], validation=3
    )
    held_out = 3 * data.n_users
    assert [page[1:] for page in pages if page[0] == "fit"] == [
        (len(data) - held_out, True, "-1"),
        (len(data) - held_out, True, "1"),
        (len(data), False, "1"),
    ]
    assert found.best is found.tried[1]
    assert found.shown()[1] == (
        f"validation NDCG@100, before the refit: {found.best.score:.4f} (used for choosing; not a test score)"
    )
    assert len(found.shown()) == 4


def test_fit_without_refit_knows_everything_and_has_learned_from_the_rest(
    planted: PlantedData,
) -> None:
    data = planted.interactions
    found = loca.fit(data, EASE(), refit=False)
    rest, _, _ = loca.hold_last(data, 2)
    assert isinstance(found.model, EASE)
    assert found.model.train_data_ is not None
    assert len(found.model.train_data_) == len(data)
    expected = EASE().fit(rest)
    rows = data.matrix()[:3]
    assert np.array_equal(found.model.score(rows), expected.score(rows))


def test_fit_by_name_takes_the_seed_and_without_validation_tries_nothing(
    planted: PlantedData,
) -> None:
    found = loca.fit(planted.interactions, "loca-ease", validation=0, seed=7, recency=Recency(3))
    assert isinstance(found.model, Loca)
    assert found.model.seed == 7
    assert (found.tried, found.best, str(found)) == ((), None, f"selected: {found.model!r}")
    assert found.model.train_data_ is not None
    assert found.model.train_data_.recency == Recency(3)
    own = loca.fit(planted.interactions, "next-ease", validation=0).model.train_data_
    assert own is not None
    assert own.recency is not None


def test_fit_by_auto_keeps_to_its_budget(planted: PlantedData) -> None:
    found = loca.fit(planted.interactions, budget=loca.Budget(trials=1, seconds=50.0), refit=False)
    assert isinstance(found.model, Auto)
    assert (found.model.trials, found.model.seconds, len(found.model.trials_)) == (1, 50.0, 1)


def test_fit_refuses_what_cannot_be(planted: PlantedData) -> None:
    data = planted.interactions
    for given, more, line in (
        ("eas", {}, "unknown model 'eas'; did you mean 'ease'"),
        (
            "ease",
            {"budget": loca.Budget(trials=1)},
            r"budget: is for the model auto, found EASE\(\)",
        ),
        ([EASE(), EASE(l2=1.0)], {"validation": 0}, "choosing needs held-out items"),
        ([], {}, "nothing to choose from"),
    ):
        with pytest.raises(ConfigError, match=line):
            loca.fit(data, given, **more)  # type: ignore[arg-type]
