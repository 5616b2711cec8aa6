"""Table 3 comes from runs and records that are known, without any training."""

from __future__ import annotations

import pytest
from examples import bench, compared, level, results

from loca.experiments.runs import ComparedModel
from loca.reproduction.benchmark import Benchmark, Results, Sizes
from loca.reproduction.report import Records
from loca.reproduction.table3 import CONTRAST, Table3

LEVELS = {"random": 0.2, "kmeans": 0.21, "farthest": 0.19, "coverage": 0.22}
COVERED = {"random": 0.713, "kmeans": 0.774, "farthest": 0.292, "coverage": 0.886}


def selected(on: Benchmark, levels: dict[str, float] = LEVELS) -> dict[str, list[ComparedModel]]:
    """Each selection with the numbers of the scale, 0.01 less for each third that is left out; two seeds."""
    thirds = on.sizes.thirds(on.sizes.local_models)
    cells: dict[str, list[ComparedModel]] = {}
    for selection, value in levels.items():
        by_count = {count: level(value - 0.01 * (2 - place)) for place, count in enumerate(thirds)}
        covered = {str(count): (place + 1) / 4 for place, count in enumerate(thirds)}
        runs = {f" {count}": [count] for count in thirds} if selection == "kmeans" else {"": thirds}
        for ending, counts in runs.items():
            own = {count: by_count[count] for count in counts}
            facts = {"coverage": 0.75, "coverage_by_count": {str(count): covered[str(count)] for count in counts}}
            cells[f"loca-vae by {selection}{ending}"] = [
                compared(own[max(counts)], seed=seed, by_count=own, found=facts) for seed in range(on.sizes.seeds)
            ]
    return cells


def contrast(shares: dict[str, float]) -> dict[str, Records]:
    """Two seeds, 0.01 below and above."""
    kept = {}
    for seed, lift in ((0, -0.01), (1, 0.01)):
        lines: Records = [
            {"seed": seed, "selection": name, "bandwidth": 0.5, "coverage": share + lift}
            for name, share in shares.items()
        ]
        kept[f"{CONTRAST} seed {seed}"] = lines
    return kept


def chosen(levels: dict[str, float] = LEVELS, shares: dict[str, float] = COVERED) -> Results:
    on = bench()
    return results(selected(on, levels), contrast(shares), on)


def test_table_3_has_accuracy_and_coverage_by_selection_and_number() -> None:
    accuracy, coverage = Table3().make([chosen()]).tables
    assert accuracy.table.header == ("selection", "1 models", "2 models", "3 models")
    assert accuracy.table.rows == (
        ("random", "0.1800 ± 0.0000 (25.0%)", "0.1900 ± 0.0000 (50.0%)", "0.2000 ± 0.0000 (75.0%)"),
        ("kmeans", "0.1900 ± 0.0000 (25.0%)", "0.2000 ± 0.0000 (50.0%)", "0.2100 ± 0.0000 (75.0%)"),
        ("farthest", "0.1700 ± 0.0000 (25.0%)", "0.1800 ± 0.0000 (50.0%)", "0.1900 ± 0.0000 (75.0%)"),
        ("coverage", "0.2000 ± 0.0000 (25.0%)", "0.2100 ± 0.0000 (50.0%)", "0.2200 ± 0.0000 (75.0%)"),
    )
    assert coverage.table.header[0] == "selection of 3 anchors"
    assert coverage.table.rows[0] == ("coverage", "88.6%", "87.6% – 89.6%")
    assert [row[0] for row in coverage.table.rows] == ["coverage", "kmeans", "random", "farthest"]


def test_table_3_stands_beside_the_paper_s_where_it_has_the_same_numbers() -> None:
    whole = bench("paper", printed="AMusic", sizes=Sizes(local_models=300, seeds=1))
    table = Table3().make([results(selected(whole), on=whole)]).tables[0]
    assert table.table.header[4:] == ("paper, 100", "paper, 200", "paper, 300")
    assert table.table.rows[1][4:] == ("0.0856 (59.3%)", "0.0871 (71.3%)", "0.0882 (77.4%)")
    third = bench("paper", printed="AMusic", sizes=Sizes(local_models=100, seeds=1))
    table = Table3().make([results(selected(third), on=third)]).tables[0]
    assert table.table.header[1:] == (
        *("33 models", "66 models", "100 models"),
        *("paper, 33", "paper, 66", "paper, 100"),
    )
    assert table.table.rows[3][4:] == ("", "", "0.0865 (74.9%)")


def test_table_3_has_no_printed_figures_under_clean_whose_data_is_another() -> None:
    clean = bench("clean", printed="AMusic", sizes=Sizes(local_models=300, seeds=1))
    table = Table3().make([results(selected(clean), on=clean)]).tables[0]
    assert table.table.header == ("selection", "100 models", "200 models", "300 models")
    assert {len(row) for row in table.table.rows} == {4}


def test_table_3_has_a_record_for_each_seed_and_number_and_for_each_coverage() -> None:
    records = Table3().make([chosen()]).records
    accuracy = [line for line in records if "measured" not in line]
    keys = {(line["selection"], line["seed"], line["local models"]) for line in accuracy}
    assert len(keys) == len(accuracy) == 4 * 2 * 3
    one = next(x for x in accuracy if (x["selection"], x["seed"], x["local models"]) == ("kmeans", 1, 2))
    assert (one["ndcg@100"], one["found coverage"]) == (pytest.approx(0.2), 0.5)
    alone = [line for line in records if line.get("measured") == "coverage alone"]
    assert {(line["selection"], line["seed"]) for line in alone} == {
        (name, seed) for name in COVERED for seed in (0, 1)
    }


@pytest.mark.parametrize(
    ("levels", "shares", "kinds"),
    [
        (LEVELS, COVERED, ["matches", "matches"]),
        ({**LEVELS, "coverage": 0.2}, COVERED, ["matches", "differs"]),
        (LEVELS, {**COVERED, "farthest": 0.9}, ["differs", "matches"]),
        (LEVELS, {**COVERED, "coverage": 0.7}, ["differs", "matches"]),
    ],
    ids=["as printed", "no gain", "farthest covers most", "coverage covers less"],
)
def test_table_3_matches_where_coverage_falls_as_printed_and_the_gain_is_sure(
    levels: dict[str, float], shares: dict[str, float], kinds: list[str]
) -> None:
    findings = Table3().make([chosen(levels, shares)]).findings
    assert [one.kind for one in findings] == kinds
    told = f"coverage {shares['coverage']:.1%}, kmeans 77.4%, random 71.3%, farthest {shares['farthest']:.1%}."
    assert told in findings[0].text


def test_table_3_needs_one_run_for_each_selection_and_one_for_each_number_of_k_means() -> None:
    cells = Table3().runs(bench(sizes=Sizes(local_models=6, sweep_models=3, seeds=1)))
    assert {str(key): run.counts for key, run in cells.items()} == {
        "loca-vae by random seed 0": (2, 4, 6),
        "loca-vae by kmeans 2 seed 0": (2,),
        "loca-vae by kmeans 4 seed 0": (4,),
        "loca-vae by kmeans 6 seed 0": (6,),
        "loca-vae by farthest seed 0": (2, 4, 6),
        "loca-vae by coverage seed 0": (2, 4, 6),
    }
    assert {cell.fingerprint()["refit"] for cell in cells.values()} == {False}
    assert {cell.fingerprint()["alpha"] for cell in cells.values()} == {"paper"}


def test_nothing_measured_makes_neither_table_nor_chart() -> None:
    item = Table3().make([results({})])
    assert (item.tables, item.charts, item.records, item.findings) == ((), (), (), ())
