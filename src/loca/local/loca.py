"""Loca: one global model, many local ones around anchor users, and answers blended by membership."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
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
from loca.data.splits import HeldOut
from loca.errors import ConfigError, LocaError, ModelFileError, check_choice, check_counts
from loca.evaluation.top_n import rank_top_n
from loca.local.explain import CommunityAnswer, Explanation, item_order, over_represented
from loca.local.local_ease import LOCAL_BYTES
from loca.local.local_models import (
    BlendValidator,
    CommunityValidator,
    LocalModels,
    blended_scores,
    first_models,
)
from loca.local.stacked.inference import AnswerPrecision, check_answer_precision
from loca.local.stacked.ops import PrecisionName, check_precision
from loca.local.training import (
    Engine,
    EngineName,
    LocalTask,
    TrainedLocals,
    check_engine,
    copies_of,
    local_memory,
    scaled_weights,
    train_apart,
    train_together,
)
from loca.memory import DataSize, MemoryUse
from loca.models.devices import choose_device, free_bytes
from loca.models.recommender import (
    Estimator,
    ModelState,
    Recommender,
    Scores,
    TrainingData,
    UserWeights,
    clone,
    fitted,
    get_params,
)
from loca.persistence.checkpoint import Checkpoint
from loca.progress import say

ALPHAS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
DISTINCTIVE_ITEMS = 20


class Loca(Estimator):
    """Local collaborative autoencoders over any base model that takes user weights.

    Each of the `anchors` local models is the base fitted with the wide weights of its community (`train_bandwidth`),
    and answers for its narrow neighbourhood (`answer_bandwidth`); bandwidths are units of distance or `Quantile`s of
    the distances between users. `embedding` makes user embeddings (default: the global model where it has an encoder,
    else a truncated SVD). `alpha` is the global model's share for covered users: a number, `"validation"` (chosen
    there), or `"paper"` (0). `stopping="blended"` chooses one number of epochs for all local models on the blended
    validation score, `"community"` stops each on its own members. `global_model` defaults to a copy of the base.
    `engine` trains networks as one batched network (`"stacked"`, and `"auto"` too) or in a loop (`"one_by_one"`, the
    reference), and keeps local EASEs as differences or dense; the answer is the same. `precision="bfloat16"` lets the
    stacked engine multiply 16-bit numbers (sums and weights keep 32), `answer_precision="float16"` keeps the weights of
    local networks in half the memory, and `local_bytes` is what a local EASE may take: its largest differences to the
    global one.
    """

    role = "local"

    def __init__(
        self,
        *,
        base: Recommender,
        anchors: int = 40,
        anchor_selection: AnchorSelection = "coverage",
        train_bandwidth: Bandwidth = Quantile(0.9, times=1.3),  # noqa: B008 - frozen
        answer_bandwidth: Bandwidth = Quantile(0.5),  # noqa: B008 - frozen
        kernel: KernelName = "epanechnikov",
        embedding: Embedder | None = None,
        global_model: Recommender | None = None,
        alpha: float | Literal["validation", "paper"] = "validation",
        stopping: Literal["blended", "community"] = "blended",
        engine: EngineName = "auto",
        precision: PrecisionName = "float32",
        answer_precision: AnswerPrecision = "float32",
        local_bytes: int = LOCAL_BYTES,
        seed: int = 0,
    ) -> None:
        check_choice("anchor_selection", anchor_selection, ANCHOR_SELECTIONS)
        check_choice("kernel", kernel, KERNELS)
        check_engine(engine)
        check_precision(precision)
        check_answer_precision(answer_precision)
        check_bandwidth("train_bandwidth", train_bandwidth)
        check_bandwidth("answer_bandwidth", answer_bandwidth)
        if isinstance(alpha, str) and alpha not in ("validation", "paper"):
            raise ConfigError(f"alpha: expected a number from 0 to 1, 'validation' or 'paper', found {alpha!r}")
        if not isinstance(alpha, str) and not 0 <= alpha <= 1:
            raise ConfigError(f"alpha: expected a number from 0 to 1, 'validation' or 'paper', found {alpha!r}")
        if stopping not in ("blended", "community"):
            raise ConfigError(f"stopping: expected 'blended' or 'community', found {stopping!r}")
        check_counts(anchors=anchors, local_bytes=local_bytes)
        self.base = base
        self.anchors = anchors
        self.anchor_selection: AnchorSelection = anchor_selection
        self.train_bandwidth = train_bandwidth
        self.answer_bandwidth = answer_bandwidth
        self.kernel: KernelName = kernel
        self.embedding = embedding
        self.global_model = global_model
        self.alpha: float | Literal["validation", "paper"] = alpha
        self.stopping: Literal["blended", "community"] = stopping
        self.engine: EngineName = engine
        self.precision: PrecisionName = precision
        self.answer_precision: AnswerPrecision = answer_precision
        self.local_bytes = local_bytes
        self.seed = seed
        self.global_: Recommender | None = None
        self.embedder_: Embedder | None = None
        self.communities_: Communities | None = None
        self.locals_: LocalModels | None = None
        self.local_epochs_: int | None = None
        self.alpha_: float | None = None
        self.answering_models_: int | None = None
        self.locality_: Locality | None = None
        self.members_: npt.NDArray[np.int64] | None = None
        self.distinctive_: tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]] | None = None

    def _fit(self, data: TrainingData) -> None:
        """The paper's three steps: find communities, train a local model for each, learn how to combine them."""
        matrix, weights = data.matrix, data.user_weights
        check_anchor_count(self.anchors, int((np.diff(matrix.indptr) > 0).sum()))
        self.global_ = None  # what an earlier fit learned makes room
        self.global_ = data.fit_part(
            "global model", clone(self.base if self.global_model is None else self.global_model)
        )
        self.global_.train_data_ = None  # kept once, here
        self.embedder_ = self._fit_embedder(data)
        self.embedder_.train_data_ = None
        # Under recency a community is one of present taste, and membership moves as a history grows.
        embeddings = embed_users(self.embedder_, as_histories(data.train))
        self.communities_ = self._find_communities(
            embeddings, np.flatnonzero(np.diff(matrix.indptr)), data.context.checkpoint
        )
        questions = self._questions(data.validation)
        trained = self._train_locals(data, embeddings, questions)
        self.locals_, self.local_epochs_ = trained.models, trained.epochs
        self.alpha_ = self._choose_alpha(questions)
        answering = self.communities_.answer_weights(embeddings)
        self.members_ = np.bincount(answering.indices, minlength=self.anchors)
        has_history = np.diff(matrix.indptr) > 0
        trained_on = self.communities_.effective_shares(embeddings[has_history], weights[has_history])
        answered = np.diff(answering.indptr)[has_history]
        self.locality_ = Locality(self.alpha_, float(trained_on.mean()), float(answered.mean()))
        self.distinctive_ = over_represented(matrix, answering, DISTINCTIVE_ITEMS)

    def _fit_embedder(self, data: TrainingData) -> Embedder:
        if self.embedding is not None:
            return data.fit_part("embedding", clone(self.embedding))
        global_model: object = self.global_
        if isinstance(global_model, Embedder):
            return global_model
        return data.context.fit_part("embedding", TruncatedSVD(seed=self.seed), data.train)

    def _find_communities(
        self, embeddings: Floats, with_history: npt.NDArray[np.int64], checkpoint: Checkpoint
    ) -> Communities:
        """Communities of the users who have a history: only they can be anchors, and only they are counted."""
        saved = checkpoint.load("communities")
        if saved is not None:
            return _communities_from(saved)
        found = find_communities(
            embeddings[with_history],
            anchors=self.anchors,
            anchor_selection=self.anchor_selection,
            train_bandwidth=self.train_bandwidth,
            answer_bandwidth=self.answer_bandwidth,
            kernel=self.kernel,
            seed=self.seed,
            device=get_params(self.base).get("device", "auto"),
        )
        communities = replace(found, anchors=with_history[found.anchors])
        if checkpoint.due():
            checkpoint.save("communities", _communities_state(communities))
        return communities

    def _questions(self, validation: HeldOut | None) -> BlendValidator | None:
        """The validation questions with the communities that answer each; None without validation."""
        if validation is None:
            return None
        return BlendValidator(validation, self.answer_weights(validation.history_matrix), fitted(self.global_, self))

    def _train_locals(self, data: TrainingData, embeddings: Floats, questions: BlendValidator | None) -> TrainedLocals:
        communities, weights = fitted(self.communities_, self), data.user_weights

        def weights_of(community: int) -> UserWeights:
            together = weights * communities.train_weights(embeddings, community)
            return scaled_weights(together, float(weights.sum(dtype=np.float64)))

        models = copies_of(self.base, self.anchors, self.seed, "local model")
        task = LocalTask(
            models, data.matrix, weights_of, "local models", fitted(self.global_, self), data.train, data.context
        )
        engine = Engine(self.engine, self.precision, self.answer_precision, self.local_bytes)
        if questions is None or self.stopping == "blended":
            # Judged without the global model's share where that is still to be chosen: with it, local models that
            # have learned nothing yet would look as good as the global one, and stop there.
            alpha = 0.0 if isinstance(self.alpha, str) else float(self.alpha)
            validate = None if questions is None else lambda local: questions.score(local, (alpha,))[0]
            return train_together(task, engine, validate)
        members = CommunityValidator(questions.held_out, questions.answer_weights)
        return train_apart(task, engine, members)

    def _choose_alpha(self, questions: BlendValidator | None) -> float:
        if not isinstance(self.alpha, str):
            return float(self.alpha)
        if self.alpha == "paper" or questions is None:
            # Without validation there is nothing to choose on: the paper's rule.
            return 0.0
        scores = questions.score(fitted(self.locals_, self), ALPHAS)
        best = int(np.argmax(scores))
        say(f"global share alpha = {ALPHAS[best]:g}: blended validation NDCG@100 {scores[best]:.4f}")
        return ALPHAS[best]

    def embed(self, histories: csr_array) -> Floats:
        """The users' embeddings as unit rows, users × dimensions."""
        return embed_users(fitted(self.embedder_, self), histories)

    def answer_weights(self, histories: csr_array) -> csr_array:
        """How much each community's answer counts for each history, users × communities; empty for an uncovered one."""
        weights = fitted(self.communities_, self).answer_weights(self.embed(histories))
        return first_models(weights, self.answering_models_)

    def truncate(self, count: int) -> Self:
        """This fitted model with its first `count` local models alone, and the α of all.

        Anchors are chosen one after the other, but for k-means, and each model draws from its own stream: these are the
        models of a Loca that has no more and learned for as many epochs. Who is left without a community gets the
        global scores.
        """
        if not 1 <= count <= self.anchors:
            raise ConfigError(f"expected from 1 to {self.anchors} of the models, found {count}")
        if count == self.anchors:
            return self
        truncated = copy.copy(self)
        truncated.answering_models_ = count
        return truncated

    def facts(self, counts: Sequence[int] = ()) -> dict[str, Any]:
        """α, epochs, bandwidths in units, coverage, and how local it is in the mean.

        Of the users in its training data: the share that the first `counts` communities cover, the share that a
        community trains on, and the share of the pairs of a user and a community that answers.
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

    def score(self, histories: csr_array) -> Scores:
        """Embeds, weighs and scores every history, known user or not; users × items."""
        rows, local, alpha = csr_array(histories), fitted(self.locals_, self), fitted(self.alpha_, self)
        blended = blended_scores(local, fitted(self.global_, self), rows, self.answer_weights(rows), (alpha,))
        return np.asarray(next(blended).cpu().numpy(), dtype=np.float32)

    def explain(
        self,
        history: csr_array,
        n: int = 10,
        *,
        order: npt.NDArray[Any] | None = None,
        data: Interactions | None = None,
    ) -> Explanation:
        """The communities that answer for one history, strongest first, and what each and the global model say alone.

        A sparse row stores no order; `order` gives the history's item rows, oldest first, where they are to be shown.
        `data` names users and items in place of the model's own training data.
        """
        communities, alpha = fitted(self.communities_, self), fitted(self.alpha_, self)
        data = self.train_data_ if data is None else data
        in_order, history = item_order(history, order), csr_array(history)
        distinctive, lifts = fitted(self.distinctive_, self)
        answering = self.answer_weights(history)
        answers = []
        for place in np.argsort(-answering.data, kind="stable"):
            community = int(answering.indices[place])
            local = fitted(self.locals_, self).score_with(community, history)
            items, scores = rank_top_n(local, history, n)
            anchor = int(communities.anchors[community])
            answers.append(
                CommunityAnswer(
                    community=community,
                    anchor=anchor if data is None else data.users.ids([anchor])[0],
                    weight=float((1 - alpha) * answering.data[place] / answering.data.sum()),
                    members=int(fitted(self.members_, self)[community]),
                    items=items[0],
                    scores=scores[0],
                    distinctive=distinctive[community][:n],
                    lifts=lifts[community][:n],
                )
            )
        global_items, global_scores = rank_top_n(fitted(self.global_, self).score(history), history, n)
        items, scores = rank_top_n(self.score(history), history, n)
        return Explanation(
            history=in_order,
            ordered=order is not None,
            items=items[0],
            scores=scores[0],
            alpha=alpha if answers else 1.0,
            global_items=global_items[0],
            global_scores=global_scores[0],
            communities=tuple(answers),
            names=None if data is None else data.items,
            locality=self.locality_,
        )

    def memory_bytes(self, data: DataSize) -> MemoryUse:
        """The steps of `fit`: global model, embedding, communities and local models."""
        check_anchor_count(self.anchors, data.users)
        unfitted = self.base if self.global_model is None else self.global_model
        steps, embedder = {"global model": unfitted.memory_bytes(data)}, self.embedding
        if embedder is None and not isinstance(unfitted, Embedder):
            embedder = TruncatedSVD(seed=self.seed)
        if embedder is not None:
            steps["embedding"] = embedder.memory_bytes(data)
        steps["communities"] = self._communities_memory(data, embedding_dimensions(embedder or unfitted))
        engine = Engine(self.engine, self.precision, self.answer_precision, self.local_bytes)
        return MemoryUse.in_turn(steps | local_memory(self.base, self.anchors, engine, data, "local models", unfitted))

    def _communities_memory(self, data: DataSize, dimensions: int) -> MemoryUse:
        """Embeddings, the neighbourhoods of greedy coverage, and the weights with which communities answer."""
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
        """How many items it scores."""
        return fitted(self.global_, self).count_items()

    def with_selected_params(self) -> Self:
        """A copy whose epochs and α are those that validation chose."""
        if self.global_ is None or self.alpha_ is None:
            return clone(self)
        base = clone(self.base)
        if self.local_epochs_ is not None and "epochs" in get_params(base):
            base = clone(base, epochs=self.local_epochs_)
        embedding = self.embedding if self.embedding is None else fitted(self.embedder_, self).with_selected_params()
        return clone(
            self, base=base, global_model=self.global_.with_selected_params(), embedding=embedding, alpha=self.alpha_
        )

    def embeds_itself(self) -> bool:
        """Whether the embeddings are the global model's own."""
        embedder: object = self.embedder_
        return embedder is self.global_

    def state(self) -> ModelState:
        return _loca_state(self)

    @classmethod
    def restore(cls, params: Mapping[str, Any], state: ModelState) -> Self:
        model = cls(**params)
        _restore_loca(model, state)
        return model


def _loca_state(model: Loca) -> ModelState:
    """Everything that the fitted model has learned."""
    communities, (items, lifts) = fitted(model.communities_, model), fitted(model.distinctive_, model)
    parts: dict[str, Any] = {"global": model.global_}
    if not model.embeds_itself():
        parts["embedder"] = model.embedder_
    local = fitted(model.locals_, model)
    parts["local models"] = local
    if local.centre_ is not None and local.centre_ is not model.global_:
        parts["centre"] = local.centre_
    own = _communities_state(communities)
    learned: dict[str, npt.NDArray[Any]] = {
        "members": fitted(model.members_, model),
        "distinctive_items": items,
        "distinctive_lifts": lifts,
    }
    chosen: dict[str, Any] = {"alpha": model.alpha_, "local_epochs": model.local_epochs_}
    if model.locality_ is not None:
        chosen["locality"] = {
            "effective_share": model.locality_.effective_share,
            "answering": model.locality_.answering,
        }
    return ModelState({**own.arrays, **learned}, {**own.facts, **chosen}, parts)


def _communities_state(communities: Communities) -> ModelState:
    """Communities as arrays and facts."""
    return ModelState(
        arrays={"anchors": communities.anchors, "anchor_embeddings": communities.anchor_embeddings},
        facts={
            "train_bandwidth": communities.train_bandwidth,
            "answer_bandwidth": communities.answer_bandwidth,
            "coverage": communities.coverage,
            "kernel": communities.kernel,
        },
    )


def _communities_from(state: ModelState) -> Communities:
    """The communities that a state holds; they check themselves."""
    return Communities(
        anchors=state.arrays["anchors"],
        anchor_embeddings=state.arrays["anchor_embeddings"],
        train_bandwidth=state.facts["train_bandwidth"],
        answer_bandwidth=state.facts["answer_bandwidth"],
        kernel=state.facts["kernel"],
        coverage=state.facts["coverage"],
    )


def _restore_loca(model: Loca, state: ModelState) -> None:
    """Gives an unfitted model what `state` holds."""
    arrays, facts = state.arrays, state.facts
    try:
        communities = _communities_from(state)
    except LocaError as problem:
        raise ModelFileError(str(problem)) from problem
    count = len(communities)
    local = state.parts.get("local models")
    if set(state.parts) - {"embedder", "centre"} != {"global", "local models"} or not isinstance(local, LocalModels):
        raise ModelFileError(f"loca: expected a global and local models, found {', '.join(sorted(state.parts))}")
    if not isinstance(state.parts["global"], Recommender):
        raise ModelFileError("loca: the global model is not a recommender")
    local.around(state.parts.get("centre", state.parts["global"]))
    if len(local) != count:
        raise ModelFileError(f"loca: expected {count} local models, found {len(local)}")
    items, lifts, members = arrays["distinctive_items"], arrays["distinctive_lifts"], arrays["members"]
    if members.shape != (count,) or items.ndim != 2 or len(items) != count or lifts.shape != items.shape:
        raise ModelFileError(f"loca: the arrays do not fit {count} communities")
    if not (items.dtype.kind == "i" and (items >= 0).all() and (communities.anchors >= 0).all()):
        raise ModelFileError("loca: an item or an anchor has a row below 0")
    if not np.isfinite(communities.anchor_embeddings).all():
        raise ModelFileError("loca: the anchor embeddings hold NaN or infinity")
    if not isinstance(facts["alpha"], int | float) or not 0 <= facts["alpha"] <= 1:
        raise ModelFileError(f"loca: expected alpha from 0 to 1, found {facts['alpha']!r}")
    embedder = state.parts.get("embedder", state.parts["global"])
    if not isinstance(embedder, Embedder):
        raise ModelFileError(f"loca: {type(embedder).__name__} cannot embed histories")
    _check_other_items(state.parts["global"], local, communities, embedder, int(items.max(initial=0)))
    model.global_ = state.parts["global"]
    model.embedder_ = embedder
    model.communities_ = communities
    model.locals_ = local
    model.local_epochs_ = facts["local_epochs"]
    model.alpha_ = float(facts["alpha"])
    model.locality_ = _locality(model.alpha_, facts.get("locality"))
    model.members_ = members
    model.distinctive_ = (items, lifts)


def _locality(alpha: float, written: Any) -> Locality | None:
    """How local the model is; None for one that was saved before this was measured."""
    if written is None:
        return None
    figures = written if isinstance(written, dict) else {}
    share, answering = figures.get("effective_share"), figures.get("answering")
    for one in (share, answering):
        if not isinstance(one, int | float) or not 0 <= one < float("inf"):
            raise ModelFileError(f"loca: expected the figures of its locality as numbers ≥ 0, found {written!r}")
    return Locality(alpha, float(share or 0), float(answering or 0))


def _check_other_items(
    global_model: Recommender, local: LocalModels, communities: Communities, embedder: Embedder, largest: int
) -> None:
    """Refuses parts that score other items than the global model, or embed into another space than the anchors'."""
    item_count = global_model.count_items()
    if local.count_items() != item_count or largest >= item_count:
        raise ModelFileError(f"loca: expected parts that all score the same {item_count} items")
    try:
        dimensions = embedder.embed(csr_array(np.zeros((1, item_count), dtype=np.float32))).shape[1]
    except LocaError as problem:
        raise ModelFileError(f"loca: the embedder does not fit: {problem}") from problem
    if dimensions != communities.anchor_embeddings.shape[1]:
        raise ModelFileError(f"loca: the embedder gives {dimensions} dimensions, the anchors have others")
