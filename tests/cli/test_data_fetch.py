"""`loca data fetch`, with a server on this machine, without any network, and with bad input."""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from command_calls import Call

from loca.data.datasets import PUBLIC_SETS, Checksum, DataSet

REVIEWS = "".join(
    json.dumps(
        {"overall": 5.0, "reviewerID": f"A{user:09}", "asin": f"B{item:09}", "unixReviewTime": item}
    )
    + "\n"
    for user in range(3)
    for item in range(10)
)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def small_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DataSet]:
    """A small amusic.rating with its checksum, on a server of this machine."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    text = "".join(f"{user},{item},5,{item}\n" for user in range(3) for item in range(10)).encode()
    (shelf / "amusic.rating").write_bytes(text)
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=shelf))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    small = replace(
        PUBLIC_SETS["amusic"],
        addresses=(f"http://127.0.0.1:{server.server_address[1]}/amusic.rating",),
        checksum=Checksum("sha256", hashlib.sha256(text).hexdigest(), "publisher"),
    )
    monkeypatch.setitem(PUBLIC_SETS, "amusic", small)
    yield small
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def games(tmp_path: Path) -> Path:
    """A folder in which somebody has put the Amazon games by hand."""
    path = tmp_path / "data" / "agames" / "Video_Games_5.json.gz"
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.compress(REVIEWS.encode()))
    return tmp_path / "data"


@pytest.mark.usefixtures("small_set")
def test_fetched_data_is_reported_with_the_command_that_reads_it(
    call: Call, tmp_path: Path
) -> None:
    said = call("data", "fetch", "amusic", "--to", tmp_path / "data")
    path = tmp_path / "data" / "amusic" / "amusic.rating"
    command = f"loca data describe {path} --preset amusic"
    assert said.out == f"{path}\n0.0 MB; SHA-256 as published\nNext: {command}\n"
    licence, terms = said.err.splitlines()
    assert licence.startswith("amusic: Amazon Digital Music")
    assert terms.startswith("Terms: no licence is stated")
    described = json.loads(call(*command.split()[1:], "--json").out)
    assert (described["users"], described["items"], described["ratings"]) == (3, 10, 30)


def test_quiet_leaves_the_answer_alone_and_json_has_all_of_it(
    call: Call, small_set: DataSet, tmp_path: Path
) -> None:
    said = call("data", "fetch", "amusic", "--to", tmp_path, "--quiet")
    assert said.err == ""
    assert said.out.startswith(str(tmp_path / "amusic" / "amusic.rating"))
    said = call("data", "fetch", "amusic", "--to", tmp_path, "--again", "--json")
    assert said.err == ""
    found = json.loads(said.out)
    assert found["is_new"]
    assert found["path"] == str(tmp_path / "amusic" / "amusic.rating")
    assert found["checksum"]["digest"] == small_set.checksum.digest  # type: ignore[union-attr]
    assert found["licence"]["address"].startswith("https://")
    assert found["next"].endswith("--preset amusic")


def test_what_is_there_is_not_downloaded_and_said_not_to_be_verified(
    call: Call, games: Path
) -> None:
    done = call("data", "fetch", "agames", "--to", games)
    assert done.code == 0
    assert len(done.err.splitlines()) == 1
    assert "already there and sound, not downloaded again" in done.err
    assert "not verified against a publisher" in done.out
    next_command = done.out.splitlines()[-1].removeprefix("Next: loca ").split()
    assert json.loads(call(*next_command, "--json").out)["users"] == 3


def test_the_environment_names_the_folder(
    call: Call, games: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCA_DATA", str(games))
    found = json.loads(call("data", "fetch", "AGAMES", "--json").out)
    assert found["path"] == str(games / "agames" / "Video_Games_5.json.gz")
    assert not found["is_new"]


def test_the_list_names_every_set_with_size_and_licence(call: Call, games: Path) -> None:
    done = call("data", "fetch", "--list", "--to", games)
    lines = done.out.splitlines()
    assert [line.split()[0] for line in lines] == list(PUBLIC_SETS)
    assert "198.7 MB  research" in lines[3]
    assert [line.split()[0] for line in lines if line.endswith("[here]")] == ["agames"]
    listed = json.loads(call("data", "fetch", "--list", "--json", "--to", games).out)
    assert listed["folder"] == str(games)
    sizes = {one["name"]: one["size"] for one in listed["sets"]}
    assert sizes == {one.name: one.size for one in PUBLIC_SETS.values()}


def test_without_a_network_one_line_says_how_to_go_on(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        closed = f"http://127.0.0.1:{one.getsockname()[1]}"
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("https_proxy", closed)
    line = call("data", "fetch", "ml-100k", "--to", tmp_path, "--quiet").mistake
    assert (
        "https://files.grouplens.org/datasets/movielens/ml-100k.zip: no connection: Connection refused"
        in line
    )
    assert line.endswith(f"put it at {tmp_path / 'ml-100k' / 'ml-100k.zip'}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ml-100"], "unknown data set 'ml-100'; did you mean 'ml-100k'"),
        ([], "expected either the name of a data set, such as ml-20m, or --list"),
        (["ml-1m", "--list"], "expected either the name of a data set, such as ml-20m, or --list"),
    ],
)
def test_bad_input_gets_one_clear_line(call: Call, arguments: list[str], message: str) -> None:
    assert message in call("data", "fetch", *arguments).mistake


def test_a_damaged_file_is_refused_and_left_as_it_is(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "ml-1m" / "ml-1m.zip"
    path.parent.mkdir()
    path.write_bytes(b"damaged")
    line = call("data", "fetch", "ml-1m", "--to", tmp_path).mistake
    assert "expected c4d9eecfca2ab87c1945afe126590906" in line
    assert "--again downloads it anew" in line
    assert path.read_bytes() == b"damaged"
