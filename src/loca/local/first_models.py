"""A Loca or an Ensemble that answers with only the first of its models, as a smaller one would."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from loca.data.interactions import Interactions
from loca.errors import ConfigError
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.local.validation import BlendedAnswers
from loca.models.recommender import Scores, fitted


class FirstModels:
    """The first `count` models of a fitted `whole`; who is then left without a community gets the global scores.

    Anchors are chosen one after the other, but for k-means, and each model draws from its own stream: these are the
    models of a whole that has no more, which learned for as many epochs, and share the whole's α.
    """

    def __init__(self, whole: Loca | Ensemble, count: int) -> None:
        size = whole.anchors if isinstance(whole, Loca) else whole.models
        if not 1 <= count <= size:
            raise ConfigError(f"expected from 1 to {size} of the models, found {count}")
        self.whole = whole
        self.count = count

    @property
    def known_(self) -> Interactions | None:
        return self.whole.known_

    def count_items(self) -> int:
        """How many items it scores."""
        return self.whole.count_items()

    def score(self, histories: csr_array) -> Scores:
        """The scores of the first models alone, users × items."""
        rows, whole = csr_array(histories), self.whole
        if isinstance(whole, Ensemble):
            models = fitted(whole.models_, whole)
            everyone = csr_array(np.ones((rows.shape[0], len(models)), dtype=np.float32))
            scores = models.blend(rows, keep_first(everyone, self.count))
        else:
            answers = BlendedAnswers(fitted(whole.locals_, whole), fitted(whole.global_, whole))
            weights = fitted(whole.communities_, whole).answer_weights(whole.embed(rows))
            scores = answers.scores(rows, keep_first(weights, self.count), fitted(whole.alpha_, whole))
        return np.asarray(scores.cpu().numpy(), dtype=np.float32)


def keep_first(answer_weights: csr_array, count: int) -> csr_array:
    """The same weights, users × models, with nothing stored but for the first models."""
    kept = csr_array(answer_weights, copy=True)
    kept.data[kept.indices >= count] = 0
    kept.eliminate_zeros()
    return kept
