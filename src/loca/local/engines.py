"""The engines by name: how networks that learn side by side are arranged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from loca.errors import ConfigError, did_you_mean
from loca.local.one_by_one import Arrange
from loca.local.stacked import in_stacks
from loca.models.training import Learning, RunsEpochs

EngineName = Literal["auto", "one_by_one", "stacked"]


def by_device(learning: list[Learning]) -> Sequence[RunsEpochs]:
    """In stacks on a GPU; one by one on a CPU, where a stack of large catalogues outgrows the caches and loses."""
    return in_stacks(learning) if learning[0].device.type == "cuda" else learning


ENGINES: Mapping[str, Arrange] = {"auto": by_device, "one_by_one": list, "stacked": in_stacks}


def check_engine(name: str) -> None:
    """Refuses an engine that does not exist, naming the nearest."""
    if name not in get_args(EngineName):
        raise ConfigError(f"unknown engine {name!r}{did_you_mean(name, ENGINES)}")
