"""Table 1's columns on cases worked by hand, and how far the order of a data set can be trusted."""

import math

import numpy as np
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
    text = str(describe(interactions_of([[0, 1]], [[874724710 * second, 1476640644 * second]])))
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
    assert found.in_one_moment == pytest.approx(4 / 6)
    assert found.compared == 4
    assert found.rising == 3 / 4
    assert found.rising_z == pytest.approx((3 - 2) / math.sqrt(4 / 4))
    # 1 and 2 stand side by side four times, three of them upwards; no other pair does so three times.
    assert (found.pairs, found.direction) == (1, 3 / 4)
    assert found.direction_by_chance == pytest.approx(
        (4 * 1 + 3 * 4 + 2 * 6 + 3 * 4 + 4 * 1) / 16 / 4
    )
    assert not found.looks_like_file_order


def test_without_times_all_neighbours_are_compared():
    found = check_order(interactions_of([[0, 1, 2, 3], [3, 0]]))
    assert (found.neighbours, found.timed, found.in_one_moment) == (4, False, 0.0)
    assert (found.compared, found.rising) == (4, 3 / 4)
    assert (found.pairs, found.direction, found.direction_by_chance) == (0, None, None)


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


def test_data_sorted_by_item_inside_days_look_like_the_file_and_shuffled_ones_do_not():
    taken, days = random_days(0)
    in_file, mixed = (
        check_order(by_day(sorted_inside_days(taken, days), days)),
        check_order(by_day(taken, days)),
    )
    assert in_file.rising == 1
    assert in_file.looks_like_file_order
    assert in_file.direction > in_file.direction_by_chance + 0.1
    assert not mixed.looks_like_file_order
    assert abs(mixed.rising_z) < 4
    assert mixed.direction == pytest.approx(mixed.direction_by_chance, abs=0.02)
    falling = by_day(sorted_inside_days(-taken, days) * -1, days)
    assert "ids fall within 100 % of equal times" in check_order(falling).warning()
    # In the users' own order no two items share a moment: then ids may rise as they like.
    own = by_day(np.sort(taken, axis=1), np.tile(np.arange(taken.shape[1]), (len(taken), 1)))
    assert not check_order(own).looks_like_file_order


def test_an_order_without_times_looks_like_the_file_where_whole_histories_are_sorted():
    taken, _ = random_days(1)
    sorted_rows = interactions_of(np.sort(taken, axis=1).tolist())
    assert check_order(interactions_of(taken.tolist())).warning() is None
    # The ids are text, i10 before i2, so that not all rise; far more than half do.
    assert (
        "of neighbours): do not trust what models gain from it"
        in check_order(sorted_rows).warning()
    )


@pytest.mark.parametrize("n", [3, 4, 7, 50, 2001])
def test_the_direction_by_chance_is_that_of_a_fair_coin(n):
    found = check_order(interactions_of([[0, 1]] * n))
    larger = np.maximum(np.arange(n + 1), n - np.arange(n + 1))
    expected = (larger * binom.pmf(np.arange(n + 1), n, 0.5)).sum() / n
    assert found.direction_by_chance == pytest.approx(expected, rel=1e-9)


def test_it_prints_as_a_few_plain_lines():
    taken, days = random_days(2)
    lines = str(loca.check_order(by_day(sorted_inside_days(taken, days), days))).splitlines()
    assert len(lines) == 4
    assert lines[1].startswith("item ids rise inside moments")
    assert "100 % of" in lines[1]
    assert lines[3].endswith("looks like the file's, not the users'")
    assert "no times are known" in str(check_order(interactions_of([[0, 1]])))


@pytest.mark.parametrize("data", [interactions_of([[]]), interactions_of([[0], []], [[1], []])])
def test_data_without_neighbours_have_nothing_to_say(data):
    found = check_order(data)
    assert (found.neighbours, found.rising, found.direction) == (0, None, None)
    assert found.warning() is None
    assert "none to compare" in str(found)


def test_an_order_that_looks_like_the_files_is_warned_of(caplog):
    caplog.set_level("INFO", "loca")
    taken, days = random_days(3)
    in_file = by_day(sorted_inside_days(taken, days), days)
    warn_of_file_order(in_file)
    assert len(caplog.records) == 1
    warn_of_file_order(in_file.matrix().sorted_indices())  # a bare matrix that somebody has sorted
    assert "ids rise within 100 % of neighbours" in caplog.records[1].getMessage()


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("file", "direction", "chance", "warns"),
    [
        ("amusic/amusic.rating", 0.957, 0.714, True),
        ("games-2018/interactions-ordered.csv.gz", 0.746, 0.716, False),
        ("ml-1m/ratings-ordered.csv.gz", 0.790, 0.686, False),
        ("ml-100k/u.data", None, None, False),
    ],
)
def test_real_data_have_the_directions_that_are_known_of_them(
    real_data, file, direction, chance, warns
):
    found = check_order(read_interactions(real_data / file))
    assert (found.warning() is not None) == warns
    if direction is not None:
        assert found.direction == pytest.approx(direction, abs=0.01)
        assert found.direction_by_chance == pytest.approx(chance, abs=0.01)
    if warns:
        assert found.in_one_moment == pytest.approx(0.69, abs=0.005)
        assert found.rising == pytest.approx(0.885, abs=0.001)
