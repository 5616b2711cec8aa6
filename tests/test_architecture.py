"""The sequences of calls that docs/architecture.md shows are those that happen."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import polars
import pytest

import loca

SOURCE = Path(loca.__file__).parent
PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
MOST_CALLS = 25


@dataclass(frozen=True)
class Call:
    """A call of the page: the class and function, and the files of which one has it."""

    owner: str
    function: str
    files: tuple[str, ...]


@dataclass
class Trace:
    """The functions of the package that were called, in order, as (file, qualified name)."""

    calls: list[tuple[str, str]] = field(default_factory=list)

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(SOURCE):
            file = path.relative_to(SOURCE).as_posix()
            self.calls.append((file, frame.f_code.co_qualname))


@contextmanager
def traced() -> Iterator[Trace]:
    """Record every call inside the package."""
    trace = Trace()
    sys.setprofile(trace)
    try:
        yield trace
    finally:
        sys.setprofile(None)


def documented(name: str) -> list[Call]:
    """Return the calls of one table of the page."""
    table = PAGE.read_text().split(f"<!-- calls: {name} -->")[1].split("\n\n")[1]
    calls = []
    for row in table.splitlines()[2:]:
        _, _, text, files, _ = row.split("|")
        code = re.search(r"`([\w.]+)", text)
        assert code, row
        owner, _, function = code[1].rpartition(".")
        folder = ""
        paths = []
        for path in re.findall(r"`([\w./]+)`", files):
            folder = path.rpartition("/")[0] or folder
            paths.append(path if "/" in path else f"{folder}/{path}")
        if "…" in files:
            paths.append(folder)
        calls.append(Call(owner, function, tuple(paths)))
    return calls


def is_call(expected: Call, file: str, qualname: str) -> bool:
    """Return whether a recorded call is that of the page, also of a class that inherits."""
    owner, _, function = qualname.rpartition(".")
    if function != expected.function or not any(file.startswith(path) for path in expected.files):
        return False
    if not expected.owner:
        return not owner
    module = importlib.import_module("loca." + file.removesuffix(".py").replace("/", "."))
    kind = getattr(module, owner.rpartition(".")[2], None)
    return isinstance(kind, type) and expected.owner in {base.__name__ for base in kind.__mro__}


def check_order(name: str, trace: Trace) -> None:
    """Check that the calls of the page happened one after the other."""
    position = 0
    for expected in documented(name):
        later = (
            number
            for number in range(position, len(trace.calls))
            if is_call(expected, *trace.calls[number])
        )
        found = next(later, None)
        assert found is not None, f"{name}: {expected} does not come next"
        position = found + 1


@pytest.fixture(scope="module")
def split() -> loca.Split:
    data = loca.planted_communities(
        users=80, items=30, communities=2, groups=5, history=12, shortest_history=10
    ).interactions
    return loca.leave_last_out(data, test=2, validation=2)


@pytest.fixture(scope="module")
def networks(split: loca.Split) -> tuple[loca.Loca, Trace]:
    """A fitted Loca over networks by likelihood, and the calls of its fit."""
    model = loca.Loca(
        base=loca.MultVAE(latent=4, epochs=4),
        communities=loca.Mixtures(n=4, mixtures=2),
        combiner=loca.FixedShare(0.3),
    )
    with traced() as trace:
        model.fit(split.train, validation=split.validation)
    return model, trace


def test_a_fit_follows_the_page(networks: tuple[loca.Loca, Trace]) -> None:
    check_order("fit", networks[1])


def test_an_answer_follows_the_page(networks: tuple[loca.Loca, Trace], split: loca.Split) -> None:
    with traced() as trace:
        networks[0].recommend([split.train.users.values[0]])
    check_order("answer", trace)


def test_an_update_follows_the_page(split: loca.Split) -> None:
    model = loca.Loca(base=loca.EASE(), communities=loca.Kernels(n=3)).fit(split.train)
    with traced() as trace:
        model.update(polars.DataFrame({"user": ["new", "new"], "item": ["i01", "unheard of"]}))
    check_order("update", trace)


@pytest.mark.parametrize("name", ["fit", "answer", "update"])
def test_a_sequence_is_short_enough_to_read(name: str) -> None:
    assert 5 <= len(documented(name)) <= MOST_CALLS


def test_a_call_out_of_order_is_noticed(networks: tuple[loca.Loca, Trace]) -> None:
    backwards = Trace(networks[1].calls[::-1])
    with pytest.raises(AssertionError, match="does not come next"):
        check_order("fit", backwards)


def test_all_files_of_the_page_are_there() -> None:
    checks: list[Callable[[], bool]] = []
    for table in PAGE.read_text().split("\n\n"):
        if not table.startswith("| folder"):
            continue
        for row in table.splitlines()[2:]:
            cells = row.split("|")
            folders = re.findall(r"`([\w/]+)`", cells[1]) or [""]
            for name in re.findall(r"`([\w/]+\.py)`", "|".join(cells[1:])):
                paths = [SOURCE / name, *(SOURCE / folder / name for folder in folders)]
                assert any(path.exists() for path in paths), f"{row}: {name}"
                checks.append(paths[0].exists)
    assert len(checks) > 20
