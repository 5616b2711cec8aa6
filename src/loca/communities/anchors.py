"""Anchor users: those whose neighbourhoods become communities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, assert_never

import numpy as np

from loca.communities.clusters import k_means
from loca.communities.coverage import cover_greedily
from loca.errors import DataError, check_counts
from loca.random_streams import derive_seed, stream
from loca.typing import FloatArray, IntArray

if TYPE_CHECKING:
    import torch

AnchorSelection = Literal["coverage", "random", "kmeans", "farthest"]
_USERS_PER_BATCH = 4_096


def choose_anchors(
    embeddings: FloatArray,
    n: int,
    selection: AnchorSelection,
    answer_radius: float,
    seed: int,
    device: str | torch.device = "cpu",
    users_for_batches: int = 50_000,
) -> IntArray:
    """Return the rows of `n` different users, in the order in which they were chosen.

    `coverage` is the paper's way, and alone makes use of a GPU. `farthest` takes a random first
    user, then always the user who is farthest from the nearest anchor. `kmeans` takes the user
    nearest to each centre; of more than `users_for_batches` users it looks at a batch at a time:
    centres a little less tight, in a fraction of the time. Embeddings are rows of length 1.
    """
    check_counts(n=n)
    if n > len(embeddings):
        raise DataError(f"n: expected at most {len(embeddings):,} anchors, one a user, found {n:,}")
    match selection:
        case "coverage":
            return cover_greedily(embeddings, n, answer_radius, device)
        case "random":
            drawn = stream(seed, "random anchors").choice(len(embeddings), n, replace=False)
            return drawn.astype(np.int64)
        case "farthest":
            return _farthest_users(embeddings, n, seed)
        case "kmeans":
            return _users_nearest_to_means(embeddings, n, seed, users_for_batches)
    assert_never(selection)


def _farthest_users(embeddings: FloatArray, n: int, seed: int) -> IntArray:
    chosen = [int(stream(seed, "first farthest anchor").integers(len(embeddings)))]
    # Cosine to the nearest anchor: the larger, the nearer.
    nearest = embeddings @ embeddings[chosen[0]]
    while len(chosen) < n:
        nearest[chosen[-1]] = np.inf
        chosen.append(int(nearest.argmin()))
        np.maximum(nearest, embeddings @ embeddings[chosen[-1]], out=nearest)
    return np.array(chosen, dtype=np.int64)


def _users_nearest_to_means(
    embeddings: FloatArray, n: int, seed: int, users_for_batches: int
) -> IntArray:
    seed = derive_seed(seed, "k-means")
    if len(embeddings) > users_for_batches:
        clusters = k_means(embeddings, n, seed, max_iter=100, batch_size=_USERS_PER_BATCH)
    else:
        clusters = k_means(embeddings, n, seed, max_iter=300)
    chosen: list[int] = []
    for centre in clusters.centres:
        closeness = embeddings @ centre
        closeness[chosen] = -np.inf
        chosen.append(int(closeness.argmax()))
    return np.array(chosen, dtype=np.int64)
