"""Times: what a column of numbers counts, as somebody said or as it looks."""

from __future__ import annotations

import numpy as np
import pytest

import loca
from loca.data.times import as_seconds, find_unit, unit_of_column
from loca.remarks import collect_remarks

SECOND = 1_600_000_000


@pytest.mark.parametrize(
    ("times", "unit"),
    [
        ([SECOND, SECOND + 1], "s"),
        ([SECOND * 1000, SECOND * 1000 + 1], "ms"),
        ([SECOND * 10**6], "us"),
        ([SECOND * 10**9], "ns"),
        ([20131231, 20140101], "yyyymmdd"),
        ([20131331, 20140101], "steps"),  # no month 13
        ([1, 2, 3], "steps"),
        ([], "steps"),
    ],
)
def test_a_unit_is_found_where_all_numbers_are_moments(times: list[int], unit: str) -> None:
    assert find_unit(np.array(times, dtype=np.int64)) == unit


def test_moments_become_seconds_whole_where_they_are() -> None:
    assert as_seconds(np.array([SECOND * 1000, SECOND * 1000 + 1000]), "ms").tolist() == [
        SECOND,
        SECOND + 1,
    ]
    assert as_seconds(np.array([SECOND * 1000 + 500]), "ms").tolist() == [SECOND + 0.5]
    assert as_seconds(np.array([19700102]), "yyyymmdd").tolist() == [86_400]


def test_seconds_beside_milliseconds_are_refused_with_their_shares() -> None:
    mixed = np.array([SECOND, SECOND + 1, SECOND * 1000, SECOND * 1000 + 1])
    with pytest.raises(loca.DataError, match="50 % s and 50 % ms since 1970; bring them into one"):
        unit_of_column(mixed, None, "events.csv")


@pytest.mark.parametrize("times", [[28022013, 1032013, 31072013], [12312013, 1012014]])
def test_dates_with_the_year_last_are_refused(times: list[int]) -> None:
    with pytest.raises(loca.DataError, match=r"day or the month first; write .* 2013-12-31"):
        unit_of_column(np.array(times), None, "events.csv")
    assert unit_of_column(np.array(times), "steps", "events.csv") == "steps"


def test_bare_numbers_of_eight_digits_are_no_dates() -> None:
    assert unit_of_column(np.arange(11_000_000, 11_000_500), None, "events.csv") == "steps"


def test_a_unit_that_the_numbers_contradict_is_told() -> None:
    with collect_remarks(lambda one: None) as collected:
        assert unit_of_column(np.array([SECOND * 1000]), "s", "events.csv") == "ms"
        assert unit_of_column(np.array([0, SECOND, SECOND + 1]), None, "events.csv") == "steps"
        assert unit_of_column(np.array([0, SECOND]), "s", "events.csv") == "s"
    assert [one.kind for one in collected.remarks] == ["times-unknown", "times-unknown"]
