"""Networks of one shape, trained as one batched network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from loca.deferred import torch
from loca.errors import ConfigError
from loca.local.engines.engine import ADVICE, ManyFits
from loca.local.engines.loop import Loop, begin_model
from loca.local.engines.stacked.precision import Precision, StoredPrecision
from loca.local.local_models import LocalModels
from loca.memory import DataSize, MemoryUse, plan_memory
from loca.models.devices import free_bytes
from loca.models.early_stopping import Trainer
from loca.models.params import choice
from loca.models.recommender import Recommender
from loca.progress import say


@dataclass(frozen=True, kw_only=True)
class Stacked(Loop):
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
        from loca.local.engines.stacked.inference import StackedNetworks
        from loca.local.engines.stacked.ops import multiplies_densely
        from loca.local.engines.stacked.trainer import plan_stacks

        matrix = fits.data.matrix
        fits.base.check_memory(matrix, fits.data.device)
        first = begin_model(fits, 0)
        plan = plan_stacks(
            first.network,
            fits.base.batch_size,
            networks=len(fits),
            users=matrix.shape[0] if len(fits) > 1 else max(1, len(first.support)),
            device=first.device,
            precision=self.precision,
            dense=multiplies_densely(matrix, first.device, self.precision),
        )
        say(str(plan))
        if first.device.type == "cpu":
            plan_memory(f"{fits.name}: {len(fits)} models", plan.device_bytes, ADVICE)
        stacks = self._stacks(fits, plan.stack_size, plan.at_once)
        models: list[Any] = fits.models
        networks = [model.network_ for model in models]
        is_quick = self.precision == "bfloat16"
        return stacks, StackedNetworks.of(networks, first.device, quick=is_quick)

    def _stacks(self, fits: ManyFits, stack_size: int, at_once: int) -> Sequence[Trainer]:
        from loca.local.engines.stacked.trainer import StackedTrainer

        stacks: list[StackedTrainer] = []
        first = 0
        while first < len(fits):
            numbers = range(first, min(first + stack_size, len(fits)))
            try:
                stack = StackedTrainer(
                    [begin_model(fits, number) for number in numbers],
                    precision=self.precision,
                    at_once=at_once,
                    parked=len(numbers) < len(fits),
                )
            except torch.OutOfMemoryError:
                if stack_size == 1:
                    raise
                stack_size = max(1, stack_size // 2)
                at_once = min(at_once, stack_size)
                say(f"stacked engine: out of memory; stacks of {stack_size} from here on")
            else:
                stacks.append(stack)
                first = numbers.stop
        return stacks

    def finish(self, models: Any, epochs: int) -> LocalModels:
        """Return the networks in memory of their own, in the precision in which they answer."""
        return super().finish(models.copied(self.stored), epochs)

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
