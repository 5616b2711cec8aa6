"""What the commands say of an order that looks like the file's, and that they say nothing elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command_calls import TINY, Call

WARNING = "the order of items looks like the file's, not the users'"
FEW = ("--validation", "1", "--set", "data.min_user_interactions=5")


@pytest.fixture
def by_day(tmp_path: Path) -> Path:
    """Forty users who took nearly all items on one day, in a file that is sorted by item."""
    rng = np.random.default_rng(0)
    rows = [
        (int(item), user, int(rng.random() < 0.05) * 86_400)
        for user in range(40)
        for item in rng.permutation(30)[: rng.integers(12, 16)]
    ]
    path = tmp_path / "days.csv"
    path.write_text(
        "item,user,time\n"
        + "\n".join(f"{item},{user},{time}" for item, user, time in sorted(rows))
        + "\n"
    )
    return path


def test_describe_says_how_far_the_order_can_be_trusted(call: Call, by_day: Path) -> None:
    text = call("data", "describe", by_day).out
    assert "\norder                                 looks like the file's, not the users': " in text
    told = json.loads(call("data", "describe", by_day, "--json").out)["order"]
    assert told["looks_like_file_order"]
    assert told["rising"] == 1
    assert 0 < told["ordered_by_time"] < 0.1
    assert not json.loads(call("data", "describe", "planted", *TINY, "--json").out)["order"][
        "looks_like_file_order"
    ]


@pytest.mark.parametrize(
    ("options", "times"),
    [
        (("--model", "ease"), 0),
        (("--model", "ease", "--recency", "4"), 1),
        (("--model", "ease", "--recency", "86400steps"), 0),
        (("--model", "ease", "--recency", "auto"), 1),
        (("--model", "next-ease"), 1),
        (("--model", "ensemble-next-ease", "--set", "models=2"), 1),
        (("--model", "auto", "--trials", "2", "--budget", "60"), 1),
    ],
)
def test_fit_warns_once_where_order_is_in_use(
    call: Call, by_day: Path, tmp_path: Path, options: tuple[str, ...], times: int
) -> None:
    done = call("fit", by_day, "--out", tmp_path / "model", *FEW, *options)
    assert done.code == 0, done.err
    assert done.err.count(WARNING) == times


@pytest.mark.parametrize(("models", "times"), [("popularity,ease", 0), ("ease,next-ease", 1)])
def test_compare_warns_once_where_order_is_in_use(
    call: Call, by_day: Path, models: str, times: int
) -> None:
    done = call("compare", by_day, "--models", models, "--test", "2", *FEW)
    assert done.code == 0, done.err
    assert done.err.count(WARNING) == times


def test_compare_warns_once_for_all_its_processes(call: Call, by_day: Path) -> None:
    few = ("--set", "auto.trials=1", "--set", "auto.seconds=30", "--processes", "2")
    done = call("compare", by_day, "--models", "next-ease,auto", "--test", "2", *FEW, *few)
    assert done.code == 0, done.err
    assert done.err.count(WARNING) == 1


def test_nothing_is_said_of_an_order_that_may_be_the_users_own(call: Call, tmp_path: Path) -> None:
    done = call("fit", "planted", "--out", tmp_path / "model", *TINY, "--model", "next-ease")
    assert done.code == 0
    assert "looks like the file's" not in done.err


@pytest.mark.real_data
def test_describe_says_how_much_of_the_order_is_by_time(call: Call, real_data: Path) -> None:
    verdicts = {
        "amusic/amusic.rating": "partly by time: 31 % of",
        "games-2018/interactions-ordered.csv.gz": "by time: 100 % of",
        "ml-1m/ratings-ordered.csv.gz": "by time: 100 % of",
    }
    for file, verdict in verdicts.items():
        order = ("--time-column", "rank") if "ordered" in file else ()
        text = call("data", "describe", real_data / file, *order).out
        assert f"\norder                                 {verdict}" in text
