"""The stacked engine: many networks of one shape as one batched network, each with its own users, weights and draws."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from loca.local.engines.stacked import ops
from loca.local.engines.stacked.ops import Entries, Moments
from loca.local.engines.stacked.precision import Precision
from loca.memory import readable_bytes
from loca.models.autoencoder import Autoencoder, Network, divergence
from loca.models.counter_rng import normal_at, streams_at, uniform_at
from loca.models.devices import SparseRows, free_bytes, unit_rows_of
from loca.models.early_stopping import to_arrays
from loca.models.network_base import SingleTrainer
from loca.models.training import AutoencoderModel
from loca.progress import say

# A share of what is free stays free: for the ranking of validation users, and for what others take meanwhile.
_SHARE_OF_FREE_MEMORY = 0.85
# More networks at once save nothing on a GPU; on a CPU one after the other stays in the caches.
_MOST_AT_ONCE = 100
_SHARE_FOR_STEPS = 0.2
# Weights whose gradients are written by hand; automatic differentiation finds those of the small ones between them.
_LARGE = ("input_table", "output_table", "output_bias")


@dataclass(frozen=True)
class StackPlan:
    """How `networks` are trained on a device: so many in a stack, so many of those at once, so many users of each.

    Where one stack does not hold all of them, each stack waits in main memory while another one is trained.
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
        parked = (
            f", {readable_bytes(self.parked_bytes)} parked in main memory"
            if self.parked_bytes
            else ""
        )
        return (
            f"stacked engine: {self.networks} networks in {self.stacks} stack{'s' * (self.stacks > 1)} of "
            f"{self.stack_size} on {self.device}, {self.at_once} at once, {self.users} users each a step: "
            f"{readable_bytes(self.device_bytes)} of its memory{parked}"
        )


def plan_stacks(
    network: Autoencoder,
    batch_size: int,
    *,
    networks: int,
    users: int,
    device: torch.device,
    precision: Precision = "float32",
    dense: bool = False,
    free: int | None = None,
) -> StackPlan:
    """The plan for `networks` like this one (which may lie on the meta device), each trained on `users` users an epoch.

    `dense` says that histories are multiplied as dense arrays.
    """
    available = free_bytes(device) if free is None else free
    # What lasts: weights, Adam's two moments, and the copy of the best epoch.
    lasting = 4 * 4 * sum(weight.numel() for weight in network.parameters())
    # What a step takes: logits, factors, gradients, codes and draws.
    users_at_once = min(batch_size, users)
    items, last = network.output_table.shape
    first = network.input_table.shape[1]
    number = 2 if precision == "bfloat16" and device.type == "cuda" else 4
    logits = number * users_at_once * ops.padded(items)
    tables = (number + 4) * ops.padded(items) * last
    if device.type == "cpu":
        # The softmax makes a second array there, and the input table's gradient is a dense one.
        logits, tables = 2 * logits, tables + 4 * items * first
    elif dense:
        # After the logits the inputs are laid out like them, and the input table's gradient is a dense one.
        tables += 4 * ops.padded(items) * first
    passing = logits + tables + users_at_once * (16 * first + 40 * network.latent)
    at_once, stack_size = 1, networks
    if device.type == "cuda":
        at_once = max(1, min(_MOST_AT_ONCE, networks, int(_SHARE_FOR_STEPS * available) // passing))
        room = int(_SHARE_OF_FREE_MEMORY * available) - at_once * passing
        stack_size = max(1, min(networks, room // lasting))
        at_once = min(at_once, stack_size)
    needed, parked = (
        stack_size * lasting + at_once * passing,
        networks * lasting if stack_size < networks else 0,
    )
    return StackPlan(networks, stack_size, at_once, users_at_once, str(device), needed, parked)


class StackedTrainer:
    """Many networks being trained as one; `run_epoch` visits every network's own users once.

    Takes the trainer of each network as the reference engine would run it, with its own order, dropout and noise, so
    that both engines draw the same numbers; the weights of the networks become views into the stack.

    Parameters
    ----------
    trainers : sequence of SingleTrainer
        One for each network; they share one matrix and differ in seeds and user weights.
    precision : {"float32", "bfloat16"}
        Of the factors of large products; sums and weights have 32 bits.
    at_once : int
        So many networks go through a step together, and have logits at the same time.
    parked : bool
        Whether the stack waits in main memory between its epochs, so that another one can have the device.
    """

    def __init__(
        self,
        trainers: Sequence[SingleTrainer[AutoencoderModel, Autoencoder]],
        *,
        precision: Precision = "float32",
        at_once: int = 1,
        parked: bool = False,
    ) -> None:
        # Networks with more users first: those that still have users to visit are then always the first of the stack.
        self._trainers = sorted(trainers, key=lambda one: -len(one.support))
        first = self._trainers[0]
        self._model, self._device, self._shape = first.model, first.device, first.network
        self._precision: Precision = precision
        self._at_once, self._parked = at_once, parked
        self._dense = ops.multiplies_densely(first.matrix, first.device, precision)
        matrix = first.matrix if first.model.uses_order else first.matrix.sorted_indices()
        self._histories = SparseRows.of(
            matrix, self._device, first.moments
        )  # of all users of the matrix, not scaled
        self._unit_values = (
            self._histories.unit_values()
        )  # of the same entries, each user's row scaled to length 1
        self._place_counts = self._histories.place_counts()  # (users of the matrix,)
        self._moments: dict[str, Moments] = {}
        for name, _ in first.network.named_parameters():
            stack = torch.stack(
                [one.network.get_parameter(name).detach() for one in self._trainers]
            )
            for one in self._trainers:  # each network's own copy is given up at once
                one.network.get_parameter(name).data = torch.empty(0, device=self._device)
            self._moments[name] = Moments(stack, torch.zeros_like(stack), torch.zeros_like(stack))
        self._waiting: dict[str, Moments] = {}
        self._gather_users()
        self._show_views()
        if parked:
            self._park()

    def _gather_users(self) -> None:
        """Bring the supports of all networks to the device, ops.padded to the longest."""
        self._counts = np.array([len(one.support) for one in self._trainers])
        supports = np.zeros((len(self._trainers), self._counts[0]), dtype=np.int64)
        for place, one in enumerate(self._trainers):
            supports[place, : len(one.support)] = one.support
        self._supports = torch.from_numpy(supports).to(self._device)
        self._gather_weights()
        streams = [
            (one.dropout_stream, one.prefix_stream, one.noise_stream) for one in self._trainers
        ]
        self._streams = torch.tensor(streams, device=self._device)

    def _gather_weights(self) -> None:
        """Bring what users weigh in this epoch to the device."""
        weights = np.zeros(tuple(self._supports.shape), dtype=np.float32)
        for place, one in enumerate(self._trainers):
            weights[place, : len(one.support)] = one.epoch_weights
        self._weights = torch.from_numpy(weights).to(self._device)
        self._are_shared = self._trainers[0].epoch <= self._trainers[0].shared_epochs

    def _show_views(self) -> None:
        """Make the networks' weights views into the stack."""
        for name, moments in self._moments.items():
            for place, one in enumerate(self._trainers):
                one.network.get_parameter(name).data = moments.weights[place]

    def _park(self) -> None:
        """Move weights and moments into main memory, where they have the same place every time."""
        for name, moments in self._moments.items():
            old = self._waiting.get(name)
            if old is None or old.weights.shape != moments.weights.shape:
                # Pinned memory: the device copies to and from it at its full speed.
                pinned = self._device.type == "cuda"
                old = Moments(
                    *(torch.empty(moments.weights.shape, pin_memory=pinned) for _ in moments)
                )
            for place, tensor in zip(old, moments, strict=True):
                place.copy_(tensor)
            self._waiting[name] = self._moments[name] = old
        self._show_views()

    @property
    def networks(self) -> list[Autoencoder]:
        """All networks of the stack."""
        return [one.network for one in self._trainers]

    @torch.no_grad()
    def run_epoch(self) -> float:
        """Give every network one epoch; returns the mean loss."""
        if self._parked:
            for name, moments in self._moments.items():
                self._moments[name] = Moments(
                    *(one.to(self._device, non_blocking=True, copy=True) for one in moments)
                )
            self._show_views()
        total = torch.zeros((), device=self._device)
        for batch in self._next_epoch():
            first = 0
            while first < len(batch.users):
                part = slice(first, min(first + self._at_once, len(batch.users)))
                try:
                    total += self._change_weights(batch.of(part), part)
                except torch.OutOfMemoryError:
                    # Nothing has been changed yet: memory is taken before weights are.
                    if self._at_once == 1:
                        raise
                    self._at_once = max(1, self._at_once // 2)
                    now = f"{self._at_once} networks at once from here on"
                    say(f"stacked engine: out of memory on {self._device}; {now}")
                    torch.cuda.empty_cache()
                    continue
                first = part.stop
            for one in self._trainers[: len(batch.users)]:
                one.step += 1
        if self._parked:
            self._park()
        return float(total) / len(self._trainers)

    def remove(self, networks: Iterable[Network]) -> None:
        """Take networks that have stopped out of the stack; their weights stay as they are."""
        gone = {id(network) for network in networks}
        stay = [place for place, one in enumerate(self._trainers) if id(one.network) not in gone]
        for network in self.networks:
            if id(network) in gone:
                for parameter in network.parameters():
                    parameter.data = parameter.data.clone()
        self._trainers = [self._trainers[place] for place in stay]
        for name, moments in self._moments.items():
            # One name after the other, so that only one of them exists twice.
            self._moments[name] = moments.of(torch.tensor(stay, device=moments.weights.device))
        self._gather_users()
        self._show_views()

    def state_dict(self) -> dict[str, Any]:
        """Return weights and moments of all networks, and the steps and epochs that each has taken."""
        moments = {name: to_arrays(each._asdict()) for name, each in self._moments.items()}
        return {
            "moments": moments,
            "steps": [trainer.step for trainer in self._trainers],
            "epochs": [trainer.epoch for trainer in self._trainers],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state of the same stack."""
        for name, moments in self._moments.items():
            for kind, tensor in moments._asdict().items():
                tensor.copy_(torch.tensor(state["moments"][name][kind]))
        progress = zip(self._trainers, state["steps"], state["epochs"], strict=True)
        for trainer, step, epoch in progress:
            trainer.step = step
            trainer.epoch = epoch
        self._gather_weights()

    def _next_epoch(self) -> Iterator[StackedBatch]:
        """The batches of the next epoch of every network, in the order that each of them draws for itself."""
        counts, size = torch.from_numpy(self._counts).to(self._device), self._model.batch_size
        longest = int(self._counts[0])
        batches = -(-longest // size)
        orders = np.zeros((len(self._trainers), batches * size), dtype=np.int64)
        for place, one in enumerate(self._trainers):
            one.epoch += 1
            orders[place, : self._counts[place]] = one.order()
        if self._are_shared != (self._trainers[0].epoch <= self._trainers[0].shared_epochs):
            self._gather_weights()
        # Every network's users, weights and history lengths in the order of this epoch, (networks, ops.padded users).
        order = torch.from_numpy(orders).to(self._device)
        real = torch.arange(order.shape[1], device=self._device) < counts[:, None]
        users, weights = self._supports.gather(1, order), self._weights.gather(1, order) * real
        lengths = self._histories.starts.diff()[users] * real
        all_stored = (
            lengths.view(len(counts), batches, size).sum(dim=2).tolist()
        )  # (networks, batches)
        steps = torch.tensor([one.step for one in self._trainers], device=self._device)
        for batch in range(batches):
            start = batch * size
            active = int((self._counts > start).sum())
            sizes = (counts[:active] - start).clamp(max=size)
            own = (slice(0, active), slice(start, min(longest, start + size)))
            stored, scale = (
                [one[batch] for one in all_stored[:active]],
                weights[own] / sizes[:, None],
            )
            shares, now, streams = (
                sizes / counts[:active],
                steps[:active] + batch,
                self._streams[:active],
            )
            yield StackedBatch(users[own], lengths[own], stored, scale, shares, now, streams)

    def _change_weights(self, batch: StackedBatch, part: slice) -> Tensor:
        """A step of some of the networks, whose batch is given; gives their share of the epoch's loss."""
        moments = {name: whole.of(part) for name, whole in self._moments.items()}
        dropout_streams, prefix_streams, noise_streams = streams_at(
            batch.streams, batch.steps[:, None]
        ).unbind(dim=1)
        entries = self._entries(batch, dropout_streams, prefix_streams)
        inputs: ops.DenseInputs | ops.GatheredInputs
        inputs = (
            ops.DenseInputs(entries, self._precision)
            if self._dense
            else ops.GatheredInputs(entries)
        )
        codes = inputs.codes(moments["input_table"].weights)  # (networks, users, first width)
        leaves = {
            name: one.weights.detach().requires_grad_()
            for name, one in moments.items()
            if name not in _LARGE
        }
        codes.requires_grad_()
        with torch.enable_grad():
            hidden, divergences = self._middle(codes, leaves, batch.steps, noise_streams)
        decoded = ops.decode_and_differentiate(
            hidden.detach(), moments["output_table"].weights, moments["output_bias"].weights, entries, batch.scale,
            self._precision,
        )  # fmt: skip
        losses, outputs, slopes = decoded.losses, [hidden], [decoded.hidden]
        if divergences is not None:
            losses = losses + divergences.detach()
            outputs.append(divergences)
            slopes.append(batch.scale)
        torch.autograd.backward(outputs, slopes)
        gradients = {name: leaf.grad for name, leaf in leaves.items()}
        gradients |= {"output_table": decoded.table, "output_bias": decoded.bias}
        adam = ops.AdamStep(self._model, batch.steps)
        assert codes.grad is not None
        inputs.learn(adam, moments["input_table"], codes.grad)
        for name, gradient in gradients.items():
            assert gradient is not None
            adam.on_dense(moments[name], gradient)
        return (losses * batch.scale * batch.shares[:, None]).sum()

    def _entries(
        self, batch: StackedBatch, dropout_streams: Tensor, prefix_streams: Tensor
    ) -> Entries:
        """The stored entries of all users, with each network's own prefixes and dropout of this step."""
        device, total, histories = self._device, sum(batch.stored), self._histories
        users, dropout, lengths = batch.users.shape[1], self._model.dropout, batch.lengths.flatten()
        starts = F.pad(lengths.cumsum(0), (1, 0))
        owner = torch.repeat_interleave(
            torch.arange(len(lengths), device=device), lengths, output_size=total
        )
        first = histories.starts[batch.users.flatten()] - starts[:-1]
        counting = torch.arange(total, device=device)
        places = counting + first[owner]
        values, inputs = histories.values[places], self._unit_values[places]
        if self._model.uses_order:
            spec = self._model.target_spec
            within = (
                counting - starts[owner] if histories.moments is None else histories.moments[places]
            )
            draws = uniform_at(prefix_streams[:, None], torch.arange(2 * users, device=device))
            cuts = spec.cut(self._place_counts[batch.users].flatten(), draws.reshape(-1, 2))
            inputs, values = spec.inputs_and_targets(values, within, cuts[owner])
            inputs = unit_rows_of(inputs, owner, len(lengths))
        if dropout:
            network = owner // users
            within = (
                counting - starts[:-1:users][network]
            )  # place among the entries of its own network
            inputs = (
                inputs * (uniform_at(dropout_streams[network], within) >= dropout) / (1 - dropout)
            )
        amounts = ops.sums_between(starts, values)
        return Entries(
            owner, histories.columns[places], values, inputs, starts, amounts.view_as(batch.users)
        )

    def _middle(
        self, codes: Tensor, weights: dict[str, Tensor], steps: Tensor, noise_streams: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """From the sums of table rows to what the last layer takes, and the weighted divergences if there are any."""
        codes = codes + weights["input_bias"][:, None]
        if "code_weight" in weights:
            codes = torch.baddbmm(
                weights["code_bias"][:, None], torch.tanh(codes), weights["code_weight"]
            )
        divergences = None
        if self._shape.variational:
            latent, log_variance = (
                codes[..., : self._shape.latent],
                codes[..., self._shape.latent :],
            )
            if self._model.kl_weight:
                divergences = (
                    divergence(latent, log_variance) * self._model.kl_weights_at(steps)[:, None]
                )
            if self._model.noise:
                # Each network's own noise, that of the reference engine at the same step.
                places = torch.arange(latent[0].numel(), device=self._device)
                draws = normal_at(noise_streams[:, None], places).view_as(latent)
                latent = latent + self._model.noise * draws * torch.exp(0.5 * log_variance)
        else:
            latent = torch.tanh(codes)
        if "back_weight" in weights:
            latent = torch.tanh(
                torch.baddbmm(weights["back_bias"][:, None], latent, weights["back_weight"])
            )
        return latent, divergences


class StackedBatch(NamedTuple):
    """One batch of the networks that still have users to visit; shorter ones are ops.padded with users without history.

    All of it lies on the device: a step waits for nothing from the host.
    """

    users: Tensor  # (networks, users), rows of the matrix
    lengths: Tensor  # (networks, users), stored entries of each, 0 where ops.padded
    stored: list[int]  # stored entries of each network
    scale: Tensor  # (networks, users), weight / size of the batch, 0 where ops.padded
    shares: Tensor  # (networks,), size of the batch / users of the epoch
    steps: Tensor  # (networks,), steps taken before this one
    streams: Tensor  # (networks, 3), of dropout, prefixes and noise

    def of(self, part: slice) -> StackedBatch:
        """The batch of some of the networks."""
        fields: tuple[Any, ...] = self
        return StackedBatch(*(one[part] for one in fields))
