"""`loca recommend` for many users, with candidates and items from files, and `loca similar`."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import polars as pl
import pytest
from command_calls import Call

import loca
from loca.models.recommender import Recommender


@pytest.fixture(scope="session")
def model(model_folder: Path) -> Recommender:
    return loca.load(model_folder)


@pytest.fixture(scope="session")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of numbered users and films: the numbers are all that some commands see."""
    folder = tmp_path_factory.mktemp("films")
    titles = {
        1: "Heat (1995)",
        2: "Ronin (1998)",
        3: "Matrix, The (1999)",
        4: "Sabrina (1954)",
        5: "Sabrina (1995)",
    }
    events = [(user, 1 + (user + place) % 5) for user in range(1, 11) for place in range(3)]
    data = loca.read_interactions(
        pl.DataFrame(events, schema=["user", "item"], orient="row")
    ).with_titles(titles)
    loca.Popularity().fit(data).save(folder / "m")
    return folder / "m"


def answers(call: Call, *arguments: object) -> dict[object, list[object]]:
    """The items that a command lists, by user or item."""
    done = call(*arguments, "--json")
    assert (done.code, done.err) == (0, ""), done
    found = json.loads(done.out)["answers"]
    return {
        one.get("user", one.get("item")): [row["item"] for row in one["items"]] for one in found
    }


@pytest.mark.parametrize("name", ["recs.parquet", "recs.csv", "recs.jsonl"])
def test_all_users_are_written_as_the_library_answers_them(
    call: Call, model_folder: Path, model: Recommender, tmp_path: Path, name: str
) -> None:
    done = call("recommend", model_folder, "--all", "-n", "4", "--out", tmp_path / name)
    assert done.code == 0
    assert done.out.startswith(f"{tmp_path / name}: 600 rows for 150 users, in ")
    read = {"parquet": pl.read_parquet, "csv": pl.read_csv, "jsonl": pl.read_ndjson}[
        name.partition(".")[2]
    ]
    found, wanted = read(tmp_path / name), model.recommend(model.train_data_, 4).to_polars()
    assert found.select("user", "item", "rank", "title").equals(
        wanted.select("user", "item", "rank", "title")
    )
    assert (found["score"] - wanted["score"]).abs().max() < 1e-6


def test_what_was_written_is_told_as_json_too(
    call: Call, model_folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "a.csv"
    done = call(
        "recommend",
        model_folder,
        "--user",
        "u003",
        "--user",
        "x",
        "--on-unknown",
        "skip",
        "--out",
        out,
        "--json",
    )
    found = json.loads(done.out)
    assert found.pop("seconds") >= 0
    rows = {"users": 2, "users_without_items": 1, "rows": 10}
    note = {"kind": "users-left-out", "text": "1 user without a known history: an empty list"}
    assert found == {"model": str(model_folder), "path": str(out), **rows, "notes": [note]}


def test_users_come_from_a_file_or_from_standard_input(
    call: Call, films: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = '\ufeffuser\n3\n\n "7" \n3\n'
    (tmp_path / "users.txt").write_text(text)
    wanted = answers(call, "recommend", films, "--user", "3", "--user", "7", "-n", "2")
    assert [*wanted] == [3, 7]
    assert (
        answers(call, "recommend", films, "--users-file", tmp_path / "users.txt", "-n", "2")
        == wanted
    )
    monkeypatch.setattr("sys.stdin", io.StringIO(text.removeprefix("\ufeff")))
    assert answers(call, "recommend", films, "--users-file", "-", "-n", "2") == wanted


def test_one_unknown_user_does_not_fail_the_others_where_that_is_chosen(
    call: Call, films: Path, tmp_path: Path
) -> None:
    (tmp_path / "users.txt").write_text("3\n99\nnobody\n")
    ask = ("recommend", films, "--users-file", tmp_path / "users.txt", "-n", "5")
    refused = call(*ask).mistake
    assert refused.startswith(f"{tmp_path / 'users.txt'} line 2: unknown user '99'; ")
    assert refused.endswith("; --on-unknown skip or popular goes on without it")
    own = answers(call, "recommend", films, "--user", "3", "-n", "5")[3]
    assert answers(call, *ask, "--on-unknown", "skip") == {3: own, 99: [], "nobody": []}
    popular = answers(call, *ask, "--on-unknown", "popular")
    assert (
        popular[99] == popular["nobody"] == [1, 2, 3, 4, 5]
    )  # each has six users: the lower row stands first


def test_unknown_titles_and_an_empty_history_may_be_left_out_of_a_history(
    call: Call, films: Path
) -> None:
    ask = ("recommend", films, "-n", "5")
    assert "--history: unknown item 'Nonsense'" in call(*ask, "--history", "heat,Nonsense").mistake
    assert answers(call, *ask, "--history", "heat,Nonsense", "--on-unknown", "skip") == {
        "history": [2, 3, 4, 5]
    }
    assert answers(call, *ask, "--history", "", "--on-unknown", "skip") == {"history": []}
    assert answers(call, *ask, "--history", "", "--on-unknown", "popular") == {
        "history": [1, 2, 3, 4, 5]
    }
    ambiguous = call(*ask, "--history", "heat,sabrina", "--on-unknown", "skip").mistake
    assert ambiguous == (
        "--history: 'sabrina' fits 2 items: 4 (Sabrina (1954)), 5 (Sabrina (1995)); give the id of one"
    )


def test_what_was_understood_of_a_history_is_said_beside_the_answer(
    call: Call, films: Path
) -> None:
    assert (
        call("recommend", films, "--history", "the matrix,heat").err
        == "history: Matrix, The (1999), Heat (1995)\n"
    )


def test_histories_of_new_users_come_from_a_file(
    call: Call, model_folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "new.csv").write_text(
        "user,item,time\nann,i08,2\nann,i03,1\nbob,i20,1\nbob,i999,2\n"
    )
    ask = ("recommend", model_folder, "--histories", tmp_path / "new.csv", "-n", "3")
    assert "--histories: unknown item 'i999'; close ones are " in call(*ask).mistake
    found = answers(call, *ask, "--on-unknown", "skip")
    assert (
        found["ann"]
        == answers(call, "recommend", model_folder, "--history", "i03,i08", "-n", "3")["history"]
    )
    assert (
        found["bob"]
        == answers(call, "recommend", model_folder, "--history", "i20", "-n", "3")["history"]
    )


def test_candidates_bound_the_lists_of_their_users_alone(
    call: Call, films: Path, tmp_path: Path
) -> None:
    # User 3 has the items 4, 5 and 1; user 4 has 5, 1 and 2.
    (tmp_path / "c.csv").write_text("user,item\n3,2\n3,4\n5,1\n")
    ask = ("recommend", films, "--user", "3", "--user", "4", "--candidates", tmp_path / "c.csv")
    assert answers(call, *ask) == {3: [2], 4: [3, 4]}
    (tmp_path / "c.csv").write_text("user,item\n3,2\n3,77\n")
    for on_unknown in ("error", "skip", "popular"):
        refused = call(*ask, "--on-unknown", on_unknown).mistake
        assert "--candidates: unknown item 77" in refused
    (tmp_path / "c.csv").write_text("user,item\n99,1\n")
    assert "--candidates: unknown user '99'" in call(*ask).mistake
    (tmp_path / "c.csv").write_text("user,item\n5,1\n")
    assert "--candidates: none of the 1 user that they name, such as" in call(*ask).mistake


def test_items_to_choose_from_or_leave_out_come_from_files(
    call: Call, films: Path, tmp_path: Path
) -> None:
    (tmp_path / "shelf").write_text("The Matrix\n2\n\nSabrina (1954)\n")
    ask = ("recommend", films, "--history", "heat", "-n", "5")
    assert answers(call, *ask, "--only", f"@{tmp_path / 'shelf'}") == {"history": [2, 3, 4]}
    assert answers(call, *ask, "--never", f"@{tmp_path / 'shelf'}", "--never", "5") == {
        "history": []
    }
    (tmp_path / "shelf").write_text("2\nSabrina\n")
    assert (
        f"{tmp_path / 'shelf'} line 2: 'Sabrina' fits 2 items"
        in call(*ask, "--only", f"@{tmp_path / 'shelf'}").mistake
    )


def test_similar_items_are_those_of_the_model(
    call: Call, model_folder: Path, model: Recommender
) -> None:
    data = model.train_data_
    assert data is not None
    title = data.items.label(8)
    found = answers(call, "similar", model_folder, "i03", title.lower(), "-n", "4")
    ids = ["i03", "i08"]
    assert found == dict(zip(ids, model.similar_items(ids, 4).items.tolist(), strict=True))
    text = call("similar", model_folder, "i08", "-n", "1").out
    assert text.startswith(f"Like {title}\n")
    assert "ITEM: unknown item 'x'" in call("similar", model_folder, "x").mistake
    assert "-n: expected a list length" in call("similar", model_folder, "i03", "-n", "0").mistake


def test_a_list_is_at_most_as_long_as_there_are_items(call: Call, films: Path) -> None:
    assert answers(call, "recommend", films, "--history", "heat", "-n", "1000000000") == {
        "history": [2, 3, 4, 5]
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--all"], "--all: needs --out, a file such as recs.parquet, recs.csv or recs.jsonl"),
        (["--all", "--user", "3", "--out", "a.csv"], "who asks? expected one of --user ID"),
        (
            ["--all", "--out", "a.txt"],
            "--out: a.txt: expected a file name that ends in .parquet, .csv",
        ),
        (["--all", "--out", "/proc/a.csv"], "/proc/a.csv: cannot be written"),
        (["--users-file", "nowhere"], "--users-file: nowhere: there is no such file"),
        (["--users-file", "/"], "--users-file: /: cannot be read (Is a directory)"),
        (
            ["--users-file", "/dev/null"],
            "--users-file: /dev/null: expected one per line, found nothing",
        ),
        (["--users-file", "MODEL/model.json"], "MODEL/model.json line 1: unknown user '{'"),
        (["--user", "3", "--only", "@nowhere"], "--only: nowhere: there is no such file"),
        (
            ["--user", "3", "--candidates", "nowhere.csv"],
            "--candidates: nowhere.csv: there is no such file",
        ),
        (["--histories", "nowhere.csv"], "--histories: nowhere.csv: there is no such file"),
        (["--user", "3", "--on-unknown", "maybe"], "Invalid value for '--on-unknown'"),
        (["--user", "3", "-n", "2.5"], "Invalid value for '-n' / '--count'"),
        (["--user", "3", "-n", "-1"], "-n: expected a list length of 1 or more, found -1"),
    ],
)
def test_a_wrong_request_is_refused(
    call: Call, films: Path, options: list[str], message: str
) -> None:
    filled = [one.replace("MODEL", str(films)) for one in options]
    assert message.replace("MODEL", str(films)) in call("recommend", films, *filled).mistake


def test_tables_beside_a_model_are_spoken_of_without_options_that_the_command_does_not_have(
    call: Call, model_folder: Path, tmp_path: Path
) -> None:
    bare, rated = tmp_path / "bare.csv", tmp_path / "rated.csv"
    bare.write_text("x,y,z\n1,2,3\n")
    problem = (
        "cannot tell which column holds the users; the columns are x, y, z; call one of them user"
    )
    message = f"--histories: {bare.name}: {problem}"
    assert message in call("recommend", model_folder, "--histories", bare).mistake
    rated.write_text("user,item,rating\nann,i01,1\nann,i02,5\nann,i03,4\nann,i04,4\n")
    done = call("recommend", model_folder, "--histories", rated, "-n", "1")
    note = "note: rated.csv: 25 % of the ratings are below 3, the middle of their scale (1 to 5), and count as likes\n"
    assert (done.code, done.err) == (0, note)


def test_lists_in_parts_are_those_of_one_file_and_go_on(
    call: Call, model_folder: Path, model: Recommender, tmp_path: Path
) -> None:
    out = tmp_path / "lists"
    ask = ("recommend", model_folder, "--all", "-n", "4", "--out", out, "--parts", "7")
    assert call(*ask).out.startswith(f"{out}: 600 rows for 150 users, in ")
    wanted = model.recommend(model.train_data_, 4).to_polars().select("user", "item", "rank")
    assert pl.read_parquet(out / "*.parquet").select("user", "item", "rank").equals(wanted)
    parts = sorted(out.glob("part-*"))
    assert [one.name for one in parts] == [
        f"part-{number:05d}-of-00007.parquet" for number in range(7)
    ]
    # What is there stays, what is missing is written, what a kill has left goes.
    before = {one.name: one.stat().st_mtime_ns for one in parts}
    parts[3].unlink()
    (out / f".{parts[3].name}.17.new").write_bytes(b"half")
    assert call(*ask, "--quiet").code == 0
    after = {one.name: one.stat().st_mtime_ns for one in out.glob("part-*")}
    assert [name for name in before if before[name] != after[name]] == [parts[3].name]
    assert pl.read_parquet(out / "*.parquet").select("user", "item", "rank").equals(wanted)
    assert sorted(one.name for one in out.iterdir()) == ["_request.json", *before]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["-n", "5"],
            "holds lists of another request: items per user: 4 then, 5 now; choose another folder",
        ),
        (["--never", "i01"], "holds lists of another request: never: None then, "),
        (["--recency", "3"], "holds lists of another request: recency: model then, "),
        (
            ["--parts", "3"],
            "expected a folder for 3 parts, found 'part-00000-of-00002.parquet'; choose another",
        ),
    ],
)
def test_parts_of_another_request_are_refused(
    call: Call, model_folder: Path, tmp_path: Path, options: list[str], message: str
) -> None:
    ask = ("recommend", model_folder, "--all", "--out", tmp_path / "lists")
    assert call(*ask, "-n", "4", "--parts", "2").code == 0
    given = {"-n": "4", "--parts": "2"} | dict([options])
    assert message in call(*ask, *(word for pair in given.items() for word in pair)).mistake


def test_what_is_no_folder_of_parts_is_refused(
    call: Call, model_folder: Path, tmp_path: Path
) -> None:
    ask = ("recommend", model_folder, "--all", "--parts", "2", "--out", tmp_path / "lists")
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "thesis.txt").write_text("mine")
    assert "expected a folder for 2 parts, found 'thesis.txt'" in call(*ask).mistake
    (tmp_path / "lists" / "thesis.txt").rename(tmp_path / "lists" / "_request.json")
    assert "holds lists of another request: " in call(*ask).mistake
    assert (
        "expected a folder for 2 parts, found a file"
        in call(*ask[:-1], tmp_path / "lists" / "_request.json").mistake
    )
    assert (
        "--parts: is for --all"
        in call("recommend", model_folder, "--user", "u003", "--parts", "2").mistake
    )
    assert "--parts: takes no --candidates" in call(*ask, "--candidates", "x.csv").mistake


def test_a_cluster_without_ray_says_what_to_install(
    call: Call, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "loca.cluster.ray_executor", raising=False)
    for ask in (
        ("recommend", model_folder, "--all", "--out", tmp_path / "lists"),
        ("fit", "planted", "--model", "loca-ease", "--out", tmp_path / "m"),
        ("compare", "planted", "--models", "ease", "--out", tmp_path / "results"),
        ("tune", "planted", "--model", "ease", "--study", tmp_path / "study.db"),
    ):
        assert call(*ask, "--cluster", "auto").mistake.endswith(
            "a cluster needs ray: pip install 'loca[cluster]'"
        )
    assert not (tmp_path / "m").exists()
