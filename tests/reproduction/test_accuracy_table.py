"""Table 2 from figures that are known: what LOCA gains over whom, and what stands in every line."""

from __future__ import annotations

import pytest
from result_examples import accuracies, bench, compared, headlines_of, level, results, with_singles

from loca.reproduction import table2 as accuracy_table
from loca.reproduction.benchmark import BASELINES, Results, Sizes
from loca.reproduction.table2 import Rival, differences, make, needed


def test_differences_are_told_once_for_each_bench(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Results] = []

    def count(found: Results) -> list[Rival]:
        told.append(found)
        return differences(found)

    monkeypatch.setattr(accuracy_table, "differences", count)
    studied = [accuracies(), accuracies("paper", "AMusic")]
    make(studied)
    assert told == studied


def test_headlines_tell_the_gains_over_base_best_single_and_ensemble_in_this_order() -> None:
    vae, ease = headlines_of(accuracies("paper", printed="AMusic"))
    assert (vae.data, vae.protocol, vae.model, vae.printed) == ("Hand", "paper", "LOCA_VAE (3)", 0.0893)
    assert vae.ndcg == pytest.approx(0.27)
    assert [(one.over, one.verdict) for one in vae.gains] == [
        ("its base (MultVAE)", "better"),
        ("the best single model (MultVAE)", "better"),
        ("the ensemble of as many (Ensemble_VAE)", "undecided"),
    ]
    assert [one.difference for one in vae.gains] == pytest.approx([0.02, 0.02, 0])
    assert (ease.model, ease.printed) == ("LOCA_EASE", 0.0826)
    assert [(one.over, one.verdict) for one in ease.gains] == [
        ("its base (EASE)", "worse"),
        ("the best single model (MultVAE)", "undecided"),
    ]
    assert ease.gains[0].difference == pytest.approx(-0.04)
    assert [one.printed for one in headlines_of(accuracies("clean", printed="AMusic"))] == [None, None]


def test_a_local_model_without_rivals_has_a_headline_without_gains_and_one_not_measured_none() -> None:
    (line,) = headlines_of(results({"loca-dae": [compared(level(0.2))]}))
    assert (line.model, line.printed, line.gains) == ("LOCA_DAE", None, ())
    assert headlines_of(results({})) == ()


def test_printed_figures_stand_beside_both_protocols_which_say_how_many_users_they_have() -> None:
    exhibit = make([accuracies("clean", printed="AMusic"), accuracies("paper", printed="AMusic")])
    beside = exhibit.panels[0]
    assert beside.heading == "Hand: beside the paper"
    assert beside.grid.header == (
        *("NDCG@100", "paper prints", "here, clean (40 users)", "95 %", "here, paper (40 users)", "95 %"),
    )
    printed = {row[0]: row[1] for row in beside.grid.rows}
    assert printed == {
        **dict.fromkeys(("Popularity", "ItemKNN", "MultDAE", "Ensemble_VAE (3)"), ""),
        "WMF": "0.0783",
        "SLIM": "0.0656",
        "CDAE": "0.0712",
        "MultVAE": "0.0822",
        "EASE": "0.0821",
        "RecVAE": "0.0710",
        "LLORMA": "0.0638",
        "sGLSVD": "0.0613",
        "LOCA_VAE (3)": "0.0893",
        "LOCA_EASE": "0.0826",
    }
    row = next(one for one in beside.grid.rows if one[0] == "MultVAE")
    assert row[2] == row[4] == "0.2500 ± 0.0141"
    assert "NOT A RESULT" in beside.note


def test_one_protocol_on_data_that_the_paper_has_not_has_nothing_to_stand_beside() -> None:
    assert make([accuracies()]).panels[0].heading == "Hand, clean"


def test_clean_alone_does_not_stand_beside_printed_figures_of_other_data() -> None:
    exhibit = make([accuracies("clean", printed="AMusic")])
    assert [one.heading for one in exhibit.panels] == ["Hand, clean", "Hand, clean: differences"]
    told = str(exhibit.panels)
    assert not [value for value in ("0.0821", "0.0893", "brackets", "paper prints") if value in told]


def test_both_protocols_of_data_that_the_paper_has_not_stand_side_by_side_without_printed_figures() -> None:
    beside = make([accuracies("clean"), accuracies("paper")]).panels[0]
    assert beside.heading == "Hand: protocols side by side"
    assert beside.grid.header[:2] == ("NDCG@100", "here, clean (40 users)")
    assert "NOT A RESULT" in beside.note


def test_under_paper_the_printed_figure_stands_behind_each_metric() -> None:
    panels = {one.heading: one for one in make([accuracies("clean", "AMusic"), accuracies("paper", "AMusic")]).panels}
    rows = {row[0]: row[2:6] for row in panels["Hand, paper"].grid.rows}
    assert rows["EASE"] == ("0.4500 (0.1129)", "0.1500 (0.0717)", "0.6000 (0.1506)", "0.3000 (0.0821)")
    assert rows["LOCA_VAE (3)"][3] == "0.2700 ± 0.0283 (0.0893)"
    assert rows["Popularity"][3] == "0.0500"
    assert "MultVAE. In brackets: what the paper prints." in panels["Hand, paper"].note
    clean = {row[0]: row[2:6] for row in panels["Hand, clean"].grid.rows}
    assert clean["EASE"] == ("0.4500", "0.1500", "0.6000", "0.3000")
    assert "brackets" not in panels["Hand, clean"].note
    own = {one.heading: one.note for one in make([accuracies("paper")]).panels}
    assert "brackets" not in own["Hand, paper"]


def test_a_row_says_how_many_models_it_has_where_it_is_of_many() -> None:
    cells = {
        "llorma": [compared(level(0.1), parameters={"model": "LLORMA", "anchors": 7})],
        "loca-vae": [compared(level(0.2), parameters={"model": "Loca", "anchors": 300})],
        "ensemble-vae": [compared(level(0.2), parameters={"model": "Ensemble", "models": 299})],
        "auto": [compared(level(0.2), parameters={"model": "Auto", "anchors": 5})],
    }
    few = {"loca-vae": [compared(level(0.2), parameters={"model": "Loca", "anchors": 12})]}
    beside, clean, beyond, _, paper = make([results(cells), results(few, on=bench("paper"))]).panels
    assert [row[0] for row in beside.grid.rows] == ["LLORMA", "Ensemble_VAE (299)", "LOCA_VAE (300, 12)"]
    assert [row[0] for row in clean.grid.rows] == ["LLORMA", "Ensemble_VAE (299)", "LOCA_VAE (300)"]
    assert [row[0] for row in beyond.grid.rows] == ["Auto"]
    assert [row[0] for row in paper.grid.rows] == ["LOCA_VAE (12)"]


def test_a_row_holds_the_means_over_seeds_and_the_panel_names_the_best_single() -> None:
    panels = {one.heading: one for one in make([accuracies()]).panels}
    rows = {row[0]: row for row in panels["Hand, clean"].grid.rows}
    assert rows["LOCA_VAE (3)"][:6] == (
        *("LOCA_VAE (3)", "2"),
        *("0.4050 ± 0.0424", "0.1350 ± 0.0141", "0.5400 ± 0.0566", "0.2700 ± 0.0283"),
    )
    assert rows["LOCA_VAE (3)"][-4:] == ("3.0", "", "", "")
    assert rows["EASE"][1:6] == ("1", "0.4500", "0.1500", "0.6000", "0.3000")
    assert panels["Hand, clean"].note.startswith(
        "Best single model where choices are made: MultVAE. Not yet with all 2 seeds: WMF, "
    )
    lines = panels["Hand, clean: differences"].grid.rows
    assert lines[0][:4] == ("LOCA_VAE − MultVAE (its base)", "+0.0200", "+8.0%", "+0.0200 … +0.0200")
    assert [line[-1] for line in lines] == ["better", "better", "undecided", "worse", "undecided"]
    assert "0" not in (line[5] for line in lines)


def test_what_the_paper_has_not_stands_apart_and_is_held_against_the_best_single() -> None:
    cells = {"ease": [compared(level(0.2), chosen_by=0.2)], "auto": [compared(level(0.3))]}
    panels = {one.heading: one for one in make([results(with_singles(cells))]).panels}
    assert "Auto" not in [row[0] for row in panels["Hand, clean"].grid.rows]
    assert [row[0] for row in panels["Hand, clean: beyond the paper"].grid.rows] == ["Auto"]
    (line,) = panels["Hand, clean: differences"].grid.rows
    assert (line[0], line[-1]) == ("Auto − EASE (the best single model)", "better")


def test_all_tables_have_as_many_cells_in_a_row_as_in_the_header() -> None:
    for panel in make([accuracies("clean", "AMusic"), accuracies("paper", "AMusic"), accuracies(label="Other")]).panels:
        assert {len(row) for row in panel.grid.rows} == {len(panel.grid.header)}, panel.heading


def test_every_seed_of_every_model_is_one_record() -> None:
    records = make([accuracies()]).records
    expected = {(name, 0) for name in (*BASELINES, "ensemble-vae")}
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


def test_what_is_not_sure_does_not_match_and_findings_say_how_large_a_difference_is() -> None:
    assert [(one.kind, one.text) for one in make([accuracies()]).findings if "ensemble" not in one.text] == [
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
    (unsure,) = (one for one in make([accuracies()]).findings if "ensemble" in one.text)
    assert (unsure.kind, unsure.text.endswith(", undecided.")) == ("differs", True)


def test_nothing_measured_makes_an_empty_table() -> None:
    exhibit = make([results({})])
    assert (exhibit.key, exhibit.records, exhibit.findings) == ("table2", (), ())
    assert exhibit.panels == ()


def test_needed_are_all_models_with_every_seed_that_draws_anything() -> None:
    scale = Sizes(local_models=3, sweep_models=2, seeds=2)
    clean, paper = needed(bench("clean", scale=scale)), needed(bench("paper", scale=scale))
    assert {"ease seed 0", "mult-vae seed 0", "mult-vae seed 1", "loca-ease seed 1", "auto seed 0"} <= set(clean)
    assert "ease seed 1" not in clean
    assert {name.split(" seed ")[0] for name in set(clean) - set(paper)} == {"auto", "next-ease"}
    assert clean["loca-vae seed 0"].counts == (1, 2, 3)
    assert clean["loca-dae seed 0"].counts == (1, 2)
    assert clean["loca-ease seed 0"].counts == ()


def test_a_row_of_loca_says_how_local_it_is() -> None:
    facts = [
        {"alpha": 0.1, "effective_share": 0.4, "answering": 2.0},
        {"alpha": 0.3, "effective_share": 0.5, "answering": 3.0},
    ]
    cells = [compared(level(0.2), seed=seed, found=one) for seed, one in enumerate(facts)]
    (panel,) = (
        one
        for one in make([results({"loca-vae": cells, "ease": [compared(level(0.1))]})]).panels
        if one.heading == "Hand, clean"
    )
    rows = {row[0]: row for row in panel.grid.rows}
    assert panel.grid.header[-3:] == ("α", "trains on, in effect", "communities a user")
    assert rows["LOCA_VAE"][-3:] == ("0.1, 0.3", "45.0%", "2.5")
    assert rows["EASE"][-3:] == ("", "", "")


def test_the_authors_settings_stand_beside_print_in_a_row_of_their_own() -> None:
    found = results({"loca-paper-vae": [compared(level(0.05))]}, on=bench("paper", printed="AMusic"))
    exhibit = make([found])
    assert exhibit.panels[0].grid.rows[0][:2] == ("LOCA_VAE, authors' settings", "0.0893")
    (finding,) = (one for one in exhibit.findings if "authors' settings is below" in one.text)
    assert finding.kind == "differs"
