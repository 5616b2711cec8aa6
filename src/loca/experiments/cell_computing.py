"""How a cell is computed: tuned where it is to be, put to the protocol, and measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from loca.data.held_out import Split
from loca.errors import ConfigError
from loca.experiments.candidates import describe_model
from loca.experiments.cell_states import TUNING, read_tuning, write_tuning
from loca.experiments.cells import Cell, ComparedModel
from loca.experiments.fitted_facts import facts_of, measure_first
from loca.experiments.protocols import Outcome, chosen_on, run_protocol
from loca.experiments.settings import Table
from loca.experiments.tuned_settings import settings_of
from loca.files.model_state import ModelState
from loca.files.unfinished_work import work_at_hand
from loca.models.recommender import Recommender

if TYPE_CHECKING:
    from loca.experiments.spaces import Space
    from loca.experiments.tuning import Tuning, TuningBudget


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
        by_count={count: measure_first(outcome, count, cell.terms) for count in cell.counts},
        found=facts_of(outcome.model, cell.counts),
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
    kept = work.recall(TUNING)
    if kept is not None:
        return read_tuning(kept.facts[TUNING], kept.arrays, template)
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
    facts = {TUNING: write_tuning(tuning, arrays)}
    work.keep(TUNING, ModelState(arrays, facts))
    return tuning
