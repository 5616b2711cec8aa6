"""Tables 1, 3 and 5 come from data, runs and records that are known, without any training."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from examples import TINY, bench, compared, level, results, tiny_benchmark
from scipy.sparse import csr_array

from loca.communities.kernel import Kernels
from loca.data.datasets import PRINTED as PRINTED_ROWS
from loca.data.datasets import Printed
from loca.data.interactions import Interactions
from loca.data.readers import read_preset
from loca.data.statistics import Statistics, describe
from loca.data.synthetic import PlantedData
from loca.experiments.runs import ComparedModel
from loca.local.loca import Loca
from loca.models.mult_vae import MultVAE
from loca.paper.benchmark import Benchmark, Results, Sizes
from loca.paper.counted_runs import CountedRun
from loca.paper.report import Records
from loca.paper.tables import CONTRAST, TIMES, Table1, Table3, Table5

PRINTED = Printed(users=2, items=100, ratings=10, sparsity=95.0, concentration=60.0)


def ten_ratings() -> Statistics:
    """2 users and 100 items, of which both have 0 … 2 and each two more: the top 5 have 8 of 10, the top 2 have 4."""
    dense = np.zeros((2, 100))
    dense[:, :3] = 1
    dense[0, [10, 11]] = dense[1, [20, 21]] = 1
    return describe(Interactions.from_matrix(csr_array(dense)))


def test_the_printed_row_stands_under_ours() -> None:
    item = Table1().compare({"Tiny": ten_ratings(), "Other": ten_ratings()}, {"Tiny": PRINTED})
    rows = item.tables[0].table.rows
    assert item.key == "table1"
    assert rows[0] == ("Tiny", "2", "100", "10", "95.00 %", "80.00 %", "40.00 %")
    assert rows[1] == ("Tiny, the paper's", "2", "100", "10", "95.00 %", "60.00 %", "")
    assert [row[0] for row in rows] == ["Tiny", "Tiny, the paper's", "Other"]
    assert len({len(row) for row in (item.tables[0].table.header, *rows)}) == 1
    assert item.records[0]["printed_concentration"] == 60.0
    assert item.records[1]["printed_users"] is None
    assert item.records[0].keys() == item.records[1].keys()


def test_findings_tell_exact_matches_from_differences_and_say_how_large_they_are() -> None:
    printed = replace(PRINTED, users=4, concentration=50.0)
    findings = Table1().compare({"Tiny": ten_ratings(), "Other": ten_ratings()}, {"Tiny": printed})
    told = [(one.kind, one.text) for one in findings.findings]
    assert told[0] == (
        "matches",
        "Tiny: items (100), ratings (10) and sparsity (95.00 %) as printed.",
    )
    assert told[1] == (
        "differs",
        "Tiny: users 2 here, 4 printed (-2, -50.0%); concentration 80.00 % here, 50.00 % printed (+30.00 points), "
        "to which the share of the top 2 % of the items, 40.00 %, is nearer.",
    )
    assert told[2] == ("found", "Other: not in the paper's Table 1.")


def test_a_row_that_is_the_printed_one_has_nothing_that_differs() -> None:
    item = Table1().compare({"Tiny": ten_ratings()}, {"Tiny": replace(PRINTED, concentration=80.0)})
    assert [one.kind for one in item.findings] == ["matches"]
    assert "users (2), items (100), ratings (10), sparsity" in item.findings[0].text


@pytest.mark.real_data
def test_amusic_has_the_printed_counts_and_another_concentration(real_data) -> None:
    printed = dict(PRINTED_ROWS)
    found = describe(read_preset("AMusic", real_data / "amusic" / "amusic.rating"))
    item = Table1().compare({"AMusic": found}, printed)
    matches, differs = item.findings[:2]
    assert "users (4,964), items (11,797), ratings (97,439) and sparsity (99.83 %)" in matches.text
    assert "concentration 26.14 % here, 14.93 % printed" in differs.text
    assert "is nearer" in differs.text


LEVELS = {"random": 0.2, "kmeans": 0.21, "farthest": 0.19, "coverage": 0.22}
COVERED = {"random": 0.713, "kmeans": 0.774, "farthest": 0.292, "coverage": 0.886}


def selected(on: Benchmark, levels: dict[str, float] = LEVELS) -> dict[str, list[ComparedModel]]:
    """Each selection with the numbers of the scale, 0.01 less for each third that is left out; two seeds."""
    thirds = on.sizes.thirds(on.sizes.local_models)
    cells: dict[str, list[ComparedModel]] = {}
    for selection, value in levels.items():
        by_count = {count: level(value - 0.01 * (2 - place)) for place, count in enumerate(thirds)}
        covered = {count: (place + 1) / 4 for place, count in enumerate(thirds)}
        runs = {f" {count}": [count] for count in thirds} if selection == "kmeans" else {"": thirds}
        for ending, counts in runs.items():
            own = {count: by_count[count] for count in counts}
            cells[f"loca-vae by {selection}{ending}"] = [
                compared(
                    own[max(counts)],
                    seed=seed,
                    by_count=own,
                    coverage_by_count={count: covered[count] for count in counts},
                    found={"coverage": 0.75},
                )
                for seed in range(on.sizes.seeds)
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
        (
            "farthest",
            "0.1700 ± 0.0000 (25.0%)",
            "0.1800 ± 0.0000 (50.0%)",
            "0.1900 ± 0.0000 (75.0%)",
        ),
        (
            "coverage",
            "0.2000 ± 0.0000 (25.0%)",
            "0.2100 ± 0.0000 (50.0%)",
            "0.2200 ± 0.0000 (75.0%)",
        ),
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
    one = next(
        x for x in accuracy if (x["selection"], x["seed"], x["local models"]) == ("kmeans", 1, 2)
    )
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
    counts = {str(key): run.counts for key, run in cells.items() if isinstance(run, CountedRun)}
    assert counts == {
        "loca-vae by random seed 0": (2, 4, 6),
        "loca-vae by kmeans 2 seed 0": (2,),
        "loca-vae by kmeans 4 seed 0": (4,),
        "loca-vae by kmeans 6 seed 0": (6,),
        "loca-vae by farthest seed 0": (2, 4, 6),
        "loca-vae by coverage seed 0": (2, 4, 6),
    }
    assert {cell.fingerprint()["refit"] for cell in cells.values()} == {False}
    assert {cell.fingerprint()["combiner.kind"] for cell in cells.values()} == {"LocalOnly"}


def test_nothing_measured_makes_neither_table_nor_chart() -> None:
    item = Table3().make([results({})])
    assert (item.tables, item.charts, item.records, item.findings) == ((), (), (), ())


def timed(loop: tuple[int, ...] = (1, 2)) -> Results:
    """Stacked models take 2 seconds and 1 for each, in a loop 10 for each; the global model 5, then 4, then 6."""
    kept: dict[str, Records] = {}
    for engine, counts in (("loop", loop), ("stacked", (10, 1, 2))):
        for place, count in enumerate(counts):
            seconds = 2.0 + count if engine == "stacked" else 10.0 * count
            kept[f"{TIMES} {engine} {count}"] = [
                {
                    "engine": engine,
                    "local models": count,
                    "global seconds": (5.0, 4.0, 6.0)[place],
                    "local seconds": seconds,
                    "epochs": 7,
                    "machine": "2 cores",
                }
            ]
    return results({}, kept, bench("paper", printed="AMusic"))


def test_table_5_has_the_seconds_of_both_ways_beside_the_paper_s() -> None:
    (table,) = Table5().make([timed()]).tables
    assert table.table.header == (
        "local models",
        "stacked, s",
        "in a loop, s",
        "epochs, stacked",
        "paper, s",
    )
    assert table.table.rows == (
        ("MultVAE", "4.0", "", "", "46"),
        ("1", "3.0", "10.0", "7", "18"),
        ("2", "4.0", "20.0", "7", "27"),
        ("10", "12.0", "", "7", "53"),
    )
    assert table.note == "2 cores"


def test_table_5_draws_both_ways_over_the_number_of_models_and_the_global_model_as_a_level() -> (
    None
):
    item = Table5().make([timed()])
    (chart,) = item.charts
    stacked, loop, alone = chart.curves
    assert (stacked.x, stacked.y) == ((1.0, 2.0, 10.0), (3.0, 4.0, 12.0))
    assert (loop.x, loop.y) == ((1.0, 2.0), (10.0, 20.0))
    assert (alone.is_level, alone.y) == (True, (4.0,))
    assert [(line["engine"], line["local models"]) for line in item.records] == [
        *(("stacked", count) for count in (1, 2, 10)),
        *(("loop", count) for count in (1, 2)),
    ]


def test_table_5_compares_the_two_ways_at_the_largest_number_that_both_have() -> None:
    one, ratio = Table5().make([timed()]).findings
    assert (one.kind, one.text) == (
        "matches",
        "Hand, paper: one local model, with anchors and global share, takes 3.0 s, MultVAE 4.0 s.",
    )
    assert (ratio.kind, ratio.text) == (
        "found",
        "Hand, paper: 2 local models train 5.0 × as fast stacked as in a loop (4.0 s against 20.0 s).",
    )
    assert Table5().make([timed(loop=())]).findings == (one,)


def test_table_5_asks_for_the_loop_only_as_far_as_the_scale_says() -> None:
    asked = Table5().measurements(bench(sizes=Sizes(local_models=10, loop_models=2)))
    assert [one.name.removeprefix("training seconds ") for one in asked] == [
        *(f"stacked {count}" for count in (1, 2, 5, 10)),
        *(f"loop {count}" for count in (1, 2)),
    ]


def test_nothing_timed_makes_neither_table_nor_chart() -> None:
    item = Table5().make([results({})])
    assert (item.tables, item.charts, item.records, item.findings) == ((), (), (), ())


def network(epochs: int) -> MultVAE:
    return MultVAE(latent=4, epochs=epochs, batch_size=200)


@pytest.mark.parametrize(
    ("global_model", "epochs"), [(None, 1), (network(3), 3)], ids=["the base", "its own"]
)
def test_the_global_model_is_fitted_once_and_before_the_local_ones_are_timed(
    planted: PlantedData, monkeypatch: pytest.MonkeyPatch, global_model: MultVAE | None, epochs: int
) -> None:
    model = Loca(base=network(1), communities=Kernels(), global_model=global_model)
    monkeypatch.setattr(Benchmark, "model", lambda self, name, seed=0: model)
    fits: list[int] = []
    fit = MultVAE.fit

    def counted(self: MultVAE, *given: Any, **named: Any) -> MultVAE:
        fits.append(self.epochs)
        return fit(self, *given, **named)

    monkeypatch.setattr(MultVAE, "fit", counted)
    stacked = Table5().measurements(tiny_benchmark(planted))[0]
    fitted_before: list[list[int]] = []
    whole = Loca.fit

    def noted(self: Loca, *given: Any, **named: Any) -> Loca:
        fitted_before.append(list(fits))
        return whole(self, *given, **named)

    monkeypatch.setattr(Loca, "fit", noted)
    (line,) = stacked.measure()
    assert (fitted_before, fits) == (
        [[epochs]],
        [epochs],
    )  # the local ones are stacked: none has a fit of its own
    assert line["local models"] == 1


def test_seconds_of_two_machines_are_shown_with_a_warning_and_not_divided() -> None:
    lines = {
        f"{TIMES} {engine} 1": [
            {"engine": engine, "local models": 1, "global seconds": 4.0, "local seconds": 3.0, "epochs": 7,
             "machine": machine}
        ]
        for engine, machine in (("stacked", "a GPU"), ("loop", "2 cores"))
    }  # fmt: skip
    item = Table5().make([results({}, lines, bench())])
    assert (
        item.tables[0].note
        == "Timed on several machines, whose seconds do not compare: a GPU; 2 cores"
    )
    assert not any("as fast" in one.text for one in item.findings)


def test_a_timing_is_the_same_however_many_more_are_timed() -> None:
    few, more = (
        Table5().measurements(bench(sizes=replace(TINY, local_models=most))) for most in (2, 5)
    )
    inputs = {one.name: one.inputs for one in more}
    assert [inputs[one.name] for one in few] == [one.inputs for one in few]
    assert inputs[f"{TIMES} stacked 1"] != inputs[f"{TIMES} loop 1"]


def test_the_loop_stops_its_models_as_the_stack_does() -> None:
    each = {"loca-vae": {"engine": {"kind": "stop-each", "engine": {"precision": "bfloat16"}}}}
    for tables, kinds in (({}, ("Stacked", "Loop")), (each, ("StopEach", "StopEach"))):
        measurements = Table5().measurements(replace(bench(), tables=tables))
        inputs = {one.name: one.inputs for one in measurements}
        stacked, loop = (inputs[f"{TIMES} {engine} 1"] for engine in ("stacked", "loop"))
        assert (stacked["engine.kind"], loop["engine.kind"]) == kinds
    assert (stacked["engine.engine.precision"], loop["engine.engine.kind"]) == ("bfloat16", "Loop")


def timed_once(on: Benchmark) -> Results:
    line: Records = [
        {"engine": "stacked", "local models": 1, "global seconds": 4.0, "local seconds": 3.0, "epochs": 7,
         "machine": "2 cores"}
    ]  # fmt: skip
    return results({}, {f"{TIMES} stacked 1": line}, on)


def test_printed_seconds_stand_only_beside_the_paper_s_own_protocol() -> None:
    paper, clean, other = (
        Table5().make([timed_once(on)]).tables[0].table
        for on in (
            bench("paper", printed="AMusic"),
            bench("clean", printed="AMusic"),
            bench("paper"),
        )
    )
    assert (paper.header[-1], [row[-1] for row in paper.rows]) == ("paper, s", ["46", "18"])
    for table_ in (clean, other):
        assert table_.header == paper.header[:-1]
        assert table_.rows == tuple(row[:-1] for row in paper.rows)
