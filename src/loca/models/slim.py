"""SLIM (Ning and Karypis 2011): a sparse linear item-to-item model, one non-negative elastic net per item."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array

from loca.data.held_out import HeldOut
from loca.data.interactions import Interactions, as_matrix
from loca.errors import ConfigError
from loca.files import save_model
from loca.models.devices import check_device, choose_device
from loca.models.elastic_net import Penalties
from loca.models.item_regressions import Regressions, solve_regressions
from loca.models.recommender import ModelState, Scores, UserWeights, check_user_weights, clone, fitted
from loca.models.sparse_weights import score_sparsely, weights_as_arrays, weights_from_arrays


class SLIM:
    """Scores = history · W, W ≥ 0 with a zero diagonal: its column j minimises, over w,

    ½ Σ_u d_u (x_u · w − x_uj)² + l1 Σ w + l2/2 Σ w², where d_u is the weight of user u. A column is done when no
    optimality condition of it is violated by more than `tolerance` times the largest of (XᵀDX)_ij, i ≠ j, or after
    `iterations` sweeps. The smaller l1, the more weights and the longer the fit.
    """

    def __init__(
        self,
        *,
        l1: float = 0.5,
        l2: float = 50.0,
        tolerance: float = 1e-4,
        iterations: int = 1000,
        device: str = "auto",
    ) -> None:
        check_penalties(l1, l2)
        check_precision(tolerance, iterations)
        check_device(device)
        self.l1 = l1
        self.l2 = l2
        self.tolerance = tolerance
        self.iterations = iterations
        self.device = device
        self.weights_: csr_array | None = None
        self.known_: Interactions | None = None

    def fit(
        self,
        train: Interactions | csr_array,
        *,
        user_weights: UserWeights | None = None,
        validation: HeldOut | None = None,
    ) -> Self:
        """Solves once; validation is accepted and not needed. A user with weight 2 counts as two equal users."""
        matrix = as_matrix(train)
        weights = check_user_weights(user_weights, matrix.shape[0])
        self.weights_ = None  # what an earlier fit learned makes room
        self.known_ = train if isinstance(train, Interactions) else None
        support = np.flatnonzero(weights)
        rows = csr_array(matrix[support]).astype(np.float64)
        penalties = Penalties(self.l1, self.l2, self.tolerance, self.iterations)
        self.weights_ = solve_regressions(Regressions(rows, weights[support]), penalties, choose_device(self.device))
        return self

    def score(self, histories: csr_array) -> Scores:
        """Weighted history times item-to-item weights."""
        return score_sparsely(histories, fitted(self.weights_, self))

    def count_items(self) -> int:
        """How many items it scores."""
        return int(fitted(self.weights_, self).shape[0])

    def as_chosen(self) -> Self:
        """A copy: nothing is chosen on validation."""
        return clone(self)

    def state(self) -> ModelState:
        return ModelState(arrays=weights_as_arrays(fitted(self.weights_, self)))

    @classmethod
    def restore(cls, params: Mapping[str, Any], state: ModelState) -> Self:
        model = cls(**params)
        model.weights_ = weights_from_arrays(state.arrays, "SLIM")
        return model

    def save(self, folder: str | Path) -> None:
        """Writes the model into a folder, whole or not at all."""
        save_model(self, folder)


def check_penalties(l1: float, l2: float) -> None:
    """Refuses an l1 or l2 below 0."""
    for name, value in (("l1", l1), ("l2", l2)):
        if not 0 <= value < float("inf"):
            raise ConfigError(f"{name}: expected a number from 0, found {value!r}")


def check_precision(tolerance: float, iterations: int) -> None:
    """Refuses a tolerance that 32 bits cannot reach, and a number of sweeps below 1."""
    if not 1e-6 <= tolerance < 1:
        raise ConfigError(f"tolerance: expected a number from 1e-6 to below 1, found {tolerance!r}")
    if iterations < 1 or iterations != int(iterations):
        raise ConfigError(f"iterations: expected a whole number from 1, found {iterations!r}")
