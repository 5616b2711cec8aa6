"""A page in headless chromium: what it complains of, and how large everything is on a screen of some size."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

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
    free = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page).replace(
        "</body>", f"{RULER}</body>"
    )
    # A window cannot be as narrow as a phone; a frame can.
    frame = f'<iframe style="border:0;width:{width}px;height:{height}px" srcdoc="{html.escape(free)}"></iframe>'
    dumped = browse(
        folder, f"<!DOCTYPE html><title>frame</title><body>{frame}</body>", "--dump-dom"
    ).stdout
    found = re.search(r'data-measured="([^"]*)"', dumped)
    assert found is not None, dumped[-500:]
    sizes: dict[str, Any] = json.loads(html.unescape(found[1]))
    return sizes
