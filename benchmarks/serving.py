"""The service beside the same model in process: rates, latencies, load with faults, swaps, and an end under load.

    python benchmarks/serving.py speed --data ml-1m            # bar: rate, latency, micro-batching
    python benchmarks/serving.py load --minutes 10 --swaps 50  # bar: bad requests, slow senders, new versions
    python benchmarks/serving.py stop --rounds 20              # bar: TERM under load
    python benchmarks/serving.py fuzz --requests 10000         # bar: nothing but 4xx
    python benchmarks/serving.py equal films.loca              # bar: the answers of 1,000 users are the model's

Requests come from a second process over loopback, on the same cores. `speed` needs wrk (Debian's package). Exits with 1
when a bar is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np

import loca
from loca.serving.model_store import fingerprint_of
from ordered_sets import read_data

TOKEN = "benchmark-token-0123456789"


# -- Models and servers ------------------------------------------------------------------------------------------------


def save_models(data: str, folder: Path, names: Sequence[str]) -> dict[str, Path]:
    """The models of a benchmark, saved; those that are there already stay."""
    interactions, _ = read_data(data, None)
    made = {
        "ease": lambda: loca.EASE(l2=500.0),
        "loca-ease": lambda: loca.Loca(
            base=loca.EASE(l2=500.0), communities=loca.Mixtures(n=32, temperature=16.0)
        ),
    }
    found = {}
    for name in names:
        found[name] = folder / f"{data}-{name}.loca"
        if not found[name].exists():
            made[name]().fit(interactions).save(found[name])
    return found


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """The port and the process of a service of one model."""
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "loca",
        "serve",
        f"m={folder}",
        "--port",
        str(port),
        "--no-log",
        *options,
    ]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                if httpx.get(f"http://127.0.0.1:{port}/health/ready").status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.1)
        yield port, process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(60)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


# -- Speed -------------------------------------------------------------------------------------------------------------

WRK = """
local ids = {%s}
local next = 0
request = function()
  next = next %% #ids + 1
  return wrk.format("GET", "/v1/recommend/" .. ids[next] .. "?n=10")
end
"""


def wrk_rate(
    port: int, users: Sequence[Any], connections: int, seconds: int
) -> tuple[float, float, int]:
    """Requests a second, median milliseconds and the number of failures, by wrk."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(WRK % ", ".join(f'"{one}"' for one in users))
        script.flush()
        command = [
            "wrk",
            "-t1",
            f"-c{connections}",
            f"-d{seconds}s",
            "--latency",
            "-s",
            script.name,
        ]
        text = subprocess.run(
            [*command, f"http://127.0.0.1:{port}"], capture_output=True, text=True, check=True
        ).stdout
    rate = float(next(line for line in text.splitlines() if "Requests/sec" in line).split()[1])
    median = next(line for line in text.splitlines() if line.strip().startswith("50%")).split()[1]
    unit = {"us": 1e-3, "ms": 1.0, "s": 1000.0}
    value = next(float(median[: -len(one)]) * unit[one] for one in unit if median.endswith(one))
    failures = [line for line in text.splitlines() if "Non-2xx" in line or "Socket errors" in line]
    return rate, value, len(failures)


def speed(given: argparse.Namespace) -> bool:
    """Rates and medians of both models, in process and through the service, with batches and without."""
    met, rng = True, np.random.default_rng(0)
    for name, folder in save_models(given.data, given.folder, given.models).items():
        model = loca.load(folder)
        users = rng.permutation(model.train_data_.users.values).tolist()[:4000]
        model.recommend(users, 10)  # what is read often is stored in another form by then
        started = time.perf_counter()
        model.recommend(users, 10)
        bulk = len(users) / (time.perf_counter() - started)
        times = []
        for one in users[:500]:
            started = time.perf_counter()
            model.recommend([one], 10)
            times.append(time.perf_counter() - started)
        single = 1000 * float(np.median(times))
        with serving(folder) as (port, _):
            wrk_rate(port, users, 64, 5)
            rate, _, bad = wrk_rate(port, users, 64, given.seconds)
            _, median, _ = wrk_rate(port, users, 1, given.seconds)
        with serving(folder, "--batch", "1") as (port, _):
            wrk_rate(port, users, 64, 5)
            alone, _, _ = wrk_rate(port, users, 64, given.seconds)
        print(
            f"{name}: in process {bulk:,.0f} users/s, p50 {single:.2f} ms; service, 64 connections {rate:,.0f} "
            f"requests/s ({rate / bulk:.2f} ×), without batches {alone:,.0f} ({rate / alone:.2f} ×); 1 connection p50 "
            f"{median:.2f} ms ({median - single:+.2f} ms); failures {bad}; load {os.getloadavg()[0]:.1f}"
        )
        met &= rate >= 0.6 * bulk and median <= single + 3 and rate >= 2 * alone and not bad
    return met


# -- Load with faults --------------------------------------------------------------------------------------------------


class Expected:
    """What the right answers are, for each version of the model that is served."""

    def __init__(self, models: Sequence[Any]) -> None:
        self.lists: list[dict[Any, list[Any]]] = []
        self.users = models[0].train_data_.users.values.tolist()
        for model in models:
            items, _ = model.recommend(self.users, 10)
            self.lists.append(dict(zip(self.users, items.tolist(), strict=True)))
        self.by_fingerprint: dict[str, int] = {}

    def is_right(self, reply: dict[str, Any]) -> bool:
        """Whether the list is that of the version which the reply names; ties in the last bits may change places."""
        listed = [one["item"] for one in reply["items"]]
        kind = self.by_fingerprint.get(reply["fingerprint"])
        kinds = range(len(self.lists)) if kind is None else [kind]
        right = [one for one in kinds if same_list(listed, self.lists[one][reply["user"]])]
        return bool(right)


def same_list(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether two lists are the same but for neighbours that change places."""
    near = (other[max(0, place - 1) : place + 2] for place in range(len(other)))
    return len(one) == len(other) and all(
        item in some for item, some in zip(one, near, strict=True)
    )


class Connection:
    """A connection that stays open; requests go over it one after the other."""

    def __init__(self, port: int) -> None:
        self.port, self.streams = port, None

    async def send(self, head: str, body: bytes = b"") -> tuple[int, bytes]:
        """The status and the body of a reply."""
        if self.streams is None:
            self.streams = await asyncio.open_connection("127.0.0.1", self.port)
        reader, writer = self.streams
        writer.write(
            f"{head}\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
        )
        lines = (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
        size = next(int(one[15:]) for one in lines if one.startswith(b"content-length:"))
        found = await reader.readexactly(size)
        if b"connection: close" in lines:
            self.close()
        return int(lines[0].split()[1]), found

    def close(self) -> None:
        """End it; the next request opens another."""
        if self.streams is not None:
            self.streams[1].close()
        self.streams = None


async def bad_request(port: int, rng: random.Random) -> int:
    """One of the bad requests; its status, 0 where the connection ends without one."""
    kind, peer = rng.randrange(6), Connection(port)
    post = "POST /v1/recommend HTTP/1.1"
    try:
        if kind == 0:
            return (await peer.send(post, b'{"user": ["x"], "n": "ten"}'))[0]
        if kind == 1:
            return (await peer.send(f"GET /v1/recommend/nobody-{rng.randrange(10**9)} HTTP/1.1"))[0]
        if kind == 2:
            return (await peer.send(post, b'{"items": ["no-such-item"]}'))[0]
        if kind == 3:
            try:
                return (await peer.send(post, b"x" * 10_000_000))[0]
            except (
                ConnectionError,
                asyncio.IncompleteReadError,
            ):  # closed before the body was sent
                return 413
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        if kind == 4:  # a slow sender, who gives up
            writer.write(
                b"POST /v1/recommend HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
            )
            await writer.drain()
        await asyncio.sleep(rng.random() * 2)
        writer.close()  # kind 5: half open, nothing was sent
        return 0
    finally:
        peer.close()


async def drive(
    port: int, rate: float, seconds: float, expected: Expected, each: Callable[[float], None]
) -> tuple[Counter[str], float]:
    """Requests over 64 connections at a steady rate, a tenth of them bad; what became of them, and the rate.

    A rate of 0 sends good requests alone, as fast as it goes.
    """
    found: Counter[str] = Counter()
    rng, latencies, begin, sent = random.Random(0), [], time.perf_counter(), 0
    aside: set[asyncio.Task[None]] = set()

    async def bad() -> None:
        status = await bad_request(port, rng)
        found["bad: 4xx or closed" if status == 0 or 400 <= status < 500 else f"bad {status}"] += 1

    async def work() -> None:
        nonlocal sent
        peer = Connection(port)
        while (now := time.perf_counter() - begin) < seconds:
            if rate and sent >= rate * now:
                await asyncio.sleep(0.001)
                continue
            sent += 1
            if rate and rng.random() < 0.1:
                task = asyncio.ensure_future(bad())
                aside.add(task)
                task.add_done_callback(aside.discard)
                continue
            user, started = rng.choice(expected.users), time.perf_counter()
            try:
                status, body = await peer.send(f"GET /v1/recommend/{user} HTTP/1.1")
            except (ConnectionError, asyncio.IncompleteReadError) as error:
                found[f"lost ({type(error).__name__})"] += 1
                peer.close()
                continue
            latencies.append(time.perf_counter() - started)
            if status != 200:
                found[f"status {status}"] += 1
            else:
                found["right" if expected.is_right(json.loads(body)) else "wrong"] += 1
        peer.close()

    async def tick() -> None:
        while (now := time.perf_counter() - begin) < seconds:
            each(now)
            await asyncio.sleep(0.2)

    await asyncio.gather(tick(), *(work() for _ in range(64)))
    await asyncio.gather(*aside)
    p50, p99 = 1000 * np.percentile(latencies, [50, 99])
    print(
        f"{sent:,} requests in {seconds:.0f} s; good ones p50 {p50:.1f} ms, p99 {p99:.1f} ms",
        flush=True,
    )
    return found, sent / seconds


def load(given: argparse.Namespace) -> bool:
    """A long load with bad requests while the model is swapped; answers, statuses and memory."""
    folder = save_models(given.data, given.folder, ["ease"])["ease"]
    model = loca.load(folder)
    other = loca.EASE(l2=200.0).fit(model.train_data_)
    live = Path(tempfile.mkdtemp()) / "live.loca"
    model.save(live)
    expected, memory = Expected([model, other]), []
    with serving(live) as (port, process):
        _, highest = asyncio.run(drive(port, 0, 10, expected, lambda now: None))
        print(
            f"highest rate of this driver {highest:,.0f} requests/s; load at {0.8 * highest:,.0f}/s"
        )
        every, done = 60 * given.minutes / (given.swaps + 1), 0
        saver: subprocess.Popen[bytes] | None = None

        def each(now: float) -> None:
            nonlocal done, saver
            if saver is None or saver.poll() is not None:
                expected.by_fingerprint[fingerprint_of(live)] = done % 2
            if (
                done < given.swaps
                and now > (done + 1) * every
                and (saver is None or saver.poll() is not None)
            ):
                done += 1
                source = given.folder / "other.loca" if done % 2 else folder
                code = "import sys, loca; loca.load(sys.argv[1]).save(sys.argv[2])"
                saver = subprocess.Popen([sys.executable, "-c", code, str(source), str(live)])
            if not memory or now - memory[-1][0] > 5:
                memory.append((now, resident(process.pid)))

        other.save(given.folder / "other.loca")
        found, _ = asyncio.run(drive(port, 0.8 * highest, 60 * given.minutes, expected, each))
        reloads = [
            line
            for line in httpx.get(f"http://127.0.0.1:{port}/metrics").text.splitlines()
            if "loca_reloads_t" in line
        ]
    shutil.rmtree(live.parent)
    sizes = np.array([size for _, size in memory])
    early, late = (
        np.median(sizes[len(sizes) // 4 : len(sizes) // 2]),
        np.median(sizes[3 * len(sizes) // 4 :]),
    )
    print(dict(found), f"{done} swaps", *reloads)
    print(
        f"memory {early / 1e6:.0f} MB in the second quarter, {late / 1e6:.0f} MB in the last ({late / early - 1:+.1%})"
    )
    failures = {
        name: count
        for name, count in found.items()
        if name.startswith(("wrong", "lost", "bad 5", "status"))
    }
    failures.pop("status 503", None)
    return not failures and abs(late / early - 1) <= 0.05


def resident(pid: int) -> int:
    """The memory of a process in bytes, mapped files included."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    return 0


# -- The end under load, and fuzz --------------------------------------------------------------------------------------


def stop(given: argparse.Namespace) -> bool:
    """TERM under load, several times: a request that was sent whole on an open connection is answered."""
    folder, met = save_models(given.data, given.folder, ["ease"])["ease"], True
    users = loca.load(folder).train_data_.users.values.tolist()
    for round_ in range(given.rounds):
        with serving(folder) as (port, process):
            answered, lost, code = asyncio.run(
                end_under_load(port, process, users, 0.3 + 0.05 * (round_ % 10))
            )
        met &= not lost and code == 0
        print(f"round {round_}: {answered:,} answered, {lost} lost, exit code {code}", flush=True)
    return met


async def end_under_load(
    port: int, process: Any, users: Sequence[Any], after: float
) -> tuple[int, int, int]:
    """Answered requests, requests without a reply, and the exit code."""
    answered = lost = 0
    ended = float("inf")

    async def go() -> None:
        nonlocal answered, lost
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                return  # it listens no more: nothing was accepted
            try:
                for _ in range(20):
                    sent = time.perf_counter()
                    writer.write(
                        f"GET /v1/recommend/{random.choice(users)} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
                    )
                    await writer.drain()
                    head = await reader.readuntil(b"\r\n\r\n")
                    size = next(
                        int(one.split(b":")[1])
                        for one in head.lower().split(b"\r\n")
                        if b"content-length" in one
                    )
                    await reader.readexactly(size)
                    answered += head.split()[1] == b"200"
                    if b"connection: close" in head.lower():
                        break
            except (asyncio.IncompleteReadError, ConnectionError) as error:
                # A request that is sent while the end begins may meet a closed connection: nobody took it. One that was
                # sent before, or whose reply was begun, is lost.
                lost += bool(getattr(error, "partial", b"")) or sent < ended - 0.02
                return
            finally:
                writer.close()

    tasks = [asyncio.create_task(go()) for _ in range(64)]
    await asyncio.sleep(after)
    ended = time.perf_counter()
    process.send_signal(signal.SIGTERM)
    await asyncio.gather(*tasks)
    code = await asyncio.to_thread(process.wait, 60)
    return answered, lost, code


def fuzz(given: argparse.Namespace) -> bool:
    """Wrong tokens, traversals and random headers and bodies: nothing but 4xx, or a closed connection."""
    folder, rng = save_models(given.data, given.folder, ["ease"])["ease"], random.Random(0)
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as place:
        token = Path(place) / "token"
        token.write_text(TOKEN)
        with serving(folder, "--token-file", str(token)) as (port, process):
            for _ in range(given.requests):
                found[str(raw_status(port, fuzzed(rng)))] += 1
            alive = process.poll() is None
            right = {"Authorization": f"Bearer {TOKEN}"}
            ready = httpx.get(f"http://127.0.0.1:{port}/v1/models", headers=right).status_code
    print(dict(sorted(found.items())), f"alive {alive}, then {ready} with the token")
    return (
        alive and ready == 200 and all(code == "closed" or code.startswith("4") for code in found)
    )


def fuzzed(rng: random.Random) -> bytes:
    """A request that must not be answered with 2xx or 5xx."""
    right = f"Authorization: Bearer {TOKEN}\r\n"
    junk = bytes(rng.randrange(256) for _ in range(rng.randrange(200)))
    paths = [
        "/v1/models",
        "/v1/recommend/1",
        "/metrics",
        "/v1/communities",
        "/v1/map",
        "/v1/search?q=a",
    ]
    traversals = [
        "/explorer/../app.py",
        "/explorer/..%2f..%2fapp.py",
        "/explorer/%2e%2e/server.py",
        "/../../etc/passwd",
    ]
    traversals += [
        "/explorer//etc/passwd",
        "/explorer/....//app.py",
        "/v1/communities/..%2f..",
        "/explorer/index.html%00",
    ]
    bodies = [
        b"{",
        b"[]",
        b'{"user": {}}',
        b'{"user": 1, "n": -1}',
        b'{"user": 1, "n": 1e99}',
        b'{"n": 5}',
        junk,
    ]
    bodies += [
        b"[" * 5000,
        b'{"items": [' + b"1," * 400 + b"-7]}",
        b'{"user": "\xff"}',
        b'{"user": 1, "model": "../x"}',
    ]
    kind = rng.randrange(6)
    if kind == 0:
        token = rng.choice(
            [
                "",
                "Authorization: Bearer wrong\r\n",
                f"Authorization: Basic {TOKEN}\r\n",
                right[:-4] + "\r\n",
            ]
        )
        return f"GET {rng.choice(paths)} HTTP/1.1\r\nHost: localhost\r\n{token}\r\n".encode()
    if kind == 1:
        return f"GET {rng.choice(traversals)} HTTP/1.1\r\nHost: localhost\r\n{right}\r\n".encode()
    if kind == 2:
        body = rng.choice(bodies)
        path = rng.choice(["/v1/recommend", "/v1/explain", "/v1/recommend/batch"])
        head = (
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{right}Content-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body
    if kind == 3:
        method = rng.choice(["PUT", "DELETE", "PATCH", "TRACE", "POST"])
        return f"{method} /v1/models HTTP/1.1\r\nHost: localhost\r\n{right}Content-Length: 0\r\n\r\n".encode()
    if kind == 4:
        line = (
            rng.choice(
                [b"X: ", b"Content-Length: ", b"Transfer-Encoding: ", b"Host: ", b"Authorization: "]
            )
            + junk
        )
        return b"GET /v1/models HTTP/1.1\r\n" + line.replace(b"\n", b"") + b"\r\n\r\n"
    return junk + b"\r\n\r\n"


def raw_status(port: int, request: bytes) -> str:
    """The status of what comes back, or `closed`."""
    with socket.create_connection(("127.0.0.1", port), 20) as peer:
        try:
            peer.sendall(request)
            peer.shutdown(socket.SHUT_WR)
            head = peer.recv(64)
        except OSError:
            return "closed"
    return head.split()[1].decode("latin-1") if head.startswith(b"HTTP/") else "closed"


def equal(given: argparse.Namespace) -> bool:
    """The lists of 1,000 random users and histories, all at once, beside those of `recommend`; for each folder."""
    met = True
    for folder in given.folders:
        model, rng = loca.load(folder), np.random.default_rng(0)
        known = model.train_data_
        users = rng.choice(known.users.values, 500).tolist()
        counts = rng.integers(1, min(30, known.n_items), 500)
        histories = [
            rng.choice(known.items.values, count, replace=False).tolist() for count in counts
        ]
        bodies: list[dict[str, Any]] = [{"user": one} for one in users] + [
            {"items": one} for one in histories
        ]
        rng.shuffle(bodies)
        with serving(folder) as (port, _):
            replies = asyncio.run(ask_all(port, bodies))
        worst, others = 0.0, 0
        for body, reply in zip(bodies, replies, strict=True):
            items, scores = model.recommend(
                [body["user"]] if "user" in body else [body["items"]], 10
            )
            listed, found = (
                [one["item"] for one in reply["items"]],
                [one["score"] for one in reply["items"]],
            )
            right = [one for one in items[0].tolist() if one is not None]
            others += listed != right
            worst = max(
                worst, float(np.abs(np.array(found) - scores[0][: len(found)]).max(initial=0))
            )
        scale = float(np.abs(scores[0][: len(found)]).max(initial=1e-9))
        print(
            f"{folder.name}: {others} of {len(bodies)} lists differ, scores by at most {worst:.1e} of {scale:.2g}"
        )
        met &= others <= 0.002 * len(bodies) and worst <= 1e-4 * max(scale, 1)
    return met


async def ask_all(port: int, bodies: Sequence[dict[str, Any]]) -> list[Any]:
    """The replies to many requests over 64 connections."""
    left, replies = iter(enumerate(bodies)), [None] * len(bodies)

    async def work() -> None:
        peer = Connection(port)
        for place, body in left:
            status, text = await peer.send("POST /v1/recommend HTTP/1.1", json.dumps(body).encode())
            assert status == 200, text
            replies[place] = json.loads(text)
        peer.close()

    await asyncio.gather(*(work() for _ in range(64)))
    return replies


def main() -> int:
    """One of the measurements."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["speed", "load", "stop", "fuzz", "equal"])
    parser.add_argument("folders", nargs="*", type=Path, help="saved models, for equal")
    parser.add_argument(
        "--data",
        default="ml-1m",
        help="ml-1m, planted, … or an .npz file with offsets and item_rows",
    )
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "loca-serving")
    parser.add_argument("--models", nargs="+", default=["ease", "loca-ease"])
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--swaps", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--requests", type=int, default=10_000)
    given = parser.parse_args()
    loca.set_progress(False)
    given.folder.mkdir(parents=True, exist_ok=True)
    met = {"speed": speed, "load": load, "stop": stop, "fuzz": fuzz, "equal": equal}[given.what](
        given
    )
    print("bar: met" if met else "bar: missed")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
