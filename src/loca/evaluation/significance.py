"""Compute how sure a figure is: bootstrap intervals, paired differences over the same users, Holm's correction."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from loca.errors import DataError
from loca.random_streams import stream

Verdict = Literal["better", "worse", "undecided", "equal"]
Floats = npt.NDArray[np.float64]
RESAMPLES = 1000
_LEVEL = 0.05
# Relative to the value: far above what the mean of a few equal numbers is off by, far below any difference that counts.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class PairedDifference:
    """Hold how much better one model is than another over the same users: first − second, and how sure that is.

    Attributes
    ----------
    mean : float
        The mean difference over the users.
    relative : float
        The mean difference divided by the second model's mean.
    low, high : float
        The ends of the 95 % bootstrap interval of the mean.
    t, t_p : float
        The statistic and the p value of the paired t test.
    wilcoxon_p : float
        The p value of Wilcoxon's signed-rank test.
    user_count : int
        Number of users.
    """

    mean: float
    relative: float
    low: float
    high: float
    t: float
    t_p: float
    wilcoxon_p: float
    user_count: int

    def __str__(self) -> str:
        return (
            f"{self.mean:+.4f} ({self.relative:+.1%}), 95 % interval [{self.low:+.4f}, {self.high:+.4f}], "
            f"t = {self.t:.2f} (p = {self.t_p:.2g}), Wilcoxon p = {self.wilcoxon_p:.2g}, "
            f"{self.user_count:,} users"
        )


def bootstrap_means(
    values: npt.NDArray[Any],
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
    block_bytes: int = 64_000_000,
) -> Floats:
    """Return the means of `resamples` samples of the users, drawn with replacement: resamples × columns.

    `values` is users × columns; every column is resampled with the same users.
    """
    user_count = len(values)
    rng = stream(seed, "bootstrap")
    step = max(1, block_bytes // (8 * user_count))
    means = np.empty((resamples, values.shape[1]))
    for start in range(0, resamples, step):
        size = min(step, resamples - start)
        counts = np.empty((size, user_count))  # how often each user was drawn
        for row in counts:
            row[:] = np.bincount(rng.integers(0, user_count, user_count), minlength=user_count)
        means[start : start + size] = counts @ values / user_count
    return means


def bootstrap_intervals(
    values: npt.NDArray[Any], *, seed: int = 0, resamples: int = RESAMPLES
) -> Floats:
    """Return the 95 % percentile interval of each column's mean: columns × (low, high)."""
    return np.percentile(
        bootstrap_means(values, seed=seed, resamples=resamples), [2.5, 97.5], axis=0
    ).T


def paired_difference(
    first: npt.ArrayLike, second: npt.ArrayLike, *, seed: int = 0
) -> PairedDifference:
    """Compare two models user by user: bootstrap interval, paired t test and Wilcoxon test.

    Where the two are equal for every user nothing speaks for a difference: t = 0 and both p = 1. Values that differ by
    less than rounding makes of a mean are equal.

    Parameters
    ----------
    first : array_like
        One value per user, such as `evaluation.values["ndcg@100"]`.
    second : array_like
        The values of the other model for the same users in the same order.
    seed : int, default 0
        Seed of the bootstrap interval.

    Returns
    -------
    PairedDifference
        `first` − `second`; prints as one line.

    Examples
    --------
    >>> found = loca.paired_difference([0.5, 0.25, 1.0, 0.75], [0.25, 0.25, 0.5, 0.5])
    >>> found.mean, found.user_count
    (0.25, 4)
    >>> found.low <= found.mean <= found.high
    True
    >>> loca.paired_difference([0.5, 0.25], [0.5, 0.25]).t_p
    1.0
    """
    from scipy import stats

    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if a.ndim != 1 or a.shape != b.shape:
        shapes = f"{a.shape} and {b.shape}"
        raise DataError(
            f"paired difference: expected one value per user from both, found shapes {shapes}"
        )
    if len(a) < 2:
        raise DataError(f"paired difference: expected at least 2 users, found {len(a)}")
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise DataError("paired difference: expected finite values, found NaN or infinity")
    differences = np.where(np.isclose(a, b, rtol=_ROUNDING, atol=0), 0, a - b)
    mean, reference = float(differences.mean()), float(b.mean())
    low, high = bootstrap_intervals(differences[:, None], seed=seed)[0].tolist()
    t, t_p, wilcoxon_p = 0.0, 1.0, 1.0
    if differences.any():
        with np.errstate(divide="ignore"):
            # Without any spread the same non-zero difference everywhere is certain: t is infinite.
            t = float(mean / (differences.std(ddof=1) / math.sqrt(len(differences))))
        t_p = float(2 * stats.t.sf(abs(t), len(differences) - 1))
        wilcoxon_p = float(stats.wilcoxon(differences).pvalue)
    relative = mean / reference if reference else math.copysign(math.inf, mean) if mean else 0.0
    return PairedDifference(mean, relative, low, high, t, t_p, wilcoxon_p, len(differences))


def holm(p_values: Iterable[float]) -> Floats:
    """Correct p values for their number, in their order: each may be held against the same level.

    With m values sorted upwards, the i-th (from 0) becomes the largest of (m − j) · p_j over j ≤ i, at most 1.
    """
    p = np.asarray(list(p_values), dtype=np.float64)
    if not ((p >= 0) & (p <= 1)).all():
        raise DataError(f"p values: expected numbers between 0 and 1, found {p.tolist()}")
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1)
    return adjusted


def verdict_on(paired: PairedDifference, t_p: float, wilcoxon_p: float) -> Verdict:
    """Return a word for those who skip the figures, by p values that are corrected for the number of comparisons.

    Better or worse where the interval and both tests agree; equal where nobody's figure differs.
    """
    if not (paired.mean or paired.low or paired.high):
        return "equal"
    if paired.low <= 0 <= paired.high or max(t_p, wilcoxon_p) >= _LEVEL:
        return "undecided"
    return "better" if paired.low > 0 else "worse"


# One side of a 95 % interval, in standard errors.
ONE_SIDE = 1.645


def is_significantly_better(
    values: npt.NDArray[Any], others: npt.NDArray[Any], errors: float = ONE_SIDE
) -> bool:
    """Return whether the mean of paired differences exceeds so many of its standard errors."""
    gains = values - others
    return bool(gains.mean() > errors * gains.std() / max(len(gains), 1) ** 0.5)
