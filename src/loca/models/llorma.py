"""LLORMA (Lee et al. 2013, 2016) for implicit feedback: local factor models around random pairs, answered as one.

Two departures from the paper: a local model is a weighted WMF over all pairs instead of a factorisation of ratings,
and the kernel is the true Epanechnikov, 1 − (d/h)² below the bandwidth h. The paper prints 1 − d² there, which is
negative beyond d = 1, while wide bandwidths are what implicit feedback wants. Above h = 2 every pair is covered.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn.functional import normalize

from loca.errors import ModelFileError
from loca.memory import DataSize, MemoryUse
from loca.models import als
from loca.models.devices import choose_device, float32_products
from loca.models.params import positive, seed_param, whole
from loca.models.recommender import (
    ItemRows,
    Recommender,
    Scores,
    SimilarityKind,
    TrainingData,
    fitted,
)
from loca.models.wmf import WMF
from loca.persistence.learned import learned, learned_part
from loca.progress import bar
from loca.random_streams import stream
from loca.remarks import remark


@dataclass(kw_only=True, eq=False, repr=False)
class LLORMA(Recommender):
    """Score items by many local factor models around random pairs, and by a global one where none covers a pair.

    Scores are Σ_t K_t(u) K_t(i) x_t · y_ti / Σ_t K_t(u) K_t(i) over local WMF models t, else those of a global WMF.
    Each model stands around a stored pair, drawn at random, and learns from every pair with the weight K_t(u) K_t(i)
    (`WMF` has the loss), K being the kernel of the distance (2/π) · arccos of the cosine between the global factors.
    Any history is embedded by the global model, and then solved for its factor in each local model that covers it.

    Parameters
    ----------
    anchors : int, default 100
        Local models; at most as many as there are stored pairs.
    bandwidth : float, default 4.0
        Distance h at which the kernel 1 − (d/h)² reaches 0; above 2 every model covers every pair.
    factors : int, default 64
        Size of a factor, in all models.
    confidence : float, default 100.0
        How much more a stored pair counts than one that is not, above 0.
    user_l2 : float, default 100.0
        Regularisation of a user's factor.
    item_l2 : float, default 100.0
        Regularisation of an item's factor.
    iterations : int, default 5
        How often users' and items' factors are solved in turn, in each model.
    seed : int, default 0
        Seed of the anchors and the initial factors.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> rows = csr_array([[1, 1, 1, 0, 0], [1, 1, 0, 0, 0], [0, 0, 0, 1, 1], [0, 0, 1, 1, 1]])
    >>> model = loca.LLORMA(anchors=3, factors=2, user_l2=0.1, item_l2=0.1).fit(rows)
    >>> model.local_factors_.shape
    (3, 5, 2)
    >>> model.score(rows).shape
    (4, 5)
    """

    takes_new_items = False
    similarity_kind: ClassVar[SimilarityKind] = "symmetric"

    anchors: int = whole(100)
    bandwidth: float = positive(4.0)
    factors: int = whole(64)
    confidence: float = positive(100.0)
    user_l2: float = positive(100.0)
    item_l2: float = positive(100.0)
    iterations: int = whole(5)
    seed: int = seed_param()
    global_: WMF | None = learned_part(WMF, "items", "factors")
    anchor_items_: npt.NDArray[np.int64] = learned("models", dtype=np.int64)
    anchor_users_: als.Floats = learned("models", "factors")
    local_factors_: als.Floats = learned("models", "items", "factors")
    _local: tuple[Tensor, Tensor] | None = field(default=None, init=False)

    def _fit(self, data: TrainingData) -> None:
        """Learn the global model, draw the anchors, and learn one local model after the other.

        A user with weight 2 counts as two equal users in every model, but is drawn as an anchor no more often.
        """
        rows, weights = data.weighted_rows()
        rows = als.check_values(rows)
        count = min(self.anchors, rows.nnz)
        local_bytes = 4 * count * rows.shape[1] * self.factors
        what = f"LLORMA with {count} models"
        device = als.plan_alternating(
            what, rows, self.factors, choose_device(data.device), local_bytes
        )
        shared = {
            name: value
            for name, value in self.get_params(deep=False).items()
            if name not in ("anchors", "bandwidth")
        }
        self.global_ = WMF(**shared).fit(rows, user_weights=weights, device=data.device)
        users = self.global_.embed(rows)
        drawn = np.sort(stream(self.seed, "anchors").choice(rows.nnz, count, replace=False))
        self.anchor_users_ = users[np.searchsorted(rows.indptr, drawn, side="right") - 1]
        self.anchor_items_ = rows.indices[drawn].astype(np.int64)
        user_kernel, item_kernel = self._user_kernel(users, device), self._item_kernel(device)
        local = learn_local_factors(
            self, rows, torch.from_numpy(weights).to(device), user_kernel, item_kernel
        )
        self.local_factors_, self._local = local.cpu().numpy(), (local, item_kernel)

    def _user_kernel(self, users: als.Floats, device: torch.device) -> Tensor:
        """How near users with those global factors are to every anchor's user."""
        anchors = torch.from_numpy(np.array(self.anchor_users_))
        return kernel_weights(
            torch.from_numpy(users).to(device), anchors.to(device), self.bandwidth
        )

    def _item_kernel(self, device: torch.device) -> Tensor:
        """How near every item is to every anchor's item."""
        items = torch.from_numpy(np.array(fitted(self.global_, self).item_factors_)).to(device)
        return kernel_weights(
            items, items[torch.from_numpy(np.array(self.anchor_items_)).to(device)], self.bandwidth
        )

    def _update(self, data: TrainingData, epochs: int) -> None:
        """Leave the factors: a longer history, or that of a new user, is answered like any other."""
        text = "LLORMA: its factors stay as they were fitted; longer histories are folded in"
        remark("kept", text)

    def memory_bytes(self, data: DataSize) -> MemoryUse:
        """A global WMF, the items' factors of every local one, and all distances to the anchors four times."""
        count = min(self.anchors, data.entries)
        local = 4 * (count + 1) * data.items * self.factors
        beside = local + 16 * (data.users + data.items) * count
        folder = local + count * (4 * self.factors + 8)
        return als.factor_memory(data, self.factors, folder=folder, beside=beside)

    def _move(self, device: str) -> None:
        self._local = None
        if self.global_ is not None:
            self.global_.to(device)

    def score(self, histories: csr_array) -> Scores:
        """Average the local models' scores by the kernel; take the global model's where none covers a pair.

        Parameters
        ----------
        histories : csr_array
            Users × items, with values ≥ 0; their users need not be known.

        Returns
        -------
        ndarray of float32
            Users × items.
        """
        rows = als.check_values(self._check_histories(histories))
        local, item_kernel = self._local_on_device()
        global_, device = fitted(self.global_, self), local.device
        user_kernel = self._user_kernel(global_.embed(rows), device)
        otherwise = torch.from_numpy(global_.score(rows)).to(device)
        all_rows = als.row_blocks(rows, self.factors, device)
        sums = torch.zeros_like(otherwise)
        with float32_products():
            for near, item_weights, of_items in zip(
                user_kernel.T, item_kernel.T, local, strict=True
            ):
                covered = torch.nonzero(near)[:, 0]
                blocks = all_rows
                if len(covered) < len(near):
                    blocks = als.row_blocks(
                        csr_array(rows[covered.cpu().numpy()]), self.factors, device
                    )
                columns = als.Columns.as_turned(of_items, item_weights)
                of_users = torch.zeros(len(near), self.factors, device=device)
                of_users[covered] = als.solve_rows(
                    blocks, columns, self.confidence, self.user_l2 / near[covered]
                )
                sums.addmm_(of_users * near[:, None], (of_items * item_weights[:, None]).T)
            total = user_kernel @ item_kernel.T
        means = sums / total.clamp(min=torch.finfo(total.dtype).tiny)
        return torch.where(total > 0, means, otherwise).cpu().numpy()

    def _local_on_device(self) -> tuple[Tensor, Tensor]:
        """The items' factors in every local model and their kernel, moved on the first answer."""
        if self._local is None:
            device = choose_device(self.device_)
            # A copy: mapped files may not be written to.
            local = torch.from_numpy(np.array(self.local_factors_)).to(device)
            self._local = local, self._item_kernel(device)
        return self._local

    def _similarities(self, item_rows: ItemRows) -> Scores:
        """Cosines of the items' local factors K_t(i) · y_ti, those of all models t side by side.

        Where no local model covers both items it is the cosine of their factors in the global model.
        """
        local, item_kernel = self._local_on_device()
        rows = torch.from_numpy(item_rows).to(local.device)
        products = torch.zeros(len(rows), local.shape[1], device=local.device)  # (given, items)
        squares = torch.zeros(local.shape[1], device=local.device)
        with float32_products():
            for item_weights, of_items in zip(item_kernel.T, local, strict=True):
                weighted = of_items * item_weights[:, None]
                products.addmm_(weighted[rows], weighted.T)
                squares += weighted.square().sum(dim=1)
            is_covered = item_kernel[rows] @ item_kernel.T > 0
        lengths = squares.sqrt().clamp(min=torch.finfo(squares.dtype).tiny)
        found = (products / lengths[rows, None] / lengths).clamp_(-1, 1).cpu().numpy()
        otherwise = fitted(self.global_, self).similarities(item_rows)
        return np.where(is_covered.cpu().numpy(), found, otherwise)

    def check(self) -> None:
        """Refuse anchors that are none of the items."""
        n_items, anchors = self.count_items(), self.anchor_items_
        if not len(anchors) or anchors.min() < 0 or anchors.max() >= n_items:
            raise ModelFileError(f"LLORMA: expected item rows below {n_items} as anchors")


def kernel_weights(factors: Tensor, anchors: Tensor, bandwidth: float) -> Tensor:
    """(factors, anchors) weights 1 − (d/h)² below the bandwidth h, 0 from there on.

    d is (2/π) · arccos of the cosine: 0 same direction, 1 orthogonal, 2 opposite; a zero vector is orthogonal to all.
    """
    with float32_products():
        cosines = normalize(factors) @ normalize(anchors).T
    # Rounding can push a cosine past 1, where arccos is undefined.
    distances = cosines.clamp(-1, 1).arccos() * (2 / torch.pi)
    return (1 - (distances / bandwidth) ** 2).clamp(min=0)


def learn_local_factors(
    model: LLORMA, matrix: csr_array, weights: Tensor, user_kernel: Tensor, item_kernel: Tensor
) -> Tensor:
    """The items' factors of every local model, (models, items, factors); zeros for items that a model leaves out.

    The kernels are users × models and items × models; users and items without weight have no part in a model.
    """
    device = item_kernel.device
    local = torch.zeros(item_kernel.shape[1], matrix.shape[1], model.factors, device=device)
    on_users, on_items = user_kernel.cpu().numpy() > 0, item_kernel.cpu().numpy() > 0
    with bar("LLORMA: iterations of local models", len(local) * model.iterations) as progress:
        for number, found in enumerate(local):
            user_rows, item_rows = (
                np.flatnonzero(on_users[:, number]),
                np.flatnonzero(on_items[:, number]),
            )
            near_users, near_items = user_kernel[user_rows, number], item_kernel[item_rows, number]
            # The paper's regularisation is the same for all; a `Regression` counts it as often as the loss.
            users = als.Regression(weights[user_rows] * near_users, model.user_l2 / near_users)
            items = als.Regression(near_items, model.item_l2 / near_items)
            initial = als.initial_factors(model.seed, number, matrix.shape[1], model.factors)[
                item_rows
            ]
            start, part = (
                torch.from_numpy(initial).to(device),
                csr_array(matrix[user_rows][:, item_rows]),
            )
            columns = als.alternate(
                part, start, users, items, model.confidence, model.iterations, progress
            )
            found[item_rows] = columns.factors
    return local
