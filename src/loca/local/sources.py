"""What answers inside a `Loca` for one history: its communities, and what each would list alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.sparse import csr_array

from loca.data.interactions import Interactions
from loca.evaluation.top_n import as_array, rank_top_n
from loca.local.community_description import DISTINCTIVE_ITEMS
from loca.local.community_models import CommunityModels
from loca.local.explain import AnswersOfCommunities, CommunityAnswer, raised_items
from loca.models.recommender import Recommender
from loca.typing import FloatArray


def answers_of_communities(
    local: CommunityModels,
    global_model: Recommender,
    history: csr_array,
    n: int,
    known: Interactions | None,
) -> AnswersOfCommunities:
    """Return the communities that answer a history, the strongest first, and the global model.

    Parameters
    ----------
    local, global_model
        The fitted model.
    history : csr_array
        One row, 1 × items.
    n : int
        Length of the lists.
    known : Interactions or None
        What names the anchors; None names them by their rows.
    """
    communities = local.communities
    positions = communities.locate(history)
    answer_weights = communities.answer_weights(positions)
    share = float(local.combiner.global_shares(answer_weights)[0])
    global_scores = global_model.score(history)
    answers = []
    if communities.members_are_alike and share < 1:
        memberships = communities.memberships(positions)
        strongest = answer_weights.indices[np.argsort(-answer_weights.data, kind="stable")]
        weights = answer_weights.toarray()[0]
        for number in strongest.tolist():
            weight = (1 - share) * weights[number] / answer_weights.data.sum()
            scores = as_array(local.models.score_with(number, history))
            answer = _answer(local, number, float(weight), scores, history, n, known)
            if communities.divisions:
                answer = replace(
                    answer,
                    membership=float(memberships[0, number]),
                    mixture=number * communities.divisions // len(communities),
                    raised=raised_items(scores[0], global_scores[0], history, n),
                )
            answers.append(answer)
    listed, scores = rank_top_n(global_scores, history, n)
    is_drawn = not communities.members_are_alike and share < 1
    return AnswersOfCommunities(
        communities=tuple(answers),
        alpha=share,
        global_items=listed[0],
        global_scores=scores[0],
        users=None if known is None else known.n_users,
        locality=local.description.locality,
        random_groups=len(communities) if is_drawn else 0,
    )


def _answer(
    local: CommunityModels,
    number: int,
    weight: float,
    scores: FloatArray,
    history: csr_array,
    n: int,
    known: Interactions | None,
) -> CommunityAnswer:
    """Return one community's part in an answer."""
    communities, description = local.communities, local.description
    listed, listed_scores = rank_top_n(scores, history, n)
    typical = slice(DISTINCTIVE_ITEMS if communities.divisions else n)
    anchor = None if communities.anchors is None else int(communities.anchors[number])
    return CommunityAnswer(
        community=number,
        anchor=anchor if known is None or anchor is None else known.users.ids([anchor])[0],
        weight=weight,
        members=int(description.members[number]),
        items=listed[0],
        scores=listed_scores[0],
        distinctive=description.distinctive_items[number][typical],
        lifts=description.lifts[number][typical],
    )
