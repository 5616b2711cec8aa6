"""The page in a real browser: no errors, pictures that can be seen, and no sideways scrolling on a phone."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from exhibit_examples import FIGURE, PROVENANCE, TABLE, many_headlines

from loca.reproduction.page import page_of

CHROMIUM = shutil.which("chromium")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars --enable-logging=stderr --v=0"
).split()
# Only in the copy that is measured: the page itself has no script, and its policy forbids one.
RULER = """<script>
const box = one => { const r = one.getBoundingClientRect(); return [r.width, r.height, r.bottom]; };
parent.document.body.dataset.measured = JSON.stringify({
  window: innerWidth, page: document.documentElement.scrollWidth, body: getComputedStyle(document.body).fontSize,
  pictures: [...document.querySelectorAll("svg")].map(box),
  gains: box(document.querySelector(".gains")),
  wide: [document.querySelector(".gains").scrollWidth, document.querySelector(".gains").clientWidth],
});
</script>"""

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs the command chromium, which is not on the PATH")


@pytest.fixture(scope="module")
def page() -> str:
    return page_of(many_headlines(), [TABLE, FIGURE], PROVENANCE, "LOCA: tables and figures of the paper, made again")


def browse(folder: Path, page: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """What chromium says of a page that it opens from a file."""
    path = folder / "page.html"
    path.write_text(page, encoding="utf-8")
    assert CHROMIUM is not None
    profile = folder / "profile"
    profile.mkdir()
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", *flags, path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert not [line for line in done.stderr.splitlines() if "CONSOLE" in line], done.stderr[-2000:]
    return done


def measured(folder: Path, page: str, width: int, height: int) -> dict[str, Any]:
    """Sizes in pixels on a screen of that size."""
    free = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page).replace("</body>", f"{RULER}</body>")
    # A window cannot be as narrow as a phone; a frame can.
    frame = f'<iframe style="border:0;width:{width}px;height:{height}px" srcdoc="{html.escape(free)}"></iframe>'
    dumped = browse(folder, f"<!DOCTYPE html><title>frame</title><body>{frame}</body>", "--dump-dom").stdout
    found = re.search(r'data-measured="([^"]*)"', dumped)
    assert found is not None, dumped[-500:]
    sizes: dict[str, Any] = json.loads(html.unescape(found[1]))
    return sizes


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
