"""Every example of the README, the tutorials, the how-to pages and the notebooks runs in an empty folder."""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest

import loca
from loca.cli.main import main

PROJECT = Path(__file__).parents[1]
FOLDERS = [PROJECT / "docs" / "tutorials", PROJECT / "docs" / "how-to"]
PAGES = [
    PROJECT / "README.md",
    PROJECT / "docs" / "index.md",
    PROJECT / "docs" / "data.md",
    *(page for folder in FOLDERS for page in sorted(folder.glob("*.md"))),
]
NOTEBOOKS = sorted((PROJECT / "examples").glob("*.ipynb"))
# What cannot run in a test (pip, a GPU, a download) and what a command prints stand in blocks of
# another language.
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```$", re.M | re.S)
NEEDS_A_SHELL = re.compile(r"[|<>&;$`*]")


@pytest.fixture
def commands(tmp_path: Path) -> dict[str, str]:
    """Return the environment of shell blocks: `loca` is this checkout, on one thread."""
    folder = tmp_path / "commands"
    folder.mkdir()
    (folder / "loca").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m loca "$@"\n')
    (folder / "loca").chmod(0o755)
    paths = {
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": f"{Path(loca.__file__).parents[1]}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
    }
    return os.environ | paths | {"OMP_NUM_THREADS": "1", "COLUMNS": "100"}


@pytest.fixture(autouse=True)
def restored_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run in an empty folder, and take back what an example changes for the whole process."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(mpl, "use", lambda *_: None)
    loggers = [logging.getLogger(), logging.getLogger("loca"), logging.getLogger("loca.progress")]
    before = [(logger, logger.level, list(logger.handlers), logger.propagate) for logger in loggers]
    yield
    for logger, level, handlers, propagate in before:
        logger.setLevel(level)
        logger.handlers[:] = handlers
        logger.propagate = propagate
    loca.set_progress(False)


def run_line(line: str, environment: dict[str, str]) -> None:
    """Run a plain command of ours in this process, which has everything loaded; all else in a shell."""
    words = shlex.split(line, comments=True)
    if words[:1] == ["loca"] and not NEEDS_A_SHELL.search(shlex.join(words)):
        assert main(words[1:]) == 0, line
    elif words:
        shell = [shutil.which("bash") or "sh", "-euc", line]
        done = subprocess.run(shell, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_the_examples_of_a_page_run(page: Path, commands: dict[str, str]) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    for language, code in BLOCK.findall(page.read_text(encoding="utf-8")):
        if language == "python":
            exec(compile(code, str(page), "exec", dont_inherit=True), names)
        else:
            for line in code.replace("\\\n", " ").splitlines():
                run_line(line, commands)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.name)
def test_the_cells_of_a_notebook_run_and_their_outputs_are_stored(notebook: Path) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    cells = [
        cell
        for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        if cell["cell_type"] == "code"
    ]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert any(cell["outputs"] for cell in cells)
    for cell in cells:
        exec(compile("".join(cell["source"]), notebook.name, "exec", dont_inherit=True), names)
