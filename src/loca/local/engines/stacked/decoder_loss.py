"""The multinomial loss of stacked networks and its gradients, in one go."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from loca.local.engines.stacked.dispatch import kernels_on
from loca.local.engines.stacked.inputs import Entries
from loca.local.engines.stacked.products import as_factor, product, with_padding
from loca.typing import Precision


class DecodedGradients(NamedTuple):
    """The loss of every user, (networks, users), and the gradients of their weighted sum."""

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
    """Return −Σ value · log softmax(hidden · tableᵀ + bias), and the gradients of Σ scale · loss.

    The logits exist once, and become their own gradient. With `bfloat16` factors and logits have
    16 bits, sums 32.
    """
    n_items = table.shape[1]
    codes = as_factor(hidden, precision)
    rows = with_padding(table, precision)
    logits = torch.bmm(codes, rows.transpose(1, 2))  # (networks, users, padded items)
    positions = entries.owner * logits.shape[2] + entries.columns
    of_entries = logits.view(-1)[positions].float() + bias.reshape(-1)[entries.keys(n_items)]
    log_sums = _softmax_gradient_(logits, bias, scale * entries.amounts, n_items).view(-1)
    likelihoods = torch.exp(of_entries - log_sums[entries.owner])
    scales = scale.reshape(-1)[entries.owner]
    amounts = entries.amounts.view(-1)[entries.owner]
    gradients = scales * (amounts * likelihoods - entries.values)
    logits.view(-1)[positions] = gradients.to(logits.dtype)
    of_users = entries.sums_of(entries.values * of_entries)
    losses = log_sums.view_as(entries.amounts) * entries.amounts - of_users
    return DecodedGradients(
        losses=losses,
        hidden=product(logits, rows),
        table=product(logits.transpose(1, 2), codes),
        bias=logits.sum(dim=1, dtype=torch.float32)[:, :n_items],
    )


def _softmax_gradient_(logits: Tensor, bias: Tensor, factor: Tensor, n_items: int) -> Tensor:
    """Turn logits into factor · softmax of logits + bias, in place; their padding becomes 0.

    Returns log Σ exp of logits + bias, (networks, users).
    """
    kernels = kernels_on(logits.device)
    if kernels is not None:
        log_sums: Tensor = kernels.softmax_gradient_(
            logits, bias.contiguous(), factor.contiguous(), n_items
        )
        return log_sums
    real = logits[..., :n_items]
    in_place = logits.dtype == torch.float32
    with_bias = real.add_(bias[:, None]) if in_place else real.float() + bias[:, None]
    log_sums = torch.logsumexp(with_bias, dim=2)
    real.copy_(with_bias.sub_(log_sums[..., None]).exp_().mul_(factor[..., None]))
    logits[..., n_items:] = 0
    return log_sums
