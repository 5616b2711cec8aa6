"""Which users become anchors: by greedy coverage (the paper's way), at random, by k-means, or far from each other."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from loca.communities.geometry import Floats, cosine_within
from loca.errors import ConfigError, DataError, did_you_mean
from loca.memory import plan_memory
from loca.progress import bar
from loca.random_streams import derive_seed, stream

AnchorSelection = Literal["coverage", "random", "kmeans", "farthest"]
AnchorRows = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint64]
_ROWS_PER_BLOCK = 1024
_CANDIDATES_PER_LOOK = 256


def check_selection(name: str) -> None:
    """Refuses a way of choosing that does not exist, naming the nearest."""
    if name not in get_args(AnchorSelection):
        raise ConfigError(f"unknown anchor_selection {name!r}{did_you_mean(name, get_args(AnchorSelection))}")


def refuse_too_many(count: int, user_count: int) -> None:
    """Refuses more anchors than users."""
    if count > user_count:
        raise DataError(f"anchors: {count:,} were asked for, there are only {user_count:,} users; take fewer")


def choose_anchors(
    embeddings: Floats, count: int, selection: AnchorSelection, answer_bandwidth: float, seed: int
) -> AnchorRows:
    """The rows of `count` different users, in the order in which they were chosen; embeddings are unit rows."""
    if count < 1:
        raise ConfigError(f"anchors: expected at least 1, found {count}")
    refuse_too_many(count, len(embeddings))
    if selection == "coverage":
        return cover_greedily(embeddings, count, answer_bandwidth)
    if selection == "random":
        return stream(seed, "random anchors").choice(len(embeddings), count, replace=False).astype(np.int64)
    if selection == "kmeans":
        return nearest_to_centres(embeddings, count, seed)
    return farthest_first(embeddings, count, seed)


def cover_greedily(embeddings: Floats, count: int, bandwidth: float) -> AnchorRows:
    """Each step takes the user whose neighbourhood {distance < bandwidth} holds the most users not yet covered.

    All users are candidates; ties go to the lower row; when all are covered the covered set is emptied and the
    choosing goes on. Exact: gains only fall while the covered set grows, so a gain known from before is an upper
    bound, and only candidates whose bound reaches the best exact gain are looked at again. Neighbourhoods are kept
    as bits, an eighth of a byte per pair of users.
    """
    neighbours = neighbour_bits(embeddings, bandwidth)
    sizes = np.bitwise_count(neighbours).sum(axis=1, dtype=np.int64)
    everyone = np.bitwise_or.reduce(neighbours, axis=0)  # users that some neighbourhood holds at all
    covered = np.zeros_like(everyone)
    bounds = sizes.copy()
    chosen: list[int] = []
    with bar("anchors by coverage", count) as progress:
        while len(chosen) < count:
            anchor = _largest_gain(neighbours, covered, bounds)
            chosen.append(anchor)
            covered |= neighbours[anchor]
            bounds[anchor] = -1  # never chosen again
            progress.advance()
            if np.array_equal(covered, everyone):
                covered[:] = 0
                bounds = sizes.copy()
                bounds[chosen] = -1
    return np.array(chosen, dtype=np.int64)


def _largest_gain(neighbours: Bits, covered: Bits, bounds: npt.NDArray[np.int64]) -> int:
    """The user with the most uncovered neighbours, the lower row on ties; `bounds` is tightened on the way."""
    order = np.argsort(-bounds, kind="stable")
    best_gain, best_row = -1, len(bounds)
    for start in range(0, len(order), _CANDIDATES_PER_LOOK):
        rows = order[start : start + _CANDIDATES_PER_LOOK]
        rows = rows[bounds[rows] >= max(best_gain, 0)]
        if not len(rows):
            break
        gains = np.bitwise_count(neighbours[rows] & ~covered).sum(axis=1, dtype=np.int64)
        bounds[rows] = gains
        top = int(gains.max())
        row = int(rows[gains == top].min())
        if top > best_gain or (top == best_gain and row < best_row):
            best_gain, best_row = top, row
    return best_row


def neighbour_bits(embeddings: Floats, bandwidth: float) -> Bits:
    """Bit v of row u says whether user v is within the bandwidth of user u, (users, users / 64)."""
    user_count = len(embeddings)
    words = -(-user_count // 64)
    plan_memory(
        f"greedy coverage over {user_count:,} users",
        user_count * words * 8,
        "use anchor_selection 'kmeans', 'farthest' or 'random'",
    )
    nearest_cosine = np.float32(cosine_within(bandwidth))
    bits = np.zeros((user_count, words * 8), dtype=np.uint8)
    for start in range(0, user_count, _ROWS_PER_BLOCK):
        stop = min(start + _ROWS_PER_BLOCK, user_count)
        within = embeddings[start:stop] @ embeddings.T > nearest_cosine  # (rows, users)
        within[np.arange(stop - start), np.arange(start, stop)] = True  # rounding must not part a user from itself
        bits[start:stop, : -(-user_count // 8)] = np.packbits(within, axis=1)
    return bits.view(np.uint64)


def nearest_to_centres(embeddings: Floats, count: int, seed: int) -> AnchorRows:
    """K-means on the unit rows, then for each centre the nearest user not taken yet."""
    from sklearn.cluster import KMeans

    random_state = derive_seed(seed, "k-means") % 2**32
    centres = KMeans(count, n_init=1, random_state=random_state).fit(embeddings).cluster_centers_
    taken: list[int] = []
    for centre in np.asarray(centres, dtype=np.float32):
        closeness = embeddings @ centre
        closeness[taken] = -np.inf
        taken.append(int(closeness.argmax()))
    return np.array(taken, dtype=np.int64)


def farthest_first(embeddings: Floats, count: int, seed: int) -> AnchorRows:
    """A random first user, then always the user who is farthest from the nearest anchor."""
    chosen = [int(stream(seed, "first farthest anchor").integers(len(embeddings)))]
    nearest = embeddings @ embeddings[chosen[0]]  # cosine to the nearest anchor: the larger, the nearer
    while len(chosen) < count:
        nearest[chosen] = np.inf
        chosen.append(int(nearest.argmin()))
        nearest = np.maximum(nearest, embeddings @ embeddings[chosen[-1]])
    return np.array(chosen, dtype=np.int64)
