"""The two large sums of a step of stacked networks, loss with gradient and Adam: as Triton kernels or plain torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn import functional as F
from torch.optim.adam import adam

from loca.local.engines.stacked.precision import Precision
from loca.models.devices import has_kernels
from loca.models.training import AutoencoderModel

_BETAS = (0.9, 0.999)
_EPSILON = 1e-8
# Products of 16-bit numbers are fast where every row starts at a multiple of 16 bytes; a little more does no harm.
_PADDED_TO = 64


@dataclass(frozen=True)
class Entries:
    """The stored entries of some networks' batches: network · users + user, item, value, and the value after dropout.

    `amounts` is the sum of each user's values, (networks, users).
    """

    owner: Tensor  # (entries,)
    columns: Tensor
    values: Tensor
    inputs: Tensor
    starts: Tensor  # (networks · users + 1,)
    amounts: Tensor

    def sums_of(self, numbers: Tensor) -> Tensor:
        """The sum of each user's numbers, one given for every entry, (networks, users)."""
        return sums_between(self.starts, numbers).view_as(self.amounts)

    def keys(self, items: int) -> Tensor:
        """The row network · items + item of every entry in the networks' tables, laid one after the other."""
        return self.owner // self.amounts.shape[1] * items + self.columns


def padded(items: int) -> int:
    """The items, rounded up to where every row of so many numbers is aligned."""
    return -(-items // _PADDED_TO) * _PADDED_TO


def sums_between(starts: Tensor, numbers: Tensor) -> Tensor:
    """The sums of the numbers from each start to the next, always added in the same order."""
    return torch.segment_reduce(numbers, "sum", offsets=starts, initial=0)


class DecodedGradients(NamedTuple):
    """The multinomial loss of every user, (networks, users), and the gradients of their weighted sum."""

    losses: Tensor
    hidden: Tensor  # (networks, users, width)
    table: Tensor  # (networks, items or more, width)
    bias: Tensor  # (networks, items)


def decode_and_differentiate(
    hidden: Tensor,
    table: Tensor,
    bias: Tensor,
    entries: Entries,
    scale: Tensor,
    precision: Precision,
) -> DecodedGradients:
    """The loss −Σ value · log softmax(hidden · tableᵀ + bias), and the gradients of Σ scale · loss, in one go.

    The logits exist once, and become their own gradient. With `bfloat16` factors and logits have 16 bits, sums 32.
    """
    items = table.shape[1]
    codes, rows = as_factor(hidden, precision), with_padding(table, precision)
    logits = torch.bmm(codes, rows.transpose(1, 2))  # (networks, users, padded items)
    places = entries.owner * logits.shape[2] + entries.columns
    picked = logits.view(-1)[places].float() + bias.reshape(-1)[entries.keys(items)]
    log_sums = _softmax_gradient_(logits, bias, scale * entries.amounts, items).view(-1)
    shares = torch.exp(picked - log_sums[entries.owner])
    owner_scale, owner_amount = (
        scale.reshape(-1)[entries.owner],
        entries.amounts.view(-1)[entries.owner],
    )
    logits.view(-1)[places] = (owner_scale * (owner_amount * shares - entries.values)).to(
        logits.dtype
    )
    found = entries.sums_of(entries.values * picked)
    losses = log_sums.view_as(entries.amounts) * entries.amounts - found
    of_hidden, of_table = product(logits, rows), product(logits.transpose(1, 2), codes)
    return DecodedGradients(
        losses, of_hidden, of_table, logits.sum(dim=1, dtype=torch.float32)[:, :items]
    )


def as_factor(numbers: Tensor, precision: Precision) -> Tensor:
    """The numbers as products take them; processors differ in 16-bit numbers, so there they are only rounded."""
    if precision == "float32":
        return numbers
    return numbers.bfloat16().float() if numbers.device.type == "cpu" else numbers.bfloat16()


def with_padding(table: Tensor, precision: Precision) -> Tensor:
    """The table as a factor; on a device with rows added, so that those of the logits are aligned."""
    if table.device.type == "cpu":
        return as_factor(table, precision)
    kind = torch.float32 if precision == "float32" else torch.bfloat16
    networks, items, width = table.shape
    aligned = table.new_empty(networks, padded(items), width, dtype=kind)
    aligned[:, :items] = table
    aligned[:, items:] = 0
    return aligned


def product(left: Tensor, right: Tensor) -> Tensor:
    """The batched product with 32-bit sums as its result."""
    return (
        torch.bmm(left, right)
        if left.dtype == torch.float32
        else torch.bmm(left, right, out_dtype=torch.float32)
    )


def _softmax_gradient_(logits: Tensor, bias: Tensor, factor: Tensor, items: int) -> Tensor:
    """log Σ exp of logits + bias, (networks, users); the logits become factor · softmax, their padding 0."""
    if has_kernels(logits.device):
        from loca.local.engines.stacked.kernels import softmax_gradient_

        return softmax_gradient_(logits, bias.contiguous(), factor.contiguous(), items)
    real = logits[..., :items]
    with_bias = (
        real.add_(bias[:, None]) if logits.dtype == torch.float32 else real.float() + bias[:, None]
    )
    log_sums = torch.logsumexp(with_bias, dim=2)
    real.copy_(with_bias.sub_(log_sums[..., None]).exp_().mul_(factor[..., None]))
    logits[..., items:] = 0
    return log_sums


class Moments(NamedTuple):
    """Some networks' weights of one name and Adam's two moments of them, all (networks, …), changed in place."""

    weights: Tensor
    means: Tensor
    squares: Tensor

    def of(self, networks: slice | Tensor) -> Moments:
        """Those of some of the networks: views for a slice, copies for a tensor of numbers."""
        return Moments(self.weights[networks], self.means[networks], self.squares[networks])


class AdamStep:
    """Adam for networks that have taken so many `steps` each before this one, (networks,) on the device."""

    def __init__(self, model: AutoencoderModel, steps: Tensor) -> None:
        self._rate, self._decay = model.learning_rate, model.weight_decay
        self._steps = steps
        taken = (steps + 1).double()
        self._rates = (self._rate / (1 - _BETAS[0] ** taken)).float()
        self._roots = (1 - _BETAS[1] ** taken).rsqrt().float()

    def on_dense(self, moments: Moments, gradients: Tensor) -> None:
        """Changes the weights by a gradient of the same shape; more rows than the weights have are padding."""
        if has_kernels(gradients.device) and gradients[0].is_contiguous():
            from loca.local.engines.stacked.kernels import adam_dense_

            adam_dense_(
                *moments, gradients, self._rates, self._roots, self._decay, _BETAS, _EPSILON
            )
            return
        rows = moments.weights.shape[1]
        weights, means, squares = (list(one.unbind()) for one in moments)
        adam(
            weights, list(gradients[:, :rows].unbind()), means, squares, [], list(self._steps.float().unbind()),
            fused=True, amsgrad=False, beta1=_BETAS[0], beta2=_BETAS[1], lr=self._rate, weight_decay=self._decay,
            eps=_EPSILON, maximize=False,
        )  # fmt: skip

    def on_table(self, moments: Moments, codes: Tensor, entries: Entries) -> None:
        """Changes (networks, items, width) tables by Σ input · gradient of the code over each item's entries."""
        networks, items, width = moments.weights.shape
        keys = entries.keys(items)
        if has_kernels(codes.device):
            from loca.local.engines.stacked.kernels import adam_rows_

            adam_rows_(
                *moments, codes, entries.owner, entries.inputs, keys, self._rates, self._roots, self._decay, _BETAS,
                _EPSILON,
            )  # fmt: skip
            return
        # Entries by their row: each row's gradient is then one sum, where long histories would make a large array.
        order = torch.argsort(keys, stable=True)
        starts = F.pad(torch.bincount(keys, minlength=networks * items).cumsum(0), (1, 0))
        gradients = F.embedding_bag(
            entries.owner[order], codes, starts, mode="sum", per_sample_weights=entries.inputs[order],
            include_last_offset=True,
        )  # fmt: skip
        self.on_dense(moments, gradients.view(networks, items, width))


# From so many filled places of users × items on, a GPU multiplies everything sooner than it gathers what is there.
_DENSE_SHARES: dict[Precision, float] = {"float32": 0.03, "bfloat16": 0.01}


def multiplies_densely(matrix: csr_array, device: torch.device, precision: Precision) -> bool:
    """Whether these histories fill so much of users × items that they are multiplied as dense arrays.

    Those with an item twice are not: an array has one place for it.
    """
    users, items = matrix.shape
    is_full = matrix.nnz >= _DENSE_SHARES[precision] * users * items
    return device.type == "cuda" and is_full and bool(matrix.sorted_indices().has_canonical_format)


@dataclass(frozen=True)
class GatheredInputs:
    """Reads and changes the rows of the tables that the entries name."""

    entries: Entries

    def codes(self, tables: Tensor) -> Tensor:
        """Σ input · table row over every user's items, (networks, users, width)."""
        networks, items, width = tables.shape
        # A dropped entry adds nothing whichever row it reads: all of a network read its first, which is then at hand.
        rows = self.entries.keys(items) - self.entries.columns * (self.entries.inputs == 0)
        sums = F.embedding_bag(
            rows,
            tables.flatten(0, 1),
            self.entries.starts[:-1],
            mode="sum",
            per_sample_weights=self.entries.inputs,
        )
        return sums.view(networks, -1, width)

    def learn(self, adam: AdamStep, moments: Moments, gradients: Tensor) -> None:
        """Changes the tables by the gradients of the codes, (networks, users, width)."""
        adam.on_table(moments, gradients.flatten(0, 1), self.entries)


@dataclass(frozen=True)
class DenseInputs:
    """Does the same with all inputs laid out as (networks, users, items), in the precision of the other products."""

    entries: Entries
    precision: Precision

    def codes(self, tables: Tensor) -> Tensor:
        rows = with_padding(tables, self.precision)
        return product(self._laid_out(rows.shape[1]), rows)

    def learn(self, adam: AdamStep, moments: Moments, gradients: Tensor) -> None:
        inputs = self._laid_out(padded(moments.weights.shape[1]))
        adam.on_dense(
            moments, product(inputs.transpose(1, 2), as_factor(gradients, self.precision))
        )

    def _laid_out(self, width: int) -> Tensor:
        """In rows of `width`; made for each of both products: between them the logits need the room."""
        networks, users = self.entries.amounts.shape
        inputs = as_factor(self.entries.inputs, self.precision)
        laid = inputs.new_zeros(networks, users, width)
        laid.view(-1)[self.entries.owner * width + self.entries.columns] = inputs
        return laid
