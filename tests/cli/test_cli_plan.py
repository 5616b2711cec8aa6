"""`loca plan`: what a fit would take, said by the command in words and in JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_calls import TINY, Call

SMALL = ("--model", "loca-ease", "--set", "communities.n=3", "--set", "communities=kernels")


def test_plan_says_data_parts_and_totals(call: Call) -> None:
    done = call("plan", "planted", *TINY, *SMALL)
    assert done.code == 0
    assert done.out.startswith("loca-ease on 150 users, 40 items, ")
    for row in (
        "data",
        "global model",
        "embedding",
        "communities",
        "local models",
        "answers on validation",
    ):
        assert f"\n{row} " in done.out
    for total in ("main memory, at the peak: ", "model folder: ", "it fits"):
        assert f"\n{total}" in done.out
    assert "--resume" not in done.out
    networks = ("--model", "loca-vae", "--set", "communities.n=3", "--set", "base.latent=8")
    assert "for --resume" in call("plan", "planted", *TINY, *networks).out


def test_plan_as_json_has_the_same_and_nothing_else(call: Call) -> None:
    done = call("plan", "planted", *TINY, *SMALL, "--json")
    assert done.err == ""
    found = json.loads(done.out)
    assert (found["model"], found["data"]["users"], found["data"]["items"]) == (
        "loca-ease",
        150,
        40,
    )
    assert found["on_device"] is None or found["on_device"]["peak"] <= found["on_device"]["free"]
    assert 0 < found["in_memory"]["peak"] < found["in_memory"]["free"]
    assert found["on_disk"]["folder"] == sum(part["in_folder"] for part in found["parts"])
    assert (found["fits"], found["problems"], found["candidates"]) == (True, [], 1)


def test_plan_foretells_the_folder_that_fit_writes(call: Call, tmp_path: Path) -> None:
    folder = tmp_path / "m"
    planned = json.loads(call("plan", "planted", *TINY, *SMALL, "--out", folder, "--json").out)[
        "on_disk"
    ]
    assert planned["free"] > planned["folder"]
    assert not list(tmp_path.iterdir())
    assert call("fit", "planted", *TINY, *SMALL, "--out", folder, "--quiet").code == 0
    written = sum(path.stat().st_size for path in folder.iterdir())
    assert planned["folder"] <= written <= planned["folder"] + 10_000


def test_a_plan_that_does_not_fit_says_so_and_is_an_answer_all_the_same(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loca.experiments.memory_estimate.available_bytes", lambda: 1000)
    done = call("plan", "planted", *TINY, "--model", "ease")
    assert done.code == 0
    (line,) = [line for line in done.out.splitlines() if line.startswith("DOES NOT FIT: ")]
    assert "in main memory" in line
    assert line.endswith("1 kB are free; filter rare items")
    assert (
        json.loads(call("plan", "planted", *TINY, "--model", "ease", "--json").out)["fits"] is False
    )


def test_choices_are_counted(call: Call, ratings: Path) -> None:
    options = ("plan", ratings, "--model", "ease", "--choose", "l2=10,100,1000")
    assert "\nthe largest of 3 candidates\n" in call(*options).out
    assert json.loads(call(*options, "--no-refit", "--json").out)["candidates"] == 3


def test_plan_of_a_search_needs_validation(call: Call) -> None:
    done = call("plan", "planted", *TINY, "--model", "auto", "--set", "seconds=240")
    assert done.out.startswith("auto on 150 users, 40 items, ")
    refused = call("plan", "planted", *TINY, "--model", "auto", "--validation", "0").mistake
    assert refused.startswith("auto: needs held-out items to choose on")


@pytest.mark.parametrize("model", [["next-ease"], ["ensemble-next-ease", "--set", "models=3"]])
def test_plan_foretells_the_folder_of_next_items_models(
    model: list[str], call: Call, tmp_path: Path
) -> None:
    ask = ("planted", *TINY, "--out", tmp_path / "m", "--model", *model)
    planned = json.loads(call("plan", *ask, "--json").out)["on_disk"]["folder"]
    assert call("fit", *ask, "--quiet").code == 0
    written = sum(path.stat().st_size for path in (tmp_path / "m").iterdir())
    assert planned <= written <= planned + 10_000


def test_plan_says_what_each_shard_of_a_cluster_holds_and_sends(call: Call, ratings: Path) -> None:
    ask = (
        "plan",
        ratings,
        "--model",
        "loca-vae",
        "--set",
        "communities.n=7",
        "--set",
        "base.latent=8",
    )
    found = json.loads(call(*ask, "--nodes", "2", "--gpus", "2", "--json").out)["shards"]
    assert (found["count"], found["models"]) == (4, 2)
    said = call(*ask, "--nodes", "3").out
    assert "3 shards, at most 3 models each; each shard:" in said
    assert "sent to the driver for every validation: " in said
    assert (
        "is one model; take loca-… or ensemble-…"
        in call("plan", ratings, "--model", "ease", "--nodes", "2").mistake
    )


def test_plan_without_validation_judges_nothing(call: Call, ratings: Path) -> None:
    ask = ("plan", ratings, "--model", "ease", "--validation", "0")
    said = call(*ask).out
    assert "answers on validation" not in said
    assert "choosing needs held-out items" in call(*ask, "--choose", "l2=1,2").mistake


def test_plan_reads_the_settings_of_the_fit(call: Call, tmp_path: Path, ratings: Path) -> None:
    (tmp_path / "fit.toml").write_text(
        '[fit]\nmodel = "ease"\nrefit = false\n[ease]\nl2 = [7, 8]\n'
    )
    found = json.loads(call("plan", ratings, "--config", tmp_path / "fit.toml", "--json").out)
    assert (found["model"], found["candidates"]) == ("ease", 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model", "loca-eas"], "unknown model 'loca-eas'; did you mean 'loca-ease'"),
        (["--set", "comunities=3"], "did you mean 'communities'?"),
        (["--set", "communities.n=0"], "communities: n: expected a whole number ≥ 1, found 0"),
        (
            ["--set", "engine=differences", "--set", "engine.max_bytes=7"],
            "max_bytes: expected at least",
        ),
    ],
)
def test_a_mistake_is_one_line(options: list[str], message: str, call: Call, ratings: Path) -> None:
    assert message in call("plan", ratings, *options).mistake


def test_a_folder_that_could_not_be_saved_into_is_refused(call: Call, ratings: Path) -> None:
    assert "expected a folder to save into" in call("plan", ratings, "--out", ratings).mistake


def test_help_teaches_by_examples(call: Call) -> None:
    done = call("plan", "--help")
    assert done.code == 0
    assert "loca plan ratings.csv --model loca-vae" in done.out
