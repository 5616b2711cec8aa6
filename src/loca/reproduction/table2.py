"""Table 2: the accuracy of all models, with intervals, paired differences and the equal-size ensembles as controls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from loca.evaluation.significance import PairedDifference, Verdict, holm, verdict_on
from loca.experiments.report import paired_figures
from loca.experiments.runs import ComparedModel, Run
from loca.reproduction.benchmark import (
    AUTHORS,
    BASELINES,
    BEYOND,
    CONTROLS,
    LOCALS,
    MAIN,
    METRICS,
    SINGLES,
    Benchmark,
    Results,
    SeedMeans,
    as_value,
    base_of,
    chosen_by,
    in_words,
    labelled,
    over_seeds,
)
from loca.reproduction.published import printed_accuracy, printed_name
from loca.reproduction.report_items import Finding, Gain, Headline, ReportItem, ReportTable, Value
from loca.text_table import TextTable
from loca.tuning.model_selection import SELECTED_ON_TEST

BASE, BEST, ENSEMBLE = "its base", "the best single model", "the ensemble of as many"
BASELINE = "the best baseline"
# The rivals that the paper has: the best of fewer is not the best that it claims to beat.
_RIVALS_OF_THE_PAPER = ("wmf", "slim", "cdae", "mult-vae", "ease", "rec-vae", "llorma", "sglsvd")
TITLES = {"recall@50": "Recall@50", "ndcg@50": "NDCG@50", "recall@100": "Recall@100", "ndcg@100": "NDCG@100"}
_OF_TABLE = (*BASELINES, *CONTROLS, *LOCALS, *AUTHORS)
_LOCALITY = {"alpha": "α", "effective_share": "trains on, in effect", "answering": "communities a user"}
# What a model of many is made of; LLORMA has anchors too and is one model.
_COUNTED_BY = {"Loca": "anchors", "Ensemble": "models"}
_BRACKETS = "In brackets: what the paper prints."
_OF_THE_PAPER = ("loca-vae", "loca-ease")
_PRINTED = (*AUTHORS, *_OF_THE_PAPER)
# The paper prints so many digits: what rounds to a printed figure has reached it.
_DIGITS = 4


def needed(bench: Benchmark) -> dict[str, Run]:
    """The cells of all rows."""
    return {called: cell for name in bench.names for called, cell in bench.row(name).items()}


def make(studied: Sequence[Results]) -> ReportItem:
    """The table as it came out on every bench, and both protocols side by side."""
    # Told once and passed on: every difference is a bootstrap over users.
    rivals = [differences(results) for results in studied]
    panels: list[ReportTable] = []
    for label in dict.fromkeys(one.bench.data.label for one in studied):
        of_data = [(one, its) for one, its in zip(studied, rivals, strict=True) if one.bench.data.label == label]
        panels += side_by_side(label, [one for one, _ in of_data])
        for results, its in of_data:
            panels += bench_panels(results, its)
    return ReportItem(
        key="table2",
        title="Table 2: accuracy of all models",
        caption="Recall and NDCG at 50 and 100, mean over seeds; ± is the standard deviation over seeds, the interval "
        "is over users; behind a model of many stands how many it has. The paper prints figures whose models were "
        "chosen on the test items; `paper` repeats that on the same interactions, and divides by all test items of a "
        "user, repeated ones too, as the paper does. `clean` chooses on validation, takes each pair of user and item "
        "once, and is the only column that is a result. A model that chooses nothing while it learns has the same "
        "figures under both, where the data and its settings are the same. A row of LOCA says how local it is: α, the "
        "global model's share for covered users; the share of the users that a local model trains on in effect, "
        "(Σt)² / Σt² over their weights t; and how many communities answer a user. Seconds are of the machines that "
        "the CSV names, some shared with other work.",
        panels=tuple(panels),
        records=tuple(line for results in studied for line in _records(results)),
        findings=tuple(
            finding for results, its in zip(studied, rivals, strict=True) for finding in _findings(results, its)
        ),
    )


def headlines(studied: Sequence[Results], rivals: Sequence[Sequence[Rival]]) -> tuple[Headline, ...]:
    """What each LOCA gains on each bench over its base, the best single model and the equal-size ensemble.

    `rivals` are the differences of each of the studied.
    """
    return tuple(line for results, its in zip(studied, rivals, strict=True) for line in _headlines(results, its))


def _headlines(results: Results, rivals: Sequence[Rival]) -> Iterator[Headline]:
    bench = results.bench
    for name in (*AUTHORS, *LOCALS):
        means = over_seeds(results.of(name))
        if means is None:
            continue
        gains = tuple(_gain(one) for one in rivals if one.name == name and one.what != BASELINE)
        printed = printed_accuracy(printed_name(bench), name, MAIN)
        called = row_name(name, results.of(name))
        yield Headline(bench.data.label, bench.protocol, called, means.mean(), printed, gains, means.spread())


def _gain(one: Rival) -> Gain:
    paired, over = one.paired, f"{one.what} ({labelled(one.other)})"
    return Gain(over, paired.mean, paired.low, paired.high, paired.relative, one.verdict)


def _records(results: Results) -> Iterator[Mapping[str, Value]]:
    bench = results.bench
    for name in bench.names:
        for measured in results.of(name):
            means, intervals = measured.evaluation.means(), measured.evaluation.intervals()
            line: dict[str, Value] = {"data": bench.data.name, "protocol": bench.protocol, "model": name}
            line["seed"] = measured.evaluation.seed
            for metric in METRICS:
                low, high = intervals[metric]
                line |= {metric: means[metric], f"{metric} low": low, f"{metric} high": high}
            chosen = measured.tried[measured.chosen].ndcg
            line |= {"chosen by ndcg@100": chosen, "seconds": measured.seconds}
            # Under names of their own: a model has a parameter `model` too, and Auto one called `seconds`.
            told = {key: value for key, value in measured.parameters.items() if "seed" not in key}
            line |= {f"setting {key}": as_value(value) for key, value in told.items()}
            line |= {f"found {key}": as_value(value) for key, value in measured.found.items()}
            yield line


def _findings(results: Results, rivals: Sequence[Rival]) -> Iterator[Finding]:
    """On what the paper claims: LOCA over its base and every rival, LOCA_VAE over an ensemble; the rest is found."""
    where = results.bench.title
    for name in _PRINTED:
        yield from _against_print(results, name, where)
    yield from _against_best(results, rivals, where)
    for one in rivals:
        if one.what in (BEST, BASELINE):
            continue
        is_claimed = one.name in _OF_THE_PAPER and (one.what == BASE or one.name == "loca-vae")
        told = f"{where}: {_told(one)}"
        yield Finding.on(one.verdict == "better", told) if is_claimed else Finding("found", told)


def _against_best(results: Results, rivals: Iterable[Rival], where: str) -> Iterator[Finding]:
    """The better LOCA, as it is where choices are made, against the best baseline; no claim is on one alone."""
    baseline = best_baseline(results)
    claimed = BEST if baseline == best_single(results) else BASELINE
    bests = [one for one in rivals if one.what in (BEST, BASELINE) and one.name in _OF_THE_PAPER]
    against = [one for one in bests if one.what == claimed]
    if baseline is not None and len(against) == len(_OF_THE_PAPER):
        better = max(against, key=lambda one: chosen_by(results.of(one.name)))
        yield Finding.on(better.verdict == "better", f"{where}: the better LOCA, {_told(better)}")
        bests = [one for one in bests if one not in against]
    yield from (Finding("found", f"{where}: {_told(one)}") for one in bests)


def _told(one: Rival) -> str:
    told = in_words(one.paired, " of NDCG@100")
    return f"{labelled(one.name)} against {one.what} ({labelled(one.other)}): {told}, {one.verdict}."


def _against_print(results: Results, name: str, where: str) -> Iterator[Finding]:
    """Which of the printed figures the model reaches, under the protocol that they are printed for."""
    means, below, told = over_seeds(results.of(name)), list[str](), list[str]()
    for metric in METRICS:
        printed = printed_accuracy(printed_name(results.bench), name, metric)
        if means is None or printed is None:
            return
        reached = round(means.mean(metric), _DIGITS)
        told.append(f"{TITLES[metric]} {reached:.4f} ({printed:.4f})")
        if reached < printed:
            below.append(TITLES[metric])
    stands = f"is below what is printed in {', '.join(below)}" if below else "reaches all that is printed"
    yield Finding.on(not below, f"{where}: {labelled(name)} {stands}: {', '.join(told)}.")


def side_by_side(label: str, of_data: Sequence[Results]) -> Iterator[ReportTable]:
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
    yield ReportTable(heading, TextTable(header, tuple(rows)), note)


def bench_panels(results: Results, rivals: Sequence[Rival]) -> Iterator[ReportTable]:
    """All metrics of the paper's models, of those beyond it, and the differences."""
    heading = results.bench.title
    header = ("model", "seeds", *(TITLES[one] for one in METRICS), "95 % of NDCG@100", "seconds", *_LOCALITY.values())
    rows = [row for name in _OF_TABLE for row in _metric_row(results, name)]
    if rows:
        yield ReportTable(heading, TextTable(header, tuple(rows)), _note(results))
    rows = [row for name in BEYOND for row in _metric_row(results, name)]
    if rows:
        yield ReportTable(f"{heading}: beyond the paper", TextTable(header, tuple(rows)))
    header = ("difference in NDCG@100", "mean", "relative", "95 %", "t", "p t (Holm)", "p Wilcoxon (Holm)", "")
    if rivals:
        yield ReportTable(f"{heading}: differences", TextTable(header, tuple(map(_difference_row, rivals))))


def _protocol_columns(benches: Iterable[Benchmark]) -> Iterator[str]:
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


@dataclass(frozen=True, eq=False)
class Rival:
    """A model's difference to another model, with the p values corrected over all differences of its bench."""

    name: str
    other: str
    what: str
    paired: PairedDifference
    t_p: float
    wilcoxon_p: float

    @property
    def verdict(self) -> Verdict:
        """better, worse, undecided or equal."""
        return verdict_on(self.paired, self.t_p, self.wilcoxon_p)


def best_single(results: Results) -> str | None:
    """The single model that is best where choices are made; None unless all that the bench measures have results."""
    found = {name: results.of(name) for name in SINGLES}
    # The best of some of them would be called the best of all.
    return max(found, key=lambda name: chosen_by(found[name])) if all(found.values()) else None


def best_baseline(results: Results) -> str | None:
    """The rival, single or of many local models, that is best where choices are made; None without all of the paper's.

    Others are among them where they have results.
    """
    found = {name: cells for name in BASELINES if (cells := results.of(name))}
    missing = any(name not in found for name in _RIVALS_OF_THE_PAPER)
    return None if missing else max(found, key=lambda name: chosen_by(found[name]))


def differences(results: Results) -> list[Rival]:
    """Each local model against its base, the best single model, the best baseline if it is another, and the ensemble.

    Then what is beyond the paper against the best of them. All are one family of tests, and corrected as one.
    """
    best, baseline = best_single(results), best_baseline(results)
    bests = {BEST: best} | ({} if baseline == best else {BASELINE: baseline})
    pairs = list[tuple[str, str | None, str]]()
    for name in (*LOCALS, *(one for one in AUTHORS if one in results.bench.names)):
        kind = name.removeprefix("loca-").removeprefix("paper-")
        others = {BASE: base_of(name), **bests, ENSEMBLE: f"ensemble-{kind}"}
        pairs += [(name, other, what) for what, other in others.items()]
    rival = BEST if baseline in (None, best) else BASELINE
    pairs += [(name, bests[rival], rival) for name in BEYOND]
    return _compared(results, [(name, other, what) for name, other, what in pairs if other is not None])


def _compared(results: Results, asked: Iterable[tuple[str, str, str]]) -> list[Rival]:
    """The differences that can be told; a pair that is asked for twice is corrected for once."""
    pairs, paired = list(asked), dict[tuple[str, str], PairedDifference]()
    for name, other in dict.fromkeys((name, other) for name, other, _ in pairs):
        first, second = over_seeds(results.of(name)), over_seeds(results.of(other))
        if first is not None and second is not None:
            paired[name, other] = first.minus(second)
    t_p = dict(zip(paired, holm(one.t_p for one in paired.values()), strict=True))
    wilcoxon_p = dict(zip(paired, holm(one.wilcoxon_p for one in paired.values()), strict=True))
    return [
        Rival(name, other, what, paired[name, other], float(t_p[name, other]), float(wilcoxon_p[name, other]))
        for name, other, what in pairs
        if (name, other) in paired
    ]
