"""The cells of a comparison, each made when its parents are done: what is tuned, in which space, and what stays."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from loca.data.held_out import Split
from loca.errors import ConfigError
from loca.experiments.cells import Cell, ComparedModel, digest_of_split
from loca.experiments.lineage import begin_with_parents, find_parents, follows
from loca.experiments.protocols import SpaceName, Terms
from loca.experiments.side_by_side import CellPlan
from loca.local.automatic import Auto
from loca.models.recommender import Recommender, clone

if TYPE_CHECKING:
    from loca.experiments.spaces import Space

Offered = Mapping[str, Sequence[Recommender]]


def plan_cells(candidates: Offered, split: Split, terms: Terms, fixed: Mapping[str, Collection[str]]) -> CellPlan:
    """The cells of the named candidates; under a budget those that begin with what another's study chose come later."""
    data = digest_of_split(split)
    if terms.budget is None:
        return CellPlan(tuple(candidates), {}, lambda name, done: Cell(name, tuple(candidates[name]), terms, data))
    spaces = find_spaces(candidates, terms.space, fixed)
    templates = {name: one for name, (one,) in candidates.items()}

    def make(name: str, done: Mapping[str, ComparedModel]) -> Cell:
        tuned = {other: one.tuning.best for other, one in done.items() if one.tuning is not None}
        model = begin_with_parents(name, templates, tuned)
        return Cell(name, (_within(model, terms),), terms, data, spaces[name])

    return CellPlan(tuple(candidates), find_parents(templates), make)


def find_spaces(candidates: Offered, kind: SpaceName, fixed: Mapping[str, Collection[str]]) -> dict[str, Space | None]:
    """The space that each model is tuned in, without what is fixed; None for Auto, which searches by itself."""
    from loca.experiments.spaces import space_of

    for name, offered in candidates.items():
        if len(offered) != 1:
            raise ConfigError(
                f"{name}: a budget tunes one model, and lists offer {len(offered)} to choose from; leave out the lists "
                "or the budget"
            )
    templates = {name: one for name, (one,) in candidates.items()}
    spaces: dict[str, Space | None] = {}
    for name, model in templates.items():
        follow = ["models"] if follows(name, templates) else []
        searches = isinstance(model, Auto)
        spaces[name] = None if searches else space_of(name, kind).without([*fixed.get(name, ()), *follow])
    return spaces


def _within(model: Recommender, terms: Terms) -> Recommender:
    """The model, and Auto with the budget that all others have."""
    budget = terms.budget
    if budget is None or not isinstance(model, Auto):
        return model
    seconds = model.seconds if budget.seconds is None else budget.seconds
    return clone(model, seconds=seconds, trials=model.trials if budget.trials is None else budget.trials)
