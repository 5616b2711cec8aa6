"""Asks a fitted Loca for the explanation of one history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.data.interactions import Interactions
from loca.errors import DataError
from loca.local.explanation import CommunityAnswer, Explanation
from loca.models.recommender import fitted
from loca.ranking.top_n import rank_top_n

if TYPE_CHECKING:
    from loca.local.loca import Loca


def check_explained(history: csr_array, order: npt.NDArray[Any] | None) -> None:
    """Refuses anything but one history with at least one item, and an order of other items than the history's."""
    if history.shape[0] != 1 or history.nnz == 0:
        raise DataError(f"explain: expected one history with at least one item, found {history.nnz} items")
    if order is not None and set(np.asarray(order).tolist()) != set(history.indices.tolist()):
        raise DataError("explain: expected the order to name the items of the history, and no others")


def explain_history(
    model: Loca, history: csr_array, n: int, order: npt.NDArray[Any] | None, known: Interactions | None = None
) -> Explanation:
    """The top n of one history, and of every community that answers for it, the strongest first.

    `known` names users and items, in place of the model's own interactions: those of the blend that it is a part of.
    """
    communities, alpha = fitted(model.communities_, model), fitted(model.alpha_, model)
    check_explained(history, order)
    known = model.known_ if known is None else known
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
    model: Loca, history: csr_array, n: int, community: int, weight: float, known: Interactions | None
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
