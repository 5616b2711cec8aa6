"""GLSLIM (Christakopoulou and Karypis 2016): one global SLIM and one per group of users, blended for each history."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from sklearn.cluster import KMeans
from sklearn.decomposition import TruncatedSVD
from sklearn.preprocessing import normalize

from loca.data.held_out import HeldOut
from loca.data.interactions import Interactions, as_matrix
from loca.errors import ConfigError, ModelFileError
from loca.files import save_model
from loca.models.devices import check_device, choose_device
from loca.models.elastic_net import Penalties
from loca.models.item_regressions import Regressions, solve_regressions
from loca.models.recommender import (
    ModelState,
    Scores,
    UserWeights,
    check_histories,
    check_user_weights,
    clone,
    fitted,
)
from loca.models.slim import check_penalties, check_precision
from loca.models.sparse_weights import weights_as_arrays, weights_from_arrays
from loca.progress import bar, say
from loca.random_streams import derive_seed

Numbers = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]
_DIMENSIONS = 50
_FEWEST_MOVES = 0.01
_BLOCK_USERS = 1024


class GLSLIM:
    """Scores = g · history · S + (1 − g) · history · S_c, where S is global and S_c belongs to group c of the users.

    Minimises ½ Σ_u d_u ‖x_u − g_u x_u S − (1 − g_u) x_u S_c(u)‖² + l1 Σ w + l2/2 Σ w² over non-negative S and S_c with
    zero diagonals, d_u the weight of user u. The group and the blend g of any history, of a known user or not, are
    those with which it is rebuilt with the smallest squared error; so its scores depend on nothing else.

    Groups begin as k-means clusters of a truncated SVD. Then S, each S_c, the blends and the groups are found in turn,
    the others held, for `rounds` or until fewer than 1 % of the users change their group. (The paper finds S and S_c
    together, and begins with clusters by CLUTO; in turn the same objective falls with smaller equations.)
    """

    def __init__(
        self,
        *,
        clusters: int = 5,
        global_l1: float = 0.2,
        global_l2: float = 20.0,
        local_l1: float = 0.5,
        local_l2: float = 300.0,
        rounds: int = 5,
        tolerance: float = 1e-4,
        iterations: int = 1000,
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        for name, value in (("clusters", clusters), ("rounds", rounds)):
            if value < 1 or value != int(value):
                raise ConfigError(f"{name}: expected a whole number from 1, found {value!r}")
        check_penalties(global_l1, global_l2, "global_")
        check_penalties(local_l1, local_l2, "local_")
        check_precision(tolerance, iterations)
        check_device(device)
        self.clusters = clusters
        self.global_l1 = global_l1
        self.global_l2 = global_l2
        self.local_l1 = local_l1
        self.local_l2 = local_l2
        self.rounds = rounds
        self.tolerance = tolerance
        self.iterations = iterations
        self.seed = seed
        self.device = device
        self.global_weights_: csr_array | None = None
        self.local_weights_: list[csr_array] = []
        self.known_: Interactions | None = None

    def fit(
        self,
        train: Interactions | csr_array,
        *,
        user_weights: UserWeights | None = None,
        validation: HeldOut | None = None,
    ) -> Self:
        """Learns in rounds; validation is accepted and not needed.

        A user with weight 2 counts as two equal users, but for the random beginning of k-means.
        """
        matrix = as_matrix(train)
        weights = check_user_weights(user_weights, matrix.shape[0]).astype(np.float64)
        self.global_weights_, self.local_weights_ = None, []  # what an earlier fit learned makes room
        self.known_ = train if isinstance(train, Interactions) else None
        support = np.flatnonzero(weights)
        rows, weights = csr_array(matrix[support]).astype(np.float64), weights[support]
        groups = _first_groups(rows, weights, self.clusters, self.seed)
        shares = np.full(len(weights), 0.5)
        shared: csr_array = csr_array(np.zeros((0, 0), np.float32))
        own: list[csr_array] = [shared] * (int(groups.max()) + 1)
        with bar("GLSLIM: rounds", self.rounds) as progress:
            for round_number in range(self.rounds):
                shared = self._solve_global(rows, weights, shares, groups, own)
                own = [self._solve_local(rows, weights, shares, groups == c, shared) for c in range(len(own))]
                before, (groups, shares) = groups, place_histories(rows, shared, own)
                moved = float(weights[groups != before].sum() / weights.sum())
                say(f"GLSLIM: round {round_number + 1}: {moved:.1%} of the users changed their group")
                progress.advance(note=f"{moved:.1%} moved")
                if moved < _FEWEST_MOVES:
                    break
        self.global_weights_, self.local_weights_ = shared, own
        return self

    def _solve_global(
        self, rows: csr_array, weights: Numbers, shares: Numbers, groups: Places, own: list[csr_array]
    ) -> csr_array:
        """S, given what the groups explain: gX is regressed on X − (1 − g)XS_c."""
        columns = rows.tocsc()
        said = [
            (_scale_rows(rows, (1 - shares) * (groups == group)), local.tocsc())
            for group, local in enumerate(own)
            if local.nnz
        ]

        def responses(start: int, stop: int) -> csr_array:
            left = csr_array(columns[:, start:stop])
            for mine, local in said:
                left = csr_array(left - mine @ local[:, start:stop])
            return left

        penalties = Penalties(self.global_l1, self.global_l2, self.tolerance, self.iterations)
        regressions = Regressions(_scale_rows(rows, shares), weights, responses)
        return solve_regressions(regressions, penalties, choose_device(self.device))

    def _solve_local(
        self, rows: csr_array, weights: Numbers, shares: Numbers, is_member: npt.NDArray[np.bool_], shared: csr_array
    ) -> csr_array:
        """S_c, given what S explains: over the users of the group (1 − g)X is regressed on X − gXS."""
        members = np.flatnonzero(is_member)
        rows, shares = csr_array(rows[members]), shares[members]
        columns, mine, said = rows.tocsc(), _scale_rows(rows, shares), shared.tocsc()

        def responses(start: int, stop: int) -> csr_array:
            return csr_array(columns[:, start:stop] - mine @ said[:, start:stop])

        penalties = Penalties(self.local_l1, self.local_l2, self.tolerance, self.iterations)
        regressions = Regressions(_scale_rows(rows, 1 - shares), weights[members], responses)
        return solve_regressions(regressions, penalties, choose_device(self.device))

    def score(self, histories: csr_array) -> Scores:
        """What both models of the history's own group say, blended as it is rebuilt best; an empty one scores 0."""
        shared = fitted(self.global_weights_, self)
        rows = check_histories(histories, shared.shape[0])
        groups, shares = place_histories(rows, shared, self.local_weights_)
        parts = shares.astype(np.float32)[:, None]
        scores = np.asarray((rows @ shared).toarray(), dtype=np.float32) * parts
        for group, weights in enumerate(self.local_weights_):
            members = np.flatnonzero(groups == group)
            scores[members] += (1 - parts[members]) * (rows[members] @ weights).toarray()
        return scores

    def count_items(self) -> int:
        """How many items it scores."""
        return int(fitted(self.global_weights_, self).shape[0])

    def as_chosen(self) -> Self:
        """A copy: nothing is chosen on validation."""
        return clone(self)

    def state(self) -> ModelState:
        arrays = weights_as_arrays(fitted(self.global_weights_, self), "global")
        for group, weights in enumerate(self.local_weights_):
            arrays |= weights_as_arrays(weights, f"local_{group}")
        return ModelState(arrays=arrays, facts={"groups": len(self.local_weights_)})

    @classmethod
    def restore(cls, params: Mapping[str, Any], state: ModelState) -> Self:
        model = cls(**params)
        count = state.facts.get("groups")
        if type(count) is not int or not 1 <= count <= model.clusters:
            raise ModelFileError(f"GLSLIM: expected from 1 to {model.clusters} groups, found {count!r:.60}")
        shared = weights_from_arrays(state.arrays, "GLSLIM", "global")
        own = [weights_from_arrays(state.arrays, "GLSLIM", f"local_{group}") for group in range(count)]
        for weights in own:
            if weights.shape != shared.shape:
                raise ModelFileError(
                    f"GLSLIM: expected {shared.shape[0]} items in each group, found {weights.shape[0]}"
                )
        model.global_weights_, model.local_weights_ = shared, own
        return model

    def save(self, folder: str | Path) -> None:
        """Writes the model into a folder, whole or not at all."""
        save_model(self, folder)


def place_histories(rows: csr_array, shared: csr_array, own: list[csr_array]) -> tuple[Places, Numbers]:
    """The group and the blend g with which each history is rebuilt with the smallest squared error.

    With a = xS and b = xS_c it is ‖x − b − g(a − b)‖², smallest at g = (x − b)·(a − b) / ‖a − b‖², cut off at 0 and 1;
    g is 1 where a = b. Of equally good groups the first is taken.
    """
    groups, shares = np.zeros(rows.shape[0], np.int64), np.ones(rows.shape[0])
    for start in range(0, rows.shape[0], _BLOCK_USERS):
        part = rows[start : start + _BLOCK_USERS].astype(np.float64)
        said = part @ shared
        smallest = np.full(part.shape[0], np.inf)
        for group, weights in enumerate(own):
            local = part @ weights
            missing, apart = csr_array(part - local), csr_array(said - local)
            along, length = _row_sums(missing, apart), _row_sums(apart, apart)
            best = np.divide(along, length, out=np.ones_like(along), where=length > 0).clip(0, 1)
            errors = _row_sums(missing, missing) - 2 * best * along + best**2 * length
            better = np.flatnonzero(errors < smallest)
            smallest[better] = errors[better]
            groups[start + better], shares[start + better] = group, best[better]
    return groups, shares


def _scale_rows(rows: csr_array, factors: Numbers) -> csr_array:
    """The rows times one factor each; what becomes 0 is not stored."""
    scaled = csr_array(rows.multiply(factors[:, None]))
    scaled.eliminate_zeros()
    return scaled


def _row_sums(first: csr_array, second: csr_array) -> Numbers:
    """The inner products of the rows of two sparse matrices."""
    return np.asarray(first.multiply(second).sum(axis=1), dtype=np.float64).ravel()


def _first_groups(rows: csr_array, weights: Numbers, count: int, seed: int) -> Places:
    """Weighted k-means over a truncated SVD of histories of length 1; as many groups as different users allow."""
    count = min(count, rows.shape[0])
    if count == 1:
        return np.zeros(rows.shape[0], np.int64)
    units = normalize(rows)
    dimensions = min(_DIMENSIONS, units.shape[0], units.shape[1])
    svd = TruncatedSVD(dimensions, random_state=derive_seed(seed, "svd") % 2**32)
    svd.fit(csr_array(units.multiply(np.sqrt(weights)[:, None])))
    means = KMeans(count, n_init=4, random_state=derive_seed(seed, "groups") % 2**32)
    found = means.fit_predict(normalize(svd.transform(units)), sample_weight=weights)
    return np.unique(found, return_inverse=True)[1].astype(np.int64)
