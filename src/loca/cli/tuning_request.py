"""What `loca tune` is asked: its own section of the settings, and the words in which all of them were said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from loca.cli.request import Given
from loca.errors import ConfigError

if TYPE_CHECKING:
    from loca.experiments.settings import Table
    from loca.experiments.tuning import TuningBudget

TRIALS = 20


@dataclass(frozen=True)
class TuneOptions:
    """The section `tune`."""

    models: tuple[str, ...] = ("loca-ease",)
    trials: int | None = None
    seconds: float | None = None
    space: str = "wide"
    processes: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        from loca.experiments.spaces import check_space

        self.budget()
        check_space(self.space)
        if self.processes < 1:
            raise ConfigError(f"tune.processes: expected a whole number ≥ 1, found {self.processes}")

    @property
    def model_names(self) -> tuple[str, ...]:
        """The models to tune, in this order."""
        return self.models

    def budget(self) -> TuningBudget:
        """What may be spent on each model."""
        from loca.experiments.tuning import TuningBudget

        unsaid = self.trials is None and self.seconds is None
        return TuningBudget(TRIALS if unsaid else self.trials, self.seconds)


@dataclass(frozen=True)
class Words:
    """What a person said of settings: kept to be told in the file."""

    config: Path | None
    given: Given
    assignments: Sequence[str]
    choices: Sequence[str]

    def section(self, name: str) -> Table:
        """One section as it was said."""
        from loca.experiments.settings import read_section

        return read_section(name, self.config, self.given, self.assignments)
