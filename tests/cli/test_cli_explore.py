"""`loca explore`: the page opened beside a service, or written as one file, and what it refuses."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from command_calls import Call

from loca.cli import serve

NAMESPACES = ("1998/Math/MathML", "1999/xhtml", "2000/svg")


@pytest.mark.parametrize("no_browser", [False, True])
def test_the_page_is_opened_once_the_service_answers(
    no_browser: bool, call: Call, monkeypatch: pytest.MonkeyPatch, model_folder: Path
) -> None:
    opened: list[str] = []
    given: dict[str, Any] = {}

    def start(models: list[str], **options: Any) -> None:
        given.update(options, models=models)
        assert not opened
        options["on_started"]("http://127.0.0.1:4711/")

    monkeypatch.setattr(serve, "start", start)
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr("threading.Thread.start", lambda thread: thread.run())
    done = call("explore", model_folder, *(["--no-browser"] if no_browser else []))
    assert done.code == 0
    assert done.err == "exploring tiny at http://127.0.0.1:4711/ until Ctrl-C\n"
    assert opened == ([] if no_browser else ["http://127.0.0.1:4711/"])
    assert given["models"] == [f"tiny={model_folder}"]
    assert given["port"] == 0
    assert "host" not in given


def test_a_page_is_written_with_its_data(call: Call, tmp_path: Path, model_folder: Path) -> None:
    out = tmp_path / "page.html"
    done = json.loads(call("explore", model_folder, "--export", out, "--users", 3, "--json").out)
    html = out.read_text()
    written = {
        "model": str(model_folder),
        "path": str(out),
        "users": 3,
        "bytes": len(html.encode()),
    }
    assert done == {**written, "notes": []}
    found = json.loads(re.findall(r'id="loca-data">(.*?)</script>', html, re.S)[0])
    fingerprint = hashlib.sha256((model_folder / "model.json").read_bytes()).hexdigest()[:16]
    assert (
        found["models"]["models"][0]["fingerprint"]
        == found["communities"]["fingerprint"]
        == fingerprint
    )
    assert len(found["users"]) == 3
    # Names of kinds of elements are no addresses; nothing else is.
    assert {*re.findall(r"https?://[^\s\"'`)]+", html)} <= {
        f"http://www.w3.org/{one}" for one in NAMESPACES
    }
    assert not re.search(r"<[^>]*\b(src|href)=", html.split("<script")[0])


def test_what_cannot_be_explored_is_one_line(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, model_folder: Path
) -> None:
    out = tmp_path / "page.html"
    assert "none.loca" in call("explore", tmp_path / "none.loca", "--export", out).mistake
    assert not out.exists()
    assert call("explore", model_folder, "--export", tmp_path).mistake.startswith(
        "--export: expected a file"
    )
    assert "--users" in call("explore", model_folder, "--export", out, "--users", 0).mistake
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "loca.serving.server", raising=False)
    assert "pip install 'loca[serve]'" in call("explore", model_folder).mistake
