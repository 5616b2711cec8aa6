"""A reproduction: the asked pieces on all benches, computed or found kept, and written as files and one page."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import loca
from loca.errors import ConfigError, LocaError
from loca.experiments.cell_store import CellStore
from loca.experiments.fitted_facts import describe_machine
from loca.experiments.side_by_side import CellPlan, compute_here, compute_side_by_side
from loca.progress import say
from loca.reproduction.accuracy_table import headlines
from loca.reproduction.bench import CONTROLS, LOCALS, Bench, Results, base_of
from loca.reproduction.exhibit import Exhibit, Provenance, Value
from loca.reproduction.exhibit_files import write_exhibit, write_whole
from loca.reproduction.measurings import find_or_measure
from loca.reproduction.page import page_of
from loca.reproduction.pieces import PIECES

PAGE = "report.html"
KEPT = "kept"
TUNED = "tuning"
_LIBRARIES = ("torch", "numpy", "scipy", "scikit-learn", "polars", "matplotlib")


@dataclass(frozen=True)
class Reproduction:
    """What was asked for: the pieces, the benches, the folder that keeps everything, and the command in words.

    With `only` no cells but those of these models are computed, and nothing that is no cell.
    """

    pieces: tuple[str, ...]
    benches: tuple[Bench, ...]
    folder: Path
    command: str
    processes: int = 1
    only: tuple[str, ...] = ()

    def store_of(self, bench: Bench) -> CellStore:
        """Where the cells of a bench are kept."""
        return CellStore(self.folder / KEPT / bench.name, keeps_begun=False)


def check_start(folder: Path, *, resume: bool, fresh: bool) -> None:
    """Refuses a folder with results of an earlier run that the caller neither goes on with nor drops."""
    if resume and fresh:
        raise ConfigError("--resume goes on with what is kept, --fresh drops it; expected one of them, found both")
    if any((folder / one).exists() for one in (KEPT, TUNED)) and not (resume or fresh):
        raise ConfigError(
            f"{folder} holds results of an earlier run; add --resume to take them and go on, or --fresh to start over"
        )


def reproduce(asked: Reproduction, *, resume: bool) -> tuple[Exhibit, ...]:
    """Computes what is not kept yet, and writes every piece and the page; the exhibits.

    Cells that fail do not stop the others: what could be made is written, and then the failures are told.
    """
    failed, studied = dict[str, str](), []
    for bench in asked.benches:
        results, why = _study(asked, bench, resume)
        studied.append(results)
        failed |= {f"{bench.name}: {name}": reason for name, reason in why.items()}
    made = (PIECES[name].make(studied) for name in asked.pieces)
    exhibits = tuple(replace(exhibit, commands=(asked.command,)) for exhibit in made)
    for exhibit in exhibits:
        write_exhibit(exhibit, asked.folder)
    page = page_of(headlines(studied), exhibits, _provenance(asked, studied), "LOCA: the paper, reproduced")
    write_whole(asked.folder / PAGE, page.encode())
    if failed:
        told = "; ".join(f"{name}: {why}" for name, why in failed.items())
        raise LocaError(f"{told}; {asked.folder} keeps the others, --resume tries again")
    return exhibits


def models_of(pieces: Sequence[str], bench: Bench, only: Sequence[str] = ()) -> tuple[str, ...]:
    """The models that the pieces ask for on a bench, each local one with its base, in the bench's order."""
    called = {name.split(" ")[0] for piece in pieces for name in PIECES[piece].cells(bench)}
    if not only and any(PIECES[piece].measurings(bench) for piece in pieces):
        called |= {"loca-vae"}
    asked = {name for name in called if not only or name in only}
    bases = {base_of(name) for name in asked if name in (*LOCALS, *CONTROLS)}
    return tuple(name for name in bench.names if name in asked | bases)


def _study(asked: Reproduction, bench: Bench, resume: bool) -> tuple[Results, dict[str, str]]:
    """What comes of all pieces on one bench, and why cells failed that did."""
    store = asked.store_of(bench)
    wanted = [PIECES[name] for name in asked.pieces]
    cells = {called: cell for piece in wanted for called, cell in piece.cells(bench).items()}
    if asked.only:
        cells = {called: cell for called, cell in cells.items() if called.split(" ")[0] in asked.only}
    plan = CellPlan(tuple(cells), {}, lambda name, done: cells[name])
    failed: dict[str, str] = {}
    say(f"{bench.name}: {len(cells)} cells")
    with store.opened(plan.names, resume=resume):
        done = plan.find_done(store)
        if len(done) < len(cells):
            store.begin()
        if asked.processes > 1:
            failed = compute_side_by_side(plan, done, bench.split, store, asked.processes)
        else:
            compute_here(plan, done, bench.split, store)
        measurings = [] if asked.only else [one for piece in wanted for one in piece.measurings(bench)]
        records = find_or_measure(measurings, store.cells)
        if not failed:
            store.finish()
    return Results(bench, done, records), failed


def _provenance(asked: Reproduction, studied: Sequence[Results]) -> Provenance:
    settings: dict[str, Value] = {}
    for results in studied:
        bench = results.bench
        settings[f"{bench.name}: users, items"] = f"{bench.split.train.n_users:,}, {bench.split.train.n_items:,}"
        for name, value in vars(bench.scale).items():
            settings[name.replace("_", " ")] = value
    return Provenance(
        commands=(asked.command,),
        settings=settings,
        versions={"loca": loca.__version__, "python": platform.python_version(), **_versions()},
        machine=_machines(studied),
        seconds=_seconds(studied),
    )


def _versions() -> dict[str, str]:
    """Of the libraries that are installed."""
    found = {}
    for name in _LIBRARIES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _machines(studied: Sequence[Results]) -> Mapping[str, str]:
    """The machines that the cells were computed on, and how many each; the one that wrote the page."""
    found: dict[str, int] = {}
    for results in studied:
        for one in results.cells.values():
            told = f"{one.found.get('machine', 'unknown')}, torch {one.found.get('torch', 'unknown')}"
            found[told] = found.get(told, 0) + 1
    cells = {f"{count} cells": machine for machine, count in found.items()}
    return {**cells, "this page": f"{describe_machine()}, {sys.platform}"}


def _seconds(studied: Sequence[Results]) -> dict[str, float]:
    """The seconds of all cells of each bench together, wherever they were computed."""
    return {one.bench.name: sum(cell.seconds for cell in one.cells.values()) for one in studied}
