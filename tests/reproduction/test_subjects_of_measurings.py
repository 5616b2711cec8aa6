"""What is timed or looked at is told to the last bit, and the seconds of the global model are its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from result_examples import bench, results
from tiny_bench import TINY, tiny_bench

from loca.data.synthetic import PlantedData
from loca.local.loca import Loca
from loca.models.mult_vae import MultVAE
from loca.models.recommender import Recommender
from loca.reproduction import figure2 as pilot_figure
from loca.reproduction import table4 as case_piece
from loca.reproduction import table5 as training_time
from loca.reproduction.benchmark import Benchmark, Records, Results
from loca.reproduction.measurings import Measurement, exactly


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
    stacked = training_time.measurings(tiny_bench(planted))[0]
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
        f"{training_time.NAME} {engine} 1": [
            {"engine": engine, "local models": 1, "global seconds": 4.0, "local seconds": 3.0, "epochs": 7,
             "machine": machine}
        ]
        for engine, machine in (("stacked", "a GPU"), ("one_by_one", "2 cores"))
    }  # fmt: skip
    exhibit = training_time.make([results({}, lines, bench())])
    assert exhibit.panels[0].note == "Timed on several machines, whose seconds do not compare: a GPU; 2 cores"
    assert not any("as fast" in one.text for one in exhibit.findings)


def test_a_timing_is_the_same_however_many_more_are_timed() -> None:
    few, more = (training_time.measurings(bench(scale=replace(TINY, local_models=most))) for most in (2, 5))
    subjects = {one.name: one.subject for one in more}
    assert [subjects[one.name] for one in few] == [one.subject for one in few]
    assert subjects[f"{training_time.NAME} stacked 1"] != subjects[f"{training_time.NAME} one_by_one 1"]


def timed(on: Benchmark) -> Results:
    line: Records = [
        {"engine": "stacked", "local models": 1, "global seconds": 4.0, "local seconds": 3.0, "epochs": 7,
         "machine": "2 cores"}
    ]  # fmt: skip
    return results({}, {f"{training_time.NAME} stacked 1": line}, on)


def test_printed_seconds_stand_only_beside_the_paper_s_own_protocol() -> None:
    paper, clean, other = (
        training_time.make([timed(on)]).panels[0].grid
        for on in (bench("paper", printed="AMusic"), bench("clean", printed="AMusic"), bench("paper"))
    )
    assert (paper.header[-1], [row[-1] for row in paper.rows]) == ("paper, s", ["46", "18"])
    for grid in (clean, other):
        assert grid.header == paper.header[:-1]
        assert grid.rows == tuple(row[:-1] for row in paper.rows)


def case_of(on: Benchmark) -> dict[str, Any]:
    (asked,) = case_piece.measurings(on)
    return dict(asked.subject)


def test_a_corrected_genre_or_title_asks_for_another_case_study(planted: PlantedData) -> None:
    on = tiny_bench(planted)
    first, *others = on.data.genres
    titles = {one: f"Film {one}" for one in on.data.genres}
    named = _with_titles(on, titles)
    corrected = {**on.data.genres, first: ("Western",)}
    turned = {one: on.data.genres[one] for one in (*reversed(others), first)}

    def changed(one: Benchmark, other: Benchmark) -> set[str]:
        then, now = case_of(one), case_of(other)
        return {key for key in then if then[key] != now[key]}

    assert changed(on, replace(on, data=replace(on.data, genres=corrected))) == {"genres"}
    assert changed(on, replace(on, data=replace(on.data, genres=turned))) == set()
    assert changed(on, named) == {"titles"}
    assert changed(named, _with_titles(on, {**titles, first: "Another"})) == {"titles"}
    assert changed(named, _with_titles(on, titles)) == set()


def _with_titles(on: Benchmark, titles: dict[Any, str]) -> Benchmark:
    data = replace(on.data, interactions=on.data.interactions.with_titles(titles))
    return replace(on, data=data, split=data.split(on.protocol))


def test_models_that_read_the_same_but_for_the_last_bit_are_told_apart() -> None:
    one, other = MultVAE(learning_rate=0.1), MultVAE(learning_rate=0.1 + 1e-16)
    assert exactly(one) == exactly(MultVAE(learning_rate=0.1))
    assert exactly(one)["to the last bit"] != exactly(other)["to the last bit"]


@pytest.mark.parametrize(
    "measurings",
    [training_time.measurings, pilot_figure.measurings, case_piece.measurings],
    ids=["Table 5", "Figure 2", "Table 4"],
)
def test_the_subject_of_every_measuring_has_its_model_to_the_last_bit(
    planted: PlantedData, measurings: Callable[[Benchmark], list[Measurement]]
) -> None:
    asked = measurings(tiny_bench(planted))
    assert asked
    assert all(isinstance(one.subject["to the last bit"], str) for one in asked)


def test_figure_2_says_that_its_intervals_are_over_anchors_and_too_narrow() -> None:
    lines: Records = [
        {"seed": 0, "anchor": anchor, "users": 3, "model": model, "share": share, "ndcg@100": value}
        for anchor in (0, 1)
        for model, share, value in [("MultVAE", None, 0.2), *(("local", share, 0.3) for share in pilot_figure.SHARES)]
    ]
    exhibit = pilot_figure.make([results({}, {f"{pilot_figure.NAME} seed 0": lines})])
    assert "over the anchors of all seeds" in exhibit.caption
    assert "too narrow" in exhibit.caption
    assert all(" over anchors] against " in one.text for one in exhibit.findings)
    assert len(exhibit.findings) == 3


def test_a_model_that_is_no_loca_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def single(self: Benchmark, name: str, seed: int = 0) -> Recommender:
        return network(1)

    monkeypatch.setattr(Benchmark, "model", single)
    with pytest.raises(TypeError, match="loca-vae: expected a Loca, found MultVAE"):
        training_time.measurings(bench())
