"""LLORMA (Lee et al. 2013, 2016) for implicit feedback: local factor models around random pairs, answered as one.

Two departures from the paper: a local model is a weighted WMF over all pairs instead of a factorisation of ratings,
and the kernel is the true Epanechnikov, 1 − (d/h)² below the bandwidth h. The paper prints 1 − d² there, which is
negative beyond d = 1, while wide bandwidths are what implicit feedback wants. Above h = 2 every pair is covered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor

from loca.errors import ModelFileError
from loca.models.als import (
    Columns,
    Floats,
    Regression,
    RowBlocks,
    alternate,
    check_values,
    draw_factors,
    solve_rows,
)
from loca.models.devices import choose_device, device_param, float32_products
from loca.models.recommender import (
    ModelState,
    Recommender,
    Scores,
    TrainingData,
    check_histories,
    fitted,
    learned,
    positive,
    whole,
)
from loca.models.wmf import WMF, plan_alternating
from loca.progress import bar
from loca.random_streams import stream


@dataclass(kw_only=True, eq=False, repr=False)
class LLORMA(Recommender):
    """Scores = Σ_t K_t(u) K_t(i) x_t · y_ti / Σ_t K_t(u) K_t(i) over local WMF models t, else those of a global WMF.

    Each model stands around a stored pair, drawn at random, and learns from every pair with the weight K_t(u) K_t(i)
    (`WMF` has the loss), K being the kernel of the distance (2/π) · arccos of the cosine between the global factors.
    Any history is embedded by the global model, and then solved for its factor in each local model that covers it.
    """

    anchors: int = whole(100)
    bandwidth: float = positive(4.0)
    factors: int = whole(64)
    confidence: float = positive(100.0)
    user_l2: float = positive(100.0)
    item_l2: float = positive(100.0)
    iterations: int = whole(5)
    seed: int = 0
    device: str = device_param()
    global_: WMF | None = field(default=None, init=False)
    anchor_items_: npt.NDArray[np.int64] | None = learned("models", dtype=np.int64)
    anchor_users_: Floats | None = learned("models", "factors")
    local_factors_: Floats | None = learned("models", "items", "factors")
    _local: LocalFactors | None = field(default=None, init=False)

    def _fit(self, data: TrainingData) -> None:
        """The global model, the anchors, and one local model after the other.

        A user with weight 2 counts as two equal users in every model, but is drawn as an anchor no more often.
        """
        rows, weights = data.weighted_rows()
        rows = check_values(rows)
        count = min(self.anchors, rows.nnz)
        kept = 4 * count * rows.shape[1] * self.factors
        device = plan_alternating(f"LLORMA with {count} models", rows, self.factors, choose_device(self.device), kept)
        self.global_ = WMF(
            factors=self.factors,
            confidence=self.confidence,
            user_l2=self.user_l2,
            item_l2=self.item_l2,
            iterations=self.iterations,
            seed=self.seed,
            device=self.device,
        ).fit(rows, user_weights=weights)
        users = self.global_.embed(rows)
        drawn = np.sort(stream(self.seed, "anchors").choice(rows.nnz, count, replace=False))
        self.anchor_users_ = users[np.searchsorted(rows.indptr, drawn, side="right") - 1]
        self.anchor_items_ = rows.indices[drawn].astype(np.int64)
        user_kernel, item_kernel = self._user_kernel(users, device), self._item_kernel(device)
        learning = LocalLearning(self.confidence, self.user_l2, self.item_l2, self.iterations, self.seed)
        near = torch.from_numpy(weights).to(device)
        learned = learn_local_factors(rows, near, user_kernel, item_kernel, self.factors, learning)
        self.local_factors_, self._local = learned.cpu().numpy(), LocalFactors(learned, item_kernel)

    def _user_kernel(self, users: Floats, device: torch.device) -> Tensor:
        """How near users with those global factors are to every anchor's user."""
        anchors = torch.from_numpy(np.array(fitted(self.anchor_users_, self)))
        return kernel_weights(torch.from_numpy(users).to(device), anchors.to(device), self.bandwidth)

    def _item_kernel(self, device: torch.device) -> Tensor:
        """How near every item is to every anchor's item."""
        items = torch.from_numpy(np.array(fitted(fitted(self.global_, self).item_factors_, self))).to(device)
        return kernel_weights(items, items[torch.from_numpy(np.array(self.anchor_items_)).to(device)], self.bandwidth)

    def score(self, histories: csr_array) -> Scores:
        """The kernel-weighted mean of the local models' scores, the global model's where none covers a pair."""
        local, of_all = self._ready(), fitted(self.global_, self)
        rows = check_values(check_histories(histories, self.count_items()))
        user_kernel = self._user_kernel(of_all.embed(rows), local.factors.device)
        otherwise = torch.from_numpy(of_all.score(rows)).to(local.factors.device)
        return local.score(rows, user_kernel, otherwise, self.confidence, self.user_l2).cpu().numpy()

    def _ready(self) -> LocalFactors:
        """The local models on the device that answers; a loaded model brings them there on its first answer."""
        learned = fitted(self.local_factors_, self)
        if self._local is None:
            device = choose_device("auto")
            # A copy: mapped files may not be written to.
            self._local = LocalFactors(torch.from_numpy(np.array(learned)).to(device), self._item_kernel(device))
        return self._local

    def state(self) -> ModelState:
        return replace(super().state(), parts={"global": fitted(self.global_, self)})

    @classmethod
    def restore(cls, params: Mapping[str, Any], state: ModelState) -> Self:
        model = super().restore(params, state)
        of_all, anchors = state.parts["global"], fitted(model.anchor_items_, model)
        if type(of_all) is not WMF or of_all.factors != model.factors:
            raise ModelFileError(f"LLORMA: expected a global WMF of {model.factors} factors, found another model")
        items = of_all.count_items()
        if model.count_items() != items:
            raise ModelFileError(f"LLORMA: expected local_factors of {items} items, found {model.count_items()}")
        if not len(anchors) or anchors.min() < 0 or anchors.max() >= items:
            raise ModelFileError(f"LLORMA: expected item rows below {items} as anchors")
        model.global_ = of_all
        return model


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
