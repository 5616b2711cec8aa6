"""The contract of every finder, those of the package and one of a stranger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from loca.communities.best_of import BestOf
from loca.communities.embeddings import GivenEmbeddings, TruncatedSVD
from loca.communities.finder import Communities, CommunityFinder
from loca.communities.geometry import Quantile
from loca.communities.kernel import Kernels
from loca.communities.mixture import Mixtures
from loca.communities.multinomial_mixture import MultinomialMixture
from loca.communities.random_groups import RandomGroups
from loca.models.mult_vae import MultVAE
from loca.models.recommender import Recommender, TrainingData
from loca.paper.permuted import Permuted
from loca.persistence.learned import learned
from loca.testing import check_finder
from loca.typing import FloatArray, IntArray

NARROW: dict[str, Any] = {"train_bandwidth": Quantile(0.6), "answer_bandwidth": Quantile(0.2)}
FINDERS: dict[str, CommunityFinder] = {
    "kernels": Kernels(n=4),
    **{
        f"kernels by {anchors}": Kernels(n=4, anchors=anchors, **NARROW)
        for anchors in ("coverage", "random", "kmeans", "farthest")
    },
    "triangular kernels": Kernels(n=3, kernel="triangular", answer_bandwidth=0.3),
    "kernels of an SVD": Kernels(n=3, embedding=TruncatedSVD(dimensions=4)),
    "kernels of given places": Kernels(
        n=3,
        embedding=GivenEmbeddings(embeddings=np.random.default_rng(0).normal(size=(90, 3))),
    ),
    "kernels of a network": Kernels(n=3, embedding=MultVAE(latent=4, epochs=2)),
    "kernels of memberships": Kernels(n=3, embedding=MultinomialMixture(components=3)),
    "mixtures": Mixtures(n=6),
    "one mixture": Mixtures(n=3, mixtures=1, temperature=2.0, top_k=2),
    "mixtures of members alone": Mixtures(n=4, membership_weight=1.0, shared_epochs=2),
    "random groups": RandomGroups(n=6),
    "one division": RandomGroups(n=3, divisions=1, membership_weight=1.0),
    "permuted kernels": Permuted(finder=Kernels(n=4, **NARROW)),
    "permuted mixtures": Permuted(finder=Mixtures(n=4)),
    "best of its own": BestOf(n=6),
    "best of given ones": BestOf(finders=(Kernels(n=3), Mixtures(n=4), RandomGroups(n=2))),
}


@pytest.mark.parametrize("name", FINDERS)
def test_a_finder_keeps_the_contract(name: str) -> None:
    check_finder(FINDERS[name])


# -- A stranger's kind ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, kw_only=True)
class FavouriteCommunities(Communities):
    """Whoever has one of the most popular items belongs to its community."""

    items: IntArray = learned("communities", dtype=np.int64)
    sharpness: float = 1.0

    def __len__(self) -> int:
        return len(self.items)

    def locate(self, histories: csr_array) -> FloatArray:
        return np.asarray(csr_array(histories)[:, self.items].toarray(), dtype=np.float32)

    def train_weights(self, positions: FloatArray, community: int) -> FloatArray:
        return 0.2 + (positions[:, community] > 0)

    def answer_weights(self, positions: FloatArray) -> csr_array:
        return csr_array(positions)

    @property
    def supports_new_items(self) -> bool:
        return False


@dataclass(frozen=True, kw_only=True)
class Favourites(CommunityFinder):
    """Take a community for each of the most popular items."""

    n: int = 3

    def find(
        self, data: TrainingData, *, base: Recommender, global_model: Recommender, seed: int
    ) -> FavouriteCommunities:
        counts = data.user_weights @ data.matrix
        return FavouriteCommunities(items=np.argsort(-counts, kind="stable")[: self.n])


def test_a_strangers_finder_keeps_the_contract() -> None:
    check_finder(Favourites())


class MovedTogether(FavouriteCommunities):
    def locate(self, histories: csr_array) -> FloatArray:
        return super().locate(histories) + np.float32(histories.shape[0] % 7)


class WeighedBelowZero(FavouriteCommunities):
    def train_weights(self, positions: FloatArray, community: int) -> FloatArray:
        return 0.5 - positions[:, community]


class OfOtherShape(FavouriteCommunities):
    def answer_weights(self, positions: FloatArray) -> csr_array:
        return csr_array(positions.T)


class WithStoredZeros(FavouriteCommunities):
    def answer_weights(self, positions: FloatArray) -> csr_array:
        weights = csr_array(np.ones_like(positions))
        weights.data[:3] = 0
        return weights


class ChoosingForEver(FavouriteCommunities):
    def alternatives(self) -> Sequence[Communities]:
        return [self, self]


class WithoutProbabilities(FavouriteCommunities):
    divisions = 1


BROKEN: dict[str, tuple[type[FavouriteCommunities], str]] = {
    "a position depends on the other users": (
        MovedTogether,
        "a position depends on the other users",
    ),
    "a weight below 0": (WeighedBelowZero, "a train weight is below 0"),
    "other shape": (OfOtherShape, "answer weights: expected"),
    "stored zeros": (WithStoredZeros, "answer weights: expected stored numbers above 0"),
    "chooses for ever": (ChoosingForEver, "what was chosen has alternatives again"),
    "no probabilities": (WithoutProbabilities, "memberships sum to 1"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_communities_are_noticed(name: str) -> None:
    kind, message = BROKEN[name]

    @dataclass(frozen=True, kw_only=True)
    class Broken(Favourites):
        def find(self, data: TrainingData, **about: Any) -> FavouriteCommunities:
            return kind(items=super().find(data, **about).items)

    with pytest.raises(AssertionError, match=message):
        check_finder(Broken())


def test_a_finder_that_says_nothing_of_too_few_users_is_noticed() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Quiet(Favourites):
        def limited_to(self, n_users: int) -> Quiet:
            return replace(self, n=min(self.n, n_users))

    with pytest.raises(AssertionError, match=r"limited_to\(2\): expected \['communities'\]"):
        check_finder(Quiet())


def test_a_finder_that_draws_without_its_seed_is_noticed() -> None:
    rng = np.random.default_rng(0)

    @dataclass(frozen=True, kw_only=True)
    class Unsteady(Favourites):
        def find(self, data: TrainingData, **about: Any) -> FavouriteCommunities:
            return FavouriteCommunities(items=rng.permutation(data.matrix.shape[1])[: self.n])

    with pytest.raises(AssertionError, match="a second search with the same seed"):
        check_finder(Unsteady())


# -- Properties -----------------------------------------------------------------------------------


@settings(max_examples=30)
@given(
    st.sampled_from([Kernels, Mixtures, RandomGroups, BestOf]),
    st.integers(2, 60),
    st.integers(1, 60),
)
def test_a_limited_finder_never_has_more_communities_than_users(
    kind: type[CommunityFinder], n: int, n_users: int
) -> None:
    limited = kind(n=n).limited_to(n_users)
    assert 1 <= limited.n <= min(n, n_users)
    assert limited.limited_to(n_users) == limited
    # Mixtures and divisions have as many communities each; nothing else is lost.
    assert limited.n >= min(n, n_users) - 1
