"""`--device`: where a command computes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from command_calls import TINY, Call

import loca

SMALL = ("--set", "mult-vae.latent=4", "--set", "mult-vae.epochs=2")
COMMANDS = {
    "fit": ("fit", "planted", *TINY, "--model", "mult-vae", *SMALL, "--out", "fitted.loca"),
    "plan": ("plan", "planted", *TINY, "--model", "mult-vae", *SMALL),
    "compare": ("compare", "planted", *TINY, "--models", "popularity,mult-vae", *SMALL),
    "tune": ("tune", "planted", *TINY, "--model", "ease", "--trials", "2"),
}


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A saved network, and new interactions beside it, where commands run."""
    monkeypatch.chdir(tmp_path)
    data = loca.planted_communities(
        users=80, items=40, groups=5, history=14, shortest_history=10
    ).interactions
    train, held_out, _ = loca.hold_last(data, 2)
    loca.MultVAE(latent=4, epochs=1).fit(train).save("films.loca")
    held_out.targets.to_polars().select("user", "item", "time").write_csv("later.csv")
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_on_the_cpu_asks_no_gpu(
    command: str, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU that does not fail")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)  # whoever asks it fails
    monkeypatch.setattr("loca.experiments.runs.describe_machine", lambda: "a machine")
    done = call(*COMMANDS[command], "--device", "cpu", "--json")
    assert done.code == 0, done.err
    if command == "plan":
        assert json.loads(done.out)["device"] == "cpu"


@pytest.mark.parametrize(
    "command",
    [
        *COMMANDS.values(),
        ("recommend", "films.loca", "--user", "u07"),
        ("evaluate", "films.loca", "later.csv"),
    ],
    ids=lambda command: command[0],
)
def test_an_unknown_device_is_one_line(command: tuple[str, ...], call: Call, saved: Path) -> None:
    mistake = call(*command, "--device", "gpu").mistake
    assert mistake == "--device: expected 'auto', 'cpu' or 'cuda', found 'gpu'"
    assert not (saved / "fitted.loca").exists()


def test_a_saved_model_answers_on_the_device_that_is_named(
    call: Call, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, real = [], loca.MultVAE.to

    def to(model: loca.MultVAE, device: str) -> loca.MultVAE:
        asked.append(device)
        return real(model, device)

    monkeypatch.setattr(loca.MultVAE, "to", to)
    for command in (
        ("recommend", "films.loca", "--user", "u07"),
        ("evaluate", "films.loca", "later.csv"),
    ):
        assert call(*command, "--device", "cpu").code == 0
        assert call(*command).code == 0
    assert asked == ["cpu", "cpu"]


def test_parts_of_many_lists_take_no_device(call: Call, saved: Path) -> None:
    given = ("recommend", "films.loca", "--all", "--out", "lists", "--parts", "2")
    assert "--parts: takes no --device" in call(*given, "--device", "cpu").mistake


def test_the_device_is_no_setting_of_a_model(call: Call, tmp_path: Path) -> None:
    given = ("fit", "planted", *TINY, "--model", "mult-vae", "--out", tmp_path / "m")
    for setting in ("device=cpu", "mult-vae.device=cpu"):
        assert "'device'" in call(*given, "--set", setting).mistake
