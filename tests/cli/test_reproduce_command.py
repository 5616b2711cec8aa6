"""`loca reproduce` says what it wrote, and refuses in one line what it cannot do, before anything is read or lost."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from loca.cli.main import main

SMALL = ["--local-models", "2", "--sweep-models", "2", "--seeds", "1", "--quiet"]


def test_a_table_of_one_model_is_written_and_found_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["reproduce", "table2", "--models", "ease,loca-ease", "--out", str(tmp_path / "out"), *SMALL, "--json"]
    assert main(asked) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["pieces"] == {"table2": "Table 2: accuracy of all models"}
    written = {one.name for one in (tmp_path / "out").iterdir()}
    assert {"table2.csv", "table2.md", "report.html", "kept"} <= written
    before = (tmp_path / "out" / "report.html").read_bytes()
    assert main(asked) == 2
    assert "holds results of an earlier run; add --resume" in capsys.readouterr().err
    assert main([*asked, "--resume"]) == 0
    assert (tmp_path / "out" / "report.html").read_bytes() == before
    assert main([*asked, "--kept-only"]) == 0
    assert "--kept-only" in (tmp_path / "out" / "report.html").read_text()
    capsys.readouterr()
    assert main(["reproduce", "table2", "--out", str(tmp_path / "none"), *SMALL, "--kept-only"]) == 2
    assert "nothing is kept of planted-clean; leave out --kept-only" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()
    assert "--resume" not in before.decode()


def test_statistics_need_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "table1", "--out", str(tmp_path / "out")]) == 0
    assert "1,000" in (tmp_path / "out" / "table1.md").read_text()
    told = capsys.readouterr().out
    assert told.strip().endswith("table1.csv, table1.md, report.html")


def test_settings_of_a_file_reach_the_models(tmp_path: Path) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text("[ease]\nl2 = 7.5\n")
    out = tmp_path / "out"
    asked = ["reproduce", "table2", "--models", "ease", "--settings", str(settings), "--out", str(out), *SMALL]
    assert main(asked) == 0
    assert ",7.5," in (out / "table2.csv").read_text()


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (["tabel2"], "unknown piece 'tabel2'; did you mean 'table2'"),
        (["table2", "--protocol", "papre"], "unknown protocol 'papre'; did you mean 'paper'?"),
        (["table2", "--data", "amsic"], "data 'amsic': there is no such file, and no data set of that name"),
        (["table2", "--models", "eese"], "unknown model 'eese'; did you mean 'ease'"),
        (["table2", "--seeds", "0"], "seeds: expected a whole number ≥ 1, found 0"),
        (["table2", "--processes", "0"], "processes: expected a whole number ≥ 1, found 0"),
        (["table2", "--settings", "nowhere"], "settings: nowhere: there is no such file or folder"),
        (["table2", "--settings", ".", "--trials", "3"], "--trials or --seconds look for others"),
        (["table2", "--models", ","], "models: expected at least one model, found none"),
        (["table5", "--models", "ease"], "models: table5 is not made of models' rows; leave out --models"),
        (["table2", "--local-models", "5000"], "planted-clean: 5000 local models need as many users, found 1000"),
        (["table2", "--resume", "--fresh"], "expected one of them, found both"),
        (["table2", "--kept-only", "--fresh"], "--kept-only shows what is kept; leave out --fresh"),
        (["table2", "--kept-only", "--trials", "2"], "--kept-only shows what is kept; leave out --fresh"),
    ],
)
def test_a_mistake_is_one_line(
    asked: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", *asked, "--out", "out", "--quiet"]) == 2
    line = capsys.readouterr().err.strip()
    assert told in line
    assert "\n" not in line
    assert not (tmp_path / "out").exists()


def test_two_data_sets_of_the_same_file_name_are_refused_because_each_would_overwrite_the_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"u{user},i{(user + place) % 15},{place}" for user in range(20) for place in range(12)]
    paths = [tmp_path / name for name in ("old/ratings.csv", "new/ratings.csv", "new/others.csv")]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        path.write_text("user,item,time\n" + "\n".join(rows) + "\n")
    old, new, others = map(str, paths)
    out = tmp_path / "out"
    asked = ["reproduce", "table1", "--protocol", "both", "--out", str(out), "--quiet"]
    assert main([*asked, "--data", old, "--data", new]) == 2
    line = capsys.readouterr().err.strip()
    assert line == "loca: data: two are called ratings.csv-clean; leave one out, or give one of the files another name"
    assert not out.exists()
    assert main([*asked, "--data", old, "--data", others]) == 0
    assert {"ratings.csv", "others.csv"} <= set((out / "table1.md").read_text().replace("|", " ").split())


def test_an_out_that_is_a_file_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").write_text("mine")
    assert main(["reproduce", "table1", "--out", str(tmp_path / "out")]) == 2
    assert "expected a folder to write into, found a file" in capsys.readouterr().err
    assert (tmp_path / "out").read_text() == "mine"


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[2] / "results" / "settings").glob("*.toml")), ids=str)
def test_the_settings_of_the_results_serve_the_other_commands_too(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["fit", "planted", "--model", "ease", "--config", str(path), "--out", str(tmp_path / "model"), "--quiet"]
    assert main(asked) == 0
    l2 = tomllib.loads(path.read_text())["ease"]["l2"]
    assert f"l2 {l2:g}" in capsys.readouterr().out
