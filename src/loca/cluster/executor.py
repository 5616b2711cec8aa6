"""Trains local models in shards: the shards learn side by side, the driver adds their answers, measures and decides."""

from __future__ import annotations

import secrets
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.cluster.shards import Job, Shard, load_part
from loca.cluster.storage import Storage, is_address
from loca.errors import ConfigError, LocaError, check_counts
from loca.local.local_models import LocalModels, LocalTask
from loca.local.sharded_models import ShardedModels, add_answers, split_request
from loca.local.training import Engine, Validate, centre_of
from loca.models.early_stopping import BestWeights
from loca.persistence.fit_context import StopFit
from loca.persistence.manifest import ModelState
from loca.progress import Bar, bar, say
from loca.remarks import remark

# What each shard is given; None for one that is not called.
Arguments = Sequence[tuple[Any, ...] | None]
OnWait = Callable[[str], None]


class ClusterError(LocaError):
    """The cluster could not do what was wanted of it."""


class ShardExecutor:
    """Trains the local models of a fit in shards, in threads of this process; `RayExecutor` does so on many machines.

    Parameters
    ----------
    storage : str or Path
        What all machines see: a folder, or an address that fsspec understands, such as s3://bucket/work. The work of a
        shard is read from there, its progress and its models are written there. What a fit wrote goes with the model.
    shards : int, default 2
        How many.
    checkpoint_every : float, default 0.0
        How many seconds of work a lost shard may have to do again, saving at most a tenth of the time; 0 saves every
        epoch.
    """

    def __init__(
        self, storage: str | Path, *, shards: int = 2, checkpoint_every: float = 0.0
    ) -> None:
        check_counts(shards=shards)
        if not checkpoint_every >= 0:
            raise ConfigError(f"checkpoint_every: expected seconds ≥ 0, found {checkpoint_every}")
        self.checkpoint_every = checkpoint_every
        self.storage = str(storage) if is_address(storage) else str(Path(storage).absolute())
        self.shards = shards
        Storage(
            self.storage, secrets.token_hex(8)
        ).probe()  # it is refused here, before anything is fitted

    def train_locals(
        self, task: LocalTask, engine: Engine, validate: Validate | None = None
    ) -> tuple[LocalModels, int | None]:
        """Train all models of a task; as `loca.local.training.train_locals`, with the same numbers."""
        first: Any = task.models[0]
        checkpoint, centre = task.data.context.checkpoint, centre_of(task, engine)
        job, storage, progress = self._begin(replace(task, centre=centre), engine)
        say(
            f"{task.what}: {len(task.models):,} models in {len(job)} shards, by way of {storage.address}"
        )
        try:
            self.open(job)
            epochs, after = None, (0, 0)
            if first.learns_by_epoch:
                best, last = self._train_epochs(task, job, validate, progress)
                epochs, after = best.epoch or first.epochs, (last, best.epoch)
            with bar(f"{task.what}, finished shards", len(job)) as shown:
                for _ in self.call("finish", [after] * len(job), _noting(shown)):
                    shown.advance()
            local = ShardedModels.of(
                [load_part(job, storage, number, centre) for number in range(len(job))]
            ).to(task.data.device)
        except BaseException:
            if not checkpoint.saves:  # nobody can go on from here
                storage.remove()
            raise
        finally:
            self.close()
        # The models are mapped, and linked when they are saved: their files stay as long as they do, or until the work
        # has ended well that could go on with them.
        if checkpoint.saves:
            checkpoint.at_end.append(storage.remove)
        else:
            weakref.finalize(local, storage.remove)
        for model in task.models:
            model.best_epoch_ = epochs
        return local, epochs

    def _begin(self, task: LocalTask, engine: Engine) -> tuple[Job, Storage, Mapping[str, Any]]:
        """The job of an interrupted run with its progress, where the storage still has it, or a new one."""
        checkpoint, name = task.data.context.checkpoint, _progress_of(task.what)
        if (saved := checkpoint.load(name)) is not None:
            place, job_name, edges = (saved[one] for one in ("place", "job", "edges"))
            job = Job.of(task, engine, place, job_name, edges, self.checkpoint_every)
            if job.is_written(storage := job.storage()):
                if (place, len(job)) != (self.storage, min(self.shards, len(task.models))):
                    say(
                        f"{task.what}: goes on in {len(job)} shards by way of {storage.address}, as it was begun"
                    )
                return job, storage, saved
            say(
                f"{task.what}: {storage.address} has nothing to go on with; the shards start from the beginning"
            )
        count = len(task.models)
        edges = np.linspace(0, count, min(self.shards, count) + 1).astype(int).tolist()
        job = Job.of(task, engine, self.storage, secrets.token_hex(8), edges, self.checkpoint_every)
        storage = job.storage()
        try:
            job.write(task, storage)
        except BaseException:
            storage.remove()
            raise
        progress = {
            "place": job.place,
            "job": job.name,
            "edges": edges,
            "epoch": 0,
            "best": BestWeights().state_dict(),
        }
        checkpoint.save(name, progress)
        return job, storage, progress

    def _train_epochs(
        self, task: LocalTask, job: Job, validate: Validate | None, progress: Mapping[str, Any]
    ) -> tuple[BestWeights, int]:
        """Epoch after epoch: all shards train and save, then the sum of their answers is judged; the best, the last."""
        schedule: Any = task.models[0]
        checkpoint, best, remote = (
            task.data.context.checkpoint,
            BestWeights(),
            RemoteModels(self, task, job),
        )
        best.load_state_dict(progress["best"], [])
        done, is_stopped = progress["epoch"], False
        with bar(task.what, schedule.epochs) as shown:
            remote.on_wait = _noting(shown)
            shown.advance(done)
            for epoch in range(done + 1, schedule.epochs + 1):
                if best.is_final(done, schedule.patience):
                    break
                remote.after = (epoch, best.epoch)
                each = [remote.after] * len(job)
                losses = list(self.call("epoch", each, remote.on_wait))
                note = f"{len(task.models)} models in {len(job)} shards, loss {np.mean(losses):.2f}"
                if best.epoch:
                    note += f", best {best.score:.4f} at epoch {best.epoch}"
                shown.advance(note=note)
                is_due = epoch % schedule.evaluate_every == 0 or epoch == schedule.epochs
                if validate is not None and epoch > task.shared_epochs and is_due:
                    score = validate(remote)
                    best.update(epoch, score, [])
                    try:
                        task.data.context.report(epoch, score)
                    except StopFit:
                        is_stopped = True
                done = epoch
                # The shards come back to this epoch, whatever they have saved: the driver may be lost from here on.
                state = {**progress, "epoch": epoch, "best": best.state_dict()}
                checkpoint.save(_progress_of(task.what), state)
                if is_stopped:
                    break
        if ending := best.ending(schedule):
            remark("training", f"{task.what} {ending}")
        if best.epoch:
            say(
                f"{task.what}: best blended validation {task.data.metric.label} {best.score:.4f} "
                f"after {best.epoch} epochs"
            )
        return best, done

    # What a cluster does otherwise

    def join(self) -> None:
        """Join the cluster, before anything is done in vain."""

    def open(self, job: Job) -> None:
        """Begin the shards."""
        self._pool = ThreadPoolExecutor(len(job))
        self._shards = [Shard(job, number) for number in range(len(job))]

    def share(self, value: Any) -> Any:
        """What stands for a value that is given to a shard more than once."""
        return value

    def call(
        self, method: str, arguments: Arguments, on_wait: OnWait | None = None
    ) -> Iterator[Any]:
        """What a method of each shard gives, in the order of the shards, as soon as all before it have.

        `on_wait` is called with words about those that take longer than others.
        """
        futures = [
            None if given is None else self._pool.submit(getattr(shard, method), *given)
            for shard, given in zip(self._shards, arguments, strict=True)
        ]
        for one in futures:
            yield None if one is None else one.result()

    def close(self) -> None:
        """End the shards."""
        self._pool.shutdown()
        for shard in self._shards:
            shard.close()
        self._shards = []


def _noting(shown: Bar) -> OnWait:
    """Shows words behind a bar."""
    return lambda note: shown.advance(0, note=note)


def _progress_of(what: str) -> str:
    """The name under which the driver saves how far the shards are."""
    return f"{what} in shards"


class RemoteModels(LocalModels):
    """The models of all shards while they learn: a request goes to those that answer, the sums are added in order."""

    def __init__(self, executor: ShardExecutor, task: LocalTask, job: Job) -> None:
        self._executor, self._items, self._edges = executor, task.data.matrix.shape[1], job.edges
        self._last: tuple[Any, ...] = (None, None, None, None)
        self.after = (0, 0)  # the epoch after which they answer, and the best so far
        self.on_wait: OnWait | None = None

    def __len__(self) -> int:
        return self._edges[-1]

    def count_items(self) -> int:
        """How many items they score."""
        return int(self._items)

    def blend(self, histories: csr_array, answer_weights: csr_array) -> npt.NDArray[np.float32]:
        """The scores of all models, blended by the weights."""
        if self._last[0] is not histories or self._last[1] is not answer_weights:
            # The same users judge after every epoch: what was sent stays with the shards.
            portions = split_request(csr_array(histories), answer_weights, self._edges)
            requests = [
                None if one.request is None else self._executor.share(one.request)
                for one in portions
            ]
            self._last = histories, answer_weights, portions, requests
        _, _, portions, requests = self._last
        each = [None if one is None else (*self.after, one) for one in requests]
        answers = self._executor.call("blend", each, self.on_wait)
        return add_answers(portions, answers, (histories.shape[0], self._items))

    def state(self) -> ModelState:
        """Models that learn elsewhere are saved there."""
        raise ConfigError("these models are saved by their shards")

    @classmethod
    def restore(cls, params: Mapping[str, Any], state: ModelState) -> Self:
        """See `state`."""
        raise ConfigError("these models are saved by their shards")
