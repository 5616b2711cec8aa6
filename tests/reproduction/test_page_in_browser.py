"""The page in a real browser: no errors, pictures that can be seen, and no sideways scrolling on a phone."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser import CHROMIUM, browse, measured
from exhibit_examples import FIGURE, PROVENANCE, TABLE, many_headlines

from loca.reproduction.report import page_of

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs the command chromium, which is not on the PATH")


@pytest.fixture(scope="module")
def page() -> str:
    return page_of(many_headlines(), [TABLE, FIGURE], PROVENANCE, "LOCA: tables and figures of the paper, made again")


def test_on_a_phone_every_picture_is_seen_and_the_page_does_not_scroll_sideways(page: str, tmp_path: Path) -> None:
    sizes = measured(tmp_path, page, 390, 844)
    assert sizes["window"] == 390
    assert sizes["page"] <= 390
    assert sizes["body"] == "16px"
    assert len(sizes["pictures"]) == 1
    assert all(width > 300 and height > 100 for width, height, _ in sizes["pictures"])
    content, room = sizes["wide"]
    assert content <= room


def test_the_first_screen_holds_three_data_sets_and_two_models(page: str, tmp_path: Path) -> None:
    sizes = measured(tmp_path, page, 1280, 800)
    assert sizes["page"] <= 1280
    assert sizes["gains"][2] <= 800
    content, room = sizes["wide"]
    assert content <= room
    assert all(width > 500 and height > 150 for width, height, _ in sizes["pictures"])


def test_the_page_as_it_is_opens_without_errors_and_can_be_pictured(page: str, tmp_path: Path) -> None:
    picture = tmp_path / "picture.png"
    browse(tmp_path, page, "--window-size=1280,800", f"--screenshot={picture}")
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_an_error_in_a_page_would_have_been_noticed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="CONSOLE"):
        browse(tmp_path, "<!DOCTYPE html><title>x</title><script>missing()</script>", "--dump-dom")
