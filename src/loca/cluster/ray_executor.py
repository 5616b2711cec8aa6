"""Shards as actors of a Ray cluster: a lost one goes on elsewhere; with no place for it the fit ends in one line."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, cast

from loca.cluster.executor import Arguments, ClusterError, OnWait, ShardExecutor
from loca.cluster.shards import Job, Shard
from loca.errors import ConfigError, LocaError
from loca.progress import say

try:
    import ray
    from ray.exceptions import ActorDiedError, AuthenticationError, RayError, RayTaskError
except ImportError as error:
    raise ConfigError(f"a cluster needs {error.name}: pip install 'loca[cluster]'") from None

_LOOK_SECONDS, _REACH_SECONDS = 2.0, 10.0
# Of a call: whoever is lost so often would be lost for ever.
_MOST_LOSSES = 10
# A shard is late that takes so many times what the others took, and so many seconds more.
_LATE, _LATE_SECONDS = 1.5, 2.0


class RayExecutor(ShardExecutor):
    """Trains local models in shards on a Ray cluster, with the numbers of one machine.

    Parameters
    ----------
    storage : str or Path
        What all machines see: a folder, such as one on NFS, or an address that fsspec understands.
    address : str, default "local"
        The cluster: "auto" for the one that this machine belongs to, "host:6379", or "local" to start Ray here.
    shards : int, default 2
        How many actors.
    checkpoint_every : float, default 0.0
        How many seconds of work a lost shard may have to do again, saving at most a tenth of the time; 0 saves every
        epoch.
    cpus, gpus : float, default 1 and 0
        What each needs.
    wait_seconds : float, default 300.0
        How long a shard may be without a process that answers before the fit ends; its progress stays in the storage.
    """

    def __init__(
        self,
        storage: str | Path,
        *,
        address: str = "local",
        shards: int = 2,
        checkpoint_every: float = 0.0,
        cpus: float = 1,
        gpus: float = 0,
        wait_seconds: float = 300.0,
    ) -> None:
        super().__init__(storage, shards=shards, checkpoint_every=checkpoint_every)
        if not (cpus > 0 and gpus >= 0 and wait_seconds >= 0):
            raise ConfigError(
                f"expected cpus > 0, gpus and wait_seconds ≥ 0, found {cpus}, {gpus} and {wait_seconds}"
            )
        self.address, self.cpus, self.gpus, self.wait_seconds = address, cpus, gpus, wait_seconds
        self._actors: list[Any] = []

    def join(self) -> None:
        """Join the cluster, or start Ray on this machine."""
        connect(self.address)

    def open(self, job: Job) -> None:
        """Begin an actor for each shard."""
        self.join()
        self._job, cluster = job, cast(Any, ray)
        there = cluster.cluster_resources()
        for name, each in (("CPU", self.cpus), ("GPU", self.gpus)):
            if len(job) * each > (found := there.get(name, 0)):
                wanted = (
                    f"{len(job)} shards need {len(job) * each:g} {name}s, the cluster has {found:g}"
                )
                say(f"{wanted}: waiting up to {self.wait_seconds:g} s for more")
        needs: dict[str, Any] = {"num_cpus": self.cpus, "num_gpus": self.gpus, "max_concurrency": 2}
        self._kind = ray.remote(Shard).options(max_restarts=-1, max_task_retries=0, **needs)
        self._actors = [self._kind.remote(job, number) for number in range(len(job))]

    def share(self, value: Any) -> Any:
        """A reference to the value in Ray's own storage, which sends it to each machine once."""
        return ray.put(value)

    def call(
        self, method: str, arguments: Arguments, on_wait: OnWait | None = None
    ) -> Iterator[Any]:
        """What a method of each shard gives, in the order of the shards; what is lost on the way is wanted again."""
        found: dict[int, Any] = {one: None for one, given in enumerate(arguments) if given is None}
        following = 0  # whose answer is the next to be given
        begun, took, losses = time.monotonic(), list[float](), Counter[int]()
        pending, seen = dict[Any, int](), dict[int, float]()

        def submit(number: int) -> None:
            pending[getattr(self._actors[number], method).remote(*(arguments[number] or ()))] = (
                number
            )

        for number in range(len(arguments)):
            if number not in found:
                submit(number)
                seen[number] = begun
        while pending:
            done, _ = ray.wait(list(pending), num_returns=1, timeout=_LOOK_SECONDS)
            for reference in done:
                number = pending.pop(reference)
                try:
                    found[number] = ray.get(reference)
                    took.append(time.monotonic() - begun)
                except RayTaskError as error:
                    raise error.cause if isinstance(error.cause, LocaError) else error from None
                except RayError as error:  # the actor, its machine, or its answer on the way
                    if isinstance(error, ActorDiedError):  # not to be begun anew by Ray itself
                        self._actors[number] = self._kind.remote(self._job, number)
                    if not losses[number]:
                        say(f"shard {number} was lost; it goes on from its last epoch")
                    losses[number] += 1
                    if (
                        losses[number] > _MOST_LOSSES
                        and time.monotonic() - seen[number] <= self.wait_seconds
                    ):
                        line = " ".join(str(error).split())[:200]
                        raise ClusterError(
                            f"shard {number}: was lost {losses[number]} times in one epoch: {line}"
                        ) from None
                    time.sleep(0.5)
                    submit(number)
            while following in found:
                yield found.pop(following)
                following += 1
            waiting = set(pending.values())
            if waiting and (not done or any(losses[one] for one in waiting)):
                self._look_after(waiting, seen)
            late = time.monotonic() - begun
            if on_wait is not None and took and late > _LATE * median(took) + _LATE_SECONDS:
                behind = ", ".join(map(str, sorted(waiting)[:5])) + ", …" * (len(waiting) > 5)
                on_wait(
                    f"waiting for shard {behind}: {late:.0f} s, others took {median(took):.0f} s"
                )
        while following in found:
            yield found.pop(following)
            following += 1

    def _look_after(self, waiting: set[int], seen: dict[int, float]) -> None:
        """End where a shard has had no living process for too long."""
        signs = {self._actors[number].status.remote(): number for number in waiting}
        alive, _ = ray.wait(list(signs), num_returns=len(signs), timeout=_LOOK_SECONDS)
        silent = set(waiting)
        for sign in alive:
            try:
                ray.get(sign)
                seen[signs[sign]] = time.monotonic()
                silent.discard(signs[sign])
            except RayError:
                continue
        missing = [
            number for number in silent if time.monotonic() - seen[number] > self.wait_seconds
        ]
        if missing:
            names = ", ".join(map(str, sorted(missing)[:5]))
            needed = f"{self.cpus:g} cores" + (f" and {self.gpus:g} GPUs" if self.gpus else "")
            raise ClusterError(
                f"shard {names}: no process for {self.wait_seconds:g} s; each needs {needed}: add machines, or give "
                "each less, and go on with --resume"
            )

    def close(self) -> None:
        """End the actors."""
        if self._actors:  # which drop their copies, if they still can
            ray.wait(
                [one.close.remote() for one in self._actors],
                num_returns=len(self._actors),
                timeout=_LOOK_SECONDS,
            )
        for actor in self._actors:
            ray.kill(actor)
        self._actors = []


def _check_reachable(address: str) -> None:
    """Refuse a cluster that nobody answers for at once: Ray would try for many minutes."""
    place = address
    if address == "auto":
        found = Path("/tmp/ray/ray_current_cluster")  # where Ray notes the cluster of this machine
        place = os.environ.get("RAY_ADDRESS", "") or (
            found.read_text().strip() if found.exists() else ""
        )
    if address == "local" or place in ("", "local", "auto"):
        return
    host, _, port = place.rpartition(":")
    try:
        if not port.isdecimal() or not host:
            raise ConfigError(
                f"cluster {address}: expected auto, local or an address such as host:6379"
            )
        with socket.create_connection((host, int(port)), timeout=_REACH_SECONDS):
            pass
    except (OSError, OverflowError) as error:
        at = "" if place == address else f" at {place}"
        raise ClusterError(
            f"cluster {address}: nobody answers{at} ({error}); is Ray started there?"
        ) from None


def connect(address: str) -> Any:
    """Ray, which has joined a cluster, or started on this machine, unless that was done before.

    Whoever reaches the ports of Ray may run anything: where it is started here, it makes a token and stores it in the
    home folder, which keeps out whoever does not know it (`RAY_AUTH_MODE`).
    """
    if not ray.is_initialized():
        _check_reachable(address)
        own: Any = {"include_dashboard": False} if address == "local" else {}
        logger = logging.getLogger("ray")
        level = logger.level
        logger.setLevel(logging.ERROR)  # what it says while it starts is not the answer
        try:
            ray.init(address=address, log_to_driver=False, configure_logging=False, **own)
        except AuthenticationError:
            advice = "copy ~/.ray/auth_token from a machine of it, or set RAY_AUTH_TOKEN_PATH"
            raise ClusterError(f"cluster {address}: wants another token; {advice}") from None
        except (ConnectionError, ValueError, RuntimeError, RayError) as error:
            line = " ".join(str(error).split())[:200]
            raise ClusterError(
                f"cluster {address}: cannot be joined ({line}); is Ray started there?"
            ) from None
        finally:
            logger.setLevel(level)
    return ray
