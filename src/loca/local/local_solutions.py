"""How the weights of local item-to-item models are found, EASE's many at once and NextEASE's one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from scipy.sparse import csr_array
from torch import Tensor

from loca.local.kept_differences import WeightRows
from loca.models.ease import EASE
from loca.models.ease_systems import EaseSystem, solve_systems
from loca.models.next_ease import NextEASE, bytes_to_solve_next, solve_next
from loca.models.recommender import Recommender, UserWeights, get_params

ItemToItem = EASE | NextEASE
_BLOCK_ROWS = 1024


@dataclass(frozen=True, eq=False)
class DenseSolution:
    """Item-to-item weights that are all there."""

    weights: Tensor  # (items, items)

    @property
    def item_count(self) -> int:
        """How many items they are between."""
        return len(self.weights)

    def weight_rows(self, items: Tensor) -> Tensor:
        """The rows of those items, a copy."""
        return self.weights[items]


def solve_each(
    base: ItemToItem,
    matrix: csr_array,
    user_weights: Sequence[UserWeights],
    device: torch.device,
    moments: csr_array | None = None,
) -> Iterator[WeightRows]:
    """What the base would learn from `matrix`, and from its `moments`, with each of the user weights, in order."""
    if isinstance(base, NextEASE):
        for weights in user_weights:
            yield DenseSolution(solve_next(base, matrix, weights, device, moments))
    elif user_weights:
        systems = [EaseSystem.of(matrix, weights, base.l2, base.denoising) for weights in user_weights]
        yield from solve_systems(systems, device)


def is_centre_for(base: ItemToItem, model: Recommender | None) -> bool:
    """Whether local copies of the base may be kept as differences to that model: the same one but for its device."""
    if type(model) is not type(base):
        return False
    asked, found = get_params(base), get_params(model)
    return all(found[name] == asked[name] for name in asked if name != "device")


def bytes_while_solving_next(items: int, stored: int, device: torch.device) -> int:
    """What the device holds while one local NextEASE is solved: that, the centre, and blocks of rows of both."""
    return bytes_to_solve_next(items, stored, device) + 4 * (items**2 + 4 * _BLOCK_ROWS * items)
