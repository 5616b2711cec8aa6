"""The stacked engine: many networks of one shape as one batched network, each with its own users, weights and draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.optim.adam import adam

from loca.memory import available_bytes
from loca.models.autoencoder import Autoencoder, SparseRows, divergence, multinomial_loss
from loca.models.training import Learning
from loca.progress import say

_BETAS = (0.9, 0.999)
_EPSILON = 1e-8
# Logits, their exponentials and their gradient are alive at once.
_LOGIT_COPIES = 3
_SHARE_OF_FREE_MEMORY = 0.5


@dataclass(frozen=True)
class StackedBatch:
    """One batch of each active model, (models, users), padded where a model's `sizes` are smaller."""

    sizes: list[int]
    rows: SparseRows  # the histories of all models one after the other: model · users + user
    stored: list[int]  # stored entries of each model
    weights: Tensor  # (models, users), 0 where padded


@dataclass(frozen=True)
class _AdamLists:
    """What Adam needs of every weight of every active model, one entry each."""

    weights: list[Tensor]
    gradients: list[Tensor]
    means: list[Tensor]
    squares: list[Tensor]
    steps: list[Tensor]


class StackedLearning:
    """Many networks being trained as one; `run_epoch` shows every network all of its own users once.

    Takes the learning of each network as the reference engine would run it, with its own order, dropout and noise, so
    that both engines draw the same numbers; the weights of the networks become views into the stack.
    """

    def __init__(self, learning: Sequence[Learning]) -> None:
        # Models with more batches first: those that still have users to show are then always the first of the stack.
        self._learning = sorted(learning, key=lambda one: -len(one.support))
        first = self._learning[0]
        self._plan, self._device, self._shape = first.plan, first.device, first.network
        self._weights: dict[str, Tensor] = {}
        for name, _ in first.network.named_parameters():
            stack = torch.stack([one.network.get_parameter(name).detach() for one in self._learning])
            self._weights[name] = stack.requires_grad_()
            for place, one in enumerate(self._learning):
                one.network.get_parameter(name).data = stack.detach()[place]
        self._means = {name: torch.zeros_like(stack) for name, stack in self._weights.items()}
        self._squares = {name: torch.zeros_like(stack) for name, stack in self._weights.items()}
        count = len(self._learning)
        self._steps = {name: torch.zeros(count, device=self._device) for name in self._weights}
        self._lengths = np.diff(first.matrix.indptr)
        self._rows = SparseRows.of(first.matrix, self._device)

    @property
    def networks(self) -> list[Autoencoder]:
        """All networks of the stack."""
        return [one.network for one in self._learning]

    def run_epoch(self) -> float:
        """Gives every network one epoch, and the mean loss."""
        orders = [one.order.permutation(len(one.support)) for one in self._learning]
        size = self._plan.batch_size
        total = 0.0
        for start in range(0, len(orders[0]), size):
            users = [order[start : start + size] for order in orders if start < len(order)]
            losses = self._losses(self._gather(users))  # (active models,)
            losses.sum().backward()  # type: ignore[no-untyped-call]
            self._step(len(users))
            shares = [len(chosen) / len(order) for chosen, order in zip(users, orders, strict=False)]
            total += float(losses.detach() @ torch.tensor(shares, device=self._device))
        return total / len(orders)

    def _gather(self, users: list[npt.NDArray[np.int64]]) -> StackedBatch:
        """The histories of each active model's users, read from the one matrix that all models share."""
        sizes = [len(chosen) for chosen in users]
        width = max(sizes)
        rows = np.zeros((len(users), width), dtype=np.int64)
        weights = np.zeros((len(users), width), dtype=np.float32)
        lengths = np.zeros((len(users), width), dtype=np.int64)
        for place, (one, chosen) in enumerate(zip(self._learning, users, strict=False)):
            rows[place, : len(chosen)] = one.support[chosen]
            weights[place, : len(chosen)] = one.weights[chosen]
            lengths[place, : len(chosen)] = self._lengths[rows[place, : len(chosen)]]
        stored = lengths.sum(axis=1).tolist()
        counts = torch.from_numpy(lengths.ravel()).to(self._device)
        starts = F.pad(counts.cumsum(0), (1, 0))
        wanted = self._rows.starts[torch.from_numpy(rows.ravel()).to(self._device)]
        places = torch.arange(sum(stored), device=self._device)
        places = places + torch.repeat_interleave(wanted - starts[:-1], counts, output_size=sum(stored))
        return StackedBatch(
            sizes=sizes,
            rows=SparseRows(self._rows.columns[places], self._rows.values[places], starts),
            stored=stored,
            weights=torch.from_numpy(weights).to(self._device),
        )

    def _losses(self, batch: StackedBatch) -> Tensor:
        """The weighted mean loss of each active model, (models,), with dropout and noise from its own stream."""
        models, width = batch.weights.shape
        latent, kl = self._encode(batch, self._dropped(batch.rows.unit_values(), batch.stored))
        logits = self._decode(latent)  # (models, users, items)
        losses = multinomial_loss(logits.flatten(0, 1), batch.rows)
        sizes = torch.tensor(batch.sizes, device=self._device)
        return (batch.weights * (losses.view(models, width) + kl)).sum(dim=1) / sizes

    def _encode(self, batch: StackedBatch, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """The (noisy) codes, (models, users, latent), and the weighted divergences, (models, users)."""
        models, width = batch.weights.shape
        tables = self._active("input_table", models)
        item_count = tables.shape[1]
        columns = batch.rows.columns + batch.rows.owner // width * item_count
        codes = F.embedding_bag(
            columns, tables.flatten(0, 1), batch.rows.starts[:-1], mode="sum", per_sample_weights=inputs
        ).view(models, width, -1)
        codes = codes + self._active("input_bias", models)[:, None]
        if "code_weight" in self._weights:
            codes = self._layer(torch.tanh(codes), "code", models)
        no_divergence = torch.zeros(models, width, device=self._device)
        if not self._shape.variational:
            return torch.tanh(codes), no_divergence
        mean, log_variance = codes[..., : self._shape.latent], codes[..., self._shape.latent :]
        kl_weights = [self._plan.kl_weight_at(one.step) for one in self._learning[:models]]
        kl = divergence(mean, log_variance) if any(kl_weights) else no_divergence
        kl = kl * torch.tensor(kl_weights, device=self._device)[:, None]
        if self._plan.noise:
            mean = mean + self._plan.noise * self._noise(batch.sizes, width) * torch.exp(0.5 * log_variance)
        return mean, kl

    def _decode(self, latent: Tensor) -> Tensor:
        models = len(latent)
        if "back_weight" in self._weights:
            latent = torch.tanh(self._layer(latent, "back", models))
        tables, biases = self._active("output_table", models), self._active("output_bias", models)
        return torch.baddbmm(biases[:, None], latent, tables.transpose(1, 2))

    def _layer(self, inputs: Tensor, name: str, models: int) -> Tensor:
        weights, biases = self._active(f"{name}_weight", models), self._active(f"{name}_bias", models)
        return torch.baddbmm(biases[:, None], inputs, weights)

    def _active(self, name: str, models: int) -> Tensor:
        """The weights of the first models; all of them uncut, because the gradient of a part makes a second stack."""
        stack = self._weights[name]
        return stack if models == len(stack) else stack[:models]

    def _dropped(self, values: Tensor, stored: list[int]) -> Tensor:
        if not self._plan.dropout:
            return values
        draws = [
            torch.rand(count, generator=one.generator, device=self._device)
            for one, count in zip(self._learning, stored, strict=False)
        ]
        return values * (torch.cat(draws) >= self._plan.dropout) / (1 - self._plan.dropout)

    def _noise(self, sizes: list[int], width: int) -> Tensor:
        noise = torch.zeros(len(sizes), width, self._shape.latent, device=self._device)
        for place, (one, size) in enumerate(zip(self._learning, sizes, strict=False)):
            noise[place, :size] = torch.randn(size, self._shape.latent, generator=one.generator, device=self._device)
        return noise

    @torch.no_grad()
    def _step(self, models: int) -> None:
        """Adam for the active models, each at its own count of steps, in the fused form that the loop uses too."""
        for one in self._learning[:models]:
            one.step += 1
        fused = _AdamLists([], [], [], [], [])
        for name, stack in self._weights.items():
            assert stack.grad is not None
            fused.weights.extend(stack.detach()[:models].unbind())
            fused.gradients.extend(stack.grad[:models].unbind())
            fused.means.extend(self._means[name][:models].unbind())
            fused.squares.extend(self._squares[name][:models].unbind())
            fused.steps.extend(self._steps[name][:models].unbind())
            stack.grad = None
        adam(
            fused.weights,
            fused.gradients,
            fused.means,
            fused.squares,
            [],
            fused.steps,
            fused=True,
            amsgrad=False,
            beta1=_BETAS[0],
            beta2=_BETAS[1],
            lr=self._plan.learning_rate,
            weight_decay=self._plan.weight_decay,
            eps=_EPSILON,
            maximize=False,
        )


def in_stacks(learning: Sequence[Learning]) -> list[StackedLearning]:
    """The networks in as few stacks as free memory allows, each trained as one."""
    size = stack_size(learning[0])
    say(f"stacked engine: {len(learning)} networks in stacks of {min(size, len(learning))} on {learning[0].device}")
    return [StackedLearning(learning[start : start + size]) for start in range(0, len(learning), size)]


def stack_size(one: Learning) -> int:
    """How many networks like this one fit side by side into half of the memory that is free on its device."""
    weights = sum(weight.numel() for weight in one.network.parameters())
    logits = min(one.plan.batch_size, len(one.support)) * one.network.item_count
    free = torch.cuda.mem_get_info(one.device)[0] if one.device.type == "cuda" else available_bytes()
    # Weights, two moments, gradient and the step's own copies; all in 32 bits.
    needed = 4 * (6 * weights + _LOGIT_COPIES * logits)
    return max(1, int(_SHARE_OF_FREE_MEMORY * free) // needed)
