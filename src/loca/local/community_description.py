"""What is known of communities once they are fitted: members, distinctive items, how local they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.communities.finder import Communities
from loca.errors import ModelFileError
from loca.local.combiner import Combiner
from loca.models.recommender import TrainingData
from loca.persistence.learned import learned, learned_value
from loca.persistence.manifest import Persistent
from loca.typing import FloatArray, IntArray

DISTINCTIVE_ITEMS = 20
_PSEUDO_MEMBERS = 20.0


@dataclass(frozen=True)
class Locality:
    """How local the answers are.

    `alpha` is the global model's share in the answer to a covered user. `effective_share` is the
    share of the users that a local model trains on in effect, (Σt)² / Σt² over the users' train
    weights t, as a mean over the communities: it is 1 where all count the same. `answering` is how
    many communities answer a user, as a mean over the users.
    """

    alpha: float
    effective_share: float
    answering: float

    def __str__(self) -> str:
        return (
            f"global share alpha {self.alpha:g}; "
            f"a local model trains on {self.effective_share:.1%} of the users in effect; "
            f"{self.answering:.3g} communities answer a user"
        )

    @classmethod
    def of(
        cls,
        communities: Communities,
        positions: FloatArray,
        data: TrainingData,
        combiner: Combiner,
    ) -> Self:
        """Return how local the answers to the training users with a history are."""
        users = np.flatnonzero(np.diff(data.matrix.indptr) > 0)
        located = positions[users]
        user_weights = data.user_weights[users].astype(np.float64)
        answer_weights = communities.answer_weights(located)
        shares = [
            _effective_share(communities.train_weights(located, number) * user_weights)
            for number in range(len(communities))
        ]
        return cls(
            alpha=mean_global_share(combiner, answer_weights),
            effective_share=float(np.mean(shares)),
            answering=float(np.diff(answer_weights.indptr).mean()),
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class CommunityDescription(Persistent):
    """What is known of communities: their members, and the items that these have more often.

    `distinctive_items` are item rows, the most distinctive first, and `lifts` how many times as
    often members have them.
    """

    members: IntArray = learned("communities", dtype=np.int64)
    distinctive_items: npt.NDArray[np.int32] = learned("communities", "listed", dtype=np.int32)
    lifts: FloatArray = learned("communities", "listed")
    locality: Locality = learned_value(Locality)

    @classmethod
    def of(
        cls,
        communities: Communities,
        positions: FloatArray,
        data: TrainingData,
        combiner: Combiner,
    ) -> Self:
        """Return the description of the communities of located training users."""
        memberships = communities.memberships(positions)
        items, lifts = over_represented(
            data.matrix,
            memberships,
            DISTINCTIVE_ITEMS,
            well_known=communities.divisions > 0,
        )
        return cls(
            members=communities.count_members(memberships),
            distinctive_items=items,
            lifts=lifts,
            locality=Locality.of(communities, positions, data, combiner),
        )

    def check(self) -> None:
        """Refuse items with a row below 0."""
        if (self.distinctive_items < 0).any():
            raise ModelFileError("distinctive_items: an item has a row below 0")


def over_represented(
    matrix: csr_array, memberships: csr_array, n: int, *, well_known: bool = False
) -> tuple[npt.NDArray[np.int32], FloatArray]:
    """Return the items that members have most in excess of everybody's share, and by what factor.

    Both are communities × n, the largest excess first. It is counted in standard deviations of
    chance, so that an item that two members have is not called typical. With `well_known` the
    largest members · log(factor) is first, what an item adds to the difference from everybody: items
    that many members have come before rare ones. The factors are shares among members over shares
    among all, pulled towards 1 by 20 pseudo-members.
    """
    n = min(n, matrix.shape[1])
    share_of_all = np.asarray(matrix.sum(axis=0)).ravel() / matrix.shape[0]  # (items,)
    sizes = np.asarray(memberships.sum(axis=0)).ravel()  # (communities,)
    items = np.zeros((len(sizes), n), dtype=np.int32)
    lifts = np.ones((len(sizes), n), dtype=np.float32)
    by_community = csr_array(memberships.T)
    for community, size in enumerate(sizes):
        held = (by_community[[community]] @ matrix).toarray()[0]  # (items,)
        expected = size * share_of_all
        factors = (held + _PSEUDO_MEMBERS * share_of_all) / (
            (size + _PSEUDO_MEMBERS) * np.maximum(share_of_all, 1e-12)
        )
        if well_known:
            excess = held * np.log(np.maximum(factors, 1e-12))
        else:
            excess = (held - expected) / np.sqrt(expected + 1)
        items[community] = np.argsort(-excess, kind="stable")[:n]
        lifts[community] = factors[items[community]]
    return items, lifts


def mean_global_share(combiner: Combiner, answer_weights: csr_array) -> float:
    """Return the global model's share in the answers to covered users, as a mean."""
    covered = np.diff(answer_weights.indptr) > 0
    shares = combiner.global_shares(answer_weights)[covered]
    if not len(shares):
        return 1.0
    # The mean of equal shares would be off by rounding: a share of 0.3 is shown as it was chosen.
    return float(shares[0]) if (shares == shares[0]).all() else float(shares.mean())


def _effective_share(weights: npt.NDArray[np.float64]) -> float:
    """Return (Σt)² / Σt² / users: the share of the users that a model trains on in effect."""
    squares = np.square(weights).sum()
    return float(weights.sum() ** 2 / squares / len(weights)) if squares else 0.0
