"""A Ray cluster beside one process: the same numbers, kills at random, the cost of shards, lists and comparisons.

    python benchmarks/cluster.py equal                # 1, 2 and 4 shards: epoch, share, lists, scores within 1e-5
    python benchmarks/cluster.py kills --kills 60     # workers, raylets with their children, drivers: the same model
    python benchmarks/cluster.py overhead             # two shards of one core against one process of two threads
    python benchmarks/cluster.py lists --data ml-1m   # all users in Parquet parts, a worker killed meanwhile
    python benchmarks/cluster.py compare              # eight models over two workers: the same table, and its time
    python benchmarks/cluster.py scale                # fits of any size on paper, from measured costs

Nodes are Ray's own several nodes on one machine. Exits with 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

import loca
from ordered_sets import read_data

LOCA = [sys.executable, "-m", "loca"]
RAY = [str(Path(sys.executable).with_name("ray"))]
PORT = 6391
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
PIPED: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
# The monitor of Ray kills processes where others fill the machine.
os.environ |= {
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_AUTH_MODE": "token",
    "OMP_NUM_THREADS": "1",
}
VAE = {"latent": 32, "epochs": 80, "patience": 16, "evaluate_every": 2, "learning_rate": 5e-3}
FITS: dict[str, Callable[[], Any]] = {
    "MultVAEs around anchors": lambda: loca.Loca(
        base=loca.MultVAE(**VAE), communities=loca.Kernels(n=12)
    ),
    "MultVAEs of mixtures": lambda: loca.Loca(
        base=loca.MultVAE(**VAE), communities=loca.Mixtures(n=12)
    ),
    "EASEs around anchors": lambda: loca.Loca(
        base=loca.EASE(l2=50.0), communities=loca.Kernels(n=12)
    ),
    "EASEs of mixtures": lambda: loca.Loca(
        base=loca.EASE(l2=50.0), communities=loca.Mixtures(n=12)
    ),
}


def data_of(given: argparse.Namespace) -> Any:
    """A split of planted data, or of a public set."""
    if given.data == "planted":
        found = loca.planted_communities(
            users=1500, items=300, communities=4, groups=20, history=20, seed=5
        )
        return loca.leave_last_out(found.interactions, test=3, validation=2)
    interactions, validation = read_data(given.data, None)
    return loca.leave_last_out(interactions, test=5, validation=validation)


def executor(storage: Path, shards: int, address: str = "local") -> Any:
    """Shards on Ray, on two cores."""
    from loca.cluster.ray_executor import RayExecutor

    return loca.FitContext(
        context=loca.FitContext(
            executor=RayExecutor(storage, shards=shards, address=address, cpus=min(1, 2 / shards))
        )
    )


def equal(given: argparse.Namespace) -> bool:
    """Each fit alone and in 1, 2 and 4 shards."""
    split, met = data_of(given), True
    rows = split.test.history_matrix
    users = split.train.users.values.tolist()
    for name, make in FITS.items():
        alone = make().fit(split.train, validation=split.validation)
        for shards in (1, 2, 4):
            with tempfile.TemporaryDirectory() as place:
                context = executor(Path(place), shards)
                model = make().fit(split.train, validation=split.validation, context=context)
            apart = float(np.abs(model.score(rows) - alone.score(rows)).max())
            lists = float(
                (model.recommend(users).items == alone.recommend(users).items).all(axis=1).mean()
            )
            same = choices(model) == choices(alone)
            print(
                f"{name}, {shards} shards: {choices(model)}, the same: {same}; "
                f"scores differ by {apart:.1e}, {lists:.1%} of {len(users):,} lists are the same",
                flush=True,
            )
            met &= same and apart <= 1e-5 and lists >= 0.999
    return met


# -- Kills -------------------------------------------------------------------------------------------------------------


@contextmanager
def cluster(nodes: int) -> Iterator[str]:
    """A head without cores and some nodes of one core each; the address."""
    subprocess.run([*RAY, "stop", "--force"], **QUIET)
    subprocess.run(
        [*RAY, "start", "--head", f"--port={PORT}", "--num-cpus=0", "--include-dashboard=false"],
        **QUIET,
    )
    for _ in range(nodes):
        add_node()
    try:
        yield f"127.0.0.1:{PORT}"
    finally:
        subprocess.run([*RAY, "stop", "--force"], **QUIET)


def add_node() -> None:
    """One more node of one core."""
    subprocess.run([*RAY, "start", f"--address=127.0.0.1:{PORT}", "--num-cpus=1"], **QUIET)


def processes() -> dict[int, tuple[int, str]]:
    """Parent and command of every process."""
    text = subprocess.run(
        ["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True
    ).stdout
    split = (line.split(None, 2) for line in text.splitlines()[1:])
    return {int(pid): (int(parent), command) for pid, parent, command in split}


def kill_tree(pid: int, all_processes: dict[int, tuple[int, str]]) -> None:
    """A process and all below it, at once."""
    for one, (parent, _) in all_processes.items():
        if parent == pid:
            kill_tree(one, all_processes)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def kills(given: argparse.Namespace) -> bool:
    """Fits whose workers, nodes and drivers are killed; each ends in the model of an unbroken run."""
    rng, met, total, fit = random.Random(given.seed), True, Counter[str](), 0
    split = data_of(given)
    place = Path(tempfile.mkdtemp())
    train = place / "train.csv"
    split.train_and_validation.to_polars().write_csv(train)
    words = [
        str(train),
        "--model",
        given.model,
        "--set",
        "communities.n=12",
        "--validation",
        "2",
        "--quiet",
    ]
    words += (
        [] if "ease" in given.model else [f"--set=base.{key}={value}" for key, value in VAE.items()]
    )
    started = time.monotonic()
    subprocess.run(
        [*LOCA, "fit", *words, "--out", str(place / "alone.loca")],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    alone = loca.load(place / "alone.loca")
    rows = alone.train_data_.histories(np.arange(200))
    print(
        f"{given.model}: an unbroken fit takes {time.monotonic() - started:.0f} s and has {choices(alone)}",
        flush=True,
    )
    with cluster(3) as address:
        while sum(total.values()) < given.kills:
            out, fit = place / f"fit{fit}.loca", fit + 1
            command = [
                *LOCA,
                "fit",
                *words,
                "--out",
                str(out),
                "--cluster",
                address,
                "--shards",
                "2",
            ]
            command += ["--checkpoint-every", "0"]
            driver = subprocess.Popen(command, **PIPED)
            here: Counter[str] = Counter()
            next_kill = time.monotonic() + rng.uniform(6, 14)
            begun = time.monotonic()
            while driver.poll() is None:
                time.sleep(0.2)
                if time.monotonic() < next_kill or sum(here.values()) >= 8:
                    continue
                kind, seen = rng.choice(["actor", "worker", "raylet", "driver"]), processes()
                if kind in ("actor", "worker"):
                    start = "ray::Shard" if kind == "actor" else "ray::"
                    # A node does not outlive its agents, and that of the head is the cluster itself.
                    found = [
                        pid
                        for pid, (_, text) in seen.items()
                        if text.startswith(start) and "Agent" not in text
                    ]
                elif (
                    kind == "raylet"
                ):  # that of the head, which is the oldest, stays: it is the cluster itself
                    found = sorted(
                        pid
                        for pid, (_, text) in seen.items()
                        if "/raylet/raylet" in text.split()[0]
                    )[1:]
                else:
                    found = [driver.pid]
                if not found:
                    continue
                kill_tree(rng.choice(found), seen) if kind == "raylet" else os.kill(
                    rng.choice(found), signal.SIGKILL
                )
                here[kind] += 1
                next_kill = time.monotonic() + rng.uniform(5, 12)
                if kind == "raylet":
                    add_node()
                if kind == "driver":
                    driver.wait()
                    driver = subprocess.Popen([*command, "--resume"], **PIPED)
            code, errors = driver.returncode, driver.stderr.read() if driver.stderr else ""
            apart, same = float("nan"), False
            if code == 0:
                model = loca.load(out, verify=True)
                apart = float(np.abs(model.score(rows) - alone.score(rows)).max())
                left = [one.name for one in place.iterdir() if one.name.startswith(f"{out.name}.")]
                same = apart <= 1e-5 and choices(model) == choices(alone) and not left
            met, total = met and same, total + here
            took = time.monotonic() - begun
            print(
                f"fit {fit}: killed {dict(here)}, exit code {code}, {took:.0f} s, scores differ by {apart:.1e}, "
                f"the same model: {same}",
                flush=True,
            )
            if not same:
                print(errors[-2000:])
            shutil.rmtree(out, ignore_errors=True)
    print(f"{sum(total.values())} kills: {dict(total)}")
    return met and end_without_machines(place, words)


def choices(model: Any) -> str:
    """Return what validation has chosen."""
    local = model.local_
    return f"{local.models.epochs_} epochs, {local.finder}, {local.combiner}"


def end_without_machines(place: Path, words: list[str]) -> bool:
    """The one node is killed and none comes instead: one line after the stated time, and a later run goes on."""
    out = place / "short.loca"
    with cluster(1) as address:
        command = [
            *LOCA,
            "fit",
            *words,
            "--out",
            str(out),
            "--cluster",
            address,
            "--shards",
            "1",
            "--wait",
            "15",
        ]
        driver = subprocess.Popen([*command, "--checkpoint-every", "0"], **PIPED)
        for _ in range(300):
            time.sleep(0.2)
            seen = processes()
            if any(text.startswith("ray::Shard") for _, text in seen.values()):
                break
        time.sleep(6)
        nodes = sorted(
            pid for pid, (_, text) in processes().items() if "/raylet/raylet" in text.split()[0]
        )[1:]
        for one in nodes:
            kill_tree(one, processes())
        begun = time.monotonic()
        _, errors = driver.communicate(timeout=180)
        took, last = time.monotonic() - begun, errors.strip().splitlines()[-1]
        print(f"no machine left: exit code {driver.returncode} after {took:.0f} s: {last}")
        add_node()
        code = subprocess.run([*command, "--resume"], **QUIET).returncode
        print(f"with a machine again and --resume: exit code {code}")
    return driver.returncode == 2 and last.startswith("loca: shard") and code == 0


# -- What it costs -----------------------------------------------------------------------------------------------------


def overhead(given: argparse.Namespace) -> bool:
    """The same fit in one process of two threads and in two shards of one core; the share of barrier and sums.

    Barrier and sums are what an epoch with its validation takes beyond the work of the shards (in the mean) and the
    measuring by the driver: waiting for the slower shard, sending, adding.
    """
    import torch
    from threadpoolctl import threadpool_limits

    from loca.cluster.ray_executor import connect

    split = data_of(given)
    base = loca.MultVAE(epochs=given.epochs, patience=given.epochs, evaluate_every=1)

    def make() -> Any:
        return loca.Loca(base=base, communities=loca.Kernels(n=given.models_at_once))

    torch.set_num_threads(2)
    threadpool_limits(2)
    watched = Watched()
    with watched.training():
        alone = make().fit(split.train, validation=split.validation, context=watched.context())
    one = watched.seconds["training"]
    connect("local")
    with tempfile.TemporaryDirectory() as place:
        watched = Watched(executor(Path(place), 2).executor)
        with watched.training():
            model = make().fit(split.train, validation=split.validation, context=watched.context())
        same = choices(model) == choices(alone)
        del model
    two, count = watched.seconds["training"], given.epochs - 1
    # The first epoch begins the processes.
    epochs = sum(wall for method, wall, _ in watched.calls if method == "epoch") / count
    blends = sum(wall for method, wall, _ in watched.calls if method == "blend") / count
    worked = sum(work for method, _, work in watched.calls if method in ("epoch", "blend")) / count
    sums = watched.seconds["sums"] / given.epochs
    share = (epochs + blends - worked + sums) / (epochs + blends + sums)
    print(
        f"{given.models_at_once} models of {split.train.n_users:,} users × {split.train.n_items:,} items, "
        f"{given.epochs} epochs: one process {one:.1f} s, two shards {two:.1f} s ({two / one:.2f} ×), the same model: "
        f"{same}; an epoch: training and saving {epochs:.1f} s, answers {blends:.1f} s, sums {sums:.2f} s, of which "
        f"the shards worked {worked:.1f} s ({watched.saved / given.epochs:.1f} s of it saving): "
        f"barrier and sums {share:.1%}"
    )
    return two <= 1.3 * one and same and share <= 0.1


class Watched:
    """Times the training of a fit's local models, and each call of its executor beside the work of the shards."""

    def __init__(self, executor: Any = None) -> None:
        self.seconds: Counter[str] = Counter()
        self.calls: list[
            tuple[str, float, float]
        ] = []  # method, seconds, and mean seconds of work of the shards
        self.executor, self.saved, self.is_begun = executor, 0.0, False

    def context(self) -> Any:
        """What the fit is given."""
        return loca.FitContext(executor=self.executor)

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.seconds[what] += time.perf_counter() - started

    @contextmanager
    def training(self) -> Iterator[None]:
        """While this lasts, all is timed."""
        import loca.cluster.executor as executors
        import loca.local.loca as fits

        train, add, executor = fits.train, executors.add_answers, self.executor
        fits.train = self._timing("training", train)
        executors.add_answers = self._timing("sums", add)
        if executor is not None:
            call = executor.call

            def timed(method: str, arguments: Any, *others: Any, **named: Any) -> Any:
                def work() -> float:
                    found = [seconds for _, _, seconds in call("status", [()] * len(arguments))]
                    self.saved = float(np.mean([one.get("save", 0.0) for one in found]))
                    return float(np.mean([one.get(method, 0.0) for one in found]))

                before, started = work(), time.perf_counter()
                found = list(call(method, arguments, *others, **named))
                seconds = time.perf_counter() - started
                self.is_begun |= method == "epoch" and arguments[0][0] > 1
                if self.is_begun:
                    self.calls.append((method, seconds, work() - before))
                return found

            executor.call = timed
        try:
            yield
        finally:
            fits.train, executors.add_answers = train, add

    def _timing(self, what: str, function: Any) -> Any:
        def timed(*arguments: Any, **named: Any) -> Any:
            with self._timed(what):
                return function(*arguments, **named)

        return timed


def lists(given: argparse.Namespace) -> bool:
    """All users to Parquet over two workers, one of them killed: every user once."""
    import polars

    interactions = (
        read_data(given.data, None)[0] if given.data != "planted" else data_of(given).train
    )
    place = Path(tempfile.mkdtemp())
    loca.EASE(l2=500.0).fit(interactions).save(place / "m.loca")
    with cluster(2) as address:
        command = [
            *LOCA,
            "recommend",
            str(place / "m.loca"),
            "--all",
            "-n",
            "100",
            "--cluster",
            address,
        ]
        running = subprocess.Popen([*command, "--parts", "24", "--out", str(place / "lists")])
        killed = 0
        while running.poll() is None:
            time.sleep(0.1)
            found = [
                pid for pid, (_, text) in processes().items() if text.startswith("ray::_write_part")
            ]
            if found and not killed and len(list((place / "lists").glob("*.parquet"))) >= 4:
                os.kill(found[0], signal.SIGKILL)
                killed += 1
    written = polars.read_parquet(place / "lists" / "*.parquet")
    counts = written.group_by("user").len()["len"]
    once = len(counts) == interactions.n_users and bool((counts == 100).all())
    print(
        f"{len(counts):,} of {interactions.n_users:,} users, {killed} worker killed, each once: {once}"
    )
    return once and killed == 1 and running.returncode == 0


def compare(given: argparse.Namespace) -> bool:
    """Eight models in one process, of one thread and of two, and over two workers of one."""
    names = "popularity,item-knn,ease,next-ease,slim,mult-vae,mult-dae,wmf"
    place = Path(tempfile.mkdtemp())
    data = data_of(given)
    data.train_and_validation.merged(data.test.targets).to_polars().write_csv(place / "data.csv")
    words = [str(place / "data.csv"), "--models", names, "--json"]
    words += [f"--set={one}.epochs={given.compared_epochs}" for one in ("mult-vae", "mult-dae")]
    found, seconds = [], []
    with cluster(2) as address:
        for threads, more in ((1, []), (2, []), (1, ["--cluster", address, "--processes", "2"])):
            started = time.perf_counter()
            env = os.environ | {"OMP_NUM_THREADS": str(threads)}
            text = subprocess.run(
                [*LOCA, "compare", *words, *more], stdout=subprocess.PIPE, env=env, check=True
            ).stdout
            seconds.append(time.perf_counter() - started)
            found.append(without_times(json.loads(text)))
    same, (one, two, spread) = found[0] == found[2], seconds
    print(
        f"one process of one thread {one:.0f} s, of two {two:.0f} s; two workers {spread:.0f} s ({spread / one:.2f} "
        f"and {spread / two:.2f} ×); the same table: {same}"
    )
    return same and spread <= 0.7 * one


def scale(given: argparse.Namespace) -> bool:
    """Fits of any size on paper: from the plan of their shards and from measured costs; nothing is fitted."""
    from loca.cluster.shards import plan_shards
    from loca.memory import DataSize, readable_bytes

    # Users, items, communities, shards, users who judge, interactions of each user, epochs.
    sizes = {
        "AMusic": (4_964, 11_797, 300, 1, 4_964, 20, 90),
        "a large shop": (10**6, 10**5, 1000, 16, 10**4, 100, 50),
        "the whole": (10**8, 10**7, 10**4, 1000, 10**8, 100, 50),
        "10,000 judge": (10**8, 10**7, 10**4, 1000, 10**4, 100, 50),
        "and 10^5 items": (10**8, 10**5, 10**4, 1000, 10**4, 100, 50),
    }
    rows: dict[str, list[str]] = {}
    for users, items, communities, shards, judges, each, epochs in sizes.values():
        size = DataSize(users, items, each * users, min(items**2, each**2 * users), judges)
        model = loca.Loca(base=loca.MultVAE(), communities=loca.Kernels(n=communities))
        plan = plan_shards(model, size, shards)
        # An answer is the third of the products of a step.
        train = plan["models"] * users * items * given.cost
        answer = plan["models"] * judges * items * given.cost / 3
        save, send = plan["saved"] / given.disk, shards * plan["sent"] / given.link
        add = shards * plan["sent"] / given.adding
        epoch = train + save + answer + send + add
        for name, value in {
            "users × items × communities": f"{users:,} × {items:,} × {communities:,}",
            "shards, with models each": f"{shards:,}, {plan['models']:,}",
            "memory of a shard": readable_bytes(plan["main"] + plan["device"]),
            "it reads at the start": readable_bytes(plan["read"]),
            "it saves after an epoch": readable_bytes(plan["saved"]),
            "it sends for a validation": readable_bytes(plan["sent"]),
            "memberships, on the driver": readable_bytes(4 * users * communities),
            "files of the model": readable_bytes(shards * plan["part"]),
            "one EASE, while it is solved": readable_bytes(8 * items**2),
            "an epoch: training": hours(train),
            "saving": hours(save),
            "answering": hours(answer),
            "barrier: sending": hours(send),
            "barrier: sums": hours(add),
            "the barrier's share": f"{(send + add) / epoch:.0%}",
            "all epochs": f"{hours(epoch * epochs)} ({epochs})",
        }.items():
            rows.setdefault(name, []).append(value)
    print(f"| | {' | '.join(sizes)} |\n|{'---|' * (1 + len(sizes))}")
    for name, values in rows.items():
        print(f"| {name} | {' | '.join(values)} |")
    return True


def hours(seconds: float) -> str:
    """Seconds as a person reads them."""
    for unit, length in (("years", 31_557_600), ("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:.2g} s"


def without_times(document: Any) -> Any:
    """A document without what the clock says."""
    if isinstance(document, dict):
        return {key: without_times(one) for key, one in document.items() if "seconds" not in key}
    return [without_times(one) for one in document] if isinstance(document, list) else document


def main() -> int:
    """One of the measurements."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["equal", "kills", "overhead", "lists", "compare", "scale"])
    parser.add_argument("--data", default="planted", help="planted, ml-1m, amusic, …")
    parser.add_argument("--model", default="mixture-vae", help="of kills")
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=3, help="of overhead")
    parser.add_argument("--models-at-once", type=int, default=100, help="of overhead")
    parser.add_argument("--compared-epochs", type=int, default=60, help="of compare")
    parser.add_argument(
        "--cost", type=float, default=2.2e-11, help="of scale: seconds of a model, user and item"
    )
    parser.add_argument(
        "--disk", type=float, default=2e9, help="of scale: bytes a second that a shard saves"
    )
    parser.add_argument(
        "--link", type=float, default=3e9, help="of scale: bytes a second that the driver receives"
    )
    parser.add_argument(
        "--adding", type=float, default=5e9, help="of scale: bytes a second that the driver adds"
    )
    given = parser.parse_args()
    loca.set_progress(False)
    all_of_them = {one.__name__: one for one in (equal, kills, overhead, lists, compare, scale)}
    met = all_of_them[given.what](given)
    print("bar: met" if met else "bar: missed")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
