"""Trains local models in shards: the shards learn side by side, the driver adds their answers, measures and decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.cluster.shards import Job, Shard, load_part
from loca.errors import ConfigError, check_counts
from loca.local.local_models import LocalModels, LocalTask
from loca.local.sharded_models import ShardedModels, blend_shards
from loca.local.training import Engine, Validate
from loca.models.early_stopping import BestWeights
from loca.persistence.manifest import ModelState, fingerprint
from loca.progress import bar, say


class ShardExecutor:
    """Trains the local models of a fit in shards, in threads of this process; `RayExecutor` does so on many machines.

    Parameters
    ----------
    storage : str or Path
        A folder that all machines see: the work of a shard is read from there, its progress and its models are written
        there. It is emptied when the fit ends well.
    shards : int, default 2
        How many.
    """

    def __init__(self, storage: str | Path, *, shards: int = 2) -> None:
        check_counts(shards=shards)
        self.storage, self.shards = Path(storage), shards

    def train_locals(
        self, task: LocalTask, engine: Engine, validate: Validate | None = None
    ) -> tuple[LocalModels, int | None]:
        """Train all models of a task; as `loca.local.training.train_locals`, with the same numbers."""
        first: Any = task.models[0]
        settings = [first.get_params(), len(task.models), task.what, task.shared_epochs, self.shards]
        name = fingerprint([str(settings), fingerprint(task.data.matrix), str(engine)])
        job = Job.of(task, engine, self.storage / f"job-{str(name)[:16]}", self.shards)
        say(f"{task.what}: {len(task.models):,} models in {len(job.ranges)} shards, by way of {job.folder}")
        self.open(job)
        try:
            epochs, best_epoch = None, 0
            if first.learns_by_epoch:
                best = self._train_epochs(task, job, validate)
                best_epoch, epochs = best.epoch, best.epoch or first.epochs
                first.remarks_ = tuple(f"{task.what} {ending}" for ending in [best.ending(first)] if ending)
            with bar(f"{task.what}, finished shards", len(job.ranges)) as progress:
                folders = self.call("finish", [(best_epoch,)] * len(job.ranges), progress.advance)
        finally:
            self.close()
        centre = task.centre if job.has_centre else None
        local = ShardedModels.of([load_part(Path(one), centre) for one in folders])
        for model in task.models:
            model.best_epoch_ = epochs
        job.remove()
        return local, epochs

    def _train_epochs(self, task: LocalTask, job: Job, validate: Validate | None) -> BestWeights:
        """Epoch after epoch: all shards train and save, then the sum of their answers is judged."""
        schedule: Any = task.models[0]
        checkpoint, best, done = task.data.context.checkpoint, BestWeights(), 0
        remote, count = RemoteModels(self, task, job), len(job.ranges)
        if (saved := checkpoint.load(job.what)) is not None:
            done = int(saved.facts["epoch"])
            best.put_back(ModelState(facts=saved.facts["best"]), [])
        with bar(task.what, schedule.epochs) as progress:
            progress.advance(done)
            for epoch in range(done + 1, schedule.epochs + 1):
                if best.is_final(epoch - 1, schedule.patience):
                    break
                losses = self.call("epoch", [(epoch,)] * count)
                note = f"{len(task.models)} models in {count} shards, loss {np.mean(losses):.2f}"
                if best.epoch:
                    note += f", best NDCG@100 {best.score:.4f} at epoch {best.epoch}"
                progress.advance(note=note)
                is_due = epoch % schedule.evaluate_every == 0 or epoch == schedule.epochs
                if validate is not None and epoch > task.shared_epochs and is_due:
                    score = validate(remote)
                    best.offer(epoch, score, [])
                    if best.epoch == epoch:
                        self.call("save_best", [(epoch,)] * count)
                    task.data.context.report(epoch, score)
                # The shards have saved this epoch: the driver may be lost from here on.
                checkpoint.save(job.what, ModelState(facts={"epoch": epoch, "best": dict(best.state().facts)}))
        if ending := best.ending(schedule):
            say(f"{task.what}: {ending}")
        if best.epoch:
            say(f"{task.what}: best blended validation NDCG@100 {best.score:.4f} after {best.epoch} epochs")
        return best

    # What a cluster does otherwise

    def open(self, job: Job) -> None:
        """Begin the shards."""
        self._pool = ThreadPoolExecutor(len(job.ranges))
        self._shards = [Shard(job, number) for number in range(len(job.ranges))]

    def call(
        self, method: str, arguments: Sequence[tuple[Any, ...] | None], on_done: Callable[[], None] | None = None
    ) -> list[Any]:
        """What a method of each shard gives, in the order of the shards; None for one that is not called."""
        futures = [
            None if given is None else self._pool.submit(getattr(shard, method), *given)
            for shard, given in zip(self._shards, arguments, strict=True)
        ]
        found = []
        for one in futures:
            found.append(None if one is None else one.result())
            if on_done is not None:
                on_done()
        return found

    def close(self) -> None:
        """End the shards."""
        self._pool.shutdown()
        self._shards = []


class RemoteModels(LocalModels):
    """The models of all shards while they learn: a request goes to those that answer, the sums are added in order."""

    def __init__(self, executor: ShardExecutor, task: LocalTask, job: Job) -> None:
        self._executor, self._items = executor, task.data.matrix.shape[1]
        self._edges = [0, *(last for _, last in job.ranges)]

    def __len__(self) -> int:
        return self._edges[-1]

    def count_items(self) -> int:
        """How many items they score."""
        return int(self._items)

    def blend(self, histories: csr_array, answer_weights: csr_array) -> npt.NDArray[np.float32]:
        """The scores of all models, blended by the weights."""
        rows, call = csr_array(histories), partial(self._executor.call, "blend")
        return blend_shards(rows, answer_weights, self._edges, self._items, call)

    def state(self) -> ModelState:
        """Models that learn elsewhere are saved there."""
        raise ConfigError("these models are saved by their shards")

    @classmethod
    def restore(cls, params: Mapping[str, Any], state: ModelState) -> Self:
        """See `state`."""
        raise ConfigError("these models are saved by their shards")
