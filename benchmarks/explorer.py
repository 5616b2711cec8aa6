"""The explorer with many users in headless Chromium: weight, first draw, zoom steps, and axe-core's faults by view.

Needs loca[serve], playwright, /usr/bin/chromium, and for axe-core `npm ci` in explorer/.
"""

from __future__ import annotations

import argparse
import gzip
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

import loca

PAGE = Path(loca.__file__).parent / "serving" / "page"
AXE = Path(__file__).parents[1] / "explorer" / "node_modules" / "axe-core" / "axe.min.js"
FLAGS = "no-sandbox use-angle=swiftshader enable-unsafe-swiftshader disable-background-networking no-first-run".split()
FLAGS += ["disable-component-update", "disable-sync"]
VIEWS = {
    "map": ("", ".communities li"),
    "user": ("#user=12", ".items li"),
    "community": ("#community=3", ".items li"),
    "playground": ("#items=[%22i003%22,%22i007%22]", ".items li"),
}
# Reading a pixel waits until all that was drawn is there.
NOTE_FIRST_DRAW = """
new MutationObserver((_, observer) => {
  const canvas = document.querySelector("canvas[data-drawn]");
  if (!canvas) return;
  observer.disconnect();
  canvas.getContext("webgl2").readPixels(0, 0, 1, 1, 6408, 5121, new Uint8Array(4));
  window.drawn = performance.now();
}).observe(document, {subtree: true, childList: true, attributes: true});
"""
ZOOM = """async () => {
  const canvas = document.querySelector("canvas"), gl = canvas.getContext("webgl2"), steps = [];
  const box = canvas.getBoundingClientRect();
  const middle = {clientX: box.x + box.width / 2, clientY: box.y + box.height / 2};
  for (let step = 0; step < 20; step++) {
    const started = performance.now();
    const turn = {deltaY: step < 10 ? -120 : 120, cancelable: true, ...middle};
    canvas.dispatchEvent(new WheelEvent("wheel", turn));
    await new Promise((done) => requestAnimationFrame(() => {
      gl.readPixels(0, 0, 1, 1, 6408, 5121, new Uint8Array(4));
      done();
    }));
    steps.push(performance.now() - started);
  }
  return steps;
}"""


def main() -> None:
    """Fits a model on planted communities, serves it, and opens the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=100_000)
    parser.add_argument("--communities", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=5, help="browsers that open the page anew")
    chosen = parser.parse_args()
    loaded = [
        gzip.compress((PAGE / name).read_bytes())
        for name in ("index.html", "explorer.css", "explorer.js")
    ]
    print(f"page: {sum(map(len, loaded)) / 1000:.1f} KB gzipped", flush=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as starter:
        groups = chosen.communities // 2
        data = loca.planted_communities(
            users=chosen.users, items=400, groups=groups, history=12, shortest_history=8
        )
        communities = loca.Mixtures(n=chosen.communities)
        model = loca.Loca(base=loca.EASE(l2=100), communities=communities)
        model.fit(data.interactions).save(Path(folder) / "model.loca")
        with serve(Path(folder) / "model.loca") as address:
            started = time.perf_counter()
            size = len(urllib.request.urlopen(f"{address}v1/map").read())
            print(
                f"map of {chosen.users:,} users: {size / 1e6:.1f} MB, made in {time.perf_counter() - started:.1f} s",
                flush=True,
            )
            times = []
            for _ in range(chosen.rounds):
                browser = starter.chromium.launch(
                    executable_path="/usr/bin/chromium", args=[f"--{one}" for one in FLAGS]
                )
                times.append(draw(browser, address))
                browser.close()
            for place, name in enumerate(
                ("page opened to first draw", "map received to first draw")
            ):
                found = [one[place] for one in times]
                print(
                    f"{name}: {statistics.median(found):.0f} ms, at most {max(found):.0f} (of {len(found)})"
                )
            steps = [step for one in times for step in one[2]]
            print(
                f"zoom step: {statistics.median(steps):.0f} ms, at most {max(steps):.0f} (of {len(steps)})",
                flush=True,
            )
            if not AXE.exists():
                sys.exit(f"axe-core: there is no {AXE}; run npm ci in explorer/")
            browser = starter.chromium.launch(
                executable_path="/usr/bin/chromium", args=[f"--{one}" for one in FLAGS]
            )
            grave = sum(find_faults(browser, address))
            browser.close()
    sys.exit(1 if grave else 0)


@contextmanager
def serve(model: Path) -> Iterator[str]:
    """The address of a service of its own."""
    command = [sys.executable, "-u", "-m", "loca", "serve", str(model), "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as running:
        try:
            found = None
            for line in running.stdout or ():
                if found := re.search(r"http://[\d.:]+/", line):
                    break
            if found is None:
                sys.exit("the service did not start")
            yield found[0]
        finally:
            running.terminate()


def draw(browser: Browser, address: str) -> tuple[float, float, list[float]]:
    """Milliseconds from opening the page and from receiving the map to the first draw, and those of zoom steps."""
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.add_init_script(NOTE_FIRST_DRAW)
    page.goto(address)
    page.wait_for_selector("canvas[data-drawn]", timeout=60_000)
    page.wait_for_timeout(1000)
    entry = "performance.getEntriesByType('resource').find((one) => one.name.includes('/v1/map')).responseEnd"
    drawn, received = page.evaluate(f"[window.drawn, {entry}]")
    steps: list[float] = page.evaluate(ZOOM)
    page.close()
    return drawn, drawn - received, steps


def find_faults(browser: Browser, address: str) -> Iterator[int]:
    """Prints what axe-core finds in every view and theme; gives the number of serious and critical faults of each."""
    for theme in ("light", "dark"):
        for width in (1280, 320):
            context = browser.new_context(
                viewport={"width": width, "height": 800}, color_scheme=theme
            )
            page = context.new_page()
            for name, (view, shown) in VIEWS.items():
                page.goto("about:blank")
                page.goto(address + view)
                page.wait_for_selector(shown)
                if name == "map":
                    page.get_by_placeholder("Search").fill("u")
                    page.wait_for_selector(".search [role=option]")
                for summary in page.locator("summary").all():
                    summary.click()
                page.wait_for_timeout(300)
                faults = run_axe(page)
                grave = [one for one in faults if one["impact"] in ("serious", "critical")]
                listed = ", ".join(f"{one['id']} ({one['impact']})" for one in faults) or "no fault"
                print(f"axe-core, {name}, {theme}, {width} px: {listed}", flush=True)
                yield len(grave)
            context.close()


def run_axe(page: Page) -> list[dict[str, Any]]:
    """The faults that axe-core finds."""
    page.evaluate(AXE.read_text())
    found: list[dict[str, Any]] = page.evaluate("async () => (await axe.run()).violations")
    return found


if __name__ == "__main__":
    main()
