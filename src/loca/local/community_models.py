"""All that is local in a fitted `Loca`: communities, a model for each, and how answers are combined."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.communities.finder import Communities, CommunityFinder
from loca.errors import ModelFileError
from loca.evaluation.metrics import Values
from loca.evaluation.top_n import AnyScores
from loca.local.combiner import Combiner, FixedShare, combined_scores
from loca.local.explain import Locality, over_represented
from loca.local.judge import Judge
from loca.local.local_models import LocalModels, PreparedBatch
from loca.models.recommender import Recommender, TrainingData
from loca.persistence.learned import learned, learned_part, learned_value
from loca.persistence.manifest import Persistent
from loca.typing import FloatArray, IntArray

DISTINCTIVE_ITEMS = 20


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
            locality=_locality(communities, positions, data, combiner),
        )

    def check(self) -> None:
        """Refuse items with a row below 0."""
        if (self.distinctive_items < 0).any():
            raise ModelFileError("distinctive_items: an item has a row below 0")


def _locality(
    communities: Communities, positions: FloatArray, data: TrainingData, combiner: Combiner
) -> Locality:
    """Return how local the answers to the training users with a history are."""
    users = np.flatnonzero(np.diff(data.matrix.indptr) > 0)
    located, user_weights = positions[users], data.user_weights[users].astype(np.float64)
    answer_weights = communities.answer_weights(located)
    shares = [
        _effective_share(communities.train_weights(located, number) * user_weights)
        for number in range(len(communities))
    ]
    return Locality(
        alpha=mean_global_share(combiner, answer_weights),
        effective_share=float(np.mean(shares)),
        answering=float(np.diff(answer_weights.indptr).mean()),
    )


def _effective_share(weights: npt.NDArray[np.float64]) -> float:
    """Return (Σt)² / Σt² / users: the share of the users that a model trains on in effect."""
    squares = np.square(weights).sum()
    return float(weights.sum() ** 2 / squares / len(weights)) if squares else 0.0


def mean_global_share(combiner: Combiner, answer_weights: csr_array) -> float:
    """Return the global model's share in the answers to covered users, as a mean."""
    covered = np.diff(answer_weights.indptr) > 0
    shares = combiner.global_shares(answer_weights)[covered]
    if not len(shares):
        return 1.0
    # The mean of equal shares would be off by rounding: a share of 0.3 is shown as it was chosen.
    return float(shares[0]) if (shares == shares[0]).all() else float(shares.mean())


@dataclass(frozen=True, eq=False, kw_only=True)
class CommunityModels(Persistent):
    """All that is local: communities, a model for each, and how answers are combined.

    `finder` and `combiner` have what validation chose as parameters, for a refit.
    """

    finder: CommunityFinder = learned_value(CommunityFinder, selects="communities")
    communities: Communities = learned_part(Communities, "items")
    models: LocalModels = learned_part(LocalModels, "items")
    combiner: Combiner = learned_value(Combiner, selects="combiner")
    description: CommunityDescription = learned_part(CommunityDescription)

    def check(self) -> None:
        """Refuse parts of different numbers of communities, and items that nobody scores."""
        n, n_models = len(self.communities), len(self.models)
        if n_models != n:
            raise ModelFileError(f"expected {n} local models, found {n_models}")
        if len(self.description.members) != n:
            raise ModelFileError(f"the description does not fit {n} communities")
        if self.description.distinctive_items.max(initial=0) >= self.models.count_items():
            raise ModelFileError("distinctive_items: an item that nobody scores")

    def answer_weights(self, histories: csr_array) -> csr_array:
        """Return how much each community counts for each history, users × communities."""
        return self.communities.answer_weights(self.communities.locate(histories))

    def scores(self, global_model: Recommender, histories: csr_array) -> AnyScores:
        """Return local and global scores combined, users × items."""
        return self.scores_of(global_model, histories, self.answer_weights(histories))

    def scores_of(
        self, global_model: Recommender, histories: csr_array, answer_weights: csr_array
    ) -> AnyScores:
        """Return the scores of histories that communities answer with given weights."""
        batch = PreparedBatch(histories=histories, answer_weights=answer_weights)
        return next(combined_scores(self.models, global_model, batch, [self.combiner]))

    @property
    def learned_by_epoch(self) -> bool:
        """Whether the models are networks."""
        return self.models.epochs_ is not None

    def values(self, judge: Judge) -> Values:
        """Return the value of each validation user's answer."""
        return judge.locate(self.communities).panel().values(self.models, self.combiner)

    def with_global_share(self, share: float) -> CommunityModels:
        """Return the same with another share of the global model."""
        locality = replace(self.description.locality, alpha=float(share))
        return replace(
            self,
            combiner=FixedShare(share),
            description=replace(self.description, locality=locality),
        )
