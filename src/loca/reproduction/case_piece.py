"""Table 4 on a bench: the model that is asked, and one exhibit out of those of all data sets."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from loca.experiments.grid import Grid
from loca.experiments.protocols import chosen_on
from loca.local.loca import Loca
from loca.models.recommender import Recommender, clone
from loca.reproduction.bench import Bench, Records, Results
from loca.reproduction.case_study import find_case
from loca.reproduction.case_table import case_exhibit
from loca.reproduction.exhibit import Exhibit, Finding, Panel
from loca.reproduction.measurings import Measuring, exactly

NAME = "case study"


def measurings(bench: Bench) -> list[Measuring]:
    """One where the items have genres and choices are made on validation."""
    if not bench.data.genres or bench.protocol != "clean":
        return []
    items = bench.split.test.histories.items
    subject = {
        "data": bench.digest,
        "genres": _digest_of(sorted(map(repr, bench.data.genres.items()))),
        "titles": _digest_of([] if items.labels is None else map(repr, items.labels.tolist())),
        **exactly(_asked_model(bench)),
    }
    return [Measuring(NAME, subject, _Case(bench))]


def _digest_of(lines: Iterable[str]) -> str:
    """A short text that changes with any line; the digest of the data knows neither genres nor titles."""
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=16).hexdigest()


def _asked_model(bench: Bench) -> Recommender:
    """LOCA_VAE whose covered users the local models alone answer for, as in the paper."""
    model = bench.model("loca-vae")
    return clone(model, anchors=bench.scale.sweep_models, alpha="paper") if isinstance(model, Loca) else model


@dataclass(frozen=True, eq=False)
class _Case:
    """Fits the model and looks for the user of two tastes."""

    bench: Bench

    def __call__(self) -> Records:
        train, questions = chosen_on(self.bench.split, "clean")
        model: Any = _asked_model(self.bench)
        found = find_case(model.fit(train, validation=questions), self.bench.split, self.bench.data.genres)
        return as_records(case_exhibit(found, data=self.bench.data.label))


def make(studied: Sequence[Results]) -> Exhibit:
    """The case studies of all data sets whose items have genres."""
    found = [from_records(one.records[NAME]) for one in studied if NAME in one.records]
    if not found:
        text = (
            "No case study: it needs items with genres, as MovieLens has them (by its name, such as --data ml-1m), and "
            "the protocol clean."
        )
        title = "Table 4: what local models recommend to a user of two tastes"
        return Exhibit("table4", title, "", findings=(Finding("found", text),))
    if len(found) == 1:
        return found[0]
    return Exhibit(
        key="table4",
        title="Table 4: what local models recommend to users of two tastes",
        caption=found[0].caption,
        panels=tuple(panel for one in found for panel in one.panels),
        records=tuple(line for one in found for line in one.records),
        findings=tuple(finding for one in found for finding in one.findings),
    )


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
