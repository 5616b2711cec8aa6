"""Over seeds each user has a mean; the interval is over users, the spread over seeds, differences are paired."""

from __future__ import annotations

import numpy as np
import pytest
from result_examples import compared, evaluation, level, swaying

from loca.evaluation.significance import bootstrap_intervals, paired_difference
from loca.reproduction.benchmark import SeedMeans, chosen_by, over_seeds


def two_seeds() -> SeedMeans:
    """Three users: 0.1, 0.2, 0.6 with one seed, 0.3, 0.2, 0.1 with the other."""
    return SeedMeans((evaluation([0.1, 0.2, 0.6]), evaluation([0.3, 0.2, 0.1], seed=1)))


def test_each_user_has_the_mean_over_the_seeds() -> None:
    assert two_seeds().of_users() == pytest.approx([0.2, 0.2, 0.35])
    assert two_seeds().of_users("recall@100") == pytest.approx([0.4, 0.4, 0.7])


def test_the_mean_is_that_of_all_users_and_seeds() -> None:
    assert two_seeds().mean() == pytest.approx(0.25)
    assert two_seeds().mean("ndcg@50") == pytest.approx(0.125)


def test_each_seed_has_the_mean_over_the_users_and_the_spread_is_over_them() -> None:
    assert two_seeds().of_seeds() == pytest.approx((0.3, 0.2))
    # Divided by one less than the seeds: √(2 · 0.05² / 1).
    assert two_seeds().spread() == pytest.approx(0.1 / np.sqrt(2))
    three = SeedMeans((*two_seeds().evaluations, evaluation([0.4, 0.4, 0.4], seed=2)))
    assert three.spread() == pytest.approx(0.1)


def test_one_seed_has_no_spread() -> None:
    assert SeedMeans((evaluation([0.1, 0.2, 0.6]),)).spread() is None


def test_the_interval_is_over_users_not_over_seeds() -> None:
    # The seeds are far apart, but every user has the same mean over them.
    alike = SeedMeans((evaluation(level(0.1)), evaluation(level(0.5), seed=1)))
    assert alike.interval() == pytest.approx((0.3, 0.3))
    # The seeds agree, but the users do not.
    apart = SeedMeans((evaluation(swaying(0.3)), evaluation(swaying(0.3), seed=1)))
    low, high = apart.interval()
    assert 0.26 < low < 0.3 < high < 0.34
    assert (low, high) == pytest.approx(tuple(bootstrap_intervals(swaying(0.3)[:, None], seed=0)[0]))


def test_differences_are_paired_user_by_user() -> None:
    other = SeedMeans((evaluation([0.1, 0.1, 0.25]),))
    found = two_seeds().minus(other)
    assert (found.mean, found.user_count) == (pytest.approx(0.1), 3)
    assert (found.low, found.high) == pytest.approx((0.1, 0.1))
    assert found.relative == pytest.approx(0.1 / 0.15)
    assert found == paired_difference(two_seeds().of_users(), other.of_users(), seed=0)


def test_a_difference_that_every_user_has_is_sure_whatever_the_users_themselves_do() -> None:
    better, worse = SeedMeans((evaluation(swaying(0.31)),)), SeedMeans((evaluation(swaying(0.3)),))
    found = better.minus(worse)
    assert (found.low, found.high) == pytest.approx((0.01, 0.01))
    assert max(found.t_p, found.wilcoxon_p) < 1e-6
    assert better.interval()[0] < worse.mean()


def test_computed_cells_become_means_of_all_or_of_their_first_models() -> None:
    measured = [
        compared([0.4, 0.6], by_count={1: [0.1, 0.1], 3: [0.4, 0.6]}),
        compared([0.6, 0.8], seed=1, by_count={1: [0.3, 0.3], 3: [0.6, 0.8]}),
    ]
    whole, first = over_seeds(measured), over_seeds(measured, 1)
    assert whole is not None
    assert first is not None
    assert (whole.mean(), first.mean()) == pytest.approx((0.6, 0.2))
    assert over_seeds([]) is None
    assert over_seeds([], 3) is None


def test_what_a_model_was_chosen_by_is_not_its_result() -> None:
    measured = [compared(level(0.9), chosen_by=0.2), compared(level(0.8), seed=1, chosen_by=0.4)]
    assert chosen_by(measured) == pytest.approx(0.3)
