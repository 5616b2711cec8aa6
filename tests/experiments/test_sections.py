"""How data is read, split and weighed, as options that check themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from loca.data.recency import Recency
from loca.errors import ConfigError
from loca.experiments.sections import DataOptions, RecencyOptions, SplitOptions, parse_half_life, read_data


@pytest.mark.parametrize(
    ("text", "recency"),
    [
        ("4", Recency(4)),
        ("2.5", Recency(2.5)),
        ("30d", Recency(30 * 86_400, unit="time")),
        ("12 h", Recency(12 * 3600, unit="time")),
        ("none", None),
    ],
)
def test_a_half_life_is_positions_or_time(text: str, recency: Recency | None) -> None:
    assert parse_half_life(text) == recency


@pytest.mark.parametrize("text", ["soon", "30x", "1.2.3", "-4", "0", ""])
def test_a_half_life_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_half_life(text)


def test_recency_is_a_half_life_or_a_decay() -> None:
    assert RecencyOptions().recency() is None
    assert RecencyOptions(half_life="4").recency() == RecencyOptions(half_life=4.0).recency() == Recency(4)
    assert RecencyOptions(decay=0.5).recency() == Recency(1.0)
    with pytest.raises(ConfigError, match="a half_life or a decay, found both"):
        RecencyOptions(half_life=4.0, decay=0.5)
    with pytest.raises(ConfigError, match="decay: expected a number between 0 and 1"):
        RecencyOptions(decay=1.5)


def test_a_split_needs_a_test_item() -> None:
    with pytest.raises(ConfigError, match=r"split.test: expected a whole number ≥ 1, found 0"):
        SplitOptions(test=0)
    with pytest.raises(ConfigError, match=r"split.validation: expected a whole number ≥ 0, found -1"):
        SplitOptions(validation=-1)


def test_unknown_layouts_and_presets_are_refused_before_reading() -> None:
    with pytest.raises(ConfigError, match="unknown layout 'movielens-1n'; did you mean 'movielens-1m'"):
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
    data = read_data(str(path), options, None)
    assert data.users.values.tolist() == ["a", "b"]
    assert data.items.values.tolist() == ["x", "z"]
    assert data.items.label(0) == "Xanadu"
    assert len(data) == 3


def test_a_preset_reads_as_the_paper_did(tmp_path: Path) -> None:
    path = tmp_path / "amusic.rating"
    rows = [f"u1,i{n % 9},5.0,{n}" for n in range(10)] + [f"u2,j{n},5.0,{n}" for n in range(3)]
    path.write_text("\n".join(rows) + "\n")
    data = read_data(str(path), DataOptions(preset="amusic"), None)
    assert (data.n_users, data.n_items, len(data)) == (1, 12, 10)
