"""Runs: one model on one split under one protocol and seed, what it reached, and their store."""

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
from loca.local.loca import Loca
from loca.local.many_models import ManyModels
from loca.models.devices import choose_device
from loca.models.recommender import Recommender
from loca.persistence import checkpoint as checkpoints
from loca.persistence.atomic_write import remove_files, write_whole
from loca.persistence.checkpoint import FINGERPRINT_KEY, Checkpoint, file_name_of, own_files
from loca.persistence.fit_context import NO_CONTEXT, FitCache, FitContext, checkpoint_in
from loca.persistence.manifest import (
    fingerprint,
    read_value,
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
    Outcome,
    run_as_chosen,
    run_protocol,
    selection_data,
)
from loca.tuning.recency_selection import RecencyChoice, recency_from_json, recency_json
from loca.tuning.warm_start import Tuning, remove_studies

RUNS_FOLDER = "runs"
_FORMAT = 4  # 4: models have finders, combiners and engines
_TUNING = "tuning"
_PLAIN = ("parameters", "chosen", "seconds", "settings", "size", "is_control")
_SUMMARY = ("catalogue_coverage", "novelty")  # of an evaluation, beside its values
_UNFINISHED = "unfinished"  # marks a comparison, and ends the name of a run's checkpoint
_BEGUN = "begun"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
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
        The number of the selected candidate.
    seconds : float
        From the first fit to the evaluation.
    recency : Recency or None
        What its test histories were weighted by.
    tuning : Tuning or None
        What its study came to, where it was tuned.
    settings : dict or None
        What sets it apart from the model of its name; None where a settings file could not say it.
    found : mapping of str
        What else is worth knowing of the fitted model and of the machine, by name.
    size : int or None
        How many models it is made of, at most; None of a single model.
    is_control : bool
        Whether its communities are a control for what communities earn.
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
    found: Mapping[str, Any] = field(default_factory=dict)
    size: int | None = None
    is_control: bool = False
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


@dataclass(frozen=True, eq=False, kw_only=True)
class Run:
    """A model with its candidates, the protocol that it is put to, and the digest of the split.

    Two runs with the same `fingerprint` give the same numbers. A subclass that measures more than
    the model itself extends `fingerprint`, `measured`, `write` and `read`.

    Parameters
    ----------
    name
        The name of the model in the comparison.
    candidates
        Unfitted models to select from.
    protocol
        How they are selected, fitted and measured.
    data
        The digest of the split.
    space
        Where the one candidate is tuned, under the budget of the protocol.
    shares_parts
        Whether what several runs of a store need, such as the same global model, is fitted by the
        first of them. The numbers are the same; the seconds are not those of the whole model.
    repeats
        The outcome whose choices the one candidate has; nothing more is chosen then.
    """

    name: str
    candidates: tuple[Recommender, ...]
    protocol: EvaluationProtocol
    data: str
    space: Space | None = None
    shares_parts: bool = False
    repeats: ComparedModel | None = None

    def fingerprint(self) -> dict[str, Any]:
        """Return all that the numbers of the run depend on, as JSON values."""
        described = [describe_model(candidate) for candidate in self.candidates]
        parameters = described[0]
        if len(described) > 1:
            parameters = {
                f"candidate {number}": parameters for number, parameters in enumerate(described)
            }
        protocol = asdict(self.protocol)
        protocol["at"] = ", ".join(map(str, self.protocol.at))
        protocol["metric"] = self.protocol.metric.described
        protocol["space"] = None if self.space is None else str(self.space)
        protocol["compare.seed"] = protocol.pop("seed")
        del protocol["device"]  # it changes the rounding alone
        repeated = {}
        if self.repeats is not None:
            repeated = {"as chosen by": self.repeats.name, "under": str(self.repeats.recency)}
        return {
            "format of the run": _FORMAT,
            "loca": loca.__version__,
            "compared as": self.name,
            **protocol,
            "candidates": len(self.candidates),
            **parameters,
            "to the last bit": [fingerprint(candidate) for candidate in self.candidates],
            "data": self.data,
            **repeated,
        }

    def execute(
        self, split: Split, *, study: Path | None = None, context: FitContext = NO_CONTEXT
    ) -> tuple[ComparedModel, Recommender]:
        """Return what the model reached, and the fitted model.

        It is tuned where there is a space, then put to the protocol. The trials of tuning are
        stored in the file `study`, if any, and go on from there.
        """
        with collect_remarks() as collected:
            tuning = None
            if self.space is not None:
                tuning = self._tune(split, study, context.checkpoint)
            outcome = self._outcome(split, tuning, context)
            measured = self.measured(outcome, tuning)
        return replace(measured, remarks=collected.remarks), outcome.model

    def _outcome(self, split: Split, tuning: Tuning | None, context: FitContext) -> Outcome:
        candidates = self.candidates if tuning is None else (tuning.best,)
        if self.repeats is None:
            return run_protocol(candidates, split, self.protocol, context)
        chosen = self.repeats.selected
        return run_as_chosen(candidates[0], chosen, split, self.protocol, context)

    def measured(self, outcome: Outcome, tuning: Tuning | None) -> ComparedModel:
        """Return what is kept of an outcome."""
        model = outcome.model
        machine = {"machine": describe_machine(), "torch": str(torch.__version__)}
        return ComparedModel(
            name=self.name,
            evaluation=outcome.evaluation,
            parameters=describe_model(model),
            tried=outcome.tried,
            chosen=outcome.chosen,
            seconds=outcome.seconds,
            recency=outcome.recency,
            tuning=tuning,
            settings=self._settings(outcome) if tuning is None else tuning.settings,
            found={**machine, **model.facts()},
            size=model.size if isinstance(model, ManyModels) else None,
            is_control=is_control(model),
            selected_model=_selected_networks(model),
            repeats="" if self.repeats is None else self.repeats.name,
        )

    def _settings(self, outcome: Outcome) -> Table | None:
        """Return the settings of the chosen candidate; None where a file could not say them."""
        always = tuple(outcome.tried[outcome.chosen].settings)
        try:
            return settings_of(self.name, self.candidates[outcome.chosen], always)
        except ConfigError:
            return None  # it holds what is made in a program alone, such as given embeddings

    def _tune(self, split: Split, study: Path | None, checkpoint: Checkpoint) -> Tuning:
        """Return what tuning comes to; an interrupted run that got so far has saved it."""
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

    def write(self, measured: ComparedModel) -> dict[str, Any]:
        """Return what the model reached as a state; the lists of items are left out."""
        evaluation, tuning = measured.evaluation, measured.tuning
        users = evaluation.users
        arrays: dict[str, Any] = {}  # of the models inside it
        state = {
            FINGERPRINT_KEY: self.fingerprint(),
            "at": list(evaluation.at),
            "users": users.tolist() if users.dtype.kind == "O" else users,
            "item_count": evaluation.item_count,
            "seed": evaluation.seed,
            **write_evaluation(evaluation),
            **{name: vars(measured)[name] for name in _PLAIN},
            "tried": [_write_candidate(candidate) for candidate in measured.tried],
            "recency": recency_json(measured.recency),
            _TUNING: None if tuning is None else _write_tuning(tuning, arrays),
            "found": dict(measured.found),
            "remarks": [remark.to_json() for remark in measured.remarks],
            "arrays": arrays,
        }
        if measured.selected_model is not None:
            where = f"{self.name}, as selected"
            state["selected model"] = write_value(measured.selected_model, arrays, where)
        return state

    def read(self, state: Mapping[str, Any]) -> ComparedModel:
        """Return what `write` made a state of, equal to the bit, but with lists of length 0."""
        tuning, selected, arrays = state[_TUNING], state.get("selected model"), state["arrays"]
        if tuning is not None:
            tuning = _read_tuning(tuning, arrays, self.candidates[0])
        if selected is not None:
            selected = read_value(selected, arrays, _kinds(self.candidates))
        return ComparedModel(
            name=self.name,
            evaluation=read_evaluation(state, state),
            **{name: state[name] for name in _PLAIN},
            tried=tuple(_read_candidate(written) for written in state["tried"]),
            recency=recency_from_json(state["recency"]),
            tuning=tuning,
            found=state["found"],
            selected_model=selected,
            repeats="" if self.repeats is None else self.repeats.name,
            remarks=read_remarks(state["remarks"]),
        )


def is_control(model: Recommender) -> bool:
    """Return whether the communities of a model are a control for what communities earn."""
    return isinstance(model, Loca) and model.communities.is_control


def _selected_networks(model: Recommender) -> Recommender | None:
    """Return the unfitted copy with all that was selected, of a model of many networks."""
    if isinstance(model, ManyModels) and model.base.learns_by_epoch:
        return model.selected()
    return None


def describe_machine() -> str:
    """Return the accelerator, if any, and the cores of this machine, in a few words."""
    cores = f"{os.cpu_count()} cores, {platform.machine()}"
    if torch.cuda.is_available():
        return f"{torch.cuda.get_device_name(0)}, {cores}"
    return cores


@dataclass(frozen=True)
class RunStore:
    """The runs of a comparison in a folder: finished ones are found again, unfinished ones go on.

    The folder `runs` holds one file for each finished run, `studies/` the trials of its tuning,
    both under the name of the run. A mark in `runs` is there from the begin of a comparison to its
    end. Without `keeps_begun` a run that was only begun leaves nothing: what hundreds of networks
    have learned takes tens of gigabytes.
    """

    folder: Path
    keeps_begun: bool = True

    @property
    def runs(self) -> Path:
        """The folder of the finished runs."""
        return self.folder / RUNS_FOLDER

    @property
    def _shared_parts(self) -> Path:
        return self.folder / "parts"

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
                f"{self.folder} holds an unfinished comparison; add --resume to go on with it, "
                "or --fresh to start over"
            )

    @contextmanager
    def opened(self, names: Iterable[str], *, resume: bool) -> Iterator[None]:
        """Let no other comparison use the folder while this lasts.

        Without `resume` all results there are dropped first, and the studies of the runs of these
        names.
        """
        with checkpoints.writable_folder(self.runs) as writable:
            if not writable:
                raise ConfigError(
                    f"{self.folder}: may not be written; "
                    "choose another folder to keep the results in"
                )
            if not resume:
                self._drop_results(names)
            try:
                yield
            except BaseException:
                if not own_files(self.runs) and not self._begun():
                    self.finish()  # a mistake that was noticed before anything was done
                raise

    def _drop_results(self, names: Iterable[str]) -> None:
        finished = [name for name in own_files(self.runs) if name.startswith("work-")]
        begun = self._begun()
        if finished or begun:
            say(f"{self.folder}: the earlier results there are replaced")
        remove_files(self.runs, finished)
        shutil.rmtree(self._shared_parts, ignore_errors=True)
        for folder in begun:
            checkpoints.remove_work(folder)
        stems = {_stem(name) for name in (*finished, *map(file_name_of, names))}
        for stem in stems | {folder.stem for folder in begun}:
            remove_studies(self._study_of(stem))

    def _begun(self) -> list[Path]:
        """Return the checkpoints of the runs that were begun and not finished."""
        return [path for path in self.runs.glob(f"*.{_UNFINISHED}") if path.is_dir()]

    def begin(self) -> None:
        """Mark the folder as that of an unfinished comparison, until `finish`."""
        write_whole(self.runs / _UNFINISHED, b"")

    def finish(self) -> None:
        """Remove the mark of an unfinished comparison, and the parts that its runs have shared."""
        (self.runs / _UNFINISHED).unlink(missing_ok=True)
        shutil.rmtree(self._shared_parts, ignore_errors=True)

    def find(self, run: Run) -> ComparedModel | None:
        """Return what a finished run has stored, if it is there; refuse another fingerprint."""
        state = Checkpoint(self.runs).load(run.name)
        if state is None:
            return None
        try:
            difference = checkpoints.first_difference(state[FINGERPRINT_KEY], run.fingerprint())
            if difference is None:
                return run.read(state)
        except (LookupError, TypeError, ValueError, AttributeError, LocaError) as error:
            path = self.runs / file_name_of(run.name)
            say(f"{path}: cannot be used ({error}); its work is done again")
            return None
        raise ConfigError(
            f"{self.folder} holds results of {run.name} that are not those requested: "
            f"{difference}; start over with --fresh, or choose another folder"
        )

    def execute(
        self, run: Run, split: Split, context: FitContext = NO_CONTEXT
    ) -> tuple[ComparedModel, Recommender]:
        """Execute a run, going on where an interrupted one stopped, and store what it reached."""
        if run.shares_parts:
            context = replace(context, cache=FitCache(self._shared_parts, KINDS))
        with ExitStack() as opened:
            study = None
            if self.keeps_begun:
                checkpoint, study = self._open_begun(run, opened)
                context = replace(context, checkpoint=checkpoint)
            try:
                measured, model = run.execute(split, study=study, context=context)
            except (ConfigError, DataError):
                if study is not None and not study.exists():
                    # A mistake: no trial has learned anything.
                    context.checkpoint.delete(_BEGUN)
                    with suppress(OSError):
                        study.parent.rmdir()
                raise
            Checkpoint(self.runs).save(run.name, run.write(measured))
        return measured, model

    def _open_begun(self, run: Run, opened: ExitStack) -> tuple[Checkpoint, Path | None]:
        """Return the checkpoint of a run while `opened` lasts, and the file of its study if any."""
        stem = _stem(file_name_of(run.name))
        unfinished = self.runs / f"{stem}.{_UNFINISHED}"
        in_use = choose_device(run.protocol.device).type
        own = {**run.fingerprint(), "device in use": in_use}
        resume = unfinished.is_dir() and checkpoints.holds_work(unfinished)
        context = opened.enter_context(checkpoint_in(unfinished, fingerprint=own, resume=resume))
        checkpoint = context.checkpoint
        if run.space is None:
            return checkpoint, None
        study = self._study_of(stem)
        if not resume:
            remove_studies(study)
            study.parent.mkdir(parents=True, exist_ok=True)
            # From here on the trials in the study are of this run.
            checkpoint.save(_BEGUN, {})
        return checkpoint, study


def _stem(file_name: str) -> str:
    """Return the name of a run as part of other file names, by the name of its file."""
    return file_name.removeprefix("work-").rsplit(".safetensors", 1)[0]


def write_evaluation(evaluation: Evaluation) -> dict[str, Any]:
    """Return the figures of an evaluation as a state, without its users."""
    summary = {name: vars(evaluation)[name] for name in _SUMMARY}
    return {"values": dict(evaluation.values), **summary}


def read_evaluation(written: Mapping[str, Any], state: Mapping[str, Any]) -> Evaluation:
    """Return what `write_evaluation` wrote; the state of the run has the users."""
    users = np.array(state["users"], dtype=object if isinstance(state["users"], list) else None)
    return Evaluation(
        at=tuple(state["at"]),
        users=users,
        lists=np.empty((len(users), 0), np.int32),
        values={name: np.array(values) for name, values in written["values"].items()},
        catalogue_coverage=dict(written["catalogue_coverage"]),
        novelty=dict(written["novelty"]),
        item_count=state["item_count"],
        seed=state["seed"],
    )


def _write_candidate(candidate: CandidateResult) -> dict[str, Any]:
    choice = candidate.recency
    return {
        **vars(candidate),
        "recency": None if choice is None else choice.as_json(),
        "own": recency_json(candidate.own),
    }


def _read_candidate(written: Mapping[str, Any]) -> CandidateResult:
    choice = written["recency"]
    if choice is not None:
        choice = RecencyChoice.from_json(choice)
    return CandidateResult(
        **{**written, "recency": choice, "own": recency_from_json(written["own"])}
    )


def _kinds(models: Iterable[Recommender]) -> dict[str, type]:
    """Return the classes that a file of such models may hold."""
    return {**KINDS, **{type(model).__name__: type(model) for model in models}}


def _write_tuning(tuning: Tuning, arrays: dict[str, Any]) -> dict[str, Any]:
    where = f"{tuning.name}, tuned"
    return {
        **vars(tuning),
        "best": write_value(tuning.best, arrays, where),
        "settings": write_value(tuning.settings, arrays, where),
        "importances": dict(tuning.importances),
    }


def _read_tuning(
    written: Mapping[str, Any], arrays: dict[str, Any], template: Recommender
) -> Tuning:
    kinds = _kinds([template])
    values = {name: read_value(written[name], arrays, kinds) for name in ("best", "settings")}
    return Tuning(**{**written, **values})
