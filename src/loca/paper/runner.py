"""A reproduction: the requested tables and figures on all benchmarks, computed or loaded, and written with one page."""

from __future__ import annotations

import platform
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import loca
from loca.config.settings import flat_settings
from loca.errors import ConfigError, LocaError, did_you_mean
from loca.experiments.parallel import RunPlan, execute_parallel
from loca.experiments.runs import RUNS_FOLDER, RunStore, describe_machine
from loca.paper.benchmark import (
    SIZE_PARAMETERS,
    Benchmark,
    Measured,
    Measurement,
    PaperItem,
    Results,
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
# What has no communities that need as many users as they are: Figure 2 takes fewer anchors where there are fewer users.
WITHOUT_COMMUNITIES = ("table1", "figure2")
PAGE = "report.html"
STORED = "kept"
TUNED = "tuning"
_WRITTEN_BY = {"format of the records": 1, "loca": loca.__version__}
_LIBRARIES = ("torch", "numpy", "scipy", "scikit-learn", "polars", "matplotlib")


def find_items(name: str) -> tuple[str, ...]:
    """The names of the tables and figures that a word stands for: one, or all of them."""
    if name == ALL:
        return tuple(PAPER)
    if name not in PAPER:
        known = [*PAPER, ALL]
        nearest = did_you_mean(name, known) or "; there are " + ", ".join(known)
        raise ConfigError(f"unknown table or figure {name!r}{nearest}")
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
    start_worker
        What begins each of them, as for `compare`.
    only
        Models: no others are computed, and no measurements.
    computes
        Whether anything is computed; otherwise what is stored is shown.
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
        """Where the runs of a benchmark are stored."""
        return RunStore(self.folder / STORED / benchmark.name, keeps_begun=False)


def check_start(folder: Path, *, resume: bool, fresh: bool) -> None:
    """Refuses a folder with results of an earlier run that the caller neither goes on with nor drops.

    Nor are tables and figures replaced unless that is requested whose results lie elsewhere: they could not be made
    again from here.
    """
    if resume and fresh:
        raise ConfigError(
            "--resume goes on with what is stored, --fresh drops it; expected one of them, found both"
        )
    has_results = any((folder / one).exists() for one in (STORED, TUNED))
    if has_results and not (resume or fresh):
        raise ConfigError(
            f"{folder} holds results of an earlier run; add --resume to take them and go on, or --fresh to start over"
        )
    made = (PAGE, *(f"{name}.{ending}" for name in PAPER for ending in ENDINGS))
    there = next((one for one in made if (folder / one).exists()), None)
    if there is not None and not has_results and not fresh:
        raise ConfigError(
            f"{folder} holds {there} without the results that it was made of, and would lose it; choose another "
            "folder with --out, or add --fresh to replace it"
        )


@dataclass(frozen=True, eq=False)
class _Needs:
    """The runs and measurements that tables and figures need of one benchmark."""

    benchmark: Benchmark
    runs: Runs
    measurements: Sequence[Measurement]

    @classmethod
    def of(cls, items: Sequence[str], benchmark: Benchmark, only: Sequence[str] = ()) -> _Needs:
        runs = {key: run for name in items for key, run in PAPER[name].runs(benchmark).items()}
        if only:
            return cls(benchmark, {key: run for key, run in runs.items() if key.model in only}, ())
        return cls(
            benchmark, runs, [one for name in items for one in PAPER[name].measurements(benchmark)]
        )

    @property
    def names(self) -> set[str]:
        """The names of all of it."""
        return {*map(str, self.runs), *(one.name for one in self.measurements)}

    def missing_in(self, results: Results) -> str:
        """What is missing there, in words; nothing where all of it is there."""
        seeds: dict[tuple[str, str], list[str]] = {}
        for model, variant, seed in (key for key in self.runs if key not in results.runs):
            seeds.setdefault((model, variant), []).append(str(seed))
        missing = []
        for called, own in seeds.items():
            some = f" (seed {' and '.join(own)})" if results.of(*called) else ""
            missing.append(" ".join(filter(None, called)) + some)
        missing += [one.name for one in self.measurements if one.name not in results.measured]
        return f"{results.benchmark.title}: {', '.join(missing)}" if missing else ""


def models_of(
    items: Sequence[str], benchmark: Benchmark, only: Sequence[str] = ()
) -> tuple[str, ...]:
    """The models that tables and figures need, each local one with its base, in the order of the benchmark."""
    needs = _Needs.of(items, benchmark, only)
    names = {key.model for key in needs.runs} | ({"loca-vae"} if needs.measurements else set())
    bases = {RECORDS[name].base for name in names}
    return tuple(name for name in benchmark.names if name in names | bases)


def reproduce(request: Reproduction, *, resume: bool) -> tuple[ReportItem, ...]:
    """Computes what is not stored yet, and writes every requested table and figure, which it returns, and the page.

    Without `resume` the stored results of the benchmarks are dropped, once the request is known to be sound. With
    `only` stored results of other models are shown too. What fails does not stop the rest: what could be made is
    written, and then the failures are reported. The page also holds items of earlier runs whose results are all stored.
    """
    needs = [_Needs.of(request.items, one, request.only) for one in request.benchmarks]
    if request.only and not any(one.runs for one in needs):
        whole = [_Needs.of(request.items, one) for one in request.benchmarks]
        there = dict.fromkeys(key.model for one in whole for key in one.runs)
        raise ConfigError(
            f"models: none of {', '.join(request.only)} is needed there; there are {', '.join(there)}"
        )
    for benchmark in () if resume else request.benchmarks:  # the results of others stay
        if (request.folder / STORED / benchmark.name).exists():
            with request.store_of(benchmark).opened((), resume=False):
                pass
    found = sorted(one.parent.name for one in (request.folder / STORED).glob(f"*/{RUNS_FOLDER}"))
    if others := [name for name in found if name not in {one.name for one in request.benchmarks}]:
        say(
            f"{request.folder} also stores {', '.join(others)}, which is not requested and not shown"
        )
    failed: dict[str, str] = {}
    studied = []
    for one in needs:
        results = _compute(request, one, failed) if request.computes else _load(request, one)
        if request.only:
            results = _joined(_load(request, _Needs.of(request.items, one.benchmark)), results)
        studied.append(results)
    if not request.computes:
        for one, results in zip(needs, studied, strict=True):
            say(f"{one.benchmark.name}: {len(results.runs)} of {len(one.runs)} runs are stored")
        # Nothing is written over what is there when nothing of it is stored.
        if any(one.names for one in needs) and not any(one.names for one in studied):
            names = ", ".join(one.benchmark.name for one in studied)
            raise ConfigError(
                f"{request.folder}: nothing is stored of {names}; leave out --kept-only to compute it"
            )
    made = {
        name: item
        for name in request.items
        if (item := _make(name, request, studied, request.command))
    }
    for item in made.values():
        write_item(item, request.folder)
    _write_page(request, made, studied)
    if failed:
        reasons = "; ".join(f"{name}: {why}" for name, why in failed.items())
        raise LocaError(f"{reasons}; {request.folder} keeps the others, --resume tries again")
    return tuple(made.values())


def _make(
    name: str, request: Reproduction, studied: Sequence[Results], command: str
) -> ReportItem | None:
    """The report item: of all benchmarks, but of stored results alone only those that something is stored of.

    None for one that needs results and has none, such as one whose models were not requested: an empty one would
    take the place of one that was made before.
    """
    needs = [_Needs.of((name,), one.benchmark) for one in studied]
    pairs = list(zip(needs, studied, strict=True))
    if any(one.names for one in needs) and not any(
        one.names & results.names for one, results in pairs
    ):
        return None
    if not request.computes:
        pairs = [
            (one, results) for one, results in pairs if not one.names or one.names & results.names
        ]
    missing = tuple(filter(None, (one.missing_in(results) for one, results in pairs)))
    return replace(
        PAPER[name].make([results for _, results in pairs]), command=command, missing=missing
    )


def _write_page(
    request: Reproduction, made: Mapping[str, ReportItem], studied: Sequence[Results]
) -> None:
    """The page of the items made, and of earlier ones that lie in the folder and whose results are all stored."""
    shown, seen = dict(made), list(studied)
    for name in PAPER:
        if name not in made and (request.folder / f"{name}.md").exists():
            needs = [_Needs.of((name,), one) for one in request.benchmarks]
            loaded = [_load(request, one) for one in needs]
            is_whole = all(
                one.names <= results.names for one, results in zip(needs, loaded, strict=True)
            )
            # The same command for another item: WHAT is its third word.
            program, verb, _, *more = request.command.split(" ", 3)
            item = _make(name, request, loaded, " ".join([program, verb, name, *more]))
            if item is not None and (is_whole or not request.computes):
                shown[name] = item
                seen = [_joined(one, other) for one, other in zip(seen, loaded, strict=True)]
    ordered = [shown[name] for name in PAPER if name in shown]
    provenance = describe_run(request.command, seen)
    page = page_of(list(headlines(seen)), ordered, provenance, "LOCA: the paper, reproduced")
    write_whole(request.folder / PAGE, page)


def _joined(first: Results, second: Results) -> Results:
    """The results of different items on one benchmark."""
    return replace(
        first, runs={**first.runs, **second.runs}, measured={**first.measured, **second.measured}
    )


def _compute(request: Reproduction, needs: _Needs, failed: dict[str, str]) -> Results:
    """All that is needed of one benchmark, computed or loaded; `failed` gets why that failed which did."""
    benchmark, store = needs.benchmark, request.store_of(needs.benchmark)
    by_name = {str(key): run for key, run in needs.runs.items()}
    plan = RunPlan(tuple(by_name), {}, lambda name, done: by_name[name])
    say(f"{benchmark.name}: {len(needs.runs)} runs, {len(needs.measurements)} other measurements")
    reasons, measured = dict[str, str](), dict[str, Measured]()
    with store.opened(plan.names, resume=True):
        done = plan.find_done(store)
        if len(done) < len(needs.runs) or needs.measurements:
            store.begin()
        here = request.processes == 1 and request.start_worker is None
        if not here:
            start = request.start_worker or Worker.start
            reasons |= execute_parallel(
                plan, done, benchmark.split, store, request.processes, start
            )
        for name in plan.ready(done) if here else ():
            with _noting_failure(name, reasons):
                say(f"{name}: {len(plan.names) - len(done) - len(reasons)} runs left")
                done[name], _ = store.execute(by_name[name], benchmark.split)
        for place, one in enumerate(needs.measurements):
            with _noting_failure(one.name, reasons):
                say(f"{len(needs.measurements) - place} measurements left")
                measured[one.name] = load_measured(one, store.runs) or measure(one, store.runs)
        if not reasons:
            store.finish()
    failed |= {f"{benchmark.name}: {name}": why for name, why in reasons.items()}
    return Results(
        benchmark, {key: done[str(key)] for key in needs.runs if str(key) in done}, measured
    )


@contextmanager
def _noting_failure(name: str, failed: dict[str, str]) -> Iterator[None]:
    """Notes in one line why something failed, so that the rest can go on."""
    try:
        yield
    except Exception as error:
        text, is_ours = " ".join(str(error).split()), isinstance(error, LocaError)
        for line in () if is_ours else traceback.format_exc().splitlines():
            say(line)
        failed[name] = text if is_ours else f"{type(error).__name__}: {text}"


def _load(request: Reproduction, needs: _Needs) -> Results:
    """What is stored of all that is needed of one benchmark; what is stored of other settings is left out."""
    store, runs, measured = request.store_of(needs.benchmark), dict[Any, Any](), dict[Any, Any]()
    finds: list[tuple[dict[Any, Any], Any, Callable[[], Any]]] = []
    finds += [(runs, key, partial(store.find, run)) for key, run in needs.runs.items()]
    finds += [
        (measured, one.name, partial(load_measured, one, store.runs)) for one in needs.measurements
    ]
    for results, key, find in finds:
        try:
            if (found := find()) is not None:
                results[key] = found
        except ConfigError as error:
            say(f"{key}: left out, stored of other settings ({error})")
    return Results(needs.benchmark, runs, measured)


def measure(one: Measurement, folder: Path) -> Measured:
    """The records of a measurement, measured now and stored, and the seconds that they took."""
    say(f"{one.name}: measured now")
    begun = time.perf_counter()
    records = one.measure()
    seconds = time.perf_counter() - begun
    state = {FINGERPRINT_KEY: {**_WRITTEN_BY, **one.inputs}, "records": records, "seconds": seconds}
    Checkpoint(folder).save(one.name, state)
    return records, seconds


def load_measured(one: Measurement, folder: Path) -> Measured | None:
    """The stored records of a measurement and their seconds, None where there are none; those of other inputs are
    refused."""
    state = Checkpoint(folder).load(one.name)
    if state is None:
        return None
    difference = first_difference(state[FINGERPRINT_KEY], {**_WRITTEN_BY, **one.inputs})
    if difference is not None:
        raise ConfigError(
            f"{folder} holds records of {one.name} that are not those requested: {difference}; start over with "
            "--fresh, or choose another folder"
        )
    return state["records"], state["seconds"]


def describe_run(command: str, studied: Sequence[Results]) -> Provenance:
    """Where the results come from: wherever a run was computed, it says so itself.

    The settings are the sizes of each benchmark and what its models have that is not the default.
    """
    settings, machines = dict[str, Value](), Counter[str]()
    for results in studied:
        one, train = results.benchmark, results.benchmark.split.train
        settings[f"{one.title}: users, items"] = f"{train.n_users:,}, {train.n_items:,}"
        sizes = {name.replace("_", " "): value for name, value in vars(one.sizes).items()}
        settings[f"{one.title}: sizes"] = _in_words(sizes)
        measured = {key.model for key in results.runs if not key.variant}
        for name in (each for each in one.names if each in measured):
            given, model = flat_settings(one.settings_of(name)), one.model(name)
            if size := SIZE_PARAMETERS.get(model.role):
                given |= {size: model.get_params()[size]}
            settings[f"{one.title}: {name}"] = _in_words(given) or "defaults"
        for found in (run.found for run in results.runs.values()):
            machines[
                f"{found.get('machine', 'unknown')}, torch {found.get('torch', 'unknown')}"
            ] += 1
    versions = {"loca": loca.__version__, "python": platform.python_version()}
    for name in _LIBRARIES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    times = {one.benchmark.title: one.seconds for one in studied}
    times |= {"Together": sum(times.values())} if len(times) > 1 else {}
    of_runs = {name: f"{count} runs" for name, count in machines.items()}
    facts: dict[str, Mapping[str, Value]] = {
        "Settings": settings,
        "Versions": versions,
        "Machine": {**of_runs, f"{describe_machine()}, {sys.platform}": "this page"},
        "Time taken": {name: _duration(seconds) for name, seconds in times.items()},
    }
    return Provenance(command, facts)


def _in_words(values: Mapping[str, Value]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _duration(seconds: float) -> str:
    """Seconds below two minutes, minutes below two hours, then hours and minutes."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
