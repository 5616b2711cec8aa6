"""The metrics against ranx, and against cases worked by hand."""

from __future__ import annotations

import importlib
import math

import numpy as np
import pytest
from scipy.sparse import csr_array

from loca.errors import ConfigError, DataError
from loca.evaluation.metrics import DEFAULT_METRIC, Metric, check_lengths, find_hits, metric_values
from loca.evaluation.top_n import rank_top_n

METRICS = ("recall", "ndcg", "map", "precision", "hit_rate", "mrr")


@pytest.fixture(scope="module")
def ranx():
    """ranx as plain Python: the same numbers, without half a minute of compiling."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NUMBA_DISABLE_JIT", "1")
        return importlib.import_module("ranx")


def by_ranx(ranx, scores, hidden, targets, lengths):
    """ranx's values of the full rankings, ties broken by the lower item before ranx sees them."""
    judged, ranked = {}, {}
    for user, row in enumerate(scores.tolist()):
        unseen = [item for item in range(len(row)) if not hidden[user, item]]
        order = sorted(unseen, key=lambda item: (-row[item], item))
        judged[f"u{user:04}"] = {f"i{item}": 1 for item in np.flatnonzero(targets[user])}
        # A stranger at the end keeps the list of a user without any unseen item from being empty.
        ranked[f"u{user:04}"] = {
            f"i{item}": float(-place) for place, item in enumerate([*order, "stranger"])
        }
    names = [f"{metric}@{n}" for metric in METRICS for n in lengths]
    return ranx.evaluate(ranx.Qrels(judged), ranx.Run(ranked), names, return_mean=False)


def by_loca(scores, hidden, targets, lengths):
    wanted = csr_array(targets.astype(np.float32))
    item_rows, _ = rank_top_n(scores, csr_array(hidden.astype(np.float32)), max(lengths))
    return metric_values(find_hits(item_rows, wanted), np.diff(wanted.indptr), lengths)


def draw_case(kind, rng):
    users, items = 40, 30
    scores = rng.standard_normal((users, items))
    hidden = rng.random((users, items)) < 0.3
    targets = rng.random((users, items)) < 0.15
    if kind == "ties":
        scores = rng.integers(0, 3, (users, items)).astype(float)
    elif kind == "all scores equal":
        scores = np.zeros((users, items))
    elif kind == "short lists":
        hidden = rng.random((users, items)) < 0.9
    elif kind == "nothing left to list":
        hidden[:] = True
    elif kind == "no hits":
        targets = hidden.copy()
    elif kind == "one item":
        scores, hidden, targets = scores[:, :1], hidden[:, :1], np.ones((users, 1), bool)
    elif kind == "more targets than places":
        targets = rng.random((users, items)) < 0.9
    elif kind == "every target first":
        scores = targets * 5.0 + rng.random((users, items))
        hidden &= ~targets
    targets[np.arange(users), rng.integers(0, targets.shape[1], users)] = True
    return scores, hidden, targets


@pytest.mark.filterwarnings("ignore::Warning")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "kind",
    [
        "random",
        "ties",
        "all scores equal",
        "short lists",
        "nothing left to list",
        "no hits",
        "one item",
        "more targets than places",
        "every target first",
    ],
)
def test_every_metric_equals_that_of_ranx(ranx, kind, seed):
    case = draw_case(kind, np.random.default_rng(seed))
    lengths = (1, 2, 5, 10, 100)  # 100 is more than the catalogue holds
    ours, theirs = by_loca(*case, lengths), by_ranx(ranx, *case, lengths)
    assert set(ours) == set(theirs)
    for name in theirs:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=0, atol=1e-9, err_msg=name)


def test_a_list_worked_by_hand():
    # Places 2 and 4 of four are hits; three items are held out.
    hits = np.array([[False, True, False, True]])
    values = metric_values(hits, np.array([3]), (2, 4))
    ideal = {2: 1 + 1 / math.log2(3), 4: 1 + 1 / math.log2(3) + 1 / 2}
    expected = {
        "recall@2": 1 / 3,
        "recall@4": 2 / 3,
        "ndcg@2": (1 / math.log2(3)) / ideal[2],
        "ndcg@4": (1 / math.log2(3) + 1 / math.log2(5)) / ideal[4],
        "map@2": (1 / 2) / 3,
        "map@4": (1 / 2 + 2 / 4) / 3,
        "precision@2": 1 / 2,
        "precision@4": 2 / 4,
        "hit_rate@2": 1.0,
        "hit_rate@4": 1.0,
        "mrr@2": 1 / 2,
        "mrr@4": 1 / 2,
    }
    assert {name: value[0] for name, value in values.items()} == pytest.approx(expected, abs=1e-12)


def test_recall_divides_by_all_held_out_items_even_when_they_exceed_the_list():
    values = metric_values(np.ones((1, 2), bool), np.array([10]), (2,))
    assert values["recall@2"][0] == pytest.approx(0.2)
    assert values["map@2"][0] == pytest.approx(0.2)
    assert values["ndcg@2"][0] == pytest.approx(1.0)


def test_an_empty_place_is_never_a_hit():
    # User 0's last item is a target; user 1's empty place must not be taken for it.
    targets = csr_array(np.array([[0, 0, 1], [1, 0, 0]]))
    assert find_hits(np.array([[0, -1], [-1, -1]]), targets).tolist() == [
        [False, False],
        [False, False],
    ]
    assert find_hits(np.array([[2, -1], [1, 0]]), targets).tolist() == [
        [True, False],
        [False, True],
    ]


def test_targets_may_be_unsorted_repeated_or_missing():
    unsorted = csr_array((np.ones(3), [2, 0, 2], [0, 3, 3]), shape=(2, 3))
    assert find_hits(np.array([[0, 1], [2, 0]]), unsorted).tolist() == [
        [True, False],
        [False, False],
    ]
    assert unsorted.indices.tolist() == [2, 0, 2]
    assert not find_hits(np.array([[0, 1]]), csr_array((1, 3))).any()


def test_a_user_without_a_held_out_item_is_refused():
    with pytest.raises(DataError, match="at least one held-out item"):
        metric_values(np.zeros((2, 3), bool), np.array([1, 0]), (3,))
    with pytest.raises(DataError, match="at least one held-out item"):
        metric_values(np.zeros((2, 3), bool), np.array([1]), (3,))


def test_list_lengths_are_sorted_and_impossible_ones_refused():
    assert check_lengths([100, 50, np.int64(50)]) == (50, 100)
    for wrong in ((), (0,), (10, 2.5), ("10",)):
        with pytest.raises(ConfigError, match="at: expected list lengths of 1 or more"):
            check_lengths(wrong)


def test_a_metric_is_read_as_people_write_it():
    assert Metric.of("ndcg@100") == DEFAULT_METRIC
    assert Metric.of(" Recall@20 ") == Metric("recall", 20)
    assert Metric.of(DEFAULT_METRIC) is DEFAULT_METRIC
    texts = [(str(one), one.label) for one in (Metric("map", 5), Metric("hit_rate", 1))]
    assert texts == [("map@5", "MAP@5"), ("hit_rate@1", "Hit rate@1")]


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("ndgc@10", "unknown metric 'ndgc'; did you mean 'ndcg'"),
        ("ndcg", "metric: expected a name and a length such as 'ndcg@10' or 'recall@20', found 'ndcg'"),
        ("ndcg@ten", "metric: expected a name and a length .*found 'ndcg@ten'"),
        ("ndcg@0", "k: expected a whole number ≥ 1, found 0"),
        (10, "metric: expected a name and a length .*found 10"),
        (None, "metric: expected a name and a length .*found None"),
    ],
)  # fmt: skip
def test_what_is_no_metric_is_refused_with_what_was_expected(written, problem):
    with pytest.raises(ConfigError, match=problem):
        Metric.of(written)


def test_a_metric_of_ones_own_is_a_name_a_length_and_a_function():
    own = Metric("second", 2, lambda hits, target_counts, k: hits[:, k - 1].astype(float))
    hits = np.array([[False, True, True], [True, False, True]])
    assert own(hits, np.array([1, 2])).tolist() == [1.0, 0.0]
    assert (str(own), own.label) == ("second@2", "second@2")
    with pytest.raises(ConfigError, match="unknown metric 'second'"):
        Metric("second", 2)
