"""Loca: one global model, many local ones for communities of users, and answers blended by membership."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Self, get_args

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.communities.communities import (
    AnchorSelection,
    Communities,
    Locality,
    MixtureCommunities,
    check_anchor_count,
    find_communities,
    mixture_communities,
    restore_communities,
)
from loca.communities.coverage import ADVICE, bytes_of_bits, bytes_on_device
from loca.communities.embeddings import Embedder, TruncatedSVD, embed_users, embedding_dimensions
from loca.communities.geometry import (
    KERNELS,
    Bandwidth,
    Floats,
    KernelName,
    Quantile,
    check_bandwidth,
    quantile_bytes,
)
from loca.communities.mixture import DealtMixture, MultinomialMixture, RandomGroups
from loca.data.interactions import Interactions, as_histories
from loca.errors import ConfigError, LocaError, ModelFileError, check_choice
from loca.evaluation.top_n import as_array, rank_top_n
from loca.local.community_choice import every_nth, fit_best_form, flattest
from loca.local.explain import AnswersOfCommunities, CommunityAnswer, over_represented, raised_items
from loca.local.local_ease import LOCAL_BYTES
from loca.local.local_models import (
    AnswerPrecision,
    LocalModels,
    LocalTask,
    ManyModels,
    PrecisionName,
    Validator,
    blended_scores,
    first_models,
    truncated,
)
from loca.local.training import (
    Engine,
    EngineName,
    copies_going_on,
    copies_of,
    local_memory,
    scaled_weights,
    train_locals,
)
from loca.memory import DataSize, MemoryUse
from loca.models.devices import choose_device, free_bytes
from loca.models.recommender import (
    BaseEstimator,
    ItemRows,
    ModelState,
    Recommender,
    Scores,
    SimilarityKind,
    TrainingData,
    UserWeights,
    clone,
    fitted,
    is_number,
    model_param,
    param,
    seed_param,
    whole,
    with_items,
)
from loca.progress import say
from loca.remarks import remark

ALPHAS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
DISTINCTIVE_ITEMS = 20
CommunityKind = Literal["kernel", "mixture", "dealt", "random", "auto"]
# Of the answers of a mixture: validation chooses among them; the last weights all communities nearly alike.
TEMPERATURES = (1.0, 2.0, 4.0, 8.0, 16.0, 64.0, 1024.0)
# Without validation, and while networks learn.
_TEMPERATURE, _TEMPERATURE_TO_STOP = 8.0, 16.0
_MOST_JUDGES = 2_000
_FOCUS_OF_NETWORKS, _FOCUS, _FOCUS_OF_RANDOM = 0.8, 0.5, 0.3
_LOCALITY = (
    "effective_share",
    "answering",
)  # the figures of `Locality` that a file holds beside alpha


def _is_embedder(value: object) -> bool:
    return value is None or (isinstance(value, Embedder) and not isinstance(value, type))


@dataclass(kw_only=True, eq=False, repr=False)
class Loca(ManyModels):
    """Blend a global model with many local ones, each trained for a community of users.

    These are the local collaborative autoencoders of the paper, over any base model that takes user weights. Users are
    embedded; anchor users are chosen; each local model is the base fitted with the wide weights of the community around
    its anchor, and scores for the narrow neighbourhood of the anchor. The scores of a covered user are
    α · global + (1 − α) · weighted mean of the local models that answer; other users get the global scores.

    With mixtures, communities are found by likelihood (`MultinomialMixture`) and everybody belongs to some. All users
    teach each local model, members more. Networks learn from all users alike at first, then for their community.

    Parameters
    ----------
    base : Recommender
        The model that is copied for each community.
    anchors : int, default 40
        Number of communities; one for each user where the data has fewer than the default.
    anchor_selection : {"coverage", "random", "kmeans", "farthest"}, default "coverage"
        How anchors are chosen. `"coverage"` covers as many users as it can, greedily.
    train_bandwidth : float or Quantile, default Quantile(0.9, times=1.3)
        Radius of the wide neighbourhood that a local model learns from, in units of distance or as a quantile of the
        distances between users.
    answer_bandwidth : float or Quantile, default Quantile(0.5)
        Radius of the narrow neighbourhood that a local model scores for.
    kernel : {"epanechnikov", "paper", "uniform", "triangular"}, default "epanechnikov"
        How a weight falls with the distance to the anchor.
    embedding : Embedder or None, default None
        What embeds the users: `TruncatedSVD`, `GivenEmbeddings`, or a model with an encoder. None takes the global
        model where it has an encoder, else a truncated SVD.
    global_model : Recommender or None, default None
        The model of all users; None takes a copy of the base.
    alpha : float, "validation" or "paper", default "validation"
        The global model's share for covered users: a number from 0 to 1; `"validation"` chooses it on validation data
        (0 without any); `"paper"` is 0.
    stopping : {"blended", "community"}, default "blended"
        For the paper's protocol alone: with `"community"` each network stops on the members of its community. Else one
        number of epochs is chosen for all local models, by the validation score of the blend.
    engine : {"auto", "stacked", "one_by_one"}, default "auto"
        How local models are trained; the scores are the same. `"auto"` and `"stacked"` train networks as one batched
        network, and store a local EASE as differences to the global one. `"one_by_one"` trains them in a loop and
        stores them dense; it is the reference.
    precision : {"float32", "bfloat16"}, default "float32"
        `"bfloat16"` lets the stacked engine multiply 16-bit numbers; sums and weights have 32 bits.
    answer_precision : {"float32", "float16"}, default "float32"
        `"float16"` stores the weights of local networks in half the memory.
    local_bytes : int, default 9000000
        What a local EASE may take: its largest differences to the global one.
    seed : int, default 0
        Seed of communities and local models.
    communities : {"kernel", "mixture", "dealt", "random", "auto"}, default "kernel"
        How communities are found: by kernels around anchors, as in the paper; as components of mixtures; `"dealt"` is
        a control, mixtures whose memberships are dealt to other users at random. `"random"` has groups drawn at random
        in place of communities, which all answer alike: an ensemble of models that differ more. `"auto"` decides on
        validation; without validation it is `"mixture"`.
    mixtures : int, default 2
        Mixtures side by side; each has `anchors` / `mixtures` communities.
    focus : float or None, default None
        How much of a user's train weight goes by membership in a mixture, from 0 (all users alike) to 1. None takes
        0.8 for networks and 0.5 for others, 0.3 for random groups.
    temperature : float or "validation", default "validation"
        Of memberships in a mixture when communities answer: above 1 is flatter. `"validation"` chooses it on validation
        data (8 without any).
    answering : int, default 16
        The most communities of mixtures that answer a history.
    shared_epochs : int or None, default None
        Epochs in which the networks of mixtures learn from all users alike. None takes as many as the global model
        took.

    Examples
    --------
    >>> data = loca.planted_communities(users=60, items=30, groups=5, history=12, shortest_history=10).interactions
    >>> model = loca.Loca(base=loca.EASE(), anchors=4).fit(data)
    >>> model.score(data.histories()).shape
    (60, 30)
    >>> model.answer_weights(data.histories()).shape
    (60, 4)
    >>> len(model.explain("u07", n=3).items)
    3
    """

    role = "local"

    base: Recommender = model_param()
    anchors: int = whole(40)
    anchor_selection: AnchorSelection = "coverage"
    train_bandwidth: Bandwidth = Quantile(0.9, times=1.3)
    answer_bandwidth: Bandwidth = Quantile(0.5)
    kernel: KernelName = "epanechnikov"
    embedding: Embedder | None = param(
        None, "an embedder such as TruncatedSVD() or none", _is_embedder
    )
    global_model: Recommender | None = model_param(optional=True)
    alpha: float | Literal["validation", "paper"] = param(
        "validation",
        "a number from 0 to 1, 'validation' or 'paper'",
        lambda one: one in ("validation", "paper") or (is_number(one) and 0 <= one <= 1),
    )
    # One number of epochs for all local models; or each stops on its own members, for the paper's protocol alone.
    stopping: Literal["blended", "community"] = "blended"
    engine: EngineName = "auto"
    precision: PrecisionName = "float32"
    answer_precision: AnswerPrecision = "float32"
    local_bytes: int = LOCAL_BYTES
    seed: int = seed_param()
    communities: CommunityKind = param(
        "kernel",
        "kernel, mixture, dealt, random or auto",
        lambda one: one in get_args(CommunityKind),
        later=True,
    )
    mixtures: int = param(
        2, "a whole number ≥ 1", lambda one: type(one) is int and one >= 1, later=True
    )
    focus: float | None = param(
        None,
        "a number from 0 to 1 or none",
        lambda one: one is None or (is_number(one) and 0 <= one <= 1),
        later=True,
    )
    temperature: float | Literal["validation"] = param(
        "validation",
        "a number above 0 or 'validation'",
        lambda one: one == "validation" or (is_number(one) and 0 < one < float("inf")),
        later=True,
    )
    answering: int = param(
        16, "a whole number ≥ 1", lambda one: type(one) is int and one >= 1, later=True
    )
    shared_epochs: int | None = param(
        None,
        "a whole number ≥ 0 or none",
        lambda one: one is None or (type(one) is int and one >= 0),
        later=True,
    )

    global_: Recommender | None = field(default=None, init=False)
    embedder_: Embedder | None = field(default=None, init=False)
    communities_: Communities | None = field(default=None, init=False)
    locals_: LocalModels | None = field(default=None, init=False)
    local_epochs_: int | None = field(default=None, init=False)
    shared_epochs_: int | None = field(default=None, init=False)
    alpha_: float | None = field(default=None, init=False)
    locality_: Locality | None = field(default=None, init=False)
    members_: npt.NDArray[np.int64] | None = field(default=None, init=False)
    distinctive_: tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]] | None = field(
        default=None, init=False
    )
    answering_models_: int | None = field(default=None, init=False)  # of a truncated model

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("anchor_selection", self.anchor_selection, get_args(AnchorSelection))
        check_choice("kernel", self.kernel, KERNELS)
        check_bandwidth("train_bandwidth", self.train_bandwidth)
        check_bandwidth("answer_bandwidth", self.answer_bandwidth)
        if self.stopping not in ("blended", "community"):
            raise ConfigError(
                f"stopping: expected 'blended' or 'community', found {self.stopping!r}"
            )
        if self.communities != "kernel" and self.mixtures > self.anchors:
            raise ConfigError(
                f"mixtures: expected at most as many as anchors, {self.anchors}, found {self.mixtures}"
            )
        self._engine()

    def _engine(self) -> Engine:
        return Engine(self.engine, self.precision, self.answer_precision, self.local_bytes)

    @property
    def gives_logits(self) -> bool:
        """Whether all its models give logits."""
        return self.base.gives_logits and (
            self.global_model is None or self.global_model.gives_logits
        )

    def _anchor_count(self, user_count: int) -> int:
        """How many communities so many users allow: of the default, which nobody requested, as many as there can be."""
        default = inspect.signature(type(self)).parameters["anchors"].default
        check_anchor_count(1 if self.anchors == default else self.anchors, user_count)
        return min(self.anchors, user_count)

    def _fit(self, data: TrainingData) -> None:
        """Follow the paper's algorithm: find communities, train a local model for each, learn how to combine them."""
        users = int((np.diff(data.matrix.indptr) > 0).sum())
        allowed = self._anchor_count(users)
        if allowed < self.anchors:
            text = f"{users:,} users with a history allow {allowed} communities, not {self.anchors}"
            remark("communities", f"Loca: {text}")
        # The global model, which answers for whom no community does.
        unfitted = self.base if self.global_model is None else self.global_model
        self.global_ = data.fit_part("global model", clone(unfitted))
        self.global_.train_data_ = None  # stored once, here
        if self.communities != "auto":
            self.fit_local(data)
            return
        best = fit_best_form(self, data)
        own = {one.name for one in fields(Loca) if not one.init} - {"train_data_", "report_"}
        vars(self).update({name: value for name, value in vars(best).items() if name in own})

    def fit_local(self, data: TrainingData) -> None:
        """Find communities and train their local models, where the global model is fitted."""
        matrix, context, global_model = data.matrix, data.context, fitted(self.global_, self)
        has_history = np.diff(matrix.indptr) > 0
        anchor_count = self._anchor_count(int(has_history.sum()))

        # An embedding of every user. Under recency a community is one of present taste, and membership moves as a
        # history grows.
        self.embedder_ = embedder = self._fit_embedder(data)
        embedder.train_data_ = None
        embeddings = embed_users(embedder, as_histories(data.train))

        # Communities. Only users with a history can be anchors, and only they are counted.
        def find() -> ModelState:
            users = np.flatnonzero(has_history)
            if self.communities == "kernel":
                names = (
                    "anchor_selection",
                    "train_bandwidth",
                    "answer_bandwidth",
                    "kernel",
                    "seed",
                )
                settings = {name: getattr(self, name) for name in names}
                given = {**settings, "anchors": anchor_count, "device": data.device}
                kernels = find_communities(embeddings[users], **given)
                return replace(kernels, anchors=users[kernels.anchors]).state()
            found = mixture_communities(
                embeddings[users],
                mixtures=self.mixtures,
                focus=self._focus(),
                temperature=self._temperature(),
                answering=anchor_count if self.communities == "random" else self.answering,
            )
            return replace(found, anchors=users[found.anchors]).state()

        communities: Any = restore_communities(context.checkpoint.load_or_make("communities", find))
        self.communities_ = communities

        # One local model for each, trained with the weights of its community. They are judged without the global
        # model's share where that is still to be chosen: with it, local models that have learned nothing yet would look
        # as good as the global one, and stop there. The networks of mixtures begin as those of an ensemble.
        by_likelihood = self.communities != "kernel"
        name = "ensemble member" if by_likelihood else "local model"
        models = copies_of(self.base, len(communities), self.seed, name)
        weights_of, self.shared_epochs_ = (
            self._train_weights(data.user_weights, embeddings),
            self._shared_epochs(),
        )
        task = LocalTask(
            models,
            data,
            weights_of,
            "local models",
            global_model,
            shared_epochs=self.shared_epochs_ or 0,
        )
        self.alpha_ = 0.0 if isinstance(self.alpha, str) else float(self.alpha)
        if data.validation is None:
            if self.alpha == "validation":
                remark(
                    "no-validation",
                    "Loca: without validation the global model has no share in the answers; "
                    "give validation=, or say alpha=0.3",
                )
            self.locals_, self.local_epochs_ = train_locals(task, self._engine())
        else:
            known = self.embed(data.validation.history_matrix)
            choose_temperature = (
                self.communities in ("mixture", "dealt") and self.temperature == "validation"
            )
            to_stop = (
                replace(communities, temperature=_TEMPERATURE_TO_STOP)
                if choose_temperature
                else communities
            )
            validator = Validator(
                data.validation, to_stop.answer_weights(known), global_model, data.metric
            )
            members, alphas = validator if self.stopping == "community" else None, (self.alpha_,)
            self.locals_, self.local_epochs_ = train_locals(
                task, self._engine(), lambda local: validator.score(local, alphas)[0], members
            )
            if choose_temperature:
                tried = [replace(communities, temperature=one) for one in TEMPERATURES]
                # Many local matrices are slow to read: some of the users suffice.
                rows = every_nth(
                    len(known), len(known) if self.base.learns_by_epoch else _MOST_JUDGES
                )
                judges = Validator(
                    data.validation.of_users(rows), csr_array((0, 0)), global_model, data.metric
                )
                answers = [
                    replace(judges, answer_weights=one.answer_weights(known[rows])) for one in tried
                ]
                if self.base.learns_by_epoch:
                    place = flattest([one.values(self.locals_, self.alpha_) for one in answers])
                else:  # solved models gain nothing by being averaged: the best with its best global share
                    shares = ALPHAS[::3] if self.alpha == "validation" else (self.alpha_,)
                    place = int(
                        np.argmax([max(one.score(self.locals_, shares)) for one in answers])
                    )
                self.communities_ = tried[place]
                validator = replace(validator, answer_weights=tried[place].answer_weights(known))
                say(
                    f"temperature {TEMPERATURES[place]:g} of the memberships by which communities answer"
                )
            if self.alpha == "validation":
                scores = validator.score(self.locals_, ALPHAS)
                self.alpha_ = ALPHAS[int(np.argmax(scores))]
                say(
                    f"global share alpha = {self.alpha_:g}: blended validation "
                    f"{data.metric.label} {max(scores):.4f}"
                )

        self._describe(data, embeddings)

    def _fit_embedder(self, data: TrainingData) -> Any:
        """What embeds the users: a mixture, the given one, the global model, or a truncated SVD."""
        if self.communities != "kernel":
            mixture = self._mixture(data.matrix)
            return data.context.fit_part("embedding", mixture, data.train, device=data.device)
        if self.embedding is not None:
            return data.fit_part("embedding", clone(self.embedding))
        whole: Any = self.global_
        if isinstance(whole, Embedder):
            return whole
        return data.context.fit_part("embedding", TruncatedSVD(seed=self.seed), data.train)

    def _mixture(self, matrix: csr_array | None = None) -> MultinomialMixture | RandomGroups:
        """The unfitted mixtures of communities, as many as the users allow."""
        count = (
            self.anchors
            if matrix is None
            else self._anchor_count(int((np.diff(matrix.indptr) > 0).sum()))
        )
        components = max(count // self.mixtures, 1)
        if self.communities == "random":
            return RandomGroups(components=components, mixtures=self.mixtures, seed=self.seed)
        kind = DealtMixture if self.communities == "dealt" else MultinomialMixture
        return kind(components=components, mixtures=self.mixtures, seed=self.seed)

    def _focus(self) -> float:
        if self.focus is not None:
            return self.focus
        if self.communities == "random":
            return _FOCUS_OF_RANDOM
        return _FOCUS_OF_NETWORKS if self.base.learns_by_epoch else _FOCUS

    def _temperature(self) -> float:
        """The temperature that is given, or that without validation; random groups all answer alike."""
        if self.communities == "random":
            return TEMPERATURES[-1]
        return _TEMPERATURE if isinstance(self.temperature, str) else float(self.temperature)

    def _shared_epochs(self) -> int | None:
        """In how many epochs the networks of mixtures learn from all users alike; None for other models."""
        if not self.base.learns_by_epoch or self.communities == "kernel":
            return None
        most = int(self.base.get_params()["epochs"])
        if self.shared_epochs is not None:
            if self.shared_epochs >= most:
                raise ConfigError(
                    f"shared_epochs: expected fewer than epochs, {most}, found {self.shared_epochs}"
                )
            return self.shared_epochs
        if self.communities == "random":
            return 0
        most = most * 2 // 3
        return min(fitted(self.global_, self).best_epoch_ or most, most)

    def _train_weights(
        self, weights: UserWeights, embeddings: Floats
    ) -> Callable[[int], UserWeights]:
        """Gives the weights of users with those embeddings in each community."""
        communities, total = fitted(self.communities_, self), float(weights.sum(dtype=np.float64))
        return lambda community: scaled_weights(
            weights * communities.train_weights(embeddings, community), total
        )

    def _describe(self, data: TrainingData, embeddings: Floats) -> None:
        """Store what is known of the communities: members, what they have more of, and how local they are."""
        communities, has_history = fitted(self.communities_, self), np.diff(data.matrix.indptr) > 0
        answering, belonging = (
            communities.answer_weights(embeddings),
            communities.memberships(embeddings),
        )
        self.members_ = communities.count_members(belonging)
        by_likelihood = isinstance(communities, MixtureCommunities)
        self.distinctive_ = over_represented(
            data.matrix, belonging, DISTINCTIVE_ITEMS, well_known=by_likelihood
        )
        trained_on = communities.effective_shares(
            embeddings[has_history], data.user_weights[has_history]
        )
        answered = np.diff(answering.indptr)[has_history]
        self.locality_ = Locality(
            fitted(self.alpha_, self), float(trained_on.mean()), float(answered.mean())
        )

    @property
    def takes_new_items(self) -> bool:
        """Whether all its models take in new items, and its embedder can do without them."""
        return super().takes_new_items and isinstance(self.embedder_, BaseEstimator)

    def _update(self, data: TrainingData, epochs: int) -> None:
        """Update the global model and the local ones; the communities stay, and old and new users join them."""
        remark("kept", "Loca: its communities and global share stay as they were fitted")
        # The embedder stays, also where it was the global model: anchors are points among its embeddings. New items do
        # not move a user.
        if (items := data.matrix.shape[1]) > self.count_items():
            self.embedder_ = with_items(fitted(self.embedder_, self), items)
        self.global_ = fitted(self.global_, self).updated(data, epochs)
        embeddings = embed_users(fitted(self.embedder_, self), as_histories(data.train))
        count, done = len(fitted(self.communities_, self)), self.local_epochs_
        models = copies_going_on(self.base, count, self.seed, "local model", data, epochs, done)
        weights_of = self._train_weights(data.user_weights, embeddings)
        task = LocalTask(
            models,
            data,
            weights_of,
            "local models",
            self.global_,
            fitted(self.locals_, self),
            epochs,
        )
        self.locals_, _ = train_locals(task, self._engine())
        self._describe(data, embeddings)

    def _move(self, device: str) -> None:
        for part in (self.global_, self.embedder_, self.locals_):
            if isinstance(part, BaseEstimator | LocalModels):
                part.to(device)

    def embed(self, histories: csr_array) -> Floats:
        """Embed users.

        Parameters
        ----------
        histories : csr_array
            Users × items, each entry with its weight; their users need not be known.

        Returns
        -------
        ndarray of float32
            Users × dimensions, rows of length 1; with mixtures users × communities, log memberships.
        """
        return embed_users(fitted(self.embedder_, self), histories)

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
        weights = fitted(self.communities_, self).answer_weights(self.embed(histories))
        return first_models(weights, self.answering_models_)

    def truncate(self, count: int) -> Self:
        """Leave the first local models alone, with the α of all.

        Anchors are chosen one after the other, but for k-means, and each model draws from its own stream: these are the
        models of a Loca that has no more and learned for as many epochs. The first communities of a mixture are no
        smaller mixture. Who is left without a community gets the
        global scores.

        Parameters
        ----------
        count : int
            How many local models stay, from 1 to `anchors`.

        Returns
        -------
        Loca
            A fitted model that shares what this one learned.
        """
        return truncated(self, count, len(fitted(self.communities_, self)))

    def with_global_share(self, share: float) -> Self:
        """Blend with another share of the global model.

        Parameters
        ----------
        share : float
            The global model's share for covered users, from 0 (the communities alone) to 1 (the global model alone).

        Returns
        -------
        Loca
            A fitted model that shares what this one learned.
        """
        if not (is_number(share) and 0 <= share <= 1):
            raise ConfigError(f"global share: expected a number from 0 to 1, found {share!r:.60}")
        fitted(self.alpha_, self)
        model = copy.copy(self)
        model.alpha_ = float(share)
        model.locality_ = (
            None if self.locality_ is None else replace(self.locality_, alpha=model.alpha_)
        )
        return model

    def score(self, histories: csr_array) -> Scores:
        """Embed, weight and score every history.

        Parameters
        ----------
        histories : csr_array
            Users × items, each entry with its weight; their users need not be known.

        Returns
        -------
        ndarray of float32
            Users × items.
        """
        rows, local, alpha = (
            csr_array(histories),
            fitted(self.locals_, self),
            fitted(self.alpha_, self),
        )
        blended = blended_scores(
            local, fitted(self.global_, self), rows, self.answer_weights(rows), (alpha,)
        )
        return as_array(next(blended))

    @property
    def similarity_kind(self) -> SimilarityKind | None:
        """That of the global model."""
        global_model = self.base if self.global_model is None else self.global_model
        return global_model.similarity_kind

    def _similarities(self, item_rows: ItemRows) -> Scores:
        """Those of the global model: a community answers users, and its items are those of all."""
        return fitted(self.global_, self).similarities(item_rows)

    def additive_at(self, history: csr_array) -> Callable[[csr_array], Scores] | None:
        """What scores rows as a sum over their items, with the communities that answer this history; None of networks.

        The communities themselves follow from the whole history, and are as they are.
        """
        local, whole_model, alpha = (
            fitted(self.locals_, self),
            fitted(self.global_, self),
            fitted(self.alpha_, self),
        )
        if not (self.base.is_additive and whole_model.is_additive):
            return None
        answering = self.answer_weights(history)

        def score(rows: csr_array) -> Scores:
            same = csr_array(answering[np.zeros(rows.shape[0], dtype=np.int64)])
            blended = blended_scores(local, whole_model, rows, same, (alpha,))
            return as_array(next(blended))

        return score

    def sources_of(
        self, history: csr_array, items: Any, n: int, known: Interactions | None
    ) -> AnswersOfCommunities:
        """Which communities answer a history, and what each of them and the global model would list alone.

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
        communities, alpha = fitted(self.communities_, self), fitted(self.alpha_, self)
        distinctive, lifts = fitted(self.distinctive_, self)
        answering, mixtures = self.answer_weights(history), 0
        if isinstance(self.embedder_, RandomGroups) or alpha == 1:  # nothing local to explain
            answering = csr_array(0 * answering)
            answering.eliminate_zeros()
        if isinstance(communities, MixtureCommunities):
            mixtures, memberships = communities.mixtures, np.exp(self.embed(history)[0])
        typical = slice(DISTINCTIVE_ITEMS if mixtures else n)
        shares = (1 - alpha) * answering.data / answering.data.sum()
        answers, of_all = [], fitted(self.global_, self).score(history)
        for place in np.argsort(-answering.data, kind="stable"):
            number = int(answering.indices[place])
            anchor, members = (
                int(communities.anchors[number]),
                int(fitted(self.members_, self)[number]),
            )
            name = anchor if known is None else known.users.ids([anchor])[0]
            alone = as_array(fitted(self.locals_, self).score_with(number, history))
            listed, scores = rank_top_n(alone, history, n)
            own, known_for = (
                (listed[0], scores[0]),
                (distinctive[number][typical], lifts[number][typical]),
            )
            answer = CommunityAnswer(number, name, float(shares[place]), members, *own, *known_for)
            if mixtures:
                belongs, mixture = float(memberships[number]), number * mixtures // len(communities)
                raised = raised_items(alone[0], of_all[0], history, n)
                answer = replace(answer, membership=belongs, mixture=mixture, raised=raised)
            answers.append(answer)
        listed, scores = rank_top_n(of_all, history, n)
        users = None if known is None else known.n_users
        share = alpha if answers else 1.0
        drawn = len(communities) if isinstance(self.embedder_, RandomGroups) and alpha < 1 else 0
        return AnswersOfCommunities(
            tuple(answers), share, listed[0], scores[0], users, self.locality_, drawn
        )

    def facts(self, counts: Sequence[int] = ()) -> dict[str, Any]:
        """Return α, epochs, bandwidths in units, coverage, and how local the model is in the mean.

        Of the users in its training data: the share that the first communities cover, the share that a community trains
        on, and the share of the pairs of a user and a community that answers.

        Parameters
        ----------
        counts : sequence of int, default ()
            The numbers of communities for which coverage is wanted.

        Returns
        -------
        dict
        """
        communities = fitted(self.communities_, self)
        facts: dict[str, Any] = {"alpha": self.alpha_, "epochs": self.local_epochs_}
        facts |= communities.facts()
        facts |= (
            {}
            if self.locality_ is None
            else {name: getattr(self.locality_, name) for name in _LOCALITY}
        )
        if self.train_data_ is not None:
            embeddings = self.embed(self.train_data_.histories())
            answering = communities.answer_weights(embeddings)
            covered = {
                str(one): float((np.diff(first_models(answering, one).indptr) > 0).mean())
                for one in counts
            }
            trained = [
                np.count_nonzero(communities.train_weights(embeddings, one))
                for one in range(len(communities))
            ]
            facts["coverage_by_count"] = covered
            facts["train_share"] = float(np.mean(trained)) / len(embeddings)
            facts["answer_share"] = answering.nnz / (len(embeddings) * len(communities))
        return facts

    def memory_bytes(self, data: DataSize) -> MemoryUse:
        """Estimate the memory of the steps of `fit`: global model, embedding, communities and local models.

        With communities="auto" it is that of the larger form, while the best one before it is there too.
        """
        if self.communities == "auto":
            uses = [
                clone(self, communities=one).memory_bytes(data) for one in ("mixture", "kernel")
            ]
            larger, folder = (
                max(uses, key=lambda one: one.main + one.device),
                max(one.folder for one in uses),
            )
            return replace(larger, main=larger.main + larger.main_after, folder=folder)
        anchor_count = self._anchor_count(data.users)
        unfitted = self.base if self.global_model is None else self.global_model
        steps, embedder = {"global model": unfitted.memory_bytes(data)}, self.embedding
        if self.communities != "kernel":
            embedder = self._mixture()
        elif embedder is None and not isinstance(unfitted, Embedder):
            embedder = TruncatedSVD(seed=self.seed)
        if embedder is not None:
            steps["embedding"] = embedder.memory_bytes(data)

        # Communities: embeddings, the neighbourhoods of greedy coverage, and the weights with which communities answer.
        width, share = self.answer_bandwidth, 1.0
        dimensions = (
            anchor_count
            if self.communities != "kernel"
            else embedding_dimensions(embedder or unfitted)
        )
        if self.communities != "kernel":
            share = min(self.answering / anchor_count, 1.0)
        elif isinstance(width, Quantile) and width.times <= 1:
            share = width.level
        embeddings = 4 * data.users * dimensions
        stays = embeddings + 16 * int(
            data.users * anchor_count * share + 1
        )  # weight and community, by user and back
        device, needed, bits = choose_device(data.device), 0, 0
        if self.anchor_selection == "coverage" and self.communities == "kernel":
            needed = bytes_on_device(data.users, dimensions)
            if device.type != "cuda" or needed > free_bytes(device):
                needed, bits = 0, bytes_of_bits(data.users)
        # Of 64 bits for each anchor: its user, its members, its distinctive items with their lifts.
        numbers = 2 + min(DISTINCTIVE_ITEMS, data.items)
        steps["communities"] = MemoryUse(
            main=stays + 3 * embeddings + max(bits, quantile_bytes(data.users, dimensions)),
            device=needed,
            main_after=stays,
            folder=anchor_count * (8 * numbers + 4 * dimensions),
            device_name=str(device),
            advice=ADVICE,
        )
        steps |= local_memory(
            self.base, anchor_count, self._engine(), data, "local models", unfitted
        )
        return MemoryUse.in_turn(steps)

    def count_items(self) -> int:
        """Return how many items it scores."""
        return fitted(self.global_, self).count_items()

    def with_selected_params(self) -> Self:
        """Copy the model with the epochs and the α that validation chose."""
        if self.global_ is None or self.alpha_ is None:
            return clone(self)
        chosen: dict[str, Any] = {
            "global_model": self.global_.with_selected_params(),
            "alpha": self.alpha_,
        }
        if self.local_epochs_ is not None and "epochs" in self.base.get_params():
            chosen["base"] = clone(self.base, epochs=self.local_epochs_)
        found = fitted(self.communities_, self).state().facts
        if self.embedding is not None and "mixtures" not in found:
            chosen["embedding"] = fitted(self.embedder_, self).with_selected_params()
        if "mixtures" in found:
            names = ("mixtures", "focus", "temperature", "answering")
            chosen |= {name: found[name] for name in names} | {
                "anchors": len(fitted(self.communities_, self))
            }
            chosen |= {"shared_epochs": self.shared_epochs_}
        if self.communities == "auto":
            is_random = isinstance(self.embedder_, RandomGroups)
            chosen["communities"] = (
                ("random" if is_random else "mixture") if "mixtures" in found else "kernel"
            )
        return clone(self, **chosen)

    def state(self) -> ModelState:
        communities, local = fitted(self.communities_, self).state(), fitted(self.locals_, self)
        parts: dict[str, Any] = {"global": self.global_, "local models": local}
        apart: dict[str, Any] = {"embedder": self.embedder_, "centre": local.centre_}
        parts |= {
            name: one for name, one in apart.items() if one is not None and one is not self.global_
        }
        items, lifts = fitted(self.distinctive_, self)
        learned: dict[str, npt.NDArray[Any]] = {
            "distinctive_items": items,
            "distinctive_lifts": lifts,
        }
        arrays = {**communities.arrays, **learned, "members": fitted(self.members_, self)}
        facts = {**communities.facts, "alpha": self.alpha_, "local_epochs": self.local_epochs_}
        if self.shared_epochs_ is not None:
            facts["shared_epochs"] = self.shared_epochs_
        if self.locality_ is not None:
            facts["locality"] = {name: getattr(self.locality_, name) for name in _LOCALITY}
        return ModelState(arrays, facts, parts)

    @classmethod
    def restore(cls, params: Mapping[str, Any], state: ModelState) -> Self:
        model, alpha = cls(**params), state.facts["alpha"]
        items, lifts, members = (
            state.arrays[name] for name in ("distinctive_items", "distinctive_lifts", "members")
        )
        local, whole_model = state.parts.get("local models"), state.parts.get("global")
        embedder = state.parts.get("embedder", whole_model)
        expected = set(state.parts) - {"embedder", "centre"} == {"global", "local models"}
        if not (expected and isinstance(local, LocalModels)):
            raise ModelFileError(
                f"loca: expected a global and local models, found {', '.join(sorted(state.parts))}"
            )
        if not isinstance(whole_model, Recommender):
            raise ModelFileError("loca: the global model is not a recommender")
        if not isinstance(embedder, Embedder):
            raise ModelFileError(f"loca: {type(embedder).__name__} cannot embed histories")
        local.around(state.parts.get("centre", whole_model))
        item_count = whole_model.count_items()
        try:
            communities = restore_communities(state)
            dimensions = embedder.embed(
                csr_array(np.zeros((1, item_count), dtype=np.float32))
            ).shape[1]
        except LocaError as problem:
            raise ModelFileError(
                f"loca: communities or embedder do not fit: {problem}"
            ) from problem
        count, shared = len(communities), state.facts.get("shared_epochs")
        finite = all(np.isfinite(state.arrays[name]).all() for name in communities.arrays)
        figures = state.facts.get(
            "locality"
        )  # a model that was saved before this was measured has none
        numbers: list[Any] = (
            [figures.get(name) for name in _LOCALITY] if isinstance(figures, dict) else [None]
        )
        fitting = (
            members.shape == (count,)
            and items.ndim == 2
            and len(items) == count
            and lifts.shape == items.shape
        )
        rows = items.dtype.kind == "i" and (items >= 0).all() and (communities.anchors >= 0).all()
        scored = local.count_items() == item_count and int(items.max(initial=0)) < item_count
        checks = {
            f"expected {count} local models, found {len(local)}": len(local) == count,
            f"the arrays do not fit {count} communities": fitting,
            "an item or an anchor has a row below 0": rows,
            "the arrays of the communities hold NaN or infinity": finite,
            f"the embedder gives {dimensions} dimensions, the anchors have others": dimensions
            == communities.dimensions(),
            f"expected shared_epochs as a whole number ≥ 0, found {shared!r}": shared is None
            or (type(shared) is int and shared >= 0),
            f"expected parts that all score the same {item_count} items": scored,
            f"expected alpha from 0 to 1, found {alpha!r}": _is_number(alpha) and alpha <= 1,
            f"expected the figures of its locality as numbers ≥ 0, found {figures!r}": figures
            is None
            or all(map(_is_number, numbers)),
        }
        for fault, holds in checks.items():
            if not holds:
                raise ModelFileError(f"loca: {fault}")
        model.global_, model.embedder_, model.communities_, model.locals_ = (
            whole_model,
            embedder,
            communities,
            local,
        )
        model.local_epochs_, model.alpha_, model.shared_epochs_ = (
            state.facts["local_epochs"],
            float(alpha),
            shared,
        )
        model.members_, model.distinctive_ = members, (items, lifts)
        model.locality_ = None if figures is None else Locality(model.alpha_, *map(float, numbers))
        return model


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value < float("inf")
