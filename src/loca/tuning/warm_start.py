"""What is tuned, where it begins, and what it comes to: local models start from the tuned settings of their base."""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from loca.config.model_factory import dealt_control, describe_model, local_beside
from loca.config.options import check_value, parameters_of
from loca.config.settings import Choice, Table, flat_settings
from loca.errors import ConfigError
from loca.evaluation.metrics import DEFAULT_METRIC
from loca.models.recommender import Recommender, clone, get_params
from loca.persistence.manifest import is_model
from loca.registry import KERNEL_PARAMS, MIXTURE_PARAMS, SpaceName, is_tuned, space_of
from loca.search_space import Space, SpaceConstraints, is_named, value_at

CandidateLists = Mapping[str, Sequence[Recommender]]


@dataclass(frozen=True)
class TuningPlan:
    """The models to tune, by name: how each begins, the space it is tuned in, and what a user has set of it.

    The space is None for Auto, which searches by itself, and for models whose settings are given.
    """

    templates: Mapping[str, Recommender]
    spaces: Mapping[str, Space | None]
    constraints: Mapping[str, SpaceConstraints] = field(default_factory=dict)

    def parents(self) -> dict[str, tuple[str, ...]]:
        """The models that must be tuned before each: its base, and for a control the local model beside it."""
        return {name: tuple(filter(None, self._parents(name))) for name in self.templates}

    def in_order(self) -> list[str]:
        """The names, each after its parents."""
        return list(TopologicalSorter(self.parents()).static_order())

    def template(self, name: str, tuned: Mapping[str, Recommender]) -> Recommender:
        """What a model begins with: its template with what the studies of its parents chose, `tuned`.

        What a user has set stays, and so does a setting of the model inside that is neither its parent's nor the
        default: it was set on purpose.
        """
        model, (base, local) = self.templates[name], self._parents(name)
        if base is not None:
            own, changes = get_params(model)["base"], {}
            described, before = describe_model(own), describe_model(self.templates[base])
            defaults = inspect.signature(type(own)).parameters
            for key, value in get_params(tuned[base]).items():
                part = {one for one in (*described, *before) if is_named(one, [key])}
                is_default = get_params(own)[key] in (defaults[key].default,)
                is_free = is_default or all(described.get(one) == before.get(one) for one in part)
                if is_free and not self.constraints[name].mentions(f"base.{key}"):
                    changes[key] = value
            model = clone(model, base=clone(own, **changes))
        if local is None or not self.follows(name):
            return model
        if model.role == "ensemble":
            return clone(model, models=get_params(tuned[local])["anchors"])
        found, own = get_params(dealt_control(tuned[local])), self.constraints[name]
        is_set = {one.partition(".")[0] for one in (*own.fixed, *own.listed)}
        return clone(model, **{key: value for key, value in found.items() if key not in is_set})

    def follows(self, name: str) -> bool:
        """Whether a control has the settings of the local model beside it: a dealt one, or an ensemble of its size."""
        local = self._parents(name)[1]
        if local is None or self.constraints[name].mentions("models"):
            return False
        if self.templates[name].role == "local":
            return True
        return bool(
            get_params(self.templates[name])["models"]
            == get_params(self.templates[local])["anchors"]
        )

    def _parents(self, name: str) -> tuple[str | None, str | None]:
        """The base of a local model or an ensemble, and the local model beside a control; None where there is none.

        Among several of the same class the one whose parameters are most alike.
        """
        params = {other: get_params(one) for other, one in self.templates.items()}
        base = params[name].get("base")
        if base is None:
            return None, None

        own = describe_model(base)

        def difference(other: object) -> int:
            described = describe_model(other)
            return sum(own.get(key) != described.get(key) for key in {*own, *described})

        def nearest(others: Mapping[str, object]) -> str | None:
            alike = [other for other, one in others.items() if type(one) is type(base)]
            return min(alike, key=lambda other: difference(others[other]), default=None)

        # Of several local models with the same base the one of the same name comes first: loca-vae for ensemble-vae.
        names = sorted(params, key=lambda other: other != local_beside(name, params))
        of_many = [other for other in names if {"base", "anchors"} <= params[other].keys()]
        locals_ = {
            other: params[other]["base"]
            for other in of_many
            if params[other].get("communities") != "dealt"
        }
        is_control = "models" in params[name] or params[name].get("communities") == "dealt"
        return nearest(self.templates), nearest(locals_) if is_control else None


@dataclass(frozen=True)
class Tuning:
    """What tuning one model came to: the best settings, what they reach on validation, and what it took.

    `best` is unfitted; `settings` are those that set it apart from the catalogue's model, and all that were tried, as
    a TOML file holds them. `seconds` are those of all trials of the study, in earlier runs too. `score_before` is what
    the model reached as it was given, None where that trial failed; `importances` are the shares of the parameters in
    the differences between trials.
    """

    name: str
    best: Recommender
    settings: Table
    score: float
    finished: int
    pruned: int
    failed: int
    seconds: float
    score_before: float | None = None
    importances: Mapping[str, float] = field(default_factory=dict)
    metric: str = str(DEFAULT_METRIC)


def shared_fits_of(path: Path) -> Path:
    """The folder beside a file of studies for what its trials share: there is room where the study is."""
    return path.absolute().with_name(f"{path.name}.shared-fits")


def remove_studies(path: Path) -> None:
    """Removes a file of studies, and what SQLite and the trials of a killed run have left beside it."""
    for ending in ("", "-journal", "-wal", "-shm"):
        with suppress(OSError):
            path.with_name(path.name + ending).unlink(missing_ok=True)
    shutil.rmtree(shared_fits_of(path), ignore_errors=True)


def check_optuna() -> None:
    """Refuses to tune where optuna, which is an extra, is missing."""
    if find_spec("optuna") is None:
        raise ConfigError('tuning needs optuna; install it with  pip install "loca[tune]"')


def plan_tuning(
    candidates: CandidateLists, kind: SpaceName, constraints: Mapping[str, SpaceConstraints]
) -> TuningPlan:
    """The plan of models that are each given alone, in the spaces of their names without what a user has set."""
    check_optuna()
    for name, some in candidates.items():
        if len(some) != 1:
            raise ConfigError(
                f"{name}: a budget tunes one model, and lists offer {len(some)} to choose from; leave out the lists "
                "or the budget"
            )
    own = {name: constraints.get(name, SpaceConstraints()) for name in candidates}
    plan = TuningPlan({name: one for name, (one,) in candidates.items()}, {}, own)
    spaces: dict[str, Space | None] = {}
    for name, model in plan.templates.items():
        idle = ["models"] if plan.follows(name) else []
        found = None if "communities" in own[name].listed else get_params(model).get("communities")
        if found not in (
            None,
            "auto",
        ):  # decided: neither that nor the other kind's parameters are tried
            idle += ["communities", *(MIXTURE_PARAMS if found == "kernel" else KERNEL_PARAMS)]
        spaces[name] = (
            own[name].narrow(space_of(name, kind)).without(idle) if is_tuned(name, model) else None
        )
    return replace(plan, spaces=spaces)


def plan_from_settings(
    candidates: CandidateLists, kind: SpaceName, tables: Mapping[str, Mapping[str, Any]]
) -> TuningPlan:
    """The plan of the models that the tables of a command offer: of lists the first value is where tuning begins."""
    constraints: dict[str, SpaceConstraints] = {}
    for name, (template, *_) in candidates.items():
        flat, listed = flat_settings(tables[name]), dict[str, tuple[Any, ...]]()
        # A model inside that is named is set as a whole, but for its lists.
        fixed = [path.removesuffix(".model") for path in flat if path.endswith(".model")]
        for path, value in flat.items():
            above, _, last = path.rpartition(".")
            if not isinstance(value, Choice):
                fixed += [] if is_named(path, fixed) else [path]
                continue
            if last == "model" or is_model(value_at(template, path)):
                raise ConfigError(f"{name}.{path}: models cannot be tuned among; name one of them")
            annotation = parameters_of(type(value_at(template, above) if above else template))[last]
            listed[path] = tuple(
                check_value(f"{name}.{path}", annotation, one) for one in value.values
            )
        constraints[name] = SpaceConstraints(tuple(fixed), listed)
    plan = plan_tuning({name: some[:1] for name, some in candidates.items()}, kind, constraints)
    for name, space in plan.spaces.items():
        for parameter in () if space is None else space.names:
            value_at(plan.templates[name], parameter)  # refuses an unknown one
    return plan
