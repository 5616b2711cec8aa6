"""Settings from a file, from options and from --set, joined in that order and checked before anything else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loca.config.settings import Choice, Given, parse_value, read_toml
from loca.errors import ConfigError


def settings(config: Path | None = None, **given: Any) -> dict[str, dict[str, Any]]:
    models = given.pop("models", ["ease", "loca-ease"])
    return Given(config, **given).tables(("split", "data"), models, ("mult-vae", "fit"))


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "study.toml"
    path.write_text(
        "[split]\ntest = 3\nvalidation = 4\n[loca-ease]\nanchors = 7\n[loca-ease.base]\nl2 = [30, 100]\n"
        "[data]\nlists = [1, 2]\n[mult-vae]\nlatent = 9\n"
    )
    return path


def test_set_wins_over_options_and_options_win_over_the_file(study: Path) -> None:
    joined = settings(study, options={"split": {"test": 5, "validation": None}}, assignments=["split.test=6"])
    assert joined["split"] == {"test": 6, "validation": 4}
    assert settings(study, options={"split": {"test": 5}})["split"]["test"] == 5


def test_one_section_is_joined_in_the_same_order_without_a_look_at_the_others(study: Path) -> None:
    told = ["split.test=6", "nowhere.x=1"]
    options = {"split": {"test": 5, "validation": None}}
    assert Given(study, options, told).section("split") == {"test": 6, "validation": 4}
    assert Given(study, options).section("split") == {"test": 5, "validation": 4}
    assert Given(study).section("split") == {"test": 3, "validation": 4}
    assert Given(assignments=["data.lists=[1]"]).section("split") == {}


def test_a_list_is_a_choice_for_a_model_and_a_list_for_a_section(study: Path) -> None:
    joined = settings(study)
    assert joined["loca-ease"] == {"anchors": 7, "base": {"l2": Choice((30, 100))}}
    assert joined["data"] == {"lists": [1, 2]}
    assert settings(assignments=["ease.l2=[1, 2]"])["ease"] == {"l2": Choice((1, 2))}


def test_a_file_may_speak_of_models_that_this_command_does_not_use(study: Path) -> None:
    assert settings(study)["mult-vae"] == {"latent": 9}
    with pytest.raises(ConfigError, match="'mult-vae' has no part in this command"):
        settings(assignments=["mult-vae.latent=9"])


def test_the_prefix_may_be_left_out_for_a_single_model() -> None:
    joined = settings(assignments=["anchors=3", "base.l2=5"], models=["loca-ease"])
    assert joined["loca-ease"] == {"anchors": 3, "base": {"l2": 5}}
    with pytest.raises(ConfigError, match="unknown option 'anchors'; expected one of split, data, ease, loca-ease"):
        settings(assignments=["anchors=3"])


def test_choose_lists_values_by_commas() -> None:
    chosen = settings(choices=["ease.l2=30, 100,300", "loca-ease.train_bandwidth=q0.5,1.3*q0.9"])
    assert chosen["ease"]["l2"] == Choice((30, 100, 300))
    assert chosen["loca-ease"]["train_bandwidth"] == Choice(("q0.5", "1.3*q0.9"))


@pytest.mark.parametrize("text", ["ease.l2=", "ease.l2=,", "split.test=1,2"])
def test_a_choice_of_nothing_or_of_a_section_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--choose: expected a model's parameter and values"):
        settings(choices=[text])


@pytest.mark.parametrize("text", ["anchors", "=3", "ease.=3", ""])
def test_what_is_not_key_and_value_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--set: expected key=value"):
        settings(assignments=[text])


def test_an_unknown_section_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"unknown option 'splitt.test'; did you mean 'split'"):
        settings(assignments=["splitt.test=3"])
    with pytest.raises(ConfigError, match=r"'split' is a section; expected split.option = value"):
        settings(assignments=["split=3"])


def test_a_model_may_be_named_and_then_set_in_either_order() -> None:
    expected = {"embedding": {"model": "mult-dae", "latent": 5}}
    named_first = settings(assignments=["loca-ease.embedding=mult-dae", "loca-ease.embedding.latent=5"])
    named_last = settings(assignments=["loca-ease.embedding.latent=5", "loca-ease.embedding=mult-dae"])
    assert named_first["loca-ease"] == named_last["loca-ease"] == expected


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("300", 300),
        ("0.5", 0.5),
        ("true", True),
        ('"x"', "x"),
        ("q0.5", "q0.5"),
        (",", ","),
        ("[1]", [1]),
        ("a=b", "a=b"),
    ],
)
def test_text_is_read_as_a_toml_value_or_stays_text(text: str, value: object) -> None:
    assert parse_value(text) == value


def test_a_date_stays_text() -> None:
    assert parse_value("2020-01-01") == "2020-01-01"


def test_a_file_that_is_missing_or_not_toml_is_refused_in_one_line(study: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"studi.toml: there is no such file; did you mean 'study.toml'"):
        read_toml(tmp_path / "studi.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_toml(tmp_path)
    study.write_text("[split\n")
    with pytest.raises(ConfigError, match="not TOML") as refused:
        read_toml(study)
    assert "\n" not in str(refused.value)


def test_an_empty_list_is_no_choice() -> None:
    with pytest.raises(ConfigError, match="at least one value"):
        settings(assignments=["ease.l2=[]"])
