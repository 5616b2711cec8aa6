"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from loca.errors import DataError
from loca.persistence.atomic_write import write_whole, written_beside


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


def test_a_folder_that_cannot_be_waited_for_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
