"""The search for a blend's weights: cached values against the real one, planted answers, order, memory."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from loca.data.interactions import Interactions
from loca.data.recency import Recency
from loca.data.splits import HeldOut, Split, hold_last
from loca.data.synthetic import planted_communities
from loca.errors import DataError
from loca.evaluation.evaluate import mean_value
from loca.evaluation.metrics import DEFAULT_METRIC, METRICS, Metric
from loca.local.blend import POWERS, Blend
from loca.local.blend_search import (
    ScoreCache,
    powers_to_try,
    scaled_scores,
    sharpened,
    z_scores,
)
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.models.ease import EASE
from loca.models.mult_vae import MultDAE, MultVAE
from loca.models.popularity import Popularity
from loca.models.recommender import Recommender

USERS, ITEMS = 300, 80


def linear(weights: np.ndarray) -> EASE:
    """A fitted model whose scores are history · weights."""
    model = EASE()
    model.weights_ = np.ascontiguousarray(weights, dtype=np.float32)
    return model


def interactions_of(rows: list[np.ndarray], recency: Recency | None = None) -> Interactions:
    owners = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    matrix = csr_array(
        (np.ones(len(owners)), (owners, np.concatenate(rows))), shape=(len(rows), ITEMS)
    )
    numbered = Interactions.from_matrix(matrix)
    offsets = np.cumsum([0, *(len(row) for row in rows)])
    return Interactions(
        numbered.users,
        numbered.items,
        offsets,
        np.concatenate(rows).astype(np.int32),
        recency=recency,
    )


def questions(
    truth: np.ndarray, *, power: float = 1.0, recency: Recency | None = None, seed: int = 0
) -> HeldOut:
    """Random histories of 8, and as targets the 4 unseen items that history · truth puts first."""
    rng = np.random.default_rng(seed)
    histories = interactions_of([rng.permutation(ITEMS)[:8] for _ in range(USERS)], recency)
    scores = sharpened(histories.histories(), power) @ truth
    scores[histories.user_rows(), histories.item_rows] = -np.inf
    return HeldOut(histories, interactions_of(list(np.argsort(-scores, axis=1)[:, :4])))


def squares(count: int, seed: int = 1) -> list[np.ndarray]:
    return list(np.random.default_rng(seed).normal(size=(count, ITEMS, ITEMS)))


def cache_of(
    models: list[Recommender],
    held_out: HeldOut,
    metric: Metric = DEFAULT_METRIC,
    **settings: int,
) -> ScoreCache:
    columns = [(number, 1.0) for number in range(len(models))]
    given = {"cache_bytes": 10**9, "seed": 0} | settings
    by_number = dict(enumerate(models))
    return ScoreCache.of(by_number, columns, held_out, "z-score", **given, metric=metric)


def blended_by(models: list[Recommender], weights: list[float]) -> Blend:
    columns = [(number, 1.0, weight) for number, weight in enumerate(weights)]
    blend = Blend(parts=models, columns=columns)
    blend._weigh(dict(enumerate(models)), None, DEFAULT_METRIC)
    return blend


def test_two_noisy_halves_of_the_truth_find_more_than_either() -> None:
    truth, noise, other = squares(3)
    validation, test = questions(truth), questions(truth, seed=9)
    blend = Blend.of([linear(truth + noise), linear(truth + other)], validation)
    first, second = blend.earned_
    assert blend.validation_score_ > 1.1 * max(first.alone, second.alone)
    assert first.weight == pytest.approx(0.5, abs=0.1)
    # Each half is noise that the other takes away: on fresh questions too.
    assert mean_value(blend.score, test) > 1.1 * mean_value(linear(truth + noise).score, test)


def test_what_a_part_earned_is_what_the_blend_loses_without_it() -> None:
    truth, noise, other, third = squares(4)
    models = [linear(truth + noise), linear(truth + other), linear(truth + third)]
    validation = questions(truth)
    blend = Blend.of(models, validation, names=["a", "b", "c"])
    assert [one.name for one in blend.earned_] == ["a", "b", "c"]
    assert sum(one.weight for one in blend.earned_) == pytest.approx(1)
    for number, one in enumerate(blend.earned_):
        assert one.alone == pytest.approx(mean_value(models[number].score, validation), abs=1e-6)
        weights = [
            0.0 if place == number else part.weight for place, part in enumerate(blend.earned_)
        ]
        without = mean_value(blended_by(models, weights).score, validation)
        assert one.loss_without == pytest.approx(blend.validation_score_ - without, abs=1e-4)
        assert one.loss_without > 0.01


def test_a_part_that_knows_nothing_gets_no_weight_and_is_dropped() -> None:
    truth, noise, other, chance = squares(4)
    parts = [linear(chance), linear(truth + noise / 2), linear(truth + other / 2)]
    blend = Blend.of(parts, questions(truth))
    assert blend.earned_[0].weight < 0.03
    only = Blend.of([linear(chance), linear(truth)], questions(truth))
    assert only.columns_ == ((1, 1.0, 1.0),)
    assert list(only.answering()) == [1]
    assert only.earned_[0].weight == only.earned_[0].loss_without == 0.0
    assert only.earned_[1].loss_without == pytest.approx(1.0)
    assert "not used" in only.report()


def test_parts_in_another_order_are_the_same_columns_in_another_order() -> None:
    truth, noise, other, third = squares(4)
    models = [linear(truth + noise), linear(truth + 2 * other), linear(truth + third)]
    validation = questions(truth)
    found = {part: weight for part, _, weight in Blend.of(models, validation).columns_}
    turned = {part: weight for part, _, weight in Blend.of(models[::-1], validation).columns_}
    assert {2 - part: weight for part, weight in turned.items()} == pytest.approx(found, abs=1e-9)


def test_the_power_that_the_answers_were_made_with_is_found() -> None:
    (truth,) = squares(1)
    for power in (0.0, 0.5, 2.0):
        validation = questions(truth, power=power, recency=Recency(2))
        blend = Blend.of([linear(truth)], validation)
        assert blend.columns_ == ((0, power, 1.0),)
        assert blend.validation_score_ == pytest.approx(1.0)


def test_one_part_may_answer_at_two_powers() -> None:
    truth, other = squares(2)
    validation = questions(truth, power=2.0, recency=Recency(2))
    late, early = linear(truth), linear(other)
    rows = validation.history_matrix
    scores = z_scores(torch.tensor(late.score(sharpened(rows, 0.0)))) + z_scores(
        torch.tensor(late.score(sharpened(rows, 2.0)))
    )
    scores = scores.numpy()
    scores[validation.histories.user_rows(), validation.histories.item_rows] = -np.inf
    both = HeldOut(validation.histories, interactions_of(list(np.argsort(-scores, axis=1)[:, :4])))
    blend = Blend.of([late, early], both, powers=(0.0, 2.0))
    assert sorted(column[:2] for column in blend.columns_) == [(0, 0.0), (0, 2.0)]
    assert blend.validation_score_ == pytest.approx(1.0, abs=1e-3)


def test_powers_are_tried_only_where_they_can_make_a_difference(planted_split: Split) -> None:
    ease, popularity = EASE().fit(planted_split.train), Popularity().fit(planted_split.train)
    weighted = planted_split.validation.with_recency(Recency(3))
    assert powers_to_try(ease, planted_split.validation, POWERS) == (1.0,)
    assert powers_to_try(ease, weighted, POWERS) == POWERS
    assert powers_to_try(popularity, weighted, POWERS) == (1.0,)


def test_the_cached_ndcg_is_the_real_one_where_every_item_is_a_candidate(
    planted_split: Split,
) -> None:
    models = [EASE(l2=5.0), EASE(l2=500.0), Popularity()]  # popularity has many equal scores
    models = [model.fit(planted_split.train) for model in models]
    cache = cache_of(models, planted_split.validation)
    for weights in ([1, 0, 0], [0, 0, 1], [0.2, 0.3, 0.5], [0.0, 0.05, 0.95]):
        real = mean_value(blended_by(models, weights).score, planted_split.validation)
        assert cache.value(np.array(weights, dtype=float)) == pytest.approx(real, abs=1e-6)
    blended = cache.blended(np.array([0.2, 0.3, 0.4]))
    assert cache.value_of(blended, 2, 0.1) == pytest.approx(
        cache.value(np.array([0.2, 0.3, 0.5])), abs=1e-6
    )


def test_the_cached_ndcg_is_near_the_real_one_with_some_candidates_alone() -> None:
    data = planted_communities(
        users=500, items=1200, communities=3, history=30, seed=2
    ).interactions
    train, validation, _ = hold_last(data, 3)
    models = [EASE(l2=50.0).fit(train), EASE(l2=1000.0).fit(train), Popularity().fit(train)]
    cache = cache_of(models, validation)
    assert cache.blocks[0].scores.shape[2] < 700
    for weights in ([1, 0, 0], [0.4, 0.4, 0.2], [0.1, 0.1, 0.8]):
        real = mean_value(blended_by(models, weights).score, validation)
        assert cache.value(np.array(weights, dtype=float)) == pytest.approx(real, abs=1e-3)


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("k", [1, 3, 100])
def test_the_cached_value_is_the_real_one_in_every_metric(
    planted_split: Split, name: str, k: int
) -> None:
    models = [EASE(l2=5.0).fit(planted_split.train), Popularity().fit(planted_split.train)]
    metric = Metric(name, k)
    cache = cache_of(models, planted_split.validation, metric)
    for number, model in enumerate(models):  # the lists of one column are among its candidates
        real = mean_value(model.score, planted_split.validation, metric)
        assert cache.value(np.eye(2)[number]) == pytest.approx(real, abs=1e-6)


def test_candidates_are_twice_as_deep_as_the_lists_of_the_metric() -> None:
    truth, other = squares(2)
    validation = questions(truth)  # with 4 targets each
    for k in (1, 5, 10):
        cache = cache_of([linear(truth)], validation, Metric("ndcg", k))
        assert cache.blocks[0].scores.shape[2] == max(4, 2 * k)
    both = cache_of([linear(truth), linear(other)], validation, Metric("ndcg", 5))
    assert 10 < both.blocks[0].scores.shape[2] <= 20 + 4


def test_a_target_that_was_seen_is_never_found_but_counts(planted_split: Split) -> None:
    held_out = planted_split.validation
    seen = HeldOut(held_out.histories, held_out.histories.where(held_out.histories.places() < 3))
    mixed_rows = [
        np.append(held_out.histories.items_of(row)[:1], held_out.targets.items_of(row))
        for row in range(held_out.n_users)
    ]
    offsets = np.cumsum([0, *(len(row) for row in mixed_rows)])
    targets = Interactions(
        held_out.histories.users, held_out.histories.items, offsets, np.concatenate(mixed_rows)
    )
    mixed = HeldOut(held_out.histories, targets)
    model = EASE().fit(planted_split.train)
    assert cache_of([model], seen).value(np.ones(1)) == 0.0
    assert cache_of([model], mixed).value(np.ones(1)) == pytest.approx(
        mean_value(model.score, mixed), abs=1e-6
    )


def test_users_beyond_the_cache_are_left_out_and_said_so(caplog: pytest.LogCaptureFixture) -> None:
    truth, noise, other = squares(3)
    models = [linear(truth + noise), linear(truth + other)]
    validation = questions(truth)
    whole = cache_of(models, validation)
    size = sum(block.size for block in whole.blocks)
    with caplog.at_level(logging.INFO, "loca"):
        part = cache_of(models, validation, cache_bytes=size // 4)
    assert whole.user_count == USERS
    assert USERS // 8 < part.user_count <= USERS // 4
    assert sum(block.size for block in part.blocks) <= size // 4
    assert f"weights are found on {part.user_count} of 300 validation users" in caplog.text
    blend = Blend.of(models, validation, cache_bytes=size // 4)
    assert len(blend.columns_) == 2
    assert mean_value(blend.score, validation) > 1.05 * max(one.alone for one in blend.earned_)


def test_the_search_ends_no_lower_than_the_best_column_and_the_equal_blend() -> None:
    truth, *noises = squares(6)
    models = [linear(truth + (place + 1) * noise / 2) for place, noise in enumerate(noises)]
    cache = cache_of(models, questions(truth))
    alone = cache.score_alone()
    weights = cache.find_weights(alone)
    assert weights.sum() == pytest.approx(1)
    assert (weights >= 0).all()
    assert weights.argmax() == 0
    assert cache.value(weights) >= max(
        alone.max(), cache.value(np.full(5, 0.2)), cache.value((weights > 0) / 5)
    )


class Hill(ScoreCache):
    """In place of a cache: two columns whose NDCG falls away from a best share of the first one, flat within `flat`."""

    def __init__(self, peak: float, flat: float) -> None:
        super().__init__((), 2, 0, DEFAULT_METRIC)
        vars(self).update(peak=peak, flat=flat)

    def value(self, weights: np.ndarray) -> float:
        return 1 - max(0.0, abs(weights[0] / weights.sum() - self.peak) - self.flat)

    def blended(self, weights: np.ndarray) -> np.ndarray:
        return weights

    def value_of(self, blended: np.ndarray, column: int, change: float) -> float:
        return self.value(blended + change * np.eye(2)[column])


def test_equal_weights_are_taken_where_they_do_as_well() -> None:
    flat, steep = Hill(0.65, 0.2), Hill(0.75, 0.01)
    assert flat.find_weights(flat.score_alone()).tolist() == [0.5, 0.5]
    assert steep.find_weights(steep.score_alone())[0] == pytest.approx(0.75, abs=0.02)
    alone = Hill(1.0, 0.1)
    assert alone.find_weights(alone.score_alone()).tolist() == [1.0, 0.0]


def test_a_z_score_forgets_scale_and_shift_and_a_flat_answer_says_nothing() -> None:
    scores = torch.tensor(np.random.default_rng(0).normal(size=(4, 50)), dtype=torch.float32)
    scaled = z_scores(scores)
    np.testing.assert_allclose(scaled.mean(dim=1), 0, atol=1e-6)
    np.testing.assert_allclose(scaled.numpy().std(axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(z_scores(7 * scores + 3), scaled, atol=1e-5)
    assert (z_scores(torch.full((2, 33), 0.1)) == 0).all()
    assert (z_scores(torch.zeros(2, 33)) == 0).all()


def test_a_history_at_a_power() -> None:
    rows = csr_array(([1.0, 0.5, 0.25], ([0, 0, 1], [3, 1, 2])), shape=(2, 5), dtype=np.float32)
    assert sharpened(rows, 1.0) is rows
    assert sharpened(rows, 0.0).data.tolist() == [1, 1, 1]
    assert sharpened(rows, 2.0).toarray()[1, 2] == 0.0625
    smallest = csr_array(([1e-12], ([0], [0])), shape=(1, 2), dtype=np.float32)
    assert sharpened(smallest, 9.0).data[0] > 0


def test_log_probabilities_are_those_of_networks_alone(planted_split: Split) -> None:
    vae, dae = MultVAE(latent=4, epochs=1), MultDAE(latent=4, epochs=1)
    assert vae.gives_logits
    assert Loca(base=dae).gives_logits
    assert Ensemble(base=vae).gives_logits
    assert not EASE().gives_logits
    assert not Loca(base=vae, global_model=EASE()).gives_logits
    assert not Blend(parts=[vae]).gives_logits
    rows = planted_split.test.history_matrix[:5]
    probabilities = scaled_scores(vae.fit(planted_split.train), rows, 1.0, "log-probability").exp()
    np.testing.assert_allclose(probabilities.sum(dim=1), 1, atol=1e-5)
    ease = EASE().fit(planted_split.train)
    assert torch.equal(
        scaled_scores(ease, rows, 1.0, "log-probability"), scaled_scores(ease, rows, 1.0, "z-score")
    )


def test_scores_that_are_no_numbers_are_refused() -> None:
    (truth,) = squares(1)
    with pytest.raises(DataError, match="EASE: expected finite scores to blend"):
        Blend.of([linear(truth * np.nan)], questions(truth))
