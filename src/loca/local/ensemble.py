"""Ensemble: as many models as a Loca has, each on all users, answers averaged: the control for what locality earns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array

from loca.data.held_out import HeldOut
from loca.data.interactions import Interactions, as_matrix
from loca.errors import ConfigError, ModelFileError
from loca.files import save_model
from loca.local.aggregation import mean_scores
from loca.local.engines import ENGINES, EngineName, check_engine
from loca.local.one_by_one import copies_of, train_together
from loca.models.recommender import (
    ModelState,
    Recommender,
    Scores,
    UserWeights,
    check_user_weights,
    clone,
    fitted,
    get_params,
)
from loca.random_streams import stream
from loca.ranking.evaluation import mean_ndcg


class Ensemble:
    """`models` copies of the base with all user weights 1, their scores averaged.

    Copies of a base with randomness differ by their seeds; of a base without (EASE) each learns from its own
    bootstrap sample of the users.
    """

    def __init__(self, *, base: Recommender, models: int = 40, engine: EngineName = "auto", seed: int = 0) -> None:
        check_engine(engine)
        if not (isinstance(models, int) and models >= 1):
            raise ConfigError(f"models: expected a whole number ≥ 1, found {models!r}")
        self.base = base
        self.models = models
        self.engine: EngineName = engine
        self.seed = seed
        self.models_: list[Recommender] | None = None
        self.epochs_: int | None = None
        self.known_: Interactions | None = None

    def fit(
        self,
        train: Interactions | csr_array,
        *,
        user_weights: UserWeights | None = None,
        validation: HeldOut | None = None,
    ) -> Self:
        """Trains all models; one number of epochs for all, chosen on the validation score of the averaged answer."""
        matrix = as_matrix(train)
        weights = check_user_weights(user_weights, matrix.shape[0])
        same_without_sampling = "seed" not in get_params(self.base)

        def weights_of(number: int) -> UserWeights:
            if not same_without_sampling:
                return weights
            rng = stream(self.seed, "bootstrap sample", number)
            return weights * rng.multinomial(len(weights), np.full(len(weights), 1 / len(weights)))

        def validate(models: Sequence[Recommender]) -> float:
            assert validation is not None
            return mean_ndcg(lambda histories: mean_scores(histories, list(models)), validation, 100)

        copies = copies_of(self.base, self.models, self.seed, "ensemble member")
        trained = train_together(
            copies, matrix, weights_of, validate if validation else None, "ensemble", ENGINES[self.engine]
        )
        self.models_, self.epochs_ = trained.models, trained.epochs
        self.known_ = train if isinstance(train, Interactions) else None
        return self

    def score(self, histories: csr_array) -> Scores:
        """The mean of the models' scores, users × items."""
        models = fitted(self.models_, self)
        return mean_scores(csr_array(histories), models)

    def count_items(self) -> int:
        """How many items it scores."""
        return fitted(self.models_, self)[0].count_items()

    def as_chosen(self) -> Self:
        """A copy that runs the number of epochs that validation chose."""
        return clone(self) if self.epochs_ is None else clone(self, base=clone(self.base, epochs=self.epochs_))

    def state(self) -> ModelState:
        models = fitted(self.models_, self)
        parts = {f"model {number}": model for number, model in enumerate(models)}
        return ModelState(facts={"epochs": self.epochs_}, parts=parts)

    @classmethod
    def restore(cls, params: Mapping[str, Any], state: ModelState) -> Self:
        model = cls(**params)
        names = [f"model {number}" for number in range(len(state.parts))]
        if not names or set(state.parts) != set(names):
            raise ModelFileError(f"ensemble: expected parts named 'model 0' and on, found {sorted(state.parts)[:3]}")
        if not all(isinstance(part, Recommender) for part in state.parts.values()):
            raise ModelFileError("ensemble: a part is not a recommender")
        model.models_ = [state.parts[name] for name in names]
        if len({part.count_items() for part in model.models_}) > 1:
            raise ModelFileError("ensemble: the models score different numbers of items")
        model.epochs_ = state.facts["epochs"]
        return model

    def save(self, folder: str | Path) -> None:
        """Writes the model into a folder, whole or not at all."""
        save_model(self, folder)
