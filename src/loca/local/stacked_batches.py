"""The users whom each network of a stack is shown in an epoch, step by step, read from one matrix on the device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from loca.local.stacked_arithmetic import Entries, sums_between
from loca.models.autoencoder import SparseRows
from loca.models.draws import streams_at, uniform_at
from loca.models.lessons import Lesson, unit_rows_of
from loca.models.training import Learning


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
    lesson: Lesson
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
            shown, values = self.lesson.shown_and_asked(values, within, self._cuts(prefix_streams)[owner])
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

    def __init__(self, learning: Sequence[Learning]) -> None:
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
