"""What a data set is like in a few numbers: the columns of the paper's Table 1, and some more."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from loca.data.interactions import Interactions, moment_of
from loca.progress import say
from loca.text_table import Readable, TextTable


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
    sizes = interactions.n_users, interactions.n_items, len(interactions)
    ratings, possible = len(interactions), interactions.n_users * interactions.n_items
    sparsity = 100 * (1 - ratings / possible) if possible else 0.0
    popularity = np.bincount(interactions.item_rows, minlength=interactions.n_items)
    from_the_top = np.cumsum(np.sort(popularity)[::-1]) if len(popularity) else np.zeros(1)
    top_5, top_2 = (
        float(from_the_top[max(len(popularity) * percent // 100, 1) - 1]) for percent in (5, 2)
    )
    concentrations = 100 * top_5 / max(ratings, 1), 100 * top_2 / max(ratings, 1)
    histories = interactions.counts() if interactions.n_users else np.zeros(1, np.int64)
    shortest, median, longest = (
        int(histories.min()),
        float(np.median(histories)),
        int(histories.max()),
    )
    times = interactions.times if ratings else None
    span = (None, None) if times is None else (times.min().item(), times.max().item())
    repeated, unused = ratings - interactions.matrix().nnz, int((popularity == 0).sum())
    return Statistics(
        *sizes, sparsity, *concentrations, shortest, median, longest, repeated, unused, *span
    )


# Shorter histories are left out where there are longer ones, as the protocols leave them out.
_LEAST_HISTORY = 10
_LEAST_HISTORIES = 3
# An order looks like the file's where so many neighbours have nothing but the file to order them, and so many of those
# rise, or so few, and that surely.
_MANY = 0.2
_FAR = 0.7
_SURE = 5.0


@dataclass(frozen=True, repr=False)
class OrderCheck(Readable):
    """Hold what `check_order` found; prints as a few lines.

    Attributes
    ----------
    histories : int
        The histories that were looked at, distinct pairs of a user and an item.
    neighbours : int
        Interactions that directly follow another one of the same history.
    timed : bool
        Whether the times are known.
    in_one_moment : float
        The share of neighbours with equal times; 0 without times.
    compared : int
        Neighbours that nothing but the file orders: those of one moment, or without times all.
    rising : float or None
        The share of those in which the item id rises, numbers as numbers and all others as text; by chance ½.
        None where there are none.
    rising_z : float
        How many standard deviations that is away from ½.
    pairs : int
        Unordered pairs of items that stand side by side in at least 3 histories.
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
    >>> print(found.warning())
    the order of items looks like the file's, not the users' (ids rise within 100 % of neighbours): do not ...
    """

    histories: int
    neighbours: int
    timed: bool
    in_one_moment: float
    compared: int
    rising: float | None
    rising_z: float
    pairs: int
    direction: float | None
    direction_by_chance: float | None

    @property
    def looks_like_file_order(self) -> bool:
        """Whether many neighbours have no order of their own, and stand sorted by item id far beyond chance."""
        if self.rising is None or self.compared < _MANY * self.neighbours:
            return False
        return max(self.rising, 1 - self.rising) >= _FAR and abs(self.rising_z) >= _SURE

    def warning(self) -> str | None:
        """Warn whoever is about to learn from this order.

        Returns
        -------
        str or None
            One line; None where the order does not look like the file's.
        """
        if not self.looks_like_file_order or self.rising is None:
            return None
        verb, share = ("rise", self.rising) if self.rising > 0.5 else ("fall", 1 - self.rising)
        found = f"ids {verb} within {100 * share:.0f} % of {'equal times' if self.timed else 'neighbours'}"
        advice = "do not trust what models gain from it"
        return f"the order of items looks like the file's, not the users' ({found}): {advice}"

    def lines(self) -> tuple[tuple[str, str], ...]:
        """Return what a person reads.

        Returns
        -------
        tuple of (str, str)
            Name and value, one pair per line.
        """
        moments = (
            f"{100 * self.in_one_moment:.0f} % of {self.neighbours:,}"
            if self.timed
            else "no times are known"
        )
        rising, direction = "none to compare", "no pair stands side by side in 3 histories"
        order = (
            "looks like the file's, not the users'"
            if self.looks_like_file_order
            else "may be the users' own"
        )
        if self.rising is not None:
            rising = f"{100 * self.rising:.0f} % of {self.compared:,} (chance 50 %, z = {self.rising_z:.1f})"
        if self.direction is not None and self.direction_by_chance is not None:
            direction = f"{self.direction:.3f} (chance {self.direction_by_chance:.3f}), {self.pairs:,} pairs"
        return (
            ("neighbours in one moment", moments),
            (f"item ids rise {'inside moments' if self.timed else 'along histories'}", rising),
            ("pairs in their usual direction", direction),
            ("order", order),
        )

    def shown(self) -> list[TextTable]:
        """Return the lines as a table.

        Returns
        -------
        list of TextTable
        """
        return [TextTable(("", ""), self.lines(), names=2)]


def check_order(interactions: Interactions) -> OrderCheck:
    """Find out how far the order of the histories can be trusted.

    Files are often sorted by item where times are equal or unknown. A model that learns from the order would learn the
    sorting of the file.

    Parameters
    ----------
    interactions : Interactions
        A repeated pair counts once, at its newest place. Histories below 10 items are left out where any has as many.

    Returns
    -------
    OrderCheck
        Ties in time, whether item ids rise where only the file orders the items, and the direction of neighbours.

    Examples
    --------
    >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12, shortest_history=10).interactions
    >>> found = loca.check_order(data)
    >>> found.in_one_moment, found.looks_like_file_order, found.warning()
    (0.0, False, None)
    """
    from scipy.special import gammaln

    data = interactions.distinct()
    long = data.counts() >= _LEAST_HISTORY
    data = data.of_users(long if long.any() else data.counts() > 0)
    newer = np.flatnonzero(data.places())  # interactions with one before them in their history
    older, timed = newer - 1, data.times is not None
    alike = (
        np.ones(len(newer), bool) if data.times is None else data.times[newer] == data.times[older]
    )
    # The place of every item among the sorted ids: numbers, written as text or not, by size, all others as text.
    values = data.items.values.tolist()
    if data.items.values.dtype.kind == "O" and all(value.isdecimal() for value in values):
        values = [(len(digits), digits) for digits in (value.lstrip("0") for value in values)]
    ranks = np.empty(len(values), dtype=np.int64)
    ranks[sorted(range(len(values)), key=values.__getitem__)] = np.arange(len(values))
    before, after = ranks[data.item_rows][older], ranks[data.item_rows][newer]
    compared, risen = int(alike.sum()), int((after > before)[alike].sum())
    in_one_moment = compared / len(newer) if timed and len(newer) else 0.0
    rising, z = (
        (risen / compared, (2 * risen - compared) / math.sqrt(compared))
        if compared
        else (None, 0.0)
    )
    # One number for the pair, and the direction in its last bit: sorted, all of a pair stand together.
    keys = np.sort(
        (np.minimum(before, after) * data.n_items + np.maximum(before, after)) * 2
        + (before < after)
    )
    pairs, counts = np.unique(keys >> 1, return_counts=True)
    upward = np.bincount(np.searchsorted(pairs, keys >> 1), keys & 1, len(pairs))
    is_often = counts >= _LEAST_HISTORIES
    counts, upward = counts[is_often], upward[is_often]
    direction = by_chance = None
    if len(counts):
        direction = float((np.maximum(upward, counts - upward) / counts).mean())
        # E[max(k, n − k)] for k ~ Binomial(n, ½): n/2 and the mean deviation from it, m · C(n, m) / 2ⁿ, m = ⌊n/2⌋ + 1.
        m = counts // 2 + 1.0
        log_choose = gammaln(counts + 1.0) - gammaln(m + 1) - gammaln(counts - m + 1)
        by_chance = float(
            ((counts / 2 + m * np.exp(log_choose - counts * math.log(2))) / counts).mean()
        )
    histories = data.n_users, len(newer), timed
    return OrderCheck(
        *histories, in_one_moment, compared, rising, z, len(counts), direction, by_chance
    )


def warn_of_file_order(train: Interactions | csr_array) -> None:
    """Say in one line, before models learn from this order, where it looks like the file's."""
    line = check_order(
        train if isinstance(train, Interactions) else Interactions.from_matrix(train)
    ).warning()
    if line is not None:
        say(line)
