"""The figures of a model: means over seeds, intervals over users, and how they are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from loca.evaluation.evaluate import Evaluation
from loca.evaluation.significance import PairedDifference, bootstrap_intervals, paired_difference
from loca.paper.charts import Curve
from loca.paper.report import Finding, Value
from loca.registry import RECORDS

Floats = npt.NDArray[np.float64]
METRICS = ("recall@50", "ndcg@50", "recall@100", "ndcg@100")
MAIN = "ndcg@100"


@dataclass(frozen=True, eq=False)
class SeedMeans:
    """The evaluations of one model, one for each seed, over the same users."""

    evaluations: tuple[Evaluation, ...]

    def of_users(self, metric: str = MAIN) -> Floats:
        """Return each user's mean over the seeds."""
        values = [evaluation.values[metric] for evaluation in self.evaluations]
        return np.asarray(np.mean(values, axis=0), dtype=np.float64)

    def mean(self, metric: str = MAIN) -> float:
        """Return the mean over users and seeds."""
        return float(self.of_users(metric).mean())

    def of_seeds(self, metric: str = MAIN) -> tuple[float, ...]:
        """Return the mean over users of each seed."""
        return tuple(float(evaluation.values[metric].mean()) for evaluation in self.evaluations)

    def text(self, metric: str = MAIN) -> str:
        """Return the mean and, after ±, the spread over seeds, where there are several."""
        return with_spread(self.mean(metric), self.of_seeds(metric))

    def minus(self, other: SeedMeans, metric: str = MAIN) -> PairedDifference:
        """Return the paired difference over users of the means over seeds."""
        return paired_difference(self.of_users(metric), other.of_users(metric), seed=0)


def labelled(name: str) -> str:
    """Return the name of a model as the paper writes it."""
    return RECORDS[name].label


def as_values(word: str, facts: Mapping[str, Any]) -> dict[str, Value]:
    """Return facts as a line of CSV holds them, the word before each name."""
    plain = str | int | float | bool | None
    return {
        f"{word} {key}": value if isinstance(value, plain) else str(value)
        for key, value in facts.items()
    }


def interval_of(values: Floats) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of a mean."""
    ((low, high),) = bootstrap_intervals(values[:, None], seed=0).tolist()
    return low, high


def interval_text(values: Floats) -> str:
    """Return the interval as a table shows it."""
    return "{:.4f} – {:.4f}".format(*interval_of(values))


def with_spread(mean: float, seeds: Sequence[float]) -> str:
    """Return a mean and, after ±, the standard deviation over seeds, where there are several."""
    text = f"{mean:.4f}"
    if len(seeds) > 1:
        text += f" ± {np.std(seeds, ddof=1):.4f}"
    return text


def in_words(paired: PairedDifference, of: str = "") -> str:
    """Return a difference in percent, of what, and its interval."""
    return f"{paired.relative:+.1%}{of} [{paired.low:+.4f}, {paired.high:+.4f}]"


def level(label: str, value: SeedMeans | float | None) -> list[Curve]:
    """Return a dashed level in a chart at the mean or value; nothing where it was not measured."""
    if value is None:
        return []
    height = value if isinstance(value, float) else value.mean()
    return [Curve(label, (), (height,), is_level=True)]


def curve(label: str, x: Sequence[float], points: Sequence[SeedMeans | None]) -> Curve:
    """Return a line of NDCG@100 with intervals over users and the single seeds.

    Points that were not measured are left out.
    """
    places: list[float] = []
    measured: list[SeedMeans] = []
    for place, means in zip(x, points, strict=True):
        if means is not None:
            places.append(float(place))
            measured.append(means)
    intervals = [interval_of(means.of_users()) for means in measured]
    seeds = tuple(zip(*(means.of_seeds() for means in measured), strict=False))
    return Curve(
        label=label,
        x=tuple(places),
        y=tuple(means.mean() for means in measured),
        low=tuple(low for low, _ in intervals),
        high=tuple(high for _, high in intervals),
        seeds=seeds if len(seeds) > 1 else (),
    )


def claimed_gain(
    text: str, first: SeedMeans | None, second: SeedMeans | None, of: str = ""
) -> list[Finding]:
    """Return a finding on the claim that the first is above the second.

    `text` has {} for the difference, and `of` says what it is one of. Nothing where one of them was
    not measured.
    """
    if first is None or second is None:
        return []
    paired = first.minus(second)
    return [Finding.on(paired.low > 0, text.format(in_words(paired, of)))]
