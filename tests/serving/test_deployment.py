"""The files of a deployment agree with the command that they start, and with each other."""

from __future__ import annotations

import configparser
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from loca.cli import serve
from loca.cli.main import main

PROJECT = Path(__file__).parents[2]
FOLDER = PROJECT / "deploy"
UNIT = configparser.RawConfigParser(strict=False)
UNIT.optionxform = str  # type: ignore[assignment,method-assign]
UNIT.read(FOLDER / "loca.service")
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]["loca"]


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Containerfile, each with what it says, on one line."""
    text = re.sub(r"^#.*\n", "", (FOLDER / "Containerfile").read_text(), flags=re.M).replace(
        "\\\n", " "
    )
    return [
        (line.split(" ", 1)[0], line.split(" ", 1)[1].strip()) for line in text.splitlines() if line
    ]


def arguments(of: str) -> list[str]:
    """What is given to `loca serve`."""
    if of == "unit":
        program, command, *rest = shlex.split(UNIT["Service"]["ExecStart"])
        assert (Path(program).name, command) == ("loca", "serve")
        return rest
    if of == "compose":
        return list(COMPOSE["command"])
    last = dict(instructions())
    assert json.loads(last["ENTRYPOINT"]) == ["loca", "serve"]
    return list(json.loads(last["CMD"]))


@pytest.mark.parametrize("of", ["unit", "compose", "container"])
def test_a_deployment_starts_the_command_with_options_that_it_has(
    of: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[Any, Any]] = []
    monkeypatch.setattr(serve, "start", lambda models, **options: started.append((models, options)))
    assert main(["serve", *arguments(of)]) == 0
    [([model], options)] = started
    assert re.fullmatch(r"\w+=/[\w./-]+\.loca", model)
    assert options["port"] == 8000
    assert options["host"] == ("127.0.0.1" if of == "unit" else "0.0.0.0")
    assert options["token_file"] is not None


def test_the_container_runs_without_a_shell_and_without_rights() -> None:
    found = instructions()
    assert {name for name, _ in found} <= set(
        "FROM ENV WORKDIR COPY RUN USER EXPOSE STOPSIGNAL HEALTHCHECK ENTRYPOINT CMD".split()
    )
    for name, said in found:
        if name in ("RUN", "ENTRYPOINT", "CMD"):
            assert all(isinstance(word, str) for word in json.loads(said))
        if name == "COPY" and "--from" not in said:
            sources = said.split()[:-1]
            assert all((PROJECT / source).exists() for source in sources)
            assert {f"!{source}" for source in sources} <= {
                *(PROJECT / ".dockerignore").read_text().splitlines()
            }
    last = dict(found)
    assert last["USER"] == "65532:65532"
    check = json.loads(last["HEALTHCHECK"].partition(" CMD ")[2])
    assert check[:2] == ["python", "-c"]
    assert "http://127.0.0.1:8000/health/ready" in check[2]
    compile(check[2], "HEALTHCHECK", "exec")


def test_the_composition_keeps_the_container_closed() -> None:
    assert COMPOSE["read_only"] is True
    assert COMPOSE["cap_drop"] == ["ALL"]
    assert COMPOSE["security_opt"] == ["no-new-privileges:true"]
    assert all(one.startswith("127.0.0.1:") for one in COMPOSE["ports"])
    assert all(one["read_only"] for one in COMPOSE["volumes"])
    [secret] = COMPOSE["secrets"]
    assert f"--token-file=/run/secrets/{secret}" in COMPOSE["command"]
    assert (FOLDER / COMPOSE["build"]["context"] / COMPOSE["build"]["dockerfile"]).samefile(
        FOLDER / "Containerfile"
    )


def test_the_unit_is_hardened_and_passes_the_token_as_a_credential() -> None:
    service = UNIT["Service"]
    assert service["ProtectSystem"] == "strict"
    for name in (
        "DynamicUser",
        "NoNewPrivileges",
        "PrivateTmp",
        "ProtectHome",
        "RestrictNamespaces",
    ):
        assert service[name] == "yes"
    assert service["LoadCredential"].startswith("token:/")
    assert "--token-file %d/token" in service["ExecStart"]
