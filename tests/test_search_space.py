"""Spaces hold every default, draw nothing from outside, and the paper's are those that it prints."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loca.communities.geometry import Quantile
from loca.communities.kernel import Kernels
from loca.communities.mixture import Mixtures
from loca.errors import ConfigError
from loca.local.loca import Loca
from loca.models.ease import EASE
from loca.models.mult_vae import MultVAE
from loca.models.recommender import clone, get_params
from loca.registry import COMPONENTS, MODELS, RECORDS, space_of
from loca.search_space import Among, Budget, Quantiles, Range, Space, SpaceConstraints

WIDE = {name: one.wide for name, one in RECORDS.items() if one.wide is not None}
PAPER = {name: one.paper for name, one in RECORDS.items() if one.paper is not None}


class Drawn:
    """Draws the share `at` of every range."""

    def __init__(self, at: float) -> None:
        self.at = at
        self.params: dict[str, Any] = {}

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        self.params[name] = low * (high / low) ** self.at if log else low + self.at * (high - low)
        return self.params[name]

    def suggest_int(self, name: str, low: int, high: int, *, log: bool = False) -> int:
        self.params[name] = low + int(self.at * (high - low))
        return self.params[name]

    def suggest_categorical(self, name: str, choices: Any) -> Any:
        self.params[name] = choices[min(int(self.at * len(choices)), len(choices) - 1)]
        return self.params[name]


@pytest.mark.parametrize("name", WIDE)
@given(at=st.floats(0, 1))
def test_every_point_of_a_space_makes_a_model_that_lies_in_it(name: str, at: float) -> None:
    for kind in ("wide", "paper"):
        if kind == "wide" or name in PAPER:
            template = MODELS[name]()
            space = space_of(name, kind).of_parameters(template)
            draws: Any = Drawn(at)
            space.draw(draws)
            model = space.apply(template, draws.params)
            assert space.coordinates(model) is not None


FINDERS = COMPONENTS["CommunityFinder"]


@pytest.mark.parametrize("kind", FINDERS)
@pytest.mark.parametrize("at", [0.0, 0.3, 0.7, 1.0])
def test_every_point_makes_communities_of_each_kind(kind: str, at: float) -> None:
    template = Loca(base=EASE(), communities=FINDERS[kind]())
    space = WIDE["loca-ease"].of_parameters(template)
    draws: Any = Drawn(at)
    space.draw(draws)
    model = space.apply(template, draws.params)
    assert type(model.communities) is type(template.communities)
    assert space.coordinates(model) is not None


def test_every_parameter_of_a_space_is_one_of_some_kind() -> None:
    known = {
        f"communities.{parameter}" for make in FINDERS.values() for parameter in get_params(make())
    }
    for space in (*WIDE.values(), *PAPER.values()):
        of_communities = {name for name in space.names if name.startswith("communities.")}
        assert of_communities <= known


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        ("kernels", {"n", "anchors", "train_bandwidth", "answer_bandwidth", "kernel"}),
        ("mixtures", {"n", "mixtures", "membership_weight"}),
        ("random-groups", {"n", "divisions", "membership_weight"}),
        ("best-of", {"n"}),
        ("permuted", set()),
    ],
)
def test_a_space_is_narrowed_to_what_the_communities_have(kind: str, parameters: set[str]) -> None:
    model = Loca(base=EASE(), communities=FINDERS[kind]())
    names = WIDE["loca-ease"].of_parameters(model).names
    assert set(names) == {f"communities.{parameter}" for parameter in parameters}
    with pytest.raises(ConfigError, match="unknown parameter 'comunities' for Loca; did you mean"):
        Space({"comunities.n": Range(1, 2)}).of_parameters(model)


@pytest.mark.parametrize("name", WIDE)
def test_the_wide_space_holds_the_default(name: str) -> None:
    model = MODELS[name]()
    space = WIDE[name].of_parameters(model)
    point = space.coordinates(model)
    assert point is not None
    assert get_params(space.apply(model, point)).keys() == get_params(model).keys()


def test_the_papers_grids_are_those_it_prints() -> None:
    assert PAPER["ease"].domains == {"l2": Among((1.0, 10.0, 100.0, 1000.0))}
    sizes = {
        "ease": 4,
        "mult-vae": 18,
        "mult-dae": 27,
        "cdae": 27,
        "wmf": 27,
        "llorma": 135,
        "sglsvd": 7,
    }
    assert {name: len(PAPER[name].grid() or ()) for name in sizes} == sizes
    assert PAPER["loca-vae"].domains == {
        "communities.train_bandwidth": Range(0.8, 2.0),
        "communities.answer_bandwidth": Range(0.2, 0.8),
    }
    assert PAPER["loca-vae"].kinds == {"communities": "kernels"}
    model = PAPER["mult-vae"].apply(
        MultVAE(), {"learning_rate": 0.1, "dropout": 0.2, "hidden": None}
    )
    assert (model.latent, model.batch_size, model.patience, model.weight_decay) == (
        200,
        512,
        50,
        0.0,
    )


def test_a_grid_lists_each_point_once_and_a_range_has_none() -> None:
    grid = Space({"l2": Among((1.0, 2.0)), "denoising": Among((0.0, 0.5, 0.9))})
    points = grid.grid()
    assert points is not None
    assert len(points) == 6 == len({tuple(point.items()) for point in points})
    assert grid.grid(largest=5) is None
    assert Space({"l2": Range(1.0, 2.0)}).grid() is None
    assert Space().grid() == [{}]


def test_one_drawn_value_sets_both_bandwidths() -> None:
    space = WIDE["llorma-vae"]
    local = Loca(base=EASE(), communities=Kernels())
    point = {
        "communities.n": 12,
        "communities.train_bandwidth.level": 0.51239,
        "communities.train_bandwidth.times": 1.2,
    }
    finder = space.apply(local, point).communities
    assert finder == Kernels(
        n=12,
        train_bandwidth=Quantile(0.5124, 1.2),
        answer_bandwidth=Quantile(0.5124, 1.2),
    )
    assert space.coordinates(clone(local, communities=finder)) is not None
    assert space.coordinates(local) is None


def test_what_is_set_is_not_drawn_and_what_is_listed_is_drawn_from_the_list() -> None:
    fixed = ("communities.train_bandwidth", "communities.kernel")
    space = SpaceConstraints(fixed, {"base.l2": (3.0, 5.0)}).narrow(WIDE["loca-ease"])
    local = Loca(base=EASE(), communities=Kernels(kernel="uniform"))
    space = space.of_parameters(local)
    draws: Any = Drawn(1.0)
    space.draw(draws)
    assert "base.l2" in draws.params
    assert "communities.answer_bandwidth.level" in draws.params
    assert not any(name.startswith(fixed) for name in draws.params)
    model = space.apply(local, draws.params)
    assert isinstance(model.base, EASE)
    assert isinstance(model.communities, Kernels)
    assert (model.base.l2, model.communities.kernel) == (5.0, "uniform")


def test_what_has_the_value_of_another_follows_its_list() -> None:
    space = Space(
        {"communities.train_bandwidth": Range(0.1, 1.0)},
        same={"communities.answer_bandwidth": "communities.train_bandwidth"},
    )
    constraints = SpaceConstraints(listed={"communities.train_bandwidth": (0.3, 0.6)})
    local = Loca(base=EASE(), communities=Kernels())
    model = constraints.narrow(space).apply(local, {"communities.train_bandwidth": 0.6})
    assert model.communities == Kernels(train_bandwidth=0.6, answer_bandwidth=0.6)


def test_parameters_that_depend_on_each_other_change_together() -> None:
    space = Space({"communities.n": Among((1,)), "communities.mixtures": Among((1,))})
    local = Loca(base=EASE(), communities=Mixtures(n=4, mixtures=4))
    model = space.apply(local, {"communities.n": 1, "communities.mixtures": 1})
    assert model.communities == Mixtures(n=1, mixtures=1)


def test_a_value_outside_has_no_coordinates() -> None:
    assert Range(0.0, 1.0).coordinates(2.0, "x") is None
    assert Range(1, 5).coordinates(True, "x") is None
    assert Among((1.0, None)).coordinates(None, "x") == {"x": None}
    assert Quantiles(Range(0.1, 0.9)).coordinates(Quantile(0.5, times=2), "x") is None
    assert Quantiles(Range(0.1, 0.9)).coordinates(0.5, "x") is None


def test_mistakes_are_told() -> None:
    with pytest.raises(
        ConfigError, match=r"no wide space to tune 'mult-vea' in; did you mean 'mult-vae'"
    ):
        space_of("mult-vea", "wide")
    with pytest.raises(
        ConfigError, match=r"no paper space to tune 'next-vae' in; --space wide has one"
    ):
        space_of("next-vae", "paper")
    with pytest.raises(ConfigError, match=r"unknown space 'wid'; did you mean 'wide'"):
        space_of("ease", "wid")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"unknown parameter 'l1' for EASE"):
        Space({"l1": Range(0.0, 1.0)}).coordinates(EASE())


def test_budgets_check_and_name_themselves() -> None:
    assert str(Budget(trials=20, seconds=120)) == "20 trials or 120 s per model"
    assert str(Budget(trials=1)) == "1 trial per model"
    assert str(Budget(seconds=0.5)) == "0.5 s per model"
    for limits, line in (
        ({}, "needs a budget"),
        ({"trials": 0}, "trials: expected a whole number ≥ 1, found 0"),
        ({"trials": True}, "found True"),
        ({"seconds": 0}, "seconds: expected a number above 0, found 0"),
        ({"seconds": float("nan")}, "found nan"),
    ):
        with pytest.raises(ConfigError, match=line):
            Budget(**limits)


def test_a_budget_is_seconds_first_and_reads_a_time() -> None:
    assert Budget(600) == Budget(seconds=600)
    for text, seconds in (("12min", 720), ("2h", 7200), ("600", 600), (" 1.5 H ", 5400)):
        assert Budget(text) == Budget(seconds=seconds)
        assert type(Budget(text).seconds) is float
    assert Budget("10min", 5) == Budget(seconds=600, trials=5)
    for wrong in ("soon", "12 parsecs", "5steps", ""):
        with pytest.raises(ConfigError, match=rf"^seconds: expected a time .*, found '{wrong}'$"):
            Budget(wrong)
    with pytest.raises(ConfigError, match=r"^seconds: expected a number above 0, found '0min'$"):
        Budget("0min")


def test_a_budget_is_made_of_what_a_user_gives_for_one() -> None:
    trials = Budget(trials=3)
    assert Budget.of(trials) is trials
    assert Budget.of(None) is None
    assert Budget.of("12min") == Budget.of(720) == Budget.of(720.0) == Budget(seconds=720)
    for wrong in (True, [3], {"trials": 3}, b"12min", Budget):
        with pytest.raises(ConfigError, match=r"^budget: expected seconds such as 600, a time"):
            Budget.of(wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^seconds: expected a time such as 600, 12min or 2h"):
        Budget.of("soon")
    with pytest.raises(ConfigError, match=r"^seconds: expected a number above 0, found -3"):
        Budget.of(-3)
