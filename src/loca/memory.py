"""How much memory there is, and plans that are made, said and refused before memory is taken."""

from __future__ import annotations

import os
from pathlib import Path

from loca.errors import DataError
from loca.progress import say

_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
_CGROUP_USED = Path("/sys/fs/cgroup/memory.current")
_WORTH_SAYING = 50_000_000


def available_bytes() -> int:
    """Bytes of main memory that a program may still take: the kernel's estimate, capped by the container's limit."""
    free = _from_meminfo()
    limit = _from_cgroup()
    return min(free, limit) if limit is not None else free


def plan_memory(what: str, needed: int, advice: str) -> None:
    """Says that `what` needs so many bytes, where that is much, and refuses with `advice` where they are not free."""
    if needed > _WORTH_SAYING:
        say(f"{what}: {readable_bytes(needed)} of memory needed")
    free = available_bytes()
    if needed > free:
        raise DataError(f"{what}: {readable_bytes(needed)} of memory needed, {readable_bytes(free)} are free; {advice}")


def readable_bytes(count: float) -> str:
    """`1.3 GB` for 1_300_000_000: the number of bytes as a person would write it."""
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit in ("B", "kB") else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def _from_meminfo() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    # Outside Linux the total is the best that the standard library knows.
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _from_cgroup() -> int | None:
    try:
        limit, used = _CGROUP_LIMIT.read_text().strip(), _CGROUP_USED.read_text().strip()
    except OSError:
        return None
    return None if limit == "max" else max(int(limit) - int(used), 0)
