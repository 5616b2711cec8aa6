"""What Loca and Ensemble ask of all their models together: a blended answer, and each model's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array

from loca.errors import ModelFileError
from loca.files.model_state import ModelState
from loca.local.aggregation import blend_local
from loca.models.network_answers import LearnsByEpoch, score_on
from loca.models.recommender import Recommender, Scores


@runtime_checkable
class LocalModels(Protocol):
    """Many fitted models over the same items, numbered like the communities they answer for."""

    @property
    def device(self) -> torch.device:
        """Where the blended answers lie."""
        ...

    def __len__(self) -> int: ...

    def count_items(self) -> int:
        """How many items they score."""
        ...

    def blend(self, histories: csr_array, answer_weights: csr_array) -> torch.Tensor:
        """Σ_j w_j · M_j(history) / Σ_j w_j of every user, (users, items) on the device.

        `answer_weights` is users × models; a user without any gets a row of zeros.
        """
        ...

    def score_with(self, number: int, histories: csr_array) -> Scores:
        """One model's own scores, users × items."""
        ...

    def state(self) -> ModelState: ...

    @classmethod
    def restore(cls, params: Mapping[str, Any], state: ModelState) -> Self: ...


def one_for_each(numbers: npt.NDArray[np.int64], models: int) -> csr_array:
    """Answer weights by which row r is answered by the model `numbers[r]` alone, rows × models."""
    rows = len(numbers)
    return csr_array((np.ones(rows, np.float32), numbers, np.arange(rows + 1)), shape=(rows, models))


class SeparateModels:
    """Local models of any kind, each asked in turn: what the reference engine gives."""

    def __init__(self) -> None:
        self.models_: list[Recommender] = []

    @classmethod
    def of(cls, models: Sequence[Recommender]) -> SeparateModels:
        """The given fitted models."""
        one = cls()
        one.models_ = list(models)
        return one

    @property
    def device(self) -> torch.device:
        """Where the blended answers lie: with the first model, if that is a network, else in main memory."""
        first: object = self.models_[0]
        network = first.network_ if isinstance(first, LearnsByEpoch) else None
        return torch.device("cpu") if network is None else network.device

    def __len__(self) -> int:
        return len(self.models_)

    def count_items(self) -> int:
        """How many items they score."""
        return self.models_[0].count_items()

    def blend(self, histories: csr_array, answer_weights: csr_array) -> torch.Tensor:
        """The answers of all models, blended by the weights; each is asked once, for those it answers for."""
        blended, _ = blend_local(
            histories, answer_weights, lambda number, asked: score_on(self.models_[number], asked), self.device
        )
        return blended

    def score_with(self, number: int, histories: csr_array) -> Scores:
        """One model's own scores."""
        return self.models_[number].score(histories)

    def state(self) -> ModelState:
        return ModelState(parts={f"model {number}": model for number, model in enumerate(self.models_)})

    @classmethod
    def restore(cls, params: Mapping[str, Any], state: ModelState) -> Self:
        names = [f"model {number}" for number in range(len(state.parts))]
        if not names or set(state.parts) != set(names):
            raise ModelFileError(f"expected models named 'model 0' and on, found {sorted(state.parts)[:3]}")
        models = [state.parts[name] for name in names]
        if not all(isinstance(one, Recommender) for one in models):
            raise ModelFileError("a part is not a recommender")
        if len({one.count_items() for one in models}) > 1:
            raise ModelFileError("the models score different numbers of items")
        restored = cls()
        restored.models_ = models
        return restored
