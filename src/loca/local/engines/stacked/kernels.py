"""Triton kernels of the stacked engine: softmax with its gradient, and Adam, in one pass each.

This file is imported only where Triton is installed and the networks lie on a CUDA device.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from loca.local.engines.stacked.adam_state import AdamState, RowsGradient
from loca.models.devices import launching_on

_ITEMS_AT_ONCE = 4096
# So many logits of a user stay in the registers between their sum and their gradient.
_MOST_ITEMS_READ_ONCE = 32_768
_WEIGHTS_AT_ONCE = 2048


@triton.jit
def _softmax_kernel(
    logits,
    bias,
    factor,
    log_sums,
    items,
    padded,
    users,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    row_logits = logits + row * padded
    row_bias = bias + (row // users) * items
    lanes = tl.arange(0, BLOCK)
    largest = tl.full((), -float("inf"), tl.float32)
    total = tl.full((), 0.0, tl.float32)
    for start in range(0, items, BLOCK):
        columns = start + lanes
        inside = columns < items
        numbers = tl.load(row_logits + columns, mask=inside, other=-float("inf")).to(tl.float32)
        numbers += tl.load(row_bias + columns, mask=inside, other=0.0)
        new = tl.maximum(largest, tl.max(numbers, axis=0))
        total = total * tl.exp(largest - new) + tl.sum(tl.exp(numbers - new), axis=0)
        largest = new
    log_sum = largest + tl.log(total)
    tl.store(log_sums + row, log_sum)
    times = tl.load(factor + row)
    for start in range(0, padded, BLOCK):
        columns = start + lanes
        inside = columns < items
        numbers = tl.load(row_logits + columns, mask=inside, other=-float("inf")).to(tl.float32)
        numbers += tl.load(row_bias + columns, mask=inside, other=0.0)
        gradient = times * tl.exp(numbers - log_sum)  # 0 beyond the last item
        tl.store(row_logits + columns, gradient.to(logits.dtype.element_ty), mask=columns < padded)


@triton.jit
def _softmax_kernel_reading_once(
    logits,
    bias,
    factor,
    log_sums,
    items,
    padded,
    users,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    row_logits = logits + row * padded
    columns = tl.arange(0, BLOCK)
    inside = columns < items
    numbers = tl.load(row_logits + columns, mask=inside, other=-float("inf")).to(tl.float32)
    numbers += tl.load(bias + (row // users) * items + columns, mask=inside, other=0.0)
    largest = tl.max(numbers, axis=0)
    powers = tl.exp(numbers - largest)  # 0 beyond the last item
    total = tl.sum(powers, axis=0)
    tl.store(log_sums + row, largest + tl.log(total))
    gradient = powers * (tl.load(factor + row) / total)
    tl.store(row_logits + columns, gradient.to(logits.dtype.element_ty), mask=columns < padded)


def softmax_gradient_(logits: Tensor, bias: Tensor, factor: Tensor, n_items: int) -> Tensor:
    """Turn logits into factor · softmax of logits + bias, in place; their padding becomes 0.

    `logits` is (networks, users, padded items), `bias` (networks, items), `factor` (networks,
    users). Returns log Σ exp of logits + bias for each user, (networks, users).
    """
    n_networks, n_users, n_padded = logits.shape
    log_sums = torch.empty(n_networks, n_users, device=logits.device)
    kernel = _softmax_kernel_reading_once
    block = triton.next_power_of_2(n_padded)
    if block > _MOST_ITEMS_READ_ONCE:
        kernel = _softmax_kernel
        block = _ITEMS_AT_ONCE
    with launching_on(logits.device):
        kernel[(n_networks * n_users,)](
            logits,
            bias,
            factor,
            log_sums,
            n_items,
            n_padded,
            n_users,
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
    weights,
    means,
    squares,
    gradients,
    rates,
    roots,
    size,
    gradient_stride,
    decay,
    beta1,
    beta2,
    epsilon,
    BLOCK: tl.constexpr,
):
    network = tl.program_id(1).to(tl.int64)
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = lanes < size
    positions = network * size + lanes
    weight = tl.load(weights + positions, mask=inside, other=0.0)
    mean = tl.load(means + positions, mask=inside, other=0.0)
    square = tl.load(squares + positions, mask=inside, other=0.0)
    gradient = tl.load(gradients + network * gradient_stride + lanes, mask=inside, other=0.0).to(
        tl.float32
    )
    rate = tl.load(rates + network)
    root = tl.load(roots + network)
    weight, mean, square = _adam(
        weight, mean, square, gradient, rate, root, decay, beta1, beta2, epsilon
    )
    tl.store(weights + positions, weight, mask=inside)
    tl.store(means + positions, mean, mask=inside)
    tl.store(squares + positions, square, mask=inside)


@triton.jit
def _rows_kernel(
    weights,
    means,
    squares,
    codes,
    owners,
    values,
    order,
    starts,
    rates,
    roots,
    items,
    width,
    decay,
    beta1,
    beta2,
    epsilon,
    BLOCK: tl.constexpr,
):
    item = tl.program_id(0).to(tl.int64)
    network = tl.program_id(1).to(tl.int64)
    row = network * items + item
    lanes = tl.arange(0, BLOCK)
    inside = lanes < width
    positions = row * width + lanes
    weight = tl.load(weights + positions, mask=inside, other=0.0)
    mean = tl.load(means + positions, mask=inside, other=0.0)
    square = tl.load(squares + positions, mask=inside, other=0.0)
    gradient = tl.zeros((BLOCK,), tl.float32)
    for number in range(tl.load(starts + row), tl.load(starts + row + 1)):
        entry = tl.load(order + number)
        owner = tl.load(owners + entry)
        gradient += tl.load(values + entry) * tl.load(
            codes + owner * width + lanes, mask=inside, other=0.0
        )
    rate = tl.load(rates + network)
    root = tl.load(roots + network)
    weight, mean, square = _adam(
        weight, mean, square, gradient, rate, root, decay, beta1, beta2, epsilon
    )
    tl.store(weights + positions, weight, mask=inside)
    tl.store(means + positions, mean, mask=inside)
    tl.store(squares + positions, square, mask=inside)


def adam_dense_(
    state: AdamState,
    gradient: Tensor,
    rates: Tensor,
    roots: Tensor,
    decay: float,
    betas: tuple[float, float],
    epsilon: float,
) -> None:
    """Change (networks, …) weights in place; a network's gradient may be followed by padding."""
    size = state.weights[0].numel()
    grid = (triton.cdiv(size, _WEIGHTS_AT_ONCE), len(state.weights))
    with launching_on(state.weights.device):
        _dense_kernel[grid](
            *state,
            gradient,
            rates,
            roots,
            size,
            gradient.stride(0),
            decay,
            *betas,
            epsilon,
            BLOCK=_WEIGHTS_AT_ONCE,
            num_warps=8,
        )


def sorted_rows(inputs: Tensor, keys: Tensor, n_rows: int) -> tuple[Tensor, Tensor]:
    """Return the entries by the row that each adds to, and where each row's begin.

    Entries of a row keep their order, so that its sum is the same every time. Entries whose input
    is 0, such as those that were dropped, come behind the last row.
    """
    rows = torch.where(inputs == 0, n_rows, keys)
    order = torch.argsort(rows, stable=True)
    counts = torch.bincount(rows, minlength=n_rows + 1)[:-1]
    starts = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    return order, starts


def adam_rows_(
    state: AdamState,
    gradient: RowsGradient,
    rates: Tensor,
    roots: Tensor,
    decay: float,
    betas: tuple[float, float],
    epsilon: float,
) -> None:
    """Change (networks, items, width) tables in place; their gradient is never stored."""
    n_networks, n_items, width = state.weights.shape
    with launching_on(state.weights.device):
        _rows_kernel[(n_items, n_networks)](
            *state,
            gradient.codes,
            gradient.owner,
            gradient.inputs,
            gradient.order,
            gradient.starts,
            rates,
            roots,
            n_items,
            width,
            decay,
            *betas,
            epsilon,
            BLOCK=triton.next_power_of_2(width),
            num_warps=4,
        )
