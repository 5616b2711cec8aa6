"""Popularity counts who has an item, of late or ever."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

from loca.data.id_map import IdMap
from loca.data.interactions import Interactions
from loca.errors import ConfigError, DataError
from loca.models.popularity import Popularity
from loca.registry import load

DAY = 86_400
FIRST = 1_600_000_000


def events(*rows: tuple[int, int, int]) -> Interactions:
    """Interactions of three users and three items from (user, item, day)."""
    users, items, days = np.array(rows).T
    return Interactions.from_events(
        IdMap.numbered(3, "user"), IdMap.numbered(3, "item"), users, items, FIRST + days * DAY
    )


# Item 0 was everybody's long ago, item 1 is two users' of late, item 2 one user's today.
TRAIN = events((0, 0, 0), (1, 0, 1), (2, 0, 2), (0, 1, 90), (1, 1, 95), (2, 2, 100))


def shares(model: Popularity) -> list[float]:
    return model.score(csr_array((1, 3), dtype=np.float32))[0].tolist()


def test_without_a_window_all_that_ever_happened_counts() -> None:
    assert shares(Popularity().fit(TRAIN)) == pytest.approx([1, 2 / 3, 1 / 3])
    assert shares(Popularity(window=None).fit(TRAIN.matrix())) == pytest.approx([1, 2 / 3, 1 / 3])


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        ("98d", [1 / 3, 2 / 3, 1 / 3]),
        ("10d", [0, 2 / 3, 1 / 3]),
        (10 * DAY, [0, 2 / 3, 1 / 3]),
        ("1w", [0, 1 / 3, 1 / 3]),
        (1, [0, 0, 1 / 3]),
        ("100y", [1, 2 / 3, 1 / 3]),
    ],
)
def test_a_window_reaches_back_from_the_newest_time_of_all(
    window: float | str, expected: list[float]
) -> None:
    assert shares(Popularity(window=window).fit(TRAIN)) == pytest.approx(expected)


def test_users_weigh_within_the_window_too() -> None:
    model = Popularity(window="10d").fit(TRAIN, user_weights=np.array([3.0, 1.0, 0.0]))
    assert shares(model) == pytest.approx([0, 1, 0])


def test_a_window_of_days_is_refused_where_times_are_no_seconds() -> None:
    steps = replace(TRAIN, times=TRAIN.times - FIRST)  # type: ignore[operator]
    with pytest.raises(DataError, match=r"window: these times are bare numbers \(0 to 8640000\)"):
        Popularity(window="10d").fit(steps)
    assert shares(Popularity(window=10 * DAY).fit(steps)) == pytest.approx([0, 2 / 3, 1 / 3])


def test_a_window_survives_its_file(tmp_path: Path) -> None:
    model = Popularity(window="10d").fit(TRAIN)
    model.save(tmp_path / "m")
    loaded = load(tmp_path / "m")
    assert isinstance(loaded, Popularity)
    assert loaded.window == model.selected().window == "10d"
    assert shares(loaded) == shares(model)


@pytest.mark.parametrize(
    "window", [0, -1.0, float("inf"), float("nan"), True, "0d", "30x", "soon", "", [3]]
)
def test_a_window_that_is_no_time_is_refused(window: object) -> None:
    with pytest.raises(
        ConfigError,
        match="window: expected a time such as 30d, or a number above 0 in units of the data's times",
    ):
        Popularity(window=window)  # type: ignore[arg-type]


def test_a_window_needs_times() -> None:
    untimed = Interactions.from_matrix(TRAIN.matrix())
    for train in (untimed, TRAIN.matrix()):
        with pytest.raises(DataError, match="popularity by time window needs a time column"):
            Popularity(window="30d").fit(train)
