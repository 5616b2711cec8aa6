"""How similar items are to each other by what stands for each: factors, or the weights that make its score."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loca.deferred import torch
from loca.models.devices import float32_products
from loca.models.recommender import ItemRows, Scores

if TYPE_CHECKING:
    from torch import Tensor


def cosines(vectors: Tensor, item_rows: ItemRows) -> Scores:
    """Compute the cosines between the vectors of some items and those of all.

    Parameters
    ----------
    vectors : Tensor
        Items × dimensions, on any device.
    item_rows : ndarray of int64
        The rows of some items.

    Returns
    -------
    ndarray of float32
        Given items × all items; 0 for a vector of zeros.
    """
    with torch.no_grad(), float32_products():
        directions = torch.nn.functional.normalize(vectors)  # (items, dimensions)
        rows = torch.from_numpy(item_rows).to(vectors.device)
        found = directions[rows] @ directions.T
        # Rounding can push a cosine past 1.
        return found.clamp_(-1, 1).cpu().numpy()
