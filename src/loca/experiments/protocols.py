"""How a model is chosen, fitted and measured: `clean` is a result, `paper` repeats how the paper's program did it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, get_args

from loca.data.held_out import Split
from loca.data.recency import Recency
from loca.errors import ConfigError, did_you_mean
from loca.experiments.choices import (
    RecencyRule,
    Tried,
    choose_on,
    choose_on_validation,
    choose_parameters,
    place_of_best,
)
from loca.experiments.spaces import SpaceName, check_space
from loca.files.unfinished_work import work_at_hand
from loca.models.recommender import Recommender
from loca.ranking.evaluation import Evaluation, as_known, evaluate

if TYPE_CHECKING:
    from loca.data.held_out import HeldOut
    from loca.data.interactions import Interactions
    from loca.experiments.tuning import TuningBudget

ProtocolName = Literal["clean", "paper"]
SELECTED_ON_TEST = "SELECTED ON TEST: NOT A RESULT"


@dataclass(frozen=True)
class Terms:
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
    tried: tuple[Tried, ...]
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


def run_protocol(candidates: Sequence[Recommender], split: Split, terms: Terms) -> Outcome:
    """The candidates through the protocol of the terms."""
    if terms.protocol == "paper":
        return run_paper(candidates, split, recency=terms.recency, at=terms.at, seed=terms.seed)
    return run_clean(candidates, split, refit=terms.refit, recency=terms.recency, at=terms.at, seed=terms.seed)


def run_clean(
    candidates: Sequence[Recommender],
    split: Split,
    *,
    refit: bool = True,
    recency: RecencyRule = "given",
    at: Iterable[int] = (50, 100),
    seed: int = 0,
) -> Outcome:
    """Chooses on validation, refits the choice on train + validation, and asks the test part once.

    Without `refit` the model that was chosen is measured as it is. Test histories hold train + validation either way.
    Histories weigh what they carry; with `recency="own"` what each model was trained for, with `"auto"` what validation
    says; that weighs what is refitted on and asked too.
    """

    def choose() -> tuple[Recommender, tuple[Tried, ...]]:
        if not refit:
            return choose_on_validation(candidates, split, recency=recency)
        chosen, tried = choose_parameters(candidates, *chosen_on(split, "clean"), recency=recency)
        with work_at_hand().part("refit"):
            return chosen.fit(tried[place_of_best(tried)].weigh(split.train_and_validation)), tried

    return _run(choose, split, at, seed)


def run_paper(
    candidates: Sequence[Recommender],
    split: Split,
    *,
    recency: RecencyRule = "given",
    at: Iterable[int] = (50, 100),
    seed: int = 0,
) -> Outcome:
    """As the paper's program does: everything before the test items is trained on, every choice is made on test.

    Recall and NDCG are divided as in the paper (`counted_as_paper`). What comes out is not a result: the test part has
    been looked at hundreds of times.
    """
    split = counted_as_paper(split)
    choose = partial(choose_on, candidates, *chosen_on(split, "paper"), recency=recency)
    return _run(choose, split, at, seed)


def _run(
    choose: Callable[[], tuple[Recommender, tuple[Tried, ...]]], split: Split, at: Iterable[int], seed: int
) -> Outcome:
    started = time.perf_counter()
    model, tried = choose()
    chosen = place_of_best(tried)
    asked = as_known(model, replace(split.test, histories=tried[chosen].weigh(split.test.histories)))
    evaluation = evaluate(model, asked, at=at, seed=seed)
    return Outcome(model, evaluation, tried, chosen, time.perf_counter() - started, asked)
