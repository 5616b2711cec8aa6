"""ItemKNN against hand-worked and dense similarities, its ties, its blocks and its user weights."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from loca.errors import ConfigError, DataError, ModelFileError
from loca.models.item_knn import ItemKNN, nearest_items
from loca.persistence.learned import restored, state_of
from loca.persistence.manifest import ModelState


def random_matrix(seed: int, users: int = 50, items: int = 20) -> np.ndarray:
    return (np.random.default_rng(seed).random((users, items)) < 0.25).astype(np.float64)


def dense_similarities(
    matrix: np.ndarray, weights: np.ndarray, neighbours: int, shrinkage: float
) -> np.ndarray:
    """Every pair, then for each column the largest similarities, the first of equal ones."""
    counts = matrix.T @ np.diag(weights) @ matrix
    norms = np.sqrt(np.diag(counts))
    cosines = (counts / np.maximum(np.outer(norms, norms) + shrinkage, 1e-12)).astype(np.float32)
    np.fill_diagonal(cosines, 0)
    kept = np.zeros_like(cosines)
    for item in range(len(counts)):
        nearest = np.argsort(-cosines[:, item], kind="stable")[:neighbours]
        kept[nearest, item] = cosines[nearest, item]
    return kept


def test_three_items_have_the_similarities_of_a_hand_worked_case() -> None:
    matrix = csr_array(np.array([[1, 1, 0], [1, 1, 0], [1, 0, 1], [1, 0, 0]], dtype=np.float32))
    # Norms 2, √2 and 1; items 0 and 1 share two users, 0 and 2 one, 1 and 2 none.
    first = 2 / (2 * np.sqrt(2) + 1)
    second = 1 / (2 * 1 + 1)
    found = ItemKNN(neighbours=5, shrinkage=1.0).fit(matrix).weights_.toarray()
    np.testing.assert_allclose(
        found, [[0, first, second], [first, 0, 0], [second, 0, 0]], rtol=1e-6
    )
    # Item 0 keeps one neighbour; items 1 and 2 keep theirs.
    alone = ItemKNN(neighbours=1, shrinkage=1.0).fit(matrix).weights_.toarray()
    np.testing.assert_allclose(alone, [[0, first, second], [first, 0, 0], [0, 0, 0]], rtol=1e-6)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    neighbours=st.sampled_from([1, 4, 100]),
    shrinkage=st.sampled_from([0.0, 1.0, 30.0]),
)
def test_the_similarities_equal_dense_ones(seed: int, neighbours: int, shrinkage: float) -> None:
    matrix = random_matrix(seed)
    user_weights = np.random.default_rng(seed + 1).integers(0, 5, len(matrix)).astype(np.float64)
    model = ItemKNN(neighbours=neighbours, shrinkage=shrinkage).fit(
        csr_array(matrix), user_weights=user_weights
    )
    expected = dense_similarities(matrix, user_weights, neighbours, shrinkage)
    np.testing.assert_allclose(model.weights_.toarray(), expected, rtol=1e-6, atol=1e-7)


def test_of_equally_similar_items_the_first_are_taken() -> None:
    model = ItemKNN(neighbours=2).fit(csr_array(np.ones((3, 5), np.float32)))
    found = model.weights_.toarray() > 0
    for item in range(5):
        others = [other for other in range(5) if other != item]
        assert np.flatnonzero(found[:, item]).tolist() == others[:2]


def test_blocks_change_nothing() -> None:
    matrix, model = csr_array(random_matrix(3)), ItemKNN(neighbours=3)
    blocks = nearest_items(matrix, np.ones(matrix.shape[0], np.float32), model, block_pairs=45)
    np.testing.assert_array_equal(blocks.toarray(), model.fit(matrix).weights_.toarray())


def test_whole_user_weights_equal_repeated_users() -> None:
    matrix = random_matrix(7)
    times = np.random.default_rng(8).integers(0, 4, len(matrix))
    weighted = ItemKNN(neighbours=4).fit(csr_array(matrix), user_weights=times)
    repeated = ItemKNN(neighbours=4).fit(csr_array(np.repeat(matrix, times, axis=0)))
    np.testing.assert_array_equal(weighted.weights_.toarray(), repeated.weights_.toarray())


def test_scores_are_the_weighted_history_times_the_similarities() -> None:
    model = ItemKNN(neighbours=4).fit(csr_array(random_matrix(9)))
    history = csr_array(([2.0, 0.5], ([0, 0], [3, 7])), shape=(2, 20), dtype=np.float32)
    similarities = model.weights_.toarray()
    scores = model.score(history)
    np.testing.assert_allclose(scores[0], 2 * similarities[3] + 0.5 * similarities[7], rtol=1e-6)
    assert not scores[1].any()


def test_items_that_nobody_has_are_similar_to_none() -> None:
    matrix = random_matrix(10)
    matrix[:, 4] = 0
    weights = ItemKNN(shrinkage=0.0).fit(csr_array(matrix)).weights_.toarray()
    assert np.isfinite(weights).all()
    assert not weights[4].any()
    assert not weights[:, 4].any()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"neighbours": 0}, "neighbours: expected a whole number ≥ 1, found 0"),
        ({"neighbours": 1.5}, "neighbours: expected a whole number ≥ 1, found 1.5"),
        ({"shrinkage": -1.0}, "shrinkage: expected a number ≥ 0, found -1.0"),
        ({"shrinkage": float("nan")}, "shrinkage: expected a number ≥ 0, found nan"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ItemKNN(**wrong)


def test_more_neighbours_than_memory_holds_are_refused_before_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("loca.memory.available_bytes", lambda: 1000)
    with pytest.raises(
        DataError, match=r"ItemKNN for 20 items: .* are free; take fewer neighbours"
    ):
        ItemKNN().fit(csr_array(random_matrix(1)))


def test_similarities_of_items_that_do_not_exist_are_refused_on_loading() -> None:
    state = state_of(ItemKNN().fit(csr_array(random_matrix(1))))
    broken = {**state.arrays, "weights_indices": state.arrays["weights_indices"] + 20}
    with pytest.raises(ModelFileError, match="ItemKNN: weights: an item lies outside 0 … 19"):
        restored(ItemKNN, {}, ModelState(arrays=broken))
