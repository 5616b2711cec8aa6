"""Train some of the local models of a fit, an epoch at a time, and blend what they answer.

A shard reads its work from a storage that all machines see, and saves its progress there after
every epoch. A call that comes twice is done once; a shard that starts again goes on where it was.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections import ChainMap, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, is_dataclass, replace
from typing import Any, Self, cast

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.cluster.storage import Storage
from loca.data.id_map import IdMap
from loca.data.interactions import Interactions
from loca.data.schema import Schema
from loca.errors import ConfigError, ModelFileError
from loca.evaluation.top_n import as_array
from loca.local.engines.engine import Engine, ManyFits
from loca.local.local_models import LocalModels, PreparedBatch
from loca.local.many_models import ManyModels
from loca.local.sharded_models import Request
from loca.memory import DataSize
from loca.models.early_stopping import BestWeights, Trainer, load_trainers, training_state
from loca.models.recommender import Recommender, TrainingData, UserWeights, get_params
from loca.persistence.atomic_write import MANIFEST
from loca.persistence.checkpoint import file_name_of
from loca.persistence.fit_context import FitContext
from loca.persistence.manifest import SavedAt
from loca.persistence.model_io import load_model, save_model
from loca.persistence.train_data import read_recency
from loca.progress import say
from loca.registry import KINDS
from loca.typing import FloatArray

_DATA = "data"
_CENTRE = "centre"


# -- What a shard works on ------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """The models of one fit, as all machines find them.

    Their data, the user weights of each shard and the centre are in the storage.

    Parameters
    ----------
    place : str
        The storage: a path or an address.
    name : str
        Names the job's folder in the storage.
    models : tuple of Recommender
        The models, unfitted.
    edges : tuple of int
        Shard k has the models from edges[k] to edges[k + 1].
    engine : Engine
        How they are trained.
    fits_name : str
        What they are called in messages and checkpoints.
    shared_epochs : int
        In so many first epochs all learn with the user weights of the data.
    device : str
        Where they compute.
    kinds : mapping of str to type
        The classes that the files of the job may hold.
    has_centre : bool
        Whether the models are stored as differences to a centre, which all shards read.
    seconds_between : float
        How much work a lost shard may have to do again.
    """

    place: str
    name: str
    models: tuple[Recommender, ...]
    edges: tuple[int, ...]
    engine: Engine
    fits_name: str
    shared_epochs: int
    device: str
    kinds: Mapping[str, type]
    has_centre: bool
    seconds_between: float

    @classmethod
    def of(
        cls,
        fits: ManyFits,
        engine: Engine,
        place: str,
        name: str,
        edges: Sequence[int],
        seconds_between: float,
    ) -> Self:
        """Return the job of fits that the engine has prepared."""
        return cls(
            place=place,
            name=name,
            models=tuple(fits.models),
            edges=tuple(edges),
            engine=engine,
            fits_name=fits.name,
            shared_epochs=fits.shared_epochs,
            device=fits.data.device,
            kinds=kinds_of(fits.base),
            has_centre=fits.centre is not None,
            seconds_between=seconds_between,
        )

    def __len__(self) -> int:
        return len(self.edges) - 1

    def storage(self) -> Storage:
        """Return its folder in the storage, as this process sees it."""
        return Storage(self.place, self.name)

    def write(self, fits: ManyFits, storage: Storage) -> None:
        """Write what the shards read; the data come last, and say that all is there."""
        storage.make()
        checkpoint = storage.checkpoint()
        for shard, (first, last) in enumerate(itertools.pairwise(self.edges)):
            weights = dump_weights(fits.weights_of(number) for number in range(first, last))
            checkpoint.save(f"weights {shard}", weights)
        if self.has_centre:
            save_model(fits.centre, storage.folder / _CENTRE)
            storage.publish_model(_CENTRE)
        checkpoint.save(_DATA, _dump_data(fits.data))

    def is_written(self, storage: Storage) -> bool:
        """Return whether the storage still has what the shards read."""
        return storage.has(file_name_of(_DATA))

    def fits(self, shard: int, storage: Storage) -> ManyFits:
        """Return the fits of one shard, read from the storage."""
        checkpoint = storage.checkpoint(self.seconds_between)
        data_state = checkpoint.load(_DATA)
        weights = checkpoint.load(f"weights {shard}")
        if data_state is None or weights is None:
            where = f"{storage.address}: the work of shard {shard} is not there"
            raise ModelFileError(f"{where}; does every machine see this storage?")
        data = _read_data(data_state)
        n_users = data.matrix.shape[0]
        context = FitContext(checkpoint.inside(f"shard {shard}"), order_checked=True)
        centre = None
        if self.has_centre:
            centre = load_model(storage.fetch_model(_CENTRE), self.kinds)
        return ManyFits(
            models=list(self.models[self.edges[shard] : self.edges[shard + 1]]),
            data=replace(data, context=context, device=self.device),
            weights_of=lambda number: read_weights(weights, number, n_users),
            name=self.fits_name,
            centre=centre,
            shared_epochs=self.shared_epochs,
        )


def kinds_of(base: Recommender) -> Mapping[str, type]:
    """Return the classes by name that copies of a model may be saved with, also a user's own."""
    classes = {kind.__name__: kind for kind in _classes_in(base)}
    return ChainMap(classes, cast(Any, KINDS))


def _classes_in(value: Any) -> Iterator[type]:
    """Yield the classes of a model, and of all models and values among its parameters."""
    if isinstance(value, list | tuple):
        for inner in value:
            yield from _classes_in(inner)
    elif is_dataclass(value) and not isinstance(value, type):
        yield type(value)
        for inner in get_params(value).values():
            yield from _classes_in(inner)


def dump_weights(weights: Iterator[UserWeights]) -> dict[str, npt.NDArray[Any]]:
    """Return the user weights of some models as arrays to be saved.

    Most users have the least weight where communities are narrow, or memberships sure. Where that
    takes less, only the weights above the least are written.
    """
    least = []
    rows = []
    values = []
    for of_model in weights:
        all_weights = np.asarray(of_model, np.float32)
        above = np.flatnonzero(all_weights != all_weights.min()).astype(np.int32)
        is_short = 2 * len(above) < len(all_weights)
        least.append(all_weights.min())
        rows.append(above if is_short else above[:0])
        values.append(all_weights[above] if is_short else all_weights)
    return {
        "least": np.array(least, np.float32),
        "rows": np.concatenate(rows),
        "row_ends": np.cumsum([0, *map(len, rows)]),
        "values": np.concatenate(values),
        "value_ends": np.cumsum([0, *map(len, values)]),
    }


def read_weights(state: Mapping[str, npt.NDArray[Any]], number: int, n_users: int) -> FloatArray:
    """Return the user weights of one model."""
    rows = state["rows"][slice(*state["row_ends"][number : number + 2].tolist())]
    values = state["values"][slice(*state["value_ends"][number : number + 2].tolist())]
    if len(rows) < len(values):
        return np.array(values)
    weights = np.full(n_users, state["least"][number], np.float32)
    weights[rows] = values
    return weights


def _dump_data(data: TrainingData) -> dict[str, Any]:
    """Return histories and user weights without the ids of users and items."""
    train = data.train
    if not isinstance(train, Interactions):
        matrix = csr_array(train)
        return {
            "indptr": matrix.indptr,
            "indices": matrix.indices,
            "data": matrix.data,
            "user_weights": data.user_weights,
            "shape": list(matrix.shape),
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
    n_users, n_items = state["shape"]
    if "indptr" in state:
        arrays = (state["data"], state["indices"], state["indptr"])
        return TrainingData.of(csr_array(arrays, shape=(n_users, n_items)), state["user_weights"])
    recency = state["recency"]
    train = Interactions(
        IdMap.numbered(n_users, "user"),
        IdMap.numbered(n_items, "item"),
        np.array(state["offsets"]),
        np.array(state["item_rows"]),
        None if state["times"] is None else np.array(state["times"]),
        recency=None if recency is None else read_recency(recency),
        weights=None if state["weights"] is None else np.array(state["weights"]),
        schema=Schema.from_json(state["schema"]),
    )
    return TrainingData.of(train, state["user_weights"])


def plan_shards(model: Recommender, size: DataSize, shards: int) -> dict[str, int]:
    """Estimate what each shard of a fit holds and sends, in bytes; nothing is fitted.

    Parameters
    ----------
    model : Loca or Ensemble
        Unfitted.
    size : DataSize
        Users, items and entries of the training data.
    shards : int
        How many shards.

    Returns
    -------
    dict of str to int
        models; `main` and `device`, its memory at the peak; `read`, from the storage at the start;
        `saved`, after every epoch; `sent`, to the driver for every validation; `part`, its files of
        the model.
    """
    if not isinstance(model, ManyModels):
        name = type(model).__name__
        raise ConfigError(f"shards: {name} is one model; take loca-… or ensemble-…, or one machine")
    n_models = min(model.size, size.users)
    n = -(-n_models // min(shards, n_models))
    base = model.base
    engine = model.engine_of(size.items)
    histories = 12 * size.entries + 8 * size.users
    weights = 4 * size.users * n
    centre_bytes = base.memory_bytes(size).folder if engine.has_centre else 0
    # The centre is there already: the global model, or a model like it.
    uses = engine.memory(base, n, size, "local models", base).values()
    learns_by_epoch = base.learns_by_epoch
    return {
        "models": n,
        "main": sum(use.main for use in uses) + histories + weights,
        "device": sum(use.device for use in uses),
        "read": histories + weights + centre_bytes,
        "saved": sum(use.training for use in uses) if learns_by_epoch else 0,
        "sent": 4 * size.validation_users * size.items if learns_by_epoch else 0,
        "part": sum(use.folder for use in uses),
    }


# -- A shard --------------------------------------------------------------------------------------


class Shard:
    """Some of the models of a job, in the process where they learn.

    A call that comes a second time, because its answer was lost, waits for the first.
    """

    def __init__(self, job: Job, number: int) -> None:
        self.job = job
        self.number = number
        self.done = 0
        self.loss = float("nan")
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._lock = threading.Lock()
        self._is_begun = False
        self._request_name = ""
        self._batch: PreparedBatch | None = None

    @contextmanager
    def _working(self, call: str) -> Iterator[None]:
        """Let in one call at a time, and note what each kind takes; the first begins the work."""
        with self._lock:
            started = time.perf_counter()
            if not self._is_begun:
                self._begin()
                self.seconds["begin"] += time.perf_counter() - started
                started = time.perf_counter()
            yield
            self.seconds[call] += time.perf_counter() - started

    def _begin(self, *, from_start: bool = False) -> None:
        """Go on where an earlier process was, or from the beginning."""
        self.storage = self.job.storage()
        self.storage.remove_half_written(f"shard {self.number}")
        self.fits = self.job.fits(self.number, self.storage)
        self.checkpoint = self.fits.data.context.checkpoint
        self.models: LocalModels | None = None
        self._batch = None
        self.trainers: Sequence[Trainer] = ()
        self.best = BestWeights()
        self.done = 0
        if not self._is_finished() and self.fits.base.learns_by_epoch:
            self.trainers, self.models = self.job.engine.begin(self.fits)
            state = None if from_start else self.checkpoint.load(self.job.fits_name)
            if state is not None:
                self.done = state["epoch"]
                self.loss = state["loss"]
                load_trainers(self.trainers, state["trainers"])
                self.best.load_state_dict(state["best"], self._networks())
        self._is_begun = True

    def _is_finished(self) -> bool:
        return self.storage.has(f"{part_name(self.number)}/{MANIFEST}")

    def epoch(self, number: int, best: int) -> float:
        """Train up to an epoch, save that and return the mean loss; an epoch is trained once.

        The weights of the epoch that was best so far, 0 for none, are held beside those that learn.
        """
        with self._working("epoch"):
            self._reach(number, best)
            return self.loss

    def _reach(self, number: int, best: int) -> None:
        """Train up to an epoch, and hold the weights of the best on the way.

        Where the shard is beyond one of them already, it learns from the start again.
        """
        holds_best = best in (0, self.best.epoch)
        if self.done > (number if holds_best else best):
            say(f"shard {self.number}: is at epoch {self.done}, which is too far; it learns again")
            self._begin(from_start=True)
            holds_best = not best
        if not holds_best:
            self._train_to(best)
            # A rising score: the latest is always the best.
            self.best.update(best, float(best), self._networks())
        self._train_to(number)

    def _train_to(self, number: int) -> None:
        while self.done < number:
            self.loss = float(np.mean([trainer.run_epoch() for trainer in self.trainers]))
            self.done += 1
            started = time.perf_counter()
            if self.checkpoint.due():
                state = training_state(self.done, self.trainers, self.best)
                self.checkpoint.save(self.job.fits_name, {**state, "loss": self.loss})
            self.seconds["save"] += time.perf_counter() - started

    def blend(self, number: int, best: int, request: Request) -> FloatArray:
        """Return the blended scores of the shard's models alone, after an epoch."""
        with self._working("blend"):
            self._reach(number, best)  # where the shard was lost since
            assert self.models is not None
            if self._batch is None or self._request_name != request.name:
                self._batch = self.models.prepared(request.histories, request.answer_weights)
                self._request_name = request.name
            return np.asarray(as_array(self.models.blend_prepared(self._batch)), np.float32)

    def finish(self, number: int, best: int) -> None:
        """Write the models with the weights of the best epoch, else of the last."""
        with self._working("finish"):
            if self._is_finished():
                return
            engine = self.job.engine
            if self.models is None:
                models = engine.solve(self.fits)
            else:
                self._reach(number, best)
                self.best.restore_best(self._networks())
                models = engine.finish(self.models, best or self.fits.learner.epochs)
            name = part_name(self.number)
            save_model(models.without_centre(), self.storage.folder / name)
            self.storage.publish_model(name)

    def status(self) -> tuple[str, int, dict[str, float]]:
        """Return the machine, the process, and the seconds spent with each kind of call."""
        return os.uname().nodename, os.getpid(), dict(self.seconds)

    def close(self) -> None:
        """Drop what only this process needs."""
        if self._is_begun:
            self.storage.close()

    def _networks(self) -> list[Any]:
        return [network for trainer in self.trainers for network in trainer.networks]


def part_name(shard: int) -> str:
    """Return the name of the finished models of a shard."""
    return f"part {shard}"


def load_part(job: Job, storage: Storage, shard: int, centre: Recommender | None) -> LocalModels:
    """Return the finished models of a shard, mapped into memory."""
    folder = storage.fetch_model(part_name(shard))
    models = load_model(folder, job.kinds)
    if not isinstance(models, LocalModels):
        raise ModelFileError(
            f"{folder}: expected the local models of a shard, found {type(models).__name__}"
        )
    models = models.with_centre(centre)
    models.saved_in_ = SavedAt.of(folder)
    return models
