"""Distances between users, kernels, and bandwidths in units of distance or as quantiles.

A bandwidth is a parameter. The radius is the number that it comes to in an embedding.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from loca.errors import ConfigError, DataError
from loca.random_streams import stream
from loca.typing import FloatArray

KernelName = Literal["epanechnikov", "paper", "uniform", "triangular"]
_QUANTILE_TEXT = re.compile(r"^(?:(?P<times>[0-9.eE+-]+)\s*\*\s*)?q(?P<level>[0-9.eE+-]+)$")
_RIGHT_ANGLES = np.float32(2 / np.pi)  # from radians
# Arbitrary: the level of a quantile of so many distances has a standard error below 0.001.
MOST_PAIRS = 500_000
_PAIRS_PER_BLOCK = 50_000


@dataclass(frozen=True)
class Quantile:
    """Stand for a bandwidth of `times` × the `level` quantile of the distances between users.

    Unlike a bandwidth in absolute units it carries over from one embedding to another.

    Parameters
    ----------
    level : float
        Above 0 and up to 1.
    times : float, default 1.0
        A factor above 0.

    Examples
    --------
    >>> loca.Quantile(0.9)
    Quantile(level=0.9, times=1.0)
    >>> str(loca.Quantile(0.9, times=1.3))
    '1.3*q0.9'
    >>> loca.Quantile.parse("1.3*q0.9") == loca.Quantile(0.9, times=1.3)
    True
    """

    level: float
    times: float = 1.0

    def __post_init__(self) -> None:
        for name, value in (("level", self.level), ("times", self.times)):
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ConfigError(f"quantile {name}: expected a number, found {value!r}")
        if not 0 < self.level <= 1:
            raise ConfigError(
                f"quantile: expected a level above 0 and up to 1, found {self.level!r}"
            )
        if not (self.times > 0 and math.isfinite(self.times)):
            raise ConfigError(f"quantile: expected a factor above 0, found {self.times!r}")

    @classmethod
    def parse(cls, text: str) -> Quantile:
        """Read a quantile from text.

        Parameters
        ----------
        text : str
            Such as `q0.9` or `1.3*q0.9`.

        Returns
        -------
        Quantile
            Whose text, `str`, is the same.

        Raises
        ------
        ConfigError
            Where the text is no quantile, or its numbers are out of range.
        """
        match = _QUANTILE_TEXT.match(text.strip())
        try:
            if match:
                return cls(float(match["level"]), float(match["times"] or 1.0))
        except ValueError:
            pass
        raise ConfigError(f"quantile: expected text such as q0.9 or 1.3*q0.9, found {text!r}")

    def __str__(self) -> str:
        return f"q{self.level:g}" if self.times == 1 else f"{self.times:g}*q{self.level:g}"


Bandwidth = float | Quantile


def check_bandwidth(name: str, bandwidth: Bandwidth) -> None:
    """Refuse a bandwidth that is not a number above 0 or a quantile."""
    is_number = isinstance(bandwidth, int | float) and not isinstance(bandwidth, bool)
    if not (isinstance(bandwidth, Quantile) or (is_number and bandwidth > 0)):
        raise ConfigError(
            f"{name}: expected a number above 0 or a quantile such as Quantile(0.9), "
            f"found {bandwidth!r}"
        )


def check_embeddings(embeddings: npt.NDArray[Any]) -> None:
    """Refuse what is not users × dimensions, and rows with NaN or infinity."""
    if embeddings.ndim != 2:
        raise DataError(
            f"embeddings: expected users × dimensions, found an array of shape {embeddings.shape}"
        )
    is_bad = ~np.isfinite(embeddings).all(axis=1)
    if is_bad.any():
        raise DataError(
            f"embeddings: {is_bad.sum():,} of {len(embeddings):,} rows hold NaN or infinity, "
            f"the first is row {is_bad.argmax()}"
        )


def unit_rows(embeddings: npt.NDArray[Any]) -> FloatArray:
    """Return embeddings scaled to length 1, in 32 bits; NaN and infinity are refused.

    A zero vector stays zero, at a right angle to all.
    """
    rows = np.asarray(embeddings, dtype=np.float32)
    check_embeddings(rows)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, 1e-12), dtype=np.float32)


def angular_distances(users: FloatArray, anchors: FloatArray) -> FloatArray:
    """Return (2/π) · arccos of the cosines between unit rows, users × anchors.

    It is 0 in the same direction, 1 at a right angle, and 2 in opposite directions.
    """
    return _distances_of_cosines(users @ anchors.T)


def _distances_of_cosines(cosines: FloatArray) -> FloatArray:
    # Rounding can push a cosine past 1, where arccos is undefined.
    angles = np.arccos(np.clip(cosines, -1.0, 1.0))
    return np.asarray(angles * _RIGHT_ANGLES, dtype=np.float32)


def cosine_within(radius: float) -> float:
    """Return the cosine above which a distance is below the radius; from 2 on all cosines are."""
    return math.cos(radius * math.pi / 2) if radius <= 2 else -2.0


# -- From a bandwidth to a radius -----------------------------------------------------------------


def resolve_bandwidth(bandwidth: Bandwidth, embeddings: FloatArray, seed: int) -> float:
    """Return the radius that a bandwidth stands for in an embedding of unit rows."""
    return resolve_bandwidths([bandwidth], embeddings, seed)[0]


def resolve_bandwidths(
    bandwidths: Sequence[Bandwidth], embeddings: FloatArray, seed: int
) -> list[float]:
    """Return the radius of each bandwidth; quantiles are of the same pairs of users."""
    if not any(isinstance(bandwidth, Quantile) for bandwidth in bandwidths):
        return [float(bandwidth) for bandwidth in bandwidths]  # type: ignore[arg-type]
    distances = pair_distances(embeddings, seed)
    return [_radius(bandwidth, distances) for bandwidth in bandwidths]


def _radius(bandwidth: Bandwidth, distances: FloatArray) -> float:
    if not isinstance(bandwidth, Quantile):
        return float(bandwidth)
    radius = bandwidth.times * float(np.quantile(distances, bandwidth.level))
    if radius <= 0:
        raise DataError(
            f"bandwidth {bandwidth}: that quantile of the distances is 0; the embeddings of most "
            "users are equal"
        )
    return radius


def pair_distances(embeddings: FloatArray, seed: int) -> FloatArray:
    """Return the distances of pairs of different users: of all pairs, or of a sample."""
    n_users = len(embeddings)
    if n_users < 2:
        raise DataError(f"bandwidth as a quantile: expected at least 2 users, found {n_users}")
    if n_users * (n_users - 1) // 2 <= MOST_PAIRS:
        first, second = np.triu_indices(n_users, k=1)
    else:
        rng = stream(seed, "pairs for quantiles")
        first = rng.integers(0, n_users, MOST_PAIRS)
        second = (first + rng.integers(1, n_users, MOST_PAIRS)) % n_users
    cosines = np.empty(len(first), dtype=np.float32)
    for start in range(0, len(first), _PAIRS_PER_BLOCK):
        pairs = slice(start, start + _PAIRS_PER_BLOCK)
        cosines[pairs] = np.einsum("ij,ij->i", embeddings[first[pairs]], embeddings[second[pairs]])
    return _distances_of_cosines(cosines)


def quantile_bytes(n_users: int, dimensions: int) -> int:
    """Return what `pair_distances` and a quantile of it take.

    That is both users, the cosine and copies of it for each pair, and the embeddings of a block.
    """
    n_pairs = min(n_users * n_users // 2, MOST_PAIRS)
    return 32 * n_pairs + 8 * dimensions * min(n_pairs, _PAIRS_PER_BLOCK)


# -- Kernels --------------------------------------------------------------------------------------


def epanechnikov(distances: FloatArray, radius: float) -> FloatArray:
    """Return ¾ · (1 − (s/h)²) below the radius h, 0 from there on.

    It is the kernel of the authors' program, and our default.
    """
    weights = 0.75 * np.maximum(1 - (distances / np.float32(radius)) ** 2, 0)
    return np.asarray(weights, dtype=np.float32)


def paper(distances: FloatArray, radius: float) -> FloatArray:
    """Return (1 − s²) cut at the radius, as the paper prints it, and 0 where s > 1."""
    return np.maximum(1 - distances**2, 0) * (distances < np.float32(radius))


def uniform(distances: FloatArray, radius: float) -> FloatArray:
    """Return 1 below the radius, 0 from there on."""
    return (distances < np.float32(radius)).astype(np.float32)


def triangular(distances: FloatArray, radius: float) -> FloatArray:
    """Return 1 − s/h below the radius h, 0 from there on."""
    return np.asarray(np.maximum(1 - distances / np.float32(radius), 0), dtype=np.float32)


Kernel = Callable[[FloatArray, float], FloatArray]
KERNELS: dict[str, Kernel] = {
    kernel.__name__: kernel for kernel in (epanechnikov, paper, uniform, triangular)
}
