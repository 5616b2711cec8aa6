"""A text whose length nobody states is refused where it ends within a line, and nothing of it stays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from file_server import Shelf, serving

from loca.data.datasets import PUBLIC_SETS
from loca.data.download import Patience, fetch
from loca.errors import DataError

TEXT = b"".join(b"%d\t%d\t5.0\t1355328000\n" % (user, user + 7) for user in range(5_000))
QUICK = Patience(timeout=5, tries=3, pause=0)


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shelf]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving(Shelf(TEXT, has_length=False, content_type="text/plain")) as one:
        yield one


def test_a_text_of_unsaid_length_that_ends_within_a_line_is_refused(shelf: Shelf, tmp_path: Path) -> None:
    shelf.cuts = [TEXT.index(b"\n", len(TEXT) // 2) - 3]
    yelp = replace(PUBLIC_SETS["yelp"], addresses=(shelf.address,))
    with pytest.raises(DataError, match=r"^yelp\.rating: the download ends within a line, .* try again$"):
        fetch(yelp, tmp_path, patience=QUICK)
    assert list(tmp_path.iterdir()) == []
    assert fetch(yelp, tmp_path, patience=QUICK).path.read_bytes() == TEXT


def test_a_cut_text_does_not_replace_the_one_that_is_there(shelf: Shelf, tmp_path: Path) -> None:
    yelp = replace(PUBLIC_SETS["yelp"], addresses=(shelf.address,))
    path = fetch(yelp, tmp_path, patience=QUICK).path
    shelf.cuts = [len(TEXT) - 1]
    with pytest.raises(DataError, match="ends within a line"):
        fetch(yelp, tmp_path, again=True, patience=QUICK)
    assert path.read_bytes() == TEXT
    assert not fetch(yelp, tmp_path, patience=QUICK).is_new
