"""Local models in parts, as the shards of a cluster leave them: one model of many, saved and loaded like any other."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.errors import ConfigError, ModelFileError
from loca.evaluation.top_n import AnyScores, as_array
from loca.local.local_models import LocalModels
from loca.models.recommender import ItemRows, Recommender, Scores, TrainingData
from loca.persistence.manifest import ModelState

_USERS_AT_ONCE = 512  # whose answers are added at a time, so that sums stay in the cache


@dataclass(frozen=True, eq=False)
class Request:
    """What one shard gets: the histories of the users whom it answers for, and the weights of its models."""

    name: str
    histories: csr_array
    answer_weights: csr_array


@dataclass(frozen=True, eq=False)
class Portion:
    """What one shard gets, None if nothing, and what its answers count for the users of the whole request."""

    users: npt.NDArray[np.int64]
    shares: npt.NDArray[np.float32]
    request: Request | None


def split_request(
    histories: csr_array, answer_weights: csr_array, edges: Sequence[int]
) -> list[Portion]:
    """What each shard gets of a request to all; shard k has the models from edges[k] to edges[k + 1]."""
    weights, name = csr_array(answer_weights), secrets.token_hex(8)
    totals = np.asarray(weights.sum(axis=1), dtype=np.float64).ravel()
    portions = []
    for first, last in itertools.pairwise(edges):
        own = csr_array(weights[:, first:last])
        users = np.flatnonzero(np.diff(own.indptr))
        shares = np.asarray(own.sum(axis=1), dtype=np.float64).ravel()[users] / totals[users]
        rows = histories if len(users) == len(totals) else csr_array(histories[users])
        request = Request(name, rows, csr_array(own[users])) if len(users) else None
        portions.append(Portion(users, shares.astype(np.float32)[:, None], request))
    return portions


def add_answers(
    portions: Sequence[Portion], answers: Iterable[Any], shape: tuple[int, int]
) -> npt.NDArray[np.float32]:
    """Σ_j w_j · M_j(history) / Σ_j w_j over the models of all shards, added in the order of the shards as they come."""
    blended = np.zeros(shape, np.float32)
    for portion, answer in zip(portions, answers, strict=True):
        for first in range(0, len(portion.users), _USERS_AT_ONCE):
            part = slice(first, first + _USERS_AT_ONCE)
            blended[portion.users[part]] += portion.shares[part] * answer[part]
    return blended


class ShardedModels(LocalModels):
    """The local models of several shards, one after the other; saved in parts, one for each shard."""

    def __init__(self) -> None:
        self.parts_: list[LocalModels] = []

    @classmethod
    def of(cls, parts: Sequence[LocalModels]) -> Self:
        """Those of the given parts."""
        one = cls()
        one.parts_ = list(parts)
        one.centre_ = parts[0].centre_
        return one

    @property
    def edges(self) -> list[int]:
        """Where the models of each part begin, and the end."""
        return np.cumsum([0, *map(len, self.parts_)]).tolist()  # type: ignore[no-any-return]

    def __len__(self) -> int:
        return sum(map(len, self.parts_))

    def count_items(self) -> int:
        """How many items they score."""
        return self.parts_[0].count_items()

    def blend(self, histories: csr_array, answer_weights: csr_array) -> AnyScores:
        """The scores of all models, blended by the weights."""
        if answer_weights.shape[1] != len(self):
            raise ConfigError(
                f"answer_weights: expected {len(self)} communities, found {answer_weights.shape[1]}"
            )

        portions = split_request(csr_array(histories), answer_weights, self.edges)
        answers = (
            None
            if one.request is None
            else as_array(part.blend(one.request.histories, one.request.answer_weights))
            for part, one in zip(self.parts_, portions, strict=True)
        )
        return add_answers(portions, answers, (histories.shape[0], self.count_items()))

    def similarities_of(self, number: int, item_rows: ItemRows) -> Scores:
        """One model's similarities."""
        part = int(np.searchsorted(self.edges, number, side="right")) - 1
        return self.parts_[part].similarities_of(number - self.edges[part], item_rows)

    def network(self, number: int, model: Any) -> Any:
        """A copy of one model's network."""
        part = int(np.searchsorted(self.edges, number, side="right")) - 1
        return self.parts_[part].network(number - self.edges[part], model)

    def updated(self, number: int, data: TrainingData, epochs: int) -> Recommender:
        """One model after an update with the data."""
        part = int(np.searchsorted(self.edges, number, side="right")) - 1
        return self.parts_[part].updated(number - self.edges[part], data, epochs)

    def around(self, centre: object) -> Self:
        """Itself, each part with the model that its own are differences to."""
        self.parts_ = [part.around(centre) for part in self.parts_]
        self.centre_ = self.parts_[0].centre_
        return self

    def to(self, device: str) -> Self:
        """Itself, each part moved."""
        for part in self.parts_:
            part.to(device)
        return self

    def state(self) -> ModelState:
        return ModelState(
            parts={f"shard {number}": part for number, part in enumerate(self.parts_)}
        )

    @classmethod
    def restore(cls, params: Mapping[str, Any], state: ModelState) -> Self:
        parts = [state.parts.get(f"shard {number}") for number in range(len(state.parts))]
        found = [one for one in parts if isinstance(one, LocalModels)]
        if not found or len(found) < len(parts):
            raise ModelFileError(
                f"expected shards named 'shard 0' and on, found {sorted(state.parts)[:3]}"
            )
        if len({one.count_items() for one in found}) > 1:
            raise ModelFileError("shards: the parts score different numbers of items")
        return cls.of(found)
