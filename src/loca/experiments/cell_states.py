"""A computed cell as arrays and facts, which a folder keeps, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from loca.catalogue import KINDS
from loca.data.recency import Recency
from loca.experiments.cells import Cell, ComparedModel
from loca.experiments.choices import Tried
from loca.experiments.recency_choice import RecencyChoice, recency_json
from loca.files.known_interactions import read_recency
from loca.files.model_state import ModelState
from loca.files.written_values import read_value, write_value
from loca.models.recommender import Recommender
from loca.ranking.evaluation import Evaluation

if TYPE_CHECKING:
    from loca.experiments.tuning import Tuning

TUNING = "tuning"


def cell_state(cell: Cell, measured: ComparedModel) -> ModelState:
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


def read_cell(cell: Cell, state: ModelState) -> ComparedModel:
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
