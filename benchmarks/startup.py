"""How long a command takes from start to end: answers of saved models, and names that do not exist.

    LOCA_DATA=… python benchmarks/startup.py ml-1m

Fits a few models on the data, saves them, and runs each command in a process of its own; medians.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import loca
from ordered_sets import read_data

MODELS: dict[str, Callable[[], loca.Recommender]] = {
    "popularity": loca.Popularity,
    "EASE": loca.EASE,
    "EASE(keep=50)": lambda: loca.EASE(keep=50),
    "LOCA_EASE, 10 anchors": lambda: loca.Loca(base=loca.EASE(), communities=loca.Kernels(n=10)),
    "MultVAE": lambda: loca.MultVAE(epochs=1),
    "LOCA_VAE, 10 anchors": lambda: loca.Loca(
        base=loca.MultVAE(epochs=1), communities=loca.Kernels(n=10)
    ),
}
WRONG = (
    "nosuch",
    "reproduce nosuch",
    "fit planted --model nosuch --out never",
    "compare planted --models nosuch",
    "tune planted --model nosuch",
    "plan planted --model nosuch",
    "recommend nosuch --user 1",
)


def main() -> None:
    """Prints a median for every saved model and every wrong name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "data", nargs="?", default="planted", help="amusic, games, ml-1m, planted, or an .npz file"
    )
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    loca.set_progress(False)
    data, _ = read_data(options.data, 2)
    user = str(data.users.values[0])
    with tempfile.TemporaryDirectory() as folder:
        for name, make in MODELS.items():
            place = Path(folder) / name.replace(" ", "-")
            make().fit(data).save(place)
            report(
                f"loca recommend, {name}",
                ["recommend", str(place), "--user", user],
                options.repeats,
                code=0,
            )
    for command in WRONG:
        report(f"loca {command}", command.split(), options.repeats, code=2)


def report(name: str, arguments: list[str], repeats: int, *, code: int) -> None:
    """Prints the median wall time, and of the processor's time, which others on the machine change less."""
    wall, processor = [], []
    for _ in range(repeats + 1):  # the first one warms up the page cache
        before, started = os.times(), time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "loca", *arguments], capture_output=True, text=True, check=False
        )
        wall.append(time.perf_counter() - started)
        after = os.times()
        processor.append(
            after.children_user
            + after.children_system
            - before.children_user
            - before.children_system
        )
        if done.returncode != code:
            sys.exit(f"{name}: exit code {done.returncode}: {done.stderr}")
    seconds = (statistics.median(one[1:]) for one in (wall, processor))
    print("{}: {:.2f} s, processor {:.2f} s".format(name, *seconds), flush=True)


if __name__ == "__main__":
    main()
