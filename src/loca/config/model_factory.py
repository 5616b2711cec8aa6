"""Unfitted models from settings, one for each combination of values to choose from."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import product
from typing import Any, get_args

from loca.config.components import with_settings
from loca.config.settings import Choice, Table
from loca.errors import ConfigError, did_you_mean
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.models.recommender import Recommender, clone, get_params, has_params
from loca.registry import COMPONENTS, MODELS, RECORDS, Control

_CONTROLS = get_args(Control)


def expand_names(names: Sequence[str]) -> list[str]:
    """Return the names without doubles; `ensemble` and `dealt` are those of the local models."""
    known = [*MODELS, *_CONTROLS]
    expanded: list[str] = []
    for name in names:
        if name not in known:
            nearest = did_you_mean(name, known) or f"; there are {', '.join(known)}"
            raise ConfigError(f"unknown model {name!r}{nearest}")
        expanded += _controls(name, names) if name in _CONTROLS else [name]
    if not expanded:
        raise ConfigError("models: expected at least one model")
    return list(dict.fromkeys(expanded))


def _controls(word: str, names: Sequence[str]) -> list[str]:
    """Return the controls that a word stands for, in the order of their local models."""
    records = [record for record in RECORDS.values() if record.control == word]
    controls = [record.name for name in names for record in records if name in record.control_of]
    if not controls:
        local_models = dict.fromkeys(name for record in records for name in record.control_of)
        raise ConfigError(
            f"the model {word!r} is the control of a local model; "
            f"ask for one too, of {', '.join(local_models)}"
        )
    return controls


def local_beside(name: str, names: Collection[str]) -> str | None:
    """Return which of the named local models a control belongs to; None where there is none."""
    candidates = RECORDS[name].control_of if name in RECORDS else ()
    return next((local for local in candidates if local in names), None)


def dealt_control(local: Loca) -> Loca:
    """Return the control of a local model: its mixtures, with the memberships of other users.

    Of a model with other communities these are mixtures of as many.
    """
    finder = local.communities
    mixtures = COMPONENTS["CommunityFinder"]["mixtures"]()
    if type(finder) is not type(mixtures):
        finder = mixtures.with_n(local.size)
    permuted = COMPONENTS["CommunityFinder"]["permuted"]()
    return clone(local, communities=clone(permuted, finder=finder))


def build_models(
    names: Sequence[str], settings: Mapping[str, Table], seed: int
) -> dict[str, list[Recommender]]:
    """Return the candidates of each named model, one for each combination of its choices.

    A control beside a local model of the same base has that model's base and number of models, a
    dealt one its mixtures too, in every variant that the local model may choose from, so that the
    control may choose from the same; its own settings win. The settings of models that are not
    named are checked too.
    """
    built: dict[str, list[Recommender]] = {}
    others = [name for name in settings if name in MODELS and name not in names]
    local_models_first = sorted([*others, *names], key=_is_control)
    for name in local_models_first:
        local = local_beside(name, names)
        templates = [MODELS[name]()]
        if local is not None:
            templates = [_control(name, model) for model in built[local]]
        built[name] = []
        for table, template in product(_alternatives(settings.get(name, {})), templates):
            model = with_settings(template, table, name, seed)
            if describe_model(model) not in map(describe_model, built[name]):
                built[name].append(model)
    return {name: built[name] for name in names}


def _is_control(name: str) -> bool:
    return name in RECORDS and RECORDS[name].control is not None


def _control(name: str, local: Any) -> Recommender:
    if RECORDS[name].control == "dealt":
        return dealt_control(local)
    return Ensemble(base=clone(local.base), models=local.size)


def describe_model(model: object) -> dict[str, Any]:
    """Return the parameters of a model and of all that it is made of, by dotted names.

    They are plain values for a report. The class is `model`, that of a component is its `kind`.
    """
    return {"model": type(model).__name__, **_described(model, "")}


def _described(owner: object, above: str) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in get_params(owner).items():
        path = f"{above}{name}"
        components = {path: value} if has_params(value) else {}
        if type(value) is tuple and any(map(has_params, value)):
            components = {f"{path}.{number}": part for number, part in enumerate(value)}
        for place, component in components.items():
            flat[f"{place}.kind"] = type(component).__name__
            flat |= _described(component, f"{place}.")
        if not components:
            is_plain = isinstance(value, bool | int | float | str | None)
            flat[path] = value if is_plain else str(value)
    return flat


def what_differs(models: Sequence[object]) -> list[dict[str, Any]]:
    """Return for each model the parameters in which the models differ; nothing for a single one."""
    described = [describe_model(model) for model in models]
    names = dict.fromkeys(name for params in described for name in params)
    first = described[0]
    differing = [
        name for name in names if any(params.get(name) != first.get(name) for params in described)
    ]
    return [{name: params[name] for name in differing if name in params} for params in described]


def _alternatives(value: Any) -> list[Any]:
    """Return all that a setting may be: the values of a choice, or a table's combinations of them.

    The last entry of a table changes first.
    """
    if isinstance(value, Mapping):
        combinations = product(*map(_alternatives, value.values()))
        return [dict(zip(value, combination, strict=True)) for combination in combinations]
    return list(value.values) if isinstance(value, Choice) else [value]
