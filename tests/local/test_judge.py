"""What is chosen on validation once models are trained: between alternatives of communities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

import loca
from loca.communities.finder import Communities
from loca.communities.kernel import Kernels
from loca.communities.mixture import TEMPERATURES, Mixtures
from loca.data.interactions import Interactions
from loca.data.splits import HeldOut, Split
from loca.evaluation.evaluate import evaluate, mean_value
from loca.evaluation.metrics import Metric
from loca.local.combiner import SHARES, FixedShare, GlobalShare
from loca.local.judge import Judge
from loca.local.loca import Loca
from loca.local.local_models import SeparateModels
from loca.models.ease import EASE
from loca.models.popularity import Popularity
from loca.models.recommender import TrainingData, clone
from loca.typing import FloatArray

N_USERS = 400
TARGET, OTHER = N_USERS, N_USERS + 1  # items; every user has one item of the user's own before


def linear(item: int, score: float = 1.0) -> EASE:
    """Return a model that scores one item for everybody, and no other."""
    model = EASE()
    model.weights_ = np.zeros((N_USERS + 2, N_USERS + 2), np.float32)
    model.weights_[:N_USERS, item] = score
    return model


@pytest.fixture(scope="module")
def one_target() -> HeldOut:
    """Everybody is asked for the same item, which nobody has."""
    items = np.arange(N_USERS + 2)
    histories = csr_array(np.eye(N_USERS, N_USERS + 2, dtype=np.float32))
    targets = csr_array(np.tile(items == TARGET, (N_USERS, 1)).astype(np.float32))
    return HeldOut(Interactions.from_matrix(histories), Interactions.from_matrix(targets))


@dataclass(frozen=True, eq=False, kw_only=True)
class Answered(Communities):
    """Two communities; some users are answered by the first, all others by the second."""

    by_first: tuple[bool, ...]
    others: tuple[tuple[bool, ...], ...] = ()

    def __len__(self) -> int:
        return 2

    def locate(self, histories: csr_array) -> FloatArray:
        """Return the number of the user, which is that of the item."""
        return histories.indices[:, None].astype(np.float32)

    def train_weights(self, positions: FloatArray, community: int) -> FloatArray:
        return np.ones(len(positions), np.float32)

    def answer_weights(self, positions: FloatArray) -> csr_array:
        by_first = np.array(self.by_first)[positions[:, 0].astype(int)]
        return csr_array(np.column_stack([by_first, ~by_first]).astype(np.float32))

    def alternatives(self) -> Sequence[Communities]:
        return [Answered(by_first=users) for users in self.others] or [self]


def chosen_of(
    right: Sequence[np.ndarray], one_target: HeldOut, epochs: int | None, **params: Any
) -> int:
    """Return the number of the alternative that is chosen; `right` says whom each answers rightly."""
    others = tuple(tuple(users.tolist()) for users in right)
    communities = Answered(by_first=others[0], others=others)
    models = SeparateModels.of([linear(TARGET), linear(OTHER)])
    models.epochs_ = epochs
    judge = Judge(one_target, Metric.of("ndcg@1"), params.get("global_model", linear(OTHER)))
    combiner = params.get("combiner", FixedShare(0.0))
    chosen: Any = judge.locate(communities).calibrated(models, combiner)
    return others.index(chosen.by_first)


def answered(share: float, seed: int = 0) -> np.ndarray:
    """Draw whom an alternative answers rightly."""
    return np.random.default_rng(seed).permutation(N_USERS) < share * N_USERS


def test_networks_take_the_flattest_within_noise_and_solved_models_the_best(
    one_target: HeldOut,
) -> None:
    best = answered(0.6)
    alike = best.copy()
    alike[np.flatnonzero(best)[:20]] = False
    alike[np.flatnonzero(~best)[:19]] = True  # one right answer less in all
    worse = answered(0.4)
    right = [worse, best, alike, worse]
    assert chosen_of(right, one_target, epochs=3) == 2
    assert chosen_of(right, one_target, epochs=None) == 1
    # Where all are alike networks take the flattest, solved models the first.
    assert chosen_of([worse, worse], one_target, epochs=None) == 0


@given(st.lists(st.integers(0, N_USERS), min_size=1, max_size=5))
def test_solved_models_take_the_first_of_the_best(one_target: HeldOut, counts: list[int]) -> None:
    right = [np.arange(N_USERS) < count for count in counts]
    number = chosen_of(right, one_target, epochs=None)
    assert counts[number] == max(counts)


@given(st.lists(st.sampled_from([0, 100, 200, 300, 400]), min_size=1, max_size=5, unique=True))
def test_networks_take_the_best_where_it_is_surely_so(
    one_target: HeldOut, counts: list[int]
) -> None:
    right = [np.arange(N_USERS) < count for count in counts]
    assert counts[chosen_of(right, one_target, epochs=2)] == max(counts)


def test_solved_models_are_compared_at_the_best_share_of_the_global_model(
    one_target: HeldOut,
) -> None:
    # The global model is right for everybody: with a share of it all alternatives are equally good.
    right = [answered(0.4), answered(0.6)]
    options: dict[str, Any] = {"global_model": linear(TARGET, 10.0)}
    assert chosen_of(right, one_target, None, combiner=GlobalShare(), **options) == 0
    assert chosen_of(right, one_target, None, combiner=FixedShare(0.0), **options) == 1


def test_what_leaves_no_choice_is_taken_as_it_is(one_target: HeldOut) -> None:
    communities = Answered(by_first=(True,) * N_USERS)
    models = SeparateModels.of([linear(TARGET), linear(OTHER)])
    judge = Judge(one_target, Metric.of("ndcg@1"), linear(OTHER))
    assert judge.locate(communities).calibrated(models, GlobalShare()) is communities


def test_solved_models_have_the_temperature_of_the_best_validation_score(
    planted_split: Split,
) -> None:
    validation = planted_split.validation
    mixtures = Mixtures(n=4, mixtures=1)
    model = Loca(base=EASE(l2=20.0), communities=mixtures, combiner=FixedShare(0.0))
    scores = {}
    for temperature in (*TEMPERATURES, None):
        fitted = clone(model, communities__temperature=temperature)
        fitted.fit(planted_split.train, validation=validation)
        scores[temperature] = mean_value(fitted.score, validation)
    assert scores[None] == max(scores.values())
    assert scores[None] > scores[1024.0]
    best = max(TEMPERATURES, key=lambda temperature: scores[temperature])
    assert fitted.local_.communities.temperature == best
    assert fitted.local_.finder.temperature == best


def test_the_value_of_answers_is_that_of_the_models_scores(planted_split: Split) -> None:
    data = TrainingData.of(planted_split.train, device="cpu")
    validation = planted_split.validation
    model = Loca(base=EASE(l2=20.0), communities=Kernels(n=3, answer_bandwidth=0.5))
    model.fit(planted_split.train, validation=validation)
    metric = Metric.of("recall@10")
    judge = Judge(validation, metric, model.global_)
    local = model.local_
    panel = judge.locate(local.communities).panel()
    values = evaluate(model, validation, at=(10,)).values["recall@10"]
    np.testing.assert_allclose(panel.values(local.models, local.combiner), values, atol=1e-6)
    np.testing.assert_allclose(local.values(judge), values, atol=1e-6)
    alone = evaluate(model.global_, validation, at=(10,)).values["recall@10"]
    np.testing.assert_allclose(judge.values_of_global_model(), alone, atol=1e-6)
    combiners = [FixedShare(share) for share in SHARES]
    for combiner, score in zip(combiners, panel.mean_values(local.models, combiners), strict=True):
        other = model.with_global_share(combiner.share)
        expected = evaluate(other, validation, at=(10,)).means()["recall@10"]
        assert score == pytest.approx(expected, abs=1e-6)
    assert Judge.of(data, Popularity()) is None
    assert isinstance(model, loca.Recommender)
