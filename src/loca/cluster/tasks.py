"""Run comparisons and studies, and write lists for all users, as tasks of a Ray cluster."""

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
from loca.data.interactions import Interactions
from loca.errors import LocaError, check_counts
from loca.evaluation.recommend import Ids
from loca.persistence.atomic_write import MANIFEST, lock_folder, read_plain, write_whole
from loca.persistence.checkpoint import first_difference
from loca.persistence.manifest import fingerprint
from loca.persistence.recommendation_file import RecommendationFile, recommend_to_file
from loca.persistence.sealed_json import open_sealed, sealed_json
from loca.progress import bar, set_progress
from loca.registry import load
from loca.tuning.workers import WorkerDied

_RETRIES = 3
# How long a task waits for a machine that could run it, and how often that is looked at.
_WAIT_SECONDS = 300.0
_LOOK_SECONDS = 2.0
_REQUEST_FILE = "_request.json"
_REQUEST_FORMAT = "loca-lists"
_REQUEST_VERSION = 1


def _connected(address: str) -> Any:
    """Return Ray, connected; it is loaded here, so that what needs no cluster does without."""
    from loca.cluster.ray_executor import connect

    return connect(address)


def _most_cores(ray: Any) -> float:
    """Return the cores of the machine that has most."""
    machines = (node["Resources"] for node in ray.nodes() if node["Alive"])
    return max((resources.get("CPU", 0.0) for resources in machines), default=0.0)


class _Patience:
    """How long there has been no machine that could run a task."""

    def __init__(self, ray: Any, cores: int) -> None:
        self._ray = ray
        self._cores = cores
        self._since = time.monotonic()

    def reason(self) -> str:
        """Return why to wait no longer; empty while a machine may still come."""
        if _most_cores(self._ray) >= self._cores:
            self._since = time.monotonic()
        if time.monotonic() - self._since < _WAIT_SECONDS:
            return ""
        lack = f"no machine of the cluster has {self._cores} cores, for {_WAIT_SECONDS:g} s"
        return f"{lack}: add one, then go on"


# -- Workers --------------------------------------------------------------------------------------


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
        arguments: tuple[Any, ...],
        *,
        threads: int,
        what: str,
        address: str = "local",
    ) -> RayWorker:
        """Return a task that calls `work` with something to send messages by, and the arguments."""
        ray = _connected(address)
        line, far_end = Pipe()
        # This machine may have more cores than those of the cluster.
        threads = max(1, min(threads, int(_most_cores(ray))))
        options: Any = {"num_cpus": threads, "max_retries": 0, "num_returns": "streaming"}
        stream: Any = ray.remote(_live).options(**options).remote(work, threads, arguments)
        worker = cls(line, stream, ray.cancel)
        patience = _Patience(ray, threads)
        threading.Thread(target=worker._pass_on, args=(ray, far_end, patience), daemon=True).start()
        return worker

    def _pass_on(self, ray: Any, far_end: Connection, patience: _Patience) -> None:
        """Send what the task sends along the line, until it ends."""
        try:
            while not ray.wait([self.stream], timeout=_LOOK_SECONDS, fetch_local=False)[0]:
                reason = patience.reason()
                if reason:
                    self.reason = reason
                    self.restarts = 0
                    return
            for reference in self.stream:
                far_end.send(ray.get(reference))
        except ray.exceptions.RayTaskError as error:  # nothing was lost: it would fail again
            self.reason = " ".join(str(error.cause).split())[:300]
            self.restarts = 0
        except ray.exceptions.RayError as error:
            self.reason = f"its task was lost ({' '.join(str(error).split())[:150]})"
        except OSError:  # nobody waits any more
            pass
        finally:
            far_end.close()

    def hear(self) -> Any:
        """Return the next message; a task that has died is an error."""
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


def _live(work: Callable[..., None], threads: int, arguments: tuple[Any, ...]) -> Iterator[Any]:
    """Do the work of a task, and yield what it sends at once."""
    import torch
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    set_progress(False)
    torch.set_num_threads(threads)
    threadpool_limits(limits=threads)
    messages = SimpleQueue[Any]()
    end = object()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work(_Sender(messages), *arguments)
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
    """Return what starts workers on a cluster, in place of `Worker.start`.

    A cluster that cannot be joined is refused here, before anything is done.
    """
    _connected(address)
    return partial(RayWorker.start, address=address)


# -- Lists for all users --------------------------------------------------------------------------


@dataclass(frozen=True)
class _Part:
    """One file of lists: its users by rows, from the first to before the last."""

    path: Path
    users: tuple[int, int]
    n: int
    conditions: dict[str, Any]


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
    """Write the lists of all users of a saved model as Parquet files in a folder.

    A file has a range of the users. One that is there already is left as it is: an interrupted run
    goes on. A folder with lists of another request is refused.

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
    ray = None if address is None else _connected(address)
    model = model.absolute()
    out = out.absolute()
    loaded, digest = _loaded_once(model)
    known: Interactions | None = loaded.train_data_
    if known is None:
        raise ClusterError(f"{model}: this model was fitted on a bare matrix and knows no users")
    if out.exists() and not out.is_dir():
        raise ClusterError(
            f"{out}: expected a folder for {parts} parts, found a file; choose another"
        )
    conditions = {
        "only": None if only is None else list(only),
        "never": None if never is None else list(never),
        "recency": recency,
    }
    texts = {name: str(value) for name, value in conditions.items()}
    request = {"model": digest, "items per user": n, **texts}
    all_parts = _divided(out, known.n_users, parts, n, conditions)
    with lock_folder(out, "another run writes its lists there"):
        check_parts(out, [part.path.name for part in all_parts], request)
        missing = [part for part in all_parts if not part.path.exists()]
        writing = (
            _write_in_turn(missing, loaded)
            if ray is None
            else _write_in_tasks(missing, ray, model, digest)
        )
        with bar("parts", len(all_parts)) as progress:
            progress.advance(len(all_parts) - len(missing))
            for _ in writing:
                progress.advance()
        for path in _half_written(out):
            path.unlink(missing_ok=True)
    return _counted(out, all_parts, known.n_users)


def _divided(
    out: Path, n_users: int, parts: int, n: int, conditions: dict[str, Any]
) -> list[_Part]:
    """Return the parts of all users, at most one for each."""
    count = min(parts, max(n_users, 1))
    edges = [n_users * number // count for number in range(count + 1)]
    return [
        _Part(out / f"part-{number:05d}-of-{count:05d}.parquet", users, n, conditions)
        for number, users in enumerate(pairwise(edges))
    ]


def _counted(out: Path, parts: Sequence[_Part], n_users: int) -> RecommendationFile:
    """Return how many users and rows the parts have."""
    import polars

    lists = polars.scan_parquet([part.path for part in parts])
    counts = lists.select(polars.len(), polars.col("user").n_unique()).collect()
    n_rows, n_answered = counts.row(0)
    return RecommendationFile(out, n_users, n_users - n_answered, n_rows)


def _write_in_turn(missing: Sequence[_Part], model: Any) -> Iterator[None]:
    """Write parts in this process."""
    for part in missing:
        _write(model, part)
        yield


def _write_in_tasks(missing: Sequence[_Part], ray: Any, model: Path, digest: str) -> Iterator[None]:
    """Write parts as tasks of a cluster, in any order; a part whose machine is lost begins anew."""
    write = ray.remote(_write_part).options(num_cpus=1, max_retries=_RETRIES)
    pending = {write.remote(model, digest, part): part for part in missing}
    patience = _Patience(ray, 1)
    while pending:
        done, _ = ray.wait(list(pending), num_returns=1, timeout=_LOOK_SECONDS)
        if not done:
            reason = patience.reason()
            if reason:
                raise ClusterError(reason)
            continue
        part = pending.pop(done[0])
        try:
            yield ray.get(done[0])
        except ray.exceptions.RayTaskError as error:
            raise error.cause if isinstance(error.cause, LocaError) else error from None
        except ray.exceptions.RayError as error:
            line = " ".join(str(error).split())[:150]
            raise ClusterError(
                f"{part.path}: its task was lost ({line}); the same command goes on"
            ) from None


def check_parts(out: Path, names: Sequence[str], request: dict[str, Any]) -> None:
    """Refuse a folder that holds anything but parts of this request; mark a new one with it."""
    half_written = {path.name for path in _half_written(out)}
    there = {path.name for path in out.iterdir()} - half_written
    foreign = sorted(there - {*names, _REQUEST_FILE})
    if foreign or (there and _REQUEST_FILE not in there):
        first = (foreign or sorted(there))[0]
        raise ClusterError(
            f"{out}: expected a folder for {len(names)} parts, found {first!r:.60}; choose another"
        )
    if not there:
        sealed = sealed_json(_REQUEST_FORMAT, _REQUEST_VERSION, {"request": request})
        write_whole(out / _REQUEST_FILE, sealed)
        return
    difference = _difference_to(out / _REQUEST_FILE, request)
    if difference is not None:
        raise ClusterError(
            f"{out}: holds lists of another request: {difference}; choose another folder"
        )


def _difference_to(path: Path, request: dict[str, Any]) -> str | None:
    """Return in what a stored request differs from another; None where it does not."""
    try:
        stored = open_sealed(read_plain(path), _REQUEST_FORMAT, _REQUEST_VERSION)["request"]
        difference = first_difference(stored, request)
    except (ValueError, LookupError, AttributeError) as error:
        return str(error)
    if difference is not None and difference.startswith("model: "):
        return "the model is another one"
    return difference


def _half_written(out: Path) -> list[Path]:
    """Return what lost tasks have left."""
    return [*out.glob(".part-*.new"), *out.glob(f".{_REQUEST_FILE}.*.new")]


def _write_part(model: Path, digest: str, part: _Part) -> None:
    """Write one file of lists, as a task does."""
    set_progress(False)
    _write(_loaded(model, digest), part)


def _write(model: Any, part: _Part) -> None:
    """Write one file, whole or not at all."""
    users = model.train_data_.users.values[slice(*part.users)].tolist()
    recommend_to_file(model, users, part.path, part.n, on_unknown="skip", **part.conditions)


@lru_cache(maxsize=1)
def _loaded(model: Path, digest: str) -> Any:
    """Return the model of this process, which is loaded for its first part."""
    loaded, digest_now = _loaded_once(model)
    if digest_now != digest:
        raise ClusterError(
            f"{model}: the model was replaced meanwhile; choose another folder for the lists of "
            "the new one"
        )
    return loaded


def _loaded_once(model: Path) -> tuple[Any, str]:
    """Return a saved model and the fingerprint of its manifest, also where it is being replaced."""
    while True:
        manifest = read_plain(model / MANIFEST)
        loaded = load(model)
        if read_plain(model / MANIFEST) == manifest:
            return loaded, str(fingerprint([manifest.decode("utf-8", "replace")]))
