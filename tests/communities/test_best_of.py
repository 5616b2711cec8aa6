"""The choice among kinds of communities: all are fitted, the best is taken, and a refit repeats it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import loca
from loca.communities.best_of import BestOf
from loca.communities.finder import CommunityFinder
from loca.communities.kernel import Kernels
from loca.communities.mixture import Mixtures
from loca.communities.random_groups import RandomGroups
from loca.data.splits import Split
from loca.errors import ConfigError
from loca.evaluation.evaluate import mean_value
from loca.local.combiner import FixedShare, GlobalShare
from loca.local.loca import Loca
from loca.memory import DataSize
from loca.models.ease import EASE
from loca.models.mult_vae import MultVAE
from loca.models.recommender import TrainingData, clone

VAE = {"latent": 8, "epochs": 12, "patience": 4, "evaluate_every": 2, "learning_rate": 5e-3}
KINDS: tuple[CommunityFinder, ...] = (
    Kernels(n=3, answer_bandwidth=0.6),
    Mixtures(n=4),
    RandomGroups(n=4),
)


def remarks_of(model: loca.Recommender) -> dict[str, str]:
    return {remark.kind: remark.text for remark in model.remarks_}


def names(finders: tuple[CommunityFinder, ...] | None) -> str:
    return ", ".join(map(str, finders or ["its own kinds"]))


# -- Given kinds ----------------------------------------------------------------------------------


@pytest.mark.parametrize("finders", [KINDS, KINDS[::-1], KINDS[1:], KINDS[:1]], ids=names)
def test_of_given_kinds_all_are_fitted_and_the_best_on_validation_is_taken(
    finders: tuple[CommunityFinder, ...], grouped_split: Split
) -> None:
    validation = grouped_split.validation
    # Without a choice of the share, the global model cannot take the place of communities.
    model = Loca(base=EASE(l2=50.0), combiner=FixedShare(0.2))
    alone = {
        finder: clone(model, communities=finder).fit(grouped_split.train, validation=validation)
        for finder in finders
    }
    scores = {finder: mean_value(fitted.score, validation) for finder, fitted in alone.items()}
    best = max(finders, key=lambda finder: scores[finder])
    assert len(set(scores.values())) == len(finders), "the kinds answer alike: nothing is shown"
    chosen = clone(model, communities=BestOf(finders=finders))
    chosen.fit(grouped_split.train, validation=validation)
    assert type(chosen.local_.finder) is type(best)
    histories = grouped_split.test.history_matrix
    np.testing.assert_array_equal(chosen.score(histories), alone[best].score(histories))


def test_without_validation_the_first_kind_is_taken_with_a_remark(grouped_split: Split) -> None:
    for finders in (KINDS, KINDS[::-1]):
        model = Loca(base=EASE(l2=50.0), communities=BestOf(finders=finders))
        model.fit(grouped_split.train)
        assert type(model.local_.finder) is type(finders[0])
        model = clone(model, combiner=FixedShare(0.5)).fit(grouped_split.train)
        expected = "the kind of communities is chosen on validation; without it they are"
        assert remarks_of(model)["no-validation"] == f"Loca: {expected} {finders[0]}"


def test_each_given_kind_has_its_own_number_of_communities(grouped_split: Split) -> None:
    finders = (Mixtures(n=2), Mixtures(n=6))
    model = Loca(base=EASE(l2=50.0), communities=BestOf(finders=finders))
    model.fit(grouped_split.train, validation=grouped_split.validation)
    assert len(model.local_.communities) in (2, 6)
    fewer = csr_array(grouped_split.train.matrix()[:4])
    model.fit(fewer)
    assert len(model.local_.communities) == 2


def test_what_is_no_finder_is_refused() -> None:
    for wrong in ((), ("kernels",), [Mixtures()], (Mixtures,)):
        with pytest.raises(ConfigError, match="finders: expected finders such as"):
            BestOf(finders=wrong)  # type: ignore[arg-type]


def test_given_finders_have_their_own_numbers() -> None:
    finders = (Mixtures(n=8), Kernels(n=12))
    assert BestOf(finders=finders).n == 12
    assert BestOf(finders=finders).with_n(10).finders == (Mixtures(n=8), Kernels(n=10))
    with pytest.raises(ConfigError, match="n: each of the finders has its own"):
        BestOf(n=5, finders=finders)
    assert BestOf(finders=(*finders, RandomGroups())).n_trained(EASE()) == 3
    assert BestOf().n_trained(EASE()) == 1


def test_a_single_community_is_planned() -> None:
    size = DataSize(users=50, items=20, entries=400, item_pairs=400)
    steps = BestOf(n=1).memory(size, base=EASE(), global_model=EASE())
    assert "communities" in steps


# -- Its own kinds --------------------------------------------------------------------------------


def candidates_of(base: loca.Recommender, split: Split, **params: Any) -> list[CommunityFinder]:
    data = TrainingData.of(split.train, device="cpu")
    data = replace(data, validation=split.validation)
    return list(BestOf(**params).candidates(Loca(base=base), data))


def test_solved_models_have_the_kind_that_a_small_model_prefers(grouped_split: Split) -> None:
    candidates = candidates_of(EASE(l2=50.0), grouped_split, n=8)
    assert len(candidates) == 1
    assert isinstance(candidates[0], Kernels | Mixtures)
    assert candidates[0].n <= 8


def test_networks_may_have_random_groups_too(grouped_split: Split) -> None:
    local, groups = candidates_of(MultVAE(**VAE), grouped_split, n=8)
    assert isinstance(local, Kernels | Mixtures)
    assert groups == RandomGroups(n=8, divisions=2)


def test_without_validation_it_is_mixtures_with_a_remark(grouped_split: Split) -> None:
    model = Loca(base=EASE(l2=50.0), communities=BestOf(n=7)).fit(grouped_split.train)
    assert model.local_.finder.n == 6
    assert isinstance(model.local_.finder, Mixtures)
    assert "kind of communities" in " ".join(remark.text for remark in model.remarks_)
    assert str(model.communities) == "the best of several kinds of at most 7 communities"


def test_communities_are_found_where_they_earn() -> None:
    data = loca.planted_communities(users=1500).interactions
    split = loca.leave_last_out(data, test=5, validation=2)
    model = Loca(base=EASE(l2=300.0), communities=BestOf(n=8))
    model.fit(split.train, validation=split.validation)
    assert model.local_.combiner.share < 0.5
    score, alone = (
        loca.evaluate(each, split.test, at=[100]).means()["ndcg@100"]
        for each in (model, model.global_)
    )
    assert score > 1.04 * alone
    again = model.selected().fit(split.train, validation=split.validation)
    np.testing.assert_array_equal(
        again.score(split.test.history_matrix), model.score(split.test.history_matrix)
    )


def random_split() -> Split:
    """Items of 200 users that are drawn at random: nothing can be learned of communities."""
    rng = np.random.default_rng(0)
    drawn = np.argsort(rng.random((200, 40)), axis=1)[:, :12]
    matrix = csr_array((np.ones(drawn.size), drawn.ravel(), np.arange(0, 2401, 12)))
    return loca.leave_last_out(loca.Interactions.from_matrix(matrix), test=2, validation=2)


def test_where_nothing_is_earned_the_global_model_answers_alone_with_a_remark() -> None:
    split = random_split()
    model = Loca(base=EASE(l2=50.0), communities=BestOf(n=4))
    model.fit(split.train, validation=split.validation)
    assert model.local_.combiner == FixedShare(1.0)
    assert model.locality_.alpha == 1.0
    assert "not significantly better than the global model" in remarks_of(model)["communities"]
    histories = split.test.history_matrix
    np.testing.assert_array_equal(model.score(histories), model.global_.score(histories))


def test_a_given_share_is_left_alone() -> None:
    split = random_split()
    model = Loca(base=EASE(l2=50.0), communities=BestOf(n=4), combiner=FixedShare(0.3))
    model.fit(split.train, validation=split.validation)
    assert model.local_.combiner == FixedShare(0.3)
    assert "communities" not in remarks_of(model)


# -- A refit --------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", [EASE(l2=50.0), MultVAE(**VAE)], ids=["EASE", "MultVAE"])
@pytest.mark.parametrize("finders", [None, (Mixtures(n=4),), KINDS], ids=names)
def test_a_refit_has_the_chosen_kind_with_all_that_was_chosen_and_chooses_nothing(
    base: loca.Recommender, finders: tuple[CommunityFinder, ...] | None, grouped_split: Split
) -> None:
    model = Loca(base=base, communities=BestOf(n=4, finders=finders))
    model.fit(grouped_split.train, validation=grouped_split.validation)
    local = model.local_
    selected = model.selected()
    assert selected.communities == local.finder
    assert not isinstance(selected.communities, BestOf)
    assert selected.combiner == local.combiner
    assert isinstance(selected.combiner, FixedShare)
    if base.learns_by_epoch:
        assert selected.base.epochs == local.models.epochs_
        assert selected.global_model.epochs == model.global_.best_epoch_
    if isinstance(local.finder, Mixtures):
        assert local.finder.temperature == local.communities.temperature
        assert local.finder.temperature is not None
        assert local.finder.shared_epochs == local.communities.shared_epochs
    refit = clone(selected).fit(grouped_split.train)
    assert remarks_of(refit) == {}
    assert refit.local_.finder == local.finder
    assert refit.local_.combiner == local.combiner
    assert refit.local_.communities.facts() == local.communities.facts()
    histories = grouped_split.test.history_matrix
    np.testing.assert_allclose(refit.score(histories), model.score(histories), rtol=1e-4, atol=1e-4)
    # With validation at hand nothing is chosen again either.
    again = clone(selected).fit(grouped_split.train, validation=grouped_split.validation)
    assert again.local_.finder == local.finder
    assert again.local_.combiner == local.combiner


def test_networks_share_the_epochs_of_the_global_model_and_then_differ(
    grouped_split: Split,
) -> None:
    model = Loca(base=MultVAE(**VAE), communities=Mixtures(n=4))
    model.fit(grouped_split.train, validation=grouped_split.validation)
    shared = model.local_.communities.shared_epochs
    assert shared == min(model.global_.best_epoch_, 8)
    assert model.local_.models.epochs_ > shared
    refit = model.selected()
    assert (refit.communities.shared_epochs, refit.base.epochs) == (
        shared,
        model.local_.models.epochs_,
    )


def test_the_chosen_kind_is_saved_and_loaded(grouped_split: Split, tmp_path: Path) -> None:
    model = Loca(base=MultVAE(**VAE), communities=BestOf(n=4))
    model.fit(grouped_split.train, validation=grouped_split.validation).save(tmp_path / "model")
    loaded = loca.load(tmp_path / "model", verify=True)
    histories = grouped_split.test.history_matrix
    np.testing.assert_array_equal(loaded.score(histories), model.score(histories))
    assert loaded.communities == model.communities == BestOf(n=4)
    assert loaded.selected().communities == model.selected().communities


# -- Special data ---------------------------------------------------------------------------------


def test_a_few_users_without_popular_items_are_no_problem() -> None:
    rng = np.random.default_rng(0)
    rows = [[1399, 1398, 1397, 1396], *(rng.choice(1000, 40, replace=False) for _ in range(37))]
    offsets = np.cumsum([0, *map(len, rows)])
    values = np.ones(offsets[-1])
    matrix = csr_array((values, np.concatenate(rows), offsets), shape=(38, 1400))
    split = loca.leave_last_out(loca.Interactions.from_matrix(matrix), test=1, validation=1)
    model = Loca(base=EASE(l2=50.0)).fit(split.train, validation=split.validation)
    assert model.score(split.test.history_matrix).shape == (38, 1400)


def test_without_membership_weights_local_networks_are_an_ensemble(grouped_split: Split) -> None:
    base = MultVAE(**VAE)
    ensemble = loca.Ensemble(base=base, models=4)
    ensemble.fit(grouped_split.train, validation=grouped_split.validation)
    everybody = Mixtures(n=4, membership_weight=0.0, temperature=1e6, shared_epochs=0)
    model = Loca(base=base, communities=everybody, combiner=FixedShare(0.0))
    model.fit(grouped_split.train, validation=grouped_split.validation)
    assert model.local_.models.epochs_ == ensemble.epochs_
    histories = grouped_split.test.history_matrix
    np.testing.assert_allclose(
        model.score(histories), ensemble.score(histories), rtol=1e-4, atol=1e-4
    )


def test_what_is_not_local_is_not_explained_by_communities(grouped_split: Split) -> None:
    drawn = Loca(base=EASE(l2=50.0), communities=RandomGroups(n=4), combiner=FixedShare(0.0))
    line = "Answered by 4 models alike, of groups of users drawn at random."
    assert line in str(drawn.fit(grouped_split.train).explain(0))
    alone = Loca(base=EASE(l2=50.0), communities=Mixtures(n=4), combiner=FixedShare(1.0))
    alone.fit(grouped_split.train)
    line = "Communities earned nothing here: the global model answers alone."
    assert line in str(alone.explain(0))
    ease = EASE(l2=50.0).fit(grouped_split.train)
    histories = grouped_split.test.history_matrix
    np.testing.assert_array_equal(alone.score(histories), ease.score(histories))


# -- Few users ------------------------------------------------------------------------------------


def few_users() -> loca.Interactions:
    return loca.planted_communities(
        users=30, items=20, groups=4, history=8, shortest_history=6
    ).interactions


@pytest.mark.parametrize("kind", [Kernels, Mixtures, RandomGroups, BestOf])
@pytest.mark.parametrize("n", [40, 41, 31])
def test_there_is_at_most_one_community_a_user_and_a_remark_says_so(
    kind: type[CommunityFinder], n: int
) -> None:
    model = Loca(base=EASE(), communities=kind(n=n)).fit(few_users())
    assert len(model.local_.communities) == 30
    assert len(model.local_.description.members) == 30
    text = remarks_of(model)["communities"]
    assert text == f"30 users with a history allow 30 communities, not {n}"
    assert model.communities.n == n


@pytest.mark.parametrize(
    ("finder", "n"),
    [
        (Kernels(n=30), 30),
        (Mixtures(n=30), 30),
        (RandomGroups(n=30), 30),
        (Mixtures(n=29), 28),
        (Mixtures(n=41, mixtures=4), 28),
        (RandomGroups(n=41, divisions=4), 28),
        (Mixtures(n=41, mixtures=41), 30),
        (BestOf(n=30), 30),
    ],
    ids=str,
)
def test_mixtures_have_as_many_components_each(finder: CommunityFinder, n: int) -> None:
    model = Loca(base=EASE(), communities=finder).fit(few_users())
    assert len(model.local_.communities) == n
    assert ("communities" in remarks_of(model)) == (finder.n > 30)


def test_users_without_a_history_or_a_weight_do_not_count() -> None:
    matrix = few_users().matrix().tolil()
    matrix[:5] = 0
    weights = np.ones(30)
    weights[5:10] = 0
    model = Loca(base=EASE(), communities=Kernels(n=25), combiner=GlobalShare())
    model.fit(csr_array(matrix.tocsr()), user_weights=weights)
    assert len(model.local_.communities) == 20
    assert model.local_.communities.anchors.min() >= 10
    assert remarks_of(model)["communities"].startswith("20 users with a history allow 20")
