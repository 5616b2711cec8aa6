"""Compare a model's lists with held-out items: values per user, means, intervals, coverage, novelty."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.data.interactions import Interactions
from loca.data.later import is_table
from loca.data.recency import Recency
from loca.data.splits import HeldOut, Split, hold_out
from loca.errors import ConfigError, DataError, check_arguments
from loca.evaluation.metrics import (
    DEFAULT_METRIC,
    Metric,
    Values,
    check_lengths,
    find_hits,
    metric_values,
)
from loca.evaluation.significance import bootstrap_intervals
from loca.evaluation.top_n import BLOCK_BYTES, AnyScores, ItemRows, block_rows, rank_top_n
from loca.progress import bar
from loca.remarks import Remarks, keeps_remarks, remark, shown_remarks
from loca.text_table import Tabular, TextTable

Scores = npt.NDArray[Any]
UserRows = npt.NDArray[np.int64]


class Scorer(Protocol):
    """Score all items for any histories; all that an evaluation needs of a model."""

    def score(self, histories: csr_array) -> Scores: ...


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation(Tabular):
    """Hold how well a model found the held-out items; prints as a table.

    `evaluate` makes it. Users without a held-out item are not among its users.

    Parameters
    ----------
    at : tuple of int
        The list lengths N.
    users : ndarray
        The ids of the users.
    lists : ndarray of int32
        Users × the longest N, or all items where they are fewer: their item rows, best first, −1 where a list is short.
    values : dict of str to ndarray of float64
        `values["ndcg@100"]` holds one value per user, in the order of `users`; likewise `recall`, `map`,
        `precision`, `hit_rate` and `mrr`, at each N.
    catalogue_coverage : dict of int to float
        By N, the share of all items that stand in any list.
    novelty : dict of int to float
        By N, the mean of −log2(share of the users that have the item) over all listed items; an item that nobody has
        counts as if one user had it.
    item_count : int
        Number of items in the catalogue.
    seed : int, default 0
        Seed of the intervals.
    remarks : tuple of Remark, default ()
        What changes the meaning of the figures.

    Examples
    --------
    >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12, shortest_history=10).interactions
    >>> split = loca.leave_last_out(data, test=2)
    >>> found = loca.evaluate(loca.EASE().fit(split.train), split.test, at=[5])
    >>> found.lists.shape
    (60, 5)
    >>> low, high = found.intervals()["recall@5"]
    >>> low <= found.means()["recall@5"] <= high
    True
    """

    at: tuple[int, ...]
    users: npt.NDArray[Any]
    lists: ItemRows
    values: dict[str, Values]
    catalogue_coverage: dict[int, float]
    novelty: dict[int, float]
    item_count: int
    seed: int = 0
    remarks: Remarks = ()

    def means(self) -> dict[str, float]:
        """Return the mean of each metric over the users.

        Returns
        -------
        dict of str to float
            By names such as `"ndcg@100"`.
        """
        return {name: float(values.mean()) for name, values in self.values.items()}

    def intervals(self) -> dict[str, tuple[float, float]]:
        """Return the 95 % bootstrap interval of each mean, from 1000 resamples of the users.

        Returns
        -------
        dict of str to (float, float)
            The low and the high end, by names such as `"ndcg@100"`.
        """
        return dict(zip(self.values, map(tuple, self._bounds.tolist()), strict=True))

    @cached_property
    def _bounds(self) -> npt.NDArray[np.float64]:
        return bootstrap_intervals(np.column_stack(list(self.values.values())), seed=self.seed)

    def to_json(self) -> dict[str, Any]:
        """Return the number of users and all figures as JSON values.

        Returns
        -------
        dict
            `metrics` by names such as `"ndcg@100"`, each with `mean`, `low` and `high`.
        """
        means = self.means()
        metrics = {
            name: {"mean": means[name], "low": low, "high": high}
            for name, (low, high) in self.intervals().items()
        }
        return {
            "users": len(self.users),
            "metrics": metrics,
            "catalogue_coverage": {str(n): share for n, share in self.catalogue_coverage.items()},
            "novelty": {str(n): bits for n, bits in self.novelty.items()},
        }

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return the values of every user as a table.

        Returns
        -------
        dict of str to ndarray
            The ids under `user`, and every metric under its name, such as `ndcg@100`.
        """
        return {"user": self.users, **self.values}

    def shown(self) -> list[str | TextTable]:
        """Return what a person reads: means with intervals, coverage and novelty.

        Returns
        -------
        list of str or TextTable
        """
        means, intervals = self.means(), self.intervals()
        rows: dict[str, list[str]] = {}
        for metric in dict.fromkeys(name.rpartition("@")[0] for name in intervals):
            rows[metric] = []
            for name in (f"{metric}@{n}" for n in self.at):
                low, high = intervals.get(name, (0.0, 0.0))
                text = f"{means[name]:.4f} [{low:.4f}, {high:.4f}]" if name in means else ""
                rows[metric].append(text)
        rows["coverage"] = [f"{self.catalogue_coverage[n]:.4f}" for n in self.at]
        rows["novelty"] = [f"{self.novelty[n]:.2f}" for n in self.at]
        title = f"{len(self.users):,} users, {self.item_count:,} items; means with 95 % intervals"
        header = "", *(f"@{n}" for n in self.at)
        return [
            title,
            TextTable(header, tuple((name, *texts) for name, texts in rows.items()), len(header)),
            *shown_remarks(self.remarks),
        ]


@check_arguments
@keeps_remarks
def evaluate(
    model: Scorer,
    held_out: Any,
    *,
    at: Iterable[int] = (50, 100),
    metrics: Iterable[Metric | str] = (),
    recency: Recency | None = None,
    seed: int = 0,
) -> Evaluation:
    """Rank the items for held-out users and compute metrics of the lists.

    Items in a user's history are hidden.

    Parameters
    ----------
    model : Recommender
        A fitted model, or anything else with a method `score`.
    held_out : HeldOut, Interactions, data frame or path
        The histories that it scores from, and the targets; the items are those of the fit. Interactions,
        a frame or a file are what its users took later, see `hold_out`.
    at : iterable of int, default (50, 100)
        The list lengths N.
    metrics : iterable of Metric or str, default ()
        What is measured beside, such as a `Metric` with a function of your own; its length is one of N.
    recency : Recency or None, default None
        How the histories are weighted. None takes the recency of `held_out`, or where it has none that of the
        interactions that the model was fitted on.
    seed : int, default 0
        Seed of the bootstrap intervals.

    Returns
    -------
    Evaluation
        Values per user and their means; prints as a table.

    Examples
    --------
    >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12, shortest_history=10).interactions
    >>> split = loca.leave_last_out(data, test=2)
    >>> found = loca.evaluate(loca.Popularity().fit(split.train), split.test, at=[5])
    >>> sorted(found.values)
    ['hit_rate@5', 'map@5', 'mrr@5', 'ndcg@5', 'precision@5', 'recall@5']
    >>> found.values["ndcg@5"].shape
    (60,)
    """
    data = getattr(model, "train_data_", None)
    check_scorer(model)
    held_out = _as_held_out(held_out, data)
    if data is not None and not np.array_equal(data.items.values, held_out.histories.items.values):
        raise DataError(
            f"the model's {data.n_items} items are not the held-out data's {held_out.n_items} in the same "
            "order; split the data first, then fit on its train part"
        )
    _remark_leak(data, held_out)
    _remark_older_targets(held_out)
    weighed = as_known(model, held_out) if recency is None else held_out.with_recency(recency)
    return measure(
        lambda user_rows: model.score(weighed.history_matrix[user_rows]),
        weighed,
        at=at,
        metrics=[Metric.of(metric) for metric in metrics],
        seed=seed,
    )


def _as_held_out(given: Any, data: Interactions | None) -> HeldOut:
    """Return held-out data as they are, and anything else as what the users of a fit took later."""
    if isinstance(given, HeldOut):
        return given
    if isinstance(given, Split):
        raise DataError("held_out: expected a part of a split, such as split.test, found a Split")
    if not (isinstance(given, Interactions | str | Path) or is_table(given)):
        expected = "a HeldOut such as split.test, Interactions, a data frame or a path"
        raise DataError(f"held_out: expected {expected}, found {type(given).__name__}")
    if data is None:
        problem = "this model was fitted on a bare matrix and knows no ids"
        raise DataError(f"held_out: {problem}; give a HeldOut")
    return hold_out(data, given)[0]


def _remark_leak(data: Interactions | None, held_out: HeldOut) -> None:
    """Tell which share of the targets the model was fitted on; repeats of a user's own history are none."""
    if data is None:
        return
    targets = held_out.targets
    if targets.users is data.users or np.array_equal(targets.users.values, data.users.values):
        rows = np.arange(data.n_users)
    else:
        rows = data.users.rows(targets.users.values.tolist(), missing=-1)
    owners = rows[targets.user_rows()]
    pairs = owners * data.n_items + targets.item_rows
    is_history = np.isin(targets.pairs(), held_out.histories.pairs())
    is_learned = (owners >= 0) & ~is_history & np.isin(pairs, data.pairs())
    count = int(is_learned.sum())
    if count:
        share = f"{100 * count / len(targets):.3g} % of the targets ({count:,})"
        remark(
            "leak",
            f"the model was fitted on {share}, so that it is asked for what it has seen; fit it on the "
            "train part of a split, or evaluate it on later interactions",
        )


def _remark_older_targets(held_out: HeldOut) -> None:
    """Tell which share of the targets is older than the newest interaction of its user's history."""
    histories, targets = held_out.histories, held_out.targets
    if histories.times is None or targets.times is None:
        return
    if histories.time_unit != targets.time_unit:
        return
    has_history = histories.counts() > 0
    newest = np.full(histories.n_users, -np.inf)
    newest[has_history] = histories.times[histories.offsets[1:][has_history] - 1]
    count = int((targets.times < newest[targets.user_rows()]).sum())
    if count:
        share = f"{100 * count / len(targets):.3g} % of the targets ({count:,})"
        remark(
            "targets-older",
            f"{share} are older than the newest interaction of their user's history: this is no forecast; "
            "split by time, or hold out the last items of each user",
        )


def check_scorer(model: object) -> None:
    """Refuse what is no model: a class, or anything that cannot score."""
    if isinstance(model, type):
        raise ConfigError(
            f"model: expected a fitted model, found the class {model.__name__}; write {model.__name__}()"
        )
    if not hasattr(model, "score") and hasattr(model, "model"):
        kind = type(model).__name__
        raise ConfigError(
            f"model: expected a fitted model, found a {kind}; give its model, found.model"
        )
    if not hasattr(model, "score"):
        raise ConfigError(f"model: expected a fitted model, found {type(model).__name__}")


def as_known(model: object, held_out: HeldOut) -> HeldOut:
    """Weight the histories as the interactions that the model knows, where they have no recency themselves."""
    return held_out.weighed_as(getattr(model, "train_data_", None))


def measure(
    score_users: Callable[[UserRows], Scores],
    held_out: HeldOut,
    *,
    at: Iterable[int] = (50, 100),
    metrics: Sequence[Metric] = (),
    seed: int = 0,
    what: str = "ranking users",
    block_bytes: int = BLOCK_BYTES,
) -> Evaluation:
    """The evaluation of `score_users(user_rows)`: those users' scores, users × items, block by block.

    A target that is in the user's own history can never be found, yet it counts among the targets. A target that
    occurs twice is one hit; `held_out.target_counts` says by how many targets the metrics are divided.
    """
    lengths = check_lengths([*check_lengths(at), *(metric.k for metric in metrics)])
    item_count = held_out.n_items
    user_rows = np.flatnonzero(held_out.target_counts)
    longest = min(lengths[-1], item_count)  # longer lists have empty places alone
    lists = np.full((len(user_rows), longest), -1, np.int32)
    parts: list[dict[str, Values]] = []
    with bar(what, len(user_rows)) as progress:
        for places in _blocks(len(user_rows), item_count, block_bytes):
            block = user_rows[places]
            lists[places] = _list_items(score_users(block), held_out.history_matrix[block], longest)
            hits = find_hits(lists[places], held_out.target_matrix[block])
            counts = held_out.target_counts[block]
            own = {str(metric): metric(hits, counts) for metric in metrics}
            parts.append({**metric_values(hits, counts, lengths), **own})
            progress.advance(len(block))
    holders = np.bincount(held_out.history_matrix.indices, minlength=item_count)
    information = -np.log2(np.maximum(holders, 1) / held_out.n_users)
    coverage, novelty = {}, {}
    for n in lengths:
        # Counted per item, so that no second array of users × N numbers is needed; −1 falls into place 0.
        times = np.bincount(lists[:, :n].ravel() + 1, minlength=item_count + 1)[1:]
        coverage[n] = float(np.count_nonzero(times) / item_count)
        novelty[n] = float(times @ information / max(times.sum(), 1))
    values = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    users = held_out.histories.users.values[user_rows]
    return Evaluation(lengths, users, lists, values, coverage, novelty, item_count, seed)


def mean_value(
    score: Callable[[csr_array], AnyScores],
    held_out: HeldOut,
    metric: Metric = DEFAULT_METRIC,
    *,
    block_bytes: int = BLOCK_BYTES,
) -> float:
    """Return the mean value of `score(histories)` over the users with a held-out item, for early stopping."""
    matrix = held_out.history_matrix
    return mean_values(
        lambda users: (score(csr_array(matrix[users])),), held_out, metric, block_bytes=block_bytes
    )[0]


def mean_values(
    score: Callable[[UserRows], Iterable[AnyScores]],
    held_out: HeldOut,
    metric: Metric = DEFAULT_METRIC,
    *,
    block_bytes: int = BLOCK_BYTES,
) -> list[float]:
    """Return the mean value of each score array that `score(user_rows)` gives, in one pass over the users.

    Arrays that are made one after the other (a generator) take the memory of one. `block_bytes` bounds what a block
    of users may take, for scores that lie on a device with memory of its own.
    """
    user_rows = np.flatnonzero(held_out.target_counts)
    sums: list[float] = []
    for places in _blocks(len(user_rows), held_out.n_items, block_bytes):
        values = _values_of(held_out, user_rows[places], metric)
        block_sums = [float(values(scores).sum()) for scores in score(user_rows[places])]
        sums = [
            total + part
            for total, part in zip(sums or [0.0] * len(block_sums), block_sums, strict=True)
        ]
    return [total / len(user_rows) for total in sums]


def value_of_each(
    score_places: Callable[[UserRows], AnyScores],
    held_out: HeldOut,
    user_rows: UserRows,
    metric: Metric,
    *,
    block_bytes: int,
) -> Values:
    """Return the value of each of the `user_rows`, in which a user may stand several times; all need a held-out item.

    `score_places(places)` scores those users that stand at some places of `user_rows`.
    """
    parts = [np.empty(0)]
    for places in _blocks(len(user_rows), held_out.n_items, block_bytes):
        parts.append(_values_of(held_out, user_rows[places], metric)(score_places(places)))
    return np.concatenate(parts)


def _values_of(
    held_out: HeldOut, user_rows: UserRows, metric: Metric
) -> Callable[[AnyScores], Values]:
    """Return a function from the scores of the `user_rows` to their values; the items of their histories are hidden."""
    histories, targets = held_out.history_matrix[user_rows], held_out.target_matrix[user_rows]
    counts = held_out.target_counts[user_rows]

    def values(scores: AnyScores) -> Values:
        return metric(find_hits(_list_items(scores, histories, metric.k), targets), counts)

    return values


def _list_items(scores: AnyScores, histories: csr_array, n: int) -> ItemRows:
    if tuple(scores.shape) != histories.shape:
        users, items = histories.shape
        raise DataError(
            f"scores: expected {users} users × {items} items, found shape {tuple(scores.shape)}"
        )
    return rank_top_n(scores, histories, n)[0]


def _blocks(count: int, item_count: int, block_bytes: int) -> Iterator[UserRows]:
    """The places of some users, block by block."""
    size = block_rows(item_count, budget=block_bytes)
    return (np.arange(start, min(start + size, count)) for start in range(0, count, size))
