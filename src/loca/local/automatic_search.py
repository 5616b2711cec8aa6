"""What `Auto` tries, in which order and within which budget: closed forms by climbing, then networks of next items."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from loca.data.held_out import HeldOut
from loca.data.interactions import Interactions
from loca.errors import ConfigError, DataError
from loca.files.model_state import ModelState
from loca.files.unfinished_work import work_at_hand
from loca.local.blend import POWERS
from loca.local.blend_scales import sharpened
from loca.models.network_answers import score_on
from loca.models.recommender import Recommender, UserWeights, clone, get_params
from loca.progress import say
from loca.random_streams import stream
from loca.ranking.evaluation import mean_ndcg

Axes = Mapping[str, Sequence[Any]]
# Settings are told apart on so many validation users; the blend asks all of them.
_MOST_USERS = 4000


@dataclass(frozen=True)
class Budget:
    """How long trials may go on, in seconds, and how many there may be at most."""

    seconds: float
    trials: int | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.seconds, int | float) and 0 < self.seconds < float("inf")):
            raise ConfigError(f"seconds: expected a number above 0, found {self.seconds!r}")
        whole = isinstance(self.trials, int) and not isinstance(self.trials, bool)
        if self.trials is not None and not (whole and self.trials >= 1):
            raise ConfigError(f"trials: expected a whole number ≥ 1, found {self.trials!r}")


@dataclass(frozen=True)
class Trial:
    """One model that was fitted: its name and settings, NDCG@100 on validation at its best power, and the seconds."""

    name: str
    settings: str
    ndcg: float
    power: float
    seconds: float

    def __str__(self) -> str:
        return f"{self.name} ({self.settings}): {self.ndcg:.4f} at power {self.power:g}, {self.seconds:.1f} s"


class Search:
    """Fits models on `train`, judges them on validation, and keeps the account of time, trials and scores.

    What an interrupted run has judged is not judged again.
    """

    def __init__(
        self,
        train: Interactions | csr_array,
        user_weights: UserWeights | None,
        validation: HeldOut,
        budget: Budget,
        seed: int,
    ) -> None:
        self.train, self.user_weights, self.validation = train, user_weights, validation
        self.budget = budget
        self.trials: list[Trial] = []
        self._questions = _some_users(validation, seed)
        self._started = time.perf_counter()
        self._charged = 0.0

    @property
    def seconds_left(self) -> float:
        """What is left of the budget; the time that an interrupted run took for what it judged counts too."""
        return self.budget.seconds - self._charged - (time.perf_counter() - self._started)

    @property
    def share_judged(self) -> float:
        """The share of the validation users on whom settings are told apart."""
        return self._questions.n_users / self.validation.n_users

    def may_take(self, seconds: float, share: float = 1.0) -> bool:
        """Whether another trial of so many seconds fits the trials, and ends within that share of the seconds."""
        if self.budget.trials is not None and len(self.trials) >= max(1, round(share * self.budget.trials)):
            return False
        return self.seconds_left - seconds >= (1 - share) * self.budget.seconds

    def fit(self, model: Recommender, name: str) -> Recommender:
        """A fitted copy of the model; what an interrupted run has kept of its learning is gone on with."""
        fresh = clone(model)
        with work_at_hand().part(f"trial {name} {told(model)}"):
            fresh.fit(self.train, user_weights=self.user_weights, validation=self.validation)
        fresh.known_ = None  # the blend keeps the data, once
        return fresh

    def judge(self, model: Recommender, power: float) -> float:
        """NDCG@100 on validation of a fitted model that sees the histories at a power."""
        return mean_ndcg(lambda rows: score_on(model, sharpened(rows, power)), self._questions, 100)

    def count(self, name: str, model: Recommender, ndcg: float, power: float, seconds: float) -> None:
        """Writes a trial into the account."""
        trial = Trial(name, told(model), ndcg, power, seconds)
        self.trials.append(trial)
        say(f"auto: trial {len(self.trials)}: {trial}")

    def remember(self, what: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Facts that a run which goes on must not find out anew: those kept, else those made now, which are kept.

        Among them are the `seconds` that it took to find them out.
        """
        kept = work_at_hand().recall(what)
        if kept is not None:
            self._charged += kept.facts["seconds"]
            return dict(kept.facts)
        started = time.perf_counter()
        facts = make()
        facts["seconds"] = time.perf_counter() - started
        work_at_hand().keep(what, ModelState(facts=facts))
        return facts


class Climb:
    """Hill climbing of one family of quick models, an axis of settings at a time, one step up or down at a time.

    It may go on until `share` of the budget's seconds have passed.
    """

    def __init__(self, search: Search, name: str, start: Recommender, axes: Axes, share: float) -> None:
        self._search, self._name, self._start, self._axes, self._share = search, name, start, axes, share
        self._settings = {axis: get_params(start)[axis] for axis in axes}
        self._fitted: Recommender | None = None
        self._ndcg = -np.inf
        self._power = 1.0
        self.longest = 0.0

    def run(self) -> Recommender | None:
        """The best fitted model, None where the budget allows not even the first; one model is tried at any price."""
        if self._search.trials and not self._search.may_take(0.0, self._share):
            return None
        try:
            self._improves(self._settings)
        except DataError as error:
            # Too large for the memory there is; other kinds may take less.
            say(f"auto: no {self._name}: {error}")
            return None
        self._climb_power()
        for axis, values in self._axes.items():
            self._climb_axis(axis, values)
        self._climb_power()
        return self._best()

    def _climb_axis(self, axis: str, values: Sequence[Any]) -> None:
        """Goes up, or else down, the values of one setting as long as that helps."""
        first = list(values).index(self._settings[axis])
        for step in (1, -1):
            place = first + step
            while 0 <= place < len(values) and self._search.may_take(self.longest, self._share):
                if not self._improves({**self._settings, axis: values[place]}):
                    break
                place += step
            if self._settings[axis] != values[first]:
                return

    def _improves(self, settings: dict[str, Any]) -> bool:
        """Whether the model with these settings is the best so far, which it then becomes."""
        model, power = clone(self._start, **settings), self._power
        new: list[Recommender] = []

        def judge() -> dict[str, Any]:
            new.append(self._search.fit(model, self._name))
            return {"ndcg": self._search.judge(new[0], power)}

        facts = self._search.remember(f"{self._name} {told(model)} {power:g}", judge)
        ndcg, seconds = float(facts["ndcg"]), float(facts["seconds"])
        self.longest = max(self.longest, seconds)
        self._search.count(self._name, model, ndcg, power, seconds)
        if ndcg <= self._ndcg:
            return False
        self._settings, self._ndcg, self._fitted = settings, ndcg, new[0] if new else None
        return True

    def _best(self) -> Recommender:
        """The best model; one that an interrupted run has judged is fitted once more, when it is needed."""
        if self._fitted is None:
            self._fitted = self._search.fit(clone(self._start, **self._settings), self._name)
        return self._fitted

    def _climb_power(self) -> None:
        """Finds the power at which the best model sees the histories; that costs no fit."""
        if self._search.validation.histories.recency is None:
            return
        first = POWERS.index(self._power)
        for step in (1, -1):
            place = first + step
            while 0 <= place < len(POWERS) and (ndcg := self._at_power(POWERS[place])) > self._ndcg:
                self._ndcg, self._power = ndcg, POWERS[place]
                place += step
            if self._power != POWERS[first]:
                return

    def _at_power(self, power: float) -> float:
        what = f"{self._name} {told(self._best())} {power:g}"
        return float(self._search.remember(what, lambda: {"ndcg": self._search.judge(self._best(), power)})["ndcg"])


def _some_users(validation: HeldOut, seed: int) -> HeldOut:
    """The questions of a few thousand users at most, drawn at random."""
    asked = np.flatnonzero(validation.targets.counts() > 0)
    if len(asked) <= _MOST_USERS:
        return validation
    some = np.sort(stream(seed, "validation users of auto").permutation(asked)[:_MOST_USERS])
    return validation.of_users(some)


def told(model: object) -> str:
    """The settings of a model in one line, mostly those of its base where it has one; without seeds and devices."""
    params = get_params(model)
    base = params.get("base")
    own = {} if base is None else {"models": params.get("models", params.get("anchors"))}
    shown = {**own, **(params if base is None else get_params(base))}
    return ", ".join(f"{name} {value}" for name, value in shown.items() if name not in ("seed", "device"))
