"""Interactions keep each user's order, check themselves, and give the weights that a plain loop gives."""

from dataclasses import replace

import numpy as np
import pytest
from event_examples import any_interactions, histories_of, interactions_of, item_lists
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from loca.data.id_map import IdMap
from loca.data.interactions import Interactions, as_histories, as_matrix, as_moments
from loca.data.recency import Recency
from loca.errors import DataError

EVENTS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5), st.integers(-3, 3)), max_size=40)


@given(EVENTS, st.sampled_from([np.int64, np.float64]))
def test_events_are_sorted_by_time_and_ties_keep_their_order(events, kind):
    users, items = IdMap.numbered(5, "user"), IdMap.numbered(6, "item")
    columns = np.array(events, dtype=np.int64).reshape(-1, 3)
    found = Interactions.from_events(
        users, items, columns[:, 0], columns[:, 1], columns[:, 2].astype(kind)
    )
    for user in range(5):
        expected = sorted(
            (event for event in events if event[0] == user), key=lambda event: event[2]
        )
        assert found.items_of(user).tolist() == [item for _, item, _ in expected]
        assert found.times[found.offsets[user] : found.offsets[user + 1]].tolist() == [
            time for *_, time in expected
        ]


@given(EVENTS)
def test_events_without_time_keep_the_order_given(events):
    columns = np.array(events, dtype=np.int64).reshape(-1, 3)
    found = Interactions.from_events(
        IdMap.numbered(5, "user"), IdMap.numbered(6, "item"), columns[:, 0], columns[:, 1]
    )
    assert item_lists(found) == [
        [item for one, item, _ in events if one == user] for user in range(5)
    ]


def test_times_too_far_apart_for_one_key_are_sorted_all_the_same():
    times = np.array([2**62, -(2**62), 0])
    found = Interactions.from_events(
        IdMap.numbered(2, "user"),
        IdMap.numbered(3, "item"),
        np.array([1, 1, 1]),
        np.array([0, 1, 2]),
        times,
    )
    assert found.items_of(1).tolist() == [1, 2, 0]


@given(any_interactions(), st.data())
def test_chosen_users_keep_their_histories(interactions, data):
    rows = data.draw(st.permutations(range(interactions.n_users)))[
        : data.draw(st.integers(0, interactions.n_users))
    ]
    part = interactions.of_users(np.array(rows, dtype=np.int64))
    assert item_lists(part) == [item_lists(interactions)[row] for row in rows]
    assert part.users.ids(range(len(rows))) == interactions.users.ids(rows)
    mask = np.isin(np.arange(interactions.n_users), rows)
    assert item_lists(interactions.of_users(mask)) == [
        item_lists(interactions)[row] for row in sorted(rows)
    ]


@given(any_interactions(), st.data())
def test_marked_interactions_are_kept_in_their_order(interactions, data):
    count = len(interactions)
    kept = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)), dtype=bool)
    part, rest = interactions.where(kept), interactions.where(~kept)
    marks = iter(kept)
    expected = [[item for item in one if next(marks)] for one in item_lists(interactions)]
    assert item_lists(part) == expected
    assert len(part) + len(rest) == count
    assert part.times.tolist() == interactions.times[kept].tolist()


@given(any_interactions(), st.sampled_from([None, "positions", "time"]), st.floats(0.5, 20))
def test_history_weights_equal_a_plain_loop(interactions, unit, half_life):
    recency = None if unit is None else Recency(half_life, unit)
    expected = np.zeros((interactions.n_users, interactions.n_items))
    for user in range(interactions.n_users):
        items = interactions.items_of(user)
        times = interactions.times[interactions.offsets[user] : interactions.offsets[user + 1]]
        for place, item in enumerate(
            items
        ):  # a later place of the same item overwrites an earlier one
            newer = {time for time in times if time > times[place]}  # a moment is one position
            age = len(newer) if unit == "positions" else times[-1] - times[place]
            expected[user, item] = 1 if unit is None else 0.5 ** (age / half_life)
    found = interactions.with_recency(recency).histories()
    assert found.shape == expected.shape
    np.testing.assert_allclose(found.toarray(), expected, rtol=1e-6)
    assert found.nnz == (expected > 0).sum()
    assert found.has_canonical_format


@given(any_interactions(timed=False), st.data())
def test_histories_of_chosen_users_are_rows_of_all_histories(interactions, data):
    rows = np.array(data.draw(st.permutations(range(interactions.n_users))), dtype=np.int64)
    weighed = interactions.with_recency(Recency.per_position(0.5))
    assert (weighed.histories(rows).toarray() == weighed.histories().toarray()[rows]).all()


def test_a_very_old_item_is_still_stored():
    weighed = interactions_of([list(range(500))]).with_recency(Recency.per_position(0.5))
    assert weighed.histories().nnz == 500
    assert weighed.histories().data.min() > 0


def test_the_training_matrix_is_binary_whatever_the_recency_and_the_repeats():
    interactions = interactions_of([[2, 0, 2], [], [1]]).with_recency(Recency(1))
    expected = [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
    assert interactions.matrix().toarray().tolist() == expected
    assert as_matrix(interactions).toarray().tolist() == expected


def test_empty_histories_have_empty_rows_in_every_unit():
    for unit in ("positions", "time"):
        empty = interactions_of([[], []], [[], []], n_items=3).with_recency(Recency(1, unit))
        assert empty.histories().toarray().tolist() == [[0, 0, 0], [0, 0, 0]]


def test_time_recency_without_times_is_refused():
    with pytest.raises(DataError, match="needs a time column"):
        interactions_of([[0]]).with_recency(Recency(1, "time")).histories()


def test_a_matrix_and_its_interactions_are_the_same():
    matrix = csr_array(np.array([[1, 0, 2], [0, 0, 0]]))
    found = Interactions.from_matrix(matrix)
    assert item_lists(found) == [[0, 2], []]
    with pytest.raises(DataError, match="a scipy sparse matrix, found list"):
        Interactions.from_matrix([[1]])


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64, np.bool_])
def test_a_bare_matrix_keeps_the_stored_order_of_its_rows_whatever_its_numbers(kind):
    rows = csr_array((np.array([1, 1, 1], kind), [2, 0, 1], [0, 3]), shape=(1, 3))
    matrix = as_matrix(rows)
    assert matrix.dtype == np.float32
    assert matrix.indices.tolist() == [2, 0, 1]
    assert as_histories(rows).indices.tolist() == [0, 1, 2]
    assert rows.indices.tolist() == [2, 0, 1]


def test_a_pair_that_a_matrix_of_counts_stores_twice_counts_once_with_their_sum():
    rows = csr_array((np.array([1, 2, 3]), [2, 0, 2], [0, 3]), shape=(1, 3))
    assert as_matrix(rows).nnz == 2
    assert as_matrix(rows).toarray().tolist() == [[2, 0, 4]]


def test_titles_are_shown_for_item_rows():
    found = interactions_of([[0, 1]]).with_titles({"i1": "The Second"})
    assert [found.items.label(row) for row in (0, 1)] == ["i0", "The Second"]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"offsets": np.array([0, 1])}, "offsets do not fit 2 users and 3 interactions"),
        ({"offsets": np.array([0, 4, 3])}, "offsets must not fall"),
        ({"item_rows": np.array([0, 1, 3])}, "an item row lies outside 0 … 2"),
        ({"item_rows": np.array([0, 1, -1])}, "an item row lies outside"),
        ({"times": np.array([1, 2])}, "expected 3 times, found 2"),
        ({"times": np.array([2, 1, 3])}, "must not fall: oldest first"),
    ],
)
def test_interactions_that_contradict_themselves_are_refused(change, problem):
    parts = {
        "offsets": np.array([0, 2, 3]),
        "item_rows": np.array([0, 1, 2]),
        "times": np.array([1, 2, 0]),
        **change,
    }
    with pytest.raises(DataError, match=problem):
        Interactions(IdMap.numbered(2, "user"), IdMap.numbered(3, "item"), **parts)


def test_interactions_cannot_be_written_to():
    interactions = interactions_of([[0, 1]], [[1, 2]])
    for array in (
        interactions.item_rows,
        interactions.offsets,
        interactions.times,
        interactions.users.values,
    ):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_what_cannot_be_learned_from_is_refused():
    with pytest.raises(
        DataError, match="expected Interactions or a scipy sparse matrix, found list"
    ):
        as_matrix([[1]])
    with pytest.raises(DataError, match="nothing to learn from: 2 users, 3 items, 0 pairs"):
        as_matrix(csr_array((2, 3)))


def test_items_of_equal_times_share_a_moment_and_its_age():
    timed = interactions_of([[0, 1, 2, 3], [], [4, 5]], [[3, 3, 5, 9], [], [7, 7]])
    assert timed.moments().tolist() == [0, 0, 1, 2, 0, 0]
    weights = timed.with_recency(Recency.per_position(0.5)).histories().toarray()
    np.testing.assert_allclose(weights, [[0.25, 0.25, 0.5, 1, 0, 0], [0] * 6, [0, 0, 0, 0, 1, 1]])


def test_without_times_every_item_is_a_moment_of_its_own():
    given = interactions_of([[0, 1, 2], [], [2]])
    assert given.moments().tolist() == given.places().tolist() == [0, 1, 2, 0]
    assert given.moment_matrix() is None
    assert as_moments(given) is None
    assert as_moments(given.matrix()) is None


@given(any_interactions())
def test_the_moments_of_the_training_matrix_stand_beside_its_entries(interactions):
    moments, matrix = as_moments(interactions), interactions.matrix()
    distinct = interactions.distinct()
    if moments is None:
        assert distinct.moments().tolist() == distinct.places().tolist()
        return
    assert moments.indptr.tolist() == matrix.indptr.tolist()
    assert moments.indices.tolist() == matrix.indices.tolist()
    for user in range(interactions.n_users):
        times = distinct.times[distinct.offsets[user] : distinct.offsets[user + 1]].tolist()
        expected = [len({other for other in times if other < time}) for time in times]
        assert moments.data[moments.indptr[user] : moments.indptr[user + 1]].tolist() == expected


@given(any_interactions(), st.randoms())
def test_the_order_of_items_inside_moments_does_not_weigh(interactions, random):
    order = sorted(range(len(interactions)), key=lambda place: random.random())
    users, moments = interactions.user_rows(), interactions.moments()
    order.sort(key=lambda place: (users[place], moments[place]))
    mixed = replace(interactions, item_rows=interactions.item_rows[order])
    for recency in (Recency.per_position(0.7), Recency(2, unit="time"), None):
        one, other = (
            data.with_recency(recency).histories().toarray() for data in (interactions, mixed)
        )
        np.testing.assert_array_equal(one, other)


def test_histories_to_embed_are_the_same_bits_in_whatever_order_the_items_stand() -> None:
    users, items = IdMap.numbered(1, "user"), IdMap.numbered(5, "item")
    orders = [4, 0, 3, 1], [0, 1, 3, 4]
    rows = [
        as_histories(Interactions(users, items, np.array([0, 4]), np.array(one))) for one in orders
    ]
    np.testing.assert_array_equal(rows[0].indices, [0, 1, 3, 4])
    np.testing.assert_array_equal(rows[0].indices, rows[1].indices)
    bare = csr_array((np.ones(3, np.float32), [2, 0, 1], [0, 3]), shape=(1, 3))
    np.testing.assert_array_equal(as_histories(bare).indices, [0, 1, 2])
    np.testing.assert_array_equal(bare.indices, [2, 0, 1], "what was given stays as it is")


@st.composite
def two_tables(draw):
    """Known and new events as (user, item, time) with ids that overlap in part, and whether either has times."""
    ids = st.sampled_from("abcdef"), st.sampled_from("uvwxyz"), st.integers(-2, 4)
    known, new = (draw(st.lists(st.tuples(*ids), min_size=1, max_size=25)) for _ in range(2))
    return known, new, draw(st.booleans()), draw(st.booleans())


def table_of(events, timed):
    """Interactions of events, ids numbered in the order in which they come."""
    maps = [list(dict.fromkeys(event[place] for event in events)) for place in range(2)]
    rows = [np.array([maps[place].index(event[place]) for event in events]) for place in range(2)]
    users, items = (
        IdMap(np.array(ids, dtype=object), what)
        for ids, what in zip(maps, ("user", "item"), strict=True)
    )
    return Interactions.from_events(
        users, items, *rows, np.array([event[2] for event in events]) if timed else None
    )


@given(two_tables(), st.booleans())
def test_merged_histories_are_those_of_a_dict_of_lists(tables, new_items):
    known, new, known_timed, new_timed = tables
    before = table_of(known, known_timed).with_recency(Recency(2))
    merged = before.merged(table_of(new, new_timed), new_items=new_items)
    expected = {}
    for number, (events, timed) in enumerate(((known, known_timed), (new, new_timed))):
        for place, (user, item, time) in enumerate(events):
            if number and not new_items and item not in before.items:
                continue
            # Without times on both sides what is new is newest; else times decide, and known ones come first.
            order = (
                time if known_timed and new_timed else number,
                number,
                time if timed else 0,
                place,
            )
            expected.setdefault(user, []).append((order, item))
    assert histories_of(merged) == {
        user: [item for _, item in sorted(pairs)] for user, pairs in expected.items()
    }
    assert (
        list(expected) == merged.users.values.tolist()
    )  # rows of known users stay, new ones follow
    assert merged.items.values.tolist()[: before.n_items] == before.items.values.tolist()
    assert merged.recency == Recency(2)
    assert (merged.times is None) == (not known_timed)


def test_new_items_bring_their_titles_and_known_ones_keep_theirs():
    known = table_of([("a", "x", 0)], False).with_titles({"x": "Heat"})
    new = table_of([("a", "x", 0), ("a", "y", 0), ("a", "z", 0)], False)
    assert known.merged(new).items.labels.tolist() == ["Heat", "y", "z"]
    titled = new.with_titles({"x": "Other", "y": "Ronin"})
    assert known.merged(titled).items.labels.tolist() == ["Heat", "Ronin", "z"]
    assert table_of([("a", "x", 0)], False).merged(titled).items.labels.tolist() == [
        "x",
        "Ronin",
        "z",
    ]


def test_new_interactions_without_times_are_dated_after_all_known_ones():
    known = table_of([("a", "x", 10), ("b", "x", 50)], True)
    merged = known.merged(table_of([("a", "y", 0), ("a", "z", 0), ("c", "y", 0)], False))
    assert merged.times.tolist() == [10, 51, 52, 50, 51]


def test_ids_of_new_interactions_are_matched_as_numbers_or_as_text():
    known = Interactions.from_matrix(csr_array(np.eye(3)))
    text = table_of([("2", "0", 0), ("7", "9", 0)], False)
    merged = known.merged(text)
    assert merged.users.values.tolist() == [0, 1, 2, 7]
    assert histories_of(merged) == {0: [0], 1: [1], 2: [2, 0], 7: [9]}
    assert histories_of(text.merged(known))["2"] == ["0", "2"]
    with pytest.raises(
        DataError, match="item ids: expected numbers, as the known ones are, found 'tea'"
    ):
        known.merged(table_of([("2", "tea", 0)], False))


def test_dates_do_not_mix_with_numbers():
    known = table_of([("a", "x", 10)], True)
    dated = replace(known, times=known.times.astype("datetime64[s]"))
    with pytest.raises(
        DataError, match="times: expected int64, as the known ones are, found datetime64"
    ):
        known.merged(dated)
    assert dated.merged(table_of([("a", "y", 0)], False)).times.tolist()[1].second == 11


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, -1.0])
def test_a_matrix_entry_that_is_not_finite_or_below_0_is_refused_with_its_place(wrong):
    dense = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, wrong]])
    message = rf"the matrix: expected finite numbers ≥ 0, found {wrong} in row 1, column 2"
    for take in (Interactions.from_matrix, as_matrix):
        with pytest.raises(DataError, match=message):
            take(csr_array(dense))
        assert take(csr_array(np.abs(np.nan_to_num(dense, posinf=0, neginf=0)))) is not None
