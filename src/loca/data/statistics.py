"""What a data set is like in a few numbers: the columns of the paper's Table 1, and some more."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.data.id_map import IdMap
from loca.data.interactions import Interactions, moment_of
from loca.remarks import remark
from loca.text_table import Readable, TextTable

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, repr=False)
class Statistics(Readable):
    """Hold the counts of a data set, as `describe` finds them; prints as a table.

    Attributes
    ----------
    users, items, ratings : int
        Their numbers; every interaction is a rating.
    sparsity : float
        Percent of all pairs of a user and an item without a rating.
    concentration : float
        Percent of the ratings that the most popular 5 % of the items have, as the paper says.
    narrow_concentration : float
        The same of the most popular 2 %, near to which the paper's figure for AMusic lies.
    shortest_history, median_history, longest_history : int, float, int
        Lengths of the histories, in interactions.
    repeated_pairs : int
        Ratings of a pair that has one already.
    unused_items : int
        Items without a rating.
    first_time, last_time : float or None
        The span of the times; None without times.
    """

    users: int
    items: int
    ratings: int
    sparsity: float
    concentration: float
    narrow_concentration: float
    shortest_history: int
    median_history: float
    longest_history: int
    repeated_pairs: int
    unused_items: int
    first_time: float | None
    last_time: float | None

    def lines(self) -> tuple[tuple[str, str], ...]:
        """Return what a person reads.

        Returns
        -------
        tuple of (str, str)
            Name and value, one pair per line.
        """
        times = [
            f"{time:g}" if isinstance(time, float) else str(time)
            for time in (self.first_time, self.last_time)
        ]
        span = "none" if self.first_time is None else " to ".join(self.dates() or times)
        histories = (
            f"{self.shortest_history:,} / {self.median_history:,g} / {self.longest_history:,}"
        )
        return (
            ("users", f"{self.users:,}"),
            ("items", f"{self.items:,}"),
            ("ratings", f"{self.ratings:,}"),
            ("sparsity", f"{self.sparsity:.2f} %"),
            ("concentration", f"{self.concentration:.2f} %"),
            ("history, shortest / median / longest", histories),
            ("repeated pairs", f"{self.repeated_pairs:,}"),
            ("items without a rating", f"{self.unused_items:,}"),
            ("time", span),
        )

    def dates(self) -> tuple[str, str] | None:
        """Return the days of the first and the last interaction.

        Returns
        -------
        (str, str) or None
            ISO dates (UTC) where the times look like seconds, milliseconds, micro- or nanoseconds since 1970; None for
            a bare order, or without times.
        """
        first, last = moment_of(self.first_time), moment_of(self.last_time)
        return None if first is None or last is None else (f"{first:%Y-%m-%d}", f"{last:%Y-%m-%d}")

    def shown(self) -> list[TextTable]:
        """Return the lines as a table.

        Returns
        -------
        list of TextTable
        """
        return [TextTable(("", ""), self.lines(), names=2)]


def describe(interactions: Interactions) -> Statistics:
    """Compute the statistics of a data set, as in the paper's Table 1.

    Every interaction counts as a rating, repeated pairs too, as in the paper. Sparsity is
    1 − ratings / (users · items). Concentration is the share of ratings that the most popular 5 % of all items have
    (rounded down, at least one item); items without a rating count among all. Empty data give zeros.

    Parameters
    ----------
    interactions : Interactions
        The data set.

    Returns
    -------
    Statistics
        Prints as a table.

    Examples
    --------
    >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12, shortest_history=10).interactions
    >>> found = loca.describe(data)
    >>> found.users, found.items, found.ratings
    (60, 30, 728)
    >>> print(found)
    users                                 60
    items                                 30
    ratings                               728
    ...
    """
    ratings = len(interactions)
    possible_pairs = interactions.n_users * interactions.n_items
    popularity = np.bincount(interactions.item_rows, minlength=interactions.n_items)
    counts = interactions.counts() if interactions.n_users else np.zeros(1, np.int64)
    times = interactions.times if ratings else None
    return Statistics(
        users=interactions.n_users,
        items=interactions.n_items,
        ratings=ratings,
        sparsity=100 * (1 - ratings / possible_pairs) if possible_pairs else 0.0,
        concentration=_percent_of_top(popularity, 5),
        narrow_concentration=_percent_of_top(popularity, 2),
        shortest_history=int(counts.min()),
        median_history=float(np.median(counts)),
        longest_history=int(counts.max()),
        repeated_pairs=ratings - interactions.matrix().nnz,
        unused_items=int((popularity == 0).sum()),
        first_time=None if times is None else times.min().item(),
        last_time=None if times is None else times.max().item(),
    )


def _percent_of_top(popularity: IntArray, percent: int) -> float:
    """Return the percent of all ratings that so many percent of the items have, at least one item."""
    n_items = max(len(popularity) * percent // 100, 1)
    most_popular = np.sort(popularity)[::-1][:n_items]
    return 100 * float(most_popular.sum()) / max(int(popularity.sum()), 1)


# Shorter histories are left out where there are longer ones, as the protocols leave them out.
_SHORTEST_HISTORY = 10
# Two items count as a pair where they stand side by side in so many histories.
_FEWEST_HISTORIES = 3
# Times order hardly anything where no more items than this are newer than the one before them.
_HARDLY_ANY = 0.1
# Items stand sorted by id where so many ids rise, or fall, and that surely.
_SORTED_SHARE = 0.7
_SORTED_Z = 5.0
# Of fewer items it cannot be told: even if all ids rise, z = √n is below _SORTED_Z.
_FEWEST_TO_TELL = 25
# So many of the last items of a user are test, unless a split is told otherwise.
_HELD_OUT = 5

_FILE_ORDER = "looks like the file's, not the users'"


@dataclass(frozen=True, repr=False)
class OrderCheck(Readable):
    """Hold what `check_order` found; prints as a few lines.

    Items of one moment, with equal times, have no order for a model: only times order a history. Without times the
    stored order counts.

    Attributes
    ----------
    histories : int
        The histories that were looked at, distinct pairs of a user and an item.
    neighbours : int
        Items that directly follow another one of the same history.
    timed : bool
        Whether the times are known.
    ordered_by_time : float
        The share of neighbours that are newer than the item before them; 0 without times.
    compared : int
        Neighbours that nothing but the file orders: those of one moment, or without times all.
    rising : float or None
        The share of those in which the item id rises, numbers as numbers and all others as text; by chance ½.
        None where there are none.
    rising_z : float
        How many standard deviations that is away from ½.
    moments_cut : float
        The share of histories whose last 5 items begin inside a moment. A split that makes these test cuts through the
        moment, and the file decides which of its items are test. 0 without times.
    pairs : int
        Unordered pairs of items that stand side by side in at least 3 histories; with times only where these order
        the two.
    direction : float or None
        The share of its occurrences in which such a pair stands in its more frequent direction, the mean over pairs.
    direction_by_chance : float or None
        The same where both directions are equally likely: E[max(k, n − k)] / n for k ~ Binomial(n, ½).

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> found = loca.check_order(loca.Interactions.from_matrix(csr_array([[1] * 12] * 5)))
    >>> found.histories, found.neighbours, found.rising
    (5, 55, 1.0)
    >>> found.looks_like_file_order
    True
    >>> print(found)
    order                   looks like the file's, not the users': no times, and sorted by item id
    order in the file       sorted by item id: 100 % of ids are higher than the one before (50 % by chance)
    two items side by side  in their usual order 100 % of the time, 69 % by chance (11 pairs)
    """

    histories: int
    neighbours: int
    timed: bool
    ordered_by_time: float
    compared: int
    rising: float | None
    rising_z: float
    moments_cut: float
    pairs: int
    direction: float | None
    direction_by_chance: float | None

    @property
    def sorted_by_item(self) -> bool:
        """Whether items that nothing but the file orders stand sorted by id, far beyond chance."""
        if self.rising is None:
            return False
        share = max(self.rising, 1 - self.rising)
        return share >= _SORTED_SHARE and abs(self.rising_z) >= _SORTED_Z

    @property
    def looks_like_file_order(self) -> bool:
        """Whether items stand sorted by id, and no times, or hardly any, give them another order."""
        return self.sorted_by_item and self.ordered_by_time <= _HARDLY_ANY

    @property
    def verdict(self) -> str:
        """What orders the histories, in one line."""
        if self.neighbours == 0:
            return "none: no history has two items"
        if self.timed:
            return self._verdict_on_times()
        if self.looks_like_file_order:
            return f"{_FILE_ORDER}: no times, and sorted by item id"
        if self.compared < _FEWEST_TO_TELL:
            return "may be the users' own: no times, and too few items to tell"
        return "may be the users' own: no times, but not sorted by item id"

    def _verdict_on_times(self) -> str:
        if self.looks_like_file_order:
            equal_times = 100 * (1 - self.ordered_by_time)
            return f"{_FILE_ORDER}: {equal_times:.0f} % have equal times, sorted by item id"
        source = "by time"
        if self.ordered_by_time < 0.5:
            source = "partly by time"
        if self.ordered_by_time <= _HARDLY_ANY:
            source = "hardly any"
        share = f"{100 * self.ordered_by_time:.0f} % of {self.neighbours:,} items"
        return f"{source}: {share} are newer than the one before them"

    def warning(self) -> str | None:
        """Warn whoever is about to learn from this order.

        Returns
        -------
        str or None
            One line; None where the order does not look like the file's.

        Examples
        --------
        >>> from scipy.sparse import csr_array
        >>> sorted_by_item = loca.Interactions.from_matrix(csr_array([[1] * 12] * 5))
        >>> print(loca.check_order(sorted_by_item).warning())
        the order of items looks like the file's, not the users' (no times, and 100 % of ids are higher ...
        """
        if not self.looks_like_file_order:
            return None
        if not self.timed:
            reason = f"no times, and {self._ids_in_order()}"
            advice = "do not trust what models gain from it; give a column of times"
        else:
            equal_times = 100 * (1 - self.ordered_by_time)
            reason = f"{equal_times:.0f} % of items have equal times, and {self._ids_in_order()}"
            advice = (
                "models that use order have hardly anything to learn from, and a split of the last "
                "items holds out what the file has last; give finer times"
            )
        return f"the order of items {_FILE_ORDER} ({reason}): {advice}"

    def _ids_in_order(self) -> str:
        """Say how many ids are higher than the one before them, or lower where most are."""
        rising = 0.0 if self.rising is None else self.rising
        if self.sorted_by_item and rising < 0.5:
            return f"{100 * (1 - rising):.0f} % of ids are lower than the one before"
        return f"{100 * rising:.0f} % of ids are higher than the one before"

    def _order_in_file(self) -> str:
        if self.compared < _FEWEST_TO_TELL:
            return "too few items to tell whether they are sorted by item id"
        judgement = "sorted by item id" if self.sorted_by_item else "not sorted by item id"
        return f"{judgement}: {self._ids_in_order()} (50 % by chance)"

    def lines(self) -> tuple[tuple[str, str], ...]:
        """Return what a person reads: first the verdict, then what it rests on.

        Returns
        -------
        tuple of (str, str)
            Name and value, one pair per line.
        """
        lines = [("order", self.verdict)]
        if self.timed and self.neighbours:
            lines += self._lines_on_equal_times()
        if not self.timed and self.neighbours:
            lines.append(("order in the file", self._order_in_file()))
        usual_order = "no pair of items stands side by side in 3 histories"
        if self.direction is not None and self.direction_by_chance is not None:
            usual_order = (
                f"in their usual order {100 * self.direction:.0f} % of the time, "
                f"{100 * self.direction_by_chance:.0f} % by chance ({self.pairs:,} pairs)"
            )
        lines.append(("two items side by side", usual_order))
        return tuple(lines)

    def _lines_on_equal_times(self) -> list[tuple[str, str]]:
        if self.compared == 0:
            return [("items at equal times", "none")]
        share = f"{100 * (1 - self.ordered_by_time):.0f} %"
        lines = [
            ("items at equal times", f"{self.compared:,} ({share}); models see no order in these"),
            ("their order in the file", self._order_in_file()),
        ]
        if self.moments_cut >= 0.005:  # 1 % when rounded
            cut = (
                f"in {100 * self.moments_cut:.0f} % of histories the file decides "
                "which items at equal times are test"
            )
            lines.append((f"the last {_HELD_OUT} items as test", cut))
        return lines

    def shown(self) -> list[TextTable]:
        """Return the lines as a table.

        Returns
        -------
        list of TextTable
        """
        return [TextTable(("", ""), self.lines(), names=2)]


def check_order(interactions: Interactions) -> OrderCheck:
    """Find out how much of the order of the histories is known.

    Times order a history; items at equal times, or without times all, stand as the file has them. Files are often
    sorted by item there, and a model that learns from such an order would learn the sorting of the file.

    Parameters
    ----------
    interactions : Interactions
        A repeated pair counts once, at its newest place. Histories below 10 items are left out where any has as many.

    Returns
    -------
    OrderCheck
        How much the times order, whether item ids rise where only the file orders the items, and whether two items
        mostly stand in one direction.

    Examples
    --------
    >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12, shortest_history=10).interactions
    >>> found = loca.check_order(data)
    >>> found.ordered_by_time, found.looks_like_file_order, found.warning()
    (1.0, False, None)
    >>> found.verdict
    'by time: 100 % of 668 items are newer than the one before them'
    """
    data = interactions.distinct()
    counts = data.counts()
    is_long = counts >= _SHORTEST_HISTORY
    data = data.of_users(is_long if is_long.any() else counts > 0)

    newer = np.flatnonzero(data.places())  # interactions with one before them in their history
    older = newer - 1
    is_newer = np.zeros(len(newer), dtype=bool)
    if data.times is not None:
        is_newer = data.times[newer] != data.times[older]
    ranks = _id_ranks(data.items)[data.item_rows]
    is_rising = ranks[newer] > ranks[older]

    compared = int((~is_newer).sum())
    risen = int(is_rising[~is_newer].sum())
    is_ordered = is_newer if data.times is not None else np.ones(len(newer), dtype=bool)
    lower_ranks = np.minimum(ranks[newer], ranks[older])[is_ordered]
    higher_ranks = np.maximum(ranks[newer], ranks[older])[is_ordered]
    pairs = lower_ranks * data.n_items + higher_ranks
    n_pairs, direction, by_chance = _usual_direction(pairs, is_rising[is_ordered])
    return OrderCheck(
        histories=data.n_users,
        neighbours=len(newer),
        timed=data.times is not None,
        ordered_by_time=float(is_newer.mean()) if len(newer) else 0.0,
        compared=compared,
        rising=risen / compared if compared else None,
        rising_z=(2 * risen - compared) / math.sqrt(compared) if compared else 0.0,
        moments_cut=_share_of_moments_cut(data),
        pairs=n_pairs,
        direction=direction,
        direction_by_chance=by_chance,
    )


def _id_ranks(items: IdMap) -> IntArray:
    """Return the place of every item row among the sorted ids: by size where all are numbers, else as text."""
    ids = items.values.tolist()
    if items.values.dtype.kind == "O" and all(item_id.isdecimal() for item_id in ids):
        # Numbers written as text: the longer one is larger, however many digits it has.
        digits = [item_id.lstrip("0") for item_id in ids]
        ids = [(len(number), number) for number in digits]
    ranks = np.empty(len(ids), dtype=np.int64)
    ranks[sorted(range(len(ids)), key=ids.__getitem__)] = np.arange(len(ids))
    return ranks


def _usual_direction(
    pairs: IntArray, is_rising: BoolArray
) -> tuple[int, float | None, float | None]:
    """Return how many pairs occur often, their mean share in the usual direction, and that by chance."""
    from scipy.special import gammaln

    # One number for the pair, and the direction in its last bit: sorted, all of a pair stand together.
    keys = np.sort(2 * pairs + is_rising)
    distinct, counts = np.unique(keys >> 1, return_counts=True)
    upward = np.bincount(np.searchsorted(distinct, keys >> 1), keys & 1, len(distinct))
    is_often = counts >= _FEWEST_HISTORIES
    counts = counts[is_often]
    upward = upward[is_often]
    if len(counts) == 0:
        return 0, None, None
    usual = np.maximum(upward, counts - upward)
    # E[max(k, n − k)] for k ~ Binomial(n, ½): n/2 and the mean deviation from it, m · C(n, m) / 2ⁿ, m = ⌊n/2⌋ + 1.
    m = counts // 2 + 1.0
    log_choose = gammaln(counts + 1.0) - gammaln(m + 1) - gammaln(counts - m + 1)
    usual_by_chance = counts / 2 + m * np.exp(log_choose - counts * math.log(2))
    return len(counts), float((usual / counts).mean()), float((usual_by_chance / counts).mean())


def _share_of_moments_cut(data: Interactions) -> float:
    """Return the share of histories in which the first of the last items has the time of the one before it."""
    if data.times is None or data.n_users == 0:
        return 0.0
    counts = data.counts()
    held_out = np.minimum(_HELD_OUT, counts - 1)  # a split leaves one item to train on
    first_held_out = (data.offsets[1:] - held_out)[counts > 1]
    is_cut = data.times[first_held_out] == data.times[first_held_out - 1]
    return float(is_cut.sum() / data.n_users)


def warn_of_file_order(train: Interactions | csr_array) -> None:
    """Tell, before models learn from this order, where it looks like the file's."""
    data = train if isinstance(train, Interactions) else Interactions.from_matrix(train)
    warning = check_order(data).warning()
    if warning is not None:
        remark("file-order", warning)
