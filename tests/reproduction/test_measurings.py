"""A measuring is done once, kept and found again; another subject is refused, a damaged file is measured anew."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from loca.errors import ConfigError
from loca.reproduction.benchmark import Records
from loca.reproduction.measurings import Measurement, find_kept, find_or_measure, seconds_kept

SUBJECT: Mapping[str, Any] = {"data": "a digest", "protocol": "clean", "latent": 8, "anchors": None}
LINES: Records = [
    {"seed": 0, "share": 0.1, "model": "local", "is it": True, "nothing": None},
    {"seed": 1, "share": 1 / 3, "model": "ganz", "is it": False, "nothing": None},
]


class Counted:
    """Gives the lines, and counts how often it was asked."""

    def __init__(self, lines: Records) -> None:
        self.lines = lines
        self.times = 0

    def __call__(self) -> Records:
        self.times += 1
        return [dict(line) for line in self.lines]


def test_records_are_measured_once_and_found_again_to_the_last_bit(tmp_path: Path) -> None:
    measure = Counted(LINES)
    asked = Measurement("training seconds stacked 1", SUBJECT, measure)
    assert find_kept(asked, tmp_path) is None
    first = find_or_measure(asked, tmp_path)
    again = find_or_measure(asked, tmp_path)
    assert first == again == find_kept(asked, tmp_path) == LINES
    assert measure.times == 1


def test_each_has_its_own_records_and_only_what_is_missing_is_measured(tmp_path: Path) -> None:
    old, new = Counted(LINES[:1]), Counted(LINES[1:])
    find_or_measure(Measurement("old", SUBJECT, old), tmp_path)
    assert find_or_measure(Measurement("new", {**SUBJECT, "latent": 9}, new), tmp_path) == LINES[1:]
    assert find_or_measure(Measurement("old", SUBJECT, old), tmp_path) == LINES[:1]
    assert (old.times, new.times) == (1, 1)


def test_nothing_is_kept_of_one_that_fails(tmp_path: Path) -> None:
    def fail() -> Records:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        find_or_measure(Measurement("killed", SUBJECT, fail), tmp_path)
    again = Counted(LINES)
    assert find_or_measure(Measurement("killed", SUBJECT, again), tmp_path) == LINES
    assert again.times == 1


@pytest.mark.parametrize(
    ("now", "told"),
    [
        ({**SUBJECT, "data": "another"}, "the data have changed"),
        ({**SUBJECT, "latent": 16}, "latent: 8 then, 16 now"),
        ({**SUBJECT, "epochs": 2}, "epochs: not set then, 2 now"),
        ({key: value for key, value in SUBJECT.items() if key != "latent"}, "latent: 8 then, not set now"),
    ],
)
def test_records_of_another_subject_are_refused_and_stay(tmp_path: Path, now: Mapping[str, Any], told: str) -> None:
    find_or_measure(Measurement("timing", SUBJECT, Counted(LINES)), tmp_path)
    other = Counted([])
    with pytest.raises(ConfigError, match="records of timing that are not those asked for") as caught:
        find_or_measure(Measurement("timing", now, other), tmp_path)
    assert told in str(caught.value)
    assert "--fresh" in str(caught.value)
    assert other.times == 0
    assert find_or_measure(Measurement("timing", SUBJECT, other), tmp_path) == LINES


@pytest.mark.parametrize("keeps", [0, 0.5, 0.95], ids=["empty", "half", "cut short"])
def test_a_damaged_file_is_measured_again(tmp_path: Path, keeps: float) -> None:
    find_or_measure(Measurement("timing", SUBJECT, Counted(LINES)), tmp_path)
    (file,) = (one for one in tmp_path.iterdir() if one.is_file())
    whole = file.read_bytes()
    file.write_bytes(whole[: int(keeps * len(whole))])
    again = Counted(LINES)
    assert find_or_measure(Measurement("timing", SUBJECT, again), tmp_path) == LINES
    assert again.times == 1
    assert find_or_measure(Measurement("timing", SUBJECT, again), tmp_path) == LINES
    assert again.times == 1


def test_a_file_with_a_changed_byte_is_measured_again(tmp_path: Path) -> None:
    find_or_measure(Measurement("timing", SUBJECT, Counted(LINES)), tmp_path)
    (file,) = (one for one in tmp_path.iterdir() if one.is_file())
    file.write_bytes(file.read_bytes().replace(b"ganz", b"gans"))
    again = Counted(LINES)
    assert find_or_measure(Measurement("timing", SUBJECT, again), tmp_path) == LINES
    assert again.times == 1


def test_to_look_for_records_leaves_nothing(tmp_path: Path) -> None:
    assert find_kept(Measurement("timing", SUBJECT, Counted(LINES)), tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_the_seconds_of_what_is_kept_are_told(tmp_path: Path) -> None:
    def slow() -> Records:
        time.sleep(0.05)
        return LINES

    asked = [Measurement("slow", SUBJECT, slow), Measurement("not yet", SUBJECT, slow)]
    find_or_measure(asked[0], tmp_path)
    took = seconds_kept(asked, tmp_path)
    assert 0.05 <= took < 5
    find_or_measure(asked[0], tmp_path)
    assert seconds_kept(asked, tmp_path) == took
