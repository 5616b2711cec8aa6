"""The metric that is asked for decides every choice on validation, and nothing is decided by another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import loca
import loca.local.auto as automatic_file
from loca.communities.best_of import BestOf
from loca.communities.kernel import Kernels
from loca.communities.mixture import TEMPERATURES, Mixtures
from loca.data.recency import Recency
from loca.data.splits import HeldOut, Split, hold_last
from loca.evaluation.evaluate import mean_value
from loca.evaluation.metrics import METRICS, Counts, Hits, Metric, Values, ndcg
from loca.local.auto import Auto, NetworkPlan
from loca.local.blend import Blend
from loca.local.combiner import SHARES, FixedShare
from loca.local.ensemble import Ensemble
from loca.local.judge import Judge
from loca.local.loca import Loca
from loca.models.ease import EASE
from loca.models.mult_vae import MultVAE
from loca.models.popularity import Popularity
from loca.paper.stopping import StopEach
from loca.persistence.fit_context import FitCache, FitContext
from loca.registry import KINDS
from loca.search_space import Among, Budget, Space
from loca.tuning.model_selection import select
from loca.tuning.recency_selection import choose_recency
from loca.tuning.study import Tuner
from scripted_models import (
    ITEMS,
    NEVER,
    ON_TEST,
    ON_VALIDATION,
    Scripted,
    ranked,
    scripted_interactions,
    scripted_split,
)


def place_of_hits(hits: Hits, target_counts: Counts, k: int) -> Values:
    """The places of the hits, so that a late one is better than an early one, and none the worst."""
    return np.asarray(hits @ np.arange(1.0, hits.shape[1] + 1))


def loss(hits: Hits, target_counts: Counts, k: int) -> Values:
    return -ndcg(hits, target_counts, k)


LATE, WORST = Metric("late", 2, place_of_hits), Metric("worst", 10, loss)
FIRST = ranked(ON_VALIDATION, NEVER)
SECOND = ranked(NEVER, ON_VALIDATION)
NETWORK = MultVAE(latent=4, epochs=2, patience=2, evaluate_every=1)


@pytest.fixture(autouse=True)
def small_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks of an `Auto` that take a moment."""
    small = {name: {**target, "latent": 4} for name, target in automatic_file.TARGETS.items()}
    monkeypatch.setattr(automatic_file, "TARGETS", small)
    plan = NetworkPlan(targets=1, members=2, epochs=2)
    monkeypatch.setattr(automatic_file, "plan_networks", lambda *_: plan)


@pytest.fixture
def only_metric(monkeypatch: pytest.MonkeyPatch) -> Metric:
    """A metric of one's own, beside which every named one raises."""

    def refuse(*_: Any) -> Values:
        raise AssertionError("measured by a metric that nobody asked for")

    for name in METRICS:
        monkeypatch.setitem(METRICS, name, refuse)
    return Metric("own", 7, lambda hits, target_counts, k: ndcg(hits, target_counts, k))


def validation_of(split: Split) -> HeldOut:
    assert split.validation is not None
    return split.validation


@pytest.mark.parametrize(
    "model",
    [
        EASE(keep="auto"),
        NETWORK,
        Ensemble(base=NETWORK, models=2),
        Loca(base=EASE(), communities=Kernels(n=4)),
        Loca(base=EASE(), communities=Mixtures(n=4)),
        Loca(base=EASE(), communities=BestOf(n=4)),
        Loca(base=EASE(), communities=BestOf(finders=(Kernels(n=4), Mixtures(n=4)))),
        Loca(base=NETWORK, communities=BestOf(n=4)),
        Loca(base=NETWORK, communities=Kernels(n=4), engine=StopEach()),
        Blend(parts=[EASE(), Loca(base=NETWORK, communities=Kernels(n=3))]),
        Auto(trials=6),
    ],
    ids=str,
)
def test_a_fit_measures_nothing_but_the_metric(
    model: Any, planted_split: Split, only_metric: Metric
) -> None:
    calls = []

    def counted(hits: Hits, target_counts: Counts, k: int) -> Values:
        calls.append(k)
        return only_metric(hits, target_counts)

    metric = Metric("counted", 7, counted)
    loca.clone(model).fit(planted_split.train, validation=planted_split.validation, metric=metric)
    assert set(calls) == {7}


def test_selection_and_tuning_measure_nothing_but_the_metric(
    planted_split: Split, only_metric: Metric
) -> None:
    data = planted_split.train, validation_of(planted_split)
    found = select([EASE(), Popularity()], *data, recency="auto", metric=only_metric)
    assert [one.metric for one in found.tried] == ["own@7", "own@7"]
    space = Space({"l2": Among((1.0, 100.0))})
    tuned = Tuner("ease", EASE(), *data, space, Budget(trials=2), metric=only_metric).tune()
    assert (tuned.metric, tuned.finished) == ("own@7", 2)


def test_a_candidate_learns_by_the_metric_that_it_is_chosen_by() -> None:
    split = scripted_split()
    model = Scripted(script=(FIRST, SECOND, FIRST))
    data = split.train, validation_of(split)
    found: Any = select([model], *data, metric=LATE).model
    assert found.best_epoch_ == 2


def test_training_stops_where_the_metric_is_best() -> None:
    split = scripted_split()
    model = Scripted(script=(FIRST, SECOND, FIRST))
    model.fit(split.train, validation=split.validation)
    assert model.best_epoch_ == 1
    model.fit(split.train, validation=split.validation, metric=LATE)
    assert model.best_epoch_ == 2


def test_the_share_of_the_global_model_is_chosen_by_the_metric() -> None:
    split = scripted_split()
    model = Loca(
        base=Scripted(script=(SECOND,)),
        global_model=Scripted(script=(FIRST,)),
        communities=Kernels(n=1, answer_bandwidth=100.0),
    )
    model.fit(split.train, validation=split.validation, metric="ndcg@1")
    assert model.local_.combiner.share >= 0.5
    model.fit(split.train, validation=split.validation, metric=LATE)
    assert model.local_.combiner == FixedShare(0.0)


def test_the_temperature_of_memberships_is_chosen_by_the_metric(planted_split: Split) -> None:
    validation = validation_of(planted_split)
    temperatures = []
    for metric in (Metric.of("ndcg@10"), WORST):
        model = Loca(base=EASE(l2=10.0), communities=Mixtures(n=6))
        model.fit(planted_split.train, validation=validation, metric=metric)
        values = []
        for temperature in TEMPERATURES:
            communities: Any = replace(model.local_.communities, temperature=temperature)
            panel = Judge(validation, metric, model.global_).locate(communities).panel()
            combiners = [FixedShare(share) for share in SHARES]
            values.append(panel.mean_values(model.local_.models, combiners))
        best = int(np.argmax([max(of_shares[::3]) for of_shares in values]))
        assert model.local_.communities.temperature == TEMPERATURES[best]
        assert model.local_.combiner.share == SHARES[int(np.argmax(values[best]))]
        temperatures.append(TEMPERATURES[best])
    assert temperatures[0] != temperatures[1]


class Fading:
    """Scores the item to be found by how little the oldest item of a history weighs, or by how much."""

    def __init__(self, sign: float) -> None:
        self.sign = sign

    def score(self, histories: csr_array) -> Any:
        scores = np.zeros(histories.shape, dtype=np.float32)
        oldest = [row.data.min() for row in (histories[[place]] for place in range(len(scores)))]
        scores[:, ON_VALIDATION] = self.sign * (0.7 - np.array(oldest))
        return scores


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_recency_is_chosen_by_the_metric(sign: float) -> None:
    validation, strong = validation_of(scripted_split()), Recency.per_position(0.5)
    good = choose_recency(Fading(sign), validation, [strong], metric="ndcg@3")
    bad = choose_recency(Fading(sign), validation, [strong], metric=WORST)
    assert (good.recency, bad.recency) == ((strong, None) if sign > 0 else (None, strong))
    assert (good.metric, bad.metric) == ("ndcg@3", "worst@10")


def test_the_weights_of_a_blend_are_found_by_the_metric_and_stored_with_it(
    planted_split: Split, tmp_path: Path
) -> None:
    split = scripted_split()
    parts = [Scripted(script=(row,)).fit(split.train) for row in (FIRST, SECOND)]
    for metric, part in (("ndcg@1", 0), (LATE, 1)):
        blend = Blend.of(parts, validation_of(split), metric=metric)
        assert blend.columns_ == ((part, 1.0, 1.0),)
        assert blend.metric_ == str(metric)
    stored = Blend(parts=[EASE(), Popularity()])
    stored.fit(planted_split.train, validation=planted_split.validation, metric="recall@20")
    stored.save(tmp_path / "blend")
    again: Any = loca.load(tmp_path / "blend")
    reached = mean_value(stored.score, validation_of(planted_split), Metric("recall", 20))
    assert again.validation_score_ == stored.validation_score_ == pytest.approx(reached, abs=1e-6)
    assert again.metric_ == "recall@20"
    assert again.report().startswith("Recall@20 on validation")


def test_the_candidate_that_is_best_by_the_metric_is_selected() -> None:
    data = scripted_interactions()
    others = [item for item in range(ITEMS) if item not in (ON_VALIDATION, ON_TEST)]
    # Of the two held-out items one has one first and the other last, the other has both in the middle.
    one_first = Scripted(script=(ranked(ON_VALIDATION, *others, ON_TEST),))
    both_later = Scripted(script=(ranked(NEVER, ON_VALIDATION, ON_TEST),))
    candidates = [one_first, both_later]
    rest, held_out, _ = hold_last(data, 2)
    for metric, best in (("ndcg@1", 0), ("recall@3", 1)):
        found = select(candidates, rest, held_out, metric=Metric.of(metric))
        scores = [one.score for one in found.tried]
        assert found.best is found.tried[best]
        assert scores == ([1.0, 0.0] if best == 0 else [0.5, 1.0])
        fitted_on_all = loca.fit(data, candidates, validation=2, metric=metric)
        assert fitted_on_all.tried[best] is fitted_on_all.best
        label = {"ndcg@1": "NDCG@1", "recall@3": "Recall@3"}[metric]
        assert f"validation {label}, before the refit: {max(scores):.4f}" in str(fitted_on_all)


def test_tuning_ends_at_what_the_metric_likes(planted_split: Split) -> None:
    data = planted_split.train, validation_of(planted_split)
    space = Space({"l2": Among((10.0, 1e7))})
    for metric in (Metric.of("recall@5"), WORST):
        reached = {
            l2: mean_value(EASE(l2=l2).fit(data[0]).score, data[1], metric) for l2 in (10.0, 1e7)
        }
        template = EASE(l2=10.0)
        tuned = Tuner("ease", template, *data, space, Budget(trials=4), metric=metric).tune()
        assert tuned.score == max(reached.values())
        assert tuned.best.get_params()["l2"] == max(reached, key=lambda l2: reached[l2])
        assert tuned.score_before == reached[10.0]


def test_auto_climbs_to_what_the_metric_likes(planted_split: Split) -> None:
    best = {}
    for metric in (Metric.of("recall@5"), WORST):
        model = Auto(trials=30).fit(
            planted_split.train, validation=planted_split.validation, metric=metric
        )
        trials = [one for one in model.trials_ if one.name == "EASE"]
        best[metric.name] = max(trials, key=lambda one: one.score)
        blend: Any = model.model_
        assert blend.metric_ == str(metric)
    assert best["worst"].score < 0 < best["recall"].score
    assert best["worst"].settings != best["recall"].settings


def test_a_comparison_chooses_and_compares_by_the_metric() -> None:
    split = scripted_split()
    models = {"first": Scripted(script=(FIRST,)), "second": Scripted(script=(SECOND,))}
    usual = loca.compare(models, split, at=(3,), metric="mrr@2")
    assert (usual.metric, usual.control) == ("mrr@2", "first")
    assert [one.selected.score for one in usual.measured] == [1.0, 0.5]
    assert "MRR@2" in str(usual)
    late = loca.compare(models, split, at=(3,), metric=LATE)
    assert (late.metric, late.control) == ("late@2", "second")
    assert [one.selected.score for one in late.measured] == [1.0, 2.0]
    assert late.of("first").evaluation.at == (2, 3)
    assert late.to_json()["models"][0]["tried"][0]["metric"] == "late@2"
    assert "late@2" in late.of("first").evaluation.values


def test_a_comparison_tunes_by_the_metric(planted_split: Split) -> None:
    found = loca.compare(["ease"], planted_split, at=(5,), metric=WORST, budget=Budget(trials=2))
    tuning = found.of("ease").tuning
    assert tuning is not None
    assert (tuning.metric, tuning.score < 0) == ("worst@10", True)


def test_what_another_metric_chose_is_not_taken_from_the_cache(
    planted_split: Split, tmp_path: Path
) -> None:
    context = FitContext(cache=FitCache(tmp_path, KINDS))
    data: Any = {"train": planted_split.train, "validation": planted_split.validation}
    for metric, folders in (("ndcg@10", 1), ("ndcg@10", 1), ("recall@5", 2)):
        context.fit_part("part", loca.clone(NETWORK), **data, metric=Metric.of(metric))
        assert sum(one.is_dir() for one in tmp_path.iterdir()) == folders
    # A function cannot be told from others of its name, so nothing is kept for it.
    context.fit_part("part", loca.clone(NETWORK), **data, metric=LATE)
    assert sum(one.is_dir() for one in tmp_path.iterdir()) == 2
