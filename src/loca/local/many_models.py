"""What trains many models: an executor may do it elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

from loca.data.splits import HeldOut
from loca.errors import ConfigError, check_arguments
from loca.evaluation.metrics import DEFAULT_METRIC, Metric
from loca.local.engines import engine_for
from loca.local.engines.engine import Engine
from loca.models.recommender import Recommender, UserWeights
from loca.persistence.fit_context import NO_CONTEXT, Callback, FitContext


def is_engine(value: object) -> bool:
    """Return whether a parameter is an engine, or None."""
    return value is None or isinstance(value, Engine)


class ManyModels(Recommender):
    """A recommender that trains many copies of a base, here or in shards."""

    base: Recommender
    engine: Engine | None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.engine is not None:
            self.engine.check_base(self.base)

    def engine_of(self, n_items: int) -> Engine:
        """Return the engine that trains the copies: the one that was chosen, or what suits them."""
        return self.engine or engine_for(self.base, n_items)

    @property
    def size(self) -> int:
        """How many copies are trained, at most."""
        raise ConfigError(f"{type(self).__name__}: the number of its models is not known")

    @check_arguments
    def fit(
        self,
        train: Any,
        *,
        user_weights: UserWeights | None = None,
        validation: HeldOut | None = None,
        metric: Metric | str = DEFAULT_METRIC,
        device: str = "auto",
        callbacks: Sequence[Callback] = (),
        context: FitContext = NO_CONTEXT,
        executor: Any = None,
    ) -> Self:
        """Learn from the training data; what an earlier fit learned is forgotten.

        Parameters
        ----------
        train, user_weights, validation, metric, device, callbacks, context
            As for any model.
        executor : ShardExecutor or RayExecutor, optional
            Trains the copies in shards, with the numbers of this machine. None trains them here.

        Returns
        -------
        Self
            The model itself.
        """
        if executor is not None:
            context = replace(context, executor=executor)
        return super().fit(
            train,
            user_weights=user_weights,
            validation=validation,
            metric=metric,
            device=device,
            callbacks=callbacks,
            context=context,
        )
