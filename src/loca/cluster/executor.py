"""Train local models in shards, which learn side by side; the driver adds and judges answers."""

from __future__ import annotations

import secrets
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from scipy.sparse import csr_array

from loca.cluster.shards import Job, Shard, load_part
from loca.cluster.storage import Storage, is_address
from loca.errors import ConfigError, LocaError, check_counts
from loca.local.engines.engine import Engine, ManyFits, Validator
from loca.local.local_models import LocalModels, PreparedBatch
from loca.local.sharded_models import Portion, ShardedModels, add_answers, split_request
from loca.models.early_stopping import BestWeights
from loca.persistence.fit_context import StopFit
from loca.progress import Bar, bar, say
from loca.remarks import remark
from loca.typing import FloatArray

# The arguments of a call to each shard; None for a shard that is not called.
Arguments = Sequence[tuple[Any, ...] | None]
OnWait = Callable[[str], None]


class ClusterError(LocaError):
    """The cluster could not do what was asked of it."""


class ShardExecutor:
    """Train the local models of a fit in shards, in threads of this process.

    `RayExecutor` does so on many machines.

    Parameters
    ----------
    storage : str or Path
        What all machines see: a folder, or an address that fsspec understands, such as
        s3://bucket/work. The work of a shard is read from there, its progress and its models are
        written there. What a fit wrote goes with the model.
    shards : int, default 2
        How many shards.
    checkpoint_every : float, default 0.0
        How many seconds of work a lost shard may have to do again, saving at most a tenth of the
        time; 0 saves every epoch.
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
        # A storage that cannot be written is refused before anything is fitted.
        Storage(self.storage, secrets.token_hex(8)).probe()

    def train(
        self, fits: ManyFits, engine: Engine, validate: Validator | None = None
    ) -> LocalModels:
        """Return the fitted models, with the numbers of `engine.train`."""
        _check_engine(engine)
        checkpoint = fits.data.context.checkpoint
        fits = engine.prepared(fits)
        job, storage, progress = self._begin(fits, engine)
        say(f"{fits.name}: {len(fits):,} models in {len(job)} shards, by way of {storage.address}")
        try:
            self.open(job)
            models = self._trained(fits, job, storage, validate, progress)
        except BaseException:
            if not checkpoint.saves:  # no later run could go on from here
                storage.remove()
            raise
        finally:
            self.close()
        # The models are mapped, and linked when they are saved: their files stay as long as the
        # models do, or until the work has ended well that could go on with them.
        if checkpoint.saves:
            checkpoint.at_end.append(storage.remove)
        else:
            weakref.finalize(models, storage.remove)
        return models

    def _trained(
        self,
        fits: ManyFits,
        job: Job,
        storage: Storage,
        validate: Validator | None,
        progress: Mapping[str, Any],
    ) -> ShardedModels:
        """Return the models of all shards, once these are open."""
        after = (0, 0)
        if fits.base.learns_by_epoch:
            after = self._train_epochs(fits, job, validate, progress)
        with bar(f"{fits.name}, finished shards", len(job)) as shown:
            for _ in self.call("finish", [after] * len(job), _noting(shown)):
                shown.advance()
        parts = [load_part(job, storage, shard, fits.centre) for shard in range(len(job))]
        return ShardedModels.of(parts).to(fits.data.device)

    def _begin(self, fits: ManyFits, engine: Engine) -> tuple[Job, Storage, Mapping[str, Any]]:
        """Return the job of an interrupted run with its progress, or a new job.

        A job goes on only where the storage still has its work.
        """
        checkpoint = fits.data.context.checkpoint
        saved = checkpoint.load(_progress_name(fits))
        if saved is not None:
            job = Job.of(
                fits, engine, saved["place"], saved["job"], saved["edges"], self.checkpoint_every
            )
            storage = job.storage()
            if job.is_written(storage):
                if (job.place, len(job)) != (self.storage, min(self.shards, len(fits))):
                    way = f"in {len(job)} shards by way of {storage.address}"
                    say(f"{fits.name}: goes on {way}, as it was begun")
                return job, storage, saved
            lost = f"{storage.address} has nothing to go on with"
            say(f"{fits.name}: {lost}; the shards start from the beginning")
        n_shards = min(self.shards, len(fits))
        edges = np.linspace(0, len(fits), n_shards + 1).astype(int).tolist()
        job = Job.of(fits, engine, self.storage, secrets.token_hex(8), edges, self.checkpoint_every)
        storage = job.storage()
        try:
            job.write(fits, storage)
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
        checkpoint.save(_progress_name(fits), progress)
        return job, storage, progress

    def _train_epochs(
        self,
        fits: ManyFits,
        job: Job,
        validate: Validator | None,
        progress: Mapping[str, Any],
    ) -> tuple[int, int]:
        """Return the last epoch and the best, 0 without validation.

        In each epoch all shards train and save; then the sum of their answers is judged.
        """
        schedule = fits.learner
        best = BestWeights()
        best.load_state_dict(progress["best"], [])
        remote = RemoteModels(self, fits, job)
        done = progress["epoch"]
        with bar(fits.name, schedule.epochs) as shown:
            remote.on_wait = _noting(shown)
            shown.advance(done)
            for epoch in range(done + 1, schedule.epochs + 1):
                if best.is_final(done, schedule.patience):
                    break
                remote.after = (epoch, best.epoch)
                losses = list(self.call("epoch", [remote.after] * len(job), remote.on_wait))
                shown.advance(note=_note(fits, job, losses, best))
                is_stopped = _judge(fits, remote, validate, epoch, best)
                done = epoch
                # The shards come back to this epoch, whatever they have saved: from here on the
                # driver may be lost.
                state = {**progress, "epoch": epoch, "best": best.state_dict()}
                fits.data.context.checkpoint.save(_progress_name(fits), state)
                if is_stopped:
                    break
        ending = best.ending(schedule)
        if ending:
            remark("training", f"{fits.name} {ending}")
        if best.epoch:
            say(
                f"{fits.name}: best blended validation {fits.data.metric.label} {best.score:.4f} "
                f"after {best.epoch} epochs"
            )
        return done, best.epoch

    # What a cluster does otherwise

    def join(self) -> None:
        """Join the cluster, before anything is done in vain."""

    def open(self, job: Job) -> None:
        """Begin the shards."""
        self._pool = ThreadPoolExecutor(len(job))
        self._shards = [Shard(job, number) for number in range(len(job))]

    def share(self, value: Any) -> Any:
        """Return what stands for a value that is sent to a shard more than once."""
        return value

    def call(
        self, method: str, arguments: Arguments, on_wait: OnWait | None = None
    ) -> Iterator[Any]:
        """Yield what a method of each shard returns, in the order of the shards.

        A value comes as soon as all before it have come. `on_wait` is called with words about the
        shards that take longer than others.
        """
        futures = [
            None if values is None else self._pool.submit(getattr(shard, method), *values)
            for shard, values in zip(self._shards, arguments, strict=True)
        ]
        for future in futures:
            yield None if future is None else future.result()

    def close(self) -> None:
        """End the shards."""
        self._pool.shutdown()
        for shard in self._shards:
            shard.close()
        self._shards = []


def _check_engine(engine: Engine) -> None:
    """Refuse an engine that trains in a way of its own: shards only begin, solve and finish."""
    if type(engine).train is not Engine.train:
        name = type(engine).__name__
        raise ConfigError(
            f"executor: {name} trains in a way of its own, which cannot be spread over shards; "
            "leave the executor out"
        )


def _judge(
    fits: ManyFits,
    models: LocalModels,
    validate: Validator | None,
    epoch: int,
    best: BestWeights,
) -> bool:
    """Judge an epoch where that is due, and return whether a callback ends the training."""
    schedule = fits.learner
    is_due = epoch % schedule.evaluate_every == 0 or epoch == schedule.epochs
    if validate is None or epoch <= fits.shared_epochs or not is_due:
        return False
    score = validate(models)
    best.update(epoch, score, [])
    try:
        fits.data.context.report(epoch, score)
    except StopFit:
        return True
    return False


def _note(fits: ManyFits, job: Job, losses: Sequence[float], best: BestWeights) -> str:
    note = f"{len(fits)} models in {len(job)} shards, loss {np.mean(losses):.2f}"
    if best.epoch:
        note += f", best {best.score:.4f} at epoch {best.epoch}"
    return note


def _noting(shown: Bar) -> OnWait:
    """Return what shows words behind a bar."""
    return lambda note: shown.advance(0, note=note)


def _progress_name(fits: ManyFits) -> str:
    """Return the name under which the driver saves how far the shards are."""
    return f"{fits.name} in shards"


@dataclass(frozen=True, eq=False, kw_only=True)
class RemoteBatch(PreparedBatch):
    """Histories to be answered by all shards, with each shard's portion and shared request."""

    portions: list[Portion]
    requests: list[Any]


class RemoteModels(LocalModels):
    """The models of all shards while they learn.

    A request goes to those shards that answer it; their sums are added in order.
    """

    def __init__(self, executor: ShardExecutor, fits: ManyFits, job: Job) -> None:
        self._executor = executor
        self._n_items = fits.n_items
        self._edges = job.edges
        self.after = (0, 0)  # the epoch after which they answer, and the best so far
        self.on_wait: OnWait | None = None

    def __len__(self) -> int:
        return self._edges[-1]

    def count_items(self) -> int:
        """Return how many items they score."""
        return self._n_items

    def prepared(self, histories: csr_array, answer_weights: csr_array) -> RemoteBatch:
        """Share a request with the shards, which is to be answered after every epoch."""
        portions = split_request(csr_array(histories), answer_weights, self._edges)
        requests = [
            None if portion.request is None else self._executor.share(portion.request)
            for portion in portions
        ]
        return RemoteBatch(
            histories=histories,
            answer_weights=answer_weights,
            portions=portions,
            requests=requests,
        )

    def blend_prepared(self, batch: PreparedBatch) -> FloatArray:
        """Return the scores of all models for a shared request."""
        shared = cast(RemoteBatch, batch)
        arguments = [
            None if request is None else (*self.after, request) for request in shared.requests
        ]
        answers = self._executor.call("blend", arguments, self.on_wait)
        shape = (batch.histories.shape[0], self._n_items)
        return add_answers(shared.portions, answers, shape)

    def blend(self, histories: csr_array, answer_weights: csr_array) -> FloatArray:
        """Return the scores of all models, blended by the weights."""
        return self.blend_prepared(self.prepared(histories, answer_weights))
