"""Local models as corrections of the shared one: a bias per community, low rank, a little more training."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor

from loca.local.one_by_one import WeightsOf
from loca.models.autoencoder import Autoencoder
from loca.models.ease import EASE
from loca.models.ease_systems import DeviceRows, solve_local
from loca.models.mult_vae import MultVAE
from loca.models.recommender import Recommender, Scores, UserWeights, fitted
from loca.models.training import Learning
from locality_questions import scorer_on_device

# So many average users stand behind every community's counts, so that one user's item is no fashion.
_PRIOR_USERS = 20.0


def shares_of(answer_weights: csr_array, device: torch.device) -> Tensor:
    """Answer weights as dense shares, (users, communities), which sum to 1, or to 0 for an uncovered user."""
    dense = torch.from_numpy(answer_weights.toarray().astype(np.float32)).to(device)
    return dense / dense.sum(dim=1, keepdim=True).clamp_min(1e-12)


def popularity_biases(matrix: csr_array, weights: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """log(share of the community's users who have the item / share of all users), (communities, items).

    `weights` is users × communities. Every community holds 20 average users more; an item that nobody has stays 0.
    """
    overall = np.asarray(matrix.mean(axis=0)).ravel()
    counts = weights.T @ matrix + _PRIOR_USERS * overall
    local = counts / (weights.sum(axis=0)[:, None] + _PRIOR_USERS)
    return np.log(np.where(overall > 0, local, 1) / np.where(overall > 0, overall, 1)).astype(np.float32)


@torch.no_grad()
def residual_biases(
    model: Recommender,
    matrix: csr_array,
    histories: csr_array,
    weights: npt.NDArray[Any],
    device: torch.device,
    block: int = 2048,
) -> npt.NDArray[np.float32]:
    """What a community's users have beyond what the shared model expects of them, (communities, items).

    For logits log(observed / expected) counts, the step of iterative scaling on the output bias; for EASE the mean
    of history − scores, in which an item is never explained by itself.
    """
    linear = isinstance(model, EASE)
    score = scorer_on_device(model, device)
    expected = torch.zeros(weights.shape[1], matrix.shape[1], device=device)
    for start in range(0, matrix.shape[0], block):
        part = slice(start, start + block)
        scores = score(csr_array(histories[part]))
        if not linear:
            lengths = np.diff(matrix.indptr)[part].astype(np.float32)
            scores = torch.softmax(scores, dim=1) * torch.from_numpy(lengths).to(device)[:, None]
        expected += torch.from_numpy(weights[part].astype(np.float32)).to(device).T @ scores
    observed = np.asarray(weights.T @ matrix, dtype=np.float32)
    predicted = expected.cpu().numpy()
    if linear:
        return (observed - predicted) / (weights.sum(axis=0)[:, None] + _PRIOR_USERS).astype(np.float32)
    prior = (_PRIOR_USERS * np.asarray(matrix.mean(axis=0)).ravel() + 1e-6)[None]
    return np.log((observed + prior) / (predicted + prior)).astype(np.float32)


class LowRankCorrections:
    """Local model j scores history · (B + U_j V_jᵀ): the local EASE's difference to the shared one, cut to a rank."""

    def __init__(self, centre: Tensor, left: list[Tensor], right: list[Tensor]) -> None:
        self._centre = centre
        self._left = left
        self._right = right

    @classmethod
    def of(
        cls, centre: EASE, matrix: csr_array, weights_of: WeightsOf, count: int, rank: int, device: torch.device
    ) -> Self:
        """Solves each local EASE and keeps the leading directions of its difference."""
        weights = torch.from_numpy(np.array(fitted(centre.weights_, centre))).to(device)
        left, right = [], []
        for number in range(count):
            difference = solve_local(matrix, weights_of(number), centre.l2, device).sub_(weights)
            u, s, v = torch.svd_lowrank(difference, q=min(rank, len(difference)), niter=2)
            left.append(u * s)
            right.append(v)
        return cls(weights, left, right)

    @property
    def device(self) -> torch.device:
        """Where the answers lie."""
        return self._centre.device

    @torch.no_grad()
    def blend(self, histories: csr_array, answer_weights: csr_array) -> Tensor:
        """The shared scores and each user's share of the corrections; only the shared scores for an uncovered user."""
        rows = DeviceRows.of(histories, self.device)
        shares = shares_of(answer_weights, self.device)
        blended = rows.times(self._centre)
        for number, (left, right) in enumerate(zip(self._left, self._right, strict=True)):
            blended.addmm_(shares[:, number, None] * rows.times(left), right.T)
        return blended


class FineTuned:
    """A MultVAE that begins with the weights of a trained one instead of random ones."""

    def __init__(self, model: MultVAE, start: Autoencoder) -> None:
        self._model = model
        self._start = start
        self.epochs, self.patience, self.evaluate_every = model.epochs, model.patience, model.evaluate_every
        self.network_: Autoencoder | None = None
        self.best_epoch_: int | None = None

    def begin(self, matrix: csr_array, user_weights: UserWeights | None, moments: csr_array | None = None) -> Learning:
        """The given weights, and the learning that will change them."""
        learning = self._model.begin(matrix, user_weights, moments)
        learning.network.load_state_dict(self._start.state_dict())
        self.network_ = learning.network
        return learning

    def score(self, histories: csr_array) -> Scores:
        """A logit for every item."""
        return self._model.score(histories)
