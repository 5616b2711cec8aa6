"""What a command was asked to do: its settings joined and checked, before any data is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from loca.data.interactions import Interactions
from loca.data.synthetic import PlantedData, planted_communities
from loca.errors import ConfigError
from loca.experiments.parameters import build_section, check_names, check_value, parameters_of
from loca.experiments.sections import (
    AUTO,
    PLANTED,
    AskedRecency,
    DataOptions,
    RecencyOptions,
    SplitOptions,
    read_data,
)
from loca.experiments.settings import Table, read_section, read_settings
from loca.models.recommender import Recommender

if TYPE_CHECKING:
    from loca.experiments.choices import RecencyRule
    from loca.experiments.tuning import TuningBudget

Given = Mapping[str, Mapping[str, Any]]
COMMANDS = ("compare", "fit", "describe", "tune", "reproduce")
SHARED = ("data", "planted", "split", "recency")


class OwnOptions(Protocol):
    """What every command's own section says: the seed, and the names of the models that the command works with."""

    @property
    def seed(self) -> int: ...

    @property
    def model_names(self) -> tuple[str, ...] | None: ...


Own = TypeVar("Own", bound=OwnOptions)


@dataclass(frozen=True)
class CompareOptions:
    """The section `compare`."""

    models: tuple[str, ...] = ("popularity", "ease", "mult-vae", "ensemble", "loca-vae", "loca-ease")
    protocol: str = "clean"
    refit: bool = True
    at: tuple[int, ...] = (50, 100)
    control: str | None = None
    trials: int | None = None
    seconds: float | None = None
    space: str = "wide"
    processes: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        from loca.experiments.protocols import check_protocol
        from loca.experiments.spaces import check_space
        from loca.ranking.metrics import check_lengths

        check_protocol(self.protocol)
        check_space(self.space)
        check_lengths(self.at)
        if self.budget() is None and self.space != "wide":
            raise ConfigError(f"space {self.space!r}: is for tuning; expected a budget too, --trials or --seconds")
        if self.processes < 1:
            raise ConfigError(f"compare.processes: expected a whole number ≥ 1, found {self.processes}")

    def budget(self) -> TuningBudget | None:
        """What each model is tuned with, if anything."""
        from loca.experiments.tuning import TuningBudget

        return None if self.trials is None and self.seconds is None else TuningBudget(self.trials, self.seconds)

    @property
    def model_names(self) -> tuple[str, ...]:
        """The models to compare, as they were named."""
        return self.models


@dataclass(frozen=True)
class FitOptions:
    """The section `fit`."""

    model: str = "loca-ease"
    refit: bool = True
    seed: int = 0

    @property
    def model_names(self) -> tuple[str, ...]:
        """The one model to fit."""
        return (self.model,)


@dataclass(frozen=True)
class DescribeOptions:
    """The section `describe`."""

    seed: int = 0

    @property
    def model_names(self) -> None:
        """Looking at data needs no model."""
        return None


@dataclass(frozen=True)
class Request(Generic[Own]):
    """A command's own options, how its data is to be read, split and weighed, and the models it may choose from.

    `tables` are the settings of each model as they were said: tuning keeps to them.
    """

    source: str
    own: Own
    data: DataOptions
    planted: Mapping[str, Any]
    split: SplitOptions
    recency: AskedRecency
    models: Mapping[str, list[Recommender]]
    tables: Mapping[str, Table]

    def read(self) -> Interactions:
        """The interactions, read now, weighed by the asked recency when they are used to answer.

        One that is yet to be chosen, or is the model's own, weighs nothing yet.
        """
        planted = self.plant() if self.source == PLANTED else None
        interactions = read_data(self.source, self.data, planted)
        return interactions if isinstance(self.recency, str) else interactions.with_recency(self.recency)

    @property
    def recency_rule(self) -> RecencyRule:
        """Whether the recency is given with the interactions, each model's own, or chosen on validation."""
        return self.recency if isinstance(self.recency, str) else "given"

    def plant(self) -> PlantedData:
        """The built-in data with the settings of the section `planted`."""
        return planted_communities(**self.planted)


def check_request(
    command: str,
    kind: Callable[..., Own],
    source: str,
    config: Path | None,
    given: Given,
    assignments: Sequence[str],
    choices: Sequence[str] = (),
) -> Request[Own]:
    """The request of a command; every setting is checked, the models among them by making them.

    --set wins over the command's own options, these win over the file, the file over the defaults; the names of the
    models are settings like any other.
    """
    own = build_section(kind, read_section(command, config, given, assignments), command)
    names = own.model_names
    sections = (command, "data", "planted") if command == "describe" else (command, *SHARED)
    catalogue = {} if names is None and config is None else _catalogue()
    elsewhere = (*catalogue, *COMMANDS, *SHARED)
    models = _expanded(names, catalogue)
    settings = read_settings(config, given, assignments, choices, sections=sections, models=models, elsewhere=elsewhere)
    data = build_section(DataOptions, settings["data"], "data")
    data.check_source(source)
    split = build_section(SplitOptions, settings.get("split", {}), "split")
    recency = build_section(RecencyOptions, settings.get("recency", {}), "recency").recency()
    if recency is None and "auto" in models:
        settings["auto"].setdefault("decay", "none")
    if recency == AUTO and split.validation == 0:
        raise ConfigError("recency: auto is chosen on held-out items; expected --validation of at least 1, found 0")
    return Request(
        source=source,
        own=own,
        data=data,
        planted=_check_planted(source, settings["planted"], own.seed),
        split=split,
        recency=recency,
        models=_built(models, settings, catalogue, own.seed),
        tables={name: settings[name] for name in models},
    )


def _check_planted(source: str, table: Table, seed: int) -> dict[str, Any]:
    if table and source != PLANTED:
        raise ConfigError(f"the section planted is for the data {PLANTED!r}, found the data {source!r}")
    annotations = parameters_of(planted_communities)
    check_names(table, annotations, "planted")
    checked = {name: check_value(f"planted.{name}", annotations[name], value) for name, value in table.items()}
    return {"seed": seed, **checked}


def _catalogue() -> Mapping[str, Callable[[], Recommender]]:
    from loca.catalogue import MODELS

    return MODELS


def _expanded(names: Sequence[str] | None, catalogue: Mapping[str, Callable[[], Recommender]]) -> list[str]:
    if names is None:
        return []
    from loca.experiments.candidates import expand_names

    return expand_names(names, catalogue)


def _built(
    names: Sequence[str],
    settings: Mapping[str, Table],
    catalogue: Mapping[str, Callable[[], Recommender]],
    seed: int,
) -> dict[str, list[Recommender]]:
    if not catalogue:
        return {}
    from loca.experiments.candidates import build_models

    return build_models(names, settings, catalogue, seed)
