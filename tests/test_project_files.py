"""The files around the code agree: versions, pins, commands of the workflow, packages."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

PROJECT = Path(__file__).parents[1]
PACKAGE = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
PINS = dict(
    line.split("==")
    for line in (PROJECT / "constraints.txt").read_text().splitlines()
    if "==" in line
)


def read_yaml(name: str) -> Any:
    return yaml.safe_load((PROJECT / name).read_text())


def test_the_version_is_the_same_everywhere() -> None:
    version = PACKAGE["version"]
    assert str(read_yaml("CITATION.cff")["version"]) == version
    assert f'return "{version}"' in (PROJECT / "src" / "loca" / "__init__.py").read_text()
    assert re.search(rf"^## \[{re.escape(version)}\]", (PROJECT / "CHANGELOG.md").read_text(), re.M)


def test_hooks_use_the_pinned_versions() -> None:
    hooks = [
        hook for repo in read_yaml(".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]
    ]
    pinned = [
        tool.split("==") for hook in hooks for tool in hook.get("additional_dependencies", ())
    ]
    assert {name: version for name, version in pinned if name in PINS} == {"ruff": PINS["ruff"]}


def test_the_workflow_runs_commands_that_exist_on_every_supported_python() -> None:
    jobs = read_yaml(".github/workflows/ci.yml")["jobs"]
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    targets = set(re.findall(r"^([\w-]+):", (PROJECT / "Makefile").read_text(), re.M))
    assert (
        {command.split()[1] for command in commands}
        == {"test", "coverage", "check", "docs", "dist"}
        <= targets
    )
    pythons = jobs["test"]["strategy"]["matrix"]["python"]
    assert [f"Programming Language :: Python :: {python}" for python in pythons] == [
        line for line in PACKAGE["classifiers"] if re.search(r"Python :: 3\.\d+$", line)
    ]
    assert PACKAGE["requires-python"] == f">={pythons[0]}"


def test_every_direct_requirement_is_pinned() -> None:
    extras = PACKAGE["optional-dependencies"].values()
    requirements = [*PACKAGE["dependencies"], *(name for extra in extras for name in extra)]
    names = {
        re.split(r"[\[<>=~!;]", requirement)[0].strip().lower()
        for requirement in requirements
        if not requirement.startswith("loca[")
    }
    assert not names - {name.lower() for name in PINS}


def test_the_readme_is_short() -> None:
    assert len((PROJECT / "README.md").read_text(encoding="utf-8").split()) <= 900
