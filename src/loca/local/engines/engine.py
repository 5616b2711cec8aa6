"""Engines: how many models are trained at once. All of them give the same scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from scipy.sparse import csr_array

from loca.errors import ConfigError, DataError
from loca.local.local_models import LocalModels
from loca.memory import DataSize, MemoryUse, plan_memory
from loca.models.early_stopping import Trainer, train_epochs
from loca.models.params import Strategy
from loca.models.protocols import LearnsByEpoch, as_learning_by_epoch
from loca.models.recommender import (
    Recommender,
    TrainingData,
    UserWeights,
    clone,
    get_params,
)
from loca.progress import say
from loca.random_streams import derive_seed
from loca.typing import FloatArray

ADVICE = "take fewer or smaller models"
_BYTES_UNFITTED = 1000


class Validator(ABC):
    """Judge many models while they learn: all together, and communities each by itself."""

    judges_each: ClassVar[bool] = False  # each model has validation users of its own

    @abstractmethod
    def __call__(self, models: LocalModels) -> float:
        """Return the value of all models together, as they are now."""

    def mean_value_of_each(self, models: LocalModels, numbers: Iterable[int]) -> dict[int, float]:
        """Return the value of each of some models that have validation users, by its number."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class ManyFits:
    """Copies of one model, each to be fitted to the same data with other user weights.

    Parameters
    ----------
    models : list of Recommender
        Unfitted copies, which differ in their seeds at most.
    data : TrainingData
        What all of them learn from.
    weights_of : callable
        Gives the user weights of one model, by its number.
    name : str
        What they are called in messages and checkpoints, such as "local models".
    global_model : Recommender or None
        The fitted model of all users, where there is one; shards of a cluster do not have it.
    centre : Recommender or None
        The fitted model that the others are stored as differences to, where the engine wants one.
    shared_epochs : int
        In so many first epochs all learn with the user weights of `data`.
    present : LocalModels or None
        In an update the models as they are, which go on from there.
    epochs : int
        For how many epochs they go on.

    Examples
    --------
    >>> class Announced(loca.Loop):
    ...     def solve(self, fits: loca.ManyFits):
    ...         print(len(fits), fits.name)
    ...         return super().solve(fits)
    >>> data = loca.planted_communities(
    ...     users=60, items=30, groups=5, history=12, shortest_history=10
    ... ).interactions
    >>> model = loca.Loca(
    ...     base=loca.EASE(),
    ...     communities=loca.Kernels(n=3),
    ...     combiner=loca.FixedShare(0.3),
    ...     engine=Announced(),
    ... )
    >>> model = model.fit(data)
    3 local models
    """

    models: list[Recommender]
    data: TrainingData
    weights_of: Callable[[int], UserWeights]
    name: str
    global_model: Recommender | None = None
    centre: Recommender | None = None
    shared_epochs: int = 0
    present: LocalModels | None = None
    epochs: int = 0

    def __len__(self) -> int:
        return len(self.models)

    @property
    def base(self) -> Recommender:
        """The first of the copies."""
        return self.models[0]

    @property
    def learner(self) -> LearnsByEpoch:
        """The first of the copies, as a model that learns by epoch; others are refused."""
        return as_learning_by_epoch(self.base)

    @property
    def moments(self) -> csr_array | None:
        """The moments of the data's entries; None where the models learn from sets."""
        return self.data.moments if self.base.uses_order else None

    @property
    def n_items(self) -> int:
        """How many items they learn."""
        return int(self.data.matrix.shape[1])


@dataclass(frozen=True, kw_only=True)
class Engine(Strategy, ABC):
    """Train many models of one kind; a subclass says how they learn by epoch, or are solved.

    Examples
    --------
    >>> [engine.suits(loca.MultVAE(), n_items=1000) for engine in (loca.Stacked, loca.Differences)]
    [True, False]
    """

    is_divisible: ClassVar[bool] = True  # some of the models can be trained apart from the others
    has_centre: ClassVar[bool] = False  # `prepared` sets `fits.centre`

    @classmethod
    def suits(cls, base: Recommender, n_items: int) -> bool:
        """Return whether it is the better way for copies of a model, where nobody chose one."""
        return False

    def check_base(self, base: Recommender) -> None:
        """Refuse a model that it cannot train."""

    def prepared(self, fits: ManyFits) -> ManyFits:
        """Return the fits with their centre, which is made once, before shards divide them."""
        return fits

    def train(self, fits: ManyFits, validate: Validator | None = None) -> LocalModels:
        """Return the fitted models; `validate` scores all together, for early stopping."""
        fits = self.prepared(fits)
        if not fits.base.learns_by_epoch:
            return self.solve(fits)
        trainers, models = self.begin(fits)
        schedule = fits.learner
        data = fits.data
        best = train_epochs(
            trainers,
            schedule,
            fits.name,
            None if validate is None else lambda: validate(models),
            data.context,
            fits.shared_epochs,
        )
        if best.epoch:
            say(
                f"{fits.name}: best blended validation {data.metric.label} {best.score:.4f} "
                f"after {best.epoch} epochs"
            )
        return self.finish(models, best.epoch or schedule.epochs)

    def begin(self, fits: ManyFits) -> tuple[Sequence[Trainer], LocalModels]:
        """Return the trainers of models that learn by epoch, and the models as they change."""
        raise self._refusal(fits.base, "learns by epoch")

    def solve(self, fits: ManyFits) -> LocalModels:
        """Return the fitted models that do not learn by epoch."""
        raise self._refusal(fits.base, "does not learn by epoch")

    def _refusal(self, base: Recommender, property_of_base: str) -> ConfigError:
        engine, model = type(self).__name__, type(base).__name__
        return ConfigError(
            f"engine: {engine} cannot train {model}, which {property_of_base}; leave the engine out"
        )

    def finish(self, models: LocalModels, epochs: int) -> LocalModels:
        """Return what answers when training is over."""
        models.epochs_ = epochs
        return models

    @abstractmethod
    def memory(
        self,
        base: Recommender,
        n: int,
        size: DataSize,
        name: str,
        global_model: Recommender | None = None,
    ) -> dict[str, MemoryUse]:
        """Estimate the memory of each step of training `n` copies of a model."""


def is_engine(value: object) -> bool:
    """Return whether a parameter is an engine."""
    return isinstance(value, Engine)


class Executor(Protocol):
    """Trains many models elsewhere, such as in the shards of a cluster."""

    def train(
        self, fits: ManyFits, engine: Engine, validate: Validator | None = None
    ) -> LocalModels:
        """Return the fitted models, with the scores of `engine.train`."""


def train(fits: ManyFits, engine: Engine, validate: Validator | None = None) -> LocalModels:
    """Return the models of many fits, trained by an engine here or by the fit's executor."""
    engine.check_base(fits.base)
    executor: Executor | None = fits.data.context.executor
    if executor is None:
        return engine.train(fits, validate)
    if fits.present is not None:
        raise ConfigError(
            "executor: an update cannot be spread over shards; leave the executor out"
        )
    if not engine.is_divisible:
        name = type(engine).__name__
        raise ConfigError(f"executor: {name} cannot be spread over shards; leave the executor out")
    return executor.train(fits, engine, validate)


def copies_of(base: Recommender, n: int, seed: int, name: str) -> list[Recommender]:
    """Return unfitted copies of a model, each with a seed of its own where the model has one."""
    plan_memory(f"{n:,} models", _BYTES_UNFITTED * n, ADVICE)
    if "seed" not in get_params(base):
        return [clone(base) for _ in range(n)]
    return [clone(base, seed=derive_seed(seed, name, number)) for number in range(n)]


def warm_copies(
    base: Recommender, present: LocalModels, seed: int, name: str, data: TrainingData, epochs: int
) -> list[Recommender]:
    """Return copies that go on from fitted models; networks do so for some more epochs."""
    if base.learns_by_epoch:
        learner = as_learning_by_epoch(base)
        base = learner.warm_started(data, epochs, present.epochs_ or learner.epochs)
        name = f"{name} after {data.matrix.nnz}"
    return copies_of(base, len(present), seed, name)


def scaled_weights(weights: UserWeights, total: float) -> FloatArray:
    """Return weights that sum to `total`, so that regularisation means the same in every model."""
    if not weights.any():
        problem = "a community has no user with a weight above 0"
        raise DataError(f"{problem}; give more users a weight, or widen train_bandwidth")
    return np.asarray(weights * (total / weights.sum(dtype=np.float64)), dtype=np.float32)
