"""How many networks are trained at once: what a device has memory for."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from loca.local.engines.stacked.products import padded
from loca.memory import readable_bytes
from loca.models.autoencoder import Autoencoder
from loca.models.devices import free_bytes
from loca.typing import Precision

# A share of what is free stays free: for the ranking of validation users, and for what others take
# meanwhile.
_SHARE_OF_FREE_MEMORY = 0.85
_SHARE_FOR_STEPS = 0.2
# More networks at once save nothing on a GPU; on a CPU one after the other stays in the caches.
_MOST_AT_ONCE = 100
# Weights, Adam's two averages, and the copy of the best epoch.
_LASTING_COPIES = 4


@dataclass(frozen=True)
class StackPlan:
    """How many networks are in a stack, how many of these at once, and how many users of each.

    Where one stack does not hold all networks, each stack waits in main memory while another one is
    trained.
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

    def description(self) -> str:
        """Return a line for the log."""
        stacks = "1 stack" if self.stacks == 1 else f"{self.stacks} stacks"
        line = (
            f"stacked engine: {self.networks} networks in {stacks} of {self.stack_size} on "
            f"{self.device}, {self.at_once} at once, {self.users} users each a step: "
            f"{readable_bytes(self.device_bytes)} of its memory"
        )
        if not self.parked_bytes:
            return line
        return f"{line}, {readable_bytes(self.parked_bytes)} parked in main memory"


def plan_stacks(
    network: Autoencoder,
    batch_size: int,
    *,
    networks: int,
    users: int,
    device: torch.device,
    precision: Precision = "float32",
    dense: bool = False,
) -> StackPlan:
    """Return the plan for `networks` like one, which may lie on the meta device.

    Each is trained on `users` users an epoch. `dense` says that histories are multiplied as dense
    arrays.
    """
    available = free_bytes(device)
    users_at_once = min(batch_size, users)
    lasting = 4 * _LASTING_COPIES * sum(weight.numel() for weight in network.parameters())
    passing = _bytes_of_step(network, users_at_once, device, precision, dense)
    at_once = 1
    stack_size = networks
    if device.type == "cuda":
        n_fitting = int(_SHARE_FOR_STEPS * available) // passing
        at_once = max(1, min(_MOST_AT_ONCE, networks, n_fitting))
        for_weights = int(_SHARE_OF_FREE_MEMORY * available) - at_once * passing
        stack_size = max(1, min(networks, for_weights // lasting))
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


def _bytes_of_step(
    network: Autoencoder, n_users: int, device: torch.device, precision: Precision, dense: bool
) -> int:
    """Return what a step of one network takes: logits, factors, gradients, codes and draws."""
    n_items, last_width = network.output_table.shape
    first_width = network.input_table.shape[1]
    bytes_per_value = 2 if precision == "bfloat16" and device.type == "cuda" else 4
    logits = bytes_per_value * n_users * padded(n_items)
    tables = (bytes_per_value + 4) * padded(n_items) * last_width
    if device.type == "cpu":
        # The softmax makes a second array there, and the input table's gradient is a dense one.
        logits *= 2
        tables += 4 * n_items * first_width
    elif dense:
        # After the logits the inputs are laid out like them, and the input table's gradient is a
        # dense one.
        tables += 4 * padded(n_items) * first_width
    codes_and_draws = n_users * (16 * first_width + 40 * network.latent)
    return logits + tables + codes_and_draws
