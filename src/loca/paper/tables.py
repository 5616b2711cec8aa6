"""Table 1: statistics of the data. Table 3: ways to choose anchors. Table 5: seconds of training."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import numpy as np

from loca.communities.anchors import AnchorSelection, choose_anchors
from loca.communities.embeddings import embed_users
from loca.communities.geometry import (
    Quantile,
    angular_distances,
    epanechnikov,
    resolve_bandwidth,
    unit_rows,
)
from loca.data.datasets import PRINTED, Printed
from loca.data.statistics import Statistics, describe
from loca.experiments.runs import describe_machine
from loca.local.engines.engine import Engine
from loca.local.engines.loop import Loop
from loca.local.engines.stacked.engine import Stacked
from loca.local.loca import Loca
from loca.models.recommender import clone, fitted
from loca.paper.benchmark import Benchmark, Measurement, PaperItem, Part, Results, Runs
from loca.paper.charts import Chart, Curve
from loca.paper.published import printed_seconds, printed_selection
from loca.paper.report import Finding, Records, ReportItem, ReportTable, Value
from loca.paper.seed_means import claimed_gain, level
from loca.paper.stopping import StopEach
from loca.persistence.fit_context import FitCache, FitContext
from loca.registry import KINDS
from loca.text_table import TextTable
from loca.tuning.model_selection import selection_data
from loca.typing import FloatArray

_COUNTS = ("users", "items", "ratings")
_SHARES = ("sparsity", "concentration")
_STATISTICS = (
    "Data",
    "Users",
    "Items",
    "Ratings",
    "Sparsity",
    "Concentration (top 5 %)",
    "Top 2 %",
)
_NOTE = (
    "Every rating counts, repeated ones too, as in the paper. Concentration is the share of the "
    "ratings that the most popular 5 % of the items have; the share of the top 2 % stands beside it, "
    "because the paper's figure for AMusic is nearer to that."
)


class Table1(PaperItem):
    """Users, items, ratings, sparsity and concentration as read here and as the paper prints them."""

    key = "table1"
    title = "Table 1: statistics of the data sets"

    def make(self, studied: Sequence[Results]) -> ReportItem:
        """Return the data as the paper treats it where it has the same, else as it is studied."""
        described: dict[str, Statistics] = {}
        printed: dict[str, Printed] = {}
        for results in studied:
            data = results.benchmark.data
            interactions = data.interactions if data.as_printed is None else data.as_printed
            described[data.label] = describe(interactions)
            if data.printed is not None:
                printed[data.label] = PRINTED[data.printed]
        return self.compare(described, printed)

    def compare(
        self, described: Mapping[str, Statistics], printed: Mapping[str, Printed]
    ) -> ReportItem:
        """Return a row for each data set, and under it the paper's row where it prints one.

        Findings say of each which figures are exactly the printed ones, and by how much the others
        differ; percentages are compared as they are printed, to two decimals.
        """
        rows: list[tuple[str, ...]] = []
        records: Records = []
        findings: list[Finding] = []
        for name, statistics in described.items():
            paper = printed.get(name)
            rows.append((name, *_row(statistics), _percent(statistics.narrow_concentration)))
            records.append(_record(name, statistics, paper))
            if paper is not None:
                rows.append((f"{name}, the paper's", *_row(paper), ""))
                findings += _compared(name, statistics, paper)
        alone = [name for name in described if name not in printed]
        if alone:
            findings.append(Finding("found", f"{_and(alone)}: not in the paper's Table 1."))
        table = TextTable(_STATISTICS, tuple(rows))
        return ReportItem(
            key=self.key,
            title=self.title,
            caption=self.caption,
            tables=(ReportTable("Statistics of the data sets", table, _NOTE),),
            records=tuple(records),
            findings=tuple(findings),
        )


def _record(name: str, statistics: Statistics, paper: Printed | None) -> dict[str, Value]:
    record: dict[str, Value] = {"data": name}
    record |= {column: getattr(statistics, column) for column in _COUNTS}
    record |= {f"{column}_percent": getattr(statistics, column) for column in _SHARES}
    record["top_2_percent"] = statistics.narrow_concentration
    for column in (*_COUNTS, *_SHARES):
        record[f"printed_{column}"] = None if paper is None else getattr(paper, column)
    return record


def _row(statistics: Statistics | Printed) -> list[str]:
    counts = [f"{getattr(statistics, column):,}" for column in _COUNTS]
    return [*counts, *(_percent(getattr(statistics, column)) for column in _SHARES)]


def _compared(name: str, statistics: Statistics, printed: Printed) -> Iterator[Finding]:
    """Return what is the same as in the paper in one sentence, what is not in another."""
    same: list[str] = []
    other: list[str] = []
    for column in (*_COUNTS, *_SHARES):
        here = getattr(statistics, column)
        there = getattr(printed, column)
        if column in _COUNTS:
            texts = (f"{here:,}", f"{there:,}")
            by = f"{here - there:+,}, {(here - there) / there:+.1%}"
        else:
            texts = (_percent(here), _percent(there))
            by = f"{here - there:+.2f} points"
        if texts[0] == texts[1]:
            same.append(f"{column} ({texts[0]})")
        else:
            other.append(f"{column} {texts[0]} here, {texts[1]} printed ({by})")
    narrow = statistics.narrow_concentration
    is_apart = other and other[-1].startswith("concentration")
    gap = abs(statistics.concentration - printed.concentration)
    if is_apart and abs(narrow - printed.concentration) < gap:
        share = _percent(narrow)
        other[-1] += f", to which the share of the top 2 % of the items, {share}, is nearer"
    if same:
        yield Finding("matches", f"{name}: {_and(same)} as printed.")
    if other:
        yield Finding("differs", f"{name}: {'; '.join(other)}.")


def _percent(value: float) -> str:
    return f"{value:.2f} %"


def _and(names: list[str]) -> str:
    if len(names) == 1:
        return names[0]
    return ", ".join(names[:-1]) + " and " + names[-1]


CONTRAST = "coverage by selection"
_SELECTIONS: tuple[AnchorSelection, ...] = ("random", "kmeans", "farthest", "coverage")
_FALLING = ("coverage", "kmeans", "random", "farthest")  # by the paper's coverage
# What random anchors cover in the paper's table, where its coverage-based ones have 88.6 %.
_RANDOM_COVERS = 0.713
_BANDWIDTHS = 12
# Narrow enough that the choice of anchors matters: near the width at which 300 random anchors cover
# that of AMusic. The width that is best for accuracy covers nearly everybody with any few anchors.
_ANSWERS = Quantile(0.02)


class Table3(PaperItem):
    """NDCG@100 of LOCA_VAE, and the share of users that any local model answers for, by the way in
    which anchors are chosen and their number; each model answers for few (h_W 0.02), so that it
    matters who they are. Not refitted, no global share for covered users. The contrast below is of
    coverage alone, at the bandwidth at which random anchors cover what the paper prints for them.
    """

    key = "table3"
    title = "Table 3: how anchors are chosen"

    def runs(self, benchmark: Benchmark) -> Runs:
        """Return one run for each selection, whose first models are the smaller ones.

        k-means has no first ones.
        """
        runs: Runs = {}
        for selection in _SELECTIONS:
            for variant, counts in _variants(benchmark, selection).items():
                runs |= benchmark.varied(
                    variant, counts, anchors=selection, answer_bandwidth=_ANSWERS
                )
        return runs

    def measurements(self, benchmark: Benchmark) -> list[Measurement]:
        """Return the contrast of coverage.

        The bandwidth is that at which random anchors cover what they cover in the paper.
        """
        return benchmark.measurements(CONTRAST, _contrast, anchors=benchmark.sizes.local_models)

    def show(self, results: Results) -> Iterator[Part]:
        """Return accuracy with coverage, and the contrast of coverage alone."""
        for selection in _SELECTIONS:
            for variant, counts in _variants(results.benchmark, selection).items():
                facts: dict[str, Value] = {"selection": selection}
                yield from results.record_runs("loca-vae", variant, facts, counts)
        yield from self._show_accuracy(results)
        yield from self._show_contrast(results)
        best, random = (results.means("loca-vae", f"by {name}") for name in ("coverage", "random"))
        text = "greedy coverage against random anchors: {}."
        yield from claimed_gain(text, best, random, " of NDCG@100")

    def _show_accuracy(self, results: Results) -> Iterator[Part]:
        benchmark = results.benchmark
        thirds = benchmark.sizes.thirds(benchmark.sizes.local_models)
        rows: list[tuple[str, ...]] = []
        printed_rows: list[list[str]] = []
        for selection in _SELECTIONS:
            figures: list[str] = []
            printed: list[str] = []
            for variant, counts in _variants(benchmark, selection).items():
                runs = results.counted("loca-vae", variant)
                for count in counts:
                    text = results.text("loca-vae", variant, count)
                    if text:
                        covered = np.mean([run.coverage_by_count[count] for run in runs])
                        text = f"{text} ({covered:.1%})"
                    figures.append(text)
                    paper = printed_selection(benchmark.printed_as, selection, count)
                    printed.append("" if paper is None else f"{paper[0]:.4f} ({paper[1]:.1%})")
            if any(figures):
                rows.append((selection, *figures))
                printed_rows.append(printed)
        header = ("selection", *(f"{count} models" for count in thirds))
        if any(text for printed in printed_rows for text in printed):
            header = (*header, *(f"paper, {count}" for count in thirds))
            rows = [(*row, *printed) for row, printed in zip(rows, printed_rows, strict=True)]
        if rows:
            yield ReportTable("NDCG@100 (coverage)", TextTable(header, tuple(rows)))

    def _show_contrast(self, results: Results) -> Iterator[Part]:
        lines = results.lines(CONTRAST)
        if not lines:
            return
        n_anchors = results.benchmark.sizes.local_models
        rows = []
        means: dict[str, float] = {}
        for name in _FALLING:
            shares = [float(line["coverage"]) for line in lines if line["selection"] == name]
            means[name] = float(np.mean(shares))
            rows.append((name, f"{means[name]:.1%}", f"{min(shares):.1%} – {max(shares):.1%}"))
        header = (f"selection of {n_anchors} anchors", "coverage", "over seeds")
        heading = "coverage where random anchors cover 71.3 %"
        yield ReportTable(heading, TextTable(header, tuple(rows)))
        for line in lines:
            yield {"measured": "coverage alone", **line}
        falls = all(means[name] >= means[below] for name, below in pairwise(_FALLING))
        listed = ", ".join(f"{name} {means[name]:.1%}" for name in _FALLING)
        yield Finding.on(falls, f"coverage of {n_anchors} anchors: {listed}.")


def _variants(benchmark: Benchmark, selection: str) -> dict[str, tuple[int, ...]]:
    """Return the runs of a selection, with the numbers of models that each is measured with."""
    thirds = benchmark.sizes.thirds(benchmark.sizes.local_models)
    if selection == "kmeans":
        return {f"by kmeans {count}": (count,) for count in thirds}
    return {f"by {selection}": thirds}


def _contrast(benchmark: Benchmark, seed: int) -> Records:
    """Return the share of users that each selection covers at one bandwidth."""
    train, validation = selection_data(benchmark.split, benchmark.protocol)
    model = benchmark.model("mult-vae", seed).fit(train, validation=validation)
    embeddings = unit_rows(embed_users(model, train.matrix()))
    n_anchors = min(benchmark.sizes.local_models, len(embeddings))

    def coverage(selection: AnchorSelection, width: Quantile | float) -> float:
        radius = resolve_bandwidth(width, embeddings, seed)
        return _coverage(embeddings, n_anchors, selection, radius, seed)

    # The bandwidth at which random anchors cover the paper's share, by halving between two
    # quantiles.
    low, high = 0.0, 1.0
    for _ in range(_BANDWIDTHS):
        middle = (low + high) / 2
        if coverage("random", Quantile(middle)) < _RANDOM_COVERS:
            low = middle
        else:
            high = middle
    width = float(resolve_bandwidth(Quantile(high), embeddings, seed))
    return [
        {
            "seed": seed,
            "selection": selection,
            "bandwidth": width,
            "coverage": coverage(selection, width),
        }
        for selection in get_args(AnchorSelection)
    ]


def _coverage(
    embeddings: FloatArray, n: int, selection: AnchorSelection, radius: float, seed: int
) -> float:
    """Return the share of the users whom the kernel of at least one anchor reaches."""
    anchors = choose_anchors(embeddings, n, selection, radius, seed, "auto")
    distances = angular_distances(embeddings, embeddings[anchors])  # (users, anchors)
    is_covered = (epanechnikov(distances, radius) > 0).any(axis=1)
    return float(is_covered.mean())


TIMES = "training seconds"
_ENGINES = {"stacked": "stacked", "loop": "in a loop"}


class Table5(PaperItem):
    """Seconds of training: one MultVAE, and all of LOCA_VAE but its global model (anchors, local
    models, the global share) by the number of local models, as one stacked network or one after the
    other, until the validation score no longer rises. One run each, of MultVAE the quickest of
    several, on the machine named below; the paper's seconds are of its own machine, eight models at
    a time, and stand beside its own protocol alone.
    """

    key = "table5"
    title = "Table 5: training time"

    def measurements(self, benchmark: Benchmark) -> list[Measurement]:
        """Return one for each engine and number of models; the loop stops earlier."""
        measurements = []
        for name in _ENGINES:
            for count in benchmark.sizes.timed():
                if name == "loop" and count > benchmark.sizes.loop_models:
                    continue
                model = _timed_model(benchmark, name, count)
                measurements.append(
                    Measurement(
                        name=f"{TIMES} {name} {count}",
                        inputs=benchmark.inputs_of(model, protocol=benchmark.protocol),
                        measure=partial(_time_fit, benchmark, name, model),
                    )
                )
        return measurements

    def show(self, results: Results) -> Iterator[Part]:
        """Return the seconds as a table and a chart, and what is claimed of them."""
        lines = results.lines(TIMES)
        lines.sort(key=lambda line: int(line["local models"]))
        stacked, loop = (
            [line for line in lines if line["engine"] == engine] for engine in _ENGINES
        )
        yield from (*stacked, *loop)
        if not stacked:
            return
        # The least of the seconds that the global model took: what is above it is the machine's
        # doing.
        alone = float(min(line["global seconds"] for line in stacked))
        curves = [
            Curve(label, _column(own, "local models"), _column(own, "local seconds"))
            for label, own in zip(_ENGINES.values(), (stacked, loop), strict=True)
            if own
        ]
        curves += level("MultVAE", alone)
        yield Chart("", "local models", "seconds", tuple(curves), is_log_x=True, is_log_y=True)
        yield _table_of_seconds(stacked, loop, alone, results.benchmark.printed_as)
        if stacked[0]["local models"] == 1:
            seconds = stacked[0]["local seconds"]
            yield Finding.on(
                seconds < alone,
                f"one local model, with anchors and global share, takes {seconds:.1f} s, "
                f"MultVAE {alone:.1f} s.",
            )
        if loop:
            yield from _speed_of_stacks(stacked, loop[-1])


def _column(lines: Sequence[Mapping[str, Any]], name: str) -> tuple[float, ...]:
    return tuple(float(line[name]) for line in lines)


def _table_of_seconds(
    stacked: Sequence[Mapping[str, Any]],
    loop: Sequence[Mapping[str, Any]],
    alone: float,
    printed_as: str | None,
) -> ReportTable:
    in_loop = {line["local models"]: f"{line['local seconds']:,.1f}" for line in loop}
    rows: list[tuple[str, ...]] = [("MultVAE", f"{alone:,.1f}", "", "")]
    counts: list[int | None] = [None]
    for line in stacked:
        count = line["local models"]
        counts.append(count)
        seconds = f"{line['local seconds']:,.1f}"
        rows.append((f"{count}", seconds, in_loop.get(count, ""), str(line["epochs"])))
    header: tuple[str, ...] = ("local models", "stacked, s", "in a loop, s", "epochs, stacked")
    printed = [printed_seconds(printed_as, count) for count in counts]
    if any(printed):
        header = (*header, "paper, s")
        texts = ["" if seconds is None else f"{seconds:,.0f}" for seconds in printed]
        rows = [(*row, text) for row, text in zip(rows, texts, strict=True)]
    machines = dict.fromkeys(str(line["machine"]) for line in (*stacked, *loop))
    # Said once where all were timed on one machine; seconds of two would compare the machines.
    warning = (
        "" if len(machines) == 1 else "Timed on several machines, whose seconds do not compare: "
    )
    return ReportTable("", TextTable(header, tuple(rows)), warning + "; ".join(machines))


def _speed_of_stacks(
    stacked: Sequence[Mapping[str, Any]], last_in_loop: Mapping[str, Any]
) -> Iterator[Finding]:
    """Return how much faster as many models train as a stack, on the same machine."""
    slow = last_in_loop["local seconds"]
    for line in stacked:
        fast = line["local seconds"]
        is_same = all(line[name] == last_in_loop[name] for name in ("local models", "machine"))
        if is_same and fast > 0:
            yield Finding(
                "found",
                f"{line['local models']} local models train {slow / fast:.1f} × as fast stacked as "
                f"in a loop ({fast:.1f} s against {slow:.1f} s).",
            )


def _timed_model(benchmark: Benchmark, engine: str, count: int) -> Loca:
    """Return LOCA_VAE with so many local models, trained by an engine and stopped as it is."""
    model: Loca = benchmark.model("loca-vae")
    stacked: Engine = model.engine or Stacked()
    loop = StopEach(engine=Loop()) if isinstance(stacked, StopEach) else Loop()
    return clone(
        model,
        communities=model.communities.with_n(count),
        engine=loop if engine == "loop" else stacked,
    )


def _time_fit(benchmark: Benchmark, engine: str, unfitted: Loca) -> Records:
    """Return the seconds of one fit, global model and local models apart."""
    model = clone(unfitted)
    train, validation = selection_data(benchmark.split, benchmark.protocol)
    global_model = clone(model.global_model or model.base)
    with tempfile.TemporaryDirectory() as folder:
        context = FitContext(cache=FitCache(Path(folder), KINDS))
        begun = time.perf_counter()
        context.fit_part("global model", global_model, train, validation=validation)
        global_seconds = time.perf_counter() - begun
        begun = time.perf_counter()
        model.fit(train, validation=validation, context=context)  # finds the global model fitted
        local_seconds = time.perf_counter() - begun
    local = fitted(model.local_, model)
    return [
        {
            "engine": engine,
            "local models": len(local.communities),
            "global seconds": global_seconds,
            "local seconds": local_seconds,
            "epochs": local.models.epochs_,
            "machine": describe_machine(),
        }
    ]
