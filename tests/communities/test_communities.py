"""Communities and embeddings: weights to train and to answer, who is covered, where embeddings come from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from changed_states import changed
from loca.communities.anchors import choose_anchors
from loca.communities.embeddings import GivenEmbeddings, TruncatedSVD, embed_users
from loca.communities.geometry import Quantile, angular_distances, unit_rows
from loca.communities.kernel import KernelCommunities, Kernels
from loca.communities.memberships import top_k_weights
from loca.data.splits import Split
from loca.errors import ConfigError, DataError, ModelFileError, NotFittedError
from loca.local.loca import Loca
from loca.models.ease import EASE
from loca.models.recommender import TrainingData
from loca.persistence.learned import restored, state_of
from loca.persistence.manifest import ModelState
from loca.typing import FloatArray


def on_a_circle(*degrees: float) -> FloatArray:
    angles = np.deg2rad(degrees)
    return unit_rows(np.column_stack([np.cos(angles), np.sin(angles)]))


def two_communities() -> KernelCommunities:
    """Centres at 0 and 90 degrees, trained within 72 degrees (0.8), answering within 45 degrees (0.5)."""
    return KernelCommunities(
        embedder=TruncatedSVD(dimensions=2).fit(csr_array(np.eye(2, dtype=np.float32))),
        anchors=np.array([0, 1]),
        anchor_embeddings=on_a_circle(0, 90),
        train_radius=0.8,
        answer_radius=0.5,
        kernel="epanechnikov",
        coverage=1.0,
    )


def kernels_around(embeddings: FloatArray, **params: Any) -> KernelCommunities:
    """Find communities of users who each have one item of their own, and these embeddings."""
    data = TrainingData.of(csr_array(np.eye(len(embeddings), dtype=np.float32)))
    embedding = GivenEmbeddings(embeddings=embeddings, ridge=1e-6)
    finder = Kernels(embedding=embedding, **params)
    return finder.find(data, base=EASE(), global_model=EASE(), seed=0)


def test_train_weights_follow_the_wide_kernel_and_answer_weights_the_narrow_one() -> None:
    users = on_a_circle(0, 36, 63, 180)
    np.testing.assert_allclose(
        two_communities().train_weights(users, 0),
        [0.75, 0.75 * (1 - (0.4 / 0.8) ** 2), 0.75 * (1 - (0.7 / 0.8) ** 2), 0],
        atol=1e-5,
    )
    np.testing.assert_allclose(
        two_communities().answer_weights(users).toarray(),
        [
            [0.75, 0],
            [0.75 * (1 - (0.4 / 0.5) ** 2), 0],
            [0, 0.75 * (1 - (0.3 / 0.5) ** 2)],
            [0, 0],
        ],
        atol=1e-5,
    )


def test_answer_weights_of_many_users_are_those_of_each_block() -> None:
    users = unit_rows(np.random.default_rng(0).normal(size=(20_000, 2)))
    whole = two_communities().answer_weights(users)
    # Products of other shapes may be summed in another order.
    for part in (slice(0, 5_000), slice(5_000, 20_000)):
        np.testing.assert_allclose(
            two_communities().answer_weights(users[part]).toarray(),
            whole[part].toarray(),
            atol=1e-5,
        )
    assert two_communities().answer_weights(np.zeros((0, 2))).shape == (0, 2)


def test_coverage_is_the_share_of_users_with_an_answer() -> None:
    users = on_a_circle(0, 5, 10, 90, 200)
    communities = kernels_around(users, n=1, train_bandwidth=1.0, answer_bandwidth=0.2)
    assert communities.anchors.tolist() == [0]
    assert communities.coverage == pytest.approx(0.6)


def test_bandwidths_as_quantiles_are_kept_in_units() -> None:
    communities = kernels_around(
        on_a_circle(0, 90, 135), n=1, train_bandwidth=Quantile(1.0), answer_bandwidth=Quantile(0.5)
    )
    assert communities.train_radius == pytest.approx(1.5, abs=1e-5)
    assert communities.answer_radius == pytest.approx(1.0, abs=1e-5)


def test_wrong_bandwidths_and_embeddings_are_refused() -> None:
    with pytest.raises(ConfigError, match="answer_bandwidth: expected a number above 0"):
        Kernels(answer_bandwidth=0.0)
    with pytest.raises(DataError, match="NaN or infinity"):
        two_communities().train_weights(np.array([[np.nan, 1.0]], np.float32), 0)
    with pytest.raises(DataError, match="expected 2 dimensions, found 3"):
        two_communities().answer_weights(np.ones((1, 3), np.float32))


def test_a_file_of_kernels_that_do_not_fit_is_refused() -> None:
    state = state_of(two_communities())
    faults: list[tuple[str, dict[str, Any]]] = [
        ("anchor_embeddings: expected shape", {"anchor_embeddings": on_a_circle(0, 90, 180)}),
        (
            "anchor_embeddings: expected finite",
            {"anchor_embeddings": np.full((2, 2), np.nan, "f4")},
        ),
        ("anchors: expected shape .* of int64", {"anchors": np.zeros(2, np.float32)}),
        ("an anchor has a row below 0", {"anchors": np.array([0, -1])}),
        ("gives 2 dimensions, the anchors have 3", {"anchor_embeddings": np.eye(2, 3, dtype="f4")}),
        ("train_radius: expected a number above 0", {"train_radius": 0.0}),
        ("answer_radius: expected a number above 0", {"answer_radius": float("inf")}),
        ("kernel: expected the name of a kernel, found 'gauss'", {"kernel": "gauss"}),
        ("kernel: expected the name of a kernel, found \\[\\]", {"kernel": []}),
        ("embedder: expected a Embedder, found EASE", {"embedder": EASE()}),
        ("anchors is missing", {"anchors": None}),
    ]
    for message, change in faults:
        with pytest.raises(ModelFileError, match=message):
            restored(KernelCommunities, {}, changed(state, change))


def test_the_svd_spans_what_the_histories_span(planted_split: Split) -> None:
    matrix = planted_split.train.matrix()
    embedder = TruncatedSVD(dimensions=10, seed=1).fit(matrix)
    rows = matrix.toarray()
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    _, _, right = np.linalg.svd(rows, full_matrices=False)
    mine = embedder.embed(matrix) @ embedder.directions_.T
    best = rows @ right[:10].T @ right[:10]
    assert np.linalg.norm(rows - mine) < 1.02 * np.linalg.norm(rows - best)


def test_the_svd_takes_no_more_dimensions_than_there_are() -> None:
    embedder = TruncatedSVD(dimensions=50).fit(csr_array(np.eye(4, 3, dtype=np.float32)))
    assert embedder.embed(csr_array(np.eye(2, 3, dtype=np.float32))).shape == (2, 3)


def test_given_embeddings_are_repeated_and_carried_over_to_new_histories() -> None:
    rng = np.random.default_rng(3)
    matrix = csr_array(
        (rng.random((300, 20)) < 0.3).astype(np.float32) + np.eye(300, 20, dtype=np.float32)
    )
    item_places = rng.normal(size=(20, 4))
    given = unit_rows(matrix @ item_places)
    embedder = GivenEmbeddings(embeddings=given, ridge=1e-3).fit(matrix)
    assert embedder.mean_cosine_ > 0.95
    strangers = csr_array(
        (rng.random((50, 20)) < 0.3).astype(np.float32) + np.eye(50, 20, dtype=np.float32)
    )
    closeness = (unit_rows(embedder.embed(strangers)) * unit_rows(strangers @ item_places)).sum(
        axis=1
    )
    assert closeness.mean() > 0.95


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_user_of_weight_2_counts_as_two_equal_users_in_what_embeds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = (rng.random((60, 12)) < 0.4) * rng.uniform(0.5, 2, (60, 12)) + np.eye(60, 12)
    matrix = csr_array(rows.astype(np.float32))
    weights = rng.integers(0, 4, 60)
    repeated = np.repeat(np.arange(60), weights)
    places = rng.normal(size=(60, 3))

    svd = TruncatedSVD(dimensions=4)
    weighted = svd.fit(matrix, user_weights=weights).embed(matrix)
    expected = svd.fit(csr_array(matrix[repeated])).embed(matrix)
    signs = np.sign((weighted * expected).sum(axis=0))
    np.testing.assert_allclose(weighted * signs, expected, atol=1e-4)
    unweighted = svd.fit(matrix).embed(matrix)
    assert np.abs(np.abs(unweighted) - np.abs(expected)).max() > 0.01

    given = GivenEmbeddings(embeddings=places).fit(matrix, user_weights=weights).embed(matrix)
    twice = GivenEmbeddings(embeddings=places[repeated]).fit(csr_array(matrix[repeated]))
    np.testing.assert_allclose(given, twice.embed(matrix), atol=1e-4)
    unweighted = GivenEmbeddings(embeddings=places).fit(matrix).embed(matrix)
    assert np.abs(unweighted - given).max() > 0.01


def test_user_weights_reach_the_communities_of_a_loca(grouped_split: Split) -> None:
    weights = np.random.default_rng(0).integers(0, 4, grouped_split.train.n_users)
    matrix = grouped_split.train.matrix()
    # Without order, so that repeated users are users like all others.
    repeated = csr_array(matrix[np.repeat(np.arange(matrix.shape[0]), weights)])
    kernels = Kernels(n=4, embedding=TruncatedSVD(dimensions=4), train_bandwidth=1.0)
    model = Loca(base=EASE(l2=50.0), communities=kernels)
    weighted = model.fit(matrix, user_weights=weights).local_.communities
    assert (weights[weighted.anchors] > 0).all()
    positions = np.abs(weighted.locate(matrix))
    expected = np.abs(model.fit(repeated).local_.communities.locate(matrix))
    np.testing.assert_allclose(positions, expected, atol=1e-3)


def test_embeddings_of_many_users_are_unit_rows_of_each_history() -> None:
    matrix = csr_array((np.random.default_rng(0).random((9_000, 8)) < 0.3).astype(np.float32))
    embedder = TruncatedSVD(dimensions=6).fit(matrix)
    np.testing.assert_allclose(
        embed_users(embedder, matrix), unit_rows(embedder.embed(matrix)), atol=1e-5
    )
    assert embed_users(embedder, csr_array(matrix[:0])).shape == (0, 6)


def test_wrong_embeddings_are_refused() -> None:
    matrix = csr_array(np.eye(4, dtype=np.float32))
    with pytest.raises(DataError, match="expected 4 rows, one per user, found 3"):
        GivenEmbeddings(embeddings=np.ones((3, 2))).fit(matrix)
    with pytest.raises(DataError, match="NaN or infinity"):
        GivenEmbeddings(embeddings=np.full((4, 2), np.nan))
    with pytest.raises(ConfigError, match="ridge: expected a number above 0"):
        GivenEmbeddings(embeddings=np.ones((4, 2)), ridge=0)
    with pytest.raises(ConfigError, match="dimensions: expected a whole number ≥ 1"):
        TruncatedSVD(dimensions=0)
    for unfitted in (TruncatedSVD(), GivenEmbeddings(embeddings=np.ones((4, 2)))):
        with pytest.raises(NotFittedError):
            unfitted.embed(matrix)
    with pytest.raises(
        ModelFileError, match=r"TruncatedSVD: directions: expected shape .*, items × directions"
    ):
        restored(TruncatedSVD, {}, ModelState(arrays={"directions": np.ones(3)}))
    with pytest.raises(
        ModelFileError,
        match=r"GivenEmbeddings: item_vectors: expected shape .*, items × dimensions",
    ):
        restored(
            GivenEmbeddings,
            {"embeddings": np.ones((1, 1))},
            ModelState(arrays={"item_vectors": np.ones(3)}, facts={"mean_cosine": 1.0}),
        )


def random_rows(seed: int, users: int, dimensions: int) -> FloatArray:
    return unit_rows(np.random.default_rng(seed).normal(size=(users, dimensions)))


def test_coverage_covers_more_than_a_random_choice() -> None:
    rows = random_rows(3, 400, 8)
    covered = {}
    for selection in ("coverage", "random"):
        chosen = choose_anchors(rows, 10, selection, 0.45, seed=1)  # type: ignore[arg-type]
        covered[selection] = (angular_distances(rows, rows[chosen]) < 0.45).any(axis=1).mean()
    assert covered["coverage"] > covered["random"]


@pytest.mark.parametrize("selection", ["coverage", "random", "kmeans", "farthest"])
def test_anchors_are_different_users_and_the_same_for_the_same_seed(selection: str) -> None:
    rows = random_rows(4, 60, 5)
    chosen = choose_anchors(rows, 60, selection, 0.5, seed=2)  # type: ignore[arg-type]
    assert sorted(chosen) == list(range(60))
    np.testing.assert_array_equal(chosen, choose_anchors(rows, 60, selection, 0.5, seed=2))  # type: ignore[arg-type]


def test_random_anchors_change_with_the_seed() -> None:
    rows = random_rows(4, 60, 5)
    assert (
        choose_anchors(rows, 5, "random", 0.5, 1).tolist()
        != choose_anchors(rows, 5, "random", 0.5, 2).tolist()
    )


def test_the_farthest_user_comes_next() -> None:
    angles = np.deg2rad([0, 10, 170, 90])
    rows = unit_rows(np.column_stack([np.cos(angles), np.sin(angles)]))
    chosen = choose_anchors(rows, 4, "farthest", 0.5, seed=0).tolist()
    distances = angular_distances(rows, rows)
    for place in range(1, 4):
        nearest = distances[:, chosen[:place]].min(axis=1)
        assert nearest[chosen[place]] == pytest.approx(
            max(nearest[u] for u in range(4) if u not in chosen[:place])
        )


@pytest.mark.parametrize("whole", [50_000, 50])
def test_k_means_anchors_stand_in_different_clusters(whole: int) -> None:
    rng = np.random.default_rng(0)
    centres = np.eye(4)
    rows = unit_rows(np.repeat(centres, 30, axis=0) + rng.normal(0, 0.05, (120, 4)))
    assert sorted(
        choose_anchors(rows, 4, "kmeans", 0.5, seed=0, users_for_batches=whole) // 30
    ) == [0, 1, 2, 3]


def test_an_unknown_way_of_choosing_and_an_unknown_kernel_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"anchors: expected 'coverage' or .*, found 'farthst'"):
        Kernels(anchors="farthst")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"kernel: expected 'epanechnikov' or .*, found 'gauss'"):
        Kernels(kernel="gauss")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"embedding: expected an embedder .*, found the class"):
        Kernels(embedding=TruncatedSVD)  # type: ignore[arg-type]


def test_more_anchors_than_users_are_refused() -> None:
    with pytest.raises(DataError, match="n: expected at most 10 anchors, one a user, found 11"):
        choose_anchors(random_rows(0, 10, 3), 11, "coverage", 0.5, 0)
    with pytest.raises(ConfigError, match="n: expected a whole number ≥ 1, found 0"):
        choose_anchors(random_rows(0, 10, 3), 0, "coverage", 0.5, 0)


@given(
    # Few different weights, so that many are equal.
    st.integers(1, 7).flatmap(
        lambda width: st.lists(
            st.lists(st.integers(0, 4), min_size=width, max_size=width).filter(any),
            min_size=1,
            max_size=5,
        )
    ),
    st.integers(1, 8),
)
def test_the_strongest_weights_stay_and_sum_to_1(rows: list[list[int]], count: int) -> None:
    weights = np.array(rows, dtype=np.float32)
    before, expected = weights.copy(), np.zeros(weights.shape)
    for row, out in zip(weights, expected, strict=True):
        chosen = sorted(range(len(row)), key=lambda place: (-row[place], place))[:count]
        out[chosen] = row[chosen] / row[chosen].sum()
    strongest = top_k_weights(weights, count)
    assert strongest.dtype == np.float32
    np.testing.assert_allclose(strongest, expected, rtol=1e-6)
    np.testing.assert_array_equal(weights, before)  # what was given stays as it was
