"""Tuning is spent on the models that the asked pieces have, and never begun over what an earlier run has found."""

from __future__ import annotations

from pathlib import Path

import pytest
from result_examples import bench
from tiny_bench import tiny_bench

from loca.data.synthetic import PlantedData
from loca.errors import ConfigError
from loca.reproduction.benchmark import ALL_NAMES, AUTHORS, BEYOND
from loca.reproduction.paper import PIECES
from loca.reproduction.runner import KEPT, TUNED, check_start, models_of


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
        ("figure5", "mult-vae loca-vae ensemble-vae llorma-vae"),
        ("figure6", "mult-dae mult-vae loca-vae loca-dae"),
        ("figure7", "mult-vae loca-vae"),
        ("figure8", "mult-vae loca-vae"),
        ("figure6 figure5 table1", "mult-dae mult-vae loca-vae loca-dae ensemble-vae llorma-vae"),
    ],
)
def test_the_models_of_pieces_come_once_each_in_the_order_of_the_bench(pieces: str, expected: str) -> None:
    assert models_of(pieces.split(), bench()) == tuple(expected.split())


def test_what_the_paper_has_not_is_not_asked_for_under_its_protocol() -> None:
    clean = tuple(name for name in ALL_NAMES if name not in AUTHORS)
    assert models_of(tuple(PIECES), bench()) == clean
    assert models_of(tuple(PIECES), bench("paper")) == tuple(name for name in clean if name not in BEYOND)


def test_the_authors_own_settings_are_asked_for_where_the_paper_prints_figures_of_the_data() -> None:
    beside_print = models_of(("table2",), bench("paper", printed="AMusic"))
    assert beside_print == tuple(name for name in ALL_NAMES if name not in BEYOND)
    assert not set(AUTHORS) & set(models_of(("table2",), bench("clean", printed="AMusic")))
    assert "ease" in models_of(("table2",), bench("paper", printed="AMusic"), only=["loca-paper-ease"])


def test_a_case_study_asks_for_the_local_model_where_items_have_genres_under_clean(planted: PlantedData) -> None:
    assert models_of(["table4"], tiny_bench(planted)) == ("mult-vae", "loca-vae")
    assert models_of(["table4"], tiny_bench(planted, "paper")) == ()


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


@pytest.mark.parametrize("kept", [KEPT, TUNED])
def test_a_folder_with_cells_or_tuning_of_an_earlier_run_is_refused_unless_resumed_or_dropped(
    tmp_path: Path, kept: str
) -> None:
    (tmp_path / kept).mkdir()
    with pytest.raises(ConfigError, match=r"holds results of an earlier run; add --resume .* or --fresh") as caught:
        check_start(tmp_path, resume=False, fresh=False)
    assert str(tmp_path) in str(caught.value)
    check_start(tmp_path, resume=True, fresh=False)
    check_start(tmp_path, resume=False, fresh=True)


def test_tuning_is_kept_in_a_folder_of_that_name_and_any_other_is_no_earlier_run(tmp_path: Path) -> None:
    assert TUNED == "tuning"
    (tmp_path / "pictures").mkdir()
    check_start(tmp_path, resume=False, fresh=False)
    check_start(tmp_path / "none yet", resume=False, fresh=False)
