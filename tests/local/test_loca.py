"""Loca: its answer against the formula, its special cases, its choices on validation, and its explanation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

import loca
from loca.communities.embeddings import TruncatedSVD
from loca.communities.geometry import Quantile
from loca.data.splits import HeldOut, Split
from loca.errors import ConfigError, DataError, ModelFileError, NotFittedError
from loca.evaluation.evaluate import mean_value
from loca.evaluation.top_n import rank_top_n
from loca.local.ensemble import Ensemble
from loca.local.explain import AnswersOfCommunities, over_represented
from loca.local.loca import ALPHAS, Loca
from loca.local.local_models import SeparateModels, blend_local
from loca.models.ease import EASE
from loca.models.mult_vae import MultVAE
from loca.models.popularity import Popularity
from loca.models.recommender import (
    clone,
    get_params,
)
from loca.persistence.manifest import ModelState
from loca.random_streams import derive_seed
from scripted_models import NEVER, ON_VALIDATION, Scripted, ranked, scripted_split

SVD = TruncatedSVD(dimensions=8)


def small_loca(**changes: object) -> Loca:
    settings = {
        "base": EASE(l2=20.0),
        "embedding": SVD,
        "anchors": 6,
        "train_bandwidth": Quantile(0.6),
        "answer_bandwidth": Quantile(0.2),
    }
    return Loca(**(settings | changes))  # type: ignore[arg-type]


def small_vae(**changes: object) -> MultVAE:
    settings = {"latent": 8, "learning_rate": 2e-2, "epochs": 8, "patience": 3, "batch_size": 100}
    return MultVAE(**(settings | changes))  # type: ignore[arg-type]


def test_the_answer_is_the_membership_weighted_mean_of_the_local_answers(
    planted_split: Split,
) -> None:
    model = small_loca(alpha=0.25).fit(planted_split.train)
    histories = planted_split.test.history_matrix[:30]
    weights = model.communities_.answer_weights(model.embed(histories)).toarray()
    answers = np.stack(
        [model.locals_.score_with(number, histories) for number in range(6)]
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
        weights = model.communities_.train_weights(model.embed(matrix), community)
        alone = EASE(l2=20.0).fit(matrix, user_weights=weights * len(weights) / weights.sum())
        np.testing.assert_allclose(
            model.locals_.score_with(community, matrix), alone.score(matrix), atol=1e-5
        )


def test_a_user_outside_every_community_gets_the_global_scores(planted_split: Split) -> None:
    model = small_loca(anchors=1, answer_bandwidth=0.3).fit(planted_split.train)
    histories = planted_split.test.history_matrix
    covered = np.diff(model.communities_.answer_weights(model.embed(histories)).indptr) > 0
    assert 0 < covered.mean() < 0.5
    outside = csr_array(histories[~covered])
    np.testing.assert_allclose(model.score(outside), model.global_.score(outside), atol=1e-6)
    inside = csr_array(histories[covered])
    assert np.abs(model.score(inside) - model.global_.score(inside)).max() > 1e-3


def test_wide_uniform_communities_of_ease_are_the_global_model(planted_split: Split) -> None:
    model = small_loca(kernel="uniform", train_bandwidth=3.0, answer_bandwidth=3.0).fit(
        planted_split.train
    )
    histories = planted_split.test.history_matrix[:20]
    np.testing.assert_allclose(model.score(histories), model.global_.score(histories), atol=1e-5)


def test_local_networks_with_equal_weights_differ_by_their_seeds_alone(
    planted_split: Split,
) -> None:
    matrix = planted_split.train.matrix()
    model = Loca(
        base=small_vae(epochs=2),
        anchors=2,
        kernel="uniform",
        train_bandwidth=3.0,
        answer_bandwidth=3.0,
    )
    model.fit(matrix)
    first, second = (model.locals_.score_with(number, matrix[:5]) for number in range(2))
    assert np.abs(first - second).max() > 1e-3
    alone = small_vae(epochs=2, seed=derive_seed(0, "local model", 0)).fit(matrix)
    np.testing.assert_allclose(
        first, alone.score(matrix[:5]), atol=1e-4
    )  # two epochs of Adam in 32 bits


def test_alpha_is_the_best_of_the_grid_on_validation(planted_split: Split) -> None:
    model = small_loca().fit(planted_split.train, validation=planted_split.validation)
    scores = [
        mean_value(
            small_loca(alpha=alpha)
            .fit(planted_split.train, validation=planted_split.validation)
            .score,
            planted_split.validation,
        )
        for alpha in ALPHAS
    ]
    # Two shares may be as good but for rounding.
    assert scores[ALPHAS.index(model.alpha_)] == pytest.approx(max(scores), abs=1e-5)


def test_the_paper_rule_and_no_validation_give_the_global_model_no_share(
    planted_split: Split,
) -> None:
    assert (
        small_loca(alpha="paper")
        .fit(planted_split.train, validation=planted_split.validation)
        .alpha_
        == 0
    )
    assert small_loca().fit(planted_split.train).alpha_ == 0


def test_one_number_of_epochs_is_chosen_on_the_blended_score(planted_split: Split) -> None:
    validation = planted_split.validation
    settings = {
        "anchors": 3,
        "alpha": 0.2,
        "train_bandwidth": Quantile(0.8),
        "answer_bandwidth": Quantile(0.5),
    }
    model = Loca(base=small_vae(), **settings).fit(planted_split.train, validation=validation)
    chosen = mean_value(model.score, validation)
    assert 1 <= model.local_epochs_ <= 8
    for epochs in range(1, 9):
        fixed = Loca(
            base=small_vae(epochs=epochs),
            global_model=model.global_.selected(),
            **settings,
        )
        score = mean_value(fixed.fit(planted_split.train).score, validation)
        if epochs == model.local_epochs_:
            assert score == pytest.approx(chosen, abs=1e-6)
        elif epochs < model.local_epochs_ + 3:
            assert score <= chosen + 1e-6


def test_each_community_may_stop_on_its_own_members(planted_split: Split) -> None:
    base = small_vae(learning_rate=5e-2, epochs=40, patience=2)
    model = Loca(
        base=base,
        anchors=4,
        stopping="community",
        answer_bandwidth=Quantile(0.3),
        engine="one_by_one",
    )
    model.fit(planted_split.train, validation=planted_split.validation)
    own = [local.best_epoch_ for local in model.locals_.models_]
    assert len(set(own)) > 1
    assert model.local_epochs_ == int(np.median(own))


def test_a_community_without_validation_users_runs_all_its_epochs(planted_split: Split) -> None:
    nobody_else = planted_split.validation.targets.places() >= 0
    nobody_else[planted_split.validation.targets.offsets[1] :] = False
    one_user = HeldOut(
        planted_split.validation.histories, planted_split.validation.targets.where(nobody_else)
    )
    model = Loca(
        base=small_vae(),
        anchors=4,
        stopping="community",
        answer_bandwidth=Quantile(0.02),
        engine="one_by_one",
    )
    model.fit(planted_split.train, validation=one_user)
    assert 8 in [local.best_epoch_ for local in model.locals_.models_]


def test_the_chosen_model_repeats_the_choices_without_validation(planted_split: Split) -> None:
    model = Loca(base=small_vae(), anchors=3).fit(
        planted_split.train, validation=planted_split.validation
    )
    chosen = model.selected()
    assert chosen.base.epochs == model.local_epochs_
    assert chosen.global_model.epochs == model.global_.best_epoch_
    assert chosen.alpha == model.alpha_
    histories = planted_split.test.history_matrix[:20]
    np.testing.assert_allclose(
        chosen.fit(planted_split.train).score(histories), model.score(histories), atol=1e-5
    )
    assert clone(chosen).fit(planted_split.train_and_validation).alpha_ == model.alpha_


RIGHT, WRONG = ranked(ON_VALIDATION), ranked(NEVER, ON_VALIDATION)
SURELY_RIGHT = ranked(ON_VALIDATION, scale=10.0)
FOR_EVERYBODY = {"anchors": 2, "kernel": "uniform", "train_bandwidth": 3.0, "answer_bandwidth": 3.0}


@pytest.mark.parametrize("stopping", ["blended", "community"])
def test_the_chosen_model_has_the_local_epochs_of_validation_and_not_those_it_was_given(
    stopping: str,
) -> None:
    split = scripted_split()
    base, whole = (
        Scripted(script=(WRONG, RIGHT, WRONG, WRONG)),
        Scripted(script=(WRONG, WRONG, SURELY_RIGHT, WRONG)),
    )
    model = Loca(base=base, global_model=whole, alpha=0.0, stopping=stopping, **FOR_EVERYBODY)
    chosen = model.fit(split.train, validation=split.validation).selected()
    assert (model.base.epochs, model.local_epochs_) == (4, 2)
    assert (chosen.base.epochs, chosen.global_model.epochs, chosen.alpha) == (2, 3, 0.0)
    histories = split.test.history_matrix
    scores = chosen.fit(split.train_and_validation).score(histories)
    np.testing.assert_allclose(scores, np.tile(RIGHT, (histories.shape[0], 1)), atol=1e-6)


@pytest.mark.parametrize(
    ("alpha", "epochs"), [("validation", 2), ("paper", 2), (0.0, 2), (0.5, 1)], ids=str
)
def test_local_epochs_are_judged_without_a_share_of_the_global_model_that_is_still_to_be_chosen(
    alpha: float | str, epochs: int
) -> None:
    split = scripted_split()
    # After one epoch local models are wrong, but with half of the global model's answer they would pass for right.
    base, whole = Scripted(script=(WRONG, RIGHT)), Scripted(script=(SURELY_RIGHT,))
    model = Loca(base=base, global_model=whole, alpha=alpha, **FOR_EVERYBODY)
    model.fit(split.train, validation=split.validation)
    assert model.local_epochs_ == epochs


def test_users_can_be_embedded_by_another_model(planted_split: Split) -> None:
    model = small_loca(embedding=small_vae()).fit(
        planted_split.train, validation=planted_split.validation
    )
    assert model.embed(planted_split.test.history_matrix[:3]).shape == (3, 8)
    assert model.selected().embedding.epochs == model.embedder_.best_epoch_
    assert model.embedder_ is not model.global_
    own = Loca(base=small_vae(epochs=1), anchors=2).fit(planted_split.train)
    assert own.embedder_ is own.global_


def test_local_eases_are_kept_dense_where_that_takes_no_more_than_their_bytes(
    planted_split: Split,
) -> None:
    kept = {
        (engine, size): type(
            small_loca(engine=engine, local_bytes=size).fit(planted_split.train).locals_
        ).__name__
        for engine in ("auto", "stacked", "one_by_one")
        for size in (4 * 60**2, 4 * 60**2 - 1)
    }
    small, large = 4 * 60**2 - 1, 4 * 60**2
    assert (
        kept["auto", large]
        == kept["one_by_one", small]
        == kept["one_by_one", large]
        == "SeparateModels"
    )
    assert (
        kept["auto", small] == kept["stacked", small] == kept["stacked", large] == "EaseDifferences"
    )


def test_a_base_without_an_encoder_is_embedded_by_an_svd(planted_split: Split) -> None:
    assert isinstance(small_loca(embedding=None).fit(planted_split.train).embedder_, TruncatedSVD)


def test_user_weights_reach_the_local_models(planted_split: Split) -> None:
    matrix = planted_split.train.matrix()
    times = np.random.default_rng(0).integers(1, 3, matrix.shape[0])
    model = small_loca().fit(matrix, user_weights=times)
    together = times * model.communities_.train_weights(model.embed(matrix), 2)
    alone = EASE(l2=20.0).fit(matrix, user_weights=together * times.sum() / together.sum())
    np.testing.assert_allclose(model.locals_.score_with(2, matrix), alone.score(matrix), atol=1e-5)


def test_an_explanation_adds_up_and_names_what_each_community_says(planted_split: Split) -> None:
    model = small_loca(alpha=0.3).fit(planted_split.train)
    covered = model.communities_.answer_weights(model.embed(planted_split.test.history_matrix))
    user = int(np.argmax(np.diff(covered.indptr)))
    history = csr_array(planted_split.test.history_matrix[[user]])
    explanation = model.explain(history, n=5)
    inside = explanation.sources
    assert isinstance(inside, AnswersOfCommunities)
    assert sum(part.weight for part in inside.communities) + inside.alpha == pytest.approx(1)
    assert [part.weight for part in inside.communities] == sorted(
        (part.weight for part in inside.communities), reverse=True
    )
    for part in inside.communities:
        expected, _ = rank_top_n(model.locals_.score_with(part.community, history), history, 5)
        np.testing.assert_array_equal(part.items, expected[0])
        assert (
            part.anchor
            == model.train_data_.users.ids([model.communities_.anchors[part.community]])[0]
        )
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
    numbers = [one.community for group in inside.groups for one in group.communities]
    assert sorted(numbers) == sorted(one.community for one in inside.communities)
    assert sum(group.weight for group in inside.groups) + inside.alpha == pytest.approx(1)


def test_a_likely_community_is_explained_by_its_membership_and_a_name_of_its_own(
    planted_split: Split,
) -> None:
    model = Loca(base=EASE(l2=20.0), communities="mixture", anchors=8, mixtures=2).fit(
        planted_split.train
    )
    history = csr_array(planted_split.test.history_matrix[[3]])
    explanation = model.explain(history, n=2)
    inside = explanation.sources
    assert isinstance(inside, AnswersOfCommunities)
    assert len(inside.communities) == 8
    memberships = np.exp(model.embed(history)[0])
    for one in inside.communities:
        assert one.membership == pytest.approx(memberships[one.community])
        assert one.mixture == one.community // 4
    for mixture in range(2):
        parts = [one.membership for one in inside.communities if one.mixture == mixture]
        assert sum(parts) == pytest.approx(1, abs=1e-5)
    names = [frozenset(one) for one in inside.naming_items.values()]
    assert len(set(names)) == 8
    assert all(len(one) == 3 for one in names)
    assert " around " not in str(explanation)
    assert max(map(len, str(explanation).splitlines())) <= 100


def test_locality_is_the_effective_share_of_users_and_how_many_communities_answer(
    planted_split: Split,
) -> None:
    model = small_loca(alpha=0.3).fit(planted_split.train)
    embeddings = model.embed(planted_split.train.histories())
    shares = []
    for community in range(model.anchors):
        t = model.communities_.train_weights(embeddings, community).astype(np.float64)
        shares.append(t.sum() ** 2 / (t**2).sum() / len(t))
    answering = (model.communities_.answer_weights(embeddings).toarray() > 0).sum(axis=1)
    assert model.locality_.alpha == 0.3
    assert model.locality_.effective_share == pytest.approx(np.mean(shares), rel=1e-5)
    assert model.locality_.answering == pytest.approx(answering.mean())
    everybody = (
        small_loca(train_bandwidth=100.0, answer_bandwidth=100.0).fit(planted_split.train).locality_
    )
    assert everybody.effective_share == pytest.approx(1, abs=1e-3)
    assert everybody.answering == model.anchors


def test_locality_is_saved_and_a_model_that_was_saved_without_it_still_loads(
    planted_split: Split, tmp_path: Path
) -> None:
    model = small_loca().fit(planted_split.train)
    model.save(tmp_path / "m")
    assert loca.load(tmp_path / "m").locality_ == model.locality_
    state = model.state()
    older = replace(
        state, facts={name: value for name, value in state.facts.items() if name != "locality"}
    )
    assert Loca.restore(get_params(model), older).locality_ is None
    for wrong in (3, {"effective_share": 0.5}, {"effective_share": -1.0, "answering": 2.0}):
        with pytest.raises(ModelFileError, match="figures of its locality"):
            Loca.restore(
                get_params(model), replace(state, facts={**state.facts, "locality": wrong})
            )


def test_an_uncovered_history_is_explained_by_the_global_model(planted_split: Split) -> None:
    model = small_loca(anchors=1, answer_bandwidth=0.05).fit(planted_split.train.matrix())
    covered = (
        np.diff(
            model.communities_.answer_weights(model.embed(planted_split.test.history_matrix)).indptr
        )
        > 0
    )
    user = int(np.argmin(covered))
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
        model = small_loca(anchors=20, anchor_selection=selection).fit(csr_array(matrix))
        assert model.communities_.anchors.min() >= 300


def test_a_community_whose_users_all_weigh_nothing_is_refused(planted_split: Split) -> None:
    weights = np.zeros(400)
    weights[0] = 1
    with pytest.raises(DataError, match="a community has no user with a weight above 0"):
        small_loca(train_bandwidth=0.01).fit(planted_split.train, user_weights=weights)


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


def test_blending_asks_each_model_only_for_its_members() -> None:
    asked = {}

    def score_with(community: int, histories: csr_array) -> torch.Tensor:
        asked[community] = histories.toarray().tolist()
        return torch.full(histories.shape, community + 1.0)

    histories = csr_array(np.eye(3, dtype=np.float32))
    weights = csr_array(np.array([[1.0, 3.0, 0], [0, 2.0, 0], [0, 0, 0]], np.float32))
    blended = blend_local(histories, weights, score_with)
    assert asked == {0: [[1, 0, 0]], 1: [[1, 0, 0], [0, 1, 0]]}
    assert blended[:, 0].tolist() == [(1 * 1 + 3 * 2) / 4, 2, 0]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"alpha": 1.5}, "alpha: expected a number from 0 to 1"),
        ({"alpha": "test"}, "alpha: expected a number from 0 to 1"),
        ({"stopping": "never"}, "stopping: expected"),
        ({"anchors": 0}, "anchors: expected a whole number ≥ 1"),
        ({"anchor_selection": "covrage"}, "did you mean 'coverage'"),
        ({"train_bandwidth": 0}, "train_bandwidth: expected a number above 0"),
        ({"answer_bandwidth": -1.0}, "answer_bandwidth: expected a number above 0"),
        ({"kernel": "gauss"}, "unknown kernel 'gauss'"),
    ],
)
def test_impossible_parameters_are_refused_when_the_model_is_made(
    wrong: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        small_loca(**wrong)


def test_more_anchors_than_users_are_refused_before_anything_is_trained(
    planted_split: Split,
) -> None:
    with pytest.raises(DataError, match="401 were requested, there are only 400 users"):
        small_loca(anchors=401).fit(planted_split.train)


def test_models_that_do_not_fit_into_memory_are_refused(
    planted_split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loca.memory.available_bytes", lambda: 50_000)
    with pytest.raises(
        DataError,
        match="local models: 6 models: 72 kB of memory needed, 50 kB are free; take fewer or smaller models",
    ):
        small_loca(engine="one_by_one").fit(planted_split.train)
    with pytest.raises(DataError, match=r"local models: 3 models: .* take fewer"):
        Loca(base=small_vae(), anchors=3).fit(planted_split.train)


def test_a_state_that_does_not_fit_together_is_refused(planted_split: Split) -> None:
    model = small_loca(engine="stacked").fit(planted_split.train)
    five = small_loca(engine="stacked", anchors=5).fit(planted_split.train)
    seven = csr_array(np.eye(7, dtype=np.float32))
    state = model.state()
    params = {"base": EASE()}
    broken = [
        (
            {"parts": {name: part for name, part in state.parts.items() if name != "local models"}},
            "and local models",
        ),
        (
            {"parts": dict(state.parts) | {"local models": five.state().parts["local models"]}},
            "expected 6 local models",
        ),
        ({"parts": dict(state.parts) | {"centre": SVD}}, "expected an EASE"),
        ({"parts": dict(state.parts) | {"more": EASE()}}, "expected a global and local models"),
        ({"arrays": dict(state.arrays) | {"members": np.zeros(2)}}, "do not fit 6 communities"),
        ({"arrays": dict(state.arrays) | {"anchors": np.zeros(2)}}, "do not fit"),
        ({"arrays": dict(state.arrays) | {"anchor_embeddings": np.full((6, 8), np.nan)}}, "NaN"),
        ({"facts": dict(state.facts) | {"alpha": 7}}, "alpha from 0 to 1"),
        ({"facts": dict(state.facts) | {"kernel": "x"}}, "unknown kernel"),
        ({"parts": dict(state.parts) | {"embedder": EASE()}}, "cannot embed"),
        ({"parts": dict(state.parts) | {"global": SVD}}, "not a recommender"),
        (
            {
                "parts": dict(state.parts)
                | {"global": Popularity().fit(csr_array(np.eye(7, dtype=np.float32)))}
            },
            "EASE",
        ),
        (
            {
                "parts": dict(state.parts)
                | {"local models": SeparateModels.of([Popularity().fit(seven)] * 6)}
            },
            "score the same",
        ),
        (
            {"arrays": dict(state.arrays) | {"distinctive_items": np.full((6, 20), 60, np.int32)}},
            "score the same",
        ),
        (
            {"arrays": dict(state.arrays) | {"distinctive_items": np.full((6, 20), -1, np.int32)}},
            "a row below 0",
        ),
        (
            {"arrays": dict(state.arrays) | {"anchor_embeddings": np.ones((6, 3), np.float32)}},
            "gives 8 dimensions",
        ),
    ]
    for change, message in broken:
        parts = {"arrays": state.arrays, "facts": state.facts, "parts": state.parts} | change
        with pytest.raises(ModelFileError, match=message):
            Loca.restore(params, ModelState(**parts))


def test_an_ensemble_answers_with_the_mean(planted_split: Split) -> None:
    histories = planted_split.test.history_matrix[:10]
    model = Ensemble(base=small_vae(epochs=2), models=3).fit(planted_split.train)
    each = [model.models_.score_with(number, histories) for number in range(3)]
    np.testing.assert_allclose(model.score(histories), np.mean(each, axis=0), atol=1e-5)
    assert np.abs(each[0] - each[1]).max() > 1e-3


@pytest.mark.parametrize("engine", ["one_by_one", "stacked"])
def test_an_ensemble_of_a_base_without_randomness_learns_from_bootstrap_samples(
    planted_split: Split, engine: str
) -> None:
    matrix = planted_split.train.matrix()
    model = Ensemble(base=EASE(l2=20.0), models=3, seed=4, engine=engine).fit(planted_split.train)
    each = [model.models_.score_with(number, matrix) for number in range(3)]
    assert np.abs(each[0] - each[1]).max() > 1e-3
    whole = EASE(l2=20.0).fit(planted_split.train).score(matrix)
    assert np.abs(np.mean(each, axis=0) - whole).mean() < np.abs(each[0] - whole).mean()


def test_an_ensemble_stops_where_its_mean_is_best(planted_split: Split) -> None:
    model = Ensemble(base=small_vae(), models=2).fit(
        planted_split.train, validation=planted_split.validation
    )
    assert model.selected().base.epochs == model.epochs_
    histories = planted_split.test.history_matrix[:10]
    np.testing.assert_allclose(
        model.selected().fit(planted_split.train).score(histories),
        model.score(histories),
        atol=1e-5,
    )


def test_the_chosen_ensemble_has_the_epochs_of_validation_and_not_those_it_was_given() -> None:
    split = scripted_split()
    model = Ensemble(base=Scripted(script=(WRONG, RIGHT, WRONG, WRONG)), models=2)
    model.fit(split.train, validation=split.validation)
    assert (model.base.epochs, model.epochs_, model.selected().base.epochs) == (4, 2, 2)


def test_a_wrong_ensemble_is_refused(planted_split: Split) -> None:
    with pytest.raises(ConfigError, match="models: expected a whole number ≥ 1"):
        Ensemble(base=EASE(), models=0)
    for engine in ("one_by_one", "stacked"):
        state = Ensemble(base=EASE(), models=2, engine=engine).fit(planted_split.train).state()
        with pytest.raises(ModelFileError, match="ensemble: expected models, found more"):
            Ensemble.restore(
                {"base": EASE()}, ModelState(facts=state.facts, parts={"more": EASE()})
            )
    with pytest.raises(
        ModelFileError, match="expected an EASE or NextEASE that the local models differ from"
    ):
        Ensemble.restore(
            {"base": EASE()}, ModelState(facts=state.facts, parts={"models": state.parts["models"]})
        )


def test_separate_models_that_do_not_fit_together_are_refused() -> None:
    one, other = (Popularity().fit(csr_array(np.eye(size, dtype=np.float32))) for size in (3, 4))
    for parts, message in (
        ({}, "expected models named 'model 0'"),
        ({"model 1": one}, "expected models named 'model 0'"),
        ({"model 0": SVD}, "not a recommender"),
        ({"model 0": one, "model 1": other}, "different numbers of items"),
    ):
        with pytest.raises(ModelFileError, match=message):
            SeparateModels.restore({}, ModelState(parts=parts))


def test_the_default_number_of_communities_is_capped_by_the_users_and_a_requested_one_is_refused() -> (
    None
):
    data = loca.planted_communities(
        users=30, items=20, groups=4, history=8, shortest_history=6
    ).interactions
    model = Loca(base=EASE()).fit(data)
    assert (model.anchors, len(model.communities_), len(model.members_)) == (40, 30, 30)
    assert model.truncate(30) is model
    with pytest.raises(DataError, match="anchors: 41 were requested, there are only 30 users"):
        Loca(base=EASE(), anchors=41).fit(data)


def test_another_global_share_blends_anew_and_leaves_the_model_as_it_was(
    planted_split: Split,
) -> None:
    model = small_loca(alpha=0.25).fit(planted_split.train)
    histories = planted_split.test.history_matrix[:30]
    before, whole_model = model.score(histories), model.global_.score(histories)
    assert np.array_equal(model.with_global_share(0.25).score(histories), before)
    assert np.allclose(model.with_global_share(1).score(histories), whole_model, atol=1e-6)
    halfway = (model.with_global_share(0).score(histories) + whole_model) / 2
    other = model.with_global_share(0.5)
    assert np.allclose(other.score(histories), halfway, atol=1e-6)
    assert (other.alpha_, other.locality_.alpha) == (0.5, 0.5)
    assert (model.alpha_, model.locality_.alpha) == (0.25, 0.25)
    assert np.array_equal(model.score(histories), before)
    for wrong in (-0.1, 1.5, float("nan"), True, "0.5"):
        with pytest.raises(ConfigError, match="global share: expected a number from 0 to 1"):
            model.with_global_share(wrong)  # type: ignore[arg-type]
    with pytest.raises(NotFittedError):
        small_loca().with_global_share(0.5)
