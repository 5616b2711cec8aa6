"""Recommendations for ids, interactions and bare histories: ids as they came in, seen items out, short lists marked."""

from __future__ import annotations

import numpy as np
import polars
import pytest
from scipy.sparse import csr_array

from loca.data.id_map import IdMap
from loca.data.interactions import Interactions
from loca.data.recency import Recency
from loca.errors import ConfigError, DataError
from loca.evaluation import recommend as recommendation
from loca.evaluation import top_n
from loca.evaluation.recommend import recommend, recommendation_table

FILMS = ["alien", "brazil", "casablanca", "dune", "eraserhead"]


def interactions(histories, item_ids=FILMS, labels=None):
    items = np.array(item_ids, dtype=object if isinstance(item_ids[0], str) else None)
    rows = [item_ids.index(item) for items_of in histories.values() for item in items_of]
    return Interactions(
        IdMap(np.array(list(histories), dtype=object if isinstance(next(iter(histories)), str) else None), "user"),
        IdMap(items, "item", labels),
        np.concatenate([[0], np.cumsum([len(one) for one in histories.values()])]),
        np.array(rows, np.int32),
    )


class Next:
    """Scores item i + 1 by the weight of item i in the history, every item a little by its row."""

    def __init__(self, known=None):
        self.train_data_ = known

    def score(self, histories):
        return np.roll(histories.toarray(), 1, axis=1) + np.arange(histories.shape[1]) / 100


KNOWN = interactions({"ann": ["alien", "casablanca"], "ben": ["dune"], "eve": []})


def test_known_users_get_the_ids_of_unseen_items_best_first():
    ids, scores = recommend(Next(KNOWN), ["ben", "ann"], n=2)
    assert ids.tolist() == [["eraserhead", "casablanca"], ["dune", "brazil"]]
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, [[1.04, 0.02], [1.03, 1.01]], rtol=1e-6)


def test_a_list_longer_than_the_unseen_items_ends_in_none_and_minus_infinity():
    ids, scores = recommend(Next(KNOWN), ["ann"], n=5)
    assert ids.tolist() == [["dune", "brazil", "eraserhead", None, None]]
    assert scores[0, 3:].tolist() == [-np.inf, -np.inf]


def test_numbers_stay_numbers_unless_a_place_is_empty():
    known = interactions({7: [10, 30], 8: [40]}, [10, 20, 30, 40])
    full, _ = recommend(Next(known), [8, 7], n=2)
    assert full.dtype == np.int64
    assert full.tolist() == [[10, 30], [40, 20]]
    short, _ = recommend(Next(known), ["7"], n=3)
    assert short.tolist() == [[40, 20, None]]


def test_seen_items_come_back_when_they_are_not_hidden():
    ids, _ = recommend(Next(KNOWN), ["ben"], n=3, hide_seen=False)
    assert ids.tolist() == [["eraserhead", "dune", "casablanca"]]


def test_only_and_never_name_items_by_id():
    model = Next(KNOWN)
    assert recommend(model, ["ben"], 1, only=["alien", "brazil"])[0].tolist() == [["brazil"]]
    assert recommend(model, ["ben"], 1, never=["eraserhead"])[0].tolist() == [["casablanca"]]
    assert recommend(model, ["ben"], 2, only=["alien", "dune"], never=["alien"])[0].tolist() == [[None, None]]
    with pytest.raises(DataError, match="unknown item 'alein'; close ones are alien"):
        recommend(model, ["ben"], never=["alein"])
    with pytest.raises(DataError, match=r"only: expected a list of item ids, found 'alien'; write \['alien'\]"):
        recommend(model, ["ben"], only="alien")


def test_histories_of_a_bare_matrix_are_answered_with_item_ids_where_they_are_known():
    histories = csr_array(np.array([[0, 0, 0, 1.0, 0]]))
    assert recommend(Next(KNOWN), histories, 1)[0].tolist() == [["eraserhead"]]
    assert recommend(Next(), histories, 1, known=KNOWN)[0].tolist() == [["eraserhead"]]
    rows, _ = recommend(Next(), histories, 5, never=[0])
    assert rows.tolist() == [[4, 2, 1, None, None]]
    assert recommend(Next(), histories, 2)[0].dtype == np.int64


def test_new_users_are_answered_from_their_own_interactions():
    new = interactions({"zoe": ["casablanca"]})
    assert recommend(Next(KNOWN), new, 1)[0].tolist() == [["dune"]]
    assert recommend(Next(), new, 1)[0].tolist() == [["dune"]]


def test_interactions_over_other_item_rows_are_matched_by_item_id():
    new = interactions({"zoe": ["dune"], "ned": ["alien", "dune"]}, ["dune", "alien"])
    assert recommend(Next(KNOWN), new, 1)[0].tolist() == [["eraserhead"], ["eraserhead"]]
    assert recommend(Next(KNOWN), new, 2)[0].tolist() == [["eraserhead", "casablanca"], ["eraserhead", "brazil"]]
    with pytest.raises(DataError, match="unknown item 'dunes'; close ones are dune"):
        recommend(Next(KNOWN), interactions({"zoe": ["dunes"]}, ["dunes"]))


def test_recency_of_the_known_interactions_weighs_the_answer():
    known = interactions({"ann": ["casablanca", "alien"]})
    assert recommend(Next(known), ["ann"], 1)[0].tolist() == [["dune"]]
    assert recommend(Next(known.with_recency(Recency.per_position(0.5))), ["ann"], 1)[0].tolist() == [["brazil"]]


def test_many_users_some_asked_for_twice_are_answered_in_blocks_that_give_the_same_lists(monkeypatch):
    rng = np.random.default_rng(0)
    known = interactions({row: rng.permutation(FILMS)[: rng.integers(1, 4)].tolist() for row in range(50)})
    asked = rng.integers(0, 50, 80).tolist()
    whole = recommend(Next(known), asked, 3)
    monkeypatch.setattr(recommendation, "block_rows", lambda count: top_n.block_rows(count, budget=5 * 12 * 7))
    parts = recommend(Next(known), asked, 3)
    assert whole[0].tolist() == parts[0].tolist()
    np.testing.assert_array_equal(whole[1], parts[1])


def test_nobody_asked_gives_no_rows():
    assert recommend(Next(KNOWN), [], 3)[0].shape == (0, 3)
    assert recommendation_table(Next(KNOWN), [], 3).is_empty()


def test_who_cannot_be_answered_is_told_why():
    model = Next(KNOWN)
    with pytest.raises(DataError, match="unknown user 'bem'; close ones are ben"):
        recommend(model, ["bem"])
    with pytest.raises(DataError, match="user 'eve' has an empty history; expected at least one item"):
        recommend(model, ["ann", "eve"])
    with pytest.raises(DataError, match="user 'eve' has an empty history"):
        recommend(model, KNOWN)
    with pytest.raises(DataError, match="user 1 has an empty history"):
        recommend(model, csr_array(np.eye(2, 5) * [[1], [0]]))
    with pytest.raises(DataError, match=r"expected a list of user ids, found 'ann'; write \['ann'\]"):
        recommend(model, "ann")
    with pytest.raises(DataError, match="fitted on a bare matrix and knows no user ids"):
        recommend(Next(), ["ann"])
    with pytest.raises(DataError, match="expected the model's 5 items, found 4"):
        recommend(model, csr_array(np.ones((1, 4))))
    with pytest.raises(ConfigError, match="list length of 1 or more, found -1"):
        recommend(model, ["ann"], -1)


def test_the_table_has_a_row_for_each_filled_place_and_titles_where_there_are_any():
    table = recommendation_table(Next(KNOWN), ["ann", "ben"], 4)
    assert table.columns == ["user", "item", "score", "rank"]
    assert table["user"].to_list() == ["ann"] * 3 + ["ben"] * 4
    assert table["item"].to_list()[:3] == ["dune", "brazil", "eraserhead"]
    assert table["rank"].to_list() == [1, 2, 3, 1, 2, 3, 4]
    assert table["score"].dtype == polars.Float32
    titled = interactions({"ann": ["alien"]}, labels=np.array([name.title() for name in FILMS], dtype=object))
    table = recommendation_table(Next(titled), ["ann"], 1)
    assert table.rows() == [("ann", "brazil", pytest.approx(1.01), 1, "Brazil")]
