"""Explanations: contributions that add up, what a person reads, and what no terminal is to see."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

import loca
from loca.data.id_map import IdMap
from loca.data.splits import Split
from loca.evaluation.explain import Explanation, fold
from loca.local.community_description import Locality
from loca.local.community_names import short_title
from loca.local.explain import (
    AnswersOfCommunities,
    AnswersOfParts,
    CommunityAnswer,
    PartAnswer,
    raised_items,
)
from loca.text_table import columns_of

TRAIN = csr_array(
    np.array([[1, 1, 1, 0, 0], [1, 1, 0, 0, 0], [0, 0, 0, 1, 1], [0, 0, 1, 1, 1]], np.float32)
)
LINEAR = {
    "ease": loca.EASE(l2=5.0),
    "next-ease": loca.NextEASE(l2=5.0),
    "slim": loca.SLIM(l1=0.5, l2=5.0),
    "item-knn": loca.ItemKNN(neighbours=20, shrinkage=2.0),
    "popularity": loca.Popularity(),
    "ensemble": loca.Ensemble(base=loca.EASE(l2=5.0), models=3),
    "loca": loca.Loca(
        base=loca.EASE(l2=5.0),
        communities=loca.Kernels(n=4, answer_bandwidth=loca.Quantile(0.6)),
        combiner=loca.FixedShare(0.3),
    ),
    "loca in a loop": loca.Loca(
        base=loca.SLIM(),
        communities=loca.Kernels(n=3, answer_bandwidth=loca.Quantile(0.6)),
        engine=loca.Loop(),
    ),
    "blend": loca.Blend(
        parts=[loca.EASE(), loca.Popularity(), loca.ItemKNN()],
        columns=[(0, 1.0, 0.4), (0, 2.0, 0.1), (1, 1.0, 0.2), (2, 0.0, 0.3)],
    ),
}


def explanation(**changes: object) -> Explanation:
    """Two items of five are listed for the history 0, 1, 2."""
    fields = {
        "user": "ann",
        "names": IdMap(np.array(["a", "b", "c", "d", "e"], dtype=object), "item"),
        "history": np.array([0, 1, 2], np.int32),
        "items": np.array([3, 4], np.int32),
        "scores": np.array([0.5, 0.2], np.float32),
        "ranks": np.array([1, 2]),
        "contributions": np.array([[0.41, 0.22, -0.13], [0.3, -0.1, 0.0]], np.float32),
        "everyone": np.zeros(2, np.float32),
        "is_exact": True,
        "ordered": True,
    }
    return Explanation(**(fields | changes))  # type: ignore[arg-type]


def test_a_share_is_of_all_that_speaks_for_an_item() -> None:
    shares = explanation().shares
    assert shares[0].tolist() == pytest.approx([0.41 / 0.63, 0.22 / 0.63, -0.13 / 0.63, 0])
    assert shares[1].tolist() == pytest.approx([1, -1 / 3, 0, 0])
    alone = explanation(
        contributions=np.zeros((2, 3), np.float32), everyone=np.array([0.5, 0.2], np.float32)
    )
    assert alone.shares[:, -1].tolist() == [1, 1]


def test_the_text_says_what_was_taken_and_what_speaks_against() -> None:
    assert str(explanation()).splitlines() == [
        "History of 3 items, newest first: c, b, a",
        "   1. d",
        "      because you took a (65 %), b (35 %)",
        "      in spite of c (-21 %)",
        "   2. e",
        "      because you took a (100 %)",
        "      in spite of b (-33 %)",
        "Shares are of all that speaks for an item; for and against add up to its score exactly.",
    ]
    assert repr(explanation()) == "Explanation(2 items for 'ann', by 3 items of the history, exact)"


def test_leaving_one_out_is_said_and_nothing_is_said_of_nothing() -> None:
    nothing = str(explanation(contributions=np.full((2, 3), -0.1, np.float32), is_exact=False))
    assert nothing.count("no item of the history speaks for it") == 2
    assert "Shares by leave-one-out" in nothing


def test_the_frame_has_one_row_for_each_pair_the_strongest_first() -> None:
    frame = explanation(everyone=np.array([0.25, 0], np.float32)).to_polars()
    assert frame.columns == ["item", "because", "contribution", "share"]
    assert frame["item"].to_list() == ["d"] * 4 + ["e"] * 3
    assert frame["because"].to_list() == ["a", None, "b", "c", "a", "c", "b"]
    assert frame["contribution"].to_list() == pytest.approx([0.41, 0.25, 0.22, -0.13, 0.3, 0, -0.1])
    assert frame.filter(frame["contribution"] > 0)["share"].to_list() == pytest.approx(
        [0.41 / 0.88, 0.25 / 0.88, 0.22 / 0.88, 1]
    )
    assert explanation().to_pandas()["because"].tolist() == ["a", "b", "c", "a", "c", "b"]


def test_html_escapes_titles() -> None:
    names = IdMap(np.array(["a", "b", "c", "<script>", "e"], dtype=object), "item")
    assert "&lt;script&gt;" in explanation(names=names)._repr_html_()
    assert "<script>" not in explanation(names=names)._repr_html_()


LONG = "The Extraordinarily Long and Winding Title of a Film that Nobody Ever Wanted to Print in One Line (1995)"


def communities(names: IdMap) -> AnswersOfCommunities:
    """Three communities, the first two of which say the same, with names that are far too long."""
    lists = [[3, 4, 5, 6, 7], [4, 3, 5, 6, 8], [9, 10, 11, 12, 13]]
    figures, typical = np.ones(5, np.float32), np.arange(15, 20, dtype=np.int32)
    answers = tuple(
        CommunityAnswer(j, LONG, w, 500 + j, np.array(one, np.int32), figures, typical, figures + j)
        for j, (one, w) in enumerate(zip(lists, (0.5, 0.2, 0.1), strict=True))
    )
    locality = Locality(0.2, 0.9, 3.0)
    return AnswersOfCommunities(
        answers, 0.2, np.array([3, 4, 5, 6, 14], np.int32), figures, 671, locality
    )


def test_every_line_fits_100_columns_however_long_titles_are() -> None:
    names = IdMap(
        np.arange(20), "item", np.array([f"{row} {LONG}" for row in range(20)], dtype=object)
    )
    inside = communities(names)
    part = PartAnswer(
        LONG,
        0.7,
        *(np.array([3, 4], kind) for kind in (np.int32, *[np.float32] * 3, np.int64)),
        inside,
    )
    wide = IdMap(np.arange(20), "item", np.array(["東京物語" * 20] * 20, dtype=object))
    for chosen in (names, wide):
        likely = likely_communities(names)
        for sources in (
            None,
            inside,
            likely,
            AnswersOfParts(np.array([3, 4], np.int32), (part, part, part)),
        ):
            lines = str(explanation(names=chosen, sources=sources)).splitlines()
            assert max(map(columns_of, lines)) <= 100
            assert any("…" in line for line in lines)


def test_communities_that_say_the_same_are_shown_as_one() -> None:
    names = IdMap(np.arange(20), "item")
    inside = communities(names)
    assert [[one.community for one in group.communities] for group in inside.groups] == [
        [0, 1],
        [2],
    ]
    assert [group.weight for group in inside.groups] == pytest.approx([0.7, 0.1])
    assert [group.is_like_global for group in inside.groups] == [True, False]
    text = "\n".join(inside.lines(names, 100))
    assert "   70 % 2 communities (500 to 501 of 671 users each) around The" in text
    assert "say the same as the global model" in text
    assert "known for 15 (3.0×)" in text
    same = replace(inside, communities=inside.communities[:2])
    assert same.lines(names, 100)[0] == (
        "2 communities (500 to 501 of 671 users) answer with 70 % and say the same as the global model."
    )
    assert same.lines(names, 100)[1].startswith("The model: ")
    groups = inside.to_json(names)["groups"]
    assert [(one["communities"], one["is_like_global"]) for one in groups] == [
        ([0, 1], True),
        ([2], False),
    ]


def likely_communities(names: IdMap) -> AnswersOfCommunities:
    """The same as components of two mixtures: the first two are known for the same items."""
    inside = communities(names)
    typical = [[15, 16, 17, 18], [16, 15, 17, 18], [19, 2, 1, 0]]
    lifts = (
        np.array([3, 2.5, 2, 0.9], np.float32),
        np.array([3, 2, 1.5, 1.2], np.float32),
        np.ones(4, np.float32),
    )
    answers = tuple(
        replace(
            one,
            distinctive=np.array(rows, np.int32),
            lifts=lift,
            membership=part,
            mixture=one.community % 2,
        )
        for one, rows, lift, part in zip(
            inside.communities, typical, lifts, (0.62, 0.4, 0.001), strict=True
        )
    )
    last = replace(answers[2], raised=np.array([12, 9], np.int32))
    return replace(inside, communities=(*answers[:2], last))


def test_the_name_of_a_likely_community_leads_and_its_membership_follows() -> None:
    titles = np.array([f"Film {row}, The ({1980 + row})" for row in range(20)], dtype=object)
    names = IdMap(np.arange(20), "item", titles)
    inside = likely_communities(names)
    assert inside.lines(names, 100)[:10] == [
        "Answered by (memberships sum to 100 % in each of 2 mixtures)",
        "   70 % 2 communities that say the same",
        "          community 0: The Film 15, The Film 16, The Film 17 (500 of 671 users, membership 62 %)",
        "          community 1: The Film 16, The Film 15, The Film 18 (501 of 671 users, membership 40 %)",
        "        say the same as the global model",
        "   10 % community 2: nothing beyond what is popular (502 of 671 users, membership <1 %)",
        "        says Film 9, The (1989), Film 10, The (1990), Film 11, The (1991), Film 12, The (1992),",
        "             Film 13, The (1993)",
        "        raises Film 12, The (1992), Film 9, The (1989)",
        "   20 % the global model",
    ]
    one_mixture = replace(inside, communities=inside.communities[:1])
    assert one_mixture.lines(names, 100)[:4] == [
        "Answered by",
        "   50 % community 0: The Film 15, The Film 16, The Film 17 (500 of 671 users, membership 62 %)",
        "        says the same as the global model",
        "        known for Film 15, The (1995) (3.0×), Film 16, The (1996) (2.5×), Film 17, The (1997) (2.0×)",
    ]
    first, second, third = inside.to_json(names)["communities"]
    assert (first["name"], first["membership"], first["mixture"]) == (
        "The Film 15, The Film 16, The Film 17",
        0.62,
        0,
    )
    assert (second["name"], second["mixture"]) == ("The Film 16, The Film 15, The Film 18", 1)
    assert [one["item"] for one in third["raises"]] == [12, 9]
    assert not {"name", "membership", "raises"} & set(
        communities(names).to_json(names)["communities"][0]
    )


def test_many_likely_communities_are_shown_in_part() -> None:
    names, figures = IdMap(np.arange(200), "item"), np.full(10, 2, np.float32)
    answers = tuple(
        CommunityAnswer(
            j,
            j,
            0.1 - j / 1000,
            50,
            rows := np.arange(10 * j, 10 * j + 10, dtype=np.int32),
            figures,
            rows,
            figures,
        )
        for j in range(9)
    )
    answers = tuple(replace(one, membership=0.1, mixture=0) for one in answers)
    same = tuple(replace(answers[0], community=100 + j, weight=0.001) for j in range(4))
    inside = AnswersOfCommunities(
        (*answers, *same), 0.0, np.arange(190, 200, dtype=np.int32), figures
    )
    lines = inside.lines(names, 100)
    assert "          and 2 others" in lines
    assert "   28 % 3 other communities" in lines
    assert sum("community " in line for line in lines) == 3 + 5


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("Lion King, The (1994)", "The Lion King"),
        ("Affair to Remember, An (1957)", "An Affair to Remember"),
        ("Toy Story (1995)", "Toy Story"),
        ("Seven (Se7en) (1995)", "Seven (Se7en)"),
        ("Good, The Bad and The Ugly, The", "The Good, The Bad and The Ugly"),
        ("2001", "2001"),
        ("", ""),
    ],
)
def test_a_title_of_a_catalogue_is_shortened_to_what_people_say(given: str, said: str) -> None:
    assert short_title(IdMap(np.arange(1), "item", np.array([given], dtype=object)), 0) == said


def test_what_a_community_raises_is_among_its_best_and_not_a_shift_of_all_scores() -> None:
    of_all = np.linspace(1, 0, 40, dtype=np.float32)
    own = of_all.copy()
    own[[3, 5, 30]] += np.array(
        [0.1, 0.3, 0.2], np.float32
    )  # the last stays behind the best 20, the second was taken
    history = csr_array(np.eye(1, 40, 5, dtype=np.float32))
    for shift in (0, -7, 7):
        assert raised_items(own + np.float32(shift), of_all, history, 5).tolist()[:1] == [3]
    assert 5 not in raised_items(own, of_all, history, 5)
    assert len(raised_items(own, of_all, csr_array(np.ones((1, 40), np.float32)), 5)) == 0


def test_nothing_that_steers_a_terminal_is_printed() -> None:
    evil = "\x1b[31mred\x1b[0m\n\x07bell\u202eback\u2028\x9b2J\r"
    names = IdMap(np.array([evil, *"bcde"], dtype=object), "item")
    text = str(explanation(names=names, user=evil)) + repr(explanation(user=evil))
    assert not set(text) & set("\x1b\x07\x9b\r\u202e\u2028")
    assert len(str(explanation(names=names)).splitlines()) == len(str(explanation()).splitlines())


@given(st.lists(st.text(max_size=200), max_size=8), st.integers(40, 100))
def test_folded_lines_are_never_wider_than_wanted(pieces: list[str], width: int) -> None:
    lines = fold("      because you took ", pieces, width)
    assert max(map(columns_of, lines)) <= width


@pytest.fixture(scope="module")
def fitted(planted_split: Split) -> dict[str, loca.Recommender]:
    return {name: loca.clone(model).fit(planted_split.train) for name, model in LINEAR.items()}


@pytest.mark.parametrize("name", LINEAR)
@given(
    st.dictionaries(st.integers(0, 59), st.floats(0.125, 1.0, width=32), min_size=1, max_size=12)
)
def test_the_contributions_of_a_linear_model_add_up_to_its_score(
    name: str, fitted: dict[str, loca.Recommender], weights: dict[int, float]
) -> None:
    row = np.zeros((1, 60), np.float32)
    row[0, list(weights)] = list(weights.values())
    why = fitted[name].explain(csr_array(row), n=60)
    assert why.is_exact
    together = why.contributions.sum(axis=1) + why.everyone
    # A sum of at most 12 numbers of 32 bits, each of the size of a score.
    np.testing.assert_allclose(together, why.scores, atol=1e-4 * max(1, np.abs(why.scores).max()))
    np.testing.assert_allclose(why.scores, fitted[name].score(csr_array(row))[0][why.items])


def test_contributions_are_history_times_weight() -> None:
    model = loca.EASE(l2=1).fit(TRAIN)
    why = model.explain(csr_array(np.array([[1, 0, 0.5, 0, 0]], np.float32)), item=1)
    np.testing.assert_allclose(
        why.contributions, [[model.weights_[0, 1], 0.5 * model.weights_[2, 1]]]
    )


def test_leaving_one_out_is_the_score_less_the_score_without(planted_split: Split) -> None:
    model = loca.WMF(factors=8, confidence=5.0).fit(planted_split.train)
    why = model.explain([["i03", "i20", "i08"]], n=4)
    assert not why.is_exact
    assert why.history.tolist() == [3, 20, 8]
    for entry, left in enumerate(([20, 8], [3, 8], [3, 20])):
        row = np.zeros((1, 60), np.float32)
        row[0, left] = 1
        lost = why.scores - model.score(csr_array(row))[0][why.items]
        np.testing.assert_allclose(why.contributions[:, entry], lost, atol=1e-6)


def test_popularity_says_how_many_took_it(planted_split: Split) -> None:
    model = loca.Popularity().fit(planted_split.train)
    why = model.explain("u003", n=1)
    share = (planted_split.train.item_rows == why.items[0]).sum() / planted_split.train.n_users
    assert f"popular with everyone: {100 * share:.0f} % of all users took it" in str(why)
    assert why.to_polars().filter(why.to_polars()["because"].is_null())["share"].to_list() == [1.0]


def test_a_user_who_took_an_item_three_times_counts_once() -> None:
    events = pl.DataFrame({"user": [1, 1, 1, 2, 3], "item": ["a", "a", "a", "b", "a"]})
    model = loca.Popularity().fit(loca.read_interactions(events, distinct=False))
    assert "67 % of all users took it" in str(model.explain([["b"]], item="a"))


def test_any_item_can_be_explained_with_its_place(planted_split: Split) -> None:
    model = loca.EASE(l2=20).fit(planted_split.train)
    items, _ = model.recommend("u003", n=60)
    place = 17
    why = model.explain("u003", item=items[0][place])
    assert why.ranks.tolist() == [place + 1]
    assert f"  {place + 1}. " in str(why)
    seen = planted_split.train.items.ids(why.history[:1])[0]
    assert model.explain("u003", item=seen).ranks.tolist() == [0]
    assert "in the history already" in str(model.explain("u003", item=seen))


def test_the_same_history_in_any_form_is_explained_the_same(planted_split: Split) -> None:
    train = planted_split.train.with_recency(loca.Recency(half_life=3))
    model = loca.EASE(l2=20).fit(train)
    row = train.users.row("u003")
    ids = train.items.ids(train.items_of(row))
    first = str(model.explain("u003"))
    for who in (
        ["u003"],
        [ids],
        {"me": ids},
        train.of_users(np.array([row])),
        planted_split.train.of_users([row]),
    ):
        assert str(model.explain(who)) == first
    for rows in (train.histories(np.array([row])), planted_split.train.histories(np.array([row]))):
        assert str(model.explain(rows, order=train.items_of(row))) == first


def test_nothing_is_left_to_somebody_who_took_everything(planted_split: Split) -> None:
    why = (
        loca.EASE(l2=20)
        .fit(planted_split.train)
        .explain([planted_split.train.items.values.tolist()])
    )
    assert "Nothing is left to recommend" in str(why)
    assert why.to_polars().height == 0
    assert why.to_json()["items"] == []


def test_a_recency_that_is_none_is_refused_and_no_recency_weights_all_alike(
    planted_split: Split,
) -> None:
    train = planted_split.train.with_recency(loca.Recency(half_life=1))
    model = loca.EASE(l2=20).fit(train)
    alike = model.explain([["i03", "i20"]], item="i08", recency=None)
    np.testing.assert_allclose(alike.contributions, model.weights_[[3, 20], [8, 8]][None])
    with pytest.raises(
        loca.ConfigError, match="recency: expected a Recency, None or 'model', found 'x'"
    ):
        model.explain("u003", recency="x")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("who", "item", "message"),
    [
        (
            {},
            None,
            "explain: expected one history, found 0; give a user id or a list of item ids in a list",
        ),
        (
            ["u003", "u004"],
            None,
            "explain: expected one history, found 2; explain them one at a time",
        ),
        ("nobody", None, "unknown user 'nobody'"),
        ([42], None, "unknown user 42"),
        ([["i03", "nosuch"]], None, "unknown item 'nosuch'"),
        ([[]], None, "expected at least one item to answer from"),
        ("u003", "nosuch", "unknown item 'nosuch'"),
    ],
)
def test_what_cannot_be_explained_is_refused_in_one_line(
    planted_split: Split, who: object, item: str | None, message: str
) -> None:
    with pytest.raises(loca.DataError, match=message) as refused:
        loca.EASE(l2=20).fit(planted_split.train).explain(who, item)
    assert "\n" not in str(refused.value)
