"""Triton kernels of the stacked engine: softmax with its gradient in one pass, and Adam with sparse gradients.

This file is imported only where Triton is installed and the networks lie on a CUDA device.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from loca.models.devices import launching_on

_ITEMS_AT_ONCE = 4096
# So many logits of a user stay in the registers between their sum and their gradient.
_MOST_ITEMS_READ_ONCE = 32_768
_WEIGHTS_AT_ONCE = 2048


@triton.jit
def _softmax_kernel(
    logits, bias, factor, log_sums, items, padded, users,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    own = logits + row * padded
    own_bias = bias + (row // users) * items
    lanes = tl.arange(0, BLOCK)
    largest = tl.full((), -float("inf"), tl.float32)
    total = tl.full((), 0.0, tl.float32)
    for start in range(0, items, BLOCK):
        places = start + lanes
        inside = places < items
        found = tl.load(own + places, mask=inside, other=-float("inf")).to(tl.float32)
        found += tl.load(own_bias + places, mask=inside, other=0.0)
        new = tl.maximum(largest, tl.max(found, axis=0))
        total = total * tl.exp(largest - new) + tl.sum(tl.exp(found - new), axis=0)
        largest = new
    log_sum = largest + tl.log(total)
    tl.store(log_sums + row, log_sum)
    times = tl.load(factor + row)
    for start in range(0, padded, BLOCK):
        places = start + lanes
        inside = places < items
        found = tl.load(own + places, mask=inside, other=-float("inf")).to(tl.float32)
        found += tl.load(own_bias + places, mask=inside, other=0.0)
        gradient = times * tl.exp(found - log_sum)  # 0 beyond the last item
        tl.store(own + places, gradient.to(logits.dtype.element_ty), mask=places < padded)


@triton.jit
def _whole_softmax_kernel(
    logits, bias, factor, log_sums, items, padded, users,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    places = tl.arange(0, BLOCK)
    inside = places < items
    found = tl.load(logits + row * padded + places, mask=inside, other=-float("inf")).to(tl.float32)
    found += tl.load(bias + (row // users) * items + places, mask=inside, other=0.0)
    largest = tl.max(found, axis=0)
    powers = tl.exp(found - largest)  # 0 beyond the last item
    total = tl.sum(powers, axis=0)
    tl.store(log_sums + row, largest + tl.log(total))
    gradient = powers * (tl.load(factor + row) / total)
    tl.store(
        logits + row * padded + places, gradient.to(logits.dtype.element_ty), mask=places < padded
    )


def softmax_gradient_(logits: Tensor, bias: Tensor, factor: Tensor, items: int) -> Tensor:
    """log Σ exp of logits + bias for each user, (models, users); the logits become factor · softmax, in place.

    `logits` is (models, users, padded items), `bias` (models, items), `factor` (models, users); padding becomes 0.
    """
    models, users, padded = logits.shape
    log_sums = torch.empty(models, users, device=logits.device)
    whole = triton.next_power_of_2(padded)
    is_read_once = whole <= _MOST_ITEMS_READ_ONCE
    kernel, block = (
        (_whole_softmax_kernel, whole) if is_read_once else (_softmax_kernel, _ITEMS_AT_ONCE)
    )
    with launching_on(logits.device):
        kernel[(models * users,)](
            logits,
            bias,
            factor,
            log_sums,
            items,
            padded,
            users,
            BLOCK=block,
            num_warps=min(32, max(4, block // 512)),
        )
    return log_sums


@triton.jit
def _adam(weight, mean, square, gradient, rate, root, decay, beta1, beta2, epsilon):
    gradient = gradient + decay * weight
    mean = mean + (gradient - mean) * (1 - beta1)
    square = beta2 * square + (1 - beta2) * gradient * gradient
    weight = weight - rate * mean / (tl.sqrt(square) * root + epsilon)
    return weight, mean, square


@triton.jit
def _dense_kernel(
    weights, means, squares, gradients, rates, roots, size, gradient_stride, decay, beta1, beta2, epsilon,
    BLOCK: tl.constexpr,
):  # fmt: skip
    model = tl.program_id(1).to(tl.int64)
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = lanes < size
    places = model * size + lanes
    weight = tl.load(weights + places, mask=inside, other=0.0)
    mean = tl.load(means + places, mask=inside, other=0.0)
    square = tl.load(squares + places, mask=inside, other=0.0)
    gradient = tl.load(gradients + model * gradient_stride + lanes, mask=inside, other=0.0).to(
        tl.float32
    )
    rate, root = tl.load(rates + model), tl.load(roots + model)
    weight, mean, square = _adam(
        weight, mean, square, gradient, rate, root, decay, beta1, beta2, epsilon
    )
    tl.store(weights + places, weight, mask=inside)
    tl.store(means + places, mean, mask=inside)
    tl.store(squares + places, square, mask=inside)


@triton.jit
def _rows_kernel(
    weights, means, squares, codes, owners, values, order, starts, rates, roots,
    items, width, decay, beta1, beta2, epsilon,
    BLOCK: tl.constexpr,
):  # fmt: skip
    item = tl.program_id(0).to(tl.int64)
    model = tl.program_id(1).to(tl.int64)
    row = model * items + item
    lanes = tl.arange(0, BLOCK)
    inside = lanes < width
    places = row * width + lanes
    weight = tl.load(weights + places, mask=inside, other=0.0)
    mean = tl.load(means + places, mask=inside, other=0.0)
    square = tl.load(squares + places, mask=inside, other=0.0)
    gradient = tl.zeros((BLOCK,), tl.float32)
    for entry in range(tl.load(starts + row), tl.load(starts + row + 1)):
        place = tl.load(order + entry)
        owner = tl.load(owners + place)
        gradient += tl.load(values + place) * tl.load(
            codes + owner * width + lanes, mask=inside, other=0.0
        )
    rate, root = tl.load(rates + model), tl.load(roots + model)
    weight, mean, square = _adam(
        weight, mean, square, gradient, rate, root, decay, beta1, beta2, epsilon
    )
    tl.store(weights + places, weight, mask=inside)
    tl.store(means + places, mean, mask=inside)
    tl.store(squares + places, square, mask=inside)


def adam_dense_(
    weights: Tensor, means: Tensor, squares: Tensor, gradients: Tensor, rates: Tensor, roots: Tensor,
    decay: float, betas: tuple[float, float], epsilon: float,
) -> None:  # fmt: skip
    """Adam on (models, …) weights in place; a model's gradient may be followed by padding."""
    size = weights[0].numel()
    grid = (triton.cdiv(size, _WEIGHTS_AT_ONCE), len(weights))
    with launching_on(weights.device):
        _dense_kernel[grid](
            weights, means, squares, gradients, rates, roots, size, gradients.stride(0), decay, *betas, epsilon,
            BLOCK=_WEIGHTS_AT_ONCE, num_warps=8,
        )  # fmt: skip


def adam_rows_(
    weights: Tensor, means: Tensor, squares: Tensor, codes: Tensor, owners: Tensor, values: Tensor, keys: Tensor,
    rates: Tensor, roots: Tensor, decay: float, betas: tuple[float, float], epsilon: float,
) -> None:  # fmt: skip
    """Adam on (models, items, width) tables in place, whose gradient is Σ value · code over a row's entries.

    Entry e adds `values[e] · codes[owners[e]]` to the row `keys[e]` = model · items + item. The sum goes in the order
    of the entries, so it is the same every time; the gradient itself is never stored. Entries whose value is 0, such
    as those that were dropped, are not read.
    """
    models, items, width = weights.shape
    read = torch.where(values == 0, models * items, keys)  # the others go behind the last row
    order = torch.argsort(read, stable=True)
    counts = torch.bincount(read, minlength=models * items + 1)[:-1]
    starts = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    with launching_on(weights.device):
        _rows_kernel[(items, models)](
            weights, means, squares, codes, owners, values, order, starts, rates, roots,
            items, width, decay, *betas, epsilon,
            BLOCK=triton.next_power_of_2(width), num_warps=4,
        )  # fmt: skip
