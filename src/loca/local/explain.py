"""What answers inside a model of models: the communities or parts, and what each would say alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.data.id_map import Id, IdMap
from loca.evaluation.explain import Figures, Rows, Sources, items_json
from loca.evaluation.top_n import rank_top_n
from loca.local.community_description import Locality
from loca.local.community_names import name_rows, short_title
from loca.local.explain_text import community_lines, part_lines, part_notes

# Two lists that have this share of their items in common say the same.
_SAME = 0.8
_AMONG_BEST = 20


# -- Communities ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class CommunityAnswer:
    """One community's part in an answer: its share, its own list, and the items that it is known for.

    Where memberships are probabilities: that of the history, the number of the division (`mixture`),
    and the items that it `raised`: of its own best, those that rise most over the scores of the
    global model. `titles` name it where they are given; otherwise its distinctive items do.
    """

    community: int
    anchor: Id | None
    weight: float
    members: int
    items: Rows
    scores: Figures
    distinctive: Rows
    lifts: Figures
    membership: float | None = None
    mixture: int | None = None
    raised: Rows | None = None
    titles: tuple[str, ...] = ()

    def to_json(self, names: IdMap, title: Sequence[str]) -> dict[str, Any]:
        """Return the answer as JSON values; `title` names the community."""
        document: dict[str, Any] = {
            "community": self.community,
            "anchor": self.anchor,
            "weight": self.weight,
            "members": self.members,
        }
        if self.membership is not None:
            document["name"] = ", ".join(title)
            document["membership"] = self.membership
            document["mixture"] = self.mixture
            document["raises"] = [] if self.raised is None else items_json(names, self.raised)
        n = len(self.items)
        document["items"] = items_json(names, self.items, score=self.scores)
        document["known_for"] = items_json(names, self.distinctive[:n], lift=self.lifts[:n])
        return document


@dataclass(frozen=True, eq=False)
class CommunityGroup:
    """Communities whose own lists say the same, the strongest first.

    `is_like_global` says whether the list of the global model says the same too.
    """

    communities: tuple[CommunityAnswer, ...]
    is_like_global: bool

    @property
    def weight(self) -> float:
        """Their share of the answer."""
        return sum(answer.weight for answer in self.communities)

    @property
    def items(self) -> Rows:
        """The list of the strongest."""
        return self.communities[0].items

    @property
    def distinctive(self) -> list[tuple[int, float]]:
        """The items that they are known for, with their mean lifts, the most typical first.

        An item counts the more, the larger the shares of the communities that are known for it.
        """
        weighted: dict[int, float] = {}
        lifts: dict[int, list[float]] = {}
        for answer in self.communities:
            pairs = zip(answer.distinctive.tolist(), answer.lifts.tolist(), strict=True)
            for item, lift in pairs:
                weighted[item] = weighted.get(item, 0.0) + answer.weight * lift
                lifts.setdefault(item, []).append(lift)
        order = sorted(weighted, key=lambda item: -weighted[item])
        n = len(self.communities[0].distinctive)
        return [(item, sum(lifts[item]) / len(lifts[item])) for item in order[:n]]


@dataclass(frozen=True, eq=False)
class AnswersOfCommunities:
    """The communities that answer one history, strongest first, and the global model.

    `alpha` is the global model's share in this answer. `users` is the number of training users,
    where it is known; `locality` says how local the model is over all users. `random_groups` is the
    number of models that answer without being communities of alike users.
    """

    communities: tuple[CommunityAnswer, ...]
    alpha: float
    global_items: Rows
    global_scores: Figures
    users: int | None = None
    locality: Locality | None = None
    random_groups: int = 0

    @cached_property
    def groups(self) -> tuple[CommunityGroup, ...]:
        """The communities in groups that say the same: four fifths of their lists are equal."""
        grouped: list[list[CommunityAnswer]] = []
        for answer in self.communities:
            same = (group for group in grouped if say_the_same(group[0].items, answer.items))
            group = next(same, None)
            if group is None:
                grouped.append([answer])
            else:
                group.append(answer)
        groups = [
            CommunityGroup(tuple(group), say_the_same(group[0].items, self.global_items))
            for group in grouped
        ]
        return tuple(sorted(groups, key=lambda group: -group.weight))

    @property
    def have_memberships(self) -> bool:
        """Whether the history belongs to the communities with probabilities."""
        return any(answer.membership is not None for answer in self.communities)

    @property
    def naming_rows(self) -> dict[int, tuple[int, ...]]:
        """The rows of the items that name each community."""
        return name_rows(
            {answer.community: (answer.distinctive, answer.lifts) for answer in self.communities}
        )

    def titles(self, names: IdMap) -> dict[int, Sequence[str]]:
        """Return the titles that name each community."""
        rows = self.naming_rows
        return {
            answer.community: answer.titles
            or [short_title(names, row) for row in rows[answer.community]]
            for answer in self.communities
        }

    def item_notes(self, place: int) -> list[str]:
        """Return nothing: communities have nothing to add to a single item."""
        return []

    def lines(self, names: IdMap, width: int) -> list[str]:
        """Return the communities, the global model and the model's locality as text."""
        return community_lines(self, names, width)

    def to_json(self, names: IdMap) -> dict[str, Any]:
        """Return every community, the groups that say the same, and the global model."""
        titles = self.titles(names)
        document: dict[str, Any] = {
            "communities": [
                answer.to_json(names, titles[answer.community]) for answer in self.communities
            ],
            "groups": [
                {
                    "communities": [answer.community for answer in group.communities],
                    "weight": group.weight,
                    "is_like_global": group.is_like_global,
                }
                for group in self.groups
            ],
            "global": {
                "weight": self.alpha,
                "items": items_json(names, self.global_items, score=self.global_scores),
            },
            "locality": None if self.locality is None else asdict(self.locality),
        }
        if self.random_groups:
            document["random_groups"] = self.random_groups
        return document


def say_the_same(first: Rows, second: Rows) -> bool:
    """Return whether two lists have four fifths of their items in common, in any order."""
    items = set(first[first >= 0].tolist())
    others = set(second[second >= 0].tolist())
    return len(items & others) >= _SAME * max(len(items), len(others))


def raised_items(scores: Figures, global_scores: Figures, history: csr_array, n: int) -> Rows:
    """Return the items that rise most over the global model's scores, the largest rise first.

    They are among the best 20 by a community's own scores, and rise by more than these do in the
    mean: a constant on all scores of a model, which logits are free in, changes nothing.
    """
    best = rank_top_n(scores[None], history, min(max(n, _AMONG_BEST), len(scores)))[0][0]
    best = best[best >= 0]
    rises = (scores - global_scores)[best]
    above_mean = rises > rises.sum() / max(len(rises), 1)
    order = np.argsort(-rises, kind="stable")[: int(above_mean.sum())]
    return np.asarray(best[order][:n], dtype=np.int32)


# -- Parts of a blend -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PartAnswer:
    """One part's share in a list, and its own list (`items`, `scores`).

    For each item of the blend's list: `contributions`, weight · scaled score above that of an average
    item; `shares`, the same over the sum of their sizes (below 0 where the part speaks against the
    item); `ranks`, its place in the part's own ranking of the unseen items, from 1. `inside` is what
    answers inside the part, where there is anything.
    """

    name: str
    weight: float
    items: Rows
    scores: Figures
    contributions: Figures
    shares: Figures
    ranks: npt.NDArray[np.int64]
    inside: Sources | None = None

    def to_json(self, names: IdMap, listed: Rows) -> dict[str, Any]:
        """Return the part, its own list, and what it adds to each listed item."""
        adds = items_json(names, listed, contribution=self.contributions, share=self.shares)
        for item, rank in zip(adds, self.ranks.tolist(), strict=True):
            item["rank"] = rank
        document = {
            "part": self.name,
            "weight": self.weight,
            "items": items_json(names, self.items, score=self.scores),
            "adds": adds,
        }
        if self.inside is not None:
            document["inside"] = self.inside.to_json(names)
        return document


@dataclass(frozen=True, eq=False)
class AnswersOfParts:
    """What each part of a blend, the heaviest first, has to do with the listed items."""

    items: Rows
    parts: tuple[PartAnswer, ...]

    def item_notes(self, place: int) -> list[str]:
        """Return the share of each part in the listed item at a place, and where it ranks it."""
        return part_notes(self.parts, place)

    def lines(self, names: IdMap, width: int) -> list[str]:
        """Return the parts with their weights and own lists, and what answers inside them."""
        return part_lines(self.parts, names, width)

    def to_json(self, names: IdMap) -> dict[str, Any]:
        """Return every part with all that it says."""
        return {"parts": [part.to_json(names, self.items) for part in self.parts]}
