"""Genres and titles from MovieLens' files in their published forms and from other tables."""

import gzip
import io
import zipfile

import pandas as pd
import polars as pl
import pytest

from loca.data.item_metadata import genres_of_planted, read_genres, read_titles
from loca.data.readers import read_interactions
from loca.errors import DataError
from loca.remarks import LocaWarning

EXPECTED = {1: ("Comedy", "Romance"), 3: (), 2: ("Drama",)}
DAT = '1::Amélie, or: the 5" film (2001)::Comedy|Romance\n3::Nothing said (1990)::\n2::Il Postino (1994)::Drama\n'
CSV = (
    'movieId,title,genres\n1,"Amélie, or: the 5"" film (2001)",Comedy|Romance\n'
    "3,Nothing said (1990),(no genres listed)\n2,Il Postino (1994),Drama\n"
)


def item_line(number, title, *on):
    flags = "|".join("1" if place in on else "0" for place in range(19))
    return f"{number}|{title}|01-Jan-1995||http://x|{flags}\n"


ITEM = item_line(1, "Amélie", 5, 14) + item_line(3, "Nothing") + item_line(2, "Il Postino", 8)


@pytest.mark.parametrize("text", [DAT, CSV, ITEM], ids=["movies.dat", "movies.csv", "u.item"])
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_movielens_genres_are_read_in_utf8_and_latin1_packed_or_not(tmp_path, text, encoding):
    path = tmp_path / "movies"
    path.write_bytes(text.encode(encoding))
    assert read_genres(path) == EXPECTED
    path = tmp_path / "movies.gz"
    path.write_bytes(gzip.compress(text.encode(encoding)))
    assert read_genres(path) == EXPECTED


def test_genres_are_found_in_the_published_folder(tmp_path):
    (tmp_path / "movies.dat").write_bytes(DAT.encode("latin-1"))
    (tmp_path / "ratings.dat").write_text("1::1::5::1\n")
    assert read_genres(tmp_path) == EXPECTED


def test_every_flag_of_u_item_has_its_published_name(tmp_path):
    path = tmp_path / "u.item"
    path.write_text("".join(item_line(place, "x", place, 18) for place in range(19)))
    found = read_genres(path)
    assert found[0] == ("unknown", "Western")
    assert [found[place][0] for place in (1, 4, 10, 15, 16)] == [
        "Action",
        "Children's",
        "Film-Noir",
        "Sci-Fi",
        "Thriller",
    ]
    assert found[18] == ("Western",)


def test_any_table_with_an_item_and_a_genres_column_is_read(tmp_path):
    path = tmp_path / "catalogue.tsv"
    path.write_text("genre\tasin\nJazz|Soul\tB1\nRock\tB2\nPop\tB2\n\n")
    assert read_genres(path) == {"B1": ("Jazz", "Soul"), "B2": ("Rock",)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (DAT + "4::Late\n", r"line 4: expected 3 fields split by '::', found 2"),
        (DAT + "::No id::Drama\n", r"line 4: expected the id of an item, found nothing"),
        (
            DAT + "4::Twice::Drama||War\n",
            r"line 4: expected different genres split by '\|', found 'Drama\|\|War'",
        ),
        (
            CSV + "4,Twice,War|War\n",
            r"line 5: expected different genres split by '\|', found 'War\|War'",
        ),
        (
            ITEM + item_line(4, "x").replace("|0\n", "|7\n"),
            r"line 4: expected 19 flags 0 or 1 for the genres, found '7'",
        ),
        ("1,Drama\n2,War\n", r"expected MovieLens' movies.dat.* found 2 columns split by ','"),
        ("movieId,title\n1,War\n", r"found the columns movieId, title split by ','"),
    ],
)
def test_lines_that_do_not_fit_are_refused_in_one_line(tmp_path, text, message):
    path = tmp_path / "movies"
    path.write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        read_genres(path)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("movies")


def test_the_communities_that_favour_an_item_are_its_genres(planted):
    genres = genres_of_planted(planted)
    assert list(genres) == planted.interactions.items.values.tolist()
    for row, names in enumerate(genres.values()):
        expected = [f"community {number + 1}" for number in (0, 1) if planted.favoured[number, row]]
        assert list(names) == expected


TITLES = {1: 'Amélie, or: the 5" film (2001)', 2: "Il Postino (1994)"}
TITLED_DAT = '1::Amélie, or: the 5" film (2001)::Comedy|Romance\n2::Il Postino (1994)::Drama\n'
TITLED_CSV = 'movieId,title,genres\n1,"Amélie, or: the 5"" film (2001)",Comedy|Romance\n2,Il Postino (1994),Drama\n'
TITLED_ITEM = "".join(item_line(one, title) for one, title in TITLES.items())


@pytest.mark.parametrize("text", [TITLED_DAT, TITLED_CSV, TITLED_ITEM])
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_movielens_titles_are_read_in_utf8_and_latin1(tmp_path, text, encoding):
    path = tmp_path / "movies"
    path.write_bytes(text.encode(encoding))
    assert read_titles(path) == TITLES
    path = tmp_path / "movies.gz"
    path.write_bytes(gzip.compress(text.encode(encoding)))
    assert read_titles(path) == TITLES


def test_titles_are_found_in_the_published_zip(tmp_path):
    path = tmp_path / "ml-1m.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("ml-1m/ratings.dat", "1::1::5::1\n")
        archive.writestr("ml-1m/movies.dat", TITLED_DAT.encode("latin-1"))
    assert read_titles(path) == TITLES


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("7,Seven\n8,Eight\n", {}),
        ("item,title\n7,Seven\n8,Eight\n", {}),
        ("Seven\t7\nEight\t8\n", {"title": 0}),
        ("code;what;words\n7;x;Seven\n8;x;Eight\n", {"item": "code", "title": "words"}),
        ("title,asin\nSeven,7\n\nEight,8\nSecond,8\n", {}),
        ('{"asin": 7, "title": "Seven"}\n{"asin": 9}\n{"title": "Eight", "asin": 8}\n', {}),
    ],
)
def test_any_table_of_ids_and_titles_is_read(tmp_path, text, options):
    path = tmp_path / "titles.txt"
    path.write_text(text)
    assert read_titles(path, **options) == {7: "Seven", 8: "Eight"}


def test_frames_and_parquet_are_read(tmp_path):
    table = {"item": ["007", "8"], "name": ["Bond", None]}
    assert read_titles(pd.DataFrame(table)) == {"007": "Bond"}
    data = io.BytesIO()
    pl.DataFrame(table).write_parquet(data)
    (tmp_path / "t.parquet").write_bytes(data.getvalue())
    assert read_titles(tmp_path / "t.parquet") == {"007": "Bond"}


def test_mistakes_in_titles_are_refused(tmp_path):
    path = tmp_path / "titles.csv"
    path.write_text("item,title\n1,a\n2,b,c\n")
    with pytest.raises(
        DataError, match=r"titles\.csv line 3: expected 2 fields split by ',', found 3"
    ):
        read_titles(path)
    path.write_text("a,b,c\n1,2,3\n")
    with pytest.raises(
        DataError,
        match=r"cannot tell which column holds the items; the columns are a, b, c; say item=…",
    ):
        read_titles(path)
    with pytest.raises(DataError, match="no column 'd'"):
        read_titles(path, item="d")


FILMS = pl.DataFrame({"item": [1, 2], "title": ["Heat", "Ronin"]})


def test_interactions_take_titles_from_a_dict_a_path_and_frames(tmp_path):
    data = read_interactions(pl.DataFrame({"user": [1, 1, 1], "item": [1, 2, 3]}))
    path = tmp_path / "films.csv"
    FILMS.write_csv(path)
    for titles in (
        {1: "Heat", 2: "Ronin"},
        path,
        str(path),
        FILMS,
        pd.DataFrame(FILMS.to_dict(as_series=False)),
    ):
        assert data.with_titles(titles).items.labels.tolist() == ["Heat", "Ronin", "3"]


@pytest.mark.parametrize("titles", [["Heat"], None, 3, pd.Series(["Heat"])])
def test_titles_of_another_kind_are_refused(titles):
    data = read_interactions(pl.DataFrame({"user": [1], "item": [1]}))
    with pytest.raises(
        DataError, match="titles: expected a dict of id to title, a path or a data frame"
    ):
        data.with_titles(titles)


def test_titles_of_other_items_are_told():
    with pytest.warns(LocaWarning, match="titles: none of the 2 ids is that of an item, such as 1"):
        read_interactions(pl.DataFrame({"user": [1], "item": [9]})).with_titles(FILMS)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PAR1 and no more PAR1", "cannot be read as Parquet"),
        (b'{"item": [1, 2], "title": "Heat"}', "expected text or a number as item id, found list"),
        (b'{"item": ' * 20_000, "line 1: expected a JSON object, found something else"),
        (b"item,title\n", "there is no row"),
    ],
    ids=["damaged Parquet", "a list as id", "nested", "no row"],
)
def test_damaged_titles_get_one_line(tmp_path, content, message):
    path = tmp_path / "films"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read_titles(path)
    assert "\n" not in str(caught.value)
