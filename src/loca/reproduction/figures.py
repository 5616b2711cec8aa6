"""Figures 5 and 6: accuracy by the number of local models, beside the controls, and over two base models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from loca.communities.communities import AnchorSelection
from loca.communities.geometry import Bandwidth, Quantile
from loca.evaluation.significance import bootstrap_intervals
from loca.experiments.runs import ComparedModel, Run
from loca.local.loca import Loca
from loca.models.recommender import clone
from loca.reproduction.benchmark import (
    MAIN,
    METRICS,
    Benchmark,
    Records,
    Results,
    SeedMeans,
    as_value,
    in_words,
    labelled,
    over_seeds,
)
from loca.reproduction.report_items import Chart, Curve, Finding, ReportItem, ReportTable, Value
from loca.text_table import TextTable


def varied_cells(
    bench: Benchmark,
    called: str,
    counts: Sequence[int],
    *,
    anchor_selection: AnchorSelection = "coverage",
    train_bandwidth: Bandwidth | None = None,
    answer_bandwidth: Bandwidth | None = None,
) -> dict[str, Run]:
    """LOCA_VAE with one choice varied, as many models as the largest of `counts`, once for each seed.

    The global model has no share in the answers of covered users, as in the paper, so that what is varied shows. A
    sweep is not refitted on validation: it is there to be compared with itself. The cells of a seed have one global
    model, which is fitted once.
    """
    cells = {}
    for seed in range(bench.scale.seeds):
        model = bench.model("loca-vae", seed)
        if not isinstance(model, Loca):
            raise TypeError(f"loca-vae: expected a Loca, found {type(model).__name__}")
        varied = clone(
            model,
            anchors=max(counts),
            anchor_selection=anchor_selection,
            train_bandwidth=model.train_bandwidth if train_bandwidth is None else train_bandwidth,
            answer_bandwidth=model.answer_bandwidth if answer_bandwidth is None else answer_bandwidth,
            alpha="paper",
        )
        cell = bench.cell(called, varied, seed, counts=counts, refit=False, shares_parts=True)
        cells[cell.name] = cell
    return cells


def curve(label: str, x: Sequence[float], means: Sequence[SeedMeans | None]) -> Curve:
    """A line of NDCG@100 with intervals over users and the single seeds; points without figures are left out."""
    points = [(place, one) for place, one in zip(x, means, strict=True) if one is not None]
    intervals = [one.interval() for _, one in points]
    seeds = min((len(one.evaluations) for _, one in points), default=0)
    return Curve(
        label=label,
        x=tuple(float(place) for place, _ in points),
        y=tuple(one.mean() for _, one in points),
        low=tuple(low for low, _ in intervals),
        high=tuple(high for _, high in intervals),
        seeds=tuple(tuple(one.of_seeds()[seed] for _, one in points) for seed in range(seeds if seeds > 1 else 0)),
    )


def level(label: str, means: SeedMeans | None) -> tuple[Curve, ...]:
    """A dashed level at the NDCG@100 of a model; nothing where it was not measured."""
    return () if means is None else (Curve(label, (), (means.mean(),), is_level=True),)


def lines_of(
    results: Results, called: str, told: dict[str, Value], counts: Sequence[int] = ()
) -> list[dict[str, Value]]:
    """The lines of CSV of cells of one name: one for each seed and number of local models."""
    bench, lines = results.bench, Records()
    for measured in results.of(called):
        for count in counts or (None,):
            means = over_seeds([measured], count)
            if means is None:
                continue
            line: dict[str, Value] = {"data": bench.data.name, "protocol": bench.protocol, **told}
            line |= {"seed": measured.evaluation.seed}
            line |= {} if count is None else {"local models": count}
            lines.append(line | {metric: means.mean(metric) for metric in METRICS} | _found_sweeps(measured, count))
    return lines


def _found_sweeps(measured: ComparedModel, count: int | None) -> dict[str, Value]:
    found: dict[str, Any] = dict(measured.found)
    covered = found.pop("coverage_by_count", {})
    if count is not None and str(count) in covered:
        found["coverage"] = covered[str(count)]
    return {f"found {key}": as_value(value) for key, value in found.items()} | {"seconds": measured.seconds}


_FIGURE_5 = ("loca-vae", "llorma-vae", "ensemble-vae")
_FIGURE_6 = ("loca-vae", "loca-dae")


def needed_by_number(bench: Benchmark) -> dict[str, Run]:
    """The cells of Figure 5, which are rows of Table 2."""
    return _rows(bench, ("mult-vae", *_FIGURE_5))


def needed_by_base(bench: Benchmark) -> dict[str, Run]:
    """The cells of Figure 6, which are rows of Table 2."""
    return _rows(bench, ("mult-vae", "mult-dae", *_FIGURE_6))


def make_by_number(studied: Sequence[Results]) -> ReportItem:
    """Figure 5."""
    return ReportItem(
        key="figure5",
        title="Figure 5: the number of local models",
        caption="NDCG@100 of LOCA_VAE, LLORMA_VAE (one kernel to train and to answer) and the ensemble (all weights 1) "
        "by the number of models, beside the one MultVAE. Points of one line are the first models of one run, "
        "whose epochs and global share were chosen for all of them.",
        panels=_panels(studied, _FIGURE_5, ("mult-vae",)),
        charts=tuple(_chart(one, _FIGURE_5, ("mult-vae",)) for one in _counted(studied, _FIGURE_5)),
        records=_records(studied, _FIGURE_5, ("mult-vae",)),
        findings=tuple(_findings(studied)),
    )


def make_by_base(studied: Sequence[Results]) -> ReportItem:
    """Figure 6."""
    return ReportItem(
        key="figure6",
        title="Figure 6: other base models",
        caption="NDCG@100 of LOCA over DAE and over VAE by the number of local models; dashed, the bases alone.",
        panels=_panels(studied, _FIGURE_6, ("mult-vae", "mult-dae")),
        charts=tuple(_chart(one, _FIGURE_6, ("mult-vae", "mult-dae")) for one in _counted(studied, _FIGURE_6)),
        records=_records(studied, _FIGURE_6, ("mult-vae", "mult-dae")),
        findings=tuple(_gains_over_base(studied)),
    )


def counts_of(results: Results, name: str) -> tuple[int, ...]:
    """The numbers of models that a row was measured with."""
    measured = results.of(name)
    return tuple(measured[0].by_count) if measured else ()


def _counted(studied: Sequence[Results], names: Sequence[str]) -> list[Results]:
    """Those that any of the models was measured on by its number of models."""
    return [results for results in studied if any(counts_of(results, name) for name in names)]


def _rows(bench: Benchmark, names: Sequence[str]) -> dict[str, Run]:
    return {called: cell for name in names for called, cell in bench.row(name).items()}


def _chart(results: Results, names: Sequence[str], alone: Sequence[str]) -> Chart:
    curves = []
    for name in names:
        counts = counts_of(results, name)
        if counts:
            curves.append(
                curve(
                    results.named(name, labelled(name)), counts, [over_seeds(results.of(name), one) for one in counts]
                )
            )
    for name in alone:
        curves += level(results.named(name, labelled(name)), over_seeds(results.of(name)))
    title = results.bench.title
    return Chart(title, "number of local models", "NDCG@100", tuple(curves), is_log_x=True)


def _panels(studied: Sequence[Results], names: Sequence[str], alone: Sequence[str]) -> tuple[ReportTable, ...]:
    """Models by their number, and below them the bases alone, which have but one."""
    panels = []
    for results in _counted(studied, names):
        counts = sorted({count for name in names for count in counts_of(results, name)})
        rows = []
        for name in (one for one in names if counts_of(results, one)):
            own = counts_of(results, name)
            means = [over_seeds(results.of(name), one) if one in own else None for one in counts]
            rows.append((results.named(name, labelled(name)), *("" if one is None else one.told() for one in means)))
        for name in alone:
            base = over_seeds(results.of(name))
            if base is not None:
                rows.append((f"{results.named(name, labelled(name))}, one", base.told(), *("" for _ in counts[1:])))
        header = ("NDCG@100 with local models", *map(str, counts))
        panels.append(ReportTable(results.bench.title, TextTable(header, tuple(rows))))
    return tuple(panels)


def _records(studied: Sequence[Results], names: Sequence[str], alone: Sequence[str]) -> tuple[dict[str, Value], ...]:
    lines = []
    for results in studied:
        for name in names:
            lines += lines_of(results, name, {"model": name}, counts_of(results, name))
        for name in alone:
            lines += lines_of(results, name, {"model": name})
    return tuple(lines)


def _findings(studied: Sequence[Results]) -> Iterator[Finding]:
    for results in studied:
        counts = counts_of(results, "loca-vae")
        where = results.bench.title
        whole = over_seeds(results.of("loca-vae"))
        if not counts or whole is None:
            continue
        # Of two numbers the middle is the larger, which is the whole itself.
        half = counts[min(len(counts) // 2, len(counts) - 2)] if len(counts) > 1 else None
        few = None if half is None else over_seeds(results.of("loca-vae"), half)
        if few is not None:
            more = whole.minus(few)
            text = f"{where}: {counts[-1]} instead of {half} local models change NDCG@100 by"
            yield Finding.on(more.low > 0, f"{text} {in_words(more)}.")
        for name, told in (("ensemble-vae", "the ensemble of as many MultVAEs"), ("llorma-vae", "LLORMA_VAE")):
            other = over_seeds(results.of(name))
            # Fewer seeds than LOCA_VAE has would be held against all of its.
            if other is not None and not results.lacks_seeds(name):
                paired = whole.minus(other)
                yield Finding.on(paired.low > 0, f"{where}: LOCA_VAE over {told}: {in_words(paired)}.")


def _gains_over_base(studied: Sequence[Results]) -> Iterator[Finding]:
    for results in studied:
        for name, base in (("loca-vae", "mult-vae"), ("loca-dae", "mult-dae")):
            own, other = over_seeds(results.of(name)), over_seeds(results.of(base))
            if own is not None and other is not None:
                paired = own.minus(other)
                where = results.bench.title
                told = f"{labelled(name)} over {labelled(base)}"
                yield Finding.on(paired.low > 0, f"{where}: {told}: {in_words(paired)}.")


_NAMES = ("mult-vae", "ensemble-vae", "loca-vae")
_GROUPS = 5


def needed(bench: Benchmark) -> dict[str, Run]:
    """The cells of the figure, which are rows of Table 2."""
    return {called: cell for name in _NAMES for called, cell in bench.row(name).items()}


def make(studied: Sequence[Results]) -> ReportItem:
    """The figure as it came out on every bench."""
    return ReportItem(
        key="figure4",
        title="Figure 4: users by their number of ratings",
        caption="NDCG@100 of MultVAE, the ensemble of as many and LOCA_VAE, for five groups of users, each about a "
        "fifth of them, by the number of ratings that their history holds when they are asked.",
        panels=tuple(panel for results in studied for panel in _panel(results)),
        charts=tuple(chart for results in studied for chart in _chart_ratings(results)),
        records=tuple(line for results in studied for line in _records_ratings(results)),
        findings=tuple(finding for results in studied for finding in _findings_ratings(results)),
    )


def group_users(counts: npt.NDArray[np.int64], groups: int = _GROUPS) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    """The group of each user and the groups' names, such as 10–14: about equal shares of the users, ties together."""
    bounds = np.unique(np.quantile(counts, np.arange(1, groups) / groups, method="higher"))
    group_of = np.searchsorted(bounds, counts, side="right")
    used, group_of = np.unique(group_of, return_inverse=True)
    names = []
    for group in range(len(used)):
        inside = counts[group_of == group]
        names.append(f"{inside.min()}–{inside.max()}" if inside.min() < inside.max() else f"{inside.min()}")
    return group_of.astype(np.int64), tuple(names)


def _groups_of(results: Results, means: SeedMeans) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    asked = results.bench.split.test.histories
    rows = asked.users.rows(means.evaluations[0].users)
    return group_users(asked.counts()[rows])


def _found(results: Results) -> dict[str, SeedMeans]:
    found = {name: over_seeds(results.of(name)) for name in _NAMES}
    return {name: one for name, one in found.items() if one is not None}


def _chart_ratings(results: Results) -> Iterator[Chart]:
    found = _found(results)
    if not found:
        return
    group_of, names = _groups_of(results, next(iter(found.values())))
    curves = []
    for name, means in found.items():
        values = means.of_users()
        parts = [values[group_of == group] for group in range(len(names))]
        intervals = [bootstrap_intervals(part[:, None], seed=0)[0] for part in parts]
        curves.append(
            Curve(
                labelled(name),
                tuple(map(float, range(len(names)))),
                tuple(float(part.mean()) for part in parts),
                tuple(float(low) for low, _ in intervals),
                tuple(float(high) for _, high in intervals),
            )
        )
    title = results.bench.title
    yield Chart(title, "ratings of a user", "NDCG@100", tuple(curves), groups=names)


def _panel(results: Results) -> Iterator[ReportTable]:
    """The figures behind the bars: models in rows, groups with their number of users in columns."""
    found = _found(results)
    if not found:
        return
    group_of, names = _groups_of(results, next(iter(found.values())))
    sizes = np.bincount(group_of, minlength=len(names))
    header = ("NDCG@100", *(f"{name} ratings ({size:,} users)" for name, size in zip(names, sizes, strict=True)))
    rows = []
    for name, means in found.items():
        values = means.of_users()
        rows.append((labelled(name), *(f"{values[group_of == group].mean():.4f}" for group in range(len(names)))))
    yield ReportTable(results.bench.title, TextTable(header, tuple(rows)))


def _records_ratings(results: Results) -> Iterator[dict[str, Value]]:
    bench = results.bench
    for name, means in _found(results).items():
        group_of, names = _groups_of(results, means)
        for evaluation in means.evaluations:
            for group, called in enumerate(names):
                inside = evaluation.values[MAIN][group_of == group]
                yield {
                    "data": bench.data.name,
                    "protocol": bench.protocol,
                    "model": name,
                    "seed": evaluation.seed,
                    "ratings": called,
                    "users": len(inside),
                    MAIN: float(inside.mean()),
                }


def _findings_ratings(results: Results) -> Iterator[Finding]:
    found = _found(results)
    if not {"mult-vae", "loca-vae"} <= set(found):
        return
    group_of, names = _groups_of(results, found["mult-vae"])
    where = results.bench.title
    for other in ("mult-vae", "ensemble-vae"):
        if other not in found:
            continue
        differences = found["loca-vae"].of_users() - found[other].of_users()
        lows = [
            float(bootstrap_intervals(differences[group_of == group][:, None], seed=0)[0][0])
            for group in range(len(names))
        ]
        sure = [name for name, low in zip(names, lows, strict=True) if low > 0]
        told = "in every group" if len(sure) == len(names) else f"in {len(sure)} of {len(names)} groups"
        text = f"{where}: LOCA_VAE is surely above {labelled(other)} {told}."
        # The paper compares groups with the base alone.
        yield Finding.on(len(sure) == len(names), text) if other == "mult-vae" else Finding("found", text)


# The paper's units do not carry over between embeddings; quantiles of the distances between users do.
_NARROW = Quantile(0.1)
_WIDE = Quantile(0.9, times=1.3)
TRAIN_WIDTHS: Mapping[str, Quantile] = {
    "h_T 0.1": _NARROW,
    "h_T 0.3": Quantile(0.3),
    "h_T 0.6": Quantile(0.6),
    "h_T 0.9": Quantile(0.9),
    "h_T 1.3 × 0.9": _WIDE,
}
ANSWER_WIDTHS: Mapping[str, Quantile] = {
    "h_W 0.01": Quantile(0.01),
    "h_W 0.05": Quantile(0.05),
    "h_W 0.2": Quantile(0.2),
    "h_W 0.5": Quantile(0.5),
    "h_W 0.9": Quantile(0.9),
}
# What the paper says of widths: that the first is better than the second. They are the ends of the range and a width
# near the paper's, not the best of five, which would flatter itself.
_ON_TRAINING = {"training wider than answering": ("h_T 0.9", "h_T 0.1")}
_ON_ANSWERING = {
    "answering for more than the very closest": ("h_W 0.2", "h_W 0.01"),
    "answering narrowly": ("h_W 0.2", "h_W 0.9"),
}
# The sweeps are not refitted on validation; a MultVAE that is would have learned from more than they have.
_ALONE = "mult-vae not refitted"
_ALONE_LABEL = "MultVAE, not refitted"


def needed_by_training(bench: Benchmark) -> dict[str, Run]:
    """The cells of Figure 7: all answer for the same narrow neighbourhood."""
    cells: dict[str, Run] = {}
    for called, width in TRAIN_WIDTHS.items():
        cells |= varied_cells(
            bench, f"loca-vae {called}", _counts(bench), train_bandwidth=width, answer_bandwidth=_NARROW
        )
    return cells | _alone(bench)


def needed_by_answering(bench: Benchmark) -> dict[str, Run]:
    """The cells of Figure 8: all train on the same wide neighbourhood."""
    cells: dict[str, Run] = {}
    for called, width in ANSWER_WIDTHS.items():
        cells |= varied_cells(
            bench, f"loca-vae {called}", _counts(bench), train_bandwidth=_WIDE, answer_bandwidth=width
        )
    return cells | _alone(bench)


def make_by_training(studied: Sequence[Results]) -> ReportItem:
    """Figure 7."""
    return ReportItem(
        key="figure7",
        title="Figure 7: the bandwidth of training, h_T",
        caption="NDCG@100 of LOCA_VAE by the share of users that a local model trains on, for several numbers of local "
        "models; each answers for its nearest tenth of the pairs of users. h_T is a quantile of the distances "
        "between users. No global share for covered users; dashed, MultVAE alone. None of them is refitted.",
        panels=_panels_bandwidth(studied, TRAIN_WIDTHS, "train_share"),
        charts=tuple(_chart_bandwidth(one, TRAIN_WIDTHS, "train_share", "users trained on, %") for one in studied),
        records=_records_bandwidth(studied, TRAIN_WIDTHS),
        findings=_findings_bandwidth(studied, _ON_TRAINING),
    )


def make_by_answering(studied: Sequence[Results]) -> ReportItem:
    """Figure 8."""
    return ReportItem(
        key="figure8",
        title="Figure 8: the bandwidth of answering, h_W",
        caption="NDCG@100 of LOCA_VAE by the share of users that a local model answers for, for several numbers of "
        "local models; each trains on the same wide neighbourhood. No global share for covered users; dashed, "
        "MultVAE alone. None of them is refitted.",
        panels=_panels_bandwidth(studied, ANSWER_WIDTHS, "answer_share"),
        charts=tuple(
            _chart_bandwidth(one, ANSWER_WIDTHS, "answer_share", "users answered for, %", is_log_x=True)
            for one in studied
        ),
        records=_records_bandwidth(studied, ANSWER_WIDTHS),
        findings=_findings_bandwidth(studied, _ON_ANSWERING),
    )


def _alone(bench: Benchmark) -> dict[str, Run]:
    """MultVAE on the same terms as the sweeps, once for each seed."""
    cells = (
        bench.cell(_ALONE, bench.model("mult-vae", seed), seed, refit=False) for seed in bench.seeds_of("mult-vae")
    )
    return {cell.name: cell for cell in cells}


def _counts(bench: Benchmark) -> tuple[int, ...]:
    return bench.scale.thirds(bench.scale.sweep_models)


def _share(results: Results, called: str, fact: str) -> float:
    return float(np.mean([one.found[fact] for one in results.of(f"loca-vae {called}")]))


def _chart_bandwidth(
    results: Results, widths: Mapping[str, Quantile], fact: str, x_label: str, *, is_log_x: bool = False
) -> Chart:
    found = [called for called in widths if results.of(f"loca-vae {called}")]
    x = [float(f"{100 * _share(results, called, fact):.3g}") for called in found]
    curves = []
    for count in _counts(results.bench):
        means = [over_seeds(results.of(f"loca-vae {called}"), count) for called in found]
        curves.append(curve(f"{count} local models", x, means))
    curves += level(_ALONE_LABEL, over_seeds(results.of(_ALONE)))
    return Chart(results.bench.title, x_label, "NDCG@100", tuple(curves), is_log_x=is_log_x)


def _panels_bandwidth(studied: Sequence[Results], widths: Mapping[str, Quantile], fact: str) -> tuple[ReportTable, ...]:
    panels = []
    for results in studied:
        counts = _counts(results.bench)
        rows = []
        for called in widths:
            measured = results.of(f"loca-vae {called}")
            if not measured:
                continue
            means = [over_seeds(measured, count) for count in counts]
            covered = float(np.mean([one.found["coverage"] for one in measured]))
            figures = ("" if one is None else one.told() for one in means)
            named = results.named(f"loca-vae {called}", called)
            told = (f"{_share(results, called, fact):.1%}", f"{covered:.1%}", _epochs(measured))
            rows.append((named, *told, *figures))
        alone = over_seeds(results.of(_ALONE))
        if alone is not None:
            rows.append((_ALONE_LABEL, "", "", _epochs(results.of(_ALONE)), *("" for _ in counts[1:]), alone.told()))
        header = (
            "bandwidth",
            "share of users",
            "covered by all",
            "epochs",
            *(f"NDCG@100, {count} models" for count in counts),
        )
        panels.append(ReportTable(results.bench.title, TextTable(header, tuple(rows))))
    return tuple(panels)


def _epochs(measured: Sequence[ComparedModel]) -> str:
    """The epochs of every seed: one that stopped early has learned less than the others."""
    return ", ".join(str(one.found["epochs"]) for one in measured if "epochs" in one.found)


def _records_bandwidth(studied: Sequence[Results], widths: Mapping[str, Quantile]) -> tuple[dict[str, Value], ...]:
    lines = Records()
    for results in studied:
        for called, width in widths.items():
            told: dict[str, Value] = {"model": "loca-vae", "bandwidth": str(width)}
            lines += lines_of(results, f"loca-vae {called}", told, _counts(results.bench))
        lines += lines_of(results, _ALONE, {"model": _ALONE})
    return tuple(lines)


def _findings_bandwidth(studied: Sequence[Results], claims: Mapping[str, tuple[str, str]]) -> tuple[Finding, ...]:
    """One width against another, for each claim on each bench."""
    found = []
    for results in studied:
        for claim, (better, worse) in claims.items():
            first, second = (over_seeds(results.of(f"loca-vae {called}")) for called in (better, worse))
            if first is not None and second is not None:
                paired = first.minus(second)
                text = f"{results.bench.title}: {claim} ({better} instead of {worse}) changes NDCG@100 by"
                found.append(Finding.on(paired.low > 0, f"{text} {in_words(paired)}."))
    return tuple(found)
