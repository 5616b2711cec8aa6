"""Similar items: what similarity means in each model, against independent computations and by one contract."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.linear_model import LinearRegression
from sklearn.metrics.pairwise import cosine_similarity

import loca
from loca.communities.kernel import Kernels
from loca.data.interactions import Interactions
from loca.data.splits import hold_last
from loca.data.synthetic import planted_communities
from loca.errors import ConfigError, DataError, NotFittedError
from loca.evaluation.recommend import similar_items
from loca.local.auto import Auto
from loca.local.blend import Blend
from loca.local.engines.differences.engine import Differences
from loca.local.engines.engine import Engine
from loca.local.engines.loop import Loop
from loca.local.engines.stacked.engine import Stacked
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.local.local_models import SeparateModels
from loca.local.sharded_models import ShardedModels
from loca.models.cdae import CDAE
from loca.models.ease import EASE
from loca.models.item_knn import ItemKNN
from loca.models.llorma import LLORMA
from loca.models.mult_vae import MultDAE, MultVAE
from loca.models.next_ease import NextEASE
from loca.models.popularity import Popularity
from loca.models.rec_vae import RecVAE
from loca.models.recommender import (
    ItemRows,
    Recommender,
    Scores,
)
from loca.models.sglsvd import SGLSVD
from loca.models.slim import SLIM
from loca.models.wmf import WMF
from loca.persistence.learned import learned
from loca.registry import RECORDS

ITEMS = 48
PLANTED = planted_communities(
    users=300,
    items=ITEMS,
    communities=1,
    groups=6,
    tastes=1.0,
    history=12,
    shortest_history=10,
    seed=5,
)
GROUPS = PLANTED.groups[0]
TRAIN, VALIDATION, _ = hold_last(PLANTED.interactions, 2)

NETWORK: dict[str, Any] = {"latent": 16, "learning_rate": 2e-2, "batch_size": 50, "epochs": 12}
VAE: dict[str, Any] = NETWORK | {"kl_weight": 0.1, "anneal_steps": 100}
FACTORS: dict[str, Any] = {"factors": 8, "confidence": 5.0, "user_l2": 5.0, "item_l2": 5.0}
KNOWING: dict[str, Callable[[], Recommender]] = {
    "ease": lambda: EASE(l2=20.0),
    "ease, sparse": lambda: EASE(l2=20.0, keep=8),
    "slim": lambda: SLIM(l1=1.0, l2=10.0),
    "item-knn": lambda: ItemKNN(neighbours=10, shrinkage=5.0),
    "next-ease": lambda: NextEASE(l2=20.0),
    "wmf": lambda: WMF(**FACTORS),
    "sglsvd": lambda: SGLSVD(clusters=3, global_rank=6, local_rank=3),
    "llorma": lambda: LLORMA(anchors=4, **FACTORS),
    "mult-vae": lambda: MultVAE(**VAE),
    "mult-vae, with a hidden layer": lambda: MultVAE(hidden=24, **VAE),
    "mult-dae": lambda: MultDAE(**NETWORK),
    "rec-vae": lambda: RecVAE(hidden=32, **NETWORK),
    "cdae": lambda: CDAE(**NETWORK),
    "loca of ease": lambda: Loca(base=EASE(l2=20.0), communities=Kernels(n=3)),
    "loca of mult-vae": lambda: Loca(base=MultVAE(**VAE), communities=Kernels(n=2)),
    "loca of item-knn over ease": lambda: Loca(
        base=ItemKNN(neighbours=10), global_model=EASE(l2=20.0), communities=Kernels(n=2)
    ),
    "ensemble of ease": lambda: Ensemble(base=EASE(l2=20.0), models=3),
    "ensemble of ease, in differences": lambda: Ensemble(
        base=EASE(l2=20.0), models=3, engine=Differences()
    ),
    "ensemble of next-ease, in differences": lambda: Ensemble(
        base=NextEASE(l2=20.0), models=2, engine=Differences()
    ),
    "ensemble of mult-vae": lambda: Ensemble(base=MultVAE(**VAE), models=2),
    "ensemble of mult-vae, in a loop": lambda: Ensemble(
        base=MultVAE(**VAE), models=2, engine=Loop()
    ),
    "blend": lambda: Blend(parts=[EASE(l2=20.0), Popularity(), WMF(**FACTORS)]),
    "blend with next-ease": lambda: Blend(
        parts=[EASE(l2=20.0), NextEASE(l2=20.0)], columns=[(0, 1, 0.5), (1, 1, 0.5)]
    ),
    "auto": lambda: Auto(chosen=Blend(parts=[EASE(l2=20.0), ItemKNN(neighbours=10)])),
}
DIRECTED = {"next-ease", "ensemble of next-ease, in differences", "blend with next-ease"}


@cache
def fitted(name: str) -> Recommender:
    """The model of that name, fitted once for all tests."""
    return KNOWING[name]().fit(TRAIN, validation=VALIDATION)


def random_matrix(seed: int, users: int = 60, items: int = 12) -> csr_array:
    return csr_array((np.random.default_rng(seed).random((users, items)) < 0.3).astype(np.float32))


# What every model keeps


def test_every_single_model_of_the_registry_is_tested_or_knows_no_similarity() -> None:
    single = {type(record.make()) for record in RECORDS.values() if record.base is None}
    assert single <= {type(make()) for make in KNOWING.values()} | {Popularity}


@pytest.mark.parametrize("name", KNOWING)
def test_similarities_are_finite_numbers_from_minus_1_to_1_and_1_of_an_item_with_itself(
    name: str,
) -> None:
    found = fitted(name).similarities([5, 0, 41])
    assert found.shape == (3, ITEMS)
    assert found.dtype == np.float32
    assert np.isfinite(found).all()
    assert np.abs(found).max() <= 1
    assert found[[0, 1, 2], [5, 0, 41]].tolist() == [1, 1, 1]
    assert len(np.unique(found)) > 20


@pytest.mark.parametrize("name", KNOWING)
def test_similarities_are_symmetric_where_the_model_says_so(name: str) -> None:
    model = fitted(name)
    found = model.similarities(range(ITEMS))
    if name in DIRECTED:
        assert model.similarity_kind == "directed"
        assert np.abs(found - found.T).max() > 0.1
    else:
        assert model.similarity_kind == "symmetric"
        np.testing.assert_allclose(found, found.T, atol=1e-6)


@pytest.mark.parametrize("name", KNOWING)
def test_the_similarities_to_an_item_do_not_depend_on_the_others_asked_for(name: str) -> None:
    model = fitted(name)
    together = model.similarities([7, 30, 7, 2])
    alone = np.concatenate([model.similarities([row]) for row in (7, 30, 7, 2)])
    np.testing.assert_allclose(together, alone, atol=1e-6)
    assert model.similarities([]).shape == (0, ITEMS)


@pytest.mark.parametrize("name", KNOWING)
def test_a_loaded_model_has_the_same_similarities(name: str, tmp_path: Path) -> None:
    model = fitted(name)
    model.save(tmp_path / "model")
    loaded = loca.load(tmp_path / "model")
    assert loaded.similarity_kind == model.similarity_kind
    np.testing.assert_allclose(
        loaded.similarities([3, 11]), model.similarities([3, 11]), rtol=1e-6, atol=1e-7
    )


@pytest.mark.parametrize("name", KNOWING)
def test_similar_items_are_of_the_same_group_more_often_than_popular_ones(name: str) -> None:
    similar = fitted(name).similar_items(TRAIN.items.values, 5).item_rows  # (items, 5)
    is_listed = similar >= 0
    is_same = (GROUPS[similar] == GROUPS[:, None]) & is_listed
    by_popularity = np.argsort(-np.bincount(TRAIN.item_rows, minlength=ITEMS), kind="stable")
    popular = np.array([by_popularity[by_popularity != row][:5] for row in range(ITEMS)])
    share_of_popular = (GROUPS[popular] == GROUPS[:, None]).mean()
    assert is_listed.mean() > 0.5
    assert is_same.sum() / is_listed.sum() > 1.8 * share_of_popular


@pytest.mark.parametrize("name", KNOWING)
def test_similar_items_are_those_with_the_largest_similarities_above_0(name: str) -> None:
    model = fitted(name)
    ids = TRAIN.items.ids([3, 7])
    found = model.similar_items(ids, ITEMS)
    assert found.users.tolist() == ids
    similarities = model.similarities([3, 7])
    similarities[[0, 1], [3, 7]] = 0
    for expected, listed, scores in zip(similarities, found.item_rows, found.scores, strict=True):
        order = np.argsort(-expected, kind="stable")
        count = int((expected > 0).sum())
        assert listed.tolist() == [*order[:count], *[-1] * (ITEMS - count)]
        np.testing.assert_array_equal(scores[:count], expected[order[:count]])
        assert (scores[count:] == -np.inf).all()
    with pytest.raises(DataError, match="unknown item 'i999'"):
        model.similar_items(["i03", "i999"])


@pytest.mark.parametrize("name", KNOWING)
def test_nothing_is_similar_before_the_fit(name: str) -> None:
    with pytest.raises(NotFittedError, match="has not been fitted"):
        KNOWING[name]().similarities([0])
    with pytest.raises(NotFittedError, match="has not been fitted"):
        KNOWING[name]().similar_items(["i03"])


# What is asked for


def test_one_item_is_asked_for_by_its_id_or_in_a_list() -> None:
    model = fitted("ease")
    alone = model.similar_items("i03", 4)
    assert alone.items.shape == (1, 4)
    assert alone.items.tolist() == model.similar_items(["i03"], 4).items.tolist()
    assert model.similar_items([], 4).items.shape == (0, 4)
    assert alone.to_polars().columns[:3] == ["user", "item", "score"]


def test_an_item_is_asked_for_by_its_title_too() -> None:
    model = fitted("ease")
    title = TRAIN.items.label(3)
    assert (
        model.similar_items(title, 4).items.tolist() == model.similar_items("i03", 4).items.tolist()
    )
    with pytest.raises(ConfigError, match="similar_items: unknown argument 'count'"):
        model.similar_items(title, count=4)  # type: ignore[call-arg]


def test_items_of_a_bare_matrix_are_named_by_their_rows() -> None:
    model = EASE(l2=1.0).fit(random_matrix(0))
    found = model.similar_items(4, 3)
    assert found.users.tolist() == [4]
    assert found.items.tolist() == found.item_rows.tolist()
    with pytest.raises(DataError, match="unknown item 12"):
        model.similar_items([12])


def test_a_list_is_at_most_as_long_as_there_are_items_and_1_or_more() -> None:
    assert fitted("ease").similar_items("i03", 1000).items.shape == (1, ITEMS)
    with pytest.raises(ConfigError, match="n: expected a list length of 1 or more, found 0"):
        fitted("ease").similar_items("i03", 0)
    with pytest.raises(DataError, match="items: expected an item id or a list of item ids"):
        fitted("ease").similar_items(None)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([ITEMS], "expected rows from 0 to 47, found 48"),
        ([3, -1], "expected rows from 0 to 47, found -1"),
        ([1.5], "expected a list of row numbers"),
        (["i03"], "expected a list of row numbers"),
        (3, "expected a list of row numbers"),
    ],
)
def test_what_is_no_row_of_an_item_is_refused(rows: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        fitted("ease").similarities(rows)


def test_many_items_are_answered_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fitted("ease")
    at_once = model.similar_items(TRAIN.items.values, 5)
    sizes: list[int] = []
    whole = EASE.similarities

    def counted(self: EASE, item_rows: ItemRows) -> Scores:
        sizes.append(len(item_rows))
        return whole(self, item_rows)

    monkeypatch.setattr(EASE, "similarities", counted)
    monkeypatch.setattr("loca.evaluation.recommend.block_rows", lambda *_, **__: 20)
    in_blocks = model.similar_items(TRAIN.items.values, 5)
    assert sizes == [20, 20, 8]
    np.testing.assert_array_equal(in_blocks.item_rows, at_once.item_rows)
    np.testing.assert_array_equal(in_blocks.scores, at_once.scores)


# What similarity means


@pytest.mark.parametrize("denoising", [0.0, 0.5])
def test_that_of_ease_is_the_partial_correlation_of_the_regularised_precision_matrix(
    denoising: float,
) -> None:
    matrix = random_matrix(1)
    weights = np.random.default_rng(2).uniform(0.5, 3, 60)
    model = EASE(l2=3.0, denoising=denoising).fit(matrix, user_weights=weights)
    dense = matrix.toarray().astype(np.float64)
    gram = dense.T @ np.diag(weights) @ dense
    precision = np.linalg.inv(gram + np.diag(3.0 + denoising / (1 - denoising) * np.diag(gram)))
    scale = np.sqrt(np.diag(precision))
    expected = -precision / np.outer(scale, scale)
    np.fill_diagonal(expected, 1)
    np.testing.assert_allclose(model.similarities(range(12)), expected, atol=1e-5)


def test_that_of_ease_is_the_cosine_of_what_all_other_items_leave_unexplained() -> None:
    matrix = random_matrix(3)
    model = EASE(l2=2.0).fit(matrix)
    # A ridge is a regression on a few more users, each with one item of value √l2.
    users = np.concatenate([matrix.toarray(), np.sqrt(2.0) * np.eye(12)]).astype(np.float64)
    for first, second in [(0, 1), (4, 9), (11, 2)]:
        others = np.delete(users, [first, second], axis=1)
        regression = LinearRegression(fit_intercept=False)
        left = [
            users[:, item] - regression.fit(others, users[:, item]).predict(others)
            for item in (first, second)
        ]
        expected = cosine_similarity(left)[0, 1]
        assert model.similarities([first])[0, second] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("make", [csr_array, np.array])
def test_weights_give_the_root_of_their_product_where_both_have_one_sign(
    make: Callable[[Any], Any],
) -> None:
    model = EASE().fit(random_matrix(0, items=4))
    weights = [[0, 0.5, -0.1, 3], [0.08, 0, 0, 0.4], [-0.4, 0.2, 0, 0], [2, -0.1, 0, 0]]
    model.weights_ = make(np.array(weights, dtype=np.float32))
    expected = [[1, 0.2, -0.2, 1], [0.2, 1, 0, 0], [-0.2, 0, 1, 0], [1, 0, 0, 1]]
    np.testing.assert_allclose(model.similarities([0, 1, 2, 3]), expected, atol=1e-7)


def test_that_of_item_knn_is_the_cosine_where_one_is_a_neighbour_of_the_other() -> None:
    matrix = random_matrix(4)
    model = ItemKNN(neighbours=3, shrinkage=2.0).fit(matrix)
    dense = matrix.toarray().astype(np.float64)
    lengths = np.sqrt((dense**2).sum(axis=0))
    cosines = dense.T @ dense / (np.outer(lengths, lengths) + 2.0)
    np.fill_diagonal(cosines, 0)
    is_near = np.zeros_like(cosines, dtype=bool)
    for item in range(12):
        is_near[np.argsort(-cosines[:, item], kind="stable")[:3], item] = True
    expected = np.where(is_near | is_near.T, cosines, 0)
    np.fill_diagonal(expected, 1)
    np.testing.assert_allclose(model.similarities(range(12)), expected, atol=1e-6)


def test_an_item_that_nobody_has_is_similar_to_none() -> None:
    matrix = csr_array(np.array([[1, 1, 0], [1, 1, 0], [0, 1, 0]], dtype=np.float32))
    for model in (EASE(l2=1.0), ItemKNN(), SLIM(l1=0.1, l2=1.0), NextEASE(), WMF(factors=2)):
        model.fit(matrix)
        assert model.similarities([2]).tolist() == [[0, 0, 1]], type(model).__name__
        assert model.similar_items(2, 2).items.tolist() == [[None, None]]
    assert ItemKNN().fit(matrix).similar_items(0, 2).items.tolist() == [[1, None]]


def test_that_of_next_ease_says_what_follows_and_not_what_came_before() -> None:
    parts = (np.ones(9), [0, 1, 2, 0, 1, 2, 3, 0, 1], [0, 3, 6, 9])
    data = Interactions.from_matrix(csr_array(parts, shape=(3, 4)))
    model = NextEASE(l2=1.0, next_count=1, ordinary=0.0, denoising=0.0).fit(data)
    found = model.similarities([0, 1, 2])
    assert found[0, 1] == found[1, 2] == 1
    assert model.similar_items([0, 1], 1).items.tolist() == [[1], [2]]
    assert found[1, 0] < 1e-6
    weights = model.weights_[0]
    np.testing.assert_allclose(found[0, 1:], (weights / np.abs(weights).max())[1:], rtol=1e-6)


def test_that_of_wmf_is_the_cosine_of_factors() -> None:
    model: Any = fitted("wmf")
    expected = cosine_similarity(model.item_factors_.astype(np.float64))
    np.testing.assert_allclose(model.similarities(range(ITEMS)), expected, atol=1e-6)


@pytest.mark.parametrize(("shared", "local"), [(6, 0), (0, 3), (4, 2)])
def test_that_of_sglsvd_is_the_cosine_of_the_mean_item_to_item_weights(
    shared: int, local: int
) -> None:
    model = SGLSVD(clusters=3, global_rank=shared, local_rank=local).fit(TRAIN)
    weights = model.shared_.astype(np.float64) @ model.shared_.T
    for cluster in range(3):
        directions = model.local_[:, cluster].astype(np.float64)
        weights += directions @ directions.T / 3
    scale = np.sqrt(np.diag(weights))
    expected = weights / np.outer(scale, scale)
    np.testing.assert_allclose(model.similarities(range(ITEMS)), expected, atol=1e-5)


def test_that_of_llorma_is_the_cosine_of_weighted_local_factors_side_by_side() -> None:
    model: Any = fitted("llorma")
    _, kernel = model._local_on_device()
    weighted = model.local_factors_ * kernel.cpu().numpy().T[:, :, None]  # (models, items, factors)
    side_by_side = weighted.transpose(1, 0, 2).reshape(ITEMS, -1)
    found = model.similarities(range(ITEMS))
    np.testing.assert_allclose(found, cosine_similarity(side_by_side), atol=1e-5)


def test_that_of_llorma_is_the_global_models_where_no_local_model_covers_both_items() -> None:
    model: Any = LLORMA(anchors=2, bandwidth=0.7, **FACTORS).fit(TRAIN)
    _, kernel = model._local_on_device()
    is_covered = (kernel @ kernel.T > 0).cpu().numpy()
    assert 0.05 < is_covered.mean() < 0.95
    found = model.similarities(range(ITEMS))
    expected = model.global_.similarities(range(ITEMS))
    np.testing.assert_array_equal(found[~is_covered], expected[~is_covered])
    assert np.abs(found - expected)[is_covered].max() > 0.01


@pytest.mark.parametrize(
    "name", ["mult-vae", "mult-vae, with a hidden layer", "mult-dae", "rec-vae", "cdae"]
)
def test_that_of_a_network_is_the_cosine_of_its_last_weights(name: str) -> None:
    model: Any = fitted(name)
    table = model.network_.output_table.detach().cpu().numpy().astype(np.float64)
    np.testing.assert_allclose(
        model.similarities([2, 9]), cosine_similarity(table)[[2, 9]], atol=1e-6
    )


@pytest.mark.parametrize("name", ["loca of ease", "loca of mult-vae", "loca of item-knn over ease"])
def test_that_of_a_loca_is_that_of_its_global_model(name: str) -> None:
    model: Any = fitted(name)
    np.testing.assert_array_equal(model.similarities([2, 9]), model.global_.similarities([2, 9]))


def test_that_of_an_ensemble_is_the_mean_over_its_members() -> None:
    model: Any = fitted("ensemble of ease")
    members = [member.similarities([2, 9]) for member in model.models_.models_]
    np.testing.assert_allclose(model.similarities([2, 9]), np.mean(members, axis=0), atol=1e-6)


@pytest.mark.parametrize(
    ("base", "atol"), [(EASE(l2=20.0), 1e-4), (NextEASE(l2=20.0), 1e-3), (MultVAE(**VAE), 1e-3)]
)
def test_an_ensemble_has_the_same_similarities_however_it_is_stored(
    base: Recommender, atol: float
) -> None:
    together: Engine = Differences() if base.is_linear else Stacked()
    stored, separate = (
        Ensemble(base=base, models=2, engine=engine).fit(TRAIN).similarities([2, 9])
        for engine in (together, Loop())
    )
    np.testing.assert_allclose(stored, separate, atol=atol)


def test_models_in_shards_have_the_similarities_of_the_same_models_in_one_place() -> None:
    models = [EASE(l2=l2).fit(TRAIN) for l2 in (5.0, 20.0, 80.0)]
    shards = ShardedModels.of([SeparateModels.of(models[:1]), SeparateModels.of(models[1:])])
    for number, model in enumerate(models):
        np.testing.assert_array_equal(
            shards.similarities_of(number, np.array([4])), model.similarities([4])
        )


def test_that_of_a_blend_is_the_mean_by_the_weights_of_the_parts_that_know_one() -> None:
    parts = [EASE(l2=20.0), Popularity(), ItemKNN(neighbours=10)]
    columns = [(0, 1.0, 0.2), (1, 1.0, 0.5), (2, 1.0, 0.1), (0, 0.5, 0.2)]
    blend = Blend(parts=parts, columns=columns).fit(TRAIN, validation=VALIDATION)
    ease, item_knn = (part.fit(TRAIN).similarities([2, 9]) for part in (parts[0], parts[2]))
    np.testing.assert_allclose(blend.similarities([2, 9]), 0.8 * ease + 0.2 * item_knn, atol=1e-6)


def test_that_of_auto_is_that_of_the_chosen_model() -> None:
    model: Any = fitted("auto")
    np.testing.assert_array_equal(model.similarities([2, 9]), model.model_.similarities([2, 9]))


# Who knows none


def test_popularity_is_refused_with_what_to_take_instead() -> None:
    model = Popularity().fit(TRAIN)
    assert model.similarity_kind is None
    for ask in (model.similar_items, lambda _: model.similarities([3])):
        with pytest.raises(
            DataError, match="Popularity knows no similarity of items; take another"
        ):
            ask("i03")


@pytest.mark.parametrize(
    "model",
    [
        Loca(base=Popularity(), communities=Kernels(n=2)),
        Ensemble(base=Popularity(), models=2),
        Blend(parts=[Popularity(), Popularity(window=None)]),
        Auto(chosen=Popularity()),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_model_made_of_such_alone_is_refused(model: Recommender) -> None:
    kind = type(model).__name__
    with pytest.raises(DataError, match=f"{kind} knows no similarity of items"):
        model.fit(TRAIN).similar_items("i03")


@dataclass(kw_only=True, eq=False, repr=False)
class Counts(Recommender):
    """Somebody's own model, which knows nothing of similarity."""

    counts_: Any = learned("items")

    def _fit(self, data: Any) -> None:
        self.counts_ = np.asarray(data.matrix.sum(axis=0), dtype=np.float32)

    def score(self, histories: csr_array) -> Scores:
        return np.tile(self.counts_, (histories.shape[0], 1))


@dataclass(kw_only=True, eq=False, repr=False)
class NextDoor(Counts):
    """Somebody's own model, by which an item is similar to the next one alone."""

    similarity_kind = "directed"

    def _similarities(self, item_rows: ItemRows) -> Scores:
        next_rows = (item_rows + 1) % self.count_items()
        return np.eye(self.count_items(), dtype=np.float32)[next_rows] / 2


def test_an_own_model_is_told_what_to_implement_and_what_to_call_instead() -> None:
    model = Counts().fit(TRAIN)
    with pytest.raises(DataError, match="Counts knows no similarity of items") as refused:
        model.similar_items("i03")
    for advice in (r"recommend([[item]])", "`similarity_kind`", "`_similarities`"):
        assert advice in str(refused.value)


def test_an_own_model_that_implements_it_lists_similar_items_alone_and_in_a_blend() -> None:
    model = NextDoor().fit(TRAIN)
    assert model.similar_items(["i03", "i47"], 2).items.tolist() == [["i04", None], ["i00", None]]
    blend = Blend(parts=[NextDoor(), Counts()]).fit(TRAIN)
    assert blend.similarity_kind == "directed"
    np.testing.assert_array_equal(blend.similarities([3]), model.similarities([3]))


def test_what_is_no_model_of_ours_is_refused_with_what_to_call_instead() -> None:
    class Scores:
        def score(self, histories: csr_array) -> np.ndarray:
            return np.zeros(histories.shape)

    with pytest.raises(
        DataError, match="expected a model with a method `similarities`, found Scores"
    ):
        similar_items(Scores(), [3])
