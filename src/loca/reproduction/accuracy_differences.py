"""Who is held against whom in Table 2: the best single model, and the paired differences with corrected p values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from loca.ranking.significance import PairedDifference, Verdict, holm, verdict_on
from loca.reproduction.bench import AUTHORS, BASELINES, BEYOND, LOCALS, SINGLES, Results, base_of
from loca.reproduction.seed_means import chosen_by, over_seeds

BASE, BEST, ENSEMBLE = "its base", "the best single model", "the ensemble of as many"
BASELINE = "the best baseline"
# The rivals that the paper has: the best of fewer is not the best that it claims to beat.
_OF_THE_PAPER = ("wmf", "slim", "cdae", "mult-vae", "ease", "rec-vae", "llorma", "sglsvd")


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
    missing = any(name not in found for name in _OF_THE_PAPER)
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
