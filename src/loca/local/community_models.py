"""All that is local in a fitted `Loca`: communities, a model for each, and how answers are combined."""

from __future__ import annotations

from dataclasses import dataclass, replace

from scipy.sparse import csr_array

from loca.communities.finder import Communities, CommunityFinder
from loca.errors import ModelFileError
from loca.evaluation.metrics import Values
from loca.evaluation.top_n import AnyScores
from loca.local.combiner import Combiner, FixedShare, combined_scores
from loca.local.community_description import CommunityDescription
from loca.local.judge import Judge
from loca.local.local_models import LocalModels
from loca.models.recommender import Recommender
from loca.persistence.learned import learned_part, learned_value
from loca.persistence.manifest import Persistent


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
        batch = self.models.prepared(histories, answer_weights)
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
        combiner = FixedShare(share)
        locality = replace(self.description.locality, alpha=float(combiner.share))
        return replace(
            self,
            combiner=combiner,
            description=replace(self.description, locality=locality),
        )
