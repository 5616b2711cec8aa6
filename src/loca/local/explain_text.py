"""Explanations as text: what communities and parts say, in lines that fit a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from loca.data.id_map import Id, IdMap
from loca.evaluation.explain import Figures, Rows, fold, percent, title
from loca.text_table import cut, many

_INDENT = " " * 8
_MOST_ANCHORS = 3
_WIDTH_OF_AN_ANCHOR = 20
_WIDTH_OF_A_PART = 40
# So many groups are shown one by one, and so many items that a community raises.
_MOST_GROUPS = 6
_MOST_RAISED = 5


class Community(Protocol):
    """A community's part in an answer (`loca.local.explain.CommunityAnswer`)."""

    @property
    def community(self) -> int: ...

    @property
    def anchor(self) -> Id | None: ...

    @property
    def weight(self) -> float: ...

    @property
    def members(self) -> int: ...

    @property
    def items(self) -> Rows: ...

    @property
    def distinctive(self) -> Rows: ...

    @property
    def lifts(self) -> Figures: ...

    @property
    def membership(self) -> float | None: ...

    @property
    def mixture(self) -> int | None: ...

    @property
    def raised(self) -> Rows | None: ...


class Group(Protocol):
    """Communities that say the same (`loca.local.explain.CommunityGroup`)."""

    @property
    def communities(self) -> tuple[Any, ...]: ...

    @property
    def is_like_global(self) -> bool: ...

    @property
    def weight(self) -> float: ...

    @property
    def items(self) -> Rows: ...

    @property
    def distinctive(self) -> list[tuple[int, float]]: ...


class Answers(Protocol):
    """All that answers one history (`loca.local.explain.AnswersOfCommunities`)."""

    @property
    def communities(self) -> tuple[Any, ...]: ...

    @property
    def alpha(self) -> float: ...

    @property
    def global_items(self) -> Rows: ...

    @property
    def users(self) -> int | None: ...

    @property
    def locality(self) -> Any: ...

    @property
    def random_groups(self) -> int: ...

    @property
    def groups(self) -> tuple[Any, ...]: ...

    @property
    def have_memberships(self) -> bool: ...

    def titles(self, names: IdMap) -> dict[int, Sequence[str]]: ...


# -- Communities ----------------------------------------------------------------------------------


def community_lines(answers: Answers, names: IdMap, width: int) -> list[str]:
    """Return the communities, those that say the same as one, the global model, and the locality."""
    lines = _lines_of_answers(answers, names, width)
    if answers.locality is not None:
        lines += fold("The model: ", str(answers.locality).split("; "), width)
    return lines


def _lines_of_answers(answers: Answers, names: IdMap, width: int) -> list[str]:
    groups = answers.groups
    if not groups:
        return [_line_without_communities(answers)]
    if answers.have_memberships:
        lines = _lines_by_membership(answers, names, width)
        return lines + _lines_of_global_model(answers, names, width)
    if len(groups) == 1 and groups[0].is_like_global:
        return _lines_of_agreement(answers, groups[0], width)
    lines = ["Answered by"]
    for group in groups:
        named = _group_by_anchors(group, answers.users)
        lines += fold(f"{percent(group.weight):>7} ", [named], width)
        lines += _lines_of_list(group, names, width)
        lines += _known_for(group.distinctive, names, width)
    return lines + _lines_of_global_model(answers, names, width)


def _line_without_communities(answers: Answers) -> str:
    if answers.random_groups:
        return (
            f"Answered by {answers.random_groups} models alike, of groups of users drawn at random."
        )
    if answers.locality is not None and answers.locality.alpha == 1:
        return "Communities earned nothing here: the global model answers alone."
    return "No community covers this history: the global model answers alone."


def _lines_of_agreement(answers: Answers, group: Group, width: int) -> list[str]:
    """Return that all communities say the same as the global model."""
    n = len(group.communities)
    share, sizes = percent(group.weight), _sizes(group, answers.users)
    if n == 1:
        who = f"Community {group.communities[0].community} ({sizes})"
        text = f"{who} answers with {share} and says the same as the global model."
    else:
        text = (
            f"{n} communities ({sizes}) answer with {share} and say the same as the global model."
        )
    return textwrap.wrap(text, width)


def _lines_by_membership(answers: Answers, names: IdMap, width: int) -> list[str]:
    """Return the communities by their names and memberships; the weakest are only counted."""
    n_divisions = len({community.mixture for community in answers.communities})
    titles = answers.titles(names)
    opening = "Answered by"
    if n_divisions > 1:
        opening += f" (memberships sum to 100 % in each of {n_divisions} mixtures)"
    lines = [opening]
    for group in answers.groups[:_MOST_GROUPS]:
        lines += _lines_of_group(group, titles, answers.users, names, width)
    rest = [community for group in answers.groups[_MOST_GROUPS:] for community in group.communities]
    if rest:
        share = percent(sum(community.weight for community in rest))
        others = "1 other community" if len(rest) == 1 else f"{len(rest):,} other communities"
        lines.append(f"{share:>7} {others}")
    return lines


def _lines_of_group(
    group: Group,
    titles: Mapping[int, Sequence[str]],
    n_users: int | None,
    names: IdMap,
    width: int,
) -> list[str]:
    lines: list[str] = []
    strongest, n = group.communities[0], len(group.communities)
    opening = f"{percent(group.weight):>7} "
    if n > 1:
        lines.append(f"{opening}{n:,} communities that say the same")
        opening = " " * 10
    for community in group.communities[:_MOST_ANCHORS]:
        pieces = _named_by_items(community, titles[community.community], n_users)
        lines += fold(opening, pieces, width, len(opening) + 2)
    if n > _MOST_ANCHORS:
        lines.append(f"{opening}and {many(n - _MOST_ANCHORS, 'other')}")
    lines += _lines_of_list(group, names, width)
    if strongest.raised is not None and len(strongest.raised):
        verb = "raises" if n == 1 else "the first raises"
        raised = listed(names, strongest.raised[:_MOST_RAISED])
        lines += fold(f"{_INDENT}{verb} ", raised, width)
    if n == 1:
        typical = zip(strongest.distinctive.tolist(), strongest.lifts.tolist(), strict=True)
        lines += _known_for(list(typical)[: len(strongest.items)], names, width)
    return lines


def _named_by_items(community: Community, titles: Sequence[str], n_users: int | None) -> list[str]:
    """Return a community's number, name, size and membership, to be folded at its commas."""
    *first, last = titles or ["nothing beyond what is popular"]
    # Communities give no memberships below a hundredth.
    membership = percent(community.membership) if community.membership else "<1 %"
    pieces = [
        *first,
        f"{last} ({community.members:,} {_of_all(n_users)}",
        f"membership {membership})",
    ]
    return [f"community {community.community}: {pieces[0]}", *pieces[1:]]


def _group_by_anchors(group: Group, n_users: int | None) -> str:
    """Return which communities a group has, how many users, and around whom they are."""
    anchors = [
        cut(str(community.anchor), _WIDTH_OF_AN_ANCHOR)
        for community in group.communities
        if community.anchor is not None
    ]
    n, sizes = len(group.communities), _sizes(group, n_users)
    if n == 1:
        text = f"community {group.communities[0].community} ({sizes})"
    else:
        text = f"{n:,} communities ({sizes} each)"
    if not anchors:
        return text
    shown = anchors[:_MOST_ANCHORS]
    if len(anchors) > _MOST_ANCHORS:
        shown.append("…")
    return f"{text} around {', '.join(shown)}"


def _lines_of_list(group: Group, names: IdMap, width: int) -> list[str]:
    verb = "says" if len(group.communities) == 1 else "say"
    if group.is_like_global:
        return [f"{_INDENT}{verb} the same as the global model"]
    return fold(f"{_INDENT}{verb:<4} ", listed(names, group.items), width)


def _lines_of_global_model(answers: Answers, names: IdMap, width: int) -> list[str]:
    own_list = fold(f"{_INDENT}says ", listed(names, answers.global_items), width)
    return [f"{percent(answers.alpha):>7} the global model", *own_list]


def _known_for(distinctive: Sequence[tuple[int, float]], names: IdMap, width: int) -> list[str]:
    typical = [f"{title(names, item)} ({lift:.1f}×)" for item, lift in distinctive if lift > 1]
    return fold(f"{_INDENT}known for ", typical, width) if typical else []


def _sizes(group: Group, n_users: int | None) -> str:
    sizes = sorted(community.members for community in group.communities)
    if sizes[0] == sizes[-1]:
        return f"{sizes[0]:,} {_of_all(n_users)}"
    return f"{sizes[0]:,} to {sizes[-1]:,} {_of_all(n_users)}"


def _of_all(n_users: int | None) -> str:
    return "members" if n_users is None else f"of {n_users:,} users"


# -- Parts of a blend -----------------------------------------------------------------------------


def part_lines(parts: Sequence[Any], names: IdMap, width: int) -> list[str]:
    """Return the parts with their weights and own lists, and what answers inside them."""
    lines = ["Answered by"]
    for part in parts:
        lines.append(f"{percent(part.weight):>7} {cut(part.name, width - 8)}")
        lines += fold(f"{_INDENT}says ", listed(names, part.items), width)
        if part.inside is not None:
            inner = part.inside.lines(names, width - len(_INDENT))
            lines += [f"{_INDENT}{line}" for line in inner]
    return lines


def part_notes(parts: Sequence[Any], place: int) -> list[str]:
    """Return the share of each part in the listed item at a place, and where it ranks it."""
    notes = []
    for part in parts:
        rank = f", place {part.ranks[place]:,}" if part.ranks[place] else ""
        notes.append(
            f"{cut(part.name, _WIDTH_OF_A_PART)} ({100 * part.shares[place]:+.0f} %{rank})"
        )
    return notes


def listed(names: IdMap, rows: Rows) -> list[str]:
    """Return the items by their titles; a place that could not be filled is left out."""
    return [title(names, row) for row in rows.tolist() if row >= 0]
