"""Table 2: the accuracy of all models, with intervals, paired differences and the equal-size ensembles as controls."""

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
    *(TITLES[one] for one in METRICS),
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
_MIXTURE_NOTE = f"What a mixture has over {DEALT} is locality; what the dealt form has over the ensemble is diversity."
# The paper prints so many digits: what rounds to a printed figure has reached it.
_DIGITS = 4


class Table2(PaperItem):
    """Recall and NDCG at 50 and 100, mean over seeds; ± is the standard deviation over seeds, the interval is over
    users; behind a model of many stands how many it has. The paper prints figures whose models were chosen on the test
    items; `paper` repeats that on the same interactions, and divides by all test items of a user, repeated ones too,
    as the paper does. `clean` chooses on validation, takes each pair of user and item once, and is the only column
    that is a result. A model that chooses nothing while it learns has the same figures under both, where the data and
    its settings are the same. A row of LOCA says how local it is: α, the global model's share for covered users; the
    share of the users that a local model trains on in effect, (Σt)² / Σt² over their weights t; and how many
    communities answer a user. Under `clean` communities by mixtures stand beside their base, the equal-size ensemble
    and the same memberships dealt to other users at random. Seconds are of the machines that the CSV names, some
    shared with other work.
    """

    key = "table2"
    title = "Table 2: accuracy of all models"
    names = None

    def overview(self, results: Results, studied: Sequence[Results]) -> Iterator[ReportTable]:
        """NDCG@100 of every model under each protocol, and printed where one of them is `paper` on the paper's data.

        Nothing where there is but one of all these.
        """
        label = results.benchmark.data.label
        of_data = [one for one in studied if one.benchmark.data.label == label]
        printed_as = next(filter(None, (one.benchmark.printed_as for one in of_data)), None)
        if results is not of_data[0] or (len(of_data) == 1 and printed_as is None):
            return
        header = ["NDCG@100", *([] if printed_as is None else ["paper prints"])]
        for one in of_data:  # the protocols do not evaluate the same users
            header += [
                f"here, {one.benchmark.protocol} ({one.benchmark.split.test.n_users:,} users)",
                "95 %",
            ]
        rows = []
        for name in (one for one in _OF_TABLE if any(results.of(one) for results in of_data)):
            row = [row_name(name, [run for one in of_data for run in one.of(name)])]
            row += [] if printed_as is None else [_printed(printed_as, name)]
            for one in of_data:
                means = one.means(name)
                row += (
                    ["", ""] if means is None else [means.text(), interval_text(means.of_users())]
                )
            rows.append(tuple(row))
        heading = (
            f"{label}: protocols side by side"
            if printed_as is None
            else f"{label}: beside the paper"
        )
        is_on_test = any(one.benchmark.protocol == "paper" for one in of_data)
        if rows:
            note = f"`paper`: {SELECTED_ON_TEST}." if is_on_test else ""
            yield ReportTable(heading, TextTable(tuple(header), tuple(rows)), note)

    def show(self, results: Results) -> Iterator[Part]:
        """All metrics of the paper's models, of mixtures beside their controls, of the rest, and the differences.

        The paper claims: LOCA above its base and every rival, LOCA_VAE above an ensemble; the rest is found.
        """
        gains = gains_of(results)
        mixed = (
            [one for name in _MIXED for one in beside(name)]
            if any(map(results.of, MIXTURES))
            else []
        )
        others = [name for name in BEYOND if name not in MIXTURES]
        tables: list[tuple[str, Iterable[str], str]] = [("", _OF_TABLE, _note(results))]
        tables += [
            (_OF_MIXTURES, mixed, f"{_MIXTURE_NOTE}{_few(results, MIXTURES)}"),
            ("beyond the paper", others, ""),
        ]
        for heading, names, note in tables:
            if rows := tuple(_row(results, name) for name in names if results.of(name)):
                yield ReportTable(heading, TextTable(_HEADER, rows), note)
        differences = []
        for one in gains:
            name = f"{labelled(one.model)} − {labelled(one.other)} ({_words(one.over)})"
            differences.append(
                (name, *paired_figures(one.paired, one.t_p, one.wilcoxon_p), one.verdict)
            )
        if differences:
            yield ReportTable("differences", TextTable(_GAINS_HEADER, tuple(differences)))
        runs = [(one, run) for one in results.benchmark.names for run in results.of(one)]
        for name, run in runs:
            means, intervals = run.evaluation.means(), run.evaluation.intervals()
            line: dict[str, Value] = {"model": name, "seed": run.evaluation.seed}
            for metric in METRICS:
                low, high = intervals[metric]
                line |= {metric: means[metric], f"{metric} low": low, f"{metric} high": high}
            line |= {"chosen by ndcg@100": run.tried[run.chosen].score, "seconds": run.seconds}
            # Under names of their own: a model has a parameter `model` too, and Auto one called `seconds`.
            line |= as_values(
                "setting", {key: one for key, one in run.parameters.items() if "seed" not in key}
            )
            yield line | as_values("found", run.found)
        for name in (*AUTHORS, *_OF_THE_PAPER):
            yield from _against_print(results, name)
        yield from _against_best(results, gains)
        for one in (gain for gain in gains if gain.over not in (BEST, BASELINE)):
            is_claimed = one.model in _OF_THE_PAPER and (
                one.over == BASE or one.model == "loca-vae"
            )
            yield (
                Finding.on(one.verdict == "better", _text(one))
                if is_claimed
                else Finding("found", _text(one))
            )


def headlines(studied: Iterable[Results]) -> Iterator[Headline]:
    """What each LOCA gains on each benchmark over its base, the best single model and the equal-size ensemble."""
    for results in studied:
        one = results.benchmark
        for name in (*AUTHORS, *LOCALS):
            means, printed = results.means(name), printed_accuracy(one.printed_as, name, MAIN)
            if means is not None:
                own = (
                    gain
                    for gain in gains_of(results)
                    if gain.model == name and gain.over != BASELINE
                )
                gains = {gain.over: replace(gain, other=labelled(gain.other)) for gain in own}
                called = row_name(name, results.of(name))
                yield Headline(one.data.label, one.protocol, called, means.text(), printed, gains)


def beside(mixture: str) -> tuple[str, str, str, str]:
    """What a model of mixtures is held against, and itself last: its base, the ensemble, dealt memberships."""
    kind = mixture.partition("-")[2]
    return RECORDS[mixture].base or "", f"ensemble-{kind}", f"dealt-{kind}", mixture


def _words(over: str) -> str:
    return "the ensemble of as many" if over == ENSEMBLE else over


def _text(one: Gain) -> str:
    figures = in_words(one.paired, " of NDCG@100")
    earned = (
        "this is locality, "
        if one.over == DEALT
        else "this is diversity, "
        if one.model in _DEALT
        else ""
    )
    against = f"{labelled(one.model)} against {_words(one.over)} ({labelled(one.other)})"
    return f"{against}: {earned}{figures}, {one.verdict}."


def _against_best(results: Results, gains: Iterable[Gain]) -> Iterator[Finding]:
    """The better LOCA, as it is where choices are made, against the best baseline; no claim is on one alone."""
    baseline = best_baseline(results)
    claimed = BEST if baseline == best_single(results) else BASELINE
    bests = [one for one in gains if one.over in (BEST, BASELINE) and one.model in _OF_THE_PAPER]
    against = [one for one in bests if one.over == claimed]
    if baseline is not None and len(against) == len(_OF_THE_PAPER):
        better = max(against, key=lambda one: chosen_by(results.of(one.model)))
        yield Finding.on(better.verdict == "better", f"the better LOCA, {_text(better)}")
        bests = [one for one in bests if one not in against]
    yield from (Finding("found", _text(one)) for one in bests)


def _against_print(results: Results, name: str) -> Iterator[Finding]:
    """Which of the printed figures the model reaches, under the protocol that they are printed for."""
    means, below, texts = results.means(name), list[str](), list[str]()
    for metric in METRICS:
        printed = printed_accuracy(results.benchmark.printed_as, name, metric)
        if means is None or printed is None:
            return
        reached = round(means.mean(metric), _DIGITS)
        texts.append(f"{TITLES[metric]} {reached:.4f} ({printed:.4f})")
        if reached < printed:
            below.append(TITLES[metric])
    stands = (
        f"is below what is printed in {', '.join(below)}"
        if below
        else "reaches all that is printed"
    )
    yield Finding.on(not below, f"{labelled(name)} {stands}: {', '.join(texts)}.")


def _note(results: Results) -> str:
    best, baseline = best_single(results), best_baseline(results)
    notes = [] if best is None else [f"Best single model where choices are made: {labelled(best)}."]
    if baseline is not None and baseline != best:
        notes.append(f"Best baseline there: {labelled(baseline)}.")
    if any(_printed(results.benchmark.printed_as, name) for name in _OF_TABLE if results.of(name)):
        notes.append("In brackets: what the paper prints.")
    return f"{' '.join(notes)}{_few(results, _OF_TABLE)}".strip()


def _few(results: Results, names: Iterable[str]) -> str:
    """Which of the models lack seeds, in a sentence."""
    few = [labelled(name) for name in names if results.lacks_seeds(name)]
    return (
        f" Not yet with all {results.benchmark.sizes.seeds} seeds: {', '.join(few)}." if few else ""
    )


def _row(results: Results, name: str) -> tuple[str, ...]:
    """A row of all metrics; the last columns say how local a LOCA is, and are empty for other models."""
    runs, means = results.of(name), results.means(name)
    assert means is not None
    figures = []
    for metric in METRICS:
        printed = _printed(results.benchmark.printed_as, name, metric)
        figures.append(means.text(metric) + (f" ({printed})" if printed else ""))
    locality = []
    for fact in _LOCALITY:
        values = [float(one.found[fact]) for one in runs if one.found.get(fact) is not None]
        # α of every seed where they differ; means of the others.
        alphas = ", ".join(f"{one:g}" for one in (values if len(set(values)) > 1 else values[:1]))
        mean = sum(values) / max(len(values), 1)
        shown = {"alpha": alphas, "effective_share": f"{mean:.1%}", "answering": f"{mean:.1f}"}
        locality.append(shown[fact] if values else "")
    seconds = f"{sum(one.seconds for one in runs) / len(runs):,.1f}"
    return (
        row_name(name, runs),
        str(len(runs)),
        *figures,
        interval_text(means.of_users()),
        seconds,
        *locality,
    )


def row_name(name: str, runs: Iterable[ComparedModel]) -> str:
    """Return the model's label, and how many local models or members it has: LOCA_VAE (300)."""
    sizes = dict.fromkeys(run.size for run in runs if run.size is not None)
    return f"{labelled(name)} ({', '.join(map(str, sizes))})" if sizes else labelled(name)


def _printed(data: str | None, name: str, metric: str = MAIN) -> str:
    printed = printed_accuracy(data, name, metric)
    return "" if printed is None else f"{printed:.4f}"


def chosen_by(runs: Iterable[ComparedModel]) -> float:
    """The mean over seeds of the NDCG@100 by which the model was chosen: never that of the result."""
    return float(np.mean([one.tried[one.chosen].score for one in runs]))


def best_single(results: Results) -> str | None:
    """The single model that is best where choices are made; None unless all single models have results."""
    found = {name: results.of(name) for name in SINGLES}
    # The best of some of them would be called the best of all.
    return max(found, key=lambda name: chosen_by(found[name])) if all(found.values()) else None


def best_baseline(results: Results) -> str | None:
    """The rival, single or of many local models, that is best where choices are made; None without all of the paper's.

    Others are among them where they have results.
    """
    found = {name: runs for name in BASELINES if (runs := results.of(name))}
    missing = any(name not in found for name in _RIVALS_OF_THE_PAPER)
    return None if missing else max(found, key=lambda name: chosen_by(found[name]))


@lru_cache(maxsize=64)
def gains_of(results: Results) -> tuple[Gain, ...]:
    """Each local model against its base, the best single model, the best baseline if it is another, and the ensemble.

    Then mixtures against all that stand beside them, their dealt memberships against the ensemble, and what is beyond
    the paper against the best of the models. All are one family of tests, and corrected as one; a pair
    that stands there twice is corrected for once. Computed once: every difference is a bootstrap over users.
    """
    best, baseline = best_single(results), best_baseline(results)
    bests = {BEST: best} | ({} if baseline == best else {BASELINE: baseline})
    pairs = list[tuple[str, str | None, str]]()
    for name in (*LOCALS, *(one for one in AUTHORS if one in results.benchmark.names)):
        kind = name.removeprefix("paper-").removeprefix("loca-")
        others = {BASE: RECORDS[name].base, **bests, ENSEMBLE: f"ensemble-{kind}"}
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
    paired = dict[tuple[str, str | None], PairedDifference]()
    for name, other in dict.fromkeys(
        (name, other) for name, other, _ in pairs if other is not None
    ):
        first, second = results.means(name), results.means(other)
        if first is not None and second is not None:
            paired[name, other] = first.minus(second)
    t_p = dict(zip(paired, holm(one.t_p for one in paired.values()), strict=True))
    wilcoxon_p = dict(zip(paired, holm(one.wilcoxon_p for one in paired.values()), strict=True))
    return tuple(
        Gain(
            name,
            other,
            over,
            paired[name, other],
            float(t_p[name, other]),
            float(wilcoxon_p[name, other]),
        )
        for name, other, over in pairs
        if other is not None and (name, other) in paired
    )
