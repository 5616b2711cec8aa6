"""A reproduction writes every requested item and one page, computes nothing twice, and goes on after a kill."""

from __future__ import annotations

import csv
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from browser import CHROMIUM, browse, measured
from examples import TINY, bench, compared, level, results, tiny_benchmark

from loca.data.splits import Split
from loca.data.synthetic import PlantedData
from loca.errors import ConfigError, LocaError
from loca.experiments.runs import Run, RunStore
from loca.models.mult_vae import MultVAE
from loca.paper import runner, tables
from loca.paper.benchmark import ALL_NAMES, AUTHORS, BEYOND, Measurement, Sizes
from loca.paper.report import Records
from loca.paper.runner import (
    PAGE,
    PAPER,
    STORED,
    TUNED,
    Reproduction,
    check_start,
    describe_run,
    find_items,
    load_measured,
    measure,
    models_of,
    reproduce,
)

COMMAND = "loca reproduce all --data tiny"


@pytest.fixture(scope="module")
def whole(planted: PlantedData, tmp_path_factory: pytest.TempPathFactory) -> Reproduction:
    """Everything, once, with one seed under clean."""
    folder = tmp_path_factory.mktemp("whole")
    bench = tiny_benchmark(planted, sizes=replace(TINY, seeds=1))
    asked = Reproduction(tuple(PAPER), (bench,), folder, COMMAND)
    reproduce(asked, resume=False)
    return asked


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the cells that are computed from here on."""
    names: list[str] = []
    really = RunStore.execute

    def compute(store: RunStore, run: Run, split: Split) -> Any:
        names.append(run.name)
        return really(store, run, split)

    monkeypatch.setattr(RunStore, "execute", compute)
    return names


def test_every_piece_is_written_with_its_records_and_its_picture(whole: Reproduction) -> None:
    for key in PAPER:
        assert (whole.folder / f"{key}.md").read_text().startswith("# "), key
        if key != "table4":  # of 12 items no two tastes can be read
            with (whole.folder / f"{key}.csv").open() as file:
                assert list(csv.DictReader(file)), key
    for key in ("figure2", "figure4", "figure5", "figure6", "figure7", "figure8", "table5"):
        assert (whole.folder / f"{key}.png").read_bytes().startswith(b"\x89PNG"), key
        assert "<svg" in (whole.folder / f"{key}.svg").read_text(), key


def test_the_page_holds_all_pieces_and_begins_with_what_loca_gains(whole: Reproduction) -> None:
    page = (whole.folder / PAGE).read_text()
    places = [page.index(f'id="{key}"') for key in PAPER]
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
    monkeypatch.setattr(runner, "measure", lambda *_: pytest.fail("measured again"))
    reproduce(whole, resume=True)
    assert computed == []
    assert {one.name: one.read_bytes() for one in whole.folder.iterdir() if one.is_file()} == before


def test_a_piece_made_alone_takes_what_another_has_computed(
    whole: Reproduction, computed: list[str]
) -> None:
    (item,) = reproduce(replace(whole, items=("figure5",)), resume=True)
    assert (computed, item.key) == ([], "figure5")


def test_after_a_kill_only_the_rest_is_computed(
    planted: PlantedData, tmp_path: Path, computed: list[str]
) -> None:
    bench = tiny_benchmark(planted)
    only = ("ease", "mult-vae", "ensemble-vae", "loca-vae")
    asked = Reproduction(("table2", "figure5"), (bench,), tmp_path / "killed", COMMAND, only=only)
    names = [*(f"{name} seed {seed}" for name in only[1:] for seed in (0, 1)), "ease seed 0"]
    really = RunStore.execute

    def die_after_three(store: Any, cell: Run, split: Split) -> Any:
        if len(computed) == 3:
            raise KeyboardInterrupt
        return really(store, cell, split)

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
    assert [_without_seconds(one.records) for one in resumed] == [
        _without_seconds(one.records) for one in straight
    ]


def _without_seconds(records: Any) -> list[dict[str, Any]]:
    return [{name: value for name, value in line.items() if name != "seconds"} for line in records]


def test_an_earlier_piece_stays_on_the_page_of_a_later_one(
    planted: PlantedData, tmp_path: Path, computed: list[str]
) -> None:
    bench = tiny_benchmark(planted, sizes=replace(TINY, seeds=1))
    asked = Reproduction(("figure6",), (bench,), tmp_path, COMMAND)
    reproduce(asked, resume=False)
    count = len(computed)
    reproduce(replace(asked, items=("table1",)), resume=True)
    page = (tmp_path / PAGE).read_text()
    assert 'id="table1"' in page
    assert 'id="figure6"' in page
    assert "loca reproduce figure6 --data tiny" in page
    assert len(computed) == count
    (tmp_path / "kept" / "tiny-clean" / "runs" / "work-loca-dae%20seed%200.safetensors").unlink()
    reproduce(replace(asked, items=("table1",)), resume=True)
    assert 'id="figure6"' not in (tmp_path / PAGE).read_text()
    assert len(computed) == count


def test_what_is_kept_is_shown_without_computing_the_rest(
    planted: PlantedData, tmp_path: Path, computed: list[str]
) -> None:
    benches = tuple(tiny_benchmark(planted, protocol) for protocol in ("clean", "paper"))
    asked = Reproduction(("table2",), benches[:1], tmp_path, COMMAND, only=("ease", "slim"))
    reproduce(asked, resume=False)
    count = len(computed)
    shown = Reproduction(
        ("table1", "table2", "table4", "figure7"), benches, tmp_path, COMMAND, computes=False
    )
    items = reproduce(shown, resume=True)
    assert len(computed) == count
    assert [one.key for one in items] == ["table1", "table2"]  # nothing is stored of the others
    assert {(line["protocol"], line["model"]) for line in items[1].records} == {
        ("clean", "ease"),
        ("clean", "slim"),
    }
    assert items[0].missing == ()
    (missing,) = items[1].missing
    assert missing.startswith("tiny, clean: popularity, item-knn, wmf, cdae, mult-dae, ")
    assert not {"ease", "slim"} & set(missing.removeprefix("tiny, clean: ").split(", "))
    assert f"Not computed: {missing}." in (tmp_path / PAGE).read_text()
    assert f"## Not computed\n\n- {missing}\n" in (tmp_path / "table2.md").read_text()
    assert not (tmp_path / "figure7.md").exists()
    assert 'id="figure7"' not in (tmp_path / PAGE).read_text()
    assert (
        'id="table4"' not in (tmp_path / PAGE).read_text()
    )  # `paper` has no need of it, which is no result
    # Nor is a piece written of which no model is asked for: it would take the place of what was there.
    (tmp_path / "figure5.csv").write_text("made before")
    for computes in (False, True):
        few = replace(
            shown,
            benchmarks=benches[:1],
            items=("table2", "figure5"),
            only=("ease",),
            computes=computes,
        )
        assert [one.key for one in reproduce(few, resume=True)] == ["table2"]
    assert (tmp_path / "figure5.csv").read_text() == "made before"
    # An earlier piece stays on the page with what is kept of it.
    reproduce(replace(shown, items=("table1",)), resume=True)
    assert "SLIM" in (tmp_path / PAGE).read_text()


def test_of_kept_results_those_of_other_settings_are_left_out_and_nothing_is_written_of_nothing(
    planted: PlantedData, tmp_path: Path
) -> None:
    bench = tiny_benchmark(planted)
    asked = Reproduction(("table2",), (bench,), tmp_path, COMMAND, only=("ease", "slim"))
    reproduce(asked, resume=False)
    other = replace(bench, tables={**bench.tables, "ease": {"l2": 77.0}})
    shown = replace(asked, benchmarks=(other,), only=(), computes=False)
    (item,) = reproduce(shown, resume=True)
    assert {line["model"] for line in item.records} == {"slim"}
    before = (tmp_path / PAGE).read_bytes()
    with pytest.raises(ConfigError, match="nothing is stored of tiny-clean; leave out --kept-only"):
        reproduce(replace(shown, items=("figure7",)), resume=True)
    assert (tmp_path / PAGE).read_bytes() == before


def test_fresh_drops_all_benches_before_the_first_is_begun(
    planted: PlantedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    benches = tuple(tiny_benchmark(planted, protocol) for protocol in ("clean", "paper"))
    asked = Reproduction(("table2",), benches, tmp_path, COMMAND, only=("ease",))
    reproduce(asked, resume=False)

    def die(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(RunStore, "execute", die)
    with pytest.raises(KeyboardInterrupt):
        reproduce(asked, resume=False)
    assert not list(tmp_path.glob("kept/*/runs/work-*"))


def test_with_one_process_too_what_fails_leaves_the_rest(
    planted: PlantedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = tiny_benchmark(planted, sizes=replace(TINY, seeds=1))
    really = RunStore.execute

    def fail(store: RunStore, run: Run, split: Split) -> Any:
        if run.name == "ease seed 0":
            raise RuntimeError("out of\nmemory")
        return really(store, run, split)

    monkeypatch.setattr(RunStore, "execute", fail)
    asked = Reproduction(
        ("table2",), (bench,), tmp_path, COMMAND, only=("popularity", "ease", "slim")
    )
    with pytest.raises(
        LocaError, match=r"^tiny-clean: ease seed 0: RuntimeError: out of memory; .*--resume tries"
    ):
        reproduce(asked, resume=False)
    text = (tmp_path / "table2.md").read_text()
    assert "Popularity" in text
    assert "SLIM" in text
    monkeypatch.setattr(RunStore, "execute", really)
    reproduce(asked, resume=True)
    assert "| EASE |" in (tmp_path / "table2.md").read_text()


def test_a_measuring_that_fails_leaves_the_rest(
    planted: PlantedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = tiny_benchmark(planted, sizes=replace(TINY, seeds=1))

    def fail(*_: Any) -> Any:
        raise RuntimeError("no clock")

    monkeypatch.setattr(tables, "selection_data", fail)
    asked = Reproduction(("table1", "table5"), (bench,), tmp_path, COMMAND)
    with pytest.raises(
        LocaError, match="tiny-clean: training seconds stacked 1: RuntimeError: no clock"
    ):
        reproduce(asked, resume=False)
    assert (tmp_path / "table1.md").exists()


def test_wrong_settings_are_refused_before_anything_is_dropped(
    planted: PlantedData, tmp_path: Path
) -> None:
    bench = tiny_benchmark(planted)
    asked = Reproduction(("table2",), (bench,), tmp_path, COMMAND, only=("ease",))
    reproduce(asked, resume=False)
    wrong = replace(bench, tables={"mult-vae": {"latnt": 3}})
    with pytest.raises(ConfigError, match="latnt"):
        reproduce(replace(asked, benchmarks=(wrong,), items=("table5",), only=()), resume=False)
    assert list(tmp_path.glob("kept/*/runs/work-*"))


def test_seeds_that_are_missing_are_named(planted: PlantedData, tmp_path: Path) -> None:
    asked = Reproduction(
        ("figure6",), (tiny_benchmark(planted),), tmp_path, COMMAND, only=("mult-vae",)
    )
    reproduce(asked, resume=False)
    (tmp_path / "kept" / "tiny-clean" / "runs" / "work-mult-vae%20seed%201.safetensors").unlink()
    (item,) = reproduce(replace(asked, only=(), computes=False), resume=True)
    missing = "tiny, clean: mult-vae (seed 1), mult-dae, loca-vae, loca-dae, mixture-vae, ensemble-vae, mixture-ease"
    assert item.missing == (f"{missing}, ensemble-ease",)


def test_fresh_leaves_what_is_kept_of_other_data(
    planted: PlantedData, tmp_path: Path, computed: list[str]
) -> None:
    clean, paper = (tiny_benchmark(planted, protocol) for protocol in ("clean", "paper"))
    asked = Reproduction(("table2",), (clean,), tmp_path, COMMAND, only=("ease",))
    reproduce(asked, resume=False)
    reproduce(replace(asked, benchmarks=(paper,)), resume=False)
    assert len(computed) == 2
    reproduce(asked, resume=True)
    assert len(computed) == 2


def test_rows_that_are_kept_stay_beside_those_that_are_asked_for(
    planted: PlantedData, tmp_path: Path, computed: list[str]
) -> None:
    asked = Reproduction(
        ("table2",), (tiny_benchmark(planted),), tmp_path, COMMAND, only=("ease", "slim")
    )
    reproduce(asked, resume=False)
    (item,) = reproduce(replace(asked, only=("popularity",)), resume=True)
    assert {line["model"] for line in item.records} == {"ease", "slim", "popularity"}
    assert len(computed) == 3


def test_fresh_drops_what_was_kept(
    planted: PlantedData, tmp_path: Path, computed: list[str]
) -> None:
    asked = Reproduction(("table2",), (tiny_benchmark(planted),), tmp_path, COMMAND, only=("ease",))
    reproduce(asked, resume=False)
    reproduce(asked, resume=False)
    assert computed == ["ease seed 0", "ease seed 0"]


def test_a_cell_that_fails_leaves_the_others_and_is_told(
    planted: PlantedData, tmp_path: Path
) -> None:
    bench = tiny_benchmark(planted, sizes=replace(TINY, seeds=1))
    wrong = {"communities": {"shared_epochs": 99}}
    bench = replace(bench, tables={**bench.tables, "mixture-vae": wrong})
    asked = Reproduction(
        ("table2",), (bench,), tmp_path, COMMAND, processes=2, only=("ease", "mixture-vae")
    )
    with pytest.raises(
        LocaError,
        match=r"tiny-clean: mixture-vae seed 0: shared_epochs: .* found 99; .*--resume tries again",
    ):
        reproduce(asked, resume=False)
    assert "EASE" in (tmp_path / "table2.md").read_text()


def test_both_protocols_stand_side_by_side(planted: PlantedData, tmp_path: Path) -> None:
    benches = tuple(tiny_benchmark(planted, protocol) for protocol in ("clean", "paper"))
    asked = Reproduction(
        ("table2",), benches, tmp_path, COMMAND, only=("ease", "loca-ease", "ensemble-ease")
    )
    (item,) = reproduce(asked, resume=False)
    beside = item.tables[0]
    assert beside.table.header == (
        *("NDCG@100", "here, clean (400 users)", "95 %", "here, paper (400 users)", "95 %"),
    )
    assert [row[0] for row in beside.table.rows] == ["EASE", "Ensemble_EASE (3)", "LOCA_EASE (3)"]
    assert "NOT A RESULT" in beside.note
    seeds = {(line["protocol"], line["model"], line["seed"]) for line in item.records}
    assert seeds == {
        (protocol, name, seed)
        for protocol in ("clean", "paper")
        for name, count in (("ease", 1), ("loca-ease", 2), ("ensemble-ease", 2))
        for seed in range(count)
    }


def test_an_unknown_piece_is_refused_with_the_nearest() -> None:
    assert find_items("all") == tuple(PAPER)
    with pytest.raises(ConfigError, match=r"unknown table or figure 'tabel2'.*table2"):
        find_items("tabel2")


def test_settings_have_as_many_models_as_were_asked_for() -> None:
    tables = {
        "loca-vae": {
            "communities": {"kind": "kernels", "n": 40},
            "combiner": {"kind": "fixed-share", "share": 0.5},
        },
        "ensemble-vae": {"models": 139},
        "ease": {"l2": 7.0},
    }
    on = replace(bench(sizes=Sizes(local_models=3, seeds=1)), tables=tables)
    names = ("loca-vae", "ensemble-vae", "ease", "slim")
    told = describe_run(
        "loca reproduce table2", [results({name: [compared(level(0.2))] for name in names}, on=on)]
    )
    settings = {
        name: value
        for name, value in told.facts["Settings"].items()
        if name.split(": ")[1] in names
    }
    assert settings == {
        "Hand, clean: slim": "defaults",
        "Hand, clean: ease": "l2 7.0",
        "Hand, clean: loca-vae": (
            "communities.kind kernels, communities.n 3, combiner.kind fixed-share, "
            "combiner.share 0.5"
        ),
        "Hand, clean: ensemble-vae": "models 3",
    }


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ("table1", ""),
        ("table2", " ".join(name for name in ALL_NAMES if name not in AUTHORS)),
        ("table3", "mult-vae loca-vae"),
        ("table4", ""),  # these items have no genres
        ("table5", "mult-vae loca-vae"),
        ("figure2", "mult-vae loca-vae"),
        ("figure4", "mult-vae loca-vae ensemble-vae"),
        ("figure5", "mult-vae loca-vae ensemble-vae llorma-vae mixture-vae dealt-vae"),
        (
            "figure6",
            "mult-dae mult-vae ease loca-vae loca-dae ensemble-vae ensemble-ease mixture-vae mixture-ease",
        ),
        ("figure7", "mult-vae loca-vae ensemble-vae mixture-vae dealt-vae"),
        ("figure8", "mult-vae loca-vae ensemble-vae mixture-vae"),
        (
            "figure8 figure5 table1",
            "mult-vae loca-vae ensemble-vae llorma-vae mixture-vae dealt-vae",
        ),
    ],
)
def test_the_models_of_pieces_come_once_each_in_the_order_of_the_bench(
    pieces: str, expected: str
) -> None:
    assert models_of(pieces.split(), bench()) == tuple(expected.split())


def test_what_the_paper_has_not_is_not_asked_for_under_its_protocol() -> None:
    clean = tuple(name for name in ALL_NAMES if name not in AUTHORS)
    assert models_of(tuple(PAPER), bench()) == clean
    assert models_of(tuple(PAPER), bench("paper")) == tuple(
        name for name in clean if name not in BEYOND
    )


def test_the_authors_own_settings_are_asked_for_where_the_paper_prints_figures_of_the_data() -> (
    None
):
    beside_print = models_of(("table2",), bench("paper", printed="AMusic"))
    assert beside_print == tuple(name for name in ALL_NAMES if name not in BEYOND)
    assert not set(AUTHORS) & set(models_of(("table2",), bench("clean", printed="AMusic")))
    assert "ease" in models_of(
        ("table2",), bench("paper", printed="AMusic"), only=["paper-loca-ease"]
    )


def test_a_case_study_asks_for_the_local_model_where_items_have_genres_under_clean(
    planted: PlantedData,
) -> None:
    assert models_of(["table4"], tiny_benchmark(planted)) == ("mult-vae", "loca-vae")
    assert models_of(["table4"], tiny_benchmark(planted, "paper")) == ()


@pytest.mark.parametrize(
    ("piece", "only", "expected"),
    [
        ("table2", "ease", "ease"),
        ("table2", "loca-ease", "ease loca-ease"),
        ("table2", "loca-vae popularity", "popularity mult-vae loca-vae"),
        ("table2", "ensemble-dae", "mult-dae ensemble-dae"),
        ("table2", "llorma-vae", "mult-vae llorma-vae"),
        ("table2", "llorma auto", "llorma auto"),
        ("figure5", "ensemble-vae", "mult-vae ensemble-vae"),
        ("figure5", "ease", ""),
    ],
)
def test_of_the_chosen_models_only_those_that_the_piece_has_are_asked_for_with_their_bases(
    piece: str, only: str, expected: str
) -> None:
    assert models_of([piece], bench(), only.split()) == tuple(expected.split())


@pytest.mark.parametrize("piece", ["table5", "figure2"])
def test_what_is_no_cell_asks_for_nothing_beside_chosen_models(piece: str) -> None:
    assert models_of([piece], bench(), ("loca-vae",)) == ()


@pytest.mark.parametrize("kept", [STORED, TUNED])
def test_a_folder_with_cells_or_tuning_of_an_earlier_run_is_refused_unless_resumed_or_dropped(
    tmp_path: Path, kept: str
) -> None:
    (tmp_path / kept).mkdir()
    with pytest.raises(
        ConfigError, match=r"holds results of an earlier run; add --resume .* or --fresh"
    ) as caught:
        check_start(tmp_path, resume=False, fresh=False)
    assert str(tmp_path) in str(caught.value)
    check_start(tmp_path, resume=True, fresh=False)
    check_start(tmp_path, resume=False, fresh=True)


def test_tuning_is_kept_in_a_folder_of_that_name_and_any_other_is_no_earlier_run(
    tmp_path: Path,
) -> None:
    assert TUNED == "tuning"
    (tmp_path / "pictures").mkdir()
    check_start(tmp_path, resume=False, fresh=False)
    check_start(tmp_path / "none yet", resume=False, fresh=False)


INPUTS: Mapping[str, Any] = {"data": "a digest", "protocol": "clean", "latent": 8, "anchors": None}
LINES: Records = [
    {"seed": 0, "share": 0.1, "model": "local", "is it": True, "nothing": None},
    {"seed": 1, "share": 1 / 3, "model": "ganz", "is it": False, "nothing": None},
]


def find_or_measure(one: Measurement, folder: Path) -> Records:
    records, _ = load_measured(one, folder) or measure(one, folder)
    return records


class Counted:
    """Gives the lines, and counts how often it was asked."""

    def __init__(self, lines: Records) -> None:
        self.lines = lines
        self.times = 0

    def __call__(self) -> Records:
        self.times += 1
        return [dict(line) for line in self.lines]


def test_records_are_measured_once_and_found_again_to_the_last_bit(tmp_path: Path) -> None:
    counted = Counted(LINES)
    asked = Measurement("training seconds stacked 1", INPUTS, counted)
    assert load_measured(asked, tmp_path) is None
    first = find_or_measure(asked, tmp_path)
    again = find_or_measure(asked, tmp_path)
    assert first == again == LINES
    assert counted.times == 1


def test_each_has_its_own_records_and_only_what_is_missing_is_measured(tmp_path: Path) -> None:
    old, new = Counted(LINES[:1]), Counted(LINES[1:])
    find_or_measure(Measurement("old", INPUTS, old), tmp_path)
    assert find_or_measure(Measurement("new", {**INPUTS, "latent": 9}, new), tmp_path) == LINES[1:]
    assert find_or_measure(Measurement("old", INPUTS, old), tmp_path) == LINES[:1]
    assert (old.times, new.times) == (1, 1)


def test_nothing_is_kept_of_one_that_fails(tmp_path: Path) -> None:
    def fail() -> Records:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        find_or_measure(Measurement("killed", INPUTS, fail), tmp_path)
    again = Counted(LINES)
    assert find_or_measure(Measurement("killed", INPUTS, again), tmp_path) == LINES
    assert again.times == 1


@pytest.mark.parametrize(
    ("now", "told"),
    [
        ({**INPUTS, "data": "another"}, "the data have changed"),
        ({**INPUTS, "latent": 16}, "latent: 8 then, 16 now"),
        ({**INPUTS, "epochs": 2}, "epochs: not set then, 2 now"),
        (
            {key: value for key, value in INPUTS.items() if key != "latent"},
            "latent: 8 then, not set now",
        ),
    ],
)
def test_records_of_another_subject_are_refused_and_stay(
    tmp_path: Path, now: Mapping[str, Any], told: str
) -> None:
    find_or_measure(Measurement("timing", INPUTS, Counted(LINES)), tmp_path)
    other = Counted([])
    with pytest.raises(
        ConfigError, match="records of timing that are not those requested"
    ) as caught:
        find_or_measure(Measurement("timing", now, other), tmp_path)
    assert told in str(caught.value)
    assert "--fresh" in str(caught.value)
    assert other.times == 0
    assert find_or_measure(Measurement("timing", INPUTS, other), tmp_path) == LINES


@pytest.mark.parametrize("keeps", [0, 0.5, 0.95], ids=["empty", "half", "cut short"])
def test_a_damaged_file_is_measured_again(tmp_path: Path, keeps: float) -> None:
    find_or_measure(Measurement("timing", INPUTS, Counted(LINES)), tmp_path)
    (file,) = (one for one in tmp_path.iterdir() if one.is_file())
    whole = file.read_bytes()
    file.write_bytes(whole[: int(keeps * len(whole))])
    again = Counted(LINES)
    assert find_or_measure(Measurement("timing", INPUTS, again), tmp_path) == LINES
    assert again.times == 1
    assert find_or_measure(Measurement("timing", INPUTS, again), tmp_path) == LINES
    assert again.times == 1


def test_a_file_with_a_changed_byte_is_measured_again(tmp_path: Path) -> None:
    find_or_measure(Measurement("timing", INPUTS, Counted(LINES)), tmp_path)
    (file,) = (one for one in tmp_path.iterdir() if one.is_file())
    file.write_bytes(file.read_bytes().replace(b"ganz", b"gans"))
    again = Counted(LINES)
    assert find_or_measure(Measurement("timing", INPUTS, again), tmp_path) == LINES
    assert again.times == 1


def test_to_look_for_records_leaves_nothing(tmp_path: Path) -> None:
    assert load_measured(Measurement("timing", INPUTS, Counted(LINES)), tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_the_seconds_of_what_is_kept_are_told(tmp_path: Path) -> None:
    def slow() -> Records:
        time.sleep(0.05)
        return LINES

    asked = Measurement("slow", INPUTS, slow)
    _, took = measure(asked, tmp_path)
    assert 0.05 <= took < 5
    assert load_measured(asked, tmp_path) == (LINES, took)


def test_models_that_read_the_same_but_for_the_last_bit_are_told_apart() -> None:
    one, other = MultVAE(learning_rate=0.1), MultVAE(learning_rate=0.1 + 1e-16)
    inputs = bench().inputs_of
    assert inputs(one) == inputs(MultVAE(learning_rate=0.1))
    assert inputs(one)["to the last bit"] != inputs(other)["to the last bit"]


@pytest.mark.parametrize("key", ["table3", "table4", "table5", "figure2"])
def test_the_inputs_of_every_measurement_have_its_model_to_the_last_bit(
    planted: PlantedData, key: str
) -> None:
    found = PAPER[key].measurements(tiny_benchmark(planted))
    assert found
    assert all(isinstance(one.inputs["to the last bit"], str) for one in found)
