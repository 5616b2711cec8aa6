"""What machine the tests run on, and what is said where it is smaller than they are made for."""

from __future__ import annotations

import os
from pathlib import Path

from loca import memory

CORES, BYTES = 2, 4 * 10**9


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def all_bytes(cgroup: Path = memory.CGROUP) -> int:
    """Bytes of main memory, free or not: those of the machine, capped by the container's limit."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = (cgroup / "memory.max").read_text().strip()
    except OSError:
        return machine
    return machine if limit == "max" else min(machine, int(limit))


def warn_of_small_machine(cores: int, size: int) -> str | None:
    """One line where the tests have fewer cores or less memory than they are made for, else None."""
    if cores >= CORES and size >= BYTES:
        return None
    made_for, found = (
        f"{CORES} cores and {memory.readable_bytes(BYTES)}",
        f"{cores} and {memory.readable_bytes(size)}",
    )
    return (
        f"WARNING: these tests are made for {made_for} of memory; here are {found}: "
        "they take longer, and tests of time or memory may fail"
    )
