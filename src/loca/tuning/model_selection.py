"""How a model is chosen, fitted and measured: `clean` is a result, `paper` repeats how the paper's program did it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

from loca.config.model_factory import what_differs
from loca.data.interactions import Interactions
from loca.data.recency import Recency
from loca.data.splits import HeldOut, Split
from loca.errors import ConfigError, did_you_mean
from loca.evaluation.evaluate import Evaluation, as_known, evaluate, mean_ndcg
from loca.local.auto import Auto
from loca.local.blend import Blend
from loca.models.next_ease import NextEASE
from loca.models.recommender import Recommender, clone, get_params
from loca.persistence.checkpoint import Checkpoint
from loca.persistence.fit_context import NO_CONTEXT, FitContext
from loca.persistence.manifest import ModelState, read_value, write_value
from loca.progress import say
from loca.registry import KINDS
from loca.tuning.recency_selection import RecencyChoice, choose_recency, start_recency
from loca.tuning.search_space import SpaceName, check_space

if TYPE_CHECKING:
    from loca.data.interactions import Interactions
    from loca.data.splits import HeldOut
    from loca.tuning.search_space import TuningBudget


# Histories weigh what they carry, or what the model was trained for, or what each model chooses on validation.
RecencyRule = Literal["given", "own", "auto"]


@dataclass(frozen=True)
class CandidateResult:
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
    candidates: Sequence[Recommender],
    split: Split,
    *,
    recency: RecencyRule = "given",
    context: FitContext = NO_CONTEXT,
) -> tuple[Recommender, tuple[CandidateResult, ...]]:
    """The fitted candidate with the best NDCG@100 on the validation part, and every candidate's score."""
    if split.validation is None:
        raise ConfigError("choosing needs a validation part; hold out some items for it (validation=2)")
    return choose_on(candidates, split.train, split.validation, recency=recency, context=context)


def choose_on(
    candidates: Sequence[Recommender],
    train: Interactions,
    questions: HeldOut,
    *,
    recency: RecencyRule = "given",
    context: FitContext = NO_CONTEXT,
) -> tuple[Recommender, tuple[CandidateResult, ...]]:
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

    tried, _ = _try_each(candidates, train, questions, recency, hold, context)
    best = best_index(tried)
    if best not in fitted:
        fitted.clear()
        say("the best candidate is one of the interrupted run's, which kept its score: fitting it once more")
        fitted[best] = _fit(candidates[best], train, questions, recency, context.inside(_name_of(best)))
    if recency != "given":
        fitted[best].train_data_ = tried[best].weigh(train)
    return fitted[best], tried


def choose_parameters(
    candidates: Sequence[Recommender],
    train: Interactions,
    questions: HeldOut,
    *,
    recency: RecencyRule = "given",
    context: FitContext = NO_CONTEXT,
) -> tuple[Recommender, tuple[CandidateResult, ...]]:
    """An unfitted copy of the best candidate that holds all it chose on `questions`, and every candidate's score.

    As `choose_on`, but made to be fitted on more data, weighed by what it chose (`CandidateResult.weigh`): no
    candidate is fitted twice, whether interrupted or not.
    """
    chosen: dict[int, Recommender] = {}

    def hold(place: int, model: Recommender) -> None:
        chosen[place] = model.with_selected_params()

    tried, recalled = _try_each(candidates, train, questions, recency, hold, context)
    best = best_index(tried)
    if best not in chosen:
        kinds = {**KINDS, **{type(one).__name__: type(one) for one in candidates}}
        chosen[best] = read_value(recalled[best].facts["with_selected_params"], recalled[best].arrays, kinds)
    return chosen[best], tried


def best_index(tried: Sequence[CandidateResult]) -> int:
    """The place of the candidate with the best NDCG@100 on validation, the first of equals."""
    scores = [one.ndcg for one in tried]
    return scores.index(max(scores))


def _try_each(
    candidates: Sequence[Recommender],
    train: Interactions,
    questions: HeldOut,
    recency: RecencyRule,
    hold: Callable[[int, Recommender], None],
    context: FitContext,
) -> tuple[tuple[CandidateResult, ...], dict[int, ModelState]]:
    """Every candidate's score, and what an interrupted run has kept of those it finished, by their places.

    Each candidate that is fitted now and is the best so far is handed to `hold` with its place.
    """
    if not candidates:
        raise ConfigError("nothing to choose from: expected at least one candidate")
    tried: list[CandidateResult] = []
    recalled: dict[int, ModelState] = {}
    for place, (candidate, settings) in enumerate(zip(candidates, what_differs(candidates), strict=True)):
        own = _start(candidate, recency)
        kept = context.checkpoint.load(_name_of(place))
        if kept is not None:
            recalled[place] = kept
            tried.append(_recalled(settings, kept, own, recency == "given"))
        else:
            started = time.perf_counter()
            fitted = _fit(candidate, train, questions, recency, context.inside(_name_of(place)))
            ndcg, choice = _judge(fitted, questions, recency)
            if all(ndcg > one.ndcg for one in tried):
                hold(place, fitted)
            seconds = time.perf_counter() - started
            report = fitted.report() if isinstance(fitted, Blend | Auto) else ""
            tried.append(CandidateResult(settings, ndcg, seconds, choice, own, recency == "given", report))
            _save(context.checkpoint, place, tried[-1], fitted)
            del fitted  # makes room for the next
        if len(candidates) > 1:
            say(f"{type(candidate).__name__} with {tried[-1]} NDCG@100 on validation")
    return tuple(tried), recalled


def _fit(
    candidate: Recommender, train: Interactions, questions: HeldOut, recency: RecencyRule, context: FitContext
) -> Recommender:
    if recency != "given":
        start = _start(candidate, recency)
        train, questions = train.with_recency(start), questions.with_recency(start)
    return context.fit(clone(candidate), train, validation=questions)


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


def _save(checkpoint: Checkpoint, place: int, tried: CandidateResult, fitted: Recommender) -> None:
    """Saves what a finished candidate reached and chose, in place of all that was kept on the way there."""
    if not checkpoint.saves:
        return
    arrays: dict[str, Any] = {}
    with_selected_params = write_value(fitted.with_selected_params(), arrays, "as chosen")
    facts = {
        "ndcg": tried.ndcg,
        "seconds": tried.seconds,
        "with_selected_params": with_selected_params,
        "report": tried.report,
    }
    if tried.recency is not None:
        facts["recency"] = tried.recency.as_json()
    checkpoint.save(_name_of(place), ModelState(arrays, facts))
    checkpoint.delete_part(_name_of(place))


def _recalled(settings: dict[str, Any], kept: ModelState, own: Recency | None, given: bool) -> CandidateResult:
    chosen = kept.facts.get("recency")
    choice = None if chosen is None else RecencyChoice.from_json(chosen)
    return CandidateResult(
        settings, kept.facts["ndcg"], kept.facts["seconds"], choice, own, given, kept.facts["report"]
    )


def _name_of(place: int) -> str:
    return f"candidate {place}"


ProtocolName = Literal["clean", "paper"]
SELECTED_ON_TEST = "SELECTED ON TEST: NOT A RESULT"


@dataclass(frozen=True)
class EvaluationProtocol:
    """What all models of a comparison are chosen, fitted and measured by; with a `budget` each is tuned in `space`."""

    protocol: ProtocolName = "clean"
    refit: bool = True
    recency: RecencyRule = "given"
    at: tuple[int, ...] = (50, 100)
    seed: int = 0
    budget: TuningBudget | None = None
    space: SpaceName = "wide"

    def __post_init__(self) -> None:
        check_protocol(self.protocol)
        check_space(self.space)
        if self.protocol == "paper" and self.recency == "auto":
            raise ConfigError("recency: auto is chosen on validation, which the protocol paper has not; use clean")


@dataclass(frozen=True, eq=False)
class Outcome:
    """A fitted model, its test evaluation, what was tried for it, and the seconds from first fit to evaluation.

    `chosen` is the place of the chosen candidate in `tried`, `asked` the test questions with their histories weighed.
    """

    model: Recommender
    evaluation: Evaluation
    tried: tuple[CandidateResult, ...]
    chosen: int
    seconds: float
    asked: HeldOut

    @property
    def recency(self) -> Recency | None:
        """What the test histories were weighed by."""
        return self.asked.histories.recency


def check_protocol(name: str) -> None:
    """Refuses a protocol that does not exist, naming the nearest."""
    if name not in get_args(ProtocolName):
        nearest = did_you_mean(name, get_args(ProtocolName)) or "; expected 'clean' or 'paper'"
        raise ConfigError(f"unknown protocol {name!r}{nearest}")


def counted_as_paper(split: Split) -> Split:
    """The split with its metrics divided as the paper divides them: a repeated test item counts every time."""
    return replace(split, test=replace(split.test, count_repeats=True))


def chosen_on(split: Split, protocol: ProtocolName) -> tuple[Interactions, HeldOut]:
    """What candidates learn from and the questions that they are chosen by: validation, or under `paper` the test."""
    if protocol == "paper":
        return split.train_and_validation, counted_as_paper(split).test
    if split.validation is None:
        raise ConfigError("choosing needs a validation part; hold out some items for it (validation=2)")
    return split.train, split.validation


def run_protocol(
    candidates: Sequence[Recommender], split: Split, terms: EvaluationProtocol, context: FitContext = NO_CONTEXT
) -> Outcome:
    """The candidates through the protocol of the terms."""
    if terms.protocol == "paper":
        return run_paper(candidates, split, recency=terms.recency, at=terms.at, seed=terms.seed, context=context)
    return run_clean(
        candidates, split, refit=terms.refit, recency=terms.recency, at=terms.at, seed=terms.seed, context=context
    )


def run_clean(
    candidates: Sequence[Recommender],
    split: Split,
    *,
    refit: bool = True,
    recency: RecencyRule = "given",
    at: Iterable[int] = (50, 100),
    seed: int = 0,
    context: FitContext = NO_CONTEXT,
) -> Outcome:
    """Chooses on validation, refits the choice on train + validation, and asks the test part once.

    Without `refit` the model that was chosen is measured as it is. Test histories hold train + validation either way.
    Histories weigh what they carry; with `recency="own"` what each model was trained for, with `"auto"` what validation
    says; that weighs what is refitted on and asked too.
    """

    def choose() -> tuple[Recommender, tuple[CandidateResult, ...]]:
        if not refit:
            return choose_on_validation(candidates, split, recency=recency, context=context)
        chosen, tried = choose_parameters(candidates, *chosen_on(split, "clean"), recency=recency, context=context)
        everything = tried[best_index(tried)].weigh(split.train_and_validation)
        return context.inside("refit").fit(chosen, everything), tried

    return _run(choose, split, at, seed)


def run_paper(
    candidates: Sequence[Recommender],
    split: Split,
    *,
    recency: RecencyRule = "given",
    at: Iterable[int] = (50, 100),
    seed: int = 0,
    context: FitContext = NO_CONTEXT,
) -> Outcome:
    """As the paper's program does: everything before the test items is trained on, every choice is made on test.

    Recall and NDCG are divided as in the paper (`counted_as_paper`). What comes out is not a result: the test part has
    been looked at hundreds of times.
    """
    split = counted_as_paper(split)
    choose = partial(choose_on, candidates, *chosen_on(split, "paper"), recency=recency, context=context)
    return _run(choose, split, at, seed)


def _run(
    choose: Callable[[], tuple[Recommender, tuple[CandidateResult, ...]]], split: Split, at: Iterable[int], seed: int
) -> Outcome:
    started = time.perf_counter()
    model, tried = choose()
    chosen = best_index(tried)
    asked = as_known(model, replace(split.test, histories=tried[chosen].weigh(split.test.histories)))
    evaluation = evaluate(model, asked, at=at, seed=seed)
    return Outcome(model, evaluation, tried, chosen, time.perf_counter() - started, asked)


def uses_order(model: Any) -> bool:
    """Whether a model, or one that it is made of, learns from what follows what; a history is no set to it."""
    if isinstance(model, Auto | NextEASE):
        return True
    values = get_params(model)
    inner = [one for value in values.values() for one in (value if _is_list(value) else [value])]
    return values.get("target", "set") != "set" or any(uses_order(one) for one in inner if isinstance(one, Recommender))


def order_matters(models: Iterable[Any], recency: Recency | str | None) -> bool:
    """Whether such models use order, or are asked under a recency in positions; `"auto"` tries some of those."""
    in_positions = (
        recency == "auto" if isinstance(recency, str) else recency is not None and recency.unit == "positions"
    )
    return in_positions or any(uses_order(one) for one in models)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)
