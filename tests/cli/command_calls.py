"""Calling `loca` as a person does, and what it says when it ends."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import loca

TINY = (
    *("--set", "planted.users=150", "--set", "planted.items=40", "--set", "planted.groups=6"),
    *("--set", "planted.communities=2", "--set", "planted.history=14"),
)
# Tastes change midway, clearly enough for a recency to be chosen on the three items held out.
DRIFTING = (
    *("--set", "planted.users=600", "--set", "planted.items=80", "--set", "planted.groups=8"),
    *(
        "--set",
        "planted.communities=2",
        "--set",
        "planted.tastes=1.0",
        "--set",
        "planted.history=24",
    ),
    *("--set", "planted.drift=1.0", "--validation", "3"),
)


@dataclass(frozen=True)
class Done:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str

    @property
    def mistake(self) -> str:
        """The one line of a refused command; anything else fails the test."""
        assert self.code == 2, self
        assert self.out == ""
        line, *others = self.err.strip().splitlines()
        assert not others, self.err
        assert line.startswith("loca: ")
        return line.removeprefix("loca: ")


Call = Callable[..., Done]


def environment() -> dict[str, str]:
    """The environment of a process that finds this very loca and stays on one core."""
    source = str(Path(loca.__file__).parent.parent)
    return {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
