"""Recommendations for ids, interactions and bare histories: ids as they came in, seen items out, short lists marked."""

from __future__ import annotations

import numpy as np
import pandas
import polars
import pytest
from scipy.sparse import csr_array, issparse

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
        IdMap(
            np.array(
                list(histories), dtype=object if isinstance(next(iter(histories)), str) else None
            ),
            "user",
        ),
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
    assert recommend(model, ["ben"], 2, only=["alien", "dune"], never=["alien"])[0].tolist() == [
        [None, None]
    ]
    with pytest.raises(DataError, match="unknown item 'alein'; close ones are alien"):
        recommend(model, ["ben"], never=["alein"])
    with pytest.raises(
        DataError, match=r"only: expected a list of item ids, found 'alien'; write \['alien'\]"
    ):
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
    assert recommend(Next(KNOWN), new, 2)[0].tolist() == [
        ["eraserhead", "casablanca"],
        ["eraserhead", "brazil"],
    ]
    with pytest.raises(DataError, match="unknown item 'dunes'; close ones are dune"):
        recommend(Next(KNOWN), interactions({"zoe": ["dunes"]}, ["dunes"]))


def test_recency_of_the_known_interactions_weighs_the_answer():
    known = interactions({"ann": ["casablanca", "alien"]})
    assert recommend(Next(known), ["ann"], 1)[0].tolist() == [["dune"]]
    assert recommend(Next(known.with_recency(Recency.per_position(0.5))), ["ann"], 1)[
        0
    ].tolist() == [["brazil"]]


def test_many_users_some_asked_for_twice_are_answered_in_blocks_that_give_the_same_lists(
    monkeypatch,
):
    rng = np.random.default_rng(0)
    known = interactions(
        {row: rng.permutation(FILMS)[: rng.integers(1, 4)].tolist() for row in range(50)}
    )
    asked = rng.integers(0, 50, 80).tolist()
    whole = recommend(Next(known), asked, 3)
    monkeypatch.setattr(
        recommendation, "block_rows", lambda count: top_n.block_rows(count, budget=5 * 12 * 7)
    )
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
    with pytest.raises(
        DataError, match="user 'eve' has an empty history; expected at least one item"
    ):
        recommend(model, ["ann", "eve"])
    with pytest.raises(DataError, match="user 'eve' has an empty history"):
        recommend(model, KNOWN)
    with pytest.raises(DataError, match="user 1 has an empty history"):
        recommend(model, csr_array(np.eye(2, 5) * [[1], [0]]))
    with pytest.raises(DataError, match="fitted on a bare matrix and knows no user ids"):
        recommend(Next(), ["ann"])
    with pytest.raises(DataError, match="expected the model's 5 items, found 4"):
        recommend(model, csr_array(np.ones((1, 4))))
    for n in (-1, 0, 2.5, "3", True, None):
        with pytest.raises(ConfigError, match=f"list length of 1 or more, found {n!r}"):
            recommend(model, ["ann"], n)
    with pytest.raises(DataError, match="unknown user 4711"):
        recommend(model, 4711)
    with pytest.raises(
        DataError, match=r"who: expected user ids, lists of item ids, a data frame, .* found object"
    ):
        recommend(model, object())
    with pytest.raises(ConfigError, match="unknown on_unknown 'skp'; did you mean 'skip'"):
        recommend(model, ["ann"], on_unknown="skp")
    with pytest.raises(DataError, match="knows no user ids"):
        recommend(Next(), ["ann"])
    with pytest.raises(DataError, match="does not say how many items it has"):
        recommend(Next(), [[0, 1]])
    with pytest.raises(
        DataError, match="a history without times cannot be weighted by half-life 5 steps of time"
    ):
        recommend(model, ["ann"], recency=Recency(5, "time"))


def test_the_table_has_a_row_for_each_filled_place_and_titles_where_there_are_any():
    table = recommendation_table(Next(KNOWN), ["ann", "ben"], 4)
    assert table.columns == ["user", "item", "score", "rank"]
    assert table["user"].to_list() == ["ann"] * 3 + ["ben"] * 4
    assert table["item"].to_list()[:3] == ["dune", "brazil", "eraserhead"]
    assert table["rank"].to_list() == [1, 2, 3, 1, 2, 3, 4]
    assert table["score"].dtype == polars.Float32
    titled = interactions(
        {"ann": ["alien"]}, labels=np.array([name.title() for name in FILMS], dtype=object)
    )
    table = recommendation_table(Next(titled), ["ann"], 1)
    assert table.rows() == [("ann", "brazil", pytest.approx(1.01), 1, "Brazil")]


def test_a_history_in_any_form_gets_the_list_of_the_same_user():
    known = interactions({"ann": ["casablanca", "alien"], "ben": ["dune", "brazil"]})
    weighted = known.with_recency(Recency.per_position(0.5))
    frame = {"user": ["ann", "ann"], "item": ["casablanca", "alien"]}
    forms = [
        "ann",
        ["ann"],
        [["casablanca", "alien"]],
        {"ann": ("casablanca", "alien")},
        known.of_users(np.array([0])),
    ]
    forms += [
        polars.DataFrame(frame),
        pandas.DataFrame(frame),
        known.matrix()[[0]],
        weighted.histories()[[0]],
    ]
    forms += [interactions({"x": ["casablanca", "alien"]}, ["alien", "unheard of", "casablanca"])]
    for who in forms:
        found = recommend(Next(weighted), who, 3)
        assert found.items.tolist() == [["brazil", "dune", "eraserhead"]]
        np.testing.assert_array_equal(found.scores, recommend(Next(weighted), ["ann"], 3).scores)
        if issparse(who) and (who.data != 1).any():
            continue  # its values are weights, whatever the recency
        plain = recommend(Next(weighted), who, 3, recency=None)
        assert plain.items.tolist() == [["dune", "brazil", "eraserhead"]]


def test_a_history_keeps_the_recency_that_it_brings():
    weighted = KNOWN.with_recency(Recency.per_position(0.5))
    own = interactions({"zoe": ["casablanca", "alien"]}).with_recency(Recency.per_position(0.1))
    _, scores = recommend(Next(weighted), own, 2)
    np.testing.assert_allclose(scores, [[1.01, 0.13]], rtol=1e-6)
    _, scores = recommend(Next(weighted), csr_array(np.array([[1.0, 0, 0.25, 0, 0]])), 2)
    np.testing.assert_allclose(scores, [[1.01, 0.28]], rtol=1e-6)


def test_known_users_of_other_interactions_are_matched_by_item_id_and_get_the_models_recency():
    other = interactions(
        {"zoe": ["casablanca", "alien"]}, ["eraserhead", "casablanca", "dune", "alien"]
    )
    model = Next(KNOWN.with_recency(Recency.per_position(0.5)))
    assert recommend(model, ["zoe"], 2, known=other).items.tolist() == [["brazil", "dune"]]


def test_rows_in_the_order_of_the_items_are_weighted_with_a_warning():
    model = Next(KNOWN.with_recency(Recency.per_position(0.5)))
    with pytest.warns(UserWarning, match="read as oldest first"):
        recommend(model, csr_array(np.array([[1.0, 0, 1.0, 0, 0]])), 2)


def test_unknown_users_and_items_are_skipped_or_get_the_popular_list():
    model = Next(interactions({"ann": ["alien", "casablanca"], "ben": ["casablanca"], "eve": []}))
    who = ["ben", "nobody", "eve"]
    skipped = recommend(model, who, 2, on_unknown="skip")
    assert skipped.users.tolist() == who
    assert skipped.items.tolist() == [["dune", "eraserhead"], [None, None], [None, None]]
    assert skipped.to_polars()["user"].to_list() == ["ben", "ben"]
    popular = recommend(model, who, 2, on_unknown="popular")
    assert popular.items.tolist() == [
        ["dune", "eraserhead"],
        ["casablanca", "alien"],
        ["casablanca", "alien"],
    ]
    np.testing.assert_allclose(popular.scores[1:], [[2 / 3, 1 / 3]] * 2, rtol=1e-6)
    strange = [["unheard of", "casablanca"], ["unheard of"], []]
    assert recommend(model, strange, 1, on_unknown="popular").items.tolist() == [
        ["dune"],
        ["casablanca"],
        ["casablanca"],
    ]
    with pytest.raises(DataError, match="unknown item 'unheard of'"):
        recommend(model, strange)
    with pytest.raises(DataError, match="does not know what is popular"):
        recommend(Next(), csr_array(np.eye(2, 5) * [[1], [0]]), on_unknown="popular")


def test_candidates_are_each_users_own():
    found = recommend(
        Next(KNOWN), ["ann", "ben"], 2, candidates={"ben": ["alien", "brazil", "dune"], "eve": []}
    )
    assert found.items.tolist() == [["dune", "brazil"], ["brazil", "alien"]]
    with pytest.raises(DataError, match="unknown item 'alein'"):
        recommend(Next(KNOWN), ["ben"], candidates={"ben": ["alein"]})
    with pytest.raises(
        DataError, match=r"candidates of ben: expected a list of item ids, found 'alien'"
    ):
        recommend(Next(KNOWN), ["ben"], candidates={"ben": "alien"})

    with pytest.raises(
        DataError, match="candidates: expected a dict of user id to a list of item ids, found list"
    ):
        recommend(Next(KNOWN), ["ben"], candidates=[["alien"]])


def test_unknown_users_as_text_beside_users_as_numbers_make_a_table_of_text():
    found = recommend(
        Next(interactions({1: ["alien"], 2: ["dune"]})), [2, "nobody"], 1, on_unknown="popular"
    )
    assert found.users.tolist() == [2, "nobody"]
    assert (
        found.to_polars()["user"].to_list() == ["2", "nobody"] == found.to_pandas()["user"].tolist()
    )
    only_numbers = recommend(
        Next(interactions({1: ["alien"], 2: ["dune"]})), [2, 3], 1, on_unknown="popular"
    )
    assert only_numbers.to_polars()["user"].to_list() == [2, 3]


@pytest.mark.parametrize(
    ("who", "problem"),
    [
        (
            {"zoe": "12"},
            r"history of 'zoe': expected a list of item ids, found '12'; write \['12'\]",
        ),
        ({"zoe": 12}, "history of 'zoe': expected a list of item ids, found 12"),
        ([1, [2]], "expected user ids or lists of item ids, found both"),
        ([{1, 2}], "found a set, which has no order"),
        (
            np.ones((1, 3)),
            "expected lists of item ids, found a dense matrix of float64; give csr_array",
        ),
        ("1_2", "unknown user '1_2'"),
    ],
)
def test_what_only_looks_like_a_history_is_refused(who, problem):
    model = Next(interactions({1: [1, 2], 12: [1]}, item_ids=[1, 2, 12]))
    with pytest.raises(DataError, match=problem):
        recommend(model, who)


def test_a_list_is_never_longer_than_the_catalogue():
    assert recommend(Next(KNOWN), ["ann", "ben"], 10**12).items.shape == (2, 5)


def test_the_answer_prints_short_and_becomes_a_frame_of_either_kind():
    found = recommend(Next(KNOWN), ["ann", "ben"] * 4, 2)
    assert repr(found).splitlines()[:3] == [
        "up to 2 items for 8 users",
        "user  items",
        "ann   dune, brazil",
    ]
    assert len(repr(found).splitlines()) == 8
    assert found.to_pandas().to_dict("list") == found.to_polars().to_dict(as_series=False)
    assert found.titles is None


def test_unknown_users_of_another_kind_make_a_column_of_text_and_of_the_same_kind_do_not():
    model = Next(interactions({7: [10, 30], 8: [40]}, [10, 20, 30, 40]))
    for unknown in ("nobody", 2.5):
        found = recommend(model, [7, unknown], 1, on_unknown="popular")
        assert found.to_polars()["user"].to_list() == ["7", str(unknown)]
    same = recommend(model, np.array([7, 9]), 1, on_unknown="popular")
    assert same.to_polars()["user"].to_list() == [7, 9]
