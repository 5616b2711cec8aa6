"""Ensemble: as many models as a Loca has, each on all users, answers averaged: the control for what locality earns."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array
from torch import Tensor

from loca.errors import ConfigError, ModelFileError, check_counts
from loca.evaluation.evaluate import mean_ndcg
from loca.local.local_ease import LOCAL_BYTES
from loca.local.local_models import LocalModels, first_models
from loca.local.stacked.inference import AnswerPrecision, check_answer_precision
from loca.local.stacked.ops import PrecisionName, check_precision
from loca.local.training import Engine, EngineName, LocalTask, check_engine, copies_of, local_memory, train_together
from loca.memory import DataSize, MemoryUse
from loca.models.devices import ranking_bytes
from loca.models.recommender import (
    Estimator,
    ModelState,
    Recommender,
    Scores,
    TrainingData,
    UserWeights,
    clone,
    fitted,
    get_params,
)
from loca.random_streams import stream


class Ensemble(Estimator):
    """`models` copies of the base with all user weights 1, their scores averaged.

    Copies of a base with randomness differ by their seeds; of a base without (EASE) each learns from its own
    bootstrap sample of the users. `engine`, `precision`, `answer_precision` and `local_bytes` are those of `Loca`.
    """

    role = "ensemble"

    def __init__(
        self,
        *,
        base: Recommender,
        models: int = 40,
        engine: EngineName = "auto",
        precision: PrecisionName = "float32",
        answer_precision: AnswerPrecision = "float32",
        local_bytes: int = LOCAL_BYTES,
        seed: int = 0,
    ) -> None:
        check_engine(engine)
        check_precision(precision)
        check_answer_precision(answer_precision)
        check_counts(models=models, local_bytes=local_bytes)
        self.base = base
        self.models = models
        self.engine: EngineName = engine
        self.precision: PrecisionName = precision
        self.answer_precision: AnswerPrecision = answer_precision
        self.local_bytes = local_bytes
        self.seed = seed
        self.models_: LocalModels | None = None
        self.epochs_: int | None = None
        self.answering_models_: int | None = None

    def _fit(self, data: TrainingData) -> None:
        """Trains all models; one number of epochs for all, chosen on the validation score of the averaged answer."""
        matrix, weights = data.matrix, data.user_weights
        same_without_sampling = "seed" not in get_params(self.base)

        def weights_of(number: int) -> UserWeights:
            if not same_without_sampling:
                return weights
            rng = stream(self.seed, "bootstrap sample", number)
            return weights * rng.multinomial(len(weights), np.full(len(weights), 1 / len(weights)))

        def validate(models: LocalModels) -> float:
            assert data.validation is not None
            return mean_ndcg(
                lambda rows: self._mean(models, rows), data.validation, 100, block_bytes=ranking_bytes(models.device)
            )

        copies = copies_of(self.base, self.models, self.seed, "ensemble member")
        engine = Engine(self.engine, self.precision, self.answer_precision, self.local_bytes)
        task = LocalTask(copies, matrix, weights_of, "ensemble", train=data.train, context=data.context)
        trained = train_together(task, engine, None if data.validation is None else validate)
        self.models_, self.epochs_ = trained.models, trained.epochs

    def truncate(self, count: int) -> Self:
        """This fitted model with its first `count` models alone, which are those of an ensemble that has no more."""
        if not 1 <= count <= self.models:
            raise ConfigError(f"expected from 1 to {self.models} of the models, found {count}")
        if count == self.models:
            return self
        truncated = copy.copy(self)
        truncated.answering_models_ = count
        return truncated

    def facts(self, counts: Sequence[int] = ()) -> dict[str, Any]:
        """The number of epochs that validation chose."""
        return {"epochs": self.epochs_}

    def score(self, histories: csr_array) -> Scores:
        """The mean of the models' scores, users × items."""
        scores = self._mean(fitted(self.models_, self), csr_array(histories))
        return np.asarray(scores.cpu().numpy(), dtype=np.float32)

    def _mean(self, models: LocalModels, histories: csr_array) -> Tensor:
        everyone = csr_array(np.ones((histories.shape[0], len(models)), dtype=np.float32))
        return models.blend(histories, first_models(everyone, self.answering_models_))

    def memory_bytes(self, data: DataSize) -> MemoryUse:
        """All members, and the centre that they are differences to if any."""
        engine = Engine(self.engine, self.precision, self.answer_precision, self.local_bytes)
        return MemoryUse.in_turn(local_memory(self.base, self.models, engine, data, "ensemble members"))

    def count_items(self) -> int:
        """How many items it scores."""
        return fitted(self.models_, self).count_items()

    def with_selected_params(self) -> Self:
        """A copy that runs the number of epochs that validation chose."""
        return clone(self) if self.epochs_ is None else clone(self, base=clone(self.base, epochs=self.epochs_))

    def state(self) -> ModelState:
        models = fitted(self.models_, self)
        parts: dict[str, Any] = {"models": models}
        if models.centre_ is not None:
            parts["centre"] = models.centre_
        return ModelState(facts={"epochs": self.epochs_}, parts=parts)

    @classmethod
    def restore(cls, params: Mapping[str, Any], state: ModelState) -> Self:
        model = cls(**params)
        models = state.parts.get("models")
        if not isinstance(models, LocalModels):
            raise ModelFileError(f"ensemble: expected models, found {', '.join(sorted(state.parts)) or 'none'}")
        model.models_ = models.around(state.parts.get("centre"))
        model.epochs_ = state.facts["epochs"]
        return model
