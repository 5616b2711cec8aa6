"""What the tests of the commands share: calling `loca` in this process or in its own, and a small saved model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from command_calls import TINY, Call, Done, environment

from loca.cli.main import main


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs a command in this process."""

    def run(*arguments: object) -> Done:
        capsys.readouterr()
        code = main([str(one) for one in arguments])
        said = capsys.readouterr()
        return Done(code, said.out, said.err)

    return run


@pytest.fixture
def call_apart() -> Call:
    """Runs a command in a process of its own."""

    def run(*arguments: object) -> Done:
        command = [sys.executable, "-m", "loca", *(str(one) for one in arguments)]
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment(), check=False, timeout=120
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small loca-ease model, fitted and saved by the command."""
    folder = tmp_path_factory.mktemp("models") / "tiny.loca"
    small = [
        "--set",
        "communities=kernels",
        "--set",
        "communities.n=3",
        "--set",
        "communities.answer_bandwidth=q0.9",
        "--set",
        "combiner=fixed-share",
        "--set",
        "combiner.share=0.2",
    ]
    assert main(["fit", "planted", "--out", str(folder), "--quiet", *TINY, *small]) == 0
    return folder


@pytest.fixture
def ratings(tmp_path: Path) -> Path:
    """A file of ratings: 30 users, 12 items, 8 each, in time order."""
    path = tmp_path / "ratings.csv"
    rows = [
        f"u{user},i{(user * 5 + place * 7) % 12},4,{place}"
        for user in range(30)
        for place in range(8)
    ]
    path.write_text("user,item,rating,time\n" + "\n".join(rows) + "\n")
    return path
