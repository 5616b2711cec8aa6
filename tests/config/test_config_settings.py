"""Settings from a file, from options and from --set, joined in that order and checked before anything else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loca.communities.embeddings import GivenEmbeddings
from loca.communities.kernel import Kernels
from loca.config.model_factory import build_models, describe_model
from loca.config.settings import Choice, Given, parse_value, read_toml, settings_of, toml_text
from loca.errors import ConfigError
from loca.local.loca import Loca
from loca.models.ease import EASE
from loca.registry import MODELS


def settings(config: Path | None = None, **given: Any) -> dict[str, dict[str, Any]]:
    models = given.pop("models", ["ease", "loca-ease"])
    return Given(config, **given).tables(("split", "data"), models, ("mult-vae", "fit"))


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "study.toml"
    path.write_text(
        "[split]\ntest = 3\nvalidation = 4\n[loca-ease.communities]\nn = 7\n[loca-ease.base]\nl2 = [30, 100]\n"
        "[data]\nlists = [1, 2]\n[mult-vae]\nlatent = 9\n"
    )
    return path


def test_set_wins_over_options_and_options_win_over_the_file(study: Path) -> None:
    joined = settings(
        study, options={"split": {"test": 5, "validation": None}}, assignments=["split.test=6"]
    )
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
    assert joined["loca-ease"] == {"communities": {"n": 7}, "base": {"l2": Choice((30, 100))}}
    assert joined["data"] == {"lists": [1, 2]}
    assert settings(assignments=["ease.l2=[1, 2]"])["ease"] == {"l2": Choice((1, 2))}


def test_a_file_may_speak_of_models_that_this_command_does_not_use(study: Path) -> None:
    assert settings(study)["mult-vae"] == {"latent": 9}
    with pytest.raises(ConfigError, match="'mult-vae' has no part in this command"):
        settings(assignments=["mult-vae.latent=9"])


def test_the_prefix_may_be_left_out_for_a_single_model() -> None:
    joined = settings(assignments=["communities.n=3", "base.l2=5"], models=["loca-ease"])
    assert joined["loca-ease"] == {"communities": {"n": 3}, "base": {"l2": 5}}
    for setting in ("communities.n=3", "communities=mixtures", "communities.kind=mixtures"):
        with pytest.raises(ConfigError) as refused:
            settings(assignments=[setting])
        name = setting.partition("=")[0]
        assert str(refused.value) == f"--set: {name!r} of which model? say loca-ease.{setting}"
    with pytest.raises(
        ConfigError, match="unknown option 'nothing'; expected one of split, data, ease, loca-ease"
    ):
        settings(assignments=["nothing=3"])


def test_base_is_for_every_model_that_has_a_base_with_the_parameter() -> None:
    models = ["ease", "loca-ease", "ensemble-ease", "loca-vae"]
    joined = settings(assignments=["base.denoising=0.5"], choices=["base.l2=1,2"], models=models)
    expected = {"base": {"denoising": 0.5, "l2": Choice((1, 2))}}
    assert [joined[name] for name in models] == [{}, expected, expected, {}]
    joined = settings(assignments=["base.kind=slim"], models=models[1:3])
    assert [joined[name] for name in models[1:3]] == [{"base": {"kind": "slim"}}] * 2
    with pytest.raises(
        ConfigError, match="none of ease, loca-ease has a base with the parameter 'latent'"
    ):
        settings(choices=["base.latent=1,2"])


def test_what_is_said_of_a_model_holds_for_the_base_of_those_that_inherit_it(study: Path) -> None:
    models = ["ease", "loca-ease", "ensemble-ease"]
    given = Given(
        None,
        assignments=["ease.denoising=0.5", "loca-ease.base.denoising=0.1"],
        choices=["ease.l2=1,2"],
    )
    joined = given.tables(("split",), models, inherit=["loca-ease"])
    assert joined["ease"] == {"denoising": 0.5, "l2": Choice((1, 2))}
    assert joined["loca-ease"] == {
        "base": {"denoising": 0.1, "l2": Choice((1, 2))}
    }  # its own word wins
    assert joined["ensemble-ease"] == {}
    other = Given(None, assignments=["loca-ease.base=slim"], choices=["ease.l2=1,2"])
    assert other.tables((), models, inherit=["loca-ease"])["loca-ease"] == {
        "base": "slim"
    }  # another base
    study.write_text("[ease]\nl2 = 7\n")
    assert (
        Given(study).tables((), models, inherit=["loca-ease"])["loca-ease"] == {}
    )  # a file speaks of each by itself


def test_choose_lists_values_by_commas() -> None:
    chosen = settings(
        choices=["ease.l2=30, 100,300", "loca-ease.communities.train_bandwidth=q0.5,1.3*q0.9"]
    )
    assert chosen["ease"]["l2"] == Choice((30, 100, 300))
    bandwidths = chosen["loca-ease"]["communities"]["train_bandwidth"]
    assert bandwidths == Choice(("q0.5", "1.3*q0.9"))


@pytest.mark.parametrize("text", ["ease.l2=", "ease.l2=,", "split.test=1,2"])
def test_a_choice_of_nothing_or_of_a_section_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--choose: expected a model's parameter and values"):
        settings(choices=[text])


@pytest.mark.parametrize("text", ["base", "=3", "ease.=3", ""])
def test_what_is_not_key_and_value_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--set: expected key=value"):
        settings(assignments=[text])


def test_an_unknown_section_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"unknown option 'splitt.test'; did you mean 'split'"):
        settings(assignments=["splitt.test=3"])
    with pytest.raises(ConfigError, match=r"'split' is a section; expected split.option = value"):
        settings(assignments=["split=3"])


def test_a_component_may_be_named_and_then_set_in_either_order() -> None:
    expected = {"communities": {"kind": "kernels", "embedding": {"kind": "mult-dae", "latent": 5}}}
    kinds = ["loca-ease.communities=kernels", "loca-ease.communities.embedding=mult-dae"]
    latent = ["loca-ease.communities.embedding.latent=5"]
    written_out = [
        f"{name}.kind={kind}" for name, _, kind in (kind.partition("=") for kind in kinds)
    ]
    as_table = ['loca-ease.communities.embedding={kind="mult-dae", latent=5}', kinds[0]]
    for assignments in (kinds + latent, latent + kinds, written_out + latent, as_table):
        assert settings(assignments=assignments)["loca-ease"] == expected


def test_the_last_kind_wins(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text('[loca-ease]\ncommunities = { kind = "kernels", n = 12 }\n')
    assert settings(path)["loca-ease"] == {"communities": {"kind": "kernels", "n": 12}}
    changed = settings(path, assignments=["loca-ease.communities=mixtures"])
    assert changed["loca-ease"] == {"communities": {"kind": "mixtures", "n": 12}}


def test_a_list_of_tables_is_a_list_of_components(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(
        '[[loca-ease.communities.finders]]\nkind = "kernels"\nn = 3\n'
        '[[loca-ease.communities.finders]]\nkind = "mixtures"\n'
    )
    finders = [{"kind": "kernels", "n": 3}, {"kind": "mixtures"}]
    assert settings(path)["loca-ease"] == {"communities": {"finders": finders}}


WRITTEN: list[dict[str, Any]] = [
    {},
    {"base": {"l2": 30.0}},
    {"communities": {"n": 12}},
    {"communities": {"kind": "mixtures", "n": 24, "temperature": 4.0}},
    {"communities": {"kind": "kernels", "train_bandwidth": "1.2*q0.8", "answer_bandwidth": 0.5}},
    {
        "communities": {
            "kind": "kernels",
            "embedding": {"kind": "mult-vae", "latent": 8},
        },
        "combiner": {"kind": "fixed-share", "share": 0.3},
        "engine": {"kind": "loop"},
        "global_model": {"kind": "slim", "l1": 2.0},
    },
    {"communities": {"kind": "permuted", "finder": {"n": 8}}},
    {
        "communities": {
            "n": 5,  # the largest of theirs
            "finders": [{"kind": "kernels", "n": 3}, {"kind": "random-groups", "n": 5}],
        }
    },
    {"base": {"kind": "mult-dae", "latent": 9}, "combiner": {"kind": "local-only"}},
]


@pytest.mark.parametrize("table", WRITTEN)
def test_what_is_written_makes_the_same_model(table: dict[str, Any], tmp_path: Path) -> None:
    (model,) = build_models(["loca-ease"], {"loca-ease": table}, 0)["loca-ease"]
    written = settings_of("loca-ease", model, ())
    assert written == table
    path = tmp_path / "best.toml"
    path.write_text(toml_text(["best"], {"loca-ease": written}))
    read = settings(path)["loca-ease"]
    assert read == table
    (again,) = build_models(["loca-ease"], {"loca-ease": read}, 0)["loca-ease"]
    assert describe_model(again) == describe_model(model)


def test_what_is_tuned_is_written_even_at_its_default() -> None:
    model = MODELS["loca-ease"]()
    written = settings_of("loca-ease", model, ("communities.n", "base.l2"))
    assert written == {"communities": {"n": 40}, "base": {"l2": EASE().l2}}


def test_what_has_no_name_cannot_be_written() -> None:
    embedding = GivenEmbeddings(embeddings=np.eye(3))
    model = Loca(base=EASE(), communities=Kernels(embedding=embedding))
    with pytest.raises(ConfigError, match="the settings of a GivenEmbeddings cannot be written"):
        settings_of("loca-ease", model, ())


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
        ('{ kind = "kernels", n = 3 }', {"kind": "kernels", "n": 3}),
        ("a=b", "a=b"),
    ],
)
def test_text_is_read_as_a_toml_value_or_stays_text(text: str, value: object) -> None:
    assert parse_value(text) == value


def test_a_date_stays_text() -> None:
    assert parse_value("2020-01-01") == "2020-01-01"


def test_a_file_that_is_missing_or_not_toml_is_refused_in_one_line(
    study: Path, tmp_path: Path
) -> None:
    with pytest.raises(
        ConfigError, match=r"studi.toml: there is no such file; did you mean 'study.toml'"
    ):
        read_toml(tmp_path / "studi.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_toml(tmp_path)
    study.write_text("[split\n")
    with pytest.raises(ConfigError, match="not TOML") as refused:
        read_toml(study)
    assert "\n" not in str(refused.value)


def test_tables_nested_without_end_are_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "deep.toml"
    path.write_text("a = " + "[" * 5000 + "]" * 5000)
    with pytest.raises(ConfigError, match=r"deep\.toml: not TOML: maximum recursion depth"):
        read_toml(path)
    assert parse_value("[" * 5000) == "[" * 5000


def test_an_empty_list_is_no_choice() -> None:
    with pytest.raises(ConfigError, match="at least one value"):
        settings(assignments=["ease.l2=[]"])
