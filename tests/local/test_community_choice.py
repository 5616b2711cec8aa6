"""Which communities a Loca has: random groups, the choice of a form and of a temperature, and the dealt control."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

import loca
from loca.communities.communities import (
    MixtureCommunities,
    mixture_communities,
    restore_communities,
)
from loca.communities.mixture import DealtMixture, RandomGroups
from loca.data.splits import Split
from loca.errors import ConfigError, DataError
from loca.local.community_choice import flattest, is_surely_above
from loca.models.recommender import clone
from loca.persistence.manifest import ModelState

VAE = {"latent": 8, "epochs": 12, "patience": 4, "evaluate_every": 2, "learning_rate": 5e-3}


@pytest.fixture(scope="module")
def grouped() -> Split:
    """Users of four communities that like different items, and nothing else."""
    rng, users, items = np.random.default_rng(0), 400, 80
    groups = rng.integers(0, 4, users)
    tastes = np.where(np.arange(items) % 4 == groups[:, None], 3.0, 0.0) + rng.gumbel(
        size=(users, items)
    )
    # Inside a community items are alike: only who belongs to it knows what comes next.
    drawn = np.argsort(-tastes, axis=1)[:, :14]
    data = loca.Interactions.from_matrix(
        csr_array((np.ones(drawn.size), drawn.ravel(), np.arange(0, users * 14 + 1, 14)))
    )
    return loca.leave_last_out(data, test=3, validation=3)


def memberships(rows: list[list[float]], mixtures: int = 1, **more: float) -> MixtureCommunities:
    given = {"focus": 0.5, "temperature": 1.0, "answering": 16} | more
    return mixture_communities(np.log(np.array(rows, np.float32)), mixtures=mixtures, **given)


def test_a_member_weighs_more_when_its_community_is_trained_and_nobody_nothing() -> None:
    rows = [[0.9, 0.1], [0.5, 0.5], [0.1, 0.9]]
    found = memberships(rows, focus=0.8)
    np.testing.assert_allclose(found.sizes, [0.5, 0.5], rtol=1e-6)
    np.testing.assert_allclose(
        found.train_weights(np.log(rows), 0), [0.2 + 0.8 * one / 0.5 for one in (0.9, 0.5, 0.1)]
    )
    alone = memberships([[1.0, 1e-30], [1e-30, 1.0]], focus=1.0)
    assert (alone.train_weights(np.log(np.array([[1.0, 1e-30], [1e-30, 1.0]])), 0) > 0).all()


def test_a_temperature_flattens_answers_and_each_mixture_has_the_same_share() -> None:
    rows = np.log(np.array([[0.9, 0.1, 0.6, 0.4]]))
    sharp = memberships([[0.9, 0.1, 0.6, 0.4]], mixtures=2).answer_weights(rows).toarray()[0]
    np.testing.assert_allclose(sharp, [0.45, 0.05, 0.3, 0.2], rtol=1e-5)
    flat = (
        memberships([[0.9, 0.1, 0.6, 0.4]], mixtures=2, temperature=1e6)
        .answer_weights(rows)
        .toarray()[0]
    )
    np.testing.assert_allclose(flat, 0.25, rtol=1e-4)
    few = (
        memberships([[0.9, 0.1, 0.6, 0.4]], mixtures=2, answering=2)
        .answer_weights(rows)
        .toarray()[0]
    )
    np.testing.assert_allclose(few, [0.6, 0, 0.4, 0], rtol=1e-5)


def test_communities_of_other_sizes_are_refused() -> None:
    found = memberships([[0.9, 0.1], [0.5, 0.5]])
    with pytest.raises(DataError, match="expected 2 communities"):
        found.answer_weights(np.zeros((1, 3)))
    with pytest.raises(DataError, match="do not fit 2 mixtures"):
        replace(found, anchors=np.zeros(3, np.int64), sizes=np.ones(3, np.float32), mixtures=2)
    with pytest.raises(DataError, match="temperature above 0"):
        replace(found, temperature=0.0)


@given(
    st.integers(1, 5),
    st.integers(1, 3),
    st.lists(st.integers(0, 9), min_size=1, max_size=6, unique=True),
)
def test_a_random_group_follows_from_the_items_alone(
    components: int, mixtures: int, items: list[int]
) -> None:
    groups = RandomGroups(components=components, mixtures=mixtures).fit(
        csr_array(np.ones((2, 10), np.float32))
    )
    row = np.zeros((1, 10), np.float32)
    row[0, items] = 1
    found = groups.embed(csr_array(np.concatenate([row, 5 * row])))
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_allclose(np.exp(found).reshape(2, mixtures, -1).sum(axis=2), 1, rtol=1e-5)


def test_random_groups_are_as_large_as_each_other(planted_split: Split) -> None:
    groups = RandomGroups(components=4).fit(planted_split.train)
    sizes = np.bincount(groups.embed(planted_split.train.histories()).argmax(axis=1), minlength=4)
    expected = planted_split.train.n_users / 4
    assert (np.abs(sizes - expected) < 4 * np.sqrt(expected)).all()


def test_dealt_memberships_are_those_of_the_mixture_for_other_users(grouped: Split) -> None:
    settings = {"components": 4, "seed": 3}
    histories = grouped.train.histories()
    plain = loca.MultinomialMixture(**settings).fit(grouped.train, device="cpu").embed(histories)
    control = DealtMixture(**settings).fit(grouped.train, device="cpu")
    dealt = control.embed(histories)
    assert sorted(map(tuple, plain.tolist())) == sorted(map(tuple, dealt.tolist()))
    assert (plain.argmax(axis=1) == dealt.argmax(axis=1)).mean() < 0.5
    # A user who has taken more items is still the same user.
    longer = grouped.train_and_validation.histories()
    assert (control.embed(longer) == dealt).all(axis=1).mean() > 0.95
    np.testing.assert_array_equal(
        control.embed(csr_array((1, histories.shape[1]), dtype=np.float32))[0], control.log_sizes_
    )


def test_a_gain_is_sure_where_it_exceeds_chance() -> None:
    rng = np.random.default_rng(0)
    values = rng.random(1000)
    noise = rng.normal(size=1000)
    assert is_surely_above(values + 0.1 * noise + 0.02, values)
    assert not is_surely_above(values + 0.1 * noise - 0.1 * noise.mean() + 0.001, values)
    assert not is_surely_above(values, values)


def test_the_flattest_of_the_best_answers_is_taken() -> None:
    rng = np.random.default_rng(0)
    best = rng.random(1000)
    as_good, worse = best + 0.01 * rng.normal(size=1000) - 0.0001, best - 0.05
    assert flattest([worse, best, as_good, worse]) == 2
    assert flattest([worse, worse, worse]) == 2


def test_solved_models_have_the_temperature_of_the_best_validation_score(
    planted_split: Split,
) -> None:
    held_out, scores = planted_split.validation, {}
    base = loca.Loca(
        base=loca.EASE(l2=20.0), communities="mixture", anchors=4, mixtures=1, alpha=0.0
    )
    for one in (1.0, 4.0, 16.0, 1024.0, "validation"):
        model = clone(base, temperature=one).fit(planted_split.train, validation=held_out)
        scores[one] = float(loca.evaluate(model, held_out).values["ndcg@100"].mean())
    assert scores["validation"] >= max(scores.values())
    assert scores["validation"] > scores[1024.0]


def test_communities_are_found_where_they_earn() -> None:
    split = loca.leave_last_out(
        loca.planted_communities(users=1500).interactions, test=5, validation=2
    )
    base = loca.EASE(l2=300.0)
    model = loca.Loca(base=base, communities="auto", anchors=8).fit(
        split.train, validation=split.validation
    )
    assert model.alpha_ < 0.5
    reached, alone = (
        loca.evaluate(one, split.test, at=[100]).means()["ndcg@100"]
        for one in (model, model.global_)
    )
    assert reached > 1.04 * alone
    again = model.selected().fit(split.train, validation=split.validation)
    np.testing.assert_array_equal(
        again.score(split.test.history_matrix), model.score(split.test.history_matrix)
    )


def test_a_given_alpha_is_left_alone_and_a_chosen_one_is_1_where_nothing_is_earned() -> None:
    rng = np.random.default_rng(0)
    drawn = np.argsort(rng.random((200, 40)), axis=1)[:, :12]
    data = loca.Interactions.from_matrix(
        csr_array((np.ones(drawn.size), drawn.ravel(), np.arange(0, 2401, 12)))
    )
    split = loca.leave_last_out(data, test=2, validation=2)
    model = loca.Loca(base=loca.EASE(l2=50.0), communities="auto", anchors=4)
    assert model.fit(split.train, validation=split.validation).alpha_ == 1.0
    given = clone(model, alpha=0.3).fit(split.train, validation=split.validation)
    assert given.alpha_ == 0.3


def test_without_a_focus_the_local_networks_are_an_ensemble(grouped: Split) -> None:
    base = loca.MultVAE(**VAE)
    ensemble = loca.Ensemble(base=base, models=4).fit(grouped.train, validation=grouped.validation)
    settings = {
        "anchors": 4,
        "mixtures": 2,
        "focus": 0.0,
        "temperature": 1e6,
        "shared_epochs": 0,
        "alpha": 0.0,
    }
    model = loca.Loca(base=base, communities="mixture", **settings).fit(
        grouped.train, validation=grouped.validation
    )
    assert model.local_epochs_ == ensemble.epochs_
    histories = grouped.test.history_matrix
    np.testing.assert_allclose(
        model.score(histories), ensemble.score(histories), rtol=1e-4, atol=1e-4
    )


def test_networks_share_the_epochs_of_the_global_model_and_then_differ(grouped: Split) -> None:
    base = loca.MultVAE(**VAE)
    model = loca.Loca(base=base, communities="mixture", anchors=4).fit(
        grouped.train, validation=grouped.validation
    )
    assert model.shared_epochs_ == min(model.global_.best_epoch_, 8)
    assert model.local_epochs_ > model.shared_epochs_
    refit = model.selected()
    assert (refit.shared_epochs, refit.base.epochs) == (model.shared_epochs_, model.local_epochs_)


def test_auto_over_networks_gives_one_kind_that_is_saved_and_loaded(
    grouped: Split, tmp_path: Path
) -> None:
    model = loca.Loca(base=loca.MultVAE(**VAE), communities="auto", anchors=4)
    model.fit(grouped.train, validation=grouped.validation).save(tmp_path / "auto")
    loaded = loca.load(tmp_path / "auto", verify=True)
    histories = grouped.test.history_matrix
    np.testing.assert_array_equal(loaded.score(histories), model.score(histories))
    kinds = model.selected().communities, loaded.selected().communities
    assert kinds[0] == kinds[1] != "auto"


def test_what_is_not_local_is_not_explained_by_communities(grouped: Split) -> None:
    drawn = loca.Loca(base=loca.EASE(l2=50.0), communities="random", anchors=4).fit(grouped.train)
    assert "Answered by 4 models alike, of groups of users drawn at random." in str(
        drawn.explain(0)
    )
    alone = loca.Loca(base=loca.EASE(l2=50.0), communities="mixture", anchors=4, alpha=1.0).fit(
        grouped.train
    )
    assert "Communities earned nothing here: the global model answers alone." in str(
        alone.explain(0)
    )
    whole = loca.EASE(l2=50.0).fit(grouped.train)
    np.testing.assert_array_equal(
        alone.score(grouped.test.history_matrix), whole.score(grouped.test.history_matrix)
    )


def test_a_file_of_communities_that_do_not_fit_is_refused() -> None:
    state = memberships([[0.9, 0.1], [0.5, 0.5]]).state()
    assert restore_communities(state).facts()["focus"] == 0.5
    faults: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "the array anchors is missing": ({"anchors": None}, {"anchors": [0, 1]}),
        "expected whole numbers as anchors": ({"anchors": np.zeros(2, np.float32)}, {}),
        "32-bit sizes of at least 0": ({"sizes": -np.ones(2, np.float32)}, {}),
        "finite numbers": ({}, {"temperature": float("inf")}),
        "focus is missing": ({}, {"focus": None}),
    }
    for fault, (arrays, facts) in faults.items():
        changed = {**state.arrays, **arrays}, {**state.facts, **facts}
        parts = [{name: one for name, one in some.items() if one is not None} for some in changed]
        with pytest.raises(DataError, match=fault):
            restore_communities(ModelState(*parts))


def test_a_tiny_temperature_gives_numbers() -> None:
    found = memberships([[0.9, 0.1]], temperature=1e-300).answer_weights(
        np.log(np.array([[0.9, 0.1]], np.float32))
    )
    np.testing.assert_array_equal(found.toarray(), [[1, 0]])


def test_shared_epochs_leave_some_for_communities(grouped: Split) -> None:
    model = loca.Loca(base=loca.MultVAE(**VAE), communities="mixture", anchors=4, shared_epochs=12)
    with pytest.raises(
        ConfigError, match="shared_epochs: expected fewer than epochs, 12, found 12"
    ):
        model.fit(grouped.train)


def test_a_few_users_without_popular_items_are_no_problem() -> None:
    rng = np.random.default_rng(0)
    rows = [[1399, 1398, 1397, 1396], *(rng.choice(1000, 40, replace=False) for _ in range(37))]
    offsets = np.cumsum([0, *map(len, rows)])
    values = np.ones(offsets[-1])
    data = loca.Interactions.from_matrix(
        csr_array((values, np.concatenate(rows), offsets), shape=(38, 1400))
    )
    split = loca.leave_last_out(data, test=1, validation=1)
    model = loca.Loca(base=loca.EASE(l2=50.0), communities="auto").fit(
        split.train, validation=split.validation
    )
    assert model.score(split.test.history_matrix).shape == (38, 1400)


def test_more_mixtures_than_communities_are_refused() -> None:
    with pytest.raises(
        ConfigError, match="mixtures: expected at most as many as anchors, 3, found 4"
    ):
        loca.Loca(base=loca.EASE(), communities="mixture", anchors=3, mixtures=4)
    with pytest.raises(
        ConfigError, match="communities: expected kernel, mixture, dealt, random or auto, found 'x'"
    ):
        loca.Loca(base=loca.EASE(), communities="x")
