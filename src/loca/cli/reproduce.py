"""`loca reproduce`: every table and figure of the paper, and the page that holds them."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loca.cli.options import CLUSTER_HELP, Output, in_panel, words, workers_on
from loca.errors import ConfigError, check_choice, check_counts, did_you_mean

if TYPE_CHECKING:
    from loca.tuning.model_selection import ProtocolName

_size, _tuning, _running = in_panel("Size"), in_panel("Settings of the models"), in_panel("Running")
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
    """How much is computed; what is not given follows from the data."""

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
            "A file of settings, as compare and tune write it, or a folder with NAME-PROTOCOL.toml or NAME.toml."
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
    and WHAT.svg in
    --out; report.html holds all of them. Protocol clean selects on validation and looks at the test items once; paper
    repeats how the paper's program selected, on the test items, and is there to be set beside the
    printed figures.

    Every finished run is stored; after a kill the same command with --resume goes on, and tables
    and figures share what they can.
    """
    from loca.experiments.report import check_file
    from loca.paper.benchmark import (
        ALL_NAMES,
        Benchmark,
        open_data,
        sizes_for,
        tables_for,
        tune_models,
        tuned_before,
    )
    from loca.paper.runner import (
        PAGE,
        TUNED,
        WITHOUT_COMMUNITIES,
        WITHOUT_ROWS,
        Reproduction,
        check_start,
        find_items,
        models_of,
        reproduce,
    )
    from loca.search_space import Budget
    from loca.tuning.warm_start import check_optuna

    # All that could be refused is refused before data are read.
    items, only = find_items(what), tuple(words(models) or ())
    if models is not None and not only:
        raise ConfigError("models: expected at least one model, found none")
    for name in only:
        check_choice("model", name, ALL_NAMES)
    items = tuple(name for name in items if not only or name not in WITHOUT_ROWS)
    if not items:
        raise ConfigError(f"models: {what} is not made of models' rows; leave out --models")
    protocols: tuple[ProtocolName, ...] = ("clean", "paper")
    if protocol not in (*protocols, "both"):
        near = did_you_mean(protocol, (*protocols, "both")) or "; expected clean, paper or both"
        raise ConfigError(f"unknown protocol {protocol!r}{near}")
    protocols = tuple(one for one in protocols if protocol in (one, "both"))
    settings, budget = tables.settings, None
    if settings is not None and not settings.exists():
        raise ConfigError(f"settings: {settings}: there is no such file or folder")
    if tables.trials is not None or tables.seconds is not None:
        if settings is not None:
            raise ConfigError(
                "settings: are given, and --trials or --seconds look for others; leave one of them out"
            )
        check_optuna()
        budget = Budget(seconds=tables.seconds, trials=tables.trials)
    if running.stored_only and (running.fresh or budget is not None):
        raise ConfigError(
            "--kept-only shows what is stored; leave out --fresh, --trials and --seconds"
        )
    check_counts(processes=running.processes)
    start_worker = workers_on(running.cluster)
    check_file(out)
    resume = running.resume or running.stored_only
    check_start(out, resume=resume, fresh=running.fresh)
    given = {name: size for name, size in asdict(sizes).items() if size is not None}
    benchmarks: list[Benchmark] = []
    for studied in map(open_data, data or ["planted"]):
        for one in protocols:
            split = studied.split(one)
            output.notes(split.report)
            own_sizes = sizes_for(studied.name, one, settings, given)
            benchmark = Benchmark(
                studied, one, split, own_sizes, tables_for(studied.name, one, settings)
            )
            name = benchmark.name
            try:
                benchmark.check()
            except ConfigError as error:
                raise ConfigError(f"{settings}: {name}: {error}") from None
            if name in [other.name for other in benchmarks]:
                raise ConfigError(
                    f"data: two are called {name}; leave one out, or give one of the files another name"
                )
            benchmarks.append(benchmark)
    for benchmark in benchmarks:
        benchmark.check_size(
            models_of([name for name in items if name not in WITHOUT_COMMUNITIES], benchmark, only)
        )
    processes = running.processes
    for place, benchmark in enumerate(benchmarks):
        tuned = models_of(items, benchmark, only)
        if running.stored_only and settings is None:
            benchmarks[place] = replace(benchmark, tables=tuned_before(benchmark, out / TUNED))
        if budget is not None and tuned:
            how: dict[str, Any] = {
                "processes": processes,
                "resume": resume,
                "start_worker": start_worker,
            }
            found = tune_models(benchmark, tuned, budget, out / TUNED, **how)
            benchmarks[place] = replace(benchmark, tables=found)
    # The command that makes the same again from nothing: without --resume and what else changes no
    # figure. Of stored results alone it says so: without, it would compute what is missing.
    command = ["loca", "reproduce", what, *(part for one in data or [] for part in ("--data", one))]
    for key, value in {
        "protocol": protocol,
        **given,
        "models": models,
        **asdict(tables),
        "out": out,
    }.items():
        if value is not None:
            command += [
                f"--{key.replace('_', '-')}",
                f"{value:g}" if isinstance(value, float) else str(value),
            ]
    command += ["--kept-only"] if running.stored_only else []
    text = (
        shlex.join(command).encode("utf-8", "replace").decode()
    )  # names of files need not be text
    computes = not running.stored_only
    request = Reproduction(
        items, tuple(benchmarks), out, text, processes, only, computes, start_worker
    )
    made = reproduce(request, resume=resume)
    files = [name for one in made for name in one.file_names]
    written = f"written to {out}: {', '.join([*files, PAGE])}"
    output.answer(
        written,
        {
            "out": str(out),
            "pieces": {one.key: one.title for one in made},
            "report": str(out / PAGE),
        },
    )
