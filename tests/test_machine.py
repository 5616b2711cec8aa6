"""A machine that is too small for the tests is told from one that is not."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from machine import all_bytes, usable_cores, warn_of_small_machine


def test_too_few_cores_or_too_little_memory_are_told_in_one_line() -> None:
    assert warn_of_small_machine(2, 4 * 10**9) is None
    assert warn_of_small_machine(64, 10**12) is None
    few, little = warn_of_small_machine(1, 8 * 10**9), warn_of_small_machine(4, 3_900_000_000)
    assert few is not None
    assert little is not None
    assert "made for 2 cores and 4.0 GB of memory; here are 1 and 8.0 GB" in few
    assert "here are 4 and 3.9 GB" in little
    assert "\n" not in few + little


def test_the_limit_of_a_container_counts(tmp_path: Path) -> None:
    machine = all_bytes(tmp_path)
    (tmp_path / "memory.max").write_text("max\n")
    assert all_bytes(tmp_path) == machine
    (tmp_path / "memory.max").write_text("1000000\n")
    assert all_bytes(tmp_path) == 1_000_000


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can be told which cores to use")
def test_cores_that_this_process_may_not_use_do_not_count() -> None:
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert usable_cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)
    assert usable_cores() == len(allowed)
