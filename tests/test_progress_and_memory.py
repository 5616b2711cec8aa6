"""Bars are drawn where somebody watches and nowhere else; memory is said and refused before it is taken."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import loca.memory as memory
from loca.errors import DataError
from loca.progress import bar, say, set_progress, show_progress


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich draws as it would on a terminal
    set_progress(True)
    yield
    set_progress(False)


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
    set_progress(None)  # standard error is no terminal here
    with bar("counting sheep", 4) as progress:
        progress.advance(note="unseen")
    set_progress(False)
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("shown")
def test_no_bar_is_drawn_inside_another(capsys: pytest.CaptureFixture[str]) -> None:
    with bar("counting sheep", 4), bar("counting legs", 16) as legs:
        legs.advance()
    with bar("counting wolves", 2):
        pass
    drawn = capsys.readouterr().err
    assert "counting legs" not in drawn
    assert "counting wolves" in drawn


@pytest.fixture
def automatic() -> Iterator[None]:
    set_progress(None)
    yield
    set_progress(False)


class Clock:
    """A clock that goes on when it is set."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.mark.usefixtures("automatic")
def test_a_log_gets_a_line_every_ten_seconds_and_one_at_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock(1000.0)
    with caplog.at_level(logging.INFO, logger="loca"), bar("MultVAE", 100, clock=clock) as progress:
        for step in range(100):
            clock.now = 1000.0 + 0.4 * step
            progress.advance(note=f"loss {step}")
    assert caplog.messages == [
        "MultVAE: 26 of 100, 10 s, about 28 s left; loss 25",
        "MultVAE: 51 of 100, 20 s, about 19 s left; loss 50",
        "MultVAE: 76 of 100, 30 s, about 9 s left; loss 75",
        "MultVAE: done, 40 s",
    ]
    assert {record.name for record in caplog.records} == {"loca.progress"}


@pytest.mark.usefixtures("automatic")
def test_many_short_pieces_of_work_get_a_line_now_and_then_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock(5000.0)
    with caplog.at_level(logging.INFO, logger="loca"):
        for piece in range(8):
            with bar(f"piece {piece}", 3, clock=clock) as progress:
                for _ in range(3):
                    clock.now += 1.0
                    progress.advance()
    assert [line.split(":")[0] for line in caplog.messages] == ["piece 3", "piece 6"]
    assert caplog.messages[0] == "piece 3: 1 of 3, 1 s, about 2 s left"


@pytest.mark.parametrize(("shown", "level"), [(False, logging.INFO), (None, logging.WARNING)])
def test_no_line_is_logged_where_progress_is_off_or_nobody_listens(
    shown: bool | None, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock(9000.0)
    set_progress(shown)
    with caplog.at_level(level, logger="loca"), bar("MultVAE", 9, clock=clock) as progress:
        for _ in range(8):
            clock.now += 60.0
            progress.advance()
    set_progress(False)
    assert caplog.messages == []


@pytest.mark.usefixtures("automatic")
def test_long_times_are_written_as_a_person_would(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock(20_000.0)
    with caplog.at_level(logging.INFO, logger="loca"), bar("LOCA", 4, clock=clock) as progress:
        clock.now += 125.0
        progress.advance(0)
        clock.now += 3600.0
        progress.advance()
    assert caplog.messages == [
        "LOCA: 0 of 4, 2 min 05 s",
        "LOCA: 1 of 4, 1 h 02 min, about 3 h 06 min left",
        "LOCA: done, 1 h 02 min",
    ]


class Display:
    """What a notebook shows: every HTML text that a cell's output has had."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, html: str, display_id: bool) -> Display:
        assert display_id
        self.texts.append(html)
        return self

    def update(self, html: str) -> None:
        self.texts.append(html)


@pytest.mark.usefixtures("automatic")
def test_a_notebook_shows_a_bar_that_goes_in_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cell = Display()
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(HTML=str, display=cell))
    clock = Clock(0.0)
    with bar("a < b", 4, clock=clock) as progress:
        progress.advance(note="too early to be drawn")
        clock.now = 1.0
        progress.advance(note="loss 2.5")
    assert cell.texts == [
        '<progress value="0" max="4"></progress> <span>a &lt; b  0/4  </span>',
        '<progress value="2" max="4"></progress> <span>a &lt; b  2/4  loss 2.5</span>',
        "",
    ]
    assert capsys.readouterr() == ("", "")


def test_the_former_name_works_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match="show_progress is now set_progress"):
        show_progress(False)


def test_what_is_said_reaches_the_logger(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="loca"):
        say("seven models need 3 GB")
    assert caplog.messages == ["seven models need 3 GB"]


def test_bytes_are_written_as_a_person_would() -> None:
    sizes = [999, 1_000, 52_700_000, 1_300_000_000, 2.5e12]
    assert [memory.readable_bytes(size) for size in sizes] == [
        "999 B",
        "1 kB",
        "52.7 MB",
        "1.3 GB",
        "2.5 TB",
    ]


def test_much_memory_is_said_and_too_much_is_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: 10**9)
    with caplog.at_level(logging.INFO, logger="loca"):
        memory.plan_memory("a small plan", 10**6, "never mind")
        memory.plan_memory("a large plan", 10**8, "never mind")
    assert caplog.messages == ["a large plan: 100.0 MB of memory needed"]
    with pytest.raises(
        DataError, match=r"a huge plan: 2\.0 GB of memory needed, 1\.0 GB are free; take less"
    ):
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
