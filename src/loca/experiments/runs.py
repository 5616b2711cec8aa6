"""Runs: one model on one split under one protocol with one seed, what comes of it, and the folder that stores it."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import loca
from loca.config.model_factory import describe_model
from loca.config.settings import Table, settings_of
from loca.data.recency import Recency
from loca.data.splits import Split
from loca.deferred import torch
from loca.errors import ConfigError, DataError, LocaError
from loca.evaluation.evaluate import Evaluation
from loca.models.devices import choose_device
from loca.models.recommender import Recommender, get_params
from loca.persistence import checkpoint as checkpoints
from loca.persistence.atomic_write import remove_files, write_whole
from loca.persistence.checkpoint import FINGERPRINT_KEY, Checkpoint, file_name_of, own_files
from loca.persistence.fit_context import NO_CONTEXT, FitCache, FitContext, checkpoint_in
from loca.persistence.manifest import (
    fingerprint,
    read_value,
    stored_params,
    write_value,
)
from loca.progress import say
from loca.registry import KINDS
from loca.remarks import Remarks, collect_remarks, read_remarks
from loca.search_space import Space
from loca.text_table import Readable, TextTable
from loca.tuning.model_selection import (
    CandidateResult,
    EvaluationProtocol,
    run_as_chosen,
    run_protocol,
    selection_data,
)
from loca.tuning.recency_selection import RecencyChoice, recency_from_json, recency_json
from loca.tuning.warm_start import Tuning, remove_studies

RUNS_FOLDER = "cells"  # named so by the first version, whose results are still found
_FORMAT = 3  # 3: validation scores are in a metric that is stored with them
_TUNING = "tuning"
_PLAIN = ("parameters", "chosen", "seconds", "settings")  # what is stored of a model as it is
_SUMMARY = ("catalogue_coverage", "novelty")  # what is stored of an evaluation beside its values
_UNFINISHED = "unfinished"  # marks a comparison, and ends the name of a run's checkpoint
_BEGUN = "begun"


@dataclass(frozen=True, eq=False, repr=False)
class ComparedModel(Readable):
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
    selected_model : Recommender or None
        Of a model of many networks: unfitted, with all that was selected.
    repeats : str
        The name of the model whose choices it has, where it only learns for more epochs than that.
    remarks : tuple of Remark
        What its fits ended with that changes the meaning of its figures.
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
    selected_model: Recommender | None = None
    repeats: str = ""
    remarks: Remarks = ()

    def shown(self) -> list[str | TextTable]:
        """Return what a person reads: the name, the selected candidate, and the evaluation on test.

        Returns
        -------
        list of str or TextTable
        """
        return [
            f"{self.name}, {self.seconds:.1f} s; on validation {self.selected}; on test:",
            *self.evaluation.shown(),
        ]

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
    repeats : the outcome whose choices the one candidate has; nothing more is chosen then
    """

    name: str
    candidates: tuple[Recommender, ...]
    protocol: EvaluationProtocol
    data: str
    space: Space | None = None
    counts: tuple[int, ...] = ()
    shares_parts: bool = False
    repeats: ComparedModel | None = None

    def fingerprint(self) -> dict[str, Any]:
        """All that the numbers of the run depend on, as JSON values."""
        described = [describe_model(one, stored_params) for one in self.candidates]
        parameters = (
            described[0]
            if len(described) == 1
            else {f"candidate {k}": one for k, one in enumerate(described)}
        )
        own = asdict(self.protocol)
        own |= {
            "at": ", ".join(map(str, own["at"])),
            "metric": self.protocol.metric.described,
            "space": None if self.space is None else str(self.space),
        }
        own["compare.seed"] = own.pop("seed")
        del own["device"]  # it changes the rounding alone
        return {
            "format of the cell": _FORMAT,
            "loca": loca.__version__,
            "compared as": self.name,
            **own,
            "candidates": len(self.candidates),
            **parameters,
            "to the last bit": [fingerprint(one) for one in self.candidates],
            "data": self.data,
            **({"counts": ", ".join(map(str, self.counts))} if self.counts else {}),
            **(
                {}
                if self.repeats is None
                else {"as chosen by": self.repeats.name, "under": str(self.repeats.recency)}
            ),
        }

    def execute(
        self, split: Split, *, study: Path | None = None, context: FitContext = NO_CONTEXT
    ) -> tuple[ComparedModel, Recommender]:
        """What the model reaches, and the fitted model: tuned where there is a space, then put to the protocol.

        The trials of tuning are stored in the file `study`, if any, and go on from there.
        """
        with collect_remarks() as collected:
            measured, model = self._execute(split, study, context)
        return replace(measured, remarks=collected.remarks), model

    def _execute(
        self, split: Split, study: Path | None, context: FitContext
    ) -> tuple[ComparedModel, Recommender]:
        tuning = None if self.space is None else self._tune(split, study, context.checkpoint)
        candidates = self.candidates if tuning is None else (tuning.best,)
        if self.repeats is None:
            outcome = run_protocol(candidates, split, self.protocol, context)
        else:
            outcome = run_as_chosen(
                candidates[0], self.repeats.selected, split, self.protocol, context
            )
        model, evaluation, chosen = outcome.model, outcome.evaluation, outcome.chosen
        settings: Table | None = None if tuning is None else tuning.settings
        if tuning is None:
            with suppress(
                ConfigError
            ):  # it holds what is made in a program alone, such as given embeddings
                settings = settings_of(
                    self.name, candidates[chosen], tuple(outcome.tried[chosen].settings)
                )
        by_count = {}
        for count in self.counts:
            first = model.truncate(count)
            is_whole = first is model
            by_count[count] = (
                evaluation if is_whole else self.protocol.evaluate(first, outcome.test)
            )
        found = {
            "machine": describe_machine(),
            "torch": str(torch.__version__),
            **model.facts(self.counts),
        }
        how = outcome.tried, chosen, outcome.seconds, outcome.recency
        measured = (
            self.name,
            evaluation,
            describe_model(model),
            *how,
            tuning,
            settings,
            by_count,
            found,
        )
        base = get_params(model).get("base")
        selected = (
            None if base is None or not base.learns_by_epoch else model.selected()
        )
        return ComparedModel(
            *measured, selected, "" if self.repeats is None else self.repeats.name
        ), model

    def _tune(self, split: Split, study: Path | None, checkpoint: Checkpoint) -> Tuning:
        """What tuning comes to; an interrupted run that got so far has saved it."""
        from loca.tuning.study import Tuner  # it needs optuna, which is an extra

        protocol, (template,) = self.protocol, self.candidates
        assert self.space is not None
        assert protocol.budget is not None
        saved = checkpoint.load(_TUNING)
        if saved is not None:
            return _read_tuning(saved[_TUNING], saved["arrays"], template)
        tuner = Tuner(
            self.name,
            template,
            *selection_data(split, protocol.protocol),
            self.space,
            protocol.budget,
            protocol.recency,
            protocol.seed,
            metric=protocol.metric,
            device=protocol.device,
        )
        tuning = tuner.tune(study)
        arrays: dict[str, Any] = {}
        checkpoint.save(_TUNING, {_TUNING: _write_tuning(tuning, arrays), "arrays": arrays})
        return tuning


def describe_machine() -> str:
    """The accelerator, if any, and the cores of this machine, in a few words."""
    cores = f"{os.cpu_count()} cores, {platform.machine()}"
    return f"{torch.cuda.get_device_name(0)}, {cores}" if torch.cuda.is_available() else cores


@dataclass(frozen=True)
class RunStore:
    """The runs of a comparison in a folder: finished ones are found again, unfinished ones go on.

    The folder `runs` holds one file for each finished run, `studies/` the trials of its tuning, both under the name of
    the run. A mark in `runs` is there from the begin of a comparison to its end. Without `keeps_begun` a run that was
    only begun leaves nothing: what hundreds of networks have learned takes tens of gigabytes.
    """

    folder: Path
    keeps_begun: bool = True

    @property
    def runs(self) -> Path:
        """The folder of the finished runs."""
        return self.folder / RUNS_FOLDER

    def _study_of(self, stem: str) -> Path:
        return self.folder / "studies" / f"{stem}.db"

    def check_start(self, *, resume: bool, fresh: bool = False) -> None:
        """Refuse an unfinished comparison that the caller neither goes on with nor drops."""
        if resume and fresh:
            raise ConfigError(
                "--resume goes on with unfinished work, --fresh drops it; expected one, found both"
            )
        if (self.runs / _UNFINISHED).exists() and not (resume or fresh):
            raise ConfigError(
                f"{self.folder} holds an unfinished comparison; add --resume to go on with it, or --fresh to start over"
            )

    @contextmanager
    def opened(self, names: Iterable[str], *, resume: bool) -> Iterator[None]:
        """While this lasts no other comparison may use the folder.

        Without `resume` all results there are dropped first, and the studies of the runs called `names`.
        """
        with checkpoints.writable_folder(self.runs) as writable:
            if not writable:
                raise ConfigError(
                    f"{self.folder}: may not be written; choose another folder to keep the results in"
                )
            if not resume:
                finished, begun = (
                    [one for one in own_files(self.runs) if one.startswith("work-")],
                    self._begun(),
                )
                if finished or begun:
                    say(f"{self.folder}: the earlier results there are replaced")
                remove_files(self.runs, finished)
                shutil.rmtree(self.folder / "parts", ignore_errors=True)
                for one in begun:
                    checkpoints.remove_work(one)
                files = {*finished, *map(file_name_of, names)}
                for stem in {*map(_stem, files), *(one.stem for one in begun)}:
                    remove_studies(self._study_of(stem))
            try:
                yield
            except BaseException:
                if not own_files(self.runs) and not self._begun():
                    self.finish()  # a mistake that was noticed before anything was done
                raise

    def _begun(self) -> list[Path]:
        """The checkpoints of the runs that were begun and not finished."""
        return [one for one in self.runs.glob(f"*.{_UNFINISHED}") if one.is_dir()]

    def begin(self) -> None:
        """Mark the folder as that of an unfinished comparison, until `finish`."""
        write_whole(self.runs / _UNFINISHED, b"")

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
            difference = checkpoints.first_difference(state[FINGERPRINT_KEY], run.fingerprint())
            if difference is None:
                return _read_run(run, state)
        except (LookupError, TypeError, ValueError, AttributeError, LocaError) as error:
            say(
                f"{self.runs / file_name_of(run.name)}: cannot be used ({error}); its work is done again"
            )
            return None
        raise ConfigError(
            f"{self.folder} holds results of {run.name} that are not those requested: {difference}; start over with "
            "--fresh, or choose another folder"
        )

    def execute(
        self, run: Run, split: Split, context: FitContext = NO_CONTEXT
    ) -> tuple[ComparedModel, Recommender]:
        """Execute a run, going on where an interrupted one stopped, and store what comes of it."""
        if run.shares_parts:
            context = replace(context, cache=FitCache(self.folder / "parts", KINDS))
        study = None
        with ExitStack() as opened:
            if self.keeps_begun:
                stem = _stem(file_name_of(run.name))
                unfinished = self.runs / f"{stem}.{_UNFINISHED}"
                in_use = choose_device(run.protocol.device).type
                own = {**run.fingerprint(), "device in use": in_use}
                resume = unfinished.is_dir() and checkpoints.holds_work(unfinished)
                checkpoint = opened.enter_context(
                    checkpoint_in(unfinished, fingerprint=own, resume=resume)
                ).checkpoint
                context = replace(context, checkpoint=checkpoint)
                study = None if run.space is None else self._study_of(stem)
                if study is not None and not resume:
                    remove_studies(study)
                    study.parent.mkdir(parents=True, exist_ok=True)
                    # From here on the trials in the study are of this run.
                    checkpoint.save(_BEGUN, {})
            try:
                measured, model = run.execute(split, study=study, context=context)
            except (ConfigError, DataError):
                if (
                    study is not None and not study.exists()
                ):  # no trial has learned anything: a mistake
                    context.checkpoint.delete(_BEGUN)
                    with suppress(OSError):
                        study.parent.rmdir()
                raise
            Checkpoint(self.runs).save(run.name, _write_run(run, measured))
        return measured, model


def _stem(file_name: str) -> str:
    """The name of a run as part of other file names, by the name of its file."""
    return file_name.removeprefix("work-").rsplit(".safetensors", 1)[0]


def _write_run(run: Run, measured: ComparedModel) -> dict[str, Any]:
    """Return what came of a run as a state; the lists of items are left out."""
    evaluation, users = measured.evaluation, measured.evaluation.users
    arrays: dict[str, Any] = {}  # of the models inside it
    tried = [
        vars(one)
        | {
            "recency": None if one.recency is None else one.recency.as_json(),
            "own": recency_json(one.own),
        }
        for one in measured.tried
    ]
    state = {
        FINGERPRINT_KEY: run.fingerprint(),
        "at": list(evaluation.at),
        "users": users.tolist() if users.dtype.kind == "O" else users,
        **{name: vars(evaluation)[name] for name in (*_SUMMARY, "item_count", "seed")},
        "values": dict(evaluation.values),
        **{name: vars(measured)[name] for name in _PLAIN},
        "tried": tried,
        "recency": recency_json(measured.recency),
        _TUNING: None if measured.tuning is None else _write_tuning(measured.tuning, arrays),
        "by_count": {
            str(k): {"values": dict(one.values), **{name: vars(one)[name] for name in _SUMMARY}}
            for k, one in measured.by_count.items()
        },
        "found": dict(measured.found),
        "remarks": [one.to_json() for one in measured.remarks],
        "arrays": arrays,
    }
    if measured.selected_model is not None:
        state["selected model"] = write_value(
            measured.selected_model, arrays, f"{run.name}, as selected"
        )
    return state


def _read_run(run: Run, state: Mapping[str, Any]) -> ComparedModel:
    """Return what came of a run again, equal to the bit, but with lists of length 0."""
    tuning, selected, arrays = state[_TUNING], state.get("selected model"), state["arrays"]
    users = np.array(state["users"], dtype=object if isinstance(state["users"], list) else None)

    def evaluation(summary: Mapping[str, Any]) -> Evaluation:
        values = {name: np.array(values) for name, values in summary["values"].items()}
        coverage, novelty = (dict(summary[name]) for name in _SUMMARY)
        known = tuple(state["at"]), users, np.empty((len(users), 0), np.int32)
        return Evaluation(*known, values, coverage, novelty, state["item_count"], state["seed"])

    tried = []
    for one in state["tried"]:
        choice = None if one["recency"] is None else RecencyChoice.from_json(one["recency"])
        tried.append(
            CandidateResult(**{**one, "recency": choice, "own": recency_from_json(one["own"])})
        )
    return ComparedModel(
        name=run.name,
        evaluation=evaluation(state),
        **{name: state[name] for name in _PLAIN},
        tried=tuple(tried),
        recency=recency_from_json(state["recency"]),
        tuning=None if tuning is None else _read_tuning(tuning, arrays, run.candidates[0]),
        by_count={int(count): evaluation(one) for count, one in state["by_count"].items()},
        found=state["found"],
        selected_model=None
        if selected is None
        else read_value(selected, arrays, _kinds(run.candidates)),
        repeats="" if run.repeats is None else run.repeats.name,
        remarks=read_remarks(state["remarks"]),
    )


def _kinds(models: Iterable[Recommender]) -> dict[str, type]:
    """The classes that a file of such models may hold."""
    return {**KINDS, **{type(one).__name__: type(one) for one in models}}


def _write_tuning(tuning: Tuning, arrays: dict[str, Any]) -> dict[str, Any]:
    own = {
        name: write_value(vars(tuning)[name], arrays, f"{tuning.name}, tuned")
        for name in ("best", "settings")
    }
    return {**vars(tuning), **own, "importances": dict(tuning.importances)}


def _read_tuning(
    written: Mapping[str, Any], arrays: Mapping[str, Any], template: Recommender
) -> Tuning:
    kinds = _kinds([template])
    return Tuning(
        **{
            **written,
            **{name: read_value(written[name], arrays, kinds) for name in ("best", "settings")},
        }
    )
