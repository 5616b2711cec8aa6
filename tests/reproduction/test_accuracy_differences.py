"""Who is held against whom in Table 2: the best single model, the rivals of each LOCA, and one family of tests."""

from __future__ import annotations

import pytest
from result_examples import accuracies, compared, level, results, swaying, with_singles

from loca.evaluation.significance import PairedDifference
from loca.reproduction.benchmark import SINGLES, Results
from loca.reproduction.table2 import Rival, best_baseline, best_single, differences


def test_the_best_single_model_is_chosen_where_choices_are_made_and_not_by_the_result() -> None:
    assert best_single(accuracies()) == "mult-vae"
    assert best_single(results({"loca-vae": [compared(level(0.9), chosen_by=0.9)]})) is None


def test_the_best_baseline_is_chosen_where_choices_are_made_and_not_by_the_result() -> None:
    cells = {"sglsvd": [compared(level(0.4), chosen_by=0.2)], "llorma": [compared(level(0.1), chosen_by=0.3)]}
    assert best_baseline(results(with_singles(cells))) == "llorma"


@pytest.mark.parametrize("left_out", SINGLES)
def test_without_every_single_model_there_is_no_best_one(left_out: str) -> None:
    cells = with_singles({})
    assert best_single(results(cells)) is not None
    assert best_single(results({name: one for name, one in cells.items() if name != left_out})) is None


def test_local_models_and_what_the_paper_has_not_are_no_single_models() -> None:
    cells = {
        "ease": [compared(level(0.2), chosen_by=0.2)],
        "auto": [compared(level(0.4), chosen_by=0.4)],
        "next-ease": [compared(level(0.4), chosen_by=0.4)],
        "ensemble-vae": [compared(level(0.4), chosen_by=0.4)],
    }
    assert best_single(results(with_singles(cells))) == "ease"


def test_each_local_model_is_held_against_its_base_the_best_single_and_the_ensemble() -> None:
    found = [(one.name, one.other, one.what, one.verdict) for one in differences(accuracies())]
    assert found == [
        ("loca-vae", "mult-vae", "its base", "better"),
        ("loca-vae", "mult-vae", "the best single model", "better"),
        ("loca-vae", "ensemble-vae", "the ensemble of as many", "undecided"),
        ("loca-ease", "ease", "its base", "worse"),
        ("loca-ease", "mult-vae", "the best single model", "undecided"),
    ]


def test_differences_are_of_the_means_over_seeds() -> None:
    found = {(one.name, one.what): one.paired for one in differences(accuracies())}
    base = found["loca-vae", "its base"]
    assert (base.mean, base.low, base.high) == pytest.approx((0.02, 0.02, 0.02))
    assert base.relative == pytest.approx(0.08)
    ensemble = found["loca-vae", "the ensemble of as many"]
    assert ensemble.mean == pytest.approx(0)
    assert ensemble.low < 0 < ensemble.high


def rival(low: float, high: float, t_p: float, wilcoxon_p: float) -> Rival:
    mean = (low + high) / 2
    return Rival("a", "b", "its base", PairedDifference(mean, mean, low, high, 2.0, 0.0, 0.0, 40), t_p, wilcoxon_p)


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (rival(0.01, 0.03, 0.01, 0.01), "better"),
        (rival(-0.03, -0.01, 0.01, 0.01), "worse"),
        (rival(-0.01, 0.03, 0.01, 0.01), "undecided"),
        (rival(0.01, 0.03, 0.05, 0.01), "undecided"),
        (rival(0.01, 0.03, 0.01, 0.2), "undecided"),
        (rival(0.0, 0.03, 0.01, 0.01), "undecided"),
    ],
)
def test_a_verdict_needs_the_interval_and_both_corrected_tests(one: Rival, expected: str) -> None:
    assert one.verdict == expected


def test_p_values_are_corrected_over_all_differences_of_the_bench() -> None:
    found = differences(accuracies())
    undecided = found[4]
    # Of five, the largest but one: three are sure, and the ensemble's is 1.
    assert undecided.t_p == pytest.approx(2 * undecided.paired.t_p)


def nearly_unsure() -> Results:
    """LOCA_VAE and MultVAE, its base and the best single model: sure if corrected for once, not sure if for two."""
    return results(with_singles({"mult-vae": [compared(level(0.25))], "loca-vae": [compared(swaying(0.268))]}))


def test_a_pair_that_is_asked_for_twice_is_corrected_for_once() -> None:
    base, best = differences(nearly_unsure())
    assert [(one.name, one.other, one.what) for one in (base, best)] == [
        ("loca-vae", "mult-vae", "its base"),
        ("loca-vae", "mult-vae", "the best single model"),
    ]
    for one in (base, best):
        assert (one.t_p, one.wilcoxon_p) == (one.paired.t_p, one.paired.wilcoxon_p)
        # Corrected for two, the larger would not be below 0.05.
        assert 0.025 < max(one.t_p, one.wilcoxon_p) < 0.05
        assert one.verdict == "better"


def test_another_pair_is_corrected_for_beside_the_one_that_is_asked_for_twice() -> None:
    found = nearly_unsure()
    ensemble = results({"ensemble-vae": [compared(swaying(0.268, by=-0.05))]}).cells
    base, best, equal = differences(Results(found.bench, {**found.cells, **ensemble}))
    assert (equal.other, equal.verdict) == ("ensemble-vae", "undecided")
    for one in (base, best):
        assert (one.t_p, one.wilcoxon_p) == pytest.approx((2 * one.paired.t_p, 2 * one.paired.wilcoxon_p))
        assert one.verdict == "undecided"


def test_what_is_beyond_the_paper_is_of_one_family_with_the_local_models() -> None:
    found = nearly_unsure()
    beyond = results({"auto": [compared(swaying(0.25))]}).cells
    base, best, auto = differences(Results(found.bench, {**found.cells, **beyond}))
    assert (auto.name, auto.other, auto.what, auto.verdict) == (
        *("auto", "mult-vae", "the best single model"),
        "undecided",
    )
    for one in (base, best):
        assert (one.t_p, one.wilcoxon_p) == pytest.approx((2 * one.paired.t_p, 2 * one.paired.wilcoxon_p))
        assert one.verdict == "undecided"
