"""LLORMA against dense local models blended by hand, its kernel at known angles, and who answers an uncovered pair."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array, random_array

from loca.data.splits import Split
from loca.errors import ConfigError, DataError, ModelFileError
from loca.evaluation.evaluate import evaluate
from loca.models.als import initial_factors
from loca.models.llorma import LLORMA, kernel_weights, learn_local_factors
from loca.models.recommender import (
    get_params,
)
from loca.models.wmf import WMF
from loca.persistence import load_model
from loca.persistence.learned import restored, state_of
from loca.persistence.manifest import ModelState

Dense = np.ndarray
SMALL = {
    "anchors": 5,
    "factors": 4,
    "confidence": 8.0,
    "user_l2": 2.0,
    "item_l2": 3.0,
    "iterations": 3,
}


def binary(seed: int = 0, users: int = 40, items: int = 25) -> csr_array:
    drawn = random_array(
        (users, items), density=0.25, rng=np.random.default_rng(seed), format="csr"
    )
    return csr_array(
        (np.ones(drawn.nnz, np.float32), drawn.indices, drawn.indptr), shape=drawn.shape
    )


def kernel_by_hand(factors: Dense, anchors: Dense, bandwidth: float) -> Dense:
    factors, anchors = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (factors, anchors))
    distances = 2 / np.pi * np.arccos(np.clip(factors @ anchors.T, -1, 1))
    return np.maximum(1 - (distances / bandwidth) ** 2, 0)


def dense_step(
    values: Dense, fixed: Dense, row_weights: Dense, column_weights: Dense, l2: float, of: float
) -> Dense:
    """All rows of one side from the other; the loss of a pair counts row weight × column weight, each penalty once."""
    solved = np.zeros((len(values), fixed.shape[1]))
    for row, own in enumerate(values):
        weights = row_weights[row] * column_weights
        system = (fixed * (weights * (1 + of * own))[:, None]).T @ fixed + l2 * np.eye(
            fixed.shape[1]
        )
        solved[row] = np.linalg.solve(system, fixed.T @ (weights * (1 + of) * own))
    return solved


def dense_scores(model: LLORMA, matrix: csr_array, histories: csr_array) -> Dense:
    """Lee et al.'s mean of local models, each alternated densely from the model's own start."""
    assert model.global_ is not None
    assert model.global_.item_factors_ is not None
    values, asked, of = (
        matrix.toarray().astype(float),
        histories.toarray().astype(float),
        model.confidence,
    )
    of_items = model.global_.item_factors_.astype(float)
    near_users = kernel_by_hand(model.global_.embed(matrix), model.anchor_users_, model.bandwidth)
    near_asked = kernel_by_hand(
        model.global_.embed(histories), model.anchor_users_, model.bandwidth
    )
    near_items = kernel_by_hand(of_items, of_items[model.anchor_items_], model.bandwidth)
    sums, total = np.zeros(asked.shape), near_asked @ near_items.T
    for anchor, (users_near, items_near) in enumerate(zip(near_users.T, near_items.T, strict=True)):
        items = (
            initial_factors(model.seed, anchor, len(of_items), model.factors)
            * (items_near > 0)[:, None]
        )
        for _ in range(model.iterations):
            users = dense_step(values, items, users_near, items_near, model.user_l2, of)
            items = dense_step(values.T, users, items_near, users_near, model.item_l2, of)
        answered = (
            dense_step(asked, items, near_asked[:, anchor], items_near, model.user_l2, of) @ items.T
        )
        sums += np.outer(near_asked[:, anchor], items_near) * answered
    return np.where(total > 0, sums / np.maximum(total, 1e-300), model.global_.score(histories))


@pytest.mark.parametrize("bandwidth", [0.7, 1.0, 2.0, 5.0])
def test_the_answers_equal_dense_local_models_blended_by_hand(bandwidth: float) -> None:
    matrix = binary()
    model = LLORMA(bandwidth=bandwidth, **SMALL).fit(matrix)
    asked = csr_array(matrix[:12].multiply(np.random.default_rng(2).uniform(0.3, 1, (12, 25))))
    np.testing.assert_allclose(model.score(asked), dense_scores(model, matrix, asked), atol=1e-3)


def test_the_kernel_falls_with_the_angle_and_is_cut_at_the_bandwidth() -> None:
    factors = torch.tensor([[3.0, 0.0], [1.0, 1.0], [0.0, 2.0], [-1.0, 0.0], [0.0, 0.0]])
    anchor = torch.tensor([[0.5, 0.0]])
    np.testing.assert_allclose(
        kernel_weights(factors, anchor, 2.0)[:, 0], [1, 1 - 1 / 16, 0.75, 0, 0.75], atol=1e-6
    )
    np.testing.assert_allclose(
        kernel_weights(factors, anchor, 1.0)[:, 0], [1, 0.75, 0, 0, 0], atol=1e-6
    )
    np.testing.assert_allclose(
        kernel_weights(factors, anchor, 0.4)[:, 0], [1, 0, 0, 0, 0], atol=1e-6
    )
    assert kernel_weights(factors, anchor, 2.1).min() > 0


def test_a_pair_that_no_local_model_covers_gets_the_global_score() -> None:
    matrix = binary()
    model = LLORMA(bandwidth=0.3, **SMALL).fit(matrix)
    assert model.global_ is not None
    assert model.global_.item_factors_ is not None
    of_items = model.global_.item_factors_
    near_users = kernel_by_hand(model.global_.embed(matrix), model.anchor_users_, 0.3)
    near_items = kernel_by_hand(of_items, of_items[model.anchor_items_], 0.3)
    covered = near_users @ near_items.T > 0
    assert covered.any()
    assert not covered.all()
    same = np.isclose(model.score(matrix), model.global_.score(matrix), rtol=0, atol=1e-6)
    assert same[~covered].all()
    assert not same[covered].any()
    np.testing.assert_array_equal(model.score(csr_array((1, 25), dtype=np.float32)), 0)


def test_a_weight_of_two_is_a_user_twice_in_every_local_model() -> None:
    rng = np.random.default_rng(3)
    matrix, counts = binary(seed=1), rng.integers(1, 4, 40)
    user_kernel = torch.tensor(rng.uniform(-0.3, 1, (40, 3)).clip(0), dtype=torch.float32)
    item_kernel = torch.tensor(rng.uniform(-0.3, 1, (25, 3)).clip(0), dtype=torch.float32)
    model = LLORMA(**SMALL)
    again = np.repeat(np.arange(40), counts)
    weights = torch.tensor(counts, dtype=torch.float32)
    weighted = learn_local_factors(model, matrix, weights, user_kernel, item_kernel)
    repeated = learn_local_factors(
        model, csr_array(matrix[again]), torch.ones(len(again)), user_kernel[again], item_kernel
    )
    torch.testing.assert_close(weighted @ weighted.mT, repeated @ repeated.mT, atol=1e-4, rtol=1e-3)
    assert (weighted[item_kernel.T == 0] == 0).all()


def test_anchors_are_stored_pairs_of_users_with_weight_and_never_more_than_there_are() -> None:
    matrix = csr_array(np.array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1]], np.float32))
    model = LLORMA(anchors=10, bandwidth=4.0, factors=2, user_l2=0.1, item_l2=0.1).fit(
        matrix, user_weights=[1, 2, 0]
    )
    np.testing.assert_array_equal(model.anchor_items_, [0, 1, 1, 2])
    assert model.global_ is not None
    users = model.global_.embed(matrix)
    np.testing.assert_allclose(model.anchor_users_, users[[0, 0, 1, 1]], atol=1e-5)


def test_a_blend_of_small_models_beats_the_small_model(planted_split: Split) -> None:
    small = {"factors": 3, "user_l2": 3.0, "item_l2": 3.0, "confidence": 10.0}
    local = evaluate(
        LLORMA(anchors=20, bandwidth=2.0, **small).fit(planted_split.train),
        planted_split.test,
        at=(10,),
    )
    alone = evaluate(WMF(**small).fit(planted_split.train), planted_split.test, at=(10,))
    assert local.means()["ndcg@10"] > alone.means()["ndcg@10"]


def test_it_answers_the_same_after_saving_and_another_seed_draws_other_anchors(
    tmp_path: Path,
) -> None:
    model = LLORMA(**SMALL).fit(binary())
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model", {"LLORMA": LLORMA, "WMF": WMF})
    np.testing.assert_array_equal(loaded.score(binary(4)), model.score(binary(4)))
    np.testing.assert_array_equal(
        LLORMA(**SMALL).fit(binary()).score(binary(4)), model.score(binary(4))
    )
    assert (LLORMA(seed=1, **SMALL).fit(binary()).anchor_items_ != model.anchor_items_).any()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"anchors": 0}, "anchors: expected a whole number ≥ 1, found 0"),
        ({"bandwidth": 0.0}, "bandwidth: expected a number above 0, found 0.0"),
        ({"factors": 1.5}, "factors: expected a whole number ≥ 1"),
    ],
)
def test_impossible_parameters_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LLORMA(**wrong)  # type: ignore[arg-type]


def test_values_below_zero_are_refused() -> None:
    with pytest.raises(DataError, match="numbers ≥ 0"):
        LLORMA(**SMALL).fit(csr_array(np.array([[1.0, -1.0]], np.float32)))


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        (
            "local_factors",
            np.zeros((5, 24, 4), np.float32),
            r"local_factors: expected shape \(5, 25, 4\), .* found \(5, 24, 4\)",
        ),
        (
            "local_factors",
            np.zeros((5, 25, 4)),
            "local_factors: expected .* of float32, found .* of float64",
        ),
        ("anchor_users", np.zeros((5, 3), np.float32), r"anchor_users: expected shape \(5, 4\)"),
        ("anchor_items", np.arange(5) + 21, "expected item rows below 25"),
        ("anchor_items", np.arange(5) - 1, "expected item rows below 25"),
        ("anchor_items", np.arange(5.0), "anchor_items: expected .* of int64"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(name: str, array: Dense, message: str) -> None:
    model = LLORMA(**SMALL).fit(binary())
    state = state_of(model)
    with pytest.raises(ModelFileError, match=message):
        restored(
            LLORMA, get_params(model), ModelState({**state.arrays, name: array}, parts=state.parts)
        )
    other = ModelState(state.arrays, parts={"global": WMF(factors=3).fit(binary())})
    with pytest.raises(ModelFileError, match="global: expected 4 factors, found 3"):
        restored(LLORMA, get_params(model), other)
