"""Bars are drawn where somebody watches and nowhere else; memory is said and refused before it is taken."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import loca.memory as memory
from loca.errors import DataError
from loca.progress import bar, say, show_progress


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich draws as it would on a terminal
    show_progress(True)
    yield
    show_progress(False)


@pytest.mark.usefixtures("shown")
def test_a_bar_names_the_work_and_what_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    with bar("counting sheep", 4) as progress:
        for _ in range(3):
            progress.advance(note="asleep soon")
        progress.advance()
    drawn = capsys.readouterr()
    assert drawn.out == ""
    assert "counting sheep" in drawn.err
    assert "4/4" in drawn.err
    assert "asleep soon" in drawn.err


def test_no_bar_is_drawn_where_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    show_progress(None)  # standard error is no terminal here
    with bar("counting sheep", 4) as progress:
        progress.advance(note="unseen")
    show_progress(False)
    assert capsys.readouterr() == ("", "")


def test_what_is_said_reaches_the_logger(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="loca"):
        say("seven models need 3 GB")
    assert caplog.messages == ["seven models need 3 GB"]


def test_bytes_are_written_as_a_person_would() -> None:
    sizes = [999, 1_000, 52_700_000, 1_300_000_000, 2.5e12]
    assert [memory.readable_bytes(size) for size in sizes] == ["999 B", "1 kB", "52.7 MB", "1.3 GB", "2.5 TB"]


def test_much_memory_is_said_and_too_much_is_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: 10**9)
    with caplog.at_level(logging.INFO, logger="loca"):
        memory.plan_memory("a small plan", 10**6, "never mind")
        memory.plan_memory("a large plan", 10**8, "never mind")
    assert caplog.messages == ["a large plan: 100.0 MB of memory needed"]
    with pytest.raises(DataError, match=r"a huge plan: 2\.0 GB of memory needed, 1\.0 GB are free; take less"):
        memory.plan_memory("a huge plan", 2 * 10**9, "take less")


@pytest.mark.parametrize(("limit", "expected"), [("3000", 2000), ("max", 10_240), ("500", 0)])
def test_a_container_limit_counts(limit: str, expected: int, tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal:  30 kB\nMemAvailable:  10 kB\n")
    (tmp_path / "memory.max").write_text(f"{limit}\n")
    (tmp_path / "memory.current").write_text("1000\n")
    assert memory.available_bytes(tmp_path / "meminfo", tmp_path) == expected
    assert memory.available_bytes(tmp_path / "meminfo", tmp_path / "absent") == 10_240


def test_free_memory_is_some_and_no_more_than_there_is() -> None:
    assert 0 < memory.available_bytes() < 10**15
