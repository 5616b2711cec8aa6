"""Why a list is what it is: the communities that answer, what each would say alone, and what sets it apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.communities.communities import Locality
from loca.data.id_map import Id, IdMap

ItemRows = npt.NDArray[np.int32]
_PSEUDO_MEMBERS = 20.0


@dataclass(frozen=True, eq=False)
class CommunityAnswer:
    """One community's part in an answer: its share of it, its own top items, and the items over-represented in it."""

    community: int
    anchor: Id
    weight: float
    members: int
    items: ItemRows
    scores: npt.NDArray[np.float32]
    distinctive: ItemRows
    lifts: npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Explanation:
    """The answer to one history (`items`), and where it comes from; `alpha` is the share of the global model.

    `history` stands oldest first where it is `ordered`, else in the order of the item rows. `locality` says how local
    the model is over all its users.
    """

    history: ItemRows
    items: ItemRows
    scores: npt.NDArray[np.float32]
    alpha: float
    global_items: ItemRows
    global_scores: npt.NDArray[np.float32]
    communities: tuple[CommunityAnswer, ...]
    names: IdMap | None = None
    ordered: bool = False
    locality: Locality | None = None

    def __str__(self) -> str:
        lines = opening_lines(self.history, self.items, self.names, self.ordered)
        if not self.communities:
            lines.append("No community covers this history: the global model answers alone.")
        for part in self.communities:
            lines.append(
                f"{part.weight:6.1%} community {part.community} around {part.anchor} ({part.members:,} members)"
            )
            lines.append(f"       says       {self._named(part.items)}")
            lines.append(f"       known for  {self._named(part.distinctive)}")
        lines.append(f"{self.alpha:6.1%} the global model")
        lines.append(f"       says       {self._named(self.global_items)}")
        count = len(self.communities)
        lines.append(f"{count} {'community answers' if count == 1 else 'communities answer'} this history.")
        if self.locality is not None:
            lines.append(f"The model: {self.locality}.")
        return "\n".join(lines)

    def _named(self, rows: npt.NDArray[Any]) -> str:
        return name_items(rows, self.names)


def name_items(rows: npt.NDArray[Any], names: IdMap | None) -> str:
    """The items by their titles, ids or rows, separated by commas; a place that could not be filled is left out."""
    return ", ".join(str(row) if names is None else names.label(int(row)) for row in rows if row >= 0)


def opening_lines(history: ItemRows, items: ItemRows, names: IdMap | None, ordered: bool) -> list[str]:
    """What is recommended, and because of what: the ten newest items where the history's order is known."""
    newest = name_items(history[::-1][:10], names)
    because = f"the newest of {len(history)}, {newest}" if ordered else name_items(history, names)
    return [f"Recommended: {name_items(items, names)}", f"Because of:  {because}"]


def over_represented(
    matrix: csr_array, answer_weights: csr_array, count: int
) -> tuple[ItemRows, npt.NDArray[np.float32]]:
    """For each community the items that its members have most in excess of everybody's share, and by what factor.

    The excess is counted in standard deviations of chance, so that an item that two members have is not called typical;
    the factors are shares among members over shares among all, pulled towards 1 by 20 pseudo-members. Both results are
    communities × count, largest excess first.
    """
    overall = np.asarray(matrix.sum(axis=0)).ravel() / matrix.shape[0]  # (items,)
    sizes = np.asarray(answer_weights.sum(axis=0)).ravel()  # (communities,)
    count = min(count, matrix.shape[1])
    items = np.zeros((len(sizes), count), dtype=np.int32)
    lifts = np.ones((len(sizes), count), dtype=np.float32)
    by_community = csr_array(answer_weights.T)
    for community, size in enumerate(sizes):
        held = (by_community[[community]] @ matrix).toarray()[0]  # (items,)
        excess = (held - size * overall) / np.sqrt(size * overall + 1)
        items[community] = np.argsort(-excess, kind="stable")[:count]
        ratio = (held + _PSEUDO_MEMBERS * overall) / ((size + _PSEUDO_MEMBERS) * np.maximum(overall, 1e-12))
        lifts[community] = ratio[items[community]]
    return items, lifts
