"""A model, a finder, communities, a combiner, an engine and a metric as a user would write them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

import loca
from loca.evaluation.metrics import Counts, Hits, Metric, Values
from loca.local.engines.engine import Validator
from loca.local.local_models import LocalModels
from loca.memory import DataSize, MemoryUse
from loca.models.params import positive, share, whole
from loca.models.recommender import TrainingData, check_histories
from loca.persistence.learned import learned
from loca.typing import FloatArray


@dataclass(kw_only=True, eq=False, repr=False)
class Together(loca.Recommender):
    """Score an item by how often it was taken together with the items of a history.

    Parameters
    ----------
    shrinkage : float, default 5.0
        Added to the number of an item's users.
    """

    shrinkage: float = positive(5.0)
    weights_: FloatArray = learned("items", "items")

    similarity_kind = "symmetric"

    def _fit(self, data: TrainingData) -> None:
        """Count pairs of items, weighted by their users."""
        weighted = data.matrix.multiply(data.user_weights[:, None])
        counts = (data.matrix.T @ weighted).toarray()
        sizes = np.sqrt(np.diag(counts) + self.shrinkage)
        weights = counts / np.outer(sizes, sizes)
        np.fill_diagonal(weights, 0)
        self.weights_ = weights.astype(np.float32)

    def score(self, histories: csr_array) -> FloatArray:
        """Return the sum of the weights from the items of each history."""
        return np.asarray(self._check_histories(histories) @ self.weights_)

    def _similarities(self, item_rows: npt.NDArray[np.int64]) -> FloatArray:
        return np.clip(self.weights_[item_rows], -1, 1)

    def memory_bytes(self, data: DataSize) -> MemoryUse:
        """Estimate the weights, twice while they are made."""
        stored = 4 * data.items**2
        return MemoryUse(main=3 * stored, main_after=stored, folder=stored)


@dataclass(frozen=True, kw_only=True)
class KMeansGroups(loca.CommunityFinder):
    """Group users by k-means of their histories; who is near the centre of a group belongs to it.

    Parameters
    ----------
    n : int, default 40
        Number of groups.
    rounds : int, default 5
        Rounds of moving centres.
    """

    rounds: int = whole(5)

    def find(
        self,
        data: TrainingData,
        *,
        base: loca.Recommender,
        global_model: loca.Recommender,
        seed: int,
    ) -> KMeansCommunities:
        """Return groups around centres, which begin at users drawn at random."""
        rows = data.histories.toarray()
        rng = np.random.default_rng(seed)
        centres = rows[rng.choice(len(rows), self.n, replace=False)].astype(np.float32)
        for _ in range(self.rounds):
            nearest = KMeansCommunities(centres=centres).nearest(rows)
            members = [rows[nearest == group] for group in range(self.n)]
            centres = np.array(
                [
                    group.mean(axis=0) if len(group) else centre
                    for group, centre in zip(members, centres, strict=True)
                ],
                dtype=np.float32,
            )
        return KMeansCommunities(centres=centres)


@dataclass(frozen=True, eq=False, kw_only=True)
class KMeansCommunities(loca.Communities):
    """Groups around centres; a position is the distance to each centre."""

    centres: FloatArray = learned("communities", "items")

    def __len__(self) -> int:
        return len(self.centres)

    def locate(self, histories: csr_array) -> FloatArray:
        """Return the distance of each history to each centre."""
        rows = check_histories(histories, self.centres.shape[1]).toarray()
        return self._distances(rows)

    def nearest(self, rows: FloatArray) -> npt.NDArray[np.int64]:
        """Return the group of each row."""
        return self._distances(rows).argmin(axis=1)

    def _distances(self, rows: FloatArray) -> FloatArray:
        squares = ((rows[:, None, :] - self.centres) ** 2).sum(axis=2)
        return np.sqrt(squares).astype(np.float32)

    def train_weights(self, positions: FloatArray, community: int) -> FloatArray:
        """Return a weight that falls with the distance, for everybody."""
        return np.asarray(np.exp(-positions[:, community]) + 1e-3, dtype=np.float32)

    def answer_weights(self, positions: FloatArray) -> csr_array:
        """Return 1 for the nearest group."""
        is_nearest = positions == positions.min(axis=1, keepdims=True)
        return csr_array(is_nearest.astype(np.float32))


@dataclass(frozen=True, kw_only=True)
class LocalWhereNear(loca.Combiner):
    """Let the communities answer more, the more of them answer.

    Parameters
    ----------
    least : float, default 0.2
        The global model's share, however many communities answer.
    """

    least: float = share(0.2)

    def global_shares(self, answer_weights: csr_array) -> npt.NDArray[np.float64]:
        """Return the least share, and the rest divided by one more than the communities."""
        n_answering = np.diff(csr_array(answer_weights).indptr)
        return self.least + (1 - self.least) / (1 + n_answering)


@dataclass(frozen=True, kw_only=True)
class Backwards(loca.Loop):
    """Fit the last model first; the scores are those of the loop."""

    def solve(self, fits: loca.ManyFits) -> LocalModels:
        """Return the models in their own order."""
        turned = replace(
            fits,
            models=fits.models[::-1],
            weights_of=lambda number: fits.weights_of(len(fits) - 1 - number),
        )
        models = super().solve(turned)
        models.models_ = models.models_[::-1]  # type: ignore[attr-defined]
        return models

    def train(self, fits: loca.ManyFits, validate: Validator | None = None) -> LocalModels:
        """Return the fitted models."""
        return super().train(fits, validate)


def first_place(hits: Hits, target_counts: Counts, k: int) -> Values:
    """Return 1 where the first item of a list is a hit."""
    return np.asarray(hits[:, 0], dtype=np.float64)


FIRST_PLACE = Metric("first_place", 5, first_place)
CLASSES = [Together, KMeansGroups, KMeansCommunities, LocalWhereNear, Backwards]


def own_model() -> loca.Loca:
    """Return a local model that is made of these parts alone."""
    return loca.Loca(
        base=Together(shrinkage=3.0),
        communities=KMeansGroups(n=4),
        combiner=LocalWhereNear(least=0.1),
        engine=Backwards(),
    )
