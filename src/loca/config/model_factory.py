"""Unfitted models from the settings of a command: one, or one for each combination of the values to choose from."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import product
from typing import Any

from loca.communities.embeddings import Embedder, TruncatedSVD
from loca.config.options import check_names, check_value, parameters_of, union_members
from loca.config.settings import Choice, Table
from loca.errors import ConfigError, did_you_mean
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.models.recommender import Recommender, clone
from loca.persistence.manifest import get_params, is_model
from loca.registry import KERNEL_PARAMS, MODELS

# The controls of local models: by word, the local models whose base and size the control has, the first that is there.
_CONTROLS = {"ensemble": ("loca", "mixture"), "dealt": ("mixture", "loca")}


def expand_names(names: Sequence[str]) -> list[str]:
    """The names without doubles; `ensemble` and `dealt` are those controls of the local models among them."""
    known, expanded = [*MODELS, *_CONTROLS], list[str]()
    bases = [
        base
        for kind, _, base in (one.partition("-") for one in names)
        if kind in ("loca", "mixture")
    ]
    for name in names:
        if name not in known:
            nearest = did_you_mean(name, known) or f"; there are {', '.join(known)}"
            raise ConfigError(f"unknown model {name!r}{nearest}")
        controls = [
            one for base in bases if name in _CONTROLS and (one := f"{name}-{base}") in MODELS
        ]
        if name in _CONTROLS and not controls:
            locals_ = ", ".join(
                one.replace(name, "loca", 1) for one in MODELS if one.startswith(f"{name}-")
            )
            raise ConfigError(
                f"the model {name!r} is the control of a loca model; ask for one too, of {locals_}"
            )
        expanded += controls or [name]
    if not expanded:
        raise ConfigError("models: expected at least one model")
    return list(dict.fromkeys(expanded))


def local_beside(name: str, names: Collection[str]) -> str | None:
    """The local model among the names that a control is the control of, by its name; None where there is none."""
    kind, _, base = name.partition("-")
    return next(
        (one for local in _CONTROLS.get(kind, ()) if (one := f"{local}-{base}") in names), None
    )


def dealt_control(local: Recommender) -> Loca:
    """The control of a local model: as many communities of mixtures, whose memberships are dealt to other users."""
    params = {
        name: one
        for name, one in get_params(local).items()
        if name not in ("embedding", *KERNEL_PARAMS)
    }
    return Loca(
        **params | {"communities": "dealt", "mixtures": min(params["mixtures"], params["anchors"])}
    )


def build_models(
    names: Sequence[str], settings: Mapping[str, Table], seed: int
) -> dict[str, list[Recommender]]:
    """The candidates of each named model: one for each combination of the choices in its settings, without doubles.

    A control beside a local model of the same base has that model's base and number of models, a dealt one its mixtures
    too, in every variant that the local model may choose from, so that the control may choose from the same; its own
    settings win. The settings of models that are not named are checked too.
    """
    built: dict[str, list[Recommender]] = {}
    others = [name for name in settings if name in MODELS and name not in names]
    for name in sorted([*others, *names], key=lambda name: name.partition("-")[0] in _CONTROLS):
        templates, local = [MODELS[name]()], local_beside(name, names)
        if local is not None and name.startswith("dealt-"):
            templates = [dealt_control(one) for one in built[local]]
        elif local is not None:
            beside = map(get_params, built[local])
            templates = [Ensemble(base=clone(one["base"]), models=one["anchors"]) for one in beside]
        built[name] = []
        for table, template in product(_alternatives(settings.get(name, {})), templates):
            model = _apply(template, table, name, seed)
            if describe_model(model) not in map(describe_model, built[name]):
                built[name].append(model)
    return {name: built[name] for name in names}


def with_kernels(model: Recommender) -> Recommender:
    """The model; one that would choose its communities on validation has those of the paper instead, by kernels."""
    return (
        clone(model, communities="kernel")
        if get_params(model).get("communities") == "auto"
        else model
    )


def describe_model(
    model: object, params: Callable[[Any], dict[str, Any]] = get_params
) -> dict[str, Any]:
    """The parameters of a model and of the models inside it, by dotted names, as plain values for a report.

    With `params=stored_params` those that came later are left out at their defaults, as in earlier fingerprints.
    """
    flat: dict[str, Any] = {"model": type(model).__name__}
    for name, value in params(model).items():
        inside = enumerate(value) if type(value) is tuple and any(map(is_model, value)) else ()
        models = (
            {name: value}
            if is_model(value)
            else {f"{name}.{number}": one for number, one in inside}
        )
        for called, model in models.items():
            flat.update(
                {f"{called}.{inner}": one for inner, one in describe_model(model, params).items()}
            )
        if not models:
            flat[name] = value if isinstance(value, bool | int | float | str | None) else str(value)
    return flat


def what_differs(models: Sequence[object]) -> list[dict[str, Any]]:
    """For each model the parameters in which the models differ; nothing for a single one."""
    described = [describe_model(model) for model in models]
    names = list(dict.fromkeys(name for one in described for name in one))
    differing = [
        name for name in names if any(one.get(name) != described[0].get(name) for one in described)
    ]
    return [{name: one.get(name) for name in differing if name in one} for one in described]


def _alternatives(value: Any) -> list[Any]:
    """All that a setting may be: the values of a choice, or a table's combinations of them, the last changing first."""
    if isinstance(value, Mapping):
        return [
            dict(zip(value, some, strict=True))
            for some in product(*map(_alternatives, value.values()))
        ]
    return list(value.values) if isinstance(value, Choice) else [value]


def _apply(model: Any, table: Mapping[str, Any], where: str, seed: int) -> Any:
    """A copy of the model with the settings of the table, checked by the annotations of its constructor.

    Whatever is not set keeps its default; seeds follow the command's. A model inside is named by its value or by its
    entry `model`; else it is the one that is there.
    """
    annotations = parameters_of(type(model))
    check_names(table, annotations, where)
    changes: dict[str, Any] = {"seed": seed} if "seed" in annotations else {}
    for name, annotation in annotations.items():
        current, key, value = getattr(model, name), f"{where}.{name}", table.get(name, {})
        takes_model = is_model(current) or bool(
            {Recommender, Embedder} & {*union_members(annotation)}
        )
        if name in table and not takes_model:
            changes[name] = check_value(key, annotation, value)
        elif name in table or is_model(current):
            inside = dict(value) if isinstance(value, Mapping) else {"model": value}
            kind, known = inside.pop("model", None), dict[str, Any](MODELS, svd=TruncatedSVD)
            is_none = str(kind).lower() == "none"
            if kind is not None and is_none and not inside:
                changes[name] = None
                continue
            if not is_none:
                if kind not in known:
                    nearest = did_you_mean(str(kind), known) or f"; there are {', '.join(known)}"
                    raise ConfigError(f"{key}: unknown model {kind!r}{nearest}")
                current = known[kind]()
            if not is_model(current):
                raise ConfigError(
                    f"{key}: there is no model to set options of; name one with {key}=ease"
                )
            changes[name] = _apply(current, inside, key, seed)
    try:
        return clone(model, **changes)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
