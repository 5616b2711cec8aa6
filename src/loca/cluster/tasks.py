"""Runs of comparisons, studies and reproductions, and lists for all users, as tasks of a Ray cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from loca.cluster.executor import ClusterError
from loca.errors import LocaError, check_counts
from loca.evaluation.recommend import Ids
from loca.persistence.atomic_write import MANIFEST, locked, read_plain, write_whole
from loca.persistence.checkpoint import first_difference
from loca.persistence.manifest import fingerprint
from loca.persistence.recommendation_file import RecommendationFile, recommend_to_file
from loca.persistence.sealed_json import open_sealed, sealed_json
from loca.progress import bar, set_progress
from loca.registry import load
from loca.tuning.workers import WorkerDied

_RETRIES = 3
# How long a task waits for a machine that could run it, and how often that is looked at.
_WAIT_SECONDS, _LOOK_SECONDS = 300.0, 2.0
_REQUEST_FILE, _REQUEST_FORMAT = "_request.json", "loca-lists"


def _ray(address: str) -> Any:
    """Ray, connected; it is loaded here, so that what needs no cluster does without."""
    from loca.cluster.ray_executor import connect

    return connect(address)


def _largest_machine(ray: Any) -> float:
    """The cores of the machine that has most."""
    return max(
        (one["Resources"].get("CPU", 0.0) for one in ray.nodes() if one["Alive"]), default=0.0
    )


class _Patience:
    """How long there has been no machine that could run a task."""

    def __init__(self, ray: Any, cpus: int) -> None:
        self._ray, self._cpus, self._since = ray, cpus, time.monotonic()

    def reason(self) -> str:
        """Why nobody should wait any longer; empty while somebody should."""
        if _largest_machine(self._ray) >= self._cpus:
            self._since = time.monotonic()
        if time.monotonic() - self._since < _WAIT_SECONDS:
            return ""
        return f"no machine of the cluster has {self._cpus} cores, for {_WAIT_SECONDS:g} s: add one, then go on"


# -- Workers -----------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class RayWorker:
    """What `loca.tuning.workers.Worker` is, as a task of a cluster."""

    line: Connection
    stream: Any
    cancel: Callable[..., None]
    reason: str = "its task ended without a word"
    restarts: int = _RETRIES

    @classmethod
    def start(
        cls,
        work: Callable[..., None],
        given: tuple[Any, ...],
        *,
        threads: int,
        what: str,
        address: str = "local",
    ) -> RayWorker:
        """A task that calls `work` with something to send messages by, and with what it is given."""
        ray = _ray(address)
        line, far_end = Pipe()
        threads = max(
            1, min(threads, int(_largest_machine(ray)))
        )  # those of this machine may be more
        options: Any = {"num_cpus": threads, "max_retries": 0, "num_returns": "streaming"}
        stream: Any = ray.remote(_live).options(**options).remote(work, threads, given)
        worker, patience = cls(line, stream, ray.cancel), _Patience(ray, threads)

        def pass_on() -> None:
            try:
                while not ray.wait([stream], timeout=_LOOK_SECONDS, fetch_local=False)[0]:
                    if reason := patience.reason():
                        worker.reason, worker.restarts = reason, 0
                        return
                for reference in stream:
                    far_end.send(ray.get(reference))
            except ray.exceptions.RayTaskError as error:  # nothing was lost: it would fail again
                worker.reason, worker.restarts = " ".join(str(error.cause).split())[:300], 0
            except ray.exceptions.RayError as error:
                worker.reason = f"its task was lost ({' '.join(str(error).split())[:150]})"
            except OSError:  # nobody waits any more
                pass
            finally:
                far_end.close()

        threading.Thread(target=pass_on, daemon=True).start()
        return worker

    def hear(self) -> Any:
        """The next message; one that has died is an error."""
        try:
            return self.line.recv()
        except (EOFError, OSError):
            raise WorkerDied(self.reason) from None

    def end(self, *, is_done: bool = False) -> None:
        """End the task, whatever it does."""
        self.line.close()
        if not is_done:
            self.cancel(self.stream, force=True)


@dataclass
class _Sender:
    """Takes what a worker sends."""

    messages: SimpleQueue[Any]

    def send(self, message: Any) -> None:
        self.messages.put(message)


def _live(work: Callable[..., None], threads: int, given: tuple[Any, ...]) -> Iterator[Any]:
    """What a task does: what it sends goes back at once."""
    import torch
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    set_progress(False)
    torch.set_num_threads(threads)
    threadpool_limits(limits=threads)
    messages, end = SimpleQueue[Any](), object()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work(_Sender(messages), *given)
        except BaseException as error:
            errors.append(error)
        finally:
            messages.put(end)

    threading.Thread(target=run, daemon=True).start()
    while (message := messages.get()) is not end:
        yield message
    if errors:
        raise errors[0]


def workers_on(address: str) -> Callable[..., RayWorker]:
    """What starts workers on a cluster, in place of `Worker.start`."""
    _ray(address)  # or it is refused here, before anything is done
    return partial(RayWorker.start, address=address)


# -- Lists for all users -----------------------------------------------------------------------------------------------


def recommend_to_parts(
    model: Path,
    out: Path,
    n: int = 10,
    *,
    parts: int = 16,
    address: str | None = None,
    only: Ids = None,
    never: Ids = None,
    recency: Any = "model",
) -> RecommendationFile:
    """Write the lists of all users of a saved model as Parquet files in a folder, by ranges of users.

    A part that is there already is left as it is: an interrupted run goes on. A folder with lists of another request is
    refused.

    Parameters
    ----------
    model, out : Path
        The folder of the model, and that of the parts, on storage that all machines see.
    n : int, default 10
        Items for each user.
    parts : int, default 16
        How many files.
    address : str or None, default None
        The cluster, as for `RayExecutor`; None writes them here, one after the other.
    only, never, recency
        As for `recommend`.
    """
    check_counts(parts=parts)
    ray, model, out = None if address is None else _ray(address), model.absolute(), out.absolute()
    loaded, digest = _loaded_once(model)
    users = loaded.train_data_
    if users is None:
        raise ClusterError(f"{model}: this model was fitted on a bare matrix and knows no users")
    parts = min(parts, max(users.n_users, 1))
    edges = [users.n_users * one // parts for one in range(parts + 1)]
    names = [f"part-{one:05d}-of-{parts:05d}.parquet" for one in range(parts)]
    chosen = {
        key: None if one is None else list(one) for key, one in (("only", only), ("never", never))
    }
    conditions = {**chosen, "recency": recency}
    request = {
        "model": digest,
        "items per user": n,
        **{key: str(one) for key, one in conditions.items()},
    }
    if out.exists() and not out.is_dir():
        raise ClusterError(
            f"{out}: expected a folder for {parts} parts, found a file; choose another"
        )
    with locked(out, "another run writes its lists there"):
        check_parts(out, names, request)
        missing = [
            (out / name, users, n, conditions)
            for name, users in zip(names, pairwise(edges), strict=True)
            if not (out / name).exists()
        ]
        with bar("parts", parts) as progress:
            progress.advance(parts - len(missing))
            for _ in (
                _in_turn(missing, loaded)
                if ray is None
                else _in_tasks(missing, ray, (model, digest))
            ):
                progress.advance()
        for one in _half_written(out):
            one.unlink(missing_ok=True)
    import polars

    counted = polars.scan_parquet([out / name for name in names]).select(
        polars.len(), polars.col("user").n_unique()
    )
    rows, answered = counted.collect().row(0)
    return RecommendationFile(out, users.n_users, users.n_users - answered, rows)


def _in_turn(missing: Sequence[tuple[Any, ...]], model: Any) -> Iterator[None]:
    """Write parts in this process."""
    for one in missing:
        _write_users(model, *one)
        yield


def _in_tasks(
    missing: Sequence[tuple[Any, ...]], ray: Any, model: tuple[Path, str]
) -> Iterator[None]:
    """Write parts as tasks of a cluster, in any order; one whose machine is lost is begun anew."""
    write = ray.remote(_write_part).options(num_cpus=1, max_retries=_RETRIES)
    pending, patience = {write.remote(*model, *one): one[0] for one in missing}, _Patience(ray, 1)
    while pending:
        done, _ = ray.wait(list(pending), num_returns=1, timeout=_LOOK_SECONDS)
        if not done:
            if reason := patience.reason():
                raise ClusterError(reason)
            continue
        path = pending.pop(done[0])
        try:
            yield ray.get(done[0])
        except ray.exceptions.RayTaskError as error:
            raise error.cause if isinstance(error.cause, LocaError) else error from None
        except ray.exceptions.RayError as error:
            line = " ".join(str(error).split())[:150]
            raise ClusterError(
                f"{path}: its task was lost ({line}); the same command goes on"
            ) from None


def check_parts(out: Path, names: Sequence[str], request: dict[str, Any]) -> None:
    """Refuse a folder that holds anything else than parts of this request; a new one is marked with it."""
    there = {one.name for one in out.iterdir()} - {one.name for one in _half_written(out)}
    foreign = sorted(there - {*names, _REQUEST_FILE})
    if foreign or (there and _REQUEST_FILE not in there):
        found = (foreign or sorted(there))[0]
        raise ClusterError(
            f"{out}: expected a folder for {len(names)} parts, found {found!r:.60}; choose another"
        )
    if not there:
        write_whole(out / _REQUEST_FILE, sealed_json(_REQUEST_FORMAT, 1, {"request": request}))
        return
    try:
        before = open_sealed(read_plain(out / _REQUEST_FILE), _REQUEST_FORMAT, 1)["request"]
        difference = first_difference(before, request)
    except (ValueError, LookupError, AttributeError) as error:
        difference = str(error)
    if difference is not None:
        difference = "the model is another one" if difference.startswith("model: ") else difference
        raise ClusterError(
            f"{out}: holds lists of another request: {difference}; choose another folder"
        )


def _half_written(out: Path) -> list[Path]:
    """What lost tasks have left."""
    return [*out.glob(".part-*.new"), *out.glob(f".{_REQUEST_FILE}.*.new")]


def _write_part(model: Path, digest: str, *part: Any) -> None:
    """What a task does: one file of lists."""
    set_progress(False)
    _write_users(_loaded(model, digest), *part)


def _write_users(
    model: Any, path: Path, users: tuple[int, int], n: int, conditions: dict[str, Any]
) -> None:
    """One file, whole or not at all."""
    who = model.train_data_.users.values[users[0] : users[1]].tolist()
    recommend_to_file(model, who, path, n, on_unknown="skip", **conditions)


@lru_cache(maxsize=1)
def _loaded(model: Path, digest: str) -> Any:
    """The model of this process; loaded for its first part."""
    loaded, found = _loaded_once(model)
    if found != digest:
        raise ClusterError(
            f"{model}: the model was replaced meanwhile; choose another folder for the lists of the new one"
        )
    return loaded


def _loaded_once(model: Path) -> tuple[Any, str]:
    """A saved model and the fingerprint of its manifest; of the same, should it be replaced meanwhile."""
    while True:
        before = read_plain(model / MANIFEST)
        loaded = load(model)
        if read_plain(model / MANIFEST) == before:
            return loaded, str(fingerprint([before.decode("utf-8", "replace")]))
