"""A reproduction: the asked pieces on all benches, computed or found kept, and written as files and one page."""

from __future__ import annotations

import platform
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import loca
from loca.data.splits import Split
from loca.errors import ConfigError, LocaError
from loca.experiments.parallel import Done, RunPlan, execute_here, execute_parallel
from loca.experiments.report import flat_settings
from loca.experiments.runs import ComparedModel, Run, RunStore, describe_machine
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.persistence.atomic_write import write_whole
from loca.progress import say
from loca.reproduction.benchmark import AUTHORS, CONTROLS, LOCALS, Benchmark, Records, Results, base_of
from loca.reproduction.measurings import Measurement, find_kept, find_or_measure, seconds_kept
from loca.reproduction.paper import PIECES
from loca.reproduction.report import ENDINGS, page_of, write_exhibit
from loca.reproduction.report_items import Provenance, ReportItem, Value
from loca.reproduction.table2 import differences, headlines

PAGE = "report.html"
KEPT = "kept"
TUNED = "tuning"


def check_start(folder: Path, *, resume: bool, fresh: bool) -> None:
    """Refuses a folder with results of an earlier run that the caller neither goes on with nor drops.

    Nor are pieces replaced without being told to whose results lie elsewhere: they could not be made again from here.
    """
    if resume and fresh:
        raise ConfigError("--resume goes on with what is kept, --fresh drops it; expected one of them, found both")
    has_results = any((folder / one).exists() for one in (KEPT, TUNED))
    if has_results and not (resume or fresh):
        raise ConfigError(
            f"{folder} holds results of an earlier run; add --resume to take them and go on, or --fresh to start over"
        )
    made = (PAGE, *(f"{name}.{ending}" for name in PIECES for ending in ENDINGS))
    there = next((one for one in made if (folder / one).exists()), None)
    if there is not None and not has_results and not fresh:
        raise ConfigError(
            f"{folder} holds {there} without the results that it was made of, and would lose it; choose another "
            "folder with --out, or add --fresh to replace it"
        )


_LIBRARIES = ("torch", "numpy", "scipy", "scikit-learn", "polars", "matplotlib")


@dataclass(frozen=True)
class Reproduction:
    """What was asked for: the pieces, the benches, the folder that keeps everything, and the command in words.

    With `only` no cells but those of these models are computed, and nothing that is no cell. What does not compute
    shows what is kept.
    """

    pieces: tuple[str, ...]
    benches: tuple[Benchmark, ...]
    folder: Path
    command: str
    processes: int = 1
    only: tuple[str, ...] = ()
    computes: bool = True

    def store_of(self, bench: Benchmark) -> RunStore:
        """Where the cells of a bench are kept."""
        return RunStore(self.folder / KEPT / bench.name, keeps_begun=False)


def reproduce(asked: Reproduction, *, resume: bool) -> tuple[ReportItem, ...]:
    """Computes what is not kept yet, and writes every piece and the page; the exhibits that were asked for.

    Without `resume` what the folder keeps of the benches is dropped, once all that is asked for is known to be sound.
    With `only` what is kept of other models is shown too. What fails does not stop the rest: what could be made is
    written, and then the failures are told. The page also holds pieces of earlier runs whose results are all kept.
    """
    works = [_Work.of(asked, bench) for bench in asked.benches]
    _check_no_rows(asked, works)
    if not resume:
        _drop(asked)
    _tell_others(asked)
    failed, studied = dict[str, str](), []
    for work in works:
        results, why = _study(asked, work) if asked.computes else (_recalled(asked, work), {})
        studied.append(_with_kept(asked, results) if asked.only else results)
        failed |= {f"{work.bench.name}: {name}": reason for name, reason in why.items()}
    if not asked.computes:
        for work, results in zip(works, studied, strict=True):
            say(f"{work.bench.name}: {len(results.cells)} of {len(work.cells)} cells are kept")
        _check_nothing(asked, works, studied)
    shown = {name: _that_tell(name, asked, studied) for name in asked.pieces}
    exhibits = {name: _made(name, seen, asked, asked.command) for name, seen in shown.items() if seen}
    for exhibit in exhibits.values():
        write_exhibit(exhibit, asked.folder)
    _write_page(asked, exhibits, studied)
    if failed:
        told = "; ".join(f"{name}: {why}" for name, why in failed.items())
        raise LocaError(f"{told}; {asked.folder} keeps the others, --resume tries again")
    return tuple(exhibits.values())


@dataclass(frozen=True, eq=False)
class _Work:
    """All that pieces need of one bench."""

    bench: Benchmark
    cells: Mapping[str, Run]
    measurings: Sequence[Measurement]

    @classmethod
    def of(cls, asked: Reproduction, bench: Benchmark) -> _Work:
        wanted = [PIECES[name] for name in asked.pieces]
        cells = {called: cell for piece in wanted for called, cell in piece.cells(bench).items()}
        measurings = [one for piece in wanted for one in piece.measurings(bench)]
        if asked.only:
            cells = {called: cell for called, cell in cells.items() if called.split(" ")[0] in asked.only}
            measurings = []
        return cls(bench, cells, measurings)

    def is_done_by(self, results: Results) -> bool:
        """Whether nothing of it is missing there."""
        return len(results.cells) == len(self.cells) and len(results.records) == len(self.measurings)

    def missing_in(self, results: Results) -> str:
        """What is missing there, in words; nothing where all of it is there."""
        seeds: dict[str, list[str]] = {}
        for called in self.cells:
            if called not in results.cells:
                name, seed = called.split(" seed ")
                seeds.setdefault(name, []).append(seed)
        told = [f"{one} (seed {' and '.join(its)})" if results.of(one) else one for one, its in seeds.items()]
        told += [one.name for one in self.measurings if one.name not in results.records]
        return f"{results.bench.title}: {', '.join(told)}" if told else ""

    def plan(self) -> RunPlan:
        return RunPlan(tuple(self.cells), {}, lambda name, done: self.cells[name])


def _write_page(asked: Reproduction, exhibits: Mapping[str, ReportItem], studied: Sequence[Results]) -> None:
    """The page of the exhibits, and of earlier ones that lie in the folder and whose results are all kept."""
    shown, seen = dict(exhibits), list(studied)
    for name in PIECES:
        if name not in exhibits and (asked.folder / f"{name}.md").exists():
            kept = _find_kept(name, asked)
            if kept is not None:
                shown[name] = _made(name, kept, asked, _command_for(name, asked.command))
                found = {one.bench.name: one for one in kept}
                seen = [_joined(one, found[one.bench.name]) if one.bench.name in found else one for one in seen]
    ordered = [shown[name] for name in PIECES if name in shown]
    rivals = [differences(one) for one in seen]
    run = describe_run(asked.command, seen)
    page = page_of(headlines(seen, rivals), ordered, run, "LOCA: the paper, reproduced")
    write_whole(asked.folder / PAGE, page)


def _command_for(name: str, command: str) -> str:
    """The same command for another piece: WHAT is its third word."""
    loca, reproduce_, _, *more = command.split(" ", 3)
    return " ".join([loca, reproduce_, name, *more])


def _joined(first: Results, second: Results) -> Results:
    """What came of different pieces on one bench; no measuring is of two pieces."""
    return replace(
        first,
        cells={**first.cells, **second.cells},
        records={**first.records, **second.records},
        measuring_seconds=first.measuring_seconds + second.measuring_seconds,
    )


def _made(name: str, studied: Sequence[Results], asked: Reproduction, command: str) -> ReportItem:
    works = [_Work.of(replace(asked, pieces=(name,), only=()), one.bench) for one in studied]
    missing = (work.missing_in(one) for work, one in zip(works, studied, strict=True))
    return replace(PIECES[name].make(studied), commands=(command,), missing=tuple(filter(None, missing)))


def _check_nothing(asked: Reproduction, works: Sequence[_Work], studied: Sequence[Results]) -> None:
    """Refuses to write pieces over those that are there when nothing of them is kept."""
    if any(work.cells or work.measurings for work in works) and not any(one.cells or one.records for one in studied):
        benches = ", ".join(one.bench.name for one in studied)
        raise ConfigError(f"{asked.folder}: nothing is kept of {benches}; leave out --kept-only to compute it")


def _that_tell(name: str, asked: Reproduction, studied: Sequence[Results]) -> list[Results]:
    """What is shown in a piece: all benches, but of kept results alone only those that something is kept of.

    Nothing of a piece that needs results and has none, such as one whose models were not asked for: an empty one would
    take the place of one that was made before.
    """
    works = [_Work.of(replace(asked, pieces=(name,), only=()), one.bench) for one in studied]
    needed = [{*work.cells, *(one.name for one in work.measurings)} for work in works]
    found = [not its.isdisjoint((*one.cells, *one.records)) for one, its in zip(studied, needed, strict=True)]
    if any(needed) and not any(found):
        return []
    if asked.computes:
        return list(studied)
    return [one for one, its, has_any in zip(studied, needed, found, strict=True) if has_any or not its]


def _find_kept(name: str, asked: Reproduction) -> list[Results] | None:
    """All that a piece needs of every bench, if it is kept; of kept results alone, what there is. Computes nothing."""
    piece = replace(asked, pieces=(name,), only=())
    works = [_Work.of(piece, bench) for bench in asked.benches]
    studied = [_recalled(asked, work) for work in works]
    if asked.computes and not all(map(_Work.is_done_by, works, studied)):
        return None
    return _that_tell(name, piece, studied) or None


def _drop(asked: Reproduction) -> None:
    """Drops the results of the benches; those of others stay."""
    for bench in asked.benches:
        if (asked.folder / KEPT / bench.name).exists():
            with asked.store_of(bench).opened((), resume=False):
                pass


def _tell_others(asked: Reproduction) -> None:
    """Says what the folder also keeps: pieces and page are of what was asked for alone."""
    found = sorted(one.parent.name for one in (asked.folder / KEPT).glob("*/cells"))
    others = [name for name in found if name not in {bench.name for bench in asked.benches}]
    if others:
        say(f"{asked.folder} also keeps {', '.join(others)}, which is not asked for and not shown")


def _check_no_rows(asked: Reproduction, works: Sequence[_Work]) -> None:
    """Refuses models of which the pieces have none."""
    if asked.only and not any(work.cells for work in works):
        whole = [_Work.of(replace(asked, only=()), bench) for bench in asked.benches]
        there = dict.fromkeys(called.split(" ")[0] for work in whole for called in work.cells)
        raise ConfigError(f"models: none of {', '.join(asked.only)} is asked for; there are {', '.join(there)}")


def _with_kept(asked: Reproduction, results: Results) -> Results:
    """The results, and what is kept of all other models."""
    whole = replace(asked, only=())
    return _joined(_recalled(whole, _Work.of(whole, results.bench)), results)


def models_of(pieces: Sequence[str], bench: Benchmark, only: Sequence[str] = ()) -> tuple[str, ...]:
    """The models that the pieces ask for on a bench, each local one with its base, in the bench's order."""
    called = {name.split(" ")[0] for piece in pieces for name in PIECES[piece].cells(bench)}
    if not only and any(PIECES[piece].measurings(bench) for piece in pieces):
        called |= {"loca-vae"}
    asked = {name for name in called if not only or name in only}
    bases = {base_of(name) for name in asked if name in (*LOCALS, *CONTROLS, *AUTHORS)}
    return tuple(name for name in bench.names if name in asked | bases)


def _study(asked: Reproduction, work: _Work) -> tuple[Results, dict[str, str]]:
    """What comes of all that is needed of one bench, and why that failed which did."""
    bench, store, plan = work.bench, asked.store_of(work.bench), work.plan()
    say(f"{bench.name}: {len(work.cells)} cells, {len(work.measurings)} other measurings")
    with store.opened(plan.names, resume=True):
        done = plan.find_done(store)
        if len(done) < len(work.cells) or work.measurings:
            store.begin()
        if asked.processes > 1:
            failed = execute_parallel(plan, done, bench.split, store, asked.processes)
        else:
            failed = _compute_each(plan, done, bench.split, store)
        records: dict[str, Records] = {}
        for place, one in enumerate(work.measurings):
            with _telling(one.name, failed):
                say(f"{len(work.measurings) - place} measurings left")
                records[one.name] = find_or_measure(one, store.runs)
        if not failed:
            store.finish()
    return Results(bench, done, records, seconds_kept(work.measurings, store.runs)), failed


def _recalled(asked: Reproduction, work: _Work) -> Results:
    """What is kept of all that is needed of one bench; what is kept of other settings is left out."""
    store = asked.store_of(work.bench)
    cells, records, seconds = dict[str, ComparedModel](), dict[str, Records](), 0.0
    for called, cell in work.cells.items():
        with _leaving_out(called):
            found = store.find(cell)
            cells |= {} if found is None else {called: found}
    for one in work.measurings:
        with _leaving_out(one.name):
            lines = find_kept(one, store.runs)
            records |= {} if lines is None else {one.name: lines}
            seconds += seconds_kept([one], store.runs)
    return Results(work.bench, cells, records, seconds)


@contextmanager
def _leaving_out(name: str) -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        say(f"{name}: left out, kept of other settings ({error})")


def _compute_each(plan: RunPlan, done: Done, split: Split, store: RunStore) -> dict[str, str]:
    """Puts to `done` all other cells, one after the other; why those failed that did."""
    failed: dict[str, str] = {}
    while names := plan.ready(done, failed):
        one = replace(plan, names=(names[0],))
        with _telling(names[0], failed):
            say(f"{len(plan.names) - len(done) - len(failed)} cells left")
            execute_here(one, done, split, store)
    return failed


@contextmanager
def _telling(name: str, failed: dict[str, str]) -> Iterator[None]:
    """Takes down in one line why a piece of work failed, so that the rest can go on."""
    try:
        yield
    except LocaError as error:
        failed[name] = " ".join(str(error).split())
    except Exception as error:
        for line in traceback.format_exc().splitlines():
            say(line)
        failed[name] = f"{type(error).__name__}: {' '.join(str(error).split())}"


def describe_run(command: str, studied: Sequence[Results]) -> Provenance:
    """What the results come from: wherever a cell was computed, it says so itself."""
    settings: dict[str, Value] = {}
    for results in studied:
        settings |= _settings(results)
    return Provenance(
        commands=(command,),
        settings=settings,
        versions={"loca": loca.__version__, "python": platform.python_version(), **_versions()},
        machine=_machines(studied),
        seconds={one.bench.title: one.seconds for one in studied},
    )


def _settings(results: Results) -> dict[str, Value]:
    """The sizes of a bench and the settings of its models, where they are not the defaults."""
    bench = results.bench
    told: dict[str, Value] = {
        f"{bench.title}: users, items": f"{bench.split.train.n_users:,}, {bench.split.train.n_items:,}",
        f"{bench.title}: sizes": _in_words(
            {name.replace("_", " "): value for name, value in vars(bench.scale).items()}
        ),
    }
    measured = {called.split(" seed ")[0] for called in results.cells}
    for name in (one for one in bench.names if one in measured):
        told[f"{bench.title}: {name}"] = _in_words(_given(bench, name)) or "defaults"
    return told


def _given(bench: Benchmark, name: str) -> dict[str, Value]:
    """The settings that a model was given, with the number of its models as the sizes have it."""
    given, model = flat_settings(bench.tables.get(name, {})), bench.model(name)
    if isinstance(model, Loca):
        return given | {"anchors": model.anchors}
    return given | {"models": model.models} if isinstance(model, Ensemble) else given


def _in_words(values: Mapping[str, Value]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _versions() -> dict[str, str]:
    """Of the libraries that are installed."""
    found = {}
    for name in _LIBRARIES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _machines(studied: Sequence[Results]) -> Mapping[str, str]:
    """The machines that cells were computed on, and how many each; the one that wrote the page."""
    found: dict[str, int] = {}
    for results in studied:
        for one in results.cells.values():
            told = f"{one.found.get('machine', 'unknown')}, torch {one.found.get('torch', 'unknown')}"
            found[told] = found.get(told, 0) + 1
    return {
        **{told: f"{count} cells" for told, count in found.items()},
        f"{describe_machine()}, {sys.platform}": "this page",
    }
