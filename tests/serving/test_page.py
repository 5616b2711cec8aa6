"""The built files of the explorer: those that were committed, small, and with nothing inline or from elsewhere."""

from __future__ import annotations

import gzip
import hashlib
import re
from pathlib import Path

import loca

PAGE = Path(loca.__file__).parent / "serving" / "page"
NAMES = {"LICENCES.txt", "SHA256SUMS", "explorer.css", "explorer.js", "index.html"}


def test_the_built_files_have_the_hashes_that_were_noted() -> None:
    assert {path.name for path in PAGE.iterdir()} == NAMES
    noted = dict(
        reversed(line.split("  ")) for line in (PAGE / "SHA256SUMS").read_text().splitlines()
    )
    found = {
        name: hashlib.sha256((PAGE / name).read_bytes()).hexdigest()
        for name in NAMES - {"SHA256SUMS"}
    }
    assert found == noted


def test_the_page_weighs_at_most_300_kilobytes() -> None:
    loaded = [(PAGE / name).read_bytes() for name in ("index.html", "explorer.css", "explorer.js")]
    assert sum(len(gzip.compress(one)) for one in loaded) <= 300_000


def test_the_page_has_nothing_inline_and_nothing_from_another_host() -> None:
    html = (PAGE / "index.html").read_text()
    assert re.findall(r"<script[^>]*>([^<]*)</script>", html) == [""]
    assert not re.search(r"<style|\sstyle=|\son\w+=|//", html)
    styles = (PAGE / "explorer.css").read_text()
    assert not re.search(r"url\(|@import", styles)
    # Names of XML vocabularies are no addresses that are loaded.
    hosts = set(re.findall(r"https?://([\w.-]+)", (PAGE / "explorer.js").read_text()))
    assert hosts <= {"www.w3.org"}


def test_the_licences_of_what_is_bundled_are_there() -> None:
    licences = (PAGE / "LICENCES.txt").read_text()
    assert "preact 11.2.0 (MIT)" in licences
    assert "htm 3.1.1 (Apache-2.0)" in licences
    assert "Permission is hereby granted" in licences
    assert "Apache License" in licences
