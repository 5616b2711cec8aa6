"""Embedders of users: a trained model's encoder, a truncated SVD, or an array of the caller's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.communities.geometry import check_embeddings, unit_rows
from loca.communities.sparse_rows import unit_length_rows, weighted_rows
from loca.data.interactions import Interactions
from loca.errors import DataError
from loca.memory import DataSize, MemoryUse
from loca.models.params import param, positive, seed_param, whole
from loca.models.recommender import (
    BaseEstimator,
    TrainingData,
    check_histories,
    fitted,
)
from loca.persistence.learned import learned, learned_fact
from loca.random_streams import derive_seed
from loca.typing import FloatArray

_USERS_PER_BLOCK = 8192


@runtime_checkable
class Embedder(Protocol):
    """Learn from interactions, and embed any history, known user or not."""

    train_data_: Interactions | None

    @property
    def embedding_size(self) -> int:
        """The dimensions of an embedding; of an unfitted embedder the most that it can have."""

    def embed(self, histories: csr_array) -> FloatArray:
        """Return the embedding of each history, users × dimensions."""

    def selected(self) -> Self:
        """Return an unfitted copy with what the fit chose."""

    def memory_bytes(self, data: DataSize) -> MemoryUse:
        """Estimate what a fit takes."""


def embed_users(embedder: Embedder, histories: csr_array) -> FloatArray:
    """Return embeddings of histories as rows of length 1, users × dimensions; NaN is refused."""
    return unit_rows(embed_in_blocks(embedder, histories))


def embed_in_blocks(embedder: Embedder, histories: csr_array) -> FloatArray:
    """Return the embeddings of histories as they are, users × dimensions, made block by block.

    Without histories there is one empty block, from which the number of dimensions follows.
    """
    starts = range(0, max(histories.shape[0], 1), _USERS_PER_BLOCK)
    blocks = (csr_array(histories[start : start + _USERS_PER_BLOCK]) for start in starts)
    return np.concatenate([embedder.embed(block) for block in blocks])


@dataclass(kw_only=True, eq=False, repr=False)
class TruncatedSVD(BaseEstimator):
    """Embed a history by a truncated singular value decomposition.

    The history, scaled to length 1, is projected onto the leading right singular vectors of the
    training histories, scaled likewise.

    Parameters
    ----------
    dimensions : int, default 32
        Singular vectors, and so numbers of an embedding; at most as many as there are users and
        items.
    seed : int, default 0
        Seed of the randomised decomposition.

    Examples
    --------
    >>> planted = loca.planted_communities(
    ...     users=60, items=30, groups=5, history=12, shortest_history=10
    ... )
    >>> data = planted.interactions
    >>> loca.TruncatedSVD(dimensions=4).fit(data).embed(data.histories()).shape
    (60, 4)

    A local model that finds its communities among these embeddings:

    >>> kernels = loca.Kernels(n=3, embedding=loca.TruncatedSVD(dimensions=4))
    >>> model = loca.Loca(base=loca.EASE(), communities=kernels)
    """

    dimensions: int = whole(32)
    seed: int = seed_param()
    # NaN of a file is refused when users are embedded, without reading the array in advance.
    directions_: FloatArray | None = learned("items", "directions", finite=False)

    def _fit(self, data: TrainingData) -> None:
        from sklearn.utils.extmath import randomized_svd

        rows = weighted_rows(unit_length_rows(data.histories), data.user_weights)
        count = min(self.dimensions, min(rows.shape))
        random_state = derive_seed(self.seed, "truncated SVD") % 2**32
        _, _, right = randomized_svd(rows, count, random_state=random_state)
        self.directions_ = np.ascontiguousarray(right.T, dtype=np.float32)  # (items, directions)

    @property
    def embedding_size(self) -> int:
        """The number of singular vectors."""
        return self.dimensions if self.directions_ is None else self.directions_.shape[1]

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
        """Estimate factors of the sampled range, their decomposition, and the scaled rows."""
        directions = 4 * data.items * min(self.dimensions, data.items)
        main = 4 * (directions + 4 * data.users * self.dimensions) + 16 * data.entries
        return MemoryUse(main=main, main_after=directions, folder=directions)


def _is_numbers(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "iuf"


@dataclass(kw_only=True, eq=False, repr=False)
class GivenEmbeddings(BaseEstimator):
    """Map histories to embeddings that the caller has for the training users.

    They fit one set of training users: a refit on more users (as after `hold_out_users`) needs a
    longer array.

    The map is a ridge regression from histories (scaled to length 1) to the given embeddings.
    Because scores are computed for histories, not for user rows, all users are embedded through it.

    Parameters
    ----------
    embeddings : ndarray
        Users × dimensions, one row per training user, in their order; only the directions matter.
    ridge : float, default 1.0
        Regularisation of the map, above 0.

    Attributes
    ----------
    mean_cosine_ : float
        How well the map repeats the given embeddings: the mean cosine over the training users.

    Examples
    --------
    >>> import numpy as np
    >>> planted = loca.planted_communities(
    ...     users=60, items=30, groups=5, history=12, shortest_history=10
    ... )
    >>> data = planted.interactions
    >>> given = np.random.default_rng(0).normal(size=(60, 3))
    >>> model = loca.GivenEmbeddings(embeddings=given).fit(data)
    >>> model.embed(data.histories()).shape
    (60, 3)
    >>> 0 < model.mean_cosine_ < 1
    True
    """

    embeddings: npt.NDArray[Any] = param(
        ..., "an array of numbers, users × dimensions", _is_numbers
    )
    ridge: float = positive(1.0)
    # As for TruncatedSVD.
    item_vectors_: FloatArray | None = learned("items", "dimensions", finite=False)
    mean_cosine_: float | None = learned_fact("a number", lambda value: isinstance(value, float))

    def __post_init__(self) -> None:
        super().__post_init__()
        check_embeddings(np.asarray(self.embeddings, dtype=np.float32))

    def _fit(self, data: TrainingData) -> None:
        from sklearn.linear_model import Ridge

        rows = unit_length_rows(data.histories)
        if len(self.embeddings) != rows.shape[0]:
            raise DataError(
                f"embeddings: expected {rows.shape[0]:,} rows, one per user, "
                f"found {len(self.embeddings):,}"
            )
        targets = unit_rows(self.embeddings)
        weights = None if (data.user_weights == 1).all() else data.user_weights
        solver = Ridge(alpha=self.ridge, fit_intercept=False, solver="sparse_cg", tol=1e-6)
        solver.fit(rows.astype(np.float64), targets.astype(np.float64), sample_weight=weights)
        vectors = np.atleast_2d(solver.coef_).T  # (items, dimensions)
        self.item_vectors_ = np.ascontiguousarray(vectors, dtype=np.float32)
        cosines = (unit_rows(rows @ self.item_vectors_) * targets).sum(axis=1)
        self.mean_cosine_ = float(cosines.mean())

    @property
    def embedding_size(self) -> int:
        """The number of dimensions."""
        return int(self.embeddings.shape[1])

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
        """Estimate the map and the embeddings in 64 bits, and the scaled rows.

        The embeddings are saved as a parameter.
        """
        vectors = 4 * data.items * self.embedding_size
        targets = self.embeddings.nbytes
        main = 4 * vectors + 4 * targets + 48 * data.entries
        return MemoryUse(main=main, main_after=vectors, folder=vectors + targets)


def _project(histories: csr_array, item_vectors: FloatArray) -> FloatArray:
    rows = unit_length_rows(check_histories(histories, len(item_vectors)))
    return np.asarray(rows @ item_vectors, dtype=np.float32)
