"""A save is all or nothing: killed, interrupted or out of space, a folder holds the old model or the new."""

from __future__ import annotations

import errno
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from loca.errors import DataError, ModelFileError
from loca.persistence import load_model, save_model
from loca.persistence.atomic_write import is_data_file, write_whole, written_beside
from saved_model_examples import KINDS, Tree, example_model, load, same

OLD, NEW = example_model(1), example_model(2)
INTERRUPTED = 130


@pytest.fixture
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits for no disk: unlike a power cut, a kill loses nothing that was written."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that holds the old model."""
    save_model(OLD, tmp_path / "m")
    return tmp_path / "m"


def before_every_line(act: Callable[[int], None]) -> Callable[[FrameType, str, Any], Any]:
    """A trace function that calls `act` with 0, 1, 2, … before each line of the code that writes files."""
    count = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.endswith(
            ("persistence/atomic_write.py", "persistence/arrays.py")
        ):
            return None
        if event == "line":
            count += 1
            act(count - 1)
        return trace

    return trace


def save_traced(model: Any, folder: Path, act: Callable[[int], None]) -> None:
    before = sys.gettrace()
    sys.settrace(before_every_line(act))
    try:
        save_model(model, folder)
    finally:
        sys.settrace(before)


def lines_of_a_save(folder: Path) -> int:
    lines: list[int] = []
    save_traced(NEW, folder, lines.append)
    save_model(OLD, folder)
    return len(lines)


def in_a_child(work: Callable[[], None]) -> int:
    """How a forked child ended that did the work: 0, INTERRUPTED, 1 or minus the signal that killed it."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except KeyboardInterrupt:
            os._exit(INTERRUPTED)
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_save_killed_before_any_of_its_lines_leaves_the_old_model_or_the_new(
    folder: Path, quick_disk: None
) -> None:
    lines = lines_of_a_save(folder)
    assert lines > 200
    found = []
    for moment in range(0, lines, 19):
        save_model(OLD, folder)

        def kill(line: int, moment: int = moment) -> None:
            if line == moment:
                os.kill(os.getpid(), signal.SIGKILL)

        assert in_a_child(lambda kill=kill: save_traced(NEW, folder, kill)) == -signal.SIGKILL
        back = load(folder)
        assert same(back, OLD) or same(back, NEW)
        found.append(same(back, NEW))
    assert found == sorted(found), "one moment parts the old from the new"
    assert 0 < sum(found) < len(found)


def test_a_save_interrupted_before_any_of_its_lines_leaves_a_whole_model_and_no_litter(
    folder: Path, quick_disk: None
) -> None:
    kept = set()
    for moment in range(5, lines_of_a_save(folder), 19):
        save_model(OLD, folder)
        before = set(os.listdir(folder))

        def interrupt(line: int, moment: int = moment) -> None:
            if line == moment:
                raise KeyboardInterrupt

        assert (
            in_a_child(lambda interrupt=interrupt: save_traced(NEW, folder, interrupt))
            == INTERRUPTED
        )
        back = load(folder)
        assert same(back, OLD) or same(back, NEW)
        kept.add(same(back, OLD))
        if same(back, OLD):
            assert set(os.listdir(folder)) == before
    assert kept == {True, False}


def test_saves_killed_at_random_times_leave_a_whole_model(folder: Path) -> None:
    rng = random.Random(0)

    def save_for_ever() -> None:
        while True:
            save_model(NEW, folder)
            save_model(OLD, folder)

    for _ in range(15):
        child = os.fork()
        if child == 0:
            save_for_ever()
        time.sleep(rng.uniform(0.005, 0.05))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        back = load(folder)
        assert same(back, OLD) or same(back, NEW)


def test_the_first_save_killed_leaves_no_model_and_the_next_save_clears_up(tmp_path: Path) -> None:
    folder = tmp_path / "m"

    def kill(line: int) -> None:
        if line == 100:
            os.kill(os.getpid(), signal.SIGKILL)

    assert in_a_child(lambda: save_traced(NEW, folder, kill)) == -signal.SIGKILL
    litter = os.listdir(folder)
    assert litter
    assert "model.json" not in litter
    with pytest.raises(ModelFileError, match="no loca model here"):
        load(folder)
    save_model(OLD, folder)
    assert not set(litter) & set(os.listdir(folder))
    assert same(load(folder), OLD)


def test_a_save_removes_the_old_files_and_litter_but_nothing_of_the_user(folder: Path) -> None:
    old_files = {name for name in os.listdir(folder) if name != "model.json"}
    (folder / "arrays-0123abcd-7.safetensors").write_bytes(b"half a file")
    (folder / "arrays-0123abcd-8.safetensors").mkdir()
    mine = ["notes.txt", "arrays-mine.safetensors", "model-2.json", "users-0123abcd-1.csv"]
    for name in mine:
        (folder / name).write_text("mine")
    save_model(NEW, folder)
    left = set(os.listdir(folder))
    assert same(load(folder), NEW)
    assert set(mine) <= left
    assert not old_files & left
    assert "arrays-0123abcd-7.safetensors" not in left


def test_only_the_names_that_a_save_gives_are_its_own() -> None:
    assert is_data_file("arrays-0123abcd-0.safetensors")
    for name in (
        "model.json",
        "arrays-0123abcd-0.safetensors\n",
        "../arrays-0123abcd-0.safetensors",
        "",
        "..",
    ):
        assert not is_data_file(name)


@pytest.mark.parametrize("holds", ["photo.jpg", "model.json", "arrays"])
def test_a_folder_of_something_else_is_refused_and_not_touched(tmp_path: Path, holds: str) -> None:
    (tmp_path / holds).write_text('{"format": "another"}')
    with pytest.raises(
        ModelFileError, match=r"not empty and not a loca model.*choose a new or empty folder"
    ):
        save_model(NEW, tmp_path)
    assert os.listdir(tmp_path) == [holds]
    assert (tmp_path / holds).read_text() == '{"format": "another"}'


@pytest.mark.parametrize("text", ["", "{", "[1]", "\xff", "[" * 100_000])
def test_a_broken_model_json_is_not_written_over(tmp_path: Path, text: str) -> None:
    (tmp_path / "model.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ModelFileError, match="not a loca model"):
        save_model(NEW, tmp_path)
    assert os.listdir(tmp_path) == ["model.json"]


def test_an_empty_folder_and_missing_folders_above_are_saved_into(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "empty", tmp_path / "a" / "b" / "c"):
        save_model(NEW, str(folder))
        assert same(load(folder), NEW)


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ModelFileError, match="expected a folder to save into, found a file"):
        save_model(NEW, tmp_path / "file")
    with pytest.raises(
        ModelFileError, match=r"cannot save the model: Not a directory; nothing was left behind"
    ):
        save_model(NEW, tmp_path / "file" / "m")
    assert (tmp_path / "file").read_text() == "mine"
    with pytest.raises(
        ModelFileError, match="cannot save the model: File name too long; nothing was left behind"
    ):
        save_model(NEW, tmp_path / ("x" * 300))


def fail_at(monkeypatch: pytest.MonkeyPatch, call: str, moment: int) -> None:
    """Lets one call of a function of `os` find the disk full."""
    real, calls = getattr(os, call), iter(range(100))

    def full(*args: Any) -> Any:
        if next(calls) == moment:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*args)

    monkeypatch.setattr(os, call, full)


@pytest.mark.parametrize(
    ("call", "moment"), [("replace", 0), *(("fsync", moment) for moment in range(8))]
)
def test_an_error_of_the_disk_keeps_the_old_model_and_removes_the_new_files(
    folder: Path, monkeypatch: pytest.MonkeyPatch, call: str, moment: int
) -> None:
    before = set(os.listdir(folder))
    fail_at(monkeypatch, call, moment)
    with pytest.raises(ModelFileError) as caught:
        save_model(NEW, folder)
    assert str(caught.value) == (
        f"{folder}: cannot save the model: No space left on device; the model that was there stays; "
        "free some disk space or choose another folder"
    )
    assert same(load(folder), OLD)
    assert set(os.listdir(folder)) == before


def test_the_old_files_stay_until_the_move_is_safely_on_the_disk(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set(os.listdir(folder))
    # Six data files, the manifest and the folder are on the disk and the move is made: its own sync fails.
    fail_at(monkeypatch, "fsync", 8)
    save_model(NEW, folder)
    assert same(load(folder), NEW)
    assert before < set(os.listdir(folder))
    save_model(NEW, folder)
    assert before & set(os.listdir(folder)) == {"model.json"}


def test_a_limit_on_file_sizes_really_met_keeps_the_old_model(folder: Path) -> None:
    before = set(os.listdir(folder))
    large = Tree()
    large.arrays_ = {"large": np.ones(100_000)}

    def save_under_limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
        with pytest.raises(
            ModelFileError, match="File too large; the model that was there stays; free some"
        ):
            save_model(large, folder)

    assert in_a_child(save_under_limit) == 0
    assert same(load(folder), OLD)
    assert set(os.listdir(folder)) == before


def test_a_disk_really_full_keeps_the_old_model(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    command = [mount or "mount", "-t", "tmpfs", "-o", "size=256k", "none", str(disk)]
    if mount is None or subprocess.run(command, check=False, capture_output=True).returncode != 0:
        pytest.skip("this user may not mount a small disk")
    try:
        save_model(OLD, disk / "m")
        before = set(os.listdir(disk / "m"))
        large = Tree()
        large.arrays_ = {"large": np.ones(100_000)}
        with pytest.raises(
            ModelFileError, match="No space left on device; the model that was there stays"
        ):
            save_model(large, disk / "m")
        assert same(load(disk / "m"), OLD)
        assert set(os.listdir(disk / "m")) == before
        with pytest.raises(
            ModelFileError, match="No space left on device; nothing was left behind"
        ):
            save_model(large, disk / "a" / "b")
        assert os.listdir(disk) == ["m"]
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_folder_that_may_not_be_written_to_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **options: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    monkeypatch.setattr(
        "loca.persistence.sealed_json.read_plain", lambda path: b'{"format": "loca-model"}'
    )
    with pytest.raises(
        ModelFileError, match="Permission denied; the model that was there stays; choose another"
    ):
        save_model(NEW, folder)
    monkeypatch.undo()
    assert same(load(folder), OLD)


def test_two_saves_into_one_folder_do_not_mix(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside: list[str] = []
    real = os.replace

    def save_another_meanwhile(*args: Any) -> None:
        with pytest.raises(ModelFileError, match="another save into it is under way"):
            save_model(OLD, folder)
        inside.append("refused")
        real(*args)

    monkeypatch.setattr(os, "replace", save_another_meanwhile)
    save_model(NEW, folder)
    assert inside == ["refused"]
    assert same(load(folder), NEW)


def test_a_file_system_without_locks_is_saved_to(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*args: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    save_model(NEW, folder)
    assert same(load(folder), NEW)


def test_a_model_can_be_loaded_while_another_is_saved_over_it(
    folder: Path, quick_disk: None
) -> None:
    ended = threading.Event()

    def save_both() -> None:
        for _ in range(15):
            save_model(NEW, folder)
            save_model(OLD, folder)
        ended.set()

    saver = threading.Thread(target=save_both)
    saver.start()
    loads = 0
    while not ended.is_set():
        back = load(folder)
        assert same(back, OLD) or same(back, NEW)
        loads += 1
    saver.join()
    assert loads > 2


def test_a_damaged_model_can_be_saved_over(folder: Path) -> None:
    for one in folder.glob("arrays-*"):
        one.unlink()
    save_model(NEW, folder)
    assert same(load_model(folder, KINDS), NEW)


def test_text_and_bytes_replace_what_was_there_in_folders_that_are_made(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "file.txt"
    write_whole(path, "näher")
    assert path.read_bytes() == "näher".encode()
    write_whole(path, b"\x00\x01")
    assert path.read_bytes() == b"\x00\x01"
    assert [one.name for one in path.parent.iterdir()] == ["file.txt"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_and_no_litter(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file.txt"
    write_whole(path, "old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    expected = r"file\.txt: cannot be written \(No space left on device\); choose another place"
    with pytest.raises(DataError, match=expected):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_that_cannot_be_waited_for_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def sync_files_alone(handle: int) -> None:
        calls.append(handle)
        if len(calls) == 2:
            raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "fsync", sync_files_alone)
    write_whole(tmp_path / "file.txt", "new")
    assert (tmp_path / "file.txt").read_text() == "new"
    assert len(calls) == 2


def test_a_block_that_fails_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    write_whole(path, "old")

    def write_half() -> None:
        with written_beside(path, "beside") as file:
            file.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_half()
    assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_place_inside_a_file_is_one_clear_line(tmp_path: Path) -> None:
    write_whole(tmp_path / "file", "")
    with pytest.raises(DataError, match=r"x\.txt: cannot be written"):
        write_whole(tmp_path / "file" / "x.txt", "text")
