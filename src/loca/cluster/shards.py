"""A shard: some of the local models of a fit, trained an epoch at a time, and what all of them answer together.

A shard reads its work from a folder that all machines see, and saves its progress there after every epoch. Whatever is
wanted of it twice it does once: a shard that is begun anew goes on where the last one was.
"""

from __future__ import annotations

import itertools
import os
import shutil
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.data.id_map import IdMap
from loca.data.interactions import Interactions
from loca.errors import ConfigError, ModelFileError
from loca.evaluation.top_n import as_array
from loca.local.local_models import LocalModels, LocalTask
from loca.local.training import Engine, begin_locals, fit_in_turn, local_memory
from loca.memory import DataSize
from loca.models.early_stopping import BestWeights, load_states, save_states, states_of
from loca.models.recommender import Recommender, TrainingData
from loca.persistence.checkpoint import Checkpoint
from loca.persistence.fit_context import FitContext
from loca.persistence.manifest import ModelState
from loca.persistence.model_io import load_model, read_recency, save_model
from loca.registry import KINDS, load

_DATA, _BEST, _CENTRE = "data", "best", "centre"


# -- What a shard works on ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """The local models of one fit as all machines find them: `folder` is on storage that they share.

    `models` are unfitted; the data, the weights of each shard's communities and the centre are in the folder.
    """

    folder: Path
    models: tuple[Recommender, ...]
    ranges: tuple[tuple[int, int], ...]
    engine: Engine
    what: str
    shared_epochs: int
    has_centre: bool

    @classmethod
    def of(cls, task: LocalTask, engine: Engine, folder: Path, shards: int) -> Self:
        """The job of a task, written to its folder unless an earlier run has done so."""
        count = len(task.models)
        edges = np.linspace(0, count, min(shards, count) + 1).astype(int).tolist()
        ranges = tuple(itertools.pairwise(edges))
        has_centre = task.centre is not None and bool(task.models[0].is_linear)
        job = cls(folder, tuple(task.models), ranges, engine, task.what, task.shared_epochs, has_centre)
        folder.mkdir(parents=True, exist_ok=True)
        checkpoint = Checkpoint(folder, 0.0)
        for number, (first, last) in enumerate(ranges):
            if checkpoint.load(f"weights {number}") is None:
                weights = np.stack([np.asarray(task.weights_of(one), np.float32) for one in range(first, last)])
                checkpoint.save(f"weights {number}", ModelState({"weights": weights}))
        if has_centre and not (folder / _CENTRE / "model.json").exists():
            save_model(task.centre, folder / _CENTRE)
        if checkpoint.load(_DATA) is None:  # last: where it is, all is
            checkpoint.save(_DATA, _dump_data(task.data))
        return job

    def task(self, number: int) -> LocalTask:
        """What one shard has to do."""
        checkpoint = Checkpoint(self.folder, 0.0)
        data, weights = checkpoint.load(_DATA), checkpoint.load(f"weights {number}")
        if data is None or weights is None:
            raise ModelFileError(f"{self.folder}: the work of shard {number} is not there; is the storage shared?")
        first, last = self.ranges[number]
        context = FitContext(checkpoint.inside(f"shard {number}"), order_checked=True)
        centre = load(self.folder / _CENTRE) if self.has_centre else None
        return LocalTask(
            list(self.models[first:last]),
            replace(_read_data(data), context=context),
            lambda one: weights.arrays["weights"][one],
            self.what,
            centre,
            shared_epochs=self.shared_epochs,
        )

    def part(self, number: int) -> Path:
        """Where the finished models of a shard are."""
        return self.folder / f"part {number}"

    def remove(self) -> None:
        """Forget the job; what is mapped into memory stays there."""
        shutil.rmtree(self.folder, ignore_errors=True)
        with suppress(OSError):  # others work there
            self.folder.parent.rmdir()


def _dump_data(data: TrainingData) -> ModelState:
    """Histories without the ids of users and items."""
    train = data.train
    if not isinstance(train, Interactions):
        rows = csr_array(train)
        arrays = {"indptr": rows.indptr, "indices": rows.indices, "data": rows.data, "user_weights": data.user_weights}
        return ModelState(arrays, {"shape": list(rows.shape)})
    found = {name: getattr(train, name) for name in ("offsets", "item_rows", "times")}
    arrays = {name: one for name, one in found.items() if one is not None} | {"user_weights": data.user_weights}
    recency = None if train.recency is None else asdict(train.recency)
    return ModelState(arrays, {"shape": [train.n_users, train.n_items], "recency": recency})


def _read_data(state: ModelState) -> TrainingData:
    arrays, (users, items) = state.arrays, state.facts["shape"]
    if "indptr" in arrays:
        matrix = csr_array((arrays["data"], arrays["indices"], arrays["indptr"]), shape=(users, items))
        return TrainingData.of(matrix, arrays["user_weights"])
    recency = state.facts["recency"]
    train = Interactions(
        IdMap.numbered(users, "user"),
        IdMap.numbered(items, "item"),
        np.array(arrays["offsets"]),
        np.array(arrays["item_rows"]),
        None if "times" not in arrays else np.array(arrays["times"]),
        recency=None if recency is None else read_recency(recency),
    )
    return TrainingData.of(train, arrays["user_weights"])


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
        raise ConfigError("shards: are for models of many models, such as loca-vae and ensemble-vae")
    models = -(-min(count, size.users) // shards)
    base, histories = model.base, 12 * size.entries + 8 * size.users
    uses = local_memory(base, models, model._engine(), size, "local models", model.base).values()
    weights = 4 * size.users * models
    return {
        "models": models,
        "main": sum(use.main for use in uses) + histories + weights,
        "device": sum(use.device for use in uses),
        "read": histories + weights,
        "saved": sum(use.checkpoint or use.training for use in uses) if base.learns_by_epoch else 0,
        "sent": 4 * size.validation_users * size.items if base.learns_by_epoch else 0,
        "part": sum(use.folder for use in uses),
    }


# -- A shard -----------------------------------------------------------------------------------------------------------


class Shard:
    """Some of the models of a job, in the process where they learn.

    A call that comes a second time, because its answer was lost, waits for the first.
    """

    def __init__(self, job: Job, number: int) -> None:
        self._lock = threading.Lock()
        self.job, self.number, self.task = job, number, job.task(number)
        self.checkpoint = self.task.data.context.checkpoint
        self.done, self.loss = 0, float("nan")
        self.local: LocalModels | None = None
        self.trainers: Sequence[Any] = ()
        if (job.part(number) / "model.json").exists():  # it was finished before
            self.local = self._load()
        elif self.task.models[0].learns_by_epoch:
            self.trainers, self.local = begin_locals(self.task, job.engine)
            saved = load_states(self.checkpoint, job.what)
            if saved is not None:
                facts, states = saved
                self.done, self.loss = int(facts["epoch"]), float(facts["loss"])
                for place, trainer in enumerate(self.trainers):
                    trainer.put_back(states[f"learning {place}"])

    def epoch(self, number: int) -> float:
        """Train up to an epoch, and save that; the mean loss. One that is done already is not done again."""
        with self._lock:
            while self.done < number:
                self.loss = float(np.mean([trainer.run_epoch() for trainer in self.trainers]))
                self.done += 1
                save_states(self.checkpoint, self.job.what, self.done, states_of(self.trainers), loss=self.loss)
        if self.done > number:
            raise ConfigError(f"shard {self.number}: is at epoch {self.done}, epoch {number} is gone")
        return self.loss

    def blend(self, histories: csr_array, answer_weights: csr_array) -> npt.NDArray[np.float32]:
        """The blended scores of its own models, as if there were no others."""
        assert self.local is not None
        with self._lock:
            return np.asarray(as_array(self.local.blend(histories, answer_weights)), np.float32)

    def save_best(self, epoch: int) -> None:
        """Save the weights of this epoch as the best so far."""
        best = BestWeights()
        best.offer(epoch, 0.0, self._networks())
        self.checkpoint.save(_BEST, best.state())

    def finish(self, epoch: int) -> str:
        """Write the models with the weights of an epoch, 0 for those they have; the folder they are in."""
        folder = self.job.part(self.number)
        with self._lock:
            if (folder / "model.json").exists():
                return str(folder)
            if epoch:
                saved, best = self.checkpoint.load(_BEST), BestWeights()
                if saved is None or saved.facts["epoch"] != epoch:
                    raise ModelFileError(f"shard {self.number}: the weights of epoch {epoch} are gone")
                best.put_back(saved, self._networks())
                best.give_back(self._networks())
            if self.trainers:
                assert self.local is not None
                self.local = self.local.finished(self.job.engine.answer_precision)
            else:
                self.local = fit_in_turn(self.task, self.job.engine)
            save_model(self.local, folder)
        return str(folder)

    def where(self) -> tuple[str, int]:
        """The machine and the process."""
        return os.uname().nodename, os.getpid()

    def _networks(self) -> list[Any]:
        return [network for trainer in self.trainers for network in trainer.networks]

    def _load(self) -> LocalModels:
        return load_part(self.job.part(self.number), self.task.centre)


def load_part(folder: Path, centre: Recommender | None) -> LocalModels:
    """The finished models of a shard, mapped."""
    local = load_model(folder, KINDS)
    if not isinstance(local, LocalModels):
        raise ModelFileError(f"{folder}: expected the local models of a shard, found {type(local).__name__}")
    return local if centre is None else local.around(centre)
