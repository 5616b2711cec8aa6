"""`loca tune`: best settings as a file that the other commands take, studies that go on, and mistakes in one line."""

from __future__ import annotations

import json
import sqlite3
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from command_calls import TINY, Call

from loca.tuning.study import names_in

EASE = ("tune", "planted", *TINY, "--model", "ease")


def found(text: str) -> dict[str, Any]:
    (model,) = json.loads(text)["models"]
    return model


def test_the_settings_are_written_and_taken_by_fit_and_compare(call: Call, tmp_path: Path) -> None:
    best = tmp_path / "best.toml"
    done = call(*EASE, "--trials", 4, "--set", "ease.denoising=0.25", "--out", best, "--json")
    assert (done.code, done.err) == (0, "")
    told = found(done.out)
    assert told["validation"] >= told["validation_before"]
    assert (told["finished"], told["pruned"], told["failed"]) == (4, 0, 0)
    assert told["settings"]["denoising"] == 0.25
    text = best.read_text()
    assert text.startswith(
        "# Settings tuned by loca on planted: 4 trials per model, space wide, seed 0\n"
    )
    assert f"validation NDCG@100 {told['validation']:.4f}" in text
    assert "(used for choosing; not a test score)" in text
    assert "# validation items: the 2 before each user's last 5, which are for test; " in text
    assert "loca tune planted --model ease --space wide --trials 4" in text
    assert tomllib.loads(text)["ease"] == told["settings"]
    compared = call("compare", "planted", *TINY, "--config", best, "--json")
    assert compared.code == 0, compared.err
    (ease,) = json.loads(compared.out)["models"]
    assert ease["parameters"]["l2"] == told["settings"]["l2"]
    assert ease["tried"][0]["validation"] == told["validation"]
    saved = call("fit", "planted", *TINY, "--config", best, "--out", tmp_path / "m", "--json")
    assert saved.code == 0, saved.err
    assert json.loads(saved.out)["parameters"]["l2"] == told["settings"]["l2"]
    # loca fit judges on each user's very last items: another figure, as the line says.
    assert json.loads(saved.out)["validation"] != told["validation"]
    assert [one.name for one in tmp_path.iterdir() if one.name.endswith(".new")] == []


def test_a_loca_model_takes_its_base_as_it_was_tuned_before_it(call: Call, tmp_path: Path) -> None:
    best = tmp_path / "best.toml"
    few = (
        "--choose",
        "ease.l2=5,50",
        "--choose",
        "loca-ease.communities.n=2,3",
        "--set",
        "loca-ease.communities=kernels",
        "--set",
        "loca-ease.communities.kernel=uniform",
    )
    done = call(
        "tune",
        "planted",
        *TINY,
        "--model",
        "ensemble,ease,loca-ease",
        *few,
        "--trials",
        2,
        "--out",
        best,
    )
    assert done.code == 0, done.err
    assert "budget: 2 trials per model" in done.err
    tables = tomllib.loads(best.read_text())
    assert tables["ease"]["l2"] in (5.0, 50.0)
    base = {"l2": 100.0, "denoising": 0.0} | tables["loca-ease"]["base"]
    assert base == tables["ease"]
    control = {"denoising": 0.0} | tables["ensemble-ease"]["base"]
    assert control == tables["ease"], "in whatever order they were asked for"
    communities = tables["loca-ease"]["communities"]
    assert tables["ensemble-ease"]["models"] == communities["n"] in (2, 3)
    assert (communities["kind"], communities["kernel"]) == ("kernels", "uniform")
    assert {"train_bandwidth", "answer_bandwidth", "anchors"} <= communities.keys()
    assert tables["compare"]["models"] == ["ensemble-ease", "ease", "loca-ease"]
    assert tables["fit"]["model"] in tables["compare"]["models"]
    saved = call(
        "fit",
        "planted",
        *TINY,
        "--config",
        best,
        "--model",
        "loca-ease",
        "--out",
        tmp_path / "m",
        "--quiet",
    )
    assert saved.code == 0, saved.err


def test_what_is_listed_is_all_that_is_tried(call: Call) -> None:
    done = call(*EASE, "--set", "denoising=0.5", "--choose", "l2=20,40", "--trials", 9, "--json")
    assert found(done.out)["finished"] == 2
    done = call(*EASE, "--space", "paper", "--trials", 9, "--json")
    assert found(done.out)["finished"] == 4


def test_a_study_goes_on_with_resume_and_starts_over_with_fresh(call: Call, tmp_path: Path) -> None:
    study = ("--study", tmp_path / "s.db", "--json")
    first = found(call(*EASE, "--trials", 3, *study).out)
    assert call(*EASE, "--trials", 4, *study).mistake == (
        f"{tmp_path / 's.db'} holds a study of ease already; add --resume to go on with it, or --fresh to start over"
    )
    more = found(call(*EASE, "--trials", 4, *study, "--resume").out)
    assert more["finished"] == 4
    assert more["seconds"] > first["seconds"]
    again = found(call(*EASE, "--trials", 3, *study, "--fresh").out)
    assert {**again, "seconds": 0} == {**first, "seconds": 0}
    other = call(*EASE, "--set", "planted.seed=4", "--trials", 4, *study, "--resume")
    assert "its study of ease is another one: the data have changed" in other.mistake


def test_a_budget_is_said_where_none_was(call: Call) -> None:
    done = call("tune", "planted", *TINY, "--model", "popularity")
    assert done.code == 0
    assert "budget: 20 trials per model (where nothing is said)" in done.err
    assert "there is nothing to set" in done.out


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (("--trials", 0), "trials: expected a whole number ≥ 1, found 0"),
        (("--seconds", -1), "seconds: expected a number above 0, found -1.0"),
        (("--space", "narrow"), "unknown space 'narrow'; expected 'wide' or 'paper'"),
        (("--processes", 0), "--processes: expected a whole number ≥ 1, found 0"),
        (
            ("--validation", 0),
            "tuning is judged on validation; expected --validation of at least 1, found 0",
        ),
        (("--resume",), "--resume is for a study in a file; add --study FILE.db"),
        (("--model", "aese"), "unknown model 'aese'; did you mean 'ease'"),
        (("--model", "auto"), "no wide space to tune 'auto' in"),
        (
            ("--model", "next-vae", "--space", "paper"),
            "no paper space to tune 'next-vae' in; --space wide has one",
        ),
        (
            ("--model", "loca-ease", "--choose", "base=ease,mult-dae"),
            "kinds cannot be tuned among",
        ),
        (("--set", "l3=4"), "unknown option 'l3' for ease"),
        (("--study", "nowhere/s.db"), "make it first"),
        (("--out", "nowhere/best.toml"), "there is no folder"),
    ],
)
def test_mistakes_are_told_in_one_line(call: Call, given: tuple[object, ...], line: str) -> None:
    words = [word for word in EASE if "--model" not in given or word not in ("--model", "ease")]
    assert line in call(*words, *given).mistake


def test_files_of_something_else_are_refused_untouched(call: Call, tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("not a database")
    assert "not an SQLite file of studies" in call(*EASE, "--study", text, "--fresh").mistake
    assert text.read_text() == "not a database"
    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("CREATE TABLE birds (name TEXT)")
    connection.close()
    assert "not an SQLite file of studies" in call(*EASE, "--study", tmp_path / "other.db").mistake
    with sqlite3.connect(tmp_path / "empty.db") as connection:
        connection.execute("PRAGMA user_version=3")
    connection.close()
    assert call(*EASE, "--study", tmp_path / "empty.db", "--trials", 1, "--quiet").code == 0
    assert "found a folder" in call(*EASE, "--study", tmp_path).mistake
    assert "found a folder" in call(*EASE, "--out", tmp_path).mistake


def test_a_mistake_leaves_no_study_and_drops_none(call: Call, tmp_path: Path) -> None:
    study = tmp_path / "s.db"
    many = call(
        "tune",
        "planted",
        *TINY,
        "--model",
        "loca-ease",
        "--set",
        "engine={kind='differences', max_bytes=7}",
        "--study",
        study,
        "-q",
    )
    assert "no trial finished, 10 failed; the last one: max_bytes: expected" in many.mistake
    assert list(tmp_path.iterdir()) == []
    assert call(*EASE, "--trials", 1, "--study", study, "--quiet").code == 0
    gone = call("tune", tmp_path / "nowhere.csv", "--model", "ease", "--study", study, "--fresh")
    assert "nowhere.csv" in gone.mistake
    assert names_in(study) == ["ease"]


def test_without_optuna_one_line_says_how_to_get_it(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert call(*EASE).mistake == 'tuning needs optuna; install it with pip install "loca[tune]"'


def test_ctrl_c_is_one_line_and_the_study_stays(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*given: Any, **more: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("loca.models.ease.EASE.fit", stop)
        done = call(*EASE, "--study", tmp_path / "s.db", "--quiet")
    assert (done.code, done.err) == (130, "loca: stopped; what was saved before is as it was\n")
    assert call(*EASE, "--study", tmp_path / "s.db", "--resume", "--trials", 2, "--quiet").code == 0


def test_the_metric_chooses_and_is_written_for_fit_and_compare(call: Call, tmp_path: Path) -> None:
    best = tmp_path / "best.toml"
    done = call(*EASE, "--trials", 2, "--metric", "recall@5", "--out", best, "--json")
    told = found(done.out)
    assert told["metric"] == "recall@5"
    text = best.read_text()
    assert f"validation Recall@5 {told['validation']:.4f}" in text
    assert "--metric recall@5" in text
    saved = call("fit", "planted", *TINY, "--config", best, "--out", tmp_path / "m", "--json")
    assert json.loads(saved.out)["metric"] == "recall@5"
    out = tmp_path / "compared"
    compared = call("compare", "planted", *TINY, "--config", best, "--out", out, "--json")
    document = json.loads(compared.out)
    assert document["metric"] == "recall@5"
    tried = document["models"][0]["tried"][0]
    assert (tried["metric"], tried["validation"]) == ("recall@5", told["validation"])
    assert tomllib.loads((out / "comparison.toml").read_text())["compare"]["metric"] == "recall@5"


@pytest.mark.parametrize("command", ["fit", "compare", "tune"])
def test_a_metric_that_is_none_is_one_line(call: Call, tmp_path: Path, command: str) -> None:
    done = call(command, "planted", *TINY, "--metric", "ndgc@10", "--out", tmp_path / "out")
    assert (done.code, done.err) == (2, "loca: unknown metric 'ndgc'; did you mean 'ndcg'?\n")
    assert not (tmp_path / "out").exists()
