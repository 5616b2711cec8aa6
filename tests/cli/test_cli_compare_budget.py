"""`loca compare` with a budget: every model is tuned under the same one, and a killed comparison goes on."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_calls import TINY, Call, environment

from loca.data.splits import Split
from loca.experiments.parallel import Done, RunPlan
from loca.experiments.runs import RunStore
from loca.models.ease import EASE

LOCAL = (
    "--models",
    "popularity,ease,ensemble,loca-ease",
    "--set",
    "loca-ease.communities=kernels",
    "--set",
    "loca-ease.communities.n=3",
    "--at",
    "5,10",
)
# It is noticed when the data are known.
TOO_FEW_BYTES = ("--set", "loca-ease.engine=differences", "--set", "loca-ease.engine.max_bytes=7")
NETWORK = (
    "--models",
    "ease,mult-vae",
    "--set",
    "mult-vae.epochs=15",
    "--at",
    "5,10",
    "--trials",
    "3",
)


def without_seconds(written: Any) -> Any:
    """The same JSON without any seconds."""
    if isinstance(written, dict):
        return {
            key: without_seconds(value) for key, value in written.items() if "seconds" not in key
        }
    return [without_seconds(one) for one in written] if isinstance(written, list) else written


def tables(folder: Path) -> dict[str, Any]:
    """All tables of a comparison, but for the seconds in them."""
    texts = {one.name: one.read_text() for one in folder.iterdir() if one.is_file()}
    rows = csv.DictReader(io.StringIO(texts["comparison.csv"]))
    return {
        "comparison.json": without_seconds(json.loads(texts["comparison.json"])),
        "comparison.csv": without_seconds(list(rows)),
        "comparison.md": [
            line.split("|")[:-3] if "|" in line else line
            for line in texts["comparison.md"].split("\n")
        ],
        "comparison.toml": texts["comparison.toml"],
        "differences.csv": texts["differences.csv"],
    }


def test_every_model_is_tuned_under_the_same_budget_which_is_told(
    call: Call, tmp_path: Path
) -> None:
    done = call("compare", "planted", *TINY, *LOCAL, "--trials", 2, "--out", tmp_path / "r")
    assert done.code == 0
    assert done.out.splitlines()[1] == (
        "budget: 2 trials per model, tuned in the space wide; "
        "local models and ensembles begin with their base's choice, ensembles with their size too"
    )
    written = json.loads((tmp_path / "r" / "comparison.json").read_text())
    assert written["budget"] == {**written["budget"], "trials": 2, "seconds": None, "space": "wide"}
    popularity, ease, control, local = written["models"]
    assert [one["tuning"]["finished"] for one in (popularity, ease, control, local)] == [1, 2, 1, 2]
    assert (
        ease["parameters"]["l2"]
        == local["parameters"]["base.l2"]
        == control["parameters"]["base.l2"]
    )
    assert local["parameters"]["communities.n"] == control["parameters"]["models"] == 3, (
        "what is set is not tuned"
    )
    assert local["tuning"]["settings"]["communities.n"] == 3
    text = (tmp_path / "r" / "comparison.md").read_text()
    assert "| trials (pruned) | tuning s | seconds |" in text
    assert "\n- loca-ease: base.kind EASE, base.l2 " in text
    ask = (
        "compare",
        "planted",
        *TINY,
        "--at",
        "5,10",
        "--config",
        tmp_path / "r" / "comparison.toml",
        "--json",
    )
    again = json.loads(call(*ask).out)
    assert again["budget"] == {"text": "1 setting per model"}
    assert [one["metrics"] for one in again["models"]] == [
        one["metrics"] for one in written["models"]
    ]


def test_under_the_protocol_paper_tuning_looks_at_test_and_says_so(
    call: Call, tmp_path: Path
) -> None:
    ask = (
        "compare",
        "planted",
        *TINY,
        "--models",
        "ease",
        "--trials",
        "4",
        "--space",
        "paper",
        "--protocol",
        "paper",
    )
    found = json.loads(call(*ask, "--at", "100", "--json", "--out", tmp_path / "r").out)
    (ease,) = found["models"]
    assert (found["is_result"], found["budget"]["space"]) == (False, "paper")
    assert ease["tuning"]["validation"] == pytest.approx(ease["metrics"]["ndcg@100"]["mean"])
    assert "SELECTED ON TEST" in (tmp_path / "r" / "comparison.toml").read_text().splitlines()[0]


def killed_at(line: str, arguments: tuple[object, ...]) -> None:
    """Runs a command in a process of its own and kills it as soon as it says something."""
    command = [sys.executable, "-m", "loca", *(str(one) for one in arguments)]
    process = subprocess.Popen(
        command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    said = []
    for one in process.stderr:
        said.append(one)
        if line in one:
            process.send_signal(signal.SIGKILL)
            break
    process.communicate()
    assert process.returncode == -signal.SIGKILL, said


def test_a_killed_comparison_goes_on_without_computing_anything_twice(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = ("compare", "planted", *TINY, *NETWORK)
    assert call(*ask, "--out", tmp_path / "unbroken").code == 0
    folder = tmp_path / "r"
    killed_at("mult-vae: trial 0", (*ask, "--out", folder))
    assert call(*ask, "--out", folder).mistake == (
        f"{folder} holds an unfinished comparison; add --resume to go on with it, or --fresh to start over"
    )
    kept = (folder / "runs" / "work-ease.safetensors").read_bytes()
    monkeypatch.setattr(EASE, "fit", lambda *given, **more: pytest.fail("fitted again"))
    resumed = call(*ask, "--out", folder, "--resume")
    assert resumed.code == 0, resumed.err
    assert "ease: finished before" in resumed.err
    assert "mult-vae: trial 0:" not in resumed.err
    assert "mult-vae: trial " in resumed.err
    assert tables(folder) == tables(tmp_path / "unbroken")
    assert (folder / "runs" / "work-ease.safetensors").read_bytes() == kept
    assert sorted(os.listdir(folder / "studies")) == ["ease.db", "mult-vae.db"]
    assert sorted(os.listdir(folder / "runs")) == [
        "work-ease.safetensors",
        "work-mult-vae.safetensors",
    ]
    first = {one.name: one.read_bytes() for one in folder.iterdir() if one.is_file()}
    assert call(*ask, "--out", folder, "--resume").code == 0
    assert {one.name: one.read_bytes() for one in folder.iterdir() if one.is_file()} == first, (
        "nothing left to do"
    )


def test_the_workers_of_a_killed_comparison_end_with_it(call: Call, tmp_path: Path) -> None:
    ask = ("compare", "planted", *TINY, *NETWORK)
    killed_at("ease: finished", (*ask, "--processes", "2", "--out", tmp_path / "r"))
    # A worker that lived on would hold the lock of its unfinished work.
    resumed = call(*ask, "--out", tmp_path / "r", "--resume")
    assert resumed.code == 0, resumed.err
    assert "ease: finished before" in resumed.err


def test_finished_results_are_replaced_and_an_unfinished_comparison_is_dropped_when_asked(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = (
        "compare",
        "planted",
        *TINY,
        "--models",
        "popularity,ease",
        "--at",
        "5",
        "--out",
        tmp_path,
    )
    assert call(*ask).code == 0
    again = call(*ask, "--set", "ease.l2=3")
    assert again.code == 0
    assert "the earlier results there are replaced" in again.err
    with monkeypatch.context() as patched:
        patched.setattr(EASE, "fit", lambda *given, **more: pytest.fail("interrupted"))
        with pytest.raises(pytest.fail.Exception):
            call(*ask)
    assert "holds an unfinished comparison" in call(*ask).mistake
    assert call(*ask, "--fresh").code == 0
    assert call(*ask).code == 0


def test_results_of_other_settings_are_refused(call: Call, tmp_path: Path) -> None:
    ask = (
        "compare",
        "planted",
        *TINY,
        "--models",
        "ease",
        "--at",
        "5",
        "--out",
        tmp_path,
        "--quiet",
    )
    assert call(*ask).code == 0
    mistake = call(*ask, "--resume", "--set", "ease.l2=3").mistake
    assert "holds results of ease that are not those requested: l2: " in mistake
    assert "the data have changed" in call(*ask, "--resume", "--set", "planted.seed=4").mistake
    assert call(*ask, "--resume").code == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--trials", "0"], "trials: expected a whole number ≥ 1, found 0"),
        (["--seconds", "-1"], "seconds: expected a number above 0, found -1"),
        (["--trials", "3", "--space", "wid"], "unknown space 'wid'; did you mean 'wide'?"),
        (
            ["--space", "paper"],
            "space 'paper': is for tuning; expected a budget too, --trials or --seconds",
        ),
        (["--processes", "0"], "--processes: expected a whole number ≥ 1, found 0"),
        (["--resume"], "--resume: needs --out, the folder that results are saved in"),
        (["--fresh"], "--fresh: needs --out, the folder that results are saved in"),
        (["--resume", "--fresh", "--out", "nowhere"], "expected one, found both"),
        (
            ["--trials", "3", "--space", "paper", "--models", "next-ease"],
            "no paper space to tune 'next-ease' in",
        ),
    ],
)
def test_a_wrong_budget_is_refused_before_any_data_is_read(
    call: Call, monkeypatch: pytest.MonkeyPatch, options: list[str], message: str
) -> None:
    monkeypatch.setattr(
        "loca.cli.options.planted_communities", lambda **given: pytest.fail("data was read")
    )
    models = [] if "--models" in options else ["--models", "ease,popularity"]
    assert message in call("compare", "planted", *models, *options).mistake


def test_lists_under_a_budget_are_all_that_is_tried(call: Call) -> None:
    lists = ("--choose", "ease.l2=5,50", "--set", "ease.denoising=0.25")
    found = json.loads(
        call("compare", "planted", *TINY, "--models", "ease", *lists, "--trials", "9", "--json").out
    )
    (ease,) = found["models"]
    assert ease["tuning"]["finished"] == 2
    assert ease["parameters"]["l2"] in (5.0, 50.0)


def test_a_mistake_under_a_budget_leaves_nothing_and_the_corrected_command_runs(
    call: Call, tmp_path: Path
) -> None:
    ask = (
        "compare",
        "planted",
        *TINY,
        "--models",
        "ease,loca-ease",
        "--at",
        "5",
        "--trials",
        "1",
        "--quiet",
    )
    out = ("--out", tmp_path / "r")
    alone = (
        "compare",
        "planted",
        *TINY,
        "--models",
        "loca-ease",
        "--at",
        "5",
        "--trials",
        "1",
        "-q",
        *out,
    )
    assert "max_bytes: expected at least" in call(*alone, *TOO_FEW_BYTES).mistake
    assert not (tmp_path / "r").exists()
    assert "max_bytes: expected at least" in call(*ask, *out, *TOO_FEW_BYTES).mistake
    assert call(*ask, *out, "--set", "loca-ease.communities.n=3", "--resume").code == 0
    assert sorted(os.listdir(tmp_path / "r" / "runs")) == [
        "work-ease.safetensors",
        "work-loca-ease.safetensors",
    ]


def test_a_model_that_fails_in_its_process_is_one_line_below_the_tables_of_the_others(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compute(
        plan: RunPlan, done: Done, split: Split, store: RunStore, processes: int, start: object
    ) -> dict[str, str]:
        assert processes == 2
        done["ease"], _ = store.execute(plan.make("ease", done), split)
        return {"loca-ease": "max_bytes: expected at least 174 for 40 items, found 7"}

    monkeypatch.setattr("loca.experiments.comparison.execute_parallel", compute)
    ask = (
        "compare",
        "planted",
        *TINY,
        "--models",
        "ease,loca-ease",
        *TOO_FEW_BYTES,
        "--at",
        "5",
    )
    done = call(*ask, "--processes", "2", "--quiet", "--out", tmp_path)
    assert done.code == 2
    assert "\nease " in done.out
    assert done.err.splitlines() == [
        "loca: loca-ease failed: max_bytes: expected at least 174 for 40 items, found 7; "
        f"{tmp_path} keeps the others, --resume tries again"
    ]


def test_a_comparison_runs_where_only_numerical_packages_are(tmp_path: Path) -> None:
    program = (
        "import importlib.abc, sys\n"
        "class Absent(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name.split('.')[0] in {'polars', 'pydantic', 'typer', 'rich', 'matplotlib', 'pandas', 'pyarrow'}:\n"
        "            raise ModuleNotFoundError(f'no module named {name}')\n"
        "sys.meta_path.insert(0, Absent())\n"
        "import loca\n"
        "from loca.experiments.report import settings_file, write_tables\n"
        "from loca.search_space import Budget\n"
        "data = loca.planted_communities(users=60, items=30, groups=5, history=12, shortest_history=10).interactions\n"
        "split = loca.leave_last_out(data, test=2, validation=2)\n"
        "from pathlib import Path\n"
        "out = Path(sys.argv[1])\n"
        "found = loca.compare({'ease': loca.EASE()}, split, budget=Budget(trials=1), keep_in=out)\n"
        "write_tables(found, out)\n"
        "assert '[compare]' in settings_file(found)\n"
        "print(found)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "budget: 1 trial per model" in done.stdout
