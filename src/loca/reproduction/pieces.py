"""The pieces of the paper by the names that the command takes: what each needs, and how it is made of that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from loca.data.presets import PRESETS
from loca.data.statistics import describe
from loca.errors import ConfigError, did_you_mean
from loca.experiments.cells import Cell
from loca.reproduction import (
    accuracy_table,
    anchor_table,
    bandwidth_figures,
    case_piece,
    count_figures,
    pilot_figure,
    ratings_figure,
    training_time,
)
from loca.reproduction.bench import Bench, Results
from loca.reproduction.exhibit import Exhibit
from loca.reproduction.measurings import Measuring
from loca.reproduction.statistics_table import statistics_exhibit


def _nothing(bench: Bench) -> dict[str, Cell]:
    return {}


def _no_measurings(bench: Bench) -> list[Measuring]:
    return []


@dataclass(frozen=True)
class Piece:
    """A table or figure: the cells and the measurings that it needs of a bench, and how it is made of the results."""

    make: Callable[[Sequence[Results]], Exhibit]
    cells: Callable[[Bench], dict[str, Cell]] = _nothing
    measurings: Callable[[Bench], list[Measuring]] = _no_measurings


def _statistics(studied: Sequence[Results]) -> Exhibit:
    """Table 1: the data as the paper treats it where it has the same, else as it is studied here."""
    by_label = {one.bench.data.label: one.bench.data for one in studied}
    described = {
        label: describe(data.interactions if data.as_printed is None else data.as_printed)
        for label, data in by_label.items()
    }
    printed = {label: PRESETS[data.printed].printed for label, data in by_label.items() if data.printed is not None}
    return statistics_exhibit(described, printed)


PIECES: Mapping[str, Piece] = {
    "table1": Piece(_statistics),
    "table2": Piece(accuracy_table.make, accuracy_table.needed),
    "table3": Piece(anchor_table.make, anchor_table.needed, anchor_table.measurings),
    "table4": Piece(case_piece.make, measurings=case_piece.measurings),
    "table5": Piece(training_time.make, measurings=training_time.measurings),
    "figure2": Piece(pilot_figure.make, measurings=pilot_figure.measurings),
    "figure4": Piece(ratings_figure.make, ratings_figure.needed),
    "figure5": Piece(count_figures.make_by_number, count_figures.needed_by_number),
    "figure6": Piece(count_figures.make_by_base, count_figures.needed_by_base),
    "figure7": Piece(bandwidth_figures.make_by_training, bandwidth_figures.needed_by_training),
    "figure8": Piece(bandwidth_figures.make_by_answering, bandwidth_figures.needed_by_answering),
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
