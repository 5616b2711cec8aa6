"""The tables and figures of the paper by the names that the command takes."""

from __future__ import annotations

from collections.abc import Mapping

from loca.errors import ConfigError, did_you_mean
from loca.reproduction.benchmark import PaperItem
from loca.reproduction.figure2 import Figure2
from loca.reproduction.figures import Figure4, Figure5, Figure6, Figure7, Figure8
from loca.reproduction.table2 import Table2
from loca.reproduction.table4 import Table4
from loca.reproduction.tables import Table1, Table3, Table5

_TABLES: tuple[type[PaperItem], ...] = (Table1, Table2, Table3, Table4, Table5)
_FIGURES: tuple[type[PaperItem], ...] = (Figure2, Figure4, Figure5, Figure6, Figure7, Figure8)
PAPER: Mapping[str, PaperItem] = {item.key: item() for item in (*_TABLES, *_FIGURES)}
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
