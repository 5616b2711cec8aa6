"""Ensemble: as many models as a Loca has, each on all users, answers averaged: the control for what locality earns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array

from loca.errors import ModelFileError
from loca.evaluation.evaluate import mean_value
from loca.evaluation.top_n import AnyScores, as_array
from loca.local.local_ease import LOCAL_BYTES
from loca.local.local_models import (
    AnswerPrecision,
    LocalModels,
    LocalTask,
    ManyModels,
    PrecisionName,
    first_models,
    truncated,
)
from loca.local.training import (
    Engine,
    EngineName,
    copies_going_on,
    copies_of,
    local_memory,
    train_locals,
)
from loca.memory import DataSize, MemoryUse
from loca.models.devices import ranking_bytes
from loca.models.recommender import (
    ItemRows,
    ModelState,
    Recommender,
    Scores,
    SimilarityKind,
    TrainingData,
    UserWeights,
    clone,
    fitted,
    model_param,
    seed_param,
    whole,
)
from loca.random_streams import stream


@dataclass(kw_only=True, eq=False, repr=False)
class Ensemble(ManyModels):
    """Average the scores of many copies of one model, each trained on all users.

    It is the control for `Loca`: as many models without communities. Copies of a base with randomness differ by their
    seeds; of a base without (EASE) each learns from its own bootstrap sample of the users.

    Parameters
    ----------
    base : Recommender
        The model that is copied.
    models : int, default 40
        Number of copies.
    engine : {"auto", "stacked", "one_by_one"}, default "auto"
        How the copies are trained, as in `Loca`; the scores are the same.
    precision : {"float32", "bfloat16"}, default "float32"
        `"bfloat16"` lets the stacked engine multiply 16-bit numbers; sums and weights have 32 bits.
    answer_precision : {"float32", "float16"}, default "float32"
        `"float16"` stores the weights of networks in half the memory.
    local_bytes : int, default 9000000
        What a copy of EASE may take: its largest differences to the EASE of all users.
    seed : int, default 0
        Seed of the copies and of the bootstrap samples.

    Examples
    --------
    >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12, shortest_history=10).interactions
    >>> model = loca.Ensemble(base=loca.MultVAE(latent=8, epochs=2), models=3).fit(data)
    >>> model.score(data.histories()).shape
    (60, 30)
    """

    role = "ensemble"

    base: Recommender = model_param()
    models: int = whole(40)
    engine: EngineName = "auto"
    precision: PrecisionName = "float32"
    answer_precision: AnswerPrecision = "float32"
    local_bytes: int = LOCAL_BYTES
    seed: int = seed_param()

    models_: LocalModels | None = field(default=None, init=False)
    epochs_: int | None = field(default=None, init=False)
    answering_models_: int | None = field(default=None, init=False)  # of a truncated model

    def __post_init__(self) -> None:
        super().__post_init__()
        self._engine()

    def _engine(self) -> Engine:
        return Engine(self.engine, self.precision, self.answer_precision, self.local_bytes)

    @property
    def gives_logits(self) -> bool:
        """Whether all its models give logits."""
        return self.base.gives_logits

    @property
    def is_additive(self) -> bool:
        """Whether the scores of all its models are a sum over the items of a history."""
        return self.base.is_additive

    def _fit(self, data: TrainingData) -> None:
        """Train all models; one number of epochs for all, chosen on the validation score of the averaged scores."""
        held_out = data.validation

        def validate(models: LocalModels) -> float:
            block = ranking_bytes(models.device)
            return mean_value(
                lambda rows: self._mean(models, rows),
                fitted(held_out, self),
                data.metric,
                block_bytes=block,
            )

        copies = copies_of(self.base, self.models, self.seed, "ensemble member")
        task = LocalTask(copies, data, partial(self._weights_of, data.user_weights), "ensemble")
        self.models_, self.epochs_ = train_locals(
            task, self._engine(), None if held_out is None else validate
        )

    def _weights_of(self, weights: UserWeights, number: int) -> UserWeights:
        """What users weigh in one of the models: in one without randomness as often as they were drawn."""
        if "seed" in self.base.get_params():
            return weights
        rng = stream(self.seed, "bootstrap sample", number)
        return weights * rng.multinomial(len(weights), np.full(len(weights), 1 / len(weights)))

    def _update(self, data: TrainingData, epochs: int) -> None:
        """Update every model; samples of the users are drawn anew."""
        models = copies_going_on(
            self.base, self.models, self.seed, "ensemble member", data, epochs, self.epochs_
        )
        weights_of = partial(self._weights_of, data.user_weights)
        task = LocalTask(
            models, data, weights_of, "ensemble", None, fitted(self.models_, self), epochs
        )
        self.models_, _ = train_locals(task, self._engine())

    def _move(self, device: str) -> None:
        if self.models_ is not None:
            self.models_.to(device)

    def truncate(self, count: int) -> Self:
        """Leave the first models alone, which are those of an ensemble that has no more.

        Parameters
        ----------
        count : int
            How many models stay, from 1 to `models`.

        Returns
        -------
        Ensemble
            A fitted model that shares what this one learned.
        """
        return truncated(self, count, self.models)

    def facts(self, counts: Sequence[int] = ()) -> dict[str, Any]:
        """Return the number of epochs that validation chose."""
        return {"epochs": self.epochs_}

    def score(self, histories: csr_array) -> Scores:
        """Average the scores of the models.

        Parameters
        ----------
        histories : csr_array
            Users × items, each entry with its weight; their users need not be known.

        Returns
        -------
        ndarray of float32
            Users × items.
        """
        return as_array(self._mean(fitted(self.models_, self), csr_array(histories)))

    def _mean(self, models: LocalModels, histories: csr_array) -> AnyScores:
        everyone = csr_array(np.ones((histories.shape[0], len(models)), dtype=np.float32))
        return models.blend(histories, first_models(everyone, self.answering_models_))

    @property
    def similarity_kind(self) -> SimilarityKind | None:
        """That of its models."""
        return self.base.similarity_kind

    def _similarities(self, item_rows: ItemRows) -> Scores:
        """The mean of the similarities by its models."""
        models = fitted(self.models_, self)
        count = len(models) if self.answering_models_ is None else self.answering_models_
        total = np.zeros((len(item_rows), models.count_items()), np.float32)
        for number in range(count):
            total += models.similarities_of(number, item_rows)
        return total / np.float32(count)

    def memory_bytes(self, data: DataSize) -> MemoryUse:
        """Estimate the memory of all members, and of the centre that they are differences to if any."""
        return MemoryUse.in_turn(
            local_memory(self.base, self.models, self._engine(), data, "ensemble members")
        )

    def count_items(self) -> int:
        """Return how many items it scores."""
        return fitted(self.models_, self).count_items()

    def with_selected_params(self) -> Self:
        """Copy the model with the number of epochs that validation chose."""
        return (
            clone(self)
            if self.epochs_ is None
            else clone(self, base=clone(self.base, epochs=self.epochs_))
        )

    def state(self) -> ModelState:
        models = fitted(self.models_, self)
        parts: dict[str, Any] = {"models": models}
        if models.centre_ is not None:
            parts["centre"] = models.centre_
        return ModelState(facts={"epochs": self.epochs_}, parts=parts)

    @classmethod
    def restore(cls, params: Mapping[str, Any], state: ModelState) -> Self:
        model, models = cls(**params), state.parts.get("models")
        if not isinstance(models, LocalModels):
            raise ModelFileError(
                f"ensemble: expected models, found {', '.join(sorted(state.parts)) or 'none'}"
            )
        model.models_, model.epochs_ = (
            models.around(state.parts.get("centre")),
            state.facts["epochs"],
        )
        return model
