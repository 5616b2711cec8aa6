"""LLORMA (Lee et al. 2013, 2016) for implicit feedback: local factor models around random pairs, answered as one.

Two departures from the paper: a local model is a weighted WMF over all pairs instead of a factorisation of ratings,
and the kernel is the true Epanechnikov, 1 − (d/h)² below the bandwidth h. The paper prints 1 − d² there, which is
negative beyond d = 1, while wide bandwidths are what implicit feedback wants. Above h = 2 every pair is covered.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor

from loca.data.held_out import HeldOut
from loca.data.interactions import Interactions, as_matrix
from loca.errors import ConfigError, ModelFileError
from loca.files import save_model
from loca.models.devices import check_device, choose_device
from loca.models.factors import Floats, check_values
from loca.models.local_factors import LocalFactors, LocalLearning, kernel_weights, learn_local_factors
from loca.models.recommender import (
    ModelState,
    Scores,
    UserWeights,
    are_finite_floats,
    check_histories,
    check_user_weights,
    clone,
    fitted,
)
from loca.models.wmf import WMF, check_factorisation, plan_alternating
from loca.random_streams import stream


class LLORMA:
    """Scores = Σ_t K_t(u) K_t(i) x_t · y_ti / Σ_t K_t(u) K_t(i) over local WMF models t, else those of a global WMF.

    Each model stands around a stored pair, drawn at random, and learns from every pair with the weight K_t(u) K_t(i)
    (`WMF` has the loss), K being the kernel of the distance (2/π) · arccos of the cosine between the global factors.
    Any history is embedded by the global model, and then solved for its factor in each local model that covers it.
    """

    def __init__(
        self,
        *,
        anchors: int = 100,
        bandwidth: float = 4.0,
        factors: int = 64,
        confidence: float = 100.0,
        user_l2: float = 100.0,
        item_l2: float = 100.0,
        iterations: int = 5,
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        check_factorisation(factors, confidence, user_l2, item_l2, iterations)
        if not (isinstance(anchors, int) and not isinstance(anchors, bool) and anchors >= 1):
            raise ConfigError(f"anchors: expected a whole number ≥ 1, found {anchors!r}")
        if not 0 < bandwidth < math.inf:
            raise ConfigError(f"bandwidth: expected a number above 0, found {bandwidth!r}")
        check_device(device)
        self.anchors = anchors
        self.bandwidth = bandwidth
        self.factors = factors
        self.confidence = confidence
        self.user_l2 = user_l2
        self.item_l2 = item_l2
        self.iterations = iterations
        self.seed = seed
        self.device = device
        self.global_: WMF | None = None
        self.anchor_users_: Floats | None = None  # (anchors, factors)
        self.anchor_items_: npt.NDArray[np.int64] | None = None  # (anchors,)
        self.local_factors_: Floats | None = None  # (anchors, items, factors)
        self.known_: Interactions | None = None
        self._local: LocalFactors | None = None

    def fit(
        self,
        train: Interactions | csr_array,
        *,
        user_weights: UserWeights | None = None,
        validation: HeldOut | None = None,
    ) -> Self:
        """The global model, the anchors, and one local model after the other; validation is accepted and not needed.

        A user with weight 2 counts as two equal users in every model, but is drawn as an anchor no more often.
        """
        matrix = as_matrix(train)
        weights = check_user_weights(user_weights, matrix.shape[0])
        self.local_factors_, self._local = None, None  # what an earlier fit learned makes room
        self.known_ = train if isinstance(train, Interactions) else None
        taking_part = np.flatnonzero(weights)
        rows, weights = check_values(matrix[taking_part]), weights[taking_part]
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
        return self

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

    def count_items(self) -> int:
        """How many items it scores."""
        return int(fitted(self.local_factors_, self).shape[1])

    def as_chosen(self) -> Self:
        """A copy: nothing is chosen on validation."""
        return clone(self)

    def state(self) -> ModelState:
        arrays: dict[str, npt.NDArray[Any]] = {
            "local_factors": fitted(self.local_factors_, self),
            "anchor_users": fitted(self.anchor_users_, self),
            "anchor_items": fitted(self.anchor_items_, self),
        }
        return ModelState(arrays, parts={"global": fitted(self.global_, self)})

    @classmethod
    def restore(cls, params: Mapping[str, Any], state: ModelState) -> Self:
        model = cls(**params)
        of_all = state.parts["global"]
        if type(of_all) is not WMF or of_all.factors != model.factors:
            raise ModelFileError(f"LLORMA: expected a global WMF of {model.factors} factors, found another model")
        items, arrays = of_all.count_items(), state.arrays
        learned, users, rows = arrays["local_factors"], arrays["anchor_users"], arrays["anchor_items"]
        count = rows.size
        expected = {"local_factors": (count, items, model.factors), "anchor_users": (count, model.factors)}
        for name, shape in expected.items():
            found = arrays[name]
            if found.shape != shape or not are_finite_floats(found):
                raise ModelFileError(
                    f"LLORMA: expected {name} of shape {shape}, finite, in 32 bits, found {found.shape}, {found.dtype}"
                )
        if rows.ndim != 1 or rows.dtype != np.int64 or not count or rows.min() < 0 or rows.max() >= items:
            raise ModelFileError(f"LLORMA: expected item rows below {items} as anchors")
        model.global_, model.local_factors_, model.anchor_users_, model.anchor_items_ = of_all, learned, users, rows
        return model

    def save(self, folder: str | Path) -> None:
        """Writes the model into a folder, whole or not at all."""
        save_model(self, folder)
