"""A reproduction: the requested tables and figures on all benchmarks, written with one page."""

from __future__ import annotations

import platform
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import loca
from loca.config.settings import flat_settings
from loca.errors import ConfigError, LocaError, did_you_mean
from loca.experiments.parallel import RunPlan, execute_parallel
from loca.experiments.runs import RUNS_FOLDER, ComparedModel, RunStore, describe_machine
from loca.local.loca import Loca
from loca.local.many_models import ManyModels
from loca.paper.benchmark import (
    Benchmark,
    Measured,
    Measurement,
    PaperItem,
    Results,
    RunKey,
    Runs,
)
from loca.paper.figure2 import Figure2
from loca.paper.figures import Figure4, Figure5, Figure6, Figure7, Figure8
from loca.paper.report import ENDINGS, Provenance, ReportItem, Value, page_of, write_item
from loca.paper.table2 import Table2, headlines
from loca.paper.table4 import Table4
from loca.paper.tables import Table1, Table3, Table5
from loca.persistence.atomic_write import write_whole
from loca.persistence.checkpoint import FINGERPRINT_KEY, Checkpoint, first_difference
from loca.progress import say
from loca.registry import RECORDS
from loca.tuning.workers import Worker

# The tables and figures by the names that the command takes.
_TABLES: tuple[type[PaperItem], ...] = (Table1, Table2, Table3, Table4, Table5)
_FIGURES: tuple[type[PaperItem], ...] = (Figure2, Figure4, Figure5, Figure6, Figure7, Figure8)
PAPER: Mapping[str, PaperItem] = {item.key: item() for item in (*_TABLES, *_FIGURES)}
ALL = "all"
# What is made of statistics and measurements, not of models' rows.
WITHOUT_ROWS = ("table1", "table4", "table5", "figure2")
# What has no communities that need as many users as they are: Figure 2 takes fewer anchors.
WITHOUT_COMMUNITIES = ("table1", "figure2")
PAGE = "report.html"
STORED = "kept"
TUNED = "tuning"
_WRITTEN_BY = {"format of the records": 2, "loca": loca.__version__}
_LIBRARIES = ("torch", "numpy", "scipy", "scikit-learn", "polars", "matplotlib")


def find_items(name: str) -> tuple[str, ...]:
    """Return the names of the tables and figures that a word stands for: one, or all of them."""
    if name == ALL:
        return tuple(PAPER)
    if name not in PAPER:
        known = [*PAPER, ALL]
        advice = did_you_mean(name, known) or "; there are " + ", ".join(known)
        raise ConfigError(f"unknown table or figure {name!r}{advice}")
    return (name,)


@dataclass(frozen=True)
class Reproduction:
    """What is requested.

    Parameters
    ----------
    items
        Names of tables and figures.
    benchmarks
        What they are made on.
    folder
        Where everything is stored.
    command
        The command in words, to be shown.
    processes
        How many runs are computed at a time.
    only
        Models: no others are computed, and no measurements.
    computes
        Whether anything is computed; otherwise what is stored is shown.
    start_worker
        What begins each of the processes, as for `compare`.
    """

    items: tuple[str, ...]
    benchmarks: tuple[Benchmark, ...]
    folder: Path
    command: str
    processes: int = 1
    only: tuple[str, ...] = ()
    computes: bool = True
    start_worker: Callable[..., Any] | None = None

    def store_of(self, benchmark: Benchmark) -> RunStore:
        """Return the store of the runs of a benchmark."""
        return RunStore(self.folder / STORED / benchmark.name, keeps_begun=False)


def check_start(folder: Path, *, resume: bool, fresh: bool) -> None:
    """Refuse a folder with results of an earlier run that is neither to go on nor dropped.

    Nor are tables and figures replaced unless that is requested whose results lie elsewhere: they
    could not be made again from here.
    """
    if resume and fresh:
        raise ConfigError(
            "--resume goes on with what is stored, --fresh drops it; "
            "expected one of them, found both"
        )
    has_results = any((folder / name).exists() for name in (STORED, TUNED))
    if has_results and not (resume or fresh):
        raise ConfigError(
            f"{folder} holds results of an earlier run; add --resume to take them and go on, or "
            "--fresh to start over"
        )
    made = (PAGE, *(f"{name}.{ending}" for name in PAPER for ending in ENDINGS))
    there = [name for name in made if (folder / name).exists()]
    if there and not has_results and not fresh:
        raise ConfigError(
            f"{folder} holds {there[0]} without the results that it was made of, and would lose "
            "it; choose another folder with --out, or add --fresh to replace it"
        )


@dataclass(frozen=True, eq=False)
class _Needs:
    """The runs and measurements that tables and figures need of one benchmark."""

    benchmark: Benchmark
    runs: Runs
    measurements: Sequence[Measurement]

    @classmethod
    def of(cls, items: Sequence[str], benchmark: Benchmark, only: Sequence[str] = ()) -> _Needs:
        """Return the needs of some items; with `only` those of these models alone."""
        runs: Runs = {}
        for name in items:
            runs |= PAPER[name].runs(benchmark)
        if only:
            return cls(benchmark, {key: run for key, run in runs.items() if key.model in only}, ())
        measurements: list[Measurement] = []
        for name in items:
            measurements += PAPER[name].measurements(benchmark)
        return cls(benchmark, runs, measurements)

    @property
    def names(self) -> set[str]:
        """The names of all of it."""
        return {*map(str, self.runs), *(measurement.name for measurement in self.measurements)}

    def missing_in(self, results: Results) -> str:
        """Return what is missing there, in words; nothing where all of it is there."""
        seeds: dict[tuple[str, str], list[str]] = {}
        for key in self.runs:
            if key not in results.runs:
                seeds.setdefault((key.model, key.variant), []).append(str(key.seed))
        missing = []
        for (model, variant), missing_seeds in seeds.items():
            words = " ".join(filter(None, (model, variant)))
            if results.of(model, variant):
                words += f" (seed {' and '.join(missing_seeds)})"
            missing.append(words)
        missing += [
            measurement.name
            for measurement in self.measurements
            if measurement.name not in results.measured
        ]
        return f"{results.benchmark.title}: {', '.join(missing)}" if missing else ""


def models_of(
    items: Sequence[str], benchmark: Benchmark, only: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the models that items need, each local one with its base, in the benchmark's order."""
    needs = _Needs.of(items, benchmark, only)
    names = {key.model for key in needs.runs}
    if needs.measurements:
        names.add("loca-vae")
    bases = {RECORDS[name].base for name in names}
    return tuple(name for name in benchmark.names if name in names | bases)


def reproduce(request: Reproduction, *, resume: bool) -> tuple[ReportItem, ...]:
    """Compute what is not stored yet, and write every requested table and figure, and the page.

    Without `resume` the stored results of the benchmarks are dropped, once the request is known to
    be sound. With `only` stored results of other models are shown too. What fails does not stop the
    rest: what could be made is written, and then the failures are reported. The page also holds
    items of earlier runs whose results are all stored.

    Returns
    -------
    tuple of ReportItem
        The tables and figures.
    """
    needs = [_Needs.of(request.items, benchmark, request.only) for benchmark in request.benchmarks]
    _check_models(request, needs)
    if not resume:
        _drop_results(request)
    _say_other_data(request)
    failed: dict[str, str] = {}
    studied = []
    for needed in needs:
        results = _compute(request, needed, failed) if request.computes else _load(request, needed)
        if request.only:
            stored = _load(request, _Needs.of(request.items, needed.benchmark))
            results = _joined(stored, results)
        studied.append(results)
    if not request.computes:
        _say_stored(request, needs, studied)
    made: dict[str, ReportItem] = {}
    for name in request.items:
        item = _make(name, request, studied, request.command)
        if item is not None:
            made[name] = item
            write_item(item, request.folder)
    _write_page(request, made, studied)
    if failed:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
        raise LocaError(f"{reasons}; {request.folder} keeps the others, --resume tries again")
    return tuple(made.values())


def _check_models(request: Reproduction, needs: Sequence[_Needs]) -> None:
    """Refuse models of which none is needed."""
    if not request.only or any(needed.runs for needed in needs):
        return
    every_run = [_Needs.of(request.items, benchmark).runs for benchmark in request.benchmarks]
    there = dict.fromkeys(key.model for runs in every_run for key in runs)
    raise ConfigError(
        f"models: none of {', '.join(request.only)} is needed there; there are {', '.join(there)}"
    )


def _drop_results(request: Reproduction) -> None:
    """Drop the stored results of the benchmarks; those of others stay."""
    for benchmark in request.benchmarks:
        if (request.folder / STORED / benchmark.name).exists():
            with request.store_of(benchmark).opened((), resume=False):
                pass


def _say_other_data(request: Reproduction) -> None:
    stored = sorted(path.parent.name for path in (request.folder / STORED).glob(f"*/{RUNS_FOLDER}"))
    requested = {benchmark.name for benchmark in request.benchmarks}
    others = [name for name in stored if name not in requested]
    if others:
        listed = ", ".join(others)
        say(f"{request.folder} also stores {listed}, which is not requested and not shown")


def _say_stored(request: Reproduction, needs: Sequence[_Needs], studied: Sequence[Results]) -> None:
    """Say how much is stored; refuse to write over what is there when nothing of it is."""
    for needed, results in zip(needs, studied, strict=True):
        stored = f"{len(results.runs)} of {len(needed.runs)} runs are stored"
        say(f"{needed.benchmark.name}: {stored}")
    is_needed = any(needed.names for needed in needs)
    if is_needed and not any(results.names for results in studied):
        names = ", ".join(results.benchmark.name for results in studied)
        raise ConfigError(
            f"{request.folder}: nothing is stored of {names}; leave out --kept-only to compute it"
        )


def _make(
    name: str, request: Reproduction, studied: Sequence[Results], command: str
) -> ReportItem | None:
    """Return a report item: of all benchmarks, or of those that something is stored of.

    None for one that needs results and has none, such as one whose models were not requested: an
    empty one would take the place of one that was made before.
    """
    needs = [_Needs.of((name,), results.benchmark) for results in studied]
    pairs = list(zip(needs, studied, strict=True))
    is_needed = any(needed.names for needed in needs)
    if is_needed and not any(needed.names & results.names for needed, results in pairs):
        return None
    if not request.computes:
        pairs = [
            (needed, results)
            for needed, results in pairs
            if not needed.names or needed.names & results.names
        ]
    missing = [needed.missing_in(results) for needed, results in pairs]
    item = PAPER[name].make([results for _, results in pairs])
    return replace(item, command=command, missing=tuple(filter(None, missing)))


def _write_page(
    request: Reproduction, made: Mapping[str, ReportItem], studied: Sequence[Results]
) -> None:
    """Write the page: the items made, and earlier ones there whose results are all stored."""
    shown = dict(made)
    seen = list(studied)
    for name in PAPER:
        if name in made or not (request.folder / f"{name}.md").exists():
            continue
        needs = [_Needs.of((name,), benchmark) for benchmark in request.benchmarks]
        loaded = [_load(request, needed) for needed in needs]
        is_complete = all(
            needed.names <= results.names for needed, results in zip(needs, loaded, strict=True)
        )
        # The same command for another item: WHAT is its third word.
        program, verb, _, *more = request.command.split(" ", 3)
        item = _make(name, request, loaded, " ".join([program, verb, name, *more]))
        if item is not None and (is_complete or not request.computes):
            shown[name] = item
            seen = [_joined(results, more) for results, more in zip(seen, loaded, strict=True)]
    items = [shown[name] for name in PAPER if name in shown]
    provenance = describe_run(request.command, seen)
    page = page_of(list(headlines(seen)), items, provenance, "LOCA: the paper, reproduced")
    write_whole(request.folder / PAGE, page)


def _joined(first: Results, second: Results) -> Results:
    """Return the results of different items on one benchmark."""
    runs = {**first.runs, **second.runs}
    return replace(first, runs=runs, measured={**first.measured, **second.measured})


def _compute(request: Reproduction, needs: _Needs, failed: dict[str, str]) -> Results:
    """Return all that is needed of one benchmark, computed or loaded.

    `failed` gets the reasons of what failed.
    """
    benchmark = needs.benchmark
    store = request.store_of(benchmark)
    by_name = {str(key): run for key, run in needs.runs.items()}
    plan = RunPlan(tuple(by_name), {}, lambda name, done: by_name[name])
    say(f"{benchmark.name}: {len(needs.runs)} runs, {len(needs.measurements)} other measurements")
    reasons: dict[str, str] = {}
    measured: dict[str, Measured] = {}
    with store.opened(plan.names, resume=True):
        done = plan.find_done(store)
        if len(done) < len(needs.runs) or needs.measurements:
            store.begin()
        if request.processes > 1 or request.start_worker is not None:
            start = request.start_worker or Worker.start
            reasons |= execute_parallel(
                plan, done, benchmark.split, store, request.processes, start
            )
        else:
            for name in plan.ready(done):
                with _noting_failure(name, reasons):
                    say(f"{name}: {len(plan.names) - len(done) - len(reasons)} runs left")
                    done[name], _ = store.execute(by_name[name], benchmark.split)
        for number, measurement in enumerate(needs.measurements):
            with _noting_failure(measurement.name, reasons):
                say(f"{len(needs.measurements) - number} measurements left")
                measured[measurement.name] = load_measured(measurement, store.runs) or measure(
                    measurement, store.runs
                )
        if not reasons:
            store.finish()
    failed |= {f"{benchmark.name}: {name}": reason for name, reason in reasons.items()}
    runs = {key: done[str(key)] for key in needs.runs if str(key) in done}
    return Results(benchmark, runs, measured)


@contextmanager
def _noting_failure(name: str, failed: dict[str, str]) -> Iterator[None]:
    """Note in one line why something failed, so that the rest can go on."""
    try:
        yield
    except LocaError as error:
        failed[name] = " ".join(str(error).split())
    except Exception as error:
        for line in traceback.format_exc().splitlines():
            say(line)
        failed[name] = f"{type(error).__name__}: {' '.join(str(error).split())}"


def _load(request: Reproduction, needs: _Needs) -> Results:
    """Return what is stored of the needs of a benchmark; what has other settings is left out."""
    store = request.store_of(needs.benchmark)
    runs: dict[RunKey, ComparedModel] = {}
    for key, run in needs.runs.items():
        with _leaving_out(str(key)):
            outcome = store.find(run)
            if outcome is not None:
                runs[key] = outcome
    measured: dict[str, Measured] = {}
    for measurement in needs.measurements:
        with _leaving_out(measurement.name):
            records = load_measured(measurement, store.runs)
            if records is not None:
                measured[measurement.name] = records
    return Results(needs.benchmark, runs, measured)


@contextmanager
def _leaving_out(name: str) -> Iterator[None]:
    """Say that something is left out which is stored of other settings."""
    try:
        yield
    except ConfigError as error:
        say(f"{name}: left out, stored of other settings ({error})")


def measure(measurement: Measurement, folder: Path) -> Measured:
    """Return the records of a measurement, measured now and stored, and the seconds they took."""
    say(f"{measurement.name}: measured now")
    begun = time.perf_counter()
    records = measurement.measure()
    seconds = time.perf_counter() - begun
    made_of = {**_WRITTEN_BY, **measurement.inputs}
    state = {FINGERPRINT_KEY: made_of, "records": records, "seconds": seconds}
    Checkpoint(folder).save(measurement.name, state)
    return records, seconds


def load_measured(measurement: Measurement, folder: Path) -> Measured | None:
    """Return the stored records of a measurement and their seconds; None where there are none.

    Those of other inputs are refused.
    """
    state = Checkpoint(folder).load(measurement.name)
    if state is None:
        return None
    made_of = {**_WRITTEN_BY, **measurement.inputs}
    difference = first_difference(state[FINGERPRINT_KEY], made_of)
    if difference is not None:
        raise ConfigError(
            f"{folder} holds records of {measurement.name} that are not those requested: "
            f"{difference}; start over with --fresh, or choose another folder"
        )
    return state["records"], state["seconds"]


def describe_run(command: str, studied: Sequence[Results]) -> Provenance:
    """Return where the results come from: wherever a run was computed, it says so itself.

    The settings are the sizes of each benchmark and what its models have that is not the default.
    """
    settings: dict[str, Value] = {}
    machines: Counter[str] = Counter()
    for results in studied:
        settings |= _settings_of(results)
        for run in results.runs.values():
            machine = run.found.get("machine", "unknown")
            machines[f"{machine}, torch {run.found.get('torch', 'unknown')}"] += 1
    versions = {"loca": loca.__version__, "python": platform.python_version()}
    for name in _LIBRARIES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    times = {results.benchmark.title: results.seconds for results in studied}
    if len(times) > 1:
        times["Together"] = sum(times.values())
    of_runs = {machine: f"{count} runs" for machine, count in machines.items()}
    facts: dict[str, Mapping[str, Value]] = {
        "Settings": settings,
        "Versions": versions,
        "Machine": {**of_runs, f"{describe_machine()}, {sys.platform}": "this page"},
        "Time taken": {title: _duration(seconds) for title, seconds in times.items()},
    }
    return Provenance(command, facts)


def _settings_of(results: Results) -> dict[str, Value]:
    """Return the sizes of a benchmark and the settings of its measured models, in words."""
    benchmark = results.benchmark
    title, train = benchmark.title, benchmark.split.train
    sizes = {name.replace("_", " "): value for name, value in vars(benchmark.sizes).items()}
    settings: dict[str, Value] = {
        f"{title}: users, items": f"{train.n_users:,}, {train.n_items:,}",
        f"{title}: sizes": _in_words(sizes),
    }
    measured = {key.model for key in results.runs if not key.variant}
    for name in benchmark.names:
        if name in measured:
            of_model = flat_settings(benchmark.settings_of(name))
            model = benchmark.model(name)
            if isinstance(model, ManyModels):
                # The sizes win over the settings, and stand in their place.
                of_model.pop("communities.finder.n", None)
                of_model["communities.n" if isinstance(model, Loca) else "models"] = model.size
            settings[f"{title}: {name}"] = _in_words(of_model) or "defaults"
    return settings


def _in_words(values: Mapping[str, Value]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _duration(seconds: float) -> str:
    """Return seconds below two minutes, minutes below two hours, then hours and minutes."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
