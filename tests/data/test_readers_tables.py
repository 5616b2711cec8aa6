"""Frames, Parquet, JSON lines and sparse matrices give the same interactions as text does."""

import io
import json
import zipfile
from datetime import UTC, date, datetime, timedelta, timezone
from uuid import UUID

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from event_examples import histories_of
from scipy.sparse import coo_array, coo_matrix, csc_matrix, csr_array

from loca.data.archives import Source
from loca.data.readers import read_file, read_interactions
from loca.data.recency import Recency
from loca.errors import ConfigError, DataError

pytestmark = pytest.mark.filterwarnings("ignore::loca.LocaWarning")

COLUMNS = {"user": ["b", "a", "a"], "item": [3, 2, 1], "rating": [1.0, 5.0, 4.0], "time": [3, 2, 1]}
HISTORIES = {"a": [1, 2], "b": [3]}


FRAMES = {
    "polars": pl.DataFrame(COLUMNS),
    "lazy polars": pl.DataFrame(COLUMNS).lazy(),
    "pandas": pd.DataFrame(COLUMNS),
    "pandas with an index": pd.DataFrame(COLUMNS, index=[7, 7, 7]),
    "pandas with numbered columns": pd.DataFrame(dict(enumerate(COLUMNS.values()))),
    "pandas categories": pd.DataFrame({**COLUMNS, "user": pd.Categorical(COLUMNS["user"])}),
    "pyarrow": pa.table(COLUMNS),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_frames_of_every_kind_are_read(kind):
    places = {"user": 0, "item": 1, "rating": 2, "time": 3} if "numbered" in kind else {}
    assert histories_of(read_interactions(FRAMES[kind], **places)) == HISTORIES
    assert histories_of(read_interactions(FRAMES[kind], min_rating=5, **places)) == {"a": [2]}


def test_columns_of_a_frame_are_given_by_name_or_position():
    frame = pd.DataFrame({"what": [1, 2], "who": ["a", "a"], "when": [2, 1]})
    for user, item, time in (("who", "what", "when"), (1, 0, 2)):
        assert histories_of(read_interactions(frame, user=user, item=item, time=time)) == {
            "a": [2, 1]
        }


def test_dates_in_a_frame_become_seconds():
    east = timezone(timedelta(hours=2))
    for times in (
        [date(1970, 1, 2), date(1970, 1, 1)],
        [datetime(1970, 1, 2), datetime(1970, 1, 1)],
        [datetime(1970, 1, 2, 2, tzinfo=east), datetime(1970, 1, 1, 2, tzinfo=east)],
        ["1970-01-02", "1970-01-01"],
    ):
        found = read_interactions(pl.DataFrame({"user": ["a", "a"], "item": [1, 2], "time": times}))
        assert found.times.tolist() == [0, 86_400]


def test_pythons_dates_in_a_column_of_objects_are_times():
    east = timezone(timedelta(hours=2))
    moments = {
        "days": [date(1970, 1, 2), date(1970, 1, 1)],
        "moments": [datetime(1970, 1, 2), datetime(1970, 1, 1)],
        "both": [datetime(1970, 1, 2), date(1970, 1, 1)],
        "zones": [datetime(1970, 1, 2, 2, tzinfo=east), datetime(1970, 1, 1, tzinfo=UTC)],
        "pandas": [pd.Timestamp("1970-01-02"), pd.Timestamp("1970-01-01 02:00", tz=east)],
    }
    for times in moments.values():
        for frame in (
            pd.DataFrame({"user": ["a", "a"], "item": [1, 2], "t": pd.Series(times, dtype=object)}),
            pl.DataFrame(
                {"user": ["a", "a"], "item": [1, 2], "t": pl.Series(times, dtype=pl.Object)}
            ),
        ):
            found = read_interactions(frame, time="t")
            assert found.times.tolist() == [0, 86_400]
            assert histories_of(found) == {"a": [2, 1]}


def test_a_fraction_of_a_second_in_an_object_is_kept():
    moments = pd.Series([datetime(1970, 1, 1, 0, 0, 1, 250_000)], dtype=object)
    found = read_interactions(pd.DataFrame({"user": [1], "item": [1], "time": moments}))
    assert found.times.tolist() == [1.25]


def test_times_with_a_zone_become_utc():
    moments = pd.to_datetime(["1970-01-02 01:00", "1970-01-01 01:00"])
    frame = pd.DataFrame({"user": ["a", "a"], "item": [1, 2]})
    frame["time"] = moments.tz_localize("Europe/Paris")
    for source in (frame, pa.Table.from_pandas(frame), pl.from_pandas(frame)):
        assert read_interactions(source).times.tolist() == [0, 86_400]


@pytest.mark.parametrize("gap", [None, float("nan"), pd.NaT])
def test_a_gap_among_dates_is_refused_by_its_row(gap):
    moments = pd.Series([date(1970, 1, 2), gap], dtype=object)
    with pytest.raises(DataError, match="the frame row 2: the time is missing"):
        read_interactions(pd.DataFrame({"user": ["a", "a"], "item": [1, 2], "time": moments}))


def test_numeric_text_in_a_frame_stays_text_and_fractions_stay_fractions():
    found = read_interactions(pl.DataFrame({"user": ["1", "2"], "item": [1.0, 2.5]}))
    assert found.users.ids([0, 1]) == ["1", "2"]
    assert found.items.ids([0, 1]) == [1.0, 2.5]


@pytest.mark.parametrize(
    ("column", "values", "problem"),
    [
        ("user", ["a", None, "c"], "the frame row 2: the user is missing"),
        ("item", [1, None, 3], "the frame row 2: the item is missing"),
        (
            "item",
            [1.0, float("nan"), 3.0],
            "the frame row 2: expected text or a 64-bit number as item id, found nan",
        ),
        (
            "time",
            [1.0, 2.0, float("inf")],
            "the frame row 3: expected a number, or ISO dates throughout, as time",
        ),
        ("time", [1, None, 3], "the frame row 2: the time is missing"),
        (
            "time",
            ["1", "x", "3"],
            "the frame row 2: expected a number, or ISO dates throughout, as time, found 'x'",
        ),
        ("user", [[1], [2], [3]], r"the frame: expected text or numbers as user, found List"),
        ("time", [True, False, True], "the frame: expected numbers as time, found Boolean"),
        (
            "user",
            pl.Series([1, 2, 2**64 - 1], dtype=pl.UInt64),
            "the frame row 3: expected text or a 64-bit number",
        ),
    ],
)
def test_gaps_and_wrong_kinds_in_a_frame_are_refused_by_row(column, values, problem):
    frame = pl.DataFrame({"user": ["a", "b", "c"], "item": [1, 2, 3], column: values})
    with pytest.raises(DataError, match=problem) as refusal:
        read_interactions(frame)
    assert "\n" not in str(refusal.value)


def test_an_empty_frame_and_a_foreign_object_are_refused():
    with pytest.raises(DataError, match="the frame: there is no row"):
        read_interactions(pl.DataFrame({"user": [], "item": []}))
    with pytest.raises(
        DataError, match="expected a path, a data frame or a sparse matrix, found dict"
    ):
        read_interactions({"user": [1]})
    with pytest.raises(ConfigError, match="it does not apply to a DataFrame"):
        read_interactions(pl.DataFrame(COLUMNS), layout="movielens-1m")


@pytest.mark.parametrize("packed", [False, True])
def test_parquet_is_read_plain_and_from_a_zip(tmp_path, packed):
    data = io.BytesIO()
    pl.DataFrame(COLUMNS).write_parquet(data)
    path = tmp_path / ("table.zip" if packed else "table.parquet")
    if packed:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("table.parquet", data.getvalue())
    else:
        path.write_bytes(data.getvalue())
    assert histories_of(read_interactions(path)) == HISTORIES


def test_damaged_parquet_is_refused_in_one_line(tmp_path):
    path = tmp_path / "table.parquet"
    path.write_bytes(b"PAR1 and then nothing of use")
    with pytest.raises(DataError, match=r"table\.parquet: cannot be read as Parquet") as refusal:
        read_interactions(path)
    assert "\n" not in str(refusal.value)


def json_table(tmp_path, *rows):
    path = tmp_path / "table.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return path


def test_json_lines_are_read_with_fields_in_any_order_and_blank_lines(tmp_path):
    rows = [
        {"user": "a", "item": 2, "time": 2},
        "",
        {"time": 1, "user": "a", "item": 1},
        {"item": 3, "user": "b", "time": 3},
    ]
    assert histories_of(read_interactions(json_table(tmp_path, *rows))) == HISTORIES


def test_json_kinds_that_change_on_the_way_are_settled(tmp_path):
    rows = [{"user": 1, "item": "x", "time": n} for n in range(150)]
    rows += [{"user": "u", "item": "y", "time": 200.5}, {"user": "u", "item": "z", "time": 7}]
    found = histories_of(read_interactions(json_table(tmp_path, *rows)))
    assert found == {"1": ["x"], "u": ["z", "y"]}


def test_json_dates_are_accepted_as_time(tmp_path):
    rows = [{"user_id": "u", "business_id": "x", "date": "1970-01-02 00:00:00"}]
    rows += [{"user_id": "u", "business_id": "y", "date": "1970-01-01 00:00:00"}]
    assert histories_of(read_interactions(json_table(tmp_path, *rows))) == {"u": ["y", "x"]}


GOOD = {"user": "a", "item": 2, "time": 2}


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ("{'user': 1}", "table.jsonl line 2: expected a JSON object, found something else"),
        ("[1, 2]", r"table.jsonl line 2: expected a JSON object, found \[1, 2\]"),
        ({"user": "b", "time": 3}, "table.jsonl line 2: no 'item'; the fields are user, time"),
        (
            {**GOOD, "time": "soon"},
            "table.jsonl line 2: expected a number, or ISO dates throughout, as time, found 'soon'",
        ),
        (
            {**GOOD, "item": [1]},
            r"table.jsonl line 2: expected text or a number as item, found \[1\]",
        ),
    ],
)
def test_a_bad_line_of_json_is_refused_by_its_number(tmp_path, bad, problem):
    with pytest.raises(DataError, match=problem) as refusal:
        read_interactions(json_table(tmp_path, GOOD, bad, GOOD))
    assert "\n" not in str(refusal.value)


def test_a_bad_line_in_a_later_block_has_the_number_of_the_file(tmp_path):
    path = json_table(tmp_path, *[GOOD] * 200, {"user": "b"})
    with pytest.raises(DataError, match="line 201: no 'item'"):
        read_file(Source(path), block_bytes=100)
    assert len(read_file(Source(json_table(tmp_path, *[GOOD] * 200)), block_bytes=100)[0]) == 200


def test_a_json_list_is_refused(tmp_path):
    with pytest.raises(
        DataError, match="expected JSON lines, one object a line, found a JSON list"
    ):
        read_interactions(json_table(tmp_path, "[", json.dumps(GOOD), "]"))


DENSE = np.array([[0, 5, 3], [0, 0, 0], [1, 0, 0]])


@pytest.mark.parametrize("kind", [csr_array, csc_matrix, coo_array, coo_matrix])
def test_sparse_matrices_keep_their_shape_and_are_numbered(kind):
    found = read_interactions(kind(DENSE))
    assert histories_of(found) == {0: [1, 2], 1: [], 2: [0]}
    assert (found.n_users, found.n_items) == (3, 3)
    assert np.array_equal(found.matrix().toarray(), DENSE)


def test_the_values_of_a_matrix_are_weights_and_a_stored_zero_is_no_interaction():
    matrix = csr_array(DENSE.astype(float))
    matrix.data[0] = 0
    assert histories_of(read_interactions(matrix)) == {0: [2], 1: [], 2: [0]}
    assert matrix.nnz == 3  # the caller's matrix is left alone
    assert histories_of(read_interactions(csr_array(DENSE), min_rating=3)) == {0: [1, 2]}
    kept = read_interactions(csr_array(DENSE), min_rating=4, keep_unused_items=True)
    assert (kept.n_users, kept.n_items) == (1, 3)


def test_matrices_that_say_nothing_are_refused():
    with pytest.raises(DataError, match=r"the sparse matrix of shape \(2, 2\) holds no entry"):
        read_interactions(csr_array((2, 2)))
    with pytest.raises(
        DataError, match="expected finite numbers ≥ 0, found nan in row 0, column 0"
    ):
        read_interactions(csr_array(np.array([[np.nan]])))
    with pytest.raises(ConfigError, match="a sparse matrix has no columns"):
        read_interactions(csr_array(DENSE), user="u")
    with pytest.raises(ConfigError, match="does not apply to a sparse matrix"):
        read_interactions(csr_array(DENSE), layout="movielens-1m")


def test_recency_is_carried_by_what_is_read():
    recency = Recency.per_position(0.5)
    found = read_interactions(pl.DataFrame(COLUMNS), recency=recency)
    assert found.recency == recency
    assert found.histories().toarray().tolist() == [[0.5, 1.0, 0.0], [0.0, 0.0, 1.0]]


IDS = [UUID(int=5), UUID(int=5 << 70), UUID(int=7)]


@pytest.mark.parametrize(
    "users",
    [
        pd.Series(IDS),
        pl.Series(IDS, dtype=pl.Object),
        pl.Series([one.bytes for one in IDS[:1]] + [b"\xff" * 16] * 2),
    ],
    ids=["pandas objects", "polars objects", "bytes"],
)
def test_uuids_are_ids_as_text(users):
    library = pd if isinstance(users, pd.Series) else pl
    read = read_interactions(library.DataFrame({"user": users, "item": [1, 2, 3]}))
    assert str(IDS[0]) in read.users.values.tolist()
    assert all(len(one) == 36 for one in read.users.values.tolist())


def test_bytes_that_are_text_are_read_as_text():
    assert histories_of(
        read_interactions(pl.DataFrame({"user": [b"a", b"b\xc3\xa9"], "item": [1, 2]}))
    ) == {
        "a": [1],
        "bé": [2],
    }
    with pytest.raises(
        DataError, match="the frame row 2: expected text or a 64-bit number as user id"
    ):
        read_interactions(pl.DataFrame({"user": [b"\xff" * 16, b"\xff"], "item": [1, 2]}))


@pytest.mark.parametrize(
    ("users", "found"),
    [
        ([1, "a", 2], "int and str"),
        ([(1,), (2,), (3,)], "tuple"),
        ([None, 1.5, "x"], "float and str"),
        ([True, False, True], "bool"),
        ([True, 2, 3], "bool and int"),
        ([date(2020, 1, 1), date(2020, 1, 2), date(2020, 1, 3)], "date"),
        ([datetime(2020, 1, 1), date(2020, 1, 2), "a"], "date and datetime and str"),
    ],
)
def test_a_mixture_of_ids_is_refused_with_its_column(users, found):
    with pytest.raises(DataError) as caught:
        read_interactions(pd.DataFrame({"user": pd.Series(users, dtype=object), "item": [1, 2, 3]}))
    assert str(caught.value) == (
        f"the frame column 'user': expected all text or all numbers, found {found}; "
        "convert it, such as frame['user'].astype(str)"
    )


def test_ratings_below_0_in_a_matrix_need_a_minimum():
    ratings = csr_array(np.array([[1.0, -1.0], [0.0, 1.0]]))
    with pytest.raises(
        DataError, match=r"the matrix: expected finite numbers ≥ 0, found -1.0 in row 0, column 1"
    ):
        read_interactions(ratings)
    assert histories_of(read_interactions(ratings, min_rating=0)) == {0: [0], 1: [1]}


# -- What is said of a table -------------------------------------------------------------------------------------------


def said_of(source, **options):
    return [str(remark) for remark in read_interactions(source, **options).remarks]


def rated(*ratings, **more):
    return pl.DataFrame(
        {"user": range(len(ratings)), "item": range(len(ratings)), "rating": ratings, **more}
    )


@pytest.mark.parametrize(
    ("ratings", "note"),
    [
        ((1, 2, 4, 5), "50 % of the ratings are below 3, the middle of their scale (1 to 5)"),
        (
            (0.5, 3.0, 5.0, 4.0),
            "25 % of the ratings are below 2.75, the middle of their scale (0.5 to 5)",
        ),
        ((-1, 1, 1, 1), "25 % of the ratings are below 0, the middle of their scale (-1 to 1)"),
        ((2, 9, 9, 9), "25 % of the ratings are below 5.5, the middle of their scale (1 to 10)"),
    ],
)
def test_low_ratings_that_count_as_likes_are_said(ratings, note):
    (line,) = said_of(rated(*ratings))
    high = min(one for one in ratings if one > float(note.split("below ")[1].split(",")[0]))
    advice = f"min_rating={high:g} takes only those above the middle"
    assert line == f"the frame: {note}, and count as likes; {advice}"
    assert said_of(rated(*ratings), min_rating=high) == []


@pytest.mark.parametrize("ratings", [(4, 5, 5), (1, 1, 1), (3, 1000, 7), (1, 2, 2), (None, None)])
def test_high_ratings_counts_and_a_single_value_are_no_cause_for_a_note(ratings):
    assert said_of(rated(*ratings)) == []


def test_ratings_that_are_not_needed_may_be_anything(tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_text("user,item,rating\n1,2,good\n1,3,\n2,3,1\n2,4,5\n")
    assert len(read_interactions(path)) == 4
    assert "50 % of the ratings are below 3" in said_of(path)[0]
    with pytest.raises(DataError, match="line 2: expected a number as rating, found 'good'"):
        read_interactions(path, min_rating=1)
    path.write_text(
        '{"user": 1, "item": 2, "rating": 5}\n' * 200
        + '{"user": 1, "item": 3, "rating": {"of": 5}}\n'
    )
    assert len(read_interactions(path)) == 2


def test_a_column_of_dates_is_taken_by_its_name_or_named_in_a_note(tmp_path):
    days = [date(2024, 1, 2), date(2024, 1, 1)]
    events = {"user": [1, 1], "item": [1, 2]}
    assert histories_of(read_interactions(pl.DataFrame({**events, "when": days}))) == {1: [2, 1]}
    note = "column 'bought' holds dates but is not used; say time='bought'"
    for bought in (pd.to_datetime(days), pd.Series(days, dtype=object)):
        frame = pd.DataFrame({**events, "bought": bought})
        assert said_of(frame) == [f"the frame: {note}"]
    for name, text in (
        ("a.csv", "user,item,bought,colour\n1,1,2024-01-02,red\n1,2,2024-01-01,\n"),
        (
            "a.jsonl",
            '{"user": 1, "item": 1, "bought": "2024-01-02"}\n{"user": 1, "item": 2, "bought": "2024-01-01"}\n',
        ),
    ):
        (tmp_path / name).write_text(text)
        assert said_of(tmp_path / name) == [f"{name}: {note}"]
        assert said_of(tmp_path / name, time="bought") == []
