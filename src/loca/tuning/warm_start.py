"""Which models begin with what another's study chose: a local model and its control with the settings of their base."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loca.config.model_factory import describe_model
from loca.config.options import check_value, parameters_of
from loca.config.settings import Choice
from loca.errors import ConfigError
from loca.local.auto import Auto
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.models.recommender import Recommender, clone, get_params
from loca.persistence.manifest import is_model
from loca.tuning.default_spaces import GIVEN, space_of
from loca.tuning.search_space import Space, SpaceConstraints, SpaceName, value_at

Templates = Mapping[str, Recommender]
_NOTHING = SpaceConstraints()


def find_parents(templates: Templates) -> dict[str, tuple[str, ...]]:
    """The names of the models that must be tuned before each: its base, and for an ensemble the local model beside it.

    Among several of the kind of its base the one that is most like it; none where there is no such model.
    """
    return {name: tuple(filter(None, _parents(name, templates))) for name in templates}


def begin_with_parents(
    name: str, templates: Templates, tuned: Templates, said: SpaceConstraints = _NOTHING
) -> Recommender:
    """The template of a model with what the studies of its parents chose, `tuned`.

    What was `said` of the model stays, and so does a setting of the model inside that is neither its parent's nor the
    default: it was set on purpose.
    """
    model = templates[name]
    base, beside = _parents(name, templates)
    if base is not None and isinstance(model, Loca | Ensemble):
        model = clone(model, base=_inherit(model.base, templates[base], tuned[base], said))
    if beside is not None and isinstance(model, Ensemble) and follows(name, templates, said):
        model = clone(model, models=get_params(tuned[beside])["anchors"])
    return model


def follows(name: str, templates: Templates, said: SpaceConstraints = _NOTHING) -> bool:
    """Whether an ensemble has as many models as the local model beside it, so that it must have as many again."""
    model, (_, beside) = templates[name], _parents(name, templates)
    if beside is None or not isinstance(model, Ensemble) or said.says("models"):
        return False
    return bool(model.models == get_params(templates[beside])["anchors"])


def _parents(name: str, templates: Templates) -> tuple[str | None, str | None]:
    """The base of a local model or an ensemble, and the local model beside an ensemble."""
    model = templates[name]
    if not isinstance(model, Loca | Ensemble):
        return None, None
    bases = {other: one for other, one in templates.items() if type(one) is type(model.base)}
    locals_ = {other: one.base for other, one in templates.items() if isinstance(one, Loca)}
    beside = {other: one for other, one in locals_.items() if type(one) is type(model.base)}
    # Of several local models with the same base the one of the same name: loca-vae for ensemble-vae.
    namesake = name.replace("ensemble-", "loca-", 1)
    beside = {namesake: beside[namesake], **beside} if namesake in beside else beside
    return _most_like(model.base, bases), _most_like(model.base, beside) if isinstance(model, Ensemble) else None


def _most_like(model: Recommender, others: Templates) -> str | None:
    """The name of the model that differs from `model` in the fewest parameters, the first of equals."""
    described = describe_model(model)

    def differences(name: str) -> int:
        other = describe_model(others[name])
        return sum(described.get(key) != other.get(key) for key in {*described, *other})

    return min(others, key=differences, default=None)


def _inherit(model: Recommender, before: Recommender, after: Recommender, said: SpaceConstraints) -> Recommender:
    own, defaults = get_params(model), inspect.signature(type(model)).parameters

    def is_free(name: str) -> bool:
        is_default = own[name] is defaults[name].default or own[name] == defaults[name].default
        return is_default or _part(model, name) == _part(before, name)

    changes: dict[str, Any] = {
        name: value for name, value in get_params(after).items() if is_free(name) and not said.says(f"base.{name}")
    }
    return clone(model, **changes)


def _part(model: Recommender, parameter: str) -> dict[str, Any]:
    """One parameter as plain values; those of a model inside are many."""
    described = describe_model(model)
    return {key: value for key, value in described.items() if key == parameter or key.startswith(f"{parameter}.")}


Offered = Mapping[str, Sequence[Recommender]]


@dataclass(frozen=True)
class TuningPlan:
    """The models to tune, by name: how each begins, the space it is tuned in, and what was said of it.

    The space is None for Auto, which searches by itself, and for models whose settings are given.
    """

    templates: Mapping[str, Recommender]
    spaces: Mapping[str, Space | None]
    said: Mapping[str, SpaceConstraints] = field(default_factory=dict)

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


def plan_tuning(candidates: Offered, kind: SpaceName, said: Mapping[str, SpaceConstraints]) -> TuningPlan:
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


def _narrowing(name: str, template: Recommender, table: Mapping[str, Any]) -> SpaceConstraints:
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
    return SpaceConstraints(tuple(fixed), listed)


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
