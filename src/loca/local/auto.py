"""Auto: fits and blends what is best for the data at hand, by validation alone and within a budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.communities.embeddings import TruncatedSVD
from loca.data.interactions import Interactions, as_moments
from loca.data.recency import Recency
from loca.data.splits import HeldOut
from loca.data.statistics import warn_of_file_order
from loca.errors import ConfigError, DataError, ModelFileError
from loca.evaluation.evaluate import mean_ndcg
from loca.local.blend import POWERS, Blend
from loca.local.blend_search import sharpened
from loca.local.ensemble import Ensemble
from loca.local.explain import BlendExplanation, Explainable, Explanation
from loca.local.loca import Loca
from loca.local.stacked.trainer import StackedTrainer
from loca.memory import DataSize, MemoryUse
from loca.models.devices import check_device
from loca.models.ease import EASE
from loca.models.mult_vae import MultVAE
from loca.models.network_base import score_on
from loca.models.next_ease import NextEASE
from loca.models.recommender import (
    ModelState,
    Recommender,
    Scores,
    TrainingData,
    clone,
    fitted,
    get_params,
)
from loca.progress import say
from loca.random_streams import derive_seed, stream

_L2 = (10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)
_EASE_AXES = {"l2": _L2, "denoising": (0.0, 0.5)}
_NEXT_AXES = {
    "next_count": (3, 10, 30),
    "ordinary": (0.1, 0.3, 1.0, 3.0, 10.0),
    "prefix_decay": (0.5, 0.8, 0.9),
    "l2": _L2,
}
# The shares of the budget that have passed at most when EASE, LOCA over it, NextEASE and NextEASE alone are done.
_EASE_SHARE, _LOCAL_SHARE, _NEXT_SHARE, _ALONE_SHARE = 0.2, 0.3, 0.5, 0.58
COMMUNITIES = 24
_USERS_PER_COMMUNITY = 20
# What the networks are shown: different lessons err differently, which is what a blend lives on.
LESSONS: Mapping[str, Mapping[str, Any]] = {
    "next items and sets": {"target": "next", "set_share": 0.3},
    "next items": {"target": "next"},
    "all that follows and sets": {"target": "following", "set_share": 0.5},
}
MOST_MEMBERS = 8
_EXPECTED_EPOCHS = 70
# Of the seconds that are left, what networks may plan with: some run longer than expected, and the blend takes time.
_SHARE_FOR_NETWORKS = 0.8
Axes = Mapping[str, Sequence[Any]]
# Settings are told apart on so many validation users; the blend asks all of them.
_MOST_USERS = 4000


class Auto(Recommender):
    """The best blend that validation finds within `seconds` (and `trials`, where given): the answer to "just do it".

    First EASE, a Loca over it, and NextEASE, their settings by hill climbing; then ensembles of MultVAE of three
    lessons, as large as time allows; all are blended. Histories are weighed by `decay` a position (unless the
    interactions have a recency of their own; None weighs nothing), and each part sees them flatter or sharper as
    validation says, down to no recency at all. A fit with `chosen` fits that and searches nothing: so does a refit.
    Time decides what is tried, and how many epochs at most; with `trials` and ample seconds two runs are the same.
    """

    role = "auto"
    uses_order = True

    def __init__(
        self,
        *,
        seconds: float = 720.0,
        trials: int | None = None,
        decay: float | None = 0.9,
        chosen: Recommender | None = None,
        device: str = "auto",
        seed: int = 0,
    ) -> None:
        Budget(seconds, trials)
        if decay is not None:
            Recency.per_position(decay)
        check_device(device)
        self.seconds = seconds
        self.trials = trials
        self.decay = decay
        self.chosen = chosen
        self.device = device
        self.seed = seed
        self.model_: Recommender | None = None
        self.trials_: tuple[Trial, ...] = ()

    def _fit(self, data: TrainingData) -> None:
        """Searches on validation and blends; with `chosen` only that is fitted."""
        weighed, questions = self._weigh(data.train, data.validation)
        self.trials_ = ()
        if self.chosen is not None:
            chosen = clone(self.chosen)
            self.model_ = data.context.fit(chosen, weighed, user_weights=data.user_weights, validation=questions)
        elif questions is None:
            raise ConfigError("auto: needs held-out items to choose on; give validation, or a chosen model")
        else:
            if not data.context.order_checked:
                warn_of_file_order(data.train)
            self.model_ = self._search(replace(data, train=weighed, validation=questions), questions)
        self.model_.train_data_ = None  # kept once, here
        self.train_data_ = weighed if isinstance(weighed, Interactions) else None

    def _weigh(
        self, train: Interactions | csr_array, validation: HeldOut | None
    ) -> tuple[Interactions | csr_array, HeldOut | None]:
        """Training data and questions with this model's recency where they have none of their own."""
        recency = None if self.decay is None else Recency.per_position(self.decay)
        if isinstance(train, Interactions) and train.recency is None:
            train = train.with_recency(recency)
        if validation is not None and validation.histories.recency is None:
            validation = validation.with_recency(recency)
        return train, validation

    def _search(self, data: TrainingData, questions: HeldOut) -> Recommender:
        limit = "" if self.trials is None else f" or {self.trials} trials"
        say(f"auto: {self.seconds:g} s{limit} to try models in, a little more to blend them; a refit takes less")
        started = time.perf_counter()
        search = Search(data, questions, Budget(self.seconds, self.trials), self.seed)
        ease = EASE(l2=300.0, denoising=0.5, device=self.device)
        following = NextEASE(l2=300.0, next_count=10, ordinary=1.0, prefix_decay=0.8, device=self.device)
        matrix = data.matrix
        parts = {
            **_fit_ease(search, ease, int((np.diff(matrix.indptr) > 0).sum()), self.seed),
            **_fit_next(search, following),
            **self._fit_networks(search, matrix),
        }
        found = {name: model for name, model in parts.items() if model is not None}
        if not found:
            raise DataError("auto: nothing could be fitted; the lines above say why: filter rare items, or free memory")
        self.trials_ = tuple(search.trials)
        blend = Blend.of(list(found.values()), questions, names=list(found), seed=self.seed)
        say(f"auto: {len(search.trials)} trials and the blend took {time.perf_counter() - started:.0f} s")
        return blend

    def _fit_networks(self, search: Search, matrix: csr_array) -> dict[str, Recommender]:
        """Ensembles of networks of one size, one for each lesson that still fits the budget."""
        network = MultVAE(
            dropout=0.2, noise=0.1, kl_weight=0.0, learning_rate=2e-3, prefix_decay=self.decay or 1.0, epochs=200,
            patience=16, evaluate_every=2, device=self.device, seed=derive_seed(self.seed, "auto networks") % 2**31,
        )  # fmt: skip
        if not search.may_take(0.0):
            return {}
        plan = search.remember("networks", lambda: _plan_networks(search, network, matrix))
        fitted_ones: dict[str, Recommender] = {}
        longest = 0.0
        for number, (name, lesson) in enumerate(LESSONS.items()):
            if number >= plan["lessons"] or not search.may_take(longest):
                break
            base = clone(network, seed=network.seed + number, epochs=plan["epochs"], **lesson)
            ensemble = Ensemble(base=base, models=plan["members"], seed=base.seed)
            started = time.perf_counter()
            try:
                model = search.fit(ensemble, name)
            except DataError as error:
                say(f"auto: no networks: {error}")  # too large for the memory there is
                break
            ndcg = search.judge(model, 1.0)
            seconds = time.perf_counter() - started
            longest = max(longest, seconds)
            search.count(name, ensemble, ndcg, 1.0, seconds)
            fitted_ones[f"MultVAE, {name}"] = model
        return fitted_ones

    def score(self, histories: csr_array) -> Scores:
        """The scores of the blend, users × items."""
        return fitted(self.model_, self).score(histories)

    def explain(
        self,
        history: csr_array,
        n: int = 10,
        *,
        order: npt.NDArray[Any] | None = None,
        data: Interactions | None = None,
    ) -> BlendExplanation | Explanation:
        """What each part of the blend adds to one history's list; of a chosen Loca, what its communities say."""
        model: object = fitted(self.model_, self)
        if not isinstance(model, Explainable):
            raise ConfigError(f"expected a blend or a Loca to explain, found a chosen {type(model).__name__}")
        return model.explain(history, n, order=order, data=self.train_data_ if data is None else data)

    def memory_bytes(self, data: DataSize) -> MemoryUse:
        """The chosen model, or all kinds that the search fits: the best of each stays while the next is fitted."""
        if self.chosen is not None:
            return self.chosen.memory_bytes(data)
        if not data.validation_users:
            raise ConfigError("auto: needs held-out items to choose on; expected --validation of at least 1, found 0")
        network = MultVAE(device=self.device)
        kinds: dict[str, Recommender] = {
            "EASE": EASE(device=self.device),
            "local EASEs": Ensemble(base=EASE(device=self.device), models=COMMUNITIES),
            "NextEASE": NextEASE(device=self.device),
            "NextEASE, next items alone": NextEASE(ordinary=0.0, device=self.device),
            **{f"networks of {name}": Ensemble(base=network, models=MOST_MEMBERS) for name in LESSONS},
        }
        steps = {}
        for name, use in Blend(parts=tuple(kinds.values()), names=tuple(kinds)).memory_bytes(data).steps:
            flat = replace(use, steps=(), advice="filter rare items, or fit one model by its name")
            steps[name] = replace(flat, main=use.main + use.main_after)  # the best so far, while the next is fitted
        return MemoryUse.in_turn(steps)

    def count_items(self) -> int:
        """How many items it scores."""
        return fitted(self.model_, self).count_items()

    def with_selected_params(self) -> Self:
        """A copy that fits what was chosen and searches nothing."""
        return clone(self) if self.model_ is None else clone(self, chosen=self.model_.with_selected_params())

    def report(self) -> str:
        """What each part earned on validation."""
        return self.model_.report() if isinstance(self.model_, Blend) else "nothing was searched: the model was given"

    def state(self) -> ModelState:
        tried = [[one.name, one.settings, one.ndcg, one.power, one.seconds] for one in self.trials_]
        return ModelState(facts={"trials": tried}, parts={"model": fitted(self.model_, self)})

    @classmethod
    def restore(cls, params: Mapping[str, Any], state: ModelState) -> Self:
        model = cls(**params)
        inner = state.parts.get("model")
        if not isinstance(inner, Recommender):
            raise ModelFileError("auto: expected a part 'model' that is a recommender")
        try:
            model.trials_ = tuple(Trial(*one) for one in state.facts["trials"])
        except TypeError as problem:
            raise ModelFileError(f"auto: trials: {problem}") from problem
        model.model_ = inner
        return model


def _fit_ease(search: Search, start: EASE, users: int, seed: int) -> dict[str, Recommender | None]:
    """The best EASE, and a Loca over it where so many local ones fit the budget."""
    climb = Climb(search, "EASE", start, _EASE_AXES, _EASE_SHARE)
    best = climb.run()
    parts: dict[str, Recommender | None] = {"EASE": best}
    communities = min(COMMUNITIES, users // _USERS_PER_COMMUNITY)
    if best is not None and communities > 1 and search.may_take(communities * climb.longest, _LOCAL_SHARE):
        local = Loca(base=clone(best), anchors=communities, embedding=TruncatedSVD(seed=seed), seed=seed)
        alone = Climb(search, "Loca of EASE", local, {"anchors": (communities,)}, _LOCAL_SHARE)
        parts["Loca of EASE"] = alone.run()
    return parts


def _fit_next(search: Search, start: NextEASE) -> dict[str, Recommender | None]:
    """The best NextEASE, and the same without EASE's own aim, which errs differently."""
    climb = Climb(search, "NextEASE", start, _NEXT_AXES, _NEXT_SHARE)
    best = climb.run()
    parts: dict[str, Recommender | None] = {"NextEASE": best}
    if best is not None and search.may_take(climb.longest, _ALONE_SHARE):
        alone = Climb(search, "NextEASE alone", clone(best, ordinary=0.0), {"ordinary": (0.0,)}, _ALONE_SHARE)
        parts["NextEASE, next items alone"] = alone.run()
    return parts


def _plan_networks(search: Search, network: MultVAE, matrix: csr_array) -> dict[str, Any]:
    """How many lessons, members of each ensemble and epochs fit the seconds that are left, by timing an epoch."""
    trial = clone(network, target="next")
    learning = StackedTrainer([trial.begin(matrix, search.data.user_weights, as_moments(search.data.train))])
    learning.run_epoch()  # warms up
    started = time.perf_counter()
    learning.run_epoch()
    epoch = time.perf_counter() - started
    started = time.perf_counter()
    search.judge(trial, 1.0)
    judging = (time.perf_counter() - started) / search.share_judged / network.evaluate_every
    seconds = _SHARE_FOR_NETWORKS * search.seconds_left
    for lessons in range(len(LESSONS), 0, -1):
        members = min(MOST_MEMBERS, int(seconds / lessons / (_EXPECTED_EPOCHS * (epoch + judging))))
        if members >= 1:
            # Learning ends by itself; where it does not, it may take half as long again.
            most = int(1.5 * seconds / (lessons * members * (epoch + judging)))
            say(f"auto: {lessons} ensembles of {members} networks, {epoch:.2f} s an epoch of one")
            return {"lessons": lessons, "members": members, "epochs": min(network.epochs, most)}
    epochs = max(1, int(seconds / (epoch + judging)))
    say(f"auto: time for one network of {epochs} epochs")
    return {"lessons": 1, "members": 1, "epochs": epochs}


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

    def __init__(self, data: TrainingData, validation: HeldOut, budget: Budget, seed: int) -> None:
        self.data, self.validation = data, validation
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
        trial = self.data.context.inside(f"trial {name} {told(model)}")
        fresh = trial.fit(
            clone(model), self.data.train, user_weights=self.data.user_weights, validation=self.validation
        )
        fresh.train_data_ = None  # the blend keeps the data, once
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
        kept = self.data.context.checkpoint.load(what)
        if kept is not None:
            self._charged += kept.facts["seconds"]
            return dict(kept.facts)
        started = time.perf_counter()
        facts = make()
        facts["seconds"] = time.perf_counter() - started
        self.data.context.checkpoint.save(what, ModelState(facts=facts))
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
