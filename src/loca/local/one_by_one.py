"""The reference engine: local models in a loop; those that learn by epochs go side by side and stop together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.data.held_out import HeldOut
from loca.errors import DataError
from loca.memory import plan_memory
from loca.models.network_answers import LearnsByEpoch
from loca.models.recommender import Recommender, UserWeights, clone, get_params
from loca.models.training import Learning, RunsEpochs, learn_for, learn_until_best
from loca.progress import bar, say
from loca.random_streams import derive_seed

WeightsOf = Callable[[int], UserWeights]
Arrange = Callable[[list[Learning]], Sequence[RunsEpochs]]
# The weights themselves, Adam's two moments, and the copy of the best epoch.
_COPIES_WHILE_LEARNING = 4
_ADVICE = "take fewer or smaller models"


@dataclass(frozen=True, eq=False)
class TrainedModels:
    """Fitted models, and the number of epochs that counted (None for a base that does not learn by epochs)."""

    models: list[Recommender]
    epochs: int | None


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


def train_together(
    models: list[Recommender],
    matrix: csr_array,
    weights_of: WeightsOf,
    validate: Callable[[Sequence[Recommender]], float] | None,
    what: str,
    arrange: Arrange = list,
) -> TrainedModels:
    """Trains model j with the user weights `weights_of(j)`; one number of epochs for all, where `validate` is best.

    `arrange` puts the learning of all networks into an engine: as they are, one after the other, or in stacks.
    """
    if not all(isinstance(model, LearnsByEpoch) for model in models):
        return TrainedModels(_fit_each(models, matrix, weights_of, what), None)
    learners = [model for model in models if isinstance(model, LearnsByEpoch)]
    first = learners[0]
    learning: list[Learning] = []
    for number, model in enumerate(learners):
        learning.append(model.begin(matrix, weights_of(number)))
        if number == 0:
            plan_network_memory(learning[0], len(models), what)
    arranged = arrange(learning)
    if validate is None:
        learn_for(arranged, epochs=first.epochs, what=what)
        return TrainedModels(models, first.epochs)
    best = learn_until_best(
        arranged,
        lambda: validate(models),
        epochs=first.epochs,
        patience=first.patience,
        evaluate_every=first.evaluate_every,
        what=what,
    )
    say(f"{what}: best blended validation NDCG@100 {best.score:.4f} after {best.epoch} epochs")
    return TrainedModels(models, best.epoch)


def train_apart(
    models: list[Recommender],
    matrix: csr_array,
    weights_of: WeightsOf,
    validation_of: Callable[[int], HeldOut | None],
    what: str,
) -> TrainedModels:
    """Trains each model to the best epoch of its own validation users; a model without any runs all its epochs."""
    with bar(what, len(models)) as progress:
        for number, model in enumerate(models):
            model.fit(matrix, user_weights=weights_of(number), validation=validation_of(number))
            progress.advance()
    epochs = [model.best_epoch_ for model in models if hasattr(model, "best_epoch_")]
    return TrainedModels(models, int(np.median(epochs)) if epochs else None)


def _fit_each(models: list[Recommender], matrix: csr_array, weights_of: WeightsOf, what: str) -> list[Recommender]:
    with bar(what, len(models)) as progress:
        for number, model in enumerate(models):
            model.fit(matrix, user_weights=weights_of(number))
            progress.advance()
            if number == 0:
                size = sum(array.nbytes for array in model.state().arrays.values())
                plan_memory(f"{what}: {len(models)} models", size * (len(models) - 1), _ADVICE)
    return models


def plan_network_memory(learning: Learning, count: int, what: str) -> None:
    """Says how much memory `count` such networks take while they learn; refuses when there is not that much."""
    size = sum(weight.numel() * 4 for weight in learning.network.parameters())
    if learning.device.type == "cpu":
        plan_memory(f"{what}: {count} models", size * _COPIES_WHILE_LEARNING * count, _ADVICE)
