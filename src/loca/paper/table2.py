"""Table 2: the accuracy of all models, with intervals, paired differences and controls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from loca.evaluation.significance import PairedDifference, holm
from loca.experiments.report import paired_figures
from loca.experiments.runs import ComparedModel
from loca.paper.benchmark import (
    AUTHORS,
    BASELINES,
    BEYOND,
    CONTROLS,
    LOCALS,
    MIXTURES,
    SINGLES,
    PaperItem,
    Part,
    Results,
)
from loca.paper.published import printed_accuracy
from loca.paper.report import (
    BASE,
    BEST,
    DEALT,
    ENSEMBLE,
    Finding,
    Gain,
    Headline,
    ReportTable,
    Value,
)
from loca.paper.seed_means import MAIN, METRICS, as_values, in_words, interval_text, labelled
from loca.registry import RECORDS
from loca.text_table import TextTable
from loca.tuning.model_selection import SELECTED_ON_TEST

BASELINE = "the best baseline"
# The rivals that the paper has: the best of fewer is not the best that it claims to beat.
_RIVALS_OF_THE_PAPER = ("wmf", "slim", "cdae", "mult-vae", "ease", "rec-vae", "llorma", "sglsvd")
TITLES = {
    "recall@50": "Recall@50",
    "ndcg@50": "NDCG@50",
    "recall@100": "Recall@100",
    "ndcg@100": "NDCG@100",
}
_OF_TABLE = (*BASELINES, *CONTROLS, *LOCALS, *AUTHORS)
_LOCALITY = {
    "alpha": "α",
    "effective_share": "trains on, in effect",
    "answering": "communities a user",
}
_HEADER = (
    "model",
    "seeds",
    *(TITLES[metric] for metric in METRICS),
    "95 % of NDCG@100",
    "seconds",
    *_LOCALITY.values(),
)
_GAINS_HEADER = (
    "difference in NDCG@100",
    "mean",
    "relative",
    "95 %",
    "t",
    "p t (Holm)",
    "p Wilcoxon (Holm)",
    "",
)
_OF_THE_PAPER = ("loca-vae", "loca-ease")
_DEALT = tuple(name for name in MIXTURES if name.startswith("dealt-"))
_MIXED = tuple(name for name in MIXTURES if name not in _DEALT)
_OF_MIXTURES = "communities by mixtures"
_MIXTURE_NOTE = (
    f"What a mixture has over {DEALT} is locality; what the dealt form has over the ensemble is "
    "diversity."
)
# The paper prints so many digits: what rounds to a printed figure has reached it.
_DIGITS = 4


class Table2(PaperItem):
    """Recall and NDCG at 50 and 100, mean over seeds; ± is the standard deviation over seeds, the
    interval is over users; behind a model of many stands how many it has. The paper prints figures
    whose models were chosen on the test items; `paper` repeats that on the same interactions, and
    divides by all test items of a user, repeated ones too, as the paper does. `clean` chooses on
    validation, takes each pair of user and item once, and is the only column that is a result. A
    model that chooses nothing while it learns has the same figures under both, where the data and
    its settings are the same. A row of LOCA says how local it is: α, the global model's share for
    covered users; the share of the users that a local model trains on in effect, (Σt)² / Σt² over
    their weights t; and how many communities answer a user. Under `clean` communities by mixtures
    stand beside their base, the equal-size ensemble and the same memberships dealt to other users
    at random. Seconds are of the machines that the CSV names, some shared with other work.
    """

    key = "table2"
    title = "Table 2: accuracy of all models"
    names = None

    def overview(self, results: Results, studied: Sequence[Results]) -> Iterator[ReportTable]:
        """Return NDCG@100 of every model under each protocol, and printed where the paper has it.

        Nothing where there is but one of all these.
        """
        label = results.benchmark.data.label
        of_data = [other for other in studied if other.benchmark.data.label == label]
        names_in_print = [other.benchmark.printed_as for other in of_data]
        printed_as = next(filter(None, names_in_print), None)
        if results is not of_data[0] or (len(of_data) == 1 and printed_as is None):
            return
        header = ["NDCG@100"]
        if printed_as is not None:
            header.append("paper prints")
        for other in of_data:  # the protocols do not evaluate the same users
            n_users = other.benchmark.split.test.n_users
            header += [f"here, {other.benchmark.protocol} ({n_users:,} users)", "95 %"]
        rows = [
            _overview_row(name, of_data, printed_as)
            for name in _OF_TABLE
            if any(other.of(name) for other in of_data)
        ]
        if not rows:
            return
        what = "protocols side by side" if printed_as is None else "beside the paper"
        is_on_test = any(other.benchmark.protocol == "paper" for other in of_data)
        note = f"`paper`: {SELECTED_ON_TEST}." if is_on_test else ""
        yield ReportTable(f"{label}: {what}", TextTable(tuple(header), tuple(rows)), note)

    def show(self, results: Results) -> Iterator[Part]:
        """Return all metrics of all models, and the differences.

        The paper's models come first, then mixtures beside their controls, then the rest. The paper
        claims: LOCA above its base and every rival, LOCA_VAE above an ensemble; the rest is found.
        """
        gains = gains_of(results)
        yield from _tables(results)
        differences = [
            (
                f"{labelled(gain.model)} − {labelled(gain.other)} ({_words(gain.over)})",
                *paired_figures(gain.paired, gain.t_p, gain.wilcoxon_p),
                gain.verdict,
            )
            for gain in gains
        ]
        if differences:
            yield ReportTable("differences", TextTable(_GAINS_HEADER, tuple(differences)))
        for name in results.benchmark.names:
            for run in results.of(name):
                yield _record(name, run)
        for name in (*AUTHORS, *_OF_THE_PAPER):
            yield from _against_print(results, name)
        yield from _against_best(results, gains)
        for gain in gains:
            if gain.over not in (BEST, BASELINE):
                yield _finding_on(gain)


def _overview_row(name: str, of_data: Sequence[Results], printed_as: str | None) -> tuple[str, ...]:
    row = [row_name(name, [run for results in of_data for run in results.of(name)])]
    if printed_as is not None:
        row.append(_printed(printed_as, name))
    for results in of_data:
        means = results.means(name)
        row += ["", ""] if means is None else [means.text(), interval_text(means.of_users())]
    return tuple(row)


def _tables(results: Results) -> Iterator[ReportTable]:
    mixed: list[str] = []
    if any(map(results.of, MIXTURES)):
        mixed = [name for mixture in _MIXED for name in beside(mixture)]
    others = [name for name in BEYOND if name not in MIXTURES]
    tables: list[tuple[str, Sequence[str], str]] = [
        ("", _OF_TABLE, _note(results)),
        (_OF_MIXTURES, mixed, f"{_MIXTURE_NOTE}{_few(results, MIXTURES)}"),
        ("beyond the paper", others, ""),
    ]
    for heading, names, note in tables:
        rows = tuple(_row(results, name) for name in names if results.of(name))
        if rows:
            yield ReportTable(heading, TextTable(_HEADER, rows), note)


def _record(name: str, run: ComparedModel) -> dict[str, Value]:
    """Return the line of CSV of one run."""
    means, intervals = run.evaluation.means(), run.evaluation.intervals()
    line: dict[str, Value] = {"model": name, "seed": run.evaluation.seed}
    for metric in METRICS:
        low, high = intervals[metric]
        line |= {metric: means[metric], f"{metric} low": low, f"{metric} high": high}
    line |= {"chosen by ndcg@100": run.selected.score, "seconds": run.seconds}
    # Under names of their own: a model has a parameter `model` too, and Auto one called `seconds`.
    settings = {key: value for key, value in run.parameters.items() if "seed" not in key}
    return line | as_values("setting", settings) | as_values("found", run.found)


def _finding_on(gain: Gain) -> Finding:
    is_claimed = gain.model in _OF_THE_PAPER and (gain.over == BASE or gain.model == "loca-vae")
    if is_claimed:
        return Finding.on(gain.verdict == "better", _text(gain))
    return Finding("found", _text(gain))


def headlines(studied: Iterable[Results]) -> Iterator[Headline]:
    """Return what each LOCA gains on each benchmark over its base, the best and the ensemble."""
    for results in studied:
        benchmark = results.benchmark
        for name in (*AUTHORS, *LOCALS):
            means = results.means(name)
            if means is not None:
                gains = {
                    gain.over: replace(gain, other=labelled(gain.other))
                    for gain in gains_of(results)
                    if gain.model == name and gain.over != BASELINE
                }
                yield Headline(
                    data=benchmark.data.label,
                    protocol=benchmark.protocol,
                    model=row_name(name, results.of(name)),
                    ndcg=means.text(),
                    printed=printed_accuracy(benchmark.printed_as, name, MAIN),
                    gains=gains,
                )


def beside(mixture: str) -> tuple[str, str, str, str]:
    """Return what a model of mixtures is compared with, and itself last.

    That is its base, the ensemble, and dealt memberships.
    """
    base = mixture.partition("-")[2]
    return RECORDS[mixture].base or "", f"ensemble-{base}", f"dealt-{base}", mixture


def _words(over: str) -> str:
    return "the ensemble of as many" if over == ENSEMBLE else over


def _text(gain: Gain) -> str:
    figures = in_words(gain.paired, " of NDCG@100")
    earned = ""
    if gain.over == DEALT:
        earned = "this is locality, "
    elif gain.model in _DEALT:
        earned = "this is diversity, "
    against = f"{labelled(gain.model)} against {_words(gain.over)} ({labelled(gain.other)})"
    return f"{against}: {earned}{figures}, {gain.verdict}."


def _against_best(results: Results, gains: Iterable[Gain]) -> Iterator[Finding]:
    """Return the better LOCA against the best baseline; no claim is on one of them alone.

    The better one is so where choices are made.
    """
    baseline = best_baseline(results)
    claimed = BEST if baseline == best_single(results) else BASELINE
    bests = [
        gain for gain in gains if gain.over in (BEST, BASELINE) and gain.model in _OF_THE_PAPER
    ]
    against = [gain for gain in bests if gain.over == claimed]
    if baseline is not None and len(against) == len(_OF_THE_PAPER):
        better = max(against, key=lambda gain: chosen_by(results.of(gain.model)))
        yield Finding.on(better.verdict == "better", f"the better LOCA, {_text(better)}")
        bests = [gain for gain in bests if gain not in against]
    yield from (Finding("found", _text(gain)) for gain in bests)


def _against_print(results: Results, name: str) -> Iterator[Finding]:
    """Return which of the printed figures the model reaches, under the protocol of the print."""
    means = results.means(name)
    below: list[str] = []
    texts: list[str] = []
    for metric in METRICS:
        printed = printed_accuracy(results.benchmark.printed_as, name, metric)
        if means is None or printed is None:
            return
        reached = round(means.mean(metric), _DIGITS)
        texts.append(f"{TITLES[metric]} {reached:.4f} ({printed:.4f})")
        if reached < printed:
            below.append(TITLES[metric])
    stands = "reaches all that is printed"
    if below:
        stands = f"is below what is printed in {', '.join(below)}"
    yield Finding.on(not below, f"{labelled(name)} {stands}: {', '.join(texts)}.")


def _note(results: Results) -> str:
    best, baseline = best_single(results), best_baseline(results)
    notes = []
    if best is not None:
        notes.append(f"Best single model where choices are made: {labelled(best)}.")
    if baseline is not None and baseline != best:
        notes.append(f"Best baseline there: {labelled(baseline)}.")
    if any(_printed(results.benchmark.printed_as, name) for name in _OF_TABLE if results.of(name)):
        notes.append("In brackets: what the paper prints.")
    return f"{' '.join(notes)}{_few(results, _OF_TABLE)}".strip()


def _few(results: Results, names: Iterable[str]) -> str:
    """Return which of the models lack seeds, in a sentence."""
    few = [labelled(name) for name in names if results.lacks_seeds(name)]
    if not few:
        return ""
    return f" Not yet with all {results.benchmark.sizes.seeds} seeds: {', '.join(few)}."


def _row(results: Results, name: str) -> tuple[str, ...]:
    """Return a row of all metrics; the last columns say how local a LOCA is, and are else empty."""
    runs, means = results.of(name), results.means(name)
    assert means is not None
    figures = []
    for metric in METRICS:
        printed = _printed(results.benchmark.printed_as, name, metric)
        figures.append(means.text(metric) + (f" ({printed})" if printed else ""))
    seconds = sum(run.seconds for run in runs) / len(runs)
    return (
        row_name(name, runs),
        str(len(runs)),
        *figures,
        interval_text(means.of_users()),
        f"{seconds:,.1f}",
        *(_locality_text(fact, runs) for fact in _LOCALITY),
    )


def _locality_text(fact: str, runs: Iterable[ComparedModel]) -> str:
    """Return α of every seed where they differ, the means of other facts; nothing without any."""
    values = [float(run.found[fact]) for run in runs if run.found.get(fact) is not None]
    if not values:
        return ""
    mean = sum(values) / len(values)
    if fact == "alpha":
        alphas = values if len(set(values)) > 1 else values[:1]
        return ", ".join(f"{alpha:g}" for alpha in alphas)
    return f"{mean:.1%}" if fact == "effective_share" else f"{mean:.1f}"


def row_name(name: str, runs: Iterable[ComparedModel]) -> str:
    """Return the model's label, and how many local models or members it has: LOCA_VAE (300)."""
    sizes = dict.fromkeys(run.size for run in runs if run.size is not None)
    return f"{labelled(name)} ({', '.join(map(str, sizes))})" if sizes else labelled(name)


def _printed(data: str | None, name: str, metric: str = MAIN) -> str:
    printed = printed_accuracy(data, name, metric)
    return "" if printed is None else f"{printed:.4f}"


def chosen_by(runs: Iterable[ComparedModel]) -> float:
    """Return the mean over seeds of the score that the model was chosen by: not of the result."""
    return float(np.mean([run.selected.score for run in runs]))


def best_single(results: Results) -> str | None:
    """Return the single model that is best where choices are made.

    None unless all single models have results: the best of some would be called the best of all.
    """
    runs = {name: results.of(name) for name in SINGLES}
    if not all(runs.values()):
        return None
    return max(runs, key=lambda name: chosen_by(runs[name]))


def best_baseline(results: Results) -> str | None:
    """Return the rival, single or of many local models, that is best where choices are made.

    None without all of the paper's. Others are among them where they have results.
    """
    runs = {name: results.of(name) for name in BASELINES if results.of(name)}
    if any(name not in runs for name in _RIVALS_OF_THE_PAPER):
        return None
    return max(runs, key=lambda name: chosen_by(runs[name]))


@lru_cache(maxsize=64)
def gains_of(results: Results) -> tuple[Gain, ...]:
    """Return all gains that the table shows, as one family of tests, and corrected as one.

    These are each local model against its base, the best single model, the best baseline if it is
    another, and the ensemble; then mixtures against all that stand beside them, their dealt
    memberships against the ensemble, and what is beyond the paper against the best of the models. A
    pair that stands there twice is corrected for once. Computed once: every difference is a
    bootstrap over users.
    """
    paired: dict[tuple[str, str], PairedDifference] = {}
    pairs = _pairs(results)
    for name, other, _ in pairs:
        first, second = results.means(name), results.means(other)
        if (name, other) not in paired and first is not None and second is not None:
            paired[name, other] = first.minus(second)
    t_p = holm(difference.t_p for difference in paired.values())
    wilcoxon_p = holm(difference.wilcoxon_p for difference in paired.values())
    by_t = dict(zip(paired, t_p.tolist(), strict=True))
    by_wilcoxon = dict(zip(paired, wilcoxon_p.tolist(), strict=True))
    return tuple(
        Gain(
            model=name,
            other=other,
            over=over,
            paired=paired[name, other],
            t_p=by_t[name, other],
            wilcoxon_p=by_wilcoxon[name, other],
        )
        for name, other, over in pairs
        if (name, other) in paired
    )


def _pairs(results: Results) -> list[tuple[str, str, str]]:
    """Return which model is compared with which other, and what that is to it."""
    best, baseline = best_single(results), best_baseline(results)
    bests = {BEST: best}
    if baseline != best:
        bests[BASELINE] = baseline
    pairs: list[tuple[str, str | None, str]] = []
    for name in (*LOCALS, *(name for name in AUTHORS if name in results.benchmark.names)):
        ensemble = f"ensemble-{name.removeprefix('paper-').removeprefix('loca-')}"
        others = {BASE: RECORDS[name].base, **bests, ENSEMBLE: ensemble}
        pairs += [(name, other, over) for over, other in others.items()]
    for name in _MIXED:
        base, ensemble, dealt, _ = beside(name)
        pairs += [
            (name, base, BASE),
            (name, ensemble, ENSEMBLE),
            (name, dealt, DEALT),
            (dealt, ensemble, ENSEMBLE),
        ]
    rival = BEST if baseline in (None, best) else BASELINE
    pairs += [(name, bests[rival], rival) for name in BEYOND if name not in _DEALT]
    return [(name, other, over) for name, other, over in pairs if other is not None]
