"""Mistakes that people make with their own data are read as meant, told, or refused in one line."""

import json
from datetime import datetime

import pandas as pd
import polars as pl
import pytest
from event_examples import histories_of, refusal, table

import loca
from loca.cli.main import main
from loca.data.datasets import LAYOUTS
from loca.data.readers import read_interactions
from loca.data.schema import Schema
from loca.errors import ConfigError

pytestmark = pytest.mark.filterwarnings("ignore::loca.LocaWarning")

NEW_YEAR = 1_388_534_400


def told(source, kind=None, **options):
    remarks = read_interactions(source, **options).remarks
    return [str(remark) for remark in remarks if kind in (None, remark.kind)]


def rows_of(n, row):
    return "".join(row(place) + "\n" for place in range(n))


# -- Columns without names ---------------------------------------------------------------------------------------------


def test_roles_that_were_guessed_by_position_are_told(tmp_path):
    path = table(tmp_path, "1::10::5::100\n1::11::4::90\n", "ratings.dat")
    begin = "ratings.dat: the columns have no names and were taken as "
    assert told(path, "columns-guessed") == [
        f"{begin}user = 0, item = 1, rating = 2, time = 3; say user=…, item=… if they are others"
    ]
    two = table(tmp_path, "1,10\n1,11\n")
    (text,) = told(two, "columns-guessed")
    assert "taken as user = 0, item = 1; say user=…, item=…" in text
    (text,) = told(path, "columns-guessed", user=1, item=0)
    assert text == f"{begin}rating = 2, time = 3; say rating=…, time=… if they are others"


def test_roles_that_somebody_named_are_not_told(tmp_path):
    row = "1::10::5::100\n1::11::4::90\n"
    path = table(tmp_path, row, "ratings.dat")
    given = {"user": 0, "item": 1, "rating": 2, "time": 3}
    assert told(path, "columns-guessed", **given) == []
    assert told(path, "columns-guessed", layout="movielens-1m") == []
    published = table(tmp_path, row, LAYOUTS["movielens-1m"].members[0])
    assert told(published, "columns-guessed") == []
    assert told(published.parent, "columns-guessed") == []
    named = table(tmp_path, "user,item\n1,2\n")
    assert told(named, "columns-guessed") == []


def test_later_rows_without_names_tell_only_what_was_guessed_anew(tmp_path):
    path = table(tmp_path, "1,10\n1,11\n")
    known = read_interactions(path)
    assert told(path, "columns-guessed", like=known) == []
    named = read_interactions(table(tmp_path, "user,item\n1,10\n1,11\n", "named.csv"))
    assert len(told(path, "columns-guessed", like=named)) == 1


def test_moments_in_the_place_of_the_ratings_are_refused(tmp_path):
    text = rows_of(9, lambda n: f"{n},{n % 3},{NEW_YEAR + n},{n % 5}")
    path = table(tmp_path, text)
    assert refusal(path) == (
        "ratings.csv: column 2, in the place of the ratings, looks like seconds since 1970, and column 3, "
        "in the place of the times, does not; say rating=3, time=2, or name all columns"
    )
    assert read_interactions(path, rating=3, time=2).time_unit == "seconds"
    millis = rows_of(9, lambda n: f"{n},{n % 3},{1000 * NEW_YEAR + n},{n % 5}")
    assert "looks like milliseconds since 1970" in refusal(table(tmp_path, millis))
    both = rows_of(9, lambda n: f"{n},{n % 3},{NEW_YEAR + n},{NEW_YEAR + n}")
    assert len(read_interactions(table(tmp_path, both))) == 9


# -- The column names once more ----------------------------------------------------------------------------------------


def test_column_names_in_the_middle_of_a_file_are_refused_by_their_line(tmp_path):
    part = "userId,movieId\n" + rows_of(40, lambda n: f"u{n},m{n % 7}")
    expected = "repeats the column names; were two files joined? leave that line out"
    assert refusal(table(tmp_path, part + part)) == f"ratings.csv line 42 {expected}"
    marked = table(tmp_path, part + "\ufeff" + part)
    assert refusal(marked) == f"ratings.csv line 42 {expected}"
    timed = "user,item,time\n1,2,3\n"
    assert refusal(table(tmp_path, timed * 2)) == f"ratings.csv line 3 {expected}"


def test_column_names_in_the_middle_of_a_frame_are_refused_by_their_row():
    columns = {"user": ["ann", "user", "bob"], "item": ["tea", "item", "milk"]}
    expected = (
        "the frame row 2 repeats the column names; were two tables joined? leave that row out"
    )
    assert refusal(pl.DataFrame(columns)) == expected
    assert refusal(pd.DataFrame(columns)) == expected
    numbered = pd.DataFrame({0: ["0", "a"], 1: ["1", "b"]})
    assert len(read_interactions(numbered, user=0, item=1)) == 2
    same_word = pl.DataFrame({"user": ["user", "bob"], "item": ["tea", "milk"]})
    assert len(read_interactions(same_word)) == 2


# -- Ids ---------------------------------------------------------------------------------------------------------------


def test_blanks_around_ids_do_not_count(tmp_path):
    path = table(tmp_path, "user,item\nann,tea\nann ,milk\n ann,salt\n")
    assert histories_of(read_interactions(path)) == {"ann": ["tea", "milk", "salt"]}
    numbers = table(tmp_path, "user;item\n7; 1\n7;2\n")
    assert histories_of(read_interactions(numbers)) == {7: [1, 2]}
    columns = {"user": ["ann", "ann ", "\tann"], "item": [1, 2, 3]}
    for frame in (pl.DataFrame(columns), pd.DataFrame(columns)):
        assert histories_of(read_interactions(frame)) == {"ann": [1, 2, 3]}


def test_a_blank_id_is_missing(tmp_path):
    assert refusal(table(tmp_path, 'user,item\nann,tea\n"  ",tea\n')) == (
        "ratings.csv line 3: the user is missing"
    )
    frame = pl.DataFrame({"user": ["ann", "ann"], "item": ["tea", " "]})
    assert refusal(frame) == "the frame row 2: the item is missing"


def test_ids_that_differ_by_case_alone_are_told():
    frame = pl.DataFrame({"user": ["Ann", "ann", "bob"], "item": [1, 2, 3]})
    assert told(frame) == [
        "the frame: 2 of the 3 user ids differ from another one only by upper and lower case, "
        "by signs that cannot be seen or by '.0', such as 'Ann' and 'ann'; if they mean the same, write them alike"
    ]
    users = [f"user {n}" for n in range(300)]
    rare = pl.DataFrame({"user": [*users, "USER 7"], "item": range(301)})
    assert told(rare) == []


@pytest.mark.parametrize(
    "word", ["NULL", "null", "nan", "NaN", "None", "N/A", "NA", "n/a", "-", "?"]
)
def test_ids_that_stand_for_nothing_are_told(tmp_path, word):
    path = table(tmp_path, f"user,item\nann,1\n{word},2\n{word},3\n")
    assert told(path) == [
        f"ratings.csv: 2 rows have {word!r} as user id; "
        "if that stands for a missing id, leave these rows out"
    ]
    items = pl.DataFrame({"user": [1, 2], "item": ["tea", word]})
    assert "the frame: 1 row has" in told(items)[0]


# -- Repeated rows -----------------------------------------------------------------------------------------------------


def test_rows_that_were_joined_are_counted(tmp_path, capsys):
    path = table(tmp_path, "user,item,time\n1,a,1\n1,a,2\n1,b,3\n1,a,4\n")
    assert main(["data", "describe", str(path)]) == 0
    joined = "2, joined with an earlier row of the same user and item"
    shown = capsys.readouterr().out
    assert [line.split("  ")[0] for line in shown.splitlines() if joined in line] == [
        "repeated rows"
    ]
    assert main(["data", "describe", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["repeated_rows"] == 2
    assert main(["data", "describe", str(path), "--keep-repeats", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["repeated_rows"], document["repeated_pairs"]) == (0, 2)


# -- Ratings -----------------------------------------------------------------------------------------------------------


def rated(*ratings, **more):
    places = range(len(ratings))
    return pl.DataFrame({"user": places, "item": places, "rating": ratings, **more})


def test_numbers_as_text_in_a_frame_are_ratings():
    for frame in (rated("1", " 5 ", "4.5"), rated("1", "5", "4.5").to_pandas()):
        assert "33 % of the ratings are below 3" in told(frame, "low-ratings")[0]
        assert len(read_interactions(frame, min_rating=4.5)) == 2


@pytest.mark.parametrize(
    "ratings", [(True, False, True), ("true", "False", "TRUE"), ("True", "false", "1")]
)
def test_true_and_false_are_1_and_0(tmp_path, ratings):
    frame = rated(*ratings)
    lines = table(tmp_path, frame.write_ndjson(), "ratings.jsonl")
    objects = frame.to_pandas().astype({"rating": object})
    for source in (frame, objects, table(tmp_path, frame.write_csv()), lines):
        assert histories_of(read_interactions(source, min_rating=1)) == {0: [0], 2: [2]}
        assert "33 % of the ratings are below 0.5" in told(source, "low-ratings")[0]


def test_ratings_that_are_no_numbers_are_told(tmp_path):
    for ratings, example in (
        (("up", "down", "up"), "up"),
        (("2,5", "3,5", "1,0"), "2,5"),
        (("50%", "70%", "90%"), "50%"),
    ):
        frame = rated(*ratings)
        lines = table(tmp_path, frame.write_ndjson(), "ratings.jsonl")
        for source, name in (
            (frame, "the frame"),
            (frame.to_pandas(), "the frame"),
            (table(tmp_path, frame.write_csv()), "ratings.csv"),
            (lines, "ratings.jsonl"),
        ):
            assert told(source) == [
                f"{name}: column 'rating': none of the 3 ratings can be read as numbers, "
                f"such as {example!r}; all rows count as likes"
            ]
            assert "expected a number as rating" in refusal(source, min_rating=1)


def test_some_ratings_that_are_no_numbers_are_counted_and_gaps_are_not(tmp_path):
    path = table(tmp_path, "user,item,rating\n1,1,5\n1,2,good\n1,3,\n1,4,bad\n1,5,nan\n")
    text = "column 'rating': 2 of the 5 ratings are no numbers, such as 'good'"
    assert told(path) == [f"ratings.csv: {text}; all rows count as likes"]
    mixed = pd.DataFrame({"user": 1, "item": range(5), "rating": [5, "good", None, "bad", 4.5]})
    assert told(mixed) == [f"the frame: {text}; all rows count as likes"]
    dates = pl.DataFrame({"user": [1], "item": [1], "rating": [datetime(2020, 1, 1)]})
    assert "none of the 1 ratings can be read" in told(dates)[0]
    assert told(rated(None, None)) == []


def test_a_json_line_that_cannot_be_read_at_once_is_counted_once(tmp_path):
    rows = [{"user": n, "item": "a", "rating": "good"} for n in range(120)]
    rows += [{"user": "ann", "item": "a", "rating": "good"}]
    path = table(tmp_path, "\n".join(map(json.dumps, rows)), "ratings.jsonl")
    seen = loca.data.readers.read_table(str(path), loca.data.readers.ReadRequest())[1].columns.seen
    assert (seen.unread, seen.example) == (121, "good")


def test_low_ratings_that_a_minimum_leaves_are_told():
    percents = rated(3, 40, 60, 90, 100)
    assert told(percents, min_rating=4) == [
        "the frame: 25 % of the ratings of at least 4 are below 50, the middle of their scale (0 to 100), "
        "and count as likes; min_rating=60 takes only those above the middle"
    ]
    assert told(percents, min_rating=60) == []


def test_where_most_ratings_are_low_the_scale_may_be_turned():
    end = "takes only those above the middle; if 1 is the best on your scale, turn it first (6 − rating)"
    assert told(rated(1, 1, 1, 5))[0].endswith(end)
    assert told(rated(1, 1, 5, 5))[0].endswith("takes only those above the middle")


def test_later_ratings_on_another_scale_are_refused():
    known = read_interactions(rated(0, 10, 7), min_rating=6)
    assert known.schema.rating_range == (0, 10)
    assert refusal(rated(70, 90, 100), like=known) == (
        "the frame: ratings run from 70 to 100, and those of the fit from 0 to 10; "
        "bring them to the scale of the fit"
    )
    assert len(read_interactions(rated(7, 10, 10), like=known)) == 3
    weighted = read_interactions(rated(1, 10, 7), weight="rating")
    assert "ratings run from 70 to 100" in refusal(rated(70, 90, 100), like=weighted)


def test_later_ratings_are_taken_where_they_do_not_matter_or_fit_the_scale():
    assert len(read_interactions(rated(70, 100), like=read_interactions(rated(1, 10)))) == 2
    few = read_interactions(rated(3, 3), min_rating=3)
    assert len(read_interactions(rated(5, 5), like=few)) == 2
    counts = read_interactions(rated(1, 500), weight="rating")
    assert len(read_interactions(rated(1, 900), like=counts)) == 2


def test_the_range_of_ratings_is_stored_and_may_be_absent():
    schema = Schema(rating_range=(0.5, 5.0))
    written = json.loads(json.dumps(schema.to_json()))
    assert Schema.from_json(written) == schema
    del written["rating_range"]
    assert Schema.from_json(written).rating_range is None
    for wrong in ("x", [1], [1, "x"], [True, 2]):
        with pytest.raises(ConfigError, match="schema: rating_range: expected two numbers or none"):
            Schema.from_json({"rating_range": wrong})


@pytest.mark.parametrize("value", ["6", True, float("nan"), [1]])
def test_a_minimum_that_is_no_number_is_refused(value):
    with pytest.raises(ConfigError) as caught:
        read_interactions(rated(1, 5), min_rating=value)
    assert str(caught.value) == f"min_rating: expected a number, found {value!r}"


def test_a_minimum_is_the_same_as_a_fraction():
    known = read_interactions(rated(1, 5), min_rating=4)
    assert len(read_interactions(rated(1, 5), min_rating=4.0, like=known)) == 1


# -- Times under other names -------------------------------------------------------------------------------------------


def ignored(column, look, name="ratings.csv", mend=""):
    return f"{name}: column {column!r} {look} but is not used; {mend}say time={column!r}"


WRITE = "write dates as 2013-12-31, the year first, and "
LOOKS = [
    ([NEW_YEAR + 5, NEW_YEAR], "looks like seconds since 1970", ""),
    ([1000 * NEW_YEAR + 5, 1000 * NEW_YEAR], "looks like milliseconds since 1970", ""),
    ([20140102, 20140101], "looks like days written as 20131231", ""),
    (["2014-01-02", "2014-01-01"], "holds dates", ""),
    (["31.12.2013", "01.02.2014"], "holds dates such as '31.12.2013'", WRITE),
    (["12/31/2013", "2/1/2014 10:30 PM"], "holds dates such as '12/31/2013'", WRITE),
    (["09 13, 2009", "12 1, 2010"], "holds dates such as '09 13, 2009'", WRITE),
    (["Dec 31, 2013", "Feb 1, 2014"], "holds dates such as 'Dec 31, 2013'", WRITE),
    (["31-Dec-13", "01-Feb-14"], "holds dates such as '31-Dec-13'", WRITE),
    (
        ["Tue Dec 31 09:00:00 +0000 2013", "Wed Jan 01 09:00:00 +0000 2014"],
        "holds dates such as 'Tue Dec 31 09:00:00 +0000 2013'",
        WRITE,
    ),
]


@pytest.mark.parametrize(("values", "look", "mend"), LOOKS)
def test_a_column_of_moments_under_an_unusual_name_is_told(tmp_path, values, look, mend):
    frame = pl.DataFrame({"user": [1, 1], "item": [1, 2], "seen_when": values})
    expected = ignored("seen_when", look, mend=mend)
    lines = table(tmp_path, frame.write_ndjson(), "ratings.jsonl")
    for source in (frame, frame.lazy(), frame.to_pandas()):
        assert told(source) == [expected.replace("ratings.csv", "the frame")]
    csv = table(tmp_path, frame.write_csv(separator=";"))
    assert told(csv) == [expected]
    assert told(lines) == [expected.replace("csv", "jsonl")]


def test_of_two_columns_of_moments_both_are_told_unless_there_is_a_time():
    columns = {"user": [1], "item": [1], "first": [NEW_YEAR], "last": [NEW_YEAR + 1]}
    assert len(told(pl.DataFrame(columns), "time-ignored")) == 2
    assert told(pl.DataFrame({**columns, "time": [NEW_YEAR]}), "time-ignored") == []


@pytest.mark.parametrize(
    "values", [[1.5, 2.5], [12, 900], ["1.0.3", "2.4.1"], ["red", "2014-01-01"], [None, None]]
)
def test_other_columns_are_not_taken_for_moments(values):
    assert told(pl.DataFrame({"user": [1, 1], "item": [1, 2], "extra": values})) == []


def test_columns_of_lists_and_gaps_do_no_harm():
    frame = pd.DataFrame({"user": [1, 1], "item": [1, 2]})
    frame["vector"] = [pd.Series([1, 2]).to_numpy(), None]
    frame["count"] = pd.array([1, None], dtype="Int64")
    frame["moment"] = pd.array([pd.NA, NEW_YEAR], dtype="Int64")
    assert told(frame, "time-ignored") == [
        ignored("moment", "looks like seconds since 1970", "the frame")
    ]


@pytest.mark.parametrize(
    "name",
    "created_utc reviewTime order_date PurchaseDate rated_at playedAt watched_on watched_at Datum".split(),
)
def test_more_usual_names_of_the_time_are_known(tmp_path, name):
    path = table(tmp_path, f"user,item,{name}\n1,1,{NEW_YEAR + 1}\n1,2,{NEW_YEAR}\n")
    assert histories_of(read_interactions(path)) == {1: [2, 1]}


@pytest.mark.parametrize("text", ["31.12.2013", "12/31/2013", "12/31/2013 14:30"])
def test_a_date_that_may_be_read_in_two_ways_is_refused_as_time(tmp_path, text):
    path = table(tmp_path, f"user,item,time\n1,1,{text}\n1,2,{text}\n")
    assert refusal(path) == (
        f"ratings.csv line 2: expected a number, or ISO dates throughout, as time, found {text!r}; "
        "write dates as 2013-12-31, the year first"
    )
    frame = pl.DataFrame({"user": [1], "item": [1], "time": [text]})
    assert refusal(frame).endswith("; write dates as 2013-12-31, the year first")


# -- What messages say -------------------------------------------------------------------------------------------------


def test_the_kinds_of_events_that_are_there_are_named(tmp_path):
    kinds = ["view"] * 200 + ["cart", "buy"]
    frame = pl.DataFrame({"user": range(202), "item": range(202), "event": kinds})
    text = (
        "all rows count the same, whatever column 'event' (view, cart, buy) says; "
        "weight='view=1,cart=1,buy=1' with weights of your own uses it"
    )
    lines = table(tmp_path, frame.write_ndjson(), "ratings.jsonl")
    for source, name in (
        (frame, "the frame"),
        (frame.lazy(), "the frame"),
        (table(tmp_path, frame.write_csv()), "ratings.csv"),
        (lines, "ratings.jsonl"),
    ):
        assert told(source) == [f"{name}: {text}"]
    assert told(frame, weight="view=1,cart=1,buy=1") == []
    assert "event" not in dict(read_interactions(frame).schema.columns)


def test_of_many_kinds_of_events_six_are_named():
    frame = pl.DataFrame({"user": range(9), "item": range(9), "action": list("abcdefghi")})
    (text,) = told(frame)
    assert "column 'action' (a, b, c, d, e, f, …) says" in text
    assert "weight='a=1,b=1,c=1,d=1,e=1,f=1,…'" in text


def test_events_that_are_no_text_do_no_harm():
    frame = pl.DataFrame({"user": [1, 2], "item": [1, 2], "event": [["a"], None]})
    assert "whatever column 'event' says" in told(frame)[0]
    mixed = pd.DataFrame({"user": [1, 2], "item": [1, 2], "event": [1, "buy"]})
    assert "(1, buy)" in told(mixed)[0]


def described(path, capsys):
    assert main(["data", "describe", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    return dict(line.split("  ", 1) for line in lines if "  " in line)


def test_a_column_without_a_name_is_named_by_its_place(tmp_path, capsys):
    path = table(tmp_path, ",user,item\n0,1,1\n1,2,2\n")
    found = described(path, capsys)
    assert found["columns not used"].strip() == "(column 0, without a name)"
    moments = table(tmp_path, f",user,item\n{NEW_YEAR},1,1\n{NEW_YEAR},2,2\n")
    assert told(moments)[0].endswith("looks like seconds since 1970 but is not used; say time=0")


def test_whole_numbers_of_ratings_are_written_in_full(tmp_path, capsys):
    path = table(tmp_path, "user,item,rating\n" + rows_of(1_104, lambda n: f"{n},1,{20_629 + n}"))
    assert described(path, capsys)["values of ratings"].strip() == (
        "20,629 to 21,732, 1,104 different; these look like ids"
    )
    path = table(tmp_path, "user,item,rating\n1,1,20629\n1,2,2616880\n")
    shown = described(path, capsys)["values of ratings"].strip()
    assert shown == "20,629 to 2,616,880, 2 different"
    path = table(tmp_path, "user,item,rating\n1,1,0.5\n1,2,5\n")
    shown = described(path, capsys)["values of ratings"].strip()
    assert shown == "0.5 to 5, 2 different, on a scale of 0.5 to 5"


def test_describe_tells_what_its_figures_do_not_say(tmp_path, capsys):
    path = table(tmp_path, "ann,tea,5,100\nann,?,1,90\nbob,?,5,80\n")
    assert main(["data", "describe", str(path), "--no-header", "--json"]) == 0
    notes = json.loads(capsys.readouterr().out)["notes"]
    assert [note["kind"] for note in notes] == ["columns-guessed", "missing-ids"]
    assert "say user=…, item=… if they are others" in notes[0]["text"]


@pytest.mark.parametrize(
    "pair",
    [("7", "7.0"), ("caf\u00e9", "cafe\u0301"), ("i2", "i2\u200b"), ("a b", "a  b"), ("I7", "i7")],
)
def test_ids_that_look_the_same_are_told(pair: tuple[str, str]) -> None:
    with pytest.warns(loca.LocaWarning, match="differ from another one only by") as caught:
        loca.read_interactions(pl.DataFrame({"user": ["x", "y"], "item": list(pair)}))
    assert [one.message.kind for one in caught] == ["ids-alike"]


@pytest.mark.parametrize(
    "ids",
    [["5.90123E+12", "5.90124E+12"], [float(2**53), float(2**53 + 2)]],
    ids=["text", "numbers"],
)
def test_ids_that_have_lost_digits_are_told(ids: list[object]) -> None:
    with pytest.warns(loca.LocaWarning) as caught:
        loca.read_interactions(pl.DataFrame({"user": ids, "item": ["a", "b"]}))
    assert [one.message.kind for one in caught] == ["ids-rounded"]


def test_times_of_which_some_name_a_zone_are_told() -> None:
    times = ["2024-01-01 10:00:00", "2024-01-01 11:00:00+09:00"]
    frame = pl.DataFrame({"user": ["a", "a"], "item": ["x", "y"], "time": times})
    with pytest.warns(loca.LocaWarning, match="some times name a time zone and others do not"):
        data = loca.read_interactions(frame)
    assert data.items.ids(data.items_of(0)) == ["y", "x"]
    for alike in (["2024-01-01 10:00", "2024-01-02"], ["2024-01-01 10:00Z", "2024-01-01 11:00Z"]):
        assert told(frame.with_columns(time=pl.Series(alike))) == []
