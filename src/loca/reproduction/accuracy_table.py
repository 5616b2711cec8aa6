"""Table 2: the accuracy of all models, with intervals, paired differences and the equal-size ensembles as controls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from loca.experiments.cells import Cell
from loca.experiments.grid import Grid
from loca.experiments.protocols import SELECTED_ON_TEST
from loca.ranking.significance import PairedDifference, holm
from loca.reproduction.bench import BEYOND, CONTROLS, LOCALS, SINGLES, Bench, Results, as_value, base_of, labelled
from loca.reproduction.exhibit import Exhibit, Finding, Gain, Headline, Panel, Value
from loca.reproduction.printed import printed_accuracy
from loca.reproduction.seed_means import MAIN, METRICS, SeedMeans, chosen_by, over_seeds

_BASE, _BEST, _ENSEMBLE = "its base", "the best single model", "the ensemble of as many"
_OF_THE_PAPER = ("loca-vae", "loca-ease")
_TITLES = {"recall@50": "Recall@50", "ndcg@50": "NDCG@50", "recall@100": "Recall@100", "ndcg@100": "NDCG@100"}


@dataclass(frozen=True, eq=False)
class Rival:
    """A local model's difference to another model, with the p values corrected over all differences of its bench."""

    name: str
    other: str
    what: str
    paired: PairedDifference
    t_p: float
    wilcoxon_p: float

    @property
    def verdict(self) -> str:
        """better or worse where the interval and both corrected tests agree, else undecided."""
        if self.paired.low <= 0 <= self.paired.high or max(self.t_p, self.wilcoxon_p) >= 0.05:
            return "undecided"
        return "better" if self.paired.mean > 0 else "worse"


def needed(bench: Bench) -> dict[str, Cell]:
    """The cells of all rows."""
    return {called: cell for name in bench.names for called, cell in bench.row(name).items()}


def make(studied: Sequence[Results]) -> Exhibit:
    """The table as it came out on every bench, and both protocols side by side."""
    panels: list[Panel] = []
    for label in dict.fromkeys(one.bench.data.label for one in studied):
        of_data = [one for one in studied if one.bench.data.label == label]
        if len(of_data) > 1 or of_data[0].bench.data.printed is not None:
            panels.append(_side_by_side(label, of_data))
        for results in of_data:
            panels += _bench_panels(results)
    return Exhibit(
        key="table2",
        title="Table 2: accuracy of all models",
        caption="Recall and NDCG at 50 and 100, mean over seeds; ± is the standard deviation over seeds, the interval "
        "is over users. The paper prints figures whose models were chosen on the test items; `paper` repeats that, "
        "`clean` chooses on validation and is the only column that is a result.",
        panels=tuple(panels),
        records=tuple(line for results in studied for line in _records(results)),
        findings=tuple(_findings(studied)),
    )


def headlines(studied: Sequence[Results]) -> tuple[Headline, ...]:
    """What each LOCA gains on each bench over its base, the best single model and the equal-size ensemble."""
    lines = []
    for results in studied:
        for name in LOCALS:
            means = over_seeds(results.of(name))
            if means is None:
                continue
            rivals = [one for one in differences(results) if one.name == name]
            gains = tuple(
                Gain(
                    f"{one.what} ({labelled(one.other)})",
                    one.paired.mean,
                    one.paired.low,
                    one.paired.high,
                    one.paired.relative,
                    one.verdict != "undecided",
                )
                for one in rivals
            )
            printed = printed_accuracy(results.bench.data.printed, name, MAIN)
            bench = results.bench
            lines.append(Headline(bench.data.label, bench.protocol, labelled(name), means.mean(), printed, gains))
    return tuple(lines)


def best_single(results: Results) -> str | None:
    """The model of the paper's rivals that is best where choices are made."""
    found = {name: results.of(name) for name in SINGLES if results.of(name)}
    return max(found, key=lambda name: chosen_by(found[name])) if found else None


def differences(results: Results) -> list[Rival]:
    """Each local model against its base, the best single model and the ensemble of as many, in this order."""
    best, pairs = best_single(results), []
    for name in LOCALS:
        kind = name.removeprefix("loca-")
        others = {
            _BASE: base_of(name),
            _BEST: best,
            _ENSEMBLE: f"ensemble-{kind}",
        }
        pairs += [(name, other, what) for what, other in others.items() if other is not None]
    return _compared(results, pairs)


def _compared(results: Results, pairs: Iterable[tuple[str, str, str]]) -> list[Rival]:
    """The differences that can be told; a pair that is asked for twice is corrected for once."""
    asked, paired = list(pairs), dict[tuple[str, str], PairedDifference]()
    for name, other, _ in asked:
        first, second = over_seeds(results.of(name)), over_seeds(results.of(other))
        if first is not None and second is not None:
            paired[name, other] = first.minus(second)
    t_p = dict(zip(paired, holm(one.t_p for one in paired.values()), strict=True))
    wilcoxon_p = dict(zip(paired, holm(one.wilcoxon_p for one in paired.values()), strict=True))
    return [
        Rival(name, other, what, paired[name, other], float(t_p[name, other]), float(wilcoxon_p[name, other]))
        for name, other, what in asked
        if (name, other) in paired
    ]


def _side_by_side(label: str, of_data: Sequence[Results]) -> Panel:
    """NDCG@100 of every model: printed, and under each protocol."""
    protocols = [one.bench.protocol for one in of_data]
    header = ("NDCG@100", "paper prints", *(part for one in protocols for part in (f"here, {one}", "95 %")))
    rows = []
    for name in (*SINGLES, *CONTROLS, *LOCALS):
        means = [over_seeds(one.of(name)) for one in of_data]
        if not any(means):
            continue
        printed = printed_accuracy(of_data[0].bench.data.printed, name, MAIN)
        cells = [part for one in means for part in (_figure(one), _interval(one))]
        rows.append((labelled(name), "" if printed is None else f"{printed:.4f}", *cells))
    note = "" if "paper" not in protocols else f"`paper`: {SELECTED_ON_TEST}."
    return Panel(f"{label}: beside the paper", Grid(tuple(header), tuple(rows)), note)


def _bench_panels(results: Results) -> Iterator[Panel]:
    bench = results.bench
    heading = f"{bench.data.label}, {bench.protocol}"
    header = ("model", "seeds", *(_TITLES[one] for one in METRICS), "95 % of NDCG@100", "seconds")
    for part, names in (("", (*SINGLES, *CONTROLS, *LOCALS)), (": beyond the paper", BEYOND)):
        rows = [row for name in names for row in _metric_row(results, name)]
        if rows:
            yield Panel(f"{heading}{part}", Grid(header, tuple(rows)), _told_best(results) if not part else "")
    header = ("difference in NDCG@100", "mean", "relative", "95 %", "t", "p t (Holm)", "p Wilcoxon (Holm)", "")
    rows = [_difference_row(one) for one in [*differences(results), *_beyond(results)]]
    if rows:
        yield Panel(f"{heading}: differences", Grid(header, tuple(rows)))


def _beyond(results: Results) -> list[Rival]:
    best = best_single(results)
    return [] if best is None else _compared(results, [(name, best, _BEST) for name in BEYOND])


def _told_best(results: Results) -> str:
    best = best_single(results)
    return "" if best is None else f"Best single model where choices are made: {labelled(best)}."


def _metric_row(results: Results, name: str) -> Iterator[tuple[str, ...]]:
    measured = results.of(name)
    means = over_seeds(measured)
    if means is not None:
        seconds = sum(one.seconds for one in measured) / len(measured)
        figures = (_figure(means, metric) for metric in METRICS)
        yield labelled(name), str(len(measured)), *figures, _interval(means), f"{seconds:,.1f}"


def _figure(means: SeedMeans | None, metric: str = MAIN) -> str:
    if means is None:
        return ""
    spread = means.spread(metric)
    return f"{means.mean(metric):.4f}" + ("" if spread is None else f" ± {spread:.4f}")


def _interval(means: SeedMeans | None) -> str:
    return "" if means is None else "{:.4f} – {:.4f}".format(*means.interval())


def _difference_row(one: Rival) -> tuple[str, ...]:
    paired = one.paired
    return (
        f"{labelled(one.name)} − {labelled(one.other)} ({one.what})",
        f"{paired.mean:+.4f}",
        f"{paired.relative:+.1%}",
        f"{paired.low:+.4f} … {paired.high:+.4f}",
        f"{paired.t:.1f}",
        _p_text(one.t_p),
        _p_text(one.wilcoxon_p),
        one.verdict,
    )


def _p_text(p: float) -> str:
    """A p value is never 0: what has underflowed is called small."""
    return f"{p:.2g}" if p > 0 else "< 1e-300"


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


def _findings(studied: Sequence[Results]) -> Iterator[Finding]:
    """On what the paper claims: LOCA over its base and every rival, LOCA_VAE over an ensemble; the rest is found."""
    for results in studied:
        where = f"{results.bench.data.label}, {results.bench.protocol}"
        for name in _OF_THE_PAPER:
            yield from _against_print(results, name, where)
        rivals = differences(results)
        against_best = [one for one in rivals if one.what == _BEST and one.name in _OF_THE_PAPER]
        if against_best:
            best = max(against_best, key=lambda one: one.paired.mean)
            yield Finding.on(best.verdict == "better", f"{where}: the better LOCA, {_told(best)}")
        for one in rivals:
            if one.what == _BEST:
                continue
            is_claimed = one.name in _OF_THE_PAPER and (one.what == _BASE or one.name == "loca-vae")
            told = f"{where}: {_told(one)}"
            yield Finding.on(one.verdict == "better", told) if is_claimed else Finding("found", told)


def _told(one: Rival) -> str:
    paired = one.paired
    return (
        f"{labelled(one.name)} against {one.what} ({labelled(one.other)}): {paired.relative:+.1%} of NDCG@100 "
        f"[{paired.low:+.4f}, {paired.high:+.4f}], {one.verdict}."
    )


def _against_print(results: Results, name: str, where: str) -> Iterator[Finding]:
    means, printed = over_seeds(results.of(name)), printed_accuracy(results.bench.data.printed, name, MAIN)
    if means is None or printed is None or results.bench.protocol != "paper":
        return
    reached = means.mean() >= printed
    told = "at least" if reached else "below"
    text = f"{where}: {labelled(name)} reaches NDCG@100 {means.mean():.4f}, {told} the printed {printed:.4f}."
    yield Finding.on(reached, text)
