"""Users in groups by the direction of their embeddings: k-means whose start knows weights, not copies, of users."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[Any]
# Squared distances below this are rounding: both points are one.
_SAME_POINT = 1e-9
_MOST_STEPS = 100


def group_users(
    embeddings: Floats, weights: Floats, count: int, line: Floats, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """The group of every user, 0 to below `count`: weighted k-means of the embeddings scaled to length 1.

    A user of weight 2 counts as two equal users, also where the first centres are drawn. `line` is any direction
    among the embeddings: the draw walks along it, so that neither the order of the users nor their copies matter
    (but for users who are exactly as near to two centres). Where fewer points than `count` differ, there are fewer
    groups.
    """
    from sklearn.cluster import KMeans

    lengths = np.linalg.norm(embeddings, axis=1, keepdims=True)
    points = embeddings / np.maximum(lengths, np.finfo(np.float64).tiny)
    centres = _draw_centres(points, weights, count, line, rng)
    # A tolerance above 0 would be scaled by a variance that counts users without their weights.
    means = KMeans(len(centres), init=centres, n_init=1, max_iter=_MOST_STEPS, tol=0.0, algorithm="lloyd")
    return np.asarray(means.fit(points, sample_weight=weights).labels_, dtype=np.int64)


def _draw_centres(points: Floats, weights: Floats, count: int, line: Floats, rng: np.random.Generator) -> Floats:
    """Users drawn as k-means++ does (Arthur and Vassilvitskii 2007): each by weight times squared distance so far."""
    order = np.argsort(points @ line, kind="stable")  # copies of a user stand side by side
    distances = np.full(len(points), 4.0)  # no two points of length 1 are further apart, squared
    chosen: list[int] = []
    while len(chosen) < count and distances.any():
        heaped = np.cumsum((weights * distances)[order])
        place = np.searchsorted(heaped, rng.random() * heaped[-1], side="right")
        chosen.append(int(order[min(place, len(order) - 1)]))
        near = 2.0 - 2.0 * (points @ points[chosen[-1]])
        if not points[chosen[-1]].any():
            near[~points.any(axis=1)] = 0.0  # users without a direction are one point
        distances = np.minimum(distances, near)
        distances[distances < _SAME_POINT] = 0.0
    return points[chosen]
