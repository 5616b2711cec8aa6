"""Where user embeddings come from: a trained model's encoder, a truncated SVD, or an array that the caller has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.communities.geometry import unit_rows
from loca.data.interactions import Interactions
from loca.errors import ConfigError, DataError
from loca.memory import DataSize, MemoryUse
from loca.models.params import param, positive, seed_param, whole
from loca.models.recommender import (
    BaseEstimator,
    TrainingData,
    check_histories,
    fitted,
    get_params,
)
from loca.persistence.learned import learned, learned_fact
from loca.random_streams import derive_seed
from loca.typing import FloatArray

_USERS_PER_BLOCK = 8192


@runtime_checkable
class Embedder(Protocol):
    """Learns from interactions and embeds any history, known user or not."""

    train_data_: Interactions | None

    def embed(self, histories: csr_array) -> FloatArray: ...

    def selected(self) -> Self: ...

    def memory_bytes(self, data: DataSize) -> MemoryUse: ...


def embed_users(embedder: Embedder, histories: csr_array) -> FloatArray:
    """The embeddings of all histories, users × dimensions, made block by block, rows of length 1; NaN is refused.

    Log memberships stay as they are.
    """
    starts = range(0, max(histories.shape[0], 1), _USERS_PER_BLOCK)
    embedded = (
        embedder.embed(csr_array(histories[start : start + _USERS_PER_BLOCK])) for start in starts
    )
    as_they_are = getattr(embedder, "gives_memberships", False)
    return np.concatenate([rows if as_they_are else unit_rows(rows) for rows in embedded])


def embedding_dimensions(embedder: object) -> int:
    """How many numbers embed a user, as the embedder's parameters say."""
    params = get_params(embedder)
    if "embeddings" in params:
        return int(params["embeddings"].shape[1])
    if "components" in params:
        return int(params["components"] * params["mixtures"])
    sizes = [params[name] for name in ("dimensions", "latent", "factors") if name in params]
    if not sizes:
        found = type(embedder).__name__
        raise ConfigError(
            f"embedding: expected svd, mult-vae, mult-dae, cdae, rec-vae or wmf, found {found}"
        )
    return int(sizes[0])


@dataclass(kw_only=True, eq=False, repr=False)
class TruncatedSVD(BaseEstimator):
    """Embed a history, scaled to length 1, by the leading right singular vectors of the scaled training rows.

    Parameters
    ----------
    dimensions : int, default 32
        Singular vectors, and so numbers of an embedding; at most as many as there are users and items.
    seed : int, default 0
        Seed of the randomised decomposition.

    Examples
    --------
    >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12, shortest_history=10).interactions
    >>> loca.TruncatedSVD(dimensions=4).fit(data).embed(data.histories()).shape
    (60, 4)

    A local model that finds its communities among these embeddings:

    >>> kernels = loca.Kernels(n=3, embedding=loca.TruncatedSVD(dimensions=4))
    >>> model = loca.Loca(base=loca.EASE(), communities=kernels)
    """

    dimensions: int = whole(32)
    seed: int = seed_param()
    directions_: FloatArray | None = learned("items", "directions", finite=False)

    def _fit(self, data: TrainingData) -> None:
        from sklearn.utils.extmath import randomized_svd

        rows = _weighted(_unit_histories(data.histories), data.user_weights)
        count = min(self.dimensions, min(rows.shape))
        random_state = derive_seed(self.seed, "truncated SVD") % 2**32
        _, _, right = randomized_svd(rows, count, random_state=random_state)
        self.directions_ = np.ascontiguousarray(right.T, dtype=np.float32)  # (items, dimensions)

    def embed(self, histories: csr_array) -> FloatArray:
        """Project histories onto the singular vectors.

        Parameters
        ----------
        histories : csr_array
            Users × items; their users need not be known.

        Returns
        -------
        ndarray of float32
            Users × dimensions.
        """
        return _project(histories, fitted(self.directions_, self))

    def memory_bytes(self, data: DataSize) -> MemoryUse:
        """Factors of the sampled range, their decomposition, and the scaled rows."""
        directions = 4 * data.items * min(self.dimensions, data.items)
        main = 4 * (directions + 4 * data.users * self.dimensions) + 16 * data.entries
        return MemoryUse(main=main, main_after=directions, folder=directions)


def _is_numbers(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "iuf"


@dataclass(kw_only=True, eq=False, repr=False)
class GivenEmbeddings(BaseEstimator):
    """Map histories to embeddings that the caller has for the training users.

    They fit one set of training users: a refit on more users (as after `hold_out_users`) needs a longer array.

    The map is a ridge regression from histories (scaled to length 1) to the given embeddings. Because scores are
    computed for histories, not for user rows, all users are embedded through it; `fit_share_` says how well it repeats
    the given ones (mean cosine).

    Parameters
    ----------
    embeddings : ndarray
        Users × dimensions, one row per training user, in their order; only the directions matter.
    ridge : float, default 1.0
        Regularisation of the map, above 0.

    Examples
    --------
    >>> import numpy as np
    >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12, shortest_history=10).interactions
    >>> given = np.random.default_rng(0).normal(size=(60, 3))
    >>> model = loca.GivenEmbeddings(embeddings=given).fit(data)
    >>> model.embed(data.histories()).shape
    (60, 3)
    >>> 0 < model.fit_share_ < 1
    True
    """

    embeddings: npt.NDArray[Any] = param(
        ..., "an array of numbers, users × dimensions", _is_numbers
    )
    ridge: float = positive(1.0)
    item_vectors_: FloatArray | None = learned("items", "dimensions", finite=False)
    fit_share_: float | None = learned_fact("a number", lambda value: isinstance(value, float))

    def __post_init__(self) -> None:
        super().__post_init__()
        unit_rows(self.embeddings)

    def _fit(self, data: TrainingData) -> None:
        from sklearn.linear_model import Ridge

        rows = _unit_histories(data.histories)
        if len(self.embeddings) != rows.shape[0]:
            found = f"{len(self.embeddings):,}"
            raise DataError(
                f"embeddings: expected {rows.shape[0]:,} rows, one per user, found {found}"
            )
        given = unit_rows(self.embeddings)
        solver = Ridge(alpha=self.ridge, fit_intercept=False, solver="sparse_cg", tol=1e-6)
        weights = None if (data.user_weights == 1).all() else data.user_weights
        targets = given.astype(np.float64)
        vectors = solver.fit(rows.astype(np.float64), targets, sample_weight=weights).coef_
        self.item_vectors_ = np.ascontiguousarray(
            np.atleast_2d(vectors).T, dtype=np.float32
        )  # (items, dimensions)
        self.fit_share_ = float((unit_rows(rows @ self.item_vectors_) * given).sum(axis=1).mean())

    def embed(self, histories: csr_array) -> FloatArray:
        """Map histories to embeddings.

        Parameters
        ----------
        histories : csr_array
            Users × items; their users need not be known.

        Returns
        -------
        ndarray of float32
            Users × dimensions.
        """
        return _project(histories, fitted(self.item_vectors_, self))

    def memory_bytes(self, data: DataSize) -> MemoryUse:
        """The map and the embeddings in 64 bits, and the scaled rows; the embeddings are saved as a parameter."""
        vectors, given = 4 * data.items * self.embeddings.shape[1], self.embeddings.nbytes
        main = 4 * vectors + 4 * given + 48 * data.entries
        return MemoryUse(main=main, main_after=vectors, folder=vectors + given)


def _project(histories: csr_array, item_vectors: FloatArray) -> FloatArray:
    rows = _unit_histories(check_histories(histories, len(item_vectors)))
    return np.asarray(rows @ item_vectors, dtype=np.float32)


def _unit_histories(histories: csr_array) -> csr_array:
    """Rows scaled to length 1; an empty row stays empty."""
    rows = csr_array(histories, copy=True).astype(np.float32)
    lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
    rows.data /= np.repeat(np.maximum(lengths, 1e-12), np.diff(rows.indptr)).astype(np.float32)
    return rows


def _weighted(rows: csr_array, user_weights: FloatArray) -> csr_array:
    """Return rows whose squares count by the users' weights: a user of weight 2 like two users."""
    if (user_weights == 1).all():
        return rows
    factors = np.repeat(np.sqrt(user_weights), np.diff(rows.indptr))
    values = (rows.data * factors).astype(np.float32)
    return csr_array((values, rows.indices, rows.indptr), shape=rows.shape)
