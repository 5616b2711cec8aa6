"""How the answers of many local models and of the global one become a single answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.models.recommender import Scores

Covered = npt.NDArray[np.bool_]


def blend_local(
    histories: csr_array, answer_weights: csr_array, score_with: Callable[[int, csr_array], Scores]
) -> tuple[Scores, Covered]:
    """Σ_j w_j · M_j(history) / Σ_j w_j for every user, users × items, and who is covered at all.

    `score_with(j, histories)` asks local model j, once, for exactly the users whom it answers for. An uncovered
    user's row is zero.
    """
    totals = np.asarray(answer_weights.sum(axis=1)).ravel()  # (users,)
    blended = np.zeros(histories.shape, dtype=np.float32)
    by_community = answer_weights.tocsc()
    for community in range(by_community.shape[1]):
        part = slice(by_community.indptr[community], by_community.indptr[community + 1])
        members, weights = by_community.indices[part], by_community.data[part]
        if not len(members):
            continue
        shares = (weights / totals[members]).astype(np.float32)
        blended[members] += shares[:, None] * score_with(community, csr_array(histories[members]))
    return blended, totals > 0


def combine(global_scores: Scores, local_scores: Scores, covered: Covered, alpha: float) -> Scores:
    """α · global + (1 − α) · local where a user is covered, the global scores where not, users × items."""
    share = np.where(covered, np.float32(alpha), np.float32(1))[:, None]
    return np.asarray(share * global_scores + (1 - share) * local_scores, dtype=np.float32)


def mean_scores(histories: csr_array, models: list[Any]) -> Scores:
    """The plain mean of all models' scores, users × items."""
    total = np.zeros(histories.shape, dtype=np.float32)
    for model in models:
        total += model.score(histories)
    return total / np.float32(len(models))
