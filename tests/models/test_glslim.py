"""GLSLIM against SLIM where they must agree, its blends against a search, and groups that are known beforehand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

import loca.models.glslim as glslim_file
from loca.errors import ConfigError, DataError, ModelFileError
from loca.files import load_model
from loca.models.glslim import GLSLIM, place_histories
from loca.models.recommender import ModelState
from loca.models.slim import SLIM

EXACT = {"global_l1": 0.2, "global_l2": 1.0, "local_l1": 0.2, "local_l2": 1.0, "tolerance": 1e-6}


def random_matrix(seed: int, users: int = 60, items: int = 20) -> np.ndarray:
    return (np.random.default_rng(seed).random((users, items)) < 0.3).astype(np.float64)


def two_groups(users: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Users of the first group hold an item i below 6 with i + 6, those of the second with 11 − i; two pairs each."""
    rng = np.random.default_rng(0)
    matrix, groups = np.zeros((users, 12)), np.arange(users) % 2
    telling = [(first, second) for first in range(6) for second in range(first) if first + second != 5]
    for user, group in enumerate(groups):
        for item in telling[rng.integers(len(telling))]:
            matrix[user, [item, item + 6 if group == 0 else 11 - item]] = 1
    return matrix, groups


def objective(model: GLSLIM, matrix: np.ndarray) -> float:
    """What GLSLIM minimises, term by term."""
    errors = matrix - model.score(csr_array(matrix))
    penalties = model.global_l1 * model.global_weights_.sum() + model.global_l2 / 2 * (model.global_weights_**2).sum()
    for weights in model.local_weights_:
        penalties += model.local_l1 * weights.sum() + model.local_l2 / 2 * (weights**2).sum()
    return float(0.5 * (errors**2).sum() + penalties)


def test_with_locals_that_cost_too_much_the_first_round_is_a_global_slim_for_half_the_answer() -> None:
    matrix = csr_array(random_matrix(1))
    model = GLSLIM(clusters=2, rounds=1, global_l1=0.5, global_l2=2.0, local_l1=1e6, tolerance=1e-6).fit(matrix)
    assert [weights.nnz for weights in model.local_weights_] == [0, 0]
    # min ½‖x − ½Xw‖² + l1 Σw + l2/2 Σw² is SLIM's problem in v = w/2 with 2·l1 and 4·l2.
    halves = SLIM(l1=1.0, l2=8.0, tolerance=1e-6).fit(matrix).weights_.toarray()
    np.testing.assert_allclose(model.global_weights_.toarray(), 2 * halves, atol=2e-4)


def test_every_round_lowers_the_objective() -> None:
    matrix = random_matrix(2)
    values = [
        objective(GLSLIM(clusters=3, rounds=rounds, **EXACT).fit(csr_array(matrix)), matrix) for rounds in (1, 2, 4)
    ]
    assert values[0] > values[1] > values[2]


def test_users_in_the_wrong_group_find_the_one_that_rebuilds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix, groups = two_groups()
    begun = np.where(np.random.default_rng(1).random(60) < 0.25, 1 - groups, groups)
    monkeypatch.setattr(glslim_file, "_first_groups", lambda rows, weights, count, seed: begun)
    model = GLSLIM(clusters=2, global_l1=20.0, local_l1=0.1, local_l2=0.5, rounds=10).fit(csr_array(matrix))
    found, _ = place_histories(csr_array(matrix), model.global_weights_, model.local_weights_)
    np.testing.assert_array_equal(found, groups)
    scores = model.score(csr_array(matrix))
    held = np.where(matrix > 0, scores, np.inf).min(axis=1)
    assert (held > np.where(matrix > 0, -np.inf, scores).max(axis=1)).all()


def test_groups_begin_with_users_who_hold_the_same_items() -> None:
    matrix = np.kron(np.eye(3), np.ones((20, 5))) * (np.random.default_rng(2).random((60, 15)) < 0.8)
    found = glslim_file._first_groups(csr_array(matrix), np.ones(60), 3, 0).reshape(3, 20)
    assert (found == found[:, :1]).all()
    assert sorted(found[:, 0]) == [0, 1, 2]


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_a_history_gets_the_group_and_blend_that_a_search_finds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shared, *own = [rng.random((8, 8)) * (rng.random((8, 8)) < 0.4) for _ in range(4)]
    histories = rng.random((5, 8)) * (rng.random((5, 8)) < 0.5)
    groups, shares = place_histories(csr_array(histories), csr_array(shared), [csr_array(one) for one in own])
    grid = np.linspace(0, 1, 201)[:, None]
    for history, group, share in zip(histories, groups, shares, strict=True):
        errors = [((history - grid * (history @ shared) - (1 - grid) * (history @ one)) ** 2).sum(1) for one in own]
        chosen = history - share * (history @ shared) - (1 - share) * (history @ own[group])
        assert (chosen**2).sum() <= np.min(errors) + 1e-9


def test_blocks_of_users_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = csr_array(random_matrix(3))
    model = GLSLIM(clusters=2, rounds=2, **EXACT).fit(matrix)
    whole = model.score(matrix)
    monkeypatch.setattr(glslim_file, "_BLOCK_USERS", 7)
    np.testing.assert_array_equal(model.score(matrix), whole)


def test_an_empty_history_scores_zero() -> None:
    model = GLSLIM(clusters=2, rounds=1).fit(csr_array(random_matrix(4)))
    np.testing.assert_array_equal(model.score(csr_array((2, 20), dtype=np.float32)), np.zeros((2, 20)))


def test_whole_user_weights_equal_repeated_users_in_one_group() -> None:
    matrix = random_matrix(5)
    times = np.random.default_rng(6).integers(0, 4, len(matrix))
    histories = csr_array(random_matrix(7)[:10])
    weighted = GLSLIM(clusters=1, rounds=2, **EXACT).fit(csr_array(matrix), user_weights=times)
    repeated = GLSLIM(clusters=1, rounds=2, **EXACT).fit(csr_array(np.repeat(matrix, times, axis=0)))
    np.testing.assert_allclose(weighted.score(histories), repeated.score(histories), atol=1e-4)


def test_there_are_no_more_groups_than_users() -> None:
    model = GLSLIM(clusters=9, rounds=1).fit(csr_array(random_matrix(8)), user_weights=np.arange(60) < 3)
    assert len(model.local_weights_) <= 3


def test_values_below_zero_are_refused() -> None:
    with pytest.raises(DataError, match="values are not below 0"):
        GLSLIM(rounds=1).fit(csr_array(-random_matrix(1)))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"clusters": 0}, "clusters: expected a whole number from 1, found 0"),
        ({"rounds": 0.5}, "rounds: expected a whole number from 1, found 0.5"),
        ({"global_l1": -1.0}, "global_l1: expected a number from 0, found -1.0"),
        ({"local_l2": float("inf")}, "local_l2: expected a number from 0, found inf"),
        ({"tolerance": 2.0}, "tolerance: expected"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        GLSLIM(**wrong)


def test_it_answers_the_same_from_its_file_and_a_broken_one_is_refused(tmp_path: Path) -> None:
    matrix = csr_array(random_matrix(9))
    model = GLSLIM(clusters=2, rounds=1, global_l1=0.2, local_l1=0.2).fit(matrix)
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model", {"GLSLIM": GLSLIM})
    np.testing.assert_array_equal(loaded.score(matrix), model.score(matrix))
    state, params = model.state(), {"clusters": 2}
    for facts, message in (({}, "found None"), ({"groups": 3}, "found 3"), ({"groups": True}, "found True")):
        with pytest.raises(ModelFileError, match=f"expected from 1 to 2 groups, {message}"):
            GLSLIM.restore(params, ModelState(arrays=state.arrays, facts=facts))
    smaller = {"data": np.zeros(0, np.float32), "indices": np.zeros(0, np.int32), "indptr": np.zeros(4, np.int32)}
    changed = {**state.arrays, **{f"local_1_{name}": array for name, array in smaller.items()}}
    with pytest.raises(ModelFileError, match="expected 20 items in each group, found 3"):
        GLSLIM.restore(params, ModelState(arrays=changed, facts={"groups": 2}))
