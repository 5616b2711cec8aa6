"""Triton kernels of the draws: a hash of (stream, place) and the number made of it in one pass.

This file is imported only where Triton is installed and the numbers lie on a CUDA device.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from loca.models.devices import launching_on

_PLACES_AT_ONCE = 1024
_ANGLE = 2 * math.pi * 2.0**-24


@triton.jit
def _draw_kernel(
    streams, places, drawn, columns, total, stream_row, stream_column, place_row, place_column, step, first, second,
    angle,
    NORMAL: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    lanes = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = lanes < total
    row, column = lanes // columns, lanes % columns
    stream = tl.load(streams + row * stream_row + column * stream_column, mask=inside, other=0)
    place = tl.load(places + row * place_row + column * place_column, mask=inside, other=0)
    # Signed numbers wrap around as unsigned ones do; only the shifts must bring in zeros.
    number = stream + (place + 1) * step
    number = (number ^ ((number >> 30) & ((1 << 34) - 1))) * first
    number = (number ^ ((number >> 27) & ((1 << 37) - 1))) * second
    number = number ^ ((number >> 31) & ((1 << 33) - 1))
    upper = ((number >> 40) & ((1 << 24) - 1)).to(tl.float32)
    if NORMAL:
        radius = tl.sqrt(-2.0 * tl.log((upper + 1.0) * (2.0**-24)))
        found = radius * tl.cos((number & ((1 << 24) - 1)).to(tl.float32) * angle)
    else:
        found = upper * (2.0**-24)
    tl.store(drawn + lanes, found, mask=inside)


def draw(
    streams: Tensor, places: Tensor, constants: tuple[int, int, int], *, normal: bool
) -> Tensor:
    """Uniform or normal numbers at the `places` of the `streams`, broadcast; the constants are SplitMix64's."""
    shape = torch.broadcast_shapes(streams.shape, places.shape)
    drawn = torch.empty(shape, device=places.device)
    stream, place = (_as_rows(one.to(places.device).expand(shape)) for one in (streams, places))
    total = drawn.numel()
    if total:
        with launching_on(places.device):
            _draw_kernel[(triton.cdiv(total, _PLACES_AT_ONCE),)](
                stream, place, drawn, stream.shape[1], total, *stream.stride(), *place.stride(), *constants, _ANGLE,
                NORMAL=normal, BLOCK=_PLACES_AT_ONCE, num_warps=4,
            )  # fmt: skip
    return drawn


def _as_rows(numbers: Tensor) -> Tensor:
    """The numbers as rows and columns, of up to two dimensions without a copy."""
    return numbers.reshape(1, 1) if numbers.dim() == 0 else numbers.unsqueeze(0).flatten(0, -2)
