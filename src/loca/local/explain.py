"""What answers inside a model of models: the communities or parts, and what each would say alone."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.data.id_map import Id, IdMap
from loca.evaluation.explain import Figures, Rows, Sources, fold, items_json, percent, title
from loca.evaluation.top_n import rank_top_n
from loca.text_table import cut, many

_PSEUDO_MEMBERS = 20.0
# Two lists that have this share of their items in common say the same.
_SAME = 0.8
_MOST_ANCHORS = 3
# Of communities of mixtures: so many items name one, in so many columns each; so many groups are shown one by one, and
# so many items that one raises.
_NAMED, _NAME_WIDTH, _MOST_GROUPS, _MOST_RAISED = 3, 32, 6, 5
_AMONG_BEST = 20
_CATALOGUE_TITLE = re.compile(r"(.+?)(?:, (The|An?))?(?: \(\d{4}\))?")


@dataclass(frozen=True)
class Locality:
    """How local the answers are.

    `alpha` is the global model's share in the answer to a covered user. `effective_share` is the share of the users
    that a local model trains on in effect, (Σt)² / Σt² over the users' train weights t, as a mean over the
    communities: it is 1 where all count the same. `answering` is how many communities answer a user, as a mean over
    the users.
    """

    alpha: float
    effective_share: float
    answering: float

    def __str__(self) -> str:
        trained = f"a local model trains on {self.effective_share:.1%} of the users in effect"
        return f"global share alpha {self.alpha:g}; {trained}; {self.answering:.3g} communities answer a user"


@dataclass(frozen=True, eq=False)
class CommunityAnswer:
    """One community's part in an answer: its share of it, its own top items, and the items over-represented in it.

    Of a component of a mixture: the probability that the history belongs to it, the number of the mixture, and the
    items that it raises: of its own best, those that rise most over the scores of the global model. `titles` name it
    where they are given; otherwise the items over-represented in it do.
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


@dataclass(frozen=True, eq=False)
class CommunityGroup:
    """Communities whose own lists say the same, the strongest first; that of the global model too, where it is alike.

    `distinctive` are the items that are over-represented in most of them, weighted by their shares.
    """

    communities: tuple[CommunityAnswer, ...]
    is_like_global: bool

    @property
    def weight(self) -> float:
        """Their share of the answer."""
        return sum(one.weight for one in self.communities)

    @property
    def items(self) -> Rows:
        """The list of the strongest."""
        return self.communities[0].items

    @property
    def distinctive(self) -> list[tuple[int, float]]:
        """Items and their lifts, the mean over the communities that are known for them; the most typical first."""
        found: dict[int, list[tuple[float, float]]] = {}
        for one in self.communities:
            for item, lift in zip(one.distinctive.tolist(), one.lifts.tolist(), strict=True):
                found.setdefault(item, []).append((one.weight, lift))
        order = sorted(found, key=lambda item: -sum(weight * lift for weight, lift in found[item]))
        means = {item: sum(lift for _, lift in found[item]) / len(found[item]) for item in order}
        return [(item, means[item]) for item in order[: len(self.communities[0].distinctive)]]


@dataclass(frozen=True, eq=False)
class AnswersOfCommunities:
    """The communities that answer one history, strongest first, and the global model with its share `alpha`.

    `users` is the number of training users, where it is known; `locality` says how local the model is over all users.
    """

    communities: tuple[CommunityAnswer, ...]
    alpha: float
    global_items: Rows
    global_scores: Figures
    users: int | None = None
    locality: Locality | None = None
    random_groups: int = 0  # so many models of groups drawn at random answer alike

    @property
    def groups(self) -> tuple[CommunityGroup, ...]:
        """The communities, those that say the same as one: four fifths of the items of their lists are the same."""
        groups: list[list[CommunityAnswer]] = []
        for one in self.communities:
            same = next(
                (group for group in groups if say_the_same(group[0].items, one.items)), None
            )
            if same is None:
                groups.append([one])
            else:
                same.append(one)
        found = [
            CommunityGroup(tuple(group), say_the_same(group[0].items, self.global_items))
            for group in groups
        ]
        return tuple(sorted(found, key=lambda group: -group.weight))

    @property
    def by_likelihood(self) -> bool:
        """Whether the communities are components of mixtures, with memberships."""
        return any(one.membership is not None for one in self.communities)

    @property
    def naming_items(self) -> dict[int, tuple[int, ...]]:
        """The items that name each community, the most typical ones; of two equal names the weaker one's changes."""
        return naming_items(
            {one.community: (one.distinctive, one.lifts) for one in self.communities}
        )

    def _naming_titles(self, names: IdMap) -> dict[int, Sequence[str]]:
        """The titles that name each community."""
        rows = self.naming_items
        return {
            one.community: one.titles or [short_title(names, row) for row in rows[one.community]]
            for one in self.communities
        }

    def item_notes(self, place: int) -> list[str]:
        """Nothing is said of a single item."""
        return []

    def lines(self, names: IdMap, width: int) -> list[str]:
        """The communities, those that say the same as one, then the global model and the model's locality."""
        groups = self.groups
        if not groups:
            lines = ["No community covers this history: the global model answers alone."]
            if self.alpha == 1 and self.locality is not None and self.locality.alpha == 1:
                lines = ["Communities earned nothing here: the global model answers alone."]
            if self.random_groups:
                lines = [
                    f"Answered by {self.random_groups} models alike, of groups of users drawn at random."
                ]
        elif self.by_likelihood:
            lines = [*self._lines_by_likelihood(names, width), *self._global_lines(names, width)]
        elif len(groups) == 1 and groups[0].is_like_global:
            count, sizes = len(groups[0].communities), self._sizes(groups[0])
            who = (
                f"Community {groups[0].communities[0].community}"
                if count == 1
                else f"{count} communities"
            )
            verbs = ("answers", "says") if count == 1 else ("answer", "say")
            about = f"{who} ({sizes}) {verbs[0]} with {percent(groups[0].weight)}"
            lines = textwrap.wrap(f"{about} and {verbs[1]} the same as the global model.", width)
        else:
            lines = ["Answered by"]
            for group in groups:
                said = "says" if len(group.communities) == 1 else "say"
                lines += fold(f"{percent(group.weight):>7} ", [self._name(group)], width)
                lines += self._says(group, said, names, width)
                lines += _known_for(group.distinctive, names, width)
            lines += self._global_lines(names, width)
        return (
            lines
            if self.locality is None
            else [*lines, *fold("The model: ", str(self.locality).split("; "), width)]
        )

    def _lines_by_likelihood(self, names: IdMap, width: int) -> list[str]:
        """The communities by their names and memberships; those of the weakest groups are only counted."""
        mixtures, named = len({one.mixture for one in self.communities}), self._naming_titles(names)
        each = f" (memberships sum to 100 % in each of {mixtures} mixtures)" if mixtures > 1 else ""
        lines = [f"Answered by{each}"]
        for group in self.groups[:_MOST_GROUPS]:
            share, count = f"{percent(group.weight):>7} ", len(group.communities)
            if count > 1:
                lines.append(f"{share}{count:,} communities that say the same")
            opening, strongest = share if count == 1 else " " * 10, group.communities[0]
            for one in group.communities[:_MOST_ANCHORS]:
                pieces = self._named(one, named[one.community])
                lines += fold(opening, pieces, width, len(opening) + 2)
            if count > _MOST_ANCHORS:
                lines.append(f"{opening}and {many(count - _MOST_ANCHORS, 'other')}")
            lines += self._says(group, "says" if count == 1 else "say", names, width)
            if strongest.raised is not None and len(strongest.raised):
                verb = "raises" if count == 1 else "the first raises"
                lines += fold(
                    f"        {verb} ", listed(names, strongest.raised[:_MOST_RAISED]), width
                )
            if count == 1:
                typical = zip(strongest.distinctive.tolist(), strongest.lifts.tolist(), strict=True)
                lines += _known_for(list(typical)[: len(strongest.items)], names, width)
        if rest := [one for group in self.groups[_MOST_GROUPS:] for one in group.communities]:
            others = "1 other community" if len(rest) == 1 else f"{len(rest):,} other communities"
            lines.append(f"{percent(sum(one.weight for one in rest)):>7} {others}")
        return lines

    def _named(self, one: CommunityAnswer, titles: Sequence[str]) -> list[str]:
        """A community's number, name, size and membership, to be folded at its commas."""
        *first, last = titles or ["nothing beyond what is popular"]
        of_all = "members" if self.users is None else f"of {self.users:,} users"
        # Communities give no memberships below a hundredth.
        membership = percent(one.membership) if one.membership else "<1 %"
        pieces = [
            *first,
            f"{last} ({one.members:,} {of_all}",
            f"membership {membership})",
        ]
        return [f"community {one.community}: {pieces[0]}", *pieces[1:]]

    def _says(self, group: CommunityGroup, said: str, names: IdMap, width: int) -> list[str]:
        if group.is_like_global:
            return [f"        {said} the same as the global model"]
        return fold(f"        {said:<4} ", listed(names, group.items), width)

    def _global_lines(self, names: IdMap, width: int) -> list[str]:
        said = fold("        says ", listed(names, self.global_items), width)
        return [f"{percent(self.alpha):>7} the global model", *said]

    def _name(self, group: CommunityGroup) -> str:
        """Which communities they are, and how many of the users belong to them."""
        anchors = [
            cut(str(community.anchor), 20)
            for community in group.communities
            if community.anchor is not None
        ]
        if len(group.communities) == 1:
            name = f"community {group.communities[0].community} ({self._sizes(group)})"
            return f"{name} around {anchors[0]}" if anchors else name
        if not anchors:
            return f"{len(group.communities):,} communities ({self._sizes(group)} each)"
        around = ", ".join([*anchors[:_MOST_ANCHORS], *["…"] * (len(anchors) > _MOST_ANCHORS)])
        return f"{len(anchors):,} communities ({self._sizes(group)} each) around {around}"

    def _sizes(self, group: CommunityGroup) -> str:
        sizes = sorted(one.members for one in group.communities)
        of_all = "members" if self.users is None else f"of {self.users:,} users"
        return (
            f"{sizes[0]:,} {of_all}"
            if sizes[0] == sizes[-1]
            else f"{sizes[0]:,} to {sizes[-1]:,} {of_all}"
        )

    def to_json(self, names: IdMap) -> dict[str, Any]:
        """Every community with its share and lists, the groups that say the same by their numbers, the global model."""
        communities, naming = [], self._naming_titles(names)
        for one in self.communities:
            about = {key: getattr(one, key) for key in ("community", "anchor", "weight", "members")}
            if one.membership is not None:
                about |= {
                    "name": ", ".join(naming[one.community]),
                    "membership": one.membership,
                    "mixture": one.mixture,
                }
                about["raises"] = [] if one.raised is None else items_json(names, one.raised)
            own, count = items_json(names, one.items, score=one.scores), len(one.items)
            known_for = one.distinctive[:count], one.lifts[:count]
            typical = items_json(names, known_for[0], lift=known_for[1])
            communities.append({**about, "items": own, "known_for": typical})
        groups = [
            {"communities": [one.community for one in group.communities], "weight": group.weight}
            | {"is_like_global": group.is_like_global}
            for group in self.groups
        ]
        whole = {
            "weight": self.alpha,
            "items": items_json(names, self.global_items, score=self.global_scores),
        }
        locality = None if self.locality is None else asdict(self.locality)
        return {"communities": communities, "groups": groups, "global": whole, "locality": locality}


@dataclass(frozen=True, eq=False)
class PartAnswer:
    """One part's share in a list, and its own list (`items`, `scores`).

    For each item of the blend's list: `contributions`, weight · scaled score above that of an average item; `shares`,
    the same over the sum of their sizes (below 0 where the part speaks against the item); `ranks`, its place in the
    part's own ranking of the unseen items, from 1. `inside` is what answers inside the part, where there is anything.
    """

    name: str
    weight: float
    items: Rows
    scores: Figures
    contributions: Figures
    shares: Figures
    ranks: npt.NDArray[np.int64]
    inside: Sources | None = None


@dataclass(frozen=True, eq=False)
class AnswersOfParts:
    """What each part of a blend, the heaviest first, has to do with the listed items, given by their rows."""

    items: Rows
    parts: tuple[PartAnswer, ...]

    def item_notes(self, place: int) -> list[str]:
        """The share of each part in the listed item at a place, and where the part ranks it."""
        notes = []
        for part in self.parts:
            rank = f", place {part.ranks[place]:,}" if part.ranks[place] else ""
            notes.append(f"{cut(part.name, 40)} ({100 * part.shares[place]:+.0f} %{rank})")
        return notes

    def lines(self, names: IdMap, width: int) -> list[str]:
        """The parts with their weights and their own lists, and what answers inside them."""
        lines = ["Answered by"]
        for part in self.parts:
            lines += [f"{percent(part.weight):>7} {cut(part.name, width - 8)}"]
            lines += fold("        says ", listed(names, part.items), width)
            if part.inside is not None:
                lines += [f"        {line}" for line in part.inside.lines(names, width - 8)]
        return lines

    def to_json(self, names: IdMap) -> dict[str, Any]:
        """Every part with its weight, its own list, what it adds to each listed item, and what answers inside it."""
        parts = []
        for part in self.parts:
            adds = items_json(names, self.items, contribution=part.contributions, share=part.shares)
            for one, rank in zip(adds, part.ranks.tolist(), strict=True):
                one["rank"] = rank
            inside = {} if part.inside is None else {"inside": part.inside.to_json(names)}
            own = items_json(names, part.items, score=part.scores)
            parts.append(
                {"part": part.name, "weight": part.weight, "items": own, "adds": adds, **inside}
            )
        return {"parts": parts}


def say_the_same(first: Rows, second: Rows) -> bool:
    """Whether two lists have four fifths of their items in common, in any order."""
    one, other = set(first[first >= 0].tolist()), set(second[second >= 0].tolist())
    return len(one & other) >= _SAME * max(len(one), len(other))


def _known_for(distinctive: Sequence[tuple[int, float]], names: IdMap, width: int) -> list[str]:
    typical = [f"{title(names, item)} ({lift:.1f}×)" for item, lift in distinctive if lift > 1]
    return fold("        known for ", typical, width) if typical else []


def naming_items(typical: Mapping[int, tuple[Rows, Figures]]) -> dict[int, tuple[int, ...]]:
    """The items that name each community, given its distinctive items and lifts; a second equal name is changed."""
    found: dict[int, tuple[int, ...]] = {}
    for community, (items, lifts) in typical.items():
        rows = tuple(items[lifts > 1].tolist())
        tries = [(*rows[: _NAMED - 1], last) for last in rows[_NAMED - 1 :]] or [rows]
        taken = [set(name) for name in found.values()]
        found[community] = next((name for name in tries if set(name) not in taken), tries[0])
    return found


def short_title(names: IdMap, row: int) -> str:
    """A title as people say it: The Lion King for Lion King, The (1994)."""
    found = _CATALOGUE_TITLE.fullmatch(label := names.label(int(row)))
    return cut(
        label if found is None else f"{found[2]} {found[1]}" if found[2] else found[1], _NAME_WIDTH
    )


def raised_items(own: Figures, of_all: Figures, history: csr_array, n: int) -> Rows:
    """Of the best 20 items by a community's own scores, those that rise over the global model's by more than the mean.

    The largest rise is first. A constant on all scores of a model, which logits are free in, changes nothing.
    """
    best = rank_top_n(own[None], history, min(max(n, _AMONG_BEST), len(own)))[0][0]
    best = best[best >= 0]
    rises = (own - of_all)[best]
    above = rises > rises.sum() / max(len(rises), 1)
    order = np.argsort(-rises, kind="stable")[: int(above.sum())]
    return np.asarray(best[order][:n], dtype=np.int32)


def listed(names: IdMap, rows: Rows) -> Sequence[str]:
    """The items by their titles; a place that could not be filled is left out."""
    return [title(names, row) for row in rows.tolist() if row >= 0]


def over_represented(
    matrix: csr_array, answer_weights: csr_array, count: int, *, well_known: bool = False
) -> tuple[Rows, Figures]:
    """For each community the items that its members have most in excess of everybody's share, and by what factor.

    The excess is counted in standard deviations of chance, so that an item that two members have is not called typical;
    the factors are shares among members over shares among all, pulled towards 1 by 20 pseudo-members. Both results are
    communities × count, largest excess first. With `well_known` the largest members · log(factor) is first, what an
    item adds to the difference from everybody: items that many members have come before rare ones.
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
        ratio = (held + _PSEUDO_MEMBERS * overall) / (
            (size + _PSEUDO_MEMBERS) * np.maximum(overall, 1e-12)
        )
        order = held * np.log(np.maximum(ratio, 1e-12)) if well_known else excess
        items[community] = np.argsort(-order, kind="stable")[:count]
        lifts[community] = ratio[items[community]]
    return items, lifts
