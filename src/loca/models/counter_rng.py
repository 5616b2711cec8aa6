"""Random numbers by counting: the number at a place is a hash of (stream, place), so it is the same in any order."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from loca.models.devices import has_kernels

# SplitMix64 (Steele, Lea, Flood 2014): a step of the counter and two multipliers, as signed 64-bit numbers.
_STEP = 0x9E3779B97F4A7C15 - (1 << 64)
_FIRST = 0xBF58476D1CE4E5B9 - (1 << 64)
_SECOND = 0x94D049BB133111EB - (1 << 64)


def streams_at(streams: Tensor, step: Tensor | int) -> Tensor:
    """The streams of a step: as many others, which share nothing with those of another step."""
    # As a tensor: there the product wraps around.
    return _mix_(streams + torch.as_tensor(step, device=streams.device) * _STEP)


def uniform_at(streams: Tensor, places: Tensor) -> Tensor:
    """Numbers from 0 to below 1 at the `places` (≥ 0) of the `streams`, 32 bits; both are int64 and are broadcast."""
    if has_kernels(places.device):
        return _draw_at_once(streams, places, normal=False)
    hashes = _mix_(streams + (places + 1) * _STEP)
    return _upper(hashes).mul_(2.0**-24)


def normal_at(streams: Tensor, places: Tensor) -> Tensor:
    """Standard normal numbers at the `places` (≥ 0) of the `streams`, by Box and Muller, 32 bits."""
    if has_kernels(places.device):
        return _draw_at_once(streams, places, normal=True)
    hashes = _mix_(streams + (places + 1) * _STEP)
    radius = _upper(hashes).add_(1.0).mul_(2.0**-24).log_().mul_(-2.0).sqrt_()
    angle = hashes.bitwise_and_((1 << 24) - 1).to(torch.float32).mul_(2 * math.pi * 2.0**-24)
    return radius.mul_(angle.cos_())


def _draw_at_once(streams: Tensor, places: Tensor, *, normal: bool) -> Tensor:
    """One pass over the places, where the others make one of every line."""
    from loca.models.counter_rng_kernels import draw

    return draw(streams, places, (_STEP, _FIRST, _SECOND), normal=normal)


def fill_normal(weights: Tensor, stream: int, spread: float, piece: int | None = None) -> Tensor:
    """Fill a tensor with normal numbers of one stream, mean 0 and the given spread, piece by piece.

    A piece is small enough to stay in a processor's cache, and large enough to keep a GPU busy.
    """
    flat, numbers = weights.view(-1), torch.tensor(stream, device=weights.device)
    if piece is None:
        piece = 1 << 25 if weights.device.type == "cuda" else 1 << 18
    for start in range(0, len(flat), piece):
        stop = min(start + piece, len(flat))
        flat[start:stop] = normal_at(
            numbers, torch.arange(start, stop, device=weights.device)
        ).mul_(spread)
    return weights


def _upper(hashes: Tensor) -> Tensor:
    """The upper 24 bits as 32-bit floats: whole numbers from 0 to below 2²⁴, all of them exact."""
    return (hashes >> 40).bitwise_and_((1 << 24) - 1).to(torch.float32)


def _mix_(numbers: Tensor) -> Tensor:
    """SplitMix64's finaliser in place; products wrap around, and shifts bring in zeros as for unsigned numbers."""
    numbers.bitwise_xor_((numbers >> 30).bitwise_and_((1 << 34) - 1)).mul_(_FIRST)
    numbers.bitwise_xor_((numbers >> 27).bitwise_and_((1 << 37) - 1)).mul_(_SECOND)
    return numbers.bitwise_xor_((numbers >> 31).bitwise_and_((1 << 33) - 1))
