"""Table 2: the accuracy of all models, with intervals, paired differences and the equal-size ensembles as controls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from loca.experiments.cells import Cell
from loca.reproduction.accuracy_differences import BASE, BASELINE, BEST, Rival, best_baseline, best_single, differences
from loca.reproduction.accuracy_panels import TITLES, bench_panels, row_name, side_by_side
from loca.reproduction.bench import AUTHORS, LOCALS, Bench, Results, as_value, labelled
from loca.reproduction.exhibit import Exhibit, Finding, Gain, Headline, Panel, Value
from loca.reproduction.printed import printed_accuracy, printed_name
from loca.reproduction.seed_means import MAIN, METRICS, chosen_by, in_words, over_seeds

_OF_THE_PAPER = ("loca-vae", "loca-ease")
_PRINTED = (*AUTHORS, *_OF_THE_PAPER)
# The paper prints so many digits: what rounds to a printed figure has reached it.
_DIGITS = 4


def needed(bench: Bench) -> dict[str, Cell]:
    """The cells of all rows."""
    return {called: cell for name in bench.names for called, cell in bench.row(name).items()}


def make(studied: Sequence[Results]) -> Exhibit:
    """The table as it came out on every bench, and both protocols side by side."""
    # Told once and passed on: every difference is a bootstrap over users.
    rivals = [differences(results) for results in studied]
    panels: list[Panel] = []
    for label in dict.fromkeys(one.bench.data.label for one in studied):
        of_data = [(one, its) for one, its in zip(studied, rivals, strict=True) if one.bench.data.label == label]
        panels += side_by_side(label, [one for one, _ in of_data])
        for results, its in of_data:
            panels += bench_panels(results, its)
    return Exhibit(
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
