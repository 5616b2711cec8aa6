"""Choosing among candidates on validation, with every candidate's score kept for the report."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from loca.catalogue import KINDS
from loca.data.held_out import HeldOut, Split
from loca.data.interactions import Interactions
from loca.data.recency import Recency
from loca.errors import ConfigError
from loca.experiments.candidates import what_differs
from loca.experiments.recency_choice import RecencyChoice, choose_recency, start_recency
from loca.files.model_state import ModelState
from loca.files.unfinished_work import work_at_hand
from loca.files.written_values import read_value, write_value
from loca.local.automatic import Auto
from loca.local.blend import Blend
from loca.models.recommender import Recommender, clone
from loca.progress import say
from loca.ranking.evaluation import as_known, mean_ndcg

# Histories weigh what they carry, or what the model was trained for, or what each model chooses on validation.
RecencyRule = Literal["given", "own", "auto"]


@dataclass(frozen=True)
class Tried:
    """One candidate: what sets it apart from the others, its NDCG@100 on validation, and the seconds it took.

    `recency` is what it chose to weigh histories by, where that was its choice, `own` what it was fitted under, where
    that was not `given` with the interactions; `ndcg` is measured under it. `report` is what a blend has to say of its
    parts.
    """

    settings: dict[str, Any]
    ndcg: float
    seconds: float
    recency: RecencyChoice | None = None
    own: Recency | None = None
    given: bool = True
    report: str = ""

    def __str__(self) -> str:
        told = [f"{name} {value}" for name, value in self.settings.items()]
        if self.recency is not None:
            told.append("no recency" if self.recency.recency is None else str(self.recency.recency))
        return f"{', '.join(told) or 'the only candidate'}: {self.ndcg:.4f}"

    def weigh(self, interactions: Interactions) -> Interactions:
        """The interactions weighed by the recency that the candidate chose or has; as they are where that is given."""
        if self.given:
            return interactions
        return interactions.with_recency(self.own if self.recency is None else self.recency.recency)


def choose_on_validation(
    candidates: Sequence[Recommender], split: Split, *, recency: RecencyRule = "given"
) -> tuple[Recommender, tuple[Tried, ...]]:
    """The fitted candidate with the best NDCG@100 on the validation part, and every candidate's score."""
    if split.validation is None:
        raise ConfigError("choosing needs a validation part; hold out some items for it (validation=2)")
    return choose_on(candidates, split.train, split.validation, recency=recency)


def choose_on(
    candidates: Sequence[Recommender], train: Interactions, questions: HeldOut, *, recency: RecencyRule = "given"
) -> tuple[Recommender, tuple[Tried, ...]]:
    """The candidate that answers `questions` best after learning from `train`; ties go to the first.

    With `recency="own"` each candidate is fitted and judged under its `start_recency`; with `"auto"` it then chooses
    one on `questions`, which the interactions it knows are weighed by from there on (blends choose part by part). Only
    the best so far is kept in memory. The candidates themselves stay unfitted. Of a candidate that an interrupted run
    has finished only the score is known; if it is the best, it is fitted once more.
    """
    fitted: dict[int, Recommender] = {}

    def hold(place: int, model: Recommender) -> None:
        fitted.clear()
        fitted[place] = model

    tried, _ = _try_each(candidates, train, questions, recency, hold)
    best = place_of_best(tried)
    if best not in fitted:
        fitted.clear()
        say("the best candidate is one of the interrupted run's, which kept its score: fitting it once more")
        with work_at_hand().part(_name_of(best)):
            fitted[best] = _fit(candidates[best], train, questions, recency)
    if recency != "given":
        fitted[best].known_ = tried[best].weigh(train)
    return fitted[best], tried


def choose_parameters(
    candidates: Sequence[Recommender], train: Interactions, questions: HeldOut, *, recency: RecencyRule = "given"
) -> tuple[Recommender, tuple[Tried, ...]]:
    """An unfitted copy of the best candidate that holds all it chose on `questions`, and every candidate's score.

    As `choose_on`, but made to be fitted on more data, weighed by what it chose (`Tried.weigh`): no candidate is fitted
    twice, whether interrupted or not.
    """
    chosen: dict[int, Recommender] = {}

    def hold(place: int, model: Recommender) -> None:
        chosen[place] = model.as_chosen()

    tried, recalled = _try_each(candidates, train, questions, recency, hold)
    best = place_of_best(tried)
    if best not in chosen:
        kinds = {**KINDS, **{type(one).__name__: type(one) for one in candidates}}
        chosen[best] = read_value(recalled[best].facts["as_chosen"], recalled[best].arrays, kinds)
    return chosen[best], tried


def place_of_best(tried: Sequence[Tried]) -> int:
    """The place of the candidate with the best NDCG@100 on validation, the first of equals."""
    scores = [one.ndcg for one in tried]
    return scores.index(max(scores))


def _try_each(
    candidates: Sequence[Recommender],
    train: Interactions,
    questions: HeldOut,
    recency: RecencyRule,
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
        own = _start(candidate, recency)
        kept = work_at_hand().recall(_name_of(place))
        if kept is not None:
            recalled[place] = kept
            tried.append(_recalled(settings, kept, own, recency == "given"))
        else:
            started = time.perf_counter()
            with work_at_hand().part(_name_of(place)):
                fitted = _fit(candidate, train, questions, recency)
            ndcg, choice = _judge(fitted, questions, recency)
            if all(ndcg > one.ndcg for one in tried):
                hold(place, fitted)
            seconds = time.perf_counter() - started
            report = fitted.report() if isinstance(fitted, Blend | Auto) else ""
            tried.append(Tried(settings, ndcg, seconds, choice, own, recency == "given", report))
            _keep(place, tried[-1], fitted)
            del fitted  # makes room for the next
        if len(candidates) > 1:
            say(f"{type(candidate).__name__} with {tried[-1]} NDCG@100 on validation")
    return tuple(tried), recalled


def _fit(candidate: Recommender, train: Interactions, questions: HeldOut, recency: RecencyRule) -> Recommender:
    if recency != "given":
        start = _start(candidate, recency)
        train, questions = train.with_recency(start), questions.with_recency(start)
    return clone(candidate).fit(train, validation=questions)


def _start(candidate: Recommender, recency: RecencyRule) -> Recency | None:
    """What a candidate is fitted under; a blend that is to choose for its parts needs something to choose from."""
    own = None if recency == "given" else start_recency(candidate)
    return Recency.per_position(0.9) if own is None and recency == "auto" and isinstance(candidate, Blend) else own


def _judge(fitted: Recommender, questions: HeldOut, recency: RecencyRule) -> tuple[float, RecencyChoice | None]:
    if recency != "given":
        questions = questions.with_recency(_start(fitted, recency))
    if recency != "auto" or isinstance(fitted, Blend | Auto):
        return mean_ndcg(fitted.score, as_known(fitted, questions), 100), None
    choice = choose_recency(fitted, questions)
    say(f"{type(fitted).__name__}: recency {choice}")
    return choice.ndcg, choice


def _keep(place: int, tried: Tried, fitted: Recommender) -> None:
    """Keeps what a finished candidate reached and chose, in place of all that was kept on the way there."""
    work = work_at_hand()
    if not work.keeps:
        return
    arrays: dict[str, Any] = {}
    as_chosen = write_value(fitted.as_chosen(), arrays, "as chosen")
    facts = {"ndcg": tried.ndcg, "seconds": tried.seconds, "as_chosen": as_chosen, "report": tried.report}
    if tried.recency is not None:
        facts["recency"] = tried.recency.as_json()
    work.keep(_name_of(place), ModelState(arrays, facts))
    work.forget_part(_name_of(place))


def _recalled(settings: dict[str, Any], kept: ModelState, own: Recency | None, given: bool) -> Tried:
    chosen = kept.facts.get("recency")
    choice = None if chosen is None else RecencyChoice.from_json(chosen)
    return Tried(settings, kept.facts["ndcg"], kept.facts["seconds"], choice, own, given, kept.facts["report"])


def _name_of(place: int) -> str:
    return f"candidate {place}"
