"""The explorer in Chromium by Playwright: map, search, mouse, sliders, playground, themes, a narrow screen."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loca
from loca.remarks import Remark

pytest.importorskip("uvicorn", reason="the service is not installed: pip install loca[serve]")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = Path("/usr/bin/chromium")
if not CHROMIUM.exists():
    pytest.skip(f"there is no {CHROMIUM}", allow_module_level=True)
expect = playwright.expect

FLAGS = [
    "--no-sandbox",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
USERS = 400


class Service:
    """A running service, and what it answers when asked beside the page."""

    def __init__(self, address: str) -> None:
        self.address = address

    def get(self, path: str) -> bytes:
        return bytes(urllib.request.urlopen(self.address + path).read())

    def titles(self, **body: Any) -> list[str]:
        """The titles of a list, as POST /v1/explain has them."""
        headers = {"Content-Type": "application/json"}
        asked = urllib.request.Request(
            f"{self.address}v1/explain", json.dumps({"n": 10, **body}).encode(), headers
        )
        return [one["title"] for one in json.loads(urllib.request.urlopen(asked).read())["items"]]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    planted = loca.planted_communities(
        users=USERS, items=120, groups=6, history=14, shortest_history=8, seed=0
    )
    base = loca.EASE(l2=20)
    fitted = {
        "films": loca.Loca(base=base, communities=loca.Mixtures(n=6)),
        "plain": base,
    }
    for name, model in fitted.items():
        model.fit(planted.interactions)
        model.remarks_ = (Remark("low-ratings", f"all ratings of {name} count"),)
        model.save(folder / f"{name}.loca")
    return {name: folder / f"{name}.loca" for name in fitted}


@pytest.fixture(scope="module")
def service(models: dict[str, Path]) -> Iterator[Service]:
    folders = [f"{name}={path}" for name, path in models.items()]
    command = [sys.executable, "-m", "loca", "serve", *folders, "--port", "0"]
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(loca.__file__).parents[1]),
        "PYTHONUNBUFFERED": "1",
    }
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    try:
        assert running.stdout is not None
        lines = []
        for line in running.stdout:
            lines.append(line)
            if found := re.search(r"http://127\.0\.0\.1:\d+/", line):
                yield Service(found[0])
                break
        else:
            pytest.fail("the service did not start: " + "".join(lines))
    finally:
        running.terminate()
        running.communicate(timeout=10)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as starter:
        browser = starter.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield browser.new_context(viewport={"width": 1280, "height": 800}, color_scheme="light")
        browser.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """An empty page; a console error, an uncaught one or a breach of the content policy fails the test."""
    page = browser.new_page()
    faults: list[str] = []
    page.on(
        "console",
        lambda message: (
            faults.append(message.text) if message.type in ("error", "warning") else None
        ),
    )
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.set_default_timeout(8000)
    yield page
    page.close()
    assert not [one for one in faults if "status of 401" not in one]


def open_page(page: Any, address: str, **view: Any) -> None:
    page.goto("about:blank")
    page.goto(f"{address}#{urllib.parse.urlencode(view)}")


def wait_for_map(page: Any) -> None:
    page.wait_for_selector(f'canvas[data-drawn="{USERS}"]')


def expect_list(page: Any, titles: list[str], model: str | None = None) -> None:
    place = page if model is None else page.get_by_label(f"Answer of {model}")
    expect(place.locator(".list .items > li > .title")).to_have_text(titles)


def test_a_search_by_keyboard_opens_a_user_with_list_reasons_and_history(
    page: Any, service: Service
) -> None:
    open_page(page, service.address)
    wait_for_map(page)
    expect(page.locator(".communities li")).to_have_count(6)
    box = page.get_by_role("combobox", name="Search users, items and communities")
    box.fill("u012")
    expect(page.locator(".search [role=option]")).to_have_count(1)
    box.press("ArrowDown")
    box.press("Enter")
    expect(page.get_by_role("heading", name="User u012")).to_be_focused()
    assert page.url.endswith("#user=12")
    expect_list(page, service.titles(user="u012"))
    expect(page.locator(".list .because").first).to_contain_text("%")
    expect(page.locator(".sources > li").last).to_contain_text("The global model")
    expect(page.locator(".history .value").first).to_have_text("1.00")


def test_a_click_on_a_point_opens_that_user(page: Any, service: Service) -> None:
    raw = service.get("v1/map")
    places = np.frombuffer(raw, "<f4", 2 * USERS, offset=16).reshape(-1, 2)
    rows = np.frombuffer(raw, "<u4", USERS, offset=16 + 8 * USERS)
    apart = np.linalg.norm(places[:, None] - places, axis=2) + 9 * np.eye(USERS)
    # The loneliest point in the lower half, where no button lies over the map.
    point = int(np.where(places[:, 1] < 0, apart.min(axis=1), 0).argmax())
    open_page(page, service.address)
    wait_for_map(page)
    page.get_by_role("button", name="Centres").click()
    box = page.locator("canvas").bounding_box()
    unit = 0.47 * min(box["width"], box["height"])
    x = box["x"] + box["width"] / 2 + float(places[point, 0]) * unit
    y = box["y"] + box["height"] / 2 - float(places[point, 1]) * unit
    page.mouse.move(x + 2, y + 2)
    page.mouse.click(x + 2, y + 2)
    user = json.loads(service.get(f"v1/map/users/{rows[point]}"))["user"]
    expect(page.get_by_role("heading", name=f"User {user}")).to_be_visible()
    # A wheel over the point zooms in around it: the ring of the chosen user stays there.
    ring = page.locator(".ring:not(.hovered)")
    expect(ring).to_be_visible()
    before = ring.bounding_box()
    page.mouse.wheel(0, -400)
    page.wait_for_timeout(100)
    after = ring.bounding_box()
    assert abs(before["x"] - after["x"]) < 12
    assert abs(before["y"] - after["y"]) < 12


def test_a_centre_opens_its_community_and_a_typical_user_follows(
    page: Any, service: Service
) -> None:
    open_page(page, service.address)
    wait_for_map(page)
    centre = page.locator(".centre:not([hidden])").last
    before = centre.bounding_box()["x"]
    page.locator("canvas").press("ArrowRight")
    page.wait_for_timeout(100)
    assert round(before - centre.bounding_box()["x"]) == 40
    centre.click()
    heading = page.locator("h2")
    expect(heading).to_have_text(re.compile(r"Community \d"))
    number = int(heading.inner_text().split()[-1])
    found = json.loads(service.get(f"v1/communities/{number}"))
    lists = page.locator(".pair section")
    for place, name in enumerate(("items", "global")):
        titles = [one["title"] for one in found[name]]
        expect(lists.nth(place).locator(".items > li > .title")).to_have_text(titles)
    page.get_by_role("button", name=f"User {found['typical_users'][0]['user']}").click()
    expect(heading).to_have_text(f"User {found['typical_users'][0]['user']}")


def test_sliders_change_the_list_at_once(page: Any, service: Service) -> None:
    open_page(page, service.address, user=12)
    own, alone = service.titles(user="u012"), service.titles(user="u012", global_share=1.0)
    recent = service.titles(user="u012", global_share=1.0, recency="1")
    assert own != alone != recent
    expect_list(page, own)
    page.get_by_label("Global share").press("End")
    expect_list(page, alone)
    page.get_by_label("Recency half-life").press("ArrowRight")
    expect_list(page, recent)
    expect(page.locator(".history .value").nth(1)).to_have_text("0.50")
    page.get_by_role("button", name="Back to the model’s").click()
    expect_list(page, own)


def test_a_late_reply_does_not_replace_a_newer_one(page: Any, service: Service) -> None:
    open_page(page, service.address, user=12)
    expect_list(page, service.titles(user="u012"))
    held: list[Any] = []
    page.route("**/v1/explain", lambda route: held.append(route))
    slider = page.get_by_label("Global share")
    for count, key in enumerate(("End", "Home"), 1):
        slider.press(key)
        for _ in range(200):
            if len(held) < count:
                page.wait_for_timeout(20)
    held[1].continue_()
    expect_list(page, service.titles(user="u012", global_share=0.0))
    held[0].continue_()
    page.wait_for_timeout(200)
    expect_list(page, service.titles(user="u012", global_share=0.0))


def test_two_models_answer_typed_titles_side_by_side(page: Any, service: Service) -> None:
    open_page(page, service.address)
    page.get_by_role("button", name="Playground").click()
    box = page.get_by_role("combobox", name="Add an item by its title or id")
    chosen = page.locator(".chosen li span")
    box.fill("i046")
    box.press("Enter")  # before the results are there
    expect(chosen).to_have_text(["Iron Lighthouse"])
    box.fill("endless fal")
    page.get_by_role("option", name="Endless Falls").click()
    expect(chosen).to_have_text(["Iron Lighthouse", "Endless Falls"])
    items = ["i046", "i004"]
    expect_list(page, service.titles(items=items), "films")
    expect(page.locator(".sources .source").first).to_contain_text("Community")
    page.get_by_label("Beside it").select_option("plain")
    expect_list(page, service.titles(items=items), "films")
    expect_list(page, service.titles(items=items, model="plain"), "plain")
    expect(page.get_by_label("Answer of plain").get_by_text("Who answers")).to_have_count(0)
    page.get_by_role("button", name="Remove Iron Lighthouse").click()
    expect_list(page, service.titles(items=["i004"], model="plain"), "plain")


def test_a_model_without_communities_is_shown_too(page: Any, service: Service) -> None:
    open_page(page, service.address, model="plain")
    wait_for_map(page)
    expect(page.get_by_role("heading", name="No communities")).to_be_visible()
    expect(page.get_by_role("button", name="Centres")).to_have_count(0)
    expect(page.get_by_text("Note: all ratings of plain count")).to_be_visible()
    open_page(page, service.address, model="plain", user=3)
    expect_list(page, service.titles(user="u003", model="plain"))
    expect(page.get_by_label("Global share")).to_have_count(0)
    expect(page.locator("footer")).to_contain_text("plain (EASE)")


def test_what_the_service_refuses_is_shown_in_its_words_and_as_text(
    page: Any, service: Service
) -> None:
    problem = json.dumps(
        {"title": "Cannot be answered", "status": 422, "detail": "<b>recency</b>: 4 expected"}
    )
    open_page(page, service.address)
    expect(page.locator(".communities li")).to_have_count(6)
    # A stand-in for fetch: a reply from the network with a status of 422 would be an error in the console.
    page.evaluate(
        "text => { window.fetch = async () => new Response(text, {status: 422}) }", problem
    )
    page.locator(".communities button").first.click()
    expect(page.locator(".panel").get_by_role("alert")).to_have_text(
        "Cannot be answered: <b>recency</b>: 4 expected"
    )


def test_a_token_is_wanted_where_the_service_has_one(page: Any, service: Service) -> None:
    def guard(route: Any) -> None:
        if route.request.headers.get("authorization") == "Bearer secret":
            route.continue_()
        else:
            problem = {"title": "Not authorised", "status": 401, "detail": "expected a token"}
            route.fulfill(
                status=401, content_type="application/problem+json", body=json.dumps(problem)
            )

    page.route("**/v1/**", guard)
    open_page(page, service.address)
    expect(page.get_by_role("alert")).to_have_text("Not authorised: expected a token")
    for token in ("wrong", "secret"):
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Go on").click()
    wait_for_map(page)


def test_both_themes_and_the_toggle(page: Any, service: Service) -> None:
    def brightness() -> float:
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(map(float, re.findall(r"[\d.]+", colour)[:3])) / 765

    open_page(page, service.address)
    toggle = page.get_by_role("button", name="Dark theme")
    expect(toggle).to_be_visible()
    assert brightness() > 0.9
    toggle.click()
    expect(page.get_by_role("button", name="Light theme")).to_be_visible()
    assert brightness() < 0.15
    page.evaluate("localStorage.clear()")  # the system's theme again, here and in other tests
    page.emulate_media(color_scheme="dark")
    open_page(page, service.address)
    expect(page.get_by_role("button", name="Light theme")).to_be_visible()
    assert brightness() < 0.15


def test_a_narrow_screen_has_everything_without_a_sideways_scroll(
    page: Any, service: Service
) -> None:
    page.set_viewport_size({"width": 320, "height": 640})
    views: list[dict[str, Any]] = [{}, {"user": 12}, {"community": 3}, {"items": '["i046","i004"]'}]
    for view in views:
        open_page(page, service.address, **view)
        expect(page.locator(".communities li, .items li").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") == 320
    page.get_by_role("button", name="Map").click()
    page.get_by_placeholder("Search").fill("u003")
    page.locator(".search [role=option]").first.click()
    expect(page.get_by_role("heading", name="User u003")).to_be_in_viewport()


def test_an_exported_page_needs_no_service(
    page: Any, models: dict[str, Path], tmp_path: Path
) -> None:
    from loca.serving.explorer import export_page

    model = loca.load(models["films"])
    export_page(model, "films", "0123456789abcdef", tmp_path / "page.html", users=4)
    page.route("http*://**", lambda route: route.abort())
    address = (tmp_path / "page.html").as_uri()
    open_page(page, address)
    wait_for_map(page)
    expect(page.locator(".communities li")).to_have_count(6)
    expect(page.get_by_role("button", name="Playground")).to_have_count(0)
    expect(page.locator("footer")).to_contain_text("no sliders and no playground")
    page.locator(".communities button").first.click()
    expect(page.get_by_role("heading", name="Community 0")).to_be_visible()
    open_page(page, address, user=0)
    first = [one["title"] for one in model.explain("u000", n=10).to_json()["items"]]
    expect_list(page, first)
    expect(page.get_by_role("slider")).to_have_count(0)
    open_page(page, address, user=1)
    expect(page.get_by_role("alert")).to_contain_text("has 4 users, and not this one")
