"""Auto: fits and blends what is best for the data at hand, by validation alone and within a budget."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.communities.embeddings import TruncatedSVD
from loca.data.held_out import HeldOut
from loca.data.interactions import Interactions, as_matrix, as_moments
from loca.data.order_check import minding_order
from loca.data.recency import Recency
from loca.errors import ConfigError, DataError, ModelFileError
from loca.files import save_model
from loca.local.automatic_search import Budget, Climb, Search, Trial
from loca.local.blend import Blend
from loca.local.blend_explanation import BlendExplanation, explain_blend
from loca.local.ensemble import Ensemble
from loca.local.explanation import Explanation, explain_history
from loca.local.loca import Loca
from loca.local.stacked import StackedLearning
from loca.models.devices import check_device
from loca.models.ease import EASE
from loca.models.mult_vae import MultVAE
from loca.models.next_ease import NextEASE
from loca.models.recommender import ModelState, Recommender, Scores, UserWeights, check_user_weights, clone, fitted
from loca.progress import say
from loca.random_streams import derive_seed

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


class Auto:
    """The best blend that validation finds within `seconds` (and `trials`, where given): the answer to "just do it".

    First EASE, a Loca over it, and NextEASE, their settings by hill climbing; then ensembles of MultVAE of three
    lessons, as large as time allows; all are blended. Histories are weighed by `decay` a position (unless the
    interactions have a recency of their own; None weighs nothing), and each part sees them flatter or sharper as
    validation says, down to no recency at all. A fit with `chosen` fits that and searches nothing: so does a refit.
    Time decides what is tried, and how many epochs at most; with `trials` and ample seconds two runs are the same.
    """

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
        self.known_: Interactions | None = None

    def fit(
        self,
        train: Interactions | csr_array,
        *,
        user_weights: UserWeights | None = None,
        validation: HeldOut | None = None,
    ) -> Self:
        """Searches on validation and blends; with `chosen` only that is fitted."""
        check_user_weights(user_weights, as_matrix(train).shape[0])
        weighed, questions = self._weigh(train, validation)
        self.trials_ = ()
        if self.chosen is not None:
            self.model_ = clone(self.chosen).fit(weighed, user_weights=user_weights, validation=questions)
        elif questions is None:
            raise ConfigError("auto: needs held-out items to choose on; give validation, or a chosen model")
        else:
            with minding_order(train):
                self.model_ = self._search(weighed, user_weights, questions)
        self.model_.known_ = None  # kept once, here
        self.known_ = weighed if isinstance(weighed, Interactions) else None
        return self

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

    def _search(
        self, train: Interactions | csr_array, user_weights: UserWeights | None, questions: HeldOut
    ) -> Recommender:
        limit = "" if self.trials is None else f" or {self.trials} trials"
        say(f"auto: {self.seconds:g} s{limit} to try models in, a little more to blend them; a refit takes less")
        started = time.perf_counter()
        search = Search(train, user_weights, questions, Budget(self.seconds, self.trials), self.seed)
        ease = EASE(l2=300.0, denoising=0.5, device=self.device)
        following = NextEASE(l2=300.0, next_count=10, ordinary=1.0, prefix_decay=0.8, device=self.device)
        matrix = as_matrix(train)
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
        self, history: csr_array, n: int = 10, *, order: npt.NDArray[Any] | None = None
    ) -> BlendExplanation | Explanation:
        """What each part of the blend adds to one history's list; of a chosen Loca, what its communities say."""
        model = fitted(self.model_, self)
        if isinstance(model, Blend):
            return explain_blend(model, csr_array(history), n, order, self.known_)
        if isinstance(model, Loca):
            return explain_history(model, csr_array(history), n, order, self.known_)
        raise ConfigError(f"expected a blend or a Loca to explain, found a chosen {type(model).__name__}")

    def count_items(self) -> int:
        """How many items it scores."""
        return fitted(self.model_, self).count_items()

    def as_chosen(self) -> Self:
        """A copy that fits what was chosen and searches nothing."""
        return clone(self) if self.model_ is None else clone(self, chosen=self.model_.as_chosen())

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

    def save(self, folder: str | Path) -> None:
        """Writes the model into a folder, whole or not at all."""
        save_model(self, folder)


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
    learning = StackedLearning([trial.begin(matrix, search.user_weights, as_moments(search.train))])
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
