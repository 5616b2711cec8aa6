"""Many copies of one model, trained on all users, answers averaged: the control for what locality earns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from loca.data.splits import HeldOut
from loca.evaluation.evaluate import mean_value
from loca.evaluation.metrics import Metric
from loca.evaluation.top_n import AnyScores, as_array
from loca.local.engines.engine import Engine, ManyFits, Validator, copies_of, train, warm_copies
from loca.local.local_models import LocalModels
from loca.local.many_models import ManyModels, is_engine_or_none
from loca.memory import DataSize, MemoryUse
from loca.models.devices import ranking_bytes
from loca.models.params import param, seed_param, whole
from loca.models.recommender import (
    ItemRows,
    Recommender,
    Scores,
    SimilarityKind,
    TrainingData,
    UserWeights,
    fitted,
    model_param,
)
from loca.persistence.learned import learned_part
from loca.random_streams import stream


@dataclass(kw_only=True, eq=False, repr=False)
class Ensemble(ManyModels):
    """Average the scores of many copies of one model, each trained on all users.

    It is the control for `Loca`: as many models without communities. Copies of a base with randomness
    differ by their seeds; of a base without (EASE) each learns from its own bootstrap sample of the
    users.

    Parameters
    ----------
    base : Recommender
        The model that is copied.
    models : int, default 40
        Number of copies.
    engine : Engine or None, default None
        How the copies are trained: `Stacked`, `Differences` or `Loop`, all with the same scores.
        None takes what suits the base.
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
    engine: Engine | None = param(None, "an engine such as Loop() or none", is_engine_or_none)
    seed: int = seed_param()

    models_: LocalModels | None = learned_part(LocalModels, "items")

    @property
    def size(self) -> int:
        """The number of copies."""
        return self.models

    @property
    def epochs_(self) -> int | None:
        """How many epochs the models learned for; None before a fit, and of models without epochs."""
        return None if self.models_ is None else self.models_.epochs_

    @property
    def gives_logits(self) -> bool:
        """Whether all its models give logits."""
        return self.base.gives_logits

    @property
    def is_additive(self) -> bool:
        """Whether the scores of all its models are a sum over the items of a history."""
        return self.base.is_additive

    def _fit(self, data: TrainingData) -> None:
        """Train all models, with one number of epochs: that of the best averaged scores."""
        engine = self.engine_of(data.matrix.shape[1])
        copies = copies_of(self.base, self.models, self.seed, "ensemble member")
        self.models_ = train(self._fits(data, copies), engine, self._validation(data))

    def _fits(self, data: TrainingData, copies: list[Recommender]) -> ManyFits:
        return ManyFits(
            models=copies,
            data=data,
            weights_of=partial(self._weights_of, data.user_weights),
            name="ensemble",
        )

    def _validation(self, data: TrainingData) -> Validator | None:
        if data.validation is None:
            return None
        return _MeanScores(data.validation, data.metric)

    def _weights_of(self, user_weights: UserWeights, number: int) -> UserWeights:
        """Return what users weigh in one model: in one without randomness as often as drawn."""
        if "seed" in self.base.get_params():
            return user_weights
        n_users = len(user_weights)
        rng = stream(self.seed, "bootstrap sample", number)
        return user_weights * rng.multinomial(n_users, np.full(n_users, 1 / n_users))

    def _update(self, data: TrainingData, epochs: int) -> None:
        """Update every model, with bootstrap samples of the users that there are now."""
        present = fitted(self.models_, self)
        copies = warm_copies(self.base, present, self.seed, "ensemble member", data, epochs)
        fits = replace(self._fits(data, copies), present=present, epochs=epochs)
        self.models_ = train(fits, self.engine_of(data.matrix.shape[1]))

    def facts(self) -> dict[str, Any]:
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
        return as_array(_mean_scores(fitted(self.models_, self), csr_array(histories)))

    @property
    def similarity_kind(self) -> SimilarityKind | None:
        """That of its models."""
        return self.base.similarity_kind

    def _similarities(self, item_rows: ItemRows) -> Scores:
        """Return the mean of the similarities by its models."""
        models = fitted(self.models_, self)
        total = np.zeros((len(item_rows), models.count_items()), np.float32)
        for number in range(len(models)):
            total += models.similarities_of(number, item_rows)
        return total / np.float32(len(models))

    def memory_bytes(self, data: DataSize) -> MemoryUse:
        """Estimate the memory of all members, and of the centre that they are differences to if any."""
        engine = self.engine_of(data.items)
        steps = engine.memory(self.base, self.models, data, "ensemble members")
        return MemoryUse.in_turn(steps)


@dataclass(frozen=True, eq=False)
class _MeanScores(Validator):
    """Judge models while they learn by their mean scores."""

    held_out: HeldOut
    metric: Metric

    def __call__(self, models: LocalModels) -> float:
        """Return the mean value of the validation users."""
        block_bytes = ranking_bytes(models.device)
        score = partial(_mean_scores, models)
        return mean_value(score, self.held_out, self.metric, block_bytes=block_bytes)


def _mean_scores(models: LocalModels, histories: csr_array) -> AnyScores:
    """Return the mean of all models' scores, users × items."""
    everyone = csr_array(np.ones((histories.shape[0], len(models)), dtype=np.float32))
    return models.blend(histories, everyone)
