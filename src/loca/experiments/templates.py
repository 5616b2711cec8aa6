"""What a command tunes: a template and a space for each model, and whose outcome it begins with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loca.errors import ConfigError
from loca.experiments.default_spaces import GIVEN, space_of
from loca.experiments.lineage import begin_with_parents, find_parents, follows
from loca.experiments.parameters import check_value, parameters_of
from loca.experiments.settings import Choice
from loca.experiments.spaces import Narrowing, Space, SpaceName, value_at
from loca.files.model_state import is_model
from loca.local.automatic import Auto
from loca.models.recommender import Recommender

Offered = Mapping[str, Sequence[Recommender]]
_NOTHING = Narrowing()


@dataclass(frozen=True)
class TuningPlan:
    """The models to tune, by name: how each begins, the space it is tuned in, and what was said of it.

    The space is None for Auto, which searches by itself, and for models whose settings are given.
    """

    templates: Mapping[str, Recommender]
    spaces: Mapping[str, Space | None]
    said: Mapping[str, Narrowing] = field(default_factory=dict)

    def parents(self) -> dict[str, tuple[str, ...]]:
        """The models that must be tuned before each."""
        return find_parents(self.templates)

    def in_order(self) -> list[str]:
        """The names, each after its parents, else in the order asked for."""
        parents, ordered = self.parents(), list[str]()
        while left := [name for name in self.templates if name not in ordered]:
            ordered.append(next(name for name in left if set(parents[name]) <= set(ordered)))
        return ordered

    def template(self, name: str, tuned: Mapping[str, Recommender]) -> Recommender:
        """What a model begins with, once its parents are `tuned`."""
        return begin_with_parents(name, self.templates, tuned, self.said.get(name, _NOTHING))


def plan_tuning(candidates: Offered, kind: SpaceName, said: Mapping[str, Narrowing]) -> TuningPlan:
    """The plan of models that are each offered alone, in the spaces of their names without what was said."""
    for name, offered in candidates.items():
        if len(offered) != 1:
            raise ConfigError(
                f"{name}: a budget tunes one model, and lists offer {len(offered)} to choose from; leave out the lists "
                "or the budget"
            )
    templates = {name: one for name, (one,) in candidates.items()}
    spaces: dict[str, Space | None] = {}
    for name, model in templates.items():
        own = said.get(name, _NOTHING)
        follow = ["models"] if follows(name, templates, own) else []
        is_given = isinstance(model, Auto) or name in GIVEN
        spaces[name] = None if is_given else own.narrow(space_of(name, kind)).without(follow)
    return TuningPlan(templates, spaces, said)


def plan_from_settings(candidates: Offered, kind: SpaceName, tables: Mapping[str, Mapping[str, Any]]) -> TuningPlan:
    """The plan of the models that the tables of a command offer: of lists the first value is where tuning begins."""
    firsts = {name: offered[:1] for name, offered in candidates.items()}
    said = {name: _narrowing(name, first, tables[name]) for name, (first,) in firsts.items()}
    plan = plan_tuning(firsts, kind, said)
    for name, space in plan.spaces.items():
        if space is not None:
            space.check(plan.templates[name])
    return plan


def _narrowing(name: str, template: Recommender, table: Mapping[str, Any]) -> Narrowing:
    fixed: list[str] = []
    listed: dict[str, tuple[Any, ...]] = {}
    for path, value in _said(table):
        if not isinstance(value, Choice):
            fixed.append(path)
            continue
        above, _, last = path.rpartition(".")
        if last == "model" or is_model(value_at(template, path)):
            raise ConfigError(f"{name}.{path}: models cannot be tuned among; name one of them")
        annotation = parameters_of(type(value_at(template, above) if above else template))[last]
        listed[path] = tuple(check_value(f"{name}.{path}", annotation, one) for one in value.values)
    return Narrowing(tuple(fixed), listed)


def _said(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """All that a table sets, by dotted names; a model inside that is named is set as a whole, but for its lists."""
    for name, value in table.items():
        path = f"{above}{name}"
        if not isinstance(value, Mapping):
            yield path, value
            continue
        inside = list(_said(value, f"{path}."))
        if "model" in value:
            inside = [(path, None), *((one, said) for one, said in inside if isinstance(said, Choice))]
        yield from inside
