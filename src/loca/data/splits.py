"""Interactions become a Split: the last of each user, users never seen, or everything from a moment on is held out."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, issparse

from loca.data.histories import over_items
from loca.data.id_map import IdMap
from loca.data.interactions import Interactions
from loca.data.later import as_interactions, check_ids, read_later
from loca.data.recency import Recency
from loca.errors import ConfigError, DataError, check_arguments
from loca.random_streams import stream
from loca.remarks import Remarks, keeps_remarks, remark, shown_remarks
from loca.text_table import Readable, TextTable, many


@dataclass(frozen=True, eq=False, repr=False)
class HeldOut(Readable):
    """Pair the known histories of users with the items that are to be found; prints as a table.

    Row r of `histories` and row r of `targets` belong to the same user.

    Parameters
    ----------
    histories : Interactions
        What a model may look at.
    targets : Interactions
        What is to be found: the same users and items, in the same order. A target that a user has twice is one item to
        find.
    count_repeats : bool, default False
        Whether a repeated target counts every time in what Recall and NDCG divide by, as in the paper, although a list
        can name it only once.

    Examples
    --------
    >>> from scipy.sparse import csr_array, issparse
    >>> known = loca.Interactions.from_matrix(csr_array([[1, 1, 0, 0], [0, 1, 1, 0]]))
    >>> hidden = loca.Interactions.from_matrix(csr_array([[0, 0, 1, 1], [1, 0, 0, 0]]))
    >>> held_out = loca.HeldOut(known, hidden)
    >>> held_out
    HeldOut: 2 users, 4 items; no recency
               users  items  interactions  per user     time
    histories      2      3             4         2  no times
    targets        2      3             3       1.5  no times
    >>> held_out.target_counts.tolist()
    [2, 1]
    >>> held_out.history_matrix.shape
    (2, 4)
    """

    histories: Interactions
    targets: Interactions
    count_repeats: bool = False

    def __post_init__(self) -> None:
        if (
            self.histories.n_users != self.targets.n_users
            or self.histories.n_items != self.targets.n_items
        ):
            raise DataError("histories and targets must have the same users and items")
        if not np.array_equal(self.histories.users.values, self.targets.users.values):
            raise DataError("histories and targets must have the same users in the same order")
        if len(self.targets) == 0:
            raise DataError("no item is held out for any user")

    @property
    def n_users(self) -> int:
        """The number of users."""
        return self.histories.n_users

    @property
    def n_items(self) -> int:
        """The number of items."""
        return self.histories.n_items

    def shown(self) -> list[str | TextTable]:
        """Return what a person reads: the sizes of the histories and of the targets.

        Returns
        -------
        list of str or TextTable
        """
        title = f"HeldOut: {self.n_users:,} users, {self.n_items:,} items; {_recency_text(self.histories)}"
        return [title, _sizes({"histories": self.histories, "targets": self.targets})]

    @cached_property
    def history_matrix(self) -> csr_array:
        """The weighted histories of all users, users × items; made once."""
        return self.histories.histories()

    @cached_property
    def target_matrix(self) -> csr_array:
        """The targets, users × items, binary; made once."""
        return self.targets.unweighted().matrix()

    @cached_property
    def target_counts(self) -> npt.NDArray[np.int64]:
        """How many targets each user's metrics divide by: distinct items, or with `count_repeats` all of them."""
        return (
            self.targets.counts()
            if self.count_repeats
            else np.diff(self.target_matrix.indptr).astype(np.int64)
        )

    def of_users(self, user_rows: npt.NDArray[Any]) -> HeldOut:
        """Choose some users.

        Parameters
        ----------
        user_rows : ndarray
            Row numbers, or a mask of all users.

        Returns
        -------
        HeldOut
            Its users are renumbered from 0.
        """
        return replace(
            self,
            histories=self.histories.of_users(user_rows),
            targets=self.targets.of_users(user_rows),
        )

    def with_recency(self, recency: Recency | None) -> HeldOut:
        """Change how the histories are weighted.

        Parameters
        ----------
        recency : Recency or None
            None gives every item the weight 1.

        Returns
        -------
        HeldOut
        """
        return replace(self, histories=self.histories.with_recency(recency))

    def weighed_as(self, known: Interactions | None) -> HeldOut:
        """Weight the histories as some known interactions where they have no recency themselves.

        Parameters
        ----------
        known : Interactions or None
            Usually what a model was fitted on; None changes nothing.

        Returns
        -------
        HeldOut
        """
        if known is None or known.recency is None or self.histories.recency is not None:
            return self
        return self.with_recency(known.recency)


@dataclass(frozen=True, eq=False, repr=False)
class Split(Readable):
    """Hold the train, validation and test parts of interactions; prints as a table.

    Choices are made on validation; test is looked at once. `leave_last_out`, `hold_out_users`, `split_at_time` and
    `split_from` make splits.

    Parameters
    ----------
    train : Interactions
        What models learn from while choices are made.
    validation : HeldOut or None
        What choices are made on; None where nothing is chosen.
    test : HeldOut
        What the final figures are computed on.
    train_and_validation : Interactions
        What the chosen model learns from in the end.
    report : tuple of str, default ()
        What happened to whom, one sentence each.
    remarks : tuple of Remark, default ()
        What changes the meaning of figures on this split, and of its data.

    Examples
    --------
    >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12, shortest_history=10).interactions
    >>> split = loca.leave_last_out(data, test=2, validation=1)
    >>> len(split.train), len(split.validation.targets), len(split.test.targets)
    (548, 60, 120)
    >>> len(split.train_and_validation) + len(split.test.targets) == len(data)
    True
    """

    train: Interactions
    validation: HeldOut | None
    test: HeldOut
    train_and_validation: Interactions
    report: tuple[str, ...] = ()
    remarks: Remarks = ()

    def shown(self) -> list[str | TextTable]:
        """Return what a person reads: the size of every part, and the report.

        Returns
        -------
        list of str or TextTable
        """
        parts = {"train": self.train}
        parts |= {} if self.validation is None else {"validation": self.validation.targets}
        title = f"Split: {self.train.n_users:,} users to learn from, {self.train.n_items:,} items; "
        return [
            title + _recency_text(self.train),
            _sizes(parts | {"test": self.test.targets}),
            *plain_lines(self.report, self.remarks),
            *shown_remarks(self.remarks),
        ]

    def with_recency(self, recency: Recency | None) -> Split:
        """Change how every history of the split is weighted.

        Parameters
        ----------
        recency : Recency or None
            None gives every item the weight 1.

        Returns
        -------
        Split
        """
        return replace(
            self,
            train=self.train.with_recency(recency),
            validation=None if self.validation is None else self.validation.with_recency(recency),
            test=self.test.with_recency(recency),
            train_and_validation=self.train_and_validation.with_recency(recency),
        )


def _sizes(parts: dict[str, Interactions]) -> TextTable:
    """One row per part: users and items that occur in it, interactions, and the span of the times."""
    rows = []
    for name, part in parts.items():
        users, items = int((part.counts() > 0).sum()), len(np.unique(part.item_rows))
        sizes = f"{users:,}", f"{items:,}", f"{len(part):,}", f"{len(part) / max(users, 1):.3g}"
        rows.append((name, *sizes, part.time_span()))
    return TextTable(("", "users", "items", "interactions", "per user", "time"), tuple(rows))


def _recency_text(interactions: Interactions) -> str:
    return "no recency" if interactions.recency is None else f"recency: {interactions.recency}"


Report = tuple[str, ...]


@check_arguments
@keeps_remarks
def leave_last_out(
    interactions: Any, *, test: int = 5, validation: int = 0, keep: int = 1
) -> Split:
    """Hold out the last interactions of each user as test, and those before them as validation.

    Test histories are train and validation together. Users with nothing held out stay in train; `report` counts them.

    Parameters
    ----------
    interactions : Interactions, data frame, path or sparse matrix
        All interactions.
    test : int, default 5
        How many of each user's last interactions are test, at least 1.
    validation : int, default 0
        How many of those before them are validation; 0 makes no validation part.
    keep : int, default 1
        How many a user with too few keeps for training, at least 1; what is above that goes to test first, then to
        validation.

    Returns
    -------
    Split

    Examples
    --------
    >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12, shortest_history=10).interactions
    >>> split = loca.leave_last_out(data, test=2, validation=1)
    >>> for line in split.report:
    ...     print(line)
    train: 548 interactions of 60 users
    validation: the last 1 of each user, 60 interactions of 60 users
    test: the last 2 of each user, 120 interactions of 60 users
    """
    interactions = as_interactions(interactions, "interactions")
    _check_histories(interactions, keep, test=(test, 1), validation=(validation, 0))
    longest = interactions.counts().max()
    if validation and longest - keep <= test:
        reason = f"test={test} and keep={keep} come first, and the longest history has {longest} interactions"
        raise DataError(f"nothing is left for validation: {reason}")
    known, test_part, report = _hold(interactions, "test", test, keep)
    train, validation_part, lines = (
        _hold(known, "validation", validation, keep) if validation else (known, None, ())
    )
    lines = (f"train: {_size(train)}", *lines, *report)
    return Split(train, validation_part, test_part, known, lines, known.remarks)


@check_arguments
def hold_last(
    interactions: Any, count: int, *, keep: int = 1
) -> tuple[Interactions, HeldOut, Report]:
    """Hold out the last interactions of each user as validation, for a fit without a test.

    Parameters
    ----------
    interactions : Interactions, data frame, path or sparse matrix
        All interactions.
    count : int
        How many of each user's last interactions are held out, at least 1.
    keep : int, default 1
        How many a user with too few keeps for training, at least 1.

    Returns
    -------
    rest : Interactions
        What is left to learn from.
    held_out : HeldOut
        The last interactions of each user, and the histories before them.
    report : tuple of str
        What happened to whom.

    Examples
    --------
    >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12, shortest_history=10).interactions
    >>> rest, held_out, report = loca.hold_last(data, 2)
    >>> len(data) - len(rest) == len(held_out.targets)
    True
    >>> model = loca.EASE().fit(rest, validation=held_out)
    """
    interactions = as_interactions(interactions, "interactions")
    _check_histories(interactions, keep, validation=(count, 1))
    rest, held_out, lines = _hold(interactions, "validation", count, keep)
    return rest, held_out, (f"train: {_size(rest)}", *lines)


@check_arguments
@keeps_remarks
def hold_out_users(
    interactions: Any,
    *,
    test_users: float,
    validation_users: float = 0,
    fold_in: float = 0.8,
    seed: int = 0,
) -> Split:
    """Hold out users who are never seen in training, and know the oldest share of their histories.

    This is strong generalisation. Train holds all other users; `train_and_validation` also the whole histories of the
    validation users.

    Parameters
    ----------
    interactions : Interactions, data frame, path or sparse matrix
        All interactions. Users are held out among those with at least two.
    test_users : float
        How many users are test: a count, or a share of all users where it is below 1.
    validation_users : float, default 0
        How many are validation, likewise; 0 makes no validation part.
    fold_in : float, default 0.8
        The share of a held-out user's interactions, the oldest, that is known; the rest is to be found.
    seed : int, default 0
        Seed of the draw of users.

    Returns
    -------
    Split

    Examples
    --------
    >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12, shortest_history=10).interactions
    >>> split = loca.hold_out_users(data, test_users=10, validation_users=0.1)
    >>> split.train.n_users, split.validation.n_users, split.test.n_users
    (44, 6, 10)
    """
    interactions = as_interactions(interactions, "interactions")
    if not 0 < fold_in < 1:
        raise ConfigError(f"fold_in: expected a share between 0 and 1, found {fold_in!r}")
    user_count = interactions.n_users
    test_count = _user_count("test_users", test_users, user_count, 1)
    validation_count = _user_count("validation_users", validation_users, user_count, 0)
    able = np.flatnonzero(interactions.counts() >= 2)
    drawn = test_count + validation_count
    if drawn > len(able) or drawn >= user_count:
        found = f"there are {user_count} users, {len(able)} of them with at least 2 interactions"
        raise DataError(f"cannot hold out {drawn} users and train on others: {found}")
    chosen = stream(seed, "hold_out_users").permutation(able)[:drawn]
    is_test = np.isin(np.arange(user_count), chosen[:test_count])
    is_train = ~np.isin(np.arange(user_count), chosen)
    train, known = interactions.of_users(is_train), interactions.of_users(~is_test)
    test_part, report = _fold_in(interactions.of_users(is_test), train, fold_in, "test")
    validation_part, lines = None, Report()
    if validation_count:
        validation_part, lines = _fold_in(
            interactions.of_users(~is_test & ~is_train), train, fold_in, "validation"
        )
    lines = (f"train: {_size(train)}", *lines, *report)
    return Split(train, validation_part, test_part, known, lines, known.remarks)


@check_arguments
@keeps_remarks
def split_at_time(
    interactions: Any,
    test_from: float | str,
    validation_from: float | str | None = None,
) -> Split:
    """Hold out everything from a moment on.

    Users with nothing before a moment have no history to score from: they are left out of that part, and of train;
    `report` counts them.

    Parameters
    ----------
    interactions : Interactions, data frame, path or sparse matrix
        All interactions, with times.
    test_from : float or str
        Where test begins: a number as in the data, or an ISO date (UTC).
    validation_from : float, str or None, default None
        Where validation begins, not after `test_from`; None makes no validation part.

    Returns
    -------
    Split

    Examples
    --------
    >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12, shortest_history=10).interactions
    >>> split = loca.split_at_time(data, test_from="2021-06-01", validation_from="2021-03-01")
    >>> bool(split.validation.targets.times.max() < split.test.targets.times.min())
    True
    """
    interactions = as_interactions(interactions, "interactions")
    times = interactions.times
    if times is None:
        raise DataError("split_at_time needs a time column, and these interactions have none")
    for name, moment in (("test_from", test_from), ("validation_from", validation_from)):
        if isinstance(moment, str) and interactions.time_unit != "seconds":
            span = interactions.time_span()
            raise DataError(f"{name}: these times are bare numbers ({span}); give such a number")
    test_start = _moment("test_from", test_from)
    start = test_start if validation_from is None else _moment("validation_from", validation_from)
    if start > test_start:
        raise ConfigError(
            f"validation_from ({validation_from}) must not lie after test_from ({test_from})"
        )
    train, known = interactions.where(times < start), interactions.where(times < test_start)
    test_part, report = _later(known, interactions.where(times >= test_start), "test", test_from)
    validation_part, lines = None, Report()
    if validation_from is not None:
        between = interactions.where((times >= start) & (times < test_start))
        validation_part, lines = _later(train, between, "validation", validation_from)
    train, known = (one.of_users(one.counts() > 0) for one in (train, known))
    lines = (f"train: {_size(train)}", *lines, *report)
    return Split(train, validation_part, test_part, known, lines, known.remarks)


def hold_out(known: Interactions, later: Any, *, histories: Any = None) -> tuple[HeldOut, Report]:
    """Pair what is known of users with what they took later, to evaluate a model that is fitted already.

    Users and items are matched by id. Rows of `later` with an item that is not known, and users without a history, are
    left out; the report counts them.

    Parameters
    ----------
    known : Interactions
        What the model was fitted on, `model.train_data_`: the histories, and the items that a list can name.
    later : Interactions, data frame or path
        What is to be found; a frame or a file is read by the rules of the known ones.
    histories : Interactions, data frame, path or None, default None
        More that is known before `later`: histories of users that the model has never seen, and newer items of others,
        which come after the known ones, or by time where both have times.

    Returns
    -------
    held_out : HeldOut
        For `evaluate`.
    report : tuple of str
        What happened to whom.

    Examples
    --------
    >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12, shortest_history=10).interactions
    >>> split = loca.split_at_time(data, test_from="2021-06-01")
    >>> model = loca.EASE().fit(split.train)
    >>> held_out, report = loca.hold_out(model.train_data_, split.test.targets)
    >>> held_out.n_users == split.test.n_users
    True
    >>> bool(loca.evaluate(model, held_out).means()["ndcg@100"] == loca.evaluate(model, split.test).means()["ndcg@100"])
    True
    """
    later = read_later(later, known, "later", are_targets=True)
    check_ids(later, known, "later")
    if histories is not None:
        histories = read_later(histories, known, "histories")
        known = known.merged(histories, new_items=False)
    return _matched(known, later, "test")


@check_arguments
@keeps_remarks
def split_from(train: Any, test: Any, *, validation: Any = 0, keep: int = 1) -> Split:
    """Make a split of parts that are separate already, such as two files.

    Users and items are matched by id. The catalogue holds the items of all parts: a test item that nobody has in train
    counts as one that no model finds. Users without a history are left out of a part; `report` counts them.

    Parameters
    ----------
    train : Interactions, data frame, path or sparse matrix
        What models learn from.
    test : Interactions, data frame, path or sparse matrix
        What is to be found in the end; a frame or a file is read by the rules of `train`.
    validation : Interactions, data frame, path, sparse matrix or int, default 0
        What choices are made on, or how many of each user's last interactions of `train` are held out for it; 0 makes
        no validation part.
    keep : int, default 1
        How many a user with too few keeps for training where validation is held out of `train`.

    Returns
    -------
    Split
        Its test histories are train and validation together.

    Examples
    --------
    >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12, shortest_history=10).interactions
    >>> parts = loca.leave_last_out(data, test=2)
    >>> split = loca.split_from(parts.train, parts.test.targets, validation=1)
    >>> for line in split.report:
    ...     print(line)
    train: 548 interactions of 60 users
    validation: the last 1 of each user, 60 interactions of 60 users
    test: 120 interactions of 60 users
    """
    train = as_interactions(train, "train")
    test = _later_part(test, train, "test")
    if not isinstance(validation, int | np.integer):
        validation = _later_part(validation, train, "validation")
    parts = [train, test, *([validation] if isinstance(validation, Interactions) else [])]
    items = _all_ids(*(part.items for part in parts))
    train, validation_part, lines = over_items(train, items, "error"), None, Report()
    known = train
    if isinstance(validation, Interactions):
        validation_part, lines = _matched(train, validation, "validation")
        known = train.merged(validation)
    elif validation:
        _check_histories(train, keep, validation=(validation, 1))
        train, validation_part, lines = _hold(train, "validation", validation, keep)
    test_part, report = _matched(known, test, "test")
    lines = (f"train: {_size(train)}", *lines, *report)
    return Split(train, validation_part, test_part, known, lines, known.remarks)


def _later_part(part: Any, train: Interactions, name: str) -> Interactions:
    """Return a part of a split that is not trained on, read by the rules of the one that is."""
    if issparse(part):
        return as_interactions(part, name)
    return read_later(part, train, name, are_targets=name == "test")


def plain_lines(report: Iterable[str], remarks: Remarks) -> list[str]:
    """Return the lines of a report that are not told as remarks."""
    told = {one.text for one in remarks}
    return [line for line in report if line not in told]


def _note(lines: list[str], kind: str, what: str, line: str) -> None:
    """Add a line about a part of a split to a report; what concerns the figures on test is told as a remark."""
    line = f"{what}: {line}"
    lines.append(line)
    if what == "test":
        remark(kind, line)


def _matched(known: Interactions, later: Interactions, what: str) -> tuple[HeldOut, Report]:
    """The later items of the users who are known, matched by id, and what happened to whom."""
    targets = over_items(later, known.items, "skip")
    rows = known.users.rows(later.users.values.tolist(), missing=-1)
    has_history = (rows >= 0) & (np.append(known.counts(), 0)[rows] > 0)
    chosen = has_history & (targets.counts() > 0)
    if not chosen.any():
        unknown = f"{len(later) - len(targets):,} of {many(len(later), 'interaction')} have an unknown item"
        nobody = f"{int((~has_history).sum()):,} of {many(later.n_users, 'user')} have no history"
        raise DataError(f"{what}: nothing is left to find; {nobody}, {unknown}")
    histories = known.of_users(rows[chosen])
    held_out = HeldOut(histories, replace(targets.of_users(chosen), users=histories.users))
    lines = [f"{what}: {_size(held_out.targets)}"]
    if unknown_rows := len(later) - len(targets):
        count = len(np.unique(later.item_rows)) - len(np.unique(targets.item_rows))
        rows_of = many(unknown_rows, "interaction")
        text = f"{many(count, 'item')} unknown, left out ({rows_of})"
        _note(lines, "items-left-out", what, text)
    if newcomers := int((~has_history).sum()):
        lost = many(int(targets.counts()[~has_history].sum()), "interaction")
        text = f"{many(newcomers, 'user')} without a history, left out ({lost})"
        _note(lines, "users-left-out", what, text)
    return held_out, (*lines, *_about_targets(held_out, known, what))


def _all_ids(*maps: IdMap) -> IdMap:
    """The ids of several maps, those of the first as they are; all as text where some are text and some numbers."""
    kind, values = np.result_type(*(one.values for one in maps)), maps[0].values
    if kind.kind == "O":
        values = np.array([str(one) for one in values.tolist()], dtype=object)
    found = replace(maps[0], values=values.astype(kind))
    for other in maps[1:]:
        found, _ = found.merged(other)
    return found


def _hold(
    interactions: Interactions, what: str, requested: int, keep: int
) -> tuple[Interactions, HeldOut, Report]:
    """Return the rest, each user's last interactions as held out, and what happened to whom."""
    counts = interactions.counts()
    held_counts = np.clip(counts - keep, 0, requested)
    is_last = interactions.places() >= np.repeat(counts - held_counts, counts)
    rest, targets = interactions.where(~is_last), interactions.where(is_last)
    held_out = HeldOut(rest.of_users(held_counts > 0), targets.of_users(held_counts > 0))
    fewer, none = (
        int(((held_counts > 0) & (held_counts < requested)).sum()),
        int((held_counts == 0).sum()),
    )
    lines = [f"{what}: the last {requested} of each user, {_size(targets)}"]
    if fewer:
        lines.append(
            f"{what}: fewer than {requested} from {many(fewer, 'user')} with too few interactions"
        )
    if none:
        lines.append(
            f"{what}: none from {many(none, 'user')} with too few interactions, who stay in train"
        )
    return rest, held_out, (*lines, *_about_targets(held_out, rest, what))


def _fold_in(
    users: Interactions, train: Interactions, share: float, what: str
) -> tuple[HeldOut, Report]:
    counts = users.counts()
    # 0.8 · 5 is 4, though its floating-point product may lie a hair above.
    known = np.clip(np.ceil(share * counts - 1e-9).astype(np.int64), 1, counts - 1)
    is_known = users.places() < np.repeat(known, counts)
    held_out = HeldOut(users.where(is_known), users.where(~is_known))
    rest = f"{many(len(held_out.targets), 'interaction')} after it to be found"
    line = f"never seen in training; the oldest {share:.0%} of each history is known, {rest}"
    return held_out, (
        f"{what}: {many(users.n_users, 'user')} {line}",
        *_about_targets(held_out, train, what),
    )


def _later(
    histories: Interactions, later: Interactions, what: str, moment: float | str
) -> tuple[HeldOut, Report]:
    has_history, has_later = histories.counts() > 0, later.counts() > 0
    if not (has_history & has_later).any():
        times = np.concatenate(
            [part.times for part in (histories, later) if part.times is not None]
        )
        span = (
            f"the times run from {times.min()} to {times.max()}"
            if len(times)
            else "there are no times"
        )
        raise DataError(
            f"{what}: no user has interactions both before {moment} and from it on; {span}"
        )
    held_out = HeldOut(
        histories.of_users(has_history & has_later), later.of_users(has_history & has_later)
    )
    lines = [f"{what}: from {moment} on, {_size(held_out.targets)} with a history"]
    if newcomers := int((has_later & ~has_history).sum()):
        lost = f"left out ({len(later) - len(held_out.targets):,} interactions)"
        text = f"{many(newcomers, 'user')} with nothing before {moment} {lost}"
        _note(lines, "users-left-out", what, text)
    return held_out, (*lines, *_about_targets(held_out, histories, what))


def _about_targets(held_out: HeldOut, learned_from: Interactions, what: str) -> list[str]:
    """Say how many targets no list can hold, and how many no model can know."""
    # Looked up in the few targets, because sorting or hashing the many histories takes a minute at 20 million.
    targets, histories = np.sort(held_out.targets.pairs()), held_out.histories.pairs()
    places = np.minimum(np.searchsorted(targets, histories), len(targets) - 1)
    in_both = np.unique(histories[targets[places] == histories])
    seen = int(
        (
            np.searchsorted(targets, in_both, "right") - np.searchsorted(targets, in_both, "left")
        ).sum()
    )
    is_learned = np.zeros(held_out.n_items, dtype=bool)
    is_learned[learned_from.item_rows] = True
    unknown = int((~is_learned[held_out.targets.item_rows]).sum())
    lines: list[str] = []
    if seen:
        text = "of the targets already in their user's history, so that no list can name them"
        _note(lines, "targets-seen", what, f"{seen:,} {text}")
    if unknown:
        text = (
            "of the targets with items that nobody has in training, so that no model can know them"
        )
        _note(lines, "targets-unknown", what, f"{unknown:,} {text}")
    return lines


def _size(interactions: Interactions) -> str:
    return f"{many(len(interactions), 'interaction')} of {many(int((interactions.counts() > 0).sum()), 'user')}"


def _check_histories(interactions: Interactions, keep: int, **held_out: tuple[int, int]) -> None:
    """Refuse counts, each given with the smallest one that will do, that do not fit the histories."""
    for name, (count, smallest) in {**held_out, "keep": (keep, 1)}.items():
        if not isinstance(count, int | np.integer) or isinstance(count, bool) or count < smallest:
            raise ConfigError(
                f"{name}: expected a whole number of at least {smallest}, found {count!r}"
            )
    longest = int(interactions.counts().max(initial=0))
    for name, (count, _) in held_out.items():
        if count > longest:
            raise DataError(
                f"{name}={count} is larger than every history: the longest has {longest} interactions"
            )
    if longest <= keep:
        raise DataError(
            f"nothing can be held out: keep={keep}, and the longest history has {longest} interactions"
        )


def _user_count(name: str, value: float, n_users: int, smallest: int) -> int:
    """Return a number of users from a count, or from a share where the value is below 1."""
    if not math.isfinite(value) or value < 0 or (value >= 1 and value != int(value)):
        raise ConfigError(
            f"{name}: expected a number of users, or a share below 1, found {value!r}"
        )
    count = round(value * n_users) if value < 1 else int(value)
    if count < smallest or (value > 0 and count == 0):
        raise ConfigError(f"{name}: {value!r} of {n_users} users is nobody")
    return count


def _moment(name: str, value: float | str) -> float:
    """Return a number as it is, or an ISO date as seconds since 1970 (UTC unless it says otherwise)."""
    if not isinstance(value, str):
        return value
    try:
        moment = datetime.fromisoformat(value)
    except ValueError as error:
        raise ConfigError(f"{name}: expected a number or an ISO date, found {value!r}") from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
