"""How a model is chosen, fitted and measured: `clean` is a result, `paper` repeats how the paper's program did it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from loca.data.held_out import Split
from loca.errors import ConfigError, did_you_mean
from loca.experiments.choices import Tried, choose_on, choose_on_validation
from loca.models.recommender import Recommender
from loca.ranking.evaluation import Evaluation, evaluate

ProtocolName = Literal["clean", "paper"]
SELECTED_ON_TEST = "SELECTED ON TEST: NOT A RESULT"


@dataclass(frozen=True, eq=False)
class Outcome:
    """A fitted model, its test evaluation, what was tried for it, and the seconds from first fit to evaluation.

    `chosen` is the place of the chosen candidate in `tried`.
    """

    model: Recommender
    evaluation: Evaluation
    tried: tuple[Tried, ...]
    chosen: int
    seconds: float


def check_protocol(name: str) -> None:
    """Refuses a protocol that does not exist, naming the nearest."""
    if name not in get_args(ProtocolName):
        nearest = did_you_mean(name, get_args(ProtocolName)) or "; expected 'clean' or 'paper'"
        raise ConfigError(f"unknown protocol {name!r}{nearest}")


def run_clean(
    candidates: Sequence[Recommender],
    split: Split,
    *,
    refit: bool = True,
    at: Iterable[int] = (50, 100),
    seed: int = 0,
) -> Outcome:
    """Chooses on validation, refits the choice on train + validation, and asks the test part once.

    Without `refit` the model that was chosen is measured as it is. Test histories hold train + validation either way.
    """

    def choose() -> tuple[Recommender, tuple[Tried, ...]]:
        fitted, tried = choose_on_validation(candidates, split)
        return fitted.as_chosen().fit(split.train_and_validation) if refit else fitted, tried

    return _run(choose, split, at, seed)


def run_paper(
    candidates: Sequence[Recommender], split: Split, *, at: Iterable[int] = (50, 100), seed: int = 0
) -> Outcome:
    """As the paper's program does: everything before the test items is trained on, every choice is made on test.

    What comes out is not a result: the test part has been looked at hundreds of times.
    """
    return _run(lambda: choose_on(candidates, split.train_and_validation, split.test), split, at, seed)


def _run(
    choose: Callable[[], tuple[Recommender, tuple[Tried, ...]]], split: Split, at: Iterable[int], seed: int
) -> Outcome:
    started = time.perf_counter()
    model, tried = choose()
    evaluation = evaluate(model, split.test, at=at, seed=seed)
    scores = [one.ndcg for one in tried]
    return Outcome(model, evaluation, tried, scores.index(max(scores)), time.perf_counter() - started)
