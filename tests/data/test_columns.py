"""A first line that may be names, a column that may be times, and a day beside an hour are not guessed wrong."""

import gzip
import json
from datetime import datetime, time
from functools import partial

import pandas as pd
import polars as pl
import pytest
from event_examples import histories_of, table
from event_examples import refusal as refused

import loca
from loca.cli.main import main
from loca.data.datasets import DATA_SETS
from loca.data.item_metadata import read_titles
from loca.data.readers import read_interactions
from loca.errors import DataError

pytestmark = pytest.mark.filterwarnings("ignore::loca.LocaWarning")
NOON = 12 * 3_600


refusal = partial(refused, kind=DataError)


def unsure(first_line):
    problem = f"the first line ({first_line}) may be column names or a row"
    return f"ratings.csv: {problem}; say header=True or header=False"


# -- The first line ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "shopper,sku\nann,tea-1\nbob,tea-1\nann,milk-2\n",
        "shopper,sku\nann,B00000JBHP\nbob,A1NZLRAZJG\n",
        "customer key;article\nann;12 x\nbob;13 y\n",
        "client,good\n" + "".join(f"{name}@shop.org,tea\n" for name in "abcdefghij"),
        "first name,good\n" + "".join(f"{name},tea\n" for name in "abcdefghij"),
    ],
    ids=["digits", "codes", "semicolons", "addresses", "shapes"],
)
def test_names_above_columns_of_another_kind_are_a_header(tmp_path, text):
    path = table(tmp_path, text)
    rows = text.splitlines()[1:]
    found = read_interactions(path, user=0, item=1, distinct=False)
    assert len(found) == len(rows)
    first_user = rows[0].replace(";", ",").split(",")[0]
    assert first_user in found.users
    assert text.replace(";", ",").split(",")[0] not in found.users


def test_names_that_are_found_are_named_where_a_column_cannot_be_told(tmp_path):
    path = table(tmp_path, "shopper,sku\nann,tea-1\nbob,tea-1\nann,milk-2\n")
    assert refusal(path).startswith(
        "ratings.csv: cannot tell which column holds the users; the columns are shopper, sku"
    )


@pytest.mark.parametrize(
    "text",
    [
        "ann,tea\nbob,milk\nann,salt\n",
        "ann,tea\nbob,tea\n",
        "u17,i3\nu2,i25\n",
        "a-1,tea_7\nb-2,milk_12\nc-3,guest_9\n",
        "A1NZLRAZJGD99W,B00000JBHP\nA2SUAM1J3GNN3B,B000FQ9CTY\n",
        "ann,tea-1\n" + "".join(f"user {n},tea-{n}\n" for n in range(2, 9)) + "ann,tea-9\n",
    ],
    ids=["a user again", "an item again", "codes", "marks", "Amazon's ids", "a user far below"],
)
def test_a_first_line_like_those_below_it_is_a_row(tmp_path, text):
    path = table(tmp_path, text)
    found = read_interactions(path, user=0, item=1)
    assert len(found) == len(text.splitlines())
    assert text.split(",")[0] in found.users


def test_a_repetition_is_found_in_all_of_the_head(tmp_path):
    strangers = "".join(f"{a}{b},{b}{a}\n" for a in "bcdefghijklm" for b in "opqrstuvwxyz")
    assert strangers.count("\n") > 100
    with_ann = table(tmp_path, "ann,tea\n" + strangers + "ann,milk\n")
    assert len(read_interactions(with_ann)) == 2 + strangers.count("\n")
    assert refusal(table(tmp_path, "ann,tea\n" + strangers)) == unsure("ann, tea")


@pytest.mark.parametrize(
    "text",
    [
        "shopper,sku\nann,tea\nbob,milk\n",
        "shopper,sku\nann,tea-1\n",
        "shopper,sku\nshopper,tea-1\nann,milk-2\n",
        "shopper,sku\nann,milk-2\nbob,milk-2\n",
        "V1,V2\nu17,i3\nu2,i25\n",
        "ann,tea\n",
        "u1,i1\n",
        "shopper,sku\n",
        "green tea,ann\nmilk,bob\nsalt,cid\n",
    ],
)
def test_a_first_line_that_nothing_tells_apart_is_refused(tmp_path, text):
    path = table(tmp_path, text)
    assert refusal(path) == unsure(", ".join(text.splitlines()[0].split(",")))


def test_whoever_says_what_the_first_line_is_is_believed(tmp_path):
    path = table(tmp_path, "shopper,sku\nann,tea\nbob,milk\n")
    assert histories_of(read_interactions(path, user=0, item=1, header=True)) == {
        "ann": ["tea"],
        "bob": ["milk"],
    }
    assert len(read_interactions(path, header=False)) == 3
    assert len(read_interactions(path, user="shopper", item="sku")) == 2
    single = table(tmp_path, "ann,tea\n")
    assert histories_of(read_interactions(single, header=False)) == {"ann": ["tea"]}
    assert refusal(single, user=0, item=1, header=True) == (
        "ratings.csv: there is no row below the header"
    )


def test_a_mistyped_name_of_a_column_is_refused_with_the_names_there_are(tmp_path):
    path = table(tmp_path, "shopper,sku\nann,tea\nbob,milk\n")
    assert refusal(path, user="shoper") == (
        "ratings.csv: no column 'shoper'; the columns are shopper, sku; did you mean 'shopper'?"
    )


def test_a_later_file_without_names_is_refused_as_an_earlier_one_would_be(tmp_path):
    known = read_interactions(table(tmp_path, "shopper,sku\nann,tea\n"), user="shopper", item="sku")
    later = table(tmp_path, "bob,milk\ncid,salt\n")
    assert refusal(later, like=known) == unsure("bob, milk")
    named = table(tmp_path, "sku,shopper\nmilk,bob\n")
    assert histories_of(read_interactions(named, like=known)) == {"bob": ["milk"]}


def test_commands_name_their_options(tmp_path, capsys):
    path = table(tmp_path, "shopper,sku\nann,tea\nbob,milk\n")
    assert main(["data", "describe", str(path)]) == 2
    problem = "the first line (shopper, sku) may be column names or a row"
    assert capsys.readouterr().err == f"loca: {path.name}: {problem}; say --header or --no-header\n"
    for option, users in (("--header", 2), ("--no-header", 3)):
        columns = ["--user-column", "0", "--item-column", "1"]
        assert main(["data", "describe", str(path), option, *columns, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["users"] == users
    ordered = table(tmp_path, "user,item,rank\n1,a,2\n1,b,1\n")
    assert main(["data", "describe", str(ordered)]) == 0
    assert "columns of an order not used          rank" in capsys.readouterr().out


def test_a_long_first_line_is_cut_in_the_message(tmp_path):
    names = [f"{'x' * 60}{letter}" for letter in "abcdefghijklmnop"]
    message = refusal(table(tmp_path, ",".join(names) + "\n" + ",".join("abcdefghijklmnop") + "\n"))
    assert "and 4 more" in message
    assert "x" * 60 not in message


def test_lists_of_text_are_recognised_as_before(tmp_path):
    lines = "ann tea milk\nbob milk\ncid tea salt rice\ndora salt\neve milk tea salt rice\n"
    assert histories_of(read_interactions(table(tmp_path, lines))) == {
        "ann": ["tea", "milk"],
        "bob": ["milk"],
        "cid": ["tea", "salt", "rice"],
        "dora": ["salt"],
        "eve": ["milk", "tea", "salt", "rice"],
    }


def test_titles_without_names_above_them_need_no_word(tmp_path):
    path = table(tmp_path, "tea,Green tea\nmilk,Whole milk\n", "titles.csv")
    assert read_titles(path) == {"tea": "Green tea", "milk": "Whole milk"}
    path = table(tmp_path, "sku,called\ntea-1,Green tea\nmilk-2,Whole milk\n", "titles.csv")
    assert read_titles(path) == {"tea-1": "Green tea", "milk-2": "Whole milk"}


# -- A column that may be an order -------------------------------------------------------------------------------------


def notes_of(source, **columns):
    remarks = read_interactions(source, **columns).remarks
    return [str(remark) for remark in remarks if remark.kind == "time-ignored"]


@pytest.mark.parametrize("name", ["rank", "Order", "position"])
def test_a_place_in_a_list_is_no_time_unless_somebody_says_so(tmp_path, name):
    frame = pl.DataFrame({"user": [1, 1, 1], "item": ["a", "b", "c"], name: [3, 1, 2]})
    path = table(tmp_path, frame.write_csv())
    lines = table(tmp_path, frame.write_ndjson(), "ratings.jsonl")
    for source in (frame, path, lines):
        found = read_interactions(source)
        assert histories_of(found) == {1: ["a", "b", "c"]}
        assert found.times is None
        assert histories_of(read_interactions(source, time=name)) == {1: ["b", "c", "a"]}
    problem = f"column {name!r} is not used; if it holds the order of each user's items"
    assert notes_of(path) == [f"ratings.csv: {problem}, say time={name!r}"]
    assert notes_of(path, time=name) == []


def test_a_place_beside_a_time_is_no_cause_for_a_note(tmp_path):
    path = table(tmp_path, "user,item,rank,time\n1,a,1,20\n1,b,2,10\n")
    assert histories_of(read_interactions(path)) == {1: ["b", "a"]}
    assert notes_of(path) == []


def test_the_number_of_a_purchase_beside_dates_is_no_time():
    frame = pd.DataFrame({"user": [1, 1], "item": [1, 2], "order": [100, 50]})
    frame["bought"] = pd.Series([datetime(2020, 1, 1), datetime(2020, 1, 2)], dtype=object)
    dates, order = notes_of(frame)
    assert "column 'bought' holds dates but is not used; say time='bought'" in dates
    assert "column 'order' is not used" in order
    assert histories_of(read_interactions(frame, time="bought")) == {1: [1, 2]}


@pytest.mark.parametrize("name", ["index", "seq"])
def test_a_row_number_is_no_time(tmp_path, name):
    path = table(tmp_path, f"user,item,{name}\n1,a,3\n1,b,1\n")
    assert read_interactions(path).times is None
    assert notes_of(path) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("games-2018", "user,item,rank\n7,1,2\n7,2,1\n8,1,1\n"),
        ("ml-1m-ordered", "user,item,rating,rank\n7,1,5,2\n7,2,4,1\n8,1,5,1\n"),
    ],
)
def test_the_ordered_data_sets_say_that_their_rank_is_the_order(tmp_path, name, text):
    path = tmp_path / DATA_SETS[name].files[0]
    path.parent.mkdir()
    path.write_bytes(gzip.compress(text.encode()))
    data = getattr(loca.datasets, name.replace("-", "_"))(folder=tmp_path)
    assert histories_of(data) == {7: [2, 1], 8: [1]}


# -- A day beside an hour ----------------------------------------------------------------------------------------------


def apart(day, hour, name="ratings.csv"):
    problem = f"{name}: column {day!r} holds the days and {hour!r} the hours"
    return f"{problem}; join them into one column such as 2020-01-31 14:30, or say time={day!r}"


@pytest.mark.parametrize("hours", [("14", "9"), ("14:30", "09:05"), ("14:30:00", "9:05:10")])
@pytest.mark.parametrize("days", [("2020-01-31", "2020-02-01"), ("31.01.2020", "01.02.2020")])
@pytest.mark.parametrize("names", [("date", "time"), ("date", "hour"), ("bought", "time")])
def test_days_and_hours_in_two_columns_are_refused(tmp_path, days, hours, names):
    day, hour = names
    rows = "".join(f"1,{item},{days[item]},{hours[item]}\n" for item in (0, 1))
    path = table(tmp_path, f"user,item,{day},{hour}\n{rows}")
    assert refusal(path) == apart(day, hour)


def test_days_and_hours_of_frames_and_json_lines_are_refused(tmp_path):
    moments = [datetime(2020, 1, 31, 14, 30), datetime(2020, 2, 1, 9, 5)]
    days = [moment.date() for moment in moments]
    events = {"user": [1, 1], "item": [1, 2]}
    hours = [moment.hour for moment in moments]
    clocks = [moment.time() for moment in moments]
    for frame in (
        pl.DataFrame({**events, "date": days, "time": hours}),
        pl.DataFrame({**events, "date": days, "time": clocks}),
        pl.DataFrame({**events, "date": days, "time": clocks}).lazy(),
        pd.DataFrame({**events, "date": days, "time": hours}),
        pd.DataFrame({**events, "date": days, "time": clocks}),
        pd.DataFrame({**events, "date": pd.to_datetime(days), "time": hours}),
        pd.DataFrame({**events, "date": ["20200131", "20200201"], "time": ["14:30", "09:05"]}),
    ):
        assert refusal(frame) == apart("date", "time", "the frame")
    frame = pd.DataFrame({**events, "date": days, "hour": hours})
    assert refusal(frame) == apart("date", "hour", "the frame")
    pl.DataFrame({**events, "date": days, "time": clocks}).write_parquet(tmp_path / "a.parquet")
    assert refusal(tmp_path / "a.parquet") == apart("date", "time", "a.parquet")
    rows = [
        {"user": 1, "item": 1, "date": "2020-01-31", "time": 14},
        {"user": 1, "item": 2, "date": "2020-02-01", "time": 9},
    ]
    path = table(tmp_path, "\n".join(map(json.dumps, rows)), "ratings.jsonl")
    assert refusal(path) == apart("date", "time", "ratings.jsonl")


def test_days_and_hours_without_names_are_refused_by_their_places(tmp_path):
    path = table(tmp_path, "1,5,2020-01-31,14\n1,6,2020-02-01,9\n")
    assert refusal(path) == apart("2", "3")
    assert histories_of(read_interactions(path, time="2")) == {1: [5, 6]}


@pytest.mark.parametrize("chosen", ["date", "time"])
def test_whoever_names_the_time_may_leave_the_other_column_out(tmp_path, chosen):
    path = table(tmp_path, "user,item,date,time\n1,a,2020-01-31,14\n1,b,2020-02-01,9\n")
    expected = ["a", "b"] if chosen == "date" else ["b", "a"]
    assert histories_of(read_interactions(path, time=chosen)) == {1: expected}


@pytest.mark.parametrize(
    ("header", "rows"),
    [
        ("date,time", ["2020-01-31,1580481000", "2020-01-31,1580481001"]),
        ("date,time", ["2020-01-31,2020-01-31 14:30", "2020-02-01,2020-02-01 09:05"]),
        ("date,time", ["2020-01-31,2020-01-31", "2020-02-01,2020-02-01"]),
        ("date,time", ["2020-01-31,1", "2020-02-01,24"]),
        ("date,time", ["2020-01-31 14:30,1", "2020-02-01 09:05,2"]),
        ("date,time", ["soon,1", "later,2"]),
        ("date,time", [",1", ",2"]),
        ("hour,time", ["14,1580481000", "9,1580481001"]),
        ("date,hour", ["2020-01-31 14:30,14", "2020-02-01 09:05,9"]),
        ("date,hour", ["2020-01-31,1200", "2020-02-01,1300"]),
        ("date,rating", ["2020-01-31,5", "2020-02-01,4"]),
        ("date,votes", ["2020-01-31,5", "2020-02-01,4"]),
        ("rank,time", ["1,1", "2,2"]),
    ],
)
def test_real_times_beside_days_are_read(tmp_path, header, rows):
    text = f"user,item,{header}\n" + "".join(f"1,{n},{row}\n" for n, row in enumerate(rows))
    assert histories_of(read_interactions(table(tmp_path, text))) == {1: [0, 1]}


def test_a_clock_without_a_day_is_no_time():
    frame = pd.DataFrame({"user": [1], "item": [1], "time": [time(14, 30)]})
    assert refusal(frame) == (
        "the frame row 1: expected a number, or ISO dates throughout, as time, found '14:30:00'"
    )


# -- How times may be written ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "1970-01-02 12:00",
        "1970-01-02T12:00",
        "1970-01-02T12:00Z",
        "1970-01-02 12:00 UTC",
        "1970-01-02 12:00:00 UTC",
        "1970-01-02 14:00+02:00",
        "1970-01-02T14:00+0200",
        "1970-01-02T14:00:00+02",
        "1970-01-02T14:00:00.000+02:00",
        "1970-01-02 06:30:00 -0530",
    ],
)
def test_a_time_to_the_minute_or_with_a_zone_is_read(tmp_path, text):
    path = table(tmp_path, f"user,item,time\n1,a,{text}\n1,b,1970-01-01\n")
    found = read_interactions(path)
    assert found.times.tolist() == [0, 86_400 + NOON]
    lines = table(tmp_path, json.dumps({"user": 1, "item": 1, "time": text}), "ratings.jsonl")
    assert read_interactions(lines).times.tolist() == [86_400 + NOON]


def test_minutes_beside_seconds_fractions_and_days_keep_their_places(tmp_path):
    written = ["1970-01-01 00:01", "1970-01-01", "1970-01-01 00:00:30.5", "1970-01-01 00:02:00"]
    rows = "".join(f"1,{place},{text}\n" for place, text in enumerate(written))
    found = read_interactions(table(tmp_path, "user,item,time\n" + rows))
    assert found.times.tolist() == [0, 30.5, 60, 120]
    assert histories_of(found) == {1: [1, 2, 0, 3]}


@pytest.mark.parametrize("text", ["2020-01-01 25:00", "2020-01-01 10:60", "2020-13-01 10:00"])
def test_an_impossible_minute_is_refused_by_its_line(tmp_path, text):
    path = table(tmp_path, f"user,item,time\n1,a,2020-01-01 10:00\n1,b,{text}\n")
    assert refusal(path).startswith("ratings.csv line 3: expected a number, or ISO dates")


def test_a_column_of_minutes_under_an_unusual_name_is_named_in_a_note(tmp_path):
    path = table(tmp_path, "user,item,bought\n1,a,2020-01-01 10:00\n")
    assert notes_of(path) == [
        "ratings.csv: column 'bought' holds dates but is not used; say time='bought'"
    ]
