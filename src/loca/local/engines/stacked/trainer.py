"""Many networks of one shape, trained as one batched network.

Each has its own users, weights and draws.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from loca.local.engines.stacked import decoder_loss
from loca.local.engines.stacked.adam import AdamStep
from loca.local.engines.stacked.adam_state import AdamState, Gradient
from loca.local.engines.stacked.inputs import (
    DenseInputs,
    Entries,
    GatheredInputs,
    multiplies_densely,
    sums_between,
)
from loca.models.autoencoder import Autoencoder, Network, divergence
from loca.models.counter_rng import normal_at, streams_at, uniform_at
from loca.models.devices import SparseRows, unit_rows_of
from loca.models.early_stopping import to_arrays
from loca.models.network_base import SingleTrainer
from loca.models.training import AutoencoderModel
from loca.progress import say
from loca.typing import Precision

# Weights whose gradients are written by hand; automatic differentiation finds those of the small
# ones between them.
_LARGE = ("input_table", "output_table", "output_bias")


class StackedTrainer:
    """Many networks being trained as one; `run_epoch` visits every network's own users once.

    Takes the trainer of each network as the loop would run it, with its own order, dropout and
    noise, so that both engines draw the same numbers; the weights of the networks become views into
    the stack.

    Parameters
    ----------
    trainers : sequence of SingleTrainer
        One for each network; they share one matrix and differ in seeds and user weights.
    precision : {"float32", "bfloat16"}
        Of the factors of large products; sums and weights have 32 bits.
    at_once : int
        So many networks go through a step together, and have logits at the same time.
    parked : bool
        Whether the stack waits in main memory between its epochs, so that another one can have the
        device.
    """

    def __init__(
        self,
        trainers: Sequence[SingleTrainer[AutoencoderModel, Autoencoder]],
        *,
        precision: Precision = "float32",
        at_once: int = 1,
        parked: bool = False,
    ) -> None:
        # Networks with more users first: those that still have users to visit are then always the
        # first of the stack.
        self._trainers = sorted(trainers, key=lambda trainer: -len(trainer.support))
        first = self._trainers[0]
        self._model = first.model
        self._device = first.device
        self._shape = first.network
        self._precision: Precision = precision
        self._at_once = at_once
        self._parked = parked
        self._multiplies_densely = multiplies_densely(first.matrix, first.device, precision)
        matrix = first.matrix if first.model.uses_order else first.matrix.sorted_indices()
        # Of all users of the matrix: their entries as stored, and with rows scaled to length 1.
        self._histories = SparseRows.of(matrix, self._device, first.moments)
        self._unit_values = self._histories.unit_values()
        self._place_counts = self._histories.place_counts()  # (users of the matrix,)
        self._states = {name: self._stack(name) for name, _ in first.network.named_parameters()}
        self._parked_states: dict[str, AdamState] = {}
        self._gather_users()
        self._show_views()
        if parked:
            self._park()

    def _stack(self, name: str) -> AdamState:
        """Return the weights of one name of all networks, which give up their own copies."""
        parameters = [trainer.network.get_parameter(name) for trainer in self._trainers]
        stack = torch.stack([parameter.detach() for parameter in parameters])
        for parameter in parameters:
            parameter.data = torch.empty(0, device=self._device)
        return AdamState(stack, torch.zeros_like(stack), torch.zeros_like(stack))

    def _gather_users(self) -> None:
        """Bring the supports of all networks to the device, padded to the longest."""
        self._counts = np.array([len(trainer.support) for trainer in self._trainers])
        supports = np.zeros((len(self._trainers), self._counts[0]), dtype=np.int64)
        for row, trainer in zip(supports, self._trainers, strict=True):
            row[: len(trainer.support)] = trainer.support
        self._supports = torch.from_numpy(supports).to(self._device)
        self._gather_weights()
        streams = [
            (trainer.dropout_stream, trainer.prefix_stream, trainer.noise_stream)
            for trainer in self._trainers
        ]
        self._streams = torch.tensor(streams, device=self._device)

    def _gather_weights(self) -> None:
        """Bring the user weights of this epoch to the device."""
        weights = np.zeros(tuple(self._supports.shape), dtype=np.float32)
        for row, trainer in zip(weights, self._trainers, strict=True):
            row[: len(trainer.support)] = trainer.epoch_weights
        self._weights = torch.from_numpy(weights).to(self._device)
        self._are_shared = self._shares_epoch

    @property
    def _shares_epoch(self) -> bool:
        """Whether all networks learn with the same user weights in this epoch."""
        first = self._trainers[0]
        return first.epoch <= first.shared_epochs

    def _show_views(self) -> None:
        """Make the networks' weights views into the stack."""
        for name, state in self._states.items():
            for trainer, weights in zip(self._trainers, state.weights, strict=True):
                trainer.network.get_parameter(name).data = weights

    def _park(self) -> None:
        """Move all states into main memory, to the same addresses every time."""
        for name, state in self._states.items():
            parked = self._parked_states.get(name)
            if parked is None or parked.weights.shape != state.weights.shape:
                parked = self._room_for(state)
            for copy, tensor in zip(parked, state, strict=True):
                copy.copy_(tensor)
            self._parked_states[name] = parked
            self._states[name] = parked
        self._show_views()

    def _room_for(self, state: AdamState) -> AdamState:
        # Pinned memory: the device copies to and from it at its full speed.
        is_pinned = self._device.type == "cuda"
        return AdamState(*(torch.empty(tensor.shape, pin_memory=is_pinned) for tensor in state))

    def _unpark(self) -> None:
        for name, state in self._states.items():
            copies = (tensor.to(self._device, non_blocking=True, copy=True) for tensor in state)
            self._states[name] = AdamState(*copies)
        self._show_views()

    @property
    def networks(self) -> list[Autoencoder]:
        """All networks of the stack."""
        return [trainer.network for trainer in self._trainers]

    @torch.no_grad()
    def run_epoch(self) -> float:
        """Give every network one epoch, and return the mean loss."""
        if self._parked:
            self._unpark()
        total = torch.zeros((), device=self._device)
        for batch in self._next_epoch():
            for loss in self._learn_from(batch):
                total += loss
        if self._parked:
            self._park()
        return float(total) / len(self._trainers)

    def _learn_from(self, batch: StackedBatch) -> Iterator[Tensor]:
        """Let all networks of a batch take a step; yield the losses of those that go together."""
        n_networks = len(batch.users)
        start = 0
        while start < n_networks:
            part = slice(start, min(start + self._at_once, n_networks))
            try:
                gradients = self._gradients(batch.of(part), part)
            except torch.OutOfMemoryError:
                if self._at_once == 1:
                    raise
                self._halve_at_once()
                continue
            # Beyond this line no memory is taken, so that no network can take a step twice.
            for name in self._states:
                gradients.adam.apply(self._states[name].of(part), gradients.by_name[name])
            loss = gradients.loss
            del gradients  # makes room for the next
            yield loss
            start = part.stop
        for trainer in self._trainers[:n_networks]:
            trainer.step += 1

    def _halve_at_once(self) -> None:
        self._at_once = max(1, self._at_once // 2)
        now = f"{self._at_once} networks at once from here on"
        say(f"stacked engine: out of memory on {self._device}; {now}")
        torch.cuda.empty_cache()

    def remove(self, networks: Sequence[Network]) -> None:
        """Take some of the networks, not all, out of the stack; their weights stay as they are."""
        leaving = {id(network) for network in networks}
        is_staying = [id(network) not in leaving for network in self.networks]
        for network, stays in zip(self.networks, is_staying, strict=True):
            if not stays:
                for parameter in network.parameters():
                    parameter.data = parameter.data.clone()
        rows = np.flatnonzero(is_staying)
        self._trainers = [self._trainers[row] for row in rows]
        for name, state in self._states.items():
            # One name after the other, so that only one of them exists twice.
            self._states[name] = state.of(torch.from_numpy(rows).to(state.weights.device))
        self._gather_users()
        self._show_views()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of all networks, and the steps and epochs that each has taken."""
        return {
            "states": {name: to_arrays(state._asdict()) for name, state in self._states.items()},
            "steps": [trainer.step for trainer in self._trainers],
            "epochs": [trainer.epoch for trainer in self._trainers],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state of the same stack."""
        for name, adam_state in self._states.items():
            for field_name, tensor in adam_state._asdict().items():
                tensor.copy_(torch.tensor(state["states"][name][field_name]))
        progress = zip(self._trainers, state["steps"], state["epochs"], strict=True)
        for trainer, step, epoch in progress:
            trainer.step = step
            trainer.epoch = epoch
        self._gather_weights()

    def _next_epoch(self) -> Iterator[StackedBatch]:
        """Yield the batches of the next epoch of every network, in the order that it draws."""
        size = self._model.batch_size
        n_batches = -(-int(self._counts[0]) // size)
        order = self._next_order(n_batches * size)  # (networks, padded users)
        if self._are_shared != self._shares_epoch:
            self._gather_weights()
        counts = torch.from_numpy(self._counts).to(self._device)
        is_real = torch.arange(order.shape[1], device=self._device) < counts[:, None]
        # Every network's users, weights and history lengths in the order of this epoch.
        users = self._supports.gather(1, order)
        weights = self._weights.gather(1, order) * is_real
        lengths = self._histories.starts.diff()[users] * is_real
        entries = lengths.view(len(counts), n_batches, size).sum(dim=2).tolist()
        steps = torch.tensor([trainer.step for trainer in self._trainers], device=self._device)
        for number in range(n_batches):
            start = number * size
            n_active = int((self._counts > start).sum())
            stop = min(int(self._counts[0]), start + size)
            part = (slice(0, n_active), slice(start, stop))
            sizes = (counts[:n_active] - start).clamp(max=size)
            yield StackedBatch(
                users=users[part],
                lengths=lengths[part],
                entries=[of_network[number] for of_network in entries[:n_active]],
                scale=weights[part] / sizes[:, None],
                shares=sizes / counts[:n_active],
                steps=steps[:n_active] + number,
                streams=self._streams[:n_active],
            )

    def _next_order(self, n_columns: int) -> Tensor:
        """Begin an epoch, and return each network's order of its users, padded with 0."""
        orders = np.zeros((len(self._trainers), n_columns), dtype=np.int64)
        for row, trainer, count in zip(orders, self._trainers, self._counts, strict=True):
            trainer.epoch += 1
            row[:count] = trainer.order()
        return torch.from_numpy(orders).to(self._device)

    def _gradients(self, batch: StackedBatch, part: slice) -> Gradients:
        """Return what changes some of the networks, whose batch is given; nothing is changed yet.

        The gradients of large weights are written by hand, between them torch differentiates.
        """
        weights = {name: state.weights[part] for name, state in self._states.items()}
        streams = streams_at(batch.streams, batch.steps[:, None])
        dropout_streams, prefix_streams, noise_streams = streams.unbind(dim=1)
        entries = self._entries(batch, dropout_streams, prefix_streams)
        inputs: DenseInputs | GatheredInputs = GatheredInputs(entries)
        if self._multiplies_densely:
            inputs = DenseInputs(entries, self._precision)
        codes = inputs.codes(weights["input_table"])  # (networks, users, first width)
        codes.requires_grad_()
        leaves = {
            name: tensor.detach().requires_grad_()
            for name, tensor in weights.items()
            if name not in _LARGE
        }
        with torch.enable_grad():
            hidden, divergences = self._middle(codes, leaves, batch.steps, noise_streams)
        decoded = decoder_loss.decode_and_differentiate(
            hidden.detach(),
            weights["output_table"],
            weights["output_bias"],
            entries,
            batch.scale,
            self._precision,
        )
        losses = decoded.losses
        if divergences is None:
            torch.autograd.backward([hidden], [decoded.hidden])
        else:
            losses = losses + divergences.detach()
            torch.autograd.backward([hidden, divergences], [decoded.hidden, batch.scale])
        by_name: dict[str, Gradient] = {}
        for name, leaf in leaves.items():
            assert leaf.grad is not None
            by_name[name] = leaf.grad
        by_name["output_table"] = decoded.table
        by_name["output_bias"] = decoded.bias
        adam = AdamStep(self._model, batch.steps)
        loss = (losses * batch.scale * batch.shares[:, None]).sum()
        # Last, because the host waits for it: what follows are long kernels.
        assert codes.grad is not None
        n_items = weights["input_table"].shape[1]
        by_name["input_table"] = inputs.gradient(codes.grad, n_items)
        return Gradients(adam, by_name, loss)

    def _entries(
        self, batch: StackedBatch, dropout_streams: Tensor, prefix_streams: Tensor
    ) -> Entries:
        """Return the entries of all users, with each network's prefixes and dropout of the step."""
        n_users = batch.users.shape[1]
        lengths = batch.lengths.flatten()
        starts = F.pad(lengths.cumsum(0), (1, 0))
        users = torch.arange(len(lengths), device=self._device)
        n_entries = sum(batch.entries)
        owner = torch.repeat_interleave(users, lengths, output_size=n_entries)
        numbers = torch.arange(n_entries, device=self._device)
        shift = self._histories.starts[batch.users.flatten()] - starts[:-1]
        positions = numbers + shift[owner]  # in the entries of all users of the matrix
        values = self._histories.values[positions]
        inputs = self._unit_values[positions]
        if self._model.uses_order:
            places = self._places(positions, numbers - starts[owner])
            inputs, values = self._prefixes(batch, prefix_streams, values, places, owner)
        if self._model.dropout:
            network = owner // n_users
            of_network = numbers - starts[:-1:n_users][network]
            inputs = self._dropped(inputs, dropout_streams[network], of_network)
        return Entries(
            owner=owner,
            columns=self._histories.columns[positions],
            values=values,
            inputs=inputs,
            starts=starts,
            amounts=sums_between(starts, values).view_as(batch.users),
        )

    def _places(self, positions: Tensor, numbers_in_history: Tensor) -> Tensor:
        """Return the place of every entry in its history; those of one moment share a place."""
        moments = self._histories.moments
        return numbers_in_history if moments is None else moments[positions]

    def _prefixes(
        self,
        batch: StackedBatch,
        streams: Tensor,
        values: Tensor,
        places: Tensor,
        owner: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return inputs and targets: prefixes of the histories, and what follows them."""
        spec = self._model.target_spec
        n_users = batch.users.shape[1]
        positions = torch.arange(2 * n_users, device=self._device)
        draws = uniform_at(streams[:, None], positions)
        place_counts = self._place_counts[batch.users].flatten()
        cuts = spec.cut(place_counts, draws.reshape(-1, 2))
        inputs, targets = spec.inputs_and_targets(values, places, cuts[owner])
        return unit_rows_of(inputs, owner, len(place_counts)), targets

    def _dropped(self, inputs: Tensor, streams: Tensor, positions: Tensor) -> Tensor:
        """Return inputs of which some are dropped; what is left is scaled up."""
        dropout = self._model.dropout
        return inputs * (uniform_at(streams, positions) >= dropout) / (1 - dropout)

    def _middle(
        self, codes: Tensor, weights: dict[str, Tensor], steps: Tensor, noise_streams: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Return what the last layer takes, from sums of table rows, and weighted divergences."""
        codes = codes + weights["input_bias"][:, None]
        if "code_weight" in weights:
            codes = torch.baddbmm(
                weights["code_bias"][:, None], torch.tanh(codes), weights["code_weight"]
            )
        divergences = None
        if self._shape.variational:
            latent, divergences = self._sampled(codes, steps, noise_streams)
        else:
            latent = torch.tanh(codes)
        if "back_weight" in weights:
            hidden = torch.baddbmm(weights["back_bias"][:, None], latent, weights["back_weight"])
            latent = torch.tanh(hidden)
        return latent, divergences

    def _sampled(
        self, codes: Tensor, steps: Tensor, noise_streams: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Return means with each network's own noise, and divergences where they are weighted."""
        latent = codes[..., : self._shape.latent]
        log_variance = codes[..., self._shape.latent :]
        divergences = None
        if self._model.kl_weight:
            kl_weights = self._model.kl_weights_at(steps)[:, None]
            divergences = divergence(latent, log_variance) * kl_weights
        if self._model.noise:
            # The noise that the loop draws at the same step.
            positions = torch.arange(latent[0].numel(), device=self._device)
            draws = normal_at(noise_streams[:, None], positions).view_as(latent)
            latent = latent + self._model.noise * draws * torch.exp(0.5 * log_variance)
        return latent, divergences


class StackedBatch(NamedTuple):
    """One batch of the networks that still have users to visit.

    Shorter ones are padded with users without history. All of it lies on the device: a step waits
    for nothing from the host.
    """

    users: Tensor  # (networks, users), rows of the matrix
    lengths: Tensor  # (networks, users), entries of each, 0 where padded
    entries: list[int]  # how many entries each network has
    scale: Tensor  # (networks, users), weight / size of the batch, 0 where padded
    shares: Tensor  # (networks,), size of the batch / users of the epoch
    steps: Tensor  # (networks,), steps taken before this one
    streams: Tensor  # (networks, 3), of dropout, prefixes and noise

    def of(self, networks: slice) -> StackedBatch:
        """Return the batch of some of the networks."""
        fields: tuple[Any, ...] = self
        return StackedBatch(*(values[networks] for values in fields))


class Gradients(NamedTuple):
    """What changes the weights of some networks in one step, and their share of the loss."""

    adam: AdamStep
    by_name: dict[str, Gradient]
    loss: Tensor
