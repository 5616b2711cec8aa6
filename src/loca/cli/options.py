"""What the commands share: groups of options, the request that they make of the library, and where words go."""

from __future__ import annotations

import inspect
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperOption
from typer.models import OptionInfo

from loca.config import options as config
from loca.config.settings import Given, Table
from loca.data.interactions import Interactions
from loca.data.schema import Schema
from loca.data.synthetic import planted_communities
from loca.errors import ConfigError, LocaError, check_choice
from loca.evaluation.metrics import DEFAULT_METRIC, Metric
from loca.models.recommender import Recommender
from loca.progress import set_progress
from loca.registry import MODELS, RECORDS
from loca.remarks import collect_remarks, told_remarks
from loca.text_table import TextTable, finite, printable, printable_json

if TYPE_CHECKING:
    from loca.data.readers import TableRead
    from loca.tuning.model_selection import RecencyRule

# -- Groups of options -------------------------------------------------------------------------------------------------


_KEYWORD_ONLY = inspect.Parameter.KEYWORD_ONLY
# Arguments of the library whose option is called otherwise.
_OPTION_OF = {"n": "count", "half_life": "recency", "who": "user"}
_COLUMNS = ("user", "item", "rating", "time", "event")


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer wants it: each parameter whose type is a group becomes the group's options.

    A group is a dataclass; those of its fields that are annotated with an option are options of the command.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, tuple[Any, list[str]]] = {}
    parameters = []
    for name, parameter in inspect.signature(command).parameters.items():
        found = {name: (hints[name], parameter.default)}
        if is_dataclass(hints[name]):
            annotations = get_type_hints(hints[name], include_extras=True)
            found = {one.name: (annotations[one.name], one.default) for one in fields(hints[name])}
            found = {
                one: (kind, default)
                for one, (kind, default) in found.items()
                if get_origin(kind) is Annotated
            }
            groups[name] = hints[name], list(found)
        for one, (kind, default) in found.items():
            parameters.append(
                inspect.Parameter(one, _KEYWORD_ONLY, default=default, annotation=kind)
            )

    @wraps(command)
    def call(**values: Any) -> None:
        given = {name for name, value in values.items() if value is not None}
        made = {
            name: kind(**{one: values.pop(one) for one in names})
            for name, (kind, names) in groups.items()
        }

        def in_options(text: str) -> str:
            return _in_options(text, parameters, given)

        try:
            with collect_remarks(lambda one: log_note(in_options(one.text))):
                command(**made, **values)
        except LocaError as error:
            error.args = (in_options(str(error)),)
            raise

    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


class OnceCommand(TyperCommand):
    """A command whose options, but for those that take several values, are given once: a second one is refused."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The words of the command line as typer reads them."""
        order = self.make_parser(ctx).parse_args(list(args))[2]
        given = [one for one in order if isinstance(one, TyperOption)]
        for one in given:
            if given.count(one) > 1 and not one.multiple and not one.is_flag:
                advice = (
                    "; name several with commas" if "omma separated" in (one.help or "") else ""
                )
                raise ConfigError(
                    f"{one.opts[0]}: expected once, found {given.count(one)} times{advice}"
                )
        return super().parse_args(ctx, args)


def _in_options(message: str, parameters: Iterable[inspect.Parameter], given: set[str]) -> str:
    """An error of the library as a command says it: `-n: expected …` for `n: expected …`, `--test 9` for `test=9`.

    A setting such as `split.test` is called by the option only where that was given, and not --set or a file.
    """
    options = {}
    for one in parameters:
        infos = [
            info
            for info in getattr(one.annotation, "__metadata__", ())
            if isinstance(info, OptionInfo)
        ]
        for info in infos:
            # Where an option stands in an annotation, typer takes its first name for a default.
            named = [
                name
                for name in (info.default, *(info.param_decls or ()))
                if str(name).startswith("-")
            ]
            options[one.name] = named[0] if named else "--" + one.name.replace("_", "-")

    def argument(found: re.Match[str]) -> str:
        name, value = found[1], found[2]
        option = options.get(f"{name}_column" if name in _COLUMNS else _OPTION_OF.get(name, name))
        if option and value in ("True", "False"):
            return option.split("/")[0 if value == "True" else -1]
        return f"{option} {value.strip(chr(39))}" if option else found[0]

    head, colon, rest = message.partition(": ")
    section, _, name = head.rpartition(".")
    name = _OPTION_OF.get(name, name)
    if (
        colon
        and name in options
        and (not section or (section in (*_COMMANDS, *_SHARED) and name in given))
    ):
        message = f"{options[name]}: {rest}"
    return re.sub(r"(?<![\w.'\"`-])([a-z_]+)=('[^']*'|[\w.…]+)", argument, message)


@contextmanager
def naming(option: str) -> Iterator[None]:
    """Says of an error inside which option it is about."""
    try:
        yield
    except LocaError as error:
        error.args = (f"{option}: {error}",)
        raise


def in_panel(panel: str) -> Callable[..., Any]:
    """Makes options of one panel of the help: `option(text, *names, **more)`."""
    return lambda text, *names, **more: typer.Option(
        *names, help=text, rich_help_panel=panel, **more
    )


_reading, _setting = in_panel("Reading the data"), in_panel("Settings")
_tuning, _stopping = in_panel("Tuning, the same budget for every model"), in_panel("Interruption")

DATA_HELP = "A file of interactions, - for standard input, or planted: built-in data."
Data = Annotated[str, typer.Argument(metavar="DATA", help=DATA_HELP)]
Recency = Annotated[
    str | None,
    typer.Option(
        help="Half-life of the items of a history: 4 (positions) or 30d (time); with shape and floor "
        "30d:power:0.1; none; auto chooses on validation (fit, compare).",
        metavar="AGE[:SHAPE[:FLOOR]]",
    ),
]


@dataclass(frozen=True)
class Reading:
    """How the data is read; None where an option was not given."""

    layout: Annotated[str | None, _reading("A named public format, such as movielens-1m.")] = None
    preset: Annotated[
        str | None, _reading("The paper's treatment of a data set: amusic, agames, ml10m, …")
    ] = None
    user_column: Annotated[
        str | None, _reading("Column of the user ids, a name or a place from 0.")
    ] = None
    item_column: Annotated[str | None, _reading("Column of the item ids.")] = None
    rating_column: Annotated[str | None, _reading("Column of the ratings.")] = None
    time_column: Annotated[str | None, _reading("Column of the times: numbers or dates.")] = None
    event_column: Annotated[
        str | None, _reading("Column of the kinds of events, for --weight KIND=NUMBER,…")
    ] = None
    separator: Annotated[
        str | None, _reading("Separator of the columns of a text file (found by itself).")
    ] = None
    header: Annotated[
        bool | None,
        _reading(
            "The first line names the columns, or is a row (found by itself).",
            "--header/--no-header",
        ),
    ] = None
    time_unit: Annotated[
        str | None,
        _reading(
            "What times count: s, ms, us, ns, yyyymmdd, or steps of no known length (found by itself)."
        ),
    ] = None
    weight: Annotated[
        str | None,
        _reading(
            "What a row counts: a column such as plays, log1p(plays) or rating, or kinds of events "
            "such as view=1,cart=3,buy=10 (all rows count alike)."
        ),
    ] = None
    min_rating: Annotated[
        float | None, _reading("Leave out lower ratings; all count otherwise.")
    ] = None
    min_user_interactions: Annotated[int | None, _reading("Leave out users with fewer.")] = None
    min_item_interactions: Annotated[int | None, _reading("Leave out items with fewer.")] = None
    keep_repeats: Annotated[
        bool | None, _reading("Keep repeated pairs, as the paper does.", "--keep-repeats")
    ] = None
    titles: Annotated[str | None, _reading("A file of item titles, such as movies.dat.")] = None

    def checked(self) -> config.DataOptions:
        """The options that were given, as the section of the settings that they are."""
        given = {name: value for name, value in asdict(self).items() if value is not None}
        return config.build_section(config.DataOptions, given, "data")


@dataclass(frozen=True)
class Settings:
    """A file of settings, single ones, and the seed."""

    config: Annotated[Path | None, _setting("A TOML file of settings; see the examples.")] = None
    assignments: Annotated[
        list[str] | None,
        _setting("One setting; wins over options and --config.", "--set", metavar="KEY=VALUE"),
    ] = None
    seed: Annotated[int | None, _setting("The seed of everything random (0).")] = None
    choices: list[str] | None = None


@dataclass(frozen=True)
class ModelSettings(Settings):
    """The same, and values to choose from."""

    choices: Annotated[
        list[str] | None,
        _setting("Values to choose from on validation.", "--choose", metavar="KEY=A,B,C"),
    ] = None


@dataclass(frozen=True)
class Splitting:
    """What is held out of each user's history, and how histories fade."""

    test: Annotated[int | None, typer.Option(help="Each user's last items for test (5).")] = None
    validation: Annotated[
        int | None, typer.Option(help="The items before them for validation (2).")
    ] = None
    recency: Recency = None

    def sections(self) -> dict[str, dict[str, Any]]:
        """The options by the sections of the settings that they belong to."""
        split = {"test": self.test, "validation": self.validation}
        return {"split": split, "recency": {"half_life": self.recency}}


MetricName = Annotated[
    str | None,
    typer.Option(
        help="What validation chooses by: ndcg, recall, map, mrr, hit_rate or precision, such as "
        f"ndcg@10 ({DEFAULT_METRIC}).",
        metavar="NAME@K",
    ),
]
Device = Annotated[
    str,
    typer.Option(
        help="Where it computes: cpu, cuda, cuda:1, or auto, a GPU where there is one.",
        metavar="DEVICE",
    ),
]
CLUSTER_HELP = "As tasks of a Ray cluster: auto, host:6379, or local to start Ray here; --out is on shared storage."


@dataclass(frozen=True)
class Tuning:
    """How long settings are tried, which, and on how many cores."""

    trials: Annotated[int | None, _tuning("Settings to try for each model (20 in loca tune).")] = (
        None
    )
    seconds: Annotated[float | None, _tuning("Seconds to try settings in, for each model.")] = None
    space: Annotated[
        str | None, _tuning("wide (our ranges) or paper (the values that the paper tried).")
    ] = None
    processes: Annotated[
        int | None, _tuning("Models, or trials of one model, that run in parallel (1).")
    ] = None
    cluster: Annotated[str | None, _tuning(CLUSTER_HELP)] = None
    metric: MetricName = None


@dataclass(frozen=True)
class Interruption:
    """What becomes of an earlier run that was interrupted."""

    resume: Annotated[bool, _stopping("Go on where an interrupted run stopped.", "--resume")] = (
        False
    )
    fresh: Annotated[bool, _stopping("Drop an interrupted run and start over.", "--fresh")] = False


def quiet_ray() -> None:
    """Keep what Ray prints about its nodes out of the answers of a command; Ray reads this when it is loaded."""
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")


def workers_on(cluster: str | None) -> Callable[..., Any] | None:
    """What starts workers: on a cluster where one is named, None for processes of this machine."""
    if cluster is None:
        return None
    quiet_ray()
    from loca.cluster.tasks import workers_on

    return workers_on(cluster)


def words(text: str | None) -> list[str] | None:
    """The words of an option that takes several, comma separated."""
    return None if text is None else [word.strip() for word in text.split(",") if word.strip()]


# -- Requests ----------------------------------------------------------------------------------------------------------

_COMMANDS = ("compare", "fit", "describe", "tune", "reproduce")
_SHARED = ("data", "planted", "split", "recency")


@dataclass(frozen=True)
class CommandOptions:
    """A command's own section: the seed, and the names of the models that the command works with, if any."""

    seed: int = 0

    @property
    def model_names(self) -> tuple[str, ...]:
        """The models, as they were named."""
        return ()

    @property
    def is_tuned(self) -> bool:
        """Whether a budget tunes the models first."""
        return False


@dataclass(frozen=True)
class TuningOptions(CommandOptions):
    """What the sections `compare` and `tune` share."""

    models: tuple[str, ...] = ()
    trials: int | None = None
    seconds: float | None = None
    space: str = "wide"
    processes: int = 1
    cluster: str | None = None
    metric: str | None = None

    def __post_init__(self) -> None:
        check_choice("space", self.space, ("wide", "paper"))
        if self.metric is not None:
            Metric.of(self.metric)

    @property
    def model_names(self) -> tuple[str, ...]:
        """The models, as they were named."""
        return self.models

    @property
    def is_tuned(self) -> bool:
        """Whether a budget tunes the models first."""
        return self.trials is not None or self.seconds is not None


Own = TypeVar("Own", bound=CommandOptions)


@dataclass(frozen=True)
class Request(Generic[Own]):
    """A command's own options, how its data is to be read, split and weighed, and the models it may choose from.

    `tables` are the settings of each model as they were given: tuning does not change them. `section` gives one
    section as it was given.
    """

    source: str
    own: Own
    data: config.DataOptions
    planted: Mapping[str, Any]
    split: config.SplitOptions
    recency: config.RecencyRequest
    models: Mapping[str, list[Recommender]]
    tables: Mapping[str, Table]
    section: Callable[[str], Table]

    def read(self) -> Interactions:
        """The interactions, read now, weighed by the requested recency when they are used to answer.

        One that is yet to be chosen, or is the model's own, weighs nothing yet.
        """
        from loca.data.readers import tell_about  # with polars, which checking does without

        interactions = tell_about(*self.read_described())
        return (
            interactions
            if isinstance(self.recency, str)
            else interactions.with_recency(self.recency)
        )

    def read_described(self) -> tuple[Interactions, TableRead | None]:
        """The interactions as they are, and what was read where it is a table."""
        planted = planted_communities(**self.planted) if self.source == config.PLANTED else None
        return config.read_data(self.source, self.data, planted)

    @property
    def recency_rule(self) -> RecencyRule:
        """Whether the recency is given with the interactions, each model's own, or chosen on validation."""
        return self.recency if isinstance(self.recency, str) else "given"


def read_part(
    path: str,
    data: config.DataOptions,
    like: Schema | None = None,
    *,
    are_targets: bool = False,
) -> Interactions:
    """Return a file with the columns of another one, or read `like` an earlier one.

    The minima, which are for what models learn from, and titles are left out. Of targets nobody needs
    the weights.
    """
    from loca.data.readers import tell_about

    if data.preset is not None:
        raise ConfigError("--preset: is for one file of all interactions; say --layout instead")
    free = replace(
        data, min_user_interactions=0, min_item_interactions=0, repeat_filter=False, titles=None
    )
    return tell_about(*config.read_data(path, free, like=like, are_targets=are_targets))


def check_request(
    command: str,
    kind: Callable[..., Own],
    source: str,
    reading: Reading,
    settings: Settings,
    **sections: Table,
) -> Request[Own]:
    """The request of a command; every setting is checked, the models among them by making them.

    --set wins over the command's own options, these win over the file, the file over the defaults; the names of the
    models are settings like any other. `sections` are options of the command, by section.
    """
    # Commands that read a saved model need none of the models' classes.
    from loca.config.model_factory import build_models, expand_names, local_beside

    options = {
        **sections,
        "data": asdict(reading),
        command: {**sections.get(command, {}), "seed": settings.seed},
    }
    given = Given(settings.config, options, settings.assignments or (), settings.choices or ())
    own = config.build_section(kind, given.section(command), command)
    known = (command, "data", "planted") if command == "describe" else (command, *_SHARED)
    names = expand_names(own.model_names) if own.model_names or command != "describe" else []
    # Under a budget a model over a base begins with what the study of the base chose. A control beside a local model
    # has that one's base, and models with the authors' settings stay as they are.
    over = (
        []
        if own.is_tuned
        else [one for one in names if RECORDS[one].base and RECORDS[one].wide is not None]
    )
    over = [one for one in over if local_beside(one, names) is None]
    tables = given.tables(known, names, (*MODELS, *_COMMANDS, *_SHARED), over)
    data = config.build_section(config.DataOptions, tables["data"], "data")
    data.check_source(source)
    split = config.build_section(config.SplitOptions, tables.get("split", {}), "split")
    recency = config.build_section(
        config.RecencyOptions, tables.get("recency", {}), "recency"
    ).recency()
    if recency is None and "auto" in names:
        tables["auto"].setdefault("decay", "none")
    if recency == config.AUTO and split.validation == 0:
        raise ConfigError(
            "recency: auto is chosen on held-out items; expected --validation of at least 1, found 0"
        )
    if tables["planted"] and source != config.PLANTED:
        raise ConfigError(
            f"the section planted is for the data {config.PLANTED!r}, found the data {source!r}"
        )
    annotations, planted = config.parameters_of(planted_communities), {"seed": own.seed}
    config.check_names(tables["planted"], annotations, "planted")
    for name, value in tables["planted"].items():
        planted[name] = config.check_value(f"planted.{name}", annotations[name], value)
    models, chosen = build_models(names, tables, own.seed), {name: tables[name] for name in names}
    return Request(source, own, data, planted, split, recency, models, chosen, given.section)


# -- Output ------------------------------------------------------------------------------------------------------------


def log_note(text: str) -> None:
    """Write a remark as a line beside the answer."""
    logging.getLogger("loca").info(f"note: {text}")


class _ToStandardError(logging.Handler):
    """Writes each line to whatever standard error is at that moment, so that bars and tests may redirect it."""

    def emit(self, record: logging.LogRecord) -> None:
        print(printable(record.getMessage()), file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Output:
    """How a command speaks: one JSON document and nothing else, or text with notes beside it unless `quiet`.

    The answer goes to standard output, everything else to standard error.
    """

    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document and nothing else.")
    ] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no notes.")] = False

    def __post_init__(self) -> None:
        silent = self.as_json or self.quiet
        set_progress(False if silent else None)
        logger = logging.getLogger("loca")
        for handler in [one for one in logger.handlers if isinstance(one, _ToStandardError)]:
            logger.removeHandler(handler)
        if not silent:
            logger.addHandler(_ToStandardError())
        logger.setLevel(logging.WARNING if silent else logging.INFO)

    def notes(self, lines: Iterable[str]) -> None:
        """Lines beside the answer."""
        for line in lines:
            logging.getLogger("loca").info(line)

    def answer(self, text: str, document: Mapping[str, Any]) -> None:
        """The answer itself: the document under --json, with what was remarked as `notes`; else the text."""
        if self.as_json:
            document = {**document, "notes": [one.to_json() for one in told_remarks()]}
            as_ascii = "utf" not in (sys.stdout.encoding or "utf-8").lower()
            print(
                printable_json(
                    json.dumps(finite(document), ensure_ascii=as_ascii, indent=1, allow_nan=False)
                )
            )
        else:
            print(printable(text))

    @property
    def is_watched(self) -> bool:
        """Whether the answer goes to a person's terminal."""
        return sys.stdout.isatty() and not self.as_json

    def draw(self, table: TextTable) -> None:
        """A table with lines around it, for a terminal."""
        from rich.console import Console
        from rich.table import Table as Drawn

        drawn = Drawn()
        for place, title in enumerate(table.header):
            drawn.add_column(title, justify="right" if place else "left")
        for row in table.rows:
            drawn.add_row(*row)
        Console().print(drawn)
