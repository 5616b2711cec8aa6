"""A local model and its control begin with what the study of their base chose, but for what was set on purpose."""

from __future__ import annotations

from typing import Any

import pytest

from loca.communities.geometry import Quantile
from loca.communities.kernel import Kernels
from loca.communities.mixture import Mixtures
from loca.config.model_factory import build_models, describe_model
from loca.config.settings import Choice
from loca.data.splits import Split
from loca.errors import ConfigError
from loca.experiments.comparison import plan_runs
from loca.local.auto import Auto
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.models.ease import EASE
from loca.models.mult_vae import MultVAE
from loca.models.popularity import Popularity
from loca.models.recommender import Recommender, clone, get_params
from loca.paper.permuted import Permuted
from loca.registry import MODELS, RECORDS, SpaceName
from loca.search_space import Among, Budget, Space, SpaceConstraints
from loca.tuning.model_selection import EvaluationProtocol
from loca.tuning.warm_start import TuningPlan, plan_from_settings, plan_tuning

NEXT = {"target": "next", "set_share": 0.3}


def around(base: Recommender, n: int) -> Loca:
    return Loca(base=base, communities=Kernels(n=n))


TEMPLATES: dict[str, Recommender] = {
    "ensemble-ease": Ensemble(base=EASE(), models=4),
    "loca-ease": around(EASE(), 4),
    "ease": EASE(),
    "next-vae": MultVAE(**NEXT),
    "mult-vae": MultVAE(),
    "other-vae": around(MultVAE(), 9),
    "loca-vae": around(MultVAE(), 9),
    "loca-next-vae": around(MultVAE(**NEXT), 9),
    "ensemble-vae": Ensemble(base=MultVAE(), models=7),
    "popularity": Popularity(),
}


def begin(
    name: str,
    templates: dict[str, Recommender],
    tuned: dict[str, Recommender],
    constraints: SpaceConstraints | None = None,
) -> Recommender:
    """What a model begins with once its parents are tuned."""
    return TuningPlan(templates, {}, {name: constraints or SpaceConstraints()}).template(
        name, tuned
    )


def test_the_base_comes_before_its_local_model_and_both_before_their_control() -> None:
    assert TuningPlan(TEMPLATES, {}).parents() == {
        "ensemble-ease": ("ease", "loca-ease"),
        "loca-ease": ("ease",),
        "ease": (),
        "next-vae": (),
        "mult-vae": (),
        "other-vae": ("mult-vae",),
        "loca-vae": ("mult-vae",),
        "loca-next-vae": ("next-vae",),
        "ensemble-vae": ("mult-vae", "loca-vae"),
        "popularity": (),
    }


def test_a_base_that_is_not_compared_is_no_parent() -> None:
    assert (
        TuningPlan({"loca-ease": TEMPLATES["loca-ease"], "mult-vae": MultVAE()}, {}).parents()[
            "loca-ease"
        ]
        == ()
    )


def test_what_the_study_of_the_base_chose_is_where_the_others_begin() -> None:
    tuned = {**TEMPLATES, "ease": EASE(l2=7.0), "loca-ease": around(EASE(l2=7.0), 12)}
    local, control = (begin(name, TEMPLATES, tuned) for name in ("loca-ease", "ensemble-ease"))
    assert isinstance(local, Loca)
    assert isinstance(control, Ensemble)
    assert (get_params(local.base)["l2"], local.size) == (7.0, 4)
    assert (get_params(control.base)["l2"], control.models) == (7.0, 12)
    assert begin("ease", TEMPLATES, tuned) is TEMPLATES["ease"]


def test_what_was_set_on_purpose_stays() -> None:
    templates: dict[str, Recommender] = {
        "ease": EASE(l2=50.0),
        "loca-ease": around(EASE(l2=300.0), 4),
        "ensemble-ease": Ensemble(base=EASE(l2=50.0), models=6),
    }
    tuned: dict[str, Recommender] = {
        "ease": EASE(l2=7.0, denoising=0.5),
        "loca-ease": around(EASE(), 12),
    }
    local, control = (begin(name, templates, tuned) for name in ("loca-ease", "ensemble-ease"))
    assert isinstance(local, Loca)
    assert isinstance(control, Ensemble)
    params = get_params(local.base)
    assert (params["l2"], params["denoising"]) == (300.0, 0.5)
    assert (get_params(control.base)["l2"], control.models) == (7.0, 6)


def test_a_control_that_follows_has_no_size_to_tune_and_what_is_fixed_is_not_tuned() -> None:
    names = ("ensemble-ease", "loca-ease", "ease", "popularity")
    offered = {name: [TEMPLATES[name]] for name in names}
    constraints = {
        "loca-ease": SpaceConstraints(("communities.n", "communities.kernel")),
        "ease": SpaceConstraints(("l2",)),
    }
    spaces = plan_tuning(offered, "wide", constraints).spaces
    domains = {name: set(space.domains) for name, space in spaces.items() if space is not None}
    assert domains["ensemble-ease"] == domains["popularity"] == set()
    assert not domains["loca-ease"] & {"communities.n", "communities.kernel"}
    assert "communities.train_bandwidth" in domains["loca-ease"]
    assert domains["ease"] == {"denoising"}
    alone = plan_tuning({"ensemble-ease": [Ensemble(base=EASE())]}, "wide", {}).spaces[
        "ensemble-ease"
    ]
    assert alone is not None
    assert "models" in alone.domains


def test_a_dealt_control_begins_as_its_local_model_ended() -> None:
    templates: dict[str, Recommender] = {
        "dealt-ease": MODELS["dealt-ease"](),
        "ensemble-ease": Ensemble(base=EASE()),
        "loca-ease": MODELS["loca-ease"](),
        "mixture-ease": MODELS["mixture-ease"](),
        "ease": EASE(),
    }
    plan = plan_tuning({name: [one] for name, one in templates.items()}, "wide", {})
    assert plan.parents()["dealt-ease"] == ("ease", "mixture-ease")
    assert plan.parents()["ensemble-ease"] == ("ease", "loca-ease")
    mixtures = Mixtures(n=12, mixtures=4, membership_weight=0.2)
    best = Loca(base=EASE(l2=7.0), communities=mixtures)
    tuned = {**templates, "mixture-ease": best}
    control: Any = plan.template("dealt-ease", tuned)
    assert control.communities == Permuted(finder=mixtures)
    assert describe_model(clone(control, communities=mixtures)) == describe_model(best)
    assert control.base.l2 == 7.0
    own: Any = begin("dealt-ease", templates, tuned, SpaceConstraints(("base.l2",)))
    assert own.communities == Permuted(finder=mixtures)
    assert own.base.l2 == EASE().l2
    said = SpaceConstraints(("communities.finder.n",))
    own = begin("dealt-ease", templates, tuned, said)
    assert own.communities == Permuted(finder=Mixtures())
    assert own.base.l2 == 7.0


def test_what_the_communities_do_not_have_is_not_tuned() -> None:
    def tuned(name: str, **changes: Any) -> set[str]:
        space = plan_tuning({name: [clone(MODELS[name](), **changes)]}, "wide", {}).spaces[name]
        assert space is not None
        return {parameter.removeprefix("communities.") for parameter in space.names}

    kernels = {"n", "anchors", "train_bandwidth", "answer_bandwidth", "kernel"}
    mixtures = {"n", "mixtures", "membership_weight"}
    assert tuned("loca-ease") == {"n"}
    assert tuned("loca-ease", communities=Kernels()) == kernels
    assert tuned("loca-ease", communities=Mixtures()) == tuned("mixture-ease") == mixtures
    assert tuned("dealt-ease") == set()


def plan_of(name: str, table: dict[str, Any], kind: SpaceName = "wide") -> tuple[Any, Space]:
    """Return how a model begins with these settings, and what is tuned."""
    candidates = build_models([name], {name: table}, 0)
    plan = plan_from_settings(candidates, kind, {name: table})
    space = plan.spaces[name]
    assert space is not None
    return plan.templates[name], space


def test_a_kind_that_was_set_has_its_own_parameters_tuned() -> None:
    for table in (
        {"communities": "kernels"},
        {"communities": {"kind": "kernels"}},
        {"communities": {"kind": "kernels", "n": 12, "train_bandwidth": Choice((0.3, 0.6))}},
    ):
        template, space = plan_of("loca-ease", table)
        assert isinstance(template.communities, Kernels)
        assert "communities.answer_bandwidth" in space.domains
        assert ("communities.n" in space.domains) == (template.size == 40)
    assert space.domains["communities.train_bandwidth"] == Among((0.3, 0.6))
    with pytest.raises(ConfigError, match=r"loca-ease.communities: kinds cannot be tuned among"):
        plan_of("loca-ease", {"communities": Choice(("kernels", "mixtures"))})


def test_the_papers_space_has_kernels() -> None:
    template, space = plan_of("loca-vae", {"communities": {"n": 12}}, "paper")
    assert template.communities == Kernels(n=12)
    assert set(space.domains) == {"communities.train_bandwidth", "communities.answer_bandwidth"}
    point: Any = {"communities.train_bandwidth": 1.0, "communities.answer_bandwidth": 0.5}
    finder = Kernels(n=12, train_bandwidth=1.0, answer_bandwidth=0.5)
    assert get_params(space.apply(template, point))["communities"] == finder
    for table in ({"communities": "mixtures"}, {"communities": "best-of"}):
        template, space = plan_of("loca-vae", table, "paper")  # it was set on purpose, and stays
        assert (
            template.communities
            == build_models(["loca-vae"], {"loca-vae": table}, 0)["loca-vae"][0].get_params()[
                "communities"
            ]
        )
        assert not space.domains


def test_a_budget_tunes_one_model_of_each_name() -> None:
    with pytest.raises(
        ConfigError, match="ease: a budget tunes one model, and lists offer 2 to choose from"
    ):
        plan_tuning({"ease": [EASE(), EASE(l2=1.0)]}, "wide", {})


def test_what_is_said_by_name_stays_even_where_it_is_the_default() -> None:
    templates = {name: TEMPLATES[name] for name in ("ensemble-ease", "loca-ease", "ease")}
    tuned = {
        **templates,
        "ease": EASE(l2=7.0, denoising=0.5),
        "loca-ease": around(EASE(), 12),
    }
    local = begin("loca-ease", templates, tuned, SpaceConstraints(("base.l2",)))
    assert isinstance(local, Loca)
    params = get_params(local.base)
    assert (params["l2"], params["denoising"]) == (EASE().l2, 0.5)
    whole = begin("loca-ease", templates, tuned, SpaceConstraints(("base",)))
    assert isinstance(whole, Loca)
    assert get_params(whole.base) == get_params(EASE())
    control = begin("ensemble-ease", templates, tuned, SpaceConstraints(listed={"models": (4, 5)}))
    assert isinstance(control, Ensemble)
    assert control.models == 4


def test_a_default_is_nothing_that_was_set_on_purpose() -> None:
    templates: dict[str, Recommender] = {
        "ease": EASE(l2=50.0),
        "loca-ease": around(EASE(), 4),
    }
    local = begin("loca-ease", templates, {"ease": EASE(l2=7.0)})
    assert isinstance(local, Loca)
    assert get_params(local.base)["l2"] == 7.0


def test_lists_are_all_that_is_tried_and_their_first_value_is_where_tuning_begins() -> None:
    offered = {
        "ensemble-ease": [Ensemble(base=EASE(), models=2), Ensemble(base=EASE(), models=3)],
        "loca-ease": [around(EASE(), 2), around(EASE(), 3)],
        "ease": [EASE()],
    }
    listed = {
        "n": Choice((2, 3)),
        "train_bandwidth": Choice(("q0.2", 0.5)),
        "kernel": "uniform",
    }
    tables = {"ensemble-ease": {}, "loca-ease": {"communities": listed}, "ease": {"l2": 30}}
    plan = plan_from_settings(offered, "wide", tables)
    assert plan.in_order() == ["ease", "loca-ease", "ensemble-ease"]
    space = plan.spaces["loca-ease"]
    assert space is not None
    assert space.domains["communities.n"] == Among((2, 3))
    bandwidth = space.domains["communities.train_bandwidth"]
    assert isinstance(bandwidth, Among)
    assert [bandwidth.value({"b": drawn}, "b") for drawn in bandwidth.drawn] == [Quantile(0.2), 0.5]
    assert bandwidth.coordinates(Quantile(0.2), "b") == {"b": "q0.2"}
    assert "communities.kernel" not in space.domains
    control = plan.template("ensemble-ease", {"ease": EASE(), "loca-ease": around(EASE(), 3)})
    assert isinstance(control, Ensemble)
    assert control.models == 3
    with pytest.raises(ConfigError, match="base: kinds cannot be tuned among"):
        plan_from_settings(
            {"loca-ease": offered["loca-ease"]},
            "wide",
            {"loca-ease": {"base": Choice(("ease", "slim"))}},
        )


def test_auto_searches_by_itself_under_the_budget_of_the_others(planted_split: Split) -> None:
    terms = EvaluationProtocol(budget=Budget(trials=3, seconds=20.0))
    plan = plan_runs({"auto": [Auto(seconds=99.0)]}, planted_split, terms, {})
    cell = plan.make("auto", {})
    (model,) = cell.candidates
    assert isinstance(model, Auto)
    assert (model.seconds, model.trials, cell.space) == (20.0, 3, None)
    few = plan_runs(
        {"auto": [Auto(seconds=99.0)]},
        planted_split,
        EvaluationProtocol(budget=Budget(trials=3)),
        {},
    )
    (model,) = few.make("auto", {}).candidates
    assert isinstance(model, Auto)
    assert (model.seconds, model.trials) == (99.0, 3)


@pytest.mark.parametrize("kind", ["wide", "paper"])
def test_models_with_the_authors_settings_are_compared_as_they_are(kind: SpaceName) -> None:
    offered = {name: [MODELS[name]()] for name in RECORDS if "paper" in name}
    assert set(plan_tuning(offered, kind, {}).spaces.values()) == {None}


def test_every_model_can_be_tuned_or_is_given() -> None:
    assert plan_tuning(
        {name: [MODELS[name]()] for name in RECORDS}, "wide", {}
    ).spaces.keys() == set(RECORDS)
