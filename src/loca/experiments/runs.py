"""A cell, one model on one data set under one protocol with one seed: what it is, and what comes of it."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from loca.config.model_factory import describe_model
from loca.config.settings import Table, settings_of
from loca.data.recency import Recency
from loca.data.splits import Split
from loca.errors import ConfigError
from loca.evaluation.evaluate import Evaluation, evaluate
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.local.local_models import first_models
from loca.models.recommender import Recommender, fitted
from loca.persistence.checkpoint import Checkpoint, digest_of
from loca.persistence.fit_context import NO_CONTEXT, FitContext, digest_of_model
from loca.persistence.manifest import ModelState, read_value, write_value
from loca.persistence.model_io import read_recency
from loca.registry import KINDS
from loca.tuning.model_selection import CandidateResult, EvaluationProtocol, Outcome, run_protocol, selection_data
from loca.tuning.recency_selection import RecencyChoice, recency_json

if TYPE_CHECKING:
    from loca.search_space import Budget, Space
    from loca.tuning.study import Tuning


_FORMAT = 2  # 2: the metrics of `paper` are divided as in the paper


@dataclass(frozen=True, eq=False)
class ComparedModel:
    """One model of a comparison: what it reached on test, the parameters it ended with, and what was tried.

    `recency` is what its test histories were weighed by, `tuning` what its study came to, where it was tuned, and
    `settings` what sets it apart from the catalogue's model, None where a settings file could not say it. `by_count`
    is what the first models alone reached, by their number, `found` what else is worth knowing of the fitted model and
    of the machine, by name.
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


@dataclass(frozen=True, eq=False)
class Run:
    """What a cell is: a model with its candidates, the terms it is measured on, and the digest of the split.

    Two cells with the same `subject` give the same numbers. With a `space` the one candidate is tuned in it, under the
    budget of the terms. A local model or an ensemble is also measured with only its first models, for each of `counts`.
    With `shares_parts` what several cells of a store need, such as the same global model, is fitted by the first of
    them; the numbers are the same, but the seconds are not those of the whole model.
    """

    name: str
    candidates: tuple[Recommender, ...]
    terms: EvaluationProtocol
    data: str
    space: Space | None = None
    counts: tuple[int, ...] = ()
    shares_parts: bool = False

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
        counts = {"counts": ", ".join(map(str, self.counts))} if self.counts else {}
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
            **counts,
        }


def digest_of_split(split: Split) -> str:
    """A short text that changes with anything in any part of the split."""
    parts = [split.train, split.train_and_validation]
    for held_out in (split.validation, split.test):
        parts += [] if held_out is None else [held_out.histories, held_out.targets]
    digests = " ".join([f"validation {split.validation is not None}", *map(digest_of, parts)])
    return hashlib.blake2b(digests.encode(), digest_size=16).hexdigest()


TUNING = "tuning"


def run_state(cell: Run, measured: ComparedModel) -> ModelState:
    """A computed cell as arrays and facts, to be kept; the lists are left out."""
    evaluation = measured.evaluation
    arrays: dict[str, Any] = {f"metric/{name}": values for name, values in evaluation.values.items()}
    for count, first in measured.by_count.items():
        arrays |= {f"first {count}/{name}": values for name, values in first.values.items()}
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
        TUNING: None if measured.tuning is None else write_tuning(measured.tuning, arrays),
        "settings": measured.settings,
        "by_count": {str(count): _write_summary(one) for count, one in measured.by_count.items()},
        "found": dict(measured.found),
    }
    return ModelState(arrays, facts)


def read_run(cell: Run, state: ModelState) -> ComparedModel:
    """The computed cell again, to the last bit, but with lists of length 0."""
    facts = state.facts
    evaluation = _read_evaluation(facts, facts, state.arrays, "metric")
    counts = {int(count): one for count, one in facts.get("by_count", {}).items()}
    tuning = facts[TUNING]
    return ComparedModel(
        name=cell.name,
        evaluation=evaluation,
        parameters=dict(facts["parameters"]),
        tried=tuple(map(_read_tried, facts["tried"])),
        chosen=facts["chosen"],
        seconds=facts["seconds"],
        recency=_read_recency(facts["recency"]),
        tuning=None if tuning is None else read_tuning(tuning, state.arrays, cell.candidates[0]),
        settings=facts["settings"],
        by_count={count: _read_evaluation(facts, one, state.arrays, f"first {count}") for count, one in counts.items()},
        found=dict(facts.get("found", {})),
    )


def _write_summary(evaluation: Evaluation) -> dict[str, Any]:
    return {"catalogue_coverage": evaluation.catalogue_coverage, "novelty": evaluation.novelty}


def _read_evaluation(
    whose: Mapping[str, Any], summary: Mapping[str, Any], arrays: Mapping[str, Any], begin: str
) -> Evaluation:
    """The evaluation of the users that the cell names, whose metrics stand under names with that begin."""
    users = whose["users"]
    ids = np.array(users, dtype=object) if isinstance(users, list) else np.array(users)
    named = {name.removeprefix(f"{begin}/"): values for name, values in arrays.items() if name.startswith(f"{begin}/")}
    return Evaluation(
        at=tuple(whose["at"]),
        users=ids,
        lists=np.empty((len(ids), 0), np.int32),
        values={name: np.array(values) for name, values in named.items()},
        catalogue_coverage=dict(summary["catalogue_coverage"]),
        novelty=dict(summary["novelty"]),
        item_count=whose["item_count"],
        seed=whose["seed"],
    )


def _write_tried(one: CandidateResult) -> dict[str, Any]:
    return {
        "settings": one.settings,
        "ndcg": one.ndcg,
        "seconds": one.seconds,
        "recency": None if one.recency is None else one.recency.as_json(),
        "own": recency_json(one.own),
        "given": one.given,
        "report": one.report,
    }


def _read_tried(written: Mapping[str, Any]) -> CandidateResult:
    recency = written["recency"]
    return CandidateResult(
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


def write_tuning(tuning: Tuning, arrays: dict[str, Any]) -> dict[str, Any]:
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


def read_tuning(written: Mapping[str, Any], arrays: Mapping[str, Any], template: Recommender) -> Tuning:
    from loca.tuning.study import Tuning

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


def measure_first(outcome: Outcome, count: int, terms: EvaluationProtocol) -> Evaluation:
    """What the first `count` models reach on the questions of the outcome, or all of them."""
    model = outcome.model
    if not isinstance(model, Loca | Ensemble):
        raise ConfigError(f"counts: are for local models and ensembles, found {type(model).__name__}")
    if count == (model.anchors if isinstance(model, Loca) else model.models):
        return outcome.evaluation
    return evaluate(model.truncate(count), outcome.test, at=terms.at, seed=terms.seed)


def facts_of(model: Recommender, counts: Sequence[int] = ()) -> dict[str, Any]:
    """What a cell keeps of a model by name, as JSON values, and of the machine that it was computed on.

    Of a Loca: α, epochs, bandwidths in units, the share of its users that it covers, also by the first `counts`
    communities alone, the mean share that a community trains on, counted and in effect, and how many communities
    answer a user; of an ensemble the epochs.
    """
    facts: dict[str, Any] = {"machine": describe_machine(), "torch": str(torch.__version__)}
    if isinstance(model, Ensemble):
        facts["epochs"] = model.epochs_
    if isinstance(model, Loca):
        communities = fitted(model.communities_, model)
        facts |= {
            "alpha": model.alpha_,
            "epochs": model.local_epochs_,
            "train_bandwidth": communities.train_bandwidth,
            "answer_bandwidth": communities.answer_bandwidth,
            "coverage": communities.coverage,
        }
        if model.locality_ is not None:
            facts |= {"effective_share": model.locality_.effective_share, "answering": model.locality_.answering}
        facts |= _shares_of_users(model, counts)
    return facts


def _shares_of_users(model: Loca, counts: Sequence[int]) -> dict[str, Any]:
    """The shares of the users that the model knows; nothing where it knows none."""
    if model.train_data_ is None:
        return {}
    communities = fitted(model.communities_, model)
    embeddings = model.embed(model.train_data_.histories())
    answering = communities.answer_weights(embeddings)
    trained = [np.count_nonzero(communities.train_weights(embeddings, one)) for one in range(len(communities))]
    covered = {str(one): float((np.diff(first_models(answering, one).indptr) > 0).mean()) for one in counts}
    return {
        "coverage_by_count": covered,
        "train_share": float(np.mean(trained)) / len(embeddings),
        "answer_share": answering.nnz / (len(embeddings) * len(communities)),
    }


def describe_machine() -> str:
    """The accelerator, if any, and the cores of this machine, in a few words."""
    cores = f"{os.cpu_count()} cores, {platform.machine()}"
    return f"{torch.cuda.get_device_name(0)}, {cores}" if torch.cuda.is_available() else cores


def execute_run(
    cell: Run, split: Split, *, study: Path | None = None, context: FitContext = NO_CONTEXT
) -> tuple[ComparedModel, Recommender]:
    """What the cell's model reaches, and the fitted model: tuned where there is a space, then put to the protocol.

    The trials of tuning are kept in the file `study`, if any, and go on from there.
    """
    tuning = None
    if cell.space is not None and cell.terms.budget is not None:
        tuning = _tune(cell, cell.terms.budget, cell.space, split, study, context.checkpoint)
    candidates = cell.candidates if tuning is None else (tuning.best,)
    outcome = run_protocol(candidates, split, cell.terms, context)
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
        by_count={count: measure_first(outcome, count, cell.terms) for count in cell.counts},
        found=facts_of(outcome.model, cell.counts),
    )
    return measured, outcome.model


def _settings(name: str, model: Recommender, outcome: Outcome) -> Table | None:
    try:
        return settings_of(name, model, tuple(outcome.tried[outcome.chosen].settings))
    except ConfigError:
        return None  # it holds what is made in a program alone, such as given embeddings


def _tune(cell: Run, budget: Budget, space: Space, split: Split, study: Path | None, checkpoint: Checkpoint) -> Tuning:
    """What tuning comes to; an interrupted run that got so far has kept it."""
    from loca.tuning.study import tune

    terms, (template,) = cell.terms, cell.candidates
    kept = checkpoint.load(TUNING)
    if kept is not None:
        return read_tuning(kept.facts[TUNING], kept.arrays, template)
    train, questions = selection_data(split, terms.protocol)
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
    facts = {TUNING: write_tuning(tuning, arrays)}
    checkpoint.save(TUNING, ModelState(arrays, facts))
    return tuning
