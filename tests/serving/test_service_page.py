"""The page about the service: its requests are answered, its metrics and options exist."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

import loca
from service_talk import Talk

PAGE = (Path(__file__).parents[2] / "docs" / "service.md").read_text()
REQUESTS = re.findall(r"^curl .*$", PAGE, re.M)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Talk:
    folder = tmp_path_factory.mktemp("page") / "films.loca"
    data = loca.planted_communities().interactions
    model = loca.Loca(
        base=loca.EASE(), communities=loca.Kernels(n=4), combiner=loca.FixedShare(0.2)
    )
    model.fit(data).save(folder)
    return Talk(folder)


@pytest.mark.parametrize("request_line", REQUESTS)
def test_every_request_of_the_page_is_answered(service: Talk, request_line: str) -> None:
    _, address, *rest = shlex.split(request_line)
    body = rest[1] if rest[:1] == ["-d"] else None
    reply = service.send("GET" if body is None else "POST", f"http://{address}", content=body)
    assert reply.status_code == 200
    if body is not None:
        found = reply.json()
        assert all("problem" not in one for one in found.get("answers", [found]))


def test_the_page_has_every_route_and_metric(service: Talk) -> None:
    routes = {
        re.sub(r"\{.*?\}", "", path)
        for path in service.send("GET", "/openapi.json").json()["paths"]
    }
    missing = [
        path for path in routes if not any(f"localhost:8000{path}" in line for line in REQUESTS)
    ]
    assert not missing
    text = service.send("GET", "/metrics").text
    served = {
        name
        for name in re.findall(r"^# HELP (loca_\w+)", text, re.M)
        if not name.endswith("_created")
    }
    assert served == set(re.findall(r"^\| `(loca_\w+)` \|", PAGE, re.M))


def test_the_problem_on_the_page_is_what_the_service_says(service: Talk) -> None:
    [shown] = re.findall(r"^\{\"type\".*$", PAGE, re.M)
    said = service.send("POST", "/v1/recommend", content=json.dumps({"user": "u000002"})).text
    assert said.startswith(shown.partition("search with")[0])


def test_the_notes_on_the_page_are_what_the_service_says(service: Talk) -> None:
    [shown] = re.findall(r'^"notes":.*$', PAGE, re.M)
    body = {"user": "new", "on_unknown": "popular"}
    assert shown in service.send("POST", "/v1/recommend", json=body).text


def test_the_page_is_short() -> None:
    assert len(PAGE.split()) <= 1200
