"""The real data sets give the counts that are known of them."""

import pytest

from loca.data.datasets import PRINTED
from loca.data.item_metadata import read_titles
from loca.data.readers import read_interactions, read_preset
from loca.data.splits import leave_last_out
from loca.data.statistics import describe

pytestmark = pytest.mark.real_data


def counts(interactions):
    found = describe(interactions)
    return found.users, found.items, found.ratings


def test_amusic_with_the_papers_preset_gives_table_1(real_data):
    found = describe(read_preset("AMusic", real_data / "amusic" / "amusic.rating"))
    printed = PRINTED["AMusic"]
    assert (found.users, found.items, found.ratings) == (
        printed.users,
        printed.items,
        printed.ratings,
    )
    assert round(found.sparsity, 2) == printed.sparsity
    assert (
        round(found.concentration, 2) == 26.14
    )  # by the definition in the paper's caption; it prints 14.93
    assert found.unused_items == 11_797 - 11_586
    assert found.repeated_pairs == 97_439 - 83_239


def test_amusic_raw_and_distinct(real_data):
    path = real_data / "amusic" / "amusic.rating"
    assert counts(read_interactions(path, layout="loca-rating", distinct=False)) == (
        16_566,
        11_797,
        169_781,
    )
    distinct = read_interactions(path, layout="loca-rating", min_user_interactions=10)
    assert counts(distinct) == (3_951, 11_483, 75_044)
    assert describe(distinct).repeated_pairs == 0
    split = leave_last_out(distinct, test=5, validation=2)
    assert len(split.test.targets) == 5 * 3_951
    assert len(split.validation.targets) == 2 * 3_951


def test_repeats_in_amusics_test_rows_are_reported(real_data):
    split = leave_last_out(read_preset("AMusic", real_data / "amusic" / "amusic.rating"), test=5)
    seen = next(line for line in split.report if "already in" in line)
    assert seen.startswith("test: 1,193 of the targets")  # 4.8 % of 24,820


def test_movielens_and_games(real_data):
    films = real_data / "ml-1m" / "ratings-ordered.csv.gz"
    assert counts(read_interactions(films, time="rank")) == (6_040, 3_706, 1_000_209)
    assert counts(read_interactions(real_data / "ml-100k" / "u.data", layout="movielens-100k")) == (
        943,
        1_682,
        100_000,
    )
    games = real_data / "games-2018" / "interactions-ordered.csv.gz"
    assert counts(read_interactions(games, layout="loca-ordered")) == (50_546, 16_859, 452_989)
    users, _, rows = counts(read_interactions(games, time="rank", min_user_interactions=10))
    assert (users, rows) == (11_869, 213_485)


def test_movielens_titles(real_data):
    titles = read_titles(real_data / "ml-1m" / "movies.dat")
    assert len(titles) == 3_883
    assert titles[1] == "Toy Story (1995)"
