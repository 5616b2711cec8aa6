"""Evaluations of planted answers: users with and without targets, blocks, intervals, coverage, novelty, stopping."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from loca.data.id_map import IdMap
from loca.data.interactions import Interactions
from loca.data.recency import Recency
from loca.data.splits import HeldOut
from loca.errors import ConfigError, DataError
from loca.evaluation.evaluate import evaluate, mean_value, mean_values, measure
from loca.evaluation.metrics import Metric, metric_values


def interactions(lists, item_count, users=None):
    ids = users if users is not None else [f"user-{row}" for row in range(len(lists))]
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in lists])])
    items = IdMap(np.array([f"item-{row}" for row in range(item_count)], dtype=object), "item")
    rows = np.concatenate([np.asarray(one, np.int32) for one in lists])
    return Interactions(IdMap(np.array(ids, dtype=object), "user"), items, offsets, rows)


def held_out(histories, targets, item_count):
    return HeldOut(interactions(histories, item_count), interactions(targets, item_count))


class Fixed:
    """Scores a history by one fixed row of item scores plus the weights of the history itself."""

    train_data_ = None

    def __init__(self, scores, own=0.0):
        self.scores, self.own = np.asarray(scores, np.float32), own

    def score(self, histories):
        return self.scores + self.own * histories.toarray()


def random_case(user_count=60, item_count=30, seed=0):
    rng = np.random.default_rng(seed)
    drawn = [rng.permutation(item_count) for _ in range(user_count)]
    histories = [one[: rng.integers(1, 12)] for one in drawn]
    targets = [one[12 : 12 + rng.integers(0, 5)] for one in drawn]
    return held_out(histories, targets, item_count), Fixed(rng.random(item_count))


def test_a_small_evaluation_worked_by_hand():
    # Items by score: 0 1 2 3 4. User 0 has seen 0, so the list is 1 2 3; user 1 has seen 1, the list is 0 2 3.
    asked = held_out([[0], [1]], [[2, 4], [3]], 5)
    found = evaluate(Fixed([5, 4, 3, 2, 1]), asked, at=(1, 3))
    assert found.lists.tolist() == [[1, 2, 3], [0, 2, 3]]
    assert found.users.tolist() == ["user-0", "user-1"]
    assert found.values["recall@3"].tolist() == [0.5, 1.0]
    assert found.values["recall@1"].tolist() == [0.0, 0.0]
    assert found.values["mrr@3"].tolist() == [1 / 2, 1 / 3]
    ideal = 1 + 1 / math.log2(3)
    assert found.values["ndcg@3"].tolist() == pytest.approx([1 / math.log2(3) / ideal, 1 / 2])
    assert found.means()["recall@3"] == 0.75
    assert found.catalogue_coverage == {1: 2 / 5, 3: 4 / 5}
    # Items 0 and 1 are known to one of two users (1 bit), the others to nobody: counted as one user.
    assert found.novelty == {1: 1.0, 3: 1.0}


def test_users_without_a_held_out_item_are_left_out_and_do_not_lower_the_means():
    asked = held_out([[0], [1], [2]], [[3], [], [4]], 5)
    found = evaluate(Fixed([0, 0, 0, 9, 8]), asked, at=(2,))
    assert found.users.tolist() == ["user-0", "user-2"]
    assert found.means()["hit_rate@2"] == 1.0
    assert len(found.lists) == 2


def test_a_target_in_the_history_is_never_found_yet_counts_as_held_out():
    # Item 0 is history and target; a repeated target is one item to find.
    asked = held_out([[0]], [[0, 1, 1]], 3)
    found = evaluate(Fixed([9, 8, 7]), asked, at=(2,))
    assert found.lists.tolist() == [[1, 2]]
    assert found.values["recall@2"].tolist() == [0.5]
    assert found.values["ndcg@2"].tolist() == pytest.approx([1 / (1 + 1 / math.log2(3))])


def test_where_repeats_count_metrics_are_divided_by_all_targets_and_a_hit_counts_once():
    # User 0 has three targets, of which item 1 stands twice and is found; user 1 has one target, found in place 2.
    asked = replace(held_out([[0], [3]], [[0, 1, 1], [2]], 4), count_repeats=True)
    found = evaluate(Fixed([9, 8, 7, 6]), asked, at=(3,))
    assert found.lists[:, :2].tolist() == [[1, 2], [0, 1]]
    assert found.values["recall@3"].tolist() == [1 / 3, 1]
    ideal = 1 + 1 / math.log2(3) + 1 / math.log2(4)
    assert found.values["ndcg@3"].tolist() == pytest.approx([1 / ideal, 1 / math.log2(4)])
    assert mean_value(Fixed([9, 8, 7, 6]).score, asked, Metric("ndcg", 3)) == pytest.approx(
        found.means()["ndcg@3"], rel=1e-12
    )
    of_one = asked.of_users(np.array([0]))
    assert of_one.target_counts.tolist() == [3]
    assert of_one.with_recency(None).target_counts.tolist() == [3]


def test_blocks_of_any_size_give_the_same_evaluation():
    asked, model = random_case()
    whole = evaluate(model, asked, at=(3, 10))
    quick = mean_value(model.score, asked, Metric("ndcg", 10))
    for budget in (1, 30 * 12 * 7):
        parts = measure(
            lambda rows: model.score(asked.history_matrix[rows]),
            asked,
            at=(3, 10),
            block_bytes=budget,
        )
        np.testing.assert_array_equal(whole.lists, parts.lists)
        for name, values in whole.values.items():
            np.testing.assert_array_equal(values, parts.values[name])
        assert mean_value(
            model.score, asked, Metric("ndcg", 10), block_bytes=budget
        ) == pytest.approx(quick, rel=1e-12)


def test_values_and_lists_agree_with_a_plain_loop_over_the_users():
    asked, model = random_case(seed=4)
    found = evaluate(model, asked, at=(4, 9))
    row_of = {user: row for row, user in enumerate(asked.histories.users.values)}
    for place, user in enumerate(found.users):
        seen = set(asked.histories.items_of(row_of[user]).tolist())
        wanted = set(asked.targets.items_of(row_of[user]).tolist())
        ranked = sorted(
            (item for item in range(30) if item not in seen), key=lambda item: -model.scores[item]
        )
        assert found.lists[place].tolist() == ranked[:9]
        hits = np.array([[item in wanted for item in ranked[:9]]])
        expected = metric_values(hits, np.array([len(wanted)]), (4, 9))
        for name, value in expected.items():
            assert found.values[name][place] == pytest.approx(value[0])
    assert len(found.users) == sum(len(asked.targets.items_of(row)) > 0 for row in range(60))


def test_early_stopping_sees_the_figure_that_the_evaluation_prints():
    asked, model = random_case(seed=1)
    means = [
        evaluate(one, asked, at=(5,)).means()["ndcg@5"] for one in (model, Fixed(-model.scores))
    ]
    assert means[0] != means[1]
    assert mean_value(model.score, asked, Metric("ndcg", 5)) == pytest.approx(means[0], rel=1e-12)
    both = mean_values(
        lambda rows: (s * model.score(asked.history_matrix[rows]) for s in (1, -1)),
        asked,
        Metric("ndcg", 5),
    )
    assert both == pytest.approx(means, rel=1e-12)


def test_scores_may_come_from_user_rows_instead_of_histories():
    asked, _ = random_case(seed=2)
    table = np.random.default_rng(0).random((60, 30))
    measured = measure(lambda user_rows: table[user_rows], asked, at=(5,), what="blending")
    with_targets = np.flatnonzero(asked.targets.counts())
    assert measured.users.tolist() == asked.histories.users.values[with_targets].tolist()
    expected = []
    for row in with_targets:
        scores = table[row].copy()
        scores[asked.histories.items_of(row)] = -np.inf
        hits = np.isin(np.argsort(-scores)[:5], asked.targets.items_of(row))[None]
        expected.append(
            metric_values(hits, asked.targets.counts()[row : row + 1], (5,))["recall@5"][0]
        )
    assert len(set(expected)) > 2
    assert measured.values["recall@5"].tolist() == expected


def test_recency_reaches_the_model_and_replaces_that_of_the_data():
    class Neighbour:
        """Scores the item after each history item by that one's weight: the newest decides."""

        def score(self, histories):
            return np.roll(histories.toarray(), 1, axis=1)

    asked = held_out([[0, 2, 4]], [[5]], 7)
    half, steep = Recency.per_position(0.5), Recency.per_position(0.01)
    assert evaluate(Neighbour(), asked, at=(3,)).lists.tolist() == [[1, 3, 5]]
    assert evaluate(Neighbour(), asked, at=(3,), recency=half).lists.tolist() == [[5, 3, 1]]
    assert evaluate(Neighbour(), asked.with_recency(half), at=(3,)).lists.tolist() == [[5, 3, 1]]
    weights = []
    evaluate(Recorder(weights), asked.with_recency(half), at=(3,), recency=steep)
    assert sorted(weights[0].tolist()) == pytest.approx([0.0001, 0.01, 1.0])


class Recorder:
    """Keeps the weights of the histories that it is asked about."""

    def __init__(self, weights):
        self.weights = weights

    def score(self, histories):
        self.weights.append(histories.data)
        return np.zeros(histories.shape)


def test_intervals_hold_the_means_and_come_again_with_the_same_seed():
    asked, model = random_case(seed=3)
    one, same, other = (evaluate(model, asked, at=(5, 10), seed=seed) for seed in (1, 1, 2))
    for name, (low, high) in one.intervals().items():
        assert low < one.means()[name] < high
    assert one.intervals() == same.intervals()
    assert one.intervals() != other.intervals()
    spread = one.values["recall@10"].std() / math.sqrt(len(one.users))
    low, high = one.intervals()["recall@10"]
    assert high - low == pytest.approx(2 * 1.96 * spread, rel=0.15)


def test_novelty_is_finite_for_items_that_nobody_has_and_higher_for_rarer_ones():
    asked = held_out([[0, 1], [0], [0], [0]], [[2], [2], [2], [2]], 4)
    popular = evaluate(Fixed([4, 3, 2, 1]), asked, at=(1,))
    assert popular.lists[:, 0].tolist() == [2, 1, 1, 1]
    assert popular.novelty[1] == pytest.approx(
        2.0
    )  # item 1: one of four users; item 2: as if one of four
    with_seen = held_out([[0, 1], [0], [1], [1]], [[2], [2], [2], [2]], 4)
    assert evaluate(Fixed([4, 3, 2, 1]), with_seen, at=(1,)).novelty[1] == pytest.approx(
        (-math.log2(1 / 4) - math.log2(3 / 4) - 2 * math.log2(2 / 4)) / 4
    )


def test_short_lists_are_marked_and_do_not_count_as_novel_or_covered():
    asked = held_out([[0, 1]], [[2]], 3)
    found = evaluate(Fixed([1, 1, 1]), asked, at=(5,))
    assert found.lists.tolist() == [[2, -1, -1]], "longer than all items no list can be"
    assert found.catalogue_coverage[5] == pytest.approx(1 / 3)
    assert found.novelty[5] == 0.0


def test_the_table_names_every_metric_with_its_mean_and_interval():
    asked, model = random_case()
    found = evaluate(model, asked, at=(5, 10))
    text = str(found)
    low, high = found.intervals()["ndcg@10"]
    assert f"{found.means()['ndcg@10']:.4f} [{low:.4f}, {high:.4f}]" in text
    lines = text.splitlines()
    assert lines[0].startswith(f"{len(found.users)} users, 30 items")
    assert lines[1].split() == ["@5", "@10"]
    assert [line.split()[0] for line in lines[2:]] == [
        "recall", "ndcg", "map", "precision", "hit_rate", "mrr", "coverage", "novelty",
    ]  # fmt: skip


def second_alone(hits, target_counts, k):
    """A metric of one's own: 1 where the second place of the list is a hit."""
    return hits[:, 1].astype(float)


def test_a_metric_of_ones_own_is_measured_beside_the_named_ones():
    asked, model = random_case()
    own = Metric("second", 7, second_alone)
    found = evaluate(model, asked, at=(5,), metrics=[own, "mrr@3"])
    assert found.at == (3, 5, 7)
    usual = evaluate(model, asked, at=(3, 5, 7))
    assert set(found.values) == {*usual.values, "second@7"}
    assert found.values["mrr@3"].tolist() == usual.values["mrr@3"].tolist()
    first, both = (evaluate(model, asked, at=(k,)).values[f"recall@{k}"] for k in (1, 2))
    assert found.values["second@7"].tolist() == (both > first).astype(float).tolist()
    assert mean_value(model.score, asked, own) == found.means()["second@7"]
    line = next(line for line in str(found).splitlines() if line.startswith("second"))
    assert line.split()[1] == f"{found.means()['second@7']:.4f}", "alone in the last column"


def test_scores_of_a_wrong_shape_or_without_a_number_are_refused():
    asked, _ = random_case()
    users = int((asked.targets.counts() > 0).sum())
    with pytest.raises(
        DataError, match=rf"expected {users} users × 30 items, found shape \({users}, 29\)"
    ):
        measure(lambda user_rows: np.zeros((len(user_rows), 29)), asked)
    with pytest.raises(DataError, match="NaN"):
        mean_value(lambda histories: np.full(histories.shape, np.nan), asked)
    with pytest.raises(ConfigError, match="at: expected list lengths"):
        evaluate(Fixed(np.zeros(30)), asked, at=(0,))


def test_a_model_of_other_items_is_refused():
    asked, model = random_case()
    model.train_data_ = interactions([[0]], 30)
    assert evaluate(model, asked, at=(5,)).at == (5,)
    model.train_data_ = interactions([[0]], 29)
    with pytest.raises(DataError, match="model's 29 items are not the held-out data's 30"):
        evaluate(model, asked)
