"""An exhibit as records and back, for one that comes from a fitted model which is not kept."""

from __future__ import annotations

import json
from typing import Any

from loca.experiments.grid import Grid
from loca.reproduction.bench import Records
from loca.reproduction.exhibit import Exhibit, Finding, Panel


def as_records(exhibit: Exhibit) -> Records:
    """One record that holds the exhibit's words, tables and records; charts have no place in it."""
    told = {
        "key": exhibit.key,
        "title": exhibit.title,
        "caption": exhibit.caption,
        "panels": [_written(panel) for panel in exhibit.panels],
        "records": [dict(line) for line in exhibit.records],
        "findings": [[one.kind, one.text] for one in exhibit.findings],
    }
    return [{"exhibit": json.dumps(told, ensure_ascii=False)}]


def from_records(records: Records) -> Exhibit:
    """The exhibit again."""
    told: dict[str, Any] = json.loads(str(records[0]["exhibit"]))
    return Exhibit(
        key=told["key"],
        title=told["title"],
        caption=told["caption"],
        panels=tuple(_read(panel) for panel in told["panels"]),
        records=tuple(told["records"]),
        findings=tuple(Finding(kind, text) for kind, text in told["findings"]),
    )


def _written(panel: Panel) -> dict[str, Any]:
    return {
        "heading": panel.heading,
        "note": panel.note,
        "header": panel.grid.header,
        "rows": panel.grid.rows,
    }


def _read(panel: dict[str, Any]) -> Panel:
    grid = Grid(tuple(panel["header"]), tuple(tuple(row) for row in panel["rows"]))
    return Panel(panel["heading"], grid, panel["note"])
