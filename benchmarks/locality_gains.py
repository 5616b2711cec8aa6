"""Each community's own gain on validation, shrunk over all communities, as a factor on its answer weight."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

Numbers = npt.NDArray[np.float64]


def weighted_gains(differences: npt.NDArray[Any], weights: npt.NDArray[Any]) -> tuple[Numbers, Numbers]:
    """The weighted mean of each column of `differences` (users × communities), and the variance of that mean.

    Σ w·d / Σ w and Σ w²·(d − mean)² / (Σ w)². A community with fewer than two users tells nothing: mean 0, variance
    infinite.
    """
    totals = weights.sum(axis=0)
    some = (weights > 0).sum(axis=0) >= 2
    safe = np.where(totals > 0, totals, 1)
    means = np.where(some, (weights * differences).sum(axis=0) / safe, 0.0)
    variances = (weights**2 * (differences - means) ** 2).sum(axis=0) / safe**2
    return means, np.where(some, variances, np.inf)


def shrink_gains(gains: npt.NDArray[Any], variances: npt.NDArray[Any]) -> Numbers:
    """Empirical Bayes: μ + (g − μ)·τ² / (τ² + v), with μ and τ² estimated over all communities.

    τ², the variance of the true gains, is DerSimonian and Laird's estimate by moments, never below 0; where it is 0
    all gains become their common mean. Communities with a variance of 0 count as exact.
    """
    known = np.isfinite(variances)
    if not known.any():
        return np.zeros_like(gains, dtype=np.float64)
    g, v = gains[known], np.maximum(variances[known], 1e-12)
    precision = 1 / v
    mean = (precision * g).sum() / precision.sum()
    excess = (precision * (g - mean) ** 2).sum() - (len(g) - 1)
    scale = precision.sum() - (precision**2).sum() / precision.sum()
    spread = max(0.0, excess / scale) if scale > 0 else 0.0
    precision = 1 / (v + spread)
    mean = (precision * g).sum() / precision.sum()
    shrunk = np.full(len(gains), mean)
    shrunk[known] = mean + (g - mean) * spread / (spread + v)
    return shrunk


def factors_of(shrunk: Numbers) -> dict[str, Numbers]:
    """Two ways to make factors for answer weights: in proportion to the gain (0 below 0), or on and off."""
    positive = np.maximum(shrunk, 0.0)
    largest = positive.max()
    return {
        "proportional": positive / largest if largest > 0 else positive,
        "on or off": (shrunk > 0).astype(np.float64),
    }


def times_factors(answer_weights: csr_array, factors: npt.NDArray[Any]) -> csr_array:
    """Answer weights times factors, (communities,) or (users, communities); weights that become 0 are dropped."""
    changed = csr_array(answer_weights.multiply(factors if factors.ndim == 2 else factors[None]))
    changed.eliminate_zeros()
    return csr_array(changed.astype(np.float32))


def cross_fitted_factors(
    differences: npt.NDArray[Any], weights: npt.NDArray[Any], folds: npt.NDArray[np.int64]
) -> tuple[dict[str, Numbers], dict[str, Numbers]]:
    """Factors for the validation users (users × communities), each from the other fold's users, and for all others.

    Whatever is then chosen on validation is not chosen on users whose own values made the factors.
    """
    overall = factors_of(shrink_gains(*weighted_gains(differences, weights)))
    by_user = {name: np.empty(weights.shape) for name in overall}
    for fold in (0, 1):
        others = folds != fold
        for name, factors in factors_of(shrink_gains(*weighted_gains(differences[others], weights[others]))).items():
            by_user[name][~others] = factors
    return by_user, overall
