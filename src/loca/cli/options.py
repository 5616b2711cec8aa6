"""The options that several commands share, each described once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, Protocol, TypeVar

import typer

from loca.config.options import (
    AUTO,
    PLANTED,
    DataOptions,
    RecencyOptions,
    RecencyRequest,
    SplitOptions,
    build_section,
    check_names,
    check_value,
    parameters_of,
    read_data,
)
from loca.config.settings import Table, read_section, read_settings
from loca.data.interactions import Interactions
from loca.data.synthetic import PlantedData, planted_communities
from loca.errors import ConfigError, check_choice
from loca.models.recommender import Recommender

if TYPE_CHECKING:
    from loca.search_space import Budget
    from loca.tuning.model_selection import RecencyRule


_READING = "Reading the data"
_SETTINGS = "Settings"

Data = Annotated[str, typer.Argument(metavar="DATA", help="A file of interactions, or the word planted.")]
Layout = Annotated[
    str | None, typer.Option(help="A named public format, such as movielens-1m.", rich_help_panel=_READING)
]
Preset = Annotated[
    str | None,
    typer.Option(help="The paper's treatment of a data set: amusic, agames, ml10m, …", rich_help_panel=_READING),
]
UserColumn = Annotated[
    str | None, typer.Option(help="Column of the user ids, a name or a place from 0.", rich_help_panel=_READING)
]
ItemColumn = Annotated[str | None, typer.Option(help="Column of the item ids.", rich_help_panel=_READING)]
RatingColumn = Annotated[str | None, typer.Option(help="Column of the ratings.", rich_help_panel=_READING)]
TimeColumn = Annotated[
    str | None, typer.Option(help="Column of the times; a bare order will do.", rich_help_panel=_READING)
]
Separator = Annotated[str | None, typer.Option(help="What parts the columns of a text.", rich_help_panel=_READING)]
MinRating = Annotated[
    float | None, typer.Option(help="Leave out lower ratings; all count otherwise.", rich_help_panel=_READING)
]
MinUserInteractions = Annotated[int | None, typer.Option(help="Leave out users with fewer.", rich_help_panel=_READING)]
MinItemInteractions = Annotated[int | None, typer.Option(help="Leave out items with fewer.", rich_help_panel=_READING)]
KeepRepeats = Annotated[
    bool | None,
    typer.Option("--keep-repeats", help="Keep repeated pairs, as the paper does.", rich_help_panel=_READING),
]
Titles = Annotated[
    str | None, typer.Option(help="A file of item titles, such as movies.dat.", rich_help_panel=_READING)
]

Config = Annotated[
    Path | None, typer.Option(help="A TOML file of settings; see the examples.", rich_help_panel=_SETTINGS)
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="One setting; wins over options and --config.", rich_help_panel=_SETTINGS
    ),
]
Choose = Annotated[
    list[str] | None,
    typer.Option(
        "--choose", metavar="KEY=A,B,C", help="Values to choose from on validation.", rich_help_panel=_SETTINGS
    ),
]
Seed = Annotated[int | None, typer.Option(help="The seed of everything random (0).", rich_help_panel=_SETTINGS)]
Recency = Annotated[
    str | None,
    typer.Option(
        help="How a history's items fade: their half-life, 4 (positions) or 30d (time); with shape and floor "
        "30d:power:0.1; none; auto chooses on validation (fit, compare).",
        metavar="AGE[:SHAPE[:FLOOR]]",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no notes.")]


def words(text: str | None) -> list[str] | None:
    """The words of an option that takes several, comma separated."""
    return None if text is None else [word.strip() for word in text.split(",") if word.strip()]


def reading_options(
    layout: str | None,
    preset: str | None,
    user_column: str | None,
    item_column: str | None,
    rating_column: str | None,
    time_column: str | None,
    separator: str | None,
    min_rating: float | None,
    min_user_interactions: int | None,
    min_item_interactions: int | None,
    keep_repeats: bool | None,
    titles: str | None,
) -> dict[str, str | float | bool | None]:
    """The reader options of a command as the table of the section `data`; None where an option was not given."""
    return {
        "layout": layout,
        "preset": preset,
        "user_column": user_column,
        "item_column": item_column,
        "rating_column": rating_column,
        "time_column": time_column,
        "separator": separator,
        "min_rating": min_rating,
        "min_user_interactions": min_user_interactions,
        "min_item_interactions": min_item_interactions,
        "keep_repeats": keep_repeats,
        "titles": titles,
    }


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
        from loca.evaluation.metrics import check_lengths

        check_choice("protocol", self.protocol, ("clean", "paper"))
        check_choice("space", self.space, ("wide", "paper"))
        check_lengths(self.at)
        if self.budget() is None and self.space != "wide":
            raise ConfigError(f"space {self.space!r}: is for tuning; expected a budget too, --trials or --seconds")
        if self.processes < 1:
            raise ConfigError(f"compare.processes: expected a whole number ≥ 1, found {self.processes}")

    def budget(self) -> Budget | None:
        """What each model is tuned with, if anything."""
        from loca.search_space import Budget

        return None if self.trials is None and self.seconds is None else Budget(self.trials, self.seconds)

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
    recency: RecencyRequest
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
    from loca.registry import MODELS

    return MODELS


def _expanded(names: Sequence[str] | None, catalogue: Mapping[str, Callable[[], Recommender]]) -> list[str]:
    if names is None:
        return []
    from loca.config.model_factory import expand_names

    return expand_names(names, catalogue)


def _built(
    names: Sequence[str],
    settings: Mapping[str, Table],
    catalogue: Mapping[str, Callable[[], Recommender]],
    seed: int,
) -> dict[str, list[Recommender]]:
    if not catalogue:
        return {}
    from loca.config.model_factory import build_models

    return build_models(names, settings, catalogue, seed)
