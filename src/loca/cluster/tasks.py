"""Runs of comparisons, studies and reproductions, and lists for all users, as tasks of a Ray cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from loca.cluster.ray_executor import ClusterError, connect
from loca.errors import LocaError
from loca.persistence.recommendation_file import RecommendationFile, recommend_to_file
from loca.progress import bar, set_progress
from loca.registry import load
from loca.tuning.workers import WorkerDied

import ray  # isort: skip  # after what says what to install
from ray.exceptions import RayError, RayTaskError  # isort: skip

_RETRIES = 3


# -- Workers -----------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class RayWorker:
    """What `loca.tuning.workers.Worker` is, as a task of a cluster; a lost one is begun anew, three times at most."""

    line: Connection
    reference: Any
    process: Any
    reason: str = "its task was lost"

    @classmethod
    def start(
        cls, work: Callable[..., None], given: tuple[Any, ...], *, threads: int, what: str, address: str | None = None
    ) -> RayWorker:
        """A task that calls `work` with something to send messages by, and with what it is given."""
        connect(address)
        line, far_end = Pipe()
        reference = ray.remote(_live).options(num_cpus=threads, max_retries=_RETRIES).remote(work, threads, given)
        worker = cls(line, reference, SimpleNamespace(pid=None))

        def pass_on() -> None:
            try:
                for message in ray.get(reference):
                    far_end.send(message)
            except RayError as error:
                worker.reason = " ".join(str(error).split())[:200]
            except OSError:  # nobody waits any more
                pass
            finally:
                far_end.close()

        threading.Thread(target=pass_on, daemon=True).start()
        return worker

    def hear(self) -> Any:
        """The next message; of a task that failed an error."""
        try:
            return self.line.recv()
        except (EOFError, OSError):
            raise WorkerDied(self.reason) from None

    def end(self, *, is_done: bool = False) -> None:
        """End the task, whatever it does."""
        self.line.close()
        if not is_done:
            ray.cancel(self.reference, force=True)


class _Messages(list[Any]):
    """Takes what a worker sends, until it is done."""

    send = list.append


def _live(work: Callable[..., None], threads: int, given: tuple[Any, ...]) -> list[Any]:
    """What a task does: all that it sent goes back at once."""
    import torch

    set_progress(False)
    torch.set_num_threads(threads)
    messages = _Messages()
    work(messages, *given)
    return list(messages)


def workers_on(address: str | None) -> Callable[..., RayWorker]:
    """What starts workers on a cluster, in place of `Worker.start`."""
    return partial(RayWorker.start, address=address)


# -- Lists for all users -----------------------------------------------------------------------------------------------


def recommend_to_parts(
    model: Path, out: Path, n: int = 10, *, parts: int = 16, address: str | None = None, **conditions: Any
) -> RecommendationFile:
    """Write the lists of all users of a saved model as Parquet files in a folder, by ranges of users.

    A part that is there already is left as it is: an interrupted run goes on. Both folders are on storage that all
    machines see.

    Parameters
    ----------
    model, out : Path
        The folder of the model, and that of the parts.
    n : int, default 10
        Items for each user.
    parts : int, default 16
        How many files.
    address : str or None, default None
        The cluster, as for `RayExecutor`.
    **conditions
        `only`, `never`, `on_unknown` and `recency`, as for `recommend`.
    """
    connect(address)
    users = load(model).train_data_
    if users is None:
        raise ClusterError(f"{model}: this model was fitted on a bare matrix and knows no users")
    parts = min(parts, max(users.n_users, 1))
    edges = [users.n_users * one // parts for one in range(parts + 1)]
    out.mkdir(parents=True, exist_ok=True)
    ranges = list(pairwise(edges))
    names = [f"part-{one:05d}-of-{parts:05d}.parquet" for one in range(parts)]
    check_parts(out, names)
    write = ray.remote(_write_part).options(num_cpus=1, max_retries=_RETRIES)
    pending = {
        write.remote(model, out / name, one, n, conditions): name
        for name, one in zip(names, ranges, strict=True)
        if not (out / name).exists()
    }
    with bar("parts", parts) as progress:
        progress.advance(parts - len(pending))
        while pending:
            done, _ = ray.wait(list(pending), num_returns=1)
            name = pending.pop(done[0])
            try:
                ray.get(done[0])
            except RayTaskError as error:
                raise error.cause if isinstance(error.cause, LocaError) else error from None
            except RayError as error:
                line = " ".join(str(error).split())[:150]
                raise ClusterError(f"{out / name}: its task was lost ({line}); the same command goes on") from None
            progress.advance()
    import polars

    counted = polars.scan_parquet([out / name for name in names]).select(polars.len(), polars.col("user").n_unique())
    rows, answered = counted.collect().row(0)
    return RecommendationFile(out, users.n_users, users.n_users - answered, rows)


def check_parts(out: Path, names: Sequence[str]) -> None:
    """Refuse a folder that holds anything else than these parts."""
    foreign = sorted({one.name for one in out.iterdir()} - set(names))
    if foreign:
        raise ClusterError(f"{out}: expected a folder for {len(names)} parts, found {foreign[0]!r:.60}; choose another")


def _write_part(model: Path, path: Path, users: tuple[int, int], n: int, conditions: dict[str, Any]) -> None:
    """One file, whole or not at all."""
    set_progress(False)
    loaded = _loaded(model)
    assert loaded.train_data_ is not None
    who = loaded.train_data_.users.values[users[0] : users[1]].tolist()
    recommend_to_file(loaded, who, path, n, **{"on_unknown": "skip", **conditions})


@lru_cache(maxsize=1)
def _loaded(model: Path) -> Any:
    """The model of this process; loaded for its first part."""
    return load(model)
