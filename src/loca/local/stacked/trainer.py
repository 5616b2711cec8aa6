"""The stacked engine: many networks of one shape as one batched network, each with its own users, weights and draws."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from loca.local.stacked.ops import (
    AdamStep,
    DenseInputs,
    Entries,
    GatheredInputs,
    Inputs,
    Moments,
    PrecisionName,
    decode_and_differentiate,
    multiplies_densely,
    sums_between,
)
from loca.models.autoencoder import Autoencoder, SparseRows, divergence, unit_rows_of
from loca.models.counter_rng import normal_at, streams_at, uniform_at
from loca.models.early_stopping import Network
from loca.models.training import TargetSpec, Trainer
from loca.persistence.manifest import ModelState
from loca.progress import say

_TABLE = "input_table"


class StackedLearning:
    """Many networks being trained as one; `run_epoch` shows every network all of its own users once.

    Takes the learning of each network as the reference engine would run it, with its own order, dropout and noise, so
    that both engines draw the same numbers; the weights of the networks become views into the stack. `at_once`
    networks go through a step together, and have logits at the same time. A `parked` stack waits in main memory
    between its epochs, so that another one can have the device.
    """

    def __init__(
        self,
        learning: Sequence[Trainer],
        *,
        precision: PrecisionName = "float32",
        at_once: int = 1,
        parked: bool = False,
    ) -> None:
        # Networks with more users first: those that still have users to show are then always the first of the stack.
        self._learning = sorted(learning, key=lambda one: -len(one.support))
        first = self._learning[0]
        self._plan, self._device, self._shape = first.plan, first.device, first.network
        self._precision: PrecisionName = precision
        self._at_once = at_once
        self._dense = multiplies_densely(first.matrix, first.device, precision)
        names = [name for name, _ in first.network.named_parameters()]
        self._moments = {name: self._stack(name) for name in names}
        self._parked = parked
        self._waiting: dict[str, Moments] = {}
        self._lay_out()
        if parked:
            self._park()

    def _lay_out(self) -> None:
        """Puts on the device what a step needs to know of the networks that are in the stack now."""
        self._users = StackedUsers(self._learning)
        self._dropout_streams = torch.tensor([one.dropout_stream for one in self._learning], device=self._device)
        self._prefix_streams = torch.tensor([one.prefix_stream for one in self._learning], device=self._device)
        self._noise_streams = torch.tensor([one.noise_stream for one in self._learning], device=self._device)
        self._show_views()

    def _show_views(self) -> None:
        for name, moments in self._moments.items():
            for place, one in enumerate(self._learning):
                one.network.get_parameter(name).data = moments.weights[place]

    def _park(self) -> None:
        """Moves weights and moments into main memory, where they have the same place every time."""
        for name, moments in list(self._moments.items()):
            old = self._waiting.get(name)
            if old is None or old.weights.shape != moments.weights.shape:
                # Pinned memory: the device copies to and from it at its full speed.
                pinned = self._device.type == "cuda"
                old = Moments(*(torch.empty(moments.weights.shape, pin_memory=pinned) for _ in range(3)))
            for kind in ("weights", "means", "squares"):
                getattr(old, kind).copy_(getattr(moments, kind))
            self._waiting[name] = self._moments[name] = old
        self._show_views()

    def _fetch(self) -> None:
        """Moves weights and moments to the device."""
        for name, moments in list(self._moments.items()):
            kinds = (moments.weights, moments.means, moments.squares)
            self._moments[name] = Moments(*(one.to(self._device, non_blocking=True, copy=True) for one in kinds))
        self._show_views()

    def _stack(self, name: str) -> Moments:
        """The weights called `name` of all networks side by side; each network's own copy is given up at once."""
        stack = torch.stack([one.network.get_parameter(name).detach() for one in self._learning])
        for one in self._learning:
            one.network.get_parameter(name).data = torch.empty(0, device=self._device)
        return Moments(stack, torch.zeros_like(stack), torch.zeros_like(stack))

    @property
    def networks(self) -> list[Autoencoder]:
        """All networks of the stack."""
        return [one.network for one in self._learning]

    @torch.no_grad()
    def run_epoch(self) -> float:
        """Gives every network one epoch, and the mean loss."""
        if self._parked:
            self._fetch()
        total = torch.zeros((), device=self._device)
        for batch in self._users.next_epoch():
            self._take_step(batch, total)
        if self._parked:
            self._park()
        return float(total) / len(self._learning)

    def leave(self, networks: Iterable[Network]) -> None:
        """Takes networks that have stopped out of the stack; they keep their weights as they are."""
        gone = {id(network) for network in networks}
        stay = [place for place, one in enumerate(self._learning) if id(one.network) not in gone]
        for one in self._learning:
            if id(one.network) in gone:
                for parameter in one.network.parameters():
                    parameter.data = parameter.data.clone()
        self._learning = [self._learning[place] for place in stay]
        for name, moments in list(self._moments.items()):
            rows = torch.tensor(stay, device=moments.weights.device)
            # One name after the other, so that only one of them exists twice.
            self._moments[name] = Moments(moments.weights[rows], moments.means[rows], moments.squares[rows])
        self._lay_out()

    def state(self) -> ModelState:
        """Weights and moments of all networks, and the steps and epochs that each has taken."""
        arrays = {}
        for name, moments in self._moments.items():
            for kind in ("weights", "means", "squares"):
                arrays[f"{kind}/{name}"] = getattr(moments, kind).cpu().numpy()
        facts = {"steps": [one.step for one in self._learning], "epochs": [one.epoch for one in self._learning]}
        return ModelState(arrays, facts)

    def put_back(self, state: ModelState) -> None:
        """Goes on from a state of the same stack."""
        for name, moments in self._moments.items():
            for kind in ("weights", "means", "squares"):
                getattr(moments, kind).copy_(torch.from_numpy(state.arrays[f"{kind}/{name}"].copy()))
        for one, step, epoch in zip(self._learning, state.facts["steps"], state.facts["epochs"], strict=True):
            one.step, one.epoch = step, epoch

    def _take_step(self, batch: StackedBatch, total: Tensor) -> None:
        """One step of every network that has users in the batch; adds their share of the epoch's loss to `total`."""
        first = 0
        while first < batch.networks:
            last = min(first + self._at_once, batch.networks)
            try:
                total += self._change_weights(batch.part(first, last), first, last)
            except torch.OutOfMemoryError:
                # Nothing has been changed yet: memory is taken before weights are.
                if self._at_once == 1:
                    raise
                self._at_once = max(1, self._at_once // 2)
                say(f"stacked engine: out of memory on {self._device}; {self._at_once} networks at once from here on")
                torch.cuda.empty_cache()
                continue
            first = last
        for one in self._learning[: batch.networks]:
            one.step += 1

    def _change_weights(self, batch: StackedBatch, first: int, last: int) -> Tensor:
        """A step of the networks from `first` to before `last`; gives their share of the epoch's loss."""
        parts = {
            name: Moments(moments.weights[first:last], moments.means[first:last], moments.squares[first:last])
            for name, moments in self._moments.items()
        }
        entries = batch.entries(self._dropout_streams[first:last], self._prefix_streams[first:last], self._plan.dropout)
        inputs: Inputs = DenseInputs(entries, self._precision) if self._dense else GatheredInputs(entries)
        codes = inputs.codes(parts[_TABLE].weights)  # (networks, users, first width)
        leaves = {name: part.weights.detach().requires_grad_() for name, part in parts.items() if _is_small(name)}
        codes.requires_grad_()
        with torch.enable_grad():
            hidden, divergences = self._middle(codes, leaves, batch.steps, self._noise_streams[first:last])
        decoded = decode_and_differentiate(
            hidden.detach(), parts["output_table"].weights, parts["output_bias"].weights, entries, batch.scale,
            self._precision,
        )  # fmt: skip
        asked = [decoded.hidden] if divergences is None else [decoded.hidden, batch.scale]
        answers = [hidden] if divergences is None else [hidden, divergences]
        torch.autograd.backward(answers, asked)
        gradients = {name: leaf.grad for name, leaf in leaves.items()}
        gradients |= {"output_table": decoded.table, "output_bias": decoded.bias}
        adam = AdamStep(self._plan, batch.steps)
        assert codes.grad is not None
        inputs.learn(adam, parts[_TABLE], codes.grad)
        for name, gradient in gradients.items():
            assert gradient is not None
            adam.on_dense(parts[name], gradient)
        losses = decoded.losses if divergences is None else decoded.losses + divergences.detach()
        return (losses * batch.scale * batch.shares[:, None]).sum()

    def _middle(
        self, codes: Tensor, weights: dict[str, Tensor], steps: Tensor, noise_streams: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """From the sums of table rows to what the last layer takes, and the weighted divergences if there are any."""
        codes = codes + weights["input_bias"][:, None]
        if "code_weight" in weights:
            codes = torch.baddbmm(weights["code_bias"][:, None], torch.tanh(codes), weights["code_weight"])
        divergences = None
        if self._shape.variational:
            latent, log_variance = codes[..., : self._shape.latent], codes[..., self._shape.latent :]
            if self._plan.kl_weight:
                divergences = divergence(latent, log_variance) * self._plan.kl_weights_at(steps)[:, None]
            if self._plan.noise:
                # Each network's own noise, that of the reference engine at the same step.
                places = torch.arange(latent[0].numel(), device=self._device)
                draws = normal_at(streams_at(noise_streams, steps)[:, None], places).view_as(latent)
                latent = latent + self._plan.noise * draws * torch.exp(0.5 * log_variance)
        else:
            latent = torch.tanh(codes)
        if "back_weight" in weights:
            latent = torch.tanh(torch.baddbmm(weights["back_bias"][:, None], latent, weights["back_weight"]))
        return latent, divergences


def _is_small(name: str) -> bool:
    return name not in (_TABLE, "output_table", "output_bias")


@dataclass(frozen=True)
class StackedBatch:
    """One batch of the networks that still have users to show; shorter ones are padded with users without history.

    All of it lies on the device: a step waits for nothing from the host.
    """

    histories: SparseRows  # of all users of the matrix; its values are not scaled
    unit_values: Tensor  # of the same entries, each user's row scaled to length 1
    users: Tensor  # (networks, users), rows of the matrix
    lengths: Tensor  # (networks, users), stored entries of each, 0 where padded
    stored: list[int]  # stored entries of each network
    scale: Tensor  # (networks, users), weight / size of the batch, 0 where padded
    shares: Tensor  # (networks,), size of the batch / users of the epoch
    steps: Tensor  # (networks,), steps taken before this one
    lesson: TargetSpec
    place_counts: Tensor | None  # (users of the matrix,), moments of each; None where every entry is a place

    @property
    def networks(self) -> int:
        return len(self.users)

    def part(self, first: int, last: int) -> StackedBatch:
        """The batch of the networks from `first` to before `last`."""
        own = slice(first, last)
        return StackedBatch(
            self.histories, self.unit_values, self.users[own], self.lengths[own], self.stored[own],
            self.scale[own], self.shares[own], self.steps[own], self.lesson, self.place_counts,
        )  # fmt: skip

    def entries(self, dropout_streams: Tensor, prefix_streams: Tensor, dropout: float) -> Entries:
        """The stored entries of all users, with each network's own prefixes and dropout of this step."""
        device, total = self.users.device, sum(self.stored)
        lengths = self.lengths.flatten()
        starts = F.pad(lengths.cumsum(0), (1, 0))
        owner = torch.repeat_interleave(torch.arange(len(lengths), device=device), lengths, output_size=total)
        first = self.histories.starts[self.users.flatten()] - starts[:-1]
        counting = torch.arange(total, device=device)
        places = counting + first[owner]
        values, inputs = self.histories.values[places], self.unit_values[places]
        if self.lesson.ordered:
            moments = self.histories.moments
            within = counting - starts[owner] if moments is None else moments[places]
            shown, values = self.lesson.inputs_and_targets(values, within, self._cuts(prefix_streams)[owner])
            inputs = unit_rows_of(shown, owner, len(lengths))
        if dropout:
            users = self.users.shape[1]
            network = owner // users
            within = counting - starts[:-1:users][network]  # place among the entries of its own network
            draws = uniform_at(streams_at(dropout_streams, self.steps)[network], within)
            inputs = inputs * (draws >= dropout) / (1 - dropout)
        amounts = sums_between(starts, values)
        return Entries(owner, self.histories.columns[places], values, inputs, starts, amounts.view_as(self.users))

    def _cuts(self, streams: Tensor) -> Tensor:
        """Where each network cuts its users' histories in this step, networks one after the other."""
        places = torch.arange(2 * self.users.shape[1], device=self.users.device)
        draws = uniform_at(streams_at(streams, self.steps)[:, None], places)  # (networks, 2 · users)
        lengths = self.lengths if self.place_counts is None else self.place_counts[self.users]
        return self.lesson.cut(lengths.flatten(), draws.reshape(-1, 2))


class StackedUsers:
    """The supports of many networks on the device, padded to the longest, networks with more users first."""

    def __init__(self, learning: Sequence[Trainer]) -> None:
        first = learning[0]
        self._learning = learning
        self._batch_size, self._device = first.plan.batch_size, first.device
        self._counts = np.array([len(one.support) for one in learning])
        supports = np.zeros((len(learning), self._counts[0]), dtype=np.int64)
        weights = np.zeros(supports.shape, dtype=np.float32)
        for place, one in enumerate(learning):
            supports[place, : len(one.support)] = one.support
            weights[place, : len(one.support)] = one.weights
        self._supports = torch.from_numpy(supports).to(self._device)
        self._weights = torch.from_numpy(weights).to(self._device)
        self._lesson = first.plan.lesson
        matrix = first.matrix if self._lesson.ordered else first.matrix.sorted_indices()
        self._histories = SparseRows.of(matrix, self._device, first.moments)
        self._unit_values = self._histories.unit_values()
        self._place_counts = None if first.moments is None else self._histories.place_counts()

    def next_epoch(self) -> Iterator[StackedBatch]:
        """The batches of the next epoch of every network, in the order that each of them draws for itself."""
        counts, size = self._counts, self._batch_size
        batches = -(-int(counts[0]) // size)
        users, weights, lengths = self._in_new_order(batches * size)
        stored = lengths.view(len(counts), batches, size).sum(dim=2).tolist()  # (networks, batches)
        on_device = torch.from_numpy(counts).to(self._device)
        steps = torch.tensor([one.step for one in self._learning], device=self._device)
        for batch in range(batches):
            start = batch * size
            active = int((counts > start).sum())
            sizes = (on_device[:active] - start).clamp(max=size)
            own = (slice(0, active), slice(start, start + min(int(counts[0]) - start, size)))
            yield StackedBatch(
                histories=self._histories,
                unit_values=self._unit_values,
                users=users[own],
                lengths=lengths[own],
                stored=[one[batch] for one in stored[:active]],
                scale=weights[own] / sizes[:, None],
                shares=sizes / on_device[:active],
                steps=steps[:active] + batch,
                lesson=self._lesson,
                place_counts=self._place_counts,
            )

    def _in_new_order(self, width: int) -> tuple[Tensor, Tensor, Tensor]:
        """Every network's users, weights and history lengths in the order of its next epoch, (networks, width)."""
        orders = np.zeros((len(self._learning), width), dtype=np.int64)
        for place, one in enumerate(self._learning):
            orders[place, : self._counts[place]] = one.next_order()
        order = torch.from_numpy(orders).to(self._device)
        counts = torch.from_numpy(self._counts).to(self._device)
        real = torch.arange(width, device=self._device) < counts[:, None]
        users = self._supports.gather(1, order)
        row_lengths = self._histories.starts[1:] - self._histories.starts[:-1]
        return users, self._weights.gather(1, order) * real, row_lengths[users] * real
