"""What Adam changes in stacked networks, and by what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor


class AdamState(NamedTuple):
    """Weights of one name with Adam's averages of their gradients and of the squares of these.

    All are (networks, …), and changed in place.
    """

    weights: Tensor
    exp_avg: Tensor
    exp_avg_sq: Tensor

    def of(self, networks: slice | Tensor) -> AdamState:
        """Return those of some networks: views for a slice, copies for a tensor of numbers."""
        return AdamState(self.weights[networks], self.exp_avg[networks], self.exp_avg_sq[networks])


@dataclass(frozen=True)
class RowsGradient:
    """The gradient of (networks, items, width) tables, as sums that are made when they are used.

    The gradient of row r is Σ inputs[e] · codes[owner[e]] over the entries
    e = order[starts[r]], …, order[starts[r + 1] − 1].
    """

    codes: Tensor  # (networks · users, width)
    owner: Tensor  # (entries,)
    inputs: Tensor  # (entries,)
    order: Tensor  # (entries,)
    starts: Tensor  # (networks · items + 1,)


Gradient = Tensor | RowsGradient
