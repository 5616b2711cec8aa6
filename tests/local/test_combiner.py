"""How much of an answer is the global model's: given, chosen on validation, or another for every user."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_array
from small_models import small_kernels, small_loca

import loca
from loca.communities.geometry import Quantile
from loca.data.interactions import Interactions
from loca.data.splits import HeldOut, Split
from loca.errors import ConfigError, NotFittedError
from loca.evaluation.evaluate import evaluate, mean_value
from loca.evaluation.metrics import Metric
from loca.local.combiner import (
    SHARES,
    Combiner,
    FixedShare,
    GlobalShare,
    LocalOnly,
    combined_scores,
)
from loca.local.engines.loop import Loop
from loca.local.explain import AnswersOfCommunities
from loca.local.judge import Judge, Panel
from loca.local.local_models import SeparateModels
from loca.models.ease import EASE
from loca.models.recommender import clone
from loca.testing import check_combiner

# -- Contract -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ByCoverage(Combiner):
    """Let the global model answer the more, the fewer communities know a user."""

    strength: float = 1.0

    def global_shares(self, answer_weights: csr_array) -> npt.NDArray[np.float64]:
        n_answering = np.diff(csr_array(answer_weights).indptr)
        return 1 / (1 + self.strength * n_answering)


@pytest.mark.parametrize(
    "combiner",
    [GlobalShare(), FixedShare(0.0), FixedShare(0.3), LocalOnly(), ByCoverage()],
    ids=str,
)
def test_a_combiner_keeps_the_contract(combiner: Combiner) -> None:
    check_combiner(combiner)


class ForgetsTheUncovered(ByCoverage):
    def global_shares(self, answer_weights: csr_array) -> npt.NDArray[np.float64]:
        return np.full(answer_weights.shape[0], 0.5)


class MoreThanAll(ByCoverage):
    def global_shares(self, answer_weights: csr_array) -> npt.NDArray[np.float64]:
        return 2 * super().global_shares(answer_weights)


class ByTheMean(ByCoverage):
    def global_shares(self, answer_weights: csr_array) -> npt.NDArray[np.float64]:
        shares = super().global_shares(answer_weights)
        return np.where(shares < 1, shares.mean() if len(shares) else 0.0, 1.0)


class TakesTheFirst(GlobalShare):
    def choose(self, models: Any, panel: Any) -> FixedShare:
        return FixedShare(1.0)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (ForgetsTheUncovered, "who has no community is to get the global answer"),
        (MoreThanAll, "a global share is not from 0 to 1"),
        (ByTheMean, "a user's share depends on the others"),
        (TakesTheFirst, "the best candidate has"),
    ],
)
def test_a_broken_combiner_is_noticed(kind: type[Combiner], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_combiner(kind())


# -- The choice -----------------------------------------------------------------------------------


def linear(weights: dict[tuple[int, int], float], n_items: int) -> EASE:
    """Return a model with these weights from one item to another."""
    model = EASE()
    model.weights_ = np.zeros((n_items, n_items), np.float32)
    for (item, other), weight in weights.items():
        model.weights_[item, other] = weight
    return model


def panel_of_two_kinds() -> tuple[SeparateModels, Panel]:
    """Ask users of item 0 for item 2, and users of item 1 for item 3.

    With the share s of the global model, users of item 0 are answered rightly where 2s > 1 − s, and
    users of item 1 where 0.8s < 1 − s: from above 1/3 to below 5/9 everybody is.
    """
    n_items = 5
    histories = csr_array(np.eye(4, n_items)[[0, 0, 1, 1]].astype(np.float32))
    targets = csr_array(np.eye(n_items)[[2, 2, 3, 3]].astype(np.float32))
    held_out = HeldOut(Interactions.from_matrix(histories), Interactions.from_matrix(targets))
    local = linear({(0, 4): 1.0, (1, 3): 1.0}, n_items)
    global_model = linear({(0, 2): 2.0, (1, 4): 0.8}, n_items)
    weights = csr_array(np.ones((4, 1), np.float32))
    panel = Panel(held_out, Metric.of("ndcg@1"), global_model, weights)
    return SeparateModels.of([local]), panel


def test_the_share_with_the_best_value_is_chosen_of_equal_ones_the_smallest() -> None:
    models, panel = panel_of_two_kinds()
    combiners = GlobalShare().candidates()
    values = dict(zip(SHARES, panel.mean_values(models, combiners), strict=True))
    assert {share for share, value in values.items() if value == 1.0} == {0.4, 0.5}
    assert values[0.0] == values[1.0] == 0.5
    assert GlobalShare().choose(models, panel) == FixedShare(0.4)


def test_a_given_share_and_none_are_not_chosen() -> None:
    models, panel = panel_of_two_kinds()
    for combiner in (FixedShare(0.9), LocalOnly()):
        assert combiner.choose(models, panel) is combiner
        assert list(combiner.candidates()) == [combiner]
        assert combiner.while_learning() is combiner
    assert GlobalShare().while_learning() == FixedShare(0.0)


def test_the_chosen_share_is_the_best_of_the_grid_on_validation(planted_split: Split) -> None:
    validation = planted_split.validation
    model = small_loca().fit(planted_split.train, validation=validation)
    scores = [
        mean_value(
            small_loca(combiner=FixedShare(share))
            .fit(planted_split.train, validation=validation)
            .score,
            validation,
        )
        for share in SHARES
    ]
    # Two shares may be as good but for rounding.
    chosen = SHARES.index(model.local_.combiner.share)
    assert scores[chosen] == pytest.approx(max(scores), abs=1e-5)


def test_the_rule_of_the_paper_gives_the_global_model_no_share(planted_split: Split) -> None:
    model = small_loca(combiner=LocalOnly())
    model.fit(planted_split.train, validation=planted_split.validation)
    zero = small_loca(combiner=FixedShare(0.0))
    zero.fit(planted_split.train, validation=planted_split.validation)
    histories = planted_split.test.history_matrix
    np.testing.assert_array_equal(model.score(histories), zero.score(histories))
    assert model.locality_.alpha == 0
    assert model.selected().combiner == LocalOnly()


def test_without_validation_the_global_model_has_no_share_and_a_remark_says_so(
    planted_split: Split,
) -> None:
    model = small_loca().fit(planted_split.train)
    assert model.local_.combiner == FixedShare(0.0)
    told = {remark.kind: remark.text for remark in model.remarks_}
    assert "without validation the global model has no share" in told["no-validation"]
    for combiner in (FixedShare(0.3), LocalOnly()):
        assert small_loca(combiner=combiner).fit(planted_split.train).remarks_ == ()


@pytest.mark.parametrize("wrong", [-0.1, 1.5, float("nan"), True, "0.5", None])
def test_a_share_outside_0_to_1_is_refused(wrong: Any, planted_split: Split) -> None:
    with pytest.raises(ConfigError, match="share: expected a number from 0 to 1"):
        FixedShare(wrong)
    model = small_loca(combiner=FixedShare(0.25)).fit(planted_split.train)
    with pytest.raises(ConfigError, match="share: expected a number from 0 to 1"):
        model.with_global_share(wrong)


def test_another_global_share_blends_anew_and_leaves_the_model_as_it_was(
    planted_split: Split,
) -> None:
    model = small_loca(combiner=FixedShare(0.25)).fit(planted_split.train)
    histories = planted_split.test.history_matrix[:30]
    before = model.score(histories)
    global_scores = model.global_.score(histories)
    np.testing.assert_array_equal(model.with_global_share(0.25).score(histories), before)
    alone = model.with_global_share(1)
    np.testing.assert_allclose(alone.score(histories), global_scores, atol=1e-6)
    halfway = (model.with_global_share(0).score(histories) + global_scores) / 2
    other = model.with_global_share(0.5)
    np.testing.assert_allclose(other.score(histories), halfway, atol=1e-6)
    assert (other.local_.combiner, other.locality_.alpha) == (FixedShare(0.5), 0.5)
    assert (model.local_.combiner, model.locality_.alpha) == (FixedShare(0.25), 0.25)
    np.testing.assert_array_equal(model.score(histories), before)
    with pytest.raises(NotFittedError):
        small_loca().with_global_share(0.5)


# -- Who is not covered ---------------------------------------------------------------------------


@settings(max_examples=60)
@given(
    arrays(np.float32, (6, 3), elements=st.sampled_from([0.0, 0.2, 1.0, 3.0])),
    st.sampled_from([GlobalShare(), LocalOnly(), ByCoverage(), *map(FixedShare, SHARES)]),
)
def test_who_is_not_covered_gets_the_global_scores_to_the_bit(
    weights: npt.NDArray[np.float32], combiner: Combiner
) -> None:
    rng = np.random.default_rng(0)
    histories = csr_array((rng.random((6, 8)) < 0.5).astype(np.float32))
    global_model, *local = (EASE() for _ in range(4))
    for model in (global_model, *local):
        model.weights_ = rng.normal(size=(8, 8)).astype(np.float32)
    answer_weights = csr_array(weights)
    models = SeparateModels.of(local)
    batch = models.prepared(histories, answer_weights)
    scores = next(combined_scores(models, global_model, batch, [combiner]))
    global_scores = global_model.score(histories)
    uncovered = ~weights.any(axis=1)
    np.testing.assert_array_equal(scores[uncovered], global_scores[uncovered])
    shares = combiner.global_shares(answer_weights)
    assert (shares[uncovered] == 1).all()
    for user in np.flatnonzero(~uncovered):
        shown = csr_array(histories[[user]])
        parts = [model.score(shown)[0] for model in local]
        mean = np.average(parts, axis=0, weights=weights[user])
        expected = shares[user] * global_scores[user] + (1 - shares[user]) * mean
        np.testing.assert_allclose(scores[user], expected, atol=1e-4)


# -- Another share for every user -----------------------------------------------------------------


@pytest.fixture(scope="module")
def by_coverage(planted_split: Split) -> loca.Loca:
    model = small_loca(combiner=ByCoverage(strength=0.5))
    return model.fit(planted_split.train, validation=planted_split.validation)


def test_a_share_for_every_user_is_used_by_score_explain_and_evaluate_alike(
    by_coverage: loca.Loca, planted_split: Split
) -> None:
    local = by_coverage.local_
    histories = planted_split.test.history_matrix
    weights = by_coverage.answer_weights(histories)
    n_answering = np.diff(weights.indptr)
    shares = 1 / (1 + 0.5 * n_answering)
    assert len(np.unique(shares)) >= 3, "all users are covered alike: nothing is shown"

    blended = local.models.blend(histories, weights)
    by_hand = (
        shares[:, None] * by_coverage.global_.score(histories) + (1 - shares[:, None]) * blended
    )
    np.testing.assert_allclose(by_coverage.score(histories), by_hand, atol=1e-5)

    for n in np.unique(n_answering):
        user = int(np.flatnonzero(n_answering == n)[0])
        sources = by_coverage.explain(csr_array(histories[[user]])).sources
        assert isinstance(sources, AnswersOfCommunities)
        assert sources.alpha == pytest.approx(shares[user])
        assert len(sources.communities) == n
        assert sum(part.weight for part in sources.communities) == pytest.approx(1 - shares[user])

    values = evaluate(by_coverage, planted_split.test, at=(10,)).values["ndcg@10"]
    judge = Judge(planted_split.test, Metric.of("ndcg@10"), by_coverage.global_)
    np.testing.assert_allclose(local.values(judge), values, atol=1e-6)
    expected = mean_value(lambda rows: by_hand[rows_of(rows, histories)], planted_split.test)
    assert mean_value(by_coverage.score, planted_split.test) == pytest.approx(expected, abs=1e-6)


def rows_of(rows: csr_array, histories: csr_array) -> npt.NDArray[np.int64]:
    """Return which of some histories the rows are."""
    known = {history.tobytes(): row for row, history in enumerate(histories.toarray())}
    return np.array([known[row.tobytes()] for row in rows.toarray()])


def test_the_mean_share_of_covered_users_is_told(
    by_coverage: loca.Loca, planted_split: Split
) -> None:
    weights = by_coverage.answer_weights(planted_split.train.histories())
    n_answering = np.diff(weights.indptr)
    shares = 1 / (1 + 0.5 * n_answering[n_answering > 0])
    assert by_coverage.locality_.alpha == pytest.approx(shares.mean())
    assert by_coverage.facts()["alpha"] == pytest.approx(shares.mean())


def test_a_strangers_combiner_is_kept_by_a_refit_a_file_and_an_update(
    by_coverage: loca.Loca, planted_split: Split, tmp_path: Path
) -> None:
    assert by_coverage.selected().combiner == ByCoverage(strength=0.5)
    assert clone(by_coverage, combiner__strength=2.0).combiner == ByCoverage(strength=2.0)
    by_coverage.save(tmp_path / "model")
    loaded = loca.load(tmp_path / "model", classes=[ByCoverage])
    histories = planted_split.test.history_matrix
    np.testing.assert_array_equal(loaded.score(histories), by_coverage.score(histories))
    loaded.update(planted_split.validation.targets)
    assert loaded.local_.combiner == ByCoverage(strength=0.5)
    with pytest.raises(loca.ModelFileError, match="ByCoverage"):
        loca.load(tmp_path / "model")


def test_networks_stop_by_the_answers_of_a_strangers_combiner(planted_split: Split) -> None:
    kernels = small_kernels(n=2, embedding=None, answer_bandwidth=Quantile(0.4))
    base = loca.MultVAE(latent=8, epochs=6, patience=6, learning_rate=2e-2, batch_size=100)
    model = loca.Loca(base=base, communities=kernels, combiner=ByCoverage(), engine=Loop())
    model.fit(planted_split.train, validation=planted_split.validation)
    best = mean_value(model.score, planted_split.validation)
    for epochs in range(1, 7):
        fixed = clone(model, base__epochs=epochs, global_model=model.global_.selected())
        value = mean_value(fixed.fit(planted_split.train).score, planted_split.validation)
        assert value <= best + 1e-6
