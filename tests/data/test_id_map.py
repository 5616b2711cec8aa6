"""Ids come back as they were given, and an unknown one is refused with close ones."""

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loca.data.id_map import IdMap, find_item, find_items
from loca.errors import DataError

TEXTS = st.lists(st.text(min_size=1, max_size=5), unique=True, max_size=20)
NUMBERS = st.lists(st.integers(-(2**63), 2**63 - 1), unique=True, max_size=20)


@given(st.one_of(TEXTS, NUMBERS))
def test_ids_and_rows_go_both_ways(ids):
    kind = object if ids and isinstance(ids[0], str) else np.int64
    known = IdMap(np.array(ids, dtype=kind), "item")
    assert known.rows(ids).tolist() == list(range(len(ids)))
    assert known.ids(range(len(ids))) == ids
    assert all(one in known for one in ids)


def test_the_text_of_a_number_means_the_number_and_a_fraction_does_not():
    known = IdMap(np.array([7, 42]), "user")
    assert known.row("42") == known.row(42.0) == known.row(np.int64(42)) == 1
    assert "7.5" not in known
    assert 7.5 not in known
    assert float("inf") not in known
    assert None not in known


def test_large_whole_numbers_are_told_apart():
    known = IdMap(np.array([2**53, 2**53 + 1]), "user")
    assert (known.row(2**53 + 1), known.row(str(2**53 + 1)), known.row(2**53)) == (1, 1, 0)


def test_ids_that_are_fractions_are_found_by_number_and_text():
    known = IdMap(np.array([1.0, 2.5]), "item")
    assert known.row("2.5") == known.row(2.5) == 1
    assert known.row(1) == 0
    assert "x" not in known


@pytest.mark.parametrize("kind", [np.uint32, "U3", object])
def test_unsigned_numbers_and_numpy_text_are_accepted(kind):
    values = np.array([1, 2], dtype=kind) if kind is np.uint32 else np.array(["1", "2"], dtype=kind)
    assert IdMap(values).row("2") == 1


def test_an_unknown_id_is_refused_with_close_ones():
    known = IdMap(np.array(["user-41", "user-42", "else"], dtype=object), "user")
    with pytest.raises(DataError, match="unknown user 'user-4'; close ones are user-4"):
        known.row("user-4")
    with pytest.raises(
        DataError, match="unknown user '~~~'; the 3 known users begin with user-41, user-42, else"
    ):
        known.row("~~~")
    titled = known.with_labels({"else": "The Matrix"})
    with pytest.raises(DataError, match=r"close ones are else \(The Matrix\)"):
        titled.row("The Matrx")


def test_labels_stay_with_their_ids():
    known = IdMap(np.array([1, 2, 3]), "item").with_labels({"1": "one", 3: "three"})
    assert [known.label(row) for row in range(3)] == ["one", "2", "three"]
    assert [known.keep(np.array([2, 0])).label(row) for row in range(2)] == ["three", "one"]


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (np.array([1, 1]), "1 occur more than once"),
        (np.array([[1]]), "expected one row of ids"),
        (np.array([True]), "expected text or numbers, found bool"),
        (np.array(["a", 1], dtype=object), "expected all text or all numbers, found a mixture"),
    ],
)
def test_ids_that_will_not_do_are_refused(values, problem):
    with pytest.raises(DataError, match=problem):
        IdMap(values)
    with pytest.raises(DataError, match="item labels: expected 1, found 2"):
        IdMap(np.array([1]), "item", np.array(["a", "b"], dtype=object))


FILMS = {
    6: "Heat (1995)",
    7: "Sabrina (1995)",
    915: "Sabrina (1954)",
    2571: "Matrix, The (1999)",
    2278: "Ronin (1998)",
    1: "Toy Story (1995)",
    3114: "Toy Story 2 (1999)",
    2: "Jumanji (1995)",
    73: "Misérables, Les (1995)",
    29: "City of Lost Children, The (Cité des enfants perdus, La) (1995)",
    47: "Seven (a.k.a. Se7en) (1995)",
    1201: "Good, The Bad and The Ugly, The (1966)",
    1223: "Grand Day Out, A (1992)",
    2924: "Drunken Master (Zui quan) (1979)",
    1022: "Cinderella (1950)",
    588: "101 Dalmatians (1996)",
    1196: "Star Wars: Episode V - The Empire Strikes Back (1980)",
    260: "Star Wars: Episode IV - A New Hope (1977)",
    527: "Schindler's List (1993)",
    3266: "Smørrebrød & Straße (1992)",
    77: "The Third Man (1949)",
    5618: "千と千尋の神隠し (2001)",
}


@pytest.fixture
def films():
    return IdMap(np.array(list(FILMS)), "item", np.array(list(FILMS.values()), dtype=object))


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("Heat,Ronin", [6, 2278]),
        ("2278,heat", [2278, 6]),
        ("Heat (1995)", [6]),
        ("heat 1995", [6]),
        ("The Matrix", [2571]),
        ("matrix", [2571]),
        ("Matrix, The,Heat", [2571, 6]),
        ("Matrix, The (1999)", [2571]),
        ("les miserables", [73]),
        ("MISÉRABLES, LES", [73]),
        ("sabrina (1954)", [915]),
        ("Sabrina 1995", [7]),
        ("Toy Story", [1]),
        ("Toy Story,2", [1, 2]),
        ("toy story 2", [3114]),
        ("la cite des enfants perdus", [29]),
        ("City of Lost Children", [29]),
        ("se7en", [47]),
        ("seven", [47]),
        ("The Good, the Bad and the Ugly", [1201]),
        ("good, the bad and the ugly, the,heat", [1201, 6]),
        ("a grand day out", [1223]),
        ("third man, the", [77]),
        ("heat,Third Man,The", [6, 77]),
        ("zui quan", [2924]),
        ("empire strikes", [1196]),
        ("dalmat", [588]),
        ("schindlers list", [527]),
        ("smorrebrod and strasse", [3266]),
        ("千と千尋の神隠し", [5618]),
        ("Heat,Ronin,heat", [2278, 6]),
        ("", []),
        (" , ", []),
    ],
)
def test_a_title_is_found_as_a_person_types_it(films, typed, meant):
    assert films.ids(find_items(films, [typed])) == meant


@pytest.mark.parametrize(
    ("typed", "listed"),
    [
        ("sabrina", ["7 (Sabrina (1995))", "915 (Sabrina (1954))"]),
        ("star wars", ["260 (Star Wars: Episode IV", "1196 (Star Wars: Episode V"]),
        ("toy", ["1 (Toy Story (1995))", "3114 (Toy Story 2 (1999))"]),
    ],
)
def test_where_several_titles_fit_all_are_listed_and_none_is_taken(films, typed, listed):
    with pytest.raises(
        DataError, match=f"'{typed}' fits {len(listed)} items: .*; give the id of one"
    ) as refused:
        find_items(films, ["heat", typed])
    assert all(one in str(refused.value) for one in listed)


@pytest.mark.parametrize(
    ("typed", "close"),
    [
        ("Heta", "close ones are 6 (Heat (1995))"),
        ("The Matricks", "close ones are 2571 (Matrix, The (1999))"),
        ("101", "close ones are 1201"),  # a mistyped id, not the beginning of 101 Dalmatians
        ("Sabrina (1977)", "close ones are 7 (Sabrina (1995)), 915 (Sabrina (1954))"),
        ("!!!", "the 22 known items begin with 6, 7, 915"),
    ],
)
def test_an_unknown_title_is_refused_with_close_ones(films, typed, close):
    with pytest.raises(DataError) as refused:
        find_items(films, [typed])
    assert str(refused.value).startswith(f"unknown item {typed!r}; {close}")


def test_an_exact_id_wins_over_a_title_and_an_exact_title_over_others():
    items = IdMap(np.array(["Heat", "x", "y", "a"]), "item", ["Ronin", "Heat", "HEAT", "Article"])
    assert find_item(items, "Heat") == 0
    assert find_item(items, "HEAT") == 2
    assert find_items(items, ["Ronin,a"]) == [0, 3], "an id behind a comma is no article"
    with pytest.raises(
        DataError, match=r"'heat' fits 2 items: x \(Heat\), y \(HEAT\); give the id of one"
    ):
        find_item(items, "heat")


def test_items_without_titles_are_found_by_id_alone():
    items = IdMap(np.array([10, 11]), "item")
    assert find_items(items, ["11,10"]) == [1, 0]
    with pytest.raises(DataError, match="unknown item 'Heat'; the 2 known items begin with 10, 11"):
        find_items(items, ["Heat"])


def test_an_item_without_a_title_is_not_found_by_a_part_of_its_id():
    items = IdMap(np.array(["b123", "b2"]), "item").with_labels({"b2": "Heat"})
    assert find_items(items, ["heat,b123"]) == [1, 0]
    with pytest.raises(DataError, match="unknown item 'b12'; close ones are b123"):
        find_items(items, ["b12"])


def test_an_id_may_hold_a_comma():
    items = IdMap(np.array(["a", "b", "a,b"]), "item")
    assert find_items(items, ["a,b"]) == [2]
    assert find_items(items, ["b,a"]) == [1, 0]


def test_many_fitting_titles_are_counted():
    items = IdMap(np.arange(40), "item", [f"Rocky {place}" for place in range(40)])
    with pytest.raises(
        DataError, match=r"fits 40 items: 0 \(Rocky 0\), .* and 34 more; give the id of one"
    ):
        find_item(items, "rocky")


def plain(text):
    """A second opinion on which titles sound the same: the letters alone, without their accents and articles."""
    folded = (
        text.casefold().replace("ø", "o").replace("é", "e").replace("’", "").replace("&", " and ")
    )
    words = "".join(one if one.isalpha() else " " for one in folded).split()
    return " ".join(words[1:] if words[:1] in (["a"], ["de"]) and words[1:] else words)


WORDS = st.lists(st.text("abcdeéøß ’&-", min_size=1, max_size=6), min_size=1, max_size=4)


@given(
    st.lists(WORDS.map(" ".join), min_size=1, max_size=8), st.booleans(), st.integers(1900, 2030)
)
def test_every_title_with_a_year_finds_its_item_or_is_asked_about(names, is_upper, year):
    titles = [f"{name} ({year + place})" for place, name in enumerate(names)]
    items = IdMap(np.arange(len(titles)) + 1000, "item", titles)
    for row, title in enumerate(titles):
        assert find_item(items, title) == row
        assert find_item(items, title.upper() if is_upper else title.lower()) == row
        words = titles[row].removesuffix(f" ({year + row})").strip()
        fit = [
            other for other, name in enumerate(names) if name.strip().casefold() == words.casefold()
        ]
        if (
            len(fit) == 1
            and any(one.isalnum() for one in words)
            and len({*map(plain, names)}) == len(names)
        ):
            assert find_item(items, words) == row


@given(st.text(max_size=30))
def test_any_text_is_answered_or_refused(text):
    items = IdMap(np.array(list(FILMS)), "item", np.array(list(FILMS.values()), dtype=object))
    with suppress(DataError):
        assert all(0 <= row < len(items) for row in find_items(items, [text]))
