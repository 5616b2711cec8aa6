"""Table 5: how long local models train, by their number, stacked and in a loop."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from loca.experiments.runs import describe_machine
from loca.local.training import EngineName
from loca.models.recommender import clone
from loca.persistence.fit_context import FitCache, FitContext
from loca.registry import KINDS
from loca.reproduction.benchmark import Benchmark, Measurement, PaperItem, Results, level
from loca.reproduction.charts import Chart, Curve
from loca.reproduction.published import printed_seconds
from loca.reproduction.report import Finding, Records, ReportTable, Value
from loca.text_table import TextTable
from loca.tuning.model_selection import selection_data

NAME = "training seconds"
_ENGINES: dict[EngineName, str] = {"stacked": "stacked", "one_by_one": "in a loop"}
Lines = list[dict[str, Any]]


class Table5(PaperItem):
    """Training time of LOCA_VAE by the number of its local models."""

    key = "table5"
    title = "Table 5: training time"
    caption = (
        "Seconds of training: one MultVAE, and all of LOCA_VAE but its global model (anchors, local models, "
        "the global share) by the number of local models, as one stacked network or one after the other, until the "
        "validation score no longer rises. One run each, of MultVAE the quickest of several, on the machine named "
        "below; the paper's seconds are of its own machine, eight models at a time, and stand beside its own protocol "
        "alone."
    )

    def measurements(self, benchmark: Benchmark) -> list[Measurement]:
        """One for each engine and number of models; the loop stops earlier."""
        found = []
        for engine in _ENGINES:
            for count in benchmark.sizes.timed():
                if engine == "stacked" or count <= benchmark.sizes.loop_models:
                    model = clone(benchmark.model("loca-vae"), anchors=count, engine=engine)
                    inputs = benchmark.inputs_of(model, protocol=benchmark.protocol)
                    found.append(Measurement(f"{NAME} {engine} {count}", inputs, partial(_time_fit, benchmark, model)))
        return found

    def tables(self, results: Results) -> Iterator[ReportTable]:
        stacked, loop = (_lines(results, engine) for engine in _ENGINES)
        if not stacked:
            return
        seconds_in_loop = {line["local models"]: f"{line['local seconds']:,.1f}" for line in loop}
        rows = [("MultVAE", f"{_global_seconds(stacked):,.1f}", "", "", _printed(results.benchmark, None))]
        for line in stacked:
            count = line["local models"]
            figures = (f"{line['local seconds']:,.1f}", seconds_in_loop.get(count, ""), str(line["epochs"]))
            rows.append((f"{count}", *figures, _printed(results.benchmark, count)))
        header: tuple[str, ...] = ("local models", "stacked, s", "in a loop, s", "epochs, stacked", "paper, s")
        width = len(header) if any(row[-1] for row in rows) else len(header) - 1  # nothing is printed for these data
        machines = dict.fromkeys(str(line["machine"]) for line in (*stacked, *loop))
        # Said once where all were timed on one machine; seconds of two would compare the machines.
        warning = "" if len(machines) == 1 else "Timed on several machines, whose seconds do not compare: "
        table = TextTable(header[:width], tuple(row[:width] for row in rows))
        yield ReportTable("", table, warning + "; ".join(machines))

    def charts(self, results: Results) -> Iterator[Chart]:
        curves = []
        for engine, label in _ENGINES.items():
            if lines := _lines(results, engine):
                x = tuple(float(line["local models"]) for line in lines)
                curves.append(Curve(label, x, tuple(float(line["local seconds"]) for line in lines)))
        if curves:
            curves += level("MultVAE", _global_seconds(_lines(results, "stacked")))
            yield Chart("", "local models", "seconds", tuple(curves), is_log_x=True, is_log_y=True)

    def records(self, results: Results) -> Iterator[dict[str, Value]]:
        for engine in _ENGINES:
            yield from _lines(results, engine)

    def findings(self, results: Results) -> Iterator[Finding]:
        stacked, loop = (_lines(results, engine) for engine in _ENGINES)
        if stacked and stacked[0]["local models"] == 1:
            one, alone = stacked[0]["local seconds"], _global_seconds(stacked)
            text = f"one local model, with anchors and global share, takes {one:.1f} s, MultVAE {alone:.1f} s."
            yield Finding.on(one < alone, text)
        for same in (line for line in stacked if loop and line["local models"] == loop[-1]["local models"]):
            slow, fast = loop[-1]["local seconds"], same["local seconds"]
            if fast > 0 and same["machine"] == loop[-1]["machine"]:
                text = f"{same['local models']} local models train {slow / fast:.1f} × as fast stacked as in a loop"
                yield Finding("found", f"{text} ({fast:.1f} s against {slow:.1f} s).")


def _time_fit(benchmark: Benchmark, model: Any) -> Records:
    """The seconds of one fit, global model and local models apart."""
    model = clone(model)
    train, validation = selection_data(benchmark.split, benchmark.protocol)
    global_model = clone(model.base if model.global_model is None else model.global_model)
    with tempfile.TemporaryDirectory() as folder:
        context = FitContext(cache=FitCache(Path(folder), KINDS))
        begun = time.perf_counter()
        context.fit_part("global model", global_model, train, validation=validation)
        alone = time.perf_counter() - begun
        begun = time.perf_counter()
        model.fit(train, validation=validation, context=context)  # finds the global model fitted
        whole = time.perf_counter() - begun
    return [
        {
            "engine": model.engine,
            "local models": model.anchors,
            "global seconds": alone,
            "local seconds": whole,
            "epochs": model.local_epochs_,
            "machine": describe_machine(),
        }
    ]


def _lines(results: Results, engine: str) -> Lines:
    lines = [line for line in results.lines(NAME) if line["engine"] == engine]
    return sorted(lines, key=lambda line: int(line["local models"]))


def _global_seconds(lines: Lines) -> float:
    """The least of the seconds that the global model took: what is above it is the machine's doing."""
    return float(min(line["global seconds"] for line in lines))


def _printed(benchmark: Benchmark, count: int | None) -> str:
    seconds = printed_seconds(benchmark.printed_as, count)
    return "" if seconds is None else f"{seconds:,.0f}"
