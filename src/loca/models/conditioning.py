"""What rounding costs an inverse: a bound of its relative error, up to which it is accepted."""

from __future__ import annotations

import math

import torch
from torch import Tensor

# The relative error up to which an inverse is accepted. On public data with l2 from 1 to 1000 it stays below 0.0002.
LARGEST_ERROR = 0.01
_BLOCK = 256  # rows that are squared at once


def inverse_error(inverse: Tensor, diagonal: Tensor, ridges: Tensor | float, terms: int) -> float:
    """How wrong P, the computed inverse of A = G + diag(ridges), may be; G is a Gram matrix of `terms` products a sum.

    Each P_jj is right to that relative error, each P_ij to that much of √(P_ii·P_jj). Rounding changes A_ij by up to
    about e·√(A_ii·A_jj), e = 4ε·√terms, and so P_jj by up to e·Σ_i A_ii·P_ij². Because no eigenvalue of G is below 0,
    the sum is at most P_jj · max_i A_ii / ridge_i. Where that does not keep below `LARGEST_ERROR`, the sum is taken
    from the computed P, (n, n): where A is singular but for rounding, it is P_jj / ε or so.
    """
    if not len(inverse):
        return 0.0  # no equations, and nothing that could be wrong
    own = inverse.diagonal()
    if not _is_positive(own):
        return math.inf
    step = _step(terms, inverse.dtype)
    bound = step * float((diagonal / ridges).max())
    return bound if bound <= LARGEST_ERROR else step * _largest_sum(inverse, diagonal, own)


def shares_error(
    shares: Tensor, leverages: Tensor, half: Tensor, diagonal: Tensor, l2: float, error: float, terms: int
) -> float:
    """How wrong the shares l2·P_jj = 1 − x_jᵀQx_j may be, where the computed inverse Q of K is wrong by `error`.

    `half` is XᵀQ, (items, users), `diagonal` that of K, and the leverages are Σ_u x_uj²·Q_uu, which bound the terms of
    x_jᵀQx_j: their sum is rounded by up to about 8ε of it, beside a share that may be small. Rounding K changes it by
    e·Σ_u K_uu·(Qx_j)_u², at most e · max_u K_uu / l2 of the share because ‖Qx_j‖² ≤ P_jj; else the sum is taken.
    """
    if not len(diagonal):
        return 0.0  # nobody has a weight: all shares are 1
    if not (_is_positive(shares) and error <= LARGEST_ERROR):
        return math.inf
    step = _step(terms, shares.dtype)
    cancelled = 8 * torch.finfo(shares.dtype).eps * float((leverages / shares).max())
    bound = cancelled + step * float(diagonal.max()) / l2
    return bound if bound <= LARGEST_ERROR else cancelled + step * _largest_sum(half, diagonal, shares)


def _step(terms: int, kind: torch.dtype) -> float:
    """4ε·√n: how far rounding carries a sum of n products, and the steps of a factorisation after it."""
    return 4 * torch.finfo(kind).eps * math.sqrt(terms)


def _largest_sum(rows: Tensor, weights: Tensor, beside: Tensor) -> float:
    """The largest of Σ_u w_u·r_ju² / b_j over the rows r_j; infinity where one of them is no number."""
    starts = range(0, len(rows), _BLOCK)
    sums = torch.cat([rows[start : start + _BLOCK].square() @ weights for start in starts])
    largest = float((sums / beside).max())
    return math.inf if math.isnan(largest) else largest


def _is_positive(numbers: Tensor) -> bool:
    return bool(torch.isfinite(numbers).all()) and float(numbers.min()) > 0
