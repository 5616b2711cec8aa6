"""One model after the other: the reference that other engines are tested against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from loca.local.engines.engine import ADVICE, Engine, ManyFits
from loca.local.local_models import LocalModels, SeparateModels
from loca.memory import DataSize, MemoryUse, plan_memory
from loca.models.early_stopping import Trainer
from loca.models.protocols import as_learning_by_epoch
from loca.models.recommender import Recommender, check_user_weights
from loca.persistence.learned import learned_bytes
from loca.progress import bar

if TYPE_CHECKING:
    from loca.models.network_base import SingleTrainer

# The weights themselves, Adam's two moments, and the copy of the best epoch.
_COPIES_WHILE_TRAINING = 4


@dataclass(frozen=True, kw_only=True)
class Loop(Engine):
    """Train one model after the other, and store each as it is.

    Networks take an epoch each in turn, so that one number of epochs can be chosen for all.

    Examples
    --------
    >>> loca.Ensemble(base=loca.MultVAE(), models=4, engine=loca.Loop()).engine
    Loop()
    """

    def begin(self, fits: ManyFits) -> tuple[Sequence[Trainer], LocalModels]:
        """Return a trainer for each model, and the models, whose networks are being trained."""
        fits.learner.check_memory(fits.data.matrix, fits.data.device)
        first = begin_training(fits, 0)
        if first.device.type == "cpu":
            size = sum(weight.numel() * 4 for weight in first.network.parameters())
            needed = size * _COPIES_WHILE_TRAINING * len(fits)
            plan_memory(f"{fits.name}: {len(fits)} models", needed, ADVICE)
        others = [begin_training(fits, number) for number in range(1, len(fits))]
        return [first, *others], SeparateModels.of(fits.models)

    def solve(self, fits: ManyFits) -> LocalModels:
        """Fit, or update, one model after the other."""
        fitted: list[Recommender] = []
        with bar(fits.name, len(fits)) as progress:
            for number in range(len(fits)):
                fitted.append(_fit(fits, number))
                progress.advance()
                if number == 0:
                    needed = learned_bytes(fitted[0]) * (len(fits) - 1)
                    plan_memory(f"{fits.name}: {len(fits)} models", needed, ADVICE)
        return SeparateModels.of(fitted)

    def memory(
        self,
        base: Recommender,
        n: int,
        size: DataSize,
        name: str,
        global_model: Recommender | None = None,
    ) -> dict[str, MemoryUse]:
        """Estimate so many models, fitted in turn or trained side by side."""
        return {name: base.memory_bytes(size).times(n)}


def begin_training(fits: ManyFits, number: int) -> SingleTrainer[Any, Any]:
    """Let one model hold a network, new or going on from the present one; return its trainer."""
    model = fits.models[number]
    network = None if fits.present is None else fits.present.network(number, model)
    trainer = as_learning_by_epoch(model).begin(
        fits.data.matrix, fits.weights_of(number), fits.moments, network, fits.data.device
    )
    if fits.shared_epochs:
        trainer.share_epochs(fits.shared_epochs, fits.data.user_weights)
    return trainer


def _fit(fits: ManyFits, number: int) -> Recommender:
    weights = check_user_weights(fits.weights_of(number), fits.data.matrix.shape[0])
    data = replace(fits.data, user_weights=weights, validation=None)
    if fits.present is not None:
        return fits.present.updated(number, data, fits.epochs)
    return data.fit_part(f"{fits.name} {number}", fits.models[number])
