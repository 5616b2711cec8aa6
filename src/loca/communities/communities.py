"""Communities: anchors, a wide neighbourhood of each to train on and a narrow one to answer for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, vstack

from loca.communities import geometry
from loca.communities.coverage import AnchorRows, cover_greedily
from loca.communities.geometry import KERNELS, Bandwidth, Floats, KernelName, check_bandwidth, unit_rows
from loca.errors import DataError, check_choice, check_counts
from loca.persistence.manifest import ModelState
from loca.progress import say
from loca.random_streams import derive_seed, stream

if TYPE_CHECKING:
    import torch

AnchorSelection = Literal["coverage", "random", "kmeans", "farthest"]
_USERS_PER_BLOCK = 8192
_USERS_PER_BATCH = 4_096


@dataclass(frozen=True)
class Locality:
    """How local the answers are.

    `alpha` is the global model's share in the answer to a covered user. `effective_share` is the share of the users
    that a local model trains on in effect, (Σt)² / Σt² over the users' train weights t, as a mean over the
    communities: it is 1 where all count the same. `answering` is how many communities answer a user, as a mean over
    the users.
    """

    alpha: float
    effective_share: float
    answering: float

    def __str__(self) -> str:
        trained = f"a local model trains on {self.effective_share:.1%} of the users in effect"
        return f"global share alpha {self.alpha:g}; {trained}; {self.answering:.3g} communities answer a user"


@dataclass(frozen=True, eq=False)
class Communities:
    """Community j is centred on the embedding `anchor_embeddings[j]` of the user row `anchors[j]`; bandwidths in units.

    `coverage` is the share of the users it was found on that at least one community answers for.
    """

    anchors: AnchorRows
    anchor_embeddings: Floats
    train_bandwidth: float
    answer_bandwidth: float
    kernel: KernelName
    coverage: float

    def __post_init__(self) -> None:
        check_choice("kernel", self.kernel, KERNELS)
        check_bandwidth("train_bandwidth", self.train_bandwidth)
        check_bandwidth("answer_bandwidth", self.answer_bandwidth)
        found, around = self.anchors.shape, self.anchor_embeddings.shape
        if len(around) != 2 or found != around[:1]:
            raise DataError(f"communities: {found} anchors do not fit embeddings {around}")

    def __len__(self) -> int:
        return len(self.anchors)

    def state(self) -> ModelState:
        """Its fields as arrays and facts."""
        facts = dict(vars(self))
        return ModelState({name: facts.pop(name) for name in ("anchors", "anchor_embeddings")}, facts)

    @classmethod
    def restore(cls, state: ModelState) -> Self:
        """The communities that a state holds, perhaps among other things; they check themselves."""
        values = {**state.arrays, **state.facts}
        return cls(**{one.name: values[one.name] for one in fields(cls)})

    def train_weights(self, embeddings: npt.NDArray[Any], community: int) -> Floats:
        """How much each user counts when the local model of one community is trained, (users,)."""
        distances = geometry.angular_distances(unit_rows(embeddings), self.anchor_embeddings[[community]])[:, 0]
        return KERNELS[self.kernel](distances, self.train_bandwidth)

    def effective_shares(self, embeddings: npt.NDArray[Any], user_weights: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """The share of the users that each community trains on in effect, (Σt)² / Σt² / users, (communities,).

        t are the users' train weights times `user_weights`; 0 for a community without any.
        """
        sums, squares = np.zeros(len(self)), np.zeros(len(self))
        for number, distances in enumerate(self._distances(embeddings)):
            given = np.asarray(user_weights[number * _USERS_PER_BLOCK :][: len(distances), None], dtype=np.float64)
            weights = KERNELS[self.kernel](distances, self.train_bandwidth) * given  # (users, communities)
            sums, squares = sums + weights.sum(axis=0), squares + np.square(weights).sum(axis=0)
        return np.asarray(sums**2 / np.maximum(squares, np.finfo(np.float64).tiny) / max(len(embeddings), 1))

    def answer_weights(self, embeddings: npt.NDArray[Any]) -> csr_array:
        """How much each community's answer counts for each user, users × communities; empty for an uncovered user."""
        kernel = KERNELS[self.kernel]
        blocks = [csr_array(kernel(distances, self.answer_bandwidth)) for distances in self._distances(embeddings)]
        return csr_array(vstack([csr_array((0, len(self)), dtype=np.float32), *blocks], format="csr"))

    def _distances(self, embeddings: npt.NDArray[Any]) -> Iterator[Floats]:
        """The distances of users to all anchors, block by block of users."""
        rows = unit_rows(embeddings)
        if rows.shape[1] != self.anchor_embeddings.shape[1]:
            raise DataError(f"embeddings: expected {self.anchor_embeddings.shape[1]} dimensions, found {rows.shape[1]}")
        for start in range(0, len(rows), _USERS_PER_BLOCK):
            yield geometry.angular_distances(rows[start : start + _USERS_PER_BLOCK], self.anchor_embeddings)


def find_communities(
    embeddings: npt.NDArray[Any],
    *,
    anchors: int,
    anchor_selection: AnchorSelection = "coverage",
    train_bandwidth: Bandwidth,
    answer_bandwidth: Bandwidth,
    kernel: KernelName = "epanechnikov",
    seed: int = 0,
    device: str | torch.device = "auto",
) -> Communities:
    """Resolves the bandwidths, chooses the anchors (on `device`) and measures how many users are covered."""
    check_bandwidth("train_bandwidth", train_bandwidth)
    check_bandwidth("answer_bandwidth", answer_bandwidth)
    rows = unit_rows(embeddings)
    train_units = geometry.resolve_bandwidth(train_bandwidth, rows, seed)
    answer_units = geometry.resolve_bandwidth(answer_bandwidth, rows, seed)
    chosen = choose_anchors(rows, anchors, anchor_selection, answer_units, seed, device)
    found = Communities(chosen, rows[chosen], train_units, answer_units, kernel, 0.0)
    coverage = float((np.diff(found.answer_weights(rows).indptr) > 0).mean())
    widths = f"train bandwidth {train_units:.3f}, answer bandwidth {answer_units:.3f}"
    say(f"{anchors} communities by {anchor_selection}: {widths}, {coverage:.1%} of {len(rows):,} users covered")
    return replace(found, coverage=coverage)


def check_anchor_count(count: int, user_count: int) -> None:
    """Refuse more anchors than users."""
    if count > user_count:
        raise DataError(f"anchors: {count:,} were requested, there are only {user_count:,} users; take fewer")


def choose_anchors(
    embeddings: Floats,
    count: int,
    selection: AnchorSelection,
    answer_bandwidth: float,
    seed: int,
    device: str | torch.device = "cpu",
    users_for_batches: int = 50_000,
) -> AnchorRows:
    """The rows of `count` different users, in the order in which they were chosen; embeddings are unit rows.

    `coverage` is the paper's way, and alone makes use of a GPU. `farthest` takes a random first user, then always the
    user who is farthest from the nearest anchor. `kmeans` takes the user nearest to each centre; of more than
    `users_for_batches` users it looks at a batch at a time: centres a little less tight, in a fraction of the time.
    """
    check_counts(anchors=count)
    check_anchor_count(count, len(embeddings))
    if selection == "coverage":
        return cover_greedily(embeddings, count, answer_bandwidth, device)
    if selection == "random":
        return stream(seed, "random anchors").choice(len(embeddings), count, replace=False).astype(np.int64)
    chosen: list[int] = []
    if selection == "farthest":
        chosen.append(int(stream(seed, "first farthest anchor").integers(len(embeddings))))
        nearest = embeddings @ embeddings[chosen[0]]  # cosine to the nearest anchor: the larger, the nearer
        while len(chosen) < count:
            nearest[chosen[-1]] = np.inf
            chosen.append(int(nearest.argmin()))
            np.maximum(nearest, embeddings @ embeddings[chosen[-1]], out=nearest)
        return np.array(chosen, dtype=np.int64)
    from sklearn.cluster import KMeans, MiniBatchKMeans

    random_state = derive_seed(seed, "k-means") % 2**32
    means = KMeans(count, n_init=1, random_state=random_state)
    if len(embeddings) > users_for_batches:
        means = MiniBatchKMeans(count, n_init=1, batch_size=_USERS_PER_BATCH, random_state=random_state)
    for centre in np.asarray(means.fit(embeddings).cluster_centers_, dtype=np.float32):
        closeness = embeddings @ centre
        closeness[chosen] = -np.inf
        chosen.append(int(closeness.argmax()))
    return np.array(chosen, dtype=np.int64)
