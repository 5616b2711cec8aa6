"""Explain a list: which items of the history speak for each item of it, and by how much; any model, one history."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, issparse

from loca.data.histories import HistoryWeights, resolve_histories
from loca.data.id_map import Id, IdMap, at_rows
from loca.data.interactions import Interactions
from loca.errors import DataError
from loca.evaluation.top_n import block_rows, check_list_length, rank_top_n
from loca.text_table import Tabular, TextTable, columns_of, cut, many

Rows = npt.NDArray[np.int32]
Figures = npt.NDArray[np.float32]
Score = Callable[[csr_array], npt.NDArray[np.float32]]
WIDTH = 100
# So many columns of a title, so many items that speak for one and against it, from this share on.
_TITLE, _MOST_FOR, _MOST_AGAINST, _LEAST_AGAINST = 44, 3, 2, 0.05
_NEWEST = 5


class Sources(Protocol):
    """What answers inside a model of models: communities, or the parts of a blend."""

    def item_notes(self, place: int) -> list[str]:
        """What is to be said of the listed item at a place, in a few words each."""
        ...

    def lines(self, names: IdMap, width: int) -> list[str]:
        """What answers, in lines of at most so many columns."""
        ...

    def to_json(self, names: IdMap) -> dict[str, Any]:
        """The same as JSON values, by name."""
        ...


class Explainable(Protocol):
    """What a model has to offer to be explained."""

    train_data_: Interactions | None

    def score(self, histories: csr_array) -> npt.NDArray[np.float32]: ...
    def count_items(self) -> int: ...
    def additive_at(self, history: csr_array) -> Score | None: ...
    def sources_of(
        self, history: csr_array, items: Rows, n: int, known: Interactions | None
    ) -> Sources | None: ...


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Explanation(Tabular):
    """Hold why a model lists what it does: what each item of a history adds to each listed item.

    It prints as text of at most 100 columns. `to_polars` and `to_pandas` give one row for each listed item and each
    item of the history, the strongest first: `item`, `because`, `contribution`, `share`, and titles where items have
    them. A row without `because` is what everybody gets.

    Parameters
    ----------
    user : id
        Whose history it is.
    names : IdMap
        The model's items.
    history : ndarray of int32
        The item rows of the history, oldest first where it is `ordered`.
    items : ndarray of int32
        The rows of the listed items.
    scores : ndarray of float32
        Their scores.
    ranks : ndarray of int64
        Their places among all items that are not in the history, from 1; 0 for an item of the history.
    contributions : ndarray of float32
        Listed items × items of the history.
    everyone : ndarray of float32
        What each listed item gets whatever the history is.
    is_exact : bool
        Whether a score is the sum of `everyone` and the contributions. Otherwise a contribution is by how much the
        score falls when the item is left out of the history, all others as they are.
    ordered : bool, default False
        Whether the order of the history is known.
    popularity : ndarray of float32 or None, default None
        The share of the training users who have each listed item, where that is known.
    sources : object or None, default None
        What answers inside a model of models: communities, or the parts of a blend.

    Examples
    --------
    >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12, shortest_history=10).interactions
    >>> why = loca.EASE(l2=10).fit(data).explain("u07", n=2)
    >>> why
    Explanation(2 items for 'u07', by 10 items of the history, exact)
    >>> why.to_polars().columns
    ['item', 'because', 'contribution', 'share', 'title', 'because_title']
    >>> bool(abs(why.contributions.sum(axis=1) - why.scores).max() < 1e-5)
    True
    """

    user: Id
    names: IdMap
    history: Rows
    items: Rows
    scores: Figures
    ranks: npt.NDArray[np.int64]
    contributions: Figures
    everyone: Figures
    is_exact: bool
    ordered: bool = False
    popularity: Figures | None = None
    sources: Sources | None = None

    @property
    def shares(self) -> Figures:
        """The contributions over the sum of all that speaks for the listed item, below 0 where one speaks against it.

        The last column is `everyone`. Where nothing speaks for an item its shares are 0.
        """
        # In one order of memory, so that equal contributions have equal sums to the last digit.
        parts = np.ascontiguousarray(np.column_stack([self.contributions, self.everyone]))
        totals = np.maximum(parts, 0).sum(axis=1, keepdims=True)
        return np.asarray(np.divide(parts, totals, out=np.zeros_like(parts), where=totals > 0))

    def columns(self) -> dict[str, Any]:
        """Return what each item of the history adds to each listed item.

        Returns
        -------
        dict of str to ndarray
            item, because, contribution and share, and titles where the items have them.
        """
        parts, shares = np.column_stack([self.contributions, self.everyone]), self.shares
        because = np.append(self.history, -1)
        # The strongest first; what everybody gets has a row where it is anything.
        pairs = [
            (place, entry)
            for place in range(len(self.items))
            for entry in np.argsort(-parts[place], kind="stable").tolist()
            if entry < len(self.history) or parts[place, entry]
        ]
        places, entries = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        columns: dict[str, Any] = {
            "item": self.names.values[self.items[places]],
            "because": at_rows(self.names.values, because[entries]),
            "contribution": parts[places, entries],
            "share": shares[places, entries],
        }
        if self.names.labels is not None:
            columns["title"] = self.names.labels[self.items[places]]
            columns["because_title"] = at_rows(self.names.labels, because[entries])
        return columns

    def _reasons(self, place: int) -> list[tuple[str, list[str]]]:
        """How a sentence on the listed item begins, and what it goes on with, one piece each."""
        *shares, everyone = self.shares[place].tolist()
        order = np.argsort(-np.array(shares), kind="stable").tolist()
        speak_for = [entry for entry in order if shares[entry] > 0]
        named = [entry for entry in speak_for[:_MOST_FOR] if shares[entry] >= 0.005]
        pieces = [
            f"{title(self.names, self.history[entry])} ({percent(shares[entry])})"
            for entry in named
        ]
        rest = sum(shares[entry] for entry in speak_for[len(named) :])
        if pieces and rest >= 0.005:
            others = len(speak_for) - len(named)
            pieces.append(f"{many(others, 'other')} ({percent(rest)})")
        lines = [("because you took ", pieces)] if pieces else []
        if everyone > 0:
            of_all = (
                ""
                if self.popularity is None
                else f": {percent(self.popularity[place])} of all users took it"
            )
            lines.append(
                ("popular with everyone" + (f" ({percent(everyone)})" if pieces else ""), [of_all])
            )
        if not lines:
            lines.append(("no item of the history speaks for it", [""]))
        against = [
            entry for entry in order[::-1][:_MOST_AGAINST] if shares[entry] <= -_LEAST_AGAINST
        ]
        if against:
            texts = [
                f"{title(self.names, self.history[entry])} ({percent(shares[entry])})"
                for entry in against
            ]
            lines.append(("in spite of ", texts))
        return lines

    def shown(self) -> Sequence[str | TextTable]:
        """Return the history, each listed item with its reasons, and what answers inside the model.

        Returns
        -------
        sequence of str
            Lines of at most 100 columns.
        """
        count, rows = len(self.history), self.history[::-1] if self.ordered else self.history
        named = [title(self.names, row) for row in rows[:_NEWEST]]
        more = [f"and {count - _NEWEST:,} more"] if count > _NEWEST else []
        order = ", newest first" if self.ordered and count > 1 else ""
        lines = fold(f"History of {many(count, 'item')}{order}: ", [*named, *more], WIDTH, 4)
        if not len(self.items):
            lines.append("Nothing is left to recommend: every item is in the history.")
        for place, row in enumerate(self.items.tolist()):
            rank = int(self.ranks[place])
            number = f"{rank:>4,}. " if rank else "      "
            seen = "" if rank else ", in the history already"
            lines.append(f"{number}{title(self.names, row, 70)}{seen}")
            for opening, pieces in self._reasons(place):
                lines += fold(f"      {opening}", pieces, WIDTH)
            notes = [] if self.sources is None else self.sources.item_notes(place)
            lines += fold("      by ", notes, WIDTH) if notes else []
        return [*lines, *self._closing_lines()]

    def _closing_lines(self) -> list[str]:
        """How the shares were found, and what answers inside the model."""
        lines = []
        if not self.is_exact:
            lines.append(
                "Shares by leave-one-out: how far the score falls when an item is taken out of the history."
            )
        elif self.contributions.any():
            lines.append(
                "Shares are of all that speaks for an item; for and against add up to its score exactly."
            )
        return lines if self.sources is None else [*lines, *self.sources.lines(self.names, WIDTH)]

    def __repr__(self) -> str:
        how = "exact" if self.is_exact else "leave-one-out"
        listed = f"{many(len(self.items), 'item')} for {cut(repr(self.user), 40)}"
        return f"Explanation({listed}, by {len(self.history)} items of the history, {how})"

    def _repr_html_(self) -> str:
        rows = []
        for place, row in enumerate(self.items.tolist()):
            texts = [opening + ", ".join(pieces) for opening, pieces in self._reasons(place)]
            name, score = title(self.names, row, 200), f"{self.scores[place]:.4f}"
            rows.append((str(self.ranks[place] or "seen"), name, "; ".join(texts), score))
        table = TextTable(("", "recommended", "why", "score"), tuple(rows), names=3).html()
        lines = escape("\n".join(self._closing_lines()))
        return f'{table}\n<div style="white-space: pre-wrap">{lines}</div>'

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values.

        Returns
        -------
        dict
            user, history (oldest first where its order is known), items with their reasons, is_exact, and what answers
            inside the model: communities and the global model, or the parts of a blend.
        """
        shares = self.shares
        listed = items_json(self.names, self.items, score=self.scores)
        for place, item in enumerate(listed):
            order = np.argsort(-self.contributions[place], kind="stable")
            order = order[self.contributions[place][order] != 0]
            because = {
                "contribution": self.contributions[place][order],
                "share": shares[place][order],
            }
            item["rank"] = int(self.ranks[place])
            item["because"] = items_json(self.names, self.history[order], **because)
            if self.everyone[place]:
                item["everyone"] = {
                    "contribution": float(self.everyone[place]),
                    "share": float(shares[place, -1]),
                }
        inside = {} if self.sources is None else self.sources.to_json(self.names)
        history = items_json(self.names, self.history)
        return {
            "user": self.user,
            "history": history,
            "items": listed,
            "is_exact": self.is_exact,
            **inside,
        }


def explain(
    model: Explainable,
    who: Any,
    item: Id | list[Id] | None,
    n: int,
    *,
    recency: HistoryWeights,
    order: Any = None,
) -> Explanation:
    """Why a model lists its n best items for one history, or scores one item or some as it does; see `Recommender`."""
    n = min(check_list_length(n), model.count_items())
    if order is not None:
        who = _in_order(who, order)
    found = resolve_histories(who, model.train_data_, model.count_items(), recency=recency)
    if len(found) != 1:
        hint = (
            "; explain them one at a time"
            if len(found)
            else "; give a user id or a list of item ids in a list"
        )
        raise DataError(f"explain: expected one history, found {len(found)}{hint}")
    history, in_order, names = (
        found.matrix(),
        np.asarray(found.order(0), dtype=np.int32),
        found.items,
    )
    scores = np.asarray(model.score(history), dtype=np.float32)[0]
    if item is None:
        items = rank_top_n(scores[None], history, n)[0][0]
        items = items[items >= 0]
    else:
        items = np.array(
            [names.row(one) for one in (item if isinstance(item, list) else [item])], dtype=np.int32
        )
    added, everyone, is_exact = find_contributions(model, history, items)
    place_of = {row: place for place, row in enumerate(history.indices.tolist())}
    added = added[:, [place_of[row] for row in in_order.tolist()]]
    known, popularity = model.train_data_, None
    if known is not None and everyone.any():
        # Each user once: a pair may be repeated.
        owners = (
            np.searchsorted(known.offsets, np.flatnonzero(known.item_rows == row), "right")
            for row in items
        )
        holders = [len(np.unique(one)) for one in owners]
        popularity = np.array(holders, dtype=np.float32) / np.float32(max(known.n_users, 1))
    return Explanation(
        user=found.users[0].item() if isinstance(found.users[0], np.generic) else found.users[0],
        names=names,
        history=in_order,
        items=items,
        scores=scores[items],
        ranks=ranks_of(scores, history, items),
        contributions=added,
        everyone=everyone,
        is_exact=is_exact,
        ordered=not issparse(who) or order is not None,
        popularity=popularity,
        sources=model.sources_of(history, items, n, known),
    )


def _in_order(row: csr_array, order: Any) -> csr_array:
    """The one history of a sparse row, stored in the order given."""
    rows, items = csr_array(row), np.asarray(order, dtype=np.int32)
    if rows.shape[0] != 1 or sorted(items.tolist()) != sorted(rows.indices.tolist()):
        raise DataError(
            "explain: expected the order to name the items of the history, and no others"
        )
    values = rows.toarray()[0][items]
    return csr_array((values, items, [0, len(items)]), shape=rows.shape)


def find_contributions(
    model: Explainable, history: csr_array, items: Rows
) -> tuple[Figures, Figures, bool]:
    """What each entry of a history adds to the scores of items, items × entries; what each gets anyway; if exact.

    Exact where the model's scores of this history are a sum over its items. Otherwise what the score of an item loses
    without the entry, and nothing that it gets anyway.
    """
    count, item_count = history.nnz, history.shape[1]
    values, places = history.data, np.arange(count + 1)
    # Row e has the entry e alone, the last row nothing.
    alone = csr_array(
        (values, history.indices, np.append(places, count)), shape=(count + 1, item_count)
    )
    score = model.additive_at(history)
    is_exact = score is not None
    if score is None:
        # Row e has all entries but e, the last row all.
        every = csr_array(np.ones((count + 1, 1), np.float32)) @ history
        alone, score = csr_array(every - alone), model.score
        alone.eliminate_zeros()
    figures = np.empty((count + 1, len(items)), dtype=np.float32)
    step = block_rows(item_count)
    for start in range(0, count + 1, step):
        figures[start : start + step] = np.asarray(score(csr_array(alone[start : start + step])))[
            :, items
        ]
    if is_exact:
        return (figures[:-1] - figures[-1]).T, figures[-1], True
    return (figures[-1] - figures[:-1]).T, np.zeros(len(items), np.float32), False


def ranks_of(scores: Figures, history: csr_array, items: Rows) -> npt.NDArray[np.int64]:
    """The place of each item among those that are not in the history, from 1; 0 for an item of the history."""
    unseen = np.ones(len(scores), dtype=bool)
    unseen[history.indices] = False
    ranks = np.zeros(len(items), dtype=np.int64)
    for place, row in enumerate(items.tolist()):
        if unseen[row]:
            before = (scores > scores[row]) | (
                (scores == scores[row]) & (np.arange(len(scores)) < row)
            )
            ranks[place] = 1 + int((before & unseen).sum())
    return ranks


def items_json(
    names: IdMap, rows: npt.NDArray[Any], **figures: npt.NDArray[Any]
) -> list[dict[str, Any]]:
    """Each item with its id, its title if any, and its figures by name; an empty place, row −1, is left out."""
    listed = []
    for place, row in enumerate(rows.tolist()):
        if row >= 0:
            titled = {} if names.labels is None else {"title": names.label(row)}
            figured = {name: float(values[place]) for name, values in figures.items()}
            listed.append({"item": names.ids([row])[0], **titled, **figured})
    return listed


def percent(share: float) -> str:
    """A share as a whole number of per cent; one that is small and above 0 is not called nothing."""
    return "<1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"


def title(names: IdMap, row: int, most: int = _TITLE) -> str:
    """What a person reads for an item, cut where it is longer than so many columns."""
    return cut(names.label(int(row)), most)


def fold(opening: str, pieces: Sequence[str], width: int, indent: int | None = None) -> list[str]:
    """The opening and the pieces with commas between them, in lines of at most so many columns.

    A further line begins below the end of the opening, or with `indent` spaces.
    """
    lines, line = [], opening
    begins = True
    for place, piece in enumerate(pieces):
        text = cut(piece, width - columns_of(opening) - 1) + (
            "," if place < len(pieces) - 1 else ""
        )
        if not begins and columns_of(line) + 1 + columns_of(text) > width:
            lines.append(line)
            line, begins = " " * (columns_of(opening) if indent is None else indent), True
        line += text if begins else f" {text}"
        begins = False
    return [*lines, line.rstrip()]
