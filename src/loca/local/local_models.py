"""Many fitted models as one: what they answer together, with and without the global model."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array

from loca.deferred import torch
from loca.errors import ConfigError
from loca.evaluation.top_n import AnyScores, as_array, beside
from loca.models.devices import score_on
from loca.models.recommender import ItemRows, Recommender, Scores, TrainingData, is_epoch
from loca.persistence.learned import Learner, learned_fact, learned_parts
from loca.persistence.manifest import SavedAt
from loca.typing import IntArray

ScoreWith = Callable[[int, csr_array], AnyScores]


@dataclass(frozen=True, eq=False, kw_only=True)
class PreparedBatch:
    """Histories and the weights of the models that answer them, as some models prepared them.

    A subclass adds what these models made of both, so that they need not make it for every blend.
    """

    histories: csr_array
    answer_weights: csr_array


@dataclass(kw_only=True, eq=False, repr=False)
class LocalModels(Learner, ABC):
    """Many fitted models over the same items, numbered like the communities they answer for.

    Attributes
    ----------
    epochs_ : int or None
        How many epochs the models learned for; None where they do not learn by epoch.
    device : torch.device or None
        Where blended scores lie, as a tensor; None gives an array.
    saved_in_ : SavedAt or None
        A folder that holds them as they are, if any does.
    """

    epochs_: int | None = learned_fact(
        "a whole number ≥ 1", is_epoch, selects="base__epochs", optional=True
    )

    device: torch.device | None = field(default=None, init=False)
    saved_in_: SavedAt | None = field(default=None, init=False)

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def count_items(self) -> int:
        """Return how many items they score."""

    @abstractmethod
    def blend(self, histories: csr_array, answer_weights: csr_array) -> AnyScores:
        """Return Σ_j w_j · M_j(history) / Σ_j w_j of every user, (users, items) on the device.

        `answer_weights` is users × models; a user without any gets a row of zeros.
        """

    def prepared(self, histories: csr_array, answer_weights: csr_array) -> PreparedBatch:
        """Return a batch that these models blend again and again, such as after every epoch."""
        return PreparedBatch(histories=histories, answer_weights=answer_weights)

    def blend_prepared(self, batch: PreparedBatch) -> AnyScores:
        """Return the blended scores of a batch that these models prepared."""
        return self.blend(batch.histories, batch.answer_weights)

    def to(self, device: str) -> Self:
        """Move what answers to a device, where it can."""
        return self

    def without_centre(self) -> Self:
        """Return the models as a shard saves them: without their centre, where they have one."""
        return self

    def with_centre(self, centre: Recommender | None) -> Self:
        """Return the models that a shard saved with their centre again, where they have one."""
        return self

    def score_with(self, number: int, histories: csr_array) -> Scores:
        """Return one model's own scores, users × items."""
        only = answered_by_one(np.full(histories.shape[0], number), len(self))
        return as_array(self.blend(histories, only))

    def similarities_of(self, number: int, item_rows: ItemRows) -> Scores:
        """Return one model's similarities of all items to those in some rows, (rows, items)."""
        raise ConfigError(f"similar items: {type(self).__name__} does not know them")

    def network(self, number: int, model: Any) -> Any:
        """Return a copy of one model's network that can be trained; `model` says its shape."""
        raise ConfigError(f"update: {type(self).__name__} holds no networks")

    def updated(self, number: int, data: TrainingData, epochs: int) -> Recommender:
        """Return one model after an update with the data, where each is a model of its own."""
        raise ConfigError(f"update: {type(self).__name__} holds no models of their own")


@dataclass(kw_only=True, eq=False, repr=False)
class SeparateModels(LocalModels):
    """Local models of any kind, each scoring in turn: what the reference engine gives."""

    models_: tuple[Recommender, ...] = learned_parts(Recommender, "items")

    @classmethod
    def of(cls, models: Sequence[Recommender]) -> Self:
        """Return the given models as one."""
        separate = cls()
        separate.models_ = tuple(models)
        separate.check()
        return separate

    def check(self) -> None:
        """Let scores lie with the first model, if that is a network."""
        network = getattr(self.models_[0], "network_", None)
        self.device = getattr(network, "device", None)

    def to(self, device: str) -> Self:
        """Itself, each model moved."""
        for model in self.models_:
            model.to(device)
        self.device = getattr(getattr(self.models_[0], "network_", None), "device", None)
        return self

    def __len__(self) -> int:
        return len(self.models_)

    def count_items(self) -> int:
        """Return how many items they score."""
        return self.models_[0].count_items()

    def blend(self, histories: csr_array, answer_weights: csr_array) -> AnyScores:
        """Return the blended scores; each model scores once, those whom it answers for."""
        return blend_scores(
            histories,
            answer_weights,
            lambda number, rows: score_on(self.models_[number], rows),
            self.device,
        )

    def similarities_of(self, number: int, item_rows: ItemRows) -> Scores:
        """Return one model's similarities."""
        return self.models_[number].similarities(item_rows)

    def network(self, number: int, model: Any) -> Any:
        """Return a copy of one model's network."""
        trained: Any = self.models_[number]
        return copy.deepcopy(trained.network_)

    def updated(self, number: int, data: TrainingData, epochs: int) -> Recommender:
        """Return one model after an update with the data."""
        return self.models_[number].updated(data, epochs)


def answered_by_one(numbers: IntArray, n_models: int) -> csr_array:
    """Return answer weights by which the model `numbers[r]` alone answers row r, rows × models."""
    n_rows = len(numbers)
    ones = np.ones(n_rows, np.float32)
    return csr_array((ones, numbers, np.arange(n_rows + 1)), shape=(n_rows, n_models))


def blend_scores(
    histories: csr_array,
    answer_weights: csr_array,
    score_with: ScoreWith,
    device: torch.device | None = None,
) -> AnyScores:
    """Return Σ_j w_j · M_j(history) / Σ_j w_j for every user, users × items.

    They lie on the device, or are an array without one; the row of an uncovered user is zero.
    `score_with(j, histories)` is called once for each model, with the users whom it answers for.
    """
    total_weights = np.asarray(answer_weights.sum(axis=1)).ravel()  # (users,)
    zeros = np.zeros(histories.shape, np.float32)
    blended: AnyScores = zeros if device is None else torch.from_numpy(zeros).to(device)
    by_model = answer_weights.tocsc()
    for number in np.flatnonzero(np.diff(by_model.indptr)).tolist():
        part = slice(by_model.indptr[number], by_model.indptr[number + 1])
        users = by_model.indices[part]
        shares = (by_model.data[part] / total_weights[users]).astype(np.float32)[:, None]
        scores = score_with(number, csr_array(histories[users]))
        blended[beside(blended, users.astype(np.int64))] += beside(blended, shares) * beside(
            blended, scores
        )
    return blended
