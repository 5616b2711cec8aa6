"""How the answers of many local models and of the global one become a single answer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor

Covered = npt.NDArray[np.bool_]
_MAIN_MEMORY = torch.device("cpu")


def blend_local(
    histories: csr_array,
    answer_weights: csr_array,
    score_with: Callable[[int, csr_array], Tensor],
    device: torch.device = _MAIN_MEMORY,
) -> tuple[Tensor, Covered]:
    """Σ_j w_j · M_j(history) / Σ_j w_j for every user, users × items on the device, and who is covered at all.

    `score_with(j, histories)` asks local model j, once, for exactly the users whom it answers for. An uncovered
    user's row is zero.
    """
    totals = np.asarray(answer_weights.sum(axis=1)).ravel()  # (users,)
    blended = torch.zeros(histories.shape, device=device)
    by_community = answer_weights.tocsc()
    for community in range(by_community.shape[1]):
        part = slice(by_community.indptr[community], by_community.indptr[community + 1])
        members, weights = by_community.indices[part], by_community.data[part]
        if not len(members):
            continue
        shares = torch.from_numpy((weights / totals[members]).astype(np.float32)).to(device)
        answers = score_with(community, csr_array(histories[members])).to(device)
        blended[torch.from_numpy(members.astype(np.int64)).to(device)] += shares[:, None] * answers
    return blended, totals > 0


def combine(global_scores: Tensor, local_scores: Tensor, covered: Covered, alpha: float) -> Tensor:
    """α · global + (1 − α) · local where a user is covered, the global scores where not, users × items."""
    share = torch.from_numpy(np.where(covered, np.float32(alpha), np.float32(1))).to(local_scores.device)[:, None]
    return share * global_scores.to(local_scores.device) + (1 - share) * local_scores
