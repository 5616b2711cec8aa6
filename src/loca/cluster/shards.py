"""A shard: some of the local models of a fit, trained an epoch at a time, and what all of them answer together.

A shard reads its work from a storage that all machines see, and saves its progress there after every epoch. Whatever is
wanted of it twice it does once: a shard that is begun anew goes on where the last one was.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.cluster.storage import Storage
from loca.data.id_map import IdMap
from loca.data.interactions import Interactions
from loca.data.schema import Schema
from loca.errors import ConfigError, ModelFileError
from loca.evaluation.top_n import as_array
from loca.local.local_models import LocalModels, LocalTask
from loca.local.sharded_models import Request
from loca.local.training import Engine, begin_locals, fit_in_turn, local_memory
from loca.memory import DataSize
from loca.models.early_stopping import BestWeights, load_trainers, training_state
from loca.models.recommender import Recommender, TrainingData, UserWeights
from loca.persistence.atomic_write import MANIFEST
from loca.persistence.checkpoint import file_name_of
from loca.persistence.fit_context import FitContext
from loca.persistence.model_io import load_model, read_recency, save_model
from loca.progress import say
from loca.registry import KINDS

_DATA, _CENTRE = "data", "centre"


# -- What a shard works on ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """The local models of one fit as all machines find them.

    `models` are unfitted; the data, the weights of each shard's communities and the centre are in the storage.
    """

    place: str
    name: str
    models: tuple[Recommender, ...]
    edges: tuple[int, ...]
    engine: Engine
    what: str
    shared_epochs: int
    device: str
    kinds: Mapping[str, type]
    has_centre: bool
    seconds_between: float

    @classmethod
    def of(
        cls,
        task: LocalTask,
        engine: Engine,
        place: str,
        name: str,
        edges: Sequence[int],
        seconds_between: float,
    ) -> Self:
        """The job of a task: shard k has the models from edges[k] to edges[k + 1], and saves every so many seconds.

        The task's centre is what its models are stored as differences to, None where they are not.
        """
        return cls(
            place,
            name,
            tuple(task.models),
            tuple(edges),
            engine,
            task.what,
            task.shared_epochs,
            task.data.device,
            kinds={
                **KINDS,
                type(task.models[0]).__name__: type(task.models[0]),
            },  # which may be a user's
            has_centre=task.centre is not None,
            seconds_between=seconds_between,
        )

    def __len__(self) -> int:
        return len(self.edges) - 1

    def storage(self) -> Storage:
        """Its folder in the storage, as this process sees it."""
        return Storage(self.place, self.name)

    def write(self, task: LocalTask, storage: Storage) -> None:
        """Write what the shards read."""
        storage.make()
        checkpoint = storage.checkpoint()
        for number, (first, last) in enumerate(itertools.pairwise(self.edges)):
            checkpoint.save(
                f"weights {number}",
                dump_weights(task.weights_of(one) for one in range(first, last)),
            )
        if self.has_centre:
            save_model(task.centre, storage.folder / _CENTRE)
            storage.publish_model(_CENTRE)
        checkpoint.save(_DATA, _dump_data(task.data))  # last: where it is, all is

    def is_written(self, storage: Storage) -> bool:
        """Whether the storage still has what the shards read."""
        return storage.has(file_name_of(_DATA))

    def task(self, number: int, storage: Storage) -> LocalTask:
        """What one shard has to do."""
        checkpoint = storage.checkpoint(self.seconds_between)
        data, weights = checkpoint.load(_DATA), checkpoint.load(f"weights {number}")
        if data is None or weights is None:
            where = f"{storage.address}: the work of shard {number} is not there"
            raise ModelFileError(f"{where}; does every machine see this storage?")
        training = _read_data(data)
        users, context = (
            training.matrix.shape[0],
            FitContext(checkpoint.inside(f"shard {number}"), order_checked=True),
        )
        return LocalTask(
            list(self.models[self.edges[number] : self.edges[number + 1]]),
            replace(training, context=context, device=self.device),
            lambda one: read_weights(weights, one, users),
            self.what,
            load_model(storage.fetch_model(_CENTRE), self.kinds) if self.has_centre else None,
            shared_epochs=self.shared_epochs,
        )


def dump_weights(weights: Iterator[UserWeights]) -> dict[str, npt.NDArray[Any]]:
    """The user weights of some models: all of them, or the least and those above it where that is less.

    Most users have the least weight where communities are narrow, or memberships sure.
    """
    least, rows, values = [], [], []
    for one in weights:
        given = np.asarray(one, np.float32)
        above = np.flatnonzero(given != given.min()).astype(np.int32)
        is_short = 2 * len(above) < len(given)
        least.append(given.min())
        rows.append(above if is_short else above[:0])
        values.append(given[above] if is_short else given)
    arrays = {
        "least": np.array(least, np.float32),
        "rows": np.concatenate(rows),
        "values": np.concatenate(values),
    }
    for name, parts in (("row_ends", rows), ("value_ends", values)):
        arrays[name] = np.cumsum([0, *map(len, parts)])
    return arrays


def read_weights(
    state: Mapping[str, npt.NDArray[Any]], number: int, users: int
) -> npt.NDArray[np.float32]:
    """The user weights of one model."""
    rows, values = (
        state[name][slice(*state[ends][number : number + 2].tolist())]
        for name, ends in (("rows", "row_ends"), ("values", "value_ends"))
    )
    if len(rows) < len(values):  # all of them
        return np.array(values)
    found = np.full(users, state["least"][number], np.float32)
    found[rows] = values
    return found


def _dump_data(data: TrainingData) -> dict[str, Any]:
    """Histories without the ids of users and items."""
    train = data.train
    if not isinstance(train, Interactions):
        rows = csr_array(train)
        return {
            "indptr": rows.indptr,
            "indices": rows.indices,
            "data": rows.data,
            "user_weights": data.user_weights,
            "shape": list(rows.shape),
        }
    return {
        "offsets": train.offsets,
        "item_rows": train.item_rows,
        "times": train.times,
        "weights": train.weights,
        "user_weights": data.user_weights,
        "shape": [train.n_users, train.n_items],
        "recency": None if train.recency is None else asdict(train.recency),
        "schema": train.schema.to_json(),
    }


def _read_data(state: Mapping[str, Any]) -> TrainingData:
    users, items = state["shape"]
    if "indptr" in state:
        matrix = csr_array((state["data"], state["indices"], state["indptr"]), shape=(users, items))
        return TrainingData.of(matrix, state["user_weights"])
    recency = state["recency"]
    train = Interactions(
        IdMap.numbered(users, "user"),
        IdMap.numbered(items, "item"),
        np.array(state["offsets"]),
        np.array(state["item_rows"]),
        None if state["times"] is None else np.array(state["times"]),
        recency=None if recency is None else read_recency(recency),
        weights=None if state["weights"] is None else np.array(state["weights"]),
        schema=Schema.from_json(state["schema"]),
    )
    return TrainingData.of(train, state["user_weights"])


def plan_shards(model: Any, size: DataSize, shards: int) -> dict[str, int]:
    """What each shard of a fit holds and sends, in bytes; nothing is fitted.

    Parameters
    ----------
    model : Loca or Ensemble
        Unfitted.
    size : DataSize
    shards : int

    Returns
    -------
    dict of str to int
        models; `main` and `device`, its memory at the peak; `read`, from the storage at the start; `saved`, after every
        epoch; `sent`, to the driver for every validation; `part`, its files of the model.
    """
    params = model.get_params(deep=False)
    count = params.get("anchors", params.get("models"))
    if not isinstance(count, int):
        raise ConfigError(
            f"shards: {type(model).__name__} is one model; take loca-… or ensemble-…, or one machine"
        )
    models = -(-min(count, size.users) // min(shards, count, size.users))
    base, histories = model.base, 12 * size.entries + 8 * size.users
    # Local EASEs are differences to one that every shard reads.
    centre = (
        base.memory_bytes(size).folder
        if base.is_linear and model._engine().stores_differences(size.items)
        else 0
    )
    uses = local_memory(base, models, model._engine(), size, "local models", model.base).values()
    weights = 4 * size.users * models
    return {
        "models": models,
        "main": sum(use.main for use in uses) + histories + weights,
        "device": sum(use.device for use in uses),
        "read": histories + weights + centre,
        "saved": sum(use.training for use in uses) if base.learns_by_epoch else 0,
        "sent": 4 * size.validation_users * size.items if base.learns_by_epoch else 0,
        "part": sum(use.folder for use in uses),
    }


# -- A shard -----------------------------------------------------------------------------------------------------------


class Shard:
    """Some of the models of a job, in the process where they learn.

    A call that comes a second time, because its answer was lost, waits for the first.
    """

    def __init__(self, job: Job, number: int) -> None:
        self.job, self.number = job, number
        self.done, self.loss = 0, float("nan")
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._lock, self._is_begun = threading.Lock(), False
        self._request: Request | None = None

    @contextmanager
    def _working(self, what: str) -> Iterator[None]:
        """One call at a time, and what each kind has taken; the first begins the work."""
        with self._lock:
            started = time.perf_counter()
            if not self._is_begun:
                self._begin()
                self.seconds["begin"] += time.perf_counter() - started
                started = time.perf_counter()
            yield
            self.seconds[what] += time.perf_counter() - started

    def _begin(self, *, anew: bool = False) -> None:
        """Go on where an earlier process was, or from the beginning."""
        self.storage = self.job.storage()
        self.storage.remove_half_written(f"shard {self.number}")
        self.task = self.job.task(self.number, self.storage)
        self.checkpoint = self.task.data.context.checkpoint
        self.local: LocalModels | None = None
        self.trainers: Sequence[Any] = ()
        self.done, self.best = 0, BestWeights()
        if not self._is_finished() and self.task.models[0].learns_by_epoch:
            self.trainers, self.local = begin_locals(self.task, self.job.engine)
            state = None if anew else self.checkpoint.load(self.job.what)
            if state is not None:
                self.done, self.loss = state["epoch"], state["loss"]
                load_trainers(self.trainers, state["trainers"])
                self.best.load_state_dict(state["best"], self._networks())
        self._is_begun = True

    def _is_finished(self) -> bool:
        return self.storage.has(f"{part_of(self.number)}/{MANIFEST}")

    def epoch(self, number: int, best: int) -> float:
        """Train up to an epoch, and save that; the mean loss. One that is done already is not done again.

        The weights of the epoch that was best so far, 0 for none, are held beside those that learn.
        """
        with self._working("epoch"):
            self._be_at(number, best)
            return self.loss

    def _be_at(self, number: int, best: int) -> None:
        """Train up to an epoch, and hold the weights of the best on the way; anew where it is too late for one."""
        is_held = best in (0, self.best.epoch)
        if self.done > (number if is_held else best):
            say(f"shard {self.number}: is at epoch {self.done}, which is too far; it learns again")
            self._begin(anew=True)
            is_held = not best
        if not is_held:
            self._train_to(best)
            self.best.update(best, float(best), self._networks())  # the latest is always the best
        self._train_to(number)

    def _train_to(self, number: int) -> None:
        while self.done < number:
            self.loss = float(np.mean([trainer.run_epoch() for trainer in self.trainers]))
            self.done += 1
            started = time.perf_counter()
            if self.checkpoint.due():
                self.checkpoint.save(
                    self.job.what,
                    {**training_state(self.done, self.trainers, self.best), "loss": self.loss},
                )
            self.seconds["save"] += time.perf_counter() - started

    def blend(self, number: int, best: int, request: Request) -> npt.NDArray[np.float32]:
        """The blended scores of the shard's models after an epoch, as if there were no others."""
        with self._working("blend"):
            self._be_at(number, best)  # where it has been lost since
            assert self.local is not None
            # The same arrays as for the request before, if that was the same: networks store what they make of them.
            if self._request is None or self._request.name != request.name:
                self._request = request
            blended = self.local.blend(self._request.histories, self._request.answer_weights)
            return np.asarray(as_array(blended), np.float32)

    def finish(self, number: int, best: int) -> None:
        """Write the models with the weights of the best epoch, else of the last."""
        with self._working("finish"):
            if self._is_finished():
                return
            if self.trainers:
                self._be_at(number, best)
                self.best.restore_best(self._networks())
                assert self.local is not None
                self.local = self.local.finished(self.job.engine.answer_precision)
            else:
                self.local = fit_in_turn(self.task, self.job.engine)
            name = part_of(self.number)
            save_model(self.local, self.storage.folder / name)
            self.storage.publish_model(name)

    def status(self) -> tuple[str, int, dict[str, float]]:
        """The machine, the process, and the seconds spent with each kind of call."""
        return os.uname().nodename, os.getpid(), dict(self.seconds)

    def close(self) -> None:
        """Drop what only this process needs."""
        if self._is_begun:
            self.storage.close()

    def _networks(self) -> list[Any]:
        return [network for trainer in self.trainers for network in trainer.networks]


def part_of(number: int) -> str:
    """The name of the finished models of a shard."""
    return f"part {number}"


def load_part(job: Job, storage: Storage, number: int, centre: Recommender | None) -> LocalModels:
    """The finished models of a shard, mapped."""
    folder = storage.fetch_model(part_of(number))
    local = load_model(folder, job.kinds)
    if not isinstance(local, LocalModels):
        raise ModelFileError(
            f"{folder}: expected the local models of a shard, found {type(local).__name__}"
        )
    local.saved_in_ = folder
    return local if centre is None else local.around(centre)
