"""One model over its seeds: each user's mean, the interval over users, and the spread over seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from loca.experiments.cells import ComparedModel
from loca.ranking.evaluation import Evaluation
from loca.ranking.significance import PairedDifference, bootstrap_intervals, paired_difference

METRICS = ("recall@50", "ndcg@50", "recall@100", "ndcg@100")
MAIN = "ndcg@100"


@dataclass(frozen=True, eq=False)
class SeedMeans:
    """The evaluations of one model, one for each seed, over the same users."""

    evaluations: tuple[Evaluation, ...]

    def of_users(self, metric: str = MAIN) -> npt.NDArray[np.float64]:
        """Each user's mean over the seeds."""
        values = [one.values[metric] for one in self.evaluations]
        return np.asarray(np.mean(values, axis=0), dtype=np.float64)

    def mean(self, metric: str = MAIN) -> float:
        return float(self.of_users(metric).mean())

    def interval(self, metric: str = MAIN) -> tuple[float, float]:
        """The 95 % bootstrap interval over users of the mean over seeds."""
        ((low, high),) = bootstrap_intervals(self.of_users(metric)[:, None], seed=0).tolist()
        return low, high

    def of_seeds(self, metric: str = MAIN) -> tuple[float, ...]:
        """The mean over users of each seed."""
        return tuple(float(one.values[metric].mean()) for one in self.evaluations)

    def spread(self, metric: str = MAIN) -> float | None:
        """The standard deviation over the seeds; None where there is one seed."""
        return spread_of(self.of_seeds(metric))

    def told(self, metric: str = MAIN) -> str:
        """The mean and, after ±, the spread over seeds, where there is one."""
        return with_spread(self.mean(metric), self.spread(metric))

    def minus(self, other: SeedMeans, metric: str = MAIN) -> PairedDifference:
        """The paired difference over users of the means over seeds."""
        return paired_difference(self.of_users(metric), other.of_users(metric), seed=0)


def spread_of(seeds: Sequence[float]) -> float | None:
    """The standard deviation over seeds; None where there is one."""
    return float(np.std(seeds, ddof=1)) if len(seeds) > 1 else None


def with_spread(mean: float, spread: float | None) -> str:
    """A mean and, after ±, its spread over seeds, where there is one."""
    return f"{mean:.4f}" + ("" if spread is None else f" ± {spread:.4f}")


def in_words(paired: PairedDifference, of: str = "") -> str:
    """A difference in percent, of what, and its interval."""
    return f"{paired.relative:+.1%}{of} [{paired.low:+.4f}, {paired.high:+.4f}]"


def over_seeds(measured: Sequence[ComparedModel], count: int | None = None) -> SeedMeans | None:
    """The means of computed cells, or of their first `count` models; None where nothing was computed."""
    found = [one.evaluation if count is None else one.by_count[count] for one in measured]
    return SeedMeans(tuple(found)) if found else None


def chosen_by(measured: Iterable[ComparedModel]) -> float:
    """The mean over seeds of the NDCG@100 by which the model was chosen: never that of the result."""
    return float(np.mean([one.tried[one.chosen].ndcg for one in measured]))
