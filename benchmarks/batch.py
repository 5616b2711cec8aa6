"""Seconds and peak memory of lists for all users as a file, beside `recommend` in one process.

Run: LOCA_DATA=… python benchmarks/batch.py [--n 20 --repeats 5]
EASE on MovieLens 1M. The bars: writing Parquet takes at most 1.5 times as long as `recommend` (medians of alternating
runs), and the command `loca recommend --all` stays under 1 GB and the model. Exits with 1 when one is missed.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import loca
from loca.memory import readable_bytes

BAR_RATIO, BAR_BYTES = 1.5, 1_000_000_000


def seconds(act: Callable[[], object]) -> float:
    """How long one call takes."""
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


def main() -> int:
    """Measures, prints, and says whether the bars are held."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    data = loca.read_interactions(
        Path(os.environ["LOCA_DATA"]) / "ml-1m" / "ratings-ordered.csv.gz", time="rank"
    )
    loca.set_progress(False)
    with tempfile.TemporaryDirectory() as folder:
        saved, out = Path(folder) / "model", Path(folder) / "recs.parquet"
        loca.EASE().fit(data).save(saved)
        size = sum(one.stat().st_size for one in saved.iterdir())
        command = [
            sys.executable,
            "-m",
            "loca",
            "recommend",
            str(saved),
            "--all",
            "-n",
            str(options.n),
            "--out",
            str(out),
        ]
        whole = seconds(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))
        # Of the children so far; there was only this one.
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * (
            1 if sys.platform == "darwin" else 1024
        )
        model = loca.load(saved)
        arrays: list[float] = []
        files: list[float] = []
        for _ in range(options.repeats + 1):  # the first of each warms up and does not count
            arrays.append(seconds(lambda: model.recommend(model.train_data_, options.n)))
            files.append(
                seconds(lambda: loca.recommend_to_file(model, model.train_data_, out, options.n))
            )
        rows = loca.recommend_to_file(model, model.train_data_, out, options.n).rows
        wrote = out.stat().st_size
    ratio = statistics.median(files[1:]) / statistics.median(arrays[1:])
    print(
        f"{data.n_users:,} users × {options.n} items: {rows:,} rows, {readable_bytes(wrote)} of Parquet"
    )
    print(f"recommend          {statistics.median(arrays[1:]):.2f} s")
    print(
        f"recommend_to_file  {statistics.median(files[1:]):.2f} s, {ratio:.2f} times as long (bar {BAR_RATIO})"
    )
    print(
        f"the whole command  {whole:.2f} s, peak {readable_bytes(peak)}, model {readable_bytes(size)}"
    )
    return int(ratio > BAR_RATIO or peak > BAR_BYTES + size)


if __name__ == "__main__":
    sys.exit(main())
