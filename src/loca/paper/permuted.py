"""The control for what communities earn: the same ones, with the positions of other users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.communities.finder import Communities, CommunityFinder
from loca.errors import DataError
from loca.memory import DataSize, MemoryUse
from loca.models.params import param
from loca.models.recommender import Recommender, TrainingData, check_histories, clone
from loca.persistence.learned import learned, learned_part
from loca.random_streams import stream
from loca.typing import FloatArray, IntArray

_USERS_AT_ONCE = 256


def _is_finder(value: object) -> bool:
    return isinstance(value, CommunityFinder)


@dataclass(frozen=True, kw_only=True)
class Permuted(CommunityFinder):
    """Find communities, then give every user the position of another one, drawn at random.

    The communities have the same sizes, and memberships are as sure; only that alike users are
    together is gone. A history has the position that was drawn for the training user with whom it
    has most items in common.

    Parameters
    ----------
    finder : CommunityFinder
        What finds the communities; its `n` counts.
    """

    is_control: ClassVar[bool] = True

    n: int = field(default=0, init=False, repr=False)
    finder: CommunityFinder = param(..., "a finder such as Mixtures()", _is_finder)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "n", self.finder.n)

    def find(
        self, data: TrainingData, *, base: Recommender, global_model: Recommender, seed: int
    ) -> PermutedCommunities:
        """Return the finder's communities among permuted users."""
        communities = self.finder.find(data, base=base, global_model=global_model, seed=seed)
        histories = data.histories
        order = stream(seed, "dealt memberships").permutation(histories.shape[0])
        anchors = communities.anchors
        if anchors is not None:
            receivers = np.argsort(order)  # who has the position of each user
            anchors = receivers[anchors]
        return PermutedCommunities(
            communities=communities,
            positions=communities.locate(histories)[order],
            anchors=anchors,
            known_items=histories.indices.astype(np.int32),
            known_starts=histories.indptr.astype(np.int64),
        )

    def selected(self, communities: PermutedCommunities) -> Permuted:
        """Return the finder with what its own communities chose."""
        return Permuted(finder=self.finder.selected(communities.communities))

    def with_n(self, n: int) -> Self:
        """Return the finder with another number of communities."""
        return type(self)(finder=self.finder.with_n(n))

    def memory(
        self, size: DataSize, *, base: Recommender, global_model: Recommender
    ) -> dict[str, MemoryUse]:
        """Estimate the finder, and the positions and histories of all users."""
        steps = self.finder.memory(size, base=base, global_model=global_model)
        stored = 4 * size.users * self.n + 4 * size.entries
        known = MemoryUse(main=2 * stored, main_after=stored, folder=stored)
        return {**steps, "permuted users": known}

    def __str__(self) -> str:
        return f"{self.finder}, of other users"


@dataclass(frozen=True, eq=False, kw_only=True)
class PermutedCommunities(Communities):
    """Communities in which every training user has the position of another one."""

    communities: Communities = learned_part(Communities, "items")
    positions: FloatArray = learned("users", "dimensions")
    anchors: IntArray | None = learned("communities", dtype=np.int64, optional=True)
    known_items: npt.NDArray[np.int32] = learned("entries", dtype=np.int32)
    known_starts: IntArray = learned("users + 1", dtype=np.int64)

    def check(self) -> None:
        """Refuse known histories that do not fit the users."""
        starts, items = self.known_starts, self.known_items
        n_users = len(self.positions)
        rises = len(starts) == n_users + 1 and starts[0] == 0 and (np.diff(starts) >= 0).all()
        if not n_users or not rises or starts[-1] != len(items) or (items < 0).any():
            raise DataError(f"the known histories do not fit {n_users} users")

    @property
    def divisions(self) -> int:
        """Those of the communities."""
        return self.communities.divisions

    @property
    def shared_epochs(self) -> int:  # type: ignore[override]
        """Those of the communities."""
        return self.communities.shared_epochs

    @property
    def seed_name(self) -> str:  # type: ignore[override]
        """That of the communities."""
        return self.communities.seed_name

    def __len__(self) -> int:
        return len(self.communities)

    def locate(self, histories: csr_array) -> FloatArray:
        """Return the position that was drawn for the most similar training user.

        An empty history keeps its own.
        """
        n_items = histories.shape[1]
        rows = check_histories(histories, n_items)
        if self.known_items.max(initial=-1) >= n_items:
            raise DataError(f"the known histories have items beyond the {n_items} of these")
        ones = np.ones(len(self.known_items), np.float32)
        shape = (len(self.positions), n_items)
        known = csr_array((ones, self.known_items, self.known_starts), shape=shape).T.tocsr()
        nobody = csr_array(np.zeros((1, n_items), dtype=np.float32))
        positions = np.tile(self.communities.locate(nobody), (rows.shape[0], 1))
        # Of equally similar users the one with the fewest other items.
        tie = 1e-6 * np.diff(self.known_starts)
        for start in range(0, rows.shape[0], _USERS_AT_ONCE):
            block = csr_array(rows[start : start + _USERS_AT_ONCE])
            block.data = np.ones_like(block.data)
            nearest = ((block @ known).toarray() - tie).argmax(axis=1)
            has_history = np.flatnonzero(np.diff(block.indptr))
            positions[start + has_history] = self.positions[nearest[has_history]]
        return positions

    def train_weights(self, positions: FloatArray, community: int) -> FloatArray:
        """Return those of the communities."""
        return self.communities.train_weights(positions, community)

    def answer_weights(self, positions: FloatArray) -> csr_array:
        """Return those of the communities."""
        return self.communities.answer_weights(positions)

    def memberships(self, positions: FloatArray) -> csr_array:
        """Return those of the communities."""
        return self.communities.memberships(positions)

    def count_members(self, memberships: csr_array) -> IntArray:
        """Return those of the communities."""
        return self.communities.count_members(memberships)

    def while_learning(self) -> PermutedCommunities:
        """Return the same users, with the communities as they are while models learn."""
        return replace(self, communities=self.communities.while_learning())

    def alternatives(self) -> Sequence[PermutedCommunities]:
        """Return the same users, with the alternatives of the communities."""
        return [replace(self, communities=other) for other in self.communities.alternatives()]

    def flattened(self, positions: FloatArray, temperature: float) -> FloatArray:
        """Return those of the communities."""
        return self.communities.flattened(positions, temperature)

    def with_items(self, n_items: int) -> PermutedCommunities:
        """Return the communities for more items."""
        return replace(self, communities=self.communities.with_items(n_items))

    def facts(self) -> dict[str, Any]:
        """Return those of the communities."""
        return self.communities.facts()


def with_parameters(finder: CommunityFinder, **changes: Any) -> CommunityFinder:
    """Return a finder with other parameters; of a permuted one they are those of its finder."""
    if isinstance(finder, Permuted):
        return Permuted(finder=clone(finder.finder, **changes))
    return clone(finder, **changes)
