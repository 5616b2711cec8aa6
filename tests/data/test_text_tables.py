"""Text tables of every separator, header and encoding become the same interactions."""

import csv
from datetime import UTC, datetime

import numpy as np
import pytest
from event_examples import histories_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loca.data.archives import BLOCK_BYTES, Source
from loca.data.readers import ReadRequest, read_file, read_interactions
from loca.errors import DataError
from loca.remarks import LocaWarning

pytestmark = pytest.mark.filterwarnings("ignore::loca.LocaWarning")

HISTORIES = {"ann": ["x", "y", "z"], "bob": ["z", "x"]}


def lines_of(separator):
    rows = ["ann,y,4,20", "bob,z,3,5", "ann,x,5,10", "ann,z,1,30", "bob,x,2,6"]
    return "\n".join(row.replace(",", separator) for row in rows) + "\n"


@pytest.mark.parametrize("separator", [",", "\t", ";", "|", "::", " "])
@pytest.mark.parametrize("header", [True, False])
def test_the_separator_and_the_header_are_found(tmp_path, separator, header):
    names = separator.join(["user", "item", "rating", "time"]) + "\n" if header else ""
    path = tmp_path / "table.txt"
    path.write_text(names + lines_of(separator))
    assert histories_of(read_interactions(path)) == HISTORIES


@pytest.mark.parametrize("name", ["userId", "user_id", "USER ID", "reviewerID", "user_id:token"])
def test_usual_names_of_columns_are_known(tmp_path, name):
    path = tmp_path / "table.csv"
    path.write_text(f"extra,asin,unixReviewTime,{name}\n0,x,2,ann\n0,y,1,ann\n")
    assert histories_of(read_interactions(path)) == {"ann": ["y", "x"]}


def test_columns_are_given_by_name_or_by_position(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("what,who,when\nx,ann,2\ny,ann,1\n")
    for user, item, time in (("who", "what", "when"), (1, 0, 2), ("1", "0", "2")):
        assert histories_of(read_interactions(path, user=user, item=item, time=time)) == {
            "ann": ["y", "x"]
        }


def test_a_named_column_makes_the_first_line_a_header(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("who,what\nann,x\nann,y\n")
    assert histories_of(read_interactions(path, user="who", item="what")) == {"ann": ["x", "y"]}
    assert read_interactions(path, user=0, item=1, header=True).n_users == 1
    assert read_interactions(path, user=0, item=1, header=False).n_users == 2


def test_three_columns_without_names_need_one_word_about_the_third(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("1,7,20\n1,8,10\n")
    with pytest.raises(DataError, match=r"table\.csv: 3 columns without names"):
        read_interactions(path)
    assert histories_of(read_interactions(path, time=2)) == {1: [8, 7]}
    assert histories_of(read_interactions(path, rating=2)) == {1: [7, 8]}


def test_two_columns_without_names_are_user_and_item_in_file_order(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("1,9\n1,8\n2,8\n")
    found = read_interactions(path)
    assert histories_of(found) == {1: [9, 8], 2: [8]}
    assert found.times is None


def test_ties_in_time_keep_the_order_of_the_file(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("user,item,time\n1,5,0\n2,1,0\n1,3,0\n1,9,0\n1,4,-1\n")
    assert histories_of(read_interactions(path))[1] == [4, 5, 3, 9]


def test_whole_numbers_stay_numbers_and_leading_zeros_stay_text(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("user,item\n7,007\n12,7\n")
    found = read_interactions(path)
    assert found.users.ids([0, 1]) == [7, 12]
    assert found.items.ids([0, 1]) == ["007", "7"]


@pytest.mark.parametrize("odd", ["+5", "-0", "5.0", "9223372036854775808", "A5"])
def test_an_id_that_would_change_as_a_number_makes_all_text(tmp_path, odd):
    path = tmp_path / "table.csv"
    path.write_text(f"user,item\n5,1\n{odd},1\n")
    assert sorted(read_interactions(path).users.ids([0, 1])) == sorted(["5", odd])


def test_ids_are_numbered_in_sorted_order_whatever_the_order_of_rows(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("user,item\n10,b\n9,a\n10,a\n")
    found = read_interactions(path)
    assert found.users.ids([0, 1]) == [9, 10]
    assert found.items.ids([0, 1]) == ["a", "b"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
def test_names_with_accents_are_read_in_utf8_and_latin1(tmp_path, encoding):
    path = tmp_path / "table.csv"
    path.write_bytes("José,Amélie,5,1\n".encode(encoding))
    assert histories_of(read_interactions(path)) == {"José": ["Amélie"]}


def test_windows_line_ends_blank_lines_and_a_missing_last_line_end_do_not_matter(tmp_path):
    path = tmp_path / "table.csv"
    path.write_bytes(b"\r\nuser,item,time\r\n1,a,2\r\n\r\n1,b,1\r\n \r\n2,a,1")
    assert histories_of(read_interactions(path)) == {1: ["b", "a"], 2: ["a"]}


def test_quoted_fields_may_hold_separators_and_line_ends(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text('user,item,time\n"Smith, Ann","the\nbook",2\n"Smith, Ann","say ""hi""",1\n')
    assert histories_of(read_interactions(path)) == {"Smith, Ann": ['say "hi"', "the\nbook"]}


def test_an_empty_last_field_that_is_not_needed_is_no_mistake(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("user,item,comment\n1,a,\n1,b,good\n")
    assert histories_of(read_interactions(path)) == {1: ["a", "b"]}


def test_dates_are_accepted_as_time_in_seconds_since_1970(tmp_path):
    path = tmp_path / "table.csv"
    written = [
        "2014-01-02",
        "2014-01-02T03:04:05Z",
        "2014-01-02 03:04:06",
        "2014-01-02T05:04:07+02:00",
    ]
    path.write_text(
        "user,item,date\n" + "".join(f"1,{n},{text}\n" for n, text in enumerate(written))
    )
    found = read_interactions(path)
    expected = [
        int(datetime(2014, 1, 2, *clock, tzinfo=UTC).timestamp())
        for clock in ((), (3, 4, 5), (3, 4, 6))
    ]
    assert found.times.tolist() == [*expected, expected[-1] + 1]
    assert found.times.dtype == np.int64


def test_fractions_of_a_second_are_kept(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("user,item,date\n1,a,1970-01-01 00:00:01.25\n1,b,1970-01-01\n")
    assert read_interactions(path).times.tolist() == [0.0, 1.25]
    path.write_text("user,item,time\n1,a, 2.5\n1,b,1\n")
    assert read_interactions(path).times.tolist() == [1.0, 2.5]


def test_what_is_read_does_not_depend_on_where_blocks_end(tmp_path):
    path = tmp_path / "table.csv"
    rows = [
        f'{n % 7},"item {n % 5}\nof {n}",{100 - n / 2 if n > 60 else 100 - n}' for n in range(80)
    ]
    path.write_text("user,item,time\n" + "\n".join(rows))
    whole = read_file(Source(path))[0]
    assert path.stat().st_size < BLOCK_BYTES
    for size in (40, 101, 999):
        assert read_file(Source(path), block_bytes=size)[0].equals(whole)


LETTERS = st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"])
NAMES = st.text(LETTERS, min_size=1, max_size=6).filter(lambda name: name.strip())
BLOCKS = st.integers(8, 200)


@given(st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=30), st.sampled_from(",;\t"), BLOCKS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_python_writes_as_csv_is_read_as_it_was(tmp_path, pairs, separator, block_bytes):
    path = tmp_path / "table.csv"
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream, delimiter=separator).writerows([("user", "item"), *pairs])
    request = ReadRequest(columns={"user": 0, "item": 1}, separator=separator, header=True)
    found, _ = read_file(Source(path), request, block_bytes=block_bytes)
    stripped = [(user.strip(), item.strip()) for user, item in pairs]
    assert [tuple(map(str, row)) for row in found.rows()] == stripped


def test_ids_that_turn_to_text_in_a_later_block_are_text_throughout(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("1,10\n2,10\n3,10\n007,10\n")
    assert read_file(Source(path), block_bytes=8)[0]["user"].to_list() == ["1", "2", "3", "007"]


def test_an_order_guessed_from_amazon_ids_is_said(tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_text("0001526863,A1NZLRAZJGD99W,5.0,1378425600\n")
    with pytest.warns(LocaWarning, match="read as amazon-ratings-2018"):
        found = read_interactions(path)
    assert histories_of(found) == {"A1NZLRAZJGD99W": ["0001526863"]}
