"""Local factor models: kernel weights around pairs of a user and an item, learning model by model, and their blend."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from loca.models.devices import float32_products
from loca.models.factors import Columns, Regression, RowBlocks, alternate, draw_factors, solve_rows
from loca.progress import bar


@dataclass(frozen=True)
class LocalLearning:
    """What all local models learn with."""

    confidence: float
    user_l2: float
    item_l2: float
    iterations: int
    seed: int


def kernel_weights(factors: Tensor, anchors: Tensor, bandwidth: float) -> Tensor:
    """(factors, anchors) weights 1 − (d/h)² below the bandwidth h, 0 from there on.

    d is (2/π) · arccos of the cosine: 0 same direction, 1 orthogonal, 2 opposite; a zero vector is orthogonal to all.
    """
    with float32_products():
        cosines = _unit_rows(factors) @ _unit_rows(anchors).T
    # Rounding can push a cosine past 1, where arccos is undefined.
    distances = cosines.clamp(-1, 1).arccos() * (2 / torch.pi)
    return (1 - (distances / bandwidth) ** 2).clamp(min=0)


def _unit_rows(factors: Tensor) -> Tensor:
    lengths: Tensor = torch.linalg.vector_norm(factors, dim=1, keepdim=True)
    return factors / lengths.clamp(min=1e-12)


def learn_local_factors(
    matrix: csr_array,
    weights: Tensor,
    user_kernel: Tensor,
    item_kernel: Tensor,
    factors: int,
    learning: LocalLearning,
) -> Tensor:
    """The items' factors of every local model, (models, items, factors); zeros for items that a model leaves out.

    The kernels are users × models and items × models; users and items without weight have no part in a model.
    """
    device = item_kernel.device
    learned = torch.zeros(item_kernel.shape[1], matrix.shape[1], factors, device=device)
    on_users, on_items = user_kernel.cpu().numpy() > 0, item_kernel.cpu().numpy() > 0
    with bar("LLORMA: iterations of local models", len(learned) * learning.iterations) as progress:
        for model, found in enumerate(learned):
            user_rows, item_rows = np.flatnonzero(on_users[:, model]), np.flatnonzero(on_items[:, model])
            near_users, near_items = user_kernel[user_rows, model], item_kernel[item_rows, model]
            # The paper's regularisation is the same for all; a `Regression` counts it as often as the loss.
            users = Regression(weights[user_rows] * near_users, learning.user_l2 / near_users)
            items = Regression(near_items, learning.item_l2 / near_items)
            first = draw_factors(learning.seed, model, matrix.shape[1], factors)[item_rows]
            part = csr_array(matrix[user_rows][:, item_rows])
            start = torch.from_numpy(first).to(device)
            columns = alternate(part, start, users, items, learning.confidence, learning.iterations, progress)
            found[item_rows] = columns.factors
    return learned


@dataclass(frozen=True)
class LocalFactors:
    """The local models as they answer: factors (models, items, factors) and the items' kernel weights."""

    factors: Tensor
    item_kernel: Tensor  # (items, models)

    def score(
        self, histories: csr_array, user_kernel: Tensor, otherwise: Tensor, confidence: float, user_l2: float
    ) -> Tensor:
        """The kernel-weighted mean of the models' scores for each history, `otherwise` where no model covers a pair."""
        factors, device = self.factors.shape[2], self.factors.device
        everyone = RowBlocks.of(histories, factors, device)
        sums = torch.zeros_like(otherwise)
        with float32_products():
            for model, of_items in enumerate(self.factors):
                near = user_kernel[:, model]
                covered = torch.nonzero(near)[:, 0]
                if len(covered) == len(near):
                    blocks = everyone
                else:
                    blocks = RowBlocks.of(csr_array(histories[covered.cpu().numpy()]), factors, device)
                columns = Columns.as_turned(of_items, self.item_kernel[:, model])
                of_users = torch.zeros(len(near), factors, device=device)
                of_users[covered] = solve_rows(blocks, columns, confidence, user_l2 / near[covered])
                sums.addmm_(of_users * near[:, None], (of_items * columns.weights[:, None]).T)
            total = user_kernel @ self.item_kernel.T
        return torch.where(total > 0, sums / total.clamp(min=torch.finfo(total.dtype).tiny), otherwise)
