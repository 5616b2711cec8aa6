"""A mistake in a file gets one line that says what was expected, what was found and where."""

import gzip
import zipfile

import pytest
from event_examples import refusal, table

from loca.data.archives import Source
from loca.data.readers import read_file, read_interactions, read_preset
from loca.errors import DataError


def test_a_missing_file_is_named_with_a_close_one(tmp_path):
    table(tmp_path, "1,2\n")
    message = refusal(tmp_path / "rating.csv")
    assert message.endswith("rating.csv: there is no such file; did you mean 'ratings.csv'?")
    assert "there is no such file" in refusal(str(tmp_path / "nowhere" / "x.csv"))


@pytest.mark.parametrize("content", [b"", b"\n \n", b"\xef\xbb\xbf\n", b"\xa0\n"])
def test_an_empty_file_is_refused(tmp_path, content):
    assert refusal(table(tmp_path, content)) == "ratings.csv: the file is empty"


def test_a_header_without_rows_is_refused(tmp_path):
    for text in ("user,item", "user,item\n", "user,item\n\n\n"):
        assert refusal(table(tmp_path, text)) == "ratings.csv: there is no row below the header"


def test_a_folder_is_refused(tmp_path):
    assert refusal(tmp_path, layout="movielens-1m").endswith(
        "is a folder; expected ml-1m/ratings.dat in it, or the path of a file"
    )


def test_a_wrong_separator_is_refused_with_the_one_the_file_seems_to_have(tmp_path):
    path = table(tmp_path, "user;item;time\n1;2;3\n")
    expected = "ratings.csv: one column found when split by ','; the file seems to be split by ';'"
    assert refusal(path, separator=",") == expected
    path = table(tmp_path, "1,2,3,4\n")
    assert "when split by '::'; the file seems to be split by ','" in refusal(
        path, layout="movielens-1m"
    )


def test_a_file_with_one_column_is_refused(tmp_path):
    assert refusal(table(tmp_path, "1\n2\n")).endswith("expected at least two")


def test_a_row_with_too_few_fields_is_refused_by_its_line(tmp_path):
    rows = [f"{n}::{n}::5::{n}" for n in range(1, 17)]
    path = table(tmp_path, "\n".join([*rows, "17::17::5", "18::18::5::18"]), "ratings.dat")
    expected = "ratings.dat line 17: expected 4 fields split by '::', found 3"
    assert refusal(path, layout="movielens-1m") == expected
    assert refusal(path) == expected


def test_a_row_with_too_many_fields_is_refused_by_its_line(tmp_path):
    path = table(tmp_path, "user,item,time\n1,2,3\n\n1,2,3,4\n")
    assert refusal(path) == "ratings.csv line 4: expected 3 fields split by ',', found 4"


def test_a_short_row_is_refused_even_where_the_missing_field_is_not_needed(tmp_path):
    path = table(tmp_path, "user,item,comment\n1,2,good\n1,3\n")
    assert refusal(path) == "ratings.csv line 3: expected 3 fields split by ',', found 2"


def test_a_time_that_is_no_number_is_refused_by_its_line(tmp_path):
    path = table(tmp_path, 'user,item,time\n"1\n",2,3\n\n1,3,noon\n')
    expected = (
        "ratings.csv line 5: expected a number, or ISO dates throughout, as time, found 'noon'"
    )
    assert refusal(path) == expected
    path = table(tmp_path, "user,item,time\n1,2,inf\n")
    assert refusal(path).startswith("ratings.csv line 2: expected a number")
    path = table(tmp_path, "user,item,time\n1,2,2014-01-01\n2,2,2014-13-01\n")
    assert refusal(path).startswith("ratings.csv line 3: expected a number, or ISO dates")


def test_line_numbers_are_those_of_the_file_in_every_block(tmp_path):
    good = "user,item,time\n" + "".join(f"{n},1,{n}\n" for n in range(100))
    dates = "".join(f"{n},1,2014-01-01\n" for n in range(20))
    for text, problem in (
        (good + "7,1\n", "ratings.csv line 102: expected 3 fields"),
        (good + "7,1,x\n" + "1,1,1\n" * 50, "ratings.csv line 102: expected a number"),
        (
            "user,item,time\n1,1,00000000000000000000000000000000000000000001\n" + dates,
            "ratings.csv line 3: the time must be a number, or an ISO date, throughout",
        ),
    ):
        with pytest.raises(DataError, match=problem):
            read_file(Source(table(tmp_path, text)), block_bytes=64)


def test_a_missing_user_item_or_time_is_refused_by_its_line(tmp_path):
    assert (
        refusal(table(tmp_path, "user,item,time\n1,2,3\n,2,3\n"))
        == "ratings.csv line 3: the user is missing"
    )
    assert (
        refusal(table(tmp_path, "user,item,time\n1,2,3\n1,,3\n"))
        == "ratings.csv line 3: the item is missing"
    )
    assert (
        refusal(table(tmp_path, "user,item,time\n1,2,3\n1,2,\n"))
        == "ratings.csv line 3: the time is missing"
    )


def test_a_rating_that_is_no_number_matters_only_where_ratings_do(tmp_path):
    path = table(tmp_path, "user,item,rating\n1,2,good\n")
    assert len(read_interactions(path)) == 1
    assert (
        refusal(path, min_rating=3)
        == "ratings.csv line 2: expected a number as rating, found 'good'"
    )


def test_a_missing_column_is_refused_with_those_found(tmp_path):
    path = table(tmp_path, "userId,movieId,when\n1,2,3\n")
    expected = "ratings.csv: no column 'userid'; the columns are userId, movieId, when; did you mean 'userId'?"
    assert refusal(path, user="userid") == expected
    assert refusal(path, time=5) == "ratings.csv: no column 5; there are 3, counted from 0"
    assert refusal(path, min_rating=3).startswith(
        "ratings.csv: cannot tell which column holds the ratings"
    )
    path = table(tmp_path, "a,b,c\n1,2,3\n")
    assert refusal(path, user="a") == (
        "ratings.csv: cannot tell which column holds the items; the columns are a, b, c; say item=…"
    )
    assert (
        refusal(path, user="a", item="a")
        == "ratings.csv: one column cannot hold two things, found user=a, item=a"
    )


def test_columns_without_names_that_are_not_told_apart_are_refused(tmp_path):
    path = table(tmp_path, "1,2,3,4,5\n")
    assert "give their positions, such as user=0, item=1, time=2" in refusal(path)
    assert refusal(path, user=0, item=9) == "ratings.csv: no column 9; there are 5, counted from 0"
    path = table(tmp_path, "1,2\n")
    assert refusal(path, time=0).startswith("ratings.csv: cannot tell which column holds the users")


def test_quote_marks_out_of_place_are_refused_by_their_line(tmp_path):
    path = table(tmp_path, 'user,item,time\n1,2,3\n1,a"b,3\n1,5,3\n')
    assert refusal(path).startswith("ratings.csv line 3: quote marks out of place")


def test_a_very_long_field_does_not_hide_the_line(tmp_path):
    path = table(tmp_path, "user,item,review\n1,2,good\n1,3," + "x" * 300_000 + "\n1,4\n")
    assert refusal(path) == "ratings.csv line 4: expected 3 fields split by ',', found 2"


def test_another_kind_of_file_is_refused(tmp_path):
    path = table(tmp_path, "1,2\n".encode("utf-16"))
    assert refusal(path) == "ratings.csv: expected text, found the bytes of another kind of file"


def test_a_file_that_is_not_what_its_name_says_is_refused(tmp_path):
    assert (
        refusal(table(tmp_path, "1,2\n", "x.zip")) == "x.zip: not a zip file, in spite of its name"
    )
    assert (
        refusal(table(tmp_path, "1,2\n", "x.gz")) == "x.gz: not a gzip file, in spite of its name"
    )


def test_a_gzip_cut_short_is_refused(tmp_path):
    packed = gzip.compress(b"".join(b"%d,%d\n" % (n, n * n) for n in range(2000)))
    message = refusal(table(tmp_path, packed[: len(packed) // 2], "x.csv.gz"))
    assert message.startswith("x.csv.gz: the packed data is cut short or damaged")
    damaged = packed[:40] + bytes(20) + packed[60:]
    assert refusal(table(tmp_path, damaged, "x.csv.gz")).startswith("x.csv.gz: the packed data is")


def test_a_zip_cut_short_or_damaged_is_refused(tmp_path):
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("ratings.csv", "1,2\n" * 1000)
    whole = path.read_bytes()
    assert refusal(table(tmp_path, whole[:2000], "x.zip")).startswith(
        "x.zip: the zip file is cut short or damaged"
    )
    damaged = whole[:100] + b"9" + whole[101:]
    assert refusal(table(tmp_path, damaged, "x.zip")).startswith(
        "x.zip/ratings.csv: the packed data is damaged"
    )


def test_a_zip_without_one_clear_table_is_refused(tmp_path):
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.csv", "1,2\n")
        archive.writestr("b.csv", "1,2\n")
    expected = "x.zip: expected one table, found 2 (a.csv, b.csv); unpack the one you mean"
    assert refusal(path) == expected
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("__MACOSX/a.csv", "1,2\n")
    assert refusal(path) == "x.zip: the zip file holds no files"


def test_a_zip_with_a_password_is_refused(tmp_path):
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.csv", "1,2\n")
    data = bytearray(path.read_bytes())
    data[6] |= 1  # the mark of an encrypted member, in both of its headers
    data[data.index(b"PK\x01\x02") + 8] |= 1
    assert refusal(table(tmp_path, bytes(data), "x.zip")).startswith(
        "x.zip/a.csv: cannot be unpacked"
    )


def test_the_only_table_of_a_zip_is_read_beside_other_files(tmp_path):
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("README", "about\n")
        archive.writestr("deep/down/a.csv.gz", gzip.compress(b"1,2\n1,3\n"))
    assert len(read_interactions(path)) == 2


def test_no_user_left_after_filtering_says_the_filter_and_the_most_found(tmp_path):
    path = table(tmp_path, "user,item,rating\n1,2,3\n1,3,4\n2,2,3\n")
    assert refusal(path, min_user_interactions=3) == (
        "no user left after filtering: at least 3 interactions per user, but the most that any user has is 2"
    )
    assert refusal(path, min_item_interactions=9).endswith(
        "per item, but the most that any item has is 2"
    )
    assert refusal(path, min_rating=4.5) == (
        "no user left after filtering: ratings of at least 4.5, but the highest is 4"
    )
    assert "expected a whole number of at least 0" in refusal(path, min_user_interactions=-1)


def test_a_file_that_cannot_be_opened_is_refused(tmp_path, monkeypatch):
    from pathlib import Path

    path = table(tmp_path, "1,2\n")

    def no_permission(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", no_permission)
    with pytest.raises(DataError, match=r"ratings\.csv: cannot be read \(Permission denied\)"):
        read_interactions(path)


def test_a_preset_of_a_file_with_few_lines_is_refused_for_its_users(tmp_path):
    path = table(tmp_path, "u1,i1,5,100\nu1,i2,5,200\n")
    with pytest.raises(
        DataError, match="no user left after filtering: at least 10 interactions per user"
    ):
        read_preset("amusic", path)


DEEP = '{"user": ' * 20_000 + "1" + "}" * 20_000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            f'{{"user": 1, "item": 2}}\n{DEEP}\n',
            "ratings.csv line 2: expected a JSON object, found something else",
        ),
        (
            f'{{"user": {"9" * 30}, "item": 2}}\n',
            "line 1: expected text or a 64-bit number as user, found 999",
        ),
        (
            f'{{"user": {"9" * 6000}, "item": 2}}\n',
            "line 1: expected a JSON object, found something else",
        ),
    ],
    ids=["nested", "30 digits", "6,000 digits"],
)
def test_json_beyond_all_measure_gets_one_line(tmp_path, text, message):
    assert message in refusal(table(tmp_path, text))


def test_a_flipped_byte_in_an_lzma_zip_gets_one_line(tmp_path):
    packed = tmp_path / "ratings.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr(
            "ratings.csv", "user,item\n" + "".join(f"{n},{n * n}\n" for n in range(2000))
        )
    whole = packed.read_bytes()
    for place in (100, len(whole) // 2):
        packed.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        assert "packed data is" in refusal(packed)


def test_a_path_that_is_too_long_is_cut_in_the_message(tmp_path):
    message = refusal(tmp_path / ("a" * 5000))
    assert message.endswith("…: cannot be read (File name too long)")
    assert len(message) < 200


def test_of_many_columns_a_message_names_twelve(tmp_path):
    names, row = ",".join(f"c{n}" for n in range(5000)), ",".join("1" * 5000)
    message = refusal(table(tmp_path, f"{names}\n{row}\n"))
    assert (
        "the columns are c0, c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11 and 4,988 more; say user="
        in message
    )
    assert "c11 and 4,988 more" in refusal(tmp_path / "ratings.csv", user="nobody")
