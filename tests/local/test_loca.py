"""Loca: its answer against the formula, its special cases, and its explanation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from small_models import (
    FOR_EVERYBODY,
    RIGHT,
    SURELY_RIGHT,
    WRONG,
    small_kernels,
    small_loca,
    small_vae,
)

import loca
from changed_states import changed
from loca.communities.embeddings import TruncatedSVD
from loca.communities.geometry import Quantile
from loca.communities.kernel import Kernels
from loca.communities.mixture import Mixtures
from loca.data.splits import Split
from loca.errors import ConfigError, DataError, ModelFileError
from loca.evaluation.evaluate import mean_value
from loca.evaluation.top_n import rank_top_n
from loca.local.combiner import Combiner, FixedShare, GlobalShare, LocalOnly
from loca.local.community_description import over_represented
from loca.local.community_models import CommunityModels
from loca.local.engines.differences.engine import Differences
from loca.local.engines.engine import Engine, scaled_weights
from loca.local.engines.loop import Loop
from loca.local.engines.stacked.engine import Stacked
from loca.local.explain import AnswersOfCommunities
from loca.local.loca import Loca
from loca.local.local_models import SeparateModels
from loca.models.ease import EASE
from loca.models.popularity import Popularity
from loca.models.recommender import clone
from loca.persistence.learned import restored, state_of
from loca.random_streams import derive_seed
from scripted_models import Scripted, scripted_split


def test_the_answer_is_the_membership_weighted_mean_of_the_local_answers(
    planted_split: Split,
) -> None:
    model = small_loca(combiner=FixedShare(0.25)).fit(planted_split.train)
    histories = planted_split.test.history_matrix[:30]
    weights = model.answer_weights(histories).toarray()
    answers = np.stack(
        [model.local_.models.score_with(number, histories) for number in range(6)]
    )  # (models, users, items)
    scores = model.score(histories)
    for user in range(30):
        expected = model.global_.score(histories)[user]
        if weights[user].any():
            local = np.tensordot(weights[user], answers[:, user], 1) / weights[user].sum()
            expected = 0.25 * expected + 0.75 * local
        np.testing.assert_allclose(scores[user], expected, atol=1e-5)


def test_a_local_model_is_the_base_fitted_with_the_scaled_weights_of_its_community(
    planted_split: Split,
) -> None:
    model = small_loca().fit(planted_split.train)
    matrix = planted_split.train.matrix()
    for community in (0, 5):
        communities = model.local_.communities
        weights = communities.train_weights(communities.locate(matrix), community)
        alone = EASE(l2=20.0).fit(matrix, user_weights=weights * len(weights) / weights.sum())
        np.testing.assert_allclose(
            model.local_.models.score_with(community, matrix), alone.score(matrix), atol=1e-5
        )


def test_a_user_outside_every_community_gets_the_global_scores(planted_split: Split) -> None:
    communities = small_kernels(n=1, answer_bandwidth=0.3)
    model = small_loca(communities=communities).fit(planted_split.train)
    histories = planted_split.test.history_matrix
    covered = np.diff(model.answer_weights(histories).indptr) > 0
    assert 0 < covered.mean() < 0.5
    outside = csr_array(histories[~covered])
    np.testing.assert_array_equal(model.score(outside), model.global_.score(outside))
    inside = csr_array(histories[covered])
    assert np.abs(model.score(inside) - model.global_.score(inside)).max() > 1e-3


def test_wide_uniform_communities_of_ease_are_the_global_model(planted_split: Split) -> None:
    communities = small_kernels(kernel="uniform", train_bandwidth=3.0, answer_bandwidth=3.0)
    model = small_loca(communities=communities).fit(planted_split.train)
    histories = planted_split.test.history_matrix[:20]
    np.testing.assert_allclose(model.score(histories), model.global_.score(histories), atol=1e-5)


def test_local_networks_with_equal_weights_differ_by_their_seeds_alone(
    planted_split: Split,
) -> None:
    matrix = planted_split.train.matrix()
    model = Loca(base=small_vae(epochs=2), communities=FOR_EVERYBODY).fit(matrix)
    first, second = (model.local_.models.score_with(number, matrix[:5]) for number in range(2))
    assert np.abs(first - second).max() > 1e-3
    alone = small_vae(epochs=2, seed=derive_seed(0, "local model", 0)).fit(matrix)
    np.testing.assert_allclose(
        first, alone.score(matrix[:5]), atol=1e-4
    )  # two epochs of Adam in 32 bits


def test_one_number_of_epochs_is_chosen_on_the_blended_score(planted_split: Split) -> None:
    validation = planted_split.validation
    kernels = Kernels(n=3, train_bandwidth=Quantile(0.8), answer_bandwidth=Quantile(0.5))
    model = Loca(base=small_vae(), communities=kernels, combiner=FixedShare(0.2))
    model.fit(planted_split.train, validation=validation)
    best = mean_value(model.score, validation)
    best_epochs = model.local_.models.epochs_
    assert 1 <= best_epochs <= 8
    for epochs in range(1, 9):
        fixed = clone(model, base__epochs=epochs, global_model=model.global_.selected())
        score = mean_value(fixed.fit(planted_split.train).score, validation)
        if epochs == best_epochs:
            assert score == pytest.approx(best, abs=1e-6)
        elif epochs < best_epochs + 3:
            assert score <= best + 1e-6


def test_the_selected_model_repeats_the_choices_without_validation(planted_split: Split) -> None:
    model = Loca(base=small_vae(), communities=Kernels(n=3))
    model.fit(planted_split.train, validation=planted_split.validation)
    selected = model.selected()
    assert selected.base.epochs == model.local_.models.epochs_
    assert selected.global_model.epochs == model.global_.best_epoch_
    assert selected.combiner == model.local_.combiner
    histories = planted_split.test.history_matrix[:20]
    again = clone(selected).fit(planted_split.train)
    np.testing.assert_allclose(again.score(histories), model.score(histories), atol=1e-5)
    refit = selected.fit(planted_split.train_and_validation)
    assert refit.local_.combiner == model.local_.combiner


@pytest.mark.parametrize("engine", [Loop(), None], ids=str)
def test_the_selected_model_has_the_local_epochs_of_validation_and_not_those_it_was_given(
    engine: Engine | None,
) -> None:
    split = scripted_split()
    model = Loca(
        base=Scripted(script=(WRONG, RIGHT, WRONG, WRONG)),
        global_model=Scripted(script=(WRONG, WRONG, SURELY_RIGHT, WRONG)),
        combiner=FixedShare(0.0),
        communities=FOR_EVERYBODY,
        engine=engine,
    )
    selected = model.fit(split.train, validation=split.validation).selected()
    assert (model.base.epochs, model.local_.models.epochs_) == (4, 2)
    assert (selected.base.epochs, selected.global_model.epochs) == (2, 3)
    histories = split.test.history_matrix
    scores = selected.fit(split.train_and_validation).score(histories)
    np.testing.assert_allclose(scores, np.tile(RIGHT, (histories.shape[0], 1)), atol=1e-6)


@pytest.mark.parametrize(
    ("combiner", "epochs"),
    [(GlobalShare(), 2), (LocalOnly(), 2), (FixedShare(0.0), 2), (FixedShare(0.5), 1)],
    ids=str,
)
def test_local_epochs_are_judged_without_a_share_of_the_global_model_that_is_still_to_be_chosen(
    combiner: Combiner, epochs: int
) -> None:
    split = scripted_split()
    # After one epoch local models are wrong. With half of the global model's answer they would pass
    # for right.
    model = Loca(
        base=Scripted(script=(WRONG, RIGHT)),
        global_model=Scripted(script=(SURELY_RIGHT,)),
        combiner=combiner,
        communities=FOR_EVERYBODY,
    )
    model.fit(split.train, validation=split.validation)
    assert model.local_.models.epochs_ == epochs


def test_users_can_be_embedded_by_another_model(planted_split: Split) -> None:
    model = small_loca(communities=small_kernels(embedding=small_vae()))
    model.fit(planted_split.train, validation=planted_split.validation)
    communities = model.local_.communities
    assert communities.locate(planted_split.test.history_matrix[:3]).shape == (3, 8)
    assert model.selected().communities.embedding.epochs == communities.embedder.best_epoch_
    assert communities.embedder is not model.global_
    model = Loca(base=small_vae(epochs=1), communities=Kernels(n=2)).fit(planted_split.train)
    assert model.local_.communities.embedder is model.global_
    assert model.selected().communities.embedding is None


def test_a_refit_has_the_epochs_of_the_embedder_that_validation_chose() -> None:
    split = scripted_split()
    kernels = clone(FOR_EVERYBODY, embedding=Scripted(script=(WRONG, RIGHT, WRONG)))
    model = Loca(base=EASE(), communities=kernels)
    selected = model.fit(split.train, validation=split.validation).selected()
    assert model.communities.embedding.epochs == 3
    assert selected.communities.embedding.epochs == 2


def test_a_base_without_an_encoder_is_embedded_by_an_svd(planted_split: Split) -> None:
    model = small_loca(communities=small_kernels(embedding=None)).fit(planted_split.train)
    assert isinstance(model.local_.communities.embedder, TruncatedSVD)


def test_user_weights_reach_the_local_models(planted_split: Split) -> None:
    matrix = planted_split.train.matrix()
    times = np.random.default_rng(0).integers(1, 3, matrix.shape[0])
    model = small_loca().fit(matrix, user_weights=times)
    communities = model.local_.communities
    together = times * communities.train_weights(communities.locate(matrix), 2)
    alone = EASE(l2=20.0).fit(matrix, user_weights=together * times.sum() / together.sum())
    np.testing.assert_allclose(
        model.local_.models.score_with(2, matrix), alone.score(matrix), atol=1e-5
    )


def test_an_explanation_adds_up_and_names_what_each_community_says(planted_split: Split) -> None:
    model = small_loca(combiner=FixedShare(0.3)).fit(planted_split.train)
    weights = model.answer_weights(planted_split.test.history_matrix)
    user = int(np.argmax(np.diff(weights.indptr)))
    history = csr_array(planted_split.test.history_matrix[[user]])
    explanation = model.explain(history, n=5)
    inside = explanation.sources
    assert isinstance(inside, AnswersOfCommunities)
    assert sum(part.weight for part in inside.communities) + inside.alpha == pytest.approx(1)
    assert [part.weight for part in inside.communities] == sorted(
        (part.weight for part in inside.communities), reverse=True
    )
    for part in inside.communities:
        scores = model.local_.models.score_with(part.community, history)
        expected, _ = rank_top_n(scores, history, 5)
        np.testing.assert_array_equal(part.items, expected[0])
        anchor = model.local_.communities.anchors[part.community]
        assert part.anchor == model.train_data_.users.ids([anchor])[0]
    np.testing.assert_array_equal(
        explanation.items, rank_top_n(model.score(history), history, 5)[0][0]
    )
    np.testing.assert_array_equal(
        inside.global_items, rank_top_n(model.global_.score(history), history, 5)[0][0]
    )
    text = str(explanation)
    assert model.train_data_.items.label(explanation.items[0]) in text
    assert "The model: global share alpha 0" in text
    # Every community is in one group, and a group's share is that of its communities.
    numbers = [part.community for group in inside.groups for part in group.communities]
    assert sorted(numbers) == sorted(part.community for part in inside.communities)
    assert sum(group.weight for group in inside.groups) + inside.alpha == pytest.approx(1)


def test_a_likely_community_is_explained_by_its_membership_and_a_name_of_its_own(
    planted_split: Split,
) -> None:
    model = Loca(base=EASE(l2=20.0), communities=Mixtures(n=8, mixtures=2))
    model.fit(planted_split.train)
    history = csr_array(planted_split.test.history_matrix[[3]])
    explanation = model.explain(history, n=2)
    inside = explanation.sources
    assert isinstance(inside, AnswersOfCommunities)
    assert len(inside.communities) == 8
    memberships = np.exp(model.local_.communities.locate(history)[0])
    for answer in inside.communities:
        # What is hardly a membership is shown as none.
        shown = memberships[answer.community] >= 0.01
        assert answer.membership == pytest.approx(shown * memberships[answer.community])
        assert answer.mixture == answer.community // 4
    for mixture in range(2):
        parts = [one.membership for one in inside.communities if one.mixture == mixture]
        assert sum(parts) == pytest.approx(1, abs=0.05)
    names = [frozenset(items) for items in inside.naming_rows.values()]
    assert len(set(names)) == 8
    assert all(len(name) == 3 for name in names)
    assert " around " not in str(explanation)
    assert max(map(len, str(explanation).splitlines())) <= 100


def test_locality_is_the_effective_share_of_users_and_how_many_communities_answer(
    planted_split: Split,
) -> None:
    model = small_loca(combiner=FixedShare(0.3)).fit(planted_split.train)
    communities = model.local_.communities
    positions = communities.locate(planted_split.train.histories())
    shares = []
    for community in range(6):
        weights = communities.train_weights(positions, community).astype(np.float64)
        shares.append(weights.sum() ** 2 / (weights**2).sum() / len(weights))
    answering = (communities.answer_weights(positions).toarray() > 0).sum(axis=1)
    assert model.locality_.alpha == 0.3
    assert model.locality_.effective_share == pytest.approx(np.mean(shares), rel=1e-5)
    assert model.locality_.answering == pytest.approx(answering.mean())
    wide = small_kernels(train_bandwidth=100.0, answer_bandwidth=100.0)
    locality = small_loca(communities=wide).fit(planted_split.train).locality_
    assert locality.effective_share == pytest.approx(1, abs=1e-3)
    assert locality.answering == 6


def test_what_is_known_of_communities_is_told_as_facts(planted_split: Split) -> None:
    model = small_loca(combiner=FixedShare(0.3)).fit(planted_split.train)
    communities = model.local_.communities
    positions = communities.locate(planted_split.train.histories())
    facts = model.facts()
    assert facts["alpha"] == 0.3
    assert facts["epochs"] is None
    assert facts["train_bandwidth"] == communities.train_radius
    weights = [communities.train_weights(positions, community) for community in range(6)]
    assert facts["train_share"] == pytest.approx(np.mean(np.array(weights) > 0))
    answering = communities.answer_weights(positions).toarray() > 0
    assert facts["answer_share"] == pytest.approx(answering.mean())
    assert facts["coverage"] == pytest.approx(answering.any(axis=1).mean())


def test_locality_is_saved(planted_split: Split, tmp_path: Path) -> None:
    model = small_loca().fit(planted_split.train)
    assert small_loca().locality_ is None
    model.save(tmp_path / "model")
    assert loca.load(tmp_path / "model").locality_ == model.locality_


def test_an_uncovered_history_is_explained_by_the_global_model(planted_split: Split) -> None:
    communities = small_kernels(n=1, answer_bandwidth=0.05)
    model = small_loca(communities=communities).fit(planted_split.train.matrix())
    weights = model.answer_weights(planted_split.test.history_matrix)
    user = int(np.argmin(np.diff(weights.indptr)))
    explanation = model.explain(planted_split.test.history_matrix[[user]])
    assert isinstance(explanation.sources, AnswersOfCommunities)
    assert explanation.sources.communities == ()
    assert explanation.sources.alpha == 1
    assert "the global model answers alone" in str(explanation)


def test_an_explained_history_is_shown_newest_first_where_its_order_is_known(
    planted_split: Split,
) -> None:
    model = small_loca().fit(planted_split.train)
    items = planted_split.test.histories.items_of(7)
    history = planted_split.test.history_matrix[[7]]
    explanation = model.explain(history, order=items)
    assert explanation.ordered
    np.testing.assert_array_equal(explanation.history, items)
    newest, before = (model.train_data_.items.label(item) for item in (items[-1], items[-2]))
    assert str(explanation).startswith(
        f"History of {len(items)} items, newest first: {newest}, {before}"
    )
    unordered = model.explain(history)
    assert not unordered.ordered
    assert sorted(unordered.history) == sorted(items)
    with pytest.raises(DataError, match="expected the order to name the items of the history"):
        model.explain(history, order=items[1:])


def test_a_user_without_a_history_is_no_anchor(planted_split: Split) -> None:
    matrix = planted_split.train.matrix().toarray()
    matrix[:300] = 0
    for selection in ("coverage", "random", "kmeans", "farthest"):
        communities = small_kernels(n=20, anchors=selection)
        model = small_loca(communities=communities).fit(csr_array(matrix))
        assert model.local_.communities.anchors.min() >= 300


def test_a_community_whose_users_all_weigh_nothing_is_refused() -> None:
    with pytest.raises(DataError, match="a community has no user with a weight above 0"):
        scaled_weights(np.zeros(3, np.float32), 3.0)


def test_an_empty_history_is_not_explained(planted_split: Split) -> None:
    with pytest.raises(DataError, match="expected at least one item to answer from"):
        small_loca().fit(planted_split.train).explain(csr_array((1, 60), dtype=np.float32))


def test_items_over_represented_among_the_members_come_first() -> None:
    matrix = csr_array(np.array([[1, 0, 1], [1, 0, 1], [0, 1, 1], [0, 1, 1]], np.float32))
    members = csr_array(np.array([[1, 0], [1, 0], [0, 1], [0, 1]], np.float32))
    items, lifts = over_represented(matrix, members, 3)
    assert items[:, 0].tolist() == [0, 1]
    # Two members who all have it, and 20 pseudo-members of whom half have it: (2 + 10) / (22 · 0.5).
    assert lifts[0].tolist() == pytest.approx([12 / 11, 1.0, 10 / 11])


def test_a_well_known_item_names_a_community_before_a_rare_one_that_is_more_typical() -> None:
    matrix = np.zeros((1000, 3), np.float32)
    matrix[:30, 0] = 1  # 30 of the 100 members and nobody else
    matrix[:80, 1] = 1  # most members
    matrix[800:, 1] = 1  # and some others
    matrix[:, 2] = 1  # everybody
    members = csr_array((np.arange(1000) < 100).astype(np.float32)[:, None])
    assert over_represented(csr_array(matrix), members, 3)[0].tolist() == [[0, 1, 2]]
    items, lifts = over_represented(csr_array(matrix), members, 3, well_known=True)
    assert items.tolist() == [[1, 0, 2]]
    assert lifts[0, 0] == pytest.approx((80 + 20 * 0.28) / (120 * 0.28))


def test_a_rare_item_of_two_members_is_less_typical_than_one_that_most_members_have() -> None:
    matrix = np.zeros((100, 2), np.float32)
    matrix[:2, 0] = 1  # two users, both members
    matrix[:40, 1] = 1  # most members
    matrix[90:, 1] = 1  # and some others
    members = csr_array((np.arange(100) < 50).astype(np.float32)[:, None])
    items, lifts = over_represented(csr_array(matrix), members, 2)
    assert items.tolist() == [[1, 0]]
    assert lifts[0].tolist() == pytest.approx(
        [(40 + 20 * 0.5) / (70 * 0.5), (2 + 20 * 0.02) / (70 * 0.02)]
    )


def test_models_that_do_not_fit_into_memory_are_refused(
    planted_split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loca.memory.available_bytes", lambda: 50_000)
    with pytest.raises(
        DataError,
        match="local models: 6 models: 72 kB of memory needed, 50 kB are free; take fewer or smaller models",
    ):
        small_loca(engine=Loop()).fit(planted_split.train)
    with pytest.raises(DataError, match=r"local models: 3 models: .* take fewer"):
        Loca(base=small_vae(), communities=Kernels(n=3)).fit(planted_split.train)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"combiner": 0.3}, r"combiner: expected a combiner such as FixedShare\(0.3\), found 0.3"),
        (
            {"communities": "kernel"},
            r"communities: expected a finder such as Mixtures\(\), found 'ker",
        ),
        ({"communities": Kernels}, r"communities: .* found the class Kernels; write Kernels\(\)"),
        ({"base": TruncatedSVD()}, "base: expected a model such as"),
        ({"global_model": 3}, r"global_model: expected a model such as EASE\(\) or none"),
        ({"engine": "stacked"}, r"engine: expected an engine such as Loop\(\) or none"),
        ({"engine": Stacked()}, "engine: Stacked trains networks .*, found EASE"),
        ({"anchors": 40}, "unknown argument 'anchors'"),
    ],
)
def test_impossible_parameters_are_refused_when_the_model_is_made(
    wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        small_loca(**wrong)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n": 0}, "n: expected a whole number ≥ 1"),
        ({"train_bandwidth": 0}, "train_bandwidth: expected a number above 0"),
        ({"answer_bandwidth": -1.0}, "answer_bandwidth: expected a number above 0"),
    ],
)
def test_impossible_parameters_of_its_parts_are_refused_too(
    wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        clone(small_loca(), **{f"communities__{name}": value for name, value in wrong.items()})


def test_a_file_whose_parts_do_not_fit_together_is_refused(planted_split: Split) -> None:
    model = small_loca(engine=Differences()).fit(planted_split.train)
    fewer = small_loca(engine=Differences(), communities=small_kernels(n=5))
    fewer.fit(planted_split.train)
    popularity = Popularity().fit(csr_array(np.eye(7, dtype=np.float32)))
    seven = SeparateModels.of([popularity] * 6)
    local, other = model.local_, fewer.local_
    distant = replace(local.description, distinctive_items=np.full((6, 20), 60, dtype=np.int32))
    state = state_of(local)
    faults: list[tuple[str, dict[str, Any]]] = [
        ("models is missing", {"models": None}),
        ("expected 6 local models, found 5", {"models": other.models}),
        ("communities: expected a Communities, found EASE", {"communities": EASE()}),
        ("the description does not fit 6 communities", {"description": other.description}),
        ("an item that nobody scores", {"description": distant}),
        ("models: expected 60 items, found 7", {"models": seven}),
        ("combiner: expected a Combiner, found 0.3", {"combiner": 0.3}),
        ("finder: expected a CommunityFinder, found 'kernels'", {"finder": "kernels"}),
    ]
    for message, change in faults:
        with pytest.raises(ModelFileError, match=message):
            restored(CommunityModels, {}, changed(state, change))
    below = replace(local.description, distinctive_items=np.full((6, 20), -1, dtype=np.int32))
    with pytest.raises(ModelFileError, match="an item has a row below 0"):
        restored(type(below), {}, state_of(below))
    params = {"base": EASE()}
    state = state_of(model)
    faults = [
        ("global is missing", {"global": None}),
        ("global: expected a Recommender, found TruncatedSVD", {"global": TruncatedSVD()}),
        ("local: expected 7 items, found 60", {"global": popularity}),
        ("local is missing", {"local": None}),
    ]
    for message, change in faults:
        with pytest.raises(ModelFileError, match=message):
            restored(Loca, params, changed(state, change))
    state = state_of(local.models)
    sixty = Popularity().fit(planted_split.train)
    with pytest.raises(ModelFileError, match=r"expected an EASE or NextEASE .*, found Popularity"):
        restored(type(local.models), {}, changed(state, {"centre": sixty}))
