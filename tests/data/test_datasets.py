"""Every published format is read from a small file written in it, and the paper's data sets as in the paper."""

import dataclasses
import gzip
import json
import re
import zipfile
from pathlib import Path

import pytest
from event_examples import histories_of

import loca
from loca.data.datasets import DATA_SETS, LAYOUTS, PRINTED, find_layout, find_preset
from loca.data.readers import read_interactions, read_preset
from loca.data.recency import Recency
from loca.data.splits import leave_last_out
from loca.errors import ConfigError, DataError
from loca.remarks import LocaWarning

TAB = "196\t242\t3\t20\n196\t302\t3\t10\n22\t377\t1\t5\n"
COLONS = TAB.replace("\t", "::")
COMMAS = TAB.replace("\t", ",")
CSV = "userId,movieId,rating,timestamp\n" + COMMAS
NUMBERED = {196: [302, 242], 22: [377]}

PUBLISHED = {
    "movielens-100k": (TAB, "ml-100k/u.data"),
    "movielens-1m": (COLONS, "ml-1m/ratings.dat"),
    "movielens-10m": (COLONS, "ml-10M100K/ratings.dat"),
    "movielens-20m": (CSV, "ml-20m/ratings.csv"),
    "movielens-25m": (CSV, "ml-25m/ratings.csv"),
    "movielens-32m": (CSV, "ml-32m/ratings.csv"),
    "yelp-eals": (TAB, "yelp.rating"),
    "loca-rating": (COMMAS, "amusic.rating"),
}


@pytest.mark.parametrize("layout", PUBLISHED)
@pytest.mark.parametrize("packing", ["plain", "gz", "zip", "folder"])
def test_each_layout_is_read_plain_and_packed(tmp_path, layout, packing):
    text, member = PUBLISHED[layout]
    if packing == "plain":
        path = tmp_path / "ratings"
        path.write_text(text)
    elif packing == "gz":
        path = tmp_path / "ratings.gz"
        path.write_bytes(gzip.compress(text.encode()))
    elif packing == "zip":
        path = tmp_path / "published.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("ml/README", "not a table\n")
            archive.writestr(member, text)
    elif layout == "loca-rating":
        pytest.skip("the authors' files have no published folder")
    else:
        path = tmp_path / "published"
        (path / member).parent.mkdir(parents=True)
        (path / member).write_text(text)
    assert histories_of(read_interactions(path, layout=layout)) == NUMBERED


@pytest.mark.parametrize("text", [COMMAS, TAB, COLONS])
def test_the_authors_files_may_be_split_in_three_ways(tmp_path, text):
    path = tmp_path / "data.rating"
    path.write_text(text)
    assert histories_of(read_interactions(path, layout="loca-rating")) == NUMBERED


AMAZON = {"A2SUAM1J3GNN3B": ["B00000JBHP", "0000013714"], "APYOBQE6M18AA": ["0000013714"]}
USER_FIRST = "A2SUAM1J3GNN3B,0000013714,5.0,20\nA2SUAM1J3GNN3B,B00000JBHP,4.0,10\nAPYOBQE6M18AA,0000013714,1.0,5\n"
ITEM_FIRST = "".join(
    ",".join([item, user, *rest]) + "\n"
    for user, item, *rest in (line.split(",") for line in USER_FIRST.splitlines())
)


@pytest.mark.parametrize("layout", ["amazon-ratings", "amazon-ratings-2014", None])
def test_amazon_ratings_of_2014_have_the_user_first(tmp_path, layout):
    path = tmp_path / "ratings.csv"
    path.write_text(USER_FIRST)
    assert histories_of(read_interactions(path, layout=layout)) == AMAZON


@pytest.mark.parametrize("layout", ["amazon-ratings", "amazon-ratings-2018", None])
def test_amazon_ratings_of_2018_have_the_item_first(tmp_path, layout):
    path = tmp_path / "ratings.csv"
    path.write_text(ITEM_FIRST)
    assert histories_of(read_interactions(path, layout=layout)) == AMAZON


def test_ids_that_are_not_amazons_are_refused_where_their_order_is_unknown(tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_text(COMMAS)
    with pytest.raises(
        DataError, match=r"ratings\.csv: .* name the layout amazon-ratings-2014 .*2018"
    ) as refusal:
        read_interactions(path, layout="amazon-ratings")
    assert "\n" not in str(refusal.value)


def test_amazon_reviews_are_json_lines(tmp_path):
    reviews = [
        {
            "overall": 5.0,
            "reviewerID": user,
            "asin": item,
            "reviewText": 'a "b"\n',
            "unixReviewTime": time,
        }
        for user, item, time in (("A1", "0000013714", 20), ("A1", "B1", 10), ("A2", "B1", 5))
    ]
    path = tmp_path / "Digital_Music_5.json.gz"
    path.write_bytes(gzip.compress("\n".join(json.dumps(one) for one in reviews).encode()))
    for layout in ("amazon-reviews", None):
        assert histories_of(read_interactions(path, layout=layout)) == {
            "A1": ["B1", "0000013714"],
            "A2": ["B1"],
        }


def test_an_unknown_layout_is_refused_with_the_nearest():
    with pytest.raises(
        ConfigError, match=r"unknown layout 'movielens1m'; did you mean 'movielens-1m'"
    ):
        find_layout("movielens1m")
    with pytest.raises(ConfigError, match="known are movielens-100k, movielens-1m"):
        find_layout("?")


def test_a_layout_in_another_form_is_refused(tmp_path):
    path = tmp_path / "ratings.dat"
    path.write_text(COLONS)
    with pytest.raises(DataError, match=r"expected the layout amazon-reviews .* found text"):
        read_interactions(path, layout="amazon-reviews")
    path.write_text('{"reviewerID": "a"}\n')
    with pytest.raises(DataError, match=r"expected the layout movielens-1m .* found JSON"):
        read_interactions(path, layout="movielens-1m")


def test_a_given_column_or_separator_goes_before_the_layouts(tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_text(CSV.replace(",", ";"))
    with pytest.raises(DataError, match="the file seems to be split by ';'"):
        read_interactions(path, layout="movielens-20m")
    assert histories_of(read_interactions(path, layout="movielens-20m", separator=";")) == NUMBERED
    swapped = read_interactions(
        path, layout="movielens-20m", separator=";", user="movieId", item="userId"
    )
    assert swapped.users.ids(range(3)) == [242, 302, 377]


def test_every_layout_says_what_it_is_and_is_tested_here():
    assert all(layout.name == name and layout.about for name, layout in LAYOUTS.items())
    assert set(LAYOUTS) == {
        *PUBLISHED,
        "amazon-ratings",
        "amazon-ratings-2014",
        "amazon-ratings-2018",
        "amazon-reviews",
        "loca-ordered",
        "user-items",
    }


ROWS = [(1, item, 5, time) for item, time in zip("abcdefghia", range(10), strict=True)] + [
    (2, "z", 1, 3)
]


def write(path, kind):
    if kind == "json":
        names = ("reviewerID", "asin", "overall", "unixReviewTime")
        path.write_text("\n".join(json.dumps(dict(zip(names, row, strict=True))) for row in ROWS))
        return
    separator = {"csv": ",", "named csv": ",", "tab": "\t", "colons": "::"}[kind]
    header = "userId,movieId,rating,timestamp\n" if kind == "named csv" else ""
    path.write_text(header + "\n".join(separator.join(map(str, row)) for row in ROWS))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("ML10M", kind) for kind in ("colons", "csv", "tab")),
        *(("ML20M", kind) for kind in ("named csv", "csv", "tab", "colons")),
        *(("AMusic", kind) for kind in ("csv", "tab", "colons", "json")),
        *(("agames", kind) for kind in ("csv", "json")),
        *(("Yelp", kind) for kind in ("tab", "csv")),
    ],
)
def test_each_preset_reads_its_published_and_its_authors_files(tmp_path, name, kind):
    path = tmp_path / "data"
    write(path, kind)
    found = read_preset(name, path)
    # Ten rows with a repeat are enough; user 2 goes, its item stays in the catalogue.
    assert histories_of(found) == {1: list("abcdefghia")}
    assert "z" in found.items
    split = leave_last_out(found, test=5)
    assert histories_of(split.test.targets) == {1: list("fghia")}
    assert split.validation is None


def test_a_preset_finds_the_table_in_the_published_zip(tmp_path):
    write(tmp_path / "ratings.csv", "named csv")
    path = tmp_path / "ml-20m.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("ml-20m/movies.csv", "movieId,title\n")
        archive.write(tmp_path / "ratings.csv", "ml-20m/ratings.csv")
    assert len(read_preset("ML20M", path, recency=Recency(3))) == 10


def test_a_given_layout_goes_before_the_presets(tmp_path):
    path = tmp_path / "data"
    write(path, "csv")
    assert len(read_preset("Yelp", path, layout="loca-rating")) == 10
    with pytest.raises(DataError, match="one column found when split by"):
        read_preset("Yelp", path, layout="yelp-eals")
    path.write_text(path.read_text().replace(",", ";"))
    with pytest.raises(DataError, match="the file seems to be split by ';'"):
        read_preset("Yelp", path)


def test_an_unknown_preset_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="unknown preset 'AMusik'; did you mean 'AMusic'"):
        find_preset("AMusik")
    with pytest.raises(ConfigError, match="known are ML10M, ML20M, AMusic, AGames, Yelp"):
        find_preset("?")


def test_the_printed_numbers_fit_together():
    for printed in map(dataclasses.asdict, PRINTED.values()):
        sparsity = 100 * (1 - printed["ratings"] / printed["users"] / printed["items"])
        assert sparsity == pytest.approx(printed["sparsity"], abs=0.01)


# -- A user, then items ------------------------------------------------------------------------------------------------

LISTS = "0 10 11 12\n1 10\n2 13 14\n3\n4 15 10 11 12 13\n5 11 12 13 14 15 16\n"
LISTED = {
    0: [10, 11, 12],
    1: [10],
    2: [13, 14],
    4: [15, 10, 11, 12, 13],
    5: [11, 12, 13, 14, 15, 16],
}


@pytest.mark.parametrize("separator", [" ", "\t", ","])
def test_lines_of_a_user_and_items_are_read_by_their_layout(tmp_path, separator):
    path = tmp_path / "train.txt"
    path.write_text(LISTS.replace(" ", separator))
    read = read_interactions(path, layout="user-items")
    assert {
        user: read.items.ids(read.items_of(row))
        for row, user in enumerate(read.users.ids(range(5)))
    } == LISTED
    assert read.times is None


def test_lines_of_many_lengths_are_recognised_as_users_and_items(tmp_path):
    path = tmp_path / "train.txt"
    path.write_text(LISTS)
    with pytest.warns(LocaWarning, match="read as user-items"):
        assert histories_of(read_interactions(path)) == LISTED


@pytest.mark.parametrize(
    "text",
    [
        "1 2 3 4\n2 2 3 4\n3 2 3\n4 2 3 4\n5 2 3 4\n",  # a table with a short row
        "1 2\n1 3 4\n1 3 4 5\n2 3 4 5 6\n3 3 4 5 6 7\n",  # a user twice
        "1 2 2\n2 3\n3 3 4 5\n4 3 4 5 6\n5 3 4 5 6 7\n",  # an item twice
        "1 2\n2 3 4\n3 3 4 5\n",  # too few lines to be sure
    ],
)
def test_a_table_with_a_mistake_is_not_taken_for_lists(tmp_path, text):
    path = tmp_path / "table.txt"
    path.write_text(text)
    with pytest.raises(
        DataError, match=r"expected \d fields split by ' ', found|columns without names"
    ):
        read_interactions(path)


def test_lists_of_one_length_need_the_layout_and_lists_without_items_are_refused(tmp_path):
    path = tmp_path / "train.txt"
    path.write_text("1 2 3 4 5 6\n2 3 4 5 6 7\n")
    with pytest.raises(
        DataError, match="or the layout user-items where a line is a user and then items"
    ):
        read_interactions(path)
    assert len(read_interactions(path, layout="user-items")) == 10
    for options, role in (
        ({"min_rating": 3}, "rating"),
        ({"time": "when"}, "time"),
        ({"user": 1}, "user"),
    ):
        with pytest.raises(
            DataError, match=f"lines of a user and then items have no column for the {role}s"
        ):
            read_interactions(path, layout="user-items", **options)
    path.write_text("1\n2\n")
    with pytest.raises(DataError, match="expected lines of a user and then items, found no item"):
        read_interactions(path, layout="user-items")


# -- By name -----------------------------------------------------------------------------------------------------------


def test_every_registered_set_has_a_typed_function():
    names = sorted(name.replace("-", "_") for name in DATA_SETS)
    assert sorted(loca.datasets.__all__) == dir(loca.datasets) == names
    assert all(loca.datasets.__getattr__(name).__name__ == name for name in names)
    stub = Path(loca.__file__).with_name("datasets.pyi").read_text()
    assert sorted(re.findall(r"^(\w+): _Reader$", stub, re.M)) == names
    with pytest.raises(AttributeError, match="no data set 'ml_100'; did you mean 'ml_100k'"):
        _ = loca.datasets.ml_100


def test_a_fetched_set_is_read_with_its_titles(tmp_path, monkeypatch):
    folder = tmp_path / "ml-100k"
    folder.mkdir()
    (folder / "u.data").write_text(TAB)
    (folder / "u.item").write_text(f"242|Kolya (1996)|||{'|0' * 19}\n")
    data = loca.datasets.ml_100k(folder=tmp_path)
    assert histories_of(data) == NUMBERED
    assert data.items.label(data.items.row(242)) == "Kolya (1996)"
    monkeypatch.setenv("LOCA_DATA", str(tmp_path))
    assert histories_of(loca.datasets.ml_100k(min_rating=3, recency=Recency(4))) == {
        196: [302, 242]
    }
    with pytest.raises(DataError) as caught:
        loca.datasets.ml_20m()
    expected = f"expected ml-20m/ratings.csv or ml-20m/ml-20m.zip below {tmp_path}"
    assert str(caught.value) == f"ml-20m: {expected}; get it with  loca data fetch ml-20m"
