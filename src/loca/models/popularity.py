"""Popularity: the same scores for everybody, the rival that every personal model must beat."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.data.held_out import HeldOut
from loca.data.interactions import Interactions, as_matrix
from loca.errors import ModelFileError
from loca.files import save_model
from loca.models.recommender import (
    ModelState,
    Scores,
    UserWeights,
    check_histories,
    check_user_weights,
    clone,
    fitted,
)


class Popularity:
    """Scores an item by the share of (weighted) users who have it."""

    def __init__(self) -> None:
        self.shares_: npt.NDArray[np.float32] | None = None
        self.known_: Interactions | None = None

    def fit(
        self,
        train: Interactions | csr_array,
        *,
        user_weights: UserWeights | None = None,
        validation: HeldOut | None = None,
    ) -> Self:
        """Counts; validation is accepted and not needed."""
        matrix = as_matrix(train)
        weights = check_user_weights(user_weights, matrix.shape[0]).astype(np.float64)
        self.shares_ = ((weights @ matrix) / weights.sum()).astype(np.float32)
        self.known_ = train if isinstance(train, Interactions) else None
        return self

    def score(self, histories: csr_array) -> Scores:
        """The shares, once per asked user; a read-only view that takes no memory per user."""
        shares = fitted(self.shares_, self)
        rows = check_histories(histories, len(shares))
        return np.broadcast_to(shares, rows.shape)

    def count_items(self) -> int:
        """How many items it scores."""
        return len(fitted(self.shares_, self))

    def as_chosen(self) -> Self:
        """A copy: nothing is chosen on validation."""
        return clone(self)

    def state(self) -> ModelState:
        shares = fitted(self.shares_, self)
        return ModelState(arrays={"shares": shares})

    @classmethod
    def restore(cls, params: Mapping[str, Any], state: ModelState) -> Self:
        model = cls(**params)
        shares = state.arrays["shares"]
        if shares.ndim != 1:
            raise ModelFileError(f"popularity: expected one share per item, found shape {shares.shape}")
        model.shares_ = shares
        return model

    def save(self, folder: str | Path) -> None:
        """Writes the model into a folder, whole or not at all."""
        save_model(self, folder)
