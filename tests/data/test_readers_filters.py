"""Distinct pairs, low ratings and rare users and items, against a plain loop."""

from collections import Counter

import pytest
from event_examples import any_interactions, histories_of, interactions_of, item_lists
from hypothesis import given
from hypothesis import strategies as st

from loca.data.readers import keep_active, read_interactions
from loca.errors import ConfigError, DataError


@given(any_interactions())
def test_each_pair_is_kept_once_at_its_first_place(interactions):
    expected = [list(dict.fromkeys(one)) for one in item_lists(interactions)]
    assert item_lists(interactions.distinct(keep="first")) == expected


def pairs_of(interactions):
    return [(user, item) for user, items in histories_of(interactions).items() for item in items]


def filter_plainly(pairs, min_user, min_item, repeat):
    while True:
        before = len(pairs)
        count = Counter(item for _, item in pairs)
        pairs = [pair for pair in pairs if count[pair[1]] >= min_item]
        count = Counter(user for user, _ in pairs)
        pairs = [pair for pair in pairs if count[pair[0]] >= min_user]
        if not repeat or len(pairs) == before:
            return pairs


@given(any_interactions(), st.integers(0, 4), st.integers(0, 4), st.booleans())
def test_minimum_counts_equal_a_plain_loop(interactions, min_user, min_item, repeat):
    expected = filter_plainly(pairs_of(interactions), min_user, min_item, repeat)
    options = {"min_user": min_user, "min_item": min_item, "repeat": repeat}
    if not expected and (min_user or min_item):
        with pytest.raises(DataError, match="no user left after filtering: at least"):
            keep_active(interactions, **options)
        return
    found = keep_active(interactions, **options)
    assert pairs_of(found) == expected
    assert set(histories_of(found)) == {user for user, _ in expected}
    assert set(found.items.ids(range(found.n_items))) == {item for _, item in expected}
    assert keep_active(interactions, **options, keep_unused=True).n_items == interactions.n_items


def test_repeating_the_filter_goes_on_until_it_holds():
    interactions = interactions_of([[0, 1], [0, 1], [1, 2], [2]])
    once = keep_active(interactions, min_user=2, min_item=2)
    assert histories_of(once) == {"u0": ["i0", "i1"], "u1": ["i0", "i1"], "u2": ["i1", "i2"]}
    stable = keep_active(interactions, min_user=2, min_item=2, repeat=True)
    assert histories_of(stable) == {"u0": ["i0", "i1"], "u1": ["i0", "i1"]}


def test_unused_ids_go_and_unused_items_stay_where_asked():
    interactions = interactions_of([[], [3, 1]], n_items=5).with_titles({"i3": "three"})
    assert histories_of(keep_active(interactions)) == {"u1": ["i3", "i1"]}
    assert keep_active(interactions).items.label(1) == "three"
    kept = keep_active(interactions, keep_unused=True)
    assert (kept.n_users, kept.n_items) == (1, 5)


def test_the_order_is_ratings_then_pairs_then_counts(tmp_path):
    path = tmp_path / "ratings.csv"
    # The first (1, a) falls under the threshold; of the two (1, b) the newest counts.
    path.write_text(
        "user,item,rating,time\n1,a,1,1\n1,b,5,2\n1,a,5,3\n1,b,5,4\n2,a,5,1\n2,a,5,2\n3,c,1,1\n3,a,5,2\n"
    )
    plain = read_interactions(path, min_rating=4)
    assert histories_of(plain) == {1: ["a", "b"], 2: ["a"], 3: ["a"]}
    assert plain.times.tolist() == [3, 4, 2, 2]
    # User 2 has two rows but one pair.
    assert histories_of(read_interactions(path, min_rating=4, min_user_interactions=2)) == {
        1: ["a", "b"]
    }
    repeats = read_interactions(path, distinct=False, min_user_interactions=2, min_rating=4)
    assert histories_of(repeats) == {1: ["b", "a", "b"], 2: ["a", "a"]}


def test_repeats_are_kept_only_where_asked(tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_text("user,item,time\n1,a,2\n1,a,1\n1,b,1\n")
    found = read_interactions(path)
    assert histories_of(found) == {1: ["b", "a"]}
    assert found.times.tolist() == [1, 2]
    assert histories_of(read_interactions(path, distinct=False)) == {1: ["a", "b", "a"]}


def test_mistakes_in_filters_are_refused():
    with pytest.raises(
        ConfigError, match="min_item_interactions: expected a whole number of at least 0, found -1"
    ):
        keep_active(interactions_of([[0]]), min_item=-1)
