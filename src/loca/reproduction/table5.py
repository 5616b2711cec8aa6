"""Table 5: how long local models train, by their number, stacked and in a loop."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loca.experiments.runs import describe_machine
from loca.local.loca import Loca
from loca.local.training import EngineName
from loca.models.recommender import clone
from loca.persistence.fit_context import FitCache, FitContext
from loca.registry import KINDS
from loca.reproduction.benchmark import Benchmark, Records, Results
from loca.reproduction.measurings import Measurement, exactly
from loca.reproduction.published import printed_name, printed_seconds
from loca.reproduction.report_items import Chart, Curve, Finding, ReportItem, ReportTable, Value
from loca.text_table import TextTable
from loca.tuning.model_selection import selection_data

NAME = "training seconds"
_ENGINES: dict[EngineName, str] = {"stacked": "stacked", "one_by_one": "in a loop"}


def measurings(bench: Benchmark) -> list[Measurement]:
    """One for each engine and number of models; the loop stops earlier."""
    asked = []
    where = {"data": bench.digest, "protocol": bench.protocol}
    for engine in _ENGINES:
        for count in bench.scale.timed():
            if engine == "stacked" or count <= bench.scale.loop_models:
                timing = _Timing(bench, engine, count)
                asked.append(Measurement(f"{NAME} {engine} {count}", where | exactly(timing.model()), timing))
    return asked


@dataclass(frozen=True, eq=False)
class _Timing:
    """Times one fit, global model and local models apart."""

    bench: Benchmark
    engine: EngineName
    count: int

    def model(self) -> Loca:
        """LOCA_VAE with so many local models, trained that way."""
        model = self.bench.model("loca-vae")
        if not isinstance(model, Loca):
            raise TypeError(f"loca-vae: expected a Loca, found {type(model).__name__}")
        return clone(model, anchors=self.count, engine=self.engine)

    def __call__(self) -> Records:
        train, questions = selection_data(self.bench.split, self.bench.protocol)
        model = self.model()
        with tempfile.TemporaryDirectory() as folder:
            context = FitContext(cache=FitCache(Path(folder), KINDS))
            global_model = clone(model.base if model.global_model is None else model.global_model)
            begun = time.perf_counter()
            context.fit_part("global model", global_model, train, validation=questions)
            alone = time.perf_counter() - begun
            begun = time.perf_counter()
            model.fit(train, validation=questions, context=context)  # finds the global model fitted
            whole = time.perf_counter() - begun
        return [
            {
                "engine": self.engine,
                "local models": self.count,
                "global seconds": alone,
                "local seconds": whole,
                "epochs": model.local_epochs_,
                "machine": describe_machine(),
            }
        ]


def make(studied: Sequence[Results]) -> ReportItem:
    """The table as it came out on every bench."""
    return ReportItem(
        key="table5",
        title="Table 5: training time",
        caption="Seconds of training: one MultVAE, and all of LOCA_VAE but its global model (anchors, local models, "
        "the global share) by the number of local models, as one stacked network or one after the other, until the "
        "validation score no longer rises. One run each, of MultVAE the quickest of several, on the machine named "
        "below; the paper's seconds are of its own machine, eight models at a time, and stand beside its own protocol "
        "alone.",
        panels=tuple(panel for results in studied for panel in _panel(results)),
        charts=tuple(chart for results in studied for chart in _chart(results)),
        records=tuple(line for results in studied for line in _records(results)),
        findings=tuple(finding for results in studied for finding in _findings(results)),
    )


def _lines(results: Results, engine: str) -> list[dict[str, Any]]:
    found = [line for name, records in results.records.items() if name.startswith(NAME) for line in records]
    return sorted((line for line in found if line["engine"] == engine), key=lambda line: int(line["local models"] or 0))


def _panel(results: Results) -> Iterator[ReportTable]:
    bench = results.bench
    stacked, loop = _lines(results, "stacked"), _lines(results, "one_by_one")
    if not stacked:
        return
    in_loop = {line["local models"]: line for line in loop}
    rows: list[tuple[str, ...]] = [("MultVAE", _seconds(_global(stacked)), "", "", _printed(bench, None))]
    for line in stacked:
        count = int(line["local models"])
        other = in_loop.get(count)
        told = "" if other is None else _seconds(other["local seconds"])
        rows.append((f"{count}", _seconds(line["local seconds"]), told, str(line["epochs"]), _printed(bench, count)))
    header: tuple[str, ...] = ("local models", "stacked, s", "in a loop, s", "epochs, stacked", "paper, s")
    if not any(row[-1] for row in rows):  # nothing is printed for these data
        header, rows = header[:-1], [row[:-1] for row in rows]
    machines = dict.fromkeys(str(line["machine"]) for line in (*stacked, *loop))
    # Told once where all were timed on one machine; seconds of two would compare the machines.
    warning = "" if len(machines) == 1 else "Timed on several machines, whose seconds do not compare: "
    yield ReportTable(bench.title, TextTable(header, tuple(rows)), warning + "; ".join(machines))


def _global(lines: Sequence[dict[str, Any]]) -> float:
    """The least of the seconds that the global model took: what is above it is the machine's doing."""
    return float(min(line["global seconds"] for line in lines))


def _seconds(seconds: float) -> str:
    return f"{seconds:,.1f}"


def _printed(bench: Benchmark, count: int | None) -> str:
    seconds = printed_seconds(printed_name(bench), count)
    return "" if seconds is None else f"{seconds:,.0f}"


def _chart(results: Results) -> Iterator[Chart]:
    curves = []
    for engine, called in _ENGINES.items():
        lines = _lines(results, engine)
        if lines:
            x = tuple(float(line["local models"]) for line in lines)
            curves.append(Curve(called, x, tuple(float(line["local seconds"]) for line in lines)))
    if curves:
        alone = _global(_lines(results, "stacked"))
        curves.append(Curve("MultVAE", (), (alone,), is_level=True))
        title = results.bench.title
        yield Chart(title, "local models", "seconds", tuple(curves), is_log_x=True, is_log_y=True)


def _records(results: Results) -> Iterator[dict[str, Value]]:
    for engine in _ENGINES:
        for line in _lines(results, engine):
            yield {"data": results.bench.data.name, "protocol": results.bench.protocol, **line}


def _findings(results: Results) -> Iterator[Finding]:
    stacked, loop = _lines(results, "stacked"), _lines(results, "one_by_one")
    if stacked and stacked[0]["local models"] == 1:
        one, alone = float(stacked[0]["local seconds"]), _global(stacked)
        text = f"{results.bench.title}: one local model, with anchors and global share, takes {one:.1f} s, MultVAE"
        yield Finding.on(one < alone, f"{text} {alone:.1f} s.")
    if not stacked or not loop:
        return
    count = loop[-1]["local models"]
    same = next((line for line in stacked if line["local models"] == count), None)
    if same is not None and same["local seconds"] > 0 and same["machine"] == loop[-1]["machine"]:
        ratio = loop[-1]["local seconds"] / same["local seconds"]
        where = results.bench.title
        text = f"{where}: {count} local models train {ratio:.1f} × as fast stacked as in a loop"
        yield Finding("found", f"{text} ({same['local seconds']:.1f} s against {loop[-1]['local seconds']:.1f} s).")
