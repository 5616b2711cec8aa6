"""Weights from memberships: to train with, to answer with, and to be shown.

Log memberships are users × communities, the communities of one division after those of the other; in
each division the memberships of a user sum to 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, vstack

from loca.errors import ConfigError
from loca.models.recommender import Recommender
from loca.typing import FloatArray, IntArray

_USERS_PER_BLOCK = 8192
_LOWEST_LOGIT = -80.0  # exp of it is hardly anything, and still a number
_LEAST_MEMBERSHIP_SHOWN = 0.01
_LEAST_SHARE_OF_THE_LARGEST = 1e-3
_LEAST_WEIGHT = 1e-6  # of a train weight, and of a mean membership


def mean_memberships(log_memberships: FloatArray, user_weights: FloatArray) -> FloatArray:
    """Return the mean membership of each community, by the users' weights."""
    sums = []
    start = 0
    for rows in row_blocks(log_memberships):
        weights = user_weights[start : start + len(rows), None]
        sums.append((np.exp(rows) * weights).sum(axis=0))
        start += len(rows)
    means = np.sum(sums, axis=0) / user_weights.sum(dtype=np.float64)
    return np.asarray(means, dtype=np.float32)


def train_weights_by_membership(
    memberships: FloatArray, mean_membership: float, membership_weight: float
) -> FloatArray:
    """Return (1 − c) + c · membership / mean membership for each user.

    It is never 0: networks visit all users in the epochs in which they learn from everybody alike.
    """
    mean = np.maximum(np.float32(mean_membership), _LEAST_WEIGHT)
    weights = (1 - membership_weight) + membership_weight * memberships / mean
    return np.asarray(np.maximum(weights, _LEAST_WEIGHT), dtype=np.float32)


def flattened_memberships(
    log_memberships: FloatArray, divisions: int, temperature: float, top_k: int
) -> csr_array:
    """Return softmax(log membership / temperature) in each division, the mean over the divisions.

    Of these weights the `top_k` largest of a user stay; rows sum to 1.
    """
    parts = [csr_array((0, log_memberships.shape[1]), dtype=np.float32)]
    for rows in row_blocks(log_memberships):
        logits = rows.reshape(len(rows), divisions, rows.shape[1] // divisions)
        logits = (logits - logits.max(axis=2, keepdims=True)).astype(np.float64) / temperature
        weights = np.exp(np.maximum(logits, _LOWEST_LOGIT)).astype(np.float32)
        weights /= weights.sum(axis=2, keepdims=True) * divisions
        parts.append(csr_array(top_k_weights(weights.reshape(rows.shape), top_k)))
    return csr_array(vstack(parts, format="csr"))


def top_k_weights(weights: FloatArray, k: int) -> FloatArray:
    """Return the `k` largest of each row, of equal ones the first, scaled so that they sum to 1.

    Those that are hardly anything beside the largest are left out too, which saves their models'
    answers.
    """
    if k < weights.shape[1]:
        largest = np.argsort(-weights, axis=1, kind="stable")[:, :k]
        strong = np.zeros_like(weights)
        np.put_along_axis(strong, largest, np.take_along_axis(weights, largest, axis=1), axis=1)
        weights = strong
    least = _LEAST_SHARE_OF_THE_LARGEST * weights.max(axis=1, keepdims=True)
    weights = np.where(weights < least, 0, weights)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True), dtype=np.float32)


def shown_memberships(log_memberships: FloatArray) -> csr_array:
    """Return the memberships that are at least a hundredth."""
    parts = [csr_array((0, log_memberships.shape[1]), dtype=np.float32)]
    for rows in row_blocks(log_memberships):
        memberships = np.exp(rows)
        is_shown = memberships >= _LEAST_MEMBERSHIP_SHOWN
        parts.append(csr_array(np.where(is_shown, memberships, 0)))
    return csr_array(vstack(parts, format="csr"))


def summed_members(memberships: csr_array) -> IntArray:
    """Return the sum of the memberships in each community, rounded."""
    return np.rint(np.asarray(memberships.sum(axis=0)).ravel()).astype(np.int64)


def row_blocks(rows: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    """Yield the rows block by block of users."""
    starts = range(0, len(rows), _USERS_PER_BLOCK)
    return (rows[start : start + _USERS_PER_BLOCK] for start in starts)


def check_divisions(name: str, divisions: int, n: int) -> None:
    """Refuse more divisions than communities."""
    if divisions > n:
        raise ConfigError(
            f"{name}: expected at most as many as communities, {n}, found {divisions}"
        )


def choose_shared_epochs(
    requested: int | None, base: Recommender, global_model: Recommender
) -> int:
    """Return in how many epochs networks learn from all users alike.

    Where nothing is requested they are as many as the global model took, at most two thirds of all.
    """
    if not base.learns_by_epoch:
        return 0
    epochs = int(base.get_params()["epochs"])
    if requested is None:
        most = epochs * 2 // 3
        return min(global_model.best_epoch_ or most, most)
    if requested >= epochs:
        raise ConfigError(f"shared_epochs: expected fewer than epochs, {epochs}, found {requested}")
    return requested


# -- Checks of learned facts ----------------------------------------------------------------------


def is_fraction(value: object) -> bool:
    """Return whether a value is a real number from 0 to 1."""
    return isinstance(value, float) and 0 <= value <= 1


def is_positive(value: object) -> bool:
    """Return whether a value is a finite real number above 0."""
    return isinstance(value, float) and 0 < value < float("inf")


def is_count(value: object) -> bool:
    """Return whether a value is a whole number from 1 on."""
    return type(value) is int and value >= 1


def is_natural(value: object) -> bool:
    """Return whether a value is a whole number from 0 on."""
    return type(value) is int and value >= 0
