"""Choosing among candidates on validation, with every candidate's score kept for the report."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from loca.catalogue import KINDS
from loca.data.held_out import HeldOut, Split
from loca.data.interactions import Interactions
from loca.errors import ConfigError
from loca.experiments.candidates import what_differs
from loca.files.model_state import ModelState
from loca.files.unfinished_work import work_at_hand
from loca.files.written_values import read_value, write_value
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

    Only the best so far is kept in memory. The candidates themselves stay unfitted. Of a candidate that an interrupted
    run has finished only the score is known; if it is the best, it is fitted once more.
    """
    fitted: dict[int, Recommender] = {}

    def hold(place: int, model: Recommender) -> None:
        fitted.clear()
        fitted[place] = model

    tried, _ = _try_each(candidates, train, questions, hold)
    best = _place_of_best(tried)
    if best not in fitted:
        fitted.clear()
        say("the best candidate is one of the interrupted run's, which kept its score: fitting it once more")
        with work_at_hand().part(_name_of(best)):
            fitted[best] = clone(candidates[best]).fit(train, validation=questions)
    return fitted[best], tried


def choose_parameters(
    candidates: Sequence[Recommender], train: Interactions, questions: HeldOut
) -> tuple[Recommender, tuple[Tried, ...]]:
    """An unfitted copy of the best candidate that holds all it chose on `questions`, and every candidate's score.

    As `choose_on`, but made to be fitted on more data: no candidate is fitted twice, whether interrupted or not.
    """
    chosen: dict[int, Recommender] = {}

    def hold(place: int, model: Recommender) -> None:
        chosen[place] = model.as_chosen()

    tried, recalled = _try_each(candidates, train, questions, hold)
    best = _place_of_best(tried)
    if best not in chosen:
        kinds = {**KINDS, **{type(one).__name__: type(one) for one in candidates}}
        chosen[best] = read_value(recalled[best].facts["as_chosen"], recalled[best].arrays, kinds)
    return chosen[best], tried


def _try_each(
    candidates: Sequence[Recommender],
    train: Interactions,
    questions: HeldOut,
    hold: Callable[[int, Recommender], None],
) -> tuple[tuple[Tried, ...], dict[int, ModelState]]:
    """Every candidate's score, and what an interrupted run has kept of those it finished, by their places.

    Each candidate that is fitted now and is the best so far is handed to `hold` with its place.
    """
    if not candidates:
        raise ConfigError("nothing to choose from: expected at least one candidate")
    tried: list[Tried] = []
    recalled: dict[int, ModelState] = {}
    for place, (candidate, settings) in enumerate(zip(candidates, what_differs(candidates), strict=True)):
        kept = work_at_hand().recall(_name_of(place))
        if kept is not None:
            recalled[place] = kept
            tried.append(Tried(settings, kept.facts["ndcg"], kept.facts["seconds"]))
        else:
            started = time.perf_counter()
            with work_at_hand().part(_name_of(place)):
                fitted = clone(candidate).fit(train, validation=questions)
                ndcg = mean_ndcg(fitted.score, questions, 100)
            if all(ndcg > one.ndcg for one in tried):
                hold(place, fitted)
            tried.append(Tried(settings, ndcg, time.perf_counter() - started))
            _keep(place, tried[-1], fitted)
            del fitted  # makes room for the next
        if len(candidates) > 1:
            say(f"{type(candidate).__name__} with {tried[-1]} NDCG@100 on validation")
    return tuple(tried), recalled


def _keep(place: int, tried: Tried, fitted: Recommender) -> None:
    """Keeps what a finished candidate reached and chose, in place of all that was kept on the way there."""
    work = work_at_hand()
    if not work.keeps:
        return
    arrays: dict[str, Any] = {}
    as_chosen = write_value(fitted.as_chosen(), arrays, "as chosen")
    facts = {"ndcg": tried.ndcg, "seconds": tried.seconds, "as_chosen": as_chosen}
    work.keep(_name_of(place), ModelState(arrays, facts))
    work.forget_part(_name_of(place))


def _place_of_best(tried: Sequence[Tried]) -> int:
    scores = [one.ndcg for one in tried]
    return scores.index(max(scores))


def _name_of(place: int) -> str:
    return f"candidate {place}"
