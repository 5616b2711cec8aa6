"""`loca reproduce` says what it wrote, and refuses in one line what it cannot do, before anything is read or lost."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path

import pytest

from loca.cli.main import main
from loca.paper import runner as reproducing

SMALL = ["--local-models", "2", "--sweep-models", "2", "--seeds", "1", "--quiet"]


def test_a_table_of_one_model_is_written_and_found_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [
        "reproduce",
        "table2",
        "--models",
        "ease,loca-ease",
        "--out",
        str(tmp_path / "out"),
        *SMALL,
        "--json",
    ]
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
    assert (
        main(["reproduce", "table2", "--out", str(tmp_path / "none"), *SMALL, "--kept-only"]) == 2
    )
    assert "nothing is stored of planted-clean; leave out --kept-only" in capsys.readouterr().err
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
    asked = [
        "reproduce",
        "table2",
        "--models",
        "ease",
        "--settings",
        str(settings),
        "--out",
        str(out),
        *SMALL,
    ]
    assert main(asked) == 0
    assert ",7.5," in (out / "table2.csv").read_text()


def test_a_setting_that_no_model_has_is_told_with_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text("[ease]\nl3 = 7.5\n")
    asked = [
        "reproduce",
        "table2",
        "--models",
        "ease",
        "--settings",
        str(settings),
        "--out",
        str(tmp_path / "out"),
    ]
    assert main([*asked, *SMALL]) == 2
    line = capsys.readouterr().err.strip()
    assert line.startswith(f"loca: {settings}: planted-clean: ")
    assert "l3" in line
    assert "\n" not in line


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (["tabel2"], "unknown table or figure 'tabel2'; did you mean 'table2'"),
        (["table2", "--protocol", "papre"], "unknown protocol 'papre'; did you mean 'paper'?"),
        (
            ["table2", "--protocol", "nonsense"],
            "unknown protocol 'nonsense'; expected clean, paper or both",
        ),
        (
            ["figure5", "--models", "popularity"],
            "models: none of popularity is needed there; there are mult-vae, loca-vae",
        ),
        (
            ["table2", "--models", "auto", "--protocol", "paper"],
            "models: none of auto is needed there; there are popularity",
        ),
        (
            ["table2", "--seeds", "99999999999999999999"],
            "seeds: expected at most 100,000, found 99,999,999",
        ),
        (
            ["table2", "--data", "amsic"],
            "data 'amsic': there is no such file, and no data set of that name",
        ),
        (["table2", "--models", "eese"], "unknown model 'eese'; did you mean 'ease'"),
        (["table2", "--seeds", "0"], "seeds: expected a whole number ≥ 1, found 0"),
        (["table2", "--processes", "0"], "processes: expected a whole number ≥ 1, found 0"),
        (["table2", "--settings", "nowhere"], "settings: nowhere: there is no such file or folder"),
        (["table2", "--settings", ".", "--trials", "3"], "--trials or --seconds look for others"),
        (["table2", "--models", ","], "models: expected at least one model, found none"),
        (
            ["table5", "--models", "ease"],
            "models: table5 is not made of models' rows; leave out --models",
        ),
        (
            ["table2", "--local-models", "5000"],
            "planted-clean: 5000 local models need as many users, found 1000",
        ),
        (["table2", "--resume", "--fresh"], "expected one of them, found both"),
        (
            ["table2", "--kept-only", "--fresh"],
            "--kept-only shows what is stored; leave out --fresh",
        ),
        (
            ["table2", "--kept-only", "--trials", "2"],
            "--kept-only shows what is stored; leave out --fresh",
        ),
    ],
)
def test_a_mistake_is_one_line(
    asked: list[str],
    told: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
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
    assert (
        line
        == "loca: --data: two are called ratings.csv-clean; leave one out, or give one of the files another name"
    )
    assert not out.exists()
    assert main([*asked, "--data", old, "--data", others]) == 0
    assert {"ratings.csv", "others.csv"} <= set(
        (out / "table1.md").read_text().replace("|", " ").split()
    )


def test_pieces_whose_results_lie_elsewhere_are_not_replaced_unless_told_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("report.html", "table1.csv"):
        out = tmp_path / name.split(".")[0]
        out.mkdir()
        (out / name).write_text("mine")
        asked = ["reproduce", "table1", "--out", str(out), "--quiet"]
        for more in ([], ["--resume"], ["--kept-only"]):
            assert main([*asked, *more]) == 2
            line = capsys.readouterr().err.strip()
            assert f"{out} holds {name} without the results that it was made of" in line
            assert "\n" not in line
        assert [one.name for one in out.iterdir()] == [name]
        assert (out / name).read_text() == "mine"
        assert main([*asked, "--fresh"]) == 0
        assert (out / name).read_text() != "mine"


def test_settings_chosen_on_test_make_no_clean_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = tmp_path / "c"
    chosen = [
        "compare",
        "planted",
        "--models",
        "ease",
        "--protocol",
        "paper",
        "--trials",
        "2",
        "--out",
        str(found),
    ]
    assert main([*chosen, "--quiet"]) == 0
    asked = [
        "reproduce",
        "table2",
        "--models",
        "ease",
        "--settings",
        str(found / "comparison.toml"),
        *SMALL,
    ]
    capsys.readouterr()
    assert main([*asked, "--out", str(tmp_path / "clean")]) == 2
    line = capsys.readouterr().err.strip()
    assert "its settings were chosen on the test items (compare.protocol is paper)" in line
    assert "\n" not in line
    assert not (tmp_path / "clean").exists()
    assert main([*asked, "--protocol", "paper", "--out", str(tmp_path / "paper")]) == 0


def test_what_was_tuned_is_shown_again_without_tuning(tmp_path: Path) -> None:
    asked = ["reproduce", "table2", "--models", "ease", "--out", str(tmp_path / "out"), *SMALL]
    assert main([*asked, "--trials", "2"]) == 0
    before = (tmp_path / "out" / "table2.csv").read_bytes()
    assert main([*asked, "--kept-only"]) == 0
    assert (tmp_path / "out" / "table2.csv").read_bytes() == before


def test_a_file_called_as_built_in_data_and_one_whose_name_is_no_text_are_files(
    tmp_path: Path,
) -> None:
    rows = [f"u{user},i{(user + place) % 15},{place}" for user in range(20) for place in range(12)]
    for name in (b"planted", b"bad\xff.csv"):
        path = tmp_path / os.fsdecode(name)
        path.write_text("user,item,time\n" + "\n".join(rows) + "\n")
        out = tmp_path / "out" / str(len(name))
        asked = [
            "reproduce",
            "table2",
            "--models",
            "popularity",
            "--data",
            str(path),
            "--out",
            str(out),
            "--quiet",
        ]
        assert main([*asked, "--local-models", "2", "--sweep-models", "2"]) == 0
        (kept,) = (one.name for one in (out / "kept").iterdir())
        assert kept == {b"planted": "planted (file)-clean"}.get(name, "bad?.csv-clean")


def test_figure_2_asks_for_no_more_users_than_it_trains_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [f"u{user},i{(user + place) % 15},{place}" for user in range(20) for place in range(12)]
    (tmp_path / "few.csv").write_text("user,item,time\n" + "\n".join(rows) + "\n")
    asked = []
    monkeypatch.setattr(reproducing, "reproduce", lambda one, resume: asked.append(one) or ())
    out = ["--out", str(tmp_path / "out"), "--quiet"]
    assert main(["reproduce", "figure2", "--data", str(tmp_path / "few.csv"), *out]) == 0
    assert [one.items for one in asked] == [("figure2",)]


def test_an_out_that_is_a_file_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").write_text("mine")
    assert main(["reproduce", "table1", "--out", str(tmp_path / "out")]) == 2
    assert "expected a folder to write into, found a file" in capsys.readouterr().err
    assert (tmp_path / "out").read_text() == "mine"


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parents[2] / "results" / "settings").glob("*.toml")), ids=str
)
def test_the_settings_of_the_results_serve_the_other_commands_too(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [
        "fit",
        "planted",
        "--model",
        "ease",
        "--config",
        str(path),
        "--out",
        str(tmp_path / "model"),
        "--quiet",
    ]
    assert main(asked) == 0
    l2 = tomllib.loads(path.read_text())["ease"]["l2"]
    assert f"l2 {l2:g}" in capsys.readouterr().out
