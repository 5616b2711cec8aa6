"""Groups drawn at random in place of communities: an ensemble of models that differ more."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

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
    is_fraction,
    is_natural,
    mean_memberships,
    train_weights_by_membership,
)
from loca.errors import DataError
from loca.memory import DataSize, MemoryUse
from loca.models.params import share, whole
from loca.models.recommender import Recommender, TrainingData, check_histories
from loca.persistence.learned import learned, learned_fact
from loca.random_streams import stream
from loca.typing import FloatArray

_MEMBERSHIP_OF_OTHERS = 0.01
_TEMPERATURE = 1024.0  # high enough for all groups to answer alike


@dataclass(frozen=True, kw_only=True)
class RandomGroups(CommunityFinder):
    """Divide users at random into groups, several times over; all groups answer everybody alike.

    The group of a history follows from its items and the seed. Where communities earn nothing,
    models that differ still do.

    Parameters
    ----------
    n : int, default 40
        Number of groups in all; each division has n / divisions.
    divisions : int, default 2
        Divisions side by side.
    membership_weight : float, default 0.3
        How much of a user's train weight goes by membership: 0 everybody alike, 1 members alone.
    shared_epochs : int, default 0
        Epochs in which networks learn from all users alike.

    Examples
    --------
    >>> model = loca.Loca(base=loca.MultVAE(), communities=loca.RandomGroups(n=16))
    >>> print(model.communities)
    2 × 8 groups drawn at random
    """

    divisions: int = whole(2)
    membership_weight: float = share(0.3)
    shared_epochs: int = whole(0, least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_divisions("divisions", self.divisions, self.n)

    def find(
        self, data: TrainingData, *, base: Recommender, global_model: Recommender, seed: int
    ) -> RandomGroupCommunities:
        """Draw a key for each item and division; the sum of a history's keys names its group."""
        n_groups = self.n // self.divisions
        n_items = data.matrix.shape[1]
        keys = stream(seed, "random groups").integers(0, 2**40, (n_items, self.divisions))
        users = users_with_history(data)
        positions = log_memberships(csr_array(data.histories[users]), keys, n_groups)
        return RandomGroupCommunities(
            item_keys=keys,
            mean_memberships=mean_memberships(positions, data.user_weights[users]),
            membership_weight=float(self.membership_weight),
            shared_epochs=choose_shared_epochs(self.shared_epochs, base, global_model),
        )

    def with_n(self, n: int) -> Self:
        """Return the finder with at most so many groups, as many in each division."""
        divisions = min(self.divisions, n)
        return replace(self, n=n // divisions * divisions, divisions=divisions)

    def memory(
        self, size: DataSize, *, base: Recommender, global_model: Recommender
    ) -> dict[str, MemoryUse]:
        """Estimate the keys of the items, the histories once more, and the memberships."""
        keys = 8 * size.items * self.divisions
        return {
            "embedding": MemoryUse(main=keys + 16 * size.entries, main_after=keys, folder=keys),
            "communities": memory_of_weights(size, self.n, dimensions=self.n),
        }

    def __str__(self) -> str:
        return f"{self.divisions} × {self.n // self.divisions} groups drawn at random"


def log_memberships(
    histories: csr_array, item_keys: npt.NDArray[np.int64], n_groups: int
) -> FloatArray:
    """Return the log membership of each history in each group of each division.

    The sum of its items' keys names the group that has nearly all of its membership.
    """
    held = csr_array(
        (np.ones(histories.nnz, np.int64), histories.indices, histories.indptr),
        shape=histories.shape,
    )
    groups = np.asarray(held @ item_keys) % n_groups  # (users, divisions)
    others = _MEMBERSHIP_OF_OTHERS / max(n_groups - 1, 1)
    positions = np.full((*groups.shape, n_groups), np.log(others), dtype=np.float32)
    own = np.log(1 - others * (n_groups - 1))
    np.put_along_axis(positions, groups[:, :, None], own, axis=2)
    return positions.reshape(len(groups), groups.shape[1] * n_groups)


@dataclass(frozen=True, eq=False, kw_only=True)
class RandomGroupCommunities(Communities):
    """Groups of users drawn at random; a position is the log membership of each group.

    A history has nearly all of its membership in its own group of each division.
    """

    item_keys: npt.NDArray[np.int64] = learned("items", "divisions", dtype=np.int64)
    mean_memberships: FloatArray = learned("communities")
    membership_weight: float = learned_fact("a number from 0 to 1", is_fraction)
    shared_epochs: int = learned_fact("a whole number ≥ 0", is_natural)

    seed_name: ClassVar[str] = "ensemble member"
    members_are_alike: ClassVar[bool] = False

    def check(self) -> None:
        """Refuse groups that are not as many in each division."""
        if not len(self) or len(self) % self.divisions or (self.mean_memberships < 0).any():
            raise DataError(f"{len(self)} groups do not fit {self.divisions} divisions")

    @property
    def divisions(self) -> int:
        """The number of divisions."""
        return int(self.item_keys.shape[1])

    def __len__(self) -> int:
        return len(self.mean_memberships)

    def locate(self, histories: csr_array) -> FloatArray:
        """Return the log membership of each history in each group."""
        rows = check_histories(histories, len(self.item_keys))
        return log_memberships(rows, self.item_keys, len(self) // self.divisions)

    def train_weights(self, positions: FloatArray, community: int) -> FloatArray:
        """Return a weight that is larger for the members of a group."""
        memberships = np.exp(positions[:, community])
        return train_weights_by_membership(
            memberships, self.mean_memberships[community], self.membership_weight
        )

    def answer_weights(self, positions: FloatArray) -> csr_array:
        """Return nearly the same weight for every group."""
        return flattened_memberships(positions, self.divisions, _TEMPERATURE, len(self))

    def memberships(self, positions: FloatArray) -> csr_array:
        """Return 1 for the group of each history in each division."""
        is_own = positions > np.log(1 - 2 * _MEMBERSHIP_OF_OTHERS)
        return csr_array(is_own.astype(np.float32))
