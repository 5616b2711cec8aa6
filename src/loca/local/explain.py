"""Why a list is what it is: the communities that answer, what each would say alone, and what sets it apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.communities.communities import Communities, Locality
from loca.communities.geometry import Floats
from loca.data.id_map import Id, IdMap
from loca.data.interactions import Interactions
from loca.errors import DataError
from loca.evaluation.top_n import rank_top_n
from loca.local.local_models import LocalModels
from loca.models.recommender import Recommender, Scores, fitted

ItemRows = npt.NDArray[np.int32]
_PSEUDO_MEMBERS = 20.0


class Explained(Protocol):
    """What an explanation asks of a fitted Loca."""

    global_: Recommender | None
    locals_: LocalModels | None
    communities_: Communities | None
    alpha_: float | None
    locality_: Locality | None
    members_: npt.NDArray[np.int64] | None
    distinctive_: tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]] | None
    train_data_: Interactions | None

    def embed(self, histories: csr_array) -> Floats: ...

    def score(self, histories: csr_array) -> Scores: ...


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


def check_explained(history: csr_array, order: npt.NDArray[Any] | None) -> None:
    """Refuses anything but one history with at least one item, and an order of other items than the history's."""
    if history.shape[0] != 1 or history.nnz == 0:
        raise DataError(f"explain: expected one history with at least one item, found {history.nnz} items")
    if order is not None and set(np.asarray(order).tolist()) != set(history.indices.tolist()):
        raise DataError("explain: expected the order to name the items of the history, and no others")


def explain_history(
    model: Explained, history: csr_array, n: int, order: npt.NDArray[Any] | None, known: Interactions | None = None
) -> Explanation:
    """The top n of one history, and of every community that answers for it, the strongest first.

    `known` names users and items, in place of the model's own interactions: those of the blend that it is a part of.
    """
    communities, alpha = fitted(model.communities_, model), fitted(model.alpha_, model)
    check_explained(history, order)
    known = model.train_data_ if known is None else known
    answering = communities.answer_weights(model.embed(history))
    total = answering.data.sum()
    answers = tuple(
        _answer_of(
            model,
            history,
            n,
            int(answering.indices[place]),
            float((1 - alpha) * answering.data[place] / total),
            known,
        )
        for place in np.argsort(-answering.data, kind="stable")
    )
    global_items, global_scores = rank_top_n(fitted(model.global_, model).score(history), history, n)
    items, scores = rank_top_n(model.score(history), history, n)
    return Explanation(
        history=np.asarray(history.indices if order is None else order, dtype=np.int32),
        ordered=order is not None,
        items=items[0],
        scores=scores[0],
        alpha=alpha if answers else 1.0,
        global_items=global_items[0],
        global_scores=global_scores[0],
        communities=answers,
        names=None if known is None else known.items,
        locality=model.locality_,
    )


def _answer_of(
    model: Explained, history: csr_array, n: int, community: int, weight: float, known: Interactions | None
) -> CommunityAnswer:
    """What one community says, and what it is known for."""
    items, scores = rank_top_n(fitted(model.locals_, model).score_with(community, history), history, n)
    anchor = int(fitted(model.communities_, model).anchors[community])
    distinctive, lifts = fitted(model.distinctive_, model)
    return CommunityAnswer(
        community=community,
        anchor=anchor if known is None else known.users.ids([anchor])[0],
        weight=weight,
        members=int(fitted(model.members_, model)[community]),
        items=items[0],
        scores=scores[0],
        distinctive=distinctive[community][:n],
        lifts=lifts[community][:n],
    )
