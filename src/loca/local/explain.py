"""Why a list is what it is: the communities or parts that answer, and what each would say alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.communities.communities import Locality
from loca.data.id_map import Id, IdMap
from loca.data.interactions import Interactions
from loca.errors import DataError

ItemRows = npt.NDArray[np.int32]
ItemOrder = npt.NDArray[Any] | None  # the items of a history, oldest first
Figures = npt.NDArray[np.float32]
_PSEUDO_MEMBERS = 20.0


@runtime_checkable
class Explainable(Protocol):
    """A model that says why its answer is what it is."""

    def explain(
        self, history: csr_array, n: int = 10, *, order: ItemOrder = None, data: Interactions | None = None
    ) -> Explanation | BlendExplanation:
        """Explain the top n of one history.

        Parameters
        ----------
        history : csr_array
            One row with at least one item.
        n : int
            The length of the lists.
        order : array of item rows, optional
            The items of the history, oldest first; a sparse row stores no order.
        data : Interactions, optional
            Names users and items in place of the model's own training data.
        """
        ...


@dataclass(frozen=True, eq=False)
class CommunityAnswer:
    """One community's part in an answer: its share of it, its own top items, and the items over-represented in it."""

    community: int
    anchor: Id
    weight: float
    members: int
    items: ItemRows
    scores: Figures
    distinctive: ItemRows
    lifts: Figures


@dataclass(frozen=True, eq=False)
class Explanation:
    """The answer to one history (`items`), and where it comes from; `alpha` is the share of the global model.

    `history` stands oldest first where it is `ordered`, else in the order of the item rows. `locality` says how local
    the model is over all its users.
    """

    history: ItemRows
    items: ItemRows
    scores: Figures
    alpha: float
    global_items: ItemRows
    global_scores: Figures
    communities: tuple[CommunityAnswer, ...]
    names: IdMap | None = None
    ordered: bool = False
    locality: Locality | None = None

    def __str__(self) -> str:
        lines = _opening_lines(self)
        if not self.communities:
            lines.append("No community covers this history: the global model answers alone.")
        for part in self.communities:
            lines.append(
                f"{part.weight:6.1%} community {part.community} around {part.anchor} ({part.members:,} members)"
            )
            lines.append(f"       says       {name_items(part.items, self.names)}")
            lines.append(f"       known for  {name_items(part.distinctive, self.names)}")
        lines.append(f"{self.alpha:6.1%} the global model")
        lines.append(f"       says       {name_items(self.global_items, self.names)}")
        count = len(self.communities)
        lines.append(f"{count} {'community answers' if count == 1 else 'communities answer'} this history.")
        if self.locality is not None:
            lines.append(f"The model: {self.locality}.")
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class PartAnswer:
    """One part's share in a list, and its own list (`items`, `scores`).

    For each item of the blend's list: `contributions`, weight · scaled score above that of an average item; `shares`,
    the same over the sum of their sizes (below 0 where the part speaks against the item); `ranks`, its place in the
    part's own ranking of the unseen items, from 1. `inside` explains the part itself where it can be explained.
    """

    name: str
    weight: float
    items: ItemRows
    scores: Figures
    contributions: Figures
    shares: Figures
    ranks: npt.NDArray[np.int64]
    inside: Explanation | BlendExplanation | None = None


@dataclass(frozen=True, eq=False)
class BlendExplanation:
    """The answer to one history (`items`), and what each part, the heaviest first, has to do with it.

    `history` stands oldest first where it is `ordered`, else in the order of the item rows.
    """

    history: ItemRows
    items: ItemRows
    scores: Figures
    parts: tuple[PartAnswer, ...]
    names: IdMap | None = None
    ordered: bool = False

    def __str__(self) -> str:
        labels = [name_items(self.items[[place]], self.names) for place in range(len(self.items))]
        width = max(map(len, ["its share and place by", *labels]))
        lines = [*_opening_lines(self), f"{'its share and place by':<{width}}"]
        lines += [f"{label:<{width}}" for label in labels]
        for part in self.parts:
            figures = [f"{share:+.0%}, {rank:,}." for share, rank in zip(part.shares, part.ranks, strict=True)]
            for place, text in enumerate([part.name, *figures], start=2):
                lines[place] += f"  {text:>{max(len(part.name), 14)}}"
        for part in self.parts:
            lines.append(f"{part.weight:6.1%} {part.name}")
            lines.append(f"       says       {name_items(part.items, self.names)}")
            if part.inside is not None:
                lines += [f"       {line}" for line in str(part.inside).splitlines()[2:]]
        return "\n".join(lines)


def name_items(rows: npt.NDArray[Any], names: IdMap | None) -> str:
    """The items by their titles, ids or rows, separated by commas; a place that could not be filled is left out."""
    return ", ".join(str(row) if names is None else names.label(int(row)) for row in rows if row >= 0)


def _opening_lines(explanation: Explanation | BlendExplanation) -> list[str]:
    """What is recommended, and because of what: the ten newest items where the history's order is known."""
    history, names = explanation.history, explanation.names
    newest = f"the newest of {len(history)}, {name_items(history[::-1][:10], names)}"
    because = newest if explanation.ordered else name_items(history, names)
    return [f"Recommended: {name_items(explanation.items, names)}", f"Because of:  {because}"]


def item_order(history: csr_array, order: ItemOrder) -> ItemRows:
    """The items of the one history to explain, in `order` if given; other histories and orders are refused."""
    if history.shape[0] != 1 or history.nnz == 0:
        raise DataError(f"explain: expected one history with at least one item, found {history.nnz} items")
    if order is not None and set(np.asarray(order).tolist()) != set(history.indices.tolist()):
        raise DataError("explain: expected the order to name the items of the history, and no others")
    return np.asarray(history.indices if order is None else order, dtype=np.int32)


def over_represented(matrix: csr_array, answer_weights: csr_array, count: int) -> tuple[ItemRows, Figures]:
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
