"""Which models begin with what another's study chose: a local model and its control with the settings of their base."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from loca.experiments.candidates import describe_model
from loca.experiments.spaces import Narrowing
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.models.recommender import Recommender, clone, get_params

Templates = Mapping[str, Recommender]
_NOTHING = Narrowing()


def find_parents(templates: Templates) -> dict[str, tuple[str, ...]]:
    """The names of the models that must be tuned before each: its base, and for an ensemble the local model beside it.

    Among several of the kind of its base the one that is most like it; none where there is no such model.
    """
    return {name: tuple(filter(None, _parents(name, templates))) for name in templates}


def begin_with_parents(name: str, templates: Templates, tuned: Templates, said: Narrowing = _NOTHING) -> Recommender:
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


def follows(name: str, templates: Templates, said: Narrowing = _NOTHING) -> bool:
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


def _inherit(model: Recommender, before: Recommender, after: Recommender, said: Narrowing) -> Recommender:
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
