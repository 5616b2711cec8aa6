"""The ranking against a brute-force one: exact, hidden items out, ties by item row, short lists marked."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from loca.errors import ConfigError, DataError
from loca.evaluation.top_n import block_rows, rank_top_n


def brute_force(scores, hidden, n, only=None, never=()):
    """The same lists by sorting each user's permitted items in plain Python."""
    lists = []
    for user_row, row in enumerate(scores.tolist()):
        permitted = [
            item
            for item in range(len(row))
            if (hidden is None or hidden[user_row, item] == 0)
            and (only is None or item in only)
            and item not in never
            and row[item] > -np.inf
        ]
        best = sorted(permitted, key=lambda item: (-row[item], item))[:n]
        lists.append(best + [-1] * (n - len(best)))
    return np.array(lists, dtype=np.int32).reshape(len(scores), n)


@st.composite
def rankings(draw):
    """Scores from very few distinct values, so that most lists are cut between equal scores."""
    users, items = draw(st.integers(1, 9)), draw(st.integers(1, 25))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    values = np.array([-np.inf, -1.5, 0.0, -0.0, 0.25, 1.0, 3.0, np.inf])
    scores = rng.choice(values[: draw(st.integers(1, len(values)))], size=(users, items))
    if draw(st.booleans()):
        scores = rng.standard_normal((users, items))
    hidden = rng.random((users, items)) < draw(st.sampled_from([0.0, 0.3, 0.9, 1.0]))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    return scores.astype(dtype), csr_array(hidden.astype(np.float32)), draw(st.integers(1, 30)), rng


@settings(max_examples=150, deadline=None)
@given(rankings())
def test_lists_equal_those_of_sorting_every_permitted_item(case):
    scores, hidden, n, rng = case
    only = rng.integers(0, scores.shape[1], 8) if rng.random() < 0.5 else None
    never = rng.integers(0, scores.shape[1], 3)
    lists = brute_force(
        scores, hidden, n, None if only is None else set(only.tolist()), set(never.tolist())
    )
    for kind in (np.asarray, torch.from_numpy):  # ranked by numpy, ranked by torch
        item_rows, best = rank_top_n(kind(scores), hidden, n, only=only, never=never)
        np.testing.assert_array_equal(item_rows, lists)
        expected = np.take_along_axis(scores, np.maximum(item_rows, 0), axis=1)
        np.testing.assert_array_equal(
            best, np.where(item_rows >= 0, expected, -np.inf).astype(np.float32)
        )


@pytest.mark.parametrize("values", [5, 10**6])
def test_arrays_of_any_size_are_ranked_as_tensors_are(values):
    """The larger array is one that torch ranks."""
    rng = np.random.default_rng(2)
    for users in (3, 600):
        scores = rng.integers(0, values, (users, 2000)).astype(np.float32)
        hidden = csr_array((rng.random(scores.shape) < 0.1).astype(np.float32))
        for n in (1, 10, 100):
            by_array, by_tensor = (
                rank_top_n(one, hidden, n) for one in (scores, torch.from_numpy(scores))
            )
            for one, other in zip(by_array, by_tensor, strict=True):
                np.testing.assert_array_equal(one, other)


def test_many_users_are_ranked_in_chunks_that_give_the_same_lists():
    rng = np.random.default_rng(1)
    scores = rng.integers(0, 4, (101, 40)).astype(np.float32)
    hidden = csr_array((rng.random((101, 40)) < 0.2).astype(np.float32))
    whole = rank_top_n(scores, hidden, 7)
    for one, other in zip(
        whole, rank_top_n(scores, hidden, 7, chunk_bytes=40 * 4 * 13), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(whole[0], brute_force(scores, hidden, 7))


def test_equal_scores_stand_by_item_row_also_at_the_cut():
    scores = np.array([[1.0, 2.0, 1.0, 2.0, 1.0, 1.0]])
    assert rank_top_n(scores, None, 4)[0].tolist() == [[1, 3, 0, 2]]
    assert rank_top_n(np.zeros((1, 100_000), np.float32), None, 5)[0].tolist() == [[0, 1, 2, 3, 4]]


def test_places_that_cannot_be_filled_hold_minus_one_and_minus_infinity():
    item_rows, best = rank_top_n(np.array([[5.0, 6.0, 7.0]]), csr_array(np.array([[0, 1, 1]])), 3)
    assert item_rows.tolist() == [[0, -1, -1]]
    assert best.tolist() == [[5.0, -np.inf, -np.inf]]
    assert (item_rows.dtype, best.dtype) == (np.int32, np.float32)


def test_a_list_may_be_longer_than_the_catalogue_and_may_be_asked_for_nobody():
    assert rank_top_n(np.array([[1.0, 2.0]]), None, 4)[0].tolist() == [[1, 0, -1, -1]]
    assert rank_top_n(np.empty((0, 3)), None, 4)[0].shape == (0, 4)
    assert rank_top_n(np.empty((2, 0)), None, 2)[0].tolist() == [[-1, -1], [-1, -1]]


def test_double_precision_decides_where_single_precision_would_tie():
    scores = np.array([[1.0, 1.0 + 1e-12, 1.0 - 1e-12]])
    assert rank_top_n(scores, None, 2)[0].tolist() == [[1, 0]]


def test_whole_numbers_and_half_precision_are_ranked_too():
    assert rank_top_n(np.array([[3, 9, 4]]), None, 2)[0].tolist() == [[1, 2]]
    assert rank_top_n(np.array([[3, 9, 4]], np.float16), None, 2)[0].tolist() == [[1, 2]]


def test_a_hidden_item_is_hidden_however_little_it_weighs():
    hidden = csr_array((np.array([1e-12], np.float32), [1], [0, 1]), shape=(1, 3))
    assert rank_top_n(np.array([[1.0, 5.0, 2.0]]), hidden, 2)[0].tolist() == [[2, 0]]


def test_the_scores_given_are_left_as_they_are_and_may_be_a_read_only_view():
    scores = np.array([[1.0, 5.0, 2.0]])
    rank_top_n(scores, csr_array(np.array([[0, 1, 0]])), 1, never=np.array([2]))
    assert scores.tolist() == [[1.0, 5.0, 2.0]]
    shared = np.broadcast_to(np.array([1.0, 5.0, 2.0], np.float32), (2, 3))
    assert rank_top_n(shared, csr_array(np.eye(2, 3)), 1)[0].tolist() == [[1], [2]]


@pytest.mark.parametrize("hidden", [None, csr_array(np.array([[0, 0, 0], [0, 1, 0]]))])
def test_nan_is_refused_with_the_user_even_where_the_item_is_hidden(hidden):
    with pytest.raises(DataError, match=r"NaN.*row 1"):
        rank_top_n(np.array([[1.0, 2.0, 3.0], [1.0, np.nan, 3.0]]), hidden, 1)


def test_impossible_questions_are_refused():
    scores = np.zeros((2, 3))
    with pytest.raises(ConfigError, match="n: expected a list length of 1 or more, found 0"):
        rank_top_n(scores, None, 0)
    with pytest.raises(DataError, match="users × items"):
        rank_top_n(np.zeros(3), None, 1)
    with pytest.raises(DataError, match=r"\(2, 3\), found \(2, 4\)"):
        rank_top_n(scores, csr_array((2, 4)), 1)
    with pytest.raises(DataError, match="never: expected item rows within 0 … 2"):
        rank_top_n(scores, None, 1, never=np.array([3]))
    with pytest.raises(DataError, match="only: expected item rows within 0 … 2"):
        rank_top_n(scores, None, 1, only=np.array([-1]))


def test_no_item_to_choose_from_gives_empty_lists():
    assert rank_top_n(np.zeros((1, 3)), None, 2, only=np.array([], np.int64))[0].tolist() == [
        [-1, -1]
    ]


def test_a_block_of_users_stays_within_its_bytes():
    assert block_rows(1000, arrays=2, number_bytes=4, budget=80_000) == 10
    assert block_rows(26_744) * 26_744 * 12 <= 256_000_000
    assert block_rows(10**9) == 1
