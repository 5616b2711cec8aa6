"""What is tuned, where it begins, and what it comes to: local models start from the tuned settings of their base."""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from loca.config.model_factory import describe_model
from loca.config.options import check_value, parameters_of
from loca.config.settings import Choice, Table
from loca.errors import ConfigError
from loca.models.recommender import Recommender, clone, get_params
from loca.persistence.manifest import is_model
from loca.registry import SpaceName, is_tuned, space_of
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
        """The models that must be tuned before each: its base, and for an ensemble the local model beside it."""
        return {name: tuple(filter(None, find_parents(name, self.templates))) for name in self.templates}

    def in_order(self) -> list[str]:
        """The names, each after its parents."""
        return list(TopologicalSorter(self.parents()).static_order())

    def template(self, name: str, tuned: Mapping[str, Recommender]) -> Recommender:
        """What a model begins with: its template with what the studies of its parents chose, `tuned`.

        What a user has set stays, and so does a setting of the model inside that is neither its parent's nor the
        default: it was set on purpose.
        """
        model, constraints = self.templates[name], self.constraints.get(name, SpaceConstraints())
        base, local = find_parents(name, self.templates)
        if base is not None:
            own, before = get_params(model)["base"], describe_model(self.templates[base])
            described, defaults = describe_model(own), inspect.signature(type(own)).parameters
            changes = {}
            for key, value in get_params(tuned[base]).items():
                part = {one for one in (*described, *before) if is_named(one, [key])}
                is_default = get_params(own)[key] in (defaults[key].default,)
                is_free = is_default or all(described.get(one) == before.get(one) for one in part)
                if is_free and not constraints.mentions(f"base.{key}"):
                    changes[key] = value
            model = clone(model, base=clone(own, **changes))
        if local is not None and follows(name, self.templates, constraints):
            model = clone(model, models=get_params(tuned[local])["anchors"])
        return model


@dataclass(frozen=True)
class Tuning:
    """What tuning one model came to: the best settings, what they reach on validation, and what it took.

    `best` is unfitted; `settings` are those that set it apart from the catalogue's model, and all that were tried, as
    a TOML file holds them. `seconds` are those of all trials of the study, in earlier runs too. `ndcg_before` is what
    the model reached as it was given, None where that trial failed; `importances` are the shares of the parameters in
    the differences between trials.
    """

    name: str
    best: Recommender
    settings: Table
    ndcg: float
    finished: int
    pruned: int
    failed: int
    seconds: float
    ndcg_before: float | None = None
    importances: Mapping[str, float] = field(default_factory=dict)


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


def find_parents(name: str, templates: Mapping[str, Recommender]) -> tuple[str | None, str | None]:
    """The base of a local model or an ensemble, and the local model beside an ensemble; None where there is none.

    Among several of the same class the one whose parameters are most alike.
    """
    params = get_params(templates[name])
    base = params.get("base")
    if base is None:
        return None, None
    described = describe_model(base)

    def nearest(others: Mapping[str, object]) -> str | None:
        alike = {other: describe_model(one) for other, one in others.items() if type(one) is type(base)}
        differences = {
            other: sum(described.get(key) != one.get(key) for key in {*described, *one}) for other, one in alike.items()
        }
        return min(differences, key=lambda other: differences[other], default=None)

    # Of several local models with the same base the one of the same name comes first: loca-vae for ensemble-vae.
    namesake = name.replace("ensemble-", "loca-", 1)
    locals_ = {
        other: get_params(templates[other])["base"]
        for other in sorted(templates, key=lambda other: other != namesake)
        if {"base", "anchors"} <= get_params(templates[other]).keys()
    }
    return nearest(templates), nearest(locals_) if "models" in params else None


def follows(name: str, templates: Mapping[str, Recommender], constraints: SpaceConstraints) -> bool:
    """Whether an ensemble has as many models as the local model beside it, so that it must have as many again."""
    _, local = find_parents(name, templates)
    if local is None or constraints.mentions("models"):
        return False
    return bool(get_params(templates[name])["models"] == get_params(templates[local])["anchors"])


def plan_tuning(candidates: CandidateLists, kind: SpaceName, constraints: Mapping[str, SpaceConstraints]) -> TuningPlan:
    """The plan of models that are each given alone, in the spaces of their names without what a user has set."""
    check_optuna()
    for name, some in candidates.items():
        if len(some) != 1:
            raise ConfigError(
                f"{name}: a budget tunes one model, and lists offer {len(some)} to choose from; leave out the lists "
                "or the budget"
            )
    templates = {name: one for name, (one,) in candidates.items()}
    spaces: dict[str, Space | None] = {}
    for name, model in templates.items():
        own = constraints.get(name, SpaceConstraints())
        following = ["models"] if follows(name, templates, own) else []
        spaces[name] = own.narrow(space_of(name, kind)).without(following) if is_tuned(name, model) else None
    return TuningPlan(templates, spaces, constraints)


def plan_from_settings(
    candidates: CandidateLists, kind: SpaceName, tables: Mapping[str, Mapping[str, Any]]
) -> TuningPlan:
    """The plan of the models that the tables of a command offer: of lists the first value is where tuning begins."""
    firsts = {name: some[:1] for name, some in candidates.items()}
    plan = plan_tuning(firsts, kind, {name: _constraints(name, one, tables[name]) for name, (one,) in firsts.items()})
    for name, space in plan.spaces.items():
        for parameter in () if space is None else space.names:
            value_at(plan.templates[name], parameter)  # refuses an unknown one
    return plan


def _constraints(name: str, template: Recommender, table: Mapping[str, Any]) -> SpaceConstraints:
    fixed: list[str] = []
    listed: dict[str, tuple[Any, ...]] = {}
    for path, value in _leaves(table):
        if not isinstance(value, Choice):
            fixed.append(path)
            continue
        above, _, last = path.rpartition(".")
        if last == "model" or is_model(value_at(template, path)):
            raise ConfigError(f"{name}.{path}: models cannot be tuned among; name one of them")
        annotation = parameters_of(type(value_at(template, above) if above else template))[last]
        listed[path] = tuple(check_value(f"{name}.{path}", annotation, one) for one in value.values)
    return SpaceConstraints(tuple(fixed), listed)


def _leaves(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """All that a table sets, by dotted names; a model inside that is named is set as a whole, but for its lists."""
    for name, value in table.items():
        path = f"{above}{name}"
        if not isinstance(value, Mapping):
            yield path, value
        elif "model" in value:
            yield path, None
            yield from ((one, found) for one, found in _leaves(value, f"{path}.") if isinstance(found, Choice))
        else:
            yield from _leaves(value, f"{path}.")
