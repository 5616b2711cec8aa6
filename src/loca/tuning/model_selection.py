"""Model selection: judge candidates on validation, refit the best, and score the test part once."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast, get_args

from loca.config.model_factory import build_models, expand_names, what_differs
from loca.config.options import RecencyRequest
from loca.data.interactions import Interactions
from loca.data.later import as_interactions
from loca.data.recency import Recency
from loca.data.splits import HeldOut, Split, hold_last
from loca.data.statistics import warn_of_file_order
from loca.errors import ConfigError, check_arguments, check_choice, check_kind
from loca.evaluation.evaluate import Evaluation, as_known, evaluate, mean_value
from loca.evaluation.metrics import DEFAULT_METRIC, Metric
from loca.models.params import check_param
from loca.models.recommender import (
    Recommender,
    clone,
    written,
)
from loca.persistence.fit_context import NO_CONTEXT, FitContext
from loca.persistence.manifest import read_value, write_value
from loca.progress import say
from loca.registry import KINDS, SpaceName
from loca.remarks import (
    Remarks,
    collect_remarks,
    keeps_remarks,
    read_remarks,
    shown_remarks,
    tell_remarks,
)
from loca.search_space import Budget
from loca.text_table import Readable
from loca.tuning.recency_selection import RecencyChoice, choose_recency, start_recency

# Histories are weighted as they say, or as the model was trained for, or as each model chooses on validation.
RecencyRule = Literal["given", "own", "auto"]


@dataclass(frozen=True)
class CandidateResult:
    """Hold what one candidate reached on validation.

    Attributes
    ----------
    settings : dict
        What sets it apart from the other candidates.
    score : float
        Its validation score, under its recency.
    seconds : float
        What it took.
    recency : RecencyChoice or None
        What it chose to weight histories by, where that was its choice.
    own : Recency or None
        What it was fitted under, where that was not given.
    given : bool
        Whether histories were weighted as the interactions say.
    report : str
        Describes the parts of a blend.
    metric : str
        What the score is, such as `"ndcg@100"`.
    """

    settings: dict[str, Any]
    score: float
    seconds: float
    recency: RecencyChoice | None = None
    own: Recency | None = None
    given: bool = True
    report: str = ""
    metric: str = str(DEFAULT_METRIC)

    def __str__(self) -> str:
        parts = [f"{name} {value}" for name, value in self.settings.items()]
        if self.recency is not None:
            parts.append(
                "no recency" if self.recency.recency is None else str(self.recency.recency)
            )
        return f"{', '.join(parts) or 'the only candidate'}: {self.score:.4f}"

    def weigh(self, interactions: Interactions) -> Interactions:
        """Weight interactions by the recency that the candidate chose or has.

        Parameters
        ----------
        interactions : Interactions
            Come back as they are where their own recency counts.

        Returns
        -------
        Interactions
        """
        if self.given:
            return interactions
        return interactions.with_recency(self.own if self.recency is None else self.recency.recency)


@dataclass(frozen=True, eq=False, repr=False)
class Selection(Readable):
    """Hold a selected model and the results of all candidates; prints as a short report.

    Parameters
    ----------
    model : Recommender
        The selected model, fitted.
    tried : tuple of CandidateResult, default ()
        The result of every candidate; empty where there was no validation data.
    refitted : bool, default False
        Whether the model was fitted once more, on everything.
    remarks : tuple of Remark, default ()
        What is worth knowing of the data and of the fit.

    Examples
    --------
    >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12, shortest_history=10).interactions
    >>> found = loca.fit(data, [loca.EASE(l2=10.0), loca.EASE(l2=100.0)])
    >>> [one.settings for one in found.tried]
    [{'l2': 10.0}, {'l2': 100.0}]
    >>> found.best.score == max(one.score for one in found.tried)
    True
    >>> found.refitted
    True
    """

    model: Recommender
    tried: tuple[CandidateResult, ...] = ()
    refitted: bool = False
    remarks: Remarks = ()

    @property
    def best(self) -> CandidateResult | None:
        """The result of the selected candidate; None where there was no validation data."""
        return self.tried[best_index(self.tried)] if self.tried else None

    def shown(self) -> list[str]:
        """Return what a person reads: the model, what it reached where it was chosen, and what else was tried.

        Returns
        -------
        list of str
        """
        lines = [f"selected: {written(self.model)}"]
        if self.best is None:
            return [*lines, *shown_remarks(self.remarks)]
        before = ", before the refit" if self.refitted else ""
        lines += [
            f"validation {Metric.label_of(self.best.metric)}{before}: {self.best.score:.4f} "
            "(used for choosing; not a test score)"
        ]
        lines += [] if self.best.recency is None else [f"recency chosen: {self.best.recency}"]
        lines += self.best.report.splitlines()
        lines += [f"  tried {one}" for one in self.tried if len(self.tried) > 1]
        return [*lines, *shown_remarks(self.remarks)]


@check_arguments
@keeps_remarks
def fit(
    data: Any,
    model: str | Recommender | Sequence[Recommender] = "auto",
    *,
    validation: int = 2,
    refit: bool = True,
    recency: RecencyRequest = "own",
    budget: Budget | str | float | None = None,
    metric: Metric | str = DEFAULT_METRIC,
    seed: int = 0,
    device: str = "auto",
    context: FitContext = NO_CONTEXT,
) -> Selection:
    """Select a model on each user's last items, and refit it on everything.

    The command `loca fit` does the same.

    Parameters
    ----------
    data : Interactions, data frame, path or sparse matrix
        All interactions.
    model : str, Recommender or sequence of Recommender, default "auto"
        The name of a model (`"auto"`, `"ease"`, `"loca-vae"`, …), an unfitted model, or several to select from.
    validation : int, default 2
        How many of each user's last items are held out to select on; 0 selects nothing.
    refit : bool, default True
        Fit the selected model once more, on everything. Without, it has learned from the rest alone.
    recency : Recency, None, "own" or "auto", default "own"
        How histories are weighted by age: as given, not at all, with `"own"` as each model was trained for, or with
        `"auto"` as each candidate chooses on validation.
    budget : Budget, str, float or None, default None
        How long `"auto"` may search, such as `"12min"` or seconds; for no other model.
    metric : Metric or str, default "ndcg@100"
        What everything is chosen by: early stopping, the share of a global model, blends, candidates.
    seed : int, default 0
        Seed of a model that is given by name.
    device : str, default "auto"
        Where it computes: `"cpu"`, `"cuda"`, `"cuda:1"`, or `"auto"`, a GPU where there is one.
    context : FitContext, default FitContext()
        A checkpoint to resume from and the like; see `checkpoint_in`.

    Returns
    -------
    Selection
        The fitted `model`, and in `tried` the validation score of every candidate; prints as a short report.

    Examples
    --------
    >>> data = loca.planted_communities(users=100, items=30, groups=5, history=12).interactions
    >>> found = loca.fit(data, [loca.EASE(l2=10.0), loca.EASE(l2=100.0)])
    >>> type(found.model).__name__, len(found.tried), len(found.model.train_data_) == len(data)
    ('EASE', 2, True)
    """
    if isinstance(model, str):
        candidates = build_models(expand_names([model]), {}, seed)[model]
    else:
        candidates = as_candidates(model)
    data = as_interactions(data)
    limits = Budget.of(budget)
    if limits is not None:
        if [one.role for one in candidates] != ["auto"]:
            raise ConfigError(
                f"budget: is for the model auto, found {', '.join(map(repr, candidates))}"
            )
        candidates = [
            clone(
                candidates[0],
                **{name: one for name, one in vars(limits).items() if one is not None},
            )
        ]
    rule: RecencyRule = recency if isinstance(recency, str) else "given"
    data = data if isinstance(recency, str) else data.with_recency(recency)
    if order_matters(candidates, recency):
        warn_of_file_order(data)
    context = replace(context, order_checked=True)
    if validation:
        rest, held_out, report = hold_last(data, validation)
        for line in report:
            say(line)
        selection = select(
            candidates,
            rest,
            held_out,
            recency=rule,
            known=data,
            refit=refit,
            metric=Metric.of(metric),
            device=device,
            context=context,
        )
        return replace(selection, remarks=data.remarks)
    if len(candidates) > 1:
        raise ConfigError(
            "choosing needs held-out items; expected a validation of at least 1, found 0"
        )
    own = start_recency(candidates[0]) if rule == "own" else data.recency
    model = clone(candidates[0])
    context.inside("refit").fit(model, data.with_recency(own), device=device)
    return Selection(model)


def as_candidates(given: Any, what: str = "model") -> list[Recommender]:
    """One or several models as a list; anything else is refused."""
    is_one = isinstance(given, Recommender | type) or not isinstance(given, Iterable)
    listed: list[Any] = [given] if is_one else list(given)
    for one in listed:
        check_param(
            what, one, "models such as EASE()", lambda value: isinstance(value, Recommender)
        )
    return listed


def select(
    candidates: Sequence[Recommender],
    train: Interactions,
    validation: HeldOut,
    *,
    recency: RecencyRule = "given",
    known: Interactions | None = None,
    refit: bool = False,
    metric: Metric = DEFAULT_METRIC,
    device: str = "auto",
    context: FitContext = NO_CONTEXT,
) -> Selection:
    """Find the candidate with the best score on `validation` after learning from `train`; ties go to the first.

    With `recency="own"` each candidate is fitted and judged under its `start_recency`; with `"auto"` it then chooses
    one on validation, which the interactions it knows are weighted by from there on (blends choose part by part).
    With `refit` a copy that holds all that was selected is fitted on `known`; without, the fitted candidate comes
    back, and knows the interactions `known` (default: `train`). The candidates themselves stay unfitted, and only the
    best so far is in memory. Of a candidate that an interrupted run has finished only the score and the selected
    parameters are stored; if it is the best and there is no refit, it is fitted once more.
    """
    if not candidates:
        raise ConfigError("nothing to choose from: expected at least one candidate")
    checkpoint, is_given = context.checkpoint, recency == "given"

    def start(candidate: Recommender) -> Recency | None:
        """What a candidate is fitted under; a blend that is to choose for its parts needs something to choose from."""
        own = None if is_given else start_recency(candidate)
        return (
            Recency.per_position(0.9)
            if own is None and recency == "auto" and candidate.role == "blend"
            else own
        )

    def fit_candidate(place: int) -> Recommender:
        data, held_out, own = train, validation, start(candidates[place])
        if not is_given:
            data, held_out = train.with_recency(own), validation.with_recency(own)
        return context.inside(f"candidate {place}").fit(
            clone(candidates[place]), data, validation=held_out, metric=metric, device=device
        )

    tried: list[CandidateResult] = []
    best: Recommender | dict[str, Any] = {}  # which an interrupted run has saved
    for place, (candidate, settings) in enumerate(
        zip(candidates, what_differs(candidates), strict=True)
    ):
        name, own, started = f"candidate {place}", start(candidate), time.perf_counter()
        found: Recommender | dict[str, Any]
        stored = checkpoint.load(name)
        if stored is None:
            with collect_remarks() as collected:
                fitted, choice = fit_candidate(place), None
            if recency == "auto" and fitted.role not in ("blend", "auto"):
                choice = choose_recency(fitted, validation, metric=metric)
                say(f"{type(fitted).__name__}: recency {choice}")
            weighed = as_known(fitted, validation if is_given else validation.with_recency(own))
            score = mean_value(fitted.score, weighed, metric) if choice is None else choice.score
            seconds, report, found = time.perf_counter() - started, fitted.report(), fitted
            if checkpoint.saves:
                arrays: dict[str, Any] = {}
                selected = write_value(fitted.selected(), arrays, "as chosen")
                state = {
                    "score": score,
                    "seconds": seconds,
                    "selected": selected,
                    "arrays": arrays,
                    "report": report,
                    "remarks": [one.to_json() for one in collected.remarks],
                    "recency": None if choice is None else choice.as_json(),
                }
                checkpoint.save(name, state)
                checkpoint.delete_part(name)
            del fitted
        else:
            found = stored
            score, seconds, report = stored["score"], stored["seconds"], stored["report"]
            tell_remarks(read_remarks(stored["remarks"]))
            recency_state = stored["recency"]
            choice = None if recency_state is None else RecencyChoice.from_json(recency_state)
        if all(score > one.score for one in tried):
            best = found if not refit or isinstance(found, dict) else found.selected()
        del found  # makes room for the next
        measured = score, seconds, choice, own, is_given, report, str(metric)
        tried.append(CandidateResult(settings, *measured))
        if len(candidates) > 1:
            say(f"{type(candidate).__name__} with {tried[-1]} {metric.label} on validation")
    chosen = best_index(tried)
    known_weighed = tried[chosen].weigh(train if known is None else known)
    if refit:
        if isinstance(best, dict):
            kinds = {**KINDS, **{type(one).__name__: type(one) for one in candidates}}
            best = read_value(best["selected"], best["arrays"], kinds)
        say("refitting on train and validation")
        model = cast(Recommender, best)
        context.inside("refit").fit(model, known_weighed, device=device)
        model.report_ = tried[chosen].report
        return Selection(model, tuple(tried), refitted=True)
    if isinstance(best, dict):
        say(
            "the best candidate is one of the interrupted run's, of which the score is stored: fitting it once more"
        )
        best = fit_candidate(chosen)
    if not is_given or known is not None:
        best.train_data_ = known_weighed
    return Selection(best, tuple(tried))


def choose_on_validation(
    candidates: Sequence[Recommender],
    split: Split,
    *,
    recency: RecencyRule = "given",
    metric: Metric | str = DEFAULT_METRIC,
    device: str = "auto",
    context: FitContext = NO_CONTEXT,
) -> tuple[Recommender, tuple[CandidateResult, ...]]:
    """Fit candidates on the train part of a split and choose the best on its validation part.

    The test part is not looked at.

    Parameters
    ----------
    candidates : sequence of Recommender
        Unfitted models; they stay unfitted. The first of equals is chosen.
    split : Split
        With a validation part.
    recency : {"given", "own", "auto"}, default "given"
        How histories are weighted by age: as the split says, with `"own"` as each model was trained for, or with
        `"auto"` as each candidate chooses on validation.
    metric : Metric or str, default "ndcg@100"
        What it is made by.
    device : str, default "auto"
        Where it computes, as for `fit`.
    context : FitContext, default FitContext()
        A checkpoint to resume from and the like; see `checkpoint_in`.

    Returns
    -------
    model : Recommender
        The fitted candidate with the best validation score.
    tried : tuple of CandidateResult
        The result of every candidate.

    Examples
    --------
    >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12, shortest_history=10).interactions
    >>> split = loca.leave_last_out(data, test=2, validation=2)
    >>> model, tried = loca.choose_on_validation([loca.EASE(), loca.Popularity()], split)
    >>> len(tried)
    2
    >>> found = loca.evaluate(model, split.test, at=[10])
    """
    check_kind("split", split, Split, "leave_last_out makes one")
    data = selection_data(split, "clean")
    found = select(
        as_candidates(candidates, "candidates"),
        *data,
        recency=recency,
        metric=Metric.of(metric),
        device=device,
        context=context,
    )
    return found.model, found.tried


def best_index(tried: Sequence[CandidateResult]) -> int:
    """Return the place of the candidate with the best validation score, the first of equals."""
    scores = [one.score for one in tried]
    return scores.index(max(scores))


ProtocolName = Literal["clean", "paper"]
SELECTED_ON_TEST = "SELECTED ON TEST: NOT A RESULT"


@dataclass(frozen=True)
class EvaluationProtocol:
    """What all models of a comparison are selected, fitted and measured by; with a `budget` each is tuned in `space`.

    `clean` selects on validation, refits on train + validation (unless `refit` is off) and scores the test part once.
    `paper` does as the paper's program: everything before the test items is trained on, every choice is made on test,
    and a repeated test item counts every time. What comes out of it is not a result.
    The `device` is where all of it computes; it is no part of a fingerprint.
    """

    protocol: ProtocolName = "clean"
    refit: bool = True
    recency: RecencyRule = "given"
    at: tuple[int, ...] = (50, 100)
    seed: int = 0
    budget: Budget | None = None
    space: SpaceName = "wide"
    metric: Metric = DEFAULT_METRIC
    device: str = "auto"

    def __post_init__(self) -> None:
        check_choice("protocol", self.protocol, get_args(ProtocolName))
        check_choice("space", self.space, get_args(SpaceName))
        if self.protocol == "paper" and self.recency == "auto":
            raise ConfigError(
                "recency: auto is chosen on validation, which the protocol paper has not; use clean"
            )

    def evaluate(self, model: Recommender, test: HeldOut) -> Evaluation:
        """Measure a fitted model on the test part."""
        own = [] if self.metric.function is None else [self.metric]
        return evaluate(model, test, at=self.at, metrics=own, seed=self.seed)


@dataclass(frozen=True, eq=False)
class Outcome:
    """A fitted model, its test evaluation, what was tried for it, and the seconds from first fit to evaluation.

    `chosen` is the place of the chosen candidate in `tried`, `test` the test part with its histories weighted.
    """

    model: Recommender
    evaluation: Evaluation
    tried: tuple[CandidateResult, ...]
    chosen: int
    seconds: float
    test: HeldOut

    @property
    def recency(self) -> Recency | None:
        """What the test histories were weighted by."""
        return self.test.histories.recency


def counted_as_paper(split: Split) -> Split:
    """The split with its metrics divided as the paper divides them: a repeated test item counts every time."""
    return replace(split, test=replace(split.test, count_repeats=True))


def selection_data(split: Split, protocol: ProtocolName) -> tuple[Interactions, HeldOut]:
    """What candidates learn from and what they are judged on: validation, or under `paper` the test."""
    if protocol == "paper":
        return split.train_and_validation, counted_as_paper(split).test
    if split.validation is None:
        raise ConfigError(
            "choosing needs a validation part; hold out some items for it (validation=2)"
        )
    return split.train, split.validation


def run_protocol(
    candidates: Sequence[Recommender],
    split: Split,
    protocol: EvaluationProtocol,
    context: FitContext = NO_CONTEXT,
) -> Outcome:
    """The candidates through the protocol: one is selected, fitted, and scored on the test part.

    Test histories hold train + validation, refitted or not. The recency of the selection weighs what is refitted on
    and scored too.
    """
    started = time.perf_counter()
    if protocol.protocol == "paper":
        split = counted_as_paper(split)
    refit = protocol.refit and protocol.protocol == "clean"
    data, known = (
        selection_data(split, protocol.protocol),
        split.train_and_validation if refit else None,
    )
    found = select(
        candidates,
        *data,
        recency=protocol.recency,
        known=known,
        refit=refit,
        metric=protocol.metric,
        device=protocol.device,
        context=context,
    )
    chosen = best_index(found.tried)
    test = as_known(
        found.model, replace(split.test, histories=found.tried[chosen].weigh(split.test.histories))
    )
    evaluation = protocol.evaluate(found.model, test)
    return Outcome(
        found.model, evaluation, found.tried, chosen, time.perf_counter() - started, test
    )


def run_as_chosen(
    model: Recommender,
    chosen: CandidateResult,
    split: Split,
    protocol: EvaluationProtocol,
    context: FitContext = NO_CONTEXT,
) -> Outcome:
    """A model whose settings are all chosen, fitted and scored as the protocol does it at last.

    It learns from what the protocol's own choice would learn from, for as many epochs as it says, under the recency of
    the result `chosen`. Nothing is measured on validation: the score there is NaN.
    """
    started, is_paper = time.perf_counter(), protocol.protocol == "paper"
    split = counted_as_paper(split) if is_paper else split
    known = split.train_and_validation if protocol.refit or is_paper else split.train
    fitted = clone(model)
    context.inside("refit").fit(fitted, chosen.weigh(known), device=protocol.device)
    test = as_known(fitted, replace(split.test, histories=chosen.weigh(split.test.histories)))
    evaluation = protocol.evaluate(fitted, test)
    seconds = time.perf_counter() - started
    result = replace(chosen, settings={}, score=float("nan"), seconds=seconds, report="")
    return Outcome(fitted, evaluation, (result,), 0, seconds, test)


def order_matters(models: Iterable[Recommender], recency: Recency | str | None) -> bool:
    """Whether such models use order, or are scored under a recency in positions; `"auto"` tries some of those."""
    in_positions = (
        recency.unit == "positions" if isinstance(recency, Recency) else recency == "auto"
    )
    return in_positions or any(one.uses_order for one in models)
