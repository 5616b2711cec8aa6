"""`loca reproduce`: every table and figure of the paper, and the page that holds them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from loca.cli import options
from loca.cli.output import Output
from loca.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from loca.reproduction.benchmark import Benchmark
    from loca.search_space import Budget
    from loca.tuning.model_selection import ProtocolName

What = Annotated[
    str,
    typer.Argument(metavar="WHAT", help="table1 to table5, figure2, figure4 to figure8, or all.", show_default=False),
]
Data = Annotated[
    list[str] | None,
    typer.Option("--data", help="planted, amusic, games-2018, ml-1m, …, or a file; several times for several."),
]
Protocol = Annotated[str, typer.Option(help="clean, paper (chosen on test: not a result), or both.")]
Out = Annotated[Path, typer.Option(help="The folder that everything is stored in.")]
_SIZE = "Size"
LocalModels = Annotated[
    int | None,
    typer.Option(help="Local models of Tables 2, 3 and Figures 4, 5 (300; 12 on planted).", rich_help_panel=_SIZE),
]
SweepModels = Annotated[
    int | None,
    typer.Option(help="Local models of Table 4 and of each point of Figures 6 to 8 (100; 6).", rich_help_panel=_SIZE),
]
PilotModels = Annotated[int | None, typer.Option(help="Random anchors of Figure 2 (100; 10).", rich_help_panel=_SIZE)]
LoopModels = Annotated[
    int | None, typer.Option(help="The most models that Table 5 trains in a loop (20; 5).", rich_help_panel=_SIZE)
]
Seeds = Annotated[int | None, typer.Option(help="Seeds of every model that draws anything (3).", rich_help_panel=_SIZE)]
Models = Annotated[
    str | None,
    typer.Option(help="Compute only these models, comma separated; stored ones are shown too.", rich_help_panel=_SIZE),
]
_TUNING = "Settings of the models"
Settings = Annotated[
    Path | None,
    typer.Option(
        help="A file of settings, as compare and tune write it, or a folder with NAME-PROTOCOL.toml or NAME.toml.",
        rich_help_panel=_TUNING,
    ),
]
Trials = Annotated[int | None, typer.Option(help="Tune: settings to try for each model.", rich_help_panel=_TUNING)]
Seconds = Annotated[float | None, typer.Option(help="Tune: seconds for each model.", rich_help_panel=_TUNING)]
_RUNNING = "Running"
Processes = Annotated[int, typer.Option(help="Runs computed in parallel.", rich_help_panel=_RUNNING)]
Resume = Annotated[bool, typer.Option("--resume", help="Take what --out holds, and go on.", rich_help_panel=_RUNNING)]
Fresh = Annotated[bool, typer.Option("--fresh", help="Drop what --out holds of these data.", rich_help_panel=_RUNNING)]
StoredOnly = Annotated[
    bool, typer.Option("--kept-only", help="Show what --out holds; compute nothing.", rich_help_panel=_RUNNING)
]


def reproduce_paper(
    what: What,
    data: Data = None,
    protocol: Protocol = "clean",
    out: Out = Path("reproduction"),
    local_models: LocalModels = None,
    sweep_models: SweepModels = None,
    pilot_models: PilotModels = None,
    loop_models: LoopModels = None,
    seeds: Seeds = None,
    models: Models = None,
    settings: Settings = None,
    trials: Trials = None,
    seconds: Seconds = None,
    processes: Processes = 1,
    resume: Resume = False,
    fresh: Fresh = False,
    kept_only: StoredOnly = False,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Make a table or figure of the paper, or all of them, and a report that opens in any browser.

    Examples:

      loca reproduce all

      loca reproduce table2 --data amusic --protocol both --settings results/settings --out amusic

      loca reproduce table2 --data ratings.csv --seconds 90 --processes 4

      loca reproduce figure5 --data ml-1m --local-models 100 --seeds 1

    Each becomes WHAT.csv (every seed, every setting), WHAT.md and, where it has a picture, WHAT.png and WHAT.svg in
    --out; report.html holds all of them. Protocol clean selects on validation and looks at the test items once; paper
    repeats how the paper's program selected, on the test items, and is there to be set beside the printed figures.

    Every finished run is stored; after a kill the same command with --resume goes on, and tables and figures share
    what they can.
    """
    from loca.experiments.report import check_file
    from loca.reproduction.paper import WITHOUT_COMMUNITIES, WITHOUT_ROWS, find_items
    from loca.reproduction.runner import PAGE, TUNED, Reproduction, check_start, models_of, reproduce
    from loca.reproduction.settings import tune_models, tuned_before

    output = Output(as_json, quiet)
    items = find_items(what)
    only = _check_models(models)
    if only:
        items = tuple(name for name in items if name not in WITHOUT_ROWS)
        if not items:
            raise ConfigError(f"models: {what} is not made of models' rows; leave out --models")
    protocols = _check_protocols(protocol)
    budget = _budget(trials, seconds, settings)
    if kept_only and (fresh or budget is not None):
        raise ConfigError("--kept-only shows what is stored; leave out --fresh, --trials and --seconds")
    if processes < 1:
        raise ConfigError(f"processes: expected a whole number ≥ 1, found {processes}")
    check_file(out)
    resume = resume or kept_only
    check_start(out, resume=resume, fresh=fresh)
    given = (local_models, sweep_models, pilot_models, loop_models, seeds)
    names = ("local_models", "sweep_models", "pilot_models", "loop_models", "seeds")
    sizes = {name: size for name, size in zip(names, given, strict=True) if size is not None}
    benchmarks = [one for name in data or ["planted"] for one in _benchmarks(name, protocols, sizes, settings, output)]
    seen: set[str] = set()
    for place, one in enumerate(benchmarks):
        if one.name in seen:
            raise ConfigError(f"data: two are called {one.name}; leave one out, or give one of the files another name")
        seen.add(one.name)
        one.check_size(models_of([name for name in items if name not in WITHOUT_COMMUNITIES], one, only))
        if kept_only and settings is None:
            benchmarks[place] = replace(one, tables=tuned_before(one, out / TUNED))
    for place, one in enumerate(benchmarks if budget is not None else ()):
        if budget is not None and (tuned := models_of(items, one, only)):
            tables = tune_models(one, tuned, budget, out / TUNED, processes=processes, resume=resume)
            benchmarks[place] = replace(one, tables=tables)
    said = {**sizes, "models": models, "settings": settings, "trials": trials, "seconds": seconds, "out": out}
    command = _in_words(what, data, protocol, said, kept_only)
    request = Reproduction(items, tuple(benchmarks), out, command, processes, only, computes=not kept_only)
    made = reproduce(request, resume=resume)
    files = [name for one in made for name in one.file_names]
    written = f"written to {out}: {', '.join([*files, PAGE])}"
    output.answer(written, {"out": str(out), "pieces": {one.key: one.title for one in made}, "report": str(out / PAGE)})


def _check_protocols(protocol: str) -> tuple[ProtocolName, ...]:
    if protocol == "both":
        return ("clean", "paper")
    if protocol not in ("clean", "paper"):
        near = did_you_mean(protocol, ("clean", "paper", "both")) or "; expected clean, paper or both"
        raise ConfigError(f"unknown protocol {protocol!r}{near}")
    return (cast("ProtocolName", protocol),)


def _check_models(models: str | None) -> tuple[str, ...]:
    from loca.reproduction.benchmark import ALL_NAMES

    names = tuple(options.words(models) or ())
    if models is not None and not names:
        raise ConfigError("models: expected at least one model, found none")
    for name in names:
        if name not in ALL_NAMES:
            near = did_you_mean(name, ALL_NAMES) or f"; there are {', '.join(ALL_NAMES)}"
            raise ConfigError(f"unknown model {name!r}{near}")
    return names


def _budget(trials: int | None, seconds: float | None, settings: Path | None) -> Budget | None:
    """The budget of tuning, if any; refuses, before data are read, what contradicts itself."""
    from loca.search_space import Budget
    from loca.tuning.warm_start import check_optuna

    if settings is not None and not settings.exists():
        raise ConfigError(f"settings: {settings}: there is no such file or folder")
    if trials is None and seconds is None:
        return None
    if settings is not None:
        raise ConfigError("settings: are given, and --trials or --seconds look for others; leave one of them out")
    check_optuna()
    return Budget(trials, seconds)


def _benchmarks(
    name: str, protocols: tuple[ProtocolName, ...], sizes: dict[str, int], settings: Path | None, output: Output
) -> list[Benchmark]:
    from loca.reproduction.benchmark import Benchmark
    from loca.reproduction.data_sets import open_data
    from loca.reproduction.settings import sizes_for, tables_for

    data = open_data(name)
    benchmarks = []
    for protocol in protocols:
        split = data.split(protocol)
        output.notes(split.report)
        own_sizes = sizes_for(data.name, protocol, settings, sizes)
        one = Benchmark(data, protocol, split, own_sizes, tables_for(data.name, protocol, settings))
        try:
            one.check()
        except ConfigError as error:
            raise ConfigError(f"{settings}: {one.name}: {error}") from None
        benchmarks.append(one)
    return benchmarks


def _in_words(what: str, data: list[str] | None, protocol: str, said: Mapping[str, object], kept_only: bool) -> str:
    """The command that makes the same again from nothing: without --resume and what else changes no figure.

    Of stored results alone it says so: without, it would compute what is missing.
    """
    words = ["loca", "reproduce", what, *(part for one in data or [] for part in ("--data", one))]
    words += ["--protocol", protocol]
    for name, value in said.items():
        if value is not None:
            words += [f"--{name.replace('_', '-')}", f"{value:g}" if isinstance(value, float) else str(value)]
    text = shlex.join([*words, *(["--kept-only"] if kept_only else [])])
    return text.encode("utf-8", "replace").decode()  # names of files need not be text
