"""A cell, one model on one data set under one protocol with one seed: what it is, how it is computed and kept."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from loca.catalogue import KINDS
from loca.data.held_out import Split
from loca.data.recency import Recency
from loca.errors import ConfigError
from loca.experiments.candidates import describe_model
from loca.experiments.choices import Tried
from loca.experiments.protocols import Outcome, Terms, chosen_on, run_protocol
from loca.experiments.recency_choice import RecencyChoice, recency_json
from loca.experiments.settings import Table
from loca.experiments.tuned_settings import settings_of
from loca.files.known_interactions import read_recency
from loca.files.model_state import ModelState
from loca.files.shared_fits import digest_of_model
from loca.files.unfinished_work import digest_of, work_at_hand
from loca.files.written_values import read_value, write_value
from loca.models.recommender import Recommender
from loca.ranking.evaluation import Evaluation

if TYPE_CHECKING:
    from loca.experiments.spaces import Space
    from loca.experiments.tuning import Tuning, TuningBudget

_FORMAT = 1
_TUNING = "tuning"


@dataclass(frozen=True, eq=False)
class ComparedModel:
    """One model of a comparison: what it reached on test, the parameters it ended with, and what was tried.

    `recency` is what its test histories were weighed by, `tuning` what its study came to, where it was tuned, and
    `settings` what sets it apart from the catalogue's model, None where a settings file could not say it.
    """

    name: str
    evaluation: Evaluation
    parameters: dict[str, Any]
    tried: tuple[Tried, ...]
    chosen: int
    seconds: float
    recency: Recency | None = None
    tuning: Tuning | None = None
    settings: Table | None = None


@dataclass(frozen=True, eq=False)
class Cell:
    """What a cell is: a model with its candidates, the terms it is measured on, and the digest of the split.

    Two cells with the same `subject` give the same numbers. With a `space` the one candidate is tuned in it, under the
    budget of the terms.
    """

    name: str
    candidates: tuple[Recommender, ...]
    terms: Terms
    data: str
    space: Space | None = None

    def __post_init__(self) -> None:
        if not self.candidates:
            raise ConfigError(f"{self.name}: nothing to choose from: expected at least one candidate")
        if self.space is not None and (self.terms.budget is None or len(self.candidates) > 1):
            raise ConfigError(f"{self.name}: tuning in a space needs a budget and one candidate to begin with")

    def subject(self) -> dict[str, Any]:
        """All that the numbers of the cell depend on, as JSON values."""
        import loca

        described = [describe_model(one) for one in self.candidates]
        parameters = described[0] if len(described) == 1 else {f"candidate {k}": one for k, one in enumerate(described)}
        budget = None if self.terms.budget is None else asdict(self.terms.budget)
        return {
            "format of the cell": _FORMAT,
            "loca": loca.__version__,
            "compared as": self.name,
            "protocol": self.terms.protocol,
            "refit": self.terms.refit,
            "recency": self.terms.recency,
            "at": ", ".join(map(str, self.terms.at)),
            "compare.seed": self.terms.seed,
            "budget": budget,
            "space": None if self.space is None else str(self.space),
            "candidates": len(self.candidates),
            **parameters,
            "to the last bit": [digest_of_model(one) for one in self.candidates],
            "data": self.data,
        }


def digest_of_split(split: Split) -> str:
    """A short text that changes with anything in any part of the split."""
    parts = [split.train, split.train_and_validation]
    for held_out in (split.validation, split.test):
        parts += [] if held_out is None else [held_out.histories, held_out.targets]
    digests = " ".join([f"validation {split.validation is not None}", *map(digest_of, parts)])
    return hashlib.blake2b(digests.encode(), digest_size=16).hexdigest()


def compute_cell(cell: Cell, split: Split, *, study: Path | None = None) -> tuple[ComparedModel, Recommender]:
    """What the cell's model reaches, and the fitted model: tuned where there is a space, then put to the protocol.

    The trials of tuning are kept in the file `study`, if any, and go on from there.
    """
    tuning = None
    if cell.space is not None and cell.terms.budget is not None:
        tuning = _tune(cell, cell.terms.budget, cell.space, split, study)
    candidates = cell.candidates if tuning is None else (tuning.best,)
    outcome = run_protocol(candidates, split, cell.terms)
    measured = ComparedModel(
        name=cell.name,
        evaluation=outcome.evaluation,
        parameters=describe_model(outcome.model),
        tried=outcome.tried,
        chosen=outcome.chosen,
        seconds=outcome.seconds,
        recency=outcome.recency,
        tuning=tuning,
        settings=tuning.settings if tuning else _settings(cell.name, candidates[outcome.chosen], outcome),
    )
    return measured, outcome.model


def _settings(name: str, model: Recommender, outcome: Outcome) -> Table | None:
    try:
        return settings_of(name, model, tuple(outcome.tried[outcome.chosen].settings))
    except ConfigError:
        return None  # it holds what is made in a program alone, such as given embeddings


def _tune(cell: Cell, budget: TuningBudget, space: Space, split: Split, study: Path | None) -> Tuning:
    """What tuning comes to; an interrupted run that got so far has kept it."""
    from loca.experiments.tuning import tune

    work, terms, (template,) = work_at_hand(), cell.terms, cell.candidates
    kept = work.recall(_TUNING)
    if kept is not None:
        return _read_tuning(kept.facts[_TUNING], kept.arrays, template)
    train, questions = chosen_on(split, terms.protocol)
    tuning = tune(
        cell.name,
        template,
        train,
        questions,
        budget=budget,
        space=space,
        study=study,
        recency=terms.recency,
        seed=terms.seed,
    )
    arrays: dict[str, Any] = {}
    facts = {_TUNING: _write_tuning(tuning, arrays)}
    work.keep(_TUNING, ModelState(arrays, facts))
    return tuning


def cell_state(cell: Cell, measured: ComparedModel) -> ModelState:
    """A computed cell as arrays and facts, to be kept; the lists are left out."""
    evaluation = measured.evaluation
    arrays: dict[str, Any] = {f"metric/{name}": values for name, values in evaluation.values.items()}
    users = evaluation.users
    facts = {
        "subject": cell.subject(),
        "at": list(evaluation.at),
        "users": users.tolist() if users.dtype.kind == "O" else users,
        "catalogue_coverage": evaluation.catalogue_coverage,
        "novelty": evaluation.novelty,
        "item_count": evaluation.item_count,
        "seed": evaluation.seed,
        "parameters": measured.parameters,
        "tried": [_write_tried(one) for one in measured.tried],
        "chosen": measured.chosen,
        "seconds": measured.seconds,
        "recency": recency_json(measured.recency),
        _TUNING: None if measured.tuning is None else _write_tuning(measured.tuning, arrays),
        "settings": measured.settings,
    }
    return ModelState(arrays, facts)


def read_cell(cell: Cell, state: ModelState) -> ComparedModel:
    """The computed cell again, to the last bit, but with lists of length 0."""
    facts = state.facts
    users = facts["users"]
    ids = np.array(users, dtype=object) if isinstance(users, list) else np.array(users)
    evaluation = Evaluation(
        at=tuple(facts["at"]),
        users=ids,
        lists=np.empty((len(ids), 0), np.int32),
        values={
            name.removeprefix("metric/"): np.array(values)
            for name, values in state.arrays.items()
            if name.startswith("metric/")
        },
        catalogue_coverage=dict(facts["catalogue_coverage"]),
        novelty=dict(facts["novelty"]),
        item_count=facts["item_count"],
        seed=facts["seed"],
    )
    tuning = facts[_TUNING]
    return ComparedModel(
        name=cell.name,
        evaluation=evaluation,
        parameters=dict(facts["parameters"]),
        tried=tuple(map(_read_tried, facts["tried"])),
        chosen=facts["chosen"],
        seconds=facts["seconds"],
        recency=_read_recency(facts["recency"]),
        tuning=None if tuning is None else _read_tuning(tuning, state.arrays, cell.candidates[0]),
        settings=facts["settings"],
    )


def _write_tried(one: Tried) -> dict[str, Any]:
    return {
        "settings": one.settings,
        "ndcg": one.ndcg,
        "seconds": one.seconds,
        "recency": None if one.recency is None else one.recency.as_json(),
        "own": recency_json(one.own),
        "given": one.given,
        "report": one.report,
    }


def _read_tried(written: Mapping[str, Any]) -> Tried:
    recency = written["recency"]
    return Tried(
        settings=dict(written["settings"]),
        ndcg=written["ndcg"],
        seconds=written["seconds"],
        recency=None if recency is None else RecencyChoice.from_json(recency),
        own=_read_recency(written["own"]),
        given=written["given"],
        report=written["report"],
    )


def _read_recency(written: Any) -> Recency | None:
    return None if written is None else read_recency(written)


def _write_tuning(tuning: Tuning, arrays: dict[str, Any]) -> dict[str, Any]:
    where = f"{tuning.name}, tuned"
    return {
        "name": tuning.name,
        "best": write_value(tuning.best, arrays, where),
        "settings": write_value(tuning.settings, arrays, where),
        "ndcg": tuning.ndcg,
        "finished": tuning.finished,
        "pruned": tuning.pruned,
        "failed": tuning.failed,
        "seconds": tuning.seconds,
        "ndcg_before": tuning.ndcg_before,
        "importances": dict(tuning.importances),
    }


def _read_tuning(written: Mapping[str, Any], arrays: Mapping[str, Any], template: Recommender) -> Tuning:
    from loca.experiments.tuning import Tuning

    kinds = {**KINDS, type(template).__name__: type(template)}
    return Tuning(
        name=written["name"],
        best=read_value(written["best"], arrays, kinds),
        settings=read_value(written["settings"], arrays, kinds),
        ndcg=written["ndcg"],
        finished=written["finished"],
        pruned=written["pruned"],
        failed=written["failed"],
        seconds=written["seconds"],
        ndcg_before=written["ndcg_before"],
        importances=dict(written["importances"]),
    )
