"""Run shards as actors of a Ray cluster: a lost actor goes on elsewhere.

Where there is no machine for it, the fit ends in one line.
"""

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

_LOOK_SECONDS = 2.0
_REACH_SECONDS = 10.0
_SECONDS_AFTER_LOSS = 0.5
# In one call: a shard that is lost so often would be lost for ever.
_MOST_LOSSES = 10
# A shard is late that takes so many times what the others took, and so many seconds more.
_LATE = 1.5
_LATE_SECONDS = 2.0
_MOST_NAMED = 5
# Where Ray notes the cluster of this machine.
_CURRENT_CLUSTER = Path("/tmp/ray/ray_current_cluster")


class RayExecutor(ShardExecutor):
    """Train local models in shards on a Ray cluster, with the numbers of one machine.

    Parameters
    ----------
    storage : str or Path
        What all machines see: a folder, such as one on NFS, or an address that fsspec understands.
    address : str, default "local"
        The cluster: "auto" for the one that this machine belongs to, "host:6379", or "local" to
        start Ray here.
    shards : int, default 2
        How many actors.
    checkpoint_every : float, default 0.0
        How many seconds of work a lost shard may have to do again, saving at most a tenth of the
        time; 0 saves every epoch.
    cpus, gpus : float, default 1 and 0
        What each actor needs.
    wait_seconds : float, default 300.0
        How long a shard may be without a process that answers before the fit ends; its progress
        stays in the storage.
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
            values = f"{cpus}, {gpus} and {wait_seconds}"
            raise ConfigError(f"expected cpus > 0, gpus and wait_seconds ≥ 0, found {values}")
        self.address = address
        self.cpus = cpus
        self.gpus = gpus
        self.wait_seconds = wait_seconds
        self._actors: list[Any] = []

    def join(self) -> None:
        """Join the cluster, or start Ray on this machine."""
        connect(self.address)

    def open(self, job: Job) -> None:
        """Begin an actor for each shard."""
        self.join()
        self._job = job
        resources = cast(Any, ray).cluster_resources()
        for name, each in (("CPU", self.cpus), ("GPU", self.gpus)):
            needed = len(job) * each
            there = resources.get(name, 0)
            if needed > there:
                lack = f"{len(job)} shards need {needed:g} {name}s, the cluster has {there:g}"
                say(f"{lack}: waiting up to {self.wait_seconds:g} s for more")
        options: dict[str, Any] = {
            "num_cpus": self.cpus,
            "num_gpus": self.gpus,
            "max_concurrency": 2,
            "max_restarts": -1,
            "max_task_retries": 0,
        }
        self._kind = ray.remote(Shard).options(**options)
        self._actors = [self._kind.remote(job, number) for number in range(len(job))]

    def share(self, value: Any) -> Any:
        """Return a reference to the value in Ray's storage, which sends it to each machine once."""
        return ray.put(value)

    def call(
        self, method: str, arguments: Arguments, on_wait: OnWait | None = None
    ) -> Iterator[Any]:
        """Yield what a method of each shard returns, in the order of the shards.

        A call that is lost on the way is made again.
        """
        call = _Call(self, method, arguments)
        following = 0  # the shard whose answer is the next to be yielded
        while call.pending:
            has_answers = call.wait()
            while following in call.answers:
                yield call.answers.pop(following)
                following += 1
            waiting = set(call.pending.values())
            was_lost = any(call.losses[shard] for shard in waiting)
            if waiting and (was_lost or not has_answers):
                self._look_after(waiting, call.seen)
            if waiting and on_wait is not None and call.is_late():
                on_wait(call.lateness())
        while following in call.answers:
            yield call.answers.pop(following)
            following += 1

    def submit(self, shard: int, method: str, values: tuple[Any, ...]) -> Any:
        """Call a method of a shard, and return a reference to what it will return."""
        return getattr(self._actors[shard], method).remote(*values)

    def replace_actor(self, shard: int) -> None:
        """Begin a shard anew that Ray itself does not."""
        self._actors[shard] = self._kind.remote(self._job, shard)

    def _look_after(self, waiting: set[int], seen: dict[int, float]) -> None:
        """End where a shard has had no living process for too long."""
        signs = {self._actors[shard].status.remote(): shard for shard in waiting}
        alive, _ = ray.wait(list(signs), num_returns=len(signs), timeout=_LOOK_SECONDS)
        silent = set(waiting)
        for sign in alive:
            try:
                ray.get(sign)
            except RayError:
                continue
            seen[signs[sign]] = time.monotonic()
            silent.discard(signs[sign])
        now = time.monotonic()
        missing = sorted(shard for shard in silent if now - seen[shard] > self.wait_seconds)
        if missing:
            names = ", ".join(map(str, missing[:_MOST_NAMED]))
            needs = f"{self.cpus:g} cores"
            if self.gpus:
                needs += f" and {self.gpus:g} GPUs"
            raise ClusterError(
                f"shard {names}: no process for {self.wait_seconds:g} s; each needs {needs}: "
                "add machines, or give each less, and go on with --resume"
            )

    def close(self) -> None:
        """End the actors, which drop their copies if they still can."""
        if self._actors:
            closing = [actor.close.remote() for actor in self._actors]
            ray.wait(closing, num_returns=len(closing), timeout=_LOOK_SECONDS)
        for actor in self._actors:
            ray.kill(actor)
        self._actors = []


class _Call:
    """A call to the shards, with those that have not answered yet.

    `answers` are by shard; `seen` is when each last gave a sign of life; `losses` is how often its
    answer was lost.
    """

    def __init__(self, executor: RayExecutor, method: str, arguments: Arguments) -> None:
        self._executor = executor
        self._method = method
        self._arguments = arguments
        self._begun = time.monotonic()
        self._took: list[float] = []
        self.answers: dict[int, Any] = {}
        self.pending: dict[Any, int] = {}
        self.losses: Counter[int] = Counter()
        self.seen: dict[int, float] = {}
        for shard, values in enumerate(arguments):
            if values is None:
                self.answers[shard] = None
            else:
                self._submit(shard)
                self.seen[shard] = self._begun

    def _submit(self, shard: int) -> None:
        values = self._arguments[shard] or ()
        self.pending[self._executor.submit(shard, self._method, values)] = shard

    def wait(self) -> bool:
        """Wait a little for the next answer, and return whether any came, or was lost."""
        done, _ = ray.wait(list(self.pending), num_returns=1, timeout=_LOOK_SECONDS)
        for reference in done:
            shard = self.pending.pop(reference)
            try:
                self.answers[shard] = ray.get(reference)
                self._took.append(time.monotonic() - self._begun)
            except RayTaskError as error:
                raise error.cause if isinstance(error.cause, LocaError) else error from None
            except RayError as error:  # the actor, its machine, or its answer on the way
                self._call_again(shard, error)
        return bool(done)

    def _call_again(self, shard: int, error: Exception) -> None:
        if isinstance(error, ActorDiedError):
            self._executor.replace_actor(shard)
        if not self.losses[shard]:
            say(f"shard {shard} was lost; it goes on from its last epoch")
        self.losses[shard] += 1
        is_silent = time.monotonic() - self.seen[shard] > self._executor.wait_seconds
        if self.losses[shard] > _MOST_LOSSES and not is_silent:
            line = " ".join(str(error).split())[:200]
            times = self.losses[shard]
            raise ClusterError(
                f"shard {shard}: was lost {times} times in one epoch: {line}"
            ) from None
        time.sleep(_SECONDS_AFTER_LOSS)
        self._submit(shard)

    def is_late(self) -> bool:
        """Return whether the shards that are waited for take much longer than the others took."""
        if not self._took:
            return False
        return self._seconds() > _LATE * median(self._took) + _LATE_SECONDS

    def lateness(self) -> str:
        """Return words about the shards that are waited for."""
        waiting = sorted(set(self.pending.values()))
        names = ", ".join(map(str, waiting[:_MOST_NAMED]))
        if len(waiting) > _MOST_NAMED:
            names += ", …"
        others = f"others took {median(self._took):.0f} s"
        return f"waiting for shard {names}: {self._seconds():.0f} s, {others}"

    def _seconds(self) -> float:
        return time.monotonic() - self._begun


def connect(address: str) -> Any:
    """Return Ray, which has joined a cluster, or started on this machine, unless it was before.

    Anybody who reaches the ports of Ray may run anything there. Where it is started here, it makes
    a token and stores it in the home folder: others are kept out (`RAY_AUTH_MODE`).
    """
    if ray.is_initialized():
        return ray
    _check_reachable(address)
    options: Any = {"include_dashboard": False} if address == "local" else {}
    logger = logging.getLogger("ray")
    level = logger.level
    logger.setLevel(logging.ERROR)  # what it says while it starts is not the answer
    try:
        ray.init(address=address, log_to_driver=False, configure_logging=False, **options)
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


def _check_reachable(address: str) -> None:
    """Refuse a cluster that nothing answers for at once: Ray would try for many minutes."""
    target = _current_cluster() if address == "auto" else address
    if address == "local" or target in ("", "local", "auto"):
        return
    host, _, port = target.rpartition(":")
    if not port.isdecimal() or not host:
        raise ConfigError(
            f"cluster {address}: expected auto, local or an address such as host:6379"
        )
    try:
        with socket.create_connection((host, int(port)), timeout=_REACH_SECONDS):
            pass
    except (OSError, OverflowError) as error:
        at = "" if target == address else f" at {target}"
        raise ClusterError(
            f"cluster {address}: nobody answers{at} ({error}); is Ray started there?"
        ) from None


def _current_cluster() -> str:
    """Return the address of the cluster that this machine belongs to; empty where there is none."""
    address = os.environ.get("RAY_ADDRESS", "")
    if not address and _CURRENT_CLUSTER.exists():
        address = _CURRENT_CLUSTER.read_text().strip()
    return address
