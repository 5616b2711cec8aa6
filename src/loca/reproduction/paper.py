"""The pieces of the paper by the names that the command takes: what each needs, and how it is made of that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from loca.data.datasets import PRINTED
from loca.data.statistics import describe
from loca.errors import ConfigError, did_you_mean
from loca.experiments.runs import Run
from loca.reproduction import figure2, figures, table2, table3, table4, table5
from loca.reproduction.benchmark import Benchmark, Results
from loca.reproduction.measurings import Measurement
from loca.reproduction.report_items import ReportItem
from loca.reproduction.table1 import statistics_exhibit


def _nothing(bench: Benchmark) -> dict[str, Run]:
    return {}


def _no_measurings(bench: Benchmark) -> list[Measurement]:
    return []


@dataclass(frozen=True)
class Piece:
    """A table or figure: the cells and the measurings that it needs of a bench, and how it is made of the results."""

    make: Callable[[Sequence[Results]], ReportItem]
    cells: Callable[[Benchmark], dict[str, Run]] = _nothing
    measurings: Callable[[Benchmark], list[Measurement]] = _no_measurings


def _statistics(studied: Sequence[Results]) -> ReportItem:
    """Table 1: the data as the paper treats it where it has the same, else as it is studied here."""
    by_label = {one.bench.data.label: one.bench.data for one in studied}
    described = {
        label: describe(data.interactions if data.as_printed is None else data.as_printed)
        for label, data in by_label.items()
    }
    printed = {label: PRINTED[data.printed] for label, data in by_label.items() if data.printed is not None}
    return statistics_exhibit(described, printed)


PIECES: Mapping[str, Piece] = {
    "table1": Piece(_statistics),
    "table2": Piece(table2.make, table2.needed),
    "table3": Piece(table3.make, table3.needed, table3.measurings),
    "table4": Piece(table4.make, measurings=table4.measurings),
    "table5": Piece(table5.make, measurings=table5.measurings),
    "figure2": Piece(figure2.make, measurings=figure2.measurings),
    "figure4": Piece(figures.make, figures.needed),
    "figure5": Piece(figures.make_by_number, figures.needed_by_number),
    "figure6": Piece(figures.make_by_base, figures.needed_by_base),
    "figure7": Piece(figures.make_by_training, figures.needed_by_training),
    "figure8": Piece(figures.make_by_answering, figures.needed_by_answering),
}
ALL = "all"
# What is made of statistics, timings, lists or models that answer one by one, not of models' rows.
WITHOUT_ROWS = ("table1", "table4", "table5", "figure2")
# What has no communities that need as many users as they are: Figure 2 takes fewer anchors where there are fewer users.
WITHOUT_COMMUNITIES = ("table1", "figure2")


def find_pieces(name: str) -> tuple[str, ...]:
    """The names of the pieces that a word asks for: one, or all of them."""
    if name == ALL:
        return tuple(PIECES)
    if name not in PIECES:
        known = [*PIECES, ALL]
        raise ConfigError(f"unknown piece {name!r}{did_you_mean(name, known) or '; there are ' + ', '.join(known)}")
    return (name,)
