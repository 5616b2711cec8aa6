"""Runs: one model on one split under one protocol with one seed, what comes of it, and the folder that stores it."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import loca
from loca.config.model_factory import describe_model
from loca.config.settings import Table, settings_of
from loca.data.recency import Recency
from loca.data.splits import Split
from loca.errors import ConfigError, DataError, LocaError
from loca.evaluation.evaluate import Evaluation, evaluate
from loca.models.devices import choose_device
from loca.models.recommender import Recommender
from loca.persistence.atomic_write import remove_files
from loca.persistence.checkpoint import (
    FINGERPRINT_KEY,
    Checkpoint,
    file_name_of,
    first_difference,
    holds_work,
    open_checkpoint,
    own_files,
    put_file,
    remove_work,
    writable_folder,
)
from loca.persistence.fit_context import NO_CONTEXT, FitCache, FitContext
from loca.persistence.manifest import ModelState, fingerprint, read_value, write_value
from loca.progress import say
from loca.registry import KINDS
from loca.search_space import Space
from loca.tuning.model_selection import CandidateResult, EvaluationProtocol, run_protocol, selection_data
from loca.tuning.recency_selection import RecencyChoice, recency_from_json, recency_json
from loca.tuning.warm_start import Tuning, remove_studies

_FORMAT = 2  # 2: the metrics of `paper` are divided as in the paper
_TUNING = "tuning"
_PLAIN = ("parameters", "chosen", "seconds", "settings")  # what is stored of a model as it is
_UNFINISHED = "unfinished"  # marks a comparison, and ends the name of a run's checkpoint
_BEGUN = "begun"


@dataclass(frozen=True, eq=False)
class ComparedModel:
    """Hold what one model reached.

    Attributes
    ----------
    name : str
        Its name in the comparison.
    evaluation : Evaluation
        What it reached on test.
    parameters : dict
        Those it ended with.
    tried : tuple of CandidateResult
        The result of every candidate.
    chosen : int
        The place of the selected candidate.
    seconds : float
        From the first fit to the evaluation.
    recency : Recency or None
        What its test histories were weighted by.
    tuning : Tuning or None
        What its study came to, where it was tuned.
    settings : dict or None
        What sets it apart from the model of its name; None where a settings file could not say it.
    by_count : mapping of int to Evaluation
        What the first local models alone reached, by their number.
    found : mapping of str
        What else is worth knowing of the fitted model and of the machine, by name.
    """

    name: str
    evaluation: Evaluation
    parameters: dict[str, Any]
    tried: tuple[CandidateResult, ...]
    chosen: int
    seconds: float
    recency: Recency | None = None
    tuning: Tuning | None = None
    settings: Table | None = None
    by_count: Mapping[int, Evaluation] = field(default_factory=dict)
    found: Mapping[str, Any] = field(default_factory=dict)

    @property
    def selected(self) -> CandidateResult:
        """The result of the selected candidate."""
        return self.tried[self.chosen]


@dataclass(frozen=True, eq=False)
class Run:
    """A model with its candidates, the protocol that it is put to, and the digest of the split.

    Two runs with the same `fingerprint` give the same numbers.

    Parameters
    ----------
    name : the name of the model in the comparison
    candidates : unfitted models to select from
    protocol : how they are selected, fitted and measured
    data : the digest of the split
    space : where the one candidate is tuned, under the budget of the protocol
    counts : a local model or an ensemble is also measured with only its first models, for each of these numbers
    shares_parts : what several runs of a store need, such as the same global model, is fitted by the first of them;
        the numbers are the same, but the seconds are not those of the whole model
    """

    name: str
    candidates: tuple[Recommender, ...]
    protocol: EvaluationProtocol
    data: str
    space: Space | None = None
    counts: tuple[int, ...] = ()
    shares_parts: bool = False

    def fingerprint(self) -> dict[str, Any]:
        """All that the numbers of the run depend on, as JSON values."""
        described = [describe_model(one) for one in self.candidates]
        parameters = described[0] if len(described) == 1 else {f"candidate {k}": one for k, one in enumerate(described)}
        protocol = self.protocol
        return {
            "format of the cell": _FORMAT,
            "loca": loca.__version__,
            "compared as": self.name,
            "protocol": protocol.protocol,
            "refit": protocol.refit,
            "recency": protocol.recency,
            "at": ", ".join(map(str, protocol.at)),
            "compare.seed": protocol.seed,
            "budget": None if protocol.budget is None else asdict(protocol.budget),
            "space": None if self.space is None else str(self.space),
            "candidates": len(self.candidates),
            **parameters,
            "to the last bit": [fingerprint(one) for one in self.candidates],
            "data": self.data,
            **({"counts": ", ".join(map(str, self.counts))} if self.counts else {}),
        }

    def execute(
        self, split: Split, *, study: Path | None = None, context: FitContext = NO_CONTEXT
    ) -> tuple[ComparedModel, Recommender]:
        """What the model reaches, and the fitted model: tuned where there is a space, then put to the protocol.

        The trials of tuning are stored in the file `study`, if any, and go on from there.
        """
        tuning = None if self.space is None else self._tune(self.space, split, study, context.checkpoint)
        candidates = self.candidates if tuning is None else (tuning.best,)
        outcome = run_protocol(candidates, split, self.protocol, context)
        model = outcome.model
        settings: Table | None = None if tuning is None else tuning.settings
        if tuning is None:
            with suppress(ConfigError):  # it holds what is made in a program alone, such as given embeddings
                chosen = outcome.tried[outcome.chosen].settings
                settings = settings_of(self.name, candidates[outcome.chosen], tuple(chosen))
        by_count = {}
        for count in self.counts:
            first, own = model.truncate(count), self.protocol
            by_count[count] = outcome.evaluation
            if first is not model:
                by_count[count] = evaluate(first, outcome.test, at=own.at, seed=own.seed)
        measured = ComparedModel(
            name=self.name,
            evaluation=outcome.evaluation,
            parameters=describe_model(model),
            tried=outcome.tried,
            chosen=outcome.chosen,
            seconds=outcome.seconds,
            recency=outcome.recency,
            tuning=tuning,
            settings=settings,
            by_count=by_count,
            found={"machine": describe_machine(), "torch": str(torch.__version__), **model.facts(self.counts)},
        )
        return measured, model

    def _tune(self, space: Space, split: Split, study: Path | None, checkpoint: Checkpoint) -> Tuning:
        """What tuning comes to; an interrupted run that got so far has saved it."""
        from loca.tuning.study import Tuner  # it needs optuna, which is an extra

        protocol, (template,) = self.protocol, self.candidates
        assert protocol.budget is not None
        saved = checkpoint.load(_TUNING)
        if saved is not None:
            return _read_tuning(saved.facts[_TUNING], saved.arrays, template)
        train, validation = selection_data(split, protocol.protocol)
        own = protocol.budget, protocol.recency, protocol.seed
        tuning = Tuner(self.name, template, train, validation, space, *own).tune(study)
        arrays: dict[str, Any] = {}
        checkpoint.save(_TUNING, ModelState(arrays, {_TUNING: _write_tuning(tuning, arrays)}))
        return tuning


def describe_machine() -> str:
    """The accelerator, if any, and the cores of this machine, in a few words."""
    cores = f"{os.cpu_count()} cores, {platform.machine()}"
    return f"{torch.cuda.get_device_name(0)}, {cores}" if torch.cuda.is_available() else cores


@dataclass(frozen=True)
class RunStore:
    """The runs of a comparison in a folder: finished ones are found again, unfinished ones go on.

    `cells/` holds one file for each finished run, `studies/` the trials of its tuning, both under the name of the run.
    `cells/unfinished` is there from the begin of a comparison to its end. Without `keeps_begun` a run that was only
    begun leaves nothing: what hundreds of networks have learned takes tens of gigabytes.
    """

    folder: Path
    keeps_begun: bool = True

    @property
    def runs(self) -> Path:
        """The folder of the finished runs."""
        return self.folder / "cells"

    def _study_of(self, stem: str) -> Path:
        return self.folder / "studies" / f"{stem}.db"

    def check_start(self, *, resume: bool, fresh: bool = False) -> None:
        """Refuse an unfinished comparison that the caller neither goes on with nor drops."""
        if resume and fresh:
            raise ConfigError("--resume goes on with unfinished work, --fresh drops it; expected one, found both")
        if (self.runs / _UNFINISHED).exists() and not (resume or fresh):
            raise ConfigError(
                f"{self.folder} holds an unfinished comparison; add --resume to go on with it, or --fresh to start over"
            )

    @contextmanager
    def opened(self, names: Iterable[str], *, resume: bool) -> Iterator[None]:
        """While this lasts no other comparison may use the folder; without `resume` what is there is dropped first."""
        with writable_folder(self.runs) as writable:
            if not writable:
                raise ConfigError(f"{self.folder}: may not be written; choose another folder to keep the results in")
            if not resume:
                self._drop(names)
            try:
                yield
            except BaseException:
                if not own_files(self.runs) and not self._begun():
                    self.finish()  # a mistake that was noticed before anything was done
                raise

    def begin(self) -> None:
        """Mark the folder as that of an unfinished comparison, until `finish`."""
        put_file(self.runs / _UNFINISHED, lambda file: file.write(b""))

    def finish(self) -> None:
        """Take away the mark of an unfinished comparison, and the parts that its runs have shared."""
        (self.runs / _UNFINISHED).unlink(missing_ok=True)
        shutil.rmtree(self.folder / "parts", ignore_errors=True)

    def find(self, run: Run) -> ComparedModel | None:
        """What came of a finished run, if it is there; one of another fingerprint is refused."""
        state = Checkpoint(self.runs).load(run.name)
        if state is None:
            return None
        try:
            difference = first_difference(state.facts[FINGERPRINT_KEY], run.fingerprint())
            if difference is None:
                return _read_run(run, state)
        except (LookupError, TypeError, ValueError, AttributeError, LocaError) as error:
            say(f"{self.runs / file_name_of(run.name)}: cannot be used ({error}); its work is done again")
            return None
        raise ConfigError(
            f"{self.folder} holds results of {run.name} that are not those requested: {difference}; start over with "
            "--fresh, or choose another folder"
        )

    def execute(self, run: Run, split: Split, context: FitContext = NO_CONTEXT) -> tuple[ComparedModel, Recommender]:
        """Execute a run, going on where an interrupted one stopped, and store what comes of it."""
        if run.shares_parts:
            context = replace(context, cache=FitCache(self.folder / "parts", KINDS))
        with self._checkpointed(run, context) as (own, study):
            measured, model = run.execute(split, study=study, context=own)
            Checkpoint(self.runs).save(run.name, _run_state(run, measured))
        return measured, model

    @contextmanager
    def _checkpointed(self, run: Run, context: FitContext) -> Iterator[tuple[FitContext, Path | None]]:
        """The context with a checkpoint, and the file of the run's study; nothing of both without `keeps_begun`."""
        if not self.keeps_begun:
            yield context, None
            return
        stem = _stem(run.name)
        unfinished, study = self.runs / f"{stem}.{_UNFINISHED}", self._study_of(stem)
        fingerprint = {**run.fingerprint(), "device in use": choose_device("auto").type}
        resume = unfinished.is_dir() and holds_work(unfinished)
        with open_checkpoint(unfinished, fingerprint, resume=resume) as checkpoint:
            if run.space is not None and not resume:
                remove_studies(study)
                study.parent.mkdir(parents=True, exist_ok=True)
                checkpoint.save(_BEGUN, ModelState())  # from here on the trials in the study are of this fingerprint
            try:
                yield replace(context, checkpoint=checkpoint), study
            except (ConfigError, DataError):
                if run.space is not None and not study.exists():  # no trial has learned anything: a mistake
                    checkpoint.delete(_BEGUN)
                    with suppress(OSError):
                        study.parent.rmdir()
                raise

    def _begun(self) -> list[Path]:
        return [one for one in self.runs.glob(f"*.{_UNFINISHED}") if one.is_dir()]

    def _drop(self, names: Iterable[str]) -> None:
        finished, begun = [one for one in own_files(self.runs) if one.startswith("work-")], self._begun()
        if finished or begun:
            say(f"{self.folder}: the earlier results there are replaced")
        stems = {_stem(name) for name in names} | {
            one.removeprefix("work-").split(".safetensors")[0] for one in finished
        }
        remove_files(self.runs, finished)
        shutil.rmtree(self.folder / "parts", ignore_errors=True)
        for one in begun:
            stems.add(one.name.removesuffix(f".{_UNFINISHED}"))
            remove_work(one)
        for stem in stems:
            remove_studies(self._study_of(stem))


def _stem(name: str) -> str:
    """A name as part of a file name."""
    return file_name_of(name).removeprefix("work-").removesuffix(".safetensors")


def _run_state(run: Run, measured: ComparedModel) -> ModelState:
    """What came of a run as arrays and facts; the lists of items are left out."""
    evaluation, users = measured.evaluation, measured.evaluation.users
    evaluations = {"metric": evaluation} | {f"first {count}": one for count, one in measured.by_count.items()}
    arrays: dict[str, Any] = {
        f"{begin}/{name}": values for begin, one in evaluations.items() for name, values in one.values.items()
    }
    tried = [
        vars(one) | {"recency": None if one.recency is None else one.recency.as_json(), "own": recency_json(one.own)}
        for one in measured.tried
    ]
    facts = {
        FINGERPRINT_KEY: run.fingerprint(),
        "at": list(evaluation.at),
        "users": users.tolist() if users.dtype.kind == "O" else users,
        **_summary(evaluation),
        "item_count": evaluation.item_count,
        "seed": evaluation.seed,
        **{name: vars(measured)[name] for name in _PLAIN},
        "tried": tried,
        "recency": recency_json(measured.recency),
        _TUNING: None if measured.tuning is None else _write_tuning(measured.tuning, arrays),
        "by_count": {str(count): _summary(one) for count, one in measured.by_count.items()},
        "found": dict(measured.found),
    }
    return ModelState(arrays, facts)


def _summary(evaluation: Evaluation) -> dict[str, Any]:
    return {"catalogue_coverage": evaluation.catalogue_coverage, "novelty": evaluation.novelty}


def _read_run(run: Run, state: ModelState) -> ComparedModel:
    """What came of a run again, equal to the bit, but with lists of length 0."""
    facts, tuning = state.facts, state.facts[_TUNING]
    users = np.array(facts["users"], dtype=object if isinstance(facts["users"], list) else None)

    def evaluation(summary: Mapping[str, Any], begin: str) -> Evaluation:
        named = ((name.partition("/"), values) for name, values in state.arrays.items())
        return Evaluation(
            at=tuple(facts["at"]),
            users=users,
            lists=np.empty((len(users), 0), np.int32),
            values={name: np.array(values) for (whose, _, name), values in named if whose == begin},
            catalogue_coverage=dict(summary["catalogue_coverage"]),
            novelty=dict(summary["novelty"]),
            item_count=facts["item_count"],
            seed=facts["seed"],
        )

    tried = []
    for one in facts["tried"]:
        choice = None if one["recency"] is None else RecencyChoice.from_json(one["recency"])
        tried.append(CandidateResult(**{**one, "recency": choice, "own": recency_from_json(one["own"])}))
    return ComparedModel(
        name=run.name,
        evaluation=evaluation(facts, "metric"),
        **{name: facts[name] for name in _PLAIN},
        tried=tuple(tried),
        recency=recency_from_json(facts["recency"]),
        tuning=None if tuning is None else _read_tuning(tuning, state.arrays, run.candidates[0]),
        by_count={int(count): evaluation(one, f"first {count}") for count, one in facts.get("by_count", {}).items()},
        found=dict(facts.get("found", {})),
    )


def _write_tuning(tuning: Tuning, arrays: dict[str, Any]) -> dict[str, Any]:
    own = {name: write_value(vars(tuning)[name], arrays, f"{tuning.name}, tuned") for name in ("best", "settings")}
    return {**vars(tuning), **own, "importances": dict(tuning.importances)}


def _read_tuning(written: Mapping[str, Any], arrays: Mapping[str, Any], template: Recommender) -> Tuning:
    kinds = {**KINDS, type(template).__name__: type(template)}
    return Tuning(**{**written, **{name: read_value(written[name], arrays, kinds) for name in ("best", "settings")}})
