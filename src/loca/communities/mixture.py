"""Communities by likelihood: the components of mixtures of multinomials over the items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy.sparse import csr_array

from loca.communities.embeddings import embed_in_blocks
from loca.communities.finder import (
    Communities,
    CommunityFinder,
    memory_of_weights,
    users_with_history,
)
from loca.communities.memberships import (
    check_divisions,
    choose_shared_epochs,
    flattened_memberships,
    is_count,
    is_fraction,
    is_natural,
    is_positive,
    mean_memberships,
    shown_memberships,
    summed_members,
    train_weights_by_membership,
)
from loca.communities.multinomial_mixture import MultinomialMixture
from loca.errors import DataError
from loca.memory import DataSize, MemoryUse
from loca.models.params import positive, share, whole
from loca.models.recommender import Recommender, TrainingData
from loca.persistence.learned import learned, learned_fact, learned_part
from loca.progress import say
from loca.typing import FloatArray, IntArray

# The last weights all communities nearly alike.
TEMPERATURES = (1.0, 2.0, 4.0, 8.0, 16.0, 64.0, 1024.0)
_TEMPERATURE_WITHOUT_VALIDATION = 8.0
_TEMPERATURE_WHILE_LEARNING = 16.0
_WEIGHT_FOR_NETWORKS = 0.8
_WEIGHT_FOR_SOLVED_MODELS = 0.5


@dataclass(frozen=True, kw_only=True)
class Mixtures(CommunityFinder):
    """Find communities as components of mixtures of multinomials, side by side.

    Everybody belongs to some community of each mixture. All users teach each local model, members
    more. Networks learn from all users alike at first, then for their community.

    Parameters
    ----------
    n : int, default 40
        Number of communities in all; each mixture has n / mixtures.
    mixtures : int, default 2
        Mixtures side by side.
    membership_weight : float or None, default None
        How much of a user's train weight goes by membership: 0 everybody alike, 1 members alone.
        None takes 0.8 for networks and 0.5 for other models.
    temperature : float or None, default None
        Of memberships when communities answer: above 1 is flatter. None chooses it on validation
        (8 without any).
    top_k : int, default 16
        The most communities that answer a history.
    shared_epochs : int or None, default None
        Epochs in which networks learn from all users alike. None takes as many as the global model
        took, at most two thirds of all.

    Examples
    --------
    >>> model = loca.Loca(base=loca.EASE(), communities=loca.Mixtures(n=24, temperature=4))
    >>> model.communities.mixtures
    2
    """

    mixtures: int = whole(2)
    membership_weight: float | None = share(None, optional=True)
    temperature: float | None = positive(None, optional=True)
    top_k: int = whole(16)
    shared_epochs: int | None = whole(None, least=0, optional=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_divisions("mixtures", self.mixtures, self.n)

    def find(
        self, data: TrainingData, *, base: Recommender, global_model: Recommender, seed: int
    ) -> MixtureCommunities:
        """Return the components of fitted mixtures."""
        components = self.n // self.mixtures
        mixture = data.fit_part(
            "embedding",
            MultinomialMixture(components=components, mixtures=self.mixtures, seed=seed),
        )
        users = users_with_history(data)
        log_memberships = mixture.embed(csr_array(data.histories[users]))
        means = mean_memberships(log_memberships, data.user_weights[users])
        n_tiny = int((means * len(users) < 1).sum())
        if n_tiny:
            say(f"{n_tiny} of {len(means)} communities have less than one member: fewer would do")
        return MixtureCommunities(
            mixture=mixture,
            anchors=users[log_memberships.argmax(axis=0)],
            mean_memberships=means,
            membership_weight=self.weight_for(base),
            temperature=None if self.temperature is None else float(self.temperature),
            top_k=self.top_k,
            shared_epochs=choose_shared_epochs(self.shared_epochs, base, global_model),
        )

    def weight_for(self, base: Recommender) -> float:
        """Return the membership weight for copies of a model."""
        if self.membership_weight is not None:
            return float(self.membership_weight)
        return _WEIGHT_FOR_NETWORKS if base.learns_by_epoch else _WEIGHT_FOR_SOLVED_MODELS

    def selected(self, communities: MixtureCommunities) -> Mixtures:
        """Return the finder with the temperature and all else that was chosen."""
        return replace(
            self,
            n=len(communities),
            membership_weight=communities.membership_weight,
            temperature=communities.temperature,
            shared_epochs=communities.shared_epochs,
        )

    def with_n(self, n: int) -> Self:
        """Return the finder with at most so many communities, as many in each mixture."""
        mixtures = min(self.mixtures, n)
        return replace(self, n=n // mixtures * mixtures, mixtures=mixtures)

    def memory(
        self, size: DataSize, *, base: Recommender, global_model: Recommender
    ) -> dict[str, MemoryUse]:
        """Estimate the mixtures while they are fitted, and the memberships."""
        components = max(self.n // self.mixtures, 1)
        mixture = MultinomialMixture(components=components, mixtures=self.mixtures)
        answering = min(self.top_k / self.n, 1.0)
        return {
            "embedding": mixture.memory_bytes(size),
            "communities": memory_of_weights(size, self.n, dimensions=self.n, share=answering),
        }

    def __str__(self) -> str:
        text = f"{self.mixtures} × {self.n // self.mixtures} communities by likelihood"
        if self.membership_weight is None:
            return text
        return f"{text}, membership weight {self.membership_weight:g}"


@dataclass(frozen=True, eq=False, kw_only=True)
class MixtureCommunities(Communities):
    """The components of mixtures, one mixture after the other; a position is its log memberships.

    A community answers with softmax(log membership / temperature) of its mixture, the mean over the
    mixtures; of these weights the `top_k` largest stay. `anchors` are the surest members. The temperature is
    None until it is chosen.
    """

    mixture: MultinomialMixture = learned_part(MultinomialMixture, "items", "communities")
    anchors: IntArray = learned("communities", dtype=np.int64)
    mean_memberships: FloatArray = learned("communities")
    membership_weight: float = learned_fact("a number from 0 to 1", is_fraction)
    temperature: float | None = learned_fact("a number above 0", is_positive, optional=True)
    top_k: int = learned_fact("a whole number ≥ 1", is_count)
    shared_epochs: int = learned_fact("a whole number ≥ 0", is_natural)

    seed_name: ClassVar[str] = "ensemble member"

    def check(self) -> None:
        """Refuse anchors and memberships below 0."""
        if (self.anchors < 0).any():
            raise DataError("an anchor has a row below 0")
        if (self.mean_memberships < 0).any():
            raise DataError("mean_memberships: expected numbers of at least 0")

    @property
    def divisions(self) -> int:
        """The number of mixtures."""
        return self.mixture.mixtures

    def __len__(self) -> int:
        return len(self.mean_memberships)

    def locate(self, histories: csr_array) -> FloatArray:
        """Return the log membership of each history in each community."""
        return embed_in_blocks(self.mixture, histories)

    def train_weights(self, positions: FloatArray, community: int) -> FloatArray:
        """Return a weight that grows with the membership."""
        memberships = np.exp(self._checked(positions)[:, community])
        return train_weights_by_membership(
            memberships, self.mean_memberships[community], self.membership_weight
        )

    def answer_weights(self, positions: FloatArray) -> csr_array:
        """Return the flattened memberships of the strongest communities; rows sum to 1."""
        temperature = self.temperature or _TEMPERATURE_WITHOUT_VALIDATION
        return flattened_memberships(
            self._checked(positions), self.divisions, temperature, self.top_k
        )

    def memberships(self, positions: FloatArray) -> csr_array:
        """Return the probability of each community, where it is at least a hundredth."""
        return shown_memberships(self._checked(positions))

    def count_members(self, memberships: csr_array) -> IntArray:
        """Return how many users each community has: the sum of their probabilities, rounded."""
        return summed_members(memberships)

    def while_learning(self) -> MixtureCommunities:
        """Return the communities with a high temperature, where it is still to be chosen."""
        if self.temperature is not None:
            return self
        return replace(self, temperature=_TEMPERATURE_WHILE_LEARNING)

    def alternatives(self) -> Sequence[MixtureCommunities]:
        """Return the communities with rising temperatures, where none is given."""
        if self.temperature is not None:
            return [self]
        return [replace(self, temperature=temperature) for temperature in TEMPERATURES]

    def flattened(self, positions: FloatArray, temperature: float) -> FloatArray:
        """Return the memberships at a temperature, users × communities."""
        weights = flattened_memberships(
            self._checked(positions), self.divisions, temperature, len(self)
        )
        return np.asarray(weights.toarray(), dtype=np.float32)

    def facts(self) -> dict[str, Any]:
        """Return the number of mixtures, the membership weight and the temperature."""
        return {
            "mixtures": self.divisions,
            "membership_weight": self.membership_weight,
            "temperature": self.temperature or _TEMPERATURE_WITHOUT_VALIDATION,
            "coverage": 1.0,
        }

    def _checked(self, positions: FloatArray) -> FloatArray:
        if positions.ndim != 2 or positions.shape[1] != len(self):
            raise DataError(
                f"memberships: expected {len(self)} communities, found shape {positions.shape}"
            )
        return positions
