"""Fitted models that answer with their first models alone: how much many models earn over few."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from loca.communities.finder import Communities
from loca.errors import ConfigError
from loca.evaluation.top_n import AnyScores
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.local.local_models import LocalModels
from loca.models.recommender import ItemRows, Recommender, Scores, fitted
from loca.typing import FloatArray


@dataclass(frozen=True, eq=False, kw_only=True)
class FirstCommunities(Communities):
    """Communities of which only the first answer; the others keep their numbers."""

    communities: Communities
    count: int

    def __len__(self) -> int:
        return len(self.communities)

    def locate(self, histories: csr_array) -> FloatArray:
        """Return the positions among all communities."""
        return self.communities.locate(histories)

    def train_weights(self, positions: FloatArray, community: int) -> FloatArray:
        """Return those of the communities."""
        return self.communities.train_weights(positions, community)

    def answer_weights(self, positions: FloatArray) -> csr_array:
        """Return the weights, with nothing but the first columns."""
        return first_columns(self.communities.answer_weights(positions), self.count)

    def memberships(self, positions: FloatArray) -> csr_array:
        """Return those of the communities."""
        return self.communities.memberships(positions)

    def facts(self) -> dict[str, Any]:
        """Return those of the communities."""
        return self.communities.facts()


@dataclass(kw_only=True, eq=False, repr=False)
class FirstModels(LocalModels):
    """The first of many fitted models, as if there were no others."""

    models: LocalModels
    count: int

    def __post_init__(self) -> None:
        self.epochs_ = self.models.epochs_
        self.device = self.models.device

    def __len__(self) -> int:
        return self.count

    def count_items(self) -> int:
        """Return how many items they score."""
        return self.models.count_items()

    def blend(self, histories: csr_array, answer_weights: csr_array) -> AnyScores:
        """Return the blended scores of the first models."""
        weights = csr_array(answer_weights)
        shape = (weights.shape[0], len(self.models))
        arrays = (weights.data, weights.indices, weights.indptr)
        return self.models.blend(histories, csr_array(arrays, shape=shape))

    def similarities_of(self, number: int, item_rows: ItemRows) -> Scores:
        """Return one model's similarities."""
        return self.models.similarities_of(number, item_rows)


def first_models(model: Recommender, count: int) -> Recommender:
    """Return a fitted Loca or Ensemble that answers with its first models alone.

    Anchors are chosen one after the other, but for k-means, and each model draws from its own
    stream: these are the models of a Loca or Ensemble that has no more and learned for as many
    epochs. The share of the global model stays; it answers alone whom no community is left for. The
    first communities of a mixture are no smaller mixture.
    """
    if isinstance(model, Loca):
        local = fitted(model.local_, model)
        if _is_all(count, len(local.communities)):
            return model
        first = copy.copy(model)
        communities = FirstCommunities(communities=local.communities, count=count)
        first.local_ = replace(local, communities=communities)
        return first
    if isinstance(model, Ensemble):
        models = fitted(model.models_, model)
        if _is_all(count, len(models)):
            return model
        smaller = copy.copy(model)
        smaller.models_ = FirstModels(models=models, count=count)
        return smaller
    raise ConfigError(f"first models: expected a Loca or an Ensemble, found {type(model).__name__}")


def coverage_of_first(model: Recommender, counts: Iterable[int]) -> dict[int, float]:
    """Return the share of the training users whom the first communities cover, for each number.

    Nothing is returned of a model without communities, or without its training data.
    """
    if not isinstance(model, Loca) or model.train_data_ is None:
        return {}
    answer_weights = model.answer_weights(model.train_data_.histories())
    return {
        count: float((np.diff(first_columns(answer_weights, count).indptr) > 0).mean())
        for count in counts
    }


def first_columns(answer_weights: csr_array, count: int) -> csr_array:
    """Return the same weights, users × models, with nothing stored but in the first columns."""
    first = csr_array(answer_weights, copy=True)
    first.data[first.indices >= count] = 0
    first.eliminate_zeros()
    return first


def _is_all(count: int, size: int) -> bool:
    if not 1 <= count <= size:
        raise ConfigError(f"expected from 1 to {size} of the models, found {count}")
    return count == size
