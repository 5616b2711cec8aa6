"""Titles from MovieLens' files and from any table of ids and titles."""

import gzip
import io
import zipfile

import pandas as pd
import polars as pl
import pytest

from loca.data.item_metadata import read_titles
from loca.errors import DataError

EXPECTED = {1: 'Amélie, or: the 5" film (2001)', 2: "Il Postino (1994)"}
DAT = '1::Amélie, or: the 5" film (2001)::Comedy|Romance\n2::Il Postino (1994)::Drama\n'
CSV = 'movieId,title,genres\n1,"Amélie, or: the 5"" film (2001)",Comedy|Romance\n2,Il Postino (1994),Drama\n'
ITEM = "".join(f"{one}|{title}|01-Jan-1995||http://x|" + "|".join("0" * 19) + "\n" for one, title in EXPECTED.items())


@pytest.mark.parametrize("text", [DAT, CSV, ITEM])
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_movielens_titles_are_read_in_utf8_and_latin1(tmp_path, text, encoding):
    path = tmp_path / "movies"
    path.write_bytes(text.encode(encoding))
    assert read_titles(path) == EXPECTED
    path = tmp_path / "movies.gz"
    path.write_bytes(gzip.compress(text.encode(encoding)))
    assert read_titles(path) == EXPECTED


def test_titles_are_found_in_the_published_zip(tmp_path):
    path = tmp_path / "ml-1m.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("ml-1m/ratings.dat", "1::1::5::1\n")
        archive.writestr("ml-1m/movies.dat", DAT.encode("latin-1"))
    assert read_titles(path) == EXPECTED


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
    with pytest.raises(DataError, match=r"titles\.csv line 3: expected 2 fields split by ',', found 3"):
        read_titles(path)
    path.write_text("a,b,c\n1,2,3\n")
    with pytest.raises(
        DataError, match=r"cannot tell which column holds the items; the columns are a, b, c; say item=…"
    ):
        read_titles(path)
    with pytest.raises(DataError, match="no column 'd'"):
        read_titles(path, item="d")
