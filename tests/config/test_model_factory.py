"""Unfitted models come out of settings with the right parameters, seeds and controls."""

from __future__ import annotations

from typing import Any

import pytest

from loca.communities.best_of import BestOf
from loca.communities.embeddings import TruncatedSVD
from loca.communities.geometry import Quantile
from loca.communities.kernel import Kernels
from loca.communities.mixture import Mixtures
from loca.communities.random_groups import RandomGroups
from loca.config.model_factory import (
    build_models,
    describe_model,
    expand_names,
    what_differs,
)
from loca.config.settings import Choice
from loca.errors import ConfigError
from loca.local.combiner import FixedShare, GlobalShare, LocalOnly
from loca.local.engines.stacked.engine import Stacked
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.models.ease import EASE
from loca.models.mult_vae import MultDAE, MultVAE
from loca.models.recommender import clone
from loca.paper.permuted import Permuted
from loca.paper.stopping import StopEach
from loca.persistence.manifest import fingerprint
from loca.registry import MODELS


def build(name: str, table: dict[str, Any], seed: int = 0) -> list[Any]:
    return build_models([name], {name: table}, seed)[name]


def test_settings_reach_the_model_and_all_that_it_is_made_of() -> None:
    communities = {"kind": "kernels", "n": 6, "train_bandwidth": "q0.5"}
    (model,) = build("loca-ease", {"communities": communities, "base": {"l2": 300}})
    assert isinstance(model, Loca)
    assert model.communities == Kernels(n=6, train_bandwidth=Quantile(0.5))
    assert model.base.get_params()["l2"] == 300.0


def test_a_word_in_place_of_a_table_is_a_kind() -> None:
    (model,) = build("loca-ease", {"communities": "mixtures", "combiner": "local-only"})
    assert model.communities == Mixtures()
    assert model.combiner == LocalOnly()
    assert build("loca-ease", {"combiner": {"kind": "local-only"}})[0].combiner == LocalOnly()


def test_another_kind_keeps_what_was_set_and_both_have() -> None:
    finder = RandomGroups(n=24, divisions=4, membership_weight=0.6)
    model = clone(MODELS["loca-ease"](), communities=finder)
    MODELS["spare"] = lambda: model
    try:
        (mixtures,) = build("spare", {"communities": "mixtures"})
        (kernels,) = build("spare", {"communities": {"kind": "kernels", "anchors": "kmeans"}})
        (fewer,) = build("spare", {"communities": {"kind": "mixtures", "n": 12}})
    finally:
        del MODELS["spare"]
    assert mixtures.communities == Mixtures(n=24, membership_weight=0.6)
    assert kernels.communities == Kernels(n=24, anchors="kmeans")
    assert fewer.communities == Mixtures(n=12, membership_weight=0.6)


def test_another_model_has_its_own_parameters() -> None:
    (model,) = build("paper-loca-ease", {"base": "slim"})
    assert describe_model(model.base) == describe_model(MODELS["slim"]())
    (model,) = build("loca-next-vae", {"base": {"kind": "mult-vae", "latent": 7}})
    assert describe_model(model.base) == describe_model(MultVAE(latent=7))


def test_engines_and_shares_have_parameters_too() -> None:
    table = {
        "engine": {"kind": "stacked", "stored": "float16"},
        "combiner": {"kind": "fixed-share", "share": 0.3},
    }
    (model,) = build("loca-vae", table)
    assert model.engine == Stacked(stored="float16")
    assert model.combiner == FixedShare(0.3)
    (model,) = build("paper-loca-vae", {"engine": {"engine": {"stored": "float16"}}})
    assert model.engine == StopEach(engine=Stacked(stored="float16"))
    (model,) = build("loca-vae", {"engine": "none"})
    assert model.engine is None


def test_a_bandwidth_has_parts() -> None:
    communities = {"kind": "kernels", "train_bandwidth": {"level": 0.8}}
    (model,) = build("loca-ease", {"communities": communities})
    assert model.communities.train_bandwidth == Quantile(0.8, times=1.3)


def test_a_choice_among_finders_is_a_list_of_tables() -> None:
    finders = [{"kind": "kernels", "n": 3}, "mixtures"]
    table = {"communities": {"finders": finders}}
    (model,) = build("loca-ease", table, seed=4)
    assert model.communities == BestOf(finders=(Kernels(n=3), Mixtures()))
    with pytest.raises(
        ConfigError, match=r"loca-ease.communities.finders.0: unknown kind 'kernel'"
    ):
        build("loca-ease", {"communities": {"finders": ["kernel"]}})


def test_choices_make_a_candidate_for_each_combination() -> None:
    table = {"communities": {"n": Choice((2, 3))}, "base": {"l2": Choice((10, 20))}}
    models = build("loca-ease", table)
    assert [(model.communities.n, model.base.l2) for model in models] == [
        (2, 10.0),
        (2, 20.0),
        (3, 10.0),
        (3, 20.0),
    ]
    assert what_differs(models)[1] == {"base.l2": 20.0, "communities.n": 2}
    assert what_differs(models[:1]) == [{}]


def test_kinds_are_chosen_among_too() -> None:
    models = build("loca-ease", {"communities": Choice(("kernels", "mixtures"))})
    assert [model.communities for model in models] == [Kernels(), Mixtures()]
    differences = what_differs(models)
    assert [table["communities.kind"] for table in differences] == ["Kernels", "Mixtures"]


def test_equal_candidates_are_built_once() -> None:
    assert len(build("ease", {"l2": Choice((10, 10.0, 20))})) == 2


def test_seeds_follow_the_command_unless_set_in_themselves() -> None:
    (model,) = build("loca-vae", {"base": {"seed": 5}}, seed=9)
    assert (model.seed, model.base.seed) == (9, 5)
    embedded = {"communities": {"kind": "kernels", "embedding": "mult-dae"}}
    (model,) = build("loca-ease", embedded, seed=9)
    assert (model.seed, model.communities.embedding.seed) == (9, 9)
    (model,) = build("paper-loca-ease", {}, seed=9)  # which has it inside its communities
    assert model.communities.embedding.seed == 9


def test_a_model_inside_is_named_by_the_catalogue() -> None:
    communities = {"kind": "kernels", "embedding": {"kind": "mult-dae", "latent": 5}}
    (model,) = build("loca-ease", {"communities": communities, "base": "mult-vae"})
    assert isinstance(model.communities.embedding, MultDAE)
    assert isinstance(model.base, MultVAE)
    assert model.communities.embedding.latent == 5
    communities = {"kind": "kernels", "embedding": "svd"}
    (model,) = build("loca-vae", {"communities": communities})
    assert isinstance(model.communities.embedding, TruncatedSVD)
    (model,) = build("paper-loca-ease", {"communities": {"embedding": "none"}})
    assert model.communities.embedding is None


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"base": "eas"}, "loca-ease.base: unknown kind 'eas'; did you mean 'ease'"),
        (
            {"communities": "kernel"},
            "loca-ease.communities: unknown kind 'kernel'; did you mean 'kernels'",
        ),
        (
            {"combiner": 0.3},
            "loca-ease.combiner: unknown kind 0.3; there are global-share, fixed-share, local-only",
        ),
        ({"combiner": ["a"]}, "loca-ease.combiner: unknown kind ['a']; there are global-share, "),
        (
            {"engine": {"stored": "float16"}},
            "loca-ease.engine: there is none to set options of; "
            "say which, as loca-ease.engine.kind=loop",
        ),
        (
            {"engine": {"kind": "none", "stored": "float16"}},
            "loca-ease.engine: there is none to set options of",
        ),
        ({"combiner": "none"}, "loca-ease: combiner: expected a combiner such as FixedShare(0.3)"),
        (
            {"communities": {"kind": "kernels", "embedding": "ease"}},
            "loca-ease.communities: embedding: expected an embedder",
        ),
        (
            {"communities": {"train_bandwidth": 1}},
            "unknown option 'train_bandwidth' for loca-ease.communities; "
            "it is one of kernels: loca-ease.communities.kind=kernels",
        ),
        ({"n": 5}, "unknown option 'n' for loca-ease; did you mean 'loca-ease.communities.n'?"),
        ({"l2": 5}, "unknown option 'l2' for loca-ease; did you mean 'loca-ease.base.l2'?"),
        (
            {"comunities": 1},
            "unknown option 'comunities' for loca-ease; did you mean 'communities'",
        ),
        ({"base": {"l3": 1}}, "unknown option 'l3' for loca-ease.base; the options are l2"),
        (
            {"communities": {"kind": "kernels", "train_bandwidth": 0}},
            "loca-ease.communities: train_bandwidth: expected a number above 0",
        ),
        (
            {"communities": {"kind": "mixtures", "n": 1}},
            "loca-ease.communities: mixtures: expected at most as many as communities, 1, found 2",
        ),
        ({"base": {"l2": -1}}, "loca-ease.base: l2: expected a number above 0"),
        (
            {"communities": {"n": "many"}},
            "loca-ease.communities.n: expected a whole number, found 'many'",
        ),
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
    with pytest.raises(ConfigError, match="'ensemble' is the control of a local model"):
        expand_names(["ease", "ensemble"])
    with pytest.raises(ConfigError, match="unknown model 'easy'; did you mean 'ease'"):
        expand_names(["easy"])
    with pytest.raises(ConfigError, match="unknown model 'qqq'; there are popularity, "):
        expand_names(["qqq"])
    with pytest.raises(ConfigError, match="at least one model"):
        expand_names([])


def test_a_control_is_as_large_as_its_loca_and_chooses_from_the_same_bases() -> None:
    communities = {"kind": "kernels", "n": 7, "train_bandwidth": Choice(("q0.5", "q0.9"))}
    table = {"communities": communities, "base": {"l2": Choice((10, 20))}}
    built = build_models(["ensemble-ease", "loca-ease"], {"loca-ease": table}, 3)
    assert list(built) == ["ensemble-ease", "loca-ease"]
    assert len(built["loca-ease"]) == 4
    controls = [control for control in built["ensemble-ease"] if isinstance(control, Ensemble)]
    assert [
        (control.models, control.base.l2, control.seed)
        for control in controls
        if isinstance(control.base, EASE)
    ] == [
        (7, 10.0, 3),
        (7, 20.0, 3),
    ]


def test_the_controls_of_the_papers_models_stand_beside_them() -> None:
    assert expand_names(["ensemble", "paper-loca-vae"]) == ["paper-ensemble-vae", "paper-loca-vae"]
    names = ["paper-loca-vae", "paper-ensemble-vae"]
    table = {"communities": {"n": 4}}
    (control,) = build_models(names, {"paper-loca-vae": table}, 0)["paper-ensemble-vae"]
    assert control.get_params()["models"] == 4


def test_dealt_stands_for_the_control_of_local_models_that_have_one() -> None:
    names = expand_names(
        ["dealt", "ensemble", "loca-vae", "mixture-vae", "mixture-ease", "loca-dae"]
    )
    assert names[:2] == ["dealt-vae", "dealt-ease"]
    assert names[2:5] == ["ensemble-vae", "ensemble-ease", "ensemble-dae"]
    for others in (["ease"], ["loca-dae"], ["paper-loca-vae"]):
        with pytest.raises(
            ConfigError,
            match="'dealt' is the control of a local model; "
            "ask for one too, of mixture-vae, loca-vae, ",
        ):
            expand_names(["dealt", *others])
    with pytest.raises(ConfigError, match="unknown model 'dealtt'; did you mean 'dealt'"):
        expand_names(["dealtt"])


def test_a_dealt_control_has_the_mixtures_of_its_local_model() -> None:
    mixtures = {"n": 6, "mixtures": 3, "membership_weight": 0.7, "top_k": 2}
    table = {
        "communities": mixtures,
        "combiner": {"kind": "fixed-share", "share": 0.1},
        "base": {"l2": Choice((10, 20))},
    }
    names = ["dealt-ease", "ensemble-ease", "mixture-ease", "loca-ease"]
    bandwidths = {"kind": "kernels", "n": 1, "train_bandwidth": Choice(("q0.5", "q0.9"))}
    own = {"communities": bandwidths}
    built = build_models(names, {"mixture-ease": table, "loca-ease": own}, 3)
    for control, local in zip(built["dealt-ease"], built["mixture-ease"], strict=True):
        assert isinstance(control, Loca)
        assert isinstance(local, Loca)
        assert control.communities == Permuted(finder=local.communities)
        assert local.communities == Mixtures(**mixtures)
        assert describe_model(clone(control, communities=local.communities)) == describe_model(
            local
        )
        assert (control.seed, control.combiner) == (3, FixedShare(0.1))
    # The ensemble is that of the loca model, here of one; so is the dealt control where there is no
    # mixture model.
    assert [describe_model(model)["models"] for model in built["ensemble-ease"]] == [1]
    (control,) = build_models(["loca-ease", "dealt-ease"], {"loca-ease": own}, 0)["dealt-ease"]
    assert isinstance(control, Loca)
    assert control.communities == Permuted(finder=Mixtures(n=1, mixtures=1))
    assert control.combiner == GlobalShare()
    settings = {
        "mixture-ease": {"communities": {"membership_weight": 0.7}},
        "dealt-ease": {"communities": {"finder": {"membership_weight": 0.2}}},
    }
    (set_apart,) = build_models(names, settings, 0)["dealt-ease"]
    assert describe_model(set_apart)["communities.finder.membership_weight"] == 0.2


def test_the_dealt_control_of_a_model_that_chooses_has_mixtures_of_as_many() -> None:
    table = {"communities": {"n": 9}}
    (control,) = build_models(["loca-ease", "dealt-ease"], {"loca-ease": table}, 0)["dealt-ease"]
    assert isinstance(control, Loca)
    assert control.communities == Permuted(finder=Mixtures(n=9).with_n(9))


def test_an_ensemble_beside_a_mixture_has_as_many_models() -> None:
    settings = {"mixture-ease": {"communities": {"n": 8}}}
    (control,) = build_models(["mixture-ease", "ensemble-ease"], settings, 0)["ensemble-ease"]
    assert describe_model(control)["models"] == 8


def test_a_controls_own_settings_win() -> None:
    settings = {"loca-ease": {"communities": {"n": 7}}, "ensemble-ease": {"models": 3}}
    built = build_models(["loca-ease", "ensemble-ease"], settings, 0)
    (control,) = built["ensemble-ease"]
    assert isinstance(control, Ensemble)
    assert control.models == 3


def test_a_model_is_described_by_dotted_names_and_plain_values() -> None:
    described = describe_model(Loca(base=EASE(l2=7), communities=Kernels(n=2)))
    assert described["model"] == "Loca"
    assert described["base.kind"] == "EASE"
    assert described["base.l2"] == 7
    assert described["communities.kind"] == "Kernels"
    assert described["communities.n"] == 2
    assert described["communities.train_bandwidth"] == "1.3*q0.9"
    assert described["communities.embedding"] is None
    assert described["engine"] is None
    finders = BestOf(finders=(Kernels(embedding=TruncatedSVD(dimensions=3)), Mixtures()))
    described = describe_model(Loca(base=EASE(), communities=finders))
    assert described["communities.finders.0.embedding.dimensions"] == 3
    assert described["communities.finders.1.kind"] == "Mixtures"


def test_every_parameter_of_every_component_is_in_the_fingerprint() -> None:
    kernels = Kernels(n=3, embedding=TruncatedSVD(dimensions=3))
    model = Loca(base=MultVAE(), communities=BestOf(finders=(kernels, Mixtures())))
    changed = [
        clone(model, communities=BestOf(finders=(Kernels(n=3), Mixtures()))),
        clone(model, communities=BestOf(finders=(clone(kernels, n=4), Mixtures()))),
        clone(
            model,
            communities=BestOf(finders=(clone(kernels, embedding__dimensions=4), Mixtures())),
        ),
        clone(model, communities=Permuted(finder=Mixtures())),
        clone(model, communities=Permuted(finder=Mixtures(n=12))),
        clone(model, combiner=LocalOnly()),
        clone(model, combiner=FixedShare(0.1)),
        clone(model, combiner=FixedShare(0.2)),
        clone(model, engine=StopEach()),
        clone(model, engine=StopEach(engine=Stacked(stored="float16"))),
    ]
    for digest in (fingerprint, describe_model):
        assert digest(clone(model)) == digest(model)
        digests = [str(digest(other)) for other in (model, *changed)]
        assert "None" not in digests
        assert len(set(digests)) == len(digests)
