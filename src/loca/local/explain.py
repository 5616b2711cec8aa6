"""Why a list is what it is: the communities or parts that answer, and what each would say alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.communities.communities import Locality
from loca.data.id_map import Id, IdMap
from loca.data.interactions import Interactions
from loca.errors import DataError
from loca.evaluation.top_n import rank_top_n
from loca.models.recommender import Recommender

ItemRows = npt.NDArray[np.int32]
ItemOrder = npt.NDArray[Any] | None  # the items of a history, oldest first
Figures = npt.NDArray[np.float32]
_PSEUDO_MEMBERS = 20.0


@dataclass(frozen=True, eq=False, kw_only=True)
class ExplainedList:
    """The answer to one history (`items`); a subclass says where it comes from.

    `history` stands oldest first where it is `ordered`, else in the order of the item rows.
    """

    history: ItemRows
    items: ItemRows
    scores: Figures
    names: IdMap | None = None
    ordered: bool = False

    def _named(self, rows: npt.NDArray[Any]) -> str:
        """The items by their titles, ids or rows, separated by commas; a place that could not be filled is left out."""
        return ", ".join(str(row) if self.names is None else self.names.label(int(row)) for row in rows if row >= 0)

    def _opening_lines(self) -> list[str]:
        """What is recommended, and because of what: the ten newest items where the history's order is known."""
        newest = f"the newest of {len(self.history)}, {self._named(self.history[::-1][:10])}"
        because = newest if self.ordered else self._named(self.history)
        return [f"Recommended: {self._named(self.items)}", f"Because of:  {because}"]


def list_to_explain(
    model: Recommender, history: csr_array, n: int, order: ItemOrder, data: Interactions | None
) -> dict[str, Any]:
    """The fields of an `ExplainedList`: a model's list for the one history, which is refused where it is another."""
    if history.shape[0] != 1 or history.nnz == 0:
        raise DataError(f"explain: expected one history with at least one item, found {history.nnz} items")
    if order is not None and set(np.asarray(order).tolist()) != set(history.indices.tolist()):
        raise DataError("explain: expected the order to name the items of the history, and no others")
    in_order = np.asarray(history.indices if order is None else order, dtype=np.int32)
    items, scores = rank_top_n(model.score(history), history, n)
    named = {"names": None if data is None else data.items, "ordered": order is not None}
    return {"history": in_order, "items": items[0], "scores": scores[0], **named}


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


@dataclass(frozen=True, eq=False, kw_only=True)
class Explanation(ExplainedList):
    """The answer to one history (`items`), and where it comes from; `alpha` is the share of the global model.

    `locality` says how local the model is over all its users.
    """

    alpha: float
    global_items: ItemRows
    global_scores: Figures
    communities: tuple[CommunityAnswer, ...]
    locality: Locality | None = None

    def __str__(self) -> str:
        lines = self._opening_lines()
        if not self.communities:
            lines.append("No community covers this history: the global model answers alone.")
        for one in self.communities:
            lines.append(f"{one.weight:6.1%} community {one.community} around {one.anchor} ({one.members:,} members)")
            lines.append(f"       says       {self._named(one.items)}")
            lines.append(f"       known for  {self._named(one.distinctive)}")
        lines += [f"{self.alpha:6.1%} the global model", f"       says       {self._named(self.global_items)}"]
        count = len(self.communities)
        lines.append(f"{count} {'community answers' if count == 1 else 'communities answer'} this history.")
        return "\n".join(lines if self.locality is None else [*lines, f"The model: {self.locality}."])


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


@dataclass(frozen=True, eq=False, kw_only=True)
class BlendExplanation(ExplainedList):
    """The answer to one history (`items`), and what each part, the heaviest first, has to do with it."""

    parts: tuple[PartAnswer, ...]

    def __str__(self) -> str:
        labels = ["its share and place by", *(self._named(self.items[[place]]) for place in range(len(self.items)))]
        rows, lines = [f"{label:<{max(map(len, labels))}}" for label in labels], []
        for part in self.parts:
            figures = [f"{share:+.0%}, {rank:,}." for share, rank in zip(part.shares, part.ranks, strict=True)]
            for place, text in enumerate([part.name, *figures]):
                rows[place] += f"  {text:>{max(len(part.name), 14)}}"
            lines += [f"{part.weight:6.1%} {part.name}", f"       says       {self._named(part.items)}"]
            if part.inside is not None:
                lines += [f"       {line}" for line in str(part.inside).splitlines()[2:]]
        return "\n".join([*self._opening_lines(), *rows, *lines])


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
