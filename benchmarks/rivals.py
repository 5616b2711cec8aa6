"""Training and bulk recommendation against cornac and lenskit at equal settings: seconds, ratios and NDCG of one run.

Run: make rivals   (or: LOCA_DATA=… .venv-rivals/bin/python benchmarks/rivals.py [amusic] [ml-1m] [--quick])
The bar: at least as fast as the faster rival, with an NDCG@100 that is not lower. Exits with 1 where it is missed.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from threadpoolctl import threadpool_limits

import loca
from loca.evaluation.metrics import find_hits, ndcg
from rivals_libraries import Cornac, Lenskit, Loca, NetworkSettings, start_lenskit
from rivals_limits import lapack_seconds, network_seconds, scoring_seconds

LIST_LENGTH = 100
ENOUGH_SECONDS = 20.0
SETS: dict[str, tuple[str, str | None, int, float]] = {
    "amusic": ("amusic/amusic.rating", "loca-rating", 2, 100.0),
    "ml-1m": ("ml-1m/ratings-ordered.csv.gz", "loca-ordered", 5, 1000.0),
}


@dataclass(frozen=True)
class Taken:
    """How long a task took, and the share of the cores that other programs took meanwhile."""

    seconds: float
    by_others: float

    @classmethod
    def median(cls, several: list[Taken]) -> Taken:
        """The median time, the most that others took."""
        return cls(
            statistics.median(one.seconds for one in several), max(one.by_others for one in several)
        )


@dataclass(frozen=True)
class Match:
    """One data set, its settings, and whoever competes on it."""

    held_out: loca.HeldOut
    l2: float
    networks: tuple[NetworkSettings, ...]
    cores: int
    rounds: int = 3

    def time_in_turns(
        self, tasks: Mapping[str, Callable[[], Any]]
    ) -> tuple[dict[str, Taken], dict[str, Any]]:
        """The median time of each task and what it gave last; the order turns around in every round.

        A task that took long the first time is not repeated.
        """
        taken: dict[str, list[Taken]] = {name: [] for name in tasks}
        results: dict[str, Any] = {}
        for turn in range(self.rounds):
            for name in list(tasks)[:: -1 if turn % 2 else 1]:
                if taken[name] and taken[name][0].seconds > ENOUGH_SECONDS:
                    continue
                results.pop(name, None)
                gc.collect()
                torch.set_num_threads(self.cores)
                started, before = time.perf_counter(), seconds_of_others()
                results[name] = tasks[name]()
                seconds = time.perf_counter() - started
                taken[name].append(
                    Taken(seconds, (seconds_of_others() - before) / (seconds * self.cores))
                )
        return {name: Taken.median(several) for name, several in taken.items()}, results

    def ndcg(self, lists: Any) -> float:
        """The mean NDCG@100 over the users with held-out items, by this project's own measure."""
        targets = self.held_out.target_matrix
        counts = targets.indptr[1:] - targets.indptr[:-1]
        users = counts.nonzero()[0]
        return float(
            ndcg(find_hits(lists[users], targets[users]), counts[users], LIST_LENGTH).mean()
        )


def main() -> int:
    """Prints a table for each data set and gives 1 where the bar was missed; a smoke run is not judged."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sets", nargs="*", choices=[[], *SETS], help="data sets (default: all)")
    parser.add_argument(
        "--quick", action="store_true", help="a smoke run on planted data, in seconds"
    )
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=30, help="of the networks (30)")
    parser.add_argument(
        "--batch-size", type=int, default=100, help="of the networks (100, as cornac's)"
    )
    asked = parser.parse_args()
    keep_to_cores(asked.cores)
    warnings.simplefilter("ignore")  # rivals warn of their own doings
    missed: list[str] = []
    with threadpool_limits(asked.cores):
        warm_up(asked.cores)
        for name in ["planted"] if asked.quick else asked.sets or SETS:
            match = planted_match(asked.cores) if asked.quick else public_match(name, asked)
            shape = match.held_out.history_matrix.shape
            print(
                f"\n{name}: {shape[0]:,} users, {shape[1]:,} items, {match.held_out.history_matrix.nnz:,} to learn from"
            )
            missed += [f"{name}, {what}" for what in play(match)]
    if asked.quick:
        print("\na smoke run: these data are too small to judge by")
        return 0
    print("\nbar missed: " + "; ".join(missed) if missed else "\nbar kept everywhere")
    return 1 if missed else 0


def keep_to_cores(cores: int) -> None:
    """Keeps this process and those it starts on the first few of the processors it may use."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    torch.set_num_threads(cores)
    start_lenskit(cores)
    print(
        f"{cores} cores; times are true only where `others`, the share of the cores that other programs took, is small"
    )


def seconds_of_others() -> float:
    """Processor seconds that all but this program have taken since the start of the machine; 0 where not known."""
    try:
        ticks = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    except OSError:
        return 0.0
    idle_and_waiting = ticks[3] + ticks[4]
    return (sum(ticks[:8]) - idle_and_waiting) / os.sysconf("SC_CLK_TCK") - sum(os.times()[:4])


def public_match(name: str, asked: argparse.Namespace) -> Match:
    """Distinct pairs, at least 10 per user, the last 5 are test; all before them is learned from."""
    folder = os.environ.get("LOCA_DATA")
    if folder is None:
        sys.exit("set LOCA_DATA to a folder with amusic/ and ml-1m/ in it, or take --quick")
    file, layout, validation, l2 = SETS[name]
    data = loca.read_interactions(Path(folder) / file, min_user_interactions=10, layout=layout)
    held_out = loca.leave_last_out(data, test=5, validation=validation).test
    networks = (
        NetworkSettings(hidden=None, epochs=asked.epochs, batch_size=asked.batch_size),
        NetworkSettings(hidden=600, epochs=asked.epochs, batch_size=asked.batch_size),
    )
    return Match(held_out, l2, networks, asked.cores)


def planted_match(cores: int) -> Match:
    """Small planted data, so that every part of the benchmark runs once."""
    data = loca.planted_communities(users=1000, items=400).interactions
    networks = (
        NetworkSettings(hidden=None, epochs=3),
        NetworkSettings(hidden=60, epochs=3, latent=20),
    )
    return Match(
        loca.leave_last_out(data, test=5, validation=0).test, 100.0, networks, cores, rounds=1
    )


def warm_up(cores: int) -> None:
    """Everybody does everything once on a handful of users, so that no import or first call is in a time."""
    match = planted_match(cores)
    settings = NetworkSettings(hidden=8, epochs=1, latent=8)
    train = match.held_out.history_matrix[:50]
    for library in (Loca(train), Cornac(train), Lenskit(train, 1)):
        models = [library.train_ease(10.0)]
        if not isinstance(library, Lenskit):
            models.append(library.train_network(settings))
        for model in models:
            library.recommend(model, LIST_LENGTH)


def play(match: Match) -> list[str]:
    """Prints all pieces of a data set and names those that missed the bar."""
    train = match.held_out.history_matrix
    everybody = (Loca(train), Cornac(train), Lenskit(train, 1))
    print(f"{'':<50}{'seconds':>9}{'/ loca':>8}{'NDCG@100':>10}{'others':>8}")
    missed = play_one(
        match, f"EASE, l2 = {match.l2:g}", everybody, lambda library: library.train_ease(match.l2)
    )
    print_limits(lapack_seconds(train, match.l2), "LAPACK")
    for settings in match.networks:
        title = str(settings)
        missed += play_one(
            match, title, everybody[:2], lambda library, s=settings: library.train_network(s)
        )
        print_limits(network_seconds(train, settings), "training")
        print_limits({"its products": scoring_seconds(train, settings)}, "scoring")
    return missed


def play_one(
    match: Match, title: str, libraries: tuple[Any, ...], learn: Callable[[Any], Any]
) -> list[str]:
    """Times training and then lists for all users, of one model in all libraries that have it."""
    seconds, models = match.time_in_turns(
        {one.name: lambda one=one: learn(one) for one in libraries}
    )
    askers = [(one, models[one.name]) for one in libraries]
    if isinstance(libraries[-1], Lenskit):
        askers.append(
            (Lenskit(match.held_out.history_matrix, match.cores), models[libraries[-1].name])
        )
    listing, answers = match.time_in_turns(
        {
            one.name: lambda one=one, model=model: one.recommend(model, LIST_LENGTH)
            for one, model in askers
        }
    )
    quality = {one.name: match.ndcg(one.as_lists(answers[one.name])) for one, _ in askers}
    missed = print_rows(f"{title}: training", seconds, quality)
    return missed + print_rows(f"{title}: top-{LIST_LENGTH} for all", listing, quality)


def print_rows(title: str, times: Mapping[str, Taken], quality: Mapping[str, float]) -> list[str]:
    """Prints one piece, the fastest rival judged against ours, and gives its title where the bar was missed."""
    seconds = {name: taken.seconds for name, taken in times.items()}
    ours = seconds[Loca.name]
    rival = min((name for name in seconds if name != Loca.name), key=seconds.__getitem__)
    reasons = []
    if ours > seconds[rival]:
        reasons.append(f"slower than {rival}")
    if any(quality[Loca.name] < quality[name] - 5e-5 for name in seconds):
        reasons.append("lower NDCG")
    print(title + (f"   <-- {', '.join(reasons)}" if reasons else ""))
    for name, taken in times.items():
        cells = f"{taken.seconds:>9.2f}{taken.seconds / ours:>8.2f}{quality[name]:>10.4f}{taken.by_others:>8.0%}"
        print(f"  {name:<48}{cells}", flush=True)
    return [title] if reasons else []


def print_limits(seconds: Mapping[str, float], what: str) -> None:
    """Prints the limits under the piece that they belong to."""
    for name, taken in seconds.items():
        print(f"  {f'limit of {what}: {name}':<48}{taken:>9.2f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
