"""Unfinished work outlives any kill, comes back to the last bit, and is never mixed with another's."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import signal
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loca.communities.geometry import Quantile
from loca.errors import LocaError, ModelFileError
from loca.persistence import arrays as array_files
from loca.persistence.checkpoint import (
    Checkpoint,
    file_name_of,
    first_difference,
)
from loca.persistence.fit_context import FitContext, checkpoint_in
from saved_model_examples import Tree, same

FINGERPRINT = {"loca": "0.1.0", "model": "Loca", "base.l2": 100.0, "data": "0011"}
ARRAYS = {
    "weights": np.arange(6, dtype=np.float32).reshape(2, 3),
    "counts": np.array([3, -1]),
    "one": np.array(2.5),
}
STATE = {
    **ARRAYS,
    "inside": {"moments": [ARRAYS["weights"], (ARRAYS["counts"], "text")], "$odd": ARRAYS["one"]},
    "nothing": {},
    "epoch": 7,
    "scores": [0.25, float("inf")],
    "by": {3: "three"},
    "pair": (1, None),
    "rng": {"$odd": 2**127},
}
OTHER = {"weights": np.ones(4), "epoch": 8}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "m.unfinished"


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """The lines that are said."""
    with caplog.at_level(logging.INFO, logger="loca"):
        yield caplog


@contextmanager
def open_checkpoint(
    folder: Path, fingerprint: dict[str, Any], **options: Any
) -> Iterator[Checkpoint]:
    """The checkpoint of `checkpoint_in`, without its context."""
    with checkpoint_in(folder, fingerprint=fingerprint, **options) as context:
        yield context.checkpoint


class Stopped(Exception):
    """The end of a run that did not end well."""


def interrupted(
    folder: Path, work: Callable[[Checkpoint], Any], *, resume: bool = False, **options: Any
) -> None:
    """A run that does the work and is interrupted before its end."""
    try:
        with open_checkpoint(folder, FINGERPRINT, resume=resume, **options) as kept:
            work(kept)
            raise Stopped
    except Stopped:
        return


def recalled(folder: Path, name: str) -> dict[str, Any] | None:
    """What a resumed run recalls; the work stays unfinished."""
    found: list[dict[str, Any] | None] = []
    interrupted(folder, lambda work: found.append(work.load(name)), resume=True)
    return found[0]


def refusal(folder: Path, **options: Any) -> str:
    given = {"fingerprint": FINGERPRINT, "resume": False, **options}
    before = contents(folder)
    with pytest.raises(LocaError) as caught, open_checkpoint(folder, **given):
        pytest.fail("the work began")
    assert contents(folder) == before, "nothing was touched"
    assert "\n" not in str(caught.value)
    return str(caught.value)


def contents(folder: Path) -> dict[str, bytes] | None:
    return {one.name: one.read_bytes() for one in folder.iterdir()} if folder.is_dir() else None


def test_what_was_kept_comes_back_to_the_last_bit_in_the_next_run(folder: Path) -> None:
    interrupted(folder, lambda work: work.save("epochs", STATE))
    assert same(recalled(folder, "epochs"), STATE)
    assert recalled(folder, "epoch") is None


def test_the_newest_state_of_a_name_counts_and_forgotten_ones_are_gone(folder: Path) -> None:
    def work(kept: Checkpoint) -> None:
        kept.save("a", STATE)
        kept.save("a", OTHER)
        kept.save("b", STATE)
        kept.delete("b")
        kept.delete("never kept")
        assert same(kept.load("a"), OTHER)

    interrupted(folder, work)
    assert same(recalled(folder, "a"), OTHER)
    assert recalled(folder, "b") is None
    assert sorted(os.listdir(folder)) == ["fingerprint.json", "work-a.safetensors"]


def test_a_part_puts_its_name_before_those_inside_it(folder: Path) -> None:
    def work(kept: Checkpoint) -> None:
        kept.inside("candidate 1").inside("local/3").save("epochs", STATE)
        kept.save("epochs", OTHER)
        assert same(kept.load("candidate 1/local/3/epochs"), STATE)
        assert same(kept.load("epochs"), OTHER)

    interrupted(folder, work)
    assert same(recalled(folder, "candidate 1/local/3/epochs"), STATE)


def test_a_whole_part_can_be_forgotten_and_nothing_else_is(folder: Path) -> None:
    def work(kept: Checkpoint) -> None:
        outer = kept.inside("outer")
        for name in ("c 1", "c 1/a", "c 1/b/c", "c 10/a", "c 1.a"):
            outer.save(name, OTHER)
        outer.delete_part("c 1")
        kept.save("c 1/a", OTHER)

    interrupted(folder, work)
    left = {file_name_of(name) for name in ("outer/c 1", "outer/c 10/a", "outer/c 1.a", "c 1/a")}
    assert set(os.listdir(folder)) == {"fingerprint.json", *left}


def test_the_folder_goes_when_the_work_ends_well(folder: Path) -> None:
    with open_checkpoint(folder, FINGERPRINT, resume=False) as work:
        work.save("a", STATE)
        assert folder.is_dir()
    assert not folder.exists()


@pytest.mark.parametrize("end", [Stopped, KeyboardInterrupt, SystemExit])
def test_the_folder_stays_after_any_exception_and_goes_where_nothing_was_kept(
    folder: Path, end: type[BaseException], said: pytest.LogCaptureFixture
) -> None:
    deep = folder / "a" / "b.unfinished"
    with pytest.raises(end), open_checkpoint(deep, FINGERPRINT, resume=False):
        raise end
    assert not folder.exists(), "the folders above that were made go too"
    work = open_checkpoint(folder, FINGERPRINT, resume=False)
    work.__enter__().save("a", STATE)
    assert not work.__exit__(end, end(), None), "the exception goes on"
    assert same(recalled(folder, "a"), STATE)
    assert (
        f"{folder} keeps what is done; the same command with --resume goes on from there"
        in said.messages
    )


def test_a_checkpoint_without_a_folder_saves_and_loads_nothing_and_is_never_due() -> None:
    work = Checkpoint()
    work.save("a", STATE)
    work.delete("a")
    work.delete_part("a")
    assert work.inside("b").load("a") is None
    assert not work.due()
    assert not work.saves


def test_a_keep_is_due_when_the_seconds_have_passed_since_the_last(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr("loca.persistence.checkpoint.time.monotonic", lambda: clock[0])
    with open_checkpoint(folder, FINGERPRINT, resume=False, seconds_between=10) as work:
        assert not work.due()
        clock[0] = 109.9
        assert not work.due()
        clock[0] = 110.0
        assert work.due()
        work.save("a", STATE)
        assert not work.due()
        clock[0] = 120.5
        assert work.due()
    with open_checkpoint(folder, FINGERPRINT, resume=False, seconds_between=0) as work:
        assert work.due()


@pytest.mark.parametrize("seconds", [-1.0, float("nan")])
def test_seconds_below_zero_are_refused(folder: Path, seconds: float) -> None:
    assert "expected a number ≥ 0" in refusal(folder, seconds_between=seconds)
    assert not folder.exists()


def test_work_of_an_earlier_run_is_neither_overwritten_nor_used_unasked(folder: Path) -> None:
    interrupted(folder, lambda work: work.save("a", STATE))
    assert refusal(folder) == (
        f"{folder} holds unfinished work of an earlier run; add --resume to go on with it, or --fresh to start over"
    )
    assert "expected one of them, found both" in refusal(folder, resume=True, fresh=True)


def test_fresh_starts_over(folder: Path) -> None:
    interrupted(folder, lambda work: work.save("a", STATE))
    with open_checkpoint(folder, {"other": 1}, resume=False, fresh=True) as work:
        assert work.load("a") is None
    assert not folder.exists()


def test_resume_without_unfinished_work_says_so_and_starts(
    folder: Path, said: pytest.LogCaptureFixture
) -> None:
    with open_checkpoint(folder, FINGERPRINT, resume=True) as work:
        assert work.load("a") is None
    assert said.messages == [
        f"{folder}: no unfinished work to go on with; this run starts from the beginning"
    ]


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"base.l2": 300.0}, "base.l2: 100.0 then, 300.0 now"),
        ({"data": "0012"}, "the data have changed"),
        ({"loca": "0.2.0"}, "it was written by loca 0.1.0, this is loca 0.2.0"),
        ({"anchors": 5}, "anchors: not set then, 5 now"),
        ({"loca": "0.2.0", "data": "x"}, "it was written by loca 0.1.0, this is loca 0.2.0"),
    ],
)
def test_a_changed_fingerprint_is_refused_by_its_first_difference(
    folder: Path, changes: dict[str, Any], difference: str
) -> None:
    interrupted(folder, lambda work: work.save("a", STATE))
    assert refusal(folder, resume=True, fingerprint={**FINGERPRINT, **changes}) == (
        f"{folder} holds unfinished work that cannot go on: {difference}; finish it with the settings and data it was "
        "begun with, or start over with --fresh"
    )
    assert same(recalled(folder, "a"), STATE)


def test_differences_are_found_however_deep() -> None:
    then = {"a": {"b": [1, {"c": 2}]}, "d": float("nan"), "e": None, "f": (1, 2)}
    assert (
        first_difference(
            then, {"a": {"b": [1, {"c": 2}]}, "d": float("nan"), "e": None, "f": [1, 2]}
        )
        is None
    )
    assert first_difference(then, {**then, "a": {"b": [1, {"c": 3}]}}) == "a.b.1.c: 2 then, 3 now"
    assert first_difference(then, {**then, "f": [1]}) == "f.1: 2 then, not set now"
    assert first_difference(then, {**then, "new": None}) is None
    assert first_difference(then, {**then, "new": 1}) == "new: not set then, 1 now"
    assert first_difference({**then, "g": True}, then) == "g: True then, not set now"


def test_a_run_killed_before_anything_was_kept_is_in_nobody_s_way(folder: Path) -> None:
    interrupted(folder, lambda work: work.save("a", STATE))
    (folder / file_name_of("a")).unlink()
    for resume in (False, True):
        with pytest.raises(Stopped), open_checkpoint(folder, {"other": 1}, resume=resume):
            raise Stopped
        assert not folder.exists()
        folder.mkdir()


def test_half_written_files_are_cleared_away_at_the_next_start(folder: Path) -> None:
    interrupted(folder, lambda work: work.save("a", STATE))
    (folder / (file_name_of("b") + ".new")).write_bytes(b"half")
    (folder / "fingerprint.json.new").write_bytes(b"half")
    assert same(recalled(folder, "a"), STATE)
    assert set(os.listdir(folder)) == {"fingerprint.json", file_name_of("a")}
    (
        folder / "fingerprint.json"
    ).unlink()  # as a kill would leave it that came while a finished run cleared up
    with open_checkpoint(folder, FINGERPRINT, resume=True) as work:
        assert work.load("a") is None


@pytest.mark.parametrize(
    "holds",
    [
        {"thesis.tex": "years of work"},
        {"fingerprint.json": '{"format": "another"}'},
        {"fingerprint.json": "[1]"},
        {"fingerprint.json": "{"},
        {"fingerprint.json": "[" * 100_000, "work-a.safetensors": "x"},
        {"work-a.txt": "mine", "work-a.safetensors": "x"},
    ],
)
@pytest.mark.parametrize("options", [{}, {"resume": True}, {"fresh": True}])
def test_a_folder_of_something_else_is_refused_and_not_touched(
    folder: Path, holds: dict[str, str], options: dict[str, bool]
) -> None:
    folder.mkdir()
    for name, text in holds.items():
        (folder / name).write_text(text)
    assert "not unfinished work of loca's" in refusal(folder, **options)


def test_files_of_others_in_the_folder_stay_when_the_work_ends(folder: Path) -> None:
    interrupted(folder, lambda work: work.save("a", STATE))
    (folder / "notes.txt").write_text("mine")
    with open_checkpoint(folder, FINGERPRINT, resume=True) as work:
        assert same(work.load("a"), STATE)
    assert contents(folder) == {"notes.txt": b"mine"}


def test_a_file_in_the_way_and_a_folder_that_cannot_be_read_are_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write_text("mine")
    assert "expected a folder for unfinished work, found a file" in refusal(folder)
    problem = refusal(folder / "deeper")
    assert "cannot keep unfinished work: Not a directory" in problem
    assert problem.endswith("choose another folder")
    assert "disk space" not in problem  # there is enough of it
    folder.unlink()
    folder.mkdir()
    with monkeypatch.context() as patched:
        patched.setattr(
            "os.listdir",
            lambda path: (_ for _ in ()).throw(PermissionError(13, "Permission denied")),
        )
        with (
            pytest.raises(ModelFileError, match="cannot be looked into"),
            open_checkpoint(folder, {}, resume=False),
        ):
            pytest.fail("the work began")


def test_where_no_folder_may_be_made_the_work_is_done_without(
    folder: Path, monkeypatch: pytest.MonkeyPatch, said: pytest.LogCaptureFixture
) -> None:
    def forbid(*args: Any, **options: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", forbid)
    with open_checkpoint(folder, FINGERPRINT, resume=True) as work:
        work.save("a", STATE)
        assert not work.saves
    with pytest.raises(Stopped), open_checkpoint(folder, FINGERPRINT, resume=False):
        raise Stopped
    assert "may not be written (Permission denied); this run cannot be resumed" in said.messages[0]


def test_in_a_folder_that_may_not_be_written_the_work_is_done_without(
    folder: Path, monkeypatch: pytest.MonkeyPatch, said: pytest.LogCaptureFixture
) -> None:
    folder.mkdir()
    really_open = open

    def open_to_read(path: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
        if mode != "r":
            raise PermissionError(errno.EACCES, "Permission denied")
        return really_open(path, mode, *args, **options)

    monkeypatch.setattr("builtins.open", open_to_read)
    with open_checkpoint(folder, FINGERPRINT, resume=True) as work:
        assert not work.saves
    assert "may not be written (Permission denied); this run cannot be resumed" in said.messages[0]


def test_a_name_of_many_long_steps_is_a_file_name() -> None:
    steps = [f"step {number} " + "x" * 90 for number in range(7)]
    names = ["/".join(steps[:depth]) for depth in range(1, 8)]
    files = [file_name_of(name) for name in names]
    assert max(len(file) + len(".new") for file in files) <= 255
    for file, deeper in pairwise(files):
        assert deeper.startswith(file.removesuffix(".safetensors") + "%2F")


def test_a_full_disk_is_refused_in_one_line_and_keeps_what_was_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(folder, lambda work: work.save("a", STATE))

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with (
        pytest.raises(
            ModelFileError,
            match="cannot keep unfinished work: No space left on device; what was saved",
        ),
        open_checkpoint(folder, FINGERPRINT, resume=True) as work,
    ):
        work.save("a", OTHER)
    with (
        pytest.raises(ModelFileError, match="No space left"),
        open_checkpoint(folder / "b", FINGERPRINT, resume=True),
    ):
        pytest.fail("the work began")
    monkeypatch.undo()
    assert set(os.listdir(folder)) == {"fingerprint.json", file_name_of("a")}
    assert same(recalled(folder, "a"), STATE)


def test_two_runs_do_not_share_a_folder(folder: Path) -> None:
    with open_checkpoint(folder, FINGERPRINT, resume=False) as work:
        for options in ({}, {"resume": True}, {"fresh": True}):
            assert "another run keeps its unfinished work there; try again" in refusal(
                folder, **options
            )
        work.save("a", STATE)
        assert "another run keeps" in refusal(folder, resume=True)


def test_a_damaged_fingerprint_is_refused_and_fresh_starts_over(folder: Path) -> None:
    interrupted(folder, lambda work: work.save("a", STATE))
    whole = (folder / "fingerprint.json").read_bytes()
    for damaged, line in (
        (
            whole.replace(b"100.0", b"200.0"),
            "changed or damaged since it was saved; start over with --fresh",
        ),
        (whole.replace(b'"version": 2', b'"version": 3'), "written in format 3 by a newer loca"),
        (whole.replace(b'"checksum"', b'"check"'), "'checksum' is missing"),
    ):
        (folder / "fingerprint.json").write_bytes(damaged)
        assert line in refusal(folder, resume=True)
        assert "start over with --fresh" in refusal(folder, resume=True)
    with open_checkpoint(folder, FINGERPRINT, resume=False, fresh=True) as work:
        assert work.load("a") is None


def test_a_damaged_state_counts_as_not_there_and_that_is_said(
    folder: Path, said: pytest.LogCaptureFixture
) -> None:
    interrupted(folder, lambda work: work.save("a", STATE))
    path = folder / file_name_of("a")
    whole = path.read_bytes()
    rng = np.random.default_rng(1)
    places = [*range(0, 80, 7), *rng.integers(0, len(whole), 60).tolist()]
    damaged = [whole[:cut] for cut in range(0, len(whole), len(whole) // 20)]
    damaged += [whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :] for place in places]
    work = Checkpoint(folder)
    for data in (*damaged, whole + b"\0", b""):
        path.write_bytes(data)
        said.clear()
        found = work.load("a")
        if found is None:
            assert "damaged (" in said.messages[0]
            assert "its work is done again" in said.messages[0]
        else:
            # The spaces that fill the header up say nothing.
            assert same(found, STATE)
            assert len(data) == len(whole)
    path.write_bytes(whole)
    assert same(work.load("a"), STATE)


def test_a_state_under_another_name_or_of_another_kind_is_not_taken(
    folder: Path, said: pytest.LogCaptureFixture
) -> None:
    interrupted(folder, lambda work: work.save("a", STATE))
    shutil.copy(folder / file_name_of("a"), folder / file_name_of("b"))
    os.mkfifo(folder / file_name_of("d"))
    with open(folder / file_name_of("c"), "wb") as file:
        array_files.write_arrays(file, {"weights": np.ones(3)})
    work = Checkpoint(folder)
    said.clear()
    assert [work.load(name) for name in "bcd"] == [None, None, None]
    assert "expected the state 'b', found 'a'" in said.messages[0]
    assert "not a state that loca has saved" in said.messages[1]
    assert "expected a plain file" in said.messages[2]
    assert same(work.load("a"), STATE)
    older = b'{"format": "loca-state", "version": 1, "name": "e", "facts": {}, "arrays": {}}'
    newer = b'{"format": "loca-state", "version": 3, "name": "e", "state": {}, "arrays": {}}'
    for about in (older, newer):
        written = {
            "about": np.frombuffer(about, np.uint8),
            "checksums": np.array([zlib.crc32(about)], np.uint32),
        }
        with open(folder / file_name_of("e"), "wb") as file:
            array_files.write_arrays(file, written)
        assert work.load("e") is None
        assert "saved in another format" in said.messages[-1]
        assert "its work is done again" in said.messages[-1]


def test_large_arrays_come_back_as_views_of_the_file_and_outlive_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(array_files, "LARGEST_READ", 0)
    interrupted(folder, lambda work: work.save("a", STATE))
    found = recalled(folder, "a")
    assert found is not None
    assert not found["weights"].flags.writeable
    assert not found["inside"]["moments"][0].flags.writeable
    interrupted(folder, lambda work: work.save("a", OTHER), resume=True)
    assert same(found, STATE)
    interrupted(folder, lambda work: work.save("a", found), resume=True)
    assert same(recalled(folder, "a"), STATE)
    path = folder / file_name_of("a")
    with open(path, "r+b") as file:
        file.seek(path.read_bytes().index(ARRAYS["weights"].tobytes()))
        file.write(b"\1")
    assert recalled(folder, "a") is None, "the contents of large arrays are checked too"


def test_a_state_with_models_or_odd_values_is_refused_and_leaves_no_litter(folder: Path) -> None:
    def work(kept: Checkpoint) -> None:
        kept.save("a", STATE)
        with pytest.raises(ModelFileError, match="state 'a': unknown kind of model 'Tree'"):
            kept.save("a", {"inner": [Tree()]})
        with pytest.raises(ModelFileError, match="state 'a': unknown kind of value 'Quantile'"):
            kept.save("a", {"inner": Quantile(0.5)})
        with pytest.raises(ModelFileError, match="cannot save a set"):
            kept.save("a", {"odd": {1}})
        with pytest.raises(ModelFileError, match="expected a printable name and plain numbers"):
            kept.save("a", {"odd": np.array(["x"])})
        with pytest.raises(ModelFileError, match="expected names of text, found 3"):
            kept.save("a", {3: "three"})  # type: ignore[dict-item]

    interrupted(folder, work)
    assert same(recalled(folder, "a"), STATE)
    assert len(os.listdir(folder)) == 2


@pytest.mark.parametrize(
    "value", [STATE, {}, {"$value": 1}, [1, (2.0, ARRAYS["weights"])], ARRAYS["one"], "text", None]
)
def test_a_value_of_any_kind_is_made_once(folder: Path, value: Any) -> None:
    made: list[str] = []

    def make() -> Any:
        made.append("now")
        return value

    def work(kept: Checkpoint) -> None:
        context = FitContext(kept).inside("part")
        assert same(context.make("a", make), value)
        assert same(context.make("a", make), value)

    interrupted(folder, work)
    interrupted(folder, work, resume=True)
    assert made == ["now"]
    assert FitContext().make("a", make) is value
    assert made == ["now", "now"]


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.floats(width=32).map(np.float32),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.text(min_size=1, max_size=20), values)
@settings(max_examples=30, deadline=None)
def test_any_name_and_any_value_come_back(
    tmp_path_factory: pytest.TempPathFactory, name: str, value: Any
) -> None:
    folder = tmp_path_factory.getbasetemp() / "any-name"
    folder.mkdir(exist_ok=True)
    work = Checkpoint(folder)
    state = {"a": np.ones(2), "value": value}
    try:
        file_name_of(name)
    except UnicodeEncodeError:
        return  # half a surrogate pair is no name
    work.save(name, state)
    assert same(work.load(name), state)
    work.delete(name)
    assert os.listdir(folder) == []


def lines_traced(act: Callable[[int], None]) -> Callable[[FrameType, str, Any], Any]:
    """A trace function that calls `act` with 0, 1, 2, … before each line of the code that keeps work."""
    count = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        name = frame.f_code.co_filename
        if not name.endswith(
            ("persistence/checkpoint.py", "persistence/arrays.py", "persistence/fit_context.py")
        ):
            return None
        if event == "line":
            count += 1
            act(count - 1)
        return trace

    return trace


def keep_two_and_end(folder: Path) -> None:
    with open_checkpoint(folder, FINGERPRINT, resume=True) as work:
        work.save("a", OTHER)
        work.save("b", OTHER)


def test_a_kill_before_any_line_leaves_each_state_old_or_new(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Unlike a power cut, a kill loses nothing that was written.
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    interrupted(folder, lambda work: work.save("a", STATE))
    before = tmp_path / "before"
    shutil.copytree(folder, before)
    lines: list[int] = []
    earlier = sys.gettrace()
    sys.settrace(lines_traced(lines.append))
    keep_two_and_end(folder)
    sys.settrace(earlier)
    assert len(lines) > 300
    found = set()
    # The states go in a few lines at the end: there every line counts.
    for moment in (*range(0, len(lines) - 40, 13), *range(len(lines) - 40, len(lines))):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(before, folder)
        child = os.fork()
        if child == 0:
            sys.settrace(
                lines_traced(
                    lambda line, moment=moment: os.kill(os.getpid(), 9) if line == moment else None
                )
            )
            keep_two_and_end(folder)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        found.add(what_is_left(folder))
    assert found == {("old", "none"), ("new", "none"), ("new", "new"), ("none", "none")}


def what_is_left(folder: Path) -> tuple[str, str]:
    """Which states of `a` and `b` a resumed run finds."""
    told = []
    with open_checkpoint(folder, FINGERPRINT, resume=True) as work:
        for name in "ab":
            state = work.load(name)
            told.append("none" if state is None else "old" if same(state, STATE) else "new")
            assert state is None or same(state, STATE) or same(state, OTHER)
        assert not [name for name in os.listdir(folder) if name.endswith(".new")]
    assert not folder.exists()
    return told[0], told[1]
