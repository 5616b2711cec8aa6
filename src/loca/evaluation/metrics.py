"""How good a ranked list is: Recall, NDCG, Precision, Hit rate and MRR at N, one value per user."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.errors import ConfigError, DataError

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


def ndcg(hits: Hits, target_counts: Counts, n: int) -> Values:
    """Σ 1 / log2(place + 1) over the hits in the first n / the same with min(n, targets) hits in front."""
    discounts = 1 / np.log2(np.arange(2, n + 2))
    gains = hits[:, :n] @ discounts[: hits.shape[1]]
    return np.asarray(gains / np.cumsum(discounts)[np.minimum(target_counts, n) - 1])


def metric_values(hits: Hits, target_counts: Counts, at: Iterable[int]) -> dict[str, Values]:
    """All five metrics at every N of `at`, one value per user, named like `recall@50`.

    Recall: hits among the first n / number of held-out items. NDCG: see `ndcg`. Precision: hits among the first n / n;
    places that could not be filled count as misses. Hit rate: 1 where at least one of the first n is a hit, else 0.
    MRR: 1 / place of the first hit among the first n, 0 where there is none.

    `hits` is users × places, best first. Each user needs at least one target: without one, recall has no
    meaning.
    """
    counts = np.asarray(target_counts)
    if counts.shape != hits.shape[:1] or (counts < 1).any():
        raise DataError(
            "target counts: expected at least one held-out item for each user of the hits"
        )
    values: dict[str, Values] = {}
    for n in at:
        first = hits[:, :n]
        found, any_found = np.asarray(first.sum(axis=1)), np.asarray(first.any(axis=1))
        values[f"recall@{n}"] = found / counts
        values[f"ndcg@{n}"] = ndcg(hits, counts, n)
        values[f"precision@{n}"] = np.asarray(found / n)
        values[f"hit_rate@{n}"] = any_found.astype(np.float64)
        values[f"mrr@{n}"] = any_found / (first.argmax(axis=1) + 1)
    return values


def check_lengths(at: Iterable[int]) -> tuple[int, ...]:
    """The list lengths to measure at, each once, shortest first."""
    lengths = tuple(at) if isinstance(at, Iterable) else (at,)
    if not lengths or not all(isinstance(n, int | np.integer) and n >= 1 for n in lengths):
        raise ConfigError(
            f"at: expected list lengths of 1 or more, like (50, 100), found {lengths!r}"
        )
    return tuple(sorted({int(n) for n in lengths}))
