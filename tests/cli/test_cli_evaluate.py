"""`loca evaluate`, `loca compare` with parts in files, and data from standard input."""

from __future__ import annotations

import gzip
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from command_calls import Call

import loca
from loca.data.splits import Split

LISTS = ("--at", "10")


@pytest.fixture
def split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Split:
    """Planted data, with its parts as files where commands run."""
    monkeypatch.chdir(tmp_path)
    data = loca.planted_communities(
        users=80, items=40, groups=5, history=14, shortest_history=10
    ).interactions
    parts = loca.leave_last_out(data, test=3, validation=2)
    assert parts.validation is not None
    files = {
        "all.csv": data,
        "train.csv": parts.train,
        "validation.csv": parts.validation.targets,
        "known.csv": parts.train_and_validation,
        "test.csv": parts.test.targets,
    }
    for name, part in files.items():
        part.to_polars().select("user", "item", "time").write_csv(name)
    return parts


@pytest.fixture
def model(split: Split) -> loca.EASE:
    """EASE of what is known before the test, saved as films.loca."""
    fitted = loca.EASE(l2=20.0).fit(split.train_and_validation)
    fitted.save("films.loca")
    return fitted


def given_input(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    """Puts bytes into standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def ndcgs(text: str) -> dict[str, float]:
    """NDCG@10 of each compared model."""
    return {one["name"]: one["metrics"]["ndcg@10"]["mean"] for one in json.loads(text)["models"]}


def test_a_saved_model_reaches_what_evaluate_says(
    call: Call, split: Split, model: loca.EASE
) -> None:
    expected = loca.evaluate(model, split.test, at=[10])
    found = json.loads(call("evaluate", "films.loca", "test.csv", *LISTS, "--json").out)
    assert found["metrics"]["ndcg@10"]["mean"] == pytest.approx(expected.means()["ndcg@10"])
    assert (found["users"], found["targets"], found["left_out"]) == (
        80,
        240,
        {"users": 0, "interactions": 0},
    )
    text = call("evaluate", "films.loca", "test.csv", *LISTS).out
    assert text.startswith("test: 240 interactions of 80 users\n")
    assert f"{expected.means()['ndcg@10']:.4f}" in text


def test_what_the_model_does_not_know_is_counted(
    call: Call, split: Split, model: loca.EASE
) -> None:
    with Path("test.csv").open("a") as file:
        file.write("u01,brand-new,1700000000\nnobody,i03,1700000000\n")
    found = json.loads(call("evaluate", "films.loca", "test.csv", *LISTS, "--json").out)
    assert found["left_out"] == {"users": 1, "interactions": 2}
    assert "test: 1 item unknown, left out (1 interaction)" in found["report"]
    assert "test: 1 user without a history, left out (1 interaction)" in found["report"]
    Path("before.csv").write_text("user,item,time\nnobody,i05,1600000000\n")
    found = json.loads(
        call("evaluate", "films.loca", "test.csv", "--history", "before.csv", *LISTS, "--json").out
    )
    assert (found["users"], found["left_out"]) == (81, {"users": 0, "interactions": 1})


def test_recency_weights_the_histories_of_an_evaluation(
    call: Call, split: Split, model: loca.EASE
) -> None:
    for word, recency in (("2", loca.Recency(2)), ("none", None)):
        found = json.loads(
            call("evaluate", "films.loca", "test.csv", *LISTS, "--recency", word, "--json").out
        )
        expected = loca.evaluate(model, split.test, at=[10], recency=recency)
        assert found["metrics"]["ndcg@10"]["mean"] == pytest.approx(expected.means()["ndcg@10"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nowhere", "test.csv"), "nowhere: no loca model here"),
        (("films.loca", "tset.csv"), "tset.csv: there is no such file; did you mean 'test.csv'"),
        (("films.loca", "test.csv", "--at", "0"), "--at: expected list lengths of 1 or more"),
        (
            ("films.loca", "test.csv", "--at", "x"),
            "--at: expected a list, each a whole number, found ['x']",
        ),
        (("films.loca", "test.csv", "--recency", "auto"), "--recency: auto is chosen by loca fit"),
        (
            ("films.loca", "test.csv", "--history", "nix.csv"),
            "--history: nix.csv: there is no such file",
        ),
        (("films.loca", "-", "--history", "-"), "--history: standard input is DATA already"),
        (
            ("films.loca", "test.csv", "--preset", "amusic"),
            "--preset: is for one file of all interactions",
        ),
        (
            ("films.loca", "foreign.csv"),
            "test: nothing is left to find; 1 of 1 user have no history",
        ),
    ],
)
def test_what_cannot_be_evaluated_gets_one_line(
    call: Call, model: loca.EASE, words: tuple[str, ...], message: str
) -> None:
    Path("foreign.csv").write_text("user,item\nnobody,nothing\n")
    assert message in call("evaluate", *words, "--quiet").mistake


def test_parts_in_files_are_compared_as_the_split_that_they_are_of(
    call: Call, split: Split
) -> None:
    ask = ("--models", "popularity,ease", *LISTS, "--json")
    whole = ndcgs(call("compare", "all.csv", "--test", "3", "--validation", "2", *ask).out)
    assert len(whole) == 2
    three = ("--train", "train.csv", "--test", "test.csv", "--validation", "validation.csv")
    for parts in (
        three,
        ("known.csv", "--test", "test.csv"),
        ("--train", "known.csv", "--test", "test.csv"),
    ):
        assert ndcgs(call("compare", *parts, *ask).out) == pytest.approx(whole)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "Missing argument 'DATA', or --train FILE and --test FILE"),
        (("--train", "train.csv"), "--train: needs --test FILE too"),
        (("train.csv", "--validation", "validation.csv"), "--validation: needs --test FILE too"),
        (
            ("all.csv", "--train", "train.csv", "--test", "test.csv"),
            "--train: expected one file to learn from",
        ),
        (("-", "--test", "-"), "standard input (-) can be one part only"),
        (("train.csv", "--test", "tset.csv"), "tset.csv: there is no such file; did you mean"),
        (
            ("train.csv", "--test", "test.csv", "--validation", "0"),
            "the protocol clean chooses on validation",
        ),
        (("train.csv", "--test", "test.csv", "--preset", "amusic"), "--preset: is for one file"),
    ],
)
def test_parts_that_do_not_go_together_get_one_line(
    call: Call, split: Split, words: tuple[str, ...], message: str
) -> None:
    assert message in call("compare", *words, "--models", "popularity", "--quiet").mistake


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_commands_read_standard_input(
    call: Call, split: Split, monkeypatch: pytest.MonkeyPatch, pack: Any
) -> None:
    data, later = pack(Path("known.csv").read_bytes()), pack(Path("test.csv").read_bytes())
    given_input(monkeypatch, data)
    assert json.loads(call("data", "describe", "-", "--json").out)["users"] == 80
    given_input(monkeypatch, data)
    assert (
        call("fit", "-", "--model", "ease", "--set", "l2=20", "--out", "films.loca", "--quiet").code
        == 0
    )
    given_input(monkeypatch, later)
    found = json.loads(call("evaluate", "films.loca", "-", *LISTS, "--json").out)
    expected = loca.evaluate(
        loca.EASE(l2=20.0).fit(split.train_and_validation), split.test, at=[10]
    )
    assert found["metrics"]["ndcg@10"]["mean"] == pytest.approx(expected.means()["ndcg@10"])
    given_input(monkeypatch, later)
    compared = call(
        "compare", "known.csv", "--test", "-", "--models", "popularity", *LISTS, "--json"
    )
    assert ndcgs(compared.out).keys() == {"popularity"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "standard input: there is nothing to read"),
        (b"user,item\n1\n", "standard input line 2: expected 2 fields"),
        (b"a\0b", "standard input: expected text"),
    ],
)
def test_bad_standard_input_gets_one_line(
    call: Call, monkeypatch: pytest.MonkeyPatch, data: bytes, message: str
) -> None:
    given_input(monkeypatch, data)
    assert message in call("data", "describe", "-", "--quiet").mistake


def test_a_terminal_is_no_standard_input(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.BytesIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Terminal(b"")))
    assert (
        "standard input: is a terminal; expected data from a pipe or a file"
        in call("data", "describe", "-").mistake
    )
