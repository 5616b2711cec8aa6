"""Values are checked against the annotations of whatever takes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pytest

from loca.communities.geometry import Quantile
from loca.config.options import build_section, check_names, check_value, parameters_of
from loca.errors import ConfigError
from loca.models.ease import EASE
from loca.models.popularity import Popularity

Number = float | Quantile


@pytest.mark.parametrize(
    ("annotation", "given", "expected"),
    [
        (int, "300", 300),
        (float, 3, 3.0),
        (int | None, "none", None),
        (int | None, 5, 5),
        (str | None, "none", None),
        (Number, "q0.5", Quantile(0.5)),
        (Number, "1.3*q0.9", Quantile(0.9, times=1.3)),
        (Number, Quantile(0.5), Quantile(0.5)),
        (Number, "0.5", 0.5),
        (float | Literal["validation"], "validation", "validation"),
        (float | Literal["validation"], "0.3", 0.3),
        (bool, "true", True),
        (tuple[int, ...], ["5", 10], (5, 10)),
        (str | int, 0, 0),
        (Any, "x", "x"),
    ],
)
def test_a_value_becomes_what_the_annotation_wants(annotation: Any, given: Any, expected: Any) -> None:
    checked = check_value("key", annotation, given)
    assert checked == expected
    assert type(checked) is type(expected)


@pytest.mark.parametrize(
    ("annotation", "given", "message"),
    [
        (float, "abc", "key: expected a number, found 'abc'"),
        (int, 1.5, "key: expected a whole number, found 1.5"),
        (float, True, "key: expected a number, found True"),
        (float, float("nan"), "key: expected a number, found nan"),
        (float, "inf", "key: expected a number, found 'inf'"),
        (int | None, "x", "key: expected a whole number or none, found 'x'"),
        (Literal["kmeans", "random"], "kmean", "expected 'kmeans' or 'random', found 'kmean'; did you mean 'kmeans'?"),
        (Number, "q2", "key: quantile: expected a level above 0 and up to 1"),
        (Number, "wide", "key: bandwidth: expected a number above 0, or a quantile"),
        (Number, True, "key: expected a number or a quantile such as q0.9, found True"),
        (tuple[int, ...], ["x"], "key: expected a list, each a whole number, found"),
        (dict, "x", "key: expected dict, found 'x'"),
    ],
)
def test_an_impossible_value_is_refused_with_what_was_expected(annotation: Any, given: Any, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_value("key", annotation, given)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_parameters_of_a_model_are_those_of_its_constructor() -> None:
    assert parameters_of(EASE) == {"l2": float, "denoising": float, "device": str}
    assert parameters_of(Popularity) == {"window": float | str | None}


def test_an_unknown_name_is_refused_with_the_nearest_or_with_all() -> None:
    with pytest.raises(
        ConfigError, match="unknown option 'train_bandwith' for loca-ease; did you mean 'train_bandwidth'"
    ):
        check_names(["train_bandwith"], ["train_bandwidth", "seed"], "loca-ease")
    with pytest.raises(ConfigError, match="unknown option 'x' for ease; the options are l2"):
        check_names(["x"], ["l2"], "ease")
    with pytest.raises(ConfigError, match="the options are none"):
        check_names(["x"], [], "popularity")


@dataclass(frozen=True)
class Sizes:
    test: int = 5
    name: str | None = None


def test_a_section_is_built_from_its_table() -> None:
    assert build_section(Sizes, {"test": "3"}, "sizes") == Sizes(3)
    with pytest.raises(ConfigError, match=r"sizes.test: expected a whole number, found 'many'"):
        build_section(Sizes, {"test": "many"}, "sizes")
    with pytest.raises(ConfigError, match="unknown option 'tset' for sizes; did you mean 'test'"):
        build_section(Sizes, {"tset": 3}, "sizes")
