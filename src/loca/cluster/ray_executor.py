"""Shards as actors of a Ray cluster: a lost one goes on elsewhere; with no place for it the fit ends in one line."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from loca.cluster.executor import ShardExecutor
from loca.cluster.shards import Job, Shard
from loca.errors import ConfigError, LocaError
from loca.progress import say

try:
    import ray
    from ray.exceptions import ActorDiedError, ActorUnavailableError, GetTimeoutError, RayActorError, RayTaskError
except ImportError as error:
    raise ConfigError(f"a cluster needs {error.name}: pip install 'loca[cluster]'") from None

_LOST = (RayActorError, ActorUnavailableError, ActorDiedError, GetTimeoutError)
_LOOK_SECONDS = 2.0


class ClusterError(LocaError):
    """The cluster could not do what was wanted of it."""


class RayExecutor(ShardExecutor):
    """Trains local models in shards on a Ray cluster, with the numbers of one machine.

    Parameters
    ----------
    storage : str or Path
        A folder that all machines see, such as one on NFS.
    address : str or None, default None
        The cluster: "auto" for the one that this machine belongs to, "host:6379", or None to start Ray here.
    shards : int, default 2
        How many actors.
    cpus, gpus : float, default 1 and 0
        What each needs.
    wait_seconds : float, default 300.0
        How long a shard may be without a process that answers before the fit ends; its progress stays in the storage.
    """

    def __init__(
        self,
        storage: str | Path,
        *,
        address: str | None = None,
        shards: int = 2,
        cpus: float = 1,
        gpus: float = 0,
        wait_seconds: float = 300.0,
    ) -> None:
        super().__init__(storage, shards=shards)
        if not (cpus > 0 and gpus >= 0 and wait_seconds >= 0):
            raise ConfigError(f"expected cpus > 0, gpus and wait_seconds ≥ 0, found {cpus}, {gpus} and {wait_seconds}")
        self.address, self.cpus, self.gpus, self.wait_seconds = address, cpus, gpus, wait_seconds

    def open(self, job: Job) -> None:
        """Begin an actor for each shard."""
        connect(self.address)
        self._job = job
        needs: dict[str, Any] = {"num_cpus": self.cpus, "num_gpus": self.gpus, "max_concurrency": 2}
        self._kind = ray.remote(Shard).options(max_restarts=-1, max_task_retries=0, **needs)
        self._actors: list[Any] = [self._kind.remote(job, number) for number in range(len(job.ranges))]

    def call(
        self, method: str, arguments: Sequence[tuple[Any, ...] | None], on_done: Callable[[], None] | None = None
    ) -> list[Any]:
        """What a method of each shard gives, in the order of the shards; what is lost on the way is wanted again."""
        found: dict[int, Any] = {one: None for one, given in enumerate(arguments) if given is None}
        given = {one: tuple(map(ray.put, args)) for one, args in enumerate(arguments) if args is not None}
        pending = {self._submit(one, method, args): one for one, args in given.items()}
        seen, lost = dict.fromkeys(given, time.monotonic()), set[int]()
        while pending:
            done, _ = ray.wait(list(pending), num_returns=1, timeout=_LOOK_SECONDS)
            for reference in done:
                number = pending.pop(reference)
                try:
                    found[number] = ray.get(reference)
                    seen[number] = time.monotonic()
                    if on_done is not None:
                        on_done()
                except _LOST as error:
                    if isinstance(error, ActorDiedError):  # not to be begun anew by Ray itself
                        self._actors[number] = self._kind.remote(self._job, number)
                    if number not in lost:
                        say(f"shard {number} was lost; it goes on from its last epoch")
                    lost.add(number)
                    time.sleep(0.5)
                    pending[self._submit(number, method, given[number])] = number
                except RayTaskError as error:
                    raise error.cause if isinstance(error.cause, LocaError) else error from None
            if not done:
                self._look_after(set(pending.values()), seen)
        return [found[one] for one in range(len(arguments))]

    def _submit(self, number: int, method: str, given: tuple[Any, ...]) -> Any:
        return getattr(self._actors[number], method).remote(*given)

    def _look_after(self, waiting: set[int], seen: dict[int, float]) -> None:
        """End where a shard has had no living process for too long."""
        signs = {self._actors[number].where.remote(): number for number in waiting}
        alive, _ = ray.wait(list(signs), num_returns=len(signs), timeout=_LOOK_SECONDS)
        for sign in alive:
            try:
                ray.get(sign)
                seen[signs[sign]] = time.monotonic()
            except (*_LOST, RayTaskError):
                continue
        missing = [number for number in waiting if time.monotonic() - seen[number] > self.wait_seconds]
        if missing:
            names = ", ".join(map(str, sorted(missing)[:5]))
            needed = f"{self.cpus:g} cores" + (f" and {self.gpus:g} GPUs" if self.gpus else "")
            raise ClusterError(
                f"shard {names}: no process for {self.wait_seconds:g} s; each needs {needed}: add machines or take "
                "fewer shards, then go on with --resume"
            )

    def close(self) -> None:
        """End the actors."""
        for actor in self._actors:
            ray.kill(actor)
        self._actors = []


def connect(address: str | None) -> None:
    """Join a cluster, or start Ray on this machine; nothing where that has been done."""
    if ray.is_initialized():
        return
    try:
        ray.init(address=address, log_to_driver=False, include_dashboard=False, configure_logging=False)
    except (ConnectionError, ValueError, RuntimeError) as error:
        line = " ".join(str(error).split())[:200]
        raise ClusterError(f"--cluster {address}: cannot be joined ({line}); is Ray started there?") from None
