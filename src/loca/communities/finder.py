"""Communities: what finds them, and what was found.

A finder is a frozen value with the parameters of one kind of communities. What it finds is another
value, which alone holds learned state: it is saved, and locates any history.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from scipy.sparse import csr_array

from loca.memory import DataSize, MemoryUse
from loca.models.params import Strategy, whole
from loca.models.recommender import Recommender, TrainingData
from loca.persistence.learned import supports_new_items, with_items
from loca.persistence.manifest import Persistent
from loca.remarks import remark
from loca.typing import FloatArray, IntArray

if TYPE_CHECKING:
    from typing import TypeVar

    Form = TypeVar("Form")


class Communities(Persistent, ABC):
    """Overlapping communities of users, which place any history, known user or not.

    Histories are located once. Their positions are then asked for everything else.

    Attributes
    ----------
    anchors : ndarray of int64 or None
        The row of the user who stands for each community; None where nobody does.
    divisions : int
        In so many divisions of the users the memberships of a history sum to 1, the communities of
        one division after those of the other; 0 where memberships are no probabilities.
    is_meaningful : bool
        Whether the members of a community have anything in common that could be shown.
    shared_epochs : int
        In so many first epochs networks learn from all users alike.
    seed_name : str
        Names the stream of the local models' seeds; those of an ensemble make them begin alike.

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
    divisions: int = 0
    is_meaningful: ClassVar[bool] = True
    shared_epochs: int = 0
    seed_name: ClassVar[str] = "local model"

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def locate(self, histories: csr_array) -> FloatArray:
        """Return the position of each history, users × dimensions."""

    @abstractmethod
    def train_weights(self, positions: FloatArray, community: int) -> FloatArray:
        """Return how much each user counts when one local model is trained: T, wide."""

    @abstractmethod
    def answer_weights(self, positions: FloatArray) -> csr_array:
        """Return how much each community's answer counts for each user, users × communities: W.

        The row of a user whom no community covers is empty.
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

    def softened(self, positions: FloatArray) -> Sequence[FloatArray]:
        """Return dense memberships from sharp to soft, among which a map takes what spreads users."""
        return [np.asarray(self.memberships(positions).toarray(), dtype=np.float32)]

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

    holds_forms: ClassVar[int] = 1  # so many fitted forms are in memory at once
    is_control: ClassVar[bool] = False  # its members have nothing in common: others are held to it

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

    def candidates(self, model: Any, data: TrainingData) -> Sequence[CommunityFinder]:
        """Return the finders among which validation is to choose: here this one alone."""
        return [self.limited_to(count_users(data))]

    def best(self, forms: Sequence[Form], judge: Any, combiner: Any) -> Form:
        """Return the form that answers validation best, of those that the candidates led to."""
        return forms[0]

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


def count_users(data: TrainingData) -> int:
    """Return how many users have a history and a weight above 0."""
    return len(users_with_history(data))


def users_with_history(data: TrainingData) -> IntArray:
    """Return the rows of the users who have a history and a weight above 0: they alone are counted."""
    has_history = np.diff(data.matrix.indptr) > 0
    return np.flatnonzero(has_history & (data.user_weights > 0))


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
