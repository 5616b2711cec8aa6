"""The reference engine: copies of the base with seeds and weights of their own, fitted or trained in a loop."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.data.interactions import Interactions
from loca.errors import DataError
from loca.memory import plan_memory
from loca.models.networks import LearnsAlone
from loca.models.recommender import Recommender, UserWeights, clone, get_params
from loca.progress import bar
from loca.random_streams import derive_seed

WeightsOf = Callable[[int], UserWeights]
# The weights themselves, Adam's two moments, and the copy of the best epoch.
_COPIES_WHILE_LEARNING = 4
_ADVICE = "take fewer or smaller models"


def copies_of(base: Recommender, count: int, seed: int, name: str) -> list[Recommender]:
    """Unfitted copies of the base, each with a seed of its own where the base has one."""
    if "seed" not in get_params(base):
        return [clone(base) for _ in range(count)]
    return [clone(base, seed=derive_seed(seed, name, number)) for number in range(count)]


def scaled_weights(weights: UserWeights, total: float) -> npt.NDArray[np.float32]:
    """Weights scaled to sum to `total`, so that regularisation means the same in every local model."""
    if not weights.any():
        raise DataError(
            "a community has no user with a weight above 0; give more users a weight, or widen train_bandwidth"
        )
    return np.asarray(weights * (total / weights.sum(dtype=np.float64)), dtype=np.float32)


def fit_each(
    models: list[Recommender], train: Interactions | csr_array, weights_of: WeightsOf, what: str
) -> list[Recommender]:
    """Fits model j with the user weights `weights_of(j)`, one after the other."""
    with bar(what, len(models)) as progress:
        for number, model in enumerate(models):
            model.fit(train, user_weights=weights_of(number))
            model.known_ = None  # kept once, by the whole
            progress.advance()
            if number == 0:
                size = sum(array.nbytes for array in model.state().arrays.values())
                plan_memory(f"{what}: {len(models)} models", size * (len(models) - 1), _ADVICE)
    return models


def plan_loop_memory(learning: LearnsAlone, count: int, what: str) -> None:
    """Says how much memory `count` such networks take while they learn; refuses when there is not that much."""
    size = sum(weight.numel() * 4 for weight in learning.network.parameters())
    if learning.device.type == "cpu":
        plan_memory(f"{what}: {count} models", size * _COPIES_WHILE_LEARNING * count, _ADVICE)
