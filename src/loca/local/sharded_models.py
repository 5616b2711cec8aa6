"""Local models in parts, as the shards of a cluster leave them: they are saved like any others."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array

from loca.errors import ConfigError
from loca.evaluation.top_n import AnyScores, as_array
from loca.local.local_models import LocalModels
from loca.models.recommender import ItemRows, Recommender, Scores, TrainingData
from loca.persistence.learned import learned_parts
from loca.typing import FloatArray, IntArray

_USERS_AT_ONCE = 512  # whose answers are added at a time, so that sums stay in the cache


@dataclass(frozen=True, eq=False)
class Request:
    """What one shard is asked: histories of the users whom it answers, and its models' weights."""

    name: str
    histories: csr_array
    answer_weights: csr_array


@dataclass(frozen=True, eq=False)
class Portion:
    """A shard's part in a request to all: which users it answers, and how much its answer counts.

    `shares` is (users, 1); `request` is None where the shard answers nobody.
    """

    users: IntArray
    shares: FloatArray
    request: Request | None


def split_request(
    histories: csr_array, answer_weights: csr_array, edges: Sequence[int]
) -> list[Portion]:
    """Return what each shard is asked; shard k has the models from edges[k] to edges[k + 1]."""
    weights = csr_array(answer_weights)
    name = secrets.token_hex(8)
    totals = np.asarray(weights.sum(axis=1), dtype=np.float64).ravel()
    portions = []
    for first, last in itertools.pairwise(edges):
        own_weights = csr_array(weights[:, first:last])
        users = np.flatnonzero(np.diff(own_weights.indptr))
        own_totals = np.asarray(own_weights.sum(axis=1), dtype=np.float64).ravel()
        shares = (own_totals[users] / totals[users]).astype(np.float32)[:, None]
        request = None
        if len(users):
            rows = histories if len(users) == len(totals) else csr_array(histories[users])
            request = Request(name, rows, csr_array(own_weights[users]))
        portions.append(Portion(users, shares, request))
    return portions


def add_answers(
    portions: Sequence[Portion], answers: Iterable[Any], shape: tuple[int, int]
) -> FloatArray:
    """Return Σ_j w_j · M_j(history) / Σ_j w_j over the models of all shards.

    The answers are added in the order of the shards, as they come.
    """
    blended = np.zeros(shape, np.float32)
    for portion, answer in zip(portions, answers, strict=True):
        for first in range(0, len(portion.users), _USERS_AT_ONCE):
            block = slice(first, first + _USERS_AT_ONCE)
            blended[portion.users[block]] += portion.shares[block] * answer[block]
    return blended


@dataclass(kw_only=True, eq=False, repr=False)
class ShardedModels(LocalModels):
    """The local models of several shards, one after the other; each shard's are saved as a part."""

    parts_: tuple[LocalModels, ...] = learned_parts(LocalModels, "items")

    @classmethod
    def of(cls, parts: Sequence[LocalModels]) -> Self:
        """Return the models of all parts."""
        sharded = cls()
        sharded.parts_ = tuple(parts)
        sharded.epochs_ = parts[0].epochs_
        return sharded

    def to(self, device: str) -> Self:
        """Move the models of all shards to a device."""
        for part in self.parts_:
            part.to(device)
        return self

    @property
    def edges(self) -> list[int]:
        """Where the models of each part begin, and the end."""
        return list(itertools.accumulate(map(len, self.parts_), initial=0))

    def __len__(self) -> int:
        return sum(map(len, self.parts_))

    def count_items(self) -> int:
        """Return how many items they score."""
        return self.parts_[0].count_items()

    def blend(self, histories: csr_array, answer_weights: csr_array) -> AnyScores:
        """Return the scores of all models, blended by the weights."""
        if answer_weights.shape[1] != len(self):
            raise ConfigError(
                f"answer_weights: expected {len(self)} communities, found {answer_weights.shape[1]}"
            )
        portions = split_request(csr_array(histories), answer_weights, self.edges)
        answers = map(_answer, self.parts_, portions)
        return add_answers(portions, answers, (histories.shape[0], self.count_items()))

    def similarities_of(self, number: int, item_rows: ItemRows) -> Scores:
        """Return one model's similarities."""
        part, inner_number = self._part_of(number)
        return part.similarities_of(inner_number, item_rows)

    def network(self, number: int, model: Any) -> Any:
        """Return a copy of one model's network."""
        part, inner_number = self._part_of(number)
        return part.network(inner_number, model)

    def updated(self, number: int, data: TrainingData, epochs: int) -> Recommender:
        """Return one model after an update with the data."""
        part, inner_number = self._part_of(number)
        return part.updated(inner_number, data, epochs)

    def _part_of(self, number: int) -> tuple[LocalModels, int]:
        """Return the part that holds a model, and the model's number inside it."""
        edges = self.edges
        place = int(np.searchsorted(edges, number, side="right")) - 1
        return self.parts_[place], number - edges[place]


def _answer(part: LocalModels, portion: Portion) -> FloatArray | None:
    if portion.request is None:
        return None
    return as_array(part.blend(portion.request.histories, portion.request.answer_weights))
