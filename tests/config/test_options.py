"""Options check themselves and their values: how data is read, split and weighed, and what annotations ask for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from loca.communities.geometry import Quantile
from loca.config.options import (
    DataOptions,
    RecencyOptions,
    SplitOptions,
    build_section,
    check_names,
    check_value,
    parameters_of,
    parse_recency,
    read_data,
)
from loca.data.recency import Recency
from loca.errors import ConfigError
from loca.models.ease import EASE
from loca.models.popularity import Popularity


@pytest.mark.parametrize(
    ("text", "recency"),
    [
        ("4", Recency(4)),
        ("2.5", Recency(2.5)),
        ("30d", Recency(30 * 86_400, unit="seconds")),
        ("12 h", Recency(12 * 3600, unit="seconds")),
        ("4:power", Recency(4, shape="power")),
        ("30d:Power:0.1", Recency(30 * 86_400, "seconds", "power", 0.1)),
        ("4::0.05", Recency(4, floor=0.05)),
        ("4:exponential:0", Recency(4)),
        ("none", None),
    ],
)
def test_a_half_life_is_positions_or_time(text: str, recency: Recency | None) -> None:
    assert parse_recency(text) == recency


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *(
            (text, "expected positions such as 4, a time such as 30d or 5steps, none or auto")
            for text in ("soon", "30x", "-4")
        ),
        *(
            (text, "expected positions such as 4, a time such as 30d or 5steps, none or auto")
            for text in ("", ":power", "1.2.3")
        ),
        ("0", "half_life: expected a number above 0"),
        (
            "4:powr",
            "unknown recency shape 'powr'; did you mean 'power'",
        ),
        ("4:power:x", "recency floor: expected a number from 0 to below 1, found 'x'"),
        ("4::1", "recency floor: expected a number from 0 to below 1, found 1.0"),
        ("4::nan", "recency floor: expected a number from 0 to below 1, found nan"),
        (
            "4:power:0.1:2",
            "expected at most AGE:SHAPE:FLOOR, such as 30d:power:0.1, found '4:power:0.1:2'",
        ),
        (
            "auto",
            "auto is chosen by loca fit and loca compare; say an age such as 4 or 30d, or none",
        ),
    ],
)
def test_a_recency_that_means_nothing_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_recency(text)


def test_recency_is_a_half_life_or_a_decay() -> None:
    assert RecencyOptions().recency() == "own"
    assert RecencyOptions(half_life="none").recency() is None
    assert (
        RecencyOptions(half_life="4").recency()
        == RecencyOptions(half_life=4.0).recency()
        == Recency(4)
    )
    assert RecencyOptions(decay=0.5).recency() == Recency(1.0)
    with pytest.raises(ConfigError, match="a half_life or a decay, found both"):
        RecencyOptions(half_life=4.0, decay=0.5)
    with pytest.raises(ConfigError, match="decay: expected a number between 0 and 1"):
        RecencyOptions(decay=1.5)


def test_shape_and_floor_stand_in_the_half_life_or_beside_it() -> None:
    assert RecencyOptions(half_life="30d", shape="power", floor=0.1).recency() == parse_recency(
        "30d:power:0.1"
    )
    assert RecencyOptions(half_life=4, floor=0.2).recency() == Recency(4, floor=0.2)
    assert RecencyOptions(decay=0.5, floor=0.2).recency() == Recency(1.0, floor=0.2)
    assert RecencyOptions(half_life="none", shape="power").recency() is None
    assert RecencyOptions(half_life="Auto").recency() == "auto"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shape": "power"}, r"recency.shape: needs a half_life too"),
        ({"floor": 0.1}, r"recency.floor: needs a half_life too"),
        (
            {"half_life": "4:power", "shape": "power"},
            r"recency.shape: half_life says it all in '4:power'",
        ),
        ({"half_life": "auto", "floor": 0.1}, r"recency.floor: auto chooses it"),
        ({"half_life": "auto", "decay": 0.9}, "a half_life or a decay, found both"),
        (
            {"decay": 0.9, "shape": "power"},
            r"recency.decay: is exponential; for the shape 'power' say a half_life",
        ),
        ({"half_life": 4, "shape": "powr"}, "did you mean 'power'"),
        ({"half_life": 4, "floor": 1.0}, "recency floor: expected a number from 0 to below 1"),
    ],
)
def test_options_of_recency_that_do_not_go_together_are_refused(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        RecencyOptions(**options)


def test_a_split_needs_a_test_item() -> None:
    with pytest.raises(ConfigError, match=r"split.test: expected a whole number ≥ 1, found 0"):
        SplitOptions(test=0)
    with pytest.raises(
        ConfigError, match=r"split.validation: expected a whole number ≥ 0, found -1"
    ):
        SplitOptions(validation=-1)


def test_unknown_layouts_and_presets_are_refused_before_reading() -> None:
    with pytest.raises(
        ConfigError, match="unknown layout 'movielens-1n'; did you mean 'movielens-1m'"
    ):
        DataOptions(layout="movielens-1n")
    with pytest.raises(ConfigError, match="unknown preset"):
        DataOptions(preset="amusik")


def test_a_preset_says_how_the_data_is_read() -> None:
    with pytest.raises(ConfigError, match="leave out min_user_interactions, keep_repeats"):
        DataOptions(preset="amusic", min_user_interactions=5, keep_repeats=True)


def test_the_built_in_data_has_no_reader_options() -> None:
    DataOptions(separator=",").check_source("ratings.csv")
    with pytest.raises(ConfigError, match="is made, not read; leave out separator"):
        DataOptions(separator=",").check_source("planted")


def test_reader_options_reach_the_reader(tmp_path: Path) -> None:
    path = tmp_path / "ratings.csv"
    path.write_text("who;what;stars;day\na;x;5;1\na;y;1;2\na;x;4;3\nb;x;4;1\nb;z;5;2\n")
    (tmp_path / "titles.csv").write_text("item,title\nx,Xanadu\n")
    options = DataOptions(
        user_column="who",
        item_column="what",
        rating_column="stars",
        time_column="day",
        separator=";",
        min_rating=4,
        titles=str(tmp_path / "titles.csv"),
    )
    data, _ = read_data(str(path), options, None)
    assert data.users.values.tolist() == ["a", "b"]
    assert data.items.values.tolist() == ["x", "z"]
    assert data.items.label(0) == "Xanadu"
    assert len(data) == 3


def test_a_preset_reads_as_the_paper_did(tmp_path: Path) -> None:
    path = tmp_path / "amusic.rating"
    rows = [f"u1,i{n % 9},5.0,{n}" for n in range(10)] + [f"u2,j{n},5.0,{n}" for n in range(3)]
    path.write_text("\n".join(rows) + "\n")
    data, _ = read_data(str(path), DataOptions(preset="amusic"), None)
    assert (data.n_users, data.n_items, len(data)) == (1, 12, 10)


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
def test_a_value_becomes_what_the_annotation_wants(
    annotation: Any, given: Any, expected: Any
) -> None:
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
        (
            Literal["kmeans", "random"],
            "kmean",
            "expected 'kmeans' or 'random', found 'kmean'; did you mean 'kmeans'?",
        ),
        (Number, "q2", "key: quantile: expected a level above 0 and up to 1"),
        (Number, "wide", "key: quantile: expected text such as q0.9 or 1.3*q0.9, found 'wide'"),
        (Number, "wide", "; a number above 0 will do too"),
        (Number, True, "key: expected a number or a quantile such as q0.9, found True"),
        (tuple[int, ...], ["x"], "key: expected a list, each a whole number, found"),
        (dict, "x", "key: expected dict, found 'x'"),
    ],
)
def test_an_impossible_value_is_refused_with_what_was_expected(
    annotation: Any, given: Any, message: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        check_value("key", annotation, given)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_parameters_of_a_model_are_those_of_its_constructor() -> None:
    of_ease = parameters_of(EASE)
    assert (of_ease["l2"], of_ease["denoising"]) == (float, float)
    assert "device" not in of_ease
    assert parameters_of(Popularity) == {"window": float | str | None}


def test_an_unknown_name_is_refused_with_the_nearest_or_with_all() -> None:
    with pytest.raises(
        ConfigError,
        match="unknown option 'train_bandwith' for loca-ease; did you mean 'train_bandwidth'",
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
