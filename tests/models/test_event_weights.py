"""What a weight of 2 means, for every model: an identity each, computed by an independent way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.sparse import csr_array
from scipy.special import expit, softmax

import loca
from loca.communities.embeddings import GivenEmbeddings
from loca.models.recommender import Recommender, TrainingData
from loca.registry import RECORDS

N_USERS, N_ITEMS = 60, 12
SMALL = {"latent": 4, "epochs": 2, "batch_size": 20}
SINGLE: dict[str, Callable[[], Recommender]] = {
    "popularity": loca.Popularity,
    "ease": lambda: loca.EASE(l2=5.0),
    "next-ease": lambda: loca.NextEASE(l2=5.0, ordinary=1.0),
    "item-knn": lambda: loca.ItemKNN(neighbours=4, shrinkage=1.0),
    "slim": lambda: loca.SLIM(l1=0.1, l2=5.0, tolerance=1e-6),
    "wmf": lambda: loca.WMF(factors=3, confidence=3.0, user_l2=2.0, item_l2=2.0),
    "llorma": lambda: loca.LLORMA(anchors=2, factors=3, confidence=3.0, user_l2=2.0, item_l2=2.0),
    "sglsvd": lambda: loca.SGLSVD(clusters=2, global_rank=3, local_rank=2),
    "mult-vae": lambda: loca.MultVAE(**SMALL),
    "mult-dae": lambda: loca.MultDAE(**SMALL),
    "cdae": lambda: loca.CDAE(**SMALL),
    "rec-vae": lambda: loca.RecVAE(hidden=8, **SMALL),
}
EMBEDDINGS = np.random.default_rng(1).standard_normal((N_USERS, 4)).astype(np.float32)


@dataclass(kw_only=True, eq=False, repr=False)
class SamePlaces(GivenEmbeddings):
    """Places users by the directions of their histories: a heavier row is no other direction.

    A user of another weight would move the map.
    """

    def _fit(self, data: TrainingData) -> None:
        super()._fit(replace(data, user_weights=np.ones_like(data.user_weights)))


# Models of one another: what a weight is in them follows from their parts.
OF_OTHERS: dict[str, Callable[[], Recommender]] = {
    "ensemble": lambda: loca.Ensemble(base=loca.EASE(l2=5.0), models=3),
    "loca": lambda: loca.Loca(
        base=loca.EASE(l2=5.0),
        communities=loca.Kernels(n=3, embedding=SamePlaces(embeddings=EMBEDDINGS)),
    ),
}
LEAST_SQUARES = {
    **{name: SINGLE[name] for name in ("ease", "next-ease", "item-knn", "slim")},
    # One cluster: where the clusters begin depends on how heavy a row is.
    "sglsvd": lambda: loca.SGLSVD(clusters=1, global_rank=3, local_rank=0, rounds=50),
    **OF_OTHERS,
}


@pytest.fixture(scope="module")
def weighted() -> csr_array:
    """60 users of 12 items in two groups, their weights 1, 2 or 3.5, items rising in every row."""
    rng = np.random.default_rng(0)
    likes = np.where((np.arange(N_USERS) % 2)[:, None] == (np.arange(N_ITEMS) % 2), 0.6, 0.1)
    is_stored = rng.random((N_USERS, N_ITEMS)) < likes
    is_stored[:, 0] = True
    weights = rng.choice([1.0, 2.0, 3.5], (N_USERS, N_ITEMS))
    return csr_array(np.where(is_stored, weights, 0.0).astype(np.float32))


def doubled_rows(matrix: csr_array) -> tuple[csr_array, np.ndarray]:
    """Every third user's row twice as heavy, and which users these are."""
    is_doubled = np.arange(matrix.shape[0]) % 3 == 0
    counts = np.diff(matrix.indptr)
    doubled = matrix.copy()
    doubled.data = doubled.data * np.repeat(np.where(is_doubled, 2.0, 1.0), counts)
    return csr_array(doubled.astype(np.float32)), is_doubled


def test_every_registered_single_model_has_its_identity_here() -> None:
    singles = {name for name, record in RECORDS.items() if record.base is None}
    known = {*SINGLE, "next-vae", "next-dae", "auto", "blend"}
    kinds = {type(SINGLE[name]()) for name in SINGLE}
    missing = {name for name in singles - known if type(RECORDS[name].make()) not in kinds}
    assert not missing


@pytest.mark.parametrize("name", LEAST_SQUARES)
def test_a_row_twice_as_heavy_counts_as_four_users(name: str, weighted: csr_array) -> None:
    """Least squares see X only as XᵀDX: a row times 2 is a user weight of 4."""
    make = LEAST_SQUARES[name]
    heavy, is_doubled = doubled_rows(weighted)
    user_weights = np.where(is_doubled, 4.0, 1.0)
    by_rows = make().fit(heavy)
    by_users = make().fit(weighted, user_weights=user_weights)
    histories = weighted[:10]
    expected = by_users.score(histories)
    np.testing.assert_allclose(by_rows.score(histories), expected, rtol=1e-3, atol=1e-3)
    assert not np.allclose(make().fit(weighted).score(histories), expected, rtol=1e-3, atol=1e-3)


def test_ease_is_the_closed_form_of_the_weighted_matrix(weighted: csr_array) -> None:
    dense = weighted.toarray().astype(np.float64)
    precision = np.linalg.inv(dense.T @ dense + 5.0 * np.eye(N_ITEMS))
    expected = -precision / np.diag(precision)
    np.fill_diagonal(expected, 0.0)
    model = loca.EASE(l2=5.0).fit(weighted)
    np.testing.assert_allclose(model.weights_, expected, rtol=1e-4, atol=1e-5)


def test_popularity_is_the_mean_weight(weighted: csr_array) -> None:
    shares = loca.Popularity().fit(weighted).shares_
    np.testing.assert_allclose(shares, weighted.toarray().mean(axis=0), rtol=1e-6)


def test_the_cosines_of_item_knn_are_those_of_weighted_columns(weighted: csr_array) -> None:
    dense = weighted.toarray().astype(np.float64)
    gram = dense.T @ dense
    lengths = np.sqrt(np.diag(gram))
    cosines = gram / (np.outer(lengths, lengths) + 1.0)
    np.fill_diagonal(cosines, 0.0)
    model = loca.ItemKNN(neighbours=N_ITEMS, shrinkage=1.0).fit(weighted)
    np.testing.assert_allclose(model.weights_.toarray(), cosines, rtol=1e-5)


def ridge_of(factors: np.ndarray, weights: np.ndarray, confidence: float, l2: float) -> np.ndarray:
    """The factor that minimises Σ v(1 + c)(1 − x·y)² + (1 − v)(x·y)² + l2‖x‖², by its normal equations."""
    system = factors.T @ (factors * (1 + confidence * weights)[:, None]) + l2 * np.eye(3)
    return np.linalg.solve(system, (1 + confidence) * factors.T @ weights)


def test_a_weight_is_the_confidence_of_wmf(weighted: csr_array) -> None:
    model = loca.WMF(
        factors=3, confidence=3.0, user_l2=2.0, item_l2=2.0, frequency_scaling=0.0, iterations=300
    ).fit(weighted)
    users = model.embed(weighted).astype(np.float64)
    # Embeddings stand in a basis of their own: scores do not depend on it.
    scores = model.score(weighted)
    items, *_ = np.linalg.lstsq(users, scores, rcond=None)  # (factors, items)
    dense = weighted.toarray()
    by_hand = np.array([ridge_of(items.T, row, 3.0, 2.0) for row in dense])
    np.testing.assert_allclose(by_hand @ items, scores, rtol=1e-3, atol=1e-4)
    # The items' factors are stationary too: a weight counts the same in learning.
    other = np.array([ridge_of(users, column, 3.0, 2.0) for column in dense.T])
    np.testing.assert_allclose(users @ other.T, scores, rtol=2e-2, atol=2e-3)


@pytest.mark.parametrize("name", ["wmf", "llorma"])
def test_a_heavier_item_of_a_history_is_fitted_more_closely(name: str, weighted: csr_array) -> None:
    model = SINGLE[name]().fit(weighted)
    history = np.zeros((3, N_ITEMS), np.float32)
    history[:, [0, 3]] = 1
    history[:, 3] = [1, 2, 4]
    scores = model.score(csr_array(history))[:, 3]
    assert (np.diff(scores) > 0).all()


ONE_TASTE = csr_array(np.tile([2.0, 1.0, 1.0, 0.0], (40, 1)).astype(np.float32))
LONG = {"latent": 4, "learning_rate": 2e-2, "epochs": 150, "batch_size": 40, "dropout": 0.0}


@pytest.mark.parametrize(
    "model",
    [
        loca.MultVAE(noise=0.0, kl_weight=0.0, **LONG),
        loca.MultDAE(**LONG),
        loca.RecVAE(hidden=8, **{**LONG, "epochs": 200, "learning_rate": 5e-3}),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_network_learns_the_share_of_each_weight(model: Recommender) -> None:
    """The multinomial likelihood is largest where softmax gives each item its share of the weights."""
    scores = model.fit(ONE_TASTE).score(ONE_TASTE[:1])[0]
    np.testing.assert_allclose(softmax(scores), [0.5, 0.25, 0.25, 0.0], atol=0.03)


def test_cdae_learns_each_weight_relative_to_the_largest() -> None:
    model = loca.CDAE(**{**LONG, "epochs": 300}).fit(ONE_TASTE)
    np.testing.assert_allclose(expit(model.score(ONE_TASTE[:1])[0]), [1, 0.5, 0.5, 0], atol=0.1)


@pytest.mark.parametrize("name", SINGLE)
def test_values_mean_the_same_however_they_come(name: str, weighted: csr_array) -> None:
    """A matrix, Interactions of it, a frame with a column of weights, and explicit zeros: one model."""
    rows, columns = weighted.nonzero()
    frame = pl.DataFrame({"user": rows, "item": columns, "plays": weighted.data})
    explicit = weighted.copy()
    explicit = csr_array(
        (
            np.append(explicit.data, np.float32(0)),
            np.append(explicit.indices, np.int32(11)),
            np.append(explicit.indptr[:-1], explicit.nnz + 1),
        ),
        shape=weighted.shape,
    )
    assert explicit.nnz == weighted.nnz + 1
    forms: list[Any] = [
        weighted,
        explicit,
        loca.Interactions.from_matrix(weighted),
        loca.read_interactions(weighted),
        loca.read_interactions(frame, weight="plays"),
    ]
    expected, *others = (SINGLE[name]().fit(form).score(weighted[:5]) for form in forms)
    for scores in others:
        np.testing.assert_array_equal(scores, expected)


@pytest.mark.parametrize("name", SINGLE)
def test_weights_count_in_the_history_that_is_answered(name: str, weighted: csr_array) -> None:
    data = loca.Interactions.from_matrix(weighted)
    model = SINGLE[name]().fit(data)
    by_id = model.recommend([7], n=5, hide_seen=False)
    by_row = model.recommend(weighted[[7]], n=5, hide_seen=False)
    np.testing.assert_array_equal(by_id.items, by_row.items)
    np.testing.assert_array_equal(by_id.scores, by_row.scores)


def test_an_explicit_zero_of_a_history_is_not_seen_and_does_not_hide(weighted: csr_array) -> None:
    model = loca.EASE(l2=5.0).fit(weighted)
    history = csr_array(
        (np.array([1.0, 0.0], np.float32), np.array([0, 2]), np.array([0, 2])), shape=(1, N_ITEMS)
    )
    found = model.recommend(history, n=N_ITEMS)
    assert 2 in found.items[0].tolist()
    np.testing.assert_array_equal(found.scores, model.recommend([[0]], n=N_ITEMS).scores)


def test_weights_of_a_repeated_pair_are_added_and_of_ratings_the_newest_counts() -> None:
    frame = pl.DataFrame(
        {
            "user": ["ann"] * 3,
            "item": ["tea"] * 3,
            "plays": [2, 3, 4],
            "rating": [5, 1, 4],
            "event": ["view", "buy", "view"],
            "time": [1, 3, 2],
        }
    )

    def weight(spec: Any) -> float:
        return float(loca.read_interactions(frame, weight=spec).matrix().toarray()[0, 0])

    assert weight("plays") == 9
    assert weight("log1p(plays)") == pytest.approx(np.log(10))
    assert weight("rating") == 1  # that of time 3
    assert weight({"view": 1, "buy": 10}) == 12
    assert weight(loca.Weighting(column="plays", repeats="largest")) == 4


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("hours", "no column 'hours'; the columns are user, item, plays, event"),
        ("view=1", "no weight for events buy; give each a weight, 0 to leave it out"),
        ("view=one", "weight: expected KIND=NUMBER, found 'view=one'"),
        ("view=-1,buy=1", "weight: expected a number ≥ 0 for 'view', found -1.0"),
        ("view=0,buy=0", "weight: expected a kind of event that counts more than 0"),
        ("log2(plays)", "unknown weight scale 'log2'; did you mean 'log1p'"),
        (3, "weight: expected a column, kinds such as"),
    ],
)
def test_a_weight_that_means_nothing_is_refused(spec: Any, message: str) -> None:
    frame = pl.DataFrame(
        {"user": [1, 1], "item": [1, 2], "plays": [1, 2], "event": ["view", "buy"]}
    )
    with pytest.raises(loca.LocaError, match=message):
        loca.read_interactions(frame, weight=spec)


@pytest.mark.parametrize(("plays", "found"), [([1, -2], "found -2 in row 2"), ([1, None], "row 2")])
def test_a_weight_below_0_or_missing_is_refused(plays: list[Any], found: str) -> None:
    frame = pl.DataFrame({"user": [1, 1], "item": [1, 2], "plays": plays})
    with pytest.raises(loca.DataError, match=found):
        loca.read_interactions(frame, weight="plays")
