"""Auto: fit and blend what is best for the data at hand, by validation alone and within a budget."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from scipy.sparse import csr_array

from loca.communities.mixture import Mixtures
from loca.data.interactions import Interactions
from loca.data.recency import Recency
from loca.data.splits import HeldOut
from loca.data.statistics import warn_of_file_order
from loca.errors import ConfigError, DataError
from loca.evaluation.evaluate import mean_value
from loca.evaluation.explain import Sources
from loca.evaluation.top_n import AnyScores
from loca.local.blend import POWERS, Blend
from loca.local.blend_search import sharpened
from loca.local.engines.stacked.trainer import StackedTrainer
from loca.local.ensemble import Ensemble
from loca.local.loca import Loca
from loca.memory import DataSize, MemoryUse
from loca.models.devices import score_on
from loca.models.ease import EASE
from loca.models.mult_vae import MultVAE
from loca.models.next_ease import NextEASE
from loca.models.params import number, seed_param, whole
from loca.models.recommender import (
    ItemRows,
    Recommender,
    Scores,
    SimilarityKind,
    TrainingData,
    clone,
    fitted,
    model_param,
)
from loca.persistence.learned import learned_fact, learned_part
from loca.progress import say
from loca.random_streams import derive_seed, stream
from loca.remarks import remark

AnyModel = TypeVar("AnyModel", bound=Recommender)
_L2 = (10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)
_EASE_AXES = {"l2": _L2, "denoising": (0.0, 0.5)}
_NEXT_AXES = {
    "next_count": (3, 10, 30),
    "ordinary": (0.1, 0.3, 1.0, 3.0, 10.0),
    "prefix_decay": (0.5, 0.8, 0.9),
}
# How long models are tried where neither seconds nor trials are given.
DEFAULT_SECONDS = 720.0
# The shares of the budget that have passed at most when EASE, LOCA over it, NextEASE and NextEASE alone are done.
_EASE_SHARE, _LOCAL_SHARE, _NEXT_SHARE, _ALONE_SHARE = 0.2, 0.3, 0.5, 0.58
COMMUNITIES = 24
_USERS_PER_COMMUNITY = 20
# What the networks are trained on: different training targets err differently, which is what a blend lives on.
TARGETS: Mapping[str, Mapping[str, Any]] = {
    "next items and sets": {"target": "next", "set_share": 0.3},
    "next items": {"target": "next"},
    "all that follows and sets": {"target": "following", "set_share": 0.5},
}
MOST_MEMBERS = 8
_EXPECTED_EPOCHS = 70
# Of the seconds that are left, what networks may plan with: some run longer than expected, and the blend takes time.
_SHARE_FOR_NETWORKS = 0.8
# Settings are compared on so many validation users; the blend uses all of them.
_MOST_USERS = 4000


@dataclass(frozen=True)
class Trial:
    """One model that was fitted: its name and settings, its validation score at its best power, and the seconds.

    The seconds are a measurement: trials are equal that differ in nothing else.
    """

    name: str
    settings: str
    score: float
    power: float
    seconds: float = field(compare=False)

    def __str__(self) -> str:
        return f"{self.name} ({self.settings}): {self.score:.4f} at power {self.power:g}, {self.seconds:.1f} s"


def _are_trials(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(trial, Trial) for trial in value)


def _are_texts(value: object) -> bool:
    return isinstance(value, tuple) and all(type(text) is str for text in value)


@dataclass(kw_only=True, eq=False, repr=False)
class Auto(Recommender):
    """Find the best blend of models that validation allows within a budget.

    It tries EASE, a Loca over it, and NextEASE, their settings by hill climbing; then ensembles of MultVAE with three
    training targets; all are blended. Each part sees the histories flatter or sharper as validation says, down to no
    recency at all.

    The budget is a number of trials or a time. With `trials` no clock decides anything: two fits on the same CPU are
    equal to the bit, however busy it is. With `seconds` a clock decides what is tried, how many networks there are and
    for how many epochs they learn; `report` names what was left out.

    Parameters
    ----------
    seconds : float or None, default None
        How long models may be tried; blending and a refit come on top. None allows 720 seconds. With `trials` they
        count for nothing.
    trials : int or None, default None
        The most models to try, where an ensemble counts as one and has as many networks as there are trials, at most
        8. None lets the seconds decide.
    decay : float or None, default 0.9
        Weight of an item in a history relative to the item after it, where the interactions have no recency of their
        own; None weights all alike.
    chosen : Recommender or None, default None
        A model to fit in place of a search, which needs no validation data; a refit has one.
    seed : int, default 0
        Seed of everything drawn.

    Examples
    --------
    >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12, shortest_history=10).interactions
    >>> rest, held_out, _ = loca.hold_last(data, 2)
    >>> model = loca.Auto(trials=1).fit(rest, validation=held_out)
    >>> [trial.name for trial in model.trials_]
    ['EASE']
    >>> model.score(data.histories()).shape
    (60, 30)
    """

    role = "auto"
    uses_order = True

    seconds: float | None = number(
        None, "a number above 0", lambda value: 0 < value < math.inf, optional=True
    )
    trials: int | None = whole(None, optional=True)
    decay: float | None = 0.9
    chosen: Recommender | None = model_param(optional=True)
    seed: int = seed_param()

    model_: Recommender | None = learned_part(Recommender, "items", selects="chosen")
    trials_: tuple[Trial, ...] = learned_fact("trials", _are_trials)
    left_out_: tuple[str, ...] = learned_fact("names", _are_texts)  # for lack of time

    def __post_init__(self) -> None:
        super().__post_init__()
        self._recency = None if self.decay is None else Recency.per_position(self.decay)

    def _fit(self, data: TrainingData) -> None:
        """Search on validation and blend; with `chosen` only that is fitted."""
        self.trials_, self.left_out_ = (), ()
        train, validation = data.train, data.validation
        if isinstance(train, Interactions) and train.recency is None:
            train = train.with_recency(self._recency)
        if validation is not None and validation.histories.recency is None:
            validation = validation.with_recency(self._recency)
        if self.chosen is not None:
            chosen = clone(self.chosen)
            self.model_ = data.context.fit(
                chosen,
                train,
                user_weights=data.user_weights,
                validation=validation,
                metric=data.metric,
                device=data.device,
            )
        elif validation is None:
            raise ConfigError(
                "auto: needs held-out items to choose on; give validation, or a chosen model"
            )
        else:
            if not data.context.order_checked:
                warn_of_file_order(data.train)
            self.model_ = self._search(
                replace(data, train=train, validation=validation), validation
            )
        self.model_.train_data_ = None  # stored once, here
        self.train_data_ = train if isinstance(train, Interactions) else None

    def _update(self, data: TrainingData, epochs: int) -> None:
        """Update what was chosen; nothing is searched."""
        self.model_ = fitted(self.model_, self).updated(data, epochs)

    @property
    def takes_new_items(self) -> bool:
        """Whether what was chosen takes in new items."""
        return fitted(self.model_, self).takes_new_items

    def _search(self, data: TrainingData, validation: HeldOut) -> Recommender:
        """Fit all parts that the budget allows, and blend them."""
        if self.trials is not None and self.seconds is not None:
            remark(
                "trials-decide",
                f"auto: trials={self.trials} and seconds={self.seconds:g} were given; the trials "
                "alone count, and the search takes as long as they take",
            )
        seconds = DEFAULT_SECONDS if self.seconds is None else self.seconds
        search = Search(data, validation, seconds, self.trials, self.seed)
        limit = f"{seconds:g} s" if self.trials is None else f"number of trials {self.trials}"
        say(f"auto: {limit} to try models in; blending them takes a little longer")
        started = time.perf_counter()
        parts = self._fit_linear(search) | self._fit_networks(search)
        if not parts:
            raise DataError(
                "auto: nothing could be fitted; the lines above say why: filter rare items, or free memory"
            )
        self.trials_ = tuple(search.trials)
        self.left_out_ = tuple(search.left_out)
        blend = Blend.of(
            list(parts.values()),
            validation,
            metric=data.metric,
            names=list(parts),
            seed=self.seed,
        )
        took = time.perf_counter() - started
        say(f"auto: {len(search.trials)} trials and the blend took {took:.0f} s")
        return blend

    def _fit_linear(self, search: Search) -> dict[str, Recommender]:
        """Climb to the best EASE, Loca over it and NextEASE, each within its share of the budget."""
        parts: dict[str, Recommender | None] = {}
        start: Recommender = EASE(l2=300.0, denoising=0.5)
        ease = Climb(search, "EASE", start, _EASE_AXES, _EASE_SHARE)
        best = parts["EASE"] = ease.run()
        users = int((np.diff(search.data.matrix.indptr) > 0).sum())
        communities = min(COMMUNITIES, users // _USERS_PER_COMMUNITY)
        if best is not None and communities > 1:
            local = Loca(base=clone(best), communities=Mixtures(n=communities), seed=self.seed)
            expected = communities * ease.longest
            climb = Climb(search, "Loca of EASE", local, {}, _LOCAL_SHARE, expected)
            parts["Loca of EASE"] = climb.run()

        start = NextEASE(l2=300.0, next_count=10, ordinary=1.0, prefix_decay=0.8)
        following = Climb(search, "NextEASE", start, _NEXT_AXES | {"l2": _L2}, _NEXT_SHARE)
        best = parts["NextEASE"] = following.run()
        if best is not None:
            # The same without EASE's own aim errs differently.
            model = clone(best, ordinary=0.0)
            alone = Climb(search, "NextEASE alone", model, {}, _ALONE_SHARE, following.longest)
            parts["NextEASE, next items alone"] = alone.run()
        return {name: model for name, model in parts.items() if model is not None}

    def _fit_networks(self, search: Search) -> dict[str, Recommender]:
        """Fit ensembles of networks of one size, one for each training target that the budget allows."""
        network = MultVAE(
            dropout=0.2, noise=0.1, kl_weight=0.0, learning_rate=2e-3, prefix_decay=self.decay or 1.0, epochs=200,
            patience=16, evaluate_every=2, seed=derive_seed(self.seed, "auto networks") % 2**31,
        )  # fmt: skip
        if not search.may_take("networks"):
            return {}
        plan = plan_networks(search, network)
        if plan.members < MOST_MEMBERS:
            missing = MOST_MEMBERS - plan.members
            search.leave_out(f"{missing} of {MOST_MEMBERS} networks of each target")
        ensembles: dict[str, Recommender] = {}
        longest = 0.0
        for position, (name, target) in enumerate(TARGETS.items()):
            networks = f"networks of {name}"
            if position >= plan.targets or not search.may_take(networks, longest):
                search.leave_out(networks)
                continue
            base = clone(network, seed=network.seed + position, epochs=plan.epochs, **target)
            ensemble = Ensemble(base=base, models=plan.members, seed=base.seed)
            started = time.perf_counter()
            try:
                model = search.fit(ensemble, name)
            except DataError as error:
                say(f"auto: no networks: {error}")  # too large for the memory there is
                break
            score = search.judge(model, 1.0)
            seconds = time.perf_counter() - started
            longest = max(longest, seconds)
            search.count(Trial(name, settings_of(ensemble), score, 1.0, seconds))
            ensembles[f"MultVAE, {name}"] = model
            # Early stopping ends a training so many epochs after the best one, or later.
            was_cut_short = fitted(model.epochs_, model) + network.patience > plan.epochs
            if was_cut_short and plan.epochs < network.epochs:
                search.leave_out(f"epochs of a network from {plan.epochs + 1} on")
        return ensembles

    def score(self, histories: csr_array) -> Scores:
        """Score with the blend.

        Parameters
        ----------
        histories : csr_array
            Users × items, each entry with its weight; their users need not be known.

        Returns
        -------
        ndarray of float32
            Users × items.
        """
        return fitted(self.model_, self).score(histories)

    @property
    def similarity_kind(self) -> SimilarityKind | None:
        """That of the blend, or of the chosen model."""
        return fitted(self.model_, self).similarity_kind

    def _similarities(self, item_rows: ItemRows) -> Scores:
        """Those of the blend, or of the chosen model."""
        return fitted(self.model_, self).similarities(item_rows)

    def additive_at(self, history: csr_array) -> Callable[[csr_array], Scores] | None:
        """What scores rows as a sum over their items, where the blend or the chosen model has that."""
        return fitted(self.model_, self).additive_at(history)

    def sources_of(
        self, history: csr_array, items: Any, n: int, known: Interactions | None
    ) -> Sources | None:
        """What answers inside the blend or the chosen model."""
        return fitted(self.model_, self).sources_of(history, items, n, known)

    def memory_bytes(self, data: DataSize) -> MemoryUse:
        """Estimate the chosen model, or all kinds that are tried: the best of each stays while the next is fitted."""
        if self.chosen is not None:
            return self.chosen.memory_bytes(data)
        if not data.validation_users:
            raise ConfigError(
                "auto: needs held-out items to choose on; expected --validation of at least 1, found 0"
            )
        network = MultVAE()
        kinds: dict[str, Recommender] = {
            "EASE": EASE(),
            "local EASEs": Ensemble(base=EASE(), models=COMMUNITIES),
            "NextEASE": NextEASE(),
            "NextEASE, next items alone": NextEASE(ordinary=0.0),
            **{
                f"networks of {name}": Ensemble(base=network, models=MOST_MEMBERS)
                for name in TARGETS
            },
        }
        steps = {}
        for name, use in (
            Blend(parts=tuple(kinds.values()), names=tuple(kinds)).memory_bytes(data).steps
        ):
            flat = replace(use, steps=(), advice="filter rare items, or fit one model by its name")
            steps[name] = replace(
                flat, main=use.main + use.main_after
            )  # the best so far, while the next is fitted
        return MemoryUse.in_turn(steps)

    def _report(self) -> str:
        """Tabulate what each part earned on validation, and name what was left out for lack of time."""
        model = fitted(self.model_, self)
        if model.role != "blend":
            return "nothing was searched: the model was given"
        lines = [model.report()]
        if self.left_out_:
            lines.append(f"left out for lack of time: {'; '.join(self.left_out_)}")
        return "\n".join(lines)


@dataclass(frozen=True)
class NetworkPlan:
    """How many training targets get an ensemble, of how many networks, with how many epochs at most."""

    targets: int
    members: int
    epochs: int


def plan_networks(search: Search, network: MultVAE) -> NetworkPlan:
    """Choose the size of the ensembles: by the number of trials alone, or by the seconds that are left."""
    if search.most_trials is not None:
        # Who allows few trials wants a quick answer; early stopping ends the training.
        members = min(MOST_MEMBERS, search.most_trials)
        return NetworkPlan(len(TARGETS), members, network.epochs)
    facts = search.remember("networks", lambda: asdict(plan_by_time(search, network)))
    return NetworkPlan(facts["targets"], facts["members"], facts["epochs"])


def plan_by_time(search: Search, network: MultVAE) -> NetworkPlan:
    """Choose the size of the ensembles that fit the seconds left, by timing an epoch."""
    trial = clone(network, target="next")
    data = search.data
    trainer = StackedTrainer(
        [trial.begin(data.matrix, data.user_weights, data.moments, device=data.device)]
    )
    trainer.run_epoch()  # warms up
    started = time.perf_counter()
    trainer.run_epoch()
    epoch = time.perf_counter() - started
    started = time.perf_counter()
    search.judge(trial, 1.0)
    # All validation users judge a network, while settings are compared on some.
    share = search.judged_on.n_users / search.validation.n_users
    judging = (time.perf_counter() - started) / share / network.evaluate_every
    # No clock is so fine that an epoch takes no time.
    seconds_an_epoch = max(epoch + judging, 1e-9)
    seconds = _SHARE_FOR_NETWORKS * search.seconds_left
    for targets in range(len(TARGETS), 0, -1):
        affordable = int(seconds / targets / (_EXPECTED_EPOCHS * seconds_an_epoch))
        members = min(MOST_MEMBERS, affordable)
        if members >= 1:
            # Training ends by itself; where it does not, it may take half as long again.
            most = int(1.5 * seconds / (targets * members * seconds_an_epoch))
            say(f"auto: {targets} ensembles of {members} networks, {epoch:.2f} s an epoch of one")
            return NetworkPlan(targets, members, min(network.epochs, most))
    epochs = max(1, int(seconds / seconds_an_epoch))
    say(f"auto: what is left of the time is enough for one network of {epochs} epochs")
    return NetworkPlan(1, 1, epochs)


@dataclass(eq=False)
class Search:
    """Fits models on the training data, judges them on validation, and keeps to the budget.

    Where there are `most_trials` they alone are the budget, and no clock decides anything; else the `seconds` are, and
    `left_out` names what they had no room for. What an interrupted run has judged is not judged again.
    """

    data: TrainingData
    validation: HeldOut
    seconds: float
    most_trials: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        self.trials: list[Trial] = []
        self.left_out: list[str] = []
        self.judged_on = self.validation
        users = np.flatnonzero(self.validation.targets.counts() > 0)
        if len(users) > _MOST_USERS:
            drawn = stream(self.seed, "validation users of auto").permutation(users)[:_MOST_USERS]
            self.judged_on = self.validation.of_users(np.sort(drawn))
        self._started = time.perf_counter()

    @property
    def seconds_left(self) -> float:
        """What is left of the seconds; the time that an interrupted run took for what it judged counts too."""
        return self.seconds - (time.perf_counter() - self._started)

    def may_take(self, name: str, seconds: float = 0.0, share: float = 1.0) -> bool:
        """Tell whether there is room for another trial within that share of the budget; what has none is left out.

        A number of trials asks nothing else; of seconds a trial is expected to take that many.
        """
        if self.most_trials is not None:
            return len(self.trials) < max(1, round(share * self.most_trials))
        if self.seconds_left - seconds >= (1 - share) * self.seconds:
            return True
        self.leave_out(name)
        return False

    def leave_out(self, name: str) -> None:
        """Note what there is no time for; a number of trials leaves out nothing for lack of time."""
        if self.most_trials is None and name not in self.left_out:
            self.left_out.append(name)

    def fit(self, model: AnyModel, name: str) -> AnyModel:
        """Fit a copy of the model; what an interrupted run has stored of its learning is gone on with."""
        context = self.data.context.of_part(f"trial {name} {settings_of(model)}")
        fresh = clone(model)
        context.fit(
            fresh,
            self.data.train,
            user_weights=self.data.user_weights,
            validation=self.validation,
            metric=self.data.metric,
            device=self.data.device,
        )
        fresh.train_data_ = None  # the blend holds the data, once
        return fresh

    def judge(self, model: Recommender, power: float) -> float:
        """Return the validation score of a fitted model that sees the histories at a power."""

        def score(rows: csr_array) -> AnyScores:
            return score_on(model, sharpened(rows, power))

        return mean_value(score, self.judged_on, self.data.metric)

    def count(self, trial: Trial) -> None:
        """Counts a trial and reports it."""
        self.trials.append(trial)
        say(f"auto: trial {len(self.trials)}: {trial}")

    def remember(self, what: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return facts that a resumed run must not find out anew: the stored ones, else new ones, which are stored.

        Among them are the `seconds` that it took to find them out.
        """
        saved = self.data.context.checkpoint.load(what)
        if saved is not None:
            self._started -= saved["seconds"]
            return saved
        started = time.perf_counter()
        facts = make()
        facts["seconds"] = time.perf_counter() - started
        self.data.context.checkpoint.save(what, facts)
        return facts


@dataclass(eq=False)
class Climb:
    """Hill climbing of one family of quick models, an axis of settings at a time, one step up or down at a time.

    It starts with `best` and may go on until `share` of the budget has passed. The first trial is `expected` to take so
    many seconds, each further one as long as the `longest` so far.
    """

    search: Search
    name: str
    best: Recommender
    axes: Mapping[str, Sequence[Any]]
    share: float
    expected: float = 0.0
    longest: float = field(default=0.0, init=False)

    def run(self) -> Recommender | None:
        """The best fitted model, None where the budget allows not even the first; one model is tried at any price."""
        self._fitted: Recommender | None = None
        self._score, self._power = -np.inf, 1.0
        is_first = not self.search.trials
        if not is_first and not self.search.may_take(self.name, self.expected, self.share):
            return None
        try:
            self._improves(clone(self.best), self._power)
        except DataError as error:
            # Too large for the memory there is; other kinds may take less.
            say(f"auto: no {self.name}: {error}")
            return None
        self._climb_power()
        for axis, values in self.axes.items():
            self._climb(values, self.best.get_params()[axis], axis)
        self._climb_power()
        # One that an interrupted run has judged is fitted once more.
        return self.search.fit(self.best, self.name) if self._fitted is None else self._fitted

    def _climb_power(self) -> None:
        """Finds the power at which the best model sees the histories; that costs no fit."""
        if self.search.validation.histories.recency is not None:
            self._climb(POWERS, self._power)

    def _climb(self, values: Sequence[Any], start: Any, axis: str | None = None) -> None:
        """Goes up, or else down, the values of an axis, or of the power, as long as each is better than the last."""
        first = list(values).index(start)
        settings = f"some settings of {self.name}"
        for step in (1, -1):
            place = first + step
            while 0 <= place < len(values):
                if axis is None:
                    better = self._improves(self.best, values[place])
                elif better := self.search.may_take(settings, self.longest, self.share):
                    better = self._improves(clone(self.best, **{axis: values[place]}), self._power)
                if not better:
                    break
                place += step
            if place != first + step:
                return

    def _improves(self, model: Recommender, power: float) -> bool:
        """Whether a model at a power is better than the best, and then becomes the best; a new model is a trial."""
        is_new = model is not self.best
        found = None if is_new else self._fitted

        def judge() -> dict[str, Any]:
            nonlocal found
            if found is None:
                found = self.search.fit(model, self.name)
            return {"score": self.search.judge(found, power)}

        settings = settings_of(model)
        facts = self.search.remember(f"{self.name} {settings} {power:g}", judge)
        score, seconds = float(facts["score"]), float(facts["seconds"])
        if is_new:
            self.longest = max(self.longest, seconds)
            self.search.count(Trial(self.name, settings, score, power, seconds))
        if score > self._score:
            self.best, self._power, self._score, self._fitted = model, power, score, found
            return True
        if not is_new:
            self._fitted = found
        return False


def settings_of(model: Any) -> str:
    """The settings of a model in one line without seeds, mostly those of its base if it has one."""
    shown = model.get_params(deep=False)
    if "base" in shown:
        shown = {
            "models": model.size,
            **shown["base"].get_params(deep=False),
        }
    return ", ".join(f"{name} {value}" for name, value in shown.items() if name != "seed")
