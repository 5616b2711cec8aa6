"""Loca: one global model, many local ones for communities of users, and answers combined by membership."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array

from loca.communities.best_of import BestOf
from loca.communities.finder import Communities, CommunityFinder
from loca.data.interactions import Interactions
from loca.errors import ConfigError, ModelFileError
from loca.evaluation.metrics import Values
from loca.evaluation.top_n import as_array
from loca.local.combiner import Combiner, GlobalShare
from loca.local.community_description import CommunityDescription, Locality
from loca.local.community_models import CommunityModels
from loca.local.engines.engine import (
    Engine,
    ManyFits,
    copies_of,
    scaled_weights,
    train,
    warm_copies,
)
from loca.local.explain import AnswersOfCommunities
from loca.local.judge import Judge
from loca.local.many_models import ManyModels, is_engine_or_none
from loca.local.sources import answers_of_communities
from loca.memory import DataSize, MemoryUse
from loca.models.params import param, seed_param
from loca.models.recommender import (
    ItemRows,
    Recommender,
    Scores,
    SimilarityKind,
    TrainingData,
    UserWeights,
    clone,
    fitted,
    model_param,
)
from loca.persistence.learned import learned_part
from loca.remarks import remark
from loca.typing import FloatArray


def _is_finder(value: object) -> bool:
    return isinstance(value, CommunityFinder)


def _is_combiner(value: object) -> bool:
    return isinstance(value, Combiner)


@dataclass(kw_only=True, eq=False, repr=False)
class Loca(ManyModels):
    """Combine a global model with many local ones, each trained for a community of users.

    These are the local collaborative autoencoders of the paper, over any base model that takes user
    weights. Communities are found; each local model is the base, fitted with the wide weights of one
    community (T), and answers for a narrow one (W). The scores of a covered user are
    α · global + (1 − α) · weighted mean of the local models that answer; other users get the global
    scores.

    Parameters
    ----------
    base : Recommender
        The model that is copied for each community.
    communities : CommunityFinder, default BestOf()
        How communities are found: `Kernels` around anchor users, as in the paper; `Mixtures` by
        likelihood; `RandomGroups`, an ensemble of models that differ more; or whichever of these is
        best on validation (`BestOf`).
    combiner : Combiner, default GlobalShare()
        How much of an answer is the global model's: chosen on validation (`GlobalShare`), given
        (`FixedShare`), or nothing for covered users (`LocalOnly`).
    global_model : Recommender or None, default None
        The model of all users; None takes a copy of the base.
    engine : Engine or None, default None
        How local models are trained: `Stacked`, `Differences` or `Loop`, all with the same scores.
        None takes what suits the base.
    seed : int, default 0
        Seed of communities and local models.

    Examples
    --------
    >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12, shortest_history=10).interactions
    >>> model = loca.Loca(base=loca.EASE(), communities=loca.Kernels(n=4)).fit(data)
    >>> model.score(data.histories()).shape
    (60, 30)
    >>> model.answer_weights(data.histories()).shape
    (60, 4)
    >>> len(model.explain("u07", n=3).items)
    3
    """

    role = "local"

    base: Recommender = model_param()
    communities: CommunityFinder = param(BestOf(), "a finder such as Mixtures()", _is_finder)
    combiner: Combiner = param(GlobalShare(), "a combiner such as FixedShare(0.3)", _is_combiner)
    global_model: Recommender | None = model_param(optional=True)
    engine: Engine | None = param(None, "an engine such as Loop() or none", is_engine_or_none)
    seed: int = seed_param()

    global_: Recommender | None = learned_part(Recommender, "items", selects="global_model")
    local_: CommunityModels | None = learned_part(CommunityModels, "items")

    def _fit(self, data: TrainingData) -> None:
        """Follow the paper: a global model, communities, a local model for each, their combination."""
        self.global_ = data.fit_part("global model", clone(self.global_model or self.base))
        self.local_ = self._fit_communities(data, self.global_)

    def _fit_communities(self, data: TrainingData, global_model: Recommender) -> CommunityModels:
        judge = Judge.of(data, global_model)
        finders = self.communities.candidates(self, data)
        trained = [
            self._fit_locally(
                finder,
                data.inside(f"form {number}") if len(finders) > 1 else data,
                global_model,
                judge,
            )
            for number, finder in enumerate(finders)
        ]
        return self.communities.best(trained, judge, self.combiner)

    def _fit_locally(
        self,
        finder: CommunityFinder,
        data: TrainingData,
        global_model: Recommender,
        judge: Judge | None,
    ) -> CommunityModels:
        communities = finder.find(data, base=self.base, global_model=global_model, seed=self.seed)
        positions = communities.locate(data.histories)
        copies = copies_of(self.base, len(communities), self.seed, communities.seed_name)
        fits = local_fits(copies, communities, positions, data, global_model)
        engine = self.engine_of(fits.n_items)
        if judge is None:
            models = train(fits, engine)
            combiner = self.combiner.choose(models, None)
        else:
            users = judge.locate(communities)
            models = train(fits, engine, users.while_learning(self.combiner))
            communities = users.calibrated(models, self.combiner)
            combiner = self.combiner.choose(models, users.panel(communities))
        return CommunityModels(
            finder=finder.selected(communities),
            communities=communities,
            models=models,
            combiner=combiner,
            description=CommunityDescription.of(communities, positions, data, combiner),
        )

    def values_with(
        self,
        finder: CommunityFinder,
        *,
        base: Recommender,
        global_model: Recommender,
        data: TrainingData,
    ) -> Values:
        """Return the value of each validation user by other communities over another base.

        A finder that chooses among others tries them so. Nothing is kept.

        Parameters
        ----------
        finder : CommunityFinder
            What finds the communities.
        base : Recommender
            What is trained for each of them.
        global_model : Recommender
            The fitted model of all users.
        data : TrainingData
            With validation.

        Returns
        -------
        ndarray of float64
        """
        judge = Judge.of(data, global_model)
        if judge is None:
            raise ConfigError("values_with: expected training data with validation, found none")
        tried = clone(self, base=base, global_model=None, communities=finder, engine=None)
        return tried._fit_communities(data, global_model).values(judge)

    def _update(self, data: TrainingData, epochs: int) -> None:
        """Update the global model and the local ones; old and new users join the communities."""
        remark("kept", "Loca: its communities and global share stay as they were fitted")
        local = fitted(self.local_, self)
        communities = local.communities
        n_items = data.matrix.shape[1]
        if n_items > self.count_items():
            communities = communities.with_items(n_items)
        self.global_ = fitted(self.global_, self).updated(data, epochs)
        positions = communities.locate(data.histories)
        copies = warm_copies(self.base, local.models, self.seed, "local model", data, epochs)
        fits = local_fits(copies, communities, positions, data, self.global_)
        fits = replace(fits, shared_epochs=0, present=local.models, epochs=epochs)
        self.local_ = replace(
            local,
            communities=communities,
            models=train(fits, self.engine_of(n_items)),
            description=CommunityDescription.of(communities, positions, data, local.combiner),
        )

    def score(self, histories: csr_array) -> Scores:
        """Locate, weight and score every history.

        Parameters
        ----------
        histories : csr_array
            Users × items, each entry with its weight; their users need not be known.

        Returns
        -------
        ndarray of float32
            Users × items.
        """
        local = fitted(self.local_, self)
        return as_array(local.scores(fitted(self.global_, self), csr_array(histories)))

    def answer_weights(self, histories: csr_array) -> csr_array:
        """Compute how much each community counts for each history.

        Parameters
        ----------
        histories : csr_array
            Users × items, each entry with its weight; their users need not be known.

        Returns
        -------
        csr_array of float32
            Users × communities; the row of an uncovered user is empty.
        """
        return fitted(self.local_, self).answer_weights(histories)

    def with_global_share(self, share: float) -> Self:
        """Answer with another share of the global model.

        Parameters
        ----------
        share : float
            The global model's share for covered users, from 0 (the communities alone) to 1 (the
            global model alone).

        Returns
        -------
        Loca
            A fitted model that shares what this one learned.
        """
        local = fitted(self.local_, self)
        model = copy.copy(self)
        model.local_ = local.with_global_share(share)
        return model

    @property
    def size(self) -> int:
        """The number of communities, at most."""
        return self.communities.n

    @property
    def locality_(self) -> Locality | None:
        """How local the answers are; None before a fit."""
        return None if self.local_ is None else self.local_.description.locality

    @property
    def gives_logits(self) -> bool:
        """Whether all its models give logits."""
        return self.base.gives_logits and (
            self.global_model is None or self.global_model.gives_logits
        )

    @property
    def takes_new_items(self) -> bool:
        """Whether all its models take in new items, and its communities can do with them."""
        communities = None if self.local_ is None else self.local_.communities
        return super().takes_new_items and (communities is None or communities.supports_new_items)

    @property
    def similarity_kind(self) -> SimilarityKind | None:
        """That of the global model."""
        return (self.global_model or self.base).similarity_kind

    def _similarities(self, item_rows: ItemRows) -> Scores:
        """Return those of the global model: a community answers users, its items are those of all."""
        return fitted(self.global_, self).similarities(item_rows)

    def additive_at(self, history: csr_array) -> Callable[[csr_array], Scores] | None:
        """Return what scores rows as a sum over their items, by the communities of this history.

        The communities themselves follow from the whole history, and are as they are. None where a
        model is no such sum.
        """
        local, global_model = fitted(self.local_, self), fitted(self.global_, self)
        if not (self.base.is_additive and global_model.is_additive):
            return None
        answer_weights = local.answer_weights(history)

        def score(rows: csr_array) -> Scores:
            repeated = csr_array(answer_weights[np.zeros(rows.shape[0], dtype=np.int64)])
            return as_array(local.scores_of(global_model, rows, repeated))

        return score

    def sources_of(
        self, history: csr_array, items: Any, n: int, known: Interactions | None
    ) -> AnswersOfCommunities:
        """Return the communities that answer a history, and what each of them would list alone.

        Parameters
        ----------
        history : csr_array
            One row, 1 × items.
        items : ndarray
            The rows of the listed items.
        n : int
            Length of the lists.
        known : Interactions or None
            What names the anchors; None names them by their rows.

        Returns
        -------
        AnswersOfCommunities
            The strongest first.
        """
        local, global_model = fitted(self.local_, self), fitted(self.global_, self)
        return answers_of_communities(local, global_model, history, n, known)

    def facts(self) -> dict[str, Any]:
        """Return what was chosen, what is known of the communities, and how local the answers are.

        Of the training users: the share that a community trains on, and the share of the pairs of a
        user and a community that answer.

        Returns
        -------
        dict
        """
        local = fitted(self.local_, self)
        locality = local.description.locality
        facts: dict[str, Any] = {"alpha": locality.alpha, "epochs": local.models.epochs_}
        facts |= local.communities.facts()
        facts["effective_share"] = locality.effective_share
        facts["answering"] = locality.answering
        if self.train_data_ is not None:
            communities = local.communities
            positions = communities.locate(self.train_data_.histories())
            trained = [
                np.count_nonzero(communities.train_weights(positions, number)) / len(positions)
                for number in range(len(communities))
            ]
            n_answers = communities.answer_weights(positions).nnz
            facts["train_share"] = float(np.mean(trained))
            facts["answer_share"] = n_answers / (len(positions) * len(communities))
        return facts

    def memory_bytes(self, data: DataSize) -> MemoryUse:
        """Estimate the memory of each step of `fit`: global model, communities and local models."""
        global_model = self.global_model or self.base
        steps = {"global model": global_model.memory_bytes(data)}
        steps |= self.communities.memory(data, base=self.base, global_model=global_model)
        engine = self.engine_of(data.items)
        n = min(self.communities.n, data.users)
        steps |= engine.memory(self.base, n, data, "local models", global_model)
        use = MemoryUse.in_turn(steps)
        # Trained candidates stay until the best of them is chosen.
        held = self.communities.n_trained(self.base) - 1
        return replace(use, main=use.main + held * use.main_after)

    def check_known(self, known: Interactions) -> None:
        """Refuse training data that has other items or users than the model."""
        super().check_known(known)
        anchors = fitted(self.local_, self).communities.anchors
        if anchors is not None and (anchors >= known.n_users).any():
            raise ModelFileError(f"an anchor is none of the {known.n_users} users")


def local_fits(
    copies: list[Recommender],
    communities: Communities,
    positions: FloatArray,
    data: TrainingData,
    global_model: Recommender,
) -> ManyFits:
    """Return the fits of copies of a base, each with the train weights of one community."""
    total = float(data.user_weights.sum(dtype=np.float64))

    def weights_of(number: int) -> UserWeights:
        wide = communities.train_weights(positions, number)
        return scaled_weights(data.user_weights * wide, total)

    return ManyFits(
        models=copies,
        data=data,
        weights_of=weights_of,
        name="local models",
        global_model=global_model,
        shared_epochs=communities.shared_epochs,
    )
