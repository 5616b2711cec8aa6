"""A cell, one model on one data set under one protocol with one seed: what it is, and what comes of it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from loca.data.held_out import Split
from loca.data.recency import Recency
from loca.errors import ConfigError
from loca.experiments.candidates import describe_model
from loca.experiments.choices import Tried
from loca.experiments.protocols import Terms
from loca.experiments.settings import Table
from loca.files.shared_fits import digest_of_model
from loca.files.unfinished_work import digest_of
from loca.models.recommender import Recommender
from loca.ranking.evaluation import Evaluation

if TYPE_CHECKING:
    from loca.experiments.spaces import Space
    from loca.experiments.tuning import Tuning

_FORMAT = 2  # 2: the metrics of `paper` are divided as in the paper


@dataclass(frozen=True, eq=False)
class ComparedModel:
    """One model of a comparison: what it reached on test, the parameters it ended with, and what was tried.

    `recency` is what its test histories were weighed by, `tuning` what its study came to, where it was tuned, and
    `settings` what sets it apart from the catalogue's model, None where a settings file could not say it. `by_count`
    is what the first models alone reached, by their number, `found` what else is worth knowing of the fitted model and
    of the machine, by name.
    """

    name: str
    evaluation: Evaluation
    parameters: dict[str, Any]
    tried: tuple[Tried, ...]
    chosen: int
    seconds: float
    recency: Recency | None = None
    tuning: Tuning | None = None
    settings: Table | None = None
    by_count: Mapping[int, Evaluation] = field(default_factory=dict)
    found: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Cell:
    """What a cell is: a model with its candidates, the terms it is measured on, and the digest of the split.

    Two cells with the same `subject` give the same numbers. With a `space` the one candidate is tuned in it, under the
    budget of the terms. A local model or an ensemble is also measured with only its first models, for each of `counts`.
    With `shares_parts` what several cells of a store need, such as the same global model, is fitted by the first of
    them; the numbers are the same, but the seconds are not those of the whole model.
    """

    name: str
    candidates: tuple[Recommender, ...]
    terms: Terms
    data: str
    space: Space | None = None
    counts: tuple[int, ...] = ()
    shares_parts: bool = False

    def __post_init__(self) -> None:
        if not self.candidates:
            raise ConfigError(f"{self.name}: nothing to choose from: expected at least one candidate")
        if self.space is not None and (self.terms.budget is None or len(self.candidates) > 1):
            raise ConfigError(f"{self.name}: tuning in a space needs a budget and one candidate to begin with")

    def subject(self) -> dict[str, Any]:
        """All that the numbers of the cell depend on, as JSON values."""
        import loca

        described = [describe_model(one) for one in self.candidates]
        parameters = described[0] if len(described) == 1 else {f"candidate {k}": one for k, one in enumerate(described)}
        budget = None if self.terms.budget is None else asdict(self.terms.budget)
        counts = {"counts": ", ".join(map(str, self.counts))} if self.counts else {}
        return {
            "format of the cell": _FORMAT,
            "loca": loca.__version__,
            "compared as": self.name,
            "protocol": self.terms.protocol,
            "refit": self.terms.refit,
            "recency": self.terms.recency,
            "at": ", ".join(map(str, self.terms.at)),
            "compare.seed": self.terms.seed,
            "budget": budget,
            "space": None if self.space is None else str(self.space),
            "candidates": len(self.candidates),
            **parameters,
            "to the last bit": [digest_of_model(one) for one in self.candidates],
            "data": self.data,
            **counts,
        }


def digest_of_split(split: Split) -> str:
    """A short text that changes with anything in any part of the split."""
    parts = [split.train, split.train_and_validation]
    for held_out in (split.validation, split.test):
        parts += [] if held_out is None else [held_out.histories, held_out.targets]
    digests = " ".join([f"validation {split.validation is not None}", *map(digest_of, parts)])
    return hashlib.blake2b(digests.encode(), digest_size=16).hexdigest()
