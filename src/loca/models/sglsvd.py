"""sGLSVD (Christakopoulou and Karypis 2018): a low-rank model of all users beside one of each cluster of users."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from scipy.linalg import eigh
from scipy.sparse import csr_array
from torch import Tensor

from loca.errors import ConfigError
from loca.memory import DataSize, MemoryUse, plan_memory
from loca.models.devices import choose_device
from loca.models.params import seed_param, whole
from loca.models.recommender import (
    ItemRows,
    Recommender,
    Scores,
    SimilarityKind,
    TrainingData,
    supported_users,
)
from loca.models.similarity import cosines
from loca.persistence.learned import learned
from loca.progress import bar, say
from loca.random_streams import stream
from loca.remarks import remark

_SETTLED = 0.01  # rounds end when fewer users than this share move, and the mean g changes by less
_INITIAL_RANK = 32  # directions in which users differ before there are clusters
_SPARE = 10  # directions that are followed beside those wanted, so that the last wanted ones are found sooner
_SOLVED_WHOLE = 500  # users or items up to which the whole spectrum is solved
_MOST_PASSES = 40
_ENOUGH = 1e-4  # passes end when one more captures less than this share more of the squared matrix
_NOTHING = 1e-10  # a squared singular value below this share of the largest is rounding
_SAME_POINT = 1e-9  # a squared distance below this is rounding: both points are one
USERS_PER_BLOCK = 1024
Floats = npt.NDArray[Any]
Rows = npt.NDArray[np.int64]


@dataclass(kw_only=True, eq=False, repr=False)
class SGLSVD(Recommender):
    """Score items by a low-rank model of all users beside one of each cluster: g · r QQᵀ + (1 − g) · r PPᵀ.

    Q holds directions of all users, P those of the history's cluster. Q are the `global_rank` leading right singular
    vectors of the users' rows scaled by their own g, P the `local_rank` leading ones of a cluster's rows scaled by
    1 − g. Users begin in k-means clusters with g = 0.5; each round then moves every user to the cluster, and to the g
    in [0, 1], of the smallest squared error, and finds Q and the Ps anew. Rounds end when less than 1 % of the users
    move and g changes by less than 0.01 in the mean, or after `rounds`.

    Departures from the paper: a new history finds its cluster and its g by the rule of the rounds, and known users are
    scored the same way, from their history alone; the first clusters come from k-means on 32 singular directions
    instead of the program CLUTO; the paper's rounds end by the moves alone, which are few in a first round whose local
    directions all lie among the global ones; user weights scale rows by their square root.

    Parameters
    ----------
    clusters : int, default 5
        Clusters of users, each with directions of its own.
    global_rank : int, default 50
        Directions of all users; 0 is the paper's sLSVD. Large ranks repeat a history instead of completing it: its own
        items are never left out of the error.
    local_rank : int, default 10
        Directions of each cluster; 0 is PureSVD (Cremonesi et al. 2010).
    rounds : int, default 20
        The most rounds; 0 leaves the first clusters.
    seed : int, default 0
        Seed of the first clusters and directions.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> rows = csr_array([[1, 1, 1, 0, 0], [1, 1, 0, 0, 0], [0, 0, 0, 1, 1], [0, 0, 1, 1, 1]])
    >>> model = loca.SGLSVD(clusters=2, global_rank=1, local_rank=1).fit(rows)
    >>> model.score(rows).shape
    (4, 5)
    """

    takes_new_items = False
    similarity_kind: ClassVar[SimilarityKind] = "symmetric"

    clusters: int = whole(5)
    global_rank: int = whole(50, 0)
    local_rank: int = whole(10, 0)
    rounds: int = whole(20, 0)
    seed: int = seed_param()
    shared_: npt.NDArray[np.float32] = learned("items", "global_rank")
    local_: npt.NDArray[np.float32] = learned("items", "clusters", "local_rank")
    overlaps_: npt.NDArray[np.float32] = learned("global_rank", "clusters", "local_rank")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.global_rank + self.local_rank == 0:
            raise ConfigError(
                "global_rank and local_rank: expected at least one above 0, found 0 and 0"
            )

    def _fit(self, data: TrainingData) -> None:
        """Alternate between directions and clusters; a user without weight, or without items, is left out."""
        support, weights = supported_users(data.matrix, data.user_weights)
        rows, weights = csr_array(data.matrix[support]), weights.astype(np.float64)
        rows.sort_indices()
        items, device = rows.shape[1], choose_device(data.device)
        needed = bytes_to_learn(items, self.clusters, self.global_rank, self.local_rank)
        plan_memory(f"SGLSVD for {items:,} items", needed, "take fewer clusters or smaller ranks")
        rng = stream(self.seed, "sglsvd", "directions")
        spare = rng.standard_normal((items, _SPARE), dtype=np.float32)
        members = Memberships(np.zeros(len(weights), np.int64), np.full(len(weights), 0.5))
        if self.clusters > 1:
            groups_rng = stream(self.seed, "sglsvd", "clusters")
            start = groups_rng.standard_normal((items, _INITIAL_RANK), dtype=np.float32)
            directions = leading_directions(
                scale_rows(rows, np.sqrt(weights)), start, spare, device
            )
            # Whichever way the directions point, this line lies the same way among the users.
            line = directions.T @ spare[:, 0]
            groups = group_users(rows @ directions, weights, self.clusters, line, groups_rng)
            members = members._replace(clusters=groups)
        shared = rng.standard_normal((items, self.global_rank), dtype=np.float32)
        local = rng.standard_normal((items, self.clusters, self.local_rank), dtype=np.float32)
        bases = SpectralBases.of(shared, local).learn(rows, weights, members, spare, device)
        with bar("SGLSVD: rounds", self.rounds) as progress:
            for number in range(self.rounds):
                moved = bases.join(rows, members.clusters)
                moves = float(np.average(moved.clusters != members.clusters, weights=weights))
                change = float(np.average(np.abs(moved.shares - members.shares), weights=weights))
                members = moved
                bases = bases.learn(rows, weights, members, spare, device)
                progress.advance(note=f"{moves:.1%} of the users moved")
                if max(moves, change) < _SETTLED:
                    say(f"SGLSVD: settled after {number + 1} rounds")
                    break
        self.shared_, self.local_, self.overlaps_ = bases.shared, bases.local, bases.overlaps

    def _update(self, data: TrainingData, epochs: int) -> None:
        """Leave the directions: a longer history, or that of a new user, is answered like any other."""
        text = "SGLSVD: its directions stay as they were fitted; longer histories are folded in"
        remark("kept", text)

    def memory_bytes(self, data: DataSize) -> MemoryUse:
        """Directions of all users and of each cluster, the users' places among them, and small matrices whole."""
        ranks = (self.global_rank, self.clusters * self.local_rank)
        directions = 4 * (data.items * sum(ranks) + ranks[0] * ranks[1])
        places = 2 * 8 * data.users * max(self.global_rank, self.local_rank)
        whole = 4 * 8 * min(data.users, data.items, _SOLVED_WHOLE) ** 2
        learning = bytes_to_learn(data.items, self.clusters, self.global_rank, self.local_rank)
        main, advice = (
            learning + places + whole + data.row_bytes,
            "take fewer clusters or smaller ranks",
        )
        return MemoryUse(main=main, main_after=directions, folder=directions, advice=advice)

    def score(self, histories: csr_array) -> Scores:
        """Blend both projections of each history; its cluster and g are those of the smallest error.

        Parameters
        ----------
        histories : csr_array
            Users × items, each entry with its weight; their users need not be known.

        Returns
        -------
        ndarray of float32
            Users × items; an empty history scores 0 everywhere.
        """
        all_rows, bases = self._check_histories(histories), self.bases_
        scores = np.empty(all_rows.shape, np.float32)
        for start in range(0, all_rows.shape[0], USERS_PER_BLOCK):
            rows = csr_array(all_rows[start : start + USERS_PER_BLOCK])
            members = bases.join(rows)
            shares = members.shares.astype(np.float32)[:, None]
            block = (shares * (rows @ bases.shared)) @ bases.shared.T
            for cluster in np.unique(members.clusters):
                own = np.flatnonzero(members.clusters == cluster)
                directions = bases.local[:, cluster]
                block[own] += (
                    (1 - shares[own]) * (csr_array(rows[own]) @ directions)
                ) @ directions.T
            scores[start : start + USERS_PER_BLOCK] = block
        return scores

    def _similarities(self, item_rows: ItemRows) -> Scores:
        """Cosines of the items' directions: those of all users beside those of the clusters.

        They are the weights ½ QQᵀ + ½ · mean of PPᵀ over the clusters, each scaled by the items' own two.
        """
        local = self.local_.reshape(len(self.local_), -1) / np.sqrt(np.float32(self.clusters))
        directions = np.concatenate([self.shared_, local], axis=1)  # (items, all directions)
        return cosines(torch.from_numpy(directions), item_rows)

    @property
    def bases_(self) -> SpectralBases:
        """The learned directions as one."""
        return SpectralBases(self.shared_, self.local_, self.overlaps_)


def bytes_to_learn(items: int, clusters: int, global_rank: int, local_rank: int) -> int:
    """What learning takes: directions old and new in 32 bits, one set in 64 bits while it is sought, and a block."""
    directions = items * (global_rank + clusters * local_rank)
    sought = items * (max(global_rank, local_rank, _INITIAL_RANK) + _SPARE)
    block = USERS_PER_BLOCK * clusters * local_rank
    return 2 * 4 * directions + 4 * 8 * sought + 5 * 8 * block


def leading_directions(
    rows: csr_array,
    start: Floats,
    spare: Floats,
    device: torch.device,
    solved_whole: int = _SOLVED_WHOLE,
) -> Floats:
    """The leading right singular vectors of sparse rows, (items, as many as `start` has); zeros beyond their rank.

    Matrices of up to `solved_whole` users or items are solved from the Gram matrix of the smaller side. Others by
    orthogonal iteration on rowsᵀ · rows from `start` beside `spare`, which depends on the users only through that
    product: equal users may be many rows or one heavier row. The device does these products.
    """
    rank, directions = start.shape[1], np.zeros(start.shape)
    if rank == 0 or rows.nnz == 0:
        return directions
    rows = rows.astype(np.float64)
    if min(rows.shape) <= solved_whole:
        fewer_users = rows.shape[0] < rows.shape[1]
        squares, vectors = _largest_eigenvectors(
            (rows @ rows.T if fewer_users else rows.T @ rows).toarray(), rank
        )
        found = np.asarray(rows.T @ (vectors / np.sqrt(squares))) if fewer_users else vectors
    else:
        times_rows, times_columns = (
            _product_with(rows, device),
            _product_with(rows.T.tocsr(), device),
        )
        initial = np.concatenate([start, spare], axis=1, dtype=np.float64)
        block, captured = torch.linalg.qr(torch.from_numpy(initial).to(device))[0], 0.0
        for _ in range(_MOST_PASSES):
            image = times_rows(block)  # (users, directions)
            now = float(image.square().sum())
            if now <= captured * (1 + _ENOUGH):
                break
            block, captured = torch.linalg.qr(times_columns(image))[0], now
        image = times_rows(block)
        _, turn = _largest_eigenvectors((image.T @ image).cpu().numpy(), rank)
        found = np.asarray(block.cpu().numpy() @ turn)
    directions[:, : found.shape[1]] = found
    return directions


def _product_with(matrix: csr_array, device: torch.device) -> Callable[[Tensor], Tensor]:
    """A sparse matrix times a dense one: by scipy in main memory, which is the faster there, else on the device."""
    if device.type == "cpu":
        return lambda dense: torch.from_numpy(matrix @ dense.numpy())
    parts = (matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data)
    starts, columns, values = (torch.from_numpy(one) for one in parts)
    there = torch.sparse_csr_tensor(
        starts, columns, values, matrix.shape, check_invariants=False
    ).to(device)
    return lambda dense: there @ dense


def _largest_eigenvectors(square: Floats, rank: int) -> tuple[Floats, Floats]:
    """The largest eigenvalues of a symmetric matrix, from the largest down, without those that are rounding."""
    values, vectors = eigh(square, overwrite_a=True, check_finite=False)
    largest = np.flatnonzero(values > _NOTHING * max(values[-1], 0.0))[::-1][:rank]
    return values[largest], vectors[:, largest]


class Memberships(NamedTuple):
    """The cluster of every user, and the share that the global part has in its answers."""

    clusters: Rows
    shares: Floats


class SpectralBases(NamedTuple):
    """Orthonormal directions: `shared` by all (items, global rank), `local` ones (items, clusters, local rank).

    `overlaps` holds their products, (global rank, clusters, local rank). A direction of zeros stands for none.
    """

    shared: npt.NDArray[np.float32]
    local: npt.NDArray[np.float32]
    overlaps: npt.NDArray[np.float32]

    @classmethod
    def of(cls, shared: Floats, local: Floats) -> SpectralBases:
        """Both sets of directions in 32 bits, with their products."""
        shared, local = shared.astype(np.float32, copy=False), local.astype(np.float32, copy=False)
        items, clusters, rank = local.shape
        overlaps = shared.T @ local.reshape(items, clusters * rank)
        return cls(shared, local, overlaps.reshape(shared.shape[1], clusters, rank))

    def learn(
        self,
        rows: csr_array,
        weights: Floats,
        members: Memberships,
        spare: Floats,
        device: torch.device,
    ) -> SpectralBases:
        """The directions of the rows scaled by g, and of each cluster's rows scaled by 1 − g; sought from these.

        A user's weight is the square of a further scale. A cluster without users has no directions.
        """
        scales = np.sqrt(weights)
        shared = leading_directions(
            scale_rows(rows, scales * members.shares), self.shared, spare, device
        )
        own_scales = scales * (1 - members.shares)
        local = np.empty_like(self.local)
        for cluster in range(self.local.shape[1]):
            own = np.flatnonzero(members.clusters == cluster)
            own_rows = scale_rows(csr_array(rows[own]), own_scales[own])
            local[:, cluster] = leading_directions(own_rows, self.local[:, cluster], spare, device)
        return SpectralBases.of(shared, local)

    def join(
        self, rows: csr_array, current: Rows | None = None, block_users: int = USERS_PER_BLOCK
    ) -> Memberships:
        """The cluster that answers each row with the smallest squared error, and the share g of the global part there.

        A user who is in a cluster by `current` leaves it only for an error that is smaller by more than rounding.
        """
        items, clusters, rank = self.local.shape
        members = Memberships(np.zeros(rows.shape[0], np.int64), np.zeros(rows.shape[0]))
        for block in (
            slice(start, start + block_users) for start in range(0, rows.shape[0], block_users)
        ):
            part = csr_array(rows[block])
            users = np.arange(part.shape[0])
            ours = (part @ self.shared).astype(np.float64)
            theirs = (part @ self.local.reshape(items, clusters * rank)).astype(np.float64)
            meeting = ours @ self.overlaps.reshape(ours.shape[1], clusters * rank).astype(
                np.float64
            )
            shared = (ours**2).sum(axis=1)[:, None]
            local = (theirs**2).reshape(len(users), clusters, rank).sum(axis=2)
            common = (meeting * theirs).reshape(len(users), clusters, rank).sum(axis=2)
            shares = best_shares(shared, local, common)  # (users, clusters)
            rest = 1 - shares
            # The squared error less the row's own squared length, (users, clusters).
            errors = shares**2 * shared + rest**2 * local + 2 * shares * rest * common
            errors -= 2 * (shares * shared + rest * local)
            best = errors.argmin(axis=1)
            if current is not None:
                own = current[block]
                lengths = np.asarray(part.multiply(part).sum(axis=1)).ravel()
                best = np.where(
                    errors[users, own] - errors[users, best] <= 1e-9 * lengths, own, best
                )
            members.clusters[block], members.shares[block] = best, shares[users, best]
        return members


def best_shares(shared: Floats, local: Floats, common: Floats) -> Floats:
    """The g in [0, 1] that minimises ‖r − g·a − (1 − g)·b‖², a and b being projections of r.

    From their squared lengths ‖a‖² and ‖b‖² and their product ab: ⟨r, a⟩ = ‖a‖² and ⟨r, b⟩ = ‖b‖² leave
    g = (‖a‖² − ab) / ‖a − b‖². Where a = b every g is as good, and 0.5 is taken.
    """
    apart = shared + local - 2 * common
    differ = apart > 1e-6 * (shared + local)
    shares = np.divide(shared - common, apart, out=np.full(apart.shape, 0.5), where=differ)
    return np.asarray(np.clip(shares, 0.0, 1.0))


def scale_rows(rows: csr_array, scales: Floats) -> csr_array:
    """The rows times one number each, in 64 bits; rows scaled to nothing keep their places."""
    data = rows.data * np.repeat(scales, np.diff(rows.indptr))
    return csr_array((data, rows.indices, rows.indptr), shape=rows.shape)


def group_users(
    embeddings: Floats, weights: Floats, count: int, line: Floats, rng: np.random.Generator
) -> Rows:
    """The group of every user, 0 to below `count`: weighted k-means of the embeddings scaled to length 1.

    A user of weight 2 counts as two equal users, also where the first centres are drawn. `line` is any direction
    among the embeddings: the draw walks along it, so that neither the order of the users nor their copies matter
    (but for users who are exactly as near to two centres). Where fewer points than `count` differ, there are fewer
    groups.
    """
    from sklearn.cluster import KMeans

    lengths = np.linalg.norm(embeddings, axis=1, keepdims=True)
    points = embeddings / np.maximum(lengths, np.finfo(np.float64).tiny)
    # The first centres are drawn as k-means++ does (Arthur and Vassilvitskii 2007): each user by weight times the
    # squared distance so far.
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
    # A tolerance above 0 would be scaled by a variance that counts users without their weights.
    means = KMeans(
        len(chosen), init=points[chosen], n_init=1, max_iter=100, tol=0.0, algorithm="lloyd"
    )
    return np.asarray(means.fit(points, sample_weight=weights).labels_, dtype=np.int64)
