"""From a model's settings to what is tuned: the template that they make, and the space that they leave."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from loca.catalogue import MODELS
from loca.errors import ConfigError
from loca.experiments.candidates import build_candidates, describe_model
from loca.experiments.parameters import check_value, parameters_of
from loca.experiments.settings import Choice
from loca.experiments.spaces import Space, value_at
from loca.files.model_state import is_model
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.models.recommender import Recommender, clone


def template_of(name: str, table: Mapping[str, Any], seed: int, tuned: Mapping[str, Recommender]) -> Recommender:
    """The catalogue's model with the settings of the table, of lists the first value.

    The base of a loca model or an ensemble is the one among the `tuned`, by their names, that began as its own did.
    """
    made = MODELS[name]()
    if isinstance(made, Loca | Ensemble):
        began = describe_model(made.base)
        base = next((model for other, model in tuned.items() if describe_model(MODELS[other]()) == began), None)
        made = made if base is None else clone(made, base=base)
    return build_candidates(name, [made], table, MODELS, seed)[0]


def narrow_space(space: Space, template: Recommender, table: Mapping[str, Any], name: str) -> Space:
    """The space without what the table sets, and with what it lists at these values alone."""
    for path, value in _leaves(table):
        if not isinstance(value, Choice):
            space = space.without([path])
            continue
        if is_model(value_at(template, path)):
            raise ConfigError(f"{name}.{path}: models cannot be tuned among; name one of them")
        above, _, last = path.rpartition(".")
        annotation = parameters_of(type(value_at(template, above) if above else template))[last]
        space = space.among(path, tuple(check_value(f"{name}.{path}", annotation, one) for one in value.values))
    space.check(template)
    return space


def _leaves(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value
