"""Choosing among candidates on validation, with every candidate's score kept for the report."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from loca.data.held_out import HeldOut, Split
from loca.data.interactions import Interactions
from loca.errors import ConfigError
from loca.experiments.candidates import what_differs
from loca.models.recommender import Recommender, clone
from loca.progress import say
from loca.ranking.evaluation import mean_ndcg


@dataclass(frozen=True)
class Tried:
    """One candidate: what sets it apart from the others, its NDCG@100 on validation, and the seconds it took."""

    settings: dict[str, Any]
    ndcg: float
    seconds: float

    def __str__(self) -> str:
        settings = ", ".join(f"{name} {value}" for name, value in self.settings.items())
        return f"{settings or 'the only candidate'}: {self.ndcg:.4f}"


def choose_on_validation(candidates: Sequence[Recommender], split: Split) -> tuple[Recommender, tuple[Tried, ...]]:
    """The fitted candidate with the best NDCG@100 on the validation part, and every candidate's score."""
    if split.validation is None:
        raise ConfigError("choosing needs a validation part; hold out some items for it (validation=2)")
    return choose_on(candidates, split.train, split.validation)


def choose_on(
    candidates: Sequence[Recommender], train: Interactions, questions: HeldOut
) -> tuple[Recommender, tuple[Tried, ...]]:
    """The candidate that answers `questions` best after learning from `train`; ties go to the first.

    Only the best so far is kept in memory. The candidates themselves stay unfitted.
    """
    if not candidates:
        raise ConfigError("nothing to choose from: expected at least one candidate")
    differences = what_differs(candidates)
    best: Recommender | None = None
    tried: list[Tried] = []
    for candidate, settings in zip(candidates, differences, strict=True):
        started = time.perf_counter()
        fitted = clone(candidate).fit(train, validation=questions)
        ndcg = mean_ndcg(fitted.score, questions, 100)
        if best is None or ndcg > max(one.ndcg for one in tried):
            best = fitted
        tried.append(Tried(settings, ndcg, time.perf_counter() - started))
        if len(candidates) > 1:
            say(f"{type(candidate).__name__} with {tried[-1]} NDCG@100 on validation")
    assert best is not None
    return best, tuple(tried)
