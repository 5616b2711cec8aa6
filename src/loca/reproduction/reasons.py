"""Why a table matches the paper or differs from it, as far as the measured controls can tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from loca.ranking.significance import Verdict
from loca.reproduction.accuracy_differences import BASE, ENSEMBLE, Rival
from loca.reproduction.bench import BASELINES, LOCALS, Results, base_of, labelled
from loca.reproduction.printed import printed_accuracy, printed_name
from loca.reproduction.seed_means import MAIN, over_seeds

_MOST_NAMED = 3
# What is left of a gain when that of an ensemble is taken away.
_LEFT: Mapping[Verdict, str] = {
    "better": "{0:+.2%} over the ensemble is what locality earns",
    "worse": "locality itself loses ({0:+.2%})",
    "undecided": "nothing sure is left that is local ({0:+.2%})",
    "equal": "nothing is left that is local",
}
# Under `paper` every choice for each local model is made on test, more of them than for an ensemble.
_CHOSEN_ON_TEST = "{0:+.2%} over the ensemble is locality, or comes of choosing more on the test items"
# How it stands beside the ensemble where it is its base alone.
_BESIDE: Mapping[Verdict, str] = {
    "better": ", and {0} loses",
    "worse": ", though {0} gains",
    "undecided": ", and {0} neither surely gains nor loses",
    "equal": ", and {0} has the same",
}


def reasons(studied: Sequence[Results], rivals: Sequence[Sequence[Rival]]) -> tuple[str, ...]:
    """Sentences on where each LOCA's gain comes from, on the rivals, and on what the protocols ask.

    `rivals` are the differences of each of the studied.
    """
    lines = list[str]()
    for results, its in zip(studied, rivals, strict=True):
        for name in LOCALS:
            lines += _of_local(results, its, name)
        lines += _of_rivals(results)
    return (*lines, *_of_protocols(studied))


def _of_local(results: Results, rivals: Sequence[Rival], name: str) -> Iterator[str]:
    """Whether local models are asked at all, and how much of their gain is that of an ensemble."""
    where, base = results.bench.title, base_of(name)
    own = {one.what: one for one in rivals if one.name == name}
    shares = [one.found.get("alpha") for one in results.of(name)]
    if shares and all(share == 1 for share in shares):
        beside = _BESIDE[own[ENSEMBLE].verdict].format(labelled(own[ENSEMBLE].other)) if ENSEMBLE in own else ""
        yield (
            f"{where}: {labelled(name)} answers as {labelled(base)} does: the global share that was chosen is 1 with "
            f"every seed, so that no local model is asked{beside}."
        )
        return
    if BASE not in own or ENSEMBLE not in own:
        return
    left = own[ENSEMBLE]
    alone, ensemble = over_seeds(results.of(base)), over_seeds(results.of(left.other))
    assert alone is not None  # there are differences to both
    assert ensemble is not None
    gained, averaged = own[BASE].paired.relative, ensemble.minus(alone).relative
    drawn = "on samples of the users" if name == "loca-ease" else "that see all users"
    # An ensemble that loses is no measure of what locality earns: the base is.
    left_is_told = averaged > 0 or left.verdict != "better"
    told = _LEFT[left.verdict].format(left.paired.relative) if left_is_told else "averaging earns nothing here"
    if left_is_told and left.verdict == "better" and results.bench.protocol == "paper":
        told = _CHOSEN_ON_TEST.format(left.paired.relative)
    yield (
        f"{where}: {labelled(name)} changes NDCG@100 by {gained:+.2%} from {labelled(base)}, and the ensemble of as "
        f"many {drawn} by {averaged:+.2%}: {told}."
    )


def _of_rivals(results: Results) -> Iterator[str]:
    """How many rivals have more than is printed for them, which makes a margin over the best of them smaller."""
    figures = dict[str, tuple[float, float]]()
    for name in BASELINES:
        means, printed = over_seeds(results.of(name)), printed_accuracy(printed_name(results.bench), name, MAIN)
        if means is not None and printed is not None:
            figures[name] = means.mean(), printed
    above = sorted(
        ((here - printed, name) for name, (here, printed) in figures.items() if here > printed), reverse=True
    )
    if above:
        named = ", ".join(
            "{} {:.4f} (printed {:.4f})".format(labelled(name), *figures[name]) for _, name in above[:_MOST_NAMED]
        )
        yield (
            f"{results.bench.title}: {len(above)} of {len(figures)} rivals have more NDCG@100 here than is printed for "
            f"them, with the settings below, most of all {named}, which changes LOCA's margin over the best of them."
        )


def _of_protocols(studied: Sequence[Results]) -> Iterator[str]:
    """Where the protocols ask different users, their figures do not compare."""
    for label in dict.fromkeys(one.bench.data.label for one in studied):
        asked = {one.bench.protocol: one.bench.split.test.n_users for one in studied if one.bench.data.label == label}
        if len(set(asked.values())) > 1:
            yield (
                f"{label}: `paper` asks {asked['paper']:,} users and `clean` {asked['clean']:,}, because `clean` takes "
                "each pair of user and item once: figures of the two do not compare."
            )
