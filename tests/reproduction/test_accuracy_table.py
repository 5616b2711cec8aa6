"""Table 2 from figures that are known: who is best single, what LOCA gains over whom, and what stands in every line."""

from __future__ import annotations

import pytest
from result_examples import bench, compared, level, results, swaying

from loca.experiments.protocols import ProtocolName
from loca.ranking.significance import PairedDifference
from loca.reproduction.accuracy_table import Rival, best_single, differences, headlines, make, needed
from loca.reproduction.bench import Results
from loca.reproduction.scale import Scale


def measured(protocol: ProtocolName = "clean", printed: str | None = None, label: str = "Hand") -> Results:
    """EASE is best on test, MultVAE where choices are made; LOCA_VAE has 0.02 more than MultVAE for every user.

    LOCA_EASE has 0.04 less than EASE for every user, and 0.01 more than MultVAE in the mean, which is not sure.
    """
    settings = {"model": "Loca", "seed": 0, "anchors": 3, "base.latent": 8, "base.seed": 5}
    cells = {
        "popularity": [compared(level(0.05), chosen_by=0.05)],
        "ease": [compared(level(0.30), chosen_by=0.20)],
        "mult-vae": [compared(swaying(0.24), chosen_by=0.27), compared(swaying(0.26), seed=1, chosen_by=0.29)],
        "loca-vae": [
            compared(swaying(0.25), parameters=settings, seconds=2.0, found={"coverage_by_count": {"3": 0.9}}),
            compared(swaying(0.29), parameters=settings, seconds=4.0, seed=1),
        ],
        "loca-ease": [compared(level(0.26)), compared(level(0.26), seed=1)],
        "ensemble-vae": [compared(swaying(0.27, by=-0.05))],
    }
    return results(cells, on=bench(protocol, printed=printed, label=label))


def test_the_best_single_model_is_chosen_where_choices_are_made_and_not_by_the_result() -> None:
    assert best_single(measured()) == "mult-vae"
    assert best_single(results({"loca-vae": [compared(level(0.9), chosen_by=0.9)]})) is None


def test_local_models_and_what_the_paper_has_not_are_no_single_models() -> None:
    cells = {
        "ease": [compared(level(0.2), chosen_by=0.2)],
        "auto": [compared(level(0.4), chosen_by=0.4)],
        "next-ease": [compared(level(0.4), chosen_by=0.4)],
        "ensemble-vae": [compared(level(0.4), chosen_by=0.4)],
    }
    assert best_single(results(cells)) == "ease"


def test_each_local_model_is_held_against_its_base_the_best_single_and_the_ensemble() -> None:
    found = [(one.name, one.other, one.what, one.verdict) for one in differences(measured())]
    assert found == [
        ("loca-vae", "mult-vae", "its base", "better"),
        ("loca-vae", "mult-vae", "the best single model", "better"),
        ("loca-vae", "ensemble-vae", "the ensemble of as many", "undecided"),
        ("loca-ease", "ease", "its base", "worse"),
        ("loca-ease", "mult-vae", "the best single model", "undecided"),
    ]


def test_differences_are_of_the_means_over_seeds() -> None:
    found = {(one.name, one.what): one.paired for one in differences(measured())}
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
    found = differences(measured())
    undecided = found[4]
    # Of five, the largest but one: three are sure, and the ensemble's is 1.
    assert undecided.t_p == pytest.approx(2 * undecided.paired.t_p)


def nearly_unsure() -> Results:
    """LOCA_VAE and MultVAE, its base and the best single model: sure if corrected for once, not sure if for two."""
    return results({"mult-vae": [compared(level(0.25))], "loca-vae": [compared(swaying(0.268))]})


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


def test_headlines_tell_the_gains_over_base_best_single_and_ensemble_in_this_order() -> None:
    vae, ease = headlines([measured("paper", printed="AMusic")])
    assert (vae.data, vae.protocol, vae.model, vae.printed) == ("Hand", "paper", "LOCA_VAE", 0.0893)
    assert vae.ndcg == pytest.approx(0.27)
    assert [(one.over, one.is_sure) for one in vae.gains] == [
        ("its base (MultVAE)", True),
        ("the best single model (MultVAE)", True),
        ("the ensemble of as many (Ensemble_VAE)", False),
    ]
    assert [one.difference for one in vae.gains] == pytest.approx([0.02, 0.02, 0])
    assert (ease.model, ease.printed) == ("LOCA_EASE", 0.0826)
    assert [(one.over, one.is_sure) for one in ease.gains] == [
        ("its base (EASE)", True),
        ("the best single model (MultVAE)", False),
    ]
    assert ease.gains[0].difference == pytest.approx(-0.04)


def test_a_local_model_without_rivals_has_a_headline_without_gains_and_one_not_measured_none() -> None:
    (line,) = headlines([results({"loca-dae": [compared(level(0.2))]})])
    assert (line.model, line.printed, line.gains) == ("LOCA_DAE", None, ())
    assert headlines([results({})]) == ()


def test_printed_figures_stand_beside_both_protocols() -> None:
    exhibit = make([measured("clean", printed="AMusic"), measured("paper", printed="AMusic")])
    beside = exhibit.panels[0]
    assert beside.heading == "Hand: beside the paper"
    assert beside.grid.header == ("NDCG@100", "paper prints", "here, clean", "95 %", "here, paper", "95 %")
    printed = {row[0]: row[1] for row in beside.grid.rows}
    assert printed == {
        "Popularity": "",
        "MultVAE": "0.0822",
        "EASE": "0.0821",
        "Ensemble_VAE": "",
        "LOCA_VAE": "0.0893",
        "LOCA_EASE": "0.0826",
    }
    row = next(one for one in beside.grid.rows if one[0] == "MultVAE")
    assert row[2] == row[4] == "0.2500 ± 0.0141"
    assert "NOT A RESULT" in beside.note


def test_one_protocol_on_data_that_the_paper_has_not_has_nothing_to_stand_beside() -> None:
    assert make([measured()]).panels[0].heading == "Hand, clean"


def test_clean_alone_carries_no_warning_beside_the_printed_figures() -> None:
    alone = results({"ease": [compared(level(0.3))]}, on=bench("clean", printed="AMusic"))
    beside = make([alone]).panels[0]
    assert (beside.note, beside.grid.rows[0][:2]) == ("", ("EASE", "0.0821"))


def test_a_row_holds_the_means_over_seeds_and_the_panel_names_the_best_single() -> None:
    panels = {one.heading: one for one in make([measured()]).panels}
    rows = {row[0]: row for row in panels["Hand, clean"].grid.rows}
    assert rows["LOCA_VAE"][:6] == (
        *("LOCA_VAE", "2"),
        *("0.4050 ± 0.0424", "0.1350 ± 0.0141", "0.5400 ± 0.0566", "0.2700 ± 0.0283"),
    )
    assert rows["LOCA_VAE"][-1] == "3.0"
    assert rows["EASE"][1:6] == ("1", "0.4500", "0.1500", "0.6000", "0.3000")
    assert panels["Hand, clean"].note == "Best single model where choices are made: MultVAE."
    lines = panels["Hand, clean: differences"].grid.rows
    assert lines[0][:4] == ("LOCA_VAE − MultVAE (its base)", "+0.0200", "+8.0%", "+0.0200 … +0.0200")
    assert [line[-1] for line in lines] == ["better", "better", "undecided", "worse", "undecided"]
    assert "0" not in (line[5] for line in lines)


def test_what_the_paper_has_not_stands_apart_and_is_held_against_the_best_single() -> None:
    cells = {"ease": [compared(level(0.2), chosen_by=0.2)], "auto": [compared(level(0.3))]}
    panels = {one.heading: one for one in make([results(cells)]).panels}
    assert [row[0] for row in panels["Hand, clean"].grid.rows] == ["EASE"]
    assert [row[0] for row in panels["Hand, clean: beyond the paper"].grid.rows] == ["Auto"]
    (line,) = panels["Hand, clean: differences"].grid.rows
    assert (line[0], line[-1]) == ("Auto − EASE (the best single model)", "better")


def test_all_tables_have_as_many_cells_in_a_row_as_in_the_header() -> None:
    for panel in make([measured("clean", "AMusic"), measured("paper", "AMusic"), measured(label="Other")]).panels:
        assert {len(row) for row in panel.grid.rows} == {len(panel.grid.header)}, panel.heading


def test_every_seed_of_every_model_is_one_record() -> None:
    records = make([measured()]).records
    expected = {("popularity", 0), ("ease", 0), ("ensemble-vae", 0)}
    expected |= {(name, seed) for name in ("mult-vae", "loca-vae", "loca-ease") for seed in (0, 1)}
    assert {(line["model"], line["seed"]) for line in records} == expected
    assert len(records) == len(expected)
    one = next(line for line in records if (line["model"], line["seed"]) == ("loca-vae", 1))
    assert (one["data"], one["protocol"], one["seconds"]) == ("hand", "clean", 4.0)
    assert [one[metric] for metric in ("recall@50", "ndcg@50", "recall@100", "ndcg@100")] == pytest.approx(
        [0.435, 0.145, 0.58, 0.29]
    )
    low, high = one["ndcg@100 low"], one["ndcg@100 high"]
    assert isinstance(low, float)
    assert isinstance(high, float)
    assert 0.27 < low < 0.29 < high < 0.31
    assert (one["setting anchors"], one["setting base.latent"]) == (3, 8)


def test_the_settings_of_a_model_change_nothing_else_in_its_record() -> None:
    searched = compared(level(0.3), chosen_by=0.25, seconds=7.5, parameters={"model": "Auto", "seconds": 90.0})
    (line,) = make([results({"auto": [searched]})]).records
    assert (line["model"], line["seconds"], line["chosen by ndcg@100"]) == ("auto", 7.5, 0.25)
    assert (line["setting model"], line["setting seconds"]) == ("Auto", 90.0)


def test_a_seed_keeps_its_number_where_the_one_before_it_failed() -> None:
    found = results({"mult-vae": [compared(level(0.1)), compared(level(0.2), seed=1)]})
    left = Results(found.bench, {"mult-vae seed 1": found.cells["mult-vae seed 1"]})
    assert [line["seed"] for line in make([left]).records] == [1]


def test_findings_tell_what_was_reached_under_paper_alone() -> None:
    clean, paper = (make([measured(protocol, "AMusic")]).findings for protocol in ("clean", "paper"))
    reached = [one for one in paper if "printed" in one.text]
    assert [(one.kind, one.text) for one in reached] == [
        ("matches", "Hand, paper: LOCA_VAE reaches NDCG@100 0.2700, at least the printed 0.0893."),
        ("matches", "Hand, paper: LOCA_EASE reaches NDCG@100 0.2600, at least the printed 0.0826."),
    ]
    assert not any("printed" in one.text for one in clean)
    low = results({"loca-vae": [compared(level(0.0892))]}, on=bench("paper", printed="AMusic"))
    assert [(one.kind, one.text) for one in make([low]).findings] == [
        ("differs", "Hand, paper: LOCA_VAE reaches NDCG@100 0.0892, below the printed 0.0893."),
    ]


def test_what_is_not_sure_does_not_match_and_findings_say_how_large_a_difference_is() -> None:
    assert [(one.kind, one.text) for one in make([measured()]).findings if "ensemble" not in one.text] == [
        (
            "matches",
            "Hand, clean: the better LOCA, LOCA_VAE against the best single model (MultVAE): "
            "+8.0% of NDCG@100 [+0.0200, +0.0200], better.",
        ),
        (
            "matches",
            "Hand, clean: LOCA_VAE against its base (MultVAE): +8.0% of NDCG@100 [+0.0200, +0.0200], better.",
        ),
        ("differs", "Hand, clean: LOCA_EASE against its base (EASE): -13.3% of NDCG@100 [-0.0400, -0.0400], worse."),
    ]
    (unsure,) = (one for one in make([measured()]).findings if "ensemble" in one.text)
    assert (unsure.kind, unsure.text.endswith(", undecided.")) == ("differs", True)


def test_nothing_measured_makes_an_empty_table() -> None:
    exhibit = make([results({})])
    assert (exhibit.key, exhibit.records, exhibit.findings) == ("table2", (), ())
    assert exhibit.panels == ()


def test_needed_are_all_models_with_every_seed_that_draws_anything() -> None:
    scale = Scale(local_models=3, sweep_models=2, seeds=2)
    clean, paper = needed(bench("clean", scale=scale)), needed(bench("paper", scale=scale))
    assert {"ease seed 0", "mult-vae seed 0", "mult-vae seed 1", "loca-ease seed 1", "auto seed 0"} <= set(clean)
    assert "ease seed 1" not in clean
    assert {name.split(" seed ")[0] for name in set(clean) - set(paper)} == {"auto", "next-ease"}
    assert clean["loca-vae seed 0"].counts == (1, 2, 3)
    assert clean["loca-dae seed 0"].counts == (1, 2)
    assert clean["loca-ease seed 0"].counts == ()
