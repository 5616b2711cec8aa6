"""Table 1's columns on cases worked by hand, and how far the order of a data set can be trusted."""

import json
import math
import warnings
from dataclasses import asdict, replace

import numpy as np
import polars as pl
import pytest
from event_examples import interactions_of
from scipy.stats import binom

import loca
from loca.data.id_map import IdMap
from loca.data.interactions import Interactions
from loca.data.readers import read_interactions
from loca.data.statistics import check_order, describe, warn_of_file_order


def test_the_numbers_of_a_small_data_set():
    histories = [[0, 0, 1], [0, 2, 3, 4], [0]]
    found = describe(interactions_of(histories, [[5, 6, 7], [1, 2, 3, 4], [9]], n_items=40))
    assert (found.users, found.items, found.ratings) == (3, 40, 8)
    assert found.sparsity == pytest.approx(100 * (1 - 8 / 120))
    assert found.concentration == pytest.approx(
        100 * 5 / 8
    )  # two of 40 items: item 0 four times, another once
    assert found.narrow_concentration == pytest.approx(
        100 * 4 / 8
    )  # 2 % of 40 items are less than one: item 0
    assert (found.shortest_history, found.median_history, found.longest_history) == (1, 3, 4)
    assert (found.repeated_pairs, found.unused_items) == (1, 35)
    assert (found.first_time, found.last_time) == (1, 9)


def test_the_numbers_read_well():
    text = str(describe(interactions_of([[0, 1]] * 1000 + [[0]], n_items=2)))
    assert "users                                 1,001" in text
    assert "sparsity                              0.05 %" in text
    assert "history, shortest / median / longest  1 / 2 / 2" in text
    assert text.endswith("time                                  none")
    assert str(describe(interactions_of([[0, 1]], [[0.5, 2.0]]))).endswith("0.5 to 2")
    assert str(describe(interactions_of([[0]], [[20240101]]))).endswith("20240101 to 20240101")


@pytest.mark.parametrize("second", [1, 1000, 1_000_000, 1_000_000_000])
def test_times_since_1970_are_shown_as_days(second):
    times = [874724710 * second, 1476640644 * second]
    frame = pl.DataFrame({"user": ["ann", "ann"], "item": ["tea", "milk"], "time": times})
    text = str(describe(read_interactions(frame)))
    assert text.endswith("time                                  1997-09-20 to 2016-10-16")


def test_data_without_interactions_have_zeros():
    found = describe(interactions_of([[]], [[]], n_items=1))
    assert (found.ratings, found.concentration, found.sparsity, found.first_time) == (
        0,
        0,
        100,
        None,
    )
    assert found.narrow_concentration == 0
    nobody = describe(interactions_of([], n_items=1))
    assert (nobody.users, nobody.sparsity, nobody.longest_history) == (0, 0, 0)


def by_day(items, days):
    """Interactions with numbers as item ids from a users × places array of items and of days."""
    users, places = items.shape
    ids = IdMap(np.arange(int(items.max()) + 1) + 7, "item")
    return Interactions(
        IdMap.numbered(users, "user"),
        ids,
        np.arange(users + 1) * places,
        items.ravel(),
        days.ravel(),
    )


def random_days(seed, users=400, places=14, items=60, days=4):
    rng = np.random.default_rng(seed)
    taken = np.stack([rng.permutation(items)[:places] for _ in range(users)])
    return taken, np.sort(rng.integers(0, days, (users, places)), axis=1)


def sorted_inside_days(taken, days):
    order = np.lexsort((taken, days), axis=1)
    return np.take_along_axis(taken, order, axis=1)


def test_a_few_histories_counted_by_hand():
    found = check_order(
        interactions_of(
            [[1, 2, 3], [2, 1, 3], [1, 2], [1, 2], [4], []],
            [[0, 0, 1], [0, 0, 0], [0, 5], [1, 1], [3], []],
        )
    )
    assert (found.histories, found.neighbours, found.timed) == (5, 6, True)
    assert found.ordered_by_time == pytest.approx(2 / 6)
    assert found.compared == 4
    assert found.rising == 3 / 4
    assert found.rising_z == pytest.approx((3 - 2) / math.sqrt(4 / 4))
    # All but the first item of a history are test; the first shares its moment with the second in three of five.
    assert found.moments_cut == 3 / 5
    # Times order 2 before 3 once and 1 before 2 once: no pair three times.
    assert (found.pairs, found.direction, found.direction_by_chance) == (0, None, None)
    assert not found.looks_like_file_order


def test_the_usual_direction_of_two_items_counted_by_hand():
    found = check_order(interactions_of([[1, 2, 3], [2, 1, 3], [1, 2], [1, 2], [4], []]))
    # 1 and 2 stand side by side four times, three of them upwards; no other pair does so three times.
    assert (found.pairs, found.direction) == (1, 3 / 4)
    assert found.direction_by_chance == pytest.approx(
        (4 * 1 + 3 * 4 + 2 * 6 + 3 * 4 + 4 * 1) / 16 / 4
    )


def test_the_direction_counts_only_where_times_order_the_two_items():
    up, down, at_once = [1, 2], [2, 1], [1, 2]
    histories = [up, up, down, *[at_once] * 20]
    times = [[0, 1], [0, 1], [0, 1], *[[0, 0]] * 20]
    found = check_order(interactions_of(histories, times))
    assert (found.pairs, found.direction) == (1, 2 / 3)


def test_without_times_all_neighbours_are_compared():
    found = check_order(interactions_of([[0, 1, 2, 3], [3, 0]]))
    assert (found.neighbours, found.timed, found.ordered_by_time) == (4, False, 0.0)
    assert (found.compared, found.rising, found.moments_cut) == (4, 3 / 4, 0.0)
    assert (found.pairs, found.direction, found.direction_by_chance) == (0, None, None)
    assert "too few items to tell" in found.verdict


@pytest.mark.parametrize(
    ("length", "times", "share"),
    [
        (12, [0] * 7 + [1] * 5, 0.0),
        (12, [0] * 6 + [1] * 6, 1.0),
        (12, [0, 1, 2, 3, 4, 5, 6, 6, 6, 7, 8, 9], 1.0),
        (12, [0, 1, 2, 3, 4, 5, 6, 7, 7, 8, 8, 9], 0.0),
        (3, [0, 0, 1], 1.0),
        (3, [0, 1, 1], 0.0),
        (1, [0], 0.0),
    ],
)
def test_a_moment_is_cut_where_the_last_five_items_begin_inside_it(length, times, share):
    histories = [list(range(length))] * 4
    assert check_order(interactions_of(histories, [times] * 4)).moments_cut == share


def test_ids_rise_as_numbers_where_all_are_numbers_and_as_text_elsewhere():
    def rising(*ids):
        items = IdMap(np.array(ids, dtype=object), "item")
        return check_order(
            Interactions(IdMap.numbered(1, "user"), items, np.array([0, 2]), np.array([0, 1]))
        ).rising

    assert rising("9", "10") == 1
    assert rising("007", "8") == 1
    assert rising("9" * 5000, "1" + "0" * 5000) == 1, "more digits than Python reads as a number"
    assert rising("i9", "i10") == 0


def test_short_histories_are_left_out_where_there_are_long_ones():
    long, short = [list(range(10))] * 3, [[1, 0]] * 5
    assert check_order(interactions_of(long + short)).rising == 1
    assert check_order(interactions_of([*short, [2, 3]])).rising == 1 / 6


def test_a_repeated_pair_counts_once_at_its_newest_place():
    repeated, plain = (
        check_order(interactions_of([[5, 0, 1, 5]])),
        check_order(interactions_of([[0, 1, 5]])),
    )
    assert (repeated.neighbours, repeated.rising) == (plain.neighbours, plain.rising) == (2, 1)


def test_distinct_times_are_an_order_even_where_ids_rise():
    taken, _ = random_days(0)
    each_later = np.tile(np.arange(taken.shape[1]), (len(taken), 1))
    found = check_order(by_day(np.sort(taken, axis=1), each_later))
    assert found.verdict == "by time: 100 % of 5,200 items are newer than the one before them"
    assert (found.ordered_by_time, found.compared, found.moments_cut) == (1.0, 0, 0.0)
    assert not found.looks_like_file_order
    assert found.warning() is None
    assert ("items at equal times", "none") in found.lines()


def test_histories_of_one_moment_sorted_by_item_are_the_files_order():
    taken, _ = random_days(1)
    found = check_order(by_day(np.sort(taken, axis=1), np.zeros_like(taken)))
    assert found.looks_like_file_order
    assert found.verdict == (
        "looks like the file's, not the users': 100 % have equal times, sorted by item id"
    )
    assert (found.ordered_by_time, found.moments_cut, found.rising) == (0.0, 1.0, 1.0)
    assert found.warning().startswith(
        "the order of items looks like the file's, not the users' (100 % of items have equal "
        "times, and 100 % of ids are higher than the one before): models that use order have"
    )
    falling = check_order(by_day(-np.sort(-taken, axis=1), np.zeros_like(taken)))
    assert "and 100 % of ids are lower than the one before" in falling.warning()


def test_histories_of_one_moment_in_a_shuffled_file_have_hardly_any_order():
    taken, _ = random_days(2)
    found = check_order(by_day(taken, np.zeros_like(taken)))
    assert found.verdict == "hardly any: 0 % of 5,200 items are newer than the one before them"
    assert not found.sorted_by_item
    assert abs(found.rising_z) < 4
    assert found.warning() is None


def test_sorted_items_at_equal_times_are_named_and_do_not_spoil_the_order_that_times_give():
    taken, _ = random_days(3, users=1000, places=101, items=150)
    # Of 100 items with one before them 22 have its time: the second item, and every fourth or fifth after it.
    is_newer = np.ones(101, dtype=bool)
    is_newer[np.linspace(1, 100, 22).astype(int)] = False
    times = np.tile(np.cumsum(is_newer), (len(taken), 1))
    found = check_order(by_day(sorted_inside_days(taken, times), times))
    assert found.verdict == "by time: 78 % of 100,000 items are newer than the one before them"
    assert found.sorted_by_item
    assert not found.looks_like_file_order
    assert found.warning() is None
    assert found.lines()[1:3] == (
        ("items at equal times", "22,000 (22 %); models see no order in these"),
        (
            "their order in the file",
            "sorted by item id: 100 % of ids are higher than the one before (50 % by chance)",
        ),
    )


@pytest.mark.parametrize(
    ("days", "verdict", "is_files"),
    [(1, "looks like the file's", True), (4, "partly by time", False), (100, "by time", False)],
)
def test_the_fewer_moments_the_less_order_do_times_give(days, verdict, is_files):
    taken, days_of_items = random_days(4, days=days)
    found = check_order(by_day(sorted_inside_days(taken, days_of_items), days_of_items))
    assert found.verdict.startswith(verdict)
    assert found.looks_like_file_order is is_files
    assert found.sorted_by_item


def test_the_last_items_as_test_are_named_only_where_a_split_cuts_through_moments():
    taken, days = random_days(5)
    names = [name for name, _ in check_order(by_day(taken, days)).lines()]
    assert "the last 5 items as test" in names
    days[:, -5:] += 1  # a day of their own
    names = [name for name, _ in check_order(by_day(taken, days)).lines()]
    assert "the last 5 items as test" not in names


def test_without_times_histories_sorted_by_item_are_the_files_order():
    taken, _ = random_days(6)
    found = check_order(interactions_of(np.sort(taken, axis=1).tolist()))
    assert found.verdict == (
        "looks like the file's, not the users': no times, and sorted by item id"
    )
    # The ids are text, i10 before i2, so that not all rise; far more than half do.
    assert 0.7 < found.rising < 1
    assert "one before): do not trust what models gain from it" in found.warning()


def test_without_times_shuffled_histories_may_be_the_users_own():
    taken, _ = random_days(7)
    found = check_order(interactions_of(taken.tolist()))
    assert found.verdict == "may be the users' own: no times, but not sorted by item id"
    assert not found.looks_like_file_order
    assert found.warning() is None
    assert found.direction == pytest.approx(found.direction_by_chance, abs=0.02)


@pytest.mark.parametrize("n", [3, 4, 7, 50, 2001])
def test_the_direction_by_chance_is_that_of_a_fair_coin(n):
    found = check_order(interactions_of([[0, 1]] * n))
    larger = np.maximum(np.arange(n + 1), n - np.arange(n + 1))
    expected = (larger * binom.pmf(np.arange(n + 1), n, 0.5)).sum() / n
    assert found.direction_by_chance == pytest.approx(expected, rel=1e-9)


def test_it_prints_as_a_few_plain_lines_with_the_verdict_first():
    histories = [[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]] * 3
    days = [[0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]] * 3
    ids = IdMap(np.arange(12), "item")
    timed = loca.check_order(replace(interactions_of(histories, days), items=ids))
    assert str(timed).splitlines() == [
        "order                     partly by time: "
        "18 % of 33 items are newer than the one before them",
        "items at equal times      27 (82 %); models see no order in these",
        "their order in the file   "
        "sorted by item id: 100 % of ids are higher than the one before (50 % by chance)",
        "the last 5 items as test  "
        "in 100 % of histories the file decides which items at equal times are test",
        "two items side by side    in their usual order 100 % of the time, 75 % by chance (2 pairs)",
    ]


@pytest.mark.parametrize("data", [interactions_of([[]]), interactions_of([[0], []], [[1], []])])
def test_data_without_neighbours_have_no_order(data):
    found = check_order(data)
    assert (found.neighbours, found.rising, found.direction) == (0, None, None)
    assert (found.ordered_by_time, found.moments_cut) == (0.0, 0.0)
    assert found.warning() is None
    assert str(found).startswith("order                   none: no history has two items\n")


def test_the_numbers_are_json():
    taken, days = random_days(8)
    found = asdict(check_order(by_day(taken, days)))
    assert json.loads(json.dumps(found)) == found


def test_an_order_that_looks_like_the_files_is_told_once_as_a_remark():
    taken, days = random_days(9)
    in_one_moment = by_day(np.sort(taken, axis=1), np.zeros_like(taken))
    with pytest.warns(loca.LocaWarning, match="^file-order: the order of items looks") as told:
        warn_of_file_order(in_one_moment)
    assert len(told) == 1
    by_days = by_day(sorted_inside_days(taken, days), days)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_file_order(by_days)
    # A bare matrix that somebody has sorted has no times.
    with pytest.warns(loca.LocaWarning, match="no times, and 100 % of ids are higher"):
        warn_of_file_order(by_days.matrix().sorted_indices())


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("file", "ordered", "verdict"),
    [
        ("movietweetings/ratings.dat", 1.0, "by time: 100 % of 64,457 items"),
        ("games-2018/interactions-ordered.csv.gz", 1.0, "by time: 100 % of"),
        ("ml-1m/ratings-ordered.csv.gz", 1.0, "by time: 100 % of"),
        ("ml-100k/u.data", 0.49, "partly by time: 49 % of"),
        ("amusic/amusic.rating", 0.31, "partly by time: 31 % of 71,093 items"),
    ],
)
def test_real_data_have_the_order_that_their_times_give(real_data, file, ordered, verdict):
    time = "rank" if "ordered" in file else None
    found = check_order(read_interactions(real_data / file, time=time))
    assert found.ordered_by_time == pytest.approx(ordered, abs=0.005)
    assert found.verdict.startswith(verdict)
    assert found.warning() is None


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("file", "direction", "chance"),
    [
        ("games-2018/interactions-ordered.csv.gz", 0.746, 0.716),
        ("ml-1m/ratings-ordered.csv.gz", 0.790, 0.686),
    ],
)
def test_real_data_have_the_directions_that_are_known_of_them(real_data, file, direction, chance):
    found = check_order(read_interactions(real_data / file, time="rank"))
    assert found.direction == pytest.approx(direction, abs=0.01)
    assert found.direction_by_chance == pytest.approx(chance, abs=0.01)


@pytest.mark.real_data
def test_the_ties_of_amusic_are_sorted_by_item_and_a_split_cuts_through_them(real_data):
    found = check_order(read_interactions(real_data / "amusic/amusic.rating"))
    assert found.sorted_by_item
    assert found.rising == pytest.approx(0.885, abs=0.001)
    assert found.moments_cut == pytest.approx(0.69, abs=0.005)
