"""A measuring: something that is no model's row, done once and kept, such as a timing or a case study."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import loca
from loca.config.model_factory import describe_model
from loca.errors import ConfigError
from loca.models.recommender import Recommender
from loca.persistence.checkpoint import Checkpoint, first_difference
from loca.persistence.fit_context import digest_of_model
from loca.persistence.manifest import ModelState
from loca.progress import say
from loca.reproduction.benchmark import Records

_FORMAT = 1


@dataclass(frozen=True, eq=False)
class Measurement:
    """What is measured: its name, all that its records depend on as JSON values, and how it is done."""

    name: str
    subject: Mapping[str, Any]
    measure: Callable[[], Records]


def exactly(model: Recommender) -> dict[str, Any]:
    """The model as a subject tells it: its parameters for people to read, and a digest of them to the last bit."""
    return {**describe_model(model), "to the last bit": digest_of_model(model)}


def find_or_measure(one: Measurement, folder: Path) -> Records:
    """Its records, from the folder where they are kept, else measured now and kept there."""
    records = find_kept(one, folder)
    if records is None:
        say(f"{one.name}: measured now")
        begun = time.perf_counter()
        records = one.measure()
        facts = {"subject": _subject(one), "records": records, "seconds": time.perf_counter() - begun}
        Checkpoint(folder).save(one.name, ModelState(facts=facts))
    return records


def find_kept(one: Measurement, folder: Path) -> Records | None:
    """Its kept records, None where there are none; those of another subject are refused. Nothing is measured."""
    state = Checkpoint(folder).load(one.name)
    if state is None:
        return None
    difference = first_difference(state.facts["subject"], _subject(one))
    if difference is not None:
        raise ConfigError(
            f"{folder} holds records of {one.name} that are not those asked for: {difference}; start over with "
            "--fresh, or choose another folder"
        )
    return [dict(line) for line in state.facts["records"]]


def seconds_kept(asked: Sequence[Measurement], folder: Path) -> float:
    """The seconds that those which are kept took together."""
    states = (Checkpoint(folder).load(one.name) for one in asked)
    return sum(float(state.facts.get("seconds", 0)) for state in states if state is not None)


def _subject(one: Measurement) -> dict[str, Any]:
    return {"format of the records": _FORMAT, "loca": loca.__version__, **one.subject}
