"""Communities by likelihood: who teaches and who answers, and what a file of them may hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import loca
from changed_states import changed
from loca.communities.mixture import MixtureCommunities, Mixtures
from loca.communities.multinomial_mixture import MultinomialMixture
from loca.data.splits import Split
from loca.errors import ConfigError, DataError, ModelFileError
from loca.models.ease import EASE
from loca.models.recommender import TrainingData
from loca.persistence.learned import restored, state_of
from loca.typing import FloatArray


def communities_of(
    memberships: list[list[float]], mixtures: int = 1, **changes: Any
) -> MixtureCommunities:
    """Return communities of users with these memberships."""
    rows = np.array(memberships, np.float32)
    n = rows.shape[1]
    params: dict[str, Any] = {
        "membership_weight": 0.5,
        "temperature": 1.0,
        "top_k": 16,
        "shared_epochs": 0,
    }
    return MixtureCommunities(
        mixture=MultinomialMixture(components=n // mixtures, mixtures=mixtures),
        anchors=rows.argmax(axis=0),
        mean_memberships=rows.mean(axis=0),
        **(params | changes),
    )


def positions_of(memberships: list[list[float]]) -> FloatArray:
    return np.log(np.array(memberships, np.float32))


def test_a_member_weighs_more_when_its_community_is_trained_and_nobody_nothing() -> None:
    rows = [[0.9, 0.1], [0.5, 0.5], [0.1, 0.9]]
    communities = communities_of(rows, membership_weight=0.8)
    np.testing.assert_allclose(communities.mean_memberships, [0.5, 0.5], rtol=1e-6)
    np.testing.assert_allclose(
        communities.train_weights(positions_of(rows), 0),
        [0.2 + 0.8 * membership / 0.5 for membership in (0.9, 0.5, 0.1)],
        rtol=1e-5,
    )
    rows = [[1.0, 1e-30], [1e-30, 1.0]]
    members_alone = communities_of(rows, membership_weight=1.0)
    assert (members_alone.train_weights(positions_of(rows), 0) > 0).all()


def test_a_temperature_flattens_answers_and_each_mixture_has_the_same_share() -> None:
    rows = [[0.9, 0.1, 0.6, 0.4]]
    positions = positions_of(rows)
    for changes, expected in (
        ({}, [0.45, 0.05, 0.3, 0.2]),
        ({"temperature": 1e6}, [0.25, 0.25, 0.25, 0.25]),
        ({"top_k": 2}, [0.6, 0, 0.4, 0]),
    ):
        communities = communities_of(rows, mixtures=2, **changes)
        weights = communities.answer_weights(positions).toarray()[0]
        np.testing.assert_allclose(weights, expected, rtol=1e-4)


def test_the_rows_of_answer_weights_sum_to_1(grouped_split: Split) -> None:
    model = loca.Loca(base=EASE(), communities=Mixtures(n=6, mixtures=2, top_k=3))
    model.fit(grouped_split.train)
    weights = model.answer_weights(grouped_split.test.history_matrix)
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-5)
    assert np.diff(weights.indptr).max() == 3


def test_a_tiny_temperature_gives_numbers() -> None:
    rows = [[0.9, 0.1]]
    weights = communities_of(rows, temperature=1e-300).answer_weights(positions_of(rows))
    np.testing.assert_array_equal(weights.toarray(), [[1, 0]])


def test_a_temperature_that_is_still_to_be_chosen_is_high_while_models_learn() -> None:
    rows = [[0.99, 0.01]]
    communities = communities_of(rows, temperature=None)
    assert communities.while_learning().temperature == 16
    assert [other.temperature for other in communities.alternatives()] == [
        *(1.0, 2.0, 4.0, 8.0, 16.0, 64.0, 1024.0)
    ]
    given = communities_of(rows, temperature=3.0)
    assert given.while_learning() is given
    assert list(given.alternatives()) == [given]


def test_positions_of_other_communities_are_refused() -> None:
    with pytest.raises(DataError, match="expected 2 communities"):
        communities_of([[0.9, 0.1], [0.5, 0.5]]).answer_weights(np.zeros((1, 3), np.float32))


def test_sizes_count_users_by_their_weights(grouped_split: Split) -> None:
    weights = np.random.default_rng(0).integers(0, 4, grouped_split.train.n_users)
    data = TrainingData.of(grouped_split.train, weights, "cpu")
    communities = Mixtures(n=4).find(data, base=EASE(), global_model=EASE(), seed=0)
    memberships = np.exp(communities.locate(data.histories))
    expected = np.repeat(memberships, weights, axis=0).mean(axis=0)
    np.testing.assert_allclose(communities.mean_memberships, expected, rtol=1e-4)
    assert (weights[communities.anchors] > 0).all()


def test_networks_learn_more_from_members_than_solved_models(grouped_split: Split) -> None:
    data = TrainingData.of(grouped_split.train, device="cpu")
    for base, weight in ((EASE(), 0.5), (loca.MultVAE(epochs=3), 0.8)):
        global_model = EASE()
        communities = Mixtures(n=4).find(data, base=base, global_model=global_model, seed=0)
        assert communities.membership_weight == weight


def test_shared_epochs_leave_some_for_communities(grouped_split: Split) -> None:
    model = loca.Loca(
        base=loca.MultVAE(latent=8, epochs=12), communities=Mixtures(n=4, shared_epochs=12)
    )
    with pytest.raises(ConfigError, match="shared_epochs: expected fewer than epochs, 12, found"):
        model.fit(grouped_split.train)


def test_impossible_parameters_are_refused() -> None:
    for wrong, message in (
        ({"n": 3, "mixtures": 4}, "mixtures: expected at most as many as communities, 3, found 4"),
        ({"membership_weight": 1.5}, "membership_weight: expected a number from 0 to 1 or none"),
        ({"temperature": 0.0}, "temperature: expected a number above 0 or none"),
        ({"top_k": 0}, "top_k: expected a whole number ≥ 1"),
        ({"shared_epochs": -1}, "shared_epochs: expected a whole number ≥ 0 or none"),
    ):
        with pytest.raises(ConfigError, match=message):
            Mixtures(**wrong)


def test_a_file_of_communities_that_do_not_fit_is_refused(grouped_split: Split) -> None:
    data = TrainingData.of(grouped_split.train, device="cpu")
    finder = Mixtures(n=4, temperature=2.0)
    state = state_of(finder.find(data, base=EASE(), global_model=EASE(), seed=0))
    assert restored(MixtureCommunities, {}, state).facts()["membership_weight"] == 0.5
    faults: list[tuple[str, dict[str, Any]]] = [
        ("anchors is missing", {"anchors": None}),
        ("anchors: expected shape .* of int64", {"anchors": np.zeros(4, np.float32)}),
        ("an anchor has a row below 0", {"anchors": np.array([0, 1, 2, -1])}),
        (
            "mean_memberships: expected numbers of at least 0",
            {"mean_memberships": -np.ones(4, np.float32)},
        ),
        ("mean_memberships: expected shape", {"mean_memberships": np.ones(3, np.float32)}),
        ("temperature: expected a number above 0", {"temperature": float("inf")}),
        ("temperature: expected a number above 0", {"temperature": 0.0}),
        ("membership_weight is missing", {"membership_weight": None}),
        ("top_k: expected a whole number ≥ 1", {"top_k": 0}),
        ("mixture: expected a MultinomialMixture", {"mixture": EASE()}),
    ]
    for message, change in faults:
        with pytest.raises(ModelFileError, match=message):
            restored(MixtureCommunities, {}, changed(state, change))
    fewer = finder.with_n(2).find(data, base=EASE(), global_model=EASE(), seed=0)
    with pytest.raises(ModelFileError, match=r"anchors: expected shape \(2"):
        restored(MixtureCommunities, {}, changed(state, {"mixture": fewer.mixture}))


def test_no_history_at_all_has_the_sizes_of_the_communities(grouped_split: Split) -> None:
    data = TrainingData.of(grouped_split.train, device="cpu")
    communities = Mixtures(n=4).find(data, base=EASE(), global_model=EASE(), seed=0)
    nobody = csr_array(np.zeros((1, 80), np.float32))
    expected = communities.mixture.log_proportions_
    np.testing.assert_allclose(communities.locate(nobody)[0], expected, atol=1e-5)
