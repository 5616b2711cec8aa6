"""Users of two tastes in small histories whose genres are laid out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from loca.data.id_map import IdMap
from loca.errors import ConfigError, DataError
from loca.reproduction.table4 import GenreTable, Sought, find_two_tastes, tabulate_genres

# Items 0 … 9 are War, 10 … 19 are Love, 20 and 21 are both, 22 … 59 are Drama.
GENRES = {
    **dict.fromkeys(range(10), ("War",)),
    **dict.fromkeys(range(10, 20), ("Love",)),
    **dict.fromkeys((20, 21), ("War", "Love")),
    **dict.fromkeys(range(22, 60), ("Drama",)),
}
SOUGHT = Sought(history=8)


def table() -> GenreTable:
    return tabulate_genres(IdMap.numbered(60, "item"), GENRES)


def histories(*of_users: list[int]) -> csr_array:
    matrix = np.zeros((len(of_users), 60), np.float32)
    for row, items in enumerate(of_users):
        matrix[row, items] = 1
    return csr_array(matrix)


def drama(count: int) -> list[int]:
    return list(range(22, 22 + count))


def test_genres_are_tabled_by_name_and_ids_match_as_text() -> None:
    found = tabulate_genres(
        IdMap(np.array(["1", "2", "3"], dtype=object), "item"), {1: ("B", "A"), 3: ("C",), 9: ("D",)}
    )
    assert found.names == ("A", "B", "C")
    assert [found.genres_of(row) for row in range(3)] == [("A", "B"), (), ("C",)]
    with pytest.raises(DataError, match="expected at least two genres among the 60 items, found 0"):
        tabulate_genres(IdMap.numbered(60, "item"), {"x": ("A", "B")})


def test_only_a_long_history_with_two_leading_genres_is_taken() -> None:
    two = [0, 1, 2, 3, 10, 11, 12, *drama(3)]
    one = [0, 1, 2, 3, 4, 5, 6, 7, *drama(2)]
    short = [0, 1, 2, 10, 11, 12]
    usual = drama(20)
    found = find_two_tastes(histories(usual, two, one, short, drama(30)), table(), SOUGHT)
    assert found.user_rows.tolist() == [1]
    # Of 76 entries 15 are War (the catalogue has 12 of 60, which is more), of Love 6 of 76 against 12 of 60.
    np.testing.assert_allclose(found.shares, [[0.4, 0.3]])
    np.testing.assert_allclose(found.usual, [[0.2, 0.2]])
    assert found.both.tolist() == [0]
    names = [table().names[place] for place in found.genres[0]]
    assert names == ["War", "Love"]


def test_genres_that_are_mostly_in_the_same_items_are_not_two_tastes() -> None:
    alike = [0, 10, 20, 21, *drama(4)]  # three of eight in each, two of them in both
    found = find_two_tastes(histories(alike, drama(30)), table(), SOUGHT)
    assert len(found) == 0
    loose = find_two_tastes(histories(alike, drama(30)), table(), Sought(history=8, alike=0.5))
    assert loose.user_rows.tolist() == [0]
    assert loose.both.tolist() == [0.25]


def test_the_most_promising_user_comes_first_and_equal_ones_by_row() -> None:
    weak = [0, 1, 2, 10, 11, 12, *drama(4)]
    strong = [0, 1, 2, 3, 10, 11, 12, 13, *drama(2)]
    found = find_two_tastes(histories(weak, drama(38), strong, weak, drama(38)), table(), SOUGHT)
    assert found.user_rows.tolist() == [2, 0, 3]
    assert found.keep(np.array([1])).user_rows.tolist() == [0]


def test_impossible_wishes_are_refused() -> None:
    with pytest.raises(ConfigError, match="two tastes: expected shares from 0 to 1, found share 2"):
        Sought(share=2)
    with pytest.raises(ConfigError, match="expected 1 or more items and users, found 0 and 300"):
        Sought(history=0)
