"""Table 1, the statistics of the data; Table 3, ways to choose anchors; Table 5, the time of training."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import numpy as np

from loca.communities.communities import AnchorSelection, find_communities
from loca.communities.embeddings import embed_users
from loca.communities.geometry import Quantile, resolve_bandwidth, unit_rows
from loca.data.datasets import PRINTED, Printed
from loca.data.statistics import Statistics, describe
from loca.experiments.runs import describe_machine
from loca.local.training import EngineName
from loca.models.recommender import clone
from loca.paper.benchmark import Benchmark, Measurement, PaperItem, Part, Results, Runs
from loca.paper.charts import Chart, Curve
from loca.paper.published import printed_seconds, printed_selection
from loca.paper.report import Finding, Records, ReportItem, ReportTable, Value
from loca.paper.seed_means import claimed_gain, level
from loca.persistence.fit_context import FitCache, FitContext
from loca.registry import KINDS
from loca.text_table import TextTable
from loca.tuning.model_selection import selection_data

_COUNTS, _SHARES = ("users", "items", "ratings"), ("sparsity", "concentration")
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
    "Every rating counts, repeated ones too, as in the paper. Concentration is the share of the ratings that the "
    "most popular 5 % of the items have; the share of the top 2 % stands beside it, because the paper's figure for "
    "AMusic is nearer to that."
)


class Table1(PaperItem):
    """Users, items, ratings, sparsity and concentration as read here, and as the paper prints them."""

    key = "table1"
    title = "Table 1: statistics of the data sets"

    def make(self, studied: Sequence[Results]) -> ReportItem:
        """The data as the paper treats it where it has the same, else as it is studied here."""
        described, printed = dict[str, Statistics](), dict[str, Printed]()
        for data in (one.benchmark.data for one in studied):
            described[data.label] = describe(
                data.interactions if data.as_printed is None else data.as_printed
            )
            printed |= {} if data.printed is None else {data.label: PRINTED[data.printed]}
        return self.compare(described, printed)

    def compare(
        self, described: Mapping[str, Statistics], printed: Mapping[str, Printed]
    ) -> ReportItem:
        """A row for each data set, and under it the paper's row where it prints one.

        Findings say of each which figures are exactly the printed ones, and by how much the others differ; percentages
        are compared as they are printed, to two decimals.
        """
        rows, records, findings = [], [], list[Finding]()
        for name, found in described.items():
            paper = printed.get(name)
            rows.append((name, *_row(found), _percent(found.narrow_concentration)))
            record: dict[str, Value] = {"data": name} | {
                column: getattr(found, column) for column in _COUNTS
            }
            record |= {f"{column}_percent": getattr(found, column) for column in _SHARES}
            record["top_2_percent"] = found.narrow_concentration
            for column in (*_COUNTS, *_SHARES):
                record[f"printed_{column}"] = None if paper is None else getattr(paper, column)
            records.append(record)
            if paper is not None:
                rows.append((f"{name}, the paper's", *_row(paper), ""))
                findings += _compared(name, found, paper)
        if alone := [name for name in described if name not in printed]:
            findings.append(Finding("found", f"{_and(alone)}: not in the paper's Table 1."))
        table = ReportTable(
            "Statistics of the data sets", TextTable(_STATISTICS, tuple(rows)), _NOTE
        )
        return ReportItem(
            self.key, self.title, self.caption, (table,), (), tuple(records), tuple(findings)
        )


def _row(found: Statistics | Printed) -> list[str]:
    counts = (f"{getattr(found, column):,}" for column in _COUNTS)
    return [*counts, *(_percent(getattr(found, column)) for column in _SHARES)]


def _compared(name: str, found: Statistics, printed: Printed) -> Iterator[Finding]:
    """What is the same as in the paper in one sentence, what is not in another."""
    same, other = [], []
    for column in (*_COUNTS, *_SHARES):
        ours, theirs = getattr(found, column), getattr(printed, column)
        is_count = column in _COUNTS
        texts = (f"{ours:,}", f"{theirs:,}") if is_count else (_percent(ours), _percent(theirs))
        by = (
            f"{ours - theirs:+,}, {(ours - theirs) / theirs:+.1%}"
            if is_count
            else f"{ours - theirs:+.2f} points"
        )
        if texts[0] == texts[1]:
            same.append(f"{column} ({texts[0]})")
        else:
            other.append(f"{column} {texts[0]} here, {texts[1]} printed ({by})")
    narrow, printed_share = found.narrow_concentration, printed.concentration
    is_apart = other and other[-1].startswith("concentration")
    if is_apart and abs(narrow - printed_share) < abs(found.concentration - printed_share):
        other[-1] += (
            f", to which the share of the top 2 % of the items, {_percent(narrow)}, is nearer"
        )
    if same:
        yield Finding("matches", f"{name}: {_and(same)} as printed.")
    if other:
        yield Finding("differs", f"{name}: {'; '.join(other)}.")


def _percent(value: float) -> str:
    return f"{value:.2f} %"


def _and(names: list[str]) -> str:
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]


CONTRAST = "coverage by selection"
_SELECTIONS: tuple[AnchorSelection, ...] = ("random", "kmeans", "farthest", "coverage")
_FALLING = ("coverage", "kmeans", "random", "farthest")  # by the paper's coverage
# What random anchors cover in the paper's table, where its coverage-based ones have 88.6 %.
_RANDOM_COVERS = 0.713
_BANDWIDTHS = 12
# Narrow enough that the choice of anchors matters: near the width at which 300 random anchors cover that of AMusic. The
# width that is best for accuracy covers nearly everybody with any few anchors.
_ANSWERS = Quantile(0.02)


class Table3(PaperItem):
    """NDCG@100 of LOCA_VAE, and the share of users that any local model answers for, by the way in which anchors are
    chosen and their number; each model answers for few (h_W 0.02), so that it matters who they are. Not refitted, no
    global share for covered users. The contrast below is of coverage alone, at the bandwidth at which random anchors
    cover what the paper prints for them.
    """

    key = "table3"
    title = "Table 3: how anchors are chosen"

    def runs(self, benchmark: Benchmark) -> Runs:
        """One run for each selection, whose first models are the smaller ones; k-means has no first ones."""
        runs: Runs = {}
        for selection in _SELECTIONS:
            changes = {"anchor_selection": selection, "answer_bandwidth": _ANSWERS}
            for variant, counts in _variants(benchmark, selection).items():
                runs |= benchmark.varied(variant, counts, **changes)
        return runs

    def measurements(self, benchmark: Benchmark) -> list[Measurement]:
        """The contrast of coverage at the bandwidth at which random anchors cover what they cover in the paper."""
        return benchmark.measurements(CONTRAST, _contrast, anchors=benchmark.sizes.local_models)

    def show(self, results: Results) -> Iterator[Part]:
        benchmark, count = results.benchmark, results.benchmark.sizes.local_models
        thirds, rows, beside = benchmark.sizes.thirds(count), [], []
        for selection in _SELECTIONS:
            figures, printed = [], []
            for variant, counts in _variants(benchmark, selection).items():
                runs = results.of("loca-vae", variant)
                yield from results.record_runs(
                    "loca-vae", variant, {"selection": selection}, counts
                )
                for part in counts:
                    covered = [one.found["coverage_by_count"][str(part)] for one in runs]
                    text = results.text("loca-vae", variant, part)
                    figures.append(f"{text} ({np.mean(covered):.1%})" if text else "")
                    paper = printed_selection(benchmark.printed_as, selection, part)
                    printed.append("" if paper is None else f"{paper[0]:.4f} ({paper[1]:.1%})")
            if any(figures):
                rows.append((selection, *figures))
                beside.append(printed)
        header = ("selection", *(f"{part} models" for part in thirds))
        if any(text for printed in beside for text in printed):
            header = (*header, *(f"paper, {part}" for part in thirds))
            rows = [(*row, *printed) for row, printed in zip(rows, beside, strict=True)]
        if rows:
            yield ReportTable("NDCG@100 (coverage)", TextTable(header, tuple(rows)))
        if lines := results.lines(CONTRAST):
            shares = {
                name: [float(one["coverage"]) for one in lines if one["selection"] == name]
                for name in _FALLING
            }
            means = {name: float(np.mean(own)) for name, own in shares.items()}
            ranges = (
                (name, f"{means[name]:.1%}", f"{min(own):.1%} – {max(own):.1%}")
                for name, own in shares.items()
            )
            table = TextTable(
                (f"selection of {count} anchors", "coverage", "over seeds"), tuple(ranges)
            )
            yield ReportTable("coverage where random anchors cover 71.3 %", table)
            yield from ({"measured": "coverage alone", **line} for line in lines)
            falls = all(means[a] >= means[b] for a, b in pairwise(_FALLING))
            listed = ", ".join(f"{name} {means[name]:.1%}" for name in _FALLING)
            yield Finding.on(falls, f"coverage of {count} anchors: {listed}.")
        best, random = (results.means("loca-vae", f"by {name}") for name in ("coverage", "random"))
        yield from claimed_gain(
            "greedy coverage against random anchors: {}.", best, random, " of NDCG@100"
        )


def _variants(benchmark: Benchmark, selection: str) -> dict[str, tuple[int, ...]]:
    """The runs of a selection, with the numbers of models that each is measured with."""
    thirds = benchmark.sizes.thirds(benchmark.sizes.local_models)
    return (
        {f"by kmeans {one}": (one,) for one in thirds}
        if selection == "kmeans"
        else {f"by {selection}": thirds}
    )


def _contrast(benchmark: Benchmark, seed: int) -> Records:
    """The share of users that each selection covers at one bandwidth."""
    train, validation = selection_data(benchmark.split, benchmark.protocol)
    embeddings = embed_users(
        benchmark.model("mult-vae", seed).fit(train, validation=validation), train.matrix()
    )
    count = min(benchmark.sizes.local_models, len(embeddings))

    def covered(selection: AnchorSelection, width: Quantile | float) -> float:
        widths: dict[str, Any] = {"train_bandwidth": width, "answer_bandwidth": width}
        return find_communities(
            embeddings, anchors=count, anchor_selection=selection, seed=seed, **widths
        ).coverage

    # The bandwidth at which random anchors cover the paper's share, by halving between two quantiles.
    low, high = 0.0, 1.0
    for _ in range(_BANDWIDTHS):
        middle = (low + high) / 2
        low, high = (
            (middle, high)
            if covered("random", Quantile(middle)) < _RANDOM_COVERS
            else (low, middle)
        )
    width = float(resolve_bandwidth(Quantile(high), unit_rows(embeddings), seed))
    return [
        {
            "seed": seed,
            "selection": selection,
            "bandwidth": width,
            "coverage": covered(selection, width),
        }
        for selection in get_args(AnchorSelection)
    ]


TIMES = "training seconds"
_ENGINES: dict[EngineName, str] = {"stacked": "stacked", "one_by_one": "in a loop"}


class Table5(PaperItem):
    """Seconds of training: one MultVAE, and all of LOCA_VAE but its global model (anchors, local models, the global
    share) by the number of local models, as one stacked network or one after the other, until the validation score no
    longer rises. One run each, of MultVAE the quickest of several, on the machine named below; the paper's seconds are
    of its own machine, eight models at a time, and stand beside its own protocol alone.
    """

    key = "table5"
    title = "Table 5: training time"

    def measurements(self, benchmark: Benchmark) -> list[Measurement]:
        """One for each engine and number of models; the loop stops earlier."""
        found = []
        for engine in _ENGINES:
            for count in benchmark.sizes.timed():
                if engine == "stacked" or count <= benchmark.sizes.loop_models:
                    model = clone(benchmark.model("loca-vae"), anchors=count, engine=engine)
                    inputs = benchmark.inputs_of(model, protocol=benchmark.protocol)
                    found.append(
                        Measurement(
                            f"{TIMES} {engine} {count}",
                            inputs,
                            partial(_time_fit, benchmark, model),
                        )
                    )
        return found

    def show(self, results: Results) -> Iterator[Part]:
        lines, printed_as = results.lines(TIMES), results.benchmark.printed_as
        lines.sort(key=lambda line: int(line["local models"]))
        stacked, loop = (
            [line for line in lines if line["engine"] == engine] for engine in _ENGINES
        )
        yield from (*stacked, *loop)
        curves = []
        for label, own in zip(_ENGINES.values(), (stacked, loop), strict=True):
            x, y = (
                tuple(float(line[key]) for line in own) for key in ("local models", "local seconds")
            )
            curves += [Curve(label, x, y)] if own else []
        if not stacked:
            return
        # The least of the seconds that the global model took: what is above it is the machine's doing.
        alone = float(min(line["global seconds"] for line in stacked))
        curves += level("MultVAE", alone)
        yield Chart("", "local models", "seconds", tuple(curves), is_log_x=True, is_log_y=True)
        in_loop = {line["local models"]: f"{line['local seconds']:,.1f}" for line in loop}
        rows = [("MultVAE", f"{alone:,.1f}", "", "")]
        for line in stacked:
            count = line["local models"]
            rows.append(
                (
                    f"{count}",
                    f"{line['local seconds']:,.1f}",
                    in_loop.get(count, ""),
                    str(line["epochs"]),
                )
            )
        counts = (None, *(line["local models"] for line in stacked))
        printed = [printed_seconds(printed_as, count) for count in counts]
        header: tuple[str, ...] = ("local models", "stacked, s", "in a loop, s", "epochs, stacked")
        table = TextTable(header, tuple(rows))
        if any(printed):
            texts = ("" if one is None else f"{one:,.0f}" for one in printed)
            beside = tuple((*row, text) for row, text in zip(rows, texts, strict=True))
            table = TextTable((*header, "paper, s"), beside)
        machines = dict.fromkeys(str(line["machine"]) for line in (*stacked, *loop))
        # Said once where all were timed on one machine; seconds of two would compare the machines.
        warning = (
            ""
            if len(machines) == 1
            else "Timed on several machines, whose seconds do not compare: "
        )
        yield ReportTable("", table, warning + "; ".join(machines))
        if stacked[0]["local models"] == 1:
            one = stacked[0]["local seconds"]
            text = f"one local model, with anchors and global share, takes {one:.1f} s, MultVAE {alone:.1f} s."
            yield Finding.on(one < alone, text)
        for same in (
            line for line in stacked if loop and line["local models"] == loop[-1]["local models"]
        ):
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
    facts = {
        "engine": model.engine,
        "local models": model.anchors,
        "global seconds": alone,
        "local seconds": whole,
    }
    return [{**facts, "epochs": model.local_epochs_, "machine": describe_machine()}]
