"""Which users become anchors: by greedy coverage (the paper's way), at random, by k-means, or far from each other."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import torch

from loca.communities.coverage import AnchorRows, cover_greedily
from loca.communities.geometry import Floats
from loca.errors import ConfigError, DataError, did_you_mean
from loca.random_streams import derive_seed, stream

AnchorSelection = Literal["coverage", "random", "kmeans", "farthest"]
_USERS_FOR_WHOLE_K_MEANS = 50_000
_USERS_PER_BATCH = 4_096


def check_selection(name: str) -> None:
    """Refuses a way of choosing that does not exist, naming the nearest."""
    if name not in get_args(AnchorSelection):
        raise ConfigError(f"unknown anchor_selection {name!r}{did_you_mean(name, get_args(AnchorSelection))}")


def check_too_many(count: int, user_count: int) -> None:
    """Refuses more anchors than users."""
    if count > user_count:
        raise DataError(f"anchors: {count:,} were asked for, there are only {user_count:,} users; take fewer")


def choose_anchors(
    embeddings: Floats,
    count: int,
    selection: AnchorSelection,
    answer_bandwidth: float,
    seed: int,
    device: str | torch.device = "cpu",
) -> AnchorRows:
    """The rows of `count` different users, in the order in which they were chosen; embeddings are unit rows.

    Only coverage makes use of a GPU; the other ways are quick without one.
    """
    if count < 1:
        raise ConfigError(f"anchors: expected at least 1, found {count}")
    check_too_many(count, len(embeddings))
    if selection == "coverage":
        return cover_greedily(embeddings, count, answer_bandwidth, device)
    if selection == "random":
        return stream(seed, "random anchors").choice(len(embeddings), count, replace=False).astype(np.int64)
    if selection == "kmeans":
        return nearest_to_centres(embeddings, count, seed)
    return farthest_first(embeddings, count, seed)


def nearest_to_centres(embeddings: Floats, count: int, seed: int) -> AnchorRows:
    """K-means on the unit rows, then for each centre the nearest user not taken yet.

    Very many users are looked at a batch at a time: the centres are a little less tight, in a fraction of the time.
    """
    from sklearn.cluster import KMeans, MiniBatchKMeans

    random_state = derive_seed(seed, "k-means") % 2**32
    means = KMeans(count, n_init=1, random_state=random_state)
    if len(embeddings) > _USERS_FOR_WHOLE_K_MEANS:
        means = MiniBatchKMeans(count, n_init=1, batch_size=_USERS_PER_BATCH, random_state=random_state)
    taken: list[int] = []
    for centre in np.asarray(means.fit(embeddings).cluster_centers_, dtype=np.float32):
        closeness = embeddings @ centre
        closeness[taken] = -np.inf
        taken.append(int(closeness.argmax()))
    return np.array(taken, dtype=np.int64)


def farthest_first(embeddings: Floats, count: int, seed: int) -> AnchorRows:
    """A random first user, then always the user who is farthest from the nearest anchor."""
    chosen = [int(stream(seed, "first farthest anchor").integers(len(embeddings)))]
    nearest = embeddings @ embeddings[chosen[0]]  # cosine to the nearest anchor: the larger, the nearer
    while len(chosen) < count:
        nearest[chosen[-1]] = np.inf
        chosen.append(int(nearest.argmin()))
        np.maximum(nearest, embeddings @ embeddings[chosen[-1]], out=nearest)
    return np.array(chosen, dtype=np.int64)
