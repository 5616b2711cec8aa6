"""The panels of Table 2: each bench by itself, and the protocols of a data set side by side with what is printed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from loca.experiments.cells import ComparedModel
from loca.experiments.grid import Grid
from loca.experiments.protocols import SELECTED_ON_TEST
from loca.experiments.report import paired_figures
from loca.reproduction.accuracy_differences import Rival, best_baseline, best_single
from loca.reproduction.bench import AUTHORS, BASELINES, BEYOND, CONTROLS, LOCALS, Bench, Results, labelled
from loca.reproduction.exhibit import Panel
from loca.reproduction.printed import printed_accuracy, printed_name
from loca.reproduction.seed_means import MAIN, METRICS, SeedMeans, over_seeds

TITLES = {"recall@50": "Recall@50", "ndcg@50": "NDCG@50", "recall@100": "Recall@100", "ndcg@100": "NDCG@100"}
_OF_TABLE = (*BASELINES, *CONTROLS, *LOCALS, *AUTHORS)
_LOCALITY = {"alpha": "α", "effective_share": "trains on, in effect", "answering": "communities a user"}
# What a model of many is made of; LLORMA has anchors too and is one model.
_COUNTED_BY = {"Loca": "anchors", "Ensemble": "models"}
_BRACKETS = "In brackets: what the paper prints."


def side_by_side(label: str, of_data: Sequence[Results]) -> Iterator[Panel]:
    """NDCG@100 of every model under each protocol, and printed where one of them is `paper` on the paper's data.

    Nothing where there is but one of all these.
    """
    benches = [one.bench for one in of_data]
    printed_as = next(filter(None, map(printed_name, benches)), None)
    if len(benches) == 1 and printed_as is None:
        return
    rows = []
    for name in _OF_TABLE:
        measured = [one.of(name) for one in of_data]
        if not any(measured):
            continue
        means = [over_seeds(one) for one in measured]
        cells = [part for one in means for part in ("" if one is None else one.told(), _interval(one))]
        told = row_name(name, (cell for one in measured for cell in one))
        rows.append((told, *([] if printed_as is None else [_printed(printed_as, name)]), *cells))
    if not rows:
        return
    heading = f"{label}: protocols side by side" if printed_as is None else f"{label}: beside the paper"
    header = ("NDCG@100", *([] if printed_as is None else ["paper prints"]), *_protocol_columns(benches))
    note = f"`paper`: {SELECTED_ON_TEST}." if any(one.protocol == "paper" for one in benches) else ""
    yield Panel(heading, Grid(header, tuple(rows)), note)


def bench_panels(results: Results, rivals: Sequence[Rival]) -> Iterator[Panel]:
    """All metrics of the paper's models, of those beyond it, and the differences."""
    heading = results.bench.title
    header = ("model", "seeds", *(TITLES[one] for one in METRICS), "95 % of NDCG@100", "seconds", *_LOCALITY.values())
    rows = [row for name in _OF_TABLE for row in _metric_row(results, name)]
    if rows:
        yield Panel(heading, Grid(header, tuple(rows)), _note(results))
    rows = [row for name in BEYOND for row in _metric_row(results, name)]
    if rows:
        yield Panel(f"{heading}: beyond the paper", Grid(header, tuple(rows)))
    header = ("difference in NDCG@100", "mean", "relative", "95 %", "t", "p t (Holm)", "p Wilcoxon (Holm)", "")
    if rivals:
        yield Panel(f"{heading}: differences", Grid(header, tuple(map(_difference_row, rivals))))


def _protocol_columns(benches: Iterable[Bench]) -> Iterator[str]:
    """A figure and its interval for each protocol; the protocols do not ask the same users."""
    for bench in benches:
        yield f"here, {bench.protocol} ({bench.split.test.n_users:,} users)"
        yield "95 %"


def _note(results: Results) -> str:
    best, baseline = best_single(results), best_baseline(results)
    told = [] if best is None else [f"Best single model where choices are made: {labelled(best)}."]
    if baseline not in (None, best):
        told.append(f"Best baseline there: {labelled(baseline)}.")
    printed_as = printed_name(results.bench)
    if any(_printed(printed_as, name) for name in _OF_TABLE if results.of(name)):
        told.append(_BRACKETS)
    few = [labelled(name) for name in _OF_TABLE if results.lacks_seeds(name)]
    if few:
        told.append(f"Not yet with all {results.bench.scale.seeds} seeds: {', '.join(few)}.")
    return " ".join(told)


def _metric_row(results: Results, name: str) -> Iterator[tuple[str, ...]]:
    measured = results.of(name)
    means = over_seeds(measured)
    if means is None:
        return
    seconds = sum(one.seconds for one in measured) / len(measured)
    figures = []
    for metric in METRICS:
        printed = _printed(printed_name(results.bench), name, metric)
        figures.append(means.told(metric) + (f" ({printed})" if printed else ""))
    told = (_locality(measured, fact) for fact in _LOCALITY)
    yield row_name(name, measured), str(len(measured)), *figures, _interval(means), f"{seconds:,.1f}", *told


def _locality(measured: Sequence[ComparedModel], fact: str) -> str:
    """A figure of how local a LOCA is: α of every seed where they differ, else means; nothing for other models."""
    values = [float(one.found[fact]) for one in measured if one.found.get(fact) is not None]
    if not values:
        return ""
    if fact == "alpha":
        return ", ".join(f"{one:g}" for one in (values if len(set(values)) > 1 else values[:1]))
    mean = sum(values) / len(values)
    return f"{mean:.1%}" if fact == "effective_share" else f"{mean:.1f}"


def row_name(name: str, measured: Iterable[ComparedModel]) -> str:
    """The model's name, and how many local models or members it has: LOCA_VAE (300)."""
    settings = (one.parameters for one in measured)
    counts = dict.fromkeys(one[by] for one in settings if (by := _COUNTED_BY.get(one["model"])) is not None)
    return f"{labelled(name)} ({', '.join(map(str, counts))})" if counts else labelled(name)


def _printed(data: str | None, name: str, metric: str = MAIN) -> str:
    printed = printed_accuracy(data, name, metric)
    return "" if printed is None else f"{printed:.4f}"


def _interval(means: SeedMeans | None) -> str:
    return "" if means is None else "{:.4f} – {:.4f}".format(*means.interval())


def _difference_row(one: Rival) -> tuple[str, ...]:
    told = f"{labelled(one.name)} − {labelled(one.other)} ({one.what})"
    return (told, *paired_figures(one.paired, one.t_p, one.wilcoxon_p), one.verdict)
