"""Unfitted models come out of settings with the right parameters, seeds and controls."""

from __future__ import annotations

from typing import Any

import pytest

from loca.communities.embeddings import TruncatedSVD
from loca.communities.geometry import Quantile
from loca.config.model_factory import (
    build_models,
    describe_model,
    expand_names,
    what_differs,
    with_kernels,
)
from loca.config.settings import Choice
from loca.errors import ConfigError
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.models.ease import EASE
from loca.models.mult_vae import MultDAE, MultVAE
from loca.registry import MODELS


def build(name: str, table: dict[str, Any], seed: int = 0) -> list[Any]:
    return build_models([name], {name: table}, seed)[name]


def test_settings_reach_the_model_and_the_models_inside_it() -> None:
    (model,) = build("loca-ease", {"anchors": 6, "train_bandwidth": "q0.5", "base": {"l2": 300}})
    assert isinstance(model, Loca)
    assert (model.anchors, model.train_bandwidth, model.base.l2) == (6, Quantile(0.5), 300.0)


def test_stopping_by_community_is_taken_from_the_settings_of_the_paper() -> None:
    (model,) = build("loca-vae", {"stopping": "community"})
    assert model.stopping == "community"


def test_choices_make_a_candidate_for_each_combination() -> None:
    models = build("loca-ease", {"anchors": Choice((2, 3)), "base": {"l2": Choice((10, 20))}})
    assert [(one.anchors, one.base.l2) for one in models] == [
        (2, 10.0),
        (2, 20.0),
        (3, 10.0),
        (3, 20.0),
    ]
    assert what_differs(models)[1] == {"base.l2": 20.0, "anchors": 2}
    assert what_differs(models[:1]) == [{}]


def test_equal_candidates_are_built_once() -> None:
    assert len(build("ease", {"l2": Choice((10, 10.0, 20))})) == 2


def test_seeds_follow_the_command_unless_set_in_themselves() -> None:
    (model,) = build("loca-vae", {"base": {"seed": 5}}, seed=9)
    assert (model.seed, model.base.seed) == (9, 5)
    (model,) = build("loca-ease", {"embedding": "mult-dae"}, seed=9)
    assert (model.seed, model.embedding.seed) == (9, 9)


def test_a_model_inside_is_named_by_the_catalogue() -> None:
    (model,) = build(
        "loca-ease", {"embedding": {"model": "mult-dae", "latent": 5}, "base": "mult-vae"}
    )
    assert isinstance(model.embedding, MultDAE)
    assert isinstance(model.base, MultVAE)
    assert model.embedding.latent == 5
    (model,) = build("loca-vae", {"embedding": "svd"})
    assert isinstance(model.embedding, TruncatedSVD)
    (model,) = build("loca-ease", {"embedding": "none"})
    assert model.embedding is None


def test_a_wrong_model_inside_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"loca-ease.base: unknown model 'eas'; did you mean 'ease'"
    ):
        build("loca-ease", {"base": "eas"})
    with pytest.raises(
        ConfigError, match=r"loca-vae.embedding: there is no model to set options of"
    ):
        build("loca-vae", {"embedding": {"latent": 3}})


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            {"train_bandwith": 1},
            "unknown option 'train_bandwith' for loca-ease; did you mean 'train_bandwidth'",
        ),
        ({"base": {"l3": 1}}, "unknown option 'l3' for loca-ease.base; the options are l2"),
        ({"train_bandwidth": 0}, "loca-ease: train_bandwidth: expected a number above 0"),
        ({"base": {"l2": -1}}, "loca-ease.base: l2: expected a number above 0"),
        ({"anchors": "many"}, "loca-ease.anchors: expected a whole number, found 'many'"),
    ],
)
def test_a_wrong_setting_is_refused_before_anything_is_fitted(
    table: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        build("loca-ease", table)
    assert message in str(refused.value)


def test_settings_of_models_that_are_not_asked_for_are_checked_too() -> None:
    with pytest.raises(ConfigError, match="unknown option 'latnt' for mult-vae"):
        build_models(["ease"], {"mult-vae": {"latnt": 3}}, 0)


def test_ensemble_stands_for_the_control_of_every_loca_model() -> None:
    names = expand_names(["ease", "ensemble", "loca-vae", "loca-ease", "ease"])
    assert names == ["ease", "ensemble-vae", "ensemble-ease", "loca-vae", "loca-ease"]
    with pytest.raises(ConfigError, match="'ensemble' is the control of a loca model"):
        expand_names(["ease", "ensemble"])
    with pytest.raises(ConfigError, match="unknown model 'easy'; did you mean 'ease'"):
        expand_names(["easy"])
    with pytest.raises(ConfigError, match="unknown model 'qqq'; there are popularity, "):
        expand_names(["qqq"])
    with pytest.raises(ConfigError, match="at least one model"):
        expand_names([])


def test_a_control_is_as_large_as_its_loca_and_chooses_from_the_same_bases() -> None:
    table = {
        "anchors": 7,
        "train_bandwidth": Choice(("q0.5", "q0.9")),
        "base": {"l2": Choice((10, 20))},
    }
    built = build_models(["ensemble-ease", "loca-ease"], {"loca-ease": table}, 3)
    assert list(built) == ["ensemble-ease", "loca-ease"]
    assert len(built["loca-ease"]) == 4
    controls = [one for one in built["ensemble-ease"] if isinstance(one, Ensemble)]
    assert [
        (one.models, one.base.l2, one.seed) for one in controls if isinstance(one.base, EASE)
    ] == [
        (7, 10.0, 3),
        (7, 20.0, 3),
    ]


def test_dealt_stands_for_the_control_of_local_models_that_have_one() -> None:
    names = expand_names(
        ["dealt", "ensemble", "loca-vae", "mixture-vae", "mixture-ease", "loca-dae"]
    )
    assert names[:2] == ["dealt-vae", "dealt-ease"]
    assert names[2:5] == ["ensemble-vae", "ensemble-ease", "ensemble-dae"]
    for others in (["ease"], ["loca-dae"], ["loca-paper-vae"]):
        with pytest.raises(
            ConfigError,
            match="'dealt' is the control of a loca model; ask for one too, of loca-vae, ",
        ):
            expand_names(["dealt", *others])
    with pytest.raises(ConfigError, match="unknown model 'dealtt'; did you mean 'dealt'"):
        expand_names(["dealtt"])


def test_a_dealt_control_has_all_but_the_kernels_of_its_local_model() -> None:
    table = {
        "anchors": 6,
        "mixtures": 3,
        "focus": 0.7,
        "answering": 2,
        "alpha": 0.1,
        "base": {"l2": Choice((10, 20))},
    }
    names = ["dealt-ease", "ensemble-ease", "mixture-ease", "loca-ease"]
    own = {"anchors": 1, "train_bandwidth": Choice(("q0.5", "q0.9")), "communities": "kernel"}
    built = build_models(names, {"mixture-ease": table, "loca-ease": own}, 3)
    for control, local in zip(built["dealt-ease"], built["mixture-ease"], strict=True):
        params = describe_model(control)
        assert params == describe_model(local) | {"communities": "dealt"}
        assert (params["seed"], params["mixtures"], params["focus"], params["answering"]) == (
            3,
            3,
            0.7,
            2,
        )
    # The ensemble is that of the loca model, here of one; so is the dealt control where there is no mixture model.
    assert [describe_model(one)["models"] for one in built["ensemble-ease"]] == [1]
    (control,) = build_models(["loca-ease", "dealt-ease"], {"loca-ease": own}, 0)["dealt-ease"]
    params = describe_model(control)
    assert (params["communities"], params["anchors"], params["mixtures"]) == ("dealt", 1, 1)
    assert params["train_bandwidth"] == describe_model(Loca(base=EASE()))["train_bandwidth"]
    (set_apart,) = build_models(
        names, {"mixture-ease": {"focus": 0.7}, "dealt-ease": {"focus": 0.2}}, 0
    )["dealt-ease"]
    assert describe_model(set_apart)["focus"] == 0.2


def test_an_ensemble_beside_a_mixture_has_as_many_models() -> None:
    (control,) = build_models(
        ["mixture-ease", "ensemble-ease"], {"mixture-ease": {"anchors": 8}}, 0
    )["ensemble-ease"]
    assert describe_model(control)["models"] == 8


def test_only_what_would_choose_its_communities_gets_those_of_the_paper() -> None:
    for name in ("loca-ease", "loca-vae", "loca-next-vae"):
        assert describe_model(MODELS[name]())["communities"] == "auto"
        assert describe_model(with_kernels(MODELS[name]())) == describe_model(MODELS[name]()) | {
            "communities": "kernel"
        }
    for name in (
        "loca-paper-vae",
        "llorma-vae",
        "loca-dae",
        "mixture-vae",
        "dealt-ease",
        "ensemble-ease",
        "ease",
    ):
        model = MODELS[name]()
        assert with_kernels(model) is model
        assert describe_model(model).get("communities") == {
            "mixture-vae": "mixture",
            "dealt-ease": "dealt",
        }.get(name, "kernel" if "loca" in name or "llorma" in name else None)


def test_a_controls_own_settings_win() -> None:
    settings = {"loca-ease": {"anchors": 7}, "ensemble-ease": {"models": 3}}
    built = build_models(["loca-ease", "ensemble-ease"], settings, 0)
    (control,) = built["ensemble-ease"]
    assert isinstance(control, Ensemble)
    assert control.models == 3


def test_a_model_is_described_by_dotted_names_and_plain_values() -> None:
    described = describe_model(Loca(base=EASE(l2=7), anchors=2))
    assert described["model"] == "Loca"
    assert described["base.model"] == "EASE"
    assert described["base.l2"] == 7
    assert described["train_bandwidth"] == "1.3*q0.9"
    assert described["embedding"] is None
