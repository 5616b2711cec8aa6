"""The command as a whole: help that teaches, one line for a mistake, exit codes, Ctrl-C, a light import."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
from command_calls import TINY, Call, environment

import loca
from loca.cli import doctor
from loca.cli.main import COMMANDS as COMMANDS_BY_NAME
from loca.cli.main import main
from loca.cli.options import Output
from loca.data.synthetic import PlantedData
from loca.text_table import TextTable

FEW_BYTES = loca.Differences(max_bytes=5000)
MODELS_OF_ITEM_WEIGHTS: dict[str, loca.Recommender] = {
    "popularity": loca.Popularity(),
    "item-knn": loca.ItemKNN(neighbours=5),
    "slim": loca.SLIM(l1=0.1, l2=1.0),
    "ease": loca.EASE(),
    "ease-sparse": loca.EASE(keep=5),
    "next-ease": loca.NextEASE(),
    "loca-ease": loca.Loca(base=loca.EASE(), communities=loca.Kernels(n=2), engine=FEW_BYTES),
    "loca-ease-dense": loca.Loca(
        base=loca.EASE(), communities=loca.Kernels(n=2), engine=loca.Loop()
    ),
    "mixture-ease": loca.Loca(base=loca.EASE(), communities=loca.Mixtures(n=2)),
    "random-ease": loca.Loca(base=loca.EASE(), communities=loca.RandomGroups(n=2)),
    "ensemble-ease": loca.Ensemble(base=loca.EASE(), models=2),
}
COMMANDS = (
    ["demo"],
    ["data", "describe"],
    ["compare"],
    ["plan"],
    ["fit"],
    ["recommend"],
    ["similar"],
    ["explain"],
    ["doctor"],
)


def test_import_loca_loads_nothing_heavy_and_is_quick() -> None:
    program = (
        "import sys, time; started = time.perf_counter(); import loca; took = time.perf_counter() - started; "
        "print(took, [m for m in ('torch', 'polars', 'matplotlib', 'numpy', 'scipy', 'typer') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=environment(),
        check=True,
    )
    took, loaded = done.stdout.split(maxsplit=1)
    assert loaded.strip() == "[]"
    assert float(took) < 0.3


def loaded_by(*arguments: object) -> tuple[int, list[str]]:
    """The exit code of a command in a process of its own, and which slow packages it has loaded."""
    program = (
        "import sys; from loca.cli.main import main; code = main(sys.argv[1:]); "
        "slow = {'torch', 'sklearn', 'polars', 'pandas', 'matplotlib', 'optuna'}; "
        "print('\\n', code, *sorted(slow & set(sys.modules)))"
    )
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=True)
    code, *loaded = done.stdout.splitlines()[-1].split()
    return int(code), loaded


@pytest.mark.parametrize("name", MODELS_OF_ITEM_WEIGHTS)
def test_a_saved_model_of_item_weights_answers_without_loading_torch(
    name: str, planted: PlantedData, tmp_path: Path
) -> None:
    model = loca.clone(MODELS_OF_ITEM_WEIGHTS[name]).fit(planted.interactions, device="cpu")
    model.save(tmp_path / "model")
    assert loaded_by("recommend", tmp_path / "model", "--user", "u003") == (0, [])


@pytest.mark.parametrize(
    "command",
    [
        "nosuch",
        "reproduce nosuch",
        "fit planted --model nosuch --out never",
        "compare planted --models ease,nosuch",
        "plan planted --model nosuch",
        "tune planted --model nosuch",
        "recommend nosuch --user u03",
    ],
)
def test_a_wrong_name_is_refused_before_anything_slow_is_loaded(command: str) -> None:
    assert loaded_by(*command.split()) == (2, [])


def test_every_public_name_is_where_it_is_said_to_be() -> None:
    for name in loca.__all__:
        assert getattr(loca, name) is not None
    assert set(loca.__all__) <= set(dir(loca))
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", loca.__version__)
    with pytest.raises(AttributeError, match="has no attribute 'recomend'"):
        _ = loca.recomend


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_teaches_by_examples(call: Call, command: list[str]) -> None:
    done = call(*command, "--help")
    assert done.code == 0
    assert "Examples:" in done.out
    assert f"loca {' '.join(command)}" in done.out


def test_without_a_command_help_is_shown(call: Call) -> None:
    done = call()
    assert done.code == 0
    assert "loca demo" in done.out


def test_the_version_is_told(call: Call) -> None:
    assert call("--version").out == f"loca {loca.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dmeo"], "No such command 'dmeo'. Did you mean 'demo'?"),
        (["compare"], "Missing argument 'DATA'"),
        (["compare", "x.csv", "--modles", "ease"], "No such option: --modles"),
        (["fit", "planted"], "Missing option '--out'"),
        (["recommend", "m", "-n", "many", "--user", "u"], "Invalid value for '-n' / '--count'"),
    ],
)
def test_a_mistyped_command_is_told_in_one_line(
    call: Call, arguments: list[str], message: str
) -> None:
    assert message in call(*arguments).mistake


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["compare", "RATINGS", "--test", "9"],
            "--test 9 is larger than every history: the longest has 8",
        ),
        (
            ["fit", "RATINGS", "--out", "m", "--recency", "0"],
            "--recency: expected a number above 0",
        ),
        (
            ["fit", "RATINGS", "--out", "m", "--min-user-interactions", "-1"],
            "--min-user-interactions: expected",
        ),
        (
            ["compare", "RATINGS", "--models", "ease", "--control", "popularity"],
            "--control: 'popularity' is not among",
        ),
        (
            ["compare", "RATINGS", "--models", "ease", "--processes", "0"],
            "--processes: expected a whole number",
        ),
        (
            ["fit", "RATINGS", "--model", "ease", "--budget", "60", "--out", "m"],
            "--budget: is for --model auto",
        ),
        (["data", "describe", "BARE"], "the columns are x, y, z; say --user-column …"),
        (["demo", "--users", "5"], "--users: expected at least 100"),
    ],
)
def test_a_mistake_is_told_in_the_words_of_the_command(
    call: Call, ratings: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    (tmp_path / "bare.csv").write_text("x,y,z\n1,2,3\n4,5,6\n")
    files = {"RATINGS": str(ratings), "BARE": str(tmp_path / "bare.csv"), "m": str(tmp_path / "m")}
    assert message in call(*(files.get(one, one) for one in arguments)).mistake


def test_a_title_cannot_command_the_terminal(call: Call, tmp_path: Path, ratings: Path) -> None:
    evil = "\x1b]0;owned\x07Heat\u202e\x9b31m"
    (tmp_path / "titles.csv").write_text(
        "item,title\n" + "\n".join(f'i{place},"{place} {evil}"' for place in range(12))
    )
    titled = ("--titles", tmp_path / "titles.csv", "--model", "popularity", "--quiet")
    assert call("fit", ratings, *titled, "--out", tmp_path / "m").code == 0
    shown = call("recommend", tmp_path / "m", "--history", "i3", "-n", "2").out
    assert "\ufffd]0;owned\ufffdHeat\ufffd" in shown
    refused = call("recommend", tmp_path / "m", "--history", "owned").mistake
    as_json = call("recommend", tmp_path / "m", "--history", "i3", "-n", "1", "--json").out
    for text in (shown, refused, as_json):
        assert not {"\x1b", "\x07", "\u202e", "\x9b"} & {*text}
    assert json.loads(as_json)["answers"][0]["items"][0]["title"].endswith(evil)


def test_an_output_that_cannot_show_a_title_shows_the_rest(
    tmp_path: Path, ratings: Path, call: Call
) -> None:
    (tmp_path / "titles.csv").write_text(
        "item,title\n" + "\n".join(f"i{place},Café {place}" for place in range(12))
    )
    titled = ("--titles", tmp_path / "titles.csv", "--model", "popularity", "--quiet")
    assert call("fit", ratings, *titled, "--out", tmp_path / "m").code == 0
    plain = {**environment(), "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    command = [
        sys.executable,
        "-m",
        "loca",
        "recommend",
        str(tmp_path / "m"),
        "--history",
        "i3",
        "-n",
        "1",
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=plain, check=True)
    assert re.search(r"Caf\? \d", done.stdout)
    done = subprocess.run(
        [*command, "--json"], capture_output=True, text=True, env=plain, check=True
    )
    assert json.loads(done.stdout)["answers"][0]["items"][0]["title"].startswith("Café")


@pytest.mark.parametrize(
    ("typed", "shell", "offered"),
    [
        ("loca re", "bash", ["reproduce", "recommend"]),
        ("loca ", "zsh", list(COMMANDS_BY_NAME)),
        ("loca recommend --his", "bash", ["--history", "--histories"]),
        ("loca data ", "zsh", ["describe", "fetch"]),
    ],
)
def test_a_shell_completes_commands_and_options(typed: str, shell: str, offered: list[str]) -> None:
    words = {
        "COMP_WORDS": typed,
        "COMP_CWORD": str(typed.count(" ")),
        "_TYPER_COMPLETE_ARGS": typed,
    }
    asked = {**environment(), "_LOCA_COMPLETE": f"complete_{shell}", **words}
    command = [sys.executable, "-m", "loca"]
    done = subprocess.run(command, capture_output=True, text=True, env=asked, check=True)
    # Before a description stands what zsh is to put in: "name":"what it does".
    found = (
        re.findall(r"(?:^|\()\"([\w-]+)\"", done.stdout, re.M)
        if shell == "zsh"
        else done.stdout.split()
    )
    assert found == offered


@pytest.mark.parametrize(
    ("shell", "line"), [("bash", "complete -o default -F"), ("zsh", "#compdef loca")]
)
def test_the_completion_of_a_shell_can_be_shown(shell: str, line: str) -> None:
    asked = {**environment(), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    command = [sys.executable, "-m", "loca", "--show-completion", shell]
    done = subprocess.run(command, capture_output=True, text=True, env=asked, check=True)
    assert line in done.stdout
    assert "_LOCA_COMPLETE" in done.stdout


def test_a_reader_that_has_seen_enough_ends_a_command_quietly(
    call: Call, tmp_path: Path, ratings: Path
) -> None:
    asked = f"{sys.executable} -m loca data describe {ratings} --json | true"
    done = subprocess.run(
        ["bash", "-c", asked], capture_output=True, text=True, env=environment(), check=False
    )
    assert done.stderr == ""


def test_a_mistake_ends_a_process_with_code_2_and_one_line(call_apart: Call) -> None:
    done = call_apart("data", "describe", "nowhere.csv")
    assert done.mistake == "nowhere.csv: there is no such file"


def test_an_unexpected_exception_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down() -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(doctor, "available_bytes", break_down)
    with pytest.raises(ZeroDivisionError):
        main(["doctor"])


def test_ctrl_c_in_training_leaves_the_saved_model_as_it_was(tmp_path: Path, call: Call) -> None:
    folder = tmp_path / "model"
    assert call("fit", "planted", "--model", "popularity", "--out", folder, *TINY).code == 0
    before = {one.name: one.read_bytes() for one in folder.iterdir()}
    endless = [
        "--model",
        "mult-vae",
        "--set",
        "epochs=100000",
        "--set",
        "patience=100000",
        "--out",
        str(folder),
    ]
    command = [sys.executable, "-m", "loca", "fit", "planted", *TINY, *endless]
    # A shell that runs a program in the background makes it deaf to Ctrl-C; this one must hear it.
    training = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert training.stderr is not None
    while "validation" not in training.stderr.readline():
        assert training.poll() is None
    time.sleep(1.0)
    training.send_signal(signal.SIGINT)
    out, err = training.communicate(timeout=60)
    assert training.returncode == 130
    assert out == ""
    assert err.strip().splitlines()[-1] == "loca: stopped; what was saved before is as it was"
    assert "Traceback" not in err
    assert {one.name: one.read_bytes() for one in folder.iterdir()} == before


@pytest.mark.parametrize("stop", [KeyboardInterrupt, typer.Abort])
def test_ctrl_c_is_one_line_in_this_process_too(
    monkeypatch: pytest.MonkeyPatch, call: Call, stop: type[BaseException]
) -> None:
    def interrupt() -> int:
        raise stop

    monkeypatch.setattr(doctor, "available_bytes", interrupt)
    done = call("doctor")
    assert (done.code, done.err) == (130, "loca: stopped; what was saved before is as it was\n")


@pytest.mark.parametrize("loading", ["typer", "loca.cli.options", "numpy"])
def test_ctrl_c_while_modules_load_is_one_line_too(loading: str) -> None:
    program = (
        "import sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, *others):\n"
        f"        if name == {loading!r}: raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from loca.cli.main import run\n"
        "run()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "loca: stopped; what was saved before is as it was\n"


def test_doctor_calls_needed_what_the_package_requires(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "version_of", lambda name: None if name == "matplotlib" else "1.0")
    done = call("doctor", "--json")
    assert done.code == 1
    assert [one["what"] for one in json.loads(done.out)["findings"] if not one["fine"]] == [
        "matplotlib"
    ]


def test_doctor_is_content_here(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ml-1m").mkdir()
    monkeypatch.setenv("LOCA_DATA", str(tmp_path))
    done = call("doctor", "--json")
    assert done.code == 0
    found = {one["what"]: one["found"] for one in json.loads(done.out)["findings"]}
    assert found["LOCA_DATA"] == f"{tmp_path}: ml-1m"
    assert found["cores"] == str(len(os.sched_getaffinity(0)))
    monkeypatch.delenv("LOCA_DATA")
    assert "all is well" in call("doctor").out


def test_doctor_ends_with_1_when_something_is_missing(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "version_of", lambda name: None if name == "polars" else "1.0")
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None)
    done = call("doctor")
    assert done.code == 1
    assert "BAD  polars" in done.out
    assert "something is missing" in done.out


def test_the_console_script_ends_with_the_code_of_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from loca.cli.main import run

    monkeypatch.setattr(sys, "argv", ["loca", "--version"])
    with pytest.raises(SystemExit) as ended:
        run()
    assert ended.value.code == 0


def test_a_table_is_drawn_for_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    speaking = Output()
    assert speaking.is_watched
    assert not Output(as_json=True).is_watched
    speaking.draw(TextTable(("model", "NDCG"), (("ease", "0.1"),)))
    drawn = capsys.readouterr().out
    assert "┏" in drawn
    assert "│ ease  │  0.1 │" in drawn
