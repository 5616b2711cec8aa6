"""How far users are from each other, which weight a distance earns, and bandwidths in units or as quantiles."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
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


@dataclass(frozen=True)
class Quantile:
    """A bandwidth relative to the data: `times` × the `level` quantile of the distances between users.

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
        wanted = "a number above 0, or a quantile such as q0.9 or 1.3*q0.9"
        raise ConfigError(f"bandwidth: expected {wanted}, found {text!r}")

    def __str__(self) -> str:
        return f"q{self.level:g}" if self.times == 1 else f"{self.times:g}*q{self.level:g}"


Bandwidth = float | Quantile


def check_bandwidth(name: str, bandwidth: Bandwidth) -> None:
    """Refuse a bandwidth that is not a number above 0 or a quantile."""
    is_number = isinstance(bandwidth, int | float) and not isinstance(bandwidth, bool)
    if not (isinstance(bandwidth, Quantile) or (is_number and bandwidth > 0)):
        raise ConfigError(
            f"{name}: expected a number above 0 or a quantile such as Quantile(0.9), found {bandwidth!r}"
        )


def unit_rows(embeddings: npt.NDArray[Any]) -> FloatArray:
    """Embeddings scaled to length 1; NaN or infinity is refused, a zero vector stays zero (a right angle to all)."""
    rows = np.asarray(embeddings, dtype=np.float32)
    if rows.ndim != 2:
        raise DataError(
            f"embeddings: expected users × dimensions, found an array of shape {rows.shape}"
        )
    bad = ~np.isfinite(rows).all(axis=1)
    if bad.any():
        share = f"{bad.sum():,} of {len(rows):,} rows"
        raise DataError(
            f"embeddings: {share} hold NaN or infinity, the first is row {bad.argmax()}"
        )
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, 1e-12), dtype=np.float32)


def angular_distances(users: FloatArray, anchors: FloatArray) -> FloatArray:
    """(2/π) · arccos of the cosine between unit rows, users × anchors: 0 same direction, 1 orthogonal, 2 opposite."""
    # Rounding can push a cosine past 1, where arccos is undefined.
    cosines = np.clip(users @ anchors.T, -1.0, 1.0)
    return np.asarray(np.arccos(cosines) * _RIGHT_ANGLES, dtype=np.float32)


def cosine_within(bandwidth: float) -> float:
    """The cosine above which a distance is below `bandwidth`; beyond 2 every user is within."""
    return math.cos(bandwidth * math.pi / 2) if bandwidth <= 2 else -2.0


def resolve_bandwidth(
    bandwidth: Bandwidth, embeddings: FloatArray, seed: int, most_pairs: int = 500_000
) -> float:
    """The bandwidth in units of distance; a quantile is read off pairs of different users, all or a seeded sample."""
    if not isinstance(bandwidth, Quantile):
        return float(bandwidth)
    count = len(embeddings)
    if count < 2:
        raise DataError(f"bandwidth as a quantile: expected at least 2 users, found {count}")
    if count * (count - 1) // 2 <= most_pairs:
        first, second = np.triu_indices(count, k=1)
    else:
        rng = stream(seed, "pairs for quantiles")
        first = rng.integers(0, count, most_pairs)
        second = (first + rng.integers(1, count, most_pairs)) % count
    cosines = np.empty(len(first), dtype=np.float32)
    for start in range(0, len(first), 50_000):
        part = slice(start, start + 50_000)
        cosines[part] = np.einsum("ij,ij->i", embeddings[first[part]], embeddings[second[part]])
    distances = np.arccos(np.clip(cosines, -1, 1)) * _RIGHT_ANGLES
    resolved = bandwidth.times * float(np.quantile(distances, bandwidth.level))
    if resolved <= 0:
        why = "that quantile of the distances is 0; the embeddings of most users are equal"
        raise DataError(f"bandwidth {bandwidth}: {why}")
    return resolved


def quantile_bytes(users: int, dimensions: int, most_pairs: int = 500_000) -> int:
    """What `resolve_bandwidth` takes: both users, the cosine and copies of it for a pair, and a block of users."""
    pairs = min(users * users // 2, most_pairs)
    return 32 * pairs + 8 * dimensions * min(pairs, 50_000)


def epanechnikov(distances: FloatArray, bandwidth: float) -> FloatArray:
    """¾ · (1 − (s/h)²) below the bandwidth, 0 from there on: the authors' program, and our default."""
    return np.asarray(
        0.75 * np.maximum(1 - (distances / np.float32(bandwidth)) ** 2, 0), dtype=np.float32
    )


def paper(distances: FloatArray, bandwidth: float) -> FloatArray:
    """(1 − s²) cut at the bandwidth, as the paper prints it; never below 0, which s > 1 would be."""
    return np.maximum(1 - distances**2, 0) * (distances < np.float32(bandwidth))


def uniform(distances: FloatArray, bandwidth: float) -> FloatArray:
    """1 below the bandwidth, 0 from there on."""
    return (distances < np.float32(bandwidth)).astype(np.float32)


def triangular(distances: FloatArray, bandwidth: float) -> FloatArray:
    """1 − s/h below the bandwidth, 0 from there on."""
    return np.asarray(np.maximum(1 - distances / np.float32(bandwidth), 0), dtype=np.float32)


Kernel = Callable[[FloatArray, float], FloatArray]
KERNELS: dict[str, Kernel] = {
    one.__name__: one for one in (epanechnikov, paper, uniform, triangular)
}
