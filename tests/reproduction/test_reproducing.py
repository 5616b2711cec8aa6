"""A reproduction writes every asked piece and one page, computes nothing twice, and goes on after a kill."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from browser import CHROMIUM, browse, measured
from tiny_bench import TINY, tiny_bench

from loca.data.splits import Split
from loca.data.synthetic import PlantedData
from loca.errors import ConfigError, LocaError
from loca.experiments.runs import Run, RunStore
from loca.reproduction import measurings
from loca.reproduction import table5 as training_time
from loca.reproduction.paper import PIECES, find_pieces
from loca.reproduction.runner import PAGE, Reproduction, check_start, reproduce

COMMAND = "loca reproduce all --data tiny"


@pytest.fixture(scope="module")
def whole(planted: PlantedData, tmp_path_factory: pytest.TempPathFactory) -> Reproduction:
    """Everything, once, with one seed under clean."""
    folder = tmp_path_factory.mktemp("whole")
    bench = tiny_bench(planted, scale=replace(TINY, seeds=1))
    asked = Reproduction(tuple(PIECES), (bench,), folder, COMMAND)
    reproduce(asked, resume=False)
    return asked


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the cells that are computed from here on."""
    names: list[str] = []
    really = Run.execute

    def execute(cell: Run, split: Split, **more: Any) -> Any:
        names.append(cell.name)
        return really(cell, split, **more)

    monkeypatch.setattr(Run, "execute", execute)
    return names


def test_every_piece_is_written_with_its_records_and_its_picture(whole: Reproduction) -> None:
    for key in PIECES:
        assert (whole.folder / f"{key}.md").read_text().startswith("# "), key
        if key != "table4":  # of 12 items no two tastes can be read
            with (whole.folder / f"{key}.csv").open() as file:
                assert list(csv.DictReader(file)), key
    for key in ("figure2", "figure4", "figure5", "figure6", "figure7", "figure8", "table5"):
        assert (whole.folder / f"{key}.png").read_bytes().startswith(b"\x89PNG"), key
        assert "<svg" in (whole.folder / f"{key}.svg").read_text(), key


def test_the_page_holds_all_pieces_and_begins_with_what_loca_gains(whole: Reproduction) -> None:
    page = (whole.folder / PAGE).read_text()
    places = [page.index(f'id="{key}"') for key in PIECES]
    assert all(page.index("LOCA_VAE") < place for place in places)
    assert page.count("<svg") == 7
    assert COMMAND in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    for over in ("MultVAE", "Ensemble_VAE", "LOCA_EASE", "Ensemble_EASE"):
        assert over in page[: min(places)]


@pytest.mark.skipif(CHROMIUM is None, reason="needs the command chromium, which is not on the PATH")
def test_the_page_opens_in_a_browser_without_errors_and_every_figure_is_seen(
    whole: Reproduction, tmp_path: Path
) -> None:
    page = (whole.folder / PAGE).read_text()
    sizes = measured(tmp_path, page, 1280, 800)
    assert len(sizes["pictures"]) == 7
    assert all(width > 200 and height > 150 for width, height, _ in sizes["pictures"])
    assert sizes["page"] <= 1280
    assert sizes["gains"][2] <= 800
    (tmp_path / "as it is").mkdir()
    browse(tmp_path / "as it is", page, "--dump-dom")


def test_nothing_is_computed_twice_and_the_page_stays_the_same(
    whole: Reproduction, computed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {one.name: one.read_bytes() for one in whole.folder.iterdir() if one.is_file()}
    monkeypatch.setattr(measurings.Checkpoint, "save", lambda *_: pytest.fail("measured again"))
    reproduce(whole, resume=True)
    assert computed == []
    assert {one.name: one.read_bytes() for one in whole.folder.iterdir() if one.is_file()} == before


def test_a_piece_made_alone_takes_what_another_has_computed(whole: Reproduction, computed: list[str]) -> None:
    (exhibit,) = reproduce(replace(whole, pieces=("figure5",)), resume=True)
    assert (computed, exhibit.key) == ([], "figure5")


def test_after_a_kill_only_the_rest_is_computed(planted: PlantedData, tmp_path: Path, computed: list[str]) -> None:
    bench = tiny_bench(planted)
    only = ("ease", "mult-vae", "ensemble-vae", "loca-vae")
    asked = Reproduction(("table2", "figure5"), (bench,), tmp_path / "killed", COMMAND, only=only)
    names = [*(f"{name} seed {seed}" for name in only[1:] for seed in (0, 1)), "ease seed 0"]
    really = RunStore.execute

    def die_after_three(store: Any, cell: Run, *given: Any) -> Any:
        if len(computed) == 3:
            raise KeyboardInterrupt
        return really(store, cell, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunStore, "execute", die_after_three)
        with pytest.raises(KeyboardInterrupt):
            reproduce(asked, resume=False)
    assert len(computed) == 3
    with pytest.raises(ConfigError, match="holds results of an earlier run; add --resume"):
        check_start(asked.folder, resume=False, fresh=False)
    resumed = reproduce(asked, resume=True)
    assert sorted(computed) == sorted(names)
    straight = reproduce(replace(asked, folder=tmp_path / "straight"), resume=False)
    assert [_without_seconds(one.records) for one in resumed] == [_without_seconds(one.records) for one in straight]


def _without_seconds(records: Any) -> list[dict[str, Any]]:
    return [{name: value for name, value in line.items() if name != "seconds"} for line in records]


def test_an_earlier_piece_stays_on_the_page_of_a_later_one(
    planted: PlantedData, tmp_path: Path, computed: list[str]
) -> None:
    bench = tiny_bench(planted, scale=replace(TINY, seeds=1))
    asked = Reproduction(("figure6",), (bench,), tmp_path, COMMAND)
    reproduce(asked, resume=False)
    count = len(computed)
    reproduce(replace(asked, pieces=("table1",)), resume=True)
    page = (tmp_path / PAGE).read_text()
    assert 'id="table1"' in page
    assert 'id="figure6"' in page
    assert "loca reproduce figure6 --data tiny" in page
    assert len(computed) == count
    (tmp_path / "kept" / "tiny-clean" / "cells" / "work-loca-dae%20seed%200.safetensors").unlink()
    reproduce(replace(asked, pieces=("table1",)), resume=True)
    assert 'id="figure6"' not in (tmp_path / PAGE).read_text()
    assert len(computed) == count


def test_what_is_kept_is_shown_without_computing_the_rest(
    planted: PlantedData, tmp_path: Path, computed: list[str]
) -> None:
    benches = tuple(tiny_bench(planted, protocol) for protocol in ("clean", "paper"))
    asked = Reproduction(("table2",), benches[:1], tmp_path, COMMAND, only=("ease", "slim"))
    reproduce(asked, resume=False)
    count = len(computed)
    shown = Reproduction(("table1", "table2", "table4", "figure7"), benches, tmp_path, COMMAND, computes=False)
    exhibits = reproduce(shown, resume=True)
    assert len(computed) == count
    assert [one.key for one in exhibits] == ["table1", "table2"]  # nothing is kept of the others
    assert {(line["protocol"], line["model"]) for line in exhibits[1].records} == {("clean", "ease"), ("clean", "slim")}
    assert exhibits[0].missing == ()
    (missing,) = exhibits[1].missing
    assert missing.startswith("tiny, clean: popularity, item-knn, wmf, cdae, mult-dae, ")
    assert not {"ease", "slim"} & set(missing.removeprefix("tiny, clean: ").split(", "))
    assert f"Not computed: {missing}." in (tmp_path / PAGE).read_text()
    assert f"## Not computed\n\n- {missing}\n" in (tmp_path / "table2.md").read_text()
    assert not (tmp_path / "figure7.md").exists()
    assert 'id="figure7"' not in (tmp_path / PAGE).read_text()
    assert 'id="table4"' not in (tmp_path / PAGE).read_text()  # `paper` has no need of it, which is no result
    # Nor is a piece written of which no model is asked for: it would take the place of what was there.
    (tmp_path / "figure5.csv").write_text("made before")
    for computes in (False, True):
        few = replace(shown, benches=benches[:1], pieces=("table2", "figure5"), only=("ease",), computes=computes)
        assert [one.key for one in reproduce(few, resume=True)] == ["table2"]
    assert (tmp_path / "figure5.csv").read_text() == "made before"
    # An earlier piece stays on the page with what is kept of it.
    reproduce(replace(shown, pieces=("table1",)), resume=True)
    assert "SLIM" in (tmp_path / PAGE).read_text()


def test_of_kept_results_those_of_other_settings_are_left_out_and_nothing_is_written_of_nothing(
    planted: PlantedData, tmp_path: Path
) -> None:
    bench = tiny_bench(planted)
    asked = Reproduction(("table2",), (bench,), tmp_path, COMMAND, only=("ease", "slim"))
    reproduce(asked, resume=False)
    other = replace(bench, tables={**bench.tables, "ease": {"l2": 77.0}})
    shown = replace(asked, benches=(other,), only=(), computes=False)
    (exhibit,) = reproduce(shown, resume=True)
    assert {line["model"] for line in exhibit.records} == {"slim"}
    before = (tmp_path / PAGE).read_bytes()
    with pytest.raises(ConfigError, match="nothing is kept of tiny-clean; leave out --kept-only"):
        reproduce(replace(shown, pieces=("figure7",)), resume=True)
    assert (tmp_path / PAGE).read_bytes() == before


def test_fresh_drops_all_benches_before_the_first_is_begun(
    planted: PlantedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    benches = tuple(tiny_bench(planted, protocol) for protocol in ("clean", "paper"))
    asked = Reproduction(("table2",), benches, tmp_path, COMMAND, only=("ease",))
    reproduce(asked, resume=False)

    def die(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(RunStore, "execute", die)
    with pytest.raises(KeyboardInterrupt):
        reproduce(asked, resume=False)
    assert not list(tmp_path.glob("kept/*/cells/work-*"))


def test_with_one_process_too_what_fails_leaves_the_rest(
    planted: PlantedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = tiny_bench(planted, scale=replace(TINY, seeds=1))
    really = Run.execute

    def fail(cell: Run, split: Split, **more: Any) -> Any:
        if cell.name == "ease seed 0":
            raise RuntimeError("out of\nmemory")
        return really(cell, split, **more)

    monkeypatch.setattr(Run, "execute", fail)
    asked = Reproduction(("table2",), (bench,), tmp_path, COMMAND, only=("popularity", "ease", "slim"))
    with pytest.raises(LocaError, match=r"^tiny-clean: ease seed 0: RuntimeError: out of memory; .*--resume tries"):
        reproduce(asked, resume=False)
    text = (tmp_path / "table2.md").read_text()
    assert "Popularity" in text
    assert "SLIM" in text
    monkeypatch.setattr(Run, "execute", really)
    reproduce(asked, resume=True)
    assert "| EASE |" in (tmp_path / "table2.md").read_text()


def test_a_measuring_that_fails_leaves_the_rest(
    planted: PlantedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = tiny_bench(planted, scale=replace(TINY, seeds=1))

    def fail(_: Any) -> Any:
        raise RuntimeError("no clock")

    monkeypatch.setattr(training_time._Timing, "__call__", fail)
    asked = Reproduction(("table1", "table5"), (bench,), tmp_path, COMMAND)
    with pytest.raises(LocaError, match="tiny-clean: training seconds stacked 1: RuntimeError: no clock"):
        reproduce(asked, resume=False)
    assert (tmp_path / "table1.md").exists()


def test_wrong_settings_are_refused_before_anything_is_dropped(planted: PlantedData, tmp_path: Path) -> None:
    bench = tiny_bench(planted)
    asked = Reproduction(("table2",), (bench,), tmp_path, COMMAND, only=("ease",))
    reproduce(asked, resume=False)
    wrong = replace(bench, tables={"mult-vae": {"latnt": 3}})
    with pytest.raises(ConfigError, match="latnt"):
        reproduce(replace(asked, benches=(wrong,), pieces=("table5",), only=()), resume=False)
    assert list(tmp_path.glob("kept/*/cells/work-*"))


def test_seeds_that_are_missing_are_named(planted: PlantedData, tmp_path: Path) -> None:
    asked = Reproduction(("figure6",), (tiny_bench(planted),), tmp_path, COMMAND, only=("mult-vae",))
    reproduce(asked, resume=False)
    (tmp_path / "kept" / "tiny-clean" / "cells" / "work-mult-vae%20seed%201.safetensors").unlink()
    (exhibit,) = reproduce(replace(asked, only=(), computes=False), resume=True)
    assert exhibit.missing == ("tiny, clean: mult-vae (seed 1), mult-dae, loca-vae, loca-dae",)


def test_fresh_leaves_what_is_kept_of_other_data(planted: PlantedData, tmp_path: Path, computed: list[str]) -> None:
    clean, paper = (tiny_bench(planted, protocol) for protocol in ("clean", "paper"))
    asked = Reproduction(("table2",), (clean,), tmp_path, COMMAND, only=("ease",))
    reproduce(asked, resume=False)
    reproduce(replace(asked, benches=(paper,)), resume=False)
    assert len(computed) == 2
    reproduce(asked, resume=True)
    assert len(computed) == 2


def test_rows_that_are_kept_stay_beside_those_that_are_asked_for(
    planted: PlantedData, tmp_path: Path, computed: list[str]
) -> None:
    asked = Reproduction(("table2",), (tiny_bench(planted),), tmp_path, COMMAND, only=("ease", "slim"))
    reproduce(asked, resume=False)
    (exhibit,) = reproduce(replace(asked, only=("popularity",)), resume=True)
    assert {line["model"] for line in exhibit.records} == {"ease", "slim", "popularity"}
    assert len(computed) == 3


def test_fresh_drops_what_was_kept(planted: PlantedData, tmp_path: Path, computed: list[str]) -> None:
    asked = Reproduction(("table2",), (tiny_bench(planted),), tmp_path, COMMAND, only=("ease",))
    reproduce(asked, resume=False)
    reproduce(asked, resume=False)
    assert computed == ["ease seed 0", "ease seed 0"]


def test_a_cell_that_fails_leaves_the_others_and_is_told(planted: PlantedData, tmp_path: Path) -> None:
    bench = tiny_bench(planted, scale=replace(TINY, local_models=5000, seeds=1))
    asked = Reproduction(("table2",), (bench,), tmp_path, COMMAND, processes=2, only=("ease", "loca-ease"))
    with pytest.raises(LocaError, match=r"tiny-clean: loca-ease seed 0: .*anchors.*--resume tries again"):
        reproduce(asked, resume=False)
    assert "EASE" in (tmp_path / "table2.md").read_text()


def test_both_protocols_stand_side_by_side(planted: PlantedData, tmp_path: Path) -> None:
    benches = tuple(tiny_bench(planted, protocol) for protocol in ("clean", "paper"))
    asked = Reproduction(("table2",), benches, tmp_path, COMMAND, only=("ease", "loca-ease", "ensemble-ease"))
    (exhibit,) = reproduce(asked, resume=False)
    beside = exhibit.panels[0]
    assert beside.grid.header == (*("NDCG@100", "here, clean (400 users)", "95 %", "here, paper (400 users)", "95 %"),)
    assert [row[0] for row in beside.grid.rows] == ["EASE", "Ensemble_EASE (3)", "LOCA_EASE (3)"]
    assert "NOT A RESULT" in beside.note
    seeds = {(line["protocol"], line["model"], line["seed"]) for line in exhibit.records}
    assert seeds == {
        (protocol, name, seed)
        for protocol in ("clean", "paper")
        for name, count in (("ease", 1), ("loca-ease", 2), ("ensemble-ease", 2))
        for seed in range(count)
    }


def test_an_unknown_piece_is_refused_with_the_nearest() -> None:
    assert find_pieces("all") == tuple(PIECES)
    with pytest.raises(ConfigError, match=r"unknown piece 'tabel2'.*table2"):
        find_pieces("tabel2")
