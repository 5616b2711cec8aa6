"""Unfitted models from the settings of a command: one, or one for each combination of the values to choose from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from loca.communities.embeddings import Embedder, TruncatedSVD
from loca.config.options import check_names, check_value, parameters_of, union_members
from loca.config.settings import Choice, Table
from loca.errors import ConfigError, did_you_mean
from loca.local.ensemble import Ensemble
from loca.models.recommender import Recommender, clone
from loca.persistence.manifest import get_params, is_model

Catalogue = Mapping[str, Callable[[], Recommender]]


def expand_names(names: Sequence[str], catalogue: Catalogue) -> list[str]:
    """The names without doubles, with `ensemble` as the ensembles of the bases that the loca models use."""
    known, expanded = [*catalogue, "ensemble"], list[str]()
    controls = [one.replace("loca-", "ensemble-", 1) for one in names if one.startswith("loca-")]
    for name in names:
        if name not in known:
            nearest = did_you_mean(name, known) or f"; there are {', '.join(known)}"
            raise ConfigError(f"unknown model {name!r}{nearest}")
        if name == "ensemble" and not controls:
            raise ConfigError("the model 'ensemble' is the control of a loca model; ask for one of those too")
        expanded += controls if name == "ensemble" else [name]
    if not expanded:
        raise ConfigError("models: expected at least one model")
    return list(dict.fromkeys(expanded))


def build_models(
    names: Sequence[str], settings: Mapping[str, Table], catalogue: Catalogue, seed: int
) -> dict[str, list[Recommender]]:
    """The candidates of each named model.

    An ensemble beside a loca model of the same base has that model's base and number of models, in every variant
    that the loca model may choose from, so that the control may choose from the same; its own settings win.
    """
    for name in (one for one in settings if one in catalogue and one not in names):
        build_candidates(name, [catalogue[name]()], settings[name], catalogue, seed)  # a check, nothing more
    built: dict[str, list[Recommender]] = {}
    for name in sorted(names, key=lambda name: name.startswith("ensemble-")):
        templates = [catalogue[name]()]
        if name.startswith("ensemble-") and (local := name.replace("ensemble-", "loca-", 1)) in built:
            beside = map(get_params, built[local])
            templates = [Ensemble(base=clone(one["base"]), models=one["anchors"]) for one in beside]
        built[name] = build_candidates(name, templates, settings.get(name, {}), catalogue, seed)
    return {name: built[name] for name in names}


def build_candidates(
    name: str, templates: Sequence[Recommender], table: Mapping[str, Any], catalogue: Catalogue, seed: int
) -> list[Recommender]:
    """The templates with the settings of the table, once for each combination of its choices, without doubles."""
    candidates: list[Recommender] = []
    for concrete, template in product(_without_choices(table), templates):
        model = _apply(template, concrete, name, catalogue, seed)
        if describe_model(model) not in map(describe_model, candidates):
            candidates.append(model)
    return candidates


def describe_model(model: object) -> dict[str, Any]:
    """The parameters of a model and of the models inside it, by dotted names, as plain values for a report."""
    flat: dict[str, Any] = {"model": type(model).__name__}
    for name, value in get_params(model).items():
        inside = enumerate(value) if type(value) is tuple and any(map(is_model, value)) else ()
        models = {name: value} if is_model(value) else {f"{name}.{number}": one for number, one in inside}
        for called, model in models.items():
            flat.update({f"{called}.{inner}": one for inner, one in describe_model(model).items()})
        if not models:
            flat[name] = value if isinstance(value, bool | int | float | str | None) else str(value)
    return flat


def what_differs(models: Sequence[object]) -> list[dict[str, Any]]:
    """For each model the parameters in which the models differ; nothing for a single one."""
    described = [describe_model(model) for model in models]
    names = list(dict.fromkeys(name for one in described for name in one))
    differing = [name for name in names if any(one.get(name) != described[0].get(name) for one in described)]
    return [{name: one.get(name) for name in differing if name in one} for one in described]


def _without_choices(table: Mapping[str, Any]) -> Iterator[Table]:
    """Every table that takes one value of each choice, the values of the last choice changing first."""
    alternatives: list[list[Any]] = []
    for value in table.values():
        if isinstance(value, Choice):
            alternatives.append(list(value.values))
        elif isinstance(value, Mapping):
            alternatives.append(list(_without_choices(value)))
        else:
            alternatives.append([value])
    for values in product(*alternatives):
        yield dict(zip(table, values, strict=True))


def _apply(model: Any, table: Mapping[str, Any], where: str, catalogue: Catalogue, seed: int) -> Any:
    """A copy of the model with the settings of the table, checked by the annotations of its constructor.

    Whatever is not set keeps its default; seeds follow the command's.
    """
    annotations = parameters_of(type(model))
    check_names(table, annotations, where)
    changes: dict[str, Any] = {}
    for name, annotation in annotations.items():
        current, key = getattr(model, name), f"{where}.{name}"
        takes_model = bool({Recommender, Embedder} & {*union_members(annotation)})
        if name in table and (is_model(current) or takes_model):
            changes[name] = _inner(current, table[name], key, catalogue, seed)
        elif name in table:
            changes[name] = check_value(key, annotation, table[name])
        elif name == "seed":
            changes[name] = seed
        elif is_model(current):
            changes[name] = _apply(current, {}, key, catalogue, seed)
    try:
        return clone(model, **changes)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def _inner(current: Any, value: Any, where: str, catalogue: Catalogue, seed: int) -> Any:
    """A model inside another: named by `value` or by its entry `model`, else the one that is there."""
    table = dict(value) if isinstance(value, Mapping) else {"model": value}
    known: dict[str, Callable[[], Any]] = {**catalogue, "svd": TruncatedSVD}
    name = table.pop("model", None)
    if name is not None and str(name).lower() != "none":
        if name not in known:
            nearest = did_you_mean(str(name), known) or f"; there are {', '.join(known)}"
            raise ConfigError(f"{where}: unknown model {name!r}{nearest}")
        current = known[name]()
    elif name is not None and not table:
        return None
    if not is_model(current):
        raise ConfigError(f"{where}: there is no model to set options of; name one with {where}=ease")
    return _apply(current, table, where, catalogue, seed)
