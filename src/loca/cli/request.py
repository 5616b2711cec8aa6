"""What a command was asked to do: its settings joined and checked, before any data is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from loca.data.interactions import Interactions
from loca.data.recency import Recency
from loca.data.synthetic import PlantedData, planted_communities
from loca.errors import ConfigError
from loca.experiments.parameters import build_section, check_names, check_value, parameters_of
from loca.experiments.sections import PLANTED, DataOptions, RecencyOptions, SplitOptions, read_data
from loca.experiments.settings import Table, read_settings, read_toml
from loca.models.recommender import Recommender

Own = TypeVar("Own")
Given = Mapping[str, Mapping[str, Any]]
COMMANDS = ("compare", "fit", "describe")
SHARED = ("data", "planted", "split", "recency")


@dataclass(frozen=True)
class CompareOptions:
    """The section `compare`."""

    models: tuple[str, ...] = ("popularity", "ease", "mult-vae", "ensemble", "loca-vae", "loca-ease")
    protocol: str = "clean"
    refit: bool = True
    at: tuple[int, ...] = (50, 100)
    control: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        from loca.experiments.protocols import check_protocol
        from loca.ranking.metrics import check_lengths

        check_protocol(self.protocol)
        check_lengths(self.at)


@dataclass(frozen=True)
class FitOptions:
    """The section `fit`."""

    model: str = "loca-ease"
    refit: bool = True
    seed: int = 0


@dataclass(frozen=True)
class DescribeOptions:
    """The section `describe`."""

    seed: int = 0


@dataclass(frozen=True)
class Request(Generic[Own]):
    """A command's own options, how its data is to be read, split and weighed, and the models it may choose from."""

    source: str
    own: Own
    data: DataOptions
    planted: Mapping[str, Any]
    split: SplitOptions
    recency: Recency | None
    models: Mapping[str, list[Recommender]]

    def read(self) -> Interactions:
        """The interactions, read now, weighed by the asked recency when they are used to answer."""
        planted = self.plant() if self.source == PLANTED else None
        return read_data(self.source, self.data, planted).with_recency(self.recency)

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
    names: Sequence[str] | None = None,
) -> Request[Own]:
    """The request of a command; every setting is checked, the models among them by making them."""
    sections = (command, "data", "planted") if command == "describe" else (command, *SHARED)
    catalogue = {} if names is None and config is None else _catalogue()
    elsewhere = (*catalogue, *COMMANDS, *SHARED)
    models = _expanded(names, catalogue)
    settings = read_settings(config, given, assignments, choices, sections=sections, models=models, elsewhere=elsewhere)
    own: Any = build_section(kind, settings[command], command)
    data = build_section(DataOptions, settings["data"], "data")
    data.check_source(source)
    return Request(
        source=source,
        own=own,
        data=data,
        planted=_check_planted(source, settings["planted"], own.seed),
        split=build_section(SplitOptions, settings.get("split", {}), "split"),
        recency=build_section(RecencyOptions, settings.get("recency", {}), "recency").recency(),
        models=_built(models, settings, catalogue, own.seed),
    )


def names_in_config(config: Path | None, section: str, key: str) -> list[str]:
    """The model names that a settings file gives for a command, where it gives any."""
    table = {} if config is None else read_toml(config).get(section, {})
    found = table.get(key, []) if isinstance(table, dict) else []
    return [str(one) for one in ([found] if isinstance(found, str) else found)]


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
