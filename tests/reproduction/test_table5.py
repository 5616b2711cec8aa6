"""Table 5 comes from records that are known, without any training."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from examples import TINY, bench, results, tiny_benchmark

from loca.data.synthetic import PlantedData
from loca.local.loca import Loca
from loca.models.mult_vae import MultVAE
from loca.reproduction.benchmark import Benchmark, Results, Sizes
from loca.reproduction.report import Records
from loca.reproduction.table5 import NAME, Table5


def timed(loop: tuple[int, ...] = (1, 2)) -> Results:
    """Stacked models take 2 seconds and 1 for each, in a loop 10 for each; the global model 5, then 4, then 6."""
    kept: dict[str, Records] = {}
    for engine, counts in (("one_by_one", loop), ("stacked", (10, 1, 2))):
        for place, count in enumerate(counts):
            seconds = 2.0 + count if engine == "stacked" else 10.0 * count
            kept[f"{NAME} {engine} {count}"] = [
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
    assert table.table.header == ("local models", "stacked, s", "in a loop, s", "epochs, stacked", "paper, s")
    assert table.table.rows == (
        ("MultVAE", "4.0", "", "", "46"),
        ("1", "3.0", "10.0", "7", "18"),
        ("2", "4.0", "20.0", "7", "27"),
        ("10", "12.0", "", "7", "53"),
    )
    assert table.note == "2 cores"


def test_table_5_draws_both_ways_over_the_number_of_models_and_the_global_model_as_a_level() -> None:
    item = Table5().make([timed()])
    (chart,) = item.charts
    stacked, loop, alone = chart.curves
    assert (stacked.x, stacked.y) == ((1.0, 2.0, 10.0), (3.0, 4.0, 12.0))
    assert (loop.x, loop.y) == ((1.0, 2.0), (10.0, 20.0))
    assert (alone.is_level, alone.y) == (True, (4.0,))
    assert [(line["engine"], line["local models"]) for line in item.records] == [
        *(("stacked", count) for count in (1, 2, 10)),
        *(("one_by_one", count) for count in (1, 2)),
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
        *(f"one_by_one {count}" for count in (1, 2)),
    ]


def test_nothing_measured_makes_neither_table_nor_chart() -> None:
    item = Table5().make([results({})])
    assert (item.tables, item.charts, item.records, item.findings) == ((), (), (), ())


def network(epochs: int) -> MultVAE:
    return MultVAE(latent=4, epochs=epochs, batch_size=200)


@pytest.mark.parametrize(("global_model", "epochs"), [(None, 1), (network(3), 3)], ids=["the base", "its own"])
def test_the_global_model_is_fitted_once_and_before_the_local_ones_are_timed(
    planted: PlantedData, monkeypatch: pytest.MonkeyPatch, global_model: MultVAE | None, epochs: int
) -> None:
    model = Loca(base=network(1), global_model=global_model)
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
    assert (fitted_before, fits) == ([[epochs]], [epochs])  # the local ones are stacked: none has a fit of its own
    assert line["local models"] == 1


def test_seconds_of_two_machines_are_shown_with_a_warning_and_not_divided() -> None:
    lines = {
        f"{NAME} {engine} 1": [
            {"engine": engine, "local models": 1, "global seconds": 4.0, "local seconds": 3.0, "epochs": 7,
             "machine": machine}
        ]
        for engine, machine in (("stacked", "a GPU"), ("one_by_one", "2 cores"))
    }  # fmt: skip
    item = Table5().make([results({}, lines, bench())])
    assert item.tables[0].note == "Timed on several machines, whose seconds do not compare: a GPU; 2 cores"
    assert not any("as fast" in one.text for one in item.findings)


def test_a_timing_is_the_same_however_many_more_are_timed() -> None:
    few, more = (Table5().measurements(bench(sizes=replace(TINY, local_models=most))) for most in (2, 5))
    inputs = {one.name: one.inputs for one in more}
    assert [inputs[one.name] for one in few] == [one.inputs for one in few]
    assert inputs[f"{NAME} stacked 1"] != inputs[f"{NAME} one_by_one 1"]


def timed_once(on: Benchmark) -> Results:
    line: Records = [
        {"engine": "stacked", "local models": 1, "global seconds": 4.0, "local seconds": 3.0, "epochs": 7,
         "machine": "2 cores"}
    ]  # fmt: skip
    return results({}, {f"{NAME} stacked 1": line}, on)


def test_printed_seconds_stand_only_beside_the_paper_s_own_protocol() -> None:
    paper, clean, other = (
        Table5().make([timed_once(on)]).tables[0].table
        for on in (bench("paper", printed="AMusic"), bench("clean", printed="AMusic"), bench("paper"))
    )
    assert (paper.header[-1], [row[-1] for row in paper.rows]) == ("paper, s", ["46", "18"])
    for table_ in (clean, other):
        assert table_.header == paper.header[:-1]
        assert table_.rows == tuple(row[:-1] for row in paper.rows)
