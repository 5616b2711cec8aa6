"""A measuring: something that is no model's row, done once and kept, such as a timing or a case study."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import loca
from loca.errors import ConfigError
from loca.files.model_state import ModelState
from loca.files.unfinished_work import UnfinishedWork
from loca.files.work_subject import first_difference
from loca.progress import say
from loca.reproduction.bench import Records

_FORMAT = 1


@dataclass(frozen=True, eq=False)
class Measuring:
    """What is measured: its name, all that its records depend on as JSON values, and how it is done."""

    name: str
    subject: Mapping[str, Any]
    measure: Callable[[], Records]


def find_or_measure(asked: Sequence[Measuring], folder: Path) -> dict[str, Records]:
    """The records of each, from the folder where they are kept, else measured now and kept there."""
    work, found = UnfinishedWork(folder), dict[str, Records]()
    for place, one in enumerate(asked):
        subject = {"format of the records": _FORMAT, "loca": loca.__version__, **one.subject}
        state = work.recall(one.name)
        if state is not None:
            difference = first_difference(state.facts["subject"], subject)
            if difference is not None:
                raise ConfigError(
                    f"{folder} holds records of {one.name} that are not those asked for: {difference}; start over with "
                    "--fresh, or choose another folder"
                )
            found[one.name] = [dict(line) for line in state.facts["records"]]
            continue
        say(f"{one.name}: measured now; {len(asked) - place - 1} more to come")
        records = one.measure()
        work.keep(one.name, ModelState(facts={"subject": subject, "records": records}))
        found[one.name] = records
    return found
