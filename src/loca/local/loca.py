"""Loca: one global model, many local ones around anchor users, and answers blended by membership."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.communities.communities import (
    ANCHOR_SELECTIONS,
    AnchorSelection,
    Communities,
    Locality,
    check_anchor_count,
    find_communities,
)
from loca.communities.coverage import bytes_of_bits, bytes_on_device
from loca.communities.embeddings import Embedder, TruncatedSVD, embed_users, embedding_dimensions
from loca.communities.geometry import KERNELS, Bandwidth, Floats, KernelName, Quantile, check_bandwidth, quantile_bytes
from loca.data.interactions import Interactions, as_histories
from loca.errors import ConfigError, LocaError, ModelFileError, check_choice
from loca.evaluation.top_n import rank_top_n
from loca.local.explain import CommunityAnswer, Explanation, ItemOrder, list_to_explain, over_represented
from loca.local.local_ease import LOCAL_BYTES
from loca.local.local_models import (
    BlendValidator,
    CommunityValidator,
    LocalModels,
    LocalTask,
    blended_scores,
    first_models,
    truncated,
)
from loca.local.stacked.inference import AnswerPrecision
from loca.local.stacked.ops import PrecisionName
from loca.local.training import Engine, EngineName, copies_of, local_memory, scaled_weights, train_locals
from loca.memory import DataSize, MemoryUse
from loca.models.devices import choose_device, free_bytes
from loca.models.recommender import (
    ModelState,
    Recommender,
    Scores,
    TrainingData,
    UserWeights,
    clone,
    fitted,
    get_params,
    whole,
)
from loca.progress import say

ALPHAS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
DISTINCTIVE_ITEMS = 20


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
        Number of communities.
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
    >>> explanation = model.explain(data.histories([7]), n=3)
    >>> len(explanation.items)
    3
    """

    role = "local"

    base: Recommender
    anchors: int = whole(40)
    anchor_selection: AnchorSelection = "coverage"
    train_bandwidth: Bandwidth = Quantile(0.9, times=1.3)
    answer_bandwidth: Bandwidth = Quantile(0.5)
    kernel: KernelName = "epanechnikov"
    embedding: Embedder | None = None
    global_model: Recommender | None = None
    alpha: float | Literal["validation", "paper"] = "validation"
    # One number of epochs for all local models; or each stops on its own members, for the paper's protocol alone.
    stopping: Literal["blended", "community"] = field(default="blended", metadata={"hidden": True})
    engine: EngineName = "auto"
    precision: PrecisionName = "float32"
    answer_precision: AnswerPrecision = "float32"
    local_bytes: int = LOCAL_BYTES
    seed: int = 0

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
        check_choice("anchor_selection", self.anchor_selection, ANCHOR_SELECTIONS)
        check_choice("kernel", self.kernel, KERNELS)
        check_bandwidth("train_bandwidth", self.train_bandwidth)
        check_bandwidth("answer_bandwidth", self.answer_bandwidth)
        if self.alpha not in ("validation", "paper") and (isinstance(self.alpha, str) or not 0 <= self.alpha <= 1):
            raise ConfigError(f"alpha: expected a number from 0 to 1, 'validation' or 'paper', found {self.alpha!r}")
        if self.stopping not in ("blended", "community"):
            raise ConfigError(f"stopping: expected 'blended' or 'community', found {self.stopping!r}")
        self._engine()

    def _engine(self) -> Engine:
        return Engine(self.engine, self.precision, self.answer_precision, self.local_bytes)

    @property
    def gives_logits(self) -> bool:
        """Whether all its models give logits."""
        return self.base.gives_logits and (self.global_model is None or self.global_model.gives_logits)

    def _fit(self, data: TrainingData) -> None:
        """Follow the paper's algorithm: find communities, train a local model for each, learn how to combine them."""
        matrix, weights = data.matrix, data.user_weights
        has_history = np.diff(matrix.indptr) > 0
        check_anchor_count(self.anchors, int(has_history.sum()))

        # The global model, which answers for whom no community does, and an embedding of every user. Under recency a
        # community is one of present taste, and membership moves as a history grows.
        self.global_ = data.fit_part(
            "global model", clone(self.base if self.global_model is None else self.global_model)
        )
        self.embedder_ = self._fit_embedder(data)
        self.global_.train_data_ = self.embedder_.train_data_ = None  # stored once, here
        embeddings = embed_users(self.embedder_, as_histories(data.train))

        # Communities around anchors, of the users who have a history.
        found = data.context.checkpoint.load_or_make(
            "communities", lambda: self._find_communities(embeddings, np.flatnonzero(has_history)).state()
        )
        self.communities_ = communities = Communities.restore(found)

        # One local model for each, trained with the weights of its community.
        def weights_of(community: int) -> UserWeights:
            together = weights * communities.train_weights(embeddings, community)
            return scaled_weights(together, float(weights.sum(dtype=np.float64)))

        validator = None
        if data.validation is not None:
            answering = self.answer_weights(data.validation.history_matrix)
            validator = BlendValidator(data.validation, answering, self.global_)
        models = copies_of(self.base, self.anchors, self.seed, "local model")
        task = LocalTask(models, data, weights_of, "local models", self.global_)
        self.locals_, self.local_epochs_ = self._train_locals(task, validator)

        # α, the global model's share; and what is known of the communities.
        self.alpha_ = self._choose_alpha(validator)
        answering = communities.answer_weights(embeddings)
        self.members_ = np.bincount(answering.indices, minlength=self.anchors)
        self.distinctive_ = over_represented(matrix, answering, DISTINCTIVE_ITEMS)
        trained_on = communities.effective_shares(embeddings[has_history], weights[has_history])
        answered = np.diff(answering.indptr)[has_history]
        self.locality_ = Locality(self.alpha_, float(trained_on.mean()), float(answered.mean()))

    def _fit_embedder(self, data: TrainingData) -> Embedder:
        if self.embedding is not None:
            return data.fit_part("embedding", clone(self.embedding))
        global_model: object = self.global_
        if isinstance(global_model, Embedder):
            return global_model
        return data.context.fit_part("embedding", TruncatedSVD(seed=self.seed), data.train)

    def _find_communities(self, embeddings: Floats, users: npt.NDArray[np.int64]) -> Communities:
        """Find communities of some users: only they can be anchors, and only they are counted."""
        found = find_communities(
            embeddings[users],
            anchors=self.anchors,
            anchor_selection=self.anchor_selection,
            train_bandwidth=self.train_bandwidth,
            answer_bandwidth=self.answer_bandwidth,
            kernel=self.kernel,
            seed=self.seed,
            device=get_params(self.base).get("device", "auto"),
        )
        return replace(found, anchors=users[found.anchors])

    def _train_locals(self, task: LocalTask, validator: BlendValidator | None) -> tuple[LocalModels, int | None]:
        if validator is None:
            return train_locals(task, self._engine())
        if self.stopping == "community":
            members = CommunityValidator(validator.held_out, validator.answer_weights)
            return train_locals(task, self._engine(), members=members)
        # Judged without the global model's share where that is still to be chosen: with it, local models that have
        # learned nothing yet would look as good as the global one, and stop there.
        alpha = 0.0 if isinstance(self.alpha, str) else float(self.alpha)
        return train_locals(task, self._engine(), lambda local: validator.score(local, (alpha,))[0])

    def _choose_alpha(self, validator: BlendValidator | None) -> float:
        if not isinstance(self.alpha, str):
            return float(self.alpha)
        if self.alpha == "paper" or validator is None:
            # Without validation there is nothing to choose on: the paper's rule.
            return 0.0
        scores = validator.score(fitted(self.locals_, self), ALPHAS)
        best = int(np.argmax(scores))
        say(f"global share alpha = {ALPHAS[best]:g}: blended validation NDCG@100 {scores[best]:.4f}")
        return ALPHAS[best]

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
        return truncated(self, count, self.anchors)

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
        return np.asarray(next(blended).cpu().numpy(), dtype=np.float32)

    def explain(
        self, history: csr_array, n: int = 10, *, order: ItemOrder = None, data: Interactions | None = None
    ) -> Explanation:
        """Show which communities a list comes from, and what each of them and the global model would list alone.

        Parameters
        ----------
        history : csr_array
            One row, 1 × items.
        n : int, default 10
            Length of the lists.
        order : ndarray or None, default None
            The history's item rows, oldest first, where they are to be shown so; a sparse row stores no order.
        data : Interactions or None, default None
            What names users and items; None takes the training data.

        Returns
        -------
        Explanation
            The communities strongest first; prints as text.
        """
        communities, alpha = fitted(self.communities_, self), fitted(self.alpha_, self)
        data, history = self.train_data_ if data is None else data, csr_array(history)
        listed = list_to_explain(self, history, n, order, data)
        distinctive, lifts = fitted(self.distinctive_, self)
        answering = self.answer_weights(history)
        shares = (1 - alpha) * answering.data / answering.data.sum()
        answers = []
        for place in np.argsort(-answering.data, kind="stable"):
            number = int(answering.indices[place])
            anchor, members = int(communities.anchors[number]), int(fitted(self.members_, self)[number])
            name = anchor if data is None else data.users.ids([anchor])[0]
            items, scores = rank_top_n(fitted(self.locals_, self).score_with(number, history), history, n)
            known_for = distinctive[number][:n], lifts[number][:n]
            answers.append(
                CommunityAnswer(number, name, float(shares[place]), members, items[0], scores[0], *known_for)
            )
        items, scores = rank_top_n(fitted(self.global_, self).score(history), history, n)
        listed |= {"alpha": alpha if answers else 1.0, "communities": tuple(answers), "locality": self.locality_}
        return Explanation(**listed, global_items=items[0], global_scores=scores[0])

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
        facts: dict[str, Any] = {
            "alpha": self.alpha_,
            "epochs": self.local_epochs_,
            "train_bandwidth": communities.train_bandwidth,
            "answer_bandwidth": communities.answer_bandwidth,
            "coverage": communities.coverage,
        }
        if self.locality_ is not None:
            facts |= {"effective_share": self.locality_.effective_share, "answering": self.locality_.answering}
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
        check_anchor_count(self.anchors, data.users)
        unfitted = self.base if self.global_model is None else self.global_model
        steps, embedder = {"global model": unfitted.memory_bytes(data)}, self.embedding
        if embedder is None and not isinstance(unfitted, Embedder):
            embedder = TruncatedSVD(seed=self.seed)
        if embedder is not None:
            steps["embedding"] = embedder.memory_bytes(data)
        steps["communities"] = self._communities_memory(data, embedding_dimensions(embedder or unfitted))
        steps |= local_memory(self.base, self.anchors, self._engine(), data, "local models", unfitted)
        return MemoryUse.in_turn(steps)

    def _communities_memory(self, data: DataSize, dimensions: int) -> MemoryUse:
        """Estimate embeddings, the neighbourhoods of greedy coverage, and the weights with which communities answer."""
        width = self.answer_bandwidth
        share = width.level if isinstance(width, Quantile) and width.times <= 1 else 1.0
        embeddings = 4 * data.users * dimensions
        stays = embeddings + 16 * int(data.users * self.anchors * share + 1)  # weight and community, by user and back
        device, needed, bits = choose_device(get_params(self.base).get("device", "auto")), 0, 0
        if self.anchor_selection == "coverage":
            needed = bytes_on_device(data.users, dimensions)
            if device.type != "cuda" or needed > free_bytes(device):
                needed, bits = 0, bytes_of_bits(data.users)
        # Of 64 bits for each anchor: its user, its members, its distinctive items with their lifts.
        numbers = 2 + min(DISTINCTIVE_ITEMS, data.items)
        return MemoryUse(
            main=stays + 3 * embeddings + max(bits, quantile_bytes(data.users, dimensions)),
            device=needed,
            main_after=stays,
            folder=self.anchors * (8 * numbers + 4 * dimensions),
            device_name=str(device),
            advice="use anchor_selection 'kmeans', 'farthest' or 'random'",
        )

    def count_items(self) -> int:
        """Return how many items it scores."""
        return fitted(self.global_, self).count_items()

    def with_selected_params(self) -> Self:
        """Copy the model with the epochs and the α that validation chose."""
        if self.global_ is None or self.alpha_ is None:
            return clone(self)
        base = clone(self.base)
        if self.local_epochs_ is not None and "epochs" in get_params(base):
            base = clone(base, epochs=self.local_epochs_)
        embedding = None if self.embedding is None else fitted(self.embedder_, self).with_selected_params()
        return clone(
            self, base=base, global_model=self.global_.with_selected_params(), embedding=embedding, alpha=self.alpha_
        )

    def state(self) -> ModelState:
        communities, local = fitted(self.communities_, self).state(), fitted(self.locals_, self)
        parts: dict[str, Any] = {"global": self.global_, "local models": local}
        embedder: object = self.embedder_
        if embedder is not self.global_:
            parts["embedder"] = embedder
        if local.centre_ is not None and local.centre_ is not self.global_:
            parts["centre"] = local.centre_
        items, lifts = fitted(self.distinctive_, self)
        learned: dict[str, npt.NDArray[Any]] = {"distinctive_items": items, "distinctive_lifts": lifts}
        arrays = {**communities.arrays, **learned, "members": fitted(self.members_, self)}
        facts: dict[str, Any] = {"alpha": self.alpha_, "local_epochs": self.local_epochs_}
        if self.locality_ is not None:
            figures = self.locality_
            facts["locality"] = {"effective_share": figures.effective_share, "answering": figures.answering}
        return ModelState(arrays, {**communities.facts, **facts}, parts)

    @classmethod
    def restore(cls, params: Mapping[str, Any], state: ModelState) -> Self:
        model, facts = cls(**params), state.facts
        items, lifts, members = (state.arrays[name] for name in ("distinctive_items", "distinctive_lifts", "members"))
        local, global_model = state.parts.get("local models"), state.parts.get("global")
        embedder = state.parts.get("embedder", global_model)
        if set(state.parts) - {"embedder", "centre"} != {"global", "local models"} or not isinstance(
            local, LocalModels
        ):
            raise ModelFileError(f"loca: expected a global and local models, found {', '.join(sorted(state.parts))}")
        if not isinstance(global_model, Recommender):
            raise ModelFileError("loca: the global model is not a recommender")
        if not isinstance(embedder, Embedder):
            raise ModelFileError(f"loca: {type(embedder).__name__} cannot embed histories")
        local.around(state.parts.get("centre", global_model))
        item_count = global_model.count_items()
        try:
            communities = Communities.restore(state)
            dimensions = embedder.embed(csr_array(np.zeros((1, item_count), dtype=np.float32))).shape[1]
        except LocaError as problem:
            raise ModelFileError(f"loca: communities or embedder do not fit: {problem}") from problem
        count = len(communities)
        if len(local) != count:
            raise ModelFileError(f"loca: expected {count} local models, found {len(local)}")
        if members.shape != (count,) or items.ndim != 2 or len(items) != count or lifts.shape != items.shape:
            raise ModelFileError(f"loca: the arrays do not fit {count} communities")
        if not (items.dtype.kind == "i" and (items >= 0).all() and (communities.anchors >= 0).all()):
            raise ModelFileError("loca: an item or an anchor has a row below 0")
        if not np.isfinite(communities.anchor_embeddings).all():
            raise ModelFileError("loca: the anchor embeddings hold NaN or infinity")
        if dimensions != communities.anchor_embeddings.shape[1]:
            raise ModelFileError(f"loca: the embedder gives {dimensions} dimensions, the anchors have others")
        if local.count_items() != item_count or int(items.max(initial=0)) >= item_count:
            raise ModelFileError(f"loca: expected parts that all score the same {item_count} items")
        if not isinstance(facts["alpha"], int | float) or not 0 <= facts["alpha"] <= 1:
            raise ModelFileError(f"loca: expected alpha from 0 to 1, found {facts['alpha']!r}")
        model.global_, model.embedder_, model.communities_, model.locals_ = global_model, embedder, communities, local
        model.local_epochs_, model.alpha_ = facts["local_epochs"], float(facts["alpha"])
        model.members_, model.distinctive_ = members, (items, lifts)
        if facts.get("locality") is not None:  # a model that was saved before this was measured has none
            figures = facts["locality"] if isinstance(facts["locality"], dict) else {}
            numbers = [figures.get(name) for name in ("effective_share", "answering")]
            if not all(isinstance(one, int | float) and 0 <= one < float("inf") for one in numbers):
                raise ModelFileError(f"loca: expected the figures of its locality as numbers ≥ 0, found {figures!r}")
            model.locality_ = Locality(model.alpha_, float(figures["effective_share"]), float(figures["answering"]))
        return model
