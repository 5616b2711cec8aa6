"""Networks of one shape, trained as one batched network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from loca.deferred import torch
from loca.errors import ConfigError
from loca.local.engines.engine import ADVICE, Engine, ManyFits
from loca.local.engines.loop import begin_training
from loca.local.local_models import LocalModels
from loca.memory import DataSize, MemoryUse, plan_memory
from loca.models.devices import free_bytes
from loca.models.early_stopping import Trainer
from loca.models.params import choice
from loca.models.recommender import Recommender
from loca.progress import say
from loca.typing import Precision, StoredPrecision

if TYPE_CHECKING:
    from loca.local.engines.stacked.networks import NetworksInTraining
    from loca.local.engines.stacked.plan import StackPlan
    from loca.local.engines.stacked.trainer import StackedTrainer
    from loca.models.autoencoder import Autoencoder
    from loca.models.network_base import SingleTrainer


@dataclass(frozen=True, kw_only=True)
class Stacked(Engine):
    """Train networks of one shape as one batched network.

    Where memory runs out the stacks become smaller; several stacks wait in main memory in turn.

    Parameters
    ----------
    precision : {"float32", "bfloat16"}, default "float32"
        `"bfloat16"` multiplies 16-bit numbers; sums and weights have 32 bits.
    stored : {"float32", "float16"}, default "float32"
        `"float16"` stores the weights of fitted networks in half the memory.

    Examples
    --------
    >>> model = loca.Loca(base=loca.MultVAE(), engine=loca.Stacked(precision="bfloat16"))
    >>> model.engine
    Stacked(precision='bfloat16', stored='float32')
    """

    precision: Precision = choice("float32", Precision)
    stored: StoredPrecision = choice("float32", StoredPrecision)

    @classmethod
    def suits(cls, base: Recommender, n_items: int) -> bool:
        """Return whether copies of a model can be trained as one."""
        return base.stackable

    def check_base(self, base: Recommender) -> None:
        """Refuse a model that is no network of the kind that can be stacked."""
        if not base.stackable:
            raise ConfigError(
                "engine: Stacked trains networks such as MultVAE and MultDAE, "
                f"found {type(base).__name__}; leave the engine out"
            )

    def begin(self, fits: ManyFits) -> tuple[Sequence[Trainer], LocalModels]:
        """Return the trainers of all stacks, and the networks as they change."""
        from loca.local.engines.stacked.networks import NetworksInTraining

        fits.learner.check_memory(fits.data.matrix, fits.data.device)
        first = begin_training(fits, 0)
        device = first.device
        plan = self._plan(fits, first)
        say(plan.description())
        if device.type == "cpu":
            plan_memory(f"{fits.name}: {len(fits)} models", plan.device_bytes, ADVICE)
        stacks, networks = self._stacks(fits, first, plan)
        return stacks, NetworksInTraining(networks, device, uses_tf32=self.precision == "bfloat16")

    def _plan(self, fits: ManyFits, first: SingleTrainer[Any, Any]) -> StackPlan:
        from loca.local.engines.stacked.inputs import multiplies_densely
        from loca.local.engines.stacked.plan import plan_stacks

        matrix = fits.data.matrix
        return plan_stacks(
            first.network,
            fits.learner.batch_size,
            networks=len(fits),
            users=matrix.shape[0] if len(fits) > 1 else max(1, len(first.support)),
            device=first.device,
            precision=self.precision,
            dense=multiplies_densely(matrix, first.device, self.precision),
        )

    def _stacks(
        self, fits: ManyFits, first: SingleTrainer[Any, Any], plan: StackPlan
    ) -> tuple[list[StackedTrainer], list[Autoencoder]]:
        """Return the stacks, and all networks by their numbers; the first has begun already."""
        from loca.local.engines.stacked.trainer import StackedTrainer

        stacks: list[StackedTrainer] = []
        networks: list[Autoencoder] = []
        begun = [first]
        stack_size = plan.stack_size
        at_once = plan.at_once
        while len(networks) < len(fits):
            numbers = range(len(networks), min(len(networks) + stack_size, len(fits)))
            try:
                trainers = begun + [
                    begin_training(fits, number) for number in numbers[len(begun) :]
                ]
                begun = []  # of a stack that cannot be built all begin again
                stack = StackedTrainer(
                    trainers,
                    precision=self.precision,
                    at_once=at_once,
                    parked=len(numbers) < len(fits),
                )
            except torch.OutOfMemoryError:
                if stack_size == 1:
                    raise
                stack_size = max(1, stack_size // 2)
                at_once = min(at_once, stack_size)
                trainers = []  # makes room
                say(f"stacked engine: out of memory; stacks of {stack_size} from here on")
            else:
                stacks.append(stack)
                networks += [trainer.network for trainer in trainers]
        return stacks, networks

    def finish(self, models: LocalModels, epochs: int) -> LocalModels:
        """Return the networks in memory of their own, in the precision in which they answer."""
        in_training = cast("NetworksInTraining", models)
        return super().finish(in_training.stored(self.stored), epochs)

    def memory(
        self,
        base: Recommender,
        n: int,
        size: DataSize,
        name: str,
        global_model: Recommender | None = None,
    ) -> dict[str, MemoryUse]:
        """Estimate all networks; stacks that do not fit on a device wait in main memory."""
        use = base.memory_bytes(size).times(n)
        on_device = use.device
        if on_device:
            on_device = min(on_device, free_bytes(torch.device(use.device_name)))
        folder = use.folder // 2 if self.stored == "float16" else use.folder
        return {name: replace(use, folder=folder, device=on_device)}
