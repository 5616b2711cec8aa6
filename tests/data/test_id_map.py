"""Ids come back as they were given, and an unknown one is refused with close ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loca.data.id_map import IdMap
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
    with pytest.raises(DataError, match="unknown user '~~~'; the 3 known users begin with user-41, user-42, else"):
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
