"""Intervals and tests against scipy, normal theory and cases worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from loca.errors import DataError
from loca.evaluation.significance import (
    PairedDifference,
    bootstrap_intervals,
    bootstrap_means,
    holm,
    paired_difference,
    verdict_on,
)


def test_the_interval_agrees_with_scipys_bootstrap_and_with_normal_theory():
    values = np.random.default_rng(3).gamma(0.5, size=2000)
    low, high = bootstrap_intervals(values[:, None], resamples=4000)[0]
    theirs = stats.bootstrap(
        (values,), np.mean, method="percentile", n_resamples=4000, rng=np.random.default_rng(8)
    ).confidence_interval
    error = values.std(ddof=1) / math.sqrt(len(values))
    assert (low, high) == pytest.approx((theirs.low, theirs.high), abs=0.15 * error)
    assert (low, high) == pytest.approx(
        (values.mean() - 1.96 * error, values.mean() + 1.96 * error), abs=0.15 * error
    )


def test_the_interval_holds_the_true_mean_about_95_times_in_100():
    rng = np.random.default_rng(5)
    held = 0
    for seed in range(300):
        low, high = bootstrap_intervals(rng.random((60, 1)), seed=seed, resamples=400)[0]
        held += low <= 0.5 <= high
    assert 0.91 <= held / 300 <= 0.98


def test_resampled_means_are_those_of_the_same_draws_taken_one_by_one():
    from loca.random_streams import stream

    values = np.random.default_rng(0).random((17, 3))
    rng = stream(4, "bootstrap")
    expected = [values[rng.integers(0, 17, 17)].mean(axis=0) for _ in range(50)]
    np.testing.assert_allclose(bootstrap_means(values, seed=4, resamples=50), expected, rtol=1e-12)


def test_the_same_seed_gives_the_same_interval_in_blocks_of_any_size():
    values = np.random.default_rng(0).random((50, 2))
    whole = bootstrap_intervals(values, seed=1)
    np.testing.assert_array_equal(whole, bootstrap_intervals(values, seed=1))
    assert not np.array_equal(whole, bootstrap_intervals(values, seed=2))
    in_blocks = bootstrap_means(values, seed=1, block_bytes=8 * 50 * 7)
    np.testing.assert_allclose(bootstrap_means(values, seed=1), in_blocks, rtol=1e-12)


def test_a_metric_that_is_the_same_for_everybody_has_an_interval_of_no_width():
    assert bootstrap_intervals(np.full((9, 1), 0.25)).tolist() == [[0.25, 0.25]]


def test_the_paired_tests_are_scipys():
    rng = np.random.default_rng(2)
    second = rng.random(400)
    first = second + rng.normal(0.02, 0.2, 400)
    first[:100] = second[:100]
    found = paired_difference(first, second)
    t = stats.ttest_rel(first, second)
    assert (found.t, found.t_p) == pytest.approx((t.statistic, t.pvalue), rel=1e-9)
    assert found.wilcoxon_p == pytest.approx(stats.wilcoxon(first, second).pvalue, rel=1e-9)
    assert found.mean == pytest.approx(first.mean() - second.mean())
    assert found.relative == pytest.approx(first.mean() / second.mean() - 1)
    assert found.low < found.mean < found.high
    half = 1.96 * (first - second).std(ddof=1) / 20
    assert (found.low, found.high) == pytest.approx(
        (found.mean - half, found.mean + half), abs=0.2 * half
    )
    assert found.user_count == 400


def test_a_difference_worked_by_hand():
    # Differences 1, 2, 3: mean 2, deviation 1, t = 2 / (1 / √3).
    found = paired_difference([2, 4, 6], [1, 2, 3])
    assert found.mean == pytest.approx(2)
    assert found.relative == pytest.approx(1)
    assert found.t == pytest.approx(2 * math.sqrt(3))
    assert found.wilcoxon_p == pytest.approx(0.25)  # 2 of the 8 sign patterns are as extreme


def test_exchanging_the_two_turns_the_difference_round():
    rng = np.random.default_rng(9)
    a, b = rng.random(50), rng.random(50)
    there, back = paired_difference(a, b), paired_difference(b, a)
    assert (there.mean, there.t, there.t_p) == pytest.approx((-back.mean, -back.t, back.t_p))
    assert (there.low, there.high) == pytest.approx((-back.high, -back.low))


def test_no_difference_at_all_gives_an_interval_of_zero_and_p_of_one():
    found = paired_difference([0.1, 0.2, 0.3], [0.1, 0.2, 0.3])
    assert (found.mean, found.relative, found.low, found.high, found.t) == (0, 0, 0, 0, 0)
    assert (found.t_p, found.wilcoxon_p) == (1, 1)


def test_the_same_difference_for_everybody_is_certain():
    found = paired_difference([1.0, 2.0, 3.0], [0.5, 1.5, 2.5])
    assert (found.t, found.t_p) == (math.inf, 0)


def test_a_rival_that_finds_nothing_makes_the_gain_infinite_and_two_of_them_make_it_zero():
    assert paired_difference([1, 0], [0, 0]).relative == math.inf
    assert paired_difference([0, 0], [0, 0]).relative == 0


def test_a_difference_reads_as_one_line():
    line = str(paired_difference([2, 4, 6], [1, 2, 3]))
    assert line.startswith("+2.0000 (+100.0%), 95 % interval [+1.")
    assert "t = 3.46 (p = 0.074), Wilcoxon p = 0.25, 3 users" in line


def test_values_that_do_not_pair_are_refused():
    with pytest.raises(DataError, match=r"shapes \(2,\) and \(3,\)"):
        paired_difference([1, 2], [1, 2, 3])
    with pytest.raises(DataError, match="at least 2 users, found 1"):
        paired_difference([1], [2])
    with pytest.raises(DataError, match="finite values"):
        paired_difference([1, math.nan], [1, 2])


def test_holms_correction_worked_by_hand():
    # Sorted: .005·4 = .02, .01·3 = .03, .03·2 = .06, .04·1 = .04 raised to .06.
    assert holm([0.01, 0.04, 0.03, 0.005]).tolist() == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]).tolist() == [1.0, 1.0]
    assert holm([0.2]).tolist() == [0.2]
    assert holm([]).tolist() == []


def test_holm_keeps_ties_equal_and_never_lowers_a_p_value():
    p = np.random.default_rng(0).choice([0.001, 0.02, 0.2, 1.0], 40)
    adjusted = holm(p)
    assert (adjusted >= p).all()
    for value in np.unique(p):
        assert len(np.unique(adjusted[p == value])) == 1


def test_holm_refuses_what_is_no_p_value():
    for wrong in ([1.5], [-0.1], [math.nan]):
        with pytest.raises(DataError, match="between 0 and 1"):
            holm(wrong)


def test_the_rounding_of_a_mean_of_equal_numbers_is_no_difference():
    values = np.random.default_rng(0).random(500)
    mean_of_three = np.mean([values, values, values], axis=0)
    assert not np.array_equal(mean_of_three, values), (
        "nothing was rounded: the test would show nothing"
    )
    paired = paired_difference(mean_of_three, values)
    assert (paired.mean, paired.low, paired.high, paired.t, paired.t_p, paired.wilcoxon_p) == (
        0,
        0,
        0,
        0,
        1,
        1,
    )
    assert paired_difference(values * (1 + 1e-9), values).t > 10  # a small difference stays one


@pytest.mark.parametrize(
    ("difference", "t_p", "wilcoxon_p", "word"),
    [
        ((0.2, 0.1, 0.3), 0.01, 0.01, "better"),
        ((-0.2, -0.3, -0.1), 0.01, 0.01, "worse"),
        ((0.2, -0.1, 0.3), 0.01, 0.01, "undecided"),
        ((0.2, 0.1, 0.3), 0.05, 0.01, "undecided"),
        ((0.2, 0.1, 0.3), 0.01, 0.05, "undecided"),
        ((0.0, 0.0, 0.0), 1.0, 1.0, "equal"),
        ((0.0, -0.1, 0.1), 1.0, 1.0, "undecided"),
    ],
)
def test_a_verdict_needs_the_interval_and_both_tests(difference, t_p, wilcoxon_p, word):
    mean, low, high = difference
    assert (
        verdict_on(PairedDifference(mean, 0.1, low, high, 2.0, 0.01, 0.01, 100), t_p, wilcoxon_p)
        == word
    )
