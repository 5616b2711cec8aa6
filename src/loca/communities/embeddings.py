"""Where user embeddings come from: a trained model's encoder, a truncated SVD, or an array that the caller has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.communities.geometry import Floats, unit_rows
from loca.data.interactions import Interactions, as_histories
from loca.data.splits import HeldOut
from loca.errors import ConfigError, DataError, ModelFileError
from loca.models.recommender import ModelState, UserWeights, check_histories, clone, fitted
from loca.random_streams import derive_seed

_USERS_PER_BLOCK = 8192


@runtime_checkable
class Embedder(Protocol):
    """Learns from interactions and embeds any history, known user or not."""

    def fit(
        self,
        train: Interactions | csr_array,
        *,
        user_weights: UserWeights | None = None,
        validation: HeldOut | None = None,
    ) -> Self: ...

    def embed(self, histories: csr_array) -> Floats: ...

    def with_selected_params(self) -> Self: ...

    def state(self) -> ModelState: ...


def embed_users(embedder: Embedder, histories: csr_array) -> Floats:
    """The embeddings of all histories, users × dimensions, made block by block; NaN is refused."""
    blocks = [
        unit_rows(embedder.embed(csr_array(histories[start : start + _USERS_PER_BLOCK])))
        for start in range(0, histories.shape[0], _USERS_PER_BLOCK)
    ]
    return np.concatenate(blocks)


class TruncatedSVD:
    """Projects a history, scaled to length 1, onto the leading right singular vectors of the scaled training rows."""

    def __init__(self, *, dimensions: int = 32, seed: int = 0) -> None:
        if not (isinstance(dimensions, int) and dimensions >= 1):
            raise ConfigError(f"dimensions: expected a whole number ≥ 1, found {dimensions!r}")
        self.dimensions = dimensions
        self.seed = seed
        self.directions_: Floats | None = None

    def fit(
        self,
        train: Interactions | csr_array,
        *,
        user_weights: UserWeights | None = None,
        validation: HeldOut | None = None,
    ) -> Self:
        """Finds the directions; weights and validation are accepted and not needed."""
        from sklearn.utils.extmath import randomized_svd

        rows = _unit_histories(as_histories(train))
        count = min(self.dimensions, min(rows.shape))
        random_state = derive_seed(self.seed, "truncated SVD") % 2**32
        _, _, right = randomized_svd(rows, count, random_state=random_state)
        self.directions_ = np.ascontiguousarray(right.T, dtype=np.float32)  # (items, dimensions)
        return self

    def embed(self, histories: csr_array) -> Floats:
        """The projections, users × dimensions."""
        directions = fitted(self.directions_, self)
        rows = _unit_histories(check_histories(histories, len(directions)))
        return np.asarray(rows @ directions, dtype=np.float32)

    def with_selected_params(self) -> Self:
        """A copy: nothing is chosen on validation."""
        return clone(self)

    def state(self) -> ModelState:
        directions = fitted(self.directions_, self)
        return ModelState(arrays={"directions": directions})

    @classmethod
    def restore(cls, params: Mapping[str, Any], state: ModelState) -> Self:
        embedder = cls(**params)
        directions = state.arrays["directions"]
        if directions.ndim != 2:
            raise ModelFileError(f"truncated SVD: expected items × dimensions, found shape {directions.shape}")
        embedder.directions_ = directions
        return embedder


class GivenEmbeddings:
    """Embeddings that the caller has for the training users, row by row; other histories are mapped to them.

    They fit one set of training users: a refit on more users (as after `hold_out_users`) needs a longer array.

    The map is a ridge regression from histories (scaled to length 1) to the given embeddings. Because answers are
    asked for histories, not for user rows, all users are embedded through it; `fit_share_` says how well it repeats
    the given ones (mean cosine).
    """

    def __init__(self, *, embeddings: npt.NDArray[Any], ridge: float = 1.0) -> None:
        self.embeddings = embeddings
        self.ridge = ridge
        unit_rows(embeddings)
        if not ridge > 0:
            raise ConfigError(f"ridge: expected a number above 0, found {ridge!r}")
        self.item_vectors_: Floats | None = None
        self.fit_share_: float | None = None

    def fit(
        self,
        train: Interactions | csr_array,
        *,
        user_weights: UserWeights | None = None,
        validation: HeldOut | None = None,
    ) -> Self:
        """Learns the map from histories to the given embeddings."""
        from sklearn.linear_model import Ridge

        rows = _unit_histories(as_histories(train))
        if len(self.embeddings) != rows.shape[0]:
            raise DataError(
                f"embeddings: expected {rows.shape[0]:,} rows, one per user, found {len(self.embeddings):,}"
            )
        given = unit_rows(self.embeddings)
        solver = Ridge(alpha=self.ridge, fit_intercept=False, solver="sparse_cg", tol=1e-6)
        vectors = solver.fit(rows.astype(np.float64), given.astype(np.float64)).coef_
        self.item_vectors_ = np.ascontiguousarray(np.atleast_2d(vectors).T, dtype=np.float32)  # (items, dimensions)
        self.fit_share_ = float((unit_rows(rows @ self.item_vectors_) * given).sum(axis=1).mean())
        return self

    def embed(self, histories: csr_array) -> Floats:
        """The mapped histories, users × dimensions."""
        vectors = fitted(self.item_vectors_, self)
        rows = _unit_histories(check_histories(histories, len(vectors)))
        return np.asarray(rows @ vectors, dtype=np.float32)

    def with_selected_params(self) -> Self:
        """A copy: nothing is chosen on validation."""
        return clone(self)

    def state(self) -> ModelState:
        vectors = fitted(self.item_vectors_, self)
        return ModelState(arrays={"item_vectors": vectors}, facts={"fit_share": self.fit_share_})

    @classmethod
    def restore(cls, params: Mapping[str, Any], state: ModelState) -> Self:
        embedder = cls(**params)
        vectors = state.arrays["item_vectors"]
        if vectors.ndim != 2:
            raise ModelFileError(f"given embeddings: expected items × dimensions, found shape {vectors.shape}")
        embedder.item_vectors_ = vectors
        embedder.fit_share_ = state.facts["fit_share"]
        return embedder


def _unit_histories(histories: csr_array) -> csr_array:
    """Rows scaled to length 1; an empty row stays empty."""
    rows = csr_array(histories, copy=True).astype(np.float32)
    lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
    rows.data /= np.repeat(np.maximum(lengths, 1e-12), np.diff(rows.indptr)).astype(np.float32)
    return rows
