"""Communities: what finds them, and what was found.

A finder is a frozen value with the parameters of one kind of communities. What it finds is another
value, which alone holds learned state: it is saved, and locates any history.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self, TypeVar

import numpy as np
from scipy.sparse import csr_array

from loca.errors import DataError
from loca.evaluation.metrics import Values
from loca.memory import DataSize, MemoryUse
from loca.models.params import Strategy, whole
from loca.models.recommender import Recommender, TrainingData
from loca.persistence.learned import supports_new_items, with_items
from loca.persistence.manifest import Persistent
from loca.remarks import remark
from loca.typing import FloatArray, IntArray

# -- What a finder that chooses among others needs to know ----------------------------------------


class Judge(Protocol):
    """What choices on validation ask (`loca.local.judge`)."""

    def values_of_global_model(self) -> Values:
        """Return the value of each validation user's answer by the global model alone."""
        ...


class Trained(Protocol):
    """Communities with their trained models (`loca.local.community_models`)."""

    @property
    def finder(self) -> CommunityFinder: ...

    @property
    def learned_by_epoch(self) -> bool: ...

    def values(self, judge: Any) -> Values:
        """Return the value of each validation user's answer."""
        ...

    def with_global_share(self, share: float) -> Any:
        """Return the same with another share of the global model."""
        ...


class Chooser(Protocol):
    """How much of an answer is the global model's (`loca.local.combiner`)."""

    chooses_on_validation: ClassVar[bool]


class LocalModel(Protocol):
    """A `Loca`, as a finder sees it."""

    base: Recommender
    seed: int

    def values_with(
        self,
        finder: CommunityFinder,
        *,
        base: Recommender,
        global_model: Recommender,
        data: TrainingData,
    ) -> Values:
        """Return the value of each validation user by other communities over another base."""
        ...


AnyTrained = TypeVar("AnyTrained", bound=Trained)


# -- Communities, and what finds them -------------------------------------------------------------


class Communities(Persistent, ABC):
    """Overlapping communities of users, which place any history, known user or not.

    Histories are located once. Their positions are then asked for everything else.

    Attributes
    ----------
    anchors : ndarray of int64 or None
        The row of the user who stands for each community; None where nobody does.
    divisions : int
        Number of divisions of the users, whose communities follow each other. Within each the
        memberships of a user sum to 1; 0 where memberships are no probabilities.
    members_are_alike : bool
        Whether the members of a community have anything in common that an explanation could show.
    shared_epochs : int
        Number of epochs at the start in which networks learn from all users alike.
    seed_name : str
        Names the stream of the local models' seeds. With that of an ensemble, networks begin as its
        members do, and differ from them by their users alone.

    Examples
    --------
    >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12, shortest_history=10).interactions
    >>> model = loca.Loca(base=loca.EASE(), communities=loca.Kernels(n=4)).fit(data)
    >>> communities = model.local_.communities
    >>> positions = communities.locate(data.histories())
    >>> communities.answer_weights(positions).shape
    (60, 4)
    """

    anchors: IntArray | None = None
    members_are_alike: ClassVar[bool] = True
    shared_epochs: int = 0
    seed_name: ClassVar[str] = "local model"

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    def divisions(self) -> int:
        """The number of divisions; 0 where memberships are no probabilities."""
        return 0

    @abstractmethod
    def locate(self, histories: csr_array) -> FloatArray:
        """Return the position of each history, users × dimensions."""

    @abstractmethod
    def train_weights(self, positions: FloatArray, community: int) -> FloatArray:
        """Return how much each user counts when one local model is trained.

        It is wide: a column of T in section 3.3 of the paper.
        """

    @abstractmethod
    def answer_weights(self, positions: FloatArray) -> csr_array:
        """Return how much each community's answer counts for each user, users × communities.

        It is narrow: W in section 3.4 of the paper. The row of a user whom no community covers is
        empty.
        """

    def memberships(self, positions: FloatArray) -> csr_array:
        """Return how much each user belongs to each community, users × communities."""
        return self.answer_weights(positions)

    def count_members(self, memberships: csr_array) -> IntArray:
        """Return how many users each community has."""
        return np.bincount(memberships.indices, minlength=len(self))

    def while_learning(self) -> Communities:
        """Return the communities by which models are judged while they learn."""
        return self

    def alternatives(self) -> Sequence[Communities]:
        """Return those among which validation chooses once their models are trained.

        They locate histories alike, and answer from sharp to flat: by the nearest communities, or by
        many.
        """
        return [self]

    def flattened(self, positions: FloatArray, temperature: float) -> FloatArray:
        """Return dense memberships at a temperature, where they have one: the higher, the flatter."""
        return np.asarray(self.memberships(positions).toarray(), dtype=np.float32)

    @property
    def supports_new_items(self) -> bool:
        """Whether it can locate histories with items that came later."""
        return supports_new_items(self)

    def with_items(self, n_items: int) -> Self:
        """Return the communities for more items, which do not move anybody."""
        return with_items(self, n_items)

    def facts(self) -> dict[str, Any]:
        """Return what is worth knowing of them, as JSON values."""
        return {}


@dataclass(frozen=True, kw_only=True)
class CommunityFinder(Strategy, ABC):
    """Finds communities. Its parameters are those of one kind, and no others.

    Parameters
    ----------
    n : int, default 40
        Number of communities; one for each user where there are fewer.

    Examples
    --------
    >>> finders = (loca.Kernels(n=8), loca.Mixtures(n=8), loca.RandomGroups(n=8))
    >>> all(isinstance(finder, loca.CommunityFinder) for finder in finders)
    True
    >>> loca.clone(finders[0], n=5).n
    5
    """

    is_control: ClassVar[bool] = False  # whether it is what other finders are compared with

    n: int = whole(40)

    @abstractmethod
    def find(
        self, data: TrainingData, *, base: Recommender, global_model: Recommender, seed: int
    ) -> Communities:
        """Return the communities of the users in the training data.

        Parameters
        ----------
        data : TrainingData
            `data.histories` have the weights by recency with which users are located.
        base : Recommender
            What will be trained for each community, unfitted.
        global_model : Recommender
            The fitted model of all users.
        seed : int
            Seed of everything that is drawn.
        """

    def candidates(self, model: LocalModel, data: TrainingData) -> Sequence[CommunityFinder]:
        """Return the finders whose communities are trained; validation chooses among them.

        By default it is this one alone. A finder that chooses may try small models to shorten the
        list.
        """
        return [self.limited_to(len(users_with_history(data)))]

    def without_choice(self) -> CommunityFinder:
        """Return the finder that stands in for this one where the paper's protocol chooses nothing."""
        return self

    def n_trained(self, base: Recommender) -> int:
        """Return how many candidates are trained, and held in memory at once, at most."""
        return 1

    def best(
        self, trained: Sequence[AnyTrained], judge: Judge | None, combiner: Chooser
    ) -> AnyTrained:
        """Return which of the trained candidates answers validation best."""
        return trained[0]

    def selected(self, communities: Any) -> CommunityFinder:
        """Return the finder with what was chosen while it found these communities."""
        return self

    def limited_to(self, n_users: int) -> Self:
        """Return the finder with at most one community for each user."""
        if n_users < self.n:
            text = f"{n_users:,} users with a history allow {n_users} communities, not {self.n}"
            remark("communities", text)
        return self.with_n(min(self.n, n_users))

    def with_n(self, n: int) -> Self:
        """Return the finder with another number of communities."""
        return replace(self, n=n)

    def memory(
        self, size: DataSize, *, base: Recommender, global_model: Recommender
    ) -> dict[str, MemoryUse]:
        """Estimate the memory of each step of `find`."""
        return {"communities": memory_of_weights(size, self.n, dimensions=self.n)}

    def __str__(self) -> str:
        return f"{self.n} communities"


def users_with_history(data: TrainingData) -> IntArray:
    """Return the rows of the users who are counted: with a history, and a weight above 0."""
    has_history = np.diff(data.matrix.indptr) > 0
    users = np.flatnonzero(has_history & (data.user_weights > 0))
    if not len(users):
        raise DataError(
            "expected a user with a history among those with a weight above 0, found none"
        )
    return users


def memory_of_weights(
    size: DataSize, n: int, *, dimensions: int, share: float = 1.0, main: int = 0
) -> MemoryUse:
    """Estimate positions, the weights with which communities answer, and what they are found with.

    `share` is the share of the pairs of user and community that answer.
    """
    positions = 4 * size.users * dimensions
    # Weight and community, by user and back.
    stays = positions + 16 * int(size.users * n * share + 1)
    return MemoryUse(
        main=stays + 3 * positions + main, main_after=stays, folder=n * (16 + 4 * dimensions)
    )


def evenly_spaced_rows(n_rows: int, most: int) -> IntArray:
    """Return row numbers below `n_rows`, all or at most so many, evenly spaced."""
    return np.unique(np.linspace(0, n_rows - 1, min(n_rows, most)).astype(np.int64))
