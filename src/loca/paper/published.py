"""The figures that the paper prints in Tables 2, 3 and 5, read from the tables beside this file."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

_COLUMNS = {
    "wmf": "WMF", "slim": "SLIM", "cdae": "CDAE", "mult-vae": "MultVAE", "ease": "EASE", "rec-vae": "RecVAE",
    "llorma": "LLORMA", "sglsvd": "sGLSVD", "loca-vae": "LOCA_VAE", "loca-ease": "LOCA_EASE",
    "paper-loca-vae": "LOCA_VAE", "paper-loca-ease": "LOCA_EASE",
}  # fmt: skip


@cache
def _rows(name: str) -> tuple[Mapping[str, str], ...]:
    text = (files("loca.paper") / "printed_tables" / f"{name}.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def printed_accuracy(data: str | None, model: str, metric: str) -> float | None:
    """Return Table 2's figure of a model on one of the paper's data sets, if printed."""
    for row in _rows("table2"):
        if row["dataset"] == data and row["metric"].lower() == metric and model in _COLUMNS:
            return float(row[_COLUMNS[model]])
    return None


def printed_selection(data: str | None, selection: str, count: int) -> tuple[float, float] | None:
    """Return Table 3's NDCG@100 and coverage, as a share, of a way to choose anchors, if printed."""
    for row in _rows("table3"):
        if (row["dataset"], row["anchor_selection"], row["local_models"]) == (
            data,
            selection,
            str(count),
        ):
            return float(row["ndcg_at_100"]), float(row["coverage_percent"]) / 100
    return None


def printed_seconds(data: str | None, count: int | None) -> float | None:
    """Return Table 5's seconds of so many local models, or of MultVAE for None, if printed."""
    column = "MultVAE" if count is None else f"local_{count}"
    for row in _rows("table5"):
        if row["dataset"] == data and column in row:
            return float(row[column])
    return None
