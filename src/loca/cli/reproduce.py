"""`loca reproduce`: every table and figure of the paper, and the page that holds them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loca.cli.options import CLUSTER_HELP, Output, in_panel, words, workers_on
from loca.errors import ConfigError, check_choice, check_counts, did_you_mean

if TYPE_CHECKING:
    from loca.paper.benchmark import Benchmark
    from loca.search_space import Budget
    from loca.tuning.model_selection import ProtocolName

_size = in_panel("Size")
_tuning = in_panel("Settings of the models")
_running = in_panel("Running")
What = Annotated[
    str,
    typer.Argument(
        metavar="WHAT",
        help="table1 to table5, figure2, figure4 to figure8, or all.",
        show_default=False,
    ),
]
Data = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        help="planted, amusic, games-2018, ml-1m, …, or a file; several times for several.",
    ),
]
Protocol = Annotated[
    str, typer.Option(help="clean, paper (chosen on test: not a result), or both.")
]
Out = Annotated[Path, typer.Option(help="The folder that everything is stored in.")]
Models = Annotated[
    str | None, _size("Compute only these models, comma separated; stored ones are shown too.")
]


@dataclass(frozen=True)
class Sizes:
    """How much is computed; what is not chosen follows from the data."""

    local_models: Annotated[
        int | None, _size("Local models of Tables 2, 3, Figures 4, 5 (300; 12 on planted).")
    ] = None
    sweep_models: Annotated[
        int | None, _size("Local models of Table 4 and each point of Figures 6-8 (100; 6).")
    ] = None
    pilot_models: Annotated[int | None, _size("Random anchors of Figure 2 (100; 10).")] = None
    loop_models: Annotated[
        int | None, _size("The most models that Table 5 trains in a loop (20; 5).")
    ] = None
    seeds: Annotated[int | None, _size("Seeds of every model that draws anything (3).")] = None


@dataclass(frozen=True)
class ModelTables:
    """Where the settings of the models come from."""

    settings: Annotated[
        Path | None,
        _tuning(
            "A file of settings, as compare and tune write it, or a folder with NAME-PROTOCOL.toml "
            "or NAME.toml."
        ),
    ] = None
    trials: Annotated[int | None, _tuning("Tune: settings to try for each model.")] = None
    seconds: Annotated[float | None, _tuning("Tune: seconds for each model.")] = None


@dataclass(frozen=True)
class Running:
    """How it is computed, and what is done with earlier results."""

    processes: Annotated[int, _running("Runs computed in parallel.")] = 1
    cluster: Annotated[str | None, _running(CLUSTER_HELP)] = None
    resume: Annotated[bool, _running("Take what --out holds, and go on.", "--resume")] = False
    fresh: Annotated[bool, _running("Drop what --out holds of these data.", "--fresh")] = False
    stored_only: Annotated[
        bool, _running("Show what --out holds; compute nothing.", "--kept-only")
    ] = False


def reproduce_paper(
    what: What,
    sizes: Sizes,
    tables: ModelTables,
    running: Running,
    output: Output,
    data: Data = None,
    protocol: Protocol = "clean",
    out: Out = Path("reproduction"),
    models: Models = None,
) -> None:
    """Make a table or figure of the paper, or all of them, and a report that opens in any browser.

    Examples:

      loca reproduce all

      loca reproduce table2 --data amusic --protocol both --settings results/settings --out amusic

      loca reproduce table2 --data ratings.csv --seconds 90 --processes 4

      loca reproduce figure5 --data ml-1m --local-models 100 --seeds 1

    Each becomes WHAT.csv (every seed, every setting), WHAT.md and, where it has a picture, WHAT.png
    and WHAT.svg in --out; report.html holds all of them. Protocol clean selects on validation and
    looks at the test items once; paper repeats how the paper's program selected, on the test items,
    and is there to be set beside the printed figures.

    Every finished run is stored; after a kill the same command with --resume goes on, and tables
    and figures share what they can.
    """
    from loca.experiments.report import check_file
    from loca.paper.runner import PAGE, Reproduction, check_start, reproduce

    # All that could be refused is refused before data are read.
    items, only = _items(what, models)
    protocols = _protocols(protocol)
    budget = _budget(tables, running)
    check_counts(processes=running.processes)
    start_worker = workers_on(running.cluster)
    check_file(out)
    resume = running.resume or running.stored_only
    check_start(out, resume=resume, fresh=running.fresh)
    chosen = {name: size for name, size in asdict(sizes).items() if size is not None}
    benchmarks = _benchmarks(data or ["planted"], protocols, tables.settings, chosen, output)
    _check_sizes(benchmarks, items, only)
    if running.stored_only and tables.settings is None:
        benchmarks = _with_stored_settings(benchmarks, out)
    elif budget is not None:
        benchmarks = _tuned(benchmarks, items, only, out, budget, running, start_worker)
    # The command that makes the same again from nothing: without --resume and what else changes no
    # figure. Of stored results alone it says so: without, it would compute what is missing.
    options = {"protocol": protocol, **chosen, "models": models, **asdict(tables), "out": out}
    request = Reproduction(
        items=items,
        benchmarks=tuple(benchmarks),
        folder=out,
        command=_command(what, data or [], options, stored_only=running.stored_only),
        processes=running.processes,
        only=only,
        computes=not running.stored_only,
        start_worker=start_worker,
    )
    made = reproduce(request, resume=resume)
    files = [name for item in made for name in item.file_names]
    document = {
        "out": str(out),
        "pieces": {item.key: item.title for item in made},
        "report": str(out / PAGE),
    }
    output.answer(f"written to {out}: {', '.join([*files, PAGE])}", document)


def _items(what: str, models: str | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the requested tables and figures, and the models to which they are limited, if any."""
    from loca.paper.benchmark import ALL_NAMES
    from loca.paper.runner import WITHOUT_ROWS, find_items

    items, only = find_items(what), tuple(words(models) or ())
    if models is not None and not only:
        raise ConfigError("models: expected at least one model, found none")
    for name in only:
        check_choice("model", name, ALL_NAMES)
    if only:
        items = tuple(name for name in items if name not in WITHOUT_ROWS)
    if not items:
        raise ConfigError(f"models: {what} is not made of models' rows; leave out --models")
    return items, only


def _protocols(protocol: str) -> tuple[ProtocolName, ...]:
    """Return the protocols that a word stands for."""
    known: tuple[ProtocolName, ...] = ("clean", "paper")
    if protocol not in (*known, "both"):
        advice = did_you_mean(protocol, (*known, "both")) or "; expected clean, paper or both"
        raise ConfigError(f"unknown protocol {protocol!r}{advice}")
    return tuple(name for name in known if protocol in (name, "both"))


def _budget(tables: ModelTables, running: Running) -> Budget | None:
    """Return what each model is tuned under, if it is; refuse what contradicts it."""
    from loca.search_space import Budget
    from loca.tuning.warm_start import check_optuna

    is_tuned = tables.trials is not None or tables.seconds is not None
    if tables.settings is not None and not tables.settings.exists():
        raise ConfigError(f"settings: {tables.settings}: there is no such file or folder")
    if is_tuned and tables.settings is not None:
        raise ConfigError(
            "settings: are given, and --trials or --seconds look for others; leave one of them out"
        )
    if running.stored_only and (running.fresh or is_tuned):
        raise ConfigError(
            "--kept-only shows what is stored; leave out --fresh, --trials and --seconds"
        )
    if not is_tuned:
        return None
    check_optuna()
    return Budget(seconds=tables.seconds, trials=tables.trials)


def _benchmarks(
    data: Sequence[str],
    protocols: Sequence[ProtocolName],
    settings: Path | None,
    sizes: Mapping[str, int],
    output: Output,
) -> list[Benchmark]:
    """Return a benchmark for each data set and protocol; no two have one name."""
    from loca.paper.benchmark import Benchmark, open_data, sizes_for, tables_for

    benchmarks: dict[str, Benchmark] = {}
    for studied in map(open_data, data):
        for protocol in protocols:
            split = studied.split(protocol)
            output.notes(split.report)
            benchmark = Benchmark(
                data=studied,
                protocol=protocol,
                split=split,
                sizes=sizes_for(studied.name, protocol, settings, sizes),
                tables=tables_for(studied.name, protocol, settings),
            )
            name = benchmark.name
            try:
                benchmark.check()
            except ConfigError as error:
                raise ConfigError(f"{settings}: {name}: {error}") from None
            if name in benchmarks:
                raise ConfigError(
                    f"data: two are called {name}; leave one out, or give one of the files "
                    "another name"
                )
            benchmarks[name] = benchmark
    return list(benchmarks.values())


def _check_sizes(
    benchmarks: Sequence[Benchmark], items: Sequence[str], only: Sequence[str]
) -> None:
    """Refuse more local models than there are users for them."""
    from loca.paper.runner import WITHOUT_COMMUNITIES, models_of

    with_communities = [name for name in items if name not in WITHOUT_COMMUNITIES]
    for benchmark in benchmarks:
        benchmark.check_size(models_of(with_communities, benchmark, only))


def _with_stored_settings(benchmarks: Sequence[Benchmark], out: Path) -> list[Benchmark]:
    """Return the benchmarks with what an earlier tuning found."""
    from loca.paper.benchmark import tuned_before
    from loca.paper.runner import TUNED

    return [
        replace(benchmark, tables=tuned_before(benchmark, out / TUNED)) for benchmark in benchmarks
    ]


def _tuned(
    benchmarks: Sequence[Benchmark],
    items: Sequence[str],
    only: Sequence[str],
    out: Path,
    budget: Budget,
    running: Running,
    start_worker: Callable[..., Any] | None,
) -> list[Benchmark]:
    """Return the benchmarks with what tuning finds for the models that are needed."""
    from loca.paper.benchmark import tune_models
    from loca.paper.runner import TUNED, models_of

    tuned: list[Benchmark] = []
    for benchmark in benchmarks:
        names = models_of(items, benchmark, only)
        tables = benchmark.tables
        if names:
            tables = tune_models(
                benchmark,
                names,
                budget,
                out / TUNED,
                processes=running.processes,
                resume=running.resume,
                start_worker=start_worker,
            )
        tuned.append(replace(benchmark, tables=tables))
    return tuned


def _command(
    what: str, data: Sequence[str], options: Mapping[str, Any], *, stored_only: bool
) -> str:
    """Return the command as it can be pasted, with the options that have a value."""
    command = ["loca", "reproduce", what]
    for name in data:
        command += ["--data", name]
    for name, value in options.items():
        if value is not None:
            text = f"{value:g}" if isinstance(value, float) else str(value)
            command += [f"--{name.replace('_', '-')}", text]
    if stored_only:
        command.append("--kept-only")
    # Names of files need not be text.
    return shlex.join(command).encode("utf-8", "replace").decode()
