"""How many networks fit side by side, and how many go through a step at once, before anything is allocated."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from loca.local.stacked.ops import PrecisionName, padded
from loca.memory import readable_bytes
from loca.models.autoencoder import Autoencoder
from loca.models.devices import free_bytes
from loca.models.training import LearningPlan

# A share of what is free stays free: for the ranking of validation users, and for what others take meanwhile.
_SHARE_OF_FREE_MEMORY = 0.85
# More networks at once save nothing on a GPU; on a CPU one after the other stays in the caches.
_MOST_AT_ONCE = 100
_SHARE_FOR_STEPS = 0.2


@dataclass(frozen=True)
class StackPlan:
    """How `networks` learn on a device: so many in a stack, so many of those at once, so many users of each a step.

    Where one stack does not hold all of them, each stack waits in main memory while another one learns.
    """

    networks: int
    stack_size: int
    at_once: int
    users: int
    device: str
    device_bytes: int
    parked_bytes: int

    @property
    def stacks(self) -> int:
        """How many stacks there are."""
        return -(-self.networks // self.stack_size)

    def __str__(self) -> str:
        parked = f", {readable_bytes(self.parked_bytes)} parked in main memory" if self.parked_bytes else ""
        return (
            f"stacked engine: {self.networks} networks in {self.stacks} stack{'s' * (self.stacks > 1)} of "
            f"{self.stack_size} on {self.device}, {self.at_once} at once, {self.users} users each a step: "
            f"{readable_bytes(self.device_bytes)} of its memory{parked}"
        )


def plan_stacks(
    network: Autoencoder,
    plan: LearningPlan,
    *,
    networks: int,
    users: int,
    device: torch.device,
    precision: PrecisionName = "float32",
    dense: bool = False,
    free: int | None = None,
) -> StackPlan:
    """The plan for `networks` like this one (which may lie on the meta device), each shown `users` users an epoch.

    `dense` says that histories are multiplied as dense arrays.
    """
    available = free_bytes(device) if free is None else free
    lasting = bytes_while_learning(network)
    users_at_once = min(plan.batch_size, users)
    passing = bytes_of_a_step(network, users_at_once, device, precision, dense=dense)
    at_once = 1
    if device.type == "cuda":
        at_once = max(1, min(_MOST_AT_ONCE, networks, int(_SHARE_FOR_STEPS * available) // passing))
    room = int(_SHARE_OF_FREE_MEMORY * available) - at_once * passing
    stack_size = networks if device.type == "cpu" else max(1, min(networks, room // lasting))
    at_once = min(at_once, stack_size)
    return StackPlan(
        networks=networks,
        stack_size=stack_size,
        at_once=at_once,
        users=users_at_once,
        device=str(device),
        device_bytes=stack_size * lasting + at_once * passing,
        parked_bytes=networks * lasting if stack_size < networks else 0,
    )


def bytes_while_learning(network: Autoencoder) -> int:
    """What a network takes while it learns: its weights, Adam's two moments, and the copy of the best epoch."""
    return 4 * 4 * sum(weight.numel() for weight in network.parameters())


def bytes_of_a_step(
    network: Autoencoder, users: int, device: torch.device, precision: PrecisionName, *, dense: bool = False
) -> int:
    """What a network takes during a step: logits, factors, gradients, codes and draws."""
    items, last = network.output_table.shape
    first = network.input_table.shape[1]
    number = 2 if precision == "bfloat16" and device.type == "cuda" else 4
    logits = number * users * padded(items)
    tables = (number + 4) * padded(items) * last
    if device.type == "cpu":
        # The softmax makes a second array there, and the input table's gradient is a dense one.
        logits, tables = 2 * logits, tables + 4 * items * first
    elif dense:
        # After the logits the inputs are laid out like them, and the input table's gradient is a dense one.
        tables += 4 * padded(items) * first
    return logits + tables + users * (16 * first + 40 * network.latent)
