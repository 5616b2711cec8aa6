"""Models for tests of tuning: what they reach is known beforehand, also in a process of their own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array

from loca.data.interactions import Interactions, as_matrix
from loca.errors import ConfigError
from loca.models.recommender import Recommender
from loca.persistence.fit_context import NO_CONTEXT, FitContext


class Slope(Recommender):
    """Scores by popularity where `share` is high, against it where it is low; learns in `epochs` steps if any.

    Each step tells `share`. A `trouble` other than none ends the fit: it raises, or ends the process of
    the second fit in the `diary`.
    """

    def __init__(
        self, *, share: float = 0.5, epochs: int = 0, trouble: str = "none", diary: str = ""
    ) -> None:
        self.share = share
        self.epochs = epochs
        self.trouble = trouble
        self.diary = diary
        self.scores_: Any = None
        self.train_data_: Interactions | None = None

    def fit(
        self,
        train: Any,
        *,
        user_weights: Any = None,
        validation: Any = None,
        context: FitContext = NO_CONTEXT,
    ) -> Self:
        if self.diary:
            with open(Path(self.diary), "a") as file:
                file.write("fitted\n")
            if self.trouble == "one death" and len(Path(self.diary).read_text().splitlines()) == 2:
                os._exit(3)
        if self.trouble == "refusal" or (self.trouble == "refusal above" and self.share > 0.5):
            raise ConfigError(f"share: {self.share} will not do")
        for epoch in range(1, self.epochs + 1):
            context.report(epoch, self.share)
        counts = np.asarray(as_matrix(train).sum(axis=0), dtype=np.float64).ravel()
        order = np.argsort(np.argsort(counts))
        noise = np.random.default_rng(0).random(len(counts)) * len(counts)
        self.scores_ = self.share * order + (1 - self.share) * noise
        self.train_data_ = train
        return self

    def score(self, histories: csr_array) -> Any:
        return np.tile(self.scores_, (histories.shape[0], 1)).astype(np.float32)

    def count_items(self) -> int:
        return len(self.scores_)

    def save(self, folder: Any) -> None:
        raise NotImplementedError
