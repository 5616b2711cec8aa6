"""The paper's early stopping: each network by itself, on the users of its own community."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from loca.errors import ConfigError
from loca.local.engines.engine import Engine, ManyFits, Validator, is_engine
from loca.local.engines.stacked.engine import Stacked
from loca.local.local_models import LocalModels
from loca.memory import DataSize, MemoryUse
from loca.models.early_stopping import BestWeights, Trainer, load_trainers
from loca.models.params import param
from loca.models.protocols import as_learning_by_epoch
from loca.models.recommender import Recommender, fitted
from loca.progress import bar

if TYPE_CHECKING:
    from loca.models.autoencoder import Network


@dataclass(frozen=True, kw_only=True)
class StopEach(Engine):
    """Stop each network at the best epoch of the validation users whom its community answers for.

    A network without such users runs all its epochs. The number of epochs for a refit is the
    median.

    Parameters
    ----------
    engine : Engine, default Stacked()
        How the networks are trained.
    """

    is_divisible: ClassVar[bool] = False

    engine: Engine = param(Stacked(), "an engine such as Stacked()", is_engine)

    def check_base(self, base: Recommender) -> None:
        """Refuse a model that the engine cannot train, or that learns by no epochs."""
        self.engine.check_base(base)
        if not base.learns_by_epoch:
            name = type(base).__name__
            raise ConfigError(f"engine: StopEach is for networks, found {name}; leave it out")

    def train(self, fits: ManyFits, validate: Validator | None = None) -> LocalModels:
        """Return the fitted networks; without validation all epochs are run."""
        if validate is None:
            return self.engine.train(fits)
        if not validate.judges_each:
            raise ConfigError("engine: StopEach is for the communities of a Loca; leave it out")
        trainers, models = self.begin(fits)
        epochs = _train_each(fits, trainers, models, validate)
        for model, epoch in zip(fits.models, epochs, strict=True):
            model.best_epoch_ = epoch
        return self.finish(models, int(np.median(epochs)))

    def begin(self, fits: ManyFits) -> tuple[Sequence[Trainer], LocalModels]:
        """Return the trainers of the engine, and the networks as they change."""
        return self.engine.begin(fits)

    def solve(self, fits: ManyFits) -> LocalModels:
        """Return what the engine makes of models that do not learn by epoch."""
        return self.engine.solve(fits)

    def finish(self, models: LocalModels, epochs: int) -> LocalModels:
        """Return what answers when training is over."""
        return self.engine.finish(models, epochs)

    def memory(
        self,
        base: Recommender,
        n: int,
        size: DataSize,
        name: str,
        global_model: Recommender | None = None,
    ) -> dict[str, MemoryUse]:
        """Estimate what the engine takes."""
        return self.engine.memory(base, n, size, name, global_model)


def _train_each(
    fits: ManyFits, trainers: Sequence[Trainer], models: LocalModels, validation: Validator
) -> list[int]:
    """Train each network to the best epoch of its own users, and return these epochs.

    The bar counts the networks that have stopped.
    """
    schedule = fits.learner
    checkpoint = fits.data.context.checkpoint
    networks = [fitted(as_learning_by_epoch(model).network_, model) for model in fits.models]
    best = [BestWeights() for _ in networks]
    done, active = 0, set(range(len(networks)))
    state = checkpoint.load(fits.name)
    if state is not None:
        done, active = state["epoch"], set(state["active"])
        for number, weights in enumerate(best):
            weights.load_state_dict(state["best"][number], [networks[number]])
        stopped_before = [network for k, network in enumerate(networks) if k not in active]
        trainers = _without(trainers, stopped_before)
        load_trainers(trainers, state["trainers"])
    del state  # makes room
    with bar(fits.name, len(networks)) as progress:
        progress.advance(len(networks) - len(active))
        for epoch in range(done + 1, schedule.epochs + 1):
            if not active:
                break
            loss = float(np.mean([trainer.run_epoch() for trainer in trainers]))
            progress.advance(0, note=f"epoch {epoch}, loss {loss:.2f}, {len(active)} still learn")
            if epoch % schedule.evaluate_every == 0 or epoch == schedule.epochs:
                for number, score in validation.mean_value_of_each(models, active).items():
                    best[number].update(epoch, score, [networks[number]])
                stopped = {k for k in active if best[k].is_final(epoch, schedule.patience)}
                active -= stopped
                progress.advance(len(stopped))
                trainers = _without(trainers, [networks[number] for number in stopped])
            if checkpoint.due():
                checkpoint.save(
                    fits.name,
                    {
                        "epoch": epoch,
                        "active": sorted(active),
                        "trainers": [trainer.state_dict() for trainer in trainers],
                        "best": [weights.state_dict() for weights in best],
                    },
                )
    for weights, network in zip(best, networks, strict=True):
        weights.restore_best([network])
    return [weights.epoch or schedule.epochs for weights in best]


def _without(trainers: Sequence[Trainer], stopped: Sequence[Network]) -> list[Trainer]:
    """Return the trainers that are left when some networks have stopped."""
    left: list[Trainer] = []
    for trainer in trainers:
        leaving = [network for network in trainer.networks if network in stopped]
        if len(leaving) == len(trainer.networks):
            continue
        if leaving:
            trainer.remove(leaving)
        left.append(trainer)
    return left
