"""sGLSVD (Christakopoulou and Karypis 2018): a low-rank model of all users beside one of each cluster of users."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.data.held_out import HeldOut
from loca.data.interactions import Interactions, as_matrix
from loca.errors import ConfigError, ModelFileError
from loca.files import save_model
from loca.memory import plan_memory
from loca.models.devices import check_device, choose_device
from loca.models.recommender import (
    ModelState,
    Scores,
    UserWeights,
    are_finite_floats,
    check_histories,
    check_user_weights,
    clone,
    fitted,
    supported_users,
)
from loca.models.spectral_bases import (
    SPARE,
    USERS_PER_BLOCK,
    Memberships,
    SpectralBases,
    leading_directions,
    scale_rows,
)
from loca.models.user_groups import group_users
from loca.progress import bar, say
from loca.random_streams import stream

_SETTLED = 0.01  # rounds end when fewer users than this share move, and the mean g changes by less
_FIRST_RANK = 32  # directions in which users are told apart before there are clusters


class SGLSVD:
    """Scores = g · r QQᵀ + (1 − g) · r PPᵀ: Q holds directions of all users, P those of the history's cluster.

    Q are the `global_rank` leading right singular vectors of the users' rows scaled by their own g, P the
    `local_rank` leading ones of a cluster's rows scaled by 1 − g. Users begin in k-means clusters with g = 0.5; each
    round then moves every user to the cluster, and to the g in [0, 1], of the smallest squared error, and finds Q and
    the Ps anew. Rounds end when less than 1 % of the users move and g changes by less than 0.01 in the mean, or after
    `rounds`.
    `local_rank=0` is PureSVD (Cremonesi et al. 2010), `global_rank=0` the paper's sLSVD. Large ranks repeat a history
    instead of completing it: its own items are never left out of the error.

    Departures: a new history finds its cluster and its g by the rule of the rounds, and known users are answered the
    same way, from their history alone; the first clusters come from k-means on 32 singular directions instead of the
    program CLUTO; the paper's rounds end by the moves alone, which are few in a first round whose local directions
    all lie among the global ones; user weights scale rows by their square root.
    """

    def __init__(
        self,
        *,
        clusters: int = 5,
        global_rank: int = 50,
        local_rank: int = 10,
        rounds: int = 20,
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        for name, value, least in (
            ("clusters", clusters, 1),
            ("global_rank", global_rank, 0),
            ("local_rank", local_rank, 0),
            ("rounds", rounds, 0),
        ):
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ConfigError(f"{name}: expected a whole number ≥ {least}, found {value!r}")
        if global_rank + local_rank == 0:
            raise ConfigError("global_rank and local_rank: expected at least one above 0, found 0 and 0")
        check_device(device)
        self.clusters = clusters
        self.global_rank = global_rank
        self.local_rank = local_rank
        self.rounds = rounds
        self.seed = seed
        self.device = device
        self.bases_: SpectralBases | None = None
        self.known_: Interactions | None = None

    def fit(
        self,
        train: Interactions | csr_array,
        *,
        user_weights: UserWeights | None = None,
        validation: HeldOut | None = None,
    ) -> Self:
        """Alternates between directions and clusters; validation is accepted and not needed.

        A user with weight 2 counts as two equal users; one without weight, or without items, is left out.
        """
        matrix = as_matrix(train)
        given = check_user_weights(user_weights, matrix.shape[0])
        self.bases_ = None  # what an earlier fit learned makes room
        self.known_ = train if isinstance(train, Interactions) else None
        counted = supported_users(matrix, given)
        rows, weights = csr_array(matrix[counted]), given[counted].astype(np.float64)
        rows.sort_indices()
        needed = bytes_to_learn(matrix.shape[1], self.clusters, self.global_rank, self.local_rank)
        plan_memory(f"SGLSVD for {matrix.shape[1]:,} items", needed, "take fewer clusters or smaller ranks")
        self.bases_ = self._alternate(rows, weights)
        return self

    def _alternate(self, rows: csr_array, weights: npt.NDArray[np.float64]) -> SpectralBases:
        """The directions after the last round."""
        rng, device = stream(self.seed, "sglsvd", "directions"), choose_device(self.device)
        spare = rng.standard_normal((rows.shape[1], SPARE), dtype=np.float32)
        members = Memberships(self._first_clusters(rows, weights, spare), np.full(len(weights), 0.5))
        drawn = SpectralBases.drawn(rows.shape[1], self.clusters, self.global_rank, self.local_rank, rng)
        bases = drawn.learn(rows, weights, members, spare, device)
        with bar("SGLSVD: rounds", self.rounds) as progress:
            for number in range(self.rounds):
                moved = bases.join(rows, members.clusters)
                share = float(np.average(moved.clusters != members.clusters, weights=weights))
                change = float(np.average(np.abs(moved.shares - members.shares), weights=weights))
                members = moved
                bases = bases.learn(rows, weights, members, spare, device)
                progress.advance(note=f"{share:.1%} of the users moved")
                if max(share, change) < _SETTLED:
                    say(f"SGLSVD: settled after {number + 1} rounds")
                    break
        return bases

    def _first_clusters(
        self, rows: csr_array, weights: npt.NDArray[np.float64], spare: npt.NDArray[np.float32]
    ) -> npt.NDArray[np.int64]:
        if self.clusters == 1:
            return np.zeros(len(weights), np.int64)
        rng = stream(self.seed, "sglsvd", "clusters")
        start = rng.standard_normal((rows.shape[1], _FIRST_RANK), dtype=np.float32)
        directions = leading_directions(scale_rows(rows, np.sqrt(weights)), start, spare, choose_device(self.device))
        # Whichever way the directions point, this line lies the same way among the users.
        line = directions.T @ spare[:, 0]
        return group_users(rows @ directions, weights, self.clusters, line, rng)

    def score(self, histories: csr_array) -> Scores:
        """Both projections of a weighted history, blended; its cluster and g are those of the smallest error.

        An empty history scores 0 everywhere.
        """
        bases = fitted(self.bases_, self)
        rows = check_histories(histories, len(bases.shared))
        scores = np.empty(rows.shape, np.float32)
        for start in range(0, rows.shape[0], USERS_PER_BLOCK):
            scores[start : start + USERS_PER_BLOCK] = _blend(bases, csr_array(rows[start : start + USERS_PER_BLOCK]))
        return scores

    def count_items(self) -> int:
        """How many items it scores."""
        return len(fitted(self.bases_, self).shared)

    def as_chosen(self) -> Self:
        """A copy: nothing is chosen on validation."""
        return clone(self)

    def state(self) -> ModelState:
        bases = fitted(self.bases_, self)
        return ModelState(arrays={"shared": bases.shared, "local": bases.local, "overlaps": bases.overlaps})

    @classmethod
    def restore(cls, params: Mapping[str, Any], state: ModelState) -> Self:
        model = cls(**params)
        arrays = [state.arrays.get(name) for name in ("shared", "local", "overlaps")]
        shared, local, overlaps = arrays
        if shared is None or local is None or overlaps is None:
            raise ModelFileError(f"SGLSVD: expected shared, local and overlaps, found {', '.join(state.arrays)}")
        ranks = (model.global_rank, model.clusters, model.local_rank)
        items = len(shared) if shared.ndim else 0
        expected = [(items, ranks[0]), (items, *ranks[1:]), ranks]
        found = [array.shape for array in (shared, local, overlaps)]
        if items == 0 or found != expected:
            raise ModelFileError(f"SGLSVD: expected arrays of shapes {expected}, found {found}")
        if not all(are_finite_floats(array) for array in (shared, local, overlaps)):
            raise ModelFileError("SGLSVD: expected finite numbers of 32 bits")
        model.bases_ = SpectralBases(shared, local, overlaps)
        return model

    def save(self, folder: str | Path) -> None:
        """Writes the model into a folder, whole or not at all."""
        save_model(self, folder)


def bytes_to_learn(items: int, clusters: int, global_rank: int, local_rank: int) -> int:
    """What learning takes: directions old and new in 32 bits, one set in 64 bits while it is sought, and a block."""
    directions = items * (global_rank + clusters * local_rank)
    sought = items * (max(global_rank, local_rank, _FIRST_RANK) + SPARE)
    block = USERS_PER_BLOCK * clusters * local_rank
    return 2 * 4 * directions + 4 * 8 * sought + 5 * 8 * block


def _blend(bases: SpectralBases, rows: csr_array) -> Scores:
    """The scores of a block of histories."""
    members = bases.join(rows)
    shares = members.shares.astype(np.float32)[:, None]
    scores: Scores = (shares * (rows @ bases.shared)) @ bases.shared.T
    for cluster in np.unique(members.clusters):
        own = np.flatnonzero(members.clusters == cluster)
        directions = bases.local[:, cluster]
        scores[own] += ((1 - shares[own]) * (csr_array(rows[own]) @ directions)) @ directions.T
    return scores
