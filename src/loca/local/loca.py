"""Loca: one global model, many local ones around anchor users, and answers blended by membership."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, get_args

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.communities.communities import AnchorSelection, Communities, Locality, check_anchor_count, find_communities
from loca.communities.coverage import ADVICE, bytes_of_bits, bytes_on_device
from loca.communities.embeddings import Embedder, TruncatedSVD, embed_users, embedding_dimensions
from loca.communities.geometry import KERNELS, Bandwidth, Floats, KernelName, Quantile, check_bandwidth, quantile_bytes
from loca.data.interactions import Interactions, as_histories
from loca.errors import ConfigError, LocaError, ModelFileError, check_choice
from loca.evaluation.top_n import as_array, rank_top_n
from loca.local.explain import AnswersOfCommunities, CommunityAnswer, over_represented
from loca.local.local_ease import LOCAL_BYTES
from loca.local.local_models import (
    AnswerPrecision,
    LocalModels,
    LocalTask,
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
    ModelState,
    Recommender,
    Scores,
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

ALPHAS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
DISTINCTIVE_ITEMS = 20
_LOCALITY = ("effective_share", "answering")  # the figures of `Locality` that a file holds beside alpha


def _is_embedder(value: object) -> bool:
    return value is None or (isinstance(value, Embedder) and not isinstance(value, type))


@dataclass(kw_only=True, eq=False, repr=False)
class Loca(Recommender):
    """Blend a global model with many local ones, each trained for a community of users.

    These are the local collaborative autoencoders of the paper, over any base model that takes user weights. Users are
    embedded; anchor users are chosen; each local model is the base fitted with the wide weights of the community around
    its anchor, and scores for the narrow neighbourhood of the anchor. The scores of a covered user are
    α · global + (1 − α) · weighted mean of the local models that answer; other users get the global scores.

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
        Seed of anchors and local models.

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
    embedding: Embedder | None = param(None, "an embedder such as TruncatedSVD() or none", _is_embedder)
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

    global_: Recommender | None = field(default=None, init=False)
    embedder_: Embedder | None = field(default=None, init=False)
    communities_: Communities | None = field(default=None, init=False)
    locals_: LocalModels | None = field(default=None, init=False)
    local_epochs_: int | None = field(default=None, init=False)
    alpha_: float | None = field(default=None, init=False)
    locality_: Locality | None = field(default=None, init=False)
    members_: npt.NDArray[np.int64] | None = field(default=None, init=False)
    distinctive_: tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]] | None = field(default=None, init=False)
    answering_models_: int | None = field(default=None, init=False)  # of a truncated model

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("anchor_selection", self.anchor_selection, get_args(AnchorSelection))
        check_choice("kernel", self.kernel, KERNELS)
        check_bandwidth("train_bandwidth", self.train_bandwidth)
        check_bandwidth("answer_bandwidth", self.answer_bandwidth)
        if self.stopping not in ("blended", "community"):
            raise ConfigError(f"stopping: expected 'blended' or 'community', found {self.stopping!r}")
        self._engine()

    def _engine(self) -> Engine:
        return Engine(self.engine, self.precision, self.answer_precision, self.local_bytes)

    @property
    def gives_logits(self) -> bool:
        """Whether all its models give logits."""
        return self.base.gives_logits and (self.global_model is None or self.global_model.gives_logits)

    def _anchor_count(self, user_count: int) -> int:
        """How many communities so many users allow: of the default, which nobody requested, as many as there can be."""
        default = inspect.signature(type(self)).parameters["anchors"].default
        check_anchor_count(1 if self.anchors == default else self.anchors, user_count)
        return min(self.anchors, user_count)

    def _fit(self, data: TrainingData) -> None:
        """Follow the paper's algorithm: find communities, train a local model for each, learn how to combine them."""
        matrix, weights, context = data.matrix, data.user_weights, data.context
        has_history = np.diff(matrix.indptr) > 0
        anchor_count = self._anchor_count(int(has_history.sum()))

        # The global model, which answers for whom no community does, and an embedding of every user. Under recency a
        # community is one of present taste, and membership moves as a history grows.
        unfitted = self.base if self.global_model is None else self.global_model
        embedder: Any = data.fit_part("global model", clone(unfitted))
        self.global_ = embedder
        if self.embedding is not None:
            embedder = data.fit_part("embedding", clone(self.embedding))
        elif not isinstance(embedder, Embedder):
            embedder = context.fit_part("embedding", TruncatedSVD(seed=self.seed), data.train)
        self.embedder_ = embedder
        self.global_.train_data_ = embedder.train_data_ = None  # stored once, here
        embeddings = embed_users(embedder, as_histories(data.train))

        # Communities around anchors. Only users with a history can be anchors, and only they are counted.
        def find() -> ModelState:
            users = np.flatnonzero(has_history)
            names = ("anchor_selection", "train_bandwidth", "answer_bandwidth", "kernel", "seed")
            settings = {name: getattr(self, name) for name in names}
            found = find_communities(embeddings[users], anchors=anchor_count, **settings, device=self._device())
            return replace(found, anchors=users[found.anchors]).state()

        self.communities_ = Communities.restore(context.checkpoint.load_or_make("communities", find))

        # One local model for each, trained with the weights of its community. They are judged without the global
        # model's share where that is still to be chosen: with it, local models that have learned nothing yet would look
        # as good as the global one, and stop there.
        models = copies_of(self.base, anchor_count, self.seed, "local model")
        task = LocalTask(models, data, self._train_weights(weights, embeddings), "local models", self.global_)
        self.alpha_ = 0.0 if isinstance(self.alpha, str) else float(self.alpha)
        if data.validation is None:
            self.locals_, self.local_epochs_ = train_locals(task, self._engine())
        else:
            answering = self.answer_weights(data.validation.history_matrix)
            validator, alphas = Validator(data.validation, answering, self.global_), (self.alpha_,)
            members = validator if self.stopping == "community" else None
            self.locals_, self.local_epochs_ = train_locals(
                task, self._engine(), lambda local: validator.score(local, alphas)[0], members
            )
            if self.alpha == "validation":
                scores = validator.score(self.locals_, ALPHAS)
                self.alpha_ = ALPHAS[int(np.argmax(scores))]
                say(f"global share alpha = {self.alpha_:g}: blended validation NDCG@100 {max(scores):.4f}")

        self.remarks_ = (*self.global_.remarks_, *models[0].remarks_)
        self._describe(data, embeddings)

    def _train_weights(self, weights: UserWeights, embeddings: Floats) -> Callable[[int], UserWeights]:
        """Gives the weights of users with those embeddings in each community."""
        communities, total = fitted(self.communities_, self), float(weights.sum(dtype=np.float64))
        return lambda community: scaled_weights(weights * communities.train_weights(embeddings, community), total)

    def _describe(self, data: TrainingData, embeddings: Floats) -> None:
        """Store what is known of the communities: members, what they have more of, and how local they are."""
        communities, has_history = fitted(self.communities_, self), np.diff(data.matrix.indptr) > 0
        answering = communities.answer_weights(embeddings)
        self.members_ = np.bincount(answering.indices, minlength=len(communities))
        self.distinctive_ = over_represented(data.matrix, answering, DISTINCTIVE_ITEMS)
        trained_on = communities.effective_shares(embeddings[has_history], data.user_weights[has_history])
        answered = np.diff(answering.indptr)[has_history]
        self.locality_ = Locality(fitted(self.alpha_, self), float(trained_on.mean()), float(answered.mean()))

    @property
    def takes_new_items(self) -> bool:
        """Whether all its models take in new items, and its embedder can do without them."""
        return super().takes_new_items and isinstance(self.embedder_, BaseEstimator)

    def _update(self, data: TrainingData, epochs: int) -> None:
        """Update the global model and the local ones; the communities stay, and old and new users join them."""
        say("Loca: its communities and alpha stay as they were fitted")
        # The embedder stays, also where it was the global model: anchors are points among its embeddings. New items do
        # not move a user.
        if (items := data.matrix.shape[1]) > self.count_items():
            self.embedder_ = with_items(fitted(self.embedder_, self), items)
        self.global_ = fitted(self.global_, self).updated(data, epochs)
        embeddings = embed_users(fitted(self.embedder_, self), as_histories(data.train))
        count, done = len(fitted(self.communities_, self)), self.local_epochs_
        models = copies_going_on(self.base, count, self.seed, "local model", data, epochs, done)
        weights_of = self._train_weights(data.user_weights, embeddings)
        task = LocalTask(models, data, weights_of, "local models", self.global_, fitted(self.locals_, self), epochs)
        self.locals_, _ = train_locals(task, self._engine())
        self._describe(data, embeddings)

    def _device(self) -> str:
        return str(self.base.get_params().get("device", "auto"))

    def embed(self, histories: csr_array) -> Floats:
        """Embed users.

        Parameters
        ----------
        histories : csr_array
            Users × items, each entry with its weight; their users need not be known.

        Returns
        -------
        ndarray of float32
            Users × dimensions, rows of length 1.
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
        models of a Loca that has no more and learned for as many epochs. Who is left without a community gets the
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
        rows, local, alpha = csr_array(histories), fitted(self.locals_, self), fitted(self.alpha_, self)
        blended = blended_scores(local, fitted(self.global_, self), rows, self.answer_weights(rows), (alpha,))
        return as_array(next(blended))

    def additive_at(self, history: csr_array) -> Callable[[csr_array], Scores] | None:
        """What scores rows as a sum over their items, with the communities that answer this history; None of networks.

        The communities themselves follow from the whole history, and are as they are.
        """
        local, whole_model, alpha = fitted(self.locals_, self), fitted(self.global_, self), fitted(self.alpha_, self)
        if not (self.base.is_additive and whole_model.is_additive):
            return None
        answering = self.answer_weights(history)

        def score(rows: csr_array) -> Scores:
            same = csr_array(answering[np.zeros(rows.shape[0], dtype=np.int64)])
            blended = blended_scores(local, whole_model, rows, same, (alpha,))
            return as_array(next(blended))

        return score

    def sources_of(self, history: csr_array, items: Any, n: int, known: Interactions | None) -> AnswersOfCommunities:
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
        answering = self.answer_weights(history)
        shares = (1 - alpha) * answering.data / answering.data.sum()
        answers = []
        for place in np.argsort(-answering.data, kind="stable"):
            number = int(answering.indices[place])
            anchor, members = int(communities.anchors[number]), int(fitted(self.members_, self)[number])
            name = anchor if known is None else known.users.ids([anchor])[0]
            listed, scores = rank_top_n(fitted(self.locals_, self).score_with(number, history), history, n)
            own, known_for = (listed[0], scores[0]), (distinctive[number][:n], lifts[number][:n])
            answers.append(CommunityAnswer(number, name, float(shares[place]), members, *own, *known_for))
        listed, scores = rank_top_n(fitted(self.global_, self).score(history), history, n)
        users = None if known is None else known.n_users
        share = alpha if answers else 1.0
        return AnswersOfCommunities(tuple(answers), share, listed[0], scores[0], users, self.locality_)

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
        facts |= {name: getattr(communities, name) for name in ("train_bandwidth", "answer_bandwidth", "coverage")}
        facts |= {} if self.locality_ is None else {name: getattr(self.locality_, name) for name in _LOCALITY}
        if self.train_data_ is not None:
            embeddings = self.embed(self.train_data_.histories())
            answering = communities.answer_weights(embeddings)
            covered = {str(one): float((np.diff(first_models(answering, one).indptr) > 0).mean()) for one in counts}
            trained = [np.count_nonzero(communities.train_weights(embeddings, one)) for one in range(len(communities))]
            facts["coverage_by_count"] = covered
            facts["train_share"] = float(np.mean(trained)) / len(embeddings)
            facts["answer_share"] = answering.nnz / (len(embeddings) * len(communities))
        return facts

    def memory_bytes(self, data: DataSize) -> MemoryUse:
        """Estimate the memory of the steps of `fit`: global model, embedding, communities and local models."""
        anchor_count = self._anchor_count(data.users)
        unfitted = self.base if self.global_model is None else self.global_model
        steps, embedder = {"global model": unfitted.memory_bytes(data)}, self.embedding
        if embedder is None and not isinstance(unfitted, Embedder):
            embedder = TruncatedSVD(seed=self.seed)
        if embedder is not None:
            steps["embedding"] = embedder.memory_bytes(data)

        # Communities: embeddings, the neighbourhoods of greedy coverage, and the weights with which communities answer.
        dimensions, width = embedding_dimensions(embedder or unfitted), self.answer_bandwidth
        share = width.level if isinstance(width, Quantile) and width.times <= 1 else 1.0
        embeddings = 4 * data.users * dimensions
        stays = embeddings + 16 * int(data.users * anchor_count * share + 1)  # weight and community, by user and back
        device, needed, bits = choose_device(self._device()), 0, 0
        if self.anchor_selection == "coverage":
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
        steps |= local_memory(self.base, anchor_count, self._engine(), data, "local models", unfitted)
        return MemoryUse.in_turn(steps)

    def count_items(self) -> int:
        """Return how many items it scores."""
        return fitted(self.global_, self).count_items()

    def with_selected_params(self) -> Self:
        """Copy the model with the epochs and the α that validation chose."""
        if self.global_ is None or self.alpha_ is None:
            return clone(self)
        chosen: dict[str, Any] = {"global_model": self.global_.with_selected_params(), "alpha": self.alpha_}
        if self.local_epochs_ is not None and "epochs" in self.base.get_params():
            chosen["base"] = clone(self.base, epochs=self.local_epochs_)
        if self.embedding is not None:
            chosen["embedding"] = fitted(self.embedder_, self).with_selected_params()
        return clone(self, **chosen)

    def state(self) -> ModelState:
        communities, local = fitted(self.communities_, self).state(), fitted(self.locals_, self)
        parts: dict[str, Any] = {"global": self.global_, "local models": local}
        apart: dict[str, Any] = {"embedder": self.embedder_, "centre": local.centre_}
        parts |= {name: one for name, one in apart.items() if one is not None and one is not self.global_}
        items, lifts = fitted(self.distinctive_, self)
        learned: dict[str, npt.NDArray[Any]] = {"distinctive_items": items, "distinctive_lifts": lifts}
        arrays = {**communities.arrays, **learned, "members": fitted(self.members_, self)}
        facts = {**communities.facts, "alpha": self.alpha_, "local_epochs": self.local_epochs_}
        if self.locality_ is not None:
            facts["locality"] = {name: getattr(self.locality_, name) for name in _LOCALITY}
        return ModelState(arrays, facts, parts)

    @classmethod
    def restore(cls, params: Mapping[str, Any], state: ModelState) -> Self:
        model, alpha = cls(**params), state.facts["alpha"]
        items, lifts, members = (state.arrays[name] for name in ("distinctive_items", "distinctive_lifts", "members"))
        local, whole_model = state.parts.get("local models"), state.parts.get("global")
        embedder = state.parts.get("embedder", whole_model)
        expected = set(state.parts) - {"embedder", "centre"} == {"global", "local models"}
        if not (expected and isinstance(local, LocalModels)):
            raise ModelFileError(f"loca: expected a global and local models, found {', '.join(sorted(state.parts))}")
        if not isinstance(whole_model, Recommender):
            raise ModelFileError("loca: the global model is not a recommender")
        if not isinstance(embedder, Embedder):
            raise ModelFileError(f"loca: {type(embedder).__name__} cannot embed histories")
        local.around(state.parts.get("centre", whole_model))
        item_count = whole_model.count_items()
        try:
            communities = Communities.restore(state)
            dimensions = embedder.embed(csr_array(np.zeros((1, item_count), dtype=np.float32))).shape[1]
        except LocaError as problem:
            raise ModelFileError(f"loca: communities or embedder do not fit: {problem}") from problem
        count, anchors = len(communities), communities.anchor_embeddings
        figures = state.facts.get("locality")  # a model that was saved before this was measured has none
        numbers: list[Any] = [figures.get(name) for name in _LOCALITY] if isinstance(figures, dict) else [None]
        fitting = members.shape == (count,) and items.ndim == 2 and len(items) == count and lifts.shape == items.shape
        rows = items.dtype.kind == "i" and (items >= 0).all() and (communities.anchors >= 0).all()
        scored = local.count_items() == item_count and int(items.max(initial=0)) < item_count
        checks = {
            f"expected {count} local models, found {len(local)}": len(local) == count,
            f"the arrays do not fit {count} communities": fitting,
            "an item or an anchor has a row below 0": rows,
            "the anchor embeddings hold NaN or infinity": np.isfinite(anchors).all(),
            f"the embedder gives {dimensions} dimensions, the anchors have others": dimensions == anchors.shape[1],
            f"expected parts that all score the same {item_count} items": scored,
            f"expected alpha from 0 to 1, found {alpha!r}": _is_number(alpha) and alpha <= 1,
            f"expected the figures of its locality as numbers ≥ 0, found {figures!r}": figures is None
            or all(map(_is_number, numbers)),
        }
        for fault, holds in checks.items():
            if not holds:
                raise ModelFileError(f"loca: {fault}")
        model.global_, model.embedder_, model.communities_, model.locals_ = whole_model, embedder, communities, local
        model.local_epochs_, model.alpha_ = state.facts["local_epochs"], float(alpha)
        model.members_, model.distinctive_ = members, (items, lifts)
        model.locality_ = None if figures is None else Locality(model.alpha_, *map(float, numbers))
        return model


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value < float("inf")
