"""Components from tables: models, and the strategies that they are made of, changed by settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from inspect import signature
from typing import Any, TypeVar, get_args, get_origin

from loca.config.options import check_value, parameters_of, union_members
from loca.errors import ConfigError, did_you_mean
from loca.models.params import Strategy
from loca.models.recommender import get_params, has_params
from loca.registry import COMPONENTS

KIND = "kind"

Component = TypeVar("Component")
Kinds = Mapping[str, Callable[[], Any]]
_NOT_EXCHANGED: Kinds = {}


def with_settings(
    component: Component,
    table: Mapping[str, Any],
    where: str,
    seed: int,
    kinds: Kinds = _NOT_EXCHANGED,
) -> Component:
    """Return a model or a strategy with the settings of a table, unfitted.

    Seeds follow the command's. A table in the table is for the component that is that parameter.
    Its entry `kind`, or a word in place of the table, exchanges that component for another. `kinds`
    are those that this one might have been.
    """
    annotations = parameters_of(type(component))
    _check_options(table, component, where, kinds)
    params = get_params(component)
    for name, value in params.items():
        key = f"{where}.{name}"
        if name in table:
            params[name] = _parameter(annotations[name], value, table[name], key, seed)
        else:
            params[name] = seed if name == "seed" else _with_seed(value, key, seed)
    try:
        return type(component)(**params)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def exchanged(component: object, kind: str, kinds: Kinds) -> Any:
    """Return a component of another kind, with the parameters that were set and that both have.

    A model has its own: its parameters mean other things than those of another model, even under
    the same names.
    """
    made = kinds[kind]()
    if not isinstance(component, Strategy):
        return made
    params = get_params(made)
    kept = {name: value for name, value in _changed_params(component).items() if name in params}
    return type(made)(**params | kept)


def kinds_of(owner: object, parameter: str) -> Kinds:
    """Return the kinds that the component in a parameter may be of; none of any other value."""
    return _kinds(parameters_of(type(owner)).get(parameter))


def kinds_of_each(owner: object, parameter: str) -> Kinds:
    """Return the kinds that each component in a tuple of them may be of."""
    return _kinds_of_each(parameters_of(type(owner)).get(parameter))


def _kinds(annotation: Any) -> Kinds:
    names = (getattr(member, "__name__", "") for member in union_members(annotation))
    return next((COMPONENTS[name] for name in names if name in COMPONENTS), _NOT_EXCHANGED)


def _kinds_of_each(annotation: Any) -> Kinds:
    """Return the kinds of the components in a tuple; none where it is no tuple of components."""
    tuples = (member for member in union_members(annotation) if get_origin(member) is tuple)
    return next((_kinds(get_args(member)[0]) for member in tuples), _NOT_EXCHANGED)


def _parameter(annotation: Any, present: Any, setting: Any, where: str, seed: int) -> Any:
    """Return the value that a setting gives to a parameter."""
    kinds_of_each = _kinds_of_each(annotation)
    if kinds_of_each and isinstance(setting, list):
        return tuple(
            _component(kinds_of_each, None, item, f"{where}.{number}", seed)
            for number, item in enumerate(setting)
        )
    kinds = _kinds(annotation)
    is_inside = isinstance(setting, Mapping) and _is_component(present)
    if kinds or is_inside:
        return _component(kinds, present, setting, where, seed)
    return check_value(where, annotation, setting)


def _component(kinds: Kinds, present: Any, setting: Any, where: str, seed: int) -> Any:
    """Return the present component with other settings, or one of another kind."""
    table = dict(setting) if isinstance(setting, Mapping) else {KIND: setting}
    kind = table.pop(KIND, None)
    is_none = isinstance(kind, str) and kind.lower() == "none"
    if is_none and not table:
        return None
    if is_none or (present is None and kind is None):
        example = f"{where}.{KIND}={next(iter(kinds), '')}"
        raise ConfigError(f"{where}: there is none to set options of; say which, as {example}")
    if kind is not None:
        _check_kind(kind, kinds, where)
        present = exchanged(present, kind, kinds)
    return with_settings(present, table, where, seed, kinds)


def _with_seed(value: Any, where: str, seed: int) -> Any:
    """Return a value with the command's seed in all components that it holds."""
    if type(value) is tuple:
        return tuple(_with_seed(part, where, seed) for part in value)
    return with_settings(value, {}, where, seed) if has_params(value) else value


def _check_kind(kind: Any, kinds: Kinds, where: str) -> None:
    """Refuse a kind that is not known, with the nearest or with all that there are."""
    if isinstance(kind, str) and kind in kinds:
        return
    advice = did_you_mean(str(kind), kinds)
    if not advice:
        advice = f"; there are {', '.join(kinds)}" if kinds else "; there are no others"
    raise ConfigError(f"{where}: unknown kind {kind!r}{advice}")


def _check_options(table: Mapping[str, Any], component: object, where: str, kinds: Kinds) -> None:
    """Refuse an option that a component does not have, and name what has it or is nearest."""
    params = get_params(component)
    for option in table:
        if option in params:
            continue
        is_strategy = isinstance(component, Strategy)
        others = [kind for kind, make in kinds.items() if is_strategy and _takes(make(), option)]
        inside = [
            f"{where}.{name}.{option}" for name, part in params.items() if _takes(part, option)
        ]
        if inside:
            advice = f"; did you mean {' or '.join(map(repr, inside))}?"
        elif others:
            advice = f"; it is one of {' and '.join(others)}: {where}.{KIND}={others[0]}"
        else:
            advice = did_you_mean(option, params)
        advice = advice or f"; the options are {', '.join(params) or 'none'}"
        raise ConfigError(f"unknown option {option!r} for {where}{advice}")


def _takes(part: object, option: str) -> bool:
    return has_params(part) and option in get_params(part)


def _changed_params(component: object) -> dict[str, Any]:
    """Return the parameters of a component that are not at their defaults."""
    defaults = signature(type(component)).parameters
    return {
        name: value
        for name, value in get_params(component).items()
        if type(value) is not type(defaults[name].default) or value != defaults[name].default
    }


def _is_component(value: object) -> bool:
    return has_params(value) or (is_dataclass(value) and not isinstance(value, type))
