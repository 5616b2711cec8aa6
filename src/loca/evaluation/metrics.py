"""How good a ranked list is: one function a metric, one value per user."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.errors import ConfigError, DataError, check_choice, check_counts

Hits = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.integer[Any]]
Values = npt.NDArray[np.float64]

_FEW_TARGETS = 8


def find_hits(item_rows: npt.NDArray[np.integer[Any]], targets: csr_array) -> Hits:
    """Whether each place of each user's list holds one of the user's targets; an empty place (−1) never does.

    `item_rows` is users × N, best first; `targets` is users × items, stored = to be found.
    """
    user_count, item_count = targets.shape
    if not targets.has_canonical_format:
        targets = targets.copy()
        targets.sum_duplicates()
    owners = np.repeat(np.arange(user_count), np.diff(targets.indptr))
    hits = np.zeros(item_rows.shape, np.bool_)
    if len(owners) <= _FEW_TARGETS * user_count:
        # Few targets: each is looked for in its user's list.
        target, place = np.nonzero(item_rows[owners] == targets.indices[:, None])
        hits[owners[target], place] = True
        return hits
    wanted = owners * item_count + targets.indices
    listed = np.arange(user_count)[:, None] * item_count + item_rows
    nearest = np.minimum(np.searchsorted(wanted, listed), len(wanted) - 1)
    return np.asarray((wanted[nearest] == listed) & (item_rows >= 0))


def recall(hits: Hits, target_counts: Counts, k: int) -> Values:
    """Return the hits among the first k / the number of targets."""
    return np.asarray(hits.sum(axis=1) / target_counts)


def ndcg(hits: Hits, target_counts: Counts, k: int) -> Values:
    """Return Σ 1 / log2(place + 1) over the hits / the same with min(k, targets) hits in front."""
    discounts = 1 / np.log2(np.arange(2, k + 2))
    gains = hits @ discounts[: hits.shape[1]]
    return np.asarray(gains / np.cumsum(discounts)[np.minimum(target_counts, k) - 1])


def average_precision(hits: Hits, target_counts: Counts, k: int) -> Values:
    """Return Σ precision at the place of each hit / the number of targets, as trec_eval and ranx define MAP@k.

    Where there are more targets than k, even a list of hits alone stays below 1.
    """
    places = np.arange(1, hits.shape[1] + 1)
    precisions = np.cumsum(hits, axis=1) / places
    return np.asarray((precisions * hits).sum(axis=1) / target_counts)


def precision(hits: Hits, target_counts: Counts, k: int) -> Values:
    """Return the hits among the first k / k; places that could not be filled are misses."""
    return np.asarray(hits.sum(axis=1) / k)


def hit_rate(hits: Hits, target_counts: Counts, k: int) -> Values:
    """Return 1 where there is a hit, else 0."""
    return np.asarray(hits.any(axis=1), dtype=np.float64)


def reciprocal_rank(hits: Hits, target_counts: Counts, k: int) -> Values:
    """Return 1 / the place of the first hit, 0 where there is none."""
    return np.asarray(hits.any(axis=1) / (hits.argmax(axis=1) + 1))


MetricFunction = Callable[[Hits, Counts, int], Values]
# What `name@k` stands for: hits among the first k (users × k, best first), numbers of targets, and k.
METRICS: dict[str, MetricFunction] = {
    "recall": recall,
    "ndcg": ndcg,
    "map": average_precision,
    "precision": precision,
    "hit_rate": hit_rate,
    "mrr": reciprocal_rank,
}
_LABELS = {
    "recall": "Recall",
    "ndcg": "NDCG",
    "map": "MAP",
    "precision": "Precision",
    "hit_rate": "Hit rate",
    "mrr": "MRR",
}
_NAMED = re.compile(r"\s*([a-z_]+)@([0-9]{1,6})\s*")


@dataclass(frozen=True)
class Metric:
    """Measure the first `k` items of each user's list; what validation chooses by, and what figures are in.

    Parameters
    ----------
    name : str
        One of recall, ndcg, map, precision, hit_rate and mrr, or a name of your own beside a `function`.
    k : int
        How many items of a list count.
    function : callable or None, default None
        Takes hits (users × k, best first), the number of targets of each user, and k; gives a value per
        user, larger is better. None takes that of the name.

    Examples
    --------
    >>> metric = loca.Metric.of("ndcg@10")
    >>> print(metric)
    ndcg@10
    >>> import numpy
    >>> metric(numpy.array([[True, False, False]]), numpy.array([1])).tolist()
    [1.0]
    """

    name: str
    k: int
    function: MetricFunction | None = None

    def __post_init__(self) -> None:
        check_counts(k=self.k)
        if self.function is None:
            check_choice("metric", self.name, METRICS)

    @classmethod
    def of(cls, value: Metric | str) -> Metric:
        """Read a metric as people write it.

        Parameters
        ----------
        value : Metric or str
            Such as `"ndcg@10"`.

        Returns
        -------
        Metric
        """
        if isinstance(value, Metric):
            return value
        named = _NAMED.fullmatch(value.lower()) if isinstance(value, str) else None
        if named is None:
            expected = "a name and a length such as 'ndcg@10' or 'recall@20'"
            raise ConfigError(f"metric: expected {expected}, found {value!r:.60}")
        return cls(named[1], int(named[2]))

    def __call__(self, hits: Hits, target_counts: Counts) -> Values:
        """Return the value of each user; each needs at least one target."""
        function = METRICS[self.name] if self.function is None else self.function
        return function(hits[:, : self.k], target_counts, self.k)

    @property
    def label(self) -> str:
        """What a person reads, such as `NDCG@100`."""
        return self.label_of(str(self))

    @staticmethod
    def label_of(text: str) -> str:
        """Return what a person reads of a metric as it is stored, such as `NDCG@100` of `ndcg@100`."""
        name, _, k = text.rpartition("@")
        return f"{_LABELS.get(name, name)}@{k}"

    @property
    def described(self) -> str:
        """What tells it from others in a fingerprint: a function of one's own by where it is defined."""
        if self.function is None:
            return str(self)
        function: Any = self.function
        where = getattr(function, "__qualname__", type(function).__qualname__)
        return f"{self} by {function.__module__}.{where}"

    def __str__(self) -> str:
        return f"{self.name}@{self.k}"


DEFAULT_METRIC = Metric("ndcg", 100)


def metric_values(hits: Hits, target_counts: Counts, at: Iterable[int]) -> dict[str, Values]:
    """Return all metrics at every length of `at`, one value per user, named like `recall@50`.

    `hits` is users × places, best first. Each user needs at least one target: without one, recall has no
    meaning.
    """
    counts = np.asarray(target_counts)
    if counts.shape != hits.shape[:1] or (counts < 1).any():
        raise DataError(
            "target counts: expected at least one held-out item for each user of the hits"
        )
    metrics = [Metric(name, k) for k in at for name in METRICS]
    return {str(metric): metric(hits, counts) for metric in metrics}


def check_lengths(at: Iterable[int]) -> tuple[int, ...]:
    """The list lengths to measure at, each once, shortest first."""
    lengths = tuple(at) if isinstance(at, Iterable) else (at,)
    if not lengths or not all(isinstance(n, int | np.integer) and n >= 1 for n in lengths):
        raise ConfigError(
            f"at: expected list lengths of 1 or more, like (50, 100), found {lengths!r}"
        )
    return tuple(sorted({int(n) for n in lengths}))
