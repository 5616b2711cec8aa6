"""Unfitted models from the settings of a command: one, or one for each combination of the values to choose from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from loca.communities.embeddings import TruncatedSVD
from loca.config.options import check_names, check_value, parameters_of, union_members
from loca.config.settings import Choice, Table
from loca.errors import ConfigError, did_you_mean
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.models.recommender import Recommender, clone
from loca.persistence.manifest import get_params, is_model

Catalogue = Mapping[str, Callable[[], Recommender]]


def known_names(catalogue: Catalogue) -> list[str]:
    """The model names that a command takes: the catalogue's, and `ensemble` for the control of each loca model."""
    return [*catalogue, "ensemble"]


def expand_names(names: Sequence[str], catalogue: Catalogue) -> list[str]:
    """The names without doubles, with `ensemble` as the ensembles of the bases that the loca models use."""
    expanded: list[str] = []
    for name in names:
        if name not in known_names(catalogue):
            nearest = did_you_mean(name, known_names(catalogue)) or f"; there are {', '.join(known_names(catalogue))}"
            raise ConfigError(f"unknown model {name!r}{nearest}")
        if name == "ensemble":
            locals_ = [one for one in names if one.startswith("loca-")]
            if not locals_:
                raise ConfigError("the model 'ensemble' is the control of a loca model; ask for one of those too")
            expanded += [one.replace("loca-", "ensemble-", 1) for one in locals_]
        else:
            expanded.append(name)
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
    ordered = sorted(names, key=lambda name: name.startswith("ensemble-"))
    built: dict[str, list[Recommender]] = {}
    for name in ordered:
        beside = built.get(name.replace("ensemble-", "loca-", 1)) if name.startswith("ensemble-") else None
        templates = [catalogue[name]()] if beside is None else _controls_of(beside)
        built[name] = build_candidates(name, templates, settings.get(name, {}), catalogue, seed)
    return {name: built[name] for name in names}


def build_candidates(
    name: str, templates: Sequence[Recommender], table: Mapping[str, Any], catalogue: Catalogue, seed: int
) -> list[Recommender]:
    """The templates with the settings of the table, once for each combination of its choices, without doubles."""
    builder = _Builder(catalogue, seed)
    candidates: list[Recommender] = []
    seen: list[dict[str, Any]] = []
    for concrete, template in product(_without_choices(table), templates):
        model = builder.apply(template, concrete, name)
        described = describe_model(model)
        if described not in seen:
            seen.append(described)
            candidates.append(model)
    return candidates


def describe_model(model: object) -> dict[str, Any]:
    """The parameters of a model and of the models inside it, by dotted names, as plain values for a report."""
    flat: dict[str, Any] = {"model": type(model).__name__}
    for name, value in get_params(model).items():
        inside = enumerate(value) if type(value) is tuple and any(map(is_model, value)) else ()
        models = {name: value} if is_model(value) else {f"{name}.{number}": one for number, one in inside}
        for called, model in models.items():
            flat.update({f"{called}.{inner}": kept for inner, kept in describe_model(model).items()})
        if not models:
            flat[name] = value if isinstance(value, bool | int | float | str | None) else str(value)
    return flat


def what_differs(models: Sequence[object]) -> list[dict[str, Any]]:
    """For each model the parameters in which the models differ; nothing for a single one."""
    described = [describe_model(model) for model in models]
    names = list(dict.fromkeys(name for one in described for name in one))
    differing = [name for name in names if any(one.get(name) != described[0].get(name) for one in described)]
    return [{name: one.get(name) for name in differing if name in one} for one in described]


def _controls_of(locals_: Sequence[Recommender]) -> list[Recommender]:
    return [Ensemble(base=clone(one.base), models=one.anchors) for one in locals_ if isinstance(one, Loca)]


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


class _Builder:
    """Applies tables to models; whatever is not set keeps its default, seeds follow the command's."""

    def __init__(self, catalogue: Catalogue, seed: int) -> None:
        self.inner: dict[str, Callable[[], Any]] = {**catalogue, "svd": TruncatedSVD}
        self.seed = seed

    def apply(self, model: Any, table: Mapping[str, Any], where: str) -> Any:
        """A copy of the model with the settings of the table, checked by the annotations of its constructor."""
        annotations = parameters_of(type(model))
        check_names(table, annotations, where)
        changes: dict[str, Any] = {}
        for name, annotation in annotations.items():
            current = getattr(model, name)
            if name in table and (is_model(current) or _takes_model(annotation)):
                changes[name] = self._inner(current, table[name], f"{where}.{name}")
            elif name in table:
                changes[name] = check_value(f"{where}.{name}", annotation, table[name])
            elif name == "seed":
                changes[name] = self.seed
            elif is_model(current):
                changes[name] = self.apply(current, {}, f"{where}.{name}")
        try:
            return clone(model, **changes)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None

    def _inner(self, current: Any, value: Any, where: str) -> Any:
        """A model inside another: named by `value` or by its entry `model`, else the one that is there."""
        table = dict(value) if isinstance(value, Mapping) else {"model": value}
        name = table.pop("model", None)
        if name is None or (isinstance(name, str) and name.lower() == "none"):
            if name is not None and not table:
                return None
            if not is_model(current):
                raise ConfigError(f"{where}: there is no model to set options of; name one with {where}=ease")
            return self.apply(current, table, where)
        if name not in self.inner:
            nearest = did_you_mean(str(name), self.inner) or f"; there are {', '.join(self.inner)}"
            raise ConfigError(f"{where}: unknown model {name!r}{nearest}")
        return self.apply(self.inner[name](), table, where)


def _takes_model(annotation: Any) -> bool:
    kinds = [kind for kind in union_members(annotation) if isinstance(kind, type)]
    return any(issubclass(kind, Recommender) or getattr(kind, "_is_protocol", False) for kind in kinds)
