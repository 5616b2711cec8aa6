"""Clusters of users by k-means, the same on every run."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from loca.typing import FloatArray


class Clusters(NamedTuple):
    """The centre of each cluster, and the cluster of each user."""

    centres: FloatArray  # (clusters, dimensions)
    labels: npt.NDArray[np.int32]  # (users,)


def k_means(
    embeddings: FloatArray, n: int, seed: int, *, max_iter: int, batch_size: int | None = None
) -> Clusters:
    """Return `n` clusters of one start.

    It is done in one thread: several would add up in an order of their own. With a batch size it
    looks at so many users at a time: centres a little less tight, in a fraction of the time. Fewer
    different users than clusters are no reason to warn.
    """
    from sklearn.cluster import KMeans, MiniBatchKMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    random_state = seed % 2**32
    if batch_size is None:
        means = KMeans(n, n_init=1, max_iter=max_iter, random_state=random_state)
    else:
        means = MiniBatchKMeans(
            n, n_init=1, max_iter=max_iter, batch_size=batch_size, random_state=random_state
        )
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        means.fit(embeddings)
    return Clusters(np.asarray(means.cluster_centers_, dtype=np.float32), means.labels_)
