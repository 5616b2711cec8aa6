"""Many local models as one: their blended scores, with and without the global model, judged on validation."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from loca.data.splits import HeldOut
from loca.deferred import torch
from loca.errors import ConfigError, ModelFileError, check_arguments
from loca.evaluation.evaluate import UserRows, mean_values, value_of_each
from loca.evaluation.metrics import DEFAULT_METRIC, Metric, Values
from loca.evaluation.top_n import AnyScores, as_array, beside
from loca.models.devices import ranking_bytes, score_on
from loca.models.recommender import (
    AnyModel,
    ItemRows,
    Recommender,
    Scores,
    TrainingData,
    UserWeights,
)
from loca.persistence.fit_context import NO_CONTEXT, Callback, FitContext
from loca.persistence.manifest import ModelState

# In which numbers networks are multiplied while they learn, and are stored when they answer.
PrecisionName = Literal["float32", "bfloat16"]
AnswerPrecision = Literal["float32", "float16"]
ScoreWith = Callable[[int, csr_array], AnyScores]


def blend_local(
    histories: csr_array,
    answer_weights: csr_array,
    score_with: ScoreWith,
    device: torch.device | None = None,
) -> AnyScores:
    """Σ_j w_j · M_j(history) / Σ_j w_j for every user, users × items on the device; an uncovered user's row is zero.

    Without a device they are an array.
    `score_with(j, histories)` is called once for each local model j, with exactly the users whom it answers for.
    """
    totals = np.asarray(answer_weights.sum(axis=1)).ravel()  # (users,)
    zeros = np.zeros(histories.shape, np.float32)
    blended: AnyScores = zeros if device is None else torch.from_numpy(zeros).to(device)
    by_community = answer_weights.tocsc()
    for community in np.flatnonzero(np.diff(by_community.indptr)).tolist():
        part = slice(by_community.indptr[community], by_community.indptr[community + 1])
        members, weights = by_community.indices[part], by_community.data[part]
        shares = (weights / totals[members]).astype(np.float32)[:, None]
        answers = score_with(community, csr_array(histories[members]))
        blended[beside(blended, members.astype(np.int64))] += beside(blended, shares) * beside(
            blended, answers
        )
    return blended


@dataclass(frozen=True, eq=False)
class LocalTask:
    """Unfitted models that differ in their seeds at most; model j learns from `data` with the weights `weights_of(j)`.

    `centre` is the fitted global model, where there is one. In an update `present` are the models as they are, which
    learn for `epochs` more. In the first `shared_epochs` all learn with the user weights of `data`.
    """

    models: list[Recommender]
    data: TrainingData
    weights_of: Callable[[int], UserWeights]
    what: str
    centre: Recommender | None = None
    present: LocalModels | None = None
    epochs: int = 0
    shared_epochs: int = 0

    @property
    def moments(self) -> csr_array | None:
        """The moments of the data's entries; None where each is one of its own, or the models learn from sets."""
        return self.data.moments if self.models[0].uses_order else None


class ManyModels(Recommender):
    """A recommender that trains many local models, here or in shards."""

    @check_arguments
    def fit(
        self,
        train: Any,
        *,
        user_weights: UserWeights | None = None,
        validation: HeldOut | None = None,
        metric: Metric | str = DEFAULT_METRIC,
        device: str = "auto",
        callbacks: Sequence[Callback] = (),
        context: FitContext = NO_CONTEXT,
        executor: Any = None,
    ) -> Self:
        """Learn from the training data; what an earlier fit learned is forgotten.

        Parameters
        ----------
        train, user_weights, validation, metric, device, callbacks, context
            As for any model.
        executor : ShardExecutor or RayExecutor, optional
            Trains the local models in shards, with the numbers of this machine. None trains them here.

        Returns
        -------
        Self
            The model itself.
        """
        given = context if executor is None else replace(context, executor=executor)
        return super().fit(
            train,
            user_weights=user_weights,
            validation=validation,
            metric=metric,
            device=device,
            callbacks=callbacks,
            context=given,
        )


def one_for_each(numbers: npt.NDArray[np.int64], models: int) -> csr_array:
    """Answer weights by which row r is answered by the model `numbers[r]` alone, rows × models."""
    rows = len(numbers)
    return csr_array(
        (np.ones(rows, np.float32), numbers, np.arange(rows + 1)), shape=(rows, models)
    )


def first_models(answer_weights: csr_array, count: int | None) -> csr_array:
    """The same weights, users × models, with nothing stored but for the first `count` models; None: for all."""
    if count is None or count >= answer_weights.shape[1]:
        return answer_weights
    first = csr_array(answer_weights, copy=True)
    first.data[first.indices >= count] = 0
    first.eliminate_zeros()
    return first


def truncated(model: AnyModel, count: int, size: int) -> AnyModel:
    """A fitted model of `size` models with its first `count` alone; all of them are the model itself."""
    if not 1 <= count <= size:
        raise ConfigError(f"expected from 1 to {size} of the models, found {count}")
    first = copy.copy(model)
    vars(first)["answering_models_"] = count
    return model if count == size else first


@runtime_checkable
class LocalModels(Protocol):
    """Many fitted models over the same items, numbered like the communities they answer for.

    `centre_` is the model that they are stored as differences to, where they are. Blended scores are a tensor on
    `device`, or an array where that is None. `saved_in_` is a folder that holds them as they are, if any does.
    """

    device: torch.device | None = None
    centre_: Recommender | None = None
    saved_in_: Path | None = None

    def __len__(self) -> int: ...

    def count_items(self) -> int:
        """How many items they score."""
        ...

    def blend(self, histories: csr_array, answer_weights: csr_array) -> AnyScores:
        """Σ_j w_j · M_j(history) / Σ_j w_j of every user, (users, items) on the device.

        `answer_weights` is users × models; a user without any gets a row of zeros.
        """
        ...

    def score_with(self, number: int, histories: csr_array) -> Scores:
        """One model's own scores, users × items."""
        only = one_for_each(np.full(histories.shape[0], number), len(self))
        return as_array(self.blend(histories, only))

    def similarities_of(self, number: int, item_rows: ItemRows) -> Scores:
        """One model's similarities of all items to those in some rows, (item_rows, items)."""
        raise ConfigError(f"similar items: {type(self).__name__} does not know them")

    def network(self, number: int, model: Any) -> Any:
        """A copy of one model's network that can be trained, where they are networks; `model` says its shape."""
        raise ConfigError(f"update: {type(self).__name__} holds no networks")

    def updated(self, number: int, data: TrainingData, epochs: int) -> Recommender:
        """One model after an update with the data, where each is a model of its own."""
        raise ConfigError(f"update: {type(self).__name__} holds no models of their own")

    def finished(self, precision: str) -> LocalModels:
        """What answers when training is over; networks in the precision of answers."""
        return self

    def around(self, centre: object) -> Self:
        """Itself, with the model that the local ones are stored as differences to, where they are."""
        return self

    def to(self, device: str) -> Self:
        """Itself, with what answers moved to a device."""
        return self

    def state(self) -> ModelState: ...

    @classmethod
    def restore(cls, params: Mapping[str, Any], state: ModelState) -> Self: ...


class SeparateModels(LocalModels):
    """Local models of any kind, each scoring in turn: what the reference engine gives."""

    def __init__(self) -> None:
        self.models_: list[Recommender] = []

    @classmethod
    def of(cls, models: Sequence[Recommender]) -> Self:
        """The given models; their scores lie with the first, if that is a network, else they are an array."""
        one = cls()
        one.models_ = list(models)
        one.device = getattr(getattr(models[0], "network_", None), "device", None)
        return one

    def to(self, device: str) -> Self:
        """Itself, each model moved."""
        for model in self.models_:
            model.to(device)
        self.device = getattr(getattr(self.models_[0], "network_", None), "device", None)
        return self

    def __len__(self) -> int:
        return len(self.models_)

    def count_items(self) -> int:
        """How many items they score."""
        return self.models_[0].count_items()

    def blend(self, histories: csr_array, answer_weights: csr_array) -> AnyScores:
        """The scores of all models, blended by the weights; each scores once, those it answers for."""
        return blend_local(
            histories, answer_weights, lambda j, rows: score_on(self.models_[j], rows), self.device
        )

    def similarities_of(self, number: int, item_rows: ItemRows) -> Scores:
        """One model's similarities."""
        return self.models_[number].similarities(item_rows)

    def network(self, number: int, model: Any) -> Any:
        """A copy of one model's network."""
        one: Any = self.models_[number]
        return copy.deepcopy(one.network_)

    def updated(self, number: int, data: TrainingData, epochs: int) -> Recommender:
        """One model after an update with the data."""
        return self.models_[number].updated(data, epochs)

    def state(self) -> ModelState:
        return ModelState(
            parts={f"model {number}": model for number, model in enumerate(self.models_)}
        )

    @classmethod
    def restore(cls, params: Mapping[str, Any], state: ModelState) -> Self:
        names = [f"model {number}" for number in range(len(state.parts))]
        if not names or set(state.parts) != set(names):
            raise ModelFileError(
                f"expected models named 'model 0' and on, found {sorted(state.parts)[:3]}"
            )
        models = [state.parts[name] for name in names]
        check_parts("local models", models)
        return cls.of(models)


def check_parts(what: str, models: Collection[object]) -> None:
    """Refuse parts of a file that are no recommenders, or not all of the same items."""
    found = [one for one in models if isinstance(one, Recommender)]
    if len(found) < len(models):
        raise ModelFileError(f"{what}: a part is not a recommender")
    counts = sorted({one.count_items() for one in found})
    if len(counts) > 1:
        raise ModelFileError(f"{what}: the parts score different numbers of items: {counts}")


def blended_scores(
    local: LocalModels,
    whole: Recommender,
    histories: csr_array,
    answer_weights: csr_array,
    alphas: Sequence[float],
) -> Iterator[AnyScores]:
    """For each α: α · global + (1 − α) · local where a community answers, the global scores where none does.

    Each users × items. The models score once, the global one only those whose answer it has a share in.
    """
    if all(alpha == 1 for alpha in alphas):
        yield from (score_on(whole, histories) for _ in alphas)
        return
    local_scores = local.blend(histories, answer_weights)
    covered = np.diff(answer_weights.indptr) > 0
    if not any(alphas):
        rest = np.flatnonzero(~covered)
        if len(rest):
            local_scores[rest] = beside(local_scores, score_on(whole, csr_array(histories[rest])))
        yield from (local_scores for _ in alphas)
        return
    global_scores = beside(local_scores, score_on(whole, histories))
    for alpha in alphas:
        share = beside(local_scores, np.where(covered, np.float32(alpha), np.float32(1))[:, None])
        yield share * global_scores + (1 - share) * local_scores


@dataclass(frozen=True, eq=False)
class Validator:
    """Validation data with the weights of the communities that answer each user, users × communities.

    `global_model` answers those whom no community does; to judge each community alone it is not needed.
    """

    held_out: HeldOut
    answer_weights: csr_array
    global_model: Recommender | None = None
    metric: Metric = DEFAULT_METRIC

    def score(self, local: LocalModels, alphas: Sequence[float]) -> list[float]:
        """Return the mean value of the blended answer for each of the `alphas`."""
        whole: Any = self.global_model

        def score_users(users: UserRows) -> Iterator[AnyScores]:
            # The same arrays every time where all users are one block: networks that learn store what they make of it.
            rows, weights = self.held_out.history_matrix, self.answer_weights
            if len(users) < self.held_out.n_users:
                rows, weights = csr_array(rows[users]), csr_array(weights[users])
            return blended_scores(local, whole, rows, weights, alphas)

        block = ranking_bytes(local.device)
        return mean_values(score_users, self.held_out, self.metric, block_bytes=block)

    def values(self, local: LocalModels | None, alpha: float) -> Values:
        """Return the value of each user with a held-out item, by the blended answer, or the global one alone."""
        whole: Any = self.global_model
        judges = np.flatnonzero(self.held_out.target_counts)

        def score_places(places: UserRows) -> AnyScores:
            users = judges[places]
            rows = csr_array(self.held_out.history_matrix[users])
            if local is None:
                return score_on(whole, rows)
            return next(
                blended_scores(local, whole, rows, csr_array(self.answer_weights[users]), (alpha,))
            )

        block_bytes = ranking_bytes(None if local is None else local.device)
        return value_of_each(
            score_places, self.held_out, judges, self.metric, block_bytes=block_bytes
        )

    def score_each(self, local: LocalModels, communities: Iterable[int]) -> dict[int, float]:
        """Return the mean value of each of the communities by its own model, over the users whom it answers for.

        All are scored at once; nothing is given for a community that nobody judges.
        """
        pairs = self.answer_weights.tocsc().tocoo()  # community by community
        judges = (self.held_out.target_counts[pairs.row] > 0) & np.isin(
            pairs.col, list(communities)
        )
        community, user = (part[judges].astype(np.int64) for part in (pairs.col, pairs.row))

        def score_pairs(places: UserRows) -> AnyScores:
            """The scores of those pairs, left where they are computed."""
            rows = csr_array(self.held_out.history_matrix[user[places]])
            return local.blend(rows, one_for_each(community[places], len(local)))

        values = value_of_each(
            score_pairs, self.held_out, user, self.metric, block_bytes=ranking_bytes(local.device)
        )
        sums, counts = (
            np.bincount(community, values, len(local)),
            np.bincount(community, minlength=len(local)),
        )
        return {int(one): float(sums[one] / counts[one]) for one in np.flatnonzero(counts)}
