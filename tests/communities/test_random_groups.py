"""Random groups: they follow from the items alone, are as large as each other, and answer alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from loca.communities.random_groups import RandomGroupCommunities, RandomGroups
from loca.data.splits import Split
from loca.errors import ConfigError, ModelFileError
from loca.models.ease import EASE
from loca.models.recommender import TrainingData
from loca.persistence.learned import restored, state_of
from loca.persistence.manifest import ModelState


def groups_of(train: Any, user_weights: Any = None, **params: Any) -> RandomGroupCommunities:
    data = TrainingData.of(train, user_weights, "cpu")
    return RandomGroups(**params).find(data, base=EASE(), global_model=EASE(), seed=0)


@given(
    st.integers(1, 5),
    st.integers(1, 3),
    st.lists(st.integers(0, 9), min_size=1, max_size=6, unique=True),
)
def test_a_random_group_follows_from_the_items_alone(
    n_groups: int, divisions: int, items: list[int]
) -> None:
    everything = csr_array(np.ones((2, 10), np.float32))
    groups = groups_of(everything, n=n_groups * divisions, divisions=divisions)
    row = np.zeros((1, 10), np.float32)
    row[0, items] = 1
    positions = groups.locate(csr_array(np.concatenate([row, 5 * row])))
    np.testing.assert_array_equal(positions[0], positions[1])
    memberships = np.exp(positions).reshape(2, divisions, -1)
    np.testing.assert_allclose(memberships.sum(axis=2), 1, rtol=1e-5)
    assert (memberships.max(axis=2) > 0.98).all()


def test_random_groups_are_as_large_as_each_other(planted_split: Split) -> None:
    groups = groups_of(planted_split.train, n=4, divisions=1)
    positions = groups.locate(planted_split.train.histories())
    sizes = np.bincount(positions.argmax(axis=1), minlength=4)
    expected = planted_split.train.n_users / 4
    assert (np.abs(sizes - expected) < 4 * np.sqrt(expected)).all()


def test_all_groups_answer_nearly_alike(planted_split: Split) -> None:
    groups = groups_of(planted_split.train, n=6, divisions=2)
    positions = groups.locate(planted_split.train.histories())
    np.testing.assert_allclose(groups.answer_weights(positions).toarray(), 1 / 6, rtol=0.01)


def test_sizes_count_users_by_their_weights(planted_split: Split) -> None:
    weights = np.random.default_rng(0).integers(0, 4, planted_split.train.n_users)
    groups = groups_of(planted_split.train, weights, n=4)
    memberships = np.exp(groups.locate(planted_split.train.histories()))
    expected = np.repeat(memberships, weights, axis=0).mean(axis=0)
    np.testing.assert_allclose(groups.mean_memberships, expected, rtol=1e-4)


def test_impossible_parameters_are_refused() -> None:
    with pytest.raises(ConfigError, match="divisions: expected at most as many as communities, 3"):
        RandomGroups(n=3, divisions=4)
    with pytest.raises(ConfigError, match="membership_weight: expected a number from 0 to 1"):
        RandomGroups(membership_weight=-0.1)


def test_a_file_of_groups_that_do_not_fit_is_refused(planted_split: Split) -> None:
    state = state_of(groups_of(planted_split.train, n=4, divisions=2))
    faults: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("3 groups do not fit 2 divisions", {"mean_memberships": np.ones(3, np.float32)}, {}),
        ("0 groups do not fit 2 divisions", {"mean_memberships": np.zeros(0, np.float32)}, {}),
        ("4 groups do not fit 2 divisions", {"mean_memberships": -np.ones(4, np.float32)}, {}),
        ("item_keys: expected shape", {"item_keys": np.zeros(60, np.int64)}, {}),
        ("membership_weight: expected a number from 0 to 1", {}, {"membership_weight": 2.0}),
        ("shared_epochs: expected a whole number ≥ 0", {}, {"shared_epochs": -1}),
    ]
    for message, arrays, facts in faults:
        broken = ModelState({**state.arrays, **arrays}, {**state.facts, **facts})
        with pytest.raises(ModelFileError, match=message):
            restored(RandomGroupCommunities, {}, broken)
