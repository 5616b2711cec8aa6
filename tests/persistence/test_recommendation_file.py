"""Lists in a file are those of `recommend`, in every format; the file is whole or it is not there."""

from __future__ import annotations

import csv
import gzip
import json
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.sparse import csr_array

import loca
from loca.errors import DataError


@pytest.fixture(scope="module")
def model() -> loca.EASE:
    data = loca.planted_communities(
        users=90, items=30, groups=5, history=12, shortest_history=10
    ).interactions
    return loca.EASE().fit(data)


def from_csv(text: str) -> list[dict[str, Any]]:
    found = list(csv.DictReader(text.splitlines()))
    return [{**row, "score": np.float32(row["score"]), "rank": int(row["rank"])} for row in found]


READERS: dict[str, Callable[[Path], list[dict[str, Any]]]] = {
    "recs.parquet": lambda path: pl.read_parquet(path).rows(named=True),
    "recs.csv": lambda path: from_csv(path.read_text()),
    "Recs.CSV.gz": lambda path: from_csv(gzip.decompress(path.read_bytes()).decode()),
    "recs.jsonl": lambda path: [json.loads(line) for line in path.read_text().splitlines()],
    "recs.jsonl.gz": lambda path: [
        json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()
    ],
}


@pytest.mark.parametrize("name", READERS)
def test_every_format_holds_the_lists_of_recommend(
    model: loca.EASE, tmp_path: Path, name: str
) -> None:
    written = loca.recommend_to_file(model, model.train_data_, tmp_path / name, n=4, never=["i03"])
    assert (written.users, written.users_without_items, written.rows) == (90, 0, 360)
    assert [one.name for one in tmp_path.iterdir()] == [name]
    rows = READERS[name](tmp_path / name)
    expected = model.recommend(model.train_data_, 4, never=["i03"]).to_polars().rows(named=True)
    assert [*rows[0]] == ["user", "item", "score", "rank", "title"]
    for row, wanted in zip(rows, expected, strict=True):
        score = wanted.pop("score")
        assert row.pop("score") == pytest.approx(score, rel=1e-6)
        assert row == wanted


def test_parquet_keeps_numbers_as_numbers(tmp_path: Path) -> None:
    data = loca.Interactions.from_matrix(csr_array(np.eye(4, 5) + np.eye(4, 5, k=1)))
    fitted = loca.Popularity().fit(data)
    loca.recommend_to_file(fitted, data, tmp_path / "a.parquet", n=2)
    found = pl.read_parquet(tmp_path / "a.parquet")
    assert found.schema == {
        "user": pl.Int64,
        "item": pl.Int64,
        "score": pl.Float32,
        "rank": pl.Int64,
    }
    # An unknown user whose id is a number leaves them numbers; a text makes them text.
    for unknown, users in ((77, [1, 77]), ("nobody", ["1", "nobody"])):
        loca.recommend_to_file(
            fitted, [1, unknown], tmp_path / "b.parquet", n=1, on_unknown="popular"
        )
        assert pl.read_parquet(tmp_path / "b.parquet")["user"].to_list() == users


def test_users_without_a_list_are_counted_and_have_no_row(model: loca.EASE, tmp_path: Path) -> None:
    written = loca.recommend_to_file(
        model, ["u07", "nobody"], tmp_path / "a.csv", n=2, on_unknown="skip"
    )
    assert (written.users, written.users_without_items, written.rows) == (2, 1, 2)
    assert {row["user"] for row in from_csv((tmp_path / "a.csv").read_text())} == {"u07"}


class Scripted:
    """Scores whose blocks hold few users, and that break or wait at a user."""

    def __init__(self, break_at: int | None = None) -> None:
        self.seen, self.break_at = 0, break_at

    def score(self, histories: Any) -> np.ndarray[Any, Any]:
        self.seen += histories.shape[0]
        if self.break_at is not None and self.seen > self.break_at:
            raise DataError("scores: broken")
        return np.tile(np.arange(histories.shape[1], dtype=np.float32), (histories.shape[0], 1))


def many_users() -> Any:
    """More users than one block of 200,000 items takes."""
    rows = np.arange(400)
    return csr_array((np.ones(400), (rows, rows)), shape=(400, 200_000))


def test_blocks_follow_each_other(tmp_path: Path) -> None:
    scripted = Scripted()
    loca.recommend_to_file(scripted, many_users(), tmp_path / "a.parquet", n=2)
    found = pl.read_parquet(tmp_path / "a.parquet")
    assert found["user"].to_list() == np.repeat(np.arange(400), 2).tolist()
    assert found["item"].to_list() == [199_999, 199_998] * 400


def test_after_an_error_the_old_file_stays_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"old")
    with pytest.raises(DataError, match="scores: broken"):
        loca.recommend_to_file(Scripted(break_at=250), many_users(), tmp_path / "a.parquet")
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("a.parquet", b"old")]


@pytest.mark.parametrize("name", ["a.txt", "parquet", ".csv", "a.parquet.gz", "folder.csv"])
def test_a_name_that_is_no_file_of_lists_is_refused_before_any_work(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "folder.csv").mkdir()
    expected = (
        "expected a file, found a folder"
        if "folder" in name
        else "expected a file name that ends in .parquet, "
    )
    with pytest.raises(DataError, match=expected):
        loca.recommend_to_file(Scripted(break_at=0), many_users(), tmp_path / name)


def test_the_ending_alone_chooses_the_format(model: loca.EASE, tmp_path: Path) -> None:
    loca.recommend_to_file(model, model.train_data_, tmp_path / "users.csv.jsonl", n=2)
    first = (tmp_path / "users.csv.jsonl").read_text().splitlines()[0]
    assert json.loads(first)["rank"] == 1


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.jsonl.gz"])
def test_a_full_disk_is_one_line_and_leaves_nothing(
    model: loca.EASE, tmp_path: Path, name: str
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        with pytest.raises(
            DataError, match=f"{name}: cannot be written .*File too large.*; choose another place"
        ):
            loca.recommend_to_file(model, model.train_data_, tmp_path / name)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert not list(tmp_path.iterdir())


def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    program = (
        "import sys, time, numpy as np, loca\n"
        "from scipy.sparse import csr_array\n"
        "class Endless:\n"
        "    def score(self, histories):\n"
        "        print('scoring', flush=True); time.sleep(0.2)\n"
        "        return np.zeros(histories.shape, np.float32)\n"
        "many = csr_array(np.ones((100_000, 1))); many.resize((100_000, 300_000))\n"
        "loca.recommend_to_file(Endless(), many, sys.argv[1])\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "a.parquet")]
    writing = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert writing.stdout is not None
    for _ in range(3):
        assert writing.stdout.readline() == "scoring\n"
    assert [one.suffix for one in tmp_path.iterdir()] == [".new"]
    writing.send_signal(signal.SIGINT)
    _, said = writing.communicate(timeout=60)
    assert writing.returncode != 0
    assert said.count("Traceback") == 1
    assert said.strip().endswith("KeyboardInterrupt")
    assert not list(tmp_path.iterdir())
