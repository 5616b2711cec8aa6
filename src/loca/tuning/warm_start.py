"""What is tuned, where it begins, and what it comes to.

Local models start from the tuned settings of their base.
"""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from loca.communities.finder import CommunityFinder
from loca.config.components import KIND, exchanged, kinds_of
from loca.config.model_factory import dealt_control, describe_model, local_beside
from loca.config.options import check_value, parameters_of
from loca.config.settings import Choice, Table, flat_settings
from loca.errors import ConfigError
from loca.evaluation.metrics import DEFAULT_METRIC
from loca.models.params import Strategy
from loca.models.recommender import Recommender, clone, get_params, has_params
from loca.registry import MODELS, SpaceName, is_tuned, space_of
from loca.search_space import Space, SpaceConstraints, is_named, value_at

CandidateLists = Mapping[str, Sequence[Recommender]]


@dataclass(frozen=True)
class TuningPlan:
    """The models to tune, by name: how each begins, its space, and what a user has set of it.

    The space is None for Auto, which searches by itself, and for models whose settings stay.
    """

    templates: Mapping[str, Recommender]
    spaces: Mapping[str, Space | None]
    constraints: Mapping[str, SpaceConstraints] = field(default_factory=dict)

    def parents(self) -> dict[str, tuple[str, ...]]:
        """Return which models are tuned before each: its base, and a control's local model."""
        return {name: tuple(filter(None, self._parents(name))) for name in self.templates}

    def in_order(self) -> list[str]:
        """Return the names, each after its parents."""
        return list(TopologicalSorter(self.parents()).static_order())

    def template(self, name: str, tuned: Mapping[str, Recommender]) -> Recommender:
        """Return what a model begins with: its template with what the studies of its parents chose.

        What a user has set stays, and so does a setting of the model inside that is neither its
        parent's nor the default: it was set on purpose.
        """
        model: Any = self.templates[name]
        base, local = self._parents(name)
        if base is not None:
            chosen = self._chosen_for(name, model.base, self.templates[base], tuned[base])
            model = clone(model, base=clone(model.base, **chosen))
        if local is None or not self.follows(name):
            return cast(Recommender, model)
        local_model: Any = tuned[local]
        if model.role == "ensemble":
            return cast(Recommender, clone(model, models=local_model.size))
        constraints = self.constraints[name]
        is_set = {path.partition(".")[0] for path in (*constraints.fixed, *constraints.listed)}
        params = get_params(dealt_control(local_model))
        free = {name: value for name, value in params.items() if name not in is_set}
        return cast(Recommender, clone(model, **free))

    def _chosen_for(
        self, name: str, base: Recommender, template: Recommender, tuned: Recommender
    ) -> dict[str, Any]:
        """Return the tuned parameters that the base of a model takes over."""
        own, before = describe_model(base), describe_model(template)
        defaults = inspect.signature(type(base)).parameters
        chosen: dict[str, Any] = {}
        for parameter, value in get_params(tuned).items():
            paths = {path for path in (*own, *before) if is_named(path, [parameter])}
            is_default = get_params(base)[parameter] in (defaults[parameter].default,)
            is_free = is_default or all(own.get(path) == before.get(path) for path in paths)
            if is_free and not self.constraints[name].mentions(f"base.{parameter}"):
                chosen[parameter] = value
        return chosen

    def follows(self, name: str) -> bool:
        """Return whether a control has the settings of the local model beside it.

        An ensemble has them if it is of the same size.
        """
        local = self._parents(name)[1]
        if local is None or self.constraints[name].mentions("models"):
            return False
        control: Any = self.templates[name]
        local_model: Any = self.templates[local]
        return control.role != "ensemble" or bool(control.size == local_model.size)

    def _parents(self, name: str) -> tuple[str | None, str | None]:
        """Return the base of a local model or an ensemble, and the local model beside a control.

        Among several of the same class it is the one whose parameters are most alike.
        """
        base = _base_of(self.templates[name])
        if base is None:
            return None, None
        # Of local models with the same base that of the record comes first.
        beside = local_beside(name, self.templates)
        names = sorted(self.templates, key=lambda other: other != beside)
        local_models = {
            other: _base_of(self.templates[other])
            for other in names
            if self.templates[other].role == "local" and not _is_control(self.templates[other])
        }
        local = None
        if _is_control(self.templates[name]):
            local = _most_alike(base, local_models)
        return _most_alike(base, self.templates), local


def _base_of(model: Recommender) -> Recommender | None:
    base: Recommender | None = get_params(model).get("base")
    return base


def _is_control(model: Recommender) -> bool:
    """Return whether a model is there for others to be compared with."""
    finder = get_params(model).get("communities")
    return model.role == "ensemble" or (isinstance(finder, CommunityFinder) and finder.is_control)


def _most_alike(model: Recommender, others: Mapping[str, Any]) -> str | None:
    """Return the name of the model of the same class that has the most parameters in common."""
    own = describe_model(model)

    def n_different(name: str) -> int:
        params = describe_model(others[name])
        return sum(own.get(path) != params.get(path) for path in {*own, *params})

    same_class = [name for name, other in others.items() if type(other) is type(model)]
    return min(same_class, key=n_different, default=None)


@dataclass(frozen=True)
class Tuning:
    """What tuning one model came to: the best settings, their validation score, and what it took.

    `best` is unfitted; `settings` are those that set it apart from the catalogue's model, and all
    that were tried, as a TOML file holds them. `seconds` are those of all trials of the study, in
    earlier runs too. `score_before` is what the model reached as it was given, None where that
    trial failed; `importances` are the shares of the parameters in the differences between trials.
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
    """Return the folder for what the trials of a study share, beside its file."""
    return path.absolute().with_name(f"{path.name}.shared-fits")


def remove_studies(path: Path) -> None:
    """Remove a file of studies, and what SQLite and the trials of a killed run left beside it."""
    for ending in ("", "-journal", "-wal", "-shm"):
        with suppress(OSError):
            path.with_name(path.name + ending).unlink(missing_ok=True)
    shutil.rmtree(shared_fits_of(path), ignore_errors=True)


def check_optuna() -> None:
    """Refuse to tune where optuna, which is an extra, is missing."""
    if find_spec("optuna") is None:
        raise ConfigError('tuning needs optuna; install it with  pip install "loca[tune]"')


def plan_tuning(
    candidates: CandidateLists, kind: SpaceName, constraints: Mapping[str, SpaceConstraints]
) -> TuningPlan:
    """Return the plan of models that are each given alone, in the spaces of their names.

    What a user has set is not tuned, nor is what a model's strategies do not have.
    """
    check_optuna()
    for name, offered in candidates.items():
        if len(offered) != 1:
            raise ConfigError(
                f"{name}: a budget tunes one model, and lists offer {len(offered)} to choose from; "
                "leave out the lists or the budget"
            )
    own = {name: constraints.get(name, SpaceConstraints()) for name in candidates}
    models: dict[str, Recommender] = {name: model for name, (model,) in candidates.items()}
    whole_spaces = {
        name: space_of(name, kind) if is_tuned(name, model) else None
        for name, model in models.items()
    }
    templates = {
        name: model if space is None else _of_kinds(name, model, space, own[name])
        for (name, model), space in zip(models.items(), whole_spaces.values(), strict=True)
    }
    plan = TuningPlan(templates, {}, own)
    spaces: dict[str, Space | None] = {}
    for name, space in whole_spaces.items():
        if space is not None:
            space = own[name].narrow(space.of_parameters(templates[name]))
            space = space.without(["models"] if plan.follows(name) else [])
        spaces[name] = space
    return replace(plan, spaces=spaces)


def _of_kinds(
    name: str, model: Recommender, space: Space, constraints: SpaceConstraints
) -> Recommender:
    """Return a model with the kinds of components of a space, where no others were chosen."""
    for parameter, kind in space.kinds.items():
        component, usual = value_at(model, parameter), value_at(MODELS[name](), parameter)
        is_chosen = type(component) is not type(usual)
        if not is_chosen and not constraints.mentions(f"{parameter}.{KIND}"):
            kinds = kinds_of(model, parameter)
            model = clone(model, **{parameter: exchanged(component, kind, kinds)})
    return model


def plan_from_settings(
    candidates: CandidateLists, kind: SpaceName, tables: Mapping[str, Mapping[str, Any]]
) -> TuningPlan:
    """Return the plan of the models that the tables of a command offer.

    Of lists the first value is where tuning begins.
    """
    constraints = {
        name: _constraints(name, template, tables[name])
        for name, (template, *_) in candidates.items()
    }
    plan = plan_tuning({name: models[:1] for name, models in candidates.items()}, kind, constraints)
    for name, space in plan.spaces.items():
        for parameter in () if space is None else space.names:
            value_at(plan.templates[name], parameter)  # refuses an unknown one
    return plan


def _constraints(name: str, template: Recommender, table: Mapping[str, Any]) -> SpaceConstraints:
    """Return what the settings of a model leave to tuning."""
    fixed: list[str] = []
    listed: dict[str, tuple[Any, ...]] = {}
    for path, value in flat_settings(table).items():
        above, _, parameter = path.rpartition(".")
        owner = value_at(template, above) if above else template
        is_kind = parameter == KIND or has_params(get_params(owner).get(parameter))
        if isinstance(value, Choice):
            if is_kind:
                raise ConfigError(f"{name}.{path}: kinds cannot be tuned among; name one of them")
            annotation = parameters_of(type(owner))[parameter]
            listed[path] = tuple(
                check_value(f"{name}.{path}", annotation, item) for item in value.values
            )
        elif not is_kind:
            fixed.append(path)
        else:
            component = path.removesuffix(f".{KIND}")
            # A model that is named is set as a whole, but for its lists; of a strategy the kind is.
            is_strategy = isinstance(value_at(template, component), Strategy)
            fixed.append(f"{component}.{KIND}" if is_strategy else component)
    return SpaceConstraints(tuple(fixed), listed)
