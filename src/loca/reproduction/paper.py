"""The tables and figures of the paper by the names that the command takes."""

from __future__ import annotations

from collections.abc import Mapping

from loca.errors import ConfigError, did_you_mean
from loca.reproduction.benchmark import PaperItem
from loca.reproduction.figure2 import Figure2
from loca.reproduction.figures import FIGURE_5, FIGURE_6, FIGURE_7, FIGURE_8, Figure4
from loca.reproduction.table1 import Table1
from loca.reproduction.table2 import Table2
from loca.reproduction.table3 import Table3
from loca.reproduction.table4 import Table4
from loca.reproduction.table5 import Table5

_ITEMS: tuple[PaperItem, ...] = (
    *(Table1(), Table2(), Table3(), Table4(), Table5()),
    *(Figure2(), Figure4(), FIGURE_5, FIGURE_6, FIGURE_7, FIGURE_8),
)
PAPER: Mapping[str, PaperItem] = {item.key: item for item in _ITEMS}
ALL = "all"
# What is made of statistics and measurements, not of models' rows.
WITHOUT_ROWS = ("table1", "table4", "table5", "figure2")
# What has no communities that need as many users as they are: Figure 2 takes fewer anchors where there are fewer users.
WITHOUT_COMMUNITIES = ("table1", "figure2")


def find_items(name: str) -> tuple[str, ...]:
    """The names of the tables and figures that a word stands for: one, or all of them."""
    if name == ALL:
        return tuple(PAPER)
    if name not in PAPER:
        known = [*PAPER, ALL]
        nearest = did_you_mean(name, known) or "; there are " + ", ".join(known)
        raise ConfigError(f"unknown table or figure {name!r}{nearest}")
    return (name,)
