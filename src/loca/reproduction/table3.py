"""Table 3: four ways to choose anchors, by the number of local models, with the share of users that they cover."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, get_args

import numpy as np

from loca.communities.communities import AnchorSelection, find_communities
from loca.communities.embeddings import embed_users
from loca.communities.geometry import Floats, Quantile, resolve_bandwidth, unit_rows
from loca.experiments.runs import Run
from loca.reproduction.benchmark import Benchmark, Records, Results, in_words, over_seeds
from loca.reproduction.figures import lines_of, varied_cells
from loca.reproduction.measurings import Measurement, exactly
from loca.reproduction.published import printed_name, printed_selection
from loca.reproduction.report_items import Finding, ReportItem, ReportTable, Value
from loca.text_table import TextTable
from loca.tuning.model_selection import selection_data

CONTRAST = "coverage by selection"
_SELECTIONS: tuple[AnchorSelection, ...] = ("random", "kmeans", "farthest", "coverage")
# What random anchors cover in the paper's table, where its coverage-based ones have 88.6 %.
_RANDOM_COVERS = 0.713
_BANDWIDTHS = 12
# Narrow enough that the choice of anchors matters: near the width at which 300 random anchors cover that of AMusic. The
# width that is best for accuracy covers nearly everybody with any few anchors.
_ANSWERS = Quantile(0.02)


def needed(bench: Benchmark) -> dict[str, Run]:
    """The cells: one run for each selection, whose first models are the smaller ones; k-means has no first ones."""
    cells: dict[str, Run] = {}
    for selection in _SELECTIONS:
        for called, counts in _runs(bench, selection).items():
            cells |= varied_cells(bench, called, counts, anchor_selection=selection, answer_bandwidth=_ANSWERS)
    return cells


def measurings(bench: Benchmark) -> list[Measurement]:
    """The contrast of coverage at the bandwidth at which random anchors cover what they cover in the paper."""
    return [
        Measurement(f"{CONTRAST} seed {seed}", _subject(bench, seed), _Contrast(bench, seed))
        for seed in range(bench.scale.seeds)
    ]


def _subject(bench: Benchmark, seed: int) -> dict[str, Any]:
    where = {"data": bench.digest, "protocol": bench.protocol, "anchors": bench.scale.local_models}
    return {**where, **exactly(bench.model("mult-vae", seed))}


@dataclass(frozen=True, eq=False)
class _Contrast:
    """Measures the share of users that each selection covers at one bandwidth."""

    bench: Benchmark
    seed: int

    def __call__(self) -> Records:
        bench, seed = self.bench, self.seed
        train, questions = selection_data(bench.split, bench.protocol)
        model: Any = bench.model("mult-vae", seed)
        embeddings = embed_users(model.fit(train, validation=questions), train.matrix())
        bandwidth = self._bandwidth(embeddings)
        records = Records()
        for selection in get_args(AnchorSelection):
            covered = self._covered(embeddings, selection, bandwidth)
            records.append({"seed": seed, "selection": selection, "bandwidth": bandwidth, "coverage": covered})
        return records

    def _bandwidth(self, embeddings: Floats) -> float:
        """The bandwidth at which random anchors cover the paper's share, by halving between two quantiles."""
        low, high = 0.0, 1.0
        for _ in range(_BANDWIDTHS):
            middle = (low + high) / 2
            covered = self._covered(embeddings, "random", Quantile(middle))
            low, high = (middle, high) if covered < _RANDOM_COVERS else (low, middle)
        return self._units(embeddings, Quantile(high))

    def _units(self, embeddings: Floats, width: Quantile) -> float:
        return float(resolve_bandwidth(width, unit_rows(embeddings), self.seed))

    def _covered(self, embeddings: Floats, selection: AnchorSelection, width: Quantile | float) -> float:
        count = min(self.bench.scale.local_models, len(embeddings))
        found = find_communities(
            embeddings,
            anchors=count,
            anchor_selection=selection,
            train_bandwidth=width,
            answer_bandwidth=width,
            seed=self.seed,
        )
        return found.coverage


def make(studied: Sequence[Results]) -> ReportItem:
    """The table as it came out on every bench."""
    return ReportItem(
        key="table3",
        title="Table 3: how anchors are chosen",
        caption="NDCG@100 of LOCA_VAE, and the share of users that any local model answers for, by the way in which "
        "anchors are chosen and their number; each model answers for few (h_W 0.02), so that it matters who they "
        "are. Not refitted, no global share for covered users. The contrast below is of coverage alone, at the "
        "bandwidth at which random anchors cover what the paper prints for them.",
        panels=tuple(panel for results in studied for panel in _panels(results)),
        records=tuple(line for results in studied for line in _records(results)),
        findings=tuple(finding for results in studied for finding in _findings(results)),
    )


def _counts(bench: Benchmark) -> tuple[int, ...]:
    return bench.scale.thirds(bench.scale.local_models)


def _runs(bench: Benchmark, selection: str) -> dict[str, tuple[int, ...]]:
    """The cells of a selection, by name, with the numbers of models that each is measured with."""
    thirds = _counts(bench)
    if selection != "kmeans":
        return {f"loca-vae by {selection}": thirds}
    return {f"loca-vae by {selection} {count}": (count,) for count in thirds}


def _panels(results: Results) -> Iterator[ReportTable]:
    bench, thirds = results.bench, _counts(results.bench)
    rows = []
    for selection in _SELECTIONS:
        cells, printed = [], []
        for called, counts in _runs(bench, selection).items():
            for count in counts:
                means = over_seeds(results.of(called), count)
                cells.append("" if means is None else f"{means.told()} ({_coverage(results, called, count):.1%})")
                told = printed_selection(printed_name(bench), selection, count)
                printed.append("" if told is None else f"{told[0]:.4f} ({told[1]:.1%})")
        if any(cells):
            rows.append((selection, *cells, *(printed if any(printed) else [])))
    header = ("selection", *(f"{count} models" for count in thirds))
    if rows and len(rows[0]) > len(header):
        header = (*header, *(f"paper, {count}" for count in thirds))
    rows = [row if len(row) == len(header) else (*row, *[""] * (len(header) - len(row))) for row in rows]
    if rows:
        yield ReportTable(f"{bench.data.label}, {bench.protocol}: NDCG@100 (coverage)", TextTable(header, tuple(rows)))
    contrast = _contrast(results)
    if contrast:
        lines = tuple((name, f"{np.mean(shares):.1%}", _range(shares)) for name, shares in contrast.items())
        count = bench.scale.local_models
        grid = TextTable((f"selection of {count} anchors", "coverage", "over seeds"), lines)
        yield ReportTable(f"{bench.data.label}, {bench.protocol}: coverage where random anchors cover 71.3 %", grid)


def _range(shares: Sequence[float]) -> str:
    return f"{min(shares):.1%} – {max(shares):.1%}"


def _coverage(results: Results, called: str, count: int) -> float:
    return float(np.mean([one.found["coverage_by_count"][str(count)] for one in results.of(called)]))


def _contrast(results: Results) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for selection in ("coverage", "kmeans", "random", "farthest"):
        for name, records in results.records.items():
            if name.startswith(CONTRAST):
                found.setdefault(selection, []).extend(
                    float(one["coverage"] or 0) for one in records if one["selection"] == selection
                )
    return found


def _records(results: Results) -> Iterator[dict[str, Value]]:
    bench = results.bench
    for selection in _SELECTIONS:
        for called, counts in _runs(bench, selection).items():
            yield from lines_of(results, called, {"selection": selection}, counts)
    for name, records in results.records.items():
        if name.startswith(CONTRAST):
            for line in records:
                yield {"data": bench.data.name, "protocol": bench.protocol, "measured": "coverage alone", **line}


def _findings(results: Results) -> Iterator[Finding]:
    where = f"{results.bench.data.label}, {results.bench.protocol}"
    contrast = {name: float(np.mean(shares)) for name, shares in _contrast(results).items()}
    if contrast:
        ordered = ["coverage", "kmeans", "random", "farthest"]
        falls = all(contrast[a] >= contrast[b] for a, b in pairwise(ordered))
        told = ", ".join(f"{name} {contrast[name]:.1%}" for name in ordered)
        yield Finding.on(falls, f"{where}: coverage of {results.bench.scale.local_models} anchors: {told}.")
    best = over_seeds(results.of("loca-vae by coverage"))
    random = over_seeds(results.of("loca-vae by random"))
    if best is not None and random is not None:
        paired = best.minus(random)
        told = in_words(paired, " of NDCG@100")
        yield Finding.on(paired.low > 0, f"{where}: greedy coverage against random anchors: {told}.")
