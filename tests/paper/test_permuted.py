"""Permuted communities are the communities of a finder, for other users."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import loca
from loca.communities.finder import CommunityFinder
from loca.communities.geometry import Quantile
from loca.communities.kernel import Kernels
from loca.communities.mixture import Mixtures
from loca.communities.random_groups import RandomGroups
from loca.data.interactions import Interactions
from loca.data.splits import Split
from loca.errors import ConfigError, DataError, ModelFileError
from loca.local.combiner import FixedShare
from loca.local.loca import Loca
from loca.memory import DataSize
from loca.models.ease import EASE
from loca.models.mult_vae import MultVAE
from loca.models.popularity import Popularity
from loca.models.recommender import TrainingData, clone
from loca.paper.permuted import Permuted, PermutedCommunities, with_parameters
from loca.persistence.learned import restored, state_of
from loca.registry import load


@pytest.fixture(scope="module")
def grouped() -> Split:
    """Users of four communities that like different items, and nothing else."""
    rng = np.random.default_rng(0)
    n_users, n_items, n_taken = 400, 80, 14
    groups = rng.integers(0, 4, n_users)
    likes = np.where(np.arange(n_items) % 4 == groups[:, None], 3.0, 0.0)
    tastes = likes + rng.gumbel(size=(n_users, n_items))
    taken = np.argsort(-tastes, axis=1)[:, :n_taken]
    starts = np.arange(0, taken.size + 1, n_taken)
    matrix = csr_array((np.ones(taken.size), taken.ravel(), starts))
    return loca.leave_last_out(Interactions.from_matrix(matrix), test=3, validation=3)


def found_by(finder: CommunityFinder, split: Split, seed: int = 3) -> Any:
    data = TrainingData.of(split.train)
    base = EASE()
    global_model = Popularity().fit(split.train)
    return finder.find(data, base=base, global_model=global_model, seed=seed)


def rows_of(array: Any) -> list[tuple[float, ...]]:
    return sorted(map(tuple, np.asarray(array).tolist()))


def test_memberships_are_those_of_the_mixture_for_other_users(grouped: Split) -> None:
    finder = Mixtures(n=4, mixtures=1)
    histories = grouped.train.histories()
    plain = found_by(finder, grouped)
    permuted = found_by(Permuted(finder=finder), grouped)
    before, after = plain.locate(histories), permuted.locate(histories)
    assert rows_of(before) == rows_of(after)
    assert (before.argmax(axis=1) == after.argmax(axis=1)).mean() < 0.5
    assert len(permuted) == len(plain) == 4
    assert permuted.divisions == 1
    for name in ("answer_weights", "memberships"):
        weights = [getattr(communities, name) for communities in (plain, permuted)]
        assert rows_of(weights[0](before).toarray()) == rows_of(weights[1](after).toarray())
    for number in range(4):
        trained = [
            one.train_weights(at, number) for one, at in ((plain, before), (permuted, after))
        ]
        np.testing.assert_array_equal(np.sort(trained[0]), np.sort(trained[1]))
    sizes = [
        one.count_members(one.memberships(at)) for one, at in ((plain, before), (permuted, after))
    ]
    np.testing.assert_array_equal(*sizes)


def test_a_user_who_has_taken_more_is_still_the_same_user(grouped: Split) -> None:
    permuted = found_by(Permuted(finder=Mixtures(n=4, mixtures=1)), grouped)
    before = permuted.locate(grouped.train.histories())
    longer = permuted.locate(grouped.train_and_validation.histories())
    assert (before == longer).all(axis=1).mean() > 0.95


def test_an_empty_history_keeps_its_own_place(grouped: Split) -> None:
    permuted = found_by(Permuted(finder=Mixtures(n=4, mixtures=1)), grouped)
    nobody = csr_array((1, 80), dtype=np.float32)
    np.testing.assert_array_equal(permuted.locate(nobody), permuted.communities.locate(nobody))


def test_of_equally_similar_users_the_one_with_fewer_other_items_counts() -> None:
    known = csr_array(np.array([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0], [0, 0, 0, 1, 1]], np.float32))
    places = np.log(np.array([[0.7, 0.3], [0.4, 0.6], [0.1, 0.9]], np.float32))
    inner = Mixtures(n=2, mixtures=1).find(
        TrainingData.of(known), base=EASE(), global_model=EASE(), seed=0
    )
    permuted = PermutedCommunities(
        communities=inner,
        positions=places,
        known_items=known.indices.astype(np.int32),
        known_starts=known.indptr.astype(np.int64),
    )
    asked = csr_array(np.array([[1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [0, 0, 0, 0, 5]], np.float32))
    np.testing.assert_array_equal(permuted.locate(asked), places[[1, 0, 2]])


def test_the_anchor_is_whoever_has_the_place_of_the_surest_member(grouped: Split) -> None:
    plain = found_by(Mixtures(n=4, mixtures=1), grouped)
    permuted = found_by(Permuted(finder=Mixtures(n=4, mixtures=1)), grouped)
    positions = permuted.locate(grouped.train.histories())
    own = plain.locate(grouped.train.histories())
    np.testing.assert_array_equal(positions[permuted.anchors], own[plain.anchors])


@pytest.mark.parametrize(
    "finder",
    [Mixtures(n=6, mixtures=3), Kernels(n=3, answer_bandwidth=Quantile(0.3)), RandomGroups(n=4)],
    ids=["mixtures", "kernels", "groups"],
)
def test_communities_of_every_kind_can_be_permuted(finder: CommunityFinder, grouped: Split) -> None:
    histories = grouped.train.histories()
    plain, permuted = (found_by(one, grouped) for one in (finder, Permuted(finder=finder)))
    before, after = plain.locate(histories), permuted.locate(histories)
    assert rows_of(before) == rows_of(after)
    assert (before != after).any()
    assert permuted.facts() == plain.facts()
    assert (permuted.shared_epochs, permuted.seed_name) == (plain.shared_epochs, plain.seed_name)


def test_only_who_belongs_together_is_lost() -> None:
    """Where communities earn much, the same ones for other users earn nothing."""
    split = loca.leave_last_out(
        loca.planted_communities(users=1500).interactions, test=5, validation=2
    )
    finder = Mixtures(n=8)
    base = EASE(l2=300.0)
    values = []
    for communities in (finder, Permuted(finder=finder)):
        model = Loca(base=base, communities=communities, combiner=FixedShare(0.0))
        model.fit(split.train, validation=split.validation)
        values.append(loca.evaluate(model, split.test, at=[100]).means()["ndcg@100"])
    alone = base.fit(split.train)
    base_value = loca.evaluate(alone, split.test, at=[100]).means()["ndcg@100"]
    assert values[0] > 1.04 * base_value
    assert values[1] < 1.01 * base_value


def test_the_temperature_is_chosen_and_given_to_a_refit(grouped: Split) -> None:
    model = Loca(base=EASE(l2=50.0), communities=Permuted(finder=Mixtures(n=4, mixtures=1)))
    selected: Any = model.fit(grouped.train, validation=grouped.validation).selected()
    assert isinstance(selected.communities, Permuted)
    assert selected.communities.finder.temperature is not None
    histories = grouped.test.history_matrix
    again = selected.fit(grouped.train)
    np.testing.assert_array_equal(again.score(histories), model.score(histories))


def test_a_saved_model_answers_as_before(grouped: Split, tmp_path: Path) -> None:
    model = Loca(base=EASE(l2=50.0), communities=Permuted(finder=Mixtures(n=4)))
    model.fit(grouped.train).save(tmp_path / "m")
    loaded: Any = load(tmp_path / "m")
    histories = grouped.test.history_matrix
    np.testing.assert_array_equal(loaded.score(histories), model.score(histories))
    assert loaded.communities == model.communities


def test_known_histories_of_other_users_are_refused(grouped: Split) -> None:
    permuted = found_by(Permuted(finder=Mixtures(n=4, mixtures=1)), grouped)
    starts = permuted.known_starts
    wrong = {
        "known_starts": starts[:-1],
        "known_items": np.zeros(0, np.int32),
        "positions": permuted.positions[1:],
    }
    for name, array in wrong.items():
        state = state_of(permuted)
        state.arrays[name] = array
        with pytest.raises(ModelFileError, match=r"known_starts|the known histories do not fit"):
            restored(PermutedCommunities, {}, state)
    falling = starts.copy()
    falling[1] = starts[-1]
    state = state_of(permuted)
    state.arrays["known_starts"] = falling
    with pytest.raises(ModelFileError, match="the known histories do not fit"):
        restored(PermutedCommunities, {}, state)
    with pytest.raises(DataError, match=r"expected 80 items, found 79|beyond the 79 of these"):
        permuted.locate(csr_array((2, 79), dtype=np.float32))
    state = state_of(permuted)
    state.arrays["known_items"] = np.full_like(permuted.known_items, 80)
    stranger: Any = restored(PermutedCommunities, {}, state)
    with pytest.raises(DataError, match="items beyond the 80 of these"):
        stranger.locate(grouped.test.history_matrix)


def test_the_number_of_communities_is_that_of_the_finder() -> None:
    permuted = Permuted(finder=Mixtures(n=7, mixtures=3))
    assert permuted.n == 7
    assert permuted.with_n(5) == Permuted(finder=Mixtures(n=3, mixtures=3))
    assert clone(permuted, finder=Kernels(n=4)).n == 4
    assert str(permuted) == "3 × 2 communities by likelihood, of other users"
    assert permuted.is_control
    assert not permuted.finder.is_control
    with pytest.raises(ConfigError, match=r"finder: expected a finder such as Mixtures\(\)"):
        Permuted(finder="mixtures")  # type: ignore[arg-type]


def test_parameters_are_those_of_the_finder_inside() -> None:
    finder = Mixtures(n=4)
    flatter = Mixtures(n=4, temperature=9.0)
    assert with_parameters(finder, temperature=9.0) == flatter
    permuted = with_parameters(Permuted(finder=finder), temperature=9.0)
    assert permuted == Permuted(finder=flatter)


def test_the_estimate_has_the_places_and_histories_of_all_users() -> None:
    size = DataSize(users=1000, items=50, entries=9000, item_pairs=2000)
    base = EASE()
    finder = Mixtures(n=10)
    steps = finder.memory(size, base=base, global_model=base)
    permuted = Permuted(finder=finder).memory(size, base=base, global_model=base)
    assert {name: permuted[name] for name in steps} == steps
    assert permuted["permuted users"].folder == 4 * (1000 * 10 + 9000)


def test_networks_of_permuted_communities_begin_as_those_of_the_communities(grouped: Split) -> None:
    """With no weight of memberships they are the same networks."""
    base = MultVAE(latent=4, epochs=2, batch_size=200, learning_rate=0.02)
    finder = Mixtures(n=4, membership_weight=0.0, temperature=1024.0, shared_epochs=1)
    histories = grouped.test.history_matrix
    scores = []
    for communities in (finder, Permuted(finder=finder)):
        model = Loca(base=base, communities=communities, combiner=FixedShare(0.0))
        scores.append(model.fit(grouped.train).score(histories))
    np.testing.assert_allclose(scores[0], scores[1], atol=2e-2)
