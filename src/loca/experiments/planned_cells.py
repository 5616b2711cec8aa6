"""The cells of a comparison, each made when its parents are done: what is tuned, in which space, and what stays."""

from __future__ import annotations

from collections.abc import Mapping

from loca.data.held_out import Split
from loca.experiments.cells import Cell, ComparedModel, digest_of_split
from loca.experiments.protocols import Terms
from loca.experiments.side_by_side import CellPlan
from loca.experiments.spaces import Narrowing
from loca.experiments.templates import Offered, plan_tuning
from loca.local.automatic import Auto
from loca.models.recommender import Recommender, clone


def plan_cells(candidates: Offered, split: Split, terms: Terms, said: Mapping[str, Narrowing]) -> CellPlan:
    """The cells of the named candidates; under a budget those that begin with what another's study chose come later."""
    data = digest_of_split(split)
    if terms.budget is None:
        return CellPlan(tuple(candidates), {}, lambda name, done: Cell(name, tuple(candidates[name]), terms, data))
    plan = plan_tuning(candidates, terms.space, said)

    def make(name: str, done: Mapping[str, ComparedModel]) -> Cell:
        tuned = {other: one.tuning.best for other, one in done.items() if one.tuning is not None}
        return Cell(name, (_within(plan.template(name, tuned), terms),), terms, data, plan.spaces[name])

    return CellPlan(tuple(candidates), plan.parents(), make)


def _within(model: Recommender, terms: Terms) -> Recommender:
    """The model, and Auto with the budget that all others have."""
    budget = terms.budget
    if budget is None or not isinstance(model, Auto):
        return model
    seconds = model.seconds if budget.seconds is None else budget.seconds
    return clone(model, seconds=seconds, trials=model.trials if budget.trials is None else budget.trials)
