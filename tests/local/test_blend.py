"""Blend: its answer by the formula, its fit and refit, its file, its explanation, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest
from scipy.sparse import csr_array

from loca.communities.embeddings import TruncatedSVD
from loca.communities.geometry import Quantile
from loca.communities.kernel import Kernels
from loca.data.recency import Recency
from loca.data.splits import Split
from loca.errors import ConfigError, DataError, ModelFileError
from loca.evaluation.evaluate import evaluate, mean_value
from loca.evaluation.recommend import recommend
from loca.evaluation.top_n import rank_top_n
from loca.local.blend import Blend
from loca.local.combiner import FixedShare
from loca.local.explain import AnswersOfCommunities, AnswersOfParts
from loca.local.loca import Loca
from loca.models.ease import EASE
from loca.models.mult_vae import MultVAE
from loca.models.popularity import Popularity
from loca.models.recommender import clone, get_params
from loca.persistence.checkpoint import Checkpoint
from loca.persistence.fit_context import checkpoint_in
from loca.persistence.learned import restored, state_of
from loca.persistence.manifest import ModelState
from loca.registry import load
from loca.typing import FloatArray


def small_loca() -> Loca:
    kernels = Kernels(
        n=4,
        train_bandwidth=Quantile(0.6),
        answer_bandwidth=Quantile(0.5),
        embedding=TruncatedSVD(dimensions=8),
    )
    return Loca(base=EASE(l2=20.0), communities=kernels, combiner=FixedShare(0.2))


def small_vae() -> MultVAE:
    return MultVAE(latent=8, learning_rate=2e-2, epochs=8, patience=3, batch_size=100)


@pytest.fixture(scope="module")
def blend(planted_split: Split) -> Blend:
    """EASE at two powers and a Loca, the weights given."""
    columns = [(0, 1.0, 2.0), (0, 0.5, 1.0), (1, 2.0, 5.0)]
    parts = [EASE(l2=20.0), small_loca(), Popularity()]
    split = planted_split.with_recency(Recency(4))
    return Blend(parts=parts, columns=columns).fit(split.train, validation=split.validation)


def standard(scores: FloatArray) -> FloatArray:
    return (scores - scores.mean(axis=1, keepdims=True)) / scores.std(axis=1, keepdims=True)


def test_the_answer_is_the_weighted_sum_of_z_scores_of_histories_at_their_powers(
    blend: Blend, planted_split: Split
) -> None:
    split = planted_split.with_recency(Recency(4))
    rows = split.test.history_matrix[:30]

    def at(power: float) -> csr_array:
        return csr_array((rows.data**power, rows.indices, rows.indptr), shape=rows.shape)

    ease, loca = (
        EASE(l2=20.0).fit(split.train),
        small_loca().fit(split.train, validation=split.validation),
    )
    expected = (
        2 * standard(ease.score(rows))
        + standard(ease.score(at(0.5)))
        + 5 * standard(loca.score(at(2.0)))
    ) / 8
    np.testing.assert_allclose(blend.score(rows), expected, atol=2e-5)


def test_parts_without_a_column_are_not_fitted_but_stay_parameters(blend: Blend) -> None:
    assert sorted(blend.answering()) == [0, 1]
    assert [one.name for one in blend.earned_] == ["EASE", "Loca of EASE"]
    assert isinstance(blend.parts[2], Popularity)
    assert all(model.train_data_ is None for model in blend.answering().values())
    assert blend.train_data_ is not None


def test_without_validation_all_parts_weigh_the_same(planted_split: Split) -> None:
    blend = Blend(parts=[EASE(), Popularity()]).fit(planted_split.train.matrix())
    assert blend.columns_ == ((0, 1.0, 0.5), (1, 1.0, 0.5))
    assert blend.earned_ == ()
    assert blend.train_data_ is None
    assert "was not judged" in blend.report()


def test_a_fit_finds_what_a_blend_of_its_fitted_parts_finds(planted_split: Split) -> None:
    split = planted_split.with_recency(Recency(6))
    parts = [EASE(l2=20.0), small_vae(), Popularity()]
    fitted = Blend(parts=parts).fit(split.train, validation=split.validation)
    alone = [clone(part).fit(split.train, validation=split.validation) for part in parts]
    given = Blend.of(alone, split.validation)
    assert fitted.columns_ == given.columns_
    assert fitted.earned_ == given.earned_
    rows = split.test.history_matrix[:30]
    np.testing.assert_array_equal(fitted.score(rows), given.score(rows))
    assert given.train_data_ is not None
    assert np.shares_memory(given.train_data_.item_rows, split.train.item_rows)
    assert given.train_data_.recency == split.train.recency
    assert fitted.validation_score_ == pytest.approx(
        mean_value(fitted.score, split.validation), abs=1e-6
    )
    assert fitted.validation_score_ >= max(one.alone for one in fitted.earned_)
    table = fitted.report().splitlines()
    assert len(table) == 5
    assert table[-1].split() == ["the", "blend", f"{fitted.validation_score_:.4f}", "1.000"]


def test_a_refit_keeps_what_validation_chose(planted_split: Split) -> None:
    split = planted_split.with_recency(Recency(4))
    blend = Blend(parts=[EASE(l2=20.0), small_vae()], seed=3).fit(
        split.train, validation=split.validation
    )
    chosen = blend.selected()
    assert chosen.models_ is None
    np.testing.assert_allclose(chosen.columns, blend.columns_)
    assert chosen.parts[1].epochs == blend.models_[1].best_epoch_
    again = chosen.fit(split.train)
    rows = split.test.history_matrix[:20]
    np.testing.assert_allclose(again.score(rows), blend.score(rows), atol=1e-4)
    whole = blend.selected().fit(split.train_and_validation)
    assert whole.train_data_ is split.train_and_validation
    assert get_params(Blend(parts=[EASE()]).selected())["columns"] is None


def test_an_interrupted_fit_goes_on_within_its_parts(
    planted_split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    parts = [small_vae(), MultVAE(latent=4, learning_rate=2e-2, epochs=5, batch_size=100)]
    unbroken = Blend(parts=parts).fit(planted_split.train, validation=planted_split.validation)
    keep, names = Checkpoint.save, []

    def keep_and_die(work: Checkpoint, name: str, state: dict[str, Any]) -> None:
        keep(work, name, state)
        newest = max((tmp_path / "w").glob("work-*"), key=lambda one: one.stat().st_mtime_ns)
        names.append(unquote(newest.name).removeprefix("work-"))
        if names[-1].startswith("part 1/") and state["epoch"] == 3:
            raise Killed

    monkeypatch.setattr(Checkpoint, "save", keep_and_die)
    with (
        pytest.raises(Killed),
        checkpoint_in(
            tmp_path / "w", fingerprint={"a": 1}, resume=False, seconds_between=0
        ) as context,
    ):
        Blend(parts=parts).fit(
            planted_split.train, validation=planted_split.validation, context=context
        )
    first_run = len(names)
    with checkpoint_in(
        tmp_path / "w", resume=True, fingerprint={"a": 1}, seconds_between=0
    ) as context:
        again = Blend(parts=parts).fit(
            planted_split.train, validation=planted_split.validation, context=context
        )
    assert all(name.startswith("part 1/") for name in names[first_run:])
    assert len(names) == first_run + 2
    rows = planted_split.test.history_matrix[:20]
    np.testing.assert_array_equal(again.score(rows), unbroken.score(rows))


def test_a_part_that_scales_and_shifts_its_scores_changes_nothing(planted_split: Split) -> None:
    class Loud(EASE):
        def score(self, histories: csr_array) -> FloatArray:
            return (1000 * super().score(histories) - 50).astype(np.float32)

    split = planted_split
    quiet = [
        EASE(l2=5.0).fit(split.train),
        EASE(l2=500.0).fit(split.train),
        Popularity().fit(split.train),
    ]
    loud = [quiet[0], Loud(l2=500.0).fit(split.train), quiet[2]]
    one, other = Blend.of(quiet, split.validation), Blend.of(loud, split.validation)
    # 1000·x − 50 is rounded: a pair of items may change places, and the search take a step next to its best one.
    np.testing.assert_allclose(one.columns_, other.columns_, atol=0.05)
    rows = split.test.history_matrix[:50]
    np.testing.assert_allclose(one.score(rows), other.score(rows), atol=1e-3)


def test_a_copy_shares_no_part_and_keeps_every_parameter(blend: Blend) -> None:
    copy = clone(blend, seed=9)
    assert copy.seed == 9
    assert copy.models_ is None
    assert copy.columns == blend.columns
    assert all(mine is not theirs for mine, theirs in zip(copy.parts, blend.parts, strict=True))
    assert copy.parts[0].l2 == 20.0


def test_a_saved_blend_answers_the_same_to_the_last_bit(
    blend: Blend, planted_split: Split, tmp_path: Path
) -> None:
    blend.save(tmp_path / "m")
    loaded = load(tmp_path / "m", verify=True)
    assert isinstance(loaded, Blend)
    rows = planted_split.test.with_recency(Recency(4)).history_matrix
    np.testing.assert_array_equal(loaded.score(rows), blend.score(rows))
    assert (loaded.columns_, loaded.earned_, loaded.validation_score_) == (
        blend.columns_,
        blend.earned_,
        blend.validation_score_,
    )
    assert loaded.columns == blend.columns
    assert [type(part) for part in loaded.parts] == [EASE, Loca, Popularity]
    assert loaded.report() == blend.report()
    np.testing.assert_array_equal(
        recommend(loaded, ["u003"], n=5)[0], recommend(blend, ["u003"], n=5)[0]
    )
    first, second = (str(one.explain("u003", n=4)) for one in (loaded, blend))
    assert first == second


@pytest.mark.parametrize(
    ("facts", "parts", "message"),
    [
        ({"columns": ()}, None, "at least one"),
        ({"columns": ((0, 1.0),)}, None, r"expected \(part, power, weight\) triples"),
        ({"columns": ((3, 1.0, 1.0),)}, None, "a part from 0 to 2, found part 3"),
        ({"columns": ((0, 1.0, -1.0),)}, None, "a power and a weight ≥ 0"),
        ({"columns": ((0, 1.0, float("nan")),)}, None, "triples, found"),
        ({"columns": ((0, 1.0, 0.0),)}, None, "not all weights 0"),
        (
            {"columns": "none"},
            None,
            r"columns: expected \(part, power, weight\) triples, found 'none'",
        ),
        ({"columns": ((2, 1.0, 1.0),)}, None, r"expected parts \[2\], found \[0, 1\]"),
        ({"earned": [["EASE"]]}, None, "earned: expected what each part earned"),
        ({"models": [True, True, False, False]}, None, "expected 3 parts, found 4"),
        ({"metric": 10}, None, "metric: expected the name of a metric"),
        ({"validation_score": float("nan")}, None, "validation_score: expected a number"),
        (
            {"models": [True, False, False]},
            {"models 0": 0},
            r"expected parts \[0, 1\], found \[0\]",
        ),
        ({}, {"models 0": 0}, "models 1 is missing"),
        ({}, {"models 0": 0, "models 1": 1, "models 3": 0}, "'models 3' is nothing that it learns"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(
    blend: Blend, facts: dict[str, Any], parts: dict[str, int] | None, message: str
) -> None:
    good = state_of(blend)
    numbers = {"models 0": 0, "models 1": 1} if parts is None else parts
    models = {name: good.parts[f"models {number}"] for name, number in numbers.items()}
    bad = ModelState(facts={**good.facts, **facts}, parts=models)
    with pytest.raises(ModelFileError, match=message):
        restored(Blend, get_params(blend), bad)


def test_a_part_that_is_no_model_is_refused(blend: Blend) -> None:
    state = state_of(blend)
    state = replace(state, parts={**state.parts, "models 1": TruncatedSVD()})
    with pytest.raises(ModelFileError, match="models: expected a Recommender, found TruncatedSVD"):
        restored(Blend, get_params(blend), state)


def test_parts_over_different_items_are_refused(blend: Blend, planted_split: Split) -> None:
    other = EASE().fit(csr_array(planted_split.train.matrix()[:, :40]))
    state = state_of(blend)
    state = replace(state, parts={**state.parts, "models 0": other})
    with pytest.raises(ModelFileError, match="models: expected 40 items, found 60"):
        restored(Blend, get_params(blend), state)
    with pytest.raises(DataError, match="EASE scores 40 items, validation has 60"):
        Blend.of([other], planted_split.validation)
    renamed = EASE().fit(planted_split.train)
    renamed.train_data_ = replace(
        planted_split.train, items=planted_split.train.items.keep(np.arange(60)[::-1])
    )
    with pytest.raises(DataError, match="its items are not those of validation"):
        Blend.of([renamed], planted_split.validation)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"parts": []}, "parts: expected at least one recommender"),
        ({"parts": [EASE]}, "parts: expected at least one recommender"),
        ({"parts": EASE()}, "parts: expected at least one recommender"),
        (
            {"parts": [TruncatedSVD()]},
            "parts: expected at least one recommender, found TruncatedSVD",
        ),
        ({"columns": [(1, 1.0, 1.0)]}, "a part from 0 to 0, found part 1"),
        ({"columns": [(0, -1.0, 1.0)]}, "a power and a weight ≥ 0"),
        ({"columns": []}, "at least one, found"),
        ({"names": ["a", "b"]}, "names: expected 1 different names"),
        ({"names": "a"}, "names: expected 1 different names"),
        ({"scale": "softmax"}, "scale: expected 'z-score' or 'log-probability', found 'softmax'"),
        ({"powers": []}, "powers: expected numbers ≥ 0, at least one"),
        ({"powers": [float("inf")]}, "powers: expected numbers ≥ 0"),
        ({"powers": "12"}, "powers: expected numbers ≥ 0"),
        ({"cache_bytes": 0}, "cache_bytes: expected a whole number ≥ 1"),
    ],
)
def test_wrong_settings_are_refused_in_one_line(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        Blend(**({"parts": [EASE()]} | settings))
    assert "\n" not in str(refused.value)


def test_parts_of_one_kind_are_told_apart() -> None:
    blend = Blend(parts=[EASE(), small_loca(), EASE(), EASE()])
    assert blend.part_names() == ("EASE", "Loca of EASE", "EASE 2", "EASE 3")
    assert Blend(parts=[EASE(), EASE()], names=("a", "b")).part_names() == ("a", "b")


def test_log_probabilities_of_networks_are_blended(planted_split: Split) -> None:
    columns = [(0, 1.0, 0.75), (1, 1.0, 0.25)]
    blend = Blend(parts=[small_vae(), EASE()], columns=columns, scale="log-probability").fit(
        planted_split.train
    )
    rows = planted_split.test.history_matrix[:10]
    logits = small_vae().fit(planted_split.train).score(rows).astype(np.float64)
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    expected = 0.75 * logs + 0.25 * standard(EASE().fit(planted_split.train).score(rows))
    np.testing.assert_allclose(blend.score(rows), expected, atol=1e-4)
    explanation = blend.explain(csr_array(rows[[0]]), n=3)
    assert not explanation.is_exact
    assert isinstance(explanation.sources, AnswersOfParts)
    lifted = 0.75 * (logs[0] - logs[0].mean())
    np.testing.assert_allclose(
        explanation.sources.parts[0].contributions, lifted[explanation.items], atol=1e-4
    )


def test_an_explanation_adds_up_to_the_scores_and_ranks_as_each_part_does(
    blend: Blend, planted_split: Split
) -> None:
    split = planted_split.with_recency(Recency(4))
    history, order = split.test.history_matrix[[7]], split.test.histories.items_of(7)
    explanation = blend.explain(csr_array(history), n=5, order=order)
    inside = explanation.sources
    assert isinstance(inside, AnswersOfParts)
    items, scores = rank_top_n(blend.score(history), history, 5)
    np.testing.assert_array_equal(explanation.items, items[0])
    np.testing.assert_allclose(
        np.sum([part.contributions for part in inside.parts], axis=0), scores[0], atol=1e-5
    )
    np.testing.assert_allclose(
        np.abs([part.shares for part in inside.parts]).sum(axis=0), 1, atol=1e-5
    )
    assert [part.name for part in inside.parts] == ["Loca of EASE", "EASE"]
    assert [part.weight for part in inside.parts] == pytest.approx([5 / 8, 3 / 8])
    local = inside.parts[0]
    # The whole ranking of the Loca at its power, as the oracle.
    sharper = csr_array((history.data**2, history.indices, history.indptr), shape=history.shape)
    ranking = rank_top_n(blend.models_[1].score(sharper), history, 60)[0][0]
    np.testing.assert_array_equal(local.items, ranking[:5])
    np.testing.assert_array_equal(
        local.ranks, [np.flatnonzero(ranking == item)[0] + 1 for item in items[0]]
    )
    assert isinstance(local.inside, AnswersOfCommunities)
    assert local.inside.communities[0].anchor in planted_split.train.users.values
    assert inside.parts[1].inside is None
    # All parts are linear, so that the items of the history add up to the blended scores too.
    assert explanation.is_exact
    np.testing.assert_allclose(explanation.contributions.sum(axis=1), scores[0], atol=1e-5)
    text = str(explanation)
    assert text.startswith(
        f"History of {len(order)} items, newest first: {planted_split.train.items.label(order[-1])}"
    )
    assert "community" in text
    assert all(planted_split.train.items.label(int(item)) in text for item in items[0])


def test_a_blend_within_a_blend_is_saved_and_explained_inside(
    planted_split: Split, tmp_path: Path
) -> None:
    inner = Blend(parts=[EASE(), small_loca()], names=("linear", "local"))
    outer = Blend(parts=[Popularity(), inner], columns=[(0, 1.0, 0.2), (1, 1.0, 0.8)]).fit(
        planted_split.train
    )
    outer.save(tmp_path / "m")
    loaded = load(tmp_path / "m")
    rows = planted_split.test.history_matrix[:20]
    np.testing.assert_array_equal(loaded.score(rows), outer.score(rows))
    for model in (outer, loaded):
        answer = model.explain(csr_array(rows[[0]]), n=3).sources.parts[0]
        assert answer.name == "Blend"
        assert isinstance(answer.inside, AnswersOfParts)
        inside = {part.name: part.inside for part in answer.inside.parts}
        assert inside["linear"] is None
        assert inside["local"].communities[0].anchor in planted_split.train.users.values


def test_what_cannot_be_explained_is_refused(blend: Blend, planted_split: Split) -> None:
    with pytest.raises(DataError, match="expected at least one item to answer from"):
        blend.explain(csr_array((1, 60), dtype=np.float32))
    history = planted_split.test.history_matrix[[0]]
    with pytest.raises(DataError, match="expected the order to name the items of the history"):
        blend.explain(history, order=np.array([1, 2]))


def test_a_blend_answers_under_the_recency_that_its_columns_were_found_under(
    planted_split: Split,
) -> None:
    assert planted_split.validation is not None
    models = [EASE(l2=20.0).fit(planted_split.train), EASE(l2=200.0).fit(planted_split.train)]
    found = Blend.of(models, planted_split.validation.with_recency(Recency(4)))
    assert found.train_data_ is not None
    assert found.train_data_.recency == Recency(4)
    weighed = planted_split.train.with_recency(Recency(4))
    known = Blend.of([EASE(l2=20.0).fit(weighed)], planted_split.validation)
    assert known.train_data_ is not None
    assert known.train_data_.recency == Recency(4)
    at_hundred = evaluate(known, planted_split.validation, at=(100,)).means()["ndcg@100"]
    assert known.validation_score_ == pytest.approx(at_hundred, abs=1e-6)
